//! The side that reads files: a node, and a thread for the disk.

use super::exclude::Exclude;
use super::file_error::FileError;
use super::message::{Message, VERSION, VERSION_MORE, WITH_DELETE, WITH_OWNERS};
use super::sender::{Done, FileNews, Order, Outcome, Sender, parcel_bytes};
use super::tree::{Preserve, Tree};
use super::{CopyError, Letters, Malformed, Options, connection_of};
use crate::watching::Watching;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use strandway_proto::Rate;
use strandway_udp::RemoteRegion;
use strandway_udp::{Completion, Connection, Node};
use strandway_udp::{Error, Reason};

/// The interval at which `each` gets the status and `stop` is asked.
const LOOK: Duration = Duration::from_millis(100);
/// The state of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Seconds since the connection was established.
    pub seconds: f64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that the server has, including those that it had before.
    pub bytes_done: u64,
    /// Bytes that were sent and are on the server's disk.
    pub bytes_sent: u64,
    /// Files.
    pub files: u64,
    /// Files that the server has.
    pub files_done: u64,
    /// Payload that left for the first time, in bytes.
    pub fresh_bytes: u64,
    /// Payload that was sent again, in bytes: the profile's retransmissions.
    pub again_bytes: u64,
    /// Payload that the server rebuilt from parity, in bytes.
    pub rebuilt_bytes: u64,
    /// Bytes that this host sent, headers and Ethernet frames included.
    pub wire_bytes: u64,
    /// Payload bytes of a full packet.
    pub payload: u32,
}

impl Status {
    /// Bytes per second that were sent and are on the server's disk.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes_sent as f64 / self.seconds } else { 0.0 }
    }

    /// The share of the payload that left and was lost, from 0 to 1: bytes that were sent again or rebuilt, of all
    /// bytes that were sent.
    pub fn loss(&self) -> f64 {
        (self.again_bytes + self.rebuilt_bytes) as f64 / ((self.fresh_bytes + self.again_bytes) as f64).max(1.0)
    }

    /// Bytes on the wire per byte of payload that left; 0 before the first.
    pub fn overhead(&self) -> f64 {
        if self.fresh_bytes == 0 { 0.0 } else { self.wire_bytes as f64 / self.fresh_bytes as f64 }
    }

    /// Seconds that the rest takes at the present rate; `None` if the rate is zero.
    pub fn left(&self) -> Option<f64> {
        let rate = self.rate();
        (rate > 0.0).then(|| self.bytes.saturating_sub(self.bytes_done) as f64 / rate)
    }
}

/// The result of a copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The state at its end.
    pub status: Status,
    /// Files that were sent.
    pub files: u64,
    /// Directories that the server has now.
    pub directories: u64,
    /// Links that the server has now, and further names of files.
    pub links: u64,
    /// Files that the server had before, with the same size and time of change as here.
    pub had_files: u64,
    /// Their bytes.
    pub had_bytes: u64,
    /// Bytes of sent files that an earlier copy had left.
    pub resumed_bytes: u64,
    /// Bytes that were missing at the server.
    pub missing_bytes: u64,
    /// Files, links and directories that were removed at the server; with a dry run, that would be.
    pub removed: u64,
    /// Nothing was removed, although that was asked for, because files could not be copied.
    pub kept: bool,
    /// Files that were not copied, and why.
    pub failures: Vec<(PathBuf, FileError)>,
}

/// Copies `sources` to the server at `peer` (its address on each plane), into `directory` below the server's directory;
/// an empty `directory` is the server's own. The source `a` becomes `directory/a`; for `a/.` the contents of `a` go
/// into `directory`. Ten times a second, `each` gets the status and `stop` is asked.
///
/// Files that cannot be copied are among the summary's failures; the others are copied.
///
/// # Errors
/// If options or sources are wrong, the connection fails, or the server reports an error that every file would have.
pub fn copy(
    node: &mut Node,
    peer: &[SocketAddrV6],
    sources: &[PathBuf],
    directory: &[u8],
    options: &Options,
    stop: impl Fn() -> bool,
    mut each: impl FnMut(&Status),
) -> Result<Summary, CopyError> {
    let request = Request { sources, directory, options, exclude: &Exclude::default(), files: false };
    let news = |news: News<'_>| {
        if let News::Status(status) = news {
            each(status);
        }
    };
    copy_request(node, peer, &request, stop, news)
}

/// A copy that is wanted: sources, destination and options.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The sources; see [`copy`].
    pub sources: &'a [PathBuf],
    /// The directory below the server's.
    pub directory: &'a [u8],
    /// The options.
    pub options: &'a Options,
    /// The names that are left out.
    pub exclude: &'a Exclude,
    /// Is news of each file wanted?
    pub files: bool,
}

/// News of a copy.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// Its status, ten times a second.
    Status(&'a Status),
    /// The fate of a file.
    File(&'a FileNews),
}

/// Copies as [`copy`] does, with names that are left out, and with news of each file.
///
/// # Errors
/// Those of [`copy`].
pub fn copy_request(
    node: &mut Node,
    peer: &[SocketAddrV6],
    request: &Request<'_>,
    stop: impl Fn() -> bool,
    mut each: impl FnMut(News<'_>),
) -> Result<Summary, CopyError> {
    let options = request.options;
    options.check()?;
    let mut watching = Watching::begin("copy").map_err(CopyError::Call)?;
    let each = |news: News<'_>| {
        if let News::Status(status) = news {
            watching.copy(status);
        }
        each(news);
    };
    let tree = Tree::of_chosen(request.sources, options.preserve, request.exclude)?;
    let connection = node.connect(peer)?;
    let controls = Letters::new(node, connection);
    let slot_bytes = parcel_bytes(options.block);
    let mut copying =
        Copying { connection, controls, memory: None, slot_bytes, done: Arc::default(), held: VecDeque::new() };
    let copied = match copying.run(node, tree, request, &stop, each) {
        // The connection has just ended; the reason is in a completion that still waits.
        Err(CopyError::Call(Error::NoConnection | Error::NotConnected)) => Err(why(node, connection)),
        other => other,
    };
    // The connection may have ended by itself.
    let _ = node.close(connection);
    copying.controls.leave(node);
    copied
}

/// Why a connection has ended.
fn why(node: &mut Node, connection: Connection) -> CopyError {
    while let Some(completion) = node.poll() {
        if let Completion::Closed { connection: ended, reason } = completion
            && ended == connection
        {
            return CopyError::Closed(reason);
        }
    }
    CopyError::Closed(Reason::ByPeer)
}

struct Copying {
    connection: Connection,
    controls: Letters,
    /// The server's memory, from its welcome.
    memory: Option<RemoteRegion>,
    slot_bytes: u64,
    /// Memory of parcels that were sent.
    done: Arc<Done>,
    /// Parcels that wait because of the rate limit.
    held: VecDeque<(u16, Vec<u8>)>,
}

/// The values from which a copy's status is made.
struct Telling {
    began: Instant,
    bytes: u64,
    files: u64,
    done: Arc<Done>,
    /// Bytes on the wire that the node had sent before.
    wire: u64,
}

impl Copying {
    fn run(
        &mut self,
        node: &mut Node,
        tree: Tree,
        request: &Request<'_>,
        stop: &impl Fn() -> bool,
        each: impl FnMut(News<'_>),
    ) -> Result<Summary, CopyError> {
        let (directory, options) = (request.directory, request.options);
        let wire = node.observe().wire_bytes();
        let (memory, slots) = self.greet(node, directory, options, stop)?;
        self.memory = Some(memory);
        let (bytes, files) = (tree.bytes, tree.files);
        let (orders, list) = mpsc::channel();
        let (inbox, heard) = mpsc::channel();
        let waker = node.waker()?;
        let sender = Sender::new(tree, (options.block, slots.min(options.slots)), options.dry_run, orders);
        let sender = sender.deleting(options.delete);
        self.done = sender.done();
        self.done.telling.store(request.files, Ordering::Relaxed);
        let telling = Telling { began: Instant::now(), bytes, files, done: sender.done(), wire };
        let thread = std::thread::Builder::new().name("copy".into()).spawn(move || {
            let ended = sender.run(&heard, || waker.wake());
            // The channel of orders is closed by now; the node's thread must notice that.
            waker.wake();
            ended
        });
        let thread = thread.map_err(|error| CopyError::Option(format!("no thread for the disk: {error}")))?;
        let pumped = self.pump(node, &list, &inbox, options.limit, stop, each, &telling);
        drop((inbox, list));
        let ended = thread.join().unwrap_or(Err(None));
        let status = pumped?;
        let outcome: Outcome = ended.map_err(|error| error.unwrap_or(CopyError::Stopped))?;
        Ok(Summary {
            status,
            files: outcome.files,
            directories: outcome.directories,
            links: outcome.links,
            had_files: outcome.had_files,
            had_bytes: outcome.had_bytes,
            resumed_bytes: outcome.resumed_bytes,
            missing_bytes: outcome.missing_bytes,
            removed: outcome.removed,
            kept: outcome.kept,
            failures: outcome.failures,
        })
    }

    /// Waits for the connection, says hello, and waits for the welcome: the server's memory, and the number of parcels
    /// that fit it.
    fn greet(
        &mut self,
        node: &mut Node,
        directory: &[u8],
        options: &Options,
        stop: &impl Fn() -> bool,
    ) -> Result<(RemoteRegion, u16), CopyError> {
        while !stop() {
            let Some(completion) = node.wait(LOOK)? else { continue };
            if matches!(completion, Completion::Connected { .. }) {
                self.controls.post_all(node)?;
                let hello = Message::Hello {
                    version: version(options),
                    block_log2: options.block.trailing_zeros() as u8,
                    slots: options.slots,
                    dry_run: options.dry_run,
                    directory: directory.to_vec(),
                };
                self.controls.send(node, hello.encode())?;
            }
            let Some((part, message)) = self.take(node, completion)? else { continue };
            self.controls.post(node, part)?;
            match message {
                Message::Welcome { memory, slots } if slots > 0 => return Ok((memory, slots)),
                Message::Refused(file_error) => {
                    let path = std::ffi::OsString::from_vec(directory.to_vec());
                    return Err(CopyError::Refused(path.into(), file_error));
                }
                _ => return Err(CopyError::Malformed(Malformed)),
            }
        }
        Err(CopyError::Stopped)
    }

    /// Moves packets, messages and parcels until the disk thread has no more orders.
    #[expect(clippy::too_many_arguments, reason = "the ends of two channels, and the arguments of `copy`")]
    fn pump(
        &mut self,
        node: &mut Node,
        orders: &mpsc::Receiver<Order>,
        inbox: &mpsc::Sender<(usize, Message)>,
        limit: Option<Rate>,
        stop: &impl Fn() -> bool,
        mut each: impl FnMut(News<'_>),
        telling: &Telling,
    ) -> Result<Status, CopyError> {
        let (mut looked, mut next) = (Instant::now(), Instant::now());
        while !stop() {
            loop {
                match orders.try_recv() {
                    Ok(Order::Say(message)) => self.controls.send(node, message)?,
                    Ok(Order::Write(slot, parcel)) => self.held.push_back((slot, parcel)),
                    Ok(Order::Heard(part)) => self.controls.post(node, part)?,
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => {
                        telling.done.take_news().iter().for_each(|news| each(News::File(news)));
                        return telling.status(node, self.connection);
                    }
                }
            }
            let mut wait = LOOK;
            while let Some((slot, parcel)) = self.held.pop_front() {
                let now = Instant::now();
                if now < next {
                    wait = wait.min(next - now);
                    self.held.push_front((slot, parcel));
                    break;
                }
                if let Some(limit) = limit {
                    next = next.max(now) + Duration::from_secs_f64(parcel.len() as f64 * 8.0 / limit.0 as f64);
                }
                self.write(node, slot, parcel)?;
            }
            if let Some(completion) = node.wait(wait)?
                && let Some(message) = self.take(node, completion)?
            {
                // If the disk thread has ended, the channel of its orders is closed, and the next turn notices that.
                let _ = inbox.send(message);
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                telling.done.take_news().iter().for_each(|news| each(News::File(news)));
                each(News::Status(&telling.status(node, self.connection)?));
            }
        }
        Err(CopyError::Stopped)
    }

    fn write(&mut self, node: &mut Node, slot: u16, parcel: Vec<u8>) -> Result<(), CopyError> {
        let Some(memory) = self.memory else { return Ok(()) };
        let (length, at) = (parcel.len(), u64::from(slot) * self.slot_bytes);
        let region = node.register(parcel);
        let written = node.write(self.connection, region, 0..length, memory, at, Some(slot.into()));
        Ok(self.controls.keep(node, region, written)?)
    }

    /// The message of a completion, if it has one, and its part of the inbox.
    fn take(&mut self, node: &mut Node, completion: Completion) -> Result<Option<(usize, Message)>, CopyError> {
        if connection_of(&completion) != Some(self.connection) {
            return Ok(None);
        }
        match completion {
            Completion::Received { bytes, .. } => {
                let (part, message) = self.controls.received(node, bytes)?;
                message.map(|message| Some((part, message))).map_err(CopyError::Malformed)
            }
            Completion::Sent { operation, .. } => {
                let parcel = |memory: &Vec<u8>| memory.capacity() as u64 >= self.slot_bytes;
                let memory = self.controls.sent(node, operation)?.filter(parcel);
                memory.into_iter().for_each(|memory| self.done.spare.give(memory));
                Ok(None)
            }
            Completion::Closed { reason, .. } => Err(CopyError::Closed(reason)),
            _ => Ok(None),
        }
    }
}

/// The version of the protocol that these options need.
fn version(options: &Options) -> u16 {
    let owners = if options.preserve.owners { WITH_OWNERS } else { 0 };
    let delete = if options.delete { WITH_DELETE } else { 0 };
    let plain = options.preserve == Preserve::default() && !options.delete;
    if plain { VERSION } else { VERSION_MORE | owners | delete }
}

impl Telling {
    fn status(&self, node: &Node, connection: Connection) -> Result<Status, CopyError> {
        let counters = node.observe().connection_counters(connection)?;
        let payload = node.observe().payload(connection)?;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Status {
            seconds: self.began.elapsed().as_secs_f64(),
            bytes: self.bytes,
            bytes_done: read(&self.done.bytes),
            bytes_sent: read(&self.done.sent),
            files: self.files,
            files_done: read(&self.done.files),
            fresh_bytes: counters.fresh_bytes,
            again_bytes: counters.engine.retransmitted * u64::from(payload),
            rebuilt_bytes: read(&self.done.rebuilt),
            wire_bytes: node.observe().wire_bytes() - self.wire,
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_share() {
        let status = |fresh, again, rebuilt| Status {
            fresh_bytes: fresh,
            again_bytes: again,
            rebuilt_bytes: rebuilt,
            ..Status::default()
        };
        assert_eq!(status(0, 0, 0).loss(), 0.0);
        // One of ten packets that left was lost.
        assert_eq!(status(90, 10, 0).loss(), 0.1);
        // Every packet was sent three times and more.
        assert!(status(100, 260, 100).loss() <= 1.0);
    }
}
