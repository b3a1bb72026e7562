//! A congestion control from outside Strandway's libraries, plugged in through `CongestionConfig::Custom`.
//!
//! `cargo run -p custom-congestion` compares it with NSCC. CONTRIBUTING.md shows the part between the snippet marks.

use std::sync::Arc;
use strandway_lab::{Report, Scenario, check, run};
use strandway_sim::Control;

// snippet: begin
use strandway_proto::congestion::{AckSample, Congestion, CongestionConfig, LossSample};
use strandway_proto::{Bytes, Environment};

/// Textbook AIMD: adds one packet per round trip, and halves the window after a mark or a loss, at most once per round
/// trip.
struct Halving {
    window: u64,
    window_max: u64,
    packet: u64,
    /// Bytes acknowledged since the window last grew.
    acked: u64,
    /// Bytes that must be settled before the next cut: packets in flight at the last cut left before it.
    deaf: u64,
}

impl Halving {
    /// The environment has the values for the first window: line rate, base RTT and packet size.
    fn new(environment: &Environment) -> Halving {
        let bdp = environment.bdp().0.max(environment.packet.0);
        Halving { window: bdp, window_max: bdp * 3 / 2, packet: environment.packet.0, acked: 0, deaf: 0 }
    }

    fn cut(&mut self, in_flight: Bytes) {
        if self.deaf == 0 {
            self.window = (self.window / 2).max(self.packet);
            self.deaf = in_flight.0;
            self.acked = 0;
        }
    }
}

impl Congestion for Halving {
    fn on_ack(&mut self, sample: &AckSample) {
        self.deaf = self.deaf.saturating_sub(sample.bytes.0);
        if sample.marked {
            return self.cut(sample.in_flight);
        }
        self.acked += sample.bytes.0;
        while self.acked >= self.window {
            self.acked -= self.window;
            self.window = (self.window + self.packet).min(self.window_max);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        self.deaf = self.deaf.saturating_sub(loss.bytes.0);
        self.cut(loss.in_flight);
    }

    fn window(&self) -> Bytes {
        Bytes(self.window)
    }
}

/// The entry for a profile: a factory that makes the state of one connection.
fn halving() -> CongestionConfig {
    CongestionConfig::Custom(Arc::new(|environment| Box::new(Halving::new(environment))))
}
// snippet: end

/// Thirty-two hosts at 400 Gb/s; sixteen of them send 2 MB to the first.
const SCENARIO: &str = r#"
name = "sixteen to one"

[fabric]
hosts = 32
hosts_per_leaf = 8

[profile]
name = "uec"

[workload]
kind = "incast"
senders = 16
size = "2 MB"
"#;

fn simulate(congestion: Option<CongestionConfig>) -> Result<Report, strandway_import::Problems> {
    let mut experiment = check(&Scenario::from_text("scenario", SCENARIO)?)?;
    if let Some(congestion) = congestion {
        Arc::make_mut(&mut experiment.plan.profiles[0]).congestion = congestion;
    }
    Ok(run(&experiment, &Control::new()).report)
}

fn main() -> Result<(), strandway_import::Problems> {
    let nscc = simulate(None)?;
    let ours = simulate(Some(halving()))?;
    println!("16 flows of 2 MB into one 400 Gb/s port");
    for (name, report) in [("nscc", &nscc), ("halving", &ours)] {
        println!(
            "{name:8} slowest flow {:7.1} us, {:5} packets marked, {:5} trimmed",
            report.times.fct_us.max.unwrap_or(f64::NAN),
            report.packets.marked,
            report.packets.trimmed
        );
        assert_eq!(report.flows.finished, 16, "{name}: every flow finishes");
        assert_eq!(report.packets.dropped, 0, "{name}: where switches trim, nothing is dropped");
    }
    // 16 x 489 packets of 4,160 B (the last of each flow shorter) need 650 us at 400 Gb/s, whoever shares them out.
    let slowest = ours.times.fct_us.max.expect("flows finished");
    assert!((650.0..1_000.0).contains(&slowest), "the link is kept busy: {slowest} us");
    Ok(())
}
