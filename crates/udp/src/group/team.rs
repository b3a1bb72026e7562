//! One member's side of a team: keys, sockets, operations, and chunks that wait to leave.

use super::parity::Coding;
use super::{ChunkHead, GroupCounters, Incoming, Membership, WordBody, keys};
use crate::address::is_ipv4;
use crate::config::Config;
use crate::error::Error;
use crate::frame::{HEADER, Kind, Sealed};
use crate::layout::Protection;
use crate::links;
use crate::memory::{Memory, Place};
use crate::plane::{Class, Destination, Owner, Plane};
use crate::routes::Routes;
use crate::secure::{Opener, Refused, Sealer};
use crate::socket::{Arrival, Udp};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use strandway_fabric::multicast::GroupAddress;
use strandway_proto::cast::{Asked, Cast, Casts, Layout, Parity, Rebuild};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::partial::{Inserted, Progress};
use strandway_proto::{ControlMessage, Event, HostId, Packet, PathId, Span, Time};

/// A node that was busy elsewhere catches up with the pace of its casts by at most this time: ours, a slice of the
/// scheduler.
const CATCH_UP: Span = Span::from_ms(2);
/// Paced chunks gather for this time, so that one system call carries several: ours.
const TRAIN: Span = Span::from_us(500);
/// The most chunks of a group that leave in one turn of the node, so that receiving has its turn: ours.
const CHUNKS_PER_TURN: usize = 256;

/// An operation that is open.
struct Task {
    place: Place,
    layout: Layout,
    present: Progress,
    coding: Option<Box<Coding>>,
    hashes: Option<Arc<[[u8; 16]]>>,
}

impl Task {
    /// Is this chunk here, of data or of parity?
    fn has(&self, chunk: u32) -> bool {
        self.present.has_packet(chunk) || self.coding.as_ref().is_some_and(|coding| coding.has(chunk))
    }

    /// The number of all chunks, data and parity.
    fn numbers(&self) -> u32 {
        self.coding.as_ref().map_or(self.layout.numbers(), |coding| coding.numbers())
    }

    /// Does a chunk have the expected hash, if it has one?
    fn is_right(&self, chunk: u32, payload: &[u8]) -> bool {
        let hash = self.hashes.as_ref().and_then(|hashes| hashes.get(chunk as usize));
        hash.is_none_or(|hash| *hash == blake3::hash(payload).as_bytes()[..16])
    }
}

/// The addresses of a plane's trees, in the family of our address `ours` on the plane.
fn groups_of(membership: &Membership, plane: u8, ours: Ipv6Addr) -> Result<Vec<Ipv6Addr>, Error> {
    let all = (0..membership.trees).map(|tree| membership.address(plane, tree));
    if !is_ipv4(ours) {
        return Ok(all.map(GroupAddress::address).collect());
    }
    let all: Option<Vec<Ipv4Addr>> = all.map(GroupAddress::ipv4).collect();
    let (team, trees, most) = (membership.team, membership.trees, GroupAddress::IPV4_TREES_MAX);
    let all = all.ok_or_else(|| {
        Error::Config(format!("team {team} with {trees} trees for each plane: over IPv4 take at most {most}"))
    })?;
    Ok(all.iter().map(Ipv4Addr::to_ipv6_mapped).collect())
}

/// A member's side of a team.
pub(crate) struct Team {
    rank: u32,
    members: Vec<Vec<SocketAddrV6>>,
    /// By plane, by tree; empty if the team does not use multicast.
    trees: Vec<Vec<SocketAddrV6>>,
    /// The numbers that members' datagrams carry, by rank.
    pub(crate) ids: Vec<u64>,
    sealer: Sealer,
    /// By rank.
    openers: Vec<Opener>,
    /// By plane: the socket that receives datagrams along the plane's trees. None if the team does not use multicast.
    pub(crate) sockets: Vec<Udp>,
    casts: Casts,
    tasks: HashMap<u32, Task>,
    /// By rank: the planes of the last control message that was no answer, and of the last answer.
    turns: Vec<[u8; 2]>,
    /// When the next chunks may leave at the pace of their cast.
    pub(crate) due: Time,
    /// Chunks wait for room in a plane.
    pub(crate) waits: bool,
    trimmed_dscp: Option<u8>,
    pub(crate) counters: GroupCounters,
}

/// The contents of a group's datagram.
pub(crate) enum Chunked {
    /// A chunk, and whether it was trimmed.
    Chunk(ChunkHead, bool),
    /// A control message.
    Word(WordBody),
    /// Nothing that the program needs to know.
    Nothing,
}

impl Team {
    /// Takes part in a team: opens a socket for each plane and joins all its trees, if the team uses multicast.
    pub(crate) fn join(membership: &Membership, config: &Config, planes: &[Plane]) -> Result<Team, Error> {
        let wrong = |what: String| Err(Error::Config(what));
        let Membership { team, secret, rank, members, port, trees } = membership;
        let ranks = members.len();
        if !(1..=GroupAddress::TREES_MAX).contains(trees) {
            return wrong(format!("a team with {trees} trees for each plane: take 1 to {}", GroupAddress::TREES_MAX));
        }
        if *rank as usize >= ranks {
            return wrong(format!("rank {rank} of team {team}, which has {ranks} members: count ranks from 0"));
        }
        if let Some(short) = members.iter().position(|addresses| addresses.len() != planes.len()) {
            let (theirs, ours) = (members[short].len(), planes.len());
            return wrong(format!(
                "rank {short} of team {team} has {theirs} addresses for {ours} planes: give one for each"
            ));
        }
        if *port == Some(0) {
            return wrong(format!("team {team}: give its group addresses a UDP port"));
        }
        let (mut addresses, mut sockets) = (Vec::new(), Vec::new());
        for (port, (number, plane)) in port.iter().flat_map(|port| planes.iter().enumerate().map(move |at| (*port, at)))
        {
            let ours = plane.address()?;
            let device = links::index_of(config, number).unwrap_or(0);
            // A member with the same address gets our datagrams only if this host loops them back.
            let others = || members.iter().zip(0..).filter(|(_, other)| other != rank);
            let shared = others().any(|(addresses, _)| addresses[number].ip() == ours.ip());
            plane.cast_from(device, shared)?;
            let groups = groups_of(membership, number as u8, *ours.ip())?;
            sockets.push(Udp::of_groups(*ours.ip(), port, config.socket_buffer, &groups, device, config.without)?);
            addresses.push(groups.into_iter().map(|group| SocketAddrV6::new(group, port, 0, 0)).collect());
        }
        let keys: Vec<(u64, [u8; 32])> = (0..ranks as u32).map(|rank| keys::member(secret, rank)).collect();
        let opener = |(_, secret): &(u64, [u8; 32])| Opener::new(secret, config.protection, 0);
        Ok(Team {
            rank: *rank,
            members: members.clone(),
            trees: addresses,
            ids: keys.iter().map(|key| key.0).collect(),
            sealer: Sealer::new(&keys[*rank as usize].1, config.protection),
            openers: keys.iter().map(opener).collect(),
            sockets,
            casts: Casts::catching_up(CATCH_UP),
            tasks: HashMap::new(),
            turns: vec![[0, 1]; ranks],
            due: Time::NEVER,
            waits: false,
            trimmed_dscp: config.trimming.then_some(config.control_dscp),
            counters: GroupCounters::default(),
        })
    }

    /// The number of members.
    pub(crate) fn ranks(&self) -> usize {
        self.members.len()
    }

    /// Bytes around the payload of a chunk, IPv6 and UDP headers not included.
    pub(crate) const fn chunk_overhead(protection: Protection) -> usize {
        HEADER + ChunkHead::BYTES + protection.tag_bytes()
    }

    /// Opens an operation.
    pub(crate) fn open(&mut self, incoming: &Incoming, memory: &mut Memory) -> Result<(), Error> {
        memory.writable(incoming.region)?;
        let place = memory.place(incoming.region, &incoming.range)?;
        let (layout, bytes) = (incoming.layout, incoming.range.len() as u64);
        let wrong = |what: String| Err(Error::Config(what));
        if layout.bytes() != bytes {
            return wrong(format!(
                "operation {}: its layout is of {} bytes, its range of {bytes}",
                incoming.task,
                layout.bytes()
            ));
        }
        let coding = match incoming.parity.map(|code| Parity::new(layout, code)) {
            Some(None) => {
                return wrong(format!(
                    "operation {}: data and parity are more than four billion chunks",
                    incoming.task
                ));
            }
            parity => parity.flatten().map(|parity| Box::new(Coding::new(layout, parity))),
        };
        let numbers = coding.as_ref().map_or(layout.numbers(), |coding| coding.numbers());
        if let Some(hashes) = &incoming.hashes
            && hashes.len() > numbers as usize
        {
            let (hashes, chunks) = (hashes.len(), numbers);
            return wrong(format!("operation {}: {hashes} hashes for {chunks} chunks", incoming.task));
        }
        if self.tasks.contains_key(&incoming.task) {
            return wrong(format!("operation {} is open: close it, or take another number", incoming.task));
        }
        let mut present = Progress::new(layout.numbers(), 1);
        incoming.present.iter().cloned().flatten().filter(|&chunk| chunk < layout.numbers()).for_each(|chunk| {
            present.insert(chunk);
        });
        memory.hold(place);
        let hashes = incoming.hashes.clone();
        self.tasks.insert(incoming.task, Task { place, layout, present, coding, hashes });
        Ok(())
    }

    /// Rebuilds chunks of an operation from parity that is here.
    pub(crate) fn rebuild(&mut self, rebuild: &Rebuild, memory: &mut Memory) -> Result<(), Error> {
        let task = self.tasks.get_mut(&rebuild.task).ok_or(Error::NoGroup)?;
        let coding = task.coding.as_mut().ok_or(Error::NoGroup)?;
        coding.rebuild(rebuild, memory.bytes_at(task.place), &mut task.present)?;
        self.counters.rebuilt += rebuild.missing().count() as u64;
        Ok(())
    }

    /// Ends an operation: its memory is released, and its chunks are neither sent nor written any more. False if it is
    /// not open.
    pub(crate) fn close(&mut self, task: u32, memory: &mut Memory) -> bool {
        let Some(old) = self.tasks.remove(&task) else { return false };
        memory.release(old.place);
        self.casts.forget(task);
        true
    }

    /// Ends all operations.
    pub(crate) fn close_all(&mut self, memory: &mut Memory) {
        let tasks: Vec<u32> = self.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|task| {
            self.close(task, memory);
        });
    }

    /// Queues chunks to be sent.
    pub(crate) fn cast(&mut self, cast: Cast) -> Result<(), Error> {
        let known = match cast.to.as_group() {
            Some(_) => !self.trees.is_empty(),
            None => (cast.to.0 as usize) < self.members.len(),
        };
        let numbers = self.tasks.get(&cast.task).map_or(0, Task::numbers);
        let there = cast.count > 0 && u64::from(cast.first) + u64::from(cast.count) <= numbers.into();
        if !known || !there {
            let end = u64::from(cast.first) + u64::from(cast.count);
            return Err(Error::Config(format!(
                "chunks {} to {end} of operation {} for {:?}: open the operation first, and name chunks and members that exist",
                cast.first, cast.task, cast.to
            )));
        }
        self.casts.push(cast);
        self.due = Time::ZERO;
        Ok(())
    }

    /// Sends a control message to a member; control messages take the planes in turn. Answers have a rotation of their
    /// own; otherwise question and answer could alternate in such a way that all answers meet a dead plane. `up`: the
    /// planes whose ports work.
    pub(crate) fn send_control(
        &mut self,
        to: u32,
        control: ControlMessage,
        is_answer: bool,
        up: u32,
        routes: &Routes,
        planes: &mut [Plane],
    ) {
        let turn = &mut self.turns[to as usize][usize::from(is_answer)];
        let count = planes.len() as u8;
        let next = (1..=count).map(|step| (*turn + step) % count).find(|plane| up >> plane & 1 == 1);
        let Some(plane) = next else { return };
        *turn = plane;
        let peer = self.members[to as usize][usize::from(plane)];
        let (address, source) =
            routes.resolve_small(peer, PathId::new(plane, self.counters.words[0] as u32 & 0xff_ffff));
        let destination = Destination { to: address, source, shard: 0, owner: Owner::Nobody, late: false };
        self.send_word(plane, 0, destination, WordBody { to_all: false, control }, planes);
    }

    /// Sends a control message to all members along one tree.
    pub(crate) fn send_control_to_all(&mut self, plane: u8, tree: u16, control: ControlMessage, planes: &mut [Plane]) {
        let Some(&to) = self.trees.get(usize::from(plane)).and_then(|trees| trees.get(usize::from(tree))) else {
            return;
        };
        let destination = Destination { to, source: 0, shard: 0, owner: Owner::Nobody, late: false };
        self.send_word(plane, tree, destination, WordBody { to_all: true, control }, planes);
    }

    fn send_word(&mut self, plane: u8, tree: u16, to: Destination, word: WordBody, planes: &mut [Plane]) {
        let mut body = Vec::with_capacity(64);
        word.encode(&mut body);
        self.counters.words[0] += 1;
        let sealed = self.sealed(Kind::Word, PathId::new(plane, tree.into()));
        let length = HEADER + body.len() + self.sealer.tag_bytes();
        let sealer = &mut self.sealer;
        planes[usize::from(plane)].push(to, Class::Control, length, |out| {
            out[..HEADER].copy_from_slice(&sealed.to_bytes());
            sealer.seal_from(out, HEADER, &body);
        });
    }

    fn sealed(&self, kind: Kind, path: PathId) -> Sealed {
        Sealed {
            kind,
            urgent: false,
            path,
            credits: 0,
            connection: self.ids[self.rank as usize],
            counter: self.sealer.next(),
        }
    }

    /// Sends the chunks that are due, on planes that have room, and reports casts that have ended to `over`. True if
    /// any chunk left.
    pub(crate) fn work(
        &mut self,
        now: Time,
        up: u32,
        routes: &Routes,
        memory: &Memory,
        planes: &mut [Plane],
        mut over: impl FnMut(HostId, u32, u32),
    ) -> bool {
        self.due = Time::NEVER;
        self.waits = false;
        for count in 0..CHUNKS_PER_TURN {
            let free =
                planes.iter_mut().zip(0..).fold(0, |free, (plane, bit)| free | u32::from(plane.has_room()) << bit);
            match self.casts.take(now, HostId(self.rank), free, up) {
                Asked::Chunk(packet, end) => {
                    self.send_chunk(&packet, routes, memory, planes);
                    if let Some(Event::Cast { to, task, end }) = end {
                        over(to, task, end);
                    }
                }
                Asked::Paced(at) => {
                    self.due = at + TRAIN;
                    return count > 0;
                }
                Asked::Nothing => {
                    self.waits = !self.casts.is_empty();
                    return count > 0;
                }
            }
        }
        self.due = now;
        true
    }

    fn send_chunk(&mut self, packet: &Packet, routes: &Routes, memory: &Memory, planes: &mut [Plane]) {
        let Header::Chunk(chunk) = packet.header else { return };
        let sealed = self.sealed(Kind::Chunk, packet.path);
        let Some(task) = self.tasks.get_mut(&chunk.task) else { return };
        let payload = match (task.layout.place(chunk.chunk), &mut task.coding) {
            (Some((offset, length)), _) => memory.read(task.place, offset, length.into()),
            (None, Some(coding)) if coding.is_parity(chunk.chunk) => {
                coding.make(chunk.chunk, memory.read_all(task.place))
            }
            (None, _) => return,
        };
        let length = payload.len() as u16;
        let plane = packet.path.port();
        let (to, source) = match packet.destination.as_group() {
            Some(_) => {
                let trees = &self.trees[usize::from(plane)];
                (trees[packet.path.entropy() as usize % trees.len()], 0)
            }
            None => routes.resolve(self.members[packet.destination.0 as usize][usize::from(plane)], packet.path),
        };
        let head = ChunkHead {
            task: chunk.task,
            chunk: chunk.chunk,
            length,
            last: packet.flags.has(Flags::LAST),
            to_all: packet.destination.as_group().is_some(),
        };
        self.counters.sent += 1;
        self.counters.repairs += u64::from(!head.to_all);
        self.counters.sent_bytes += payload.len() as u64;
        let size = HEADER + ChunkHead::BYTES + payload.len() + self.sealer.tag_bytes();
        let sealer = &mut self.sealer;
        let destination = Destination { to, source, shard: 0, owner: Owner::Nobody, late: false };
        planes[usize::from(plane)].push(destination, Class::Data, size, |out| {
            out[..HEADER].copy_from_slice(&sealed.to_bytes());
            out[HEADER..HEADER + ChunkHead::BYTES].copy_from_slice(&head.to_bytes());
            sealer.seal_from(out, HEADER + ChunkHead::BYTES, payload);
        });
    }

    /// Opens a datagram of the member `from`, and writes its chunk to the buffer if the chunk is missing.
    pub(crate) fn handle(
        &mut self,
        from: u32,
        arrival: &Arrival,
        sealed: &Sealed,
        datagram: &mut [u8],
        memory: &mut Memory,
    ) -> Chunked {
        if from == self.rank {
            // Our own datagram, looped back by this host.
            return Chunked::Nothing;
        }
        self.counters.marked += u64::from(arrival.is_marked());
        if let Some(head) = self.cut(from, arrival, sealed, datagram) {
            let wanted = self.tasks.get(&head.task).is_some_and(|task| !task.has(head.chunk));
            self.counters.trimmed += 1;
            return if wanted { Chunked::Chunk(head, true) } else { Chunked::Nothing };
        }
        let body = match self.openers[from as usize].open(sealed.counter, datagram) {
            Ok(body) => body,
            Err(Refused::Repeated) => {
                self.counters.repeated += 1;
                return Chunked::Nothing;
            }
            Err(Refused::Forged) => {
                self.counters.refused += 1;
                return Chunked::Nothing;
            }
        };
        match sealed.kind {
            Kind::Word => match WordBody::decode(body) {
                Ok(word) => {
                    self.counters.words[1] += 1;
                    Chunked::Word(word)
                }
                Err(_) => self.refuse(),
            },
            _ => match ChunkHead::decode(body) {
                Ok((head, payload)) => self.place(&head, payload, memory),
                Err(_) => self.refuse(),
            },
        }
    }

    fn refuse(&mut self) -> Chunked {
        self.counters.refused += 1;
        Chunked::Nothing
    }

    fn place(&mut self, head: &ChunkHead, payload: &[u8], memory: &mut Memory) -> Chunked {
        let Some(task) = self.tasks.get_mut(&head.task) else {
            self.counters.strays += 1;
            return Chunked::Nothing;
        };
        let whole = usize::from(head.length) == payload.len();
        let parity = task.coding.as_ref().is_some_and(|coding| coding.is_parity(head.chunk));
        let length = match parity {
            true => Some(task.layout.chunk_bytes()),
            false => task.layout.place(head.chunk).map(|(_, length)| length),
        };
        if !whole || length != Some(head.length) {
            self.counters.strays += 1;
            return Chunked::Nothing;
        }
        if task.has(head.chunk) {
            self.counters.duplicates += 1;
            return Chunked::Chunk(*head, false);
        }
        if !task.is_right(head.chunk, payload) {
            self.counters.forged += 1;
            return Chunked::Nothing;
        }
        if let Some(coding) = task.coding.as_mut().filter(|_| parity) {
            coding.keep(head.chunk, payload, &task.present);
        } else if let Some(place) =
            task.layout.place(head.chunk).and_then(|(offset, length)| task.place.part(offset, length.into()))
        {
            let inserted = task.present.insert(head.chunk);
            debug_assert!(inserted != Inserted::Duplicate, "it was looked up above");
            memory.write(place, payload);
        }
        self.counters.placed += 1;
        Chunked::Chunk(*head, false)
    }

    /// The header of a chunk whose payload a switch has trimmed. It is not authenticated; its only effect may be that
    /// the chunk is fetched.
    fn cut(&mut self, from: u32, arrival: &Arrival, sealed: &Sealed, datagram: &[u8]) -> Option<ChunkHead> {
        let above = self.trimmed_dscp.and_then(|dscp| arrival.dscp().checked_sub(dscp))?;
        if above > 1 || sealed.kind != Kind::Chunk {
            return None;
        }
        let body = &datagram[HEADER..];
        let mut start = *body.first_chunk::<{ ChunkHead::BYTES }>()?;
        let opener = &mut self.openers[from as usize];
        opener.peek(sealed.counter, &mut start).ok()?;
        let (head, _) = ChunkHead::decode(&start).ok()?;
        let whole = ChunkHead::BYTES + usize::from(head.length) + opener.tag_bytes();
        (body.len() < whole).then_some(head)
    }
}
