//! The parts of a set: cells, which are scenarios that run once per seed; values that are calculated from cells; and
//! rows, which compare a value with a published one.

use super::modelled::Modelled;
use std::collections::{BTreeMap, BTreeSet};
use strandway_import::Problems;
use strandway_lab::Scenario;
use strandway_report::reproduction::{Bound, ChartKind, Source};

/// Tolerance of the slowest flow, and of values calculated from it, against a reference run. Sheets of STrack and
/// PRIME.
pub(super) const SLOWEST: f64 = 0.05;

/// Tolerance of the mean flow against a reference run. Sheets of STrack and PRIME.
pub(super) const MEAN: f64 = 0.02;

/// A scenario compiled into the program, so that it is available in every directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Template {
    /// Its path in the repository.
    pub(super) file: &'static str,
    pub(super) text: &'static str,
}

/// The template with this name in `scenarios/figures`.
macro_rules! template {
    ($name:literal) => {
        $crate::table::Template {
            file: concat!("scenarios/figures/", $name),
            text: include_str!(concat!("../figures/", $name)),
        }
    };
}
pub(super) use template;

/// One scenario with some keys set, which runs once for every seed from 1 on. Equal cells run only once, even if
/// several rows use them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    template: Template,
    set: BTreeMap<String, String>,
    seeds: u64,
}

impl Cell {
    /// The template without changes, with seeds 1 to 5.
    pub(super) fn new(template: Template) -> Cell {
        Cell { template, set: BTreeMap::new(), seeds: 5 }
    }

    /// Sets a key, like `--set`.
    pub(super) fn set(mut self, key: &str, value: impl ToString) -> Cell {
        self.set.insert(key.to_string(), value.to_string());
        self
    }

    /// Sets several keys.
    pub(super) fn with(self, set: &[(&str, &str)]) -> Cell {
        set.iter().fold(self, |cell, (key, value)| cell.set(key, value))
    }

    /// Sets the seeds to 1 up to `seeds`.
    pub(super) fn seeds(mut self, seeds: u64) -> Cell {
        self.seeds = seeds;
        self
    }

    /// The seeds of its runs.
    pub(super) fn all_seeds(&self) -> impl Iterator<Item = u64> + use<> {
        1..=self.seeds
    }

    /// The scenario with one seed.
    ///
    /// # Errors
    /// If the template or a key is wrong; a test checks that none is.
    pub(super) fn scenario(&self, seed: u64) -> Result<Scenario, Problems> {
        let mut scenario = Scenario::from_text(self.template.file, self.template.text)?;
        scenario.remove("sweep");
        for (key, value) in &self.set {
            scenario.set(&format!("{key}={value}"))?;
        }
        scenario.set(&format!("run.seed={seed}"))?;
        Ok(scenario)
    }

    /// The command line of its runs, one row per seed.
    pub(super) fn command(&self) -> String {
        let mut command = format!("strandway sweep {}", self.template.file);
        let seeds: Vec<String> = self.all_seeds().map(|s| s.to_string()).collect();
        let seeds = format!("sweep.run.seed=[{}]", seeds.join(", "));
        for set in self.set.iter().map(|(key, value)| format!("{key}={value}")).chain([seeds]) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-=/".contains(c);
            let quote = if set.chars().all(plain) { "" } else { "'" };
            command.push_str(&format!(" --set {quote}{set}{quote}"));
        }
        command
    }
}

/// A source of a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaf<'a> {
    /// A cell, and the key of its report.
    Cell(&'a Cell, &'static str),
    /// A model.
    Model(&'a Modelled),
}

/// A number calculated from cells or models.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// The value of a key in the report, mean over the seeds: for `fct_us.max`, the mean of the per-seed maxima.
    Of(Cell, &'static str),
    /// A number that a model calculates.
    Model(Box<Modelled>),
    /// The first value divided by the second one.
    Ratio(Box<Value>, Box<Value>),
    /// By how many percent the first value is below the second one.
    Gain(Box<Value>, Box<Value>),
    /// A number plus a multiple of the value: first the number, then the factor.
    Linear(f64, f64, Box<Value>),
    /// The largest of several values; the row's note names it.
    Best(Vec<(String, Value)>),
    /// The smallest of several values; the row's note names it.
    Least(Vec<(String, Value)>),
    /// The mean of several values.
    Mean(Vec<(String, Value)>),
    /// The probability that at least one of several independent events happens; the row's note names the likeliest.
    Any(Vec<(String, Value)>),
    /// How many of several values are at least this large; the row's note names the others.
    Reach(f64, Vec<(String, Value)>),
    /// The number of pairs whose order differs from the order of their published values. Pairs whose published values
    /// are within 2 % of each other do not count.
    Disorder(Vec<(&'static str, f64, Value)>),
}

impl Value {
    /// The completion time of the slowest flow.
    pub(super) fn slowest(cell: &Cell) -> Value {
        Value::Of(cell.clone(), "fct_us.max")
    }

    /// The mean completion time.
    pub(super) fn mean(cell: &Cell) -> Value {
        Value::Of(cell.clone(), "fct_us.mean")
    }

    /// A number that a model calculates.
    pub(super) fn model(modelled: Modelled) -> Value {
        Value::Model(Box::new(modelled))
    }

    /// This value divided by another one.
    pub(super) fn over(self, other: Value) -> Value {
        Value::Ratio(Box::new(self), Box::new(other))
    }

    /// By how many percent this value is below another one.
    pub(super) fn below(self, other: Value) -> Value {
        Value::Gain(Box::new(self), Box::new(other))
    }

    /// Calls `visit` for every cell and model in it, in order.
    pub(super) fn visit<'a>(&'a self, visit: &mut dyn FnMut(Leaf<'a>)) {
        match self {
            Value::Of(cell, key) => visit(Leaf::Cell(cell, key)),
            Value::Model(modelled) => visit(Leaf::Model(modelled)),
            Value::Linear(_, _, of) => of.visit(visit),
            Value::Ratio(a, b) | Value::Gain(a, b) => {
                a.visit(visit);
                b.visit(visit);
            }
            Value::Best(of) | Value::Least(of) | Value::Mean(of) | Value::Any(of) | Value::Reach(_, of) => {
                of.iter().for_each(|(_, v)| v.visit(visit))
            }
            Value::Disorder(of) => of.iter().for_each(|(_, _, v)| v.visit(visit)),
        }
    }

    /// Calculates the number from those of cells and models, with a note. `None` if a number that it needs is missing.
    pub(super) fn calculate(&self, of: &dyn Fn(Leaf<'_>) -> Option<f64>) -> (Option<f64>, String) {
        let two = |a: &Value, b: &Value| Some((a.calculate(of).0?, b.calculate(of).0?));
        let all = |values: &[(String, Value)]| -> Option<Vec<(String, f64)>> {
            values.iter().map(|(name, v)| Some((name.clone(), v.calculate(of).0?))).collect()
        };
        match self {
            Value::Of(cell, key) => (of(Leaf::Cell(cell, key)), String::new()),
            Value::Model(modelled) => (of(Leaf::Model(modelled)), String::new()),
            Value::Ratio(a, b) => (two(a, b).map(|(a, b)| a / b), String::new()),
            Value::Gain(a, b) => (two(a, b).map(|(a, b)| 100.0 * (1.0 - a / b)), String::new()),
            Value::Linear(constant, factor, value) => {
                (value.calculate(of).0.map(|value| constant + factor * value), String::new())
            }
            Value::Best(values) => extreme(all(values), "best", |a, b| b > a),
            Value::Least(values) => extreme(all(values), "least", |a, b| b < a),
            Value::Mean(values) => {
                let all = all(values);
                let mean = all.as_ref().map(|all| all.iter().map(|(_, value)| value).sum::<f64>() / all.len() as f64);
                (mean, all.map_or(String::new(), |all| format!("mean of {}", all.len())))
            }
            Value::Any(values) => {
                let all = all(values);
                let none = all.as_ref().map(|all| all.iter().map(|(_, value)| 1.0 - value).product::<f64>());
                (none.map(|none| 1.0 - none), extreme(all, "likeliest", |a, b| b > a).1)
            }
            Value::Reach(least, values) => match all(values) {
                Some(values) => {
                    let short: Vec<String> =
                        values.iter().filter(|v| v.1 < *least).map(|(n, v)| format!("{n} ({v:.1})")).collect();
                    let reached = values.len() - short.len();
                    let others = if short.is_empty() { String::new() } else { format!("; not {}", short.join(", ")) };
                    (Some(reached as f64), format!("{reached} of {}{others}", values.len()))
                }
                None => (None, String::new()),
            },
            Value::Disorder(values) => {
                let ours: Option<Vec<f64>> = values.iter().map(|(_, _, v)| v.calculate(of).0).collect();
                let Some(ours) = ours else { return (None, String::new()) };
                let mut wrong = Vec::new();
                for (i, a) in values.iter().enumerate() {
                    for (j, b) in values.iter().enumerate() {
                        if a.1 < b.1 * 0.98 && ours[i] >= ours[j] {
                            wrong.push(format!("{} ({:.1}) should be below {} ({:.1})", a.0, ours[i], b.0, ours[j]));
                        }
                    }
                }
                (Some(wrong.len() as f64), wrong.join("; "))
            }
        }
    }
}

/// The best value and its name; the first one of equal values.
fn extreme(values: Option<Vec<(String, f64)>>, word: &str, better: impl Fn(f64, f64) -> bool) -> (Option<f64>, String) {
    let Some(values) = values else { return (None, String::new()) };
    let of = values.len();
    match values.into_iter().reduce(|a, b| if better(a.1, b.1) { b } else { a }) {
        Some((name, value)) => (Some(value), format!("{word} of {of}: {name}")),
        None => (None, String::new()),
    }
}

/// The description of a row.
#[derive(Clone, Debug)]
pub(super) struct RowSpec {
    pub(super) id: String,
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) value: Value,
    pub(super) published: Option<f64>,
    pub(super) source: Source,
    pub(super) bound: Bound,
    pub(super) tolerance: f64,
    pub(super) note: String,
    pub(super) full: bool,
    /// True if the reference number belongs to another setting: this row's own number was not published.
    pub(super) sibling: bool,
}

impl RowSpec {
    /// A row without a reference number. `id` does not contain the set's name.
    pub(super) fn new(id: impl Into<String>, what: impl Into<String>, unit: &'static str, value: Value) -> RowSpec {
        RowSpec {
            id: id.into(),
            what: what.into(),
            unit,
            value,
            published: None,
            source: Source::Ours,
            bound: Bound::None,
            tolerance: 0.0,
            note: String::new(),
            full: false,
            sibling: false,
        }
    }

    /// Our value must be within `tolerance` of `value`.
    pub(super) fn near(self, value: f64, source: Source, tolerance: f64) -> RowSpec {
        RowSpec { published: Some(value), source, bound: Bound::Near, tolerance, ..self }
    }

    /// Our value must be at least `value` minus `tolerance`: for claims of "up to".
    pub(super) fn at_least(self, value: f64, source: Source, tolerance: f64) -> RowSpec {
        RowSpec { bound: Bound::AtLeast, ..self.near(value, source, tolerance) }
    }

    /// Our value must be at most `value`.
    pub(super) fn at_most(self, value: f64, source: Source) -> RowSpec {
        RowSpec { bound: Bound::AtMost, ..self.near(value, source, 0.0) }
    }

    /// Shows `value` next to ours without a verdict. The row needs a note with the reason.
    pub(super) fn published(self, value: f64, source: Source) -> RowSpec {
        RowSpec { published: Some(value), source, ..self }
    }

    /// Shows the value of another algorithm or setting next to ours, without a verdict: this row's own number was
    /// not published. Such rows are counted as comparisons.
    pub(super) fn sibling(self, value: f64, source: Source) -> RowSpec {
        RowSpec { sibling: true, ..self.published(value, source) }
    }

    /// A note for the reader.
    pub(super) fn note(self, note: impl Into<String>) -> RowSpec {
        RowSpec { note: note.into(), ..self }
    }

    /// Marks a slow row; it runs only on request.
    pub(super) fn full(self) -> RowSpec {
        RowSpec { full: true, ..self }
    }
}

/// The description of a chart. It is drawn if rows need all of its cells.
#[derive(Clone, Debug)]
pub(super) struct ChartSpec {
    pub(super) kind: ChartKind,
    pub(super) title: String,
    /// The section next to whose table it is shown; `None` for the top of the page.
    pub(super) section: Option<String>,
    /// Names and cells; the chart shows the first seed.
    pub(super) cells: Vec<(String, Cell)>,
}

/// The rows below one heading.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) rows: Vec<RowSpec>,
}

/// All sections and charts of a set.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) sections: Vec<Section>,
    pub(super) charts: Vec<ChartSpec>,
}

impl Table {
    /// Begins a section.
    pub(super) fn section(&mut self, title: impl Into<String>) {
        self.sections.push(Section { title: title.into(), rows: Vec::new() });
    }

    /// Adds a row to the newest section.
    pub(super) fn row(&mut self, row: RowSpec) {
        if self.sections.is_empty() {
            self.section("");
        }
        if let Some(section) = self.sections.last_mut() {
            section.rows.push(row);
        }
    }

    /// Adds a chart at the top of the page.
    pub(super) fn chart(&mut self, kind: ChartKind, title: &str, cells: Vec<(String, Cell)>) {
        self.charts.push(ChartSpec { kind, title: title.to_string(), section: None, cells });
    }

    /// Adds a chart next to the table of the newest section.
    pub(super) fn chart_here(&mut self, kind: ChartKind, title: &str, cells: &[(&str, &Cell)]) {
        let section = self.sections.last().map(|s| s.title.clone());
        let cells = cells.iter().map(|(name, cell)| ((*name).to_string(), (*cell).clone())).collect();
        self.charts.push(ChartSpec { kind, title: title.to_string(), section, cells });
    }

    /// The cells of all rows, with the report keys that are needed from each.
    pub(super) fn cells(&self) -> BTreeMap<&Cell, BTreeSet<&'static str>> {
        let mut cells: BTreeMap<&Cell, BTreeSet<&'static str>> = BTreeMap::new();
        for row in self.sections.iter().flat_map(|s| &s.rows) {
            row.value.visit(&mut |leaf| {
                if let Leaf::Cell(cell, key) = leaf {
                    cells.entry(cell).or_default().insert(key);
                }
            });
        }
        cells
    }

    /// The models of all rows.
    pub(super) fn models(&self) -> BTreeSet<&Modelled> {
        let mut models = BTreeSet::new();
        for row in self.sections.iter().flat_map(|s| &s.rows) {
            row.value.visit(&mut |leaf| {
                if let Leaf::Model(modelled) = leaf {
                    models.insert(modelled);
                }
            });
        }
        models
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A different cell for every number: its number of seeds.
    fn cell(number: u64) -> Cell {
        Cell::new(template!("prime.toml")).seeds(number)
    }

    fn value(number: u64) -> Value {
        Value::slowest(&cell(number))
    }

    /// The number of a cell is its number of seeds; a cell with 99 seeds has no number.
    fn of(leaf: Leaf<'_>) -> Option<f64> {
        let Leaf::Cell(cell, _) = leaf else { return None };
        (cell.seeds != 99).then_some(cell.seeds as f64)
    }

    fn named(numbers: &[u64]) -> Vec<(String, Value)> {
        numbers.iter().map(|n| (format!("cell {n}"), value(*n))).collect()
    }

    #[test]
    fn values_are_calculated_from_cells() {
        let half = || ("a".to_string(), value(1).over(value(2)));
        for (made, number, remark) in [
            (value(7), Some(7.0), ""),
            (value(6).over(value(4)), Some(1.5), ""),
            (value(3).below(value(4)), Some(25.0), ""),
            (value(5).below(value(4)), Some(-25.0), ""),
            (Value::Linear(1.0, 7.0, Box::new(value(2))), Some(15.0), ""),
            (Value::Linear(1.0, 7.0, Box::new(value(99))), None, ""),
            (value(6).over(value(99)), None, ""),
            (Value::Best(named(&[3, 8, 5])), Some(8.0), "best of 3: cell 8"),
            (Value::Least(named(&[4, 3, 8])), Some(3.0), "least of 3: cell 3"),
            (Value::Mean(named(&[4, 3, 8])), Some(5.0), "mean of 3"),
            (Value::Any(vec![half(), ("b".into(), value(1).over(value(4)))]), Some(0.625), "likeliest of 2: a"),
            (Value::Any(vec![half(), ("b".into(), value(99))]), None, ""),
            (Value::Best(named(&[3, 99])), None, ""),
            (Value::Reach(5.0, named(&[3, 8, 5])), Some(2.0), "2 of 3; not cell 3 (3.0)"),
        ] {
            assert_eq!(made.calculate(&of), (number, remark.to_string()), "{made:?}");
        }
    }

    #[test]
    fn pairs_out_of_order_are_counted_unless_they_are_as_good_as_equal() {
        let order = |ours: [u64; 3]| {
            let [a, b, c] = ours.map(value);
            Value::Disorder(vec![("a", 10.0, a), ("b", 20.0, b), ("c", 20.1, c)]).calculate(&of).0
        };
        assert_eq!(order([1, 2, 3]), Some(0.0));
        assert_eq!(order([1, 3, 2]), Some(0.0));
        assert_eq!(order([3, 2, 4]), Some(1.0));
        assert_eq!(order([3, 2, 1]), Some(2.0));
        assert_eq!(order([3, 3, 1]), Some(2.0), "equal is not below");
        assert_eq!(order([3, 99, 1]), None);
    }

    #[test]
    fn the_order_in_which_keys_are_set_makes_no_other_cell() {
        let one = cell(1).set("workload.size", "4 MB").set("fabric.hosts", 64);
        let two = cell(1).set("fabric.hosts", 64).set("workload.size", "4 MB");
        assert_eq!(one, two);
        assert_eq!(
            one.command(),
            "strandway sweep scenarios/figures/prime.toml --set fabric.hosts=64 --set 'workload.size=4 MB' --set \
             'sweep.run.seed=[1]'"
        );
    }
}
