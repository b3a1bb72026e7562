//! Peers with the key that say anything and leave at any moment end no receiver, no sender, and no server of copies,
//! which speaks the same messages about files.

use super::message::{CastMessage, FileBatch, Form, VERSION};
use super::{CastError, List, Listener, Options, Served, State, Summary, receive, send};
use crate::copy::parts::Target;
use crate::copy::{self, Answer, Entry, FileError, Kind, MESSAGE_MAX, Message, Modified, More};
use crate::leaver::{Leaver, addresses, rounds, spoiled};
use std::net::SocketAddrV6;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_group::Options as TeamOptions;
use strandway_proto::rng::Random;
use strandway_proto::units::Rate;
use strandway_udp::{Config, Node, Timeouts};

/// The most bytes of words that are anything.
const MOST: usize = 3_000;

/// With two planes the end of a connection can arrive in the turn of its last words.
fn config() -> Config {
    let plane: SocketAddrV6 = "[::1]:0".parse().expect("an address");
    let mut config = Config::new(&[9; 32]).expect("a key").plane(plane).plane(plane);
    config.timeouts.peer = Duration::from_secs(5);
    config.limits.connections = 128;
    config
}

/// A folder that is removed at the end, with folders `here` and `there`.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-leavers-{}-{name}", std::process::id()));
        for folder in ["here", "there"] {
            std::fs::create_dir_all(path.join(folder)).expect("a folder");
        }
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        std::fs::write(path.join("here/file"), bytes).expect("a file");
        Folder(path)
    }

    fn source(&self) -> Vec<PathBuf> {
        vec![self.0.join("here/file")]
    }

    fn there(&self) -> PathBuf {
        self.0.join("there")
    }

    /// Has the file arrived? It is removed.
    fn takes(&self) -> bool {
        let read = |path: &Path| std::fs::read(path).ok();
        let same = read(&self.there().join("file")) == read(&self.source()[0]);
        let _ = std::fs::remove_file(self.there().join("file"));
        same
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> Options {
    let team =
        TeamOptions { no_multicast: true, patience: Duration::from_secs(3), ..TeamOptions::new(Rate::from_gbps(1)) };
    Options { block: 1 << 16, wait: Duration::from_secs(5), ..Options::new(team) }
}

fn one(random: &mut Random, of: &[u32]) -> u32 {
    of[random.below(of.len() as u32) as usize]
}

fn entries(random: &mut Random) -> Vec<Entry> {
    let count = one(random, &[0, 1, 1, 3]);
    (0..count)
        .map(|id| {
            let kinds = [
                Kind::File(0),
                Kind::File(5),
                Kind::File(u64::MAX),
                Kind::Directory,
                Kind::Link(b"x".to_vec()),
                Kind::Hard(b"a".to_vec()),
            ];
            let paths = [&b"a"[..], b"b/c", b"../x", b""];
            Entry {
                id: one(random, &[id, id, 7]),
                path: paths[random.below(4) as usize].to_vec(),
                mode: 0o644,
                modified: Modified::default(),
                kind: kinds[random.below(6) as usize].clone(),
                more: More::default(),
            }
        })
        .collect()
}

/// A message about files, of either side.
fn message(random: &mut Random) -> Message {
    match random.below(6) {
        0 | 1 => Message::Offer(entries(random)),
        2 => Message::Settle(entries(random)),
        3 => Message::Refused(FileError::Full),
        4 => Message::Answers(vec![(
            one(random, &[0, 0, 1]),
            Answer::Missing(vec![(0, one(random, &[1, 5, u32::MAX]))]),
        )]),
        _ => {
            Message::Progress { rebuilt: 0, freed: vec![one(random, &[0, 1, 999]) as u16], results: vec![(0, Ok(()))] }
        }
    }
}

/// Messages of a sender, in about the right order.
fn messages_of_a_sender(random: &mut Random, ours: &[SocketAddrV6], theirs: &[SocketAddrV6]) -> Vec<Vec<u8>> {
    let secret = std::array::from_fn(|_| random.next_u64() as u8);
    let form = Form {
        rank: one(random, &[1, 1, 1, 1, 0, 2]),
        team: 3,
        port: None,
        trees: one(random, &[1, 1, 1, 0, 65_535]) as u16,
        secret,
        rate: [1_000_000, 1_000_000, 0, u64::MAX][random.below(4) as usize],
        pace: one(random, &[900_000, 900_000, 0]),
        rtt_us: one(random, &[1_000, 1_000, 0, u32::MAX]),
        patience_ms: one(random, &[100, 100, 0, u32::MAX]),
        trusting: random.chance(0.5),
        parity: [[0, 0], [0, 0], [4, 2], [255, 255]][random.below(4) as usize],
        payload: one(random, &[1_344, 1_344, 0, 65_535]) as u16,
        members: vec![ours.to_vec(), theirs.to_vec()],
    };
    let batch = FileBatch {
        slot: one(random, &[0, 0, 1, 999]) as u16,
        bytes: one(random, &[10, 70_000, 0, u32::MAX]),
        hash: [1; 32],
        listed: random.chance(0.2),
        next: one(random, &[0, 0, 16, u32::MAX]),
    };
    let hello = CastMessage::Hello {
        version: if random.chance(0.1) { 9 } else { VERSION },
        block_log2: one(random, &[16, 16, 16, 12, 26, 0]) as u8,
        slots: one(random, &[2, 2, 2, 0, 64]) as u16,
    };
    let all = [
        hello,
        CastMessage::Form(form),
        CastMessage::Copy(message(random).encode()),
        CastMessage::Try,
        CastMessage::Planes(0),
        CastMessage::Parcel(batch),
        CastMessage::Over,
    ];
    let upto = 1 + random.below(all.len() as u32) as usize;
    let mut messages: Vec<Vec<u8>> = all.into_iter().take(upto).map(|message| message.encode()).collect();
    messages.retain(|_| random.chance(0.9));
    spoil_one(random, messages)
}

fn messages_of_a_receiver(random: &mut Random) -> Vec<Vec<u8>> {
    let mut messages = vec![CastMessage::Welcome.encode()];
    for _ in 0..random.below(6) {
        messages.push(match random.below(6) {
            0 | 1 => CastMessage::Joined.encode(),
            2 => CastMessage::Heard(random.below(4)).encode(),
            3 => CastMessage::Taken.encode(),
            _ => CastMessage::Copy(message(random).encode()).encode(),
        });
    }
    spoil_one(random, messages)
}

/// Spoils one of these, half of the time.
fn spoil_one(random: &mut Random, mut messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if messages.is_empty() || random.chance(0.5) {
        return messages;
    }
    let at = random.below(messages.len() as u32) as usize;
    messages[at] = spoiled(random, messages[at].clone(), MOST);
    messages
}

/// Is set at the end, also by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn pause() {
    std::thread::sleep(Duration::from_micros(50));
}

#[test]
fn a_sender_that_says_anything_and_leaves_ends_only_its_own_cast() {
    let (folder, stop) = (Folder::new("receiver"), AtomicBool::new(false));
    let node = Node::bind(config()).expect("a node");
    let listener = Listener { name: "r".into(), addresses: addresses(&node) };
    let mut leaver = Leaver::new(config(), 21);
    leaver.may_be_silent = false;
    std::thread::scope(|scope| {
        let target = Target::open(&folder.there()).expect("a folder");
        let service = scope.spawn(|| receive(node, target, &|| stop.load(Ordering::Relaxed), |_| true));
        let _stop = SetAtEnd(&stop);
        let ours = leaver.addresses();
        for _ in 0..rounds(150) {
            let words = messages_of_a_sender(&mut leaver.random, &ours, &listener.addresses);
            leaver.call(&listener.addresses, &words, MESSAGE_MAX, &mut pause);
            assert!(!service.is_finished(), "a sender has ended the receiver: {:?}", service.join());
            if service.is_finished() {
                return;
            }
        }
        let listeners = [listener.clone()];
        let patient = Options { wait: Duration::from_secs(20), ..options() };
        let node = Node::bind(config()).expect("a node");
        let sent = send(node, &listeners, &folder.source(), &patient, &|| false, &mut |_| {}).expect("it sends");
        assert_eq!(sent.status.receivers[0].state, State::Done);
        assert!(folder.takes());
    });
    assert!(leaver.spoke >= rounds(150) / 3, "{} senders have spoken", leaver.spoke);
}

/// Casts to both, of which `odd` says these words and leaves. `wait`: how long the sender waits for answers.
fn cast_beside(
    (odd, words): (&mut Leaver, &[Vec<u8>]),
    honest: &Listener,
    folder: &Folder,
    wait: Duration,
) -> Result<Summary, CastError> {
    let listeners = [Listener { name: "odd".into(), addresses: odd.addresses() }, honest.clone()];
    let mut options = Options { wait, ..options() };
    options.team.patience = options.team.patience.max(wait / 2);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let node = Node::bind(patient()).expect("a node");
            send(node, &listeners, &folder.source(), &options, &|| false, &mut |_| {})
        });
        odd.answer_until(words, MESSAGE_MAX, &mut || {
            pause();
            sending.is_finished()
        });
        while !sending.is_finished() {
            odd.rest();
            pause();
        }
        sending.join().expect("no panic")
    })
}

/// On a machine without a processor to spare, peers answer late.
fn patient() -> Config {
    Config { timeouts: Timeouts { peer: Duration::from_secs(20), ..Timeouts::default() }, ..config() }
}

#[test]
fn a_receiver_that_says_anything_and_leaves_does_not_end_the_cast_of_the_others() {
    let (folder, stop) = (Folder::new("sender"), AtomicBool::new(false));
    let node = Node::bind(patient()).expect("a node");
    let honest = Listener { name: "honest".into(), addresses: addresses(&node) };
    let mut odd = Leaver::new(config(), 22);
    std::thread::scope(|scope| {
        let target = Target::open(&folder.there()).expect("a folder");
        scope.spawn(|| receive(node, target, &|| stop.load(Ordering::Relaxed), |_| true).expect("it serves"));
        let _stop = SetAtEnd(&stop);
        for round in 0..rounds(6).min(2_000) {
            let words = messages_of_a_receiver(&mut odd.random);
            let mut sent = cast_beside((&mut odd, &words), &honest, &folder, Duration::from_secs(5));
            if sent.is_err() {
                // Nobody answered in time. With time enough, the same words have to end well.
                sent = cast_beside((&mut odd, &words), &honest, &folder, Duration::from_secs(60));
            }
            let sent = sent.unwrap_or_else(|error| panic!("round {round}: a receiver has ended the cast: {error}"));
            assert_eq!(sent.status.receivers[1].state, State::Done, "round {round}");
            assert!(folder.takes(), "round {round}");
        }
    });
}

#[test]
fn a_client_that_says_anything_and_leaves_does_not_end_a_server_of_copies() {
    let (folder, stop) = (Folder::new("server"), AtomicBool::new(false));
    let mut node = Node::bind(config()).expect("a node");
    let at = addresses(&node);
    let mut leaver = Leaver::new(config(), 23);
    std::thread::scope(|scope| {
        let mut server = copy::Server::open(&folder.there()).expect("a folder");
        let stopped = || stop.load(Ordering::Relaxed);
        let service = scope.spawn(move || copy::serve(&mut node, &mut server, stopped, |_| {}));
        let _stop = SetAtEnd(&stop);
        for _ in 0..rounds(200) {
            let random = &mut leaver.random;
            let hello = Message::Hello {
                version: if random.chance(0.1) { 9 } else { copy::VERSION },
                block_log2: one(random, &[16, 16, 16, 12, 0]) as u8,
                slots: one(random, &[2, 2, 2, 0, 64]) as u16,
                dry_run: random.chance(0.2),
                directory: [&b""[..], b"", b"deep", b"../x"][random.below(4) as usize].to_vec(),
            };
            let mut words = vec![hello.encode()];
            (0..random.below(5)).for_each(|_| words.push(message(random).encode()));
            let words = spoil_one(random, words);
            leaver.call(&at, &words, MESSAGE_MAX, &mut pause);
            assert!(!service.is_finished(), "a client has ended the server");
        }
        let mut client = Node::bind(config()).expect("a node");
        let options = copy::Options {
            block: 1 << 16,
            slots: 4,
            limit: None,
            dry_run: false,
            preserve: Default::default(),
            delete: false,
        };
        let copied =
            copy::copy(&mut client, &at, &folder.source(), b"", &options, || false, |_| {}).expect("it copies");
        assert!(copied.failures.is_empty() && folder.takes(), "{copied:?}");
    });
    assert!(leaver.spoke >= rounds(200) / 3, "{} clients have spoken", leaver.spoke);
}

/// The messages of a receiver in a cast whose sender says these messages.
fn said_of(messages: &[CastMessage]) -> String {
    let (folder, stop) = (Folder::new("said"), AtomicBool::new(false));
    let mut node = Node::bind(config()).expect("a node");
    node.find_payloads().expect("no connection yet");
    let at = addresses(&node);
    let mut leaver = Leaver::new(config(), 24);
    let words: Vec<Vec<u8>> = messages.iter().map(CastMessage::encode).collect();
    let mut said = String::new();
    std::thread::scope(|scope| {
        let target = Target::open(&folder.there()).expect("a folder");
        let service = scope.spawn(|| {
            let mut told = Vec::new();
            let served = receive(node, target, &|| stop.load(Ordering::Relaxed), |news| {
                told.push(news.clone());
                !news.is_end()
            });
            (served, told)
        });
        let _stop = SetAtEnd(&stop);
        leaver.stay(&at, &words, MESSAGE_MAX, &mut || {
            pause();
            service.is_finished()
        });
        let (served, told) = service.join().expect("no panic");
        served.expect("it is the sender's fault");
        if let Some(Served::Ended(why)) = told.last() {
            said.clone_from(why);
        }
    });
    said
}

fn hello() -> CastMessage {
    CastMessage::Hello { version: VERSION, block_log2: 16, slots: 2 }
}

fn form() -> Form {
    Form {
        rank: 1,
        team: 3,
        port: None,
        trees: 1,
        secret: [1; 32],
        rate: 1_000_000,
        pace: 900_000,
        rtt_us: 2_000,
        patience_ms: 500,
        trusting: false,
        parity: [0, 0],
        payload: 1_344,
        members: ["[::1]:1", "[::1]:2"].map(|at| vec![at.parse().expect("an address"); 2]).into(),
    }
}

#[test]
fn a_form_of_no_team_ends_its_own_cast() {
    let malformed = copy::Malformed.to_string();
    for (form, why) in [
        (Form { rank: 0, ..form() }, &malformed[..]),
        (Form { rank: 2, ..form() }, &malformed),
        (Form { patience_ms: u32::MAX, ..form() }, &malformed),
        (Form { rtt_us: u32::MAX, ..form() }, &malformed),
        (Form { payload: 0, ..form() }, "a payload of 0 bytes: take 64 to 60000"),
        (Form { trees: 0, ..form() }, "a team with 0 trees for each plane: take 1 to 1024"),
        (Form { trees: 65_535, ..form() }, "a team with 65535 trees for each plane: take 1 to 1024"),
    ] {
        assert_eq!(said_of(&[hello(), CastMessage::Form(form.clone())]), why, "{form:?}");
    }
}

#[test]
fn a_batch_without_bytes_or_without_its_slot_ends_its_own_cast() {
    let batch = FileBatch { slot: 0, bytes: 10, hash: [1; 32], listed: false, next: 0 };
    for batch in [
        FileBatch { bytes: 0, ..batch },
        FileBatch { slot: 2, ..batch },
        FileBatch { bytes: u32::MAX, ..batch },
        FileBatch { next: u32::MAX, ..batch },
        FileBatch { listed: true, ..batch },
    ] {
        let said = said_of(&[hello(), CastMessage::Form(form()), CastMessage::Parcel(batch)]);
        assert_eq!(said, copy::Malformed.to_string(), "{batch:?}");
    }
}

#[test]
fn a_list_of_hashes_counts_only_with_its_own_hash() {
    let list = List::of(&[7; 5_000], 1_024, None).expect("few chunks");
    assert_eq!(list.checked().expect("its own").len(), 5);
    let mut forged = list.clone();
    forged.hashes[20] ^= 1;
    assert!(forged.checked().is_err_and(|error| error.to_string().contains("forged")));
    assert!(List { hash: [0; 32], ..list }.checked().is_err());
}
