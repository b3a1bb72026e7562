//! MRC over static source routes (arXiv 2605.04333, experiments E1 to E8 and operations P1 to P5), on scaled clusters.
//!
//! The paper shows many results as plots; its statements about them are used as bounds. Our clusters are smaller. Where
//! the share of a part of the fabric matters, the row names it: one T1 switch is 1/8 of a plane here and 1/256 there.

mod operations;
mod unknowns;

use super::Set;
use super::table::{Cell, RowSpec, SLOWEST, Table, Template, Value, template};
use strandway_report::reproduction::{ChartKind, Source};

pub(super) const SET: Set = Set {
    name: "mrc",
    about: "MRC on multi-plane fabrics with static source routes: failures, loss, incast, collectives",
    takes: "two minutes on two processors",
    table,
};

const FLOW: Template = template!("mrc_flow.toml");
const PERMUTATION: Template = template!("mrc.toml");
const INCAST: Template = template!("mrc_incast.toml");
const COLLECTIVE: Template = template!("mrc_collective.toml");
const CLUSTER: Template = template!("mrc_131072.toml");

/// Sizes of RoCEv2 over IPv6: preamble and gap 20 B, Ethernet 18, IPv6 40, UDP 8, BTH 12, ICRC 4; an acknowledgement has
/// 4 B more.
const ROCE_SIZES: [(&str, &str); 2] = [("profile.transport.header", "102"), ("profile.transport.control", "106")];

const SLOW_PORTS: &str = "switches here store and forward: on ports of 100 Gb/s a message arrives 0.8 us later than on one of 400, which \
                          short steps show; on one plane of 400 MRC is ahead in the rings and nearly level in the all-to-all (rows \
                          why/e7); the paper's RoCEv2 has costs per message and queue pair beside it, which are not modelled";

const SHALLOW: &str = "transfers that meet at a receiver overflow its queue of one plane's BDP and are trimmed, where PFC would pause \
                       them; with 3 BDP MRC is ahead (row why/e7/all-to-all/256kb/queue)";

const T1_DEAD: &str = "{ switch = \"spine3.p2\", kind = \"down\", silent = true, at = \"100 us\", until = \"400 us\" }";

const OWN_DEAD: &str = "{ link = \"leaf0.p*->spine0.p*\", kind = \"down\", silent = true }, { link = \"leaf0.p*->spine1.p*\", kind = \"down\", silent = true }, \
 { link = \"leaf0.p0->spine2.p0\", kind = \"down\", silent = true }, { link = \"leaf0.p1->spine2.p1\", kind = \"down\", silent = true }, \
 { link = \"leaf0.p2->spine2.p2\", kind = \"down\", silent = true }, { link = \"leaf0.p3->spine2.p3\", kind = \"down\", silent = true }";

const T1_LOSSY: &str = "{ switch = \"spine3.p2\", kind = \"loss\", probability = 0.1 }";

/// Seeds of one flow, and of the permutation of E6.
const SEEDS: u64 = 8;

fn table() -> Table {
    let mut table = Table::default();
    point_to_point(&mut table);
    ports(&mut table);
    inside(&mut table);
    detection(&mut table);
    permutation(&mut table);
    collectives(&mut table);
    incast(&mut table);
    operations::operations(&mut table);
    operations::maintenance(&mut table);
    operations::ranges(&mut table);
    operations::cluster(&mut table);
    unknowns::unknowns(&mut table);
    unknowns::ablations(&mut table);
    table
}

/// One flow with a fault.
fn flow(fault: &str) -> Cell {
    Cell::new(FLOW).seeds(SEEDS).set("faults", format!("[{fault}]"))
}

fn whole() -> Cell {
    Cell::new(FLOW).seeds(SEEDS)
}

/// Throughput with a fault divided by throughput without it.
fn left(healthy: &Cell, faulty: &Cell) -> Value {
    Value::slowest(healthy).over(Value::slowest(faulty))
}

fn point_to_point(table: &mut Table) {
    table.section("E1: one flow between NICs of 8 x 100 Gb/s, packets of 4,262 B");
    for (id, what, to) in [("same-t0", "below the same T0", 1), ("cross-t1", "across T1", 100)] {
        let large = whole().set("workload.flows", format!("[{{ from = 0, to = {to}, size = \"256 MB\" }}]")).seeds(1);
        let row = RowSpec::new(
            format!("e1/bandwidth/{id}"),
            format!("payload rate, {what}"),
            "Gb/s",
            Value::Of(large, "goodput_gbps.total"),
        );
        table.row(
            row.near(770.0, Source::Arithmetic, 0.01)
                .note("published too; headers of 166 B, which the sheet found from it, leave 768.8 Gb/s"),
        );
    }
    let structured = whole()
        .set("workload.flows", "[{ from = 0, to = 100, size = \"256 MB\" }]")
        .set("profile.transport.header", 126)
        .seeds(1);
    let what = "payload rate across T1 with structured EVs (STEV): no outer header of 40 B";
    let row = RowSpec::new("e1/bandwidth/stev", what, "Gb/s", Value::Of(structured, "goodput_gbps.total"));
    let note =
        "tables in switches read the same EV from flow label and source port, so paths and states are those of SRv6";
    table.row(row.near(800.0 * 4096.0 / 4222.0, Source::Arithmetic, 0.01).note(note));
    for (id, what, to, theirs) in [("same-t0", "below the same T0", 1, 5.09), ("cross-t1", "across T1", 100, 6.54)] {
        let tiny = whole().set("workload.flows", format!("[{{ from = 0, to = {to}, size = \"2 B\" }}]")).seeds(1);
        let row = RowSpec::new(
            format!("e1/latency/{id}"),
            format!("write of 2 B and its acknowledgement, {what}"),
            "us",
            Value::slowest(&tiny),
        );
        table.row(
            row.published(theirs, Source::Published)
                .note("theirs holds NIC, PCIe and memory; ours only 500 ns per link"),
        );
    }
}

fn ports(table: &mut Table) {
    table.section("E2a, E2b, E3: NIC ports and T0 switches, one of eight planes; throughput left");
    for (id, what, fault) in [
        ("sender", "the sender's port down", "{ port = \"host0.p3\", kind = \"down\" }"),
        ("receiver", "the receiver's port down", "{ port = \"host100.p3\", kind = \"down\" }"),
        ("t0", "the receiver's T0 dead, silently", "{ switch = \"leaf12.p3\", kind = \"down\", silent = true }"),
    ] {
        let row = RowSpec::new(format!("e2a/{id}"), what, "", left(&whole(), &flow(fault)));
        table.row(row.near(0.875, Source::Published, 0.01));
    }
    // 2.7 ms in all. For 1.5 ms of them, including the hold, seven of eight ports are in use.
    let some = |cell: Cell| cell.set("workload.flows", "[{ from = 0, to = 100, size = \"256 MB\" }]").seeds(1);
    let through = some(flow("{ port = \"host0.p3\", kind = \"down\", at = \"500 us\", until = \"1 ms\" }"));
    let row = RowSpec::new(
        "e2a/through",
        "the sender's port down for 500 us amid 256 MB, then held for 1 ms",
        "",
        left(&some(whole()), &through),
    );
    table.row(row.at_least(0.93, Source::Arithmetic, 0.01));
    table.chart_here(ChartKind::Planes, "E2a: the sender's port 3 goes down and comes back", &[("", &through)]);
    table.chart_here(ChartKind::States, "E2a: entropy values while port 3 is down", &[("", &through)]);
    let flapping: Vec<String> = (2..6)
        .map(|p| {
            format!("{{ port = \"host0.p{p}\", kind = \"flap\", period = \"100 us\", duty = 0.5, until = \"300 us\" }}")
        })
        .collect();
    let long = |cell: Cell| cell.set("workload.flows", "[{ from = 0, to = 100, size = \"512 MB\" }]").seeds(1);
    let flaps = long(flow(&flapping.join(", ")));
    let row = RowSpec::new(
        "e2b/flapping",
        "four of eight ports flap for 300 us, then hold for 1 ms: of 512 MB",
        "",
        left(&long(whole()), &flaps),
    );
    // 5.4 ms in all. For 1.3 ms of them, half of the ports are in use.
    table.row(row.at_least(0.893, Source::Arithmetic, 0.0));
    table.chart_here(ChartKind::Planes, "E2b: ports 2 to 5 flap", &[("", &flaps)]);
}

fn inside(table: &mut Table) {
    table.section("E2c, E2d, E3, E4: T1 switches and their links, of one flow's throughput");
    for (id, what, fault, least) in [
        (
            "e2c/dead",
            "twenty links of the fabric dead, silently",
            "{ tier = \"leaf->spine\", count = 20, pick = \"random\", kind = \"down\", silent = true }",
            0.99,
        ),
        ("e2c/own", "twenty of its own T0's 64 uplinks dead, silently", OWN_DEAD, 0.99),
        (
            "e2d/flapping",
            "four links flap, silently",
            "{ tier = \"leaf->spine\", count = 4, pick = \"random\", kind = \"flap\", silent = true, period = \"200 us\" }",
            0.99,
        ),
        ("e3/t1", "a T1 dead for 300 us, silently", T1_DEAD, 0.99),
        ("e4/loss", "a T1 that loses a tenth of its packets", T1_LOSSY, 0.99),
    ] {
        let row = RowSpec::new(id, what, "", left(&whole(), &flow(fault)));
        table.row(row.at_least(least, Source::Published, 0.0).note("\"no visible effect\" there, read as 1 %"));
        let lost = Value::Of(flow(fault), "packets.lost");
        table.row(RowSpec::new(format!("{id}.lost"), format!("{what}: packets lost"), "packets", lost));
    }
    let own = [("", &flow(OWN_DEAD))];
    table.chart_here(ChartKind::States, "E2c: entropy values, twenty uplinks of its own T0 dead", &own);
    table.chart_here(ChartKind::Planes, "E2c: twenty uplinks of its own T0 dead", &own);
    table.chart_here(ChartKind::States, "E3: entropy values while a T1 of plane 2 is dead", &[("", &flow(T1_DEAD))]);
    table.chart_here(ChartKind::Planes, "E3: a T1 of plane 2 is dead from 100 to 400 us", &[("", &flow(T1_DEAD))]);
    table.chart_here(
        ChartKind::States,
        "E4: entropy values while a T1 of plane 2 loses a tenth",
        &[("", &flow(T1_LOSSY))],
    );
    table.chart_here(ChartKind::Planes, "E4: a T1 of plane 2 loses a tenth of its packets", &[("", &flow(T1_LOSSY))]);
    table.section("E5: two pairs and two paths");
    let two = |flows: &str| {
        whole()
            .with(&[("fabric.planes", "1"), ("fabric.rate", "100 Gbps"), ("fabric.spines", "2")])
            .set("workload.flows", flows)
    };
    let alone = two("[{ from = 0, to = 100, size = \"8 MB\" }]");
    let both = two("[{ from = 0, to = 100, size = \"8 MB\" }, { from = 1, to = 101, size = \"8 MB\" }]");
    table.row(RowSpec::new("e5/pairs", "each of the pairs keeps its rate", "", left(&alone, &both)).at_least(
        0.97,
        Source::Published,
        0.0,
    ));
    // The controller denies the other path for the first 100 us. Half of that is lost to each pair, of 672 us.
    let forced = both.clone().set("faults", "[{ switch = \"spine1\", kind = \"deny\", until = \"100 us\" }]");
    let row =
        RowSpec::new("e5/forced", "both pairs forced onto one path for 100 us, then free", "", left(&both, &forced));
    table.row(row.at_least(0.931, Source::Arithmetic, 0.01).note(
        "besides the 50 us that sharing costs each pair, their windows shrink by trims on the shared path and grow again",
    ));
    table.chart_here(ChartKind::States, "E5: two pairs forced onto one path until 100 us", &[("", &forced)]);
}

/// How long traffic stays on links that break silently. With 32 T1s per plane a connection has 128 entropy values in
/// use and 128 in reserve.
fn detection(table: &mut Table) {
    table.section("Detection: 32 T1s in each of eight planes, 128 entropy values in use, 128 in reserve; what breaks, breaks silently after 100 us");
    let wide = |cell: Cell| cell.set("fabric.spines", 32);
    let all = || wide(Cell::new(PERMUTATION).seeds(3));
    for (id, what, connections, healthy, target) in [
        (
            "link",
            "an uplink of a T0, under a permutation on 128 NICs",
            "8 connections",
            all(),
            "link = \"leaf0.p2->spine3.p2\"",
        ),
        ("t1", "a T1, under a permutation on 128 NICs", "128 connections", all(), "switch = \"spine3.p2\""),
        (
            "plane",
            "the receiver's T0 in one plane, one flow",
            "one connection",
            wide(whole()),
            "switch = \"leaf12.p2\"",
        ),
    ] {
        let fault = format!("[{{ {target}, kind = \"down\", silent = true, at = \"100 us\" }}]");
        let broken = healthy.clone().set("faults", fault);
        let id = |row: &str| format!("detection/{id}/{row}");
        let avoided = Value::Of(broken.clone(), "faults.0.avoided_after_us");
        let row =
            RowSpec::new(id("avoided"), format!("{what}: until the last data packet was sent there"), "us", avoided);
        let note = "\"a few tens of microseconds\" there, read as 100 at most";
        table.row(row.at_most(100.0, Source::Published).note(note));
        let lost = Value::Of(broken.clone(), "packets.lost");
        table.row(RowSpec::new(id("lost"), format!("{what}: packets that {connections} lose"), "packets", lost));
        let row = RowSpec::new(id("left"), format!("{what}: throughput left"), "", left(&healthy, &broken));
        table.row(if connections == "one connection" {
            row.near(0.875, Source::Arithmetic, 0.02)
        } else {
            row.at_least(0.99, Source::Published, 0.0).note("\"no visible effect\" there, read as 1 %")
        });
    }
    let full = all();
    let dead = "{ switch = \"spine3.p2\", kind = \"down\", silent = true, at = \"100 us\" }";
    let shaken = full.clone().set("faults", format!("[{dead}]"));
    for (id, what, set) in
        [("reserve", "with a reserve", None), ("no-reserve", "without a reserve", Some(("profile.mrc.backup", "0")))]
    {
        let on = |cell: &Cell| set.into_iter().fold(cell.clone(), |cell, (key, value)| cell.set(key, value));
        let value = left(&on(&full), &on(&shaken));
        let what = format!("permutation on 128 NICs, a T1 dead, {what}: slowest flow's throughput left");
        table.row(RowSpec::new(format!("detection/permutation/{id}"), what, "", value));
    }
}

/// Completion time of the fastest flow divided by that of the slowest one.
fn fairness(cell: &Cell) -> Value {
    Value::Of(cell.clone(), "fct_us.min").over(Value::slowest(cell))
}

fn permutation(table: &mut Table) {
    table.section("E6: permutation on 128 NICs, 64 MB each");
    let all = Cell::new(PERMUTATION).seeds(SEEDS);
    let row =
        RowSpec::new("e6/slowest", "slowest flow's throughput over that of a flow alone", "", left(&whole(), &all));
    table.row(row.at_least(0.957, Source::Published, 0.0).note("92 GB/s of the 96.1 GB/s that headers leave"));
    let row = RowSpec::new("e6/fairness", "fastest over slowest flow", "", fairness(&all));
    table.row(row.at_least(0.97, Source::Ours, 0.0).note("follows the marking thresholds: rows why/e6"));
    let lossy = "[{ tier = \"leaf->spine\", one_way = true, count = 1024, kind = \"loss\", probability = 1e-3 }]";
    let left = |all: &Cell| Value::mean(all).over(Value::mean(&all.clone().set("faults", lossy)));
    let row = RowSpec::new("e6/loss", "0.1 % loss from all T0 to T1: mean throughput left", "", left(&all));
    table.row(row.at_least(0.97, Source::Ours, 0.0));
    let what = "the same, with a window that losses without a NACK do not shrink";
    let still = all.clone().set("profile.nscc.shrink_on_loss", "false");
    table.row(RowSpec::new("e6/loss-still", what, "", left(&still)));
    table.row(RowSpec::new("e6/trimmed", "packets trimmed", "packets", Value::Of(all, "packets.trimmed")).near(
        0.0,
        Source::Ours,
        0.0,
    ));
}

const COLLECTIVE_TIME: &str = "collectives.collective.time_us";

/// RoCEv2 on one plane of 400 Gb/s, with a message striped over `pairs` queue pairs.
fn on_roce(cell: Cell, pairs: u32) -> Cell {
    cell.with(&[
        ("fabric.kind", "leaf-spine"),
        ("fabric.planes", "1"),
        ("fabric.routing", "hashed"),
        ("profile.name", "rocev2"),
    ])
    .with(&ROCE_SIZES)
    .set("workload.connections", pairs)
}

fn ring_of(size: &str) -> Cell {
    Cell::new(COLLECTIVE).seeds(1).set("workload.size", size)
}

fn all_to_all_of(size: &str) -> Cell {
    let workload =
        format!("{{ name = \"collective\", kind = \"all-to-all\", placement = \"random\", size = \"{size}\" }}");
    ring_of(size).set("workload", workload)
}

/// MRC on four planes of 100 Gb/s, compared with RoCEv2 on one plane of 400 Gb/s.
fn collectives(table: &mut Table) {
    for (kind, key, what, sizes) in [
        ("ring", COLLECTIVE_TIME, "ring all-reduce", ["4 MB", "16 MB", "64 MB"]),
        ("all-to-all", COLLECTIVE_TIME, "all-to-all", ["64 kB", "256 kB", "1 MB"]),
    ] {
        for size in sizes {
            table.section(format!("E7: {what}, 64 ranks placed at random, {size}"));
            for (loss, name) in [("0", "no loss"), ("1e-3", "0.1 % loss"), ("1e-2", "1 % loss")] {
                let cell = |links: u32| {
                    let cell = if kind == "ring" { ring_of(size) } else { all_to_all_of(size) };
                    match loss {
                        "0" => cell,
                        _ => cell.set(
                            "faults",
                            format!(
                                "[{{ tier = \"leaf->spine\", one_way = true, count = {links}, kind = \"loss\", probability = {loss} }}]"
                            ),
                        ),
                    }
                };
                let short = size.to_lowercase().replace(' ', "");
                let id = |row: &str| format!("e7/{kind}/{short}/{loss}/{row}");
                let time = |cell: &Cell| Value::Of(cell.clone(), key);
                let mrc = cell(256);
                table.row(RowSpec::new(id("mrc"), format!("{name}, MRC"), "us", time(&mrc)));
                let roces = [1u32, 16].map(|pairs| (pairs, on_roce(cell(64), pairs)));
                for (pairs, roce) in &roces {
                    table.row(RowSpec::new(
                        id(&format!("roce-{pairs}")),
                        format!("{name}, RoCEv2, {pairs} queue pairs"),
                        "us",
                        time(roce),
                    ));
                    let row = RowSpec::new(
                        id(&format!("over-{pairs}")),
                        format!("{name}, RoCEv2 with {pairs} queue pairs over MRC"),
                        "",
                        time(roce).over(time(&mrc)),
                    );
                    // One MRC connection is as good as sixteen RoCEv2 queue pairs or better, with and without losses.
                    let note = if size == "256 kB" { SHALLOW } else { SLOW_PORTS };
                    table.row(row.at_least(1.0, Source::Published, 0.0).note(note));
                }
                if loss == "0" {
                    let row = |name: &str, what: String, value: Value| RowSpec::new(id(name), what, "", value);
                    let [one, sixteen] = [&roces[0].1, &roces[1].1];
                    table.row(match kind {
                        "ring" => row(
                            "half",
                            format!("{what}: RoCEv2's rate with 1 queue pair over MRC's"),
                            time(&mrc).over(time(one)),
                        )
                        .near(0.5, Source::Published, 0.1)
                        .note("\"about half\" there, a curve over sizes, read as a tenth off at most"),
                        _ => row(
                            "pairs",
                            format!("{what}: RoCEv2's time with 16 queue pairs over that with 1"),
                            time(sixteen).over(time(one)),
                        )
                        .at_least(1.0, Source::Published, 0.0)
                        .note("\"slightly worse\" with 16 there"),
                    });
                }
                if kind == "ring" && size == "64 MB" && loss != "0" {
                    let healthy = ring_of(size);
                    let row = RowSpec::new(
                        id("left"),
                        format!("{name}, MRC: of its throughput without"),
                        "",
                        time(&healthy).over(time(&mrc)),
                    );
                    table.row(if loss == "1e-3" {
                        let note = "\"near line rate\" there, read as a twentieth less; a step of this ring is 1 MB, theirs up to 250 MB";
                        row.at_least(0.95, Source::Published, 0.0).note(note)
                    } else {
                        let note = "a curve there, read as a tenth off at most; links from T0 to T1 lose here, so that each path has the loss once";
                        row.near(0.33, Source::Published, 0.1).note(note)
                    });
                    let still = ("profile.nscc.shrink_on_loss", "false");
                    let [healthy, lossy] = [healthy, mrc.clone()].map(|cell| cell.set(still.0, still.1));
                    table.row(RowSpec::new(
                        id("left-still"),
                        format!("{name}, MRC with a window that losses without a NACK do not shrink: of its throughput without"),
                        "",
                        time(&healthy).over(time(&lossy)),
                    ));
                }
            }
        }
    }
}

fn incast(table: &mut Table) {
    table.section("E8: the neighbour of a 7:1 incast's receiver, NICs of 400 Gb/s on one plane");
    let base = || Cell::new(INCAST).seeds(10);
    let victim = "[{ name = \"victim\", kind = \"flows\", flows = [{ from = 15, to = 1, size = \"32 MB\", start = \"100 us\" }] }]";
    let key = "classes.victim.fct_us.max";
    let kept = |cell: &Cell| Value::Of(cell.clone().set("workload", victim), key).over(Value::Of(cell.clone(), key));
    let mrc = base().set("fabric.routing", "source");
    table.row(RowSpec::new("e8/mrc", "MRC: the victim keeps", "", kept(&mrc)).at_least(0.99, Source::Published, 0.0));
    let seven = Value::Of(mrc.clone(), "classes.incast.fairness");
    let row = RowSpec::new("e8/mrc.fairness", "MRC: Jain's index of the seven", "", seven);
    table.row(row.at_least(0.95, Source::Published, 0.0));
    let roce = base().set("profile.name", "rocev2").with(&ROCE_SIZES);
    table.row(
        RowSpec::new("e8/dcqcn", "RoCEv2 with DCQCN and PFC: the victim keeps", "", kept(&roce))
            .near(0.75, Source::Published, SLOWEST)
            .note("a quarter is lost there, with one queue pair and DCQCN settings that are not published"),
    );
    let pfc = roce.clone().set("profile.name", "rocev2/fixed").set("profile.fixed.window_bdp", "100.0");
    table.row(
        RowSpec::new("e8/pfc", "RoCEv2, PFC only: the victim keeps", "", kept(&pfc))
            .at_most(0.25, Source::Published)
            .note("30 to 100 of 400 Gb/s are left there; a victim whose path shares no paused port keeps everything"),
    );
    let runs = [("MRC", &mrc), ("RoCEv2, DCQCN and PFC", &roce), ("RoCEv2, PFC only", &pfc)];
    table.chart_here(ChartKind::Goodput, "E8: the victim of a 7:1 incast, from 100 us on", &runs);
}
