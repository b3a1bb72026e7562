//! `strandway fabric`.

use crate::Failure;
use crate::args::{
    FabricArgs, FabricBenchLineArgs, FabricBuildArgs, FabricCheckArgs, FabricCommand, FabricExecArgs, FabricGroupArgs,
    FabricLocaliseArgs, FabricRunArgs, FabricStatusArgs, FabricUpArgs, Layout,
};
use crate::command::compare::write_outputs;
use crate::command::{check_expectations, load, load_with};
use crate::invocation;
use crate::outputs::{Outputs, Wanted, complain, print};
use crate::progress::{RealBar, interrupted};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::localise::Suspicion;
use strandway_fabric::loss::Burst;
use strandway_fabric::multicast::GroupAddress;
use strandway_fabric::usid::Element;
use strandway_proto::Rate;
use strandway_report::{self as report, Report, Row};
use strandway_sim::Control;
use strandway_testbed::linux::line::{Line, Losses};
use strandway_testbed::linux::{self, Copied, Copying, FOLDER, LinuxError, Options, Probed, Running, Up};
use strandway_testbed::wire;

impl From<LinuxError> for Failure {
    fn from(error: LinuxError) -> Failure {
        Failure::Run(error.0)
    }
}

pub(crate) fn fabric(args: &FabricArgs) -> Result<(), Failure> {
    match &args.command {
        FabricCommand::Up(args) => up(args),
        FabricCommand::Run(args) => run(args),
        FabricCommand::Export(args) => super::export::export(args),
        FabricCommand::Status(args) => status(args),
        FabricCommand::Fail(args) => {
            let news = linux::fail(&args.fabric.name, &args.target)?;
            print(&format!("{} {}\n", args.target, if news { "has failed" } else { "had failed already" }));
            Ok(())
        }
        FabricCommand::Heal(args) => {
            let news = linux::heal(&args.fabric.name, args.target.as_deref())?;
            let what = args.target.as_deref().unwrap_or("everything");
            print(&format!("{what} {}\n", if news { "is healed" } else { "was whole already" }));
            Ok(())
        }
        FabricCommand::Deny(args) => {
            let news = linux::deny(&args.fabric.name, &args.target)?;
            let said = if news { "is denied to nodes" } else { "was denied already" };
            print(&format!("{} {said}\n", args.target));
            Ok(())
        }
        FabricCommand::Allow(args) => {
            let news = linux::allow(&args.fabric.name, args.target.as_deref())?;
            let what = args.target.as_deref().unwrap_or("everything");
            print(&format!("{what} {}\n", if news { "is allowed again" } else { "was not denied" }));
            Ok(())
        }
        FabricCommand::Localise(args) => match &args.nodes {
            Some(places) => super::gray::localise(args, places),
            None => localise(args),
        },
        FabricCommand::Group(args) => group(args),
        FabricCommand::Exec(args) => exec(args),
        FabricCommand::Down(args) => {
            let name = &args.fabric.name;
            match linux::down(name, args.force)? {
                0 => print(&format!("{name}: there was nothing to remove\n")),
                count => print(&format!("{name}: {count} namespaces removed\n")),
            }
            Ok(())
        }
        FabricCommand::List => {
            let names = linux::names();
            print(&if names.is_empty() { "no fabric is up\n".to_string() } else { names.join("\n") + "\n" });
            Ok(())
        }
        FabricCommand::Check(args) => check(args),
        FabricCommand::BenchLine(args) => bench_line(args),
        FabricCommand::CarryLines(args) => Ok(linux::carry_lines(&args.name)?),
    }
}

fn asked(args: &FabricBuildArgs) -> Result<Options, Failure> {
    if args.layout == Layout::Uet {
        let what = "hosts of a fabric reach each other by SRv6 lists, which this layout has not; take frame or mrc";
        return Err(Failure::Usage(format!("--layout uet: {what}")));
    }
    let copying = if args.routers { Copying::Routers } else { Copying::Filters };
    let mrc_layout = args.layout == Layout::Mrc;
    Ok(Options { rate: args.rate.clone(), unshaped: args.unshaped, reorder: args.reorder.clone(), copying, mrc_layout })
}

fn up(args: &FabricUpArgs) -> Result<(), Failure> {
    let options = asked(&args.build)?;
    let scenario = load_with(&args.scenario, &args.set)?;
    let name = &args.fabric.name;
    let show = |text: &str| {
        if !args.quiet {
            print(text)
        }
    };
    let fabric = linux::feasible(linux::fabric_of(&scenario, name, &options)?);
    let began = Instant::now();
    if linux::up(&fabric, invocation::program(), &interrupted)? == Up::Standing {
        show(&format!("{name} is up already, without differences\n"));
        return Ok(());
    }
    let flag = if name == "sw" { String::new() } else { format!(" --name {name}") };
    show(&format!(
        "{name}: {} hosts, {} planes of {} T0{} {} T1{}, {} namespaces, in {:.1} s\n\
         nodes: {FOLDER}/{name}/h0.toml ...\n\
         next:  strandway fabric status --probe{flag}\n",
        fabric.hosts,
        fabric.planes,
        fabric.t0s(),
        if fabric.pods.is_some() { "," } else { " and" },
        fabric.t1s,
        if fabric.pods.is_some() { format!(" and {} T2", fabric.t2s()) } else { String::new() },
        fabric.nodes().len(),
        began.elapsed().as_secs_f64()
    ));
    for note in &fabric.notes {
        show(&format!("not as simulated: {note}\n"));
    }
    let plan = strandway_lab::check(&scenario)?.plan;
    if plan.faults.iter().any(|fault| !linux::is_carried(&plan.topology, fault)) {
        show(
            "faults: the scenario's faults happen only in `strandway fabric run`; use `strandway fabric fail` for others\n",
        );
    }
    Ok(())
}

/// A fabric that was built for one run. It is removed at the end of the run, also after errors.
struct Lease<'a>(&'a str, &'a Running);

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Err(error) = linux::down_after(self.0, self.1) {
            complain(&error.0);
        }
    }
}

fn run(args: &FabricRunArgs) -> Result<(), Failure> {
    let (common, name) = (&args.common, &args.fabric.name);
    let options = asked(&args.build)?;
    if args.both && args.build.unshaped {
        let said = "--unshaped: ports without a rate cannot be simulated; give --rate, or leave --both out";
        return Err(Failure::Usage(said.into()));
    }
    // Both runs use the fabric as built.
    let scenario = linux::rated(&load(common)?, &options)?;
    let experiment = strandway_lab::check(&scenario)?;
    wire::supported(&experiment).map_err(|error| Failure::Usage(format!("{}: {error}", scenario.file())))?;
    let mut outputs = Outputs::open(Wanted::of(common), &scenario.inputs())?;
    let fabric = linux::fabric_of(&scenario, name, &Options { rate: None, ..options })?;
    let fabric = linux::feasible(fabric);
    let running = Running::on(name)?;
    let mut notes = fabric.notes.clone();
    let lease = match linux::up(&fabric, invocation::program(), &interrupted)? {
        Up::Built => Some(Lease(name, &running)),
        Up::Standing => {
            let broken = linux::broken(name)?;
            if args.both && !broken.is_empty() {
                return Err(Failure::Run(format!(
                    "fabric `{name}` has failures that the simulation does not have: {}; heal them first (strandway fabric heal --name {name})",
                    broken.join(", ")
                )));
            }
            notes.extend(broken.iter().map(|what| format!("broken before the run: {what}")));
            None
        }
    };
    if experiment.plan.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Down { .. })) {
        notes.push("lost: packets lost on dead links are not counted; `lost` counts only random losses".to_string());
    }
    if args.build.unshaped {
        notes.push("rates: ports are not shaped, so slowdown and link utilisation have no meaning".to_string());
    }
    let load = load_average();
    let bar = RealBar::of_flows(common.quiet);
    let began = Instant::now();
    let measured = linux::live(name, &experiment, |progress| {
        bar.show(progress.finished as u64, progress.flows as u64, String::new);
        !interrupted()
    });
    drop(bar);
    let wall = began.elapsed().as_secs_f64();
    if measured.is_ok() {
        notes.extend(linux::failed_lines(name)?);
    }
    drop(lease);
    if load.is_some_and(|load| load > 0.5) {
        let load = load.unwrap_or_default();
        notes.push(format!(
            "load: the load average was {load:.1} before the run; times between real nodes vary with it"
        ));
    }
    let (measured, late) = measured?;
    if let Some(late) = late {
        notes.push(format!("faults: they began and ended up to {} ms after their times", late.as_millis()));
    }
    let wire = strandway_lab::facts::report_of_namespaces(&experiment, &measured, wall, &notes);
    if args.both {
        let simulated = strandway_lab::run(&experiment, &Control::new()).report;
        let row = |label: &str, report| Row { label: label.into(), set: BTreeMap::new(), report };
        let rows = vec![row("simulated", simulated), row("namespaces", wire)];
        let remark = agreement(&rows);
        let document = write_outputs(&mut outputs, &scenario, rows, Vec::new(), &remark)?;
        return check_expectations(document.rows.iter().map(|row| (row.label.as_str(), &row.report)));
    }
    outputs.show(&report::text::report_in(&wire, outputs.width()));
    outputs.json(|| wire.to_json())?;
    if let Some(output) = outputs.html.take() {
        output.finish(report::html::report(&wire).as_bytes())?;
    }
    if let Some(output) = outputs.markdown.take() {
        output.finish(report::markdown::report(&wire).as_bytes())?;
    }
    check_expectations([("", &wire)])
}

/// The load average of the last minute.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The distance between simulated and real run, and the differences in their settings.
fn agreement(rows: &[Row]) -> String {
    let [simulated, wire] = rows else { return String::new() };
    let (a, b) = (&simulated.report.times.fct_us, &wire.report.times.fct_us);
    let percent = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(f64::NAN, |(a, b)| (b / a - 1.0) * 100.0);
    let notes: String = wire.report.notes.iter().map(|note| format!("{note}\n")).collect();
    let bytes = |row: &Row| row.report.load.links.iter().map(|link| link.bytes).sum::<u64>() as f64;
    format!(
        "\nnamespaces against simulated: mean completion {:+.1} %, slowest {:+.1} %\n\
         bytes on all links: {:.3} MB in namespaces, {:.3} MB simulated, {:+.1} %\n{}{notes}",
        percent(a.mean, b.mean),
        percent(a.max, b.max),
        bytes(wire) / 1e6,
        bytes(simulated) / 1e6,
        percent(Some(bytes(simulated)), Some(bytes(wire))),
        chunks(&wire.report, &simulated.report),
    )
}

/// A line with the chunks of both runs: cast, repaired, rebuilt and received. Empty if none were cast.
fn chunks(wire: &Report, simulated: &Report) -> String {
    if wire.packets.coded.chunks == 0 {
        return String::new();
    }
    let tell = |report: &Report| {
        let p = &report.packets;
        let cast = p.coded.chunks - p.coded.repairs;
        format!(
            "{cast} cast, {} repairs, {} rebuilt, {} arrived",
            p.coded.repairs, p.coded.rebuilt, p.coded.chunks_arrived
        )
    };
    format!("chunks: {} in namespaces; {} simulated\n", tell(wire), tell(simulated))
}

/// Makes or removes a team, or lists all teams.
fn group(args: &FabricGroupArgs) -> Result<(), Failure> {
    let name = &args.fabric.name;
    let Some(team) = args.team else {
        let (fabric, teams) = linux::teams(name)?;
        let mut text = String::new();
        for team in &teams {
            let address = |plane, tree| GroupAddress { plane, tree, team: team.number }.address();
            let last = address(fabric.planes - 1, fabric.trees() - 1);
            text.push_str(&format!("team {team}: {} to {last}\n", address(0, 0)));
        }
        print(if text.is_empty() { "the switches do not copy multicast\n" } else { &text });
        return Ok(());
    };
    let hosts = if args.remove { None } else { args.hosts.as_deref() };
    if hosts.is_none() && !args.remove {
        return Err(Failure::Usage(format!("team {team}: name its hosts, say h0,h1, or pass --remove")));
    }
    let news = linux::set_team(name, team, hosts)?;
    print(&match (hosts, news) {
        (Some(hosts), true) => format!("switches copy for team {team}: {hosts}\n"),
        (Some(hosts), false) => format!("team {team} was {hosts} already\n"),
        (None, true) => format!("switches do not copy for team {team} any more\n"),
        (None, false) => format!("there was no team {team}\n"),
    });
    Ok(())
}

fn status(args: &FabricStatusArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let (name, mut probes) = (&args.fabric.name, None);
    if args.probe {
        probes = Some((linux::probe(name)?, linux::probe_copies(name, 1)?));
    }
    let status = linux::status(name)?;
    outputs.show(&status.text());
    if let Some((probed, copied)) = &probes {
        outputs.show(&paths(probed));
        outputs.show(&trees(copied));
    }
    outputs.json(|| {
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        if let (Some((probed, copied)), Some(table)) = (&probes, value.as_object_mut()) {
            table.insert("probed".into(), serde_json::to_value(probed).unwrap_or_default());
            table.insert("copied".into(), serde_json::to_value(copied).unwrap_or_default());
        }
        format!("{value:#}\n")
    })?;
    let Some((probed, copied)) = probes else { return Ok(()) };
    let of_paths = probed.iter().map(|p| (p.wanted, p.arrived));
    let of_trees = copied.iter().map(|c| (c.wanted, c.arrived));
    let (wanted, arrived) =
        of_paths.chain(of_trees).fold((0, 0), |(w, a), (wanted, arrived)| (w + wanted, a + arrived));
    if wanted == arrived {
        return Ok(());
    }
    Err(Failure::Missed(format!("{} of {wanted} probes did not arrive", wanted - arrived)))
}

/// Names the broken links.
fn localise(args: &FabricLocaliseArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let findings = linux::localise(&args.fabric.name, args.rounds)?;
    let list = |parts: &[Element]| parts.iter().map(Element::to_string).collect::<Vec<_>>();
    let mut text = String::new();
    for suspicion in &findings.suspicions {
        let lost = suspicion.lost * 100.0;
        text.push_str(&format!("{}: {lost:.1} % lost\n", list(&suspicion.parts).join(" or ")));
    }
    if findings.suspicions.is_empty() {
        text.push_str("all links carry their probes\n");
    }
    if !findings.untested.is_empty() {
        text.push_str(&format!("untested, behind these: {}\n", list(&findings.untested).join(", ")));
    }
    outputs.show(&text);
    outputs.json(|| {
        let suspicion = |s: &Suspicion| serde_json::json!({ "parts": list(&s.parts), "lost": s.lost });
        let suspicions: Vec<_> = findings.suspicions.iter().map(suspicion).collect();
        let all = serde_json::json!({ "format": 1, "suspicions": suspicions, "untested": list(&findings.untested) });
        format!("{all:#}\n")
    })?;
    match findings.suspicions.len() {
        0 => Ok(()),
        1 => Err(Failure::Missed("a part of the fabric loses packets".into())),
        count => Err(Failure::Missed(format!("{count} parts of the fabric lose packets"))),
    }
}

/// A table of datagrams cast to groups: a line per tree with the number sent, and the number of copies that arrived.
fn trees(copied: &[Copied]) -> String {
    if copied.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{:<6} {:>5} {:>7} {:>7} {:>8} {:>8} {:>8}\n",
        "plane", "tree", "team", "casts", "refused", "copies", "arrived"
    );
    for c in copied {
        let Copied { casts, refused, wanted, arrived, .. } = c;
        text.push_str(&format!(
            "p{:<5} {:>5} {:>7} {casts:>7} {refused:>8} {wanted:>8} {arrived:>8}\n",
            c.plane, c.tree, c.team
        ));
    }
    text
}

/// A table of probes: a line per path with the number sent, and the number that arrived.
fn paths(probed: &[Probed]) -> String {
    let tall = probed.iter().any(|way| way.t2.is_some());
    let t2 = |text: &str| if tall { format!(" {text:>8}") } else { String::new() };
    let (t2_head, [probes, refused, arrived]) = (t2("T2"), ["probes", "refused", "arrived"]);
    let mut text = format!("\n{:<6} {:>7}{t2_head} {probes:>7} {refused:>8} {arrived:>8}\n", "plane", "T1");
    for way in probed {
        let t1 = way.t1.map_or("same T0".to_string(), |t1| t1.to_string());
        let over = t2(&way.t2.map_or("same pod".to_string(), |t2| t2.to_string()));
        text.push_str(&format!(
            "p{:<5} {t1:>7}{over} {:>7} {:>8} {:>8}\n",
            way.plane, way.wanted, way.refused, way.arrived
        ));
    }
    text
}

/// Replaces this process by the program, so that signals and exit status are the program's.
fn exec(args: &FabricExecArgs) -> Result<(), Failure> {
    let file = linux::enter(&args.fabric.name, &args.node)?;
    let error = Command::new("nsenter").arg(format!("--net={}", file.display())).arg("--").args(&args.command).exec();
    Err(Failure::Run(format!("`nsenter` cannot be run: {error}; install util-linux")))
}

fn check(args: &FabricCheckArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let findings = linux::check();
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in &findings {
        let word = match (finding.works, finding.needed) {
            (true, _) => "good",
            (false, true) => "missing",
            (false, false) => "without",
        };
        text.push_str(&format!("{word:<8} {:<width$}  {}\n", finding.what, finding.said));
        if !finding.works {
            text.push_str(&format!("{:<8} {:<width$}  -> {}\n", "", "", finding.remedy));
        }
    }
    outputs.show(&text);
    outputs.json(|| format!("{:#}\n", serde_json::json!({ "format": 1, "findings": findings })))?;
    match findings.iter().find(|finding| !finding.works && finding.needed) {
        None => Ok(()),
        Some(finding) => Err(Failure::Run(format!("{} is missing: {}", finding.what, finding.remedy))),
    }
}

/// Packets of 1,500 and 4,096 bytes at the rates that a long link should reach here.
fn bench_line(args: &FabricBenchLineArgs) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&args.loss) {
        return Err(Failure::Usage(format!("--loss {}: write a share from 0 to 1", args.loss)));
    }
    let line = Line {
        name: "bench".into(),
        latency_ns: args.latency * 1_000_000,
        rate: None,
        queue: 0,
        loss: [args.loss, 0.0].map(|share| Losses::new(share, Burst::NONE)),
        reorder: None,
        seed: 1,
    };
    let head = ["MTU", "sent", "packets", "arrived", "lost", "failed", "late", "hosts p50", "hosts p99", "per packet"];
    print(&format!("a line of {} ms one way, {} s each\n", args.latency, args.seconds));
    let late = "late: share of frames that left the line more than 100 us late. hosts: time from program to program, minus the line's latency.";
    let row = |cells: [String; 10]| cells.map(|cell| format!("{cell:>11}")).concat() + "\n";
    print(&row(head.map(String::from)));
    for (mtu, rate) in [(1500, 1), (4096, 1), (4096, 2)] {
        let b = linux::line::bench(&line, Rate::from_gbps(rate), mtu, Duration::from_secs(args.seconds))?;
        let us = |ns: u64| format!("{:.0} us", ns as f64 / 1e3);
        let [middle, most, _] = b.beyond_ns.map(us);
        let tardy = format!("{:.2} %", b.carried.tardy as f64 * 100.0 / b.carried.delivered.max(1) as f64);
        let cpu = format!("{:.2} us", b.carried.cpu_ns as f64 / 1e3 / b.sent.max(1) as f64);
        let sent = format!("{:.2} Gb/s", b.rate / 1e9);
        let numbers = [b.sent, b.arrived, b.carried.lost, b.carried.failed].map(|n| n.to_string());
        let [packets, arrived, lost, failed] = numbers;
        print(&row([mtu.to_string(), sent, packets, arrived, lost, failed, tardy, middle, most, cpu]));
    }
    print(&format!("{late}\n"));
    Ok(())
}
