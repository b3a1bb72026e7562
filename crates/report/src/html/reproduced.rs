//! The page of published results next to ours: tables with verdicts, and charts of the runs behind them.

use super::chart::{self, Axis, Curve, Drawn, Lines, Range, RangeGroup, escape};
use super::pivot::{Pivot, pivots};
use super::{figure, heading, stat, table, time_unit, watched};
use crate::numbers::number;
use crate::reproduction::{Chart, ChartKind, ChartRun, Reproduction, Row, Source, Verdict, WATCH_EVERY};
use crate::text::reproduced::{
    BIAS, BIAS_HEADS, bias_columns, bound, interval, notes, quantity, spread, verdict, whose,
};
use crate::{FaultFacts, SeriesFacts, WatchedFacts};

pub(super) fn body(done: &Reproduction) -> String {
    let counts = done.counts();
    let lead = "Published and reference values next to ours. Each number of ours is the mean over seeds; \"slowest flow\" is the \
                mean of the per-seed maxima. The source of the other number is named: only \"published\" values come from a paper.";
    let pivots = pivots(&done.rows);
    let theirs = done.rows.iter().any(|row| row.published.is_some());
    let (kind, lead) = match theirs {
        true => ("Published results beside ours", lead),
        false => {
            ("Our results", "Each number is the mean over seeds; \"slowest flow\" is the mean of the per-seed maxima.")
        }
    };
    let mut out = heading(kind, &headline(done, &pivots), lead);
    if counts.judged() + counts.ours > 0 {
        out.push_str("<section class=\"cards\">");
        for (count, text) in [
            (counts.met, "met"),
            (counts.missed, "missed"),
            (counts.undecided, "undecided: too few seeds"),
            (counts.ours, "bounds of our own"),
            (counts.comparisons, "comparisons"),
            (counts.studies, "studies"),
            (counts.unjudged, "unjudged"),
        ] {
            if count > 0 {
                out.push_str(&stat(&count.to_string(), text));
            }
        }
        out.push_str("</section>\n");
    }
    if counts.missed > 0 {
        let missed = done.rows.iter().filter(|r| r.verdict == Verdict::Missed);
        let missed: Vec<Row> =
            missed.map(|r| Row { what: format!("{}: {}", r.section, r.what), ..r.clone() }).collect();
        out.push_str("<h2>Missed rows</h2>\n");
        out.push_str(&rows_table(&missed));
    }
    let charts = charts(&done.charts, None);
    let mut later = if charts.is_empty() { charts } else { format!("<h2>Charts</h2>{charts}") };
    for pivot in &pivots {
        if let [rows] = pivot.columns[..] {
            let title = &rows[0].section;
            out.push_str(&format!("<h2>{}</h2>\n{}{}", escape(title), rows_table(rows), about(&[rows])));
        } else {
            out.push_str(&format!("<h2>{}</h2>\n{}", escape(&pivot.titles().0), pivot.table()));
            out.push_str(&about(&pivot.columns));
        }
        for rows in &pivot.columns {
            out.push_str(&self::charts(&done.charts, Some(&rows[0].section)));
        }
        // The charts of the whole set come after its first table.
        out.push_str(&std::mem::take(&mut later));
    }
    if !done.bias.is_empty() {
        let cells = done.bias.iter().map(|bias| bias_columns(bias).map(|cell| escape(&cell)).to_vec());
        let head = BIAS_HEADS.map(|head| if head == "family" { "<family" } else { head });
        let body: Vec<Vec<String>> = cells
            .map(|mut row| {
                row[0] = format!("<td class=\"left\"><code>{}</code></td>", row[0]);
                row
            })
            .collect();
        out.push_str(&format!("<h2>{BIAS}</h2>\n{}", table(&head, &body)));
    }
    out.push_str(&format!(
        "<footer>Strandway {}. Each row's command line repeats it; the same seeds give the same numbers on any machine.</footer>\n",
        escape(&done.version)
    ));
    out
}

/// The finding in a sentence: verdicts, or, if no row is judged, the fastest transport.
fn headline(done: &Reproduction, pivots: &[Pivot]) -> String {
    let counts = done.counts();
    let mut judged = done.rows.iter().filter(|row| row.published.is_some() && row.verdict != Verdict::Unknown);
    let of_model = judged.all(|row| row.source == Source::ReferenceModel);
    let with = if of_model { "one of the reference model" } else { "a reference" };
    match (counts.judged(), counts.judged() - counts.met) {
        (0, _) => pivots.iter().find_map(Pivot::findings).unwrap_or_else(|| {
            let rows = done.rows.len();
            format!(
                "{rows} {} of ours; there are no published values to compare them with.",
                if rows == 1 { "value" } else { "values" }
            )
        }),
        (1, 0) => format!("The only value with {with} agrees with it."),
        (judged, 0) => format!("All {judged} values with {with} agree with it."),
        (judged, _) => format!(
            "{} of {judged} values with {with} agree with it; {} do not, and {} are within the spread of their seeds.",
            counts.met, counts.missed, counts.undecided
        ),
    }
}

/// The notes on the rows of these sections, and their command lines.
fn about(sections: &[&[Row]]) -> String {
    let mut out = String::new();
    for (ids, note) in sections.iter().flat_map(|rows| notes(rows)) {
        out.push_str(&format!("<p class=\"sub\"><code>{}</code>: {}</p>\n", escape(&ids.join(", ")), escape(note)));
    }
    let commands: Vec<String> = sections.iter().flat_map(|rows| rows.iter()).map(|row| escape(&row.command)).collect();
    out.push_str(&format!(
        "<details class=\"card\"><summary>Command lines</summary><pre>{}</pre></details>\n",
        commands.join("\n")
    ));
    out
}

/// The rows with all their columns; empty columns are left out.
fn rows_table(rows: &[Row]) -> String {
    type Column = (&'static str, fn(&Row) -> String);
    let columns: [Column; 9] = [
        ("<", |row| format!("<td class=\"what\">{}</td>", escape(&row.what))),
        ("theirs", |row| match row.published {
            Some(_) => {
                format!("{} <span class=\"sub\">{}</span>", quantity(row.published, &row.unit), whose(row.source))
            }
            None => String::new(),
        }),
        ("ours", |row| format!("<b>{}</b>", escape(&quantity(row.ours, &row.unit)))),
        ("verdict", |row| match row.verdict {
            Verdict::Unknown => String::new(),
            of => format!("<span class=\"{}\">{}</span>", of.word(), verdict(row)),
        }),
        ("ratio", |row| row.ratio.map_or(String::new(), |r| format!("{r:.3}"))),
        ("bound", bound),
        ("seeds", spread),
        ("95 %", interval),
        ("<id", |row| format!("<td class=\"left\"><code>{}</code></td>", escape(&row.id))),
    ];
    let columns: Vec<Column> =
        columns.into_iter().filter(|(_, of)| rows.iter().any(|row| !of(row).is_empty())).collect();
    let head: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let body: Vec<Vec<String>> = rows.iter().map(|row| columns.iter().map(|(_, of)| of(row)).collect()).collect();
    table(&head, &body)
}

/// The charts of one section, or the charts at the top of the page.
fn charts(charts: &[Chart], section: Option<&String>) -> String {
    let drawn = charts.iter().enumerate().filter(|(_, c)| !c.runs.is_empty() && c.section.as_ref() == section);
    let figures: String = drawn
        .map(|(i, chart)| match chart.kind {
            ChartKind::Completion => completion(&format!("fct{i}"), chart),
            ChartKind::Balance => balance(chart),
            ChartKind::Penalties => penalties_over_time(&format!("penalties{i}"), chart),
            ChartKind::States => of_first(chart, |title, series, watched, faults| {
                watched::states(&format!("states{i}"), title, series.every_us, watched, faults)
            }),
            ChartKind::Planes => of_first(chart, |title, series, watched, faults| {
                let (id, every) = (format!("planes{i}"), series.every_us);
                watched::planes_of_one(&id, title, "the receiver", every, &watched.planes_gbps, faults)
            }),
            ChartKind::Goodput => {
                let runs = chart.runs.iter().enumerate();
                let runs =
                    runs.filter_map(|(colour, r)| Some((r.name.clone(), colour, r.report.curves.series.as_ref()?)));
                watched::goodputs(&format!("goodput{i}"), &chart.title, &runs.collect::<Vec<_>>(), &[])
            }
        })
        .collect();
    if figures.is_empty() { figures } else { format!("<div class=\"charts\">\n{figures}</div>\n") }
}

/// A chart of the watched connection of the first run.
fn of_first(chart: &Chart, draw: impl Fn(&str, &SeriesFacts, &WatchedFacts, &[FaultFacts]) -> String) -> String {
    let Some(report) = chart.runs.first().map(|run| &run.report) else { return String::new() };
    let both = report.curves.series.as_ref().and_then(|series| Some((series, series.watched.as_ref()?)));
    both.map(|(series, watched)| draw(&chart.title, series, watched, &report.faults)).unwrap_or_default()
}

/// The completion times of all runs in one chart.
fn completion(id: &str, chart: &Chart) -> String {
    let points = || chart.runs.iter().flat_map(|r| &r.report.curves.fct_cdf).map(|p| p[0]);
    let (least, most) = (points().fold(f64::INFINITY, f64::min), points().fold(0.0, f64::max));
    let (unit, size) = time_unit(most);
    let span = (most - least).max(most * 0.02);
    let curve = |(colour, run): (usize, &ChartRun)| {
        let flows = &run.report.flows;
        // The curve stays below 100 % if flows did not finish.
        let share = 100.0 * flows.finished as f64 / flows.total.max(1) as f64;
        let points = run.report.curves.fct_cdf.iter().map(|p| (p[0] / size, share * p[1])).collect();
        Curve { name: run.name.clone(), colour, points }
    };
    let lines = Lines {
        id: id.to_string(),
        x: Axis::new(
            format!("completion time, {unit}"),
            (least - 0.08 * span).max(0.0) / size,
            (most + 0.05 * span) / size,
        ),
        y: Axis::new("flows finished, %", 0.0, 100.0),
        curves: chart.runs.iter().enumerate().map(curve).collect(),
        drawn: Drawn::Steps,
        marks: Vec::new(),
    };
    let sub = "Share of flows (%) finished within this time after posting; seed 1";
    figure(&format!("Completion times: {}", chart.title), sub, &chart::lines(&lines))
}

/// Traffic of the leaves' uplinks, from the least busy to the busiest, relative to the mean.
fn balance(chart: &Chart) -> String {
    let range = |(colour, run): (usize, &ChartRun)| {
        let low = run.uplinks.iter().copied().fold(f64::INFINITY, f64::min).min(1.0);
        let high = run.uplinks.iter().copied().fold(0.0, f64::max);
        let n = run.uplinks.len().max(1) as f64;
        let spread = (run.uplinks.iter().map(|u| (u - 1.0) * (u - 1.0)).sum::<f64>() / n).sqrt();
        let [low_p, high_p, spread_p] = [low, high, spread].map(|v| number((v * 1000.0).round() / 10.0));
        let title = format!("{}: from {low_p} to {high_p} % of the mean, standard deviation {spread_p} %", run.name);
        Range { label: run.name.clone(), colour, low, mark: high, high, title }
    };
    let ranges = chart.runs.iter().enumerate().map(range).collect();
    let groups = [RangeGroup { heading: String::new(), ranges }];
    let sub = "Bytes that each uplink of a leaf carried, from the idlest to the busiest, relative to the mean of all; the number \
               is the busiest's; seed 1";
    figure(
        &format!("Uplink balance: {}", chart.title),
        sub,
        &chart::ranges(&groups, "bytes over the mean of all uplinks"),
    )
}

/// The penalties of one sender's uplinks over time, for the uplinks with the largest penalties.
fn penalties_over_time(id: &str, chart: &Chart) -> String {
    let Some(run) = chart.runs.first() else { return String::new() };
    let uplinks = run.penalties.iter().map(Vec::len).max().unwrap_or(0);
    let held = |uplink: usize| run.penalties.iter().filter_map(move |at| at.get(uplink)).map(|p| f64::from(*p));
    let mut worst: Vec<(usize, f64)> = (0..uplinks).map(|u| (u, held(u).sum::<f64>())).filter(|w| w.1 > 0.0).collect();
    worst.sort_by(|a, b| b.1.total_cmp(&a.1));
    worst.truncate(chart::COLOURS);
    let every = WATCH_EVERY.as_us();
    let most = (0..uplinks).flat_map(held).fold(0.0, f64::max);
    let curves = worst.iter().enumerate().map(|(colour, (uplink, _))| Curve {
        name: format!("uplink {uplink}"),
        colour,
        points: held(*uplink).enumerate().map(|(i, p)| (i as f64 * every, p)).collect(),
    });
    let lines = Lines {
        id: id.to_string(),
        x: Axis::new("time, us", 0.0, run.penalties.len() as f64 * every),
        y: Axis::new("penalty, packets", 0.0, most * 1.05),
        curves: curves.collect(),
        drawn: Drawn::Slopes,
        marks: Vec::new(),
    };
    let sub = format!(
        "Packets for which the first connection's sender will still avoid an uplink; the {} of {uplinks} uplinks that it avoided \
         the longest; seed 1",
        worst.len()
    );
    figure(&format!("Penalties: {}", chart.title), &sub, &chart::lines(&lines))
}
