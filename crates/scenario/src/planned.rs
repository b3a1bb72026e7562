//! Collectives as process groups run them: the plans of `group` in the simulator.

use crate::reader::Section;
use crate::scenario::Scenario;
use std::sync::Arc;
use strandway_collective::plan::{PlanMaker, Tuning};
use strandway_collective::{Collective, Recipe, RecipeError};

/// The names of this way of running a collective in scenarios: with direct algorithms only, or as a table says.
pub(crate) const NAMES: [&str; 2] = ["direct", "auto"];

/// The name of the algorithm whose messages go from every rank to every other one.
pub(crate) const DIRECT: &str = NAMES[0];

/// The algorithms of process groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned(Arc<Tuning>);

/// Reads the table of algorithms; `None` unless the section asks for plans of process groups.
pub(crate) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<Planned> {
    let auto = section.text_is("algorithm", "auto");
    if !auto && !section.text_is("algorithm", "direct") {
        return None;
    }
    let Some(name) = section.text("tuning") else { return Some(Planned(Arc::default())) };
    let (file, text) = match scenario.read(&name) {
        Ok(read) => read,
        Err(problems) => {
            section.sink.extend(problems.0);
            return None;
        }
    };
    let mut remedy = "`strandway perf tune` writes such a table";
    let tuning = Tuning::parse(&text).and_then(|mut tuning| {
        if auto {
            remedy = "correct the file of MSCCL, or remove its rule; paths begin at the scenario's folder";
            tuning.algorithms.load(|path| load(scenario, path))?;
        }
        Ok(tuning)
    });
    match tuning {
        Ok(Tuning { algorithms, .. }) if auto && algorithms.of_team().is_some() => {
            let name = algorithms.of_team().expect("just found").name();
            let remedy = "remove these rules, or write a [[job]] with `multicast` or `in-network` for such collectives";
            section.wrong("tuning", format!("has the algorithm {name}, which has no messages to plan: {file}"), remedy);
            None
        }
        // Without `auto` only the lengths of the direct algorithms count.
        Ok(tuning) if auto => Some(Planned(Arc::new(tuning))),
        Ok(tuning) => Some(Planned(Arc::new(Tuning { lengths: tuning.lengths, ..Tuning::default() }))),
        Err(error) => {
            section.wrong("tuning", format!("is a table with an error: {file}, {error}"), remedy);
            None
        }
    }
}

/// The messages of a file of MSCCL that a table names.
fn load(scenario: &Scenario, path: &str) -> Result<(Arc<Recipe>, String), String> {
    let (file, text) = scenario.read(path).map_err(|problems| problems.to_string())?;
    let recipe = strandway_import::msccl::for_data(&file, &text).map_err(|problems| problems.to_string())?;
    Ok((Arc::new(recipe), String::new()))
}

impl Planned {
    /// The messages of a collective among `ranks` ranks.
    pub(crate) fn recipe(
        &self,
        collective: Collective,
        (ranks, bytes): (u32, u64),
        root: u32,
    ) -> Result<Recipe, RecipeError> {
        let mut maker = PlanMaker::new(self.0.algorithms.clone(), self.0.lengths);
        Recipe::planned(&mut maker, collective, (ranks, bytes), root)
    }
}
