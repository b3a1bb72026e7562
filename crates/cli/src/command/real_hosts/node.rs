//! `strandway node`.

use crate::Failure;
use crate::args::NodeArgs;
use crate::outputs::{Outputs, Wanted, print};
use crate::progress;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use strandway_perf as perf;
use strandway_perf::{Interval, Served};
use strandway_testbed::NodeFile;
use strandway_udp::{Error, Layout, Node, uet};

pub(crate) fn node(args: &NodeArgs) -> Result<(), Failure> {
    let seconds = |flag: &str, value: f64, most: f64| {
        let fits = value.is_finite() && (0.01..=most).contains(&value);
        if fits {
            Ok(Duration::from_secs_f64(value))
        } else {
            Err(Failure::Usage(format!("{flag}: take 0.01 to {most}")))
        }
    };
    let interval = seconds("--interval", args.interval, 3_600.0)?;
    let lasts = args.seconds.map(|value| seconds("--seconds", value, 31_536_000.0)).transpose()?;
    let file = NodeFile::load(&args.file)?;
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|e| Failure::Usage(format!("--key {}: {e}", path.display())));
    let key = args.key.as_ref().map(read).transpose()?;
    let config = file.config(key.as_deref()).map_err(Failure::Usage)?;
    let mut json = Lines::open(args)?;
    // These outputs decide whether texts for the user go to standard output or standard error.
    let outputs = Outputs::open(
        Wanted { json: args.json.as_ref().filter(|_| matches!(json, Lines::Stdout)), ..Wanted::default() },
        &[],
    )?;
    let profile = config.profile.name.clone();
    let head = |at: String| {
        outputs.show(&format!(
            "{} listens on {}, profile {profile}; Ctrl-C ends\n{:>13}  {:>5}  {:>8}  {:>8}  {:>7}  {}\n",
            file.name, at, "seconds", "conns", "in Gb/s", "out Gb/s", "resent", "planes: MB in/out"
        ));
    };
    let began = Instant::now();
    let stop = || progress::interrupted() || lasts.is_some_and(|lasts| began.elapsed() >= lasts);
    let mut written = Ok(());
    let tell = |served| match served {
        Served::Came(from) => outputs.show(&format!("a peer came from {from}\n")),
        Served::Gone(reason) => outputs.show(&format!("a peer has gone: {reason}\n")),
        Served::Refused(reason, count) => outputs.show(&super::wire::refused(reason, count)),
        Served::Passed(interval) => {
            outputs.show(&line(&interval));
            if written.is_ok() {
                written = json.write(&object(&file.name, &interval));
            }
        }
    };
    if config.layout == Layout::Uet {
        let mut node = uet::Node::configured(&config)?;
        head(format!("{}, layout uet", node.address().map_err(Error::Wait)?));
        perf::uet::serve(&mut node, Some(interval), stop, tell).map_err(super::perf::failure)?;
    } else {
        let mut node = Node::bind(config)?;
        if file.payload.is_none() {
            node.find_payloads()?;
        }
        head(super::wire::shown(node.addresses()?));
        perf::serve_every(&mut node, interval, stop, tell)?;
    }
    written
}

/// The destination of JSON objects, which are written one by one.
enum Lines {
    None,
    Stdout,
    File(File, String),
}

impl Lines {
    fn open(args: &NodeArgs) -> Result<Lines, Failure> {
        match &args.json {
            None => Ok(Lines::None),
            Some(path) if path.as_os_str() == "-" => Ok(Lines::Stdout),
            Some(path) => {
                let name = path.display().to_string();
                let file = File::create(path).map_err(|e| {
                    let remedy = "name a file in a folder that you can write to";
                    Failure::Usage(format!("--json {name}: cannot be written: {e}; {remedy}"))
                })?;
                Ok(Lines::File(file, name))
            }
        }
    }

    fn write(&mut self, object: &serde_json::Value) -> Result<(), Failure> {
        match self {
            Lines::None => {}
            Lines::Stdout => print(&format!("{object}\n")),
            Lines::File(file, name) => {
                let failed = |e| Failure::Run(format!("{name}: could not be written: {e}"));
                file.write_all(format!("{object}\n").as_bytes()).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn line(interval: &Interval) -> String {
    let digits = if interval.to_s - interval.from_s < 0.5 { 2 } else { 1 };
    let span = format!("{:.digits$}-{:.digits$}", interval.from_s, interval.to_s);
    let planes = interval.planes.iter().enumerate().map(|(plane, what)| {
        let up = if what.up { "up" } else { "DOWN" };
        let paths = what.active_paths.map_or(String::new(), |paths| format!(" {paths} EVs"));
        format!("p{plane} {up} {:.1}/{:.1}{paths}", what.in_bytes as f64 / 1e6, what.out_bytes as f64 / 1e6)
    });
    format!(
        "{span:>13}  {:>5}  {:>8.3}  {:>8.3}  {:>7}  {}\n",
        interval.connections,
        interval.in_gbps,
        interval.out_gbps,
        interval.retransmitted,
        planes.collect::<Vec<_>>().join("  ")
    )
}

fn object(name: &str, interval: &Interval) -> serde_json::Value {
    let planes = interval.planes.iter().map(|plane| {
        serde_json::json!({
            "up": plane.up,
            "in_bytes": plane.in_bytes,
            "out_bytes": plane.out_bytes,
            "active_paths": plane.active_paths,
        })
    });
    serde_json::json!({
        "format": 1,
        "node": name,
        "from_s": interval.from_s,
        "to_s": interval.to_s,
        "connections": interval.connections,
        "in_gbps": interval.in_gbps,
        "out_gbps": interval.out_gbps,
        "retransmitted": interval.retransmitted,
        "planes": planes.collect::<Vec<_>>(),
    })
}
