//! Requests: when they arrive, how long they are, and which blocks of other requests their prompts begin with.

use std::sync::Arc;
use strandway_proto::units::{Span, Time};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrives; without a meaning in closed loops.
    pub at: Time,
    /// Tokens of its prompt, at least 1.
    pub input: u32,
    /// Tokens that it gets, at least 1.
    pub output: u32,
    /// The hashes of the blocks of its prompt. Equal hashes are equal prefixes. May be empty.
    pub hashes: Arc<[u64]>,
}

/// When requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At the times that they have.
    Open,
    /// Users send one request after the other: the next one this long after the last token.
    Closed {
        /// Their number. All begin at the first request's time.
        users: u32,
        /// The time that a user thinks.
        think: Span,
    },
}
