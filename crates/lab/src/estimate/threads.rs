//! A model of the speed of a run on many threads, for machines that are not at hand.
//!
//! The first part of the run is simulated twice: on as many threads as are asked for, to count how they would share
//! the work, and on one, to measure the time of a packet hop. The counts are the same on every machine, since they do
//! not depend on which thread gets a processor. The model is ours.

use crate::run::simulate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandway_fabric::measure::{Measurements, Shared};
use strandway_proto::units::Time;
use strandway_report::numbers::us;
use strandway_scenario::Experiment;
use strandway_sim::Control;

/// The wall-clock time of the part that many threads simulate: ours.
const PART: Duration = Duration::from_secs(3);

/// Seconds that a packet costs in addition if it changes to another thread: it is copied twice, and is in no cache of
/// the other one's core. Ours: fitted to runs on two threads, `docs/performance.md`.
const CROSSING: f64 = 160e-9;

/// Seconds of a meeting per thread: each changes the same cache line. Ours: fitted to runs on two threads.
const MEETING: f64 = 200e-9;

/// How threads would share a run.
#[derive(Clone, Copy, Debug)]
pub struct ThreadModel {
    /// The threads that the fabric can use: at most as many as were asked for.
    pub threads: u32,
    /// The time of a packet hop on one thread, in seconds, as measured.
    pub hop: f64,
    /// The packet hops of the part that was simulated.
    pub hops: u64,
    /// How threads shared them.
    pub shared: Shared,
    /// The simulated time of this part.
    pub until: Time,
    /// Was it the whole run?
    pub whole: bool,
}

impl ThreadModel {
    /// Simulates the first seconds of a run to find how `threads` threads share it.
    pub fn of(experiment: &Experiment, threads: usize) -> ThreadModel {
        let mut part = experiment.clone();
        part.plan.threads = threads;
        part.plan.capture = None;
        let many = first(&part, PART);
        let whole = many.end != strandway_fabric::measure::End::Interrupted;
        part.plan.threads = 1;
        if !whole {
            part.plan.time_limit = many.simulated;
        }
        let began = Instant::now();
        let one = simulate(&part, &Control::new());
        let hop = began.elapsed().as_secs_f64() / one.packet_hops.max(1) as f64;
        let threads = many.shared.threads.max(1);
        ThreadModel { threads, hop, hops: many.packet_hops, shared: many.shared, until: many.simulated, whole }
    }

    /// By how much these threads are faster than one.
    pub fn speedup(&self) -> f64 {
        let alone = self.hops as f64 * self.hop;
        if self.threads == 1 || alone == 0.0 {
            return 1.0;
        }
        let crossing = self.shared.crossed as f64 / f64::from(self.threads) * CROSSING;
        let meeting = self.shared.meetings as f64 * f64::from(self.threads) * MEETING;
        alone / (self.shared.longest as f64 * self.hop + crossing + meeting)
    }

    /// The model in one line. `hops`: the packet hops of the whole run.
    pub fn text(&self, hops: u64) -> String {
        let part = if self.whole {
            "the whole run".to_string()
        } else {
            format!("its first {}", us(Some(self.until.as_us())))
        };
        let seconds = hops as f64 * self.hop / self.speedup();
        let (all, threads) = (self.hops.max(1) as f64, f64::from(self.threads));
        format!(
            "a model, from {part}: {:.1} s on {} threads, {:.1} times as fast as one; the busiest has {:.2} times its share of the \
             work, {:.0} % of the packet hops lead to another thread, threads meet every {:.0} packet hops",
            seconds,
            self.threads,
            self.speedup(),
            self.shared.longest as f64 * threads / all,
            100.0 * self.shared.crossed as f64 / all,
            all / self.shared.meetings.max(1) as f64,
        )
    }
}

/// Simulates until the run ends, or until this time has passed.
fn first(experiment: &Experiment, time: Duration) -> Measurements {
    let (control, over) = (Control::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + time;
            while !over.load(Ordering::Relaxed) {
                if Instant::now() >= until {
                    control.stop();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let measured = simulate(experiment, &control);
        over.store(true, Ordering::Relaxed);
        measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str, threads: usize) -> ThreadModel {
        let scenario = strandway_scenario::parse(text).expect("TOML");
        ThreadModel::of(&crate::check(&scenario).expect("sound"), threads)
    }

    const BUSY: &str = "[fabric]\nhosts = 256\nhosts_per_leaf = 16\nspines = 16\n[workload]\nsize = \"100 kB\"\n";

    #[test]
    fn more_threads_share_the_work_less_evenly() {
        let (two, eight) = (model(BUSY, 2), model(BUSY, 8));
        assert_eq!((two.threads, eight.threads), (2, 8));
        let share = |model: &ThreadModel| model.shared.longest as f64 / model.hops as f64;
        assert!((0.5..0.6).contains(&share(&two)), "{two:?}");
        assert!((0.125..0.3).contains(&share(&eight)) && share(&eight) * 8.0 > share(&two) * 2.0, "{eight:?}");
        assert!(eight.shared.crossed > two.shared.crossed, "{two:?} {eight:?}");
        assert!(two.whole && two.text(two.hops).contains("a model, from the whole run"), "{}", two.text(two.hops));
    }

    #[test]
    fn the_division_of_work_does_not_depend_on_the_speed_of_threads() {
        assert_eq!(model(BUSY, 4).shared, model(BUSY, 4).shared);
    }

    #[test]
    fn one_leaf_has_one_thread() {
        let one = model("[fabric]\nhosts = 8\nhosts_per_leaf = 8\n[workload]\nsize = \"10 kB\"\n", 16);
        assert_eq!((one.threads, one.speedup()), (1, 1.0));
    }
}
