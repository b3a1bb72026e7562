//! Kinds of steps: of jobs with a model, and of traces.

use strandway_import::trace::Kind;

/// The kinds of steps; scripts store an index into this list.
pub(super) const KINDS: [&str; 14] = [
    "forward",
    "backward",
    "update",
    "tp",
    "cp",
    "ep",
    "send",
    "receive",
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "weights",
    "all-to-all",
    "broadcast",
];
pub(super) const FORWARD: u8 = 0;
pub(super) const BACKWARD: u8 = 1;
pub(super) const UPDATE: u8 = 2;
pub(super) const TP: u8 = 3;
pub(super) const CP: u8 = 4;
pub(super) const EP: u8 = 5;
pub(super) const SEND: u8 = 6;
pub(super) const RECEIVE: u8 = 7;
pub(super) const GATHER: u8 = 8;
pub(super) const SCATTER: u8 = 9;
pub(super) const REDUCE: u8 = 10;
/// The gradients of weights, if they are computed apart from those of inputs.
pub(super) const WEIGHTS: u8 = 11;
/// Collectives of imported layers among ranks that hold the same weights.
pub(super) const ALL_TO_ALL: u8 = 12;
pub(super) const BROADCAST: u8 = 13;

/// The kind of step of a collective by itself.
pub(super) fn kind_of(collective: Kind) -> u8 {
    match collective {
        Kind::AllGather => GATHER,
        Kind::ReduceScatter => SCATTER,
        Kind::AllToAll => EP,
        _ => REDUCE,
    }
}

/// The kinds of steps of a trace; scripts store an index into this list.
pub(super) const TRACE_KINDS: [&str; 12] = [
    "compute",
    "cpu",
    "sending",
    "receiving",
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
];
pub(super) const TRACE_CPU: u8 = 1;
pub(super) const TRACE_SENDING: u8 = 2;
pub(super) const TRACE_RECEIVING: u8 = 3;
const FIRST: u8 = 4;

/// The kind of step of a collective.
pub(super) fn trace_kind_of(kind: Kind) -> u8 {
    let offset = match kind {
        Kind::AllReduce | Kind::Barrier => 0,
        Kind::AllGather => 1,
        Kind::ReduceScatter => 2,
        Kind::AllToAll => 3,
        Kind::Broadcast => 4,
        Kind::Reduce => 5,
        Kind::Gather => 6,
        Kind::Scatter => 7,
    };
    FIRST + offset
}
