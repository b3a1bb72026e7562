//! Where threads meet at window edges.
//!
//! Unlike the standard barrier it can be broken: a thread that panics breaks it, and the others leave instead of waiting
//! for it for ever.

use std::sync::{Condvar, Mutex, PoisonError};

/// A meeting point of a fixed number of threads.
pub(crate) struct Meeting {
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    round: u64,
    broken: bool,
}

/// Breaks the meeting if its thread unwinds.
pub(crate) struct Attendance<'a>(&'a Meeting);

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().broken = true;
            self.0.changed.notify_all();
        }
    }
}

impl Meeting {
    pub(crate) fn new(threads: usize) -> Meeting {
        Meeting { threads, state: Mutex::default(), changed: Condvar::new() }
    }

    /// To be held by each thread while it takes part.
    pub(crate) fn attend(&self) -> Attendance<'_> {
        Attendance(self)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all threads are here; false if one of them never will be.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        let round = state.round;
        state.waiting += 1;
        if state.waiting == self.threads {
            state.waiting = 0;
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.round != round || !state.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panicking_thread_lets_the_others_go() {
        let meeting = Meeting::new(3);
        let met = std::thread::scope(|scope| {
            let others: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let _attendance = meeting.attend();
                        (meeting.wait(), meeting.wait())
                    })
                })
                .collect();
            let failing = scope.spawn(|| {
                let _attendance = meeting.attend();
                assert!(meeting.wait());
                panic!("on purpose");
            });
            assert!(failing.join().is_err());
            others.into_iter().map(|o| o.join().expect("the others end well")).collect::<Vec<_>>()
        });
        assert_eq!(met, [(true, false), (true, false)]);
    }
}
