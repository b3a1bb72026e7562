//! The finding of one run in a sentence, and the numbers below it: of jobs if there are any, else of collectives, else
//! of flows.

use super::{duration, jobs, services, stat, times};
use crate::numbers::{count, gbps, percent};
use crate::{CollectiveFacts, FaultCost, JobFacts, Report};

/// Limit on the jobs with a card each.
const JOBS_SHOWN: usize = 4;

/// The finding in plain English, with missed expectations first.
pub(super) fn finding(report: &Report) -> String {
    let missed: Vec<&str> = report.expect.iter().filter(|e| !e.met).map(|e| e.key.as_str()).collect();
    match &missed[..] {
        [] => outcome(report),
        [one] => format!("1 of {} expectations missed ({one}). {}", report.expect.len(), outcome(report)),
        all => format!("{} of {} expectations missed. {}", all.len(), report.expect.len(), outcome(report)),
    }
}

/// The outcome, with what the faults cost.
fn outcome(report: &Report) -> String {
    let by = |cost: &FaultCost| -> Option<String> {
        let of = if report.fault_costs.len() > 1 { format!(" to {}", cost.name) } else { String::new() };
        let factor = times(cost.time_us? / cost.healthy_us?);
        let shown = cost.shown()?.replace(' ', "\u{a0}");
        Some(format!(" {shown}{of} by {}: {factor} times as long as without.", report.faults_in_short()))
    };
    without_cost(report) + &report.largest_cost().and_then(by).unwrap_or_default()
}

fn without_cost(report: &Report) -> String {
    if !report.jobs.is_empty()
        && let Some(sentence) = of_jobs(report)
    {
        return sentence;
    }
    if let Some(sentence) = services::finding(&report.services) {
        return sentence;
    }
    let f = &report.flows;
    if f.finished < f.total {
        let left = f.total - f.finished;
        return format!(
            "{} of {} flows did not finish: the run ended with “{}”.",
            count(left),
            count(f.total),
            report.head.end
        );
    }
    let max = duration(report.times.fct_us.max);
    if f.total == 1 && report.collectives.is_empty() {
        let bound =
            report.times.slowdown.max.map_or(String::new(), |slow| format!(", {} times its lower bound", times(slow)));
        return format!("The flow took {max}{bound}.");
    }
    let collectives = report.slowest_collectives();
    if let Some(sentence) = of_collectives(&collectives) {
        // Flows beside the collectives are named behind them.
        let others = f.total > collectives.iter().map(|c| c.messages).sum::<u64>();
        let others = if others { format!(" All {} flows finished.", count(f.total)) } else { String::new() };
        return sentence + &others;
    }
    let alone = report.times.slowdown.max;
    let alone = alone.map_or(String::new(), |slow| format!(", at most {} times as long as alone", times(slow)));
    format!("All {} flows finished; the slowest took {max}{alone}.", count(f.total))
}

/// Jobs in a sentence: how long an iteration took, or which jobs did not end.
fn of_jobs(report: &Report) -> Option<String> {
    let left: Vec<&JobFacts> = report.jobs.iter().filter(|job| job.iterations_ended < job.iterations).collect();
    if let Some(job) = left.first() {
        let (ended, all) = (count(job.iterations_ended.into()), count(job.iterations.into()));
        let of_one = format!("{} ended {ended} of {all} iterations", job.name);
        let jobs = match left.len() {
            1 => of_one,
            n => format!("{n} of {} jobs did not end; {of_one}", report.jobs.len()),
        };
        return Some(format!("{jobs}: the run ended with “{}”.", report.head.end));
    }
    if let [job] = &report.jobs[..] {
        return jobs::finding(job);
    }
    let slowest = slowest(&report.jobs)?;
    let by = |job: &JobFacts| job.slowdown.map(|slowdown| (slowdown, job.name.clone()));
    let beside = report.jobs.iter().filter_map(by).max_by(|a, b| a.0.total_cmp(&b.0));
    let beside =
        beside.map_or(String::new(), |(slowdown, name)| format!("; {name} takes {slowdown:.2} times as long as alone"));
    let (jobs, time) = (count(report.jobs.len() as u64), duration(slowest.iteration_us));
    Some(format!("{jobs} jobs ended; an iteration of the slowest, {}, took {time}{beside}.", slowest.name))
}

/// The job with the longest iteration, if every job has ended one.
fn slowest(jobs: &[JobFacts]) -> Option<&JobFacts> {
    let all: Option<Vec<f64>> = jobs.iter().map(|job| job.iteration_us).collect();
    let place = all?.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?.0;
    jobs.get(place)
}

/// Collectives in a sentence; `None` without any, and if one did not end.
fn of_collectives(collectives: &[CollectiveFacts]) -> Option<String> {
    let (slowest, time) = slowest_of(collectives)?;
    let bound = times(time / slowest.bound_us);
    let (kind, ranks, took) = (&slowest.kind, count(slowest.ranks.into()), duration(Some(time)));
    Some(match collectives.len() {
        1 => {
            let groups = if slowest.group.is_some() { "The slowest group's " } else { "The " };
            let bus = slowest.busbw.map_or(String::new(), |bus| format!(": a bus bandwidth of {bus:.1}\u{a0}GB/s"));
            format!("{groups}{kind} among {ranks} ranks took {took}, {bound} times its lower bound{bus}.")
        }
        n => {
            let name = if slowest.name == *kind { String::new() } else { format!(" {}", slowest.name) };
            format!(
                "{n} collectives ended; the slowest, the {kind}{name} among {ranks} ranks, took {took}, {bound} times its lower bound."
            )
        }
    })
}

/// The slowest collective and its time, if every collective has ended.
fn slowest_of(collectives: &[CollectiveFacts]) -> Option<(&CollectiveFacts, f64)> {
    let all: Option<Vec<f64>> = collectives.iter().map(|c| c.time_us).collect();
    let (place, time) = all?.into_iter().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((&collectives[place], time))
}

/// The cards at the top of the page.
pub(super) fn cards(report: &Report) -> String {
    let cost = report.largest_cost().and_then(|cost| Some((cost.shown()?, format!("by {}", report.faults_in_short()))));
    if let [job] = &report.jobs[..]
        && let Some(cards) = jobs::cards(job, cost.clone())
    {
        return cards;
    }
    if report.jobs.is_empty()
        && let Some(cards) = services::cards(report)
    {
        return cards;
    }
    let collectives = report.slowest_collectives();
    let cards = match slowest_of(&collectives).filter(|_| report.jobs.is_empty()) {
        _ if !report.jobs.is_empty() => jobs_cards(report),
        Some((slowest, time)) => collective_cards(report, slowest, time, collectives.len()),
        None => flow_cards(report),
    };
    let cards: String =
        cards.iter().chain(&cost).map(|(number, text)| stat(&number.replace(' ', "\u{a0}"), text)).collect();
    format!("<section class=\"cards\">{cards}</section>\n")
}

fn jobs_cards(report: &Report) -> Vec<(String, String)> {
    let ended = report.jobs.iter().filter(|job| job.iterations_ended >= job.iterations).count() as u64;
    let all = report.jobs.len() as u64;
    let done = if ended == all { count(all) } else { format!("{} of {}", count(ended), count(all)) };
    let mut cards = vec![(done, "jobs ended".to_string())];
    let mut jobs: Vec<&JobFacts> = report.jobs.iter().collect();
    jobs.sort_by(|a, b| b.iteration_us.unwrap_or(f64::INFINITY).total_cmp(&a.iteration_us.unwrap_or(f64::INFINITY)));
    for job in jobs.into_iter().take(JOBS_SHOWN) {
        let slowed = job.slowdown.map_or(String::new(), |slow| format!(", {slow:.3} times as long as alone"));
        cards.push((duration(job.iteration_us), format!("{}: an iteration of {} GPUs{slowed}", job.name, job.ranks)));
    }
    cards
}

fn collective_cards(report: &Report, slowest: &CollectiveFacts, time: f64, all: usize) -> Vec<(String, String)> {
    let which = if all > 1 { format!("slowest of {all} collectives: {}", slowest.name) } else { slowest.kind.clone() };
    let mut cards =
        vec![(duration(Some(time)), which), (times(time / slowest.bound_us), "times its lower bound".to_string())];
    cards.extend(slowest.busbw.map(|bus| (format!("{bus:.1} GB/s"), "bus bandwidth".to_string())));
    cards.push(finished(report));
    cards.push((gbps(report.times.goodput_gbps.mean_per_host), "goodput per sending host".into()));
    cards.push((percent(report.packets.retransmitted_share), "of data packets sent again".into()));
    cards
}

fn flow_cards(report: &Report) -> Vec<(String, String)> {
    vec![
        finished(report),
        (duration(report.times.fct_us.p50), "median completion time".into()),
        (duration(report.times.fct_us.p99), "99th percentile".into()),
        (duration(report.times.fct_us.max), "slowest flow".into()),
        (gbps(report.times.goodput_gbps.mean_per_host), "goodput per sending host".into()),
        (percent(report.packets.retransmitted_share), "of data packets sent again".into()),
    ]
}

/// The flows that finished. Large counts stand in the text, so that no number is wider than its card.
fn finished(report: &Report) -> (String, String) {
    let f = &report.flows;
    match f.finished == f.total {
        true => (count(f.total), "flows finished".into()),
        false => (count(f.finished), format!("of {} flows finished", count(f.total))),
    }
}
