//! Lanes of bars over time.

use super::chart::{Axis, BOTTOM, COLOURS, RIGHT, SIZES, Size, TOP, escape, labels, open};
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
    pub(super) title: String,
}

/// Both drawings of lanes over a common axis, the first lane on top.
pub(super) fn lanes(lanes: &[Lane], x: &Axis) -> String {
    SIZES.iter().map(|size| draw(lanes, x, *size)).collect()
}

fn draw(lanes: &[Lane], axis: &Axis, size: Size) -> String {
    const ROW: f64 = 30.0;
    // A drawing of lanes is as wide as the page.
    let width = if size.width > 400.0 { 2.0 * size.width } else { size.width };
    let longest = lanes.iter().map(|lane| lane.label.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * 6.6 + 14.0).clamp(14.0, width * 0.3);
    let (right, bottom) = (width - RIGHT, TOP + lanes.len() as f64 * ROW);
    let x = |value: f64| left + axis.at(value) * (right - left);
    let mut out = open(Size { width, ..size }, bottom + BOTTOM, &axis.label);
    let ticks = axis.ticks(if size.width > 400.0 { 12 } else { 4 });
    for (tick, label) in ticks.iter().zip(labels(&ticks)) {
        let at = x(*tick);
        let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom:.1}\"/>");
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 17.0);
    }
    let _ = write!(
        out,
        "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (left + right) / 2.0,
        bottom + 36.0,
        escape(&axis.label)
    );
    for (row, lane) in lanes.iter().enumerate() {
        let top = TOP + row as f64 * ROW;
        let (name, mid) = (escape(&lane.label), top + ROW / 2.0 + 4.0);
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{mid:.1}\" text-anchor=\"end\">{name}</text>", left - 8.0);
        for bar in &lane.bars {
            // A gap of half a point separates bars without a pause between them.
            let wide = (x(bar.until) - x(bar.from) - 0.5).max(0.5);
            let _ = write!(
                out,
                "<rect class=\"k{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                bar.colour % COLOURS,
                x(bar.from),
                top + 4.0,
                ROW - 8.0,
                escape(&bar.title)
            );
        }
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_lies_where_its_times_say() {
        let bar = Bar { from: 25.0, until: 75.0, colour: 9, title: "a < b".into() };
        let one = [Lane { label: "compute".into(), bars: vec![bar] }];
        let drawn = draw(&one, &Axis::new("time, ms", 0.0, 100.0), SIZES[0]);
        let (left, right) = (7.0 * 6.6 + 14.0, 2.0 * SIZES[0].width - RIGHT);
        let wanted = format!("class=\"k1\" x=\"{:.1}\"", left + (right - left) / 4.0);
        assert!(drawn.contains(&wanted), "{drawn}");
        assert!(drawn.contains(&format!("width=\"{:.1}\" height=\"22.0\"", (right - left) / 2.0 - 0.5)), "{drawn}");
        assert!(drawn.contains("<title>a &lt; b</title>"));
    }
}
