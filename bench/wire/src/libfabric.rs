//! libfabric's reliable datagrams over UDP (`udp;ofi_rxd`), by its own `fi_pingpong`.

use crate::network::{self, Side};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PROGRAM: &str = "fi_pingpong";
/// The longest time that it may take, since it hangs in some runs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The processes that run now.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Ends the running processes, because this program ends.
pub(crate) fn stop() {
    let Ok(running) = RUNNING.lock() else { return };
    for pid in running.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Is it installed?
pub(crate) fn is_here() -> bool {
    Command::new(PROGRAM).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn command(messages: usize, size: usize) -> Command {
    let mut command = Command::new(PROGRAM);
    let (messages, size) = (messages.to_string(), size.to_string());
    command.args(["-6", "-e", "rdm", "-p", "udp;ofi_rxd", "-I", &messages, "-S", &size]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Messages of that size there and back: megabytes per second by its own count, and microseconds per message in one
/// direction.
pub(crate) fn measure(messages: usize, size: usize) -> Result<(f64, f64), String> {
    let start = |mut command: Command| {
        let mut running = RUNNING.lock().map_err(|_| "a thread panicked")?;
        let child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
        running.push(child.id());
        Ok::<Child, String>(child)
    };
    let receiver = || finish(start(command(messages, size))?);
    let sender = || {
        // The server must listen first, and does not report that it does.
        std::thread::sleep(Duration::from_millis(300));
        let mut client = command(messages, size);
        client.arg(Side::Receiver.address(0, 0).ip().to_string());
        finish(start(client)?)
    };
    let (said, _, ()) = network::both(sender, receiver, || ())?;
    parse(&said).ok_or_else(|| format!("{PROGRAM} said {said:?}"))
}

/// The output of a program.
fn finish(mut child: Child) -> Result<String, String> {
    let outcome = wait(&mut child);
    // It has ended, and another process may soon have its number.
    if let Ok(mut running) = RUNNING.lock() {
        running.retain(|pid| *pid != child.id());
    }
    outcome?;
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{PROGRAM}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for its end, for a limited time.
fn wait(child: &mut Child) -> Result<(), String> {
    let began = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{PROGRAM} hangs"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The columns `MB/sec` and `usec/xfer` of the last line.
fn parse(said: &str) -> Option<(f64, f64)> {
    let heads: Vec<&str> = said.lines().next()?.split_whitespace().collect();
    let values: Vec<&str> = said.lines().last()?.split_whitespace().collect();
    let column = |name: &str| values.get(heads.iter().position(|head| *head == name)?)?.parse().ok();
    Some((column("MB/sec")?, column("usec/xfer")?))
}
