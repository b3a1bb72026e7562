//! Waits until the kernel sends on ports that have been set up.
//!
//! A port that is set up gets a carrier at once, but the kernel notices the carrier at the other end a little later, in
//! a task of its own. Until then it drops everything that the other end sends, and counts it nowhere.

use crate::command::{LinuxError, run};
use crate::failure::Failures;
use crate::{LinuxFabric, Node, Port};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time that the kernel has to notice a carrier. Measured: it takes less than 1 ms on an idle machine. Ours: much
/// more, for a busy one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until the kernel sends on all ports of a fabric that are up now and were not up before (`None`: no port was),
/// and on the ports at the other ends of their links.
///
/// # Errors
/// If a port still has no carrier after five seconds: its name and its node.
pub(crate) fn until_ready(fabric: &LinuxFabric, before: Option<&Failures>, now: &Failures) -> Result<(), LinuxError> {
    let began = Instant::now();
    for (node, mut waiting) in awaited(fabric, before, now) {
        let space = fabric.namespace(node);
        loop {
            let output = run(Some(&space), "ip", &["-j", "link", "show"], "")?;
            let links: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
            for link in links.iter().filter(|link| link["operstate"] == "UP") {
                waiting.retain(|port| link["ifname"] != **port);
            }
            let Some(port) = waiting.first() else { break };
            if began.elapsed() > PATIENCE {
                return Err(LinuxError(format!(
                    "port {port} of {node} has no carrier {} s after it was set up; look at it: ip -n {space} link show {port}",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// The names of the ports to wait for, by node.
fn awaited(fabric: &LinuxFabric, before: Option<&Failures>, now: &Failures) -> BTreeMap<Node, BTreeSet<String>> {
    let all: Vec<Port> = fabric.nodes().into_iter().flat_map(|node| fabric.ports(node)).collect();
    let down = |failures: &Failures, port: &Port| failures.state(port).down;
    // A link has a carrier if both ends are up. A link is known by the end with the smaller node.
    let link = |port: &Port| (port.node.min(port.peer), port.node.max(port.peer), port.plane);
    let dead: BTreeSet<_> = all.iter().filter(|port| down(now, port)).map(link).collect();
    let new = |port: &&Port| before.is_none_or(|before| down(before, port)) && !down(now, port);
    let changed: BTreeSet<_> = all.iter().filter(new).map(link).filter(|link| !dead.contains(link)).collect();
    let mut awaited: BTreeMap<Node, BTreeSet<String>> = BTreeMap::new();
    for port in all.into_iter().filter(|port| changed.contains(&link(port))) {
        awaited.entry(port.node).or_default().insert(port.name);
    }
    awaited
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fabric;

    #[test]
    fn both_ends_of_links_that_came_up_are_awaited_and_no_others() {
        let fabric = fabric();
        let none = Failures::default();
        let failed = |text: &str| none.with(crate::Target::parse(&fabric, text).expect(text));
        let names = |before: Option<&Failures>, now: &Failures| -> Vec<String> {
            let by_node = awaited(&fabric, before, now).into_iter();
            by_node.flat_map(|(node, ports)| ports.into_iter().map(move |port| format!("{node} {port}"))).collect()
        };
        let ports: usize = fabric.nodes().into_iter().map(|node| fabric.ports(node).len()).sum();
        assert_eq!(names(None, &none).len(), ports, "a new fabric: all");
        let port = failed("port:h0:p1");
        assert_eq!(names(Some(&port), &none), ["h0 p1", "t0-p1-0 h0"]);
        assert_eq!(names(Some(&port), &port), [""; 0], "still down");
        assert_eq!(names(Some(&none), &port), [""; 0], "new failure");
        assert_eq!(names(Some(&failed("link:p0:t0-0:t1-1")), &none), [""; 0], "silent failures take no port down");
        assert_eq!(names(None, &port).len(), ports - 2, "all but the dead link's ends");
    }
}
