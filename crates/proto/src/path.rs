//! Which way: path selection.
//!
//! A selector gives the path of the next packet and is told how earlier ones fared. Feedback means the same for every
//! selector, as in UEC 1.0: see [`PathFeedback`].

mod bitmap;
mod manager;
mod mixed;
mod mrc;
mod oblivious;
mod prime;
mod reps;
mod ring;
mod single;
mod spread;

pub use bitmap::{BitmapConfig, BitmapSpray};
pub use manager::PathManager;
pub use mixed::{Mixed, MixedConfig};
pub use mrc::{Mrc, MrcConfig};
pub use oblivious::{Oblivious, ObliviousConfig};
pub use prime::{Prime, PrimeConfig};
pub use reps::{Reps, RepsConfig};
pub use single::{Single, SingleConfig};

use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameter::ParameterSet;
use crate::rng::Random;
use crate::units::{Span, Time};
use std::sync::Arc;

/// How a packet fared on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFeedback {
    /// Acknowledged without a mark.
    Good,
    /// It carried CE, or was trimmed at the last hop with CE.
    Marked,
    /// Trimmed before the last hop.
    Trimmed,
    /// Found lost: later packets or a probe arrived without it.
    Lost,
    /// Never heard of again within a retransmission timeout.
    TimedOut,
    /// The receiver takes the path for persistently bad (MRC: "always skip").
    Shunned,
}

/// A probe of one path, to be sent by that path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProbe {
    /// From connection to connection: answered with an acknowledgement.
    Connection {
        /// The path.
        path: PathId,
        /// The probe's number.
        number: u32,
    },
    /// From NIC to NIC: answered whether the connection has anything to acknowledge or not.
    Endpoint {
        /// The path.
        path: PathId,
        /// The probe's number.
        number: u16,
    },
}

/// The state of a path in MRC's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PathStatus {
    /// Packets take it.
    Good = 0,
    /// It is passed over when its turn comes, and good then.
    Skip = 1,
    /// It has lost something; probes decide.
    AssumedBad = 2,
    /// The controller forbids it.
    Denied = 3,
}

/// One path of MRC's set, for those who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathState {
    /// The path.
    pub path: PathId,
    /// Its state.
    pub status: PathStatus,
    /// Is it in use rather than in reserve?
    pub active: bool,
}

/// How the paths of one plane fare, for those who watch: how many of them are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneStates {
    /// The NIC port.
    pub port: u8,
    /// Are our port and the peer's up, as far as we know?
    pub usable: bool,
    /// In use.
    pub good: u32,
    /// In use, to be passed over once.
    pub skip: u32,
    /// Taken out after a loss; probed.
    pub assumed_bad: u32,
    /// Forbidden by the controller.
    pub denied: u32,
    /// Good and held in reserve.
    pub backup: u32,
}

/// Which path the next packet takes. What a set of paths with states, probes and port reports needs beyond this is a
/// [`PathManager`].
pub trait PathSelector: Send {
    /// The next path among the ports that are free for data, or `None` if none of its paths starts at a free port.
    /// Each call that returns a path advances the spray.
    fn next(&mut self, now: Time, free: Ports) -> Option<PathId>;
    /// A packet sent over `path` fared like this.
    fn on_feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback);
    /// A packet sent over `path` was queued for so long in all.
    fn on_delay(&mut self, _now: Time, _path: PathId, _delay: Span) {}
    /// What is held against each of its paths or uplinks at present, for those who watch; in the selector's own units.
    fn penalties(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// Makes the path selector of one connection from its environment and random stream.
pub type PathFactory = Arc<dyn Fn(&Environment, Random) -> Box<dyn PathSelector> + Send + Sync>;

/// Which path selector, with its parameters.
#[derive(Clone)]
pub enum PathConfig {
    /// One path for life, as RoCEv2 over ECMP.
    Single(SingleConfig),
    /// Entropy values in turn or at random, whatever happens.
    Oblivious(ObliviousConfig),
    /// Entropy values in turn, those with penalties left out (UEC, STrack).
    Bitmap(BitmapConfig),
    /// Entropy values of unmarked acknowledgements again (REPS).
    Reps(RepsConfig),
    /// A recycled entropy value if there is one, else the bitmap's next.
    Mixed(MixedConfig),
    /// Uplinks in turn at every tier, those with penalties left out (PRIME).
    Prime(PrimeConfig),
    /// A set of static paths with a state each, backups and probes (MRC).
    Mrc(MrcConfig),
    /// Anything from outside.
    Custom(PathFactory),
}

/// A path selector, in place.
#[allow(missing_docs, reason = "each variant holds the type it is named after")]
pub enum AnyPath {
    Single(Single),
    Oblivious(Oblivious),
    Bitmap(BitmapSpray),
    Reps(Reps),
    Mixed(Box<Mixed>),
    Prime(Prime),
    Mrc(Box<Mrc>),
    Custom(Box<dyn PathSelector>),
}

impl PathConfig {
    /// The names that scenario files use, `custom` aside.
    pub const NAMES: [&str; 7] = ["single", "oblivious", "bitmap", "reps", "mixed", "prime", "mrc"];

    /// The path selector of that name with its default parameters.
    pub fn named(name: &str) -> Option<PathConfig> {
        Some(match name {
            "single" => PathConfig::Single(SingleConfig::default()),
            "oblivious" => PathConfig::Oblivious(ObliviousConfig::default()),
            "bitmap" => PathConfig::Bitmap(BitmapConfig::default()),
            "reps" => PathConfig::Reps(RepsConfig::default()),
            "mixed" => PathConfig::Mixed(MixedConfig::default()),
            "prime" => PathConfig::Prime(PrimeConfig::default()),
            "mrc" => PathConfig::Mrc(MrcConfig::default()),
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            PathConfig::Single(_) => "single",
            PathConfig::Oblivious(_) => "oblivious",
            PathConfig::Bitmap(_) => "bitmap",
            PathConfig::Reps(_) => "reps",
            PathConfig::Mixed(_) => "mixed",
            PathConfig::Prime(_) => "prime",
            PathConfig::Mrc(_) => "mrc",
            PathConfig::Custom(_) => "custom",
        }
    }

    /// Its parameters; none for a custom one.
    pub fn parameters(&mut self) -> Option<&mut dyn ParameterSet> {
        match self {
            PathConfig::Single(c) => Some(c),
            PathConfig::Oblivious(c) => Some(c),
            PathConfig::Bitmap(c) => Some(c),
            PathConfig::Reps(c) => Some(c),
            PathConfig::Mixed(c) => Some(c),
            PathConfig::Prime(c) => Some(c),
            PathConfig::Mrc(c) => Some(c),
            PathConfig::Custom(_) => None,
        }
    }

    /// The state for one connection.
    pub fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        match self {
            PathConfig::Single(c) => AnyPath::Single(Single::new(c, environment, random)),
            PathConfig::Oblivious(c) => AnyPath::Oblivious(Oblivious::new(c, environment, random)),
            PathConfig::Bitmap(c) => AnyPath::Bitmap(BitmapSpray::new(c, environment, random)),
            PathConfig::Reps(c) => AnyPath::Reps(Reps::new(c, environment, random)),
            PathConfig::Mixed(c) => AnyPath::Mixed(Box::new(Mixed::new(c, environment, random))),
            PathConfig::Prime(c) => AnyPath::Prime(Prime::new(c, environment, random)),
            PathConfig::Mrc(c) => AnyPath::Mrc(Box::new(Mrc::new(c, environment, random))),
            PathConfig::Custom(factory) => AnyPath::Custom(factory(environment, random)),
        }
    }
}

impl core::fmt::Debug for PathConfig {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PathConfig::Single(c) => c.fmt(f),
            PathConfig::Oblivious(c) => c.fmt(f),
            PathConfig::Bitmap(c) => c.fmt(f),
            PathConfig::Reps(c) => c.fmt(f),
            PathConfig::Mixed(c) => c.fmt(f),
            PathConfig::Prime(c) => c.fmt(f),
            PathConfig::Mrc(c) => c.fmt(f),
            PathConfig::Custom(_) => f.write_str("Custom"),
        }
    }
}

macro_rules! each {
    ($self:expr, $s:ident => $call:expr) => {
        match $self {
            AnyPath::Single($s) => $call,
            AnyPath::Oblivious($s) => $call,
            AnyPath::Bitmap($s) => $call,
            AnyPath::Reps($s) => $call,
            AnyPath::Mixed($s) => $call,
            AnyPath::Prime($s) => $call,
            AnyPath::Mrc($s) => $call,
            AnyPath::Custom($s) => $call,
        }
    };
}

impl AnyPath {
    /// The port of every path that it will ever give, if that is one.
    pub(crate) fn only_port(&self) -> Option<u8> {
        if let AnyPath::Single(single) = self { Some(single.port()) } else { None }
    }

    #[inline(never)]
    fn next_of_others(&mut self, now: Time, free: Ports) -> Option<PathId> {
        each!(self, s => s.next(now, free))
    }
}

impl PathSelector for AnyPath {
    #[inline]
    fn next(&mut self, now: Time, free: Ports) -> Option<PathId> {
        // The most frequent one is inlined.
        if let AnyPath::Bitmap(spray) = self { spray.next(now, free) } else { self.next_of_others(now, free) }
    }
    #[inline]
    fn on_feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback) {
        each!(self, s => s.on_feedback(now, path, feedback))
    }
    #[inline]
    fn on_delay(&mut self, now: Time, path: PathId, delay: Span) {
        each!(self, s => s.on_delay(now, path, delay))
    }
    fn penalties(&self) -> Vec<u32> {
        each!(self, s => s.penalties())
    }
}
