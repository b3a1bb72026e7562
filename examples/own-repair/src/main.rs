//! A reliability scheme of your own, above partial completion (SDR-RDMA): `Courier` is all of it. The receiver posts a receive and
//! looks at the bitmap four times in a round trip; whatever is missing after the first chunk came it asks for by letter, a chunk at
//! a time. The sender sends what it is asked for. Below are two endpoints and a wire that loses one packet in twenty.

use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_proto::parameter::Value;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, Event, HostId, Letter, Message, MessageId, OpenConnection, Ports,
    Profile, Rate, Span, Time,
};

const ONLY: ConnectionId = ConnectionId(0);
const ONE_WAY: Span = Span::from_ms(5);
const ASK: u16 = 1;
const DONE: u16 = 2;

// ---- The scheme ------------------------------------------------------------------------------------------------------------

/// What one end knows: the number of its stream or receive, when to look next, and whether all is done.
struct Courier {
    number: Option<u64>,
    look_at: Time,
    done: bool,
}

impl Courier {
    /// The receiver's end: makes room.
    fn receiver(endpoint: &mut Endpoint, bytes: u64) -> Courier {
        let number = endpoint.expect(Time::ZERO, ONLY, bytes).ok();
        Courier { number, look_at: Time::NEVER, done: false }
    }

    /// The sender's end: begins as soon as there is room.
    fn send(&mut self, endpoint: &mut Endpoint, now: Time, message: Message) {
        if self.number.is_none()
            && let Ok(stream) = endpoint.begin_stream(now, ONLY, message)
        {
            endpoint.push_stream(now, ONLY, stream, 0..u32::MAX, false);
            self.number = Some(stream);
        }
    }

    /// A letter is here: the sender sends again what it is asked for, and stops when it may.
    fn handle_letter(&mut self, endpoint: &mut Endpoint, now: Time, letter: Letter) {
        let (Letter::Custom { kind, words }, Some(stream)) = (letter, self.number) else { return };
        match kind {
            ASK => endpoint.push_stream(now, ONLY, stream, words[0]..words[0] + words[1], true),
            _ => {
                endpoint.end_stream(now, ONLY, stream);
                self.done = true;
            }
        }
    }

    /// The receiver looks at the bitmap: asks for the first run of chunks that is missing, or says that it has all.
    fn look(&mut self, endpoint: &mut Endpoint, now: Time) {
        let Some(progress) = self.number.and_then(|receive| endpoint.progress(ONLY, receive)) else { return };
        if progress.packets_present() == 0 {
            return;
        }
        let (first, chunks) = (progress.first_missing(0), progress.chunks());
        let run = (first..chunks).take_while(|&chunk| !progress.has_chunk(chunk)).count() as u32;
        self.done = first == chunks;
        let (kind, words) = if self.done { (DONE, [0; 4]) } else { (ASK, [first, run, 0, 0]) };
        endpoint.send_letter(now, ONLY, Letter::Custom { kind, words });
        self.look_at = now + Span(ONE_WAY.0 * 2 + ONE_WAY.0 / 2);
    }
}

// ---- The world -------------------------------------------------------------------------------------------------------------

fn main() {
    let mut reliability = ReliabilityConfig::named("partial").expect("a name");
    reliability.parameters().set("chunk", Value::Count(8)).expect("a parameter");
    let profile = Arc::new(Profile { reliability, ..Profile::preset("sdr_sr").expect("a preset") });
    let rate = Rate::from_gbps(10);
    let environment = Environment {
        rate,
        ports: 1,
        base_rtt: ONE_WAY * 2,
        packet: profile.packet_bytes(),
        trimming: false,
        uplinks: [1, 0],
        paths_in_order: 0,
        queue: Bytes(1 << 20),
        packet_life: Span::from_ms(100),
    };
    let mut ends = [0, 1].map(|host| {
        let mut endpoint = Endpoint::new(HostId(host));
        endpoint.open(
            Time::ZERO,
            OpenConnection {
                profile: Arc::clone(&profile),
                environment,
                peer: HostId(1 - host),
                peer_connection: Some(ONLY),
                random: Random::new(1, StreamKind::Connection, u64::from(host)),
            },
        );
        endpoint
    });
    let message = Message { id: MessageId(42), bytes: 3_000_000 };
    let mut sender = Courier { number: None, look_at: Time::NEVER, done: false };
    let mut receiver = Courier::receiver(&mut ends[1], message.bytes);
    let mut random = Random::new(7, StreamKind::Fault, 0);
    let (mut now, mut air, mut count, mut lost) = (Time::ZERO, BTreeMap::new(), 0u64, 0);
    while !sender.done && now < Time::ZERO + Span::from_ms(2_000) {
        sender.send(&mut ends[0], now, message);
        let mut busy_until = now;
        for (end, endpoint) in ends.iter_mut().enumerate() {
            let mut at = now;
            while let Some(packet) = endpoint.poll_transmit(now, Ports::first(1)) {
                at = at + rate.time_for(packet.bytes());
                count += 1;
                if random.chance(0.05) {
                    lost += 1;
                } else {
                    air.insert((at + ONE_WAY, count), (1 - end, packet));
                }
            }
            busy_until = busy_until.max(at);
        }
        // The next thing to happen: a packet arrives, a timer ends, or the receiver looks.
        let timers = ends.iter().filter_map(Endpoint::poll_timeout).min().unwrap_or(Time::NEVER);
        let arrival = air.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
        now = now.max(arrival.min(timers).min(receiver.look_at));
        ends.iter_mut().for_each(|endpoint| endpoint.handle_timeout(now));
        while let Some(entry) = air.first_entry().filter(|entry| entry.key().0 <= now) {
            let (end, packet) = entry.remove();
            ends[end].handle_packet(now, &packet);
            if end == 1 && receiver.look_at == Time::NEVER {
                receiver.look_at = now + ONE_WAY;
            }
            while let Some(event) = ends[end].poll_event() {
                if let (0, Event::Letter { letter, .. }) = (end, event) {
                    sender.handle_letter(&mut ends[0], now, letter);
                }
            }
        }
        if receiver.look_at <= now {
            receiver.look(&mut ends[1], now);
        }
    }
    let receive = receiver.number.expect("it was posted");
    let progress = ends[1].complete(now, ONLY, receive).expect("it is open");
    assert!(sender.done && receiver.done && progress.is_whole(), "the message did not get through");
    println!(
        "message {} of {} bytes is there after {now}: {lost} of {count} packets were lost",
        message.id.0, message.bytes
    );
}
