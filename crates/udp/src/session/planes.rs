//! The planes of a connection. The findings of the peer monitor decide which planes its packets may take. A peer that
//! lives may have ended this connection; this is found out here, too.

use super::{NodeContext, ONLY, Session};
use crate::error::Reason;
use crate::frame::{Kind, PROOF};
use crate::peer_monitor::PeerMonitors;
use crate::windows::Windows;
use std::net::SocketAddrV6;
use strandway_proto::{PathId, Time};

/// The most paths of a plane that one ping takes at once: ours. If all of them are dead, the plane counts as dead.
const PING_PATHS: u32 = 4;

impl Session {
    /// The peer's address on each plane.
    pub(crate) fn peers(&self) -> Vec<Option<SocketAddrV6>> {
        self.paths.peers()
    }

    /// Sends the ping of this number for the peer monitor. If no other connection shares the monitor, the ping carries
    /// a proof that an older connection leads to the same peer, if there is an older one.
    pub(crate) fn ping_for_monitor(&mut self, around: &mut NodeContext<'_>, plane: usize, number: u64) {
        let around = &mut around.at(self.own(around.now));
        let offers = self.calls && around.monitors.is_alone(self.paths.monitor);
        let proof =
            if offers { around.monitors.offer(self.paths.monitor, &self.peers(), number, self.remote) } else { None };
        if self.paths.planes[plane].up {
            self.ask(around.now);
        }
        self.ping(around, plane, number, proof);
    }

    /// A ping leaves by this connection, so its answer must come in time.
    fn ask(&mut self, now: Time) {
        self.phase.handle_ping(now, &self.paths.timeouts);
    }

    fn ping(&mut self, around: &mut NodeContext<'_>, plane: usize, number: u64, proof: Option<[u8; PROOF]>) {
        let Some(to) = self.paths.planes[plane].peer else { return };
        // The ping takes several paths at once, so that one dead path does not make the plane seem dead.
        let paths = u32::from(around.routes.distinct());
        let copies = paths.min(PING_PATHS);
        if around.planes[plane].is_blocked() {
            // The socket was full at the end of the last turn. A ping must not count as lost if there is room by now.
            around.planes[plane].flush();
        }
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
        let Some(to) = self.paths.planes[plane].peer.filter(|_| around.planes[plane].has_room()) else { return };
        let number = around.monitors.ping_in_full(now, self.paths.monitor, plane);
        let around = &mut around.at(self.own(now));
        let path = PathId::new(plane as u8, number as u32 % u32::from(around.routes.distinct()));
        self.send_full_ping(around, to, path, number);
    }

    /// Tells the peer of new receives, by a ping.
    pub(super) fn send_credits(&mut self, around: &mut NodeContext<'_>) -> bool {
        let up = self.paths.up().position(|up| up);
        let Some(plane) = up else { return false };
        let now = self.by_node(around.now);
        let number = around.monitors.ping(now, self.paths.monitor, plane);
        around.monitors.settle(now, self.paths.monitor);
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
            self.paths.planes[plane].candidate.take_if(|one| one.is_proved_by(around.routes, from, number))
        {
            self.paths.planes[plane].peer = Some(candidate.at);
            let member = (self.handle.index, self.paths.counted);
            self.leave_window(around.windows);
            self.paths.monitor = around.monitors.handle_move(now, self.paths.monitor, member, plane, &self.peers());
            return self.adopt(around.now, around.monitors);
        }
        if let Some(rtt) = around.monitors.handle_pong(now, self.paths.monitor, plane, number) {
            self.counters.ping_rtt = rtt;
            self.paths.note_rtt(plane, rtt);
        }
        if let Some(proof) = proof
            && self.calls
        {
            let member = (self.paths.monitor, self.handle.index);
            around.monitors.handle_proof(member, &self.peers(), number, proof, self.local);
        }
    }

    /// This connection leads to the node that another monitor is for: joins that monitor.
    pub(crate) fn join(&mut self, now: Time, monitors: &mut PeerMonitors, windows: &mut Windows, monitor: u32) {
        let peers = self.peers();
        if self.paths.monitor == monitor || !monitors.get(monitor).is_some_and(|one| one.fits(&peers)) {
            return;
        }
        self.leave_window(windows);
        monitors.leave(self.paths.monitor, self.handle.index, self.paths.counted);
        monitors.join(now, monitor, self.handle.index, self.paths.counted);
        monitors.learn(monitor, &peers);
        self.paths.monitor = monitor;
        self.adopt(self.own(now), monitors);
    }

    /// Takes over the findings of the monitor; `now` is a time of this connection's own clock.
    fn adopt(&mut self, now: Time, monitors: &PeerMonitors) {
        let Some(monitor) = monitors.get(self.paths.monitor) else { return };
        for (i, (mine, known)) in self.paths.planes.iter_mut().zip(&monitor.sides).enumerate() {
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
        self.notify_silence(now);
    }

    /// Tells the engine which planes are silent, if that has changed.
    fn notify_silence(&mut self, now: Time) {
        if let Some(silent) = self.paths.take_silent() {
            self.endpoint.handle_silence(now, silent);
        }
    }

    /// Takes over the findings of the monitor; `now` is a time of the node's clock.
    pub(crate) fn handle_monitor(&mut self, now: Time, monitors: &PeerMonitors) {
        self.adopt(self.own(now), monitors);
    }

    /// The kernel says that our own port of a plane went down or came back.
    pub(crate) fn handle_port(&mut self, now: Time, plane: usize, up: bool) {
        let now = self.own(now);
        let Some(side) = self.paths.planes.get_mut(plane) else { return };
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
        self.notify_silence(now);
    }

    /// Is the peer at this address on a plane?
    pub(crate) fn is_at(&self, plane: usize, address: SocketAddrV6) -> bool {
        self.paths.planes.get(plane).is_some_and(|side| side.peer == Some(address))
    }

    /// Tells the monitor whether this connection is active, if that has changed.
    pub(crate) fn count(&mut self, now: Time, monitors: &mut PeerMonitors) {
        let active = self.is_active();
        if active != self.paths.counted {
            self.paths.counted = active;
            monitors.count(now, self.paths.monitor, active);
        }
    }

    /// Finds out whether a living peer still has this connection. The peer may have ended it, and the message about
    /// that may be lost. So a connection with unfinished work sends a ping when it has heard nothing for
    /// `Timeouts::peer`, and again if there is no answer.
    pub(super) fn find_silence(&mut self, around: &mut NodeContext<'_>) -> Result<(), Reason> {
        let now = around.now;
        if around.monitors.is_alone(self.paths.monitor) {
            return Ok(());
        }
        if self.phase.is_overdue(now, &self.paths.timeouts) && self.is_active() {
            self.phase.ask_at_once(now);
        }
        let Some(since) = self.phase.asked_since() else { return Ok(()) };
        let lives = self.own(around.monitors.heard(self.paths.monitor)) > since;
        if lives && now.since(since) > self.paths.timeouts.peer {
            return Err(Reason::PeerSilent);
        }
        if self.phase.ask_again(now, &self.paths.timeouts) {
            for plane in 0..if lives { self.paths.planes.len() } else { 0 } {
                if self.paths.planes[plane].is_used() {
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
        let silence = || self.phase.deadline(&self.paths.timeouts, || self.is_active());
        if !self.phase.is_confirmed() {
            return silence();
        }
        let mut at = self.endpoint.poll_timeout().unwrap_or(Time::NEVER);
        if let Some(open) =
            self.sending.pacer.as_ref().and_then(|pacer| pacer.deadline(self.endpoint.observe().window(ONLY).0))
            && self.endpoint.wants_transmit()
        {
            at = at.min(open);
        }
        if monitors.is_alone(self.paths.monitor) { at } else { at.min(silence()) }
    }
}
