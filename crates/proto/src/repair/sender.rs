//! The sender of a repair scheme. It cuts posted messages into stretches, and sends the chunks again that control
//! messages of the receiver or timeouts report as lost.

mod controls;
mod flight;
mod timeouts;

use super::choice::{Choices, Chooser, Runs};
use super::layout::Layout;
use super::timers::{SILENCE_MIN, SILENT_TIMEOUTS, Timing};
use super::{Plan, Scheme};
use crate::congestion::LossKind;
use crate::control_message::ControlMessage;
use crate::environment::{Environment, TransportConfig};
use crate::message::{Message, Segment};
use crate::packet::{Ack, Flags, Nack, PathId};
use crate::partial::{SendTable, Stretch, chunks_of, extend};
use crate::reliability::{Invalid, Lost, Reliability, Settled};
use crate::units::{Bytes, Span, Time};
use flight::Flight;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A sender's knowledge of a chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// When its last packet was sent; [`Time::NEVER`] while it waits to be sent again.
    sent_at: Time,
    /// When it is sent again, unless it has arrived by then.
    due: Time,
    path: PathId,
    /// Wire bytes of it in flight.
    in_flight: u32,
    /// The number of times it was sent, saturating.
    tries: u8,
    is_there: bool,
}

const UNSENT: Chunk =
    Chunk { sent_at: Time::ZERO, due: Time::NEVER, path: PathId(0), in_flight: 0, tries: 0, is_there: false };

/// A stretch that is being sent.
#[derive(Debug)]
struct Sending {
    /// The message, counted from the connection's first.
    post: u64,
    /// Its group of the message, and whether it is parity.
    group: u32,
    parity: bool,
    coded: bool,
    chunks: u32,
    packets: u32,
    /// Packets of a chunk.
    size: u32,
    /// Packets that have left for the first time.
    sent: u32,
    /// The number of chunks that have arrived, and the index below which all have arrived.
    count: u32,
    below: u32,
    /// The state of each chunk, while the receiver reports single chunks: always without a code; with a code only after
    /// a NACK.
    states: Vec<Chunk>,
}

impl Sending {
    /// Begins to keep a state for each chunk: the first control message that names single chunks of a coded stretch has
    /// arrived. All of its chunks were sent long ago.
    fn separate_chunks(&mut self) {
        self.states = vec![Chunk { tries: 1, ..UNSENT }; self.chunks as usize];
    }
}

/// A message that is being sent.
#[derive(Debug)]
struct Post {
    message: Message,
    plan: Plan,
    number: u8,
    layout: Layout,
    packets: u32,
    tail: u16,
    /// The number of stretches that have begun, and the sequence number of the first one.
    begun: u32,
    first: u64,
    /// Groups that are over.
    over: u32,
    /// The number of packets that the receiver has reported as lost, and the number of runs that they form.
    lost: u32,
    runs: u32,
    /// With a code: when to ask the receiver which groups have arrived.
    ask_at: Time,
}

/// The sender's half of a repair scheme.
#[derive(Debug)]
pub struct RepairSender {
    scheme: Scheme,
    table: SendTable,
    timing: Timing,
    /// Time of a packet at line rate.
    packet: Span,
    chooser: Option<Box<Chooser>>,
    runs: Runs,
    base_rtt: Span,
    posts: VecDeque<Post>,
    /// The number of the first message in `posts`, and the number of messages whose stretches have all begun.
    first_post: u64,
    begun: usize,
    /// Stretches in order; the first is number `first`.
    out: VecDeque<Option<Sending>>,
    first: u64,
    /// The ends of the chunks' timeouts, in order of time; an entry that would break this order is in `patient`.
    timeouts: VecDeque<(Time, u64, u32)>,
    patient: BinaryHeap<Reverse<(Time, u64, u32)>>,
    in_flight: u64,
    /// If the receiver counts arriving packets: the packets on their way, from which congestion control takes the bytes
    /// in flight.
    flight: Option<Box<Flight>>,
    /// Rounds of timeouts since the last measured round trip, and when the last round began. Random losses leave some
    /// round trips to measure; on a path that has become longer than the timeout there is none, and the rounds add up.
    rounds: u8,
    last_round: Time,
    /// When the last control message of the peer arrived, or when the first packet after a rest left.
    heard: Time,
    /// Nothing was sent since the last message ended, so the peer owes no control message.
    rests: bool,
    finished: VecDeque<Message>,
    lost: Vec<Lost>,
    controls: VecDeque<ControlMessage>,
    failed: bool,
    /// The earliest `ask_at` of all messages.
    ask_at: Time,
}

impl RepairSender {
    pub(crate) fn new(scheme: Scheme, transport: &TransportConfig, environment: &Environment) -> RepairSender {
        RepairSender {
            scheme,
            // Receives are posted by rule: each slot has one as soon as the one before it is over.
            table: SendTable::new(transport.mtu, u64::MAX),
            timing: scheme.timing(environment),
            packet: environment.rate.time_for(environment.packet),
            chooser: scheme.chooser(transport.mtu).map(Box::new),
            runs: Runs::default(),
            base_rtt: environment.base_rtt,
            posts: VecDeque::new(),
            first_post: 0,
            begun: 0,
            out: VecDeque::new(),
            first: 0,
            timeouts: VecDeque::new(),
            patient: BinaryHeap::new(),
            in_flight: 0,
            flight: None,
            rounds: 0,
            last_round: Time::ZERO,
            heard: Time::ZERO,
            rests: true,
            finished: VecDeque::new(),
            lost: Vec::new(),
            controls: VecDeque::new(),
            failed: false,
            ask_at: Time::NEVER,
        }
    }

    /// Tells the sender that the receiver counts arriving packets. Must be the first call.
    pub(crate) fn count_arrivals(&mut self, environment: &Environment) {
        self.flight = Some(Box::new(Flight::new(environment.packet, environment.base_rtt)));
    }

    #[inline]
    fn get(&self, sequence: u64) -> Option<&Sending> {
        self.out.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, sequence: u64) -> Option<&mut Sending> {
        self.out.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)?.as_mut()
    }

    fn post_mut(&mut self, post: u64) -> &mut Post {
        &mut self.posts[(post - self.first_post) as usize]
    }

    /// The stretch that a control message names.
    fn named(&self, sequence: u32) -> u64 {
        extend(sequence, self.first + self.out.len() as u64)
    }

    /// Begins stretches of posted messages while there are free slots.
    fn begin(&mut self) {
        while self.table.has_slot()
            && let Some(post) = self.posts.get_mut(self.begun)
        {
            let (group, parity) = post.layout.stretch(post.begun);
            let range = if parity { post.layout.parity(group) } else { post.layout.data(group) };
            let packets = range.len() as u32;
            let (message, whole, tail, plan) = (post.message.id, post.packets, post.tail, post.plan);
            let first = range.start;
            let stretch = Stretch { message, parity, plan: post.number, first, packets, whole, tail };
            let Ok(sequence) = self.table.begin(stretch) else { unreachable!("there is a slot") };
            if post.begun == 0 {
                post.first = sequence;
            }
            post.begun += 1;
            let data = post.first + u64::from(post.layout.place(group, false));
            let number = self.first_post + self.begun as u64;
            if post.begun == post.layout.stretches() {
                self.begun += 1;
            }
            let chunks = chunks_of(packets, plan.chunk);
            let states = if plan.code.is_none() { vec![UNSENT; chunks as usize] } else { Vec::new() };
            let (sent, count, below) = (0, 0, 0);
            self.out.push_back(Some(Sending {
                post: number,
                group,
                parity,
                coded: plan.code.is_some(),
                chunks,
                packets,
                size: plan.chunk,
                sent,
                count,
                below,
                states,
            }));
            if parity && self.get(data).is_none() {
                // Its group is over already, so its parity is not needed.
                self.forget(sequence);
            } else {
                self.table.push(sequence, 0, packets, false);
            }
        }
        self.retire();
    }

    /// Takes a stretch out of the tables.
    fn forget(&mut self, sequence: u64) -> Option<Sending> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let sending = self.out.get_mut(at)?.take()?;
        self.table.release(sequence);
        while let Some(None) = self.out.front() {
            self.out.pop_front();
            self.first += 1;
        }
        Some(sending)
    }

    /// Moves messages that are over to `finished`, in the order of posting.
    fn retire(&mut self) {
        while self.begun > 0 && self.posts.front().is_some_and(|post| post.over == post.layout.groups()) {
            self.finished.extend(self.posts.pop_front().map(|post| post.message));
            self.first_post += 1;
            self.begun -= 1;
        }
    }

    /// Notes that a chunk has arrived. Adds the packets and bytes that are no longer in flight to `settled`.
    fn settle(&mut self, sequence: u64, chunk: u32, settled: &mut Settled) {
        let Some(sending) = self.get_mut(sequence) else { return };
        let packets = sending.size.min(sending.packets - chunk * sending.size);
        let Some(state) = sending.states.get_mut(chunk as usize).filter(|state| !state.is_there) else { return };
        state.is_there = true;
        let news = state.tries == 1 && !sending.coded;
        let bytes = u64::from(std::mem::take(&mut state.in_flight));
        sending.count += 1;
        self.in_flight -= bytes;
        settled.bytes += Bytes(bytes);
        settled.packets += packets;
        if news && let Some(chooser) = &mut self.chooser {
            chooser.learn(packets, 0, 0);
        }
    }

    /// Ends a stretch: frees its slot, and adds the packets and bytes that are no longer in flight to `settled`.
    fn finish(&mut self, sequence: u64, settled: &mut Settled) {
        let Some(sending) = self.forget(sequence) else { return };
        let bytes = sending.states.iter().map(|s| u64::from(s.in_flight)).sum::<u64>();
        self.in_flight -= bytes;
        settled.bytes += Bytes(bytes);
        settled.packets += sending.packets.saturating_sub(sending.count * sending.size);
        if !sending.parity {
            if sending.coded
                && let Some(chooser) = &mut self.chooser
            {
                chooser.learn(sending.packets, 0, 0);
            }
            let post = self.post_mut(sending.post);
            post.over += 1;
            if post.over == post.layout.groups() {
                post.ask_at = Time::NEVER;
            }
        }
        self.begin();
    }

    /// Ends both stretches of a group.
    fn finish_group(&mut self, post: u64, group: u32, settled: &mut Settled) {
        let &mut Post { first, layout, plan, .. } = self.post_mut(post);
        // The data last: with them, the message may be over.
        if plan.code.is_some() {
            self.finish(first + u64::from(layout.place(group, true)), settled);
        }
        self.finish(first + u64::from(layout.place(group, false)), settled);
    }

    /// The message and the group of a stretch, if the stretch is being sent.
    fn post_of(&self, sequence: u64) -> Option<(u64, u32)> {
        self.get(sequence).map(|sending| (sending.post, sending.group))
    }

    /// Puts a chunk into the queue to be sent again; false if it is not. If a control message says that the chunk is
    /// lost, but it was sent less than a round trip ago, it is not sent again.
    fn send_again(&mut self, now: Time, sequence: u64, chunk: u32, kind: LossKind) -> bool {
        // Queues and sleeping hosts make a round trip longer than the shortest one, so a chunk that is only late must
        // not count as lost.
        let rtt = self.base_rtt.max(self.timing.rtt) + self.timing.late;
        let Some(sending) = self.get_mut(sequence) else { return false };
        let size = sending.size;
        let packets = size.min(sending.packets - chunk * size);
        if sending.sent < chunk * size + packets {
            // It has not left for the first time.
            return false;
        }
        if sending.states.is_empty() {
            sending.separate_chunks();
        }
        let state = &mut sending.states[chunk as usize];
        // A chunk that is already queued to be sent again is not queued twice.
        let waits = state.sent_at == Time::NEVER;
        if state.is_there || waits || kind == LossKind::Inferred && state.sent_at + rtt > now {
            return false;
        }
        let (path, bytes) = (state.path, u64::from(std::mem::take(&mut state.in_flight)));
        state.sent_at = Time::NEVER;
        let news = state.tries == 1 && !sending.coded;
        if news && let Some(chooser) = &mut self.chooser {
            chooser.learn(packets, 1, u32::from(self.runs.begins(sequence, chunk)));
        }
        self.in_flight -= bytes;
        self.lost.push(Lost { path, bytes: Bytes(bytes), kind });
        self.table.push(sequence, chunk * size, chunk * size + packets, true);
        true
    }

    /// The timeout of a chunk ended before all of its packets were sent in this round: those that were sent no longer
    /// count as in flight.
    fn give_up_part(&mut self, sequence: u64, chunk: u32) {
        let Some(state) = self.get_mut(sequence).and_then(|s| s.states.get_mut(chunk as usize)) else { return };
        let (path, bytes) = (state.path, u64::from(std::mem::take(&mut state.in_flight)));
        self.in_flight -= bytes;
        self.lost.push(Lost { path, bytes: Bytes(bytes), kind: LossKind::TimedOut });
    }

    fn fail(&mut self) {
        self.failed = true;
        self.table.abandon();
        self.posts.clear();
        self.first += self.out.len() as u64;
        self.out.clear();
        self.begun = 0;
        self.timeouts.clear();
        self.patient.clear();
        self.in_flight = 0;
        if let Some(flight) = &mut self.flight {
            flight.give_up();
        }
    }

    /// If no control message reports a packet for this long, the packet no longer counts as in flight.
    fn silence(&self) -> Span {
        self.timing.rto() * 2
    }

    /// When to give up, unless a control message of the peer arrives.
    fn give_up_at(&self) -> Time {
        if self.out.is_empty() || self.rests {
            Time::NEVER
        } else {
            self.heard + (self.timing.rto() * SILENT_TIMEOUTS).max(SILENCE_MIN)
        }
    }

    /// The choices so far, if there is a choice.
    pub fn choices(&self) -> Option<&Choices> {
        self.chooser.as_ref().map(|chooser| chooser.choices())
    }
}

impl Reliability for RepairSender {
    fn open(&mut self, message: Message) {
        self.rests |= self.out.is_empty();
        let (packets, tail) = self.table.cut(message.bytes);
        let number = match &mut self.chooser {
            Some(chooser) => chooser.choose(packets, self.packet, self.timing.rtt),
            None => 0,
        };
        let plan = self.scheme.plan(number).expect("the plan of a choice");
        let layout = plan.layout(packets);
        self.posts.push_back(Post {
            message,
            plan,
            number,
            layout,
            packets,
            tail,
            begun: 0,
            first: 0,
            over: 0,
            lost: 0,
            runs: 0,
            ask_at: Time::NEVER,
        });
        self.begin();
    }

    #[inline]
    fn has_next(&self) -> bool {
        self.table.has_next()
    }

    fn is_held(&self) -> bool {
        self.begun < self.posts.len()
    }

    #[inline]
    fn next(&mut self, _now: Time) -> Option<Segment> {
        self.table.take_next()
    }

    fn on_sent(&mut self, now: Time, segment: &Segment, path: PathId, bytes: Bytes) {
        let sequence = extend(segment.psn as u32, self.first + self.out.len() as u64);
        let Some(whole) = segment.whole else { unreachable!("packets of stretches only") };
        if let Some(flight) = &mut self.flight {
            flight.leave(now, sequence, whole.packet, segment.again);
        }
        // While there are new packets to send, the peer owes no control message.
        if (self.rests || !segment.again) && self.heard < now {
            self.heard = now;
        }
        self.rests = false;
        let Some(first) = self.table.stretch(sequence).map(|stretch| stretch.first) else { return };
        let packet = whole.packet - first;
        let ask_at = now + self.timing.ask_after();
        let Some(sending) = self.get_mut(sequence) else { return };
        if !segment.again {
            sending.sent += 1;
        }
        let size = sending.size;
        let chunk = packet / size;
        let ends = packet + 1 == ((chunk + 1) * size).min(sending.packets);
        let (all_sent, post) = (sending.sent == sending.packets, sending.post);
        // A chunk that parity covers does not count as in flight, because no control message reports it before its
        // group is over. A chunk that had already arrived when it was sent again does not count either.
        if let Some(state) = sending.states.get_mut(chunk as usize).filter(|state| !state.is_there) {
            // A window may close within a chunk, so the timeout starts with the chunk's first packet and starts again
            // with its last one.
            let begins = state.in_flight == 0;
            state.in_flight += bytes.0 as u32;
            state.path = path;
            if ends {
                state.tries = state.tries.saturating_add(1);
                state.sent_at = now;
            }
            let tries = state.tries;
            if begins || ends {
                let due = now + self.timeout_of(tries, path);
                self.push_timeout(due, sequence, chunk);
            }
            self.in_flight += bytes.0;
        }
        if all_sent && self.post_mut(post).plan.code.is_some() {
            self.post_mut(post).ask_at = ask_at;
            self.ask_at = self.ask_at.min(ask_at);
        }
    }

    fn on_ack(&mut self, _: Time, _: &Ack, _: Flags, _: Bytes) -> Result<Settled, Invalid> {
        Err(Invalid::BeyondSent)
    }

    fn on_nack(&mut self, _: Time, _: &Nack, _: Flags) -> Result<Settled, Invalid> {
        Err(Invalid::BeyondSent)
    }

    fn on_control(&mut self, now: Time, control: &ControlMessage, _: Flags) -> Result<Settled, Invalid> {
        let mut settled = Settled::default();
        match control {
            ControlMessage::Have(have) => self.on_have(now, have, &mut settled),
            ControlMessage::Recovered(have) => self.on_recovered(have, &mut settled),
            ControlMessage::Missing(missing) => self.on_missing(now, missing),
            ControlMessage::Unknown { sequence } => self.on_unknown(now, self.named(*sequence)),
            ControlMessage::Over { sequence, whole } => self.on_over(self.named(*sequence), *whole, &mut settled),
            ControlMessage::Heard(heard) => return self.on_heard(now, heard),
            ControlMessage::Custom { .. }
            | ControlMessage::Clear { .. }
            | ControlMessage::Credit { .. }
            | ControlMessage::CreditRequest { .. }
            | ControlMessage::Ask { .. } => {
                return Err(Invalid::BeyondSent);
            }
        }
        self.heard = self.heard.max(now);
        if self.flight.is_some() {
            // `ControlMessage::Heard` reports the bytes and the round trip; other control messages must not count them
            // twice.
            settled = Settled { packets: settled.packets, ..Settled::default() };
        }
        Ok(settled)
    }

    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        self.controls.pop_front().map(|control| (control, Flags::NONE))
    }

    fn on_timeout(&mut self, now: Time) {
        if self.give_up_at() <= now {
            return self.fail();
        }
        while let Some((at, sequence, chunk)) = self.take_timeout(now) {
            let Some(sending) = self.get(sequence) else { continue };
            let Some(state) = sending.states.get(chunk as usize).filter(|s| !s.is_there) else { continue };
            // If the chunk was sent again since this timeout began, a later timeout is valid.
            if state.due == at {
                if now >= self.last_round + self.timing.rto() {
                    (self.rounds, self.last_round) = (self.rounds.saturating_add(1), now);
                }
                if !self.send_again(now, sequence, chunk, LossKind::TimedOut) {
                    self.give_up_part(sequence, chunk);
                }
            }
        }
        if self.ask_at <= now {
            self.ask(now);
        }
        let timeout = self.silence();
        if let Some(flight) = self.flight.as_mut().filter(|flight| flight.deadline(timeout) <= now) {
            flight.give_up();
        }
    }

    fn deadline(&self) -> Time {
        let silence = self.flight.as_ref().map_or(Time::NEVER, |flight| flight.deadline(self.silence()));
        if self.out.is_empty() {
            return silence;
        }
        self.next_timeout().min(self.ask_at).min(self.give_up_at()).min(silence)
    }

    fn take_lost(&mut self) -> Option<Lost> {
        self.lost.pop()
    }

    fn take_finished(&mut self) -> Option<Message> {
        self.finished.pop_front()
    }

    fn in_flight(&self) -> Bytes {
        Bytes(self.flight.as_ref().map_or(self.in_flight, |flight| flight.bytes()))
    }

    fn failed(&self) -> bool {
        self.failed
    }
}
