//! The facts that all connections of one profile in one environment share.

use crate::congestion::CreditTerms;
use crate::environment::Environment;
use crate::path::{MrcConfig, PathConfig};
use crate::profile::{Profile, WireFormat};
use crate::units::Span;
use std::fmt::Write;
use std::sync::Arc;

/// The answers that every packet needs: a connection has a copy of them in its first cache line.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    /// The path selector has timers or probes of its own.
    pub(super) watches_paths: bool,
    /// Congestion control has a rate, or must see each packet as it is sent.
    pub(super) paces: bool,
    /// The receiver reports persistently bad paths to the sender.
    pub(super) shuns: bool,
    /// A packet that is sent again takes another path than before, where there is one.
    pub(super) retries_elsewhere: bool,
    /// Control messages take the place of acknowledgements.
    pub(crate) is_one_way: bool,
}

/// A profile in an environment, and the facts that follow from the two. All connections of this kind share it, also those of
/// other hosts ([`crate::Endpoint::learn_from`]).
pub(crate) struct Kind {
    pub(crate) habits: Habits,
    /// Bad paths are also probed while nothing is sent.
    pub(super) probes_idle: bool,
    /// The smallest window in wire bytes. A receiver that acknowledges whole chunks must be sent whole chunks.
    pub(super) window_min: u64,
    /// Congestion control reads the records of switches.
    pub(crate) reads_telemetry: bool,
    /// How congestion control uses the receiver's credit; `None` if it does not.
    pub(crate) credit: Option<CreditTerms>,
    /// Connections to one host share one window.
    pub(crate) shares_window: bool,
    /// Congestion control and path selector start again as new after this much idle time; `None`: never.
    pub(crate) sleep_after: Option<Span>,
    /// MRC's parameters, if its path selector is MRC's.
    pub(crate) mrc: Option<MrcConfig>,
    /// A hash of the profile's parameters, if windows are shared: equal profiles have equal fingerprints.
    pub(crate) fingerprint: u64,
    pub(crate) environment: Environment,
    pub(crate) profile: Arc<Profile>,
}

impl Kind {
    /// `alike` holds known kinds; if one has the same profile, its fingerprint is used.
    pub(crate) fn new(profile: Arc<Profile>, environment: Environment, alike: &[Arc<Kind>]) -> Kind {
        let known = alike.iter().find(|kind| Arc::ptr_eq(&kind.profile, &profile)).map(|kind| kind.fingerprint);
        let mrc = if let PathConfig::Mrc(config) = &profile.path { Some(*config) } else { None };
        let shares_window = profile.congestion.is_per_destination();
        let is_custom = profile.path.policy().is_none() || profile.congestion.policy().is_none();
        let credit = profile.congestion.credit().filter(|_| !profile.reliability.is_one_way());
        let keeps = mrc.is_some()
            || credit.is_some()
            || shares_window
            || is_custom
            || profile.congestion.wants_counts()
            || profile.transport.sleep_after == Span::ZERO;
        Kind {
            habits: Habits {
                watches_paths: mrc.is_some() || profile.path.policy().is_none(),
                paces: profile.congestion.paces(),
                shuns: profile.wire == WireFormat::Mrc && mrc.is_some_and(|config| config.shun_marks > 0),
                retries_elsewhere: mrc.is_some(),
                is_one_way: profile.reliability.is_one_way(),
            },
            probes_idle: mrc.is_some_and(|config| config.probe_idle),
            reads_telemetry: profile.congestion.reads_telemetry(),
            window_min: profile.reliability.chunk_packets() * environment.packet.0,
            credit,
            shares_window,
            sleep_after: (!keeps).then_some(profile.transport.sleep_after),
            mrc,
            fingerprint: if shares_window { known.unwrap_or_else(|| fingerprint(&profile)) } else { 0 },
            environment,
            profile,
        }
    }

    /// Is it the kind for this profile in this environment?
    pub(crate) fn is(&self, profile: &Arc<Profile>, environment: &Environment) -> bool {
        Arc::ptr_eq(&self.profile, profile) && self.environment == *environment
    }
}

/// FNV-1a of the profile's `Debug` text.
fn fingerprint(profile: &Profile) -> u64 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    write!(hash, "{profile:?}").expect("a hash takes every text");
    hash.0
}

struct Hash(u64);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 = text.bytes().fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Ok(())
    }
}
