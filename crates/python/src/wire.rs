//! Process groups for Python. Memory comes as an address and a length, with an object that keeps it alive.
#![allow(unsafe_code, reason = "arrays of Python are lent by address, each with a reference to its owner")]

use pyo3::exceptions::{PyTimeoutError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::any::Any;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandway_group::GroupError;
use strandway_group::process::{
    self, Buffer, BufferRange, CollectiveCall, Element, Failure, GroupOptions, Launch, Reduction, Store,
    Work as Running,
};

/// How long a wait goes before Ctrl-C is looked for.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Memory: address, bytes, and whether it may be written.
type Memory = (usize, usize, bool);
/// Bytes of a buffer: its number, the first byte and the one behind the last.
type Part = (usize, usize, usize);

fn failed(py: Python<'_>, failure: &Failure) -> PyErr {
    let (kind, rank) = match failure {
        Failure::Gone { rank, .. } => ("gone", Some(*rank)),
        Failure::Told { by, .. } => ("told", Some(*by)),
        Failure::TimedOut { .. } => ("timeout", None),
        Failure::Aborted => ("aborted", None),
        Failure::Mismatch(_) => ("mismatch", None),
        Failure::Team(_) => ("team", None),
        Failure::Node(_) => ("node", None),
        Failure::Undelivered(_) => ("undelivered", None),
    };
    let name = if kind == "timeout" { "WireTimeout" } else { "WireError" };
    let made = || py.import("strandway.errors")?.getattr(name)?.call1((failure.to_string(), kind, rank));
    made().map_or_else(|error| error, PyErr::from_value)
}

fn refused(py: Python<'_>, error: &GroupError) -> PyErr {
    let made =
        || py.import("strandway.errors")?.getattr("WireError")?.call1((error.to_string(), "meeting", None::<u32>));
    made().map_or_else(|error| error, PyErr::from_value)
}

pub(crate) fn seconds(timeout: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(timeout)
        .map_err(|_| PyValueError::new_err(format!("a time of {timeout} s: give 0 or more")))
}

/// A store of Python: `set(key, value)`, `get(key, seconds)` and, if it has it, `remove(key)`.
struct Given(Py<PyAny>);

impl Store for Given {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        Python::attach(|py| self.0.call_method1(py, "set", (key, value)).map(drop).map_err(io::Error::other))
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        Python::attach(|py| {
            let value = self.0.call_method1(py, "get", (key, timeout.as_secs_f64())).map_err(|error| {
                // Stores have exceptions of their own; one that took all the time says that there is no value.
                let late = error.is_instance_of::<PyTimeoutError>(py) || began.elapsed() >= timeout.mul_f64(0.9);
                let kind = if late { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
                io::Error::new(kind, error)
            })?;
            value.extract(py).map_err(|_| io::Error::other(format!("the store's value {key} is not bytes")))
        })
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        Python::attach(|py| match self.0.getattr(py, "remove") {
            Ok(remove) => remove.call1(py, (key,)).map(drop).map_err(io::Error::other),
            // A store without removal keeps the value.
            Err(_) => Ok(()),
        })
    }
}

/// One rank's side of a group.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct WireGroup {
    /// There until it is dropped.
    inner: Option<process::Group>,
    /// It has a node of its own, which ends with it.
    apart: bool,
}

/// Threads in which groups with a node of their own end: their last words take a while to arrive.
static LEAVING: Mutex<Vec<(u32, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Takes the threads of this operating system process out of the list. The handles of a parent's threads are forgotten:
/// other threads may have the places of those, and dropping the handles would detach them.
fn take_leaving(all: &mut Vec<(u32, JoinHandle<()>)>) -> Vec<(u32, JoinHandle<()>)> {
    let (ours, parents) = all.drain(..).partition::<Vec<_>, _>(|(pid, _)| *pid == std::process::id());
    parents.into_iter().for_each(std::mem::forget);
    ours
}

impl WireGroup {
    fn new(group: process::Group, apart: bool) -> WireGroup {
        WireGroup { inner: Some(group), apart }
    }

    fn group(&self) -> &process::Group {
        self.inner.as_ref().expect("there until it is dropped")
    }
}

impl Drop for WireGroup {
    fn drop(&mut self) {
        let group = self.inner.take();
        if !self.apart {
            return;
        }
        // The interpreter's lock is held here, and the end of a node may take seconds.
        if let Ok(leaving) = std::thread::Builder::new().name("strandway-leaving".into()).spawn(move || drop(group)) {
            let mut all = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
            *all = take_leaving(&mut all);
            all.retain(|(_, thread)| !thread.is_finished());
            all.push((std::process::id(), leaving));
        }
    }
}

#[pymethods]
impl WireGroup {
    /// Meets the other ranks at a store. `apart`: with a node of its own, for several ranks in one process. `towards`:
    /// the host where ranks meet, the way to which may be that to the others.
    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "one call for all ways to meet")]
    fn meet(
        py: Python<'_>,
        store: Py<PyAny>,
        rank: u32,
        ranks: u32,
        towards: Option<&str>,
        timeout: f64,
        patience: f64,
        apart: bool,
    ) -> PyResult<WireGroup> {
        let options = GroupOptions { timeout: seconds(timeout)?, patience: seconds(patience)? };
        let met = py.detach(|| {
            let mut store = Given(store);
            match apart {
                true => process::Group::meet_apart(&mut store, rank, ranks, towards, options),
                false => process::Group::meet(&mut store, rank, ranks, towards, options),
            }
        });
        met.map(|group| WireGroup::new(group, apart)).map_err(|error| refused(py, &error))
    }

    /// Meets those that the launcher of this process has started.
    #[staticmethod]
    fn from_env(py: Python<'_>, timeout: f64, patience: f64) -> PyResult<WireGroup> {
        let options = GroupOptions { timeout: seconds(timeout)?, patience: seconds(patience)? };
        let met = py.detach(|| Launch::from_env()?.form(options));
        met.map(|group| WireGroup::new(group, false)).map_err(|error| refused(py, &error))
    }

    fn rank(&self) -> u32 {
        self.group().rank()
    }

    fn ranks(&self) -> u32 {
        self.group().ranks()
    }

    fn host(&self, rank: u32) -> Option<String> {
        self.group().host(rank).map(str::to_string)
    }

    fn begun(&self) -> u64 {
        self.group().begun()
    }

    fn set_timeout(&self, timeout: f64) -> PyResult<()> {
        self.group().set_timeout(seconds(timeout)?);
        Ok(())
    }

    fn abort(&self) {
        self.group().abort();
    }

    /// A call was refused before it came here: it takes its number, and fails at the other ranks, which hear why.
    fn refuse(&self, what: &str, why: &str) {
        self.group().refuse(&format!("{what}: {why}"));
    }

    /// The kind and text of the first failure.
    fn failure(&self) -> Option<(bool, String)> {
        self.group().failure().map(|failure| (matches!(failure, Failure::TimedOut { .. }), failure.to_string()))
    }

    fn split(&self, py: Python<'_>, color: Option<u32>, key: u32) -> PyResult<Option<WireGroup>> {
        let split = py.detach(|| self.group().split(color, key)).map_err(|failure| failed(py, &failure))?;
        // Whichever of the two goes last ends the node, if it is theirs alone.
        Ok(split.map(|group| WireGroup::new(group, self.apart)))
    }

    fn twin(&self, key: u64) -> WireGroup {
        WireGroup::new(self.group().twin(key), self.apart)
    }

    fn shrink(&self, py: Python<'_>, excluded: Vec<u32>) -> PyResult<WireGroup> {
        let left = self.group().shrink(&excluded).map_err(|failure| failed(py, &failure))?;
        Ok(WireGroup::new(left, self.apart))
    }

    /// Begins a collective; the work keeps `owner` until it has ended.
    #[allow(clippy::too_many_arguments, reason = "one call for all collectives")]
    fn start(
        &self,
        py: Python<'_>,
        job: &str,
        buffers: Vec<Memory>,
        inputs: Vec<Part>,
        outputs: Vec<Part>,
        element: &str,
        reduction: &str,
        factor: f64,
        root: u32,
        timeout: Option<f64>,
        owner: Py<PyAny>,
    ) -> PyResult<Work> {
        let span = |(buffer, start, end): Part| BufferRange { buffer, bytes: start..end };
        let all = |parts: &[Part]| parts.iter().copied().map(span).collect::<Vec<BufferRange>>();
        let one = |parts: &[Part]| {
            parts.first().copied().map(span).ok_or_else(|| PyValueError::new_err(format!("{job}: a buffer is missing")))
        };
        let job = match job {
            "all_reduce" => CollectiveCall::AllReduce(one(&outputs)?),
            "reduce" => CollectiveCall::Reduce { at: one(&outputs)?, root },
            "broadcast" => CollectiveCall::Broadcast { at: one(&outputs)?, root },
            "all_gather" => {
                CollectiveCall::AllGather { input: inputs.first().copied().map(span), outputs: all(&outputs) }
            }
            "reduce_scatter" => CollectiveCall::ReduceScatter { inputs: all(&inputs), output: one(&outputs)? },
            "all_to_all" => CollectiveCall::AllToAll { inputs: all(&inputs), outputs: all(&outputs) },
            "gather" => CollectiveCall::Gather { input: one(&inputs)?, outputs: all(&outputs), root },
            "scatter" => CollectiveCall::Scatter { inputs: all(&inputs), output: one(&outputs)?, root },
            "barrier" => CollectiveCall::Barrier,
            other => return Err(PyValueError::new_err(format!("no collective {other:?}"))),
        };
        let element = match Element::moved(element) {
            Element::Other(_) if job.reduces() => {
                let what = format!("numbers of the kind {element} are not combined");
                self.group().refuse(&what);
                return Err(PyTypeError::new_err(what));
            }
            known => known,
        };
        let reduction = Reduction::named(reduction, factor)
            .ok_or_else(|| PyValueError::new_err(format!("no reduction {reduction:?}")))?;
        let timeout = timeout.map(seconds).transpose()?;
        let work = self.group().start(job, buffers_of(buffers, owner), element, reduction, timeout);
        work.map(Work).map_err(|failure| failed(py, &failure))
    }

    fn send(
        &self,
        py: Python<'_>,
        buffer: Memory,
        to: u32,
        tag: u32,
        timeout: Option<f64>,
        owner: Py<PyAny>,
    ) -> PyResult<Work> {
        let timeout = timeout.map(seconds).transpose()?;
        let Some(buffer) = buffers_of(vec![(buffer.0, buffer.1, false)], owner).pop() else {
            unreachable!("one went in")
        };
        self.group().start_send(to, tag, buffer, timeout).map(Work).map_err(|failure| failed(py, &failure))
    }

    fn recv(
        &self,
        py: Python<'_>,
        buffer: Memory,
        source: Option<u32>,
        tag: u32,
        timeout: Option<f64>,
        owner: Py<PyAny>,
    ) -> PyResult<Work> {
        let timeout = timeout.map(seconds).transpose()?;
        let Some(buffer) = buffers_of(vec![buffer], owner).pop() else { unreachable!("one went in") };
        self.group().start_recv(source, tag, buffer, timeout).map(Work).map_err(|failure| failed(py, &failure))
    }
}

/// Memory of Python, with its owner.
fn buffers_of(buffers: Vec<Memory>, owner: Py<PyAny>) -> Vec<Buffer> {
    let mut owner: Option<Box<dyn Any + Send>> = Some(Box::new(owner));
    let lend = |(address, length, writable): Memory| {
        let (address, owner) = (std::ptr::with_exposed_provenance_mut::<u8>(address), owner.take());
        if writable {
            // SAFETY: the package's own modules pass an array's address and length, and the array or a list of them as
            // the owner, of which the first buffer has a reference and lives as long as the others. Programs that touch
            // an array during its collective see any bytes, as with every library of collectives.
            unsafe { Buffer::write(address, length, owner) }
        } else {
            // SAFETY: as above.
            unsafe { Buffer::read(address, length, owner) }
        }
    };
    buffers.into_iter().map(lend).collect()
}

/// Memory of Python, of which the caller keeps the owner until it has taken the memory back.
pub(crate) fn borrowed(address: usize, length: usize) -> &'static mut [u8] {
    // SAFETY: as above; the owner stays with the node that has the memory, and is let go after it.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(address), length) }
}

/// A collective under way, or ended.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct Work(Running);

#[pymethods]
impl Work {
    /// Has it ended?
    fn is_ended(&self) -> bool {
        self.0.is_ended()
    }

    /// Has it ended without its result?
    fn failed(&self) -> bool {
        matches!(self.0.poll(), Some(Err(_)))
    }

    /// Waits with the interpreter's lock released: false if the time is over, an exception if it failed.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let until = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
            match py.detach(|| self.0.wait_for(left)) {
                Some(Ok(_)) => return Ok(true),
                Some(Err(failure)) => return Err(failed(py, &failure)),
                None if until.is_some_and(|until| Instant::now() >= until) => return Ok(false),
                None => py.check_signals()?,
            }
        }
    }

    /// The rank that a receive from anybody was filled by.
    fn source(&self) -> Option<u32> {
        self.0.poll().and_then(Result::ok).flatten()
    }

    /// Puts a number into a list of endings once it has ended.
    fn notify(&self, endings: &Endings, number: u64) {
        self.0.notify(&endings.sender, number);
    }
}

/// Numbers of works that have ended, for one thread that takes them.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct Endings {
    pub(crate) sender: Sender<u64>,
    receiver: Mutex<Receiver<u64>>,
}

#[pymethods]
impl Endings {
    #[new]
    fn new() -> Endings {
        let (sender, receiver) = channel();
        Endings { sender, receiver: Mutex::new(receiver) }
    }

    /// Puts in the number of a work that Python has ended.
    fn put(&self, number: u64) {
        // The receiver lives as long as the sender.
        let _ = self.sender.send(number);
    }

    /// Waits for the next one with the interpreter's lock released; None if there is none within `timeout` seconds.
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<u64>> {
        let timeout = seconds(timeout)?;
        Ok(py.detach(|| self.receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(timeout).ok()))
    }
}

/// Ends everything on the wire, once what was said has arrived. An exception names what did not arrive.
#[pyfunction]
pub(crate) fn close_wire(py: Python<'_>) -> PyResult<()> {
    let closed = py.detach(|| {
        let leaving = take_leaving(&mut LEAVING.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, thread) in leaving {
            // A panic there was told.
            let _ = thread.join();
        }
        process::close_all()
    });
    closed.map_err(|failure| failed(py, &failure))
}

/// The descriptors of all sockets of this process's nodes. A child of a fork covers them, or it hides the death of its
/// parent from the other ranks.
#[pyfunction]
pub(crate) fn wire_descriptors() -> Vec<i32> {
    process::descriptors()
}

/// The operations under way in all groups of this process, the oldest first: name, seconds since they began, and the
/// ranks that they wait for.
#[pyfunction]
pub(crate) fn wire_waiting(py: Python<'_>) -> Vec<(String, f64, Vec<String>)> {
    let all = py.detach(process::waiting);
    all.into_iter().map(|one| (one.what, one.since.as_secs_f64(), one.ranks)).collect()
}
