//! Measured times of steps, from a CSV file.

use crate::reader::Section;
use crate::scenario::Scenario;
use strandway_fabric::quantity;
use strandway_import::Problem;
use strandway_serving::timing::{Measured, Table};

const REMEDY: &str = "write lines `prefill, 1, tokens, time` and `decode, requests, context, time`, times with a unit";

/// Reads the file that `times` names. It must have times of prefill, and those of decode.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario, disaggregated: bool) -> Option<Table> {
    let name = section.text("times")?;
    let (file, text) = match scenario.read(&name) {
        Ok(read) => read,
        Err(problems) => {
            section.unread("times", problems);
            return None;
        }
    };
    let problem = |line: Option<usize>, what: String| {
        let remedy = REMEDY.to_string();
        section.sink.extend(vec![Problem { file: file.clone(), line, what, remedy, ..Problem::default() }]);
    };
    let rows = match parse(&text) {
        Ok(rows) => rows,
        Err((line, what)) => {
            problem(Some(line), what);
            return None;
        }
    };
    let table = Table::new(&rows);
    for (decode, phase) in [(false, "prefill"), (true, "decode")] {
        if !table.has(decode) {
            let pool = if disaggregated { "pool" } else { "phase" };
            problem(None, format!("has no line of {phase}, a {pool} of this service"));
        }
    }
    Some(table)
}

/// Reads lines `phase, requests, tokens, time`.
fn parse(text: &str) -> Result<Vec<Measured>, (usize, String)> {
    let mut rows = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || i == 0 && line.starts_with("phase") {
            continue;
        }
        let fail = |what: String| Err((i + 1, what));
        let fields: Vec<&str> = line.split([',', ';', '\t']).map(str::trim).collect();
        let [phase, requests, tokens, time] = fields[..] else {
            return fail(format!("`{line}` has {} fields, not four", fields.len()));
        };
        let decode = match phase {
            "prefill" => false,
            "decode" => true,
            _ => return fail(format!("`{phase}` is no phase")),
        };
        let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0 && *n < 1 << 40);
        let (Some(requests), Some(tokens)) = (number(requests), number(tokens)) else {
            return fail(format!("`{line}` needs whole numbers of requests and tokens"));
        };
        match quantity::span(time) {
            Ok(time) => rows.push(Measured { decode, requests, tokens, time }),
            Err(error) => return fail(format!("`{time}`: {}", error.what)),
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        for (text, wanted) in [
            ("phase,requests,tokens,time\nprefill, 1, 100", "3 fields"),
            ("prefil, 1, 100, 1 ms", "no phase"),
            ("prefill, 1, 0, 1 ms", "whole numbers"),
            ("decode, 1, 10, 1", "unit"),
        ] {
            let said = parse(text).expect_err(text).1;
            assert!(said.contains(wanted), "{text}: {said}");
        }
        assert_eq!(parse("prefill, 1, 100, 1 ms # one\n\ndecode, 2, 10, 2 us").expect("sound").len(), 2);
    }
}
