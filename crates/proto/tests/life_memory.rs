//! The memory of open but unused connections, and of closed ones. It is a single test, so that no other test allocates
//! at the same time.

use std::sync::Arc;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, Handled, HostId, Message, MessageId, OpenConnection, Ports, Profile,
    Rate, Span, Time,
};

const PORTS: Ports = Ports { data: 1, control: 1 };
const COUNT: u32 = 100_000;

fn opening(profile: &Arc<Profile>, peer: u32, peer_connection: Option<ConnectionId>) -> OpenConnection {
    let environment = Environment {
        rate: Rate::from_gbps(400),
        ports: 1,
        base_rtt: Span::from_us(10),
        packet: profile.packet_bytes(),
        trimming: true,
        uplinks: [4, 0],
        paths_in_order: 0,
        queue: Bytes(100_000),
        packet_life: Span::from_ms(1),
    };
    let random = Random::new(1, StreamKind::Connection, 0);
    OpenConnection { profile: Arc::clone(profile), environment, peer: HostId(peer), peer_connection, random }
}

/// Bytes of memory that this process has in use.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Passes packets between both hosts until neither has one to send. Time passes by a microsecond per packet.
fn exchange(a: &mut Endpoint, b: &mut Endpoint, profile: &Arc<Profile>, now: &mut Time) {
    loop {
        let mut idle = true;
        for to_b in [true, false] {
            let (from, to) = if to_b { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            while let Some(packet) = from.poll_transmit(*now, PORTS) {
                idle = false;
                *now = *now + Span::from_us(1);
                if to.handle_packet(*now, &packet) == Handled::Unknown {
                    to.accept(*now, opening(profile, packet.source.0, Some(packet.connection)));
                    assert!(matches!(to.handle_packet(*now, &packet), Handled::Fresh | Handled::Here));
                }
                while to.poll_event().is_some() {}
                to.handle_timeout(*now);
            }
        }
        if idle {
            return;
        }
    }
}

#[test]
fn unused_connections_are_small_and_closed_ones_gone() {
    let mut profile = Profile::preset("uec").expect("a preset");
    // Few are awake at a time.
    profile.transport.sleep_after = Span::from_us(100);
    let profile = Arc::new(profile);
    let (mut a, mut b) = (Endpoint::new(HostId(0)), Endpoint::new(HostId(1)));
    let mut now = Time::ZERO;
    let mut before = resident();
    for n in 0..COUNT {
        let id = a.open(now, opening(&profile, 1, None));
        a.post(now, id, Message { id: MessageId(n), bytes: 100 });
        exchange(&mut a, &mut b, &profile, &mut now);
        a.close(now, id);
        exchange(&mut a, &mut b, &profile, &mut now);
        if n == 5_000 {
            before = resident();
        }
    }
    assert_eq!((a.observe().connections(), b.observe().connections()), (0, 0));
    let (at_a, at_b) = (a.observe().census(), b.observe().census());
    assert!(at_a.slots < 32 && at_b.slots < 32, "{at_a:?} {at_b:?}");
    assert!(at_b.remembered < 1_000, "{at_b:?}");
    assert!(at_a.timers < 1_000 && at_b.timers < 1_000, "{at_a:?} {at_b:?}");
    // Those of the last `sleep_after`.
    assert!(at_a.looks < 200 && at_b.looks < 200, "{at_a:?} {at_b:?}");
    assert_eq!(a.observe().closed_stats().sent, u64::from(COUNT));
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!(after < before + 4_000_000, "{} bytes more", after - before);
    }

    // Open and never used, as before an all-to-all.
    let before = resident();
    let ids: Vec<ConnectionId> = (0..COUNT).map(|_| a.open(now, opening(&profile, 1, None))).collect();
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = (after - before) / u64::from(COUNT);
        println!("{each} bytes for a connection that was never used");
        assert!(each <= 144, "{each} bytes for a connection that was never used");
    }
    // Used, and asleep again at both ends: without records, and with them.
    for (keep, bound) in [(false, 160), (true, 400)] {
        a.keep_records(keep);
        b.keep_records(keep);
        let before = resident();
        for (n, &id) in ids.iter().enumerate() {
            a.post(now, id, Message { id: MessageId(n as u32), bytes: 100 });
            exchange(&mut a, &mut b, &profile, &mut now);
        }
        for _ in 0..4 {
            now = now + Span::from_ms(20);
            a.handle_timeout(now);
            b.handle_timeout(now);
        }
        assert_eq!((a.observe().census().awake, b.observe().census().awake), (0, 0));
        assert_eq!((a.observe().census().asleep, b.observe().census().asleep), (COUNT as usize, COUNT as usize));
        if let (Some(before), Some(after)) = (before, resident()) {
            // Without records the second end is new, and the first one takes no more than before.
            let ends = u64::from(if keep { 2 * COUNT } else { COUNT });
            let each = (after - before) / ends;
            println!("{each} bytes more for an end that was used, records kept: {keep}");
            assert!(each <= bound, "{each} bytes for a connection that sleeps, records kept: {keep}");
        }
    }
}
