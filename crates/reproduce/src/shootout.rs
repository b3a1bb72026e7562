//! Every transport on one fabric: comparisons of our own numbers, without published values.

use super::Set;
use super::table::{Cell, RowSpec, Table, Template, Value, template};

pub(super) const SET: Set = Set {
    name: "shootout",
    about: "Eight transports on one fabric of 1,024 hosts: permutation, slow uplinks, incast, all-to-all",
    takes: "two minutes on two processors",
    table,
};

const HEALTHY: Template = template!("shootout.toml");
const DEGRADED: Template = template!("shootout_degraded.toml");

/// Identifier, profile, kind of switch.
const TRANSPORTS: [(&str, &str, &str); 8] = [
    ("rocev2", "rocev2", "hashed"),
    ("uec-oblivious", "uec/oblivious", "hashed"),
    ("uec-reps", "uec/reps", "hashed"),
    ("uec-bitmap", "uec/bitmap", "hashed"),
    ("strack", "strack", "hashed"),
    ("strack_fast", "strack_fast", "hashed"),
    ("uec-bitmap-direct", "uec/bitmap", "direct"),
    ("prime", "prime", "direct"),
];

fn table() -> Table {
    let mut table = Table::default();
    let incast = [("workload.kind", "incast"), ("workload.senders", "64"), ("workload.size", "1 MB")];
    let all_to_all = [
        ("workload.kind", "all-to-all"),
        ("workload.group", "128"),
        ("workload.placement", "random"),
        ("workload.size", "64 kB"),
    ];
    for (id, what, cell) in [
        ("permutation", "Permutation of 2 MB", Cell::new(HEALTHY)),
        ("slow-uplinks", "The same with the links of spine 0 at a quarter of their rate", Cell::new(DEGRADED)),
        ("incast", "64 to 1, 1 MB each", Cell::new(HEALTHY).with(&incast)),
        (
            "all-to-all",
            "All-to-all in groups of 128 placed at random, 64 kB per pair",
            Cell::new(HEALTHY).with(&all_to_all),
        ),
    ] {
        table.section(format!("{what}: 1,024 hosts"));
        for (name, profile, routing) in TRANSPORTS {
            let cell = cell.clone().seeds(3).set("profile.name", profile).set("fabric.routing", routing);
            // The time that users wait for: that of the slowest flow, or of the slowest rank.
            let value = if id == "all-to-all" {
                Value::Of(cell, "collectives.all-to-all.time_us")
            } else {
                Value::slowest(&cell)
            };
            let switch = if routing == "direct" { ", indexed uplinks" } else { "" };
            table.row(RowSpec::new(format!("{id}/{name}"), format!("{profile}{switch}"), "us", value));
        }
    }
    table
}
