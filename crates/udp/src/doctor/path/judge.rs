//! Findings from the measurements of a path, with a remedy each.

use super::message::Counts;
use super::probe_socket::Closed;
use super::sizes::Found;
use crate::address::shown;
use crate::doctor::{Finding, Verdict};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Losses and late packets up to this share are usual on a busy host.
const FEW: f64 = 0.002;

fn missing(what: &'static str, value: impl Into<String>, advice: String) -> Finding {
    Finding { what, value: value.into(), verdict: Verdict::Missing, advice }
}

fn slow(what: &'static str, value: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { what, value: value.into(), verdict: Verdict::Slow, advice: advice.into() }
}

pub(super) fn no_route(peer: &SocketAddr, error: &std::io::Error) -> Finding {
    let ip = peer.ip();
    let command = if ip.is_ipv4() { "ip" } else { "ip -6" };
    missing("UDP there and back", format!("no way to {ip}: {error}"), format!("see `{command} route get {ip}`"))
}

/// Nothing came back.
pub(super) fn closed(peer: &SocketAddr, why: &Closed) -> Finding {
    let port = peer.port();
    let by = |by: &Option<Ipv6Addr>| by.map_or("a host on the way".to_string(), |by| shown((by, 0)).ip().to_string());
    let start = "start `strandway doctor --listen` there";
    let (value, advice) = match why {
        Closed::Silent => (
            format!("nothing came back from {peer}"),
            format!(
                "is `strandway doctor --listen` running there, and does a firewall let UDP port {port} pass? If the listener prints \
                 that this host hears no answers, the way back is blocked; if it prints nothing, the way there is"
            ),
        ),
        Closed::Refused => (format!("{peer} refuses: no program has UDP port {port}"), start.to_string()),
        Closed::Prohibited(host) => (
            format!("{} refuses: a firewall prohibits it", by(host)),
            format!("let UDP port {port} pass there, both ways; then {start}"),
        ),
        Closed::Unreachable(host) => (
            format!("{} finds no way to {}", by(host), peer.ip()),
            format!("is the address right, and the host up? See `ip route get {}`", peer.ip()),
        ),
        Closed::NotSent(error) => (
            format!("this host's kernel sends nothing to {peer}: {}", std::io::Error::from(*error)),
            "let this host's own firewall pass outgoing UDP".to_string(),
        ),
    };
    missing("UDP there and back", value, advice)
}

pub(super) fn ended(peer: &SocketAddr) -> Finding {
    missing(
        "the rest",
        format!("{peer} refuses: the listener has ended"),
        "start it, and this doctor, again".to_string(),
    )
}

pub(super) fn both_ways(rtt: Duration) -> Finding {
    Finding::good("UDP there and back", format!("yes, first answer after {}", time(rtt)))
}

/// Datagrams between ports that were not used before.
pub(super) fn other_ports(there: Option<bool>, back: bool) -> [Finding; 2] {
    let advice = "a firewall passes only the doctor's port, or answers: let the ports of nodes pass (perf 47930, copy 47931, cast 47932, \
                  teams 47940 and 47950; process groups take any port)";
    let judged = |what, passes: Option<bool>| match passes {
        Some(true) => Finding::good(what, "pass"),
        Some(false) => slow(what, "dropped", advice),
        None => slow(what, "unknown: the answers were lost", "run the doctor again"),
    };
    [judged("other UDP ports there", there), judged("other UDP ports back", Some(back))]
}

/// The share of packets in percent.
fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn time(span: Duration) -> String {
    let us = span.as_nanos() as f64 / 1e3;
    if us < 10_000.0 { format!("{us:.0} us") } else { format!("{:.1} ms", us / 1e3) }
}

/// Judges what became of classes. `seen` has the class with which a datagram of each arrived there, and its answer
/// here; bit `i` of `there` says that one of class `i` arrived.
pub(super) fn marks(classes: &[u8], seen: &[[Option<u8>; 2]], there: u32) -> Vec<Finding> {
    let arrived = |i: usize, way: usize| match (way, seen[i][way]) {
        (_, Some(class)) => Became::Class(class),
        // Without an answer, only the count says that the request arrived; the class is then unknown.
        (0, None) if there >> i & 1 == 1 => Became::Unknown,
        (0, None) => Became::Dropped,
        (_, None) if there >> i & 1 == 1 => Became::Dropped,
        (_, None) => Became::Unknown,
    };
    let mut findings = Vec::new();
    for (way, [ecn, dscp]) in [["ECN there", "DSCP there"], ["ECN back", "DSCP back"]].into_iter().enumerate() {
        // The first four classes are ECN's.
        findings.push(ecn_of(ecn, &std::array::from_fn(|i| arrived(i, way))));
        let rest = classes.iter().enumerate().skip(4).map(|(i, &class)| (class, arrived(i, way)));
        findings.push(dscp_of(dscp, &rest.collect::<Vec<_>>()));
    }
    findings
}

/// The end of a datagram with a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    Class(u8),
    Dropped,
    /// It was not tried in this direction, or it is not known how it arrived.
    Unknown,
}

/// The four are not ECT, ECT(1), ECT(0) and CE.
fn ecn_of(what: &'static str, four: &[Became; 4]) -> Finding {
    let ecn = |became: Became| match became {
        Became::Class(class) => Some(class & 3),
        _ => None,
    };
    let [_, _, ect, ce] = four;
    let zeroed = "a router or firewall clears the bits, so congestion is seen only by losses and delay: let it keep them, or take a \
                  profile that needs no marks (`strandway explain`)";
    match (ecn(*ect), ecn(*ce)) {
        _ if *ect == Became::Dropped && *ce == Became::Dropped => slow(
            what,
            "datagrams with ECN bits are dropped",
            "a firewall drops them, and with them all data: let them pass",
        ),
        (Some(2), Some(3)) => Finding::good(what, "kept, marks too"),
        (Some(3), _) => {
            slow(what, "every packet arrives marked", "a port on the way marks without congestion: raise its threshold")
        }
        (Some(0), _) => slow(what, "zeroed (bleached)", zeroed),
        (Some(2), Some(_)) => slow(what, "ECT is kept, marks (CE) are erased", zeroed),
        (Some(2), None) => slow(what, "ECT is kept, marked packets are dropped", zeroed),
        (Some(_), _) => slow(what, "ECT(0) becomes ECT(1)", zeroed),
        (None, _) => slow(what, "unknown: the datagrams were lost", "run the doctor again"),
    }
}

fn dscp_of(what: &'static str, tried: &[(u8, Became)]) -> Finding {
    let changed: Vec<String> = tried
        .iter()
        .filter_map(|&(class, became)| match became {
            Became::Class(got) if got >> 2 == class >> 2 => None,
            Became::Class(got) => Some(format!("{} becomes {}", class >> 2, got >> 2)),
            Became::Dropped => Some(format!("{} is dropped", class >> 2)),
            Became::Unknown => None,
        })
        .collect();
    let names =
        |list: &[(u8, Became)]| list.iter().map(|(class, _)| (class >> 2).to_string()).collect::<Vec<_>>().join(", ");
    if tried.iter().all(|(_, became)| *became == Became::Unknown) {
        return slow(what, "unknown: the datagrams were lost", "run the doctor again");
    }
    if changed.is_empty() {
        return Finding::good(what, format!("kept ({})", names(tried)));
    }
    let zeroed = tried.iter().all(|(_, became)| matches!(became, Became::Class(class) if class >> 2 == 0));
    let value = if zeroed { "zeroed".to_string() } else { changed.join(", ") };
    let advice = "acknowledgements (DSCP 48) share a queue with data, and trimming does not work: let routers on the way trust DSCP";
    slow(what, value, advice)
}

/// `least`: the packets that every path must carry.
pub(super) fn packets(what: &'static str, found: &Found, least: usize) -> Finding {
    let Found { largest, tried, told, own } = *found;
    if largest == tried {
        return Finding::good(what, format!("up to {largest} bytes, as this host's interface or the way there"));
    }
    let value = format!("up to {largest} bytes; {tried} was tried");
    let remedy = format!("give `--mtu {largest}` on both sides, or raise the MTU on the way");
    let (value, advice) = match told {
        _ if own => (value + "; the sending host's interface takes no more", remedy),
        Some((mtu, by)) => {
            let by = by.map_or(String::new(), |by| format!(" from {by}"));
            (format!("{value}; \"packet too big\"{by} says {mtu}"), remedy)
        }
        None => (
            value + "; larger ones vanish without \"packet too big\" (a black hole)",
            format!("TCP hangs there too: let firewalls pass ICMP \"packet too big\"; {remedy}"),
        ),
    };
    let small = if largest < least { format!("; every path must carry {least}") } else { String::new() };
    slow(what, value + &small, advice)
}

/// `late`: answers that arrived behind later ones.
pub(super) fn train(sent: u32, heard: u32, late: u32, rtts: &[Duration], counts: Option<&Counts>) -> Vec<Finding> {
    let Some(counts) = counts else {
        let lost = 1.0 - f64::from(heard) / f64::from(sent.max(1));
        return vec![slow(
            "loss there",
            format!("{} both ways together", percent(lost)),
            "the counters were lost: run the doctor again",
        )];
    };
    let share = |part: u32, of: u32| f64::from(part) / f64::from(of.max(1));
    let loss = |what, lost: u32, of: u32| {
        let advice = "cables, full queues, or a host that is too busy: `ip -s link`, `ethtool -S`, `nstat -az UdpRcvbufErrors` on both";
        let value = format!("{} of {of} packets ({})", lost, percent(share(lost, of)));
        if share(lost, of) <= FEW { Finding::good(what, value) } else { slow(what, value, advice) }
    };
    let order = |what, late: u32, of: u32| {
        let advice = "a link or host spreads one flow over several ways: RoCEv2 and TCP slow down; `uec`, `mrc` and `strack` do not mind";
        let value = format!("{late} of {of} packets late ({})", percent(share(late, of)));
        if share(late, of) <= FEW { Finding::good(what, value) } else { slow(what, value, advice) }
    };
    let at = |share: f64| rtts.get((rtts.len() as f64 * share) as usize).copied().unwrap_or_default();
    let [least, middle, most] = [0.0, 0.5, 0.99].map(|share| time(at(share)));
    let answered = counts.answered.min(counts.received);
    vec![
        loss("loss there", sent.saturating_sub(counts.received), sent),
        loss("loss back", answered.saturating_sub(heard), answered),
        order("order there", counts.late, counts.received),
        order("order back", late, heard),
        Finding::good("round trip", format!("{middle} median, {least} least, {most} p99")),
    ]
}

/// Rates in Gb/s of packets with this payload.
pub(super) fn rate(there: f64, back: f64, payload: usize) -> [Finding; 2] {
    let shown = |gbps: f64| if gbps < 1.0 { format!("{:.0} Mb/s", gbps * 1e3) } else { format!("{gbps:.2} Gb/s") };
    let value = |gbps| format!("at least {} (echoes of {payload} bytes, one thread)", shown(gbps));
    [("rate there", there), ("rate back", back)].map(|(what, gbps)| {
        let advice = "a slow link on the way, losses, or busy hosts; `strandway perf` measures what nodes reach";
        if gbps >= 0.1 { Finding::good(what, value(gbps)) } else { slow(what, value(gbps), advice) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: [u8; 7] = super::super::CLASSES;

    fn of<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.what == what).unwrap_or_else(|| panic!("{what}: {findings:?}"))
    }

    /// Findings if classes become these there and back; `None`: dropped.
    fn ecn_findings(there: impl Fn(u8) -> Option<u8>, back: impl Fn(u8) -> Option<u8>) -> Vec<Finding> {
        let seen = CLASSES
            .map(|class| there(class).map_or([None; 2], |got| back(class).map_or([None; 2], |b| [Some(got), Some(b)])));
        let arrived =
            (0..).zip(CLASSES).filter(|(_, class)| there(*class).is_some()).fold(0, |all, (i, _)| all | 1 << i);
        marks(&CLASSES, &seen, arrived)
    }

    #[test]
    fn ecn_and_dscp_are_judged_each_way_by_itself() {
        let findings = ecn_findings(Some, Some);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Good), "{findings:?}");
        let findings = ecn_findings(|class| Some(class & !3), Some);
        assert_eq!(of(&findings, "ECN there").value, "zeroed (bleached)");
        assert_eq!(of(&findings, "ECN back").verdict, Verdict::Good);
        let findings = ecn_findings(Some, |class| Some(class & 3));
        assert_eq!(
            (of(&findings, "DSCP there").verdict, of(&findings, "DSCP back").value.as_str()),
            (Verdict::Good, "zeroed")
        );
        let findings = ecn_findings(|class| (class & 3 == 0).then_some(class), Some);
        assert_eq!(of(&findings, "ECN there").value, "datagrams with ECN bits are dropped");
        let findings = ecn_findings(Some, |class| (class & 3 == 0).then_some(class));
        assert_eq!(of(&findings, "ECN back").value, "datagrams with ECN bits are dropped");
        let findings =
            ecn_findings(|class| Some(if class & 3 == 3 { class & !1 } else { class }), |class| Some(class | 3));
        assert_eq!(of(&findings, "ECN there").value, "ECT is kept, marks (CE) are erased");
        assert_eq!(of(&findings, "ECN back").value, "every packet arrives marked");
        let findings =
            ecn_findings(|class| (class != 46 << 2).then_some(if class == 48 << 2 { 0 } else { class }), Some);
        assert_eq!(of(&findings, "DSCP there").value, "46 is dropped, 48 becomes 0");
        for finding in ecn_findings(|_| None, |_| None) {
            assert_eq!(finding.verdict, Verdict::Slow, "{finding:?}");
        }
    }

    #[test]
    fn every_bad_finding_has_a_remedy_in_one_line() {
        let peer = "10.0.0.2:47933".parse().expect("an address");
        let by = Some(std::net::Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped());
        let mut all = vec![no_route(&peer, &std::io::Error::from(std::io::ErrorKind::NetworkUnreachable))];
        for why in [
            Closed::Silent,
            Closed::Refused,
            Closed::Prohibited(by),
            Closed::Unreachable(None),
            Closed::NotSent(nix::errno::Errno::EPERM),
        ] {
            all.push(closed(&peer, &why));
        }
        assert!(
            all[1].value.contains("nothing came back from 10.0.0.2:47933") && all[1].advice.contains("UDP port 47933")
        );
        assert!(all[3].value.starts_with("10.0.0.9 refuses"), "{:?}", all[3]);
        let found = Found { largest: 1_400, tried: 1_500, told: None, own: false };
        let told = Found { told: Some((1_400, Some([10, 0, 0, 9].into()))), ..found };
        all.extend([found, told, Found { own: true, ..found }].map(|found| packets("packets there", &found, 576)));
        let holes = ["(a black hole)", "\"packet too big\" from 10.0.0.9 says 1400", "interface takes no more"];
        for (finding, says) in all[6..].iter().zip(holes) {
            assert!(finding.value.contains(says) && finding.advice.contains("--mtu 1400"), "{finding:?}");
        }
        let counts = Counts { received: 90, answered: 90, late: 9, ..Counts::default() };
        let rtts = [Duration::from_micros(100); 80];
        let train = train(100, 80, 0, &rtts, Some(&counts));
        assert_eq!(of(&train, "loss there").value, "10 of 100 packets (10.00 %)");
        assert_eq!(of(&train, "loss back").value, "10 of 90 packets (11.11 %)");
        assert_eq!(
            (of(&train, "order there").verdict, of(&train, "order back").verdict),
            (Verdict::Slow, Verdict::Good)
        );
        all.extend(train);
        all.extend(other_ports(Some(false), false));
        all.extend(rate(0.01, 5.0, 1_472));
        for finding in all {
            assert_eq!(finding.advice.is_empty(), finding.verdict == Verdict::Good, "{finding:?}");
            assert!(!finding.advice.contains('\n') && !finding.value.contains('\n'), "{finding:?}");
        }
    }
}
