//! A node of UET on a UDP socket.

use super::{Config, Uet};
use crate::clock::Clock;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use strandway_proto::Time;

/// The longest datagram that is received; SUET's have at most 4,096 bytes.
const DATAGRAM_MAX: usize = 16_384;
/// Datagrams that are received in a row before any is sent; ours.
const BATCH: usize = 64;

/// A [`Uet`] with its socket. It works when its caller turns it, and has no thread.
pub struct Node {
    socket: UdpSocket,
    clock: Clock,
    uet: Uet,
    buffer: Vec<u8>,
    /// A datagram for which the socket had no room.
    waiting: Option<(SocketAddr, Vec<u8>)>,
}

impl Node {
    /// A node at this address; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn bind(address: SocketAddr, config: Config) -> io::Result<Node> {
        let socket = UdpSocket::bind(address)?;
        let buffer = vec![0; DATAGRAM_MAX];
        Ok(Node { socket, clock: Clock::new(), uet: Uet::new(config), buffer, waiting: None })
    }

    /// Its address.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The state machine, for its calls and events.
    pub fn uet(&mut self) -> &mut Uet {
        &mut self.uet
    }

    /// The present time, for calls of the state machine.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Receives, sends, and runs timers; waits up to `wait` if there is nothing to do. Returns whether anything moved.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn turn(&mut self, wait: Duration) -> io::Result<bool> {
        let moved = self.work()?;
        if moved || wait.is_zero() {
            return Ok(moved);
        }
        let now = self.clock.now();
        let timer = self.uet.poll_timeout().map_or(wait, |at| crate::clock::duration(at.since(now)));
        let wait = wait.min(timer).max(Duration::from_micros(50));
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(wait))?;
        let received = self.receive()?;
        self.work().map(|moved| moved || received)
    }

    fn work(&mut self) -> io::Result<bool> {
        self.socket.set_nonblocking(true)?;
        let mut moved = false;
        for _ in 0..BATCH {
            if !self.receive()? {
                break;
            }
            moved = true;
        }
        let now = self.clock.now();
        self.uet.handle_timeout(now);
        while let Some((to, bytes)) = self.waiting.take().or_else(|| self.uet.poll_transmit(now)) {
            match self.socket.send_to(&bytes, to) {
                Ok(_) => moved = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting = Some((to, bytes));
                    break;
                }
                // The answer to an earlier datagram: nobody listens there. Timers decide.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    fn receive(&mut self) -> io::Result<bool> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok((length, from)) => {
                self.uet.handle_datagram(self.clock.now(), from, &self.buffer[..length]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}
