//! The side that reads files: it calls receivers, forms teams of those that answer, and casts to them the blocks that
//! they lack.

mod forming;

use super::message::{CastMessage, FileBatch, VERSION, VERSION_MORE};
use super::ready::{Ready, Step, hasher};
use super::receiver_group::ReceiverGroup;
use super::{BLOCK_LOG2, CastError, Failures, Hashes, Options, PATIENCE_MAX, RTT_MAX, step_back, with_list};
use crate::copy::parts::{Order, Outcome, Sender, Tree, parcel_bytes};
use crate::copy::{CopyError, Exclude, Letters, Message, Preserve};
use crate::watching::Watching;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use strandway_group::GroupError;
use strandway_group::NodeRole;
use strandway_proto::units::Span;
use strandway_udp::{Completion, Connection, Error, Node, Reason};

/// The interval at which `each` gets the status; also the longest that the sender sleeps.
const LOOK: Duration = Duration::from_millis(100);
/// The most messages of a receiver that wait to be handled: ours, far more than the file batches and offers under way
/// cause.
const NOTES_MAX: usize = 1_024;
/// The time after which a receiver that does not answer is called again.
const AGAIN: Duration = Duration::from_millis(1_000);

/// A receiver, as the caller describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name in messages.
    pub name: String,
    /// Its node's addresses, plane by plane.
    pub addresses: Vec<SocketAddrV6>,
}

/// The state of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not answer.
    Absent,
    /// It has answered, and takes part in the next pass.
    Waits,
    /// It takes part.
    Receives,
    /// It has everything that it can get.
    Done,
    /// It was lost, or has refused; with the reason.
    Lost(String),
}

/// One receiver's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Payload of file batches that are on its disk, in bytes.
    pub bytes: u64,
    /// Files that it received and has now.
    pub files: u64,
}

/// The state of a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Seconds since the call.
    pub seconds: f64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Planes that carry multicast in the present team, one bit each.
    pub planes: u32,
    /// Payload bytes that have been cast, including those that were cast again for late receivers.
    pub cast_bytes: u64,
    /// Bytes that this host sent, headers and Ethernet frames included.
    pub wire_bytes: u64,
    /// All receivers, in the order of the call.
    pub receivers: Vec<Progress>,
}

/// The result of a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The state at its end.
    pub status: Status,
    /// The number of passes: one, and one more each time that late receivers were served.
    pub passes: u32,
    /// Bytes that at least one receiver lacked at the beginning of the first pass.
    pub missing_bytes: u64,
    /// Files that did not arrive at a receiver.
    pub failures: Failures,
    /// Sources that could not be read.
    pub unread: Vec<(PathBuf, crate::copy::FileError)>,
}

/// Casts `sources` to all receivers that answer, into the directories that they serve. The source `a` becomes `a`
/// there; for `a/.` the contents go there. Ten times a second, `each` gets the status and `stop` is asked.
///
/// # Errors
/// If options or sources are wrong, no receiver takes part, or one is lost and the cast had to reach all.
pub fn send(
    node: Node,
    listeners: &[Listener],
    sources: &[PathBuf],
    options: &Options,
    stop: &impl Fn() -> bool,
    each: &mut impl FnMut(&Status),
) -> Result<Summary, CastError> {
    send_chosen(node, listeners, (sources, &Exclude::default()), options, stop, each)
}

/// Casts as [`send`] does, without the files that the patterns leave out.
///
/// # Errors
/// Those of [`send`].
pub fn send_chosen(
    node: Node,
    listeners: &[Listener],
    (sources, exclude): (&[PathBuf], &Exclude),
    options: &Options,
    stop: &impl Fn() -> bool,
    each: &mut impl FnMut(&Status),
) -> Result<Summary, CastError> {
    if options.preserve.owners {
        return Err(CastError::Option("owners: casts do not keep them, copies do".into()));
    }
    if !options.block.is_power_of_two() || !BLOCK_LOG2.contains(&(options.block.trailing_zeros() as u8)) {
        let what = format!("blocks of {} bytes: take a power of two from 4 KiB to 64 MiB", options.block);
        return Err(CastError::Option(what));
    }
    if !(2..=64).contains(&options.slots) {
        return Err(CastError::Option(format!("{} parcels under way: take 2 to 64", options.slots)));
    }
    if options.team.patience > PATIENCE_MAX || !(Span::from_us(1)..=RTT_MAX).contains(&options.team.rtt) {
        let what = "the team's patience and round trip: take at most 600 s, and 1 us to 10 s";
        return Err(CastError::Option(what.into()));
    }
    if listeners.is_empty() {
        return Err(CastError::Option("name at least one receiver".into()));
    }
    let tree = Tree::of_chosen(sources, options.preserve, exclude)?;
    let wire = node.observe().wire_bytes();
    let peers = listeners.iter().map(|listener| Peer::new(listener.clone())).collect();
    let mut casting = Casting {
        role: NodeRole::new(node),
        peers,
        options,
        stop,
        wire,
        began: Instant::now(),
        looked: Instant::now(),
        bytes: tree.bytes,
        files: tree.files,
        cast_bytes: 0,
    };
    let mut watching = Watching::begin("cast")?;
    casting.run(tree, (sources, exclude), &mut |status: &Status| {
        watching.cast(status);
        each(status);
    })
}

struct Peer {
    listener: Listener,
    state: State,
    connection: Option<Connection>,
    controls: Option<Letters>,
    /// When to call it again.
    call_at: Instant,
    /// Its messages that have not been handled.
    messages: VecDeque<CastMessage>,
    bytes: u64,
    files: u64,
    failures: Vec<(u32, crate::copy::FileError)>,
}

impl Peer {
    fn new(listener: Listener) -> Peer {
        Peer {
            listener,
            state: State::Absent,
            connection: None,
            controls: None,
            call_at: Instant::now(),
            messages: VecDeque::new(),
            bytes: 0,
            files: 0,
            failures: Vec::new(),
        }
    }
}

struct Casting<'a, S> {
    role: NodeRole,
    peers: Vec<Peer>,
    options: &'a Options,
    stop: &'a S,
    wire: u64,
    began: Instant,
    looked: Instant,
    bytes: u64,
    files: u64,
    cast_bytes: u64,
}

impl<S: Fn() -> bool> Casting<'_, S> {
    fn status(&mut self) -> Status {
        let planes = self.role.team().map_or(0, |team| team.multicast_planes());
        let wire_bytes = self.role.node().observe().wire_bytes() - self.wire;
        let progress = |peer: &Peer| Progress {
            name: peer.listener.name.clone(),
            state: peer.state.clone(),
            bytes: peer.bytes,
            files: peer.files,
        };
        Status {
            seconds: self.began.elapsed().as_secs_f64(),
            bytes: self.bytes,
            files: self.files,
            planes,
            cast_bytes: self.cast_bytes,
            wire_bytes,
            receivers: self.peers.iter().map(progress).collect(),
        }
    }

    fn run(
        &mut self,
        tree: Tree,
        (sources, exclude): (&[PathBuf], &Exclude),
        each: &mut impl FnMut(&Status),
    ) -> Result<Summary, CastError> {
        let until = Instant::now() + self.options.wait;
        while self.peers.iter().any(|peer| peer.state == State::Absent) && Instant::now() < until {
            self.turn(LOOK, each)?;
        }
        let mut summary: Option<Summary> = None;
        let mut tree = Some(tree);
        loop {
            let ready = |peers: &[Peer]| -> Vec<usize> {
                (0..peers.len()).filter(|&who| peers[who].state == State::Waits).collect()
            };
            let members = ready(&self.peers);
            if members.is_empty() {
                break;
            }
            let tree = match tree.take() {
                Some(tree) => tree,
                None => Tree::of_chosen(sources, self.options.preserve, exclude)?,
            };
            let paths: Vec<PathBuf> = tree.items.iter().map(|item| item.from.clone()).collect();
            let outcome = self.pass(tree, members, each)?;
            let summary = summary.get_or_insert_with(|| Summary {
                status: self.status(),
                passes: 0,
                missing_bytes: outcome.missing_bytes,
                failures: Vec::new(),
                unread: outcome.failures.clone(),
            });
            summary.passes += 1;
            for peer in &mut self.peers {
                let name = &peer.listener.name;
                let failures = peer.failures.drain(..);
                summary.failures.extend(
                    failures.filter_map(|(id, why)| Some((name.clone(), paths.get(id as usize)?.clone(), why))),
                );
            }
            // Receivers that have come meanwhile take part in the next pass.
            self.turn(Duration::ZERO, each)?;
        }
        for who in 0..self.peers.len() {
            if self.peers[who].state == State::Done {
                // The connection may have ended already.
                let _ = self.send_message(who, &CastMessage::Over);
            }
        }
        let until = Instant::now() + Duration::from_secs(1);
        while self.peers.iter().any(|peer| peer.state == State::Done && peer.connection.is_some())
            && Instant::now() < until
        {
            self.turn(LOOK, each)?;
        }
        let status = self.status();
        each(&status);
        match summary {
            Some(summary) => Ok(Summary { status, ..summary }),
            None => Err(CastError::Nobody(self.reasons())),
        }
    }

    /// For each receiver, the reason why it does not take part.
    fn reasons(&self) -> Vec<(String, String)> {
        let why = |peer: &Peer| match &peer.state {
            State::Lost(why) => why.clone(),
            _ => "it does not answer: is `strandway cast --receive` running there, with the same key?".to_string(),
        };
        self.peers.iter().map(|peer| (peer.listener.name.clone(), why(peer))).collect()
    }

    fn send_message(&mut self, who: usize, message: &CastMessage) -> Result<(), CastError> {
        match &mut self.peers[who].controls {
            Some(controls) => Ok(controls.send(self.role.node(), message.encode())?),
            None => Ok(()),
        }
    }

    /// Moves packets once, calls receivers that are due, and handles completions.
    fn turn(&mut self, nap: Duration, each: &mut impl FnMut(&Status)) -> Result<(), CastError> {
        if (self.stop)() {
            return Err(CastError::Stopped);
        }
        for who in 0..self.peers.len() {
            let peer = &self.peers[who];
            if peer.state == State::Absent && peer.connection.is_none() && peer.call_at <= Instant::now() {
                let addresses = peer.listener.addresses.clone();
                match self.role.node().connect(&addresses) {
                    Ok(connection) => self.peers[who].connection = Some(connection),
                    // Its addresses do not fit, however often it is called.
                    Err(error @ Error::Config(_)) => self.peers[who].state = State::Lost(error.to_string()),
                    Err(_) => self.peers[who].call_at = Instant::now() + AGAIN,
                }
            }
        }
        if let Some(completion) = self.role.wait(nap)? {
            self.handle_completion(completion)?;
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let status = self.status();
            each(&status);
        }
        Ok(())
    }

    fn handle_completion(&mut self, completion: Completion) -> Result<(), CastError> {
        let of = |casting: &Self, connection: Connection| {
            casting.peers.iter().position(|peer| peer.connection == Some(connection))
        };
        match completion {
            Completion::Connected { connection } => {
                let Some(who) = of(self, connection) else { return Ok(()) };
                let mut controls = Letters::new(self.role.node(), connection);
                let posted = controls.post_all(self.role.node());
                self.peers[who].controls = Some(controls);
                let (block, slots) = (self.options.block, self.options.slots);
                let plain = self.options.preserve == Preserve::default();
                let version = if plain { VERSION } else { VERSION_MORE };
                let hello = CastMessage::Hello { version, block_log2: block.trailing_zeros() as u8, slots };
                // If the connection has ended in the turn in which it began, `Closed` follows.
                let _ = posted.map_err(CastError::from).and_then(|()| self.send_message(who, &hello));
            }
            Completion::Received { connection, bytes, .. } => {
                let Some(who) = of(self, connection) else { return Ok(()) };
                let Some(controls) = &mut self.peers[who].controls else { return Ok(()) };
                let (part, message) = match controls.take(self.role.node(), bytes) {
                    Ok((part, bytes)) => (part, CastMessage::decode(bytes)),
                    Err(error) => {
                        self.give_up(who, &error.to_string());
                        return Ok(());
                    }
                };
                // If the connection has ended since, the message still counts, and `Closed` follows.
                let _ = controls.post(self.role.node(), part);
                match message {
                    Ok(CastMessage::Welcome) if self.peers[who].state == State::Absent => {
                        self.peers[who].state = State::Waits
                    }
                    Ok(CastMessage::Refused(file_error)) => self.give_up(who, &file_error.to_string()),
                    Ok(_) if self.peers[who].messages.len() >= NOTES_MAX => {
                        self.give_up(who, "it sent more messages than it was asked for")
                    }
                    Ok(message) => self.peers[who].messages.push_back(message),
                    Err(malformed) => self.give_up(who, &malformed.to_string()),
                }
            }
            Completion::Sent { connection, operation } => {
                if let Some(who) = of(self, connection)
                    && let Some(controls) = &mut self.peers[who].controls
                    && let Err(error) = controls.sent(self.role.node(), operation)
                {
                    self.give_up(who, &error.to_string());
                }
            }
            Completion::Closed { connection, reason } => {
                let Some(who) = of(self, connection) else { return Ok(()) };
                if let Some(controls) = self.peers[who].controls.take() {
                    controls.leave(self.role.node());
                }
                let peer = &mut self.peers[who];
                peer.connection = None;
                peer.call_at = Instant::now() + AGAIN;
                match peer.state {
                    // The receiver is not there yet, or serves another sender.
                    State::Absent if !is_final(reason) => {}
                    State::Done | State::Lost(_) => {}
                    // It may come back, and then takes part in the next pass.
                    State::Waits => peer.state = State::Absent,
                    State::Absent | State::Receives => peer.state = State::Lost(reason.to_string()),
                }
            }
            other => self.role.handle_completion(&other)?,
        }
        Ok(())
    }

    /// Removes a receiver from the cast.
    fn give_up(&mut self, who: usize, why: &str) {
        self.peers[who].state = State::Lost(why.into());
        if let Some(connection) = self.peers[who].connection.take() {
            // It may have ended by itself.
            let _ = self.role.node().close(connection);
        }
        if let Some(controls) = self.peers[who].controls.take() {
            controls.leave(self.role.node());
        }
    }

    /// Casts a tree to these receivers.
    fn pass(
        &mut self,
        tree: Tree,
        mut members: Vec<usize>,
        each: &mut impl FnMut(&Status),
    ) -> Result<Outcome, CastError> {
        members.iter().for_each(|&who| self.peers[who].state = State::Receives);
        self.form(&mut members, each)?;
        let mut group = ReceiverGroup::new(members.iter().copied());
        let (orders, list) = mpsc::channel();
        let (inbox, heard) = mpsc::channel();
        let waker = self.role.node().waker()?;
        let sender = Sender::new(tree, (self.options.block, self.options.slots), false, orders);
        let cut = (!self.options.trusting).then(|| (self.role.node().payload() as u16, self.options.team.parity));
        let (list, hashing) = hasher(list, cut, self.role.node().waker()?)?;
        let thread = std::thread::Builder::new().name("cast".into()).spawn(move || {
            step_back();
            let ended = sender.run(&heard, || waker.wake());
            waker.wake();
            ended
        });
        let thread = thread.map_err(|error| CastError::Option(format!("no thread for the disk: {error}")))?;
        let pumped = self.pump(&list, &inbox, &mut group, &mut members, each);
        drop((list, inbox));
        // The hashing thread ends with its channels.
        let _ = hashing.join();
        let ended = thread.join().unwrap_or(Err(None));
        for who in group.members().collect::<Vec<_>>() {
            self.peers[who].failures = group.result(who).map_or_else(Vec::new, |result| result.failures.clone());
            self.peers[who].state = State::Done;
        }
        pumped?;
        Ok(ended.map_err(|error| error.unwrap_or(CopyError::Stopped))?)
    }

    /// Moves messages and file batches until the disk thread has no more orders.
    fn pump(
        &mut self,
        orders: &mpsc::Receiver<Step>,
        inbox: &mpsc::Sender<(usize, Message)>,
        group: &mut ReceiverGroup,
        members: &mut Vec<usize>,
        each: &mut impl FnMut(&Status),
    ) -> Result<(), CastError> {
        let mut batches: VecDeque<Ready> = VecDeque::new();
        loop {
            loop {
                match orders.try_recv() {
                    Ok(Step::Other(Order::Say(message))) => {
                        if let Ok(said) = Message::decode(&message) {
                            group.record_sent(&said);
                        }
                        members.iter().for_each(|&who| {
                            // A lost receiver is noticed below.
                            let _ = self.send_message(who, &CastMessage::Copy(message.clone()));
                        });
                    }
                    Ok(Step::Parcel(ready)) => batches.push_back(ready?),
                    Ok(Step::Other(Order::Write(..) | Order::Heard(_))) => {}
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            // The disk thread wakes the node. During an operation this has no effect.
            let nap = match batches.pop_front() {
                Some(batch) => {
                    self.cast(batch, batches.front_mut(), (group, inbox), members, each)?;
                    Duration::ZERO
                }
                None => LOOK,
            };
            self.turn(nap, each)?;
            for who in members.clone() {
                self.listen(who, group, inbox);
            }
            self.leave_behind(group, inbox, members)?;
        }
    }

    /// Handles a receiver's messages about its copy.
    fn listen(&mut self, who: usize, group: &mut ReceiverGroup, inbox: &mpsc::Sender<(usize, Message)>) {
        while let Some(at) = self.peers[who].messages.iter().position(|message| matches!(message, CastMessage::Copy(_)))
        {
            let Some(CastMessage::Copy(message)) = self.peers[who].messages.remove(at) else { return };
            let heard = Message::decode(&message).and_then(|message| group.handle_message(who, message));
            match heard {
                // If the disk thread has ended, the channel of its orders is closed, and `pump` notices that.
                Ok(all) => all.into_iter().for_each(|message| drop(inbox.send((0, message)))),
                Err(malformed) => return self.give_up(who, &malformed.to_string()),
            }
            if let Some(result) = group.result(who) {
                (self.peers[who].bytes, self.peers[who].files) = (result.bytes, result.files);
            }
        }
    }

    /// Goes on without receivers that are lost.
    fn leave_behind(
        &mut self,
        group: &mut ReceiverGroup,
        inbox: &mpsc::Sender<(usize, Message)>,
        members: &mut Vec<usize>,
    ) -> Result<(), CastError> {
        for who in members.clone() {
            if self.peers[who].state == State::Receives {
                continue;
            }
            if self.options.all_or_nothing {
                return Err(CastError::Lost(self.peers[who].listener.name.clone()));
            }
            members.retain(|&member| member != who);
            let (said, result) = group.lose(who);
            self.peers[who].failures = result.failures;
            said.into_iter().for_each(|message| drop(inbox.send((0, message))));
        }
        if members.is_empty() { Err(CastError::Nobody(self.reasons())) } else { Ok(()) }
    }

    /// Casts a file batch to all members, and with it the list of the next one, if there is one. A member that dies is
    /// left behind, and the others get the file batch in a new team.
    fn cast(
        &mut self,
        ready: Ready,
        next: Option<&mut Ready>,
        (group, inbox): (&mut ReceiverGroup, &mpsc::Sender<(usize, Message)>),
        members: &mut Vec<usize>,
        each: &mut impl FnMut(&Status),
    ) -> Result<(), CastError> {
        let Ready { slot, bytes: mut buffer, list, listed } = ready;
        let bytes = buffer.len();
        debug_assert!(bytes as u64 <= parcel_bytes(self.options.block));
        // Chunks of a list are not checked one by one, so no parity may combine them with chunks that are.
        let next = next.filter(|_| self.options.team.parity.is_none());
        let behind = next.as_ref().and_then(|next| next.list.as_ref()).map_or(&[][..], |list| &list.hashes);
        if !behind.is_empty() {
            let chunk = self.role.node().payload() as usize;
            buffer.resize(with_list(bytes, behind.len(), chunk) - behind.len(), 0);
            buffer.extend_from_slice(behind);
        }
        let hash = list.as_ref().map_or([0; 32], |list| list.hash);
        let batch = FileBatch { slot, bytes: bytes as u32, hash, listed, next: behind.len() as u32 };
        let hashes = match list {
            None => Hashes::None,
            Some(list) if listed => Hashes::Here(list),
            Some(list) => Hashes::Apart(list),
        };
        loop {
            self.leave_behind(group, inbox, members)?;
            let formed = self.role.team().is_some_and(|team| team.ranks() as usize == members.len() + 1);
            if !formed {
                self.form(members, each)?;
                continue;
            }
            members.iter().for_each(|&who| {
                // The team notices a lost receiver.
                let _ = self.send_message(who, &CastMessage::Parcel(batch));
            });
            let stop = self.stop;
            let Some(team) = self.role.team() else { continue };
            match super::broadcast(team, buffer, (bytes, batch.next as usize), &hashes, stop) {
                Ok(_) => {
                    self.cast_bytes += bytes as u64;
                    group.cast(slot, bytes as u64);
                    if let Some(next) = next.filter(|_| batch.next > 0) {
                        next.listed = true;
                    }
                    return Ok(());
                }
                Err((back, GroupError::Dead { rank })) => {
                    buffer = back;
                    if let Some(&who) = members.get((rank as usize).wrapping_sub(1)) {
                        self.give_up(who, "it was silent for too long");
                    }
                }
                // All have the sender's number over their own connections.
                Err((back, GroupError::Sizes { ranks })) => {
                    buffer = back;
                    let wrong =
                        ranks.into_iter().filter_map(|rank| members.get((rank as usize).wrapping_sub(1)).copied());
                    let wrong: Vec<usize> = wrong.collect();
                    if wrong.is_empty() {
                        return Err(GroupError::Sizes { ranks }.into());
                    }
                    wrong.into_iter().for_each(|who| self.give_up(who, "it has another size of a parcel"));
                }
                Err((_, error)) => return Err(error.into()),
            }
        }
    }
}

/// Is it useless to call again?
const fn is_final(reason: Reason) -> bool {
    !matches!(reason, Reason::NoAnswer | Reason::PeerFull | Reason::ByPeer | Reason::PeerSilent)
}
