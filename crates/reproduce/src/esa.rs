//! Switches that add gradients: ESA (arXiv 2201.06398) compared with ATP and SwitchML (both NSDI 2021), experiments E1
//! to E13 of the ESA sheet.
//!
//! Of the ESA paper we know only the abstract: "average JCT improved by up to 1.35 x". All other reference values come
//! from arithmetic, or from a small simulation by the sheet's second reader. Jobs are smaller than the sheet's: 3 MB in
//! four iterations, with the same ratio of communication to computation; `docs/protocols/esa.md` describes the effect.
//! E11 is about the wire. E12, the fallback of a direct-mapped pool, is a test of `crates/switch`.

use super::Set;
use super::table::{Cell, RowSpec, Table, Value, template};
use strandway_report::reproduction::Source;

pub(super) const SET: Set = Set {
    name: "esa",
    about: "switches that add gradients: ESA, ATP and SwitchML with many jobs in few slots",
    takes: "six minutes on two processors",
    table,
};

const JCT: &str = "switch.jct_mean_us";
const LOAD: &str = "switch.all.server_load";

/// Numbers from the small simulation of the sheet's second reader: another simulator, not a published result.
const SECOND: Source = Source::Ours;

fn table() -> Table {
    let mut table = Table::default();
    alone(&mut table);
    ceilings(&mut table);
    contention(&mut table);
    split(&mut table);
    models(&mut table);
    mixes(&mut table);
    memory(&mut table);
    workers(&mut table);
    stragglers(&mut table);
    ablations(&mut table);
    losses(&mut table);
    racks(&mut table);
    bits(&mut table);
    table
}

/// A system, as the keys that select it.
type System = &'static [(&'static str, &'static str)];

const DIRECT: System = &[("switch.system", "esa")];
const VIA: System = &[("switch.system", "esa"), ("switch.results", "via_ps")];
const VIA_FREE: System = &[("switch.system", "esa"), ("switch.results", "via_ps_free")];
const ATP: System = &[("switch.system", "atp")];
/// ATP without the new slots that its released client asks for after collisions. Which of the two the authors of ESA
/// compared with is not known.
const ATP_FIXED: System = &[("switch.system", "atp"), ("switch.readdress", "false")];
const SWITCHML: System = &[("switch.system", "switchml")];

/// Jobs whose communication takes twice as long as their computation, with the sizes of this set.
fn train(system: System, jobs: u32, memory: &str) -> Cell {
    let cell = Cell::new(template!("esa.toml")).with(system);
    let cell = cell.set("workload.ranks", 8 * jobs).set("switch.memory", memory);
    let cell = cell.set("workload.size", "3 MB").set("workload.compute", "160 us").set("workload.iterations", 4);
    cell.set("workload.arrivals", "480 us")
}

fn time(cell: Cell) -> Value {
    Value::Of(cell, JCT)
}

/// ATP's job completion time divided by that of `ours`.
fn gain(cell: impl Fn(System) -> Cell, ours: System) -> Value {
    over(&cell, ATP, ours)
}

/// The job completion time of `theirs` divided by that of `ours`.
fn over(cell: &impl Fn(System) -> Cell, theirs: System, ours: System) -> Value {
    time(cell(theirs)).over(time(cell(ours)))
}

/// An identifier with a size of memory.
fn id(name: &str, memory: &str) -> String {
    format!("{name}/{memory}").replace(' ', "").to_lowercase()
}

fn alone(table: &mut Table) {
    table.section("E1: one job alone, memory for all (simulator)");
    let one = |system| train(system, 1, "5 MiB").set("workload.size", "16 MB").set("workload.compute", "850 us");
    let row = RowSpec::new("e1/atp", "ATP over ESA via the server: job completion time", "", gain(one, VIA));
    table.row(row.near(1.0, Source::Arithmetic, 0.02));
    for (name, system) in [("direct", DIRECT), ("via_ps", VIA), ("atp", ATP), ("switchml", SWITCHML)] {
        let cell = reduce(system, 62, 82);
        let row =
            RowSpec::new(format!("e1/goodput/{name}"), format!("{name}: one all-reduce of 64 MB"), "GB/s", rate(cell));
        table.row(row.near(75.15 / 8.0, Source::Arithmetic, 0.02));
    }
}

/// One all-reduce among eight workers.
fn reduce(system: System, lanes: u32, header: u32) -> Cell {
    let cell = train(system, 1, "64 MiB").seeds(1).set("workload.size", "64 MB").set("workload.layers", 1);
    let cell = cell.set("workload.iterations", 1).set("workload.compute", "0 us").set("workload.arrivals", "0 us");
    cell.set("workload.stragglers", 0).set("switch.lanes", lanes).set("switch.header", format!("{header} B"))
}

fn rate(cell: Cell) -> Value {
    Value::Of(cell, "collectives.train.algbw_GBps")
}

fn ceilings(table: &mut Table) {
    table.section("Ceilings: payload share of 100 Gb/s (ESA sheet, section 13.7)");
    for (id, what, system, lanes, header, gbps) in [
        ("atp_code", "ATP's code, 308 B", ATP, 62, 84, 74.7),
        ("switchml_256", "SwitchML, 256 B of payload", SWITCHML, 64, 76, 77.1),
        ("switchml_1024", "SwitchML, 1,024 B of payload", SWITCHML, 256, 76, 93.1),
        ("switchml_128", "ATP's authors' SwitchML, 190 B", SWITCHML, 32, 86, 59.8),
        ("udp_256", "256 lanes over UDP", DIRECT, 256, 98, 91.3),
    ] {
        let row = RowSpec::new(format!("ceiling/{id}"), what, "GB/s", rate(reduce(system, lanes, header)));
        table.row(row.near(gbps / 8.0, Source::Arithmetic, 0.01));
    }
}

fn contention(table: &mut Table) {
    table.section("E2: jobs that communicate twice as long as they compute (simulator)");
    for (memory, second) in [("5 MiB", [1.02, 1.09, 1.04, 1.16]), ("1 MiB", [1.02, 1.18, 1.74, 2.54])] {
        for (jobs, second) in [1, 2, 4, 8].into_iter().zip(second) {
            let cell = |system| train(system, jobs, memory);
            let what = format!("ATP over ESA direct, {jobs} jobs, {memory}");
            let row = RowSpec::new(id("e2/direct", memory) + &format!("/{jobs}"), what, "", gain(cell, DIRECT));
            let row = match (jobs, memory) {
                (8, "5 MiB") => row.at_least(1.1, SECOND, 0.0),
                (8, _) => row.at_least(1.5, SECOND, 0.0),
                _ => row.at_least(0.97, SECOND, 0.0),
            };
            table.row(row.note(format!("the second reader's small simulation had {second}")));
            let what = format!("ATP without new slots over ESA direct, {jobs} jobs, {memory}");
            let name = id("e2/direct-fixed", memory) + &format!("/{jobs}");
            let row = RowSpec::new(name, what, "", over(&cell, ATP_FIXED, DIRECT));
            table.row(row.at_least(0.97, SECOND, 0.0));
        }
        let cell = |system| train(system, 8, memory);
        for (name, system) in [("via_ps_free", VIA_FREE), ("via_ps", VIA)] {
            for (end, words, atp) in [("", "ATP", ATP), ("-fixed", "ATP without new slots", ATP_FIXED)] {
                let what = format!("{words} over ESA {name}, 8 jobs, {memory}");
                let name = id(&format!("e2/{name}{end}"), memory) + "/8";
                table.row(RowSpec::new(name, what, "", over(&cell, atp, system)));
            }
        }
        let load = Value::Of(cell(ATP), LOAD);
        let what = format!("ATP's server load, 8 jobs, {memory}");
        table.row(RowSpec::new(id("e2/load", memory) + "/8", what, "", load));
    }
    table.section("\"Average JCT improved by up to 1.35 x\": the largest of our settings, by baseline (simulator)");
    let note = "the authors' baseline and setting are not known";
    let largest = |baseline: System, memories: &[&str]| {
        let settings = memories.iter().flat_map(|memory| [4, 8].map(|jobs| (jobs, *memory)));
        let of = |(jobs, memory): (u32, &str)| {
            let cell = |system| train(system, jobs, memory);
            (format!("{jobs} jobs, {memory}"), over(&cell, baseline, DIRECT))
        };
        Value::Best(settings.map(of).collect())
    };
    for (name, what, baseline, memories) in [
        ("atp", "ATP, as its released client has it", ATP, &["5 MiB", "1 MiB"][..]),
        ("atp-fixed", "ATP without new slots after collisions", ATP_FIXED, &["5 MiB"]),
        ("switchml", "SwitchML", SWITCHML, &["0.25 MiB", "0.5 MiB", "1 MiB", "5 MiB"]),
    ] {
        let row = RowSpec::new(format!("e2/published/{name}"), what, "", largest(baseline, memories));
        table.row(row.at_least(1.35, Source::Published, 0.0).note(note));
    }
}

fn split(table: &mut Table) {
    table.section("E2, taken apart: eight jobs in 1 MiB, each step over the one before (simulator)");
    let cell = |system| train(system, 8, "1 MiB");
    let quiet = || cell(VIA).with(&[("switch.priority", "constant"), ("switch.aging", "off")]);
    let steps = [
        ("readdress", "ATP without new slots over ATP: what new slots give", cell(ATP_FIXED), cell(ATP)),
        (
            "timer",
            "ATP without new slots over ESA via_ps without preemption: the flush timer",
            cell(ATP_FIXED),
            quiet(),
        ),
        ("preemption", "preemption by priority, via_ps", quiet(), cell(VIA)),
        ("hold", "and a slot that is free at once (via_ps_free)", cell(VIA), cell(VIA_FREE)),
        ("path", "and results without the server (direct)", cell(VIA_FREE), cell(DIRECT)),
    ];
    for (name, what, before, after) in steps {
        let row = RowSpec::new(format!("e2/split/{name}"), what, "", time(before).over(time(after)));
        // "Preemptive memory allocation" is one of the paper's two ideas; it must be worth something by itself.
        table.row(if name == "preemption" { row.at_least(1.0, Source::Published, 0.0) } else { row });
    }
    for (name, halves) in [("via_ps", VIA), ("direct", DIRECT)] {
        let value = time(cell(halves).set("switch.aging", "halve")).over(time(cell(halves)));
        let what = format!("{name}: every refusal halves the holder's priority, over only those of idle slots");
        table.row(RowSpec::new(format!("e2/aging/{name}"), what, "", value));
    }
    // A job that is left with one slot for many keys may take ten times as long as the others.
    let long = || cell(ATP).set("run.time_limit", "1000 ms");
    let halving = long().set("switch.halve_on_reordering", true);
    let what = "ATP whose windows halve after results out of order (paper), over ATP as released";
    table.row(RowSpec::new("e2/atp-halves", what, "", time(halving).over(time(long()))));
}

fn models(table: &mut Table) {
    table.section(
        "E2 with layers and times of models: four jobs, 5 MiB, fragments of 256 numbers, two iterations (simulator)",
    );
    for model in ["alexnet", "resnet50", "vgg16"] {
        let cell =
            |system: System| Cell::new(template!("esa_models.toml")).seeds(1).with(system).set("workload.model", model);
        for (name, words, baseline) in [("atp", "ATP", ATP), ("switchml", "SwitchML", SWITCHML)] {
            let what = format!("{model}: {words} over ESA direct");
            table.row(RowSpec::new(format!("e2/{model}/{name}"), what, "", over(&cell, baseline, DIRECT)));
        }
    }
}

fn mixes(table: &mut Table) {
    table.section("E3, E4: jobs that compute twice as long as they communicate, and half of each (simulator)");
    for memory in ["5 MiB", "1 MiB"] {
        let light = |system| train(system, 8, memory);
        let heavy = |system| light(system).set("workload.compute", "640 us");
        let what = format!("ATP over ESA direct, all compute, {memory}");
        table.row(RowSpec::new(id("e3", memory), what, "", gain(heavy, DIRECT)));
        // The sheet expects a smaller gain than in E2, because computation hides communication.
        let value = gain(heavy, DIRECT).over(gain(light, DIRECT));
        let what = format!("the same gain over that of jobs that communicate, {memory}");
        table.row(RowSpec::new(id("e3/smaller", memory), what, "", value).at_most(1.0, SECOND));
        let half = |system| light(system).set("workload.compute", "[\"160 us\", \"640 us\"]");
        let of = |class: usize| {
            let key = ["collectives.train/0.time_us", "collectives.train/1.time_us"][class];
            Value::Of(half(ATP), key).over(Value::Of(half(DIRECT), key))
        };
        for (class, words) in [(0, "network"), (1, "compute")] {
            let what = format!("ATP over ESA direct, half of each, {memory}: a {words}-heavy job");
            let row = RowSpec::new(id(&format!("e4/{words}"), memory), what, "", of(class));
            // "B jobs lose little": no more than a job of E2 may.
            table.row(if class == 1 { row.at_least(0.97, SECOND, 0.0) } else { row });
        }
        // "A jobs gain most".
        let what = format!("gain of a network-heavy job over that of a compute-heavy one, {memory}");
        table.row(RowSpec::new(id("e4/most", memory), what, "", of(0).over(of(1))).at_least(1.0, SECOND, 0.0));
    }
}

/// The load of ATP's server, divided by the load that its refusals predict: `(1 - f) + f W` for a share `f` of refused
/// fragments and `W` workers.
fn load_law(cell: &Cell, workers: u32) -> Value {
    let refused = Value::Of(cell.clone(), "switch.all.refused_share");
    Value::Of(cell.clone(), LOAD).over(Value::Linear(1.0, f64::from(workers) - 1.0, Box::new(refused)))
}

fn memory(table: &mut Table) {
    table.section("E5: memory, eight jobs (simulator)");
    let cell = |memory: &'static str| move |system| train(system, 8, memory);
    for memory in ["0.25 MiB", "0.5 MiB", "1 MiB", "2 MiB", "5 MiB", "10 MiB"] {
        for (name, words, baseline) in [
            ("e5", "ATP", ATP),
            ("e5/atp-fixed", "ATP without new slots", ATP_FIXED),
            ("e5/switchml", "SwitchML", SWITCHML),
        ] {
            let what = format!("{words} over ESA direct, {memory}");
            let row = RowSpec::new(id(name, memory), what, "", over(&cell(memory), baseline, DIRECT));
            // "The gain vanishes when memory is ample".
            table.row(if (name, memory) == ("e5", "10 MiB") { row.near(1.0, SECOND, 0.05) } else { row });
        }
        let what = format!("ATP's server load, {memory}");
        table.row(RowSpec::new(id("e5/load", memory), what, "", Value::Of(cell(memory)(ATP), LOAD)));
        let what = format!("ATP's server load over (1 - f) + 8 f, {memory}");
        let row = RowSpec::new(id("e5/law", memory), what, "", load_law(&cell(memory)(ATP), 8));
        table.row(row.near(1.0, Source::Arithmetic, 0.02));
    }
    // "... and shrinks when it is hopelessly small".
    let value = gain(cell("0.25 MiB"), DIRECT).over(gain(cell("0.5 MiB"), DIRECT));
    let row = RowSpec::new("e5/shrinks", "the gain over ATP with 0.25 MiB over that with 0.5 MiB", "", value);
    table.row(
        row.at_most(1.0, SECOND)
            .note("ATP's servers then get 3.7 times a worker's bytes; ESA's slots are free at once"),
    );
}

fn workers(table: &mut Table) {
    table.section("E6: workers per job, four jobs in 1 MiB (simulator)");
    let cell = |workers: u32| {
        move |system| {
            let hosts = 4 * (workers + 1);
            let cell = train(system, 4, "1 MiB").set("fabric.hosts", hosts).set("fabric.hosts_per_leaf", hosts);
            cell.set("workload.ranks", 4 * workers).set("workload.group", workers)
        }
    };
    let sizes = [("4", 4), ("8", 8), ("16", 16), ("32", 32)];
    for (name, count) in sizes {
        let what = format!("ATP over ESA direct, {count} workers");
        table.row(RowSpec::new(format!("e6/{name}"), what, "", gain(cell(count), DIRECT)));
        let what = format!("ATP's server load, {count} workers");
        table.row(RowSpec::new(format!("e6/load/{name}"), what, "", Value::Of(cell(count)(ATP), LOAD)));
        let what = format!("ATP's server load over (1 - f) + {count} f");
        let row = RowSpec::new(format!("e6/law/{name}"), what, "", load_law(&cell(count)(ATP), count));
        table.row(row.near(1.0, Source::Arithmetic, 0.02));
    }
    let gains = sizes.map(|(name, count)| (name, f64::from(count), gain(cell(count), DIRECT)));
    let what = "pairs of numbers of workers of which the larger does not gain more: the gap widens";
    let row = RowSpec::new("e6/widens", what, "", Value::Disorder(gains.to_vec()));
    table.row(row.near(0.0, SECOND, 0.0));
}

fn stragglers(table: &mut Table) {
    table.section(
        "E7: one of eight jobs has a straggler; the next job beside it, over alone with no straggler (simulator)",
    );
    for (name, system) in [("direct", DIRECT), ("atp", ATP), ("switchml", SWITCHML)] {
        for late in ["0.3", "1", "3"] {
            let list = |late: &str| format!("[{late}, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]");
            let cell = |late: &str| train(system, 8, "1 MiB").set("workload.stragglers", list(late));
            let of = |late: &str| Value::Of(cell(late), "collectives.train/1.time_us");
            let what = format!("{name}: another job's time, a straggler of {late} x over none");
            let row = RowSpec::new(format!("e7/{name}/{late}"), what, "", of(late).over(of("0")));
            // The sheet expects that others suffer under ATP and SwitchML, and not under ESA.
            table.row(match name {
                "direct" => row.at_most(1.02, Source::Ours),
                _ => row.at_least(1.02, Source::Ours, 0.0),
            });
        }
    }
}

fn ablations(table: &mut Table) {
    table.section("E8: ESA direct with a part left out, over all of it; half of each kind of job, 1 MiB (simulator)");
    let cell = |set: System| train(DIRECT, 8, "1 MiB").set("workload.compute", "[\"160 us\", \"640 us\"]").with(set);
    let parts: [(&str, &str, System); 9] = [
        ("no_preemption", "no preemption", &[("switch.priority", "constant"), ("switch.aging", "off")]),
        ("constant", "no priority, aging alone", &[("switch.priority", "constant"), ("switch.aging", "halve")]),
        ("halve", "every refusal ages the holder", &[("switch.aging", "halve")]),
        ("random", "random priority", &[("switch.priority", "random")]),
        ("intra", "layers alone", &[("switch.priority", "intra_only")]),
        ("inter", "jobs alone", &[("switch.priority", "inter_only")]),
        ("las", "least attained service", &[("switch.priority", "las")]),
        ("no_aging", "no aging", &[("switch.aging", "off")]),
        ("via_ps", "results via the server", &[("switch.results", "via_ps")]),
    ];
    for (id, what, set) in parts {
        let row = RowSpec::new(format!("e8/{id}"), what, "", time(cell(set)).over(time(cell(&[]))));
        // The sheet expects that nothing is better without one of its parts.
        table.row(row.at_least(1.0, Source::Ours, 0.01));
    }
}

fn losses(table: &mut Table) {
    table.section("E9: losses at all links to and from hosts, four jobs in 5 MiB, over none (simulator)");
    let systems = [("direct", DIRECT), ("atp", ATP), ("switchml", SWITCHML)];
    let cell = |system, timeout: Option<&str>, loss: Option<&str>| {
        let cell = train(system, 4, "5 MiB").set("run.time_limit", "1000 ms");
        let cell = match timeout {
            Some(timeout) => cell.set("switch.timeout", timeout),
            None => cell,
        };
        match loss {
            Some(loss) => {
                let fault = format!("[{{ tier = \"host->leaf\", count = 72, kind = \"loss\", probability = {loss} }}]");
                cell.set("faults", fault)
            }
            None => cell,
        }
    };
    for (name, system) in systems {
        for loss in ["1e-5", "1e-4", "1e-3", "1e-2"] {
            let value = time(cell(system, None, Some(loss))).over(time(cell(system, None, None)));
            let row = RowSpec::new(format!("e9/{name}/{loss}"), format!("{name}, loss {loss}"), "", value);
            table.row(match (name, loss) {
                ("direct", "1e-3") => row.at_most(2.0, Source::Ours),
                ("direct", "1e-2") => row.at_most(10.0, Source::Ours),
                _ => row,
            });
        }
    }
    table.section("E9 with a shortest timer of 200 us for all three systems (simulator)");
    for (name, system) in systems {
        for loss in ["1e-3", "1e-2"] {
            let timer = Some("200 us");
            let value = time(cell(system, timer, Some(loss))).over(time(cell(system, timer, None)));
            let what = format!("{name}, timer of 200 us, loss {loss}");
            table.row(RowSpec::new(format!("e9/equal/{name}/{loss}"), what, "", value));
        }
    }
    table.section("Queues longer than a round trip: two jobs behind ports of 25 Mb/s (simulator)");
    // Three iterations: all fragments at the rate of a port, and the longest computation, in us.
    let ideal = 3.0 * (4_194_304.0 * (1024.0 + 120.0) / 1024.0 * 8.0 / 25.0 + 2.0 * 160e3);
    let cell = || Cell::new(template!("esa_slow_ports.toml"));
    let direct = time(cell().with(DIRECT).set("switch.priority", "constant"));
    let what = "direct: three iterations; at most twice what the bytes and the computation take";
    table.row(RowSpec::new("slow/direct", what, "us", direct).at_most(2.0 * ideal, Source::Ours));
    let atp = time(cell().with(ATP).set("switch.timeout", "1500 ms"));
    let row = RowSpec::new("slow/atp", "atp with a shortest timer of 1.5 s", "us", atp);
    table.row(
        row.note("with its timer of 200 us it never ends: workers fill the queues with fragments that they send again"),
    );
}

fn racks(table: &mut Table) {
    table.section("E10: two racks, one job of 16 workers (simulator)");
    for (name, system) in [("direct", DIRECT), ("atp", ATP), ("switchml", SWITCHML)] {
        let cell = || {
            let cell = train(system, 2, "64 MiB")
                .set("workload.group", 16)
                .set("fabric.hosts", 20)
                .set("fabric.hosts_per_leaf", 10);
            cell.set("workload.placement", "random").set("workload.arrivals", "0 us")
        };
        let streams = Value::Of(cell(), "links.leaf->spine.bytes").over(Value::Of(cell(), "links.host->leaf.bytes"));
        let what = format!("{name}: bytes up from leaves over those from hosts");
        let row = RowSpec::new(format!("e10/{name}"), what, "", streams);
        // One stream up from each rack; hosts send one for each worker, and with ATP one more from the server.
        let expected = if name == "atp" { 2.0 / 17.0 } else { 2.0 / 16.0 };
        table.row(row.near(expected, Source::Arithmetic, 0.05));
    }
}

fn bits(table: &mut Table) {
    table.section("E13: bits of the priority, half of each kind of job, 1 MiB, over eight bits (simulator)");
    let cell = |bits: u32| {
        let cell = train(DIRECT, 8, "1 MiB").set("workload.compute", "[\"160 us\", \"640 us\"]");
        cell.set("switch.priority_bits", bits)
    };
    for few in [1, 2, 4] {
        let value = time(cell(few)).over(time(cell(8)));
        table.row(RowSpec::new(format!("e13/{few}"), format!("{few} bits"), "", value));
    }
}
