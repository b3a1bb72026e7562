//! The side that writes files: a node, and a disk thread for each client.

use super::contents::{PAGE, padding};
use super::disk::{self, DiskEvent, Work};
use super::file_error::FileError;
use super::message::{Message, PIECE_HEAD, VERSION, VERSION_MORE, WITH_DELETE, WITH_OWNERS};
use super::receiver::Receiver;
use super::sender::parcel_bytes;
use super::spare::Spare;
use super::target::Target;
use super::{CopyError, Letters, SLOTS_MAX};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use strandway_udp::Region;
use strandway_udp::address::shown;
use strandway_udp::{Completion, Connection, Node, NodeCounters, Waker};
use strandway_udp::{Error, Reason};

/// Memory for the parcels of all clients together, in bytes: 1 GiB.
const MEMORY_MAX: u64 = 1 << 30;
/// The interval at which refused callers are reported.
const SECOND: Duration = Duration::from_secs(1);
/// The interval at which an idle server checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// News of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A client has connected from this address.
    Came(SocketAddr),
    /// A client has gone, for this reason.
    Gone(Reason),
    /// This many hellos were refused since the last report.
    Refused(Reason, u64),
}

struct Client {
    controls: Letters,
    /// Set by its hello.
    copy: Option<Copy>,
}

struct Copy {
    memory: Region,
    block: u32,
    /// For each slot: is its parcel not on the disk yet?
    busy: Vec<bool>,
    work: mpsc::Sender<Work>,
    /// Memory of parcels that the disk thread has written.
    spare: Arc<Spare>,
    /// Parcels lie so that their first block begins a page.
    aligned: bool,
}

impl Copy {
    const fn bytes(&self) -> u64 {
        self.busy.len() as u64 * parcel_bytes(self.block)
    }
}

/// A directory that is served.
#[derive(Debug)]
pub struct Server {
    target: Target,
    allowed: Allowed,
}

/// The actions of clients, besides writing files, that a server allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Give files and directories their owners.
    pub owner: bool,
    /// See the names in directories, and remove files and directories.
    pub delete: bool,
}

impl Server {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it is not a directory or cannot be written; the text names a remedy.
    pub fn open(directory: &Path) -> Result<Server, CopyError> {
        let allowed = Allowed::default();
        Target::open(directory).map(|target| Server { target, allowed }).map_err(CopyError::Option)
    }

    /// Writes blocks of large files past the page cache (O_DIRECT), where the file system can: less work for the kernel,
    /// and no burst at the end, but programs that read the files next read them from the disk.
    pub fn direct(mut self, direct: bool) -> Server {
        self.target.set_direct(direct);
        self
    }

    /// Lets clients do this, too.
    pub fn allowing(self, allowed: Allowed) -> Server {
        Server { allowed, ..self }
    }
}

struct Serving<'a> {
    target: &'a mut Target,
    allowed: Allowed,
    clients: HashMap<Connection, Client>,
    waker: Waker,
    /// From all disk threads.
    said: mpsc::Receiver<(Connection, DiskEvent)>,
    say: mpsc::Sender<(Connection, DiskEvent)>,
}

/// Serves clients until `stop` returns true; it is asked ten times a second and after each event. `tell` gets the news
/// of clients.
///
/// # Errors
/// If the node fails. A client that does something wrong only ends its own connection.
pub fn serve(
    node: &mut Node,
    server: &mut Server,
    stop: impl Fn() -> bool,
    mut tell: impl FnMut(Served),
) -> Result<(), CopyError> {
    let (say, said) = mpsc::channel();
    let waker = node.waker()?;
    let mut serving =
        Serving { target: &mut server.target, allowed: server.allowed, clients: HashMap::new(), waker, said, say };
    let (mut refused, mut looked) = (node.observe().counters(), Instant::now());
    while !stop() {
        if let Some(completion) = node.wait(LOOK)?
            && let Some(connection) = super::connection_of(&completion)
        {
            let taken = serving.take(node, connection, completion, &mut tell);
            serving.outcome_of(node, connection, taken, &mut tell);
        }
        while let Ok((connection, said)) = serving.said.try_recv() {
            let obeyed = serving.handle_event(node, connection, said, &mut tell);
            serving.outcome_of(node, connection, obeyed, &mut tell);
        }
        if looked.elapsed() >= SECOND {
            looked = Instant::now();
            report_refused(&mut refused, node.observe().counters(), &mut tell);
        }
    }
    let connections: Vec<Connection> = serving.clients.keys().copied().collect();
    connections.into_iter().for_each(|connection| serving.end(node, connection, Reason::ByPeer, &mut |_| {}));
    Ok(())
}

fn report_refused(before: &mut NodeCounters, now: NodeCounters, tell: &mut impl FnMut(Served)) {
    for ((reason, old), (_, new)) in before.refused().into_iter().zip(now.refused()) {
        if new > old {
            tell(Served::Refused(reason, new - old));
        }
    }
    *before = now;
}

impl Serving<'_> {
    /// Every error of a call for a client's connection is that client's. A connection that has ended in the meantime
    /// is no error: [`Completion::Closed`] follows.
    fn outcome_of(
        &mut self,
        node: &mut Node,
        connection: Connection,
        outcome: Result<(), Error>,
        tell: &mut impl FnMut(Served),
    ) {
        match outcome {
            Ok(()) | Err(Error::NoConnection | Error::NotConnected) => {}
            // Such as a client that does not take the messages that it asked for.
            Err(_) => self.end(node, connection, Reason::Violation, tell),
        }
    }

    fn take(
        &mut self,
        node: &mut Node,
        connection: Connection,
        completion: Completion,
        tell: &mut impl FnMut(Served),
    ) -> Result<(), Error> {
        let broken = match completion {
            Completion::Accepted { from, .. } => {
                let controls = Letters::new(node, connection);
                let client = self.clients.entry(connection).or_insert(Client { controls, copy: None });
                tell(Served::Came(shown(from)));
                client.controls.post_all(node)?;
                false
            }
            Completion::Received { bytes, .. } => {
                let Some(client) = self.clients.get_mut(&connection) else { return Ok(()) };
                match client.controls.received(node, bytes)? {
                    (part, Ok(message)) => self.handle_message(node, connection, part, message)?,
                    (_, Err(_)) => true,
                }
            }
            Completion::Written { immediate, bytes, .. } => self.parcel(node, connection, immediate, bytes)?,
            Completion::Sent { operation, .. } => {
                if let Some(client) = self.clients.get_mut(&connection) {
                    client.controls.sent(node, operation)?;
                }
                false
            }
            Completion::Closed { reason, .. } => {
                if self.forget(node, connection) {
                    tell(Served::Gone(reason));
                }
                false
            }
            _ => false,
        };
        if broken {
            self.end(node, connection, Reason::Violation, tell);
        }
        Ok(())
    }

    /// Handles a message; true if it breaks the protocol.
    fn handle_message(
        &mut self,
        node: &mut Node,
        connection: Connection,
        part: usize,
        message: Message,
    ) -> Result<bool, Error> {
        let promised: u64 = self.clients.values().filter_map(|client| client.copy.as_ref()).map(Copy::bytes).sum();
        let Some(client) = self.clients.get_mut(&connection) else { return Ok(false) };
        if let Some(copy) = &client.copy {
            // If the thread has ended, it has reported why.
            let _ = copy.work.send(Work::Message(part, message));
            return Ok(false);
        }
        let Message::Hello { version, block_log2, slots, dry_run, directory } = message else { return Ok(true) };
        client.controls.post(node, part)?;
        let mut refuse = |node: &mut Node, file_error| {
            client.controls.send(node, Message::Refused(file_error).encode())?;
            Ok(false)
        };
        let wanted = Allowed { owner: version & WITH_OWNERS != 0, delete: version & WITH_DELETE != 0 };
        if version != VERSION && version & !(WITH_OWNERS | WITH_DELETE) != VERSION_MORE {
            return refuse(node, FileError::Version);
        }
        if wanted.owner && !self.allowed.owner || wanted.delete && !self.allowed.delete {
            return refuse(node, FileError::Forbidden);
        }
        if !(12..=24).contains(&block_log2) {
            return Ok(true);
        }
        let block = 1 << block_log2;
        let room = MEMORY_MAX.saturating_sub(promised) / parcel_bytes(block);
        let slots = u64::from(slots.min(SLOTS_MAX)).min(room) as u16;
        if slots < 2 {
            return refuse(node, FileError::NoMemory);
        }
        let target = match self.target.below(&directory, dry_run) {
            Ok(target) => target,
            Err(file_error) => return refuse(node, file_error),
        };
        let memory = node.register(vec![0; usize::from(slots) * parcel_bytes(block) as usize]);
        let (work, list) = mpsc::channel();
        let (say, waker) = (self.say.clone(), self.waker.clone());
        let aligned = target.is_direct();
        let receiver = Receiver::new(target, block, dry_run).allowing(wanted);
        let spare = receiver.spare();
        let spawned = std::thread::Builder::new().name("copy".into()).spawn(move || {
            let tell = |said| {
                let _ = say.send((connection, said));
                waker.wake();
            };
            disk::work(receiver, &list, tell);
        });
        client.copy = Some(Copy { memory, block, busy: vec![false; slots.into()], work, spare, aligned });
        let ready = spawned.map(drop).map_err(|error| FileError::of_io(&error));
        let _ = self.say.send((connection, DiskEvent::Ready(ready)));
        self.waker.wake();
        Ok(false)
    }

    /// Handles a parcel; true if it breaks the protocol.
    fn parcel(&mut self, node: &Node, connection: Connection, slot: u32, bytes: u64) -> Result<bool, Error> {
        let Some(client) = self.clients.get_mut(&connection) else { return Ok(false) };
        let Some(copy) = &mut client.copy else { return Ok(true) };
        let size = parcel_bytes(copy.block);
        let Some(busy) = copy.busy.get_mut(slot as usize).filter(|busy| !**busy && bytes <= size) else {
            return Ok(true);
        };
        *busy = true;
        let start = slot as usize * size as usize;
        let parcel = &node.memory(copy.memory)?[start..start + bytes as usize];
        let mut bytes = copy.spare.take(size as usize + PAGE);
        let from = if copy.aligned { padding(&bytes, PIECE_HEAD) } else { 0 };
        bytes.resize(from, 0);
        bytes.extend_from_slice(parcel);
        let rebuilt = node.observe().connection_counters(connection).map_or(0, |counters| counters.rebuilt_bytes);
        let _ = copy.work.send(Work::Parcel { slot: slot as u16, bytes, from, rebuilt });
        Ok(false)
    }

    /// Handles a disk thread's news.
    fn handle_event(
        &mut self,
        node: &mut Node,
        connection: Connection,
        said: DiskEvent,
        tell: &mut impl FnMut(Served),
    ) -> Result<(), Error> {
        let Some(client) = self.clients.get_mut(&connection) else { return Ok(()) };
        match (said, &mut client.copy) {
            (DiskEvent::Ready(Ok(())), Some(copy)) => {
                let range = 0..copy.bytes() as usize;
                node.expose(connection, copy.memory, range).and_then(|memory| {
                    let slots = copy.busy.len() as u16;
                    client.controls.send(node, Message::Welcome { memory, slots }.encode())
                })
            }
            (DiskEvent::Ready(Err(file_error)), _) => client.controls.send(node, Message::Refused(file_error).encode()),
            (DiskEvent::Message(message), _) => client.controls.send(node, message),
            (DiskEvent::Heard(part), _) => client.controls.post(node, part),
            (DiskEvent::Freed(slot), Some(copy)) => {
                copy.busy[usize::from(slot)] = false;
                Ok(())
            }
            (DiskEvent::Broken, _) => {
                self.end(node, connection, Reason::Violation, tell);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    fn end(&mut self, node: &mut Node, connection: Connection, reason: Reason, tell: &mut impl FnMut(Served)) {
        // The connection may have ended by itself.
        let _ = node.close(connection);
        if self.forget(node, connection) {
            tell(Served::Gone(reason));
        }
    }

    /// Gives a client's memory back; its disk thread ends because it gets no more work. False if there was no such
    /// client.
    fn forget(&mut self, node: &mut Node, connection: Connection) -> bool {
        let Some(client) = self.clients.remove(&connection) else { return false };
        if let Some(copy) = client.copy {
            // Its connection is gone, so nothing uses it.
            let _ = node.deregister(copy.memory);
        }
        client.controls.leave(node);
        true
    }
}
