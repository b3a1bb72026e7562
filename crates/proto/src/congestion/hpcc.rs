//! HPCC: a window and a rate steered by the load that switches report for every link of the path.
//!
//! Each acknowledgement brings one record for each hop ([`Telemetry`]). Two records of the same link give its
//! utilisation. The window follows the busiest link: it is divided by the ratio of that link's utilisation to its
//! target.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, Cut, LossSample, at_least};
use crate::environment::{Environment, TransportConfig};
use crate::parameters;
use crate::telemetry::{TELEMETRY_BYTES, Telemetry};
use crate::units::{Bytes, Rate, Span, Time};

parameters! {
    /// Window control by the load that switches report.
    pub struct HpccConfig {
        /// The utilisation that every link should have (eta).
        target: f64 = 0.95, 0.1..=1.0, "HPCC, SIGCOMM 2019: eta = 95 %; its artefact: U_TARGET 0.95";
        /// After this many additive increases in a row, the window follows the utilisation (maxStage).
        stage_max: u32 = 5, 0.0..=1000.0, "HPCC, SIGCOMM 2019: maxStage = 5; its artefact ships MI_THRESH 0";
        /// Additive increase per round trip, as a share of the bandwidth-delay product (W_AI).
        additive: f64 = 0.0004, 0.0..=1.0, "HPCC artefact (run.py): 10 Mb/s per 25 Gb/s of line rate";
        /// The smallest rate; the window is never smaller than this rate's bandwidth-delay product.
        rate_min: Rate = Rate(100_000_000), 1.0e6..=1.0e13, "HPCC artefact (config.txt): MIN_RATE 100 Mb/s; the paper has no floor";
    }
}

impl CongestionPolicy for HpccConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Hpcc(Hpcc::new(self, environment))
    }
    fn needs_telemetry(&self) -> bool {
        true
    }
    fn shape(&self, transport: &mut TransportConfig) {
        transport.header += TELEMETRY_BYTES;
        transport.control += TELEMETRY_BYTES;
        // HPCC, SIGCOMM 2019: the receiver answers every packet; the artefact's L2_ACK_INTERVAL is 1 packet.
        transport.ack_every = Bytes(1);
        // HPCC has no notifications.
        transport.cnp_interval = Span::ZERO;
    }
}

/// State of HPCC for one connection. Windows are in wire bytes.
#[derive(Clone, Debug)]
pub struct Hpcc {
    // Constants; the base RTT in picoseconds.
    packet: u64,
    base_rtt: f64,
    target: f64,
    additive: f64,
    window_min: f64,
    window_max: f64,
    stage_max: u32,
    // State.
    window: f64,
    /// The window from which the next ones are computed; it changes once per round trip (W_c).
    reference: f64,
    /// The utilisation of the busiest link, averaged over about a base RTT (U).
    utilisation: f64,
    /// Additive increases since the window last followed the utilisation (incStage).
    stage: u32,
    /// True if `utilisation` is newer than `window`.
    is_measured: bool,
    cut: Cut,
    /// Wire bytes that are no longer in flight.
    settled: u64,
    /// The round trip ends when more bytes than this are settled; `None` before the first records.
    round_ends: Option<u64>,
    /// The latest records.
    last: Option<Box<Telemetry>>,
}

const _: () = assert!(size_of::<Hpcc>() <= 192, "HPCC's state per connection");

impl Hpcc {
    /// A connection that has no records. Its window is the bandwidth-delay product, which is also the largest one.
    pub fn new(config: &HpccConfig, environment: &Environment) -> Hpcc {
        let bdp = environment.bdp().0.max(environment.packet.0).max(1) as f64;
        let least = config.rate_min.bytes_in(environment.base_rtt).0.max(1) as f64;
        Hpcc {
            packet: environment.packet.0,
            base_rtt: environment.base_rtt.0.max(1) as f64,
            target: config.target,
            additive: config.additive * bdp,
            window_min: if least < bdp { least } else { bdp },
            window_max: bdp,
            stage_max: config.stage_max,
            window: bdp,
            reference: bdp,
            // The artefact's first value. It makes the average begin at full load.
            utilisation: 1.0,
            stage: 0,
            is_measured: false,
            cut: Cut::Never,
            settled: 0,
            round_ends: None,
            last: None,
        }
    }

    /// The utilisation of the busiest link, averaged over about a base RTT (U). For tests and studies.
    pub fn utilisation(&self) -> f64 {
        self.utilisation
    }

    /// The window for the present utilisation. At the end of a round trip, it becomes the next reference.
    fn adjust_window(&mut self, round_ends: bool) {
        let follows = self.utilisation >= self.target || self.stage >= self.stage_max;
        let base = if follows { self.reference * self.target / self.utilisation } else { self.reference };
        if base < self.reference {
            self.cut = Cut::Marks;
        }
        let window = at_least(base + self.additive, self.window_min);
        self.window = if window < self.window_max { window } else { self.window_max };
        if round_ends {
            self.reference = self.window;
            self.stage = if follows { 0 } else { self.stage + 1 };
        }
    }
}

impl Congestion for Hpcc {
    fn on_telemetry(&mut self, _: Time, telemetry: &Telemetry) {
        let Some(last) = &mut self.last else {
            self.last = Some(Box::new(*telemetry));
            return;
        };
        let mut busiest = None;
        for (new, old) in telemetry.records().iter().zip(last.records()) {
            // Another link, or a second record of the same instant, gives no rate.
            if new.link != old.link || new.time <= old.time {
                continue;
            }
            let time = new.time.since(old.time).0 as f64;
            // Bits per picosecond times 1e12 are bits per second.
            let line = new.rate.0.max(1) as f64 / 8e12;
            let sent = new.sent.wrapping_sub(old.sent) as f64 / time;
            let load = f64::from(new.queue.min(old.queue)) / (line * self.base_rtt) + sent / line;
            if busiest.is_none_or(|(most, _)| load > most) {
                busiest = Some((load, time));
            }
        }
        **last = *telemetry;
        if let Some((load, time)) = busiest {
            let share = if time < self.base_rtt { time / self.base_rtt } else { 1.0 };
            self.utilisation = (1.0 - share) * self.utilisation + share * load;
            self.is_measured = true;
        }
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.settled += sample.bytes.0;
        if self.round_ends.is_none() && self.last.is_some() {
            self.round_ends = Some(self.settled + sample.in_flight.0);
        }
        if !std::mem::take(&mut self.is_measured) {
            return;
        }
        // A packet that left after the last change of the reference is acknowledged.
        let ends = self.round_ends.is_some_and(|end| self.settled > end);
        self.adjust_window(ends);
        if ends {
            self.round_ends = Some(self.settled + sample.in_flight.0);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        self.settled += loss.bytes.0;
    }

    fn window(&self) -> Bytes {
        Bytes((self.window as u64).max(self.packet))
    }

    /// The window spread over a base RTT. A window below one packet only paces.
    #[inline]
    fn rate(&mut self, _: Time) -> Option<Rate> {
        (self.window < self.window_max).then(|| Rate((self.window * 8e12 / self.base_rtt) as u64))
    }

    fn last_cut(&self) -> Cut {
        self.cut
    }
}
