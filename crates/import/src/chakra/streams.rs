//! Kernels of one stream of a GPU run one after the other, although traces of PyTorch have no dependency between them
//! (mlcommons/chakra, issue 215).

use super::node::Node;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Adds to the needs of each kernel the one before it on its stream: the one that started before it, or the one with the
/// next lower id if a kernel of the stream has no start time. Dependencies of the trace come first, so that no circle
/// arises. Returns how many were added. `nodes` are in the order of their ids; `needs` has places in it.
pub(super) fn chain(nodes: &[Node], needs: &mut [Vec<u32>]) -> u64 {
    let mut streams: BTreeMap<(i64, i64), Vec<u32>> = BTreeMap::new();
    for (place, node) in (0u32..).zip(nodes) {
        if let Some(stream) = node.stream.filter(|_| !node.is_cpu) {
            streams.entry((node.device, stream)).or_default().push(place);
        }
    }
    streams.retain(|_, kernels| kernels.len() > 1);
    if streams.is_empty() {
        return 0;
    }
    // Where one kernel has no time, those of others say nothing about their order.
    let mut rank = vec![0; nodes.len()];
    for kernels in streams.values() {
        let timed = kernels.iter().all(|place| nodes[*place as usize].start_us > 0);
        for place in kernels.iter().map(|place| *place as usize).filter(|_| timed) {
            rank[place] = nodes[place].start_us;
        }
    }
    let Some(order) = order(needs, &rank) else { return 0 };
    let mut added = 0;
    for kernels in streams.values_mut() {
        kernels.sort_by_key(|place| order[*place as usize]);
        for pair in kernels.windows(2) {
            let needs = &mut needs[pair[1] as usize];
            if !needs.contains(&pair[0]) {
                needs.push(pair[0]);
                added += 1;
            }
        }
    }
    added
}

/// The position of each node in an order in which needs come first, and then lower ranks, and then lower places. `None` if
/// nodes need each other in a circle.
fn order(needs: &[Vec<u32>], rank: &[u64]) -> Option<Vec<u32>> {
    let mut waits: Vec<u32> = needs.iter().map(|needs| needs.len() as u32).collect();
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); needs.len()];
    for (place, needs) in (0u32..).zip(needs) {
        needs.iter().for_each(|need| next[*need as usize].push(place));
    }
    let key = |place: u32| Reverse((rank[place as usize], place));
    let free = (0..needs.len() as u32).filter(|place| waits[*place as usize] == 0);
    let mut free: BinaryHeap<_> = free.map(key).collect();
    let (mut position, mut done) = (vec![0; needs.len()], 0);
    while let Some(Reverse((_, place))) = free.pop() {
        position[place as usize] = done;
        done += 1;
        for &later in &next[place as usize] {
            waits[later as usize] -= 1;
            if waits[later as usize] == 0 {
                free.push(key(later));
            }
        }
    }
    (done as usize == needs.len()).then_some(position)
}
