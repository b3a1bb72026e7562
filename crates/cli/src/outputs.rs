//! Where results go: terminal and files. Files are opened before a run, so that an unwritable one costs no time.

use crate::Failure;
use crate::args::Common;
use std::io::Write;
use std::path::{Path, PathBuf};
use strandway_lab::output::Output;

/// The files of a run, opened.
pub(crate) struct Outputs {
    pub(crate) json: Option<Output>,
    pub(crate) html: Option<Output>,
    pub(crate) markdown: Option<Output>,
    pub(crate) pcap: Option<Output>,
    json_on_stdout: bool,
    quiet: bool,
}

impl Outputs {
    pub(crate) fn open(common: &Common, pcap: Option<&PathBuf>) -> Result<Outputs, Failure> {
        let Common { json, html, markdown, quiet, .. } = common;
        Outputs::files(json.as_ref(), html.as_ref(), markdown.as_ref(), pcap, *quiet)
    }

    /// Opens what the flags name.
    pub(crate) fn files(
        json: Option<&PathBuf>,
        html: Option<&PathBuf>,
        markdown: Option<&PathBuf>,
        pcap: Option<&PathBuf>,
        quiet: bool,
    ) -> Result<Outputs, Failure> {
        let json_on_stdout = json.is_some_and(|path| path.as_os_str() == "-");
        Ok(Outputs {
            json: open(json.filter(|_| !json_on_stdout), "--json")?,
            html: open(html, "--html")?,
            markdown: open(markdown, "--markdown")?,
            pcap: open(pcap, "--pcap")?,
            json_on_stdout,
            quiet,
        })
    }

    /// Shows a text to the human: on standard output, or on standard error if JSON goes there.
    pub(crate) fn show(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.json_on_stdout { error(text) } else { print(text) }
    }

    pub(crate) fn json(&mut self, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json_on_stdout {
            print(&text());
        } else if let Some(output) = self.json.take() {
            finish(output, text().as_bytes())?;
        }
        Ok(())
    }
}

fn open(path: Option<&PathBuf>, flag: &str) -> Result<Option<Output>, Failure> {
    path.map(|path| {
        Output::open(path).map_err(|e| {
            Failure::Usage(format!(
                "{flag} {}: cannot be written: {e}; name a file in a folder that you can write to",
                path.display()
            ))
        })
    })
    .transpose()
}

/// Puts a file into place.
pub(crate) fn finish(output: Output, contents: &[u8]) -> Result<(), Failure> {
    let path = output.path().display().to_string();
    output.finish(contents).map_err(|e| Failure::Run(format!("{path}: could not be written: {e}")))
}

/// Opens a file that no flag names.
pub(crate) fn open_here(path: &Path) -> Result<Output, Failure> {
    Output::open(path).map_err(|e| {
        Failure::Usage(format!("{}: cannot be written: {e}; run in a folder that you can write to", path.display()))
    })
}

/// Prints on standard output; a reader that has gone away is no error of ours.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn error(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints one complaint on standard error.
pub(crate) fn complain(line: &str) {
    error(&format!("strandway: {line}\n"));
}
