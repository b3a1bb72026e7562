//! Nodes that read and write the memory of tensors, for transports of PyTorch. Memory comes as an address and a length,
//! with an object that keeps it alive until it is released.

use crate::node::wire_error;
use crate::wire::{borrowed, seconds};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandway_mover::environment::{self, Variables};
use strandway_mover::{Code, Event, EventKind, Mover, MoverError, Options};
use strandway_udp::environment::Settings;
use strandway_udp::{Protection, RemoteRegion, Rights, address};

/// Events that one call gives.
const EVENTS: usize = 256;
/// The most unfinished operations of a connection.
const OPERATIONS: u32 = 4_096;

/// An event: its kind, whether it was a success, the text of its code, its connection, and its number.
type PyEvent = (&'static str, bool, &'static str, u64, u64);

/// A node, and the memory that it has.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct WireMover {
    mover: Mutex<Option<Arc<Mover>>>,
    /// The payload bytes of a packet.
    payload: u32,
    /// The owners of memory, by its number; they keep it alive.
    owners: Mutex<HashMap<u64, Py<PyAny>>>,
    /// The process that opened it. A child of its fork has neither its thread nor its turn with the lock.
    pid: u32,
}

fn failed(py: Python<'_>, error: &MoverError) -> PyErr {
    let kind = match error.code {
        Code::Busy => "busy",
        Code::InUse => "in use",
        Code::NoConnection | Code::NoNode | Code::ClosedByPeer | Code::ClosedHere | Code::PeerSilent => "closed",
        _ => "node",
    };
    wire_error(py, &error.to_string(), kind)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shown(event: &Event) -> Option<PyEvent> {
    let kind = match event.kind {
        EventKind::Connected => "connected",
        EventKind::Closed => "closed",
        EventKind::WriteDone | EventKind::ReadDone => "done",
        _ => return None,
    };
    Some((kind, event.code == Code::Ok, event.code.text(), event.connection, event.context))
}

/// The key that opens a peer's memory.
fn remote(key: &[u8]) -> PyResult<RemoteRegion> {
    let bytes =
        key.try_into().map_err(|_| PyValueError::new_err(format!("a key of {} bytes: it has 16", key.len())))?;
    Ok(RemoteRegion::from_bytes(bytes))
}

impl WireMover {
    fn mover(&self, py: Python<'_>) -> PyResult<Arc<Mover>> {
        lock(&self.mover).clone().ok_or_else(|| wire_error(py, "the node was closed", "closed"))
    }

    /// A call of the mover, with the interpreter's lock released: the mover's thread may have its own.
    fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Mover) -> Result<T, MoverError> + Send) -> PyResult<T> {
        let mover = self.mover(py)?;
        py.detach(|| call(&mover)).map_err(|error| failed(py, &error))
    }
}

/// The key that these variables give, if they give one.
#[pyfunction]
pub(crate) fn key_of_environment(variables: HashMap<String, String>) -> PyResult<Option<Cow<'static, [u8]>>> {
    let get: Variables<'_> = &|name| variables.get(name).filter(|value| !value.is_empty()).cloned();
    Ok(environment::key(get).map_err(PyValueError::new_err)?.map(Cow::Owned))
}

/// The options that these variables and the interfaces of the host give a node, by the names of Python's keyword
/// arguments; `rate` is in bits per second, and `team` is the number of the multicast team. `None` where nothing says it.
#[pyfunction]
pub(crate) fn options_of_environment(
    py: Python<'_>,
    variables: HashMap<String, String>,
) -> PyResult<Bound<'_, PyDict>> {
    let get: Variables<'_> = &|name| variables.get(name).filter(|value| !value.is_empty()).cloned();
    let planes = environment::planes(get).map_err(PyValueError::new_err)?;
    // No option depends on the key.
    let options = environment::options(get, &[0; 32], &planes).map_err(PyValueError::new_err)?;
    let team = Settings::read(get).map_err(PyValueError::new_err)?.team;
    let shown = |plane: &SocketAddrV6| address::shown(SocketAddr::V6(*plane)).to_string();
    let protection = match options.protection {
        Protection::Encrypted => "encrypted",
        Protection::Authenticated => "authenticated",
        Protection::None => "none",
    };
    let dict = PyDict::new(py);
    dict.set_item("planes", options.planes.iter().map(shown).collect::<Vec<_>>())?;
    dict.set_item("profile", options.profile)?;
    dict.set_item("protection", protection)?;
    dict.set_item("payload", options.payload)?;
    dict.set_item("rate", options.rate.map(|rate| rate.0))?;
    dict.set_item("team", team)?;
    Ok(dict)
}

#[pymethods]
impl WireMover {
    /// A node with this key; the rest as the variables say, of which Python has those of the environment and its own.
    #[new]
    fn new(py: Python<'_>, key: &[u8], variables: HashMap<String, String>, peer_timeout: f64) -> PyResult<WireMover> {
        let get: Variables<'_> = &|name| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let refused = |text: String| PyValueError::new_err(text);
        let planes = environment::planes(get).map_err(refused)?;
        let options = environment::options(get, key, &planes).map_err(refused)?;
        let patience = seconds(peer_timeout)?;
        let options =
            Options { operations_max: OPERATIONS, peer_timeout: patience, handshake_timeout: patience, ..options };
        let mover = py.detach(|| Mover::open(&options)).map_err(|error| failed(py, &error))?;
        Ok(WireMover {
            mover: Mutex::new(Some(Arc::new(mover))),
            payload: options.payload.unwrap_or_default(),
            owners: Mutex::default(),
            pid: std::process::id(),
        })
    }

    /// The payload bytes of a packet.
    fn payload(&self) -> u32 {
        self.payload
    }

    /// Its address on each plane.
    fn addresses(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let all = self.call(py, Mover::addresses)?;
        Ok(all.iter().map(|&one| address::shown(one).to_string()).collect())
    }

    /// The descriptors of its sockets, which a child of a fork covers.
    fn descriptors(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.call(py, Mover::descriptors)
    }

    /// Registers memory that `owner` keeps alive.
    fn register(&self, py: Python<'_>, at: usize, length: usize, owner: Py<PyAny>) -> PyResult<u64> {
        let memory = self.call(py, |mover| mover.register(at, length, || borrowed(at, length)))?;
        lock(&self.owners).insert(memory, owner);
        Ok(memory)
    }

    /// Gives memory back; nothing touches it after this call.
    fn release(&self, py: Python<'_>, memory: u64) -> PyResult<()> {
        self.call(py, |mover| mover.release(memory))?;
        let owner = lock(&self.owners).remove(&memory);
        drop(owner);
        Ok(())
    }

    /// Lets every peer with this node's key read and write the memory: the key that they need.
    fn expose(&self, py: Python<'_>, memory: u64, length: u64) -> PyResult<Py<PyBytes>> {
        let rights = Rights::READ | Rights::WRITE;
        let key = self.call(py, |mover| mover.expose_for(0, memory, 0, length, rights))?;
        Ok(PyBytes::new(py, &key.to_bytes()).unbind())
    }

    /// Begins a connection; an event tells its beginning or its end.
    fn connect(&self, py: Python<'_>, peer: Vec<String>) -> PyResult<u64> {
        let peer = crate::config::addresses(&peer, 0, &[])?;
        self.call(py, |mover| mover.connect(&peer, 0))
    }

    /// Ends a connection.
    fn end(&self, py: Python<'_>, connection: u64) -> PyResult<()> {
        self.call(py, |mover| mover.close(connection))
    }

    /// Writes (or reads) a range of memory to (from) the peer's memory that the key opens. The event has this number.
    #[allow(clippy::too_many_arguments, reason = "a place here, a place there, and a number")]
    fn begin(
        &self,
        py: Python<'_>,
        reads: bool,
        connection: u64,
        memory: u64,
        offset: u64,
        bytes: u64,
        key: &[u8],
        at: u64,
        number: u64,
    ) -> PyResult<()> {
        let remote = remote(key)?;
        self.call(py, |mover| match reads {
            true => mover.read(connection, memory, offset, bytes, remote, at, number),
            false => mover.write(connection, memory, offset, bytes, remote, at, None, number),
        })
    }

    /// The next events; none if there are none within `timeout` seconds.
    fn events(&self, py: Python<'_>, timeout: f64) -> PyResult<Vec<PyEvent>> {
        let timeout = seconds(timeout)?;
        let all = self.call(py, |mover| mover.wait(EVENTS, timeout))?;
        Ok(all.iter().filter_map(shown).collect())
    }

    /// Ends all connections and the node, and gives all memory back. Calls of other threads fail at once.
    fn close(&self, py: Python<'_>) {
        let mover = lock(&self.mover).take();
        // The last one of its holders waits for the mover's thread.
        py.detach(move || {
            if let Some(mover) = mover {
                mover.shut();
            }
        });
        // Nothing touches the memory any more.
        let owners = std::mem::take(&mut *lock(&self.owners));
        drop(owners);
    }
}

impl Drop for WireMover {
    fn drop(&mut self) {
        // The memory goes after this.
        match lock(&self.mover).take() {
            Some(mover) if self.pid == std::process::id() => mover.shut(),
            parents => std::mem::forget(parents),
        }
    }
}
