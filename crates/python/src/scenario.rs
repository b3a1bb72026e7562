//! A scenario, and running it with Python's lock released.

use crate::congestion::Controls;
use crate::outcome::Outcome;
use crate::refused;
use crate::watch::{Stop, failed, finish};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use strandway_lab::{Approximation, Estimate, Experiment, Variant};
use strandway_sim::Control;

/// The control of a run that is under way, and the packet hops that it will have.
type UnderWay = (Arc<Control>, u64);

/// Several scenarios: for each its label, the keys that it sets, and the scenario.
type Variants = Vec<(String, BTreeMap<String, String>, Scenario)>;

/// A scenario as written.
#[pyclass(module = "strandway._lab")]
#[derive(Clone)]
pub(crate) struct Scenario {
    inner: strandway_lab::Scenario,
}

impl Scenario {
    /// The scenario itself.
    pub(crate) fn inner(&self) -> &strandway_lab::Scenario {
        &self.inner
    }
}

fn table(json: &str) -> PyResult<toml::Table> {
    // TOML has no null; serde's error names the place of one.
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(format!("not a scenario: {error}")))
}

fn json(value: &toml::Value) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl Scenario {
    /// Reads a scenario file, or a traffic matrix.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Scenario> {
        let inner = strandway_lab::Scenario::load(&path).map_err(|problems| refused(py, &problems))?;
        Ok(Scenario { inner })
    }

    /// Parses TOML, called `file` in messages. Files that it names are looked up from the current directory.
    #[staticmethod]
    fn from_text(py: Python<'_>, file: &str, text: &str) -> PyResult<Scenario> {
        let inner = strandway_lab::Scenario::from_text(file, text).map_err(|problems| refused(py, &problems))?;
        Ok(Scenario { inner })
    }

    /// Parses TOML, called `file` in messages. Files that it names are looked up beside `file`.
    #[staticmethod]
    fn parse_in(py: Python<'_>, file: &str, text: &str) -> PyResult<Scenario> {
        let parsed = strandway_lab::Scenario::from_text(file, text).map_err(|problems| refused(py, &problems))?;
        Ok(Scenario { inner: strandway_lab::Scenario::from_table(file, parsed.table().clone()) })
    }

    /// Takes a JSON object with the sections of a scenario.
    #[staticmethod]
    fn from_json(file: &str, json: &str) -> PyResult<Scenario> {
        Ok(Scenario { inner: strandway_lab::Scenario::from_table(file, table(json)?) })
    }

    /// Changes one dotted key to a value in JSON.
    fn set(&mut self, py: Python<'_>, key: &str, json: &str) -> PyResult<()> {
        let value: toml::Value =
            serde_json::from_str(json).map_err(|error| PyValueError::new_err(format!("{key}: {error}")))?;
        self.inner.set_value(key, value).map_err(|problems| refused(py, &problems))
    }

    /// The value of one dotted key in JSON; None if the scenario does not have it.
    fn value(&self, key: &str) -> PyResult<Option<String>> {
        self.inner.value(key).map(|value| json(&value)).transpose()
    }

    /// All keys in JSON.
    fn json(&self) -> PyResult<String> {
        json(&toml::Value::Table(self.inner.table().clone()))
    }

    /// The name of the congestion control of its profile.
    fn congestion(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.experiment(py)?.profile().congestion.name())
    }

    fn copy(&self) -> Scenario {
        self.clone()
    }

    fn file(&self) -> &str {
        self.inner.file()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    /// The TOML text with all changes.
    fn text(&self) -> String {
        self.inner.text()
    }

    /// Every file that was read for it so far.
    fn inputs(&self) -> Vec<PathBuf> {
        self.inner.inputs()
    }

    /// The key under which its result is kept. It must have been checked, so that its files are known.
    fn key(&self, py: Python<'_>) -> PyResult<String> {
        self.inner.key().map_err(|problems| refused(py, &problems))
    }

    /// Finds all problems of the scenario. Returns its expected packet hops, and the estimate as a sentence.
    fn check(&self, py: Python<'_>) -> PyResult<(u64, String)> {
        let experiment = self.experiment(py)?;
        Ok((experiment.expected_hops(), Estimate::of(&experiment).text(experiment.plan.threads)))
    }

    /// The variants of `[sweep]`: label, the keys that it sets, scenario.
    fn sweep(&self, py: Python<'_>) -> PyResult<Variants> {
        strandway_lab::sweep(&self.inner).map(variants).map_err(|problems| refused(py, &problems))
    }

    /// One variant per profile.
    fn compare(&self, py: Python<'_>, profiles: Vec<String>) -> PyResult<Variants> {
        strandway_lab::compare(&self.inner, &profiles).map(variants).map_err(|problems| refused(py, &problems))
    }

    /// Runs it. `progress` is called with packet hops done and expected, flows finished and all flows, and simulated
    /// microseconds. `rows` keeps a row for every flow, `series` values over time. `congestion` replaces congestion
    /// controls, see `congestion.rs`. Ctrl-C and `stop` end the run; it raises KeyboardInterrupt then.
    #[pyo3(signature = (progress=None, threads=None, rows=false, series=false, force=false, congestion=None, stop=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn run(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        threads: Option<usize>,
        rows: bool,
        series: bool,
        force: bool,
        congestion: Option<Bound<'_, PyAny>>,
        stop: Option<Py<Stop>>,
    ) -> PyResult<Outcome> {
        let mut scenario = self.clone();
        if rows {
            scenario.inner.keep_rows();
        }
        if scenario.inner.approximate().is_some() {
            if rows || congestion.is_some() {
                let what = "run.approximate keeps no rows, and takes no congestion control: leave it out";
                return Err(PyValueError::new_err(what));
            }
            return scenario.run_approximately(py, progress.as_ref(), threads, stop.as_ref(), force);
        }
        let mut experiment = scenario.experiment(py)?;
        if let Some(threads) = threads {
            experiment.plan.threads = threads.clamp(1, 1024);
        }
        if series {
            experiment.with_series();
        }
        experiment.plan.capture = None;
        if !force {
            Estimate::of(&experiment).fits().map_err(PyMemoryError::new_err)?;
        }
        let control = Arc::new(Control::new());
        let controls = match &congestion {
            Some(wanted) => Some(Controls::plug(wanted, &mut experiment, &control)?),
            None => None,
        };
        let experiment = Arc::new(experiment);
        stop.as_ref().map_or(Ok(()), |stop| stop.get().check())?;
        let thread = {
            let (experiment, control) = (experiment.clone(), control.clone());
            let simulate = move || strandway_lab::run(&experiment, &control);
            // A thread that Python knows makes shorter calls into it.
            let calls_python = controls.is_some();
            std::thread::Builder::new()
                .name("strandway".into())
                .spawn(move || if calls_python { Python::attach(|py| py.detach(simulate)) } else { simulate() })?
        };
        let (hops, flows) = (experiment.expected_hops(), experiment.plan.flows.len() as u64);
        let tell = || -> PyResult<()> {
            stop.as_ref().map_or(Ok(()), |stop| stop.get().check())?;
            let Some(progress) = &progress else { return Ok(()) };
            let at = control.simulated().as_us();
            progress.call1(py, (control.packet_hops(), hops, control.finished(), flows, at)).map(drop)
        };
        let ended = finish(py, thread, tell, || control.stop())?;
        if let Some(failure) = controls.and_then(|controls| controls.failure()) {
            return Err(failure);
        }
        ended.map(|ran| Outcome::new(experiment, ran)).map_err(|panic| failed(&*panic))
    }
}

impl Scenario {
    /// Runs smaller runs that stand for the whole one.
    fn run_approximately(
        &self,
        py: Python<'_>,
        progress: Option<&Py<PyAny>>,
        threads: Option<usize>,
        stop: Option<&Py<Stop>>,
        force: bool,
    ) -> PyResult<Outcome> {
        let chosen = py.detach(|| {
            let approximation = Approximation::of(&self.inner)?;
            Ok((approximation.estimate()?, approximation))
        });
        let (estimate, approximation) = chosen.map_err(|problems| refused(py, &problems))?;
        if !force {
            estimate.fits().map_err(PyMemoryError::new_err)?;
        }
        // The control of the run that is under way, and its packet hops.
        let now: Arc<Mutex<Option<UnderWay>>> = Arc::default();
        let thread = {
            let now = now.clone();
            let watch = move |experiment: &Experiment, control: Arc<Control>| {
                *now.lock().unwrap_or_else(PoisonError::into_inner) = Some((control, experiment.expected_hops()));
            };
            let simulate = move || approximation.run(threads.map(|threads| threads.clamp(1, 1024)), watch);
            std::thread::Builder::new().name("strandway".into()).spawn(simulate)?
        };
        let current = || now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tell = || -> PyResult<()> {
            stop.map_or(Ok(()), |stop| stop.get().check())?;
            let (Some(progress), Some((control, hops))) = (progress, current()) else { return Ok(()) };
            let at = control.simulated().as_us();
            progress.call1(py, (control.packet_hops(), hops, control.finished(), 0, at)).map(drop)
        };
        match finish(py, thread, tell, || current().into_iter().for_each(|(control, _)| control.stop()))? {
            Ok(Ok((experiment, outcome))) => Ok(Outcome::new(experiment, outcome)),
            Ok(Err(problems)) => Err(refused(py, &problems)),
            Err(panic) => Err(failed(&*panic)),
        }
    }

    fn experiment(&self, py: Python<'_>) -> PyResult<Experiment> {
        py.detach(|| strandway_lab::check(&self.inner)).map_err(|problems| refused(py, &problems))
    }
}

fn variants(of: Vec<Variant>) -> Variants {
    of.into_iter().map(|variant| (variant.label, variant.set, Scenario { inner: variant.scenario })).collect()
}
