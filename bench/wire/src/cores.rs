//! The core of each side, the distance between the two cores, and their load by other processes.

use crate::network::Role;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use strandway_udp::doctor::{self, Verdict};

/// Binds the calling thread, and its children, to the core of a side.
pub(crate) fn pin(side: Role) -> Result<(), String> {
    let allowed = allowed()?;
    let core = match side {
        Role::Sender => allowed.first(),
        Role::Receiver => allowed.get(1).or(allowed.first()),
    };
    bind(*core.ok_or("no core to run on")?)
}

/// Binds the calling thread to one of the cores that this process may use, by its place among them; places beyond the
/// last core begin again with the first one.
pub(crate) fn pin_to(place: usize) -> Result<(), String> {
    let allowed = allowed()?;
    bind(allowed[place % allowed.len()])
}

/// The number of cores that this process may use.
pub(crate) fn count() -> Result<usize, String> {
    Ok(allowed()?.len())
}

fn bind(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| format!("cannot choose a core: {error}"))
}

/// The cores that this process may use; at least one.
fn allowed() -> Result<Vec<usize>, String> {
    // Asks for the process, whose first thread is never pinned.
    let process = rustix::process::getpid();
    let set = sched_getaffinity(Some(process)).map_err(|error| format!("cannot ask for cores: {error}"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// The first value of a key in /proc/cpuinfo.
fn processor(key: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let values = text.lines().filter_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key));
    values.map(|(_, value)| value.trim().to_owned()).next()
}

/// The processor's name, family, model and clock, as far as the kernel tells.
fn processor_line() -> String {
    let name = processor("model name").unwrap_or_else(|| "unknown".into());
    let more = [("cpu family", "family "), ("model", "model "), ("cpu MHz", "MHz "), ("cache size", "L2 ")];
    let more = more.into_iter().filter_map(|(key, what)| Some(format!(", {what}{}", processor(key)?)));
    format!("- processor: {name}{}", more.collect::<String>())
}

/// Does this process run in a real-time class, before all other programs?
fn is_real_time() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The policy is field 41, and the second field, in parentheses, may have spaces: proc(5). 1 and 2 are SCHED_FIFO and
    // SCHED_RR.
    let policy = text.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(41 - 3));
    matches!(policy, Some("1" | "2"))
}

/// The facts about this machine that the numbers depend on, as Markdown lines.
pub(crate) fn describe() -> Result<Vec<String>, String> {
    let cores = allowed()?;
    let numbers = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let mut lines = vec![processor_line(), format!("- cores: {numbers}")];
    if is_real_time() {
        lines.push("- this program ran in a real-time class, before all others (`chrt -f 1`)".into());
    }
    if cores.len() < 2 {
        lines.push("- **one core for both sides: nothing below says anything about speed**".into());
    }
    for finding in doctor::examine() {
        if ["kernel", "load", "cache line between two cores"].contains(&finding.what) {
            lines.push(format!("- {}: {}", finding.what, finding.value));
            if finding.verdict != Verdict::Good {
                lines.push(format!("  - **warning**: {}", finding.advice));
            }
        }
    }
    Ok(lines)
}
