//! The planes of a connection: the peer's address on each, and whether packets may take it.

use super::phase::Timeouts;
use super::roaming::Candidate;
use crate::config::Config;
use crate::plane::Plane;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use strandway_proto::Span;

/// The most measured round trips that wait to be taken; ours. Newer ones are dropped.
const RTTS_MAX: usize = 1_024;
/// Round trips that stay for those who watch: ours, enough for a 99th percentile to mean the worst but one or two.
const RECENT_MAX: usize = 256;

/// The state of one plane for this connection; `up` and `routed` are copied from the peer monitor.
pub(super) struct PlaneState {
    /// The peer's address on this plane, once it has answered from there.
    pub(super) peer: Option<SocketAddrV6>,
    /// An address that may be the peer's new one.
    pub(super) candidate: Option<Candidate>,
    pub(super) up: bool,
    /// Is our own port up? The kernel knows.
    pub(super) port: bool,
    /// Has the kernel a route to the peer, as far as we know?
    pub(super) routed: bool,
}

impl PlaneState {
    fn new(peer: Option<SocketAddrV6>, port: bool) -> PlaneState {
        PlaneState { peer, candidate: None, up: true, port, routed: true }
    }

    /// May packets take this plane? Also an engine that keeps a state of every path obeys the monitor: it would find
    /// the dead paths of a plane one by one, and pings try several at once.
    pub(super) const fn is_used(&self) -> bool {
        self.up && self.is_connected()
    }

    /// Can datagrams leave this host?
    pub(super) const fn is_connected(&self) -> bool {
        self.port && self.routed
    }
}

/// The paths of a connection.
pub(super) struct Paths {
    pub(super) planes: Vec<PlaneState>,
    /// The number of its peer monitor, and whether this connection counts there as active.
    pub(super) monitor: u32,
    pub(super) counted: bool,
    /// The silent planes, one bit each, as the engine knows them.
    silent: u32,
    /// Changes of paths are told to the application.
    pub(super) tells: bool,
    pub(super) timeouts: Timeouts,
    /// Round trips that pings measured and that were not taken.
    rtts: Vec<Span>,
    /// The last round trips of pings with their planes, at most [`RECENT_MAX`], for those who watch.
    recent: VecDeque<(u8, Span)>,
}

impl Paths {
    /// Planes to these addresses of the peer. `ports`: which of our own ports are up.
    pub(super) fn new(config: &Config, peers: &[Option<SocketAddrV6>], ports: &[bool], monitor: u32) -> Paths {
        let plane = |(i, &peer)| PlaneState::new(peer, ports.get(i).is_none_or(|&up| up));
        Paths {
            planes: peers.iter().enumerate().map(plane).collect(),
            monitor,
            counted: false,
            silent: 0,
            tells: config.path_reports.events,
            timeouts: Timeouts {
                plane: crate::clock::span(config.timeouts.plane),
                peer: crate::clock::span(config.timeouts.peer),
            },
            rtts: Vec::new(),
            recent: VecDeque::new(),
        }
    }

    /// Planes that take a packet now, one bit each.
    pub(super) fn free(&self, planes: &[Plane]) -> u32 {
        let open = |only_up: bool| {
            let each = self.planes.iter().zip(planes).enumerate();
            each.filter(|(_, (side, plane))| side.peer.is_some() && (side.is_used() || !only_up) && plane.is_free())
                .fold(0, |mask, (i, _)| mask | 1 << i)
        };
        // If every plane is silent, packets may take any of them.
        open(self.up().any(|up| up))
    }

    /// The peer's address on a plane.
    pub(super) fn peer(&self, plane: usize) -> Option<SocketAddrV6> {
        self.planes.get(plane).and_then(|side| side.peer)
    }

    /// The peer's address on each plane.
    pub(super) fn peers(&self) -> Vec<Option<SocketAddrV6>> {
        self.planes.iter().map(|side| side.peer).collect()
    }

    /// Is each plane in use at present?
    pub(super) fn up(&self) -> impl Iterator<Item = bool> {
        self.planes.iter().map(|side| side.is_used() && side.peer.is_some())
    }

    /// The silent planes, one bit each, if they are others than at the last call.
    pub(super) fn take_silent(&mut self) -> Option<u32> {
        let silent = self.planes.iter().enumerate().fold(0, |mask, (i, side)| mask | u32::from(!side.up) << i);
        (std::mem::replace(&mut self.silent, silent) != silent).then_some(silent)
    }

    /// A ping measured this round trip.
    pub(super) fn note_rtt(&mut self, plane: usize, rtt: Span) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((plane as u8, rtt));
        if self.rtts.len() < RTTS_MAX {
            self.rtts.push(rtt);
        }
    }

    /// The round trips that pings measured since the last call.
    pub(super) fn take_rtts(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.rtts)
    }

    /// The last round trips of pings, with their planes. They stay.
    pub(super) fn recent_rtts(&self) -> impl Iterator<Item = (u8, Span)> + '_ {
        self.recent.iter().copied()
    }
}
