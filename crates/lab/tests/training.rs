//! Training jobs of models: bubbles of pipelines, bytes of groups and times inside servers agree with arithmetic; the
//! parts of an iteration add up to the whole; jobs take free servers; and errors explain settings that do not fit.

use strandway_import::Problems;
use strandway_lab::{Experiment, Outcome, run};
use strandway_report::JobFacts;
use strandway_scenario::parse;
use strandway_sim::Control;

/// Servers of four GPUs on rails at 400 Gb/s.
const FABRIC: &str = "[fabric]\nhosts = 32\nhosts_per_leaf = 8\nspines = 4\nrate = \"400 Gbps\"\nlatency = \"500 ns\"\n\
                      [profile]\nname = \"uec\"\n[servers]\ngpus = 4\nwiring = \"rail-optimised\"\n";

fn check(text: &str, sets: &[&str]) -> Result<Experiment, Problems> {
    let mut scenario = parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    strandway_lab::check(&scenario)
}

fn sound(job: &str, sets: &[&str]) -> Experiment {
    check(&format!("{FABRIC}[job]\n{job}"), sets).unwrap_or_else(|e| panic!("{e}"))
}

fn outcome(job: &str, sets: &[&str]) -> Outcome {
    let outcome = run(&sound(job, sets), &Control::new());
    assert_eq!(outcome.report.head.end, "finished", "{job} {sets:?}");
    outcome
}

fn only(outcome: &Outcome) -> &JobFacts {
    assert_eq!(outcome.report.jobs.len(), 1);
    &outcome.report.jobs[0]
}

fn share(job: &JobFacts, name: &str) -> f64 {
    job.parts.iter().find(|part| part.name == name).and_then(|part| part.share).unwrap_or(0.0)
}

fn us(job: &JobFacts, name: &str) -> f64 {
    job.parts.iter().find(|part| part.name == name).and_then(|part| part.us).unwrap_or(0.0)
}

/// Messages of 128 bytes, and layers that compute for 10 ms: the network takes almost no time.
const PIPELINE: &str = "layers = 16\nhidden = 8\nsequence = 8\ncompute = \"10 ms\"\nzero = 0\n";

#[test]
fn bubbles_of_pipelines_are_those_of_arithmetic() {
    for (pp, micro_batches, schedule, chunks) in [
        (4, 8, "gpipe", 1),
        (4, 8, "1f1b", 1),
        (8, 16, "1f1b", 1),
        (2, 3, "1f1b", 1),
        (4, 8, "interleaved", 2),
        (4, 4, "interleaved", 4),
        (8, 32, "interleaved", 2),
    ] {
        let job = format!("{PIPELINE}pp = {pp}\nmicro_batches = {micro_batches}\nschedule = \"{schedule}\"\n");
        let more = format!("job.chunks={chunks}");
        let sets: &[&str] = if chunks > 1 { &[&more] } else { &[] };
        let outcome = outcome(&job, sets);
        let job = only(&outcome);
        let (pp, work) = (f64::from(pp), f64::from(micro_batches * chunks));
        let bubble = (pp - 1.0) / (pp - 1.0 + work);
        let found = share(job, "bubble") + share(job, "pp");
        assert!((found - bubble).abs() < 1e-3, "{schedule} {pp} {work}: {found} for {bubble}");
        assert!((share(job, "compute") - (1.0 - bubble)).abs() < 1e-3);
        let iteration = 16.0 * 30_000.0 / pp * (f64::from(micro_batches) + (pp - 1.0) / f64::from(chunks));
        let took = job.iteration_us.expect("it ended");
        assert!((took / iteration - 1.0).abs() < 1e-3, "{schedule} {pp} {work}: {took} us for {iteration}");
    }
}

/// ZB-H1 (arXiv 2401.10241, table 1): the bubble is (p - 1)(T_F + T_B - T_W). Here T_F = T_W = 10 ms per layer. T_B is
/// 10 ms; with full recomputation it is 20 ms.
#[test]
fn zero_bubble_pipelines_have_the_bubble_of_their_paper() {
    for (pp, micro_batches, recompute) in [(4, 8, "none"), (8, 16, "none"), (2, 3, "none"), (4, 8, "full")] {
        let job = format!("{PIPELINE}pp = {pp}\nmicro_batches = {micro_batches}\nschedule = \"zero-bubble\"\n");
        let outcome = outcome(&job, &[&format!("job.recompute={recompute}")]);
        let job = only(&outcome);
        let (forward, weights) = (10_000.0, 10_000.0);
        let inputs = if recompute == "full" { 20_000.0 } else { 10_000.0 };
        let layers = 16.0 / f64::from(pp);
        let work = f64::from(micro_batches) * layers * (forward + inputs + weights);
        let bubble = f64::from(pp - 1) * layers * (forward + inputs - weights);
        let took = job.iteration_us.expect("it ended");
        assert!((took / (work + bubble) - 1.0).abs() < 1e-3, "{pp} {micro_batches} {recompute}: {took}");
        let found = share(job, "bubble") + share(job, "pp");
        assert!((found - bubble / (work + bubble)).abs() < 1e-3, "{pp} {micro_batches} {recompute}: {found}");
        assert!((us(job, "compute") / work - 1.0).abs() < 1e-3);
    }
}

/// All schedules do the same work and send the same bytes.
#[test]
fn zero_bubble_pipelines_do_the_work_of_others() {
    for more in [
        "tp = 2\npp = 2\ndp = 8\nmicro_batches = 4\nbuckets = 2\n",
        "experts = 8\ntop_k = 2\nep = 4\npp = 2\ndp = 16\nmicro_batches = 2\nrecompute = \"selective\"\n",
        "cp = 4\npp = 2\ndp = 4\nmicro_batches = 3\nzero = 0\noverlap = false\n",
    ] {
        let model = format!("layers = 8\nhidden = 512\nsequence = 512\n{more}");
        let (plain, split) = (outcome(&model, &[]), outcome(&model, &["job.schedule=zero-bubble"]));
        assert_eq!(delivered(&plain), delivered(&split), "{more}");
        let (plain, split) = (only(&plain), only(&split));
        assert!((plain.computed_us / split.computed_us - 1.0).abs() < 1e-6, "{more}");
        assert!(split.iteration_us < plain.iteration_us, "{more}: {:?}", split.iteration_us);
        let count = |job: &JobFacts| job.operations.iter().map(|o| (o.name.clone(), o.count)).collect::<Vec<_>>();
        assert_eq!(count(plain), count(split), "{more}");
    }
}

/// Bytes that arrived, payload only.
fn delivered(outcome: &Outcome) -> u64 {
    outcome.measurements.connections.iter().map(|c| c.delivered_bytes).sum()
}

#[test]
fn bytes_of_groups_are_those_of_their_formulas() {
    // A layer: attention 4 h^2, network 8 h^2.
    let (h, s, layers) = (128u64, 256u64, 8u64);
    let parameters = layers * 12 * h * h;
    let model = format!("layers = {layers}\nhidden = {h}\nheads = 4\nsequence = {s}\ncompute = \"100 us\"\n");
    let bytes = |more: &str| delivered(&outcome(&format!("{model}{more}"), &[]));
    // Each of 4 servers has 4 ranks of the data-parallel group: rails of 4 with a quarter of the bytes each.
    for (zero, times) in [(0, 2), (1, 2), (3, 3)] {
        let micro = if zero == 3 { "micro_batches = 1\n" } else { "micro_batches = 3\n" };
        let found = bytes(&format!("gpus = 16\nzero = {zero}\n{micro}"));
        // A gather or a scatter of S bytes among n servers moves (n - 1) S in all. The last layer is gathered once.
        let all = 2 * parameters * 3;
        let expected = times * all - if zero == 3 { all / layers } else { 0 };
        assert_eq!(found, expected, "ZeRO-{zero}");
    }
    // Tensor parallelism stays inside servers; a rank has a quarter of the parameters.
    assert_eq!(bytes("tp = 4\ngpus = 16\nzero = 1\n"), 2 * 2 * parameters * 3);
    // Every stage has a server of its own; six micro-batches cross three boundaries both ways.
    let pipeline = bytes("tp = 4\npp = 4\nmicro_batches = 6\n");
    assert_eq!(pipeline, 2 * 3 * 6 * (s * h * 2));
    // All-to-alls: every rank sends its tokens, twice per token, to 4 servers, four times per layer.
    let moe = "experts = 16\ntop_k = 2\nep = 16\ngpus = 16\n";
    let tokens = 4 * layers * 16 * (s * h * 2 * 2) * 3 / 4;
    let dense = layers * (4 * h * h + h * 16);
    assert_eq!(bytes(moe), tokens + 2 * 2 * dense * 3);
}

#[test]
fn links_inside_servers_take_their_time() {
    // Twice per layer and pass 4 MB among 4 GPUs: 2 * 3/4 * 4 MB at 450 GB/s and 6 us of latency, 8 layers, two passes.
    let model = "layers = 8\nhidden = 2048\nsequence = 1024\ncompute = \"100 us\"\ntp = 4\npp = 2\n";
    let outcome = outcome(model, &[]);
    let bytes = 1024.0 * 2048.0 * 2.0;
    let each = 1.5 * bytes / 450e3 + 6.0;
    let job = only(&outcome);
    let found = us(job, "tp");
    assert!((found / (2.0 * 2.0 * 4.0 * each) - 1.0).abs() < 1e-6, "{found} us");
    assert!((us(job, "compute") - 4.0 * 300.0).abs() < 1e-6);
}

#[test]
fn parts_of_an_iteration_are_all_of_it() {
    let dense = "layers = 8\nhidden = 512\nsequence = 512\niterations = 2\n";
    for more in [
        "tp = 4\npp = 2\ndp = 4\nmicro_batches = 4\nnoise = 0.05\n",
        "tp = 2\npp = 2\ndp = 8\nmicro_batches = 4\nschedule = \"interleaved\"\nrecompute = \"full\"\nstragglers = 0.3\n",
        "dp = 32\nzero = 3\nstragglers = 0.2\n",
        "cp = 4\ndp = 8\nzero = 1\noverlap = false\n",
        "experts = 8\ntop_k = 2\nep = 8\ndp = 16\nimbalance = 1.5\nrecompute = \"selective\"\n",
        "experts = 8\ntop_k = 2\nep = 4\npp = 2\ndp = 16\nmicro_batches = 2\nzero = 0\n",
    ] {
        let outcome = outcome(&format!("{dense}{more}"), &[]);
        let job = only(&outcome);
        let sum: f64 = job.parts.iter().filter_map(|part| part.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{more}: {sum}");
        let all: f64 = job.parts.iter().filter_map(|part| part.us).sum();
        assert!((all / job.iteration_us.expect("it ended") - 1.0).abs() < 1e-9, "{more}");
        assert_eq!((job.iterations, job.iterations_ended), (2, 2));
        assert!(job.iteration_us >= Some(job.bound_us), "{more}: {:?} below {}", job.iteration_us, job.bound_us);
    }
}

#[test]
fn hot_experts_make_others_wait() {
    let moe = "layers = 4\nhidden = 512\nsequence = 512\nexperts = 8\ntop_k = 2\nep = 8\ndp = 32\ncompute = \"2 ms\"\n";
    let even = outcome(moe, &[]);
    let skewed = outcome(moe, &["job.imbalance=2"]);
    let (even, skewed) = (only(&even), only(&skewed));
    // Experts are half of a layer: on one rank of eight, the forward and backward passes of four layers take twice as
    // long.
    let longer = 4.0 * 3.0 * 1000.0;
    let found = skewed.iteration_us.expect("it ended") - even.iteration_us.expect("it ended");
    assert!((found / longer - 1.0).abs() < 0.02, "{found} us longer");
    assert!(us(skewed, "waiting") > 0.7 * longer && us(even, "waiting") < 100.0);
}

#[test]
fn jobs_take_servers_that_are_free() {
    let text = |first: &str, second: &str| {
        let job = |name: &str, placement: &str| {
            format!(
                "[[job]]\nname = \"{name}\"\nlayers = 2\nhidden = 256\nheads = 4\ntp = 4\ndp = 4\nplacement = \"{placement}\"\n"
            )
        };
        format!("{FABRIC}{}{}", job("a", first), job("b", second))
    };
    let hosts = |first: &str, second: &str| -> Vec<Vec<u32>> {
        let experiment = check(&text(first, second), &[]).unwrap_or_else(|e| panic!("{e}"));
        let hosts = |job| experiment.script_of(job).hosts.iter().map(|host| host.0).collect();
        experiment.jobs.iter().map(hosts).collect()
    };
    let packed = hosts("packed", "packed");
    // GPU i of server s has its NIC below leaf i, at place s.
    assert_eq!(packed[0], [0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27]);
    assert_eq!(packed[1][..4], [4, 12, 20, 28]);
    for (first, second) in [("random", "random"), ("spread", "packed")] {
        let mut all: Vec<u32> = hosts(first, second).concat();
        all.sort_unstable();
        assert_eq!(all, (0..32).collect::<Vec<_>>(), "{first} {second}");
    }
    let both = run(&check(&text("random", "random"), &[]).unwrap_or_else(|e| panic!("{e}")), &Control::new());
    assert!(both.report.jobs.iter().all(|job| job.iterations_ended == 1));
}

#[test]
fn a_job_of_one_gpu_computes_and_sends_nothing() {
    let text = "[fabric]\nhosts = 8\n[servers]\ngpus = 1\n[job]\nmodel = \"llama-7b\"\nmicro_batches = 2\n";
    let outcome = run(&check(text, &[]).unwrap_or_else(|e| panic!("{e}")), &Control::new());
    let [job] = &outcome.report.jobs[..] else { panic!("one job") };
    assert_eq!((job.ranks, job.iterations_ended, outcome.report.packets.sent), (1, 1, 0));
    let (iteration, computed) = (job.iteration_us.expect("it ends"), job.computed_us);
    assert!((iteration / computed - 1.0).abs() < 1e-9, "{iteration} {computed}");
}

#[test]
fn deepseek_v3_sends_tokens_in_fp8_and_takes_them_back_in_bf16() {
    let text = |more: &str| {
        format!(
            "[fabric]\nhosts = 16\n[servers]\ngpus = 1\n[job]\nmodel = \"deepseek-v3\"\nlayers = 2\nexperts = 16\ndp = 16\nep = 16\n\
             zero = 0\nsequence = 128\nvocabulary = 0\ngradient_bytes = 1\n{more}"
        )
    };
    let bytes = |more: &str| {
        let outcome = run(&check(&text(more), &[]).unwrap_or_else(|e| panic!("{e}")), &Control::new());
        let [job] = &outcome.report.jobs[..] else { panic!("one job") };
        assert_eq!(job.iterations_ended, 1);
        outcome.report.flows.bytes
    };
    let (plain, fp8) = (bytes(""), bytes("dispatch = \"fp8\"\n"));
    // Two layers, two passes, and in each one exchange of 128 tokens with 7,168 elements for 8 experts from 16 ranks; 15/16 of
    // it leaves the rank, and 31 of 64 bytes are saved.
    let exchange = 128 * 7168 * 2 * 8 * 15 / 16 * 16;
    assert_eq!(plain - fp8, 4 * exchange * 31 / 64);
}

#[test]
fn a_job_that_makes_no_sense_is_explained() {
    for (job, wanted) in [
        ("tp = 4\n", "job.layers: is missing"),
        ("model = \"llama-8b\"\ntp = 4\n", "did you mean"),
        ("model = \"llama-7b\"\ntp = 3\ndp = 4\n", "does not divide 32 heads"),
        ("model = \"llama-7b\"\ntp = 4\ngpus = 10\n", "is no multiple of tp x cp x pp = 4"),
        ("model = \"llama-7b\"\ndp = 6\n", "do not fill servers of 4 GPUs"),
        ("model = \"llama-7b\"\ndp = 64\n", "needs 16 servers, and 8 of 8 are free"),
        ("model = \"llama-7b\"\npp = 64\n", "makes 64 stages of 32 layers"),
        ("model = \"llama-7b\"\nep = 2\ndp = 4\n", "needs a model with experts"),
        ("model = \"mixtral-8x7b\"\nep = 16\ndp = 16\n", "does not divide 8 experts"),
        ("model = \"mixtral-8x7b\"\nep = 8\ndp = 4\n", "does not divide cp x dp = 4"),
        ("model = \"llama-7b\"\nzero = 3\npp = 2\n", "shards parameters, which pipelines keep"),
        ("model = \"llama-7b\"\nzero = 2\ndp = 4\n", "write 0, 1 or 3"),
        ("model = \"llama-7b\"\ndp = 4\nimbalance = 2\n", "needs experts on several ranks"),
        ("model = \"llama-7b\"\npp = 4\nschedule = \"interleaved\"\nmicro_batches = 6\n", "is no multiple of pp = 4"),
        ("model = \"llama-7b\"\ndp = 4\nschedule = \"interleaved\"\nmicro_batches = 6\n", "write pp = 2 or more"),
        ("model = \"llama-7b\"\ndp = 4\nchunks = 2\n", "interleaved pipelines only"),
        ("model = \"llama-7b\"\ndp = 4\nschedule = \"zero-bubble\"\n", "write pp = 2 or more"),
        ("model = \"llama-7b\"\npp = 4\nschedule = \"zero_bubble\"\n", "did you mean \"zero-bubble\""),
        ("model = \"llama-7b\"\ndp = 4\nplacement = \"tight\"\n", "is no placement"),
        ("model = \"llama-7b\"\ndp = 4\nrank = 3\n", "unknown key"),
        ("model = \"llama-7b\"\ndp = 4\nonce = false\n", "has a meaning with a file only"),
    ] {
        let problems = check(&format!("{FABRIC}[job]\n{job}"), &[]);
        let problems = problems.err().map_or("nothing is wrong".to_string(), |problems| problems.to_string());
        assert!(problems.contains(wanted), "{job}: {problems}");
    }
    for (set, wanted) in [
        ("servers.nics=3", "does not divide the 4 GPUs"),
        ("servers.gpus=0", "must be at least 1"),
        ("fabric.hosts=36", "full leaves per group"),
        ("servers.wiring=rails", "servers.wiring"),
    ] {
        let problems = check(&format!("{FABRIC}[job]\nmodel = \"llama-7b\"\ndp = 4\n"), &[set]);
        let problems = problems.err().map_or("nothing is wrong".to_string(), |problems| problems.to_string());
        assert!(problems.contains(wanted), "{set}: {problems}");
    }
}

#[test]
fn a_fabric_whose_leaves_do_not_fit_the_rails_is_refused_whatever_its_job_sends() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/golden/job_moe.toml");
    for per_leaf in [1, 3, 5, 7, 9, 15] {
        let mut scenario = strandway_lab::Scenario::load(&file).unwrap_or_else(|e| panic!("{e}"));
        scenario.set(&format!("fabric.hosts_per_leaf={per_leaf}")).unwrap_or_else(|e| panic!("{e}"));
        let problems = strandway_lab::check(&scenario)
            .err()
            .map_or("nothing is wrong".to_string(), |problems| problems.to_string());
        let fits = 16 % (2 * per_leaf) == 0;
        assert_eq!(problems.contains("full leaves per group"), !fits, "{per_leaf}: {problems}");
    }
}

#[test]
fn tenants_slow_each_other_down_by_what_they_take_longer_than_alone() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/golden/job_two_tenants.toml");
    let mut scenario = strandway_lab::Scenario::load(&file).unwrap_or_else(|e| panic!("{e}"));
    for set in ["run.alone=true", "expect={ \"jobs.first.slowdown\" = \">= 1\", \"jobs.second.slowdown\" = \">= 1\" }"]
    {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    let report = run(&strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}")), &Control::new()).report;
    let slowdowns: Vec<f64> = report.jobs.iter().filter_map(|job| job.slowdown).collect();
    assert_eq!(slowdowns.len(), 2);
    assert!(slowdowns.iter().all(|times| (1.0 - 1e-9..3.0).contains(times)), "{slowdowns:?}");
    assert!(slowdowns.iter().any(|times| *times > 1.001), "they meet above the leaves: {slowdowns:?}");
    assert!(report.expect.len() == 2 && report.expect.iter().all(|bound| bound.met), "{:?}", report.expect);
}

/// A job whose gradients cross spines: servers of four GPUs below one leaf each, and a rank of each group per server.
const ACROSS: &str = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\nspines = 4\n[servers]\ngpus = 4\n[profile]\nname = \"uec\"\n\
                      [job]\nlayers = 4\nhidden = 1024\nsequence = 256\ntp = 4\ndp = 4\nzero = 0\n";

fn all_reduce(text: &str, sets: &[&str]) -> strandway_report::OperationFacts {
    let experiment = check(text, sets).unwrap_or_else(|e| panic!("{e}"));
    let mut report = run(&experiment, &Control::new()).report;
    assert_eq!(report.head.end, "finished", "{sets:?}");
    assert!(report.expect.iter().all(|bound| bound.met), "{:?}", report.expect);
    let operations = &mut report.jobs[0].operations;
    let place = operations.iter().position(|operation| operation.name == "all-reduce").expect("gradients");
    let facts = operations.swap_remove(place);
    let sum: f64 = facts.shares.values().flatten().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{:?}", facts.shares);
    assert!(facts.busbw <= facts.bound_busbw, "{facts:?}");
    facts
}

/// Why collectives are below their bounds, where the reason is known.
#[test]
fn collectives_below_their_bounds_say_why() {
    let share = |facts: &strandway_report::OperationFacts, cause: &str| facts.shares[cause].unwrap_or(0.0);
    let plain = all_reduce(ACROSS, &[]);
    assert!(share(&plain, "line") > 0.8 && plain.late_us < Some(5.0), "{plain:?}");

    // One link at a fifth of its rate, and single paths that cannot avoid it.
    let degraded = "faults=[{between=[\"leaf1\",\"spine0\"],kind=\"degrade\",fraction=0.2}]";
    let expect = "expect={\"jobs.job.operations.all-reduce.shares.slow_link\"=\"> 0.3\",\"jobs.job.operations.all-reduce.late_us\"=\">= 0\"}";
    let slow =
        all_reduce(ACROSS, &["profile.name=rocev2", degraded, expect, "fabric.spines=1", "run.time_limit=100ms"]);
    assert!(slow.link.as_deref().is_some_and(|link| link.contains("leaf1") && link.contains("spine0")), "{slow:?}");
    assert!(slow.why.contains("behind the slow link ") && slow.why.contains("all-reduce gets "), "{}", slow.why);

    // Fewer uplinks than NICs: queues at them, and pauses.
    let narrow = all_reduce(ACROSS, &["profile.name=rocev2", "fabric.spines=1"]);
    assert!(share(&narrow, "fabric") + share(&narrow, "collision") + share(&narrow, "paused") > 0.3, "{narrow:?}");

    // Losses without a queue.
    let lossy = all_reduce(ACROSS, &["faults=[{tier=\"leaf->spine\",count=16,kind=\"loss\",probability=0.02}]"]);
    assert!(share(&lossy, "recovery") + share(&lossy, "timeout") > 0.1, "{lossy:?}");
    assert!(lossy.why.contains("after losses") || lossy.why.contains("sending lost packets again"), "{}", lossy.why);

    // Ranks that compute longer than others.
    let uneven = all_reduce(ACROSS, &["job.stragglers=1", "job.compute=\"500 us\""]);
    assert!(uneven.late_us > Some(200.0) && uneven.why.contains("for its last rank"), "{uneven:?}");

    // Without accounts there are no shares, and nothing is said.
    let experiment = check(ACROSS, &["run.why=false"]).unwrap_or_else(|e| panic!("{e}"));
    let report = run(&experiment, &Control::new()).report;
    assert!(report.jobs[0].operations.iter().all(|o| o.why.is_empty() && o.shares.values().all(Option::is_none)));
}

/// Four stages' worth of nothing but what the file says: 750 us forward and 1,500 us backward per micro-batch.
#[test]
fn a_workload_of_simai_is_a_job() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/simai.txt");
    let outcome = outcome(&format!("file = {:?}\n", file.display().to_string()), &[]);
    let job = only(&outcome);
    assert_eq!((job.ranks, job.iterations_ended), (32, 1));
    // Three micro-batches on two stages.
    let compute = 3.0 * 2250.0;
    assert!((us(job, "compute") - compute).abs() < 0.01 * compute, "{}", us(job, "compute"));
    let bubble = share(job, "bubble") / (share(job, "bubble") + share(job, "compute"));
    assert!((bubble - 0.25).abs() < 0.02, "{bubble}");
    // Per rail of four copies: a gather and a scatter of what the file says, on eight rails; all-to-alls between two
    // servers, each way of each micro-batch from each of 32 ranks; and messages between stages.
    let stages = 2 * 3 * 16 * 4096;
    let experts = 2 * 3 * 32 * 8000 / 2;
    let data = 8 * 3 * (64_000 + 128_000);
    assert_eq!(delivered(&outcome), stages + experts + data);
    // Without the end of the iteration, copies exchange nothing.
    let micro = self::outcome(&format!("file = {:?}\nonce = false\n", file.display().to_string()), &[]);
    assert_eq!(delivered(&micro), stages + experts);
    // The file tells the gradients of inputs and of weights apart: the same work, with a smaller bubble.
    let split = self::outcome(&format!("file = {:?}\nschedule = \"zero-bubble\"\n", file.display().to_string()), &[]);
    assert_eq!(delivered(&split), stages + experts + data);
    assert!((only(&split).computed_us / job.computed_us - 1.0).abs() < 1e-6);
    assert!(only(&split).iteration_us < job.iteration_us);
}
