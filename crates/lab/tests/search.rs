//! Searches for bad failures, where the answer is known.

use strandway_lab::search::{Effect, Ended, Question, search};
use strandway_lab::{Scenario, run_each};
use strandway_proto::units::Span;
use strandway_report::search_result::{Found, Part};
use strandway_report::{html, text};
use strandway_scenario::parse;

fn sound(text: &str) -> Scenario {
    parse(text).unwrap_or_else(|e| panic!("{e}"))
}

fn asked(text: &str, question: &Question, jobs: usize) -> Result<Found, String> {
    let runs = |variants: &[strandway_lab::Variant]| -> Result<Vec<_>, std::convert::Infallible> {
        let rows = std::sync::Mutex::new(vec![None; variants.len()]);
        run_each(variants, jobs, false, || false, |_, _, _| (), |i, row| rows.lock().expect("no panic")[i] = Some(row));
        Ok(rows.into_inner().expect("no panic").into_iter().map(|row| row.expect("every run ended")).collect())
    };
    search(&sound(text), question, runs, |_| ()).map_err(|ended| match ended {
        Ended::Wrong(problems) => problems.to_string(),
        Ended::Stopped(never) => match never {},
    })
}

fn found(text: &str, question: &Question) -> Found {
    asked(text, question, 2).unwrap_or_else(|e| panic!("{e}"))
}

fn names(found: &Found) -> Vec<&str> {
    found.steps[0].failures.iter().map(|failure| failure.name.as_str()).collect()
}

/// A job on the first two of four leaves: servers of four GPUs, a leaf each, and one uplink per leaf.
const ONE_SPINE: &str = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\nspines = 1\n[servers]\ngpus = 4\n[profile]\nname = \"uec\"\n\
                         [job]\nlayers = 4\nhidden = 512\nsequence = 256\ntp = 4\ndp = 2\n";

/// A question with one moment, the begin.
fn silent() -> Question {
    Question { moments: 1, effects: vec![Effect::Silent], give_up: 30.0, ..Question::default() }
}

#[test]
fn the_only_uplinks_of_a_job_are_found() {
    let all = found(ONE_SPINE, &Question { each: Some(0), ..silent() });
    let step = &all.steps[0];
    assert_eq!((step.parts, step.classes, step.tried, step.runs), (4, 2, 4, 4));
    let worst: Vec<(&str, Option<f64>)> = step.failures.iter().map(|f| (f.name.as_str(), f.slowdown)).collect();
    let wanted = [
        ("leaf0 - spine0", None),
        ("leaf1 - spine0", None),
        ("leaf2 - spine0", Some(1.0)),
        ("leaf3 - spine0", Some(1.0)),
    ];
    assert_eq!(worst, wanted);
    assert!(step.failures[..2].iter().all(|f| f.end == "time limit" && f.delivered < 0.5 && f.alike == 2));
    // One of each class is enough.
    let few = found(ONE_SPINE, &silent());
    assert_eq!(names(&few), ["leaf0 - spine0", "leaf2 - spine0"]);
    let text = text::search_result(&few, 10, None);
    for told in ["2 of 4 parts tried in 2 runs: 2 classes", "does not end", "jobs.job.time_us = "] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    // Of switches, those that the job needs; of ports, those of the hosts that send.
    let more = found(ONE_SPINE, &Question { parts: vec![Part::Switch, Part::Port], each: Some(0), ..silent() });
    let hurt: Vec<&str> =
        more.steps[0].failures.iter().filter(|f| f.slowdown.is_none()).map(|f| f.name.as_str()).collect();
    assert_eq!((hurt.len(), more.steps[0].parts), (3 + 8, 5 + 16), "{hurt:?}");
    assert!(["leaf0", "leaf1", "spine0", "host7 - leaf1"].iter().all(|name| hurt.contains(name)), "{hurt:?}");
}

#[test]
fn links_that_are_alike_hurt_alike() {
    let text = ONE_SPINE.replace("spines = 1", "spines = 4").replace("dp = 2", "dp = 4");
    let (few, all) = (found(&text, &silent()), found(&text, &Question { each: Some(0), ..silent() }));
    assert_eq!((few.steps[0].tried, few.steps[0].parts, all.steps[0].tried), (1, 16, 16));
    let slowdowns: Vec<f64> = all.steps[0].failures.iter().filter_map(|f| f.slowdown).collect();
    assert_eq!(slowdowns.len(), 16);
    // They differ by chance: by the packets that were on the link when it failed.
    assert!(slowdowns[15] > 1.5 && slowdowns[0] < 1.5 * slowdowns[15], "{slowdowns:?}");
    // Hashes tell links apart, so all of them are tried.
    let hashed = found(&text.replace("uec", "rocev2_sr"), &silent());
    assert_eq!((hashed.steps[0].tried, hashed.single_paths), (16, true));
}

#[test]
fn a_second_failure_is_looked_for_beside_the_first() {
    let text = ONE_SPINE.replace("spines = 1", "spines = 2");
    let visible = Question { effects: vec![Effect::Visible], reconverge: Some(Span::from_us(10)), ..silent() };
    let found = found(&text, &Question { failures: 2, ..visible });
    let [one, two] = &found.steps[..] else { panic!("two steps") };
    assert!(one.failures.iter().all(|f| f.slowdown.is_some()), "one spine is left");
    assert_eq!(two.beside, ["leaf0 - spine0, visible at 0 us"]);
    // The link that has failed is not tried again, and its like are not like each other any more.
    assert_eq!((two.parts, two.classes > one.classes), (7, true));
    let hurt: Vec<&str> = two.failures.iter().filter(|f| f.slowdown.is_none()).map(|f| f.name.as_str()).collect();
    assert_eq!(hurt, ["leaf0 - spine1", "leaf1 - spine1"]);
}

/// A job that computes for 1.2 ms, and adds gradients then.
#[test]
fn the_worst_moment_is_found() {
    let text = format!("{ONE_SPINE}zero = 0\noverlap = false\ncompute = \"100 us\"\n");
    let at = [100, 700, 1800].map(Span::from_us).to_vec();
    let question = Question { at, lasting: Some(Span::from_us(50)), ..silent() };
    let found = found(&text, &question);
    let failures = &found.steps[0].failures;
    let worst = &failures[0];
    assert!(worst.at_us == 1800.0 && worst.slowdown > Some(1.02), "{worst:?}");
    assert!(failures[1..].iter().all(|f| f.slowdown < worst.slowdown));
    let harmless = failures.iter().filter(|f| f.at_us < 1200.0);
    assert!(harmless.clone().count() == 4 && harmless.clone().all(|f| f.slowdown == Some(1.0)), "{failures:?}");
}

#[test]
fn failures_that_a_search_finds_can_be_repeated() {
    let text = format!(
        "name = \"both\"\n{}[[faults]]\nlink = \"leaf3->spine0\"\nkind = \"down\"\n[expect]\n\"fct_us.max\" = \"< 0\"\n",
        ONE_SPINE.replace("spines = 1", "spines = 2\nbundle = 2")
    );
    let question =
        Question { effects: vec![Effect::Visible, Effect::Silent], moments: 2, failures: 2, give_up: 8.0, ..silent() };
    let (one, four) = (asked(&text, &question, 1), asked(&text, &question, 4));
    let found = one.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(found.to_json(), four.unwrap_or_else(|e| panic!("{e}")).to_json());
    let files = found.scenarios(100);
    assert!(files.len() as u64 == found.steps[1].runs && found.steps[1].failures.iter().any(|f| f.slowdown.is_some()));
    for ((name, text), failure) in files.iter().zip(&found.steps[1].failures) {
        let scenario = sound(text);
        let ran = strandway_lab::run(
            &strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}")),
            &strandway_sim::Control::new(),
        );
        assert_eq!(ran.report.head.digest, failure.digest, "{name}");
        // One that does not end has no bound.
        let bounds = ran.report.expect.iter().filter(|bound| bound.met).count();
        assert_eq!(bounds, usize::from(failure.slowdown.is_some()), "{name}: {:?}", ran.report.expect);
        assert!(
            scenario.name().starts_with("both: leaf") && text.starts_with("# Found by strandway search: "),
            "{text}"
        );
        assert!(name.ends_with(&format!("-{}.toml", failure.effect)), "{name}");
    }
}

#[test]
fn other_values_and_workloads_can_be_asked_for() {
    let text =
        "[fabric]\nhosts = 16\nhosts_per_leaf = 4\nspines = 2\n[workload]\nkind = \"all-to-all\"\nsize = \"100 kB\"\n";
    let plain = found(text, &silent());
    assert!(plain.value == "the time until the last flow finished" && plain.steps[0].failures[0].slowdown > Some(1.01));
    let loss = Question { value: Some("packets.acks".into()), ..silent() };
    assert_eq!(found(text, &loss).value, "packets.acks");
    for (question, wanted) in [
        (Question { value: Some("fct_us.typo".into()), ..silent() }, "is no value of this scenario's report"),
        (Question { value: Some("packets.ack".into()), ..silent() }, "did you mean `packets.acks`?"),
        (Question { at: vec![Span::from_ms(900)], ..silent() }, "is after the end of the run without a failure"),
        (
            Question { moments: 1000, each: Some(0), effects: vec![Effect::Visible, Effect::Silent], ..silent() },
            "makes 16000 runs",
        ),
        (Question { parts: Vec::new(), ..silent() }, "names nothing that this fabric has"),
    ] {
        let said = asked(text, &question, 1).err().unwrap_or_default();
        assert!(said.contains(wanted), "{said}");
    }
    let never =
        format!("{text}[[faults]]\nswitch = \"leaf0\"\nkind = \"down\"\nsilent = true\n[run]\ntime_limit = \"1 ms\"\n");
    let said = asked(&never, &silent(), 1).err().unwrap_or_default();
    assert!(said.contains("does not end without a failure: time limit"), "{said}");
}

#[test]
fn failures_that_cut_hosts_off_are_one_line_and_the_page_has_a_picture() {
    let asked = Question { parts: vec![Part::Switch, Part::Link], each: Some(0), ..silent() };
    let text = ONE_SPINE.replace("spines = 1", "spines = 2");
    let all = found(&text, &asked);
    let step = &all.steps[0];
    let cut: Vec<&str> = step.failures.iter().filter(|f| f.disconnects).map(|f| f.name.as_str()).collect();
    assert_eq!(cut, ["leaf0", "leaf1"], "leaves 2 and 3 carry nothing, so the run ends without them");
    assert!(step.failures.iter().filter(|f| f.slowdown.is_some()).all(|f| !f.disconnects));
    let table = text::search_result(&all, 3, None);
    assert!(
        table.contains("without any of 2 parts hosts are cut off, and the run does not end: leaf0, leaf1\n"),
        "{table}"
    );
    let named = |name: &str| table.split('┆').any(|cell| cell.trim() == name);
    assert!(named("spine1") && !named("leaf0") && !named("leaf1"), "{table}");
    let page = html::search_result(&all).replace('\u{a0}', " ");
    for told in [
        "the run does not end: the worst of",
        "class=\"map-data\"",
        "time added by failures of links",
        "time added by failures of switches",
        "leaf0 - spine1",
    ] {
        assert!(page.contains(told), "{told} is missing");
    }
    assert!(page.len() < 100_000, "{} bytes", page.len());
    // A failure that is repaired cuts nothing off for good.
    let short = Question { lasting: Some(Span::from_us(20)), ..asked };
    assert!(found(&text, &short).steps[0].failures.iter().all(|f| !f.disconnects));
    // The scenario's own faults are named.
    let struck = format!("{text}[[faults]]\nbetween = [\"leaf0\", \"spine0\"]\nkind = \"down\"\n");
    let page = html::search_result(&found(&struck, &silent()));
    assert!(page.contains("the scenario has one fault of its own"));
}
