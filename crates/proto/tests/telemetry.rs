//! The records of switches come back to the sender with the answer to their packet, whatever else waits at the
//! receiver.

use std::sync::{Arc, Mutex};
use strandway_proto::congestion::{AckSample, Congestion, CongestionConfig, LossSample};
use strandway_proto::packet::Header;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::telemetry::{HopRecord, Telemetry};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, Handled, HostId, Message, MessageId, OpenConnection, Packet, Ports,
    Profile, Rate, Span, Time,
};

const PORTS: Ports = Ports { data: 1, control: 1 };

/// Notes the links of the records that it gets, and the bytes of the acknowledgements between them.
struct Log(Arc<Mutex<Vec<String>>>);

impl Congestion for Log {
    fn on_telemetry(&mut self, _: Time, telemetry: &Telemetry) {
        let links: Vec<u32> = telemetry.records().iter().map(|record| record.link).collect();
        self.0.lock().expect("one thread").push(format!("links {links:?}"));
    }
    fn on_ack(&mut self, sample: &AckSample) {
        self.0.lock().expect("one thread").push(format!("{} packets", sample.packets));
    }
    fn on_loss(&mut self, _: &LossSample) {
        self.0.lock().expect("one thread").push("loss".to_string());
    }
    fn window(&self) -> Bytes {
        Bytes(1 << 20)
    }
}

fn opening(profile: &Arc<Profile>, peer: u32, peer_connection: Option<ConnectionId>) -> OpenConnection {
    let environment = Environment {
        rate: Rate::from_gbps(100),
        ports: 1,
        base_rtt: Span::from_us(10),
        packet: profile.packet_bytes(),
        trimming: false,
        uplinks: [0; 2],
        paths_in_order: 0,
        queue: Bytes(100_000),
        packet_life: Span::from_ms(1),
    };
    let random = Random::new(1, StreamKind::Connection, u64::from(peer));
    OpenConnection { profile: Arc::clone(profile), environment, peer: HostId(peer), peer_connection, random }
}

/// The records of a path over these links.
fn over(links: &[u32]) -> Telemetry {
    let mut telemetry = Telemetry::NONE;
    for &link in links {
        telemetry.push(HopRecord { link, ..HopRecord::default() });
    }
    telemetry
}

/// A sender with a log, and a receiver.
struct Pair {
    ends: [Endpoint; 2],
    profile: Arc<Profile>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Pair {
    fn new(name: &str) -> Pair {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut profile = Profile::named(name).expect("a profile");
        profile.transport.ack_every = Bytes(1);
        let shared = Arc::clone(&log);
        profile.congestion = CongestionConfig::Custom(Arc::new(move |_| Box::new(Log(Arc::clone(&shared)))));
        Pair { ends: [0, 1].map(|host| Endpoint::new(HostId(host))), profile: Arc::new(profile), log }
    }

    /// Sends a message of `packets` packets. Returns them.
    fn send(&mut self, packets: u64) -> Vec<Packet> {
        let open = opening(&self.profile, 1, None);
        let connection = self.ends[0].open(Time::ZERO, open);
        let message = Message { id: MessageId(0), bytes: 4096 * packets };
        self.ends[0].post(Time::ZERO, connection, message);
        std::iter::from_fn(|| self.ends[0].poll_transmit(Time::ZERO, PORTS)).collect()
    }

    fn deliver(&mut self, packet: &Packet, telemetry: &Telemetry) {
        let now = Time(1_000_000);
        if let Handled::Unknown = self.ends[1].handle_packet_with(now, packet, telemetry) {
            self.ends[1].accept(now, opening(&self.profile, 0, Some(packet.connection)));
            self.ends[1].handle_packet_with(now, packet, telemetry);
        }
    }

    /// The answers of the receiver, each with its records.
    fn answers(&mut self) -> Vec<(Packet, Telemetry)> {
        let now = Time(1_000_000);
        let mut answers = Vec::new();
        while let Some(packet) = self.ends[1].poll_transmit(now, PORTS) {
            let telemetry = self.ends[1].take_telemetry(&packet);
            assert_eq!(self.ends[1].take_telemetry(&packet), Telemetry::NONE, "records are taken once");
            answers.push((packet, telemetry));
        }
        answers
    }
}

#[test]
fn each_acknowledgement_takes_the_records_of_its_own_packet_to_the_sender() {
    for name in ["rocev2", "uec"] {
        let mut pair = Pair::new(name);
        let packets = pair.send(4);
        for (packet, link) in packets.iter().zip(10..) {
            pair.deliver(packet, &over(&[link, 2 * link]));
        }
        let answers = pair.answers();
        assert_eq!(answers.len(), 4, "{name}");
        for (packet, telemetry) in &answers {
            pair.ends[0].handle_packet_with(Time(2_000_000), packet, telemetry);
        }
        let expect = [10, 11, 12, 13].map(|link| [format!("links [{link}, {}]", 2 * link), "1 packets".to_string()]);
        assert_eq!(*pair.log.lock().expect("one thread"), expect.concat(), "{name}");
    }
}

#[test]
fn a_nack_takes_records_too_and_an_answer_without_records_says_nothing() {
    let mut pair = Pair::new("rocev2");
    let packets = pair.send(3);
    pair.deliver(&packets[0], &Telemetry::NONE);
    pair.deliver(&packets[2], &over(&[5]));
    let answers = pair.answers();
    assert!(matches!(answers[1].0.header, Header::Nack(_)));
    for (packet, telemetry) in &answers {
        pair.ends[0].handle_packet_with(Time(2_000_000), packet, telemetry);
    }
    assert_eq!(*pair.log.lock().expect("one thread"), ["1 packets", "links [5]", "loss", "loss"]);
}
