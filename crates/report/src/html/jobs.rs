//! Training jobs on a page: tables, and the steps of each stream of a rank in one iteration.

use super::chart::{self, Axis, escape};
use super::lanes::{Bar, Lane, lanes};
use super::marks::{self, Mark};
use super::{figure, stat, table, time_unit};
use crate::job::{
    HEAD, OPERATIONS_HEAD, RECORDED_HEAD, below_lines, operation_rows, recorded_rows, rows, shown, streams,
};
use crate::numbers::{percent, us};
use crate::parts::part_of;
use crate::{FaultFacts, JobFacts, PartFacts, TimelineFacts};
use std::fmt::Write;

/// Limit on the jobs whose last iteration is drawn.
const DRAWN: usize = 4;

/// Tables and pictures; empty without a job.
pub(super) fn section(jobs: &[JobFacts], faults: &[FaultFacts]) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let shown = shown(jobs);
    let mut out = String::from("<h2>Where the iteration went</h2>\n<div class=\"charts one\">\n");
    for job in shown.iter().take(DRAWN) {
        out.push_str(&parts(job));
        out.push_str(&ranks(job, faults));
    }
    out.push_str("</div>\n<h2>Training jobs</h2>\n<div class=\"charts one\">\n");
    out.push_str(&table(&HEAD, &cells_of(rows(&shown))));
    out.push_str(&table(&OPERATIONS_HEAD, &cells_of(operation_rows(&shown))));
    let recorded = recorded_rows(&shown);
    if !recorded.is_empty() {
        out.push_str(&table(&RECORDED_HEAD, &cells_of(recorded)));
    }
    for line in below_lines(&shown) {
        let _ = write!(out, "<p class=\"note\">{}.</p>", escape(&line));
    }
    let drawn = shown.into_iter().filter(|job| !job.timeline.is_empty()).take(DRAWN);
    drawn.for_each(|job| out.push_str(&picture(job, faults)));
    out.push_str("</div>\n");
    out
}

/// The numbers of a run of one job, for the cards at the top of the page; `more` is one more card.
pub(super) fn cards(job: &JobFacts, more: Option<(String, String)>) -> Option<String> {
    let iteration = job.iteration_us?;
    let share = |of: &dyn Fn(&PartFacts) -> bool| -> f64 {
        job.parts.iter().filter(|part| of(part)).filter_map(|part| part.share).sum()
    };
    job.parts.iter().find_map(|part| part.share)?;
    let idle = |part: &PartFacts| matches!(part.name.as_str(), "bubble" | "waiting");
    let mut cards = vec![
        (us(Some(iteration)), format!("for an iteration of {} GPUs", job.ranks)),
        (percent(share(&|part| part.name == "compute")), "of the time GPUs compute".to_string()),
        (percent(share(&|part| part.name != "compute" && !idle(part))), "they wait for the network or NVLink".into()),
        (percent(share(&idle)), "they wait for other ranks".into()),
    ];
    cards.extend(job.mfu.map(|mfu| (percent(mfu), "of the GPUs' peak (MFU)".into())));
    cards.extend(job.slowdown.map(|times| (format!("{times:.3}"), "times as long as alone".into())));
    cards.extend(more);
    let cards: String = cards.iter().map(|(number, text)| stat(&number.replace(' ', "\u{a0}"), text)).collect();
    Some(format!("<section class=\"cards\">{cards}</section>\n"))
}

/// The colour of a part, and whether it is drawn lightly.
pub(super) fn colour(part: &str) -> (usize, bool) {
    match part {
        "compute" => (0, false),
        "dp" => (1, false),
        "tp" => (2, false),
        "ep" => (3, false),
        "pp" => (5, false),
        "cp" => (6, false),
        "bubble" => (7, true),
        _ => (4, true),
    }
}

/// A part in plain words.
pub(super) fn explained(part: &str) -> &'static str {
    match part {
        "compute" => "forward and backward passes, and the optimizer's step",
        "tp" => "waits for activations that the GPUs of a tensor-parallel group add (mostly over NVLink)",
        "cp" => "waits for keys and values of the other parts of the sequence",
        "ep" => "waits for tokens on their way to and from experts",
        "pp" => "waits for a message that the neighbouring pipeline stage has sent already",
        "dp" => "waits for gradients or parameters of other copies of the model, as far as computation did not hide it",
        "bubble" => "has nothing to do: the pipeline fills or drains",
        _ => "waits for a rank that is not ready for a collective yet",
    }
}

/// One bar of all parts, and a table that explains them.
fn parts(job: &JobFacts) -> String {
    let known: Vec<(&PartFacts, f64, f64)> = job
        .parts
        .iter()
        .filter_map(|part| Some((part, part.us?, part.share?)))
        .filter(|(_, us, _)| *us > 0.0)
        .collect();
    if known.is_empty() {
        return String::new();
    }
    let mut bar = String::from(
        "<svg viewBox=\"0 0 1000 26\" preserveAspectRatio=\"none\" style=\"height:26px\" role=\"img\" aria-label=\"parts of an iteration\">",
    );
    let mut x = 0.0;
    let mut rows = Vec::new();
    for (part, time, share) in known {
        let (k, soft) = colour(&part.name);
        let (width, soft) = (1000.0 * share, if soft { " soft" } else { "" });
        let title = format!("{}: {}, {}", part.summary(), percent(share), us(Some(time)));
        let _ = write!(
            bar,
            "<rect class=\"k{k}{soft}\" x=\"{x:.1}\" y=\"0\" width=\"{:.1}\" height=\"26\"><title>{title}</title></rect>",
            (width - 1.0).max(0.5)
        );
        x += width;
        let (name, what) = (part.summary(), explained(&part.name));
        let name = format!("<i class=\"dot k{k}{soft}\"></i>{name}<small>{what}</small>");
        rows.push(vec![name, percent(share).replace(' ', "\u{a0}"), us(Some(time)).replace(' ', "\u{a0}")]);
    }
    bar.push_str("</svg>");
    let head = ["what a rank does", "share", "mean of ranks"];
    let table = table(&head, &rows).replace("card scroll", "parts");
    figure(
        &format!("{}: an iteration", job.name),
        "Every instant of every rank has one name; shares add up to 1",
        &(bar + &table),
    )
}

/// Faults on the axis of a job's last iteration.
fn fault_marks(job: &JobFacts, faults: &[FaultFacts], size: f64, end: f64) -> Vec<Mark> {
    let begin = job.timeline_from_us / size;
    let all = marks::of_faults(faults, size, begin + end);
    let seen = all.into_iter().filter(|mark| mark.until.is_none_or(|until| until > begin));
    let moved = seen.map(|mark| {
        let until = mark.until.map_or(end, |until| (until - begin).min(end));
        // The axis tells the time.
        let label = mark.label.rsplit_once(" at ").map_or(mark.label.as_str(), |(what, _)| what).to_string();
        Mark { from: (mark.from - begin).max(0.0), until: Some(until), label }
    });
    moved.collect()
}

/// Draws the activities of ranks in the last iteration, a lane per rank.
fn ranks(job: &JobFacts, faults: &[FaultFacts]) -> String {
    let most = job.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.2).fold(0.0, f64::max);
    if most == 0.0 {
        return String::new();
    }
    let (unit, size) = time_unit(most);
    let mut kinds: Vec<&PartFacts> = Vec::new();
    for part in &job.parts {
        if job.lanes.iter().any(|lane| lane.pieces.iter().any(|piece| piece.0 == part.name)) {
            kinds.push(part);
        }
    }
    let drawn: Vec<Lane> = job
        .lanes
        .iter()
        .map(|lane| {
            let bar = |(part, from, until): &(String, f64, f64)| {
                let (colour, soft) = colour(part);
                let told = PartFacts { name: part.clone(), ..PartFacts::default() }.summary();
                let title = format!(
                    "rank {} on {}, {told}: {} to {} {unit}, {}",
                    lane.rank,
                    lane.host,
                    chart::short(from / size),
                    chart::short(until / size),
                    us(Some(until - from))
                );
                Bar { from: from / size, until: until / size, colour, soft, title }
            };
            Lane { label: format!("rank {}, {}", lane.rank, lane.host), bars: lane.pieces.iter().map(bar).collect() }
        })
        .collect();
    let x = Axis::new(format!("time since the iteration began, {unit}"), 0.0, most / size);
    let items = kinds.iter().map(|part| {
        let (k, soft) = colour(&part.name);
        format!("<li><i class=\"k{k}{}\"></i>{}</li>", if soft { " soft" } else { "" }, part.summary())
    });
    let legend = format!("<ul class=\"legend\">{}</ul>", items.collect::<String>());
    let marks = fault_marks(job, faults, size, most / size);
    let drawing = lanes(&drawn, &x, &marks) + &legend;
    let which = match job.lanes.len() < job.ranks as usize {
        true => format!("{} of {} ranks, the slowest one among them", job.lanes.len(), job.ranks),
        false => "every rank".to_string(),
    };
    let struck = if marks.is_empty() { "" } else { "; the red band is the time of the fault" };
    let sub = format!("The last iteration of {which}{struck}. Drag over a time to zoom in");
    figure(&format!("{}: ranks over time", job.name), &sub, &drawing)
}

fn cells_of<const N: usize>(rows: Vec<[String; N]>) -> Vec<Vec<String>> {
    let cell = |text: &String| escape(&text.replace(' ', "\u{a0}"));
    rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// The finding for a run of one job, in a sentence.
pub(super) fn finding(job: &JobFacts) -> Option<String> {
    let iteration = us(Some(job.iteration_us?));
    if job.parts.iter().any(|part| part.share.is_some()) {
        let share = |of: &dyn Fn(&str) -> bool| -> f64 {
            job.parts.iter().filter(|part| of(&part.name)).filter_map(|part| part.share).sum()
        };
        let idle = |name: &str| matches!(name, "bubble" | "waiting");
        let communication = share(&|name| name != "compute" && !idle(name));
        let sentence = format!(
            "An iteration took {iteration} among {} GPUs: they computed {} of the time, waited {} for communication and {} for each other.",
            job.ranks,
            percent(share(&|name| name == "compute")),
            percent(communication),
            percent(share(&idle)),
        );
        return Some(bound_together(&sentence));
    }
    let waits: Vec<String> = job.exposed.iter().map(|e| format!("{} {}", e.name, us(Some(e.us)))).collect();
    let waits = if waits.is_empty() { String::new() } else { format!(": {}", waits.join(", ")) };
    let sentence = format!(
        "An iteration took {iteration} among {} ranks, which waited {} of the time{waits}; it takes {} at least.",
        job.ranks,
        percent(job.bubble),
        us(Some(job.bound_us)),
    );
    Some(bound_together(&sentence))
}

/// Numbers stay with their units.
fn bound_together(sentence: &str) -> String {
    sentence.replace(" us", "\u{a0}us").replace(" ms", "\u{a0}ms").replace(" %", "\u{a0}%")
}

/// The steps of one rank's last iteration, one lane per stream.
fn picture(job: &JobFacts, faults: &[FaultFacts]) -> String {
    let most = job.timeline.iter().map(|step| step.until_us).fold(0.0, f64::max);
    let (unit, size) = time_unit(most);
    let mut kinds: Vec<&str> = Vec::new();
    for step in &job.timeline {
        if step.until_us > step.from_us && !kinds.contains(&step.kind.as_str()) {
            kinds.push(&step.kind);
        }
    }
    // A kind has the colour of its part, as in the other pictures; kinds of one part are drawn full and light in turns.
    let is_graph = job.parts.iter().any(|part| part.name == "collectives");
    let looks: Vec<(usize, bool)> = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| {
            let part = part_of(kind, is_graph);
            let before = kinds[..at].iter().filter(|other| part_of(other, is_graph) == part).count();
            (colour(part).0, before % 2 == 1)
        })
        .collect();
    let drawn: Vec<Lane> =
        streams(job).into_iter().map(|stream| lane(job, stream, (&kinds, &looks), size, unit)).collect();
    let x = Axis::new(format!("time since the iteration began, {unit}"), 0.0, most / size);
    let marks = fault_marks(job, faults, size, most / size);
    let items = kinds.iter().zip(&looks).map(|(kind, (k, soft))| {
        format!("<li><i class=\"k{k}{}\"></i>{}</li>", if *soft { " soft" } else { "" }, escape(kind))
    });
    let legend = format!("<ul class=\"legend\">{}</ul>", items.collect::<String>());
    let drawing = lanes(&drawn, &x, &marks) + &legend;
    let sub = "Computation in the first lane, communication in the others. Where the first lane is empty, the rank waits for one of the others. Drag over a time to zoom in";
    figure(&format!("{}: steps of the slowest rank", job.name), sub, &drawing)
}

fn lane(job: &JobFacts, stream: u8, (kinds, looks): (&[&str], &[(usize, bool)]), size: f64, unit: &str) -> Lane {
    let steps = job.timeline.iter().filter(|step| step.stream == stream && step.until_us > step.from_us);
    let bars = steps.clone().map(|step| {
        let mut title = format!("{} of layer {}", step.kind, step.layer);
        let _ = write!(
            title,
            ": {} to {} {unit}, {}",
            chart::short(step.from_us / size),
            chart::short(step.until_us / size),
            us(Some(step.until_us - step.from_us))
        );
        let (colour, soft) = kinds.iter().position(|kind| *kind == step.kind).map_or((0, false), |at| looks[at]);
        Bar { from: step.from_us / size, until: step.until_us / size, colour, soft, title }
    });
    let label = match stream == TimelineFacts::COMPUTE {
        true => "compute".to_string(),
        false => steps.clone().next().map_or_else(|| format!("stream {stream}"), |step| step.kind.clone()),
    };
    Lane { label, bars: bars.collect() }
}
