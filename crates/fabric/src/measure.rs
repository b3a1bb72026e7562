//! The measurements of a run.

use crate::frames::Frames;
use crate::requests::ServiceTimes;
use crate::tally::Tally;
use crate::topology::NodeId;
use std::collections::BTreeMap;
use strandway_proto::account::{Spent, Waits};
use strandway_proto::aggregate::Counts;
use strandway_proto::counters;
use strandway_proto::path::{PathCounts, PathEvent, PlaneStates};
use strandway_proto::units::{Bytes, Span, Time};
use strandway_proto::{ConnectionId, HostId, Packet, RankTimes};

/// All measurements of a run. All fields except `events` are the same on any number of threads.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// A fingerprint. It covers, host by host, every action and event of the host's program with its time; then the
    /// counters of every connection and every link.
    pub digest: u64,
    /// The reason why the run ended.
    pub end: End,
    /// When the last flow finished, or when the run was stopped.
    pub simulated: Time,
    /// When new payload last arrived (payload that its receiver did not have).
    pub last_arrival: Time,
    /// Events processed.
    pub events: u64,
    /// Packets (data, trimmed or control) times links: each link that a packet enters counts once.
    pub packet_hops: u64,
    /// How threads shared the run. It is the only field, with `events`, that depends on their number.
    pub shared: Shared,
    /// Per flow, in the plan's order: its times.
    pub flows: Vec<FlowRecord>,
    /// Per operation of the run: counts of its messages.
    pub tallies: Vec<Tally>,
    /// Per flow, in the plan's order: how its time is divided.
    pub times: Vec<FlowTime>,
    /// Per connection, in the plan's order: the delays of its data packets on their way, as the receiver saw them.
    pub waits: Vec<Waits>,
    /// Per connection, in the plan's order: the sum of the sender's and the receiver's counters.
    pub connections: Vec<strandway_proto::ConnectionStats>,
    /// The connections that opened at first use.
    pub opened: OpenedCounts,
    /// Per connection of the plan that chooses a repair scheme for each message: its choices.
    pub choices: Vec<strandway_proto::repair::Choices>,
    /// Packet counts of the whole fabric.
    pub packets: PacketCounters,
    /// Per directed link, in the topology's order.
    pub links: Vec<LinkCounters>,
    /// Per NIC port and entropy value modulo [`PATH_SLOTS`], ordered by port first.
    pub paths: Vec<PathCounters>,
    /// Data packets by connection of the plan and path, if the plan asked for them ([`Plan::tally_paths`]).
    ///
    /// [`Plan::tally_paths`]: crate::plan::Plan::tally_paths
    pub path_counts: Vec<(u32, PathCounts)>,
    /// Time series; empty unless the plan asked for them.
    pub series: Series,
    /// Recorded packets in order of time.
    pub captured: Vec<Captured>,
    /// Per job number: the counters of gradient aggregation, summed over switches, servers and workers.
    pub aggregation: BTreeMap<u16, Counts>,
    /// The switches that ran programs, in the topology's order.
    pub stations: Vec<SwitchProgramCounts>,
    /// The changes of MRC's paths that were recorded, in order of time. A connection keeps at most
    /// [`PATH_EVENTS_MAX`](strandway_proto::path::PATH_EVENTS_MAX); events of closed connections are not here.
    pub path_events: Vec<PathRow>,
    /// How the time of each rank of training jobs is divided, job by job and rank by rank.
    pub ranks: Vec<RankTimes>,
    /// The measurements of each service, in their order.
    pub services: Vec<ServiceTimes>,
}

/// How the threads of a run shared its work; all zero if there was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The number of threads.
    pub threads: u32,
    /// How often all threads met.
    pub meetings: u64,
    /// Between two meetings, one thread has more packet hops than each other one: the sum of these hops. A run takes
    /// about as long as one thread would take for them.
    pub longest: u64,
    /// The packets that went from a part of the fabric of one thread to that of another.
    pub crossed: u64,
}

/// All connections that opened at first use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenedCounts {
    /// The sum of their counters.
    pub counters: strandway_proto::ConnectionStats,
    /// How many of their ends were still open when the run ended.
    pub left: u64,
    /// The number of these ends that still tell their peers that they close. The end of the run has cut them off.
    pub closing: u64,
}

/// A change of a path of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRow {
    /// The sender.
    pub host: HostId,
    /// The receiver.
    pub peer: HostId,
    /// The change.
    pub event: PathEvent,
}

/// A switch that ran a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchProgramCounts {
    /// The switch.
    pub node: NodeId,
    /// Per job: the share of the switch's slots that it held on average in each interval. Empty unless the plan asked
    /// for time series.
    pub occupancy: Vec<(u16, Vec<f64>)>,
}

/// Path counters exist for this many entropy values per NIC port.
pub const PATH_SLOTS: usize = 256;

/// Why a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Every flow finished.
    #[default]
    Finished,
    /// The time limit was reached.
    TimeLimit,
    /// The caller asked the run to stop.
    Interrupted,
    /// No event was left, yet some flows are not finished (their trigger never fired).
    Stalled,
}

/// The times of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowRecord {
    /// When it was posted.
    pub started: Option<Time>,
    /// When the receiver had received all of it.
    pub received: Option<Time>,
    /// When the sender knew that (the arrival of the last acknowledgement): its completion.
    pub finished: Option<Time>,
}

impl FlowRecord {
    /// Flow completion time: from posting to the sender's completion.
    pub fn completion(&self) -> Option<Span> {
        Some(self.finished? - self.started?)
    }
}

/// How the time of a flow is divided, from its posting to its completion at the sender or to the end of the run. The
/// parts add up to this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTime {
    /// Waiting for earlier flows of the same connection, before its first packet left.
    pub behind: Span,
    /// The time after that, by cause.
    pub spent: Spent,
}

impl FlowTime {
    /// The sum of all parts.
    pub fn total(&self) -> Span {
        self.behind + self.spent.total()
    }
}

counters! {
    /// Packet counts of the whole fabric.
    pub struct PacketCounters {
        /// Data packets that left hosts, retransmissions included.
        pub sent: u64,
        /// Data packets that arrived whole and for the first time.
        pub delivered: u64,
        /// Packets dropped because a queue was full.
        pub dropped: u64,
        /// Packets lost to faults (dead or lossy links).
        pub lost: u64,
        /// Data packets trimmed to their header.
        pub trimmed: u64,
        /// Data packets marked CE by a switch.
        pub marked: u64,
        /// Data packets sent again.
        pub retransmitted: u64,
        /// Data packets that arrived whole although the receiver already had them.
        pub duplicates: u64,
        /// Data packets that arrived whole and were discarded: out of order (go-back-N), beyond the receiver's window, or
        /// for a closed connection.
        pub discarded: u64,
        /// Part of `dropped`: control packets and trimmed packets.
        pub dropped_control: u64,
        /// Part of `lost`: control packets and trimmed packets.
        pub lost_control: u64,
        /// Acknowledgements sent.
        pub acks: u64,
        /// NACKs sent.
        pub nacks: u64,
        /// CNPs sent.
        pub notifications: u64,
        /// Retransmission timeouts that found overdue packets.
        pub timeouts: u64,
        /// PFC pause frames sent.
        pub pauses: u64,
        /// Chunks that hosts cast to groups, and chunks that they sent to single hosts as repairs.
        pub chunks: u64,
        /// Part of `chunks`: those sent to single hosts.
        pub repairs: u64,
        /// Whole packets that switches added by copying: copies sent minus packets received for copying.
        pub copies: u64,
        /// Trimmed packets that switches added by copying: copies sent minus packets received for copying.
        pub copies_trimmed: u64,
        /// Whole chunks that arrived at hosts.
        pub chunks_arrived: u64,
        /// Chunks that hosts rebuilt from parity.
        pub rebuilt: u64,
        /// Fragments of gradients and sums, with their numbers, that hosts and programs of switches sent.
        pub fragments: u64,
        /// Such fragments that arrived at hosts, or that programs of switches kept.
        pub fragments_arrived: u64,
    }
}

impl PacketCounters {
    /// Whole data packets still in flight: neither received nor trimmed, dropped or lost.
    pub fn under_way(&self) -> u64 {
        let received = self.delivered + self.duplicates + self.discarded + self.chunks_arrived + self.fragments_arrived;
        let dropped = self.dropped - self.dropped_control;
        let lost = self.lost - self.lost_control;
        (self.sent + self.chunks + self.fragments + self.copies)
            .saturating_sub(received + self.trimmed + dropped + lost)
    }
}

/// Counters of one directed link, that is, of the port that feeds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent onto it.
    pub packets: u64,
    /// Bytes sent onto it.
    pub bytes: u64,
    /// Data packets marked here.
    pub marked: u32,
    /// Packets dropped here because the queue was full.
    pub dropped: u32,
    /// Data packets trimmed here.
    pub trimmed: u32,
    /// Packets lost here to faults.
    pub lost: u32,
    /// The largest number of data bytes that waited here.
    pub queue_max: Bytes,
    /// How long data was paused.
    pub paused: Span,
    /// Part of `bytes`: those sent while the link was down.
    pub bytes_down: u64,
    /// When the last packet had left.
    pub last: Time,
    /// When the last whole data packet left that a fault of this link swallowed; zero if there was none.
    pub lost_data_last: Time,
}

/// Feedback for packets with one entropy value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Data packets sent.
    pub sent: u64,
    /// Feedback packets that echoed CE.
    pub marked: u64,
    /// Trims that were reported.
    pub trimmed: u64,
}

/// Time series. Point `i` covers the time from `i * every` to `(i + 1) * every`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Length of an interval.
    pub every: Span,
    /// New payload bytes received in each interval.
    pub delivered: Vec<u64>,
    /// New payload bytes received in each interval, by the plane (NIC port) on which they arrived; empty with a single
    /// plane.
    pub planes: Vec<Vec<u64>>,
    /// Per link group ([`crate::Topology::groups`]), in its order: values at the end of each interval and sums over it.
    pub groups: Vec<GroupSeries>,
    /// Bytes sent onto each link, in longer intervals; empty for fabrics with too many links.
    pub links: Frames,
    /// The state of the watched connection at the last activity of its host in each interval.
    pub watched: Vec<WatchPoint>,
    /// New payload bytes that the receiver of the watched connection got, by plane.
    pub watched_planes: Vec<Vec<u64>>,
}

/// A sender's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPoint {
    /// Congestion window, wire bytes.
    pub window: Bytes,
    /// Wire bytes in flight.
    pub in_flight: Bytes,
    /// The path selector's penalty of each path or uplink, in the selector's own units; empty if it has none.
    pub penalties: Vec<u32>,
    /// How many paths of each plane are in which state; empty if the path selector does not count them.
    pub planes: Vec<PlaneStates>,
}

/// One link group over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSeries {
    /// Bytes sent in each interval.
    pub bytes: Vec<u64>,
    /// Data bytes that wait at the end of each interval, summed over the group's links.
    pub queued: Vec<u64>,
    /// Data bytes that wait at the end of each interval in the group's longest queue.
    pub queued_max: Vec<u64>,
}

/// A recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When its first bit left.
    pub at: Time,
    /// The link that it was sent onto.
    pub link: crate::LinkId,
    /// The packet.
    pub packet: Packet,
    /// The profile of its connection: an index into the plan's profiles.
    pub profile: u16,
    /// The sender's number of its connection, if the connection is one of the plan's.
    pub sender: Option<ConnectionId>,
}
