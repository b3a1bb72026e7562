//! Control messages between programs: a lost control message stays lost, a repeated one arrives, on any number of
//! threads.

use super::support::{leaf_spine, plain};
use std::sync::{Arc, Mutex};
use strandway_collective::Programs;
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::{ControlMessage, HostId, Span, Time};
use strandway_sim::{Control, simulate_programs};

/// Asks its partner question after question until each is answered; the partner answers.
struct Curious {
    host: u32,
    /// The open question, and when it was last asked.
    number: u32,
    asked: Time,
    waiting: Vec<(u32, HostId)>,
    again: bool,
    log: Arc<Mutex<Vec<(u64, u32, u32)>>>,
}

const QUESTIONS: u32 = 50;
const PATIENCE: Span = Span::from_us(20);
/// A channel that the plan does not have: it opens at first use.
const CHANNEL: u32 = 1 << 20;

impl Curious {
    fn asks(&self) -> bool {
        self.host < 2 && self.number < QUESTIONS
    }
}

impl Application for Curious {
    fn handle_event(&mut self, now: Time, event: &Event) {
        let Event::Control { from, control: ControlMessage::Custom { kind, words } } = *event else { return };
        self.log.lock().expect("nobody panics").push((now.0, self.host, words[0]));
        if kind == 0 {
            self.waiting.push((words[0], from));
        } else if words[0] == self.number {
            self.number += 1;
            self.again = true;
        }
    }

    fn handle_timeout(&mut self, _: Time) {
        self.again = true;
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        let channel = |peer| Channel { peer, number: CHANNEL, profile: 0 };
        if let Some((number, from)) = self.waiting.pop() {
            let control = ControlMessage::Custom { kind: 1, words: [number, 0, 0, 0] };
            return Some(Action::Control { channel: channel(from), control });
        }
        if !std::mem::take(&mut self.again) || !self.asks() {
            return None;
        }
        self.asked = now;
        let control = ControlMessage::Custom { kind: 0, words: [self.number, 0, 0, 0] };
        Some(Action::Control { channel: channel(HostId(3 - self.host)), control })
    }

    fn poll_timeout(&self) -> Time {
        if self.asks() { self.asked + PATIENCE } else { Time::NEVER }
    }

    fn is_done(&self) -> bool {
        !self.asks()
    }
}

#[test]
fn questions_are_answered_over_lossy_links() {
    let mut seen = Vec::new();
    for threads in [1, 2] {
        let mut plan = plain(leaf_spine(4, 2, 1), &[(0, 3, 4096)]);
        plan.threads = threads;
        let links = (0..plan.topology.links()).map(strandway_fabric::LinkId).collect();
        let kind = FaultKind::Loss { probability: 0.1, burst: Burst::NONE };
        plan.faults = vec![FaultPlan { links, kind, from: Time::ZERO, until: Time::NEVER }];
        let log = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&log);
        let make = move |host: HostId| -> Option<Box<dyn Application>> {
            let (waiting, log) = (Vec::new(), Arc::clone(&noted));
            Some(Box::new(Curious { host: host.0, number: 0, asked: Time::ZERO, waiting, again: false, log }))
        };
        let programs = Programs::new(&plan, &[]).with(&make);
        let measured = simulate_programs(&plan, &programs, &Control::new());
        assert_eq!(measured.end, strandway_fabric::measure::End::Finished);
        assert!(measured.packets.lost > 20, "{} lost", measured.packets.lost);
        let mut log = log.lock().expect("nobody panics").clone();
        log.sort_unstable();
        let answers =
            |host: u32| log.iter().filter(|l| l.1 == host).map(|l| l.2).collect::<std::collections::BTreeSet<_>>();
        assert_eq!((answers(0).len(), answers(1).len()), (QUESTIONS as usize, QUESTIONS as usize));
        seen.push((measured.digest, log));
    }
    assert_eq!(seen[0], seen[1], "one thread and two");
}
