//! The repair schemes over a bad wire: everything arrives once, in order and whole, and parity repairs what it can.

use super::wire::{DELAY, Pair, environment, faithful, packet_time};
use proptest::prelude::*;
use std::collections::BTreeSet;
use strandway_proto::packet::{Flags, Header, Part};
use strandway_proto::parameter::Value;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::repair::{CodeKind, Plan, SdrCodeConfig};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{ControlMessage, Packet, Profile, Span, Time};

const SCHEMES: [&str; 5] = ["sdr_sr", "sdr_nack", "sdr_xor", "sdr_mds", "sdr_auto"];

fn profile(name: &str) -> Profile {
    Profile::preset(name).expect("a preset")
}

/// The preset `name` with these parameters; a parameter that the scheme does not have is ignored.
fn with(name: &str, parameters: &[(&str, u64)]) -> Profile {
    let mut profile = profile(name);
    for &(key, value) in parameters {
        let flag = matches!(key, "striped" | "faithful");
        let value = if flag { Value::Flag(value == 1) } else { Value::Count(value) };
        let _ = profile.reliability.parameters().set(key, value);
    }
    profile
}

fn plan_of(profile: &Profile) -> Option<Plan> {
    let (config, kind): (&SdrCodeConfig, CodeKind) = match &profile.reliability {
        ReliabilityConfig::SdrXor(config) => (&config.0, CodeKind::Xor),
        ReliabilityConfig::SdrMds(config) => (&config.0, CodeKind::Mds),
        _ => return None,
    };
    let SdrCodeConfig { striped, chunk, group, .. } = *config;
    let code = config.code(kind).expect("a code");
    Some(Plan { chunk, reorder: None, code: Some(code), group, striped })
}

/// True if the message can be put together from the packets that arrived.
fn is_there(profile: &Profile, parts: &[Part]) -> bool {
    let Some(first) = parts.first() else { return false };
    let data: BTreeSet<u32> = parts.iter().filter(|p| !p.parity).map(|p| p.packet).collect();
    let Some(layout) = profile.reliability.coded_layout(first.plan, first.packets) else {
        return data.len() as u32 == first.packets;
    };
    let (chunk, code) = (layout.chunk_packets(), layout.code().expect("a coded layout"));
    let parity: BTreeSet<u32> = parts.iter().filter(|p| p.parity).map(|p| p.packet).collect();
    (0..layout.groups()).all(|g| {
        let (sizes, data_at, parity_at) = (layout.group(g), layout.data(g), layout.parity(g));
        let has = |c: u32| {
            (c * chunk..((c + 1) * chunk).min(data_at.len() as u32)).all(|p| data.contains(&(data_at.start + p)))
        };
        let has_parity = |c: u32| (c * chunk..(c + 1) * chunk).all(|p| parity.contains(&(parity_at.start + p)));
        (0..sizes.submessages).all(|s| {
            let missing = (0..sizes.data_in(s)).filter(|&j| !has(sizes.chunk(s, j))).count();
            match code.kind() {
                CodeKind::Mds => {
                    missing <= (0..sizes.parity_in(s)).filter(|&r| has_parity(sizes.parity_chunk(s, r))).count()
                }
                CodeKind::Xor => (0..sizes.parity_in(s)).all(|r| {
                    let mine = (r..sizes.data_in(s)).step_by(sizes.parity_in(s) as usize);
                    let lost = mine.filter(|&j| !has(sizes.chunk(s, j))).count();
                    lost == 0 || lost == 1 && has_parity(sizes.parity_chunk(s, r))
                }),
            }
        })
    })
}

/// The conditions that must hold at the end.
fn check(pair: &Pair, profile: &Profile, end: usize, messages: &[u64]) {
    let all: Vec<(u32, u64)> = messages.iter().zip(0..).map(|(&bytes, id)| (id, bytes)).collect();
    assert_eq!(pair.received(1 - end), all, "messages arrive once, in order and whole");
    let finished: Vec<u32> = pair.finished(end).iter().map(|f| f.0).collect();
    assert_eq!(finished, (0..messages.len() as u32).collect::<Vec<_>>(), "messages finish once and in order");
    for id in 0..messages.len() as u32 {
        let parts: Vec<Part> =
            pair.fresh.iter().filter(|f| f.0 == 1 - end && { f.1.message }.0 == id).map(|f| f.1).collect();
        assert!(is_there(profile, &parts), "message {id} is complete though it cannot be rebuilt");
    }
    assert_eq!((pair.stats(0).invalid, pair.stats(1).invalid), (0, 0), "an honest peer sends nothing odd");
    assert_eq!(pair.ends[end].observe().in_flight(super::wire::ONLY).0, 0, "nothing is under way any more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn messages_arrive_over_any_wire(
        scheme in 0usize..5,
        sizes in prop::collection::vec(prop_oneof![0u64..30_000, 0u64..900_000], 1..6),
        loss in 0.0f64..0.3,
        repeat in 0.0f64..0.2,
        delay in 0.0f64..0.3,
        (k, m, chunk, group) in (1u64..12, 1u64..6, 1u64..5, 1u64..4),
        (striped, faithful) in (0u64..2, 0u64..2),
        both in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let options = [("k", k), ("m", m.min(k)), ("chunk", chunk), ("group", group), ("striped", striped), ("faithful", faithful)];
        let profile = with(SCHEMES[scheme], &options);
        let mut pair = Pair::new(&profile);
        let mut random = Random::new(seed, StreamKind::Fault, 0);
        for end in 0..=usize::from(both) {
            for (&bytes, id) in sizes.iter().zip(0..) {
                pair.post(end, id, bytes);
            }
        }
        pair.run(&mut |_, _, _| {
            let copies = if random.chance(loss) { 0 } else if random.chance(repeat) { 2 } else { 1 };
            (0..copies).map(|_| if random.chance(delay) { Span(u64::from(random.below(2_000_000_000))) } else { Span::ZERO }).collect()
        });
        for end in 0..=usize::from(both) {
            check(&pair, &profile, end, &sizes);
        }
    }
}

#[test]
fn without_losses_nothing_goes_again_and_nothing_is_named_missing() {
    for scheme in SCHEMES {
        let profile = profile(scheme);
        let mut pair = Pair::new(&profile);
        let sizes = [0, 1, 4095, 4096, 4097, 7 * 4096, 8 * 4096, 32 * 4096 - 1, 32 * 4096 + 1, 5_000_000];
        for (&bytes, id) in sizes.iter().zip(0..) {
            pair.post(0, id, bytes);
        }
        pair.run(&mut faithful);
        check(&pair, &profile, 0, &sizes);
        assert_eq!(pair.stats(0).retransmitted, 0, "{scheme}");
        assert!(!pair.controls(1).any(|(_, control)| matches!(control, ControlMessage::Missing(_))), "{scheme}");
        assert_eq!(pair.controls(0).count(), 0, "{scheme}: the sender has nothing to ask");
    }
}

/// SDR-RDMA, section 4.2: with erasure coding a message without fallback takes its data, its parity and one round trip.
#[test]
fn completion_times_without_losses_are_those_of_the_model() {
    for (scheme, parity) in [("sdr_sr", 0), ("sdr_nack", 0), ("sdr_xor", 256), ("sdr_mds", 256)] {
        let profile = profile(scheme);
        let mut pair = Pair::new(&profile);
        pair.post(0, 0, 1024 * 4096);
        pair.run(&mut faithful);
        let took = pair.finished(0)[0].1.since(Time::ZERO);
        let model = packet_time(&profile) * (1024 + parity) + DELAY * 2;
        let ratio = took.0 as f64 / model.0 as f64;
        // Without losses, the receiver does not wait for the parity of the last two groups.
        assert!((0.80..1.01).contains(&ratio) && (parity > 0 || ratio > 0.999), "{scheme}: {took} for {model}");
    }
}

#[test]
fn a_lost_chunk_costs_a_timeout_or_with_nacks_a_round_trip() {
    let rtt = DELAY * 2;
    for (scheme, at_least, at_most) in [("sdr_sr", rtt * 3, rtt * 3), ("sdr_nack", rtt, rtt + Span(rtt.0 / 2))] {
        let profile = with(scheme, &[("chunk", 1)]);
        let mut pair = Pair::new(&profile);
        pair.post(0, 0, 200 * 4096);
        let mut lost = false;
        pair.run(&mut |_, _, packet| {
            let hit = matches!(packet.header, Header::Part(part) if part.packet == 100)
                && !std::mem::replace(&mut lost, true);
            if hit { vec![] } else { vec![Span::ZERO] }
        });
        check(&pair, &profile, 0, &[200 * 4096]);
        let left: Vec<Time> = pair.parts(0).filter(|(_, _, part)| part.packet == 100).map(|p| p.0).collect();
        assert_eq!(left.len(), 2, "{scheme}: it goes once more and no more");
        let waited = left[1].since(left[0]);
        let slack = packet_time(&profile) * 10;
        assert!((at_least..=at_most + slack).contains(&waited), "{scheme}: {waited}");
        let again: Vec<Packet> = pair.parts(0).filter(|p| p.1.flags.has(Flags::RETRANSMITTED)).map(|p| p.1).collect();
        assert_eq!(again.len(), 1, "{scheme}: nothing else goes again");
    }
}

#[test]
fn as_many_losses_as_parity_chunks_need_nothing_again_and_one_more_needs_one_report() {
    for scheme in ["sdr_xor", "sdr_mds"] {
        for striped in [0, 1] {
            let profile = with(scheme, &[("striped", striped), ("group", 4)]);
            let plan = plan_of(&profile).expect("a code");
            let packets = 3 * 4 * 32;
            let layout = plan.layout(packets);
            // The packets to lose, in submessage 2 of group 1: its first eight chunks, each with another residue, and
            // then the ninth chunk.
            let sizes = layout.group(1);
            let lost: Vec<u32> = (0..9).map(|j| layout.data(1).start + sizes.chunk(2, j)).collect();
            for losses in [8, 9] {
                let mut pair = Pair::new(&profile);
                pair.post(0, 0, u64::from(packets) * 4096);
                let mut seen = BTreeSet::new();
                pair.run(&mut |_, _, packet| {
                    let Header::Part(part) = packet.header else { return vec![Span::ZERO] };
                    let hit = !part.parity && lost[..losses].contains(&{ part.packet }) && seen.insert(part.packet);
                    if hit { vec![] } else { vec![Span::ZERO] }
                });
                check(&pair, &profile, 0, &[u64::from(packets) * 4096]);
                let reports: Vec<Time> = pair
                    .controls(1)
                    .filter(|(_, control)| matches!(control, ControlMessage::Missing(_)))
                    .map(|l| l.0)
                    .collect();
                let again = pair.stats(0).retransmitted;
                match (losses, scheme) {
                    (8, _) => assert_eq!((again, reports.len()), (0, 0), "{scheme}: parity repairs {losses}"),
                    // XOR could repair seven of the nine, because only two of them share a parity chunk. But the report
                    // names all nine.
                    _ => {
                        assert_eq!(again, 9, "{scheme}: the holes go again");
                        assert!(reports.iter().all(|&at| at == reports[0] || at.since(reports[0]) < Span::from_us(1)));
                        assert!(!reports.is_empty());
                    }
                }
            }
        }
    }
}

/// SDR-RDMA, section 5: FTO = (M + M m / k) T + beta RTT after the first packet.
#[test]
fn the_fallback_comes_when_the_formula_says() {
    for beta in [0.5, 1.0, 3.0] {
        let mut profile = profile("sdr_mds");
        profile.reliability.parameters().set("beta", Value::Ratio(beta)).expect("a parameter");
        let mut pair = Pair::new(&profile);
        let packets = 2048u64;
        pair.post(0, 0, packets * 4096);
        // All data of one submessage is lost on its first way.
        pair.run(&mut |_, _, packet| match packet.header {
            Header::Part(part) if part.packet < 32 && !part.parity && !packet.flags.has(Flags::RETRANSMITTED) => vec![],
            _ => vec![Span::ZERO],
        });
        let first = pair.parts(0).find(|p| p.2.packet == 32).expect("the first that arrives").0;
        let arrived = first + packet_time(&profile) + DELAY;
        let report = pair.controls(1).find(|(_, l)| matches!(l, ControlMessage::Missing(_))).expect("a report").0;
        let expected = packet_time(&profile) * (packets + packets / 4)
            + Span((environment(&profile).base_rtt.0 as f64 * beta) as u64);
        let ratio = report.since(arrived).0 as f64 / expected.0 as f64;
        assert!((0.95..1.05).contains(&ratio), "beta {beta}: {} instead of {expected}", report.since(arrived));
    }
}

#[test]
fn more_messages_than_slots_wait_their_turn() {
    for scheme in SCHEMES {
        let profile = profile(scheme);
        let mut pair = Pair::new(&profile);
        let sizes = vec![100; 3000];
        for (&bytes, id) in sizes.iter().zip(0..) {
            pair.post(0, id, bytes);
        }
        let mut random = Random::new(1, StreamKind::Fault, 0);
        pair.run(&mut |_, _, _| if random.chance(0.02) { vec![] } else { vec![Span::ZERO] });
        check(&pair, &profile, 0, &sizes);
    }
}

/// A message that has more groups than there are slots.
#[test]
fn a_message_of_more_groups_than_slots_gets_through() {
    let profile = with("sdr_mds", &[("k", 2), ("m", 1), ("group", 1)]);
    let mut pair = Pair::new(&profile);
    let bytes = 4096 * 2 * 1500;
    pair.post(0, 0, bytes);
    let mut random = Random::new(3, StreamKind::Fault, 0);
    pair.run(&mut |_, _, _| if random.chance(0.01) { vec![] } else { vec![Span::ZERO] });
    check(&pair, &profile, 0, &[bytes]);
}

#[test]
fn a_peer_that_is_silent_is_given_up_after_five_seconds() {
    for scheme in SCHEMES {
        let mut pair = Pair::new(&profile(scheme));
        pair.post(0, 0, 100_000);
        pair.run(&mut |_, _, _| vec![]);
        let [(at, event)] = pair.told[0].iter().copied().collect::<Vec<_>>()[..] else { panic!("one event") };
        assert!(matches!(event, strandway_proto::Event::Failed { .. }), "{scheme}: {event:?}");
        assert!((4_900..5_200).contains(&(at.0 / 1_000_000_000)), "{scheme}: {at}");
    }
}
