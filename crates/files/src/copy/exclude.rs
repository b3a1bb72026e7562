//! Patterns of names that a copy leaves out, in rsync's manner.

use globset::{GlobBuilder, GlobMatcher};

/// Patterns of files and directories that are left out. A pattern without a slash is for names at any depth. One with a
/// slash is for the end of a path, or, if it begins with a slash, for a path from the top of the copy. A slash at the end
/// is for directories only. `*` and `?` stand for no slash, `**` for any number of directories, `[a-z]` for a character.
/// A directory that is left out is left out with its contents.
#[derive(Clone, Debug, Default)]
pub struct Exclude {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    matcher: GlobMatcher,
    /// It is for whole paths, not for names.
    path: bool,
    directories: bool,
}

impl Exclude {
    /// Patterns, one per text.
    ///
    /// # Errors
    /// If one is wrong; the text names it.
    pub fn new<T: AsRef<str>>(patterns: impl IntoIterator<Item = T>) -> Result<Exclude, String> {
        let patterns = patterns.into_iter().map(|text| pattern(text.as_ref()));
        Ok(Exclude { patterns: patterns.collect::<Result<_, _>>()? })
    }

    /// The patterns of a file, one per line; empty lines and those that begin with `#` or `;` are none.
    pub fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty() && !line.starts_with(['#', ';']))
    }

    /// Is this path below the top of the copy left out?
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let as_path = |bytes| std::path::Path::new(std::ffi::OsStr::from_bytes(bytes));
        self.patterns.iter().filter(|pattern| is_directory || !pattern.directories).any(|pattern| {
            let subject = if pattern.path { path } else { name };
            pattern.matcher.is_match(as_path(subject))
        })
    }

    /// Are there no patterns?
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("`{text}` is no pattern: {what}");
    let (inner, directories) = match text.strip_suffix('/') {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let (inner, anchored) = match inner.strip_prefix('/') {
        Some(inner) => (inner, true),
        None => (inner, false),
    };
    if inner.is_empty() {
        return Err(wrong(&"it names nothing"));
    }
    let path = anchored || inner.contains('/') || inner.contains("**");
    // Braces are alternatives to the crate, and themselves to rsync.
    let inner = &inner.replace('{', "[{]").replace('}', "[}]");
    let glob = if path && !anchored && !inner.starts_with("**/") { format!("**/{inner}") } else { inner.to_string() };
    let matcher = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
    Ok(Pattern { matcher: matcher.map_err(|error| wrong(error.kind()))?.compile_matcher(), path, directories })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_rsync() {
        for (pattern, path, is_directory, out) in [
            ("*.o", "a.o", false, true),
            ("*.o", "deep/er/a.o", false, true),
            ("*.o", "a.out", false, false),
            ("/a", "a", false, true),
            ("/a", "b/a", false, false),
            ("b/a", "b/a", false, true),
            ("b/a", "c/b/a", false, true),
            ("b/a", "cb/a", false, false),
            ("cache/", "x/cache", true, true),
            ("cache/", "x/cache", false, false),
            ("/x/*.tmp", "x/a.tmp", false, true),
            ("/x/*.tmp", "x/y/a.tmp", false, false),
            ("/x/**", "x/y/a.tmp", false, true),
            ("/x/**/z", "x/y/y/z", false, true),
            ("[ab]?", "a1", false, true),
            ("[ab]?", "c1", false, false),
            ("\\*", "*", false, true),
            ("\\*", "x", false, false),
            ("{a,b}", "{a,b}", false, true),
            ("{a,b}", "a", false, false),
        ] {
            let exclude = Exclude::new([pattern]).expect(pattern);
            assert_eq!(exclude.leaves_out(path.as_bytes(), is_directory), out, "{pattern}: {path}");
        }
        for pattern in ["", "/", "[a"] {
            assert!(Exclude::new([pattern]).is_err(), "{pattern}");
        }
        let lines: Vec<&str> = Exclude::lines("# note\n*.o\n\n; more\n/tmp/\n").collect();
        assert_eq!(lines, ["*.o", "/tmp/"]);
    }

    #[test]
    fn names_that_are_no_text_are_matched_as_bytes() {
        let exclude = Exclude::new(["*.o"]).expect("a pattern");
        assert!(exclude.leaves_out(b"a/\xff.o", false) && !exclude.leaves_out(b"\xff.c", false));
    }
}
