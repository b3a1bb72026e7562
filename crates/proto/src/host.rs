//! Adapts a profile to a general-purpose host in place of a NIC. There, timers are late, one system call costs as much
//! time as many packets, and a process that does not read its socket looks like a queue.

use crate::environment::TransportConfig;
use crate::profile::Profile;
use crate::units::{Bytes, Rate, Span};

/// An acknowledgement is due after at most this many packets, so that its selective bits can cover them. Ours.
const ACK_PACKETS_MAX: u64 = 24;
/// An acknowledgement is due after at most this many bytes. Ours.
const ACK_BYTES_MAX: u64 = 65_536;

/// The properties of a host that matter to its transport.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostTraits {
    /// Line rate of all ports together.
    pub rate: Rate,
    /// Ports.
    pub ports: u8,
    /// Round trip of a packet and its acknowledgement without queueing, including the time to wake the other side.
    pub base_rtt: Span,
    /// The delay of an answer by a host that sleeps or whose cores are busy; the shortest retransmission timeout.
    pub timer_slack: Span,
    /// A packet counts as overtaken only if a packet sent at least this much later over another path has arrived.
    pub late_min: Span,
    /// Payload bytes in a row on one path, because one system call sends to one address only.
    pub batch: Bytes,
    /// The largest number of bytes on their way to the receiving sockets at the same time.
    pub catch_up: Bytes,
    /// The largest number of bytes that may be queued ahead of a packet.
    pub queue: Bytes,
    /// True if switches on the path trim packets, false if they drop them.
    pub trimming: bool,
}

impl Profile {
    /// Adapts the profile to a host with these properties. Packet sizes must be set before.
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
        // Whole packets, at least `batch` bytes.
        self.burst = host.batch.0.div_ceil(mtu).clamp(1, 65_535) as u32;
        self.ack_every = if host.trimming {
            // Acknowledge every packet: NACKs can shrink a window below `ack_every`, and then only a timeout would
            // bring an acknowledgement.
            Bytes(1)
        } else {
            // Each acknowledgement costs both sides a system call, so one is sent per eighth of the bytes in flight, at
            // most as many packets as a SACK can cover.
            let eighth = host.rate.bytes_in(host.base_rtt).0 / 8;
            self.ack_every.max(Bytes(eighth.min(mtu * ACK_PACKETS_MAX).min(ACK_BYTES_MAX)))
        };
        // A host that slept may catch up, by at most the bytes that its peer's socket holds. `rtt_min` hides the peers'
        // sleep, which is no queueing delay.
        self.pace_slack = host.base_rtt.min(host.rate.time_for(host.catch_up));
        self.rtt_min = host.base_rtt;
        // A node has few connections, and their state is worth more than their memory.
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
                    // The repair schemes' timeouts are multiples of a round trip.
                    _ => vec![],
                };
                assert!(timeouts.iter().all(|&timeout| timeout >= host.timer_slack), "{name}: {timeouts:?}");
                assert_eq!(profile.transport.burst, 4, "16 KiB are four packets of 4 KiB");
                assert_eq!(profile.transport.ack_every == Bytes(1), trimming, "{name}");
                // Congestion control and path selection are as in a NIC, except for a rate that the NIC itself would
                // pace.
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

    /// A profile made for trimming finds losses by lateness on switches that do not trim.
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
