//! The rows of a job's report: the parts of an iteration, and the bandwidths of its collectives.

mod support;

use strandway_lab::report::{JobFacts, OperationFacts};
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
fn ran(label: &str, us: f64) -> strandway_lab::sweep::Row {
    let mut report = strandway_lab::Report::default();
    report.fct_us.max = Some(us * us);
    let job = JobFacts { name: "llama".into(), iteration_us: Some(us), bubble: 0.25, ..JobFacts::default() };
    report.jobs.push(job);
    let set = std::collections::BTreeMap::from([("profile.name".to_string(), label.to_string())]);
    strandway_lab::sweep::Row { label: label.into(), set, report }
}

#[test]
fn a_comparison_of_jobs_compares_iterations() {
    let rows = [ran("uec", 10.0), ran("rocev2", 30.0)];
    let said = strandway_lab::report::html::headline(&rows);
    assert!(said.contains("iteration of llama") && said.contains('3') && !said.contains('9'), "{said}");
    let table = strandway_lab::report::text::rows(&rows, None);
    assert!(table.contains("iteration") && table.contains("30.0 us") && table.contains("25.0 %"), "{table}");
    let lines = strandway_lab::report::lines::lines(&rows);
    assert_eq!(lines[1].values["jobs.llama.iteration_us"].mean, 30.0);
}

#[test]
fn a_page_states_no_slowdown_that_was_not_measured() {
    let mut report = ran("uec", 10.0).report;
    report.flows.total = 4;
    report.flows.finished = 4;
    report.jobs.clear();
    let page = strandway_lab::report::html::report(&report);
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
    let page = strandway_lab::report::html::report(&report);
    let wanted = "an iteration of the slowest, second, took";
    assert!(page.contains(wanted) && page.contains("second takes 2.50 times as long as alone"), "{page}");
}
