//! Reads the text or the bytes of a file.

use crate::Problems;
use std::io::Read;
use std::path::Path;

/// Limit on the size of scenarios and imported files; a larger file is surely a mistake.
const FILE_LIMIT: u64 = 1 << 30;

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Reads a text file, a pipe, or standard input (`-`), and removes a byte-order mark.
///
/// # Errors
/// If the file cannot be read, is a directory, is longer than 1 GiB, or is not text.
pub fn read_file(path: &Path) -> Result<String, Problems> {
    let fail = || Problems::with_file(&path.display().to_string(), "is not text", "save it as UTF-8");
    let text = String::from_utf8(read_bytes(path)?).map_err(|_| fail())?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

/// Reads the bytes of a file, a pipe, or standard input (`-`).
///
/// # Errors
/// If the file cannot be read, is a directory, or is longer than 1 GiB.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Problems> {
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
    Ok(bytes)
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
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let path = std::env::temp_dir().join(format!("strandway-bom-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}Nodes 4\n").expect("written");
        assert_eq!(read_file(&path).expect("read"), "Nodes 4\n");
        std::fs::remove_file(&path).expect("removed");
    }
}
