//! The names of this host and this process, for messages.

/// This host's name, for messages.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// This process, for messages.
pub(super) fn label() -> String {
    format!("{} (process {})", host_name(), std::process::id())
}
