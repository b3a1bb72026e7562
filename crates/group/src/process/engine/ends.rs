//! Ends: peers that leave, fall silent or break the protocol, and tasks whose time is over.

use super::super::failure::Failure;
use super::super::message::{Message, Said};
use super::super::probe::Probe;
use super::super::task::Stage;
use super::{Engine, Line, Outcome, SILENCE, Sent};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use strandway_udp::{Connection, Operation, Reason};

impl Engine {
    pub(super) fn cut_off(&mut self, connection: Connection, why: &str) -> Outcome {
        match self.by_connection.get(&connection) {
            Some(&peer) => self.cut_off_peer(peer, why),
            None => {
                let _ = self.node.close(connection);
                self.forget(connection)
            }
        }
    }

    pub(super) fn cut_off_peer(&mut self, peer: usize, why: &str) -> Outcome {
        if let Line::Open(connection) | Line::Calling(connection) = self.peers[peer].line {
            // It may have ended by itself.
            let _ = self.node.close(connection);
            self.forget(connection)?;
        }
        self.set_gone(peer, why.into())
    }

    /// A connection is no more: what it used is free.
    fn forget(&mut self, connection: Connection) -> Outcome {
        self.strangers.remove(&connection);
        self.by_connection.remove(&connection);
        if let Some(slots) = self.slots.remove(&connection) {
            self.node.deregister(slots.region)?;
        }
        let open: Vec<(Connection, u32)> = self.landings.keys().copied().filter(|(of, _)| *of == connection).collect();
        for key in open {
            if let Some(opened) = self.landings.remove(&key) {
                if let Some(region) = opened.staging {
                    self.node.deregister(region)?;
                }
                self.clear(opened.task)?;
            }
        }
        let lost: Vec<Operation> =
            self.sent.iter().filter(|(_, (of, _))| *of == connection).map(|(operation, _)| *operation).collect();
        for operation in lost {
            match self.sent.remove(&operation) {
                Some((_, Sent::Message(region))) => drop(self.node.deregister(region)?),
                Some((_, Sent::Long { task, .. })) => self.clear(task)?,
                None => {}
            }
        }
        Ok(())
    }

    pub(super) fn handle_closed(&mut self, connection: Connection, reason: Reason) -> Outcome {
        let peer = self.by_connection.get(&connection).copied();
        self.forget(connection)?;
        let Some(peer) = peer else { return Ok(()) };
        match (&self.peers[peer].line, reason) {
            // It may be stopped; whether it is gone, its port says.
            (Line::Calling(_), Reason::NoAnswer | Reason::PeerFull) => {
                let again = self.node.connect(&self.peers[peer].record.addresses)?;
                self.by_connection.insert(again, peer);
                self.peers[peer].line = Line::Calling(again);
                Ok(())
            }
            (_, reason) => {
                if reason == Reason::ByPeer {
                    self.forgive_sends(peer)?;
                }
                self.set_gone(peer, reason.to_string())
            }
        }
    }

    /// A peer has left in good order: it has received what it wanted, and its last acknowledgements may have been
    /// overtaken.
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

    fn set_gone(&mut self, peer: usize, evidence: String) -> Outcome {
        self.peers[peer].line = Line::Gone(evidence);
        self.peers[peer].backlog.clear();
        self.peers[peer].probe = None;
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        for id in ids {
            if let Some(failure) = self.find_gone(id) {
                self.fail(id, &failure)?;
            }
        }
        Ok(())
    }

    /// Ends tasks whose time is over, and asks about peers that are silent.
    pub(super) fn tick(&mut self) -> Outcome {
        let now = Instant::now();
        let over: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.deadline().is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let Some(task) = self.tasks.get(&id) else { continue };
            let hosts = |rank: u32| match self.peer_of(task.call.group, rank) {
                Some(peer) => format!("rank {rank} at {}", self.peers[peer].record.host),
                None => "any rank".into(),
            };
            let waiting = task.waits_for().into_iter().take(8).map(hosts).collect();
            let failure = Failure::TimedOut { what: task.call.what.into(), after: task.call.timeout, waiting };
            self.fail(id, &failure)?;
        }
        let mut awaited = HashSet::new();
        for task in self.tasks.values().filter(|task| task.began.elapsed() >= SILENCE) {
            awaited.extend(task.waits_for().into_iter().filter_map(|rank| self.peer_of(task.call.group, rank)));
        }
        for peer in awaited {
            self.look_at(peer)?;
        }
        // Messages that found no room in their queue are tried again.
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.progress(id))
    }

    fn look_at(&mut self, peer: usize) -> Outcome {
        let one = &self.peers[peer];
        let silence = match &one.line {
            Line::Open(connection) => self.node.silence(*connection).unwrap_or(Duration::ZERO),
            Line::Calling(_) | Line::Expected => one.met.elapsed(),
            Line::Gone(_) => return Ok(()),
        };
        let is_open = matches!(one.line, Line::Open(_));
        if silence < SILENCE {
            (self.peers[peer].probe, self.peers[peer].nudged) = (None, false);
            return Ok(());
        }
        if is_open && !std::mem::replace(&mut self.peers[peer].nudged, true) {
            // A peer that has nothing to say acknowledges it: whoever forges refusals changes nothing then.
            return self.say(peer, &Message { tag: 0, group: 0, number: 0, said: Said::Nudge });
        }
        let (ours, one) = (&self.ours, &mut self.peers[peer]);
        let probe = one.probe.get_or_insert_with(|| Probe::new(ours, &one.record.addresses));
        let Some((plane, address)) = probe.ask() else { return Ok(()) };
        self.cut_off_peer(peer, &Failure::refused(plane, address, silence))
    }
}
