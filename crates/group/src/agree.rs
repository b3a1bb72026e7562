//! How ranks agree before they form a team: each sends rank 0 some bytes over a connection, and rank 0 sends all of
//! them the same answer.

use crate::error::GroupError;
use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Connection, Node, Operation, Reason, Region};

/// Bytes that a rank sends, and receives as the answer, in a round.
pub(crate) const WORDS: usize = 64;
/// The number of rounds for which receives are posted ahead: ours.
const ROUNDS: usize = 4;
/// The time after which a rank without an answer calls again.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest that a rank sleeps before it asks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The bytes of a rank, or of the answer, in a round.
pub(crate) type Words = [u8; WORDS];

/// Connections by which ranks agree: from every rank to rank 0.
pub(crate) struct Agreement {
    rank: u32,
    ranks: u32,
    root: Vec<SocketAddrV6>,
    until: Instant,
    patience: Duration,
    /// The connection to rank 0; at rank 0 the connections of the others, by rank.
    up: Option<Connection>,
    down: HashMap<Connection, Option<u32>>,
    inboxes: HashMap<Connection, (Region, usize)>,
    /// The memory of sends under way.
    saying: HashMap<Operation, Region>,
    /// Words that have arrived, the oldest first: those of rank 0, or at rank 0 those of the other ranks.
    come: Vec<(Connection, Words)>,
}

impl Agreement {
    /// Calls rank 0; at rank 0, waits for the others.
    pub(crate) fn begin(
        node: &mut Node,
        rank: u32,
        ranks: u32,
        root: &[SocketAddrV6],
        patience: Duration,
    ) -> Result<Agreement, GroupError> {
        let mut agreement = Agreement {
            rank,
            ranks,
            root: root.to_vec(),
            until: Instant::now() + patience,
            patience,
            up: None,
            down: HashMap::new(),
            inboxes: HashMap::new(),
            saying: HashMap::new(),
            come: Vec::new(),
        };
        if rank != 0 {
            agreement.up = Some(node.connect(root)?);
        }
        Ok(agreement)
    }

    /// Sends rank 0 these words, and returns its answer. At rank 0, `answer` computes it from the words of all ranks,
    /// in their order.
    ///
    /// The words of the first round begin with the rank (4 bytes, big-endian).
    pub(crate) fn round(
        &mut self,
        node: &mut Node,
        words: &Words,
        answer: impl FnOnce(&[Words]) -> Result<Words, GroupError>,
        stop: &impl Fn() -> bool,
    ) -> Result<Words, GroupError> {
        if self.rank != 0 {
            while self.inboxes.is_empty() {
                self.turn(node, stop)?;
            }
            let up = self.up.expect("reached");
            self.send_words(node, up, words)?;
            loop {
                if let Some(at) = self.come.iter().position(|(from, _)| *from == up) {
                    return Ok(self.come.remove(at).1);
                }
                self.turn(node, stop)?;
            }
        }
        let mut all = vec![None; self.ranks as usize];
        all[0] = Some(*words);
        while all.iter().any(Option::is_none) {
            let mut later = Vec::new();
            for (from, words) in std::mem::take(&mut self.come) {
                let rank = match self.down.get(&from).copied().flatten() {
                    Some(rank) => rank,
                    None => {
                        let rank = words.first_chunk().map_or(0, |rank| u32::from_be_bytes(*rank));
                        let taken = self.down.values().any(|other| *other == Some(rank));
                        if rank == 0 || rank >= self.ranks || taken {
                            return Err(GroupError::Config(format!(
                                "a process came as rank {rank} of {}: give each process a rank of its own, from 0 on",
                                self.ranks
                            )));
                        }
                        self.down.insert(from, Some(rank));
                        rank
                    }
                };
                // A rank that is ahead of the others sends the words of its next round.
                match &mut all[rank as usize] {
                    slot @ None => *slot = Some(words),
                    Some(_) => later.push((from, words)),
                }
            }
            self.come = later;
            if all.iter().all(Option::is_some) {
                break;
            }
            let missing = || (0..).zip(&all).filter(|(_, words)| words.is_none()).map(|(rank, _)| rank).collect();
            if Instant::now() > self.until {
                return Err(GroupError::Missing { ranks: missing(), seconds: self.patience.as_secs_f64() });
            }
            self.turn(node, stop)?;
        }
        let all: Vec<Words> = all.into_iter().flatten().collect();
        let answer = answer(&all)?;
        let others: Vec<Connection> = self.down.keys().copied().collect();
        for connection in others {
            self.send_words(node, connection, &answer)?;
        }
        Ok(answer)
    }

    /// Closes the connections, once the answers have arrived.
    pub(crate) fn end(mut self, node: &mut Node) -> Result<(), GroupError> {
        if self.rank == 0 {
            // The others close; a rank that has died since is not waited for.
            let until = Instant::now() + Duration::from_secs(2);
            while !self.down.is_empty() && Instant::now() < until {
                if let Some(Completion::Closed { connection, .. }) = node.wait(LOOK)? {
                    self.down.remove(&connection);
                }
            }
        }
        for connection in self.up.into_iter().chain(self.down.keys().copied()) {
            // The connection may have ended by itself.
            let _ = node.close(connection);
        }
        for region in self.inboxes.into_values().map(|(region, _)| region).chain(self.saying.into_values()) {
            // Its connection is gone, so nothing uses it.
            let _ = node.deregister(region);
        }
        Ok(())
    }

    fn turn(&mut self, node: &mut Node, stop: &impl Fn() -> bool) -> Result<(), GroupError> {
        if stop() {
            return Err(GroupError::Stopped);
        }
        if self.rank != 0 && Instant::now() > self.until {
            return Err(GroupError::Missing { ranks: vec![0], seconds: self.patience.as_secs_f64() });
        }
        match node.wait(LOOK)? {
            Some(completion) => self.handle_completion(node, completion),
            None => Ok(()),
        }
    }

    /// Handles a completion, if it belongs to the agreement.
    pub(crate) fn handle_completion(&mut self, node: &mut Node, completion: Completion) -> Result<(), GroupError> {
        match completion {
            Completion::Connected { connection } if self.up == Some(connection) => self.listen(node, connection)?,
            Completion::Accepted { connection, .. } if self.rank == 0 => {
                self.down.insert(connection, None);
                self.listen(node, connection)?;
            }
            Completion::Received { connection, bytes, .. } => {
                let Some((region, part)) = self.inboxes.get_mut(&connection) else { return Ok(()) };
                let start = *part * WORDS;
                *part = (*part + 1) % ROUNDS;
                let mut words = [0; WORDS];
                if bytes as usize == WORDS {
                    words.copy_from_slice(&node.memory(*region)?[start..start + WORDS]);
                }
                node.recv(connection, *region, start..start + WORDS)?;
                // A rank sends no more words ahead than there are rounds.
                if self.come.iter().filter(|(from, _)| *from == connection).count() < ROUNDS {
                    self.come.push((connection, words));
                }
            }
            Completion::Sent { operation, .. } => {
                if let Some(region) = self.saying.remove(&operation) {
                    node.deregister(region)?;
                }
            }
            Completion::Closed { connection, reason } => {
                if self.up == Some(connection) {
                    let patient = matches!(reason, Reason::NoAnswer | Reason::PeerFull) && self.inboxes.is_empty();
                    if !patient || Instant::now() > self.until {
                        return Err(GroupError::Unreachable { address: self.root[0], reason });
                    }
                    // Rank 0 is not there yet.
                    std::thread::sleep(AGAIN);
                    self.up = Some(node.connect(&self.root)?);
                }
                if let Some(Some(rank)) = self.down.remove(&connection) {
                    return Err(GroupError::Dead { rank });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn listen(&mut self, node: &mut Node, connection: Connection) -> Result<(), GroupError> {
        let region = node.register(vec![0; ROUNDS * WORDS]);
        for part in 0..ROUNDS {
            node.recv(connection, region, part * WORDS..(part + 1) * WORDS)?;
        }
        self.inboxes.insert(connection, (region, 0));
        Ok(())
    }

    fn send_words(&mut self, node: &mut Node, connection: Connection, words: &Words) -> Result<(), GroupError> {
        let region = node.register(words.to_vec());
        let operation = node.send(connection, region, 0..WORDS)?;
        self.saying.insert(operation, region);
        Ok(())
    }
}
