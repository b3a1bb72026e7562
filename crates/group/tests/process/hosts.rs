//! Ranks that share hosts, with other ranks elsewhere: collectives go inside hosts, between hosts, inside hosts. Results
//! are the bits of the direct algorithms, and fewer bytes leave each host.

use super::killed::{Fabric, Folder};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strandway_group::process::{DirectoryStore, Group, GroupOptions, Process, ProcessOptions, Reduction, Tuning};

/// The variable that makes a copy of this test program a rank: `RANK FOLDER`.
const AS_RANK: &str = "STRANDWAY_TEST_AS_RANK_OF_HOST";
/// The host of each rank.
const HOSTS: [usize; 5] = [0, 0, 0, 1, 1];
const RANKS: u32 = HOSTS.len() as u32;
/// Numbers of a buffer: long enough for the hierarchy, and for several parts; no multiple of the ranks.
const COUNT: usize = 300_007;
/// Measured all-gathers, of this many numbers of each rank.
const GATHERS: usize = 4;
const BLOCK: usize = 100_000;

/// A number of a rank at a place: of very different sizes, so that another order of additions gives other bits.
fn number(rank: u32, at: usize) -> f32 {
    let mixed = (u64::from(rank) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (mixed as f32 + 1.0) * [1e-6, 1.0, 1e6][(mixed % 3) as usize]
}

fn numbers(rank: u32, count: usize) -> Vec<f32> {
    (0..count).map(|at| number(rank, at)).collect()
}

/// The bits of the results of all kinds of calls at this rank.
fn results(group: &Group) -> Vec<Vec<u64>> {
    let rank = group.rank();
    let bits = |numbers: &[f32]| numbers.iter().map(|number| u64::from(number.to_bits())).collect::<Vec<_>>();
    let mut all = Vec::new();
    for reduction in [Reduction::Sum, Reduction::Average, Reduction::ScaledSum(0.3), Reduction::Max] {
        let mut sums = numbers(rank, COUNT);
        group.all_reduce(&mut sums, reduction).expect("all_reduce");
        all.push(bits(&sums));
        for root in [0, 1, RANKS - 1] {
            let mut sums = numbers(rank, COUNT);
            group.reduce(&mut sums, reduction, root).expect("reduce");
            all.push(bits(&sums));
        }
        let inputs = numbers(rank, RANKS as usize * BLOCK);
        let mut block = vec![0.0; BLOCK];
        group.reduce_scatter(&inputs, &mut block, reduction).expect("reduce_scatter");
        assert_eq!(inputs, numbers(rank, RANKS as usize * BLOCK), "the input of a reduce_scatter stays as it is");
        all.push(bits(&block));
    }
    let mut halves: Vec<half::f16> = (0..COUNT).map(|at| half::f16::from_f32(number(rank, at) % 1_000.0)).collect();
    group.all_reduce(&mut halves, Reduction::Average).expect("all_reduce");
    all.push(halves.iter().map(|half| u64::from(half.to_bits())).collect());
    for root in [0, 1, RANKS - 1] {
        let mut copied = numbers(rank, COUNT);
        group.broadcast(&mut copied, root).expect("broadcast");
        assert_eq!(copied, numbers(root, COUNT), "broadcast");
        all.push(bits(&copied));
    }
    let mut gathered = vec![0.0; RANKS as usize * BLOCK];
    group.all_gather(&numbers(rank, BLOCK), &mut gathered).expect("all_gather");
    assert!((0..RANKS).all(|of| gathered[of as usize * BLOCK..][..BLOCK] == numbers(of, BLOCK)), "all_gather");
    all.push(bits(&gathered));
    all
}

/// Bytes that have left this host, on both planes.
fn sent() -> u64 {
    let of = |plane| fs::read_to_string(format!("/sys/class/net/p{plane}/statistics/tx_bytes"));
    (0..2).map(|plane| of(plane).expect("a port").trim().parse::<u64>().expect("a number")).sum()
}

/// Not a test by itself: what a rank does, in a process of its own.
#[test]
fn rank_of_a_host() {
    let Ok(text) = std::env::var(AS_RANK) else { return };
    let (rank, folder) = text.split_once(' ').expect("two words");
    let (rank, folder) = (rank.parse::<u32>().expect("a number"), PathBuf::from(folder));
    let mut both = Vec::new();
    for algorithm in ["direct", "auto"] {
        both.push(with_algorithm(algorithm, rank, &folder));
    }
    assert!(both[0] == both[1], "the same bits at rank {rank}");
    fs::write(folder.join(format!("over{rank}")), "").expect("written");
}

fn with_algorithm(algorithm: &str, rank: u32, folder: &Path) -> Vec<Vec<u64>> {
    let host = HOSTS[rank as usize];
    let planes = (0..2).map(|plane| format!("[fd5a:{plane}::{}]:0", host + 1).parse().expect("an address")).collect();
    let patience = Duration::from_secs(60);
    let mut tuning = Tuning::default();
    tuning.set("algorithm", algorithm).expect("an algorithm");
    let options = ProcessOptions { patience, payload: Some(1_300), tuning, ..ProcessOptions::on(planes) };
    let mut store = DirectoryStore::new(folder.join(algorithm)).expect("a folder");
    let process = Process::join(&mut store, rank, &options).expect("joined");
    let options = GroupOptions { timeout: patience, patience };
    let group = Group::form(&process, &mut store, rank, RANKS, options).expect("met");
    let all = results(&group);
    group.barrier().expect("barrier");
    let before = sent();
    for _ in 0..GATHERS {
        let mut gathered = vec![0.0; RANKS as usize * BLOCK];
        group.all_gather(&numbers(rank, BLOCK), &mut gathered).expect("all_gather");
    }
    group.barrier().expect("barrier");
    if rank == 0 {
        fs::write(folder.join(format!("{algorithm}.sent")), format!("{}", sent() - before)).expect("written");
    }
    group.barrier().expect("barrier");
    process.close().expect("closed");
    all
}

#[test]
fn ranks_that_share_hosts_have_the_same_bits_and_send_each_byte_once_between_hosts() {
    let Some(fabric) = Fabric::new("hosts") else {
        eprintln!("skipped: no network namespaces can be made here");
        return;
    };
    let folder = Folder::new("hosts");
    let start = |(rank, host): (usize, usize)| {
        let text = format!("{rank} {}", folder.0.display());
        fabric.run(host, "process::hosts::rank_of_a_host", (AS_RANK, &text))
    };
    let ranks: Vec<_> = HOSTS.into_iter().enumerate().map(start).collect();
    for (rank, mut child) in ranks.into_iter().enumerate() {
        assert!(child.wait().expect("it ends").success(), "rank {rank}");
        assert!(folder.0.join(format!("over{rank}")).exists(), "rank {rank} has not come to its end");
    }
    let sent = |algorithm: &str| {
        let text = fs::read_to_string(folder.0.join(format!("{algorithm}.sent"))).expect("a number");
        text.parse::<f64>().expect("a number")
    };
    // Three blocks leave host 0 for each other host instead of for each rank there: half of the bytes, and headers.
    let blocks = (3 * GATHERS * BLOCK * 4) as f64;
    let (direct, shared) = (sent("direct"), sent("auto"));
    assert!(direct > 2.0 * blocks && shared > blocks, "{direct} and {shared} bytes");
    assert!(shared < 0.75 * direct, "{shared} bytes instead of {direct}");
}
