//! The kernel's interfaces to UDP, one beside the other at the ceiling: no protocol, and a sender that learns through
//! shared memory which bytes have arrived. Each row changes one side only, so that it shows what a node would gain.

mod calls;
mod uring;

use crate::Options;
use crate::ceiling::UnderWay;
use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::idle::{GIB, thread_time};
use crate::network::{Network, Role, UDP_HEADERS, Wire};
use nix::sys::socket::{setsockopt, sockopt};
use std::cell::Cell;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// MTU and the most bytes of one send.
const SENDS: [(u32, usize); 4] = [(1_500, 4_096), (1_500, 16_384), (1_500, 65_000), (9_000, 65_000)];
/// The most bytes under way, and the most small messages.
const WINDOW: u64 = 1 << 20;
const SMALL_WINDOW: u64 = 1_024;
/// Bytes of a small message, and how many of them a system call moves.
const SMALL: usize = 64;
const MANY: usize = 64;
/// The most bytes of one send, with room for every size.
const SOURCE: usize = 65_536;
/// The bytes that all rows send: in static memory, since the kernel may read them after the call.
static BYTES: [u8; SOURCE] = [0x5a; SOURCE];
const BUFFER: usize = 64 << 20;
const PORT: u16 = 47_805;

/// A way to send datagrams from a connected socket.
trait Sending {
    /// Begins at most `count` sends of `bytes` bytes each, and ends those that are complete. Returns the number that
    /// it began; 0 if there is no room for more.
    fn send(&mut self, bytes: usize, count: usize) -> Result<usize, String>;

    /// The least number of sends that it begins at a time.
    fn least(&self) -> usize {
        1
    }

    /// The share of the sends with a promise of no copy that the kernel copied, if it says so.
    fn copied(&self) -> Option<f64> {
        None
    }
}

/// A way to receive datagrams.
trait Receiving {
    /// The bytes that have arrived since the last call.
    fn receive(&mut self) -> Result<u64, String>;
}

/// How a row sends and receives.
#[derive(Clone, Copy)]
struct Interface {
    sender: fn(UdpSocket, Shape) -> Result<Box<dyn Sending>, String>,
    receiver: fn(UdpSocket, Shape) -> Result<Box<dyn Receiving>, String>,
}

/// The datagrams of a table.
#[derive(Clone, Copy)]
struct Shape {
    /// Payload of a datagram.
    segment: usize,
    /// Bytes of a send: whole datagrams, which the kernel splits.
    bytes: usize,
    /// The most bytes under way.
    window: u64,
}

impl Shape {
    /// Sends of at most `most` bytes at that MTU.
    fn of(mtu: u32, most: usize) -> Shape {
        let segment = (mtu - UDP_HEADERS) as usize;
        Shape { segment, bytes: most / segment * segment, window: WINDOW }
    }

    const SMALL: Shape = Shape { segment: SMALL, bytes: SMALL, window: SMALL_WINDOW * SMALL as u64 };
}

/// A step without an outcome that takes longer was interrupted; the thread had no processor for the rest of it.
const LONGEST: Duration = Duration::from_micros(20);
/// How long an address may still be in use: a ring that ends gives its socket back later.
const ADDRESS: Duration = Duration::from_secs(5);

/// The processor time of a thread that spins, without the time in which it had nothing to do.
struct Work {
    began: u64,
    idle: Cell<Duration>,
}

impl Work {
    fn new() -> Work {
        Work { began: thread_time(), idle: Cell::default() }
    }

    /// Does something; its time counts as idle if it returns 0.
    fn step<T: PartialEq + Default>(&self, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let began = Instant::now();
        let outcome = act()?;
        if outcome == T::default() {
            self.idle.set(self.idle.get() + began.elapsed().min(LONGEST));
        }
        Ok(outcome)
    }

    /// In nanoseconds.
    fn done(&self) -> u64 {
        (thread_time() - self.began).saturating_sub(self.idle.get().as_nanos() as u64)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn bind(side: Role) -> Result<UdpSocket, String> {
    let (address, began) = (side.address(0, PORT), Instant::now());
    loop {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && began.elapsed() < ADDRESS => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound.map_err(|error| format!("{address}: {error}")),
        }
    }
}

/// The connected socket of the sender.
fn sender_socket() -> Result<UdpSocket, String> {
    let socket = bind(Role::Sender)?;
    socket.connect(Role::Receiver.address(0, PORT)).map_err(text)?;
    setsockopt(&socket, sockopt::SndBufForce, &BUFFER).map_err(text)?;
    Ok(socket)
}

fn receiver_socket(shape: Shape) -> Result<UdpSocket, String> {
    let socket = bind(Role::Receiver)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).map_err(text)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &(shape.bytes > shape.segment)).map_err(text)?;
    Ok(socket)
}

/// Goodput in Gb/s, the work of sender and receiver in seconds per gibibyte, and the share of sends that the kernel
/// copied although it need not; NaN if it does not say.
fn measure(seconds: f64, shape: Shape, interface: Interface) -> Result<[f64; 4], String> {
    let (work, bytes, copied) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicU64::new(0), AtomicU64::new(0));
    let send = |meter: &Meter| {
        let mut sending = (interface.sender)(sender_socket()?, shape)?;
        let (mut under_way, spent) = (UnderWay::new(shape.window), Work::new());
        while !meter.is_over() {
            let begun = spent.step(|| {
                let least = (sending.least() * shape.bytes) as u64;
                let count = under_way.room(meter.total(), least) / shape.bytes as u64;
                sending.send(shape.bytes, count as usize)
            })?;
            under_way.add((begun * shape.bytes) as u64);
        }
        work[0].store(spent.done(), Ordering::Relaxed);
        copied.store(sending.copied().unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
        Ok(())
    };
    let receive = |meter: &Meter| {
        let mut receiving = (interface.receiver)(receiver_socket(shape)?, shape)?;
        let spent = Work::new();
        while !meter.is_over() {
            meter.add(spent.step(|| receiving.receive())?);
        }
        work[1].store(spent.done(), Ordering::Relaxed);
        bytes.store(meter.total(), Ordering::Relaxed);
        Ok(())
    };
    let gbps = goodput(seconds, send, receive)?[0];
    let gib = bytes.into_inner() as f64 / GIB;
    let [sender, receiver] = work.map(|work| work.into_inner() as f64 / 1e9 / gib);
    Ok([gbps, sender, receiver, f64::from_bits(copied.into_inner())])
}

/// Today's way of nodes for batches.
const BATCHES: Interface = Interface { sender: calls::batches, receiver: calls::merged };
/// Today's way for messages with a header each.
const MESSAGES: Interface = Interface { sender: calls::messages, receiver: calls::each };

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options.seconds, Vec::new());
    let columns = [
        Column::new("goodput", "Gb/s"),
        Column::new("sender", "s/GiB"),
        Column::new("receiver", "s/GiB"),
        Column::new("copied all the same", "share of sends"),
    ];
    let today = "sendmsg with GSO, recvmsg with GRO";
    let each: [(&str, usize, Interface); 6] = [
        (today, 3, BATCHES),
        ("sendmmsg with GSO", 3, Interface { sender: calls::messages, ..BATCHES }),
        ("sendmsg with GSO and MSG_ZEROCOPY", 4, Interface { sender: calls::zero_copy, ..BATCHES }),
        ("io_uring: SEND with GSO", 3, Interface { sender: uring::send, ..BATCHES }),
        ("io_uring: SEND_ZC with GSO", 3, Interface { sender: uring::send_zero_copy, ..BATCHES }),
        ("io_uring: multishot receive with GRO", 3, Interface { receiver: uring::receive, ..BATCHES }),
    ];
    for (mtu, most) in SENDS {
        let shape = Shape::of(mtu, most);
        let table = format!("sends of {} B ({} datagrams), MTU {mtu}", shape.bytes, shape.bytes / shape.segment);
        for (name, width, interface) in each {
            let row = Row::new(&table, name, &columns[..width], move || {
                network.set(Wire::plain(mtu))?;
                Ok(measure(seconds, shape, interface)?[..width].to_vec())
            });
            rows.push(if name == today { row } else { row.against(today) });
        }
    }
    let columns =
        [Column::new("messages", "million/s"), Column::new("sender", "us each"), Column::new("receiver", "us each")];
    let today = "sendmmsg of 64, recvmmsg of 64";
    let each = [
        (today, MESSAGES),
        ("io_uring: 64 SENDs per system call", Interface { sender: uring::send, ..MESSAGES }),
        ("io_uring: multishot receive", Interface { receiver: uring::receive, ..MESSAGES }),
    ];
    for (name, interface) in each {
        let row = Row::new(format!("messages of {SMALL} B, a datagram each"), name, &columns, move || {
            network.set(Wire::plain(1_500))?;
            let [gbps, sender, receiver, _] = measure(seconds, Shape::SMALL, interface)?;
            let us = 1e6 * SMALL as f64 / GIB;
            Ok(vec![gbps * 1e3 / 8.0 / SMALL as f64, sender * us, receiver * us])
        });
        rows.push(if name == today { row } else { row.against(today) });
    }
    Ok(Contest { section: "interfaces", rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_are_whole_datagrams() {
        let sizes = SENDS.map(|(mtu, most)| Shape::of(mtu, most)).map(|shape| (shape.segment, shape.bytes));
        assert_eq!(sizes, [(1_452, 2_904), (1_452, 15_972), (1_452, 63_888), (8_952, 62_664)]);
        assert!(sizes.iter().all(|&(_, bytes)| bytes <= SOURCE));
    }

    #[test]
    fn time_without_an_outcome_is_not_work() {
        let work = Work::new();
        let spin = |outcome: u64| {
            let began = Instant::now();
            while began.elapsed() < LONGEST * 2 {}
            Ok(outcome)
        };
        assert_eq!(work.step(|| spin(0)), Ok(0));
        assert_eq!(work.idle.get(), LONGEST);
        let before = work.idle.get();
        assert_eq!(work.step(|| spin(7)), Ok(7));
        assert_eq!(work.idle.get(), before);
        assert_eq!(work.step::<u64>(|| Err("broken".into())), Err("broken".into()));
    }
}
