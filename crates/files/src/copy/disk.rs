//! The disk thread of the side that writes: it takes messages and parcels, and returns answers and results.

use super::file_error::FileError;
use super::message::{MESSAGE_MAX, Message};
use super::receiver::Receiver;
use std::sync::mpsc;

/// The most results of files in one message, so that it fits.
const RESULTS_MAX: usize = 8_192;

/// Work for the disk thread of a client.
#[derive(Debug)]
pub enum Work {
    /// A message of the client, and the part of the inbox that it is in.
    Message(usize, Message),
    /// A parcel is here.
    Parcel {
        /// Its slot.
        slot: u16,
        /// Its pieces, behind `from` bytes of no meaning.
        bytes: Vec<u8>,
        /// Where the pieces begin.
        from: usize,
        /// Payload that was rebuilt from parity so far, in bytes: for the client's counters.
        rebuilt: u64,
    },
}

/// News of a disk thread.
#[derive(Debug)]
pub enum DiskEvent {
    /// The result of opening the directory.
    Ready(Result<(), FileError>),
    /// Send this.
    Message(Vec<u8>),
    /// A received message has been handled: its part of the inbox may be posted again.
    Heard(usize),
    /// A parcel has been written.
    Freed(u16),
    /// The client broke the protocol.
    Broken,
}

/// Does the disk work of one client until the channel of work ends.
pub fn work(mut receiver: Receiver, list: &mpsc::Receiver<Work>, tell: impl Fn(DiskEvent)) {
    while let Ok(work) = list.recv() {
        match work {
            Work::Message(part, message) => match receiver.handle_message(message) {
                Ok(answer) => {
                    let bytes = answer.encode();
                    debug_assert!(bytes.len() <= MESSAGE_MAX);
                    tell(DiskEvent::Message(bytes));
                    tell(DiskEvent::Heard(part));
                }
                Err(_) => return tell(DiskEvent::Broken),
            },
            Work::Parcel { slot, bytes, from, rebuilt } => {
                let Ok(results) = receiver.take(bytes.get(from..).unwrap_or_default()) else {
                    return tell(DiskEvent::Broken);
                };
                receiver.give_back(bytes);
                tell(DiskEvent::Freed(slot));
                let mut results = results.chunks(RESULTS_MAX);
                let mut freed = vec![slot];
                loop {
                    let results = results.next();
                    if results.is_none() && freed.is_empty() {
                        break;
                    }
                    let results = results.unwrap_or_default().to_vec();
                    let freed = std::mem::take(&mut freed);
                    tell(DiskEvent::Message(Message::Progress { rebuilt, freed, results }.encode()));
                }
            }
        }
    }
}
