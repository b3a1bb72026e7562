//! Output files that appear complete or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// An output file. It is created next to its destination before the run, so that an unwritable path is found early, and
/// renamed when it is complete. If it is dropped without [`Output::finish`], it leaves no file. A device or a pipe is
/// written directly and never replaced.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// `None` for a device or a pipe.
    temporary: Option<PathBuf>,
    file: Option<File>,
}

impl Output {
    /// Prepares to write `path`.
    ///
    /// # Errors
    /// If `path` is a directory, or its directory cannot be written to.
    pub fn open(path: &Path) -> io::Result<Output> {
        if path.is_dir() {
            return Err(io::Error::other("is a folder"));
        }
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            let file = File::options().write(true).open(path)?;
            return Ok(Output { path: path.to_path_buf(), temporary: None, file: Some(file) });
        }
        let name = path.file_name().ok_or_else(|| io::Error::other("names no file"))?;
        let temporary = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let file = File::options().write(true).create_new(true).open(&temporary)?;
        Ok(Output { path: path.to_path_buf(), temporary: Some(temporary), file: Some(file) })
    }

    /// The destination.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `contents` and moves the file into place.
    ///
    /// # Errors
    /// If writing fails, for example on a full disk. The destination is then unchanged.
    pub fn finish(self, contents: &[u8]) -> io::Result<()> {
        self.finish_with(|file| file.write_all(contents))
    }

    /// Lets `write` write the contents piece by piece, moves the file into place, and returns the result of `write`.
    ///
    /// # Errors
    /// As for [`Output::finish`], and the errors of `write`.
    pub fn finish_with<T>(mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        let Some(file) = self.file.take() else { unreachable!("a file is finished once") };
        let mut buffered = BufWriter::new(file);
        let written = write(&mut buffered)?;
        let file = buffered.into_inner()?;
        if let Some(temporary) = &self.temporary {
            file.sync_all()?;
            std::fs::rename(temporary, &self.path)?;
        }
        Ok(written)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // After the rename there is no temporary file; then removing it fails, which does not matter.
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("strandway-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a.json");
        drop(Output::open(&path).expect("writable"));
        assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 0);
        Output::open(&path).expect("writable").finish(b"{}").expect("written");
        assert_eq!(std::fs::read(&path).expect("readable"), b"{}");
        assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 1);
        assert!(Output::open(&folder).is_err());
        assert!(Output::open(&folder.join("none").join("a.json")).is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_to_and_stays_what_it_is() {
        let folder = std::env::temp_dir().join(format!("strandway-device-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let link = folder.join("null");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        Output::open(&link).expect("writable").finish(b"{}").expect("written");
        assert!(std::fs::symlink_metadata(&link).expect("still there").is_symlink());
        assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 1);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
