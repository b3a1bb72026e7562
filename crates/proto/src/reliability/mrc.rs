//! MRC's reliability: selective repeat within a bounded range of PSNs (MPR), five ways to find a loss, and timers that
//! are constant for some retries and then double with each retry, until the budget is used up.
//!
//! [`SelectiveRepeat`] does the work, with losses found by NACKs and by lateness; this file has MRC's own settings.

use super::selective_repeat::{LossDetection, Retry, SelectiveReceiver, SelectiveRepeat, SelectiveRepeatConfig};
use super::{AnyReceiver, AnyReliability, ReliabilityPolicy};
use crate::environment::{Environment, TransportConfig};
use crate::host::HostTraits;
use crate::parameters;
use crate::profile::SwitchConfig;
use crate::units::Span;

/// Packets in one word of MRC's SACK bitmap; `psn_range` counts words.
pub(crate) const SACK_WORD: u32 = 128;

parameters! {
    /// MRC's selective acknowledgements, loss detection and retransmission timers.
    pub struct MrcSackConfig {
        /// The sender stays within this many times 128 PSNs of the oldest packet not acknowledged (MPR).
        psn_range: u32 = 8, 1.0..=255.0, "OCP MRC 1.0, samples: MPR 8";
        /// Trackers of a receiving host: packets that all its connections may hold above their first missing one. Its
        /// acknowledgements then carry the range of PSNs that this leaves to each connection, and senders obey it
        /// (dynamic MPR). Zero: the range is `psn_range`, and says nothing.
        trackers: u32 = 0, 0.0..=4294967295.0, "ours: OCP MRC 1.0 has dynamic MPR, and does not say when it changes";
        /// A packet is lost when a packet sent this many base RTTs later has arrived: the target queueing delay.
        reorder: f64 = 0.75, 0.0..=1000.0, "ours: the source leaves the criterion open; NSCC's target with trimming";
        /// The minimum of that time.
        reorder_min: Span = Span::from_us(4), 0.0..=1.0e12, "ours: a queue of few packets on a slow plane is no loss";
        /// That time is also at least the average lateness of packets plus this many mean deviations.
        reorder_spread: f64 = 8.0, 0.0..=1000.0, "ours: as strack_fast; uneven planes are no loss";
        /// If paths keep order, a packet is also lost when a packet sent this many base RTTs later over the same path
        /// has arrived; zero: off.
        reorder_path: f64 = 1.0, 0.0..=1000.0, "ours: kernels may move a sender to another queue of its port meanwhile";
        /// Retransmission timeout T; zero takes the smallest 1.024 us times a power of two that is three times base RTT
        /// and target.
        timeout: Span = Span::ZERO, 0.0..=1.8e13, "OCP MRC 1.0: 1.024 us * 2^t; the choice of t is ours";
        /// Retries that wait for T each.
        retries_linear: u32 = 7, 0.0..=7.0, "OCP MRC 1.0, samples: 7, the largest value";
        /// Further retries, each with twice the timeout of the one before; then the connection fails. 25: retry for
        /// ever.
        retries_exponential: u32 = 25, 0.0..=25.0, "OCP MRC 1.0, samples: 25, which means for ever";
        /// The longest timeout.
        timeout_max: Span = Span::from_ms(100), 1.0e6..=1.8e13, "ours: the longest time between probes of a path";
        /// Switches may trim data that is sent for the first time (TRIMMABLE); false: they drop it (NO_TRIM), as for a
        /// receiver that cannot send NACKs for trimmed packets.
        trim_data: bool = true, 0.0..=1.0, "OCP MRC 1.0: TRIMMABLE and NO_TRIM";
        /// Switches may trim retransmissions (TRIMMABLE_RETX); false: they drop them (NO_TRIM).
        trim_again: bool = true, 0.0..=1.0, "OCP MRC 1.0: TRIMMABLE_RETX, an optional class";
    }
}

impl MrcSackConfig {
    /// A packet sent this much earlier than a packet that has arrived is late.
    fn reorder_window(&self, environment: &Environment) -> Span {
        environment.base_rtt.scaled(self.reorder).max(self.reorder_min)
    }

    /// T.
    fn first_timeout(&self, environment: &Environment) -> Span {
        if self.timeout > Span::ZERO {
            return self.timeout.max(environment.timeout_min());
        }
        let least = (environment.base_rtt + environment.base_rtt.scaled(self.reorder)) * 3;
        let mut timeout = Span::from_ns(1024);
        // 2^24 is the largest multiple that the field can hold.
        for _ in 0..24 {
            if timeout < least {
                timeout = timeout * 2;
            }
        }
        timeout.max(environment.timeout_min())
    }

    fn machinery(&self) -> SelectiveRepeatConfig {
        SelectiveRepeatConfig {
            late_spread: self.reorder_spread,
            late_path: self.reorder_path,
            sack_rotates: true,
            window_psn: self.psn_range * SACK_WORD,
            ..SelectiveRepeatConfig::default()
        }
    }
}

impl ReliabilityPolicy for MrcSackConfig {
    fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability {
        let retry = Retry::new(self.retries_linear, self.retries_exponential, self.timeout_max);
        let machine = SelectiveRepeat::build(&self.machinery(), LossDetection::Lateness, transport, environment)
            .with_lateness(self.reorder_window(environment), self.reorder_spread)
            .with_retries(self.first_timeout(environment), retry)
            .with_dynamic_range(self.trackers > 0);
        AnyReliability::SelectiveRepeat(machine)
    }
    fn build_receiver(&self, transport: &TransportConfig, _environment: &Environment) -> AnyReceiver {
        AnyReceiver::Selective(SelectiveReceiver::new(&self.machinery(), transport).refusing())
    }
    fn timeout(&self, environment: &Environment) -> Span {
        self.first_timeout(environment)
    }
    fn range(&self) -> Option<u32> {
        Some(self.psn_range * SACK_WORD)
    }
    fn trackers(&self) -> u32 {
        self.trackers
    }
    fn may_trim(&self, again: bool) -> bool {
        if again { self.trim_again } else { self.trim_data }
    }
    fn adapt_to(&mut self, host: &HostTraits, transport: &TransportConfig, _switch: &SwitchConfig) {
        let mtu = u64::from(transport.mtu);
        self.timeout = self.timeout.max(host.timer_slack);
        self.timeout_max = self.timeout_max.max(host.timer_slack);
        self.reorder_min = self.reorder_min.max(host.late_min);
        // The range must cover the packets that are sent while a loss is found and repaired; at most 128 words.
        let packets = host.rate.bytes_in(host.late_min * 2).0 / mtu;
        self.psn_range = self.psn_range.max(packets.div_ceil(u64::from(SACK_WORD)).min(128) as u32);
    }
}
