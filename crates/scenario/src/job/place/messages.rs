//! The messages between the pipeline stages of a job.

use super::super::kinds::{KINDS, SEND};
use super::super::role::Sort;
use super::{Placer, RankPosition};
use crate::ideal_fct::Alone;
use crate::servers::Wiring;
use std::collections::BTreeMap;
use strandway_collective::{Collective, Local, Operation, Pipe, RankOperation};

impl Placer<'_, '_> {
    /// One end of a message between stages.
    pub(super) fn message(
        &mut self,
        rank: u32,
        (from, backward, micro): (u32, bool, u32),
        sends: bool,
        counts: &mut BTreeMap<(Sort, u8), u32>,
    ) -> Option<RankOperation> {
        let seat = self.seat(rank);
        let pp = self.written.degrees.pp;
        let target = if backward { from - 1 } else { from + 1 };
        let place = seat.tp + self.tp() * seat.copy;
        let ends = [from, target].map(|stage| self.rank(RankPosition { stage: stage % pp, ..seat }));
        // The number of messages in this direction so far; the iteration follows from it.
        let counted = counts.entry((Sort::Tensor, 128 | u8::from(backward) | u8::from(sends) << 1)).or_insert(0);
        *counted += 1;
        let per_iteration = self.per_iteration(seat.stage, backward, sends);
        let index = (*counted - 1) / per_iteration.max(1) * self.written.micro_batches + micro;
        if pp == 1 || self.server(ends[0]) == self.server(ends[1]) {
            let key = (from, backward, place, index);
            let local = match self.inside.get(&key) {
                Some(&local) => local,
                None => {
                    let team = self.team(ends.to_vec());
                    let span = self.servers.time(self.message_bytes(), 1);
                    self.locals.push(Local { team, span: self.maker.context.reduction.span(span) });
                    let local = self.locals.len() as u32 - 1;
                    self.inside.insert(key, local);
                    local
                }
            };
            return Some(RankOperation::Inside { local, messages: None });
        }
        if self.servers.wiring == Wiring::RailOnly && self.gpu(ends[0]) != self.gpu(ends[1]) {
            let remedy = "write wiring = \"rail-optimised\", or degrees that keep stages on their rails";
            self.maker.complain("pp", pp, "sends from one rail to another, which have no link in common", remedy);
            self.failed = true;
            return None;
        }
        let pipe = match self.pipes.get(&(from, backward, place)) {
            Some(&pipe) => pipe,
            None => {
                let pipe = self.pipe(ends);
                self.pipes.insert((from, backward, place), pipe);
                pipe
            }
        };
        let Some(pipe) = pipe else {
            self.failed = true;
            return None;
        };
        Some(if sends { RankOperation::Send { pipe, index } } else { RankOperation::Receive { pipe, index } })
    }

    /// The number of messages that a rank of a stage sends or receives in one direction per iteration.
    fn per_iteration(&self, stage: u32, backward: bool, sends: bool) -> u32 {
        let last = self.written.degrees.pp * self.written.chunks - 1;
        let with = |place: u32| match (backward, sends) {
            (false, true) | (true, false) => place < last,
            (false, false) | (true, true) => place > 0,
        };
        let chunks =
            (0..self.written.chunks).filter(|chunk| with(chunk * self.written.degrees.pp + stage)).count() as u32;
        chunks * self.written.micro_batches
    }

    /// Bytes of the activations of a micro-batch that one rank sends: with tensor parallelism its share.
    fn message_bytes(&self) -> u64 {
        let whole = match &self.written.imported {
            Some(file) => file.stage_bytes,
            None => self.written.tokens() * self.written.model.hidden * 2 / u64::from(self.written.degrees.tp),
        };
        whole.max(1)
    }

    fn pipe(&mut self, [from, to]: [u32; 2]) -> Option<u32> {
        let (from, to) = (self.host(from), self.host(to));
        let bytes = self.maker.context.reduction.bytes(self.message_bytes());
        let connections = self.maker.workload.common.connections;
        let count = self.written.micro_batches * self.written.iterations;
        let made = Pipe {
            ends: [from, to],
            bytes,
            count,
            pieces: u64::from(connections).min(bytes) as u32,
            first_message: 0,
            first_channel: self.maker.traffic.connections.len() as u32,
            profile: self.maker.profile,
        };
        if !self.maker.without_rows(made.messages()) {
            return None;
        }
        self.maker.open(from.0, to.0);
        let place = self.maker.traffic.add(Operation::PointToPoint(made));
        let context = self.maker.context;
        let profile = &self.maker.traffic.profiles[usize::from(self.maker.profile)];
        let bound = Alone::new(profile, context.topology, context.rate).completion(from, to, bytes);
        self.plan_of(
            KINDS[usize::from(SEND)],
            self.maker.of_job((Collective::SendReceive, "messages"), (2, bytes), place, bound),
        );
        Some(place as u32)
    }
}
