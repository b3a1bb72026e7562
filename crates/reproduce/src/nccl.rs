//! Bus bandwidths that nccl-tests printed on real servers, as their owners and NVIDIA's engineers report them in the
//! issues of NVIDIA/nccl and NVIDIA/nccl-tests.
//!
//! NCCL's ring algorithm runs a ring per NIC through all GPUs. Inside a server its rings use NVLink, so a NIC carries
//! `2 (n - 1) / n` of its share of the buffer, as in a ring of NICs. That ring is what the rows `ring/*` run: their
//! number is the bus bandwidth of one NIC. Our own collectives on servers go along rails: between servers a NIC carries
//! `2 (m - 1) / m` of its share for `m` servers, as NCCL's trees do. The two differ for few servers only.

use super::Set;
use super::table::{Cell, RowSpec, Table, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set {
    name: "nccl",
    about: "collectives on servers beside what nccl-tests printed on real ones",
    takes: "half a minute on two processors",
    table,
};

/// Within this share of a measured bus bandwidth at 1 GiB.
const WITHIN: f64 = 0.1;

const ALL_REDUCE: &str = "collectives.all-reduce.busbw_GBps";
const ALL_TO_ALL: &str = "collectives.all-to-all.busbw_GBps";

/// Servers of `gpus` GPUs, each with a NIC of this rate.
fn servers(count: u32, gpus: u32, gbps: u32) -> Cell {
    let cell = Cell::new(template!("nccl.toml")).seeds(1);
    cell.set("fabric.hosts", count * gpus).set("servers.gpus", gpus).set("fabric.rate", format!("{gbps} Gbps"))
}

fn table() -> Table {
    let mut table = Table::default();
    rings(&mut table);
    trees(&mut table);
    all_to_all(&mut table);
    table
}

fn rings(table: &mut Table) {
    table.section("All-reduce of 1 GiB with NCCL_ALGO=Ring: bus bandwidth per NIC");
    let ring = |count, gpus, gbps| Value::Of(servers(count, gpus, gbps).set("workload.servers", false), ALL_REDUCE);
    let row = |id: &str, what: &str, value| RowSpec::new(format!("ring/{id}"), what, "GB/s", value);
    table.row(
        row("2x4-200", "two servers of 4 GPUs and 4 NICs of 200 Gb/s", ring(2, 4, 200))
            .near(93.58 / 4.0, Source::Published, WITHIN)
            .note("NVIDIA/nccl-tests issue 252, 93.58 GB/s in all at 1 GiB"),
    );
    table.row(
        row("2x8-200", "two DGX A100, 8 NICs of 200 Gb/s each", ring(2, 8, 200))
            .near(192.0 / 8.0, Source::Published, WITHIN)
            .note("NVIDIA/nccl issue 812, NVIDIA measures 192 GB/s in all"),
    );
    table.row(
        row("2x8-400", "two servers of 8 H100, 8 NICs of 400 Gb/s each", ring(2, 8, 400))
            .near(47.0, Source::Published, WITHIN)
            .note("NVIDIA/nccl-tests issue 290, NVIDIA expects 46 to 48 GB/s per NIC"),
    );
}

fn trees(table: &mut Table) {
    table.section("All-reduce on two servers, by rails: NCCL's trees");
    let one = |size: &str| {
        let cell = servers(2, 1, 400).set("workload.algorithm", "tree").set("workload.pipeline", 8);
        Value::Of(cell.set("workload.size", size), ALL_REDUCE)
    };
    table.row(
        RowSpec::new("tree/2x1-400", "one H100 and one NIC of 400 Gb/s each, 1 GiB, Tree", "GB/s", one("1 GiB"))
            .near(50.0, Source::Published, WITHIN)
            .note("NVIDIA/nccl-tests issue 232, about 50 GB/s for large buffers"),
    );
    table.row(
        RowSpec::new("tree/2x1-400-32mib", "the same, 32 MiB", "GB/s", one("32 MiB"))
            .published(41.31, Source::Published)
            .note("NVIDIA/nccl-tests issue 232; the time of NCCL's kernels and protocols, about 130 us here, is not modelled"),
    );
    table.row(
        RowSpec::new(
            "rails/2x4-200",
            "two servers of 4 GPUs and 4 NICs of 200 Gb/s, 1 GiB",
            "GB/s",
            Value::Of(servers(2, 4, 200), ALL_REDUCE),
        )
        .published(93.58, Source::Published)
        .note(
            "NVIDIA/nccl-tests issue 252, measured with NCCL_ALGO=Ring: rails send half of what rings do on two servers (n - 1 over n \
             of 8 ranks against m - 1 over m of 2 servers); the row ring/2x4-200 compares the ring",
        ),
    );
}

fn all_to_all(table: &mut Table) {
    table.section("All-to-all on servers of 8 GPUs with 8 NICs of 400 Gb/s, 256 MiB");
    for count in [2u32, 4, 8] {
        let ranks = count * 8;
        let cell = servers(count, 8, 400).set("workload.kind", "all-to-all");
        // The size of an all-to-all is that of one message.
        let cell = cell.set("workload.size", format!("{} KiB", 256 * 1024 / ranks));
        let expected = f64::from(count) / f64::from(count - 1) * 50.0;
        table.row(
            RowSpec::new(
                format!("all-to-all/{count}x8-400"),
                format!("{count} servers: N / (N - 1) times the rate of a NIC"),
                "GB/s",
                Value::Of(cell, ALL_TO_ALL),
            )
            .near(expected, Source::Published, WITHIN)
            .note("NVIDIA/nccl-tests issue 130, NVIDIA's formula"),
        );
    }
}
