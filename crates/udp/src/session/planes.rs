//! The planes of a connection. The findings of the peer monitor decide which planes its packets may take. A peer that
//! lives may have ended this connection; this is found out here, too.

use super::roaming::Candidate;
use super::{NodeContext, ONLY, RECENT_MAX, RTTS_MAX, Session};
use crate::error::Reason;
use crate::frame::{Kind, PROOF};
use crate::peer_monitor::{PINGS, PeerMonitors};
use crate::plane::Plane;
use crate::windows::Windows;
use std::net::SocketAddrV6;
use strandway_proto::{PathId, Span, Time};

/// The most paths of a plane that one ping takes at once: ours. If all of them are dead, the plane counts as dead.
const PING_PATHS: u32 = 4;

/// The state of one plane for this connection; `up` and `routed` are copied from the peer monitor.
pub(super) struct PlaneState {
    /// The peer's address on this plane, once it has answered from there.
    pub(super) peer: Option<SocketAddrV6>,
    /// An address that may be the peer's new one.
    pub(super) candidate: Option<Candidate>,
    pub(super) up: bool,
    /// Is our own port up? The kernel knows.
    pub(super) port: bool,
    /// Has the kernel a route to the peer, as far as we know?
    routed: bool,
}

/// The state of the question whether the peer still has this connection. If no other connection leads to that peer, the
/// peer monitor answers the question.
#[derive(Default)]
pub(super) struct SilenceTimer {
    /// The time of the first ping since this connection last heard something.
    pub(super) since: Option<Time>,
    /// The time of the next ping.
    again: Time,
}

impl PlaneState {
    pub(super) fn new(peer: Option<SocketAddrV6>, port: bool) -> PlaneState {
        PlaneState { peer, candidate: None, up: true, port, routed: true }
    }

    /// May packets take this plane? An engine that keeps a state of every path finds out by itself which paths are
    /// dead.
    pub(super) fn is_used(&self, engine_knows: bool) -> bool {
        (self.up || engine_knows) && self.is_connected()
    }

    /// Can datagrams leave this host?
    const fn is_connected(&self) -> bool {
        self.port && self.routed
    }
}

impl Session {
    /// Planes that take a packet now, one bit each.
    pub(super) fn free(&self, planes: &[Plane]) -> u32 {
        let knows = self.engine_knows;
        let open = |only_up: bool| {
            let each = self.sides.iter().zip(planes).enumerate();
            each.filter(|(_, (side, plane))| {
                side.peer.is_some() && (side.is_used(knows) || !only_up) && plane.is_free()
            })
            .fold(0, |mask, (i, _)| mask | 1 << i)
        };
        // If every plane is silent, packets may take any of them.
        open(self.sides.iter().any(|side| side.is_used(knows) && side.peer.is_some()))
    }

    /// The peer's address on each plane.
    pub(crate) fn peers(&self) -> Vec<Option<SocketAddrV6>> {
        self.sides.iter().map(|side| side.peer).collect()
    }

    /// Sends the ping of this number for the peer monitor. If no other connection shares the monitor, the ping carries
    /// a proof that an older connection leads to the same peer, if there is an older one.
    pub(crate) fn ping_for_monitor(&mut self, around: &mut NodeContext<'_>, plane: usize, number: u64) {
        let around = &mut around.at(self.own(around.now));
        let offers = self.calls && around.monitors.is_alone(self.monitor);
        let proof = if offers { around.monitors.offer(self.monitor, &self.peers(), number, self.remote) } else { None };
        if self.sides[plane].up {
            self.ask(around.now);
        }
        self.ping(around, plane, number, proof);
    }

    /// A ping leaves by this connection, so its answer must come in time.
    fn ask(&mut self, now: Time) {
        if self.doubt.since.is_none() {
            self.doubt = SilenceTimer { since: Some(now), again: now + Span(self.plane_timeout.0 / PINGS) };
        }
    }

    fn ping(&mut self, around: &mut NodeContext<'_>, plane: usize, number: u64, proof: Option<[u8; PROOF]>) {
        let Some(to) = self.sides[plane].peer else { return };
        // The ping takes several paths at once, so that one dead path does not make the plane seem dead.
        let paths = u32::from(around.routes.distinct());
        let copies = paths.min(PING_PATHS);
        for copy in 0..copies {
            // If the socket is full, the remaining copies count as lost.
            if !around.planes[plane].has_room() {
                return;
            }
            let entropy = (number as u32).wrapping_mul(copies).wrapping_add(copy) % paths;
            self.send_number(around, to, PathId::new(plane as u8, entropy), Kind::Ping, number, proof);
        }
    }

    /// Do pings take the same way as data? MRC's layout sends data by other sockets.
    pub(crate) const fn has_full_pings(&self) -> bool {
        self.mrc.is_none()
    }

    /// Sends a ping of the length of a full packet, for the peer monitor.
    pub(crate) fn ping_in_full(&mut self, around: &mut NodeContext<'_>, plane: usize) {
        let now = around.now;
        let Some(to) = self.sides[plane].peer.filter(|_| around.planes[plane].has_room()) else { return };
        let number = around.monitors.ping_in_full(now, self.monitor, plane);
        let around = &mut around.at(self.own(now));
        let path = PathId::new(plane as u8, number as u32 % u32::from(around.routes.distinct()));
        self.send_full_ping(around, to, path, number);
    }

    /// Tells the peer of new receives, by a ping.
    pub(super) fn send_credits(&mut self, around: &mut NodeContext<'_>) -> bool {
        let up = (0..self.sides.len()).find(|&i| self.sides[i].is_used(false) && self.sides[i].peer.is_some());
        let Some(plane) = up else { return false };
        let now = self.by_node(around.now);
        let number = around.monitors.ping(now, self.monitor, plane);
        around.monitors.settle(now, self.monitor);
        self.ask(around.now);
        self.ping(around, plane, number, None);
        true
    }

    /// A ping was answered, from this address.
    pub(super) fn handle_pong(
        &mut self,
        around: &mut NodeContext<'_>,
        plane: usize,
        from: SocketAddrV6,
        number: u64,
        proof: Option<&[u8; PROOF]>,
    ) {
        let now = self.by_node(around.now);
        if let Some(candidate) =
            self.sides[plane].candidate.take_if(|one| one.is_proved_by(around.routes, from, number))
        {
            self.sides[plane].peer = Some(candidate.at);
            let member = (self.handle.index, self.counted);
            self.leave_window(around.windows);
            self.monitor = around.monitors.handle_move(now, self.monitor, member, plane, &self.peers());
            return self.adopt(around.now, around.monitors);
        }
        if let Some(rtt) = around.monitors.handle_pong(now, self.monitor, plane, number) {
            self.counters.ping_rtt = rtt;
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((plane as u8, rtt));
            if self.rtts.len() < RTTS_MAX {
                self.rtts.push(rtt);
            }
        }
        if let Some(proof) = proof
            && self.calls
        {
            let member = (self.monitor, self.handle.index);
            around.monitors.handle_proof(member, &self.peers(), number, proof, self.local);
        }
    }

    /// This connection leads to the node that another monitor is for: joins that monitor.
    pub(crate) fn join(&mut self, now: Time, monitors: &mut PeerMonitors, windows: &mut Windows, monitor: u32) {
        let peers = self.peers();
        if self.monitor == monitor || !monitors.get(monitor).is_some_and(|one| one.fits(&peers)) {
            return;
        }
        self.leave_window(windows);
        monitors.leave(self.monitor, self.handle.index, self.counted);
        monitors.join(now, monitor, self.handle.index, self.counted);
        monitors.learn(monitor, &peers);
        self.monitor = monitor;
        self.adopt(self.own(now), monitors);
    }

    /// Takes over the findings of the monitor; `now` is a time of this connection's own clock.
    fn adopt(&mut self, now: Time, monitors: &PeerMonitors) {
        let Some(monitor) = monitors.get(self.monitor) else { return };
        for (i, (mine, known)) in self.sides.iter_mut().zip(&monitor.sides).enumerate() {
            if mine.peer.is_none() && known.at.is_some() {
                (mine.peer, mine.candidate) = (known.at, None);
            }
            self.counters.silences[i] += u64::from(mine.up && !known.is_up());
            mine.up = known.is_up();
            let before = mine.is_connected();
            if std::mem::replace(&mut mine.routed, known.routed) && !known.routed {
                self.counters.routes_lost[i] += 1;
            }
            if before != mine.is_connected() {
                self.endpoint.handle_port(now, i as u8, !before);
            }
        }
    }

    /// Takes over the findings of the monitor; `now` is a time of the node's clock.
    pub(crate) fn handle_monitor(&mut self, now: Time, monitors: &PeerMonitors) {
        self.adopt(self.own(now), monitors);
    }

    /// The kernel says that our own port of a plane went down or came back.
    pub(crate) fn handle_port(&mut self, now: Time, plane: usize, up: bool) {
        let now = self.own(now);
        let Some(side) = self.sides.get_mut(plane) else { return };
        let before = side.is_connected();
        side.port = up;
        if up {
            // The plane stays unused until the peer answers over it.
            (side.up, side.routed) = (false, true);
        } else {
            self.counters.port_losses[plane] += 1;
        }
        if before != up {
            self.endpoint.handle_port(now, plane as u8, up);
        }
    }

    /// Is the peer at this address on a plane?
    pub(crate) fn is_at(&self, plane: usize, address: SocketAddrV6) -> bool {
        self.sides.get(plane).is_some_and(|side| side.peer == Some(address))
    }

    /// Tells the monitor whether this connection is active, if that has changed.
    pub(crate) fn count(&mut self, now: Time, monitors: &mut PeerMonitors) {
        let active = self.is_active();
        if active != self.counted {
            self.counted = active;
            monitors.count(now, self.monitor, active);
        }
    }

    /// This node had no turn for `absence`, and its peer may have had none either. The peer has half of the timeout
    /// left to be heard.
    pub(super) fn excuse(&mut self, now: Time, absence: Span) {
        if absence > Span(self.peer_timeout.0 / 2) {
            let back = Time(now.0.saturating_sub(self.peer_timeout.0 / 2));
            self.heard = self.heard.max(back);
            self.doubt.since = self.doubt.since.map(|since| since.max(back));
        }
    }

    /// Finds out whether a living peer still has this connection. The peer may have ended it, and the message about
    /// that may be lost. So a connection with unfinished work sends a ping when it has heard nothing for
    /// `peer_timeout`, and again if there is no answer.
    pub(super) fn doubt(&mut self, around: &mut NodeContext<'_>) -> Result<(), Reason> {
        let now = around.now;
        if around.monitors.is_alone(self.monitor) {
            return Ok(());
        }
        if self.doubt.since.is_none() && self.is_active() && now.since(self.heard) > self.peer_timeout {
            self.doubt = SilenceTimer { since: Some(now), again: now };
        }
        let Some(since) = self.doubt.since else { return Ok(()) };
        let lives = self.own(around.monitors.heard(self.monitor)) > since;
        if lives && now.since(since) > self.peer_timeout {
            return Err(Reason::PeerSilent);
        }
        if self.doubt.again <= now {
            let early = now.since(since) < self.plane_timeout;
            let timeout = if early { self.plane_timeout } else { self.peer_timeout };
            self.doubt.again = now + Span(timeout.0 / PINGS);
            for plane in 0..if lives { self.sides.len() } else { 0 } {
                if self.sides[plane].is_used(false) {
                    let number = around.monitors.number();
                    self.ping(around, plane, number, None);
                }
            }
        }
        Ok(())
    }

    /// The time, by the node's clock, at which the connection must work again even if nothing arrives.
    pub(crate) fn deadline(&self, monitors: &PeerMonitors) -> Time {
        let own = self.own_deadline(monitors);
        if own == Time::NEVER { own } else { self.by_node(own) }
    }

    fn own_deadline(&self, monitors: &PeerMonitors) -> Time {
        if !self.confirmed {
            return self.confirm_by + Span(1);
        }
        let mut at = self.endpoint.poll_timeout().unwrap_or(Time::NEVER);
        if let Some(open) = self.pacer.as_ref().and_then(|pacer| pacer.deadline(self.endpoint.window(ONLY).0))
            && self.endpoint.wants_transmit()
        {
            at = at.min(open);
        }
        if monitors.is_alone(self.monitor) {
            return at;
        }
        match self.doubt.since {
            Some(since) => at.min(self.doubt.again).min(since + self.peer_timeout + Span(1)),
            None if self.is_active() => at.min(self.heard + self.peer_timeout + Span(1)),
            None => at,
        }
    }
}
