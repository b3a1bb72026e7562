//! How much, how fast: congestion control.
//!
//! A congestion control is told what was sent, acknowledged and lost, and is asked for a window and, if it paces, a rate.
//! It is one file under `congestion/`, one variant of [`AnyCongestion`], one of [`CongestionConfig`] and one page under
//! `docs/protocols/`. Experiments need none of that: [`CongestionConfig::Custom`] takes any implementation from outside.

mod dcqcn;
mod dctcp;
mod fixed;
mod longhaul;
mod nscc;
mod paced;
mod strack;
mod swift;

pub use dcqcn::{Dcqcn, DcqcnConfig};
pub use dctcp::{Dctcp, DctcpConfig};
pub use fixed::{Fixed, FixedConfig};
pub use longhaul::{LongHaul, LongHaulConfig};
pub use nscc::{Nscc, NsccConfig};
pub use paced::{Paced, PacedConfig};
pub use strack::{Strack, StrackConfig};
pub use swift::{Swift, SwiftConfig};

use crate::environment::Environment;
use crate::parameter::ParameterSet;
use crate::units::{Bytes, Rate, Span, Time};
use std::sync::Arc;

/// What one acknowledgement tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AckSample {
    /// When it arrived.
    pub now: Time,
    /// The round trip of the packet it describes, if that is known beyond doubt (the packet was not sent twice).
    pub rtt: Option<Span>,
    /// Wire bytes that it newly acknowledges; may be zero.
    pub bytes: Bytes,
    /// Packets that it newly acknowledges; may be zero.
    pub packets: u32,
    /// Did the packet that it describes carry CE?
    pub marked: bool,
    /// Wire bytes that it newly tells of as lost, where the receiver counts what arrives; `None` where losses are found one by one.
    pub lost: Option<Bytes>,
    /// Wire bytes in flight after it.
    pub in_flight: Bytes,
}

/// How a loss became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// The receiver got the packet's header: a switch trimmed it.
    Trimmed {
        /// The last switch on the way did, so no other path would have helped.
        last_hop: bool,
    },
    /// Later packets arrived, or a probe came back: fast recovery.
    Inferred,
    /// Nothing was heard for a retransmission timeout.
    TimedOut,
}

/// Why a window or rate was cut last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// It never was.
    #[default]
    Never,
    /// Marks, or notifications of them.
    Marks,
    /// Delay.
    Delay,
    /// A lost or trimmed packet.
    Loss,
}

/// What one lost packet tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSample {
    /// When the loss became known.
    pub now: Time,
    /// How.
    pub kind: LossKind,
    /// Wire bytes of the lost packet.
    pub bytes: Bytes,
    /// Wire bytes in flight after taking it out.
    pub in_flight: Bytes,
}

/// How much may be in flight and how fast it may leave.
///
/// Decisions use integers or `f64` with `+ - * /` and square root only, so that every machine decides alike.
pub trait Congestion: Send {
    /// A packet left. `in_flight` counts it already.
    fn on_sent(&mut self, _now: Time, _bytes: Bytes, _in_flight: Bytes) {}
    /// An acknowledgement arrived.
    fn on_ack(&mut self, sample: &AckSample);
    /// A packet is lost. Called once per packet.
    fn on_loss(&mut self, loss: &LossSample);
    /// A congestion notification packet (CNP) arrived.
    fn on_notification(&mut self, _now: Time) {}
    /// Wire bytes that may be in flight.
    fn window(&self) -> Bytes;
    /// Why the window or rate was cut last: for reports, nothing depends on it.
    fn last_cut(&self) -> Cut {
        Cut::Never
    }
    /// The pacing rate at `now`, if it paces; at most the line rate. Time-driven controls catch up with their timers here.
    fn rate(&mut self, _now: Time) -> Option<Rate> {
        None
    }
}

/// Makes the congestion control of one connection. See [`CongestionConfig::Custom`].
pub type CongestionFactory = Arc<dyn Fn(&Environment) -> Box<dyn Congestion> + Send + Sync>;

/// Which congestion control, with its parameters.
#[derive(Clone)]
pub enum CongestionConfig {
    /// UEC's network-signalled congestion control.
    Nscc(NsccConfig),
    /// Rate control of RoCEv2.
    Dcqcn(DcqcnConfig),
    /// Window control by the share of marked packets.
    Dctcp(DctcpConfig),
    /// Window control by delay.
    Swift(SwiftConfig),
    /// STrack's window by marks and delay.
    Strack(StrackConfig),
    /// A window that never changes.
    Fixed(FixedConfig),
    /// A rate that never changes.
    Paced(PacedConfig),
    /// Window control by delay for long links.
    LongHaul(LongHaulConfig),
    /// Anything from outside.
    Custom(CongestionFactory),
}

/// A congestion control, in place.
#[allow(missing_docs, reason = "each variant holds the type it is named after")]
pub enum AnyCongestion {
    Nscc(Nscc),
    Dcqcn(Dcqcn),
    Dctcp(Dctcp),
    Swift(Swift),
    Strack(Strack),
    Fixed(Fixed),
    Paced(Paced),
    LongHaul(LongHaul),
    Custom(Box<dyn Congestion>),
}

impl CongestionConfig {
    /// The names that scenario files use, `custom` aside.
    pub const NAMES: [&str; 8] = ["nscc", "dcqcn", "dctcp", "swift", "strack", "fixed", "paced", "longhaul"];

    /// The congestion control of that name with its default parameters.
    pub fn named(name: &str) -> Option<CongestionConfig> {
        Some(match name {
            "nscc" => CongestionConfig::Nscc(NsccConfig::default()),
            "dcqcn" => CongestionConfig::Dcqcn(DcqcnConfig::default()),
            "dctcp" => CongestionConfig::Dctcp(DctcpConfig::default()),
            "swift" => CongestionConfig::Swift(SwiftConfig::default()),
            "strack" => CongestionConfig::Strack(StrackConfig::default()),
            "fixed" => CongestionConfig::Fixed(FixedConfig::default()),
            "paced" => CongestionConfig::Paced(PacedConfig::default()),
            "longhaul" => CongestionConfig::LongHaul(LongHaulConfig::default()),
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            CongestionConfig::Nscc(_) => "nscc",
            CongestionConfig::Dcqcn(_) => "dcqcn",
            CongestionConfig::Dctcp(_) => "dctcp",
            CongestionConfig::Swift(_) => "swift",
            CongestionConfig::Strack(_) => "strack",
            CongestionConfig::Fixed(_) => "fixed",
            CongestionConfig::Paced(_) => "paced",
            CongestionConfig::LongHaul(_) => "longhaul",
            CongestionConfig::Custom(_) => "custom",
        }
    }

    /// Its parameters; none for a custom one.
    pub fn parameters(&mut self) -> Option<&mut dyn ParameterSet> {
        match self {
            CongestionConfig::Nscc(c) => Some(c),
            CongestionConfig::Dcqcn(c) => Some(c),
            CongestionConfig::Dctcp(c) => Some(c),
            CongestionConfig::Swift(c) => Some(c),
            CongestionConfig::Strack(c) => Some(c),
            CongestionConfig::Fixed(c) => Some(c),
            CongestionConfig::Paced(c) => Some(c),
            CongestionConfig::LongHaul(c) => Some(c),
            CongestionConfig::Custom(_) => None,
        }
    }

    /// Do connections to one destination share one window?
    pub(crate) fn is_per_destination(&self) -> bool {
        matches!(self, CongestionConfig::Nscc(c) if c.per_destination)
    }

    /// Does it steer by what a one-way connection's receiver counts? Then the receiver reports it ([`crate::letter::Heard`]).
    pub(crate) const fn wants_counts(&self) -> bool {
        matches!(self, CongestionConfig::LongHaul(_))
    }

    /// The state for one connection.
    pub fn build(&self, environment: &Environment) -> AnyCongestion {
        match self {
            CongestionConfig::Nscc(c) => AnyCongestion::Nscc(Nscc::new(c, environment)),
            CongestionConfig::Dcqcn(c) => AnyCongestion::Dcqcn(Dcqcn::new(c, environment)),
            CongestionConfig::Dctcp(c) => AnyCongestion::Dctcp(Dctcp::new(c, environment)),
            CongestionConfig::Swift(c) => AnyCongestion::Swift(Swift::new(c, environment)),
            CongestionConfig::Strack(c) => AnyCongestion::Strack(Strack::new(c, environment)),
            CongestionConfig::Fixed(c) => AnyCongestion::Fixed(Fixed::new(c, environment)),
            CongestionConfig::Paced(c) => AnyCongestion::Paced(Paced::new(c, environment)),
            CongestionConfig::LongHaul(c) => AnyCongestion::LongHaul(LongHaul::new(c, environment)),
            CongestionConfig::Custom(factory) => AnyCongestion::Custom(factory(environment)),
        }
    }
}

impl core::fmt::Debug for CongestionConfig {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CongestionConfig::Nscc(c) => c.fmt(f),
            CongestionConfig::Dcqcn(c) => c.fmt(f),
            CongestionConfig::Dctcp(c) => c.fmt(f),
            CongestionConfig::Swift(c) => c.fmt(f),
            CongestionConfig::Strack(c) => c.fmt(f),
            CongestionConfig::Fixed(c) => c.fmt(f),
            CongestionConfig::Paced(c) => c.fmt(f),
            CongestionConfig::LongHaul(c) => c.fmt(f),
            CongestionConfig::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// `x`, or the floor if it is below.
fn at_least(x: f64, floor: f64) -> f64 {
    if x < floor { floor } else { x }
}

macro_rules! each {
    ($self:expr, $c:ident => $call:expr) => {
        match $self {
            AnyCongestion::Nscc($c) => $call,
            AnyCongestion::Dcqcn($c) => $call,
            AnyCongestion::Dctcp($c) => $call,
            AnyCongestion::Swift($c) => $call,
            AnyCongestion::Strack($c) => $call,
            AnyCongestion::Fixed($c) => $call,
            AnyCongestion::Paced($c) => $call,
            AnyCongestion::LongHaul($c) => $call,
            AnyCongestion::Custom($c) => $call,
        }
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
