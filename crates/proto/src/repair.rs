//! Repair: reliability in software over one-way connections, as SDR-RDMA has it (arXiv 2505.05366, section 4).
//!
//! A scheme uses only the calls of [`crate::partial`]: its sender sends chunks of stretches, its receiver reads the
//! bitmaps, and the two exchange control messages. Four schemes: selective repeat by timeouts (`sdr_sr`) and by NACKs
//! (`sdr_nack`), erasure coding by XOR (`sdr_xor`) and by a maximum-distance-separable code (`sdr_mds`); and one that
//! chooses among them for each message (`sdr_auto`). This module only *names* parity packets; the world, which has the
//! bytes, computes their contents.

mod acknowledge;
mod choice;
mod code;
mod holes;
mod layout;
pub mod model;
mod policy;
mod receiver;
mod sender;
mod timers;

pub use choice::{Choices, ENCODE_RATE, PLANS, encode_cores};
pub use code::{Code, CodeError, CodeKind, PIECES_MAX, Pieces};
pub use layout::{Group, Layout};
pub use receiver::{EndedGroup, RepairReceiver};
pub use sender::RepairSender;

use crate::environment::Environment;
use crate::parameters;
use crate::units::{Rate, Span};

parameters! {
    /// SDR-RDMA's selective repeat by timeouts: a chunk that is not acknowledged in time is sent again.
    pub struct SdrSrConfig {
        /// Packets of a chunk: what is acknowledged and sent again.
        chunk: u32 = 16, 1.0..=65535.0, "SDR-RDMA's benchmark: 64 KiB, 16 packets of 4 KiB";
        /// The retransmission timeout is one round trip and this many more.
        alpha: f64 = 2.0, 0.0..=100.0, "SDR-RDMA, section 5: RTO = 3 RTT";
        /// The peer may answer this late: it lengthens timeouts.
        late: Span = Span::ZERO, 0.0..=1.0e12, "simulated hosts answer at once: 0; more is ours, for hosts that sleep";
    }
}

parameters! {
    /// SDR-RDMA's selective repeat with NACKs: the receiver names missing chunks; the sender has timeouts as well.
    pub struct SdrNackConfig {
        /// Packets of a chunk: what is acknowledged and sent again.
        chunk: u32 = 16, 1.0..=65535.0, "SDR-RDMA's benchmark: 64 KiB, 16 packets of 4 KiB";
        /// The retransmission timeout is one round trip and this many more.
        alpha: f64 = 2.0, 0.0..=100.0, "SDR-RDMA, section 5: RTO = 3 RTT";
        /// The peer may answer this late: it lengthens timeouts.
        late: Span = Span::ZERO, 0.0..=1.0e12, "simulated hosts answer at once: 0; more is ours, for hosts that sleep";
        /// A chunk is lost when one that is this many chunks behind it is complete; two more for each port.
        reorder: u32 = 4, 0.0..=1000000.0, "ours: SDR-RDMA has no detector";
    }
}

parameters! {
    /// SDR-RDMA's erasure coding: parity repairs losses; selective repeat resends the chunks that parity cannot repair.
    pub struct SdrCodeConfig {
        /// Data chunks of a submessage.
        k: u32 = 32, 1.0..=254.0, "SDR-RDMA, section 5: (32, 8)";
        /// Parity chunks of a submessage.
        m: u32 = 8, 1.0..=128.0, "SDR-RDMA, section 5: (32, 8)";
        /// Packets of a chunk.
        chunk: u32 = 1, 1.0..=65535.0, "SDR-RDMA, section 5, at 4 KiB; larger chunks are lost more often (docs/protocols/sdr.md)";
        /// Submessages whose data, and whose parity, travel as one stretch.
        group: u32 = 16, 1.0..=4096.0, "ours: SDR-RDMA has one, and runs out of slots beyond 512 submessages";
        /// The round trips that the receiver waits longer than the message takes, before it asks for what parity cannot
        /// repair.
        beta: f64 = 1.0, 0.05..=100.0, "SDR-RDMA, section 4.2.2: alpha / 2";
        /// The retransmission timeout is one round trip and this many more.
        alpha: f64 = 2.0, 0.0..=100.0, "SDR-RDMA, section 5: RTO = 3 RTT";
        /// The peer may answer this late: it lengthens timeouts.
        late: Span = Span::ZERO, 0.0..=1.0e12, "simulated hosts answer at once: 0; more is ours, for hosts that sleep";
        /// Neighbouring chunks belong to different submessages, so that a burst takes few of each.
        striped: bool = false, 0.0..=1.0, "ours: SDR-RDMA does not stripe";
        /// A submessage that cannot be repaired is sent again whole, rather than its holes.
        faithful: bool = false, 0.0..=1.0, "SDR-RDMA, section 4.2.2, sends it whole; the holes are enough (ours)";
    }
}

parameters! {
    /// SDR-RDMA with a choice: for each message, the scheme that a model expects to be fastest, by measured loss,
    /// bursts and round trip.
    pub struct SdrAutoConfig {
        /// The weight of the 99.9th percentile of the completion time; the mean has the rest.
        tail: f64 = 0.5, 0.0..=1.0, "ours: between the slowest transfer, which a collective waits for, and the mean";
        /// Submessages whose data, and whose parity, travel as one stretch.
        group: u32 = 16, 1.0..=4096.0, "ours: as sdr_mds";
        /// A chunk is lost when one that is this many chunks behind it is complete; two more for each port.
        reorder: u32 = 4, 0.0..=1000000.0, "ours: as sdr_nack";
        /// The round trips that the receiver waits longer than the message takes, before it asks for what parity cannot
        /// repair.
        beta: f64 = 1.0, 0.05..=100.0, "SDR-RDMA, section 4.2.2: alpha / 2";
        /// The retransmission timeout is one round trip and this many more.
        alpha: f64 = 2.0, 0.0..=100.0, "SDR-RDMA, section 5: RTO = 3 RTT";
        /// The peer may answer this late: it lengthens timeouts.
        late: Span = Span::ZERO, 0.0..=1.0e12, "simulated hosts answer at once: 0; more is ours, for hosts that sleep";
        /// Data that one core encodes per second with up to eight pieces of parity; more pieces take longer in proportion.
        encode_rate: Rate = ENCODE_RATE, 1.0e6..=1.0e15, "ours, measured: (32,8) from memory, GFNI (docs/measurements/erasure-codes.md)";
        /// Cores that may encode. A code that these cannot encode at the link's rate is not chosen.
        encode_cores: u32 = 10, 1.0..=4096.0, "ours: enough for every code here at 400 Gb/s; SDR-RDMA, figure 11: 8 cores for (32,8)";
    }
}

/// The parameters of one kind of erasure code: of a maximum-distance-separable one, or of XOR.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coded<const MDS: bool>(pub SdrCodeConfig);

/// XOR's parameters.
pub type SdrXorConfig = Coded<false>;

/// Reed-Solomon's parameters.
pub type SdrMdsConfig = Coded<true>;

impl SdrCodeConfig {
    /// The code of these parameters. A connection cannot be opened if they give no code.
    ///
    /// # Errors
    /// If `k + m` is too large, or XOR has more parity than data.
    pub fn code(&self, kind: CodeKind) -> Result<Code, CodeError> {
        let (k, m) = (self.k as usize, self.m as usize);
        match kind {
            CodeKind::Xor => Code::xor(k, m),
            CodeKind::Mds => Code::mds(k, m),
        }
    }
}

/// How a message is cut and coded. Each packet carries the number of its message's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Packets of a chunk.
    pub chunk: u32,
    /// The number of chunks that may overtake a chunk before it counts as lost; `None` without NACKs.
    pub reorder: Option<u32>,
    /// The erasure code, if there is one.
    pub code: Option<Code>,
    /// Submessages of a group.
    pub group: u32,
    /// Do neighbouring chunks of a group belong to different submessages?
    pub striped: bool,
}

impl Plan {
    /// The layout of a message of `packets` packets.
    pub fn layout(&self, packets: u32) -> Layout {
        Layout::new(packets, self)
    }
}

/// A scheme, from which the receiver's and the sender's half are built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scheme {
    pub(crate) alpha: f64,
    pub(crate) late: Span,
    pub(crate) beta: f64,
    pub(crate) faithful: bool,
    plans: Plans,
}

/// The possible plans of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plans {
    One(Plan),
    /// A choice for each message.
    Auto(SdrAutoConfig),
}

impl From<&SdrSrConfig> for Scheme {
    fn from(config: &SdrSrConfig) -> Scheme {
        let SdrSrConfig { chunk, alpha, late } = *config;
        let plan = Plan { chunk, reorder: None, code: None, group: 1, striped: false };
        Scheme { alpha, late, beta: 0.0, faithful: false, plans: Plans::One(plan) }
    }
}

impl From<&SdrNackConfig> for Scheme {
    fn from(config: &SdrNackConfig) -> Scheme {
        let SdrNackConfig { chunk, alpha, late, reorder } = *config;
        let plan = Plan { chunk, reorder: Some(reorder), code: None, group: 1, striped: false };
        Scheme { alpha, late, beta: 0.0, faithful: false, plans: Plans::One(plan) }
    }
}

impl From<&SdrAutoConfig> for Scheme {
    fn from(config: &SdrAutoConfig) -> Scheme {
        let SdrAutoConfig { beta, alpha, late, .. } = *config;
        Scheme { alpha, late, beta, faithful: false, plans: Plans::Auto(*config) }
    }
}

impl Scheme {
    pub(crate) fn coded(config: &SdrCodeConfig, kind: CodeKind) -> Scheme {
        let SdrCodeConfig { k, m, chunk, group, beta, alpha, late, striped, faithful } = *config;
        let code = config.code(kind).unwrap_or_else(|error| panic!("k = {k} and m = {m}: {error}"));
        let plan = Plan { chunk, reorder: None, code: Some(code), group, striped };
        Scheme { alpha, late, beta, faithful, plans: Plans::One(plan) }
    }

    /// The plan with this number, if there is one.
    #[inline]
    pub(crate) fn plan(&self, number: u8) -> Option<Plan> {
        match &self.plans {
            Plans::One(plan) => (number == 0).then_some(*plan),
            Plans::Auto(config) => choice::plan(number, config.reorder, config.group),
        }
    }

    /// The chooser, if there is a choice. Packets have up to `mtu` bytes of payload.
    fn chooser(&self, mtu: u32) -> Option<choice::Chooser> {
        let Plans::Auto(config) = self.plans else { return None };
        Some(choice::Chooser::new(config, mtu))
    }

    /// Packets of the largest chunk of all plans.
    pub(crate) fn chunk_max(&self) -> u32 {
        (0..=u8::MAX).map_while(|number| self.plan(number)).map(|plan| plan.chunk).max().unwrap_or(1)
    }

    /// Packets of a chunk, where that does not depend on the message.
    fn chunk(&self) -> u32 {
        if let Plans::One(plan) = &self.plans { plan.chunk } else { 1 }
    }

    /// The timers of both halves.
    pub(crate) fn timing(&self, environment: &Environment) -> timers::Timing {
        let packet = environment.rate.time_for(environment.packet);
        timers::Timing::new(environment.base_rtt, packet * u64::from(self.chunk()), self)
    }

    /// The first retransmission timeout.
    pub(crate) fn timeout(&self, environment: &Environment) -> Span {
        self.timing(environment).rto()
    }
}
