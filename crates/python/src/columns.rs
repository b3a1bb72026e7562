//! Rows as columns of numbers: each one a block of bytes that numpy and `memoryview` read without a copy.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use strandway_fabric::Measurements;
use strandway_lab::Experiment;
use strandway_lab::facts::flow_rows;

/// A list of distinct names, and for each row the index of its name.
#[derive(Default)]
struct Names<'a> {
    known: Vec<&'a str>,
    places: HashMap<&'a str, u32>,
    of: Vec<u32>,
}

impl<'a> Names<'a> {
    fn push(&mut self, name: &'a str) {
        let place = *self.places.entry(name).or_insert_with(|| {
            self.known.push(name);
            self.known.len() as u32 - 1
        });
        self.of.push(place);
    }
}

/// A column of 8-byte numbers in this machine's order.
fn bytes<'py, const N: usize, T: Copy>(
    py: Python<'py>,
    values: &[T],
    to: fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, values.len() * N, |room| {
        for (place, value) in room.chunks_exact_mut(N).zip(values) {
            place.copy_from_slice(&to(*value));
        }
        Ok(())
    })
}

/// The flows of a run: per column its format (`d` f64, `q` i64, `I` u32 into a list of names) and its bytes. An absent
/// value is NaN, or -1.
pub(crate) fn flows<'py>(
    py: Python<'py>,
    experiment: &Experiment,
    measured: &Measurements,
) -> PyResult<Bound<'py, PyDict>> {
    let mut whole: [(&str, Vec<i64>); 4] =
        ["id", "source", "destination", "bytes"].map(|name| (name, Vec::with_capacity(experiment.messages.len())));
    let mut real: [(&str, Vec<f64>); 5] = ["start_us", "received_us", "finished_us", "fct_us", "slowdown"]
        .map(|name| (name, Vec::with_capacity(experiment.messages.len())));
    let (mut classes, mut profiles) = (Names::default(), Names::default());
    for row in flow_rows(experiment, measured) {
        let id = row.id.and_then(|id| i64::try_from(id).ok()).unwrap_or(-1);
        for ((_, column), value) in
            whole.iter_mut().zip([id, row.source.0.into(), row.destination.0.into(), row.bytes as i64])
        {
            column.push(value);
        }
        let times = [row.started, row.received, row.finished].map(|time| time.map(|at| at.as_us()));
        let [started, received, finished] = times;
        for ((_, column), value) in real.iter_mut().zip([started, received, finished, row.fct_us, row.slowdown]) {
            column.push(value.unwrap_or(f64::NAN));
        }
        classes.push(row.class);
        profiles.push(row.profile);
    }
    let columns = PyDict::new(py);
    for (name, values) in &whole {
        columns.set_item(name, ("q", bytes(py, values, i64::to_ne_bytes)?, py.None()))?;
    }
    for (name, names) in [("class", classes), ("profile", profiles)] {
        columns.set_item(name, ("I", bytes(py, &names.of, u32::to_ne_bytes)?, names.known))?;
    }
    for (name, values) in &real {
        columns.set_item(name, ("d", bytes(py, values, f64::to_ne_bytes)?, py.None()))?;
    }
    Ok(columns)
}
