//! The KV caches that a NIC sends and gets. A cache travels over several lanes, each between two NICs, in pieces.
//!
//! *Push*: the prefill NIC writes a piece as soon as its layers are computed and the decode replica has memory. *Pull*:
//! it announces the piece, and the decode NIC reads it as soon as there is memory. A read is a request of
//! [`REQUEST_BYTES`] and an answer; at most [`ReadLimits::DEFAULT`] bytes of answers to one NIC are under way.

use crate::core::{Core, Timer};
use crate::plan::{CONTROL_BYTES, Class, Service};
use crate::shared::Content;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandway_proto::read::{REQUEST_BYTES, ReadLimits};
use strandway_proto::units::{Span, Time};

/// A lane that this NIC sends.
#[derive(Debug, Default)]
struct Leaving {
    to: u32,
    /// Bytes of each piece.
    pieces: Vec<u64>,
    /// Pieces that have been posted, if they are posted in order.
    posted: usize,
    acked: usize,
    whole: bool,
}

/// A lane that this NIC gets.
#[derive(Debug, Default)]
struct Coming {
    received: u32,
    pieces: Option<u32>,
    /// Pieces that can be read, and their sender.
    ready: VecDeque<(u32, u32)>,
}

/// Answers to the reads of one NIC.
#[derive(Debug, Default)]
struct Answers {
    waiting: VecDeque<(u32, u32, u32)>,
    bytes: u64,
}

/// All lanes of a NIC.
#[derive(Debug)]
pub(crate) struct CacheLanes {
    replica: u32,
    leaving: BTreeMap<(u32, u32), Leaving>,
    coming: BTreeMap<(u32, u32), Coming>,
    /// Requests whose memory is reserved, and how many of their lanes here have not ended.
    granted: BTreeSet<u32>,
    answers: BTreeMap<u32, Answers>,
}

impl CacheLanes {
    pub(crate) fn new(replica: u32) -> CacheLanes {
        CacheLanes {
            replica,
            leaving: BTreeMap::new(),
            coming: BTreeMap::new(),
            granted: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    pub(crate) fn handle(&mut self, core: &mut Core, now: Time, from: u32, content: Content) {
        match content {
            Content::Send { request, decode, tokens, start, span, groups, last } => {
                let service = std::sync::Arc::clone(&core.service);
                let lanes: Vec<(u32, u32)> = service.lanes(self.replica, decode).collect();
                let whole = u64::from(tokens) * service.kv_bytes;
                let me = core.me;
                for (lane, (_, to)) in lanes.iter().enumerate().filter(|(_, (from, _))| *from == me) {
                    let mine = Service::part(whole, lanes.len() as u64, lane as u64);
                    let lane = lane as u32;
                    self.leaving.entry((request, lane)).or_default().to = *to;
                    for group in 0..groups {
                        let bytes = Service::part(mine, groups.into(), group.into());
                        let last = last && group + 1 == groups;
                        let ready = Span((u128::from(span.0) * u128::from(group + 1) / u128::from(groups)) as u64);
                        core.at((start + ready).max(now), Timer::Piece { request, lane, bytes, last });
                    }
                }
            }
            Content::Granted { request } => {
                self.granted.insert(request);
                let mine = (request, 0)..=(request, u32::MAX);
                let lanes: Vec<u32> = self.leaving.range(mine.clone()).map(|((_, lane), _)| *lane).collect();
                lanes.into_iter().for_each(|lane| self.push(core, request, lane));
                let lanes: Vec<u32> = self.coming.range(mine).map(|((_, lane), _)| *lane).collect();
                lanes.into_iter().for_each(|lane| self.pull(core, request, lane));
            }
            Content::Ready { request, lane, piece } => {
                self.coming.entry((request, lane)).or_default().ready.push_back((from, piece));
                if self.granted.contains(&request) {
                    self.pull(core, request, lane);
                }
            }
            Content::Read { request, lane, piece } => {
                self.answers.entry(from).or_default().waiting.push_back((request, lane, piece));
                self.answer(core, from);
            }
            Content::Cache { request, lane, pieces } => {
                let coming = self.coming.entry((request, lane)).or_default();
                coming.received += 1;
                if pieces > 0 {
                    coming.pieces = Some(pieces);
                }
                core.shared.note(request, |times| times.messages += 1);
                if coming.pieces == Some(coming.received) {
                    self.coming.remove(&(request, lane));
                    self.forget(request);
                    let leader = core.service.replicas[self.replica as usize].leader();
                    core.notify(now, leader, Content::LaneArrived { request });
                }
            }
            _ => {}
        }
    }

    /// Forgets that the memory of a request is reserved if no lane here needs it any more.
    fn forget(&mut self, request: u32) {
        let mine = (request, 0)..=(request, u32::MAX);
        if self.leaving.range(mine.clone()).next().is_none() && self.coming.range(mine).next().is_none() {
            self.granted.remove(&request);
        }
    }

    /// A piece of a lane is computed.
    pub(crate) fn piece(&mut self, core: &mut Core, now: Time, request: u32, lane: u32, bytes: u64, last: bool) {
        let leaving = self.leaving.entry((request, lane)).or_default();
        let piece = leaving.pieces.len() as u32;
        leaving.pieces.push(bytes);
        leaving.whole |= last;
        if core.service.transfer.pull {
            let to = leaving.to;
            core.send(now, to, Class::Control, CONTROL_BYTES, Content::Ready { request, lane, piece });
        } else if self.granted.contains(&request) {
            self.push(core, request, lane);
        }
    }

    /// Posts the pieces of a lane that are computed.
    fn push(&mut self, core: &mut Core, request: u32, lane: u32) {
        let Some(leaving) = self.leaving.get_mut(&(request, lane)).filter(|_| !core.service.transfer.pull) else {
            return;
        };
        while leaving.posted < leaving.pieces.len() {
            let piece = leaving.posted;
            leaving.posted += 1;
            post_piece(core, leaving, request, lane, piece);
        }
    }

    /// Reads the pieces of a lane that can be read.
    fn pull(&mut self, core: &mut Core, request: u32, lane: u32) {
        let Some(coming) = self.coming.get_mut(&(request, lane)) else { return };
        while let Some((from, piece)) = coming.ready.pop_front() {
            core.post(from, Class::Control, REQUEST_BYTES, Content::Read { request, lane, piece });
        }
    }

    /// Answers reads of a NIC while the limit allows it.
    fn answer(&mut self, core: &mut Core, to: u32) {
        let Some(answers) = self.answers.get_mut(&to) else { return };
        while let Some(&(request, lane, piece)) = answers.waiting.front() {
            let Some(leaving) = self.leaving.get_mut(&(request, lane)) else {
                answers.waiting.pop_front();
                continue;
            };
            let bytes = leaving.pieces[piece as usize];
            if answers.bytes > 0 && answers.bytes + bytes > ReadLimits::DEFAULT.bytes {
                return;
            }
            answers.waiting.pop_front();
            answers.bytes += bytes;
            post_piece(core, leaving, request, lane, piece as usize);
        }
    }

    /// A piece has arrived at its receiver.
    pub(crate) fn sent(&mut self, core: &mut Core, now: Time, request: u32, lane: u32, bytes: u64) {
        let Some(leaving) = self.leaving.get_mut(&(request, lane)) else { return };
        let to = leaving.to;
        leaving.acked += 1;
        if leaving.whole && leaving.acked == leaving.pieces.len() {
            self.leaving.remove(&(request, lane));
            self.forget(request);
            let leader = core.service.replicas[self.replica as usize].leader();
            core.notify(now, leader, Content::LaneSent { request });
        }
        if let Some(answers) = self.answers.get_mut(&to) {
            answers.bytes -= bytes;
            self.answer(core, to);
        }
    }
}

/// Posts a piece. The last one says how many there are.
fn post_piece(core: &mut Core, leaving: &Leaving, request: u32, lane: u32, piece: usize) {
    let (all, bytes) = (leaving.pieces.len(), leaving.pieces[piece]);
    let pieces = if leaving.whole && piece + 1 == all { all as u32 } else { 0 };
    core.shared.note(request, |times| times.cache_bytes += bytes);
    core.post(leaving.to, Class::Cache, bytes, Content::Cache { request, lane, pieces });
}
