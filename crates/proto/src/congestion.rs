//! Congestion control: how much may be in flight, and at which rate.
//!
//! A congestion control gets samples of sent, acknowledged and lost packets, and gives a window and, if it paces, a
//! rate. It consists of one file under `congestion/`, one row of the table below, and one page under `docs/protocols/`.
//! An experiment needs none of these: [`CongestionConfig::Custom`] takes any implementation from outside.

mod dcqcn;
mod dctcp;
mod fixed;
mod hpcc;
mod longhaul;
mod nscc;
mod paced;
mod rccc;
mod strack;
mod swift;

pub use crate::credit::CreditTerms;
pub use dcqcn::{Dcqcn, DcqcnConfig};
pub use dctcp::{Dctcp, DctcpConfig};
pub use fixed::{Fixed, FixedConfig};
pub use hpcc::{Hpcc, HpccConfig};
pub use longhaul::{LongHaul, LongHaulConfig};
pub use nscc::{Nscc, NsccConfig};
pub use paced::{Paced, PacedConfig};
pub use rccc::{Rccc, RcccConfig};
pub use strack::{Strack, StrackConfig};
pub use swift::{Swift, SwiftConfig};

use crate::environment::{Environment, TransportConfig};
use crate::host::HostTraits;
use crate::parameter::ParameterSet;
use crate::policy::{configurations, dispatch, states};
use crate::telemetry::Telemetry;
use crate::units::{Bytes, Rate, Span, Time};
use std::sync::Arc;

/// The table of congestion controls. One row is everything this file knows about one; `crate::policy` explains rows.
macro_rules! congestions {
    ($make:ident $with:tt) => {
        $make! { $with
            /// UEC's network-signalled congestion control.
            nscc: Nscc(NsccConfig, Nscc),
            /// Rate control of RoCEv2.
            dcqcn: Dcqcn(DcqcnConfig, Dcqcn),
            /// Window control by the share of marked packets.
            dctcp: Dctcp(DctcpConfig, Dctcp),
            /// Window control by delay.
            swift: Swift(SwiftConfig, Swift),
            /// STrack's window by marks and delay.
            strack: Strack(StrackConfig, Strack),
            /// A window that never changes.
            fixed: Fixed(FixedConfig, Fixed),
            /// A rate that never changes.
            paced: Paced(PacedConfig, Paced),
            /// Window control by delay, for long and lossy links.
            longhaul: LongHaul(LongHaulConfig, Box<LongHaul>),
            /// Window control by the load that switches report.
            hpcc: Hpcc(HpccConfig, Hpcc),
            /// UEC's receiver credit congestion control.
            rccc: Rccc(RcccConfig, Rccc),
        }
    };
}

/// The contents of one acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AckSample {
    /// When it arrived.
    pub now: Time,
    /// The round trip of the packet it describes, if that is certain (the packet was not sent twice).
    pub rtt: Option<Span>,
    /// Wire bytes that it newly acknowledges; may be zero.
    pub bytes: Bytes,
    /// Packets that it newly acknowledges; may be zero.
    pub packets: u32,
    /// Did the packet that it describes carry CE?
    pub marked: bool,
    /// Wire bytes that it newly reports as lost, if the receiver counts arriving packets; `None` if losses are found
    /// one by one.
    pub lost: Option<Bytes>,
    /// Wire bytes in flight after it.
    pub in_flight: Bytes,
}

/// How a loss became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// The receiver got the packet's header: a switch trimmed it.
    Trimmed {
        /// The last switch on the path trimmed it, so no other path would have helped.
        last_hop: bool,
    },
    /// Later packets arrived, or a probe came back: fast recovery.
    Inferred,
    /// No acknowledgement came within the retransmission timeout.
    TimedOut,
}

/// The reason for the latest cut of a window or rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// It was never cut.
    #[default]
    Never,
    /// Marks, notifications of them, or other reports of switches ([`Telemetry`]).
    Marks,
    /// Delay.
    Delay,
    /// A lost or trimmed packet.
    Loss,
}

/// One lost packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSample {
    /// When the loss became known.
    pub now: Time,
    /// How the loss became known.
    pub kind: LossKind,
    /// Wire bytes of the lost packet.
    pub bytes: Bytes,
    /// Wire bytes in flight without it.
    pub in_flight: Bytes,
}

/// Decides how much may be in flight, and at which rate it is sent.
///
/// Decisions use only integers, or `f64` with `+ - * /` and square root, so that every machine decides the same.
pub trait Congestion: Send {
    /// A packet was sent. `in_flight` includes it.
    fn on_sent(&mut self, _now: Time, _bytes: Bytes, _in_flight: Bytes) {}
    /// An acknowledgement arrived.
    fn on_ack(&mut self, sample: &AckSample);
    /// A packet is lost. Called once per packet.
    fn on_loss(&mut self, loss: &LossSample);
    /// A congestion notification packet (CNP) arrived.
    fn on_notification(&mut self, _now: Time) {}
    /// The records of the packet that the next acknowledgement or NACK describes. Called only in the simulator, just
    /// before `on_ack` or `on_loss` for the same answer.
    fn on_telemetry(&mut self, _now: Time, _telemetry: &Telemetry) {}
    /// Wire bytes that may be in flight.
    fn window(&self) -> Bytes;
    /// The reason for the latest cut of the window or rate. It is used only in reports.
    fn last_cut(&self) -> Cut {
        Cut::Never
    }
    /// The pacing rate at `now`, if it paces; at most the line rate. A control with timers processes here the timers
    /// that have ended by `now`.
    fn rate(&mut self, _now: Time) -> Option<Rate> {
        None
    }
}

/// Makes the congestion control of one connection. See [`CongestionConfig::Custom`].
pub type CongestionFactory = Arc<dyn Fn(&Environment) -> Box<dyn Congestion> + Send + Sync>;

/// The calls that a congestion control's parameters must answer.
pub(crate) trait CongestionPolicy: ParameterSet {
    /// The state for one connection.
    fn build(&self, environment: &Environment) -> AnyCongestion;
    /// Does it have a rate, or must it see each packet as it is sent? If not, `rate` and `on_sent` are not called.
    fn paces(&self) -> bool {
        true
    }
    /// Do connections to one destination share one window?
    fn is_per_destination(&self) -> bool {
        false
    }
    /// Does it steer by what a one-way connection's receiver counts?
    fn wants_counts(&self) -> bool {
        false
    }
    /// Is it useless without the records of switches ([`Telemetry`])?
    fn needs_telemetry(&self) -> bool {
        false
    }
    /// Its largest window as a multiple of the bandwidth-delay product, and its target of the queueing delay without
    /// trimming as a multiple of the base RTT: what the detectors of losses by reordering follow.
    fn envelope(&self) -> Option<(f64, f64)> {
        None
    }
    /// How it uses the receiver's credit; `None` if it does not.
    fn credit(&self) -> Option<CreditTerms> {
        None
    }
    /// Changes packet sizes and acknowledgements to what it needs, when it is chosen by its name.
    fn shape(&self, _transport: &mut TransportConfig) {}
    /// Adapts the parameters to a host with these traits.
    fn adapt_to(&mut self, _host: &HostTraits) {}
}

congestions!(configurations [
    /// A choice of congestion control, with its parameters.
    CongestionConfig: CongestionPolicy,
    /// Anything from outside.
    Custom(CongestionFactory)
]);

congestions!(states [
    /// A congestion control, stored without a box.
    AnyCongestion, Box<dyn Congestion>
]);

impl CongestionConfig {
    /// Its parameters; none for a custom one.
    pub fn parameters(&mut self) -> Option<&mut dyn ParameterSet> {
        self.policy_mut().map(|policy| policy as &mut dyn ParameterSet)
    }

    /// Do connections to one destination share one window?
    pub fn shares_window(&self) -> bool {
        self.is_per_destination()
    }

    /// Do connections to one destination share one window?
    pub(crate) fn is_per_destination(&self) -> bool {
        self.policy().is_some_and(|policy| policy.is_per_destination())
    }

    /// Has it a rate, or does it look at each packet as it leaves?
    pub(crate) fn paces(&self) -> bool {
        self.policy().is_none_or(|policy| policy.paces())
    }

    /// Does it steer by what a one-way connection's receiver counts? Then the receiver reports it
    /// ([`crate::control::Heard`]).
    pub(crate) fn wants_counts(&self) -> bool {
        self.policy().is_some_and(|policy| policy.wants_counts())
    }

    /// Does it read the records of switches ([`Telemetry`])? Custom ones may. Only the simulator has them.
    pub fn reads_telemetry(&self) -> bool {
        self.policy().is_none_or(|policy| policy.needs_telemetry())
    }

    /// Is it useless without these records?
    pub fn needs_telemetry(&self) -> bool {
        self.policy().is_some_and(|policy| policy.needs_telemetry())
    }

    /// Its largest window as a multiple of the bandwidth-delay product, and its target of the queueing delay without
    /// trimming as a multiple of the base RTT; `None` if it has neither.
    pub(crate) fn envelope(&self) -> Option<(f64, f64)> {
        self.policy().and_then(|policy| policy.envelope())
    }

    /// How it uses the receiver's credit; `None` if it does not. Only the simulator's hosts have all their connections
    /// in one endpoint, which a receiver needs to share its link.
    pub fn credit(&self) -> Option<CreditTerms> {
        self.policy().and_then(|policy| policy.credit())
    }

    /// The state for one connection.
    pub fn build(&self, environment: &Environment) -> AnyCongestion {
        match (self, self.policy()) {
            (CongestionConfig::Custom(factory), _) => AnyCongestion::Custom(factory(environment)),
            (_, Some(policy)) => policy.build(environment),
            (_, None) => unreachable!("only a custom one has no file"),
        }
    }
}

/// `x`, or the floor if it is below.
fn at_least(x: f64, floor: f64) -> f64 {
    if x < floor { floor } else { x }
}

macro_rules! each {
    ($self:expr, $c:ident => $call:expr) => {
        congestions!(dispatch [AnyCongestion, $self, $c => $call])
    };
}

impl Congestion for AnyCongestion {
    #[inline]
    fn on_sent(&mut self, now: Time, bytes: Bytes, in_flight: Bytes) {
        each!(self, c => c.on_sent(now, bytes, in_flight))
    }
    #[inline]
    fn on_ack(&mut self, sample: &AckSample) {
        each!(self, c => c.on_ack(sample))
    }
    fn on_loss(&mut self, loss: &LossSample) {
        each!(self, c => c.on_loss(loss))
    }
    fn on_notification(&mut self, now: Time) {
        each!(self, c => c.on_notification(now))
    }
    fn on_telemetry(&mut self, now: Time, telemetry: &Telemetry) {
        each!(self, c => c.on_telemetry(now, telemetry))
    }
    #[inline]
    fn window(&self) -> Bytes {
        each!(self, c => c.window())
    }
    #[inline]
    fn rate(&mut self, now: Time) -> Option<Rate> {
        each!(self, c => c.rate(now))
    }
    fn last_cut(&self) -> Cut {
        each!(self, c => c.last_cut())
    }
}
