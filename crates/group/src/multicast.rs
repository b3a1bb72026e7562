//! Broadcasts and all-gathers by multicast, on a team's real buffers: the loop between a node and the program of a
//! rank.

use crate::driver::{Driver, World};
use crate::error::GroupError;
use crate::team::Team;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use strandway_collective::multicast::{
    Chains, Counts, Cutoff, Multicast, MulticastMessage, MulticastRank, Outcome, Ranks, Recovery, StartBarriers,
};
use strandway_proto::application::{Action, Application, Channel, Event, Stage};
use strandway_proto::cast::{Cast, Layout, Parity};
use strandway_proto::units::{Rate, Time};
use strandway_proto::{ControlMessage, HostId, Message};
use strandway_udp::{Completion, Incoming, Operation, Region};

/// The number of the group in an operation, which has only one: the team.
const GROUP: u32 = 0;
/// A rank that has closed an operation stays for this number of control message timeouts if its last control messages
/// are not acknowledged: ours. A rank that asks later gets the answer that the operation is over.
const LINGER: u64 = 10;
/// The longest that a rank sleeps before it asks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All ranks get the contents of the root's buffer.
    Broadcast {
        /// The root.
        root: u32,
    },
    /// Every rank gets the shares of all: the share of rank r is the r-th of `ranks` equal parts of the buffer
    /// (`Layout::share`).
    AllGather,
}

/// The result of an operation at this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// From the call until all chunks were here.
    pub complete: Duration,
    /// From the call until no rank needed this rank's buffer any more.
    pub closed: Duration,
    /// The counters of this rank.
    pub counts: Counts,
}

impl Team {
    /// The layout of a buffer of `bytes` bytes in shares and chunks.
    ///
    /// # Errors
    /// If it has more than four billion chunks.
    pub fn layout(&self, what: What, bytes: u64) -> Result<Layout, GroupError> {
        let shares = match what {
            What::Broadcast { .. } => 1,
            What::AllGather => self.ranks(),
        };
        Layout::new(bytes, shares, self.node.payload() as u16).ok_or_else(|| {
            GroupError::Config(format!("{bytes} bytes are more than four billion chunks: take less at a time"))
        })
    }

    /// The parity of a buffer with this layout in this team.
    ///
    /// # Errors
    /// If 32 bits cannot count all chunks.
    pub(crate) fn parity(&self, layout: Layout) -> Result<Option<Parity>, GroupError> {
        let Some(code) = self.options.parity else { return Ok(None) };
        let bytes = layout.bytes();
        let what = || format!("{bytes} bytes with parity are more than four billion chunks: take less at a time");
        Parity::new(layout, code).map(Some).ok_or_else(|| GroupError::Config(what()))
    }

    /// Broadcasts or gathers a range of a region of our node by multicast. All ranks must call it with the same
    /// arguments, in the same order. When it returns, the result may be read and the buffer changed, at all ranks.
    /// `stop` is asked repeatedly.
    ///
    /// # Errors
    /// If a rank does not answer any more: all living ranks get an error with its number. If the buffer does not fit.
    pub fn multicast(
        &mut self,
        what: What,
        region: Region,
        range: Range<usize>,
        stop: &impl Fn() -> bool,
    ) -> Result<Done, GroupError> {
        self.multicast_checked(what, region, range, None, stop)
    }

    /// Calls [`Team::multicast`] with a list of hashes of the chunks, by their numbers: the first 16 bytes of BLAKE3 of
    /// each chunk. A chunk with another hash is treated as lost.
    ///
    /// # Errors
    /// As [`Team::multicast`], and if the list does not have the length of the layout.
    pub fn multicast_checked(
        &mut self,
        what: What,
        region: Region,
        range: Range<usize>,
        hashes: Option<Arc<[[u8; 16]]>>,
        stop: &impl Fn() -> bool,
    ) -> Result<Done, GroupError> {
        if let Some(rank) = self.dead {
            return Err(GroupError::Dead { rank });
        }
        let layout = self.layout(what, range.len() as u64)?;
        let task = self.task;
        self.task = self.task.wrapping_add(1);
        let op = self.operation(what, layout, task)?;
        let parity = op.parity.map(|parity| parity.code());
        let own = op.share_of(self.rank).map(|share| layout.first(share)..layout.first(share) + layout.chunks(share));
        let incoming = Incoming { task, layout, region, range, present: own.into_iter().collect(), parity, hashes };
        self.node.open_task(self.group, &incoming)?;
        let done = self.drive(&op, stop);
        // The operation is open, so this does not fail.
        let _ = self.node.close_task(self.group, task);
        done
    }

    /// The operation for its program. Hosts are ranks.
    fn operation(&self, what: What, layout: Layout, task: u32) -> Result<Multicast, GroupError> {
        let options = &self.options;
        let ranks = self.ranks();
        Ok(Multicast {
            root: match what {
                What::Broadcast { root } => Some(root),
                What::AllGather => None,
            },
            ranks: Ranks::new((0..ranks).map(HostId).collect()),
            layout,
            parity: self.parity(layout)?,
            chains: Chains::new(ranks, options.chains),
            starts: vec![Time::ZERO; ranks as usize],
            group: GROUP,
            task,
            first_message: 0,
            channel: 0,
            profile: 0,
            header: self.node.chunk_overhead() as u16,
            planes: ((1u64 << self.members[0].len()) - 1) as u32,
            groups: self.planes & !self.deaf,
            trees: self.options.trees.into(),
            tree_count: self.options.trees.into(),
            rate: options.rate,
            pace: Some(options.pace),
            rtt: options.rtt,
            silent_max: options.silent_max(),
            spare_root: self.spare_root,
            opening: StartBarriers::OneBarrier,
            cutoff: Cutoff::Tuned,
            recovery: Recovery::FAST,
        })
    }

    fn drive(&mut self, op: &Multicast, stop: &impl Fn() -> bool) -> Result<Done, GroupError> {
        let mut rank = MulticastRank::new(op, self.rank);
        let (mut driver, linger) = (Driver::default(), op.rtt * LINGER);
        let now = self.now();
        let early = std::mem::take(&mut self.early);
        let up = self.node.observe().planes_up();
        let mut run = Run { team: self, op, began: Instant::now(), done: Done::default(), closed: None };
        rank.handle_event(now, &Event::Ports { up });
        rank.handle_timeout(now);
        for (from, task, word) in early {
            match task == op.task {
                true => rank.handle_event(now, &Event::Control { from: HostId(from), control: word.control(task) }),
                false => run.team.keep(from, task, word),
            }
        }
        driver.act(&mut run, now, &mut rank)?;
        loop {
            let now = run.team.now();
            let is_over = rank.is_done() || run.closed.is_some_and(|at| now > at + linger);
            match rank.outcome() {
                Outcome::Aborted { dead } if is_over => {
                    run.team.dead = Some(dead);
                    return Err(GroupError::Dead { rank: dead });
                }
                Outcome::Differs { ranks } if run.closed.is_some_and(|at| now > at + linger) => {
                    return Err(GroupError::Sizes { ranks });
                }
                Outcome::Aborted { .. } | Outcome::Differs { .. } => {
                    run.closed.get_or_insert(now);
                }
                Outcome::Closed if is_over => {
                    let done = Done { counts: *rank.counts(), ..run.done };
                    self.choose_planes()?;
                    return Ok(done);
                }
                _ => {}
            }
            if stop() {
                return Err(GroupError::Stopped);
            }
            driver.turn(&mut run, &mut rank, LOOK)?;
        }
    }

    /// The pace of a cast beside a reduce-scatter by a switch, whose results reach each port in a P-th of the time of
    /// both: an all-gather leaves them that room.
    fn leave_room(&self, op: &Multicast, cast: Cast) -> Cast {
        let ranks = f64::from(self.ranks());
        match op.root.is_none() && cast.rate != Cast::UNPACED && self.beside.load(Ordering::Relaxed) > 0 {
            true => Cast { rate: Rate(cast.rate.scaled((ranks - 1.0) / ranks).0.max(1)), ..cast },
            false => cast,
        }
    }

    /// Handles a control message that does not belong to the operation under way.
    pub(crate) fn handle_control(&mut self, from: u32, control: &ControlMessage) -> Result<(), GroupError> {
        if self.take_barrier(from, control)? || self.take_ballot(from, control)? {
            return Ok(());
        }
        match MulticastMessage::read(control) {
            // Operations are numbered consecutively; numbers in the half of the range before the present one are past.
            Some((task, word)) if task.wrapping_sub(self.task) < 1 << 31 => self.keep(from, task, word),
            Some((task, word)) => {
                if let Some(answer) = word.answer_when_over() {
                    self.node.send_control_to_member(self.group, from, answer.control(task), true)?;
                }
            }
            None => {}
        }
        Ok(())
    }
}

/// An operation under way.
struct Run<'a> {
    team: &'a mut Team,
    op: &'a Multicast,
    began: Instant,
    done: Done,
    /// When it closed here.
    closed: Option<Time>,
}

impl World for Run<'_> {
    type Error = GroupError;

    fn now(&self) -> Time {
        self.team.now()
    }

    fn next(&mut self, timeout: Duration) -> Result<Option<Completion>, GroupError> {
        Ok(self.team.node.wait(timeout)?)
    }

    fn post(&mut self, _: Channel, _: &Message) -> Result<Option<Operation>, GroupError> {
        unreachable!("a multicast posts no messages")
    }

    fn act(&mut self, now: Time, action: Action) -> Result<(), GroupError> {
        let Run { team, op, .. } = self;
        match action {
            Action::Cast(cast) => {
                let cast = team.leave_room(op, cast);
                team.node.cast(team.group, cast)?;
            }
            Action::Control { channel, control } => {
                // Channels come in pairs; the second one is for answers.
                let answers = channel.number == op.channel + 1;
                team.node.send_control_to_member(team.group, channel.peer.0, control, answers)?;
            }
            Action::Rebuild(rebuild) => team.node.rebuild(team.group, &rebuild)?,
            Action::Stage { stage: Stage::Complete, .. } => self.done.complete = self.began.elapsed(),
            Action::Stage { stage: Stage::Closed, .. } => {
                self.done.closed = self.began.elapsed();
                self.closed = Some(now);
            }
            // Control messages of a group need no channels.
            _ => {}
        }
        Ok(())
    }

    /// Passes a completion on, if it belongs to the operation.
    fn event(&mut self, completion: Completion) -> Result<Option<Event>, GroupError> {
        Ok(match completion {
            Completion::Chunk { from, task, chunk, plane, tree, trimmed, last, .. } => {
                self.team.count_chunk(plane);
                let tree = tree.map(|tree| tree % u32::from(self.team.options.trees));
                Some(Event::Chunk { from: HostId(from), task, chunk, plane, tree, trimmed, last })
            }
            Completion::Cast { to, task, end, .. } => Some(Event::Cast { to, task, end }),
            Completion::Word { from, control, to_all: false, .. } => match MulticastMessage::read(&control) {
                Some((task, _)) if task == self.op.task => Some(Event::Control { from: HostId(from), control }),
                _ => {
                    self.team.handle_control(from, &control)?;
                    None
                }
            },
            other => {
                self.team.set_aside(other)?;
                None
            }
        })
    }
}
