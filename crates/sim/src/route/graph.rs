//! Forwarding in graphs: every switch looks up the ports that lead nearer, and the packet's hash selects one of them.
//!
//! If routing knows of dead links, costs are those over the links that are left. Each step comes nearer by the costs of
//! its time, so packets cannot go around in circles while routing's knowledge does not change.

use super::Router;
use crate::detour::{Dead, Detours};
use crate::road::{Cargo, Transit};
use strandway_fabric::topology::{FAR, Graph, GraphPaths};
use strandway_proto::Packet;

/// The bits of a packet's uplinks with the switch that it visits first, plus one; zero for none.
const VIA: u32 = 0xffff;
/// Set once the source's switch has chosen between a shortest path and another one.
const CHOSEN: u32 = 1 << 31;
/// The number of a hash that selects a switch to visit first; ports have the attempts from 0 on.
const VIA_ATTEMPT: u32 = 1 << 16;

/// Two candidates for the path of a packet, each with the place of its port and its number of links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates {
    pub(crate) minimal: (u32, u64),
    pub(crate) other: (u32, u64),
    /// The switch that the second path visits, plus one.
    via: u32,
}

impl Router {
    /// Is the fabric a graph whose switches choose by their queues?
    pub(crate) fn chooses_by_queues(&self) -> bool {
        self.topology.graph().is_some_and(Graph::chooses_by_queues)
    }

    /// The number of a switch in its plane.
    fn switch_of(&self, node: u32) -> u32 {
        (node - self.leaf_node) / self.planes
    }

    /// The value with which a packet starts: the switch that it visits first, if all packets visit one.
    pub(super) fn start_in_graph(&self, graph: &Graph, packet: &Packet) -> u32 {
        if graph.paths() != GraphPaths::Valiant || packet.is_control() {
            return 0;
        }
        let node = self.leaf_node + self.leaf_of(packet.source.place().0) * self.planes + u32::from(packet.path.port());
        self.via(graph, node, packet)
    }

    /// The switch that a packet from `node` visits first, plus one; zero if it is the source's or the destination's
    /// own.
    fn via(&self, graph: &Graph, node: u32, packet: &Packet) -> u32 {
        let via = ((self.hash(node, packet, VIA_ATTEMPT) * u64::from(graph.switches())) >> 32) as u32;
        let (from, to) = (self.switch_of(node), self.leaf_of(packet.destination.0));
        if from == to || via == from || via == to { 0 } else { via + 1 }
    }

    /// The place of the port by which a packet leaves a switch of a graph, where it is at `time`.
    pub(super) fn place_in_graph(&mut self, node: u32, packet: &mut Transit, cargo: &Cargo, time: u64) -> Option<u32> {
        let mut detours = self.detours.take();
        let dead = detours.as_mut().and_then(|detours: &mut Box<Detours>| detours.at(time));
        let place = self.next_in_graph(node, packet, cargo.packet(packet), dead);
        self.detours = detours;
        place
    }

    fn next_in_graph(
        &self,
        node: u32,
        transit: &mut Transit,
        packet: &Packet,
        mut dead: Option<&mut Dead>,
    ) -> Option<u32> {
        let gate = self.gates[(node - self.hosts) as usize];
        let (destination, plane, switch) = (transit.destination(), self.plane_of(node), self.switch_of(node));
        if dead.as_ref().is_some_and(|dead| dead.cuts_off(destination, plane)) {
            return None;
        }
        let below = gate.below(destination);
        let via = transit.uplinks() & VIA;
        if via != 0 && via - 1 == switch || below < gate.count {
            transit.reroute(transit.uplinks() & !VIA);
        }
        if below < gate.count {
            return Some(gate.down + below);
        }
        let via = transit.uplinks() & VIA;
        if via != 0 {
            let port = self.port_towards(node, via - 1, packet, dead.as_deref_mut());
            if let Some(port) = port {
                return Some(gate.up + port);
            }
            // No path leads there any more.
            transit.reroute(transit.uplinks() & !VIA);
        }
        self.port_towards(node, self.leaf_of(destination), packet, dead).map(|port| gate.up + port)
    }

    /// The port, counted from the first one to a switch, by which a packet gets nearer to a switch.
    fn port_towards(&self, node: u32, to: u32, packet: &Packet, mut dead: Option<&mut Dead>) -> Option<u32> {
        let mut count = 0u64;
        self.ports_towards(node, to, dead.as_deref_mut(), |_| count += 1);
        let wanted = (self.hash(node, packet, 0) * count) >> 32;
        let (mut at, mut chosen) = (0, None);
        self.ports_towards(node, to, dead, |port| {
            if at == wanted {
                chosen = Some(port);
            }
            at += 1;
        });
        chosen
    }

    /// Calls `each` with the ports of a switch that lead nearer to another one, in order, over links that are not known
    /// to be dead.
    fn ports_towards(&self, node: u32, to: u32, dead: Option<&mut Dead>, mut each: impl FnMut(u32)) {
        let Some(graph) = self.topology.graph() else { return };
        let switch = self.switch_of(node);
        let Some(dead) = dead else { return graph.next(switch, to, each) };
        let (planes, plane) = (self.planes, self.plane_of(node));
        let first =
            |switch: u32| self.first_links.leaf + (switch * planes + plane) * self.leaf_ports + self.hosts_per_leaf;
        let costs = dead.costs(graph, plane, to, |switch, port| first(switch) + port);
        let here = costs[switch as usize];
        if here == FAR {
            return;
        }
        let mut nearer = Vec::new();
        graph.ports(switch, |port, far, cost| {
            if costs[far as usize].checked_add(cost) == Some(here) {
                nearer.push(port);
            }
        });
        nearer.into_iter().filter(|&port| dead.is_alive(first(switch) + port)).for_each(&mut each);
    }

    /// The two paths between which the source's switch chooses for a packet that has just come from a host; `None` if
    /// there is no choice, or if it was made before.
    pub(crate) fn candidates(
        &mut self,
        node: u32,
        transit: &mut Transit,
        cargo: &Cargo,
        time: u64,
    ) -> Option<Candidates> {
        let packet = cargo.packet(transit);
        let switch = self.switch_of(node);
        if transit.uplinks() & CHOSEN != 0 || self.leaf_of(packet.source.place().0) != switch {
            return None;
        }
        transit.reroute(transit.uplinks() | CHOSEN);
        let graph = self.topology.graph()?;
        let (via, to) = (self.via(graph, node, packet), self.leaf_of(packet.destination.0));
        if via == 0 {
            return None;
        }
        let links = u64::from(graph.distance(switch, to));
        let around = u64::from(graph.distance(switch, via - 1)) + u64::from(graph.distance(via - 1, to));
        let minimal = self.place_in_graph(node, &mut transit.clone(), cargo, time)?;
        let mut other = *transit;
        other.reroute(transit.uplinks() | via);
        let other = self.place_in_graph(node, &mut other, cargo, time)?;
        Some(Candidates { minimal: (minimal, links), other: (other, around), via })
    }

    /// A packet is to take the second of its candidates.
    pub(crate) fn go_around(&self, transit: &mut Transit, candidates: &Candidates) {
        transit.reroute(transit.uplinks() | candidates.via);
    }

    /// The ports up that lead nearer to a host's switch at `time`, over links that are not known to be dead.
    pub(super) fn nearer_in_graph(&mut self, node: u32, destination: u32, time: u64, places: &mut Vec<u32>) {
        let (up, to) = (self.gates[(node - self.hosts) as usize].up, self.leaf_of(destination));
        let mut detours = self.detours.take();
        let dead = detours.as_mut().and_then(|detours: &mut Box<Detours>| detours.at(time));
        if !dead.as_ref().is_some_and(|dead| dead.cuts_off(destination, self.plane_of(node))) {
            self.ports_towards(node, to, dead, |port| places.push(up + port));
        }
        self.detours = detours;
    }
}
