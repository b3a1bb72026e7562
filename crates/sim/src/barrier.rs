//! The barrier at which threads meet at window edges.
//!
//! Unlike the standard barrier it can be broken: a thread that panics breaks it, and the others leave instead of
//! waiting for ever. A waiting thread checks a counter for some microseconds before it sleeps, because sleeping and
//! waking take longer than many windows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of checks before a waiting thread sleeps: some tens of microseconds.
const LOOKS: u32 = 2000;

/// A meeting point of a fixed number of threads.
pub(crate) struct Barrier {
    threads: usize,
    looks: u32,
    /// The number of threads that have arrived.
    here: AtomicUsize,
    /// The number of completed meetings.
    round: AtomicUsize,
    broken: AtomicBool,
    /// The number of threads that sleep, or are about to. Only then the last thread wakes anyone, which takes a system
    /// call.
    sleepers: AtomicUsize,
    /// Held by a thread that goes to sleep or wakes the others.
    sleep: Mutex<()>,
    changed: Condvar,
}

/// Breaks the meeting if its thread unwinds.
pub(crate) struct Attendance<'a>(&'a Barrier);

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _awake = self.0.lock();
            self.0.broken.store(true, Ordering::Release);
            self.0.changed.notify_all();
        }
    }
}

impl Barrier {
    pub(crate) fn new(threads: usize) -> Barrier {
        // If there are fewer cores than threads, checking would take a core from a thread that still works.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Barrier {
            threads,
            looks: if threads <= cores { LOOKS } else { 0 },
            here: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Each thread must hold this while it takes part.
    pub(crate) fn enter(&self) -> Attendance<'_> {
        Attendance(self)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all threads have arrived; false if the meeting is broken.
    pub(crate) fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.here.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.here.store(0, Ordering::Relaxed);
            // These two and the two of a thread that goes to sleep have one order: either we see the sleeper, or it
            // sees the new round.
            self.round.store(round + 1, Ordering::SeqCst);
            if self.sleepers.load(Ordering::SeqCst) > 0 {
                let _awake = self.lock();
                self.changed.notify_all();
            }
            return true;
        }
        let met = || self.round.load(Ordering::SeqCst) != round;
        let over = || met() || self.broken.load(Ordering::Acquire);
        for _ in 0..self.looks {
            if over() {
                return met();
            }
            std::hint::spin_loop();
        }
        let mut awake = self.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !over() {
            awake = self.changed.wait(awake).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        met()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_wait_for_all_others_whether_they_spin_or_sleep() {
        for looks in [0, 3, LOOKS] {
            let mut meeting = Barrier::new(3);
            meeting.looks = looks;
            let done: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
            std::thread::scope(|scope| {
                for own in 0..3 {
                    let (meeting, done) = (&meeting, &done);
                    scope.spawn(move || {
                        let _attendance = meeting.enter();
                        for round in 1..=2000 {
                            done[own].store(round, Ordering::Relaxed);
                            assert!(meeting.wait());
                            // Another one may be a round ahead, where it waits for us.
                            assert!(done.iter().all(|d| (round..=round + 1).contains(&d.load(Ordering::Relaxed))));
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_panicking_thread_lets_the_others_go() {
        let meeting = Barrier::new(3);
        let met = std::thread::scope(|scope| {
            let others: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let _attendance = meeting.enter();
                        (meeting.wait(), meeting.wait())
                    })
                })
                .collect();
            let failing = scope.spawn(|| {
                let _attendance = meeting.enter();
                assert!(meeting.wait());
                panic!("on purpose");
            });
            assert!(failing.join().is_err());
            others.into_iter().map(|o| o.join().expect("the others end well")).collect::<Vec<_>>()
        });
        assert_eq!(met, [(true, false), (true, false)]);
    }
}
