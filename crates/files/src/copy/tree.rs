//! The tree that a client copies: files, directories and links below its sources, in the order in which they are
//! offered.

use super::CopyError;
use super::exclude::Exclude;
use super::file_error::FileError;
use super::message::{Entry, Kind, Modified, SIZE_MAX};
use super::more::{self, ATTRIBUTES_MAX, Attributes, More, USER};
use super::names::{self, join};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most entries of one copy: ours, 16 Mi, some 4 GB of names.
const ENTRIES_MAX: usize = 1 << 24;

/// Properties of files that a copy keeps besides contents, modes and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Runs of zeros of files with holes take no room at the server, and are not sent.
    pub sparse: bool,
    /// Several names of one file stay names of one file.
    pub hard_links: bool,
    /// Extended attributes whose names begin with `user.`.
    pub attributes: bool,
    /// Users and groups, by number. The server must allow it.
    pub owners: bool,
}

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
    /// The contents of a source go into the directory of the copy itself.
    pub at_top: bool,
    /// The names that are left out.
    pub(super) exclude: Exclude,
    preserve: Preserve,
    /// The first name of each file that has several.
    firsts: BTreeMap<(u64, u64), Vec<u8>>,
    /// Further names of files: the last entries.
    hard: Vec<Item>,
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
        Tree::of_chosen(sources, Preserve::default(), &Exclude::default())
    }

    /// Reads all sources without what `exclude` leaves out, and with more of each file.
    ///
    /// # Errors
    /// As for [`Tree::of`].
    pub fn of_chosen(sources: &[PathBuf], preserve: Preserve, exclude: &Exclude) -> Result<Tree, CopyError> {
        let mut tree = Tree { preserve, exclude: exclude.clone(), ..Tree::default() };
        let mut names = BTreeSet::new();
        for source in sources {
            let bytes = source.as_os_str().as_bytes();
            let contents = bytes == b"." || bytes.ends_with(b"/.");
            let data = if contents { source.metadata() } else { source.symlink_metadata() }.map_err(|error| {
                CopyError::Option(format!("{}: {error}; name a file or directory", source.display()))
            })?;
            if contents {
                tree.at_top = true;
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
        let mut hard = std::mem::take(&mut tree.hard);
        for (item, id) in hard.iter_mut().zip(tree.items.len() as u32..) {
            item.entry.id = id;
        }
        tree.items.append(&mut hard);
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
        if self.exclude.leaves_out(&path, kind.is_dir()) {
            return Ok(());
        }
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
        let checked = kind.and_then(|kind| names::check(&path).map(|()| kind));
        let (kind, more) =
            match checked.and_then(|kind| Ok((self.first_or_other(kind, &path, data), self.more(&from, data)?))) {
                Ok(both) => both,
                Err(file_error) => {
                    self.failures.push((from, file_error));
                    return Ok(());
                }
            };
        if self.items.len() + self.hard.len() >= ENTRIES_MAX {
            let what = "more than 16,777,216 files, directories and links: copy them in parts";
            return Err(CopyError::Option(format!("{}: {what}", from.display())));
        }
        if let Kind::File(size) = kind {
            self.bytes += size;
            self.files += 1;
        }
        let folder = matches!(kind, Kind::Directory).then(|| path.clone());
        let (id, mode) = (self.items.len() as u32, (data.mode() & 0o777) as u16);
        let is_hard = matches!(kind, Kind::Hard(_));
        let entry = Entry { id, path, mode, modified: modified(data), kind, more };
        let list = if is_hard { &mut self.hard } else { &mut self.items };
        list.push(Item { entry, from: from.clone() });
        folder.map_or(Ok(()), |path| self.folder(&from, &path))
    }

    /// The kind of a file, unless it is another name of one that was found before.
    fn first_or_other(&mut self, kind: Kind, path: &[u8], data: &Metadata) -> Kind {
        if !self.preserve.hard_links || !matches!(kind, Kind::File(_)) || data.nlink() < 2 {
            return kind;
        }
        match self.firsts.get(&(data.dev(), data.ino())) {
            Some(first) => Kind::Hard(first.clone()),
            None => {
                self.firsts.insert((data.dev(), data.ino()), path.to_vec());
                kind
            }
        }
    }

    fn more(&self, from: &Path, data: &Metadata) -> Result<More, FileError> {
        let Preserve { sparse, attributes, owners, .. } = self.preserve;
        let wanted = attributes && !data.is_symlink();
        Ok(More {
            // Blocks have 512 bytes here, whatever the file system's are.
            sparse: sparse && data.is_file() && data.blocks() < data.len() / 512,
            owner: owners.then(|| (data.uid(), data.gid())),
            attributes: if wanted { Some(attributes_of(from)?) } else { None },
        })
    }
}

/// The extended attributes of a file or directory whose names begin with `user.`.
fn attributes_of(path: &Path) -> Result<Attributes, FileError> {
    let mut list = vec![0u8; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut list) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(Errno::RANGE) => return Err(FileError::Attributes),
        Err(error) => return Err(FileError::of(error)),
    };
    let mut found = Vec::new();
    let mut names: Vec<&[u8]> = list[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(USER)).collect();
    names.sort_unstable();
    for name in names {
        let mut value = vec![0u8; ATTRIBUTES_MAX];
        match rustix::fs::lgetxattr(path, name, &mut value) {
            Ok(length) => value.truncate(length),
            // It is gone.
            Err(Errno::NODATA) => continue,
            Err(Errno::RANGE) => return Err(FileError::Attributes),
            Err(error) => return Err(FileError::of(error)),
        }
        found.push((name.to_vec(), value));
    }
    if more::size(&found) > ATTRIBUTES_MAX { Err(FileError::Attributes) } else { Ok(found) }
}
