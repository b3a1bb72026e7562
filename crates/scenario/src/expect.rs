//! `[expect]`: bounds that the result must meet, so that every scenario is a test.

use crate::reader::{Sink, show};
use std::collections::BTreeSet;
use strandway_fabric::quantity;
use strandway_import::nearest;
use toml::{Table, Value};

/// A bound on one value of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The value's path in the JSON report, such as `fct_us.max`.
    pub key: String,
    /// The bound as written.
    pub text: String,
    test: Test,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    Less(f64),
    AtMost(f64),
    More(f64),
    AtLeast(f64),
    Equal(f64),
    NotEqual(f64),
    Between(f64, f64),
}

impl Bound {
    /// True if this value meets the bound. A missing value (`None`) meets no bound.
    pub fn met(&self, value: Option<f64>) -> bool {
        let Some(v) = value else { return false };
        match self.test {
            Test::Less(x) => v < x,
            Test::AtMost(x) => v <= x,
            Test::More(x) => v > x,
            Test::AtLeast(x) => v >= x,
            Test::Equal(x) => v == x,
            Test::NotEqual(x) => v != x,
            Test::Between(low, high) => (low..=high).contains(&v),
        }
    }
}

/// Reads `[expect]`: dotted keys in quotes, or nested tables.
pub(crate) fn read(sink: &Sink, root: &Table) -> Vec<Bound> {
    let mut bounds = Vec::new();
    match root.get("expect") {
        None => {}
        Some(Value::Table(table)) => walk(sink, "", table, &mut bounds),
        Some(other) => sink.add("expect", show(other), "must be a table", "write a section [expect]"),
    }
    bounds
}

fn walk(sink: &Sink, prefix: &str, table: &Table, bounds: &mut Vec<Bound>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let parsed = match value {
            Value::Table(inner) => {
                walk(sink, &key, inner, bounds);
                continue;
            }
            Value::String(text) => parse(text).map(|test| (text.clone(), test)),
            Value::Integer(n) => Ok((format!("== {n}"), Test::Equal(*n as f64))),
            Value::Float(x) if x.is_finite() => Ok((format!("== {x}"), Test::Equal(*x))),
            _ => Err("must be a bound".to_string()),
        };
        match parsed {
            Ok((text, test)) => bounds.push(Bound { key, text, test }),
            Err(what) => {
                let remedy = "write \"<= 210\", \">= 1\", \"== 0\", \"54.1 +- 2%\" or \"10 .. 20\"";
                sink.add(&format!("expect.\"{key}\""), show(value), what, remedy);
            }
        }
    }
}

fn parse(text: &str) -> Result<Test, String> {
    let text = text.trim();
    let number = |t: &str| -> Result<f64, String> {
        let t = t.trim();
        match t.replace([',', '_'], "").parse::<f64>() {
            Ok(x) if x.is_finite() => Ok(x),
            Ok(_) => Err("a bound must be finite".into()),
            Err(_) if t.is_empty() => Err("a bound needs a number".into()),
            Err(_) => Err(format!("`{t}` is no number; bounds have the unit of their key")),
        }
    };
    for (sign, make) in [
        ("<=", Test::AtMost as fn(f64) -> Test),
        (">=", Test::AtLeast),
        ("==", Test::Equal),
        ("!=", Test::NotEqual),
        ("<", Test::Less),
        (">", Test::More),
    ] {
        if let Some(rest) = text.strip_prefix(sign) {
            return number(rest).map(make);
        }
    }
    if let Some((middle, away)) = text.split_once("+-").or_else(|| text.split_once('±')) {
        let middle = number(middle)?;
        let away = away.trim();
        let away = match away.strip_suffix('%') {
            Some(_) => middle.abs() * quantity::ratio(away).map_err(|e| e.what)?,
            None => number(away)?,
        };
        return if away < 0.0 {
            Err("a tolerance cannot be negative".into())
        } else {
            Ok(Test::Between(middle - away, middle + away))
        };
    }
    if let Some((low, high)) = text.split_once("..") {
        let (low, high) = (number(low)?, number(high)?);
        return if low > high {
            Err("the first number of a range must not be above the second".into())
        } else {
            Ok(Test::Between(low, high))
        };
    }
    Err("is no bound".into())
}

/// Reports bounds on values that no report of this scenario has. `known` holds the paths of the report. `flow` returns
/// true if a flow with this name exists.
pub(crate) fn check(sink: &Sink, bounds: &[Bound], known: &BTreeSet<String>, flow: impl Fn(&str) -> bool) {
    for bound in bounds {
        if known.contains(&bound.key) {
            continue;
        }
        let key = format!("expect.\"{}\"", bound.key);
        let shown = format!("\"{}\"", bound.text);
        if let Some((name, field)) = flow_key(&bound.key) {
            if !flow(name) {
                sink.add(
                    &key,
                    shown,
                    format!("there is no flow \"{name}\""),
                    "write flow.host0->host13.fct_us, or flow.ID.fct_us",
                );
            } else if !["fct_us", "received_us"].contains(&field) {
                sink.add(&key, shown, format!("a flow has no `{field}`"), "write fct_us or received_us");
            }
            continue;
        }
        let remedy = match nearest(&bound.key, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "the keys are those of the JSON report: see docs/scenario.md".to_string(),
        };
        sink.add(&key, shown, "the report has no such value", remedy);
    }
}

/// The flow name and the field in a key `flow.NAME.FIELD`.
pub fn flow_key(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("flow.")?.rsplit_once('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(text: &str, value: f64) -> bool {
        let test = parse(text).expect(text);
        Bound { key: String::new(), text: text.into(), test }.met(Some(value))
    }

    #[test]
    fn bounds_mean_what_they_say() {
        for (text, yes, no) in [
            ("<= 210", 210.0, 210.1),
            ("< 210", 209.9, 210.0),
            (">= 1", 1.0, 0.9),
            ("> 1", 1.1, 1.0),
            ("== 0", 0.0, 1.0),
            ("!= 0", 1.0, 0.0),
            ("100 +- 2%", 102.0, 102.1),
            ("100 ± 5", 95.0, 94.0),
            ("10 .. 20", 20.0, 21.0),
            ("<= 2,550", 2550.0, 2551.0),
        ] {
            assert!(met(text, yes), "{text} {yes}");
            assert!(!met(text, no), "{text} {no}");
        }
        for wrong in ["", "210", "<=", "<= x", "<= nan", "5 .. 1", "1 +- -2", "<= 3 us"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_missing_value_meets_nothing() {
        let bound = Bound { key: "x".into(), text: "<= 1".into(), test: Test::AtMost(1.0) };
        assert!(!bound.met(None));
    }
}
