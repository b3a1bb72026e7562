//! A UDP socket over IPv6 or IPv4: datagrams with their ECN bits, in batches if the kernel can (GSO, GRO), with their
//! time of arrival.

mod family;
mod raw;

pub(crate) use family::Family;
pub(crate) use raw::Raw;

use crate::address::{kept, shown, unspecified};
use crate::error::Error;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::{libc, setsockopt_impl, sockopt_impl};
use rustix::net::sockopt as sockopt_of;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strandway_fabric::kernel::{Feature, Without};

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
    /// Where the datagrams were sent to, if the socket asks for it.
    to: Option<Ipv6Addr>,
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
            to: None,
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
    family: Family,
    /// Does the kernel cut a batch into datagrams?
    batches: bool,
    /// The only destinations whose datagrams count, if the kernel gives others too; otherwise empty.
    groups: Vec<Ipv6Addr>,
    without: Without,
}

/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6` of `linux/errqueue.h`.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;

/// The most errors of a socket that are taken at a time: ours. A stranger that forges more of them must not keep a node
/// busy.
const ERRORS_MAX: usize = 64;

impl Udp {
    /// Opens it, with buffers of `receive` and `send` bytes if the system gives them.
    pub(crate) fn open(address: SocketAddrV6, receive: usize, send: usize, without: Without) -> Result<Udp, Error> {
        let socket = UdpSocket::bind(shown(address)).map_err(|source| refused(address, source))?;
        Udp::set_up(socket, address, receive, send, without)
    }

    /// Opens it with a port that another socket of this process has, and shares ([`Udp::share`]).
    pub(crate) fn open_shared(
        address: SocketAddrV6,
        receive: usize,
        send: usize,
        without: Without,
    ) -> Result<Udp, Error> {
        let os = |error: rustix::io::Errno| refused(address, error.into());
        let socket = Family::of(*address.ip()).socket().map_err(|source| refused(address, source))?;
        sockopt_of::set_socket_reuseport(&socket, true).map_err(os)?;
        rustix::net::bind(&socket, &shown(address)).map_err(os)?;
        Udp::set_up(UdpSocket::from(socket), address, receive, send, without)
    }

    /// Opens it for one family, even at all addresses of the host.
    pub(crate) fn open_of_family(address: SocketAddrV6, buffer: usize, without: Without) -> Result<Udp, Error> {
        let os = |error: rustix::io::Errno| refused(address, error.into());
        let family = Family::of(*address.ip());
        let socket = family.socket().map_err(|source| refused(address, source))?;
        if family == Family::V6 {
            sockopt_of::set_ipv6_v6only(&socket, true).map_err(os)?;
        }
        rustix::net::bind(&socket, &shown(address)).map_err(os)?;
        Udp::set_up(UdpSocket::from(socket), address, buffer, buffer, without)
    }

    /// From now on other sockets of this user may share the port.
    pub(crate) fn share(&self) -> Result<(), Error> {
        sockopt_of::set_socket_reuseport(&self.socket, true).map_err(|error| Error::Wait(error.into()))
    }

    /// From now on this program chooses the receiving one among the sockets that share the port, by its place in the
    /// order in which they were opened. False if the kernel has no such programs: then it chooses by sender and port.
    pub(crate) fn deal_out(&self, program: &[libc::sock_filter]) -> bool {
        if self.without.has(Feature::ReuseportFilter) {
            return false;
        }
        // The kernel copies the program, and does not write to it.
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        setsockopt(&self.socket, sockopt::AttachReusePortCbpf, &program).is_ok()
    }

    /// Opens a socket that receives datagrams to these groups at one interface and this port. Other sockets of this
    /// host may do the same. The groups are of the family of `ours`, the plane's address.
    pub(crate) fn of_groups(
        ours: Ipv6Addr,
        port: u16,
        receive: usize,
        groups: &[Ipv6Addr],
        device: u32,
        without: Without,
    ) -> Result<Udp, Error> {
        let (address, family) = (SocketAddrV6::new(unspecified(ours), port, 0, 0), Family::of(ours));
        let os = |error: rustix::io::Errno| refused(address, error.into());
        let socket = family.socket().map_err(|source| refused(address, source))?;
        sockopt_of::set_socket_reuseaddr(&socket, true).map_err(os)?;
        if family == Family::V6 {
            sockopt_of::set_ipv6_v6only(&socket, true).map_err(os)?;
        }
        rustix::net::bind(&socket, &shown(address)).map_err(os)?;
        let only = family.join(&socket, groups, device, without).map_err(|source| refused(address, source))?;
        // The socket only receives, so its send buffer is small.
        let udp = Udp::set_up(UdpSocket::from(socket), address, receive, 4_096, without)?;
        Ok(Udp { groups: if only { Vec::new() } else { groups.to_vec() }, ..udp })
    }

    /// From now on datagrams to groups leave by this interface, for at most eight hops; if `looped`, they arrive at
    /// this host, too.
    pub(crate) fn cast_from(&self, device: u32, looped: bool) -> Result<(), Error> {
        let address = self.address()?;
        self.family.cast_from(&self.socket, device, looped).map_err(|source| refused(address, source))
    }

    fn set_up(
        socket: UdpSocket,
        address: SocketAddrV6,
        receive: usize,
        send: usize,
        without: Without,
    ) -> Result<Udp, Error> {
        let family = Family::of(*address.ip());
        socket.set_nonblocking(true).map_err(|source| refused(address, source))?;
        let set = |outcome: nix::Result<()>| outcome.map_err(|errno| refused(address, errno.into()));
        set(prepare(&socket, family, receive, send, without))?;
        // Over IPv4 every socket accepts datagrams without a checksum.
        if family == Family::V6 {
            set(setsockopt(&socket, NoCheck6Rx, &true))?;
        }
        // Optional: without it, datagrams come one by one.
        if !without.has(Feature::Gro) {
            let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        }
        // An older kernel would send a batch as one datagram.
        let batches = !without.has(Feature::Gso) && setsockopt(&socket, sockopt::UdpGsoSegment, &0).is_ok();
        Ok(Udp { socket, family, batches, groups: Vec::new(), without })
    }

    pub(crate) fn address(&self) -> Result<SocketAddrV6, Error> {
        self.socket.local_addr().map(kept).map_err(Error::Wait)
    }

    /// Bytes of arrived datagrams that it can hold, as the kernel counts them.
    pub(crate) fn buffer(&self) -> usize {
        nix::sys::socket::getsockopt(&self.socket, sockopt::RcvBuf).unwrap_or(212_992)
    }

    /// May [`Udp::send`] be called with `segment`?
    pub(crate) const fn cuts_batches(&self) -> bool {
        self.batches
    }

    /// Sends `bytes` as one datagram, or as datagrams of `segment` bytes each (the last may be shorter).
    pub(crate) fn send(&self, to: SocketAddrV6, class: u8, bytes: &[u8], segment: Option<u16>) -> nix::Result<()> {
        self.family.send(self.socket.as_raw_fd(), to, class, bytes, segment)
    }

    /// Receives the datagrams of one call; false if there were none.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> bool {
        let fd = self.socket.as_raw_fd();
        let any = match self.family {
            Family::V4 => receive(fd, inbox, |from: SockaddrIn| kept(SocketAddrV4::from(from))),
            Family::V6 => receive(fd, inbox, |from: SockaddrIn6| from.into()),
        };
        if !self.groups.is_empty() && inbox.to.is_some_and(|to| !self.groups.contains(&to)) {
            inbox.length = 0;
        }
        any
    }

    /// From now on the kernel keeps the ICMP errors that datagrams of this socket meet: [`Udp::take_refusals`]. Each of
    /// them makes one later call on the socket fail. Where the kernel does not keep them, there are none.
    pub(crate) fn read_refusals(&self) {
        if self.without.has(Feature::Refusals) {
            return;
        }
        let _ = match self.family {
            Family::V4 => setsockopt(&self.socket, sockopt::Ipv4RecvErr, &true),
            Family::V6 => setsockopt(&self.socket, sockopt::Ipv6RecvErr, &true),
        };
    }

    /// Takes the errors that the kernel keeps; `refused` hears of each address whose port refused a datagram. True if
    /// there was any error.
    pub(crate) fn take_refusals(&self, mut refused: impl FnMut(SocketAddrV6)) -> bool {
        self.take_errors(|error| {
            if error.errno == Errno::ECONNREFUSED {
                refused(error.to);
            }
        })
    }

    /// Takes the errors that the kernel keeps; true if there were any.
    pub(crate) fn take_errors(&self, each: impl FnMut(IcmpError)) -> bool {
        let fd = self.socket.as_raw_fd();
        match self.family {
            Family::V4 => take_errors(fd, |to: SockaddrIn| kept(SocketAddrV4::from(to)), each),
            Family::V6 => take_errors(fd, |to: SockaddrIn6| to.into(), each),
        }
    }
}

/// An ICMP error that a datagram has met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IcmpError {
    /// Where the datagram was sent to.
    pub(crate) to: SocketAddrV6,
    pub(crate) errno: Errno,
    /// The host that sent the error.
    pub(crate) by: Option<Ipv6Addr>,
    /// Of "packet too big": the largest packet that would have passed.
    pub(crate) mtu: u32,
    /// "Administratively prohibited": a firewall.
    pub(crate) prohibited: bool,
}

fn take_errors<A: SockaddrLike + Copy>(
    fd: RawFd,
    address: impl Fn(A) -> SocketAddrV6,
    mut each: impl FnMut(IcmpError),
) -> bool {
    let (mut bytes, mut control) = ([0; 64], cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6, [u8; 128]));
    for count in 0..ERRORS_MAX {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let Ok(got) = recvmsg::<A>(fd, &mut slices, Some(&mut control), flags) else { return count > 0 };
        for message in got.cmsgs().into_iter().flatten() {
            let (error, by, prohibited) = match message {
                ControlMessageOwned::Ipv4RecvErr(error, by) => {
                    let by = by.map(|by| Ipv4Addr::from(u32::from_be(by.sin_addr.s_addr)).to_ipv6_mapped());
                    // RFC 1812, section 5.2.7.1: type 3, codes 9, 10 and 13.
                    (error, by, error.ee_type == 3 && matches!(error.ee_code, 9 | 10 | 13))
                }
                ControlMessageOwned::Ipv6RecvErr(error, by) => {
                    let by = by.map(|by| Ipv6Addr::from(by.sin6_addr.s6_addr));
                    // RFC 4443, section 3.1: type 1, codes 1, 5 and 6.
                    (error, by, error.ee_type == 1 && matches!(error.ee_code, 1 | 5 | 6))
                }
                _ => continue,
            };
            if let (true, Some(to)) = (matches!(error.ee_origin, ORIGIN_ICMP | ORIGIN_ICMP6), got.address) {
                let errno = Errno::from_raw(error.ee_errno as i32);
                each(IcmpError { to: address(to), errno, by, mtu: error.ee_info, prohibited });
            }
        }
    }
    true
}

/// The system refused a socket on this address.
fn refused(address: SocketAddrV6, source: std::io::Error) -> Error {
    Error::Socket { address: SocketAddr::V6(address), source }
}

/// Sets the options that every socket of a plane has: buffers of these many bytes, traffic classes and times of arrival
/// with datagrams, and no fragments.
fn prepare(socket: &impl AsFd, family: Family, receive: usize, send: usize, without: Without) -> nix::Result<()> {
    // Only a privileged process may exceed the system's limit; the plain call gives at most the limit.
    if setsockopt(socket, sockopt::RcvBufForce, &receive).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &receive)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &send).is_err() {
        setsockopt(socket, sockopt::SndBuf, &send)?;
    }
    family.prepare(socket)?;
    // Optional: without it, round trips include the time that the receiver slept.
    if !without.has(Feature::Timestamps) {
        let _ = setsockopt(socket, sockopt::ReceiveTimestampns, &true);
    }
    Ok(())
}

/// Receives the datagrams of one call from a socket; false if there were none.
fn receive<A: SockaddrLike + Copy>(fd: RawFd, inbox: &mut Inbox, origin: impl FnOnce(A) -> SocketAddrV6) -> bool {
    (inbox.length, inbox.failed, inbox.to) = (0, false, None);
    let mut slices = [IoSliceMut::new(&mut inbox.bytes)];
    let control = Some(inbox.control.as_mut_slice());
    let got = match recvmsg::<A>(fd, &mut slices, control, MsgFlags::MSG_DONTWAIT) {
        Ok(got) => got,
        Err(error) => {
            // An error here belongs to an earlier send (a peer's port is closed), so it is enough to try again later.
            inbox.failed = error != Errno::EAGAIN;
            return false;
        }
    };
    let Some(from) = got.address else { return false };
    (inbox.length, inbox.stride) = (got.bytes, got.bytes);
    inbox.arrival = Arrival { from: origin(from), class: 0, age: Duration::ZERO };
    for message in got.cmsgs().into_iter().flatten() {
        match message {
            ControlMessageOwned::Ipv6TClass(class) => inbox.arrival.class = class as u8,
            ControlMessageOwned::Ipv4Tos(class) => inbox.arrival.class = class,
            ControlMessageOwned::Ipv6PacketInfo(info) => inbox.to = Some(info.ipi6_addr.s6_addr.into()),
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

/// Does the kernel run programs that choose among the sockets of a port?
pub(crate) fn has_port_programs(socket: &UdpSocket) -> bool {
    // Return 0: the first socket.
    let mut program = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // A socket that was bound before it shares, and shares with no other, takes none.
    let family = if socket.local_addr().is_ok_and(|at| at.is_ipv4()) { Family::V4 } else { Family::V6 };
    family.socket().is_ok_and(|socket| {
        sockopt_of::set_socket_reuseport(&socket, true).is_ok()
            && setsockopt(&socket, sockopt::AttachReusePortCbpf, &program).is_ok()
    })
}

/// Can a socket refuse datagrams to groups that others have joined? An IPv4 socket always can.
pub(crate) fn has_multicast_all(socket: &UdpSocket) -> bool {
    setsockopt(socket, family::MulticastAll6, &false).is_ok()
}

/// Does this error mean "no GSO on this interface"? EIO: no checksum offload; EINVAL: no such option.
pub(crate) fn lacks_gso(error: Errno) -> bool {
    matches!(error, Errno::EIO | Errno::EINVAL)
}
