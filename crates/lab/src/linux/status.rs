//! How a fabric stands: what was broken, and what each port has carried and dropped.

use crate::linux::run::{LinuxError, run};
use crate::linux::state::State;
use crate::linux::{LinuxFabric, Node, Port};
use serde::Serialize;
use serde_json::Value;
use strandway_proto::Rate;

/// A fabric as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The version of this form.
    pub format: u32,
    /// What was built.
    pub fabric: LinuxFabric,
    /// What is broken, as it was written.
    pub failures: Vec<String>,
    /// Every port of every node.
    pub ports: Vec<PortStatus>,
    /// What each T1 switch has received.
    pub t1s: Vec<T1Status>,
}

/// A port.
#[derive(Clone, Debug, Serialize)]
pub struct PortStatus {
    /// Whose it is.
    pub node: String,
    /// What its namespace calls it.
    pub port: String,
    /// The node at the other end.
    pub peer: String,
    /// The plane that it belongs to.
    pub plane: u8,
    /// `up`, `down` (and it knows), or `silent` (what it sends is lost, and it does not know).
    pub state: &'static str,
    /// Random loss of what comes in, in millionths.
    pub loss_ppm: u32,
    /// Packets sent; one that the network card would have cut into many counts as one.
    pub sent_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub sent_bytes: u64,
    /// Packets received, before random loss.
    pub received_packets: u64,
    /// Packets that its queue had no room for.
    pub dropped: u64,
    /// Packets lost at random as they came in.
    pub lost: u64,
    /// Bytes that wait now.
    pub backlog: u64,
}

/// What passed a T1 switch.
#[derive(Clone, Debug, Serialize)]
pub struct T1Status {
    /// Its plane.
    pub plane: u8,
    /// Its number.
    pub t1: u16,
    /// Packets received at all its ports.
    pub packets: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Packets that its queues had no room for.
    pub dropped: u64,
}

/// Looks at a fabric.
///
/// # Errors
/// If it is not there or cannot be looked at.
pub fn status(name: &str) -> Result<Status, LinuxError> {
    let state = State::standing(name)?;
    let failures = state.failures()?;
    let fabric = state.fabric;
    let (mut ports, mut t1s) = (Vec::new(), Vec::new());
    for node in fabric.nodes() {
        let space = fabric.namespace(node);
        let output = run(Some(&space), "sh", &["-c", "ip -s -j link show && tc -s -j qdisc show"], "")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let lists: Vec<Value> = serde_json::Deserializer::from_str(&said).into_iter().flatten().collect();
        let [links, queues] = &lists[..] else {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(LinuxError(format!("{space} cannot be looked at: {}; try it as root", why.trim())));
        };
        let mut through = T1Status { plane: 0, t1: 0, packets: 0, bytes: 0, dropped: 0 };
        for port in fabric.ports(node) {
            let broken = failures.state(&port);
            let (seen, received_bytes) = look(&port, links, queues);
            let state = match (seen.state, broken.silent) {
                ("up", true) => "silent",
                (state, _) => state,
            };
            through.packets += seen.received_packets;
            through.bytes += received_bytes;
            through.dropped += seen.dropped;
            ports.push(PortStatus { state, loss_ppm: broken.loss_ppm, ..seen });
        }
        if let Node::T1(plane, t1) = node {
            t1s.push(T1Status { plane, t1, ..through });
        }
    }
    Ok(Status { format: 1, fabric, failures: state.failures, ports, t1s })
}

/// What the kernel tells about a port, and the bytes that it received.
fn look(port: &Port, links: &Value, queues: &Value) -> (PortStatus, u64) {
    let rows = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let link = rows(links).into_iter().find(|l| l["ifname"] == *port.name).unwrap_or_default();
    let queue = |kind: &str| {
        let mut all = rows(queues).into_iter();
        all.find(|q| q["dev"] == *port.name && q["kind"] == kind).unwrap_or_default()
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let up = link["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == "UP"));
    let (sent, received) = (&link["stats64"]["tx"], &link["stats64"]["rx"]);
    let (shaper, filter) = (queue("tbf"), queue("clsact"));
    let status = PortStatus {
        node: port.node.to_string(),
        port: port.name.clone(),
        peer: port.peer.to_string(),
        plane: port.plane,
        state: if up { "up" } else { "down" },
        loss_ppm: 0,
        sent_packets: number(&sent["packets"]),
        sent_bytes: number(&sent["bytes"]),
        received_packets: number(&received["packets"]),
        dropped: number(&shaper["drops"]),
        lost: number(&filter["drops"]),
        backlog: number(&shaper["backlog"]),
    };
    (status, number(&received["bytes"]))
}

impl Status {
    /// For people: what there is, what is broken, what each T1 carried, and ports that dropped something or are not up.
    pub fn text(&self) -> String {
        let f = &self.fabric;
        let rate = |bits: Option<u64>| bits.map_or("unshaped".to_string(), |bits| Rate(bits).to_string());
        let mut text = format!(
            "{}: {} planes of {} T0 and {} T1, {} hosts ({} below a T0), from {}\n",
            f.name,
            f.planes,
            f.t0s(),
            f.t1s,
            f.hosts,
            f.hosts_per_t0,
            f.scenario
        );
        text.push_str(&format!(
            "ports: hosts {}, uplinks {}, queue {} B, MTU {}\n",
            rate(f.host_rate),
            rate(f.uplink_rate),
            f.queue,
            f.mtu
        ));
        for note in &f.notes {
            text.push_str(&format!("not as simulated: {note}\n"));
        }
        let broken = if self.failures.is_empty() { "nothing".to_string() } else { self.failures.join(", ") };
        text.push_str(&format!("failed: {broken}\n\n"));
        text.push_str(&format!("{:<6} {:>4} {:>12} {:>14} {:>9}\n", "plane", "T1", "packets", "bytes", "dropped"));
        for t1 in &self.t1s {
            let (packets, bytes) = (t1.packets, t1.bytes);
            text.push_str(&format!("p{:<5} {:>4} {packets:>12} {bytes:>14} {:>9}\n", t1.plane, t1.t1, t1.dropped));
        }
        let odd: Vec<&PortStatus> =
            self.ports.iter().filter(|p| p.state != "up" || p.dropped > 0 || p.lost > 0 || p.loss_ppm > 0).collect();
        if odd.is_empty() {
            text.push_str("\nall ports are up, and none has dropped anything\n");
            return text;
        }
        let head = ["node", "port", "to", "state", "sent", "dropped", "lost", "loss"];
        let [a, b, c, d, e, g, h, i] = head;
        text.push_str(&format!("\n{a:<10} {b:<5} {c:<10} {d:<7} {e:>12} {g:>9} {h:>9} {i:>8}\n"));
        for p in odd {
            let loss = format!("{} %", f64::from(p.loss_ppm) / 10_000.0);
            text.push_str(&format!(
                "{:<10} {:<5} {:<10} {:<7} {:>12} {:>9} {:>9} {loss:>8}\n",
                p.node, p.port, p.peer, p.state, p.sent_packets, p.dropped, p.lost
            ));
        }
        text
    }
}
