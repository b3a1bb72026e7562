//! The counts of data packets by path, for searches of gray links.

use super::Paths;
use std::collections::BTreeMap;
use std::fmt::Write;
use strandway_proto::path::PathCounts;

/// The data packets of one path of a connection, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRow {
    /// The receiving host's number in the fabric.
    pub peer: u32,
    /// The connection, by a number that no other one of the node has.
    pub connection: u64,
    /// The counts.
    pub counts: PathCounts,
}

/// All nodes' rows as JSON. A row is a list: peer, connection, plane, entropy value, packets sent, lost and trimmed, round
/// trips measured, their sum in nanoseconds, and packets that arrived from the peer.
pub(super) fn text(nodes: &BTreeMap<u64, Paths>) -> String {
    let mut text = String::from("{\"format\":1,\"nodes\":[");
    for (at, (part, (number, host, rows))) in nodes.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{{\"part\":{part},\"number\":{number},\"host\":{host},\"paths\":[");
        for (at, PathRow { peer, connection, counts }) in rows.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let PathCounts { path, sent, lost, trimmed, measured, rtts, arrived } = counts;
            let (plane, entropy, rtts) = (path.port(), path.entropy(), rtts.0 / 1_000);
            let _ = write!(
                text,
                "{comma}[{peer},{connection},{plane},{entropy},{sent},{lost},{trimmed},{measured},{rtts},{arrived}]"
            );
        }
        text.push_str("]}");
    }
    text.push_str("]}\n");
    text
}
