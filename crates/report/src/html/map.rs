//! A picture of the fabric: its links, coloured by a value that readers choose. `map.js` draws it; without scripts the
//! page has a table of switches.

use super::chart::escape;
use super::{byte_unit, figure, table};
use crate::numbers::{count, percent};
use crate::{MapFacts, MapGroup, Report};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Limit on the values of all runs on a page: ours, for its size.
const VALUES: usize = 12_000;

/// Limit on the rows of the table of switches.
const SWITCHES: usize = 64;

/// A value of links: name, label, unit and size of the unit, and how to read it. Values are numbers by link; empty if
/// all are zero.
struct Metric {
    name: &'static str,
    label: &'static str,
    of: fn(&MapGroup) -> Vec<f64>,
}

const METRICS: [Metric; 6] = [
    Metric { name: "use", label: "use over the whole run", of: |g| g.utilisation.clone() },
    Metric { name: "queue", label: "longest queue", of: |g| numbers(&g.queue_max_bytes) },
    Metric { name: "marked", label: "packets marked", of: |g| numbers(&g.marked) },
    Metric { name: "trimmed", label: "packets trimmed", of: |g| numbers(&g.trimmed) },
    Metric { name: "dropped", label: "packets dropped", of: |g| numbers(&g.dropped) },
    Metric { name: "lost", label: "packets lost to faults", of: |g| numbers(&g.lost) },
];

fn numbers(values: &[u64]) -> Vec<f64> {
    values.iter().map(|value| *value as f64).collect()
}

/// One value of the links of a whole map, in the order of its groups.
pub(super) struct Layer {
    pub(super) label: String,
    pub(super) unit: String,
    /// By group and link; an absent value is not coloured.
    pub(super) values: Vec<Vec<Option<f64>>>,
}

/// One run: its label, its layers, the links with faults by group, and frames.
struct Drawn<'a> {
    label: &'a str,
    map: &'a MapFacts,
    layers: Vec<Layer>,
}

/// The picture of one or several runs of the same fabric; empty if a run has no map, or if fabrics differ.
pub(super) fn of_runs(runs: &[(&str, &Report)]) -> String {
    let maps: Option<Vec<(&str, &MapFacts)>> =
        runs.iter().map(|(label, report)| Some((*label, report.curves.map.as_ref()?))).collect();
    let Some(maps) = maps.filter(|maps| !maps.is_empty()) else { return String::new() };
    let first = maps[0].1;
    let alike = |map: &MapFacts| {
        let ends = |map: &MapFacts| map.groups.iter().map(|g| (g.low.clone(), g.high.clone())).collect::<Vec<_>>();
        map.nodes == first.nodes && ends(map) == ends(first)
    };
    if !maps.iter().all(|(_, map)| alike(map)) {
        return String::new();
    }
    let fitting = (VALUES / first.links().max(1)).max(1);
    let runs: Vec<Drawn<'_>> =
        maps.iter().take(fitting).map(|(label, map)| Drawn { label, map, layers: layers(map) }).collect();
    let left = maps.len() - runs.len();
    let more = if left > 0 {
        format!(" The other {left} runs are not drawn, for the size of the page.")
    } else {
        String::new()
    };
    let struck = runs.iter().any(|run| run.map.groups.iter().any(|group| !group.faults.is_empty()));
    let struck = if struck { " Links with a red edge had a fault at some time." } else { "" };
    let sub = format!("Every link by its value; the darker, the higher.{struck} Point at a link for its name.{more}");
    let frames = runs.len() == 1 || first.links() * runs.len() < VALUES / 8;
    let data = data(first, &runs, frames);
    let below = runs.first().map_or(String::new(), |run| switches(run.map));
    figure("The fabric", &sub, &(element(&data) + &below)).replacen(
        "<figure class=\"card\">",
        "<figure class=\"card map\">",
        1,
    )
}

/// The picture of a fabric with given layers.
pub(super) fn of_layers(map: &MapFacts, title: &str, sub: &str, layers: Vec<Layer>) -> String {
    let runs = [Drawn { label: "", map, layers }];
    let data = data(map, &runs, false);
    figure(title, sub, &element(&data)).replacen("<figure class=\"card\">", "<figure class=\"card map\">", 1)
}

fn element(data: &Value) -> String {
    // A closing tag inside the text would end the script.
    let data = data.to_string().replace('<', "\\u003c");
    format!("<div class=\"fabric\"></div><script type=\"application/json\" class=\"map-data\">{data}</script>")
}

/// The layers of a run: values that are not zero everywhere, in units that suit the largest one.
fn layers(map: &MapFacts) -> Vec<Layer> {
    let layer = |metric: &Metric| -> Option<Layer> {
        let values: Vec<Vec<f64>> = map.groups.iter().map(metric.of).collect();
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        if most == 0.0 && metric.name != "use" {
            return None;
        }
        let (unit, size) = match metric.name {
            "use" => ("%", 0.01),
            "queue" => byte_unit(most),
            _ => ("", 1.0),
        };
        let digits = |value: f64| if unit.is_empty() { value } else { (value / size * 10.0).round() / 10.0 };
        let full = |(values, group): (Vec<f64>, &MapGroup)| -> Vec<Option<f64>> {
            match values.is_empty() {
                true => vec![Some(0.0); group.low.len()],
                false => values.into_iter().map(|value| Some(digits(value))).collect(),
            }
        };
        let values = values.into_iter().zip(&map.groups).map(full).collect();
        Some(Layer { label: metric.label.into(), unit: unit.into(), values })
    };
    METRICS.iter().filter_map(layer).collect()
}

/// The data for `map.js`, which describes it.
fn data(map: &MapFacts, runs: &[Drawn<'_>], frames: bool) -> Value {
    let number = |value: f64| if value == value.trunc() { json!(value as i64) } else { json!(value) };
    let list = |values: &[Option<f64>]| -> Value {
        if values.iter().all(|value| *value == Some(0.0)) {
            return json!(0);
        }
        values.iter().map(|value| value.map_or(Value::Null, number)).collect()
    };
    let group = |group: &MapGroup| {
        // The down direction has the ends of the up direction.
        let same = map.groups.iter().position(|other| other.low == group.low && other.high == group.high);
        let ends = match same.filter(|at| !std::ptr::eq(&map.groups[*at], group)) {
            Some(other) => json!({ "same": other }),
            None => json!({ "low": group.low, "high": group.high }),
        };
        json!({ "name": group.name, "level": group.level, "up": group.up, "plane": group.plane, "ends": ends })
    };
    let run = |run: &Drawn<'_>| {
        let layer = |layer: &Layer| {
            let values: Vec<Value> = layer.values.iter().map(|values| list(values)).collect();
            json!({ "label": layer.label, "unit": layer.unit, "values": values })
        };
        let timed = frames && run.map.every_us > 0.0;
        let percent = |share: &f64| Some((100.0 * share).round());
        let frame = |frame: usize| -> Vec<Value> {
            let of = |group: &MapGroup| {
                list(&group.frames.get(frame).into_iter().flatten().map(percent).collect::<Vec<_>>())
            };
            run.map.groups.iter().map(of).collect()
        };
        let count = if timed { run.map.groups.iter().map(|group| group.frames.len()).max().unwrap_or(0) } else { 0 };
        json!({
            "label": run.label, "layers": run.layers.iter().map(layer).collect::<Vec<_>>(),
            "faults": run.map.groups.iter().map(|group| &group.faults).collect::<Vec<_>>(),
            "every": run.map.every_us, "frames": (0..count).map(frame).collect::<Vec<_>>()
        })
    };
    json!({
        "nodes": map.nodes,
        "groups": map.groups.iter().map(group).collect::<Vec<_>>(),
        "runs": runs.iter().map(run).collect::<Vec<_>>()
    })
}

/// A table of switches and the links that lead from them upwards and downwards, for readers without scripts.
fn switches(map: &MapFacts) -> String {
    struct Sum<'a> {
        what: &'a str,
        links: u64,
        mean: f64,
        most: f64,
        queue: u64,
        faults: u64,
    }
    let mut sums: BTreeMap<(usize, u32), Sum<'_>> = BTreeMap::new();
    for (at, group) in map.groups.iter().enumerate().filter(|(_, group)| group.level > 0) {
        for (i, low) in group.low.iter().enumerate() {
            let sum = sums.entry((at, *low)).or_insert(Sum {
                what: &group.name,
                links: 0,
                mean: 0.0,
                most: 0.0,
                queue: 0,
                faults: 0,
            });
            let used = group.utilisation.get(i).copied().unwrap_or(0.0);
            sum.links += 1;
            sum.mean += used;
            sum.most = sum.most.max(used);
            sum.queue = sum.queue.max(group.queue_max_bytes.get(i).copied().unwrap_or(0));
            sum.faults += u64::from(group.faults.contains(&(i as u32)));
        }
    }
    let mut all: Vec<((usize, u32), Sum<'_>)> = sums.into_iter().collect();
    all.sort_by(|a, b| b.1.most.total_cmp(&a.1.most).then(a.0.cmp(&b.0)));
    let more = all.len().saturating_sub(SWITCHES);
    all.truncate(SWITCHES);
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|((_, low), sum)| {
            vec![
                escape(&map.nodes[*low as usize]),
                escape(sum.what),
                count(sum.links),
                percent(sum.mean / sum.links.max(1) as f64),
                percent(sum.most),
                crate::numbers::bytes(sum.queue),
                count(sum.faults),
            ]
        })
        .collect();
    let head = ["switch", "<links", "number", "used, mean", "busiest", "longest queue", "with a fault"];
    let mut out =
        format!("<details><summary>Links by switch</summary>{}", table(&head, &rows).replace("card scroll", "scroll"));
    if more > 0 {
        let _ = write!(
            out,
            "<p class=\"sub\">The {SWITCHES} with the busiest links; {more} more are in the JSON report.</p>"
        );
    }
    out + "</details>"
}
