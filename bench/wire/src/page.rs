//! The page that a run prints: what was measured, where, and the sections with their tables. It is
//! docs/measurements/wire.md as it stands.

use crate::{Options, cores};
use std::process::Command;

/// The titles of the sections, which other pages link to, and what to know of their tables.
const SECTIONS: [(&str, &str, &str); 10] = [
    (
        "bandwidth",
        "Bandwidth",
        "Payload of one connection: writes of 1 MiB, eight under way. All packets are as large as the MTU allows. The ceiling is bare UDP in
batches (GSO, GRO), without a protocol. TLS 1.3 is AES-128-GCM by rustls and aws-lc over TCP, as one stream; rows with protection are compared with it first, those without with
the ceiling. The second row of TLS is that of `strandway perf --beside tls --congestion cubic`, with the cipher of our nodes (graviola). UET layout: the datagrams of Ultra Ethernet Transport, from its own kind of node.",
    ),
    (
        "latency",
        "Round trips",
        "64 B there and back, one at a time. Rows that spin are compared with bare UDP that spins, rows that sleep with bare UDP that sleeps, adaptive rows with spinning UDP.
A node need not be slower although each message is acknowledged: the acknowledgement leaves in the same system call as the answer.",
    ),
    (
        "messages",
        "Small messages",
        "Writes with 128 under way at an MTU of 1,500, round trips beside bulk data, and several connections of one pair of nodes. Bare UDP has 64 datagrams per system call.",
    ),
    (
        "shards",
        "Shards behind one port",
        "Nodes that share a port (`Node::bind_shards`), a client's node for each. Two shards on two cores take four cores with those of their clients: in the first table each
pair of threads has a core of its own, in the second each thread has one, while there are any.",
    ),
    (
        "bursts",
        "Bursts per path",
        "All datagrams of one system call take the same path. Goodput with sixteen source ports, by the number of consecutive packets on one path (`Config::burst`).",
    ),
    (
        "planes",
        "Planes",
        "One connection over planes that are shaped to 500 Mb/s each, or to 10 Gb/s in batches that cross in one piece. *Of what fits* is relative to the payload that full ports carry, with all headers.
noq is QUIC with multipath: one stream, a path per plane. Each packet takes the first path whose congestion window has room, in the order in which paths were opened.",
    ),
    (
        "cut",
        "A plane dies",
        "Two planes of 500 Mb/s; plane 1 is cut for 0.8 s when a quarter of the bytes has arrived, whose digest is compared at the end. Times have windows of 10 ms, so 10 is
the least. *Missed* is the part of a plane's capacity that was not used meanwhile.",
    ),
    (
        "loss",
        "Loss",
        "Two planes, random loss at both ends, single packets (no GSO); TCP has one plane. Ratios are to the same row without loss.
A packet counts as lost as soon as one that was sent a base RTT later over the same plane has arrived. Unshaped rows without loss show the speed of the cores.",
    ),
    (
        "idle",
        "Processor time",
        "Processor seconds per gibibyte where the wire is the limit, at an MTU of 1,500. A shaper that splits batches costs a timer per packet; one that sends batches in one
piece is as a network card that cuts them itself.",
    ),
    (
        "interfaces",
        "Interfaces of the kernel",
        "Bare UDP as in the ceiling, by the interface through which a program sends or receives. Each row changes one side of the first one. Processor seconds leave out the
time in which a spinning thread had nothing to do. Veth ports copy the bytes of sends without a copy all the same; a network card need not.",
    ),
];

/// The head of the page.
pub(crate) fn head(options: &Options, left_out: &[&str]) -> Result<String, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = options.seconds;
    let mut facts = vec![format!("- date: {}, rounds: {}, {seconds} s each", date(), options.rounds)];
    facts.extend(cores::describe()?);
    facts.extend(left_out.iter().map(|what| format!("- left out: {what}")));
    Ok(format!(
        "# The wire

[Performance](../performance.md) explains how such figures are taken, what limits them, and which of them a user needs; [bench/wire](../../bench/wire/README.md) says
how each row is measured. This page is what one command prints, all rows in turns, round by round:

```console
cargo run --release --manifest-path bench/wire/Cargo.toml -- {}
```

{}

A cell is the median of the rounds, a ratio the median of the rounds' ratios, with the least and the most of them in parentheses.
[Older runs](wire-history.md) have a page of their own, and so have [single questions about nodes](wire-details.md).
",
        arguments.join(" "),
        facts.join("\n")
    ))
}

/// The head of a section.
pub(crate) fn section(name: &str) -> String {
    let known = SECTIONS.iter().find(|(section, ..)| *section == name);
    known.map_or_else(|| format!("\n## {name}\n"), |(_, title, text)| format!("\n## {title}\n\n{text}\n"))
}

/// The day, in UTC.
fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    output.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_a_title() {
        for name in crate::SECTIONS {
            assert!(SECTIONS.iter().any(|(section, ..)| *section == name), "{name}");
            assert!(!section(name).contains(&format!("## {name}\n")), "{name}");
        }
    }
}
