//! A receiver with few trackers announces smaller ranges of PSNs, and senders obey them (dynamic MPR).

use super::pair_support::{self, ACK, DELAY, World};
use std::collections::BTreeMap;
use strandway_proto::Span;
use strandway_proto::congestion::{CongestionConfig, FixedConfig};
use strandway_proto::packet::Header;
use strandway_proto::reliability::ReliabilityConfig;

/// Packets in one unit of a range.
const WORD: u32 = 128;

/// Four connections of 4,000 packets each, whose windows hold 1,000. Every 97th packet is late by some round trips, so
/// that receivers hold the packets behind it.
fn world(trackers: u32) -> World {
    let mut world = World::new("mrc").spread(4, 4000).with(|profile| {
        let ReliabilityConfig::MrcSack(config) = &mut profile.reliability else { panic!("MRC's reliability") };
        config.trackers = trackers;
        // A late packet is no loss.
        config.reorder = 100.0;
        config.timeout = Span::from_ms(10);
        profile.congestion = CongestionConfig::Fixed(FixedConfig { window_bdp: 10.0 });
    });
    world.environment.uplinks = [16, 0];
    world.detour = |packet| match packet.header {
        Header::Data(data) if data.psn.get() % 97 == 5 => Span::from_us(60),
        _ => Span::ZERO,
    };
    world
}

#[test]
fn senders_stay_within_the_range_that_the_receiver_announces() {
    let free = pair_support::check(&world(0), "", "delivered 16000");
    assert!(free.acks().all(|(_, ack)| ack.range == 0), "a fixed range says nothing");
    let most = |outcome: &pair_support::Outcome| outcome.acks().map(|(_, ack)| ack.out_of_order).max();
    let bound = pair_support::check(&world(512), "", "delivered 16000");
    assert!(most(&bound) < most(&free), "{:?} and {:?} packets held", most(&bound), most(&free));
    // By connection, as the sender has heard: the first PSN that is missing, and the range.
    let mut heard: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut under_way = bound.acks().collect::<Vec<_>>().into_iter().peekable();
    let (mut limited, mut checked) = (0, 0);
    for (sent, data) in bound.data() {
        while let Some((left, ack)) = under_way.next_if(|(left, _)| left.at + DELAY + ACK <= sent.at) {
            let known = heard.entry(left.packet.connection.0).or_default();
            known.0 = known.0.max({ ack.cumulative }.get());
            known.1 = u32::from(ack.range) * WORD;
            limited += u32::from(ack.range < 8);
        }
        if let Some((first, range)) = heard.get(&sent.packet.connection.0).filter(|(_, range)| *range > 0) {
            assert!(data.psn.get() < first + range, "{} beyond {first} + {range}", data.psn.get());
            checked += 1;
        }
    }
    assert!(limited > 100 && checked > 10_000, "{limited} smaller ranges, {checked} packets");
}
