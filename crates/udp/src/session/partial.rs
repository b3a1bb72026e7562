//! Partial completion on sockets: the registered memory of the engine's streams and receives.
//!
//! The engine knows which packets have come; this module knows where their bytes belong. A receive has a place from the
//! time it is posted until it is completed. A packet is written only if the engine says that it is fresh. So a packet
//! that is late, repeated or of another generation never touches a buffer that was given back or posted again.

use super::{NodeContext, ONLY, Session};
use crate::completion::Completion;
use crate::error::Error;
use crate::handles::Operation;
use crate::memory::{Memory, Place};
use std::collections::VecDeque;
use std::ops::Range;
use strandway_proto::packet::{Header, Part};
use strandway_proto::partial::{Progress, SEQUENCES, SLOTS};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::{Handled, Message, MessageId, Packet, Profile, Time};

/// The memory of a connection whose reliability is `partial`.
pub(super) struct Partial {
    /// The engine's count of the first entry of `outgoing`.
    first: u64,
    /// The places of the bytes of streams and one-shots that have not ended; `None` for those that have.
    outgoing: VecDeque<Option<Place>>,
    /// One-shots with packets that have not left, in order, with their counts.
    once: VecDeque<(Operation, u64)>,
    /// Open receives, by slot.
    rooms: Vec<Option<Room>>,
    /// Open receives that have got at least one packet.
    begun: usize,
}

/// An open receive.
#[derive(Clone, Copy)]
struct Room {
    /// The engine's number of the receive.
    receive: u64,
    /// Where the bytes of its message belong.
    place: Place,
}

/// The slot of a count. The count on the wire is truncated, but names the same slot, since its range is a multiple of
/// the number of slots.
const fn slot(sequence: u64) -> usize {
    const { assert!((SEQUENCES as u64).is_multiple_of(SLOTS), "a truncated count names the same slot") };
    (sequence % SLOTS) as usize
}

impl Partial {
    /// For a profile whose reliability is `partial`.
    pub(super) fn new(profile: &Profile) -> Option<Partial> {
        matches!(profile.reliability, ReliabilityConfig::Partial(_)).then(|| Partial {
            first: 0,
            outgoing: VecDeque::new(),
            once: VecDeque::new(),
            rooms: Vec::new(),
            begun: 0,
        })
    }

    /// One-shots with packets that have not left.
    pub(super) fn posted(&self) -> usize {
        self.once.len()
    }

    /// Is anything under way, in either direction?
    pub(super) fn is_active(&self) -> bool {
        self.begun > 0 || !self.outgoing.is_empty()
    }

    /// Places that are held.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.outgoing.iter().flatten().copied().chain(self.rooms.iter().flatten().map(|room| room.place))
    }

    /// The place of the bytes of a part's stream.
    pub(super) fn source(&self, part: &Part) -> Option<Place> {
        let ahead = u64::from(part.sequence).wrapping_sub(self.first) % u64::from(SEQUENCES);
        *self.outgoing.get(usize::try_from(ahead).ok()?)?
    }

    /// The engine's count of the next stream or one-shot.
    fn next(&self) -> u64 {
        self.first + self.outgoing.len() as u64
    }

    /// A stream or one-shot has ended: returns the place of its bytes, the first time.
    fn forget(&mut self, sequence: u64) -> Option<Place> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let place = self.outgoing.get_mut(at)?.take();
        while let Some(None) = self.outgoing.front() {
            self.outgoing.pop_front();
            self.first += 1;
        }
        place
    }
}

impl Session {
    /// The memory of a connection with partial completion.
    ///
    /// # Errors
    /// If its reliability is another one.
    fn partial_mut(&mut self) -> Result<&mut Partial, Error> {
        self.partial.as_deref_mut().ok_or(Error::OnlyPartial)
    }

    /// Is its reliability `partial`?
    pub(crate) const fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// Posts a receive.
    pub(crate) fn expect(&mut self, now: Time, memory: &mut Memory, place: Place) -> Result<u64, Error> {
        let now = self.own(now);
        self.partial_mut()?;
        let receive = self.endpoint.expect(now, ONLY, place.len() as u64).map_err(|_| Error::NoSlot)?;
        let partial = self.partial_mut()?;
        if partial.rooms.len() <= slot(receive) {
            partial.rooms.resize(slot(receive) + 1, None);
        }
        let before = partial.rooms[slot(receive)].replace(Room { receive, place });
        assert!(before.is_none(), "the engine gives a slot once");
        memory.hold(place);
        Ok(receive)
    }

    /// The packets of a receive that have come.
    pub(crate) fn progress(&self, receive: u64) -> Result<&Progress, Error> {
        self.endpoint.progress(ONLY, receive).ok_or(if self.is_partial() { Error::NotOpen } else { Error::OnlyPartial })
    }

    /// The sender's number for the message of an open receive, and its bytes.
    pub(crate) fn arriving(&self, receive: u64) -> Result<Option<(u32, u64)>, Error> {
        self.progress(receive)?;
        let message = self.endpoint.immediate(ONLY, receive).zip(self.endpoint.length(ONLY, receive));
        Ok(message.map(|(MessageId(immediate), bytes)| (immediate, bytes)))
    }

    /// Ends a receive: nothing more is written into its place.
    pub(crate) fn complete(&mut self, now: Time, memory: &mut Memory, receive: u64) -> Result<Progress, Error> {
        let now = self.own(now);
        self.partial_mut()?;
        let progress = self.endpoint.complete(now, ONLY, receive).ok_or(Error::NotOpen)?;
        let partial = self.partial_mut()?;
        let room = partial.rooms[slot(receive)].take().expect("an open receive has a place");
        partial.begun -= usize::from(progress.packets_present() > 0);
        memory.release(room.place);
        Ok(progress)
    }

    /// Opens a stream.
    pub(crate) fn begin_stream(
        &mut self,
        now: Time,
        memory: &mut Memory,
        place: Place,
        immediate: u32,
    ) -> Result<u64, Error> {
        let now = self.own(now);
        self.partial_mut()?;
        let message = Message { id: MessageId(immediate), bytes: place.len() as u64 };
        let stream = self.endpoint.begin_stream(now, ONLY, message).map_err(|_| Error::NoSlot)?;
        let partial = self.partial_mut()?;
        assert!(stream == partial.next(), "stream {stream} is not the next one");
        partial.outgoing.push_back(Some(place));
        memory.hold(place);
        Ok(stream)
    }

    /// Marks chunks of a stream to be sent.
    pub(crate) fn push_stream(&mut self, now: Time, stream: u64, chunks: Range<u32>, again: bool) -> Result<(), Error> {
        if !self.has_stream(stream)? {
            return Err(Error::NotOpen);
        }
        let now = self.own(now);
        self.endpoint.push_stream(now, ONLY, stream, chunks, again);
        Ok(())
    }

    /// Is a stream open at both ends?
    pub(crate) fn has_stream(&self, stream: u64) -> Result<bool, Error> {
        let partial = self.partial.as_ref().ok_or(Error::OnlyPartial)?;
        let is_stream = !partial.once.iter().any(|&(_, sequence)| sequence == stream);
        Ok(is_stream && self.endpoint.has_stream(ONLY, stream))
    }

    /// Ends a stream: nothing more of it leaves.
    pub(crate) fn end_stream(&mut self, now: Time, memory: &mut Memory, stream: u64) -> Result<(), Error> {
        let now = self.own(now);
        let partial = self.partial_mut()?;
        if partial.once.iter().any(|&(_, sequence)| sequence == stream) {
            return Err(Error::NotOpen);
        }
        let place = partial.forget(stream).ok_or(Error::NotOpen)?;
        memory.release(place);
        self.endpoint.end_stream(now, ONLY, stream);
        Ok(())
    }

    /// Posts a message whose packets leave once.
    pub(crate) fn post_once(
        &mut self,
        now: Time,
        memory: &mut Memory,
        operation: Operation,
        place: Place,
        immediate: u32,
    ) -> Result<(), Error> {
        let now = self.own(now);
        let partial = self.partial_mut()?;
        // No stream begins while one-shots wait, so the engine gives them these counts in the same order.
        let sequence = partial.next();
        partial.outgoing.push_back(Some(place));
        partial.once.push_back((operation, sequence));
        memory.hold(place);
        self.endpoint.post(now, ONLY, Message { id: MessageId(immediate), bytes: place.len() as u64 });
        Ok(())
    }

    /// The engine says that the oldest one-shot has left.
    pub(super) fn handle_injected(&mut self, around: &mut NodeContext<'_>) {
        let Some(partial) = &mut self.partial else { return };
        let Some((operation, sequence)) = partial.once.pop_front() else {
            unreachable!("the engine finishes only operations that it has")
        };
        if let Some(place) = partial.forget(sequence) {
            around.memory.release(place);
        }
        around.completions.push_back(Completion::Injected { connection: self.handle, operation });
    }

    /// A packet of data for a connection whose reliability is `partial`.
    pub(super) fn handle_part(&mut self, around: &mut NodeContext<'_>, plane: usize, packet: &Packet, payload: &[u8]) {
        let Header::Part(part) = packet.header else {
            self.counters.malformed += 1;
            return;
        };
        if payload.len() != usize::from(part.length) {
            self.counters.malformed += 1;
            return;
        }
        if self.endpoint.handle_packet(around.now, packet) != Handled::Fresh {
            // A copy, a late packet, or one that was not expected: its place may be in use for something else by now.
            return;
        }
        let Some(partial) = &mut self.partial else { return };
        let room = partial.rooms.get(slot(u64::from(part.sequence))).copied().flatten();
        let Some(Room { receive, place }) = room else { unreachable!("a fresh packet has an open receive") };
        let place = place.part(u64::from(part.packet) * self.mtu, payload.len());
        around.memory.write(place.expect("the engine checks that a message fits its receive"), payload);
        self.counters.received_bytes[plane] += payload.len() as u64;
        let Some(progress) = self.endpoint.progress(ONLY, receive) else { return };
        partial.begun += usize::from(progress.packets_present() == 1);
        if progress.is_whole()
            && let Ok(Some((immediate, bytes))) = self.arriving(receive)
        {
            around.completions.push_back(Completion::Whole { connection: self.handle, receive, immediate, bytes });
        }
    }
}
