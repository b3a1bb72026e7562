//! The futures.

use super::answer::Answer;
use super::peer::Peer;
use super::queue::{Command, Outcome, Owner, Queue};
use super::{AsyncError, AsyncNode, Shared};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A call under way; does nothing until it is polled.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Pending<T> {
    shared: Arc<Shared>,
    /// Keeps the connection open.
    owner: Option<Arc<Owner>>,
    /// Present until the first poll.
    command: Option<Command>,
    ticket: Option<u64>,
    answer: Answer<Outcome<T>>,
    /// Undoes a call whose result no future takes.
    pub(super) undo: Option<fn(&Queue, T)>,
}

impl<T> Pending<T> {
    pub(super) fn new(
        shared: &Arc<Shared>,
        owner: Option<Arc<Owner>>,
        command: Command,
        answer: Answer<Outcome<T>>,
    ) -> Pending<T> {
        Pending { shared: shared.clone(), owner, command: Some(command), ticket: None, answer, undo: None }
    }
}

// No field points into the value itself.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T, AsyncError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(command) = self.command.take() {
            let ticket = self.shared.queue.ticket();
            self.ticket = Some(ticket);
            self.shared.queue.submit(ticket, command);
        }
        self.answer.poll(context).map(|answer| {
            self.ticket = None;
            answer.unwrap_or(Err(AsyncError::Stopped))
        })
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let withdrawn = match &self.owner {
            Some(owner) => owner.link.withdraw(ticket),
            None => self.shared.queue.withdraw(ticket),
        };
        drop(withdrawn);
        if let (Some(Ok(value)), Some(undo)) = (self.answer.abandon(), self.undo) {
            undo(&self.shared.queue, value);
        }
    }
}

/// A connection that is being established.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Connecting(pub(super) Pending<Arc<Owner>>);

impl Future for Connecting {
    type Output = Result<Peer, AsyncError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = Pin::new(&mut self.0).poll(context);
        done.map_ok(|owner| Peer::new(AsyncNode { shared: self.0.shared.clone() }, owner))
    }
}

/// Waits for a peer to connect.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Accepting {
    shared: Arc<Shared>,
    number: u64,
}

impl Accepting {
    pub(super) fn new(shared: &Arc<Shared>) -> Accepting {
        Accepting { shared: shared.clone(), number: shared.queue.ticket() }
    }
}

impl Future for Accepting {
    type Output = Result<Peer, AsyncError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let owner = self.shared.queue.poll_accepted(self.number, context);
        owner.map_ok(|owner| Peer::new(AsyncNode { shared: self.shared.clone() }, owner))
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.shared.queue.forget_acceptor(self.number);
    }
}

/// Waits for a write of a peer that carries an immediate.
#[must_use = "futures do nothing unless they are awaited"]
pub struct ImmediateWrite {
    // Declared first, so that it is dropped before the node's last handle may be.
    owner: Arc<Owner>,
    _shared: Arc<Shared>,
    number: u64,
}

impl ImmediateWrite {
    pub(super) fn new(shared: &Arc<Shared>, owner: &Arc<Owner>) -> ImmediateWrite {
        ImmediateWrite { owner: owner.clone(), _shared: shared.clone(), number: shared.queue.ticket() }
    }
}

impl Future for ImmediateWrite {
    type Output = Result<(u32, u64), AsyncError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.owner.link.poll_written(self.number, context)
    }
}

impl Drop for ImmediateWrite {
    fn drop(&mut self) {
        self.owner.link.forget_reader(self.number);
    }
}
