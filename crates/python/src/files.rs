//! Copies and casts of files for Python: both sides of `strandway copy` and `strandway cast`.

use crate::config::{Settings, Settled, be_patient, texts};
use crate::node::wire_error;
use crate::wire::seconds;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandway_files::cast::{self as casting, CastError, Listener, State};
use strandway_files::copy::parts::Target;
use strandway_files::copy::{
    self as copying, Allowed, CopyError, Exclude, News, Options, PROFILE, Preserve, Request, Server, shown,
};
use strandway_group::Options as TeamOptions;
use strandway_lab::{parse_rate, parse_span};
use strandway_proto::{Rate, Span};
use strandway_udp::{Node, Timeouts};

/// Ports, rates and patience of the command line's commands.
const COPY_PORT: u16 = 47_931;
const CAST_PORT: u16 = 47_932;
const RATE: Rate = Rate::from_gbps(1);
const RTT: Span = Span::from_ms(50);
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
const CAST_PLANE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(100);

fn wrong(what: impl ToString) -> PyErr {
    PyValueError::new_err(what.to_string())
}

/// Calls of Python in the middle of a transfer: Ctrl-C and progress. An exception ends the transfer.
struct Watch {
    raised: RefCell<Option<PyErr>>,
    looked: Cell<Instant>,
    progress: Option<Py<PyAny>>,
    /// The progress of the last report; `None` before the transfer has begun.
    last: Cell<Option<(u64, u64)>>,
}

impl Watch {
    fn new(progress: Option<Py<PyAny>>) -> Watch {
        Watch { raised: RefCell::new(None), looked: Cell::new(Instant::now()), progress, last: Cell::default() }
    }

    fn stop(&self) -> bool {
        if self.looked.get().elapsed() >= LOOK {
            self.looked.set(Instant::now());
            self.note(Python::attach(|py| py.check_signals()));
            // A batch of files may take long: `progress` ends the transfer in its middle, too.
            if let Some((done, all)) = self.last.get() {
                self.report(done, all);
            }
        }
        self.raised.borrow().is_some()
    }

    fn report(&self, done: u64, all: u64) {
        self.last.set(Some((done, all)));
        if let Some(progress) = &self.progress {
            self.note(Python::attach(|py| progress.call1(py, (done, all)).map(drop)));
        }
    }

    fn note(&self, outcome: PyResult<()>) {
        if let Err(error) = outcome {
            self.raised.borrow_mut().get_or_insert(error);
        }
    }
}

/// A path of copies: rate and round trip, as the command line has them.
fn path(settings: &Settings, settled: Settled) -> (Settled, Rate, Span) {
    let mut settled = settled;
    if !settled.has_file() {
        let config = &mut settled.config;
        config.rate = if settings.rate.is_some() { config.rate } else { RATE };
        config.base_rtt = if settings.rtt.is_some() { config.base_rtt } else { RTT };
    }
    let (rate, rtt) = (settled.config.rate, settled.config.base_rtt);
    be_patient(&mut settled.config, PEER_TIMEOUT);
    (settled, rate, rtt)
}

fn copy_failed(py: Python<'_>, error: &CopyError) -> PyErr {
    match error {
        CopyError::Option(said) => wrong(said),
        other => wire_error(py, &other.to_string(), "copy"),
    }
}

fn cast_failed(py: Python<'_>, error: &CastError) -> PyErr {
    match error {
        CastError::Option(said) | CastError::Copy(CopyError::Option(said)) => wrong(said),
        other => wire_error(py, &other.to_string(), "cast"),
    }
}

/// A node whose packets are as large as the path takes, unless the settings name a payload.
fn bind_finding(py: Python<'_>, settings: &Settings, settled: Settled) -> PyResult<Node> {
    let finds = settings.finds_payloads(&settled);
    let bound = Node::bind(settled.config).and_then(|mut node| {
        if finds {
            node.find_payloads()?;
        }
        Ok(node)
    });
    bound.map_err(|error| wire_error(py, &error.to_string(), "node"))
}

/// The properties of files that are kept, by names.
fn preserve(keeps: &[String]) -> PyResult<Preserve> {
    let mut preserve = Preserve::default();
    for keep in keeps {
        match keep.as_str() {
            "sparse" => preserve.sparse = true,
            "hard_links" => preserve.hard_links = true,
            "xattrs" => preserve.attributes = true,
            "owner" => preserve.owners = true,
            other => return Err(wrong(format!("keep: `{other}`: write sparse, hard_links, xattrs or owner"))),
        }
    }
    Ok(preserve)
}

/// Copies files and directories to a server; gives the summary of `strandway copy --json`.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the options of a command")]
pub(crate) fn copy<'py>(
    py: Python<'py>,
    settings: Settings,
    sources: Vec<PathBuf>,
    to: Vec<String>,
    directory: &str,
    limit: Option<&str>,
    dry_run: bool,
    exclude: Vec<String>,
    keeps: Vec<String>,
    delete: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let settled = settings.settle(0, &to, Some(PROFILE))?;
    let (settled, rate, rtt) = path(&settings, settled);
    let peer = settled.peer(&to, COPY_PORT)?;
    let limit = limit.map(parse_rate).transpose().map_err(|error| wrong(format!("limit: {error}")))?;
    let preserve = preserve(&keeps)?;
    let options = Options { limit, dry_run, preserve, delete, ..Options::for_path(rate, rtt) };
    let exclude = Exclude::new(&exclude).map_err(|error| wrong(format!("exclude: {error}")))?;
    let profile = settled.config.profile.name.clone();
    let mut node = bind_finding(py, &settings, settled)?;
    let directory = directory.trim_end_matches('/').as_bytes();
    let (copied, raised) = py.detach(|| {
        let watch = Watch::new(progress);
        let request = Request { sources: &sources, directory, options: &options, exclude: &exclude, files: false };
        let tell = |news: News<'_>| {
            if let News::Status(status) = news {
                watch.report(status.bytes_done, status.bytes);
            }
        };
        let copied = copying::copy_request(&mut node, &peer, &request, || watch.stop(), tell);
        if let Ok(summary) = &copied {
            watch.report(summary.status.bytes_done, summary.status.bytes);
        }
        (copied, watch.raised.into_inner())
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let summary = copied.map_err(|error| copy_failed(py, &error))?;
    let status = &summary.status;
    let dict = PyDict::new(py);
    dict.set_item("profile", profile)?;
    dict.set_item("dry_run", dry_run)?;
    dict.set_item("seconds", status.seconds)?;
    dict.set_item("goodput_mbps", status.rate() * 8.0 / 1e6)?;
    let files = PyDict::new(py);
    files.set_item("all", status.files)?;
    files.set_item("sent", summary.files)?;
    files.set_item("there", summary.had_files)?;
    dict.set_item("files", files)?;
    let bytes = PyDict::new(py);
    bytes.set_item("all", status.bytes)?;
    bytes.set_item("missing", summary.missing_bytes)?;
    bytes.set_item("sent", status.bytes_sent)?;
    bytes.set_item("there", summary.had_bytes)?;
    bytes.set_item("resumed", summary.resumed_bytes)?;
    dict.set_item("bytes", bytes)?;
    dict.set_item("directories", summary.directories)?;
    dict.set_item("links", summary.links)?;
    dict.set_item("removed", summary.removed)?;
    dict.set_item("loss", status.loss())?;
    dict.set_item("again_bytes", status.again_bytes)?;
    dict.set_item("rebuilt_bytes", status.rebuilt_bytes)?;
    dict.set_item("wire_bytes", status.wire_bytes)?;
    dict.set_item("payload", status.payload)?;
    dict.set_item("overhead", status.overhead())?;
    let failures: Vec<(String, String)> =
        summary.failures.iter().map(|(path, why)| (shown(path), why.to_string())).collect();
    dict.set_item("failures", failures)?;
    Ok(dict)
}

/// Casts files and directories to many receivers; gives the summary of `strandway cast --json`.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the options of a command")]
pub(crate) fn cast<'py>(
    py: Python<'py>,
    settings: Settings,
    sources: Vec<PathBuf>,
    to: Vec<Vec<String>>,
    wait: &str,
    patience: &str,
    all_or_nothing: bool,
    trust: &str,
    team: u16,
    multicast: bool,
    exclude: Vec<String>,
    keeps: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let first = to.first().ok_or_else(|| wrong("no receivers: name at least one with to="))?;
    let mut settled = settings.settle(0, first, None)?;
    if !settled.has_file() && settings.rate.is_none() {
        settled.config.rate = RATE;
    }
    let listeners = to
        .iter()
        .map(|names| Ok(Listener { name: names.join(","), addresses: settled.peer(names, CAST_PORT)? }))
        .collect::<PyResult<Vec<_>>>()?;
    let time = |name: &str, text: &str| -> PyResult<Duration> {
        let span = parse_span(text).map_err(|error| wrong(format!("{name}: {error}")))?;
        Ok(Duration::from_nanos(span.0 / 1_000))
    };
    let trusting = match trust {
        "source" => false,
        "members" => true,
        other => return Err(wrong(format!("trust is {other:?}: take source or members"))),
    };
    // Receivers ask for a chunk again after such times.
    let rtt = if settled.has_file() || settings.rtt.is_some() { settled.config.base_rtt } else { Span::ZERO };
    let team = TeamOptions {
        team,
        patience: time("patience", patience)?,
        no_multicast: !multicast,
        rtt: rtt.max(TeamOptions::RTT),
        ..TeamOptions::new(settled.config.rate)
    };
    let options = casting::Options {
        wait: time("wait", wait)?,
        all_or_nothing,
        trusting,
        preserve: preserve(&keeps)?,
        ..casting::Options::new(team)
    };
    let exclude = Exclude::new(&exclude).map_err(|error| wrong(format!("exclude: {error}")))?;
    settled.config.accept = false;
    settled.config.timeouts = Timeouts { plane: CAST_PLANE_TIMEOUT, ..Timeouts::default() };
    let node = bind_finding(py, &settings, settled)?;
    let (done, raised) = py.detach(|| {
        let watch = Watch::new(progress);
        let tell = |status: &casting::Status| {
            let receives = status.receivers.iter().filter(|r| matches!(r.state, State::Receives | State::Done));
            let (count, bytes) = receives.fold((0, 0), |(count, bytes), r| (count + 1, bytes + r.bytes));
            watch.report(bytes, status.bytes * count);
        };
        let done = casting::send_chosen(
            node,
            &listeners,
            (&sources, &exclude),
            &options,
            &|| watch.stop(),
            &mut |status: &_| tell(status),
        );
        if let Ok(summary) = &done {
            tell(&summary.status);
        }
        (done, watch.raised.into_inner())
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let summary = done.map_err(|error| cast_failed(py, &error))?;
    let status = &summary.status;
    let dict = PyDict::new(py);
    dict.set_item("seconds", status.seconds)?;
    dict.set_item("passes", summary.passes)?;
    dict.set_item("files", status.files)?;
    dict.set_item("bytes", status.bytes)?;
    dict.set_item("missing_bytes", summary.missing_bytes)?;
    dict.set_item("cast_bytes", status.cast_bytes)?;
    dict.set_item("wire_bytes", status.wire_bytes)?;
    dict.set_item("payload", status.payload)?;
    dict.set_item("multicast_planes", status.planes)?;
    let receivers = status.receivers.iter().map(|receiver| of_receiver(py, receiver)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("receivers", receivers)?;
    let failures: Vec<(String, String, String)> =
        summary.failures.iter().map(|(who, path, why)| (who.clone(), shown(path), why.to_string())).collect();
    dict.set_item("failures", failures)?;
    let unread: Vec<(String, String)> =
        summary.unread.iter().map(|(path, why)| (shown(path), why.to_string())).collect();
    dict.set_item("unread", unread)?;
    Ok(dict)
}

/// The end of a receiver, or its state if it has not ended.
fn of_receiver<'py>(py: Python<'py>, receiver: &casting::Progress) -> PyResult<Bound<'py, PyDict>> {
    let state = match &receiver.state {
        State::Absent => "it did not answer".to_string(),
        State::Waits | State::Receives => "unfinished".to_string(),
        State::Done => "has everything".to_string(),
        State::Lost(why) => format!("lost: {why}"),
    };
    let dict = PyDict::new(py);
    dict.set_item("name", &receiver.name)?;
    dict.set_item("done", receiver.state == State::Done)?;
    dict.set_item("state", state)?;
    dict.set_item("bytes", receiver.bytes)?;
    dict.set_item("files", receiver.files)?;
    Ok(dict)
}

/// A thread that takes copies or casts below a directory, until it is told to stop.
#[pyclass(frozen, module = "strandway._lab")]
pub(crate) struct FileServer {
    addresses: Vec<String>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<(), String>>>>,
}

impl FileServer {
    fn start(
        addresses: Vec<String>,
        run: impl FnOnce(&AtomicBool) -> Result<(), String> + Send + 'static,
    ) -> PyResult<FileServer> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("strandway-files".into()).spawn(move || run(&told));
        let thread = Mutex::new(Some(thread.map_err(|error| wrong(format!("no thread: {error}")))?));
        Ok(FileServer { addresses, stop, thread })
    }
}

fn shown_addresses(py: Python<'_>, node: &Node) -> PyResult<Vec<String>> {
    let addresses = node.addresses().map_err(|error| wire_error(py, &error.to_string(), "node"))?;
    Ok(texts(&addresses))
}

#[pymethods]
impl FileServer {
    /// Takes copies.
    #[staticmethod]
    fn copies(
        py: Python<'_>,
        settings: Settings,
        directory: PathBuf,
        port: Option<u16>,
        once: bool,
        allow: Vec<String>,
    ) -> PyResult<FileServer> {
        let mut allowed = Allowed::default();
        for what in &allow {
            match what.as_str() {
                "owner" => allowed.owner = true,
                "delete" => allowed.delete = true,
                other => return Err(wrong(format!("allow: `{other}`: write owner or delete"))),
            }
        }
        let settled = settings.settle(port.unwrap_or(COPY_PORT), &[], Some(PROFILE))?;
        let (settled, _, _) = path(&settings, settled);
        let server = Server::open(&directory).map_err(|error| copy_failed(py, &error))?;
        let mut server = server.allowing(allowed);
        let mut node = bind_finding(py, &settings, settled)?;
        FileServer::start(shown_addresses(py, &node)?, move |stop| {
            let gone = AtomicBool::new(false);
            let over = || stop.load(Ordering::Relaxed) || (once && gone.load(Ordering::Relaxed));
            let served = copying::serve(&mut node, &mut server, over, |served| {
                if matches!(served, copying::Served::Gone(_)) {
                    gone.store(true, Ordering::Relaxed);
                }
            });
            served.map_err(|error| error.to_string())
        })
    }

    /// Takes casts.
    #[staticmethod]
    fn casts(
        py: Python<'_>,
        settings: Settings,
        directory: PathBuf,
        port: Option<u16>,
        once: bool,
    ) -> PyResult<FileServer> {
        let mut settled = settings.settle(port.unwrap_or(CAST_PORT), &[], None)?;
        settled.config.timeouts.plane = CAST_PLANE_TIMEOUT;
        let target = Target::open(&directory).map_err(wrong)?;
        let node = bind_finding(py, &settings, settled)?;
        FileServer::start(shown_addresses(py, &node)?, move |stop| {
            let mut failed = None;
            let served = casting::receive(node, target, &|| stop.load(Ordering::Relaxed), |served| {
                if let casting::Served::Ended(why) = &served {
                    failed = Some(why.clone());
                }
                !(once && served.is_end())
            });
            match (served, failed) {
                (Err(error), _) => Err(error.to_string()),
                (Ok(()), Some(why)) if once => {
                    Err(format!("the cast ended early: {why}; the next one continues there"))
                }
                _ => Ok(()),
            }
        })
    }

    /// Its address on each plane.
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// Has it ended?
    fn is_ended(&self) -> bool {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells it to stop.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for its end; false if it goes on after `timeout` seconds, an exception if it failed.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let until = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        while !self.is_ended() {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
            py.detach(|| std::thread::sleep(Duration::from_millis(10)));
            py.check_signals()?;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread.map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(true),
            Some(Ok(Err(why))) => Err(wire_error(py, &why, "copy")),
            Some(Err(_)) => Err(wire_error(py, "the server's thread has panicked: a defect", "copy")),
        }
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.stop();
    }
}
