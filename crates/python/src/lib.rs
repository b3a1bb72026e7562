//! `strandway._lab`: what the Python package needs of the lab, of nodes and of process groups. Everything that a user
//! sees is in `strandway/*.py`.

mod columns;
mod command;
#[cfg(target_os = "linux")]
mod config;
mod congestion;
#[cfg(target_os = "linux")]
mod files;
mod live;
#[cfg(target_os = "linux")]
mod mover;
#[cfg(target_os = "linux")]
mod node;
mod outcome;
mod reproduction;
mod results;
mod scenario;
mod watch;
#[cfg(target_os = "linux")]
mod wire;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
// Exports the C interface, for the backend for NIXL: a process that has both has one copy of the library.
#[cfg(target_os = "linux")]
use strandway as _;
use strandway_import::Problems;

/// Problems as an exception: the text of the command line, and a list of the problems.
fn refused(py: Python<'_>, problems: &Problems) -> PyErr {
    exception(py, problems).map_or_else(|error| error, PyErr::from_value)
}

fn exception<'py>(py: Python<'py>, problems: &Problems) -> PyResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    for problem in &problems.0 {
        let dict = PyDict::new(py);
        dict.set_item("file", &problem.file)?;
        dict.set_item("line", problem.line)?;
        dict.set_item("key", &problem.key)?;
        dict.set_item("value", &problem.value)?;
        dict.set_item("what", &problem.what)?;
        dict.set_item("remedy", &problem.remedy)?;
        list.append(dict)?;
    }
    py.import("strandway.errors")?.getattr("ScenarioError")?.call1((problems.to_string(), list))
}

/// Adds groups, nodes and files.
#[cfg(target_os = "linux")]
fn add_real_hosts(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<wire::WireGroup>()?;
    module.add_class::<wire::Work>()?;
    module.add_class::<wire::Endings>()?;
    module.add_class::<node::WireNode>()?;
    module.add_class::<node::WirePeer>()?;
    module.add_class::<node::Pending>()?;
    module.add_class::<mover::WireMover>()?;
    module.add_class::<files::FileServer>()?;
    module.add_function(wrap_pyfunction!(files::copy, module)?)?;
    module.add_function(wrap_pyfunction!(files::cast, module)?)?;
    module.add_function(wrap_pyfunction!(wire::close_wire, module)?)?;
    module.add_function(wrap_pyfunction!(mover::key_of_environment, module)?)?;
    module.add_function(wrap_pyfunction!(mover::options_of_environment, module)?)?;
    module.add_function(wrap_pyfunction!(wire::wire_descriptors, module)?)?;
    module.add_function(wrap_pyfunction!(wire::wire_waiting, module)?)?;
    Ok(())
}

/// Adds an error in place of groups, nodes and files: they need Linux's sockets.
#[cfg(not(target_os = "linux"))]
fn add_real_hosts(module: &Bound<'_, PyModule>) -> PyResult<()> {
    /// Called for a name that the module does not have (PEP 562).
    #[pyfunction]
    fn __getattr__(name: &str) -> PyResult<Py<PyAny>> {
        use pyo3::exceptions::{PyAttributeError, PyNotImplementedError};
        match name.starts_with("__") {
            true => Err(PyAttributeError::new_err(format!("module 'strandway._lab' has no attribute '{name}'"))),
            false => Err(PyNotImplementedError::new_err(
                "groups, nodes and file transfers work on Linux only, since they need its sockets; simulations work here",
            )),
        }
    }
    module.add_function(wrap_pyfunction!(__getattr__, module)?)
}

#[pymodule]
fn _lab(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<outcome::Outcome>()?;
    module.add_class::<live::Lab>()?;
    module.add_class::<watch::Stop>()?;
    module.add_class::<reproduction::Reproduction>()?;
    module.add_class::<congestion::Environment>()?;
    module.add_class::<congestion::AckSample>()?;
    module.add_class::<congestion::LossSample>()?;
    module.add_class::<results::Results>()?;
    module.add_function(wrap_pyfunction!(command::main, module)?)?;
    module.add_function(wrap_pyfunction!(reproduction::reproduction_sets, module)?)?;
    module.add_function(wrap_pyfunction!(reproduction::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(reproduction::describe_file, module)?)?;
    module.add_function(wrap_pyfunction!(outcome::page_of_rows, module)?)?;
    module.add_function(wrap_pyfunction!(outcome::table_of_rows, module)?)?;
    add_real_hosts(module)
}
