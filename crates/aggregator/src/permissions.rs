//! The fragments that each peer of a switch may send, and the destinations that fragments name.
//!
//! A worker sends for itself; a rack (a switch below) sends for the workers of its rack. A fragment from the parent or
//! from a parameter server goes on to others, so its bitmaps name its destination: one worker or, if they are empty,
//! all workers. Workers do not read the bitmaps of such fragments.

use strandway_proto::HostId;
use strandway_proto::aggregate::{Fragment, Kind, Marks};
use strandway_switch::{Job, System};

/// A peer of a switch in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A worker below this switch.
    Worker(u16),
    /// The switch of a rack, below this switch.
    Rack(u8),
    /// The switch that adds racks, above this switch.
    Parent,
    /// The job's parameter server, in a process of its own.
    Server,
}

/// Checks that this peer may send this fragment. Returns the fragment's destination, or `None` if it may not.
pub(crate) fn destination(fragment: &Fragment, job: &Job, system: System, peer: Peer) -> Option<HostId> {
    let exponents_only = system.has_exponents() && { fragment.elements } == 0;
    let elements = !fragment.kind.has_elements() || { fragment.elements } == job.shape.elements || exponents_only;
    if !elements || { fragment.job } != job.shape.number || { fragment.number } == 0 {
        return None;
    }
    match peer {
        Peer::Worker(worker) => may_worker(fragment, job, worker).then(|| job.server()),
        Peer::Rack(rack) => may_rack(fragment, job, rack).then(|| job.server()),
        Peer::Parent | Peer::Server => match fragment.kind {
            Kind::Result | Kind::Credit | Kind::Solicit | Kind::Hold | Kind::Flush => named(fragment, job),
            _ => None,
        },
    }
}

/// A worker's fields about itself must be its own.
fn may_worker(fragment: &Fragment, job: &Job, worker: u16) -> bool {
    let kind = matches!(
        fragment.kind,
        Kind::Data | Kind::Remind | Kind::ResultCopy | Kind::NotYet | Kind::Obsolete | Kind::Watermark
    );
    let (rack, bit) = job.place(worker);
    let marks = Marks::BYPASS.with(Marks::RESEND).with(Marks::FLOAT).with(Marks::CONGESTED);
    kind && { fragment.sender } == worker
        && { fragment.workers } == 1 << bit
        && { fragment.racks } == 1 << rack
        && marks.has(fragment.marks)
}

/// A rack sends the sums of its workers, parts of such sums, and the requests and reports of its workers.
fn may_rack(fragment: &Fragment, job: &Job, rack: u8) -> bool {
    let sender = { fragment.sender };
    let known = usize::from(sender) < job.workers().len();
    let place = known.then(|| job.place(sender)).filter(|&(of, _)| of == rack);
    if { fragment.racks } != 1 << rack || fragment.marks.has(Marks::FROM_SERVER) {
        return false;
    }
    if place.is_none() && sender != Fragment::SWITCH {
        return false;
    }
    let level = fragment.marks.has(Marks::LEVEL);
    match fragment.kind {
        Kind::Data => level && { fragment.workers } == 0,
        // The program and the server check which workers are in it.
        Kind::Partial | Kind::Flushed => !level,
        Kind::FlushMiss => !level && place.is_none(),
        Kind::Remind | Kind::ResultCopy | Kind::NotYet | Kind::Obsolete | Kind::Watermark => {
            !level && place.is_some_and(|(_, bit)| { fragment.workers } == 1 << bit)
        }
        _ => false,
    }
}

/// The destination that a fragment names.
fn named(fragment: &Fragment, job: &Job) -> Option<HostId> {
    let (workers, racks) = ({ fragment.workers }, { fragment.racks });
    if racks == 0 && fragment.kind != Kind::Flush {
        return Some(HostId::group(job.shape.group));
    }
    let rack = job.racks().get(racks.trailing_zeros() as usize)?;
    // A flush is for the rack's switch. The way to any worker of the rack leads through that switch.
    let bit = if fragment.kind == Kind::Flush { 0 } else { workers.trailing_zeros() as usize };
    let worker = rack.workers.get(bit)?;
    Some(job.workers()[usize::from(*worker)])
}

/// Writes the name of the destination into a fragment that does not go to the server.
pub(crate) fn name(fragment: &Fragment, job: &Job, to: HostId) -> Fragment {
    if fragment.kind == Kind::Flush || to == job.server() {
        return *fragment;
    }
    let (workers, racks) = match place_of(job, to) {
        Some((rack, bit)) => (1 << bit, 1 << rack),
        None => (0, 0),
    };
    Fragment { workers, racks, ..*fragment }
}

/// The rack and the bit of the worker at this host; `None` for a group.
pub(crate) fn place_of(job: &Job, host: HostId) -> Option<(u8, u8)> {
    if host == HostId::group(job.shape.group) {
        return None;
    }
    let worker = job.workers().iter().position(|&at| at == host)?;
    Some(job.place(worker as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use strandway_group::aggregation::message::Layout;
    use strandway_group::aggregation::terms::{RTT, Terms};
    use strandway_switch::Esa;

    const SYSTEM: System = System::Atp;

    fn job() -> Arc<Job> {
        let layout = Layout { racks: vec![0, 1, 1], top: 2 };
        Terms { number: 3, layout, elements: 4, window: 8, slots: 16, ports: 1, rtt: RTT, scatter: false }
            .job()
            .expect("a job")
    }

    fn of(kind: Kind, workers: u32, racks: u32, sender: u16, marks: Marks) -> Fragment {
        Fragment { workers, racks, sender, marks, ..job().fragment(kind, 1 << 40) }
    }

    fn may(fragment: &Fragment, peer: Peer) -> bool {
        destination(fragment, &job(), SYSTEM, peer).is_some()
    }

    #[test]
    fn a_worker_speaks_for_itself_and_a_rack_for_its_workers() {
        let own = of(Kind::Data, 2, 2, 2, Marks::NONE);
        assert!(may(&own, Peer::Worker(2)) && !may(&own, Peer::Worker(1)));
        for racks in [0, 1, 3, 4] {
            assert!(!may(&Fragment { racks, ..own }, Peer::Worker(2)), "it names its own rack: {racks}");
        }
        for workers in [0, 1, 3, 4] {
            assert!(!may(&Fragment { workers, ..own }, Peer::Worker(2)), "it names itself: {workers}");
        }
        assert!(!may(&Fragment { sender: 1, ..own }, Peer::Worker(2)), "in another one's name");
        assert!(!may(&own, Peer::Rack(1)), "a rack sends its sum, or parts for the server");
        assert!(may(&of(Kind::Remind, 2, 2, 2, Marks::NONE), Peer::Rack(1)));
        assert!(!may(&of(Kind::Remind, 1, 1, 0, Marks::NONE), Peer::Rack(1)), "a worker of another rack");
        let sum = of(Kind::Data, 0, 2, Fragment::SWITCH, Marks::LEVEL);
        assert!(may(&sum, Peer::Rack(1)) && !may(&sum, Peer::Rack(0)) && !may(&sum, Peer::Worker(1)));
        let both = of(Kind::Data, 0, 3, Fragment::SWITCH, Marks::LEVEL);
        assert!(!may(&both, Peer::Rack(1)), "one rack at a time");
        let part = of(Kind::Partial, 1, 2, Fragment::SWITCH, Marks::EVICTED);
        assert!(may(&part, Peer::Rack(1)) && !may(&part, Peer::Parent));
        let whole = of(Kind::Partial, 0, 2, Fragment::SWITCH, Marks::LEVEL);
        assert!(!may(&whole, Peer::Rack(1)), "only the switch that adds racks has sums of racks");
        for peer in [Peer::Worker(2), Peer::Rack(1), Peer::Parent] {
            assert!(!may(&Fragment { job: 4, ..own }, peer) && !may(&Fragment { elements: 5, ..own }, peer));
            assert!(peer == Peer::Parent || !may(&of(Kind::Result, 2, 2, 2, Marks::NONE), peer));
        }
    }

    #[test]
    fn only_switchml_sends_exponents_alone() {
        let alone = Fragment { elements: 0, ..of(Kind::Data, 2, 2, 2, Marks::NONE) };
        let to = |system| destination(&alone, &job(), system, Peer::Worker(2)).is_some();
        assert!(to(System::SwitchMl { strict_order: true }) && !to(System::Esa(Esa::default())));
    }

    #[test]
    fn a_fragment_names_its_destination_on_the_way_down() {
        let job = job();
        let group = HostId::group(job.shape.group);
        for to in [group, job.workers()[0], job.workers()[2]] {
            let sent = name(&of(Kind::Result, 7, 5, 0, Marks::NONE), &job, to);
            assert_eq!(destination(&sent, &job, SYSTEM, Peer::Parent), Some(to));
        }
        let flush = name(&of(Kind::Flush, 0, 2, 0xffff, Marks::FROM_SERVER), &job, job.workers()[1]);
        assert_eq!(destination(&flush, &job, SYSTEM, Peer::Parent), Some(job.workers()[1]));
        let nowhere = [(1, 8), (4, 2), (0, 2)].map(|(workers, racks)| of(Kind::Result, workers, racks, 0, Marks::NONE));
        assert!(nowhere.iter().all(|fragment| !may(fragment, Peer::Parent)));
    }
}
