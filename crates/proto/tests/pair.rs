//! Two endpoints and one bad wire: what is lost, late, marked, trimmed or doubled is repaired as each protocol says.
//!
//! A checker looks at both endpoints after every step (see `pair_support`); what is asserted here comes on top of it.

use super::pair_support::{self, ACK, DELAY, PACKET, RTT, World, check};
use std::collections::BTreeMap;
use strandway_proto::congestion::{CongestionConfig, FixedConfig};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::reliability::{GoBackNConfig, SelectiveRepeatConfig};
use strandway_proto::{PathId, Profile, Span, Time};

/// When packet `n` of a burst at line rate leaves.
fn nth(n: u64) -> Time {
    Time(n * PACKET.0)
}

fn fixed(profile: &mut Profile, window_bdp: f64) {
    profile.congestion = CongestionConfig::Fixed(FixedConfig { window_bdp });
}

// ---- RoCEv2: go-back-N
// -------------------------------------------------------------------------------------------------

#[test]
fn go_back_n_acknowledges_every_16_kib_and_the_last_packet() {
    let outcome = check(&World::new("rocev2"), "", "sent 64, again 0, acks 16, nacks 0, duplicates 0, timeouts 0");
    assert_eq!(outcome.finished, nth(63) + RTT);
    check(&World::new("rocev2").packets(66), "", "sent 66, acks 17");
}

#[test]
fn go_back_n_starts_again_from_the_hole_after_one_nack() {
    let world = World::new("rocev2");
    for (script, expect) in [
        // All 64 packets have left when the NACK comes: 3 to 63 leave again.
        ("drop 3", "again 61, nacks 1, timeouts 0, duplicates 0, delivered 64"),
        ("drop 3; drop 9..20", "again 61, nacks 1, timeouts 0, duplicates 0"),
        // A second hole that only opens in the second round has its own NACK.
        ("drop 3; drop 40 x2", "again 61..99, nacks 2, timeouts 0"),
        ("drop 0", "again 64, nacks 1, timeouts 0"),
        // A late packet fills its own hole, and those that were dropped after it open the next one.
        ("delay 5 by 1", "again 59..118, nacks 2, timeouts 0"),
        // One hole opens twice: the receiver has said it once, so only the timeout helps.
        ("drop 3 x2", "again 122, nacks 1, timeouts 1"),
        // Nothing was acknowledged before the hole either: the first three arrive twice.
        ("drop 3; drop nack 0", "again 64, nacks 0, timeouts 1, duplicates 3"),
    ] {
        check(&world, script, expect);
    }
    let mut trimming = world;
    trimming.environment.trimming = true;
    check(&trimming, "trim 3", "again 61, nacks 1, timeouts 0, trimmed 1");
}

#[test]
fn go_back_n_acknowledges_duplicates_at_once() {
    check(&World::new("rocev2"), "dup 5", "again 0, duplicates 1, acks 17, timeouts 0");
    check(&World::new("rocev2"), "dup 5..9", "again 0, duplicates 5, acks 20, timeouts 0");
}

#[test]
fn go_back_n_waits_for_its_timeout_when_the_tail_is_lost() {
    let rto = GoBackNConfig::default().rto;
    // The last acknowledgement covered packets up to 59.
    let last_news = nth(59) + RTT;
    let outcome = check(&World::new("rocev2"), "drop 63", "again 4, nacks 0, timeouts 1, duplicates 3");
    assert_eq!(outcome.left(60, 1), last_news + rto);
    assert_eq!(outcome.finished, last_news + rto + PACKET * 3 + RTT);
    // The last acknowledgement is lost: all four that it covered arrive twice.
    let outcome = check(&World::new("rocev2"), "drop ack 15", "again 4, timeouts 1, duplicates 4");
    // The first duplicate is acknowledged at once, with all packets that have arrived.
    assert_eq!(outcome.finished, last_news + rto + RTT);
}

#[test]
fn marks_come_back_as_one_cnp_in_50_us_and_slow_the_sender_down() {
    let world = World::new("rocev2").packets(1500);
    let clean = check(&world, "", "cnps 0");
    let marked = check(&world, "mark 7..9", "cnps 1, marked 3, again 0");
    assert!(marked.finished > clean.finished + Span::from_us(10), "{} against {}", marked.finished, clean.finished);
    // Marked all the way: 125 us and more at half the rate and less hold at least four, and no two within 50 us.
    let outcome = check(&world, "mark 0..", "cnps 4.., again 0");
    let cnps: Vec<Time> = outcome.sent.iter().filter(|s| s.packet.header == Header::Cnp).map(|s| s.at).collect();
    assert!(cnps.windows(2).all(|w| w[1] - w[0] >= Span::from_us(50)), "{cnps:?}");
}

// ---- RoCEv2 with selective repeat: IRN
// -----------------------------------------------------------------------------------

#[test]
fn irn_sends_each_hole_again_once() {
    let world = World::new("rocev2_sr");
    for (script, expect) in [
        ("", "again 0, timeouts 0, sent 64"),
        ("drop 3", "again 1, timeouts 0, duplicates 0, nacks 0"),
        ("drop 0", "again 1, timeouts 0, duplicates 0"),
        ("drop 3..6; drop 20; drop 40..41", "again 7, timeouts 0, duplicates 0"),
        ("drop 62", "again 1, timeouts 0"),
        // Every packet ahead of a hole is acknowledged, so that a lost acknowledgement costs nothing.
        ("drop 3; drop ack 1..5", "again 1, timeouts 0"),
        ("dup 5", "again 0, duplicates 1"),
        // A late packet counts as lost, as it may on a single path.
        ("delay 5 by 1", "again 1, duplicates 1, timeouts 0"),
    ] {
        check(&world, script, expect);
    }
}

#[test]
fn irn_has_a_short_timeout_for_few_packets_in_flight_and_a_long_one_for_many() {
    let config = SelectiveRepeatConfig::irn();
    // The retransmission is lost too, and only the timeout finds it: one packet in flight, the short one.
    let outcome = check(&World::new("rocev2_sr"), "drop 3 x2", "again 2, timeouts 1");
    assert_eq!(outcome.left(3, 2), outcome.left(3, 1) + config.rto_low);
    // Packets 61 and 62 have arrived, but no acknowledgement has reported them.
    let outcome = check(&World::new("rocev2_sr"), "drop 63", "again 3, timeouts 1..3, duplicates 2");
    assert_eq!(outcome.finished, nth(63) + config.rto_low + RTT);
    let outcome = check(&World::new("rocev2_sr").packets(3), "drop 0..2", "again 3, timeouts 1..3");
    assert_eq!(outcome.left(0, 1), Time::ZERO + config.rto_low);
    let outcome = check(&World::new("rocev2_sr").packets(10), "drop 0..9", "again 10, timeouts 1..10");
    assert_eq!(outcome.left(0, 1), Time::ZERO + config.rto_high);
}

#[test]
fn irn_uses_its_short_timeout_for_the_tail_of_a_long_flow_too() {
    // Long enough that the timer has fired in between, with a full window in flight.
    let last = 1999;
    let outcome = check(&World::new("rocev2_sr").packets(2000), "drop 1999", "again 1..4, timeouts 1..4");
    let waited = outcome.left(last, 1) - outcome.left(last, 0);
    let low = SelectiveRepeatConfig::irn().rto_low;
    assert!(waited >= low && waited <= low + RTT, "the tail waited {waited}");
}

#[test]
fn irn_keeps_at_most_one_bandwidth_delay_product_in_flight() {
    let world = World::new("rocev2_sr").packets(500);
    let outcome = check(&world, "", "again 0");
    let bdp = world.environment.bdp().0;
    // Before the first acknowledgement comes back, one product (and the rest of a packet) has left.
    let early: u64 = outcome.data().filter(|(s, _)| s.at < nth(0) + RTT).map(|(s, _)| u64::from(s.packet.size)).sum();
    assert!(early >= bdp - 4160 && early < bdp + 4160, "{early} of {bdp}");
}

// ---- UEC with trimming
// ---------------------------------------------------------------------------------------------------

/// 15 us and six times the drain time of a queue (baselines sheet, section 7.3).
fn uec_rto(world: &World) -> Span {
    Span::from_us(15) + world.environment.rate.time_for(world.environment.queue) * 6
}

#[test]
fn uec_repairs_what_is_trimmed_by_nack_and_what_is_lost_by_timeout() {
    let world = World::new("uec");
    for (script, expect) in [
        ("", "sent 64, again 0, acks 17, nacks 0, timeouts 0, probes 0"),
        ("trim 12", "again 1, nacks 1, trimmed 1, timeouts 0, duplicates 0"),
        ("trim 0; trim 5..9; trim 63", "again 7, nacks 7, trimmed 7, timeouts 0, duplicates 0"),
        ("trim 12 x3", "again 3, nacks 3, timeouts 0, duplicates 0"),
        ("trim 0..63", "again 64, nacks 64, timeouts 0, duplicates 0"),
        // The acknowledgement of the last packet does not report the one before: with a hole before both, that one
        // times out too.
        ("drop 12", "again 2, nacks 0, timeouts 2, probes 0, duplicates 1"),
        ("trim 12; drop nack 0", "again 2, nacks 0, timeouts 2"),
        // Two NACKs ask for two copies: the first has left when the second is read.
        ("trim 12; dup nack 0", "again 2, nacks 2, timeouts 0, duplicates 1"),
        ("drop ack 3..5", "again 0, timeouts 0"),
        ("delay 5..8 by 2", "again 0, timeouts 0, duplicates 0, nacks 0"),
    ] {
        check(&world, script, expect);
    }
    let rto = uec_rto(&world);
    assert_eq!(rto, Span(15_000_000 + 6 * world.environment.queue.0 * 20));
    for lost in [12, 63] {
        let outcome = check(&world, &format!("drop {lost}"), "");
        assert_eq!(
            outcome.left(lost, 1),
            nth(u64::from(lost)) + rto,
            "the timeout runs from the packet's own departure"
        );
        assert_eq!(outcome.finished, nth(u64::from(lost)) + rto + RTT);
    }
}

#[test]
fn uec_asks_for_an_acknowledgement_at_the_end_when_the_window_is_full_and_with_every_repair() {
    let world = World::new("uec").packets(64);
    let asks = |s: &pair_support::Sent| s.packet.flags.has(Flags::ACK_REQUEST);
    let outcome = check(&world, "trim 12; drop 20", "again 2");
    for (sent, data) in outcome.data() {
        let again = sent.packet.flags.has(Flags::RETRANSMITTED);
        assert_eq!(asks(sent), again || data.psn.get() == 63, "psn {}", data.psn.get());
    }
    // A window of ten packets and a bit: the tenth fills it, and so does every one of those that leave one by one
    // later.
    let packet = world.environment.packet.0;
    let window = 10.5 * packet as f64 / world.environment.bdp().0 as f64;
    let outcome = check(&world.with(|p| fixed(p, window)), "", "again 0");
    let first: Vec<bool> = outcome.data().take(10).map(|(s, _)| asks(s)).collect();
    assert_eq!(first, [false, false, false, false, false, false, false, false, false, true]);
}

#[test]
fn uec_acknowledges_at_once_on_the_first_packet_a_mark_a_duplicate_a_request_and_every_16_kib() {
    let acked = |script: &str, expect: &str| -> Vec<u32> {
        check(&World::new("uec").packets(14), script, expect).acks().map(|(_, a)| { a.acked }.get()).collect()
    };
    // The first, then after four times 4 KiB, and the last.
    assert_eq!(acked("", "acks 5"), [0, 4, 8, 12, 13]);
    assert_eq!(acked("mark 6", "marked_acks 1"), [0, 4, 6, 10, 13]);
    assert_eq!(acked("mark 5..7", "marked_acks 3"), [0, 4, 5, 6, 7, 11, 13]);
    assert_eq!(acked("dup 6", "duplicates 1"), [0, 4, 6, 11, 13]);
    // A trimmed packet is not acknowledged; its retransmission is.
    assert_eq!(acked("trim 2", "nacks 1"), [0, 5, 9, 13, 2]);
    // Packet 13 requests an acknowledgement while 12 is missing; when 12 arrives, no packet is held any more, and this
    // is acknowledged at once.
    assert_eq!(acked("delay 12 by 1", "again 0"), [0, 4, 8, 13, 12]);
}

#[test]
fn uec_places_the_sack_window_by_what_caused_the_acknowledgement() {
    // Packets 2 and 70 are late; acknowledgements in between describe 64 PSNs of the held ones.
    let outcome = check(&World::new("uec").packets(140), "delay 2 by 9; delay 70 by 9; mark 90; mark 91", "again 0");
    let mut seen = 0;
    for (sent, ack) in outcome.acks() {
        let (cumulative, base, acked) = ({ ack.cumulative }.get(), { ack.sack_base }.get(), { ack.acked }.get());
        let at_once = sent.packet.flags.has(Flags::MARKED) || acked == 139;
        let expected = if at_once { acked } else { acked.saturating_sub(63).max(cumulative + 1) };
        assert_eq!(base, expected, "the window of the acknowledgement of {acked}, {cumulative} expected next");
        seen += usize::from(cumulative == 2 && acked > 70);
    }
    assert!(seen >= 8, "{seen} acknowledgements with packets held");
}

#[test]
fn uec_echoes_the_path_and_the_mark_of_the_very_packet() {
    let outcome = check(&World::new("uec"), "mark 7..9; mark 30", "marked_acks 4");
    let paths: BTreeMap<u32, PathId> = outcome.data().map(|(s, d)| (d.psn.get(), s.packet.path)).collect();
    for (sent, ack) in outcome.acks() {
        let acked = { ack.acked }.get();
        assert_eq!({ ack.path }, paths[&acked]);
        assert_eq!(sent.packet.flags.has(Flags::MARKED), [7, 8, 9, 30].contains(&acked));
    }
}

// ---- UEC without trimming: SLEEK
// -------------------------------------------------------------------------------------------

#[test]
fn without_trimming_a_hole_in_the_middle_is_found_by_counting_what_came_after_it() {
    let world = World::new("uec").without_trimming().packets(1200);
    let outcome = check(&world, "drop 20", "again 1, timeouts 0, probes 0, duplicates 0");
    // Threshold 1.5 windows, window 1.5 products of 97 packets; found before a second round trip is over.
    assert!(outcome.left(20, 1) < nth(20) + RTT * 4, "found after {}", outcome.left(20, 1) - outcome.left(20, 0));
    check(&world, "drop 20..29; drop 33", "again 11, timeouts 0, probes 0, duplicates 0");
    // Losses above the highest PSN known at the start of the recovery are found by probes, not by counting.
    let world = World::new("uec").without_trimming().packets(300);
    check(&world, "drop 20; drop 250..254", "again 6, timeouts 0, probes 1, duplicates 0");
    // If no probe gets through either, the timeout must not wait for a recovery that will never judge them.
    check(&world, "drop 20; drop 250..254; drop probe 0..99", "again 6.., timeouts 1..");
    // Reordering without loss causes no retransmission.
    check(&world, "delay 20 by 4; delay 100..130 by 3", "again 0, timeouts 0");
}

#[test]
fn without_trimming_probes_find_a_lost_tail_and_lost_probes_are_followed_by_others() {
    let world = World::new("uec").without_trimming();
    let rtt = RTT;
    // The last acknowledgement that comes back: of packet 60; the probe leaves two round trips later.
    let outcome = check(&world, "drop 63", "again 1, timeouts 0, probes 1, duplicates 0");
    assert_eq!(outcome.probes(), [nth(60) + RTT + rtt * 2]);
    // It is answered at once, and the packet leaves again as the answer arrives.
    let answered = outcome.probes()[0] + ACK + DELAY + ACK + DELAY;
    assert_eq!(outcome.left(63, 1), answered);
    assert_eq!(outcome.finished, answered + RTT);

    let outcome = check(&world, "drop 63; drop probe 0", "again 1, timeouts 0, probes 2, duplicates 0");
    let probes = outcome.probes();
    assert_eq!(probes[1], probes[0] + rtt * 5, "the next probe follows after five round trips");

    // A hole in the middle of a message too short for counting is found by a probe as well.
    check(&world, "drop 20", "again 1, timeouts 0, probes 1, duplicates 0");
    check(&world, "drop 0..63", "again 64, timeouts 0, probes 1.., duplicates 0");
    // Nothing gets through for long: the timeout is the last resort.
    check(&world, "drop 63; drop probe 0..9", "timeouts 1.., probes 2..");
}
