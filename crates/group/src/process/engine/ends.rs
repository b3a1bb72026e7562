//! Ends: peers that leave, fall silent or break the protocol, and tasks whose time is over.

use super::super::failure::Failure;
use super::super::message::{Message, PeerMessage};
use super::super::probe::{ENOUGH, Probe};
use super::super::task::Stage;
use super::{
    About, Counts, Engine, FAREWELL, Outcome, OutgoingMessage, PeerConnection, REMAINS_MAX, SILENCE, Sent, Starved,
};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use strandway_udp::{Connection, Operation, Reason};

impl Engine {
    pub(super) fn cut_off(&mut self, connection: Connection, why: &str) -> Outcome {
        match self.peers.of(connection) {
            Some(peer) => self.cut_off_peer(peer, why),
            None => {
                let _ = self.node.close(connection);
                self.forget(connection)
            }
        }
    }

    pub(super) fn cut_off_peer(&mut self, peer: usize, why: &str) -> Outcome {
        if let PeerConnection::Open(connection) | PeerConnection::Calling(connection) = self.peers[peer].line {
            // The connection may have ended by itself.
            let _ = self.node.close(connection);
            self.forget(connection)?;
        }
        self.set_gone(peer, why.into())
    }

    /// A connection has ended: frees everything that it used.
    fn forget(&mut self, connection: Connection) -> Outcome {
        let unread = self.forget_link(connection);
        let peer = self.peers.disconnect(connection);
        if let Some(slots) = self.slots.remove(&connection) {
            self.node.deregister(slots.region)?;
        }
        let open: Vec<(Connection, u32)> =
            self.landings.open.keys().copied().filter(|(of, _)| *of == connection).collect();
        for key in open {
            if let Some(opened) = self.landings.open.remove(&key) {
                if let Some(region) = opened.staging {
                    self.node.deregister(region)?;
                }
                self.clear(opened.task)?;
            }
        }
        let lost: Vec<Operation> =
            self.sent.iter().filter(|(_, (of, _))| *of == connection).map(|(operation, _)| *operation).collect();
        let mut calls = unread;
        for operation in lost {
            match self.sent.remove(&operation) {
                Some((_, Sent::Message(region, about))) => {
                    self.node.deregister(region)?;
                    calls.push(about);
                }
                Some((_, Sent::Long { task, .. })) => self.clear(task)?,
                Some((_, Sent::Parcel { .. })) | None => {}
            }
        }
        if let Some(peer) = peer {
            self.note_undelivered(peer, &calls);
        }
        Ok(())
    }

    /// The link of a connection ends. Returns the calls of messages that were sent by it and that its peer has not read.
    fn forget_link(&mut self, connection: Connection) -> Vec<About> {
        let unread = match self.peers.of(connection) {
            Some(peer) => std::mem::take(&mut self.peers[peer].by_link),
            None => VecDeque::new(),
        };
        let left = unread.into_iter().filter(|(end, _)| !self.node.is_taken(connection, *end));
        let left = left.map(|(_, about)| about).collect();
        self.node.unlink(connection);
        left
    }

    /// The acknowledgements of messages to a peer will not come. Senders that still wait for them fail, because the
    /// peer is gone. The other messages are noted as lost.
    fn note_undelivered(&mut self, peer: usize, abouts: &[About]) {
        let one = &self.peers[peer];
        if one.bye == Some(one.posted) {
            return;
        }
        let ended = |about: &&About| match about {
            About::Call { group, number } => self
                .groups
                .get(group)
                .is_none_or(|group| !group.tasks.contains_key(number) && !group.failed.contains(number)),
            About::Control | About::Send { .. } => false,
        };
        let count = abouts.iter().chain(one.backlog.iter().map(|control| &control.about)).filter(ended).count();
        if count > 0 {
            let host = &one.record.host;
            self.note_lost(format!("{count} messages to {host}, whose calls had ended well here"));
        }
    }

    pub(super) fn handle_closed(&mut self, connection: Connection, reason: Reason) -> Outcome {
        let peer = self.peers.of(connection);
        if let Some(peer) = peer
            && !matches!(self.peers[peer].line, PeerConnection::Calling(_))
            && reason == Reason::ByPeer
            && self.peers[peer].bye == Some(self.peers[peer].posted)
        {
            self.forgive_sends(peer)?;
        }
        self.forget(connection)?;
        let Some(peer) = peer else { return Ok(()) };
        match (&self.peers[peer].line, reason) {
            // The peer may be stopped. Its port shows whether it is gone.
            (PeerConnection::Calling(_), Reason::NoAnswer | Reason::PeerFull) => self.call(peer),
            (_, reason) => self.set_gone(peer, reason.to_string()),
        }
    }

    /// A peer has left in good order, and has reported that it accepted everything that was posted to it. Its good-bye
    /// may have overtaken its last acknowledgements.
    fn forgive_sends(&mut self, peer: usize) -> Outcome {
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        for id in ids {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let rank = self.groups.get(&task.call.group).and_then(|group| group.ranks.get(&peer)).copied();
            for (send, stage) in task.call.plan.sends.iter().zip(&mut task.sent) {
                if *stage == Stage::Begun && Some(send.to) == rank {
                    *stage = Stage::Done;
                    task.left -= 1;
                }
            }
            self.progress(id)?;
        }
        Ok(())
    }

    pub(super) fn set_gone(&mut self, peer: usize, evidence: String) -> Outcome {
        self.note_undelivered(peer, &[]);
        let one = &mut self.peers[peer];
        one.line = PeerConnection::Gone(evidence);
        one.backlog.clear();
        one.crowded.clear();
        one.starved = Starved::default();
        one.probe = None;
        if one.record.addresses.is_empty() {
            self.depart(peer);
        }
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        for id in ids {
            if let Some(failure) = self.find_gone(id) {
                self.fail(id, &failure)?;
            }
        }
        Ok(())
    }

    /// Has the engine sent everything, or is its time over? Before it ends, it sends good-byes.
    pub(super) fn may_end(&mut self) -> Result<bool, strandway_udp::Error> {
        let Some(ending) = &self.ending else { return Ok(false) };
        let (now, until, bye) = (Instant::now(), ending.until, ending.bye);
        self.node.want_all_taken();
        let arrived = self.sent.is_empty() && self.is_all_taken();
        if let Some(bye) = bye {
            return Ok(arrived || now > bye);
        }
        let is_gone = |line: &PeerConnection| matches!(line, PeerConnection::Gone(_));
        let said = self.are_teams_left()
            && arrived
            && self.peers.iter().all(|one| one.backlog.is_empty() || is_gone(&one.line));
        if !said && now <= until {
            return Ok(false);
        }
        for peer in 0..self.peers.len() {
            if !said {
                self.note_waiting(peer);
            }
            if matches!(self.peers[peer].line, PeerConnection::Open(_)) {
                let Counts { messages, writes } = self.peers[peer].accepted;
                self.send_message(peer, &Message::of_process(PeerMessage::Bye { messages, writes }))?;
            }
        }
        if let Some(ending) = &mut self.ending {
            ending.bye = Some(if said { now + FAREWELL } else { now });
        }
        Ok(self.sent.is_empty() && self.is_all_taken())
    }

    /// Have all peers taken what was sent to them by links?
    fn is_all_taken(&mut self) -> bool {
        let open = self.peers.iter().filter_map(|one| match one.line {
            PeerConnection::Open(connection) => Some(connection),
            _ => None,
        });
        open.into_iter().all(|connection| self.node.is_all_taken(connection))
    }

    /// The time of the end is over: notes the messages that have not arrived at a peer.
    fn note_waiting(&mut self, peer: usize) {
        let PeerConnection::Open(connection) = self.peers[peer].line else { return self.note_undelivered(peer, &[]) };
        let by_link = self.peers[peer].by_link.clone();
        let unread = by_link.into_iter().filter(|(end, _)| !self.node.is_taken(connection, *end));
        let mut abouts: Vec<About> = unread.map(|(_, about)| about).collect();
        let others = self.sent.values().filter_map(|(of, sent)| match sent {
            Sent::Message(_, about) if *of == connection => Some(*about),
            _ => None,
        });
        abouts.extend(others);
        self.note_undelivered(peer, &abouts);
    }

    /// Fails tasks whose time is over, and probes peers that are silent.
    pub(super) fn tick(&mut self) -> Outcome {
        let now = Instant::now();
        let over: Vec<u64> =
            self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, id)| *id).collect();
        for id in over {
            let Some(task) = self.tasks.get(&id) else { continue };
            let waiting = self.names_of(task).take(8).collect();
            let failure = Failure::TimedOut { what: task.call.what.into(), after: task.call.timeout, waiting };
            self.fail(id, &failure)?;
        }
        for peer in self.find_silent(now) {
            self.ask(peer)?;
        }
        // Tasks that found no room try again, because room may come without an event.
        self.resume(|engine| &mut engine.keyless)?;
        for peer in 0..self.peers.len() {
            if !self.peers[peer].crowded.is_empty() {
                self.resume(|engine| &mut engine.peers[peer].crowded)?;
            }
            self.announce_starved(peer, now)?;
        }
        self.bound_remains()
    }

    /// The peers that are silent, and that something waits for. The loop over tasks ends when no other silent peer is
    /// left: thousands of tasks usually wait for the same few peers.
    fn find_silent(&mut self, now: Instant) -> Vec<usize> {
        let mut silent = BTreeSet::new();
        for peer in 0..self.peers.len() {
            match self.silence_of(peer) {
                Some(silence) if silence >= SILENCE => drop(silent.insert(peer)),
                Some(_) => {
                    let one = &mut self.peers[peer];
                    (one.probe, one.nudged, one.refusals) = (None, false, None);
                }
                None => {}
            }
        }
        let mut found = Vec::new();
        if self.ending.is_some() {
            // No task waits for the peers that still have to get the last messages.
            let all: Vec<usize> = silent.iter().copied().collect();
            found.extend(all.into_iter().filter(|peer| self.is_owed(*peer)));
            silent.retain(|peer| !found.contains(peer));
        }
        for task in self.tasks.values() {
            if silent.is_empty() {
                break;
            }
            if now.saturating_duration_since(task.began) < SILENCE {
                continue;
            }
            for rank in task.awaited() {
                match self.peer_of(task.call.group, rank) {
                    Some(peer) => found.extend(silent.take(&peer)),
                    // A receive from any rank waits for all peers.
                    None => found.extend(self.members_of(task.call.group).iter().filter_map(|peer| silent.take(peer))),
                }
            }
        }
        found
    }

    /// The time since a peer was heard; `None` if it is gone.
    fn silence_of(&self, peer: usize) -> Option<Duration> {
        let one = &self.peers[peer];
        match &one.line {
            PeerConnection::Open(connection) => Some(self.node.silence(*connection).unwrap_or(Duration::ZERO)),
            PeerConnection::Calling(_) | PeerConnection::Expected => Some(one.met.elapsed()),
            PeerConnection::Gone(_) => None,
        }
    }

    /// Is something on its way to a peer?
    fn is_owed(&mut self, peer: usize) -> bool {
        let one = &self.peers[peer];
        let under_way = |connection: Connection| self.sent.values().any(|(of, _)| *of == connection);
        !one.backlog.is_empty()
            || matches!(one.line, PeerConnection::Open(connection)
                if under_way(connection) || !self.node.is_all_taken(connection))
    }

    /// Peers that do not answer keep memory of failed operations. Beyond a limit, disconnects the peers that have kept
    /// such memory longest.
    fn bound_remains(&mut self) -> Outcome {
        while let Some(oldest) = self.remains.oldest_beyond(REMAINS_MAX) {
            let landing = self.landings.open.iter().find(|(_, opened)| opened.task == oldest).map(|((of, _), _)| *of);
            let writing = |sent: &Sent| matches!(sent, Sent::Long { task, .. } if *task == oldest);
            let keeper = landing.or_else(|| self.sent.values().find(|(_, sent)| writing(sent)).map(|(of, _)| *of));
            let Some(connection) = keeper else { return Ok(()) };
            if self.node.silence(connection).is_ok_and(|silence| silence < SILENCE) {
                // The peer lives, and may be late.
                return Ok(());
            }
            self.cut_off(connection, "it answers nothing, and memory of many failed operations waits for it")?;
        }
        Ok(())
    }

    /// Finds out whether a silent peer is gone: the port of a process that has ended refuses datagrams.
    fn ask(&mut self, peer: usize) -> Outcome {
        let Some(silence) = self.silence_of(peer).filter(|silence| *silence >= SILENCE) else { return Ok(()) };
        let is_open = matches!(self.peers[peer].line, PeerConnection::Open(_));
        if is_open && !std::mem::replace(&mut self.peers[peer].nudged, true) {
            // A peer that lives acknowledges the nudge, even if it has nothing to send. So forged refusals have no
            // effect.
            return self.nudge(peer);
        }
        let (ours, one) = (&self.own.addresses, &mut self.peers[peer]);
        // Refusals of this node's datagrams count as those of the probe: a kernel that limits its ICMP messages may
        // answer only some of either.
        if let Some(refusals) = &one.refusals
            && refusals.count >= ENOUGH
            && refusals.first.elapsed() <= silence
        {
            let why = Failure::refused(refusals.plane, refusals.address, silence);
            return self.cut_off_peer(peer, &why);
        }
        let probe = one.probe.get_or_insert_with(|| Probe::new(ours, &one.record.addresses));
        let Some((plane, address)) = probe.ask() else { return Ok(()) };
        self.cut_off_peer(peer, &Failure::refused(plane, address, silence))
    }

    /// Sends a peer a message that its node acknowledges, whatever its program does. So it goes by the node.
    fn nudge(&mut self, peer: usize) -> Outcome {
        let PeerConnection::Open(connection) = self.peers[peer].line else { return Ok(()) };
        let bytes = Message::of_process(PeerMessage::Nudge).encode();
        self.send_by_node(connection, OutgoingMessage { bytes, about: About::Control }).map(drop)
    }
}
