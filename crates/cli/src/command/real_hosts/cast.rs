//! `strandway cast`.

use super::{choice, team, wire};
use crate::Failure;
use crate::args::{CastArgs, Trust};
use crate::outputs::{Outputs, Wanted};
use crate::progress::{self, RealBar};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_files::cast::{self, CastError, Listener, Options, Served, State, Status, Summary};
use strandway_files::copy::parts::Target;
use strandway_files::copy::shown;
use strandway_proto::Rate;
use strandway_testbed::NodeFile;
use strandway_udp::{Config, Node, Timeouts};

/// The default port of a receiver: the one after that of `copy`, ours.
const PORT: u16 = 47_932;
/// The default rate without a node file; ours, as for `copy`.
const RATE: Rate = Rate::from_gbps(1);
/// Letters avoid a plane that has been silent for this long: ours. The team finds dead planes by itself. A
/// shorter time would need more pings, which for many connections use a share of the sender's uplink.
const PLANE_TIMEOUT: Duration = Duration::from_millis(500);
/// Limit on the failures that are listed one by one; the JSON summary has all.
const LISTED: usize = 20;

impl From<CastError> for Failure {
    fn from(error: CastError) -> Failure {
        match error {
            CastError::Node(error) => error.into(),
            CastError::Team(error) => error.into(),
            CastError::Copy(error) => error.into(),
            CastError::Option(said) => Failure::Usage(said),
            other => Failure::Run(other.to_string()),
        }
    }
}

pub(crate) fn cast(args: &CastArgs) -> Result<(), Failure> {
    match &args.receive {
        Some(directory) => receive(args, directory),
        None => send(args),
    }
}

fn receive(args: &CastArgs, directory: &Path) -> Result<(), Failure> {
    let outputs = Outputs::open(Wanted { quiet: args.quiet, ..Wanted::default() }, &[])?;
    let (mut config, file) = wire::config(&args.wire, None, || Ok(wire::loopback(PORT)), PORT)?;
    config.timeouts.plane = PLANE_TIMEOUT;
    let finds = wire::finds_payloads(&args.wire, file.as_ref(), &config);
    let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
    for config in wire::with_both_loopbacks(&args.wire, config) {
        for node in wire::bind(&config, 1, finds)? {
            addresses.extend(node.addresses()?);
            nodes.push((node, Target::open(directory).map_err(Failure::Usage)?));
        }
    }
    let at = wire::shown(addresses);
    outputs.show(&format!("receiving below {} on {at}; Ctrl-C ends\n", shown(directory)));
    let (failed, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let stop = || progress::interrupted() || over.load(Ordering::Relaxed);
    let told = |served: &Served| {
        failed.store(matches!(served, Served::Ended(_)), Ordering::Relaxed);
        match served {
            Served::Came(from) => outputs.show(&format!("a sender came from {from}\n")),
            Served::Formed { members, planes: 0 } => {
                outputs.show(&format!(
                    "a team of {members}; no plane carries multicast, so members form a unicast chain\n"
                ));
            }
            Served::Formed { members, planes } => {
                outputs.show(&format!("a team of {members}, multicast on {} plane(s)\n", planes.count_ones()));
            }
            Served::Over { bytes } => {
                outputs.show(&format!("a cast has ended: {} arrived\n", super::copy::bytes(*bytes)))
            }
            Served::Ended(why) => outputs.show(&format!("a cast ended early: {why}\n")),
        }
        let ends = args.once && served.is_end();
        over.fetch_or(ends, Ordering::Relaxed);
        !ends
    };
    wire::on_each(nodes, |(node, target)| Ok(cast::receive(node, target, &stop, |served| told(&served))?))?;
    if args.once && failed.load(Ordering::Relaxed) {
        Err(Failure::Run("the cast ended early; the next cast continues there".into()))
    } else {
        Ok(())
    }
}

/// The receivers of the command line.
fn listeners(args: &CastArgs, file: Option<&NodeFile>) -> Result<Vec<Listener>, Failure> {
    let mut all = Vec::new();
    for name in &args.to {
        all.push(Listener { name: name.clone(), addresses: team::one(name, file, PORT)? });
    }
    if let Some(path) = &args.to_file {
        for (name, addresses) in team::lines("--to-file", path, file, PORT)? {
            all.push(Listener { name, addresses });
        }
    }
    if all.is_empty() {
        return Err(Failure::Usage("no receivers; name them with --to, or in a file with --to-file".into()));
    }
    Ok(all)
}

fn send(args: &CastArgs) -> Result<(), Failure> {
    let file = wire::node_file(&args.wire)?;
    let listeners = listeners(args, file.as_ref())?;
    let first = listeners[0].addresses.clone();
    let ours = || first.iter().copied().map(wire::local_for).collect();
    let mut config = wire::configure(&args.wire, file.as_ref(), None, ours, 0)?;
    config.rate = args.rate.unwrap_or(if file.is_some() { config.rate } else { RATE });
    let options = Options {
        block: u32::try_from(args.block).unwrap_or(u32::MAX),
        wait: args.wait,
        all_or_nothing: args.all_or_nothing,
        trusting: args.trust == Trust::Members,
        preserve: choice::preserve(&args.choice, false),
        ..Options::new(team::options(&args.team, &config)?)
    };
    let wanted = Wanted { json: args.json.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let inputs = [wire::inputs(&args.wire), args.to_file.iter().cloned().collect()].concat();
    let mut outputs = Outputs::open(wanted, &inputs)?;
    let config = Config { accept: false, timeouts: Timeouts { plane: PLANE_TIMEOUT, ..Timeouts::default() }, ..config };
    let finds = wire::finds_payloads(&args.wire, file.as_ref(), &config);
    let mut node = Node::bind(config)?;
    if finds {
        node.find_payloads()?;
    }
    let bar = RealBar::of_copy(args.quiet);
    let mut each = |status: &Status| {
        let receives = status.receivers.iter().filter(|r| matches!(r.state, State::Receives | State::Done));
        let (count, bytes) = receives.fold((0, 0), |(count, bytes), r| (count + 1, bytes + r.bytes));
        bar.show(bytes, status.bytes * count, || line(status));
    };
    let sources = (&args.sources[..], &choice::exclude(&args.choice)?);
    let summary = cast::send_chosen(node, &listeners, sources, &options, &progress::interrupted, &mut each);
    drop(bar);
    let summary = summary?;
    outputs.show(&summary_line(&summary));
    outputs.json(|| json(args, &summary))?;
    let lost = summary.status.receivers.iter().filter(|receiver| receiver.state != State::Done).count();
    let failures = summary.failures.iter().map(|(who, path, why)| format!("{who}: {}: {why}", shown(path)));
    let unread = summary.unread.iter().map(|(path, why)| format!("{}: {why}", shown(path)));
    let mut lines: Vec<String> = unread.chain(failures).collect();
    if lines.is_empty() && lost == 0 {
        return Ok(());
    }
    let count = lines.len();
    if count > LISTED {
        lines.truncate(LISTED);
        lines.push(format!("{} more failures; --json lists all", count - LISTED));
    }
    if lost > 0 {
        lines.push(format!("{lost} receiver(s) lack files; run it again: it continues where it stopped"));
    }
    Err(Failure::Run(lines.join("\n")))
}

/// The line next to the progress bar: the slowest receiver, and receivers that are missing.
fn line(status: &Status) -> String {
    let receives: Vec<_> = status.receivers.iter().filter(|r| r.state == State::Receives).collect();
    let slowest = receives
        .iter()
        .min_by_key(|r| r.bytes)
        .map_or(String::new(), |r| format!(", slowest {} at {}", r.name, super::copy::bytes(r.bytes)));
    let count = |wanted: fn(&State) -> bool| status.receivers.iter().filter(|r| wanted(&r.state)).count();
    let others = [
        (count(|state| *state == State::Done), "done"),
        (count(|state| *state == State::Waits), "waiting"),
        (count(|state| *state == State::Absent), "absent"),
        (count(|state| matches!(state, State::Lost(_))), "lost"),
    ];
    let others: Vec<String> =
        others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}")).collect();
    format!(
        "{} cast, {} receiving{slowest}{}, {:.1} Mb/s",
        super::copy::bytes(status.cast_bytes),
        receives.len(),
        others.concat(),
        status.cast_bytes as f64 * 8.0 / 1e6 / status.seconds.max(1e-9)
    )
}

fn state(state: &State) -> String {
    match state {
        State::Absent => "it did not answer".into(),
        State::Waits | State::Receives => "unfinished".into(),
        State::Done => "has everything".into(),
        State::Lost(why) => format!("lost: {why}"),
    }
}

fn summary_line(summary: &Summary) -> String {
    let status = &summary.status;
    let per_byte = if status.cast_bytes == 0 { 0.0 } else { status.wire_bytes as f64 / status.cast_bytes as f64 };
    let how = if status.planes == 0 { ", by a unicast chain because no plane carries multicast" } else { "" };
    let mut text = format!(
        "{} cast in {:.1} s, {:.1} Mb/s, {} pass(es){how}; {per_byte:.3} bytes sent per byte\n",
        super::copy::bytes(status.cast_bytes),
        status.seconds,
        status.cast_bytes as f64 * 8.0 / 1e6 / status.seconds.max(1e-9),
        summary.passes
    );
    for receiver in &status.receivers {
        text += &format!("  {}: {}, {} file(s) new\n", receiver.name, state(&receiver.state), receiver.files);
    }
    text
}

fn json(args: &CastArgs, summary: &Summary) -> String {
    let status = &summary.status;
    let receiver = |r: &cast::Progress| {
        serde_json::json!({
            "name": r.name,
            "done": r.state == State::Done,
            "state": state(&r.state),
            "bytes": r.bytes,
            "files": r.files,
        })
    };
    let failure = |(who, path, why): &(String, std::path::PathBuf, strandway_files::copy::FileError)| serde_json::json!({ "receiver": who, "path": shown(path), "why": why.to_string() });
    let unread = |(path, why): &(std::path::PathBuf, strandway_files::copy::FileError)| serde_json::json!({ "path": shown(path), "why": why.to_string() });
    let object = serde_json::json!({
        "format": 1,
        "kind": "cast",
        "seconds": status.seconds,
        "passes": summary.passes,
        "files": status.files,
        "bytes": status.bytes,
        "missing_bytes": summary.missing_bytes,
        "cast_bytes": status.cast_bytes,
        "wire_bytes": status.wire_bytes,
        "payload": status.payload,
        "multicast_planes": status.planes,
        "trust": if args.trust == Trust::Source { "source" } else { "members" },
        "receivers": status.receivers.iter().map(receiver).collect::<Vec<_>>(),
        "failures": summary.failures.iter().map(failure).collect::<Vec<_>>(),
        "unread": summary.unread.iter().map(unread).collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}
