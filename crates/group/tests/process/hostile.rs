//! A peer with the group's key that says anything and leaves at any moment ends nothing but itself.

use super::support::planes;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{Group, GroupOptions, Process, ProcessOptions, Reduction, Store, Values};
use strandway_udp::{Completion, Config, Connection, Node, Protection, Reason, Region};

/// A store that shows what is written to it.
#[derive(Clone, Default)]
struct Watched(Values, Arc<Mutex<Vec<(String, String)>>>);

impl Store for Watched {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(value).into_owned();
        self.1.lock().expect("no panic").push((key.into(), text));
        self.0.set(key, value)
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        self.0.get(key, timeout)
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        self.0.remove(key)
    }
}

impl Watched {
    /// All values of a line `name=VALUE` under keys that begin so.
    fn values(&self, key: &str, name: &str) -> Vec<String> {
        let all = self.1.lock().expect("no panic");
        let texts = all.iter().filter(|(of, _)| of.contains(key)).flat_map(|(_, text)| text.lines());
        texts.filter_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_string())).collect()
    }

    /// The group's key.
    fn secret(&self) -> Vec<u8> {
        let hex = self.values("welcome/", "secret").remove(0);
        let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
    }
}

/// Numbers that look random, by a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The bytes of a message as `process/message.rs` lists them; often wrong.
fn message(chance: &mut Chance, group: u64, call: u64) -> Vec<u8> {
    let kind = chance.below(17) as u8;
    let mut bytes = vec![kind, 2];
    bytes.extend((0..3).map(|_| chance.below(12) as u8));
    bytes.extend([0; 3]);
    bytes.extend((chance.below(3) as u32).to_be_bytes());
    bytes.extend((chance.below(5) as u32).to_be_bytes());
    bytes.extend(if chance.below(4) == 0 { chance.0 } else { group }.to_be_bytes());
    bytes.extend((call + chance.below(50)).saturating_sub(10).to_be_bytes());
    let length = [0, 8, 16, 20, 200, 14_000][chance.below(6) as usize];
    bytes.extend((0..length).map(|_| chance.below(256) as u8));
    if chance.below(20) == 0 {
        let cut = chance.below(bytes.len() as u64) as usize;
        bytes.truncate(cut);
    }
    bytes
}

/// A visitor's settings: those of the ranks.
fn config(secret: &[u8], planes: usize) -> Config {
    Config {
        planes: vec!["[::1]:0".parse().expect("an address"); planes],
        payload: 1_200,
        protection: Protection::default(),
        ..Config::new(secret).expect("long enough").profile("uec").expect("known")
    }
}

/// One visit: hello, a few messages, and a leave at any moment.
fn visit(chance: &mut Chance, config: Config, addresses: &[std::net::SocketAddrV6], group: u64, call: u64) {
    let mut node = Node::bind(config).expect("a node");
    let connection = node.connect(addresses).expect("calls");
    let until = Instant::now() + Duration::from_secs(5);
    while !matches!(node.wait(Duration::from_millis(20)), Ok(Some(Completion::Connected { .. }))) {
        assert!(Instant::now() < until, "it answers");
    }
    let send = |node: &mut Node, connection: Connection, bytes: Vec<u8>| -> Option<Region> {
        let length = bytes.len();
        let region = node.register(bytes);
        node.send(connection, region, 0..length).ok().map(|_| region)
    };
    let mut hello = vec![1, 2, 0, 0, 0, 0, 0, 0];
    hello.extend([0; 24]);
    hello.extend((0..16).map(|_| chance.below(256) as u8));
    if chance.below(10) > 0 {
        send(&mut node, connection, hello);
    }
    for _ in 0..chance.below(6) {
        send(&mut node, connection, message(chance, group, call));
        if chance.below(3) == 0 {
            let _ = node.wait(Duration::from_micros(chance.below(2_000)));
        }
    }
    match chance.below(3) {
        // At once; after all has arrived; or without a good-bye, as a process that is killed.
        0 => {}
        1 => drop(node.wait(Duration::from_millis(2))),
        _ => {
            for _ in 0..20 {
                let _ = node.wait(Duration::from_micros(300));
            }
        }
    }
    let _ = node.close(connection);
}

#[test]
fn a_peer_that_says_anything_and_leaves_ends_only_itself() {
    let rounds: u64 = std::env::var("HOSTILE").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(60);
    for planes_of in [1, 2] {
        let (store, over) = (Watched::default(), Arc::new(AtomicBool::new(false)));
        let ranks: Vec<_> = (0..2u32)
            .map(|rank| {
                let (mut store, over) = (store.clone(), Arc::clone(&over));
                thread::spawn(move || {
                    // Without encryption the visitor's set-up is the same, and quicker.
                    let options = ProcessOptions { payload: Some(1_200), ..planes(planes_of) };
                    let process = Process::join(&mut store, rank, &options).expect("joined");
                    let patience = Duration::from_secs(60);
                    let options = GroupOptions { timeout: patience, patience };
                    let group = Group::form(&process, &mut store, rank, 2, options).expect("met");
                    for call in 0i64.. {
                        let mut sum = [call + i64::from(rank), i64::from(over.load(Ordering::Relaxed))];
                        group.all_reduce(&mut sum, Reduction::Sum).expect("no visitor ends this");
                        assert_eq!(sum[0], 2 * call + 1);
                        if sum[1] == 2 {
                            return;
                        }
                    }
                })
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(20);
        while store.values("/rank", "plane").len() < 2 * planes_of {
            assert!(Instant::now() < until, "ranks meet");
            thread::sleep(Duration::from_millis(5));
        }
        let secret = store.secret();
        let group: u64 = store.values("welcome/", "group").remove(0).parse().expect("a number");
        let addresses: Vec<_> = store.values("/rank", "plane").iter().map(|text| text.parse().expect("v6")).collect();
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        for round in 0..rounds {
            let config = config(&secret, planes_of);
            let victim = (round % 2) as usize * planes_of;
            visit(&mut chance, config, &addresses[victim..victim + planes_of], group, round);
            assert!(ranks.iter().all(|rank| !rank.is_finished()), "a rank has ended in round {round}");
        }
        over.store(true, Ordering::Relaxed);
        ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
    }
}

#[test]
fn a_peer_that_ignores_its_credit_is_disconnected() {
    let store = Watched::default();
    let join = |rank: u32| {
        let mut store = store.clone();
        move || {
            let options = ProcessOptions { payload: Some(1_200), ..planes(1) };
            let process = Process::join(&mut store, rank, &options).expect("joined");
            let group = Group::form(&process, &mut store, rank, 2, GroupOptions::default()).expect("met");
            (process, group)
        }
    };
    let other = thread::spawn({
        let mut join = join(1);
        move || join().1.barrier()
    });
    let (process, group) = join(0)();
    let mut node = Node::bind(config(&store.secret(), 1)).expect("a node");
    let connection = node.connect(process.addresses()).expect("calls");
    // Short messages of 14,000 bytes for the first call of a group that no process has; the first message gives the
    // sender's name.
    let mut head = vec![2, 2, 0, 0, 0, 0, 0, 0];
    head.extend([0; 8]);
    head.extend(77u64.to_be_bytes());
    head.extend([0; 8]);
    let mut hello = vec![1, 2];
    hello.extend([0; 30]);
    hello.extend([7; 16]);
    let (hello, bytes) = (node.register(hello), node.register([head, vec![0; 14_000]].concat()));
    let (mut arrived, until) = (0, Instant::now() + Duration::from_secs(100));
    let reason = loop {
        assert!(Instant::now() < until && arrived < 20_000, "{arrived} messages of 14,000 bytes have come");
        match node.wait(Duration::from_millis(20)).expect("it works") {
            Some(Completion::Connected { .. }) => drop(node.send(connection, hello, 0..48).expect("sent")),
            Some(Completion::Sent { .. }) => {
                arrived += 1;
                while node.send(connection, bytes, 0..14_032).is_ok() {}
            }
            Some(Completion::Closed { reason, .. }) => break reason,
            _ => {}
        }
    };
    assert_eq!(reason, Reason::ByPeer);
    // 64 MiB beyond twice the credit, which is 4 MiB.
    assert!((5_000..6_000).contains(&arrived), "{arrived} messages of 14,000 bytes");
    group.barrier().expect("the ranks go on");
    assert_eq!(other.join().expect("no panic"), Ok(()));
}
