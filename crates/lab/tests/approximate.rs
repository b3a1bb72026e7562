//! Smaller runs that stand for a whole job: their times are those of the whole job within the error that they state,
//! everything that cannot be known is absent, and jobs for which they cannot stand are refused.

use strandway_import::Problems;
use strandway_lab::{Approximation, run};
use strandway_report::{JobFacts, Report, html, markdown, text};
use strandway_scenario::{Reduction, Scenario, parse};
use strandway_sim::Control;

/// 16 servers of eight GPUs, four to a leaf of each rail.
const FABRIC: &str = "[fabric]\nhosts = 128\nhosts_per_leaf = 4\nspines = 4\nrate = \"400 Gbps\"\n\
                      [servers]\ngpus = 8\nwiring = \"rail-optimised\"\n[profile]\nname = \"uec\"\n";
const JOB: &str = "[job]\nname = \"job\"\nlayers = 4\nhidden = 2048\nsequence = 1024\ntp = 8\ndp = 16\nmicro_batches = 2\n\
                   buckets = 2\n";

fn scenario(text: &str, sets: &[&str]) -> Scenario {
    let mut scenario = parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    scenario
}

fn usual(sets: &[&str]) -> Scenario {
    scenario(&format!("{FABRIC}{JOB}"), sets)
}

fn whole(scenario: &Scenario) -> Report {
    run(&strandway_lab::check(scenario).unwrap_or_else(|e| panic!("{e}")), &Control::new()).report
}

fn approximate(scenario: &Scenario, threads: usize) -> Report {
    let approximation = Approximation::of(scenario).unwrap_or_else(|e| panic!("{e}"));
    approximation.run(Some(threads), |_, _| ()).unwrap_or_else(|e| panic!("{e}")).1.report
}

fn iteration(job: &JobFacts) -> f64 {
    job.iteration_us.expect("it ended")
}

fn refused(scenario: &Scenario, reduction: Reduction) -> Problems {
    strandway_lab::check(&scenario.reduced(reduction)).map(|_| ()).expect_err("it cannot stand for the whole run")
}

#[test]
fn times_are_those_of_the_whole_job_within_the_error_that_they_state() {
    for sets in [
        &[][..],
        &["job.pp=2", "job.dp=8", "job.micro_batches=4"],
        &["profile.name=rocev2", "servers.wiring=by-server"],
        &["job.noise=0.02"],
    ] {
        let real = whole(&usual(sets));
        let mut smaller = usual(sets);
        smaller.set("run.approximate=[2, 3, 4]").expect("a list");
        let said = approximate(&smaller, 1);
        let facts = said.approximate.as_ref().expect("smaller runs");
        assert_eq!(facts.divisors, [2, 3, 4]);
        let alike = !sets.iter().any(|set| set.contains("by-server") || set.contains("noise"));
        assert_eq!(facts.rails, if alike { 8 } else { 1 });
        let (ours, theirs) = (&said.jobs[0], &real.jobs[0]);
        let figure = facts.figures.iter().find(|figure| figure.name == "iteration").expect("an iteration");
        let off = (iteration(ours) - iteration(theirs)).abs();
        let may = figure.error_us + 0.01 * iteration(theirs);
        assert!(off <= may, "{sets:?}: {off} us off, {} us stated", figure.error_us);
        assert_eq!((ours.ranks, ours.iterations_ended), (theirs.ranks, theirs.iterations_ended));
        for (ours, theirs) in ours.operations.iter().zip(&theirs.operations) {
            assert_eq!((&ours.name, ours.count, ours.ended), (&theirs.name, theirs.count, theirs.ended), "{sets:?}");
            let bytes = ours.bytes as f64 / theirs.bytes as f64;
            assert!((bytes - 1.0).abs() < 0.01, "{sets:?}: {} of {} bytes", ours.bytes, theirs.bytes);
        }
        let mfu = ours.mfu.expect("a model") / theirs.mfu.expect("a model");
        assert!((mfu * iteration(ours) / iteration(theirs) - 1.0).abs() < 1e-6, "{sets:?}: {mfu}");
        let shares: f64 = ours.parts.iter().filter_map(|part| part.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{sets:?}: {shares}");
    }
}

#[test]
fn one_replica_stands_for_several() {
    let time = |divisor: u64, replicas| {
        let reduction = Reduction { divisor, rails: 8, replicas };
        iteration(&whole(&usual(&[]).reduced(reduction)).jobs[0]) * divisor as f64
    };
    let extrapolated = |replicas| {
        let (two, four) = (time(2, replicas), time(4, replicas));
        two - (four - two) / 2.0
    };
    let (all, half) = (extrapolated(1), extrapolated(2));
    assert!((half / all - 1.0).abs() < 0.005, "{half} of half the replicas, {all} of all");
}

#[test]
fn every_form_of_a_report_says_that_it_is_approximate_and_nothing_that_is_not_known() {
    let report = approximate(&usual(&["run.approximate=[2, 3, 4]", "expect.\"jobs.job.iteration_us\"=\"> 1e9\""]), 1);
    let back: Report = serde_json::from_str(&report.to_json()).expect("its own form");
    assert_eq!(back.approximate.map(|facts| facts.divisors), Some(vec![2, 3, 4]));
    assert!(report.load.links.is_empty() && report.classes.is_empty() && report.packets.sent == 0);
    for shown in [text::report(&report), markdown::report(&report), html::report(&report)] {
        assert!(shown.contains("approximate: 3 runs simulate 1/2, 1/3 and 1/4 of the bytes"), "{shown}");
        assert!(shown.contains("the last one with 2 seeds") && shown.contains("of chance (another seed)"), "{shown}");
        assert!(shown.contains("one rail of 8"), "{shown}");
        assert!(!shown.contains("flows finished") && !shown.contains("packets sent"), "{shown}");
    }
    assert_eq!(report.expect.len(), 1);
    assert!(!report.expect[0].met && report.expect[0].value == report.jobs[0].iteration_us);
}

#[test]
fn digests_do_not_depend_on_threads() {
    let scenario = usual(&["run.approximate=[4, 6, 8]"]);
    let (one, two) = (approximate(&scenario, 1), approximate(&scenario, 2));
    assert_eq!((one.head.digest, one.jobs[0].iteration_us), (two.head.digest, two.jobs[0].iteration_us));
}

#[test]
fn a_short_run_is_simulated_as_a_whole() {
    let report = approximate(&usual(&["run.approximate=true"]), 1);
    assert!(
        report.approximate.is_none()
            && report.notes.iter().any(|note| note.contains("the whole run was simulated, since it is short"))
    );
    assert_eq!(report.jobs[0].iteration_us, whole(&usual(&[])).jobs[0].iteration_us);
}

#[test]
fn jobs_for_which_smaller_runs_cannot_stand_are_simulated_as_a_whole() {
    let beside = "[[workload]]\nkind = \"permutation\"\nsize = \"1 MB\"\n";
    for (text, sets, why) in [
        (format!("{FABRIC}{JOB}{beside}"), &["run.approximate=[2, 3, 4]"][..], "nothing beside"),
        (format!("{FABRIC}{JOB}"), &["run.approximate=true", "job.algorithm=direct"], "process groups"),
    ] {
        let mut scenario = scenario(&text, sets);
        let approximation = Approximation::of(&scenario).unwrap_or_else(|e| panic!("{e}"));
        let hops = approximation.estimate().unwrap_or_else(|e| panic!("{e}")).packet_hops;
        let (_, outcome) = approximation.run(Some(1), |_, _| ()).unwrap_or_else(|e| panic!("{e}"));
        scenario.remove("run.approximate");
        let real = whole(&scenario);
        assert_eq!(outcome.report.head.digest, real.head.digest, "{why}");
        let said = outcome.report.notes.first().map_or("", String::as_str);
        assert!(said.starts_with("not approximate: the whole run was simulated") && said.contains(why), "{said}");
        assert!(outcome.report.approximate.is_none() && hops > real.run.packet_hops / 2, "{hops}");
    }
}

#[test]
fn the_difference_that_another_seed_makes_is_shown() {
    let chance = |sets: &[&str]| {
        let report = approximate(&usual(&[&["run.approximate=[2, 3, 4]"], sets].concat()), 1);
        let figures = report.approximate.expect("smaller runs").figures;
        figures.iter().find(|figure| figure.name == "iteration").expect("an iteration").chance_us
            / iteration(&report.jobs[0])
    };
    let (calm, noisy) = (chance(&[]), chance(&["job.noise=0.1"]));
    assert!(calm < 0.01 && noisy > calm, "{calm} without noise, {noisy} with it");
}

#[test]
fn a_fault_of_a_spine_strikes_at_the_same_moment_of_the_job() {
    let fault = "[[faults]]\nswitch = \"spine0\"\nkind = \"down\"\nat = \"300 us\"\n";
    let broken = scenario(&format!("{FABRIC}{JOB}{fault}"), &["run.approximate=[2, 3, 4]", "job.pp=2", "job.dp=8"]);
    let report = approximate(&broken, 1);
    assert_eq!(report.faults.len(), 1);
    assert!((report.faults[0].from_us - 300.0).abs() < 1e-6, "{}", report.faults[0].from_us);
    assert_eq!(report.approximate.map(|facts| facts.rails), Some(8));
}

#[test]
fn jobs_for_which_smaller_runs_cannot_stand_are_refused() {
    let smaller = Reduction { divisor: 8, rails: 1, replicas: 1 };
    let rails = Reduction { divisor: 8, rails: 8, replicas: 1 };
    let replicas = Reduction { divisor: 8, rails: 8, replicas: 2 };
    let beside = "[[workload]]\nkind = \"permutation\"\nsize = \"1 MB\"\n";
    let fault = "[[faults]]\nswitch = \"leaf0\"\nkind = \"down\"\nat = \"300 us\"\n";
    for (text, sets, reduction, what) in [
        (format!("{FABRIC}{JOB}{beside}"), &[][..], smaller, "nothing beside"),
        (format!("{FABRIC}{beside}"), &[], smaller, "jobs with a model"),
        (format!("{FABRIC}{JOB}"), &["job.algorithm=direct"], smaller, "process groups"),
        (format!("{FABRIC}{JOB}"), &["job.tp=4", "job.dp=32"], rails, "whole servers"),
        (format!("{FABRIC}{JOB}"), &["servers.wiring=by-server"], rails, "rails with leaves"),
        (format!("{FABRIC}{JOB}{fault}"), &[], rails, "faults of planes or spines"),
        (format!("{FABRIC}{JOB}"), &["job.noise=0.1"], rails, "compute equally long"),
        (format!("{FABRIC}{JOB}"), &["job.algorithm=tree"], replicas, "around rings"),
        (format!("{FABRIC}{JOB}"), &["job.pp=2", "job.dp=8"], replicas, "whole leaves"),
    ] {
        let said = refused(&scenario(&text, sets), reduction).to_string();
        assert!(said.contains("run.approximate") && said.contains(what), "{sets:?}: {said}");
    }
    for wrong in ["run.approximate=3", "run.approximate=[16]", "run.approximate=[16, 16]", "run.approximate=[1, 2]"] {
        let said = strandway_lab::check(&usual(&[wrong])).map(|_| ()).expect_err("no value").to_string();
        assert!(said.contains("run.approximate") && said.contains("[16, 24, 32]"), "{wrong}: {said}");
    }
}
