//! Teams on the command line: their ranks, and their multicast options.

use super::wire;
use crate::Failure;
use crate::args::TeamArgs;
use std::net::SocketAddrV6;
use std::path::Path;
use strandway_group::{GroupError, Options};
use strandway_testbed::NodeFile;
use strandway_udp::{Config, Routes};

/// The default port of a rank's node; from the dynamic range, ours.
pub(super) const PORT: u16 = 47_950;

/// The variables in which launchers store a process's rank: ours, torchrun's, Open MPI's, MPICH's, Slurm's.
const RANKS: [&str; 5] = ["STRANDWAY_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Failure {
        match error {
            GroupError::Config(said) => Failure::Usage(said),
            error @ GroupError::Sizes { .. } => Failure::Usage(error.to_string()),
            GroupError::Node(error) => error.into(),
            other => Failure::Run(other.to_string()),
        }
    }
}

/// Reads a rank file: the addresses of each rank, one per plane. With a node file, lines may also name hosts of its
/// fabric.
pub(super) fn rank_file(path: &Path, file: Option<&NodeFile>) -> Result<Vec<Vec<SocketAddrV6>>, Failure> {
    Ok(lines("--ranks", path, file, PORT)?.into_iter().map(|(_, addresses)| addresses).collect())
}

/// Reads a file with one node per line; `flag` is the flag with the file's name. Returns each line with the node's
/// addresses.
pub(super) fn lines(
    flag: &str,
    path: &Path,
    file: Option<&NodeFile>,
    port: u16,
) -> Result<Vec<(String, Vec<SocketAddrV6>)>, Failure> {
    let wrong = |what: String| Failure::Usage(format!("{flag} {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("{error}; write one line per node")))?;
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let addresses = one(line, file, port).map_err(|failure| match failure {
            Failure::Usage(said) => wrong(format!("line {number}: {said}")),
            other => other,
        })?;
        all.push((line.to_string(), addresses));
    }
    match all.len() {
        0 => Err(wrong(format!(
            "it has no line: write one per node, such as 10.0.0.1:{port} or [fd00:1::1]:{port},[fd00:2::1]:{port}"
        ))),
        1..=65_536 => Ok(all),
        many => Err(wrong(format!("{many} lines: at most 65,536 are possible"))),
    }
}

/// The addresses of a node, one per plane, separated by commas or spaces; or its name, if a node file knows it.
pub(super) fn one(text: &str, file: Option<&NodeFile>, port: u16) -> Result<Vec<SocketAddrV6>, Failure> {
    let names: Vec<String> = text.split([',', ' ', '\t']).filter(|word| !word.is_empty()).map(String::from).collect();
    match (file, &names[..]) {
        (Some(file), [_]) => wire::peer(file, &names, port),
        _ => wire::addresses(&names, port, &[]),
    }
}

/// This process's rank: from the command line, or else from a launcher.
pub(super) fn rank(given: Option<u32>) -> Result<u32, Failure> {
    if let Some(rank) = given {
        return Ok(rank);
    }
    let told = RANKS.iter().find_map(|name| std::env::var(name).ok().map(|value| (name, value)));
    let Some((name, value)) = told else {
        return Err(Failure::Usage(format!("the rank is missing: give --rank N, or set one of {}", RANKS.join(", "))));
    };
    value
        .parse()
        .map_err(|_| Failure::Usage(format!("{name} is \"{value}\", which is no rank: set it to 0, 1, 2, ...")))
}

/// The team's multicast options.
pub(super) fn options(args: &TeamArgs, config: &Config) -> Result<Options, Failure> {
    if !(0.01..=1.0).contains(&args.pace) {
        return Err(Failure::Usage(format!("--pace {}: write a share from 0.01 to 1", args.pace)));
    }
    let trees = match &config.routes {
        Routes::Srv6 { clos, .. } => clos.uplinks().map(|ways| ways.max(1)).into_iter().product(),
        Routes::Addresses | Routes::SourcePorts(_) => 1,
    };
    Ok(Options {
        team: args.team,
        port: args.group_port,
        trees: args.trees.unwrap_or(trees),
        patience: args.patience,
        pace: args.pace,
        parity: args.parity,
        no_multicast: args.no_multicast,
        ..Options::new(config.rate)
    })
}
