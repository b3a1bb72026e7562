//! Your own program at two hosts: they play ping-pong with control messages, first simulated, then between real nodes.
//!
//! `cargo run -p control-messages` prints the round trips of both worlds.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use strandway_collective::Programs;
use strandway_lab::{Experiment, Scenario, check};
use strandway_sim::{Control, simulate_programs};
use strandway_testbed::wire;
use strandway_udp::{Config, Node};

// snippet: begin
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::{ControlMessage, HostId, Time};

/// Host 0 serves a ball, both send it back, and host 0 notes how long it was away. A control message may be lost: host
/// 0 serves again after a millisecond without the ball.
struct Player {
    host: u32,
    ball: u32,
    served: Time,
    due: bool,
    trips: Arc<Mutex<Vec<u64>>>,
}

impl Application for Player {
    fn handle_event(&mut self, now: Time, event: &Event) {
        let Event::Control { control: ControlMessage::Custom { words, .. }, .. } = event else { return };
        if self.host == 1 || words[0] == self.ball {
            self.due = true;
            self.ball = words[0] + u32::from(self.host == 0);
        }
        if self.host == 0 && self.due {
            self.trips.lock().expect("nobody panics").push((now - self.served).0);
        }
    }

    fn handle_timeout(&mut self, _: Time) {
        self.due = true;
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        let action = std::mem::take(&mut self.due) && self.ball < 100;
        self.served = if action { now } else { self.served };
        let channel = Channel { peer: HostId(1 - self.host), number: self.host, profile: 0 };
        action.then_some(Action::Control {
            channel,
            control: ControlMessage::Custom { kind: 1, words: [self.ball, 0, 0, 0] },
        })
    }

    fn poll_timeout(&self) -> Time {
        let again = self.served.0 + 1_000_000_000;
        if self.host == 0 && !self.is_done() { Time(again) } else { Time::NEVER }
    }

    fn is_done(&self) -> bool {
        self.host == 1 || self.ball >= 100
    }
}
// snippet: end

/// Two hosts with a connection each way. The two flows of a byte open them between real nodes.
const SCENARIO: &str = r#"
[fabric]
kind = "leaf-spine"
hosts = 2
rate = "10 Gbps"
[profile]
name = "uec"
[workload]
kind = "flows"
flows = [{ from = 0, to = 1, size = "1 B" }, { from = 1, to = 0, size = "1 B" }]
[run]
time_limit = "30 s"
"#;

/// The number of round trips and their median in microseconds, for a game that `play` runs.
fn median(play: impl FnOnce(&Maker)) -> (usize, f64) {
    let trips = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&trips);
    let make = move |host: HostId| -> Option<Box<dyn Application>> {
        let trips = Arc::clone(&noted);
        Some(Box::new(Player { host: host.0, ball: 0, served: Time::ZERO, due: host.0 == 0, trips }))
    };
    play(&make);
    let mut trips = trips.lock().expect("nobody panics").clone();
    trips.sort_unstable();
    (trips.len(), trips[trips.len() / 2] as f64 / 1e6)
}

type Maker = strandway_collective::programs::Maker<'static>;

fn main() {
    let experiment: Experiment =
        Scenario::from_text("scenario", SCENARIO).and_then(|s| check(&s)).unwrap_or_else(|e| panic!("{e}"));
    let (trips, simulated) = median(|make| {
        let programs = Programs::new(&experiment.plan, &[]).with(make);
        simulate_programs(&experiment.plan, &programs, &Control::new());
    });
    println!("simulated:  {trips} round trips, median {simulated:.2} us");
    let (trips, real) = median(|make| {
        let programs = Programs::new(&experiment.plan, &[]).with(make);
        let open = |_: u32| {
            let mut config = Config::new(&[7; 32]).map_err(|e| e.to_string())?;
            config.profile = (*experiment.plan.profiles[0]).clone();
            config.planes = vec!["[::1]:0".parse().expect("an address")];
            Node::bind(config).map_err(|e| e.to_string())
        };
        let patience = |_, since: Duration| since < Duration::from_secs(30);
        wire::run_programs(&experiment, &programs, open, patience).unwrap_or_else(|e| panic!("{e}"));
    });
    println!("real nodes: {trips} round trips, median {real:.2} us");
}
