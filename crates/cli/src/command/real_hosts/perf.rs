//! `strandway perf`.

use super::{baseline, wire};
use crate::Failure;
use crate::args::{PerfArgs, PerfClientArgs, PerfCommon, PerfServerArgs, PerfSide};
use crate::outputs::{Outputs, Wanted, print};
use crate::progress;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use strandway_perf as perf;
use strandway_perf::{BaselineServer, Mode, Options, PerfError, Served, Stretch};
use strandway_proto::{Rate, Span};
use strandway_testbed::NodeFile;
use strandway_udp::{Config, Error, Layout, Node, address};

/// Sizes of `--all`, as powers of two, and its messages under way: that of perftest.
const ALL_SIZES: std::ops::RangeInclusive<u32> = 3..=16;
const ALL_DEPTH: usize = 128;
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
    let (config, file) = config(&args.common, || Ok(wire::loopback(PORT)), PORT)?;
    if config.layout == Layout::Uet {
        return super::uet::server(args, config);
    }
    let finds = wire::finds_payloads(&args.common.wire, file.as_ref(), &config);
    let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
    for config in wire::with_both_loopbacks(&args.common.wire, config) {
        let shards = wire::bind(&config, args.common.threads, finds)?;
        addresses.extend(shards[0].addresses()?);
        nodes.extend(shards);
    }
    let beside = match args.beside {
        true => Some(listen_baseline(&nodes)?),
        false => None,
    };
    let at = wire::shown(addresses);
    let tcp = if args.beside { "also over TCP, without a key; " } else { "" };
    let threads = match args.common.threads {
        1 => String::new(),
        threads => format!("{threads} threads share it; "),
    };
    print(&format!("listening on {at}; {tcp}{threads}Ctrl-C ends\n"));
    let clients = Clients::default();
    let stop = || progress::interrupted() || (args.once && clients.are_gone());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(beside) = &beside {
            scope.spawn(|| beside.serve(&|| ended.load(Ordering::Relaxed)));
        }
        let served = perf::serve_all(&mut nodes, stop, |served| clients.handle(served));
        ended.store(true, Ordering::Relaxed);
        served
    })?;
    Ok(())
}

/// The clients of a server. One with several threads closes its connections one by one.
#[derive(Default)]
pub(super) struct Clients {
    /// Open connections.
    open: AtomicUsize,
    /// A connection has closed.
    gone: AtomicBool,
}

impl Clients {
    /// Has a client come, and have all gone?
    pub(super) fn are_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed) && self.open.load(Ordering::Relaxed) == 0
    }

    /// Counts and prints a server's news.
    pub(super) fn handle(&self, served: Served) {
        match served {
            Served::Came(from) => {
                self.open.fetch_add(1, Ordering::Relaxed);
                print(&format!("a client came from {from}\n"));
            }
            Served::Gone(reason) => {
                self.open.fetch_sub(1, Ordering::Relaxed);
                self.gone.store(true, Ordering::Relaxed);
                print(&format!("a client has gone: {reason}\n"));
            }
            Served::Refused(reason, count) => print(&wire::refused(reason, count)),
            Served::Passed(_) => {}
        }
    }
}

/// Listens over TCP where the nodes listen.
fn listen_baseline(nodes: &[Node]) -> Result<BaselineServer, Failure> {
    let mut addresses = Vec::new();
    for node in nodes {
        addresses.extend(node.addresses()?.into_iter().map(address::shown));
    }
    addresses.sort_unstable();
    addresses.dedup();
    BaselineServer::bind(&addresses).map_err(|error| {
        let at = wire::shown(addresses.iter().copied());
        Failure::Run(format!("--beside: cannot listen over TCP on {at}: {error}: give --plane another port"))
    })
}

/// Opens a node for each thread of a client. With free ports each node has its own, since network cards deal packets
/// out to cores by ports.
fn bind(config: &Config, threads: u16, finds: bool) -> Result<Vec<Node>, Error> {
    if config.planes.iter().any(|plane| plane.port() != 0) {
        return wire::bind(config, threads, finds);
    }
    let nodes: Result<Vec<_>, _> = (0..threads).map(|_| wire::bind(config, 1, finds)).collect();
    Ok(nodes?.into_iter().flatten().collect())
}

fn client(args: &PerfClientArgs) -> Result<(), Failure> {
    let ours = || wire::addresses(&args.server, PORT, &[])?.into_iter().map(wire::local_for).collect();
    let (config, file) = config(&args.common, ours, 0)?;
    let server = match &file {
        Some(file) => wire::peer(file, &args.server, PORT)?,
        None => wire::addresses(&args.server, PORT, &config.planes)?,
    };
    if !args.seconds.is_finite() || !(0.01..=86_400.0).contains(&args.seconds) {
        return Err(Failure::Usage("--seconds: take 0.01 to 86400".into()));
    }
    let mut outputs =
        Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &wire::inputs(&args.common.wire))?;
    let finds = wire::finds_payloads(&args.common.wire, file.as_ref(), &config);
    let head = head(args, &config, finds);
    let options = Options {
        size: args.size,
        connections: args.connections,
        duration: Duration::from_secs_f64(args.seconds),
        depth: args.depth.unwrap_or(if args.all { ALL_DEPTH } else { 8 }),
        mode: mode(args),
        bulk: args.bulk,
        interval: Duration::from_secs_f64(args.interval.clamp(0.0, 1e6)),
        messages: args.messages,
    };
    if config.layout == Layout::Uet {
        return super::uet::client(args, &config, &server, &options, &head, outputs);
    }
    let profile = config.profile.name.clone();
    let threads = args.common.threads;
    let mut nodes = bind(&config, threads, finds)?;
    let servers = vec![server; usize::from(threads)];
    if args.all {
        let rows = sizes(&mut nodes, &servers, &options, &mut outputs)?;
        return outputs.json(|| json_of_sizes(args, profile, &rows));
    }
    if !args.beside.is_empty() {
        let table = baseline::measure(args, &mut nodes, &servers, &options, &mut outputs)?;
        return outputs.json(|| table.json(args, profile));
    }
    outputs.show(&head);
    let mut seconds = Vec::new();
    let whole = perf::run_all(&mut nodes, &servers, &options, progress::interrupted, |second| {
        outputs.show(&line(second));
        // A limit on the kept lines: one day of seconds.
        if seconds.len() < 86_400 {
            seconds.push(second.clone());
        }
    });
    let whole = whole.map_err(failure)?;
    outputs.show(&last_line(&whole));
    if finds {
        outputs.show(&format!("full packets had {} B of payload\n", whole.payload));
    }
    outputs.json(|| json(args, profile, &whole, &seconds))
}

pub(super) fn failure(error: PerfError) -> Failure {
    match error {
        PerfError::Option(said) => Failure::Usage(said),
        PerfError::Call(error) => error.into(),
        other => Failure::Run(other.to_string()),
    }
}

/// Measures one size after the other, and shows a line for each, with the columns of perftest.
fn sizes(
    nodes: &mut [Node],
    servers: &[Vec<SocketAddrV6>],
    options: &Options,
    outputs: &mut Outputs,
) -> Result<Vec<(u64, Stretch)>, Failure> {
    let heads = ["bytes", "messages", "Gb/s", "million msg/s"];
    outputs.show(&format!("{:>9}  {:>12}  {:>10}  {:>14}\n", heads[0], heads[1], heads[2], heads[3]));
    let mut rows = Vec::new();
    for size in ALL_SIZES.map(|power| 1_u64 << power) {
        if progress::interrupted() {
            break;
        }
        let options = Options { size, interval: Duration::from_secs(3_600), ..*options };
        let whole = perf::run_all(nodes, servers, &options, progress::interrupted, |_| {}).map_err(failure)?;
        outputs.show(&format!(
            "{size:>9}  {:>12}  {:>10.3}  {:>14.4}\n",
            whole.messages,
            whole.goodput_gbps,
            whole.messages as f64 / whole.to_s / 1e6
        ));
        rows.push((size, whole));
    }
    Ok(rows)
}

fn json_of_sizes(args: &PerfClientArgs, profile: String, rows: &[(u64, Stretch)]) -> String {
    let row = |(size, whole): &(u64, Stretch)| {
        serde_json::json!({
            "size": size,
            "seconds": whole.to_s,
            "messages": whole.messages,
            "goodput_gbps": whole.goodput_gbps,
            "messages_per_s": whole.messages as f64 / whole.to_s,
            "retransmitted": whole.retransmitted,
        })
    };
    let object = serde_json::json!({
        "format": 1,
        "kind": "sizes",
        "connections": args.connections,
        "threads": args.common.threads,
        "profile": profile,
        "payload": rows.last().map_or(0, |(_, whole)| whole.payload),
        "protection": args.common.wire.protection.name(),
        "sizes": rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
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

fn head(args: &PerfClientArgs, config: &Config, finds: bool) -> String {
    let payload = if finds { "as large as passes".to_owned() } else { format!("{} B", config.payload) };
    let what = match mode(args) {
        Mode::Bandwidth => "writes",
        Mode::Bidirectional => "writes in both directions",
        Mode::Latency => "round trips of messages",
        Mode::Verify => "verified writes",
    };
    let rtt = if args.latency { "RTT p50/p99 us" } else { "ping p50/p99 us" };
    format!(
        "{what} of {} B, {} connection(s), profile {}, payload {}\n{:>13}  {:>9}  {:>9}  {:>17}  {:>7}  {}\n",
        args.size,
        args.connections,
        config.profile.name,
        payload,
        "seconds",
        "Gb/s",
        "messages",
        rtt,
        "again",
        "per plane Gb/s"
    )
}

/// The line below all others.
pub(super) fn last_line(whole: &Stretch) -> String {
    format!("{}\n{}", "-".repeat(78), line(whole))
}

pub(super) fn line(stretch: &Stretch) -> String {
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

pub(super) fn json(args: &PerfClientArgs, profile: String, whole: &Stretch, seconds: &[Stretch]) -> String {
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
            "rtt_us": { "p50": stretch.rtt_p50_us, "p99": stretch.rtt_p99_us, "p999": stretch.rtt_p999_us },
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
    object["payload"] = whole.payload.into();
    object["protection"] = args.common.wire.protection.name().into();
    object["seconds"] = seconds.iter().map(row).collect();
    format!("{object:#}\n")
}
