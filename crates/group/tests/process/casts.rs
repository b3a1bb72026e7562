//! All-gathers and broadcasts of process groups by multicast, on an interface that carries multicast and where none
//! does.

use super::support::{planes, with};
use crate::support::{cast_address, in_multicast_namespace, over_ipv4};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{
    Buffer, BufferRange, CollectiveCall, Element, Failure, Group, Number, ProcessOptions, Reduction, Work,
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
    with(4, &multicast(cast_address()), |_, group| check_all(&group));
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
