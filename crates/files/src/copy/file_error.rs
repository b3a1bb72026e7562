//! The reasons why a file was not copied. The server sends its client a number and no text, so that no text of a peer
//! reaches a terminal.

use rustix::io::Errno;
use std::fmt;

/// Makes the cases, and the list of them in the order of their numbers, which begin at 1.
macro_rules! file_errors {
    ($($(#[doc = $what:literal])+ $FileError:ident,)+) => {
        /// Why a file, folder or link was not copied.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FileError {
            $($(#[doc = $what])+ $FileError,)+
            /// Anything else: the number of the error.
            Other(u16),
        }

        use FileError::{$($FileError,)+ Other};

        const ALL: &[FileError] = &[$($FileError),+];
    };
}

file_errors! {
    /// The path is empty or absolute, or contains `.`, `..`, an empty name or NUL.
    BadPath,
    /// A name has more than 255 bytes, or the path 4,096 or more.
    NameTooLong,
    /// The name is one that unfinished copies use.
    Reserved,
    /// The server's disk, or the server's quota on it, is full.
    Full,
    /// The server's directory cannot be written.
    ReadOnly,
    /// The server may not write there, or the client may not read.
    Denied,
    /// The server has a directory of that name.
    IsDirectory,
    /// A part of the path is not a directory at the server.
    NotDirectory,
    /// A part of the path is a symbolic link at the server.
    Symlink,
    /// The link leads out of the tree that is copied.
    LinkLeaves,
    /// Another copy is writing the file.
    Busy,
    /// The bytes that the server wrote have another hash than the bytes that the client read.
    Mismatch,
    /// The file changed while it was read.
    Changed,
    /// The file is neither file, directory nor symbolic link.
    Special,
    /// The file is larger than a copy may be.
    TooLarge,
    /// A server of an earlier version on a kernel older than 5.6, or in a sandbox that forbids `openat2`.
    NoOpenat2,
    /// The server does not copy now: its memory for clients is used up.
    NoMemory,
    /// The server speaks another version of the protocol.
    Version,
    /// The file or folder is gone.
    Missing,
    /// The server lets no client do this: give owners, or delete.
    Forbidden,
    /// The file system keeps no extended attributes, or fewer than the file has.
    Attributes,
}

impl FileError {
    /// Its number in messages: its place in the list, or 256 and the number of the system's error.
    pub fn number(self) -> u16 {
        match self {
            Other(error) => 256 + error.min(u16::MAX - 256),
            other => ALL.iter().position(|&each| each == other).map_or(0, |i| i as u16 + 1),
        }
    }

    /// The error that a message's number stands for; `None` if there is no such number.
    pub fn numbered(number: u16) -> Option<FileError> {
        match number {
            256.. => Some(Other(number - 256)),
            _ => ALL.get(usize::from(number).checked_sub(1)?).copied(),
        }
    }

    /// The error for an error of the system, below the server's directory or at the client.
    pub(super) fn of(error: Errno) -> FileError {
        match error {
            Errno::NOSPC | Errno::DQUOT => Full,
            Errno::ROFS => ReadOnly,
            Errno::ACCESS | Errno::PERM => Denied,
            Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => IsDirectory,
            Errno::NOTDIR => NotDirectory,
            Errno::LOOP => Symlink,
            Errno::XDEV => BadPath,
            Errno::NAMETOOLONG => NameTooLong,
            Errno::NOSYS => NoOpenat2,
            Errno::NOENT => Missing,
            Errno::FBIG => TooLarge,
            other => Other(other.raw_os_error().unsigned_abs().min(u32::from(u16::MAX)) as u16),
        }
    }

    pub(super) fn of_io(error: &std::io::Error) -> FileError {
        error.raw_os_error().map_or(Other(0), |number| FileError::of(Errno::from_raw_os_error(number)))
    }

    /// Has this process, or the system, no descriptor left for another file?
    pub(super) const fn is_no_descriptor(self) -> bool {
        matches!(self, Other(number) if number == Errno::MFILE.raw_os_error() as u16 || number == Errno::NFILE.raw_os_error() as u16)
    }

    /// Would every further file have the same error?
    pub(super) const fn is_everywhere(self) -> bool {
        matches!(self, Full | ReadOnly | NoOpenat2 | NoMemory | Version | Forbidden)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadPath => {
                "not a path below the server's directory: leave out a leading /, and . and .. as names; NUL never works"
            }
            NameTooLong => "the name is too long (255 bytes), or the path (4,095 bytes): shorten it",
            Reserved => "an unfinished copy has a name like this: finish that copy, or remove the file",
            Full => "no space left at the server: free some, then run the same command again: it goes on where it stopped",
            ReadOnly => "the server's directory is on a read-only file system: mount it writable, or serve another one",
            Denied => "permission denied: change the owner or the mode of the file or of the directory it is in",
            IsDirectory => "the server has a directory of that name: remove it, or copy to another DIR",
            NotDirectory => "a part of the path is not a directory at the server: remove it, or copy to another DIR",
            Symlink => {
                "a part of the path is a symbolic link at the server, and the server follows none: name the real directory, or remove it"
            }
            LinkLeaves => {
                "the symbolic link leads out of the tree (or has .. after a name): give it a relative target inside the tree, or remove it"
            }
            Busy => "another copy is writing this file: wait for it, then run the same command again",
            Mismatch => "the bytes that arrived have another hash than the bytes that were read, twice: check disks and memory of both hosts",
            Changed => "the file changed while it was read: run the same command again when no program writes to it",
            Special => "neither file, directory nor symbolic link (a socket, pipe or device): leave it out",
            TooLarge => "the file is larger than a copy may be (4 TiB), or than the server's file system allows: split it",
            NoOpenat2 => "the server is of an earlier version, which needs openat2: update it, or run it on Linux 5.6 or newer",
            NoMemory => "the server has no memory left for another client: try again when another client has finished",
            Version => "the server speaks another version of the copy protocol: update the older side",
            Missing => "there is no such file or directory (any more): run the same command again",
            Forbidden => "the server does not let clients do this: start it with --allow owner, or --allow delete",
            Attributes => {
                "its extended attributes cannot be kept: more than 16 KiB, or the file system has none; leave --xattrs out"
            }
            Other(0) => "an error without a number",
            Other(number) => return std::io::Error::from_raw_os_error(i32::from(*number)).fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_one_file_error() {
        for number in 0..=u16::MAX {
            if let Some(file_error) = FileError::numbered(number) {
                assert_eq!(file_error.number(), number, "{file_error:?}");
            }
        }
        assert_eq!((FileError::numbered(0), FileError::numbered(22)), (None, None));
        assert!(ALL.iter().all(|&file_error| FileError::numbered(file_error.number()) == Some(file_error)));
    }
}
