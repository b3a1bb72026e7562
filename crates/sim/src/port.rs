//! A port: the queue that feeds one directed link.
//!
//! Ports are *lazy*: one visit per window of time ([`crate::calendar`]) processes all arrivals and departures of a port
//! in that window, in order of time. A packet that leaves a port cannot arrive, in the same window, at a port that was
//! already visited. So every packet gets the same times and the same order as with one event for each arrival and
//! departure, but without these events.
//!
//! If a whole switch must know each departure at once (PFC, shared buffers), ports are *eager*: the switch processes
//! the arrivals and the ends of transmissions of all its ports in order of time.

use crate::backlog::NO_BACKLOG;
use strandway_fabric::judgement::Thresholds;
use strandway_fabric::measure::LinkCounters;
use strandway_fabric::plan::{PfcSettings, PortSettings, SharedSettings};

use strandway_proto::rng::Random;
use strandway_proto::units::{Bytes, Rate, Span, Time};

pub(crate) use strandway_fabric::judgement::{CONTROL, DATA};

/// Facts about a port that are rarely true.
pub(crate) mod flag {
    /// PFC has paused the data class, or CBFC has no credit for it.
    pub(crate) const PAUSED: u8 = 1;
    /// Its link has faults at some time.
    pub(crate) const FAULTY: u8 = 2;
    /// Its departures are recorded: in a capture, or in the telemetry of the packets.
    pub(crate) const OBSERVED: u8 = 4;
    /// Its link leads to another slice.
    pub(crate) const REMOTE: u8 = 8;
    /// Down, and its own NIC or switch knows.
    pub(crate) const DOWN: u8 = 16;
    /// Eager: processed at every departure.
    pub(crate) const EAGER: u8 = 32;
    /// One class, whose departures are known on arrival.
    pub(crate) const FIFO: u8 = 64;
    /// Leads from a switch to a host.
    pub(crate) const LAST: u8 = 128;
    /// Flags that must be checked for a departing packet.
    pub(crate) const ON_DEPARTURE: u8 = FAULTY | OBSERVED | REMOTE;
}

/// A port. Its waiting packets are in a [`crate::backlog::Backlog`], which it has only while packets wait.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// End of the last transmission that is decided, in ps.
    pub(crate) busy_until: u64,
    /// The node to which it leads.
    pub(crate) to: u32,
    /// Number in the topology.
    pub(crate) link: u32,
    /// Picoseconds per byte, 0 if that is not a whole number.
    pub(crate) ps_per_byte: u32,
    /// The number of its backlog; [`NO_BACKLOG`] while no packet waits.
    pub(crate) backlog: u32,
    pub(crate) flags: u8,
    /// Index into the slice's [`Limits`].
    pub(crate) limits: u16,
    /// Packets marked here.
    pub(crate) marked: u32,
    pub(crate) random: Random,
    /// Packets and bytes that left.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The most bytes that waited in the data class.
    pub(crate) queue_max: u64,
}

/// The additional state of an eager port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    /// When the next check is due; `u64::MAX` if none is.
    pub(crate) look_at: u64,
    /// The end of the present transmission, its bytes (0 if there is none), and the ingress of its packet.
    pub(crate) until: u64,
    pub(crate) bytes: u32,
    pub(crate) ingress: u32,
    /// Data bytes in this switch that came in from this port's neighbour (PFC).
    pub(crate) ingress_bytes: u64,
    /// The part of them that came in above the threshold: these bytes are in the headroom, not in the shared buffer.
    pub(crate) ingress_headroom: u64,
    /// Have we paused that neighbour?
    pub(crate) ingress_paused: bool,
}

impl Service {
    pub(crate) const IDLE: Service = Service {
        look_at: u64::MAX,
        until: 0,
        bytes: 0,
        ingress: 0,
        ingress_bytes: 0,
        ingress_headroom: 0,
        ingress_paused: false,
    };
}

/// The fields of a port that normal packets do not use; only with faults, pauses or series.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ColdPort {
    /// The number of points of the time series to which it has contributed.
    pub(crate) sampled: u64,
    /// When its data class was last paused, and the total time of all earlier pauses, in ps.
    pub(crate) paused_since: u64,
    pub(crate) paused: u64,
    /// CBFC: bytes of data that the switch at the other end has not freed yet.
    pub(crate) credit_used: u64,
    /// Packets lost here to faults.
    pub(crate) lost: u32,
    /// When the last whole data packet left that was lost to a fault, in ps.
    pub(crate) lost_data_last: u64,
    /// Bytes that left while the link was down.
    pub(crate) bytes_down: u64,
}

const _: () = assert!(size_of::<Port>() == 64, "a port takes one cache line");

/// The packets for which a port had no room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refused {
    pub(crate) dropped: u32,
    pub(crate) trimmed: u32,
}

impl Port {
    /// An idle port.
    pub(crate) fn new(link: u32, to: u32, rate: Rate, random: Random) -> Port {
        Port {
            busy_until: 0,
            to,
            link,
            ps_per_byte: whole(rate),
            backlog: NO_BACKLOG,
            flags: 0,
            limits: 0,
            marked: 0,
            random,
            packets: 0,
            bytes: 0,
            queue_max: 0,
        }
    }

    /// The time to send `size` bytes, in ps.
    #[inline]
    pub(crate) fn transmission(&self, size: u16, limits: &Limits) -> u64 {
        if self.ps_per_byte != 0 {
            u64::from(self.ps_per_byte) * u64::from(size)
        } else {
            limits.rate.time_for(Bytes(u64::from(size))).0
        }
    }

    /// Sends a packet from `start` on. Returns the end of the transmission.
    #[inline]
    pub(crate) fn depart(&mut self, size: u16, start: u64, limits: &Limits) -> u64 {
        let end = start + self.transmission(size, limits);
        self.busy_until = end;
        self.packets += 1;
        self.bytes += u64::from(size);
        end
    }

    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.ps_per_byte = whole(rate);
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }

    /// Does no packet wait here?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.backlog == NO_BACKLOG
    }

    pub(crate) fn counters(&self, refused: Option<&Refused>, cold: Option<&ColdPort>) -> LinkCounters {
        let refused = refused.copied().unwrap_or_default();
        let cold = cold.copied().unwrap_or_default();
        LinkCounters {
            packets: self.packets,
            bytes: self.bytes,
            marked: self.marked,
            dropped: refused.dropped,
            trimmed: refused.trimmed,
            lost: cold.lost,
            queue_max: Bytes(self.queue_max),
            paused: Span(cold.paused),
            bytes_down: cold.bytes_down,
            lost_data_last: Time(cold.lost_data_last),
            last: Time(if self.packets > 0 { self.busy_until } else { 0 }),
        }
    }
}

fn whole(rate: Rate) -> u32 {
    rate.whole_ps_per_byte().and_then(|ps| u32::try_from(ps).ok()).unwrap_or(0)
}

/// The facts that many ports share: the present rate, the settings at that rate, and the link's length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Index into the topology's link groups.
    pub(crate) group: u16,
    /// The time from the end of a transmission until the packet is ready to leave the next node, in ps.
    pub(crate) delay: u64,
    pub(crate) rate: Rate,
    pub(crate) thresholds: Thresholds,
    pub(crate) pfc: Option<PfcSettings>,
    /// CBFC: the bytes of data that a neighbour may have in this port's switch.
    pub(crate) cbfc: Option<u64>,
    pub(crate) shared: Option<SharedSettings>,
}

impl Limits {
    /// The limits of a port at `fraction` of its nominal rate; `last_hop`: it leads to a host.
    pub(crate) fn new(
        settings: &PortSettings,
        (group, delay): (u16, Span),
        nominal: Rate,
        fraction: f64,
        last_hop: bool,
    ) -> Limits {
        Limits {
            group,
            delay: delay.0,
            rate: if fraction == 1.0 { nominal } else { nominal.scaled(fraction) },
            thresholds: Thresholds::new(settings, fraction, last_hop),
            pfc: settings.pfc,
            cbfc: settings.cbfc.map(|buffer| buffer.0),
            shared: settings.shared,
        }
    }
}
