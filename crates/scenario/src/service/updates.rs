//! Weight updates: new weights from a server of their own to all replicas of a service, while it runs.
//!
//! They are broadcasts, one for each NIC of a replica: NIC `i` of the source sends what NIC `i` of every replica needs.

use super::ServiceKeys;
use crate::collective::CollectiveKeys;
use crate::maker::{Common, Head, Maker};
use crate::reader::Section;
use crate::servers::Servers;
use strandway_collective::BroadcastTree;
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span};

/// The number of pieces in which trees of messages forward their part, unless a scenario says it: ours.
const PIECES: u32 = 64;

/// A weight update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    at: Span,
    /// A tree of messages, or multicast (`None`).
    tree: Option<BroadcastTree>,
    pieces: u32,
    size: Option<Bytes>,
}

/// Reads the keys of an update.
pub(super) fn read(section: &Section<'_>) -> Option<Update> {
    let at = section.span("update_at");
    let tree = section.choice("update", &["multicast", "chain", "binomial", "direct"]);
    let pieces = section.count("update_pieces", 1, 1 << 16).map(|n| n as u32);
    let size = section.bytes("update_size");
    if at.is_none() && !section.has("update_at") {
        for key in ["update", "update_pieces", "update_size"] {
            if section.has(key) {
                section.wrong(key, "belongs to a weight update", "write update_at, or leave it out");
            }
        }
    }
    if size == Some(Bytes::ZERO) {
        section.wrong("update_size", "is nothing to send", "write more, or leave out update_at");
    }
    let tree = match tree {
        Some("chain") => Some(BroadcastTree::Chain),
        Some("binomial") => Some(BroadcastTree::Nomial { radix: 2 }),
        Some("direct") => Some(BroadcastTree::Linear),
        _ => None,
    };
    Some(Update { at: at?, tree, pieces: pieces.unwrap_or(PIECES), size })
}

impl Maker<'_> {
    /// Adds the broadcasts of a weight update to replicas at these places, if the service has one.
    pub(super) fn update_weights(&mut self, written: &ServiceKeys, servers: &Servers, places: &[Vec<(u32, u32)>]) {
        let Some(update) = written.update else { return };
        let nics = |place: &Vec<(u32, u32)>| {
            let mut nics: Vec<HostId> = place.iter().map(|(server, gpu)| servers.host(*server, *gpu)).collect();
            nics.dedup();
            nics
        };
        let replicas: Vec<Vec<HostId>> = places.iter().map(nics).collect();
        let Some(source) = (0..servers.count).find(|server| !self.traffic.taken.contains(server)) else {
            let what = "needs one more server, from which the weights come";
            return self.complain("update_at", update.at, what, "enlarge the fabric, or write fewer replicas");
        };
        self.traffic.taken.push(source);
        let from = nics(&(0..servers.gpus).map(|gpu| (source, gpu)).collect());
        let rails = replicas.iter().map(Vec::len).min().unwrap_or(0).min(from.len());
        let whole = update.size.unwrap_or(Bytes(written.weights())).0;
        for (rail, first) in from.iter().enumerate().take(rails) {
            let hosts = std::iter::once(*first).chain(replicas.iter().map(|nics| nics[rail])).collect();
            let class = format!("{}-weights-{rail}", self.workload.class);
            let common = Common {
                size: Bytes((whole / rails as u64).max(1)),
                start: update.at,
                jitter: Span::ZERO,
                ..self.workload.common.clone()
            };
            let section = self.workload.section.clone();
            let head = Head { class, section, common, profile: None, ordered: None, reads: false };
            let keys = CollectiveKeys::broadcast(hosts, update.tree, update.pieces);
            let class = self.traffic.class(&head.class);
            let mut maker = Maker {
                context: self.context,
                workload: &head,
                traffic: &mut *self.traffic,
                class,
                profile: self.profile,
                random: self.random,
                pairs: Vec::new(),
                placed: Vec::new(),
                full: false,
            };
            maker.collectives(&keys, None);
        }
    }
}
