//! The network interfaces that nodes could use: offloads, rings, interrupt moderation and queues.

use super::ethtool::{Ethtool, Question, names, number};
use super::{Finding, Verdict, read};
use nix::ifaddrs::getifaddrs;
use std::fs;
use std::path::Path;

/// The most interfaces that are reported; ours.
const INTERFACES_MAX: usize = 16;
/// Descriptors of a receive ring that hold one window of the default profile while its core is away for a moment; ours.
const RING_MIN: u32 = 1_024;
/// A round trip between two hosts of a rack takes about this long, in microseconds. Moderation should not multiply it.
const MODERATION_MAX_US: u32 = 20;

/// The findings about every interface that is up and could carry a node's packets.
pub(super) fn interfaces(cores: usize) -> Vec<Finding> {
    let Some(ethtool) = Ethtool::open() else { return Vec::new() };
    let mut findings = Vec::new();
    for name in candidates() {
        let ask = |question| ethtool.ask(question, &name);
        findings.extend(ask(Question::Features).map(|answer| {
            // ETHTOOL_A_FEATURES_HW and _ACTIVE.
            offloads(&name, &names(&answer, 2), &names(&answer, 4))
        }));
        // ETHTOOL_A_RINGS_RX_MAX and _RX.
        findings.extend(ask(Question::Rings).and_then(|a| Some(rings(&name, number(&a, 6)?, number(&a, 2)?))));
        // ETHTOOL_A_COALESCE_RX_USECS and _USE_ADAPTIVE_RX.
        findings.extend(
            ask(Question::Coalescing).and_then(|a| Some(moderation(&name, number(&a, 2)?, number(&a, 11) == Some(1)))),
        );
        findings.extend(ask(Question::Channels).and_then(|answer| {
            let of = |combined, receiving| {
                number(&answer, combined).filter(|&n| n > 0).or_else(|| number(&answer, receiving))
            };
            // ETHTOOL_A_CHANNELS_COMBINED_COUNT, _RX_COUNT, _COMBINED_MAX and _RX_MAX.
            Some(queues(&name, of(9, 6)?, of(5, 2)?, cores))
        }));
    }
    findings
}

/// Ethernet interfaces that are up: those with hardware first, then others that have an address beyond their link.
fn candidates() -> Vec<String> {
    let folder = Path::new("/sys/class/net");
    let mut all: Vec<String> = fs::read_dir(folder)
        .map(|entries| entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    all.sort();
    let of = |name: &str, file: &str| read(&format!("/sys/class/net/{name}/{file}"));
    // ARPHRD_ETHER; loopback has another type.
    all.retain(|name| of(name, "type").as_deref() == Some("1") && of(name, "operstate").as_deref() == Some("up"));
    let addressed: Vec<String> = getifaddrs().map_or(Vec::new(), |each| {
        each.filter(|one| {
            one.address.as_ref().is_some_and(|address| match address.as_sockaddr_in6() {
                Some(address) => !address.ip().is_unicast_link_local(),
                None => address.as_sockaddr_in().is_some_and(|address| !address.ip().is_link_local()),
            })
        })
        .map(|one| one.interface_name)
        .collect()
    });
    let has_hardware = |name: &String| folder.join(name).join("device").exists();
    let (mut kept, others): (Vec<String>, Vec<String>) = all.into_iter().partition(has_hardware);
    kept.extend(others.into_iter().filter(|name| addressed.contains(name)));
    kept.truncate(INTERFACES_MAX);
    kept
}

fn offloads(name: &str, possible: &[String], active: &[String]) -> Finding {
    const WHAT: &str = "offloads";
    let has = |set: &[String], names: &[&str]| set.iter().any(|one| names.contains(&one.as_str()));
    let checksums = ["tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-ipv4"];
    let wrong = [
        (!has(active, &checksums), "no transmit checksum", "without it the kernel sends packets one by one", "tx on"),
        (
            !has(active, &["tx-udp-segmentation"]) && has(possible, &["tx-udp-segmentation"]),
            "UDP segmentation off",
            "the kernel cuts batches instead of the card",
            "tx-udp-segmentation on",
        ),
        (!has(active, &["rx-gro"]), "GRO off", "packets are received one by one", "gro on"),
        (
            !has(active, &["rx-checksum"]) && has(possible, &["rx-checksum"]),
            "receive checksum off",
            "the kernel adds up every packet, and GRO cannot join them",
            "rx on",
        ),
    ];
    let wrong: Vec<_> = wrong.iter().filter(|(is_wrong, ..)| *is_wrong).collect();
    if wrong.is_empty() {
        let by = if has(active, &["tx-udp-segmentation"]) { "the card" } else { "the kernel" };
        return Finding::good(WHAT, format!("{name}: checksums, GRO; batches are cut by {by}"));
    }
    let parts = |part: fn(&(bool, &'static str, &'static str, &'static str)) -> &'static str, between: &str| {
        wrong.iter().map(|one| part(one)).collect::<Vec<_>>().join(between)
    };
    let value = format!("{name}: {}", parts(|one| one.1, ", "));
    let advice = format!("{}: `ethtool -K {name} {}`", parts(|one| one.2, "; "), parts(|one| one.3, " "));
    Finding::judged(WHAT, value, false, Verdict::Slow, &advice)
}

fn rings(name: &str, now: u32, most: u32) -> Finding {
    let wanted = RING_MIN.min(most);
    let advice = format!("bursts are lost while the receiving core is busy: `ethtool -G {name} rx {wanted}`");
    let value = format!("{name}: {now} of at most {most} descriptors");
    Finding::judged("receive ring", value, now >= wanted, Verdict::Slow, &advice)
}

fn moderation(name: &str, microseconds: u32, adaptive: bool) -> Finding {
    let advice = format!(
        "every round trip waits that long on each side: `ethtool -C {name} adaptive-rx on`, or `adaptive-rx off rx-usecs 8`"
    );
    let value = format!("{name}: {microseconds} us{}", if adaptive { ", adaptive" } else { "" });
    let fine = adaptive || microseconds <= MODERATION_MAX_US;
    Finding::judged("interrupt moderation", value, fine, Verdict::Slow, &advice)
}

fn queues(name: &str, now: u32, most: u32, cores: usize) -> Finding {
    let wanted = most.min(cores as u32);
    let advice = format!(
        "one core handles the packets of several connections or shards: `ethtool -L {name} combined {wanted}` (or `rx {wanted}`), and \
         `ethtool -N {name} rx-flow-hash udp6 sdfn` (or `udp4`) so that ports count"
    );
    let value = format!("{name}: {now} of at most {most}, {cores} cores");
    Finding::judged("receive queues (RSS)", value, now >= wanted, Verdict::Slow, &advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn offloads_that_are_off_are_named_with_the_command_that_switches_them_on() {
        let all = strings(&["tx-checksum-ip-generic", "tx-udp-segmentation", "rx-gro", "rx-checksum"]);
        assert_eq!(offloads("p0", &all, &all).value, "p0: checksums, GRO; batches are cut by the card");
        let by_kernel =
            offloads("p0", &strings(&["rx-checksum"]), &strings(&["tx-checksum-ipv6", "rx-gro", "rx-checksum"]));
        assert_eq!(by_kernel.verdict, Verdict::Good, "a card that cannot cut needs no advice: {by_kernel:?}");
        let off = offloads("p0", &all, &strings(&["tx-checksum-ip-generic"]));
        assert_eq!(off.value, "p0: UDP segmentation off, GRO off, receive checksum off");
        assert!(off.advice.ends_with("`ethtool -K p0 tx-udp-segmentation on gro on rx on`"), "{}", off.advice);
        let none = offloads("p0", &[], &strings(&["rx-gro"]));
        assert!(none.advice.ends_with("`ethtool -K p0 tx on`"), "{}", none.advice);
    }

    #[test]
    fn rings_moderation_and_queues_are_judged_by_what_the_card_can_do() {
        assert_eq!(rings("p0", 512, 8_192).advice.split('`').nth(1), Some("ethtool -G p0 rx 1024"));
        assert_eq!(rings("p0", 256, 256).verdict, Verdict::Good);
        assert_eq!(moderation("p0", 100, true).value, "p0: 100 us, adaptive");
        assert_eq!(moderation("p0", 100, false).verdict, Verdict::Slow);
        assert_eq!(moderation("p0", 8, false).verdict, Verdict::Good);
        assert_eq!(queues("p0", 1, 8, 4).advice.split('`').nth(1), Some("ethtool -L p0 combined 4"));
        assert_eq!(queues("p0", 2, 2, 64).verdict, Verdict::Good);
    }

    #[test]
    fn an_examination_of_interfaces_says_what_to_change_or_nothing() {
        for finding in interfaces(2) {
            assert_eq!(finding.advice.is_empty(), finding.verdict == Verdict::Good, "{finding:?}");
        }
    }
}
