#![doc = include_str!("../README.md")]

//! The command is also a library, so that the Python package has it without a second copy of everything below:
//! [`run`] is the whole of it.

mod args;
mod command;
#[cfg(target_os = "linux")]
mod glibc;
#[cfg(target_os = "linux")]
mod huge_pages;
mod invocation;
mod mistyped;
mod outputs;
mod progress;

use args::{Args, Command};
use clap::Parser;
use std::ffi::OsString;

/// Why a command failed. Each kind has its exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The run failed or was stopped: 1.
    Run(String),
    /// Usage or scenario is wrong: 2.
    Usage(String),
    /// A bound of `[expect]` or a published result was missed: 3.
    Missed(String),
}

impl From<strandway_import::Problems> for Failure {
    fn from(problems: strandway_import::Problems) -> Failure {
        Failure::Usage(problems.to_string())
    }
}

/// Runs the command line, and returns the exit status. `program`: the words that start this program once more, such as
/// its path; `arguments`: the words after its name. It is called once per process, since it handles the signals of the
/// process.
pub fn run(program: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    let parsed = Args::try_parse_from(std::iter::once("strandway".into()).chain(arguments.iter().cloned()));
    let arguments_of = arguments.clone();
    invocation::remember(program, arguments);
    let status = match parsed {
        Ok(args) => execute(args.command),
        Err(said) => {
            let said = mistyped::suggest(said, &arguments_of);
            // As clap itself: a closed pipe is not an error.
            let _ = said.print();
            said.exit_code() as u8
        }
    };
    // Where the program is Python's, nothing else writes the rest.
    match outputs::flush() {
        Err(Failure::Run(said)) => {
            outputs::complain(&said);
            status.max(1)
        }
        _ => status,
    }
}

fn execute(command: Option<Command>) -> u8 {
    #[cfg(target_os = "linux")]
    glibc::restart(&settings(command.as_ref()));
    progress::handle_interrupts();
    let result = match command {
        Some(Command::Run(args)) => command::run::run(&args),
        Some(Command::Compare(args)) => command::compare::compare(&args),
        Some(Command::Sweep(args)) => command::compare::sweep(&args),
        Some(Command::Search(args)) => command::search::run(&args),
        Some(Command::WhatIf(args)) => command::what_if::run(&args),
        Some(Command::Localise(args)) => command::localise::run(&args),
        Some(Command::Calibrate(args)) => command::calibrate::run(&args),
        Some(Command::Explain(args)) => command::explain::explain(&args),
        Some(Command::Import(args)) => command::explain::import(&args),
        Some(Command::Reproduce(args)) => command::reproduce::reproduce(&args),
        Some(Command::Model(args)) => command::model::model(&args),
        Some(Command::Completions(args)) => command::setup::completions(&args),
        Some(Command::Man(args)) => command::setup::man(&args),
        Some(command) => command::real_hosts::execute(&command),
        None => command::showcase::showcase(),
    };
    let (status, said) = match result {
        Ok(()) => return 0,
        Err(Failure::Run(said)) => (1, said),
        Err(Failure::Usage(said)) => (2, said),
        Err(Failure::Missed(said)) => (3, said),
    };
    for line in said.lines() {
        outputs::complain(line);
    }
    status
}

/// The settings of glibc for a command.
#[cfg(target_os = "linux")]
fn settings(command: Option<&Command>) -> Vec<glibc::Tunable> {
    let pages = command.is_none_or(simulates).then(huge_pages::wanted).flatten();
    let copies = command.is_some_and(|command| matches!(command, Command::Perf(perf) if perf.side.is_beside()));
    pages.into_iter().chain(copies.then(glibc::copies).flatten()).collect()
}

/// Does this command spend its time in simulations?
#[cfg(target_os = "linux")]
fn simulates(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_)
            | Command::Compare(_)
            | Command::Sweep(_)
            | Command::Search(_)
            | Command::Reproduce(_)
            | Command::WhatIf(_)
            | Command::Calibrate(_)
            | Command::Localise(_)
    )
}
