//! The arguments of `strandway top`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(in crate::args) const EXAMPLES: &str = "\
Every program of Strandway (node, perf, copy, cast, switch, Python, NCCL) serves its figures if the environment variable
STRANDWAY_METRICS names a place. Off by default; one thread per process answers.
  STRANDWAY_METRICS=/run/strandway/metrics/          a folder: a Unix socket per process, PID.sock, for its user only
  STRANDWAY_METRICS=/run/me.sock                     one Unix socket
  STRANDWAY_METRICS=127.0.0.1:9464                   a loopback port, or the next free one of 64, for every user of the host

GET /metrics is OpenMetrics text for Prometheus (docs/grafana/strandway.json is a dashboard), GET /status one JSON object. `top`
reads the latter and shows, first of all, who is missing: which call waits for which rank, since when, and by which way.

Examples:
  STRANDWAY_METRICS=/run/strandway/metrics/ strandway node h2.toml &
  strandway top /run/strandway/metrics/                live, until Ctrl-C
  strandway top 127.0.0.1:9464 --once                  once, for a file or a mail
  strandway top /run/strandway/metrics/ --once --json - | jq '.processes[].sentences[]'
  curl --unix-socket /run/me.sock http://here/metrics

Exit status: 0, 1 if nobody answers, 3 with --once if somebody is missing.";

#[derive(Debug, ClapArgs)]
pub(crate) struct TopArgs {
    /// Where processes serve: Unix sockets, folders of them, loopback ports [default: what STRANDWAY_METRICS names]
    #[arg(value_name = "PLACE")]
    pub(crate) places: Vec<String>,
    /// Seconds between looks, 0.1 to 3600
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Look once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: write all statuses as JSON; - for standard output
    #[arg(long, value_name = "FILE|-", requires = "once")]
    pub(crate) json: Option<PathBuf>,
}
