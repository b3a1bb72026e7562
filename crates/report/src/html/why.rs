//! The causes of times on a page: a bar per flow, class and collective, divided by cause.

use super::{chart::escape, duration, figure};
use crate::WhyFacts;
use crate::why::Cause;
use std::fmt::Write;

/// The name and the colour of each cause in bars and legend, in the order of [`Cause::ALL`].
const LOOK: [(&str, &str); Cause::ALL.len()] = [
    ("at line rate", "#2e7d32"),
    ("NIC sends other flows", "#81a784"),
    ("on the way", "#90a4ae"),
    ("window", "#f9a825"),
    ("packet numbers", "#c0a000"),
    ("incast", "#d84315"),
    ("one link", "#ad1457"),
    ("slow link", "#6a1b9a"),
    ("many links", "#8d6e63"),
    ("paused", "#1565c0"),
    ("sent again", "#00838f"),
    ("timeouts", "#37474f"),
    ("waits for others", "#9e9d24"),
    ("earlier messages", "#5c6bc0"),
];

/// Limit on the single flows.
const FLOWS: usize = 3;

/// The figure; empty if the run recorded no accounts.
pub(super) fn chart(why: &[WhyFacts]) -> String {
    let mut told: Vec<&WhyFacts> = why.iter().filter(|w| w.time_us.is_some()).collect();
    if told.is_empty() {
        return String::new();
    }
    // Collectives, classes and chains say more than single flows, of which the slowest ones are often alike.
    let rank = |why: &&WhyFacts| match why.kind.as_str() {
        "collective" => 0,
        "chain" => 1,
        "class" => 2,
        _ => 3,
    };
    told.sort_by_key(rank);
    let mut flows = 0;
    told.retain(|why| {
        flows += usize::from(rank(why) == 3);
        rank(why) < 3 || flows <= FLOWS
    });
    let left = flows.saturating_sub(FLOWS);
    let mut out = String::from("<div class=\"why\">");
    let mut seen = [false; Cause::ALL.len()];
    for why in told {
        let _ = write!(
            out,
            "<div style=\"margin:.5em 0\"><div><b>{}</b> {}</div><svg viewBox=\"0 0 1000 14\" preserveAspectRatio=\"none\" \
             style=\"width:100%;height:14px;display:block\" role=\"img\" aria-label=\"{}\">",
            escape(&why.what),
            if why.kind == "class" { format!("{} in sum", duration(why.time_us)) } else { duration(why.time_us) },
            escape(&why.sentence)
        );
        let mut x = 0.0;
        for (i, ((_, name), (label, colour))) in Cause::ALL.iter().zip(LOOK).enumerate() {
            let width = 1000.0 * why.shares.get(*name).copied().flatten().unwrap_or(0.0);
            if width < 0.5 {
                continue;
            }
            seen[i] = true;
            let _ = write!(
                out,
                "<rect x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"><title>{label}: {:.1} %</title></rect>",
                width / 10.0
            );
            x += width;
        }
        let _ = write!(out, "</svg><p class=\"sub\">{}.</p></div>", escape(&why.sentence));
    }
    out.push_str("<p class=\"sub\">");
    for ((label, colour), _) in LOOK.iter().zip(seen).filter(|(_, seen)| *seen) {
        let _ = write!(
            out,
            "<span style=\"white-space:nowrap;margin-right:1em\"><span style=\"display:inline-block;width:.8em;height:.8em;\
             background:{colour}\"></span> {label}</span>"
        );
    }
    out.push_str("</p></div>");
    if left > 0 {
        let _ = write!(out, "<p class=\"sub\">The next {left} slowest flows are in the JSON report.</p>");
    }
    figure("Where its time went", "Share of the time by cause", &out)
}
