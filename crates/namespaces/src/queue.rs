//! Queues of ports: the lines for `tc` that shape a port, and mark, trim and lose packets.
//!
//! A port without marks and trimming is one queue behind a shaper (`tbf`). With either of them it has three classes
//! (`htb`): control packets and packets trimmed here go before data. A program, `port.bpf.c`, judges each packet as it
//! joins the queue, by the bytes that wait. The program is compiled for its numbers, and the object file is named after
//! them.

use crate::failure::{PortState, WHOLE};
use crate::{LinuxFabric, Node, Port};
use strandway_fabric::datagram::{CONTROL_DSCP, TRIMMED};

/// The program's text.
pub(crate) const PROGRAM: &str = include_str!("port.bpf.c");

/// The most bytes that wait at a host's own port: more than any send buffer, so that a full port gives the sender an
/// `EAGAIN` and loses nothing. Ours.
const HOST_QUEUE: u64 = 64 << 20;

/// Bytes of an Ethernet header, which queues count.
const ETHERNET: u64 = 14;

/// More bytes than the largest batch that a socket sends at once, headers included.
const BATCH: u64 = 70_000;

/// Guaranteed shares of a port's rate, in hundredths, for control, data and packets trimmed here. Control and trimmed
/// packets have priority, but data keeps the last hundredth; in the simulator it may get nothing.
const SURE: [(u16, u64, u8); 3] = [(10, 49, 0), (20, 1, 1), (30, 50, 0)];

/// The place of the filter that loses arriving packets: one per port, before those that copy multicast (`teams.rs`).
const ARRIVALS: &str = "ingress pref 1 handle 1 protocol ipv6";

/// The handle, in the output of `tc`, of the queue for packets trimmed at a port.
pub(crate) const TRIMMED_QUEUE: &str = "30:";

/// A program compiled for certain numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    /// The file.
    pub(crate) path: String,
    /// The compiler's definitions.
    definitions: String,
}

impl Object {
    fn new(path: &str, numbers: &[(&str, u64)]) -> Object {
        let values: Vec<String> = numbers.iter().map(|(_, value)| value.to_string()).collect();
        let definitions: Vec<String> = numbers.iter().map(|(key, value)| format!("-D{key}={value}")).collect();
        Object { path: format!("{path}-{}.o", values.join("-")), definitions: definitions.join(" ") }
    }

    /// A program to test whether programs can be compiled and loaded; its file name begins with `path`.
    pub(crate) fn trial(path: &str) -> Object {
        let all = [("LIMIT", 1), ("LOW", 1), ("HIGH", 2), ("CHANCE", 1), ("AFTER_NONE", 1), ("AFTER_LOSS", 2)];
        Object::new(path, &all)
    }

    /// The lines that load both of its parts: one for packets that leave by a port, one for packets that arrive at
    /// another port.
    pub(crate) fn filters(&self, leaves: &str, comes: &str) -> Vec<String> {
        let hooks = [leaves, comes].map(|port| format!("qdisc replace dev {port} clsact"));
        hooks.into_iter().chain([self.settings_of(leaves), self.lose(comes)]).collect()
    }

    /// The line that judges packets that leave by a port.
    fn settings_of(&self, port: &str) -> String {
        let path = &self.path;
        format!("filter replace dev {port} egress pref 1 handle 1 protocol ipv6 bpf da obj {path} sec tc/port")
    }

    /// The line that loses packets that arrive at a port.
    fn lose(&self, port: &str) -> String {
        format!("filter replace dev {port} {ARRIVALS} bpf da obj {} sec tc/burst", self.path)
    }

    /// The line for the compiler.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.path, self.definitions)
    }
}

/// Lines that the kernel must accept if ports can have classes; for a port `va`.
pub(crate) const CLASSES: [&str; 3] = [
    "qdisc replace dev va root handle 2: htb default 20",
    "class replace dev va parent 2: classid 2:20 htb rate 1mbit ceil 1mbit burst 9000 cburst 9000 quantum 9000 prio 1",
    "qdisc replace dev va parent 2:20 handle 20: bfifo limit 9000",
];

/// The lines that make a port's queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Lines that are executed once, before the others.
    pub(crate) first: Vec<String>,
    /// Lines with numbers in them; they are executed again when these change.
    pub(crate) rest: Vec<String>,
    /// The program that they load.
    pub(crate) object: Option<Object>,
}

/// The whole rate of a port, in bits per second; `None` if ports are not shaped.
pub(crate) fn rate_of(fabric: &LinuxFabric, port: &Port) -> Option<u64> {
    let [near, far] = [port.node, port.peer];
    let at_host = matches!(near, Node::Host(_)) || matches!(far, Node::Host(_));
    let of_core = matches!(near, Node::T2(..)) || matches!(far, Node::T2(..));
    match (at_host, of_core) {
        (true, _) => fabric.host_rate,
        (false, true) => fabric.core_rate,
        (false, false) => fabric.uplink_rate,
    }
}

/// The queue of a port that runs at `share` millionths of its rate, with limits and thresholds scaled alike; `None` if
/// ports are not shaped.
pub(crate) fn queue(fabric: &LinuxFabric, port: &Port, share: u32) -> Option<Queue> {
    let is_host = matches!(port.node, Node::Host(_));
    let last_hop = matches!(port.peer, Node::Host(_));
    let scaled = |full: u64| (u128::from(full) * u128::from(share) / u128::from(WHOLE)) as u64;
    let full = rate_of(fabric, port);
    let full = full?;
    let rate = scaled(full).max(1000);
    // The burst is two packets, and above 500 Mb/s the bytes of one millisecond, since timers wake too rarely for less.
    // Measured.
    let packet = u64::from(fabric.mtu) + ETHERNET;
    let packets = u64::from(fabric.mtu) * 2 + 2000;
    let burst_at = |rate: u64| if rate > 500_000_000 { packets.max(rate / 8 / 1000) } else { packets };
    // A batch of packets that waits while the burst becomes smaller than the batch is never sent, nor is anything
    // behind it. So a degraded port keeps the burst that it had when it was whole, or as much of it as the largest
    // batch needs.
    let burst = burst_at(rate).max(burst_at(full).min(BATCH));
    let name = &port.name;
    // A queue holds at least one packet, even at a very slow port.
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
        // Two processors may judge packets at the same time, and the queue has room for both.
        let room = if id == 20 && fabric.trimming { limit + 4 * packet } else { limit };
        rest.push(format!("qdisc replace dev {name} parent 1:{id} handle {id}: bfifo limit {room}"));
    }
    rest.push(object.settings_of(name));
    let first = vec![
        format!("qdisc replace dev {name} root handle 1: htb default 20"),
        format!("qdisc replace dev {name} clsact"),
    ];
    Some(Queue { first, rest, object: Some(object) })
}

/// The program that loses packets in bursts; `None` if there are no such losses.
pub(crate) fn burst(folder: &str, state: &PortState) -> Option<Object> {
    let [none, lost] = state.loss?.after()?.map(|probability| (probability * 4_294_967_296.0) as u64);
    Some(Object::new(&format!("{folder}/burst"), &[("AFTER_NONE", none), ("AFTER_LOSS", lost)]))
}

/// The lines for packets that arrive at a port. A classic BPF filter loses packets independently, or all of them: it
/// needs neither a compiler nor rights beyond those for namespaces.
pub(crate) fn arrivals(fabric: &LinuxFabric, port: &str, state: &PortState) -> Vec<String> {
    // The results of filters: the next filter decides (and copies); dropped and counted; removed without being counted.
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
            // Load a random word (ancillary data at -0x1000 + 56), compare it, drop the packet or pass it on.
            lines.push(filter(&format!("4,32 0 0 4294963256,53 1 0 {threshold},6 0 0 {DROP},6 0 0 {NEXT}")));
        }
        (false, None, None) => {
            // The first line adds a filter, so that its removal works even if there was none.
            lines.push(filter(&format!("1,6 0 0 {NEXT}")));
            lines.push(format!("filter del dev {port} ingress pref 1"));
        }
    }
    lines
}
