//! All-gathers and broadcasts of process groups by multicast, on an interface that carries multicast and where none
//! does.

use super::killed::{Fabric, Folder, ip};
use super::support::{planes, with};
use crate::support::{cast_address, in_multicast_namespace, over_ipv4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{
    Buffer, BufferRange, CollectiveCall, DirectoryStore, Element, Failure, Group, GroupOptions, Number, Process,
    ProcessOptions, Reduction, Work,
};
use strandway_proto::Rate;

/// Options on two planes, where an all-gather and a broadcast go by multicast.
fn multicast(address: std::net::SocketAddrV6) -> ProcessOptions {
    let mut options = ProcessOptions::on(vec![address; 2]);
    options.tuning.algorithms = "multicast".parse().expect("a rule");
    options.rate = Rate::from_gbps(1);
    options.payload = Some(1_300);
    options
}

/// Some bytes that no two ranks have alike.
fn bytes_of(rank: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 7_919).to_be_bytes()[0]).collect()
}

fn numbers_of<T: Number>(rank: u32, length: usize) -> Vec<T> {
    let size = size_of::<T>();
    let bytes = bytes_of(rank, length * size);
    let mut numbers = vec![T::zeroed(); length];
    bytemuck_bytes(&mut numbers).copy_from_slice(&bytes);
    numbers
}

fn bytemuck_bytes<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(numbers)
}

fn check_kind<T: Number>(group: &Group, length: usize) {
    let (rank, ranks) = (group.rank(), group.ranks());
    let wanted: Vec<T> = (0..ranks).flat_map(|r| numbers_of::<T>(r, length)).collect();
    let mut gathered = vec![T::zeroed(); wanted.len()];
    group.all_gather(&numbers_of::<T>(rank, length), &mut gathered).expect("all_gather");
    let same = |a: &[T], b: &[T]| bytemuck::cast_slice::<T, u8>(a) == bytemuck::cast_slice::<T, u8>(b);
    assert!(same(&gathered, &wanted), "{} x {length} at rank {rank}", T::ELEMENT.name());
    for root in [0, ranks - 1] {
        let mut numbers = numbers_of::<T>(rank, length);
        group.broadcast(&mut numbers, root).expect("broadcast");
        assert!(same(&numbers, &numbers_of::<T>(root, length)), "{} from {root}", T::ELEMENT.name());
    }
}

/// Every kind of numbers, of lengths around those of chunks, and other calls between.
fn check_all(group: &Group) {
    check_kind::<f32>(group, 30_001);
    check_kind::<f64>(group, 4_000);
    check_kind::<half::f16>(group, 20_000);
    check_kind::<half::bf16>(group, 20_000);
    check_kind::<i64>(group, 4_001);
    check_kind::<u32>(group, 5_000);
    check_kind::<i16>(group, 9_999);
    check_kind::<u8>(group, 17_000);
    check_kind::<i8>(group, 10);
    let mut sum = vec![1i32; 10_000];
    group.all_reduce(&mut sum, Reduction::Sum).expect("by messages");
    assert!(sum.iter().all(|sum| *sum == group.ranks() as i32));
}

#[test]
fn gathers_and_broadcasts_by_multicast_give_the_bytes_of_all_ranks() {
    if !in_multicast_namespace("gathers_and_broadcasts_by_multicast_give_the_bytes_of_all_ranks") {
        return;
    }
    // The ninth number of an interface's line is that of the bytes that have left.
    let left = || -> u64 {
        let text = std::fs::read_to_string("/proc/net/dev").expect("counted");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("v0:")).expect("the interface");
        line.split_whitespace().nth(8).expect("many numbers").parse().expect("a number")
    };
    with(4, &multicast(cast_address()), move |_, group| {
        check_all(&group);
        // A rank that gets no processor loses packets, which are cast again: one of five times counts.
        let bytes = (0..5).map(|_| {
            group.barrier().expect("all are done");
            let before = left();
            group.barrier().expect("all have looked");
            let mut gathered = vec![0u8; 4_000_000];
            group.all_gather(&bytes_of(group.rank(), 1_000_000), &mut gathered).expect("all_gather");
            group.barrier().expect("all are done");
            left() - before
        });
        let bytes: Vec<u64> = bytes.collect();
        // Messages between ranks stay within the host. Casts leave by the interface, most of them once;
        // by messages each block would leave three times.
        let least = bytes.iter().min().copied().unwrap_or(0);
        assert!(group.rank() > 0 || (4_000_000..8_000_000).contains(&least), "{bytes:?} bytes were cast");
    });
}

#[test]
fn gathers_and_broadcasts_by_multicast_give_the_bytes_of_all_ranks_over_ipv4() {
    over_ipv4(gathers_and_broadcasts_by_multicast_give_the_bytes_of_all_ranks);
}

#[test]
fn where_nothing_carries_multicast_calls_go_by_a_chain() {
    for ranks in [2, 3] {
        with(ranks, &ProcessOptions { planes: planes(2).planes, ..multicast(planes(1).planes[0]) }, |_, group| {
            check_all(&group);
        });
    }
}

/// Memory that a call reads or writes, and that this test looks at afterwards.
#[derive(Clone)]
struct Area(Arc<Vec<AtomicU8>>);

impl Area {
    fn new(bytes: &[u8]) -> Area {
        Area(Arc::new(bytes.iter().copied().map(AtomicU8::new).collect()))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    #[allow(unsafe_code, reason = "the buffer owns what it lends")]
    fn buffer(&self) -> Buffer {
        // SAFETY: the area goes along as the owner, and tests look at it when the work has ended.
        unsafe { Buffer::write(self.0.as_ptr().cast_mut().cast(), self.0.len(), Some(Box::new(self.clone()))) }
    }
}

/// Begins an all-gather of blocks of `length` bytes in place.
fn start_gather(group: &Group, length: usize, timeout: Option<Duration>) -> (Work, Area) {
    let mut whole = vec![0; length * group.ranks() as usize];
    let own = group.rank() as usize * length..(group.rank() as usize + 1) * length;
    whole[own].copy_from_slice(&bytes_of(group.rank(), length));
    let area = Area::new(&whole);
    let outputs = (0..group.ranks() as usize)
        .map(|rank| BufferRange { buffer: 0, bytes: rank * length..(rank + 1) * length })
        .collect();
    let call = CollectiveCall::AllGather { input: None, outputs };
    let work = group.start(call, vec![area.buffer()], Element::U8, Reduction::Sum, timeout).expect("fits");
    (work, area)
}

fn gathered(ranks: u32, length: usize) -> Vec<u8> {
    (0..ranks).flat_map(|rank| bytes_of(rank, length)).collect()
}

/// Nothing is written to the memory of a call that has ended, and nobody but the test has it.
fn check_quiet(area: &Area) {
    let before = area.bytes();
    thread::sleep(Duration::from_millis(100));
    assert!(area.bytes() == before, "memory was written after the end");
    assert_eq!(Arc::strong_count(&area.0), 1, "its owner was let go before the end was told");
}

fn local() -> ProcessOptions {
    multicast(planes(1).planes[0])
}

#[test]
fn calls_of_a_delegate_that_differ_are_named() {
    for (which, part) in
        [("bytes", "bytes where this rank"), ("kinds", "calls broadcast"), ("ways", "call all ranks alike")]
    {
        let errors = with(3, &local(), move |_, group| {
            let mut numbers = vec![0u8; 90_000];
            let odd = group.rank() == 1;
            let outcome = match which {
                "bytes" if odd => group.all_gather(&[0u8; 20_000], &mut numbers[..60_000]),
                "kinds" if odd => group.broadcast(&mut numbers, 0),
                // Short calls go by messages.
                "ways" if odd => group.all_gather(&[0u8; 100], &mut numbers[..300]),
                _ => group.all_gather(&[0u8; 30_000], &mut numbers),
            };
            let first = outcome.expect_err("they differ").to_string();
            let later = group.barrier().expect_err("no later result is right").to_string();
            assert!(later.contains("call all ranks alike"), "{later}");
            first
        });
        assert!(errors.iter().all(|error| error.contains("call all ranks alike")), "{errors:?}");
        assert!(errors.iter().any(|error| error.contains(part)), "{errors:?}");
    }
}

#[test]
fn a_delegate_performs_many_calls_in_their_order_beside_others() {
    if !in_multicast_namespace("a_delegate_performs_many_calls_in_their_order_beside_others") {
        return;
    }
    with(3, &multicast(cast_address()), |_, group| {
        let works: Vec<_> = (1..8).map(|i| (i * 10_000, start_gather(&group, i * 10_000, None))).collect();
        let mut sum = vec![1i64; 100_000];
        group.all_reduce(&mut sum, Reduction::Sum).expect("beside them");
        for (length, (work, area)) in works {
            assert_eq!(work.wait(), Ok(None));
            assert!(area.bytes() == gathered(3, length));
            check_quiet(&area);
        }
        assert!(group.waiting().is_empty());
    });
}

#[test]
fn groups_have_delegates_of_their_own_that_work_at_the_same_time() {
    if !in_multicast_namespace("groups_have_delegates_of_their_own_that_work_at_the_same_time") {
        return;
    }
    with(4, &multicast(cast_address()), |_, group| {
        let twin = group.twin(7);
        let half = group.split(Some(group.rank() % 2), 0).expect("all call it").expect("a color");
        let pair = group.split(Some(group.rank() / 2), 0).expect("all call it").expect("a color");
        for length in [30_000, 200_000] {
            let started = [&group, &twin, &half, &pair].map(|one| (one.ranks(), start_gather(one, length, None)));
            for (ranks, (work, area)) in started {
                assert_eq!(work.wait(), Ok(None));
                assert!(area.bytes() == gathered(ranks, length));
            }
        }
        drop((twin, half));
        let (work, area) = start_gather(&pair, 50_000, None);
        assert_eq!(work.wait(), Ok(None));
        assert!(area.bytes() == gathered(2, 50_000));
    });
}

#[test]
fn a_call_of_a_delegate_that_times_out_names_the_ranks_and_the_next_one_is_right() {
    with(3, &local(), |_, group| {
        start_gather(&group, 20_000, None).0.wait().expect("all are here");
        if group.rank() == 1 {
            thread::sleep(Duration::from_millis(900));
            let (late, area) = start_gather(&group, 20_000, None);
            let told = late.wait().expect_err("the others have given up");
            assert!(matches!(told, Failure::Told { .. }), "{told}");
            check_quiet(&area);
        } else {
            let began = Instant::now();
            let (work, area) = start_gather(&group, 20_000, Some(Duration::from_millis(400)));
            thread::sleep(Duration::from_millis(50));
            assert_eq!(group.waiting()[0].what, "all_gather");
            let failure = work.wait().expect_err("rank 1 is late");
            assert!((0.35..0.9).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
            let named = |ranks: &[String]| ranks.iter().any(|rank| rank.starts_with("rank 1 at "));
            // The first one to give up tells the other.
            assert!(
                matches!(&failure, Failure::TimedOut { waiting, .. } if named(waiting))
                    || matches!(failure, Failure::Told { .. }),
                "{failure}"
            );
            check_quiet(&area);
        }
        group.barrier().expect("the group goes on");
        for length in [20_000, 70_000] {
            let (work, area) = start_gather(&group, length, None);
            assert_eq!(work.wait(), Ok(None));
            assert!(area.bytes() == gathered(3, length));
        }
    });
}

#[test]
fn an_abort_ends_the_call_of_a_delegate_at_all_ranks() {
    with(3, &local(), |_, group| {
        start_gather(&group, 20_000, None).0.wait().expect("all are here");
        if group.rank() == 1 {
            thread::sleep(Duration::from_millis(300));
            return;
        }
        let (work, area) = start_gather(&group, 20_000, None);
        if group.rank() == 0 {
            thread::sleep(Duration::from_millis(100));
            let began = Instant::now();
            group.abort();
            assert_eq!(work.wait(), Err(Failure::Aborted));
            assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
            assert!(start_gather(&group, 20_000, None).0.wait().is_err());
        } else {
            assert!(matches!(work.wait(), Err(Failure::Told { .. })));
        }
        check_quiet(&area);
    });
}

#[test]
fn a_rank_that_leaves_after_its_last_call_does_not_disturb_the_others() {
    for _ in 0..5 {
        with(4, &local(), |process, group| {
            for length in [20_000, 300_000] {
                let (work, area) = start_gather(&group, length, None);
                assert_eq!(work.wait(), Ok(None), "rank {}", group.rank());
                assert!(area.bytes() == gathered(4, length));
            }
            thread::sleep(Duration::from_millis(u64::from(group.rank()) * 20));
            process.close().expect("all has arrived");
        });
    }
}

#[test]
fn a_rank_that_leaves_before_a_call_is_named() {
    let errors = with(3, &local(), |_, group| {
        start_gather(&group, 20_000, None).0.wait().expect("all are here");
        let (work, area) = match group.rank() {
            2 => return None,
            _ => start_gather(&group, 20_000, None),
        };
        let failure = work.wait().expect_err("rank 2 has gone");
        check_quiet(&area);
        Some(failure.to_string())
    });
    for error in errors.into_iter().flatten() {
        assert!(error.contains("rank 2 at ") && error.contains("Connection closed by peer"), "{error}");
    }
}

/// The variable that makes a copy of this test program a rank: `RANK FOLDER`.
const AS_RANK: &str = "STRANDWAY_TEST_AS_CASTING_RANK";

/// Not a test by itself: the part of a rank that another one leaves in the middle of a call, in a process of its own.
#[test]
fn casting_rank() {
    let Ok(text) = std::env::var(AS_RANK) else { return };
    let (rank, folder) = text.split_once(' ').expect("two words");
    let (rank, folder) = (rank.parse::<u32>().expect("a number"), std::path::PathBuf::from(folder));
    let mut store = DirectoryStore::new(folder.join("store")).expect("a folder");
    // Sockets find the death of a rank by its port, as between hosts.
    let options = ProcessOptions { shared_memory: false, ..local() };
    let process = Process::join(&mut store, rank, &options).expect("joined");
    let patience = Duration::from_secs(30);
    let group = Group::form(&process, &mut store, rank, 3, GroupOptions { timeout: patience, patience }).expect("met");
    for call in 0.. {
        let began = Instant::now();
        let (work, area) = start_gather(&group, 300_000, None);
        if call == 5 {
            std::fs::write(folder.join(format!("busy{rank}")), "").expect("written");
        }
        if let Err(failure) = work.wait() {
            check_quiet(&area);
            let later = start_gather(&group, 300_000, None).0.wait().expect_err("a rank is gone");
            let found = format!("{:?} {failure} | {later}", began.elapsed());
            std::fs::write(folder.join(format!("found{rank}")), found).expect("written");
            return;
        }
        assert!(area.bytes() == gathered(3, 300_000));
    }
}

#[test]
fn a_rank_that_dies_in_the_middle_of_a_call_is_named_by_all_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |rank: u32| {
        std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "process::casts::casting_rank"])
            .env(AS_RANK, format!("{rank} {}", folder.path().display()))
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("starts")
    };
    let mut all = [start(0), start(1), start(2)];
    let wait_for = |name: &str| {
        let until = Instant::now() + Duration::from_secs(60);
        while !folder.path().join(name).exists() {
            assert!(Instant::now() < until, "no {name}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for("busy2");
    let killed = Instant::now();
    all[2].kill().expect("killed");
    for (rank, one) in all.iter_mut().enumerate().take(2) {
        wait_for(&format!("found{rank}"));
        assert!(killed.elapsed() < Duration::from_secs(6), "{:?}", killed.elapsed());
        assert!(one.wait().expect("ended").success());
        let found = std::fs::read_to_string(folder.path().join(format!("found{rank}"))).expect("there");
        let (first, later) = found.split_once(" | ").expect("two failures");
        assert!([first, later].iter().all(|text| text.contains("rank 2 at ") && text.contains("refuses")), "{found}");
    }
    drop(all[2].wait());
}

/// The variable that makes a copy of this test program a rank on a host with two planes: `RANK FOLDER`.
const ON_TWO_PLANES: &str = "STRANDWAY_TEST_CASTS_ON_TWO_PLANES";

/// Not a test by itself: the part of a rank, in a namespace of its own, while a plane dies and comes back.
#[test]
fn casting_rank_on_two_planes() {
    let Ok(text) = std::env::var(ON_TWO_PLANES) else { return };
    let (rank, folder) = text.split_once(' ').expect("two words");
    let (rank, folder) = (rank.parse::<u32>().expect("a number"), std::path::PathBuf::from(folder));
    let planes = (0..2).map(|plane| format!("[fd5a:{plane}::{}]:0", rank + 1).parse().expect("an address")).collect();
    let options = ProcessOptions { planes, ..multicast(super::support::planes(1).planes[0]) };
    let mut store = DirectoryStore::new(folder.join("store")).expect("a folder");
    let process = Process::join(&mut store, rank, &options).expect("joined");
    let patience = Duration::from_secs(30);
    let group = Group::form(&process, &mut store, rank, 2, GroupOptions { timeout: patience, patience }).expect("met");
    for call in 0.. {
        let (work, area) = start_gather(&group, 400_000, None);
        assert_eq!(work.wait(), Ok(None), "call {call}");
        assert!(area.bytes() == gathered(2, 400_000), "call {call}");
        let mut stops = [i32::from(folder.join("stop").exists())];
        group.all_reduce(&mut stops, Reduction::Max).expect("agreed");
        if call == 20 {
            std::fs::write(folder.join(format!("busy{rank}")), "").expect("written");
        }
        if stops[0] == 1 {
            break;
        }
    }
    drop(group);
    process.close().expect("all has arrived");
    std::fs::write(folder.join(format!("over{rank}")), "").expect("written");
}

#[test]
fn a_plane_that_dies_in_the_middle_of_calls_disturbs_no_result() {
    let Some(fabric) = Fabric::new("casts") else {
        eprintln!("skipped: no network namespaces can be made here");
        return;
    };
    let folder = Folder::new("casts");
    let mut all = [0, 1].map(|rank| {
        let text = format!("{rank} {}", folder.0.display());
        fabric.run(rank, "process::casts::casting_rank_on_two_planes", (ON_TWO_PLANES, &text))
    });
    ["busy0", "busy1"].iter().for_each(|name| folder.wait_for(name, Duration::from_secs(60)));
    for state in ["down", "up", "down"] {
        assert!(ip(&format!("-n {} link set p1 {state}", fabric.0[1])));
        thread::sleep(Duration::from_millis(700));
    }
    std::fs::write(folder.0.join("stop"), "").expect("written");
    ["over0", "over1"].iter().for_each(|name| folder.wait_for(name, Duration::from_secs(40)));
    all.iter_mut().for_each(|rank| assert!(rank.wait().expect("ended").success()));
}
