//! EV profiles, denials and the record of entropy values, as scenarios write them.

use strandway_lab::{Scenario, run};
use strandway_report::Report;
use strandway_sim::Control;

/// Two planes of four spines; two flows between the leaves, long enough for hundreds of round trips.
const BASE: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 8\nplanes = 2\nhosts_per_leaf = 4\nspines = 4\nrate = \"200 Gbps\"\n\
    [profile]\nname = \"mrc\"\n[workload]\nkind = \"permutation\"\nsize = \"4 MB\"\n";

fn scenario(more: &str) -> Scenario {
    Scenario::from_text("test.toml", &format!("{BASE}{more}")).unwrap_or_else(|problems| panic!("{problems}"))
}

fn report(more: &str) -> Report {
    let reports: Vec<Report> = [1, 2]
        .into_iter()
        .map(|threads| {
            let mut experiment = strandway_lab::check(&scenario(more)).unwrap_or_else(|problems| panic!("{problems}"));
            experiment.plan.threads = threads;
            run(&experiment, &Control::new()).report
        })
        .collect();
    assert_eq!(reports[0].head.digest, reports[1].head.digest, "{more}");
    assert_eq!(reports[0].head.end, "finished");
    let [events, same] = [0, 1].map(|at| serde_json::to_value(&reports[at].ev_events).expect("JSON"));
    assert_eq!(events, same, "{more}");
    reports.into_iter().next().expect("a report")
}

/// Bytes on links from leaves to this spine.
fn bytes_over(more: &str, spine: &str) -> u64 {
    let experiment = strandway_lab::check(&scenario(more)).unwrap_or_else(|problems| panic!("{problems}"));
    let measured = strandway_lab::simulate(&experiment, &Control::new());
    let topology = &experiment.plan.topology;
    let name = |link: u32| topology.link_name(strandway_fabric::LinkId(link));
    (0..topology.links())
        .filter(|link| name(*link).ends_with(&format!("->{spine}")))
        .map(|link| measured.links[link as usize].bytes)
        .sum()
}

#[test]
fn a_denied_spine_carries_nothing_and_is_used_again_when_it_is_allowed() {
    let deny = |more: &str| format!("[[faults]]\nkind = \"deny\"\nswitch = \"spine1.p0\"\n{more}");
    assert_eq!(bytes_over(&deny(""), "spine1.p0"), 0);
    assert!(bytes_over(&deny(""), "spine2.p0") > 0);
    let whole = report(&deny(""));
    // Every connection between the leaves has one path over that spine, and denies it at both ends.
    let counts = whole.ev_events.expect("denials").counts;
    assert_eq!(
        (counts.get("denied"), counts.get("allowed")),
        (Some(&8), None),
        "four connections between the leaves, two ends"
    );
    let part = deny("at = \"20 us\"\nuntil = \"60 us\"\n");
    let between = bytes_over(&part, "spine1.p0");
    assert!(between > 0 && between < bytes_over("", "spine1.p0"));
    let facts = report(&part).ev_events.expect("denials and more");
    assert_eq!((facts.counts.get("denied"), facts.counts.get("allowed")), (Some(&8), Some(&8)));
    assert_eq!((facts.events[0].change.as_ref(), facts.events[0].at_us, facts.events[0].path), ("denied", 20.0, 1));
    assert!(report("").ev_events.is_none(), "without faults nothing happens to a path");
}

#[test]
fn a_silent_link_is_recorded_as_failed_probed_and_returned() {
    let report = report(
        "[profile.mrc]\nprobe_max = \"50 us\"\n[[faults]]\nkind = \"down\"\nsilent = true\nbetween = [\"leaf0.p0\", \"spine1.p0\"]\n\
         at = \"20 us\"\nuntil = \"60 us\"\n",
    );
    let facts = report.ev_events.expect("events");
    for kind in ["failed", "unanswered", "answered", "returned"] {
        assert!(facts.counts.get(kind).is_some_and(|count| *count > 0), "{kind}: {:?}", facts.counts);
    }
    assert!(
        facts.events.iter().all(|event| event.change != "failed" || (event.plane, event.path) == (0, 1)),
        "{:?}",
        facts.events
    );
    assert!(facts.events.is_sorted_by(|a, b| a.at_us <= b.at_us));
}

#[test]
fn explicit_and_generated_profiles_use_exactly_their_paths() {
    let explicit = "[profile.evs]\nmode = \"explicit\"\nlist = [\"p0:0\", \"p0:2\", \"p1:0\", \"p1:2\"]\n";
    // The plane in four bits, the number of the path in twelve: 0 and 2 of both planes.
    let generated =
        "[profile.evs]\nmode = \"generated\"\nfields = [{ width = 4, mask = 0x1 }, { width = 12, mask = 0x2 }]\n";
    for profile in [explicit, generated] {
        for (spine, used) in [("spine0.p0", true), ("spine1.p0", false), ("spine2.p1", true), ("spine3.p1", false)] {
            assert_eq!(bytes_over(profile, spine) > 0, used, "{spine} with {profile}");
        }
    }
    assert_eq!(report(explicit).head.digest, report(explicit).head.digest);
    assert!(bytes_over("[profile.evs]\nmode = \"auto\"\n", "spine1.p0") > 0);
}

#[test]
fn a_wrong_profile_is_refused_with_its_key_and_remedy() {
    for (more, said) in [
        ("[profile.evs]\nlist = []\n", "profile.evs.mode: is missing; write auto, explicit or generated"),
        ("[profile.evs]\nmode = \"explicit\"\n", "profile.evs.list: is missing; write list = [\"p0:3\""),
        ("[profile.evs]\nmode = \"explicit\"\nlist = [\"0:1\"]\n", "is no list of entropy values"),
        ("[profile.evs]\nmode = \"explicit\"\nlist = [\"p0:4\"]\n", "p0:4: is no path of this fabric of 2 planes"),
        ("[profile.evs]\nmode = \"explicit\"\nlist = [\"p2:0\"]\n", "the numbers of paths are 0 to 3"),
        ("[profile.evs]\nmode = \"explicit\"\nlist = [\"p1:0\", \"p1:0\"]\n", "p1:0 is in the list twice"),
        ("[profile.evs]\nmode = \"generated\"\nfields = [{ mask = 1 }]\n", "fields[0].width: is missing"),
        ("[profile.evs]\nmode = \"generated\"\nfields = [{ width = 2, mask = 4 }]\n", "must fit the width"),
        ("[profile.evs]\nmode = \"generated\"\nfield = 3\n", "did you mean `fields`?"),
        ("[[faults]]\nkind = \"denied\"\nswitch = \"spine1.p0\"\n", "did you mean \"deny\"?"),
    ] {
        let problems = strandway_lab::check(&scenario(more)).map(|_| ()).expect_err(said).to_string();
        assert!(problems.contains(said), "{more}: {problems}");
    }
    let uec = BASE.replace("\"mrc\"", "\"uec\"") + "[profile.evs]\nmode = \"auto\"\n";
    let problems = strandway_lab::check(&Scenario::from_text("test.toml", &uec).expect("TOML"))
        .map(|_| ())
        .expect_err("no set")
        .to_string();
    assert!(problems.contains("has no entropy values of its own"), "{problems}");
}
