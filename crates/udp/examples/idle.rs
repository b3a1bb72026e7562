//! The cost of idle connections, and the memory that closed connections leave behind.
//!
//! ```text
//! cargo run --release -p strandway-udp --example idle -- 1000 10       # 1,000 idle connections for 10 s
//! cargo run --release -p strandway-udp --example idle -- 1000 10 100000  # then 100,000 opened and closed one after another
//! ```

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Config, Error, Node, Waiting};

/// Processor seconds of this process so far, in user mode and in the kernel.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory in MB.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * rustix::param::page_size() as f64 / 1e6
}

/// Opens a connection from one node to the other; returns the caller's handle.
fn open(caller: &mut Node, server: &mut Node) -> Result<strandway_udp::Connection, Error> {
    let to: Vec<_> = server.addresses()?.into_iter().map(strandway_udp::address::kept).collect();
    let connection = caller.connect(&to)?;
    let (mut connected, mut accepted) = (false, false);
    while !(connected && accepted) {
        connected |= caller.poll() == Some(Completion::Connected { connection });
        accepted |= matches!(server.poll(), Some(Completion::Accepted { .. }));
    }
    Ok(connection)
}

fn main() -> Result<(), Error> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>().expect("a number"));
    let (connections, seconds) = (numbers.next().unwrap_or(1_000), numbers.next().unwrap_or(10));
    let rounds = numbers.next().unwrap_or(0);
    let address = "[::1]:0".parse().expect("an address");
    let mut config = Config::new(&[7; 32])?.plane(address).plane(address);
    config.waiting = Waiting::Sleep;
    config.limits.connections = connections.max(1) as usize + 1;
    let (mut caller, mut server) = (Node::bind(config.clone())?, Node::bind(config)?);
    for _ in 0..connections {
        open(&mut caller, &mut server)?;
    }
    let sent = |nodes: [&Node; 2]| {
        nodes.iter().flat_map(|node| node.observe().plane_counters()).map(|plane| plane.sent).sum::<u64>()
    };
    let visits = |nodes: [&Node; 2]| nodes.iter().map(|node| node.observe().counters().visits).sum::<u64>();
    let (cpu, before) = (cpu_seconds(), (sent([&caller, &server]), visits([&caller, &server])));
    std::thread::scope(|scope| {
        for node in [&mut caller, &mut server] {
            scope.spawn(move || {
                let until = Instant::now() + Duration::from_secs(seconds);
                while let Some(left) = until.checked_duration_since(Instant::now()) {
                    if let Ok(Some(told)) = node.wait(left) {
                        println!("{told:?}");
                    }
                }
            });
        }
    });
    println!(
        "{connections} connections, 2 planes, both nodes, {seconds} s: {:.3} s of processor time, {:.2} % of a core; {} datagrams, \
         {} visits, {} peers, {:.1} MB resident",
        cpu_seconds() - cpu,
        (cpu_seconds() - cpu) / seconds as f64 * 100.0,
        sent([&caller, &server]) - before.0,
        visits([&caller, &server]) - before.1,
        caller.observe().peers(),
        resident(),
    );
    let began = Instant::now();
    for round in 1..=rounds {
        let connection = open(&mut caller, &mut server)?;
        caller.close(connection)?;
        while !matches!(server.poll(), Some(Completion::Closed { .. })) {}
        if round.is_power_of_two() && round >= 1_024 || round == rounds {
            println!(
                "{round} opened and closed in {:.1} s: {:.1} MB resident",
                began.elapsed().as_secs_f64(),
                resident()
            );
        }
    }
    Ok(())
}
