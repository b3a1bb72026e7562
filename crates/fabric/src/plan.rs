//! The description of a run after all checks: a run cannot fail because of a wrong setting in it.

use crate::fault::FaultPlan;
use crate::multicast::Members;
use crate::topology::{LinkId, Topology};
use std::sync::Arc;
use strandway_proto::units::{Bytes, Rate, Span, Time};
use strandway_proto::{Environment, HostId, Profile};

pub use strandway_proto::profile::Routing;

/// Everything that a run depends on. The same plan gives the same measurements on any number of threads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// How the switches' ports queue, mark, trim and pause.
    pub ports: PortSettings,
    /// How switches choose among equal uplinks.
    pub routing: Routing,
    /// The protocols in use; connections name them by index.
    pub profiles: Vec<Arc<Profile>>,
    /// Sender and receiver of each connection.
    pub connections: Vec<ConnectionPlan>,
    /// The messages. Flows of one connection with the same start time leave in this order.
    pub flows: Vec<FlowPlan>,
    /// The triggers that flows wait for.
    pub triggers: Vec<TriggerPlan>,
    /// Groups of hosts to which the fabric copies packets. Packets name a group by its index in this list
    /// ([`HostId::group`](strandway_proto::HostId::group)).
    pub multicast: Vec<Members>,
    /// The faults of links.
    pub faults: Vec<FaultPlan>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The run ends at this time at the latest, even if flows are not finished.
    pub time_limit: Time,
    /// Number of threads, at least 1. Results do not depend on it.
    pub threads: usize,
    /// Interval between the points of the time series; `None` for no time series.
    pub sample_every: Option<Span>,
    /// The connection (index into [`Plan::connections`]) whose sender's state is part of the time series.
    pub watch: Option<u32>,
    /// Record how the time of each flow is divided ([`crate::measure::FlowTime`]). This costs about 200 bytes per flow,
    /// and 50 % more run time with many small flows.
    pub accounts: bool,
    /// Keep the times of every message of collectives and jobs that is not among `flows`.
    /// This costs about 50 bytes per message.
    pub rows: bool,
    /// The links whose packets are recorded.
    pub capture: Option<CapturePlan>,
    /// Count the data packets of each connection by path ([`crate::measure::Measurements::path_counts`]).
    pub tally_paths: bool,
}

/// One direction of traffic between two hosts: a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionPlan {
    /// The sender.
    pub source: HostId,
    /// The receiver, a different host.
    pub destination: HostId,
    /// Index into [`Plan::profiles`].
    pub profile: u16,
}

/// One message: a flow as the fabric sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Index into [`Plan::connections`].
    pub connection: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it is posted.
    pub start: Start,
    /// The trigger to fire when the sender knows that the whole message has arrived.
    pub on_sent: Option<u32>,
    /// The trigger to fire when the receiver has the whole message.
    pub on_received: Option<u32>,
}

/// When a flow is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time.
    At(Time),
    /// This delay after this trigger (index into [`Plan::triggers`]) has released its flows. A trigger is counted at
    /// the host where the first flow that waits for it starts. A signal from another host to that host, and from it to
    /// another host, takes one [`Topology::news_between`] each, since no signal travels faster than the fabric.
    On(u32, Span),
    /// When the flow of this index has arrived at the source of this one: a request to read, of which this flow is the
    /// answer ([`strandway_proto::read`]). A request has one answer.
    Asked(u32),
    /// When its program posts it. The plan lists such a flow only so that it is measured.
    Program,
}

/// A trigger that flows wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerPlan {
    /// How many firings it needs before it releases its flows: 1 for a single event, more for a barrier.
    pub needed: u32,
}

/// How a switch port queues, marks, trims and pauses. Sizes are for a port at full rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortSettings {
    /// True: two strict-priority classes, control before data. False: one first-in-first-out queue.
    pub priority: bool,
    /// Limit on the bytes in the data queue; packets above it are trimmed or dropped.
    pub data_queue: Bytes,
    /// Limit on the bytes in the control queue.
    pub control_queue: Bytes,
    /// Trim packets that do not fit; `None`: drop them.
    pub trim: Option<TrimSettings>,
    /// Mark packets CE; `None`: do not mark.
    pub ecn: Option<EcnSettings>,
    /// Pause upstream ports instead of dropping packets; `None`: no PFC.
    pub pfc: Option<PfcSettings>,
    /// Credit of links (CBFC of Ultra Ethernet's link layer): a port sends data only while its neighbour, if that is a
    /// switch, has room for it among these bytes; `None`: no credit. Not with PFC or a shared buffer.
    pub cbfc: Option<Bytes>,
    /// The work of receiving at each host; `None`: it takes no time.
    pub receive: Option<ReceiveSettings>,
    /// The time that a host needs to post a message, one message after the other.
    pub message_cost: Span,
    /// Links repeat packets that they lose (LLR of Ultra Ethernet's link layer).
    pub llr: bool,
    /// One buffer for all ports of a switch; `None`: each port has its own limit.
    pub shared: Option<SharedSettings>,
    /// The queue that switches with adaptive routing compare with: they tell apart queues below 5, 10 and 20 % of it,
    /// and longer ones.
    pub adaptive_queue: Bytes,
}

impl PortSettings {
    /// These settings for a port whose data queue holds `queue`: its other limits and thresholds are scaled by the same
    /// factor.
    pub fn with_queue(&self, queue: Bytes) -> PortSettings {
        let factor = queue.0 as f64 / self.data_queue.0.max(1) as f64;
        let scaled = |bytes: Bytes| Bytes((bytes.0 as f64 * factor) as u64);
        PortSettings {
            data_queue: queue,
            control_queue: scaled(self.control_queue),
            ecn: self.ecn.map(|ecn| EcnSettings { low: scaled(ecn.low), high: scaled(ecn.high), ..ecn }),
            ..*self
        }
    }
}

/// The work of receiving a whole data packet: a host's threads (of its processor or of its NIC) take packets from one
/// queue, and a packet has arrived when its work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveSettings {
    /// The time between two packets, all threads together.
    pub per_packet: Span,
    /// The most packets that wait; further ones are discarded.
    pub queue: u32,
}

impl ReceiveSettings {
    /// Packets of a chunk in the measurement that gives a thread its rate: SDR-RDMA, figure 16 (64 KiB in packets of
    /// 4 KiB).
    pub const CHUNK: u32 = 16;

    /// `threads` threads of `mpps` million packets a second each, with chunks of [`CHUNK`](Self::CHUNK) packets; with
    /// `knee` threads each has half of it, as `knee` is where they begin to stand in each other's way (zero: never).
    /// With chunks of `chunk` packets a packet takes `5/6 + 2 / (3 sqrt(chunk))` as long: fitted to the seven values of
    /// SDR-RDMA's figure 15, which are met within 4 %.
    pub fn new(threads: u32, mpps: f64, knee: f64, chunk: u32, queue: u32) -> ReceiveSettings {
        let crowd = if knee > 0.0 { f64::from(threads) / knee } else { 0.0 };
        let rate = f64::from(threads) * mpps * 1e6 / (1.0 + crowd * crowd);
        let longer = (5.0 + 4.0 / f64::from(chunk.max(1)).sqrt()) / 6.0;
        ReceiveSettings { per_packet: Span((1e12 / rate * longer).max(1.0) as u64), queue }
    }
}

/// Packet trimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimSettings {
    /// Bytes that remain of a trimmed packet.
    pub size: u16,
}

/// Marking by queue length: never below `low`, always from `high` on. Between them the marking probability rises from
/// zero to `probability`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnSettings {
    /// Threshold in bytes of waiting data.
    pub low: Bytes,
    /// Threshold in bytes of waiting data.
    pub high: Bytes,
    /// Probability just below `high`.
    pub probability: f64,
    /// True: use the queue length when a packet leaves (without that packet). False: when it joins (with that packet).
    pub at_dequeue: bool,
    /// Also mark at ports that lead to hosts. A queue at such a port says nothing about any path.
    pub last_hop: bool,
}

/// Bytes of a pause frame on the wire (IEEE 802.3, annex 31B).
pub const PAUSE_FRAME: u16 = 64;

/// Priority flow control of the data class, by bytes buffered per ingress port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PfcSettings {
    /// Pause the upstream port if more bytes than this are buffered. With a shared buffer: the bytes reserved for a
    /// port.
    pub xoff: Bytes,
    /// Resume at this many bytes or fewer (static threshold), or at this many bytes below the dynamic threshold.
    pub xon: Bytes,
    /// Room above the threshold for packets that arrive before the pause takes effect; packets beyond it are dropped.
    pub headroom: Bytes,
}

/// A buffer shared by all ports of a switch, with a dynamic threshold: a queue (with PFC, an ingress port) may hold up
/// to `alpha` times the free bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedSettings {
    /// Bytes of the whole buffer, without PFC headroom.
    pub buffer: Bytes,
    /// The dynamic threshold's factor.
    pub alpha: f64,
}

/// The packets to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePlan {
    /// Record every packet sent onto one of these links.
    pub links: Vec<LinkId>,
    /// Record at most this many packets.
    pub limit: usize,
}

/// Limit on the bytes that wait at one port. With PFC a port has no limit of its own. Then the limit is the number of
/// bytes that the switch accepts before it has paused all its neighbours, or its shared buffer.
fn longest_queue(topology: &Topology, ports: &PortSettings) -> Bytes {
    let most = topology.leaf_ports().max(topology.spine_ports()).max(topology.core_ports());
    if let Some(buffer) = ports.cbfc {
        return buffer * u64::from(most);
    }
    let Some(pfc) = ports.pfc else { return ports.data_queue };
    let headroom = pfc.headroom * u64::from(most);
    let taken = ports.shared.map_or(pfc.xoff * u64::from(most), |shared| shared.buffer);
    Bytes(ports.data_queue.0.min(taken.0 + headroom.0))
}

/// The longest life of a packet: twice the time through a full queue at each of six hops. Packets at paused ports, and
/// at ports that are down, can take longer; the minimum of 10 ms covers all of these but outages (ours).
fn packet_life(topology: &Topology, ports: &PortSettings) -> Span {
    let queue = longest_queue(topology, ports);
    let here = topology.kinds_of_link().map(|l| l.rate.time_for(queue) + l.latency);
    let far = topology.long_queues().map(|long| long.level.rate.time_for(long.queue) + long.level.latency);
    let slowest = here.chain(far).max().unwrap_or(Span::ZERO);
    (slowest * 12).max(Span::from_ms(10))
}

/// The environment of a connection with this profile, for the longest path of the fabric.
pub fn environment(topology: &Topology, ports: &PortSettings, profile: &Profile) -> Environment {
    let packet = profile.packet_bytes();
    Environment {
        rate: Rate(topology.level(0).rate.0 * u64::from(topology.planes())),
        ports: topology.planes(),
        base_rtt: topology.base_rtt(packet, Bytes(u64::from(profile.transport.control))),
        packet,
        trimming: ports.trim.is_some(),
        uplinks: [0; 2],
        paths_in_order: 0,
        queue: topology.long_queues().map(|long| long.queue).fold(longest_queue(topology, ports), Bytes::max),
        packet_life: packet_life(topology, ports),
    }
}

/// The environment of a connection between these two hosts. Between sites, round trip and rate are those of the way
/// between them. Within one place they are those of the longest path, as NICs are configured there.
pub fn environment_between(
    topology: &Topology,
    all: &Environment,
    profile: &Profile,
    from: HostId,
    to: HostId,
) -> Environment {
    if topology.sites() == 0 {
        return *all;
    }
    let control = Bytes(u64::from(profile.transport.control));
    let narrowest = topology.narrowest(topology.leaf_of(from), topology.leaf_of(to));
    Environment {
        base_rtt: topology.rtt_between(profile.packet_bytes(), control, from, to),
        rate: Rate(narrowest.0 * u64::from(topology.planes())),
        ..*all
    }
}
