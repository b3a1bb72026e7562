//! io_uring, by `compio-driver`: sends with and without a copy, and a receive that stays armed and takes its buffers from
//! a ring.

use super::{BYTES, MANY, Receiving, Sending, Shape, text};
use compio_driver::op::{RecvFlags, RecvMulti, Send, SendFlags, SendZc};
use compio_driver::{BufferPool, DriverType, Key, OpCode, Proactor, ProactorBuilder, PushEntry};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::num::NonZero;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The most operations in the ring: a system call's number of small messages.
const DEPTH: usize = MANY;
/// Buffers that wait for datagrams; a power of two.
const BUFFERS: u16 = 1_024;
/// The bytes of all of them together, so that they stay in the cache for small messages.
const POOL: usize = 16 << 20;
const DATAGRAM: usize = 2_048;

/// A ring, and the calls that make it work without a wait.
struct Ring {
    driver: Proactor,
    waker: Waker,
}

impl Ring {
    fn new(buffers: u16, bytes: usize) -> Result<Ring, String> {
        let mut builder = ProactorBuilder::new();
        builder.driver_type(DriverType::IoUring).capacity(DEPTH as u32).coop_taskrun(true).single_issuer(true);
        builder.buffer_pool_size(NonZero::new(buffers).unwrap_or(NonZero::<u16>::MIN)).buffer_pool_buffer_len(bytes);
        let driver = builder.build().map_err(|error| format!("io_uring: {error}"))?;
        let waker = driver.waker();
        Ok(Ring { driver, waker })
    }

    /// Submits what has been pushed, and takes what is complete.
    fn turn(&mut self) -> Result<(), String> {
        // A ring that has been woken does not wait.
        self.waker.wake_by_ref();
        match self.driver.poll(Some(Duration::ZERO)) {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(format!("io_uring: {error}")),
        }
    }
}

/// Sends of one kind.
struct Sender<T> {
    ring: Ring,
    socket: Arc<UdpSocket>,
    make: fn(Arc<UdpSocket>, &'static [u8]) -> T,
    /// Does a send complete twice: when it has left, and when the kernel needs its bytes no longer?
    twice: bool,
    pending: Vec<Key<T>>,
}

fn sender<T: OpCode + 'static>(
    socket: UdpSocket,
    shape: Shape,
    make: fn(Arc<UdpSocket>, &'static [u8]) -> T,
    twice: bool,
) -> Result<Box<dyn Sending>, String> {
    if shape.bytes > shape.segment {
        setsockopt(&socket, sockopt::UdpGsoSegment, &(shape.segment as i32)).map_err(text)?;
    }
    let (ring, socket) = (Ring::new(1, 1)?, Arc::new(socket));
    Ok(Box::new(Sender { ring, socket, make, twice, pending: Vec::with_capacity(DEPTH) }))
}

pub(super) fn send(socket: UdpSocket, shape: Shape) -> Result<Box<dyn Sending>, String> {
    sender(socket, shape, |socket, bytes| Send::new(socket, bytes, SendFlags::empty()), false)
}

pub(super) fn send_zero_copy(socket: UdpSocket, shape: Shape) -> Result<Box<dyn Sending>, String> {
    sender(socket, shape, |socket, bytes| SendZc::new(socket, bytes, SendFlags::empty()), true)
}

/// A send that the receiver, which may still be opening its socket, did not take is lost, as on a wire.
fn check(result: std::io::Result<usize>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => Err(format!("send by io_uring: {error}")),
        _ => Ok(()),
    }
}

impl<T: OpCode + 'static> Sending for Sender<T> {
    fn send(&mut self, bytes: usize, count: usize) -> Result<usize, String> {
        let count = count.min(DEPTH - self.pending.len());
        for _ in 0..count {
            match self.ring.driver.push((self.make)(self.socket.clone(), &BYTES[..bytes])) {
                PushEntry::Pending(key) => self.pending.push(key),
                PushEntry::Ready(result) => check(result.0)?,
            }
        }
        if count == 0 && self.pending.is_empty() {
            return Ok(0);
        }
        self.ring.turn()?;
        for key in std::mem::take(&mut self.pending) {
            if self.twice
                && let Some(first) = self.ring.driver.pop_multishot(&key)
            {
                check(first.0)?;
            }
            match self.ring.driver.pop(key) {
                PushEntry::Pending(key) => self.pending.push(key),
                PushEntry::Ready(result) => check(result.0)?,
            }
        }
        Ok(count)
    }
}

/// A receive that stays armed.
struct Receiver {
    ring: Ring,
    socket: Arc<UdpSocket>,
    pool: BufferPool,
    armed: Option<Key<RecvMulti<Arc<UdpSocket>>>>,
}

pub(super) fn receive(socket: UdpSocket, shape: Shape) -> Result<Box<dyn Receiving>, String> {
    let bytes = if shape.bytes > shape.segment { 65_536 } else { DATAGRAM };
    let mut ring = Ring::new(BUFFERS.min((POOL / bytes) as u16), bytes)?;
    let pool = ring.driver.buffer_pool().map_err(|error| format!("a ring of buffers: {error}"))?;
    Ok(Box::new(Receiver { ring, socket: Arc::new(socket), pool, armed: None }))
}

impl Receiving for Receiver {
    fn receive(&mut self) -> Result<u64, String> {
        let key = match self.armed.take() {
            Some(key) => key,
            None => {
                let op = RecvMulti::new(self.socket.clone(), &self.pool, 0, RecvFlags::empty()).map_err(text)?;
                match self.ring.driver.push(op) {
                    PushEntry::Pending(key) => key,
                    PushEntry::Ready(result) => return result.0.map(|bytes| bytes as u64).map_err(text),
                }
            }
        };
        self.ring.turn()?;
        let mut total = 0;
        while let Some(one) = self.ring.driver.pop_multishot(&key) {
            total += one.0.map_err(text)? as u64;
            // The bytes have arrived in user space; the buffer returns to the ring.
            if let Ok(buffer) = one.1.buffer_id() {
                self.pool.reset(buffer).map_err(text)?;
            }
        }
        match self.ring.driver.pop(key) {
            PushEntry::Pending(key) => self.armed = Some(key),
            // It ends when no buffer is free, and is armed again by the next call.
            PushEntry::Ready(result) => match result.0 {
                Ok(bytes) => total += bytes as u64,
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) => return Err(format!("receive by io_uring: {error}")),
            },
        }
        Ok(total)
    }
}
