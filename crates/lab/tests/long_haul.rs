//! Schemes of SDR-RDMA over a long link: their completion times agree with the model, and the automatic choice among
//! them is good.

use strandway_lab::{Scenario, run};
use strandway_proto::repair::Code;
use strandway_proto::repair::model::{Completion, Effort, Fallback, Transfer};
use strandway_report::Report;
use strandway_sim::Control;

/// Wire bytes of a packet, as a time in microseconds at 400 Gb/s.
const PACKET_US: f64 = 4160.0 * 8.0 / 400e3;
const RTT_US: f64 = 25_000.0;

/// Messages one after the other over 3,750 km at 400 Gb/s, by the paper's rule for light.
fn simulate(profile: &str, settings: &str, mib: u32, loss: f64, messages: u32) -> Report {
    let text = format!(
        "name = 'long haul'\n[fabric]\nkind = 'sites'\nsites = 2\nhosts_per_site = 1\ndistance = '3750 km'\nrule = 'paper'\n\
         rate = '400 Gbps'\nloss = {loss}\nloss_one_way = true\n[profile]\nname = '{profile}'\n{settings}\n[workload]\nkind = 'flows'\n\
         flows = [{{ from = 0, to = 1, size = '{mib} MiB' }}]\nmessages = {messages}\ngap = '1 ms'\n[run]\ntime_limit = '1000 s'\n"
    );
    let scenario = Scenario::from_text("long haul", &text).unwrap_or_else(|error| panic!("{error}"));
    let experiment = strandway_lab::check(&scenario).unwrap_or_else(|error| panic!("{error}"));
    let report = run(&experiment, &Control::new()).report;
    assert_eq!(report.head.end, "finished");
    report
}

fn transfer(mib: u32, loss: f64) -> Transfer {
    Transfer { chunks: u64::from(mib) * 256, chunk_time: PACKET_US, rtt: RTT_US, loss }
}

/// Mean completion time divided by the model's.
fn against(report: &Report, model: &Completion) -> f64 {
    report.times.fct_us.mean.expect("all finished") / model.mean()
}

#[test]
fn timeouts_cost_what_the_model_says() {
    for loss in [1e-4, 1e-3, 1e-2] {
        let report = simulate("sdr_sr", "[profile.sdr_sr]\nchunk = 1", 8, loss, 1500);
        let model = transfer(8, loss).retransmitted(3.0 * RTT_US, Effort::FINE);
        let ratio = against(&report, &model);
        // With 1,500 messages, twice the standard error is at most 3 %.
        assert!((0.95..1.05).contains(&ratio), "loss {loss}: {ratio} of the model's mean");
        let tail = report.times.fct_us.p999.expect("all finished") / model.quantile(0.999);
        // With only 1,500 messages, the 99.9th percentile may differ by one timeout.
        assert!((0.5..1.6).contains(&tail), "loss {loss}: {tail} of the model's 99.9th percentile");
    }
}

#[test]
fn parity_that_suffices_costs_its_own_time_and_no_more() {
    for (loss, messages) in [(1e-4, 100), (1e-3, 100), (1e-2, 100)] {
        let report = simulate("sdr_mds", "", 8, loss, messages);
        // (1 + m / k) M T + RTT
        let expected = 2560.0 * PACKET_US + RTT_US;
        for value in [report.times.fct_us.mean, report.times.fct_us.max] {
            let ratio = value.expect("all finished") / expected;
            assert!((0.99..1.01).contains(&ratio), "loss {loss}: {ratio}");
        }
        assert_eq!(report.packets.retransmitted, 0, "nothing goes again");
    }
}

#[test]
fn parity_that_does_not_suffice_falls_back_as_the_model_says() {
    let report = simulate("sdr_xor", "", 8, 3e-3, 1500);
    let fallback = Fallback { rto: 3.0 * RTT_US, beta: 1.0, whole_groups: false };
    let code = Code::xor(32, 8).expect("a code");
    let ratio = against(&report, &transfer(8, 3e-3).coded(code, &fallback, Effort::FINE));
    assert!((0.95..1.05).contains(&ratio), "{ratio} of the model's mean");
}

#[test]
fn the_choice_is_within_a_tenth_and_a_round_trip_of_the_best_single_scheme() {
    for (mib, loss, messages) in [(1, 1e-3, 60), (8, 1e-5, 60), (8, 1e-2, 60), (64, 1e-3, 20), (64, 3e-2, 20)] {
        let singles =
            [("sdr_nack", "[profile.sdr_nack]\nchunk = 1"), ("sdr_mds", ""), ("sdr_mds", "[profile.sdr_mds]\nm = 2")];
        let mean = |report: Report| report.times.fct_us.mean.expect("all finished");
        let best = singles
            .iter()
            .map(|(profile, settings)| mean(simulate(profile, settings, mib, loss, messages)))
            .fold(f64::INFINITY, f64::min);
        let report = simulate("sdr_auto", "", mib, loss, messages);
        let choices = report.choices.clone().expect("it chose");
        assert_eq!(choices.plans.iter().map(|plan| plan.messages).sum::<u64>(), u64::from(messages));
        assert!(choices.last.is_some() && choices.next.is_some());
        let chosen = mean(report);
        assert!(chosen <= best * 1.1 + RTT_US, "{mib} MiB at {loss}: {chosen} us beside {best} us, {choices:?}");
    }
}

/// Jain's fairness index: 1 if all shares are equal, 1/n if one of n has everything.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// Four transfers begin one second apart and share 200 Mb/s over 50 ms for `seconds` seconds. Each has its own source
/// and destination host. Returns the bytes that each has received, and the utilisation of the link.
fn share(profile: &str, loss: f64, burst: &str, seconds: u32) -> (Vec<f64>, f64) {
    let starts = ["0 s", "1 s", "2 s", "3 s"];
    let flows: Vec<String> = starts
        .iter()
        .enumerate()
        .map(|(at, start)| format!("{{ from = {at}, to = {}, size = '8 GB', start = '{start}' }}", at + 4))
        .collect();
    let text = format!(
        "name = 'shares'\n[fabric]\nkind = 'sites'\nsites = 2\nhosts_per_site = 4\nrate = '2 Gbps'\nlong_latency = '25 ms'\n\
         long_rate = '200 Mbps'\nlong_queue = '50 ms'\nloss = {loss}\n{burst}\nloss_one_way = true\ntrimming = false\necn = false\n\
         [profile]\nname = '{profile}'\ncongestion = 'longhaul'\n[profile.transport]\nmtu = 1344\n\
         [workload]\nkind = 'flows'\nflows = [{}]\n[run]\ntime_limit = '{seconds} s'\n",
        flows.join(", ")
    );
    let scenario = Scenario::from_text("shares", &text).unwrap_or_else(|error| panic!("{error}"));
    let outcome = run(&strandway_lab::check(&scenario).unwrap_or_else(|error| panic!("{error}")), &Control::new());
    let received = outcome.measurements.connections.iter().map(|stats| stats.delivered_bytes as f64).collect();
    let used = outcome.report.load.links.iter().map(|tier| tier.utilisation_max).fold(0.0, f64::max);
    (received, used)
}

#[test]
fn connections_that_begin_one_after_the_other_share_a_long_link_whatever_it_loses() {
    for (profile, loss, burst) in
        [("sdr_nack", 0.0, ""), ("sdr_nack", 1e-3, ""), ("sdr_mds", 1e-2, ""), ("sdr_mds", 1e-2, "burst = '1 ms'")]
    {
        let (early, _) = share(profile, loss, burst, 12);
        let (late, used) = share(profile, loss, burst, 20);
        let gained: Vec<f64> = late.iter().zip(&early).map(|(late, early)| late - early).collect();
        assert!(jain(&gained) >= 0.98, "{profile}, loss {loss} {burst}: {gained:?} in eight seconds");
        assert!(used >= 0.85, "{profile}, loss {loss} {burst}: {used} of the link over all");
    }
}
