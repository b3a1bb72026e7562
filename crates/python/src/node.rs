//! Nodes for Python. Every call gives a [`Pending`], which blocks or tells a list of endings.

use crate::config::{Settings, addresses, be_patient, texts};
use crate::wire::{Endings, LOOK, seconds};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use strandway_asynchronous::{AsyncError, AsyncNode, Peer};
use strandway_udp::address;
use strandway_udp::{Region, RemoteRegion, SessionCounters};

/// The result of a call.
enum Value {
    Nothing,
    Number(u64),
    Flag(bool),
    Bytes(Vec<u8>),
    Region(Region),
    Key(RemoteRegion),
    Peer(Peer),
    Written(u32, u64),
    Counters(Box<SessionCounters>),
}

type Future_ = Pin<Box<dyn Future<Output = Result<Value, AsyncError>> + Send>>;

/// An error of the package: `WireError` of the kind `closed` or `node`.
fn failed(py: Python<'_>, error: &AsyncError) -> PyErr {
    let kind = if matches!(error, AsyncError::Closed(_)) { "closed" } else { "node" };
    crate::node::wire_error(py, &error.to_string(), kind)
}

/// A `WireError` of this kind.
pub(crate) fn wire_error(py: Python<'_>, text: &str, kind: &str) -> PyErr {
    let made = || py.import("strandway.errors")?.getattr("WireError")?.call1((text, kind, None::<u32>));
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Is rung when a call may go on.
#[derive(Default)]
struct Bell {
    state: Mutex<Ringing>,
    rung: Condvar,
}

#[derive(Default)]
struct Ringing {
    rung: bool,
    /// The channel that gets the number at the next ring, once.
    tell: Option<(Sender<u64>, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        state.rung = true;
        self.rung.notify_all();
        if let Some((sender, number)) = state.tell.take() {
            // The list may be gone.
            let _ = sender.send(number);
        }
    }
}

impl Bell {
    /// Waits until it is rung, for at most this time.
    fn wait(&self, longest: Duration) {
        let mut state = lock(&self.state);
        if !state.rung {
            state = self.rung.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.rung = false;
    }
}

enum Progress {
    Under(Future_),
    Ended(Result<Value, AsyncError>),
    Taken,
}

/// A call under way, or ended. Begins with the first `wait` or `tell`.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct Pending {
    progress: Mutex<Progress>,
    bell: Arc<Bell>,
}

impl Pending {
    fn new<T: 'static>(
        future: impl Future<Output = Result<T, AsyncError>> + Send + 'static,
        value: impl Fn(T) -> Value + Send + 'static,
    ) -> Pending {
        let future = Box::pin(async move { future.await.map(value) });
        Pending { progress: Mutex::new(Progress::Under(future)), bell: Arc::default() }
    }

    /// Has it ended? Moves it on.
    fn poll(&self) -> bool {
        let mut progress = lock(&self.progress);
        if let Progress::Under(future) = &mut *progress {
            let waker = Waker::from(Arc::clone(&self.bell));
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => *progress = Progress::Ended(outcome),
                Poll::Pending => return false,
            }
        }
        true
    }

    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match std::mem::replace(&mut *lock(&self.progress), Progress::Taken) {
            Progress::Ended(Ok(value)) => value.into_python(py),
            Progress::Ended(Err(error)) => Err(failed(py, &error)),
            _ => Err(PyValueError::new_err("the result of this call was taken already")),
        }
    }
}

impl Value {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Value::Nothing => py.None(),
            Value::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
            Value::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any().unbind(),
            Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
            Value::Region(region) => WireRegion(region).into_pyobject(py)?.into_any().unbind(),
            Value::Key(key) => PyBytes::new(py, &key.to_bytes()).into_any().unbind(),
            Value::Peer(peer) => WirePeer(peer).into_pyobject(py)?.into_any().unbind(),
            Value::Written(immediate, bytes) => (immediate, bytes).into_pyobject(py)?.into_any().unbind(),
            Value::Counters(counters) => {
                let dict = PyDict::new(py);
                dict.set_item("sent_bytes", counters.sent_bytes)?;
                dict.set_item("received_bytes", counters.received_bytes)?;
                dict.set_item("fresh_bytes", counters.fresh_bytes)?;
                dict.set_item("retransmitted", counters.engine.retransmitted)?;
                dict.set_item("rebuilt_bytes", counters.rebuilt_bytes)?;
                dict.set_item("rtt_us", counters.ping_rtt.0 as f64 / 1e6)?;
                dict.set_item("up", counters.up)?;
                dict.into_any().unbind()
            }
        })
    }
}

#[pymethods]
impl Pending {
    /// Waits with the interpreter's lock released: the result; `TimeoutError` if there is none in time.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let until = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let ended = py.detach(|| {
                self.poll() || {
                    let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
                    self.bell.wait(left);
                    self.poll()
                }
            });
            if ended {
                return self.take(py);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                let said = format!("no result after {} s", timeout.unwrap_or_default());
                return Err(pyo3::exceptions::PyTimeoutError::new_err(said));
            }
            py.check_signals()?;
        }
    }

    /// Puts a number into a list of endings when it may have ended; call `is_ended` then.
    fn notify(&self, endings: &Endings, number: u64) {
        lock(&self.bell.state).tell = Some((endings.sender.clone(), number));
        if self.poll()
            && let Some((sender, number)) = lock(&self.bell.state).tell.take()
        {
            let _ = sender.send(number);
        }
    }

    /// Has it ended?
    fn is_ended(&self) -> bool {
        self.poll()
    }

    /// Gives the call up, with its answer.
    fn cancel(&self) {
        *lock(&self.progress) = Progress::Taken;
    }
}

/// A buffer of a node.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct WireRegion(Region);

/// A node on a thread of its own.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct WireNode(Mutex<Option<AsyncNode>>);

impl WireNode {
    fn node(&self, py: Python<'_>) -> PyResult<AsyncNode> {
        lock(&self.0).clone().ok_or_else(|| wire_error(py, "the node was closed", "node"))
    }
}

#[pymethods]
impl WireNode {
    #[new]
    fn new(py: Python<'_>, settings: Settings, peer_timeout: f64, accept: bool) -> PyResult<WireNode> {
        let mut config = settings.settle(0, &[], None)?.config;
        be_patient(&mut config, seconds(peer_timeout)?);
        config.accept = accept;
        let node = AsyncNode::spawn(config).map_err(|error| wire_error(py, &error.to_string(), "node"))?;
        Ok(WireNode(Mutex::new(Some(node))))
    }

    fn addresses(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(texts(self.node(py)?.addresses()))
    }

    /// Ends the node, unless connections are still in use.
    fn close(&self, py: Python<'_>) {
        let node = lock(&self.0).take();
        py.detach(|| drop(node));
    }

    fn connect(&self, py: Python<'_>, peer: Vec<String>) -> PyResult<Pending> {
        let node = self.node(py)?;
        let ours: Vec<_> = node.addresses().iter().map(|&one| address::kept(one)).collect();
        Ok(Pending::new(node.connect(&addresses(&peer, 0, &ours)?), Value::Peer))
    }

    fn accept(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.node(py)?.accept(), Value::Peer))
    }

    fn register(&self, py: Python<'_>, buffer: Vec<u8>) -> PyResult<Pending> {
        Ok(Pending::new(self.node(py)?.register(buffer), Value::Region))
    }

    fn zeros(&self, py: Python<'_>, bytes: usize) -> PyResult<Pending> {
        Ok(Pending::new(self.node(py)?.register(vec![0; bytes]), Value::Region))
    }

    fn deregister(&self, py: Python<'_>, region: &WireRegion) -> PyResult<Pending> {
        Ok(Pending::new(self.node(py)?.deregister(region.0), Value::Bytes))
    }

    fn read(&self, py: Python<'_>, region: &WireRegion, start: usize, end: usize) -> PyResult<Pending> {
        Ok(Pending::new(self.node(py)?.read(region.0, start..end), Value::Bytes))
    }

    fn write(&self, py: Python<'_>, region: &WireRegion, at: usize, bytes: Vec<u8>) -> PyResult<Pending> {
        let work = move |memory: &mut [u8]| match memory.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            Some(place) => {
                place.copy_from_slice(&bytes);
                true
            }
            None => false,
        };
        Ok(Pending::new(self.node(py)?.with_memory(region.0, work), Value::Flag))
    }
}

/// A connection.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct WirePeer(Peer);

fn key_of(key: &[u8]) -> PyResult<RemoteRegion> {
    let bytes = key.try_into().map_err(|_| {
        PyValueError::new_err(format!("a key of {} bytes: keys that expose() gives have 16", key.len()))
    })?;
    Ok(RemoteRegion::from_bytes(bytes))
}

#[pymethods]
impl WirePeer {
    /// Where its first datagram came from, if the other side began.
    fn source(&self) -> Option<String> {
        self.0.from().map(|from| address::shown(from).to_string())
    }

    fn send(&self, region: &WireRegion, start: usize, end: usize) -> Pending {
        Pending::new(self.0.send(region.0, start..end), |()| Value::Nothing)
    }

    fn recv(&self, region: &WireRegion, start: usize, end: usize) -> Pending {
        Pending::new(self.0.recv(region.0, start..end), Value::Number)
    }

    fn write(
        &self,
        region: &WireRegion,
        start: usize,
        end: usize,
        key: &[u8],
        at: u64,
        immediate: Option<u32>,
    ) -> PyResult<Pending> {
        let remote = key_of(key)?;
        Ok(Pending::new(self.0.write(region.0, start..end, remote, at, immediate), |()| Value::Nothing))
    }

    fn written(&self) -> Pending {
        Pending::new(self.0.written(), |(immediate, bytes)| Value::Written(immediate, bytes))
    }

    fn expose(&self, region: &WireRegion, start: usize, end: usize) -> Pending {
        Pending::new(self.0.expose(region.0, start..end), Value::Key)
    }

    fn revoke(&self, key: &[u8]) -> PyResult<Pending> {
        Ok(Pending::new(self.0.revoke(key_of(key)?), Value::Flag))
    }

    fn counters(&self) -> Pending {
        Pending::new(self.0.counters(), |counters| Value::Counters(Box::new(counters)))
    }

    fn close(&self) -> Pending {
        Pending::new(self.0.close(), |()| Value::Nothing)
    }

    /// Why it has ended, if it has.
    fn ended(&self) -> Option<String> {
        self.0.ended().map(|error| error.to_string())
    }
}
