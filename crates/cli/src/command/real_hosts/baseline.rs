//! `strandway perf client --beside`: TCP and TLS in turns with our own protocol.

use crate::Failure;
use crate::args::{BaselineName, PerfClientArgs};
use crate::outputs::Outputs;
use crate::progress;
use std::net::{SocketAddr, SocketAddrV6};
use strandway_perf::{self as perf, Baseline, BaselineError, BaselineResult, Mode, Options};
use strandway_udp::{Node, address};

/// The rows of all rounds: ours first, then the baselines.
pub(super) struct Table {
    names: Vec<String>,
    /// By row: what each round had.
    rounds: Vec<Vec<BaselineResult>>,
    is_latency: bool,
    /// Payload bytes of our packets.
    payload: u32,
}

/// The middle value, or the mean of the two in the middle; 0 without any.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The congestion control that was asked for, or the kernel's for new connections, such as `cubic`.
fn control(asked: Option<&str>) -> String {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let name = asked.map(str::to_string).or_else(|| std::fs::read_to_string(path).ok());
    name.map_or_else(String::new, |name| format!(", {}", name.trim()))
}

/// Measures all rows, round by round, and shows each round as it ends.
pub(super) fn measure(
    args: &PerfClientArgs,
    nodes: &mut [Node],
    servers: &[Vec<SocketAddrV6>],
    options: &Options,
    outputs: &mut Outputs,
) -> Result<Table, Failure> {
    let first = servers.first().and_then(|planes| planes.first());
    let at = address::shown(SocketAddr::V6(*first.ok_or_else(|| Failure::Usage("name a server".into()))?));
    let mut baselines: Vec<Baseline> = Vec::new();
    for name in &args.beside {
        let baseline = match name {
            BaselineName::Tcp => Baseline::Tcp,
            BaselineName::Tls => Baseline::Tls,
        };
        if !baselines.contains(&baseline) {
            baselines.push(baseline);
        }
    }
    let congestion = args.congestion.as_deref();
    perf::check_baseline(congestion, options).map_err(failure)?;
    let protection = args.common.wire.protection.name();
    let mut names = vec![format!("strandway, {protection}")];
    names.extend(baselines.iter().map(|baseline| match baseline {
        Baseline::Tcp => format!("TCP{}", control(congestion)),
        Baseline::Tls => format!("TLS 1.3{}", control(congestion)),
    }));
    let (rounds, is_latency) = (vec![Vec::new(); names.len()], options.mode == Mode::Latency);
    let mut table = Table { rounds, names, is_latency, payload: 0 };
    outputs.show(&table.head(args));
    for round in 1..=args.rounds {
        let mut results = vec![BaselineResult::default(); table.names.len()];
        // Every second round runs backwards, so that a machine that changes meanwhile favours nobody.
        let backwards = round % 2 == 0;
        let count = results.len();
        for place in 0..count {
            let row = if backwards { count - 1 - place } else { place };
            results[row] = match row.checked_sub(1) {
                None => {
                    let (result, payload) = ours(nodes, servers, options)?;
                    table.payload = payload;
                    result
                }
                Some(baseline) => {
                    let baseline = baselines[baseline];
                    perf::run_baseline(baseline, at, congestion, options, &progress::interrupted).map_err(failure)?
                }
            };
        }
        // A round that was interrupted compares nothing.
        if progress::interrupted() {
            outputs.show("interrupted\n");
            break;
        }
        for (rounds, result) in table.rounds.iter_mut().zip(results) {
            rounds.push(result);
        }
        outputs.show(&table.round(round));
    }
    if table.rounds[0].is_empty() {
        return Err(Failure::Run("no round has ended".into()));
    }
    outputs.show(&table.medians());
    Ok(table)
}

/// Measures our own protocol; returns the payload bytes of its packets as well.
fn ours(
    nodes: &mut [Node],
    servers: &[Vec<SocketAddrV6>],
    options: &Options,
) -> Result<(BaselineResult, u32), Failure> {
    let whole = perf::run_all(nodes, servers, options, progress::interrupted, |_| {}).map_err(super::perf::failure)?;
    if whole.messages == 0 && !progress::interrupted() {
        return Err(Failure::Usage(format!(
            "--seconds {}: no message of {} B has ended in this time: take more seconds or a smaller --size",
            options.duration.as_secs_f64(),
            options.size
        )));
    }
    let result = BaselineResult {
        goodput_gbps: whole.goodput_gbps,
        messages: whole.messages,
        rtt_p50_us: whole.rtt_p50_us,
        rtt_p99_us: whole.rtt_p99_us,
    };
    Ok((result, whole.payload))
}

fn failure(error: BaselineError) -> Failure {
    match error {
        BaselineError::Option(said) => Failure::Usage(said),
        error @ BaselineError::Control(..) => Failure::Usage(format!("--congestion: {error}")),
        other => Failure::Run(other.to_string()),
    }
}

impl Table {
    fn head(&self, args: &PerfClientArgs) -> String {
        let planes = match args.server.len() {
            1 => String::new(),
            planes => format!(" on the first of {planes} planes"),
        };
        let what = if self.is_latency { "round trips, p50/p99 in us" } else { "Gb/s" };
        let columns: String = self.names.iter().map(|name| format!("  {name:>24}")).collect();
        format!("{what}; TCP takes one stream per connection{planes}\n{:>7}{columns}\n", "round")
    }

    /// The value of a row in a round.
    fn shown(&self, result: &BaselineResult) -> String {
        match self.is_latency {
            true => format!("{:.1}/{:.1}", result.rtt_p50_us, result.rtt_p99_us),
            false => format!("{:.3}", result.goodput_gbps),
        }
    }

    fn round(&self, number: u32) -> String {
        let last = self.rounds.iter().filter_map(|rounds| rounds.last());
        let columns: String = last.map(|result| format!("  {:>24}", self.shown(result))).collect();
        format!("{number:>7}{columns}\n")
    }

    fn median_of(&self, row: usize) -> BaselineResult {
        let of = |value: fn(&BaselineResult) -> f64| median(self.rounds[row].iter().map(value).collect());
        BaselineResult {
            goodput_gbps: of(|result| result.goodput_gbps),
            messages: of(|result| result.messages as f64) as u64,
            rtt_p50_us: of(|result| result.rtt_p50_us),
            rtt_p99_us: of(|result| result.rtt_p99_us),
        }
    }

    /// How many times as good ours was as a baseline, round by round.
    fn ratios(&self, row: usize) -> Vec<f64> {
        let pairs = self.rounds[0].iter().zip(&self.rounds[row]);
        match self.is_latency {
            true => pairs.map(|(ours, other)| other.rtt_p50_us / ours.rtt_p50_us.max(1e-3)).collect(),
            false => pairs.map(|(ours, other)| ours.goodput_gbps / other.goodput_gbps.max(1e-9)).collect(),
        }
    }

    /// The median of its ratios.
    fn ratio(&self, row: usize) -> f64 {
        median(self.ratios(row))
    }

    fn medians(&self) -> String {
        let rows = 0..self.names.len();
        let shown: String = rows.clone().map(|row| format!("  {:>24}", self.shown(&self.median_of(row)))).collect();
        let ratios: String = rows.skip(1).map(|row| format!("  {:>24}", format!("{:.2}", self.ratio(row)))).collect();
        let what = if self.is_latency { "its round trip / ours" } else { "our rate / its rate" };
        let note = "medians; the ratio is the median of the rounds' ratios, and above 1 ours is faster";
        format!("{}\n{:>7}{shown}\n{what:>33}{ratios}\n{note}\n", "-".repeat(7 + 26 * self.names.len()), "median")
    }

    pub(super) fn json(&self, args: &PerfClientArgs, profile: String) -> String {
        let result = |result: &BaselineResult| {
            let mut object = serde_json::json!({ "goodput_gbps": result.goodput_gbps, "messages": result.messages });
            if self.is_latency {
                object["rtt_us"] = serde_json::json!({ "p50": result.rtt_p50_us, "p99": result.rtt_p99_us });
            }
            object
        };
        let rows = self.names.iter().enumerate().map(|(row, name)| {
            let mut object = result(&self.median_of(row));
            object["name"] = name.as_str().into();
            object["rounds"] = self.rounds[row].iter().map(result).collect();
            if row > 0 {
                object["ratio"] = self.ratio(row).into();
                object["ratios"] = self.ratios(row).into();
            }
            object
        });
        let object = serde_json::json!({
            "format": 1,
            "kind": "beside",
            "mode": if self.is_latency { "latency" } else { "bandwidth" },
            "size": args.size,
            "connections": args.connections,
            "threads": args.common.threads,
            "profile": profile,
            "payload": self.payload,
            "protection": args.common.wire.protection.name(),
            "rows": rows.collect::<Vec<_>>(),
        });
        format!("{object:#}\n")
    }
}
