//! `strandway localise`: how well gray cables are named, by simulation.

use super::load_with;
use crate::Failure;
use crate::args::LocaliseArgs;
use crate::outputs::{Outputs, Wanted};
use crate::progress::interrupted;
use strandway_lab::gray_study;

pub(crate) fn run(args: &LocaliseArgs) -> Result<(), Failure> {
    let scenario = load_with(&args.scenario, &args.set)?;
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &scenario.inputs())?;
    let study = gray_study(&scenario, (args.faults, args.healthy), |_| !interrupted())?;
    if interrupted() {
        return Err(Failure::Run("interrupted".into()));
    }
    outputs.show(&study.text());
    outputs.json(|| study.to_json())?;
    match study.healthy.wrong {
        0 => Ok(()),
        wrong => Err(Failure::Missed(format!("{wrong} names in runs without a fault"))),
    }
}
