//! `strandway doctor --to` over paths with one fault each. Two hosts and a router between them are network namespaces;
//! faults are rules of nftables in the router. Where these cannot be made, each test prints why it is skipped.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The addresses of the second host.
const TO: [&str; 2] = ["10.2.0.2", "fd00:2::2"];

/// Two hosts and a router between them, with both families.
struct Path {
    /// The asking host, the router and the listening host.
    names: [String; 3],
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {said}", arguments.join(" "))) }
}

impl Path {
    /// A path whose second link has this MTU, and whose router has these rules: lines of a chain each, behind its name.
    fn new(mtu: u32, rules: &[(&str, &str)]) -> Option<Path> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "r", "b"].map(|role| format!("strandway-path-{}-{number}-{role}", std::process::id()));
        let path = Path { names };
        match path.set_up(mtu).and_then(|()| rules.iter().try_for_each(|(hook, rule)| path.rule(1, hook, rule))) {
            Ok(()) => Some(path),
            Err(missing) => {
                println!("skipped: such a path cannot be made here: {missing}");
                None
            }
        }
    }

    fn set_up(&self, mtu: u32) -> Result<(), String> {
        let [a, r, b] = &self.names;
        for name in &self.names {
            run("ip", &["netns", "add", name])?;
            run("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        for (host, number) in [(a, "1"), (b, "2")] {
            let link = format!("p{number}");
            run("ip", &["-n", r, "link", "add", &link, "type", "veth", "peer", "p0", "netns", host])?;
            let at = |host| [format!("10.{number}.0.{host}"), format!("fd00:{number}::{host}")];
            for (name, link, [v4, v6]) in [(r, link.as_str(), at(1)), (host, "p0", at(2))] {
                run("ip", &["-n", name, "addr", "add", &format!("{v4}/24"), "dev", link])?;
                run("ip", &["-n", name, "addr", "add", &format!("{v6}/64"), "dev", link, "nodad"])?;
                run("ip", &["-n", name, "link", "set", link, "up"])?;
            }
            let [v4, v6] = at(1);
            run("ip", &["-n", host, "route", "add", "default", "via", &v4])?;
            run("ip", &["-n", host, "route", "add", "default", "via", &v6])?;
        }
        run("ip", &["-n", r, "link", "set", "p2", "mtu", &mtu.to_string()])?;
        for key in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            run("ip", &["netns", "exec", r, "sysctl", "-qw", key])?;
        }
        // The kernel adds the local route of an address in the background; until then datagrams to it are lost.
        for (name, at) in [(a, "fd00:1::2"), (r, "fd00:1::1"), (r, "fd00:2::1"), (b, "fd00:2::2")] {
            let there = format!("until ip -n {name} -6 route get {at} | grep -q ^local; do sleep 0.01; done");
            run("timeout", &["20", "sh", "-c", &there])?;
        }
        Ok(())
    }

    /// Adds a rule of nftables at a host.
    fn rule(&self, host: usize, hook: &str, rule: &str) -> Result<(), String> {
        let chain = format!("add chain inet faults {hook} {{ type filter hook {hook} priority 0; }}");
        let text = format!("add table inet faults\n{chain}\nadd rule inet faults {hook} {rule}\n");
        run("ip", &["netns", "exec", &self.names[host], "nft", &text])
    }

    fn strandway(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.names[host])).arg(env!("CARGO_BIN_EXE_strandway"));
        command.args(arguments);
        command
    }

    fn listen(&self) -> Listening {
        let mut child = self.strandway(2, &["doctor", "--listen"]).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it prints text");
        assert_eq!(line, "listening on [::]:47933 0.0.0.0:47933; Ctrl-C ends\n");
        Listening(child, lines)
    }

    /// Examines the path over each family: exit status, report, and time.
    fn examine(&self) -> [(i32, Value, Duration); 2] {
        TO.map(|to| {
            let began = Instant::now();
            let output = self.strandway(0, &["doctor", "--to", to, "--json", "-"]).output().expect("it runs");
            let report = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
            (output.status.code().expect("not killed"), report, began.elapsed())
        })
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &["netns", "del", name]);
        }
    }
}

struct Listening(Child, BufReader<ChildStdout>);

impl Listening {
    /// Ends it, and returns the rest of what it has printed.
    fn end(mut self) -> String {
        let _ = self.0.kill();
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut self.1, &mut text);
        text
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Verdict and value of a finding, and its advice.
fn of<'a>(report: &'a Value, what: &str) -> (&'a str, &'a str, &'a str) {
    let all = report["paths"][0]["findings"].as_array().expect("a list");
    let one = all.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what}: {report:#}"));
    let text = |key: &str| one[key].as_str().expect("a text");
    (text("verdict"), text("value"), text("advice"))
}

/// The findings that are not good. This machine may be busy, so losses, order and rates may be among them.
fn amiss(report: &Value) -> Vec<&str> {
    let busy = ["loss there", "loss back", "order there", "order back", "rate there", "rate back"];
    let all = report["paths"][0]["findings"].as_array().expect("a list").iter();
    let bad = all.filter(|one| one["verdict"] != "good").filter_map(|one| one["what"].as_str());
    bad.filter(|what| !busy.contains(what)).collect()
}

#[test]
fn a_healthy_path_has_only_good_findings_over_both_families() {
    let Some(path) = Path::new(1_500, &[]) else { return };
    let listening = path.listen();
    for (status, report, took) in path.examine() {
        assert_eq!((status, amiss(&report)), (0, vec![]), "{report:#}");
        for way in ["there", "back"] {
            assert!(of(&report, &format!("packets {way}")).1.starts_with("up to 1500 bytes"), "{report:#}");
            assert_eq!(of(&report, &format!("ECN {way}")).1, "kept, marks too");
            assert_eq!(of(&report, &format!("DSCP {way}")).1, "kept (10, 46, 48)");
            assert!(of(&report, &format!("rate {way}")).1.starts_with("at least"));
        }
        assert!(of(&report, "round trip").1.contains("median"));
        // Usually three seconds.
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
    let told = listening.end();
    assert_eq!(told.matches(" examines the path to this host\n").count(), 2, "{told}");
    // No process listens now.
    for (status, report, _) in path.examine() {
        assert_eq!(status, 1);
        assert!(of(&report, "UDP there and back").1.ends_with("refuses: no program has UDP port 47933"), "{report:#}");
    }
}

#[test]
fn a_way_that_drops_udp_is_named_by_the_doctor_and_its_listener() {
    for (back, rule) in [(false, "iifname p1 meta l4proto udp drop"), (true, "oifname p1 meta l4proto udp drop")] {
        let Some(path) = Path::new(1_500, &[("forward", rule)]) else { return };
        let listening = path.listen();
        for ((status, report, took), to) in path.examine().into_iter().zip(["10.2.0.2", "[fd00:2::2]"]) {
            let (verdict, value, advice) = of(&report, "UDP there and back");
            assert_eq!((status, verdict), (1, "missing"));
            assert_eq!(value, format!("nothing came back from {to}:47933"));
            assert!(
                advice.contains("is `strandway doctor --listen` running there, and does a firewall let UDP port 47933")
            );
            // Usually two seconds.
            assert!(took < Duration::from_secs(20), "{took:?}");
        }
        let told = listening.end();
        assert_eq!(told.matches("hears no answers").count(), if back { 2 } else { 0 }, "{told}");
    }
}

#[test]
fn a_firewall_that_answers_is_named_with_its_address() {
    let rule = "meta l4proto udp reject with icmpx type admin-prohibited";
    let Some(path) = Path::new(1_500, &[("forward", rule)]) else { return };
    for ((status, report, _), router) in path.examine().into_iter().zip(["10.1.0.1", "fd00:1::1"]) {
        let value = of(&report, "UDP there and back").1;
        assert_eq!((status, value), (1, format!("{router} refuses: a firewall prohibits it").as_str()));
    }
}

#[test]
fn ecn_and_dscp_that_one_way_clears_are_found_there_and_not_back() {
    let rules = [
        ("forward", "iifname p1 ip ecn set not-ect"),
        ("forward", "iifname p1 ip6 ecn set not-ect"),
        ("forward", "oifname p1 ip dscp set 0"),
        ("forward", "oifname p1 ip6 dscp set 0"),
    ];
    let Some(path) = Path::new(1_500, &rules) else { return };
    let _listening = path.listen();
    for (status, report, _) in path.examine() {
        assert_eq!((status, amiss(&report)), (0, vec!["ECN there", "DSCP back"]), "{report:#}");
        assert_eq!(of(&report, "ECN there").1, "zeroed (bleached)");
        assert_eq!(of(&report, "DSCP back").1, "zeroed");
    }
}

#[test]
fn a_small_mtu_is_found_to_the_byte_and_a_black_hole_is_told_apart() {
    for hole in [false, true] {
        let drops =
            [("output", "icmp type destination-unreachable drop"), ("output", "icmpv6 type packet-too-big drop")];
        let Some(path) = Path::new(1_400, if hole { &drops } else { &[] }) else { return };
        let _listening = path.listen();
        for ((status, report, _), router) in path.examine().into_iter().zip(["10.1.0.1", "fd00:1::1"]) {
            let (verdict, value, advice) = of(&report, "packets there");
            assert_eq!((status, verdict), (0, "slow"), "{report:#}");
            assert!(value.starts_with("up to 1400 bytes; 1500 was tried; "), "{value}");
            assert!(advice.contains("--mtu 1400"), "{advice}");
            let says = if hole {
                "larger ones vanish without \"packet too big\" (a black hole)".to_string()
            } else {
                format!("\"packet too big\" from {router} says 1400")
            };
            assert!(value.ends_with(&says), "{value}");
            assert_eq!(amiss(&report), ["packets there"], "the way back carries what was asked for");
        }
    }
}

#[test]
fn losses_are_counted_in_their_direction() {
    let Some(path) = Path::new(1_500, &[("forward", "iifname p2 udp sport 47933 numgen inc mod 10 == 0 drop")]) else {
        return;
    };
    let _listening = path.listen();
    for (status, report, _) in path.examine() {
        let (verdict, value, _) = of(&report, "loss back");
        assert_eq!((status, verdict), (0, "slow"), "{report:#}");
        let lost: u32 = value.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        assert!((45..).contains(&lost), "a tenth of 500 or more: {value}");
        let there = of(&report, "loss there").1;
        let fewer: u32 = there.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        assert!(fewer < lost, "{there}; {value}");
    }
}

#[test]
fn a_firewall_that_passes_only_answers_is_found() {
    let Some(path) = Path::new(1_500, &[("forward", "iifname p2 meta l4proto udp udp sport != 47933 drop")]) else {
        return;
    };
    let _listening = path.listen();
    for (status, report, _) in path.examine() {
        assert_eq!(status, 0, "{report:#}");
        assert_eq!(of(&report, "other UDP ports back").1, "dropped");
    }
}

#[test]
fn options_of_the_doctor_that_exclude_each_other_are_refused() {
    for words in [&["doctor", "--to", "::1", "--listen"][..], &["doctor", "--to", "10.0.0.2:x"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_strandway")).args(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}
