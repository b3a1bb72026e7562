//! Network namespaces by their names: their files, and the way into one.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The folder in which iproute2 keeps namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";

/// The file of a namespace.
pub fn netns(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Moves the calling thread into a network namespace, by its file.
///
/// # Errors
/// If there is no such namespace, or this process may not enter it.
pub fn move_into(namespace: &Path) -> std::io::Result<()> {
    let file = File::open(namespace)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}
