//! The tree below a server's directory, besides the contents of files: further names of files, lists of names, and removal. As for files, nothing is reached but what is beneath the directory, and no symbolic link is followed.

use super::file_error::FileError;
use super::message::Entry;
use super::names::{self, PART};
use super::target::Target;
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Names, each with a flag: it is a directory.
pub(super) type Flagged = Vec<(bool, Vec<u8>)>;

/// The most bytes of names in one answer, so that it fits a message.
const NAMES_MAX: usize = 60_000;

impl Target {
    /// Gives a file that is there another name, which replaces a file of that name.
    pub(super) fn hard_link(&mut self, entry: &Entry, to: &[u8], dry_run: bool) -> Result<(), FileError> {
        names::check(to)?;
        if dry_run {
            return Ok(());
        }
        let Some(wanted) = self.stat(to)? else { return Err(FileError::Missing) };
        if FileType::from_raw_mode(wanted.st_mode) != FileType::RegularFile {
            return Err(FileError::Special);
        }
        // It is the file of this copy, and not an older one that could not be replaced.
        if (wanted.st_mtime, wanted.st_mtime_nsec as u32) != (entry.modified.seconds, entry.modified.nanoseconds) {
            return Err(FileError::Missing);
        }
        match self.stat(&entry.path)? {
            Some(there) if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino) => return Ok(()),
            Some(there) if FileType::from_raw_mode(there.st_mode) == FileType::Directory => {
                return Err(FileError::IsDirectory);
            }
            _ => {}
        }
        let (from_folder, from_name) = names::split(to);
        let from = self.folder(from_folder)?;
        let (folder, name) = names::split(&entry.path);
        let folder = self.folder(folder)?;
        let part = names::partial(name, PART);
        match rustix::fs::unlinkat(&*folder, &part, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(FileError::of(error)),
        }
        rustix::fs::linkat(&*from, from_name, &*folder, &part, AtFlags::empty()).map_err(FileError::of)?;
        rustix::fs::renameat(&*folder, &part, &*folder, name).map_err(FileError::of)
    }

    /// The names in a directory that come after `after`, in order, and whether each is a directory; as many as fit a message,
    /// and whether there are others. Unfinished copies are left out. None if there is no such directory.
    pub(super) fn names(&mut self, path: &[u8], after: &[u8]) -> Result<(bool, Flagged), FileError> {
        if !path.is_empty() {
            names::check(path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match self.open_beneath(path, flags) {
            Err(FileError::Missing) => return Ok((false, Vec::new())),
            other => other?,
        };
        let mut found: BTreeSet<Vec<u8>> = BTreeSet::new();
        let (mut bytes, mut more) = (0, false);
        for entry in Dir::read_from(&folder).map_err(FileError::of)? {
            let name = entry.map_err(FileError::of)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." || name[..] <= *after || names::is_partial(&name) {
                continue;
            }
            bytes += name.len() + 3;
            found.insert(name);
            // The first names are kept, however many there are.
            while bytes > NAMES_MAX {
                let Some(last) = found.pop_last() else { break };
                bytes -= last.len() + 3;
                more = true;
            }
        }
        let kind = |name: Vec<u8>| {
            let stat = rustix::fs::statat(&folder, &name[..], AtFlags::SYMLINK_NOFOLLOW);
            let is_directory = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            (is_directory, name)
        };
        Ok((more, found.into_iter().map(kind).collect()))
    }

    /// Removes a file, a link, or an empty directory. It may be gone.
    pub(super) fn remove(&mut self, path: &[u8], is_directory: bool) -> Result<(), FileError> {
        names::check(path)?;
        let (folder, name) = names::split(path);
        let folder = match self.folder(folder) {
            Err(FileError::Missing) => return Ok(()),
            other => other?,
        };
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&*folder, name, flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(FileError::of(error)),
        }
        if is_directory {
            self.forget_recent();
        }
        Ok(())
    }
}
