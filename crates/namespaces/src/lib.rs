#![doc = include_str!("../README.md")]

mod check;
mod command;
mod counted;
mod execute;
pub mod export;
mod fabric;
mod failure;
mod faults;
pub mod line;
mod lines;
mod localise;
mod namespace;
mod probe;
mod queue;
mod ready;
mod routers;
mod state;
mod status;
mod step;
mod steps;
mod teams;
mod up;

pub use check::{Finding, check, feasible};
pub use command::LinuxError;
pub use counted::links;
pub use fabric::{
    Copying, FOLDER, HOSTS_MAX, LINE_RATE_MAX, LinuxFabric, Marking, NAMESPACES_MAX, Node, PLANES_MAX, PodShape, Port,
    RATE_MAX, Team, Way,
};
pub use failure::{Failures, Loss, Place, Target};
pub use faults::{Moment, moments};
pub use lines::{LineStatus, carry_lines, failed_lines, is_carried, lines_of};
pub use localise::localise;
pub use namespace::{move_into, netns};
pub use probe::{Copied, Probed, probe, probe_copies};
pub use state::{DENIED, Running, folder, name_fits, names};
pub use status::{PortStatus, Status, T1Status, status};
pub use step::{Step, Tool};
pub use steps::{build, change, regroup};
pub use teams::TEAM_MAX;
pub use up::{
    Up, broken, down, down_after, enter, fail, heal, prepare, set_denied, set_failures, set_team, standing, teams, up,
};

#[cfg(test)]
mod judgement;
#[cfg(test)]
mod tests;
