//! System calls: batches that the kernel splits and joins, many messages at a time, and sends without a copy.

use super::{BYTES, MANY, Receiving, SMALL, Sending, Shape, text};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn6, recvmmsg, recvmsg, sendmmsg, sendmsg,
    setsockopt, sockopt,
};
use nix::{setsockopt_impl, sockopt_impl};
use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

sockopt_impl!(
    /// Allows `MSG_ZEROCOPY`.
    ZeroCopy,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ZEROCOPY,
    bool
);

/// The origin of a notice that the kernel needs the bytes of a send no longer, and its code if it has copied them:
/// `linux/errqueue.h`.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;
/// The most sends whose bytes the kernel may still need. Each takes memory of the socket's options (`optmem_max`).
const UNNOTICED: u64 = 128;

/// Errors after which a send is tried again: the receiver may still be opening its socket, or a buffer is full.
fn try_again(error: Errno) -> bool {
    matches!(error, Errno::EAGAIN | Errno::ENOBUFS | Errno::ECONNREFUSED | Errno::EINTR)
}

/// `sendmsg` with a batch that the kernel splits.
struct Batches {
    socket: UdpSocket,
    segment: u16,
    flags: MsgFlags,
}

pub(super) fn batches(socket: UdpSocket, shape: Shape) -> Result<Box<dyn Sending>, String> {
    Ok(Box::new(Batches { socket, segment: shape.segment as u16, flags: MsgFlags::MSG_DONTWAIT }))
}

impl Batches {
    /// Sends a batch, if there is room.
    fn one(&self, bytes: usize) -> Result<bool, String> {
        let (slices, control) = ([IoSlice::new(&BYTES[..bytes])], [ControlMessage::UdpGsoSegments(&self.segment)]);
        match sendmsg::<()>(self.socket.as_raw_fd(), &slices, &control, self.flags, None) {
            Ok(_) => Ok(true),
            Err(error) if try_again(error) => Ok(false),
            Err(error) => Err(format!("sendmsg: {error}")),
        }
    }
}

impl Sending for Batches {
    fn send(&mut self, bytes: usize, count: usize) -> Result<usize, String> {
        Ok(usize::from(count > 0 && self.one(bytes)?))
    }
}

/// The same without a copy, whose end the kernel tells in the socket's queue of errors.
struct ZeroCopied {
    batches: Batches,
    sent: u64,
    /// Sends that the kernel no longer needs, and those of them that it copied.
    noticed: u64,
    copied: u64,
}

pub(super) fn zero_copy(socket: UdpSocket, shape: Shape) -> Result<Box<dyn Sending>, String> {
    setsockopt(&socket, ZeroCopy, &true).map_err(|error| format!("SO_ZEROCOPY: {error}"))?;
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY);
    let batches = Batches { socket, segment: shape.segment as u16, flags };
    Ok(Box::new(ZeroCopied { batches, sent: 0, noticed: 0, copied: 0 }))
}

impl ZeroCopied {
    /// Reads the notices that have come.
    fn notices(&mut self) -> Result<(), String> {
        let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
        loop {
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let fd = self.batches.socket.as_raw_fd();
            let got = match recvmsg::<SockaddrIn6>(fd, &mut [], Some(&mut control), flags) {
                Ok(got) => got,
                Err(error) if try_again(error) => return Ok(()),
                Err(error) => return Err(format!("the queue of errors: {error}")),
            };
            for one in got.cmsgs().map_err(text)? {
                let (ControlMessageOwned::Ipv6RecvErr(notice, _) | ControlMessageOwned::Ipv4RecvErr(notice, _)) = one
                else {
                    continue;
                };
                if notice.ee_origin == ORIGIN_ZEROCOPY {
                    // The first and the last send that it is about.
                    let sends = u64::from(notice.ee_data.wrapping_sub(notice.ee_info)) + 1;
                    self.noticed += sends;
                    self.copied += if notice.ee_code & CODE_COPIED != 0 { sends } else { 0 };
                }
            }
        }
    }
}

impl Sending for ZeroCopied {
    fn send(&mut self, bytes: usize, count: usize) -> Result<usize, String> {
        let sent = count > 0 && self.sent - self.noticed < UNNOTICED && self.batches.one(bytes)?;
        self.sent += u64::from(sent);
        self.notices()?;
        Ok(usize::from(sent))
    }

    fn copied(&self) -> Option<f64> {
        (self.noticed > 0).then(|| self.copied as f64 / self.noticed as f64)
    }
}

/// `sendmmsg` with a header for each message, or for each batch that the kernel splits.
struct Messages {
    socket: UdpSocket,
    least: usize,
}

pub(super) fn messages(socket: UdpSocket, shape: Shape) -> Result<Box<dyn Sending>, String> {
    let batches = shape.bytes > shape.segment;
    if batches {
        setsockopt(&socket, sockopt::UdpGsoSegment, &(shape.segment as i32)).map_err(text)?;
    }
    Ok(Box::new(Messages { socket, least: if batches { 1 } else { MANY } }))
}

impl Sending for Messages {
    fn least(&self) -> usize {
        self.least
    }

    fn send(&mut self, bytes: usize, count: usize) -> Result<usize, String> {
        let count = count.min(MANY);
        if count < self.least {
            return Ok(0);
        }
        let slices = vec![[IoSlice::new(&BYTES[..bytes])]; count];
        let mut headers = MultiHeaders::<SockaddrIn6>::preallocate(count, None);
        let to = vec![None; count];
        match sendmmsg(self.socket.as_raw_fd(), &mut headers, &slices, &to, [], MsgFlags::MSG_DONTWAIT) {
            Ok(each) => Ok(each.count()),
            Err(error) if try_again(error) => Ok(0),
            Err(error) => Err(format!("sendmmsg: {error}")),
        }
    }
}

/// `recvmsg` into a buffer for everything that the kernel joins.
struct Merged {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

pub(super) fn merged(socket: UdpSocket, _: Shape) -> Result<Box<dyn Receiving>, String> {
    Ok(Box::new(Merged { socket, buffer: vec![0; 65_536] }))
}

impl Receiving for Merged {
    fn receive(&mut self) -> Result<u64, String> {
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        match recvmsg::<SockaddrIn6>(self.socket.as_raw_fd(), &mut slices, None, MsgFlags::MSG_DONTWAIT) {
            Ok(got) => Ok(got.bytes as u64),
            Err(error) if try_again(error) => Ok(0),
            Err(error) => Err(format!("recvmsg: {error}")),
        }
    }
}

/// `recvmmsg` into a buffer for each message.
struct Each {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

pub(super) fn each(socket: UdpSocket, _: Shape) -> Result<Box<dyn Receiving>, String> {
    Ok(Box::new(Each { socket, buffer: vec![0; MANY * SMALL] }))
}

impl Receiving for Each {
    fn receive(&mut self) -> Result<u64, String> {
        let mut slices: Vec<_> = self.buffer.chunks_mut(SMALL).map(|one| [IoSliceMut::new(one)]).collect();
        let mut headers = MultiHeaders::<SockaddrIn6>::preallocate(MANY, None);
        match recvmmsg(self.socket.as_raw_fd(), &mut headers, &mut slices, MsgFlags::MSG_DONTWAIT, None) {
            Ok(each) => Ok(each.map(|one| one.bytes as u64).sum()),
            Err(error) if try_again(error) => Ok(0),
            Err(error) => Err(format!("recvmmsg: {error}")),
        }
    }
}
