//! Reports name the cause that limited a flow. In each scenario here the cause is known by construction.

use strandway_fabric::Measurements;
use strandway_lab::{Experiment, Scenario, run};
use strandway_report::{self as report, Report, WhyFacts};
use strandway_sim::Control;

fn experiment(text: &str) -> Experiment {
    Scenario::from_text("why.toml", text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"))
}

fn measured(text: &str, threads: usize) -> (Report, Measurements) {
    let mut experiment = experiment(text);
    experiment.plan.threads = threads;
    let outcome = run(&experiment, &Control::new());
    (outcome.report, outcome.measurements)
}

/// The entry with this name.
fn entry(report: &Report, name: &str) -> WhyFacts {
    let names: Vec<&str> = report.why.iter().map(|w| w.name.as_str()).collect();
    report.why.iter().find(|w| w.name == name).unwrap_or_else(|| panic!("no {name} in {names:?}")).clone()
}

fn share(why: &WhyFacts, cause: &str) -> f64 {
    why.shares.get(cause).copied().flatten().unwrap_or_else(|| panic!("no share of {cause}: {why:?}"))
}

/// Runs with one thread and several: the accounts are the same, and all times add up to the picosecond.
fn why(text: &str) -> Report {
    let (report, one) = measured(text, 1);
    for threads in [2, 3] {
        let (_, several) = measured(text, threads);
        assert_eq!(several.times, one.times, "{threads} threads");
        assert_eq!(several.waits, one.waits, "{threads} threads");
    }
    for (times, flow) in one.times.iter().zip(&one.flows) {
        if let Some(time) = flow.completion() {
            assert_eq!(times.total(), time);
        }
    }
    for why in &report.why {
        let sum: f64 = why.shares.values().flatten().sum();
        assert!(why.time_us.is_none() || (sum - 1.0).abs() < 1e-9, "{why:?}");
    }
    report
}

const LEAVES: &str = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n";

fn flows(list: &[(u32, u32, &str)]) -> String {
    let each: Vec<String> =
        list.iter().map(|(from, to, size)| format!("{{ from = {from}, to = {to}, size = \"{size}\" }}")).collect();
    format!("[workload]\nkind = \"flows\"\nflows = [{}]\n", each.join(", "))
}

#[test]
fn a_flow_at_line_rate() {
    let r = why(&format!("{LEAVES}{}", flows(&[(0, 9, "20 MB")])));
    let slowest = entry(&r, "slowest");
    assert_eq!((slowest.cause.as_str(), slowest.what.as_str()), ("line", "host0->host9"));
    assert!(share(&slowest, "line") > 0.9, "{}", slowest.sentence);
}

#[test]
fn a_short_message_is_on_the_way() {
    let r = why(&format!("{LEAVES}{}", flows(&[(0, 9, "100 B")])));
    let slowest = entry(&r, "slowest");
    assert_eq!(slowest.cause, "propagation");
    assert!(share(&slowest, "propagation") > 0.95, "{}", slowest.sentence);
}

#[test]
fn a_tiny_window() {
    let text = format!(
        "{LEAVES}[profile]\nname = \"uec/bitmap/fixed\"\n[profile.fixed]\nwindow_bdp = 0.1\n{}",
        flows(&[(0, 9, "2 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!((slowest.cause.as_str(), slowest.control.as_str(), &slowest.cut), ("window", "fixed", &None));
    assert!(share(&slowest, "window") > 0.8, "{}", slowest.sentence);
}

#[test]
fn a_narrow_range_of_packet_numbers_on_a_long_path() {
    let text = format!(
        "{LEAVES}latency = \"200 us\"\n[profile]\nname = \"uec\"\n[profile.selective_repeat]\nwindow_psn = 64\n{}",
        flows(&[(0, 9, "10 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!(slowest.cause, "psn", "{}", slowest.sentence);
    assert!(share(&slowest, "psn") > 0.8, "{}", slowest.sentence);
}

#[test]
fn an_incast() {
    for profile in ["uec", "strack", "mrc", "uec/reps/swift", "uec/bitmap/dctcp"] {
        let text = format!(
            "{LEAVES}[profile]\nname = \"{profile}\"\n\
             [workload]\nkind = \"incast\"\ndestination = 5\nsenders = 12\nsize = \"1 MB\"\n"
        );
        let r = why(&text);
        let slowest = entry(&r, "slowest");
        assert_eq!(
            (slowest.cause.as_str(), slowest.host.as_deref()),
            ("incast", Some("host5")),
            "{}",
            slowest.sentence
        );
        assert!(share(&slowest, "incast") > 0.5, "{profile}: {}", slowest.sentence);
        assert_eq!(entry(&r, "class.incast").cause, "incast");
    }
}

#[test]
fn an_incast_that_drops() {
    let text = format!(
        "{LEAVES}[profile]\nname = \"rocev2_sr\"\n\
         [workload]\nkind = \"incast\"\ndestination = 5\nsenders = 12\nsize = \"1 MB\"\n"
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!(
        (slowest.host.as_deref(), slowest.cut.as_deref()),
        (Some("host5"), Some("marks")),
        "{}",
        slowest.sentence
    );
    let (incast, again) = (share(&slowest, "incast"), share(&slowest, "recovery") + share(&slowest, "timeout"));
    assert!(incast > 0.3 && again > 0.2 && incast + again > 0.8, "{}", slowest.sentence);
}

#[test]
fn flows_on_one_uplink() {
    let text = format!(
        "[fabric]\nhosts = 8\nhosts_per_leaf = 4\nspines = 1\n[profile]\nname = \"uec/single\"\n{}",
        flows(&[(0, 4, "8 MB"), (1, 5, "8 MB"), (2, 6, "8 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!((slowest.cause.as_str(), slowest.link.as_deref()), ("collision", Some("leaf0->spine0")));
    assert!(slowest.sentence.contains("in the queue of leaf0->spine0 (nscc: "), "{}", slowest.sentence);
}

#[test]
fn a_slow_uplink() {
    let text = format!(
        "[fabric]\nhosts = 4\nhosts_per_leaf = 2\nspines = 1\n{}\
         [[faults]]\nkind = \"degrade\"\nlink = \"leaf0->spine0\"\nfraction = 0.25\n",
        flows(&[(0, 2, "8 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!((slowest.cause.as_str(), slowest.link.as_deref()), ("slow_link", Some("leaf0->spine0")));
    assert!(share(&slowest, "slow_link") > 0.6, "{}", slowest.sentence);
}

#[test]
fn a_slow_link_to_the_receiver() {
    let text = format!(
        "[fabric]\nhosts = 4\nhosts_per_leaf = 2\nspines = 2\n{}\
         [[faults]]\nkind = \"degrade\"\nlink = \"leaf1->host2\"\nfraction = 0.25\n",
        flows(&[(0, 2, "8 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!((slowest.cause.as_str(), slowest.link.as_deref()), ("slow_link", Some("leaf1->host2")));
}

#[test]
fn a_victim_of_pauses() {
    // Hosts 0 to 2 fill host 4's link. The pauses reach leaf 0 and stop host 3, which sends to host 5.
    let text = format!(
        "[fabric]\nhosts = 8\nhosts_per_leaf = 4\nspines = 1\necn = false\n[profile]\nname = \"rocev2\"\n{}",
        flows(&[(0, 4, "4 MB"), (1, 4, "4 MB"), (2, 4, "4 MB"), (3, 5, "2 MB")])
    );
    let r = why(&text);
    let victim = entry(&r, "host3->host5");
    assert!(share(&victim, "paused") > 0.4, "{}", victim.sentence);
    assert!(victim.sentence.contains("with its NIC paused (PFC)"), "{}", victim.sentence);
    assert!(r.packets.pauses > 0);
}

#[test]
fn a_port_that_is_down() {
    let text = format!(
        "{LEAVES}{}[[faults]]\nkind = \"down\"\nport = \"host0.p0\"\nat = \"10 us\"\nuntil = \"900 us\"\n",
        flows(&[(0, 9, "4 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert!(share(&slowest, "paused") > 0.8, "{}", slowest.sentence);
    assert!(slowest.sentence.contains("with its NIC's ports down"), "{}", slowest.sentence);
}

#[test]
fn a_loss_that_only_a_timeout_finds() {
    let text = format!(
        "{LEAVES}[profile]\nname = \"rocev2\"\n{}\
         [[faults]]\nkind = \"down\"\nsilent = true\nlink = \"host0->leaf0\"\nuntil = \"20 us\"\n",
        flows(&[(0, 9, "100 kB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!(slowest.cause, "timeout", "{}", slowest.sentence);
    assert!(share(&slowest, "timeout") > 0.9, "{}", slowest.sentence);
}

#[test]
fn marks_cut_a_rate() {
    let text = format!(
        "{LEAVES}[profile]\nname = \"rocev2\"\n[workload]\nkind = \"incast\"\nsenders = 4\nsize = \"4 MB\"\npick = \"remote\"\n"
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!((slowest.control.as_str(), slowest.cut.as_deref()), ("dcqcn", Some("marks")), "{}", slowest.sentence);
    assert!(slowest.sentence.contains("dcqcn: marks cut its rate"), "{}", slowest.sentence);
}

#[test]
fn a_nic_that_sends_to_many() {
    let text = format!("{LEAVES}[workload]\nkind = \"outcast\"\nreceivers = 8\nsize = \"2 MB\"\n");
    let slowest = entry(&why(&text), "slowest");
    assert_eq!(slowest.cause, "nic", "{}", slowest.sentence);
    assert!(share(&slowest, "nic") > 0.7 && share(&slowest, "line") > 0.08, "{}", slowest.sentence);
}

#[test]
fn a_chain_of_messages_with_pauses_between_them() {
    let text = format!(
        "{LEAVES}[workload]\nkind = \"flows\"\nmessages = 5\ngap = \"100 us\"\n\
         flows = [{{ from = 0, to = 9, size = \"500 kB\" }}]\n"
    );
    let r = why(&text);
    let chain = entry(&r, "chain");
    assert_eq!(chain.cause, "dependency", "{}", chain.sentence);
    // Four gaps of 100 us, and five messages of about 20 us.
    let all = r.run.simulated_us;
    assert!((share(&chain, "dependency") - 400.0 / all).abs() < 0.05, "{} of {all} us", chain.sentence);
    assert!((chain.time_us.unwrap_or_default() - all).abs() < 0.1 * all, "{:?} of {all}", chain.time_us);
}

#[test]
fn a_ring_names_its_critical_chain() {
    let text = format!("{LEAVES}[workload]\nkind = \"all-reduce\"\nsize = \"8 MB\"\n");
    let r = why(&text);
    let ring = entry(&r, "collective.all-reduce");
    let time = r.collectives[0].time_us.unwrap_or_default();
    assert!((ring.time_us.unwrap_or_default() - time).abs() < 1e-6 * time, "{:?} of {time} us", ring.time_us);
    // Each of 30 steps sends 500 kB (10 us at line rate) over 2 or 4 links of 1 us.
    assert_eq!(ring.cause, "line", "{}", ring.sentence);
    assert!(share(&ring, "line") > 0.6 && share(&ring, "propagation") > 0.1, "{}", ring.sentence);
    let slow = why(&format!("{text}[[faults]]\nkind = \"degrade\"\nlink = \"host3->leaf0\"\nfraction = 0.1\n"));
    let slow = entry(&slow, "collective.all-reduce");
    assert!(slow.time_us > ring.time_us, "{}", slow.sentence);
}

#[test]
fn an_oversubscribed_fabric_queues_everywhere() {
    let text = "[fabric]\nhosts = 64\nhosts_per_leaf = 8\noversubscription = 4\n\
                [profile]\nname = \"uec/oblivious\"\n[workload]\nkind = \"permutation\"\nsize = \"2 MB\"\n";
    let class = entry(&why(text), "class.permutation");
    assert!(share(&class, "fabric") + share(&class, "collision") > 0.5, "{}", class.sentence);
    assert!(share(&class, "incast") < 0.1, "{}", class.sentence);
}

#[test]
fn a_receiver_that_dies() {
    let text = format!(
        "{LEAVES}{}[[faults]]\nkind = \"down\"\nsilent = true\nswitch = \"host9\"\nat = \"20 us\"\n",
        flows(&[(0, 9, "20 MB"), (1, 6, "2 MB")])
    );
    let slowest = entry(&why(&text), "slowest");
    assert_eq!(slowest.what, "host0->host9");
    assert_eq!(slowest.cause, "timeout", "{}", slowest.sentence);
    assert!(slowest.sentence.starts_with("host0->host9 did not finish and spent "), "{}", slowest.sentence);
}

#[test]
fn shares_can_be_expected_and_are_told() {
    let text = format!(
        "{LEAVES}[workload]\nkind = \"incast\"\nsize = \"1 MB\"\n\
         [expect]\n\"why.slowest.shares.incast\" = \">= 0.4\"\n\"why.class.incast.shares.timeout\" = \"< 0.1\"\n"
    );
    let r = why(&text);
    assert!(r.met(), "{:?}", r.expect);
    let told = entry(&r, "slowest").sentence;
    assert!(report::text::report(&r).contains(&told), "{told}");
    assert!(report::html::report(&r).contains("in an incast at host0"));
    let wrong = Scenario::from_text("why.toml", "[expect]\n\"why.slowest.shares.incats\" = \"> 0\"\n")
        .and_then(|s| strandway_lab::check(&s))
        .map(drop);
    assert!(wrong.unwrap_err().to_string().contains("did you mean `why.slowest.shares.incast`?"));
}
