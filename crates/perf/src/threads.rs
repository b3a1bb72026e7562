//! The measurement on several threads: each has a node, and their results are combined.

use super::client::measure;
use super::{Options, PerfError, Stretch, run};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use strandway_udp::Node;

/// Measures from several nodes, each with a thread: connections are dealt out in turn, and node `k` connects to
/// `peers[k]`, to its shard `k` if several nodes share those addresses. Rates and counts are added up. The median round
/// trip is that of the middle thread, and the 99th percentile is that of the worst thread. An interval is reported when
/// every thread has reported it.
///
/// # Errors
/// As for [`run`]; also if there are fewer connections than nodes, or not one peer for each node.
pub fn run_all(
    nodes: &mut [Node],
    peers: &[Vec<SocketAddrV6>],
    options: &Options,
    stop: impl Fn() -> bool + Sync,
    mut each: impl FnMut(&Stretch),
) -> Result<Stretch, PerfError> {
    let threads = nodes.len();
    if let ([node], [peer]) = (&mut *nodes, peers) {
        return run(node, peer, options, stop, each);
    }
    if threads == 0 || threads != peers.len() || options.connections < threads {
        let connections = options.connections;
        return Err(PerfError::Option(format!(
            "{connections} connections on {threads} threads: take a connection for each thread, or more"
        )));
    }
    let (failed, left) = (AtomicBool::new(false), AtomicUsize::new(threads));
    let stop = || stop() || failed.load(Ordering::Relaxed);
    let (told, telling) = mpsc::channel();
    std::thread::scope(|scope| {
        let running = nodes.iter_mut().zip(peers).enumerate().map(|(thread, (node, peer))| {
            let (told, failed, stop) = (told.clone(), &failed, &stop);
            let connections = options.connections / threads + usize::from(thread < options.connections % threads);
            let options = Options { connections, ..*options };
            let left = &left;
            scope.spawn(move || {
                let done = Cell::new(false);
                let finish = || {
                    if !done.replace(true) {
                        left.fetch_sub(1, Ordering::Relaxed);
                    }
                };
                // No thread closes before all have finished: a server may end with its first client.
                let may_close = || {
                    finish();
                    left.load(Ordering::Relaxed) == 0
                };
                let each = |stretch: &Stretch| drop(told.send((thread, stretch.clone())));
                let outcome = measure(node, peer, &options, stop, each, may_close, (thread, threads));
                finish();
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            })
        });
        let running: Vec<_> = running.collect();
        drop(told);
        let mut waiting: Vec<VecDeque<Stretch>> = vec![VecDeque::new(); threads];
        for (thread, stretch) in telling {
            waiting[thread].push_back(stretch);
            if waiting.iter().all(|stretches| !stretches.is_empty()) {
                let parts: Vec<Stretch> = waiting.iter_mut().filter_map(VecDeque::pop_front).collect();
                each(&together(&parts));
            }
        }
        let join =
            |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let parts: Result<Vec<Stretch>, PerfError> = running.into_iter().map(join).collect();
        parts.map(|parts| together(&parts))
    })
}

/// Combines stretches of the same time into one.
fn together(parts: &[Stretch]) -> Stretch {
    let Some((first, rest)) = parts.split_first() else { return Stretch::default() };
    let mut whole = first.clone();
    for part in rest {
        whole.from_s = whole.from_s.min(part.from_s);
        whole.to_s = whole.to_s.max(part.to_s);
        whole.goodput_gbps += part.goodput_gbps;
        whole.back_gbps += part.back_gbps;
        whole.plane_gbps.iter_mut().zip(&part.plane_gbps).for_each(|(sum, rate)| *sum += rate);
        whole.planes_up.iter_mut().zip(&part.planes_up).for_each(|(all, up)| *all &= up);
        whole.messages += part.messages;
        whole.retransmitted += part.retransmitted;
        whole.rtt_p99_us = whole.rtt_p99_us.max(part.rtt_p99_us);
        whole.rtt_p999_us = whole.rtt_p999_us.max(part.rtt_p999_us);
    }
    let mut medians: Vec<f64> = parts.iter().map(|part| part.rtt_p50_us).collect();
    medians.sort_by(f64::total_cmp);
    whole.rtt_p50_us = medians[medians.len() / 2];
    whole
}
