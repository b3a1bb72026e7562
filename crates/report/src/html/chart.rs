//! Charts as inline SVG, drawn twice: for wide and for narrow screens. So text is readable on both.

use super::marks::{self, Mark};
use std::fmt::Write;

/// One curve.
pub(super) struct Curve {
    pub(super) name: String,
    /// Number of its colour.
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// Curves over a common axis.
pub(super) struct Lines {
    pub(super) id: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
    pub(super) drawn: Drawn,
    /// Marks along the x axis; their labels are above the plot.
    pub(super) marks: Vec<Mark>,
}

/// How the points of a curve are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawn {
    Slopes,
    /// Steps, as for a distribution.
    Steps,
    /// Areas on top of each other, the first at the bottom. All have values at the same x. A value holds until the next
    /// x, the last value until the end of the axis.
    Stacked,
}

/// An axis: its label, range and scale.
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) log: bool,
}

/// A bar from `low` to `high` with a mark at the mean.
pub(super) struct Range {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) low: f64,
    pub(super) mark: f64,
    pub(super) high: f64,
    pub(super) title: String,
}

/// Bars below a heading.
pub(super) struct RangeGroup {
    pub(super) heading: String,
    pub(super) ranges: Vec<Range>,
}

/// The size of a drawing, in its own points.
#[derive(Clone, Copy)]
pub(super) struct Size {
    /// The class of the element.
    pub(super) class: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
}

pub(super) const SIZES: [Size; 2] = [
    Size { class: "wide", width: 560.0, height: 290.0, left: 56.0 },
    Size { class: "narrow", width: 340.0, height: 240.0, left: 50.0 },
];
pub(super) const RIGHT: f64 = 14.0;
pub(super) const TOP: f64 = 12.0;
pub(super) const BOTTOM: f64 = 42.0;

/// Number of colours; colours are numbered from 0 and repeat.
pub(super) const COLOURS: usize = 8;

impl Axis {
    pub(super) fn new(label: impl Into<String>, low: f64, high: f64) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        Axis { label: label.into(), low, high, log: false }
    }

    /// Its label; a logarithmic axis says so.
    fn label(&self) -> String {
        if self.log { format!("{} (logarithmic)", self.label) } else { self.label.clone() }
    }

    /// The position of a value between the ends, from 0 to 1.
    pub(super) fn at(&self, value: f64) -> f64 {
        let scaled = |v: f64| if self.log { v.max(1e-12).log10() } else { v };
        ((scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low))).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self, about: usize) -> Vec<f64> {
        if self.log {
            let mut ticks = Vec::new();
            let mut decade = 10f64.powf(self.low.max(1e-12).log10().floor());
            while decade <= self.high {
                ticks.extend([1.0, 2.0, 5.0].map(|m| m * decade));
                decade *= 10.0;
            }
            ticks.retain(|t| (self.low..=self.high).contains(t));
            return ticks;
        }
        let rough = (self.high - self.low) / about as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }
}

/// Tick labels, with enough digits to distinguish neighbouring ticks.
pub(super) fn labels(ticks: &[f64]) -> Vec<String> {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let digits = (0..4).find(|digits| step * 10f64.powi(*digits) > 0.99).unwrap_or(4) as usize;
    let text = |tick: &f64| {
        // Steps of 2.5 need one more digit.
        let text = format!("{tick:.*}", digits + usize::from(digits < 4));
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if text == "-0" { "0".to_string() } else { text.to_string() }
    };
    ticks.iter().map(text).collect()
}

/// A number as an axis label.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 3) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The width of a letter of a label, on average.
const LETTER: f64 = 6.6;

/// A label as HTML, cut to this width. A label that was cut has its whole text as a title.
pub(super) fn fitted(label: &str, width: f64) -> String {
    let most = (width / LETTER).max(2.0) as usize;
    if label.chars().count() <= most {
        return escape(label);
    }
    let begin: String = label.chars().take(most - 1).collect();
    format!("<title>{}</title>{}…", escape(label), escape(begin.trim_end()))
}

/// Both drawings of curves, their legend, and their data for the script (in the form that `charts.js` describes).
pub(super) fn lines(chart: &Lines) -> String {
    let mut out: String = SIZES.iter().map(|size| draw_lines(chart, *size)).collect();
    if chart.curves.len() > 1 {
        out.push_str(&legend(chart.curves.iter().map(|c| (c.name.as_str(), c.colour))));
    }
    let series: Vec<serde_json::Value> = chart
        .curves
        .iter()
        .map(|c| {
            let points: Vec<[f64; 2]> = c.points.iter().map(|(x, y)| [round(*x), round(*y)]).collect();
            serde_json::json!({ "n": c.name, "c": c.colour % COLOURS, "p": points })
        })
        .collect();
    let drawn = match chart.drawn {
        Drawn::Slopes => "slopes",
        Drawn::Steps => "steps",
        Drawn::Stacked => "stacked",
    };
    let data = serde_json::json!({
        "x": [chart.x.low, chart.x.high], "log": chart.x.log, "xl": chart.x.label(),
        "y": [chart.y.low, chart.y.high], "yl": chart.y.label, "d": drawn, "s": series,
        "marks": chart.marks.iter().map(marks::data).collect::<Vec<_>>()
    });
    // A closing tag inside the text would end the script.
    let data = data.to_string().replace('<', "\\u003c");
    let _ = write!(out, "<script type=\"application/json\" id=\"data-{}\">{data}</script>", chart.id);
    out
}

pub(super) fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn draw_lines(chart: &Lines, size: Size) -> String {
    let above = marks::room(&chart.marks);
    let (height, top) = (size.height + above, TOP + above);
    let (right, bottom) = (size.width - RIGHT, height - BOTTOM);
    let x = |v: f64| size.left + chart.x.at(v) * (right - size.left);
    let y = |v: f64| bottom - chart.y.at(v) * (bottom - top);
    let mut out = open(size, height, &format!("{} over {}", chart.y.label, chart.x.label));
    let _ = write!(out, "<g data-for=\"{}\" data-box=\"{},{top},{right},{bottom}\">", chart.id, size.left);
    let ticks = chart.y.ticks(5);
    for (tick, label) in ticks.iter().zip(labels(&ticks)) {
        let at = y(*tick);
        let _ = write!(out, "<path class=\"grid\" d=\"M{} {at:.1}H{right}\"/>", size.left);
        let _ =
            write!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", size.left - 7.0, at + 4.0);
    }
    let mut free = 0.0;
    let ticks = chart.x.ticks(if size.width > 400.0 { 7 } else { 4 });
    for (tick, label) in ticks.iter().zip(labels(&ticks)) {
        let at = x(*tick);
        if at < free {
            continue;
        }
        free = at + 34.0;
        let _ = write!(out, "<path class=\"tick\" d=\"M{at:.1} {bottom}v4\"/>");
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 17.0);
    }
    let _ = write!(out, "<path class=\"axis\" d=\"M{} {bottom}H{right}\"/>", size.left);
    let middle = (size.left + right) / 2.0;
    let _ = write!(
        out,
        "<text class=\"label\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        height - 6.0,
        escape(&chart.x.label())
    );
    out.push_str(&marks::draw(&chart.marks, &chart.x, [size.left, top, right, bottom]));
    for (i, curve) in chart.curves.iter().enumerate() {
        let (class, d) = match chart.drawn {
            Drawn::Stacked => ("area", area(chart, i, &x, &y)),
            Drawn::Slopes | Drawn::Steps => ("curve", path(chart, curve, &x, &y)),
        };
        let _ = write!(out, "<path class=\"{class} k{}\" d=\"{d}\"/>", curve.colour % COLOURS);
    }
    let _ = write!(out, "<path class=\"cursor\" d=\"M0 {top}V{bottom}\"/></g></svg>");
    out
}

fn path(chart: &Lines, curve: &Curve, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
    let mut d = String::new();
    for (i, (px, py)) in curve.points.iter().enumerate() {
        let (px, py) = (x(*px), y(*py));
        let _ = match (i, chart.drawn == Drawn::Steps) {
            (0, true) => write!(d, "M{px:.1} {:.1}V{py:.1}", y(chart.y.low)),
            (0, false) => write!(d, "M{px:.1} {py:.1}"),
            (_, true) => write!(d, "H{px:.1}V{py:.1}"),
            (_, false) => write!(d, "L{px:.1} {py:.1}"),
        };
    }
    d
}

/// The outline of the area between the sum of the curves below and the sum including this one.
fn area(chart: &Lines, i: usize, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
    let points = &chart.curves[i].points;
    let Some(first) = points.first() else { return String::new() };
    let sum = |at: usize, curves: &[Curve]| -> f64 {
        curves.iter().filter_map(|c| c.points.get(at)).fold(0.0, |sum, p| sum + p.1)
    };
    let end = |at: usize| x(points.get(at + 1).map_or(chart.x.high, |p| p.0));
    let mut d = format!("M{:.1} {:.1}", x(first.0), y(sum(0, &chart.curves[..i])));
    for at in 0..points.len() {
        let _ = write!(d, "V{:.1}H{:.1}", y(sum(at, &chart.curves[..=i])), end(at));
    }
    for at in (0..points.len()).rev() {
        let _ = write!(d, "V{:.1}H{:.1}", y(sum(at, &chart.curves[..i])), x(points[at].0));
    }
    d.push('Z');
    d
}

pub(super) fn open(size: Size, height: f64, title: &str) -> String {
    format!(
        "<svg class=\"{}\" viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"{}\">",
        size.class,
        size.width,
        escape(title)
    )
}

/// Names with their colours.
pub(super) fn legend<'a>(entries: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (name, colour) in entries {
        let _ = write!(out, "<li><i class=\"k{}\"></i>{}</li>", colour % COLOURS, escape(name));
    }
    out.push_str("</ul>");
    out
}

/// Both drawings of ranges, as shares of one.
pub(super) fn ranges(groups: &[RangeGroup], label: &str) -> String {
    SIZES.iter().map(|size| draw_ranges(groups, label, *size)).collect()
}

fn draw_ranges(groups: &[RangeGroup], label: &str, size: Size) -> String {
    const ROW: f64 = 19.0;
    const HEAD: f64 = 22.0;
    let most = groups.iter().flat_map(|g| &g.ranges).map(|r| r.high).fold(0.0, f64::max);
    let axis = Axis::new(label, 0.0, if most > 0.5 { most.max(1.0) } else { most.max(0.01) * 1.1 });
    let longest = groups.iter().flat_map(|g| &g.ranges).map(|r| r.label.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * 6.6 + 14.0).clamp(14.0, size.width * 0.42);
    let right = size.width - 56.0;
    let heads = groups.iter().filter(|g| !g.heading.is_empty()).count() as f64;
    let rows: usize = groups.iter().map(|g| g.ranges.len()).sum();
    let bottom = TOP + rows as f64 * ROW + heads * HEAD;
    let x = |v: f64| left + axis.at(v) * (right - left);
    let mut out = open(size, bottom + BOTTOM, label);
    for tick in axis.ticks(if size.width > 400.0 { 5 } else { 3 }) {
        let at = x(tick);
        let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom:.1}\"/>");
        let text = short(tick * 100.0);
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text} %</text>", bottom + 16.0);
    }
    let middle = (left + right) / 2.0;
    let caption = escape(label);
    let _ = write!(
        out,
        "<text class=\"label\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{caption}</text>",
        bottom + 35.0
    );
    let mut y = TOP;
    for group in groups {
        if !group.heading.is_empty() {
            let _ = write!(out, "<text class=\"head\" x=\"2\" y=\"{:.1}\">{}</text>", y + 15.0, escape(&group.heading));
            y += HEAD;
        }
        for range in &group.ranges {
            let (a, m, b) = (x(range.low), x(range.mark), x(range.high));
            let colour = range.colour % COLOURS;
            let mid = y + ROW / 2.0;
            let name = fitted(&range.label, left - 8.0);
            let _ = write!(out, "<g><title>{}</title>", escape(&range.title));
            let _ =
                write!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", left - 8.0, mid + 4.0);
            let width = (b - a).max(1.5);
            let _ = write!(
                out,
                "<rect class=\"k{colour} soft\" x=\"{a:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"11\" rx=\"3\"/>",
                mid - 5.5
            );
            let _ = write!(
                out,
                "<rect class=\"k{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"3\" height=\"15\" rx=\"1.5\"/>",
                m - 1.5,
                mid - 7.5
            );
            let text = short(range.mark * 100.0);
            let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{text} %</text></g>", right + 8.0, mid + 4.0);
            y += ROW;
        }
    }
    out.push_str("</svg>");
    out
}

/// Both drawings of plain bars: label, colour, value, text after the bar.
pub(super) fn bars(rows: &[(String, usize, f64, String)]) -> String {
    SIZES.iter().map(|size| draw_bars(rows, *size)).collect()
}

fn draw_bars(rows: &[(String, usize, f64, String)], size: Size) -> String {
    const ROW: f64 = 23.0;
    let most = rows.iter().map(|r| r.2).fold(0.0, f64::max).max(1e-12);
    let longest = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * 6.6 + 14.0).min(size.width * 0.45);
    let text = rows.iter().map(|r| r.3.chars().count()).max().unwrap_or(0) as f64 * 6.6 + 12.0;
    let room = (size.width - left - text).max(20.0);
    let mut out = open(size, rows.len() as f64 * ROW + 8.0, "counts");
    for (i, (label, colour, value, shown)) in rows.iter().enumerate() {
        let mid = i as f64 * ROW + ROW / 2.0 + 4.0;
        let width = if *value > 0.0 { (value / most * room).max(2.0) } else { 0.0 };
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            mid + 4.0,
            fitted(label, left - 8.0)
        );
        let _ = write!(
            out,
            "<rect class=\"k{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"12\" rx=\"3\"/>",
            colour % COLOURS,
            mid - 6.0
        );
        let _ = write!(
            out,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + width + 7.0,
            mid + 4.0,
            escape(shown)
        );
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Axis::new("", 0.0, 60.0).ticks(6), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let log = Axis { label: String::new(), low: 40.0, high: 900.0, log: true };
        assert_eq!(log.ticks(5), [50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn labels_tell_ticks_apart() {
        for (ticks, wanted) in [
            (&[0.0, 20.0, 40.0][..], &["0", "20", "40"][..]),
            (&[670.0, 670.5, 671.0], &["670", "670.5", "671"]),
            (&[0.0, 2.5, 5.0], &["0", "2.5", "5"]),
            (&[0.0, 0.25, 0.5], &["0", "0.25", "0.5"]),
            (&[0.002, 0.004], &["0.002", "0.004"]),
            (&[50.0, 100.0, 1000.0], &["50", "100", "1000"]),
            (&[7.0], &["7"]),
        ] {
            assert_eq!(labels(ticks), wanted);
        }
    }

    #[test]
    fn areas_lie_on_top_of_each_other() {
        let curve = |colour, values: [f64; 2]| Curve {
            name: String::new(),
            colour,
            points: values.into_iter().enumerate().map(|(i, v)| (i as f64, v)).collect(),
        };
        let chart = Lines {
            id: String::new(),
            x: Axis::new("", 0.0, 2.0),
            y: Axis::new("", 0.0, 10.0),
            curves: vec![curve(0, [4.0, 6.0]), curve(1, [3.0, 1.0])],
            drawn: Drawn::Stacked,
            marks: Vec::new(),
        };
        let same = |v: f64| v;
        assert_eq!(area(&chart, 0, &same, &same), "M0.0 0.0V4.0H1.0V6.0H2.0V0.0H1.0V0.0H0.0Z");
        assert_eq!(area(&chart, 1, &same, &same), "M0.0 4.0V7.0H1.0V7.0H2.0V6.0H1.0V4.0H0.0Z");
    }

    #[test]
    fn axis_numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.25, "0.25"), (50.0, "50"), (1000.0, "1000"), (2.5, "2.5"), (0.004, "0.004")]
        {
            assert_eq!(short(value), text);
        }
    }
}
