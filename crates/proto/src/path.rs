//! Path selection: which path each packet takes.
//!
//! A selector gives the path of the next packet and gets feedback about earlier ones. Feedback has the same meaning for
//! every selector, as in UEC 1.0: see [`PathFeedback`].

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
mod tally;

pub use bitmap::{BitmapConfig, BitmapSpray};
pub use manager::PathManager;
pub use mixed::{Mixed, MixedConfig};
pub use mrc::{EVS_MAX, EvField, EvProfile, Mrc, MrcConfig, PATH_EVENTS_MAX, PathChange, PathEvent, ev_of, path_of_ev};
pub use oblivious::{Oblivious, ObliviousConfig};
pub use prime::{Prime, PrimeConfig};
pub use reps::{Reps, RepsConfig};
pub use single::{Single, SingleConfig};
pub(crate) use tally::PathTally;
pub use tally::{PathCounts, TALLY_MAX};

use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameter::ParameterSet;
use crate::policy::{configurations, dispatch, states};
use crate::profile::Routing;
use crate::rng::Random;
use crate::units::{Span, Time};
use std::sync::Arc;

/// The table of path selectors. One row is everything this file knows about a selector; `crate::policy` explains rows.
macro_rules! selectors {
    ($make:ident $with:tt) => {
        $make! { $with
            /// One path for the whole life of a connection, as with RoCEv2 over ECMP.
            single: Single(SingleConfig, Single),
            /// Entropy values in turn or at random, without feedback.
            oblivious: Oblivious(ObliviousConfig, Oblivious),
            /// Entropy values in turn, except those with penalties (UEC, STrack).
            bitmap: Bitmap(BitmapConfig, BitmapSpray),
            /// Uses entropy values of unmarked acknowledgements again (REPS).
            reps: Reps(RepsConfig, Reps),
            /// A recycled entropy value if there is one, otherwise the bitmap's next.
            mixed: Mixed(MixedConfig, Box<Mixed>),
            /// Uplinks in turn at every tier, except those with penalties (PRIME).
            prime: Prime(PrimeConfig, Prime),
            /// A set of static paths with a state each, backups and probes (MRC).
            mrc: Mrc(MrcConfig, Box<Mrc>),
        }
    };
}

/// How a packet fared on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFeedback {
    /// Acknowledged without a mark.
    Good,
    /// It carried CE, or was trimmed at the last hop with CE.
    Marked,
    /// Trimmed before the last hop.
    Trimmed,
    /// Found lost: later packets or a probe arrived, but this packet did not.
    Lost,
    /// Not acknowledged within a retransmission timeout.
    TimedOut,
    /// The receiver considers the path persistently bad (MRC: "always skip").
    Shunned,
}

/// A probe of one path, which must be sent by that path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProbe {
    /// From connection to connection: answered with an acknowledgement.
    Connection {
        /// The path.
        path: PathId,
        /// The probe's number.
        number: u32,
    },
    /// From NIC to NIC: answered even if the connection has nothing to acknowledge.
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
    /// It is skipped at its next turn, and is good afterwards.
    Skip = 1,
    /// It has lost a packet; probes decide when it is good again.
    AssumedBad = 2,
    /// The controller forbids it.
    Denied = 3,
}

/// One path of MRC's set, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathState {
    /// The path.
    pub path: PathId,
    /// Its state.
    pub status: PathStatus,
    /// True if it is in use, false if it is in reserve.
    pub active: bool,
}

/// The number of paths of one plane in each state, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneStates {
    /// The NIC port.
    pub port: u8,
    /// Are our port and the peer's up, as far as we know?
    pub usable: bool,
    /// In use.
    pub good: u32,
    /// In use, but skipped at the next turn.
    pub skip: u32,
    /// Taken out after a loss; probed.
    pub assumed_bad: u32,
    /// Forbidden by the controller.
    pub denied: u32,
    /// Good and held in reserve.
    pub backup: u32,
}

/// Counters of MRC's set of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Paths taken out after a failure.
    pub retired: u64,
    /// Paths that came back after probes.
    pub returned: u64,
    /// Failures without effect, because too few paths were left.
    pub suppressed: u64,
    /// Verdicts about paths that are not in the set; they have no effect.
    pub unknown: u64,
}

/// Chooses the path of the next packet. A set of paths with states, probes and port status needs more: a
/// [`PathManager`].
pub trait PathSelector: Send {
    /// The next path among the ports that are free for data, or `None` if none of its paths starts at a free port.
    /// Each call that returns a path advances the spray.
    fn next(&mut self, now: Time, free: Ports) -> Option<PathId>;
    /// Gives feedback about a packet sent over `path`.
    fn on_feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback);
    /// Gives the total queueing delay of a packet sent over `path`.
    fn on_delay(&mut self, _now: Time, _path: PathId, _delay: Span) {}
    /// A data packet of this many wire bytes leaves by the path that was drawn last.
    fn on_sent(&mut self, _bytes: u32) {}
    /// The present penalty of each of its paths or uplinks, for reports; in the selector's own units.
    fn penalties(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// Makes the path selector of one connection from its environment and random stream.
///
/// ```
/// use std::sync::Arc;
/// use strandway_proto::path::{PathConfig, PathFeedback, PathSelector};
/// use strandway_proto::{PathId, Ports, Time};
///
/// /// Counts entropy values up, whatever becomes of the packets.
/// struct Counter(u32);
///
/// impl PathSelector for Counter {
///     fn next(&mut self, _now: Time, free: Ports) -> Option<PathId> {
///         let port = free.data.trailing_zeros();
///         self.0 += 1;
///         (port < 32).then(|| PathId::new(port as u8, self.0))
///     }
///     fn on_feedback(&mut self, _now: Time, _path: PathId, _feedback: PathFeedback) {}
/// }
///
/// let mut profile = strandway_proto::Profile::preset("uec").expect("a preset");
/// profile.path = PathConfig::Custom(Arc::new(|_environment, _random| Box::new(Counter(0))));
/// assert_eq!(profile.path.name(), "custom");
/// ```
pub type PathFactory = Arc<dyn Fn(&Environment, Random) -> Box<dyn PathSelector> + Send + Sync>;

/// The calls that a path selector's parameters must answer.
pub(crate) trait PathPolicy: ParameterSet {
    /// The state for one connection.
    fn build(&self, environment: &Environment, random: Random) -> AnyPath;
    /// How it wants switches to choose among equal uplinks.
    fn routing(&self) -> Routing {
        Routing::Hashed
    }
}

selectors!(configurations [
    /// A choice of path selector, with its parameters.
    PathConfig: PathPolicy,
    /// Anything from outside.
    Custom(PathFactory)
]);

selectors!(states [
    /// A path selector, stored without a box.
    AnyPath, Box<dyn PathSelector>
]);

impl PathConfig {
    /// Its parameters; none for a custom one.
    pub fn parameters(&mut self) -> Option<&mut dyn ParameterSet> {
        self.policy_mut().map(|policy| policy as &mut dyn ParameterSet)
    }

    /// How it wants switches to choose among equal uplinks; custom ones expect a hash.
    pub(crate) fn routing(&self) -> Routing {
        self.policy().map_or(Routing::Hashed, |policy| policy.routing())
    }

    /// The state for one connection.
    pub fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        match (self, self.policy()) {
            (PathConfig::Custom(factory), _) => AnyPath::Custom(factory(environment, random)),
            (_, Some(policy)) => policy.build(environment, random),
            (_, None) => unreachable!("only a custom one has no file"),
        }
    }
}

macro_rules! each {
    ($self:expr, $s:ident => $call:expr) => {
        selectors!(dispatch [AnyPath, $self, $s => $call])
    };
}

impl AnyPath {
    /// The port of all its paths, if there is only one.
    pub(crate) fn only_port(&self) -> Option<u8> {
        if let AnyPath::Single(single) = self { Some(single.port()) } else { None }
    }

    /// Calls `fetch` with the addresses of memory behind its pointers that the next packet will need.
    #[inline]
    pub(crate) fn name_memory(&self, fetch: impl Fn(*const u8)) {
        if let AnyPath::Mrc(mrc) = self {
            let first = std::ptr::from_ref::<Mrc>(mrc).cast::<u8>();
            (0..size_of::<Mrc>().div_ceil(64)).for_each(|line| fetch(first.wrapping_add(64 * line)));
        }
    }

    /// Calls `fetch` with the addresses of memory that holds the paths of the next packets. [`AnyPath::name_memory`]
    /// must have named the memory that leads to them.
    #[inline]
    pub(crate) fn name_paths(&self, fetch: impl Fn(*const u8)) {
        if let AnyPath::Mrc(mrc) = self {
            mrc.name_paths(fetch);
        }
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
    #[inline]
    fn on_sent(&mut self, bytes: u32) {
        match self {
            AnyPath::Prime(prime) => prime.on_sent(bytes),
            AnyPath::Custom(custom) => custom.on_sent(bytes),
            // The others do not count bytes.
            _ => {}
        }
    }
    fn penalties(&self) -> Vec<u32> {
        each!(self, s => s.penalties())
    }
}
