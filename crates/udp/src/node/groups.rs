//! The groups of a node: joining and leaving, operations, casts and control messages, and arriving datagrams.

use super::{Completion, Node};
use crate::error::Error;
use crate::frame::Sealed;
use crate::group::{ChunkHead, Chunked, Incoming, Membership, Team};
use crate::handles::Group;
use crate::socket::{Arrival, Inbox, Udp};
use std::collections::HashMap;
use strandway_proto::cast::{Cast, Rebuild};
use strandway_proto::{ControlMessage, PathId, Time};

/// The most receiving calls per socket of a group and turn: ours, as for planes.
const CALLS_PER_TURN: usize = 16;

struct Slot {
    generation: u32,
    team: Option<Box<Team>>,
}

/// The groups that a node has joined.
#[derive(Default)]
pub(super) struct Groups {
    slots: Vec<Slot>,
    /// The group and the rank that a number in a datagram stands for.
    members: HashMap<u64, (u32, u32)>,
}

impl Groups {
    fn teams(&self) -> impl Iterator<Item = &Team> {
        self.slots.iter().filter_map(|slot| slot.team.as_deref())
    }

    /// When the next chunks may leave at the pace of their cast.
    pub(super) fn due(&self) -> Time {
        self.teams().map(|team| team.due).min().unwrap_or(Time::NEVER)
    }

    /// Do chunks wait for room in a plane?
    pub(super) fn wait(&self) -> bool {
        self.teams().any(|team| team.waits)
    }

    /// The sockets that receive for groups.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Udp> {
        self.teams().flat_map(|team| &team.sockets)
    }

    pub(super) fn team(&self, group: Group) -> Result<&Team, Error> {
        let slot = self.slots.get(group.index as usize).filter(|slot| slot.generation == group.generation);
        slot.and_then(|slot| slot.team.as_deref()).ok_or(Error::NoGroup)
    }

    fn team_mut(&mut self, group: Group) -> Result<&mut Team, Error> {
        let slot = self.slots.get_mut(group.index as usize).filter(|slot| slot.generation == group.generation);
        slot.and_then(|slot| slot.team.as_deref_mut()).ok_or(Error::NoGroup)
    }
}

impl Node {
    /// Takes part in a multicast team: derives all keys, and, if it has a port, opens a socket for each plane and joins
    /// all trees. The other members are not told.
    ///
    /// # Errors
    /// If the membership does not fit the node, the team's members are known from another group, or sockets cannot be
    /// opened; also on any but the first of the nodes that share their ports.
    pub fn join(&mut self, membership: &Membership) -> Result<Group, Error> {
        if self.shard() > 0 {
            return Err(Error::Config(format!(
                "team {}: shard {} takes part in no team; join with the first of the nodes that share their ports",
                membership.team,
                self.shard()
            )));
        }
        let team = Team::join(membership, &self.config, &self.planes)?;
        if team.ids.iter().any(|id| self.groups.members.contains_key(id)) {
            return Err(Error::Config(format!(
                "team {}: the node is in a group with this secret; give each team a fresh one",
                membership.team
            )));
        }
        let free = self.groups.slots.iter().position(|slot| slot.team.is_none());
        let index = free.unwrap_or(self.groups.slots.len());
        self.groups.members.extend(team.ids.iter().zip(0..).map(|(&id, rank)| (id, (index as u32, rank))));
        match self.groups.slots.get_mut(index) {
            Some(slot) => slot.team = Some(Box::new(team)),
            None => self.groups.slots.push(Slot { generation: 0, team: Some(Box::new(team)) }),
        }
        Ok(Group { index: index as u32, generation: self.groups.slots[index].generation })
    }

    /// Leaves a group: its operations end, and their memory is released. The other members are not told.
    ///
    /// # Errors
    /// If the node is not in it.
    pub fn leave(&mut self, group: Group) -> Result<(), Error> {
        self.groups.team(group)?;
        let slot = &mut self.groups.slots[group.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        if let Some(mut team) = slot.team.take() {
            team.close_all(&mut self.memory);
            team.ids.iter().for_each(|id| {
                self.groups.members.remove(id);
            });
        }
        Ok(())
    }

    /// Opens an operation: from now on its chunks are written when they arrive, and can be cast.
    ///
    /// # Errors
    /// If the node is not in the group, the operation is open, or layout, hashes and buffer do not fit each other.
    pub fn open_task(&mut self, group: Group, incoming: &Incoming) -> Result<(), Error> {
        self.groups.team_mut(group)?.open(incoming, &mut self.memory)
    }

    /// Ends an operation: its buffer may change, and its chunks are neither sent nor written any more.
    ///
    /// # Errors
    /// If there is no such group or operation.
    pub fn close_task(&mut self, group: Group, task: u32) -> Result<(), Error> {
        let closed = self.groups.team_mut(group)?.close(task, &mut self.memory);
        if closed { Ok(()) } else { Err(Error::NoGroup) }
    }

    /// Rebuilds chunks of an open operation from others of their group and from parity that has come.
    ///
    /// # Errors
    /// If there is no such group or operation, or too few chunks are here.
    pub fn rebuild(&mut self, group: Group, rebuild: &Rebuild) -> Result<(), Error> {
        self.groups.team_mut(group)?.rebuild(rebuild, &mut self.memory)
    }

    /// Sends chunks of an open operation to all members ([`Cast::to`] is a group) or to one (its rank as a host's
    /// number). They leave after the chunks that wait already, at the pace that the cast gives, and may be lost.
    /// [`Completion::Cast`] follows when the last one has left.
    ///
    /// # Errors
    /// If there is no such group, operation, chunk or member.
    pub fn cast(&mut self, group: Group, cast: Cast) -> Result<(), Error> {
        self.groups.team_mut(group)?.cast(cast)
    }

    /// Sends a control message to a member. It may be lost. Control messages to one member take the planes in turn.
    /// Answers have a rotation of their own; otherwise question and answer could alternate in such a way that all
    /// answers meet a dead plane.
    ///
    /// # Errors
    /// If there is no such group or member.
    pub fn send_control_to_member(
        &mut self,
        group: Group,
        to: u32,
        control: ControlMessage,
        is_answer: bool,
    ) -> Result<(), Error> {
        let up = self.observe().planes_up();
        let team = self.groups.team_mut(group)?;
        if to as usize >= team.ranks() {
            return Err(Error::NoGroup);
        }
        team.send_control(to, control, is_answer, up, &self.config.routes, &mut self.planes);
        self.flush();
        Ok(())
    }

    /// Sends a control message to all members along one tree of one plane. It may be lost.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn send_control_to_all(&mut self, group: Group, path: PathId, control: ControlMessage) -> Result<(), Error> {
        let team = self.groups.team_mut(group)?;
        team.send_control_to_all(path.port(), path.entropy() as u16, control, &mut self.planes);
        self.flush();
        Ok(())
    }

    /// Bytes around the payload of a chunk, IPv6 and UDP headers included.
    pub fn chunk_overhead(&self) -> u32 {
        48 + Team::chunk_overhead(self.config.protection) as u32
    }

    /// A datagram of a group arrived.
    pub(super) fn handle_of_group(&mut self, plane: usize, arrival: &Arrival, sealed: &Sealed, datagram: &mut [u8]) {
        let Some(&(index, from)) = self.groups.members.get(&sealed.connection) else {
            self.counters.strays += 1;
            return;
        };
        let slot = &mut self.groups.slots[index as usize];
        let group = Group { index, generation: slot.generation };
        let Some(team) = slot.team.as_deref_mut() else { return };
        match team.handle(from, arrival, sealed, datagram, &mut self.memory) {
            Chunked::Chunk(ChunkHead { task, chunk, last, to_all, .. }, trimmed) => {
                let (plane, tree) = (plane as u8, to_all.then_some(sealed.path.entropy()));
                self.completions.push_back(Completion::Chunk { group, from, task, chunk, plane, tree, trimmed, last });
            }
            Chunked::Word(word) => {
                let path = PathId::new(plane as u8, sealed.path.entropy());
                let (to_all, control) = (word.to_all, word.control);
                self.completions.push_back(Completion::Word { group, from, path, to_all, control });
            }
            Chunked::Nothing => {}
        }
    }

    /// Receives the datagrams that have come for groups; true if there were any.
    pub(super) fn receive_of_groups(&mut self, now: Time, inbox: &mut Inbox) -> bool {
        let mut any = false;
        for index in 0..self.groups.slots.len() {
            for plane in 0..self.planes.len() {
                for _ in 0..CALLS_PER_TURN {
                    let Some(team) = self.groups.slots[index].team.as_deref() else { break };
                    let Some(socket) = team.sockets.get(plane) else { break };
                    if !self.planes[plane].receive_cast(socket, inbox) {
                        break;
                    }
                    any = true;
                    inbox.each(|arrival, datagram| self.handle(now.max(self.turns.latest), plane, arrival, datagram));
                }
            }
        }
        any
    }

    /// Sends the chunks that are due.
    pub(super) fn let_groups_work(&mut self) -> bool {
        let mut any = false;
        let (now, up) = (self.clock.now(), self.observe().planes_up());
        for (index, slot) in (0..).zip(&mut self.groups.slots) {
            let group = Group { index, generation: slot.generation };
            let Some(team) = slot.team.as_deref_mut() else { continue };
            if team.due > now && !team.waits {
                continue;
            }
            let completions = &mut self.completions;
            any |= team.work(now, up, &self.config.routes, &self.memory, &mut self.planes, |to, task, end| {
                completions.push_back(Completion::Cast { group, to, task, end });
            });
        }
        any
    }
}
