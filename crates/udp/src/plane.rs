//! One plane: its sockets, and datagrams gathered per address until one system call sends them.

use crate::config::Config;
use crate::error::Error;
use crate::socket::{ECT, Inbox, Udp, lacks_gso};
use nix::errno::Errno;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::os::fd::{AsFd, BorrowedFd};

/// The most bytes of one send: what a UDP datagram over IPv6 can hold, less some.
pub(crate) const BATCH_BYTES: usize = 64_000;
/// The most datagrams of one send: Linux, `UDP_MAX_SEGMENTS` before 6.9.
const SEGMENTS_MAX: usize = 64;
/// The most batches that are filled at a time, one per address, and that wait for a full socket; ours. A plane that is full
/// still takes the rest of what was begun, so a few more may wait.
const BATCHES_MAX: usize = 8;
/// The most refusals that are remembered until the node's next turn; ours. A refusal beyond them is noticed when it happens
/// again.
const FAILURES_MAX: usize = 64;
/// The number of datagrams of this length that fit one send.
pub(crate) fn batch_of(length: usize) -> usize {
    (BATCH_BYTES / length.max(1)).clamp(1, SEGMENTS_MAX)
}

/// The buffer of a batch.
fn new_buffer() -> Vec<u8> {
    vec![0; BATCH_BYTES]
}

/// How switches should treat a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// May be marked.
    Data,
    /// Goes before data, where the fabric has a class for it.
    Control,
}

/// Where a datagram goes.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The address that the kernel routes by.
    pub(crate) to: SocketAddrV6,
    /// The number of the socket to send from.
    pub(crate) source: u16,
    pub(crate) owner: Owner,
}

/// The connections that a refusal of a datagram by the kernel concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// None: it answers a stranger.
    Nobody,
    /// The calls to the node at this address.
    Call(SocketAddrV6),
    /// The connections with the peer at this address.
    Peer(SocketAddrV6),
}

impl Owner {
    /// The owner of a system call that two datagrams share.
    fn and(self, other: Owner) -> Owner {
        match self {
            Owner::Peer(_) => self,
            Owner::Call(_) if other == Owner::Nobody => self,
            Owner::Call(_) | Owner::Nobody => other,
        }
    }
}

/// Why the kernel refused datagrams to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// They are larger than the interface takes.
    TooLarge,
    /// There is no route.
    NoRoute,
}

/// Datagrams of equal length (the last may be shorter) to one address: one system call.
struct Batch {
    /// The datagrams, and room behind them.
    buffer: Vec<u8>,
    /// Bytes of datagrams in it.
    used: usize,
    to: SocketAddrV6,
    owner: Owner,
    class: Class,
    segment: usize,
    count: usize,
    closed: bool,
}

impl Batch {
    /// Does another datagram of this length fit behind the others?
    fn takes(&self, to: SocketAddrV6, class: Class, length: usize, segments: usize) -> bool {
        !self.closed
            && self.to == to
            && self.class == class
            && self.count < segments
            && length <= self.segment
            && self.used + length <= BATCH_BYTES
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    /// Adds a datagram that it takes.
    #[inline]
    fn add(&mut self, owner: Owner, length: usize, write: impl FnOnce(&mut [u8])) {
        if !matches!(self.owner, Owner::Peer(_)) {
            self.owner = self.owner.and(owner);
        }
        write(&mut self.buffer[self.used..self.used + length]);
        self.used += length;
        self.count += 1;
        self.closed = length < self.segment;
    }

    /// Is it one short datagram of control that a longer one may overtake? Then both leave by one system call.
    fn yields(&self, to: SocketAddrV6, length: usize, segments: usize) -> bool {
        self.count == 1
            && segments > 1
            && self.class == Class::Control
            && self.to == to
            && length > self.segment
            && self.used + length <= BATCH_BYTES
    }
}

/// Counters of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneCounters {
    /// Datagrams handed to the kernel.
    pub sent: u64,
    /// Their bytes, without UDP and IP headers.
    pub sent_bytes: u64,
    /// System calls for sending.
    pub send_calls: u64,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// System calls for receiving, including those that found nothing.
    pub receive_calls: u64,
    /// Datagrams that the kernel refused to send (no route, interface down, firewall).
    pub refused: u64,
}

pub(crate) struct Plane {
    socket: Udp,
    /// More sockets, each on a port of its own, for sending only: ECMP tells paths apart by the source port.
    sources: Vec<Udp>,
    /// Datagrams per sending call; 1 where the kernel or the interface has no GSO.
    segments: usize,
    /// Traffic class of [`Class::Control`].
    control: u8,
    batches: VecDeque<(u16, Batch)>,
    spare: Vec<Vec<u8>>,
    /// The socket's send buffer is full.
    blocked: bool,
    /// Peers to whom datagrams were refused since the last [`Plane::take_failure`]; at most [`FAILURES_MAX`].
    failures: Vec<(SocketAddrV6, Failure)>,
    /// The kernel says that the interface is down or gone.
    pub(crate) dead: bool,
    pub(crate) counters: PlaneCounters,
}

impl Plane {
    /// Opens the sockets of a plane.
    pub(crate) fn open(address: SocketAddrV6, config: &Config) -> Result<Plane, Error> {
        let (receive, send) = (config.socket_buffer, config.send_buffer());
        let socket = Udp::open(address, receive, send)?;
        let any_port = SocketAddrV6::new(*address.ip(), 0, address.flowinfo(), address.scope_id());
        // These sockets only send.
        let sources = (0..config.routes.more_sources()).map(|_| Udp::open(any_port, 4_096, send));
        let sources = sources.collect::<Result<_, _>>()?;
        Ok(Plane {
            socket,
            sources,
            segments: SEGMENTS_MAX,
            control: config.control_dscp << 2,
            batches: VecDeque::new(),
            spare: Vec::new(),
            blocked: false,
            failures: Vec::new(),
            dead: false,
            counters: PlaneCounters::default(),
        })
    }

    pub(crate) fn address(&self) -> Result<SocketAddrV6, Error> {
        self.socket.address()
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
        !self.blocked && self.batches.len() <= BATCHES_MAX
    }

    /// Does it take a datagram that is never sent again? If many batches wait, it sends them first.
    pub(crate) fn has_room(&mut self) -> bool {
        if !self.blocked && self.batches.len() > BATCHES_MAX {
            self.flush();
        }
        self.is_free()
    }

    /// Is the socket's send buffer full?
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Adds a datagram of `length` bytes that `write` fills; whatever was in the buffer before is still there. Full batches leave at
    /// once, the rest with [`Plane::flush`]; datagrams may be reordered.
    #[inline]
    pub(crate) fn push(
        &mut self,
        Destination { to, source, owner }: Destination,
        class: Class,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        let segments = self.segments;
        // Most datagrams go where the one before them went.
        if let Some((from, batch)) = self.batches.back_mut()
            && *from == source
            && batch.takes(to, class, length, segments)
        {
            return batch.add(owner, length, write);
        }
        self.push_apart(Destination { to, source, owner }, class, length, write);
    }

    /// The same if the newest batch does not take it.
    fn push_apart(
        &mut self,
        Destination { to, source, owner }: Destination,
        class: Class,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
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
        let at = self.batches.iter().rposition(|(from, b)| *from == source && b.takes(to, class, length, segments));
        let at = at.unwrap_or_else(|| {
            if self.batches.len() >= BATCHES_MAX || self.batches.iter().any(|(_, b)| b.used + length > BATCH_BYTES) {
                self.flush();
            }
            let mut buffer = self.spare.pop().unwrap_or_else(new_buffer);
            buffer.resize(buffer.len().max(length), 0);
            let batch = Batch { buffer, used: 0, to, owner, class, segment: length, count: 0, closed: false };
            self.batches.push_back((source, batch));
            self.batches.len() - 1
        });
        self.batches[at].1.add(owner, length, write);
    }

    /// Sends waiting datagrams until the socket takes no more.
    pub(crate) fn flush(&mut self) {
        self.blocked = false;
        while let Some((source, batch)) = self.batches.front() {
            let socket = match source.checked_sub(1) {
                None => &self.socket,
                Some(i) => self.sources.get(usize::from(i)).unwrap_or(&self.socket),
            };
            let class = match batch.class {
                Class::Data => ECT,
                Class::Control => self.control,
            };
            self.counters.send_calls += 1;
            let outcome = if batch.count == 1 || self.segments > 1 {
                let segment = (batch.count > 1).then_some(batch.segment as u16);
                socket.send(batch.to, class, batch.bytes(), segment)
            } else {
                batch.bytes().chunks(batch.segment).try_for_each(|one| socket.send(batch.to, class, one, None))
            };
            match outcome {
                Ok(()) => {
                    self.counters.sent += batch.count as u64;
                    self.counters.sent_bytes += batch.used as u64;
                    self.dead = false;
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                    self.blocked = true;
                    return;
                }
                Err(error) if lacks_gso(error) && batch.count > 1 && self.segments > 1 => {
                    self.segments = 1;
                    continue;
                }
                // Such a datagram is lost, as on a wire. The engine sends data again, and pings find a plane that stays
                // silent.
                Err(error) => {
                    self.counters.refused += batch.count as u64;
                    let failure = match (batch.owner, error) {
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
            }
            if let Some((_, batch)) = self.batches.pop_front()
                && self.spare.len() <= BATCHES_MAX
            {
                self.spare.push(batch.buffer);
            }
        }
    }

    /// A peer whose datagrams were refused, and why.
    pub(crate) fn take_failure(&mut self) -> Option<(SocketAddrV6, Failure)> {
        self.failures.pop()
    }

    /// Receives the datagrams of one call; false if there were none.
    pub(crate) fn receive(&mut self, inbox: &mut Inbox) -> bool {
        let any = self.socket.receive(inbox);
        self.count_received(any, inbox)
    }

    /// The same, from a socket of a group.
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
mod tests {
    use super::*;

    #[test]
    fn refusals_are_remembered_by_peer_and_bounded() {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let config = Config::new(&[7; 32]).expect("long enough").plane(address);
        let mut plane = Plane::open(address, &config).expect("a socket");
        // Loopback does not accept a datagram of this length.
        let send = |plane: &mut Plane, port: u16, peer: bool| {
            let to = SocketAddrV6::new(*address.ip(), port, 0, 0);
            let destination = Destination { to, source: 0, owner: if peer { Owner::Peer(to) } else { Owner::Nobody } };
            plane.push(destination, Class::Data, 70_000, |out| out.fill(0));
            plane.flush();
        };
        send(&mut plane, 9, false);
        assert_eq!((plane.take_failure(), plane.counters.refused), (None, 1), "it concerns no peer");
        (1..1_000).for_each(|port| send(&mut plane, port, true));
        assert_eq!((plane.failures.len(), plane.counters.refused), (FAILURES_MAX, 1_000));
        assert!(matches!(plane.take_failure(), Some((_, Failure::TooLarge))));
    }
}
