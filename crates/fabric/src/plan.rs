//! What to simulate: understood and checked, so that nothing after it can be misconfigured.

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
    /// Who talks to whom.
    pub connections: Vec<ConnectionPlan>,
    /// What they send. A connection's flows with equal start leave in this order.
    pub flows: Vec<FlowPlan>,
    /// What flows wait for.
    pub triggers: Vec<TriggerPlan>,
    /// Groups of hosts that the fabric copies packets to: packets name them by their place here
    /// ([`HostId::group`](strandway_proto::HostId::group)).
    pub multicast: Vec<Members>,
    /// What breaks, and when.
    pub faults: Vec<FaultPlan>,
    /// Every random stream derives from this.
    pub seed: u64,
    /// The run ends here at the latest, finished or not.
    pub time_limit: Time,
    /// Threads that share the work; at least 1. Results do not depend on it.
    pub threads: usize,
    /// Distance between the points of the time series; none are kept without it.
    pub sample_every: Option<Span>,
    /// The connection (index into [`Plan::connections`]) whose sender's state the time series keep, too.
    pub watch: Option<u32>,
    /// Keep where the time of each flow goes ([`crate::measure::FlowTime`]): about 200 bytes per flow, and half as much time
    /// again for runs of many small flows.
    pub accounts: bool,
    /// Which links' packets to record.
    pub capture: Option<CapturePlan>,
}

/// One direction of talk between two hosts: a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionPlan {
    /// Who sends.
    pub source: HostId,
    /// Who receives; not the source.
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
    /// Fired when the sender knows that all of it has arrived.
    pub on_sent: Option<u32>,
    /// Fired when the receiver has all of it.
    pub on_received: Option<u32>,
}

/// When a flow is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this instant.
    At(Time),
    /// When this trigger (index into [`Plan::triggers`]) fires, plus a delay. A trigger is counted at the host where the first
    /// flow that waits for it starts; news from another host to there, and from there to another host, takes one
    /// [`Topology::news_between`] each, since nothing travels faster than the fabric.
    On(u32, Span),
    /// When the program that it belongs to posts it: this is but a row to be measured.
    Program,
}

/// Something that flows wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerPlan {
    /// How many flows must fire it before it releases those that wait: 1 for a one-shot, more for a barrier.
    pub needed: u32,
}

/// How a switch port queues, marks, trims and pauses. Sizes are those of a port at full rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortSettings {
    /// Two strict-priority classes, control above data; without it one first-in-first-out queue.
    pub priority: bool,
    /// Bytes that wait in the data class at the most; what does not fit is trimmed or dropped.
    pub data_queue: Bytes,
    /// Bytes that wait in the control class at the most.
    pub control_queue: Bytes,
    /// Trim what does not fit; otherwise drop it.
    pub trim: Option<TrimSettings>,
    /// Mark CE.
    pub ecn: Option<EcnSettings>,
    /// Pause upstream ports rather than drop.
    pub pfc: Option<PfcSettings>,
    /// One buffer for all ports of a switch rather than a queue limit for each.
    pub shared: Option<SharedSettings>,
    /// The queue that switches with adaptive routing compare with: they tell apart queues below 5, 10 and 20 % of it, and longer ones.
    pub adaptive_queue: Bytes,
}

impl PortSettings {
    /// The same for a port whose data queue holds `queue`: its other limits and thresholds grow or shrink alike.
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

/// Packet trimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimSettings {
    /// Bytes left of a trimmed packet.
    pub size: u16,
}

/// Marking by queue length: never below `low`, always from `high` on, between them with a probability that rises from zero
/// to `probability`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnSettings {
    /// Bytes of waiting data.
    pub low: Bytes,
    /// Bytes of waiting data.
    pub high: Bytes,
    /// Probability just below `high`.
    pub probability: f64,
    /// Judge the queue as a packet leaves it (without that packet); otherwise as it joins (with it).
    pub at_dequeue: bool,
    /// Mark at the ports that lead to hosts, too. A queue there says nothing against any path.
    pub last_hop: bool,
}

/// Bytes of a pause frame on the wire (IEEE 802.3, annex 31B).
pub const PAUSE_FRAME: u16 = 64;

/// Priority flow control of the data class, by bytes buffered per ingress port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PfcSettings {
    /// Pause the upstream port when more than this is buffered; with a shared buffer, the static reserve of a port.
    pub xoff: Bytes,
    /// Resume when no more than this is buffered (static threshold), or this much less than the dynamic threshold.
    pub xon: Bytes,
    /// Room above the threshold for what is still on its way; beyond it packets are dropped.
    pub headroom: Bytes,
}

/// A buffer shared by all ports of a switch, with a dynamic threshold: a queue (or, with PFC, an ingress port) may hold up
/// to `alpha` times what is free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedSettings {
    /// Bytes of the whole buffer, PFC headroom not counted.
    pub buffer: Bytes,
    /// The dynamic threshold's factor.
    pub alpha: f64,
}

/// Which packets to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePlan {
    /// Every packet that starts on one of these links.
    pub links: Vec<LinkId>,
    /// At most so many packets.
    pub limit: usize,
}

/// Bytes that can wait at one port of a place at the most. With PFC a port has no limit of its own: what bounds it is what the switch takes in
/// before it has paused all of its neighbours, or its shared buffer.
fn longest_queue(topology: &Topology, ports: &PortSettings) -> Bytes {
    let Some(pfc) = ports.pfc else { return ports.data_queue };
    let most = topology.leaf_ports().max(topology.spine_ports()).max(topology.core_ports());
    let headroom = pfc.headroom * u64::from(most);
    let taken = ports.shared.map_or(pfc.xoff * u64::from(most), |shared| shared.buffer);
    Bytes(ports.data_queue.0.min(taken.0 + headroom.0))
}

/// No packet is on its way for longer: through a full queue at each of six hops, twice over. Paused ports and ports that are down
/// hold packets for longer; the floor of 10 ms covers all but outages (ours).
fn packet_life(topology: &Topology, ports: &PortSettings) -> Span {
    let queue = longest_queue(topology, ports);
    let here = topology.kinds_of_link().map(|l| l.rate.time_for(queue) + l.latency);
    let far = topology.long_queues().map(|long| long.level.rate.time_for(long.queue) + long.level.latency);
    let slowest = here.chain(far).max().unwrap_or(Span::ZERO);
    (slowest * 12).max(Span::from_ms(10))
}

/// The world as a connection of this profile sees it, its ends aside: that of the longest path.
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

/// The same as a connection between these two hosts sees it. Between sites round trip and rate are those of the way; in one place
/// those of the longest path, as NICs are configured there.
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
