//! Smaller runs that stand for a large one: less bytes and computation, one rail for several, and less replicas.

use crate::scenario::Scenario;
use strandway_proto::units::Span;
use toml::Value;

/// How much smaller a run of jobs is than the scenario says.
///
/// Bytes of messages, times of computation and times of faults are all divided by one number. Messages then meet each
/// other as they do in the whole run, and a time is that of the whole run divided by the same number, but for latencies,
/// which stay as they are. Runs with several divisors show how much latencies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The divisor of bytes and times.
    pub divisor: u64,
    /// Of this number of rails only one is simulated. Rails must do the same: tensor-parallel groups are whole servers,
    /// and each rail has leaves of its own.
    pub rails: u32,
    /// Of this number of data-parallel replicas only one is simulated. Those that are left fill whole leaves, and their
    /// collectives have as many bytes and steps as those of all replicas.
    pub replicas: u32,
}

impl Default for Reduction {
    fn default() -> Reduction {
        Reduction::NONE
    }
}

impl Reduction {
    /// The whole run.
    pub const NONE: Reduction = Reduction { divisor: 1, rails: 1, replicas: 1 };

    /// The number of hosts, and of ranks, for which one stands.
    pub const fn hosts(self) -> u32 {
        self.rails * self.replicas
    }

    /// A number of bytes, divided; at least one byte of a message is left.
    pub(crate) fn bytes(self, bytes: u64) -> u64 {
        if self.divisor == 1 { bytes } else { bytes.div_ceil(self.divisor) }
    }

    /// A time, divided.
    pub(crate) fn span(self, span: Span) -> Span {
        Span(span.0 / self.divisor)
    }
}

impl Scenario {
    /// If it asks for smaller runs that stand for the whole one (`run.approximate`): their divisors, in order, or none if
    /// they are to be chosen.
    pub fn approximate(&self) -> Option<Vec<u64>> {
        divisors(&self.value("run.approximate")?)
    }

    /// The number of NICs of a server, as it is written: that of its rails, if it has any.
    pub fn rails(&self) -> u32 {
        let servers = self.table.get("servers").and_then(Value::as_table);
        let count = |key: &str| servers?.get(key)?.as_integer();
        let default = if servers.is_some() { 8 } else { 1 };
        let rails = count("nics").or(count("gpus")).unwrap_or(default);
        u32::try_from(rails).unwrap_or(1).max(1)
    }

    /// The same scenario for a smaller run, without expectations and without further runs beside it.
    ///
    /// Checking it finds out whether its jobs can be reduced so. If they cannot, the problem says why.
    pub fn reduced(&self, reduction: Reduction) -> Scenario {
        let mut reduced = self.clone();
        reduced.reduction = reduction;
        for section in ["run.alone", "run.healthy", "run.approximate", "run.sample", "run.capture"] {
            reduced.remove(section);
        }
        if reduction.hosts() > 1
            && let Some(Value::Table(fabric)) = reduced.table.get_mut("fabric")
            && let Some(Value::Integer(hosts)) = fabric.get_mut("hosts")
        {
            *hosts /= i64::from(reduction.hosts());
        }
        reduced
    }
}

/// The value of `run.approximate`: `None` if it is switched off, or if it is no such value.
pub(crate) fn divisors(value: &Value) -> Option<Vec<u64>> {
    match value {
        Value::Boolean(true) => Some(Vec::new()),
        Value::Array(list) if list.len() >= 2 => {
            let one = |value: &Value| u64::try_from(value.as_integer()?).ok().filter(|n| (2..=1 << 16).contains(n));
            let mut all: Vec<u64> = list.iter().map(one).collect::<Option<_>>()?;
            all.sort_unstable();
            all.windows(2).all(|pair| pair[0] < pair[1]).then_some(all)
        }
        _ => None,
    }
}
