//! `strandway reproduce`: published results next to ours.

use crate::Failure;
use crate::args::ReproduceArgs;
use crate::outputs::{Outputs, Wanted, print};
use crate::progress::{Bars, interrupted};
use std::path::Path;
use strandway_report as report;
use strandway_report::markdown;
use strandway_report::reproduction::{Recorded, Verdict};

/// Limit on the missed rows that are named at the end.
const NAMED: usize = 5;

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| Failure::Usage(format!("{}: cannot be read: {e}", path.display())))
}

fn usage(path: &Path, what: &str) -> Failure {
    Failure::Usage(format!("{}: {what}", path.display()))
}

pub(crate) fn reproduce(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.list {
        print(&report::text::sets(strandway_reproduce::list().iter().map(|set| [set.name, set.about, set.takes])));
        return Ok(());
    }
    let mut work = strandway_reproduce::choose(&args.names, args.only.as_deref(), args.full)?;
    let mut recorded = Recorded::default();
    for path in &args.from {
        recorded.read(&read(path)?).map_err(|what| usage(path, &what))?;
    }
    work.recall(&recorded);
    work.prepare()?;
    let page = args.markdown.as_ref().filter(|path| path.exists()).map(|path| read(path)).transpose()?;
    if let (Some(page), Some(path)) = (&page, &args.markdown) {
        markdown::reproduced::places(page, work.sets()).map_err(|what| usage(path, &what))?;
    }
    let committed = args.against.as_ref().map(|path| read(path)).transpose()?;
    let mut outputs = Outputs::open(
        Wanted {
            json: args.json.as_ref(),
            html: args.html.as_ref(),
            markdown: args.markdown.as_ref(),
            quiet: args.quiet,
            ..Wanted::default()
        },
        &args.against.iter().chain(&args.from).cloned().collect::<Vec<_>>(),
    )?;
    let bars = Bars::new(args.quiet);
    let all = bars.all(work.runs(), work.hops());
    let watch = |experiment: &_, control| (bars.watch("", experiment, control), all.one(experiment));
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let done = work.run(jobs, outputs.html.is_some(), interrupted, watch)?;
    drop(all);
    outputs.show(&report::text::reproduction(&done));
    if let Some(output) = outputs.html.take() {
        output.finish(report::html::reproduction(&done).as_bytes())?;
    }
    outputs.json(|| done.to_json())?;
    if !done.complete {
        return Err(Failure::Run("interrupted: rows without all their runs have no result".into()));
    }
    if let (Some(output), Some(path)) = (outputs.markdown.take(), &args.markdown) {
        let text = match &page {
            Some(page) => markdown::reproduced::inserted(page, &done).map_err(|what| usage(path, &what))?,
            None => markdown::reproduced::reproduction(&done),
        };
        output.finish(text.as_bytes())?;
    }
    if let (Some(page), Some(path)) = (&committed, &args.against) {
        let turned = markdown::reproduced::turned(page, &done);
        return match turned.len() {
            0 => Ok(()),
            count => Err(Failure::Missed(format!(
                "{count} of {} rows are not as {} has them; if they are right, write them there with --markdown:\n{}",
                done.rows.len(),
                path.display(),
                turned.join("\n")
            ))),
        };
    }
    let missed: Vec<&str> =
        (done.rows.iter()).filter(|row| row.verdict == Verdict::Missed).map(|row| row.id.as_str()).collect();
    let all = done.rows.len();
    match &missed[..] {
        [] => Ok(()),
        [one] => Err(Failure::Missed(format!("1 of {all} rows was missed: {one}"))),
        _ => {
            let named = missed[..missed.len().min(NAMED)].join(", ");
            let more = if missed.len() > NAMED { ", and others" } else { "" };
            Err(Failure::Missed(format!("{} of {all} rows were missed: {named}{more}", missed.len())))
        }
    }
}
