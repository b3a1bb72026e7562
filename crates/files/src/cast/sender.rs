//! The side that reads files: it calls receivers, forms teams of those that answer, and casts to them the blocks that
//! they lack.

mod forming;
mod pass;

use super::message::{CastMessage, VERSION, VERSION_MORE};
use super::status::{Listener, Progress, State, Status, Summary};
use super::{BLOCK_LOG2, CastError, Options, PATIENCE_MAX, RTT_MAX};
use crate::copy::parts::Tree;
use crate::copy::{Exclude, Letters, Preserve};
use crate::watching::Watching;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};
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
            payload: self.role.node().payload(),
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
}

/// Is it useless to call again?
const fn is_final(reason: Reason) -> bool {
    !matches!(reason, Reason::NoAnswer | Reason::PeerFull | Reason::ByPeer | Reason::PeerSilent)
}
