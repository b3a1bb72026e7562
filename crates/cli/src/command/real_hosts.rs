//! The commands for real hosts, which need Linux: one file per command.

mod baseline;
pub(crate) mod cast;
pub(crate) mod choice;
pub(crate) mod collective;
pub(crate) mod copy;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod fabric;
mod gray;
pub(crate) mod node;
pub(crate) mod perf;
pub(crate) mod switch;
pub(crate) mod team;
pub(crate) mod top;
pub(crate) mod tune;
mod uet;
pub(crate) mod wire;

use crate::Failure;
use crate::args::Command;

/// Runs a command for real hosts.
pub(crate) fn execute(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Perf(args) => perf::perf(args),
        Command::Copy(args) => copy::copy(args),
        Command::Cast(args) => cast::cast(args),
        Command::Switch(args) => switch::switch(args),
        Command::Node(args) => node::node(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Fabric(args) => fabric::fabric(args),
        Command::Top(args) => top::top(args),
        _ => unreachable!("a command that simulates"),
    }
}
