//! Ranks meet as often as they like, also where an earlier run has left its values.

use super::support::planes;
use std::thread;
use std::time::Duration;
use strandway_group::process::{
    DirectoryStore, Group, GroupOptions, Process, ProcessOptions, Reduction, Store, Values,
};

fn options() -> (ProcessOptions, GroupOptions) {
    let patience = Duration::from_secs(20);
    (ProcessOptions { patience, ..planes(1) }, GroupOptions { timeout: patience, patience })
}

/// One life of a job of three ranks at a store; the last rank comes late. Every rank meets twice.
fn live(store: impl Store + Clone + Send + 'static) {
    let ranks: Vec<_> = (0..3u32)
        .map(|rank| {
            let mut store = store.clone();
            thread::spawn(move || {
                if rank == 2 {
                    // Rank 0 has welcomed the word that an earlier life has left by now.
                    thread::sleep(Duration::from_millis(700));
                }
                let (process_options, options) = options();
                let process = Process::join(&mut store, rank, &process_options).expect("joined");
                let first = Group::form(&process, &mut store, rank, 3, options).expect("met");
                first.barrier().expect("all are here");
                let second = Group::form(&process, &mut store, rank, 3, options).expect("met again");
                drop(first);
                let mut sum = [i64::from(rank)];
                second.all_reduce(&mut sum, Reduction::Sum).expect("summed");
                assert_eq!(sum, [3]);
                drop(second);
                process.close().expect("all has arrived");
            })
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
}

#[test]
fn a_store_serves_several_lives_and_several_groups() {
    let mut values = Values::default();
    // Left by ranks that died before they were met.
    let stale = |word: &str| format!("strandway join 1\nword={word}\nhost=a\nplace=b\ngiven=[::1]:0\n").into_bytes();
    values.set("join/1", &stale("0123456789abcdef")).expect("kept");
    values.set("join/2", &stale("fedcba9876543210")).expect("kept");
    live(values.clone());
    live(values);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut store = DirectoryStore::new(&path).expect("a folder");
    store.set("join/2", &stale("fedcba9876543210")).expect("kept");
    live(store.clone());
    let left = || std::fs::read_dir(&path).expect("there").count();
    let after_one = left();
    live(store);
    assert_eq!(left(), after_one, "the second life has removed what the first one left");
}

/// A store in which one rank reads late that the group is formed.
#[derive(Clone)]
struct Late(Values, bool);

impl Store for Late {
    fn set(&mut self, key: &str, value: &[u8]) -> std::io::Result<()> {
        self.0.set(key, value)
    }

    fn get(&mut self, key: &str, timeout: Duration) -> std::io::Result<Vec<u8>> {
        let value = self.0.get(key, timeout);
        if self.1 && key.ends_with("/go") {
            thread::sleep(Duration::from_millis(500));
        }
        value
    }
}

#[test]
fn a_rank_that_learns_late_of_the_group_is_called_without_harm() {
    let store = Values::default();
    let ranks: Vec<_> = (0..4u32)
        .map(|rank| {
            let mut store = Late(store.clone(), rank == 3);
            thread::spawn(move || {
                let (process_options, options) = options();
                let process = Process::join(&mut store, rank, &process_options).expect("joined");
                let group = Group::form(&process, &mut store, rank, 4, options).expect("met");
                let mut sum = [i64::from(rank)];
                group.all_reduce(&mut sum, Reduction::Sum).expect("summed");
                assert_eq!(sum, [6]);
            })
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
}
