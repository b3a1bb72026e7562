//! `strandway run`.

use super::{check_expectations, load};
use crate::Failure;
use crate::args::RunArgs;
use crate::outputs::{Outputs, Wanted, complain, print};
use crate::progress::Bars;
use std::sync::Arc;
use strandway_lab::{Approximation, Estimate, Report, Scenario, ThreadModel, facts, pcap, trace};
use strandway_report as report;
use strandway_sim::Control;

/// If the estimate is above this many seconds, it is printed before the run.
const LONG: f64 = 20.0;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut scenario = load(&args.common)?;
    if args.flows.is_some() {
        scenario.keep_rows();
    }
    if args.approximate && scenario.approximate().is_none() {
        scenario.set_value("run.approximate", true.into())?;
    }
    if scenario.approximate().is_some() {
        return approximate(args, &scenario);
    }
    let mut experiment = strandway_lab::check(&scenario)?;
    let estimate = Estimate::of(&experiment);
    let threads = experiment.plan.threads;
    if args.estimate {
        print(&format!("{}\n", estimate.text(threads)));
    }
    if !args.force && (threads > 1 || !args.estimate) {
        estimate.fits().map_err(Failure::Run)?;
    }
    if args.estimate {
        if threads > 1 {
            print(&format!("{}\n", ThreadModel::of(&experiment, threads).text(estimate.packet_hops)));
        }
        return Ok(());
    }
    let mut outputs = Outputs::open(
        Wanted {
            pcap: args.pcap.as_ref(),
            flows: args.flows.as_ref(),
            trace: args.trace.as_ref(),
            ..Wanted::of(&args.common)
        },
        &scenario.inputs(),
    )?;
    if outputs.html.is_some() || outputs.trace.is_some() {
        experiment.with_series();
    }
    if outputs.pcap.is_some() {
        experiment.with_capture();
    } else {
        experiment.plan.capture = None;
    }
    if estimate.seconds > LONG && !args.common.quiet {
        complain(&format!("{}: {}; Ctrl-C ends it with a report", experiment.name, estimate.text(threads)));
    }
    let control = Arc::new(Control::new());
    let watch = Bars::new(args.common.quiet).watch("", &experiment, control.clone());
    let outcome = strandway_lab::run(&experiment, &control);
    drop(watch);
    let report = &outcome.report;
    write(&mut outputs, report)?;
    if let Some(output) = outputs.pcap.take() {
        let capture = output.finish_with(|mut file| pcap::write(&experiment, &outcome.measurements, &mut file))?;
        if capture.skipped > 0 {
            complain(&format!("--pcap: {} packets do not fit the wire format and were left out", capture.skipped));
        }
    }
    if let Some(output) = outputs.trace.take() {
        let traced =
            output.finish_with(|file| trace::write(&experiment, &outcome, &mut std::io::BufWriter::new(file)))?;
        let without = match experiment.plan.rows {
            true => "because multicasts and sums in switches have no messages between two hosts",
            false => "because the run kept no row for each; write rows = true under [run] if memory allows",
        };
        for (left_out, what, why) in [
            (traced.flows_left_out, "flows", "because there are too many"),
            (traced.flows_without_rows, "flows", without),
            (traced.ranks_left_out, "ranks' steps", "because there are too many"),
        ] {
            if left_out > 0 {
                complain(&format!("--trace: {left_out} {what} are not in the trace, {why}"));
            }
        }
    }
    if let Some(output) = outputs.flows.take() {
        output.finish(report::csv::flows(facts::flow_rows(&experiment, &outcome.measurements)).as_bytes())?;
    }
    check_expectations([("", report)])
}

/// Prints a report and writes it to the files that are wanted.
fn write(outputs: &mut Outputs, report: &Report) -> Result<(), Failure> {
    outputs.show(&report::text::report_in(report, outputs.width()));
    outputs.json(|| report.to_json())?;
    if let Some(output) = outputs.html.take() {
        output.finish(report::html::report(report).as_bytes())?;
    }
    if let Some(output) = outputs.markdown.take() {
        output.finish(report::markdown::report(report).as_bytes())?;
    }
    Ok(())
}

/// Runs smaller runs that stand for the whole one.
fn approximate(args: &RunArgs, scenario: &Scenario) -> Result<(), Failure> {
    let approximation = Approximation::of(scenario)?;
    let estimate = approximation.estimate()?;
    if args.estimate {
        print(&format!("{}: {}\n", approximation.text(), estimate.text(1)));
        return Ok(());
    }
    if !args.force {
        estimate.fits().map_err(Failure::Run)?;
    }
    let mut outputs = Outputs::open(Wanted::of(&args.common), &scenario.inputs())?;
    if !args.common.quiet {
        complain(&format!("{}: {}", scenario.name(), approximation.text()));
    }
    let bars = Bars::new(args.common.quiet);
    let (_, outcome) = approximation.run(None, |experiment, control| bars.watch("", experiment, control))?;
    write(&mut outputs, &outcome.report)?;
    check_expectations([("", &outcome.report)])
}
