//! The missed rows with other values of what the paper does not say, and the permutation without parts of MRC.

use super::operations::glitch;
use super::{COLLECTIVE_TIME, PERMUTATION, T1_DEAD, all_to_all_of, fairness, on_roce, ring_of};
use crate::table::{Cell, RowSpec, Table, Value};
use strandway_report::reproduction::Source;

/// The missed rows with other values of quantities that the paper does not give. These rows have no verdict.
pub(super) fn unknowns(table: &mut Table) {
    table.section("Why: the missed rows over what the paper does not say");
    let all = Cell::new(PERMUTATION).seeds(3);
    for (id, what, set) in [
        (
            "ecn-early",
            "marks from 0.1 to 0.4 BDP",
            &[("fabric.ecn_low", "0.1 BDP"), ("fabric.ecn_high", "0.4 BDP")][..],
        ),
        ("ecn-late", "marks from 0.4 to 0.95 BDP", &[("fabric.ecn_low", "0.4 BDP"), ("fabric.ecn_high", "0.95 BDP")]),
        ("latency", "links of 1 us, so that queues and thresholds hold more packets", &[("fabric.latency", "1 us")]),
        ("size", "flows of 128 MB", &[("workload.size", "128 MB")]),
    ] {
        let row = RowSpec::new(
            format!("why/e6/{id}"),
            format!("E6, fastest over slowest flow: {what}"),
            "",
            fairness(&all.clone().with(set)),
        );
        table.row(row.published(0.97, Source::Ours));
    }
    let over = |roce: Cell, mrc: Cell| Value::Of(roce, COLLECTIVE_TIME).over(Value::Of(mrc, COLLECTIVE_TIME));
    let one = |cell: Cell| cell.set("fabric.planes", "1");
    let mut e7 = |id: &str, what: String, value: Value| {
        table.row(RowSpec::new(format!("why/e7/{id}"), what, "", value).sibling(1.0, Source::Published));
    };
    for (id, size, pairs) in [("4mb", "4 MB", 1), ("4mb", "4 MB", 16), ("16mb", "16 MB", 16)] {
        e7(
            &format!("ring/{id}/1-plane.{pairs}"),
            format!("ring of {size}, RoCEv2 with {pairs} queue pairs over MRC on one plane of 400 Gb/s, too"),
            over(on_roce(ring_of(size), pairs), one(ring_of(size))),
        );
    }
    let cut = |cell: Cell| cell.set("fabric.switching", "cut-through");
    for (id, size, pairs) in [("4mb", "4 MB", 1), ("4mb", "4 MB", 16), ("16mb", "16 MB", 16)] {
        e7(
            &format!("ring/{id}/cut-through.{pairs}"),
            format!("ring of {size}, RoCEv2 with {pairs} queue pairs over MRC, both through switches that cut through"),
            over(cut(on_roce(ring_of(size), pairs)), cut(ring_of(size))),
        );
    }
    for size in ["64 kB", "256 kB"] {
        e7(
            &format!("all-to-all/{}/cut-through", size.replace(' ', "").to_lowercase()),
            format!(
                "all-to-all of {size}, RoCEv2 with 16 queue pairs over MRC, both through switches that cut through"
            ),
            over(cut(on_roce(all_to_all_of(size), 16)), cut(all_to_all_of(size))),
        );
    }
    e7(
        "all-to-all/64kb/1-plane",
        "all-to-all of 64 kB, RoCEv2 with 16 queue pairs over MRC on one plane of 400 Gb/s, too".into(),
        over(on_roce(all_to_all_of("64 kB"), 16), one(all_to_all_of("64 kB"))),
    );
    let sixteen = one(all_to_all_of("64 kB")).set("workload.connections", 16);
    e7(
        "all-to-all/64kb/1-plane.16",
        "all-to-all of 64 kB, both with sixteen connections and on one plane of 400 Gb/s".into(),
        over(on_roce(all_to_all_of("64 kB"), 16), sixteen.set("profile.nscc.per_destination", false)),
    );
    e7(
        "all-to-all/256kb/queue",
        "all-to-all of 256 kB, RoCEv2 with 16 queue pairs over MRC with queues of 3 BDP".into(),
        over(on_roce(all_to_all_of("256 kB"), 16), all_to_all_of("256 kB").set("fabric.queue", "3 BDP")),
    );
    for (id, size, full) in [("64mb", "64 MB", false), ("512mb", "512 MB", false), ("1gb", "1 GB", true)] {
        let row = RowSpec::new(format!("why/p4/{id}"), format!("P4 with an all-reduce of {size}"), "", glitch(size));
        let row = row.sibling(0.75, Source::Published);
        table.row(if full { row.full() } else { row });
    }
}

/// The permutation with parts of MRC removed: without faults, and with a T1 that dies silently after 100 us.
pub(super) fn ablations(table: &mut Table) {
    table.section("Ablations: permutation on 128 NICs, 64 MB, slowest flow");
    for (id, what, set) in [
        ("mrc", "MRC as it is", &[][..]),
        ("no-trimming", "no trimming, queues of 5 BDP", &[("fabric.trimming", "false"), ("fabric.queue", "5 BDP")]),
        ("no-skip", "marks ignored by the selector", &[("profile.mrc.skip_marked", "false")]),
        ("no-backups", "no backups", &[("profile.mrc.backup", "0")]),
        ("last-hop-marks", "marks at the last hop, too", &[("fabric.ecn_last_hop", "true")]),
        ("ecmp", "hashing switches instead of source routes", &[("fabric.routing", "hashed")]),
        (
            "uec",
            "Ultra Ethernet with bitmap over hashing switches",
            &[("profile.name", "uec"), ("fabric.routing", "hashed")],
        ),
    ] {
        let cell = Cell::new(PERMUTATION).seeds(3).with(set);
        table.row(RowSpec::new(format!("ablation/{id}"), format!("{what}, healthy"), "us", Value::slowest(&cell)));
        let silent = cell.set("faults", format!("[{T1_DEAD}]"));
        table.row(RowSpec::new(
            format!("ablation/{id}.t1"),
            format!("{what}, a T1 dead for 300 us"),
            "us",
            Value::slowest(&silent),
        ));
    }
}
