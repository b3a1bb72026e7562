//! Busy polling: a thread that waits for packets asks the card itself for a while (NAPI), instead of sleeping until an
//! interrupt. It is said only where it helps: on a machine with a card and with cores to spare.

use super::machine::Machine;
use strandway_udp::doctor::{Finding, Verdict};

/// The least number of cores of which one may spin; ours: a sender, its interrupts and a receiver are busy already.
const CORES_MIN: usize = 4;
/// Cores that are free by the load of the last minute; ours: one to spin, and one to spare.
const FREE_MIN: f64 = 2.0;
/// The time to ask the card before sleeping, in microseconds: Linux, admin-guide/sysctl/net.rst, `busy_read`.
const POLL_US: i64 = 50;
/// The longest that a packet waits for other packets, in nanoseconds; ours: a round trip in a rack, as for interrupt
/// moderation.
const FLUSH_NS: i64 = 20_000;
/// Empty polls before interrupts are on again; ours.
const DEFER: i64 = 2;

/// A finding about the machine, and one for each of its cards that needs it.
pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let cards = machine.cards();
    let (cores, load) = (machine.allowed().len(), machine.load().unwrap_or(0.0));
    let core = "proc/sys/net/core";
    let of = |name| machine.number(&format!("{core}/{name}"));
    // A kernel without busy polling has no such files, nor has another network namespace than the host's.
    let (Some(read), Some(poll)) = (of("busy_read"), of("busy_poll")) else { return Vec::new() };
    let polls = read > 0 && poll > 0;
    if cards.is_empty() || !polls && (cores < CORES_MIN || load > cores as f64 - FREE_MIN) {
        return Vec::new();
    }
    let mut findings = vec![machine_wide(read, poll)];
    findings.extend(cards.iter().filter_map(|name| {
        let of = |file| machine.number(&format!("sys/class/net/{name}/{file}"));
        Some(interrupts(name, of("napi_defer_hard_irqs")?, of("gro_flush_timeout")?, polls))
    }));
    findings
}

/// Both are needed: `busy_read` marks sockets as ones that are polled, `busy_poll` is the time in `poll`, in which nodes
/// wait.
fn machine_wide(read: i64, poll: i64) -> Finding {
    let value = format!("net.core.busy_read {read} us, busy_poll {poll} us");
    let (verdict, advice) = match read > 0 && poll > 0 {
        true => (Verdict::Good, String::new()),
        false => (
            Verdict::Slow,
            format!(
                "a waiting thread sleeps until an interrupt and wakes late: `sysctl -w net.core.busy_read={POLL_US} net.core.busy_poll={POLL_US}`. \
                 Cost: every wait, of every program with sockets, first keeps its core busy for up to {POLL_US} us; more power. Not worth it for bulk transfers alone"
            ),
        ),
    };
    Finding { what: "busy polling", value, verdict, advice }
}

/// `defer`: polls without packets before interrupts are on again; `flush`: nanoseconds between such polls, and the time
/// that GRO may hold packets.
fn interrupts(name: &str, defer: i64, flush: i64, polls: bool) -> Finding {
    let value = format!("{name}: napi_defer_hard_irqs {defer}, gro_flush_timeout {flush} ns");
    let set = |defer: i64, flush: i64| {
        let folder = format!("/sys/class/net/{name}");
        format!("`echo {defer} > {folder}/napi_defer_hard_irqs; echo {flush} > {folder}/gro_flush_timeout`")
    };
    let advice = if flush > FLUSH_NS {
        let (defer, flush) = if polls { (DEFER, FLUSH_NS) } else { (0, 0) };
        format!("packets wait for others that long where no thread polls: {}", set(defer, flush))
    } else if polls && (defer == 0 || flush == 0) {
        format!(
            "interrupts still disturb the thread that polls: {}. Cost: a packet that no thread polls for waits up to {} us",
            set(DEFER, FLUSH_NS),
            FLUSH_NS / 1_000
        )
    } else {
        String::new()
    };
    let verdict = if advice.is_empty() { Verdict::Good } else { Verdict::Slow };
    Finding { what: "deferred interrupts", value, verdict, advice }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    /// Findings on a machine with a card.
    fn found(cores: &str, load: &str, polling: [&str; 2], card: [&str; 2]) -> Vec<Finding> {
        let status = format!("Cpus_allowed_list:\t{cores}");
        let files = [
            ("sys/class/net/p0/type", "1"),
            ("sys/class/net/p0/operstate", "up"),
            ("sys/class/net/p0/device/driver/module", ""),
            ("sys/class/net/p0/napi_defer_hard_irqs", card[0]),
            ("sys/class/net/p0/gro_flush_timeout", card[1]),
            ("proc/self/status", &status),
            ("proc/loadavg", load),
            ("proc/sys/net/core/busy_read", polling[0]),
            ("proc/sys/net/core/busy_poll", polling[1]),
        ];
        findings(&machine(&files).1)
    }

    fn advice(findings: &[Finding]) -> Vec<Option<&str>> {
        findings.iter().map(|finding| finding.advice.split('`').nth(1)).collect()
    }

    #[test]
    fn a_machine_with_a_card_and_free_cores_is_told_how_to_poll_and_at_what_cost() {
        let off = found("0-7", "1.50 1.0 1.0 3/100 999", ["0", "0"], ["0", "0"]);
        assert_eq!(advice(&off), [Some("sysctl -w net.core.busy_read=50 net.core.busy_poll=50"), None]);
        assert!(off[0].advice.contains("Cost: "), "{off:?}");
        // One of the two settings does nothing.
        assert_eq!(found("0-7", "0.0", ["50", "0"], ["0", "0"])[0].verdict, Verdict::Slow);
    }

    #[test]
    fn a_card_beneath_a_thread_that_polls_should_defer_its_interrupts() {
        let on = |card| advice_of(&found("0-7", "0.0", ["50", "50"], card));
        let command =
            "echo 2 > /sys/class/net/p0/napi_defer_hard_irqs; echo 20000 > /sys/class/net/p0/gro_flush_timeout";
        assert_eq!(on(["0", "0"]), [None, Some(command.to_string())]);
        assert_eq!(on(["2", "200000"]), [None, Some(command.to_string())]);
        assert_eq!(on(["2", "20000"]), [None, None]);
    }

    fn advice_of(findings: &[Finding]) -> Vec<Option<String>> {
        advice(findings).into_iter().map(|one| one.map(String::from)).collect()
    }

    #[test]
    fn packets_that_are_held_without_any_polling_are_named() {
        let held = found("0-7", "0.0", ["0", "0"], ["0", "200000"]);
        let command = "echo 0 > /sys/class/net/p0/napi_defer_hard_irqs; echo 0 > /sys/class/net/p0/gro_flush_timeout";
        assert_eq!(advice(&held)[1], Some(command));
    }

    #[test]
    fn nothing_is_said_where_no_core_is_free_or_no_card_is_there() {
        assert_eq!(found("0-1", "0.0", ["0", "0"], ["0", "0"]), []);
        assert_eq!(found("0-7", "7.2", ["0", "0"], ["0", "0"]), []);
        let files = [
            ("sys/class/net/veth0/type", "1"),
            ("sys/class/net/veth0/operstate", "up"),
            ("proc/self/status", "Cpus_allowed_list: 0-7"),
            ("proc/sys/net/core/busy_read", "0"),
            ("proc/sys/net/core/busy_poll", "0"),
        ];
        assert_eq!(findings(&machine(&files).1), []);
    }
}
