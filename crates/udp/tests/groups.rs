//! Groups of nodes over real multicast, in a network namespace of their own.

use super::support::{self, PATIENCE, cast_address, config, in_multicast_namespace, over_ipv4, pattern, v6};
use std::sync::Arc;
use std::time::Instant;
use strandway_proto::cast::{Cast, Layout, LeftOut, Parity, Rebuild};
use strandway_proto::repair::{Code, Pieces};
use strandway_proto::{ControlMessage, HostId, PathId, Rate};
use strandway_udp::{
    Completion, Config, Error, Feature, Group, GroupCounters, Incoming, Membership, Node, Region, Without,
    parity_chunks,
};

const TEAM: u16 = 7;
const PORT: u16 = 47_999;

fn two_planes() -> Config {
    let mut config = config("uec", 2);
    config.planes = vec![cast_address(); 2];
    config
}

struct Ranks {
    nodes: Vec<Node>,
    groups: Vec<Group>,
    regions: Vec<Region>,
    layout: Layout,
}

fn membership(nodes: &[Node], rank: u32, secret: u8) -> Membership {
    let addresses = |node: &Node| node.addresses().expect("bound").into_iter().map(v6).collect();
    Membership {
        team: TEAM,
        secret: [secret; 32],
        rank,
        members: nodes.iter().map(addresses).collect(),
        port: Some(PORT),
        trees: 2,
    }
}

impl Ranks {
    /// `count` ranks with two planes; rank 0 holds `bytes` of a pattern, the others zeros. Operation 5 is open.
    fn new(count: u32, bytes: usize, hashes: bool) -> Ranks {
        let mut nodes: Vec<Node> = (0..count).map(|_| Node::bind(two_planes()).expect("sockets")).collect();
        let layout = Layout::new(bytes as u64, 1, nodes[0].payload() as u16).expect("few chunks");
        let all = pattern(1, bytes);
        let chunks = all.chunks(nodes[0].payload() as usize);
        let list: Arc<[[u8; 16]]> =
            chunks.map(|chunk| *blake3::hash(chunk).as_bytes().first_chunk().expect("32 bytes")).collect();
        let (mut groups, mut regions) = (Vec::new(), Vec::new());
        for rank in 0..count {
            let membership = membership(&nodes, rank, 1);
            let node = &mut nodes[rank as usize];
            let group = node.join(&membership).expect("a group");
            let region = node.register(if rank == 0 { all.clone() } else { vec![0; bytes] });
            let hashes = hashes.then(|| list.clone());
            node.open_task(
                group,
                &Incoming { task: 5, layout, region, range: 0..bytes, present: Vec::new(), parity: None, hashes },
            )
            .expect("open");
            groups.push(group);
            regions.push(region);
        }
        Ranks { nodes, groups, regions, layout }
    }

    /// The operation 6 with the same buffers, and with parity of this code.
    fn open_coded(&mut self, code: Code, hashes: Option<Arc<[[u8; 16]]>>) {
        for rank in 0..self.nodes.len() {
            let bytes = self.layout.bytes() as usize;
            let incoming = Incoming {
                task: 6,
                layout: self.layout,
                region: self.regions[rank],
                range: 0..bytes,
                present: Vec::new(),
                parity: Some(code),
                hashes: hashes.clone(),
            };
            self.nodes[rank].open_task(self.groups[rank], &incoming).expect("open");
        }
    }

    fn cast(&self, to: HostId, first: u32, count: u32) -> Cast {
        let chunks = self.layout.chunks(0);
        Cast {
            to,
            task: 5,
            first,
            count,
            bytes: self.layout.chunk_bytes(),
            last: chunks - 1,
            tail: self.layout.tail(0),
            header: self.nodes[0].chunk_overhead() as u16,
            rate: Rate::from_gbps(1),
            planes: 0b11,
            trees: 0,
            left_out: LeftOut::NONE,
        }
    }

    /// Moves packets everywhere until `is_so` holds; returns all completions, each with its rank.
    #[track_caller]
    fn until(&mut self, mut is_so: impl FnMut(&[(usize, Completion)], &Ranks) -> bool) -> Vec<(usize, Completion)> {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while !is_so(&seen, self) {
            if Instant::now() > end {
                let planes: Vec<_> = self.nodes.iter().map(|node| node.observe().plane_counters()).collect();
                panic!("not within {PATIENCE:?}: {seen:?}; {planes:#?}");
            }
            for (rank, node) in self.nodes.iter_mut().enumerate() {
                while let Some(completion) = node.poll() {
                    seen.push((rank, completion));
                }
            }
        }
        seen
    }

    fn counters(&self, rank: usize) -> GroupCounters {
        self.nodes[rank].observe().group_counters(self.groups[rank]).expect("a group")
    }

    fn bytes(&self, rank: usize) -> &[u8] {
        self.nodes[rank].memory(self.regions[rank]).expect("registered")
    }
}

#[test]
fn chunks_reach_all_members_by_all_trees_each_in_its_place() {
    if !in_multicast_namespace("chunks_reach_all_members_by_all_trees_each_in_its_place") {
        return;
    }
    let mut ranks = Ranks::new(4, 100_000, false);
    let chunks = ranks.layout.chunks(0);
    let cast = ranks.cast(HostId::group(0), 0, chunks);
    ranks.nodes[0].cast(ranks.groups[0], cast).expect("a cast");
    let seen = ranks.until(|_, ranks| (1..4).all(|rank| ranks.counters(rank).placed == u64::from(chunks)));
    for rank in 1..4 {
        assert!(ranks.bytes(rank) == ranks.bytes(0), "rank {rank}");
        let mine = seen.iter().filter(|(at, _)| *at == rank);
        let (mut planes, mut lasts) = (0, 0);
        for (_, completion) in mine {
            let Completion::Chunk { from: 0, task: 5, plane, trimmed: false, last, chunk, .. } = *completion else {
                panic!("{completion:?}")
            };
            planes |= 1 << plane;
            assert_eq!(last, chunk == chunks - 1);
            lasts += u32::from(last);
        }
        assert_eq!((planes, lasts), (0b11, 1), "rank {rank}");
    }
    let over = Completion::Cast { group: ranks.groups[0], to: HostId::group(0), task: 5, end: chunks };
    assert!(seen.contains(&(0, over)));
    assert_eq!(ranks.counters(0).sent, chunks.into(), "once, however many members there are");
    // Cast to one member again: it is reported, and changes nothing.
    let again = ranks.cast(HostId(2), 3, 1);
    ranks.nodes[1].cast(ranks.groups[1], again).expect("members may send chunks that they have");
    ranks.until(|_, ranks| ranks.counters(2).duplicates == 1);
    assert_eq!([1, 3].map(|rank| ranks.counters(rank).duplicates), [0, 0]);
}

#[test]
fn chunks_reach_all_members_by_groups_of_ipv4() {
    over_ipv4(chunks_reach_all_members_by_all_trees_each_in_its_place);
}

#[test]
fn chunks_of_operations_that_are_closed_or_odd_go_nowhere() {
    if !in_multicast_namespace("chunks_of_operations_that_are_closed_or_odd_go_nowhere") {
        return;
    }
    let mut ranks = Ranks::new(3, 10_000, false);
    ranks.nodes[1].close_task(ranks.groups[1], 5).expect("it was open");
    assert!(matches!(ranks.nodes[1].close_task(ranks.groups[1], 5), Err(Error::NoGroup)));
    let chunks = ranks.layout.chunks(0);
    let cast = ranks.cast(HostId::group(0), 0, chunks);
    ranks.nodes[0].cast(ranks.groups[0], cast).expect("a cast");
    ranks.until(|_, ranks| ranks.counters(1).strays == chunks.into() && ranks.counters(2).placed == chunks.into());
    assert!(ranks.bytes(1).iter().all(|&byte| byte == 0));
    // Its memory is released; that of the others is not.
    ranks.nodes[1].deregister(ranks.regions[1]).expect("free");
    assert!(matches!(ranks.nodes[2].deregister(ranks.regions[2]), Err(Error::RegionInUse)));
    // Casts of unknown members, chunks or operations are refused.
    let group = ranks.groups[0];
    for cast in [
        ranks.cast(HostId(3), 0, 1),
        ranks.cast(HostId(1), chunks, 1),
        ranks.cast(HostId(1), 0, 0),
        Cast { task: 6, ..cast },
    ] {
        assert!(matches!(ranks.nodes[0].cast(group, cast), Err(Error::Config(_))), "{cast:?}");
    }
    ranks.nodes[0].leave(group).expect("a member");
    assert!(matches!(ranks.nodes[0].cast(group, cast), Err(Error::NoGroup)));
    ranks.nodes[0].deregister(ranks.regions[0]).expect("free");
}

#[test]
fn control_messages_reach_one_member_or_all_and_strangers_none() {
    if !in_multicast_namespace("control_messages_reach_one_member_or_all_and_strangers_none") {
        return;
    }
    let mut ranks = Ranks::new(3, 1_000, false);
    let control = |word| ControlMessage::Custom { kind: 9, words: [word, 0, 0, 0] };
    for word in 0..4 {
        ranks.nodes[2].send_control_to_member(ranks.groups[2], 0, control(word), false).expect("a member");
    }
    let words =
        |seen: &[(usize, Completion)]| seen.iter().filter(|(_, c)| matches!(c, Completion::Word { .. })).count();
    let seen = ranks.until(|seen, _| words(seen) == 4);
    let planes: Vec<u8> = seen
        .iter()
        .filter_map(|(rank, completion)| match completion {
            Completion::Word { from: 2, path, to_all: false, .. } if *rank == 0 => Some(path.port()),
            _ => None,
        })
        .collect();
    assert_eq!(planes.iter().filter(|plane| **plane == 0).count(), 2, "planes take turns: {planes:?}");
    ranks.nodes[1].send_control_to_all(ranks.groups[1], PathId::new(1, 1), control(9)).expect("a group");
    let seen = ranks.until(|seen, _| words(seen) == 2);
    let mut at: Vec<usize> = seen.iter().map(|(rank, _)| *rank).collect();
    at.sort_unstable();
    assert_eq!(at, [0, 2], "all but the sender");
    let by_tree =
        |c: &Completion| matches!(c, Completion::Word { path, to_all: true, .. } if *path == PathId::new(1, 1));
    assert!(seen.iter().all(|(_, completion)| by_tree(completion)));
    // A node with another secret sends to the same addresses.
    let mut stranger = Node::bind(two_planes()).expect("sockets");
    let foreign = stranger.join(&membership(&ranks.nodes, 1, 2)).expect("it can try");
    stranger.send_control_to_all(foreign, PathId::new(0, 0), control(1)).expect("a group");
    let before: Vec<u64> = ranks.nodes.iter().map(|node| node.observe().counters().strays).collect();
    ranks.until(|seen, ranks| {
        assert_eq!(words(seen), 0);
        ranks.nodes.iter().zip(&before).all(|(node, before)| node.observe().counters().strays > *before)
    });
}

#[test]
fn control_messages_reach_one_member_or_all_over_ipv4() {
    over_ipv4(control_messages_reach_one_member_or_all_and_strangers_none);
}

#[test]
fn a_member_that_forges_chunks_is_found_out_by_hashes() {
    if !in_multicast_namespace("a_member_that_forges_chunks_is_found_out_by_hashes") {
        return;
    }
    let mut ranks = Ranks::new(3, 10_000, true);
    let chunks = ranks.layout.chunks(0);
    // Rank 1 has zeros, and casts them as if they were rank 0's chunks.
    let forged = ranks.cast(HostId::group(0), 0, chunks);
    ranks.nodes[1].cast(ranks.groups[1], forged).expect("a cast");
    ranks.until(|seen, ranks| {
        assert!(!seen.iter().any(|(_, c)| matches!(c, Completion::Chunk { .. })), "nothing is told of");
        ranks.counters(2).forged == chunks.into()
    });
    assert!(ranks.bytes(2).iter().all(|&byte| byte == 0));
    let true_ones = ranks.cast(HostId::group(0), 0, chunks);
    ranks.nodes[0].cast(ranks.groups[0], true_ones).expect("a cast");
    ranks.until(|_, ranks| ranks.counters(2).placed == chunks.into());
    assert!(ranks.bytes(2) == ranks.bytes(0));
}

#[test]
fn chunks_that_one_member_lacks_are_rebuilt_and_forged_parity_is_found_out() {
    if !in_multicast_namespace("chunks_that_one_member_lacks_are_rebuilt_and_forged_parity_is_found_out") {
        return;
    }
    let code = Code::mds(8, 3).expect("11 pieces");
    for hashed in [false, true] {
        // The last chunk is short, and so is the last group.
        let mut ranks = Ranks::new(3, 30_001, false);
        let (layout, chunks) = (ranks.layout, ranks.layout.chunks(0));
        let parity = Parity::new(layout, code).expect("few chunks");
        let mut list: Vec<[u8; 16]> = Vec::new();
        let mut add = |chunk: &[u8]| list.push(*blake3::hash(chunk).as_bytes().first_chunk().expect("32 bytes"));
        ranks.bytes(0).chunks(layout.chunk_bytes().into()).for_each(&mut add);
        parity_chunks(layout, parity, ranks.bytes(0), |_, chunk| add(chunk));
        ranks.open_coded(code, hashed.then(|| list.into()));
        let group = ranks.groups[0];
        let coded = |cast: Cast| Cast { task: 6, ..cast };
        if hashed {
            // Rank 2 has zeros, and the parity of zeros is zeros, too.
            let forged = coded(ranks.cast(HostId(1), parity.group(0).parity.start, 1));
            ranks.nodes[2].cast(ranks.groups[2], forged).expect("a cast");
            ranks.until(|_, ranks| ranks.counters(1).forged == 1);
        }
        // Rank 1 lacks chunk 2 and the short one; rank 2 gets all data. Both get one parity chunk of each group.
        for (first, count) in [(0, 2), (3, chunks - 4)] {
            let cast = coded(ranks.cast(HostId(1), first, count));
            ranks.nodes[0].cast(group, cast).expect("a cast");
        }
        let cast = coded(ranks.cast(HostId(2), 0, chunks));
        ranks.nodes[0].cast(group, cast).expect("a cast");
        let last = parity.group_of(chunks - 1);
        for group in [0, last] {
            let cast = coded(ranks.cast(HostId::group(0), parity.group(group).parity.start, 1));
            ranks.nodes[0].cast(ranks.groups[0], cast).expect("a cast");
        }
        ranks.until(|_, ranks| {
            let placed = |rank| ranks.counters(rank).placed;
            (placed(1), placed(2)) == (u64::from(chunks - 2) + 2, u64::from(chunks) + 2)
        });
        assert!(ranks.bytes(1) != ranks.bytes(0) && ranks.bytes(2) == ranks.bytes(0));
        for number in [0, last] {
            let group = parity.group(number);
            let present = Pieces::all(group.data.len() + 1).without(if number == 0 { 2 } else { group.data.len() - 1 });
            let rebuild = Rebuild {
                task: 6,
                data: group.data.start,
                parity: group.parity.start,
                code: group.code(code),
                present,
            };
            ranks.nodes[1].rebuild(ranks.groups[1], &rebuild).expect("enough is here");
        }
        assert!(ranks.bytes(1) == ranks.bytes(0), "hashed: {hashed}");
        assert_eq!(ranks.counters(1).rebuilt, 2);
        // A group with too few chunks, and unknown operations and chunks, are refused.
        for (task, data) in [(5, 0), (7, 0), (6, parity.numbers())] {
            let present = Pieces::none();
            let rebuild = Rebuild { task, data, parity: 0, code, present };
            assert!(ranks.nodes[1].rebuild(ranks.groups[1], &rebuild).is_err(), "{task} {data}");
        }
    }
}

#[test]
fn recorded_datagrams_and_damaged_ones_are_counted_and_change_nothing() {
    if !in_multicast_namespace("recorded_datagrams_and_damaged_ones_are_counted_and_change_nothing") {
        return;
    }
    let mut ranks = Ranks::new(2, 5_000, false);
    // A listener receives the same datagrams as the group.
    let listener = support::listener(&membership(&ranks.nodes, 0, 1).address(0, 0).address(), PORT);
    let chunks = ranks.layout.chunks(0);
    let cast = Cast { planes: 0b01, trees: 1, ..ranks.cast(HostId::group(0), 0, chunks) };
    ranks.nodes[0].cast(ranks.groups[0], cast).expect("a cast");
    ranks.until(|_, ranks| ranks.counters(1).placed == chunks.into());
    let mut buffer = [0; 2_000];
    let length = listener.recv(&mut buffer).expect("a datagram");
    let to = v6(ranks.nodes[1].addresses().expect("bound")[0]);
    let before = ranks.counters(1);
    listener.send_to(&buffer[..length], to).expect("it leaves");
    ranks.until(|_, ranks| ranks.counters(1).repeated == before.repeated + 1);
    buffer[16..24].copy_from_slice(&5_000u64.to_be_bytes());
    listener.send_to(&buffer[..length], to).expect("it leaves");
    ranks.until(|_, ranks| ranks.counters(1).refused == before.refused + 1);
    assert_eq!(ranks.counters(1).placed, before.placed);
}

/// A kernel without `IPV6_MULTICAST_ALL` gives a socket what is sent to all groups that anyone of this host has joined.
#[test]
fn datagrams_to_the_groups_of_another_team_are_left_out() {
    if !in_multicast_namespace("datagrams_to_the_groups_of_another_team_are_left_out") {
        return;
    }
    for without in [Without::default(), Without::default().and(Feature::MulticastAll)] {
        let node = || Node::bind(Config { without, ..two_planes() }).expect("sockets");
        let mut teams = [TEAM, TEAM + 1].map(|team| {
            let mut nodes = vec![node(), node()];
            let members = (0..2).map(|rank| Membership { team, ..membership(&nodes, rank, 1) });
            let members: Vec<Membership> = members.collect();
            let groups: Vec<Group> =
                nodes.iter_mut().zip(&members).map(|(node, member)| node.join(member).expect("a group")).collect();
            (nodes, groups)
        });
        let (nodes, groups) = &mut teams[1];
        let word = ControlMessage::Custom { kind: 9, words: [1, 0, 0, 0] };
        nodes[0].send_control_to_all(groups[0], PathId::new(0, 0), word).expect("a group");
        let end = Instant::now() + PATIENCE;
        let arrived = |node: &mut Node| matches!(node.poll(), Some(Completion::Word { .. }));
        while !arrived(&mut teams[1].0[1]) {
            assert!(Instant::now() < end, "it does not arrive");
        }
        for node in &mut teams[0].0 {
            assert_eq!(node.poll(), None);
            assert_eq!(node.observe().counters().strays, 0, "{without:?}");
        }
    }
}

#[test]
fn an_older_kernel_carries_groups() {
    support::run_without_features(&[
        "chunks_reach_all_members_by_all_trees_each_in_its_place",
        "chunks_reach_all_members_by_groups_of_ipv4",
        "control_messages_reach_one_member_or_all_and_strangers_none",
        "recorded_datagrams_and_damaged_ones_are_counted_and_change_nothing",
    ]);
}
