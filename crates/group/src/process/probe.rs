//! Finds out whether a silent process is gone or slow. A port at which no process listens refuses datagrams; the kernel
//! does this for a process that has ended.
//!
//! The questions leave by sockets of their own, one per plane, because a node's socket talks to many peers and hears no
//! refusals. A refusal can be forged, so it counts only while nothing genuine is heard, and must be repeated.

use std::io;
use std::net::{SocketAddrV6, UdpSocket};
use strandway_udp::address::shown;

/// The number of refusals on one plane that show that a process is gone: ours.
pub(super) const ENOUGH: u32 = 2;

/// Questions to one silent process.
pub(super) struct Probe {
    planes: Vec<Plane>,
}

struct Plane {
    number: usize,
    address: SocketAddrV6,
    socket: UdpSocket,
    refusals: u32,
}

impl Probe {
    /// Opens sockets from our addresses to those of the process. Planes without a way are left out.
    pub(super) fn new(ours: &[SocketAddrV6], theirs: &[SocketAddrV6]) -> Probe {
        let open = |(number, (ours, theirs)): (usize, (&SocketAddrV6, &SocketAddrV6))| {
            let socket = UdpSocket::bind(shown(SocketAddrV6::new(*ours.ip(), 0, 0, ours.scope_id()))).ok()?;
            socket.set_nonblocking(true).ok()?;
            socket.connect(shown(*theirs)).ok()?;
            Some(Plane { number, address: *theirs, socket, refusals: 0 })
        };
        Probe { planes: ours.iter().zip(theirs).enumerate().filter_map(open).collect() }
    }

    /// Asks once more. Returns a plane and an address that have refused often enough, if there is one.
    pub(super) fn ask(&mut self) -> Option<(usize, SocketAddrV6)> {
        for plane in &mut self.planes {
            // The next call on the socket reports the refusal of the last question.
            let refused =
                |result: io::Result<usize>| result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if refused(plane.socket.recv(&mut [0; 16])) | refused(plane.socket.send(&[0])) {
                plane.refusals += 1;
                let _ = plane.socket.send(&[0]);
            }
        }
        let gone = self.planes.iter().find(|plane| plane.refusals >= ENOUGH)?;
        Some((gone.number, gone.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use strandway_udp::address::kept;

    fn asked(probe: &mut Probe) -> Option<(usize, SocketAddrV6)> {
        (0..4).find_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            probe.ask()
        })
    }

    #[test]
    fn a_port_without_a_process_is_gone_and_one_that_does_not_answer_is_not() {
        for family in ["[::1]:0", "127.0.0.1:0"] {
            let socket = || UdpSocket::bind(family).expect("a socket");
            let address = |socket: &UdpSocket| kept(socket.local_addr().expect("bound"));
            let slow = socket();
            let ours = SocketAddrV6::new(*address(&slow).ip(), 0, 0, 0);
            assert_eq!(asked(&mut Probe::new(&[ours], &[address(&slow)])), None);
            let gone = address(&socket());
            let planes = [address(&slow), gone];
            assert_eq!(asked(&mut Probe::new(&[ours, ours], &planes)), Some((1, gone)));
        }
    }
}
