//! Fragments of gradients as datagrams: sealed, gathered, and sent to one address or to several.
//!
//! A channel goes one way and has a secret of its own. [`Sealing`] is its sending end, [`FragmentOpener`] its receiving
//! one. The side that makes the secret sends it over an encrypted connection of a [`crate::Node`]; `strandway-group`
//! does so. [`FragmentSocket`] moves datagrams. It has no protocol: the caller decides which fragment goes to whom.

use crate::cipher::{self, channel};
use crate::error::Error;
use crate::frame::{self, Frame, HEADER, Kind, Sealed, TAG};
use crate::layout::Protection;
use crate::plane::{BATCH_BYTES, PlaneCounters, batch_of};
use crate::secure::{Opener, Sealer};
use crate::socket::{ECT, Inbox, Udp, lacks_gso};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;
use strandway_fabric::kernel::Without;
use strandway_proto::PathId;
use strandway_proto::aggregate::Fragment;
use strandway_proto::rng::{Random, StreamKind};
use strandway_wire::aggregate;

/// Bytes of a fragment's datagram beyond its elements, without UDP and IP headers.
pub const OVERHEAD: usize = HEADER + aggregate::BYTES + TAG;
/// The usual number of elements of a fragment: ours; the datagram fits an MTU of 1,500 with every header of a segment
/// list around it.
pub const LANES: u16 = 256;
/// The most elements of a fragment: ours; the datagram fits an MTU of 9,000.
pub const LANES_MAX: u16 = 2_048;
/// The most bytes that wait for a full socket; ours. Datagrams beyond that are dropped, as a switch drops them.
const WAITING_MAX: usize = 16 << 20;

const _: () = assert!(OVERHEAD + 4 * LANES as usize + 48 <= 1_280, "the smallest MTU of IPv6");
const _: () = assert!(OVERHEAD + 4 * LANES_MAX as usize + 48 <= 9_000, "the usual MTU of jumbo frames");

/// The number of a channel and its key, for one of the ports of a switch.
fn derive(secret: &[u8; 32], port: u16) -> (u64, [u8; 32]) {
    channel(secret, &[b"strandway 1 fragments", &port.to_be_bytes()])
}

/// The sending end of a channel.
pub struct Sealing {
    id: u64,
    port: u16,
    sealer: Sealer,
}

impl Sealing {
    /// The sending end of the channel with this secret, for the port of this number.
    pub fn new(secret: &[u8; 32], port: u16) -> Sealing {
        let (id, key) = derive(secret, port);
        Sealing { id, port, sealer: Sealer::new(&key, Protection::Encrypted) }
    }

    fn seal(&mut self, fragment: &Fragment, elements: &[i32], out: &mut Vec<u8>) {
        let start = out.len();
        let path = PathId::new(self.port as u8, 0);
        let sealed = Sealed {
            kind: Kind::Fragment,
            urgent: false,
            path,
            credits: 0,
            connection: self.id,
            counter: self.sealer.next(),
        };
        frame::encode_sealed(&sealed, out);
        aggregate::encode(fragment, out);
        let body = out.len();
        out.resize(body + 4 * elements.len(), 0);
        for (bytes, element) in out[body..].chunks_exact_mut(4).zip(elements) {
            bytes.copy_from_slice(&element.to_le_bytes());
        }
        self.sealer.seal(out, start);
    }
}

/// The receiving end of a channel.
pub struct FragmentOpener {
    id: u64,
    opener: Opener,
}

/// Why a datagram is not a fragment of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentError {
    /// It was opened before, or is too old to tell whether it was.
    Repeated,
    /// Another sender made it, or it was changed on its way.
    Forged,
    /// It is genuine, but its body is not exactly one fragment with all of its elements.
    Malformed,
}

impl FragmentOpener {
    /// The receiving end of the channel with this secret, for the port of this number.
    pub fn new(secret: &[u8; 32], port: u16) -> FragmentOpener {
        let (id, key) = derive(secret, port);
        FragmentOpener { id, opener: Opener::new(&key, Protection::Encrypted, 0) }
    }

    /// The number of the channel, which its datagrams carry.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Opens a datagram of this channel in place: its header, and its elements as bytes.
    ///
    /// # Errors
    /// If it is not genuine, not new, or no fragment. None of its bytes may be used then.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<(Fragment, &'a [u8]), FragmentError> {
        let Ok(Frame::Sealed(sealed)) = frame::decode(datagram) else { return Err(FragmentError::Malformed) };
        if sealed.connection != self.id {
            return Err(FragmentError::Forged);
        }
        let body = self.opener.open(sealed.counter, datagram).map_err(|refused| match refused {
            crate::secure::Refused::Repeated => FragmentError::Repeated,
            crate::secure::Refused::Forged => FragmentError::Forged,
        })?;
        decode_body(body).ok_or(FragmentError::Malformed)
    }
}

/// The number of the channel that a datagram claims to belong to; `None` if it is not a fragment.
pub fn channel_of(datagram: &[u8]) -> Option<u64> {
    match frame::decode(datagram) {
        Ok(Frame::Sealed(Sealed { kind: Kind::Fragment, connection, .. })) => Some(connection),
        _ => None,
    }
}

/// Reads the opened body of a fragment's datagram: its header, and the elements that the header announces, as bytes.
pub fn decode_body(body: &[u8]) -> Option<(Fragment, &[u8])> {
    let fragment = aggregate::decode(body).ok()?;
    let elements = body.get(aggregate::BYTES..)?;
    let wanted = if fragment.kind.has_elements() { 4 * usize::from(fragment.elements) } else { 0 };
    (elements.len() == wanted).then_some((fragment, elements))
}

/// The origin of a datagram that has come, and its mark.
#[derive(Clone, Copy, Debug)]
pub struct From {
    /// The address that it came from.
    pub address: SocketAddrV6,
    /// A switch marked it, because a queue on its way was long.
    pub marked: bool,
}

/// The datagrams of one receiving call.
pub struct Received {
    inbox: Inbox,
    /// For each datagram: does the test loss drop it? Empty if none is dropped.
    lost: Vec<bool>,
}

impl Received {
    /// Room for the datagrams of one call.
    pub fn new() -> Received {
        Received { inbox: Inbox::new(), lost: Vec::new() }
    }

    /// Hands every datagram to `take`.
    pub fn each(&mut self, mut take: impl FnMut(From, &mut [u8])) {
        let mut lost = self.lost.iter();
        self.inbox.each(|arrival, datagram| {
            if !lost.next().is_some_and(|lost| *lost) {
                take(From { address: arrival.from, marked: arrival.is_marked() }, datagram);
            }
        });
    }
}

impl Default for Received {
    fn default() -> Received {
        Received::new()
    }
}

/// Datagrams of one length to the same addresses.
struct Batch {
    bytes: Vec<u8>,
    to: Arc<[SocketAddrV6]>,
    /// The number of addresses to which it has been sent.
    done: usize,
    length: usize,
    count: usize,
}

/// A socket for fragments. It lives on the thread that calls it.
pub struct FragmentSocket {
    udp: Udp,
    batches: VecDeque<Batch>,
    spare: Vec<Vec<u8>>,
    waiting: usize,
    segments: bool,
    blocked: bool,
    counters: PlaneCounters,
    dropped: u64,
    loss: Option<(f64, Random)>,
}

impl FragmentSocket {
    /// Opens a socket with buffers of `receive` and `send` bytes, if the system gives them. Port 0 takes any free one.
    /// Packets that any socket of the host sends later wait behind the bytes in the send buffer.
    ///
    /// # Errors
    /// If the address is not ours, or the port is taken; `STRANDWAY_WITHOUT` has an unknown name; or the processor
    /// cannot seal.
    pub fn open(address: SocketAddrV6, receive: usize, send: usize) -> Result<FragmentSocket, Error> {
        cipher::check()?;
        let without = Without::from_environment().map_err(|unknown| Error::Config(unknown.to_string()))?;
        let udp = Udp::open(address, receive, send, without)?;
        Ok(FragmentSocket {
            segments: udp.cuts_batches(),
            udp,
            batches: VecDeque::new(),
            spare: Vec::new(),
            waiting: 0,
            blocked: false,
            counters: PlaneCounters::default(),
            dropped: 0,
            loss: None,
        })
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// If the system cannot report it.
    pub fn address(&self) -> Result<SocketAddrV6, Error> {
        self.udp.address()
    }

    /// From now on drops this share of the arriving datagrams, chosen by a random stream of this seed: for tests and
    /// experiments.
    pub fn lose(&mut self, share: f64, seed: u64) {
        self.loss = (share > 0.0).then(|| (share, Random::new(seed, StreamKind::Workload, 0)));
    }

    /// Counters of what it has sent and received.
    pub const fn counters(&self) -> PlaneCounters {
        self.counters
    }

    /// Datagrams that were dropped because 16 MiB already waited for the socket.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Sleeps until a datagram is here, until waiting datagrams may leave, or for `at_most`.
    pub fn wait(&self, at_most: Duration) {
        let flags = if self.blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        // If the sleep is interrupted, it is just shorter.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.udp, flags)], Some(&timeout));
    }

    /// Receives the datagrams of one system call; false if there were none.
    pub fn receive(&mut self, into: &mut Received) -> bool {
        self.counters.receive_calls += 1;
        if !self.udp.receive(&mut into.inbox) {
            return false;
        }
        let (bytes, datagrams) = into.inbox.size();
        self.counters.received += datagrams as u64;
        self.counters.received_bytes += bytes as u64;
        into.lost.clear();
        if let Some((share, random)) = &mut self.loss {
            into.lost.extend((0..datagrams).map(|_| random.chance(*share)));
        }
        true
    }

    /// Seals a fragment once for all of these addresses. It leaves with [`FragmentSocket::flush`] at the latest.
    pub fn push(&mut self, to: &Arc<[SocketAddrV6]>, channel: &mut Sealing, fragment: &Fragment, elements: &[i32]) {
        let length = OVERHEAD + 4 * elements.len();
        if to.is_empty() || self.waiting + length > WAITING_MAX {
            self.dropped += 1;
            return;
        }
        let fits = |batch: &Batch| {
            batch.done == 0
                && batch.length == length
                && batch.count < batch_of(length)
                && batch.bytes.len() + length <= BATCH_BYTES
                && Arc::ptr_eq(&batch.to, to)
        };
        let at =
            self.batches.iter().rposition(|batch| Arc::ptr_eq(&batch.to, to)).filter(|&at| fits(&self.batches[at]));
        let at = at.unwrap_or_else(|| {
            let mut bytes = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BATCH_BYTES));
            bytes.clear();
            self.batches.push_back(Batch { bytes, to: Arc::clone(to), done: 0, length, count: 0 });
            self.batches.len() - 1
        });
        let batch = &mut self.batches[at];
        channel.seal(fragment, elements, &mut batch.bytes);
        batch.count += 1;
        self.waiting += length;
        if batch.count == batch_of(length) && !self.blocked {
            self.flush();
        }
    }

    /// Sends waiting datagrams until the socket takes no more.
    pub fn flush(&mut self) {
        self.blocked = false;
        while let Some(batch) = self.batches.front_mut() {
            while let Some(&to) = batch.to.get(batch.done) {
                self.counters.send_calls += 1;
                let segment = (batch.count > 1).then_some(batch.length as u16);
                let outcome = if batch.count == 1 || self.segments {
                    self.udp.send(to, ECT, &batch.bytes, segment)
                } else {
                    batch.bytes.chunks(batch.length).try_for_each(|one| self.udp.send(to, ECT, one, None))
                };
                match outcome {
                    Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                        self.blocked = true;
                        return;
                    }
                    Err(error) if lacks_gso(error) && batch.count > 1 && self.segments => self.segments = false,
                    // A refused datagram counts as lost.
                    Err(_) => {
                        self.counters.refused += batch.count as u64;
                        batch.done += 1;
                    }
                    Ok(()) => {
                        self.counters.sent += batch.count as u64;
                        self.counters.sent_bytes += batch.bytes.len() as u64;
                        batch.done += 1;
                    }
                }
            }
            if let Some(batch) = self.batches.pop_front() {
                self.waiting -= batch.bytes.len();
                if self.spare.len() < 16 {
                    self.spare.push(batch.bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strandway_proto::aggregate::{Kind as FragmentKind, Marks};

    fn fragment(kind: FragmentKind, elements: u16, number: u32) -> Fragment {
        Fragment {
            kind,
            marks: Marks::NONE,
            priority: 1,
            job: 7,
            fan_in: [2, 1],
            number,
            workers: 1,
            racks: 1,
            slot: 3,
            watermark: 0,
            elements,
            sender: 0,
        }
    }

    proptest! {
        #[test]
        fn a_fragment_arrives_as_it_was_sealed_once_and_only_unchanged(
            numbers in prop::collection::vec(any::<i32>(), 0..256), number in 1u32.., at: prop::sample::Index,
        ) {
            let (mut sealing, mut opening) = (Sealing::new(&[5; 32], 2), FragmentOpener::new(&[5; 32], 2));
            let sent = fragment(FragmentKind::Data, numbers.len() as u16, number);
            let mut whole = Vec::new();
            sealing.seal(&sent, &numbers, &mut whole);
            prop_assert_eq!(whole.len(), OVERHEAD + 4 * numbers.len());
            prop_assert_eq!(channel_of(&whole), Some(opening.id()));
            let mut changed = whole.clone();
            changed[at.index(whole.len())] ^= 1;
            prop_assert!(opening.open(&mut changed).is_err());
            let mut again = whole.clone();
            let (got, bytes) = opening.open(&mut whole).expect("it is genuine");
            prop_assert_eq!(got, sent);
            let elements: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            prop_assert_eq!(elements, numbers);
            prop_assert_eq!(opening.open(&mut again).map(|_| ()), Err(FragmentError::Repeated));
        }

        #[test]
        fn no_bytes_make_reading_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (channel_of(&bytes), decode_body(&bytes));
            prop_assert!(FragmentOpener::new(&[5; 32], 0).open(&mut bytes).is_err());
        }
    }

    #[test]
    fn ports_and_secrets_have_channels_of_their_own() {
        let ids: std::collections::BTreeSet<u64> = [([1; 32], 0), ([1; 32], 1), ([2; 32], 0)]
            .map(|(secret, port)| FragmentOpener::new(&secret, port).id())
            .into();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn datagrams_to_several_arrive_at_each_of_them_in_few_calls() {
        let any: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let mut sockets: Vec<FragmentSocket> =
            (0..3).map(|_| FragmentSocket::open(any, 1 << 20, 1 << 20).expect("a socket")).collect();
        let to: Arc<[SocketAddrV6]> = sockets[1..].iter().map(|socket| socket.address().expect("bound")).collect();
        let mut sealing = Sealing::new(&[9; 32], 0);
        for number in 1..=40 {
            sockets[0].push(&to, &mut sealing, &fragment(FragmentKind::Result, 256, number), &[number as i32; 256]);
        }
        sockets[0].flush();
        assert_eq!((sockets[0].counters().sent, sockets[0].dropped()), (80, 0));
        for socket in &mut sockets[1..] {
            let mut opening = FragmentOpener::new(&[9; 32], 0);
            let (mut got, mut received) = (Vec::new(), Received::new());
            for _ in 0..100 {
                socket.wait(Duration::from_millis(10));
                while socket.receive(&mut received) {
                    received.each(|_, bytes| got.push(opening.open(bytes).map(|(fragment, _)| fragment.number)));
                }
                if got.len() == 40 {
                    break;
                }
            }
            assert_eq!(got, (1..=40).map(Ok).collect::<Vec<_>>());
        }
    }
}
