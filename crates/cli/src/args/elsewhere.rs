//! The arguments of commands for real hosts on systems other than Linux: any, since the command only says that it needs
//! Linux.

use clap::Args;
use std::ffi::OsString;

/// Arguments of a command that works on Linux only.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LinuxOnly {
    /// This command needs Linux; its arguments are not read here
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

pub(crate) type CastArgs = LinuxOnly;
pub(crate) type CopyArgs = LinuxOnly;
pub(crate) type DoctorArgs = LinuxOnly;
pub(crate) type FabricArgs = LinuxOnly;
pub(crate) type NodeArgs = LinuxOnly;
pub(crate) type PerfArgs = LinuxOnly;
pub(crate) type SwitchArgs = LinuxOnly;
pub(crate) type TopArgs = LinuxOnly;
