//! The run is the one that the user asked for, and every report shows how it was asked for.

use strandway_lab::{Scenario, compare, facts, run, run_all, sweep};
use strandway_proto::profile::Routing;
use strandway_report::{self as report, Report};
use strandway_scenario::parse;
use strandway_sim::Control;

const TWO: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n\
                   [[workload]]\nname = \"a\"\nkind = \"incast\"\nsenders = 2\nsize = \"10 kB\"\n\
                   [[workload]]\nname = \"b\"\nsize = \"20 kB\"\n\
                   [[faults]]\nbetween = [\"leaf0\", \"spine1\"]\nkind = \"degrade\"\nfraction = 0.25\n\
                   [[faults]]\nplane = 0\nkind = \"down\"\nsilent = true\nat = \"1 s\"\n";

fn sound(text: &str) -> Scenario {
    parse(text).unwrap_or_else(|e| panic!("{e}"))
}

fn report_of(scenario: &Scenario) -> Report {
    run(&strandway_lab::check(scenario).unwrap_or_else(|e| panic!("{e}")), &Control::new()).report
}

#[test]
fn a_profile_brings_the_routing_that_it_is_made_for() {
    for (profile, written, wanted) in [
        ("uec", "", Routing::Hashed),
        ("prime", "", Routing::Direct),
        ("mrc", "", Routing::Source),
        ("uec/prime", "", Routing::Direct),
        ("prime", "routing = \"hashed\"\n", Routing::Hashed),
        ("uec", "routing = \"source\"\n", Routing::Source),
    ] {
        let text = format!("[fabric]\nhosts = 8\nhosts_per_leaf = 4\n{written}[profile]\nname = \"{profile}\"\n");
        let experiment = strandway_lab::check(&sound(&text)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(experiment.plan.routing, wanted, "{profile} {written}");
        // If a profile runs on switches for which it was not made, a note says so.
        let told = experiment.notes.iter().any(|note| note.contains("is made for fabric.routing = \"direct\""));
        assert_eq!(told, profile == "prime" && wanted == Routing::Hashed, "{:?}", experiment.notes);
    }
}

#[test]
fn rows_of_a_comparison_carry_keys_of_their_own() {
    let profiles = ["uec", "prime", "prime+routing=hashed", "uec+workload.b.size=30kB+queue=200 kB"].map(String::from);
    let variants = compare(&sound(TWO), &profiles).unwrap_or_else(|e| panic!("{e}"));
    let plans: Vec<_> = variants.iter().map(|v| strandway_lab::check(&v.scenario).expect("sound")).collect();
    let routing: Vec<_> = plans.iter().map(|e| e.plan.routing).collect();
    assert_eq!(routing, [Routing::Hashed, Routing::Direct, Routing::Hashed, Routing::Hashed]);
    assert_eq!(plans[3].plan.ports.data_queue.0, 200_000);
    assert_eq!(plans[3].messages.last().map(|m| m.bytes), Some(30_000));
    assert_eq!(plans[0].messages.last().map(|m| m.bytes), Some(20_000));
    for (bad, fragment) in [("uec+routing", "no key and value"), ("uec+faults.7.kind=down", "numbered from 0 to 1")] {
        let said = compare(&sound(TWO), &[bad.to_string()]).expect_err(bad).to_string();
        assert!(said.contains(fragment) && said.contains("plus signs"), "{bad}: {said}");
    }
}

#[test]
fn members_of_lists_can_be_set_and_swept() {
    let mut scenario = sound(TWO);
    scenario.set("workload.b.size=40 kB").expect("by name");
    scenario.set("faults.1.enabled=false").expect("by number");
    let experiment = strandway_lab::check(&scenario).expect("sound");
    assert_eq!(experiment.messages.last().map(|m| m.bytes), Some(40_000));
    assert_eq!(experiment.faults.len(), 1);

    let swept =
        format!("{TWO}[sweep]\n\"faults.0.enabled\" = [true, false]\n\"workload.a.size\" = [\"10 kB\", \"20 kB\"]\n");
    let variants = sweep(&sound(&swept)).unwrap_or_else(|e| panic!("{e}"));
    let struck: Vec<_> =
        variants.iter().map(|v| strandway_lab::check(&v.scenario).expect("sound").plan.faults.len()).collect();
    assert_eq!(struck, [2, 2, 1, 1]);

    let whole = "[sweep]\nfaults = [[], [{ plane = 0, kind = \"loss\", probability = 0.01 }]]\n";
    let variants = sweep(&sound(&format!("{TWO}{whole}"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(variants[0].label, "faults=none");
    let struck: Vec<_> =
        variants.iter().map(|v| strandway_lab::check(&v.scenario).expect("sound").plan.faults.len()).collect();
    assert_eq!(struck, [0, 1]);
}

#[test]
fn every_format_tells_the_scenario_that_took_effect() {
    let mut scenario = sound(TWO);
    scenario.asked_by("strandway run two.toml --set 'workload.b.size=40 kB'");
    scenario.set("workload.b.size=40 kB").expect("sound");
    let report = report_of(&scenario);
    for page in [report::html::report(&report), report::markdown::report(&report), report.to_json()] {
        for told in ["40 kB", "strandway run two.toml", "leaf0 - spine1 at 25 % of its rate", "plane 0 down, silent"] {
            assert!(page.contains(told), "{told} is missing in {page}");
        }
        assert!(!page.contains("size = &quot;20 kB") && !page.contains("size = \\\"20 kB"), "the old size is shown");
    }
    let text = report::text::report(&report);
    for told in [
        "changed: workload.b.size = \"40 kB\"",
        "faults: leaf0 - spine1 at 25 % of its rate, from the start; plane 0 down, silent, from 1.00 s",
    ] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    // The JSON report contains a scenario that repeats the run.
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let again = sound(json["origin"]["scenario"].as_str().expect("text"));
    assert_eq!(report_of(&again).head.digest, report.head.digest);
}

#[test]
fn seeds_are_averaged_wherever_they_are_swept() {
    let text = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n[workload]\nsize = \"100 kB\"\n\
                [sweep]\n\"profile.path\" = [\"single\", \"reps\"]\n\"run.seed\" = [1, 2, 3]\n";
    let variants = sweep(&sound(text)).unwrap_or_else(|e| panic!("{e}"));
    let rows = run_all(&variants, 2, false, || false, |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
    let all = strandway_report::Rows::new(rows.clone());
    assert_eq!((all.rows.len(), all.lines.len()), (6, 2));
    let single: Vec<f64> = rows[..3].iter().filter_map(|r| r.report.times.fct_us.max).collect();
    let mean = single.iter().sum::<f64>() / 3.0;
    assert!((all.lines[0].values["fct_us.max"].mean - mean).abs() < 1e-9);
    assert!(all.lines[0].values["fct_us.max"].min < all.lines[0].values["fct_us.max"].max, "seeds differ");
    let table = report::text::rows(&rows, None);
    assert!(table.contains("mean of 3 seeds"), "{table}");
    assert!(report::markdown::rows("x", &rows).contains("path=single, mean of 3 seeds"));

    // A comparison varies the keys that the scenario sweeps, except those of the profile.
    let compared = compare(&sound(text), &["uec".to_string(), "mrc".to_string()]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(compared.len(), 6);
    assert!(strandway_scenario::sweep::seed_counts(&sound(text), 9).is_err());
    assert!(strandway_scenario::sweep::seed_counts(&sound(TWO), 9).is_ok());
}

#[test]
fn a_run_that_fails_does_not_end_the_others() {
    let text =
        "[fabric]\nhosts = 4\nhosts_per_leaf = 2\n[workload]\nsize = \"1 kB\"\n[sweep]\n\"run.seed\" = [1, 2, 3]\n";
    let variants = sweep(&sound(text)).unwrap_or_else(|e| panic!("{e}"));
    let ended = std::sync::Mutex::new(Vec::new());
    let watch = |i: usize, _: &_, _| assert_ne!(i, 1, "the second run breaks");
    strandway_lab::run_each(
        &variants,
        2,
        false,
        || false,
        watch,
        |i, row| {
            ended.lock().expect("no panic").push((i, row.map(|row| row.report.head.end)));
        },
    );
    let mut ended = ended.into_inner().expect("no panic");
    ended.sort();
    assert_eq!(ended.len(), 3);
    let failed = ended[1].1.as_ref().expect_err("it broke");
    assert!(failed.starts_with("the simulator failed: ") && failed.contains("the second run breaks"), "{failed}");
    assert!([0, 2].iter().all(|i| ended[*i].1.as_deref() == Ok("finished")));
}

/// Reports of all kinds: jobs, multicast, switches that add, sites, choices of repair schemes.
#[test]
fn a_report_is_read_back_as_it_was() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/golden");
    for name in ["job_plane_down", "esa", "sites_loss", "sdr_auto", "multicast_allgather_64", "single_flow"] {
        let scenario = Scenario::load(&golden.join(format!("{name}.toml"))).unwrap_or_else(|e| panic!("{e}"));
        let mut experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
        experiment.with_series();
        let json = run(&experiment, &strandway_sim::Control::new()).report.to_json();
        let read: Report = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(read.to_json(), json, "{name}");
    }
}

#[test]
fn tables_fit_the_terminal() {
    let text = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n[workload]\nsize = \"100 kB\"\n\
                [sweep]\n\"profile.path\" = [\"single\", \"reps\"]\n\"fabric.queue\" = [\"40 kB\", \"80 kB\"]\n";
    let variants = sweep(&sound(text)).unwrap_or_else(|e| panic!("{e}"));
    let rows = run_all(&variants, 2, false, || false, |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
    for width in [80, 100, 140] {
        let table = report::text::rows(&rows, Some(width));
        assert!(table.lines().take(8).all(|line| line.chars().count() <= width), "{width}: {table}");
        assert!(table.contains("queue") && table.contains("max"), "{table}");
        // Heads of columns show keys; rows show only their values.
        assert!(!table.contains("path="), "{table}");
    }
    assert!(report::text::rows(&rows, Some(80)).contains("left out for lack of room"));
    assert!(!report::text::rows(&rows, None).contains("left out"));
}

#[test]
fn a_flow_has_a_row_when_asked() {
    let experiment = strandway_lab::check(&sound(TWO)).expect("sound");
    let outcome = run(&experiment, &Control::new());
    let csv = report::csv::flows(facts::flow_rows(&experiment, &outcome.measurements));
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 1 + experiment.messages.len());
    assert!(rows.iter().all(|row| row.len() == 12), "{csv}");
    assert_eq!(rows[1][4], "a");
    let slowest = rows[1..].iter().filter_map(|row| row[10].parse::<f64>().ok()).fold(0.0, f64::max);
    assert!((slowest - outcome.report.times.fct_us.max.expect("a flow")).abs() < 1e-3, "{csv}");
}

#[test]
fn a_start_in_a_matrix_has_a_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let matrix = folder.path().join("late.tm");
    std::fs::write(&matrix, "\u{feff}Nodes 16\nConnections 1\n0->13 id 1 start 3 size 20000\n").expect("written");
    let mut scenario = Scenario::load(&matrix).expect("a matrix by its text");
    for (unit, start, told) in [(None, 3, true), (Some("ps"), 3, false), (Some("us"), 3_000_000, false)] {
        if let Some(unit) = unit {
            scenario.set(&format!("workload.start_unit={unit}")).expect("sound");
        }
        let experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(experiment.start_of(&experiment.messages[0]).map(|t| t.0), Some(start), "{unit:?}");
        assert_eq!(experiment.notes.iter().any(|note| note.contains("picoseconds")), told, "{:?}", experiment.notes);
    }
}

#[test]
fn a_sweep_of_keys_that_lead_nowhere_is_refused() {
    for (swept, fragment) in [
        ("\"faults.7.enabled\" = [true, false]", "sweep.\"faults.7.enabled\" = true: `faults` has 2 members"),
        ("\"workload.size\" = [\"1 kB\", \"2 kB\"]", "is a list of 2 tables"),
        (
            "faults = [[], [{ plane = 0, kind = \"down\" }]]\n\"faults.0.enabled\" = [true, false]",
            "`faults` is an empty list",
        ),
    ] {
        let scenario = sound(&format!("{TWO}[sweep]\n{swept}\n"));
        let said = sweep(&scenario).expect_err(swept).to_string();
        assert!(said.contains(fragment), "{swept}: {said}");
        assert!(compare(&scenario, &["uec".to_string()]).is_err(), "{swept}");
    }
    // A row cannot set a key that the sweep varies, be in the list twice, or have an empty key.
    let scenario = sound(&format!("{TWO}[sweep]\n\"fabric.spines\" = [2, 4]\n"));
    for (profiles, fragment) in [
        (&["uec", "uec+spines=8"][..], "sets fabric.spines, which the scenario's [sweep] varies"),
        (&["uec", "uec"], "is in the list twice"),
        (&["uec+"], "`` is no key and value"),
        (&["uec+seed=3"], "did you mean run.seed?"),
    ] {
        let profiles: Vec<String> = profiles.iter().map(|p| (*p).to_string()).collect();
        let said = compare(&scenario, &profiles).expect_err("refused").to_string();
        assert!(said.contains(fragment), "{profiles:?}: {said}");
    }
}
