//! Runs a program in a namespace.

use crate::namespace::netns;
use std::fmt;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// An error: a sentence with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxError(pub String);

impl fmt::Display for LinuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for LinuxError {}

/// Runs a program, in a namespace if one is named. It gets a process group of its own, so that Ctrl-C ends a build
/// between steps and not within one.
pub(crate) fn run(
    namespace: Option<&str>,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<Output, LinuxError> {
    let mut command = match namespace {
        Some(namespace) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", netns(namespace).display())).arg("--").arg(program);
            command
        }
        None => Command::new(program),
    };
    let missing = |e: std::io::Error| {
        let program = command_name(namespace, program);
        let remedy = match program {
            "nsenter" => "install util-linux",
            "clang" => "install clang",
            "smcroutectl" => "install smcroute (apt install smcroute)",
            _ => "install iproute2, 6.1 or later",
        };
        LinuxError(format!("`{program}` cannot be run: {e}; {remedy}"))
    };
    let mut child = command
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    // A program that ends before it has read all input gives the reason on standard error.
    let mut pipe = child.stdin.take().expect("a pipe was asked for");
    let input = input.to_string();
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(missing)?;
    let _ = writer.join();
    Ok(output)
}

fn command_name<'a>(namespace: Option<&str>, program: &'a str) -> &'a str {
    if namespace.is_some() { "nsenter" } else { program }
}
