//! One event after the other, for callers that ask instead of being called.

use super::{Lab, LiveError, LiveEvent, LiveOutcome};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A run on a thread of its own, which waits while the caller answers an event. Between two calls of
/// [`Steps::next_event`] the caller posts messages and sets timers with its [`Lab`]. If it is dropped, the run stops.
#[derive(Debug)]
pub struct Steps {
    lab: Lab,
    events: Receiver<LiveEvent>,
    go_on: Option<SyncSender<()>>,
    waits: bool,
    worker: Option<JoinHandle<Result<LiveOutcome, LiveError>>>,
}

impl Steps {
    pub(super) fn new(lab: &Lab) -> Steps {
        let (tell, events) = sync_channel(0);
        let (go_on, wait) = sync_channel(0);
        let running = lab.clone();
        let handler = move |_: &Lab, event: &LiveEvent| {
            // Without a caller that listens, the run goes on to its end.
            if tell.send(*event).is_ok() {
                let _ = wait.recv();
            }
        };
        let worker = std::thread::spawn(move || running.run(handler));
        Steps { lab: lab.clone(), events, go_on: Some(go_on), waits: false, worker: Some(worker) }
    }

    /// The next event; `None` after the last one.
    pub fn next_event(&mut self) -> Option<LiveEvent> {
        if self.waits {
            self.waits = false;
            self.go_on.as_ref()?.send(()).ok()?;
        }
        let event = self.events.recv().ok()?;
        self.waits = true;
        Some(event)
    }

    /// Runs to the end without answers to the events that are left.
    ///
    /// # Errors
    /// If the lab was run before.
    ///
    /// # Panics
    /// If the simulator panicked.
    pub fn finish(mut self) -> Result<LiveOutcome, LiveError> {
        while self.next_event().is_some() {}
        let worker = self.worker.take().expect("finished once");
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.lab.stop();
            self.go_on = None;
            while self.events.recv().is_ok() {}
            let _ = worker.join();
        }
    }
}
