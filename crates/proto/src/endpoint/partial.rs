//! The calls of partial completion (SDR-RDMA), for programs that do their own repair. They work on connections whose
//! reliability is `partial`; on any other connection they do nothing. There are also calls about coded messages for a
//! world with bytes.

use super::Endpoint;
use crate::message::Message;
use crate::packet::{ConnectionId, MessageId};
use crate::partial::{Busy, PartialReceiver, PartialSender, Progress};
use crate::reliability::{AnyReceiver, AnyReliability};
use crate::repair::{Choices, EndedGroup};
use crate::units::Time;
use std::ops::Range;

impl Endpoint {
    /// Calls `act` with a partial connection's sender, and updates the connection and the endpoint afterwards.
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
        connection.refresh_outlook();
        self.settle(now, id.slot());
        done
    }

    /// Calls `act` with a partial connection's receiver, updates the connection and the endpoint afterwards, and sends
    /// the control messages that the receiver writes.
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
        connection.take_controls(now, &mut |packet| control.push(packet));
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

    /// Opens a stream for a message: `send_stream_start` of SDR-RDMA, section 3. The i-th stream arrives in the peer's
    /// i-th receive. Chunks are sent only when they are pushed. The peer gets the message's number
    /// ([`Endpoint::immediate`]).
    ///
    /// # Errors
    /// If the peer has not posted its receive, all slots are taken, or there is no such partial connection.
    pub fn begin_stream(&mut self, now: Time, on: ConnectionId, message: Message) -> Result<u64, Busy> {
        self.with_sender(now, on, |sender| sender.begin(message))
    }

    /// Queues chunks of a stream to be sent; chunks sent `again` go before new ones: `send_stream_continue`.
    pub fn push_stream(&mut self, now: Time, on: ConnectionId, stream: u64, chunks: Range<u32>, again: bool) {
        let _ = self.with_sender(now, on, |sender| {
            sender.push(stream, chunks, again);
            Ok(())
        });
    }

    /// Is a stream open, that is, neither ended here nor completed by the peer? Chunks pushed to any other stream are
    /// never sent.
    pub fn has_stream(&self, on: ConnectionId, stream: u64) -> bool {
        self.sender(on).is_some_and(|sender| sender.is_open(stream))
    }

    /// Ends a stream: no more of it is sent, and its slot is free: `send_stream_end`.
    pub fn end_stream(&mut self, now: Time, on: ConnectionId, stream: u64) {
        let _ = self.with_sender(now, on, |sender| {
            sender.end(stream);
            Ok(())
        });
    }

    /// Posts the next receive, for a message of at most `bytes` bytes, and tells the peer: `recv_post`. Returns the
    /// receive's number.
    ///
    /// # Errors
    /// If all slots are taken, or there is no such partial connection.
    pub fn expect(&mut self, now: Time, on: ConnectionId, bytes: u64) -> Result<u64, Busy> {
        self.with_receiver(now, on, |receiver| Some(receiver.expect(bytes))).unwrap_or(Err(Busy))
    }

    /// The packets and chunks of a receive that have arrived: `recv_bitmap_get`. `None` if the receive is not open.
    pub fn progress(&self, on: ConnectionId, receive: u64) -> Option<&Progress> {
        self.receiver(on)?.progress(receive)
    }

    /// The sender's number for the message that arrives in a receive: `recv_imm_get`. `None` before the first packet.
    /// Every packet carries the whole number.
    pub fn immediate(&self, on: ConnectionId, receive: u64) -> Option<MessageId> {
        self.receiver(on)?.message(receive)
    }

    /// The length in bytes of the message that arrives in a receive, which may be shorter than the receive. `None`
    /// before the first packet. Ours.
    pub fn length(&self, on: ConnectionId, receive: u64) -> Option<u64> {
        self.receiver(on)?.length(receive)
    }

    /// Ends a receive, whether chunks are missing or not: `recv_complete`. Nothing is written into it afterwards; if
    /// chunks are missing, the sender is told. Returns the progress, or `None` if the receive was not open.
    pub fn complete(&mut self, now: Time, on: ConnectionId, receive: u64) -> Option<Progress> {
        self.with_receiver(now, on, |receiver| receiver.complete(receive))
    }

    /// Keeps the ended groups of a connection's coded messages for [`Endpoint::take_ended`]. For worlds with bytes.
    pub fn keep_ended(&mut self, now: Time, on: ConnectionId) {
        let Some(slot) = self.connections.find(on) else { return };
        self.wake(now, slot);
        if let Some(connection) = self.connections.get_mut(slot)
            && let AnyReceiver::Repair(receiver) = &mut connection.receiver
        {
            receiver.keep_ended();
        }
    }

    /// Takes a group of a coded message that is over. Its missing data can be rebuilt, and must be rebuilt before the
    /// application gets the message's [`Event::Received`](crate::Event::Received).
    pub fn take_ended(&mut self, on: ConnectionId) -> Option<EndedGroup> {
        let slot = self.connections.find(on)?;
        let connection = self.connections.get_mut(slot)?;
        if let AnyReceiver::Repair(receiver) = &mut connection.receiver { receiver.take_ended() } else { None }
    }

    /// The schemes that a connection has chosen for its messages, if its reliability is `sdr_auto`.
    pub fn choices(&self, on: ConnectionId) -> Option<&Choices> {
        let connection = self.connections.get(self.connections.find(on)?)?;
        if let AnyReliability::Repair(sender) = &connection.reliability { sender.choices() } else { None }
    }
}
