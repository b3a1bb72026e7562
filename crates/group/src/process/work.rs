//! The handle of a collective: whether the collective has ended, and with which result.

use super::delegate::Ended;
use super::failure::Failure;
use super::recording::RecordedCall;
use crate::error::GroupError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The mover of packets of a process.
pub(super) trait Progress: Send + Sync {
    /// Moves packets until a work has ended, or until `until`. Returns at once if another caller does so, because that
    /// caller moves this work, too.
    fn drive(&self, work: &Work, until: Option<Instant>);

    /// A delegate has given back the memory of a task.
    fn note_delegated(&self, task: u64, outcome: Result<Ended, GroupError>);
}

/// A collective under way, or ended. A clone is the same one.
#[derive(Clone)]
pub struct Work(Arc<Shared>);

struct Shared {
    /// Moves the work. A caller that waits for the work drives it.
    progress: Arc<dyn Progress>,
    /// Where the process records its calls.
    recorded: Option<RecordedCall>,
    ended: AtomicBool,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<Option<u32>, Failure>>,
    /// The channel that hears of the end, and the number to send over it.
    listeners: Vec<(Sender<u64>, u64)>,
    /// Threads that sleep until the end.
    sleepers: usize,
}

impl Work {
    pub(super) fn new(progress: Arc<dyn Progress>, recorded: Option<RecordedCall>) -> Work {
        Work(Arc::new(Shared {
            progress,
            recorded,
            ended: AtomicBool::new(false),
            state: Mutex::default(),
            bell: Condvar::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends the work. `Ok` has the rank that has filled a receive from any rank.
    pub(super) fn end(&self, outcome: Result<Option<u32>, Failure>) {
        let mut state = self.lock();
        if state.outcome.is_none() {
            if let Some(recorded) = &self.0.recorded {
                recorded.end(outcome.is_err());
            }
            state.outcome = Some(outcome);
            self.0.ended.store(true, Ordering::Release);
            for (listener, number) in state.listeners.drain(..) {
                // The listener may have gone.
                let _ = listener.send(number);
            }
            if state.sleepers > 0 {
                self.0.bell.notify_all();
            }
        }
    }

    /// The engine has taken it up.
    pub(super) fn started(&self) {
        if let Some(recorded) = &self.0.recorded {
            recorded.start();
        }
    }

    /// A delegate has given back the memory of a task of this work.
    pub(super) fn note_delegated(&self, task: u64, outcome: Result<Ended, GroupError>) {
        self.0.progress.note_delegated(task, outcome);
    }

    /// Has it ended? Its memory is the caller's again then.
    pub fn is_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// The outcome; `None` while the work has not ended. `Ok` has the rank that has filled a receive from any rank.
    pub fn poll(&self) -> Option<Result<Option<u32>, Failure>> {
        if self.is_ended() { self.lock().outcome.clone() } else { None }
    }

    /// Waits for the end for at most `timeout`. Returns `None` if the collective has not ended by then; it goes on.
    /// Meanwhile the thread that waits moves the packets of the process.
    pub fn wait_for(&self, timeout: Duration) -> Option<Result<Option<u32>, Failure>> {
        let began = Instant::now();
        let until = began.checked_add(timeout);
        if !self.is_ended() {
            self.0.progress.drive(self, until);
        }
        let outcome = self.sleep(until);
        if let Some(recorded) = &self.0.recorded {
            recorded.waited(began, outcome.is_some());
        }
        outcome
    }

    /// Sleeps until the end, or until that time.
    fn sleep(&self, until: Option<Instant>) -> Option<Result<Option<u32>, Failure>> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return Some(outcome.clone());
            }
            let left =
                until.map_or(Duration::from_secs(3_600), |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            state.sleepers += 1;
            let waited = self.0.bell.wait_timeout(state, left);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            state.sleepers -= 1;
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it failed: a rank is gone, the time is over, or the group was aborted.
    pub fn wait(&self) -> Result<Option<u32>, Failure> {
        loop {
            if let Some(outcome) = self.wait_for(Duration::from_secs(3_600)) {
                return outcome;
            }
        }
    }

    /// Sends `number` to the listener when the work has ended; at once if it has ended already.
    pub fn notify(&self, listener: &Sender<u64>, number: u64) {
        let mut state = self.lock();
        if state.outcome.is_some() {
            let _ = listener.send(number);
        } else {
            state.listeners.push((listener.clone(), number));
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("outcome", &self.lock().outcome).finish_non_exhaustive()
    }
}
