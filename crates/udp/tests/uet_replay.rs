//! Recorded datagrams of SUET, a public implementation of UET, as the peer of our node: its requests to our target, its
//! answers to our initiator.
//!
//! `tests/fixtures/uet` has five short conversations of SUET and a node of ours, in both directions:
//! `bench/interop/README.md` has the commands that recorded them. The longer recordings, of SUET with itself, are no part
//! of the repository: they are read from `uet` in the directory that `STRANDWAY_DATA` names, or next to the repository.
//! Without them only the fixtures are replayed, and the tests print that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use strandway_proto::{Span, Time};
use strandway_udp::uet::{Acks, Config, Event, Uet};
use strandway_wire::uet::codes::{ControlKind, NackCode, Opcode, ReturnCode};
use strandway_wire::uet::pds::{Ack, Context, Mode, Nack, Refused, Request, Wish};
use strandway_wire::uet::ses::{Place, Standard};
use strandway_wire::uet::{self, Datagram, Pds, Ses};

/// A datagram of a recording.
struct Recorded {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

fn recordings() -> Vec<(String, Vec<Recorded>)> {
    let folder = match std::env::var_os("STRANDWAY_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let folder = folder.join("uet");
    let found = recordings_in(&folder);
    if found.is_empty() {
        println!("skipped: no recordings in {}; set STRANDWAY_DATA to the folder above them", folder.display());
    }
    found
}

/// Conversations of SUET and our node, which are part of the repository.
fn fixtures() -> Vec<(String, Vec<Recorded>)> {
    recordings_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/uet"))
}

fn recordings_in(folder: &Path) -> Vec<(String, Vec<Recorded>)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    let named = |path: &PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, datagrams(&std::fs::read(path).expect("readable")))
    };
    paths.iter().map(named).collect()
}

/// The datagrams of a capture file: Ethernet, IPv4 without options, UDP.
fn datagrams(file: &[u8]) -> Vec<Recorded> {
    let mut rest = &file[24..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let frame = &rest[16..16 + length];
        let end = |ip: usize, port: usize| {
            let address: [u8; 4] = frame[ip..ip + 4].try_into().expect("four bytes");
            SocketAddr::from((address, u16::from_be_bytes([frame[port], frame[port + 1]])))
        };
        found.push(Recorded { from: end(26, 34), to: end(30, 36), bytes: frame[42..].to_vec() });
        rest = &rest[16 + length..];
    }
    found
}

/// A message of a recording.
struct Message {
    first: u32,
    packets: u32,
    standard: Standard,
    bytes: Vec<u8>,
}

/// A context of a recording: one direction of it.
struct Recording {
    from: SocketAddr,
    number: u16,
    start: u32,
    /// Requests by sequence number.
    requests: BTreeMap<u32, (Standard, Vec<u8>)>,
    /// Messages that are there as a whole, up to the first one that is not.
    messages: Vec<Message>,
}

/// The contexts of a recording, by sender and its number.
fn contexts(recorded: &[Recorded]) -> Vec<Recording> {
    let mut contexts: BTreeMap<(SocketAddr, u16), Recording> = BTreeMap::new();
    for Recorded { from, bytes, .. } in recorded {
        let datagram = uet::decode(bytes).expect("a datagram");
        let (Pds::Request(request), Ses::Standard(standard)) = (datagram.pds, datagram.ses) else { continue };
        let context = contexts.entry((*from, request.source)).or_insert_with(|| Recording {
            from: *from,
            number: request.source,
            start: request.start_psn().expect("a context begins with SYN"),
            requests: BTreeMap::new(),
            messages: Vec::new(),
        });
        context.requests.entry(request.psn).or_insert((standard, datagram.payload.to_vec()));
    }
    contexts.into_values().map(Recording::with_messages).collect()
}

impl Recording {
    fn with_messages(mut self) -> Recording {
        let mut psn = self.start;
        while let Some((standard, _)) = self.requests.get(&psn) {
            let (standard, first, mut bytes) = (*standard, psn, Vec::new());
            loop {
                let Some((part, payload)) = self.requests.get(&psn) else { return self };
                bytes.extend_from_slice(payload);
                psn = psn.wrapping_add(1);
                if part.last {
                    break;
                }
            }
            assert_eq!(bytes.len(), standard.length as usize, "a message is as long as its packets");
            self.messages.push(Message { first, packets: psn.wrapping_sub(first), standard, bytes });
        }
        self
    }

    /// Distance from the first sequence number.
    fn count(&self, psn: u32) -> u32 {
        psn.wrapping_sub(self.start)
    }

    /// Packets of whole messages.
    fn packets(&self) -> u32 {
        self.messages.iter().map(|message| message.packets).sum()
    }
}

/// The acknowledgements and NACKs for a context.
fn feedback<'a>(context: &Recording, datagram: &Recorded, decoded: &Datagram<'a>) -> Option<Pds> {
    let target = match decoded.pds {
        Pds::Ack(Ack { target, .. }) | Pds::Nack(Nack { about: Refused::Packet { target, .. }, .. }) => target,
        _ => return None,
    };
    (datagram.to == context.from && target == context.number).then_some(decoded.pds)
}

/// Names of recordings with selective repeat contain "sr", those with losses "loss".
fn is_selective(name: &str) -> bool {
    name.contains("_sr")
}

fn all(uet: &mut Uet, now: Time) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| uet.poll_transmit(now)).map(|(_, bytes)| bytes).collect()
}

fn events(uet: &mut Uet) -> Vec<Event> {
    std::iter::from_fn(|| uet.poll_event()).collect()
}

/// The answers of our target.
#[derive(Default)]
struct Answers {
    /// Packets without a hole.
    next: u32,
    out_of_order: Vec<u32>,
    close: Option<Vec<u8>>,
    refused: usize,
}

impl Answers {
    fn add(&mut self, context: &Recording, bytes: &[u8]) {
        let datagram = uet::decode(bytes).expect("a datagram");
        match (datagram.pds, datagram.ses) {
            (Pds::Ack(ack), Ses::None) => {
                assert_eq!(ack.target, context.number);
                self.close = Some(bytes.to_vec());
            }
            (Pds::Ack(ack), Ses::Response(response)) => {
                assert_eq!(ack.target, context.number);
                self.next = self.next.max(context.count(ack.cumulative).wrapping_add(1));
                let acked = ack.acked_psn().expect("a packet caused it");
                let (standard, _) = &context.requests[&acked];
                assert_eq!((response.message, response.length), (standard.message, standard.length));
                if standard.common.opcode == Opcode::ATOMIC {
                    assert_eq!(response.answer.code, ReturnCode::UNSUPPORTED_OPERATION);
                    self.refused += 1;
                } else {
                    assert_eq!(response.answer.code, ReturnCode::OK);
                }
            }
            (Pds::Nack(Nack { code: NackCode::OUT_OF_ORDER, about: Refused::Packet { psn, .. }, .. }), _) => {
                self.out_of_order.push(psn);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Feeds the requests of a context to a target of ours.
fn replay_to_target(name: &str, recorded: &[Recorded], context: &Recording) -> Answers {
    let acks = if is_selective(name) { Acks::Selective } else { Acks::Plain };
    let mut target = Uet::new(Config { acks, ..Config::default() });
    let writes = || context.messages.iter().filter(|message| message.standard.common.opcode == Opcode::WRITE);
    // Requests of cut messages write, too.
    for (standard, _) in context.requests.values().filter(|(s, _)| s.common.opcode == Opcode::WRITE) {
        if target.memory(standard.key).is_none() {
            let same = context.requests.values().filter(|(other, _)| other.key == standard.key).map(|(other, _)| other);
            let base = same.clone().map(|other| other.offset).min().expect("one at least");
            let end = same.map(|other| other.offset + u64::from(other.length)).max().expect("one at least");
            target.register(standard.key, base, vec![0; (end - base) as usize]);
        }
    }
    let mut answers = Answers::default();
    let mut now = Time::ZERO + Span::from_ms(1);
    let (mut theirs, mut their_nacks, mut their_close) = (0u32, Vec::new(), None);
    for datagram in recorded {
        now = now + Span::from_us(10);
        let decoded = uet::decode(&datagram.bytes).expect("a datagram");
        match decoded.pds {
            Pds::Request(Request { source, .. }) if (datagram.from, source) == (context.from, context.number) => {
                target.handle_datagram(now, datagram.from, &datagram.bytes);
            }
            Pds::Control(control) if (datagram.from, control.source) == (context.from, context.number) => {
                // The peer's number is that of the recorded target; ours has another one.
                let control = uet::pds::Control { target: Context::Known(1), ..control };
                let mut bytes = Vec::new();
                let datagram = Datagram { pds: Pds::Control(control), ..decoded };
                uet::encode(&datagram, &mut bytes).expect("it fits");
                target.handle_datagram(now, context.from, &bytes);
            }
            _ => match feedback(context, datagram, &decoded) {
                Some(Pds::Ack(ack)) if decoded.ses == Ses::None => their_close = Some(ack),
                Some(Pds::Ack(ack)) => {
                    theirs = context.count(ack.cumulative).wrapping_add(1).max(theirs);
                    // Within a message we acknowledge every 16 KiB.
                    let ours = answers.next + 12;
                    assert!(ours >= theirs, "{name}: SUET had {theirs} packets, we {}", answers.next);
                }
                Some(Pds::Nack(Nack { code: NackCode::OUT_OF_ORDER, about: Refused::Packet { psn, .. }, .. })) => {
                    their_nacks.push(psn);
                }
                _ => {}
            },
        }
        for bytes in all(&mut target, now) {
            answers.add(context, &bytes);
        }
    }
    assert!(answers.next >= context.packets(), "{name}: {} of {}", answers.next, context.packets());
    let arrived = events(&mut target);
    let messages: Vec<&Message> =
        context.messages.iter().filter(|m| m.standard.common.opcode != Opcode::ATOMIC).collect();
    assert_eq!(arrived.len(), messages.len(), "{name}");
    for (event, message) in arrived.iter().zip(messages) {
        let standard = &message.standard;
        let Place::First { header_data } = standard.place else { panic!("a first packet") };
        let header_data = standard.has_header_data.then_some(header_data);
        let from = context.from;
        let expected = match standard.common.opcode {
            Opcode::WRITE => {
                let (key, offset, bytes) = (standard.key, standard.offset, standard.length);
                Event::Written { from, key, offset, bytes, header_data }
            }
            opcode => {
                let tag = (opcode == Opcode::TAGGED_SEND).then_some(standard.key);
                Event::Message { from, tag, header_data, bytes: message.bytes.clone() }
            }
        };
        assert_eq!(event, &expected, "{name}");
    }
    // The last write to each place is the one that stays.
    if let Some(last) = writes().next_back() {
        let same = context.requests.values().filter(|(other, _)| other.key == last.standard.key);
        let base = same.map(|(other, _)| other.offset).min().expect("one at least");
        let memory = target.memory(last.standard.key).expect("registered");
        let at = (last.standard.offset - base) as usize;
        let is_overwritten = context.packets() < context.requests.len() as u32;
        assert!(is_overwritten || memory[at..at + last.bytes.len()] == last.bytes[..], "{name}");
    }
    let is_lossy = name.contains("loss");
    assert!(their_nacks.iter().all(|psn| answers.out_of_order.contains(psn)), "{name}: SUET's NACKs are ours");
    assert!(is_lossy || answers.out_of_order.is_empty());
    if let Some(ack) = their_close {
        let close = answers.close.as_ref().expect("SUET acknowledged the close");
        let ours = uet::decode(close).expect("a datagram");
        let Pds::Ack(close) = ours.pds else { panic!("an acknowledgement") };
        // SUET with selective repeat sends an ACK_CC.
        let same = Ack { source: close.source, congestion: None, retransmitted: close.retransmitted, ..ack };
        assert_eq!(close, same, "{name}");
    }
    assert_eq!(target.counters().malformed, 0, "{name}");
    answers
}

/// The recorded context with 1 as the number of its target, which is that of ours.
fn renumbered(recorded: &[Recorded], context: &Recording) -> Vec<Recorded> {
    let change = |recorded: &Recorded| {
        let mut bytes = recorded.bytes.clone();
        if let Ok(Datagram { pds: Pds::Request(request), ses, payload }) = uet::decode(&recorded.bytes)
            && (recorded.from, request.source) == (context.from, context.number)
            && let Context::Known(_) = request.target
        {
            bytes.clear();
            let pds = Pds::Request(Request { target: Context::Known(1), ..request });
            uet::encode(&Datagram { pds, ses, payload }, &mut bytes).expect("it fits");
        }
        Recorded { from: recorded.from, to: recorded.to, bytes }
    };
    recorded.iter().map(change).collect()
}

#[test]
fn our_target_takes_everything_that_suet_sent() {
    let (mut contexts_seen, mut nacks, mut refused) = (0, 0, 0);
    let recordings = recordings();
    for (name, recorded) in &recordings {
        for context in contexts(recorded) {
            let answers = replay_to_target(name, &renumbered(recorded, &context), &context);
            contexts_seen += 1;
            nacks += answers.out_of_order.len();
            refused += answers.refused;
        }
    }
    if !recordings.is_empty() {
        assert!(
            contexts_seen >= 2 * recordings.len() - 3 && nacks > 20 && refused >= 2,
            "{contexts_seen} {nacks} {refused}"
        );
    }
}

#[test]
fn every_datagram_of_the_fixtures_is_read_and_written_to_the_same_bytes() {
    for (name, recorded) in fixtures() {
        for datagram in recorded {
            let mut bytes = Vec::new();
            uet::encode(&uet::decode(&datagram.bytes).expect("a datagram"), &mut bytes).expect("it was read");
            assert_eq!(bytes, datagram.bytes, "{name}");
        }
    }
}

#[test]
fn our_target_takes_what_suet_sent_to_us() {
    let (mut messages, mut nacks) = (0, 0);
    let fixtures = fixtures();
    for (name, recorded) in fixtures.iter().filter(|(name, _)| name.starts_with("to_ours")) {
        for context in contexts(recorded) {
            let answers = replay_to_target(name, &renumbered(recorded, &context), &context);
            messages += context.messages.len();
            nacks += answers.out_of_order.len();
            assert!(answers.close.is_some(), "{name}: SUET closed its context");
        }
    }
    // Three messages in each recording, and the one that ends it.
    assert_eq!(messages, 3 * 4);
    assert!(nacks > 0, "SUET's packets were lost in one of them");
}

/// Lets an initiator of ours send the messages of a context, and feeds it SUET's answers.
fn replay_to_initiator(name: &str, recorded: &[Recorded], context: &Recording) -> usize {
    let first = &context.messages[0].standard.common;
    let mode = if name.contains("rud") { Mode::Unordered } else { Mode::Ordered };
    let process = [first.process, first.index];
    // Time hardly moves: nothing is sent again unless an answer asks for it.
    let config = Config { mode, process, timeout: Span::from_ms(60_000), ..Config::default() };
    let mut ours = Uet::new(config);
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let mut now = Time::ZERO + Span::from_ms(1);
    let (mut posted, mut start, mut sent) = (0, 0, BTreeMap::new());
    let (mut clears, mut wishes, mut close, mut happened) = (Vec::new(), 0, None, Vec::new());
    let mut is_closing = false;
    for datagram in recorded {
        now = now + Span(1_000);
        let decoded = uet::decode(&datagram.bytes).expect("a datagram");
        match decoded.pds {
            Pds::Request(request) if (datagram.from, request.source) == (context.from, context.number) => {
                while let Some(message) = context.messages.get(posted)
                    && context.count(message.first) <= context.count(request.psn)
                {
                    let standard = &message.standard;
                    let Place::First { header_data } = standard.place else { panic!("a first packet") };
                    let header_data = standard.has_header_data.then_some(header_data);
                    let bytes = message.bytes.clone();
                    match standard.common.opcode {
                        Opcode::WRITE => ours.write(now, peer, standard.key, standard.offset, header_data, bytes),
                        Opcode::SEND => ours.send(now, peer, None, bytes),
                        _ => ours.send(now, peer, Some(standard.key), bytes),
                    };
                    posted += 1;
                }
            }
            Pds::Control(control) if (datagram.from, control.source) == (context.from, context.number) => {
                if control.kind == ControlKind::CLOSE && !is_closing {
                    is_closing = true;
                    ours.close(peer);
                }
            }
            _ => {
                let shift = |psn: u32| psn.wrapping_sub(context.start).wrapping_add(start);
                let pds = match feedback(context, datagram, &decoded) {
                    // The recording was cut in a message that we do not send.
                    Some(Pds::Ack(ack))
                        if context.count(ack.cumulative).wrapping_add(1)
                            > context.packets() + u32::from(is_closing) =>
                    {
                        None
                    }
                    Some(Pds::Ack(ack)) => {
                        wishes += usize::from(ack.wish == Wish::Clear);
                        Some(Pds::Ack(Ack { cumulative: shift(ack.cumulative), target: 1, ..ack }))
                    }
                    Some(Pds::Nack(nack)) => match nack.about {
                        Refused::Packet { psn, source, .. } => {
                            let about = Refused::Packet { psn: shift(psn), source, target: 1 };
                            Some(Pds::Nack(Nack { about, ..nack }))
                        }
                        Refused::Rudi { .. } => None,
                    },
                    _ => None,
                };
                if let Some(pds) = pds {
                    let mut bytes = Vec::new();
                    uet::encode(&Datagram { pds, ..decoded }, &mut bytes).expect("it fits");
                    ours.handle_datagram(now, peer, &bytes);
                }
            }
        }
        for bytes in all(&mut ours, now) {
            let datagram = uet::decode(&bytes).expect("a datagram");
            match (datagram.pds, datagram.ses) {
                (Pds::Request(request), Ses::Standard(standard)) => {
                    if let Some(first) = request.start_psn() {
                        start = first;
                    }
                    let count = request.psn.wrapping_sub(start);
                    sent.entry(count).or_insert((request, standard, datagram.payload.to_vec()));
                }
                (Pds::Control(control), Ses::None) if control.kind == ControlKind::CLEAR => {
                    clears.push(control.payload)
                }
                (Pds::Control(control), Ses::None) if control.kind == ControlKind::CLOSE => close = Some(control.psn),
                other => panic!("{other:?}"),
            }
        }
        happened.extend(events(&mut ours));
    }
    // Every packet has the bytes that SUET sent, besides the number of its message.
    for (count, (request, standard, payload)) in &sent {
        let (theirs, their_payload) = &context.requests[&context.start.wrapping_add(*count)];
        let same = Standard { message: theirs.message, ..*standard };
        assert_eq!((&same, payload), (theirs, their_payload), "{name}: packet {count}");
        assert_eq!(request.mode, mode);
    }
    assert!(sent.len() as u32 <= context.packets());
    assert_eq!((clears.len(), ours.counters().malformed), (wishes, 0), "{name}");
    let completed = happened.iter().filter(|event| matches!(event, Event::Completed { .. })).count();
    let is_over = happened.contains(&Event::Closed { peer });
    let rest: Vec<&Event> =
        happened.iter().filter(|e| !matches!(e, Event::Completed { .. } | Event::Closed { .. })).collect();
    assert!(rest.is_empty(), "{name}: {rest:?}");
    if is_over {
        assert_eq!((completed, sent.len() as u32), (context.messages.len(), context.packets()), "{name}");
        assert_eq!(close, Some(start.wrapping_add(context.packets())), "{name}");
        assert_eq!(ours.contexts(), [0, 0]);
    }
    usize::from(is_over)
}

#[test]
fn our_initiator_understands_what_suet_answered_to_us() {
    let fixtures = fixtures();
    let mut closed = 0;
    for (name, recorded) in fixtures.iter().filter(|(name, _)| name.starts_with("to_suet")) {
        for context in contexts(recorded) {
            closed += replay_to_initiator(name, recorded, &context);
        }
    }
    assert_eq!(closed, 2, "SUET acknowledged each close");
}

#[test]
fn our_initiator_sends_suets_bytes_and_understands_its_answers() {
    let recordings = recordings();
    let mut closed = 0;
    for (name, recorded) in &recordings {
        for context in contexts(recorded) {
            // Atomic operations are not among ours.
            if context.messages.iter().any(|message| message.standard.common.opcode == Opcode::ATOMIC) {
                continue;
            }
            closed += replay_to_initiator(name, recorded, &context);
        }
    }
    assert!(recordings.is_empty() || closed >= 20, "{closed} contexts closed");
}
