//! The facts of a run that a slice reads and never changes.

use super::fault::FaultEvent;
use super::{Cut, Sources};
use std::ops::Range;
use strandway_fabric::plan::Plan;
use strandway_proto::HostId;

/// The facts of a run, as one slice needs them.
pub(super) struct RunConfig<'a> {
    pub(super) plan: &'a Plan,
    pub(super) cut: &'a Cut,
    /// The slice's number.
    pub(super) index: usize,
    pub(super) sources: Sources,
    /// Fault events of ports, in order of time.
    pub(super) fault_events: &'a [(u64, FaultEvent)],
    /// Stops are first the ports of switches, from `first_port` on (or, if ports are eager, whole switches, each in its
    /// own group), and then the hosts, from `first_host_stop` on.
    pub(super) first_port: u32,
    pub(super) first_host_stop: u32,
    /// The groups of stops to visit in each phase of a window. Slices exchange packets between phases.
    pub(super) phases: Vec<Vec<Range<usize>>>,
    /// The hosts of this slice, ascending.
    pub(super) hosts: &'a [u32],
    /// True if switch ports are eager, routing sometimes knows dead links, packets go to groups, or switches run
    /// programs.
    pub(super) special: bool,
    /// Ports of switches are eager.
    pub(super) eager: bool,
    /// PFC or CBFC: count the bytes that come in by each port.
    pub(super) accounting: bool,
    /// CBFC: links have credit, up to `buffer`, and a port waits that has less than for `packet`, the largest packet.
    pub(super) link_credit: Option<LinkCredit>,
    /// The profile's data and retransmissions that switches must not trim.
    pub(super) no_trim: [bool; 2],
    /// LLR: links repeat packets that they lose.
    pub(super) llr: bool,
    /// Control packets have a class of their own.
    pub(super) priority: bool,
    /// Time series are wanted.
    pub(super) sampling: bool,
    /// Eager ports: each packet that leaves is sampled, cut through, or seen by a program.
    pub(super) slow_departures: bool,
    /// A profile of the run reads the records of switches.
    pub(super) telemetry: bool,
    /// The rate, in bits per second, of the links from which switches cut through; 0 if they store and forward.
    pub(super) cut_rate: u64,
    pub(super) planes: usize,
}

/// The credit of links, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkCredit {
    pub(super) buffer: u64,
    pub(super) packet: u64,
}

impl RunConfig<'_> {
    /// The number in the fabric of the slice's `h`th host.
    pub(super) fn host(&self, h: usize) -> HostId {
        HostId(self.hosts[h])
    }

    /// The stop of a host of this slice.
    #[inline]
    pub(super) fn host_stop(&self, host: u32) -> u32 {
        self.first_host_stop + self.cut.place_of(host)
    }
}
