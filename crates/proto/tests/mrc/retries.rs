//! Timers, the budget of retries, and packets that the receiver refuses.

use super::lone;
use std::collections::BTreeMap;
use strandway_proto::packet::{Data, Flags, Header, Nack, NackReason, Offset, Psn, Wait};
use strandway_proto::path::{MrcConfig, PathConfig, PathState};
use strandway_proto::reliability::{MrcSackConfig, ReliabilityConfig};
use strandway_proto::{
    Bytes, ConnectionId, Event, HostId, Message, MessageId, Packet, PathId, Ports, Profile, Span, Time,
};

/// The times at which PSN 0 is sent if no answer ever arrives, and the time at which the connection fails.
fn into_the_void(config: MrcSackConfig, probe_idle: bool, until: Time) -> (Vec<Time>, Option<Time>) {
    let profile = Profile {
        reliability: ReliabilityConfig::MrcSack(config),
        path: PathConfig::Mrc(MrcConfig { probe_idle, ..MrcConfig::default() }),
        ..Profile::preset("mrc").expect("a preset")
    };
    let mut endpoint = lone(profile, 4);
    endpoint.post(Time::ZERO, ConnectionId(0), Message { id: MessageId(1), bytes: 10_000 });
    let (mut now, mut left, mut failed) = (Time::ZERO, Vec::new(), None);
    loop {
        while let Some(packet) = endpoint.poll_transmit(now, Ports::first(4)) {
            assert_eq!(failed, None, "nothing more is sent, probes neither");
            if matches!(packet.header, Header::Data(data) if data.psn.get() == 0) {
                left.push(now);
            }
        }
        match endpoint.poll_timeout() {
            Some(at) if at < until => now = now.max(at),
            _ => return (left, failed),
        }
        endpoint.handle_timeout(now);
        while let Some(event) = endpoint.poll_event() {
            assert_eq!(event, Event::Failed { connection: ConnectionId(0) });
            assert_eq!(failed.replace(now), None, "told once");
            // A message posted afterwards is not sent.
            endpoint.post(now, ConnectionId(0), Message { id: MessageId(2), bytes: 10 });
            assert!(endpoint.poll_transmit(now, Ports::first(4)).is_none());
            assert_eq!(endpoint.observe().in_flight(ConnectionId(0)), Bytes(0));
        }
    }
}

#[test]
fn timers_are_linear_then_exponential_and_then_the_budget_is_used_up() {
    let first = Span::from_ns(1024) * 64;
    let config = MrcSackConfig { retries_linear: 3, retries_exponential: 4, ..MrcSackConfig::default() };
    let (left, failed) = into_the_void(config, false, Time(10_000_000_000_000));
    let waits: Vec<u64> = left.windows(2).map(|w| (w[1] - w[0]).0 / first.0).collect();
    // 1.024 us * 2^6 is the smallest that is three times 10 us and 7.5 us.
    assert_eq!(waits, [1, 1, 1, 1, 2, 4, 8]);
    assert_eq!(failed, Some(*left.last().expect("it left") + first * 16));
    assert_eq!(into_the_void(config, true, Time(10_000_000_000_000)).1, failed);
    // 25 exponential retries mean: retry for ever, each after at most the longest timeout.
    let (left, failed) = into_the_void(MrcSackConfig::default(), false, Time(10_000_000_000_000));
    assert_eq!(failed, None);
    assert!(left.windows(2).all(|w| w[1] - w[0] <= MrcSackConfig::default().timeout_max));
    assert!(left.len() > 100, "{}", left.len());
}

#[test]
fn packets_dropped_for_want_of_room_go_again_and_blame_no_path() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    let id = ConnectionId(0);
    endpoint.post(Time::ZERO, id, Message { id: MessageId(1), bytes: 40_000 });
    let sent: Vec<Packet> = std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, Ports::first(2))).collect();
    assert_eq!(sent.len(), 10);
    let (window, before) = (endpoint.observe().window(id), endpoint.observe().path_states(id));
    let nack = |reason| {
        let (psn, path) = (Psn::new(3), sent[3].path);
        let header = Header::Nack(Nack { psn, cumulative: psn, path, reason });
        Packet { source: HostId(1), destination: HostId(0), flags: Flags::NONE, size: 64, header, ..sent[3] }
    };
    for reason in [NackReason::NoTracker, NackReason::NoBuffer, NackReason::NoResource, NackReason::BeyondWindow] {
        endpoint.handle_packet(Time(1), &nack(reason));
        let again = endpoint.poll_transmit(Time(1), Ports::first(2)).expect("a retransmission");
        assert!(
            again.flags.has(Flags::RETRANSMITTED) && matches!(again.header, Header::Data(d) if d.psn == Psn::new(3))
        );
        assert_eq!(endpoint.observe().window(id), window);
        let by_path =
            |states: Vec<PathState>| states.into_iter().map(|s| (s.path, s.status)).collect::<BTreeMap<_, _>>();
        assert_eq!(by_path(endpoint.observe().path_states(id)), by_path(before.clone()));
    }
    // A fatal NACK of the peer ends the connection.
    endpoint.handle_packet(Time(2), &nack(NackReason::Fatal));
    assert_eq!(endpoint.poll_event(), Some(Event::Failed { connection: id }));
    assert_eq!((endpoint.poll_event(), endpoint.observe().in_flight(id)), (None, Bytes(0)));
}

#[test]
fn retransmissions_take_another_path_than_the_one_they_were_lost_on() {
    for (ports, left) in [(1, 2), (1, 3), (2, 2), (2, 5), (1, 1)] {
        let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), ports);
        let id = ConnectionId(0);
        let paths: Vec<PathId> = endpoint.observe().path_states(id).iter().map(|s| s.path).collect();
        // With two ports, paths of both are left.
        let denied = paths.iter().step_by(paths.len() / left).take(left);
        let denied: Vec<PathId> = paths.iter().filter(|p| !denied.clone().any(|d| d == *p)).copied().collect();
        denied.iter().for_each(|&path| assert!(endpoint.deny_path(Time::ZERO, id, path)));
        endpoint.post(Time::ZERO, id, Message { id: MessageId(1), bytes: 40_000 });
        let free = Ports::first(ports);
        let mut last: Vec<Packet> = std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, free)).collect();
        assert_eq!(last.len(), 10);
        for round in 1..=20 {
            for psn in [3, 7, 1] {
                // Trimmed at the last hop: the path keeps its state, so it may be used next.
                let nack = Nack {
                    psn: Psn::new(psn as u64),
                    cumulative: Psn::new(0),
                    path: last[psn].path,
                    reason: NackReason::Missing,
                };
                let flags = Flags::TRIMMED_AT_LAST_HOP;
                let packet = Packet { size: 64, flags, header: Header::Nack(nack), ..last[psn] };
                endpoint.handle_packet(Time(round), &packet);
            }
            for psn in [3, 7, 1] {
                let again = endpoint.poll_transmit(Time(round), free).expect("a retransmission");
                assert!(matches!(again.header, Header::Data(d) if d.psn == Psn::new(psn as u64)), "{again:?}");
                assert_eq!(again.path != last[psn].path, left > 1, "psn {psn}, round {round}, {left} paths left");
                last[psn] = again;
            }
        }
    }
}

#[test]
fn packets_beyond_the_window_of_psns_are_refused() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 1);
    let data = |psn: u64| Packet {
        source: HostId(1),
        destination: HostId(0),
        connection: ConnectionId(0),
        path: PathId::new(0, 1),
        size: 4262,
        flags: Flags::NONE,
        header: Header::Data(Data {
            psn: Psn::new(psn),
            message: MessageId(0),
            offset: Offset::new(psn * 4096),
            length: 4096,
            target: 0,
            wait: Wait::default(),
        }),
    };
    endpoint.handle_packet(Time::ZERO, &data(1023));
    let reply = endpoint.poll_transmit(Time::ZERO, Ports::first(1)).expect("an acknowledgement");
    assert!(matches!(reply.header, Header::Ack(_)));
    endpoint.handle_packet(Time::ZERO, &data(1024));
    let replies: Vec<Header> =
        std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, Ports::first(1))).map(|p| p.header).collect();
    let refused = |h: &Header| matches!(h, Header::Nack(n) if n.reason == NackReason::BeyondWindow);
    assert!(replies.iter().any(refused), "{replies:?}");
}
