//! What a run measured.

use crate::tally::Tally;
use crate::topology::NodeId;
use std::collections::BTreeMap;
use strandway_proto::account::{Spent, Waits};
use strandway_proto::aggregate::Counts;
use strandway_proto::path::PlaneStates;
use strandway_proto::units::{Bytes, Span, Time};
use strandway_proto::{Packet, RankTimes};

/// Everything that a run measured. All but `events` and wall-clock matters are the same on any number of threads.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// A fingerprint: host by host what its program posted and was told, and when; then every connection's and every link's
    /// counters.
    pub digest: u64,
    /// How the run ended.
    pub end: End,
    /// When the last flow finished, or the run was cut short.
    pub simulated: Time,
    /// When the last payload arrived that was not there yet.
    pub last_arrival: Time,
    /// Events processed.
    pub events: u64,
    /// Packets (data, trimmed or control) that left one port onto one link.
    pub packet_hops: u64,
    /// Per flow, in the plan's order.
    pub flows: Vec<FlowRecord>,
    /// Per collective of the run: its messages that have no row among the flows.
    pub tallies: Vec<Tally>,
    /// Per flow, in the plan's order: where its time went.
    pub times: Vec<FlowTime>,
    /// Per connection, in the plan's order: what its data packets met on their way, as the receiver saw it.
    pub waits: Vec<Waits>,
    /// Per connection, in the plan's order: the sender's and the receiver's counters added up.
    pub connections: Vec<strandway_proto::ConnectionStats>,
    /// The same of all connections together that opened at first use.
    pub opened: strandway_proto::ConnectionStats,
    /// Ends of such connections that were open when the run ended.
    pub opened_left: u64,
    /// Of each connection of the plan that chooses a repair scheme for each of its messages: what it chose.
    pub choices: Vec<strandway_proto::repair::Choices>,
    /// Sums over all.
    pub packets: PacketCounters,
    /// Per directed link, in the topology's order.
    pub links: Vec<LinkCounters>,
    /// Per (NIC port, entropy value modulo [`PATH_SLOTS`]), port first.
    pub paths: Vec<PathCounters>,
    /// Values over time; empty unless the plan asked for them.
    pub series: Series,
    /// Recorded packets in order of time.
    pub captured: Vec<Captured>,
    /// What switches, servers and workers counted of the aggregation of gradients, by the job's number.
    pub aggregation: BTreeMap<u16, Counts>,
    /// Switches that ran programs, in the topology's order.
    pub stations: Vec<Station>,
    /// Where the time of each rank of training jobs went, job by job and rank by rank.
    pub ranks: Vec<RankTimes>,
}

/// A switch that ran a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Station {
    /// The switch.
    pub node: NodeId,
    /// The share of its slots that each job held on average, interval by interval; empty unless the plan asked for series.
    pub occupancy: Vec<(u16, Vec<f64>)>,
}

/// Path counters are kept for this many entropy values per NIC port.
pub const PATH_SLOTS: usize = 256;

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Every flow finished.
    #[default]
    Finished,
    /// The time limit came first.
    TimeLimit,
    /// Somebody asked it to stop.
    Interrupted,
    /// Nothing was left to happen, yet some flows are not finished (their trigger never fired).
    Stalled,
}

/// One flow's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowRecord {
    /// When it was posted.
    pub started: Option<Time>,
    /// When the receiver had all of it.
    pub received: Option<Time>,
    /// When the sender knew that (the last acknowledgement's arrival): its completion.
    pub finished: Option<Time>,
}

impl FlowRecord {
    /// Flow completion time: from posting to the sender's completion.
    pub fn completion(&self) -> Option<Span> {
        Some(self.finished? - self.started?)
    }
}

/// Where a flow's time went, from its posting to its sender's completion or the end of the run. All of it adds up to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTime {
    /// Until its first packet left, while its connection was busy with flows posted before it.
    pub behind: Span,
    /// From then on, or from its posting.
    pub spent: Spent,
}

impl FlowTime {
    /// All of it.
    pub fn total(&self) -> Span {
        self.behind + self.spent.total()
    }
}

/// Sums over the whole fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Data packets that left hosts, retransmissions included.
    pub sent: u64,
    /// Data packets that arrived whole and for the first time.
    pub delivered: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Packets lost to faults (dead or lossy links).
    pub lost: u64,
    /// Data packets cut to their header.
    pub trimmed: u64,
    /// Data packets marked CE by a switch.
    pub marked: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that arrived whole though they were here already.
    pub duplicates: u64,
    /// Data packets that arrived whole and were thrown away: out of order (go-back-N), beyond the receiver's window, or for a connection
    /// that was closed.
    pub discarded: u64,
    /// Those of the dropped that were no whole data packets: control packets and trimmed ones.
    pub dropped_control: u64,
    /// Those of the lost that were no whole data packets.
    pub lost_control: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// NACKs sent.
    pub nacks: u64,
    /// CNPs sent.
    pub notifications: u64,
    /// Retransmission timeouts that found packets overdue.
    pub timeouts: u64,
    /// PFC pause frames sent.
    pub pauses: u64,
    /// Chunks that hosts cast to groups, and to single hosts as repairs.
    pub chunks: u64,
    /// Those of them that went to single hosts.
    pub repairs: u64,
    /// Whole packets that switches made by copying, beyond those that they got.
    pub copies: u64,
    /// The same of packets that had been trimmed before.
    pub copies_trimmed: u64,
    /// Whole chunks that arrived at hosts.
    pub chunks_arrived: u64,
    /// Chunks that hosts rebuilt from parity.
    pub rebuilt: u64,
    /// Fragments of gradients and sums with their numbers that hosts, and programs of switches, sent.
    pub fragments: u64,
    /// The same that arrived at hosts, or that programs of switches kept.
    pub fragments_arrived: u64,
}

impl PacketCounters {
    /// Whole data packets that were neither received nor trimmed, dropped or lost: they are still on their way.
    pub fn under_way(&self) -> u64 {
        let received = self.delivered + self.duplicates + self.discarded + self.chunks_arrived + self.fragments_arrived;
        let dropped = self.dropped - self.dropped_control;
        let lost = self.lost - self.lost_control;
        (self.sent + self.chunks + self.fragments + self.copies)
            .saturating_sub(received + self.trimmed + dropped + lost)
    }
}

/// One directed link, that is, the port that feeds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that left onto it.
    pub packets: u64,
    /// Bytes that left onto it.
    pub bytes: u64,
    /// Data packets marked here.
    pub marked: u32,
    /// Packets that found no room here.
    pub dropped: u32,
    /// Data packets trimmed here.
    pub trimmed: u32,
    /// Packets lost here to faults.
    pub lost: u32,
    /// The most bytes of data that ever waited here.
    pub queue_max: Bytes,
    /// How long the data class was paused.
    pub paused: Span,
    /// Of the bytes that left onto it, those that left while it was down.
    pub bytes_down: u64,
    /// When the last packet had left onto it.
    pub last: Time,
    /// When the last whole data packet left that a fault of this link swallowed; zero if there was none.
    pub lost_data_last: Time,
}

/// How packets fared under one entropy value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Data packets sent.
    pub sent: u64,
    /// Feedback that echoed CE.
    pub marked: u64,
    /// Trims reported.
    pub trimmed: u64,
}

/// Values over time; point `i` covers the interval from `i * every` to `(i + 1) * every`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Length of an interval.
    pub every: Span,
    /// New payload bytes received.
    pub delivered: Vec<u64>,
    /// The same by the plane (NIC port) that they arrived over; empty with a single plane.
    pub planes: Vec<Vec<u64>>,
    /// Per link group ([`crate::Topology::groups`]), in its order: values at and over each interval.
    pub groups: Vec<GroupSeries>,
    /// The state of the connection that the plan watches, at the last activity of its host in each interval.
    pub watched: Vec<WatchPoint>,
    /// New payload bytes that the watched connection's receiver got, by plane.
    pub watched_planes: Vec<Vec<u64>>,
}

/// A sender's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPoint {
    /// Congestion window, wire bytes.
    pub window: Bytes,
    /// Wire bytes in flight.
    pub in_flight: Bytes,
    /// What the path selector holds against each of its paths or uplinks, in its own units; empty if it keeps no record.
    pub penalties: Vec<u32>,
    /// How the paths of each plane fare; empty if the path selector keeps no such record.
    pub planes: Vec<PlaneStates>,
}

/// One link group over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSeries {
    /// Bytes that left in the interval.
    pub bytes: Vec<u64>,
    /// Waiting data at the interval's end, summed over the group's links, bytes.
    pub queued: Vec<u64>,
    /// Waiting data at the interval's end in the fullest of the group's queues, bytes.
    pub queued_max: Vec<u64>,
}

/// A recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When its first bit left.
    pub at: Time,
    /// The link it left onto.
    pub link: crate::LinkId,
    /// The packet.
    pub packet: Packet,
    /// The profile of its connection (index into the plan's).
    pub profile: u16,
}
