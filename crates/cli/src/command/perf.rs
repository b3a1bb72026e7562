//! `strandway perf`.

use super::wire;
use crate::Failure;
use crate::args::{PerfArgs, PerfClientArgs, PerfCommon, PerfServerArgs, PerfSide};
use crate::outputs::{Outputs, Wanted, print};
use crate::progress;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use strandway_lab::NodeFile;
use strandway_proto::{Rate, Span};
use strandway_udp::perf::{self, Mode, Options, PerfError, Served, Stretch};
use strandway_udp::{Config, Error, Node, shard_addresses};

/// The default port of a server; from the dynamic range, ours.
const PORT: u16 = 47_930;

pub(crate) fn perf(args: &PerfArgs) -> Result<(), Failure> {
    match &args.side {
        PerfSide::Server(args) => server(args),
        PerfSide::Client(args) => client(args),
        PerfSide::Collective(args) => super::collective::collective(args),
        PerfSide::Tune(args) => super::tune::tune(args),
    }
}

fn server(args: &PerfServerArgs) -> Result<(), Failure> {
    let (config, _) = config(&args.common, || Ok(vec![SocketAddrV6::new(Ipv6Addr::LOCALHOST, PORT, 0, 0)]), PORT)?;
    if args.common.threads > 1 && config.planes.iter().any(|plane| plane.port() == 0) {
        return Err(Failure::Usage(
            "--threads: clients count ports from the first one; give each --plane a port".into(),
        ));
    }
    let mut nodes = bind(&config, args.common.threads)?;
    let at: Vec<String> = nodes[0].addresses()?.iter().map(ToString::to_string).collect();
    let threads = match nodes.len() {
        1 => String::new(),
        threads => format!("{threads} threads, each {} port(s) after the one before; ", config.planes.len()),
    };
    print(&format!("listening on {}; {threads}Ctrl-C ends\n", at.join(" ")));
    // The number of open connections, and whether there was one before. A client with several threads closes its
    // connections one by one.
    let (open, gone) = (AtomicUsize::new(0), AtomicBool::new(false));
    let over = || gone.load(Ordering::Relaxed) && open.load(Ordering::Relaxed) == 0;
    let stop = || progress::interrupted() || (args.once && over());
    perf::serve_all(&mut nodes, stop, |served| match served {
        Served::Came(from) => {
            open.fetch_add(1, Ordering::Relaxed);
            print(&format!("a client came from {from}\n"));
        }
        Served::Gone(reason) => {
            open.fetch_sub(1, Ordering::Relaxed);
            gone.store(true, Ordering::Relaxed);
            print(&format!("a client has gone: {reason}\n"));
        }
        Served::Refused(reason, count) => print(&wire::refused(reason, count)),
        Served::Passed(_) => {}
    })?;
    Ok(())
}

/// Opens a node for each thread.
fn bind(config: &Config, threads: u16) -> Result<Vec<Node>, Failure> {
    let bind = |thread| {
        let planes = shard_addresses(&config.planes, thread)?;
        Ok(Node::bind(Config { planes, ..config.clone() })?)
    };
    (0..usize::from(threads)).map(bind).collect()
}

fn client(args: &PerfClientArgs) -> Result<(), Failure> {
    let server = || wire::addresses(&args.server, PORT);
    let ours = || server()?.into_iter().map(wire::local_for).collect();
    let (config, file) = config(&args.common, ours, 0)?;
    let server = match &file {
        Some(file) => wire::peer(file, &args.server, PORT)?,
        None => server()?,
    };
    if !args.seconds.is_finite() || !(0.01..=86_400.0).contains(&args.seconds) {
        return Err(Failure::Usage("--seconds: take 0.01 to 86400".into()));
    }
    let mut outputs =
        Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &wire::inputs(&args.common.wire))?;
    let head = head(args, &config);
    let facts = (config.profile.name.clone(), config.payload);
    let threads = args.common.threads;
    let mut nodes = bind(&config, threads)?;
    let servers: Result<Vec<_>, Error> = (0..usize::from(threads)).map(|k| shard_addresses(&server, k)).collect();
    let options = Options {
        size: args.size,
        connections: args.connections,
        duration: Duration::from_secs_f64(args.seconds),
        depth: args.depth,
        mode: mode(args),
        interval: Duration::from_secs_f64(args.interval.clamp(0.0, 1e6)),
        messages: args.messages,
    };
    outputs.show(&head);
    let mut seconds = Vec::new();
    let whole = perf::run_all(&mut nodes, &servers?, &options, progress::interrupted, |second| {
        outputs.show(&line(second));
        // A limit on the kept lines: one day of seconds.
        if seconds.len() < 86_400 {
            seconds.push(second.clone());
        }
    });
    let whole = whole.map_err(|error| match error {
        PerfError::Option(said) => Failure::Usage(said),
        PerfError::Call(error) => error.into(),
        other => Failure::Run(other.to_string()),
    })?;
    outputs.show(&format!("{}\n{}", "-".repeat(78), line(&whole)));
    outputs.json(|| json(args, facts, &whole, &seconds))
}

fn mode(args: &PerfClientArgs) -> Mode {
    match (args.latency, args.bidirectional, args.verify) {
        (true, _, _) => Mode::Latency,
        (_, true, _) => Mode::Bidirectional,
        (_, _, true) => Mode::Verify,
        _ => Mode::Bandwidth,
    }
}

/// The configuration of a node. `ours` returns the planes if neither flags nor a node file name any.
fn config(
    args: &PerfCommon,
    ours: impl FnOnce() -> Result<Vec<SocketAddrV6>, Failure>,
    port: u16,
) -> Result<(Config, Option<NodeFile>), Failure> {
    let (mut config, file) = wire::config(&args.wire, args.profile.as_deref(), ours, port)?;
    if let Some(rate) = args.rate_gbps {
        if !rate.is_finite() || !(0.001..=100_000.0).contains(&rate) {
            return Err(Failure::Usage("--rate-gbps: take 0.001 to 100000".into()));
        }
        config.rate = Rate((rate * 1e9) as u64);
    }
    if let Some(rtt) = args.rtt_us {
        config.base_rtt = Span::from_us(rtt.clamp(1, 10_000_000));
    }
    Ok((config, file))
}

fn head(args: &PerfClientArgs, config: &Config) -> String {
    let what = match mode(args) {
        Mode::Bandwidth => "writes",
        Mode::Bidirectional => "writes in both directions",
        Mode::Latency => "round trips of messages",
        Mode::Verify => "verified writes",
    };
    let rtt = if args.latency { "RTT p50/p99 us" } else { "ping p50/p99 us" };
    format!(
        "{what} of {} B, {} connection(s), profile {}, payload {} B\n{:>13}  {:>9}  {:>9}  {:>17}  {:>7}  {}\n",
        args.size,
        args.connections,
        config.profile.name,
        config.payload,
        "seconds",
        "Gb/s",
        "messages",
        rtt,
        "again",
        "per plane Gb/s"
    )
}

fn line(stretch: &Stretch) -> String {
    let plane = |(rate, up): (&f64, &bool)| if *up { format!("{rate:.3}") } else { format!("{rate:.3} (silent)") };
    let planes: Vec<String> = stretch.plane_gbps.iter().zip(&stretch.planes_up).map(plane).collect();
    // Times have as many digits as the interval needs.
    let digits = if stretch.to_s - stretch.from_s < 0.5 { 3 } else { 1 };
    let span = format!("{:.digits$}-{:.digits$}", stretch.from_s, stretch.to_s);
    let back = if stretch.back_gbps > 0.0 { format!("  back {:.3}", stretch.back_gbps) } else { String::new() };
    let paths: Vec<String> = stretch.active_paths.iter().map(u32::to_string).collect();
    let paths = if paths.is_empty() { String::new() } else { format!("  EVs {}", paths.join("+")) };
    let rtt = format!("{:.1}/{:.1}", stretch.rtt_p50_us, stretch.rtt_p99_us);
    format!(
        "{span:>13}  {:>9.3}  {:>9}  {rtt:>17}  {:>7}  {}{back}{paths}\n",
        stretch.goodput_gbps,
        stretch.messages,
        stretch.retransmitted,
        planes.join(" ")
    )
}

fn json(args: &PerfClientArgs, (profile, payload): (String, u32), whole: &Stretch, seconds: &[Stretch]) -> String {
    let row = |stretch: &Stretch| {
        serde_json::json!({
            "from_s": stretch.from_s,
            "to_s": stretch.to_s,
            "goodput_gbps": stretch.goodput_gbps,
            "plane_gbps": stretch.plane_gbps,
            "planes_up": stretch.planes_up,
            "back_gbps": stretch.back_gbps,
            "active_paths": stretch.active_paths,
            "messages": stretch.messages,
            "retransmitted": stretch.retransmitted,
            "rtt_us": { "p50": stretch.rtt_p50_us, "p99": stretch.rtt_p99_us },
        })
    };
    let mut object = row(whole);
    object["format"] = 1.into();
    object["kind"] = match mode(args) {
        Mode::Bandwidth => "bandwidth",
        Mode::Bidirectional => "bidirectional",
        Mode::Latency => "latency",
        Mode::Verify => "verify",
    }
    .into();
    object["size"] = args.size.into();
    object["connections"] = args.connections.into();
    object["threads"] = args.common.threads.into();
    object["profile"] = profile.into();
    object["payload"] = payload.into();
    object["protection"] = args.common.wire.protection.name().into();
    object["seconds"] = seconds.iter().map(row).collect();
    format!("{object:#}\n")
}
