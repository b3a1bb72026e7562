//! The configuration of a node.

use crate::address::is_ipv4;
use crate::distance::Distance;
use crate::error::Error;
use crate::frame::{self, DESCRIPTOR_MAX, HEADER};
use crate::layout::{Layout, Protection};
use crate::limits::{Limits, Timeouts};
use crate::routes::Routes;
use crate::secret::Secret;
use std::net::SocketAddrV6;
use std::path::PathBuf;
use std::time::Duration;
use strandway_fabric::datagram::{CONTROL_DSCP, PLANES_MAX};
use strandway_fabric::kernel::Without;
use strandway_fabric::usid::Element;
use strandway_proto::profile::WireFormat;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::{Bytes, Environment, HostTraits, Profile, Rate, Span};
use strandway_wire::ocp;

/// A message of at most this number of bytes is urgent, unless its connection has a longer one under way. Ours: it fits
/// one packet at an MTU of 1,500.
pub(crate) const URGENT_MAX: usize = 1_024;

/// How a node waits while nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Asks the sockets again and again: lowest latency, a whole core.
    Spin,
    /// Sleeps at once: uses no core, but adds tens of microseconds to each round trip.
    Sleep,
    /// Spins for a while, then sleeps. It spins for at most this long. Each time that nothing came, the time halves,
    /// down to a sixteenth; each time that something came, it doubles. So nodes that share cores leave them to each
    /// other.
    Adaptive(Duration),
}

/// IPv6 and UDP headers. IPv4's headers are 20 bytes shorter. IPv6's count for both families, so that hosts with the
/// same MTU have the same payload.
pub(crate) const IP_UDP: u32 = 48;
/// An IPv6 header.
const IPV6: u32 = 40;
/// SETH and CC_STATE.
const SACK: u32 = 36;
/// Payload bytes of a full packet: the least and the most.
const PAYLOAD_MIN: u32 = 64;
const PAYLOAD_MAX: u32 = 60_000;
/// Bytes of UET's headers in a data packet: request and standard header.
const UET: u32 = 12 + 44;
/// Bytes of a seal of UET: security header and tag.
const UET_SEAL: u32 = 16 + 16;
/// The largest range of PSNs in MRC's layout: offsets have 16 bits with a sign, and ranges come in units of 128.
const OFFSET_MAX: u32 = 255 * 128;
/// A host may leave its sockets unread for this long without a loss: ours, half a slice of the scheduler.
const STALL: Span = Span::from_ms(2);
/// The longest time that a packet may be on its way: ours, far beyond any queue of a data centre and any stall of a
/// host.
const PACKET_LIFE: Span = Span::from_ms(1000);

/// The settings of a [`crate::Node`]. [`Config::new`] gives defaults; fields may be changed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The key that all nodes share.
    pub secret: Secret,
    /// The local address of each plane, in the same order on all hosts; at most [`PLANES_MAX`]. Port 0 takes any free
    /// one. A plane is of one family: with the mapped form of an IPv4 address ([`crate::address::kept`]) it has IPv4
    /// sockets.
    pub planes: Vec<SocketAddrV6>,
    /// The protocol; both sides must have the same. The node adapts it to sockets (see [`Config::wire_profile`]).
    pub profile: Profile,
    /// Payload bytes of a full packet. The default, 1,344, fits an MTU of 1,500 with every profile and protection; on
    /// loopback and with jumbo frames take 4,096. [`Config::mtu`] takes the largest payload that fits, and
    /// [`crate::Node::find_payloads`] finds one for each connection.
    pub payload: u32,
    /// Protection of datagrams against reading, changes and forgery. Default: encrypted and authenticated.
    pub protection: Protection,
    /// The bytes of datagrams that move data. Default: ours.
    pub layout: Layout,
    /// Line rate of all planes together; `rate` times `base_rtt` determines how many bytes may be under way. Default 40
    /// Gb/s.
    pub rate: Rate,
    /// Round trip of a packet and its acknowledgement without queueing; it includes the time that the other side takes
    /// to wake up. Default 100 us.
    pub base_rtt: Span,
    /// Peers that are nearer, or whose way is slower. Default: none.
    pub distances: Vec<Distance>,
    /// Payload bytes that take one path in a row before the next path is chosen. One system call sends to one address
    /// only, and costs about the same for one packet as for many. Default 16 KiB, rounded up to a whole packet;
    /// `docs/performance.md` shows what bursts cost in queues.
    pub burst: u32,
    /// The shortest retransmission timeout. A host that sleeps, or whose cores are busy, answers late, and a shorter
    /// timeout would take that for losses. Default 20 ms: a few slices of the scheduler.
    pub retransmit_min: Span,
    /// A missing packet counts as lost only when a packet that was sent at least this much later has arrived over
    /// another path. Kernels delay packets by different times on different paths. With one path a `base_rtt` is enough.
    /// Default 2 ms; never less than two bursts take on a plane.
    pub late_min: Span,
    /// How to wait while nothing arrives. Default: [`Waiting::Adaptive`], 50 us.
    pub waiting: Waiting,
    /// The receive buffer that each plane requests from the kernel, in bytes. Default 4 MiB; the kernel may give less.
    /// It limits the bytes that leave at once, and the rate: half of it must hold the bytes that arrive in a
    /// `base_rtt`, or in 2 ms if that is shorter. Otherwise a host that leaves its sockets unread for that time would
    /// lose packets. The size of send buffers follows from `rate` and `base_rtt`.
    pub socket_buffer: usize,
    /// The meaning of paths on this network. Default: one path per plane.
    pub routes: Routes,
    /// The parts of an SRv6 fabric over which no connection may send. Default: none.
    pub denied: Denied,
    /// Observations of paths that cost work. Default: none.
    pub path_reports: PathReports,
    /// The network interface of each plane, in the order of `planes`; the kernel reports when its port goes down.
    /// Default: empty; then each plane's interface is the one that has its address.
    pub devices: Vec<String>,
    /// DSCP of acknowledgements and all other small and urgent datagrams. Default 48 (CS6), which a fabric with two
    /// classes sends before data. Data has DSCP 0.
    pub control_dscp: u8,
    /// Does the node take the ICMP errors that its datagrams meet ([`crate::Node::take_refusal`])? Default no: a
    /// program that does not ask for them pays nothing for them.
    pub hear_refusals: bool,
    /// Do switches on the way trim packets for which they have no room, instead of dropping them? If so, a datagram of
    /// data that arrives short is requested again, if it has the DSCP of control (or the next higher one, if the last
    /// switch trimmed it). Losses are then found by timeouts and NACKs only (profile `uec`). Hosts need not have the
    /// same value: a receiver that does not expect trimmed datagrams counts them as lost, and every sender understands
    /// a NACK. Default no.
    pub trimming: bool,
    /// Does this node accept connections that others begin? Default yes.
    pub accept: bool,
    /// Bounds of what peers and the application may have under way.
    pub limits: Limits,
    /// How long to wait for peers and planes.
    pub timeouts: Timeouts,
    /// Features of the kernel that the node does without. Default: those of the variable `STRANDWAY_WITHOUT`, none.
    pub without: Without,
}

/// The parts of an SRv6 fabric over which no connection may send: MRC's DENIED. Every connection denies its paths across
/// them when it begins. Only with [`Routes::Srv6`] and profile `mrc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// The parts.
    pub parts: Vec<Element>,
    /// A file with the parts, one per line, such as `p0:t1-3`. The node reads it when it is bound, and again when it
    /// changes: it looks four times a second. While the file exists, it takes the place of `parts`; once it is removed,
    /// nothing is denied. A file that becomes wrong changes nothing.
    pub file: Option<PathBuf>,
}

/// Observations of paths that a node makes only if they are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathReports {
    /// Does the node tell of the changes of MRC's paths, as [`Completion::Path`](crate::Completion::Path)?
    pub events: bool,
    /// Does each connection count its data packets by path ([`crate::NodeObserver::path_counts`])? It costs a search in a
    /// short list per packet. A node that serves its figures ([`crate::watch`]) counts in any case.
    pub counts: bool,
}

impl Config {
    /// The defaults: no plane yet, profile `uec`.
    ///
    /// # Errors
    /// If the key is shorter than 16 bytes, or `STRANDWAY_WITHOUT` has an unknown name.
    pub fn new(secret: &[u8]) -> Result<Config, Error> {
        Ok(Config {
            secret: Secret::new(secret)?,
            planes: Vec::new(),
            profile: Profile::preset("uec").expect("a preset"),
            payload: 1_344,
            protection: Protection::default(),
            layout: Layout::default(),
            rate: Rate::from_gbps(40),
            base_rtt: Span::from_us(100),
            distances: Vec::new(),
            burst: 16_384,
            retransmit_min: Span::from_ms(20),
            late_min: Span::from_ms(2),
            waiting: Waiting::Adaptive(Duration::from_micros(50)),
            socket_buffer: 4 << 20,
            routes: Routes::default(),
            denied: Denied::default(),
            path_reports: PathReports::default(),
            devices: Vec::new(),
            control_dscp: CONTROL_DSCP,
            hear_refusals: false,
            trimming: false,
            accept: true,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            without: Without::from_environment().map_err(|unknown| Error::Config(unknown.to_string()))?,
        })
    }

    /// Adds a plane.
    #[must_use]
    pub fn plane(mut self, address: SocketAddrV6) -> Config {
        self.planes.push(address);
        self
    }

    /// Takes the profile of that name: a preset, or a preset with other policies, such as `sdr_auto/longhaul`.
    ///
    /// # Errors
    /// If there is no such profile; the message lists all names.
    pub fn profile(mut self, name: &str) -> Result<Config, Error> {
        self.profile = Profile::named(name).map_err(|unknown| Error::Config(unknown.to_string()))?;
        Ok(self)
    }

    /// Takes the largest payload whose packets, IPv6 header included, fit an MTU with the present profile and
    /// protection. Both sides must take the same.
    ///
    /// # Errors
    /// If not even a payload of 64 bytes fits.
    pub fn mtu(mut self, mtu: u32) -> Result<Config, Error> {
        self.payload = self.payload_within(mtu);
        if self.payload < PAYLOAD_MIN {
            let overhead = self.overhead();
            let least = PAYLOAD_MIN + overhead;
            return Err(Error::Config(format!(
                "an MTU of {mtu} bytes: take {least} or more, since headers need {overhead}"
            )));
        }
        Ok(self)
    }

    /// The largest payload whose packets fit an MTU; less than [`PAYLOAD_MIN`] if none fits.
    pub(crate) fn payload_within(&self, mtu: u32) -> u32 {
        let payload = mtu.saturating_sub(self.overhead()).min(PAYLOAD_MAX);
        // In layouts of others only the last packet of a message has pad bytes.
        if self.layout == Layout::Frame { payload } else { payload - payload % 4 }
    }

    /// Can a connection have this payload?
    pub(crate) fn takes_payload(&self, payload: u32) -> bool {
        let whole = self.layout == Layout::Frame || payload.is_multiple_of(4);
        whole && (PAYLOAD_MIN..=PAYLOAD_MAX).contains(&payload)
    }

    /// Bytes of a full packet beyond its payload, IPv6 and UDP headers included.
    pub fn overhead(&self) -> u32 {
        match self.layout {
            Layout::Frame => {}
            Layout::Mrc { .. } => return IPV6 + ocp::WRITE_MAX as u32,
            Layout::Uet => return IP_UDP + UET + if self.protection == Protection::None { 0 } else { UET_SEAL },
        }
        let headers = match self.profile.reliability {
            // Parts have no descriptor: their transport header says where they belong.
            ReliabilityConfig::Partial(_) => frame::part_headers(self.profile.wire),
            _ => frame::data_headers(self.profile.wire) + DESCRIPTOR_MAX,
        };
        IP_UDP + (headers + self.protection.tag_bytes()) as u32
    }

    /// Bytes of a full datagram with this payload, IPv6 and UDP headers not included.
    pub(crate) fn datagram_of(&self, payload: u32) -> usize {
        (payload + self.overhead() - IP_UDP) as usize
    }

    /// The profile as it runs on sockets: packet sizes are the real ones, and each policy adapts itself to a host of
    /// these traits ([`Profile::adapt_to`]). All else is as in the simulator.
    pub fn wire_profile(&self) -> Profile {
        self.profile_over(self.rate, self.base_rtt)
    }

    /// The profile as it runs on sockets, on a way with this rate and round trip.
    pub(crate) fn profile_over(&self, rate: Rate, base_rtt: Span) -> Profile {
        let mut profile = self.profile.clone();
        profile.transport.mtu = self.payload;
        profile.transport.header = self.overhead();
        profile.transport.control = match self.layout {
            Layout::Frame | Layout::Uet => IP_UDP + (HEADER + self.protection.tag_bytes()) as u32 + 44,
            Layout::Mrc { .. } => IPV6 + (ocp::FIXED + ocp::ICRC) as u32 + SACK,
        };
        profile.adapt_to(&HostTraits {
            rate,
            ports: self.planes.len() as u8,
            base_rtt,
            timer_slack: self.retransmit_min,
            late_min: self.late_min.max(self.burst_time(rate)),
            batch: Bytes(self.burst.into()),
            catch_up: Bytes(self.socket_share(2 * self.socket_buffer)),
            queue: self.queue(),
            trimming: self.trimming,
        });
        profile
    }

    /// The time in which a plane of this rate sends two bursts. A burst takes one path, and a packet sent after it by
    /// another plane may arrive earlier by that time. Two bursts, since the plane may be busy with one already.
    fn burst_time(&self, rate: Rate) -> Span {
        let plane = rate.scaled(1.0 / self.planes.len().max(1) as f64);
        let packets = u64::from(self.burst.div_ceil(self.payload.max(1)));
        plane.time_for(Bytes(2 * packets * u64::from(self.payload + self.overhead())))
    }

    /// Bytes that may be on their way to the receiving sockets at once. Sockets count a datagram about twice, and a
    /// window may grow to one and a half bandwidth-delay products, hence a quarter. `buffer`: bytes that one socket
    /// holds.
    fn socket_share(&self, buffer: usize) -> u64 {
        (buffer as u64 * self.planes.len() as u64 / 4).max(4 * u64::from(self.payload + self.overhead()))
    }

    /// The environment of engines on the usual way.
    #[cfg(test)]
    pub(crate) fn environment(&self, profile: &Profile, buffer: usize) -> Environment {
        self.environment_over(self.rate, self.base_rtt, profile, buffer)
    }

    /// The environment of engines on a way with this rate and round trip. `buffer`: bytes that a receiving socket
    /// holds.
    pub(crate) fn environment_over(&self, rate: Rate, base_rtt: Span, profile: &Profile, buffer: usize) -> Environment {
        // On a short path all bytes under way may sit in the receiving socket, if its host does not read it.
        let held = rate.bytes_in(base_rtt.min(STALL)).0.max(1);
        let most = self.socket_share(buffer);
        let rate = if held > most { rate.scaled(most as f64 / held as f64) } else { rate };
        Environment {
            rate,
            ports: self.planes.len() as u8,
            base_rtt,
            packet: profile.packet_bytes(),
            trimming: self.trimming,
            uplinks: self.routes.uplinks(),
            paths_in_order: self.routes.distinct(),
            queue: self.queue(),
            packet_life: PACKET_LIFE,
        }
    }

    /// Bytes that a connection may send at once; `None` if a receiving socket holds all bytes that may be under way.
    pub(crate) fn burst_limit(&self, environment: &Environment, buffer: usize) -> Option<u64> {
        let most = self.socket_share(buffer);
        (environment.bdp().0 > most).then_some(most)
    }

    /// Bytes that may wait before a packet: those of our own socket, whose buffer the kernel makes twice the requested
    /// size.
    fn queue(&self) -> Bytes {
        Bytes(2 * self.send_buffer() as u64)
    }

    /// Send buffer of a plane: the bytes that its port sends in a round trip, so that few bytes wait in a port that
    /// dies, and planes stay in step. No less than 64 KiB, which keep a port busy while the node sleeps, and no more
    /// than a receive buffer.
    pub(crate) fn send_buffer(&self) -> usize {
        let share = self.rate.bytes_in(self.base_rtt).0 / self.planes.len().max(1) as u64;
        (share as usize).clamp(65_536, self.socket_buffer.max(65_536))
    }

    /// Checks everything that can be checked without a socket.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Config(what));
        if self.planes.is_empty() || self.planes.len() > PLANES_MAX {
            return wrong(format!("{} planes: give 1 to {PLANES_MAX} local addresses", self.planes.len()));
        }
        if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&self.payload) {
            return wrong(format!("a payload of {} bytes: take {PAYLOAD_MIN} to {PAYLOAD_MAX}", self.payload));
        }
        self.limits.check()?;
        self.timeouts.check()?;
        if self.rate.0 == 0 || self.base_rtt == Span::ZERO {
            return wrong("rate and base_rtt must not be zero: give those of the network".into());
        }
        if self.distances.iter().any(|d: &Distance| d.rate.0 == 0 || d.base_rtt == Span::ZERO) {
            return wrong("rates and round trips of distances must not be zero: give those of the network".into());
        }
        if let Err(error) = self.profile.reliability.code() {
            return wrong(format!("the profile's k and m: {error}"));
        }
        if self.profile.congestion.needs_telemetry() {
            let (profile, control) = (&self.profile.name, self.profile.congestion.name());
            let what = format!("`{control}` needs records of switches, which only the simulator has");
            return wrong(format!(
                "profile {profile}: {what}: take another congestion control, such as dcqcn or swift"
            ));
        }
        if self.profile.congestion.credit().is_some() {
            let profile = &self.profile.name;
            let what = "a receiver's credit is shared among all its senders, and a node has an engine per connection";
            return wrong(format!(
                "profile {profile}: {what}: take another congestion control, such as nscc without credit"
            ));
        }
        if self.control_dscp > 63 {
            return wrong(format!("control_dscp is {}: take 0 to 63", self.control_dscp));
        }
        if self.trimming && !(1..=62).contains(&self.control_dscp) {
            let what = "with trimming take 1 to 62: data has 0, and packets that the last switch trims have the next higher one";
            return wrong(format!("control_dscp is {}: {what}", self.control_dscp));
        }
        if !self.devices.is_empty() && self.devices.len() != self.planes.len() {
            let (devices, planes) = (self.devices.len(), self.planes.len());
            return wrong(format!("{devices} devices for {planes} planes: name one for each plane, in order, or none"));
        }
        self.routes.check(&self.planes)?;
        self.check_layout()?;
        Ok(())
    }

    /// Can data travel in this layout?
    fn check_layout(&self) -> Result<(), Error> {
        let port = match self.layout {
            Layout::Frame => return Ok(()),
            Layout::Mrc { port } => port,
            Layout::Uet => {
                let what = "it has no connections of ours, and so no reads of groups, copies or collectives: `strandway \
                            perf` and `strandway node` take it, programs take strandway_udp::uet::Node; others take frame";
                return Err(Error::Config(format!("layout uet: {what}")));
            }
        };
        let wrong = |what: &str| Err(Error::Config(format!("layout mrc: {what}")));
        if self.protection != Protection::None {
            return wrong("MRC's datagrams have no room for a seal: take protection none, or our own layout");
        }
        if self.profile.wire != WireFormat::Mrc {
            return wrong(&format!("profile {} is another protocol: take mrc", self.profile.name));
        }
        if !self.payload.is_multiple_of(4) {
            let (less, payload) = (self.payload / 4 * 4, self.payload);
            return wrong(&format!("a payload of {payload} bytes is no multiple of four: take {less}"));
        }
        if let Routes::SourcePorts(_) = self.routes {
            return wrong("the UDP source port is the entropy value: take one address per plane, or SRv6");
        }
        if self.profile.reliability.range().is_none_or(|range| range > OFFSET_MAX) {
            return wrong(&format!("acknowledgements reach {OFFSET_MAX} PSNs: take a smaller window_psn"));
        }
        if self.planes.iter().any(|plane| is_ipv4(*plane.ip())) {
            return wrong("its datagrams are IPv6 in IPv6: give IPv6 addresses, or take our own layout");
        }
        if port == 0 || self.planes.iter().any(|plane| plane.ip().is_unspecified()) {
            return wrong("give a UDP port above 0, and an address for each plane: they are in the packets");
        }
        Ok(())
    }
}
