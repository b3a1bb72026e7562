//! The state of a fabric: its failures, and the counters of each port.

use crate::command::{LinuxError, run};
use crate::fabric::Team;
use crate::failure::WHOLE;
use crate::lines::{self, LineStatus};
use crate::queue::TRIMMED_QUEUE;
use crate::state::State;
use crate::{LinuxFabric, Node, Port};
use serde::Serialize;
use serde_json::Value;
use strandway_proto::Rate;

/// The state of a fabric.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The version of this format.
    pub format: u32,
    /// The fabric that was built.
    pub fabric: LinuxFabric,
    /// Its failures, as text in the form of targets.
    pub failures: Vec<String>,
    /// The parts of the fabric over which nodes must not send; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// The multicast teams for which switches copy.
    pub teams: Vec<Team>,
    /// Every port of every node.
    pub ports: Vec<PortStatus>,
    /// The counters of each T1 switch.
    pub t1s: Vec<T1Status>,
    /// The counters of the delay lines of long links; empty for a fabric without sites.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineStatus>,
}

/// A port.
#[derive(Clone, Debug, Serialize)]
pub struct PortStatus {
    /// The node that has the port.
    pub node: String,
    /// Its name in its namespace.
    pub port: String,
    /// The node at the other end.
    pub peer: String,
    /// The plane that it belongs to.
    pub plane: u8,
    /// `up`, `down` (the node notices it), or `silent` (the link is dead and neither end notices it).
    pub state: &'static str,
    /// Random loss of arriving packets, in millionths.
    pub loss_ppm: u32,
    /// The present share of its rate, in millionths.
    pub rate_ppm: u32,
    /// Packets sent; one that a network card would have cut into several counts as one.
    pub sent_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub sent_bytes: u64,
    /// Packets received, before random loss.
    pub received_packets: u64,
    /// Packets for which its queue had no room.
    pub dropped: u64,
    /// Arriving packets that were lost at random.
    pub lost: u64,
    /// Packets that it has trimmed because its queue had no room for them, and sent.
    pub trimmed: u64,
    /// Packets received with the mark CE, which any port on their way may have set.
    pub marked: u64,
    /// Bytes that wait now.
    pub backlog: u64,
}

/// The counters of a T1 switch, all ports together.
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
    /// Packets for which its queues had no room.
    pub dropped: u64,
}

/// Reads the state of a fabric.
///
/// # Errors
/// If it is not up or cannot be read.
pub fn status(name: &str) -> Result<Status, LinuxError> {
    let state = State::standing(name)?;
    let (failures, teams) = (state.failures()?, state.all_teams());
    let fabric = state.fabric;
    let (mut ports, mut t1s) = (Vec::new(), Vec::new());
    for node in fabric.nodes() {
        let space = fabric.namespace(node);
        let output = run(Some(&space), "sh", &["-c", LOOK], "")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let lists: Vec<Value> = serde_json::Deserializer::from_str(&said).into_iter().flatten().collect();
        let [links, queues, marks] = &lists[..] else {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(LinuxError(format!("{space} cannot be looked at: {}; try it as root", why.trim())));
        };
        let mut through = T1Status { plane: 0, t1: 0, packets: 0, bytes: 0, dropped: 0 };
        for port in fabric.ports(node) {
            let broken = failures.state(&port);
            let (seen, received_bytes) = status_of(&port, links, queues, marks);
            let state = match (seen.state, broken.silent) {
                ("up", true) => "silent",
                (state, _) => state,
            };
            through.packets += seen.received_packets;
            through.bytes += received_bytes;
            through.dropped += seen.dropped;
            let loss_ppm = broken.loss.map_or(0, |loss| loss.ppm);
            ports.push(PortStatus { state, loss_ppm, rate_ppm: broken.share, ..seen });
        }
        if let Node::T1(plane, t1) = node {
            t1s.push(T1Status { plane, t1, ..through });
        }
    }
    let lines = lines::status(&fabric)?;
    Ok(Status { format: 1, fabric, failures: state.failures, denied: state.denied, teams, ports, t1s, lines })
}

/// Prints a namespace's links, its queues, and for each port the number of packets that arrived with a mark.
const LOOK: &str = r#"ip -s -j link show && tc -s -j qdisc show && {
    next='{'
    for file in /proc/net/dev_snmp6/*; do
        while read -r key value; do
            [ "$key" != Ip6InCEPkts ] || { printf '%s"%s":%s' "$next" "${file##*/}" "$value"; next=,; }
        done < "$file"
    done
    echo '}'
}"#;

/// The kernel's counters of a port, and the bytes that it received.
fn status_of(port: &Port, links: &Value, queues: &Value, marks: &Value) -> (PortStatus, u64) {
    let rows = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let link = rows(links).into_iter().find(|l| l["ifname"] == *port.name).unwrap_or_default();
    let queue = |key: &str, value: &str| {
        let mut all = rows(queues).into_iter();
        all.find(|q| q["dev"] == *port.name && q[key] == value).unwrap_or_default()
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let up = link["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == "UP"));
    let (sent, received) = (&link["stats64"]["tx"], &link["stats64"]["rx"]);
    let shaper = ["tbf", "htb"].map(|kind| queue("kind", kind)).into_iter().find(Value::is_object).unwrap_or_default();
    let (filter, cut) = (queue("kind", "clsact"), queue("handle", TRIMMED_QUEUE));
    let status = PortStatus {
        node: port.node.to_string(),
        port: port.name.clone(),
        peer: port.peer.to_string(),
        plane: port.plane,
        state: if up { "up" } else { "down" },
        loss_ppm: 0,
        rate_ppm: WHOLE,
        sent_packets: number(&sent["packets"]),
        sent_bytes: number(&sent["bytes"]),
        received_packets: number(&received["packets"]),
        dropped: number(&shaper["drops"]),
        lost: number(&filter["drops"]),
        trimmed: number(&cut["packets"]),
        marked: number(&marks[&port.name]),
        backlog: number(&shaper["backlog"]),
    };
    (status, number(&received["bytes"]))
}

impl Status {
    /// As text: the fabric, its failures, the counters of each T1, and the ports that are not up or have dropped, lost,
    /// trimmed or marked packets.
    pub fn text(&self) -> String {
        let f = &self.fabric;
        let rate = |bits: Option<u64>| bits.map_or("unshaped".to_string(), |bits| Rate(bits).to_string());
        let mut text = format!(
            "{}: {} planes of {} T0 and {} T1{}, {} hosts ({} below a T0), from {}\n",
            f.name,
            f.planes,
            f.t0s(),
            f.t1s,
            if f.pods.is_some() { format!(" and {} T2", f.t2s()) } else { String::new() },
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
        if !self.teams.is_empty() {
            let teams: Vec<String> = self.teams.iter().map(Team::to_string).collect();
            let trees = f.trees();
            text.push_str(&format!("multicast teams ({trees} trees in each plane): {}\n", teams.join(", ")));
        }
        for note in &f.notes {
            text.push_str(&format!("not as simulated: {note}\n"));
        }
        let broken = if self.failures.is_empty() { "nothing".to_string() } else { self.failures.join(", ") };
        text.push_str(&format!("failed: {broken}\n"));
        if !self.denied.is_empty() {
            text.push_str(&format!("denied to nodes: {}\n", self.denied.join(", ")));
        }
        text.push('\n');
        text.push_str(&format!("{:<6} {:>4} {:>12} {:>14} {:>9}\n", "plane", "T1", "packets", "bytes", "dropped"));
        for t1 in &self.t1s {
            let (packets, bytes) = (t1.packets, t1.bytes);
            text.push_str(&format!("p{:<5} {:>4} {packets:>12} {bytes:>14} {:>9}\n", t1.plane, t1.t1, t1.dropped));
        }
        if !self.lines.is_empty() {
            let head =
                ["taken", "delivered", "lost", "dropped", "failed", "latest"].map(|h| format!(" {h:>10}")).concat();
            text.push_str(&format!("\n{:<22} {:>9}{head}\n", "long link", "direction"));
        }
        for line in &self.lines {
            for (way, direction) in line.ways.iter().zip(["there", "back"]) {
                let numbers = [way.taken, way.delivered, way.lost, way.dropped, way.failed];
                let numbers: String = numbers.iter().map(|n| format!(" {n:>10}")).collect();
                let late = format!("{} us", way.tardiest_ns / 1000);
                text.push_str(&format!("{:<22} {direction:>9}{numbers} {late:>10}\n", line.name));
            }
        }
        let odd: Vec<&PortStatus> = self.ports.iter().filter(|p| p.is_odd()).collect();
        if odd.is_empty() {
            text.push_str("\nall ports are up and at full rate, and none has dropped, trimmed or lost a packet, or received a marked one\n");
            return text;
        }
        let head = ["node", "port", "to", "state", "sent", "dropped", "trimmed", "marked", "lost", "loss", "rate"];
        text.push('\n');
        text.push_str(&row(head.map(String::from)));
        for p in odd {
            let percent = |ppm: u32| format!("{} %", f64::from(ppm) / 10_000.0);
            let [sent, dropped, trimmed, marked, lost] =
                [p.sent_packets, p.dropped, p.trimmed, p.marked, p.lost].map(|number| number.to_string());
            let names = [p.node.clone(), p.port.clone(), p.peer.clone(), p.state.to_string()];
            let [node, port, peer, state] = names;
            let (loss, rate) = (percent(p.loss_ppm), percent(p.rate_ppm));
            text.push_str(&row([node, port, peer, state, sent, dropped, trimmed, marked, lost, loss, rate]));
        }
        text
    }
}

/// A line of the table of ports.
fn row([node, port, peer, state, sent, numbers @ ..]: [String; 11]) -> String {
    let numbers: String = numbers.iter().map(|number| format!(" {number:>8}")).collect();
    format!("{node:<10} {port:<5} {peer:<10} {state:<7} {sent:>10}{numbers}\n")
}

impl PortStatus {
    /// Is there anything about it that the text should show?
    fn is_odd(&self) -> bool {
        let events = [self.dropped, self.lost, self.trimmed, self.marked];
        self.state != "up" || self.loss_ppm > 0 || self.rate_ppm < WHOLE || events.iter().any(|&count| count > 0)
    }
}
