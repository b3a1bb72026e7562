//! Published results next to ours, and the contents of files of other projects.

use crate::refused;
use crate::watch::{failed, finish};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use strandway_report as report;
use strandway_sim::Control;

/// Rows with their verdicts.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct Reproduction {
    done: report::reproduction::Reproduction,
}

#[pymethods]
impl Reproduction {
    /// All rows as JSON.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| self.done.to_json())
    }

    /// The tables of the command line.
    fn text(&self) -> String {
        report::text::reproduction(&self.done)
    }

    /// One self-contained page with charts.
    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| report::html::reproduction(&self.done))
    }

    fn markdown(&self) -> String {
        report::markdown::reproduced::reproduction(&self.done)
    }
}

/// The state that the thread of the runs and its caller share.
#[derive(Default)]
struct Watch {
    stopped: AtomicBool,
    /// The number of runs that have ended.
    ended: AtomicUsize,
    /// The controls of the runs under way.
    controls: Mutex<Vec<Weak<Control>>>,
}

impl Watch {
    fn begin(self: &Arc<Watch>, control: &Arc<Control>) -> Ended {
        let mut controls = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        controls.retain(|control| control.strong_count() > 0);
        controls.push(Arc::downgrade(control));
        Ended(Arc::clone(self))
    }

    /// Begins no further run, and stops those under way.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let controls = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        controls.iter().filter_map(Weak::upgrade).for_each(|control| control.stop());
    }
}

/// Lives as long as a run.
struct Ended(Arc<Watch>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The names of the sets, each with its subject and the time that it takes.
#[pyfunction]
pub(crate) fn reproduction_sets() -> Vec<(&'static str, &'static str, &'static str)> {
    strandway_reproduce::list().iter().map(|set| (set.name, set.about, set.takes)).collect()
}

/// Performs the runs of the chosen rows, `jobs` at a time, and judges the rows. `progress` is called with the number of
/// runs that have ended and of all runs. Ctrl-C ends the runs and raises KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (sets, only=None, full=false, jobs=1, progress=None))]
pub(crate) fn reproduce(
    py: Python<'_>,
    sets: Vec<String>,
    only: Option<String>,
    full: bool,
    jobs: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Reproduction> {
    if jobs == 0 {
        return Err(PyValueError::new_err("jobs = 0: at least one run goes on at a time"));
    }
    let chosen = py.detach(|| {
        let mut work = strandway_reproduce::choose(&sets, only.as_deref(), full)?;
        work.prepare()?;
        Ok(work)
    });
    let work = chosen.map_err(|problems| refused(py, &problems))?;
    let all = work.runs();
    let watch = Arc::new(Watch::default());
    let thread = {
        let watch = Arc::clone(&watch);
        let stopped = Arc::clone(&watch);
        let run = move || {
            work.run(jobs, true, || stopped.stopped.load(Ordering::Relaxed), |_, control| watch.begin(&control))
        };
        std::thread::Builder::new().name("strandway".into()).spawn(run)?
    };
    let mut told = None;
    let tell = || -> PyResult<()> {
        let ended = watch.ended.load(Ordering::Relaxed);
        match &progress {
            Some(progress) if told.replace(ended) != Some(ended) => progress.call1(py, (ended, all)).map(drop),
            _ => Ok(()),
        }
    };
    let done = finish(py, thread, tell, || watch.stop())?.map_err(|panic| failed(&*panic))?;
    let done = done.map_err(|problems| refused(py, &problems))?;
    Ok(Reproduction { done })
}

/// The contents of a file of another project, and what is assumed of it.
#[pyfunction]
pub(crate) fn describe_file(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| strandway_import::describe_file(&path)).map_err(|problems| refused(py, &problems))
}
