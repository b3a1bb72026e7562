//! Builds, changes and removes fabrics.

use crate::check::check;
use crate::command::LinuxError;
use crate::execute::carry_out;
use crate::fabric::Team;
use crate::failure::{Failures, Target};
use crate::lines;
use crate::namespace::netns;
use crate::ready::until_ready;
use crate::routers;
use crate::state::{self, Running, State, folder};
use crate::step::{Step, Tool};
use crate::steps::{build, change, regroup};
use crate::teams::TEAM_MAX;
use crate::{Copying, LinuxFabric, Node};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use strandway_fabric::usid::{Element, Stop};

/// The result of [`up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// It was built now.
    Built,
    /// This fabric was up already.
    Standing,
}

/// Builds a fabric, unless it is up already. A build that fails or is interrupted leaves nothing behind. Each host gets
/// the node file that `node_file` makes for it. `program` is the words that start the `strandway` command; a process
/// of it carries the long links.
///
/// # Errors
/// If another fabric has the name, or this machine lacks a requirement; with the remedy.
pub fn up(
    fabric: &LinuxFabric,
    node_file: &dyn Fn(u16) -> String,
    program: &[OsString],
    interrupted: &dyn Fn() -> bool,
) -> Result<Up, LinuxError> {
    let name = &fabric.name;
    let lock = state::lock()?;
    if let Some(old) = State::load(name)? {
        let down = format!("strandway fabric down --name {name}");
        if let Some(damage) = old.damage() {
            return Err(LinuxError(format!("{damage}; remove the rest first: {down}")));
        }
        let differences = old.fabric.differences(fabric);
        if !differences.is_empty() {
            let differences = differences.join(", ");
            let what = format!("a different fabric `{name}` is up, from {}: {differences}", old.fabric.scenario);
            return Err(LinuxError(format!("{what}; take it down first ({down}) or choose another --name")));
        }
        return Ok(Up::Standing);
    }
    if let Some(space) = state::namespaces(name).first() {
        return Err(LinuxError(format!(
            "a namespace {space} is there already and no fabric is known to own it; choose another --name, or remove it \
             if no one needs it: strandway fabric down --name {name} --force"
        )));
    }
    let mut state =
        State { complete: false, failures: Vec::new(), fabric: fabric.clone(), denied: Vec::new(), teams: Vec::new() };
    let built = state.save().and_then(|()| {
        for step in build(fabric) {
            if interrupted() {
                return Err(LinuxError("interrupted; the part that was built has been removed".into()));
            }
            carry_out(&step)?;
        }
        state.save_node_files(node_file)?;
        lines::start(fabric, program)?;
        if fabric.copying == Copying::Routers {
            routers::set(fabric, &fabric.teams)?;
        }
        until_ready(fabric, None, &Failures::default())?;
        state.complete = true;
        state.save()
    });
    if let Err(error) = built {
        let clean = remove(name, false);
        drop(lock);
        // A missing command or kernel feature explains more than the error text of `ip`.
        let missing = check().into_iter().find(|finding| !finding.works && finding.needed);
        let said = match missing {
            Some(finding) if !interrupted() => format!("{}: {}; {}", finding.what, finding.said, finding.remedy),
            _ => error.0,
        };
        return Err(LinuxError(match clean {
            Ok(_) => said,
            Err(left) => format!("{said}\nand not all could be removed: {left}"),
        }));
    }
    Ok(Up::Built)
}

/// Removes a fabric, also the rest of an incomplete one; returns the number of its namespaces. Namespaces with such
/// names that no stored fabric has made are removed only by `force`.
///
/// # Errors
/// If a scenario is running on it, a namespace cannot be removed, or no fabric of this name is stored and there are
/// namespaces with its names.
pub fn down(name: &str, force: bool) -> Result<usize, LinuxError> {
    state::name_fits(name)?;
    let spaces = state::namespaces(name);
    if !folder(name).exists() && spaces.is_empty() {
        return Ok(0);
    }
    if !folder(name).exists() && !force {
        let more = if spaces.len() > 8 { ", ..." } else { "" };
        let some = spaces.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(LinuxError(format!(
            "no fabric `{name}` is stored, but there are {} namespaces with such names: {some}{more}; if no one needs \
             them: strandway fabric down --name {name} --force",
            spaces.len()
        )));
    }
    let running = Running::on(name)?;
    let _lock = state::lock()?;
    let removed = remove(name, force);
    drop(running);
    removed
}

/// Removes a fabric for a caller that already holds it; returns the number of its namespaces.
///
/// # Errors
/// If a namespace cannot be removed.
pub fn down_after(name: &str, _running: &Running) -> Result<usize, LinuxError> {
    if folder(name).exists() {
        let _lock = state::lock()?;
        return remove(name, false);
    }
    Ok(0)
}

/// Removes what belongs to a fabric; `all`: also namespaces with such names that it has not made.
fn remove(name: &str, all: bool) -> Result<usize, LinuxError> {
    let _lock = folder(name).exists().then(|| state::lock_of(name)).transpose()?;
    lines::stop(name)?;
    routers::stop(name)?;
    let mut spaces = state::namespaces(name);
    // Without a state that can be read, its nodes are not known.
    if let (false, Ok(Some(state))) = (all, State::load(name)) {
        let own: BTreeSet<String> = state.fabric.nodes().into_iter().map(|node| state.fabric.namespace(node)).collect();
        spaces.retain(|space| own.contains(space));
    }
    if !spaces.is_empty() {
        let lines = spaces.iter().map(|space| format!("netns del {space}")).collect();
        carry_out(&Step { namespace: None, tool: Tool::Ip, lines })?;
    }
    match fs::remove_dir_all(folder(name)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(LinuxError(format!("{}: cannot be removed: {e}", folder(name).display())))
        }
        _ => Ok(spaces.len()),
    }
}

/// Breaks a target; returns whether it was whole before.
///
/// # Errors
/// If there is no such fabric or target.
pub fn fail(name: &str, target: &str) -> Result<bool, LinuxError> {
    changing(name, |state| {
        let target = Target::parse(&state.fabric, target).map_err(LinuxError)?;
        if target.is_empty() {
            let remedy = "write, say, loss:p0:2% or degrade:p0:25%";
            return Err(LinuxError(format!(
                "`{target}`: how much is to be lost, or how much of the rate is left? {remedy}"
            )));
        }
        Ok(state.failures()?.with(target))
    })
}

/// Mends a target, or all of them; returns whether anything was broken. Returns when the kernel sends on the ports that
/// came up.
///
/// # Errors
/// If there is no such fabric or target, or a port that came up has no carrier.
pub fn heal(name: &str, target: Option<&str>) -> Result<bool, LinuxError> {
    changing(name, |state| {
        let target = target.map(|text| Target::parse(&state.fabric, text)).transpose().map_err(LinuxError)?;
        Ok(state.failures()?.without(target))
    })
}

/// The failures of a fabric that is up, as text in the form of targets.
///
/// # Errors
/// If there is no such fabric.
pub fn broken(name: &str) -> Result<Vec<String>, LinuxError> {
    Ok(State::standing(name)?.failures)
}

/// A fabric that is up, and its deliberate failures.
///
/// # Errors
/// If there is no such fabric.
pub fn standing(name: &str) -> Result<(LinuxFabric, Failures), LinuxError> {
    let state = State::standing(name)?;
    let failures = state.failures()?;
    Ok((state.fabric, failures))
}

/// Breaks exactly these targets, and mends all others. Returns when the kernel sends on the ports that came up.
///
/// # Errors
/// If there is no such fabric, or a target cannot be broken or mended.
pub fn set_failures(name: &str, failures: &Failures) -> Result<(), LinuxError> {
    changing(name, |_| Ok(failures.clone())).map(|_| ())
}

fn changing(name: &str, to: impl FnOnce(&State) -> Result<Failures, LinuxError>) -> Result<bool, LinuxError> {
    // Checked before locking, since without the fabric there is nothing to lock, and this error is clearer.
    State::standing(name)?;
    let _lock = state::lock_of(name)?;
    let mut state = State::standing(name)?;
    let from = state.failures()?;
    let to = to(&state)?;
    if from == to {
        return Ok(false);
    }
    for step in change(&state.fabric, &from, &to) {
        carry_out(&step)?;
    }
    state.failures = to.0.iter().map(Target::to_string).collect();
    state.save()?;
    until_ready(&state.fabric, Some(&from), &to)?;
    Ok(true)
}

/// Denies a part of a fabric to its nodes, or allows it again (`None`: all parts), by the file [`crate::DENIED`] in the fabric's
/// folder. Returns whether this changes anything.
///
/// # Errors
/// If there is no such fabric or part, or a file cannot be written.
pub fn set_denied(name: &str, target: Option<&str>, denied: bool) -> Result<bool, LinuxError> {
    State::standing(name)?;
    let _lock = state::lock_of(name)?;
    let mut state = State::standing(name)?;
    let part = target.map(|target| element(&state.fabric, target)).transpose().map_err(LinuxError)?;
    let mut parts: Vec<Element> = state.denied.iter().filter_map(|text| Element::parse(text)).collect();
    parts.retain(|other| part.is_some_and(|part| part != *other));
    parts.extend(part.filter(|_| denied));
    let texts: Vec<String> = parts.iter().map(Element::to_string).collect();
    if texts == state.denied {
        return Ok(false);
    }
    let changed = texts.iter().any(|text| !state.denied.contains(text)) || texts.len() != state.denied.len();
    state.denied = texts;
    state.save_denied()?;
    state.save()?;
    Ok(changed)
}

/// A part of the fabric that nodes can avoid, by a name as for failures.
fn element(fabric: &LinuxFabric, target: &str) -> Result<Element, String> {
    let stop = |node: Node| match node {
        Node::Host(_) => None,
        Node::T0(_, i) => Some(Stop::T0(i)),
        Node::T1(_, j) => Some(Stop::T1(j)),
        Node::T2(_, m) => Some(Stop::T2(m)),
    };
    let plane = |node: Node| match node {
        Node::Host(_) => 0,
        Node::T0(p, _) | Node::T1(p, _) | Node::T2(p, _) => p,
    };
    let other = || {
        format!(
            "`{target}`: nodes avoid links, switches, planes and ports of hosts; write link:p0:t0-0:t1-1 or spine1.p0"
        )
    };
    match Target::parse(fabric, target)? {
        Target::Plane(plane) => Ok(Element::Plane(plane)),
        Target::Port(host, plane) => Ok(Element::Port(plane, u32::from(host))),
        Target::Switch(node) => stop(node).map(|stop| Element::Switch(plane(node), stop)).ok_or_else(other),
        Target::Link(Node::Host(host), other) => Ok(Element::Port(plane(other), u32::from(host))),
        Target::Link(a, b) => match (stop(a), stop(b)) {
            (Some(x), Some(y)) => Ok(Element::Link(plane(a), x.min(y), x.max(y))),
            _ => Err(other()),
        },
        Target::Loss(..) | Target::Degrade(..) => Err(other()),
    }
}

/// A fabric that is up, and the multicast teams for which its switches copy.
///
/// # Errors
/// If there is no such fabric.
pub fn teams(name: &str) -> Result<(LinuxFabric, Vec<Team>), LinuxError> {
    let state = State::standing(name)?;
    let teams = state.all_teams();
    Ok((state.fabric, teams))
}

/// Makes switches copy for multicast team `number` with these hosts (`h0,h2,h3`), which replace its former ones; `None`
/// removes the team. Returns whether this changes anything.
///
/// # Errors
/// If there is no such fabric, its switches do not copy, the hosts do not exist, or the team was built with the fabric.
pub fn set_team(name: &str, number: u16, hosts: Option<&str>) -> Result<bool, LinuxError> {
    State::standing(name)?;
    let _lock = state::lock_of(name)?;
    let mut state = State::standing(name)?;
    let fabric = &state.fabric;
    if fabric.teams.is_empty() {
        let why = fabric.notes.iter().find(|note| note.starts_with("multicast:")).map_or("", |note| note.as_str());
        return Err(LinuxError(format!("the switches of fabric `{name}` do not copy ({why})")));
    }
    if number > TEAM_MAX {
        return Err(LinuxError(format!("team {number}: numbers go up to {TEAM_MAX}")));
    }
    if fabric.teams.iter().any(|team| team.number == number) {
        let numbers: Vec<String> = fabric.teams.iter().map(|team| team.number.to_string()).collect();
        return Err(LinuxError(format!(
            "team {number} was built with the fabric, which cannot change its own teams ({}); choose another number",
            numbers.join(", ")
        )));
    }
    let team = hosts.map(|hosts| Team::parse(fabric, number, hosts)).transpose().map_err(LinuxError)?;
    let others = state.teams.iter().filter(|team| team.number != number).cloned();
    let mut teams: Vec<Team> = others.chain(team).collect();
    teams.sort_unstable_by_key(|team| team.number);
    if teams == state.teams {
        return Ok(false);
    }
    if fabric.copying == Copying::Routers {
        routers::set(fabric, &[&fabric.teams[..], &teams].concat())?;
    } else {
        for step in regroup(fabric, &state.teams, &teams) {
            carry_out(&step)?;
        }
    }
    state.teams = teams;
    state.save()?;
    Ok(true)
}

/// The file of a node's namespace, for `nsenter --net=FILE`.
///
/// # Errors
/// If there is no such fabric or node.
pub fn enter(name: &str, node: &str) -> Result<PathBuf, LinuxError> {
    let state = State::standing(name)?;
    state.fabric.says_plane(node).map_err(LinuxError)?;
    match state.fabric.named(node) {
        Some(node) => Ok(netns(&state.fabric.namespace(node))),
        None => Err(LinuxError(format!(
            "fabric `{name}` has no node `{node}`; hosts are host0 to host{} (or h0), switches are called leaf0.p0 and spine0.p0 \
             (or t0-p0-0 and t1-p0-0)",
            state.fabric.hosts - 1
        ))),
    }
}

/// Compiles the programs that a series of failures will need, so that each failure strikes in time.
///
/// # Errors
/// If there is no such fabric, or the compiler fails.
pub fn prepare<'a>(name: &str, failures: impl Iterator<Item = &'a Failures>) -> Result<(), LinuxError> {
    let fabric = State::standing(name)?.fabric;
    let whole = Failures::default();
    let steps = failures.flat_map(|failures| change(&fabric, &whole, failures));
    steps.filter(|step| step.tool == Tool::Clang).try_for_each(|step| carry_out(&step))
}
