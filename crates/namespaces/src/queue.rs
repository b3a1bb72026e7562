//! What waits at a port, and what becomes of it: the lines for `tc` that shape a port, mark, trim and lose.
//!
//! A port without marks and trimming is one queue behind a shaper (`tbf`). With either it has three classes (`htb`): control
//! and what was trimmed here, before data; and a program, `port.bpf.c`, that judges each packet as it joins, by the bytes
//! that wait. The program is compiled for its numbers, into a file that is named after them.

use crate::failure::PortState;
use crate::{LinuxFabric, Node, Port};
use strandway_fabric::datagram::{CONTROL_DSCP, TRIMMED};

/// The program's text.
pub(crate) const PROGRAM: &str = include_str!("port.bpf.c");

/// Bytes that wait at a host's own port at the most: more than any send buffer, so that a full port is an `EAGAIN` to the
/// sender rather than a loss. Ours.
const HOST_QUEUE: u64 = 64 << 20;

/// Bytes of an Ethernet header, which queues count.
const ETHERNET: u64 = 14;

/// Millionths of a whole.
pub(crate) const WHOLE: u32 = 1_000_000;

/// Shares of a port's rate, in hundredths, that control, data and what was trimmed here are sure of. Priorities come first
/// until control and trimmed packets ask for all but the last hundredth: the simulator leaves data nothing then.
const SURE: [(u16, u64, u8); 3] = [(10, 49, 0), (20, 1, 1), (30, 50, 0)];

/// Where it is decided what is lost of that which comes in: one filter per port, before those that copy multicast (`teams.rs`).
const ARRIVALS: &str = "ingress pref 1 handle 1 protocol ipv6";

/// Where the queues of what was trimmed at a port can be found among those that `tc` lists.
pub(crate) const TRIMMED_QUEUE: &str = "30:";

/// A program compiled for its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    /// The file.
    pub(crate) path: String,
    /// What the compiler is told.
    definitions: String,
}

impl Object {
    fn new(path: &str, numbers: &[(&str, u64)]) -> Object {
        let values: Vec<String> = numbers.iter().map(|(_, value)| value.to_string()).collect();
        let definitions: Vec<String> = numbers.iter().map(|(key, value)| format!("-D{key}={value}")).collect();
        Object { path: format!("{path}-{}.o", values.join("-")), definitions: definitions.join(" ") }
    }

    /// One to try out whether it can be made and loaded; its file's name begins like this.
    pub(crate) fn trial(path: &str) -> Object {
        let all = [("LIMIT", 1), ("LOW", 1), ("HIGH", 2), ("CHANCE", 1), ("AFTER_NONE", 1), ("AFTER_LOSS", 2)];
        Object::new(path, &all)
    }

    /// Loads both of its parts, for what leaves by one port and what comes in by another.
    pub(crate) fn filters(&self, leaves: &str, comes: &str) -> Vec<String> {
        let hooks = [leaves, comes].map(|port| format!("qdisc replace dev {port} clsact"));
        hooks.into_iter().chain([self.judge(leaves), self.lose(comes)]).collect()
    }

    /// Judges what leaves by a port.
    fn judge(&self, port: &str) -> String {
        let path = &self.path;
        format!("filter replace dev {port} egress pref 1 handle 1 protocol ipv6 bpf da obj {path} sec tc/port")
    }

    /// Loses of what comes in by a port.
    fn lose(&self, port: &str) -> String {
        format!("filter replace dev {port} {ARRIVALS} bpf da obj {} sec tc/burst", self.path)
    }

    /// The line that makes it.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.path, self.definitions)
    }
}

/// What a kernel must take for a port `va` to have classes.
pub(crate) const CLASSES: [&str; 3] = [
    "qdisc replace dev va root handle 2: htb default 20",
    "class replace dev va parent 2: classid 2:20 htb rate 1mbit ceil 1mbit burst 9000 cburst 9000 quantum 9000 prio 1",
    "qdisc replace dev va parent 2:20 handle 20: bfifo limit 9000",
];

/// The lines that make a port's queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Once, before the others.
    pub(crate) first: Vec<String>,
    /// Those with numbers in them; again when these change.
    pub(crate) rest: Vec<String>,
    /// What they need.
    pub(crate) object: Option<Object>,
}

/// The queue of a port that runs at so many millionths of its rate, with limits and thresholds scaled alike; none if ports
/// are not shaped.
pub(crate) fn queue(fabric: &LinuxFabric, port: &Port, share: u32) -> Option<Queue> {
    let is_host = matches!(port.node, Node::Host(_));
    let last_hop = matches!(port.peer, Node::Host(_));
    let scaled = |full: u64| (u128::from(full) * u128::from(share) / u128::from(WHOLE)) as u64;
    let rate = scaled(if is_host || last_hop { fabric.host_rate } else { fabric.uplink_rate }?).max(1000);
    // Two packets, and above 500 Mb/s a millisecond's worth: timers wake too rarely for less. Measured.
    let packet = u64::from(fabric.mtu) + ETHERNET;
    let packets = u64::from(fabric.mtu) * 2 + 2000;
    let burst = if rate > 500_000_000 { packets.max(rate / 8 / 1000) } else { packets };
    let name = &port.name;
    // A queue holds a packet, however slow its port is.
    let limit = scaled(fabric.queue).max(packet);
    if is_host || !fabric.has_program() {
        let limit = if is_host { HOST_QUEUE } else { limit };
        let line = format!("qdisc replace dev {name} root handle 1: tbf rate {rate}bit burst {burst} limit {limit}");
        return Some(Queue { rest: vec![line], ..Queue::default() });
    }
    let marking = fabric.marking.filter(|marking| marking.last_hop || !last_hop);
    let [low, high, chance] = marking.map_or([0; 3], |m| {
        [scaled(m.low), scaled(m.high).max(1), u64::from(m.chance_ppm) * 65_536 / u64::from(WHOLE)]
    });
    let object = Object::new(
        &format!("{}/port", fabric.folder()),
        &[
            ("LIMIT", if fabric.trimming { limit } else { 0 }),
            ("LOW", low),
            ("HIGH", high),
            ("CHANCE", chance),
            ("CONTROL", u64::from(CONTROL_DSCP)),
            ("TRIMMED", u64::from(CONTROL_DSCP) + u64::from(last_hop)),
            ("KEEP", TRIMMED as u64),
        ],
    );
    let class = |id: u16, above: &str, rate_sure: u64, priority: u8| {
        format!(
            "class replace dev {name} parent 1:{above} classid 1:{id} htb rate {rate_sure}bit ceil {rate}bit \
             burst {burst} cburst {burst} quantum {packet} prio {priority}"
        )
    };
    let mut rest = vec![class(1, "", rate, 0)];
    for (id, hundredths, priority) in SURE {
        rest.push(class(id, "1", (rate * hundredths / 100).max(8), priority));
        // Two processors may judge at once: what both let in still fits.
        let room = if id == 20 && fabric.trimming { limit + 4 * packet } else { limit };
        rest.push(format!("qdisc replace dev {name} parent 1:{id} handle {id}: bfifo limit {room}"));
    }
    rest.push(object.judge(name));
    let first = vec![
        format!("qdisc replace dev {name} root handle 1: htb default 20"),
        format!("qdisc replace dev {name} clsact"),
    ];
    Some(Queue { first, rest, object: Some(object) })
}

/// The program that loses packets in bursts; none where nothing is lost so.
pub(crate) fn burst(folder: &str, state: &PortState) -> Option<Object> {
    let [none, lost] = state.loss?.after()?.map(|probability| (probability * 4_294_967_296.0) as u64);
    Some(Object::new(&format!("{folder}/burst"), &[("AFTER_NONE", none), ("AFTER_LOSS", lost)]))
}

/// What becomes of that which comes in at a port. Packets are lost one by one, or all of them, by a filter in classic BPF: it needs
/// neither a compiler nor rights beyond those that namespaces need.
pub(crate) fn arrivals(fabric: &LinuxFabric, port: &str, state: &PortState) -> Vec<String> {
    // What filters answer: the next filter decides (and copies); dropped and counted; gone without a trace.
    const NEXT: u32 = u32::MAX;
    const DROP: u32 = 2;
    const STOLEN: u32 = 4;
    let filter = |program: &str| format!("filter replace dev {port} {ARRIVALS} bpf bytecode '{program}' da");
    let mut lines = vec![format!("qdisc replace dev {port} clsact")];
    match (state.silent, state.loss, burst(&fabric.folder(), state)) {
        (true, ..) => lines.push(filter(&format!("1,6 0 0 {STOLEN}"))),
        (false, _, Some(object)) => lines.push(object.lose(port)),
        (false, Some(loss), None) => {
            let threshold = u64::from(loss.ppm) * u64::from(u32::MAX) / u64::from(WHOLE);
            // Load a random word (ancillary data at -0x1000 + 56), compare, drop or hand on.
            lines.push(filter(&format!("4,32 0 0 4294963256,53 1 0 {threshold},6 0 0 {DROP},6 0 0 {NEXT}")));
        }
        (false, None, None) => {
            // The first filter makes its removal work even if there is nothing to remove.
            lines.push(filter(&format!("1,6 0 0 {NEXT}")));
            lines.push(format!("filter del dev {port} ingress pref 1"));
        }
    }
    lines
}
