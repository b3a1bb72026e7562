//! Asks processes that serve their figures.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process answers within this time, or counts as silent: ours.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The most bytes of an answer: ours, a million paths or more.
const ANSWER_MAX: u64 = 1 << 26;

/// The places of processes: of a folder, all its sockets.
pub fn places(named: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for place in named {
        if !Path::new(place).is_dir() {
            all.push(place.clone());
            continue;
        }
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut sockets: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
        sockets.sort();
        all.extend(sockets.into_iter().map(|path| path.display().to_string()));
    }
    all
}

/// The answer of the process at a place, a loopback address or the path of a Unix socket, to `GET what`.
///
/// # Errors
/// If nobody answers within [`PATIENCE`], or the process does not know `what`; with the reason.
pub fn ask(place: &str, what: &str) -> Result<String, String> {
    let answer = match place.parse::<SocketAddr>() {
        Ok(address) => TcpStream::connect_timeout(&address, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, what)
        }),
        Err(_) => UnixStream::connect(place).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, what)
        }),
    };
    let answer = answer.map_err(|e| e.to_string())?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer has no end of its head")?;
    let status = head.split(' ').nth(1).unwrap_or("");
    if status != "200" {
        return Err(format!("it answers {status} to GET {what}: its version of Strandway is another one"));
    }
    Ok(body.to_string())
}

fn exchange(mut stream: impl Read + Write, what: &str) -> io::Result<Vec<u8>> {
    stream.write_all(format!("GET {what} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}
