//! The real delay line: datagrams between two namespaces, with the line in a third one. Needs root, iproute2 and
//! ethtool; without them every test prints why it does nothing.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use strandway_fabric::loss::Burst;
use strandway_namespaces::line::{Benched, Line, Losses, Reorder, bench};
use strandway_proto::{Rate, Span};

/// Tests run one at a time, since they share the machine's processors.
static TURN: Mutex<()> = Mutex::new(());

fn line() -> Line {
    Line {
        name: "long".into(),
        latency_ns: 20_000_000,
        rate: None,
        queue: 0,
        loss: [Losses::new(0.0, Burst::NONE); 2],
        reorder: None,
        seed: 3,
    }
}

/// Sends datagrams in packets of 1,500 B over this line for a second; `None`, after a message, if this machine cannot
/// do it.
fn second(line: &Line, mbps: u64) -> Option<Benched> {
    let _turn = TURN.lock().unwrap_or_else(|broken| broken.into_inner());
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let tools = ["ip", "ethtool"].iter().all(|tool| Command::new(tool).arg("--version").output().is_ok());
    if !root || !tools {
        eprintln!("skipped: the delay line takes root, iproute2 and ethtool");
        return None;
    }
    let rate = Rate(mbps * 1_000_000);
    Some(bench(line, rate, 1500, Duration::from_secs(1)).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn a_line_delivers_everything_in_order_and_nothing_early() {
    let Some(b) = second(&line(), 50) else { return };
    assert!(b.sent > 2000, "{b:?}");
    assert_eq!((b.arrived, b.carried.failed, b.carried.lost, b.carried.dropped), (b.sent, 0, 0, 0), "{b:?}");
    assert_eq!((b.early, b.overtaken), (0, 0), "{b:?}");
}

#[test]
fn a_line_loses_what_its_model_says_and_counts_it() {
    for burst in [Burst::NONE, Burst::Packets(4.0), Burst::Time(Span::from_us(500))] {
        let losses = Losses::new(0.1, burst);
        let Some(b) = second(&Line { loss: [losses; 2], ..line() }, 50) else { return };
        assert_eq!((b.arrived + b.carried.lost, b.carried.failed), (b.sent, 0), "{burst:?} {b:?}");
        // Bursts of some frames make the share uncertain: 0.1 +- 0.05 is far beyond four standard deviations for 4,000
        // frames.
        let share = b.carried.lost as f64 / b.sent as f64;
        assert!((0.05..0.15).contains(&share), "{share} with {burst:?}");
    }
}

#[test]
fn a_slow_line_drops_what_its_queue_does_not_hold() {
    // 50 Mb/s into 25 Mb/s for a second: half of it is too much, except for the bytes that wait at the end.
    let slow = Line { rate: Some(25_000_000), queue: 100_000, ..line() };
    let Some(b) = second(&slow, 50) else { return };
    assert_eq!(b.arrived + b.carried.dropped, b.sent, "{b:?}");
    let most = 25_000_000 / 8 / 1538 + 100_000 / 1514 + 2;
    assert!(b.carried.dropped > b.sent / 3 && b.arrived <= most + most / 20, "{b:?}, at most {most}");
}

#[test]
fn a_line_reorders_when_it_is_asked_to() {
    let reorder = Some(Reorder { ppm: 50_000, by_ns: 3_000_000 });
    let Some(b) = second(&Line { reorder, ..line() }, 50) else { return };
    assert_eq!((b.arrived, b.early), (b.sent, 0), "{b:?}");
    assert!(b.overtaken > b.sent / 50, "{b:?}");
}
