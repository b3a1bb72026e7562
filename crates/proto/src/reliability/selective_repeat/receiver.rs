//! The receiver's half of selective repeat.

use super::SelectiveRepeatConfig;
use crate::bitmap::SlidingBitmap;
use crate::environment::TransportConfig;
use crate::packet::{Ack, Data, Flags, Header, MessageId, Nack, NackReason, PathId, Psn, SackBits};
use crate::reliability::{Arrival, Invalid, Received, Receiver};
use std::collections::VecDeque;

/// A value of `turn` that means: acknowledgements do not report the window in turn.
const NO_TURNS: u64 = u64::MAX;

/// MRC: a smaller packet counts as this many bytes towards the next acknowledgement.
const SMALL: u16 = 1024;

/// The receiver's half.
#[derive(Debug)]
pub struct SelectiveReceiver {
    bitmap: SlidingBitmap,
    unacknowledged: u32,
    every: u32,
    received_bytes: u64,
    ack_marked: bool,
    /// Acknowledge at once when a packet arrives ahead of a hole (IRN).
    holes: bool,
    /// Send a NACK when a packet lies beyond the window (MRC).
    refuses: bool,
    /// The first PSN that the next acknowledgement reports, if acknowledgements report the window in turn; [`NO_TURNS`]
    /// otherwise.
    turn: u64,
    started: bool,
    /// An acknowledgement was requested while packets were missing; it is sent again when they have arrived.
    request_open: bool,
    /// Last packets of messages that arrived while earlier packets are missing: (PSN, message, bytes), in order.
    ends: Vec<(u64, MessageId, u64)>,
    done: VecDeque<(MessageId, u64)>,
}

impl SelectiveReceiver {
    /// Nothing received.
    pub fn new(config: &SelectiveRepeatConfig, transport: &TransportConfig) -> SelectiveReceiver {
        SelectiveReceiver {
            bitmap: SlidingBitmap::new(config.window_psn),
            unacknowledged: 0,
            received_bytes: 0,
            every: transport.ack_every.0.min(u64::from(u32::MAX / 2)) as u32,
            ack_marked: transport.ack_marked,
            holes: config.holes,
            refuses: false,
            turn: if config.sack_rotates { 0 } else { NO_TURNS },
            started: false,
            request_open: false,
            ends: Vec::new(),
            done: VecDeque::new(),
        }
    }

    /// MRC's receiver: it sends a NACK for a packet beyond its window, and counts small packets as 1 KiB.
    pub(in crate::reliability) fn refusing(mut self) -> SelectiveReceiver {
        self.refuses = true;
        self
    }

    /// The address of the bitmap's word with the next packet.
    #[inline]
    pub(in crate::reliability) fn next_word(&self) -> *const u8 {
        self.bitmap.address()
    }

    /// The first PSN to report in the acknowledgement that packet `psn` causes.
    fn report_from(&mut self, psn: u64, pressing: bool) -> u64 {
        let first = self.bitmap.base() + 1;
        if self.turn == NO_TURNS {
            return if pressing { psn } else { psn.saturating_sub(63).max(first) };
        }
        // PSNs above `psn` have rarely arrived, so the turn starts again.
        let from = if self.turn < first || self.turn > psn { first } else { self.turn };
        self.turn = from + 64;
        from
    }

    /// Received bytes in units of 256 B; MRC has 24 bits for this count.
    fn received(&self) -> u32 {
        let received = self.received_bytes.div_ceil(256) as u32;
        if self.refuses { received & 0xff_ffff } else { received }
    }

    fn ack(&mut self, psn: u64, base: u64, flags: Flags, path: PathId) -> (Ack, Flags) {
        self.unacknowledged = 0;
        let ack = Ack {
            cumulative: Psn::new(self.bitmap.base()),
            sack_base: Psn::new(base),
            sack: SackBits::new(self.bitmap.window(base)),
            acked: Psn::new(psn),
            path,
            received: self.received(),
            out_of_order: self.bitmap.count().min(0xffff) as u16,
            range: 0,
        };
        let echo = Flags::NONE
            .with_if(flags.has(Flags::CE), Flags::MARKED)
            .with_if(flags.has(Flags::RETRANSMITTED), Flags::RETRANSMITTED);
        (ack, echo)
    }
}

impl Receiver for SelectiveReceiver {
    #[inline]
    fn on_data(
        &mut self,
        data: &Data,
        flags: Flags,
        path: PathId,
        answer: &mut Option<(Header, Flags)>,
    ) -> Result<Arrival, Invalid> {
        let before = self.bitmap.base();
        let psn = data.psn.extend(before);
        let mut arrival = Arrival::default();
        if psn >= before + u64::from(self.bitmap.limit()) {
            if !self.refuses {
                return Err(Invalid::BeyondWindow);
            }
            let nack = Nack { psn: data.psn, cumulative: Psn::new(before), path, reason: NackReason::BeyondWindow };
            *answer = Some((Header::Nack(nack), Flags::NONE));
            return Ok(arrival);
        }
        if flags.has(Flags::TRIMMED) {
            if !self.bitmap.contains(psn) {
                let echo = Flags::NONE
                    .with_if(flags.has(Flags::CE), Flags::MARKED)
                    .with_if(flags.has(Flags::TRIMMED_AT_LAST_HOP), Flags::TRIMMED_AT_LAST_HOP);
                let nack = Nack { psn: Psn::new(psn), cumulative: Psn::new(before), path, reason: NackReason::Missing };
                *answer = Some((Header::Nack(nack), echo));
            }
            return Ok(arrival);
        }
        if !self.bitmap.insert(psn) {
            arrival.duplicate = true;
            let base =
                if self.turn != NO_TURNS { self.report_from(psn, false) } else { before.max(psn.saturating_sub(63)) };
            let (ack, echo) = self.ack(psn, base, flags, path);
            *answer = Some((Header::Ack(ack), echo));
            return Ok(arrival);
        }
        arrival.fresh = true;
        self.received_bytes += u64::from(data.length);
        let counted = if self.refuses { data.length.max(SMALL) } else { data.length };
        self.unacknowledged += u32::from(counted);
        if flags.has(Flags::LAST) {
            let at = self.ends.partition_point(|&(p, _, _)| p < psn);
            self.ends.insert(at, (psn, data.message, data.end()));
        }
        let base = self.bitmap.base();
        if base > before && self.ends.first().is_some_and(|&(p, _, _)| p < base) {
            let complete = self.ends.partition_point(|&(p, _, _)| p < base);
            self.done.extend(self.ends.drain(..complete).map(|(_, message, bytes)| (message, bytes)));
        }
        let marked = self.ack_marked && flags.has(Flags::CE);
        let request = flags.has(Flags::ACK_REQUEST);
        // MRC: a retransmission is acknowledged at once, whether or not its sender asks for it.
        let again = self.refuses && flags.has(Flags::RETRANSMITTED);
        let drained = self.request_open && self.bitmap.count() == 0;
        let hole = self.holes && psn > base;
        self.request_open = (self.request_open || request) && self.bitmap.count() > 0;
        if marked || request || again || drained || hole || !self.started || self.unacknowledged >= self.every {
            let from = self.report_from(psn, marked || request);
            let (ack, echo) = self.ack(psn, from, flags, path);
            *answer = Some((Header::Ack(ack), echo.with_if(hole, Flags::HOLE)));
        }
        self.started = true;
        if !self.done.is_empty() && self.bitmap.count() == 0 {
            self.bitmap.release();
        }
        Ok(arrival)
    }

    fn on_probe(&mut self, number: u32, path: PathId, marked: bool) -> (Ack, Flags) {
        let first = self.bitmap.base() + 1;
        let number = if self.refuses { number & 0xffff } else { number };
        let from = match self.turn {
            NO_TURNS => first,
            _ => self.report_from(self.bitmap.highest().unwrap_or(first), false),
        };
        let (ack, flags) = self.ack(u64::from(number), from, Flags::NONE.with_if(marked, Flags::CE), path);
        (ack, flags.with(Flags::PROBE_ANSWER))
    }

    #[inline]
    fn take_received(&mut self) -> Option<(MessageId, u64)> {
        self.done.pop_front()
    }

    fn cumulative(&self) -> u64 {
        self.bitmap.base()
    }

    #[inline]
    fn held(&self) -> u32 {
        self.bitmap.count()
    }

    fn rest(&self) -> Option<Received> {
        let done = self.bitmap.count() == 0 && self.ends.is_empty() && self.done.is_empty();
        done.then(|| Received { next: self.bitmap.base(), bytes: self.received_bytes })
    }

    fn resume(&mut self, from: Received) {
        self.bitmap = SlidingBitmap::starting_at(from.next, self.bitmap.limit());
        self.received_bytes = from.bytes;
        self.started = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{MessageId, Offset, Wait};
    use crate::profile::Profile;

    /// Is the packet, of 1 KiB, acknowledged at once?
    fn answered(receiver: &mut SelectiveReceiver, psn: u64, flags: Flags) -> bool {
        let data = Data {
            psn: Psn::new(psn),
            message: MessageId(0),
            offset: Offset::new(psn * 1024),
            length: 1024,
            target: 0,
            wait: Wait::default(),
        };
        let mut answer = None;
        receiver.on_data(&data, flags, PathId::new(0, 0), &mut answer).expect("a packet within the window");
        answer.is_some()
    }

    #[test]
    fn mrcs_receiver_acknowledges_a_retransmission_at_once_even_if_nobody_asks() {
        let transport = Profile::preset("mrc").expect("a preset").transport;
        for mrc in [true, false] {
            let receiver = SelectiveReceiver::new(&SelectiveRepeatConfig::default(), &transport);
            let mut receiver = if mrc { receiver.refusing() } else { receiver };
            assert!(answered(&mut receiver, 0, Flags::NONE), "the first packet of all");
            assert!(!answered(&mut receiver, 1, Flags::NONE));
            assert_eq!(answered(&mut receiver, 2, Flags::RETRANSMITTED), mrc);
            assert!(!answered(&mut receiver, 3, Flags::NONE));
            assert!(answered(&mut receiver, 4, Flags::ACK_REQUEST));
        }
    }
}
