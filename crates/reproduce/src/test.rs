//! Rows for tests of the code around them: one for each verdict, in a tenth of a second.

use super::Set;
use super::table::{Cell, RowSpec, Table, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set { name: "test", about: "One row of each verdict", takes: "no time", table };

fn table() -> Table {
    let cell = Cell::new(template!("prime.toml"))
        .with(&[
            ("fabric.hosts", "8"),
            ("fabric.hosts_per_leaf", "4"),
            ("fabric.spines", "4"),
            ("workload.size", "100 kB"),
        ])
        .seeds(2);
    let slowest = || Value::slowest(&cell);
    let mut table = Table::default();
    table.section("Rows that are known");
    // At 400 Gb/s, 100 kB take 2 us, and a round trip takes 8 us.
    table.row(RowSpec::new("met", "slowest of 8 flows", "us", slowest()).near(11.0, Source::Arithmetic, 0.2));
    table.row(RowSpec::new("missed", "the same", "us", slowest()).near(1.0, Source::Arithmetic, 0.05));
    table.row(RowSpec::new("unknown", "the same", "us", slowest()));
    let ratio = RowSpec::new("ratio", "the same over itself", "", slowest().over(slowest()));
    table.row(ratio.near(1.0, Source::Arithmetic, 0.0));
    table
}
