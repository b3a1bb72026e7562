//! The server's directory: it writes files below it, and nowhere else.
//!
//! Folders are opened by `openat2`, which starts at the directory's descriptor, stays beneath it, and follows no
//! symbolic link. An older kernel opens them one by one with the same effect. Files are made, renamed and removed by a
//! single name in such a folder, so no link can lead out of it.

use super::contents::{Contents, both};
use super::digest;
use super::file_error::FileError;
use super::journal::{self, HEAD, RECORD, Source};
use super::message::{Entry, Modified};
use super::more::{More, USER};
use super::names::{self, JOURNAL, PART};
use rustix::fs::{
    Access, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT,
};
use rustix::fs::{Gid, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use strandway_udp::{Feature, Without};

/// A directory that copies are written below.
#[derive(Debug)]
pub struct Target {
    top: OwnedFd,
    /// The folder that was opened last; the next entry is likely to be in it.
    recent: Option<(Vec<u8>, Arc<OwnedFd>)>,
    /// Does the kernel have `openat2`?
    has_openat2: bool,
    /// Are blocks of large files written past the page cache?
    direct: bool,
}

/// A file that is being written, under a temporary name.
#[derive(Debug)]
pub(super) struct Partial {
    folder: Arc<OwnedFd>,
    name: Vec<u8>,
    contents: Contents,
    /// Present if the file has more than one block.
    journal: Option<File>,
    source: Source,
    /// Pages of zeros are left out.
    sparse: bool,
    /// It began as an empty file: what was not written is zero.
    fresh: bool,
    /// Digests of the blocks that are there.
    digests: BTreeMap<u32, [u8; 32]>,
}

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn times(modified: Modified) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() },
    }
}

/// Gives a file or directory its owner and its attributes.
fn keep(file: &impl AsFd, more: &More) -> Result<(), FileError> {
    if let Some((user, group)) = more.owner {
        let owner = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::fchown(file, owner.0, owner.1).map_err(FileError::of)?;
    }
    let Some(wanted) = &more.attributes else { return Ok(()) };
    let of = |error: Errno| match error {
        Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE => FileError::Attributes,
        other => FileError::of(other),
    };
    let mut list = vec![0u8; 64 << 10];
    let there = match rustix::fs::flistxattr(file, &mut list) {
        Ok(length) => &list[..length],
        Err(Errno::OPNOTSUPP) if wanted.is_empty() => return Ok(()),
        Err(error) => return Err(of(error)),
    };
    for name in there.split(|byte| *byte == 0).filter(|name| name.starts_with(USER)) {
        if !wanted.iter().any(|(known, _)| known == name) {
            rustix::fs::fremovexattr(file, name).map_err(of)?;
        }
    }
    wanted
        .iter()
        .try_for_each(|(name, value)| rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty()).map_err(of))
}

fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode(u32::from(bits & 0o777))
}

/// Opens a folder by its name in another one.
fn step(from: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, FileError> {
    rustix::fs::openat(from, name, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| {
        // The kernel says NOTDIR of a link, too.
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if is_link { FileError::Symlink } else { FileError::of(error) }
    })
}

impl Target {
    /// Opens the directory that is served.
    ///
    /// # Errors
    /// If it is not a directory or cannot be written; the text says why and names a remedy.
    pub fn open(path: &Path) -> Result<Target, String> {
        Target::open_without(path, Without::from_environment().map_err(|unknown| unknown.to_string())?)
    }

    /// Opens the directory that is served, without these features of the kernel.
    pub(super) fn open_without(path: &Path, without: Without) -> Result<Target, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let said = |error: Errno| {
            let remedy = match error {
                Errno::ROFS => "mount it writable, or serve another directory",
                Errno::ACCESS | Errno::PERM => "change its owner or mode, or serve another directory",
                _ => "name a directory that exists and that you can write to",
            };
            format!("{}: {error}; {remedy}", path.display())
        };
        let top = rustix::fs::open(path, flags, Mode::empty()).map_err(said)?;
        rustix::fs::accessat(&top, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(said)?;
        let has_openat2 = match rustix::fs::openat2(&top, ".", flags, Mode::empty(), RESOLVE) {
            Ok(_) => !without.has(Feature::Openat2),
            // Sandboxes answer PERM to calls that they do not know.
            Err(Errno::NOSYS | Errno::PERM) => false,
            Err(error) => return Err(said(error)),
        };
        Ok(Target { top, recent: None, has_openat2, direct: false })
    }

    /// Writes blocks of large files past the page cache (O_DIRECT), where the file system can.
    pub(super) fn set_direct(&mut self, direct: bool) {
        self.direct = direct;
    }

    /// Are blocks of large files written past the page cache?
    pub(super) const fn is_direct(&self) -> bool {
        self.direct
    }

    /// The contents of a file of several blocks, which has this name in a folder.
    fn contents(&self, file: File, folder: &OwnedFd, name: &[u8], sparse: bool) -> Contents {
        let contents = Contents::new(file);
        if self.direct && !sparse { contents.past_the_cache(folder, &names::partial(name, PART)) } else { contents }
    }

    /// Opens this directory once more, or a folder below it, for another copy.
    ///
    /// # Errors
    /// If there is no such folder, and it cannot be made.
    pub fn below(&mut self, path: &[u8], dry_run: bool) -> Result<Target, FileError> {
        if path.is_empty() {
            let top = self.top.try_clone().map_err(|error| FileError::of_io(&error))?;
            return Ok(Target { top, recent: None, ..*self });
        }
        names::check(path)?;
        if !dry_run {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            for end in ends.chain([path.len()]) {
                self.make_folder(&path[..end], 0o777)?;
            }
        }
        let top = self.folder(path)?;
        self.recent = None;
        let top = Arc::try_unwrap(top).or_else(|top| top.try_clone()).map_err(|error| FileError::of_io(&error))?;
        Ok(Target { top, recent: None, ..*self })
    }

    fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.open_beneath(path, flags)
    }

    /// Opens a folder at a checked path beneath the top, without following a symbolic link anywhere.
    pub(super) fn open_beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, FileError> {
        if self.has_openat2 {
            let path = if path.is_empty() { b"." } else { path };
            let opened = rustix::fs::openat2(&self.top, path, flags, Mode::empty(), RESOLVE);
            return opened.map_err(|error| match error {
                // `openat2` returns LOOP for a link on the way and for a link at the end.
                Errno::LOOP => FileError::Symlink,
                other => FileError::of(other),
            });
        }
        let (above, last) = names::split(path);
        let last = if last.is_empty() { b"." } else { last };
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let names = above.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let mut folder = None;
        for (name, flags) in names.map(|name| (name, way)).chain([(last, flags)]) {
            // A path has names only, none of them `..`, so each step leads down.
            let from = folder.as_ref().unwrap_or(&self.top);
            folder = Some(step(from, name, flags)?);
        }
        folder.ok_or(FileError::Missing)
    }

    pub(super) fn folder(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, FileError> {
        if let Some((recent, folder)) = &self.recent
            && recent == path
        {
            return Ok(folder.clone());
        }
        let folder = Arc::new(self.open_folder(path)?);
        self.recent = Some((path.to_vec(), folder.clone()));
        Ok(folder)
    }

    /// Forgets the folder that was opened last: it may be gone.
    pub(super) fn forget_recent(&mut self) {
        self.recent = None;
    }

    /// The file, directory or link at a checked path, if there is one.
    pub(super) fn stat(&mut self, path: &[u8]) -> Result<Option<Stat>, FileError> {
        let (folder, name) = names::split(path);
        let folder = match self.folder(folder) {
            Err(FileError::Missing) => return Ok(None),
            other => other?,
        };
        match rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(FileError::of(error)),
        }
    }

    /// Makes a folder, unless it exists.
    fn make_folder(&mut self, path: &[u8], bits: u16) -> Result<(), FileError> {
        let (above, name) = names::split(path);
        let folder = self.folder(above)?;
        match rustix::fs::mkdirat(&*folder, name, mode(bits)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match self.stat(path)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                Some(FileType::Directory) => Ok(()),
                Some(FileType::Symlink) => Err(FileError::Symlink),
                _ => Err(FileError::NotDirectory),
            },
            Err(error) => Err(FileError::of(error)),
        }
    }

    /// Makes an offered directory; its owner here can write to it until it is settled.
    pub(super) fn directory(&mut self, entry: &Entry) -> Result<(), FileError> {
        self.make_folder(&entry.path, entry.mode | 0o700)
    }

    /// Gives a directory its mode and time.
    pub(super) fn settle(&mut self, entry: &Entry) -> Result<(), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = self.open_beneath(&entry.path, flags)?;
        keep(&folder, &entry.more)?;
        rustix::fs::fchmod(&folder, mode(entry.mode)).map_err(FileError::of)?;
        rustix::fs::futimens(&folder, &times(entry.modified)).map_err(FileError::of)
    }

    /// Does the server have the file already, with the offered size and time of change? If so, its mode is set.
    pub(super) fn has(&mut self, entry: &Entry, size: u64, dry_run: bool) -> Result<bool, FileError> {
        let Some(stat) = self.stat(&entry.path)? else { return Ok(false) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Err(FileError::IsDirectory),
            FileType::RegularFile => {}
            _ => return Ok(false),
        }
        let modified = Modified { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 };
        if stat.st_size as u64 != size || modified != entry.modified {
            return Ok(false);
        }
        let kept = !entry.more.is_nothing();
        if !dry_run && (kept || stat.st_mode & 0o777 != u32::from(entry.mode)) {
            let (folder, name) = names::split(&entry.path);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&*self.folder(folder)?, name, flags, Mode::empty()).map_err(FileError::of)?;
            keep(&file, &entry.more)?;
            rustix::fs::fchmod(&file, mode(entry.mode)).map_err(FileError::of)?;
        }
        Ok(true)
    }

    /// Makes a link; it replaces another link or file of this name.
    pub(super) fn link(&mut self, entry: &Entry, to: &[u8], dry_run: bool) -> Result<(), FileError> {
        if !names::stays_inside(&entry.path, to) {
            return Err(FileError::LinkLeaves);
        }
        let there = self.stat(&entry.path)?.map(|stat| FileType::from_raw_mode(stat.st_mode));
        if there == Some(FileType::Directory) {
            return Err(FileError::IsDirectory);
        }
        if dry_run {
            return Ok(());
        }
        let (folder, name) = names::split(&entry.path);
        let folder = self.folder(folder)?;
        if there == Some(FileType::Symlink)
            && rustix::fs::readlinkat(&*folder, name, Vec::new()).is_ok_and(|present| present.as_bytes() == to)
        {
            return Ok(());
        }
        let part = names::partial(name, PART);
        match rustix::fs::unlinkat(&*folder, &part, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(FileError::of(error)),
        }
        rustix::fs::symlinkat(to, &*folder, &part).map_err(FileError::of)?;
        if let Some((user, group)) = entry.more.owner {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chownat(&*folder, &part, Some(user), Some(group), flags).map_err(FileError::of)?;
        }
        rustix::fs::renameat(&*folder, &part, &*folder, name).map_err(FileError::of)
    }

    /// Opens the partial file that an earlier copy of the same source has left. Its blocks are read; those with the
    /// digests of the journal need not be sent again. `None` if there is nothing to continue.
    pub(super) fn resume(&mut self, entry: &Entry, source: Source) -> Result<Option<Partial>, FileError> {
        let (folder, name) = names::split(&entry.path);
        let folder = match self.folder(folder) {
            Err(FileError::Missing) => return Ok(None),
            other => other?,
        };
        if source.size <= u64::from(source.block) {
            return Ok(None);
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |end| rustix::fs::openat(&*folder, names::partial(name, end), flags, Mode::empty());
        let (file, journal) = match (open(PART), open(JOURNAL)) {
            (Ok(file), Ok(journal)) => (file, journal),
            (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => return Ok(None),
            (Err(error), _) | (_, Err(error)) => return Err(FileError::of(error)),
        };
        lock(&folder, &names::partial(name, PART), &file)?;
        let (file, journal) = (File::from(file), File::from(journal));
        if !is_plain(&journal)? {
            return Err(FileError::Special);
        }
        let most = HEAD as u64 + digest::blocks(source.size, source.block.into()) * RECORD as u64;
        let mut bytes = Vec::new();
        (&journal).take(most).read_to_end(&mut bytes).map_err(|error| FileError::of_io(&error))?;
        let mut digests = BTreeMap::new();
        let mut contents = vec![0; source.block as usize];
        for (block, wanted) in journal::read(&bytes, &source) {
            let (offset, length) = place(&source, block);
            let contents = &mut contents[..length];
            if file.read_exact_at(contents, offset).is_ok()
                && digest::of_block(contents, block.into(), source.size, source.block.into()) == wanted
            {
                digests.insert(block, wanted);
            }
        }
        let (name, sparse) = (name.to_vec(), entry.more.sparse);
        let contents = self.contents(file, &folder, &name, sparse);
        let mut partial =
            Partial { folder, name, contents, journal: Some(journal), source, sparse, fresh: false, digests };
        // Only the records of valid blocks stay in the journal; later ones are appended.
        partial.rewrite_journal()?;
        Ok(Some(partial))
    }

    /// Begins a new file.
    pub(super) fn begin(&mut self, entry: &Entry, source: Source) -> Result<Partial, FileError> {
        let (folder, name) = names::split(&entry.path);
        let folder = self.folder(folder)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |end| rustix::fs::openat(&*folder, names::partial(name, end), flags, Mode::RUSR | Mode::WUSR);
        let file = open(PART).map_err(FileError::of)?;
        lock(&folder, &names::partial(name, PART), &file)?;
        rustix::fs::ftruncate(&file, 0).map_err(FileError::of)?;
        let journal = if source.size > u64::from(source.block) {
            let journal = File::from(open(JOURNAL).map_err(FileError::of)?);
            if !is_plain(&journal)? {
                return Err(FileError::Special);
            }
            Some(journal)
        } else {
            None
        };
        let digests = BTreeMap::new();
        let (name, file, sparse) = (name.to_vec(), File::from(file), entry.more.sparse);
        let contents = match journal {
            Some(_) => self.contents(file, &folder, &name, sparse),
            None => Contents::new(file),
        };
        let mut partial = Partial { folder, name, contents, journal, source, sparse, fresh: true, digests };
        let begun = partial.rewrite_journal().and_then(|()| partial.allocate());
        match begun {
            Ok(()) => Ok(partial),
            Err(file_error) => {
                partial.discard();
                Err(file_error)
            }
        }
    }

    /// Waits until everything written so far, in all files, is on the disk.
    pub(super) fn sync_all(&self) -> Result<(), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&self.top, ".", flags, Mode::empty()).map_err(FileError::of)?;
        rustix::fs::syncfs(&top).map_err(FileError::of)
    }
}

/// Locks the partial file for this copy alone.
fn lock(folder: &OwnedFd, name: &str, file: &OwnedFd) -> Result<(), FileError> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => FileError::Busy,
        other => FileError::of(other),
    })?;
    let ours = rustix::fs::fstat(file).map_err(FileError::of)?;
    if FileType::from_raw_mode(ours.st_mode) != FileType::RegularFile || ours.st_nlink > 1 {
        return Err(FileError::Special);
    }
    // Another copy may have renamed it after we opened it and before we had the lock.
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) => Ok(()),
        Ok(_) | Err(Errno::NOENT) => Err(FileError::Busy),
        Err(error) => Err(FileError::of(error)),
    }
}

fn is_plain(file: impl AsFd) -> Result<bool, FileError> {
    let stat = rustix::fs::fstat(file).map_err(FileError::of)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1)
}

/// A block's first byte and its length.
fn place(source: &Source, block: u32) -> (u64, usize) {
    let offset = u64::from(block) * u64::from(source.block);
    (offset, source.size.saturating_sub(offset).min(source.block.into()) as usize)
}

impl Partial {
    fn rewrite_journal(&mut self) -> Result<(), FileError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let mut bytes = self.source.head().to_vec();
        self.digests.iter().for_each(|(block, digest)| bytes.extend_from_slice(&journal::record(*block, digest)));
        let done = journal.set_len(0).and_then(|()| journal.write_all_at(&bytes, 0));
        done.map_err(|error| FileError::of_io(&error))
    }

    /// Allocates the disk space of the whole file now, so that a full disk is noticed before anything is sent.
    fn allocate(&self) -> Result<(), FileError> {
        if self.journal.is_none() || self.sparse {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.contents.file, FallocateFlags::empty(), 0, self.source.size) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(FileError::of(error)),
        }
    }

    /// Can another copy continue it?
    pub(super) const fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Runs of missing blocks: first and number, at most `most` of them; if there are more, the last one reaches to the
    /// end.
    pub(super) fn missing(&self, most: usize) -> Vec<(u32, u32)> {
        let count = digest::blocks(self.source.size, self.source.block.into()) as u32;
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut next = 0;
        for &block in self.digests.keys().chain([&count]) {
            if block > next {
                if runs.len() == most {
                    let last = &mut runs[most - 1];
                    last.1 = count - last.0;
                    break;
                }
                runs.push((next, block - next));
            }
            next = block + 1;
        }
        runs
    }

    /// Writes a block, and adds it to the journal.
    ///
    /// # Errors
    /// `Err(None)` if the file has no such block; else the disk's error.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Option<FileError>> {
        let block = offset / u64::from(self.source.block);
        let fits = offset < self.source.size && offset.is_multiple_of(self.source.block.into());
        if !fits || place(&self.source, block as u32) != (offset, bytes.len()) {
            return Err(None);
        }
        let said = |error: std::io::Error| Some(FileError::of_io(&error));
        let holes = self.sparse && self.fresh && !self.digests.contains_key(&(block as u32));
        let hash = || digest::of_block(bytes, block, self.source.size, self.source.block.into());
        let (digest, written) = both(bytes.len(), hash, || match holes {
            true => self.contents.write_around_zeros(offset, bytes),
            false => self.contents.write(offset, bytes),
        });
        written.map_err(said)?;
        if let Some(journal) = &self.journal
            && self.digests.get(&(block as u32)) != Some(&digest)
        {
            let at = HEAD as u64 + self.digests.len() as u64 * RECORD as u64;
            journal.write_all_at(&journal::record(block as u32, &digest), at).map_err(said)?;
        }
        self.digests.insert(block as u32, digest);
        Ok(())
    }

    /// Writes a block of zeros.
    ///
    /// # Errors
    /// As for [`Partial::write`].
    pub(super) fn write_zeros(&mut self, offset: u64, length: u32) -> Result<(), Option<FileError>> {
        if length > self.source.block {
            return Err(None);
        }
        self.write(offset, &vec![0; length as usize])
    }

    /// Has the written file this hash?
    pub(super) fn matches(&self, hash: &[u8; 32]) -> bool {
        let count = digest::blocks(self.source.size, self.source.block.into());
        digest::of_file(count, |block| self.digests.get(&(block as u32)).copied()).as_ref() == Some(hash)
    }

    /// Gives the file its size, mode and time.
    pub(super) fn dress(&self, entry: &Entry) -> Result<(), FileError> {
        rustix::fs::ftruncate(&self.contents.file, self.source.size).map_err(FileError::of)?;
        keep(&self.contents.file, &entry.more)?;
        rustix::fs::fchmod(&self.contents.file, mode(entry.mode)).map_err(FileError::of)?;
        rustix::fs::futimens(&self.contents.file, &times(entry.modified)).map_err(FileError::of)
    }

    /// Waits until its bytes are on the disk.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        rustix::fs::fsync(&self.contents.file).map_err(FileError::of)
    }

    /// Gives the file its name; it replaces any file of this name.
    pub(super) fn publish(self) -> Result<(), FileError> {
        let part = names::partial(&self.name, PART);
        rustix::fs::renameat(&*self.folder, &part, &*self.folder, &self.name[..]).map_err(FileError::of)?;
        self.remove_journal();
        Ok(())
    }

    /// Removes the partial file and its journal.
    pub(super) fn discard(self) {
        self.remove_journal();
        // If it cannot be removed, the next copy of the file starts with it.
        let _ = rustix::fs::unlinkat(&*self.folder, names::partial(&self.name, PART), AtFlags::empty());
    }

    fn remove_journal(&self) {
        if self.journal.is_some() {
            // A journal without its partial file has no effect.
            let _ = rustix::fs::unlinkat(&*self.folder, names::partial(&self.name, JOURNAL), AtFlags::empty());
        }
    }
}
