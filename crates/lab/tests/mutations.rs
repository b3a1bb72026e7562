//! Scenarios that no user would write: those of the repository with keys, values and sections of each other. None
//! panics in its check, in its run or in its reports. A run that is told to stop stops.
//!
//! `MUTATIONS=FROM..TO cargo test --release -p strandway-lab --test mutations` tries others; the number of one is its
//! seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use strandway_lab::{Estimate, Scenario, run};
use strandway_proto::rng::{Random, StreamKind};
use strandway_report::{html, markdown, text};
use strandway_sim::Control;
use toml::{Table, Value};

/// The numbers that `cargo test` tries.
const USUAL: std::ops::Range<u64> = 0..400;
/// Packet hops of the largest run that is made: some tenths of a second.
const HOPS_MAX: u64 = 300_000;
/// A run is stopped after this time, and must end then.
const LONGEST: Duration = Duration::from_secs(2);
const STOPPED: Duration = Duration::from_secs(60);

/// Values at the edges, for any key.
fn edges() -> Vec<Value> {
    let mut edges: Vec<Value> = [-1, 0, 1, 2, 3, 5, 7, 8, 16, 63, 1_000_000].map(Value::Integer).into();
    edges.extend([0.0, 0.5, 1.0, -0.5, 1e300, f64::NAN, f64::INFINITY].map(Value::Float));
    let words = "|0 B|1 B|1 kB|65 kB|1 MB|0 us|1 ps|1 ns|3 us|1 ms|1 Gbps|400 Gbps|host0|0|nccl|ring";
    edges.extend(words.split('|').map(|word| Value::String(word.to_string())));
    edges.extend([Value::Boolean(true), Value::Boolean(false), Value::Array(Vec::new()), Value::Table(Table::new())]);
    edges
}

/// Chooses.
struct Dice(Random);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u32) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// All scenarios of the repository that a test can afford, with their places.
fn scenarios() -> Vec<(PathBuf, Table)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            match entry.path() {
                path if path.is_dir() => walk(&path, found),
                path if path.extension().is_some_and(|end| end == "toml") => found.push(path),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios"), &mut found);
    found.sort();
    let read = |path: PathBuf| {
        let table: Table = std::fs::read_to_string(&path).ok()?.parse().ok()?;
        let small = hosts(&table).is_none_or(|hosts| hosts <= 1_024);
        (small && Scenario::load(&path).is_ok()).then_some((path, table))
    };
    found.into_iter().filter_map(read).collect()
}

fn hosts(table: &Table) -> Option<i64> {
    table.get("fabric")?.get("hosts")?.as_integer()
}

/// Every section: the top tables, and the tables in top arrays.
fn sections(table: &mut Table) -> Vec<&mut Table> {
    let mut found = Vec::new();
    for (_, value) in table.iter_mut() {
        match value {
            Value::Table(table) => found.push(table),
            Value::Array(items) => found.extend(items.iter_mut().filter_map(Value::as_table_mut)),
            _ => {}
        }
    }
    found
}

fn mutate(table: &mut Table, all: &[(PathBuf, Table)], dice: &mut Dice) {
    let (_, other) = dice.of(all);
    let edges = edges();
    match dice.below(10) {
        // A section of another scenario beside or instead of ours.
        0..3 => {
            let names: Vec<&String> = other.keys().collect();
            if let [_, ..] = names[..] {
                let name = *dice.of(&names);
                table.insert(name.clone(), other[name].clone());
            }
        }
        // A section less.
        3 => {
            let names: Vec<String> = table.keys().cloned().collect();
            if let [_, ..] = names[..] {
                table.remove(dice.of(&names));
            }
        }
        // A key of another scenario's section of this name, or a value at an edge for a key of ours, or a key less.
        kind => {
            let mut other = other.clone();
            let name = {
                let names: Vec<String> = table.keys().filter(|name| other.contains_key(*name)).cloned().collect();
                if names.is_empty() { None } else { Some(dice.of(&names).clone()) }
            };
            let donor: Vec<Table> = match name.as_ref().and_then(|name| other.remove(name)) {
                Some(Value::Table(table)) => vec![table],
                Some(Value::Array(items)) => items.iter().filter_map(Value::as_table).cloned().collect(),
                _ => Vec::new(),
            };
            let mut ours = sections(table);
            if ours.is_empty() {
                return;
            }
            let at = dice.below(ours.len());
            let section = &mut *ours[at];
            let keys: Vec<String> = section.keys().cloned().collect();
            match kind {
                4..7 if donor.iter().any(|section| !section.is_empty()) => {
                    let donor: Vec<(String, Value)> = donor.into_iter().flatten().collect();
                    let (key, value) = dice.of(&donor);
                    section.insert(key.clone(), value.clone());
                }
                9 if !keys.is_empty() => drop(section.remove(dice.of(&keys))),
                _ if !keys.is_empty() => drop(section.insert(dice.of(&keys).clone(), dice.of(&edges).clone())),
                _ => {}
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Refused,
    TooLarge,
    Ran,
}

/// Checks, estimates, runs and reports.
fn tried(path: &Path, table: &Table) -> Tried {
    let scenario = Scenario::from_table(&path.display().to_string(), table.clone());
    let Ok(experiment) = strandway_lab::check(&scenario) else { return Tried::Refused };
    if Estimate::of(&experiment).packet_hops > HOPS_MAX {
        return Tried::TooLarge;
    }
    let control = Arc::new(Control::new());
    let (done, is_done) = channel::<()>();
    let watcher = {
        let control = control.clone();
        std::thread::spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(LONGEST) {
                control.stop();
                let late = is_done.recv_timeout(STOPPED) == Err(RecvTimeoutError::Timeout);
                assert!(!late, "it runs on {STOPPED:?} after it was told to stop");
            }
        })
    };
    let outcome = run(&experiment, &control);
    drop(done);
    watcher.join().expect("it stops when it is told to");
    let report = &outcome.report;
    for page in [report.to_json(), html::report(report), text::report(report), markdown::report(report)] {
        assert!(!page.is_empty());
    }
    Tried::Ran
}

#[test]
fn scenarios_with_parts_of_each_other_never_panic() {
    let numbers = match std::env::var("MUTATIONS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("MUTATIONS=FROM..TO");
            from.parse().expect("a number")..to.parse().expect("a number")
        }
        Err(_) => USUAL,
    };
    let all = scenarios();
    assert!(all.len() > 50, "{}", all.len());
    let mut outcomes = Vec::new();
    for number in numbers.clone() {
        let mut dice = Dice(Random::new(number, StreamKind::Workload, 0));
        let (path, mut table) = dice.of(&all).clone();
        for _ in 0..=dice.below(2) {
            mutate(&mut table, &all, &mut dice);
        }
        // A fabric of a million hosts is checked elsewhere.
        if let Some(Value::Table(fabric)) = table.get_mut("fabric")
            && fabric.get("hosts").and_then(Value::as_integer).is_some_and(|hosts| hosts > 1_024)
        {
            fabric.insert("hosts".to_string(), Value::Integer(96));
        }
        match catch_unwind(AssertUnwindSafe(|| tried(&path, &table))) {
            Ok(outcome) => outcomes.push(outcome),
            Err(_) => panic!("mutation {number}, of {}:\n{table}", path.display()),
        }
    }
    let [refused, large, ran] = [Tried::Refused, Tried::TooLarge, Tried::Ran]
        .map(|kind| outcomes.iter().filter(|outcome| **outcome == kind).count());
    println!("{refused} refused, {large} too large, {ran} ran");
    // About a fifth of all numbers run; those that are usual are a fixed choice.
    assert!(numbers != USUAL || ran * 5 > outcomes.len(), "only {ran} ran");
}
