//! Process groups whose sums a switch makes: exact integers, floats within their bound, and messages where there is no
//! switch, or it ends.

use super::common::{Running, SILENCE, esa, options, switch, systems};
use super::support::local;
use std::thread;
use std::time::{Duration, Instant};
use strandway_aggregator::SwitchConfig;
use strandway_group::aggregation::NetworkOptions;
use strandway_group::process::{Group, GroupOptions, Process, ProcessOptions, Reduction, Values};
use strandway_proto::Rate;

/// Options whose sums go by a switch.
fn by_switch(switch: Option<NetworkOptions>) -> ProcessOptions {
    let mut options = ProcessOptions::on(vec![local()]);
    options.tuning.algorithms = "in-network".parse().expect("a rule");
    options.rate = Rate::from_gbps(1);
    options.switch = switch;
    options
}

/// Runs `work` at ranks with these options.
fn ranks<T: Send + 'static>(
    ranks: u32,
    options: impl Fn(u32) -> ProcessOptions,
    work: impl Fn(&Group) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let store = Values::default();
    let all: Vec<_> = (0..ranks)
        .map(|rank| {
            let (mut store, work, options) = (store.clone(), work.clone(), options(rank));
            thread::spawn(move || {
                let process = Process::join(&mut store, rank, &options).expect("a process");
                let options = GroupOptions { timeout: Duration::from_secs(60), ..GroupOptions::default() };
                let group = Group::form(&process, &mut store, rank, ranks, options).expect("a group");
                work(&group)
            })
        })
        .collect();
    all.into_iter().map(|rank| rank.join().expect("no panic")).collect()
}

fn integer(rank: u32, place: usize) -> i32 {
    ((place as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 7_919) as i32) >> 6
}

fn float(rank: u32, place: usize) -> f32 {
    integer(rank, place) as f32 / 3e6
}

/// All-reduces and reduce-scatters of integers and floats of some lengths. Returns the bits of the floats' sums.
fn check(group: &Group, lengths: &[usize], max_abs: f32) -> Vec<u32> {
    let (rank, ranks) = (group.rank(), group.ranks());
    // ESA sheet, section 9: the factor is at least 2^31 / (4 x ranks x max_abs). Each rank's number is rounded once, by
    // at most half a step, and so is the sum.
    let step = 4.0 * ranks as f32 * max_abs / 2f32.powi(31);
    let near = |sum: f32, right: f64| {
        (f64::from(sum) - right).abs() <= f64::from(step) * f64::from(ranks) / 2.0 + right.abs() / 8e6
    };
    let mut bits = Vec::new();
    for &length in lengths {
        let whole = length * ranks as usize;
        let mut numbers: Vec<i32> = (0..whole).map(|place| integer(rank, place)).collect();
        let right: Vec<i32> = (0..whole).map(|place| (0..ranks).map(|r| integer(r, place)).sum()).collect();
        let mut block = vec![0; length];
        group.reduce_scatter(&numbers, &mut block, Reduction::Sum).expect("a sum");
        assert!(block == right[rank as usize * length..][..length], "scattered integers, {length} at rank {rank}");
        group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
        assert!(numbers == right, "integers, {length} at rank {rank}");
        let mut numbers: Vec<f32> = (0..whole).map(|place| float(rank, place)).collect();
        let right: Vec<f64> = (0..whole).map(|place| (0..ranks).map(|r| f64::from(float(r, place))).sum()).collect();
        let mut block = vec![0.0; length];
        group.reduce_scatter(&numbers, &mut block, Reduction::Average).expect("an average");
        let own = &right[rank as usize * length..][..length];
        let wrong = block.iter().zip(own).position(|(sum, right)| !near(*sum * ranks as f32, *right));
        assert_eq!(wrong, None, "scattered floats, {length} at rank {rank}");
        group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
        let wrong = numbers.iter().zip(&right).position(|(sum, right)| !near(*sum, *right));
        assert_eq!(wrong, None, "floats, {length} at rank {rank}");
        bits.extend(numbers.iter().map(|sum| sum.to_bits()));
    }
    bits
}

fn all_alike<T: PartialEq>(all: &[T]) -> bool {
    all.windows(2).all(|pair| pair[0] == pair[1])
}

#[test]
fn groups_add_by_switches_of_all_systems() {
    for system in systems() {
        let switch = Running::start(switch(system, 1));
        let admission = switch.admissions[0];
        let sums = ranks(3, |_| by_switch(Some(options(admission, 1))), |group| check(group, &[2_000, 7_777], 16.0));
        assert!(all_alike(&sums), "{}: the same bits at all ranks", system.name());
        let status = switch.end();
        let counts = status.ports[0].jobs[&1].2;
        assert!(counts.completed + counts.server_completed >= 1_500, "{}: {counts:?}", system.name());
        assert_eq!((status.ports[0].refused, status.ports[0].odd), (0, 0), "{}", system.name());
    }
}

#[test]
fn groups_add_by_a_switch_while_fragments_are_lost() {
    for system in systems() {
        let switch = Running::start(SwitchConfig { loss: 0.01, ports: 2, ..switch(system, 1) });
        let admission = switch.admissions[0];
        let lossy = move |_| by_switch(Some(NetworkOptions { loss: 0.01, ..options(admission, 1) }));
        let sums = ranks(3, lossy, |group| check(group, &[20_000], 16.0));
        assert!(all_alike(&sums), "{}", system.name());
    }
}

#[test]
fn numbers_beyond_the_range_of_integers_are_added_all_the_same() {
    for system in systems() {
        let switch = Running::start(switch(system, 1));
        let admission = switch.admissions[0];
        ranks(
            3,
            |_| by_switch(Some(options(admission, 1))),
            |group| {
                let mut integers = vec![i32::MAX - 5; 9_000];
                integers[100] = group.rank() as i32;
                group.all_reduce(&mut integers, Reduction::Sum).expect("by messages");
                assert_eq!((integers[0], integers[100]), ((i32::MAX - 5).wrapping_mul(3), 3));
                let input: Vec<f32> = (0..9_000).map(|place| if place % 700 == 0 { 1e9 } else { 0.5 }).collect();
                let mut block = vec![0.0; 3_000];
                group.reduce_scatter(&input, &mut block, Reduction::Sum).expect("as floats, or by messages");
                let own = &input[3_000 * group.rank() as usize..][..3_000];
                assert!(block.iter().zip(own).all(|(sum, own)| (*sum - 3.0 * own).abs() <= own.abs() * 1e-6));
            },
        );
    }
}

#[test]
fn without_a_switch_sums_are_those_of_messages() {
    // No rank has one; one rank has none; nothing answers at its address.
    let unused = std::net::UdpSocket::bind("[::1]:0").expect("a port").local_addr().expect("bound");
    let nowhere = strandway_udp::address::kept(unused);
    let switch = Running::start(switch(esa(), 1));
    let (admission, hasty) = (switch.admissions[0], Duration::from_millis(500));
    for case in 0..3 {
        let options_of = move |rank: u32| {
            let at = if case == 2 { nowhere } else { admission };
            let access = NetworkOptions { patience: hasty, ..options(at, 1) };
            by_switch((case == 2 || case == 1 && rank != 1).then_some(access))
        };
        let exact = ranks(3, options_of, |group| check(group, &[5_000], 16.0));
        let direct = ranks(
            3,
            |_| ProcessOptions { tuning: Default::default(), ..by_switch(None) },
            |group| check(group, &[5_000], 16.0),
        );
        assert!(exact == direct, "the bits of messages, case {case}");
    }
}

#[test]
fn a_switch_that_ends_in_the_middle_is_replaced_by_messages() {
    let running = Running::start(SwitchConfig { silence: Duration::from_secs(1), ..switch(esa(), 1) });
    let admission = running.admissions[0];
    let (begun, told) = std::sync::mpsc::channel();
    let ending = thread::spawn(move || {
        told.recv().expect("a rank is at work");
        thread::sleep(Duration::from_millis(30));
        running.end()
    });
    let begun = std::sync::Mutex::new(begun);
    let begun = std::sync::Arc::new(begun);
    let access = move |_| by_switch(Some(NetworkOptions { silence: Duration::from_secs(1), ..options(admission, 1) }));
    ranks(3, access, move |group| {
        let began = Instant::now();
        for round in 0..40 {
            let mut numbers: Vec<i32> = (0..60_000).map(|place| integer(group.rank(), place + round)).collect();
            group.all_reduce(&mut numbers, Reduction::Sum).expect("in one way or the other");
            let right = |place: usize| (0..3).map(|rank| integer(rank, place + round)).sum::<i32>();
            assert!(numbers.iter().enumerate().all(|(place, sum)| *sum == right(place)), "round {round}");
            if round == 2 && group.rank() == 0 {
                begun.lock().expect("one rank").send(()).expect("it waits");
            }
        }
        assert!(began.elapsed() < SILENCE, "{:?}", began.elapsed());
    });
    let status = ending.join().expect("no panic");
    assert!(status.ports[0].jobs[&1].2.completed > 0, "it has added at first");
}

#[test]
fn a_sum_that_times_out_or_is_called_otherwise_fails_at_all_ranks() {
    let switch = Running::start(switch(esa(), 1));
    let admission = switch.admissions[0];
    ranks(
        3,
        |_| by_switch(Some(options(admission, 1))),
        |group| {
            check(group, &[2_000], 16.0);
            if group.rank() == 1 {
                thread::sleep(Duration::from_millis(900));
            } else {
                group.set_timeout(Duration::from_millis(400));
            }
            let mut numbers = vec![7i32; 9_000];
            let failure = group.all_reduce(&mut numbers, Reduction::Sum).expect_err("rank 1 is late").to_string();
            assert!(failure.contains("timed out after 0.4 s"), "{failure}");
            assert!(numbers.iter().all(|number| *number == 7), "the memory is unchanged");
            group.set_timeout(Duration::from_secs(60));
            group.barrier().expect("the group goes on");
            check(group, &[2_000, 5_000], 16.0);
        },
    );
    let access = move |_| by_switch(Some(options(admission, 1)));
    let errors = ranks(3, access, |group| {
        let mut numbers = vec![1i32; if group.rank() == 2 { 9_000 } else { 8_000 }];
        group.all_reduce(&mut numbers, Reduction::Sum).expect_err("lengths differ").to_string()
    });
    assert!(errors.iter().all(|error| error.contains("call all ranks alike")), "{errors:?}");
    drop(switch);
}
