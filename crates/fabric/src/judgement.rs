//! The judgement of a switch's port on a packet that joins it: queue, mark, trim or drop.
//!
//! It is a pure function of the bytes that wait and of the packet. The simulated port calls it. The port of network
//! namespaces is a program in the kernel, `port.bpf.c` in crate `namespaces`, which has the same function in C; a test
//! there asks both the same questions.

use crate::plan::PortSettings;

/// The class of control packets, an index of arrays by class. It is sent before data.
pub const CONTROL: usize = 0;
/// The class of data packets.
pub const DATA: usize = 1;

/// The thresholds of a port at its present rate, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Limit on the bytes that wait in the data class.
    pub data: u64,
    /// Limit on the bytes that wait in the control class.
    pub control: u64,
    /// Packets without room are cut to this many bytes; `None`: they are dropped.
    pub trim: Option<u16>,
    /// `None`: no packet is marked.
    pub marking: Option<Marking>,
}

/// Marking (ECN) by the length of the data queue. Below `low` no packet is marked, from `high` on every packet is; in
/// between the probability rises linearly from zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marking {
    /// Bytes up to which no packet is marked.
    pub low: u64,
    /// Bytes from which on every packet is marked.
    pub high: u64,
    /// Probability per byte above `low`.
    pub slope: f64,
    /// True: packets are marked when they leave the queue, by the bytes behind them. False: when they join it, their
    /// own bytes included.
    pub at_dequeue: bool,
}

/// A packet, as far as a port judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// [`CONTROL`] or [`DATA`].
    pub class: usize,
    /// Bytes on the wire.
    pub size: u16,
    /// It is a data packet that no switch has trimmed. Only these are marked and trimmed.
    pub is_whole_data: bool,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It joins the queue of its class.
    Queue {
        /// It is marked CE.
        marked: bool,
    },
    /// It has no room; its header joins the control class.
    Trim,
    /// It has no room, and cannot be trimmed.
    Drop,
}

impl Thresholds {
    /// The thresholds of a port at `fraction` of its nominal rate; `last_hop`: it leads to a host.
    pub fn new(settings: &PortSettings, fraction: f64, last_hop: bool) -> Thresholds {
        let scaled = |bytes: u64| (bytes as f64 * fraction) as u64;
        Thresholds {
            data: scaled(settings.data_queue.0),
            control: scaled(settings.control_queue.0),
            trim: settings.trim.map(|trim| trim.size),
            marking: settings.ecn.filter(|ecn| ecn.last_hop || !last_hop).map(|ecn| {
                let (low, high) = (scaled(ecn.low.0), scaled(ecn.high.0));
                let slope = if high > low { ecn.probability / (high - low) as f64 } else { 0.0 };
                Marking { low, high, slope, at_dequeue: ecn.at_dequeue }
            }),
        }
    }

    /// Judges a packet that joins a port where `waiting` bytes wait in each class. `chance` draws: true with the given
    /// probability. It is asked at most once, and only if the draw decides.
    #[inline(always)]
    pub fn judge(&self, waiting: &[u64; 2], packet: Candidate, chance: impl FnOnce(f64) -> bool) -> Verdict {
        let with = waiting[packet.class] + u64::from(packet.size);
        if with <= self.limit(packet.class) {
            Verdict::Queue { marked: packet.class == DATA && self.marks_joining(with, packet.is_whole_data, chance) }
        } else {
            self.refuse(waiting, packet)
        }
    }

    /// The judgement on a packet for which its class has no room.
    #[inline]
    pub fn refuse(&self, waiting: &[u64; 2], packet: Candidate) -> Verdict {
        let header = self.trim.filter(|_| packet.class == DATA && packet.is_whole_data);
        match header {
            Some(header) if waiting[CONTROL] + u64::from(header) <= self.control => Verdict::Trim,
            _ => Verdict::Drop,
        }
    }

    /// The limit on the bytes that wait in a class.
    #[inline]
    pub fn limit(&self, class: usize) -> u64 {
        if class == DATA { self.data } else { self.control }
    }

    /// Is a data packet marked that joins a queue, which then holds `with` bytes?
    #[inline(always)]
    pub fn marks_joining(&self, with: u64, is_whole_data: bool, chance: impl FnOnce(f64) -> bool) -> bool {
        self.marking.is_some_and(|m| !m.at_dequeue && is_whole_data && m.marks(with, chance))
    }

    /// Is a data packet marked that leaves a queue, behind which `left` bytes wait?
    #[inline(always)]
    pub fn marks_leaving(&self, left: u64, is_whole_data: bool, chance: impl FnOnce(f64) -> bool) -> bool {
        self.marking.is_some_and(|m| m.at_dequeue && is_whole_data && m.marks(left, chance))
    }
}

impl Marking {
    /// Is a packet marked when the queue has `queued` bytes?
    #[inline]
    pub fn marks(&self, queued: u64, chance: impl FnOnce(f64) -> bool) -> bool {
        queued >= self.high || (queued > self.low && chance(self.slope * (queued - self.low) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thresholds() -> impl Strategy<Value = Thresholds> {
        let marking = (0u64..500, 0u64..500, 0.0f64..0.01, any::<bool>());
        let marking =
            marking.prop_map(|(low, more, slope, at_dequeue)| Marking { low, high: low + more, slope, at_dequeue });
        (0u64..1000, 0u64..300, prop::option::of(1u16..100), prop::option::of(marking))
            .prop_map(|(data, control, trim, marking)| Thresholds { data, control, trim, marking })
    }

    proptest! {
        #[test]
        fn a_packet_is_queued_where_it_fits_trimmed_where_its_header_does_and_dropped_elsewhere(
            port in thresholds(),
            waiting in [0u64..300, 0u64..1000],
            class in 0usize..2,
            size in 1u16..300,
            is_whole_data: bool,
            lucky: bool,
        ) {
            let packet = Candidate { class, size, is_whole_data: is_whole_data && class == DATA };
            let verdict = port.judge(&waiting, packet, |_| lucky);
            let fits = waiting[class] + u64::from(size) <= [port.control, port.data][class];
            prop_assert_eq!(fits, matches!(verdict, Verdict::Queue { .. }));
            if verdict == Verdict::Trim {
                prop_assert!(packet.is_whole_data);
                prop_assert!(waiting[CONTROL] + u64::from(port.trim.unwrap_or(u16::MAX)) <= port.control);
            }
            if verdict == Verdict::Drop && packet.is_whole_data {
                let header = port.trim.map(|header| waiting[CONTROL] + u64::from(header));
                prop_assert!(header.is_none_or(|with| with > port.control));
            }
            if let Verdict::Queue { marked: true } = verdict {
                let marking = port.marking.expect("marks come from a marking");
                prop_assert!(packet.is_whole_data && !marking.at_dequeue);
                prop_assert!(waiting[DATA] + u64::from(size) > marking.low || marking.high <= marking.low);
            }
        }
    }

    #[test]
    fn the_probability_of_a_mark_rises_from_zero_to_the_one_asked_for() {
        let marking = Marking { low: 100, high: 300, slope: 0.5 / 200.0, at_dequeue: false };
        let mut asked = Vec::new();
        for queued in [100, 150, 200, 299] {
            marking.marks(queued, |probability| {
                asked.push(probability);
                false
            });
        }
        assert_eq!(asked, [0.125, 0.25, 0.4975], "not below the lower threshold");
        assert!(marking.marks(300, |_| unreachable!("the longest queues need no draw")));
    }
}
