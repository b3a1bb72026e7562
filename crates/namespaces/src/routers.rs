//! Multicast by routers: the kernel of each switch routes multicast itself (`ip6mr`), as routers in other networks do.
//!
//! The kernel's routes live as long as the process that set them. So each switch has a static router process,
//! `smcrouted` of the package `smcroute`, with a file of routes: one route per source, group and incoming port. A route
//! lists the ports that get a copy.

use crate::command::{LinuxError, run};
use crate::fabric::Team;
use crate::fabric::port_to;
use crate::namespace::netns;
use crate::state::folder;
use crate::{LinuxFabric, Node};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strandway_fabric::kernel::{Feature, Without};
use strandway_fabric::multicast::GroupAddress;

/// The program that sets the kernel's routes.
const ROUTER: &str = "smcrouted";

/// The program that makes a running router read its file again.
pub(crate) const CONTROL: &str = "smcroutectl";

/// The most ports between which a kernel routes multicast (`MAXMIFS` in `linux/mroute6.h`).
const PORTS_MAX: usize = 32;

/// The time that a router process has to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Can routers copy multicast in this fabric?
///
/// # Errors
/// With a sentence and a remedy, if a switch has too many ports.
fn possible(fabric: &LinuxFabric) -> Result<(), String> {
    let ports = |node: &Node| fabric.ports(*node).len();
    match switches(fabric).find(|node| ports(node) > PORTS_MAX) {
        Some(node) => Err(format!(
            "{node} has {} ports, and the kernel routes multicast between {PORTS_MAX}; take fewer hosts per leaf, or let filters copy",
            ports(&node)
        )),
        None => Ok(()),
    }
}

fn switches(fabric: &LinuxFabric) -> impl Iterator<Item = Node> {
    fabric.nodes().into_iter().filter(|node| !matches!(node, Node::Host(_)))
}

/// The file of routes of each switch, line by line, for these teams.
pub(crate) fn routes(fabric: &LinuxFabric, teams: &[Team]) -> BTreeMap<Node, Vec<String>> {
    let mut files: BTreeMap<Node, Vec<String>> = BTreeMap::new();
    for node in switches(fabric) {
        let ports = fabric.ports(node).into_iter();
        files.insert(node, ports.map(|port| format!("phyint {} enable ttl-threshold 1", port.name)).collect());
    }
    for team in teams {
        for (plane, tree) in (0..fabric.planes).flat_map(|plane| (0..fabric.trees()).map(move |tree| (plane, tree))) {
            let group = GroupAddress { plane, tree, team: team.number }.address();
            for &host in &team.hosts {
                let source = fabric.clos().host(plane, u32::from(host));
                for ((switch, from), to) in fabric.copies_from(team, host, plane, tree) {
                    let to: Vec<String> = to.into_iter().map(|peer| port_to(switch, peer)).collect();
                    let route = format!(
                        "mroute from {} source {source} group {group} to {}",
                        port_to(switch, from),
                        to.join(" ")
                    );
                    files.entry(switch).or_default().push(route);
                }
            }
        }
    }
    files
}

/// The files of one switch's router.
struct Files {
    routes: PathBuf,
    pid: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

fn home(name: &str) -> PathBuf {
    folder(name).join("routers")
}

fn files(name: &str, switch: &str) -> Files {
    let at = |kind: &str| home(name).join(format!("{switch}.{kind}"));
    Files { routes: at("conf"), pid: at("pid"), socket: at("sock"), log: at("log") }
}

/// Makes the routers of a fabric copy for exactly these teams. Routers that do not run yet are started.
pub(crate) fn set(fabric: &LinuxFabric, teams: &[Team]) -> Result<(), LinuxError> {
    let wrong = |path: &Path, e: std::io::Error| LinuxError(format!("{}: cannot be written: {e}", path.display()));
    possible(fabric).map_err(LinuxError)?;
    let home = home(&fabric.name);
    fs::create_dir_all(&home).map_err(|e| wrong(&home, e))?;
    for (switch, lines) in routes(fabric, teams) {
        let files = files(&fabric.name, &switch.to_string());
        fs::write(&files.routes, lines.join("\n") + "\n").map_err(|e| wrong(&files.routes, e))?;
        match running(&files.pid) {
            Some(_) => reload(&switch, &files)?,
            None => start(&fabric.namespace(switch), &switch, &files)?,
        }
    }
    Ok(())
}

/// The process of a router whose number is in a file, if it still runs. Another process that has got the number since
/// does not name this file.
fn running(file: &Path) -> Option<Pid> {
    let number: i32 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    let called = fs::read(format!("/proc/{number}/cmdline")).ok()?;
    let named = called.split(|byte| *byte == 0).any(|argument| argument == file.as_os_str().as_encoded_bytes());
    named.then(|| Pid::from_raw(number)).flatten()
}

/// Signals the router whose number is in a file, if it still runs. The descriptor stays that of one process, so the
/// signal cannot reach another one that gets the number meanwhile. Kernels before 5.3 have no such descriptors.
fn signal(file: &Path, signal: Signal) {
    let Some(pid) = running(file) else { return };
    let without = Without::from_environment().unwrap_or_default();
    let process = pidfd_open(pid, PidfdFlags::empty()).ok().filter(|_| !without.has(Feature::Pidfd));
    if running(file) != Some(pid) {
        return;
    }
    let sent = process.map(|process| pidfd_send_signal(process, signal));
    // An older kernel, or a sandbox, has only numbers.
    if sent.is_none_or(|sent| matches!(sent, Err(Errno::NOSYS | Errno::PERM))) {
        let _ = kill_process(pid, signal);
    }
}

fn start(namespace: &str, switch: &Node, files: &Files) -> Result<(), LinuxError> {
    let wrong = |e: std::io::Error| LinuxError(format!("{}: {e}", files.log.display()));
    let log = File::create(&files.log).map_err(wrong)?;
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", netns(namespace).display())).arg("--").arg(ROUTER).args(["-n", "-N"]);
    command.arg("-f").arg(&files.routes).arg("-P").arg(&files.pid).arg("-u").arg(&files.socket);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child =
        command.spawn().map_err(|e| LinuxError(format!("`nsenter` cannot be run: {e}; install util-linux")))?;
    let began = Instant::now();
    // It writes its number after it has set all routes.
    while running(&files.pid).is_none() || !files.socket.exists() {
        if child.try_wait().is_ok_and(|over| over.is_some()) || began.elapsed() > PATIENCE {
            let said = fs::read_to_string(&files.log).unwrap_or_default();
            let _ = child.kill();
            let _ = child.wait();
            return Err(LinuxError(format!(
                "{switch} has no multicast router: {}; install smcroute (apt install smcroute), or let filters copy",
                said.lines().last().unwrap_or("it does not start")
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn reload(switch: &Node, files: &Files) -> Result<(), LinuxError> {
    let socket = files.socket.display().to_string();
    let output = run(None, CONTROL, &["-u", &socket, "reload"], "")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(LinuxError(format!("the multicast router of {switch} does not take its routes: {}", said.trim())))
}

/// Ends the routers of a fabric.
pub(crate) fn stop(name: &str) -> Result<(), LinuxError> {
    let Ok(entries) = fs::read_dir(home(name)) else { return Ok(()) };
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let numbers: Vec<&PathBuf> =
        paths.iter().filter(|path| path.extension().is_some_and(|kind| kind == "pid")).collect();
    numbers.iter().for_each(|path| signal(path, Signal::TERM));
    let began = Instant::now();
    while let Some((path, pid)) = numbers.iter().find_map(|path| Some((path, running(path)?))) {
        if began.elapsed() > PATIENCE {
            signal(path, Signal::KILL);
        }
        if began.elapsed() > 2 * PATIENCE {
            return Err(LinuxError(format!("{ROUTER} does not end (process {})", pid.as_raw_nonzero())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_got_a_router_s_number_is_not_taken_for_it() {
        let home = tempfile::tempdir().expect("a folder");
        // Another fabric's router has the same name.
        let (other, file) = (home.path().join(ROUTER), home.path().join("t0-p0-0.pid"));
        fs::copy("/bin/sleep", &other).expect("there is a sleep");
        let mut child = Command::new(&other).arg("20").spawn().expect("it runs");
        fs::write(&file, format!("{}\n", child.id())).expect("a file");
        let comm = || fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap_or_default();
        while comm().trim() != ROUTER {
            std::thread::yield_now();
        }
        assert_eq!(running(&file), None);
        signal(&file, Signal::KILL);
        let lives = child.try_wait().expect("it is ours").is_none();
        let _ = child.kill();
        let _ = child.wait();
        assert!(lives, "it is not signalled");
    }
}
