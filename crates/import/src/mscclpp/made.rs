//! The messages and nodes of a plan, and how signals, waits, reads and packets become dependencies.

use super::Wrong;
use std::collections::BTreeMap;
use strandway_collective::recipe::Does;
use strandway_collective::{Collective, Recipe, RecipeBuilder, RecipeError};

/// A way of signals: sender, receiver, the kind of channel, and its number among those between the two.
pub(super) type Way = (u32, u32, String, usize);

/// A message that is not a part of a recipe yet.
pub(super) struct Sent {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) lane: u32,
    pub(super) chunks: Vec<u32>,
    pub(super) adds: bool,
    pub(super) received: bool,
}

/// A signal: its message, its node at the sender, and the messages that it announces.
pub(super) struct Signal {
    pub(super) message: usize,
    pub(super) node: usize,
    pub(super) data: Vec<usize>,
}

/// A read of another GPU's memory: its message, and the signal that was waited for before.
pub(super) struct Pull {
    pub(super) message: usize,
    pub(super) after: Option<(Way, usize)>,
}

/// A node of a GPU: what it does, with the numbers of messages here, and what it waits for.
#[derive(Clone)]
pub(super) enum Act {
    Nothing,
    Send(usize),
    Receive(usize),
}

#[derive(Default)]
pub(super) struct Made {
    pub(super) chunks: u32,
    pub(super) steps: usize,
    pub(super) messages: Vec<Sent>,
    pub(super) nodes: Vec<Vec<(Act, Vec<u32>)>>,
    pub(super) signals: BTreeMap<Way, Vec<Signal>>,
    pub(super) waits: Vec<(u32, usize, Way, usize)>,
    pub(super) counts: BTreeMap<Way, usize>,
    pub(super) pulls: Vec<Pull>,
    /// Packets by the chunk of scratch memory that they are written to, and the nodes that read them.
    pub(super) packets: BTreeMap<(u32, u32), Vec<usize>>,
    pub(super) readers: Vec<(u32, usize, Vec<u32>)>,
    pub(super) barriers: BTreeMap<(u32, u32), Vec<(usize, usize)>>,
    pub(super) releases: BTreeMap<(u32, u32), Vec<usize>>,
    pub(super) acquires: Vec<(u32, usize, u32, usize)>,
    pub(super) acquired: BTreeMap<(u32, u32), usize>,
}

impl Made {
    pub(super) fn node(&mut self, gpu: u32, act: Act, after: Vec<u32>) -> usize {
        self.nodes[gpu as usize].push((act, after));
        self.nodes[gpu as usize].len() - 1
    }

    pub(super) fn message(&mut self, from: u32, to: u32, lane: usize, chunks: Vec<u32>, adds: bool) -> usize {
        self.messages.push(Sent { from, to, lane: lane as u32, chunks, adds, received: false });
        self.messages.len() - 1
    }

    /// The node at which a message is received; a new one, unless it has one.
    pub(super) fn received(&mut self, message: usize, nodes: &mut BTreeMap<usize, u32>) -> u32 {
        if let Some(&node) = nodes.get(&message) {
            return node;
        }
        let to = self.messages[message].to;
        let node = self.node(to, Act::Receive(message), Vec::new()) as u32;
        self.messages[message].received = true;
        nodes.insert(message, node);
        node
    }

    /// Joins signals and waits, reads and writes, and makes the recipe.
    pub(super) fn recipe(mut self, collective: Collective) -> Result<Recipe, Wrong> {
        let mut nodes: BTreeMap<usize, u32> = BTreeMap::new();
        for (gpu, node, way, place) in std::mem::take(&mut self.waits) {
            let Some(signal) = self.signals.get(&way).and_then(|all| all.get(place)) else {
                let what = format!("GPU {gpu} waits for a signal of GPU {} that is never sent", way.0);
                return Err((what, "correct the channels of the thread blocks"));
            };
            let (message, data) = (signal.message, signal.data.clone());
            let mut needs: Vec<u32> = data.into_iter().map(|one| self.received(one, &mut nodes)).collect();
            self.messages[message].received = true;
            nodes.insert(message, node as u32);
            let entry = &mut self.nodes[gpu as usize][node];
            entry.0 = Act::Receive(message);
            entry.1.append(&mut needs);
        }
        for Pull { message, after } in std::mem::take(&mut self.pulls) {
            let signal = after.as_ref().and_then(|(way, place)| self.signals.get(way)?.get(*place));
            let after = signal.map(|signal| signal.node as u32).into_iter().collect();
            let from = self.messages[message].from;
            self.node(from, Act::Send(message), after);
        }
        for (gpu, node, chunks) in std::mem::take(&mut self.readers) {
            let mut wanted: Vec<usize> =
                chunks.iter().flat_map(|chunk| self.packets.get(&(gpu, *chunk)).cloned().unwrap_or_default()).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let mut needs: Vec<u32> = wanted.into_iter().map(|one| self.received(one, &mut nodes)).collect();
            self.nodes[gpu as usize][node].1.append(&mut needs);
        }
        for (gpu, node, semaphore, place) in std::mem::take(&mut self.acquires) {
            let release = self.releases.get(&(gpu, semaphore)).and_then(|all| all.get(place)).copied();
            // A semaphore that nobody has released has its first value.
            self.nodes[gpu as usize][node].1.extend(release.map(|release| release as u32));
        }
        for ((gpu, _), at) in std::mem::take(&mut self.barriers) {
            // The n-th barrier of a thread block is that of all others.
            let rounds = at.iter().map(|(round, _)| *round + 1).max().unwrap_or(0);
            for round in 0..rounds {
                let mine: Vec<usize> = at.iter().filter(|(own, _)| *own == round).map(|(_, node)| *node).collect();
                let needs: Vec<u32> = mine.iter().flat_map(|node| self.nodes[gpu as usize][*node].1.clone()).collect();
                mine.iter().for_each(|node| self.nodes[gpu as usize][*node].1.clone_from(&needs));
            }
        }
        for message in 0..self.messages.len() {
            if !self.messages[message].received {
                self.received(message, &mut nodes);
            }
        }
        let mut built = RecipeBuilder::new(self.nodes.len() as u32, self.chunks);
        for one in &self.messages {
            built.message((one.from, one.to, one.lane), &one.chunks, one.adds);
        }
        for (gpu, mine) in (0u32..).zip(self.nodes) {
            for (act, after) in mine {
                let does = match act {
                    Act::Nothing => Does::Nothing,
                    Act::Send(message) => Does::Send(message as u32),
                    Act::Receive(message) => Does::Receive(message as u32),
                };
                built.node(gpu, does, &after);
            }
        }
        built.finish("mscclpp", collective).map_err(|error| match error {
            RecipeError::Circle(gpu, _) => {
                (format!("steps of GPU {gpu} wait for each other in a circle"), "correct the signals")
            }
            other => (other.to_string(), "correct the plan"),
        })
    }
}
