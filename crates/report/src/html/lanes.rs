//! Lanes of bars over time.

use super::chart::{Axis, BOTTOM, COLOURS, RIGHT, SIZES, Size, TOP, escape, fitted, labels, open};
use super::marks::{self, Mark};
use std::fmt::Write;

/// The bars of one lane.
pub(super) struct Lane {
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

/// A bar from one time to another.
pub(super) struct Bar {
    /// In the axis's unit.
    pub(super) from: f64,
    pub(super) until: f64,
    /// Number of its colour.
    pub(super) colour: usize,
    /// Drawn lightly: nothing happens there.
    pub(super) soft: bool,
    pub(super) title: String,
}

/// Height of a lane.
const ROW: f64 = 30.0;

/// Height of a lane if there are more than [`MANY`].
const LOW_ROW: f64 = 19.0;
const MANY: usize = 10;

/// Both drawings of lanes over a common axis, the first lane on top. Marks are drawn over all lanes. `lanes.js` lets
/// readers zoom.
pub(super) fn lanes(lanes: &[Lane], x: &Axis, marks: &[Mark]) -> String {
    SIZES.iter().map(|size| draw(lanes, x, marks, *size)).collect()
}

fn draw(lanes: &[Lane], axis: &Axis, marks: &[Mark], size: Size) -> String {
    // A drawing of lanes is as wide as the page.
    let width = if size.width > 400.0 { 2.0 * size.width } else { size.width };
    let row_height = if lanes.len() > MANY { LOW_ROW } else { ROW };
    let longest = lanes.iter().map(|lane| lane.label.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * 6.6 + 14.0).clamp(14.0, width * 0.3);
    let top = TOP + marks::room(marks);
    let (right, bottom) = (width - RIGHT, top + lanes.len() as f64 * row_height);
    let x = |value: f64| left + axis.at(value) * (right - left);
    let mut out = open(Size { width, ..size }, bottom + BOTTOM, &axis.label).replacen(
        "<svg ",
        &format!("<svg data-lanes=\"{},{}\" ", axis.low, axis.high),
        1,
    );
    out.push_str("<g class=\"times\">");
    let ticks = axis.ticks(if size.width > 400.0 { 12 } else { 4 });
    for (tick, label) in ticks.iter().zip(labels(&ticks)) {
        let at = x(*tick);
        let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom:.1}\"/>");
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 17.0);
    }
    let _ = write!(
        out,
        "</g><text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (left + right) / 2.0,
        bottom + 36.0,
        escape(&axis.label)
    );
    for (row, lane) in lanes.iter().enumerate() {
        let (name, mid) = (fitted(&lane.label, left - 8.0), top + row as f64 * row_height + row_height / 2.0 + 4.0);
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{mid:.1}\" text-anchor=\"end\">{name}</text>", left - 8.0);
    }
    let (wide, high) = (right - left, bottom - top);
    let _ = write!(
        out,
        "<svg class=\"bars\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" \
         viewBox=\"{left:.1} {top:.1} {wide:.1} {high:.1}\" preserveAspectRatio=\"none\" \
         style=\"width:{wide:.1}px;height:{high:.1}px;overflow:hidden\">"
    );
    let gap = if row_height < ROW { 2.0 } else { 4.0 };
    for (row, lane) in lanes.iter().enumerate() {
        let lane_top = top + row as f64 * row_height;
        for bar in &lane.bars {
            // A gap of half a point separates bars without a pause between them.
            let wide = (x(bar.until) - x(bar.from) - 0.5).max(0.5);
            let _ = write!(
                out,
                "<rect class=\"k{}{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                bar.colour % COLOURS,
                if bar.soft { " soft" } else { "" },
                x(bar.from),
                lane_top + gap,
                row_height - 2.0 * gap,
                escape(&bar.title)
            );
        }
    }
    // Marks are over the bars, and their labels above the plot.
    let drawn = marks::draw(marks, axis, [left, top, right, bottom]);
    let (shapes, texts): (Vec<&str>, Vec<&str>) = drawn
        .split_inclusive("/>")
        .flat_map(|part| part.split_inclusive("</text>"))
        .partition(|part| !part.contains("<text"));
    let _ = write!(out, "{}</svg><g class=\"marks\">{}</g></svg>", shapes.concat(), texts.concat());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_lies_where_its_times_say() {
        let bar = Bar { from: 25.0, until: 75.0, colour: 9, soft: false, title: "a < b".into() };
        let one = [Lane { label: "compute".into(), bars: vec![bar] }];
        let marks = [Mark { from: 50.0, until: Some(60.0), label: "leaf1 down".into() }];
        let drawn = draw(&one, &Axis::new("time, ms", 0.0, 100.0), &marks, SIZES[0]);
        let (left, right) = (7.0 * 6.6 + 14.0, 2.0 * SIZES[0].width - RIGHT);
        let wanted = format!("class=\"k1\" x=\"{:.1}\"", left + (right - left) / 4.0);
        assert!(drawn.contains(&wanted), "{drawn}");
        assert!(drawn.contains(&format!("width=\"{:.1}\" height=\"22.0\"", (right - left) / 2.0 - 0.5)), "{drawn}");
        assert!(drawn.contains("<title>a &lt; b</title>"));
        // The inner drawing zooms; the labels are outside of it.
        let (inner, labels) = drawn.split_once("<g class=\"marks\">").expect("labels of marks");
        assert!(inner.ends_with("</svg>") && inner.contains("rect class=\"mark\""), "{inner}");
        assert!(labels.contains("leaf1 down</text>") && !labels.contains("<rect"), "{labels}");
    }
}
