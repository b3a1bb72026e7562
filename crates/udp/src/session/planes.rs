//! The planes of a connection: which of them answer, and which of them packets may take.

use super::roaming::Candidate;
use super::{ONLY, RTTS_MAX, Session, Surroundings};
use crate::frame::Kind;
use crate::plane::Plane;
use std::net::SocketAddrV6;
use strandway_proto::{PathId, Span, Time};

/// Paths of a plane that a ping takes at once at the most: ours. All of them dead at the same time is as good as the plane.
const PING_PATHS: u32 = 4;
/// Pings in the time after which a plane or a peer that answers none of them is given up: ours.
pub(super) const PINGS: u64 = 4;

/// One plane as this connection sees it.
pub(super) struct Side {
    /// Where the peer is on this plane, once it has answered from there.
    pub(super) peer: Option<SocketAddrV6>,
    /// Where it may be instead.
    pub(super) candidate: Option<Candidate>,
    /// When something genuine came in by this plane.
    pub(super) heard: Time,
    /// The first ping that is not answered, nor any after it, and when it left.
    pub(super) unanswered: Option<(u64, Time)>,
    /// The latest ping, and when it left.
    latest: (u64, Time),
    /// When to send the next one.
    ping_at: Time,
    pub(super) up: bool,
    /// Is our own port up? The kernel knows.
    pub(super) port: bool,
    /// Has the kernel a route to the peer, as far as we know?
    routed: bool,
}

impl Side {
    pub(super) fn new(peer: Option<SocketAddrV6>, now: Time) -> Side {
        Side {
            peer,
            candidate: None,
            heard: now,
            unanswered: None,
            latest: (0, now),
            ping_at: now,
            up: true,
            port: true,
            routed: true,
        }
    }

    /// May packets take it? An engine that keeps a record of its paths finds out for itself which of them lead nowhere.
    pub(super) fn is_used(&self, engine_knows: bool) -> bool {
        (self.up || engine_knows) && self.is_connected()
    }

    /// Do datagrams leave this host?
    const fn is_connected(&self) -> bool {
        self.port && self.routed
    }
}

impl Session {
    /// Planes that take a packet now.
    pub(super) fn free(&self, planes: &[Plane]) -> u32 {
        let knows = self.engine_knows;
        let open = |only_up: bool| {
            let each = self.sides.iter().zip(planes).enumerate();
            each.filter(|(_, (side, plane))| {
                side.peer.is_some() && (side.is_used(knows) || !only_up) && plane.is_free()
            })
            .fold(0, |mask, (i, _)| mask | 1 << i)
        };
        // With every plane silent there is nothing to lose.
        open(self.sides.iter().any(|side| side.is_used(knows) && side.peer.is_some()))
    }

    pub(super) fn ping(&mut self, around: &mut Surroundings<'_>, plane: usize) {
        self.pings += 1;
        let number = self.pings;
        let side = &mut self.sides[plane];
        side.latest = (number, around.now);
        side.unanswered.get_or_insert(side.latest);
        let Some(to) = side.peer else { return };
        // Over several paths at once, so that one that is dead does not speak for the plane.
        let paths = u32::from(around.routes.distinct());
        let copies = paths.min(PING_PATHS);
        for copy in 0..copies {
            // What a full socket does not take is as good as lost.
            if !around.planes[plane].has_room() {
                return;
            }
            let entropy = (number as u32).wrapping_mul(copies).wrapping_add(copy) % paths;
            self.send_number(around, to, PathId::new(plane as u8, entropy), Kind::Ping, number);
        }
    }

    /// A ping was answered, from this address.
    pub(super) fn handle_pong(&mut self, around: &Surroundings<'_>, plane: usize, from: SocketAddrV6, number: u64) {
        let now = around.now;
        let quiet = now + Span(self.peer_timeout.0 / PINGS);
        let active = self.is_active();
        let side = &mut self.sides[plane];
        if let Some(candidate) = side.candidate.take_if(|one| one.is_proved_by(around.routes, from, number)) {
            side.peer = Some(candidate.at);
            (side.unanswered, side.ping_at) = (None, now);
            return self.regain_route(now, plane);
        }
        if side.unanswered.is_some_and(|(first, _)| (first..=side.latest.0).contains(&number)) {
            side.unanswered = None;
            side.up = true;
            if !active {
                side.ping_at = quiet;
            }
            if number == side.latest.0 {
                let rtt = now.since(side.latest.1);
                self.counters.ping_rtt = rtt;
                if self.rtts.len() < RTTS_MAX {
                    self.rtts.push(rtt);
                }
            }
            self.regain_route(now, plane);
        }
    }

    fn regain_route(&mut self, now: Time, plane: usize) {
        let side = &mut self.sides[plane];
        if !std::mem::replace(&mut side.routed, true) && side.port {
            self.endpoint.handle_port(now, plane as u8, true);
        }
    }

    /// The kernel says that our own port of a plane went down or came back.
    pub(crate) fn handle_port(&mut self, now: Time, plane: usize, up: bool) {
        let now = self.own(now);
        let Some(side) = self.sides.get_mut(plane) else { return };
        let before = side.is_connected();
        side.port = up;
        if up {
            // Not before the peer answers over it.
            side.up = false;
            side.routed = true;
            (side.unanswered, side.ping_at) = (None, now);
        } else {
            self.counters.port_losses[plane] += 1;
        }
        if before != up {
            self.endpoint.handle_port(now, plane as u8, up);
        }
    }

    /// The kernel has no route to the peer's address on a plane: it carries nothing for this connection until the peer
    /// answers a ping over it.
    pub(crate) fn handle_no_route(&mut self, now: Time, plane: usize) {
        let now = self.own(now);
        let Some(side) = self.sides.get_mut(plane) else { return };
        if side.is_connected() {
            side.routed = false;
            self.counters.routes_lost[plane] += 1;
            self.endpoint.handle_port(now, plane as u8, false);
        }
    }

    /// Is the peer at this address on a plane?
    pub(crate) fn is_at(&self, plane: usize, address: SocketAddrV6) -> bool {
        self.sides.get(plane).is_some_and(|side| side.peer == Some(address))
    }

    /// This node had no turn for so long, and its peer, perhaps on the same host, may have had none either: there is half a
    /// timeout left to answer in. Shorter absences excuse nobody, or a busy host would never find out who is gone.
    pub(super) fn excuse(&mut self, now: Time, absence: Span) {
        let back = |timeout: Span| Time(now.0.saturating_sub(timeout.0 / 2));
        if absence > Span(self.peer_timeout.0 / 2) {
            self.heard = self.heard.max(back(self.peer_timeout));
        }
        if absence > self.plane_timeout {
            for (_, at) in self.sides.iter_mut().filter_map(|side| side.unanswered.as_mut()) {
                *at = back(self.plane_timeout).max(*at);
            }
        }
    }

    /// Pings each plane, more often while something is under way or the last ping is not answered: one that is lost must not
    /// silence its plane. Leaves those alone that answer none for the whole timeout while others do.
    pub(super) fn watch_planes(&mut self, around: &mut Surroundings<'_>) {
        let now = around.now;
        let active = self.is_active();
        for i in 0..self.sides.len() {
            if let Some((_, at)) = self.sides[i].unanswered
                && now.since(at) > self.plane_timeout
            {
                let others = self.sides.iter().enumerate().any(|(j, side)| j != i && side.heard > at);
                let side = &mut self.sides[i];
                if side.up && side.port && others {
                    side.up = false;
                    self.counters.silences[i] += 1;
                }
                side.unanswered = None;
            }
            if self.sides[i].ping_at <= now && self.sides[i].peer.is_some() {
                self.ping(around, i);
                self.sides[i].ping_at = Time::NEVER;
            }
            let side = &mut self.sides[i];
            let soon = active || side.up && side.unanswered.is_some();
            let timeout = if soon { self.plane_timeout } else { self.peer_timeout };
            // What was meant for a quiet time comes forward when there is something to do.
            side.ping_at = side.ping_at.min(now + Span(timeout.0 / PINGS));
        }
    }

    /// When to come back by the node's clock, though nothing may have arrived.
    pub(crate) fn deadline(&self) -> Time {
        let own = self.own_deadline();
        let at = i128::from(own.0) + self.origin;
        if own == Time::NEVER { own } else { Time(at.clamp(0, i128::from(u64::MAX)) as u64) }
    }

    fn own_deadline(&self) -> Time {
        if !self.confirmed {
            return self.confirm_by;
        }
        let mut engine = self.endpoint.poll_timeout().unwrap_or(Time::NEVER);
        if let Some(at) = self.pacer.as_ref().and_then(|pacer| pacer.deadline(self.endpoint.window(ONLY).0))
            && self.endpoint.wants_transmit()
        {
            engine = engine.min(at);
        }
        let pings = self.sides.iter().filter(|side| side.peer.is_some()).map(|side| {
            let silence = side.unanswered.map_or(Time::NEVER, |(_, at)| at + self.plane_timeout);
            silence.min(side.ping_at)
        });
        pings.fold(engine.min(self.heard + self.peer_timeout), Time::min)
    }
}
