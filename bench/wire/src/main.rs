//! Strandway's wire beside its rivals, in one run: all rows are measured in turns.

mod bandwidth;
mod baseline;
mod bursts;
mod ceiling;
mod contest;
mod cores;
mod cut;
mod goodput;
mod idle;
mod interfaces;
mod latency;
mod libfabric;
mod loss;
mod messages;
mod multipath;
mod network;
mod ours;
mod page;
mod planes;
mod quic;
mod round_trips;
mod shards;
mod tcp;
mod uet;

use network::Network;
use std::io::Write;
use std::process::ExitCode;
use strandway_proto::Span;

const SECTIONS: [&str; 10] =
    ["bandwidth", "latency", "messages", "shards", "bursts", "planes", "cut", "loss", "idle", "interfaces"];
const USAGE: &str = "\
usage: strandway-bench-wire [bandwidth|latency|messages|shards|bursts|planes|cut|loss|idle|interfaces|all]... [OPTIONS]

  --only TEXT        only the rows whose table or name contains the text; repeat it for more
  --rounds N         rounds of every row (5)
  --seconds S        how long a transfer is measured (1)
  --bytes N          bytes of a transfer that is cut (268435456)
  --full             the same as --bytes 1073741824
  --base-rtt-us N    base_rtt of our nodes where planes are shaped (2000)
  --ipv4             over IPv4 instead of IPv6
  --json FILE|-      all rows as JSON; `-`: to standard output, instead of tables
";

/// The command line's options.
struct Options {
    sections: Vec<&'static str>,
    /// Parts of the names of tables and rows; empty: all rows.
    only: Vec<String>,
    rounds: usize,
    seconds: f64,
    bytes: usize,
    base_rtt: Span,
    ipv4: bool,
    json: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let base_rtt = Span::from_us(2_000);
        let (sections, only) = (Vec::new(), Vec::new());
        let mut options =
            Options { sections, only, rounds: 5, seconds: 1.0, bytes: 256 << 20, base_rtt, ipv4: false, json: None };
        while let Some(argument) = arguments.next() {
            let mut number = |least: f64, most: f64| -> Result<f64, String> {
                let value = arguments.next().and_then(|value| value.parse().ok());
                value
                    .filter(|value| (least..=most).contains(value))
                    .ok_or_else(|| format!("{argument}: give a number from {least} to {most}"))
            };
            match argument.as_str() {
                "--rounds" => options.rounds = number(1.0, 1e3)? as usize,
                "--seconds" => options.seconds = number(0.05, 600.0)?,
                // A shorter transfer would end before a plane was cut and healed.
                "--bytes" => options.bytes = number(1.5e8, 1.7e10)? as usize,
                "--full" => options.bytes = 1 << 30,
                "--base-rtt-us" => options.base_rtt = Span::from_us(number(1.0, 1e6)? as u64),
                "--ipv4" => options.ipv4 = true,
                "--only" => {
                    options.only.push(arguments.next().ok_or("--only: give a part of a table's or row's name")?)
                }
                "--json" => options.json = Some(arguments.next().ok_or("--json: give a file, or -")?),
                "all" => options.sections.extend(SECTIONS),
                other => match SECTIONS.iter().find(|section| **section == other) {
                    Some(section) => options.sections.push(section),
                    None => return Err(format!("{other}: there is no such section or option")),
                },
            }
        }
        if options.sections.is_empty() {
            options.sections.extend(SECTIONS);
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    baseline::restart();
    if std::env::args().skip(1).any(|argument| argument == "--help" || argument == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(said) => {
            eprint!("{said}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(said) => {
            eprintln!("{said}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    if let Some(said) = network::missing(&["ip", "tc", "nft", "ethtool"]) {
        return Err(said);
    }
    let handler = || {
        libfabric::stop();
        network::remove();
        std::process::exit(130);
    };
    ctrlc::set_handler(handler).map_err(|error| format!("Ctrl-C: {error}"))?;
    // Opened now, so that a wrong name is reported before half an hour of measuring.
    let mut file = match options.json.as_deref() {
        None | Some("-") => None,
        Some(path) => Some((path, std::fs::File::create(path).map_err(|error| format!("{path}: {error}"))?)),
    };
    let quiet = options.json.as_deref() == Some("-");
    let rivals = [libfabric::PINGPONG, libfabric::WRITES].into_iter().filter(|program| !libfabric::is_here(program));
    let left_out: Vec<String> = rivals.map(|program| format!("rows of {program}, which is not installed")).collect();
    let head = page::head(options, &left_out.iter().map(String::as_str).collect::<Vec<_>>())?;
    if quiet {
        eprint!("{head}")
    } else {
        print!("{head}")
    }
    network::IPV4.store(options.ipv4, std::sync::atomic::Ordering::Relaxed);
    let network = Network::build()?;
    let mut objects = Vec::new();
    for section in SECTIONS.into_iter().filter(|section| options.sections.contains(section)) {
        let make = match section {
            "bandwidth" => bandwidth::contest,
            "latency" => latency::contest,
            "bursts" => bursts::contest,
            "planes" => planes::contest,
            "cut" => cut::contest,
            "messages" => messages::contest,
            "shards" => shards::contest,
            "idle" => idle::contest,
            "interfaces" => interfaces::contest,
            _ => loss::contest,
        };
        let mut contest = make(&network, options)?;
        contest.keep(&options.only);
        contest.run(options.rounds);
        if !quiet {
            print!("{}", contest.markdown());
        }
        objects.extend(contest.json());
    }
    let text = format!("{:#}\n", serde_json::Value::Array(objects));
    if quiet {
        print!("{text}");
    }
    if let Some((path, file)) = &mut file {
        file.write_all(text.as_bytes()).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
