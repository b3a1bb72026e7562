//! Records of NCCL Inspector, a profiler plug-in of NCCL (`ext-profiler/inspector`): a JSON object per collective and
//! rank, one after the other.

use super::{Measured, Point, kind_named};
use crate::problem::Problems;
use crate::trace::Kind;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Limit on the records of a file: ours.
const RECORDS_MAX: usize = 4_000_000;

#[derive(Deserialize)]
struct Record {
    header: Header,
    coll_perf: Option<Times>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    id: serde_json::Value,
    n_ranks: u32,
}

#[derive(Deserialize)]
struct Times {
    coll: String,
    coll_sn: u64,
    coll_msg_size_bytes: u64,
    coll_exec_time_us: f64,
}

/// Is this such a file? It looks at the first bytes.
pub(super) fn is_record(text: &str) -> bool {
    let head: String = text.trim_start().chars().take(4000).collect();
    head.starts_with('{') && head.contains("\"n_ranks\"") && head.contains("\"header\"")
}

/// A collective of a communicator, by its number in it.
type Call = (Kind, u32, u64, String, u64);

/// Each collective's least time among its ranks, which is that of the rank that came last; then the median of all
/// collectives of a kind and size.
pub(super) fn parse(file: &str, text: &str) -> Result<Measured, Problems> {
    let mut least: BTreeMap<Call, f64> = BTreeMap::new();
    let (mut others, mut records) = (0u64, 0usize);
    for record in serde_json::Deserializer::from_str(text).into_iter::<Record>() {
        let record = record.map_err(|error| {
            let remedy = "take the file as NCCL Inspector wrote it, or leave out a record that was cut off";
            super::wrong(file, error.line().max(1), "", format!("is no record of NCCL Inspector: {error}"), remedy)
        })?;
        records += 1;
        if records > RECORDS_MAX {
            return Err(Problems::with_file(file, format!("has more than {RECORDS_MAX} records"), "cut it"));
        }
        let Some(times) = record.coll_perf else { continue };
        let Some(kind) = kind_named(&times.coll) else {
            others += 1;
            continue;
        };
        if !(times.coll_exec_time_us > 0.0 && times.coll_exec_time_us < 1e12) {
            continue;
        }
        let call =
            (kind, record.header.n_ranks, times.coll_msg_size_bytes, record.header.id.to_string(), times.coll_sn);
        let entry = least.entry(call).or_insert(times.coll_exec_time_us);
        *entry = entry.min(times.coll_exec_time_us);
    }
    let mut of: BTreeMap<(Kind, u32, u64), Vec<f64>> = BTreeMap::new();
    for ((kind, ranks, bytes, ..), us) in least {
        of.entry((kind, ranks, bytes)).or_default().push(us);
    }
    let point = |((kind, ranks, bytes), mut all): ((Kind, u32, u64), Vec<f64>)| {
        all.sort_by(f64::total_cmp);
        Point { kind: Some(kind), ranks: Some(ranks), bytes, us: all[all.len() / 2] }
    };
    let mut assumed = vec![
        "a collective's time is the least of its ranks, which is that of the last one to come; of equal collectives the \
         median counts"
            .to_string(),
    ];
    if others > 0 {
        assumed.push(format!("{others} records of other operations are left out"));
    }
    Ok(Measured {
        file: file.to_string(),
        format: "records of NCCL Inspector",
        points: of.into_iter().map(point).collect(),
        assumed,
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn record(rank: u32, sn: u32, us: f64) -> String {
        format!(
            "{{\"header\":{{\"id\":\"0x7\",\"rank\":{rank},\"n_ranks\":2,\"nnodes\":1}},\"metadata\":{{\"pid\":1}},\
             \"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_sn\":{sn},\"coll_msg_size_bytes\":4096,\
             \"coll_exec_time_us\":{us},\"coll_algobw_gbs\":1.0,\"coll_busbw_gbs\":1.0}}}}\n"
        )
    }

    #[test]
    fn the_last_rank_and_the_median_call_count() {
        let calls = [(0, 1, 30.0), (1, 1, 10.0), (0, 2, 12.0), (1, 2, 90.0), (0, 3, 14.0), (1, 3, 15.0)];
        let text: String = calls.iter().map(|(rank, sn, us)| record(*rank, *sn, *us)).collect();
        let read = parse("i.json", &text).expect("records");
        let [point] = read.points[..] else { panic!("{read:?}") };
        assert_eq!((point.ranks, point.bytes, point.us), (Some(2), 4096, 12.0));
        let cut = &text[..text.len() - 20];
        let said = parse("i.json", cut).expect_err("cut off").to_string();
        assert!(said.contains("i.json:6") && said.contains("cut off"), "{said}");
    }
}
