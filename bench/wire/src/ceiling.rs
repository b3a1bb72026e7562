//! The upper bound of UDP on this machine: no protocol, no protection, the largest batches that the kernel takes, and a
//! sender that learns through shared memory which bytes have arrived.

use crate::goodput::Meter;
use crate::network::Role;
use crate::round_trips::RoundTrips;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn6, recvmmsg, recvmsg, sendmmsg, sendmsg, setsockopt, sockopt,
};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The data that is sent again and again: one message of the other rows.
const MESSAGE: usize = 1 << 20;
/// The most bytes under way.
const WINDOW: u64 = 1 << 20;
/// The most bytes of one sending call.
const BATCH: usize = 65_000;
/// Bytes that did not arrive within this time are lost.
const PATIENCE: Duration = Duration::from_millis(20);
const BUFFER: usize = 64 << 20;
const PORT: u16 = 47_801;

fn wrong(what: &'static str) -> impl Fn(Errno) -> String {
    move |error| format!("{what}: {error}")
}

fn socket(side: Role) -> Result<UdpSocket, String> {
    let address = side.address(0, PORT);
    UdpSocket::bind(address).map_err(|error| format!("{address}: {error}"))
}

/// The bytes of a sender that have neither arrived nor been given up.
pub(crate) struct UnderWay {
    sent: u64,
    lost: u64,
    most: u64,
    /// The bytes that had arrived when it last looked, and since when their number has been the same while no more
    /// could be sent.
    arrived: (u64, Instant),
}

impl UnderWay {
    pub(crate) fn new(most: u64) -> UnderWay {
        UnderWay { sent: 0, lost: 0, most, arrived: (0, Instant::now()) }
    }

    /// May more be sent, if this number of bytes has arrived?
    fn takes_more(&mut self, arrived: u64) -> bool {
        self.takes(arrived, 0)
    }

    fn takes(&mut self, arrived: u64, next: u64) -> bool {
        let takes = self.sent - self.lost + next <= arrived + self.most;
        if takes || arrived != self.arrived.0 {
            self.arrived = (arrived, Instant::now());
        } else if self.arrived.1.elapsed() > PATIENCE {
            (self.lost, self.arrived.1) = (self.sent - arrived, Instant::now());
        }
        takes
    }

    /// The bytes that may be sent, if this number of bytes has arrived; 0 unless they are at least `least`.
    pub(crate) fn room(&mut self, arrived: u64, least: u64) -> u64 {
        if self.takes(arrived, least) { arrived + self.most - (self.sent - self.lost) } else { 0 }
    }

    /// Counts bytes that have been sent.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

/// Sends datagrams with `payload` bytes each.
pub(crate) fn send(meter: &Meter, payload: u32) -> Result<(), String> {
    let socket = socket(Role::Sender)?;
    socket.set_nonblocking(true).map_err(|error| error.to_string())?;
    setsockopt(&socket, sockopt::SndBufForce, &BUFFER).map_err(wrong("send buffer"))?;
    let to = SockaddrIn6::from(Role::Receiver.address(0, PORT));
    let segment = payload as u16;
    let batch = BATCH / payload as usize * payload as usize;
    let source = vec![0x5a; MESSAGE + batch];
    let (mut under_way, mut at) = (UnderWay::new(WINDOW), 0);
    while !meter.is_over() {
        if !under_way.takes_more(meter.total()) {
            continue;
        }
        let slices = [IoSlice::new(&source[at..at + batch])];
        let control = [ControlMessage::UdpGsoSegments(&segment)];
        match sendmsg(socket.as_raw_fd(), &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to)) {
            Ok(bytes) => {
                under_way.sent += bytes as u64;
                at = (at + bytes) % MESSAGE;
            }
            // The receiver may still be opening its socket, or the buffer is full and will empty.
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ECONNREFUSED) => {}
            Err(error) => return Err(format!("sendmsg: {error}")),
        }
    }
    Ok(())
}

/// Receives, and copies everything once to its place.
pub(crate) fn receive(meter: &Meter) -> Result<(), String> {
    let socket = socket(Role::Receiver)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).map_err(wrong("receive buffer"))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).map_err(wrong("GRO"))?;
    let mut buffer = vec![0; 65_536];
    let mut place = vec![0; MESSAGE + buffer.len()];
    let mut at = 0;
    while !meter.is_over() {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        match recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut slices, None, MsgFlags::MSG_DONTWAIT) {
            Ok(got) => {
                let bytes = got.bytes;
                place[at..at + bytes].copy_from_slice(&buffer[..bytes]);
                at = (at + bytes) % MESSAGE;
                meter.add(bytes as u64);
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(format!("recvmsg: {error}")),
        }
    }
    Ok(())
}

/// Messages of one system call.
const MANY: usize = 64;
/// The most messages under way.
const MANY_WINDOW: u64 = 1_024;

/// Sends datagrams of `size` bytes, many of them with each system call, each with its own header.
pub(crate) fn send_many(meter: &Meter, size: usize) -> Result<(), String> {
    let socket = socket(Role::Sender)?;
    socket.set_nonblocking(true).map_err(|error| error.to_string())?;
    setsockopt(&socket, sockopt::SndBufForce, &BUFFER).map_err(wrong("send buffer"))?;
    let to = vec![Some(SockaddrIn6::from(Role::Receiver.address(0, PORT))); MANY];
    let source = vec![0x5a; size];
    let slices = vec![[IoSlice::new(&source)]; MANY];
    let mut under_way = UnderWay::new(MANY_WINDOW * size as u64);
    while !meter.is_over() {
        if !under_way.takes_more(meter.total()) {
            continue;
        }
        let mut headers = MultiHeaders::preallocate(MANY, None);
        match sendmmsg(socket.as_raw_fd(), &mut headers, &slices, &to, [], MsgFlags::MSG_DONTWAIT) {
            Ok(each) => under_way.sent += (each.count() * size) as u64,
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ECONNREFUSED) => {}
            Err(error) => return Err(format!("sendmmsg: {error}")),
        }
    }
    Ok(())
}

/// Receives them, many with each system call.
pub(crate) fn receive_many(meter: &Meter) -> Result<(), String> {
    let socket = socket(Role::Receiver)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).map_err(wrong("receive buffer"))?;
    let mut buffer = vec![0; MANY * 2_048];
    while !meter.is_over() {
        let mut slices: Vec<_> = buffer.chunks_mut(2_048).map(|one| [IoSliceMut::new(one)]).collect();
        let mut headers = MultiHeaders::<SockaddrIn6>::preallocate(MANY, None);
        match recvmmsg(socket.as_raw_fd(), &mut headers, &mut slices, MsgFlags::MSG_DONTWAIT, None) {
            Ok(each) => meter.add(each.map(|one| one.bytes as u64).sum()),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(format!("recvmmsg: {error}")),
        }
    }
    Ok(())
}

/// A socket for round trips: it never blocks, or blocks for a limited time.
fn ping_socket(side: Role, spin: bool) -> Result<UdpSocket, String> {
    let socket = socket(side)?;
    let set =
        if spin { socket.set_nonblocking(true) } else { socket.set_read_timeout(Some(Duration::from_millis(100))) };
    set.map_err(|error| error.to_string())?;
    Ok(socket)
}

/// Sends 64 bytes and waits for them, again and again.
pub(crate) fn ping(trips: &RoundTrips, spin: bool) -> Result<(), String> {
    let socket = ping_socket(Role::Sender, spin)?;
    let (to, mut buffer) = (Role::Receiver.address(0, PORT), [0; 64]);
    while !trips.is_over() {
        let began = Instant::now();
        socket.send_to(&buffer, to).map_err(|error| format!("send: {error}"))?;
        // Lost bytes, mostly from before the other side was ready, are sent again.
        while !trips.is_over() && began.elapsed() < PATIENCE * 5 {
            match socket.recv(&mut buffer) {
                Ok(_) => {
                    trips.add(began.elapsed());
                    break;
                }
                Err(error) if again(&error) => {}
                Err(error) => return Err(format!("receive: {error}")),
            }
        }
    }
    Ok(())
}

/// Sends received bytes back.
pub(crate) fn pong(trips: &RoundTrips, spin: bool) -> Result<(), String> {
    let socket = ping_socket(Role::Receiver, spin)?;
    let mut buffer = [0; 64];
    while !trips.is_over() {
        match socket.recv_from(&mut buffer) {
            Ok((bytes, from)) => {
                socket.send_to(&buffer[..bytes], from).map_err(|error| format!("send: {error}"))?;
            }
            Err(error) if again(&error) => {}
            Err(error) => return Err(format!("receive: {error}")),
        }
    }
    Ok(())
}

fn again(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_bytes_do_not_stop_a_sender() {
        let mut under_way = UnderWay::new(1_000);
        assert_eq!(under_way.room(0, 300), 1_000);
        under_way.add(900);
        assert_eq!((under_way.room(0, 300), under_way.room(100, 300), under_way.room(200, 300)), (0, 0, 300));
        // Bytes that do not arrive in time are given up.
        let began = Instant::now();
        while under_way.room(200, 301) == 0 {
            assert!(began.elapsed() < PATIENCE * 1_000, "it waits for lost bytes");
        }
        assert_eq!(under_way.room(200, 300), 1_000);
    }
}
