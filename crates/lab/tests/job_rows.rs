//! The rows of a job's report: the parts of an iteration, and the bandwidths of its collectives.

mod support;

use strandway_report::{JobFacts, OperationFacts};
use support::*;

const HEAD: &str =
    "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n";

/// The job of a list of AICB: operation, group, size of the group, bytes.
fn of_list(name: &str, ranks: u32, lines: &[(&str, &str, u32, u64)]) -> JobFacts {
    let folder = Folder::new(name);
    let lines: String = lines
        .iter()
        .map(|(what, group, size, bytes)| {
            format!("CommType.{what},CommGroup.{group},{size},{bytes},f,None,None,,None,None,None,1\n")
        })
        .collect();
    let path = folder.write("list.csv", format!("[rank0 ~ rank{}]\n{HEAD}{lines}", ranks - 1));
    let text = format!(
        "[fabric]\nhosts = {ranks}\nhosts_per_leaf = {ranks}\nlatency = \"500 ns\"\n[servers]\ngpus = 1\n[job]\nfile = {:?}\n",
        path.display().to_string()
    );
    outcome(&text, &[]).report.jobs.remove(0)
}

fn part(job: &JobFacts, name: &str) -> f64 {
    job.parts.iter().find(|part| part.name == name).and_then(|part| part.us).expect(name)
}

#[test]
fn collectives_in_a_row_are_exposed_communication_and_nobody_waits() {
    let row = ("all_reduce", "dp_group", 4, 1 << 20);
    let job = of_list("parts-row", 4, &[row, ("all_gather", "dp_group", 4, 1 << 20), row]);
    let whole = job.iteration_us.expect("it ended");
    near(part(&job, "collectives"), whole, 0.001);
    assert!(part(&job, "waiting") < 0.001 * whole, "{:?}", job.parts);
    // A collective without bytes behind it changes nothing.
    let job = of_list("parts-empty", 4, &[row, ("barrier", "dp_group", 4, 0)]);
    assert!(part(&job, "waiting") < 0.001 * job.iteration_us.expect("it ended"), "{:?}", job.parts);
}

fn row<'a>(job: &'a JobFacts, name: &str) -> &'a OperationFacts {
    job.operations.iter().find(|row| row.name == name).expect(name)
}

#[test]
fn bus_bandwidth_of_groups_of_several_sizes_is_below_the_rate_of_a_nic() {
    let (small, large) = (("all_reduce", "dp_group", 8, 8), ("all_reduce", "tp_group", 2, 16 << 20));
    let mut found = Vec::new();
    for lines in [[small, large, large], [large, small, large], [large, large, small]] {
        let job = of_list("busbw", 16, &lines);
        let facts = row(&job, "allreduce");
        found.push((facts.busbw.expect("a rate"), facts.bound_busbw.expect("a rate")));
    }
    for (rate, bound) in &found {
        assert!((40.0..50.0).contains(rate) && (40.0..50.0).contains(bound), "{found:?}");
        near(*rate, found[0].0, 1e-3);
        near(*bound, found[0].1, 1e-9);
    }
}

#[test]
fn the_bound_of_rails_that_share_a_nic_is_the_rate_of_the_nic() {
    let folder = Folder::new("shared-nic");
    let path = folder.write(
        "layers.txt",
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 16 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 16\n1\n\
         layer -1 1000 ALLREDUCE 16000000 1000 NONE 0 0 NONE 0 100\n",
    );
    let text = format!(
        "[fabric]\nhosts = 2\nhosts_per_leaf = 2\nrate = \"100 Gbps\"\n[servers]\ngpus = 8\nnics = 1\nrate = \"1600 Gbps\"\n\
         [job]\nfile = {:?}\n",
        path.display().to_string()
    );
    let job = outcome(&text, &[]).report.jobs.remove(0);
    let facts = row(&job, "tp");
    let (rate, bound) = (facts.busbw.expect("a rate"), facts.bound_busbw.expect("a rate"));
    assert!(rate <= bound * (1.0 + 1e-9) && bound < 1.1 * rate, "{rate} of {bound} GB/s");
    // The NIC sends 16 MB at 12.5 GB/s.
    assert!(job.bound_us >= 1280.0 && job.bound_us <= job.iteration_us.expect("it ended"), "{} us", job.bound_us);
}

#[test]
fn ranks_that_end_early_count_in_the_bubble() {
    let text = "[fabric]\nhosts = 8\nhosts_per_leaf = 8\n[servers]\ngpus = 1\n\
                [job]\nlayers = 8\nhidden = 64\nheads = 2\nsequence = 64\npp = 8\nmicro_batches = 8\ncompute = \"4 ms\"\n";
    let job = outcome(text, &[]).report.jobs.remove(0);
    // (p - 1) / (m + p - 1)
    near(job.bubble, 7.0 / 15.0, 0.01);
}

/// A run whose job takes `us` per iteration. The slowest flow has another factor between runs: the square.
fn ran(label: &str, us: f64) -> strandway_report::Row {
    let mut report = strandway_report::Report::default();
    report.times.fct_us.max = Some(us * us);
    let job = JobFacts { name: "llama".into(), iteration_us: Some(us), bubble: 0.25, ..JobFacts::default() };
    report.jobs.push(job);
    let set = std::collections::BTreeMap::from([("profile.name".to_string(), label.to_string())]);
    strandway_report::Row { label: label.into(), set, report }
}

#[test]
fn a_comparison_of_jobs_compares_iterations() {
    let rows = [ran("uec", 10.0), ran("rocev2", 30.0)];
    let said = strandway_report::html::headline(&rows);
    assert!(said.contains("iteration of llama") && said.contains('3') && !said.contains('9'), "{said}");
    let table = strandway_report::text::rows(&rows, None);
    assert!(table.contains("iteration") && table.contains("30.0 us") && table.contains("25.0 %"), "{table}");
    let lines = strandway_report::lines::lines(&rows);
    assert_eq!(lines[1].values["jobs.llama.iteration_us"].mean, 30.0);
}

#[test]
fn a_page_states_no_slowdown_that_was_not_measured() {
    let mut report = ran("uec", 10.0).report;
    report.flows.total = 4;
    report.flows.finished = 4;
    report.jobs.clear();
    let page = strandway_report::html::report(&report);
    assert!(!page.contains("times as long as alone"), "{page}");
    // Two jobs: the slowest is named.
    report.jobs = [("first", 10.0), ("second", 20.0)]
        .map(|(name, us)| JobFacts {
            name: name.into(),
            iteration_us: Some(us),
            slowdown: Some(us / 8.0),
            ..JobFacts::default()
        })
        .to_vec();
    let page = strandway_report::html::report(&report);
    let wanted = "an iteration of the slowest, second, took";
    assert!(page.contains(wanted) && page.contains("second takes 2.50 times as long as alone"), "{page}");
}

#[test]
fn headlines_tell_of_jobs_then_of_collectives_then_of_flows() {
    use strandway_report::CollectiveFacts;
    let headline = |report: &strandway_report::Report| {
        let page = strandway_report::html::report(report);
        let (_, rest) = page.split_once("<h1").expect("a headline");
        let (headline, _) = rest.split_once("</h1>").expect("its end");
        headline.split_once('>').expect("a tag").1.replace('\u{a0}', " ")
    };
    let mut report = ran("uec", 10.0).report;
    report.jobs.clear();
    (report.flows.total, report.flows.finished) = (30, 30);
    let collective = |name: &str, time: f64| CollectiveFacts {
        name: name.into(),
        kind: "all-reduce".into(),
        ranks: 8,
        messages: 10,
        received: 10,
        time_us: Some(time),
        bound_us: 50.0,
        busbw: Some(20.0),
        ..CollectiveFacts::default()
    };
    report.collectives = vec![collective("a", 100.0), collective("b", 150.0)];
    let wanted = "2 collectives ended; the slowest, the all-reduce b among 8 ranks, took 150.0 us, 3.0 times its lower \
                  bound. All 30 flows finished.";
    assert_eq!(headline(&report), wanted);
    report.collectives.truncate(1);
    let said = headline(&report);
    assert!(said.starts_with("The all-reduce among 8 ranks took 100.0 us, 2.00 times its lower bound"), "{said}");
    assert!(said.ends_with("All 30 flows finished."), "{said}");
    // A job that did not end is named before its messages.
    report.jobs = vec![JobFacts { name: "llama".into(), iterations: 3, iterations_ended: 1, ..JobFacts::default() }];
    (report.flows.finished, report.head.end) = (20, "time limit".into());
    assert_eq!(headline(&report), "llama ended 1 of 3 iterations: the run ended with “time limit”.");
}

#[test]
fn messages_of_jobs_have_rows_slowdowns_and_times_of_receipt() {
    let text = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n[servers]\ngpus = 1\n[job]\nlayers = 2\nhidden = 64\nheads = 2\n\
                sequence = 64\ndp = 4\npp = 2\nmicro_batches = 2\n";
    let experiment = check(text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let outcome = strandway_lab::run(&experiment, &strandway_sim::Control::new());
    let report = &outcome.report;
    let rows: Vec<_> = strandway_lab::facts::flow_rows(&experiment, &outcome.measurements).collect();
    assert_eq!(rows.len() as u64, report.flows.total);
    assert!(rows.len() > 16 && rows.iter().all(|row| row.source != row.destination && row.class == "job"), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.bytes).sum::<u64>(), report.flows.bytes);
    let whole = |row: &&strandway_report::csv::FlowRow<'_>| {
        row.started < row.received && row.received < row.finished && row.slowdown.is_some_and(|slow| slow > 0.99)
    };
    assert_eq!(rows.iter().filter(whole).count(), rows.len());
    let most = rows.iter().filter_map(|row| row.fct_us).fold(0.0, f64::max);
    assert_eq!(report.times.fct_us.max, Some(most));
    assert_eq!(report.flows.slowest[0].fct_us, most);
    assert!(
        report.times.slowdown.max.is_some()
            && report.times.received_us.p50.is_some()
            && report.classes[0].slowdown.p50.is_some()
    );
    assert!(!report.notes.iter().any(|note| note.contains("have no row")), "{:?}", report.notes);
    // Without rows, the note says which key keeps them, and counts are those of the tallies.
    let mut experiment = experiment;
    experiment.plan.rows = false;
    let bare = strandway_lab::run(&experiment, &strandway_sim::Control::new());
    assert_eq!(strandway_lab::facts::flow_rows(&experiment, &bare.measurements).len(), 0);
    assert_eq!(
        (bare.report.head.digest.as_str(), bare.report.flows.total),
        (report.head.digest.as_str(), report.flows.total)
    );
    assert_eq!((bare.report.times.fct_us.max, bare.report.times.slowdown.max), (report.times.fct_us.max, None));
}

/// Two leaves, one of whose two links between them is slow.
const STRUCK: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\nspines = 2\n[servers]\ngpus = 1\n[job]\nlayers = 2\nhidden = 512\n\
                      heads = 2\nsequence = 64\ndp = 8\n\
                      [[faults]]\nname = \"bad optic\"\nbetween = [\"leaf0\", \"spine1\"]\nkind = \"degrade\"\nfraction = 0.05\n";

#[test]
fn a_healthy_run_beside_tells_what_a_fault_costs() {
    let one = |sets: &[&str]| {
        let experiment = check(STRUCK, sets).unwrap_or_else(|e| panic!("{e}"));
        strandway_lab::run(&experiment, &strandway_sim::Control::new()).report
    };
    let (plain, both, whole) = (one(&[]), one(&["run.healthy=true"]), one(&["faults.enabled=false"]));
    assert!(plain.fault_costs.is_empty());
    assert_eq!(plain.head.digest, both.head.digest);
    let [cost] = &both.fault_costs[..] else { panic!("{:?}", both.fault_costs) };
    assert_eq!((cost.time_us, cost.healthy_us), (plain.jobs[0].iteration_us, whole.jobs[0].iteration_us));
    let more = cost.cost_us.expect("both ended");
    assert!(more > 0.0);
    assert_eq!(both.values()["fault_costs.job.cost_us"], Some(more));
    let page = strandway_report::html::report(&both).replace('\u{a0}', " ");
    let (_, headline) = page.split_once("<h1").expect("a headline");
    assert!(
        headline.contains(" us by bad optic: ") && headline.contains("times as long as without"),
        "{headline:.300}"
    );
    let text = strandway_report::text::report(&both);
    assert!(
        text.contains("by bad optic: ") && text.contains("bad optic (leaf0 - spine1 at 5 % of its rate)"),
        "{text}"
    );
    // Nothing to compare with.
    assert!(one(&["run.healthy=true", "faults=[]"]).fault_costs.is_empty());
}
