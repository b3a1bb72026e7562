#![doc = include_str!("../README.md")]

mod esa;
mod judge;
pub mod model;
mod modelled;
mod mrc;
mod multicast;
mod nccl;
mod ns3;
mod prime;
mod runs;
mod sdr;
mod shootout;
mod strack;
mod table;
mod test;
mod uec;

use judge::{command, verdict};
use modelled::Modelled;
use runs::{Prepared, Ran, model_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use strandway_import::{Problems, suggest};
use strandway_lab::Experiment;
use strandway_report::reproduction::{Bias, Chart, ChartRun, Recorded, Reproduction};
use strandway_scenario::glob;
use strandway_sim::Control;
use table::{Cell, Table};

/// A set of rows with a name.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its subject, in one line.
    pub about: &'static str,
    /// How long it takes, in words.
    pub takes: &'static str,
    table: fn() -> Table,
}

/// All sets, in the order in which they are listed and run.
const SETS: [Set; 10] = [
    strack::SET,
    prime::SET,
    mrc::SET,
    sdr::SET,
    multicast::SET,
    esa::SET,
    nccl::SET,
    shootout::SET,
    uec::SET,
    ns3::SET,
];

/// Sets that are not listed; they exist for tests.
const HIDDEN: [Set; 1] = [test::SET];

/// All listed sets.
pub fn list() -> &'static [Set] {
    &SETS
}

/// The chosen rows, and the runs that they need.
#[derive(Debug)]
pub struct Work {
    sets: Vec<(Set, Table)>,
    cells: Vec<Prepared>,
}

/// Chooses rows by set and id. `names` are the sets (all sets if it is empty). `only` is a pattern for ids, in which
/// `*` stands for any text. Slow rows are chosen only if `full` is true.
///
/// # Errors
/// If a name is unknown or no row matches.
pub fn choose(names: &[String], only: Option<&str>, full: bool) -> Result<Work, Problems> {
    let mut sets = Vec::new();
    for name in names {
        match SETS.iter().chain(&HIDDEN).find(|s| s.name == name) {
            Some(set) if sets.iter().any(|s: &Set| s.name == set.name) => {}
            Some(set) => sets.push(*set),
            None => {
                let known = SETS.map(|s| s.name);
                let what = format!("`{name}` is not among the results to reproduce");
                let nearest = suggest(name, &known);
                let all = format!("{nearest} (`strandway reproduce --list`: {})", known.join(", "));
                return Err(Problems::with_file("", what, if nearest.starts_with("did") { all } else { nearest }));
            }
        }
    }
    if names.is_empty() {
        sets.extend(SETS);
    }
    let mut chosen = Vec::new();
    let mut slow = 0;
    for set in sets {
        let mut table = (set.table)();
        for section in &mut table.sections {
            section.rows.retain(|row| {
                let wanted = only.is_none_or(|pattern| matches(pattern, set.name, &row.id));
                slow += usize::from(wanted && row.full && !full);
                wanted && (full || !row.full)
            });
        }
        table.sections.retain(|s| !s.rows.is_empty());
        if !table.sections.is_empty() {
            chosen.push((set, table));
        }
    }
    if chosen.is_empty() {
        let pattern = only.unwrap_or_default();
        let (what, remedy) = if slow > 0 {
            (format!("--only {pattern}: only slow rows match"), "add --full".to_string())
        } else {
            let remedy = "write an id or a part of it with `*` for any text, say --only 'healthy/512/*'; the ids are in \
                          the first column of the table and in --json";
            (format!("--only {pattern}: no row matches"), remedy.to_string())
        };
        return Err(Problems::with_file("", what, remedy));
    }
    Ok(Work::new(chosen))
}

/// True if a pattern matches a row's id (with or without the set's name), or a prefix of the id up to a slash.
fn matches(pattern: &str, set: &str, id: &str) -> bool {
    let pattern = pattern.strip_prefix(set).and_then(|p| p.strip_prefix('/')).unwrap_or(pattern);
    glob(pattern, id) || glob(&format!("{pattern}/*"), id)
}

impl Work {
    fn new(sets: Vec<(Set, Table)>) -> Work {
        let mut wanted: BTreeMap<&Cell, Vec<&'static str>> = BTreeMap::new();
        for (_, table) in &sets {
            for (cell, keys) in table.cells() {
                wanted.entry(cell).or_default().extend(keys);
            }
        }
        let mut cells = Vec::new();
        for (cell, mut keys) in wanted {
            keys.sort_unstable();
            keys.dedup();
            cells.push(Prepared { cell: cell.clone(), keys, hops: 0, known: BTreeMap::new() });
        }
        Work { sets, cells }
    }

    /// Takes numbers from earlier runs of the same scenarios: these do not run again, unless a chart shows them. The
    /// rows are judged as they are now. It is for the caller to know that the runs would give the same numbers today.
    /// Numbers of a former call are forgotten.
    pub fn recall(&mut self, recorded: &Recorded) {
        self.cells.iter_mut().for_each(|prepared| prepared.recall(recorded));
    }

    /// Checks every scenario that has to run and estimates the time of its runs, so that the longest runs start first.
    ///
    /// # Errors
    /// If a scenario has problems.
    pub fn prepare(&mut self) -> Result<(), Problems> {
        for prepared in self.cells.iter_mut().filter(|prepared| !prepared.recalled()) {
            prepared.hops = strandway_lab::check(&prepared.cell.scenario(1)?)?.expected_hops();
        }
        Ok(())
    }

    /// The names of the sets with chosen rows.
    pub fn sets(&self) -> impl Iterator<Item = &'static str> {
        self.sets.iter().map(|(set, _)| set.name)
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.cells.iter().filter(|p| !p.recalled()).map(|p| p.cell.all_seeds().count()).sum()
    }

    /// Approximate number of packet hops of all runs; call `prepare` first.
    pub fn hops(&self) -> u64 {
        self.cells.iter().filter(|p| !p.recalled()).map(|p| p.hops * p.cell.all_seeds().count() as u64).sum()
    }

    /// The id and the command line of every row.
    pub fn commands(&self) -> Vec<(String, String)> {
        let rows = |(set, table): &(Set, Table)| -> Vec<(String, String)> {
            let rows = table.sections.iter().flat_map(|s| &s.rows);
            rows.map(|row| (format!("{}/{}", set.name, row.id), command(set, row))).collect()
        };
        self.sets.iter().flat_map(rows).collect()
    }

    /// The command lines of all model calculations.
    pub fn model_commands(&self) -> Vec<String> {
        self.models().into_iter().map(Modelled::command).collect()
    }

    fn models(&self) -> BTreeSet<&Modelled> {
        self.sets.iter().flat_map(|(_, table)| table.models()).collect()
    }

    /// The command line of every cell.
    pub fn cell_commands(&self) -> Vec<String> {
        self.cells.iter().map(|p| p.cell.command()).collect()
    }

    /// Performs all runs, `jobs` at a time, and judges the rows. Before a run starts, `watch` is called on the run's
    /// thread with its experiment and control; its result lives as long as the run. No further run starts once
    /// `stopped` returns true.
    ///
    /// # Errors
    /// If a scenario has problems with some seed.
    pub fn run<W>(
        &self,
        jobs: usize,
        charts: bool,
        stopped: impl Fn() -> bool + Sync,
        watch: impl Fn(&Experiment, Arc<Control>) -> W + Sync,
    ) -> Result<Reproduction, Problems> {
        let drawn = if charts { self.charts() } else { Vec::new() };
        let mut queue: Vec<(usize, u64)> = Vec::new();
        let shown = |cell: &Cell| drawn.iter().any(|chart| chart.cells.iter().any(|(_, shown)| shown == cell));
        for (i, prepared) in self.cells.iter().enumerate() {
            match prepared.recalled() {
                false => queue.extend(prepared.cell.all_seeds().map(|seed| (i, seed))),
                // Charts show the first seed.
                true if shown(&prepared.cell) => queue.push((i, 1)),
                true => {}
            }
        }
        // Start the longest runs first, so that none of them runs alone at the end.
        queue.sort_by_key(|&(i, seed)| (std::cmp::Reverse(self.cells[i].hops), i, seed));
        let next = AtomicUsize::new(0);
        type Results = BTreeMap<(usize, u64), Result<Ran, Problems>>;
        let results: Mutex<Results> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, queue.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let Some(&(i, seed)) = queue.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                        if stopped() {
                            return;
                        }
                        let prepared = &self.cells[i];
                        let keep = seed == 1 && shown(&prepared.cell);
                        let ran = prepared.run(seed, keep, &watch);
                        results.lock().unwrap_or_else(PoisonError::into_inner).insert((i, seed), ran);
                    }
                });
            }
        });
        let models = model_all(&self.models().into_iter().collect::<Vec<_>>(), jobs, &stopped);
        let mut ran: BTreeMap<(usize, u64), Ran> = BTreeMap::new();
        for (place, result) in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
            ran.insert(place, result?);
        }
        Ok(self.judge(&queue, ran, &models, &drawn))
    }

    /// The charts whose cells are all run.
    fn charts(&self) -> Vec<&table::ChartSpec> {
        let known = |cell: &Cell| self.cells.binary_search_by(|p| p.cell.cmp(cell)).is_ok();
        let charts = self.sets.iter().flat_map(|(_, t)| &t.charts);
        charts.filter(|c| c.cells.iter().all(|(_, cell)| known(cell))).collect()
    }

    fn judge(
        &self,
        queue: &[(usize, u64)],
        mut ran: BTreeMap<(usize, u64), Ran>,
        models: &BTreeMap<&Modelled, Option<f64>>,
        drawn: &[&table::ChartSpec],
    ) -> Reproduction {
        let all_ran = queue.iter().all(|place| ran.get(place).is_some_and(|r| !r.interrupted));
        let complete = all_ran && self.models().iter().all(|modelled| models.contains_key(modelled));
        let place = |cell: &Cell| self.cells.binary_search_by(|p| p.cell.cmp(cell)).ok();
        let seeds = |cell: &Cell, key: &'static str| -> Vec<Option<f64>> {
            let Some(i) = place(cell) else { return Vec::new() };
            if let Some(known) = self.cells[i].known.get(key) {
                return known.clone();
            }
            cell.all_seeds().map(|seed| *ran.get(&(i, seed))?.values.get(key)?).collect()
        };
        let mut rows = Vec::new();
        for (set, table) in &self.sets {
            for section in &table.sections {
                rows.extend(section.rows.iter().map(|row| verdict(set, &section.title, row, &seeds, models)));
            }
        }
        let mut charts = Vec::new();
        for spec in drawn {
            let mut runs = Vec::new();
            for (name, cell) in &spec.cells {
                let kept = place(cell).and_then(|i| ran.get_mut(&(i, 1))).and_then(|r| r.kept.as_ref());
                runs.extend(kept.map(|run| ChartRun { name: name.clone(), ..run.clone() }));
            }
            let (title, section) = (spec.title.clone(), spec.section.clone());
            charts.push(Chart { kind: spec.kind, title, section, runs });
        }
        let bias = Bias::of(&rows);
        Reproduction { format: 1, version: env!("CARGO_PKG_VERSION").to_string(), rows, bias, charts, complete }
    }
}

#[cfg(test)]
mod tests {
    use super::table::RowSpec;
    use super::*;
    use strandway_report::reproduction::{Counts, Kind, Verdict};

    fn everything() -> Work {
        let names: Vec<String> = SETS.iter().chain(&HIDDEN).map(|s| s.name.to_string()).collect();
        choose(&names, None, true).expect("rows")
    }

    #[test]
    fn every_scenario_is_sound() {
        for prepared in everything().cells {
            // Several queue pairs are as valid as one, and checking a collective's many messages takes long: skip them.
            if !prepared.cell.command().contains("workload.connections") {
                prepared.cell.scenario(1).and_then(|s| strandway_lab::check(&s)).expect("sound");
            }
        }
    }

    #[test]
    fn models_answer_without_any_run() {
        let work = choose(&["sdr_rdma".to_string()], Some("fig3b"), false).expect("rows");
        assert_eq!(work.runs(), 0);
        let done = work.run(2, true, || false, |_, _| ()).expect("sound");
        assert!(done.complete);
        assert!(done.rows.iter().all(|row| row.verdict == Verdict::Met), "{}", done.counts().sentence());
        let crossover = &done.rows[3].cells[0];
        assert_eq!((crossover.key.as_str(), crossover.seeds.len()), ("crossover_km", 1));
        let command =
            "strandway model sdr --size '8 GiB' --rule paper --scheme sr_rto --scheme mds:32,8 --vary distance";
        assert_eq!(crossover.command, command);
        let stopped = work.run(2, false, || true, |_, _| ()).expect("sound");
        assert!(!stopped.complete && stopped.rows[0].ours.is_none(), "what was not calculated is missing");
    }

    #[test]
    fn a_published_number_that_judges_nothing_has_its_reason() {
        let (mut judged, mut unjudged) = (0, 0);
        for (set, table) in &everything().sets {
            for row in table.sections.iter().flat_map(|section| &section.rows).filter(|row| !row.sibling) {
                match Kind::of(row.source, row.bound, row.published.is_some()) {
                    Kind::Relation => judged += 1,
                    Kind::Unjudged => {
                        unjudged += 1;
                        assert!(!row.note.is_empty(), "{}/{} says nothing", set.name, row.id);
                    }
                    Kind::Ours | Kind::Comparison | Kind::Study => {}
                }
            }
        }
        assert!(unjudged * 10 <= judged + unjudged, "{unjudged} unjudged beside {judged}");
    }

    #[test]
    fn every_row_has_an_id_of_its_own() {
        let commands = everything().commands();
        let mut ids: Vec<&String> = commands.iter().map(|(id, _)| id).collect();
        assert!(ids.len() > 200, "{}", ids.len());
        for id in &ids {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-_.".contains(c);
            assert!(id.chars().all(plain), "{id} needs no quotes in a shell");
        }
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn a_rows_command_chooses_that_row_alone() {
        let mut wrong = Vec::new();
        for (id, command) in everything().commands() {
            let words: Vec<&str> = command.split(' ').collect();
            let (set, only) = (words[2].to_string(), words[4]);
            let full = words.get(5) == Some(&"--full");
            let table = (SETS.iter().chain(&HIDDEN).find(|s| s.name == set).expect("a set").table)();
            let rows = table.sections.iter().flat_map(|s| &s.rows);
            let found: Vec<&RowSpec> = rows.filter(|r| matches(only, &set, &r.id)).collect();
            if found.len() != 1 || !full && found[0].full {
                wrong.push(format!("{id} ({} rows)", found.len()));
            }
        }
        assert!(wrong.is_empty(), "rows whose command chooses others: {wrong:?}");
    }

    #[test]
    fn charts_show_cells_that_rows_run() {
        let work = everything();
        let all: usize = work.sets.iter().map(|(_, t)| t.charts.len()).sum();
        assert_eq!(work.charts().len(), all);
        for (set, table) in &work.sets {
            let titles: Vec<&str> = table.sections.iter().map(|s| s.title.as_str()).collect();
            let beside = table.charts.iter().filter_map(|c| c.section.as_deref());
            assert!(beside.clone().all(|section| titles.contains(&section)), "{}", set.name);
            assert!(set.name != "mrc" || beside.count() > 5);
        }
    }

    #[test]
    fn patterns_name_rows_or_what_they_stand_below() {
        for (pattern, wanted) in [
            ("healthy/512/reps", true),
            ("prime/healthy/512/reps", true),
            ("healthy/512/*", true),
            ("healthy/512", true),
            ("prime/healthy", true),
            ("*", true),
            ("*reps", true),
            ("healthy/5", false),
            ("strack/healthy", false),
            ("reps", false),
        ] {
            assert_eq!(matches(pattern, "prime", "healthy/512/reps"), wanted, "{pattern}");
        }
    }

    #[test]
    fn unknown_names_and_patterns_are_explained() {
        for (names, only, fragment) in [
            (&["prim"][..], None, "did you mean `prime`?"),
            (&["zzz"], None, "known: strack, prime"),
            (&["prime"], Some("nothing/*"), "no row matches"),
        ] {
            let names: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
            let said = choose(&names, only, false).expect_err("wrong").to_string();
            assert!(said.contains(fragment), "{said}");
        }
    }

    #[test]
    fn rows_are_judged_anew_from_the_numbers_of_earlier_runs() {
        let mut work = choose(&["test".to_string()], None, false).expect("sound");
        let done = work.run(2, false, || false, |_, _| ()).expect("runs").to_json();
        let mut recorded = Recorded::default();
        recorded.read(&done).expect("a document of this program");
        assert_eq!(work.runs(), 2);
        work.recall(&recorded);
        assert_eq!(work.runs(), 0);
        work.prepare().expect("nothing to run");
        assert_eq!(work.run(1, false, || false, |_, _| panic!("runs")).expect("no run").to_json(), done);
        // With other numbers, the verdicts are others; a cell of which a seed is missing runs again.
        let mut other = Recorded::default();
        let slowest = work.run(1, false, || false, |_, _| ()).expect("no run").rows[0].cells[0].seeds.clone();
        let seed = |number: usize| slowest[number].expect("finished").to_string();
        other.read(&done.replace(&seed(0), "1.0").replace(&seed(1), "1.0")).expect("a document");
        work.recall(&other);
        let turned = work.run(1, false, || false, |_, _| ()).expect("no run");
        assert_eq!(turned.counts(), Counts { met: 2, missed: 1, studies: 1, ..Counts::default() });
        assert_eq!((turned.rows[0].verdict, turned.rows[1].verdict), (Verdict::Missed, Verdict::Met));
        work.recall(&Recorded::default());
        assert_eq!(work.runs(), 2);
    }

    #[test]
    fn the_same_rows_come_out_of_any_number_of_jobs() {
        let work = choose(&["test".to_string()], None, false).expect("sound");
        let run = |jobs| work.run(jobs, true, || false, |_, _| ()).expect("runs").to_json();
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn rows_are_judged_by_the_mean_over_seeds() {
        let work = choose(&["test".to_string()], None, false).expect("sound");
        let done = work.run(2, false, || false, |_, _| ()).expect("runs");
        assert!(done.complete);
        assert_eq!(done.counts(), Counts { met: 2, missed: 1, studies: 1, ..Counts::default() });
        let row = done.rows.iter().find(|r| r.id == "test/met").expect("a row");
        let seeds: Vec<f64> = row.cells[0].seeds.iter().map(|v| v.expect("finished")).collect();
        assert_eq!(row.ours, Some(seeds.iter().sum::<f64>() / seeds.len() as f64));
        let ratio = done.rows.iter().find(|r| r.id == "test/ratio").expect("a row");
        assert_eq!(ratio.ours, Some(1.0));
        let none = work.run(2, false, || true, |_, _| ()).expect("nothing to run");
        assert!(!none.complete && none.rows.iter().all(|r| r.ours.is_none()));
    }
}
