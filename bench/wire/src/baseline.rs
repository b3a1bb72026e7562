//! TLS as `strandway perf --beside` measures it, so that its row on users' machines can be compared with these tables.

use crate::network::{self, Role};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_perf::{Baseline, BaselineServer, Mode, Options, run_baseline};

const PORT: u16 = 47_807;
const SIZE: u64 = 1 << 20;
/// What `strandway perf --beside` tells glibc on some processors: copies without `rep movsb`.
const VARIABLE: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.cpu.x86_rep_movsb_threshold";
const VALUE: &str = "0x10000000";

/// Starts this program once more with that setting, unless the user has set it.
pub(crate) fn restart() {
    let mut value = std::env::var_os(VARIABLE).unwrap_or_default();
    if value.to_string_lossy().contains(TUNABLE) {
        return;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(OsString::from(format!("{TUNABLE}={VALUE}")));
    if let Ok(program) = std::env::current_exe() {
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(VARIABLE, value).exec();
    }
}

/// Goodput of one stream with that congestion control, in Gb/s.
pub(crate) fn goodput(seconds: f64, control: &'static str) -> Result<f64, String> {
    let (over, (ready, is_ready)) = (&AtomicBool::new(false), std::sync::mpsc::channel());
    let at = Role::Receiver.plain_address(0, PORT);
    let send = move || {
        let _ = is_ready.recv();
        let options = Options {
            size: SIZE,
            connections: 1,
            duration: Duration::from_secs_f64(seconds),
            depth: 1,
            mode: Mode::Bandwidth,
            bulk: 0,
            interval: Duration::from_secs(1),
            messages: None,
        };
        let result = run_baseline(Baseline::Tls, at, Some(control), &options, &|| false);
        over.store(true, Ordering::Relaxed);
        result.map(|result| result.goodput_gbps).map_err(|error| error.to_string())
    };
    let receive = move || {
        // The channel ends here if there is no server: then the sender does not wait.
        let server = BaselineServer::bind(&[at]).map_err(|error| format!("{at}: {error}"))?;
        let _ = ready.send(());
        server.serve(&|| over.load(Ordering::Relaxed));
        Ok(())
    };
    network::both(send, receive, || ()).map(|(goodput, (), ())| goodput)
}
