//! The operators' view: a job, and a cluster of the paper's size, through failures.

use super::{CLUSTER, INCAST, PERMUTATION, T1_DEAD, left};
use crate::table::{Cell, RowSpec, SLOWEST, Table, Value};
use strandway_report::reproduction::Source;

/// Throughput of an all-reduce of 128 ranks on four planes with one port of each of three NICs down, divided by the
/// throughput without faults.
pub(super) fn glitch(size: &str) -> Value {
    let workload = format!("{{ name = \"job\", kind = \"all-reduce\", algorithm = \"ring\", size = \"{size}\" }}");
    let healthy = Cell::new(PERMUTATION)
        .seeds(1)
        .set("workload", workload)
        .with(&[("fabric.planes", "4"), ("fabric.rate", "800 Gbps")]);
    let down = ["host3.p1", "host40.p1", "host90.p1"].map(|port| format!("{{ port = \"{port}\", kind = \"down\" }}"));
    let faulty = healthy.clone().set("faults", format!("[{}]", down.join(", ")));
    let key = "collectives.job.time_us";
    Value::Of(healthy, key).over(Value::Of(faulty, key))
}

/// The operators' view: a job with a ring over all NICs.
pub(super) fn operations(table: &mut Table) {
    table.section("P1 to P5: a ring all-reduce of 128 ranks on NICs of 8 x 100 Gb/s, 256 MB, throughput left");
    let ring = || {
        Cell::new(PERMUTATION)
            .seeds(1)
            .set("workload", "{ name = \"job\", kind = \"all-reduce\", algorithm = \"ring\", size = \"256 MB\" }")
    };
    let key = "collectives.job.time_us";
    let kept = |cell: &Cell| Value::Of(ring(), key).over(Value::Of(cell.clone(), key));
    let with = |faults: &str| ring().set("faults", format!("[{faults}]"));
    let broken = with("{ tier = \"leaf->spine\", count = 20, pick = \"random\", kind = \"down\", silent = true }");
    table.row(RowSpec::new("p1/broken", "2 % of the links dead from the start", "", kept(&broken)).at_least(
        0.99,
        Source::Published,
        0.0,
    ));
    let again = Value::Of(broken, "packets.retransmitted");
    let row =
        RowSpec::new("p1/again", "packets sent again, of 128 connections that may lose five each", "packets", again);
    table.row(
        row.at_most(640.0, Source::Published).note("fewer than five per connection there; the sum is judged here"),
    );
    let flaps = with(
        "{ tier = \"leaf->spine\", count = 10, pick = \"random\", kind = \"flap\", silent = true, period = \"2 ms\", duty = 0.7 }",
    );
    table.row(RowSpec::new("p2/flaps", "ten links flap, silently", "", kept(&flaps)).at_least(
        0.99,
        Source::Published,
        0.0,
    ));
    let reboot =
        with("{ switch = \"spine3.p2\", kind = \"down\", silent = true, at = \"200 us\", until = \"800 us\" }");
    table.row(RowSpec::new("p3/reboot", "a T1 reboots", "", kept(&reboot)).at_least(0.99, Source::Published, 0.0));
    table.row(RowSpec::new("p3/lost", "packets lost to it", "packets", Value::Of(reboot, "packets.lost")));
    let full = |spines: u32| {
        let full = Cell::new(PERMUTATION).seeds(3).set("fabric.spines", spines);
        left(&full, &full.clone().set("faults", format!("[{T1_DEAD}]")))
    };
    let what = "a T1 of 32 reboots under a permutation at full load";
    table.row(RowSpec::new("p3/full-load", what, "", full(32)).at_least(0.99, Source::Published, 0.0));
    // The paper's clusters have up to 256 T1s per plane.
    let what = "a T1 of eight, an eighth of its plane's capacity, reboots under the same";
    table.row(RowSpec::new("p3/full-load-8", what, "", full(8)));
    let row = RowSpec::new("p4/glitch", "four planes: one port of each of three NICs down", "", glitch("256 MB"));
    let note = "a step of 2 MB takes 25 us, four of them latency, which a port more or less does not change; larger all-reduces come \
                to it: rows why/p4";
    table.row(row.near(0.75, Source::Published, SLOWEST).note(note));
    let port = with("{ port = \"host3.p1\", kind = \"down\" }");
    table.row(RowSpec::new("p5/port", "one port of one NIC down", "", kept(&port)).at_least(
        0.875,
        Source::Published,
        0.01,
    ));
}

/// Switches under maintenance, whose paths are denied before they go down, and Clustermapper's program.
pub(super) fn maintenance(table: &mut Table) {
    table
        .section("Maintenance and Clustermapper: permutation on 128 NICs of 8 x 100 Gb/s, 64 MB, 32 T1s in each plane");
    let full = Cell::new(PERMUTATION).seeds(3).set("fabric.spines", 32);
    let with = |faults: String| full.clone().set("faults", format!("[{faults}]"));
    let times = "at = \"300 us\", until = \"900 us\"";
    let around = "at = \"250 us\", until = \"950 us\"";
    for (id, what, switch, share) in [("t1", "a T1", "spine3.p2", 0.99), ("t0", "a T0", "leaf3.p2", 0.875)] {
        let down = format!("{{ switch = \"{switch}\", kind = \"down\", silent = true, {times} }}");
        let deny = format!("{{ switch = \"{switch}\", kind = \"deny\", {around} }}");
        let (sudden, planned) = (with(down.clone()), with(format!("{down}, {deny}")));
        let id = |name: &str| format!("maintenance/{id}/{name}");
        let row =
            RowSpec::new(id("left"), format!("{what} rebooted after its paths were denied"), "", left(&full, &planned));
        table.row(row.at_least(share, Source::Published, 0.0));
        let again = |cell: Cell| Value::Of(cell, "packets.retransmitted");
        table.row(RowSpec::new(id("again"), "packets sent again", "packets", again(planned)));
        table.row(RowSpec::new(id("sudden/left"), format!("{what} rebooted without notice"), "", left(&full, &sudden)));
        table.row(RowSpec::new(id("sudden/again"), "packets sent again", "packets", again(sudden)));
    }
    let mapper = "{ period = \"50 us\", misses = 3, window = 10, successes = 5, delay = \"50 us\" }";
    let mapped = |cell: Cell| cell.set("clustermapper", mapper);
    for (id, what, fault) in [
        ("port", "a NIC's cable loses 10 %", "{ port = \"host24.p2\", kind = \"loss\", probability = 0.1 }"),
        (
            "t1",
            "a T1 silently dead for 600 us",
            "{ switch = \"spine3.p2\", kind = \"down\", silent = true, at = \"300 us\", until = \"900 us\" }",
        ),
    ] {
        let alone = with(fault.to_string());
        let found = mapped(alone.clone());
        for (name, of, cell) in [("without", "MRC alone", alone), ("with", "Clustermapper every 50 us", found)] {
            let id = |last: &str| format!("clustermapper/{id}/{name}{last}");
            table.row(RowSpec::new(id("/left"), format!("{what}, {of}"), "", left(&full, &cell)));
            table.row(RowSpec::new(id("/lost"), "packets lost", "packets", Value::Of(cell, "packets.lost")));
        }
    }
    table.section(
        "Classes: 7:1 incast beside a victim, NICs of 400 Gb/s on one plane; switches trim, or drop what is NO_TRIM",
    );
    let incast = Cell::new(INCAST).seeds(3);
    for (id, what, keys) in [
        ("trimmable", "data and retransmissions may be trimmed", &[][..]),
        ("retx", "retransmissions are NO_TRIM", &[("profile.mrc_sack.trim_again", "false")][..]),
        (
            "no-trim",
            "all data is NO_TRIM: receivers that cannot send NACKs for trims",
            &[("profile.mrc_sack.trim_again", "false"), ("profile.mrc_sack.trim_data", "false")][..],
        ),
    ] {
        let cell = incast.clone().with(keys);
        for (last, name, unit, key) in [
            ("/slowest", "slowest flow", "us", "fct_us.max"),
            ("/trimmed", "trimmed", "packets", "packets.trimmed"),
            ("/dropped", "dropped", "packets", "packets.dropped"),
        ] {
            let id = format!("classes/{id}{last}");
            table.row(RowSpec::new(id, format!("{what}, {name}"), unit, Value::Of(cell.clone(), key)));
        }
    }
}

/// A receiver's trackers: the fewer there are, the smaller is the range of PSNs that it announces (dynamic MPR).
pub(super) fn ranges(table: &mut Table) {
    table.section(
        "Trackers: the same incast, whose receiver announces smaller ranges of PSNs the fewer trackers it has",
    );
    for (id, what, trackers) in [
        ("none", "a fixed range of 1,024", "0"),
        ("1024", "1,024 trackers", "1024"),
        ("256", "256 trackers: 128 at all times", "256"),
    ] {
        let cell = Cell::new(INCAST).seeds(3).set("profile.mrc_sack.trackers", trackers);
        for (last, name, unit, key) in [
            ("/slowest", "slowest flow", "us", "fct_us.max"),
            ("/again", "sent again", "packets", "packets.retransmitted"),
        ] {
            let id = format!("trackers/{id}{last}");
            table.row(RowSpec::new(id, format!("{what}, {name}"), unit, Value::Of(cell.clone(), key)));
        }
    }
}

/// A cluster of the size that the paper names: more than 100,000 GPUs below two tiers of switches.
pub(super) fn cluster(table: &mut Table) {
    table.section("131,072 NICs, two tiers of 6,144 switches: permutation of 64 KiB; a plane is silent, and stays so");
    for (id, what, fault) in [
        ("healthy", "no faults", None),
        ("plane-dead", "a plane dead from the start", Some("at = \"0 us\"")),
        ("plane-dies", "a plane dies at 5 us", Some("at = \"5 us\"")),
    ] {
        let cell = Cell::new(CLUSTER).seeds(1);
        let cell = match fault {
            Some(at) => cell.set("faults", format!("[{{ plane = 2, kind = \"down\", silent = true, {at} }}]")),
            None => cell,
        };
        let of = |name: &str| format!("cluster/{id}/{name}");
        let row = RowSpec::new(
            of("finished"),
            format!("{what}: flows that finish"),
            "flows",
            Value::Of(cell.clone(), "flows.finished"),
        );
        table.row(row.near(131_072.0, Source::Published, 0.0).note("jobs ride through the failure of a plane there"));
        for (name, key, unit, about) in
            [("slowest", "fct_us.max", "us", "slowest flow"), ("lost", "packets.lost", "packets", "packets lost")]
        {
            table.row(RowSpec::new(of(name), format!("{what}: {about}"), unit, Value::Of(cell.clone(), key)));
        }
    }
}
