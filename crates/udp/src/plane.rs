//! One plane: its sockets, and datagrams gathered per address until one system call sends them.

mod batch;
mod tunnel;

pub(crate) use batch::{Class, Destination, Failure, Owner};
pub(crate) use tunnel::OuterPacket;

use crate::config::Config;
use crate::error::Error;
use crate::layout::Layout;
use crate::socket::{ECT, Inbox, Udp, lacks_gso};
use batch::{Batch, new_buffer};
use nix::errno::Errno;
use nix::libc::sock_filter;
use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use strandway_proto::counters;
use tunnel::Tunnel;

/// The most bytes of one send: what a UDP datagram over IPv6 can hold, less some.
pub(crate) const BATCH_BYTES: usize = 64_000;
/// The most datagrams of one send: Linux, `UDP_MAX_SEGMENTS` before 6.9.
const SEGMENTS_MAX: usize = 64;
/// The most batches that are filled at a time, one per address, and that wait for a full socket; ours. A plane that is
/// full still takes the rest of what was begun, so a few more may wait.
const BATCHES_MAX: usize = 8;
/// The most refusals that are remembered until the node's next turn; ours. A refusal beyond them is noticed when it
/// happens again.
const FAILURES_MAX: usize = 64;
/// The most attempts to send a batch that the interface has no room for; then it counts as lost. Ours.
const PUSHED_BACK_MAX: u32 = 16;

/// The number of datagrams of this length that fit one send.
pub(crate) fn batch_of(length: usize) -> usize {
    (BATCH_BYTES / length.max(1)).clamp(1, SEGMENTS_MAX)
}

counters! {
    /// Counters of a plane.
    pub struct PlaneCounters {
        /// Datagrams handed to the kernel.
        pub sent: u64,
        /// Their bytes, without UDP and IP headers.
        pub sent_bytes: u64,
        /// System calls for sending.
        pub send_calls: u64,
        /// Datagrams received.
        pub received: u64,
        /// Those among them that came by the socket for urgent datagrams.
        pub urgent: u64,
        /// Their bytes.
        pub received_bytes: u64,
        /// System calls for receiving, including those that found nothing.
        pub receive_calls: u64,
        /// Datagrams that the kernel refused to send (no route, interface down, firewall).
        pub refused: u64,
    }
}

pub(crate) struct Plane {
    socket: Udp,
    /// The kernel puts urgent datagrams into this socket of the same port, so that they do not wait behind others.
    urgent: Option<Udp>,
    /// More sockets, each on a port of its own, for sending only: ECMP tells paths apart by the source port.
    sources: Vec<Udp>,
    /// IPv6 in IPv6, if connections move data in MRC's layout.
    tunnel: Option<Tunnel>,
    /// The address that the sockets are bound to.
    ip: Ipv6Addr,
    /// Datagrams per sending call; 1 where the kernel or the interface has no GSO.
    segments: usize,
    /// Traffic class of [`Class::Control`].
    control: u8,
    batches: VecDeque<(u16, Batch)>,
    spare: Vec<Vec<u8>>,
    /// The socket's send buffer is full.
    blocked: bool,
    /// How often the interface has refused the oldest batch.
    pushed_back: u32,
    /// Peers to whom datagrams were refused since the last [`Plane::take_failure`]; at most [`FAILURES_MAX`].
    failures: Vec<(SocketAddrV6, Failure)>,
    /// ICMP errors are taken from the sockets.
    hears_refusals: bool,
    /// Addresses whose ports refused datagrams since [`Plane::take_refusal`]; at most [`FAILURES_MAX`].
    refusals: Vec<SocketAddrV6>,
    /// The kernel says that the interface is down or gone.
    pub(crate) dead: bool,
    pub(crate) counters: PlaneCounters,
}

impl Plane {
    /// Opens the sockets of a plane.
    pub(crate) fn open(address: SocketAddrV6, config: &Config) -> Result<Plane, Error> {
        Plane::around(Udp::open(address, config.socket_buffer, config.send_buffer(), config.without)?, address, config)
    }

    /// Opens the sockets of a plane with a port that another node shares ([`Plane::share`]).
    pub(crate) fn open_shared(address: SocketAddrV6, config: &Config) -> Result<Plane, Error> {
        Plane::around(
            Udp::open_shared(address, config.socket_buffer, config.send_buffer(), config.without)?,
            address,
            config,
        )
    }

    fn around(socket: Udp, address: SocketAddrV6, config: &Config) -> Result<Plane, Error> {
        let (receive, send) = (config.socket_buffer, config.send_buffer());
        let any_port = SocketAddrV6::new(*address.ip(), 0, address.flowinfo(), address.scope_id());
        // These sockets only send.
        let sources = (0..config.routes.more_sources()).map(|_| Udp::open(any_port, 4_096, send, config.without));
        let sources = sources.collect::<Result<_, _>>()?;
        let sources: Vec<Udp> = sources;
        if config.hear_refusals {
            std::iter::once(&socket).chain(&sources).for_each(Udp::read_refusals);
        }
        let tunnel = match config.layout {
            Layout::Frame | Layout::Uet => None,
            Layout::Mrc { .. } => Some(Tunnel::open(*address.ip(), receive, send, config.without)?),
        };
        let segments = if socket.cuts_batches() { SEGMENTS_MAX } else { 1 };
        Ok(Plane {
            socket,
            urgent: None,
            sources,
            tunnel,
            ip: *address.ip(),
            segments,
            control: config.control_dscp << 2,
            batches: VecDeque::new(),
            spare: Vec::new(),
            blocked: false,
            pushed_back: 0,
            failures: Vec::new(),
            hears_refusals: config.hear_refusals,
            refusals: Vec::new(),
            dead: false,
            counters: PlaneCounters::default(),
        })
    }

    pub(crate) fn address(&self) -> Result<SocketAddrV6, Error> {
        self.socket.address()
    }

    /// From now on other nodes may share the port. Returns the address that they share.
    pub(crate) fn share(&self) -> Result<SocketAddrV6, Error> {
        self.socket.share()?;
        self.address()
    }

    /// From now on this program chooses the receiving one among the sockets that share the port, by its place in the
    /// order in which they were opened. False if the kernel has no such programs.
    pub(crate) fn deal_out(&self, program: &[sock_filter]) -> bool {
        self.socket.deal_out(program)
    }

    /// Opens the socket for urgent datagrams, on the same port. After it, [`Plane::deal_out`] must tell the kernel
    /// which datagrams are urgent; the new socket's place is behind all that were opened before it.
    pub(crate) fn open_urgent(&mut self, address: SocketAddrV6, config: &Config) -> Result<(), Error> {
        // It only receives.
        let socket = Udp::open_shared(address, config.socket_buffer, 4_096, config.without)?;
        if self.hears_refusals {
            // The kernel chooses among the sockets of a port to which it gives an error.
            socket.read_refusals();
        }
        self.urgent = Some(socket);
        Ok(())
    }

    /// Closes the socket for urgent datagrams again.
    pub(crate) fn close_urgent(&mut self) {
        self.urgent = None;
    }

    /// The socket for urgent datagrams, if there is one.
    pub(crate) fn urgent_fd(&self) -> Option<BorrowedFd<'_>> {
        self.urgent.as_ref().map(Udp::as_fd)
    }

    /// From now on datagrams to groups leave by this interface; if `looped`, they arrive at this host, too.
    pub(crate) fn cast_from(&self, device: u32, looped: bool) -> Result<(), Error> {
        self.socket.cast_from(device, looped)
    }

    /// Bytes that the socket can hold, as the kernel counts them.
    pub(crate) fn buffer(&self) -> usize {
        self.socket.buffer()
    }

    /// The most datagrams per sending call; 1 without GSO.
    pub(crate) fn segments(&self) -> usize {
        self.segments
    }

    /// Does it take another datagram?
    pub(crate) fn is_free(&self) -> bool {
        self.is_open() && self.tunnel.as_ref().is_none_or(Tunnel::is_free)
    }

    /// Does the UDP socket take another datagram?
    fn is_open(&self) -> bool {
        !self.blocked && self.has_place()
    }

    /// Does it hold another datagram, also while the socket takes none?
    pub(crate) fn has_place(&self) -> bool {
        self.batches.len() <= BATCHES_MAX
    }

    /// Does it take a datagram that is never sent again? If many batches wait, it sends them first.
    pub(crate) fn has_room(&mut self) -> bool {
        if !self.blocked && self.batches.len() > BATCHES_MAX {
            self.flush();
        }
        self.is_open()
    }

    /// Is the socket's send buffer full?
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The address that its sockets are bound to.
    pub(crate) fn ip(&self) -> Ipv6Addr {
        self.ip
    }

    /// Adds a datagram of `length` bytes that `write` fills; whatever was in the buffer before is still there. Full
    /// batches leave at once, the rest with [`Plane::flush`]; datagrams may be reordered.
    #[inline]
    pub(crate) fn push(
        &mut self,
        destination: Destination,
        class: Class,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        let Destination { to, shard, source, owner, late } = destination;
        let to = (to, shard);
        // Most datagrams go where the one before them went.
        if let Some((from, batch)) = self.batches.back_mut()
            && *from == source
            && length == batch.segment
            && batch.takes(to, class, length, self.segments)
        {
            return batch.add(owner, late, length, write);
        }
        self.push_apart(destination, class, length, write);
    }

    /// Adds a datagram if the newest batch is not one of datagrams of this length, or is full.
    fn push_apart(&mut self, destination: Destination, class: Class, length: usize, write: impl FnOnce(&mut [u8])) {
        let Destination { to, shard, source, owner, late } = destination;
        let to = (to, shard);
        let segments = self.segments;
        let mine = |(from, _): &&mut (u16, Batch)| *from == source;
        if let Some((_, batch)) = self.batches.iter_mut().filter(mine).find(|(_, b)| b.yields(to, length, segments)) {
            // The short one goes behind the long one, since only the last datagram of a call may be shorter.
            let mut buffer = self.spare.pop().unwrap_or_else(new_buffer);
            buffer.resize(buffer.len().max(length + batch.used), 0);
            write(&mut buffer[..length]);
            buffer[length..length + batch.used].copy_from_slice(&batch.buffer[..batch.used]);
            self.spare.push(std::mem::replace(&mut batch.buffer, buffer));
            batch.owner = batch.owner.and(owner);
            batch.used += length;
            (batch.class, batch.segment, batch.count, batch.closed) = (class, length, 2, true);
            return;
        }
        let reopened = if late { self.reopen(destination, class, length) } else { None };
        let at = reopened.or_else(|| {
            self.position(source, |b| b.takes(to, class, length, segments) && (!late || length == b.segment))
        });
        let at = at.or_else(|| self.position(source, |b| b.takes(to, class, length, segments)));
        let at = at.unwrap_or_else(|| {
            if self.batches.len() >= BATCHES_MAX || self.batches.iter().any(|(_, b)| b.used + length > BATCH_BYTES) {
                self.flush();
            }
            self.begin(destination, class, length)
        });
        self.batches[at].1.add(owner, late, length, write);
    }

    /// The newest batch of a source port for which this holds.
    fn position(&self, source: u16, holds: impl Fn(&Batch) -> bool) -> Option<usize> {
        self.batches.iter().rposition(|(from, batch)| *from == source && holds(batch))
    }

    /// Begins a batch of datagrams of this length.
    fn begin(&mut self, destination: Destination, class: Class, length: usize) -> usize {
        let Destination { to, shard, source, owner, .. } = destination;
        let to = (to, shard);
        let mut buffer = self.spare.pop().unwrap_or_else(new_buffer);
        buffer.resize(buffer.len().max(length), 0);
        let batch = Batch { buffer, used: 0, to, owner, class, segment: length, count: 0, closed: false, tail: 0 };
        self.batches.push_back((source, batch));
        self.batches.len() - 1
    }

    /// Reopens a batch that ends with a short datagram, such as the last one of a message: the short one goes to a
    /// batch of datagrams of its own length. This lets messages of a few packets each leave with two system calls
    /// together, instead of one call per message.
    fn reopen(&mut self, destination: Destination, class: Class, length: usize) -> Option<usize> {
        let (to, source, segments) = ((destination.to, destination.shard), destination.source, self.segments);
        if segments == 1 {
            return None;
        }
        let at = self.position(source, |b| b.reopens(to, class, length, segments))?;
        let (tail, owner) = (self.batches[at].1.tail, self.batches[at].1.owner);
        let place = self.position(source, |b| b.segment == tail && b.takes(to, class, tail, segments));
        let place = match place {
            Some(place) => place,
            None if self.batches.len() < BATCHES_MAX => self.begin(Destination { owner, ..destination }, class, tail),
            None => return None,
        };
        let buffer = std::mem::take(&mut self.batches[at].1.buffer);
        let used = self.batches[at].1.used - tail;
        self.batches[place].1.add(owner, true, tail, |out| out.copy_from_slice(&buffer[used..used + tail]));
        let batch = &mut self.batches[at].1;
        (batch.buffer, batch.used, batch.count, batch.closed, batch.tail) = (buffer, used, batch.count - 1, false, 0);
        Some(at)
    }

    /// Sends waiting datagrams until the socket takes no more.
    pub(crate) fn flush(&mut self) {
        self.flush_tunnel();
        self.blocked = false;
        let mut again = true;
        while let Some((source, batch)) = self.batches.front() {
            let socket = match source.checked_sub(1) {
                None => &self.socket,
                Some(i) => self.sources.get(usize::from(i)).unwrap_or(&self.socket),
            };
            let class = match batch.class {
                Class::Data | Class::Urgent => ECT,
                Class::Control => self.control,
            };
            self.counters.send_calls += 1;
            let outcome = if batch.count == 1 || self.segments > 1 {
                let segment = (batch.count > 1).then_some(batch.segment as u16);
                socket.send(batch.to.0, class, batch.bytes(), segment)
            } else {
                batch.bytes().chunks(batch.segment).try_for_each(|one| socket.send(batch.to.0, class, one, None))
            };
            match outcome {
                Ok(()) => {
                    self.counters.sent += batch.count as u64;
                    self.counters.sent_bytes += batch.used as u64;
                    self.dead = false;
                }
                Err(Errno::EAGAIN) => {
                    self.blocked = true;
                    return;
                }
                // The queue of the interface is full; or it drops just these datagrams each time, as a veth does whose
                // other end has a smaller MTU. Sockets that hear of ICMP errors are told of such drops.
                Err(Errno::ENOBUFS) if self.pushed_back < PUSHED_BACK_MAX => {
                    self.pushed_back += 1;
                    self.blocked = true;
                    return;
                }
                Err(error) if lacks_gso(error) && batch.count > 1 && self.segments > 1 => {
                    self.segments = 1;
                    continue;
                }
                // The error may belong to datagrams that left earlier: an ICMP message, which can be forged. These here
                // have not left.
                Err(_) if self.hears_refusals && std::mem::take(&mut again) => {
                    self.take_refusals();
                    continue;
                }
                // Such a datagram is lost, as on a wire. The engine sends data again, and pings find a plane that stays
                // silent.
                Err(error) => {
                    let (owner, count) = (batch.owner, batch.count);
                    self.refuse(owner, error, count);
                }
            }
            (again, self.pushed_back) = (true, 0);
            if let Some((_, batch)) = self.batches.pop_front()
                && self.spare.len() <= BATCHES_MAX
            {
                self.spare.push(batch.buffer);
            }
        }
    }

    /// The kernel refused this number of datagrams.
    fn refuse(&mut self, owner: Owner, error: Errno, count: usize) {
        self.counters.refused += count as u64;
        let failure = match (owner, error) {
            (Owner::Call(peer) | Owner::Peer(peer), Errno::EMSGSIZE) => Some((peer, Failure::TooLarge)),
            (Owner::Peer(peer), Errno::ENETUNREACH | Errno::EHOSTUNREACH) => Some((peer, Failure::NoRoute)),
            (Owner::Peer(_), Errno::ENETDOWN | Errno::ENODEV) => {
                self.dead = true;
                None
            }
            _ => None,
        };
        if let Some(failure) = failure
            && self.failures.len() < FAILURES_MAX
            && !self.failures.contains(&failure)
        {
            self.failures.push(failure);
        }
    }

    /// A peer whose datagrams were refused, and why.
    pub(crate) fn take_failure(&mut self) -> Option<(SocketAddrV6, Failure)> {
        self.failures.pop()
    }

    /// Takes the ICMP errors that datagrams of this plane have met; true if there were any.
    fn take_refusals(&mut self) -> bool {
        let refusals = &mut self.refusals;
        let mut any = false;
        for socket in std::iter::once(&self.socket).chain(&self.urgent).chain(&self.sources) {
            any |= socket.take_refusals(|to| {
                if refusals.len() < FAILURES_MAX {
                    refusals.push(to);
                }
            });
        }
        any
    }

    /// An address whose port has refused a datagram of ours: once for each refusal.
    pub(crate) fn take_refusal(&mut self) -> Option<SocketAddrV6> {
        self.refusals.pop()
    }

    /// The descriptors of all sockets.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        let udp = std::iter::once(&self.socket).chain(&self.urgent).chain(&self.sources);
        udp.map(|socket| socket.as_fd().as_raw_fd())
    }

    /// Receives the datagrams of one call; false if there were none.
    pub(crate) fn receive(&mut self, inbox: &mut Inbox) -> bool {
        let mut any = self.socket.receive(inbox);
        if !any && inbox.failed() && self.hears_refusals && self.take_refusals() {
            // The call for an earlier datagram of ours failed.
            any = self.socket.receive(inbox);
        }
        self.count_received(any, inbox)
    }

    /// Receives the urgent datagrams of one call; false if there were none.
    pub(crate) fn receive_urgent(&mut self, inbox: &mut Inbox) -> bool {
        let Some(socket) = &self.urgent else { return false };
        let any = socket.receive(inbox);
        if inbox.failed() && self.hears_refusals {
            self.take_refusals();
        }
        self.counters.urgent += if any { inbox.size().1 as u64 } else { 0 };
        self.count_received(any, inbox)
    }

    /// Receives the datagrams of one call from a socket of a group; false if there were none.
    pub(crate) fn receive_cast(&mut self, socket: &Udp, inbox: &mut Inbox) -> bool {
        let any = socket.receive(inbox);
        self.count_received(any, inbox)
    }

    fn count_received(&mut self, any: bool, inbox: &Inbox) -> bool {
        self.counters.receive_calls += 1;
        if any {
            let (bytes, datagrams) = inbox.size();
            self.counters.received += datagrams as u64;
            self.counters.received_bytes += bytes as u64;
        }
        any
    }
}

#[cfg(test)]
impl Plane {
    /// Until the next [`Plane::flush`] the socket counts as full.
    pub(crate) fn fill_socket(&mut self) {
        self.blocked = true;
    }

    /// Bytes that wait for the socket.
    pub(crate) fn waiting(&self) -> usize {
        self.batches.iter().map(|(_, batch)| batch.used).sum()
    }
}

impl AsFd for Plane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
