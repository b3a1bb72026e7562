//! Charts of one connection over time, and of planes: they show how a transport with path state handles a failure.

use super::chart::{self, Axis, Curve, Drawn, Lines};
use super::marks;
use super::single::over_time;
use super::{byte_unit, duration, figure, rate_unit, time_unit};
use crate::{FaultFacts, PathSeriesFacts, SeriesFacts, WatchedFacts};

/// A state of paths: name, colour, counts over time. States in use are at the bottom.
type State = (&'static str, usize, fn(&PathSeriesFacts) -> &[u32]);

const STATES: [State; 6] = [
    ("good, in use", 2, |p| &p.good),
    ("skip once", 5, |p| &p.skip),
    ("in reserve", 7, |p| &p.reserve),
    ("assumed bad", 1, |p| &p.assumed_bad),
    ("denied", 4, |p| &p.denied),
    ("port down", 3, |p| &p.port_down),
];

/// The number of a connection's entropy values in each state over time, as stacked areas.
pub(super) fn states(id: &str, title: &str, every_us: f64, watched: &WatchedFacts, faults: &[FaultFacts]) -> String {
    let n = watched.paths.iter().map(|p| p.good.len()).max().unwrap_or(0);
    if n == 0 {
        return String::new();
    }
    let all_planes = |of: fn(&PathSeriesFacts) -> &[u32], i: usize| -> u32 {
        watched.paths.iter().filter_map(|p| of(p).get(i)).sum()
    };
    let counts: Vec<(&str, usize, Vec<u32>)> = STATES
        .iter()
        .map(|(name, colour, of)| (*name, *colour, (0..n).map(|i| all_planes(*of, i)).collect::<Vec<u32>>()))
        .filter(|(.., counts)| counts.iter().any(|c| *c > 0))
        .collect();
    let total = STATES.iter().map(|(.., of)| all_planes(*of, 0)).sum::<u32>();
    let used = |i: usize| all_planes(|p| &p.good, i) + all_planes(|p| &p.skip, i);
    let least = (0..n).min_by_key(|&i| used(i)).unwrap_or(0);
    // If only few of many values are not in use, cut the axis; otherwise they would be a thin line at the top.
    let low = if 5 * used(least) >= 4 * total && used(least) < total { total / 4 * 3 } else { 0 };
    let (unit, size) = time_unit(every_us * n as f64);
    let curves = counts.iter().map(|(name, colour, counts)| Curve {
        name: (*name).to_string(),
        colour: *colour,
        points: counts.iter().enumerate().map(|(i, c)| (i as f64 * every_us / size, f64::from(*c))).collect(),
    });
    let lines = Lines {
        id: id.to_string(),
        x: Axis::new(format!("time, {unit}"), 0.0, every_us * n as f64 / size),
        y: Axis::new("entropy values", f64::from(low), f64::from(total)),
        curves: curves.collect(),
        drawn: Drawn::Stacked,
        marks: marks::of_faults(faults, size, every_us * n as f64 / size),
    };
    let most = |of: fn(&PathSeriesFacts) -> &[u32]| (0..n).map(|i| all_planes(of, i)).max().unwrap_or(0);
    let (bad, down) = (most(|p| &p.assumed_bad), most(|p| &p.port_down));
    let what = match (bad, down) {
        (0, 0) => "none was ever taken out".to_string(),
        (bad, 0) => format!("at most {bad} assumed bad"),
        (0, down) => format!("at most {down} with their port down"),
        (bad, down) => format!("at most {bad} assumed bad, at most {down} with their port down"),
    };
    let axis = if low > 0 { format!(". The axis begins at {low}") } else { String::new() };
    let in_use = match used(least) {
        all if all == total => "all in use throughout".to_string(),
        some => format!("the fewest in use were {some}, at {}", duration(Some(least as f64 * every_us))),
    };
    let sub = format!("{total} entropy values (paths) of {} by state; {in_use}; {what}{axis}", watched.name);
    figure(title, &sub, &chart::lines(&lines))
}

/// Goodput of one flow by plane over time. The points are further apart than for all flows: in a short interval a plane
/// carries only a few packets of one flow, so a point would show single packets instead of a rate.
pub(super) fn planes_of_one(
    id: &str,
    title: &str,
    of: &str,
    every_us: f64,
    single: &[Vec<f64>],
    faults: &[FaultFacts],
) -> String {
    let together = single.len().max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let coarse: Vec<Vec<f64>> = single.iter().map(|plane| plane.chunks(together).map(mean).collect()).collect();
    planes(id, title, of, every_us * together as f64, &coarse, faults)
}

/// Goodput by plane over time, one line per plane.
pub(super) fn planes(
    id: &str,
    title: &str,
    of: &str,
    every_us: f64,
    planes: &[Vec<f64>],
    faults: &[FaultFacts],
) -> String {
    if planes.len() < 2 {
        return String::new();
    }
    let n = planes.iter().map(Vec::len).max().unwrap_or(0);
    let most = planes.iter().flatten().copied().fold(0.0, f64::max);
    let (unit, size) = rate_unit(most);
    // If there are too many planes, the ones with the least traffic are shown, because planes with failures are among
    // them.
    let mut shown: Vec<usize> = (0..planes.len()).collect();
    let carried = |plane: &usize| planes[*plane].iter().sum::<f64>();
    shown.sort_by(|a, b| carried(a).total_cmp(&carried(b)));
    shown.truncate(chart::COLOURS);
    shown.sort_unstable();
    let more = if shown.len() < planes.len() {
        format!("; the {} of {} planes with the least traffic", shown.len(), planes.len())
    } else {
        String::new()
    };
    let curves = shown.iter().map(|&plane| {
        let values = (0..n).map(|i| planes[plane].get(i).copied().unwrap_or(0.0) / size).collect();
        (format!("plane {plane}"), plane, every_us, values)
    });
    let chart = over_time(id, curves.collect(), &format!("goodput, {unit}"), faults);
    let sub = format!("New payload that {of} got over each plane, {unit}{more}. {}", behind(every_us, planes));
    figure(title, &sub, &chart)
}

/// A plane has fallen behind if it stays below this share of the best plane for this many intervals in a row.
const BEHIND: (usize, f64) = (3, 0.25);

/// The planes that fell behind the best one, with time and rate, in a sentence.
fn behind(every_us: f64, planes: &[Vec<f64>]) -> String {
    let n = planes.iter().map(Vec::len).max().unwrap_or(0);
    let at = |plane: &[f64], i: usize| plane.get(i).copied().unwrap_or(0.0);
    let best: Vec<f64> = (0..n).map(|i| planes.iter().map(|p| at(p, i)).fold(0.0, f64::max)).collect();
    let most = best.iter().copied().fold(0.0, f64::max);
    let low = |plane: &[f64], i: usize| best[i] > most / 4.0 && at(plane, i) < BEHIND.1 * best[i];
    let first = |plane: &Vec<f64>| {
        (0..n.saturating_sub(BEHIND.0 - 1)).find(|&start| (start..start + BEHIND.0).all(|i| low(plane, i)))
    };
    let fallen: Vec<(usize, usize)> =
        planes.iter().enumerate().filter_map(|(plane, rates)| Some((plane, first(rates)?))).collect();
    let Some(start) = fallen.iter().map(|(_, start)| *start).min() else {
        return "No plane fell behind the others".to_string();
    };
    let (unit, size) = rate_unit(most);
    let names: Vec<String> = fallen.iter().map(|(plane, _)| plane.to_string()).collect();
    let least = fallen.iter().map(|&(plane, start)| {
        let run = (start..n).take_while(|&i| low(&planes[plane], i));
        run.map(|i| at(&planes[plane], i)).fold(f64::INFINITY, f64::min)
    });
    format!(
        "Plane{} {} fell behind the others from {} on, down to {:.0} {unit}",
        if names.len() > 1 { "s" } else { "" },
        names.join(", "),
        duration(Some(start as f64 * every_us)),
        least.fold(f64::INFINITY, f64::min) / size
    )
}

/// The goodput of the watched connections of several runs, by name, over time.
pub(super) fn goodputs(id: &str, title: &str, runs: &[(String, usize, &SeriesFacts)], faults: &[FaultFacts]) -> String {
    let watched: Vec<(&str, usize, f64, &WatchedFacts)> = runs
        .iter()
        .filter_map(|(name, colour, s)| Some((name.as_str(), *colour, s.every_us, s.watched.as_ref()?)))
        .collect();
    let Some((.., first)) = watched.first() else { return String::new() };
    let most = watched.iter().flat_map(|(.., w)| &w.goodput_gbps).copied().fold(0.0, f64::max);
    if most == 0.0 {
        return String::new();
    }
    let (unit, size) = rate_unit(most);
    // The first and the last interval are only partly busy.
    let mean = |w: &WatchedFacts| {
        let first = w.goodput_gbps.iter().position(|g| *g > 0.0).map_or(0, |first| first + 1);
        let last = w.goodput_gbps.iter().rposition(|g| *g > 0.0).unwrap_or(0);
        let values = w.goodput_gbps.get(first..last).filter(|v| !v.is_empty()).unwrap_or(&w.goodput_gbps);
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let means: Vec<String> = watched.iter().map(|(name, .., w)| format!("{name} {:.0}", mean(w) / size)).collect();
    let sub = format!(
        "New payload that the receiver of {} got, {unit}; mean while it lasted: {}",
        first.name,
        means.join(", ")
    );
    let curves = watched.iter().map(|(name, colour, every, w)| {
        let values = w.goodput_gbps.iter().map(|v| v / size).collect();
        ((*name).to_string(), *colour, *every, values)
    });
    figure(title, &sub, &over_time(id, curves.collect(), &format!("goodput, {unit}"), faults))
}

/// Window and bytes in flight of the watched connection.
fn window(every_us: f64, watched: &WatchedFacts, faults: &[FaultFacts]) -> String {
    let most = watched.window_bytes.iter().chain(&watched.in_flight_bytes).copied().max().unwrap_or(0) as f64;
    if most == 0.0 {
        return String::new();
    }
    let (unit, size) = byte_unit(most);
    let scaled = |bytes: &[u64]| -> Vec<f64> { bytes.iter().map(|b| *b as f64 / size).collect() };
    let curves = vec![
        ("window".to_string(), 0, every_us, scaled(&watched.window_bytes)),
        ("in flight".to_string(), 6, every_us, scaled(&watched.in_flight_bytes)),
    ];
    let sub = format!("Congestion window and bytes in flight of {} at its sender, {unit} on the wire", watched.name);
    figure("Window", &sub, &over_time("window", curves, &format!("bytes, {unit}"), faults))
}

/// All charts of planes and of the watched connection, for a run with `flows` flows.
pub(super) fn charts(series: &SeriesFacts, flows: u64, faults: &[FaultFacts]) -> String {
    let every = series.every_us;
    let mut out = planes("planes", "Goodput by plane", "all receivers", every, &series.planes_gbps, faults);
    let Some(watched) = &series.watched else { return out };
    out.push_str(&states("states", &format!("Entropy values of {}", watched.name), every, watched, faults));
    if flows > 1 {
        let title = format!("Goodput of {}", watched.name);
        let by_plane = planes_of_one(
            "watched-planes",
            &format!("{title} by plane"),
            "its receiver",
            every,
            &watched.planes_gbps,
            faults,
        );
        out.push_str(&if by_plane.is_empty() {
            goodputs("watched", &title, &[(watched.name.clone(), 0, series)], faults)
        } else {
            by_plane
        });
    }
    out.push_str(&window(every, watched, faults));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_that_falls_behind_is_named_and_one_that_stumbles_is_not() {
        let steady = vec![90.0; 10];
        let mut dead = steady.clone();
        dead[4..8].fill(0.0);
        let mut stumbling = steady.clone();
        stumbling[4..6].fill(0.0);
        let idle = [vec![0.0; 5], vec![90.0; 5]].concat();
        for (planes, wanted) in [
            (vec![steady.clone(), steady.clone()], "No plane fell behind the others"),
            (vec![steady.clone(), stumbling], "No plane fell behind the others"),
            (vec![idle.clone(), idle], "No plane fell behind the others"),
            (
                vec![steady.clone(), steady.clone(), dead.clone()],
                "Plane 2 fell behind the others from 8.0 us on, down to 0 Gb/s",
            ),
            (vec![dead.clone(), steady, dead], "Planes 0, 2 fell behind the others from 8.0 us on, down to 0 Gb/s"),
        ] {
            // A number and its unit stay on one line.
            assert_eq!(behind(2.0, &planes).replace('\u{a0}', " "), wanted);
        }
    }
}
