//! All jobs of a run with in-network aggregation: the programs of each host and of each switch.

use crate::self_clocked::{Exponents, SelfClocked};
use crate::server::Server;
use crate::server_host::{ServerHost, ServerPace};
use crate::system::System;
use crate::training::{AnyWorker, Plan, Training};
use crate::window::START;
use crate::worker::{Worker, WorkerSettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_fabric::topology::{NodeId, NodeKind, Topology};
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::program::Program;
use strandway_proto::units::{Span, Time};
use strandway_proto::{HostId, MessageId};

/// The settings for all jobs of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The system that switches run.
    pub system: System,
    /// Slots of each switch.
    pub slots: u32,
    /// The window of ATP's and ESA's workers at the start.
    pub window: u32,
    /// ATP and ESA: a key counts as lost after this many results of later keys.
    pub out_of_order: u32,
    /// The shortest time that a worker waits for a result: 1 ms for ESA (ours), 200 us for ATP and 10 ms for SwitchML
    /// (their released code).
    pub timeout: Span,
    /// ESA: a server that has a part of a key asks the switches for their partial sums of it.
    pub flush_timer: bool,
    /// ATP: servers assign another slot to keys that collided.
    pub readdress: bool,
    /// Workers halve their windows for results out of order. For ATP.
    pub halves: bool,
    /// SwitchML: packets also carry exponents, one window ahead.
    pub exponents: bool,
    /// The speed of servers.
    pub pace: ServerPace,
    /// The interval of the slot occupancy series; zero for none.
    pub every: Span,
    /// Every random stream derives from this.
    pub seed: u64,
}

impl Settings {
    /// The default settings of a system.
    pub fn new(system: System, slots: u32) -> Settings {
        Settings {
            system,
            slots,
            window: START,
            out_of_order: 3,
            timeout: system.timeout(),
            flush_timer: true,
            readdress: true,
            halves: false,
            exponents: false,
            pace: ServerPace::default(),
            every: Span::ZERO,
            seed: 0,
        }
    }
}

/// All jobs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// The settings for all jobs.
    pub settings: Settings,
    /// The jobs.
    pub plans: Vec<Arc<Plan>>,
}

impl Aggregation {
    /// The programs of a host, if it has any.
    pub fn host(&self, host: HostId) -> Option<Box<dyn Application>> {
        let mut hosts: Vec<Box<dyn Application>> = Vec::new();
        for plan in &self.plans {
            if plan.job.server() == host {
                hosts.extend(self.server(plan).map(|server| Box::new(server) as Box<dyn Application>));
            }
            // A worker without a start time is created when another program of its host begins it.
            let worker = plan.job.workers().iter().position(|&at| at == host && plan.start != Time::NEVER);
            hosts.extend(worker.map(|worker| self.training(plan, worker as u16)));
        }
        if hosts.len() > 1 { Some(Box::new(Seats(hosts))) } else { hosts.pop() }
    }

    /// The program of one worker of the job with this number, if the job's plan has no start time ([`Time::NEVER`]).
    /// Another program begins it.
    pub fn rank(&self, number: u16, worker: u32) -> Option<Box<dyn Application>> {
        let plan = self.plans.iter().find(|plan| plan.job.shape.number == number)?;
        let known = (worker as usize) < plan.job.workers().len() && plan.start == Time::NEVER;
        known.then(|| self.training(plan, worker as u16))
    }

    fn training(&self, plan: &Arc<Plan>, worker: u16) -> Box<dyn Application> {
        Box::new(Training::new(plan, worker, self.worker(plan, worker)))
    }

    fn server(&self, plan: &Plan) -> Option<ServerHost> {
        let Settings { system, flush_timer, readdress, pace, seed, .. } = self.settings;
        let rules = system.rules(flush_timer, readdress)?;
        Some(ServerHost::new(Server::new(&plan.job, rules, seed), plan.job.shape.number, pace))
    }

    pub(crate) fn worker(&self, plan: &Plan, worker: u16) -> AnyWorker {
        let Settings { system, window, out_of_order, halves, timeout, exponents, .. } = self.settings;
        let Some(recovery) = system.recovery() else {
            let exponents = exponents.then(|| Exponents { per_round: plan.keys(), own: Vec::new() });
            return AnyWorker::SelfClocked(SelfClocked::new(&plan.job, worker, timeout, exponents));
        };
        let retain = 2 * plan.keys();
        AnyWorker::Windowed(Worker::new(
            &plan.job,
            worker,
            WorkerSettings { recovery, window, out_of_order, halves, timeout, retain },
        ))
    }

    /// The program of a switch, if the switch aggregates: the leaves above workers and servers do.
    pub fn switch(&self, topology: &Topology, node: NodeId) -> Option<Box<dyn Program>> {
        let (kind, leaf, _) = topology.describe(node);
        let near =
            |plan: &Arc<Plan>| plan.job.server_leaf() == leaf || plan.job.racks().iter().any(|rack| rack.leaf == leaf);
        if kind != NodeKind::Leaf || !self.plans.iter().any(near) {
            return None;
        }
        let jobs: Vec<_> = self.plans.iter().map(|plan| Arc::clone(&plan.job)).collect();
        let Settings { system, slots, every, .. } = self.settings;
        let rtt = jobs.iter().map(|job| job.shape.rtt).max().unwrap_or(Span::ZERO);
        Some(system.program(&jobs, leaf, slots, rtt, every))
    }
}

/// Workers and servers of several jobs at one host.
struct Seats(Vec<Box<dyn Application>>);

impl Application for Seats {
    fn handle_event(&mut self, now: Time, event: &Event) {
        self.0.iter_mut().for_each(|host| host.handle_event(now, event));
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.iter_mut().filter(|host| host.poll_timeout() <= now).for_each(|host| host.handle_timeout(now));
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        self.0.iter_mut().find_map(|host| host.poll_action(now))
    }

    fn poll_timeout(&self) -> Time {
        self.0.iter().map(|host| host.poll_timeout()).min().unwrap_or(Time::NEVER)
    }

    fn owns(&self, message: MessageId) -> bool {
        self.0.iter().any(|host| host.owns(message))
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.0.iter().for_each(|host| host.count(now, into));
    }

    fn is_done(&self) -> bool {
        self.0.iter().all(|host| host.is_done())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{flat, plan};

    #[test]
    fn leaves_above_workers_and_servers_have_programs_and_no_other_switch_does() {
        let topology = flat(12, 4);
        for system in [System::Esa(crate::Esa::default()), System::Atp, System::SwitchMl { strict_order: true }] {
            let all = Aggregation { settings: Settings::new(system, 64), plans: vec![plan(0.0)] };
            for node in (0..topology.nodes()).map(NodeId) {
                let (kind, leaf, _) = topology.describe(node);
                let adds = kind == NodeKind::Leaf && leaf <= 1;
                assert_eq!(all.switch(&topology, node).is_some(), adds, "{kind:?} {leaf}");
            }
        }
    }
}
