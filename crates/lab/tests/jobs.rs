//! Training jobs with sharded layers. Computing and waiting add up to the ranks' time, times agree with arithmetic
//! where nothing overlaps, and invalid settings are explained.

use serde_json::Value;
use std::collections::BTreeMap;
use strandway_import::Problems;
use strandway_lab::{Experiment, Outcome, run, trace};
use strandway_report::JobFacts;
use strandway_scenario::parse;
use strandway_sim::Control;

/// Four layers of 4 MiB among eight hosts below one switch at 400 Gb/s.
const JOB: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 8\nrate = \"400 Gbps\"\n[profile]\nname = \"uec\"\n\
                   [workload]\nkind = \"fsdp\"\nname = \"job\"\nsize = \"16 MiB\"\nlayers = 4\ncompute = \"1200 us\"\n";

/// The time in which a rank receives its part of a layer, without headers.
const LAYER_US: f64 = 4.0 * 1_048_576.0 * 7.0 / 8.0 * 8.0 / 400e3;

fn check(text: &str, sets: &[&str]) -> Result<Experiment, Problems> {
    let mut scenario = parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    strandway_lab::check(&scenario)
}

fn outcome(text: &str, sets: &[&str]) -> Outcome {
    run(&check(text, sets).unwrap_or_else(|e| panic!("{e}")), &Control::new())
}

fn job(sets: &[&str]) -> JobFacts {
    let mut jobs = outcome(JOB, sets).report.jobs;
    assert_eq!(jobs.len(), 1);
    jobs.pop().expect("one job")
}

fn iteration(job: &JobFacts) -> f64 {
    job.iteration_us.expect("iterations that ended")
}

fn exposed(job: &JobFacts, name: &str) -> f64 {
    job.exposed.iter().find(|exposed| exposed.name == name).map_or(0.0, |exposed| exposed.us)
}

#[test]
fn computation_and_waits_are_all_of_the_time_of_ranks() {
    for sets in [
        &["workload.iterations=3"][..],
        &["workload.iterations=2", "workload.stragglers=0.5", "workload.noise=0.1"],
        &["workload.gather=multicast", "workload.scatter=in-network", "workload.prefetch=0"],
        &["workload.gather=recursive-doubling", "workload.reshard=false"],
    ] {
        let job = job(sets);
        assert_eq!(job.iterations_ended, job.iterations, "{sets:?}");
        let waited: f64 = job.exposed.iter().map(|exposed| exposed.us).sum();
        // Ranks end their iterations at times that differ by at most the time of a message.
        let off = (job.computed_us + waited) / iteration(&job);
        assert!((0.95..=1.0 + 1e-9).contains(&off), "{sets:?}: {off} of an iteration");
        // Ranks that end early wait for the others, too.
        assert!((job.bubble - (1.0 - job.computed_us / iteration(&job))).abs() < 1e-9);
        assert!(job.bubble >= waited / (waited + job.computed_us) - 1e-9);
        assert!(iteration(&job) >= job.bound_us, "{sets:?}: {} below {}", iteration(&job), job.bound_us);
    }
}

#[test]
fn collectives_are_as_many_as_layers_say() {
    let counts = |sets: &[&str]| -> Vec<(u64, u64)> {
        job(sets).operations.iter().map(|operation| (operation.count, operation.ended)).collect()
    };
    // The backward pass needs no gather for the last layer, which is still in memory.
    assert_eq!(counts(&["workload.iterations=3"]), [(3 * 7, 3 * 7), (3 * 4, 3 * 4)]);
    assert_eq!(counts(&["workload.iterations=3", "workload.reshard=false"]), [(3 * 4, 3 * 4), (3 * 4, 3 * 4)]);
}

/// Without computation nothing overlaps in the forward pass: layers follow each other.
#[test]
fn without_computation_an_iteration_takes_what_its_gathers_take() {
    let job = job(&["workload.compute=\"0 us\"", "workload.reshard=false"]);
    let bytes = (4.0 + 4.0) * LAYER_US;
    let waited = exposed(&job, "all-gather") + exposed(&job, "reduce-scatter");
    assert!(job.computed_us == 0.0 && job.bubble == 1.0);
    assert!((bytes..1.5 * bytes).contains(&waited), "{waited} us of waiting, {bytes} us of bytes");
    assert!((waited / iteration(&job) - 1.0).abs() < 0.03);
}

/// If computation takes longer than the traffic beside it, a rank waits only for the first layer and the last
/// gradients.
#[test]
fn long_computation_hides_all_but_the_ends() {
    let ahead = job(&["workload.compute=\"12 ms\""]);
    let waited = exposed(&ahead, "all-gather") + exposed(&ahead, "reduce-scatter");
    // The first gather and the last scatter run alone.
    let ends = 2.0 * LAYER_US;
    assert!((ends..1.3 * ends).contains(&waited), "{waited} us of waiting, {ends} us of bytes");
    // Without prefetch a rank waits for every layer: four in the forward pass, and three in the backward pass, whose
    // gathers share the links with scatters.
    let late = job(&["workload.compute=\"12 ms\"", "workload.prefetch=0"]);
    let gathers = exposed(&late, "all-gather") / exposed(&ahead, "all-gather");
    assert!((4.0 + 3.0..4.0 + 3.0 * 2.0).contains(&gathers), "{gathers} gathers were waited for");
}

/// All other ranks wait for the slowest rank.
#[test]
fn stragglers_make_others_wait() {
    let even = job(&["workload.iterations=4"]);
    let uneven = job(&["workload.iterations=4", "workload.stragglers=1"]);
    assert!(uneven.bubble > even.bubble + 0.05, "{} after {}", uneven.bubble, even.bubble);
    assert!(uneven.computed_us > 1.2 * even.computed_us);
}

#[test]
fn the_last_iteration_of_the_slowest_rank_is_told_step_by_step() {
    let job = job(&["workload.iterations=2"]);
    let of = |kind: &str| job.timeline.iter().filter(|step| step.kind == kind).count();
    assert_eq!((of("forward"), of("backward"), of("all-gather"), of("reduce-scatter")), (4, 4, 7, 4));
    let mut until = [0.0; 3];
    for step in &job.timeline {
        assert!(step.from_us >= until[usize::from(step.stream)] - 1e-6 && step.until_us >= step.from_us);
        until[usize::from(step.stream)] = step.until_us;
    }
}

/// If a host is cut off, its job stops, and the run reports that at its time limit.
#[test]
fn a_job_whose_rank_is_cut_off_is_unfinished() {
    let text = format!(
        "{JOB}[run]\ntime_limit = \"20 ms\"\n[[faults]]\nlink = \"host3->leaf0\"\nkind = \"down\"\nat = \"100 us\"\n"
    );
    let report = outcome(&text, &["workload.iterations=2"]).report;
    assert_ne!(report.head.end, "finished");
    assert_eq!(report.jobs[0].iterations_ended, 0);
    assert!(report.jobs[0].time_us.is_none());
    assert!(report.flows.finished < report.flows.total);
}

/// Perfetto's rules for the format: slices of a thread are nested or do not overlap, every begin has an end, and
/// threads have names.
#[test]
fn a_trace_tells_every_step_of_every_rank() {
    let text = format!(
        "{JOB}iterations = 2\n[[workload]]\nkind = \"all-reduce\"\nname = \"beside\"\nsize = \"1 MB\"\n\
         [[faults]]\nlink = \"host3->leaf0\"\nkind = \"degrade\"\nfraction = 0.5\nat = \"100 us\"\n"
    )
    .replacen("[workload]", "[[workload]]", 1);
    let mut experiment = check(&text, &[]).unwrap_or_else(|e| panic!("{e}"));
    experiment.with_series();
    let outcome = run(&experiment, &Control::new());
    let mut bytes = Vec::new();
    let traced = trace::write(&experiment, &outcome, &mut bytes).expect("room");
    let events: Vec<Value> = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(events.len() as u64, traced.events);
    assert_eq!((traced.flows_left_out, traced.flows_without_rows, traced.ranks_left_out), (0, 0, 0));
    let of = |phase: &str| -> Vec<&Value> { events.iter().filter(|event| event["ph"] == phase).collect() };
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
    let mut threads: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for slice in of("X") {
        let from = number(slice, "ts");
        let key = (number(slice, "pid") as u64, number(slice, "tid") as u64);
        threads.entry(key).or_default().push((from, from + number(slice, "dur")));
    }
    // Three streams of eight ranks, and a fault.
    assert_eq!(threads.len(), 8 * 3 + 1);
    for (thread, slices) in &mut threads {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(slices.windows(2).all(|pair| pair[1].0 >= pair[0].1 - 1e-6), "slices of {thread:?} overlap");
        let names = |event: &&&Value| {
            event["name"] == "thread_name"
                && (event["pid"].as_u64(), event["tid"].as_u64()) == (Some(thread.0), Some(thread.1))
        };
        assert_eq!(of("M").iter().filter(names).count(), 1, "{thread:?} has one name");
    }
    // Two iterations of 4 forward, 4 backward, 7 gathers, 4 scatters and an update.
    assert_eq!(of("X").len(), 8 * 2 * 20 + 1);
    // Every message of the job and of the collective, and the collective.
    let spans = outcome.report.flows.total as usize + 1;
    assert!(spans > 8 * 14 + 1);
    assert_eq!((of("b").len(), of("e").len()), (spans, spans));
    assert!(of("C").len() > 100);
}

/// The trace of a pipeline that loses a link: every event has the fields of its kind, slices of a thread do not
/// overlap, begins and ends of asynchronous events belong together, and the fault is there.
#[test]
fn a_trace_of_a_model_s_job_has_the_form_of_perfetto() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/golden/job_link_down.toml");
    let scenario = strandway_lab::Scenario::load(&file).unwrap_or_else(|e| panic!("{e}"));
    let mut experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
    experiment.with_series();
    let outcome = run(&experiment, &Control::new());
    let mut bytes = Vec::new();
    trace::write(&experiment, &outcome, &mut bytes).expect("room");
    let events: Vec<Value> = serde_json::from_slice(&bytes).expect("JSON");
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
    let mut threads: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut open: BTreeMap<(String, String), i64> = BTreeMap::new();
    for event in &events {
        assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
        match event["ph"].as_str() {
            Some("M") => assert!(event["args"]["name"].is_string() || event["args"]["sort_index"].is_i64(), "{event}"),
            Some("C") => assert!(event["args"].as_object().is_some_and(|args| args.values().all(Value::is_number))),
            Some("X") => {
                let (from, lasts) = (number(event, "ts"), number(event, "dur"));
                assert!(from >= 0.0 && lasts >= 0.0, "{event}");
                let thread = (number(event, "pid") as u64, number(event, "tid") as u64);
                threads.entry(thread).or_default().push((from, from + lasts));
            }
            Some(kind @ ("b" | "e")) => {
                let key = (event["cat"].to_string(), event["id"].to_string());
                *open.entry(key).or_insert(0) += if kind == "b" { 1 } else { -1 };
                number(event, "ts");
            }
            Some("i") => drop(number(event, "ts")),
            other => panic!("{other:?}: {event}"),
        }
    }
    assert!(open.values().all(|left| *left == 0));
    assert!(threads.len() > 32, "{} threads", threads.len());
    for (thread, slices) in &mut threads {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(slices.windows(2).all(|pair| pair[1].0 >= pair[0].1 - 1e-6), "slices of {thread:?} overlap");
    }
    assert!(events.iter().any(|event| event["name"].as_str().is_some_and(|name| name.contains("leaf1 - spine2 down"))));
}

#[test]
fn a_job_that_makes_no_sense_is_explained() {
    for (set, wanted) in [
        ("workload.layers=0", "workload.layers = 0: must be at least 1"),
        ("workload.size=\"16 B\"", "less than a byte per rank"),
        ("workload.gather=tree", "workload.gather"),
        ("workload.chains=2", "unknown key"),
        ("workload.iterations=65537", "must be at most 65536"),
    ] {
        let problems = check(JOB, &[set]).err().map_or("nothing is wrong".to_string(), |problems| problems.to_string());
        assert!(problems.contains(wanted), "{set}: {problems}");
    }
    let problems = check(JOB, &["workload.gather=recursive-doubling", "workload.ranks=6"]).err().map(|p| p.to_string());
    assert!(problems.as_deref().is_some_and(|text| text.contains("workload")), "{problems:?}");
}
