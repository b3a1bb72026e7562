//! Makes the time series of a report from a run's samples.

use super::capacity::{Capacity, used};
use strandway_fabric::Measurements;
use strandway_fabric::measure::WatchPoint;
use strandway_proto::path::PlaneStates;
use strandway_proto::units::{Bytes, Span};
use strandway_report::{GroupSeriesFacts, PathSeriesFacts, SeriesFacts, WatchedFacts};
use strandway_scenario::{Experiment, Message};

/// Limit on the points of a series in a report; neighbouring samples are merged.
const POINTS: usize = 400;

/// How samples are merged into points.
struct Merge {
    /// Number of samples to use.
    points: usize,
    /// Samples per point.
    by: usize,
    /// Interval between points.
    every: Span,
}

impl Merge {
    fn chunks<'a, T>(&self, values: &'a [T]) -> std::slice::Chunks<'a, T> {
        values[..values.len().min(self.points)].chunks(self.by)
    }

    fn sums(&self, values: &[u64]) -> Vec<u64> {
        self.chunks(values).map(|c| c.iter().sum()).collect()
    }

    fn peaks(&self, values: &[u64]) -> Vec<u64> {
        self.chunks(values).map(|c| c.iter().copied().max().unwrap_or(0)).collect()
    }

    /// Bytes per interval as Gb/s.
    fn rates(&self, bytes: &[u64]) -> Vec<f64> {
        self.sums(bytes).iter().map(|b| *b as f64 * 8e3 / self.every.0 as f64).collect()
    }

    /// The last value of each point.
    fn lasts<T, V>(&self, values: &[T], of: impl Fn(&T) -> V) -> Vec<V> {
        self.chunks(values).filter_map(|c| c.last().map(&of)).collect()
    }
}

/// The series of a run; `None` if it recorded no samples.
pub(super) fn series(experiment: &Experiment, measured: &Measurements) -> Option<SeriesFacts> {
    let series = &measured.series;
    if series.every == Span::ZERO || series.delivered.is_empty() {
        return None;
    }
    // Ignore samples after the end of the last flow (timers without work).
    let points = (measured.simulated.0.div_ceil(series.every.0) as usize).max(1);
    let by = points.div_ceil(POINTS);
    let merge = Merge { points, by, every: series.every * by as u64 };
    let groups = experiment.plan.topology.groups();
    let capacity = Capacity::new(&experiment.plan, measured);
    let groups = series.groups.iter().zip(&groups).enumerate().map(|(index, (values, group))| {
        let bytes = merge.sums(&values.bytes);
        let could = capacity.of_group(index, group.links, group.rate.0, merge.every, bytes.len());
        GroupSeriesFacts {
            name: group.name.clone(),
            utilisation: bytes.iter().zip(could).map(|(b, could)| used(Bytes(*b), could)).collect(),
            queued_bytes: merge.peaks(&values.queued),
            queued_max_bytes: merge.peaks(&values.queued_max),
        }
    });
    Some(SeriesFacts {
        every_us: merge.every.as_us(),
        goodput_gbps: merge.rates(&series.delivered),
        planes_gbps: series.planes.iter().map(|bytes| merge.rates(bytes)).collect(),
        groups: groups.collect(),
        watched: watched(experiment, measured, &merge),
    })
}

fn watched(experiment: &Experiment, measured: &Measurements, merge: &Merge) -> Option<WatchedFacts> {
    let series = &measured.series;
    let connection = experiment.plan.watch?;
    let mine = |m: &&Message| {
        let first = m.first as usize;
        let pieces = &experiment.plan.flows[first..first + m.pieces as usize];
        pieces.iter().any(|flow| flow.connection == connection)
    };
    let name = experiment.messages.iter().find(mine).map(|m| experiment.message_name(m))?;
    if series.watched.is_empty() {
        return None;
    }
    let planes_gbps: Vec<Vec<f64>> = series.watched_planes.iter().map(|bytes| merge.rates(bytes)).collect();
    let longest = planes_gbps.iter().map(Vec::len).max().unwrap_or(0);
    let sum = |i: usize| planes_gbps.iter().filter_map(|plane| plane.get(i)).sum();
    // The window before the sender's first activity is the window at its first activity.
    let opening = series.watched.iter().map(|point| point.window.0).find(|window| *window > 0).unwrap_or(0);
    Some(WatchedFacts {
        name,
        goodput_gbps: (0..longest).map(sum).collect(),
        planes_gbps,
        window_bytes: merge.lasts(&series.watched, |point| if point.window.0 > 0 { point.window.0 } else { opening }),
        in_flight_bytes: merge.lasts(&series.watched, |point| point.in_flight.0),
        paths: paths(&series.watched, merge),
    })
}

/// Plane by plane, the number of paths in each state. States before the sender's first activity are those at its first
/// activity.
fn paths(points: &[WatchPoint], merge: &Merge) -> Vec<PathSeriesFacts> {
    let Some(first) = points.iter().find(|point| !point.planes.is_empty()) else { return Vec::new() };
    let of = |plane: usize| {
        let states: Vec<PlaneStates> =
            merge.lasts(points, |point| point.planes.get(plane).copied().unwrap_or(first.planes[plane]));
        let used = |count: fn(&PlaneStates) -> u32| -> Vec<u32> {
            states.iter().map(|s| if s.usable { count(s) } else { 0 }).collect()
        };
        let down = |s: &PlaneStates| if s.usable { 0 } else { s.good + s.skip + s.assumed_bad + s.denied + s.backup };
        PathSeriesFacts {
            plane,
            good: used(|s| s.good),
            skip: used(|s| s.skip),
            assumed_bad: used(|s| s.assumed_bad),
            denied: used(|s| s.denied),
            reserve: used(|s| s.backup),
            port_down: states.iter().map(down).collect(),
        }
    };
    (0..first.planes.len()).map(of).collect()
}
