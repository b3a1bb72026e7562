//! The connections of an endpoint by number, and the numbers of closed connections that late packets may still carry.

use crate::connection::{Connection, DormantConnection};
use crate::packet::{ConnectionId, HostId};
use crate::path::AnyPath;
use crate::units::{Span, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A free slot is used again only when more than this many slots are free, oldest first. Ours: a connection lives for
/// at least a round trip, so a number comes back only after thousands of round trips.
const FREE_MIN: usize = 16;

/// The life of a packet before the first connection is opened, which would tell it. Ours: longer than any queue.
const PACKET_LIFE: Span = Span::from_ms(1000);

/// A list of fewer slots than this grows one by one. Ours.
const FEW: usize = 4;

/// The contents of a slot.
pub(super) enum SlotState {
    Free,
    Awake(Box<Connection>),
    Asleep(Box<DormantConnection>),
    Closing(Box<Closing>),
}

struct Slot {
    /// The number of connections that it held before, wrapping.
    generation: u32,
    state: SlotState,
}

const _: () = assert!(size_of::<Slot>() <= 24, "a slot without a connection");

/// A connection that we have closed, until its peer has answered.
pub(super) struct Closing {
    pub(super) peer: HostId,
    /// The peer's number for the connection.
    pub(super) name: ConnectionId,
    /// The number that the peer's packets carry.
    pub(super) reply_to: ConnectionId,
    pub(super) path: AnyPath,
    /// Wire bytes of a control packet.
    pub(super) size: u16,
    pub(super) tries: u32,
    /// When to send the notice again, and the first time to wait after it.
    pub(super) timer: Time,
    pub(super) again: Span,
}

/// A peer's number for a connection that the peer has opened: its host, and the number marked as the source's.
type Named = (HostId, ConnectionId);

/// Closed connections whose packets may still arrive.
#[derive(Default)]
struct Closed {
    /// Those closed in this period and in the one before: their late packets open no connection.
    periods: [BTreeSet<Named>; 2],
    /// When the next period begins.
    period_end: Time,
}

impl Closed {
    fn is_empty(&self) -> bool {
        self.periods.iter().all(BTreeSet::is_empty)
    }
}

/// All connections of an endpoint.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    /// The slots of connections that their peers have opened.
    named: BTreeMap<Named, u32>,
    /// `None` before the first connection is closed.
    closed: Option<Box<Closed>>,
    /// The longest life of any packet, which is the length of a period; zero before the first connection.
    packet_life: Span,
}

impl Connections {
    /// The number of the connection in this slot.
    #[inline]
    pub(super) fn id(&self, slot: usize) -> ConnectionId {
        ConnectionId::new(slot as u32, self.slots[slot].generation)
    }

    /// The slot of an open or closing connection of ours.
    #[inline]
    pub(super) fn find(&self, id: ConnectionId) -> Option<usize> {
        let slot = self.slots.get(id.slot() as usize)?;
        let known = slot.generation == id.0 / ConnectionId::SLOTS && !matches!(slot.state, SlotState::Free);
        known.then_some(id.slot() as usize)
    }

    /// The connection of a packet, if it carries our number and the connection is awake.
    #[inline]
    pub(super) fn awake_at(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        match self.slots.get_mut(id.slot() as usize) {
            // A number by the source never equals one of our generations.
            Some(Slot { generation, state: SlotState::Awake(connection) })
                if *generation == id.0 / ConnectionId::SLOTS =>
            {
                Some(connection)
            }
            _ => None,
        }
    }

    /// The slot of the connection that a packet of `source` names by `id`.
    #[inline]
    pub(super) fn named_by(&self, source: HostId, id: ConnectionId) -> Option<usize> {
        if id.is_by_source() { self.named.get(&(source, id)).map(|&slot| slot as usize) } else { self.find(id) }
    }

    /// The slot of a connection that the application names.
    pub(super) fn at(&self, id: ConnectionId) -> usize {
        self.find(id).unwrap_or_else(|| panic!("host has no connection {}", id.0))
    }

    #[inline]
    pub(super) fn state(&self, slot: usize) -> &SlotState {
        self.slots.get(slot).map_or(&SlotState::Free, |slot| &slot.state)
    }

    pub(super) fn state_mut(&mut self, slot: usize) -> &mut SlotState {
        &mut self.slots[slot].state
    }

    /// The connection in this slot, if it is awake.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<&Connection> {
        if let SlotState::Awake(connection) = self.state(slot) { Some(connection) } else { None }
    }

    /// The address of a slot, which may not exist.
    #[inline]
    pub(super) fn address(&self, slot: usize) -> *const u8 {
        self.slots.as_ptr().wrapping_add(slot).cast()
    }

    /// The connection in this slot, if it is awake, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        if let Some(Slot { state: SlotState::Awake(connection), .. }) = self.slots.get_mut(slot) {
            Some(connection)
        } else {
            None
        }
    }

    /// Number of slots, free ones included.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Number of connections, closing ones included.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All awake connections, with their slots.
    pub(super) fn awake(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, s)| {
            if let SlotState::Awake(connection) = &mut s.state { Some((slot, &mut **connection)) } else { None }
        })
    }

    /// A slot for a new connection; the caller fills it.
    ///
    /// # Panics
    /// If all are taken.
    pub(super) fn reserve(&mut self) -> usize {
        if self.free.len() > FREE_MIN
            && let Some(slot) = self.free.pop_front()
        {
            return slot as usize;
        }
        let slot = self.slots.len();
        assert!(slot < ConnectionId::SLOTS as usize, "a host has at most {} connections", ConnectionId::SLOTS);
        if slot < FEW {
            // Most hosts of a large fabric have no more.
            self.slots.reserve_exact(1);
        }
        self.slots.push(Slot { generation: 0, state: SlotState::Free });
        slot
    }

    /// Frees a connection's slot; its number is invalid from now on.
    pub(super) fn release(&mut self, slot: usize) -> SlotState {
        let s = &mut self.slots[slot];
        s.generation = (s.generation + 1) % ConnectionId::GENERATIONS;
        self.free.push_back(slot as u32);
        std::mem::replace(&mut s.state, SlotState::Free)
    }

    /// Notes that the peer `source` has opened the connection in this slot, and that its packets carry the number `id`.
    pub(super) fn name(&mut self, source: HostId, id: ConnectionId, slot: usize) {
        self.named.insert((source, id), slot as u32);
    }

    /// Do packets of `source` with the number `id` belong to the connection in this slot?
    pub(super) fn is_named(&self, source: HostId, id: ConnectionId, slot: usize) -> bool {
        self.named.get(&(source, id)) == Some(&(slot as u32))
    }

    /// Was a connection with this number closed so recently that its packets may still arrive?
    pub(super) fn is_closed(&self, source: HostId, id: ConnectionId) -> bool {
        let mut periods = self.closed.iter().flat_map(|closed| &closed.periods);
        periods.any(|period| period.contains(&(source, id)))
    }

    /// Remembers, for the life of a packet, that the connection with this number is closed.
    pub(super) fn mark_closed(&mut self, now: Time, source: HostId, id: ConnectionId) {
        self.named.remove(&(source, id));
        self.forget(now);
        let life = self.packet_life();
        let closed = self.closed.get_or_insert_default();
        if closed.is_empty() {
            closed.period_end = now + life;
        }
        closed.periods[0].insert((source, id));
    }

    /// Forgets closed connections of which no packet can arrive any more.
    pub(super) fn forget(&mut self, now: Time) {
        let life = self.packet_life();
        let Some(closed) = self.closed.as_mut().filter(|closed| now >= closed.period_end && !closed.is_empty()) else {
            return;
        };
        let is_long_ago = now >= closed.period_end + life;
        let last = std::mem::take(&mut closed.periods[0]);
        closed.periods[1] = if is_long_ago { BTreeSet::new() } else { last };
        closed.period_end = now + life;
    }

    fn packet_life(&self) -> Span {
        if self.packet_life == Span::ZERO { PACKET_LIFE } else { self.packet_life }
    }

    /// Raises the life of a packet to at least `packet_life`.
    pub(super) fn lengthen_life(&mut self, packet_life: Span) {
        self.packet_life = self.packet_life.max(packet_life);
    }

    /// Closed connections that are not yet forgotten.
    pub(super) fn remembered(&self) -> usize {
        self.closed.iter().flat_map(|closed| &closed.periods).map(BTreeSet::len).sum()
    }

    /// Connections that their peers have opened.
    pub(super) fn named(&self) -> usize {
        self.named.len()
    }
}

/// The connection in a slot; it must be awake.
impl std::ops::Index<usize> for Connections {
    type Output = Connection;

    #[inline]
    fn index(&self, slot: usize) -> &Connection {
        let SlotState::Awake(connection) = &self.slots[slot].state else { panic!("connection {slot} is awake") };
        connection
    }
}

impl std::ops::IndexMut<usize> for Connections {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Connection {
        let SlotState::Awake(connection) = &mut self.slots[slot].state else { panic!("connection {slot} is awake") };
        connection
    }
}
