//! A network device as a packet socket: frames in and out, many per system call.

use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind,
    recvmmsg, sendmmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use strandway_proto::{Span, Time};

/// Frames per system call. Ours: a batch of 16 takes some 60 us to send, which hardly delays the next frame.
pub(super) const BATCH: usize = 16;

/// The longest frame: MTU 9,216 and Ethernet's header.
const FRAME_MAX: usize = 9216 + 18;

/// The kernel's buffer while this process has no processor: a quarter of a second at 2 Gb/s.
const BUFFER: usize = 64 << 20;

/// The packet type of a frame that this machine's kernel sends from the device itself (`PACKET_OUTGOING`, packet(7)).
const OUTGOING: u8 = 4;

/// The frames of one device. It receives the frames that others send to the device, and not its own.
#[derive(Debug)]
pub(super) struct Device {
    socket: OwnedFd,
}

impl Device {
    /// The device of that name in the namespace of the calling thread.
    pub(super) fn open(name: &str) -> std::io::Result<Device> {
        let addresses = nix::ifaddrs::getifaddrs()?;
        let address = addresses
            .filter(|a| a.interface_name == name)
            .find_map(|a| a.address.as_ref().and_then(|a| a.as_link_addr().copied()))
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, format!("there is no device {name}")))?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        bind(socket.as_raw_fd(), &address)?;
        setsockopt(&socket, RcvBufForce, &BUFFER)?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        Ok(Device { socket })
    }

    /// Waits until a frame is there, or for this long.
    pub(super) fn wait(&self, most: Span) -> std::io::Result<()> {
        let nanoseconds = most.0 / 1000;
        let most =
            Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as _ };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&most)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }

    /// Hands waiting frames, at most [`BATCH`], to `each`, with their times of arrival. Returns the number of frames
    /// read, including those that the kernel sends from here.
    pub(super) fn receive(&self, pool: &mut FramePool, mut each: impl FnMut(Time, &[u8])) -> std::io::Result<usize> {
        let mut lengths = [None; BATCH];
        let mut count = 0;
        {
            let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                pool.room.chunks_exact_mut(FRAME_MAX).map(|chunk| [IoSliceMut::new(chunk)]).collect();
            let got =
                recvmmsg(self.socket.as_raw_fd(), &mut pool.incoming, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
            let got = match got {
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(0),
                other => other?,
            };
            let now = pool.clock.now();
            for (slot, message) in lengths.iter_mut().zip(got) {
                let stamp = message.cmsgs()?.find_map(|c| match c {
                    ControlMessageOwned::ScmTimestampns(at) => {
                        Some(pool.clock.since(at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64))
                    }
                    _ => None,
                });
                let ours = message.address.is_some_and(|from| from.pkttype() == OUTGOING);
                *slot = (!ours).then_some((message.bytes, stamp.unwrap_or(now)));
                count += 1;
            }
        }
        for (chunk, frame) in pool.room.chunks_exact(FRAME_MAX).zip(&lengths[..count]) {
            if let &Some((length, at)) = frame {
                each(at, &chunk[..length]);
            }
        }
        Ok(count)
    }

    /// Sends frames, at most [`BATCH`]; returns how many the kernel took.
    pub(super) fn send<'f>(
        &self,
        pool: &mut FramePool,
        frames: impl Iterator<Item = &'f [u8]>,
    ) -> std::io::Result<usize> {
        let slices: Vec<[IoSlice<'_>; 1]> = frames.take(BATCH).map(|frame| [IoSlice::new(frame)]).collect();
        if slices.is_empty() {
            return Ok(0);
        }
        let addresses = [None; BATCH];
        let sent = sendmmsg(
            self.socket.as_raw_fd(),
            &mut pool.outgoing,
            &slices,
            &addresses[..slices.len()],
            [],
            MsgFlags::empty(),
        )?;
        Ok(sent.count())
    }
}

/// Memory for system calls of one thread.
pub(super) struct FramePool {
    room: Vec<u8>,
    incoming: MultiHeaders<LinkAddr>,
    outgoing: MultiHeaders<LinkAddr>,
    clock: Clock,
}

impl FramePool {
    pub(super) fn new(clock: Clock) -> FramePool {
        FramePool {
            clock,
            room: vec![0; BATCH * FRAME_MAX],
            incoming: MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(TimeSpec))),
            outgoing: MultiHeaders::preallocate(BATCH, None),
        }
    }
}

/// The clock of the frames' time stamps; it begins when it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Nanoseconds since 1970.
    began: u64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        let now = clock_gettime(ClockId::Realtime);
        Clock { began: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 }
    }

    pub(super) fn now(self) -> Time {
        let now = clock_gettime(ClockId::Realtime);
        self.since(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    fn since(self, nanoseconds: u64) -> Time {
        Time(nanoseconds.saturating_sub(self.began) * 1000)
    }
}

/// Enlarges a socket's buffer, so that it can hold datagrams while its process has no processor.
pub(super) fn widen(socket: &std::net::UdpSocket) -> std::io::Result<()> {
    Ok(setsockopt(socket, RcvBufForce, &BUFFER)?)
}

/// Sleeps for about this time, as exactly as the kernel can.
pub(super) fn pace(length: std::time::Duration) {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    std::thread::sleep(length);
}
