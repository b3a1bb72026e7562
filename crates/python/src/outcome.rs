//! The results of a run, and tables of several runs.

use crate::columns;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_fabric::Measurements;
use strandway_lab::{Experiment, Outcome as Ran};
use strandway_report::{self as report, Report, Row};

/// A run that has ended.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct Outcome {
    report: Report,
    /// Absent if it was made of a report.
    run: Option<(Arc<Experiment>, Measurements)>,
}

impl Outcome {
    pub(crate) fn new(experiment: Arc<Experiment>, ran: Ran) -> Outcome {
        Outcome { report: ran.report, run: Some((experiment, ran.measurements)) }
    }

    fn report(&self) -> &Report {
        &self.report
    }
}

#[pymethods]
impl Outcome {
    /// The run of a report in JSON: its pages and texts, without its flows.
    #[staticmethod]
    fn of_report(py: Python<'_>, json: &str) -> PyResult<Outcome> {
        let report = py.detach(|| serde_json::from_str(json));
        let report = report.map_err(|error| PyValueError::new_err(format!("not a report: {error}")))?;
        Ok(Outcome { report, run: None })
    }

    /// The report as JSON.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| self.report().to_json())
    }

    /// Every number of the report by its dotted name, as `[expect]` names it; None where there is none.
    fn values(&self) -> BTreeMap<String, Option<f64>> {
        self.report().values()
    }

    /// The report as a self-contained page.
    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| report::html::report(self.report()))
    }

    /// The report as text for a terminal of `width` characters.
    #[pyo3(signature = (width=None))]
    fn text(&self, width: Option<usize>) -> String {
        report::text::report_in(self.report(), width)
    }

    fn markdown(&self) -> String {
        report::markdown::report(self.report())
    }

    /// The flows as columns: see `columns.rs`.
    fn flows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.run {
            Some((experiment, measured)) => columns::flows(py, experiment, measured),
            None => Err(PyRuntimeError::new_err("a report has no flows")),
        }
    }
}

/// The data of one row of a table: its label, the keys that it sets, its run.
type Given<'py> = (String, BTreeMap<String, String>, PyRef<'py, Outcome>);

fn rows(given: Vec<Given<'_>>) -> Vec<Row> {
    given.into_iter().map(|(label, set, outcome)| Row { label, set, report: outcome.report().clone() }).collect()
}

/// One page for several runs.
#[pyfunction]
pub(crate) fn page_of_rows(title: &str, given: Vec<Given<'_>>, scenario: &str) -> String {
    report::html::rows(title, &rows(given), scenario)
}

/// One table for several runs, for a terminal of `width` characters.
#[pyfunction]
#[pyo3(signature = (given, width=None))]
pub(crate) fn table_of_rows(given: Vec<Given<'_>>, width: Option<usize>) -> String {
    report::text::rows(&rows(given), width)
}
