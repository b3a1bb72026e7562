//! `strandway model`.

use crate::Failure;
use crate::args::{ModelArgs, ModelOf, SdrArgs};
use crate::outputs::{Outputs, Wanted};
use strandway_report as report;
use strandway_reproduce::model;

pub(crate) fn model(args: &ModelArgs) -> Result<(), Failure> {
    match &args.of {
        ModelOf::Sdr(args) => sdr(args),
    }
}

fn sdr(args: &SdrArgs) -> Result<(), Failure> {
    let wanted = Wanted { json: args.json.as_ref(), html: args.html.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let mut outputs = Outputs::open(wanted, &[])?;
    let answers = model::ask(&args.inquiry())?;
    outputs.show(&report::text::answers(&answers));
    if let Some(output) = outputs.html.take() {
        output.finish(report::html::answers(&answers).as_bytes())?;
    }
    outputs.json(|| answers.to_json())
}
