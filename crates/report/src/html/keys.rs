//! The keys that distinguish the rows of a comparison or sweep, in words.

use crate::lines::SEED;
use crate::rows::{Row, short_names, switched_fault};
use std::collections::{BTreeMap, BTreeSet};

/// Values longer than this may be broken anywhere.
const LONG: usize = 24;

/// The key that stands for the rows' own names.
const NAMED: &str = "run";

/// A swept key.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) short: String,
    pub(super) values: Vec<String>,
}

impl Key {
    fn with(&self, value: &str) -> String {
        format!("{}={}", self.short, tied(value))
    }
}

/// The keys that distinguish the rows, including their own names if these say more.
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    /// By row: the keys that it sets.
    pub(super) sets: Vec<BTreeMap<String, String>>,
}

impl Keys {
    pub(super) fn of(rows: &[Row]) -> Keys {
        let shorts = short_names(rows.iter().flat_map(|row| row.set.keys()).map(String::as_str));
        // Labels of sweeps consist of their keys; labels of comparisons begin with a name.
        let is_part = |text: &str, key: &str, value: &str| {
            let name = text.strip_suffix(value).and_then(|name| name.strip_suffix('='));
            name.is_some_and(|name| {
                name == last(key) || name == key || shorts.get(key).is_some_and(|short| short == name)
            })
        };
        let parts = |row: &Row| -> Vec<String> { parts_of(&row.label, &row.set) };
        let in_label = |row: &Row, key: &str| {
            row.set.get(key).is_some_and(|value| parts(row).iter().any(|text| is_part(text, key, value)))
        };
        let first = rows.first().map(|row| row.set.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        let swept: Vec<String> = first.into_iter().filter(|key| rows.iter().all(|row| in_label(row, key))).collect();
        let name_of = |row: &Row| {
            let of_key =
                |text: &String| swept.iter().any(|key| row.set.get(key).is_some_and(|value| is_part(text, key, value)));
            parts(row).into_iter().filter(|text| !of_key(text)).collect::<Vec<_>>().join(", ")
        };
        let named = rows.iter().any(|row| !name_of(row).is_empty());
        let sets: Vec<BTreeMap<String, String>> = rows
            .iter()
            .map(|row| {
                let mut set: BTreeMap<String, String> =
                    swept.iter().filter_map(|key| Some((key.clone(), row.set.get(key)?.clone()))).collect();
                if named {
                    set.insert(NAMED.to_string(), name_of(row));
                }
                set
            })
            .collect();
        let names = named.then(|| NAMED.to_string()).into_iter().chain(swept.iter().cloned());
        let keys = names.map(|name| {
            let mut values: Vec<String> = Vec::new();
            for value in sets.iter().filter_map(|set| set.get(&name)) {
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
            let short = match name.as_str() {
                NAMED if rows.iter().all(|row| row.set.contains_key("profile.name")) => "profile",
                "profile.name" => "profile",
                name => shorts.get(name).map_or(name, String::as_str),
            };
            Key { short: short.to_string(), values, name }
        });
        Keys { keys: keys.collect(), sets }
    }

    /// The values that distinguish a row from the others, in a few words.
    pub(super) fn label(&self, row: usize) -> String {
        self.values(row, |_| true).join(" · ")
    }

    /// The values except the seed that distinguish a row from the others, in a few words.
    pub(super) fn setting(&self, row: usize) -> String {
        self.values(row, |key| key.name != SEED).join(" · ")
    }

    /// The keys that stay the same within each comparison of a headline. Runs with different workloads are not ranked
    /// against each other; runs with different faults, and runs of a comparison with other different keys, are ranked
    /// only if they differ in nothing else.
    pub(super) fn held(&self) -> Vec<&Key> {
        let settings = self.settings();
        let varied = || self.keys.iter().filter(|key| key.values.len() > 1 && key.name != SEED && key.name != NAMED);
        let compares = |held: &[&Key]| self.any_alike(&settings, held);
        let workload: Vec<&Key> = varied().filter(|key| key.name.starts_with("workload")).collect();
        let faults: Vec<&Key> =
            varied().filter(|key| key.name.starts_with("workload") || key.name.starts_with("faults")).collect();
        let all: Vec<&Key> = varied().collect();
        let named = self.named();
        let choices = [all, faults, workload.clone()];
        let fitting = choices.into_iter().skip(usize::from(!named)).find(|held| compares(held));
        fitting.unwrap_or(workload)
    }

    /// One row of each setting.
    fn settings(&self) -> Vec<usize> {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        (0..self.sets.len()).filter(|row| seen.insert(self.setting(*row))).collect()
    }

    /// True if two of these rows have the same values of all these keys.
    fn any_alike(&self, rows: &[usize], keys: &[&Key]) -> bool {
        let mut seen: BTreeSet<Vec<Option<&String>>> = BTreeSet::new();
        rows.iter().any(|row| !seen.insert(keys.iter().map(|key| self.value(*row, key)).collect()))
    }

    /// True if some runs differ in nothing but what a headline compares.
    pub(super) fn compared(&self) -> bool {
        self.any_alike(&self.settings(), &self.held())
    }

    fn value(&self, row: usize, key: &Key) -> Option<&String> {
        self.sets[row].get(&key.name)
    }

    /// The values of held keys: ` at senders=32`, ` with bad optic`; empty if no key is held.
    pub(super) fn load(&self, row: usize, held: &[&Key]) -> String {
        let (faults, others): (Vec<&Key>, Vec<&Key>) = held.iter().partition(|key| switched_fault(&key.name).is_some());
        let others: Vec<String> =
            others.iter().filter_map(|key| self.value(row, key).map(|value| key.with(value))).collect();
        let others = if others.is_empty() { String::new() } else { format!(" at {}", others.join(", ")) };
        match (faults.is_empty(), self.struck(row, &faults)) {
            (true, _) => others,
            (false, struck) if struck.is_empty() => format!("{others} without a fault"),
            (false, struck) => format!("{others} with {}", struck.join(" and ")),
        }
    }

    /// The faults of a row that are switched on.
    fn struck(&self, row: usize, faults: &[&Key]) -> Vec<String> {
        let on = faults.iter().filter(|key| self.value(row, key).is_some_and(|value| value == "true"));
        on.map(|key| key.short.clone()).collect()
    }

    /// The keys in which one row differs from another, without the seed and keys that are held: `queue=1 MB, spines=8`;
    /// or the row's name.
    pub(super) fn unlike(&self, row: usize, other: usize, held: &[&Key]) -> String {
        let differs = |key: &&Key| {
            key.name != SEED
                && held.iter().all(|other| other.name != key.name)
                && self.value(row, key) != self.value(other, key)
        };
        self.words(row, &self.keys.iter().filter(differs).collect::<Vec<_>>(), true).join(", ")
    }

    /// Values of a row in words. Of faults that keys switch, those that are on.
    fn words(&self, row: usize, keys: &[&Key], with_names: bool) -> Vec<String> {
        let (faults, others): (Vec<&Key>, Vec<&Key>) = keys.iter().partition(|key| switched_fault(&key.name).is_some());
        let mut words: Vec<String> = others
            .iter()
            .filter_map(|key| {
                let value = self.value(row, key)?;
                Some(if with_names && key.name != NAMED { key.with(value) } else { tied(value) })
            })
            .collect();
        match self.struck(row, &faults) {
            _ if faults.is_empty() => {}
            struck if struck.is_empty() => words.push("no fault".to_string()),
            struck => words.push(struck.join(" and ")),
        }
        words
    }

    /// True if rows have names of their own, as in a comparison.
    pub(super) fn named(&self) -> bool {
        self.keys.iter().any(|key| key.name == NAMED)
    }

    fn values(&self, row: usize, wanted: impl Fn(&Key) -> bool) -> Vec<String> {
        let told: Vec<&Key> = self.keys.iter().filter(|key| key.values.len() > 1 && wanted(key)).collect();
        self.words(row, &told, false)
    }
}

/// The parts of a row's label: keys with their values, which may have commas themselves, and a name.
fn parts_of(label: &str, set: &BTreeMap<String, String>) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for text in label.split(", ") {
        match parts.last_mut() {
            // The value of the part before goes on behind a comma.
            Some(before) if set.values().any(|value| value.contains(", ") && goes_on(before, text, value)) => {
                before.push_str(", ");
                before.push_str(text);
            }
            _ => parts.push(text.to_string()),
        }
    }
    parts
}

fn goes_on(before: &str, text: &str, value: &str) -> bool {
    let begun = before.split_once('=').map_or(before, |(_, value)| value);
    value.starts_with(&format!("{begun}, {text}"))
}

/// A value whose numbers stay on one line with their units.
fn tied(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut before = ' ';
    let mut rest = value.chars().peekable();
    while let Some(c) = rest.next() {
        let unit = rest.peek().is_some_and(|next| next.is_ascii_alphabetic() || *next == '%');
        out.push(if c == ' ' && before.is_ascii_digit() && unit && value.len() < LONG { '\u{a0}' } else { c });
        before = c;
    }
    out
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}
