//! The numbers of earlier runs, from a file of `strandway reproduce --json`.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The numbers of runs, seed by seed, by the command line of the runs and the value's path in their reports.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    cells: BTreeMap<(String, String), Vec<Option<f64>>>,
}

#[derive(Deserialize)]
struct Document {
    format: u32,
    rows: Vec<RecordedRow>,
}

#[derive(Deserialize)]
struct RecordedRow {
    cells: Vec<RecordedCell>,
}

#[derive(Deserialize)]
struct RecordedCell {
    command: String,
    key: String,
    seeds: Vec<Option<f64>>,
}

impl Recorded {
    /// Adds the numbers of a document; the first one of a command line stays.
    ///
    /// # Errors
    /// If the text is not such a document; the message says what is wrong.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        let document: Document = serde_json::from_str(text)
            .map_err(|error| format!("not a file of `strandway reproduce --json`: {error}"))?;
        if document.format != 1 {
            return Err(format!("format {} is not known; this program reads format 1", document.format));
        }
        for cell in document.rows.into_iter().flat_map(|row| row.cells) {
            self.cells.entry((cell.command, cell.key)).or_insert(cell.seeds);
        }
        Ok(())
    }

    /// The numbers of the runs with this command line, from seed 1 on.
    pub fn of(&self, command: &str, key: &str) -> Option<&[Option<f64>]> {
        self.cells.get(&(command.to_string(), key.to_string())).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_command_line_and_key() {
        let text = r#"{"format":1,"version":"0","rows":[{"id":"a","cells":[
            {"command":"strandway sweep a","key":"fct_us.max","mean":1.5,"seeds":[1.0,null]}]}]}"#;
        let mut recorded = Recorded::default();
        recorded.read(text).expect("a document");
        assert_eq!(recorded.of("strandway sweep a", "fct_us.max"), Some(&[Some(1.0), None][..]));
        assert_eq!(recorded.of("strandway sweep a", "fct_us.mean"), None);
        recorded.read(&text.replace("1.0,", "2.0,")).expect("a document");
        assert_eq!(recorded.of("strandway sweep a", "fct_us.max"), Some(&[Some(1.0), None][..]), "the first stays");
        assert!(recorded.read("{}").expect_err("incomplete").contains("strandway reproduce --json"));
        assert!(recorded.read(r#"{"format":2,"rows":[]}"#).expect_err("new").contains("format 2"));
    }
}
