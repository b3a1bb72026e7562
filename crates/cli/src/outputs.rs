//! Where results go: terminal and files. Files are opened before a run, so that an unwritable one costs no time, and no
//! output ever replaces an input.

use crate::Failure;
use crate::args::Common;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use strandway_lab::output::Output;

/// Stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// The outputs that the flags of a command name.
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
    /// The outputs that every running command can write.
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

/// One output: a file that is there whole or not at all, or standard output.
pub(crate) enum Target {
    File(Output),
    Standard,
}

impl Target {
    /// Writes all of it.
    pub(crate) fn finish(self, contents: &[u8]) -> Result<(), Failure> {
        match self {
            Target::File(output) => finish(output, contents),
            Target::Standard => match std::io::stdout().write_all(contents).and_then(|()| std::io::stdout().flush()) {
                // A reader that has gone away is no error of ours.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                Err(e) => Err(Failure::Run(format!("standard output: could not be written: {e}"))),
                Ok(()) => Ok(()),
            },
        }
    }

    /// The same for what is written piece by piece; gives back what `write` tells.
    pub(crate) fn finish_with<T>(self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> Result<T, Failure> {
        let (path, told) = match self {
            Target::File(output) => (output.path().display().to_string(), output.finish_with(|file| write(file))),
            Target::Standard => ("standard output".to_string(), write(&mut std::io::stdout().lock())),
        };
        told.map_err(|e| Failure::Run(format!("{path}: could not be written: {e}")))
    }
}

/// The outputs of a run, opened.
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
    /// Opens what is wanted; `inputs` are the files that the run reads, which nothing may replace.
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

    /// Shows a text to the human: on standard output, or on standard error if a document goes there.
    pub(crate) fn show(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.document_on_stdout { error(text) } else { print(text) }
    }

    /// How many characters a line of [`Outputs::show`] may have; no limit where nobody looks at a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        if self.document_on_stdout { None } else { terminal_width() }
    }

    pub(crate) fn json(&mut self, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.json.take().map_or(Ok(()), |target| target.finish(text().as_bytes()))
    }
}

/// The width of the terminal that standard output is, in characters.
pub(crate) fn terminal_width() -> Option<usize> {
    std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0))
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD_OUTPUT
}

/// Do both names mean the same file? A file that does not exist yet is known by its folder.
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

/// Devices and pipes are written to as they are, so that two outputs may well go there.
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
