//! Searches for the failures that hurt a scenario most.
//!
//! The scenario runs once as it is, and then once for each link, port or switch, each moment and each effect. Links
//! that are alike under the fabric's symmetry (`search/symmetry.rs`) are tried once. With several failures the search
//! is greedy: it keeps the worst failure of each kind and moment and looks for the next one beside it.

mod connected;
mod symmetry;

use crate::check;
use crate::facts::map;
use connected::cuts_off;
use std::collections::BTreeMap;
use strandway_fabric::{LinkId, NodeId, Topology};
use strandway_import::{Problem, Problems, nearest};
use strandway_proto::path::PathConfig;
use strandway_proto::units::Span;
use strandway_report::numbers::us;
use strandway_report::search_result::{ClassOfLinks, FailureFacts, Found, Part, StepFacts};
use strandway_report::{Report, Row};
use strandway_scenario::{Experiment, Scenario, Variant};
use symmetry::Colours;
use toml::{Table, Value};

/// Limit on the runs of one step: ours.
const RUNS_MAX: usize = 10_000;

/// Whether routing learns of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The NIC or switch at the link sees it at once, and routing avoids it after the time to reconverge.
    Visible,
    /// No NIC and no switch learns of it.
    Silent,
}

/// A question to [`search`].
#[derive(Clone, Debug)]
pub struct Question {
    /// The parts that may fail.
    pub parts: Vec<Part>,
    /// Visible failures, silent ones, or both.
    pub effects: Vec<Effect>,
    /// Moments at which a part fails; if empty, this number of moments spread over the time without a failure.
    pub at: Vec<Span>,
    /// The number of moments if `at` is empty.
    pub moments: u32,
    /// How long a part stays down; for the rest of the run if absent.
    pub lasting: Option<Span>,
    /// The time until routing avoids a visible failure; the scenario's default if absent.
    pub reconverge: Option<Span>,
    /// Number of simultaneous failures.
    pub failures: u32,
    /// Members of each class of like parts that are tried; 0 for all. Absent: one, or all if packets of a connection
    /// keep one path, since then the paths' hashes decide, which no symmetry knows.
    pub each: Option<u32>,
    /// A run ends at this multiple of the time without a failure.
    pub give_up: f64,
    /// The value to compare, by its dotted name in the report. Absent: the time of the slowest job, compared with the
    /// same job; without jobs the time until the last flow finished.
    pub value: Option<String>,
}

impl Default for Question {
    fn default() -> Question {
        Question {
            parts: vec![Part::Link],
            effects: vec![Effect::Visible, Effect::Silent],
            at: Vec::new(),
            moments: 4,
            lasting: None,
            reconverge: None,
            failures: 1,
            each: None,
            give_up: 10.0,
            value: None,
        }
    }
}

/// A part of the fabric that may fail.
#[derive(Clone, Debug)]
struct Element {
    part: Part,
    /// Its name, such as `leaf0 - spine3`.
    name: String,
    /// The targets of its `[[faults]]`.
    targets: Vec<Table>,
    links: Vec<LinkId>,
    class: u64,
}

/// Reasons for which a search has no answer.
#[derive(Debug)]
pub enum Ended<E> {
    /// The scenario or the question is wrong.
    Wrong(Problems),
    /// The runner gave up.
    Stopped(E),
}

impl<E> From<Problems> for Ended<E> {
    fn from(problems: Problems) -> Ended<E> {
        Ended::Wrong(problems)
    }
}

fn wrong<E>(key: &str, value: impl ToString, what: impl Into<String>, remedy: &str) -> Ended<E> {
    Ended::Wrong(Problems(vec![Problem {
        key: key.into(),
        value: value.to_string(),
        what: what.into(),
        remedy: remedy.into(),
        ..Problem::default()
    }]))
}

/// Searches. `run` runs variants, in parallel if it likes, and returns their rows in order; a run that fails has an
/// error. `note` gets a sentence before each step: how many runs follow.
///
/// # Errors
/// If the scenario or the question is wrong, if the scenario does not end without a failure, or if `run` gives up.
pub fn search<E>(
    scenario: &Scenario,
    question: &Question,
    mut run: impl FnMut(&[Variant]) -> Result<Vec<Result<Row, String>>, E>,
    mut note: impl FnMut(&str),
) -> Result<Found, Ended<E>> {
    let mut base = scenario.clone();
    for left_out in ["expect", "sweep", "run.alone"] {
        base.remove(left_out);
    }
    let experiment = check(&base)?;
    if experiment.plan.topology.graph().is_some() {
        let what =
            "is a graph, and the search knows the symmetry of leaf-spine fabrics, fat trees, planes and sites only";
        return Err(wrong(
            "fabric.kind",
            &experiment.fabric,
            what,
            "write a [[faults]] for each link of interest, and sweep",
        ));
    }
    note("one run without a failure");
    let baseline = baseline(&base, scenario.file(), &mut run)?;
    let measure = Measure::new(question, &baseline)?;
    let end = Span((baseline.run.simulated_us * 1e6) as u64);
    let moments = moments(question, end);
    let last = moments.iter().max().copied().unwrap_or(Span::ZERO);
    if last >= end {
        let what = format!("is after the end of the run without a failure, {end}");
        return Err(wrong("--at", last, what, "write an earlier moment"));
    }
    let single = experiment.plan.profiles.iter().any(|profile| matches!(profile.path, PathConfig::Single(_)));
    let each = question.each.unwrap_or(u32::from(!single)) as usize;
    let limit = rounded(end.scaled(question.give_up.max(1.0)));
    let mut found = Found {
        format: 1,
        scenario: base.name(),
        value: measure.name(),
        baseline: measure.baseline(),
        own_faults: baseline.faults.len() as u64,
        baseline_digest: baseline.head.digest.clone(),
        single_paths: single && question.each.is_none(),
        steps: Vec::new(),
        map: map::of_topology(&experiment.plan.topology),
        origin: experiment.origin.clone(),
    };
    let mut chosen: Vec<Table> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut experiment = experiment;
    for _ in 0..question.failures.max(1) {
        let all = elements(&experiment, question, &chosen_links(&experiment));
        let (tried, classes) = one_of_each(&all, each);
        let count = tried.len() * moments.len() * question.effects.len();
        if count > RUNS_MAX {
            let what = format!("makes {count} runs, more than {RUNS_MAX}");
            return Err(wrong("--moments", moments.len(), what, "search fewer parts, effects or moments, or --each 1"));
        }
        if count == 0 {
            return Err(wrong("--what", "", "names nothing that this fabric has", "write links, ports or switches"));
        }
        note(&format!("{} of {} {} ({count} runs)", tried.len(), all.len(), plural(&question.parts)));
        let (variants, tells) = struck(&base, question, (&tried, &moments), &chosen, limit)?;
        let rows = run(&variants).map_err(Ended::Stopped)?;
        let mut failures: Vec<(FailureFacts, usize)> = Vec::with_capacity(count);
        for (place, (row, (element, alike, effect, at, _))) in rows.into_iter().zip(&tells).enumerate() {
            let variant = &variants[place];
            let row = row.map_err(|why| wrong("", &variant.label, why, "run the scenario with this fault alone"))?;
            let mut facts = measure.of(&row.report);
            facts.name = element.name.clone();
            facts.effect = described(*effect).to_string();
            facts.at_us = at.as_us();
            facts.alike = *alike as u64;
            facts.part = Some(element.part);
            facts.class = element.class;
            facts.disconnects =
                question.lasting.is_none() && facts.slowdown.is_none() && cuts_off(&experiment, &element.links);
            failures.push((facts, place));
        }
        // The worst first; equals in the order of the parts, moments and effects.
        failures.sort_by(|a, b| b.0.badness().total_cmp(&a.0.badness()).then(a.1.cmp(&b.1)));
        let worst = failures[0].1;
        for (facts, place) in &mut failures {
            facts.scenario = finished(&variants[*place].scenario, facts, &measure, &base.name(), &names);
        }
        found.steps.push(StepFacts {
            beside: names.clone(),
            parts: all.len() as u64,
            classes: classes as u64,
            tried: tried.len() as u64,
            runs: count as u64,
            failures: failures.into_iter().map(|(facts, _)| facts).collect(),
            classes_of_links: classes_of_links(&experiment, &all),
        });
        names.push(variants[worst].label.clone());
        chosen.clone_from(&tells[worst].4);
        experiment = check(&variants[worst].scenario)?;
    }
    Ok(found)
}

/// The report of the run without a failure.
fn baseline<E>(
    base: &Scenario,
    file: &str,
    run: &mut impl FnMut(&[Variant]) -> Result<Vec<Result<Row, String>>, E>,
) -> Result<Report, Ended<E>> {
    let whole = Variant { label: "without a failure".into(), set: BTreeMap::new(), scenario: base.clone() };
    match run(&[whole]).map_err(Ended::Stopped)?.pop() {
        Some(Ok(row)) => Ok(row.report),
        other => {
            let why = other.and_then(Result::err).unwrap_or_else(|| "it did not run".into());
            Err(wrong("", file, format!("fails without a failure: {why}"), "try `strandway run` first"))
        }
    }
}

/// The moments at which parts fail.
fn moments(question: &Question, end: Span) -> Vec<Span> {
    if !question.at.is_empty() {
        return question.at.clone();
    }
    let count = question.moments.max(1);
    (0..count).map(|n| rounded(end.scaled(f64::from(n) / f64::from(count)))).collect()
}

/// A failure that is tried: the part, how many parts it stands for, its effect, its moment, and all faults of the run.
type Tried<'e> = (&'e Element, usize, Effect, Span, Vec<Table>);

/// The runs in which one of these parts fails at one of these moments, besides the faults that were `chosen` before.
fn struck<'e, E>(
    base: &Scenario,
    question: &Question,
    (tried, moments): (&[(&'e Element, usize)], &[Span]),
    chosen: &[Table],
    limit: Span,
) -> Result<(Vec<Variant>, Vec<Tried<'e>>), Ended<E>> {
    let (mut variants, mut tells) = (Vec::new(), Vec::new());
    for &(element, alike) in tried {
        for effect in &question.effects {
            for at in moments {
                let mut faults = chosen.to_vec();
                faults.extend(element.targets.iter().map(|target| fault(target, question, *effect, *at)));
                let mut struck = base.clone();
                struck.set_value("faults", with_faults(base, &faults))?;
                struck.set_value("run.time_limit", Value::String(written(limit)))?;
                let label = format!("{}, {} at {}", element.name, described(*effect), us(Some(at.as_us())));
                variants.push(Variant { label, set: BTreeMap::new(), scenario: struck });
                tells.push((element, alike, *effect, *at, faults));
            }
        }
    }
    Ok((variants, tells))
}

/// The words for an effect.
fn described(effect: Effect) -> &'static str {
    match effect {
        Effect::Visible => "visible",
        Effect::Silent => "silent",
    }
}

fn plural(parts: &[Part]) -> String {
    let names: Vec<&str> = parts
        .iter()
        .map(|part| match part {
            Part::Link => "links",
            Part::Port => "ports",
            Part::Switch => "switches",
        })
        .collect();
    names.join(" and ")
}

/// A time in whole nanoseconds, as scenarios write it.
fn rounded(span: Span) -> Span {
    Span(span.0 / 1000 * 1000)
}

fn written(span: Span) -> String {
    format!("{} ns", span.0.div_ceil(1000))
}

/// One `[[faults]]`.
fn fault(target: &Table, question: &Question, effect: Effect, at: Span) -> Table {
    let mut made = target.clone();
    made.insert("kind".into(), Value::String("down".into()));
    made.insert("at".into(), Value::String(written(at)));
    if let Some(lasting) = question.lasting {
        made.insert("until".into(), Value::String(written(at + lasting)));
    }
    match effect {
        Effect::Silent => made.insert("silent".into(), Value::Boolean(true)),
        Effect::Visible => {
            question.reconverge.and_then(|r| made.insert("reconverge".into(), Value::String(written(r))))
        }
    };
    made
}

/// The scenario's own faults and these.
fn with_faults(scenario: &Scenario, more: &[Table]) -> Value {
    let mut all = match scenario.table().get("faults") {
        Some(Value::Array(own)) => own.clone(),
        Some(own @ Value::Table(_)) => vec![own.clone()],
        _ => Vec::new(),
    };
    all.extend(more.iter().cloned().map(Value::Table));
    Value::Array(all)
}

/// The links that are down for good in this experiment: they cannot fail once more.
fn chosen_links(experiment: &Experiment) -> Vec<LinkId> {
    let mut links: Vec<LinkId> = experiment.faults.iter().flat_map(|fault| fault.links.iter().copied()).collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// For each part and its class: the names of its links.
fn classes_of_links(experiment: &Experiment, all: &[Element]) -> Vec<ClassOfLinks> {
    let topology = &experiment.plan.topology;
    let of = |element: &Element| ClassOfLinks {
        part: element.part,
        name: element.name.clone(),
        class: element.class,
        links: element
            .links
            .iter()
            .filter_map(|link| topology.ends(*link))
            .map(|ends| {
                let (low, high) = if ends.up { (ends.from, ends.to) } else { (ends.to, ends.from) };
                (topology.node_name(low), topology.node_name(high))
            })
            .collect(),
    };
    // Only a picture needs them, and large fabrics have none.
    if map::of_topology(topology).is_none() { Vec::new() } else { all.iter().map(of).collect() }
}

/// All parts that may fail, except those whose links all have a fault already.
fn elements(experiment: &Experiment, question: &Question, down: &[LinkId]) -> Vec<Element> {
    let topology = &experiment.plan.topology;
    let colours = Colours::of(experiment);
    let mut all = Vec::new();
    let table = |key: &str, value: Value| Table::from_iter([(key.to_string(), value)]);
    for part in &question.parts {
        match part {
            Part::Switch => {
                for node in (topology.hosts()..topology.nodes()).map(NodeId) {
                    let (first, count) = topology.ports_of(node);
                    let links: Vec<LinkId> =
                        (first.0..first.0 + count).map(LinkId).filter(|l| topology.ends(*l).is_some()).collect();
                    let name = topology.node_name(node);
                    let targets = vec![table("switch", Value::String(name.clone()))];
                    all.push(Element { part: *part, name, targets, links, class: colours.node(node) });
                }
            }
            Part::Link | Part::Port => {
                for link in (0..topology.links()).map(LinkId) {
                    let Some(ends) = topology.ends(link).filter(|ends| ends.up) else { continue };
                    if (ends.level == 0) != (*part == Part::Port) {
                        continue;
                    }
                    let links = vec![link, ends.reverse];
                    let (name, targets) = cable(topology, link, ends.reverse);
                    all.push(Element {
                        part: *part,
                        name,
                        targets,
                        links,
                        class: colours.cable(topology, link, ends.reverse),
                    });
                }
            }
        }
    }
    all.retain(|element| element.links.iter().any(|link| down.binary_search(link).is_err()));
    all
}

/// The name of a cable, and the targets of its faults: by its ends, or direction by direction if others run beside it.
fn cable(topology: &Topology, up: LinkId, down: LinkId) -> (String, Vec<Table>) {
    let Some(ends) = topology.ends(up) else { return (String::new(), Vec::new()) };
    let names = [ends.from, ends.to].map(|node| topology.node_name(node));
    let beside = topology.links_between(ends.from, ends.to);
    let name = names.join(" - ");
    if beside.len() == 1 {
        let both = Value::Array(names.into_iter().map(Value::String).collect());
        return (name, vec![Table::from_iter([("between".to_string(), both)])]);
    }
    let number = beside.iter().position(|link| *link == up).unwrap_or(0);
    let one = |link| Table::from_iter([("link".to_string(), Value::String(topology.link_name(link)))]);
    (format!("{name} #{number}"), vec![one(up), one(down)])
}

/// Up to `each` members of each class (0: all), with the number of members of the class that each stands for, and the
/// number of classes.
fn one_of_each(all: &[Element], each: usize) -> (Vec<(&Element, usize)>, usize) {
    let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, element) in all.iter().enumerate() {
        members.entry(element.class).or_default().push(place);
    }
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for places in members.values() {
        let count = if each == 0 { places.len() } else { each.min(places.len()) };
        // Members far apart from each other, the first one among them.
        taken.extend((0..count).map(|n| (places[n * places.len() / count], places.len())));
    }
    taken.sort_unstable();
    (taken.into_iter().map(|(place, alike)| (&all[place], alike)).collect(), members.len())
}

/// The scenario of a failure, to be repeated: with its name, and the result as a bound.
fn finished(scenario: &Scenario, facts: &FailureFacts, measure: &Measure, name: &str, beside: &[String]) -> String {
    let mut table = scenario.table().clone();
    let also: String = beside.iter().map(|other| format!(" and {other}")).collect();
    let what = format!("{}, {} at {}{also}", facts.name, facts.effect, us(Some(facts.at_us)));
    table.insert("name".into(), Value::String(format!("{name}: {what}")));
    if let (Some(value), Some(key)) = (facts.value, &facts.key) {
        let bound = Value::String(format!("{value} +- 0.1%"));
        table.insert("expect".into(), Value::Table(Table::from_iter([(key.clone(), bound)])));
    }
    let result = match facts.slowdown {
        Some(times) => format!("{times:.3} times {}", measure.name()),
        None => "it does not end".to_string(),
    };
    format!("# Found by strandway search: {what}: {result}\n{table}")
}

/// The value that failures make worse.
#[derive(Clone, Debug)]
struct Measure {
    /// The values that are compared by their dotted names, and their values without a failure.
    of: Vec<(String, f64)>,
    words: &'static str,
}

impl Measure {
    fn new<E>(question: &Question, baseline: &Report) -> Result<Measure, Ended<E>> {
        if baseline.head.end != "finished" {
            let what = format!("does not end without a failure: {}", baseline.head.end);
            return Err(wrong("", &baseline.head.scenario, what, "raise run.time_limit, or repair the scenario"));
        }
        if let Some(key) = &question.value {
            let mut values = baseline.values();
            values.retain(|_, value| value.is_some_and(|value| value > 0.0));
            let Some(value) = values.get(key).copied().flatten() else {
                let remedy = match nearest(key, values.keys().map(String::as_str)) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => "name a number above 0 of the JSON report, such as fct_us.p99".to_string(),
                };
                return Err(wrong("--value", key, "is no value of this scenario's report", &remedy));
            };
            return Ok(Measure { of: vec![(key.clone(), value)], words: "" });
        }
        let jobs = baseline.jobs.iter().filter_map(|job| Some((format!("jobs.{}.time_us", job.name), job.time_us?)));
        let jobs: Vec<(String, f64)> = jobs.filter(|(_, time)| *time > 0.0).collect();
        Ok(match jobs.is_empty() {
            false => Measure { of: jobs, words: "the time of the job" },
            true => Measure {
                of: vec![("run.simulated_us".into(), baseline.run.simulated_us)],
                words: "the time until the last flow finished",
            },
        })
    }

    fn name(&self) -> String {
        match (self.words, &self.of[..]) {
            ("", [(key, _)]) => key.clone(),
            (words, _) => words.to_string(),
        }
    }

    fn baseline(&self) -> BTreeMap<String, f64> {
        self.of.iter().cloned().collect()
    }

    /// The worst of the values of a run.
    fn of(&self, report: &Report) -> FailureFacts {
        let values = report.values();
        let delivered = report.flows.delivered_bytes as f64 / report.flows.bytes.max(1) as f64;
        let mut facts = FailureFacts {
            digest: report.head.digest.clone(),
            end: report.head.end.clone(),
            delivered,
            ..FailureFacts::default()
        };
        if report.head.end != "finished" {
            return facts;
        }
        let times = |(key, before): &(String, f64)| {
            let value = values.get(key).copied().flatten()?;
            Some((value / before, key.clone(), value))
        };
        let worst = self.of.iter().filter_map(times).max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((times, key, value)) = worst {
            (facts.slowdown, facts.key, facts.value) = (Some(times), Some(key), Some(value));
        }
        facts
    }
}
