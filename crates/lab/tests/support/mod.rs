//! Writes small files of other projects' formats for tests.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use strandway_import::Problems;
use strandway_lab::{Experiment, Outcome, run};
use strandway_scenario::parse;
use strandway_sim::Control;

/// Eight hosts per leaf at 400 Gb/s, 500 ns per link.
pub const FABRIC: &str = "[fabric]\nhosts = 32\nhosts_per_leaf = 8\nspines = 4\nrate = \"400 Gbps\"\nlatency = \"500 ns\"\n\
                          [profile]\nname = \"uec\"\n";

/// The time of a packet of 4,096 B with its header of 64 B, and of an acknowledgement of 64 B, at 400 Gb/s, us.
pub const PACKET: f64 = 4160.0 * 20e-6;
pub const ACK: f64 = 64.0 * 20e-6;

/// The time of a message of `bytes` bytes to a host below the same leaf, us: all packets leave one behind the other,
/// the last one crosses two links, and the leaf forwards whole packets.
pub fn message(bytes: u64) -> f64 {
    let packets = bytes.div_ceil(4096);
    let wire = bytes + 64 * packets;
    let last = bytes - (packets - 1) * 4096 + 64;
    wire as f64 * 20e-6 + last as f64 * 20e-6 + 2.0 * 0.5
}

/// The time of a message until its sender knows of its arrival, us: the acknowledgement crosses two links, too.
pub fn acknowledged(bytes: u64) -> f64 {
    message(bytes) + 2.0 * ACK + 2.0 * 0.5
}

pub fn check(text: &str, sets: &[&str]) -> Result<Experiment, Problems> {
    let mut scenario = parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    strandway_lab::check(&scenario)
}

/// Runs a scenario on 1, 2 and 7 threads, which must give the same digest.
pub fn outcome(text: &str, sets: &[&str]) -> Outcome {
    let mut experiment = check(text, sets).unwrap_or_else(|e| panic!("{e}"));
    let mut last: Option<Outcome> = None;
    for threads in [1, 2, 7] {
        experiment.plan.threads = threads;
        let outcome = run(&experiment, &Control::new());
        assert_eq!(outcome.report.head.end, "finished", "{text} {sets:?}");
        if let Some(last) = &last {
            assert_eq!(last.report.head.digest, outcome.report.head.digest, "on {threads} threads");
        }
        last = Some(outcome);
    }
    last.expect("a run")
}

/// The time of the only job of a run, us.
pub fn time(outcome: &Outcome) -> f64 {
    assert_eq!(outcome.report.jobs.len(), 1);
    let job = &outcome.report.jobs[0];
    let time = job.time_us.expect("it ended");
    assert!(time >= job.bound_us * (1.0 - 1e-9), "{time} us is below the lower bound {} us", job.bound_us);
    time
}

pub fn near(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() <= share, "{found} us, and arithmetic says {expected} us");
}

/// A folder of its own for a test; it is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `[job]` with a file.
pub fn job(path: &Path) -> String {
    format!("{FABRIC}[job]\nfile = {:?}\n", path.display().to_string())
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

pub fn number(field: u64, n: u64, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(n, out);
}

pub fn bytes(field: u64, text: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(text.len() as u64, out);
    out.extend(text);
}

/// A value of an attribute: the field's number says the type.
#[derive(Clone)]
pub enum Value {
    Varint(u64, u64),
    Fixed64(u64, u64),
    Text(String),
}

/// A node of a Chakra trace.
#[derive(Clone)]
pub struct Node {
    pub id: u64,
    pub kind: u64,
    pub data: Vec<u64>,
    pub control: Vec<u64>,
    pub start: u64,
    pub us: u64,
    pub attributes: Vec<(String, Value)>,
    pub name: String,
    pub inputs: String,
}

impl Node {
    pub fn new(id: u64, kind: u64, data: &[u64]) -> Node {
        let (control, attributes, inputs) = (Vec::new(), Vec::new(), String::new());
        Node { id, kind, data: data.to_vec(), control, start: 0, us: 0, attributes, name: format!("node{id}"), inputs }
    }

    pub fn starting(mut self, us: u64) -> Node {
        self.start = us;
        self
    }

    pub fn lasting(mut self, us: u64) -> Node {
        self.us = us;
        self
    }

    pub fn with(mut self, name: &str, value: Value) -> Node {
        self.attributes.push((name.to_string(), value));
        self
    }

    pub fn int(self, name: &str, value: u64) -> Node {
        self.with(name, Value::Varint(9, value))
    }

    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        number(1, self.id, &mut out);
        bytes(2, self.name.as_bytes(), &mut out);
        number(3, self.kind, &mut out);
        self.control.iter().for_each(|id| number(4, *id, &mut out));
        let mut packed = Vec::new();
        self.data.iter().for_each(|id| varint(*id, &mut packed));
        bytes(5, &packed, &mut out);
        if self.start > 0 {
            number(6, self.start, &mut out);
        }
        number(7, self.us, &mut out);
        if !self.inputs.is_empty() {
            let mut info = Vec::new();
            bytes(1, self.inputs.as_bytes(), &mut info);
            bytes(8, &info, &mut out);
        }
        for (name, value) in &self.attributes {
            let mut attribute = Vec::new();
            bytes(1, name.as_bytes(), &mut attribute);
            match value {
                Value::Varint(field, n) => number(*field, *n, &mut attribute),
                Value::Fixed64(field, bits) => {
                    varint(field << 3 | 1, &mut attribute);
                    attribute.extend(bits.to_le_bytes());
                }
                Value::Text(text) => bytes(29, text.as_bytes(), &mut attribute),
            }
            bytes(10, &attribute, &mut out);
        }
        out
    }
}

/// The file of a rank.
pub fn trace(nodes: &[Node]) -> Vec<u8> {
    let mut metadata = Vec::new();
    bytes(1, b"0.0.4", &mut metadata);
    let mut out = Vec::new();
    for message in std::iter::once(metadata).chain(nodes.iter().map(Node::encoded)) {
        varint(message.len() as u64, &mut out);
        out.extend(message);
    }
    out
}

pub const COMPUTE: u64 = 4;
pub const SEND: u64 = 5;
pub const RECEIVE: u64 = 6;
pub const COLLECTIVE: u64 = 7;
