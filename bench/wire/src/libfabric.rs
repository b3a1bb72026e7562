//! libfabric, by its own programs: `fi_pingpong`, and `fi_rma_bw` of its tests.

use crate::network::{self, Role};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Messages there and back.
pub(crate) const PINGPONG: &str = "fi_pingpong";
/// Writes, many of them under way.
pub(crate) const WRITES: &str = "fi_rma_bw";
/// Its reliable datagrams over UDP.
pub(crate) const UDP: &str = "udp;ofi_rxd";
/// The same over TCP.
pub(crate) const TCP: &str = "tcp;ofi_rxm";
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

/// Is this program installed?
pub(crate) fn is_here(program: &str) -> bool {
    Command::new(program).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Messages of that size there and back: megabytes per second by its own count, and microseconds per message in one
/// direction.
pub(crate) fn measure(messages: usize, size: usize) -> Result<(f64, f64), String> {
    let (messages, size) = (messages.to_string(), size.to_string());
    let words = ["-6", "-e", "rdm", "-p", UDP, "-I", &messages, "-S", &size];
    let columns = both(PINGPONG, &words, &[], &["MB/sec", "usec/xfer"])?;
    Ok((columns[0], columns[1]))
}

/// Writes of that size with an immediate each, `depth` of them under way: million per second by its own count.
pub(crate) fn write(provider: &str, messages: usize, size: usize, depth: usize) -> Result<f64, String> {
    let (messages, size, depth) = (messages.to_string(), size.to_string(), depth.to_string());
    let words = ["-e", "rdm", "-p", provider, "-o", "writedata", "-I", &messages, "-S", &size, "-W", &depth];
    let address = Role::Receiver.plain_address(0, 0).ip().to_string();
    // It prints the rate itself with two places only.
    Ok(1.0 / both(WRITES, &words, &["-s", &address], &["usec/xfer"])?[0])
}

/// Runs the program on both sides, and reads these columns of what the sender says.
fn both(program: &str, words: &[&str], of_receiver: &[&str], columns: &[&str]) -> Result<Vec<f64>, String> {
    let start = |mut command: Command| {
        let mut running = RUNNING.lock().map_err(|_| "a thread panicked")?;
        let child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        running.push(child.id());
        Ok::<Child, String>(child)
    };
    let receiver = || {
        let mut server = command(program, words);
        server.args(of_receiver);
        finish(program, start(server)?)
    };
    let sender = || {
        // The server must listen first, and does not report that it does.
        std::thread::sleep(Duration::from_millis(300));
        let mut client = command(program, words);
        client.arg(Role::Receiver.plain_address(0, 0).ip().to_string());
        finish(program, start(client)?)
    };
    let (said, _, ()) = network::both(sender, receiver, || ())?;
    parse(&said, columns).ok_or_else(|| format!("{program} said {said:?}"))
}

/// The output of a program.
fn finish(program: &str, mut child: Child) -> Result<String, String> {
    let outcome = wait(program, &mut child);
    // It has ended, and another process may soon have its number.
    if let Ok(mut running) = RUNNING.lock() {
        running.retain(|pid| *pid != child.id());
    }
    outcome?;
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for its end, for a limited time.
fn wait(program: &str, child: &mut Child) -> Result<(), String> {
    let began = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{program} hangs"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// These columns of the last line.
fn parse(said: &str, columns: &[&str]) -> Option<Vec<f64>> {
    let heads: Vec<&str> = said.lines().next()?.split_whitespace().collect();
    let values: Vec<&str> = said.lines().last()?.split_whitespace().collect();
    let column = |name: &&str| values.get(heads.iter().position(|head| head == name)?)?.parse().ok();
    columns.iter().map(column).collect()
}
