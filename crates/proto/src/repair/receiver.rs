//! The receiver of a repair scheme. It reads the bitmaps, acknowledges chunks, names lost ones, and reports when a
//! message is whole or can be rebuilt.

mod hearing;
mod incoming;

use super::holes::Report;
use super::layout::Layout;
use super::timers::{SECOND_COPY, Timing};
use super::{Plan, Scheme};
use crate::control_message::ControlMessage;
use crate::environment::{Environment, TransportConfig};
use crate::packet::{Ack, Data, Flags, Header, MessageId, Part, PathId};
use crate::partial::{Placed, Progress, ReceiveTable, SLOTS, truncated};
use crate::reliability::{Arrival, Invalid, Receiver};
use crate::units::{Span, Time};
use hearing::Hearing;
use incoming::{Gathering, Incoming};
use std::collections::{BTreeMap, VecDeque};

/// At most this many control messages wait to be sent; further ones are dropped, as a network may do. Ours.
const LETTERS_MAX: usize = 65_536;

/// The longest sending time that a message's claimed length can stand for, in the timeout after which its missing
/// chunks are asked for. Ours.
const SENDING_MAX: Span = Span::from_ms(3_600_000);

/// A group of a coded message that is over, with the chunks that arrived. The world, which has the bytes, rebuilds the
/// missing chunks.
#[derive(Clone, Debug)]
pub struct EndedGroup {
    /// The sender's number for the message.
    pub message: MessageId,
    /// Bytes of the message.
    pub bytes: u64,
    /// How the message is cut.
    pub layout: Layout,
    /// Which group it is.
    pub group: u32,
    /// The progress of its data; `None` if nothing arrived.
    pub data: Option<Progress>,
    /// The progress of its parity; `None` if nothing arrived.
    pub parity: Option<Progress>,
    /// Bytes of its data that did not arrive.
    pub missing: u64,
}

/// The receiver's half of a repair scheme.
#[derive(Debug)]
pub struct RepairReceiver {
    scheme: Scheme,
    /// The number of chunks, in addition to the plan's `reorder`, that may overtake a chunk by other ports.
    overtaking: u32,
    table: ReceiveTable,
    timing: Timing,
    /// Time of a packet at line rate.
    packet: Span,
    mtu: u64,
    incoming: BTreeMap<u32, Incoming>,
    /// Whole messages that wait for an earlier message which is not whole, by their first stretch; and the first
    /// stretch of the next message to report.
    whole: BTreeMap<u64, (MessageId, u64, u32)>,
    told: u64,
    received: VecDeque<(MessageId, u64)>,
    /// Bytes that did not arrive and can be rebuilt, since the last `take_rebuilt`.
    rebuilt: u64,
    /// Groups of coded messages that are over, if `keep_ended` was called.
    ended: Option<VecDeque<EndedGroup>>,
    controls: VecDeque<ControlMessage>,
    /// Control messages to send a second time, and when.
    copies: VecDeque<(Time, ControlMessage)>,
    /// For each slot, when a late packet or a question was last answered.
    answered: Vec<Time>,
    /// A marked packet arrived, and no control message has echoed the mark yet.
    marked: bool,
    /// The counts of arriving packets, if the sender wants them.
    hearing: Option<Hearing>,
    next_at: Time,
}

fn push(controls: &mut VecDeque<ControlMessage>, control: ControlMessage) {
    if controls.len() < LETTERS_MAX {
        controls.push_back(control);
    }
}

impl RepairReceiver {
    pub(crate) fn new(scheme: Scheme, transport: &TransportConfig, environment: &Environment) -> RepairReceiver {
        let timing = scheme.timing(environment);
        RepairReceiver {
            scheme,
            overtaking: 2 * u32::from(environment.ports),
            table: ReceiveTable::new(transport.mtu, 1),
            timing,
            packet: environment.rate.time_for(environment.packet),
            mtu: u64::from(transport.mtu),
            incoming: BTreeMap::new(),
            whole: BTreeMap::new(),
            told: 0,
            received: VecDeque::new(),
            rebuilt: 0,
            ended: None,
            controls: VecDeque::new(),
            copies: VecDeque::new(),
            answered: Vec::new(),
            marked: false,
            hearing: None,
            next_at: Time::NEVER,
        }
    }

    /// Counts arriving packets and reports them to the sender from now on. Must be the first call.
    pub(crate) fn count_arrivals(&mut self) {
        self.timing.hold_back();
        self.hearing = Some(Hearing::new(self.timing.report_interval(self.packet)));
    }

    /// The progress of a stretch that is not over.
    pub fn progress(&self, sequence: u64) -> Option<&Progress> {
        self.table.progress(sequence)
    }

    /// The plan with this number, with the overtaking by this receiver's ports included.
    fn plan(&self, number: u8) -> Option<Plan> {
        let plan = self.scheme.plan(number)?;
        Some(Plan { reorder: plan.reorder.map(|chunks| chunks + self.overtaking), ..plan })
    }

    /// Keeps groups that are over until they are taken.
    pub fn keep_ended(&mut self) {
        self.ended.get_or_insert_default();
    }

    /// Takes the next group of a coded message that is over, if they are kept. All groups of a message come before the
    /// message counts as received.
    pub fn take_ended(&mut self) -> Option<EndedGroup> {
        self.ended.as_mut()?.pop_front()
    }

    /// Posts the receive of a stretch if its slot is free: a scheme posts receives by rule. False if no message can
    /// have this part.
    fn post(&mut self, now: Time, part: &Part, sequence: u64, first: u64, plan: Plan, packets: u32) -> bool {
        let message = { part.message }.0;
        let fits =
            |known: &Incoming| known.first == first && known.packets == part.packets && known.number == part.plan;
        if self.incoming.get(&message).is_some_and(|known| !fits(known))
            || !self.table.open(sequence, packets, plan.chunk)
        {
            return false;
        }
        self.incoming.entry(message).or_insert_with(|| Incoming {
            plan,
            number: part.plan,
            layout: plan.layout(part.packets),
            packets: part.packets,
            bytes: u64::from(part.packets - 1) * self.mtu + u64::from(part.tail),
            first,
            started: now,
            last_new: now,
            groups: BTreeMap::new(),
            lost: 0,
            runs: 0,
            below: 0,
            above: Vec::new(),
            next_at: Time::NEVER,
        });
        true
    }

    /// Answers a packet or a question about a stretch that is over, at most four times in a round trip.
    fn answer(&mut self, now: Time, sequence: u64, control: ControlMessage) {
        let at = (sequence % SLOTS) as usize;
        if self.answered.is_empty() {
            self.answered = vec![Time::NEVER; SLOTS as usize];
        }
        let last = &mut self.answered[at];
        if *last == Time::NEVER || now.since(*last) >= Span(self.timing.rtt.0 / 4) {
            *last = now;
            push(&mut self.controls, control);
        }
    }

    /// Notes a packet that arrived for a group: a new one, or a duplicate of chunk `duplicate`.
    fn gather(
        &mut self,
        now: Time,
        message: u32,
        group: u32,
        parity: bool,
        chunk: Option<u32>,
        duplicate: Option<u32>,
    ) {
        let RepairReceiver { table, timing, controls, incoming, .. } = self;
        let Some(incoming) = incoming.get_mut(&message) else { return };
        let Incoming { layout, first, plan, .. } = *incoming;
        let gathering = incoming.groups.entry(group).or_insert_with(|| Gathering::new(now, &plan, layout.group(group)));
        let data_at = first + u64::from(layout.place(group, false));
        let parity_at = first + u64::from(layout.place(group, true));
        let data = table.progress(data_at);
        if let Some(chunk) = duplicate {
            if !parity && (plan.code.is_none() || gathering.repairing) {
                gathering.acknowledger.note(now, chunk, false, now + timing.ack_interval());
            }
        } else {
            incoming.last_new = now;
            if !parity && gathering.repairing {
                gathering.report_at = now + timing.rto();
            }
        }
        let over = match plan.code {
            None => {
                let Some(data) = data else { return };
                if let Some(chunk) = chunk {
                    gathering.acknowledger.note(now, chunk, true, now + timing.ack_interval());
                }
                if let Some(holes) = &mut gathering.holes {
                    match duplicate {
                        None => holes.note(now, chunk, data),
                        Some(_) => holes.note_copy(now),
                    }
                    if holes.deadline(timing, data) <= now {
                        holes.handle_timeout(now, data_at, data, timing, &mut |control| push(controls, control));
                    }
                }
                data.is_whole()
            }
            Some(_) => {
                if let Some(chunk) = chunk {
                    let sizes = gathering.sizes;
                    let s = if parity { sizes.submessage_of_parity(chunk) } else { sizes.submessage_of(chunk) };
                    let s_at = s as usize;
                    gathering.have[s_at] += 1;
                    let parities = table.progress(parity_at);
                    if !gathering.repaired[s_at]
                        && gathering.have[s_at] >= sizes.data_in(s)
                        && sizes.repairs(
                            s,
                            |chunk| data.is_some_and(|data| data.has_chunk(chunk)),
                            |chunk| parities.is_some_and(|parities| parities.has_chunk(chunk)),
                        )
                    {
                        gathering.repaired[s_at] = true;
                        gathering.unrepaired -= 1;
                    }
                    if !parity && gathering.repairing {
                        gathering.acknowledger.note(now, chunk, true, now + timing.ack_interval());
                    }
                }
                gathering.unrepaired == 0
            }
        };
        if over {
            self.end_group(now, message, group);
        }
        self.set_timer(message);
    }

    /// Ends a group: all of it has arrived or can be rebuilt.
    fn end_group(&mut self, now: Time, message: u32, group: u32) {
        let Some(incoming) = self.incoming.get_mut(&message) else { return };
        let data_at = incoming.first + u64::from(incoming.layout.place(group, false));
        let coded = incoming.plan.code.is_some();
        let control = if coded {
            let parity_at = incoming.first + u64::from(incoming.layout.place(group, true));
            let (data, parity) = (self.table.complete(data_at, true), self.table.complete(parity_at, true));
            if incoming.groups.get(&group).is_none_or(|gathering| !gathering.repairing) {
                incoming.count_lost(group, data.as_ref());
            }
            let missing = incoming.missing_bytes(group, data.as_ref(), self.mtu);
            self.rebuilt += missing;
            if let Some(ended) = &mut self.ended {
                let (message, bytes, layout) = (MessageId(message), incoming.bytes, incoming.layout);
                ended.push_back(EndedGroup { message, bytes, layout, group, data, parity, missing });
            }
            self.table.forget(parity_at);
            incoming.end_group(group);
            incoming.recovered()
        } else {
            // This is the last acknowledgement of this stretch: all chunks.
            let gathering = incoming.groups.get_mut(&group);
            let mut last = None;
            if let (Some(gathering), Some(data)) = (gathering, self.table.progress(data_at)) {
                gathering.acknowledger.acknowledge(now, data_at, data, &mut |control| last = Some(control));
            }
            incoming.end_group(group);
            let Some(control) = last else { return };
            control
        };
        self.table.forget(data_at);
        push(&mut self.controls, control);
        let (over, bytes) = (incoming.below == incoming.layout.groups(), incoming.bytes);
        if over || !coded {
            self.copies.push_back((now + SECOND_COPY, control));
            self.next_at = self.next_at.min(now + SECOND_COPY);
        }
        if over {
            let (first, stretches) = (incoming.first, incoming.layout.stretches());
            self.incoming.remove(&message);
            self.whole.insert(first, (MessageId(message), bytes, stretches));
            while let Some((message, bytes, stretches)) = self.whole.remove(&self.told) {
                self.received.push_back((message, bytes));
                self.told += u64::from(stretches);
            }
        }
    }

    /// Computes when the next timer of a message ends, and brings the receiver's deadline forward if needed.
    fn set_timer(&mut self, message: u32) {
        let Some(incoming) = self.incoming.get(&message) else { return };
        let at = self.timer_of(incoming);
        if let Some(incoming) = self.incoming.get_mut(&message) {
            incoming.next_at = at;
        }
        self.next_at = self.next_at.min(at);
    }

    fn timer_of(&self, incoming: &Incoming) -> Time {
        let mut at = Time::NEVER;
        let coded = incoming.plan.code.is_some();
        for (&group, gathering) in &incoming.groups {
            at = at.min(gathering.acknowledger.at).min(gathering.report_at);
            let data_at = incoming.first + u64::from(incoming.layout.place(group, false));
            if let (Some(holes), Some(data)) = (&gathering.holes, self.table.progress(data_at)) {
                at = at.min(holes.deadline(&self.timing, data));
            }
            if coded && !gathering.repairing {
                at = at.min(self.fallback_at(incoming, group));
            }
        }
        // The first group of which nothing has arrived.
        let next =
            incoming.under_way().find(|&group| !incoming.is_over(group) && !incoming.groups.contains_key(&group));
        match next {
            Some(group) if coded => at.min(self.fallback_at(incoming, group)),
            _ => at,
        }
    }

    /// The time after which parity counts as failed for a group that is still not repaired: the message's sending time
    /// and `grace` after its first packet, but not before `quiet` has passed without a new packet. SDR-RDMA, section 5:
    /// fallback timeout (FTO).
    fn fallback_at(&self, incoming: &Incoming, group: u32) -> Time {
        let sending = Span(self.packet.0.saturating_mul(incoming.layout.sent_with(group))).min(SENDING_MAX);
        let alone = incoming.started + sending + self.timing.grace();
        alone.max(incoming.last_new + self.timing.quiet())
    }

    /// Runs the timers of a message that have ended.
    fn handle_message_timeout(&mut self, now: Time, message: u32) {
        let Some(mut incoming) = self.incoming.remove(&message) else { return };
        let controls = &mut self.controls;
        let mut say = |control| push(controls, control);
        for (&group, gathering) in &mut incoming.groups {
            let data_at = incoming.first + u64::from(incoming.layout.place(group, false));
            let Some(data) = self.table.progress(data_at) else { continue };
            if gathering.acknowledger.at <= now {
                gathering.acknowledger.acknowledge(now, data_at, data, &mut say);
            }
            if let Some(holes) = &mut gathering.holes
                && holes.deadline(&self.timing, data) <= now
            {
                holes.handle_timeout(now, data_at, data, &self.timing, &mut say);
            }
        }
        if incoming.plan.code.is_some() {
            self.fall_back(now, &mut incoming);
        }
        incoming.next_at = self.timer_of(&incoming);
        self.incoming.insert(message, incoming);
    }

    /// For each group whose fallback time has come, asks the sender for the chunks that parity cannot repair.
    fn fall_back(&mut self, now: Time, incoming: &mut Incoming) {
        for group in incoming.under_way() {
            if incoming.is_over(group) {
                continue;
            }
            let due = match incoming.groups.get(&group) {
                Some(gathering) if gathering.repairing => gathering.report_at,
                _ => self.fallback_at(incoming, group),
            };
            if due > now {
                if incoming.layout.sent_with(group) > incoming.layout.sent_with(incoming.below) {
                    return;
                }
                continue;
            }
            let sizes = incoming.layout.group(group);
            let data_at = incoming.first + u64::from(incoming.layout.place(group, false));
            let plan = incoming.plan;
            let gathering = incoming.groups.entry(group).or_insert_with(|| Gathering::new(now, &plan, sizes));
            let again = std::mem::replace(&mut gathering.repairing, true);
            gathering.report_at = now + self.timing.rto();
            let data = self.table.progress(data_at);
            let controls = &mut self.controls;
            let mut say = |control| push(controls, control);
            let mut report = Report::new(data_at);
            for chunk in 0..sizes.chunks {
                let there = data.is_some_and(|data| data.has_chunk(chunk));
                if !gathering.repaired[sizes.submessage_of(chunk) as usize] && (!there || self.scheme.faithful) {
                    report.add(chunk, &mut say);
                }
            }
            report.finish(&mut say);
            if !again {
                incoming.count_lost(group, data);
            }
        }
    }
}

impl Receiver for RepairReceiver {
    fn on_data(&mut self, _: &Data, _: Flags, _: PathId, _: &mut Option<(Header, Flags)>) -> Result<Arrival, Invalid> {
        Err(Invalid::BeyondWindow)
    }

    fn on_part(&mut self, now: Time, part: &Part, flags: Flags) -> Result<Arrival, Invalid> {
        self.table.check(part)?;
        self.marked |= flags.has(Flags::CE);
        if flags.has(Flags::TRIMMED) {
            return Ok(Arrival::default());
        }
        if let Some(hearing) = &mut self.hearing {
            hearing.note(now, part, flags.has(Flags::RETRANSMITTED));
        }
        let Part { packet, packets, parity, message, .. } = *part;
        let sequence = self.table.full(part.sequence);
        let plan = self.plan(part.plan).ok_or(Invalid::BeyondWindow)?;
        let layout = plan.layout(packets);
        let group = layout.group_of(packet, parity).ok_or(Invalid::BeyondWindow)?;
        let first = sequence.checked_sub(u64::from(layout.place(group, parity))).ok_or(Invalid::BeyondWindow)?;
        let range = if parity { layout.parity(group) } else { layout.data(group) };
        let (at, of) = (packet - range.start, range.len() as u32);
        let mut placed = self.table.place(sequence, at, of, message)?;
        if placed == Placed::NotExpected {
            if !self.post(now, part, sequence, first, plan, of) {
                return Err(Invalid::BeyondWindow);
            }
            placed = self.table.place(sequence, at, of, message)?;
        }
        Ok(match placed {
            Placed::Fresh { chunk } => {
                self.gather(now, message.0, group, parity, chunk, None);
                Arrival { fresh: true, duplicate: false }
            }
            Placed::Duplicate => {
                self.gather(now, message.0, group, parity, None, Some(at / plan.chunk));
                Arrival { fresh: false, duplicate: true }
            }
            Placed::Late { whole } => {
                // Late parity needs no answer.
                if !parity {
                    self.answer(now, sequence, ControlMessage::Over { sequence: truncated(sequence), whole });
                }
                Arrival { fresh: false, duplicate: !parity }
            }
            Placed::NotExpected => Arrival::default(),
        })
    }

    fn on_control(&mut self, now: Time, control: &ControlMessage) -> Result<(), Invalid> {
        let ControlMessage::Ask { sequence: asked } = *control else { return Err(Invalid::BeyondWindow) };
        let sequence = self.table.full(asked);
        if let Some(whole) = self.table.over(sequence) {
            self.answer(now, sequence, ControlMessage::Over { sequence: asked, whole });
            return Ok(());
        }
        let of = |incoming: &&Incoming| {
            (incoming.first..incoming.first + u64::from(incoming.layout.stretches())).contains(&sequence)
        };
        let control = match self.incoming.values().find(of) {
            Some(incoming) if incoming.plan.code.is_some() => incoming.recovered(),
            // Without a code, the sender's own timeouts resend the chunks.
            Some(_) => return Ok(()),
            None => ControlMessage::Unknown { sequence: asked },
        };
        self.answer(now, sequence, control);
        Ok(())
    }

    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        let control = self.controls.pop_front()?;
        let marked = std::mem::take(&mut self.marked);
        Some((control, Flags::NONE.with_if(marked, Flags::MARKED)))
    }

    fn deadline(&self) -> Time {
        self.hearing.as_ref().map_or(self.next_at, |hearing| hearing.at.min(self.next_at))
    }

    fn on_timeout(&mut self, now: Time) {
        if let Some(control) = self.hearing.as_mut().and_then(|hearing| hearing.report(now)) {
            push(&mut self.controls, control);
        }
        if self.next_at > now {
            return;
        }
        while let Some(&(at, control)) = self.copies.front()
            && at <= now
        {
            self.copies.pop_front();
            push(&mut self.controls, control);
        }
        let due: Vec<u32> =
            self.incoming.iter().filter(|(_, i)| i.next_at <= now).map(|(&message, _)| message).collect();
        due.into_iter().for_each(|message| self.handle_message_timeout(now, message));
        let copies = self.copies.front().map_or(Time::NEVER, |copy| copy.0);
        self.next_at = self.incoming.values().map(|incoming| incoming.next_at).min().unwrap_or(Time::NEVER).min(copies);
    }

    fn on_probe(&mut self, _: u32, path: PathId, _: bool) -> (Ack, Flags) {
        (crate::partial::nothing_acknowledged(path), Flags::PROBE_ANSWER)
    }

    fn take_received(&mut self) -> Option<(MessageId, u64)> {
        self.received.pop_front()
    }

    fn take_rebuilt(&mut self) -> u64 {
        std::mem::take(&mut self.rebuilt)
    }

    fn cumulative(&self) -> u64 {
        self.table.posted()
    }

    fn on_base_rtt(&mut self, base_rtt: Span) {
        self.timing.rtt = self.timing.rtt.min(base_rtt);
    }
}
