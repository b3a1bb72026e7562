//! The keys of a connection: datagrams are sealed and opened here.

use super::SessionCounters;
use crate::config::Config;
use crate::handshake::Secrets;
use crate::secure::{Opener, Refused, Sealer};

/// The cryptographic part of a connection.
pub(super) struct Crypto {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    /// The DSCP of datagrams that switches have trimmed; `None` without trimming.
    pub(super) trimmed_dscp: Option<u8>,
}

impl Crypto {
    /// The keys of the side that called, or of the other one. A sender may be `window` packets ahead of the oldest one
    /// that its receiver misses.
    pub(super) fn new(config: &Config, secrets: &Secrets, calls: bool, window: u32) -> Crypto {
        let (ours, theirs) =
            if calls { (&secrets.from_caller, &secrets.to_caller) } else { (&secrets.to_caller, &secrets.from_caller) };
        Crypto {
            sealer: Sealer::new(ours, config.protection),
            opener: Opener::new(theirs, config.protection, (2 * u64::from(window)).saturating_sub(64)),
            trimmed_dscp: config.trimming.then_some(config.control_dscp),
        }
    }

    /// Decrypts a datagram where it lies. Returns its body, and whether no datagram with a higher counter has come.
    /// `None` if it is not genuine, or came before; it is counted then.
    pub(super) fn open<'d>(
        &mut self,
        counter: u64,
        datagram: &'d mut [u8],
        counters: &mut SessionCounters,
    ) -> Option<(&'d [u8], bool)> {
        let newest = self.opener.is_newest(counter);
        match self.opener.open(counter, datagram) {
            Ok(body) => return Some((body, newest)),
            Err(Refused::Repeated) => counters.repeated += 1,
            Err(Refused::Forged) => counters.forged += 1,
        }
        None
    }
}
