//! `strandway perf collective`.

use super::{team, wire};
use crate::Failure;
use crate::args::{CollectiveName, PerfCollectiveArgs};
use crate::outputs::{Outputs, Wanted};
use crate::progress;
use strandway_collective::Algorithm;
use strandway_group::aggregation::InNetwork;
use strandway_group::bench::{Bench, Method, Row};
use strandway_group::{Team, What};
use strandway_udp::Node;

/// Simultaneous transfers of a rank in an all-to-all: ours, as in scenarios.
const WINDOW: u32 = 8;

pub(super) fn collective(args: &PerfCollectiveArgs) -> Result<(), Failure> {
    let way = way(args)?;
    let node_file = wire::node_file(&args.wire)?;
    let ranks = team::rank_file(&args.ranks, node_file.as_ref())?;
    let rank = team::rank(args.rank)?;
    let Some(ours) = ranks.get(rank as usize).cloned() else {
        let count = ranks.len();
        return Err(Failure::Usage(format!(
            "--rank {rank}: {} has {count} ranks, counted from 0",
            args.ranks.display()
        )));
    };
    if let Method::Multicast(What::Broadcast { root }) = way
        && root as usize >= ranks.len()
    {
        return Err(Failure::Usage(format!("--root {root}: there are {} ranks, counted from 0", ranks.len())));
    }
    let network = match way {
        Method::InNetwork => Some(super::switch::network(&args.switch)?),
        _ if args.switch.switch.is_some() => {
            return Err(Failure::Usage("--switch: only --algorithm in-network uses one".into()));
        }
        _ => None,
    };
    let (profile, file) = (args.profile.as_deref(), node_file.as_ref());
    let mut config = wire::configure(&args.wire, file, profile, || Ok(ours), team::PORT)?;
    config.rate = args.rate.unwrap_or(config.rate);
    let options = team::options(&args.team, &config)?;
    let inputs = [wire::inputs(&args.wire), vec![args.ranks.clone()]].concat();
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &inputs)?;
    let (profile, payload) = (config.profile.name.clone(), config.payload);
    let node = Node::bind(config)?;
    let count = ranks.len();
    let mut formed = Team::form(node, rank, ranks, options, &progress::interrupted)?;
    let planes = formed.multicast_planes();
    let mut network = match network {
        Some(options) => Some(formed.join_switch(options, &progress::interrupted)?),
        None => None,
    };
    let system = network.as_ref().and_then(InNetwork::system);
    if rank == 0 {
        outputs.show(&head(args, way, count, planes, &profile, system));
    }
    let bench = Bench {
        way,
        first: args.begin,
        last: args.end,
        factor: args.factor,
        warmup: args.warmup,
        runs: args.iterations,
        check: !args.no_check,
    };
    let mut rows = Vec::new();
    let before = formed.node().observe().plane_counters();
    let each = |row: &Row| {
        if rank == 0 {
            outputs.show(&line(way, row, args.root));
        }
        rows.push(*row);
    };
    match &mut network {
        Some(network) => {
            let compute = super::switch::computing(&args.switch, rank)?;
            bench.run_by_switch(&mut formed, network, &progress::interrupted, compute, each)?;
        }
        None => bench.run(&mut formed, &progress::interrupted, each)?,
    }
    let sent = |counters: &[strandway_udp::PlaneCounters]| counters.iter().map(|plane| plane.sent_bytes).sum::<u64>();
    let bytes = sent(&formed.node().observe().plane_counters()) - sent(&before);
    let wrong = rows.iter().filter(|row| row.right == Some(false)).count();
    let fragments = network.as_mut().map(|network| fragments(system, network));
    drop(network);
    formed.end(&progress::interrupted)?;
    outputs.json(|| json(args, way, (count, rank, planes), (&profile, payload), &rows, (bytes, fragments)))?;
    if wrong > 0 {
        return Err(Failure::Run(format!(
            "rank {rank}: {wrong} size(s) with a wrong result: this is a bug in Strandway"
        )));
    }
    Ok(())
}

fn way(args: &PerfCollectiveArgs) -> Result<Method, Failure> {
    let names: &[(&str, Method)] = match args.collective {
        CollectiveName::AllReduce => &[
            ("ring", Method::Messages(Algorithm::RingAllReduce)),
            ("halving-doubling", Method::Messages(Algorithm::HalvingDoubling)),
            ("in-network", Method::InNetwork),
        ],
        CollectiveName::AllGather => &[
            ("multicast", Method::Multicast(What::AllGather)),
            ("ring", Method::Messages(Algorithm::RingAllGather)),
            ("recursive-doubling", Method::Messages(Algorithm::RecursiveDoubling)),
            ("linear", Method::Messages(Algorithm::LinearAllGather)),
        ],
        CollectiveName::ReduceScatter => &[("ring", Method::Messages(Algorithm::RingReduceScatter))],
        CollectiveName::Broadcast => &[("multicast", Method::Multicast(What::Broadcast { root: args.root }))],
        CollectiveName::AllToAll => &[("windowed", Method::Messages(Algorithm::AllToAll { window: WINDOW }))],
    };
    let Some(wanted) = &args.algorithm else { return Ok(names[0].1) };
    names.iter().find(|(name, _)| name == wanted).map(|(_, way)| *way).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        Failure::Usage(format!("--algorithm {wanted}: this collective has {}", known.join(", ")))
    })
}

/// The fragments that a rank sent and received through a switch.
fn fragments(system: Option<&str>, network: &mut InNetwork) -> serde_json::Value {
    let (counts, sockets) = (network.counts(), network.counters());
    serde_json::json!({
        "system": system,
        "sent": counts.sent,
        "resent": counts.resent,
        "reminders": counts.reminders,
        "floats": counts.floats,
        "late_results": counts.late_results,
        "datagrams_sent": sockets.sent,
        "datagrams_received": sockets.received,
        "sent_bytes": sockets.sent_bytes,
        "received_bytes": sockets.received_bytes,
    })
}

fn head(
    args: &PerfCollectiveArgs,
    way: Method,
    ranks: usize,
    planes: u32,
    profile: &str,
    system: Option<&str>,
) -> String {
    let how = match way {
        Method::Multicast(_) if planes == 0 => "no plane carries multicast, so ranks form a unicast chain".to_string(),
        Method::Multicast(_) => format!("multicast on {} plane(s)", planes.count_ones()),
        Method::Messages(_) => format!("{} of messages, profile {profile}", way.name()),
        Method::InNetwork => format!("by a switch that runs {}", system.unwrap_or("nothing")),
    };
    format!(
        "# {} of {ranks} ranks, {how}, {} run(s) of each size after {}\n#{:>13} {:>12} {:>8} {:>7} {:>5} {:>11} {:>9} {:>9} {:>7}\n#{:>13} {:>12} {:>8} {:>7} {:>5} {:>11} {:>9} {:>9}\n",
        way.collective().name(),
        args.iterations,
        args.warmup,
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)"
    )
}

fn line(way: Method, row: &Row, root: u32) -> String {
    let (redop, root) = match way {
        Method::Messages(algorithm) => match algorithm.collective().name() {
            "allreduce" | "reducescatter" => ("sum", "-1".to_string()),
            _ => ("none", "-1".to_string()),
        },
        Method::InNetwork => ("sum", "-1".to_string()),
        Method::Multicast(What::Broadcast { .. }) => ("none", root.to_string()),
        Method::Multicast(What::AllGather) => ("none", "-1".to_string()),
    };
    // Sums have 32-bit numbers if messages allow that; data that is only moved consists of bytes.
    let (count, kind) = if redop == "sum" { (row.size / 4, "float") } else { (row.size, "int8") };
    let wrong = row.right.map_or("N/A", |right| if right { "0" } else { "wrong" });
    let by_ring =
        if row.by_ring > 0 { format!("  {} run(s) by a ring: no switch", row.by_ring) } else { String::new() };
    format!(
        " {:>13} {count:>12} {kind:>8} {redop:>7} {root:>5} {:>11.1} {:>9.3} {:>9.3} {wrong:>7}{by_ring}\n",
        row.size,
        row.mean.as_secs_f64() * 1e6,
        row.algorithm_gbs,
        row.bus_gbs
    )
}

fn json(
    args: &PerfCollectiveArgs,
    way: Method,
    (ranks, rank, planes): (usize, u32, u32),
    (profile, payload): (&str, u32),
    rows: &[Row],
    (sent_bytes, fragments): (u64, Option<serde_json::Value>),
) -> String {
    let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let row = |row: &Row| {
        serde_json::json!({
            "size": row.size,
            "time_us": { "mean": us(row.mean), "min": us(row.min), "p50": us(row.p50), "max": us(row.max) },
            "algorithm_gbs": row.algorithm_gbs,
            "bus_gbs": row.bus_gbs,
            "right": row.right,
            "by_ring": row.by_ring,
        })
    };
    let object = serde_json::json!({
        "format": 1,
        "kind": "collective",
        "collective": way.collective().name(),
        "algorithm": way.name(),
        "ranks": ranks,
        "rank": rank,
        "multicast_planes": planes,
        "profile": profile,
        "payload": payload,
        "protection": args.wire.protection.name(),
        "iterations": args.iterations,
        "warmup": args.warmup,
        "sent_bytes": sent_bytes,
        "fragments": fragments,
        "sizes": rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}
