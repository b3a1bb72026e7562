//! The ports of namespaces and the simulated ports judge alike: the judgement of `port.bpf.c`, compiled for this
//! processor, and [`strandway_fabric::judgement`] answer the same questions.

use crate::queue::PROGRAM;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use strandway_fabric::judgement::{Candidate, DATA, Marking, Thresholds, Verdict};
use strandway_proto::rng::{Random, StreamKind};

/// A program that reads questions (bytes that wait, bytes of the packet, a random word) and writes a judgement for
/// each.
const FRAME: [&str; 2] = [
    "#include <stdio.h>\ntypedef unsigned u32; typedef unsigned long long u64;\nstatic u32 word; static u32 random_word(void) { return word; }\n",
    "int main(void) { u32 waiting, bytes; while (scanf(\"%u %u %u\", &waiting, &bytes, &word) == 3) printf(\"%d\\n\", judge(waiting, bytes)); return 0; }\n",
];

/// Numbers of a port: the limit, the two thresholds, and the probability just below the higher one, in parts of 65,536.
/// The distance of the thresholds is a power of two, so that floating point is exact too.
const PORTS: [[u32; 4]; 6] = [
    [0, 0, 0, 0],
    [40_000, 0, 0, 0],
    [40_000, 8_000, 8_000 + 16_384, 65_536],
    [40_000, 8_000, 8_000 + 16_384, 6_554],
    [0, 3_000, 3_000 + 1_024, 32_768],
    [9_000, 5_000, 5_000, 65_536],
];

#[test]
fn the_kernels_port_and_the_simulated_port_judge_alike() {
    let text = PROGRAM.split("// judgement: begin").nth(1).and_then(|rest| rest.split("// judgement: end").next());
    let text = text.expect("the program has its judgement between two marks");
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: no C compiler (`cc`) is here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the compiled judgement");
    let mut counts = [0u32; 3];
    for (n, port) in PORTS.into_iter().enumerate() {
        let [limit, low, high, chance] = port;
        let binary = folder.path().join(n.to_string());
        let definitions = [("LIMIT", limit), ("LOW", low), ("HIGH", high), ("CHANCE", chance)]
            .map(|(key, value)| format!("-D{key}={value}"));
        let mut compiler = Command::new("cc");
        compiler.args(definitions).args(["-O1", "-x", "c", "-o"]).arg(&binary).arg("-");
        let source = [FRAME[0], text, FRAME[1]].concat();
        assert_eq!(fed(&mut compiler, &source), "", "the judgement compiles for this processor");

        let questions = questions(&port);
        let asked = questions.iter().fold(String::new(), |mut lines, (waiting, bytes, word)| {
            let _ = writeln!(lines, "{waiting} {bytes} {word}");
            lines
        });
        let answers = fed(&mut Command::new(&binary), &asked);
        let answers: Vec<u8> = answers.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(answers.len(), questions.len());
        let thresholds = Thresholds {
            data: if limit == 0 { u64::MAX } else { u64::from(limit) },
            control: u64::MAX,
            trim: Some(64),
            marking: (high > 0).then(|| Marking {
                low: u64::from(low),
                high: u64::from(high),
                slope: if high > low { f64::from(chance) / 65_536.0 / f64::from(high - low) } else { 0.0 },
                at_dequeue: false,
            }),
        };
        for (&(waiting, bytes, word), answer) in questions.iter().zip(answers) {
            let draw = f64::from(word >> 16) / 65_536.0;
            let drawn = Cell::new(false);
            let packet = Candidate { class: DATA, size: bytes as u16, is_whole_data: true };
            let verdict = thresholds.judge(&[0, u64::from(waiting)], packet, |probability| {
                drawn.set(true);
                draw < probability
            });
            let expected = match verdict {
                Verdict::Queue { marked: false } => 0,
                Verdict::Queue { marked: true } => 1,
                Verdict::Trim => 2,
                Verdict::Drop => unreachable!("a header always fits here"),
            };
            assert_eq!(
                answer, expected,
                "port {port:?}: {waiting} B wait, packet of {bytes} B, word {word}, drawn: {drawn:?}"
            );
            counts[usize::from(answer)] += 1;
        }
    }
    assert!(counts.iter().all(|&count| count > 2_000), "queued, marked, trimmed: {counts:?}");
}

/// Random questions, and those at the thresholds.
fn questions([limit, low, high, _]: &[u32; 4]) -> Vec<(u32, u32, u32)> {
    let mut random = Random::new(1, StreamKind::Workload, u64::from(*limit));
    let mut questions = Vec::new();
    for _ in 0..3_000 {
        let packet = 64 + random.below(9_000);
        questions.push((random.below(50_000), packet, random.below(u32::MAX)));
    }
    for edge in [*limit, *low, *high] {
        for packet in [64u32, 1_500, 4_160] {
            for with in [edge.wrapping_sub(1), edge, edge + 1] {
                let Some(waiting) = with.checked_sub(packet).filter(|&w| w < u32::MAX / 2) else { continue };
                questions.extend([0, 1 << 15, 1 << 31, u32::MAX].map(|word| (waiting, packet, word)));
            }
        }
    }
    questions
}

/// The output of a command that reads `input`; its errors if it fails.
fn fed(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_string();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().expect("the command ends");
    let _ = writer.join();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8_lossy(&said).into_owned()
}
