//! Ultra Ethernet beside its public simulator: NSCC, receiver credit, and both; distributions over many seeds; and the
//! link layer, for which nobody has published numbers.

use super::Set;
use super::table::{Cell, RowSpec, SLOWEST, Table, Template, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set {
    name: "uec",
    about: "Ultra Ethernet: NSCC, receiver credit and both; serial all-to-alls; the link layer",
    takes: "three minutes on two processors",
    table,
};

const REFERENCE: Source = Source::ReferenceSimulator;

const MATRIX: Template = template!("uec.toml");
const LINK: Template = template!("uec_link.toml");

/// Seeds of incasts, which hardly depend on luck.
const SEEDS: u64 = 5;
/// Seeds of permutations.
const MANY: u64 = 10;

/// Keys of a scenario, with their values.
type Keys = &'static [(&'static str, &'static str)];

/// A congestion control, and the column of the reference's results that it has.
struct Control {
    id: &'static str,
    name: &'static str,
    keys: Keys,
}

const CONTROLS: [Control; 3] = [
    Control { id: "nscc", name: "NSCC", keys: &[] },
    Control {
        id: "rccc",
        name: "receiver credit",
        keys: &[("profile.congestion", "rccc"), ("profile.switch.ecn_last_hop", "false")],
    },
    Control {
        id: "both",
        name: "NSCC and receiver credit",
        keys: &[("profile.nscc.receiver_credit", "true"), ("profile.switch.ecn_last_hop", "false")],
    },
];

/// A matrix, with the reference's results for each control: the slowest and the fastest flow.
struct Matrix {
    id: &'static str,
    what: &'static str,
    keys: Keys,
    seeds: u64,
    slowest: [f64; 3],
    /// A further number of the report: what it is, its unit, its key, and the reference's values.
    further: Further,
}

/// See [`Matrix::further`].
type Further = Option<(&'static str, &'static str, &'static str, [f64; 3])>;

/// Keys of further numbers.
const FASTEST: (&str, &str, &str) = ("fastest flow", "us", "fct_us.min");
const AGAIN: (&str, &str, &str) = ("sent again", "packets", "packets.retransmitted");
const VICTIM: (&str, &str, &str) = ("the flow of host 1, the fastest", "us", "fct_us.min");

const fn further(of: (&'static str, &'static str, &'static str), values: [f64; 3]) -> Further {
    Some((of.0, of.1, of.2, values))
}

const PAIR: &str = "[{ from = 0, to = 13, size = \"2 MB\" }, { from = 13, to = 0, size = \"2 MB\" }]";

/// Two senders that also send to ten other hosts meet host 1 at host 0.
const OUTCAST: &str = "[{ from = 1, to = 0 }, { from = 2, to = 0 }, { from = 2, to = 4 }, { from = 2, to = 5 }, \
    { from = 2, to = 6 }, { from = 2, to = 7 }, { from = 2, to = 8 }, { from = 2, to = 9 }, { from = 2, to = 10 }, \
    { from = 2, to = 11 }, { from = 2, to = 12 }, { from = 3, to = 0 }, { from = 3, to = 13 }, { from = 3, to = 14 }, \
    { from = 3, to = 15 }, { from = 3, to = 16 }, { from = 3, to = 17 }, { from = 3, to = 18 }, { from = 3, to = 19 }, \
    { from = 3, to = 20 }, { from = 3, to = 21 }]";

const MATRICES: [Matrix; 8] = [
    Matrix {
        id: "one",
        what: "one flow of 2 MB",
        keys: &[("workload.kind", "flows"), ("workload.flows", "[{ from = 0, to = 13, size = \"2 MB\" }]")],
        seeds: 1,
        slowest: [176.2, 177.368, 177.368],
        further: None,
    },
    Matrix {
        id: "bidir",
        what: "a flow each way",
        keys: &[("workload.kind", "flows"), ("workload.flows", PAIR)],
        seeds: 1,
        slowest: [176.804, 178.18, 178.18],
        further: None,
    },
    Matrix {
        id: "incast-15",
        what: "15 to 1",
        keys: &[("workload.kind", "incast"), ("workload.senders", "15")],
        seeds: SEEDS,
        slowest: [2478.53, 2464.44, 2462.92],
        further: further(FASTEST, [1273.56, 2368.38, 2387.91]),
    },
    Matrix {
        id: "incast-127",
        what: "127 to 1",
        keys: &[("fabric.k", "8"), ("workload.kind", "incast"), ("workload.senders", "127")],
        seeds: SEEDS,
        slowest: [21_029.3, 20_891.4, 20_892.4],
        further: further(AGAIN, [72_623.0, 6_218.0, 6_226.0]),
    },
    Matrix {
        id: "outcast",
        what: "two outcasts meet in an incast",
        keys: &[("fabric.k", "8"), ("workload.kind", "flows"), ("workload.flows", OUTCAST)],
        seeds: SEEDS,
        slowest: [1638.08, 1637.76, 1634.11],
        further: further(VICTIM, [208.019, 235.068, 200.108]),
    },
    Matrix {
        id: "perm-16",
        what: "permutation of 16 hosts",
        keys: &[],
        seeds: MANY,
        slowest: [194.022, 195.673, 196.774],
        further: None,
    },
    Matrix {
        id: "perm-1024",
        what: "permutation of 1,024 hosts",
        keys: &[("fabric.k", "16")],
        seeds: 3,
        slowest: [200.507, 203.384, 202.633],
        further: further(FASTEST, [167.619, 168.902, 168.871]),
    },
    Matrix {
        id: "perm-1024/one-path",
        what: "permutation of 1,024 hosts, one path",
        keys: &[("fabric.k", "16"), ("profile.bitmap.entropies", "1")],
        seeds: 3,
        slowest: [889.92, 1063.0, 1047.05],
        further: further(AGAIN, [25_621.0, 751_044.0, 25_032.0]),
    },
];

/// The row of the slowest flow, below `id`.
fn slowest(id: &str, what: &str, cell: &Cell) -> RowSpec {
    RowSpec::new(format!("{id}/slowest"), format!("{what}, slowest flow"), "us", Value::slowest(cell))
}

fn table() -> Table {
    let mut table = Table::default();
    for matrix in &MATRICES {
        table.section(format!("Acceptance matrix: {}", matrix.what));
        for (n, control) in CONTROLS.iter().enumerate() {
            let cell = Cell::new(MATRIX).with(matrix.keys).with(control.keys).seeds(matrix.seeds);
            let id = format!("{}/{}", matrix.id, control.id);
            let row = slowest(&id, control.name, &cell).near(matrix.slowest[n], REFERENCE, SLOWEST);
            table.row(row);
            if let Some((what, unit, key, values)) = matrix.further {
                let id = format!("{id}/{}", key.rsplit('.').next().unwrap_or_default());
                let what = format!("{}, {what}", control.name);
                let value = Value::Of(cell.clone(), key);
                table.row(RowSpec::new(id, what, unit, value).near(values[n], REFERENCE, SLOWEST));
            }
        }
    }
    serial(&mut table);
    link_layer(&mut table);
    table
}

/// The effect of link-layer retry and of credit on links. There are no published numbers.
fn link_layer(table: &mut Table) {
    let cell = |probability: &str| {
        Cell::new(LINK).seeds(SEEDS).set("faults.0.probability", probability).set("faults.1.probability", probability)
    };
    let kinds: [(&str, &str, Keys); 4] = [
        ("drop", "neither", &[]),
        ("llr", "retry", &[("fabric.llr", "true")]),
        ("cbfc", "credit", &[("fabric.cbfc", "true")]),
        ("llr-cbfc", "retry and credit", &[("fabric.llr", "true"), ("fabric.cbfc", "true")]),
    ];
    for probability in ["0.0", "1e-5", "1e-4", "1e-3", "1e-2"] {
        table.section(format!("Link layer: permutation of 128 hosts, corruption of {probability} per cable"));
        for (id, what, keys) in kinds {
            let cell = cell(probability).with(keys);
            let id = format!("link/{probability}/{id}");
            table.row(slowest(&id, what, &cell));
            let of = |key| Value::Of(cell.clone(), key);
            let again = format!("{what}, sent again end to end");
            table.row(RowSpec::new(format!("{id}/again"), again, "packets", of("packets.retransmitted")));
            if id.contains("llr") {
                let row =
                    RowSpec::new(format!("{id}/lost"), format!("{what}, lost by links"), "packets", of("packets.lost"));
                table.row(row.at_most(0.0, Source::Ours));
            }
        }
    }
}

/// Serial all-to-alls: each host sends 2 MB to one host after the other, the next when the last acknowledgement is in.
/// Two hosts meet at a receiver by chance, so one run says nothing: both sides have 20 random orders of the hosts, and
/// the tolerance is the half width of the reference's 95 % confidence interval, 1 % at least.
fn serial(table: &mut Table) {
    table.section("Serial all-to-alls of 16 hosts, 20 random orders on both sides");
    let cell = Cell::new(MATRIX)
        .with(&[("workload.kind", "all-to-all"), ("workload.window", "1"), ("workload.placement", "random")])
        .seeds(20);
    for (id, what, key, reference, half_width) in [
        ("mean", "mean flow", "fct_us.mean", 189.7, 1.1),
        ("p50", "median flow", "fct_us.p50", 187.6, 0.6),
        ("p90", "90th percentile", "fct_us.p90", 203.2, 3.2),
        ("p99", "99th percentile", "fct_us.p99", 239.2, 10.8),
        ("max", "slowest flow", "fct_us.max", 271.8, 22.0),
    ] {
        let tolerance = f64::max(half_width / reference, 0.01);
        let row = RowSpec::new(format!("serial/{id}"), what, "us", Value::Of(cell.clone(), key));
        let note = format!(
            "the reference's runs: {reference} \u{b1} {half_width} (95 %), measured with its snapshot of August 2025"
        );
        table.row(row.near(reference, REFERENCE, tolerance).note(note));
    }
}
