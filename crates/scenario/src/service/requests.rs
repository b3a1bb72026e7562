//! The requests of a service: their times and lengths, from a Poisson process, users or a trace.

use crate::generate::ln;
use crate::reader::{Section, show};
use crate::scenario::Scenario;
use crate::sizes::Sizes;
use std::sync::Arc;
use strandway_import::requests::{REQUESTS_MAX, TOKENS_MAX, TraceRequest, parse};
use strandway_proto::rng::Random;
use strandway_proto::units::{Span, Time};
use strandway_serving::{Arrivals, Request};
use toml::Value;

/// Lengths of prompts or answers, in tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lengths {
    Fixed(u32),
    Uniform(u32, u32),
    Exponential(f64),
    Points(Sizes),
}

impl Lengths {
    fn draw(&self, random: &mut Random) -> u32 {
        let drawn = match self {
            Lengths::Fixed(tokens) => return *tokens,
            Lengths::Uniform(low, high) => low + random.below(high - low + 1),
            Lengths::Exponential(mean) => (-ln(1.0 - random.unit()) * mean + 0.5) as u32,
            Lengths::Points(sizes) => sizes.draw(random).min(TOKENS_MAX.into()) as u32,
        };
        drawn.clamp(1, TOKENS_MAX)
    }
}

/// Where requests come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Trace { requests: Arc<Vec<TraceRequest>>, speed: f64, file: String },
    Poisson { count: u32, rate: f64, input: Lengths, output: Lengths },
    Users { count: u32, users: u32, think: Span, input: Lengths, output: Lengths },
}

/// Reads the keys of requests.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<Source> {
    let count = section.count("requests", 1, REQUESTS_MAX as u64).map(|n| n as u32);
    if let Some(name) = section.text("trace") {
        for key in ["rate", "users", "think", "input", "output"] {
            if section.has(key) {
                section.raw(key);
                section.wrong(key, "is given together with `trace`, which has its own", "leave one of them out");
            }
        }
        let speed = section.ratio("speed", 1e-6, 1e6).unwrap_or(1.0);
        let (file, text) = scenario.read(&name).map_err(|problems| section.unread("trace", problems)).ok()?;
        return match parse(&file, &text) {
            Ok(mut requests) => {
                requests.truncate(count.map_or(usize::MAX, |n| n as usize));
                Some(Source::Trace { requests: Arc::new(requests), speed, file })
            }
            Err(problems) => {
                section.sink.extend(problems.0);
                None
            }
        };
    }
    if section.has("trace") {
        return None;
    }
    if section.has("speed") {
        section.raw("speed");
        section.wrong("speed", "has a meaning with a trace only", "write rate, or name a trace");
    }
    let input = lengths(section, scenario, "input", 1024);
    let output = lengths(section, scenario, "output", 128);
    let (input, output) = (input?, output?);
    let count = count.unwrap_or(1000);
    match section.count("users", 1, 1 << 20) {
        Some(users) => {
            if section.has("rate") {
                section.raw("rate");
                section.wrong("rate", "is given together with `users`", "write one of the two");
            }
            let think = section.span("think").unwrap_or(Span::ZERO);
            Some(Source::Users { count, users: users as u32, think, input, output })
        }
        None => {
            if section.has("think") {
                section.raw("think");
                section.wrong("think", "is the time that users think", "write users, or leave it out");
            }
            let rate = section.ratio("rate", 1e-6, 1e9).unwrap_or(10.0);
            Some(Source::Poisson { count, rate, input, output })
        }
    }
}

/// Reads lengths: a number, `"100..2000"`, `"exponential 512"`, or a file.
fn lengths(section: &Section<'_>, scenario: &Scenario, key: &'static str, default: u32) -> Option<Lengths> {
    let most = u64::from(TOKENS_MAX);
    match section.raw(key) {
        None => return Some(Lengths::Fixed(default)),
        Some(Value::Integer(_)) => return section.count(key, 1, most).map(|n| Lengths::Fixed(n as u32)),
        Some(Value::String(_)) => {}
        Some(other) => {
            let remedy = "write 1024, \"100..2000\", \"exponential 512\", or a file of lines `tokens, share`";
            section.sink.add(&section.path(key), show(other), "is no length", remedy);
            return None;
        }
    }
    let text = section.text(key)?;
    let number = |text: &str| text.trim().replace([',', '_'], "").parse::<u32>().ok().filter(|n| *n <= TOKENS_MAX);
    if let Some((low, high)) = text.split_once("..").filter(|(low, _)| number(low).is_some()) {
        return match (number(low), number(high)) {
            (Some(low), Some(high)) if 1 <= low && low <= high => Some(Lengths::Uniform(low, high)),
            _ => {
                section.wrong(key, "is no range of lengths", "write, say, \"100..2000\"");
                None
            }
        };
    }
    if let Some(mean) = text.strip_prefix("exponential") {
        return match number(mean).filter(|mean| *mean > 0) {
            Some(mean) => Some(Lengths::Exponential(f64::from(mean))),
            None => {
                section.wrong(key, "needs the mean", "write, say, \"exponential 512\"");
                None
            }
        };
    }
    if !text.contains(['.', '/']) {
        let remedy = "write 1024, \"100..2000\", \"exponential 512\", or a file of lines `tokens, share`";
        section.wrong(key, "is no length", remedy);
        return None;
    }
    match scenario.read(&text) {
        Err(problems) => {
            section.unread(key, problems);
            None
        }
        Ok((file, text)) => match Sizes::parse(&text) {
            Ok(sizes) => Some(Lengths::Points(sizes)),
            Err((line, what)) => {
                section.sink.extend(vec![strandway_import::Problem {
                    file,
                    line,
                    what,
                    remedy: "write lines `tokens, share`, both rising, the last share 1".into(),
                    ..Default::default()
                }]);
                None
            }
        },
    }
}

impl Source {
    /// The requests, from `start` on.
    pub(super) fn make(&self, start: Time, random: &mut Random) -> (Vec<Request>, Arrivals) {
        let plain = |at: Time, input: u32, output: u32| Request { at, input, output, hashes: Arc::from([]) };
        match self {
            Source::Trace { requests, speed, .. } => {
                let one = |request: &TraceRequest| Request {
                    at: start + Span((request.at.0 as f64 / speed) as u64),
                    input: request.input,
                    output: request.output,
                    hashes: Arc::from(&request.hashes[..]),
                };
                (requests.iter().map(one).collect(), Arrivals::Open)
            }
            Source::Poisson { count, rate, input, output } => {
                let mut at = start.0 as f64;
                let requests = (0..*count).map(|_| {
                    at += -ln(1.0 - random.unit()) * 1e12 / rate;
                    plain(Time(at as u64), input.draw(random), output.draw(random))
                });
                (requests.collect(), Arrivals::Open)
            }
            Source::Users { count, users, think, input, output } => {
                let requests = (0..*count).map(|_| plain(start, input.draw(random), output.draw(random)));
                (requests.collect(), Arrivals::Closed { users: *users, think: *think })
            }
        }
    }

    /// In words, for a note.
    pub(super) fn words(&self) -> String {
        match self {
            Source::Trace { file, speed, .. } if *speed == 1.0 => format!("as in {file}"),
            Source::Trace { file, speed, .. } => format!("as in {file}, {speed} times as fast"),
            Source::Poisson { rate, .. } => format!("at {rate} per second"),
            Source::Users { users, .. } => format!("of {users} users"),
        }
    }
}
