//! The terms of a job between a switch and a worker, and the configuration of their connection.

use super::message::{Layout, Welcome};
use crate::error::GroupError;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;
use strandway_fabric::Topology;
use strandway_fabric::topology::{Level, Shape as Fabric};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Rate, Span};
use strandway_switch::who::RACK_MAX;
use strandway_switch::{Index, Job, JobError, Shape, Sharing};
use strandway_udp::fragments::{LANES, LANES_MAX, OVERHEAD};
use strandway_udp::{Config, Waiting};

/// A round trip, including the time for which either side sleeps: ours, a slice of the scheduler.
pub const RTT: Span = Span::from_ms(2);
/// The first key: far from 0, so that every number on the wire belongs to a key.
pub(super) const FIRST: u64 = 1 << 40;
/// The default silence after which a switch, a worker or a parameter server counts as gone: ours.
pub const GONE: Duration = Duration::from_secs(1);
/// A worker hands the system at most the bytes that its port sends in this time: ours, some slices of the scheduler, so
/// that the port stays busy while the worker sleeps.
const HELD: Span = Span::from_ms(10);
/// The most fragments under way: ours.
const WINDOW_MAX: u32 = 4_096;
/// The most slots of a switch, all ports together: ours.
pub const SLOTS_MAX: u32 = 1 << 22;
/// Host numbers of a rack: its workers, and the server.
const HOSTS: u32 = 64;
/// IPv6 and UDP headers.
const IP_UDP: usize = 48;

/// The values that a job must have in common at its switches and at all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The number of the job.
    pub number: u16,
    /// The places of its workers.
    pub layout: Layout,
    /// Elements of a fragment.
    pub elements: u16,
    /// The most fragments of a worker under way.
    pub window: u32,
    /// Slots of each port.
    pub slots: u32,
    /// Ports of the switch.
    pub ports: u32,
    /// A round trip between a worker and its switch.
    pub rtt: Span,
    /// Only the owner of a key gets its sum; key by key, the workers are owners in turn.
    pub scatter: bool,
}

impl Terms {
    /// The terms in a switch's answer to a worker or a parameter server.
    pub fn of(welcome: &Welcome) -> Terms {
        Terms {
            number: welcome.job,
            layout: welcome.layout.clone(),
            elements: welcome.elements,
            window: welcome.window,
            slots: welcome.slots,
            ports: welcome.ports.len() as u32,
            rtt: Span::from_us(welcome.rtt.into()),
            scatter: welcome.scatter,
        }
    }

    /// May a switch offer these terms? They determine the memory of a parameter server.
    pub fn are_sound(&self) -> bool {
        let slots = u64::from(self.slots) * u64::from(self.ports);
        let memory = slots * u64::from(self.elements) <= u64::from(SLOTS_MAX) * u64::from(LANES);
        memory
            && (1..=u64::from(SLOTS_MAX)).contains(&slots)
            && (1..=WINDOW_MAX).contains(&self.window)
            && (1..=LANES_MAX).contains(&self.elements)
    }

    /// The job: each rack is below one switch, with one plane for each of its ports. The hosts of rack `r` have the
    /// numbers from 64 `r` on.
    ///
    /// # Errors
    /// If a rack has more than 32 workers, or there are more than 32 racks.
    pub fn job(&self) -> Result<Arc<Job>, JobError> {
        let Layout { racks, top } = &self.layout;
        let leaves = racks.iter().copied().chain([*top]).max().unwrap_or(0);
        let fabric = Fabric {
            hosts: HOSTS * (u32::from(leaves) + 1),
            planes: self.ports as u8,
            hosts_per_leaf: HOSTS,
            spines: 1,
            leaf_bundle: 1,
            pods: None,
        };
        let level = Level { rate: Rate::from_gbps(100), latency: Span::from_ns(500) };
        let topology = Topology::new(fabric, [level; 3], [Span::ZERO; 3]).expect("a leaf with 64 hosts for each rack");
        let mut full = [0; 256];
        let workers = racks.iter().map(|&rack| {
            full[usize::from(rack)] += 1;
            HostId(HOSTS * u32::from(rack) + (full[usize::from(rack)] - 1) % HOSTS)
        });
        let workers: Vec<HostId> = workers.collect();
        // A sum of racks takes one more hop each way.
        let hops = if racks.iter().all(|rack| rack == top) { 1 } else { 2 };
        let shape = Shape {
            number: self.number,
            group: self.number.into(),
            elements: self.elements,
            data_bytes: bytes(self.elements) as u16,
            control_bytes: bytes(0) as u16,
            window: self.window,
            slots: self.slots,
            index: Index::List,
            sharing: if self.scatter { Sharing::Scatter { per_share: 1, chains: 1 } } else { Sharing::All },
            first: FIRST,
            rtt: self.rtt * hops,
        };
        Job::new(shape, &topology, workers, HostId(HOSTS * u32::from(*top) + RACK_MAX as u32)).map(Arc::new)
    }
}

/// Bytes of a fragment with `elements` elements, IPv6 and UDP headers included.
fn bytes(elements: u16) -> u64 {
    (IP_UDP + OVERHEAD + 4 * usize::from(elements)) as u64
}

/// The default window of a worker: the fragments that fill two round trips at this rate. Ours.
pub(crate) fn usual_window(rate: Rate, elements: u16) -> u32 {
    let one = rate.time_for(Bytes(bytes(elements))).0.max(1);
    (2 * RTT.0 / one).clamp(32, 512) as u32
}

/// The time without a result after which a fragment is sent again: ours. A fragment may wait behind a whole window in a
/// queue on the way there, and behind another on the way back. The timeout is twice that time, and at least a few
/// slices of the scheduler. SwitchML's released code waits 10 ms, too.
pub(super) fn timeout(rate: Rate, elements: u16, window: u32) -> Span {
    let whole = rate.time_for(Bytes(bytes(elements) * u64::from(window)));
    (whole * 4).max(Span::from_ms(10))
}

/// The send buffer of a worker's socket, between 64 KiB and `most`. The rest of a window waits in the worker's own
/// memory. In the port it would delay all other packets of the host: at 25 Mb/s a window of 4,096 fragments takes 1.5
/// s, but the switch counts as gone after a second of silence. Ours.
pub(super) fn send_buffer(rate: Rate, most: usize) -> usize {
    (rate.bytes_in(HELD).0 as usize).clamp(1 << 16, most.max(1 << 16))
}

/// The window of a session: the requested one, limited by the slots, and a multiple of the ports.
pub fn window(wanted: u32, slots: u32, ports: u32) -> u32 {
    let most = wanted.clamp(1, WINDOW_MAX).min(slots);
    if most >= ports { most / ports * ports } else { most }
}

/// The configuration of both sides of the connection between a worker and a switch; a peer that is silent for `silence`
/// counts as gone.
///
/// # Errors
/// If the key is too short.
pub fn admission(key: &[u8], address: SocketAddrV6, silence: Duration) -> Result<Config, GroupError> {
    let mut config = Config::new(key)?.plane(address);
    config.waiting = Waiting::Sleep;
    config.timeouts.peer = silence;
    config.timeouts.handshake = GONE;
    config.socket_buffer = 256 << 10;
    config.limits.connections = 128;
    config.limits.operations = 64;
    config.limits.incoming = 64;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_the_slots_and_go_round_the_ports() {
        assert_eq!(
            [window(512, 4_096, 1), window(512, 100, 1), window(512, 100, 3), window(2, 100, 4)],
            [512, 100, 99, 2]
        );
        assert_eq!((window(0, 100, 1), window(u32::MAX, u32::MAX, 1)), (1, WINDOW_MAX));
    }

    #[test]
    fn a_slow_port_has_few_fragments_under_way_and_patient_timers() {
        let of = |mbps: u64| {
            let rate = Rate(mbps * 1_000_000);
            let window = usual_window(rate, 256);
            (window, timeout(rate, 256, window))
        };
        // 1,144 bytes take 91.52 us at 100 Mb/s.
        assert_eq!(of(100), (43, Span(4 * 43 * 91_520_000)));
        assert_eq!(of(40_000), (512, Span::from_ms(10)));
        assert_eq!(of(1).0, 32);
        let held = |mbps: u64| send_buffer(Rate(mbps * 1_000_000), 4 << 20);
        assert_eq!([1, 100, 1_000, 400_000].map(held), [1 << 16, 125_000, 1_250_000, 4 << 20]);
    }

    #[test]
    fn a_layout_is_a_job_with_these_racks_or_says_what_is_too_many() {
        let of = |racks: Vec<u8>, top| {
            let layout = Layout { racks, top };
            Terms { number: 1, layout, elements: 64, window: 8, slots: 16, ports: 2, rtt: RTT, scatter: false }.job()
        };
        let job = of(vec![0, 1, 1, 0, 2], 3).expect("a job");
        assert_eq!([0, 1, 2, 3, 4].map(|worker| job.place(worker)), [(0, 0), (1, 0), (1, 1), (0, 1), (2, 0)]);
        assert_eq!((job.server_leaf(), job.shape.rtt), (3, RTT * 2));
        let flat = of(vec![0; 32], 0).expect("a job");
        assert_eq!((flat.racks().len(), flat.server_leaf(), flat.shape.rtt), (1, 0, RTT));
        assert_eq!(of(vec![1; 33], 0), Err(JobError::Crowded { leaf: 1 }));
        assert_eq!(of((0..33).collect(), 0), Err(JobError::Scattered));
        assert!(of((0..1_024).map(|worker| (worker / 32) as u8).collect(), 32).is_ok());
    }
}
