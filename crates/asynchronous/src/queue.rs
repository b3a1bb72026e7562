//! The state that a node's handles and its thread share: commands on their way, and connections that wait to be
//! accepted.

use super::answer::Promise;
use super::{AsyncError, Ending};
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use strandway_udp::{Connection, Node, Region, RemoteRegion, Waker as NodeWaker};

/// The most commands without a connection that wait for the node's thread; ours.
const COMMANDS_MAX: usize = 1_024;
/// The most writes with an immediate of one peer that wait for a future; ours, 4 MiB.
const WRITTEN_MAX: usize = 1 << 18;

pub(super) type Outcome<T> = Result<T, AsyncError>;

/// An operation that completes when the peer has its bytes.
pub(super) enum Posted {
    Write { remote: RemoteRegion, at: u64, immediate: Option<u32> },
    Send,
}

pub(super) enum Command {
    Post { link: Arc<Link>, what: Posted, region: Region, range: Range<usize>, done: Promise<Outcome<()>> },
    Receive { link: Arc<Link>, region: Region, range: Range<usize>, done: Promise<Outcome<u64>> },
    Connect(Vec<SocketAddrV6>, Option<u8>, Promise<Outcome<Arc<Owner>>>),
    Close(Arc<Link>, Option<Promise<Outcome<()>>>),
    Run(Box<dyn FnOnce(&mut Node) + Send>),
}

impl Command {
    /// Tells the future that waits for the command why it will not be executed.
    pub(super) fn fail(self, ending: Ending) {
        match self {
            Command::Post { done, .. } => drop(done.give(Err(ending.into()))),
            Command::Receive { done, .. } => drop(done.give(Err(ending.into()))),
            // Their futures resolve when the promises are dropped.
            Command::Connect(..) | Command::Close(..) | Command::Run(_) => {}
        }
    }
}

/// The number of commands of a kind that may still be posted, and the commands that wait for one to end, in order.
struct Credit {
    left: usize,
    waiting: BTreeMap<u64, Command>,
}

impl Credit {
    const fn new(left: usize) -> Credit {
        Credit { left, waiting: BTreeMap::new() }
    }
}

/// A connection, shared by the node's thread and its handles.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) from: Option<SocketAddr>,
    state: Mutex<LinkState>,
}

struct LinkState {
    ended: Option<Ending>,
    /// Immediates and lengths of writes that no future has taken yet.
    written: VecDeque<(u32, u64)>,
    readers: BTreeMap<u64, Waker>,
    posts: Credit,
    receives: Credit,
}

impl LinkState {
    fn credit(&mut self, receives: bool) -> &mut Credit {
        if receives { &mut self.receives } else { &mut self.posts }
    }
}

impl Link {
    pub(super) fn new(connection: Connection, from: Option<SocketAddr>, operations_max: usize) -> Arc<Link> {
        let state = LinkState {
            ended: None,
            written: VecDeque::new(),
            readers: BTreeMap::new(),
            posts: Credit::new(operations_max),
            receives: Credit::new(operations_max),
        };
        Arc::new(Link { connection, from, state: Mutex::new(state) })
    }

    /// While it is locked, wake no future and drop no command: either may run code of the application.
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ended(&self) -> Option<Ending> {
        self.lock().ended
    }

    /// An operation has ended: returns the next one that waits.
    pub(super) fn next(&self, receives: bool) -> Option<Command> {
        let mut state = self.lock();
        let credit = state.credit(receives);
        let next = credit.waiting.pop_first().map(|(_, command)| command);
        credit.left += usize::from(next.is_none());
        next
    }

    /// Removes a command that was not posted yet.
    pub(super) fn withdraw(&self, ticket: u64) -> Option<Command> {
        let mut state = self.lock();
        state.posts.waiting.remove(&ticket).or_else(|| state.receives.waiting.remove(&ticket))
    }

    /// The peer has written with an immediate; false if more than [`WRITTEN_MAX`] such writes wait.
    pub(super) fn written(&self, immediate: u32, bytes: u64) -> bool {
        let mut state = self.lock();
        state.written.push_back((immediate, bytes));
        let fits = state.written.len() <= WRITTEN_MAX;
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        readers.into_values().for_each(Waker::wake);
        fits
    }

    pub(super) fn poll_written(&self, reader: u64, context: &Context<'_>) -> Poll<Outcome<(u32, u64)>> {
        let mut state = self.lock();
        if let Some(written) = state.written.pop_front() {
            return Poll::Ready(Ok(written));
        }
        if let Some(ending) = state.ended {
            return Poll::Ready(Err(ending.into()));
        }
        state.readers.insert(reader, context.waker().clone());
        Poll::Pending
    }

    pub(super) fn forget_reader(&self, reader: u64) {
        let gone = self.lock().readers.remove(&reader);
        drop(gone);
    }

    /// The connection has ended: tells all its futures why.
    pub(super) fn end(&self, ending: Ending) {
        let mut state = self.lock();
        state.ended = Some(ending);
        let (posts, receives) = (std::mem::take(&mut state.posts.waiting), std::mem::take(&mut state.receives.waiting));
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        posts.into_values().chain(receives.into_values()).for_each(|command| command.fail(ending));
        readers.into_values().for_each(Waker::wake);
    }
}

/// Shared by all clones of a [`super::Peer`] and their futures: when the last of them is dropped, the connection is
/// closed.
pub(super) struct Owner {
    pub(super) link: Arc<Link>,
    pub(super) queue: Arc<Queue>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.link.ended().is_none() {
            drop(self.queue.push(Command::Close(self.link.clone(), None)));
        }
    }
}

pub(super) struct Queue {
    state: Mutex<QueueState>,
    tickets: AtomicU64,
    waker: NodeWaker,
    /// The most connections that wait to be accepted.
    accepted_max: usize,
}

struct QueueState {
    commands: VecDeque<Command>,
    /// For commands that belong to no connection.
    general: Credit,
    /// Connections that wait to be accepted: at most `accepted_max`, ended ones included.
    accepted: VecDeque<Arc<Owner>>,
    acceptors: BTreeMap<u64, Waker>,
    /// The last handle is gone.
    stop: bool,
    /// The thread is gone.
    ended: bool,
}

impl Queue {
    pub(super) fn new(waker: NodeWaker, accepted_max: usize) -> Queue {
        let state = QueueState {
            commands: VecDeque::new(),
            general: Credit::new(COMMANDS_MAX),
            accepted: VecDeque::new(),
            acceptors: BTreeMap::new(),
            stop: false,
            ended: false,
        };
        Queue { state: Mutex::new(state), tickets: AtomicU64::new(0), waker, accepted_max }
    }

    /// While it is locked, wake no future and drop no command, as for [`Link::lock`]. A thread that holds both locked
    /// the link first.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a command over, regardless of limits; returns it if the thread has ended.
    pub(super) fn push(&self, command: Command) -> Option<Command> {
        let mut state = self.lock();
        if state.ended {
            return Some(command);
        }
        state.commands.push_back(command);
        drop(state);
        self.waker.wake();
        None
    }

    /// Hands a command over, or keeps it under `ticket` until there is room.
    pub(super) fn submit(&self, ticket: u64, command: Command) {
        let (link, receives) = match &command {
            Command::Post { link, .. } => (link.clone(), false),
            Command::Receive { link, .. } => (link.clone(), true),
            _ => return self.submit_general(ticket, command),
        };
        let mut state = link.lock();
        if let Some(ending) = state.ended {
            drop(state);
            return command.fail(ending);
        }
        let credit = state.credit(receives);
        let refused = if credit.left > 0 {
            credit.left -= 1;
            // Under the link's lock, so that commands keep their order.
            self.push(command)
        } else {
            credit.waiting.insert(ticket, command)
        };
        drop(state);
        drop(refused);
    }

    fn submit_general(&self, ticket: u64, command: Command) {
        let mut state = self.lock();
        if state.ended {
            drop(state);
            return drop(command);
        }
        if state.general.left > 0 {
            state.general.left -= 1;
            state.commands.push_back(command);
            drop(state);
            self.waker.wake();
        } else {
            state.general.waiting.insert(ticket, command);
        }
    }

    /// As [`Link::withdraw`], for a command that belongs to no connection.
    pub(super) fn withdraw(&self, ticket: u64) -> Option<Command> {
        self.lock().general.waiting.remove(&ticket)
    }

    /// For the node's thread: appends all commands; false once the last handle is gone.
    pub(super) fn take(&self, commands: &mut VecDeque<Command>) -> bool {
        let mut state = self.lock();
        commands.append(&mut state.commands);
        state.general.left = COMMANDS_MAX;
        while state.general.left > 0
            && let Some((_, command)) = state.general.waiting.pop_first()
        {
            state.general.left -= 1;
            state.commands.push_back(command);
        }
        !state.stop
    }

    pub(super) fn accepted(&self, owner: Arc<Owner>) {
        let mut state = self.lock();
        state.accepted.push_back(owner);
        // At most `accepted_max` connections can be open, so one of these has ended: it is removed.
        let ended = (state.accepted.len() > self.accepted_max)
            .then(|| state.accepted.iter().position(|owner| owner.link.ended().is_some()))
            .flatten();
        let forgotten = ended.and_then(|at| state.accepted.remove(at));
        let acceptors = std::mem::take(&mut state.acceptors);
        drop(state);
        drop(forgotten);
        acceptors.into_values().for_each(Waker::wake);
    }

    pub(super) fn poll_accepted(&self, acceptor: u64, context: &Context<'_>) -> Poll<Outcome<Arc<Owner>>> {
        let mut state = self.lock();
        if let Some(owner) = state.accepted.pop_front() {
            return Poll::Ready(Ok(owner));
        }
        if state.ended {
            return Poll::Ready(Err(AsyncError::Stopped));
        }
        state.acceptors.insert(acceptor, context.waker().clone());
        Poll::Pending
    }

    pub(super) fn forget_acceptor(&self, acceptor: u64) {
        let gone = self.lock().acceptors.remove(&acceptor);
        drop(gone);
    }

    /// Asks the node's thread to end.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.waker.wake();
    }

    /// The node's thread ends: no command is executed any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let commands = std::mem::take(&mut state.commands);
        let waiting = std::mem::take(&mut state.general.waiting);
        let accepted = std::mem::take(&mut state.accepted);
        let acceptors = std::mem::take(&mut state.acceptors);
        drop(state);
        acceptors.into_values().for_each(Waker::wake);
        drop((commands, waiting, accepted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that calls somebody who does not answer.
    fn calling(calls: usize) -> (Node, Vec<Connection>) {
        let here = "[::1]:0".parse().expect("an address");
        let config = strandway_udp::Config::new(&[7; 32]).expect("long enough").plane(here);
        let mut node = Node::bind(config).expect("sockets");
        let nobody = "[::1]:9".parse().expect("an address");
        let calls = (0..calls).map(|_| node.connect(&[nobody]).expect("room")).collect();
        (node, calls)
    }

    #[test]
    fn connections_that_nobody_accepts_are_bounded() {
        let (mut node, calls) = calling(103);
        let queue = Arc::new(Queue::new(node.waker().expect("a descriptor"), 3));
        let comes = |i: usize, ends: bool| {
            let link = Link::new(calls[i], None, 1);
            queue.accepted(Arc::new(Owner { link: link.clone(), queue: queue.clone() }));
            if ends {
                link.end(Ending::Here);
            }
        };
        (0..100).for_each(|i| comes(i, true));
        assert_eq!(queue.lock().accepted.len(), 3);
        // Open connections stay, in their order.
        (100..103).for_each(|i| comes(i, false));
        let waiting: Vec<_> = queue.lock().accepted.iter().map(|owner| owner.link.connection).collect();
        assert_eq!(waiting, calls[100..]);
    }

    #[test]
    fn immediates_that_nobody_asks_for_are_kept_up_to_a_bound() {
        let (_node, calls) = calling(1);
        let link = Link::new(calls[0], None, 1);
        assert!((0..WRITTEN_MAX).all(|i| link.written(i as u32, 0)));
        assert!(!link.written(0, 0));
        let context = Context::from_waker(Waker::noop());
        assert!(matches!(link.poll_written(0, &context), Poll::Ready(Ok((0, 0)))));
        link.end(Ending::Here);
        assert!(
            matches!(link.poll_written(0, &context), Poll::Ready(Ok((1, 0)))),
            "writes before the end are not lost"
        );
    }
}
