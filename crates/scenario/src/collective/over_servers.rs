//! Collectives whose ranks are the GPUs of servers: when they are, and with how many ranks.

use super::placement::Placed;
use super::{AlgorithmKeys, CollectiveKeys};
use crate::job::OnServers;
use crate::maker::{Maker, fits};
use strandway_collective::{Algorithm, Placement};
use strandway_import::trace::Kind;
use strandway_proto::units::Bytes;

impl Maker<'_> {
    /// Whether a collective has the GPUs of servers as its ranks. If not although servers have several GPUs, a note
    /// says why.
    pub(super) fn runs_on_servers(&mut self, written: &CollectiveKeys) -> bool {
        if self.context.servers.gpus == 1 {
            return false;
        }
        let why = match written {
            CollectiveKeys { servers: Some(false), .. } => "servers = false",
            CollectiveKeys { over: None, .. } => "of its kind or algorithm, only NICs as ranks are modelled",
            CollectiveKeys { placement: Placed { placement: Placement::List(_), .. }, .. } => {
                "its placement lists NICs"
            }
            _ if self.workload.ordered.is_some() => "`ordered` chooses among connections of NICs",
            _ => return true,
        };
        if written.servers == Some(true) {
            self.complain("servers", true, format!("is not possible: {why}"), "leave it out");
        }
        let name = &self.workload.class;
        self.traffic.notes.push(format!("{name}: [servers] has no effect on it, each of its ranks is a NIC: {why}"));
        false
    }

    /// Makes all groups of a collective workload whose ranks are GPUs.
    pub(super) fn over_servers(&mut self, written: &CollectiveKeys, limit: Option<u32>) {
        let Some((kind, algorithm)) = written.over.clone() else { return };
        let servers = self.context.servers;
        let there = servers.count * servers.gpus;
        // `hosts` counts NICs.
        let limit =
            limit.map(|nics| (u64::from(nics) * u64::from(there) / u64::from(self.context.topology.hosts())) as u32);
        let ranks = written.ranks.or(limit).unwrap_or(there);
        let size = written.group.unwrap_or(ranks);
        if size < 2 || size > ranks {
            let what = format!("must be between 2 and the {ranks} GPUs");
            return self.complain(if written.group.is_some() { "group" } else { "ranks" }, size, what, "correct it");
        }
        if !ranks.is_multiple_of(size) {
            let what = format!("does not divide the {ranks} GPUs");
            return self.complain("group", size, what, "choose a divisor, or set `ranks`");
        }
        // The size of an all-to-all is that of one message.
        let copies = if kind == Kind::AllToAll { size } else { 1 };
        let bytes = self.workload.common.size.0.saturating_mul(copies.into());
        if fits(self.context.rate, Bytes(bytes.saturating_mul(servers.gpus.into()))).is_none() {
            return self.complain("size", self.workload.common.size, "takes longer than a run can last", "write less");
        }
        let window = match written.algorithm {
            AlgorithmKeys::Schedule(Algorithm::AllToAll { window }) => window,
            _ => 1,
        };
        let random = written.placement.placement == Placement::Random;
        let made = OnServers { kind, algorithm, ranks, size, bytes, parts: written.parts, window, random };
        self.on_servers(made, &written.placement.name);
    }
}
