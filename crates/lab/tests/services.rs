//! Inference services: times equal formulas at low load, results do not depend on threads, mistakes are explained.

use strandway_lab::run;
use strandway_report::{Report, ServiceFacts};
use strandway_scenario::Scenario;
use strandway_sim::Control;

/// Runs a scenario with changes.
fn report(text: &str, changes: &[&str]) -> Report {
    let mut scenario = Scenario::from_text("test", text).expect("TOML");
    changes.iter().for_each(|change| scenario.set(change).expect("a key"));
    let experiment = strandway_lab::check(&scenario).unwrap_or_else(|problems| panic!("{problems}"));
    run(&experiment, &Control::new()).report
}

fn service(report: &Report) -> &ServiceFacts {
    assert_eq!(report.head.end, "finished");
    let [service] = &report.services[..] else { panic!("one service") };
    assert_eq!(service.ended, service.requests);
    service
}

/// Two servers of prefill and two of decode, all below one leaf, and a request at a time.
const QUIET: &str = r#"
[fabric]
hosts = 64
hosts_per_leaf = 64
spines = 1
[servers]
[[service]]
model = "llama3-8b"
prefill = 2
decode = 2
rate = 5
requests = 12
input = "500..4000"
output = 8
"#;

/// Every part of a request's time equals the arithmetic of a formula within 1 % if nothing else is under way.
#[test]
fn times_at_low_load_are_those_of_formulas() {
    println!("{:<52} {:>12} {:>12} {:>8}", "", "measured", "formula", "");
    for changes in [
        &[][..],
        &["service.kv_nics=1"],
        &["service.kv_nics=2", "service.transfer=end"],
        &["service.pull=true"],
        &["service.pull=true", "service.transfer=end", "service.kv_nics=4"],
        &["service.prefill_tp=4", "service.prefill=4"],
        &["service.chunked=false"],
        &["service.budget=512"],
        &["service.model=deepseek-v3", "service.layers=7"],
        &["service.pp=2"],
        &["profile.name=mrc", "fabric.planes=8"],
        &["profile.name=rocev2"],
    ] {
        let report = report(QUIET, changes);
        let service = service(&report);
        let formula = &service.formula;
        for (what, measured, wanted) in [
            ("time to first token", &service.ttft_us, &formula.ttft_us),
            ("end to end", &service.whole_us, &formula.whole_us),
            ("KV cache there", &service.transfer_us, &formula.transfer_us),
        ] {
            for (measured, wanted) in [(measured.mean, wanted.mean), (measured.max, wanted.max)] {
                let (measured, wanted) = (measured.expect("ended"), wanted.expect("ended"));
                let off = measured / wanted - 1.0;
                let name = format!("{what} {changes:?}");
                println!("{name:<52} {measured:>9.1} us {wanted:>9.1} us {:>+7.2} %", 100.0 * off);
                assert!(off.abs() < 0.01, "{name}: {measured} instead of {wanted}");
            }
        }
    }
}

/// Two prefill NICs send to each decode NIC: an incast of two, which no formula has.
#[test]
fn an_incast_at_a_decode_nic_is_no_formula() {
    let report = report(QUIET, &["service.decode_tp=4", "service.decode=4", "service.transfer=end"]);
    let service = service(&report);
    let (measured, formula) =
        (service.transfer_us.mean.expect("sent"), service.formula.transfer_us.mean.expect("sent"));
    assert!((1.0..1.05).contains(&(measured / formula)), "{measured} {formula}");
    assert!(service.shares["incast"].expect("accounts") > 0.4, "{:?}", service.shares);
}

/// The same by hand: a prompt of 1,000 tokens on eight GPUs, its KV cache over eight lanes, and the first step.
#[test]
fn a_single_request_adds_up() {
    let report = report(QUIET, &["service.requests=1", "service.input=1000", "run.rows=true", "service.transfer=end"]);
    let service = service(&report);
    let row = &service.rows[0];
    let step = |from: Option<f64>, to: Option<f64>| to.expect("it ended") - from.expect("it began");
    // 1,000 tokens of 131,072 B over eight lanes of 400 Gb/s, with headers of 64 B per 4,096 B.
    let bytes = 1000.0 * 131_072.0 / 8.0;
    assert_eq!(service.kv_bytes, 131_072_000);
    let wire = bytes * (1.0 + 64.0 / 4096.0) * 8.0 / 400e3;
    let transfer = step(row.computed_us, row.transferred_us);
    assert!((transfer / wire - 1.0).abs() < 0.03, "{transfer} {wire}");
    // 2 x 6.98e9 operations per token at half of 989 TFLOP/s on eight GPUs, and 64 all-reduces of 2 us and more.
    let prompt = step(row.begun_us, row.computed_us);
    let flops = 1000.0 * 2.0 * 6.98e9 / 8.0 / 494.5e12 * 1e6;
    let reductions = 64.0 * (2.0 + 2.0 * 7.0 / 8.0 * 1000.0 * 4096.0 * 2.0 * 8.0 / 3600e3);
    assert!((prompt / (flops + reductions) - 1.0).abs() < 0.03, "{prompt} {flops} {reductions}");
    // Eight tokens, each of which reads 15 GB of weights from eight memories of 2.68 TB/s.
    let tokens = step(row.joined_us, row.ended_us) / 8.0;
    let reading = 15.0e9 / 8.0 / 2.68e12 * 1e6 + 64.0 * 2.0;
    assert!((tokens / reading - 1.0).abs() < 0.03, "{tokens} {reading}");
}

#[test]
fn results_do_not_depend_on_threads() {
    let busy = r#"
[fabric]
hosts = 64
[servers]
[[service]]
model = "llama3-8b"
prefill = 2
decode = 2
rate = 400
requests = 16
input = "100..2000"
output = "1..20"
"#;
    let experts = ["service.model=qwen3-30b-a3b", "service.layers=4", "service.requests=6", "service.tp=1"];
    for changes in [
        &[][..],
        &["service.pull=true", "service.route=round-robin"],
        &["service.decode=0", "service.prefill=4"],
        &["service.decode_tp=16", "service.decode=1", "service.requests=3", "service.layers=4"],
        &["service.pp=2", "service.decode=1"],
        &["profile.name=mrc", "fabric.kind=multi-plane", "service.transfer=end"],
        &["service.update_at=\"1 ms\"", "service.update_size=\"20 MB\"", "service.update=chain"],
    ] {
        same_digests(busy, changes);
    }
    for skew in ["uniform", "zipf", "hot"] {
        let skew = format!("service.skew={skew}");
        let more = ["service.prefill_ep=16", "service.decode_ep=32", "service.prefill=1", "service.decode=1"];
        let changes: Vec<&str> = experts.iter().chain(&more).copied().chain([skew.as_str()]).collect();
        same_digests(busy, &changes);
    }
}

fn same_digests(text: &str, changes: &[&str]) {
    let of = |threads: &str| {
        let changes: Vec<&str> = changes.iter().copied().chain([threads]).collect();
        let report = report(text, &changes);
        service(&report);
        (report.head.digest.clone(), report.services[0].ttft_us.p99, report.services[0].whole_us.max)
    };
    let one = of("run.threads=1");
    assert_eq!(one, of("run.threads=2"), "{changes:?}");
    assert_eq!(one, of("run.threads=7"), "{changes:?}");
}

/// Users send one request after the other, so at most as many are under way.
#[test]
fn users_wait_for_their_answers() {
    let text = QUIET.replace("rate = 5\n", "users = 3\nthink = \"1 ms\"\n");
    let report = report(&text, &["run.rows=true"]);
    let rows = &service(&report).rows;
    for row in rows {
        let under_way = rows
            .iter()
            .filter(|other| other.arrived_us <= row.arrived_us && other.ended_us.expect("it ended") > row.arrived_us);
        assert!(under_way.count() <= 3);
    }
    assert_eq!(rows.len(), 12);
}

/// A job, a service and a workload beside each other, each on servers of its own.
#[test]
fn a_job_runs_beside_a_service() {
    let text = format!(
        "{QUIET}\n[[job]]\nmodel = \"llama-7b\"\nlayers = 2\ntp = 8\ndp = 2\nmicro_batches = 1\n[[workload]]\nkind = \"incast\"\nsize = \"1 MB\"\n"
    );
    let report = report(&text, &[]);
    service(&report);
    assert_eq!(report.jobs[0].iterations_ended, 1);
    assert_eq!(report.flows.finished, report.flows.total);
}

/// Requests with common prefixes find them in the cache, and a router by prefix finds more of them.
#[test]
fn prefixes_are_found_where_they_are() {
    let folder = std::env::temp_dir().join(format!("strandway-services-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let trace = folder.join("trace.jsonl");
    let line = |i: u64| {
        let family = i % 5;
        let hashes: Vec<u64> = (0..4).map(|block| family * 100 + block).chain([1000 + i]).collect();
        format!(
            "{{\"timestamp\": {}, \"input_length\": 2500, \"output_length\": 4, \"hash_ids\": {hashes:?}}}\n",
            i * 50
        )
    };
    std::fs::write(&trace, (0..60).map(line).collect::<String>()).expect("a file");
    let text = QUIET
        .replace("rate = 5\nrequests = 12\ninput = \"500..4000\"\noutput = 8\n", "trace = \"TRACE\"\n")
        .replace("TRACE", &trace.display().to_string());
    let share = |route: &str| {
        let report = report(&text, &[route]);
        service(&report).cached_share.expect("prompts")
    };
    let (load, prefix) = (share("service.route=round-robin"), share("service.route=prefix"));
    // 2,048 of 2,500 tokens of all but the first request of a family, at one replica and at both.
    let found = |firsts: f64| (60.0 - firsts) / 60.0 * 2048.0 / 2500.0;
    assert!((prefix - found(5.0)).abs() < 1e-9, "{prefix}");
    assert!((load - found(10.0)).abs() < 1e-9, "{load}");
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[test]
fn mistakes_are_explained_together() {
    let problems = |changes: &[&str]| {
        let mut scenario = Scenario::from_text("test", QUIET).expect("TOML");
        changes.iter().for_each(|change| scenario.set(change).expect("a key"));
        strandway_lab::check(&scenario).expect_err("mistakes").to_string()
    };
    for (changes, wanted) in [
        (&["service.model=llama3"][..], "did you mean \"llama3-8b\"?"),
        (&["service.tp=3"], "does not divide the model's 32 heads"),
        (&["service.ep=8"], "needs a model with experts"),
        (&["service.prefill=9"], "needs 11 servers, and 8 are free"),
        (&["service.prefill=0"], "must be at least 1"),
        (&["service.users=4"], "is given together with `users`"),
        (&["service.hot=0.5"], "is the share of one expert"),
        (&["service.messages=4", "service.transfer=end"], "has a meaning with transfer = \"layers\" only"),
        (&["service.model=llama3-405b", "service.tp=1"], "leaves no memory for KV caches"),
        (&["service.input=many"], "is no length"),
        (&["service.input=9..3"], "is no range of lengths"),
        (&["service.trace=none.jsonl"], "service[0].trace = \"none.jsonl\": cannot be read"),
        (&["service.times=none.csv"], "service[0].times = \"none.csv\": cannot be read"),
        (&["service.output=none.csv"], "service[0].output = \"none.csv\": cannot be read"),
        (&["service.kv_nics=9"], "is more than the 8 NICs of a server"),
        (&["service.update=chain"], "belongs to a weight update"),
        (&["service.kv_tokens=10"], "have room for no request"),
        (&["service.replicas=4"], "unknown key"),
        (&["expect.\"services.other.ttft_us.p99\"=\"< 1\""], "services.other.ttft_us.p99"),
    ] {
        let said = problems(changes);
        assert!(said.contains(wanted), "{changes:?}: {said}");
    }
    assert_eq!(problems(&["service.tp=3"]).lines().count(), 1, "a degree of both pools is told once");
    let said = problems(&["service.input=9..3", "service.output=few", "service.placement=far"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    let said = problems(&["service.model=x", "service.rate=-1", "service.prefill=0"]);
    assert_eq!(said.lines().filter(|line| line.contains("service[0].")).count(), 3, "{said}");
}

/// All values of a service can be bounded.
#[test]
fn expectations_bound_services() {
    let report = report(
        QUIET,
        &[
            "expect.\"services.service.ttft_us.p99\"=\"< 100000\"",
            "expect.\"services.service.slo_share\"=\"== 1\"",
            "expect.\"services.service.parts.transfer.share\"=\"< 0.2\"",
            "expect.\"services.service.formula.ttft_us.p50\"=\"> 1\"",
        ],
    );
    assert!(report.met() && report.expect.len() == 4, "{:?}", report.expect);
}
