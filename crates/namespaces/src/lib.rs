#![doc = include_str!("../README.md")]

mod check;
mod counted;
mod fabric;
mod failure;
mod faults;
pub mod line;
mod lines;
mod localise;
mod probe;
mod queue;
mod ready;
mod routers;
mod run;
mod state;
mod status;
mod steps;
mod teams;

pub use check::{Finding, check, feasible};
pub use counted::links;
pub use fabric::{
    Copying, HOSTS_MAX, LINE_RATE_MAX, LinuxFabric, Marking, NAMESPACES_MAX, Node, PLANES_MAX, PodShape, Port,
    RATE_MAX, Way,
};
pub use failure::{Failures, Loss, Place, Target};
pub use faults::{Moment, moments};
pub use lines::{LineStatus, carry_lines, failed_lines, is_carried, lines_of};
pub use localise::localise;
pub use probe::{Copied, Probed, probe, probe_copies};
pub use run::{
    LinuxError, Up, broken, down, down_after, enter, fail, heal, prepare, set_denied, set_failures, set_team, standing,
    teams, up,
};
pub use state::{FOLDER, Running, folder, move_into, name_fits, names, netns};
pub use status::{PortStatus, Status, T1Status, status};
pub use steps::{Step, Tool, build, change, regroup};
pub use teams::{TEAM_MAX, Team};

#[cfg(test)]
mod judgement;
#[cfg(test)]
mod tests;
