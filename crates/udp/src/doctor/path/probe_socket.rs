//! The asking side's sockets: requests out, answers and ICMP errors in.

use super::BUFFER;
use super::answer_timeout;
use super::message::{Answer, Counts, HEAD, Request, Wish};
use crate::address::unspecified;
use crate::error::Error;
use crate::secure::random;
use crate::socket::{IcmpError, Inbox, Udp};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};
use strandway_fabric::kernel::{Feature, Without};

/// Hellos until nothing counts as coming back, and the time between two: two seconds.
const HELLOS: u32 = 10;
const HELLO_EVERY: Duration = Duration::from_millis(200);
/// The most times that the counters are asked for.
const REPORTS: u32 = 5;

/// An answer, and how it came.
pub(super) struct Heard {
    pub(super) answer: Answer,
    pub(super) class: u8,
    pub(super) bytes: usize,
    pub(super) at: Instant,
}

/// The outcome of hellos.
pub(super) enum Opened {
    /// The round trip of the first one that was answered.
    Answered(Duration),
    Closed(Closed),
}

/// Why nothing came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Nothing at all was heard.
    Silent,
    /// The host refuses: no program has the port.
    Refused,
    /// A firewall says so.
    Prohibited(Option<Ipv6Addr>),
    /// A host on the way has no route, or the last one does not find the host.
    Unreachable(Option<Ipv6Addr>),
    /// This host's kernel refuses to send.
    NotSent(Errno),
}

/// The socket that asks a listener.
pub(super) struct ProbeSocket {
    udp: Udp,
    inbox: Inbox,
    peer: SocketAddrV6,
    token: u64,
    cookie: u64,
    train: u8,
    buffer: Vec<u8>,
    /// ICMP errors since they were last taken.
    pub(super) errors: Vec<IcmpError>,
    /// The kernel's last refusal to send.
    pub(super) refusal: Option<Errno>,
    /// The largest packet that passes both ways.
    pub(super) largest: usize,
}

fn open(peer: SocketAddrV6) -> Result<Udp, Error> {
    let without = Without::from_environment().map_err(|unknown| Error::Config(unknown.to_string()))?;
    let at = SocketAddrV6::new(unspecified(*peer.ip()), 0, 0, 0);
    // Each datagram has its own class and time.
    let udp = Udp::open_of_family(at, BUFFER, without.and(Feature::Gro))?;
    udp.read_refusals();
    Ok(udp)
}

impl ProbeSocket {
    pub(super) fn open(peer: SocketAddrV6) -> Result<ProbeSocket, Error> {
        Ok(ProbeSocket {
            udp: open(peer)?,
            inbox: Inbox::new(),
            peer,
            token: u64::from_be_bytes(random()?),
            cookie: 0,
            train: 0,
            buffer: Vec::new(),
            errors: Vec::new(),
            refusal: None,
            largest: HEAD,
        })
    }

    /// A request of the present train.
    pub(super) fn request(&self, wish: Wish) -> Request {
        let ProbeSocket { train, token, cookie, .. } = *self;
        Request { wish, class: 0, train, token, cookie, number: 0, length: HEAD as u16, port: 0 }
    }

    /// The listener counts anew from the next request on.
    pub(super) fn next_train(&mut self) {
        self.train = self.train.wrapping_add(1);
        self.errors.clear();
    }

    /// Sends a request of this length; false if the kernel does not take it.
    pub(super) fn send(&mut self, request: &Request, bytes: usize, class: u8) -> bool {
        request.encode(bytes, &mut self.buffer);
        let sent = self.udp.send(self.peer, class, &self.buffer, None);
        // An ICMP error that an earlier datagram has met makes a call fail, once.
        let sent = match sent {
            Err(error) if error != Errno::EAGAIN => {
                self.take_errors();
                self.udp.send(self.peer, class, &self.buffer, None)
            }
            other => other,
        };
        self.refusal = sent.err();
        sent.is_ok()
    }

    fn take_errors(&mut self) {
        let (errors, peer) = (&mut self.errors, self.peer);
        self.udp.take_errors(|error| {
            if error.to.ip() == peer.ip() && errors.len() < 64 {
                errors.push(error);
            }
        });
    }

    /// Waits for answers, until `take` returns false or the time has passed. Each answer of the present train goes to
    /// `take`.
    pub(super) fn receive(&mut self, time: Duration, mut take: impl FnMut(&Heard) -> bool) -> Result<(), Error> {
        let until = Instant::now() + time;
        let mut wanted = true;
        while wanted {
            let (train, token, peer) = (self.train, self.token, self.peer);
            while self.udp.receive(&mut self.inbox) {
                let now = Instant::now();
                self.inbox.each(|arrival, bytes| {
                    let answer = Answer::decode(bytes).filter(|answer| answer.token == token && answer.train == train);
                    if let Some(answer) = answer.filter(|_| arrival.from.ip() == peer.ip()) {
                        let at = now.checked_sub(arrival.age).unwrap_or(now);
                        wanted &= take(&Heard { answer, class: arrival.class, bytes: bytes.len(), at });
                    }
                });
                if !wanted {
                    return Ok(());
                }
            }
            self.take_errors();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match rustix::event::poll(&mut [PollFd::new(&self.udp, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::Wait(error.into())),
            }
        }
        Ok(())
    }

    /// Says hello until it is answered.
    pub(super) fn greet(&mut self, stop: &dyn Fn() -> bool) -> Result<Opened, Error> {
        let mut refusal = None;
        for number in 0..HELLOS {
            if stop() {
                break;
            }
            let request = Request { number, ..self.request(Wish::Hello) };
            let sent = Instant::now();
            self.send(&request, HEAD, 0);
            refusal = self.refusal.or(refusal);
            let mut cookie = None;
            self.receive(HELLO_EVERY, |heard| {
                cookie = Some((heard.answer.cookie, heard.answer.number, heard.at));
                false
            })?;
            if let Some((cookie, answered, at)) = cookie {
                self.cookie = cookie;
                // An answer to an earlier hello took that much longer.
                return Ok(Opened::Answered(at.duration_since(sent) + HELLO_EVERY * number.saturating_sub(answered)));
            }
            // One refusal may be of another program's datagram: the second one counts.
            if self.is_refused() {
                return Ok(Opened::Closed(Closed::Refused));
            }
        }
        let first = |of: fn(&&IcmpError) -> bool| self.errors.iter().find(of);
        Ok(Opened::Closed(if let Some(error) = first(|error| error.prohibited) {
            Closed::Prohibited(error.by)
        } else if let Some(error) = first(|error| matches!(error.errno, Errno::EHOSTUNREACH | Errno::ENETUNREACH)) {
            Closed::Unreachable(error.by)
        } else if first(|error| error.errno == Errno::ECONNREFUSED).is_some() {
            Closed::Refused
        } else {
            refusal.filter(|error| *error != Errno::EAGAIN).map_or(Closed::Silent, Closed::NotSent)
        }))
    }

    /// Has the listener ended? It is an error of the present train.
    pub(super) fn is_refused(&self) -> bool {
        self.errors.iter().filter(|error| error.errno == Errno::ECONNREFUSED).count() >= 2
    }

    /// The listener's counters of the present train; `None` if no report arrives.
    pub(super) fn report(&mut self, rtt: Duration) -> Result<Option<Counts>, Error> {
        for number in 0..REPORTS {
            let request = Request { number, ..self.request(Wish::Report) };
            self.send(&request, HEAD, 0);
            let mut counts = None;
            self.receive(answer_timeout(rtt), |heard| {
                counts = (heard.answer.wish == Wish::Report).then_some(heard.answer.counts);
                counts.is_none()
            })?;
            if counts.is_some() {
                return Ok(counts);
            }
        }
        Ok(None)
    }

    /// Do datagrams between ports that have not been used before pass? There: `None` if the listener did not say its
    /// other port.
    pub(super) fn other_ports(&mut self, wait: Duration) -> Result<(Option<bool>, bool), Error> {
        let other = ProbeSocket { token: self.token, ..ProbeSocket::open(self.peer)? };
        let ours = other.udp.address()?.port();
        self.next_train();
        let (mut port, mut back) = (None, false);
        let mut other = ProbeSocket { train: self.train, ..other };
        for _ in 0..3 {
            let request = Request { port: ours, ..self.request(Wish::Call) };
            self.send(&request, 2 * HEAD, 0);
            self.receive(wait, |heard| {
                port = Some(heard.answer.port).filter(|_| heard.answer.wish == Wish::Call);
                port.is_none()
            })?;
            other.receive(wait, |heard| {
                back |= heard.answer.wish == Wish::Call;
                !back
            })?;
            if port.is_some() && back {
                break;
            }
        }
        let Some(port) = port.filter(|port| *port != 0) else { return Ok((None, back)) };
        let mut third = ProbeSocket { token: self.token, train: self.train, ..ProbeSocket::open(self.peer)? };
        third.peer.set_port(port);
        let mut there = false;
        for _ in 0..3 {
            let request = third.request(Wish::Echo);
            third.send(&request, HEAD, 0);
            third.receive(wait, |_| {
                there = true;
                false
            })?;
            if there {
                break;
            }
        }
        Ok((Some(there), back))
    }
}
