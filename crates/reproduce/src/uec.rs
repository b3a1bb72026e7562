//! Ultra Ethernet beside its public simulator: NSCC, receiver credit, and both; distributions over many seeds; and the
//! link layer, for which nobody has published numbers.

use super::Set;
use super::table::{Cell, RowSpec, SLOWEST, Table, Template, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set {
    name: "uec",
    about: "Ultra Ethernet: NSCC, receiver credit and both on acceptance matrices; serial all-to-alls; link-layer retry",
    takes: "three minutes on two processors",
    table,
};

const REFERENCE: Source = Source::ReferenceSimulator;

const MATRIX: Template = template!("uec.toml");

/// Seeds of incasts, which hardly depend on luck.
const SEEDS: u64 = 5;
/// Seeds of permutations.
const MANY: u64 = 10;

/// A congestion control, and the column of the reference's results that it has.
struct Control {
    id: &'static str,
    name: &'static str,
    keys: &'static [(&'static str, &'static str)],
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
    keys: &'static [(&'static str, &'static str)],
    seeds: u64,
    slowest: [f64; 3],
    fastest: Option<[f64; 3]>,
}

const PAIR: &str = "[{ from = 0, to = 13, size = \"2 MB\" }, { from = 13, to = 0, size = \"2 MB\" }]";

const MATRICES: [Matrix; 7] = [
    Matrix {
        id: "one",
        what: "one flow of 2 MB",
        keys: &[("workload.kind", "flows"), ("workload.flows", "[{ from = 0, to = 13, size = \"2 MB\" }]")],
        seeds: 1,
        slowest: [176.2, 177.368, 177.368],
        fastest: None,
    },
    Matrix {
        id: "bidir",
        what: "a flow each way",
        keys: &[("workload.kind", "flows"), ("workload.flows", PAIR)],
        seeds: 1,
        slowest: [176.804, 178.18, 178.18],
        fastest: None,
    },
    Matrix {
        id: "incast-15",
        what: "15 to 1",
        keys: &[("workload.kind", "incast"), ("workload.senders", "15")],
        seeds: SEEDS,
        slowest: [2478.53, 2464.44, 2462.92],
        fastest: Some([1273.56, 2368.38, 2387.91]),
    },
    Matrix {
        id: "incast-127",
        what: "127 to 1",
        keys: &[("fabric.k", "8"), ("workload.kind", "incast"), ("workload.senders", "127")],
        seeds: SEEDS,
        slowest: [21_029.3, 20_891.4, 20_892.4],
        fastest: Some([10_787.9, 20_354.6, 20_353.9]),
    },
    Matrix {
        id: "perm-16",
        what: "permutation of 16 hosts",
        keys: &[],
        seeds: MANY,
        slowest: [194.022, 195.673, 196.774],
        fastest: None,
    },
    Matrix {
        id: "perm-1024",
        what: "permutation of 1,024 hosts",
        keys: &[("fabric.k", "16")],
        seeds: 3,
        slowest: [200.507, 203.384, 202.633],
        fastest: Some([167.619, 168.902, 168.871]),
    },
    Matrix {
        id: "perm-1024/one-path",
        what: "permutation of 1,024 hosts, one path",
        keys: &[("fabric.k", "16"), ("profile.bitmap.entropies", "1")],
        seeds: 3,
        slowest: [889.92, 1063.0, 1047.05],
        fastest: None,
    },
];

fn slowest(id: String, what: String, cell: &Cell) -> RowSpec {
    RowSpec::new(id, format!("{what}, slowest flow"), "us", Value::slowest(cell))
}

fn table() -> Table {
    let mut table = Table::default();
    for matrix in &MATRICES {
        table.section(format!("Acceptance matrix: {}", matrix.what));
        for (n, control) in CONTROLS.iter().enumerate() {
            let cell = Cell::new(MATRIX).with(matrix.keys).with(control.keys).seeds(matrix.seeds);
            let id = format!("{}/{}", matrix.id, control.id);
            let row = slowest(id.clone(), control.name.to_string(), &cell).near(matrix.slowest[n], REFERENCE, SLOWEST);
            table.row(row);
            if let Some(fastest) = matrix.fastest {
                let least = Value::Of(cell.clone(), "fct_us.min");
                let what = format!("{}, fastest flow", control.name);
                table
                    .row(RowSpec::new(format!("{id}/fastest"), what, "us", least).near(fastest[n], REFERENCE, SLOWEST));
            }
        }
    }
    serial(&mut table);
    table
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
