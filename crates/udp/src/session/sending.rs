//! The messages of ours on a connection: those that wait, those that the engine has, and the pace at which they leave.

use super::pacer::Pacer;
use super::posted::{Posted, Purpose};
use super::reads::Reading;
use super::window::WindowShare;
use super::{ONLY, is_long};
use crate::config::Config;
use crate::frame::Descriptor;
use crate::memory::Place;
use crate::plane::batch_of;
use std::collections::VecDeque;
use strandway_proto::profile::WireFormat;
use strandway_proto::read::{ReadLimits, Reader};
use strandway_proto::{Endpoint, Message, MessageId, Time};

/// Full batches that one connection sends per turn; ours.
const TURN_BATCHES: usize = 2;

/// The sending part of a connection.
pub(super) struct Sending {
    /// Sends that wait for a receive of the peer, requests that wait for answers to others, and operations behind them,
    /// in order.
    waiting: VecDeque<Posted>,
    /// Messages that the engine has, in order.
    flying: VecDeque<Posted>,
    /// The engine's number for the first of `flying`.
    first: u32,
    /// Unfinished sends, writes and answers that are too long to be urgent.
    long: usize,
    /// Our requests to read the peer's memory, and those of them that have arrived.
    pub(super) reader: Reader<Reading>,
    pub(super) unanswered: usize,
    /// The number of answers among `flying`.
    answers: usize,
    /// Sends that were given to the engine so far.
    sends: u32,
    /// Sends for which the peer has posted receives so far.
    credits: u32,
    /// Operations with an immediate that were posted so far, modulo 65,536.
    immediates: u16,
    /// Must packets leave in order? RoCEv2's receivers take a later packet for the sign of a loss.
    pub(super) in_order: bool,
    /// Traffic class of small and urgent datagrams.
    pub(super) control_class: u8,
    /// Packets that it sends before another connection has a turn. Whole batches, since a system call costs the same
    /// for a batch that is not full.
    pub(super) turn: usize,
    /// Present where a window is larger than the buffer of a receiving socket.
    pub(super) pacer: Option<Pacer>,
    /// Its part in a window that it shares.
    pub(super) window: WindowShare,
    /// The transport header of the packet that leaves.
    pub(super) header: Vec<u8>,
    /// Bytes of a full datagram.
    pub(super) datagram: usize,
}

impl Sending {
    /// `datagram`: bytes of a full datagram.
    pub(super) fn new(
        config: &Config,
        (format, datagram): (WireFormat, usize),
        reads: ReadLimits,
        pacer: Option<Pacer>,
    ) -> Sending {
        Sending {
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            first: 0,
            long: 0,
            reader: Reader::new(reads),
            unanswered: 0,
            answers: 0,
            sends: 0,
            credits: 0,
            immediates: 0,
            in_order: format == WireFormat::Rocev2,
            control_class: config.control_dscp << 2,
            turn: TURN_BATCHES * batch_of(datagram),
            pacer,
            window: WindowShare::default(),
            header: Vec::with_capacity(64),
            datagram,
        }
    }

    /// Unfinished operations of ours other than receives.
    pub(super) fn posted(&self) -> usize {
        self.waiting.len() + self.flying.len() - self.answers + self.unanswered
    }

    /// Posts a message behind all earlier ones. [`Sending::admit`] hands it to the engine.
    pub(super) fn push(&mut self, purpose: Purpose, place: Option<Place>, descriptor: Descriptor) {
        let immediates = self.immediates;
        let has_immediate =
            matches!(descriptor, Descriptor::Send { .. } | Descriptor::Write { immediate: Some(_), .. });
        self.immediates = immediates.wrapping_add(u16::from(has_immediate));
        self.long += usize::from(place.is_some_and(is_long));
        self.waiting.push_back(Posted { purpose, place, descriptor, immediates });
    }

    /// Hands the engine, in order, the messages that the peer has room for.
    pub(super) fn admit(&mut self, now: Time, endpoint: &mut Endpoint) {
        while let Some(posted) = self.waiting.front_mut() {
            if let Descriptor::Send { number } = &mut posted.descriptor {
                if self.sends == self.credits {
                    return;
                }
                *number = self.sends;
                self.sends = self.sends.wrapping_add(1);
            }
            if let Purpose::Request(number) = posted.purpose {
                let Some(next) = self.reader.poll_request() else { return };
                assert!(next == number, "requests leave in the order of posting");
            }
            let bytes = posted.bytes();
            self.post(now, endpoint, bytes);
            self.flying.extend(self.waiting.pop_front());
        }
    }

    /// Hands the engine an answer that counts as `claimed` bytes. It does not wait behind sends, which wait for
    /// receives of the peer.
    pub(super) fn answer(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        claimed: u64,
        place: Option<Place>,
        descriptor: Descriptor,
    ) {
        self.long += usize::from(place.is_some_and(is_long));
        self.answers += 1;
        let posted = Posted { purpose: Purpose::Answer(claimed), place, descriptor, immediates: self.immediates };
        self.post(now, endpoint, posted.bytes());
        self.flying.push_back(posted);
    }

    fn post(&mut self, now: Time, endpoint: &mut Endpoint, bytes: u64) {
        let id = MessageId(self.first.wrapping_add(self.flying.len() as u32));
        endpoint.post(now, ONLY, Message { id, bytes });
    }

    /// The engine has finished its oldest message, which has this number.
    pub(super) fn finish(&mut self, message: MessageId) -> Posted {
        assert!(message.0 == self.first, "messages finish in the order of posting");
        let Some(posted) = self.flying.pop_front() else {
            unreachable!("the engine finishes only operations that it has")
        };
        self.first = self.first.wrapping_add(1);
        self.long -= usize::from(posted.is_long());
        self.answers -= usize::from(matches!(posted.purpose, Purpose::Answer(_)));
        posted
    }

    /// The message of the engine with this number.
    pub(super) fn get(&self, message: u32) -> Option<&Posted> {
        self.flying.get(message.wrapping_sub(self.first) as usize)
    }

    /// May a packet of this message be urgent? Data that the peer may take for a sign of loss never overtakes other
    /// data of its connection.
    pub(super) fn is_urgent(&self, posted: &Posted) -> bool {
        self.long == 0 && !self.in_order && posted.is_small()
    }

    /// The peer has posted this number of receives so far, modulo 65,536. Returns true if these are more than known.
    pub(super) fn note_credits(&mut self, credits: u16) -> bool {
        // At most `Limits::operations` receives are open, so the difference stays far below half the range.
        let ahead = credits.wrapping_sub(self.credits as u16);
        if ahead < 1 << 15 {
            self.credits = self.credits.wrapping_add(u32::from(ahead));
        }
        ahead < 1 << 15
    }

    /// The memory that unfinished operations hold.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let places = self.waiting.iter().chain(&self.flying).filter_map(|posted| posted.place);
        places.chain(self.reader.iter().filter_map(|reading| reading.place))
    }
}

#[cfg(test)]
impl Sending {
    /// Messages that the engine has.
    pub(super) fn flying(&self) -> &VecDeque<Posted> {
        &self.flying
    }
}
