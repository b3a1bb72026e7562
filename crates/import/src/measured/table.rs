//! Tables in columns: what nccl-tests prints, which `strandway perf collective` prints as well, and CSV.

use super::{Measured, Point, bytes_of, kind_named, time_of, wrong};
use crate::problem::Problems;
use crate::trace::Kind;

/// The line of a log without what mpirun or srun put before it (`[1,0]<stdout>:`, ` 0:`).
fn without_prefix(line: &str) -> &str {
    let line = line.split_once("<stdout>:").map_or(line, |(_, rest)| rest).trim_start();
    match line.split_once(':') {
        Some((number, rest)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            rest.trim_start()
        }
        _ => line,
    }
}

/// The columns of a table's head, if the line is one.
fn head(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.strip_prefix('#').unwrap_or(line).split_ascii_whitespace().collect();
    (words.first() == Some(&"size") && words.contains(&"time") && words.contains(&"busbw")).then_some(words)
}

/// Is this the output of nccl-tests?
pub(super) fn is_nccl_tests(text: &str) -> bool {
    text.lines().take(10_000).any(|line| head(without_prefix(line)).is_some())
}

/// The number in `# allreduce of 4 ranks, ...`, as `strandway perf collective` begins, and the collective.
fn ours(line: &str) -> Option<(Kind, u32)> {
    let mut words = line.strip_prefix("# ")?.split_ascii_whitespace();
    let kind = kind_named(words.next()?)?;
    let ranks = (words.next()? == "of").then(|| words.next())??.parse().ok()?;
    words.next()?.starts_with("ranks").then_some((kind, ranks))
}

/// Reads the output of nccl-tests: one table, or several with their heads.
pub(super) fn nccl_tests(file: &str, text: &str) -> Result<Measured, Problems> {
    let mut points: Vec<Point> = Vec::new();
    let mut columns: Vec<&str> = Vec::new();
    let (mut kind, mut ranks): (Option<Kind>, u32) = (None, 0);
    // Where the present table begins, and what it may be by the bus bandwidth of its longest row.
    let (mut begin, mut guess) = (0, None);
    let close = |points: &mut Vec<Point>, begin: usize, kind: Option<Kind>, guess: Option<Guess>| {
        let known = kind.or_else(|| guess.and_then(Guess::kind));
        points[begin..].iter_mut().for_each(|point| point.kind = point.kind.or(known));
    };
    let mut devices = 0u32;
    for (number, line) in text.lines().enumerate() {
        let line = without_prefix(line.trim_end());
        if let Some(name) = line.strip_prefix("# Collective test starting:") {
            close(&mut points, begin, kind, guess.take());
            (begin, kind, devices) = (points.len(), kind_named(name), 0);
            continue;
        }
        if let Some((of, count)) = ours(line) {
            close(&mut points, begin, kind, guess.take());
            (begin, kind, ranks, devices) = (points.len(), Some(of), count, 0);
            continue;
        }
        if line.starts_with("# Using devices") {
            devices = 0;
            continue;
        }
        if line.strip_prefix('#').unwrap_or(line).trim_start().starts_with("Rank ") && line.contains("Pid") {
            devices += 1;
            ranks = devices;
            continue;
        }
        if let Some(words) = head(line) {
            columns = words;
            continue;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if columns.is_empty() || words.len() < 6 || !words[0].bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let column = |name: &str| columns.iter().position(|title| *title == name).and_then(|at| words.get(at).copied());
        let (Some(bytes), Some(time)) = (bytes_of(words[0]), column("time")) else {
            return Err(wrong(file, number + 1, line, "is no row of nccl-tests", "take its output as it was printed"));
        };
        let Some(us) = time_of(time) else {
            // Of a time that was not measured, such as N/A.
            continue;
        };
        let ratio =
            column("busbw").zip(column("algbw")).and_then(|(bus, all)| Some((bus.parse().ok()?, all.parse().ok()?)));
        if let Some((bus, all)) = ratio.filter(|(_, all): &(f64, f64)| *all > 0.5) {
            let sums = column("redop").is_some_and(|redop| redop != "none");
            let rooted = column("root").is_some_and(|root| root != "-1");
            guess = Some(Guess { sums, rooted, factor: bus / all });
        }
        points.push(Point { kind: None, ranks: (ranks > 0).then_some(ranks), bytes, us });
    }
    close(&mut points, begin, kind, guess);
    let mut assumed = vec!["times are those of out-of-place collectives".to_string()];
    if kind.is_none() && points.iter().any(|point| point.kind.is_some()) {
        assumed.push("the kind of collective follows from the ratio of its two bandwidths".into());
    }
    Ok(Measured { file: file.to_string(), format: "a table of nccl-tests", points, assumed })
}

/// The signs of its collective in a table without a name.
#[derive(Clone, Copy, Debug)]
struct Guess {
    sums: bool,
    rooted: bool,
    /// Bus bandwidth by algorithm bandwidth: 2 (n - 1) / n of an all-reduce, (n - 1) / n of a reduce-scatter.
    factor: f64,
}

impl Guess {
    /// The only kind that it can be. All-gathers and all-to-alls look alike.
    fn kind(self) -> Option<Kind> {
        match (self.sums, self.rooted) {
            (true, false) if self.factor > 0.99 => Some(Kind::AllReduce),
            (true, false) => Some(Kind::ReduceScatter),
            (true, true) => Some(Kind::Reduce),
            (false, true) => Some(Kind::Broadcast),
            (false, false) => None,
        }
    }
}

/// The titles of a CSV file, if its first line has some.
fn titles(text: &str) -> Option<(usize, Vec<String>)> {
    let (number, line) = text.lines().enumerate().find(|(_, line)| !is_comment(line))?;
    let titles: Vec<String> = line.split(',').map(|title| title.trim().to_ascii_lowercase()).collect();
    let has = |names: &[&str]| titles.iter().any(|title| names.contains(&title.as_str()));
    (has(SIZES) && TIMES.iter().any(|(name, _)| has(&[name]))).then_some((number, titles))
}

const SIZES: &[&str] = &["size", "bytes", "size_b", "size_bytes"];
/// The names of a column of times, and how many us a unit has.
const TIMES: [(&str, f64); 7] =
    [("time_us", 1.0), ("us", 1.0), ("time", 1.0), ("time_ms", 1e3), ("ms", 1e3), ("time_s", 1e6), ("seconds", 1e6)];

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

/// Is this a CSV file with the columns `size` and `time`?
pub(super) fn is_csv(text: &str) -> bool {
    titles(text).is_some()
}

/// Reads a CSV file: `size`, a time, and, if they are there, `collective` and `ranks`.
pub(super) fn csv(file: &str, text: &str) -> Result<Measured, Problems> {
    let (above, titles) = titles(text).unwrap_or_default();
    let find = |names: &[&str]| titles.iter().position(|title| names.contains(&title.as_str()));
    let time = TIMES.iter().find_map(|(name, unit)| Some((find(&[name])?, *unit, *name)));
    let (Some(size), Some((time, unit, title))) = (find(SIZES), time) else {
        return Err(Problems::with_file(file, "has no columns size and time", "write size,time_us"));
    };
    let (kinds, ranks) = (find(&["collective", "kind"]), find(&["ranks"]));
    let mut points = Vec::new();
    for (number, line) in text.lines().enumerate().skip(above + 1).filter(|(_, line)| !is_comment(line)) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let refuse = |value: &str, what: &str| Err(wrong(file, number + 1, value, what, "correct the cell"));
        let Some(bytes) = bytes_of(cell(size)) else { return refuse(cell(size), "is no size") };
        let Some(us) = time_of(cell(time)) else { return refuse(cell(time), "is no time") };
        let kind = match kinds.map(cell).filter(|name| !name.is_empty()) {
            None => None,
            Some(name) => match kind_named(name) {
                None => return refuse(name, "is no collective"),
                known => known,
            },
        };
        let ranks = match ranks.map(cell).filter(|count| !count.is_empty()) {
            None => None,
            Some(count) => match count.parse() {
                Ok(count) => Some(count),
                Err(_) => return refuse(count, "is no number of ranks"),
            },
        };
        points.push(Point { kind, ranks, bytes, us: us * unit });
    }
    let assumed = if title == "time" { vec!["times are in us".to_string()] } else { Vec::new() };
    Ok(Measured { file: file.to_string(), format: "a CSV file", points, assumed })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::trace::Kind;

    const HEAD: &str = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
                        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";

    #[test]
    fn a_table_with_devices_has_ranks_and_the_kind_follows_from_its_bandwidths() {
        let devices: String =
            (0..4).map(|n| format!("#  Rank  {n} Group  0 Pid 1 on h device  {n} [0x1] X\n")).collect();
        let rows = "           8             2     float     sum      -1    20.25    0.00    0.00      0    19.36    0.00    0.00      0\n\
                    \x20    1048576        262144     float     sum      -1    500.0    2.10    3.15      0    500.0    2.10    3.15      0\n\
                    # Avg bus bandwidth    : 1.5\n";
        let read = parse("t", &format!("# Using devices\n{devices}{HEAD}{rows}")).expect("a table");
        let seen: Vec<_> = read.points.iter().map(|p| (p.kind, p.ranks, p.bytes, p.us)).collect();
        let kind = Some(Kind::AllReduce);
        assert_eq!(seen, [(kind, Some(4), 8, 20.25), (kind, Some(4), 1_048_576, 500.0)]);
        // The same through mpirun, and of a reduce-scatter by its name.
        let text: String = format!("# Collective test starting: reduce_scatter_perf\n{HEAD}{rows}");
        let text: String = text.lines().map(|line| format!("[1,0]<stdout>:{line}\n")).collect();
        let read = parse("t", &text).expect("a table");
        assert_eq!((read.points[0].kind, read.points[0].ranks), (Some(Kind::ReduceScatter), None));
    }

    #[test]
    fn several_tables_keep_their_kinds() {
        let row = |redop: &str, factor: f64| {
            format!(" 1048576 262144 float {redop} -1 500.0 2.00 {:.2} 0 500.0 2.00 2.00 0\n", 2.0 * factor)
        };
        let text = format!(
            "# Collective test starting: alltoall_perf\n{HEAD}{}# Collective test starting: all_reduce_perf\n{HEAD}{}",
            row("none", 0.75),
            row("sum", 1.5)
        );
        let kinds: Vec<_> = parse("t", &text).expect("tables").points.iter().map(|point| point.kind).collect();
        assert_eq!(kinds.len(), 2);
        assert!(kinds.contains(&Some(Kind::AllToAll)) && kinds.contains(&Some(Kind::AllReduce)));
        assert_eq!(parse("t", &format!("{HEAD}{}", row("none", 0.75))).expect("one").points[0].kind, None);
    }

    #[test]
    fn our_own_output_says_its_ranks() {
        let text = format!(
            "# allreduce of 4 ranks, ring of messages, profile uec, 20 run(s) of each size after 5\n{HEAD}  1024 256 float sum -1 80.5 0.01 0.02 0\n"
        );
        let read = parse("t", &text).expect("a table");
        assert_eq!((read.points[0].ranks, read.points[0].us), (Some(4), 80.5));
        assert_eq!(read.points[0].kind, Some(Kind::AllReduce));
    }

    #[test]
    fn csv_has_units_and_its_mistakes_have_lines() {
        let text = "# source\nsize,time_ms,ranks,collective\n1 MiB,0.5,8,all-gather\n2 MiB,0.9,8,all-gather\n";
        let read = parse("c.csv", text).expect("a table");
        assert_eq!((read.points[1].bytes, read.points[1].us), (2_097_152, 900.0));
        assert_eq!((read.points[1].kind, read.points[1].ranks), (Some(Kind::AllGather), Some(8)));
        for (bad, said) in [("0.9", "no time"), ("2 MiB", "no size"), ("all-gather\n2", "no collective")] {
            let text = text.replacen(bad, "??", 1);
            assert!(parse("c.csv", &text).is_err(), "{said}");
        }
        let said = parse("c.csv", &text.replace("0.9", "-0.9")).expect_err("a time").to_string();
        assert!(said.contains("c.csv:4") && said.contains("is no time"), "{said}");
    }
}
