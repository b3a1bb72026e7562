//! The loop between an [`Application`] and a [`Node`](strandway_udp::Node).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::units::Time;
use strandway_proto::{Message, MessageId};
use strandway_udp::{Completion, Error, Operation};

/// The surroundings of a program on a real node: connections, memory and a clock. An error ends the run.
pub trait World {
    /// Why a run ends early.
    type Error;

    /// The time of the run.
    fn now(&self) -> Time;

    /// Waits for the next completion.
    fn next(&mut self, timeout: Duration) -> Result<Option<Completion>, Self::Error>;

    /// Posts a message. `None` if its connection has too many operations: the driver tries again.
    fn post(&mut self, channel: Channel, message: &Message) -> Result<Option<Operation>, Self::Error>;

    /// Performs an action of the program that is not a post.
    fn act(&mut self, now: Time, action: Action) -> Result<(), Self::Error>;

    /// Handles a completion. Returns the event that it is for the program, if it is one.
    fn event(&mut self, completion: Completion) -> Result<Option<Event>, Self::Error>;

    /// A message has arrived at its receiver.
    fn note_sent(&mut self, now: Time, message: MessageId) {
        let _ = (now, message);
    }
}

/// The result of [`World::post`] that follows from that of a write.
///
/// # Errors
/// Those of the node, apart from [`Error::Busy`].
pub fn unless_busy(written: Result<Operation, Error>) -> Result<Option<Operation>, Error> {
    match written {
        Err(Error::Busy { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// The messages of a program on a node. A caller repeats [`Driver::turn`] until its program is done. All errors are
/// those of the world.
#[derive(Debug, Default)]
pub struct Driver {
    /// Messages that wait because their connection has too many operations.
    stuck: VecDeque<(Channel, Message)>,
    posted: HashMap<Operation, MessageId>,
}

impl Driver {
    /// Lets the expired timers of the program act. If there are none, waits for a completion, for at most `nap`, and
    /// hands it to the program.
    pub fn turn<W: World>(
        &mut self,
        world: &mut W,
        program: &mut impl Application,
        nap: Duration,
    ) -> Result<(), W::Error> {
        for _ in 0..self.stuck.len() {
            if let Some((channel, message)) = self.stuck.pop_front() {
                self.post(world, channel, message)?;
            }
        }
        let now = world.now();
        if program.poll_timeout() <= now {
            while program.poll_timeout() <= now {
                program.handle_timeout(now);
                self.act(world, now, program)?;
            }
            return Ok(());
        }
        let until = Duration::from_nanos(program.poll_timeout().since(now).0.div_ceil(1_000));
        match world.next(nap.min(until))? {
            Some(completion) => self.take(world, program, completion),
            None => Ok(()),
        }
    }

    /// Handles a completion.
    pub fn take<W: World>(
        &mut self,
        world: &mut W,
        program: &mut impl Application,
        completion: Completion,
    ) -> Result<(), W::Error> {
        let sent = match completion {
            Completion::Sent { operation, .. } => self.posted.remove(&operation),
            _ => None,
        };
        let event = match sent {
            Some(message) => {
                world.note_sent(world.now(), message);
                Some(Event::Sent { message })
            }
            None => world.event(completion)?,
        };
        event.map_or(Ok(()), |event| self.handle_event(world, program, &event))
    }

    /// Passes an event to the program, and performs the program's actions.
    pub fn handle_event<W: World>(
        &mut self,
        world: &mut W,
        program: &mut impl Application,
        event: &Event,
    ) -> Result<(), W::Error> {
        let now = world.now();
        program.handle_event(now, event);
        self.act(world, now, program)
    }

    /// Performs the actions of the program.
    pub fn act<W: World>(&mut self, world: &mut W, now: Time, program: &mut impl Application) -> Result<(), W::Error> {
        while let Some(action) = program.poll_action(now) {
            match action {
                Action::Post { channel, message } => self.post(world, channel, message)?,
                other => world.act(now, other)?,
            }
        }
        Ok(())
    }

    fn post<W: World>(&mut self, world: &mut W, channel: Channel, message: Message) -> Result<(), W::Error> {
        match world.post(channel, &message)? {
            Some(operation) => drop(self.posted.insert(operation, message.id)),
            None => self.stuck.push_back((channel, message)),
        }
        Ok(())
    }
}
