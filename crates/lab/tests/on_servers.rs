//! Collectives of `[[workload]]` on servers with several GPUs: rails and links inside servers, as in jobs; and notes on
//! sections that have no effect.

mod support;

use strandway_report::CollectiveFacts;
use support::*;

/// Two servers of eight GPUs with a NIC of 200 Gb/s each, below one leaf.
const TWO: &str = "[fabric]\nhosts = 16\nhosts_per_leaf = 16\nrate = \"200 Gbps\"\nlatency = \"500 ns\"\n[profile]\nname = \"uec\"\n\
                   congestion = \"fixed\"\n[profile.fixed]\nwindow_bdp = 8\n[servers]\ngpus = 8\nrate = \"2400 Gbps\"\n[workload]\nkind = \"all-reduce\"\nsize = \"256 MB\"\n";

fn all(text: &str, sets: &[&str]) -> (Vec<CollectiveFacts>, Vec<String>) {
    let report = outcome(text, sets).report;
    assert!(report.jobs.is_empty(), "a collective is no job: {:?}", report.jobs);
    (report.collectives, report.notes)
}

fn one(text: &str, sets: &[&str]) -> CollectiveFacts {
    let (mut all, notes) = all(text, sets);
    assert!(!notes.iter().any(|note| note.contains("[servers]")), "{notes:?}");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn a_collective_workload_uses_rails_and_the_links_inside_servers() {
    let facts = one(TWO, &[]);
    assert_eq!((facts.ranks, facts.algorithm.as_str()), (16, "ring"));
    // Twice 7/8 of the buffer at 300 GB/s inside a server, which takes longer than 1/8 of it over a NIC and back.
    let inside = 2.0 * 7.0 / 8.0 * 256e6 / 300e3;
    near(facts.time_us.expect("it ended"), inside, 0.02);
    // Without the links inside servers, 16 NICs in one ring get the rate of one NIC.
    let (flat, notes) = all(TWO, &["workload.servers=false"]);
    assert!(flat[0].busbw.expect("a rate") < 25.0, "{flat:?}");
    assert!(notes.iter().any(|note| note.contains("[servers] has no effect on it")), "{notes:?}");
    assert!(facts.busbw.expect("a rate") > 190.0, "{facts:?}");
    // With slower links between servers, those are the limit: a rail sends its 32 MB once.
    let slow = one(TWO, &["fabric.rate=50 Gbps", "workload.size=64 MB"]);
    near(slow.time_us.expect("it ended"), 8e6 * 4160.0 / 4096.0 / 6250.0, 0.02);
    for kind in ["reduce-scatter", "all-gather"] {
        let kind = format!("workload.kind={kind}");
        near(one(TWO, &[&kind]).time_us.expect("it ended"), inside / 2.0, 0.02);
    }
    // Each GPU sends 8 blocks of 1 MB to the other server.
    let to_all = one(TWO, &["workload.kind=all-to-all", "workload.size=1 MB"]);
    near(to_all.time_us.expect("it ended"), 8e6 * 4160.0 / 4096.0 / 25e3, 0.05);
    assert_eq!(to_all.bytes, 16_000_000);
}

#[test]
fn groups_of_a_collective_on_servers_are_reported_one_by_one() {
    let (facts, _) = all(TWO, &["workload.group=8"]);
    let names: Vec<&str> = facts.iter().map(|facts| facts.name.as_str()).collect();
    assert_eq!(names, ["all-reduce/0", "all-reduce/1"]);
    for facts in &facts {
        assert_eq!((facts.algorithm.as_str(), facts.messages), ("inside a server", 0));
        near(facts.time_us.expect("it ended"), 2.0 * 7.0 / 8.0 * 256e6 / 300e3, 0.02);
    }
    for (sets, wanted) in [
        (&["workload.ranks=12"][..], "does not fill servers of 8 GPUs"),
        (&["workload.ranks=64"], "there are only 16 GPUs, in 2 servers"),
        (&["workload.ranks=16", "workload.group=3"], "does not divide the 16 GPUs"),
        (&["workload.kind=broadcast", "workload.servers=true"], "is not possible"),
    ] {
        let said = check(TWO, sets).expect_err("a problem").to_string();
        assert!(said.contains(wanted), "{said}");
    }
    assert!(check(TWO, &["workload.placement=random"]).is_ok());
    assert!(check(TWO, &["workload.ranks=3"]).is_ok(), "GPUs of one server");
}

#[test]
fn jobs_and_collectives_on_the_same_servers_keep_their_own_rows() {
    let text = format!("{TWO}[job]\nlayers = 2\nhidden = 1024\nheads = 16\nsequence = 512\ntp = 8\ndp = 2\n");
    let report = outcome(&text, &["workload.size=1 MB", "run.alone=true"]).report;
    assert_eq!(report.collectives.len(), 1);
    assert_eq!(report.jobs.len(), 1);
    assert_eq!(report.jobs[0].name, "job");
    assert!(report.jobs[0].slowdown.is_some_and(|slowdown| slowdown >= 0.99), "{:?}", report.jobs[0].slowdown);
}

#[test]
fn sections_without_effect_are_named() {
    let notes = |text: &str, sets: &[&str]| all(text, sets).1.join("\n");
    let told = notes(TWO, &["workload.kind=broadcast", "workload.size=1 MB"]);
    assert_eq!(told.matches("[servers] has no effect").count(), 1, "{told}");
    let told = notes(TWO, &["workload.kind=permutation", "workload.size=1 MB"]);
    assert!(told.contains("[servers] has no effect on this run"), "{told}");
    let told = notes(&format!("{TWO}[switch]\nlanes = 64\n"), &["workload.size=1 MB"]);
    assert!(told.contains("[switch] has no effect on this run"), "{told}");
}
