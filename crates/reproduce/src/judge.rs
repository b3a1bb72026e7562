//! Makes a row: our number, the reference number, and the verdict.

use super::Set;
use super::modelled::Modelled;
use super::table::{Cell, Leaf, RowSpec};
use std::collections::BTreeMap;
use strandway_report::reproduction::{Bound, CellFacts, Kind, Row, Verdict, interval};

/// Calculates a row's number from its cells and models, and compares it with the reference number.
pub(super) fn verdict(
    set: &Set,
    section: &str,
    row: &RowSpec,
    seeds: &dyn Fn(&Cell, &'static str) -> Vec<Option<f64>>,
    models: &BTreeMap<&Modelled, Option<f64>>,
) -> Row {
    let mean = |cell: &Cell, key: &'static str| -> Option<f64> {
        let values: Option<Vec<f64>> = seeds(cell, key).into_iter().collect();
        values.filter(|v| !v.is_empty()).map(|v| v.iter().sum::<f64>() / v.len() as f64)
    };
    let modelled = |modelled: &Modelled| models.get(modelled).copied().flatten();
    let (ours, remark) = row.value.calculate(&|leaf| match leaf {
        Leaf::Cell(cell, key) => mean(cell, key),
        Leaf::Model(model) => modelled(model),
    });
    let seeds_of_row = with_each_seed(row, seeds, models);
    let mut cells = Vec::new();
    row.value.visit(&mut |leaf| {
        let (command, key, mean, seeds) = match leaf {
            Leaf::Cell(cell, key) => (cell.command(), key, mean(cell, key), seeds(cell, key)),
            Leaf::Model(model) => (model.command(), model.key(), modelled(model), vec![modelled(model)]),
        };
        let known = || seeds.iter().flatten().copied();
        let (min, max) = (known().reduce(f64::min), known().reduce(f64::max));
        cells.push(CellFacts { command, key: key.to_string(), mean, min, max, seeds });
    });
    let mut notes = vec![row.note.clone(), remark];
    if ours.is_none() {
        notes.push("no result: a run was not run or left flows unfinished".into());
    }
    notes.retain(|n| !n.is_empty());
    Row {
        id: format!("{}/{}", set.name, row.id),
        section: section.to_string(),
        what: row.what.clone(),
        unit: row.unit.to_string(),
        source: row.source,
        published: row.published,
        ours,
        ratio: row.published.filter(|p| *p != 0.0).and_then(|p| Some(ours? / p)),
        bound: row.bound,
        tolerance: (row.bound != Bound::None).then_some(row.tolerance),
        kind: if row.sibling { Kind::Comparison } else { Kind::of(row.source, row.bound, row.published.is_some()) },
        verdict: Verdict::of_seeds(row.bound, row.published, ours, &seeds_of_row, row.tolerance),
        interval: ours.and_then(|ours| interval(ours, &seeds_of_row)),
        seeds: seeds_of_row,
        command: command(set, row),
        note: notes.join(". "),
        cells,
    }
}

/// The row's number for each seed alone, for those seeds that all its cells have; empty if there is only one.
fn with_each_seed(
    row: &RowSpec,
    seeds: &dyn Fn(&Cell, &'static str) -> Vec<Option<f64>>,
    models: &BTreeMap<&Modelled, Option<f64>>,
) -> Vec<Option<f64>> {
    let mut common = usize::MAX;
    row.value.visit(&mut |leaf| {
        if let Leaf::Cell(cell, key) = leaf {
            common = common.min(seeds(cell, key).len());
        }
    });
    if common == usize::MAX || common < 2 {
        return Vec::new();
    }
    let with = |seed: usize| {
        let (number, _) = row.value.calculate(&|leaf| match leaf {
            Leaf::Cell(cell, key) => seeds(cell, key)[seed],
            Leaf::Model(model) => models.get(model).copied().flatten(),
        });
        number
    };
    (0..common).map(with).collect()
}

/// The command line for one row.
pub(super) fn command(set: &Set, row: &RowSpec) -> String {
    let full = if row.full { " --full" } else { "" };
    format!("strandway reproduce {} --only {}{full}", set.name, row.id)
}
