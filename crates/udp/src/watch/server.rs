//! The thread that answers those who ask. It listens on a Unix socket or on a loopback port.

use super::{CONTENT_TYPE, Registry};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most bytes of a request, and the time that it may take: ours. A slow client delays only other clients.
const REQUEST_MAX: usize = 8_192;
const PATIENCE: Duration = Duration::from_secs(1);

/// The ports that are tried after the first, for processes of one host that have the same environment: ours.
const PORTS: u16 = 64;

/// An open place.
#[derive(Debug)]
pub(super) enum Server {
    Path(UnixListener, PathBuf),
    Port(TcpListener),
}

trait Stream: Read + Write {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Server {
    /// Opens a place. The error says what is wrong with it, and what to write instead.
    pub(super) fn open(place: &str) -> Result<Server, String> {
        if let Ok(address) = place.parse::<SocketAddr>() {
            return Server::port(address);
        }
        if !place.contains('/') {
            return Err("is neither an address nor a path; write 127.0.0.1:9464, /run/strandway/me.sock or a folder, \
                        /run/strandway/metrics/"
                .into());
        }
        let path = match place.strip_suffix('/') {
            Some(folder) => {
                fs::create_dir_all(folder).map_err(|e| format!("the folder cannot be made: {e}; name another one"))?;
                Path::new(folder).join(format!("{}.sock", std::process::id()))
            }
            None => PathBuf::from(place),
        };
        Server::path(path)
    }

    fn port(address: SocketAddr) -> Result<Server, String> {
        if !address.ip().is_loopback() {
            return Err(
                "is no loopback address, and everyone in reach could read the figures; write 127.0.0.1 or [::1], \
                        and let an agent of the host pass them on"
                    .into(),
            );
        }
        let last = if address.port() == 0 { 0 } else { PORTS - 1 };
        let mut refused = None;
        for above in 0..=last {
            let Some(port) = address.port().checked_add(above) else { break };
            match TcpListener::bind(SocketAddr::new(address.ip(), port)) {
                Ok(listener) => return Ok(Server::Port(listener)),
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => refused = Some(e),
                Err(e) => return Err(format!("cannot be bound: {e}; write another port")),
            }
        }
        let why = refused.map_or(String::new(), |e| format!(": {e}"));
        Err(format!("neither this port nor the {} after it can be bound{why}; write another port", PORTS - 1))
    }

    fn path(path: PathBuf) -> Result<Server, String> {
        let fail = |e: io::Error| format!("no socket can be made there: {e}; name a path in a folder of yours");
        // The socket of a process that has ended is in the way; that of a living one stays.
        if fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
            if UnixStream::connect(&path).is_ok() {
                return Err(
                    "another process serves there; name a folder (with / at the end) for a socket per process".into()
                );
            }
            fs::remove_file(&path).map_err(fail)?;
        }
        let listener = UnixListener::bind(&path).map_err(fail)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(fail)?;
        Ok(Server::Path(listener, path))
    }

    /// Starts the thread, which ends with the process.
    pub(super) fn start(self, registry: Arc<Registry>) -> Result<(), String> {
        let thread = std::thread::Builder::new().name("strandway-watch".into());
        let started = thread.spawn(move || {
            loop {
                let answered = match &self {
                    Server::Path(listener, path) => {
                        let accepted = listener.accept();
                        if accepted.is_err() && !path.exists() {
                            return;
                        }
                        accepted.and_then(|(stream, _)| answer(stream, &registry))
                    }
                    Server::Port(listener) => listener.accept().and_then(|(stream, _)| answer(stream, &registry)),
                };
                // A client that has gone, or too many descriptors: the next one may do better.
                if answered.is_err() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        started.map(drop).map_err(|e| format!("no thread can be started: {e}"))
    }
}

/// Answers one request, and closes.
fn answer(mut stream: impl Stream, registry: &Registry) -> io::Result<()> {
    stream.limit(PATIENCE)?;
    let (mut request, began) = (Vec::new(), Instant::now());
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut buffer)?;
        request.extend_from_slice(&buffer[..count]);
        if count == 0 || request.len() > REQUEST_MAX || began.elapsed() > PATIENCE {
            break;
        }
    }
    let line = String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or(&[])).into_owned();
    let mut words = line.split(' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics" | "/")) => ("200 OK", CONTENT_TYPE, registry.metrics()),
        (Some("GET"), Some("/status")) => ("200 OK", "application/json", registry.status()),
        (Some("GET"), Some("/paths")) => ("200 OK", "application/json", registry.paths()),
        (Some("GET"), _) => ("404 Not Found", "text/plain", "ask for /metrics, /status or /paths\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
