//! `strandway run`.

use super::{judge, load};
use crate::Failure;
use crate::args::RunArgs;
use crate::outputs::{Outputs, complain, finish};
use crate::progress::Bars;
use std::sync::Arc;
use strandway_lab::{pcap, report};
use strandway_sim::Control;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let scenario = load(&args.common)?;
    let mut experiment = scenario.check()?;
    let mut outputs = Outputs::open(&args.common, args.pcap.as_ref())?;
    if outputs.html.is_some() {
        experiment.with_series();
    }
    if outputs.pcap.is_some() {
        experiment.with_capture();
    } else {
        experiment.plan.capture = None;
    }
    let control = Arc::new(Control::new());
    let watch = Bars::new(args.common.quiet).watch("", &experiment, control.clone());
    let outcome = strandway_lab::run(&experiment, &control);
    drop(watch);
    let report = &outcome.report;
    outputs.show(&report::text::report(report));
    outputs.json(|| report.to_json())?;
    if let Some(output) = outputs.html.take() {
        finish(output, report::html::report(report, scenario.text()).as_bytes())?;
    }
    if let Some(output) = outputs.markdown.take() {
        finish(output, report::markdown::report(report).as_bytes())?;
    }
    if let Some(output) = outputs.pcap.take() {
        let path = output.path().display().to_string();
        let capture = output
            .finish_with(|file| pcap::write(&experiment, &outcome.measurements, file))
            .map_err(|e| Failure::Run(format!("{path}: could not be written: {e}")))?;
        if capture.skipped > 0 {
            complain(&format!("--pcap: {} packets do not fit the wire format and were left out", capture.skipped));
        }
    }
    judge([("", report)])
}
