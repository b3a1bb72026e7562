//! Builds a slice.

use super::event_clock::EventClock;
use super::fabric::{Fabric, Fifo};
use super::fault::{FaultEvent, Faults};
use super::host::Host;
use super::hosts::Hosts;
use super::layout::{Layout, Lookahead};
use super::programmable_switch::Stations;
use super::recorder::Recorder;
use super::run_config::LinkCredit;
use super::run_config::RunConfig;
use super::watch::Sampler;
use super::{Cut, Slice, Sources};
use crate::calendar::{Calendar, GROUP};
use crate::port::{ColdPort, Port, flag};
use crate::records::Records;
use crate::route::Router;
use crate::telemetry;
use std::sync::Arc;
use strandway_collective::Programs;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::plan::{Plan, environment, environment_between};
use strandway_fabric::topology::{Graph, LinkId, NodeKind, Topology};
use strandway_proto::application::Application;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Bytes, Rate, Time};
use strandway_proto::{Endpoint, Environment, HostId, OpenConnection, Profile};

/// The number of uplinks to choose from for a connection's packets, by tier.
fn uplinks(topology: &Topology, from: HostId, to: HostId) -> [u16; 2] {
    let count = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    if topology.graph().is_some() {
        // Every switch on the way has a choice of its own, so no entropy value names a path.
        return [0; 2];
    }
    match topology.hops(from, to) {
        0..=2 => [0; 2],
        3 => [count(topology.shape().leaf_bundle), 0],
        4 => [count(topology.leaf_up()), 0],
        _ => [count(topology.leaf_up()), count(topology.spine_up())],
    }
}

/// The environment of connections of one profile, without the values that depend on their ends.
pub(super) struct World {
    environment: Environment,
    profile: Arc<Profile>,
}

impl World {
    pub(super) fn new(plan: &Plan, profile: &Arc<Profile>) -> World {
        World { environment: environment(&plan.topology, &plan.ports, profile), profile: Arc::clone(profile) }
    }

    /// The environment of a connection between two hosts.
    pub(super) fn between(&self, topology: &Topology, from: HostId, to: HostId) -> Environment {
        let environment = environment_between(topology, &self.environment, &self.profile, from, to);
        Environment { uplinks: uplinks(topology, from, to), ..environment }
    }
}

/// The longest time from a packet's departure to its arrival.
fn ahead(topology: &Topology) -> u64 {
    let inside = [NodeKind::Leaf, NodeKind::Spine, NodeKind::Core].map(|k| topology.latency_inside(k).0);
    let longest = topology.kinds_of_link().map(|l| l.latency + l.rate.time_for(Bytes(8192)));
    longest.map(|l| l.0).max().unwrap_or(0) + inside.into_iter().max().unwrap_or(0)
}

/// Wire bytes of the largest data packet.
fn largest_packet(plan: &Plan) -> u64 {
    plan.profiles.iter().map(|profile| profile.packet_bytes().0).max().unwrap_or(0)
}

impl<'a> Slice<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        cut: &'a Cut,
        index: usize,
        programs: &'a Programs<'a>,
        records: &'a Records,
        faults: &'a Faults,
    ) -> Slice<'a> {
        let topology = &plan.topology;
        let by_queues = topology.graph().is_some_and(Graph::chooses_by_queues);
        let accounting = plan.ports.pfc.is_some() || plan.ports.cbfc.is_some();
        let eager = accounting || plan.ports.shared.is_some() || plan.routing.is_adaptive() || by_queues;
        let lookahead = Lookahead::new(plan, cut, eager || programs.signals() || programs.has_switches());
        let nodes = cut.nodes_of(index);
        let layout = Layout::new(topology, nodes, Arc::clone(cut.places()), lookahead.early > 0);
        let first_port = layout.switches;
        let switches: u32 = nodes[1..].iter().map(|nodes| nodes.len() as u32).sum();
        let mut phases = layout.phases.to_vec();
        let first_host_stop = if eager { switches * GROUP as u32 } else { layout.links.len() as u32 - first_port };
        let router = Router::new(topology, plan.routing, plan.seed, layout, &faults.routing);
        let stops = first_host_stop + nodes[0].len() as u32;
        let early = (first_host_stop, lookahead.early);
        let stations = Stations::new(
            programs,
            nodes[1..].iter().flatten().copied(),
            topology.hosts(),
            topology.nodes(),
            (lookahead.span, ahead(topology)),
        );
        let groups = (stops as usize).div_ceil(GROUP).max(1);
        if cut.slices == 1 || lookahead.early == 0 {
            phases = vec![std::iter::once(0..groups).collect()];
        } else if let Some(last) = phases.last_mut() {
            last.push(first_host_stop as usize / GROUP..groups);
        }
        let config = RunConfig {
            phases,
            plan,
            cut,
            index,
            sources: Sources::new(plan),
            fault_events: &faults.events,
            first_port,
            first_host_stop,
            hosts: &nodes[0],
            special: eager || router.needs_place_at() || !plan.multicast.is_empty() || !stations.is_empty(),
            eager,
            accounting,
            link_credit: plan.ports.cbfc.map(|buffer| LinkCredit { buffer: buffer.0, packet: largest_packet(plan) }),
            llr: plan.ports.llr,
            no_trim: [false, true].map(|again| plan.profiles.first().is_some_and(|p| !p.reliability.may_trim(again))),
            priority: plan.ports.priority,
            sampling: plan.sample_every.is_some(),
            slow_departures: plan.sample_every.is_some() || topology.cut_through().is_some() || stations.see_all(),
            telemetry: telemetry::is_wanted(plan),
            cut_rate: topology.cut_through().map_or(0, |rate| rate.0),
            planes: usize::from(topology.planes()),
        };
        let calendar = Calendar::new(stops as usize, lookahead.span, ahead(topology), early);
        // Changes of routing after the end of the run count as events that were cut off.
        let cut_off = faults.routing.last().is_some_and(|&(time, ..)| time > plan.time_limit.0);
        let sampler = Sampler::new(plan, cut, index);
        let mut slice = Slice {
            config,
            clock: EventClock::new(calendar, cut_off),
            ports: Vec::new(),
            limits: Vec::new(),
            fabric: Fabric::new(router, stations, cut.slices),
            hosts: Hosts::new(plan, programs, &nodes[0], first_port),
            recorder: Recorder::new(records, programs.tallies(), plan.rows, topology.planes(), sampler),
        };
        slice.make_ports();
        slice.make_hosts();
        for (fault, index) in plan.faults.iter().zip(0..) {
            if fault.kind == FaultKind::Denied && fault.from == Time::ZERO {
                (0..slice.hosts.all.len()).for_each(|h| slice.apply_fault(h, index, true, 0));
            }
        }
        slice.mark_ports(faults);
        for host in 0..slice.hosts.all.len() {
            slice.come_back(host, 0);
        }
        slice
    }

    fn make_ports(&mut self) {
        let topology = &self.config.plan.topology;
        let links = std::mem::take(&mut self.fabric.router.layout_mut().links);
        self.ports.reserve_exact(links.len());
        let settings = &self.config.plan.ports;
        let eager = self.config.eager;
        let marks_on_leaving = settings.ecn.is_some_and(|e| e.at_dequeue);
        let fifo = !self.config.cut.queued_only
            && !eager
            && !settings.priority
            && settings.trim.is_none()
            && !marks_on_leaving;
        // A record tells the queue at the departure, which is not known on arrival.
        let fifo = fifo && !self.config.telemetry;
        // By link group, the limits of its ports. Links of sites and of graphs differ within a group.
        let is_uniform = topology.sites() == 0 && topology.graph().is_none();
        let mut known = vec![None; if is_uniform { topology.groups().len() } else { 0 }];
        for link in links {
            let random = Random::new(self.config.plan.seed, StreamKind::Port, u64::from(link));
            let ends = if link == u32::MAX { None } else { topology.ends(LinkId(link)) };
            let Some(ends) = ends else {
                self.ports.push(Port::new(link, u32::MAX, Rate(0), random));
                continue;
            };
            let mut port = Port::new(link, ends.to.0, topology.level_of(&ends).rate, random);
            let is_switch = topology.describe(ends.from).0 != NodeKind::Host;
            port.set(flag::EAGER, eager && is_switch);
            port.set(flag::FIFO, fifo && is_switch);
            port.set(flag::LAST, is_switch && ends.level == 0);
            port.set(flag::OBSERVED, self.config.telemetry && is_switch);
            let group = topology.group_index(&ends);
            port.limits = match known.get(group).copied().flatten() {
                Some(limits) => limits,
                None => self.limits_at(&ends, 1.0, port.has(flag::LAST)),
            };
            if let Some(known) = known.get_mut(group) {
                *known = Some(port.limits);
            }
            port.set(flag::REMOTE, self.config.cut.slice_of(ends.to) != self.config.index);
            self.ports.push(port);
        }
        if self.config.sampling || self.config.accounting || !self.config.plan.faults.is_empty() {
            self.fabric.colds = vec![ColdPort::default(); self.ports.len()];
        }
        if eager {
            self.number_switches();
        }
        if fifo {
            self.fabric.fifos = vec![Fifo::default(); self.ports.len()];
        }
    }

    fn mark_ports(&mut self, faults: &Faults) {
        let topology = &self.config.plan.topology;
        let owner = |link: LinkId| topology.ends(link).map(|e| self.config.cut.slice_of(e.from));
        let mine: Vec<u32> =
            faults.links.keys().copied().filter(|&l| owner(LinkId(l)) == Some(self.config.index)).collect();
        let captured: Vec<LinkId> = self.config.plan.capture.iter().flat_map(|c| c.links.clone()).collect();
        let captured: Vec<u32> =
            captured.into_iter().filter(|&l| owner(l) == Some(self.config.index)).map(|l| l.0).collect();
        for link in mine {
            let i = self.local(link);
            self.ports[i].set(flag::FAULTY, true);
            self.fabric.faults.insert(i as u32, faults.links[&link].clone());
        }
        for link in captured {
            let i = self.local(link);
            self.ports[i].set(flag::OBSERVED, true);
            // Departures must be recorded when they happen, not when they are decided.
            self.ports[i].set(flag::FIFO, false);
        }
        for (n, &(time, event)) in self.config.fault_events.iter().enumerate() {
            let link = event.link();
            if owner(link) != Some(self.config.index) {
                continue;
            }
            let stop = if link.0 < self.config.cut.link_bases[1] {
                self.config.host_stop(link.0 / self.config.planes as u32)
            } else {
                self.port_stop(self.local(link.0) as u32)
            };
            self.clock.calendar.note(time, stop, self.config.sources.fault + n as u32, n as u32);
            if let FaultEvent::Rate(..) = event {
                // A departure that is decided on arrival would miss a later change of rate.
                let i = self.local(link.0);
                self.ports[i].set(flag::FIFO, false);
            }
        }
    }

    fn make_hosts(&mut self) {
        let hosts = self.config.hosts.iter().zip(&self.hosts.programs);
        self.hosts.all =
            hosts.map(|(&h, program)| Host::new(Endpoint::new(HostId(h)), program.poll_timeout().0)).collect();
        // Host by host, so that the memory of a host's connections lies together.
        let mut ends = Vec::new();
        for (connection, index) in self.config.plan.connections.iter().zip(0..) {
            for (host, side) in [(connection.source, 0), (connection.destination, 1)] {
                if self.config.cut.slice_of_host(host) == self.config.index {
                    ends.push((self.config.cut.place_of(host.0), index, side));
                }
            }
        }
        ends.sort_unstable();
        let first = ends.first().map_or(0, |&(h, ..)| h as usize);
        for (h, index, side) in ends {
            self.open_end(h as usize, index, side, first);
        }
    }

    /// Opens one end of a connection of the plan at the slice's `h`th host: of side 0 that of the source, of side 1
    /// that of the destination. `first` is the first host of the slice that has a connection.
    fn open_end(&mut self, h: usize, index: usize, side: usize, first: usize) {
        let plan = self.config.plan;
        let connection = &plan.connections[index];
        let names = self.config.cut.ends[index];
        let (host, peer, peer_connection) = match side {
            0 => (connection.source, connection.destination, names.1),
            _ => (connection.destination, connection.source, names.0),
        };
        if self.hosts.all[h].endpoint.observe().connections() == 0
            && let Ok([first, host]) = self.hosts.all.get_disjoint_mut([first, h])
        {
            // The kinds of connections are computed once, and other hosts copy them.
            host.endpoint.learn_from(&first.endpoint);
        }
        let profile = usize::from(connection.profile);
        let environment = self.hosts.environments[profile].between(&plan.topology, host, peer);
        let uplinks = environment.uplinks;
        let open = OpenConnection {
            profile: Arc::clone(&plan.profiles[profile]),
            environment,
            peer,
            peer_connection: Some(peer_connection),
            random: Random::new(plan.seed, StreamKind::Connection, index as u64 * 2 + side as u64),
        };
        let ours = self.hosts.all[h].endpoint.open(Time::ZERO, open);
        if plan.tally_paths && side == 0 {
            self.hosts.all[h].endpoint.tally_paths(ours);
        }
        if let Some(tables) = &mut self.hosts.tables {
            tables.open(plan, &plan.profiles[profile], (host, ours), (peer, peer_connection), uplinks);
        }
    }
}
