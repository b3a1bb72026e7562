//! Broadcast and all-gather by multicast (arXiv 2408.13356): traffic on cables, times by number of ranks, and the cost
//! of losses.
//!
//! The paper's figure 2 plots a model of its artifact with two errors (multicast sheet, section 8.3): it counts a
//! message towards a lower rank as two cables, and it counts one copy too many for each share beyond a pod. So no
//! simulation can give its numbers. A test repeats its arithmetic; our numbers are compared with exact formulas.

use super::Set;
use super::table::{Cell, RowSpec, Table, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set {
    name: "mcast_allgather",
    about: "broadcast and all-gather by multicast: traffic, time by ranks, recovery",
    takes: "a quarter of a minute on two processors",
    table,
};

const CHUNK: u64 = 4096;
const TIME: &str = "collectives.cast.time_us";
const GATHER: &str = "collectives.gather.time_us";

fn table() -> Table {
    let mut table = Table::default();
    traffic(&mut table);
    testbed(&mut table);
    broadcast(&mut table);
    recovery(&mut table);
    parity(&mut table);
    sweeps(&mut table);
    concurrent(&mut table);
    receiving(&mut table);
    layers(&mut table);
    table
}

/// Number of cables between two hosts of a fabric.
fn hop(a: u64, b: u64, leaf: u64, pod: u64) -> u64 {
    match () {
        () if a / leaf == b / leaf => 2,
        () if a / pod == b / pod => 4,
        () => 6,
    }
}

/// Number of cables that all shares of an all-gather cross, counted share by share (multicast sheet, section 8.3).
fn crossings(algorithm: &str, ranks: u64, leaf: u64, pod: u64) -> u64 {
    let hop = |a, b| hop(a, b, leaf, pod);
    let more = |size: u64| if ranks > size { ranks.div_ceil(size) } else { 0 };
    match algorithm {
        "multicast" => ranks * (ranks + more(leaf) + more(pod)),
        "ring" => (ranks - 1) * (0..ranks).map(|a| hop(a, (a + 1) % ranks)).sum::<u64>(),
        _ => (0..ranks).flat_map(|a| (0..ranks.ilog2()).map(move |j| (1 << j) * hop(a, a ^ (1 << j)))).sum(),
    }
}

fn gather(algorithm: &str, ranks: u64, leaves_per_pod: u64) -> Cell {
    Cell::new(template!("multicast_traffic.toml"))
        .seeds(1)
        .set("workload.algorithm", algorithm)
        .set("workload.ranks", ranks)
        .set("workload.size", format!("{} B", ranks * CHUNK))
        .set("fabric.leaves_per_pod", leaves_per_pod)
}

fn payload(cell: Cell) -> Value {
    Value::Of(cell, "packets.payload_link_bytes")
}

fn traffic(table: &mut Table) {
    table.section("Figure 2, corrected: payload on cables, leaves of 16 hosts (simulator, exactly the formulas)");
    for (leaves, pod) in [(2, 32), (16, 256)] {
        for ranks in [32, 64, 128, 256, 512, 1024] {
            for algorithm in ["multicast", "ring", "recursive-doubling"] {
                let cells = crossings(algorithm, ranks, 16, pod) * CHUNK;
                let what = format!("{algorithm}, {ranks} ranks, pods of {leaves} leaves");
                let id = format!("traffic/pod{leaves}/{algorithm}/{ranks}");
                let row = RowSpec::new(id, what, "B", payload(gather(algorithm, ranks, leaves)));
                let row = row.near(cells as f64, Source::Arithmetic, 0.0);
                table.row(row);
            }
        }
    }
    table.section("Figure 2: ratios, the paper's beside ours");
    let note = "the paper's model prices messages towards lower ranks as two cables";
    for (id, algorithm, published) in [("ring", "ring", 1.942), ("doubling", "recursive-doubling", 3.277)] {
        let ratio = payload(gather(algorithm, 128, 2)).over(payload(gather("multicast", 128, 2)));
        let what = format!("{algorithm} over multicast, 128 ranks, pods of two leaves");
        let row = RowSpec::new(format!("figure2/{id}/128"), what, "", ratio);
        table.row(row.published(published, Source::Published).note(note));
    }
}

fn testbed(table: &mut Table) {
    table.section("188 ranks, two tiers of 36-port switches, 56 Gb/s");
    let cell =
        |algorithm: &str| Cell::new(template!("multicast_188.toml")).seeds(1).set("workload.algorithm", algorithm);
    let ratio = payload(cell("ring")).over(payload(cell("multicast")));
    let row = RowSpec::new("testbed/traffic", "ring over multicast, payload on cables: the headline 2 x", "", ratio);
    table.row(row.near(2.0 - 2.0 / 188.0, Source::Arithmetic, 1e-6).note("published as 2 x"));
    let time = |algorithm| Value::Of(cell(algorithm), GATHER);
    let row = RowSpec::new(
        "testbed/time",
        "ring over multicast, time, 64 KiB per rank",
        "",
        time("ring").over(time("multicast")),
    );
    table.row(row);
}

fn broadcast(table: &mut Table) {
    table.section("Broadcast of 32 MiB at 400 Gb/s by ranks (simulator)");
    let cell = |algorithm: &str, ranks: u32| {
        let cell = Cell::new(template!("multicast_broadcast.toml")).seeds(1);
        let cell = cell.set("workload.algorithm", algorithm).set("workload.ranks", ranks);
        if algorithm == "multicast" { cell } else { cell.set("workload.pipeline", 32) }
    };
    let time = |algorithm: &str, ranks| Value::Of(cell(algorithm, ranks), TIME);
    for ranks in [64, 256, 1024] {
        let what = format!("{ranks} ranks over 8 ranks, multicast: flat");
        let row = RowSpec::new(
            format!("broadcast/flat/{ranks}"),
            what,
            "",
            time("multicast", ranks).over(time("multicast", 8)),
        );
        table.row(row.at_most(1.1, Source::Ours));
    }
    for algorithm in ["binary", "binomial", "k-nomial", "chain"] {
        let what = format!("{algorithm} in 32 parts over multicast, 64 ranks");
        let row = RowSpec::new(
            format!("broadcast/{algorithm}/64"),
            what,
            "",
            time(algorithm, 64).over(time("multicast", 64)),
        );
        table.row(row);
    }
}

fn lossy(loss: &str) -> Cell {
    let fault =
        format!("[{{ tier = \"leaf->host\", count = 64, one_way = true, kind = \"loss\", probability = {loss} }}]");
    Cell::new(template!("multicast_allgather.toml")).seeds(3).set("faults", fault)
}

fn whole() -> Cell {
    Cell::new(template!("multicast_allgather.toml")).seeds(1).set("faults", "[]")
}

fn recovery(table: &mut Table) {
    table.section("All-gather of 64 MiB among 64 ranks, losses at the links to hosts (simulator)");
    let time = |cell: Cell| Value::Of(cell, GATHER);
    table.row(RowSpec::new("loss/none/time", "time without loss", "us", time(whole())));
    let fetched = Value::Of(whole(), "packets.repairs");
    table.row(RowSpec::new("loss/none/repairs", "chunks fetched without loss", "", fetched).near(
        0.0,
        Source::Arithmetic,
        0.0,
    ));
    for loss in ["1e-6", "1e-5", "1e-4", "1e-3", "1e-2"] {
        for recovery in ["fast", "ring"] {
            let cell = lossy(loss).set("workload.recovery", recovery);
            let what = format!("{recovery}, loss {loss}: time over that without loss");
            let value = time(cell).over(time(whole()));
            table.row(RowSpec::new(format!("loss/{recovery}/{loss}"), what, "", value));
        }
    }
}

/// Mean number of chunks that a receiver must fetch of a group of `k` data chunks and `m` parity chunks, if each chunk
/// is lost with probability `loss`: the losses beyond `m` (the sum behind P_MDS of the SDR-RDMA sheet).
fn fetched(k: u32, m: u32, loss: f64) -> f64 {
    let pieces = k + m;
    let mut exactly = (1.0 - loss).powi(pieces as i32);
    let mut fetched = 0.0;
    for lost in 1..=pieces {
        exactly *= f64::from(pieces + 1 - lost) / f64::from(lost) * loss / (1.0 - loss);
        fetched += f64::from(lost.saturating_sub(m)) * exactly;
    }
    fetched
}

fn parity(table: &mut Table) {
    table.section("The same all-gather with parity: 32 chunks of data have 4 more, 12.5 % of the wire (simulator)");
    let with = |loss: &str| lossy(loss).set("workload.parity", "32+4");
    for loss in ["1e-4", "1e-3", "1e-2", "3e-2"] {
        for (id, what, cell) in [("32+4", "parity 32+4", with(loss)), ("none", "no parity", lossy(loss))] {
            let value = Value::Of(cell, GATHER).over(Value::Of(whole(), GATHER));
            let what = format!("{what}, loss {loss}: time over that without loss and parity");
            table.row(RowSpec::new(format!("parity/{}/{loss}", id.replace('+', "-")), what, "", value));
        }
    }
    // 63 receivers, and 64 shares of 256 chunks. A fetched chunk may be lost, too.
    let groups = 63.0 * 64.0 * 8.0;
    let expected = groups * fetched(32, 4, 0.03) / 0.97;
    let row = RowSpec::new(
        "parity/fetched/3e-2",
        "chunks fetched beyond parity, loss 3e-2",
        "",
        Value::Of(with("3e-2"), "packets.repairs"),
    );
    table.row(row.near(expected, Source::Arithmetic, 0.25));
    let row = RowSpec::new(
        "parity/fetched/1e-3",
        "chunks fetched beyond parity, loss 1e-3",
        "",
        Value::Of(with("1e-3"), "packets.repairs"),
    );
    table.row(row.near(0.0, Source::Arithmetic, 0.0).note(format!("{:.6} expected", groups * fetched(32, 4, 1e-3))));
}

fn sweeps(table: &mut Table) {
    table.section("Chains, trees and timers: the same all-gather");
    let time = |cell: Cell| Value::Of(cell, GATHER);
    for chains in [1, 2, 4, 8, 16, 64] {
        let what = format!("chains: {chains}, no loss");
        table.row(RowSpec::new(format!("chains/{chains}"), what, "us", time(whole().set("workload.chains", chains))));
    }
    for trees in [1, 2, 4, 8] {
        let what = format!("trees: {trees}, no loss");
        table.row(RowSpec::new(format!("trees/{trees}"), what, "us", time(whole().set("workload.trees", trees))));
    }
    for cutoff in ["tuned", "artifact"] {
        let what = format!("cutoff timer {cutoff}, loss 1e-4");
        table.row(RowSpec::new(
            format!("cutoff/{cutoff}"),
            what,
            "us",
            time(lossy("1e-4").set("workload.cutoff", cutoff)),
        ));
    }
}

/// A note for rows over several leaves.
const SHORT: &str = "with 64 fragments, the window below one switch, 32 ranks have 1.80, as they are fewer than a round trip over three \
    switches; with 128 and 188 ranks queues of 16 MB overflow (1.36)";

/// Appendix B: an all-gather by multicast next to a reduce-scatter by switches, on the same NICs, compared with two
/// rings.
fn concurrent(table: &mut Table) {
    table.section("Appendix B: all-gather beside reduce-scatter at 400 Gb/s, over two rings (simulator)");
    let both = |cell: Cell, ranks: u64, mib: u64| {
        let cell = ["gather", "scatter"].iter().fold(cell.seeds(1), |cell, name| {
            let of = |key: &str| format!("workload.{name}.{key}");
            cell.set(&of("ranks"), ranks).set(&of("size"), format!("{mib} MiB"))
        });
        Value::Of(cell, "run.simulated_us")
    };
    let speedup = |ranks, mib| {
        let rings = both(Cell::new(template!("multicast_two_rings.toml")), ranks, mib);
        rings.over(both(Cell::new(template!("multicast_concurrent.toml")), ranks, mib))
    };
    for (ranks, mib) in [(4, 64), (8, 64), (16, 64), (16, 256), (32, 64)] {
        let what = format!("speed-up, {ranks} ranks, {mib} MiB: 2 - 2/P");
        let row = RowSpec::new(format!("concurrent/{ranks}/{mib}"), what, "", speedup(ranks, mib));
        table.row(row.near(2.0 - 2.0 / ranks as f64, Source::Arithmetic, 0.03));
    }
    // Leaves of 18 hosts with 18 uplinks, as on the paper's testbed. A round trip is longer than below one switch, so the
    // window has more fragments; from 72 to 96 it makes no difference.
    let leaves = |cell: Cell| cell.set("fabric.hosts", 216).set("fabric.hosts_per_leaf", 18).set("fabric.spines", 18);
    let speedup = |ranks, mib| {
        let rings = both(leaves(Cell::new(template!("multicast_two_rings.toml"))), ranks, mib);
        let casts = leaves(Cell::new(template!("multicast_concurrent.toml"))).set("switch.window", 80);
        rings.over(both(casts, ranks, mib))
    };
    for (ranks, mib) in [(32, 256), (188, 752)] {
        let what = format!("speed-up, {ranks} ranks over several leaves, {mib} MiB: 2 - 2/P");
        let row = RowSpec::new(format!("concurrent/leaves/{ranks}/{mib}"), what, "", speedup(ranks, mib));
        let row = row.near(2.0 - 2.0 / ranks as f64, Source::Arithmetic, 0.03).note(SHORT);
        table.row(if ranks == 188 { row.full() } else { row });
    }
}

/// The work of receiving, as threads of a SmartNIC that take 11.9 GiB/s each in packets of 4 KiB. Casts have no flow control:
/// a root that is faster than its receivers loses most packets, so roots are paced to 0.99 of what the threads take.
fn receiving(table: &mut Table) {
    table.section(
        "The receive side as threads: broadcast of 256 MiB to seven ranks, paced to 0.99 of what the threads take, beside \
         the link's 1.6 Tb/s without work",
    );
    let share = |threads: u32| f64::from(threads) * 11.9 * 8.0 * 1.073_741_824 / 1600.0;
    let cell = |threads: u32| {
        let pace = if threads > 0 && share(threads) < 1.0 { share(threads) * 0.99 } else { 0.0 };
        let workload = format!(
            "{{ kind = \"broadcast\", name = \"cast\", algorithm = \"multicast\", ranks = 8, size = \"256 MiB\", pace = {pace} }}"
        );
        let cell = Cell::new(template!("multicast_concurrent.toml")).seeds(1);
        let cell =
            cell.set("fabric.rate", "1600 Gbps").set("workload", workload).set("fabric.receive_threads", threads);
        // 11.9 GiB/s are 3.12 million packets a second.
        if threads > 0 { cell.set("fabric.receive_mpps", 3.12) } else { cell }
    };
    let time = |threads| Value::Of(cell(threads), "collectives.cast.time_us");
    for threads in [1, 2, 4, 8] {
        let what = format!("{threads} threads: share of the link's rate");
        let row = RowSpec::new(format!("receiving/{threads}"), what, "", time(0).over(time(threads)));
        table.row(row.near(share(threads), Source::Arithmetic, 0.05));
    }
    let row = RowSpec::new("receiving/16", "16 threads of 256: 1.6 Tb/s", "", time(0).over(time(16)));
    table.row(row.at_least(0.99, Source::Published, 0.01));
    let row = RowSpec::new("receiving/128", "128 threads, as published", "", time(0).over(time(128)));
    table.row(row.at_least(0.99, Source::Published, 0.01));
}

/// Section 10, B 9: layers are gathered, computed and scattered in a pipeline.
fn layers(table: &mut Table) {
    table.section("FSDP: 8 layers of 64 MiB, 8 ranks at 400 Gb/s, 19.2 ms to compute, two iterations (simulator)");
    let cell = |gather: &str, scatter: &str| {
        let cell = Cell::new(template!("multicast_fsdp.toml")).seeds(1);
        let cell = cell.set("workload.job.gather", gather).set("workload.job.scatter", scatter);
        match gather {
            "multicast" => cell.set("workload.job.chains", 1).set("workload.job.pace", 0),
            _ => cell,
        }
    };
    for (gather, scatter) in [("ring", "ring"), ("multicast", "ring"), ("multicast", "in-network")] {
        let of = |what: &'static str| Value::Of(cell(gather, scatter), what);
        let id = format!("fsdp/{gather}-{scatter}");
        let both = format!("gathered by {gather}, scattered by {scatter}");
        table.row(RowSpec::new(
            format!("{id}/time"),
            format!("{both}: an iteration"),
            "us",
            of("jobs.job.iteration_us"),
        ));
        table.row(RowSpec::new(format!("{id}/bubble"), format!("{both}: bubble"), "", of("jobs.job.bubble")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The artifact's model: a message towards a lower rank costs two cables, and a share is copied back into its own
    /// pod.
    fn published(algorithm: &str, ranks: u64) -> u64 {
        let (leaf, pod) = (16, 32);
        let hop = |from: u64, to: u64| if to > from { super::hop(from, to, leaf, pod) } else { 2 };
        let pairs = || (0..ranks).flat_map(|a| (0..ranks).filter(move |b| *b != a).map(move |b| (a, b)));
        match algorithm {
            "multicast" => {
                let leaves = if ranks > leaf { ranks / leaf } else { 0 };
                ranks * (ranks + leaves + if ranks > pod { ranks / pod + 1 } else { 0 })
            }
            "ring" => (ranks - 1) * (0..ranks).map(|a| hop(a, (a + 1) % ranks)).sum::<u64>(),
            _ => pairs().map(|(a, b)| hop(a, b)).sum(),
        }
    }

    #[test]
    fn the_published_table_is_the_artifacts_arithmetic() {
        let sizes = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
        for (algorithm, column) in [
            ("multicast", [4, 16, 64, 256, 1088, 4544, 18_048, 71_936, 287_232, 1_147_904]),
            ("ring", [4, 24, 112, 480, 2046, 8568, 35_052, 141_780, 570_276, 2_287_428]),
            ("linear", [4, 24, 112, 480, 2496, 13_184, 59_136, 249_344, 1_022_976, 4_143_104]),
        ] {
            assert_eq!(sizes.map(|ranks| published(algorithm, ranks)), column, "{algorithm}");
        }
    }

    #[test]
    fn the_corrected_columns_are_those_of_the_sheet() {
        let all =
            |algorithm: &str, pod: u64| [32, 64, 128, 256, 512, 1024].map(|ranks| crossings(algorithm, ranks, 16, pod));
        assert_eq!(all("multicast", 32), [1088, 4480, 17_920, 71_680, 286_720, 1_146_880]);
        assert_eq!(all("multicast", 256), [1088, 4352, 17_408, 69_632, 279_552, 1_118_208]);
        assert_eq!(all("ring", 32), [2108, 8820, 35_560, 142_800, 572_320, 2_291_520]);
        assert_eq!(all("ring", 256), [2108, 8568, 34_544, 138_720, 558_012, 2_234_232]);
        assert_eq!(all("recursive-doubling", 32), [3008, 18_304, 85_760, 368_128, 1_522_688, 6_191_104]);
        assert_eq!(all("recursive-doubling", 256), [3008, 14_208, 61_184, 253_440, 1_293_312, 5_732_352]);
        assert_eq!(crossings("multicast", 188, 18, 1 << 20), 37_412);
        assert_eq!(crossings("ring", 188, 18, 1 << 20), 74_426);
    }
}
