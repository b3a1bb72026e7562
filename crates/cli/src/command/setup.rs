//! `strandway completions` and `strandway man`: files that a shell and `man` read.

use super::explain;
use crate::Failure;
use crate::args::{Args, CompletionsArgs, ManArgs};
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use std::io::Write;
use strandway_proto::Profile;

/// Prints the completion script for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut named(Args::command()), "strandway", &mut script);
    print(&script)
}

/// The command with names where it takes one: profiles, and all that `explain` knows. Only for scripts: the command
/// itself takes more, such as `uec/reps`.
fn named(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "profile" | "profiles" => arg.value_parser(PossibleValuesParser::new(Profile::NAMES)),
        _ => arg,
    });
    let command = match command.get_name() {
        "explain" => command.mut_arg("name", |arg| arg.value_parser(PossibleValuesParser::new(explain::names()))),
        _ => command,
    };
    command.mut_subcommands(named)
}

/// Prints the manual page, or writes the pages of all commands into a directory.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let Some(folder) = &args.into else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut page).map_err(|e| Failure::Run(e.to_string()))?;
        return print(&page);
    };
    let wrong = |e: std::io::Error| Failure::Run(format!("{}: could not be written: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(wrong)?;
    clap_mangen::generate_to(Args::command(), folder).map_err(wrong)
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("standard output: could not be written: {e}")))
        }
        _ => Ok(()),
    }
}
