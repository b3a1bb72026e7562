//! The rate of the plug-in beside that of a node's own writes, in turns: two processes over loopback, the same key,
//! payload and protection.
//!
//! `cargo bench -p strandway-nccl --bench rate -- [SECONDS] [ROUNDS] [REQUESTS] [BYTES] [PLUGIN]`; a variable such as
//! `STRANDWAY_PROTECTION=none` holds for both. PLUGIN is the library of another plug-in with `ncclNet_v12`, which takes
//! its turn, too. Each process reads `STRANDWAY_PLANES` or `STRANDWAY_IFNAME`, loopback by default; `BENCH_PEER` is a
//! command before the other process, as `bench/planes.sh` gives it.
#![allow(unsafe_code, reason = "the plug-in is called as NCCL calls it")]

mod drive;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use strandway_mover::environment;
use strandway_perf as perf;
use strandway_perf::Mode;
use strandway_udp::address::parse;
use strandway_udp::environment::Settings;
use strandway_udp::{Config, Node};

const KEY: [u8; 16] = [7; 16];

/// The settings that both processes know.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    seconds: f64,
    rounds: usize,
    requests: usize,
    bytes: usize,
}

/// A process of this program, its input, and the first line that it prints.
pub(crate) fn child(words: &[&str], job: &Job) -> (Child, ChildStdin, String) {
    let numbers = [job.seconds.to_string(), job.rounds.to_string(), job.requests.to_string(), job.bytes.to_string()];
    let program = std::env::current_exe().expect("this program").to_string_lossy().into_owned();
    let peer = std::env::var("BENCH_PEER").unwrap_or_default();
    let mut command: Vec<&str> = peer.split_whitespace().collect();
    command.push(&program);
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .args(words)
        .args(numbers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its address");
    let input = child.stdin.take().expect("piped");
    (child, input, line.trim().to_string())
}

/// A node's configuration, as the plug-in has it.
fn config() -> Config {
    let get = |name: &str| std::env::var(name).ok();
    let settings = Settings::read(&get).expect("settings");
    let mut config = Config::new(&KEY).expect("long enough");
    config.planes = environment::planes(&get).expect("planes").iter().map(|plane| plane.address).collect();
    config.payload = settings.payload.unwrap_or(config.payload);
    config.protection = settings.protection.unwrap_or_default();
    config.rate = settings.rate.unwrap_or(config.rate);
    config.base_rtt = settings.base_rtt.unwrap_or(config.base_rtt);
    config
}

/// Prints an address, and serves writes until its input ends.
fn serve() {
    let mut node = Node::bind(config()).expect("a socket");
    let addresses: Vec<String> = node.addresses().expect("bound").iter().map(ToString::to_string).collect();
    println!("{}", addresses.join(","));
    let ended = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    perf::serve(&mut node, || ended.is_finished(), |_| {}).expect("serves");
}

/// Writes for a while: Gb/s.
fn write(job: &Job) -> f64 {
    let (mut server, input, address) = child(&["serve"], job);
    let mut node = Node::bind(config()).expect("a socket");
    let duration = Duration::from_secs_f64(job.seconds);
    let options = perf::Options {
        size: job.bytes as u64,
        connections: 1,
        duration,
        depth: job.requests,
        mode: Mode::Bandwidth,
        bulk: 0,
        interval: duration,
        messages: None,
    };
    let peer: Vec<_> = address.split(',').map(|one| parse(one, 0).expect("an address")).collect();
    let stretch = perf::run(&mut node, &peer, &options, || false, |_| {}).expect("measured");
    drop(input);
    server.wait().expect("ends");
    stretch.goodput_gbps
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let (numbers, texts): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.parse::<f64>().is_ok());
    let number = |at: usize, usual: f64| numbers.get(at).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let job = Job {
        seconds: number(0, 2.0),
        rounds: number(1, 5.0) as usize,
        requests: number(2, 8.0) as usize,
        bytes: number(3, 4_194_304.0) as usize,
    };
    let texts: Vec<&str> = texts.into_iter().map(String::as_str).collect();
    let other = match texts[..] {
        ["serve"] => return serve(),
        ["receive"] => return drive::receive(&job, None),
        ["receive", library] => return drive::receive(&job, Some(library)),
        [library] => Some(library),
        _ => None,
    };
    if std::env::var_os("STRANDWAY_KEY").is_none() {
        // Variables are for the plug-in, which reads them once: so this program runs itself with them.
        let has_planes = ["STRANDWAY_PLANES", "STRANDWAY_IFNAME"].iter().any(|name| std::env::var_os(name).is_some());
        let usual = [("STRANDWAY_PLANES", "127.0.0.1"), ("STRANDWAY_PAYLOAD", "4096"), ("STRANDWAY_RATE", "40")];
        let loopback = usual.into_iter().filter(|_| !has_planes);
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args(&words)
            .env("STRANDWAY_KEY", "07".repeat(KEY.len()))
            .envs(loopback)
            .status();
        std::process::exit(status.ok().and_then(|status| status.code()).unwrap_or(1));
    }
    let rows: Vec<[f64; 3]> = (0..job.rounds)
        .map(|_| {
            let row = [write(&job), drive::send(&job, None), other.map_or(f64::NAN, |it| drive::send(&job, Some(it)))];
            println!("writes {:6.2} Gb/s   plug-in {:6.2} Gb/s   other plug-in {:6.2} Gb/s", row[0], row[1], row[2]);
            row
        })
        .collect();
    println!("{} requests of {} bytes; medians:", job.requests, job.bytes);
    println!("plug-in to writes {}", ratios(rows.iter().map(|[own, plugin, _]| plugin / own).collect()));
    if other.is_some() {
        println!("plug-in to the other plug-in {}", ratios(rows.iter().map(|[_, plugin, it]| plugin / it).collect()));
    }
}

/// The median of ratios, and the least and the most.
fn ratios(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    let at = |place: usize| of.get(place).copied().unwrap_or(f64::NAN);
    format!("{:.2} ({:.2} to {:.2})", at(of.len() / 2), at(0), at(of.len() - 1))
}
