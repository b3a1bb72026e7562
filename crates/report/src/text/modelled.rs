//! Answers of the model, for the terminal.

use super::right;
use crate::answers::{Answer, Answers, Best, SchemeFacts, Vary};
use crate::grid::table;
use crate::numbers::{bytes, count, gbps, us};
use comfy_table::Cell;

/// A table of schemes (or of values by schemes), and the best scheme.
pub fn answers(answers: &Answers) -> String {
    match (answers.vary, &answers.rows[..]) {
        (Some(vary), rows @ [first, ..]) => varied(vary, rows, first),
        (None, [row]) => single(row),
        _ => String::new(),
    }
}

/// The question, without the varied quantity.
pub(crate) fn subject(row: &Answer, vary: Option<Vary>) -> String {
    let unless = |of: Vary, text: String| if vary == Some(of) { None } else { Some(text) };
    let message = match row.sites {
        Some(sites) if vary != Some(Vary::Sites) => format!("ring all-reduce of {sites} sites"),
        Some(_) => "ring all-reduce".to_string(),
        None => "message".to_string(),
    };
    let parts = [
        Some(message),
        unless(Vary::Size, size(row.bytes)),
        unless(Vary::Rate, gbps(row.rate_bps as f64 / 1e9)),
        unless(Vary::Distance, format!("round trip {}", us(Some(row.rtt_us)))),
        unless(Vary::Loss, format!("loss {} of packets with {} B", probability(row.packet_loss), count(row.payload))),
        row.receive_gbps.map(|rate| format!("received at {}", gbps(rate))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn single(row: &Answer) -> String {
    let mut text = format!("{}\n", subject(row, None));
    let of = if row.sites.is_some() { " per step" } else { "" };
    text.push_str(&format!(
        "{} chunks{of}, {} of them lost; without losses {}; BDP {}\n",
        count(row.chunks),
        probability(row.chunk_loss),
        us(Some(row.ideal_us)),
        bytes((row.rate_bps as f64 / 8e6 * row.rtt_us) as u64),
    ));
    let mut table = table();
    table.set_header(
        ["scheme", "mean", "slowdown", "p99.9", "slowdown", "fallback", "overhead", "cores"].map(Cell::new),
    );
    for s in &row.schemes {
        table.add_row(vec![
            Cell::new(&s.scheme),
            right(us(Some(s.mean_us))),
            right(slowdown(s.mean_slowdown)),
            right(us(Some(s.p999_us))),
            right(slowdown(s.p999_slowdown)),
            right(s.fallback.map_or("–".into(), probability)),
            right(format!("{:.1} %", 100.0 * s.overhead)),
            right(s.encode_cores.map_or("–".into(), |cores| format!("{cores:.1}"))),
        ]);
    }
    text.push_str(&format!("{table}\n"));
    text.push_str(&format!("Best by mean: {}\nBest by p99.9: {}\n", verdict(&row.best_mean), verdict(&row.best_p999)));
    text
}

fn varied(vary: Vary, rows: &[Answer], first: &Answer) -> String {
    let mut text = format!("{}; slowdown by mean / by p99.9\n", subject(first, Some(vary)));
    let mut table = table();
    let names = first.schemes.iter().map(|s| s.scheme.as_str());
    let head = [vary.word(), "ideal"].into_iter().chain(names).chain(["best by mean", "best by p99.9"]);
    table.set_header(head.map(Cell::new));
    let both = |s: &SchemeFacts| right(format!("{} / {}", slowdown(s.mean_slowdown), slowdown(s.p999_slowdown)));
    for row in rows {
        let mut cells = vec![right(&row.at), right(us(Some(row.ideal_us)))];
        cells.extend(row.schemes.iter().map(both));
        cells.extend([&row.best_mean, &row.best_p999].map(|best| Cell::new(short_verdict(best))));
        table.add_row(cells);
    }
    text.push_str(&format!("{table}\n"));
    text
}

/// The best scheme, and its lead.
pub(crate) fn verdict(best: &Best) -> String {
    match &best.next {
        None => best.scheme.clone(),
        Some(next) if is_tie(best) => format!("{} and {next} alike", best.scheme),
        Some(next) => format!("{}, {} ahead of {next}", best.scheme, percent(best.margin)),
    }
}

/// The best scheme and its lead, for a table cell.
pub(crate) fn short_verdict(best: &Best) -> String {
    if is_tie(best) { "no difference".to_string() } else { format!("{} by {}", best.scheme, percent(best.margin)) }
}

/// Whether the next best scheme is as good, to the digits that are shown.
pub(crate) fn is_tie(best: &Best) -> bool {
    best.next.is_some() && best.margin < 5e-4
}

fn percent(share: f64) -> String {
    if share < 0.1 { format!("{:.1} %", 100.0 * share) } else { format!("{:.0} %", 100.0 * share) }
}

pub(crate) fn slowdown(value: f64) -> String {
    if value < 9.9995 { format!("{value:.3}") } else { format!("{value:.2}") }
}

/// A probability with a suitable number of digits.
pub(crate) fn probability(value: f64) -> String {
    match value {
        v if v < 1e-30 => "0".to_string(),
        v if v < 1e-3 => {
            // At most two digits: 1e-5, 2.7e-25.
            let text = format!("{v:.1e}");
            text.replace(".0e", "e")
        }
        v => {
            let text = format!("{v:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

/// Bytes, in the largest binary unit that gives a whole number.
fn size(value: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.into_iter().find(|(_, shift)| value > 0 && value.is_multiple_of(1 << shift));
    whole.map_or_else(|| bytes(value), |(unit, shift)| format!("{} {unit}", value >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_short() {
        for (value, text) in
            [(0.0, "0"), (1e-31, "0"), (2.72e-25, "2.7e-25"), (1e-5, "1e-5"), (0.0127, "0.013"), (1.0, "1")]
        {
            assert_eq!(probability(value), text);
        }
    }

    #[test]
    fn sizes_are_binary_where_they_are_whole() {
        for (value, text) in
            [(128 << 20, "128 MiB"), (3 << 30, "3 GiB"), (1_000_000, "1.00 MB"), (0, "0 B"), (512, "512 B")]
        {
            assert_eq!(size(value), text);
        }
    }
}
