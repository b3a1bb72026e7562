//! Finds out whether the peer nodes live, and which planes lead to them. There is one [`PeerMonitor`] per peer node,
//! which all connections with that node share.
//!
//! A connection begins with a monitor of its own. If there is an older monitor at the same addresses, the side that
//! called proves with a ping that both connections lead to the same node: the ping carries a code that only the two
//! ends of the older connection can make. If the pong carries a code that the peer made in the same way, the connection
//! joins the older monitor. An address alone would prove nothing: a node that was started again has the address of the
//! one before. `proof.rs` has the codes.

mod proof;
mod size;

pub(crate) use proof::key;

use crate::cipher::MacKey;
use crate::clock::earlier;
use crate::deadlines::Deadlines;
use size::Size;
use std::collections::HashMap;
use std::net::SocketAddrV6;
use strandway_proto::{Span, Time};

/// Pings per timeout: a plane or a peer that answers none of them in that time is given up. Ours.
pub(crate) const PINGS: u64 = 4;

/// One plane as it leads to a peer.
#[derive(Clone, Debug)]
pub(crate) struct PlaneHealth {
    /// The peer's address on this plane, if it is known.
    pub(crate) at: Option<SocketAddrV6>,
    /// When something genuine last came in by this plane.
    heard: Time,
    /// The first ping since the last answer, and when it left.
    unanswered: Option<(u64, Time)>,
    /// The latest ping, and when it left.
    latest: (u64, Time),
    /// When to send the next one.
    ping_at: Time,
    /// Does the peer answer over it?
    pub(crate) up: bool,
    /// Is our own port up? The kernel knows.
    port: bool,
    /// Has the kernel a route to the peer, as far as we know?
    pub(crate) routed: bool,
    size: Size,
}

impl PlaneHealth {
    /// Does it answer, and take full packets?
    pub(crate) const fn is_up(&self) -> bool {
        self.up && !self.size.narrow
    }

    const fn is_usable(&self) -> bool {
        self.is_up() && self.port && self.routed && self.at.is_some()
    }
}

/// One peer node.
pub(crate) struct PeerMonitor {
    /// A key that only the two ends of its first connection know.
    key: MacKey,
    /// Its number among the nodes that share its addresses.
    shard: u8,
    /// Slots of the connections that lead to it.
    pub(crate) members: Vec<u32>,
    /// The member by which the last ping went.
    turn: usize,
    /// Number of members with unfinished work on either side.
    active: u32,
    /// Has the peer shown that it has the keys?
    confirmed: bool,
    heard: Time,
    pub(crate) sides: Vec<PlaneHealth>,
    /// The state of the planes has changed, and members have not been told yet.
    changed: bool,
}

/// The result of [`PeerMonitors::check`].
pub(crate) enum Found {
    /// Nothing was heard of the peer for too long.
    Gone,
    /// Full packets pass on no plane.
    Narrow,
    /// Ping these planes, one bit each.
    Due(u32),
}

/// All monitors of a node.
pub(crate) struct PeerMonitors {
    slots: Vec<Option<Box<PeerMonitor>>>,
    free: Vec<u32>,
    /// By plane, address and shard, the oldest first.
    by_address: HashMap<(usize, SocketAddrV6, u8), Vec<u32>>,
    deadlines: Deadlines,
    /// Pings so far; each ping has its own number.
    pings: u64,
    /// Connections that lead to the node of another monitor: the connection's slot and that monitor.
    pub(crate) joins: Vec<(u32, u32)>,
    /// Monitors whose members must be told of a change of planes.
    changed: Vec<u32>,
    plane_timeout: Span,
    peer_timeout: Span,
}

impl PeerMonitors {
    pub(crate) fn new(plane_timeout: Span, peer_timeout: Span) -> PeerMonitors {
        PeerMonitors {
            slots: Vec::new(),
            free: Vec::new(),
            by_address: HashMap::new(),
            deadlines: Deadlines::default(),
            pings: 0,
            joins: Vec::new(),
            changed: Vec::new(),
            plane_timeout,
            peer_timeout,
        }
    }

    pub(crate) fn get(&self, monitor: u32) -> Option<&PeerMonitor> {
        self.slots.get(monitor as usize)?.as_deref()
    }

    fn get_mut(&mut self, monitor: u32) -> Option<&mut PeerMonitor> {
        self.slots.get_mut(monitor as usize)?.as_deref_mut()
    }

    /// A connection begins; it gets a monitor of its own, with this key, for this shard of the peer's addresses.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        (key, shard): (MacKey, u8),
        peers: impl Iterator<Item = Option<SocketAddrV6>>,
        ports: &[bool],
        member: u32,
        confirmed: bool,
    ) -> u32 {
        let side = |(i, at): (usize, Option<SocketAddrV6>)| {
            let port = ports.get(i).is_none_or(|&up| up);
            let (latest, ping_at) = ((0, now), now);
            PlaneHealth {
                at,
                heard: now,
                unanswered: None,
                latest,
                ping_at,
                up: true,
                port,
                routed: true,
                size: Size::default(),
            }
        };
        let sides: Vec<PlaneHealth> = peers.enumerate().map(side).collect();
        let members = vec![member];
        let monitor =
            PeerMonitor { key, shard, members, turn: 0, active: 0, confirmed, heard: now, sides, changed: false };
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        for (plane, side) in monitor.sides.iter().enumerate() {
            if let Some(at) = side.at {
                self.by_address.entry((plane, at, shard)).or_default().push(number);
            }
        }
        self.slots[number as usize] = Some(Box::new(monitor));
        self.settle(now, number);
        number
    }

    /// The peer of a connection has shown that it has the keys.
    pub(crate) fn confirm(&mut self, now: Time, monitor: u32) {
        if let Some(one) = self.get_mut(monitor) {
            (one.confirmed, one.heard) = (true, now);
        }
        self.settle(now, monitor);
    }

    /// A connection ends, or moves to another monitor. `active`: it was counted as active.
    pub(crate) fn leave(&mut self, monitor: u32, member: u32, active: bool) {
        let Some(one) = self.get_mut(monitor) else { return };
        one.members.retain(|&other| other != member);
        one.active -= u32::from(active);
        if one.members.is_empty() {
            for plane in 0..one.sides.len() {
                self.set_address(monitor, plane, None);
            }
            self.slots[monitor as usize] = None;
            self.free.push(monitor);
            self.deadlines.set(monitor, Time::NEVER);
        }
    }

    /// A connection that leads to the node of a monitor joins that monitor.
    pub(crate) fn join(&mut self, now: Time, monitor: u32, member: u32, active: bool) {
        let Some(one) = self.get_mut(monitor) else { return };
        one.members.push(member);
        (one.confirmed, one.heard) = (true, now);
        if active {
            self.count(now, monitor, true);
        }
    }

    /// A connection has something under way from now on, or nothing any more.
    #[inline]
    pub(crate) fn count(&mut self, now: Time, monitor: u32, active: bool) {
        let soon = now + Span(self.plane_timeout.0 / PINGS);
        let Some(one) = self.get_mut(monitor) else { return };
        if !active {
            one.active -= 1;
            return;
        }
        one.active += 1;
        if one.active == 1 {
            // A ping that was planned for a quiet time comes forward.
            let mut forward = false;
            for side in &mut one.sides {
                forward |= side.ping_at > soon;
                side.ping_at = side.ping_at.min(soon);
            }
            if forward {
                self.settle(now, monitor);
            }
        }
    }

    /// Something genuine came from the peer.
    #[inline]
    pub(crate) fn handle_arrival(&mut self, now: Time, monitor: u32, plane: usize) {
        if let Some(one) = self.get_mut(monitor) {
            one.heard = now;
            if let Some(side) = one.sides.get_mut(plane) {
                side.heard = now;
            }
        }
    }

    /// When something genuine last came from the peer.
    pub(crate) fn heard(&self, monitor: u32) -> Time {
        self.get(monitor).map_or(Time::ZERO, |one| one.heard)
    }

    /// Is a connection the only member of its monitor?
    pub(crate) fn is_alone(&self, monitor: u32) -> bool {
        self.get(monitor).is_none_or(|one| one.members.len() == 1)
    }

    /// A ping leaves; returns its number.
    pub(crate) fn ping(&mut self, now: Time, monitor: u32, plane: usize) -> u64 {
        self.pings += 1;
        let number = self.pings;
        if let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane)) {
            side.latest = (number, now);
            side.unanswered.get_or_insert(side.latest);
        }
        number
    }

    /// A number for a ping that is no evidence about planes.
    pub(crate) fn number(&mut self) -> u64 {
        self.pings += 1;
        self.pings
    }

    /// A ping was answered. Returns the round trip if it was the latest ping.
    pub(crate) fn handle_pong(&mut self, now: Time, monitor: u32, plane: usize, number: u64) -> Option<Span> {
        let quiet = now + Span(self.peer_timeout.0 / PINGS);
        self.handle_full_pong(now, monitor, plane, number);
        let one = self.get_mut(monitor)?;
        let active = one.active > 0;
        let side = one.sides.get_mut(plane)?;
        if !side.unanswered.is_some_and(|(first, _)| (first..=side.latest.0).contains(&number)) {
            return None;
        }
        side.unanswered = None;
        if !active {
            side.ping_at = quiet;
        }
        let is_news = !side.up || !side.routed;
        (side.up, side.routed) = (true, true);
        let rtt = (number == side.latest.0).then(|| now.since(side.latest.1));
        if is_news {
            self.note_change(monitor);
        }
        rtt
    }

    /// Our own port of a plane went down or came back.
    pub(crate) fn set_port(&mut self, now: Time, plane: usize, up: bool) {
        for monitor in 0..self.slots.len() as u32 {
            let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane)) else { continue };
            side.port = up;
            if up {
                // The plane stays unused until the peer answers over it.
                (side.up, side.routed) = (false, true);
                (side.unanswered, side.ping_at) = (None, now);
            }
            self.note_change(monitor);
            self.settle(now, monitor);
        }
    }

    /// The kernel has no route to the peer on a plane. The plane is not used until the peer answers a ping over it.
    pub(crate) fn lose_route(&mut self, monitor: u32, plane: usize) {
        if let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane))
            && side.port
            && std::mem::replace(&mut side.routed, false)
        {
            self.note_change(monitor);
        }
    }

    /// Does the peer answer over another plane than this one?
    pub(crate) fn has_way_beside(&self, monitor: u32, plane: usize) -> bool {
        let sides = self.get(monitor).map_or(&[][..], |one| &one.sides);
        sides.iter().enumerate().any(|(other, side)| other != plane && side.is_usable())
    }

    fn note_change(&mut self, monitor: u32) {
        if let Some(one) = self.get_mut(monitor)
            && !std::mem::replace(&mut one.changed, true)
        {
            self.changed.push(monitor);
        }
    }

    /// A monitor whose members must be told of a change of its planes.
    pub(crate) fn take_change(&mut self) -> Option<u32> {
        while let Some(monitor) = self.changed.pop() {
            if let Some(one) = self.get_mut(monitor) {
                one.changed = false;
                return Some(monitor);
            }
        }
        None
    }

    fn set_address(&mut self, monitor: u32, plane: usize, at: Option<SocketAddrV6>) {
        let Some(one) = self.get_mut(monitor) else { return };
        let shard = one.shard;
        if let Some(before) = std::mem::replace(&mut one.sides[plane].at, at)
            && let Some(list) = self.by_address.get_mut(&(plane, before, shard))
        {
            list.retain(|&other| other != monitor);
            if list.is_empty() {
                self.by_address.remove(&(plane, before, shard));
            }
        }
        if let Some(at) = at {
            self.by_address.entry((plane, at, shard)).or_default().push(monitor);
        }
    }

    /// A member's peer has answered from a new address; `peers` are its addresses on all planes now. Returns the
    /// member's monitor from now on. If the monitor has other members, they may not have moved: the member leaves them,
    /// and joins those that moved to the new address before it.
    pub(crate) fn handle_move(
        &mut self,
        now: Time,
        monitor: u32,
        (member, active): (u32, bool),
        plane: usize,
        peers: &[Option<SocketAddrV6>],
    ) -> u32 {
        let Some(one) = self.get_mut(monitor) else { return monitor };
        let at = peers[plane];
        if one.sides[plane].at == at {
            return monitor;
        }
        let (key, shard, stays) = (one.key.clone(), one.shard, one.members.len() == 1 || one.sides[plane].at.is_none());
        let ports: Vec<bool> = one.sides.iter().map(|side| side.port).collect();
        // Has another member moved there before?
        let others = at.and_then(|at| self.by_address.get(&(plane, at, shard))).map_or(&[][..], Vec::as_slice);
        let is_same = |other: &u32| {
            *other != monitor && self.get(*other).is_some_and(|one| one.fits(peers) && proof::is_same(&one.key, &key))
        };
        let moved = others.iter().copied().find(is_same);
        if moved.is_none() && stays {
            self.set_address(monitor, plane, at);
            if let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane)) {
                (side.unanswered, side.ping_at, side.routed) = (None, now, true);
            }
            self.note_change(monitor);
            self.settle(now, monitor);
            return monitor;
        }
        self.leave(monitor, member, active);
        if let Some(other) = moved {
            self.join(now, other, member, active);
            self.note_change(other);
            return other;
        }
        let begun = self.begin(now, (key, shard), peers.iter().copied(), &ports, member, true);
        if active {
            self.count(now, begun, true);
        }
        begun
    }

    /// A member of a monitor knows addresses that the monitor does not: adds them.
    pub(crate) fn learn(&mut self, monitor: u32, peers: &[Option<SocketAddrV6>]) {
        for (plane, &at) in peers.iter().enumerate() {
            if at.is_some() && self.get(monitor).is_some_and(|one| one.sides[plane].at.is_none()) {
                self.set_address(monitor, plane, at);
                self.note_change(monitor);
            }
        }
    }

    /// The node was away for `absence`, and a peer, perhaps on the same host, may have been away, too. The peer then
    /// has half a timeout left to answer. Shorter absences than those below do not reset the timers; otherwise a busy
    /// host would never detect a dead peer.
    pub(crate) fn excuse(&mut self, now: Time, absence: Span) {
        let back = |timeout: Span| Time(now.0.saturating_sub(timeout.0 / 2));
        let (plane, peer) = (self.plane_timeout, self.peer_timeout);
        for one in self.slots.iter_mut().flatten() {
            if absence > Span(peer.0 / 2) {
                one.heard = one.heard.max(back(peer));
            }
            if absence > plane {
                for (_, at) in one.sides.iter_mut().filter_map(|side| side.unanswered.as_mut()) {
                    *at = back(plane).max(*at);
                }
            }
        }
    }

    /// A monitor whose deadline has come. The caller then calls [`PeerMonitors::check`] and [`PeerMonitors::settle`].
    pub(crate) fn pop(&mut self, now: Time) -> Option<u32> {
        self.deadlines.pop(now)
    }

    /// Looks at the planes. A plane that answered no ping for the whole timeout is no longer used, if another plane was
    /// heard meanwhile.
    pub(crate) fn check(&mut self, now: Time, monitor: u32) -> Found {
        let (plane_timeout, peer_timeout) = (self.plane_timeout, self.peer_timeout);
        let Some(one) = self.get_mut(monitor).filter(|one| one.confirmed) else { return Found::Due(0) };
        if now.since(one.heard) > peer_timeout {
            return Found::Gone;
        }
        let (mut due, mut is_news) = (0, false);
        for i in 0..one.sides.len() {
            if let Some((_, at)) = one.sides[i].unanswered
                && now.since(at) > plane_timeout
            {
                let others = one.sides.iter().enumerate().any(|(j, side)| j != i && side.heard > at);
                let side = &mut one.sides[i];
                if side.up && side.port && others {
                    side.up = false;
                    is_news = true;
                }
                side.unanswered = None;
            }
            let side = &mut one.sides[i];
            if side.ping_at <= now && side.at.is_some() {
                side.ping_at = Time::NEVER;
                due |= 1 << i;
            }
        }
        let (is_narrow, is_lost) = one.check_sizes(now, Span(2 * plane_timeout.0));
        if is_news || is_narrow {
            self.note_change(monitor);
        }
        if is_lost { Found::Narrow } else { Found::Due(due) }
    }

    /// The member by which the next ping goes; members take turns.
    pub(crate) fn next_member(&mut self, monitor: u32) -> Option<u32> {
        let one = self.get_mut(monitor)?;
        one.turn = (one.turn + 1) % one.members.len();
        one.members.get(one.turn).copied()
    }

    /// Sets when to look at a monitor again. Pings are frequent while something is under way or the last ping is not
    /// answered, so that one lost ping does not make its plane seem dead.
    pub(crate) fn settle(&mut self, now: Time, monitor: u32) {
        let (plane_timeout, peer_timeout) = (self.plane_timeout, self.peer_timeout);
        let Some(one) = self.get_mut(monitor) else { return };
        if !one.confirmed {
            return;
        }
        let mut at = one.heard + peer_timeout + Span(1);
        let active = one.active > 0;
        for side in &mut one.sides {
            let soon = active || side.up && side.unanswered.is_some();
            let timeout = if soon { plane_timeout } else { peer_timeout };
            side.ping_at = side.ping_at.min(now + Span(timeout.0 / PINGS));
            if side.at.is_some() {
                at = at.min(side.ping_at);
            }
            if let Some((_, since)) = side.unanswered {
                at = at.min(since + plane_timeout + Span(1));
            }
        }
        self.deadlines.set(monitor, at);
    }

    /// The number of peers.
    pub(crate) fn count_peers(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Time {
        self.deadlines.first()
    }

    /// The clock was set back.
    pub(crate) fn go_back(&mut self, now: Time, back: Span) {
        for one in self.slots.iter_mut().flatten() {
            one.heard = earlier(one.heard, back);
            for side in &mut one.sides {
                side.heard = earlier(side.heard, back);
                side.latest.1 = earlier(side.latest.1, back);
                side.ping_at = earlier(side.ping_at, back);
                side.size.go_back(|at| earlier(at, back));
                side.unanswered = side.unanswered.map(|(number, at)| (number, earlier(at, back)));
            }
        }
        (0..self.slots.len() as u32).for_each(|monitor| self.settle(now, monitor));
    }
}

impl PeerMonitor {
    /// Can a peer at these addresses be this one? Planes whose address is not known on both sides are not compared.
    pub(crate) fn fits(&self, peers: &[Option<SocketAddrV6>]) -> bool {
        self.sides.iter().zip(peers).all(|(side, &at)| side.at.is_none() || at.is_none() || side.at == at)
    }
}

#[cfg(test)]
mod tests;
