//! The calls of partial completion (SDR-RDMA): on connections whose reliability is `partial`, for programs that repair by
//! themselves. On any other connection they do nothing. And what a world with bytes needs to know of coded messages.

use super::Endpoint;
use crate::message::Message;
use crate::packet::{ConnectionId, MessageId};
use crate::partial::{Busy, PartialReceiver, PartialSender, Progress};
use crate::reliability::{AnyReceiver, AnyReliability};
use crate::repair::{Choices, EndedGroup};
use crate::units::Time;
use std::ops::Range;

impl Endpoint {
    /// Does something with a partial connection's sender, and with what follows from it.
    fn with_sender<T>(
        &mut self,
        now: Time,
        id: ConnectionId,
        act: impl FnOnce(&mut PartialSender) -> Result<T, Busy>,
    ) -> Result<T, Busy> {
        let slot = self.connections.find(id).ok_or(Busy)?;
        self.wake(now, slot);
        let connection = self.connections.get_mut(slot).ok_or(Busy)?;
        let AnyReliability::Partial(sender) = &mut connection.reliability else { return Err(Busy) };
        let done = act(sender);
        connection.look();
        self.settle(now, id.slot());
        done
    }

    /// The same with its receiver; letters that it writes leave.
    fn with_receiver<T>(
        &mut self,
        now: Time,
        id: ConnectionId,
        act: impl FnOnce(&mut PartialReceiver) -> Option<T>,
    ) -> Option<T> {
        let slot = self.connections.find(id)?;
        self.wake(now, slot);
        let connection = self.connections.get_mut(slot)?;
        let AnyReceiver::Partial(receiver) = &mut connection.receiver else { return None };
        let done = act(receiver);
        let control = &mut self.control;
        connection.take_letters(now, &mut |packet| super::push_control(control, packet));
        self.settle(now, id.slot());
        done
    }

    fn receiver(&self, id: ConnectionId) -> Option<&PartialReceiver> {
        let connection = self.connections.get(self.connections.find(id)?)?;
        if let AnyReceiver::Partial(receiver) = &connection.receiver { Some(receiver) } else { None }
    }

    fn sender(&self, id: ConnectionId) -> Option<&PartialSender> {
        let connection = self.connections.get(self.connections.find(id)?)?;
        if let AnyReliability::Partial(sender) = &connection.reliability { Some(sender) } else { None }
    }

    /// Opens a stream for a message: `send_stream_start` of SDR-RDMA, section 3. Its i-th caller's bytes land in the peer's i-th
    /// receive. Nothing leaves until it is pushed. The message's number is what the peer learns ([`Endpoint::immediate`]).
    ///
    /// # Errors
    /// If the peer has not posted its receive, all slots are taken, or there is no such partial connection.
    pub fn begin_stream(&mut self, now: Time, on: ConnectionId, message: Message) -> Result<u64, Busy> {
        self.with_sender(now, on, |sender| sender.begin(message))
    }

    /// These chunks of a stream are to leave, before what is new if they go `again`: `send_stream_continue`.
    pub fn push_stream(&mut self, now: Time, on: ConnectionId, stream: u64, chunks: Range<u32>, again: bool) {
        let _ = self.with_sender(now, on, |sender| {
            sender.push(stream, chunks, again);
            Ok(())
        });
    }

    /// Is a stream open: neither ended here nor completed by the peer? What is pushed to any other one never leaves.
    pub fn has_stream(&self, on: ConnectionId, stream: u64) -> bool {
        self.sender(on).is_some_and(|sender| sender.is_open(stream))
    }

    /// No more of a stream will leave, and its slot is free: `send_stream_end`.
    pub fn end_stream(&mut self, now: Time, on: ConnectionId, stream: u64) {
        let _ = self.with_sender(now, on, |sender| {
            sender.end(stream);
            Ok(())
        });
    }

    /// Posts the next receive, of at most so many bytes, and tells the peer: `recv_post`. Gives its number.
    ///
    /// # Errors
    /// If all slots are taken, or there is no such partial connection.
    pub fn expect(&mut self, now: Time, on: ConnectionId, bytes: u64) -> Result<u64, Busy> {
        self.with_receiver(now, on, |receiver| Some(receiver.expect(bytes))).unwrap_or(Err(Busy))
    }

    /// Which packets and chunks of a receive have come: `recv_bitmap_get`. `None` if the receive is not open.
    pub fn progress(&self, on: ConnectionId, receive: u64) -> Option<&Progress> {
        self.receiver(on)?.progress(receive)
    }

    /// The sender's number for the message that a receive takes: `recv_imm_get`. `None` before the first packet. Every packet
    /// carries all of it.
    pub fn immediate(&self, on: ConnectionId, receive: u64) -> Option<MessageId> {
        self.receiver(on)?.message(receive)
    }

    /// Bytes of the message that a receive takes: a message may be shorter than its receive. `None` before the first packet. Ours.
    pub fn length(&self, on: ConnectionId, receive: u64) -> Option<u64> {
        self.receiver(on)?.length(receive)
    }

    /// Ends a receive, with holes or without: `recv_complete`. Nothing is written into it any more; with holes the sender is told.
    /// What had come; `None` if it was not open.
    pub fn complete(&mut self, now: Time, on: ConnectionId, receive: u64) -> Option<Progress> {
        self.with_receiver(now, on, |receiver| receiver.complete(receive))
    }

    /// From now on the coded messages of a connection tell of their groups ([`Endpoint::take_ended`]): for worlds with bytes.
    pub fn keep_ended(&mut self, now: Time, on: ConnectionId) {
        let Some(slot) = self.connections.find(on) else { return };
        self.wake(now, slot);
        if let Some(connection) = self.connections.get_mut(slot)
            && let AnyReceiver::Repair(receiver) = &mut connection.receiver
        {
            receiver.keep_ended();
        }
    }

    /// Takes a group of a coded message that is over: what has not come of its data can be rebuilt, and must be before the message's
    /// [`Event::Received`](crate::Event::Received) is told.
    pub fn take_ended(&mut self, on: ConnectionId) -> Option<EndedGroup> {
        let slot = self.connections.find(on)?;
        let connection = self.connections.get_mut(slot)?;
        if let AnyReceiver::Repair(receiver) = &mut connection.receiver { receiver.take_ended() } else { None }
    }

    /// What a connection has chosen for its messages, if its reliability is `sdr_auto`.
    pub fn choices(&self, on: ConnectionId) -> Option<&Choices> {
        let connection = self.connections.get(self.connections.find(on)?)?;
        if let AnyReliability::Repair(sender) = &connection.reliability { sender.choices() } else { None }
    }
}
