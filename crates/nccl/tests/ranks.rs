//! Ranks in a ring, each a process of its own: each sends to the next and receives from the one before, with many
//! requests under way, which it tests in random order, as NCCL's proxy may.

use crate::net::{Net, Object, Room, library};
use nccl_net_strandway::{HANDLE_BYTES, Outcome, PTR_HOST};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(120);

/// A small generator of random numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// A job of a rank, in the words of its variable.
struct Job {
    folder: PathBuf,
    rank: usize,
    ranks: usize,
    version: u32,
    slots: usize,
    slot: usize,
    messages: usize,
    group: usize,
    /// This rank ends in the middle, without a word.
    dies: bool,
}

/// The program of a rank runs when the variable is there.
#[test]
fn a_rank() {
    let Ok(text) = std::env::var("STRANDWAY_TEST_NCCL_RANK") else { return };
    let mut words = text.split_whitespace();
    let folder = PathBuf::from(words.next().expect("a folder"));
    let numbers: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
    let [rank, ranks, version, slots, slot, messages, group, dies] = numbers[..] else { panic!("{text}") };
    run(&Job { folder, rank, ranks, version: version as u32, slots, slot, messages, group, dies: dies == 1 });
}

fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < LONG, "nothing comes");
        std::thread::yield_now();
    }
}

/// The size of a message: all ranks compute the same.
fn size(message: usize, slot: usize) -> usize {
    let mut dice = Dice(message as u64 * 77 + 5);
    match dice.below(4) {
        0 => 8,
        1 => 1 + dice.below(slot.min(4_096)),
        2 => slot,
        _ => 1 + dice.below(slot),
    }
}

fn run(job: &Job) {
    let net = Net::load(&job.folder.join("libnccl-net-strandway.so"), job.version);
    assert_eq!(net.init(), Outcome::Success, "{:?}", crate::net::log());
    let (handle, listener) = net.listen(0).expect("a listener");
    let write = job.folder.join(format!("rank{}.part", job.rank));
    std::fs::write(&write, handle).expect("written");
    std::fs::rename(write, job.folder.join(format!("rank{}", job.rank))).expect("renamed");
    let next = job.folder.join(format!("rank{}", (job.rank + 1) % job.ranks));
    let mut handle: [u8; HANDLE_BYTES] = until(|| std::fs::read(&next).ok()).try_into().expect("a handle");
    let (mut to, mut from): (Option<Object>, Option<Object>) = (None, None);
    until(|| {
        let comm = |object: Object| (!object.is_null()).then_some(object);
        to = to.or_else(|| comm(net.connect(0, &mut handle).expect("a call")));
        from = from.or_else(|| comm(net.accept(listener).expect("a listener")));
        to.zip(from)
    });
    let (to, from) = to.zip(from).expect("both");
    assert_eq!(net.close_listen(listener), Outcome::Success);
    let out = vec![0u8; job.slots * job.slot].leak().as_mut_ptr();
    let into = vec![0u8; job.slots * job.slot].leak().as_mut_ptr();
    let out_memory = net.register(to, out, job.slots * job.slot, PTR_HOST).expect("memory");
    let into_memory = net.register(from, into, job.slots * job.slot, PTR_HOST).expect("memory");

    let mut dice = Dice(job.rank as u64 + 1);
    // Requests under way, each with its first message.
    let mut sends: Vec<(Object, usize)> = Vec::new();
    let mut receives: Vec<(Object, usize)> = Vec::new();
    let (mut sent, mut asked, mut ended) = (0, 0, 0);
    let mut free = vec![true; job.slots];
    let began = Instant::now();
    while ended < 2 * job.messages {
        assert!(began.elapsed() < LONG, "rank {}: {ended} of {} requests", job.rank, 2 * job.messages);
        if job.dies && ended > job.messages {
            std::process::exit(0);
        }
        // Groups of receives, as far as their slots are free.
        let wanted = job.group.min(job.messages - asked);
        let at = |message: usize| message % job.slots;
        if wanted > 0 && (asked..asked + wanted).all(|message| free[at(message)]) {
            let room = |message: usize| Room {
                // SAFETY: the slot lies within the memory.
                data: unsafe { into.add(at(message) * job.slot) },
                size: job.slot,
                tag: (message % job.group) as i32,
                memory: into_memory,
            };
            let rooms: Vec<Room> = (asked..asked + wanted).map(room).collect();
            let request = net.receive(from, &rooms).expect("posted");
            if !request.is_null() {
                (asked..asked + wanted).for_each(|message| free[at(message)] = false);
                receives.push((request, asked));
                asked += wanted;
            }
        }
        if sent < job.messages && sends.len() < job.slots && sends.iter().all(|(_, of)| at(*of) != at(sent)) {
            let bytes = size(sent, job.slot);
            // SAFETY: the slot lies within the memory, and no request uses it.
            let data = unsafe { out.add(at(sent) * job.slot) };
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts_mut(data, bytes) }.fill(sent as u8);
            let room = Room { data, size: bytes, tag: (sent % job.group) as i32, memory: out_memory };
            let request = net.send(to, room).expect("posted");
            if !request.is_null() {
                sends.push((request, sent));
                sent += 1;
            }
        }
        if !sends.is_empty() && dice.below(2) == 0 {
            let at = dice.below(sends.len());
            if let Some(sizes) = net.test(sends[at].0).expect("a request") {
                let (_, message) = sends.swap_remove(at);
                assert_eq!(sizes[0] as usize, size(message, job.slot));
                ended += 1;
            }
        }
        if !receives.is_empty() {
            let which = dice.below(receives.len());
            if let Some(sizes) = net.test(receives[which].0).expect("a request") {
                let (_, first) = receives.swap_remove(which);
                assert!(net.flush(from).is_null(), "host memory needs no flush");
                for message in first..(first + job.group).min(job.messages) {
                    let bytes = sizes[message - first] as usize;
                    assert_eq!(bytes, size(message, job.slot), "message {message}");
                    // SAFETY: the slot lies within the memory, and its request has ended.
                    let got = unsafe { std::slice::from_raw_parts(into.add(at(message) * job.slot), bytes) };
                    assert!(got.iter().all(|&byte| byte == message as u8), "message {message}");
                    free[at(message)] = true;
                    ended += 1;
                }
            }
        }
    }
    // In any order.
    let mut ends: Vec<usize> = (0..4).collect();
    for at in (1..4).rev() {
        ends.swap(at, dice.below(at + 1));
    }
    for end in ends {
        let outcome = match end {
            0 => net.close_send(to),
            1 => net.close_receive(from),
            2 => net.deregister(to, out_memory),
            _ => net.deregister(from, into_memory),
        };
        assert_eq!(outcome, Outcome::Success, "{end}");
    }
    std::fs::write(job.folder.join(format!("done{}", job.rank)), b"").expect("written");
    // The others may still wait for the last acknowledgements.
    until(|| (0..job.ranks).all(|rank| job.folder.join(format!("done{rank}")).exists()).then_some(()));
}

/// A rank of this program.
pub(crate) fn rank(folder: &Path, numbers: &[usize]) -> Command {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "ranks::a_rank", "--nocapture", "--test-threads=1"])
        .env("STRANDWAY_TEST_NCCL_RANK", format!("{} {}", folder.display(), numbers.join(" ")))
        .env("STRANDWAY_KEY", "00112233445566778899aabbccddeeff")
        .env("STRANDWAY_PLANES", "127.0.0.1,127.0.0.2");
    command
}

fn ring(ranks: usize, version: usize, (slots, slot): (usize, usize), messages: usize, group: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path());
    let numbers = |of| [of, ranks, version, slots, slot, messages, group, 0];
    let all = (0..ranks).map(|of| rank(folder.path(), &numbers(of)).spawn().expect("a process"));
    let mut all: Vec<Child> = all.collect();
    let ends: Vec<bool> = all.iter_mut().map(|rank| rank.wait().expect("ends").success()).collect();
    assert!(ends.iter().all(|&good| good), "{ends:?}");
}

#[test]
fn two_ranks_with_32_requests_under_way() {
    ring(2, 10, (32, 64 << 10), 400, 1);
}

#[test]
fn four_ranks_with_groups_of_eight_receives() {
    ring(4, 12, (32, 16 << 10), 200, 8);
}

#[test]
fn three_ranks_with_chunks_of_four_megabytes() {
    ring(3, 8, (8, 4 << 20), 24, 1);
}

#[test]
fn a_rank_that_dies_is_an_error_at_its_neighbours_and_not_a_hang() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path());
    let began = Instant::now();
    let numbers = |of| [of, 2, 11, 8, 4_096, 100_000, 1, of];
    // The first one's complaint is expected.
    let quiet = |of| rank(folder.path(), &numbers(of)).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut all: Vec<Child> = (0..2).map(|of| quiet(of).expect("a process")).collect();
    let ends: Vec<bool> = all.iter_mut().map(|rank| rank.wait().expect("ends").success()).collect();
    assert_eq!(ends, [false, true], "the first one's test says that its peer has gone");
    assert!(began.elapsed() < LONG);
}
