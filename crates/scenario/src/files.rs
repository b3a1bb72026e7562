//! The files of a scenario: its own, and files that it names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use strandway_import::{Problem, Problems, read_bytes, read_file};
use toml::Table;

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
    pub(crate) fn in_folder_of(path: &Path) -> Files {
        Files { folder: path.parent().map(Path::to_path_buf).unwrap_or_default(), ..Files::default() }
    }

    /// The files that the file called `name` names. They have the same list of files that were read.
    pub(crate) fn beside(&self, name: &str) -> Files {
        let folder = self.folder.join(name).parent().map(Path::to_path_buf).unwrap_or_default();
        Files { folder, read: Arc::clone(&self.read), held: None }
    }

    /// Adds a text that is used for the file called `name`.
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

    /// Reads a file that the scenario names and that is no text. Returns the file's name in messages, and its bytes.
    pub(crate) fn read_bytes(&self, name: &str) -> Result<(String, Vec<u8>), Problems> {
        let path = self.folder.join(name);
        self.note(&path);
        Ok((path.display().to_string(), read_bytes(&path)?))
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
}
