//! The rate of the plug-in beside that of a node's own writes, in turns: two processes over loopback, the same key,
//! payload and protection.
//!
//! `cargo bench -p strandway-nccl --bench rate -- [SECONDS] [ROUNDS] [REQUESTS] [BYTES]`; a variable such as
//! `STRANDWAY_PROTECTION=none` holds for both.
#![allow(unsafe_code, reason = "the plug-in is called as NCCL calls it")]

use nccl_net_strandway::{HANDLE_BYTES, NetV10, Outcome, PTR_HOST, ncclNet_v10};
use std::ffi::c_void;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};
use strandway_udp::address::{kept, parse};
use strandway_udp::perf::{self, Mode};
use strandway_udp::{Config, Node, Protection};

const KEY: [u8; 16] = [7; 16];

/// The settings that both processes know.
#[derive(Clone, Copy)]
struct Job {
    seconds: f64,
    rounds: usize,
    requests: usize,
    bytes: usize,
}

fn net() -> &'static NetV10 {
    &ncclNet_v10.0
}

fn good(outcome: Outcome) {
    assert_eq!(outcome, Outcome::Success);
}

fn object(ask: impl Fn(*mut *mut c_void) -> Outcome) -> *mut c_void {
    let mut found: *mut c_void = ptr::null_mut();
    while found.is_null() {
        good(ask(&raw mut found));
    }
    found
}

fn child(words: &[&str], job: &Job) -> (Child, ChildStdin, String) {
    let numbers = [job.seconds.to_string(), job.rounds.to_string(), job.requests.to_string(), job.bytes.to_string()];
    let mut child = Command::new(std::env::current_exe().expect("this program"))
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

fn config() -> Config {
    let plane = parse("127.0.0.1", 0).expect("an address");
    let mut config = Config::new(&KEY).expect("long enough").plane(plane);
    config.payload = 4_096;
    if std::env::var("STRANDWAY_PROTECTION").as_deref() == Ok("none") {
        config.protection = Protection::None;
    }
    config
}

/// Prints an address, and serves writes until its input ends.
fn serve() {
    let mut node = Node::bind(config()).expect("a socket");
    println!("{}", node.addresses().expect("bound")[0]);
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
    let peer = [kept(address.parse::<std::net::SocketAddr>().expect("an address"))];
    let stretch = perf::run(&mut node, &peer, &options, || false, |_| {}).expect("measured");
    drop(input);
    server.wait().expect("ends");
    stretch.goodput_gbps
}

/// Prints a handle, and receives until its input ends or its sender has gone.
fn receive(job: &Job) {
    let (mut handle, mut listener) = ([0u8; HANDLE_BYTES], ptr::null_mut());
    // SAFETY: as the interface says, here and below.
    unsafe {
        good((net().init)(None, ptr::null()));
        good((net().listen)(0, handle.as_mut_ptr().cast(), &raw mut listener));
        println!("{}", handle.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let comm = object(|comm| (net().accept)(listener, comm, ptr::null()));
        // All receives have the same memory, as all writes have.
        let room = vec![0u8; job.bytes].leak().as_mut_ptr();
        let mut memory = ptr::null_mut();
        good((net().reg_mr)(comm, room.cast(), job.bytes, PTR_HOST, &raw mut memory));
        let post = || {
            let (data, size, tag) = (room.cast::<c_void>(), job.bytes, 0);
            object(|request| {
                (net().irecv)(
                    comm,
                    1,
                    &raw const data,
                    &raw const size,
                    &raw const tag,
                    &raw const memory,
                    ptr::null(),
                    request,
                )
            })
        };
        let mut posted: Vec<_> = (0..job.requests).map(|_| post()).collect();
        loop {
            // NCCL's proxy gives its core away after a round without news.
            let mut idle = true;
            for request in &mut posted {
                let (mut done, mut size) = (0, 0);
                if (net().test)(*request, &raw mut done, &raw mut size) != Outcome::Success {
                    return;
                }
                if done == 1 {
                    idle = false;
                    *request = post();
                }
            }
            if idle {
                std::thread::yield_now();
            }
        }
    }
}

/// Sends for a while: Gb/s.
fn send(job: &Job) -> f64 {
    let (mut receiver, mut input, text) = child(&["receive"], job);
    let mut handle = [0u8; HANDLE_BYTES];
    for (at, byte) in handle.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("a handle");
    }
    // SAFETY: as the interface says.
    let rate = unsafe {
        good((net().init)(None, ptr::null()));
        let bytes = handle.as_mut_ptr().cast();
        let comm = object(|comm| (net().connect)(0, ptr::null(), bytes, comm, ptr::null()));
        let data = vec![1u8; job.bytes].leak().as_mut_ptr();
        let mut memory = ptr::null_mut();
        good((net().reg_mr)(comm, data.cast(), job.bytes, PTR_HOST, &raw mut memory));
        let post = || object(|request| (net().isend)(comm, data.cast(), job.bytes, 0, memory, ptr::null(), request));
        let began = Instant::now();
        let mut posted: Vec<_> = (0..job.requests).map(|_| post()).collect();
        let mut ended = 0;
        while began.elapsed().as_secs_f64() < job.seconds {
            let mut idle = true;
            for request in &mut posted {
                let (mut done, mut size) = (0, 0);
                good((net().test)(*request, &raw mut done, &raw mut size));
                if done == 1 {
                    ended += 1;
                    idle = false;
                    *request = post();
                }
            }
            if idle {
                std::thread::yield_now();
            }
        }
        let rate = (ended * job.bytes) as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
        good((net().close_send)(comm));
        rate
    };
    let _ = input.write_all(b"\n");
    receiver.wait().expect("ends");
    rate
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let role = words.first().filter(|word| word.parse::<f64>().is_err()).cloned();
    let numbers: Vec<f64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, usual: f64| numbers.get(at).copied().unwrap_or(usual);
    let job = Job {
        seconds: number(0, 2.0),
        rounds: number(1, 5.0) as usize,
        requests: number(2, 8.0) as usize,
        bytes: number(3, 4_194_304.0) as usize,
    };
    match role.as_deref() {
        Some("serve") => return serve(),
        Some("receive") => return receive(&job),
        _ => {}
    }
    if std::env::var_os("STRANDWAY_KEY").is_none() {
        // Variables are for the plug-in, which reads them once: so this program runs itself with them.
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args(&words)
            .env("STRANDWAY_KEY", "07".repeat(16))
            .env("STRANDWAY_PLANES", "127.0.0.1")
            .env("STRANDWAY_PAYLOAD", "4096")
            .env("STRANDWAY_RATE", "40")
            .status();
        std::process::exit(status.ok().and_then(|status| status.code()).unwrap_or(1));
    }
    let mut rows: Vec<(f64, f64)> = (0..job.rounds).map(|_| (write(&job), send(&job))).collect();
    rows.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    for (own, plugin) in &rows {
        println!("writes {own:6.2} Gb/s   plug-in {plugin:6.2} Gb/s   ratio {:.2}", plugin / own);
    }
    let (own, plugin) = rows[rows.len() / 2];
    println!("median ratio {:.2}, {} requests of {} bytes", plugin / own, job.requests, job.bytes);
}
