//! A fabric whose messages a Python program posts while the clock runs.

use crate::outcome::Outcome;
use crate::refused;
use crate::scenario::Scenario;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandway_lab::live::{LiveError, LiveEvent, Steps, What};
use strandway_proto::{HostId, Span};

/// A fabric, before its run, while it runs, and after.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct Lab {
    lab: strandway_lab::Lab,
    run: Mutex<Run>,
}

enum Run {
    Before,
    Steps(Steps),
    Over,
}

/// An event: kind, time in ps, host, number, peer, tag, bytes.
type Notice = (&'static str, u64, u32, u64, Option<u32>, Option<u64>, Option<u64>);

fn wrong(error: LiveError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl Lab {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notice(&self, event: &LiveEvent) -> Notice {
        let (at, host) = (event.at.0, event.host.0);
        let of = |kind, number, sent: bool| match self.lab.message(number) {
            None => (kind, at, host, number, None, None, None),
            Some(message) => {
                let peer = if sent { message.to.0 } else { message.from.0 };
                (kind, at, host, number, Some(peer), Some(message.tag), Some(message.bytes))
            }
        };
        match event.what {
            What::Sent { message } => of("sent", message, true),
            What::Received { message } => of("received", message, false),
            What::Timer { word } => ("timer", at, host, word, None, None, None),
            What::Failed { peer } => ("failed", at, host, 0, Some(peer.0), None, None),
        }
    }
}

#[pymethods]
impl Lab {
    #[staticmethod]
    fn open(py: Python<'_>, scenario: &Scenario) -> PyResult<Lab> {
        let lab = strandway_lab::Lab::open(scenario.inner()).map_err(|problems| refused(py, &problems))?;
        Ok(Lab { lab, run: Mutex::new(Run::Before) })
    }

    fn hosts(&self) -> u32 {
        self.lab.hosts()
    }

    /// Bits per second of a NIC, all planes together.
    fn rate(&self) -> u64 {
        self.lab.rate().0
    }

    /// The time of the present event, in ps.
    fn now(&self) -> u64 {
        self.lab.now().0
    }

    fn connect(&self, source: u32, destination: u32) -> PyResult<()> {
        self.lab.connect(HostId(source), HostId(destination)).map_err(wrong)
    }

    fn post(&self, source: u32, destination: u32, bytes: u64, tag: u64) -> PyResult<u64> {
        self.lab.post(HostId(source), HostId(destination), bytes, tag).map_err(wrong)
    }

    fn schedule(&self, host: u32, after: u64, number: u64) -> PyResult<()> {
        self.lab.schedule(HostId(host), Span(after), number).map_err(wrong)
    }

    fn stop(&self) {
        self.lab.stop();
    }

    /// Runs to the next event; None after the last one.
    fn next_event(&self, py: Python<'_>) -> PyResult<Option<Notice>> {
        let next = py.detach(|| {
            let mut run = self.run();
            if let Run::Before = *run {
                *run = Run::Steps(self.lab.steps());
            }
            match &mut *run {
                Run::Steps(steps) => steps.next_event(),
                Run::Before | Run::Over => None,
            }
        });
        Ok(next.map(|event| self.notice(&event)))
    }

    /// The result, after the last event. Events that are left have no answers.
    fn result(&self, py: Python<'_>) -> PyResult<Outcome> {
        let done = py.detach(|| {
            let mut run = self.run();
            match std::mem::replace(&mut *run, Run::Over) {
                Run::Before => Some(self.lab.steps().finish()),
                Run::Steps(steps) => Some(steps.finish()),
                Run::Over => None,
            }
        });
        let done = done.ok_or_else(|| PyRuntimeError::new_err("the result was taken before"))?.map_err(wrong)?;
        Ok(Outcome::new(Arc::new(done.experiment), done.outcome))
    }
}
