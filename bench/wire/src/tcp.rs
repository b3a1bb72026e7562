//! The kernel's TCP, with its congestion control named.

use crate::goodput::Meter;
use crate::network::Role;
use crate::quic::{Identity, NAME};
use crate::round_trips::RoundTrips;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MESSAGE: usize = 1 << 20;
const PORT: u16 = 47_802;
const START: Duration = Duration::from_secs(5);
const ATTENTION: Duration = Duration::from_millis(50);

/// Cubic and BBR, if this kernel has them.
pub(crate) fn controls() -> Vec<&'static str> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(path).unwrap_or_else(|_| "cubic".into());
    ["cubic", "bbr"].into_iter().filter(|name| available.split_whitespace().any(|one| one == *name)).collect()
}

/// Repeats an attempt until it succeeds, the measurement is over, or the time is up.
fn patiently<T>(over: impl Fn() -> bool, mut attempt: impl FnMut() -> std::io::Result<T>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(found) => return Ok(found),
            Err(error) if began.elapsed() > START || over() => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn connect(control: &str, over: impl Fn() -> bool) -> Result<TcpStream, String> {
    let stream = patiently(over, || TcpStream::connect(Role::Receiver.plain_address(0, PORT)))?;
    setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(control)).map_err(|e| format!("{control}: {e}"))?;
    Ok(stream)
}

fn accept(control: &str, over: impl Fn() -> bool) -> Result<TcpStream, String> {
    let text = |error: std::io::Error| error.to_string();
    let listener = TcpListener::bind(Role::Receiver.plain_address(0, PORT)).map_err(text)?;
    listener.set_nonblocking(true).map_err(text)?;
    let (stream, _) = patiently(over, || listener.accept())?;
    stream.set_nonblocking(false).map_err(text)?;
    setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(control)).map_err(|e| format!("{control}: {e}"))?;
    Ok(stream)
}

/// Writes a mebibyte at a time.
pub(crate) fn send(meter: &Meter, control: &str) -> Result<(), String> {
    let stream = connect(control, || meter.is_over())?;
    stream.set_write_timeout(Some(ATTENTION)).map_err(|error| error.to_string())?;
    write(meter, stream)
}

/// The same under TLS 1.3, encrypted by this process.
pub(crate) fn send_tls(meter: &Meter, control: &str, identity: &Identity) -> Result<(), String> {
    let stream = connect(control, || meter.is_over())?;
    stream.set_write_timeout(Some(ATTENTION)).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(NAME).map_err(|error| error.to_string())?;
    let tls = ClientConnection::new(Arc::new(identity.of_sender()?), name).map_err(|error| error.to_string())?;
    write(meter, StreamOwned::new(tls, stream))
}

fn write(meter: &Meter, mut stream: impl Write) -> Result<(), String> {
    let message = vec![0x5a; MESSAGE];
    let mut at = 0;
    while !meter.is_over() {
        match stream.write(&message[at..]) {
            Ok(bytes) => at = (at + bytes) % MESSAGE,
            Err(error) if is_pause(&error) => {}
            // The receiver has noticed the end first.
            Err(_) if meter.is_over() => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Reads all bytes that arrive.
pub(crate) fn receive(meter: &Meter, control: &str) -> Result<(), String> {
    let stream = accept(control, || meter.is_over())?;
    stream.set_read_timeout(Some(ATTENTION)).map_err(|error| error.to_string())?;
    read(meter, stream)
}

/// The same under TLS 1.3.
pub(crate) fn receive_tls(meter: &Meter, control: &str, identity: &Identity) -> Result<(), String> {
    let stream = accept(control, || meter.is_over())?;
    stream.set_read_timeout(Some(ATTENTION)).map_err(|error| error.to_string())?;
    let tls = ServerConnection::new(Arc::new(identity.of_receiver()?)).map_err(|error| error.to_string())?;
    read(meter, StreamOwned::new(tls, stream))
}

fn read(meter: &Meter, mut stream: impl Read) -> Result<(), String> {
    let mut place = vec![0; MESSAGE];
    while !meter.is_over() {
        match stream.read(&mut place) {
            Ok(0) => break,
            Ok(bytes) => meter.add(bytes as u64),
            Err(error) if is_pause(&error) => {}
            Err(_) if meter.is_over() => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Sends 64 bytes and waits for them, again and again.
pub(crate) fn ping(trips: &RoundTrips, spin: bool) -> Result<(), String> {
    let mut stream = connect("cubic", || trips.is_over())?;
    prepare(&stream, spin)?;
    let mut buffer = [0; 64];
    while !trips.is_over() {
        let began = Instant::now();
        stream.write_all(&buffer).map_err(|error| error.to_string())?;
        if !fill(&mut stream, &mut buffer, trips)? {
            break;
        }
        trips.add(began.elapsed());
    }
    Ok(())
}

/// Sends received bytes back.
pub(crate) fn pong(trips: &RoundTrips, spin: bool) -> Result<(), String> {
    let mut stream = accept("cubic", || trips.is_over())?;
    prepare(&stream, spin)?;
    let mut buffer = [0; 64];
    while fill(&mut stream, &mut buffer, trips)? {
        if stream.write_all(&buffer).is_err() {
            break;
        }
    }
    Ok(())
}

fn prepare(stream: &TcpStream, spin: bool) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let set = if spin { stream.set_nonblocking(true) } else { stream.set_read_timeout(Some(ATTENTION)) };
    set.map_err(|error| error.to_string())
}

/// Fills the buffer; false if the measurement is over.
fn fill(stream: &mut TcpStream, buffer: &mut [u8], trips: &RoundTrips) -> Result<bool, String> {
    let mut at = 0;
    while at < buffer.len() {
        match stream.read(&mut buffer[at..]) {
            Ok(0) => return Ok(false),
            Ok(bytes) => at += bytes,
            Err(_) if trips.is_over() => return Ok(false),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(true)
}

fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
