//! Checks scenarios, with the values of reports that `[expect]` may bound.

use crate::facts;
use strandway_fabric::Measurements;
use strandway_import::Problems;
use strandway_scenario::{Experiment, Scenario};

/// Checks a scenario. All mistakes are found here; later steps cannot fail because of a wrong setting. `[expect]` may
/// bound the values of a [`Report`](crate::Report), by their dotted paths, and the times of single flows.
///
/// # Errors
/// All problems at once.
pub fn check(scenario: &Scenario) -> Result<Experiment, Problems> {
    scenario.check(|experiment| {
        let report = facts::report(experiment, &Measurements::default(), 0.0);
        report.values().into_keys().collect()
    })
}
