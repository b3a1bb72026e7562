//! The thread of a node: executes commands and resolves futures.

use super::answer::Promise;
use super::queue::{Command, Link, Outcome, Owner, Posted, Queue};
use super::{AsyncError, Ending};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use strandway_udp::{Completion, Connection, Error, Node, Reason};

/// The longest wait of an idle node; its timers wake it earlier.
const QUIET: Duration = Duration::from_secs(60);

/// An open connection: the futures that wait, in the order of posting, which is also the order of completion.
struct Entry {
    link: Arc<Link>,
    posts: VecDeque<Promise<Outcome<()>>>,
    receives: VecDeque<Promise<Outcome<u64>>>,
}

pub(super) struct Driver {
    node: Node,
    queue: Arc<Queue>,
    operations_max: usize,
    calling: HashMap<Connection, Promise<Outcome<Arc<Owner>>>>,
    open: HashMap<Connection, Entry>,
}

impl Driver {
    pub(super) fn new(node: Node, queue: Arc<Queue>, operations_max: usize) -> Driver {
        Driver { node, queue, operations_max, calling: HashMap::new(), open: HashMap::new() }
    }

    /// Runs until the last handle is gone or the system does not let the node wait.
    pub(super) fn run(mut self) {
        let mut commands = VecDeque::new();
        while self.queue.take(&mut commands) {
            while let Some(command) = commands.pop_front() {
                self.execute(command);
            }
            match self.node.wait(QUIET) {
                Ok(Some(completion)) => self.handle(completion),
                Ok(None) => {}
                Err(_) => return,
            }
        }
        // Executes the commands that the application gave before it dropped the last handle.
        commands.into_iter().for_each(|command| self.execute(command));
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Post { link, what, region, range, done } => {
                let Some(entry) = self.open.get_mut(&link.connection) else { return refuse(&link, done) };
                let posted = match what {
                    Posted::Write { remote, at, immediate } => {
                        self.node.write(link.connection, region, range, remote, at, immediate)
                    }
                    Posted::Send => self.node.send(link.connection, region, range),
                };
                match posted {
                    Ok(_) => entry.posts.push_back(done),
                    Err(error) => {
                        let _ = done.give(Err(error.into()));
                        self.refund(&link, false);
                    }
                }
            }
            Command::Receive { link, region, range, done } => {
                let Some(entry) = self.open.get_mut(&link.connection) else { return refuse(&link, done) };
                match self.node.recv(link.connection, region, range) {
                    Ok(_) => entry.receives.push_back(done),
                    Err(error) => {
                        let _ = done.give(Err(error.into()));
                        self.refund(&link, true);
                    }
                }
            }
            Command::Connect(peer, shard, done) => {
                let begun = match shard {
                    Some(shard) => self.node.connect_to_shard(&peer, shard),
                    None => self.node.connect(&peer),
                };
                match begun {
                    Ok(connection) => drop(self.calling.insert(connection, done)),
                    Err(error) => drop(done.give(Err(error.into()))),
                }
            }
            Command::Close(link, done) => {
                if self.open.contains_key(&link.connection) {
                    let _ = self.node.close(link.connection);
                    self.end(link.connection, Ending::Here);
                }
                if let Some(done) = done {
                    let _ = done.give(Ok(()));
                }
            }
            Command::Run(work) => work(&mut self.node),
        }
    }

    /// An operation has ended: the next waiting one, if any, goes behind those that were posted before.
    fn refund(&self, link: &Link, receives: bool) {
        if let Some(command) = link.next(receives) {
            drop(self.queue.push(command));
        }
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Connected { connection } => {
                if let Some(done) = self.calling.remove(&connection) {
                    let owner = self.enter(connection, None);
                    // If the future was dropped, this drops the owner, which closes the connection.
                    drop(done.give(Ok(owner)));
                }
            }
            Completion::Accepted { connection, from } => {
                let owner = self.enter(connection, Some(from));
                self.queue.accepted(owner);
            }
            Completion::Sent { connection, .. } => {
                let Some(entry) = self.open.get_mut(&connection) else { return };
                if let Some(done) = entry.posts.pop_front() {
                    let link = entry.link.clone();
                    let _ = done.give(Ok(()));
                    self.refund(&link, false);
                }
            }
            Completion::Received { connection, bytes, .. } => {
                let Some(entry) = self.open.get_mut(&connection) else { return };
                if let Some(done) = entry.receives.pop_front() {
                    let link = entry.link.clone();
                    let _ = done.give(Ok(bytes));
                    self.refund(&link, true);
                }
            }
            Completion::Written { connection, immediate, bytes } => {
                let Some(entry) = self.open.get(&connection) else { return };
                if !entry.link.written(immediate, bytes) {
                    let _ = self.node.close(connection);
                    self.end(connection, Ending::Peer(Reason::Unheeded));
                }
            }
            // Futures exist for operations only. Programs that use control messages or repair losses themselves drive a
            // [`Node`] directly.
            Completion::Control { .. } | Completion::Injected { .. } | Completion::Whole { .. } => {}
            Completion::Path { .. } | Completion::Probed { .. } => {}
            Completion::Read { .. } | Completion::Fetched { .. } | Completion::Refused { .. } => {}
            // Completions of groups.
            Completion::Chunk { .. } | Completion::Cast { .. } | Completion::Word { .. } => {}
            Completion::Closed { connection, reason } => match self.calling.remove(&connection) {
                Some(done) => drop(done.give(Err(AsyncError::Closed(reason)))),
                None => self.end(connection, Ending::Peer(reason)),
            },
        }
    }

    fn enter(&mut self, connection: Connection, from: Option<std::net::SocketAddr>) -> Arc<Owner> {
        let link = Link::new(connection, from, self.operations_max);
        let entry = Entry { link: link.clone(), posts: VecDeque::new(), receives: VecDeque::new() };
        self.open.insert(connection, entry);
        Arc::new(Owner { link, queue: self.queue.clone() })
    }

    fn end(&mut self, connection: Connection, ending: Ending) {
        if let Some(entry) = self.open.remove(&connection) {
            entry.end(ending);
        }
    }
}

impl Entry {
    fn end(self, ending: Ending) {
        self.link.end(ending);
        self.posts.into_iter().for_each(|done| drop(done.give(Err(ending.into()))));
        self.receives.into_iter().for_each(|done| drop(done.give(Err(ending.into()))));
    }
}

impl Drop for Driver {
    /// Resolves all waiting futures, however the thread ends.
    fn drop(&mut self) {
        for entry in std::mem::take(&mut self.open).into_values() {
            entry.end(Ending::Stopped);
        }
        self.queue.end();
        self.calling.clear();
    }
}

fn refuse<T>(link: &Link, done: Promise<Outcome<T>>) {
    let _ = done.give(Err(link.ended().map_or(AsyncError::Call(Error::NoConnection), AsyncError::from)));
}
