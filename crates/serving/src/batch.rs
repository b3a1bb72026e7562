//! The scheduler of one replica: which requests share the next step, and which of them have memory for their KV cache.
//!
//! It has no clock. A caller pushes requests, asks for the next step, and says when a step has ended:
//!
//! - *Continuous batching*: requests join and leave between any two steps. Each request that decodes gets one token per
//!   step. The rest of the step's budget of tokens goes to prompts, the oldest first; with chunked prefill a prompt
//!   may take several steps.
//! - *Memory* is reserved for the whole request (in prefill pools: its prompt) when it is admitted, so no request is
//!   ever preempted. Requests are admitted in the order in which they came.
//! - *Prefix cache*: whole blocks of prompts stay in memory after their requests and are evicted, the least recently
//!   used ones first, when memory is needed. A prompt that begins with cached blocks needs no computation for them.

use crate::blocks::Blocks;
use crate::timing::Work;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The work of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Prompts only. It keeps the KV cache of a request until the caller releases it.
    Prefill,
    /// Tokens only: requests arrive with their KV cache.
    Decode,
    /// Both.
    Both,
}

/// The limits of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of a step.
    pub budget: u32,
    /// Requests that are computed at a time.
    pub batch: u32,
    /// Tokens of KV cache.
    pub tokens: u64,
    /// Tokens of a block of the prefix cache.
    pub block: u32,
    /// May a prompt be cut into several steps?
    pub chunked: bool,
}

/// A request in a replica.
#[derive(Clone, Debug)]
struct Entry {
    input: u32,
    output: u32,
    hashes: Arc<[u64]>,
    /// Tokens that the request alone holds.
    own: u64,
    /// The leading blocks that it has pinned.
    pinned: usize,
    /// Tokens of its prompt that were in the cache.
    cached: u32,
    /// Tokens of its prompt that steps have taken, and that steps have computed.
    taken: u32,
    computed: u32,
    /// Tokens that it got.
    made: u32,
    /// Is a token of it being computed?
    busy: bool,
}

/// A request's part in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The request.
    pub request: u32,
    /// Tokens of its prompt; 0 if it decodes.
    pub prompt: u32,
    /// Tokens before these.
    pub before: u32,
    /// Is its prompt complete after this step?
    pub last: bool,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The requests in it, those that decode first.
    pub parts: Vec<Part>,
    /// Its work.
    pub work: Work,
}

/// The progress of a request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its prompt is computed.
    Computed(u32),
    /// It has another token: the number of its tokens so far.
    Token(u32, u32),
    /// It has all its tokens; its memory is free.
    Finished(u32),
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Batcher {
    role: Role,
    limits: Limits,
    entries: BTreeMap<u32, Entry>,
    /// Requests without memory.
    waiting: VecDeque<u32>,
    /// Requests whose prompt is not taken completely.
    prompts: VecDeque<u32>,
    /// Requests whose KV cache has arrived.
    ready: VecDeque<u32>,
    decoding: Vec<u32>,
    /// Requests between their admission and the end of their computation.
    active: u32,
    /// Tokens that single requests hold.
    own: u64,
    blocks: Blocks,
}

impl Batcher {
    /// A replica without requests.
    pub fn new(role: Role, limits: Limits) -> Batcher {
        Batcher {
            role,
            limits,
            entries: BTreeMap::new(),
            waiting: VecDeque::new(),
            prompts: VecDeque::new(),
            ready: VecDeque::new(),
            decoding: Vec::new(),
            active: 0,
            own: 0,
            blocks: Blocks::default(),
        }
    }

    /// The memory that a request needs, without the prefix cache.
    pub fn need(role: Role, input: u32, output: u32) -> u64 {
        u64::from(input) + if role == Role::Prefill { 0 } else { u64::from(output) }
    }

    /// Adds a request to the end of the queue. It must fit the memory: [`Batcher::need`].
    ///
    /// # Panics
    /// If it can never be admitted, or if it is here already.
    pub fn push(&mut self, request: u32, input: u32, output: u32, hashes: Arc<[u64]>) {
        assert!(Batcher::need(self.role, input, output) <= self.limits.tokens, "request {request} fits the memory");
        let entry =
            Entry { input, output, hashes, own: 0, pinned: 0, cached: 0, taken: 0, computed: 0, made: 0, busy: false };
        assert!(self.entries.insert(request, entry).is_none(), "request {request} comes once");
        self.waiting.push_back(request);
    }

    /// Gives memory to the requests at the head of the queue, and returns them. In a decode pool they wait for their
    /// caches from now on ([`Batcher::arrived`]).
    pub fn admit(&mut self) -> Vec<u32> {
        let mut admitted = Vec::new();
        while let Some(&request) = self.waiting.front() {
            let computes = self.role != Role::Decode;
            if computes && self.active >= self.limits.batch || !self.reserve(request) {
                break;
            }
            self.waiting.pop_front();
            if computes {
                self.active += 1;
                self.prompts.push_back(request);
            }
            admitted.push(request);
        }
        admitted
    }

    /// Reserves the memory of a request, if it fits.
    fn reserve(&mut self, request: u32) -> bool {
        let entry = self.entries.get_mut(&request).expect("a known request");
        let block = u64::from(self.limits.block.max(1));
        let hits = match self.role {
            Role::Decode => 0,
            // The last token of a prompt is computed in any case: the model's answer begins behind it.
            _ => self.blocks.matching(&entry.hashes).min((entry.input as usize - 1) / block as usize),
        };
        let need = Batcher::need(self.role, entry.input, entry.output) - hits as u64 * block;
        let idle = (self.blocks.idle() - self.blocks.idle_among(&entry.hashes[..hits])) as u64;
        let busy = self.blocks.len() as u64 - idle;
        if self.own + busy * block + need > self.limits.tokens {
            return false;
        }
        self.blocks.pin(&entry.hashes[..hits]);
        while self.own + self.blocks.len() as u64 * block + need > self.limits.tokens {
            assert!(self.blocks.evict(), "idle blocks make room");
        }
        self.own += need;
        entry.own = need;
        entry.pinned = hits;
        entry.cached = (hits as u64 * block) as u32;
        (entry.taken, entry.computed) = (entry.cached, entry.cached);
        true
    }

    /// The KV cache of an admitted request of a decode pool has arrived.
    pub fn arrived(&mut self, request: u32) {
        debug_assert!(self.role == Role::Decode && self.entries.contains_key(&request));
        self.ready.push_back(request);
    }

    /// The next step; `None` if there is nothing to compute. Steps end in the order in which they begin.
    pub fn next_step(&mut self) -> Option<Step> {
        while self.decoding.len() < self.limits.batch as usize {
            let Some(request) = self.ready.pop_front() else { break };
            self.decoding.push(request);
        }
        let mut step = Step::default();
        for &request in &self.decoding {
            let entry = self.entries.get_mut(&request).expect("a known request");
            if entry.busy {
                continue;
            }
            entry.busy = true;
            let before = entry.input + entry.made;
            step.parts.push(Part { request, prompt: 0, before, last: false });
            step.work.decodes += 1;
            step.work.context += u64::from(before);
        }
        let mut left = self.limits.budget.saturating_sub(step.parts.len() as u32);
        while let Some(&request) = self.prompts.front() {
            let entry = self.entries.get_mut(&request).expect("a known request");
            let rest = entry.input - entry.taken;
            let whole = !self.limits.chunked && (step.work.prompt == 0 || rest <= left);
            let prompt = if whole { rest } else { rest.min(left) };
            if prompt == 0 || !self.limits.chunked && prompt < rest {
                break;
            }
            let (before, last) = (entry.taken, prompt == rest);
            entry.taken += prompt;
            left = left.saturating_sub(prompt);
            step.parts.push(Part { request, prompt, before, last });
            let tokens = u64::from(prompt);
            step.work.prompt += tokens;
            step.work.prompt_context += tokens * u64::from(before) + tokens * (tokens - 1) / 2;
            if !last {
                break;
            }
            self.prompts.pop_front();
        }
        (!step.parts.is_empty()).then_some(step)
    }

    /// A step has ended.
    pub fn finish(&mut self, step: &Step) -> Vec<Progress> {
        let mut progress = Vec::new();
        for part in &step.parts {
            let entry = self.entries.get_mut(&part.request).expect("a known request");
            if part.prompt > 0 {
                entry.computed += part.prompt;
                if !part.last {
                    continue;
                }
                self.keep_blocks(part.request);
                progress.push(Progress::Computed(part.request));
                if self.role == Role::Prefill {
                    self.active -= 1;
                    continue;
                }
            }
            let entry = self.entries.get_mut(&part.request).expect("a known request");
            if part.prompt > 0 {
                self.decoding.push(part.request);
            }
            entry.busy = false;
            entry.made += 1;
            progress.push(Progress::Token(part.request, entry.made));
            if entry.made >= entry.output {
                self.decoding.retain(|request| *request != part.request);
                self.active = self.active.saturating_sub(u32::from(self.role == Role::Both));
                self.release(part.request);
                progress.push(Progress::Finished(part.request));
            }
        }
        progress
    }

    /// The whole blocks of a computed prompt become part of the prefix cache.
    fn keep_blocks(&mut self, request: u32) {
        let block = self.limits.block.max(1);
        let entry = self.entries.get_mut(&request).expect("a known request");
        let whole = ((entry.input / block) as usize).min(entry.hashes.len());
        if whole > entry.pinned {
            let tokens = (whole - entry.pinned) as u64 * u64::from(block);
            self.blocks.pin(&entry.hashes[entry.pinned..whole]);
            entry.pinned = whole;
            entry.own -= tokens;
            self.own -= tokens;
        }
    }

    /// The replica no longer needs the KV cache of a request, whose prompt is computed.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn release(&mut self, request: u32) {
        let entry = self.entries.remove(&request).expect("a known request");
        self.own -= entry.own;
        self.blocks.unpin(&entry.hashes[..entry.pinned]);
    }

    /// Tokens of a request's prompt that were in the prefix cache.
    pub fn cached(&self, request: u32) -> u32 {
        self.entries.get(&request).map_or(0, |entry| entry.cached)
    }

    /// Requests that wait for memory, for a place in the batch, or for the first step of their prompt.
    pub fn waiting(&self) -> u32 {
        (self.waiting.len() + self.ready.len()) as u32 + self.unbegun()
    }

    /// Requests whose prompts no step has begun. Only the first of the queue may have begun.
    fn unbegun(&self) -> u32 {
        let first = self.prompts.front().and_then(|request| self.entries.get(request));
        self.prompts.len() as u32 - u32::from(first.is_some_and(|entry| entry.taken > entry.cached))
    }

    /// Requests that compute.
    pub fn running(&self) -> u32 {
        if self.role == Role::Decode { self.decoding.len() as u32 } else { self.active - self.unbegun() }
    }

    /// Tokens of KV cache that requests hold, without blocks that could be evicted.
    pub fn held(&self) -> u64 {
        self.own + (self.blocks.len() - self.blocks.idle()) as u64 * u64::from(self.limits.block)
    }

    /// Tokens of KV cache in memory.
    pub fn used(&self) -> u64 {
        self.own + self.blocks.len() as u64 * u64::from(self.limits.block)
    }

    /// True without requests.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
