//! Traffic matrices.

use super::{Findings, words};
use crate::problem::{Problems, suggest};
use crate::{FLOWS_MAX, HOSTS_MAX};
use std::collections::BTreeMap;
use strandway_proto::units::Time;

/// A parsed traffic matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Number of hosts.
    pub nodes: u32,
    /// Its flows in the file's order.
    pub flows: Vec<MatrixFlow>,
    /// The triggers that flows wait for.
    pub triggers: Vec<MatrixTrigger>,
}

/// One line `SRC->DST ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixFlow {
    /// The sender.
    pub source: u32,
    /// The receiver.
    pub destination: u32,
    /// Its `id`, if it has one.
    pub id: Option<u32>,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it starts.
    pub start: MatrixStart,
    /// Index of the trigger that it fires when the sender knows that it has arrived.
    pub on_sent: Option<u32>,
    /// Index of the trigger that it fires when it has arrived at the receiver.
    pub on_received: Option<u32>,
}

/// When a flow starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixStart {
    /// At this time.
    At(Time),
    /// When this trigger (by index) fires.
    On(u32),
}

/// One line `trigger id N oneshot` or `trigger id N barrier count C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixTrigger {
    /// Its number in the file.
    pub id: u32,
    /// How many firings it needs.
    pub needed: u32,
}

/// Parses a traffic matrix.
///
/// # Errors
/// All problems, with their lines.
pub fn parse_cm(text: &str) -> Result<Matrix, Problems> {
    parse_cm_named("matrix.cm", text)
}

/// A flow as written; triggers are still numbered by id.
struct FlowLine {
    line: usize,
    flow: MatrixFlow,
    wait: Option<u32>,
    send: Option<u32>,
    receive: Option<u32>,
}

#[derive(Default)]
struct Counts {
    nodes: Option<u64>,
    connections: Option<u64>,
    triggers: Option<u64>,
}

/// Parses a traffic matrix with start times in picoseconds. `file` is its name in messages.
///
/// # Errors
/// All problems, with their lines.
pub fn parse_cm_named(file: &str, text: &str) -> Result<Matrix, Problems> {
    parse_cm_in(file, text, StartUnit::Picoseconds)
}

/// The unit of `start` in a matrix. The UEC simulator's main program reads microseconds; its other programs and its
/// generators use picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartUnit {
    /// 10^-12 s.
    Picoseconds,
    /// 10^-6 s.
    Microseconds,
    /// Not given in the scenario. Picoseconds are assumed, and a report says so if any flow starts after zero.
    Unsaid,
}

impl StartUnit {
    /// Picoseconds of one unit.
    const fn picoseconds(self) -> u64 {
        match self {
            StartUnit::Picoseconds | StartUnit::Unsaid => 1,
            StartUnit::Microseconds => 1_000_000,
        }
    }
}

impl Matrix {
    /// True if some flow starts later than zero.
    pub fn has_starts(&self) -> bool {
        self.flows.iter().any(|f| matches!(f.start, MatrixStart::At(at) if at > Time::ZERO))
    }
}

/// Parses a traffic matrix with start times in this unit.
///
/// # Errors
/// All problems, with their lines.
pub fn parse_cm_in(file: &str, text: &str, unit: StartUnit) -> Result<Matrix, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut findings = Findings::new(file);
    let mut counts = Counts::default();
    let mut flows: Vec<FlowLine> = Vec::new();
    let mut triggers: BTreeMap<u32, (usize, Option<u32>)> = BTreeMap::new();
    let (mut flow_lines, mut trigger_lines) = (0u64, 0u64);
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let mut words = words(line);
        let Some(first) = words.next() else { continue };
        if first.contains("->") {
            flow_lines += 1;
            if flow_lines > FLOWS_MAX {
                findings.add(Some(number), "", format!("more than {FLOWS_MAX} flows"), "split the matrix");
                break;
            }
            flows.extend(flow(&mut findings, number, first, words, unit));
        } else if first == "trigger" {
            trigger_lines += 1;
            trigger(&mut findings, number, words, &mut triggers);
        } else {
            header(&mut findings, number, first, words, &mut counts);
        }
    }
    let Some(nodes) = counts.nodes else {
        if findings.none() {
            findings.add(
                None,
                "",
                "there is no line `Nodes N`",
                "is this a traffic matrix? Start it with the number of hosts",
            );
        }
        return Err(findings.finish());
    };
    if flow_lines == 0 {
        findings.add(None, "", "the matrix is empty: no line `SRC->DST ...`", "add at least one flow");
    }
    let cut = "correct the number or add the missing lines";
    for (name, said, found) in
        [("Connections", counts.connections, flow_lines), ("Triggers", counts.triggers, trigger_lines)]
    {
        if said.unwrap_or(if name == "Triggers" { 0 } else { found }) != found {
            let what = format!("`{name} {}` but there are {found} such lines", said.unwrap_or(0));
            findings.add(None, "", what, cut);
        }
    }
    let matrix = resolve(&mut findings, nodes as u32, &flows, &triggers);
    if findings.none() { Ok(matrix) } else { Err(findings.finish()) }
}

fn header<'a>(
    findings: &mut Findings,
    line: usize,
    name: &str,
    mut words: impl Iterator<Item = &'a str>,
    counts: &mut Counts,
) {
    const KNOWN: [&str; 5] = ["Nodes", "Connections", "Triggers", "Failures", "trigger"];
    let (place, low, high) = match name {
        "Nodes" => (&mut counts.nodes, 1, HOSTS_MAX),
        "Connections" => (&mut counts.connections, 0, FLOWS_MAX),
        "Triggers" => (&mut counts.triggers, 0, FLOWS_MAX),
        "Failures" | "failure" => {
            if name == "Failures" && words.next() == Some("0") {
                return;
            }
            let remedy = "take them out and write [[faults]] in the scenario";
            return findings.add(Some(line), name, "failures are not read from matrices", remedy);
        }
        _ => {
            let what = "is neither a header, a flow `SRC->DST` nor a trigger";
            return findings.add(Some(line), name, what, suggest(name, &KNOWN));
        }
    };
    if place.is_some() {
        return findings.add(Some(line), name, "is given twice", "keep one of the lines");
    }
    *place = findings.number(line, words.next(), name, low, high);
    if place.is_none() {
        // The problem is reported already. The value prevents a second report for a missing line.
        *place = Some(high);
    }
}

fn flow<'a>(
    findings: &mut Findings,
    line: usize,
    pair: &str,
    mut words: impl Iterator<Item = &'a str>,
    unit: StartUnit,
) -> Option<FlowLine> {
    const KNOWN: [&str; 7] = ["id", "start", "size", "trigger", "send_done_trigger", "recv_done_trigger", "prio"];
    const ID_MAX: u64 = u32::MAX as u64 - 1;
    let (from, to) = pair.split_once("->")?;
    let host = |findings: &mut Findings, text: &str, name: &str| {
        findings.number(line, Some(text).filter(|t| !t.is_empty()), name, 0, HOSTS_MAX - 1).map(|n| n as u32)
    };
    let source = host(findings, from, "the source");
    let destination = host(findings, to, "the destination");
    let (mut id, mut size, mut start) = (None, None, None);
    let (mut wait, mut send, mut receive) = (None, None, None);
    let mut sound = true;
    while let Some(word) = words.next() {
        let place = match word {
            "start" => {
                let value = words.next();
                match time(value, unit) {
                    Some(at) => start = Some(at),
                    None => {
                        sound = false;
                        let remedy = "write a number, such as `start 0`";
                        findings.add(
                            Some(line),
                            value.unwrap_or("start"),
                            "the start must be a time of at least zero",
                            remedy,
                        );
                    }
                }
                continue;
            }
            "size" => {
                let word = words.next();
                if word == Some("0") {
                    sound = false;
                    let what = "a flow of 0 bytes runs without end in htsim, and here every flow ends";
                    findings.add(Some(line), "size 0", what, "write its bytes, such as `size 2000000`");
                    continue;
                }
                size = findings.number(line, word, "the size", 1, 1 << 50);
                sound &= size.is_some();
                continue;
            }
            "prio" => {
                sound &= findings.number(line, words.next(), "the priority", 0, u64::MAX).is_some();
                continue;
            }
            "id" => &mut id,
            "trigger" => &mut wait,
            "send_done_trigger" => &mut send,
            "recv_done_trigger" => &mut receive,
            _ => {
                sound = false;
                findings.add(Some(line), word, "is not known in a flow", suggest(word, &KNOWN));
                continue;
            }
        };
        *place = findings.number(line, words.next(), word, 1, ID_MAX).map(|n| n as u32);
        sound &= place.is_some();
    }
    let (source, destination) = (source?, destination?);
    if source == destination {
        findings.add(Some(line), pair, "a host cannot send to itself", "name two hosts");
        return None;
    }
    if !sound {
        return None;
    }
    let Some(bytes) = size else {
        findings.add(Some(line), pair, "the flow has no size", "add `size BYTES`");
        return None;
    };
    if wait.is_some() && start.is_some_and(|at| at != Time::ZERO) {
        findings.add(Some(line), pair, "the flow has both a start time and a trigger", "keep one of them");
        return None;
    }
    if wait.is_none() && start.is_none() {
        findings.add(Some(line), pair, "the flow has neither `start` nor `trigger`", "add `start 0`");
        return None;
    }
    let start = MatrixStart::At(start.unwrap_or(Time::ZERO));
    let flow = MatrixFlow { source, destination, id, bytes, start, on_sent: None, on_received: None };
    Some(FlowLine { line, flow, wait, send, receive })
}

/// A start time, at most about 13 days. Decimals are allowed, as in htsim.
fn time(word: Option<&str>, unit: StartUnit) -> Option<Time> {
    let word = word?;
    if let Ok(start) = word.parse::<u64>() {
        return start.checked_mul(unit.picoseconds()).filter(|ps| *ps <= 1 << 60).map(Time);
    }
    let ps = word.parse::<f64>().ok()? * unit.picoseconds() as f64;
    (ps.is_finite() && (0.0..=1e18).contains(&ps)).then_some(Time(ps as u64))
}

fn trigger<'a>(
    findings: &mut Findings,
    line: usize,
    mut words: impl Iterator<Item = &'a str>,
    triggers: &mut BTreeMap<u32, (usize, Option<u32>)>,
) {
    let (mut id, mut kind, mut count) = (None, None, None);
    while let Some(word) = words.next() {
        match word {
            "id" => id = findings.number(line, words.next(), "the trigger's id", 1, u64::from(u32::MAX) - 1),
            "count" => count = findings.number(line, words.next(), "the count", 1, FLOWS_MAX),
            "oneshot" | "barrier" => kind = Some(word),
            "multishot" => {
                let remedy = "write one oneshot trigger per flow that waits";
                return findings.add(
                    Some(line),
                    word,
                    "triggers that release one flow at a time are not supported",
                    remedy,
                );
            }
            _ => {
                let remedy = suggest(word, &["id", "count", "oneshot", "barrier"]);
                return findings.add(Some(line), word, "is not known in a trigger", remedy);
            }
        }
    }
    let Some(id) = id else {
        if findings.none() {
            findings.add(Some(line), "trigger", "has no id", "write `trigger id N oneshot`");
        }
        return;
    };
    let needed = match kind {
        Some("oneshot") => Some(1),
        Some(_) => count.map(|n| n as u32),
        None => return findings.add(Some(line), "trigger", "has no kind", "write `oneshot` or `barrier`"),
    };
    if let Some((first, _)) = triggers.insert(id as u32, (line, needed)) {
        findings.add(
            Some(line),
            &id.to_string(),
            format!("the trigger is defined on line {first} already"),
            "give it another id",
        );
    }
}

/// Checks the references between lines, and replaces trigger ids by indices.
fn resolve(
    findings: &mut Findings,
    nodes: u32,
    flows: &[FlowLine],
    triggers: &BTreeMap<u32, (usize, Option<u32>)>,
) -> Matrix {
    let index: BTreeMap<u32, u32> = triggers.keys().enumerate().map(|(i, id)| (*id, i as u32)).collect();
    let mut fired = vec![0u32; triggers.len()];
    let mut waiting = vec![0u32; triggers.len()];
    let mut ids = BTreeMap::new();
    let mut resolved = Vec::with_capacity(flows.len());
    for written in flows {
        let mut flow = written.flow;
        for host in [flow.source, flow.destination] {
            if host >= nodes {
                let what = format!("there are only {nodes} hosts, numbered from 0 to {}", nodes - 1);
                findings.add(Some(written.line), &host.to_string(), what, "correct the host or the line `Nodes`");
            }
        }
        if let Some(id) = flow.id
            && let Some(first) = ids.insert(id, written.line)
        {
            let what = format!("this flow id is on line {first} already");
            findings.add(Some(written.line), &id.to_string(), what, "give every flow its own id");
        }
        let mut find = |id: Option<u32>, counter: &mut [u32]| -> Option<u32> {
            let id = id?;
            match index.get(&id) {
                Some(&i) => {
                    counter[i as usize] += 1;
                    Some(i)
                }
                None => {
                    let remedy = format!("add a line `trigger id {id} oneshot`");
                    findings.add(Some(written.line), &id.to_string(), "this trigger is not defined", remedy);
                    None
                }
            }
        };
        if let Some(i) = find(written.wait, &mut waiting) {
            flow.start = MatrixStart::On(i);
        }
        flow.on_sent = find(written.send, &mut fired);
        flow.on_received = find(written.receive, &mut fired);
        resolved.push(flow);
    }
    let mut plans = Vec::with_capacity(triggers.len());
    for (i, (id, (line, needed))) in triggers.iter().enumerate() {
        // A barrier without a count needs one firing from every flow that fires it.
        let needed = needed.unwrap_or(fired[i]);
        if waiting[i] > 0 && fired[i] < needed.max(1) {
            let what = format!("{} flows fire this trigger, but it needs {}", fired[i], needed.max(1));
            findings.add(Some(*line), &id.to_string(), what, "the flows that wait for it would never start");
        }
        plans.push(MatrixTrigger { id: *id, needed: needed.max(1) });
    }
    Matrix { nodes, flows: resolved, triggers: plans }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_with_triggers_is_understood() {
        let text = "Nodes 4\nConnections 3\nTriggers 2\n# a comment\n0->1 id 1 start 0 size 1000 send_done_trigger 7\n\
                    1->2 id 2 trigger 7 size 2000 recv_done_trigger 8\n2->3 id 3 trigger 8 size 3000\n\
                    trigger id 7 oneshot\ntrigger id 8 barrier count 1\n";
        let matrix = parse_cm(text).expect("a sound matrix");
        assert_eq!(matrix.nodes, 4);
        assert_eq!(matrix.triggers, [MatrixTrigger { id: 7, needed: 1 }, MatrixTrigger { id: 8, needed: 1 }]);
        assert_eq!(matrix.flows[0].on_sent, Some(0));
        assert_eq!(matrix.flows[1].start, MatrixStart::On(0));
        assert_eq!(matrix.flows[1].on_received, Some(1));
        assert_eq!(matrix.flows[2].start, MatrixStart::On(1));
    }

    #[test]
    fn every_defect_is_named_with_its_line() {
        let cases = [
            ("", "no line `Nodes N`"),
            ("Nodes 4\nConnections 0\n", "the matrix is empty"),
            ("Nodes 0\nConnections 1\n0->1 start 0 size 5\n", "matrix.cm:1: `0`: Nodes is out of range"),
            ("Nodes nan\n", "finite number"),
            ("Nodes 1000000000000\n", "out of range"),
            ("Nodes 4\nNodes 4\n", "given twice"),
            ("Nodes 4\nConnections 2\n0->1 start 0 size 5\n", "`Connections 2` but there are 1"),
            (
                "Nodes 4\nConnections 1\n0->9 start 0 size 5\n",
                "matrix.cm:3: `9`: there are only 4 hosts, numbered from 0 to 3",
            ),
            ("Nodes 4\nConnections 1\n1->1 start 0 size 5\n", "cannot send to itself"),
            ("Nodes 4\nConnections 1\n0->1 start 0 size -5\n", "cannot be negative"),
            ("Nodes 4\nConnections 1\n0->1 start NaN size 5\n", "must be a time"),
            ("Nodes 4\nConnections 1\n0->1 start 0 size\n", "has no number after it"),
            ("Nodes 4\nConnections 1\n0->1 start 0 si\n", "is not known in a flow; did you mean `size`?"),
            ("Nodes 4\nConnections 1\n0->1 start 0\n", "no size"),
            ("Nodes 4\nConnections 1\n0->1 size 5\n", "neither `start` nor `trigger`"),
            ("Nodes 4\nConnections 1\n0-> start 0 size 5\n", "`the destination`: has no number after it"),
            ("Nodes 4\nConnections 2\n0->1 id 1 start 0 size 5\n0->2 id 1 start 0 size 5\n", "on line 3 already"),
            ("Nodes 4\nConnections 1\n0->1 trigger 3 size 5\n", "this trigger is not defined"),
            ("Nodes 4\nConnections 1\nTriggers 1\n0->1 trigger 3 size 5\ntrigger id 3 oneshot\n", "would never start"),
            ("Nodes 4\nConnections 1\nTriggers 1\n0->1 start 0 size 5\ntrigger id 3 multishot\n", "not supported"),
            ("Nodes 4\nConnectoins 1\n0->1 start 0 size 5\n", "did you mean `Connections`?"),
            ("Nodes 4\nFailures 1\n", "write [[faults]]"),
        ];
        for (text, fragment) in cases {
            let said = parse_cm(text).expect_err(text).to_string();
            assert!(said.contains(fragment), "{text:?}\n  said: {said}\n  want: {fragment}");
        }
    }

    #[test]
    fn many_problems_are_counted_not_listed() {
        let text = format!("Nodes 4\n{}", "bad\n".repeat(500));
        let said = parse_cm(&text).expect_err("bad").to_string();
        assert!(said.contains("more problems like these"), "{said}");
        assert!(said.lines().count() < 30);
    }
}
