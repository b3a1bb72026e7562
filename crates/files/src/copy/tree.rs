//! The tree that a client copies: files, directories and links below its sources, in the order in which they are
//! offered.

use super::CopyError;
use super::file_error::FileError;
use super::message::{Entry, Kind, Modified, SIZE_MAX};
use super::names::{self, join};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most entries of one copy: ours, 16 Mi, some 4 GB of names.
const ENTRIES_MAX: usize = 1 << 24;

/// An entry, and its place on this host.
#[derive(Clone, Debug)]
pub struct Item {
    /// The entry that is offered.
    pub entry: Entry,
    /// Its path on this host.
    pub from: PathBuf,
}

/// All entries; an entry's number is its place in the list.
#[derive(Debug, Default)]
pub struct Tree {
    /// The entries.
    pub items: Vec<Item>,
    /// Files that cannot be copied, and why.
    pub failures: Vec<(PathBuf, FileError)>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// The time of its last change.
pub(super) fn modified(data: &Metadata) -> Modified {
    Modified { seconds: data.mtime(), nanoseconds: data.mtime_nsec().clamp(0, 999_999_999) as u32 }
}

impl Tree {
    /// Reads all sources. `a` becomes `a` in the directory of the copy; for `a/.` and `.`, the contents go there.
    ///
    /// # Errors
    /// If a source does not exist, or two have one name.
    pub fn of(sources: &[PathBuf]) -> Result<Tree, CopyError> {
        let mut tree = Tree::default();
        let mut names = BTreeSet::new();
        for source in sources {
            let bytes = source.as_os_str().as_bytes();
            let contents = bytes == b"." || bytes.ends_with(b"/.");
            let data = if contents { source.metadata() } else { source.symlink_metadata() }.map_err(|error| {
                CopyError::Option(format!("{}: {error}; name a file or directory", source.display()))
            })?;
            if contents {
                // The path without the dot at its end.
                tree.folder(source.components().as_path(), &[])?;
                continue;
            }
            let Some(name) = source.file_name().map(OsStrExt::as_bytes) else {
                let what = "has no name that the copy could have; append /. to copy its contents";
                return Err(CopyError::Option(format!("{} {what}", source.display())));
            };
            if !names.insert(name.to_vec()) {
                let what = "two sources have this name and would become one file: copy them one after the other";
                return Err(CopyError::Option(format!("{}: {what}", source.display())));
            }
            tree.one(source.clone(), name.to_vec(), &data)?;
        }
        Ok(tree)
    }

    fn folder(&mut self, from: &Path, path: &[u8]) -> Result<(), CopyError> {
        let list = from.read_dir().and_then(|list| list.map(|each| Ok(each?.file_name())).collect());
        let mut list: Vec<_> = match list {
            Ok(list) => list,
            Err(error) => {
                self.failures.push((from.to_path_buf(), FileError::of_io(&error)));
                return Ok(());
            }
        };
        list.sort();
        for name in list {
            let (here, there) = (from.join(&name), join(path, name.as_bytes()));
            match here.symlink_metadata() {
                Ok(data) => self.one(here, there, &data)?,
                Err(error) => self.failures.push((here, FileError::of_io(&error))),
            }
        }
        Ok(())
    }

    fn one(&mut self, from: PathBuf, path: Vec<u8>, data: &Metadata) -> Result<(), CopyError> {
        let kind = data.file_type();
        let kind = if kind.is_file() {
            Ok(Kind::File(data.len()))
                .and_then(|k| if data.len() > SIZE_MAX { Err(FileError::TooLarge) } else { Ok(k) })
        } else if kind.is_dir() {
            Ok(Kind::Directory)
        } else if kind.is_symlink() {
            match from.read_link() {
                Ok(target) if names::stays_inside(&path, target.as_os_str().as_bytes()) => {
                    Ok(Kind::Link(target.into_os_string().into_vec()))
                }
                Ok(_) => Err(FileError::LinkLeaves),
                Err(error) => Err(FileError::of_io(&error)),
            }
        } else {
            debug_assert!(kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device());
            Err(FileError::Special)
        };
        let kind = match kind.and_then(|kind| names::check(&path).map(|()| kind)) {
            Ok(kind) => kind,
            Err(file_error) => {
                self.failures.push((from, file_error));
                return Ok(());
            }
        };
        if self.items.len() >= ENTRIES_MAX {
            let what = "more than 16,777,216 files, directories and links: copy them in parts";
            return Err(CopyError::Option(format!("{}: {what}", from.display())));
        }
        if let Kind::File(size) = kind {
            self.bytes += size;
            self.files += 1;
        }
        let folder = matches!(kind, Kind::Directory).then(|| path.clone());
        let (id, mode) = (self.items.len() as u32, (data.mode() & 0o777) as u16);
        self.items.push(Item { entry: Entry { id, path, mode, modified: modified(data), kind }, from: from.clone() });
        folder.map_or(Ok(()), |path| self.folder(&from, &path))
    }
}
