//! A second opinion that is not htsim: DCTCP beside ns-3.44 (`TcpDctcp` over a `RedQueueDisc` that marks from a threshold
//! on). One sender, two, eight and thirty-two share the port of one receiver.

use super::Set;
use super::table::{Cell, MEAN, RowSpec, SLOWEST, Table, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set {
    name: "ns3",
    about: "DCTCP beside ns-3: flows that share one port",
    takes: "a few seconds on two processors",
    table,
};

const REFERENCE: Source = Source::ReferenceSimulator;

/// The round trip of ns-3's handshake, which its times contain and ours do not.
const HANDSHAKE: f64 = 40.2;

const GROWTH: &str = "ns-3's window also grows in the round trip of a cut, ours is still there; fluid theory, sqrt(2 / (W + 1)) with a window of W \
    packets at the cut, has 0.26 for two senders and 0.50 for eight";
const SHARES: &str = "the means differ by how unequally the flows share the port; flows of ns-3 start within 1 us of each other, ours at once";

fn table() -> Table {
    let mut table = Table::default();
    table.section("DCTCP beside ns-3.44: flows to one receiver at 10 Gb/s, 10 us per link, marks from 20 packets on");
    // Slowest flow, mean flow and share of marked packets of ns-3, means of five seeds.
    for (senders, size, slowest, mean, marked) in [
        (1, "4 MB", 3431.36, 3431.36, None),
        (2, "4 MB", 6812.62, 6812.35, Some(0.2437)),
        (8, "4 MB", 26_868.7, 26_324.7, Some(0.4687)),
        (32, "1 MB", 26_748.3, 25_707.6, Some(0.6387)),
    ] {
        let cell = Cell::new(template!("dctcp_ns3.toml")).set("workload.senders", senders).set("workload.size", size);
        let row = |last: &str, what: &str, unit, value| {
            RowSpec::new(format!("dctcp/{senders}{last}"), format!("{senders} flows of {size}, {what}"), unit, value)
        };
        let of = row("", "slowest flow", "us", Value::slowest(&cell));
        table.row(of.near(slowest - HANDSHAKE, REFERENCE, SLOWEST));
        let of = row(".mean", "mean flow", "us", Value::mean(&cell));
        table.row(of.near(mean - HANDSHAKE, REFERENCE, MEAN).note(if senders > 1 { SHARES } else { "" }));
        if let Some(marked) = marked {
            let share = Value::Of(cell.clone(), "packets.marked").over(Value::Of(cell, "packets.delivered"));
            table.row(
                row(".marked", "share of marked packets", "", share).near(marked, REFERENCE, SLOWEST).note(GROWTH),
            );
        }
    }
    table
}
