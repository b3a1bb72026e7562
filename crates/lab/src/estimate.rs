//! Estimates a run before it starts: packet hops, time and memory.
//!
//! The figures are rough. If few packets are lost, memory is right within a factor of 1.5. Time is right within a
//! factor of 3 on machines of 2020 to 2026. Retransmissions are not counted.

mod threads;

use std::collections::BTreeSet;
use strandway_collective::Operation;
use strandway_report::numbers::{bytes, count};
use strandway_scenario::{CollectivePlan, Experiment};
pub use threads::ThreadModel;

/// Packet hops per second of one thread (ours: half of the value that `docs/performance.md` measures on an idle
/// machine).
const HOPS_PER_SECOND: f64 = 5e6;

/// Packet hops per second of one thread if switches pause or share buffers, because then every arrival is an event
/// (ours: half of the value that `docs/performance.md` measures on an idle machine).
const HOPS_PER_SECOND_BY_EVENT: f64 = 1.7e6;

/// Seconds to set up one link (ours, measured in the same way).
const SETUP_PER_LINK: f64 = 2e-6;

/// Bytes of the process itself, and of each object that exists for the whole run. Ours: fitted to `peak_rss_bytes` of
/// the scenarios under `scenarios/bench`.
const BASE: u64 = 8_000_000;
const PER_LINK: u64 = 260;
const PER_HOST: u64 = 600;
const PER_CONNECTION: u64 = 4_000;
const PER_FLOW: u64 = 250;
const PER_RANK: u64 = 400;
const PER_ACCOUNT: u64 = 200;
/// Ours: the times of a message without an entry, and its row in the report.
const PER_ROW: u64 = 120;
const PER_PACKET_UNDER_WAY: u64 = 75;

/// The estimate of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Packets times links, without retransmissions.
    pub packet_hops: u64,
    /// Wall-clock time in seconds.
    pub seconds: f64,
    /// Peak memory in bytes.
    pub memory: u64,
}

impl Estimate {
    /// The estimate for `experiment`.
    pub fn of(experiment: &Experiment) -> Estimate {
        let plan = &experiment.plan;
        let packet_hops = experiment.expected_hops();
        let by_event = plan.ports.pfc.is_some() || plan.ports.shared.is_some();
        let speed = if by_event { HOPS_PER_SECOND_BY_EVENT } else { HOPS_PER_SECOND };
        // Threads wait for each other at the ends of windows.
        let threads = (plan.threads as f64).powf(0.75);
        let links: u64 = plan.topology.groups().iter().map(|g| u64::from(g.links)).sum();
        let senders = plan.connections.iter().map(|c| c.source).collect::<BTreeSet<_>>().len() as u64;
        let sent: u64 = plan.flows.iter().map(|f| f.bytes).fold(0, u64::saturating_add);
        let planes = u64::from(plan.topology.planes());
        let derived = &experiment.derived;
        let pipe = match plan.topology.sites() {
            0 => derived.bdp.0 * planes,
            // Most packets in flight are on long links, if the profile's range of packet numbers allows that.
            _ => {
                let most = experiment.profile().reliability.range().map_or(u64::MAX, u64::from);
                let each = (plan.connections.len() as u64).div_ceil(senders.max(1));
                derived.rate.bytes_in(derived.base_rtt).0.min(most.saturating_mul(each * derived.packet.0))
            }
        };
        let under_way = pipe.min(sent / senders.max(1)) / derived.packet.0.max(1);
        // Half a byte for each message of a rank's schedule.
        let ranks: u64 = experiment
            .operations
            .iter()
            .filter_map(|operation| operation.group()?.schedule())
            .map(|schedule| u64::from(schedule.ranks()) * (PER_RANK + u64::from(schedule.messages()) / 2))
            .sum();
        let pairs = |plan: &&CollectivePlan| {
            let operation = experiment.operation_of(plan);
            plan.tallied && matches!(operation, Some(Operation::Messages(_) | Operation::PointToPoint(_)))
        };
        let tallied = experiment.collectives.iter().filter(pairs);
        let rows = if plan.rows { tallied.map(|plan| experiment.messages_of(plan)).sum() } else { 0 };
        let memory = BASE
            + ranks
            + rows * PER_ROW
            + links * PER_LINK
            + u64::from(plan.topology.hosts()) * PER_HOST
            + plan.connections.len() as u64 * PER_CONNECTION
            + plan.flows.len() as u64 * (PER_FLOW + if plan.accounts { PER_ACCOUNT } else { 0 })
            + senders * under_way * PER_PACKET_UNDER_WAY;
        let seconds = links as f64 * SETUP_PER_LINK + packet_hops as f64 / speed / threads;
        Estimate { packet_hops, seconds, memory }
    }

    /// The estimate as one line.
    pub fn text(&self, threads: usize) -> String {
        let threads = if threads == 1 { "1 thread".to_string() } else { format!("{threads} threads") };
        let time = match self.seconds {
            s if s < 1.0 => "less than a second".to_string(),
            s if s < 90.0 => format!("about {s:.0} s"),
            s if s < 5_400.0 => format!("about {:.0} min", s / 60.0),
            s if s < 200_000.0 => format!("about {:.0} h", s / 3_600.0),
            s => format!("about {:.0} days", s / 86_400.0),
        };
        format!("{} packet hops, {time} on {threads}, about {} of memory", count(self.packet_hops), bytes(self.memory))
    }

    /// The estimate of a sweep with `jobs` simultaneous runs: the sums of hops and times, and the memory of the `jobs`
    /// largest runs.
    pub fn together(all: &[Estimate], jobs: usize) -> Estimate {
        let mut memory: Vec<u64> = all.iter().map(|e| e.memory).collect();
        memory.sort_unstable_by(|a, b| b.cmp(a));
        Estimate {
            packet_hops: all.iter().map(|e| e.packet_hops).fold(0, u64::saturating_add),
            seconds: all.iter().map(|e| e.seconds).sum::<f64>() / jobs.clamp(1, all.len().max(1)) as f64,
            memory: memory.into_iter().take(jobs.max(1)).fold(0, u64::saturating_add),
        }
    }

    /// Checks that this machine has enough memory for the run.
    ///
    /// # Errors
    /// If the run needs more memory than is available; the message has both numbers.
    pub fn fits(&self) -> Result<(), String> {
        match available() {
            Some(there) if self.memory > there => Err(format!(
                "the run needs about {}, and {} are available; make the fabric or the workload smaller, or insist with --force",
                bytes(self.memory),
                bytes(there)
            )),
            _ => Ok(()),
        }
    }
}

/// Bytes that this process may still allocate: the system's free memory, reduced to the limits of the process. `None`
/// if the system does not report them.
fn available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.as_ref()?.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kb| kb * 1024)
    };
    let free = field("MemAvailable").map(|a| a + field("SwapFree").unwrap_or(0));
    let limits = std::fs::read_to_string("/proc/self/limits").ok();
    let limit = |name: &str| -> Option<u64> {
        let line = limits.as_ref()?.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    [free, limit("Max address space"), limit("Max data size")].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(text: &str) -> Estimate {
        Estimate::of(&crate::check(&strandway_scenario::parse(text).expect("TOML")).expect("sound"))
    }

    #[test]
    fn more_work_takes_more() {
        let small = estimate("[fabric]\nhosts = 64\n[workload]\nsize = \"100 kB\"\n");
        let large = estimate("[fabric]\nhosts = 256\n[workload]\nsize = \"1 MB\"\n");
        assert!(large.packet_hops > 30 * small.packet_hops, "{small:?} {large:?}");
        assert!(large.memory > small.memory && large.seconds > small.seconds);
        assert!(large.text(1).contains("packet hops"), "{}", large.text(1));
    }

    #[test]
    fn runs_that_no_machine_holds_are_refused_with_numbers() {
        let said = Estimate { packet_hops: 1, seconds: 1.0, memory: u64::MAX / 2 }.fits();
        if available().is_some() {
            let said = said.expect_err("nobody has that much");
            assert!(said.contains("GB are available"), "{said}");
        }
    }
}
