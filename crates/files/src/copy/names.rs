//! Names of files: which of them a server accepts, and how they are displayed.

use super::file_error::FileError;
use std::fmt::Write;

/// The most bytes of a path: Linux's `PATH_MAX`.
pub(super) const PATH_MAX: usize = 4_096;
/// The most bytes of one name: Linux's `NAME_MAX`.
const NAME_MAX: usize = 255;
/// The names of unfinished copies and their journals begin with this; 16 digits and one of the two ends below follow.
const PARTIAL: &str = ".strandway-";
/// The end of an unfinished copy's name.
pub(super) const PART: &str = ".part";
/// The end of its journal's name.
pub(super) const JOURNAL: &str = ".journal";

/// Checks a path below the server's directory: names with single slashes between them, none of them `.` or `..`. All
/// other bytes except NUL are allowed, UTF-8 or not.
///
/// # Errors
/// [`FileError::BadPath`], [`FileError::NameTooLong`] or [`FileError::Reserved`].
pub(super) fn check(path: &[u8]) -> Result<(), FileError> {
    if path.len() >= PATH_MAX {
        return Err(FileError::NameTooLong);
    }
    for name in path.split(|&byte| byte == b'/') {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&0) {
            return Err(FileError::BadPath);
        }
        if name.len() > NAME_MAX {
            return Err(FileError::NameTooLong);
        }
        if is_partial(name) {
            return Err(FileError::Reserved);
        }
    }
    Ok(())
}

/// The folder of a checked path, empty for the top, and the name in that folder.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// `name` below `folder`, which may be empty.
pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Does a symbolic link at a checked path stay within the tree, even if other links of the tree are followed? It does
/// under three conditions: its target is relative; its target has `..` only at the beginning; and it has no more of
/// them than there are folders above the link. A `..` after a name is refused: the name may be a link itself, and then
/// `..` leads to another place.
pub(super) fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    let depth = path.iter().filter(|&&byte| byte == b'/').count();
    if target.is_empty() || target.len() >= PATH_MAX || target[0] == b'/' || target.contains(&0) {
        return false;
    }
    let (mut up, mut named) = (0, false);
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if named => return false,
            b".." => up += 1,
            _ => named = true,
        }
    }
    up <= depth
}

/// The name of the unfinished copy of `name`, or of its journal; its length does not depend on `name`.
pub(super) fn partial(name: &[u8], end: &str) -> String {
    format!("{PARTIAL}{}{end}", &blake3::hash(name).to_hex()[..16])
}

/// Is this a name of an unfinished copy or a journal?
pub(super) fn is_partial(name: &[u8]) -> bool {
    name.starts_with(PARTIAL.as_bytes()) && (name.ends_with(PART.as_bytes()) || name.ends_with(JOURNAL.as_bytes()))
}

/// A path for display: bytes that are no text, and control characters, are escaped.
pub(super) fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["", "/", "/etc", "..", "a/../b", "a/..", "./a", "a//b", "a/", "a/./b", "a\0b"] {
            assert_eq!(check(path.as_bytes()), Err(FileError::BadPath), "{path:?}");
        }
        assert_eq!(check(&[b'a'; 256]), Err(FileError::NameTooLong));
        assert_eq!(check(&[b"a/".repeat(2_048), b"a".to_vec()].concat()), Err(FileError::NameTooLong));
        assert_eq!(check(partial(b"x", JOURNAL).as_bytes()), Err(FileError::Reserved));
        for path in [&b"a"[..], b"a/b c/d", b"...", b"..a", b"\xff\xfe/\n", b".strandway-notes"] {
            assert_eq!(check(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn links_stay_inside_or_are_refused() {
        for (path, target, inside) in [
            ("a", "b", true),
            ("a", "./b/c", true),
            ("d/a", "../b", true),
            ("d/a", "..", true),
            ("d/e/a", "../../b", true),
            ("a", "..", false),
            ("d/a", "../../b", false),
            ("a", "/etc/passwd", false),
            ("d/a", "b/../c", false),
            ("d/a", "b/../../..", false),
            ("a", "", false),
        ] {
            assert_eq!(stays_inside(path.as_bytes(), target.as_bytes()), inside, "{path} -> {target}");
        }
    }

    #[test]
    fn names_are_shown_without_control_characters() {
        assert_eq!(shown(b"a\xff\x1b[2J\xc3\xa9"), "a\\xff\\u{1b}[2J\u{e9}");
    }

    proptest! {
        #[test]
        fn a_checked_path_is_its_folder_and_its_name(path: Vec<u8>) {
            if check(&path).is_ok() {
                let (folder, name) = split(&path);
                prop_assert!(!name.is_empty() && !name.contains(&b'/'));
                prop_assert!(folder.is_empty() || check(folder).is_ok());
                prop_assert_eq!(join(folder, name), path);
            }
        }
    }
}
