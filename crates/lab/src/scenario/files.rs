//! The files of a scenario: its own, and files that it names.

use crate::problem::{Problem, Problems};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use toml::Table;

/// Limit on the size of scenarios and imported files; a larger file is surely a mistake.
pub(crate) const FILE_LIMIT: u64 = 1 << 30;

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Reads the files of a scenario. Clones share the list of files that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// Names in the scenario are relative to this directory.
    folder: PathBuf,
    /// All files that were read so far.
    read: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// The name and the text of a pipe, which can be read only once.
    held: Option<(String, Arc<str>)>,
}

impl Files {
    /// The files of the scenario at `path`.
    pub(crate) fn of(path: &Path) -> Files {
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let files = Files { folder, ..Files::default() };
        files.note(path);
        files
    }

    /// Files next to `path`; `path` itself need not exist.
    pub(crate) fn beside(path: &Path) -> Files {
        Files { folder: path.parent().map(Path::to_path_buf).unwrap_or_default(), ..Files::default() }
    }

    /// The same, but the file called `name` has this text.
    pub(crate) fn holding(self, name: &str, text: &str) -> Files {
        Files { held: Some((name.to_string(), Arc::from(text))), ..self }
    }

    /// Reads a file that the scenario names. Returns the file's name in messages, and its text.
    pub(crate) fn read(&self, name: &str) -> Result<(String, String), Problems> {
        if let Some((_, text)) = self.held.as_ref().filter(|(held, _)| held == name) {
            return Ok((name.to_string(), text.to_string()));
        }
        let path = self.folder.join(name);
        self.note(&path);
        Ok((path.display().to_string(), read_file(&path)?))
    }

    /// The path of a file that the scenario names.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// All files that were read so far.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        self.read.lock().map(|read| read.iter().cloned().collect()).unwrap_or_default()
    }

    /// From now on it has a list of its own, with the files that it has read so far.
    pub(crate) fn separate(&mut self) {
        self.read = Arc::new(Mutex::new(self.all().into_iter().collect()));
    }

    /// The text of the pipe that it holds.
    pub(crate) fn held(&self) -> Option<&str> {
        self.held.as_ref().map(|(_, text)| &**text)
    }

    /// Remembers a file that was read.
    pub(crate) fn note(&self, path: &Path) {
        if let Ok(mut read) = self.read.lock() {
            read.insert(path.to_path_buf());
        }
    }
}

/// True if this text is a traffic matrix and not a scenario. A matrix begins with the number of its hosts.
pub(crate) fn is_matrix(text: &str) -> bool {
    let first =
        text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).find(|line| !line.is_empty());
    first.is_some_and(|line| line.split_ascii_whitespace().next() == Some("Nodes"))
}

/// Parses TOML. `file` is the file's name in messages; `remedy` says where its form is described.
///
/// # Errors
/// If the text is not TOML; with its line.
pub fn parse_toml(file: &str, text: &str, remedy: &str) -> Result<Table, Problems> {
    text.parse::<Table>().map_err(|e| {
        let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Problems(vec![Problem {
            file: file.to_string(),
            line,
            key: String::new(),
            value: String::new(),
            what: format!("not valid TOML: {}", e.message().replace('\n', ", ")),
            remedy: remedy.to_string(),
        }])
    })
}

/// Reads a text file, a pipe, or standard input (`-`), and removes a byte-order mark.
///
/// # Errors
/// If the file cannot be read, is a directory, is longer than 1 GiB, or is not text.
pub fn read_file(path: &Path) -> Result<String, Problems> {
    let file = path.display().to_string();
    let fail = |what: String, remedy: &str| Problems::with_file(&file, what, remedy);
    let unreadable = |e: std::io::Error| fail(format!("cannot be read: {e}"), "check the path");
    let mut bytes = Vec::new();
    if path.as_os_str() == STANDARD_INPUT {
        std::io::stdin().take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        let meta = std::fs::metadata(path).map_err(unreadable)?;
        if !meta.is_file() && !is_pipe(&meta) {
            return Err(fail(
                "is neither a file nor a pipe".into(),
                "name a scenario (.toml) or a traffic matrix (.cm)",
            ));
        }
        let open = std::fs::File::open(path).map_err(unreadable)?;
        open.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(fail("is longer than 1 GiB".into(), "files up to 1 GiB are read"));
    }
    let text = String::from_utf8(bytes).map_err(|_| fail("is not text".into(), "save it as UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

#[cfg(unix)]
fn is_pipe(meta: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&meta.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_: &std::fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_known_by_its_first_line() {
        for (text, wanted) in [
            ("Nodes 16\nConnections 1\n", true),
            ("# made by hand\n\n  Nodes 4 # hosts\n", true),
            ("[fabric]\nhosts = 4\n", false),
            ("Nodesx 4\n", false),
            ("", false),
        ] {
            assert_eq!(is_matrix(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let path = std::env::temp_dir().join(format!("strandway-bom-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}Nodes 4\n").expect("written");
        assert_eq!(read_file(&path).expect("read"), "Nodes 4\n");
        std::fs::remove_file(&path).expect("removed");
    }
}
