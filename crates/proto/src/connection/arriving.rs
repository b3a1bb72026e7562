//! Packets that arrive for a connection. Data goes to the receiver; acknowledgements and NACKs go to reliability,
//! congestion control and path selector, in this order.

use super::record::Record;
use super::{Connection, Replies};
use crate::congestion::{AckSample, Congestion};
use crate::control_message::ControlMessage;
use crate::packet::{Ack, Data, Flags, Header, Nack, NackReason, Packet, Part};
use crate::path::{PathFeedback, PathSelector};
use crate::reliability::{Receiver, Reliability, Settled};
use crate::telemetry::Telemetry;
use crate::units::{Bytes, Span, Time};

impl Connection {
    #[inline]
    pub(crate) fn handle_data(&mut self, now: Time, packet: &Packet, data: &Data, reply: Replies<'_>) -> bool {
        let whole = !packet.flags.has(Flags::TRIMMED);
        let mut answer = None;
        if let Some(paths) = self.record.paths.as_mut().filter(|_| !packet.flags.has(Flags::TRIMMED)) {
            paths.arrived(packet.path);
        }
        let arrival = self.receiver.on_data(data, packet.flags, packet.path, &mut answer);
        let Record { stats, waits, .. } = &mut *self.record;
        waits.arrived(data.wait);
        let Ok(arrival) = arrival else {
            stats.invalid += 1;
            stats.discarded += u64::from(whole);
            return false;
        };
        let marked = packet.flags.has(Flags::CE);
        if arrival.fresh {
            stats.delivered += 1;
            stats.delivered_bytes += u64::from(data.length);
            waits.last_arrival = now;
        } else {
            stats.duplicates += u64::from(arrival.duplicate);
            stats.discarded += u64::from(whole && !arrival.duplicate);
        }
        if marked || !whole {
            stats.marked += u64::from(marked);
            stats.trimmed += u64::from(!whole);
        }
        let shunned = arrival.fresh && self.shuns(packet.path, marked);
        if let Some((header, flags)) = answer {
            // The wire format carries either the mark or "always skip", not both.
            let skips = shunned && matches!(header, Header::Ack(_));
            let flags = if skips { Flags(flags.0 & !Flags::MARKED.0).with(Flags::ALWAYS_SKIP) } else { flags };
            let path = self.path.reply_path(now, packet.path);
            reply(self.control(path, flags, header));
        }
        let interval = self.profile.transport.cnp_interval;
        if marked
            && interval > Span::ZERO
            && (self.record.last_cnp == Time::NEVER || now.since(self.record.last_cnp) >= interval)
        {
            self.record.last_cnp = now;
            reply(self.control(packet.path, Flags::NONE, Header::Cnp));
        }
        arrival.fresh
    }

    /// As [`Connection::handle_data`], for a part of a message of a one-way connection.
    pub(crate) fn handle_part(&mut self, now: Time, packet: &Packet, part: &Part, reply: Replies<'_>) -> bool {
        let whole = !packet.flags.has(Flags::TRIMMED);
        let arrival = self.receiver.on_part(now, part, packet.flags);
        let Record { stats, waits, .. } = &mut *self.record;
        waits.arrived(part.wait);
        stats.marked += u64::from(packet.flags.has(Flags::CE));
        stats.trimmed += u64::from(!whole);
        let Ok(arrival) = arrival else {
            stats.invalid += 1;
            stats.discarded += u64::from(whole);
            return false;
        };
        if arrival.fresh {
            stats.delivered += 1;
            // Parity does not count as payload.
            stats.delivered_bytes += if part.parity { 0 } else { u64::from(part.length) };
            // Payload that parity rebuilds counts as delivered.
            stats.delivered_bytes += self.receiver.take_rebuilt();
            waits.last_arrival = now;
        } else {
            stats.duplicates += u64::from(arrival.duplicate);
            stats.discarded += u64::from(whole && !arrival.duplicate);
        }
        self.control_path = packet.path;
        self.take_controls(now, reply);
        arrival.fresh
    }

    /// A control message of the other end of a one-way connection arrived.
    pub(crate) fn handle_control(&mut self, now: Time, packet: &Packet, control: &ControlMessage, reply: Replies<'_>) {
        self.control_path = packet.path;
        if let ControlMessage::Ask { .. } = control {
            self.record.stats.invalid += u64::from(self.receiver.on_control(now, control).is_err());
        } else {
            let Ok(settled) = self.reliability.on_control(now, control, packet.flags) else {
                self.record.stats.invalid += 1;
                return;
            };
            self.refresh_outlook();
            let marked = packet.flags.has(Flags::MARKED);
            self.record.stats.acks += 1;
            self.record.stats.acks_marked += u64::from(marked);
            let feedback = if marked { PathFeedback::Marked } else { PathFeedback::Good };
            self.path.on_feedback(now, packet.path, feedback);
            self.after(now, settled, marked);
        }
        self.take_controls(now, reply);
    }

    /// Sends the control messages of both halves by the reply path of the last packet.
    pub(crate) fn take_controls(&mut self, now: Time, reply: Replies<'_>) {
        while let Some((control, flags)) = self.reliability.take_control().or_else(|| self.receiver.take_control()) {
            let path = self.path.reply_path(now, self.control_path);
            reply(self.control(path, flags, Header::Control(control)));
        }
    }

    pub(crate) fn handle_probe(&mut self, now: Time, packet: &Packet, number: u32, reply: Replies<'_>) {
        let (ack, flags) = self.receiver.on_probe(number, packet.path, packet.flags.has(Flags::CE));
        let path = self.path.reply_path(now, packet.path);
        reply(self.control(path, flags, Header::Ack(ack)));
    }

    #[inline]
    pub(crate) fn handle_ack(&mut self, now: Time, ack: &Ack, flags: Flags) {
        let Ok(settled) = self.reliability.on_ack(now, ack, flags, Bytes(self.window)) else {
            self.record.stats.invalid += 1;
            return;
        };
        self.refresh_outlook();
        let marked = flags.has(Flags::MARKED);
        self.record.stats.acks += 1;
        self.record.stats.acks_marked += u64::from(marked);
        let feedback = if marked { PathFeedback::Marked } else { PathFeedback::Good };
        let feedback = if flags.has(Flags::ALWAYS_SKIP) { PathFeedback::Shunned } else { feedback };
        if flags.has(Flags::PROBE_ANSWER) {
            self.path.on_probe_answer(now, ack.path, { ack.acked }.get(), feedback);
        } else {
            self.path.on_feedback(now, ack.path, feedback);
        }
        let settled = Settled { rtt: settled.rtt.map(|rtt| rtt.max(self.profile.transport.rtt_min)), ..settled };
        if let Some(rtt) = settled.rtt {
            if let Some(paths) = &mut self.record.paths {
                paths.measured(ack.path, rtt);
            }
            self.path.on_delay(now, ack.path, Span(rtt.0.saturating_sub(self.base_rtt.0)));
        }
        self.after(now, settled, marked);
    }

    fn after(&mut self, now: Time, settled: Settled, marked: bool) {
        if let Some(rtt) = settled.rtt.filter(|&rtt| rtt < self.base_rtt) {
            self.base_rtt = rtt;
            self.reliability.on_base_rtt(rtt);
            self.receiver.on_base_rtt(rtt);
            self.refresh_outlook();
        }
        if settled.packets > 0 {
            self.record.clock.heard = now;
        }
        let in_flight = self.in_flight();
        self.congestion.on_ack(&AckSample {
            now,
            rtt: settled.rtt,
            bytes: settled.bytes,
            packets: settled.packets,
            marked,
            lost: settled.lost,
            in_flight,
        });
        self.read_window();
        self.take_losses(now);
    }

    pub(crate) fn handle_nack(&mut self, now: Time, nack: &Nack, flags: Flags) {
        let Ok(settled) = self.reliability.on_nack(now, nack, flags) else {
            self.record.stats.invalid += 1;
            return;
        };
        self.refresh_outlook();
        self.record.stats.nacks += 1;
        if let Some(credit) = &mut self.credit {
            credit.sender.stop_speculating(now);
        }
        let marked = flags.has(Flags::MARKED);
        // A trim at the last hop is no fault of the path, because no other path would have helped. A receiver's
        // shortage is no fault of the path either.
        let elsewhere = flags.has(Flags::TRIMMED_AT_LAST_HOP) || nack.reason != NackReason::Missing;
        let feedback = match (elsewhere, marked) {
            (false, _) => PathFeedback::Trimmed,
            (true, true) => PathFeedback::Marked,
            (true, false) => PathFeedback::Good,
        };
        if let Some(paths) = self.record.paths.as_mut().filter(|_| nack.reason == NackReason::Missing) {
            paths.trimmed(nack.path);
        }
        self.path.on_feedback(now, nack.path, feedback);
        if settled.packets > 0 {
            self.after(now, settled, marked);
        } else {
            self.take_losses(now);
        }
    }

    /// The records of the packet that the next acknowledgement or NACK describes.
    pub(crate) fn handle_telemetry(&mut self, now: Time, telemetry: &Telemetry) {
        self.congestion.on_telemetry(now, telemetry);
    }

    pub(crate) fn handle_notification(&mut self, now: Time) {
        self.record.stats.notifications += 1;
        self.congestion.on_notification(now);
        self.read_window();
    }
}
