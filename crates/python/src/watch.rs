//! Waits for a thread of the simulator with Python's lock released.

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which a thread is checked for Ctrl-C and reports its progress.
const LOOK: Duration = Duration::from_millis(50);

/// Until this time a thread is checked more often, so that a short run returns without delay.
const BRISK: Duration = Duration::from_millis(100);
const BRISK_LOOK: Duration = Duration::from_millis(1);

/// Ends runs on other threads, which get no signal.
#[pyclass(frozen, module = "strandway._lab")]
#[derive(Default)]
pub(crate) struct Stop {
    wanted: AtomicBool,
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }

    /// Ends the runs that have it, and those that will.
    fn stop(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }
}

impl Stop {
    /// # Errors
    /// `KeyboardInterrupt`, once the runs are to end.
    pub(crate) fn check(&self) -> PyResult<()> {
        if self.wanted.load(Ordering::Relaxed) { Err(PyKeyboardInterrupt::new_err(())) } else { Ok(()) }
    }
}

/// Waits until a thread has ended, and returns its value or its panic. `tell` reports its progress, at intervals and at
/// the end. After Ctrl-C or an error of `tell`, calls `stop`, waits for the thread, and returns the error.
pub(crate) fn finish<T: Send>(
    py: Python<'_>,
    thread: JoinHandle<T>,
    tell: impl FnMut() -> PyResult<()>,
    stop: impl FnOnce(),
) -> PyResult<std::thread::Result<T>> {
    let watched = watch(py, &thread, tell);
    if watched.is_err() {
        stop();
    }
    let ended = py.detach(|| thread.join());
    watched.map(|()| ended)
}

fn watch<T: Send>(py: Python<'_>, thread: &JoinHandle<T>, mut tell: impl FnMut() -> PyResult<()>) -> PyResult<()> {
    let began = Instant::now();
    while !thread.is_finished() {
        let pause = if began.elapsed() < BRISK { BRISK_LOOK } else { LOOK };
        py.detach(|| {
            let until = Instant::now() + pause;
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(BRISK_LOOK.min(pause));
            }
        });
        py.check_signals()?;
        if began.elapsed() >= BRISK {
            tell()?;
        }
    }
    tell()
}

/// The exception for a panic of the simulator.
pub(crate) fn failed(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    PyRuntimeError::new_err(format!("the simulator failed: {}", text.unwrap_or("no reason given")))
}
