//! `[servers]`: the GPUs of each server, the links between them, and the port of the fabric for each NIC.

use crate::fabric::Fabric;
use crate::keys;
use crate::reader::{Section, Sink};
use crate::scenario::Scenario;
use strandway_collective::server::GPUS_MAX;
use strandway_import::leaf_spine::EqualServers;
use strandway_import::nccl::{self, Server};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Rate, Span};

/// The leaves to which the NICs of a server are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// All to one leaf, next to each other.
    ByServer,
    /// NIC `i` to leaf `i` of a group of leaves, which serves as many servers as a leaf has ports.
    RailOptimised,
    /// Like `RailOptimised`, and no message may leave its rail.
    RailOnly,
}

/// The servers of a fabric.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) gpus: u32,
    pub(crate) nics: u32,
    /// Rate of the links inside a server, per GPU and direction.
    pub(crate) rate: Rate,
    pub(crate) latency: Span,
    pub(crate) wiring: Wiring,
    /// Number of servers.
    pub(crate) count: u32,
    /// Number of servers below one leaf, or below one group of leaves with a rail each.
    pub(crate) per_block: u32,
    hosts_per_leaf: u32,
    /// The assumptions of a run that the file of a server does not state.
    pub(crate) assumed: Vec<String>,
}

/// Reads `[servers]`. Without it every host is a server with one GPU.
pub(crate) fn read(sink: &Sink, scenario: &Scenario, fabric: &Fabric) -> Servers {
    let topology = &fabric.topology;
    let root = &scenario.table;
    let section = Section::of(sink, root, "servers");
    let written = root.contains_key("servers");
    let topo = described(&section, scenario);
    let assumed = topo.as_ref().map(Server::assumed).unwrap_or_default();
    let file = topo.or(fabric.described.as_ref().map(of_fabric)).unwrap_or_default();
    let gpus = section.count("gpus", 1, GPUS_MAX.into()).map(|n| n as u32);
    let gpus = gpus.or(Some(file.gpus).filter(|n| *n > 0)).unwrap_or(if written { 8 } else { 1 });
    let nics = section.count("nics", 1, GPUS_MAX.into()).map(|n| n as u32);
    let nics = nics.or(Some(file.nics).filter(|n| *n > 0)).unwrap_or(gpus);
    let rate = section.rate("rate").or(file.inside).unwrap_or(Rate::from_gbps(3600));
    let known = fabric.described.as_ref().and_then(|made| Some(made.inside?.1));
    let latency = section.span("latency").or(known).unwrap_or(Span::from_us(1));
    let mut wiring = match section.choice("wiring", &["by-server", "rail-optimised", "rail-only"]) {
        Some("rail-optimised") => Wiring::RailOptimised,
        Some("rail-only") => Wiring::RailOnly,
        None if file.rails > 1 => Wiring::RailOptimised,
        _ => Wiring::ByServer,
    };
    // In a reduced run one rail stands for several.
    let rails = scenario.reduction.rails;
    let (gpus, nics) = (gpus / rails.min(gpus), nics / rails.min(nics));
    let (hosts, hosts_per_leaf) = (topology.hosts(), topology.shape().hosts_per_leaf);
    if !gpus.is_multiple_of(nics) {
        sink.add("servers.nics", nics, format!("does not divide the {gpus} GPUs of a server"), "write a divisor");
    }
    if !hosts.is_multiple_of(nics) {
        let what = format!("does not divide the fabric's {hosts} hosts, each of which is a NIC");
        sink.add("servers.nics", nics, what, "change fabric.hosts or servers.nics");
    }
    let rails = wiring != Wiring::ByServer;
    if rails && !hosts.is_multiple_of(hosts_per_leaf * nics) {
        let what =
            format!("needs {nics} full leaves per group of {hosts_per_leaf} servers, and there are {hosts} hosts");
        section.wrong("wiring", what, "make fabric.hosts a multiple of hosts_per_leaf times servers.nics");
        // The scenario is refused. Until all its problems are known, every GPU needs a host that exists.
        wiring = Wiring::ByServer;
    }
    keys::finish(section, "servers");
    let per_block = if wiring != Wiring::ByServer { hosts_per_leaf } else { (hosts_per_leaf / nics).max(1) };
    let assumed = assumed.into_iter().map(|what| format!("servers.topo: {what}")).collect();
    Servers { gpus, nics, rate, latency, wiring, count: hosts / nics, per_block, hosts_per_leaf, assumed }
}

/// The server of a file that describes the whole fabric.
fn of_fabric(made: &EqualServers) -> Server {
    Server {
        gpus: made.gpus,
        nics: made.nics,
        inside: made.inside.map(|(rate, _)| rate),
        rails: if made.rails { made.nics } else { 0 },
        ..Server::default()
    }
}

/// The server that `topo` describes. Problems go into the section's sink.
fn described(section: &Section<'_>, scenario: &Scenario) -> Option<Server> {
    let name = section.text("topo")?;
    match scenario.read(&name).and_then(|(file, text)| nccl::parse(&file, &text)) {
        Ok(server) if server.gpus > GPUS_MAX || server.nics > GPUS_MAX => {
            section.wrong("topo", format!("has more than {GPUS_MAX} GPUs or NICs"), "describe one server");
            None
        }
        Ok(server) => Some(server),
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

impl Servers {
    /// The host (the NIC) of a GPU of a server.
    pub(crate) fn host(&self, server: u32, gpu: u32) -> HostId {
        let nic = (u64::from(gpu) * u64::from(self.nics) / u64::from(self.gpus)) as u32;
        HostId(match self.wiring {
            Wiring::ByServer => server * self.nics + nic,
            Wiring::RailOptimised | Wiring::RailOnly => {
                let (block, place) = (server / self.hosts_per_leaf, server % self.hosts_per_leaf);
                (block * self.nics + nic) * self.hosts_per_leaf + place
            }
        })
    }

    /// Does every NIC of a server belong to another rail?
    pub(crate) fn has_rails(&self) -> bool {
        self.wiring != Wiring::ByServer
    }

    /// The order in which a spread job takes servers: one server of each leaf, or group of leaves, in turn.
    pub(crate) fn spread(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.count).collect();
        all.sort_by_key(|server| (server % self.per_block, server / self.per_block));
        all
    }

    /// The time for which the links inside a server are busy with `bytes` bytes per GPU, in `steps` steps that wait for
    /// each other.
    pub(crate) fn time(&self, bytes: u64, steps: u64) -> Span {
        self.rate.time_for(Bytes(bytes)) + self.latency * steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(wiring: Wiring) -> Servers {
        Servers {
            gpus: 8,
            nics: 4,
            rate: Rate::from_gbps(3600),
            latency: Span::from_us(1),
            wiring,
            count: 8,
            per_block: 4,
            hosts_per_leaf: 4,
            assumed: Vec::new(),
        }
    }

    #[test]
    fn rails_keep_nics_of_one_number_below_one_leaf() {
        let rails = servers(Wiring::RailOptimised);
        let mut seen = std::collections::BTreeSet::new();
        for server in 0..8 {
            for gpu in (0..8).step_by(2) {
                let host = rails.host(server, gpu);
                assert_eq!(host, rails.host(server, gpu + 1), "two GPUs have one NIC");
                assert_eq!(host.0 / 4, server / 4 * 4 + gpu / 2, "the leaf of the rail");
                assert!(seen.insert(host.0) && host.0 < 32);
            }
        }
        let plain = servers(Wiring::ByServer);
        assert_eq!((0..8).map(|gpu| plain.host(1, gpu).0).collect::<Vec<_>>(), [4, 4, 5, 5, 6, 6, 7, 7]);
    }

    #[test]
    fn a_spread_job_visits_all_blocks_first() {
        assert_eq!(servers(Wiring::RailOptimised).spread(), [0, 4, 1, 5, 2, 6, 3, 7]);
    }
}
