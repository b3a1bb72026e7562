//! QUIC over several planes: noq, which has the multipath extension. One connection with a path per plane and one
//! stream, the same cipher and windows as quinn's row.

use crate::goodput::Meter;
use crate::network::{Role, UDP_HEADERS};
use crate::ours::{MESSAGE, TELL};
use crate::quic::{Identity, NAME, datagram, run};
use nix::sys::socket::{setsockopt, sockopt};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{
    ClientConfig, Connection, Endpoint, EndpointConfig, FourTuple, MtuDiscoveryConfig, PathError, PathId, PathStatus,
    RecvStream, ServerConfig, TokioRuntime, TransportConfig, UnorderedRecvStream, VarInt,
};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_udp::PLANES_MAX;

/// Packets of each window. noq closes a connection whose stream has more than 1,024 gaps, and paths interleave their
/// packets: with windows of 16 MiB it closes all connections over planes of 10 Gb/s.
const WINDOW: u32 = 900;
/// The buffers of the one socket that all paths share. With the system's 208 KiB for sending, a full port holds back
/// the other paths, and the first path, which never loses a packet then, gets nearly all data.
const BUFFER: usize = 8 << 20;
const PORT: u16 = 47_804;
/// The time between attempts to open a path while the receiver has not sent identifiers for it.
const AGAIN: Duration = Duration::from_millis(2);
/// Bytes of a packet beside its payload and the headers of UDP: noq's short header (1, 8 of the identifier, 2), the
/// stream frame's header (about 8) and the tag.
const PACKET: u32 = 11 + 8 + 16;
/// Ethernet's header, which a shaper counts.
const ETHERNET: u32 = 14;

/// The settings of both ends.
pub(crate) struct Multipath {
    identity: Identity,
    mtu: u32,
    planes: usize,
}

/// The text of an error, and of those behind it.
fn text(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

impl Multipath {
    pub(crate) fn new(planes: usize, mtu: u32) -> Result<Multipath, String> {
        Ok(Multipath { identity: Identity::new()?, mtu, planes })
    }

    /// The payload that a wire carries when it is full of noq's packets, as a share of its rate.
    pub(crate) fn payload_share(&self) -> f64 {
        let datagram = u32::from(datagram(self.mtu));
        f64::from(datagram - PACKET) / f64::from(datagram + UDP_HEADERS + ETHERNET)
    }

    fn transport(&self) -> Arc<TransportConfig> {
        let datagram = datagram(self.mtu);
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(datagram);
        let window = WINDOW * (u32::from(datagram) - PACKET);
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(VarInt::from_u32(window))
            .receive_window(VarInt::from_u32(window))
            .send_window(u64::from(window))
            .mtu_discovery_config(Some(discovery))
            .max_concurrent_multipath_paths(self.planes as u32);
        Arc::new(transport)
    }

    fn endpoint(&self, server: Option<ServerConfig>, socket: UdpSocket) -> Result<Endpoint, String> {
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER).map_err(text)?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).map_err(text)?;
        let mut config = EndpointConfig::default();
        // The peer sends no larger datagrams; the default is 1,472.
        config.max_udp_payload_size(datagram(self.mtu)).map_err(text)?;
        Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).map_err(text)
    }

    /// Connects over plane 0 and opens a path on each other plane.
    async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, String> {
        let tls = self.identity.of_sender()?;
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(text)?));
        config.transport_config(self.transport());
        let to = Role::Receiver.plain_address(0, PORT);
        let connection = endpoint.connect_with(config, to, NAME).map_err(text)?.await.map_err(text)?;
        for plane in 1..self.planes {
            let from = Role::Sender.plain_address(plane, 0).ip();
            let tuple = FourTuple::new(Role::Receiver.plain_address(plane, PORT), Some(from));
            loop {
                match connection.open_path(tuple, PathStatus::Available).await {
                    Ok(_) => break,
                    Err(PathError::RemoteCidsExhausted) => tokio::time::sleep(AGAIN).await,
                    Err(error) => return Err(format!("the path on plane {plane}: {error}")),
                }
            }
        }
        Ok(connection)
    }

    /// Writes `memory` again and again, or once.
    pub(crate) fn send(&self, meter: &Meter, memory: &[u8], once: bool) -> Result<(), String> {
        let work = async {
            // From the wildcard, since a path names its own address.
            let socket = UdpSocket::bind(wildcard(Role::Sender.plain_address(0, 0), 0)).map_err(text)?;
            let endpoint = self.endpoint(None, socket)?;
            let connection = self.connect(&endpoint).await?;
            let mut stream = connection.open_uni().await.map_err(text)?;
            loop {
                stream.write_all(memory).await.map_err(text)?;
                if once {
                    stream.finish().map_err(text)?;
                    // The receiver closes when it has everything.
                    connection.closed().await;
                    return Ok(());
                }
            }
        };
        run(meter, work).map(drop)
    }

    /// Reads into `size` bytes of memory, again and again and in order; or, if they are sent `once`, as bytes arrive and
    /// until all are there. Returns the memory, and whether it is complete. `each` gets the bytes that arrived on each plane, at intervals.
    pub(crate) fn receive(
        &self,
        meter: &Meter,
        size: usize,
        once: bool,
        every: Duration,
        mut each: impl FnMut(Instant, &[u64]),
    ) -> Result<(Vec<u8>, bool), String> {
        let tls = self.identity.of_receiver()?;
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(text)?));
        config.transport_config(self.transport());
        let work = async {
            let at = wildcard(Role::Receiver.plain_address(0, PORT), PORT);
            let endpoint = self.endpoint(Some(config), UdpSocket::bind(at).map_err(text)?)?;
            let incoming = endpoint.accept().await.ok_or("the endpoint closed")?;
            let connection = incoming.await.map_err(text)?;
            let stream = connection.accept_uni().await.map_err(text)?;
            let mut stream = if once { Stream::AsItArrives(stream.into_unordered()) } else { Stream::InOrder(stream) };
            let mut place = vec![0; size];
            let (mut total, mut shares) = (0, Shares::default());
            let mut clock = tokio::time::interval(every);
            clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while !(once && total == size as u64) {
                tokio::select! {
                    biased;
                    _ = clock.tick() => {
                        shares.count(total, on_the_wire(&connection));
                        meter.set(&shares.payload);
                        each(Instant::now(), &shares.payload);
                    }
                    bytes = stream.read(&mut place, total) => match bytes? {
                        Some(bytes) => total += bytes as u64,
                        None => break,
                    },
                }
            }
            Ok((place, total == size as u64))
        };
        Ok(run(meter, work)?.unwrap_or_default())
    }

    /// Goodput per plane, in Gb/s.
    pub(crate) fn goodput(&self, seconds: f64) -> Result<Vec<f64>, String> {
        let message = vec![0x5a; MESSAGE];
        let sender = |meter: &Meter| self.send(meter, &message, false);
        let receiver = |meter: &Meter| self.receive(meter, MESSAGE, false, TELL, |_, _| {}).map(drop);
        let planes = crate::goodput::goodput(seconds, sender, receiver)?;
        Ok(planes[..self.planes].to_vec())
    }
}

/// The unspecified address of the same family.
fn wildcard(like: SocketAddr, port: u16) -> SocketAddr {
    let any = if like.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
    SocketAddr::new(any, port)
}

/// Bytes of datagrams that have arrived on each plane's path.
fn on_the_wire(connection: &Connection) -> [u64; PLANES_MAX] {
    // Paths are opened one after another, so a plane's number is that of its path.
    let stats = |plane: usize| connection.path_stats(PathId::from(plane as u32));
    std::array::from_fn(|plane| stats(plane).map_or(0, |stats| stats.udp_rx.bytes))
}

/// A stream of the receiver.
enum Stream {
    InOrder(RecvStream),
    /// As bytes arrive, whatever is still missing before them.
    AsItArrives(UnorderedRecvStream),
}

impl Stream {
    /// Reads some bytes to their place in a ring; `at`: how many have been read in order. `None`: the stream has ended.
    async fn read(&mut self, place: &mut [u8], at: u64) -> Result<Option<usize>, String> {
        let size = place.len();
        match self {
            Stream::InOrder(stream) => stream.read(&mut place[at as usize % size..]).await.map_err(text),
            Stream::AsItArrives(stream) => {
                let Some(chunk) = stream.read_chunk(size).await.map_err(text)? else { return Ok(None) };
                let (from, bytes) = (chunk.offset as usize, chunk.bytes.len());
                let to = place.get_mut(from..from + bytes).ok_or("more bytes than were sent")?;
                to.copy_from_slice(&chunk.bytes);
                Ok(Some(bytes))
            }
        }
    }
}

/// Divides the payload among planes, as their datagrams.
#[derive(Default)]
struct Shares {
    payload: [u64; PLANES_MAX],
    /// The bytes of each plane's datagrams when payload was counted last.
    wire: [u64; PLANES_MAX],
}

impl Shares {
    /// Counts payload up to `total` on the planes on which datagrams have arrived since payload was counted last.
    /// `wire`: the bytes of all datagrams of each plane.
    fn count(&mut self, total: u64, wire: [u64; PLANES_MAX]) {
        let new = total - self.payload.iter().sum::<u64>();
        let arrived: [u64; PLANES_MAX] = std::array::from_fn(|plane| wire[plane].saturating_sub(self.wire[plane]));
        let (sum, mut left) = (arrived.iter().sum::<u64>(), new);
        if new == 0 || sum == 0 {
            return;
        }
        for (payload, arrived) in self.payload.iter_mut().zip(arrived) {
            let share = left.min((new as f64 * arrived as f64 / sum as f64) as u64);
            (*payload, left) = (*payload + share, left - share);
        }
        // Less than a byte per plane is left over by rounding; the first plane with data gets it.
        if let Some(first) = arrived.iter().position(|&arrived| arrived > 0) {
            self.payload[first] += left;
        }
        self.wire = wire;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_divided_as_the_datagrams_of_each_plane() {
        let mut shares = Shares::default();
        let mut count = |total, first, second| {
            let mut wire = [0; PLANES_MAX];
            (wire[0], wire[1]) = (first, second);
            shares.count(total, wire);
            [shares.payload[0], shares.payload[1]]
        };
        assert_eq!(count(100, 300, 100), [75, 25]);
        // A plane that has become silent gets nothing more, and no byte is lost by rounding.
        assert_eq!(count(201, 633, 100), [176, 25]);
        assert_eq!(count(302, 640, 106), [231, 71]);
        // Datagrams whose payload is not complete count with the next payload.
        assert_eq!(count(302, 640, 506), [231, 71]);
        assert_eq!(count(402, 740, 506), [251, 151]);
    }
}
