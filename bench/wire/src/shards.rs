//! Two shards behind one port beside one: nodes that share a port, a thread each, and a client's node for each of them.

use crate::contest::{Column, Contest, Row};
use crate::idle::{GIB, thread_time};
use crate::network::{self, Network, Role, Wire};
use crate::ours::{MESSAGE, Ours, name_of};
use crate::{Options, cores};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use strandway_perf as perf;
use strandway_perf::{Mode, Stretch};
use strandway_udp::{Node, Protection};

const MTU: u32 = 1_500;

/// The core of a side of a pair, by its place among the cores of this process.
type Place = fn(Role, usize) -> usize;

/// A core for each pair: both of its threads, and the kernel's work for them.
fn per_pair(_: Role, pair: usize) -> usize {
    pair
}

fn on_one(_: Role, _: usize) -> usize {
    0
}

/// A core for each thread, while there are any.
fn per_thread(side: Role, pair: usize) -> usize {
    2 * pair + usize::from(side == Role::Receiver)
}

/// Runs `work` on each node, each in a thread on its core. Adds the processor time of the threads, in nanoseconds, to
/// `spent`.
fn on_cores<T: Send>(
    nodes: Vec<Node>,
    core: impl Fn(usize) -> usize,
    spent: &AtomicU64,
    work: impl Fn(usize, Node) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    std::thread::scope(|scope| {
        let start = |(pair, node)| {
            let (core, work) = (core(pair), &work);
            // A new thread inherits the namespace of the thread that starts it.
            scope.spawn(move || {
                let outcome = cores::pin_to(core).and_then(|()| work(pair, node));
                spent.fetch_add(thread_time(), Ordering::Relaxed);
                outcome
            })
        };
        let working: Vec<_> = nodes.into_iter().enumerate().map(start).collect();
        let join = |one: ScopedJoinHandle<'_, _>| one.join().unwrap_or_else(|_| Err("a thread panicked".into()));
        working.into_iter().map(join).collect()
    })
}

/// The goodput of all pairs together in Gb/s, and the processor time of all threads in seconds per gibibyte.
fn measure(ours: &Ours, pairs: usize, place: Place, seconds: f64) -> Result<Vec<f64>, String> {
    let (gone, spent) = (AtomicBool::new(false), AtomicU64::new(0));
    let options = perf::Options {
        size: MESSAGE as u64,
        connections: 1,
        duration: Duration::from_secs_f64(seconds),
        depth: 8,
        mode: Mode::Bandwidth,
        interval: Duration::from_secs(3_600),
        messages: None,
        bulk: 0,
    };
    let receiver = || {
        let nodes = ours.shards(pairs)?;
        on_cores(
            nodes,
            |pair| place(Role::Receiver, pair),
            &spent,
            |_, mut node| {
                let outcome = perf::serve(&mut node, || gone.load(Ordering::Relaxed), |_| {});
                outcome.map_err(|error| error.to_string())
            },
        )
    };
    let sender = || {
        let nodes = (0..pairs).map(|_| ours.node(Role::Sender, 0)).collect::<Result<Vec<_>, _>>();
        let outcome = nodes.and_then(|nodes| {
            on_cores(
                nodes,
                |pair| place(Role::Sender, pair),
                &spent,
                |pair, mut node| {
                    let outcome = perf::run_to_shard(&mut node, &ours.peer(0), pair as u8, &options, || false, |_| {});
                    outcome.map_err(|error| error.to_string())
                },
            )
        });
        gone.store(true, Ordering::Relaxed);
        outcome
    };
    let (stretches, _, ()): (Vec<Stretch>, _, _) = network::both(sender, receiver, || ())?;
    let gib = stretches.iter().map(|one| one.goodput_gbps * one.to_s / 8.0 * 1e9).sum::<f64>() / GIB;
    let goodput = stretches.iter().map(|one| one.goodput_gbps).sum();
    Ok(vec![goodput, spent.into_inner() as f64 / 1e9 / gib])
}

/// Pairs of client and shard, the core of each thread, and what the row's name says about it.
type Case = (usize, Place, &'static str);

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options.seconds, Vec::new());
    let columns = [Column::new("goodput together", "Gb/s"), Column::new("processor time of all threads", "s/GiB")];
    let pairs_of = |pairs: usize| if pairs == 1 { "one shard" } else { "two shards" };
    let tables: [(String, &[Case]); 2] = [
        (
            "shards behind one port, each pair of threads on one core".into(),
            &[(1, per_pair, ""), (2, per_pair, ", a core each"), (2, on_one, " on the same core")],
        ),
        (
            format!("shards behind one port, a core for each thread while there are any ({} here)", cores::count()?),
            &[(1, per_thread, ""), (2, per_thread, "")],
        ),
    ];
    for (table, each) in &tables {
        for protection in [Protection::None, Protection::Encrypted] {
            let ours = Ours::fitting("uec", protection, MTU)?;
            let name = |pairs, how: &str| format!("uec, {}, {}{how}", name_of(protection), pairs_of(pairs));
            for &(pairs, place, how) in *each {
                let ours = ours.clone();
                let row = Row::new(table, name(pairs, how), &columns, move || {
                    network.set(Wire::plain(MTU))?;
                    measure(&ours, pairs, place, seconds)
                });
                rows.push(if pairs == 1 { row } else { row.against(name(1, "")) });
            }
        }
    }
    Ok(Contest { section: "shards", rows })
}
