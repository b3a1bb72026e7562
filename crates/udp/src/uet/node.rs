//! A node of UET on a UDP socket.

use super::sealed::Guard;
use super::{Arrival, Config, Control, Security, Uet};
use crate::address::{kept, shown};
use crate::clock::{Clock, span};
use crate::error::Error;
use crate::plane::{BATCH_BYTES, batch_of};
use crate::socket::{ECT, Inbox, Udp, lacks_gso};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use strandway_fabric::kernel::Without;
use strandway_proto::Time;

/// Calls that receive in a row before anything is sent; ours. A call receives up to 64 KiB.
const RECEIVE_CALLS: usize = 16;
/// Bytes that the socket can hold in each direction, if the system gives them; ours. SUET has 128 packets in flight,
/// and the kernel counts 2,304 bytes for one of 1,472: the usual 208 KiB are too few.
const BUFFER: usize = 4 << 20;

/// Datagrams of one length, the last of which may be shorter, to the same address.
#[derive(Default)]
struct Batch {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    /// Bytes of the first one.
    length: usize,
    count: usize,
    /// The last one is shorter: no other fits behind it.
    closed: bool,
}

impl Batch {
    /// Takes the datagram that begins at `start` of its bytes; false if it does not belong to the others.
    fn take(&mut self, to: SocketAddr, start: usize) -> bool {
        let length = self.bytes.len() - start;
        if self.count == 0 {
            (self.to, self.length, self.count, self.closed) = (Some(to), length, 1, false);
            return true;
        }
        let fits = self.to == Some(to) && length <= self.length && self.bytes.len() <= BATCH_BYTES;
        if self.closed || !fits || self.count >= batch_of(self.length) {
            return false;
        }
        self.count += 1;
        self.closed = length < self.length;
        true
    }

    fn is_full(&self) -> bool {
        self.closed || self.count >= batch_of(self.length)
    }

    /// Forgets the datagrams before `end`, which are sent; what is behind it, to this address, is a batch of its own.
    fn keep(&mut self, end: usize, to: Option<SocketAddr>) {
        self.bytes.drain(..end);
        self.count = 0;
        if let Some(to) = to.filter(|_| !self.bytes.is_empty()) {
            self.take(to, 0);
        }
    }
}

/// A [`Uet`] with its socket. It works when its caller turns it, and has no thread.
pub struct Node {
    socket: Udp,
    clock: Clock,
    uet: Uet,
    inbox: Inbox,
    batch: Batch,
    /// Does the kernel cut a batch into datagrams?
    cuts: bool,
    /// The traffic class of datagrams. With a fixed window none is marked: a mark would only replace a loss that nobody
    /// notices.
    class: u8,
    /// The socket had no room for the batch.
    is_blocked: bool,
    /// Seals and opens all datagrams, if the node has security.
    guard: Option<Guard>,
}

impl Node {
    /// A node at this address; port 0 takes a free one. Its sequence numbers and the numbers of its contexts begin at
    /// random, whatever [`Config::seed`] is, so that a peer does not mistake it for an earlier node at this address.
    ///
    /// # Errors
    /// If the address cannot be had, `STRANDWAY_WITHOUT` has an unknown name, or the system gives no random numbers.
    pub fn bind(address: SocketAddr, mut config: Config) -> io::Result<Node> {
        let without = Without::from_environment().map_err(|unknown| io::Error::other(unknown.to_string()))?;
        let socket = Udp::open(kept(address), BUFFER, BUFFER, without).map_err(system_error)?;
        config.seed ^= u64::from_le_bytes(crate::secure::random().map_err(system_error)?);
        let class = if config.control == Control::Fixed { 0 } else { ECT };
        let mut uet = Uet::new(config);
        uet.skip_numbers();
        let cuts = socket.cuts_batches();
        let (inbox, batch) = (Inbox::new(), Batch::default());
        Ok(Node { socket, clock: Clock::new(), uet, inbox, batch, cuts, class, is_blocked: false, guard: None })
    }

    /// As [`Node::bind`], but all datagrams are sealed with the keys of a domain, and others are dropped. Each datagram
    /// has 32 bytes more: [`Config::payload`] must leave room for them.
    ///
    /// # Errors
    /// As [`Node::bind`]; also if the domain's mode has no identifiers, or the processor has no instructions for AES.
    pub fn bind_sealed(address: SocketAddr, config: Config, security: Security) -> io::Result<Node> {
        let guard = Guard::new(security, config.contexts_max).map_err(system_error)?;
        Ok(Node { guard: Some(guard), ..Node::bind(address, config)? })
    }

    /// Its address.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.address().map(shown).map_err(system_error)
    }

    /// The state machine, for its calls and events.
    pub fn uet(&mut self) -> &mut Uet {
        &mut self.uet
    }

    /// The present time, for calls of the state machine.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Receives, sends, and runs timers; waits up to `wait` if there is nothing to do. Returns whether anything moved.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn turn(&mut self, wait: Duration) -> io::Result<bool> {
        let moved = self.work()?;
        if moved || wait.is_zero() {
            return Ok(moved);
        }
        let now = self.clock.now();
        let timer = self.uet.poll_timeout().map_or(wait, |at| crate::clock::duration(at.since(now)));
        let wait = wait.min(timer).max(Duration::from_micros(50));
        let flags = if self.is_blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        // If the sleep is interrupted, it is just shorter.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.socket, flags)], Some(&timeout));
        self.work()
    }

    fn work(&mut self) -> io::Result<bool> {
        let mut moved = false;
        for _ in 0..RECEIVE_CALLS {
            if !self.receive() {
                break;
            }
            moved = true;
        }
        let now = self.clock.now();
        self.uet.handle_timeout(now);
        self.is_blocked = false;
        if self.batch.count > 0 && !self.flush(self.batch.bytes.len(), None)? {
            return Ok(moved);
        }
        loop {
            let start = self.batch.bytes.len();
            let Some(to) = self.write_next(now)? else { break };
            moved = true;
            let sent = match self.batch.take(to, start) {
                true if self.batch.is_full() => self.flush(self.batch.bytes.len(), None)?,
                true => true,
                false => self.flush(start, Some(to))?,
            };
            if !sent {
                return Ok(moved);
            }
        }
        self.flush(self.batch.bytes.len(), None)?;
        Ok(moved)
    }

    /// Writes the next datagram behind the batch, sealed if the node has security, and returns where it goes.
    fn write_next(&mut self, now: Time) -> io::Result<Option<SocketAddr>> {
        let bytes = &mut self.batch.bytes;
        let start = bytes.len();
        let Some(guard) = &mut self.guard else { return Ok(self.uet.poll_transmit_into(now, bytes)) };
        guard.begin(bytes);
        let to = self.uet.poll_transmit_into(now, bytes);
        match to {
            Some(_) => guard.end(bytes, start).map_err(io::Error::other)?,
            None => bytes.truncate(start),
        }
        Ok(to)
    }

    fn receive(&mut self) -> bool {
        if !self.socket.receive(&mut self.inbox) {
            // An error belongs to an earlier datagram: nobody listens there. Timers decide.
            return self.inbox.failed();
        }
        let (now, uet, guard) = (self.clock.now(), &mut self.uet, &mut self.guard);
        self.inbox.each(|arrival, datagram| {
            let plain = match guard {
                Some(guard) => guard.open(datagram),
                None => Some(&*datagram),
            };
            match plain {
                Some(plain) => {
                    let from = shown(arrival.from);
                    let arrival = Arrival { marked: arrival.is_marked(), age: span(arrival.age) };
                    uet.handle_arrival(now, from, arrival, plain);
                }
                None => uet.shared.counters.forged += 1,
            }
        });
        true
    }

    /// Sends the first `end` bytes of the batch; false if the socket has no room for them now. The bytes behind them go
    /// to `next`.
    fn flush(&mut self, end: usize, next: Option<SocketAddr>) -> io::Result<bool> {
        let Some(to) = self.batch.to.filter(|_| end > 0) else { return Ok(true) };
        let (to, bytes) = (kept(to), &self.batch.bytes[..end]);
        let outcome = if self.batch.count == 1 || self.cuts {
            let segment = (self.batch.count > 1).then_some(self.batch.length as u16);
            self.socket.send(to, self.class, bytes, segment)
        } else {
            // Datagrams that a full socket does not take are lost, and come again.
            bytes.chunks(self.batch.length).try_for_each(|one| self.socket.send(to, self.class, one, None))
        };
        match outcome {
            Err(Errno::EAGAIN | Errno::ENOBUFS) if next.is_none() => {
                self.is_blocked = true;
                return Ok(false);
            }
            Err(error) if lacks_gso(error) && self.batch.count > 1 && self.cuts => {
                self.cuts = false;
                return self.flush(end, next);
            }
            // As lost on the way: a full socket that has one datagram more, or the answer to an earlier datagram.
            Ok(()) | Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ECONNREFUSED | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.batch.keep(end, next);
        Ok(true)
    }
}

/// The error of the system behind one of ours.
fn system_error(error: Error) -> io::Error {
    match error {
        Error::Socket { source, .. } => source,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;
    use crate::socket::CE;
    use strandway_proto::{Rate, Span};

    #[test]
    fn marks_of_the_network_come_back_to_the_sender() {
        let control = Control::Nscc { rate: Rate::from_gbps(10), base_rtt: Span::from_us(100) };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address = address.parse().expect("an address");
            let bind = |control| Node::bind(address, Config { control, ..Config::default() }).expect("a free port");
            let (mut a, mut b) = (bind(control), bind(control));
            assert_eq!([a.class, bind(Control::Fixed).class], [ECT, 0]);
            // As if switches had marked every datagram.
            a.class = CE;
            let (now, to) = (a.now(), b.address().expect("an address"));
            a.uet().send(now, to, None, vec![0; 100_000]);
            let mut turns = 0;
            while !matches!(a.uet().poll_event(), Some(Event::Completed { .. })) {
                turns += 1;
                assert!(turns < 30_000, "{:?}", a.uet().counters());
                a.turn(Duration::from_millis(1)).expect("a socket");
                b.turn(Duration::from_millis(1)).expect("a socket");
            }
            // A marked packet is acknowledged at once: 71 packets.
            assert!(a.uet().counters().marks >= 71, "{:?}", a.uet().counters());
            assert_eq!(b.uet().counters().marks, 0);
        }
    }
}
