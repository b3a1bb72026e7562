//! The long links of a fabric: a process that carries them while the fabric stands.

use crate::linux::LinuxError;

/// Carries the long links of the fabric `name` until it is ended.
///
/// # Errors
/// If there is no such fabric, or a link cannot be carried.
pub fn carry_lines(name: &str) -> Result<(), LinuxError> {
    Err(LinuxError(name.into()))
}
