//! Congestion controls written in Python, for simulated runs.
//!
//! A run has one thread and calls Python for every acknowledgement, so it is slow; in exchange a control is a class of
//! a few lines. The first exception of a control ends the run.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use strandway_lab::Experiment;
use strandway_proto::congestion::{self, Congestion, CongestionConfig, Cut, LossKind};
use strandway_proto::units::{Bytes, Rate, Time};
use strandway_sim::Control;

/// The environment of a connection, which a control gets when it is made.
#[pyclass(frozen, get_all, module = "strandway._lab")]
pub(crate) struct Environment {
    /// Bits per second of the NIC, all ports together.
    rate: u64,
    /// The number of NIC ports (planes).
    ports: u8,
    /// The round trip over the longest path without queueing.
    base_rtt_ps: u64,
    /// Rate times round trip.
    bdp: u64,
    /// Wire bytes of a full packet.
    packet: u64,
    /// Do switches trim packets?
    trimming: bool,
}

/// The contents of an acknowledgement.
#[pyclass(frozen, get_all, module = "strandway._lab")]
pub(crate) struct AckSample {
    now_ps: u64,
    rtt_ps: Option<u64>,
    bytes: u64,
    packets: u32,
    marked: bool,
    lost: Option<u64>,
    in_flight: u64,
}

/// A lost packet.
#[pyclass(frozen, get_all, module = "strandway._lab")]
pub(crate) struct LossSample {
    now_ps: u64,
    kind: &'static str,
    last_hop: bool,
    bytes: u64,
    in_flight: u64,
}

#[pymethods]
impl Environment {
    fn __repr__(&self) -> String {
        let Environment { rate, ports, base_rtt_ps, bdp, packet, trimming } = self;
        format!(
            "Environment(rate={rate}, ports={ports}, base_rtt_ps={base_rtt_ps}, bdp={bdp}, packet={packet}, trimming={})",
            python(*trimming)
        )
    }
}

#[pymethods]
impl AckSample {
    fn __repr__(&self) -> String {
        let AckSample { now_ps, rtt_ps, bytes, packets, marked, lost, in_flight } = self;
        let or_none = |value: &Option<u64>| value.map_or("None".to_string(), |value| value.to_string());
        format!(
            "AckSample(now_ps={now_ps}, rtt_ps={}, bytes={bytes}, packets={packets}, marked={}, lost={}, in_flight={in_flight})",
            or_none(rtt_ps),
            python(*marked),
            or_none(lost)
        )
    }
}

#[pymethods]
impl LossSample {
    fn __repr__(&self) -> String {
        let LossSample { now_ps, kind, last_hop, bytes, in_flight } = self;
        format!(
            "LossSample(now_ps={now_ps}, kind={kind:?}, last_hop={}, bytes={bytes}, in_flight={in_flight})",
            python(*last_hop)
        )
    }
}

fn python(flag: bool) -> &'static str {
    if flag { "True" } else { "False" }
}

/// The name of a class or function, or else of the object's class.
fn name(make: &Bound<'_, PyAny>) -> PyResult<String> {
    let named = make.getattr("__name__").ok().and_then(|name| name.extract().ok());
    named.map_or_else(|| make.get_type().name()?.extract(), Ok)
}

/// The controls of one run, and the first exception of any of them.
pub(crate) struct Controls {
    control: Arc<Control>,
    failure: Mutex<Option<PyErr>>,
}

impl Controls {
    /// Replaces the congestion controls of `experiment`: `wanted` makes the control of every connection, or is a dict
    /// with the names of profiles. The report names them: in its profiles, as a change, and in a note.
    ///
    /// # Errors
    /// `ValueError`, if the experiment has no such profile; `TypeError`, if a value cannot be called.
    pub(crate) fn plug(
        wanted: &Bound<'_, PyAny>,
        experiment: &mut Experiment,
        control: &Arc<Control>,
    ) -> PyResult<Arc<Controls>> {
        let controls = Arc::new(Controls { control: Arc::clone(control), failure: Mutex::new(None) });
        let by_name = wanted.cast::<PyDict>().ok();
        let profiles = &mut experiment.plan.profiles;
        if let Some(by_name) = by_name {
            let known: BTreeSet<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
            for name in by_name.keys() {
                let name: String = name.extract()?;
                if !known.contains(name.as_str()) {
                    let known = known.into_iter().collect::<Vec<_>>().join(", ");
                    return Err(PyValueError::new_err(format!(
                        "congestion: the scenario has no profile {name:?}; it has {known}"
                    )));
                }
            }
        }
        let changes = &mut experiment.origin.set;
        for (index, profile) in profiles.iter_mut().enumerate() {
            let make = match by_name {
                None => wanted.clone(),
                Some(by_name) => match by_name.get_item(&profile.name)? {
                    Some(make) => make,
                    None => continue,
                },
            };
            if !make.is_callable() {
                return Err(PyTypeError::new_err(format!(
                    "congestion: {} cannot be called; give a subclass of strandway.CongestionControl, or a function that returns one",
                    make.repr()?
                )));
            }
            let name = name(&make)?;
            let profile = Arc::make_mut(profile);
            let place = if index == 0 { String::new() } else { format!("{}: ", profile.name) };
            let before = profile.congestion.name();
            experiment.notes.push(format!("{place}congestion control: {name} (Python), instead of {before}"));
            let key =
                if index == 0 { "profile.congestion".to_string() } else { format!("{}.congestion", profile.name) };
            changes.insert(key, format!("{name} (Python)"));
            profile.name = format!("{}/{name}", profile.name);
            profile.congestion = controls.factory(make.unbind());
        }
        experiment.plan.threads = 1;
        Ok(controls)
    }

    fn factory(self: &Arc<Self>, make: Py<PyAny>) -> CongestionConfig {
        let controls = Arc::clone(self);
        CongestionConfig::Custom(Arc::new(move |environment| {
            let seen = Environment {
                rate: environment.rate.0,
                ports: environment.ports,
                base_rtt_ps: environment.base_rtt.0,
                bdp: environment.bdp().0,
                packet: environment.packet.0,
                trimming: environment.trimming,
            };
            let made = controls.call(|py| Calls::of(py, make.bind(py).call1((seen,))?));
            Box::new(PythonControl {
                controls: Arc::clone(&controls),
                calls: made,
                line_rate: environment.rate,
                fallback: environment.packet,
            })
        }))
    }

    /// Calls Python. `None` after an exception, in this call or before: the run is about to end.
    fn call<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        if self.control.stopping() {
            return None;
        }
        Python::attach(call)
            .map_err(|error| {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                self.control.stop();
            })
            .ok()
    }

    /// The exception that ended the run.
    pub(crate) fn failure(&self) -> Option<PyErr> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The methods of a control; those that it inherits from `CongestionControl` are not called.
struct Calls {
    on_ack: Py<PyAny>,
    on_loss: Py<PyAny>,
    window: Py<PyAny>,
    on_sent: Option<Py<PyAny>>,
    on_notification: Option<Py<PyAny>>,
    rate: Option<Py<PyAny>>,
    last_cut: Option<Py<PyAny>>,
}

impl Calls {
    fn of(py: Python<'_>, made: Bound<'_, PyAny>) -> PyResult<Calls> {
        let base = py.import("strandway.congestion")?.getattr("CongestionControl")?.cast_into::<PyType>()?;
        if !made.is_instance(&base)? {
            return Err(PyTypeError::new_err(format!(
                "congestion: {} is no strandway.CongestionControl; derive its class from that",
                made.repr()?
            )));
        }
        let own = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            let inherited = made.get_type().getattr(name)?.is(&base.getattr(name)?);
            Ok(if inherited { None } else { Some(made.getattr(name)?.unbind()) })
        };
        Ok(Calls {
            on_ack: made.getattr("on_ack")?.unbind(),
            on_loss: made.getattr("on_loss")?.unbind(),
            window: made.getattr("window")?.unbind(),
            on_sent: own("on_sent")?,
            on_notification: own("on_notification")?,
            rate: own("rate")?,
            last_cut: own("last_cut")?,
        })
    }
}

/// The control of one connection.
struct PythonControl {
    controls: Arc<Controls>,
    /// `None` if it could not be made.
    calls: Option<Calls>,
    line_rate: Rate,
    /// The window after an exception, until the run has ended.
    fallback: Bytes,
}

impl PythonControl {
    fn call<T>(&self, call: impl FnOnce(Python<'_>, &Calls) -> PyResult<T>) -> Option<T> {
        let calls = self.calls.as_ref()?;
        self.controls.call(|py| call(py, calls))
    }
}

impl Congestion for PythonControl {
    fn on_sent(&mut self, now: Time, bytes: Bytes, in_flight: Bytes) {
        if let Some(on_sent) = self.calls.as_ref().and_then(|calls| calls.on_sent.as_ref()) {
            self.controls.call(|py| on_sent.call1(py, (now.0, bytes.0, in_flight.0)));
        }
    }

    fn on_ack(&mut self, sample: &congestion::AckSample) {
        let seen = AckSample {
            now_ps: sample.now.0,
            rtt_ps: sample.rtt.map(|rtt| rtt.0),
            bytes: sample.bytes.0,
            packets: sample.packets,
            marked: sample.marked,
            lost: sample.lost.map(|lost| lost.0),
            in_flight: sample.in_flight.0,
        };
        self.call(|py, calls| calls.on_ack.call1(py, (seen,)));
    }

    fn on_loss(&mut self, loss: &congestion::LossSample) {
        let (kind, last_hop) = match loss.kind {
            LossKind::Trimmed { last_hop } => ("trimmed", last_hop),
            LossKind::Inferred => ("inferred", false),
            LossKind::TimedOut => ("timed out", false),
        };
        let seen = LossSample { now_ps: loss.now.0, kind, last_hop, bytes: loss.bytes.0, in_flight: loss.in_flight.0 };
        self.call(|py, calls| calls.on_loss.call1(py, (seen,)));
    }

    fn on_notification(&mut self, now: Time) {
        if let Some(on_notification) = self.calls.as_ref().and_then(|calls| calls.on_notification.as_ref()) {
            self.controls.call(|py| on_notification.call1(py, (now.0,)));
        }
    }

    fn window(&self) -> Bytes {
        self.call(|py, calls| calls.window.call0(py)?.extract(py)).map_or(self.fallback, Bytes)
    }

    fn rate(&mut self, now: Time) -> Option<Rate> {
        let rate = self.calls.as_ref()?.rate.as_ref()?;
        let given = self.controls.call(|py| match rate.call1(py, (now.0,))?.extract::<Option<u64>>(py)? {
            Some(0) => Err(PyValueError::new_err("rate() returned 0: give bits per second, at least 1, or None")),
            given => Ok(given),
        });
        Some(Rate(given??.min(self.line_rate.0)))
    }

    fn last_cut(&self) -> Cut {
        let Some(last_cut) = self.calls.as_ref().and_then(|calls| calls.last_cut.as_ref()) else { return Cut::Never };
        let told = self.controls.call(|py| {
            let told = last_cut.call0(py)?;
            match told.extract::<Option<String>>(py)?.as_deref() {
                None => Ok(Cut::Never),
                Some("marks") => Ok(Cut::Marks),
                Some("delay") => Ok(Cut::Delay),
                Some("loss") => Ok(Cut::Loss),
                Some(other) => Err(PyValueError::new_err(format!(
                    "last_cut() returned {other:?}: give \"marks\", \"delay\", \"loss\" or None"
                ))),
            }
        });
        told.unwrap_or_default()
    }
}
