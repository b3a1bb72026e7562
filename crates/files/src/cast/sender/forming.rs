//! How a team of receivers forms: each joins it, and all test its planes.

use super::{Casting, LOOK, State, Status};
use crate::cast::CastError;
use crate::cast::message::{CastMessage, Form};
use crate::copy::Malformed;
use std::time::Instant;
use strandway_group::GroupError;
use strandway_udp::{Membership, random_secret};

impl<S: Fn() -> bool> Casting<'_, S> {
    /// Waits until every member has sent a message that `wanted` accepts, or is lost.
    fn receive_all(
        &mut self,
        members: &[usize],
        wanted: impl Fn(&CastMessage) -> Option<u32>,
        each: &mut impl FnMut(&Status),
    ) -> Result<Vec<Option<u32>>, CastError> {
        let until = Instant::now() + self.options.team.patience;
        let mut said: Vec<Option<u32>> = vec![None; members.len()];
        loop {
            for (place, &who) in members.iter().enumerate() {
                let messages = &mut self.peers[who].messages;
                if said[place].is_none()
                    && let Some(at) = messages.iter().position(|message| wanted(message).is_some())
                {
                    said[place] = messages.remove(at).as_ref().and_then(&wanted);
                }
            }
            let waits = |who: usize| self.peers[who].state == State::Receives;
            if members.iter().zip(&said).all(|(&who, said)| said.is_some() || !waits(who)) {
                return Ok(said);
            }
            if Instant::now() > until {
                for (place, &who) in members.iter().enumerate() {
                    if said[place].is_none() {
                        self.give_up(who, "it did not answer in time when the team formed");
                    }
                }
                return Ok(said);
            }
            self.turn(LOOK, each)?;
        }
    }

    /// Gives chunks the largest payload that passes to all members, if connections find theirs.
    fn choose_payload(&mut self, members: &[usize]) -> Result<u16, CastError> {
        let connections: Vec<_> = members.iter().filter_map(|&who| self.peers[who].connection).collect();
        let node = self.role.node();
        let found = connections.iter().filter_map(|&connection| node.observe().payload(connection).ok()).min();
        if let Some(payload) = found.filter(|_| node.finds_payloads()) {
            node.set_payload(payload)?;
        }
        Ok(node.payload() as u16)
    }

    /// Forms a team of these receivers, without those that are lost meanwhile.
    pub(super) fn form(&mut self, members: &mut Vec<usize>, each: &mut impl FnMut(&Status)) -> Result<(), CastError> {
        let mut port = (!self.options.team.no_multicast).then_some(self.options.team.port);
        loop {
            members.retain(|&who| self.peers[who].state == State::Receives);
            if members.is_empty() {
                return Err(CastError::Nobody(self.reasons()));
            }
            let payload = self.choose_payload(members)?;
            let team = &self.options.team;
            let mut addresses = Vec::new();
            for address in self.role.node().addresses()? {
                if let std::net::SocketAddr::V6(address) = address {
                    addresses.push(address);
                }
            }
            let mut all = vec![addresses];
            all.extend(members.iter().map(|&who| self.peers[who].listener.addresses.clone()));
            let membership = Membership {
                team: team.team,
                secret: random_secret()?,
                rank: 0,
                members: all,
                port,
                trees: team.trees,
            };
            match self.role.join(&membership, *team) {
                Err(GroupError::Node(error)) if error.is_port_taken() => {
                    port = Some(team.next_port(port)?);
                    continue;
                }
                joined => joined?,
            }
            for (rank, &who) in (1..).zip(members.iter()) {
                let form = Form {
                    rank,
                    team: team.team,
                    port,
                    trees: team.trees,
                    secret: membership.secret,
                    rate: team.rate.0,
                    pace: (team.pace * 1e6) as u32,
                    rtt_us: (team.rtt.0 / 1_000_000).max(1) as u32,
                    patience_ms: team.patience.as_millis() as u32,
                    trusting: self.options.trusting,
                    parity: team.parity.map_or([0, 0], |code| [code.data() as u16, code.parity() as u16]),
                    payload,
                    members: membership.members.clone(),
                };
                self.peers[who].messages.retain(|message| matches!(message, CastMessage::Copy(_)));
                // A lost receiver is noticed below.
                let _ = self.send_message(who, &CastMessage::Form(form));
            }
            let joined = |message: &CastMessage| match message {
                CastMessage::Joined => Some(1),
                CastMessage::Taken => Some(0),
                _ => None,
            };
            let joined = self.receive_all(members, joined, each)?;
            let taken = members.iter().zip(&joined).filter(|(_, joined)| **joined == Some(0));
            let taken: Vec<usize> = taken.map(|(&who, _)| who).collect();
            if !taken.is_empty() {
                match port.map(|_| self.options.team.next_port(port)) {
                    Some(Ok(next)) => port = Some(next),
                    // No port is free there, and the others do not need another one.
                    Some(Err(error)) => taken.into_iter().for_each(|who| self.give_up(who, &error.to_string())),
                    None => taken.into_iter().for_each(|who| self.give_up(who, &Malformed.to_string())),
                }
                continue;
            }
            if joined.contains(&None) {
                continue;
            }
            members.iter().for_each(|&who| {
                let _ = self.send_message(who, &CastMessage::Try);
            });
            let Some(team) = self.role.team() else { continue };
            let own = team.try_planes()?;
            let heard = self.receive_all(
                members,
                |message| if let CastMessage::Heard(planes) = message { Some(*planes) } else { None },
                each,
            )?;
            if heard.contains(&None) {
                continue;
            }
            let planes = heard.into_iter().flatten().fold(own, |planes, heard| planes & heard);
            if let Some(team) = self.role.team() {
                team.set_multicast_planes(planes);
            }
            members.iter().for_each(|&who| {
                let _ = self.send_message(who, &CastMessage::Planes(planes));
            });
            return Ok(());
        }
    }
}
