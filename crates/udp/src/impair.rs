//! A bad wire for tests: a relay between two sockets that loses, reorders, repeats, delays, corrupts, marks and trims
//! datagrams.
//!
//! Put it between a caller and a node: `front()` is the address to connect to, on one plane. The fate of the n-th
//! datagram of a direction depends only on the seed. Its timing depends on the clock, so two runs are similar but not
//! equal.

use crate::error::Error;
use crate::frame::{self, Frame, Kind, TRIMMED};
use crate::socket::{CE, Inbox, Udp};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandway_fabric::datagram::CONTROL_DSCP;
use strandway_fabric::kernel::Without;
use strandway_proto::rng::{Random, StreamKind};

/// Impairments of each datagram, in both directions; shares are of 1, all zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Share that is lost.
    pub loss: f64,
    /// Share that comes twice.
    pub duplicate: f64,
    /// Share that is held back for `hold`, so that others overtake it.
    pub reorder: f64,
    /// How long a reordered datagram is held back.
    pub hold: Duration,
    /// How long every datagram is on its way.
    pub delay: Duration,
    /// Bytes of the longest datagram that passes; 0: any length.
    pub widest: usize,
    /// Share in which one bit is flipped.
    pub corrupt: f64,
    /// Share that is marked CE, if its sender allows it (ECT).
    pub mark: f64,
    /// Share that is trimmed to [`frame::TRIMMED`] bytes and gets the DSCP of control, as a switch treats data for
    /// which it has no room.
    pub trim: f64,
}

/// Counters of a wire, both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Datagrams that left the wire.
    pub delivered: u64,
    /// Datagrams that were lost: by chance, during silence, or because 65,536 were already on the wire.
    pub lost: u64,
    /// Datagrams that were delivered twice.
    pub duplicated: u64,
    /// Datagrams that were held back.
    pub held: u64,
    /// Datagrams that were corrupted.
    pub corrupted: u64,
    /// Datagrams that were marked.
    pub marked: u64,
    /// Datagrams that were trimmed.
    pub trimmed: u64,
}

#[derive(Default)]
struct Shared {
    impairment: Mutex<Impairment>,
    stop: AtomicBool,
    silent: AtomicBool,
    counters: [AtomicU64; 7],
}

/// The most datagrams on the wire at a time; further ones are lost. Ours: 64 Ki.
const HELD_MAX: usize = 65_536;
/// Size of each socket's buffers in bytes; ours.
const BUFFER: usize = 4 << 20;
/// Receiving calls per end before datagrams that are due are sent; ours.
const CALLS_PER_TURN: usize = 32;

/// A relay on a thread of its own, until it is dropped.
pub struct Wire {
    front: SocketAddrV6,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// A wire to the node at `to`, on the same address of loopback (or of the network namespace of the calling thread).
    ///
    /// # Errors
    /// If sockets cannot be opened.
    pub fn to(to: SocketAddrV6, impairment: Impairment, seed: u64) -> Result<Wire, Error> {
        let local = SocketAddrV6::new(*to.ip(), 0, 0, to.scope_id());
        let open = |peer| Udp::open(local, BUFFER, BUFFER, Without::default()).map(|socket| End { socket, peer });
        let (front, back) = (open(None)?, open(Some(to))?);
        let address = front.socket.address()?;
        let shared = Arc::new(Shared { impairment: Mutex::new(impairment), ..Shared::default() });
        let relay = Relay {
            ends: [front, back],
            random: [0, 1].map(|direction| Random::new(seed, StreamKind::Connection, direction)),
            held: BinaryHeap::new(),
            count: 0,
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new().name("wire".into()).spawn(move || relay.run()).map_err(Error::Wait)?;
        Ok(Wire { front: address, shared, thread: Some(thread) })
    }

    /// The address to connect to.
    pub const fn front(&self) -> SocketAddrV6 {
        self.front
    }

    /// `true`: loses all datagrams from now on; `false`: works as before.
    pub fn silence(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::Relaxed);
    }

    /// Sets the impairments from now on.
    pub fn change(&self, impairment: Impairment) {
        if let Ok(mut present) = self.shared.impairment.lock() {
            *present = impairment;
        }
    }

    /// Its counters.
    pub fn counters(&self) -> WireCounters {
        let [delivered, lost, duplicated, held, corrupted, marked, trimmed] =
            self.shared.counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        WireCounters { delivered, lost, duplicated, held, corrupted, marked, trimmed }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread panics only because of a bug of ours, and has printed it then.
            let _ = thread.join();
        }
    }
}

const DELIVERED: usize = 0;
const LOST: usize = 1;
const DUPLICATED: usize = 2;
const HELD: usize = 3;
const CORRUPTED: usize = 4;
const MARKED: usize = 5;
const CUT: usize = 6;

struct End {
    socket: Udp,
    /// The destination of datagrams that arrive at the other end.
    peer: Option<SocketAddrV6>,
}

/// A datagram on the wire, ordered by its time of departure.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    at: Instant,
    number: u64,
    /// The end by which it leaves.
    end: usize,
    /// DSCP and ECN.
    class: u8,
    bytes: Vec<u8>,
}

struct Relay {
    ends: [End; 2],
    random: [Random; 2],
    held: BinaryHeap<Reverse<Held>>,
    count: u64,
    shared: Arc<Shared>,
}

impl Relay {
    fn run(mut self) {
        let mut inbox = Inbox::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            for from in 0..2 {
                for _ in 0..CALLS_PER_TURN {
                    if !self.ends[from].socket.receive(&mut inbox) {
                        break;
                    }
                    let now = Instant::now();
                    inbox.each(|arrival, datagram| {
                        if from == 0 {
                            self.ends[0].peer = Some(arrival.from);
                        }
                        self.take(now, from, arrival.class, datagram);
                    });
                }
            }
            self.release();
            self.sleep();
        }
    }

    fn add(&self, what: usize) {
        self.shared.counters[what].fetch_add(1, Ordering::Relaxed);
    }

    /// A datagram came in by one end.
    fn take(&mut self, now: Instant, from: usize, mut class: u8, datagram: &[u8]) {
        let present = self.shared.impairment.lock().map_or_else(|poisoned| *poisoned.into_inner(), |present| *present);
        let Impairment { loss, duplicate, reorder, hold, delay, corrupt, mark, trim, widest } = present;
        let random = &mut self.random[from];
        // Always the same number of draws, so that changing one share does not change the other decisions.
        let draws: [f64; 6] = std::array::from_fn(|_| random.unit());
        let place = random.next_u64();
        let mut bytes = datagram.to_vec();
        let too_long = widest > 0 && datagram.len() > widest;
        if too_long || draws[0] < loss || self.shared.silent.load(Ordering::Relaxed) || self.held.len() >= HELD_MAX {
            return self.add(LOST);
        }
        let mut at = now + delay;
        if draws[1] < reorder {
            at += hold;
            self.add(HELD);
        }
        if draws[2] < corrupt && !bytes.is_empty() {
            let bit = place % (bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.add(CORRUPTED);
        }
        if draws[3] < mark && class & CE != 0 {
            class |= CE;
            self.add(MARKED);
        }
        if draws[5] < trim && bytes.len() > TRIMMED && is_data(&bytes) {
            bytes.truncate(TRIMMED);
            class = CONTROL_DSCP << 2 | class & CE;
            self.add(CUT);
        }
        if draws[4] < duplicate {
            self.add(DUPLICATED);
            self.hold(at + hold, 1 - from, class, bytes.clone());
        }
        self.hold(at, 1 - from, class, bytes);
    }

    fn hold(&mut self, at: Instant, end: usize, class: u8, bytes: Vec<u8>) {
        self.count += 1;
        self.held.push(Reverse(Held { at, number: self.count, end, class, bytes }));
    }

    fn release(&mut self) {
        let now = Instant::now();
        while let Some(Reverse(held)) = self.held.peek() {
            if held.at > now {
                return;
            }
            let Some(Reverse(held)) = self.held.pop() else { return };
            let end = &self.ends[held.end];
            let Some(destination) = end.peer else { continue };
            let sent = end.socket.send(destination, held.class, &held.bytes, None).is_ok();
            self.add(if sent { DELIVERED } else { LOST });
        }
    }

    fn sleep(&self) {
        let most = Duration::from_millis(5);
        let next = self.held.peek().map_or(most, |Reverse(held)| held.at.saturating_duration_since(Instant::now()));
        let timeout = Timespec { tv_sec: 0, tv_nsec: next.min(most).as_nanos() as i64 };
        let mut sockets = self.ends.each_ref().map(|end| PollFd::new(&end.socket, PollFlags::IN));
        // The result does not matter: the next round asks the sockets themselves.
        let _ = rustix::event::poll(&mut sockets, Some(&timeout));
    }
}

/// Is it a datagram with payload?
fn is_data(datagram: &[u8]) -> bool {
    matches!(frame::decode(datagram), Ok(Frame::Sealed(sealed)) if matches!(sealed.kind, Kind::Data | Kind::Chunk))
}
