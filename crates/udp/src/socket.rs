//! One plane: a UDP socket, datagrams batched in both directions.

use crate::error::Error;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of one send at the most: what a UDP datagram over IPv6 can hold, less some.
const BATCH_BYTES: usize = 64_000;
/// Batches that wait for a socket at the most before the plane takes no more; ours. It takes what was begun, so a few more
/// than this may wait.
const WAITING_MAX: usize = 4;

/// Datagrams of equal length (the last may be shorter) to one address: one system call.
struct Batch {
    bytes: Vec<u8>,
    to: SocketAddr,
    markable: bool,
    segment: usize,
    count: usize,
    closed: bool,
}

/// What a plane counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneCounters {
    /// Datagrams handed to the kernel.
    pub sent: u64,
    /// Their bytes, without UDP and IP headers.
    pub sent_bytes: u64,
    /// System calls that took.
    pub send_calls: u64,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// System calls that took, those that found nothing included.
    pub receive_calls: u64,
    /// Datagrams that the kernel refused to send (no route, interface down, firewall).
    pub refused: u64,
}

pub(crate) struct Plane {
    socket: UdpSocket,
    state: UdpSocketState,
    batches: VecDeque<Batch>,
    spare: Vec<Vec<u8>>,
    /// The socket's send buffer is full.
    blocked: bool,
    /// A datagram was larger than the interface takes.
    pub(crate) too_large: bool,
    pub(crate) counters: PlaneCounters,
}

/// Buffers for one receiving call.
pub(crate) struct Inbox {
    buffers: Vec<Vec<u8>>,
    metas: Vec<RecvMeta>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { buffers: vec![vec![0; 65_536]; BATCH_SIZE], metas: vec![RecvMeta::default(); BATCH_SIZE] }
    }

    /// Gives every datagram of the last call to `take`: its sender, whether it is marked, its bytes.
    pub(crate) fn each(&mut self, count: usize, mut take: impl FnMut(SocketAddr, bool, &mut [u8])) {
        for (buffer, meta) in self.buffers.iter_mut().zip(&self.metas).take(count) {
            let length = meta.len.min(buffer.len());
            let marked = meta.ecn == Some(EcnCodepoint::Ce);
            for datagram in buffer[..length].chunks_mut(meta.stride.max(1)) {
                take(meta.addr, marked, datagram);
            }
        }
    }
}

impl Plane {
    pub(crate) fn open(address: SocketAddrV6, buffer: usize) -> Result<Plane, Error> {
        let wrong = |source| Error::Socket { address: address.into(), source };
        let socket = UdpSocket::bind(address).map_err(wrong)?;
        let state = UdpSocketState::new((&socket).into()).map_err(wrong)?;
        // Beyond the system's limit only with a privilege; the plain call gives what the limit allows.
        let plain = socket2::SockRef::from(&socket);
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
            plain.set_recv_buffer_size(buffer).map_err(wrong)?;
        }
        plain.set_send_buffer_size(buffer).map_err(wrong)?;
        Ok(Plane {
            socket,
            state,
            batches: VecDeque::new(),
            spare: Vec::new(),
            blocked: false,
            too_large: false,
            counters: PlaneCounters::default(),
        })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.socket.local_addr().map_err(Error::Wait)
    }

    /// Bytes that the socket can hold, as the kernel counts them.
    pub(crate) fn buffer(&self) -> usize {
        socket2::SockRef::from(&self.socket).recv_buffer_size().unwrap_or(212_992)
    }

    /// Datagrams per sending call at the most; 1 without GSO.
    pub(crate) fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Does it take another datagram?
    pub(crate) fn is_free(&self) -> bool {
        !self.blocked && self.batches.len() <= WAITING_MAX
    }

    /// Is the socket's send buffer full?
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Adds a datagram of `length` bytes that `write` appends; `markable`: switches may mark it (ECT). Full batches leave at once, the rest with [`Plane::flush`].
    pub(crate) fn push(&mut self, to: SocketAddr, markable: bool, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let segments = self.state.max_gso_segments();
        let fits = self.batches.back().is_some_and(|batch| {
            !batch.closed
                && batch.to == to
                && batch.markable == markable
                && batch.count < segments
                && length <= batch.segment
                && batch.bytes.len() + length <= BATCH_BYTES
        });
        if !fits {
            if !self.batches.is_empty() {
                self.flush();
            }
            let mut bytes = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(65_536));
            bytes.clear();
            self.batches.push_back(Batch { bytes, to, markable, segment: length, count: 0, closed: false });
        }
        let batch = self.batches.back_mut().expect("there is one now");
        let before = batch.bytes.len();
        write(&mut batch.bytes);
        debug_assert_eq!(batch.bytes.len() - before, length, "a datagram is as long as it was said to be");
        batch.count += 1;
        batch.closed = length < batch.segment;
    }

    /// Sends what waits, until the socket takes no more.
    pub(crate) fn flush(&mut self) {
        self.blocked = false;
        while let Some(batch) = self.batches.front() {
            let transmit = Transmit {
                destination: batch.to,
                ecn: batch.markable.then_some(EcnCodepoint::Ect0),
                contents: &batch.bytes,
                segment_size: (batch.count > 1).then_some(batch.segment),
                src_ip: None,
            };
            self.counters.send_calls += 1;
            match self.state.try_send((&self.socket).into(), &transmit) {
                Ok(()) => {
                    self.counters.sent += batch.count as u64;
                    self.counters.sent_bytes += batch.bytes.len() as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return;
                }
                // Lost, as on a wire: what matters is sent again, and a plane that stays dumb is found out by its silence.
                Err(error) => {
                    self.counters.refused += batch.count as u64;
                    self.too_large |= error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
                }
            }
            if let Some(batch) = self.batches.pop_front() {
                self.spare.push(batch.bytes);
            }
        }
    }

    /// Receives what is there: how many entries of the inbox are filled.
    pub(crate) fn receive(&mut self, inbox: &mut Inbox) -> usize {
        self.counters.receive_calls += 1;
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = {
            let mut buffers = inbox.buffers.iter_mut();
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().map_or(&mut [], |b| b.as_mut_slice())))
        };
        // Errors are those of earlier sends (a peer's port is closed); nothing is lost by trying again later.
        let count = self.state.recv((&self.socket).into(), &mut slices, &mut inbox.metas).unwrap_or(0);
        for meta in &inbox.metas[..count] {
            self.counters.received += meta.len.div_ceil(meta.stride.max(1)) as u64;
            self.counters.received_bytes += meta.len as u64;
        }
        count
    }
}

impl AsFd for Plane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
