//! The hierarchical algorithm: inside the host, between hosts, inside again. Between hosts each byte passes once per
//! host, however many ranks the host has.
//!
//! Sums stay in the order of ranks, so they are the same bits as those of the [direct](super::direct) algorithm: each
//! host adds the numbers of its ranks to the sum of the hosts before it, and hands that on to the next host. With `h`
//! hosts, the port of a host sends and receives at most the whole buffer on the way to the sum, and once more if all
//! ranks get it. Lanes share this among the ranks of a host; parts of a lane follow each other through the hosts. Ours.

use super::direct::{cut, parts};
use super::{BufferRange, CollectiveCall, Condition, DirectLengths, Hosts, PlannedSum, RankPlan};

/// The first tag of messages that bring sums, or copies of them, to where they are wanted.
const RESULT: u32 = 1 << 31;
/// Parts of a lane are at least this long, in bytes, if the lane is: ours.
const PART_MIN: usize = 64 * 1024;

/// The part of one rank, while it is made.
struct Maker<'a> {
    hosts: &'a Hosts,
    rank: u32,
    host: u32,
    plan: RankPlan,
}

/// One part of the bytes that a lane carries.
struct Piece {
    lane: u32,
    /// Its number among all pieces of the call: its tag.
    number: u32,
    /// Its bytes in each rank's numbers.
    own: BufferRange,
}

impl RankPlan {
    /// The part of `rank` in a call, among ranks that [share](Hosts::are_shared) these hosts, whose caller has
    /// `buffers` buffers of elements of `element` bytes. `None` for calls that only the direct algorithm performs.
    pub fn hierarchical(
        call: &CollectiveCall,
        (rank, hosts): (u32, &Hosts),
        element: usize,
        buffers: usize,
        lengths: &DirectLengths,
    ) -> Option<RankPlan> {
        if !hosts.are_shared() {
            return None;
        }
        let mut maker = Maker { hosts, rank, host: hosts.host(rank), plan: RankPlan::default() };
        match call {
            CollectiveCall::AllReduce(at) => {
                for piece in &maker.lanes(at, element, lengths)? {
                    let sum = maker.chain(piece, &piece.own);
                    maker.spread_sum(piece, sum);
                }
                maker.plan.operands.push(at.clone());
            }
            CollectiveCall::Reduce { at, root } => maker.reduce(at, *root, (element, buffers), lengths)?,
            CollectiveCall::Broadcast { at, root } => {
                for piece in &maker.lanes(at, 1, lengths)? {
                    maker.broadcast(piece, *root);
                }
            }
            CollectiveCall::AllGather { input, outputs } => maker.all_gather(input.as_ref(), outputs, lengths)?,
            CollectiveCall::ReduceScatter { inputs, output } => {
                maker.reduce_scatter(inputs, output, (element, buffers), lengths)?
            }
            _ => return None,
        }
        Some(maker.plan)
    }
}

/// The length of the parts of a lane of `length` bytes: several for each host of a chain, so that all hosts are busy at
/// the same time.
fn part_length(length: usize, hosts: u32, element: usize, lengths: &DirectLengths) -> usize {
    let wanted = (length / (2 * hosts as usize)).clamp(PART_MIN.min(lengths.part), lengths.part);
    wanted.next_multiple_of(element.max(64))
}

impl Maker<'_> {
    /// The pieces of a buffer, lane by lane in turn, so that all lanes begin at once. `None` if they are too many to
    /// number.
    fn lanes(&self, at: &BufferRange, element: usize, lengths: &DirectLengths) -> Option<Vec<Piece>> {
        let lanes = self.hosts.largest();
        let lane = |lane: u32| at.part(cut(at.len(), element, lanes, lane)..cut(at.len(), element, lanes, lane + 1));
        let of_lane: Vec<BufferRange> = (0..lanes).map(lane).collect();
        self.pieces(&of_lane, |lane| lane as u32, element, lengths)
    }

    /// The pieces of some ranges, part by part.
    fn pieces(
        &self,
        ranges: &[BufferRange],
        lane_of: impl Fn(usize) -> u32,
        element: usize,
        lengths: &DirectLengths,
    ) -> Option<Vec<Piece>> {
        let longest = ranges.iter().map(BufferRange::len).max().unwrap_or(0);
        let part = part_length(longest, self.hosts.count(), element, lengths);
        let mut pieces = Vec::new();
        for at in 0..longest.div_ceil(part) {
            for (index, range) in ranges.iter().enumerate() {
                if let Some(bytes) = parts(range.len(), part).nth(at) {
                    let number = u32::try_from(pieces.len()).ok().filter(|number| *number < RESULT)?;
                    pieces.push(Piece { lane: lane_of(index), number, own: range.part(bytes) });
                }
            }
        }
        Some(pieces)
    }

    fn carrier(&self, host: u32, piece: &Piece) -> u32 {
        self.hosts.carrier(host, piece.lane)
    }

    fn is_carrier(&self, piece: &Piece) -> bool {
        self.carrier(self.host, piece) == self.rank
    }

    /// The other ranks of this host, each rank beginning with the next one.
    fn neighbours(&self) -> Vec<u32> {
        let ranks = self.hosts.ranks(self.host);
        let count = ranks.end - ranks.start;
        let place = self.rank - ranks.start;
        (1..count).map(|step| ranks.start + (place + step) % count).collect()
    }

    /// Adds up a piece along the chain of hosts; each host's carrier has its sum in `out`. Returns the number of the
    /// sum, if this rank is a carrier.
    fn chain(&mut self, piece: &Piece, out: &BufferRange) -> Option<usize> {
        let carrier = self.carrier(self.host, piece);
        if carrier != self.rank {
            self.plan.send(carrier, piece.number, piece.own.clone(), Vec::new());
            return None;
        }
        let before = self.host.checked_sub(1).map(|host| self.carrier(host, piece));
        let order: Vec<u32> = before.into_iter().chain(self.hosts.ranks(self.host)).collect();
        let is_last = self.host + 1 == self.hosts.count();
        let rank = self.rank;
        let others: Vec<u32> = order.iter().copied().filter(|from| *from != rank).collect();
        let (own, out) = (piece.own.clone(), out.clone());
        let planned = PlannedSum { own, out: out.clone(), order: Some(order), is_part: !is_last };
        let sum = self.plan.add(planned, piece.number, others.into_iter());
        if !is_last {
            let to = self.carrier(self.host + 1, piece);
            self.plan.send(to, piece.number, out, vec![Condition::Added(sum)]);
        }
        Some(sum)
    }

    /// Brings the sum of a piece, which the last host's carrier has, back along the chain to all ranks.
    fn spread_sum(&mut self, piece: &Piece, sum: Option<usize>) {
        let has = match sum {
            Some(sum) if self.host + 1 == self.hosts.count() => Condition::Added(sum),
            Some(_) => self.receive_result(self.carrier(self.host + 1, piece), piece, piece.own.clone()),
            None => {
                self.receive_result(self.carrier(self.host, piece), piece, piece.own.clone());
                return;
            }
        };
        if let Some(before) = self.host.checked_sub(1) {
            self.send_result(self.carrier(before, piece), piece, piece.own.clone(), Some(has));
        }
        for to in self.neighbours() {
            self.send_result(to, piece, piece.own.clone(), Some(has));
        }
    }

    fn send_result(&mut self, to: u32, piece: &Piece, from: BufferRange, after: Option<Condition>) {
        self.plan.send(to, RESULT | piece.number, from, after.into_iter().collect());
    }

    fn receive_result(&mut self, from: u32, piece: &Piece, into: BufferRange) -> Condition {
        // A piece is never empty, so this is a receive.
        self.plan.receive(from, RESULT | piece.number, into);
        Condition::Received(self.plan.receives.len() - 1)
    }

    /// A place of the plan's own for a sum that this rank only passes on.
    fn scratch(&mut self, length: usize, buffers: usize) -> BufferRange {
        self.plan.scratch.push(length);
        BufferRange::whole(buffers + self.plan.scratch.len() - 1, length)
    }

    fn reduce(
        &mut self,
        at: &BufferRange,
        root: u32,
        (element, buffers): (usize, usize),
        lengths: &DirectLengths,
    ) -> Option<()> {
        let pieces = self.lanes(at, element, lengths)?;
        let is_root = self.rank == root;
        // The numbers of other ranks stay as they are, so their sums have one place of their own.
        let carried: usize = pieces.iter().filter(|piece| self.is_carrier(piece)).map(|piece| piece.own.len()).sum();
        let place = (!is_root).then(|| self.scratch(carried, buffers));
        let mut used = 0;
        for piece in &pieces {
            let out = match &place {
                Some(place) if self.is_carrier(piece) => place.part(used..used + piece.own.len()),
                _ => piece.own.clone(),
            };
            let sum = self.chain(piece, &out);
            used += if sum.is_some() { out.len() } else { 0 };
            let last = self.carrier(self.hosts.count() - 1, piece);
            if self.rank == last && !is_root {
                self.send_result(root, piece, out, sum.map(Condition::Added));
            } else if is_root && self.rank != last {
                self.receive_result(last, piece, piece.own.clone());
            }
        }
        if is_root {
            self.plan.operands.push(at.clone());
        }
        Some(())
    }

    /// Rank `r`'s block takes the lane of `r`'s place on its host. Its sum goes from the last host to `r`.
    fn reduce_scatter(
        &mut self,
        inputs: &[BufferRange],
        output: &BufferRange,
        (element, buffers): (usize, usize),
        lengths: &DirectLengths,
    ) -> Option<()> {
        let hosts = self.hosts;
        let last = hosts.count() - 1;
        // A part has its rank's number, so that it is known whose it is.
        let longest = inputs.iter().map(BufferRange::len).max().unwrap_or(0);
        let part = part_length(longest * hosts.count() as usize, hosts.count(), element, lengths);
        let most = longest.div_ceil(part);
        u32::try_from(most * inputs.len()).ok().filter(|count| *count < RESULT)?;
        let carried = |owner: u32| hosts.carrier(self.host, hosts.place(owner)) == self.rank;
        let mine =
            (0..).zip(inputs).filter(|(owner, _)| carried(*owner) && !(*owner == self.rank && self.host == last));
        let length: usize = mine.map(|(_, input)| input.len()).sum();
        let place = self.scratch(length, buffers);
        let mut used = 0;
        for at in 0..most {
            for (owner, input) in (0u32..).zip(inputs) {
                let Some(bytes) = parts(input.len(), part).nth(at) else { continue };
                let number = (at * inputs.len()) as u32 + owner;
                let piece = Piece { lane: hosts.place(owner), number, own: input.part(bytes.clone()) };
                let result = (owner == self.rank).then(|| output.part(bytes));
                let out = match &result {
                    Some(result) if self.host == last => result.clone(),
                    _ if self.is_carrier(&piece) => {
                        used += piece.own.len();
                        place.part(used - piece.own.len()..used)
                    }
                    _ => piece.own.clone(),
                };
                let sum = self.chain(&piece, &out);
                let from = self.carrier(last, &piece);
                if self.rank == from && owner != from {
                    self.send_result(owner, &piece, out, sum.map(Condition::Added));
                } else if let Some(result) = result.filter(|_| self.rank != from) {
                    self.receive_result(from, &piece, result);
                }
            }
        }
        Some(())
    }

    /// The root's bytes go to its host's carriers, from each carrier to the next host's, and to the ranks of its host.
    fn broadcast(&mut self, piece: &Piece, root: u32) {
        let (hosts, of_root) = (self.hosts.count(), self.hosts.host(root));
        let place = (self.host + hosts - of_root) % hosts;
        let carrier = self.carrier(self.host, piece);
        let mut has = None;
        if self.rank != root {
            let from = match (self.rank == carrier, place) {
                (true, 0) => root,
                (true, _) => self.carrier((self.host + hosts - 1) % hosts, piece),
                (false, _) => carrier,
            };
            has = Some(self.receive_result(from, piece, piece.own.clone()));
        } else if self.rank != carrier {
            self.send_result(carrier, piece, piece.own.clone(), None);
        }
        if self.rank != carrier {
            return;
        }
        if place + 1 < hosts {
            let to = self.carrier((self.host + 1) % hosts, piece);
            self.send_result(to, piece, piece.own.clone(), has);
        }
        for to in self.neighbours().into_iter().filter(|to| *to != root) {
            self.send_result(to, piece, piece.own.clone(), has);
        }
    }

    /// Each rank sends its block to its host's ranks and to one rank of each other host, which passes it on there.
    fn all_gather(
        &mut self,
        input: Option<&BufferRange>,
        outputs: &[BufferRange],
        lengths: &DirectLengths,
    ) -> Option<()> {
        let hosts = self.hosts;
        let mine = outputs[self.rank as usize].clone();
        let own = input.unwrap_or(&mine).clone();
        if let Some(input) = input {
            self.plan.copies.push((input.clone(), mine));
        }
        let part = lengths.part;
        let most = outputs.iter().map(|output| output.len().div_ceil(part)).max().unwrap_or(0);
        u32::try_from(most * outputs.len()).ok().filter(|count| *count < RESULT)?;
        // Own blocks leave first: others pass them on.
        for (at, bytes) in parts(own.len(), part).enumerate() {
            let piece = self.block(self.rank, at, outputs.len(), own.part(bytes));
            for step in 1..hosts.count() {
                let to = hosts.carrier((self.host + step) % hosts.count(), piece.lane);
                self.send_result(to, &piece, piece.own.clone(), None);
            }
            for to in self.neighbours() {
                self.send_result(to, &piece, piece.own.clone(), None);
            }
        }
        for at in 0..most {
            for step in 1..outputs.len() as u32 {
                let from = (self.rank + outputs.len() as u32 - step) % outputs.len() as u32;
                let output = &outputs[from as usize];
                let Some(bytes) = parts(output.len(), part).nth(at) else { continue };
                let piece = self.block(from, at, outputs.len(), output.part(bytes));
                let carrier = self.carrier(self.host, &piece);
                let is_near = hosts.host(from) == self.host;
                let sender = if is_near || carrier == self.rank { from } else { carrier };
                let has = self.receive_result(sender, &piece, piece.own.clone());
                if !is_near && carrier == self.rank {
                    for to in self.neighbours() {
                        self.send_result(to, &piece, piece.own.clone(), Some(has));
                    }
                }
            }
        }
        Some(())
    }

    /// A part of a rank's block.
    fn block(&self, of: u32, at: usize, ranks: usize, own: BufferRange) -> Piece {
        Piece { lane: self.hosts.place(of), number: (at * ranks) as u32 + of, own }
    }
}
