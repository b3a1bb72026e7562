//! Small messages: how many per second, how long a round trip takes beside large writes, and many connections at once.

use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::latency::nodes;
use crate::network::{Network, Wire};
use crate::ours::{MESSAGE, Ours, name_of};
use crate::{Options, ceiling, libfabric};
use std::time::Duration;
use strandway_perf as perf;
use strandway_perf::Mode;
use strandway_udp::Protection;

const SIZES: [u64; 5] = [8, 64, 512, 4_096, 65_536];
/// Messages under way: that of perftest.
const DEPTH: usize = 128;
const MTU: u32 = 1_500;
/// The largest message that bare UDP sends in one packet.
const DATAGRAM_MAX: u64 = 1_452;
/// Enough for some tenths of a second.
const LIBFABRIC_MESSAGES: usize = 20_000;
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];

/// Measurements of one second each hold for all rows of a kind.
fn options(size: u64, mode: Mode, seconds: f64) -> perf::Options {
    perf::Options {
        size,
        connections: 1,
        duration: Duration::from_secs_f64(seconds),
        depth: DEPTH,
        mode,
        interval: Duration::from_secs(3_600),
        messages: None,
        bulk: 0,
    }
}

/// Runs one client and one server.
fn measure(ours: &Ours, options: &perf::Options) -> Result<perf::Stretch, String> {
    nodes(ours, 1, options)?.pop().ok_or("no result".into())
}

pub(crate) fn contest<'a>(network: &'a Network, options_of: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options_of.seconds, Vec::new());
    let wire = Wire::plain(MTU);
    let columns =
        [Column::new("messages", "million/s"), Column::new("goodput", "Gb/s"), Column::new("sent again", "packets")];
    let has_libfabric = libfabric::is_here(libfabric::WRITES);
    for size in SIZES {
        let table = format!("writes of {size} B, {DEPTH} under way");
        let udp = "bare UDP, sendmmsg and recvmmsg";
        if size <= DATAGRAM_MAX {
            rows.push(Row::new(&table, udp, &columns[..2], move || {
                network.set(wire)?;
                let send = |meter: &Meter| ceiling::send_many(meter, size as usize);
                let gbps = goodput(seconds, send, ceiling::receive_many)?[0];
                Ok(vec![gbps * 1e3 / 8.0 / size as f64, gbps])
            }));
        }
        let mut rivals: Vec<String> = Vec::new();
        let providers: &[&str] = if has_libfabric { &[libfabric::UDP, libfabric::TCP] } else { &[] };
        for provider in providers {
            let name = format!("libfabric, {provider}");
            rows.push(Row::new(&table, &name, &columns[..2], move || {
                network.set(wire)?;
                let rate = libfabric::write(provider, LIBFABRIC_MESSAGES, size as usize, DEPTH)?;
                Ok(vec![rate, rate * size as f64 * 8.0 / 1e3])
            }));
            rivals.push(name);
        }
        for protection in [Protection::None, Protection::Encrypted] {
            let mut ours = Ours::new("uec", 1_344)?;
            ours.config.protection = protection;
            let row = Row::new(&table, format!("uec, {}", name_of(protection)), &columns, move || {
                network.set(wire)?;
                let whole = measure(&ours, &options(size, Mode::Bandwidth, seconds))?;
                let rate = whole.messages as f64 / whole.to_s / 1e6;
                Ok(vec![rate, whole.goodput_gbps, whole.retransmitted as f64])
            });
            let row = if size <= DATAGRAM_MAX { row.against(udp) } else { row };
            rows.push(rivals.iter().fold(row, |row, rival| row.against(rival)));
        }
    }
    let table = "64 B there and back, beside writes of 1 MiB on another connection of the same nodes";
    // The 99th percentile comes first, since ratios are those of the first column.
    let columns = [
        Column::new("p99", "us"),
        Column::new("p50", "us"),
        Column::new("p99.9", "us"),
        Column::new("writes of 1 MiB", "Gb/s"),
    ];
    for protection in [Protection::None, Protection::Encrypted] {
        let idle = format!("uec, {}, alone", name_of(protection));
        for (bulk, name) in [(0, idle.clone()), (1, format!("uec, {}, beside bulk", name_of(protection)))] {
            let mut ours = Ours::new("uec", 1_344)?;
            ours.config.protection = protection;
            let row = Row::new(table, name, &columns, move || {
                network.set(wire)?;
                let options = perf::Options { bulk, depth: 8, ..options(64, Mode::Latency, seconds) };
                let whole = measure(&ours, &options)?;
                let bulk = whole.goodput_gbps - whole.messages as f64 * 64.0 * 8.0 / whole.to_s / 1e9;
                Ok(vec![whole.rtt_p99_us, whole.rtt_p50_us, whole.rtt_p999_us, bulk])
            });
            rows.push(if bulk == 0 { row } else { row.against(&idle) });
        }
    }
    let table = "writes of 1 MiB, eight under way on each connection of one pair of nodes";
    let columns = [Column::new("goodput together", "Gb/s"), Column::new("sent again", "packets")];
    for protection in [Protection::None, Protection::Encrypted] {
        let first = format!("uec, {}, 1 connection", name_of(protection));
        for connections in CONNECTIONS {
            let mut ours = Ours::new("uec", 1_344)?;
            ours.config.protection = protection;
            let plural = if connections == 1 { "" } else { "s" };
            let name = format!("uec, {}, {connections} connection{plural}", name_of(protection));
            let row = Row::new(table, name, &columns, move || {
                network.set(wire)?;
                let options =
                    perf::Options { connections, depth: 8, ..options(MESSAGE as u64, Mode::Bandwidth, seconds) };
                let whole = measure(&ours, &options)?;
                Ok(vec![whole.goodput_gbps, whole.retransmitted as f64])
            });
            rows.push(if connections == 1 { row } else { row.against(&first) });
        }
    }
    Ok(Contest { section: "messages", rows })
}
