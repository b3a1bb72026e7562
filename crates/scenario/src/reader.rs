//! Reads a TOML table and collects all its problems instead of stopping at the first one.

use std::cell::RefCell;
use std::fmt::Display;
use strandway_fabric::quantity::{self, QuantityError, Size};
use strandway_import::{Problem, Problems, nearest};
use strandway_proto::units::{Bytes, Rate, Span};
use toml::{Table, Value};

/// Collects problems while a scenario is read.
#[derive(Debug)]
pub struct Sink {
    file: String,
    problems: RefCell<Vec<Problem>>,
}

impl Sink {
    /// An empty sink for the problems of a file, named as the user named it.
    pub fn new(file: &str) -> Sink {
        Sink { file: file.to_string(), problems: RefCell::new(Vec::new()) }
    }

    /// Adds a problem: the dotted key, the value as written, why it is wrong, and a remedy.
    pub fn add(&self, key: &str, value: impl Display, what: impl Display, remedy: impl Display) {
        self.problems.borrow_mut().push(Problem {
            file: self.file.clone(),
            line: None,
            key: key.to_string(),
            value: shorten(&value.to_string()),
            what: what.to_string(),
            remedy: remedy.to_string(),
        });
    }

    /// Adds problems that another reader found.
    pub fn extend(&self, problems: Vec<Problem>) {
        self.problems.borrow_mut().extend(problems);
    }

    /// Number of problems so far.
    pub fn count(&self) -> usize {
        self.problems.borrow().len()
    }

    /// True if there are no problems so far.
    pub fn is_empty(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// Takes all problems out, in the order in which they were added.
    pub fn take(&self) -> Vec<Problem> {
        self.problems.take()
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 60 {
        return text.to_string();
    }
    let start: String = text.chars().take(57).collect();
    format!("{start}...")
}

/// One table of a scenario. Every getter marks its key as known. It returns `None` if the key is absent or wrong; the
/// problem of a wrong key goes into the [`Sink`].
pub struct Section<'a> {
    /// Takes the problems of this table.
    pub sink: &'a Sink,
    name: String,
    table: Option<&'a Table>,
    known: RefCell<Vec<&'static str>>,
    /// Number of problems before this section.
    before: usize,
}

impl<'a> Section<'a> {
    /// A table with its dotted name, which may be empty; `None` reads like an empty table.
    pub fn new(sink: &'a Sink, name: impl Into<String>, table: Option<&'a Table>) -> Section<'a> {
        Section { sink, name: name.into(), table, known: RefCell::new(Vec::new()), before: sink.count() }
    }

    /// The section `name` of a whole scenario; empty if the scenario does not have it.
    pub fn of(sink: &'a Sink, root: &'a Table, name: &str) -> Section<'a> {
        let table = match root.get(name) {
            None => None,
            Some(Value::Table(table)) => Some(table),
            Some(other) => {
                sink.add(name, show(other), "must be a table", format!("write a section [{name}]"));
                None
            }
        };
        Section::new(sink, name, table)
    }

    /// The dotted name of a key of this table.
    pub fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_string() } else { format!("{}.{key}", self.name) }
    }

    /// The dotted name of this table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a key, of any type.
    pub fn raw(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().push(key);
        self.table?.get(key)
    }

    /// True if the key is present, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|t| t.contains_key(key))
    }

    /// Reports a problem with a key.
    pub fn wrong(&self, key: &str, what: impl Display, remedy: impl Display) {
        let value = self.table.and_then(|t| t.get(key)).map(show).unwrap_or_default();
        self.sink.add(&self.path(key), value, what, remedy);
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> Option<String> {
        match self.raw(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong(key, "must be text", "put it between quotes");
                None
            }
        }
    }

    /// Reports that the file which a key names cannot be read, with the key and its value.
    pub(crate) fn unread(&self, key: &str, problems: Problems) {
        let written = self.table.and_then(|t| t.get(key)).and_then(Value::as_str);
        for problem in problems.0 {
            let file = if written == Some(problem.file.as_str()) { String::new() } else { problem.file + " " };
            self.wrong(key, file + &problem.what, problem.remedy);
        }
    }

    /// True if the key is this text.
    pub fn text_is(&self, key: &'static str, wanted: &str) -> bool {
        let known = self.table.and_then(|table| table.get(key)).and_then(Value::as_str) == Some(wanted);
        if known {
            self.raw(key);
        }
        known
    }

    /// A text that must be one of `names`.
    pub fn choice(&self, key: &'static str, names: &[&'static str]) -> Option<&'static str> {
        let text = self.text(key)?;
        match names.iter().find(|n| **n == text) {
            Some(name) => Some(name),
            None => {
                let near = nearest(&text, names.iter().copied());
                let remedy = match near {
                    Some(name) => format!("did you mean \"{name}\"? Known: {}", names.join(", ")),
                    None => format!("known: {}", names.join(", ")),
                };
                self.wrong(key, "is not known", remedy);
                None
            }
        }
    }

    /// A truth value.
    pub fn flag(&self, key: &'static str) -> Option<bool> {
        match self.raw(key)? {
            Value::Boolean(flag) => Some(*flag),
            _ => {
                self.wrong(key, "must be true or false", "write it without quotes");
                None
            }
        }
    }

    /// A whole number from `low` to `high`, both included.
    pub fn count(&self, key: &'static str, low: u64, high: u64) -> Option<u64> {
        let value = self.raw(key)?;
        let range = format!("write a whole number from {low} to {high}");
        match value {
            Value::Integer(n) if u64::try_from(*n).is_ok_and(|n| (low..=high).contains(&n)) => Some(*n as u64),
            Value::Integer(n) if *n < 0 => {
                self.wrong(key, "cannot be negative", range);
                None
            }
            Value::Integer(n) if (*n as u64) < low => {
                self.wrong(key, format!("must be at least {low}"), range);
                None
            }
            Value::Integer(_) => {
                self.wrong(key, format!("must be at most {high}"), range);
                None
            }
            _ => {
                self.wrong(key, "must be a whole number", format!("{range}, without quotes, unit or point"));
                None
            }
        }
    }

    /// A number without a unit, or a percentage in quotes, from `low` to `high`.
    pub fn ratio(&self, key: &'static str, low: f64, high: f64) -> Option<f64> {
        let value = match self.raw(key)? {
            Value::Float(x) => *x,
            Value::Integer(n) => *n as f64,
            Value::String(text) => self.quantity(key, quantity::ratio(text))?,
            _ => {
                self.wrong(key, "must be a number", format!("write a number from {low} to {high}"));
                return None;
            }
        };
        if value.is_finite() && (low..=high).contains(&value) {
            return Some(value);
        }
        let what = if value.is_finite() { "is out of range" } else { "must be a finite number" };
        self.wrong(key, what, format!("write a number from {low} to {high}"));
        None
    }

    /// A duration with its unit.
    pub fn span(&self, key: &'static str) -> Option<Span> {
        self.unit(key, quantity::span, "us")
    }

    /// A rate with its unit, above zero.
    pub fn rate(&self, key: &'static str) -> Option<Rate> {
        let rate = self.unit(key, quantity::rate, "Gbps")?;
        if rate.0 == 0 {
            self.wrong(key, "a rate must be above zero", "write, say, \"400 Gbps\"");
            return None;
        }
        Some(rate)
    }

    /// A number of bytes with its unit.
    pub fn bytes(&self, key: &'static str) -> Option<Bytes> {
        self.unit(key, quantity::bytes, "MB")
    }

    /// A size with its unit: bytes, or a multiple that the fabric or the profile defines.
    pub fn size(&self, key: &'static str) -> Option<Size> {
        self.unit(key, quantity::size, "MB")
    }

    /// A distance in metres.
    pub fn metres(&self, key: &'static str) -> Option<u64> {
        self.unit(key, quantity::distance, "km")
    }

    fn unit<T>(&self, key: &'static str, parse: fn(&str) -> Result<T, QuantityError>, unit: &str) -> Option<T> {
        match self.raw(key)? {
            Value::String(text) => self.quantity(key, parse(text)),
            Value::Float(x) if !x.is_finite() => {
                self.wrong(key, "must be a finite number with a unit", format!("write, say, \"2 {unit}\""));
                None
            }
            number @ (Value::Integer(_) | Value::Float(_)) => {
                let remedy = quantity::without_unit(&show(number), unit);
                self.wrong(key, "needs a unit", remedy);
                None
            }
            _ => {
                self.wrong(key, "must be a number with a unit, in quotes", format!("write, say, \"2 {unit}\""));
                None
            }
        }
    }

    fn quantity<T>(&self, key: &str, result: Result<T, QuantityError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(e) => {
                self.wrong(key, e.what, e.remedy);
                None
            }
        }
    }

    /// The keys that getters have asked for.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        self.known.borrow().clone()
    }

    /// Like [`Section::finish`], for sections that are not read further after the first mistake. Then the remaining
    /// getters were not called, so only keys outside `all` are certainly unknown; without a mistake `all` is not read.
    pub fn finish_knowing(self, all: impl IntoIterator<Item = &'static str>) {
        if self.sink.count() > self.before {
            self.known.borrow_mut().extend(all);
        }
        self.finish();
    }

    /// Reports every key that no getter asked for.
    pub fn finish(self) {
        let Some(table) = self.table else { return };
        let known = self.known.borrow();
        for key in table.keys() {
            if known.contains(&key.as_str()) {
                continue;
            }
            let remedy = match nearest(key, known.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("keys here: {}", sorted(&known).join(", ")),
            };
            self.sink.add(&self.path(key), show(&table[key]), "unknown key", remedy);
        }
    }
}

fn sorted(names: &[&'static str]) -> Vec<&'static str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    names
}

/// A TOML value as the file writes it.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{text}\""),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Boolean(b) => b.to_string(),
        Value::Datetime(d) => d.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Table(_) => "{...}".to_string(),
    }
}
