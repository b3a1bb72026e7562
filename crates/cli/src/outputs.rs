//! The destinations of results: terminal and files. Files are opened before a run, so that an unwritable file is found
//! early. An output never replaces an input.

use crate::Failure;
use crate::args::Common;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use strandway_lab::output::Output;

/// The name for standard output.
const STANDARD_OUTPUT: &str = "-";

/// The outputs that the flags of a command select.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) json: Option<&'a PathBuf>,
    pub(crate) html: Option<&'a PathBuf>,
    pub(crate) markdown: Option<&'a PathBuf>,
    pub(crate) pcap: Option<&'a PathBuf>,
    pub(crate) flows: Option<&'a PathBuf>,
    pub(crate) trace: Option<&'a PathBuf>,
    pub(crate) quiet: bool,
}

impl<'a> Wanted<'a> {
    /// The outputs of all commands that run scenarios.
    pub(crate) fn of(common: &'a Common) -> Wanted<'a> {
        Wanted {
            json: common.json.as_ref(),
            html: common.html.as_ref(),
            markdown: common.markdown.as_ref(),
            quiet: common.quiet,
            ..Wanted::default()
        }
    }
}

/// One output: a file that appears complete or not at all, or standard output.
pub(crate) enum Target {
    File(Output),
    Standard,
}

impl Target {
    /// Writes `contents`.
    pub(crate) fn finish(self, contents: &[u8]) -> Result<(), Failure> {
        match self {
            Target::File(output) => finish(output, contents),
            Target::Standard => match std::io::stdout().write_all(contents).and_then(|()| std::io::stdout().flush()) {
                // It is not an error if the reader of a pipe has ended.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                Err(e) => Err(Failure::Run(format!("standard output: could not be written: {e}"))),
                Ok(()) => Ok(()),
            },
        }
    }

    /// Lets `write` write the output piece by piece, and returns its result.
    pub(crate) fn finish_with<T>(self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> Result<T, Failure> {
        let (path, told) = match self {
            Target::File(output) => (output.path().display().to_string(), output.finish_with(|file| write(file))),
            Target::Standard => ("standard output".to_string(), write(&mut std::io::stdout().lock())),
        };
        told.map_err(|e| Failure::Run(format!("{path}: could not be written: {e}")))
    }
}

/// The open outputs of a run.
pub(crate) struct Outputs {
    json: Option<Target>,
    pub(crate) html: Option<Target>,
    pub(crate) markdown: Option<Target>,
    pub(crate) pcap: Option<Target>,
    pub(crate) flows: Option<Target>,
    pub(crate) trace: Option<Target>,
    document_on_stdout: bool,
    quiet: bool,
}

impl Outputs {
    /// Opens the selected outputs. `inputs` are the files that the run reads; they must not be replaced.
    pub(crate) fn open(wanted: Wanted<'_>, inputs: &[PathBuf]) -> Result<Outputs, Failure> {
        let flags = [
            ("--json", wanted.json),
            ("--html", wanted.html),
            ("--markdown", wanted.markdown),
            ("--pcap", wanted.pcap),
            ("--flows", wanted.flows),
            ("--trace", wanted.trace),
        ];
        let named: Vec<(&str, &PathBuf)> = flags.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))).collect();
        for (i, (flag, path)) in named.iter().enumerate() {
            if let Some((other, _)) = named[..i].iter().find(|(_, before)| same(path, before)) {
                let path = path.display();
                return Err(Failure::Usage(format!("{flag} {path}: {other} writes there already; name another file")));
            }
            if !is_standard(path) && inputs.iter().any(|input| same(path, input)) {
                return Err(Failure::Usage(format!(
                    "{flag} {}: would replace a file that this command reads; name another file",
                    path.display()
                )));
            }
        }
        Ok(Outputs {
            json: open(wanted.json, "--json")?,
            html: open(wanted.html, "--html")?,
            markdown: open(wanted.markdown, "--markdown")?,
            pcap: open(wanted.pcap, "--pcap")?,
            flows: open(wanted.flows, "--flows")?,
            trace: open(wanted.trace, "--trace")?,
            document_on_stdout: named.iter().any(|(_, path)| is_standard(path)),
            quiet: wanted.quiet,
        })
    }

    /// Prints a text for the user: on standard output, or on standard error if a document goes to standard output.
    pub(crate) fn show(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.document_on_stdout { error(text) } else { print(text) }
    }

    /// The width for texts of [`Outputs::show`] in characters; `None` if the output is not a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        if self.document_on_stdout { None } else { terminal_width() }
    }

    pub(crate) fn json(&mut self, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.json.take().map_or(Ok(()), |target| target.finish(text().as_bytes()))
    }
}

/// The width of the terminal of standard output in characters; `None` if it is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0))
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD_OUTPUT
}

/// True if both names mean the same file. A file that does not exist yet is compared by its directory.
fn same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::canonicalize(path)
            .or_else(|_| std::fs::canonicalize(folder).map(|f| f.join(path.file_name().unwrap_or_default())))
            .unwrap_or_else(|_| path.to_path_buf())
    };
    match (is_standard(a), is_standard(b)) {
        (false, false) => place(a) == place(b) && !is_device(a),
        (a, b) => a && b,
    }
}

/// Devices and pipes are written directly, so two outputs may use the same one.
fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| !m.is_file())
}

fn open(path: Option<&PathBuf>, flag: &str) -> Result<Option<Target>, Failure> {
    path.map(|path| {
        if is_standard(path) {
            return Ok(Target::Standard);
        }
        Output::open(path).map(Target::File).map_err(|e| {
            Failure::Usage(format!(
                "{flag} {}: cannot be written: {e}; name a file in a folder that you can write to",
                path.display()
            ))
        })
    })
    .transpose()
}

/// Writes a file completely and moves it into place.
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

/// The first error of [`print`], for [`flush`].
static FAILED: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Prints on standard output. It is not an error if the reader of a pipe has ended. [`flush`] tells of other errors.
pub(crate) fn print(text: &str) {
    if let Err(error) = std::io::stdout().write_all(text.as_bytes()) {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Writes what is left for standard output.
///
/// # Errors
/// If something that was printed could not be written, for example on a full disk.
pub(crate) fn flush() -> Result<(), Failure> {
    let flushed = std::io::stdout().flush();
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    match failed.map_or(flushed, Err) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("standard output: could not be written: {e}")))
        }
        _ => Ok(()),
    }
}

fn error(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints an error message on standard error.
pub(crate) fn complain(line: &str) {
    error(&format!("strandway: {line}\n"));
}
