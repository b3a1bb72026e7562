//! Two ranks over two planes that lose, repeat, reorder and corrupt datagrams and fall silent in turns: every sum and
//! every byte is right. `CHAOS=500` for that many rounds.

use super::support::planes;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use strandway_group::process::{Group, GroupOptions, Process, ProcessOptions, Reduction, Store, Values};
use strandway_udp::impair::{Impairment, Wire};

/// A store that puts a wire before each address that a rank publishes, so that its peer calls it through the wire.
#[derive(Clone, Default)]
struct Wired(Values, Arc<Mutex<Vec<(usize, Wire)>>>);

impl Store for Wired {
    fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        if !key.contains("/rank") {
            return self.0.set(key, value);
        }
        let (mut text, mut plane) = (String::new(), 0);
        for line in String::from_utf8_lossy(value).lines() {
            match line.strip_prefix("plane=") {
                Some(address) => {
                    let to = address.parse().expect("an address");
                    let wire = Wire::to(to, Impairment::default(), plane as u64 + 1).expect("a wire");
                    text.push_str(&format!("plane={}\n", wire.front()));
                    self.1.lock().expect("no panic").push((plane, wire));
                    plane += 1;
                }
                None => text.push_str(&format!("{line}\n")),
            }
        }
        self.0.set(key, text.as_bytes())
    }

    fn get(&mut self, key: &str, timeout: Duration) -> io::Result<Vec<u8>> {
        self.0.get(key, timeout)
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        self.0.remove(key)
    }
}

const LENGTHS: [usize; 5] = [1, 100, 3_000, 40_000, 200_000];

/// One round of calls, all checked.
fn round(group: &Group, number: u64) {
    let (rank, other) = (i64::from(group.rank()), 1 - group.rank());
    let length = LENGTHS[number as usize % LENGTHS.len()];
    let of = |rank: i64| (0..length as i64).map(move |place| place * 3 + rank + number as i64);
    let mut sum: Vec<i64> = of(rank).collect();
    group.all_reduce(&mut sum, Reduction::Sum).expect("summed");
    assert!(sum.iter().zip(of(0).zip(of(1))).all(|(sum, (one, two))| *sum == one + two), "sum {number}");
    let root = (number % 2) as u32;
    let mut bytes: Vec<i64> = if rank == i64::from(root) { of(9).collect() } else { vec![0; length] };
    group.broadcast(&mut bytes, root).expect("broadcast");
    assert!(bytes.iter().zip(of(9)).all(|(byte, right)| *byte == right), "broadcast {number}");
    let sent: Vec<i64> = of(rank).collect();
    let sending = group.start_send(other, 3, super::support::lent(sent), None).expect("begun");
    let mut received = vec![0i64; length];
    group.recv(&mut received, Some(other), 3).expect("received");
    assert!(received.iter().zip(of(1 - rank)).all(|(byte, right)| *byte == right), "message {number}");
    sending.wait().expect("sent");
}

#[test]
fn two_bad_planes_change_no_sum_and_no_byte() {
    let rounds: u64 = std::env::var("CHAOS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(15);
    let (store, done) = (Wired::default(), Arc::new(AtomicU64::new(0)));
    let ranks: Vec<_> = (0..2u32)
        .map(|rank| {
            let (mut store, done) = (store.clone(), Arc::clone(&done));
            thread::spawn(move || {
                let options = ProcessOptions { payload: Some(1_200), shared_memory: false, ..planes(2) };
                let process = Process::join(&mut store, rank, &options).expect("joined");
                let patience = Duration::from_secs(120);
                let options = GroupOptions { timeout: patience, patience };
                let group = Group::form(&process, &mut store, rank, 2, options).expect("met");
                for number in 0..rounds {
                    round(&group, number);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                drop(group);
                process.close().expect("all has arrived");
            })
        })
        .collect();
    let bad = Impairment {
        loss: 0.03,
        duplicate: 0.02,
        reorder: 0.05,
        hold: Duration::from_millis(1),
        corrupt: 0.005,
        ..Impairment::default()
    };
    let mut step = 0u64;
    while ranks.iter().any(|rank| !rank.is_finished()) {
        thread::sleep(Duration::from_millis(40));
        // Good, one plane bad, both bad, one silent: in turns, and on each plane.
        let plane = (step / 4 % 2) as usize;
        for (of, wire) in store.1.lock().expect("no panic").iter() {
            let here = *of == plane;
            let impaired = match step % 4 {
                1 => here,
                2 => true,
                _ => false,
            };
            wire.change(if impaired { bad } else { Impairment::default() });
            wire.silence(step % 4 == 3 && here);
        }
        step += 1;
    }
    ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
    assert_eq!(done.load(Ordering::Relaxed), 2 * rounds);
}
