//! The page of a search: the failures that hurt most, and a picture of the fabric coloured by what they cost.

use super::chart::{self, escape};
use super::map::{self, Layer};
use super::{duration, figure, heading, how_made, stat, table};
use crate::numbers::{count, percent};
use crate::search_result::{FailureFacts, Found, Part, StepFacts};
use crate::text::search_result::{disconnecting, heading as tried, shown, without};
use std::collections::BTreeMap;

/// Limit on the bars of a step.
const BARS: usize = 12;

/// Limit on the rows of a step's table; the JSON report has all.
const ROWS: usize = 200;

/// A failure below this slowdown costs nothing that is worth mending.
const HARMLESS: f64 = 1.01;

pub(super) fn body(found: &Found) -> String {
    let mut out = heading(&format!("{} · search for bad failures", found.scenario), &headline(found), &lead(found));
    out.push_str(&cards(found));
    if found.own_faults > 0 {
        let text = format!(
            "Note: the scenario has {} of its own; {} in every run, also in the one that failures are compared with.",
            if found.own_faults == 1 { "one fault".to_string() } else { format!("{} faults", found.own_faults) },
            if found.own_faults == 1 { "it is" } else { "they are" }
        );
        out.push_str(&format!("<p class=\"note\">{text}</p>\n"));
    }
    for step in &found.steps {
        out.push_str(&section(found, step));
    }
    out.push_str("<h2>How it was made</h2>\n");
    out.push_str(&how_made(&found.origin, &found.origin.scenario));
    out + &format!(
        "<footer>Strandway {} · digest without a failure {}. The same scenario and question give the same answer on any \
         machine.</footer>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&found.baseline_digest)
    )
}

/// A failure as `leaf0 - spine3, silent at 300.0 us`.
fn named(failure: &FailureFacts) -> String {
    format!("{}, {} at {}", failure.name, failure.effect, duration(Some(failure.at_us)))
}

fn ranked(step: &StepFacts) -> impl Iterator<Item = &FailureFacts> {
    step.failures.iter().filter(|failure| !failure.disconnects)
}

fn headline(found: &Found) -> String {
    let Some(step) = found.steps.last() else { return "Nothing was tried.".into() };
    let beside = if step.beside.is_empty() { String::new() } else { format!("Beside {}: ", step.beside.join(" and ")) };
    let runs = count(found.steps.iter().map(|step| step.runs).sum());
    match ranked(step).next() {
        None => format!("{beside}every one of the {runs} failures cuts hosts off."),
        Some(worst) => match worst.slowdown {
            None => format!("{beside}with {}, the run does not end: the worst of {runs} failures.", named(worst)),
            Some(times) if times < HARMLESS => format!("{beside}none of {runs} failures costs a percent."),
            Some(times) => format!(
                "{beside}{} hurts most of {runs} failures: {} times {}.",
                named(worst),
                super::times(times),
                found.value
            ),
        },
    }
}

fn lead(found: &Found) -> String {
    let values: Vec<String> =
        found.baseline.iter().map(|(key, value)| format!("{key} = {}", shown(key, *value))).collect();
    let description = "Each part fails in a run of its own, at several moments; the result is compared with the run";
    format!("{description} {}: {}.", without(found), values.join(", "))
}

fn cards(found: &Found) -> String {
    let Some(step) = found.steps.last() else { return String::new() };
    let mut slowdowns: Vec<f64> = ranked(step).filter_map(|failure| failure.slowdown).collect();
    slowdowns.sort_by(f64::total_cmp);
    let mut cards = Vec::new();
    if let Some(worst) = slowdowns.last() {
        cards.push((format!("{worst:.3}"), "times as long: the worst that ends".to_string()));
        cards.push((format!("{:.3}", slowdowns[slowdowns.len() / 2]), "times as long: the median failure".into()));
        let harmless = slowdowns.iter().filter(|times| **times < HARMLESS).count();
        cards.push((
            percent(harmless as f64 / step.failures.len().max(1) as f64),
            "of failures cost less than 1 %".into(),
        ));
    }
    let endless = ranked(step).filter(|failure| failure.slowdown.is_none()).count() as u64;
    if endless > 0 {
        cards.push((count(endless), "failures after which the run does not end".into()));
    }
    cards.push((count(step.tried), format!("of {} parts tried, in {} runs", count(step.parts), count(step.runs))));
    let cards: String = cards.iter().map(|(number, text)| stat(&number.replace(' ', "\u{a0}"), text)).collect();
    format!("<section class=\"cards\">{cards}</section>\n")
}

fn section(found: &Found, step: &StepFacts) -> String {
    let title = match step.beside.is_empty() {
        true => "The worst failures".to_string(),
        false => format!("The worst beside {}", step.beside.join(" and ")),
    };
    let mut out = format!("<h2>{}</h2>\n<p class=\"sub\">{}.</p>\n", escape(&title), escape(&tried(found, step)));
    if let Some(line) = disconnecting(step) {
        out.push_str(&format!("<p class=\"note bad\">{}</p>\n", escape(&sentence(line.trim()))));
    }
    out.push_str("<div class=\"charts\">\n");
    let endless = endless(step);
    let bars: Vec<(String, usize, f64, String)> = ranked(step)
        .take(BARS)
        .map(|failure| match failure.slowdown {
            Some(times) => (named(failure), 1, times - 1.0, format!("{:+.1}\u{a0}%", 100.0 * (times - 1.0))),
            None => (named(failure), 4, endless - 1.0, "does not end".to_string()),
        })
        .collect();
    if !bars.is_empty() {
        let sub = format!("Time added to {}", found.value);
        out.push_str(&figure("What they cost", &sub, &chart::bars(&bars)));
    }
    out.push_str(&picture(found, step));
    out.push_str("</div>\n");
    let rows: Vec<Vec<String>> =
        ranked(step).take(ROWS).enumerate().map(|(place, failure)| row(place, failure)).collect();
    let head = ["failure", "from", "result", "times as long", "parts alike"];
    let all = table(&head, &rows).replace("card scroll", "scroll");
    let left = ranked(step).count().saturating_sub(ROWS);
    let more = if left > 0 { format!("<p class=\"sub\">{left} more are in --json.</p>") } else { String::new() };
    out + &format!(
        "<details class=\"card\" open><summary>All failures, the worst first</summary>{all}{more}</details>\n"
    )
}

/// A line of the terminal as a sentence.
fn sentence(line: &str) -> String {
    let mut letters = line.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn row(place: usize, failure: &FailureFacts) -> Vec<String> {
    let result = match (&failure.key, failure.value) {
        (Some(key), Some(value)) => shown(key, value).replace(' ', "\u{a0}"),
        _ => format!("{} arrived", percent(failure.delivered)).replace(' ', "\u{a0}"),
    };
    let times = failure.slowdown.map_or("does not end".into(), |times| format!("{times:.3}"));
    let name = format!("{}. {}, {}", place + 1, escape(&failure.name), escape(&failure.effect));
    vec![name, duration(Some(failure.at_us)), result, times, count(failure.alike)]
}

/// The slowdown that stands for a run that does not end: above all others.
fn endless(step: &StepFacts) -> f64 {
    let most = step.failures.iter().filter_map(|failure| failure.slowdown).fold(1.0, f64::max);
    1.0 + (most - 1.0).max(0.1) * 1.25
}

/// The fabric, each link with the time that the worst failure of its part costs. Parts that are alike have the colour
/// of the part that was tried.
fn picture(found: &Found, step: &StepFacts) -> String {
    let Some(map) = &found.map else { return String::new() };
    let mut kinds: Vec<(Part, Option<&str>)> = Vec::new();
    for part in [Part::Link, Part::Port, Part::Switch] {
        let mut effects: Vec<&str> = Vec::new();
        for failure in step.failures.iter().filter(|failure| failure.part == Some(part)) {
            if !effects.contains(&failure.effect.as_str()) {
                effects.push(&failure.effect);
            }
        }
        if effects.is_empty() {
            continue;
        }
        kinds.push((part, None));
        if effects.len() > 1 {
            kinds.extend(effects.into_iter().map(|effect| (part, Some(effect))));
        }
    }
    let layers = kinds.into_iter().map(|(part, effect)| layer(found, step, part, effect)).collect();
    let sub = "Every link by the time that its failure adds, in percent; of several moments the worst. A run that does not end \
               has the darkest colour. Parts that are alike have the value of the one that was tried";
    map::of_layers(map, "Where failures hurt", sub, layers)
}

fn layer(found: &Found, step: &StepFacts, part: Part, effect: Option<&str>) -> Layer {
    let cost = |failure: &FailureFacts| {
        let times = failure.slowdown.unwrap_or_else(|| endless(step));
        (1000.0 * (times - 1.0)).round() / 10.0
    };
    let asked = || {
        let fits = move |failure: &&FailureFacts| effect.is_none_or(|effect| failure.effect == effect);
        step.failures.iter().filter(move |failure| failure.part == Some(part)).filter(fits)
    };
    let alike = step.tried < step.parts && !found.single_paths;
    // Of a link: the worst cost among the failures of the parts that it belongs to.
    let mut worst: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for one in step.classes_of_links.iter().filter(|one| one.part == part) {
        let own = asked().filter(|failure| if alike { failure.class == one.class } else { failure.name == one.name });
        let Some(value) = own.map(cost).max_by(f64::total_cmp) else { continue };
        for (low, high) in &one.links {
            let of = worst.entry((low, high)).or_insert(value);
            *of = of.max(value);
        }
    }
    let map = found.map.as_ref();
    let values = map.iter().flat_map(|map| map.groups.iter().map(move |group| (map, group))).map(|(map, group)| {
        let ends = group.low.iter().zip(&group.high);
        ends.map(|(low, high)| {
            worst.get(&(map.nodes[*low as usize].as_str(), map.nodes[*high as usize].as_str())).copied()
        })
        .collect()
    });
    let what = match part {
        Part::Link => "links",
        Part::Port => "NICs' ports",
        Part::Switch => "switches",
    };
    let effect =
        effect.map_or("failures", |effect| if effect == "silent" { "silent failures" } else { "visible failures" });
    Layer { label: format!("time added by {effect} of {what}"), unit: "%".into(), values: values.collect() }
}
