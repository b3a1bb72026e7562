//! Algorithms of MSCCL's files in process groups.

use super::support::{planes, with};
use std::fmt::Write as _;
use std::path::Path;
use strandway_group::process::{Group, GroupOptions, Process, ProcessOptions, Reduction, Values};

/// The steps of one thread block of a GPU, each as type, buffer and chunk.
type Steps = Vec<(&'static str, &'static str, u32)>;

/// A file in which each GPU has one thread block, which sends to the next GPU and receives from the one before.
fn ring(collective: &str, gpus: u32, steps: impl Fn(u32) -> Steps) -> String {
    let mut text = format!(
        "<algo name=\"ring\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{gpus}\" ngpus=\"{gpus}\" \
         coll=\"{collective}\" inplace=\"1\">\n"
    );
    for gpu in 0..gpus {
        let (next, before) = ((gpu + 1) % gpus, (gpu + gpus - 1) % gpus);
        writeln!(text, "<gpu id=\"{gpu}\"><tb id=\"0\" send=\"{next}\" recv=\"{before}\" chan=\"0\">").expect("text");
        for (at, (kind, buffer, chunk)) in steps(gpu).into_iter().enumerate() {
            writeln!(
                text,
                "<step s=\"{at}\" type=\"{kind}\" srcbuf=\"{buffer}\" srcoff=\"{chunk}\" dstbuf=\"{buffer}\" \
                 dstoff=\"{chunk}\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>"
            )
            .expect("text");
        }
        text.push_str("</tb></gpu>\n");
    }
    text.push_str("</algo>\n");
    text
}

/// Around the ring to the owner of a chunk, and around once more to everybody.
fn all_reduce(gpus: u32) -> String {
    ring("allreduce", gpus, |gpu| {
        let chunk = |behind: u32| (gpu + 2 * gpus - behind) % gpus;
        let mut steps = vec![("s", "i", chunk(0))];
        for behind in 1..gpus {
            steps.extend([("rrc", "i", chunk(behind)), ("s", "i", chunk(behind))]);
        }
        for behind in 0..gpus - 1 {
            steps.push(("r", "i", chunk(behind)));
            steps.extend((behind + 2 < gpus).then_some(("s", "i", chunk(behind))));
        }
        steps
    })
}

fn all_gather(gpus: u32) -> String {
    ring("allgather", gpus, |gpu| {
        let chunk = |behind: u32| (gpu + gpus - behind) % gpus;
        let mut steps = vec![("s", "o", chunk(0))];
        for behind in 1..gpus {
            steps.push(("r", "o", chunk(behind)));
            steps.extend((behind + 1 < gpus).then_some(("s", "o", chunk(behind))));
        }
        steps
    })
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn by(rules: &str) -> ProcessOptions {
    let mut options = planes(1);
    options.tuning.algorithms = rules.parse().expect("rules");
    options
}

#[test]
fn groups_follow_a_file_of_their_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let sums = written(folder.path(), "sums.xml", &all_reduce(4));
    let gathers = written(folder.path(), "gathers.xml", &all_gather(4));
    for (count, by_ring) in [(4, true), (3, false)] {
        let ends = with(count, &by(&format!("{sums}>64,all_gather={gathers}")), move |_, group| {
            let (rank, ranks) = (group.rank(), group.ranks());
            // Two kinds of lengths: with as many elements as chunks, and with one more.
            for length in [40_000, 40_001] {
                let mut numbers: Vec<i64> = (0..length).map(|at| at * i64::from(rank + 1)).collect();
                group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
                let all = i64::from(ranks * (ranks + 1) / 2);
                assert!(numbers.iter().zip(0..).all(|(sum, at)| *sum == at * all), "{length} at rank {rank}");
                let own: Vec<i64> = (0..length).map(|at| at * 10 + i64::from(rank)).collect();
                let mut gathered = vec![0; own.len() * ranks as usize];
                group.all_gather(&own, &mut gathered).expect("a gather");
                let right = |(at, number): (usize, &i64)| {
                    let (from, at) = (at as i64 / length, at as i64 % length);
                    *number == at * 10 + from
                };
                assert!(gathered.iter().enumerate().all(right), "{length} at rank {rank}");
            }
            // The order of these sums shows in their value. Direct: in the order of ranks. By the ring: from the rank of
            // the chunk on.
            let of_rank = [1e8f32, 1.0, -1e8, 1.0][rank as usize];
            let mut numbers = vec![of_rank; 4_000];
            group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
            let mut short = vec![of_rank; 16];
            group.all_reduce(&mut short, Reduction::Sum).expect("a sum");
            (numbers, short)
        });
        for (numbers, short) in ends {
            let direct = if count == 4 { 1.0 } else { 0.0 };
            let second = if by_ring { 0.0 } else { direct };
            assert_eq!((numbers[0], numbers[1_999]), (direct, second));
            assert!(short.iter().all(|sum| *sum == direct), "short ones are direct by the rule");
        }
    }
}

/// Two ranks, of which the second has another file at the path of the rule.
fn refused(first: &str, second: impl FnOnce(&Path) + Send + 'static) -> [String; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let path = written(folder.path(), "sums.xml", first);
    let (options, store) = (by(&path), Values::default());
    let patience = std::time::Duration::from_secs(20);
    let (mut theirs, other) = (store.clone(), options.clone());
    let process = Process::join(&mut store.clone(), 0, &options);
    let Ok(process) = process else { return [process.err().map(|e| e.to_string()).unwrap_or_default(), String::new()] };
    second(folder.path());
    let guest = std::thread::spawn(move || {
        Process::join(&mut theirs, 1, &other).map(|_| ()).expect_err("another file").to_string()
    });
    let mut host = store;
    let group = Group::form(&process, &mut host, 0, 2, GroupOptions { timeout: patience, patience });
    let said = group.map(|_| ()).expect_err("rank 1 cannot come").to_string();
    [said, guest.join().expect("no panic")]
}

#[test]
fn a_file_that_is_missing_wrong_or_of_another_host_is_named() {
    let sound = all_reduce(2);
    let [host, guest] = refused(&sound, |folder| {
        written(folder, "sums.xml", &all_reduce(2).replace("Simple", "LL"));
    });
    assert!(host.contains("rank 1 at") && host.contains(&guest), "{host}");
    assert!(guest.contains("sums.xml: this file differs from rank 0's: copy it to all hosts"), "{guest}");
    let [_, guest] = refused(&sound, |folder| std::fs::remove_file(folder.join("sums.xml")).expect("removed"));
    assert!(guest.contains("sums.xml: No such file") && guest.contains("every rank reads this file"), "{guest}");
    for (from, to, said) in [
        ("rrc", "r", "its steps do not compute allreduce: at the end block"),
        ("srcbuf=\"i\"", "srcbuf=\"s\"", "uses scratch memory, which process groups do not do"),
        ("coll=\"allreduce\"", "coll=\"alltoall\"", "can be checked"),
        ("</algo>", "", "sums.xml"),
    ] {
        let [host, _] = refused(&sound.replace(from, to), |_| ());
        assert!(host.contains("an algorithm from a file") && host.contains(said), "{host}");
    }
}
