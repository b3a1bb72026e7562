//! `[fabric]` with `kind = "sites"`: sites joined by long links, each with its own distance, rate, queue and loss.

use super::faults::{FaultNote, Faults, burst_of};
use super::shapes::{COUNT_MAX, levels, planes};
use crate::propagation::Rule;
use crate::reader::{Section, Sink, show};
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::quantity::{self, Size};
use strandway_fabric::topology::{Level, LongLink, SITES_MAX, SitesShape};
use strandway_fabric::{LinkId, Topology};
use strandway_import::HOSTS_MAX;
use strandway_proto::units::{Bytes, Rate, Span, Time};
use toml::Value;

/// Limit on a queue, as time at its link's rate: time stamps of waiting packets wrap after 4.4 s.
const QUEUE_MAX: Span = Span::from_ms(4000);

/// The keys of a long link; `None` for absent ones.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    latency: Option<Span>,
    rate: Option<Rate>,
    queue: Option<Queue>,
    loss: Option<f64>,
    burst: Option<Burst>,
    one_way: Option<bool>,
}

/// The queue at the ends of a long link.
#[derive(Clone, Copy, Debug)]
enum Queue {
    /// This time at the link's rate.
    Time(Span),
    Bytes(Bytes),
    /// This factor times the link's rate times twice its latency.
    Bdp(f64),
}

/// A fabric of sites, and the permanent losses of its long links.
pub(super) fn read(section: &Section<'_>, nodes: Option<u32>) -> Option<(Topology, Faults)> {
    let sites = section.count("sites", 2, u64::from(SITES_MAX)).unwrap_or(2);
    let per_site = section.count("hosts_per_site", 1, COUNT_MAX);
    let hosts = section.count("hosts", 1, HOSTS_MAX).or(nodes.filter(|_| !section.has("hosts")).map(u64::from));
    let per_site = match (per_site, hosts) {
        (Some(per_site), Some(hosts)) if per_site * sites != hosts => {
            let what = format!("are not {sites} sites of {per_site}");
            section.wrong("hosts", what, format!("write {}, or leave it out", per_site * sites));
            return None;
        }
        (Some(per_site), _) => per_site,
        (None, Some(hosts)) if hosts % sites != 0 => {
            section.wrong("hosts", format!("do not divide into {sites} sites"), "write a multiple, or hosts_per_site");
            return None;
        }
        (None, Some(hosts)) => hosts / sites,
        (None, None) => 1,
    };
    let planes = planes(section, 1);
    let bundle = section.count("bundle", 1, 1024).unwrap_or(1);
    let (levels, inside) = levels(section, planes, Rate::from_gbps(400))?;
    let local = levels[0];
    let shape = SitesShape {
        sites: sites as u32,
        hosts_per_site: per_site as u32,
        planes: planes as u8,
        bundle: bundle as u32,
    };
    let all = written(section);
    let mut each = vec![all; shape.pairs().count()];
    // Losses of one direction begin at the site that is named first.
    let mut first: Vec<u32> = shape.pairs().map(|(low, _)| low).collect();
    exceptions(section, shape, &mut each, &mut first);
    let mut long = Vec::with_capacity(each.len());
    for ((a, b), w) in shape.pairs().zip(&each) {
        let Some(latency) = w.latency else {
            let what = format!("is missing for sites {a} and {b}");
            section.sink.add(
                &section.path("distance"),
                "",
                what,
                "write distance = \"1000 km\" or long_latency = \"5 ms\"",
            );
            return None;
        };
        let level = Level { rate: w.rate.unwrap_or(local.rate), latency };
        long.push(LongLink { level, queue: queue(section, w.queue.unwrap_or(Queue::Bdp(1.0)), &level)? });
    }
    let topology = match Topology::of_sites(shape, local, long, inside[0]) {
        Ok(topology) => topology,
        Err(said) => {
            section.sink.add(section.name(), "", said, "make the fabric smaller or correct its numbers");
            return None;
        }
    };
    let cut_through = section.choice("switching", &["store-and-forward", "cut-through"]) == Some("cut-through");
    if cut_through && let Err(said) = topology.clone().with_cut_through() {
        section.wrong("switching", said, "write \"store-and-forward\", or leave it out");
    }
    let faults = losses(&topology, shape, &each, &first);
    Some((topology, faults))
}

fn written(section: &Section<'_>) -> Written {
    let rule = section.choice("rule", &["glass", "paper"]);
    let distance = section.metres("distance");
    if section.has("rule") && !section.has("distance") {
        section.wrong("rule", "is for a distance, which is missing", "write a `distance`, or leave it out");
    }
    let rule = if rule == Some("paper") { Rule::Paper } else { Rule::Glass };
    if section.has("distance") && section.has("long_latency") {
        section.wrong("long_latency", "is given together with `distance`", "write one of the two");
    }
    let latency = section.span("long_latency").or(distance.map(|metres| rule.latency(metres)));
    let longest = Span::from_ms(1000);
    if let Some(latency) = latency.filter(|l| *l < Span::from_ns(1) || *l > longest) {
        let key = if section.has("distance") { "distance" } else { "long_latency" };
        section.wrong(key, format!("takes {latency} one way"), "write a value with a time from \"1 ns\" to \"1 s\"");
    }
    let loss = section.ratio("loss", 0.0, 1.0);
    Written {
        latency,
        rate: section.rate("long_rate"),
        queue: written_queue(section),
        loss,
        burst: burst_of(section),
        one_way: section.flag("loss_one_way"),
    }
}

/// Reads a time or a size.
fn written_queue(section: &Section<'_>) -> Option<Queue> {
    if let Some(Value::String(text)) = section.raw("long_queue")
        && let Ok(span) = quantity::span(text)
    {
        return Some(Queue::Time(span));
    }
    match section.size("long_queue")? {
        Size::Bytes(bytes) => Some(Queue::Bytes(bytes)),
        Size::Bdp(factor) => Some(Queue::Bdp(factor)),
        Size::Packets(_) => {
            section.wrong("long_queue", "is a number of packets", "write a size, a time, or, say, \"1 BDP\"");
            None
        }
    }
}

fn queue(section: &Section<'_>, queue: Queue, level: &Level) -> Option<Bytes> {
    let bytes = match queue {
        Queue::Time(span) => level.rate.bytes_in(span),
        Queue::Bytes(bytes) => bytes,
        Queue::Bdp(factor) => Bytes((level.rate.bytes_in(level.latency * 2).0 as f64 * factor) as u64),
    };
    if level.rate.time_for(bytes) > QUEUE_MAX {
        let what = format!("holds {} of a link of {}, more than {QUEUE_MAX}", level.rate.time_for(bytes), level.rate);
        section.wrong("long_queue", what, format!("write at most \"{QUEUE_MAX}\""));
        return None;
    }
    // Even the queue of a short long link must hold some packets.
    Some(bytes.max(if matches!(queue, Queue::Bdp(_)) { Bytes(64 << 10) } else { Bytes::ZERO }))
}

/// `[[fabric.long_links]]`: other settings between two sites.
fn exceptions(section: &Section<'_>, shape: SitesShape, each: &mut [Written], first: &mut [u32]) {
    let items = match section.raw("long_links") {
        None => return,
        Some(Value::Array(items)) => items,
        Some(_) => {
            section.wrong("long_links", "must be a list of tables", "write [[fabric.long_links]] above each");
            return;
        }
    };
    for (i, item) in items.iter().enumerate() {
        let name = format!("{}[{i}]", section.path("long_links"));
        let Value::Table(table) = item else {
            section.sink.add(&name, show(item), "must be a table", "write [[fabric.long_links]] above each");
            continue;
        };
        let one = Section::new(section.sink, name, Some(table));
        let pair = between(&one, shape);
        let own = written(&one);
        one.finish();
        let Some((a, b)) = pair else { continue };
        let (at, all) = (SitesShape::pair(a, b), each[SitesShape::pair(a, b)]);
        first[at] = a;
        each[at] = Written {
            latency: own.latency.or(all.latency),
            rate: own.rate.or(all.rate),
            queue: own.queue.or(all.queue),
            loss: own.loss.or(all.loss),
            burst: own.burst.or(all.burst),
            one_way: own.one_way.or(all.one_way),
        };
    }
}

/// Two different sites, by number.
fn between(section: &Section<'_>, shape: SitesShape) -> Option<(u32, u32)> {
    let site = |value: &Value| value.as_integer().and_then(|n| u32::try_from(n).ok()).filter(|n| *n < shape.sites);
    let pair = match section.raw("between") {
        Some(Value::Array(ends)) if ends.len() == 2 => site(&ends[0]).zip(site(&ends[1])).filter(|(a, b)| a != b),
        _ => None,
    };
    if pair.is_none() {
        let what = if section.has("between") { "must be two different sites" } else { "is missing" };
        let remedy = format!("write between = [0, 1]; sites have the numbers 0 to {}", shape.sites - 1);
        let value = section.raw("between").map(show).unwrap_or_default();
        section.sink.add(&section.path("between"), value, what, remedy);
    }
    pair
}

/// The permanent losses of long links, as faults.
fn losses(topology: &Topology, shape: SitesShape, each: &[Written], first: &[u32]) -> Faults {
    let mut faults = Faults::default();
    for (((a, b), w), &first) in shape.pairs().zip(each).zip(first) {
        let Some(probability) = w.loss.filter(|loss| *loss > 0.0) else { continue };
        let site = |node| topology.describe(node).1;
        let one_way = w.one_way.unwrap_or(false);
        let struck = topology.long_links().filter(|(_, e)| {
            let (from, to) = (site(e.from), site(e.to));
            (from, to) == (first, a + b - first) || (!one_way && (to, from) == (first, a + b - first))
        });
        let links: Vec<LinkId> = struck.map(|(link, _)| link).collect();
        let burst = w.burst.unwrap_or(Burst::NONE);
        let arrow = if one_way { "->" } else { " - " };
        faults.notes.push(FaultNote {
            name: String::new(),
            what: format!("site{first}{arrow}site{} {}", a + b - first, super::faults::loses(probability, burst)),
            from: Time::ZERO,
            until: Time::NEVER,
            links: links.clone(),
        });
        faults.plans.push(FaultPlan {
            links,
            kind: FaultKind::Loss { probability, burst },
            from: Time::ZERO,
            until: Time::NEVER,
        });
    }
    faults
}

/// Reports settings that cannot work with long links, whatever the profile.
pub(super) fn refuse(sink: &Sink, written: [(&'static str, bool); 2]) {
    for (key, _) in written.into_iter().filter(|(_, written)| *written) {
        let what = "does not work over long links: a pause would come a round trip late";
        sink.add(
            &format!("fabric.{key}"),
            "",
            what,
            "leave it out; packets that do not fit a queue are trimmed or dropped",
        );
    }
}
