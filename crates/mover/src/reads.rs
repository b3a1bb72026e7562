//! The calls of reads, atomic operations and lists, and their ends.

use crate::channel::Job;
use crate::code::{Code, MoverError};
use crate::event::{Event, EventKind};
use crate::mover::Mover;
use crate::state::State;
use strandway_udp::{Connection, Node, Operation, RemoteRegion};

/// A write or a read of a list ([`Mover::post_all`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Our memory.
    pub memory: u64,
    /// Where it begins there.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The peer's memory.
    pub remote: RemoteRegion,
    /// Where it begins there.
    pub at: u64,
}

impl Mover {
    /// Writes or reads all steps of a list, in order and in one call, which costs less than one call each. Every step has
    /// an event of its own, with the same context. Returns the number of steps that were posted, and why the next one
    /// was not, if it was not.
    ///
    /// # Errors
    /// If the mover is shut.
    pub fn post_all(
        &self,
        connection: u64,
        reads: bool,
        steps: impl IntoIterator<Item = Step>,
        context: u64,
    ) -> Result<(usize, Option<MoverError>), MoverError> {
        self.call(|state| {
            let mut posted = 0;
            for Step { memory, offset, bytes, remote, at } in steps {
                let job = Job { context, memory, offset, bytes, tag: None };
                let outcome = match reads {
                    true => state.read(connection, job, remote, at),
                    false => state.write(connection, job, remote, at, None),
                };
                if let Err(error) = outcome {
                    return Ok((posted, Some(error)));
                }
                posted += 1;
            }
            Ok((posted, None))
        })
    }

    /// Reads `bytes` bytes of the peer's memory, from `at` bytes behind the start of what `remote` opens, into memory. It
    /// sees what earlier operations of this connection have written.
    ///
    /// # Errors
    /// As for [`Mover::write`]; [`Code::NoRight`] if the peer has not exposed the memory for reading.
    #[allow(clippy::too_many_arguments, reason = "a place here, a place there, and a number")]
    pub fn read(
        &self,
        connection: u64,
        memory: u64,
        offset: u64,
        bytes: u64,
        remote: RemoteRegion,
        at: u64,
        context: u64,
    ) -> Result<(), MoverError> {
        let job = Job { context, memory, offset, bytes, tag: None };
        self.call(|state| state.read(connection, job, remote, at))
    }

    /// Adds to a word of 64 bits in the peer's memory; the event has the word as it was. The sum wraps. It happens once,
    /// also if packets are lost. The word has the byte order of its host.
    ///
    /// # Errors
    /// As for [`Mover::read`].
    pub fn fetch_add(
        &self,
        connection: u64,
        remote: RemoteRegion,
        at: u64,
        number: u64,
        context: u64,
    ) -> Result<(), MoverError> {
        self.call(|state| state.change(connection, context, |node, to| node.fetch_add(to, remote, at, number)))
    }

    /// Replaces a word of 64 bits in the peer's memory by `new` if it is `expected`; else as [`Mover::fetch_add`].
    ///
    /// # Errors
    /// As for [`Mover::read`].
    pub fn compare_swap(
        &self,
        connection: u64,
        remote: RemoteRegion,
        at: u64,
        expected: u64,
        new: u64,
        context: u64,
    ) -> Result<(), MoverError> {
        let post = |node: &mut Node, to| node.compare_swap(to, remote, at, expected, new);
        self.call(|state| state.change(connection, context, post))
    }
}

impl State {
    pub(crate) fn read(&mut self, number: u64, job: Job, remote: RemoteRegion, at: u64) -> Result<(), MoverError> {
        self.room(number)?;
        let (region, range) = self.memories.place(job.memory, job.offset, job.bytes, true)?;
        let connection = self.ready(number)?.connection;
        let operation = self.node.read(connection, region, range, remote, at)?;
        self.memories.hold(job.memory);
        self.ready(number)?.asked.insert(operation, (EventKind::ReadDone, job));
        Ok(())
    }

    /// An atomic operation, which the call of the node posts.
    pub(crate) fn change(
        &mut self,
        number: u64,
        context: u64,
        post: impl FnOnce(&mut Node, Connection) -> Result<Operation, strandway_udp::Error>,
    ) -> Result<(), MoverError> {
        self.room(number)?;
        let connection = self.ready(number)?.connection;
        let operation = post(&mut self.node, connection)?;
        // No memory has number 0.
        let job = Job { context, memory: 0, offset: 0, bytes: 8, tag: None };
        self.ready(number)?.asked.insert(operation, (EventKind::AtomicDone, job));
        Ok(())
    }

    /// A read or an atomic operation has ended.
    pub(crate) fn finish_asked(&mut self, connection: Connection, operation: Operation, code: Code, word: u64) {
        let Some((number, channel)) = self.channel(connection) else { return };
        let Some((kind, job)) = channel.asked.remove(&operation) else { return };
        self.memories.let_go(job.memory);
        let (context, bytes) = (job.context, job.bytes);
        self.events.push_back(Event { code, context, bytes, word, ..Event::new(kind, number) });
    }
}
