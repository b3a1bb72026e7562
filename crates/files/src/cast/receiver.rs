//! The side that writes files: it takes one cast after the other.

use super::message::{CastMessage, FileBatch, Form, VERSION, VERSION_MORE};
use super::{BLOCK_LOG2, CastError, Hashes, List, PATIENCE_MAX, RTT_MAX, step_back, with_list};
use crate::copy::parts::{DiskEvent, Receiver, Target, Work, parcel_bytes, work};
use crate::copy::{FileError, Letters, Malformed, Message};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;
use strandway_group::GroupError;
use strandway_group::NodeRole;
use strandway_group::Options;
use strandway_proto::Span;
use strandway_proto::repair::Code;
use strandway_proto::units::Rate;
use strandway_udp::address::shown;
use strandway_udp::{Completion, Connection, Membership, Node};

/// The longest that a receiver sleeps before it checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// The most file batches that a sender may have under way, and the most bytes of all of them together: ours.
const SLOTS_MAX: u16 = 64;
const MEMORY_MAX: u64 = 1 << 30;
/// The least rate of a team, in bits per second.
const RATE_MIN: u64 = 1_000;

/// News of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A sender has connected from this address.
    Came(SocketAddr),
    /// A team has formed: members, and planes that carry multicast.
    Formed {
        /// The number of members, including the sender.
        members: u32,
        /// One bit for each plane.
        planes: u32,
    },
    /// A cast has ended: this receiver has everything that the sender had for it.
    Over {
        /// Payload of file batches, in bytes.
        bytes: u64,
    },
    /// A cast ended early, for this reason.
    Ended(String),
}

/// Takes casts below `target` until `stop` returns true; it is asked repeatedly. `tell` gets the news, and ends the
/// service by returning false.
///
/// # Errors
/// If the node fails. A sender that does something wrong only ends its own cast.
pub fn receive(
    mut node: Node,
    mut target: Target,
    stop: &impl Fn() -> bool,
    mut tell: impl FnMut(Served) -> bool,
) -> Result<(), CastError> {
    while !stop() {
        let Some(Completion::Accepted { connection, from }) = node.wait(LOOK)? else { continue };
        if !tell(Served::Came(shown(from))) {
            return Ok(());
        }
        let mut session = Session::new(node, connection, &mut target, stop);
        let ended = session.run(&mut tell);
        let bytes = session.bytes;
        node = session.end();
        let goes_on = match ended {
            Ok(()) => tell(Served::Over { bytes }),
            Err(CastError::Stopped) => return Ok(()),
            // If the node is to blame, its next call says so.
            Err(error) => tell(Served::Ended(error.to_string())),
        };
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}

struct Session<'a, S> {
    role: NodeRole,
    connection: Connection,
    controls: Letters,
    target: &'a mut Target,
    stop: &'a S,
    /// Present after the sender's hello: the channel to the disk thread, and the channel of its news.
    disk: Option<(mpsc::Sender<Work>, mpsc::Receiver<DiskEvent>)>,
    block: u32,
    /// For each slot: is its file batch not on the disk yet?
    busy: Vec<bool>,
    trusting: bool,
    parity: Option<Code>,
    /// The list of the next file batch, if it came with the last one.
    next: Option<Vec<u8>>,
    bytes: u64,
}

impl<'a, S: Fn() -> bool> Session<'a, S> {
    fn new(mut node: Node, connection: Connection, target: &'a mut Target, stop: &'a S) -> Session<'a, S> {
        let controls = Letters::new(&mut node, connection);
        Session {
            role: NodeRole::new(node),
            connection,
            controls,
            target,
            stop,
            disk: None,
            block: 0,
            busy: Vec::new(),
            trusting: false,
            parity: None,
            next: None,
            bytes: 0,
        }
    }

    /// Leaves team and connection.
    fn end(self) -> Node {
        let mut node = self.role.leave();
        // The connection may have ended by itself.
        let _ = node.close(self.connection);
        self.controls.leave(&mut node);
        node
    }

    fn send_message(&mut self, message: &CastMessage) -> Result<(), CastError> {
        Ok(self.controls.send(self.role.node(), message.encode())?)
    }

    /// Serves the sender until it sends [`CastMessage::Over`].
    fn run(&mut self, tell: &mut impl FnMut(Served) -> bool) -> Result<(), CastError> {
        self.controls.post_all(self.role.node())?;
        loop {
            if (self.stop)() {
                return Err(CastError::Stopped);
            }
            self.handle_disk()?;
            // The disk thread wakes the node.
            let completion = self.role.wait(LOOK)?;
            let Some(completion) = completion else { continue };
            if let Some(message) = self.take(completion)?
                && self.handle_message(message, tell)?
            {
                return Ok(());
            }
        }
    }

    /// The message of a completion, if it has one.
    fn take(&mut self, completion: Completion) -> Result<Option<CastMessage>, CastError> {
        match completion {
            Completion::Received { connection, bytes, .. } if connection == self.connection => {
                let (part, bytes) = self.controls.take(self.role.node(), bytes)?;
                let message = CastMessage::decode(bytes)?;
                // If the connection has ended since, the message still counts, and `Closed` follows.
                let _ = self.controls.post(self.role.node(), part);
                Ok(Some(message))
            }
            Completion::Sent { connection, operation } if connection == self.connection => {
                self.controls.sent(self.role.node(), operation)?;
                Ok(None)
            }
            Completion::Closed { connection, .. } if connection == self.connection => Err(CastError::SenderGone),
            // A receiver serves one sender at a time: another one's connection is closed.
            Completion::Accepted { connection, .. } => {
                let _ = self.role.node().close(connection);
                Ok(None)
            }
            other => {
                self.role.handle_completion(&other)?;
                Ok(None)
            }
        }
    }

    /// Handles a message of the sender; true if it is the last one.
    fn handle_message(
        &mut self,
        message: CastMessage,
        tell: &mut impl FnMut(Served) -> bool,
    ) -> Result<bool, CastError> {
        match (message, self.disk.is_some()) {
            (CastMessage::Hello { version, block_log2, slots }, false) => self.begin(version, block_log2, slots)?,
            (CastMessage::Copy(message), true) => {
                let message = Message::decode(&message).map_err(|_| Malformed)?;
                self.work(Work::Message(0, message))?;
            }
            (CastMessage::Form(form), true) => self.join(form)?,
            (CastMessage::Try, true) => {
                let heard = self.role.team().ok_or(Malformed)?.try_planes()?;
                self.send_message(&CastMessage::Heard(heard))?;
            }
            (CastMessage::Planes(planes), true) => {
                let team = self.role.team().ok_or(Malformed)?;
                team.set_multicast_planes(planes);
                let members = team.ranks();
                if !tell(Served::Formed { members, planes }) {
                    return Err(CastError::Stopped);
                }
            }
            (CastMessage::Parcel(batch), true) => self.batch(&batch)?,
            (CastMessage::Over, true) => return Ok(true),
            _ => return Err(Malformed.into()),
        }
        Ok(false)
    }

    /// Handles the sender's hello.
    fn begin(&mut self, version: u16, block_log2: u8, slots: u16) -> Result<(), CastError> {
        let refused = |session: &mut Self, file_error| {
            session.send_message(&CastMessage::Refused(file_error))?;
            Err(CastError::Refused(file_error))
        };
        if version != VERSION && version != VERSION_MORE {
            return refused(self, FileError::Version);
        }
        if !BLOCK_LOG2.contains(&block_log2) || !(1..=SLOTS_MAX).contains(&slots) {
            return Err(Malformed.into());
        }
        self.block = 1 << block_log2;
        if u64::from(slots) * parcel_bytes(self.block) > MEMORY_MAX {
            return refused(self, FileError::NoMemory);
        }
        let target = match self.target.below(&[], false) {
            Ok(target) => target,
            Err(file_error) => return refused(self, file_error),
        };
        self.busy = vec![false; slots.into()];
        let (orders, list) = mpsc::channel();
        let (say, said) = mpsc::channel();
        let waker = self.role.node().waker()?;
        let receiver = Receiver::of_many(target, self.block);
        let spawned = std::thread::Builder::new().name("cast".into()).spawn(move || {
            step_back();
            work(receiver, &list, |news| {
                // If the session has ended, no one receives the news.
                let _ = say.send(news);
                waker.wake();
            });
        });
        if let Err(error) = spawned {
            return Err(CastError::Option(format!("no thread for the disk: {error}")));
        }
        self.disk = Some((orders, said));
        self.send_message(&CastMessage::Welcome)
    }

    fn work(&mut self, work: Work) -> Result<(), CastError> {
        if let Some((orders, _)) = &self.disk {
            // If the thread has ended, it has reported why.
            let _ = orders.send(work);
        }
        self.handle_disk()
    }

    /// Passes the disk thread's messages to the sender.
    fn handle_disk(&mut self) -> Result<(), CastError> {
        while let Some(said) = self.disk.as_ref().and_then(|(_, said)| said.try_recv().ok()) {
            match said {
                DiskEvent::Message(message) => self.send_message(&CastMessage::Copy(message))?,
                DiskEvent::Freed(slot) => self.busy[usize::from(slot)] = false,
                DiskEvent::Broken => return Err(Malformed.into()),
                DiskEvent::Heard(_) | DiskEvent::Ready(_) => {}
            }
        }
        Ok(())
    }

    /// Joins a team, after leaving the one before.
    fn join(&mut self, form: Form) -> Result<(), CastError> {
        let ours = self.role.node().addresses()?.len();
        let sane = form.rank != 0
            && (form.rank as usize) < form.members.len()
            && form.members.iter().all(|member| member.len() == ours)
            && form.rate >= RATE_MIN
            && (1..=1_000_000).contains(&form.pace)
            && Duration::from_millis(form.patience_ms.into()) <= PATIENCE_MAX
            && (Span::from_us(1)..=RTT_MAX).contains(&Span::from_us(form.rtt_us.into()));
        let parity = match form.parity {
            [0, 0] => None,
            [k, m] => Some(Code::mds(k.into(), m.into()).map_err(|_| Malformed)?),
        };
        if !sane {
            return Err(Malformed.into());
        }
        (self.trusting, self.parity) = (form.trusting, parity);
        let options = Options {
            team: form.team,
            trees: form.trees,
            no_multicast: form.port.is_none(),
            patience: Duration::from_millis(form.patience_ms.into()),
            pace: f64::from(form.pace) / 1e6,
            rtt: Span::from_us(form.rtt_us.into()),
            parity,
            ..Options::new(Rate(form.rate))
        };
        let membership = Membership {
            team: form.team,
            secret: form.secret,
            rank: form.rank,
            members: form.members,
            port: form.port,
            trees: form.trees,
        };
        self.role.node().set_payload(form.payload.into())?;
        match self.role.join(&membership, options) {
            Ok(()) => self.send_message(&CastMessage::Joined),
            // The sender tries another port.
            Err(GroupError::Node(error)) if error.is_port_taken() => self.send_message(&CastMessage::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a file batch.
    fn batch(&mut self, batch: &FileBatch) -> Result<(), CastError> {
        let FileBatch { slot, bytes, hash, listed, next } = *batch;
        let free = self.busy.get(usize::from(slot)).is_some_and(|busy| !busy);
        if !free || u64::from(bytes) > parcel_bytes(self.block) || bytes == 0 {
            return Err(Malformed.into());
        }
        let (stop, parity, bytes, next) = (self.stop, self.parity, bytes as usize, next as usize);
        let team = self.role.team().ok_or(Malformed)?;
        let chunk = team.node().payload() as u16;
        if next > List::bytes(parcel_bytes(self.block) as usize, chunk, parity)? {
            return Err(Malformed.into());
        }
        let hashes = match (self.trusting, listed) {
            (true, _) => Hashes::None,
            (false, true) => Hashes::Here(List { hashes: self.next.clone().ok_or(Malformed)?, hash }),
            (false, false) => Hashes::Apart(List::promised(hash, bytes, chunk, parity)?),
        };
        match super::broadcast(team, Vec::new(), (bytes, next), &hashes, stop) {
            Ok(mut buffer) => {
                let list = with_list(bytes, next, chunk.into()) - next;
                self.next = (next > 0).then(|| buffer.split_off(list));
                buffer.truncate(bytes);
                self.busy[usize::from(slot)] = true;
                self.bytes += bytes as u64;
                self.work(Work::Parcel { slot, bytes: buffer, from: 0, rebuilt: 0 })
            }
            // The sender notices it, too, and forms another team.
            Err((_, GroupError::Dead { rank })) if rank != 0 => Ok(()),
            Err((_, GroupError::Dead { .. })) => Err(CastError::SenderGone),
            Err((_, error)) => Err(error.into()),
        }
    }
}

impl Served {
    /// Has a cast ended, regularly or early?
    pub const fn is_end(&self) -> bool {
        matches!(self, Served::Over { .. } | Served::Ended(_))
    }
}
