//! The parameters of selective repeat.

use super::{SelectiveReceiver, SelectiveRepeat};
use crate::environment::{Environment, TransportConfig};
use crate::host::HostTraits;
use crate::parameters;
use crate::profile::SwitchConfig;
use crate::reliability::{AnyReceiver, AnyReliability, ReliabilityPolicy};
use crate::units::{Rate, Span};

/// How losses are found, timeouts aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// By NACKs of trimmed packets alone.
    Trimming,
    /// By the count of packets held out of order, and by probes (SLEEK).
    Reordering,
    /// By the arrival of packets that were sent much later (`strack_fast`).
    Lateness,
    /// By any packet ahead of a hole (IRN).
    Holes,
}

parameters! {
    /// Selective repeat.
    pub struct SelectiveRepeatConfig {
        /// A packet that arrives ahead of a hole means that the hole is lost, as in single-path IRN.
        holes: bool = false, 0.0..=1.0, "Mittal et al., SIGCOMM 2018 (IRN), section 3.1; off for sprayed profiles";
        /// A fast recovery sends again every missing packet up to the last one sent, also those above the highest PSN
        /// known to have arrived.
        recover_all: bool = false, 0.0..=1.0, "ours: nothing above the highest PSN known to have arrived; the UEC simulator: true";
        /// Without trimming, a packet is lost if a packet sent this many base RTTs later has arrived before it; zero:
        /// losses show only by a window of packets held out of order or by a probe (SLEEK).
        late: f64 = 0.0, 0.0..=1000.0, "ours: strack_fast; zero as the UEC simulator";
        /// ... and if it is later than the average lateness plus this many mean deviations.
        late_spread: f64 = 8.0, 0.0..=1000.0, "ours: strack_fast; in a fabric that reorders widely nothing is given up early";
        /// With `late`, and where paths keep order, a packet is also lost if a packet sent this many base RTTs later
        /// over the same path has arrived before it; zero: off.
        late_path: f64 = 1.0, 0.0..=1000.0, "ours: kernels may move a sender to another queue of its port meanwhile";
        /// Each acknowledgement reports the next 64 packets of the window in turn, instead of the 64 around the packet
        /// that caused it.
        sack_rotates: bool = false, 0.0..=1.0, "ours: strack_fast; false as UEC 1.0";
        /// Retransmission timeout; zero computes 15 us + 6 queues' drain time (floor `rto_min` without trimming). No
        /// timeout is shorter than two base RTTs.
        rto: Span = Span::ZERO, 0.0..=1.0e13, "UEC simulator: 15 us + 6 * queue / rate";
        /// The computed timeout is no shorter than this in a fabric without trimming.
        rto_min: Span = Span::from_us(100), 0.0..=1.0e13, "UEC simulator: default floor of its recovery without trimming";
        /// IRN: the timeout while at most `rto_low_packets` are in flight.
        rto_low: Span = Span::from_us(100), 1.0e6..=1.0e13, "Mittal et al., SIGCOMM 2018, section 4.1: RTO_low 100 us";
        /// IRN: the timeout otherwise.
        rto_high: Span = Span::from_us(320), 1.0e6..=1.0e13, "Mittal et al., SIGCOMM 2018, section 4.1: RTO_high 320 us";
        /// IRN: with at most this many packets in flight, the timeout is `rto_low`.
        rto_low_packets: u32 = 3, 0.0..=1000.0, "Mittal et al., SIGCOMM 2018, section 4.1: N = 3";
        /// IRN: at most this many bandwidth-delay products in flight; zero sets no such cap.
        flight_bdp: f64 = 0.0, 0.0..=1000.0, "Mittal et al., SIGCOMM 2018, section 3.2: BDP-FC, 1 BDP";
        /// The sender stays less than this many sequence numbers ahead of the oldest packet not acknowledged.
        window_psn: u32 = 16_384, 64.0..=4194304.0, "ours: bounds the receiver's bitmap (2 KiB) at many BDP";
    }
}

impl ReliabilityPolicy for SelectiveRepeatConfig {
    fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability {
        AnyReliability::SelectiveRepeat(SelectiveRepeat::new(self, transport, environment))
    }
    fn build_receiver(&self, transport: &TransportConfig, _environment: &Environment) -> AnyReceiver {
        AnyReceiver::Selective(SelectiveReceiver::new(self, transport))
    }
    fn timeout(&self, environment: &Environment) -> Span {
        self.timeout_of(self.holes, environment)
    }
    fn range(&self) -> Option<u32> {
        Some(self.window_psn)
    }
    fn adapt_to(&mut self, host: &HostTraits, _transport: &TransportConfig, switch: &SwitchConfig) {
        let floor = host.timer_slack;
        self.rto_min = self.rto_min.max(floor);
        self.rto_low = self.rto_low.max(floor);
        self.rto_high = self.rto_high.max(floor);
        // A profile made for switches that trim, on a fabric that does not trim, would notice a loss only by a window
        // of packets or a timeout. Lateness finds it earlier.
        let blind = switch.trimming && !host.trimming && !self.holes;
        self.sack_rotates |= blind;
        if blind || self.late > 0.0 {
            self.late = self.late.max(host.late_min.0 as f64 / host.base_rtt.0 as f64);
        }
        if self.rto > Span::ZERO {
            self.rto = self.rto.max(floor);
        } else if host.trimming {
            // The drain time of six queues, as `timeout_of` computes it; computed here because `timeout_of` applies no
            // floor with trimming.
            let port = Rate(host.rate.0 / u64::from(host.ports.max(1)));
            self.rto = floor.max(port.time_for(host.queue) * 6);
        }
    }
}

impl SelectiveRepeatConfig {
    /// The parameters of IRN.
    pub fn irn() -> SelectiveRepeatConfig {
        SelectiveRepeatConfig { holes: true, flight_bdp: 1.0, ..SelectiveRepeatConfig::default() }
    }

    /// The retransmission timeout with many packets in flight; `holes`: losses are found by holes.
    pub(super) fn timeout_of(&self, holes: bool, environment: &Environment) -> Span {
        let port_rate = Rate(environment.rate.0 / u64::from(environment.ports.max(1)));
        let computed = Span::from_us(15) + port_rate.time_for(environment.queue) * 6;
        let computed = if environment.trimming { computed } else { computed.max(self.rto_min) };
        let timeout = match (holes, self.rto) {
            (true, _) => self.rto_high,
            (false, Span::ZERO) => computed,
            (false, rto) => rto,
        };
        timeout.max(environment.timeout_min())
    }
}
