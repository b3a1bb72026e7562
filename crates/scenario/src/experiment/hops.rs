//! Approximate numbers of packet hops, against which progress is measured.

use super::Experiment;
use crate::plans::Message;
use strandway_collective::{Group, InNetwork, Multicast, Operation, Pipe, Rank, Schedule};
use strandway_serving::Service;

impl Experiment {
    /// Approximate number of packet hops of the run without retransmissions; progress is measured against it.
    pub fn expected_hops(&self) -> u64 {
        let hops = |m: &Message| {
            let (from, to) = self.ends(m);
            let transport = &self.profile_of(m).transport;
            let mtu = u64::from(transport.mtu);
            let acks = mtu as f64 / transport.ack_every.0.max(mtu) as f64;
            let data = m.bytes.div_ceil(mtu).max(1) * self.plan.topology.hops(from, to) as u64;
            data as f64 * (1.0 + acks)
        };
        let rows = self.messages.iter().map(hops).sum::<f64>();
        let tallied = self.collectives.iter().filter(|c| c.tallied).filter_map(|c| self.operation_of(c));
        let tallied = tallied.map(|operation| match operation {
            Operation::Messages(group) => {
                group.schedule().map_or_else(|| self.hops_of_table(group), |schedule| self.hops_of(group, schedule))
            }
            Operation::Multicast(multicast) => self.hops_of_multicast(multicast),
            Operation::InNetwork(network) => self.hops_in_network(network),
            Operation::PointToPoint(pipe) => self.hops_of_pipe(pipe),
            Operation::Job(_) => 0.0,
        });
        let services = self.services.iter().map(|plan| self.hops_of_service(&plan.service));
        (rows + tallied.sum::<f64>() + services.sum::<f64>()) as u64
    }

    /// Packet hops of the KV caches of a service, as if no prompt were in a prefix cache.
    fn hops_of_service(&self, service: &Service) -> f64 {
        if service.prefill as usize == service.replicas.len() {
            return 0.0;
        }
        let Some((from, to)) = service.lanes(0, service.prefill).next() else { return 0.0 };
        let transport = &self.plan.profiles[usize::from(service.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        let tokens: f64 = service.requests.iter().map(|request| f64::from(request.input)).sum();
        let (from, to) = (service.hosts[from as usize], service.hosts[to as usize]);
        tokens * service.kv_bytes as f64 / mtu * (1.0 + acks) * self.plan.topology.hops(from, to) as f64
    }

    /// Packet hops of a collective without entries, computed from a sample of its ranks and all their peers.
    fn hops_of(&self, group: &Group, schedule: &Schedule) -> f64 {
        let some = (0..schedule.ranks()).step_by((schedule.ranks() / 64).max(1) as usize).map(Rank);
        let pairs = some.flat_map(|rank| (0..schedule.peers()).map(move |peer| (rank, peer)));
        let lengths = pairs.map(|(rank, peer)| {
            let to = schedule.send(rank, peer * schedule.parts()).to;
            self.plan.topology.hops(group.hosts[rank.0 as usize], group.hosts[to.0 as usize]) as f64
        });
        let (sum, count) = lengths.fold((0.0, 0.0), |(sum, count), hops| (sum + hops, count + 1.0));
        let transport = &self.plan.profiles[usize::from(group.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let packets = (schedule.volume() as f64 / group.messages() as f64 / mtu).ceil().max(1.0);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        // Every message has at least one acknowledgement.
        group.messages() as f64 * (packets * (1.0 + acks)).max(packets + 1.0) * sum / count
    }

    /// Packet hops of messages between two ranks of a job.
    fn hops_of_pipe(&self, pipe: &Pipe) -> f64 {
        let transport = &self.plan.profiles[usize::from(pipe.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let packets = (pipe.bytes as f64 / f64::from(pipe.pieces) / mtu).ceil().max(1.0);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        let hops = self.plan.topology.hops(pipe.ends[0], pipe.ends[1]) as f64;
        pipe.messages() as f64 * (packets * (1.0 + acks)).max(packets + 1.0) * hops
    }

    /// Packet hops of a collective that follows a recipe, computed from a sample of its messages.
    fn hops_of_table(&self, group: &Group) -> f64 {
        let transport = &self.plan.profiles[usize::from(group.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        let all = group.plans().messages() as u32;
        let some = (0..all).step_by((all as usize / 1024).max(1));
        let hops = some.filter_map(|message| group.ends(group.number_of(message, 0))).map(|((from, to), bytes)| {
            let packets = (bytes as f64 / mtu).ceil().max(1.0);
            (packets * (1.0 + acks)).max(packets + 1.0) * self.plan.topology.hops(from, to) as f64
        });
        let (sum, count) = hops.fold((0.0, 0.0), |(sum, count), hops| (sum + hops, count + 1.0));
        group.messages() as f64 * sum / f64::max(count, 1.0)
    }

    /// Packet hops of a multicast: every chunk crosses each cable to a rank, leaf and pod once (multicast sheet,
    /// section 8.3).
    fn hops_of_multicast(&self, multicast: &Multicast) -> f64 {
        let topology = &self.plan.topology;
        let mut leaves: Vec<u32> = multicast.ranks.hosts().iter().map(|&host| topology.leaf_of(host)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let crossed = f64::from(multicast.ranks.count()) + if leaves.len() > 1 { leaves.len() as f64 } else { 0.0 };
        let layout = &multicast.layout;
        let chunks: f64 = (0..layout.shares()).map(|share| f64::from(layout.chunks(share))).sum();
        // Letters of three barriers, each with its acknowledgement.
        let ranks = f64::from(multicast.ranks.count());
        chunks * crossed + ranks * 6.0 * ranks.log2().ceil() * 4.0
    }

    /// Packet hops of a job whose gradients switches add: every fragment crosses its worker's cable upwards, and every
    /// result downwards.
    fn hops_in_network(&self, network: &InNetwork) -> f64 {
        let Some(plan) = self.aggregated(network) else { return 0.0 };
        let racks = plan.job.racks().len() as f64;
        let between = if racks > 1.0 { 4.0 * racks } else { 0.0 };
        (plan.keys() * u64::from(plan.iterations)) as f64 * (2.0 * plan.job.workers().len() as f64 + between)
    }
}
