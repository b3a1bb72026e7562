//! TCP, and TCP with TLS, between the same two hosts, so that a user sees ratios on his own machines.
//!
//! A server of the kernel's TCP discards what arrives, or sends it back. TLS is version 1.3 with AES-128-GCM in this
//! process (`rustls` with the cipher of our nodes, and a key that the server makes at its start). Nobody is
//! authenticated: random bytes are measured, and the client takes any key.

mod tls;

use super::{Mode, Options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The largest message whose round trip is measured, in bytes: ours.
pub const BASELINE_ECHO_MAX: u64 = 16 << 20;
/// The first bytes of a client's request.
const MAGIC: &[u8; 8] = b"SWBESIDE";
/// The version of requests, and of what follows them.
const VERSION: u8 = 2;
/// Length of a request: magic 8, version 1, TLS 1, echo 1, zero 1, size 4.
const REQUEST: usize = 16;
/// Bytes of one read or write.
const PIECE: usize = 1 << 20;
/// Connections that a server serves at the same time; more are closed at once. Ours.
const CONNECTIONS_MAX: usize = 64;
/// A connection over which nothing comes for this time is closed. Ours.
const SILENCE: Duration = Duration::from_secs(10);
/// A client has sent its whole request after this time. Ours.
const HELLO: Duration = Duration::from_secs(2);
/// The longest time until a waiting thread asks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A protocol that is measured beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The kernel's TCP.
    Tcp,
    /// TLS 1.3 over it.
    Tls,
}

/// The result of a measurement of a [`Baseline`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaselineResult {
    /// Payload that had arrived, over the time until the client knew of it, in Gb/s.
    pub goodput_gbps: f64,
    /// Messages.
    pub messages: u64,
    /// Median round trip of messages in microseconds; 0 if bandwidth is measured.
    pub rtt_p50_us: f64,
    /// Its 99th percentile.
    pub rtt_p99_us: f64,
}

/// Why a baseline could not be measured.
#[derive(Debug)]
pub enum BaselineError {
    /// No such server listens at this address.
    NoServer(SocketAddr, io::Error),
    /// The connection failed.
    Broken(io::Error),
    /// The server counted another number of bytes than were sent: sent, and counted.
    Count(u64, u64),
    /// The kernel does not give this congestion control to this user.
    Control(String, io::Error),
    /// An option is out of its range; the text says which.
    Option(String),
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BaselineError::NoServer(at, error) => write!(
                f,
                "nothing answers over TCP at {at} ({error}): start `strandway perf server --beside` there, and let TCP \
                 pass to that port"
            ),
            BaselineError::Broken(error) if error.kind() == ErrorKind::ConnectionAborted => {
                let seconds = SILENCE.as_secs();
                write!(f, "the server has not answered over TCP for {seconds} s")
            }
            BaselineError::Broken(error) => write!(
                f,
                "the TCP connection beside ours failed ({error}): has the server ended, is it another version of strandway, \
                 or does it have {CONNECTIONS_MAX} other connections?"
            ),
            BaselineError::Count(sent, counted) => {
                write!(f, "the server counted {counted} of {sent} bytes that were sent by TCP: please report this")
            }
            BaselineError::Control(name, error) => {
                let list = |name: &str| {
                    let path = format!("/proc/sys/net/ipv4/tcp_{name}_congestion_control");
                    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |list| list.trim().to_string())
                };
                write!(
                    f,
                    "congestion control {name:?} of TCP: {error}; this kernel has: {}; without root: {}; another one may \
                     be a module, such as tcp_bbr",
                    list("available"),
                    list("allowed")
                )
            }
            BaselineError::Option(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for BaselineError {}

impl From<io::Error> for BaselineError {
    fn from(error: io::Error) -> BaselineError {
        BaselineError::Broken(error)
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A stream that waits through pauses, until its deadline or until it has to stop.
struct Patient<'a, S> {
    stream: S,
    stop: &'a dyn Fn() -> bool,
    heard: Instant,
}

impl<'a, S> Patient<'a, S> {
    fn new(stream: S, stop: &'a dyn Fn() -> bool) -> Patient<'a, S> {
        Patient { stream, stop, heard: Instant::now() }
    }

    fn wait_for(&mut self, mut one: impl FnMut(&mut S) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match one(&mut self.stream) {
                Err(error) if is_pause(&error) => {}
                other => {
                    self.heard = Instant::now();
                    return other;
                }
            }
            if (self.stop)() || self.heard.elapsed() > SILENCE {
                return Err(ErrorKind::ConnectionAborted.into());
            }
        }
    }
}

impl<S: Read> Read for Patient<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait_for(|stream| stream.read(into))
    }
}

impl<S: Write> Write for Patient<'_, S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.wait_for(|stream| stream.write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait_for(|stream| stream.flush().map(|()| 0)).map(drop)
    }
}

/// Prepares a stream. One that carries single messages sends at once what it has; in a flow of bytes that would make
/// packets smaller.
fn prepare(stream: &TcpStream, echoes: bool) -> io::Result<()> {
    stream.set_nodelay(echoes)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))
}

/// Listens for clients that measure TCP and TLS.
#[derive(Debug)]
pub struct BaselineServer {
    listeners: Vec<TcpListener>,
    /// `None` on processors without the instructions that TLS's library needs.
    identity: Option<tls::Identity>,
}

impl BaselineServer {
    /// Listens at these addresses.
    ///
    /// # Errors
    /// If one of them is taken.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<BaselineServer> {
        let listen = |at: &SocketAddr| {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listeners = addresses.iter().map(listen).collect::<io::Result<_>>()?;
        Ok(BaselineServer { listeners, identity: tls::Identity::new().ok() })
    }

    /// The addresses at which it listens.
    ///
    /// # Errors
    /// If the system does not say so.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves clients until `stop` returns true. A client that does something wrong ends only its own connection.
    pub fn serve(&self, stop: &(dyn Fn() -> bool + Sync)) {
        let open = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !stop() {
                self.wait();
                for listener in &self.listeners {
                    let stream = match listener.accept() {
                        Ok((stream, _)) => stream,
                        Err(error) if is_pause(&error) => continue,
                        // Such as too many open files: it is tried again, but not all the time.
                        Err(_) => {
                            std::thread::sleep(LOOK);
                            continue;
                        }
                    };
                    if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                        open.fetch_sub(1, Ordering::Relaxed);
                        continue;
                    }
                    let open = &open;
                    scope.spawn(move || {
                        // The client notices the end of its connection.
                        let _ = self.answer(stream, &stop);
                        open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
    }

    /// Waits for a client, or until it is time to ask whether to stop.
    fn wait(&self) {
        let mut polled: Vec<_> = self.listeners.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        if poll(&mut polled, Some(&look)).is_err() {
            std::thread::sleep(LOOK);
        }
    }

    fn answer(&self, stream: TcpStream, stop: &dyn Fn() -> bool) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        prepare(&stream, false)?;
        let mut request = [0; REQUEST];
        // A client sends its request at once; one that sends it byte by byte holds a place no longer than others.
        let until = Instant::now() + HELLO;
        Patient::new(&stream, &|| stop() || Instant::now() > until).read_exact(&mut request)?;
        let size = u32::from_be_bytes(*request.last_chunk().expect("16 bytes"));
        if request[..8] != *MAGIC || request[8] != VERSION || request[9] > 1 || request[10] > 1 {
            return Err(ErrorKind::InvalidData.into());
        }
        let (is_tls, echoes) = (request[9] == 1, request[10] == 1);
        if echoes && !(1..=BASELINE_ECHO_MAX).contains(&size.into()) {
            return Err(ErrorKind::InvalidData.into());
        }
        stream.set_nodelay(echoes)?;
        let length = if echoes { size as usize } else { PIECE };
        match (is_tls, &self.identity) {
            (false, _) => exchange(Patient::new(&stream, stop), length, echoes)?,
            (true, Some(identity)) => exchange(Patient::new(identity.accept(&stream)?, stop), length, echoes)?,
            (true, None) => return Err(ErrorKind::Unsupported.into()),
        }
        stream.shutdown(Shutdown::Write)
    }
}

/// The server's part: sends messages back, or counts the bytes and sends their number.
fn exchange(mut stream: impl Read + Write, length: usize, echoes: bool) -> io::Result<()> {
    let mut buffer = vec![0; length];
    if echoes {
        while stream.read_exact(&mut buffer).is_ok() {
            stream.write_all(&buffer)?;
            stream.flush()?;
        }
        return Ok(());
    }
    let mut count = 0_u64;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            read => count += read as u64,
        }
    }
    stream.write_all(&count.to_be_bytes())?;
    stream.flush()
}

/// Are these options possible beside TCP? [`run_baseline`] asks it, too.
///
/// # Errors
/// A sentence that names the option and its range.
pub fn check_baseline(control: Option<&str>, options: &Options) -> Result<(), BaselineError> {
    let echoes = options.mode == Mode::Latency;
    let refuse = |what: String| Err(BaselineError::Option(what));
    if echoes && options.size > BASELINE_ECHO_MAX {
        let size = options.size;
        return refuse(format!("a message of {size} B beside TCP: take at most {BASELINE_ECHO_MAX} with --latency"));
    }
    if echoes && options.connections != 1 {
        return refuse(format!("{} connections beside TCP: take 1 with --latency", options.connections));
    }
    if options.size == 0 || !(1..=CONNECTIONS_MAX).contains(&options.connections) {
        let connections = options.connections;
        return refuse(format!(
            "{connections} connections beside TCP: take 1 to {CONNECTIONS_MAX}, and a size above 0"
        ));
    }
    if let Some(name) = control {
        let set = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
            .and_then(|socket| sockopt::set_tcp_congestion(&socket, name));
        set.map_err(|error| BaselineError::Control(name.into(), error.into()))?;
    }
    Ok(())
}

/// Measures a baseline against a [`BaselineServer`]: bandwidth, or round trips with [`Mode::Latency`]; of the options
/// `size`, `connections`, `duration` and `mode` count. `control`: the congestion control of this side, such as `cubic`;
/// `None`: the host's. `stop` is asked repeatedly, and ends the measurement early.
///
/// # Errors
/// If the server is not there, the connection fails, or options are [not possible](check_baseline).
pub fn run_baseline(
    baseline: Baseline,
    server: SocketAddr,
    control: Option<&str>,
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<BaselineResult, BaselineError> {
    check_baseline(control, options)?;
    let to = Destination { baseline, server, control };
    if options.mode == Mode::Latency {
        return on_connection(to, options, stop, |client, stream| client.round_trips(stream));
    }
    let all = std::thread::scope(|scope| {
        let bandwidth = |client: &Client<'_>, stream: &mut dyn Stream| client.bandwidth(stream);
        let one = |_| scope.spawn(move || on_connection(to, options, stop, bandwidth));
        let running: Vec<_> = (0..options.connections).map(one).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let began = all.iter().map(|one| one.began).min().expect("at least one connection");
    let ended = all.iter().map(|one| one.ended).max().expect("at least one connection");
    let seconds = (ended - began).as_secs_f64();
    let bytes: u64 = all.iter().map(|one| one.bytes).sum();
    let messages = all.iter().map(|one| one.messages).sum();
    Ok(BaselineResult { goodput_gbps: bytes as f64 * 8e-9 / seconds, messages, ..BaselineResult::default() })
}

/// The bytes and messages of one connection. The time begins after the handshake, and ends when the server's count has
/// come.
struct Carried {
    bytes: u64,
    messages: u64,
    began: Instant,
    ended: Instant,
}

/// A client's side of one connection.
struct Client<'a> {
    options: &'a Options,
    stop: &'a (dyn Fn() -> bool + Sync),
    /// When the handshake was over.
    began: Instant,
}

/// Where a client connects to, and how.
#[derive(Clone, Copy)]
struct Destination<'a> {
    baseline: Baseline,
    server: SocketAddr,
    control: Option<&'a str>,
}

/// Opens a connection, and lets a client measure with it.
fn on_connection<T>(
    to: Destination<'_>,
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    measure: impl FnOnce(&Client<'_>, &mut dyn Stream) -> Result<T, BaselineError>,
) -> Result<T, BaselineError> {
    let wrong = |error| BaselineError::NoServer(to.server, error);
    let mut stream = TcpStream::connect_timeout(&to.server, Duration::from_secs(5)).map_err(wrong)?;
    prepare(&stream, options.mode == Mode::Latency)?;
    if let Some(name) = to.control {
        sockopt::set_tcp_congestion(&stream, name)
            .map_err(|error| BaselineError::Control(name.into(), error.into()))?;
    }
    let mut request = [0; REQUEST];
    request[..8].copy_from_slice(MAGIC);
    request[8] = VERSION;
    request[9] = u8::from(to.baseline == Baseline::Tls);
    request[10] = u8::from(options.mode == Mode::Latency);
    request[12..].copy_from_slice(&u32::try_from(options.size).unwrap_or(u32::MAX).to_be_bytes());
    stream.write_all(&request)?;
    // An interrupted measurement still ends in order.
    let never = || false;
    let mut stream: Box<dyn Stream> = match to.baseline {
        Baseline::Tcp => Box::new(Patient::new(stream, &never)),
        Baseline::Tls => Box::new(Patient::new(tls::connect(stream)?, &never)),
    };
    // The handshake of TLS, so that it is not measured.
    stream.flush()?;
    measure(&Client { options, stop, began: Instant::now() }, &mut *stream)
}

/// A client's stream, TCP's or that of TLS.
trait Stream: Read + Write {
    /// Says that no more bytes follow; answers still come.
    fn end(&mut self) -> io::Result<()>;
}

impl Stream for Patient<'_, TcpStream> {
    fn end(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

impl Stream for Patient<'_, tls::ClientStream> {
    fn end(&mut self) -> io::Result<()> {
        // The last bytes do not wait for acknowledgements.
        self.stream.sock.set_nodelay(true)?;
        self.stream.conn.send_close_notify();
        self.flush()
    }
}

impl Client<'_> {
    fn is_over(&self) -> bool {
        (self.stop)() || self.began.elapsed() >= self.options.duration
    }

    /// Writes messages until the time is over.
    fn bandwidth(&self, stream: &mut dyn Stream) -> Result<Carried, BaselineError> {
        let piece = vec![0x5a; PIECE.min(self.options.size as usize)];
        let (mut bytes, mut messages) = (0, 0);
        while !self.is_over() {
            let mut left = self.options.size;
            while left > 0 {
                let part = &piece[..left.min(piece.len() as u64) as usize];
                stream.write_all(part)?;
                left -= part.len() as u64;
            }
            bytes += self.options.size;
            messages += 1;
        }
        stream.end()?;
        let mut count = [0; 8];
        stream.read_exact(&mut count)?;
        match u64::from_be_bytes(count) {
            count if count == bytes => Ok(Carried { bytes, messages, began: self.began, ended: Instant::now() }),
            other => Err(BaselineError::Count(bytes, other)),
        }
    }

    /// Sends messages and waits for each one's return.
    fn round_trips(&self, stream: &mut dyn Stream) -> Result<BaselineResult, BaselineError> {
        let mut buffer = vec![0x5a; self.options.size as usize];
        let mut times = Vec::new();
        while !self.is_over() {
            let sent = Instant::now();
            stream.write_all(&buffer)?;
            stream.flush()?;
            stream.read_exact(&mut buffer)?;
            times.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        let seconds = self.began.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)));
        let bytes = times.len() as f64 * self.options.size as f64;
        Ok(BaselineResult {
            goodput_gbps: bytes * 8e-9 / seconds,
            messages: times.len() as u64,
            rtt_p50_us: at(0.5).copied().unwrap_or(0.0),
            rtt_p99_us: at(0.99).copied().unwrap_or(0.0),
        })
    }
}
