//! Switches that choose the uplink of a packet, or of a flowlet, by how busy their uplinks are.
//!
//! An uplink is less busy than another one if PFC has paused the other one and not it; among equals, if its queue is in
//! a lower step. Among uplinks that are equally busy a switch draws one at random. The order of comparison, the steps,
//! the gap and the probability are those of the UEC project's simulator (`adaptive_route` in its fat-tree switch). Its
//! switches look at queues at intervals of 0.1 us; ours look at every packet.

use super::Slice;
use crate::port::flag;
use crate::road::Transit;
use std::collections::HashMap;
use strandway_fabric::Plan;
use strandway_proto::profile::Routing;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{HostId, Span};

/// A flow moves to another uplink only after a gap of this length. Source: UEC simulator.
const GAP: Span = Span::from_us(10);
/// Probability that it moves then. Source: UEC simulator.
const MOVES: f64 = 0.5;
/// Ends of the steps by which queues are compared, in percent of
/// [`strandway_fabric::plan::PortSettings::adaptive_queue`]. Source: UEC simulator.
const STEPS: [u64; 3] = [5, 10, 20];

/// The choices of the switches of a slice.
#[derive(Debug)]
pub(super) struct Adaptive {
    /// One stream per switch, by its number in the slice.
    randoms: Vec<Random>,
    /// Ends of the steps in bytes.
    steps: [u64; 3],
    /// The uplink that each flow takes at each switch, if flows stay on their uplinks.
    flowlets: Option<HashMap<Flow, Flowlet>>,
    /// Places of the uplinks that a packet can take.
    uplinks: Vec<u32>,
    /// The least busy of them.
    best: Vec<u32>,
}

/// A flow at a switch: the node, source, destination and connection.
type Flow = (u32, HostId, HostId, u32);

/// Where a flow went last.
#[derive(Clone, Copy, Debug)]
struct Flowlet {
    /// The place of the uplink.
    place: u32,
    /// When its last packet came, in ps.
    last: u64,
}

impl Adaptive {
    /// The choices of these switches, if they make any.
    pub(super) fn new(plan: &Plan, nodes: &[u32]) -> Option<Adaptive> {
        plan.routing.is_adaptive().then(|| Adaptive {
            randoms: nodes.iter().map(|&n| Random::new(plan.seed, StreamKind::Switch, u64::from(n))).collect(),
            steps: STEPS.map(|percent| plan.ports.adaptive_queue.0 * percent / 100),
            flowlets: (plan.routing == Routing::Flowlet).then(HashMap::new),
            uplinks: Vec::new(),
            best: Vec::new(),
        })
    }
}

impl Slice<'_> {
    /// The place of the port by which a data packet leaves that is at `node` now; `None` if routing knows of no way.
    /// The packet remembers its uplink.
    pub(super) fn place_adaptively(&mut self, node: u32, packet: &mut Transit, now: u64) -> Option<u32> {
        let mut adaptive = self.fabric.switches.adaptive.take()?;
        let climbs = self.fabric.router.uplinks_left(node, packet.destination(), now, &mut adaptive.uplinks);
        let place = if climbs {
            let place = self.choose_uplink(&mut adaptive, node, packet, now);
            if let Some(place) = place {
                self.fabric.router.take_uplink(node, place, packet);
            }
            place
        } else {
            self.place_usually(node, packet, now)
        };
        self.fabric.switches.adaptive = Some(adaptive);
        place
    }

    /// In a graph, the switch of a packet's source chooses between a shortest path and one over another switch
    /// (UGAL-L): the shortest one if the bytes that wait at its port, times its links, are not more. Source: Kim et
    /// al., ISCA 2008, section 4.
    pub(super) fn choose_by_queues(&mut self, node: u32, packet: &mut Transit, now: u64) {
        let super::fabric::Fabric { router, cargo, .. } = &mut self.fabric;
        let Some(candidates) = router.candidates(node, packet, cargo, now) else { return };
        let cost = |(place, links): (u32, u64)| self.waiting_at(place as usize) * links;
        if cost(candidates.minimal) > cost(candidates.other) {
            self.fabric.router.go_around(packet, &candidates);
        }
    }

    /// The uplink that a packet takes, of those that it can take.
    fn choose_uplink(&self, adaptive: &mut Adaptive, node: u32, packet: &Transit, now: u64) -> Option<u32> {
        let switch = self.fabric.switches.of_node[(node - self.config.cut.hosts) as usize] as usize;
        let Some(mut flowlets) = adaptive.flowlets.take() else { return self.least_busy(adaptive, switch) };
        let whole = self.fabric.cargo.packet(packet);
        let flow = (node, whole.source, whole.destination, whole.connection.0);
        let before = flowlets.get(&flow).copied().filter(|flowlet| adaptive.uplinks.contains(&flowlet.place));
        let place = match before {
            None => self.least_busy(adaptive, switch),
            Some(before) => {
                let moves = now - before.last > GAP.0 && adaptive.randoms[switch].chance(MOVES);
                let other = if moves { self.least_busy(adaptive, switch) } else { None };
                let is_better =
                    |&other: &u32| self.busy(other, &adaptive.steps) < self.busy(before.place, &adaptive.steps);
                Some(other.filter(is_better).unwrap_or(before.place))
            }
        };
        if let Some(place) = place {
            flowlets.insert(flow, Flowlet { place, last: now });
        }
        adaptive.flowlets = Some(flowlets);
        place
    }

    /// One of the least busy uplinks, at random.
    fn least_busy(&self, adaptive: &mut Adaptive, switch: usize) -> Option<u32> {
        let mut least = None;
        adaptive.best.clear();
        for &place in &adaptive.uplinks {
            let busy = self.busy(place, &adaptive.steps);
            if least.is_none_or(|least| busy < least) {
                least = Some(busy);
                adaptive.best.clear();
            }
            if least == Some(busy) {
                adaptive.best.push(place);
            }
        }
        let n = adaptive.randoms[switch].below(adaptive.best.len() as u32);
        adaptive.best.get(n as usize).copied()
    }

    /// How busy an uplink is: down, then paused, then the step of its queue.
    fn busy(&self, place: u32, steps: &[u64; 3]) -> (bool, bool, usize) {
        let port = &self.ports[place as usize];
        let waiting = self.waiting_at(place as usize);
        let step = steps.iter().filter(|&&end| waiting >= end).count();
        (port.has(flag::DOWN), port.has(flag::PAUSED), step)
    }
}
