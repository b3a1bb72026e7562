//! A UDP/IPv6 socket: datagrams with their ECN bits, in batches if the kernel can (GSO, GRO), with their time of
//! arrival.

mod raw;

pub(crate) use raw::Raw;

use crate::error::Error;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::{libc, setsockopt_impl, sockopt_impl};
use rustix::net::{AddressFamily as RustixFamily, SocketFlags, SocketType, sockopt as sockopt_of};
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// ECT(0): switches may mark this datagram instead of dropping it.
pub(crate) const ECT: u8 = 2;
/// Both ECN bits: marked.
pub(crate) const CE: u8 = 3;
/// The hop limit of datagrams to groups: more than any path through a fabric of three tiers has. Multicast sheet,
/// section 11.
const GROUP_HOPS: u32 = 8;

sockopt_impl!(
    /// Accepts datagrams without a checksum, since switches that trim cannot compute one.
    NoCheck6Rx,
    SetOnly,
    libc::SOL_UDP,
    libc::UDP_NO_CHECK6_RX,
    bool
);

sockopt_impl!(
    /// The source of the MTU: with `IPV6_PMTUDISC_PROBE` the kernel uses that of the interface. It ignores ICMPv6
    /// "packet too big", which any host can forge.
    MtuDiscover6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int
);

sockopt_impl!(
    /// Does a socket receive datagrams to groups that other sockets of this host have joined?
    MulticastAll6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MULTICAST_ALL,
    bool
);

/// Sender, class and age of the datagrams of one receiving call.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) from: SocketAddrV6,
    /// DSCP and ECN, as the last switch left them.
    pub(crate) class: u8,
    /// The time since the kernel received them.
    pub(crate) age: Duration,
}

impl Arrival {
    pub(crate) const fn dscp(&self) -> u8 {
        self.class >> 2
    }

    pub(crate) const fn is_marked(&self) -> bool {
        self.class & CE == CE
    }
}

/// The buffer of a receiving call.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    control: Vec<u8>,
    arrival: Arrival,
    length: usize,
    stride: usize,
    /// The last call found no datagram, but an error that an earlier one of ours has met.
    failed: bool,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        let nowhere = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
        Inbox {
            bytes: vec![0; 65_536],
            // Traffic class, segment size, time stamp, and room to spare.
            control: cmsg_space!(i32, i32, TimeSpec, [u8; 64]),
            arrival: Arrival { from: nowhere, class: 0, age: Duration::ZERO },
            length: 0,
            stride: 0,
            failed: false,
        }
    }

    /// Bytes and datagrams of the last call.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.length, self.length.div_ceil(self.stride.max(1)))
    }

    /// Did the last call find an error instead of datagrams?
    pub(crate) const fn failed(&self) -> bool {
        self.failed
    }

    /// Gives every datagram of the last call to `take`.
    pub(crate) fn each(&mut self, mut take: impl FnMut(&Arrival, &mut [u8])) {
        for datagram in self.bytes[..self.length].chunks_mut(self.stride.max(1)) {
            take(&self.arrival, datagram);
        }
    }
}

/// A socket that never blocks.
pub(crate) struct Udp {
    socket: UdpSocket,
}

/// Errors of a socket that are taken at a time: ours. Whoever forges more of them must not keep a node busy.
const ERRORS_MAX: usize = 64;

impl Udp {
    /// Opens it, with buffers of `receive` and `send` bytes if the system gives them.
    pub(crate) fn open(address: SocketAddrV6, receive: usize, send: usize) -> Result<Udp, Error> {
        let socket = UdpSocket::bind(address).map_err(|source| Error::Socket { address: address.into(), source })?;
        Udp::set_up(socket, address, receive, send)
    }

    /// The same with a port that another socket of this process has, and shares ([`Udp::share`]).
    pub(crate) fn open_shared(address: SocketAddrV6, receive: usize, send: usize) -> Result<Udp, Error> {
        let os = |error: rustix::io::Errno| Error::Socket { address: address.into(), source: error.into() };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(RustixFamily::INET6, SocketType::DGRAM, flags, None).map_err(os)?;
        sockopt_of::set_socket_reuseport(&socket, true).map_err(os)?;
        rustix::net::bind(&socket, &address).map_err(os)?;
        Udp::set_up(UdpSocket::from(socket), address, receive, send)
    }

    /// From now on other sockets of this user may share the port.
    pub(crate) fn share(&self) -> Result<(), Error> {
        sockopt_of::set_socket_reuseport(&self.socket, true).map_err(|error| Error::Wait(error.into()))
    }

    /// From now on this program chooses the receiving one among the sockets that share the port, by its place in the
    /// order in which they were opened.
    pub(crate) fn deal_out(&self, program: &[libc::sock_filter]) -> Result<(), Error> {
        // The kernel copies the program, and does not write to it.
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        setsockopt(&self.socket, sockopt::AttachReusePortCbpf, &program).map_err(|errno| Error::Wait(errno.into()))
    }

    /// Opens a socket that receives datagrams to these groups at one interface and this port. Other sockets of this
    /// host may do the same.
    pub(crate) fn of_groups(port: u16, receive: usize, groups: &[Ipv6Addr], device: u32) -> Result<Udp, Error> {
        let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        let wrong = |source| Error::Socket { address: address.into(), source };
        let os = |error: rustix::io::Errno| wrong(error.into());
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(RustixFamily::INET6, SocketType::DGRAM, flags, None).map_err(os)?;
        sockopt_of::set_socket_reuseaddr(&socket, true).map_err(os)?;
        sockopt_of::set_ipv6_v6only(&socket, true).map_err(os)?;
        rustix::net::bind(&socket, &address).map_err(os)?;
        setsockopt(&socket, MulticastAll6, &false).map_err(|errno| wrong(errno.into()))?;
        for group in groups {
            sockopt_of::set_ipv6_add_membership(&socket, group, device).map_err(os)?;
        }
        // The socket only receives, so its send buffer is small.
        Udp::set_up(UdpSocket::from(socket), address, receive, 4_096)
    }

    /// From now on datagrams to groups leave by this interface, for at most eight hops; if `looped`, they arrive at
    /// this host, too.
    pub(crate) fn cast_from(&self, device: u32, looped: bool) -> Result<(), Error> {
        let address = self.address()?;
        let wrong = |error: rustix::io::Errno| Error::Socket { address: address.into(), source: error.into() };
        sockopt_of::set_ipv6_multicast_if(&self.socket, device).map_err(wrong)?;
        sockopt_of::set_ipv6_multicast_hops(&self.socket, GROUP_HOPS).map_err(wrong)?;
        sockopt_of::set_ipv6_multicast_loop(&self.socket, looped).map_err(wrong)
    }

    fn set_up(socket: UdpSocket, address: SocketAddrV6, receive: usize, send: usize) -> Result<Udp, Error> {
        let wrong = |source| Error::Socket { address: address.into(), source };
        socket.set_nonblocking(true).map_err(wrong)?;
        let set = |outcome: nix::Result<()>| outcome.map_err(|errno| wrong(errno.into()));
        set(prepare(&socket, receive, send))?;
        set(setsockopt(&socket, NoCheck6Rx, &true))?;
        // Optional: without it, datagrams come one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        Ok(Udp { socket })
    }

    pub(crate) fn address(&self) -> Result<SocketAddrV6, Error> {
        match self.socket.local_addr() {
            Ok(std::net::SocketAddr::V6(address)) => Ok(address),
            Ok(std::net::SocketAddr::V4(_)) => unreachable!("it was bound to an IPv6 address"),
            Err(error) => Err(Error::Wait(error)),
        }
    }

    /// Bytes of arrived datagrams that it can hold, as the kernel counts them.
    pub(crate) fn buffer(&self) -> usize {
        nix::sys::socket::getsockopt(&self.socket, sockopt::RcvBuf).unwrap_or(212_992)
    }

    /// Sends `bytes` as one datagram, or as datagrams of `segment` bytes each (the last may be shorter).
    pub(crate) fn send(&self, to: SocketAddrV6, class: u8, bytes: &[u8], segment: Option<u16>) -> nix::Result<()> {
        let (to, class) = (SockaddrIn6::from(to), i32::from(class));
        let class = ControlMessage::Ipv6TClass(&class);
        let (fd, slices) = (self.socket.as_raw_fd(), [IoSlice::new(bytes)]);
        match &segment {
            Some(segment) => {
                let control = [class, ControlMessage::UdpGsoSegments(segment)];
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))
            }
            None => sendmsg(fd, &slices, &[class], MsgFlags::MSG_DONTWAIT, Some(&to)),
        }
        .map(|_| ())
    }

    /// Receives the datagrams of one call; false if there were none.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> bool {
        receive(self.socket.as_raw_fd(), inbox)
    }

    /// From now on the kernel keeps the ICMP errors that datagrams of this socket meet: [`Udp::take_refusals`]. Each of
    /// them makes one later call on the socket fail.
    pub(crate) fn hear_refusals(&self) -> Result<(), Error> {
        setsockopt(&self.socket, sockopt::Ipv6RecvErr, &true).map_err(|errno| Error::Wait(errno.into()))
    }

    /// Takes the errors that the kernel keeps; `refused` hears of each address whose port refused a datagram. True if
    /// there was any error.
    pub(crate) fn take_refusals(&self, mut refused: impl FnMut(SocketAddrV6)) -> bool {
        let (mut bytes, mut control) = ([0; 64], cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6, [u8; 128]));
        for count in 0..ERRORS_MAX {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let Ok(got) = recvmsg::<SockaddrIn6>(self.socket.as_raw_fd(), &mut slices, Some(&mut control), flags)
            else {
                return count > 0;
            };
            for message in got.cmsgs().into_iter().flatten() {
                if let (ControlMessageOwned::Ipv6RecvErr(error, _), Some(to)) = (message, got.address)
                    && error.ee_errno == Errno::ECONNREFUSED as u32
                {
                    refused(to.into());
                }
            }
        }
        true
    }
}

/// Sets the options that every socket of a plane has: buffers of these many bytes, traffic classes and times of arrival
/// with datagrams, and no fragments.
fn prepare(socket: &impl AsFd, receive: usize, send: usize) -> nix::Result<()> {
    // Only a privileged process may exceed the system's limit; the plain call gives at most the limit.
    if setsockopt(socket, sockopt::RcvBufForce, &receive).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &receive)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &send).is_err() {
        setsockopt(socket, sockopt::SndBuf, &send)?;
    }
    setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?;
    setsockopt(socket, sockopt::Ipv6DontFrag, &true)?;
    setsockopt(socket, MtuDiscover6, &libc::IPV6_PMTUDISC_PROBE)?;
    // Optional: without it, round trips include the time that the receiver slept.
    let _ = setsockopt(socket, sockopt::ReceiveTimestampns, &true);
    Ok(())
}

/// Receives the datagrams of one call from a socket; false if there were none.
fn receive(fd: RawFd, inbox: &mut Inbox) -> bool {
    (inbox.length, inbox.failed) = (0, false);
    let mut slices = [IoSliceMut::new(&mut inbox.bytes)];
    let control = Some(inbox.control.as_mut_slice());
    let got = match recvmsg::<SockaddrIn6>(fd, &mut slices, control, MsgFlags::MSG_DONTWAIT) {
        Ok(got) => got,
        Err(error) => {
            // An error here belongs to an earlier send (a peer's port is closed), so it is enough to try again later.
            inbox.failed = error != Errno::EAGAIN;
            return false;
        }
    };
    let Some(from) = got.address else { return false };
    (inbox.length, inbox.stride) = (got.bytes, got.bytes);
    inbox.arrival = Arrival { from: from.into(), class: 0, age: Duration::ZERO };
    for message in got.cmsgs().into_iter().flatten() {
        match message {
            ControlMessageOwned::Ipv6TClass(class) => inbox.arrival.class = class as u8,
            ControlMessageOwned::UdpGroSegments(stride) if stride > 0 => inbox.stride = stride as usize,
            ControlMessageOwned::ScmTimestampns(at) => {
                let at = UNIX_EPOCH + Duration::from(at);
                inbox.arrival.age = SystemTime::now().duration_since(at).unwrap_or_default();
            }
            _ => {}
        }
    }
    true
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Does this error mean "no GSO on this interface"? EIO: no checksum offload; EINVAL: no such option.
pub(crate) fn lacks_gso(error: Errno) -> bool {
    matches!(error, Errno::EIO | Errno::EINVAL)
}
