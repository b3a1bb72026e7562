//! File batches that wait to be cast, each with the list of its hashes, which a separate thread makes.

use super::{CastError, List, step_back};
use crate::copy::parts::Order;
use std::sync::mpsc;
use std::thread::JoinHandle;
use strandway_group::GroupError;
use strandway_proto::repair::Code;
use strandway_udp::Waker;

/// A file batch that waits to be cast.
pub(super) struct Ready {
    /// Its slot.
    pub(super) slot: u16,
    pub(super) bytes: Vec<u8>,
    /// The list of its hashes; `None` if members trust each other.
    pub(super) list: Option<List>,
    /// The receivers have the list, since it came with the file batch before.
    pub(super) listed: bool,
}

/// An order of the disk thread, after hashing.
pub(super) enum Step {
    /// Cast this file batch.
    Parcel(Result<Ready, GroupError>),
    /// Any other order.
    Other(Order),
}

/// Passes orders on, and adds to each file batch the list of its hashes, for chunks and parity as in `cut`; without
/// `cut` there are no lists. Wakes the node at each order. The thread ends when either channel ends.
pub(super) fn hasher(
    orders: mpsc::Receiver<Order>,
    cut: Option<(u16, Option<Code>)>,
    waker: Waker,
) -> Result<(mpsc::Receiver<Step>, JoinHandle<()>), CastError> {
    let (steps, out) = mpsc::channel();
    let thread = std::thread::Builder::new().name("hashes".into()).spawn(move || {
        step_back();
        for order in orders {
            let step = match order {
                Order::Write(slot, bytes) => {
                    let list = cut.map(|(chunk, parity)| List::of(&bytes, chunk, parity)).transpose();
                    Step::Parcel(list.map(|list| Ready { slot, bytes, list, listed: false }))
                }
                other => Step::Other(other),
            };
            if steps.send(step).is_err() {
                break;
            }
            waker.wake();
        }
        drop(steps);
        waker.wake();
    });
    let thread = thread.map_err(|error| CastError::Option(format!("no thread for hashes: {error}")))?;
    Ok((out, thread))
}
