//! The place where ranks find each other: a few short values under names, which all ranks can write and wait for.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The most bytes of a key or value: ours.
const VALUE_MAX: usize = 1 << 16;
/// The most bytes of all keys and values of a store: ours. The records of 65,536 ranks take 20 MB.
const STORE_MAX: usize = 64 << 20;
/// Connections that a store serves at a time: ours. Each has a thread.
const CLIENTS_MAX: usize = 16_384;
/// The time after which a store looks again for clients, if the system gives it no descriptor: ours.
const NO_DESCRIPTOR: Duration = Duration::from_millis(100);
/// An answer may take this time longer than the question allows: ours.
const SLACK: Duration = Duration::from_secs(5);
/// The longest time of one attempt to connect: ours, a SYN and two more.
const ATTEMPT: Duration = Duration::from_secs(4);
/// The most files of earlier attempts that a new value may meet: ours.
const DRAFTS_MAX: u32 = 1_000;
/// The time between two looks into a directory: ours.
const LOOK: Duration = Duration::from_millis(5);

/// A few values under names. Implement it for a service of your own, for instance that of a scheduler, or take
/// [`DirectoryStore`] or [`TcpStore`].
///
/// A process that can read a store can join its groups and read their traffic: rank 0 puts a key there.
pub trait Store {
    /// Writes a value.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()>;

    /// Waits until there is a value, and returns it.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if there is none after `timeout`; or if the store cannot be reached.
    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>>;

    /// Removes a value that no rank needs any more. A store that cannot remove values keeps it.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn remove(&mut self, key: &str) -> io::Result<()> {
        let _ = key;
        Ok(())
    }
}

impl<S: Store + ?Sized> Store for &mut S {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        (**self).set(key, value)
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        (**self).get(key, timeout)
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        (**self).remove(key)
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        (**self).set(key, value)
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        (**self).get(key, timeout)
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        (**self).remove(key)
    }
}

/// A store that begins all names with a prefix: one group's part of a store.
pub struct Prefixed<S>(pub S, pub String);

impl<S: Store> Store for Prefixed<S> {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        self.0.set(&format!("{}/{key}", self.1), value)
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        self.0.get(&format!("{}/{key}", self.1), timeout)
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        self.0.remove(&format!("{}/{key}", self.1))
    }
}

/// A directory that all ranks see: a file per value, which only its user may read. Runs may share a directory one after
/// the other, not at the same time.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    path: PathBuf,
}

impl DirectoryStore {
    /// Makes the directory if it is not there.
    ///
    /// # Errors
    /// If that fails.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<DirectoryStore> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        Ok(DirectoryStore { path })
    }

    fn file(&self, key: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '+' };
        self.path.join(key.chars().map(plain).collect::<String>())
    }
}

impl Store for DirectoryStore {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        // A reader sees a whole value or nothing. The draft is a file of ours: no link, and no other user may read it.
        let name = self.file(key);
        let plain = name.file_name().unwrap_or_default().to_string_lossy();
        for attempt in 0u32.. {
            let draft = self.path.join(format!(".{plain}.draft{}-{attempt}", std::process::id()));
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft) {
                Ok(mut file) => {
                    let written = file.write_all(value).and_then(|()| fs::rename(&draft, &name));
                    return written.inspect_err(|_| drop(fs::remove_file(&draft)));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < DRAFTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        match fs::remove_file(self.file(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        let (file, until) = (self.file(key), Instant::now() + timeout);
        loop {
            match fs::read(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => {
                    std::thread::sleep(LOOK);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(late(key, timeout)),
                other => return other,
            }
        }
    }
}

fn late(key: &str, timeout: Duration) -> io::Error {
    let what = format!("no value for {key} within {:.1} s: has every rank been started?", timeout.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// The values of a [`TcpStore`] at the process that serves them; also a store for the threads of one process.
#[derive(Clone, Debug, Default)]
pub struct Values(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    values: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    values: HashMap<String, Vec<u8>>,
    /// Bytes of keys and values.
    bytes: usize,
}

impl Kept {
    fn remove(&mut self, key: &str) {
        if let Some(value) = self.values.remove(key) {
            self.bytes -= key.len() + value.len();
        }
    }
}

impl Values {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.values.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Store for Values {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let mut values = self.lock();
        let before = values.values.get(key).map_or(0, |value| key.len() + value.len());
        let bytes = values.bytes - before + key.len() + value.len();
        if bytes > STORE_MAX {
            return Err(io::Error::other(format!("the store holds {STORE_MAX} bytes, which is all that it takes")));
        }
        values.bytes = bytes;
        values.values.insert(key.into(), value.into());
        self.0.changed.notify_all();
        Ok(())
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        self.lock().remove(key);
        Ok(())
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + timeout;
        let mut values = self.lock();
        loop {
            if let Some(value) = values.values.get(key) {
                return Ok(value.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(key, timeout));
            }
            let waited = self.0.changed.wait_timeout(values, left);
            values = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

/// Values at one process that the others reach over TCP.
///
/// Each request is a letter (`S`, `G` or `R`), two lengths or a length and milliseconds (4 bytes each, big-endian), the
/// key and, to set, the value. The answer to `G` is a length and the value; the length is `u32::MAX` if there is none
/// in time. The answer to `S` and `R` is a zero.
///
/// A program that reaches its port can read and write its values, the group's key among them: let only the job's hosts
/// reach it. A stranger can take 64 MB of values and 16,384 connections, not more.
#[derive(Debug)]
pub struct TcpStore {
    stream: TcpStream,
    /// Keeps the values of the server alive.
    _values: Option<Values>,
}

impl TcpStore {
    /// Serves values at the first of these addresses that can be had, and is their first user. `[::]` also serves IPv4,
    /// where the host has it. The server ends with the process.
    ///
    /// # Errors
    /// If none is available.
    pub fn serve(address: impl ToSocketAddrs) -> io::Result<TcpStore> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let values = Values::default();
        let served = values.clone();
        std::thread::Builder::new().name("strandway-store".into()).spawn(move || {
            let clients = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // For instance, no descriptor is left. Other clients go on.
                    std::thread::sleep(NO_DESCRIPTOR);
                    continue;
                };
                if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (values, counted) = (served.clone(), Arc::clone(&clients));
                // Each rank has a thread, which waits most of the time.
                let serving = std::thread::Builder::new().name("strandway-store".into()).spawn(move || {
                    while answer(&stream, &mut values.clone()).is_ok() {}
                    counted.fetch_sub(1, Ordering::Relaxed);
                });
                if serving.is_err() {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    std::thread::sleep(NO_DESCRIPTOR);
                }
            }
        })?;
        let port = address.port();
        let at: Vec<SocketAddr> = match address {
            _ if !address.ip().is_unspecified() => vec![address],
            SocketAddr::V4(_) => vec![(Ipv4Addr::LOCALHOST, port).into()],
            // Loopback may have one family only.
            SocketAddr::V6(_) => vec![(Ipv6Addr::LOCALHOST, port).into(), (Ipv4Addr::LOCALHOST, port).into()],
        };
        Ok(TcpStore { _values: Some(values), ..TcpStore::connect(&at[..], Duration::from_secs(5))? })
    }

    /// Connects with the process that serves values, which may come later.
    ///
    /// # Errors
    /// If no process serves there within `timeout`.
    pub fn connect(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStore> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match connect_any(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TcpStore { stream, _values: None });
                }
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Asks for something that the server answers within `time`.
    fn ask(
        &mut self,
        control: u8,
        second: u32,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> io::Result<Option<Vec<u8>>> {
        if key.len().max(value.len()) > VALUE_MAX {
            return Err(io::Error::other(format!("a value of {} bytes: {VALUE_MAX} are allowed", value.len())));
        }
        let mut request = vec![control];
        request.extend_from_slice(&(key.len() as u32).to_be_bytes());
        request.extend_from_slice(&second.to_be_bytes());
        request.extend_from_slice(key.as_bytes());
        request.extend_from_slice(value);
        self.stream.set_read_timeout(Some(time.saturating_add(SLACK)))?;
        self.stream.set_write_timeout(Some(SLACK))?;
        self.exchange(&request).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                // A late answer must not be taken for the answer to another question.
                let _ = self.stream.shutdown(std::net::Shutdown::Both);
                let what = format!("the store's process has not answered for {:.1} s", (time + SLACK).as_secs_f64());
                io::Error::other(what)
            }
            _ => error,
        })
    }

    fn exchange(&self, request: &[u8]) -> io::Result<Option<Vec<u8>>> {
        (&self.stream).write_all(request)?;
        match read_number(&mut &self.stream)? {
            u32::MAX => Ok(None),
            length => read_bytes(&mut &self.stream, length).map(Some),
        }
    }
}

impl Store for TcpStore {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        self.ask(b'S', value.len() as u32, key, value, Duration::ZERO).map(drop)
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.ask(b'G', milliseconds, key, &[], timeout)?.ok_or_else(|| late(key, timeout))
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        self.ask(b'R', 0, key, &[], Duration::ZERO).map(drop)
    }
}

/// Connects with the first of the addresses that answers.
fn connect_any(address: &impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let all: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    for address in all {
        // A connection attempt keeps the source address that it began with. While the kernel still checks whether an
        // IPv6 address is a duplicate, that is a wrong one: a later attempt takes the right one.
        let timeout = timeout.clamp(Duration::from_millis(100), ATTEMPT);
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read_number(stream: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_bytes(stream: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    if length as usize > VALUE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a value that is too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Answers one request.
fn answer(mut stream: &TcpStream, values: &mut Values) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut control = [0];
    stream.read_exact(&mut control)?;
    let (length, second) = (read_number(&mut stream)?, read_number(&mut stream)?);
    let key = String::from_utf8(read_bytes(&mut stream, length)?).map_err(|_| invalid())?;
    let mut reply = Vec::new();
    match control[0] {
        b'S' => {
            let value = read_bytes(&mut stream, second)?;
            values.set(&key, &value)?;
            reply.extend_from_slice(&0u32.to_be_bytes());
        }
        b'R' => {
            values.remove(&key)?;
            reply.extend_from_slice(&0u32.to_be_bytes());
        }
        b'G' => match values.get(&key, Duration::from_millis(second.into())) {
            Ok(value) => {
                reply.extend_from_slice(&(value.len() as u32).to_be_bytes());
                reply.extend_from_slice(&value);
            }
            Err(_) => reply.extend_from_slice(&u32::MAX.to_be_bytes()),
        },
        _ => return Err(invalid()),
    }
    stream.write_all(&reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_it(mut one: impl Store, mut other: impl Store + Send + 'static) {
        let waiting = std::thread::spawn(move || other.get("a/b", Duration::from_secs(5)));
        std::thread::sleep(Duration::from_millis(20));
        one.set("a/b", b"value").expect("written");
        assert_eq!(waiting.join().expect("ends").expect("there"), b"value");
        one.remove("a/b").expect("removed");
        one.remove("a/b").expect("nothing to remove");
        assert!(one.get("a/b", Duration::from_millis(10)).is_err(), "removed");
        let late = one.get("none", Duration::from_millis(10)).expect_err("nobody wrote it");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_value_that_one_writes_is_what_another_waits_for() {
        let values = Values::default();
        use_it(values.clone(), values);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        use_it(DirectoryStore::new(&path).expect("a folder"), DirectoryStore::new(&path).expect("a folder"));
        let free = TcpListener::bind("[::1]:0").and_then(|listener| listener.local_addr()).expect("a port");
        let one = TcpStore::serve(free).expect("serves");
        use_it(one, TcpStore::connect(free, Duration::from_secs(1)).expect("reached"));
    }

    #[test]
    fn a_store_is_bounded_in_bytes_and_removal_makes_room() {
        let mut values = Values::default();
        let value = vec![0; VALUE_MAX];
        let fit = STORE_MAX / (VALUE_MAX + 8);
        for number in 0..fit {
            values.set(&format!("{number:08}"), &value).expect("room");
        }
        values.set("00000000", &value).expect("the same value again");
        assert!(values.set("another!", &value).is_err());
        values.remove("00000000").expect("removed");
        values.set("another!", &value).expect("room again");
    }

    #[test]
    fn a_directory_keeps_values_to_its_user_and_follows_no_planted_link() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut store = DirectoryStore::new(&path).expect("a folder");
        let victim = path.join("victim");
        fs::write(&victim, b"theirs").expect("written");
        let planted = path.join(format!(".key.draft{}-0", std::process::id()));
        std::os::unix::fs::symlink(&victim, planted).expect("a link");
        store.set("key", b"secret").expect("written");
        store.set("key.one", b"1").expect("written");
        assert_eq!(fs::read(&victim).expect("there"), b"theirs");
        assert_eq!(fs::metadata(path.join("key")).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(store.get("key", Duration::ZERO).expect("there"), b"secret");
    }

    #[test]
    fn a_store_whose_process_is_stopped_is_not_waited_for_without_end() {
        // It accepts, and answers nothing.
        let listener = TcpListener::bind("[::1]:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut store = TcpStore::connect(address, Duration::from_secs(1)).expect("reached");
        let error = store.get("group", Duration::from_millis(100)).expect_err("no answer");
        assert!(error.to_string().contains("has not answered"), "{error}");
    }

    #[test]
    fn a_request_that_claims_too_much_ends_its_connection() {
        let free = TcpListener::bind("[::1]:0").and_then(|listener| listener.local_addr()).expect("a port");
        let _serving = TcpStore::serve(free).expect("serves");
        let mut stream = TcpStream::connect(free).expect("reached");
        stream.write_all(b"G\xff\xff\xff\xff\0\0\0\0").expect("sent");
        assert_eq!(stream.read(&mut [0; 8]).expect("closed"), 0);
    }
}
