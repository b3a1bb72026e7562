//! The other side of a path's examination. It answers any host, without a key: an answer is never longer than its
//! request, and only a host that has received an answer gets anything but a short one. So it amplifies nothing, and
//! nobody can aim it at a third host.

use super::message::{Answer, Counts, HEAD, Request, Wish};
use super::{BUFFER, PORT};
use crate::address::{kept, unspecified};
use crate::error::Error;
use crate::secure::random_secret;
use crate::socket::{Inbox, Udp};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};
use strandway_fabric::kernel::{Feature, Without};

/// The most examinations at a time; the oldest gives way.
const EXAMINATIONS_MAX: usize = 64;
/// After this number of hellos of a host that has not gone on, its doctor hears no answers.
const HELLOS: u32 = 5;
/// The shortest time between two reports of deaf doctors.
const REPORTS: Duration = Duration::from_secs(1);
/// Calls on a socket that are taken in a row.
const CALLS: usize = 64;

/// Events that a listener reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A doctor has begun its examination.
    Began(SocketAddr),
    /// A doctor asks, and does not go on: answers do not reach it.
    Deaf(SocketAddr),
}

/// A doctor that asks.
struct Examination {
    from: SocketAddrV6,
    token: u64,
    hellos: u32,
    began: bool,
    train: u8,
    counts: Counts,
    highest: u32,
    first: Instant,
}

/// Sockets that answer. See the module.
pub struct Listener {
    /// The sockets that are asked, and behind each the one that calls from another port.
    sockets: Vec<[Udp; 2]>,
    secret: [u8; 32],
    examinations: Vec<Examination>,
    /// The last report of a deaf doctor. Hellos can be forged, so there is at most one in a second.
    reported: Option<Instant>,
    buffer: Vec<u8>,
}

impl Listener {
    /// Listens at these addresses, or without any at all addresses of the families that this host has.
    ///
    /// # Errors
    /// If an address is not ours, or the port is taken.
    pub fn open(at: &[SocketAddrV6]) -> Result<Listener, Error> {
        let without = Without::from_environment().map_err(|unknown| Error::Config(unknown.to_string()))?;
        // Each datagram has its own class, and counts by itself.
        let without = without.and(Feature::Gro);
        let open = |&address: &SocketAddrV6| {
            let asked = Udp::open_of_family(address, BUFFER, without)?;
            let calls =
                Udp::open_of_family(SocketAddrV6::new(*address.ip(), 0, 0, address.scope_id()), 4_096, without)?;
            [&asked, &calls].into_iter().for_each(Udp::read_refusals);
            Ok([asked, calls])
        };
        let sockets = if at.is_empty() {
            let all = [Ipv6Addr::UNSPECIFIED, unspecified(Ipv4Addr::LOCALHOST.to_ipv6_mapped())];
            let mut opened = all.map(|ip| open(&SocketAddrV6::new(ip, PORT, 0, 0))).into_iter();
            match (opened.next(), opened.next()) {
                (Some(Err(error)), Some(Err(_))) => return Err(error),
                // A host has one family or both. A port that is taken is no missing family.
                (first, second) => {
                    let of = |opened: Option<Result<_, Error>>| match opened {
                        Some(Err(error)) if is_taken(&error) => Some(Err(error)),
                        Some(Err(_)) | None => None,
                        Some(Ok(sockets)) => Some(Ok(sockets)),
                    };
                    [of(first), of(second)].into_iter().flatten().collect::<Result<Vec<_>, Error>>()?
                }
            }
        } else {
            at.iter().map(open).collect::<Result<_, _>>()?
        };
        Ok(Listener { sockets, secret: random_secret()?, examinations: Vec::new(), reported: None, buffer: Vec::new() })
    }

    /// The addresses at which it listens.
    ///
    /// # Errors
    /// If the system cannot report them.
    pub fn addresses(&self) -> Result<Vec<SocketAddrV6>, Error> {
        self.sockets.iter().map(|[asked, _]| asked.address()).collect()
    }

    /// Answers until `stop` returns true; it is asked at least ten times a second.
    ///
    /// # Errors
    /// If it cannot wait for its sockets.
    pub fn serve(&mut self, stop: impl Fn() -> bool, mut tell: impl FnMut(Heard)) -> Result<(), Error> {
        let mut inbox = Inbox::new();
        while !stop() {
            let mut sockets: Vec<_> =
                self.sockets.iter().flatten().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            match rustix::event::poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::Wait(error.into())),
            }
            for family in 0..self.sockets.len() {
                for which in 0..2 {
                    for _ in 0..CALLS {
                        if !self.sockets[family][which].receive(&mut inbox) {
                            break;
                        }
                        inbox.each(|arrival, datagram| {
                            if let Some(request) = Request::decode(datagram) {
                                let from = (arrival.from, arrival.class);
                                self.answer((family, which), from, &request, datagram.len(), &mut tell);
                            }
                        });
                    }
                    self.take_errors(family, which);
                }
            }
        }
        Ok(())
    }

    /// "Packet too big" that answers have met.
    fn take_errors(&mut self, family: usize, which: usize) {
        let examinations = &mut self.examinations;
        self.sockets[family][which].take_errors(|error| {
            if error.errno == Errno::EMSGSIZE {
                for one in examinations.iter_mut().filter(|one| one.from == error.to) {
                    let least = if one.counts.too_big == 0 { u32::MAX } else { one.counts.too_big };
                    one.counts.too_big = least.min(error.mtu);
                }
            }
        });
    }

    /// The proof that a host has received an answer at this address.
    fn cookie(&self, from: SocketAddrV6, token: u64) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&from.ip().octets()).update(&from.port().to_be_bytes()).update(&token.to_be_bytes());
        let hash = hasher.finalize();
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// The state of an examination; a new one begins if there is none.
    fn examination(&mut self, from: SocketAddrV6, token: u64) -> &mut Examination {
        let is_it = |one: &Examination| one.from == from && one.token == token;
        let at = self.examinations.iter().position(is_it).unwrap_or_else(|| {
            if self.examinations.len() >= EXAMINATIONS_MAX {
                // Hosts that only say hello give way first: such hellos can be forged.
                let oldest = self.examinations.iter().position(|one| !one.began).unwrap_or(0);
                self.examinations.remove(oldest);
            }
            let (counts, first) = (Counts::default(), Instant::now());
            self.examinations.push(Examination {
                from,
                token,
                hellos: 0,
                began: false,
                train: 0,
                counts,
                highest: 0,
                first,
            });
            self.examinations.len() - 1
        });
        &mut self.examinations[at]
    }

    fn answer(
        &mut self,
        (family, which): (usize, usize),
        (from, class): (SocketAddrV6, u8),
        request: &Request,
        bytes: usize,
        tell: &mut impl FnMut(Heard),
    ) {
        let cookie = self.cookie(from, request.token);
        if request.wish != Wish::Hello && request.cookie != cookie && which == 0 {
            return;
        }
        let shown = crate::address::shown(from);
        let Request { wish, train, token, number, .. } = *request;
        let port = if wish == Wish::Call { self.sockets[family][1].address().map_or(0, |at| at.port()) } else { 0 };
        let mut answer =
            Answer { wish, class, train, token, cookie, number, order: 0, port, counts: Counts::default() };
        let mut length = HEAD;
        if wish == Wish::Hello {
            let one = self.examination(from, token);
            one.hellos += 1;
            if one.hellos == HELLOS && !one.began && self.reported.is_none_or(|at| at.elapsed() >= REPORTS) {
                self.reported = Some(Instant::now());
                tell(Heard::Deaf(shown));
            }
        } else if which == 0 {
            let one = self.examination(from, token);
            if !one.began {
                one.began = true;
                tell(Heard::Began(shown));
            }
            if wish == Wish::Echo {
                one.count(request, bytes);
                length = usize::from(request.length).clamp(HEAD, bytes);
                answer.order = one.counts.answered;
                one.counts.answered += 1;
            }
            if train == one.train {
                answer.counts = one.counts;
            }
        }
        answer.encode(length, &mut self.buffer);
        let reply = if wish == Wish::Hello { 0 } else { request.class };
        // The second socket answers without a cookie: short answers to short requests, as to a hello. An answer that
        // the kernel refuses is lost. The doctor sees that it does not come.
        let mut sent = self.sockets[family][which].send(from, reply, &self.buffer, None);
        if sent.is_err() {
            // The error may be an ICMP message that an earlier answer has met.
            self.take_errors(family, which);
            sent = self.sockets[family][which].send(from, reply, &self.buffer, None);
        }
        if sent == Err(Errno::EMSGSIZE) && which == 0 {
            self.examination(from, token).counts.refused += 1;
        }
        if wish == Wish::Call && bytes >= 2 * HEAD && request.port != 0 {
            let to = SocketAddrV6::new(*from.ip(), request.port, 0, from.scope_id());
            let _ = self.sockets[family][1].send(kept(to), 0, &self.buffer[..HEAD], None);
        }
    }
}

impl Examination {
    fn count(&mut self, request: &Request, bytes: usize) {
        let now = Instant::now();
        if request.train != self.train || self.counts.received == 0 {
            (self.train, self.highest, self.first) = (request.train, request.number, now);
            self.counts = Counts::default();
        } else {
            self.counts.bytes += bytes as u64;
            self.counts.micros = now.duration_since(self.first).as_micros().min(u128::from(u32::MAX)) as u32;
        }
        let counts = &mut self.counts;
        counts.received = counts.received.saturating_add(1);
        counts.late += u32::from(request.number < self.highest);
        counts.seen |= 1_u32.checked_shl(request.number).unwrap_or(0);
        self.highest = self.highest.max(request.number);
    }
}

/// Is the port taken?
fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Socket { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::loopback;
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Sends datagrams to a listener; the lengths of the answers to each.
    fn lengths(datagrams: &[Vec<u8>]) -> Vec<Vec<usize>> {
        let mut listener = Listener::open(&[SocketAddrV6::new(loopback(), 0, 0, 0)]).expect("sockets");
        let to = crate::address::shown(listener.addresses().expect("bound")[0]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| listener.serve(|| over.load(Ordering::Relaxed), |_| {}).expect("it serves"));
            let socket = UdpSocket::bind((crate::address::shown((loopback(), 0)).ip(), 0)).expect("a socket");
            let told = datagrams.iter().map(|datagram| {
                socket.send_to(datagram, to).expect("it leaves");
                // The next hello's answer shows that all answers before it have come.
                let last = hello(77);
                socket.send_to(&last, to).expect("it leaves");
                socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
                let (mut buffer, mut lengths) = (vec![0; 65_536], Vec::new());
                loop {
                    let bytes = socket.recv(&mut buffer).expect("an answer");
                    match Answer::decode(&buffer[..bytes]) {
                        Some(Answer { token: 77, .. }) => return lengths,
                        _ => lengths.push(bytes),
                    }
                }
            });
            let told = told.collect();
            over.store(true, Ordering::Relaxed);
            told
        })
    }

    fn request(wish: Wish, token: u64, length: u16, bytes: usize) -> Vec<u8> {
        let request = Request { wish, class: 0, train: 1, token, cookie: 5, number: 0, length, port: 9 };
        let mut wire = Vec::new();
        request.encode(bytes, &mut wire);
        wire
    }

    fn hello(token: u64) -> Vec<u8> {
        request(Wish::Hello, token, u16::MAX, HEAD)
    }

    #[test]
    fn no_answer_is_longer_than_its_request_and_strangers_get_only_cookies() {
        let short = hello(1)[..HEAD - 1].to_vec();
        let datagrams = [
            hello(1),
            request(Wish::Hello, 2, u16::MAX, 1_000),
            // Without the right cookie there is no echo, report or call.
            request(Wish::Echo, 1, 1_000, 1_000),
            request(Wish::Report, 1, 1_000, 1_000),
            request(Wish::Call, 1, 1_000, 1_000),
            short,
            vec![],
            vec![0xff; 500],
        ];
        let none = Vec::new;
        let expected = [vec![HEAD], vec![HEAD], none(), none(), none(), none(), none(), none()];
        assert_eq!(lengths(&datagrams), expected);
    }

    #[test]
    fn forged_hellos_are_bounded_and_do_not_end_an_examination() {
        let mut listener = Listener::open(&[SocketAddrV6::new(loopback(), 0, 0, 0)]).expect("sockets");
        let from = SocketAddrV6::new(loopback(), 9, 0, 0);
        listener.examination(from, 0).began = true;
        for token in 1..1_000 {
            listener.examination(from, token).hellos += 1;
        }
        assert_eq!(listener.examinations.len(), EXAMINATIONS_MAX);
        assert!(listener.examinations.iter().any(|one| one.token == 0 && one.began));
    }
}
