//! What a profile changes where it runs on a general-purpose host rather than in a NIC: timers are late, a system call costs as much
//! as many packets, and whoever does not come to read its socket looks like a queue.

use crate::environment::TransportConfig;
use crate::profile::Profile;
use crate::units::{Bytes, Rate, Span};

/// Packets that a selective acknowledgement can tell of, at the most, after which one should be sent: ours.
const ACK_PACKETS_MAX: u64 = 24;
/// Bytes after which an acknowledgement should be sent, whatever is under way: ours.
const ACK_BYTES_MAX: u64 = 65_536;

/// A host as its transport sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostTraits {
    /// Line rate of all ports together.
    pub rate: Rate,
    /// Ports.
    pub ports: u8,
    /// Round trip of a packet and its acknowledgement without queueing, waking of the other side included.
    pub base_rtt: Span,
    /// A host that sleeps, or whose cores are busy, answers this late: no retransmission timeout is shorter.
    pub timer_slack: Span,
    /// Nothing is given up as overtaken before something sent this much later has arrived over another path.
    pub late_min: Span,
    /// Payload bytes that go one way in a row: one system call sends to one address only.
    pub batch: Bytes,
    /// Bytes that may be on their way into the receiving sockets at once.
    pub catch_up: Bytes,
    /// Bytes that may wait before a packet.
    pub queue: Bytes,
    /// Do switches on the way trim packets rather than drop them?
    pub trimming: bool,
}

impl Profile {
    /// Runs on such a host from now on. Sizes of packets must be set before.
    pub fn adapt_to(&mut self, host: &HostTraits) {
        self.transport.adapt_to(host);
        if let Some(reliability) = self.reliability.policy_mut() {
            reliability.adapt_to(host, &self.transport, &self.switch);
        }
        if let Some(congestion) = self.congestion.policy_mut() {
            congestion.adapt_to(host);
        }
    }
}

impl TransportConfig {
    fn adapt_to(&mut self, host: &HostTraits) {
        let mtu = u64::from(self.mtu);
        // Whole packets, and no fewer bytes than asked for.
        self.burst = host.batch.0.div_ceil(mtu).clamp(1, 65_535) as u32;
        self.ack_every = if host.trimming {
            // NACKs shrink a window below the bytes that an acknowledgement waits for, and then only a timeout would go on.
            Bytes(1)
        } else {
            // Each acknowledgement costs both sides a system call: an eighth of what is under way, within what a SACK can tell.
            let eighth = host.rate.bytes_in(host.base_rtt).0 / 8;
            self.ack_every.max(Bytes(eighth.min(mtu * ACK_PACKETS_MAX).min(ACK_BYTES_MAX)))
        };
        // A host that slept catches up, by no more than the socket of its peer holds; and its peers' sleep is no queue.
        self.pace_slack = host.base_rtt.min(host.rate.time_for(host.catch_up));
        self.rtt_min = host.base_rtt;
        // A node has few connections, and what they have learnt is worth more than their memory.
        self.sleep_after = Span::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::CongestionConfig;
    use crate::reliability::ReliabilityConfig;

    fn host() -> HostTraits {
        HostTraits {
            rate: Rate::from_gbps(40),
            ports: 2,
            base_rtt: Span::from_us(100),
            timer_slack: Span::from_ms(20),
            late_min: Span::from_ms(2),
            batch: Bytes(16_384),
            catch_up: Bytes(4 << 20),
            queue: Bytes(1 << 20),
            trimming: false,
        }
    }

    #[test]
    fn every_preset_waits_for_a_host_that_sleeps_and_adapts_once() {
        for name in Profile::NAMES {
            for trimming in [false, true] {
                let host = HostTraits { trimming, ..host() };
                let before = Profile::preset(name).expect("a preset");
                let mut profile = before.clone();
                profile.adapt_to(&host);
                let timeouts = match &profile.reliability {
                    ReliabilityConfig::GoBackN(c) => vec![c.rto],
                    ReliabilityConfig::SelectiveRepeat(c) => vec![c.rto_min, c.rto_low, c.rto_high],
                    ReliabilityConfig::MrcSack(c) => vec![c.timeout, c.timeout_max],
                    // Multiples of a round trip, and so much more.
                    _ => vec![],
                };
                assert!(timeouts.iter().all(|&timeout| timeout >= host.timer_slack), "{name}: {timeouts:?}");
                assert_eq!(profile.transport.burst, 4, "16 KiB are four packets of 4 KiB");
                assert_eq!(profile.transport.ack_every == Bytes(1), trimming, "{name}");
                // How much and which way are as in a NIC, but for what the NIC itself would pace.
                if let CongestionConfig::Paced(paced) = &profile.congestion {
                    assert_eq!(paced.rate, host.rate);
                } else {
                    assert_eq!(format!("{:?}", profile.congestion), format!("{:?}", before.congestion));
                }
                assert_eq!(format!("{:?}", profile.path), format!("{:?}", before.path));
                let once = format!("{profile:?}");
                profile.adapt_to(&host);
                assert_eq!(format!("{profile:?}"), once, "{name}: a second time changes nothing");
            }
        }
    }

    /// Where switches would have told of a loss by trimming and do not, lateness does.
    #[test]
    fn a_profile_made_for_trimming_finds_losses_by_lateness_without_it() {
        for (trimming, late) in [(false, true), (true, false)] {
            let mut profile = Profile::preset("uec").expect("a preset");
            profile.adapt_to(&HostTraits { trimming, ..host() });
            let ReliabilityConfig::SelectiveRepeat(config) = &profile.reliability else {
                panic!("uec repeats selectively")
            };
            assert_eq!((config.late > 0.0, config.sack_rotates), (late, late));
        }
    }
}
