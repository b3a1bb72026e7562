//! A folder of results, the one of `strandway sweep --results`.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use strandway_lab::{Kept, Shard};
use strandway_report::Report;

/// A kept run: its report as JSON, every number of it by its dotted name, and the reason if it failed.
type Found = (Option<String>, BTreeMap<String, Option<f64>>, Option<String>);

/// A folder of results.
#[pyclass(module = "strandway._lab")]
pub(crate) struct Results {
    inner: strandway_lab::Results,
}

#[pymethods]
impl Results {
    /// Opens a folder, for every run or for the part `shard` of a sweep: its number and the number of parts.
    #[new]
    #[pyo3(signature = (folder, shard=None))]
    fn new(folder: PathBuf, shard: Option<(u32, u32)>) -> PyResult<Results> {
        let shard = shard.map(|(part, parts)| Shard { part, parts });
        let inner = strandway_lab::Results::open(&folder, shard).map_err(PyOSError::new_err)?;
        Ok(Results { inner })
    }

    /// The run with this key, if it is there.
    fn get(&self, key: &str) -> PyResult<Option<Found>> {
        let found = self.inner.get(key).map_err(PyOSError::new_err)?;
        Ok(found.map(|kept| match kept.report {
            Some(report) => (Some(report.to_json()), report.values(), None),
            None => (None, BTreeMap::new(), kept.error),
        }))
    }

    /// Appends a run: its report as JSON, or the reason why it failed.
    #[pyo3(signature = (key, label, set, report=None, error=None))]
    fn add(
        &mut self,
        key: String,
        label: String,
        set: BTreeMap<String, String>,
        report: Option<&str>,
        error: Option<String>,
    ) -> PyResult<()> {
        let report: Option<Report> = report
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error| PyValueError::new_err(format!("not a report: {error}")))?;
        self.inner.add(&Kept { key, label, set, report, error }).map_err(PyOSError::new_err)
    }
}
