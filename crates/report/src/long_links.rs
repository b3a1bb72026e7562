//! Long links between sites: traffic and losses of each direction.

use crate::grid::{ALWAYS, Grid};
use crate::links::LinkFacts;
use crate::numbers::{bytes, count, gbps, percent, us};
use serde::{Deserialize, Serialize};

/// Limit on the rows that a terminal shows: the links of four sites. JSON has all of them.
const SHOWN: usize = 12;

/// One direction of a long link between sites.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LongLinkFacts {
    /// Its rate.
    pub rate_gbps: f64,
    /// Its propagation delay.
    pub latency_us: f64,
    /// Limit on the bytes in the data queue of its port.
    pub queue_bytes: u64,
    /// Packets lost divided by packets sent onto it.
    pub lost_share: f64,
    /// Its counters.
    #[serde(flatten)]
    pub link: LinkFacts,
}

/// The links with the most traffic, as a table for a terminal of `width` characters. Real nodes measure no queues.
pub(crate) fn table(links: &[LongLinkFacts], is_simulated: bool, width: Option<usize>) -> String {
    let mut grid = Grid::default();
    for (head, rank, right) in [
        ("long links", ALWAYS, false),
        ("rate", 6, true),
        ("one way", 5, true),
        ("used", ALWAYS, true),
        ("packets", 4, true),
        ("longest queue", 3, true),
        ("of", 2, true),
        ("trimmed", 7, true),
        ("dropped", 8, true),
        ("lost", ALWAYS, true),
        ("share lost", 9, true),
    ] {
        grid.column(head, rank, right);
    }
    let mut order: Vec<&LongLinkFacts> = links.iter().collect();
    order.sort_by_key(|l| std::cmp::Reverse(l.link.bytes));
    for l in order.iter().take(SHOWN) {
        grid.row([
            l.link.name.clone(),
            gbps(l.rate_gbps),
            us(Some(l.latency_us)),
            percent(l.link.utilisation),
            count(l.link.packets),
            if is_simulated { bytes(l.link.queue_max_bytes) } else { "–".to_string() },
            bytes(l.queue_bytes),
            count(l.link.trimmed),
            count(l.link.dropped),
            count(l.link.lost),
            format!("{:.4} %", 100.0 * l.lost_share),
        ]);
    }
    let more = order.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("and {more} more long links\n") } else { String::new() };
    format!("{}{more}", grid.text(width))
}
