//! The long links of a fabric, and the process that carries their frames while the fabric is up.

use crate::LinuxError;
use crate::line::{Carried, End, Line, Losses, Reorder, carry};
use crate::namespace::netns;
use crate::state::{State, folder};
use crate::step::{Step, Tool};
use crate::{LinuxFabric, Node};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::topology::SitesShape;
use strandway_fabric::{LinkId, Plan, Topology};
use strandway_proto::Time;

/// The devices of a delay line in its T1's namespace: the first is connected to the T1's own port, the second to the T0
/// of the site with the higher number.
pub(crate) const ENDS: [&str; 2] = ["x", "y"];

/// The longest time that the process may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval at which it writes its counters.
const TELL: Duration = Duration::from_millis(100);

/// The state of a long link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineStatus {
    /// Its name in the first direction, such as `site0->site1`.
    pub name: String,
    /// Its plane.
    pub plane: u8,
    /// Its number in the plane, which is that of its T1.
    pub t1: u16,
    /// Counters of the direction from the site with the lower number to the other one, and of the direction back.
    pub ways: [Carried; 2],
}

/// The delay lines of a plan's long links, plane by plane and pair by pair of sites.
pub fn lines_of(plan: &Plan, unshaped: bool, reorder: Option<Reorder>) -> Vec<Line> {
    let topology = &plan.topology;
    let loss = |link: LinkId| {
        let faults = plan.faults.iter().filter(|fault| fault.links.contains(&link) && is_constant_loss(fault));
        let found = faults.filter_map(|fault| match fault.kind {
            FaultKind::Loss { probability, burst } => Some(Losses::new(probability, burst)),
            _ => None,
        });
        found.into_iter().next().unwrap_or(Losses::new(0.0, Burst::NONE))
    };
    let mut lines = Vec::new();
    for (link, ends) in topology.long_links().filter(|(_, ends)| ends.up) {
        let Some(long) = topology.long_link_of(&ends) else { continue };
        let [low, high] = [ends.from, ends.to].map(|node| topology.describe(node).1);
        lines.push((
            (ends.plane, SitesShape::pair(low, high), link),
            Line {
                name: topology.link_name(link),
                latency_ns: long.level.latency.0 / 1000,
                rate: (!unshaped).then_some(long.level.rate.0),
                queue: long.queue.0,
                loss: [loss(link), loss(ends.reverse)],
                reorder,
                seed: plan.seed,
            },
        ));
    }
    lines.sort_by_key(|(place, _)| *place);
    lines.into_iter().map(|(_, line)| line).collect()
}

fn is_constant_loss(fault: &FaultPlan) -> bool {
    matches!(fault.kind, FaultKind::Loss { .. }) && fault.from == Time::ZERO && fault.until == Time::NEVER
}

/// Is it a loss on long links only, for the whole run? Then the delay lines produce it.
pub fn is_carried(topology: &Topology, fault: &FaultPlan) -> bool {
    let long = |link: &LinkId| topology.ends(*link).is_some_and(|ends| topology.long_link_of(&ends).is_some());
    is_constant_loss(fault) && fault.links.iter().all(long)
}

/// Makes devices hand a line complete frames as on a wire: with checksums, and none larger than the MTU.
pub(crate) fn whole_frames(namespace: &str, devices: &[&str]) -> Step {
    let lines = devices.iter().map(|device| format!("-K {device} tx off sg off tso off gso off gro off")).collect();
    Step { namespace: Some(namespace.to_string()), tool: Tool::Ethtool, lines }
}

/// Plane and T1 of each line of a fabric.
fn places(fabric: &LinuxFabric) -> impl Iterator<Item = (u8, u16)> {
    let t1s = usize::from(fabric.t1s.max(1));
    (0..fabric.lines.len()).map(move |number| ((number / t1s) as u8, (number % t1s) as u16))
}

fn file(name: &str, what: &str) -> PathBuf {
    folder(name).join(what)
}

/// Starts the process that carries the lines of a fabric; their devices exist already. `program` is the words that
/// start the `strandway` command.
pub(crate) fn start(fabric: &LinuxFabric, program: &[OsString]) -> Result<(), LinuxError> {
    if fabric.lines.is_empty() {
        return Ok(());
    }
    let (name, log) = (&fabric.name, file(&fabric.name, "lines.log"));
    let fail = |what: &str, e: std::io::Error| LinuxError(format!("{what}: {e}"));
    let errors = File::create(&log).map_err(|e| fail(&log.display().to_string(), e))?;
    let Some((first, words)) = program.split_first() else {
        return Err(LinuxError("the path of this program is unknown, so it cannot carry the long links".into()));
    };
    let mut command = Command::new(first);
    command.args(words).args(["fabric", "carry-lines", "--name", name]).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let mut child = command.spawn().map_err(|e| fail(&first.display().to_string(), e))?;
    let began = Instant::now();
    while !file(name, "lines.json").exists() {
        if child.try_wait().is_ok_and(|over| over.is_some()) || began.elapsed() > PATIENCE {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let _ = child.kill();
            let _ = child.wait();
            return Err(LinuxError(format!("the long links are not carried: {}", said.trim())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Ends the process that carries the lines of a fabric, if there is one.
pub(crate) fn stop(name: &str) -> Result<(), LinuxError> {
    let path = file(name, "lines.pid");
    let Ok(lock) = File::options().read(true).open(&path) else { return Ok(()) };
    let began = Instant::now();
    let mut signal = Signal::TERM;
    while matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
        // The holder of the lock has written its process number.
        let pid = fs::read_to_string(&path).ok().and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
        if began.elapsed() > PATIENCE {
            if signal == Signal::KILL {
                let said = format!("{}: the process that carries the long links does not end", path.display());
                return Err(LinuxError(said));
            }
            signal = Signal::KILL;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Carries the long links of the fabric `name` until the process is ended.
///
/// # Errors
/// If there is no such fabric, or a link cannot be carried.
pub fn carry_lines(name: &str) -> Result<(), LinuxError> {
    let Some(State { fabric, .. }) = State::load(name)? else {
        return Err(LinuxError(format!("there is no fabric `{name}`")));
    };
    let path = file(name, "lines.pid");
    let fail = |e: std::io::Error| LinuxError(format!("{}: {e}", path.display()));
    let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(fail)?;
    match lock.try_lock() {
        Ok(()) => fs::write(&path, std::process::id().to_string()).map_err(fail)?,
        Err(_) => return Err(LinuxError(format!("the long links of `{name}` are carried already"))),
    }
    let ends = |(plane, t1)| {
        let space = netns(&fabric.namespace(Node::T1(plane, t1)));
        ENDS.map(|device| End { namespace: Some(space.clone()), device: device.to_string() })
    };
    let lines: Vec<_> = fabric.lines.iter().cloned().zip(places(&fabric).map(ends)).collect();
    let mut carrying = carry(&lines)?;
    let (shown, new) = (file(name, "lines.json"), file(name, "lines.json.new"));
    loop {
        carrying.check()?;
        let status: Vec<LineStatus> = fabric
            .lines
            .iter()
            .zip(places(&fabric))
            .zip(carrying.carried())
            .map(|((line, (plane, t1)), ways)| LineStatus { name: line.name.clone(), plane, t1, ways })
            .collect();
        let text = serde_json::to_string(&status).unwrap_or_default();
        let told = fs::write(&new, text).and_then(|()| fs::rename(&new, &shown));
        // If the folder is missing, the fabric was removed.
        told.map_err(|e| LinuxError(format!("{}: {e}", shown.display())))?;
        std::thread::sleep(TELL);
    }
}

/// The long links that have failed to carry frames since the fabric `name` was built, a sentence for each.
///
/// # Errors
/// If there is no such fabric, or its long links are not carried any more.
pub fn failed_lines(name: &str) -> Result<Vec<String>, LinuxError> {
    let lines = status(&State::standing(name)?.fabric)?;
    let failed = lines.iter().map(|line| (line, line.ways[0].failed + line.ways[1].failed)).filter(|(_, n)| *n > 0);
    Ok(failed
        .map(|(line, n)| {
            format!(
                "{}: this machine was too slow for {n} frames, which were lost in addition to the intended losses",
                line.name
            )
        })
        .collect())
}

/// The counters of a fabric's lines so far. Waits until the process has written them again.
pub(crate) fn status(fabric: &LinuxFabric) -> Result<Vec<LineStatus>, LinuxError> {
    if fabric.lines.is_empty() {
        return Ok(Vec::new());
    }
    let lock = File::open(file(&fabric.name, "lines.pid"));
    if lock.is_err() || lock.is_ok_and(|lock| lock.try_lock_shared().is_ok()) {
        let said = fs::read_to_string(file(&fabric.name, "lines.log")).unwrap_or_default();
        return Err(LinuxError(format!(
            "the long links are not carried any more {}; build the fabric again: strandway fabric down --name {}",
            if said.is_empty() { "(their process was ended)" } else { said.trim() },
            fabric.name
        )));
    }
    std::thread::sleep(TELL * 2);
    let path = file(&fabric.name, "lines.json");
    let read = fs::read_to_string(&path).map_err(|e| e.to_string());
    read.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()))
        .map_err(|e| LinuxError(format!("{}: {e}; build the fabric again", path.display())))
}
