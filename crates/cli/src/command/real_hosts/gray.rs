//! `strandway fabric localise --nodes`: gray links, named by the packets of running nodes.

use crate::Failure;
use crate::args::FabricLocaliseArgs;
use crate::outputs::{Outputs, Wanted, print};
use crate::progress::interrupted;
use serde_json::json;
use std::time::{Duration, Instant};
use strandway_fabric::gray::{GrayPart, Symptom};
use strandway_fabric::usid::Hop;
use strandway_testbed::linux::{FOLDER, GrayWatch};
use strandway_udp::watch::{VARIABLE, places};

/// The time between two looks: nodes publish their counts as often.
const LOOK: Duration = Duration::from_millis(100);

/// Looks between two searches: ours, a search each second.
const SEARCH: u32 = 10;

pub(crate) fn localise(args: &FabricLocaliseArgs, named: &[String]) -> Result<(), Failure> {
    let name = &args.fabric.name;
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let named = if named.is_empty() { vec![format!("{FOLDER}/{name}/metrics/")] } else { named.to_vec() };
    let mut watch = GrayWatch::on(name)?;
    let (began, mut at) = (Instant::now(), 0);
    let (mut found, mut sent, mut nodes) = (Vec::new(), 0, 0);
    while !interrupted() && (args.watch || began.elapsed() < Duration::from_secs(args.seconds)) {
        let all = places(&named);
        let look = watch.update(&all);
        at += 1;
        (sent, nodes) = (sent + look.sent, nodes.max(look.nodes));
        // A program that has just begun may not serve yet.
        if nodes == 0 && !args.watch && began.elapsed() > Duration::from_secs(2) {
            return Err(nobody(&named, &look.silent));
        }
        if at % SEARCH == 0 {
            let now = watch.find();
            if args.watch && !now.iter().map(links).eq(found.iter().map(links)) {
                print(&format!("{:7.1} s  {}\n", began.elapsed().as_secs_f64(), line(&now)));
            }
            found = now;
        }
        let next = began + LOOK * at;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    if args.watch {
        return Ok(());
    }
    if nodes == 0 {
        return Err(nobody(&named, &[]));
    }
    found = watch.find();
    let mut text: String = found.iter().map(|part| sentence(part) + "\n").collect();
    if found.is_empty() {
        text = format!("no link is named: {sent} packets of {nodes} nodes\n");
    }
    outputs.show(&text);
    outputs.json(|| {
        let suspicions: Vec<_> = found.iter().map(suspicion).collect();
        format!(
            "{:#}\n",
            json!({ "format": 1, "suspicions": suspicions, "untested": [], "nodes": nodes, "sent": sent })
        )
    })?;
    match found.len() {
        0 => Ok(()),
        1 => Err(Failure::Missed("a link is gray".into())),
        count => Err(Failure::Missed(format!("{count} links are gray"))),
    }
}

fn nobody(named: &[String], silent: &[String]) -> Failure {
    let why = if silent.is_empty() { String::new() } else { format!(" ({})", silent.join("; ")) };
    let at = named.join(", ");
    Failure::Run(format!("no node answers at {at}{why}; start nodes with {VARIABLE}={}", named[0]))
}

/// The links of a part, as text.
fn links(part: &GrayPart<Hop>) -> String {
    part.links.iter().map(Hop::to_string).collect::<Vec<_>>().join(" or ")
}

fn line(found: &[GrayPart<Hop>]) -> String {
    if found.is_empty() {
        return "no link is named".into();
    }
    found.iter().map(sentence).collect::<Vec<_>>().join(" | ")
}

/// A part, its fault and the evidence.
fn sentence(part: &GrayPart<Hop>) -> String {
    let links = links(part);
    let evidence = part.evidence;
    let what = match part.symptom {
        Symptom::Loss(share) => format!("{:.2} % lost", share * 100.0),
        Symptom::Full(share) => format!("{:.1} % trimmed", share * 100.0),
        Symptom::Delay(_) => format!("slow, {:.0} % late", 100.0 * evidence.late as f64 / evidence.sent.max(1) as f64),
    };
    let delay =
        if evidence.delay > 0.0 { format!(", round trips {:.1} times as long", evidence.delay) } else { String::new() };
    format!(
        "{links}: {what} of {} packets{delay}; score {:.0}, {} pairs of hosts, {} tenths of a second",
        evidence.sent, part.score, evidence.pairs, evidence.rounds
    )
}

/// A part for programs. `parts` are cables, as of probes; `hops` have a direction.
fn suspicion(part: &GrayPart<Hop>) -> serde_json::Value {
    let mut cables: Vec<String> = part.links.iter().filter_map(Hop::cable).map(|cable| cable.to_string()).collect();
    cables.dedup();
    let hops: Vec<String> = part.links.iter().map(Hop::to_string).collect();
    let evidence = part.evidence;
    let (symptom, share) = match part.symptom {
        Symptom::Loss(share) => ("loss", share),
        Symptom::Full(share) => ("full", share),
        Symptom::Delay(_) => ("delay", 0.0),
    };
    json!({
        "parts": cables,
        "hops": hops,
        "symptom": symptom,
        "lost": share,
        "late": evidence.late,
        "delay": evidence.delay,
        "score": part.score,
        "sent": evidence.sent,
        "rounds": evidence.rounds,
        "pairs": evidence.pairs,
    })
}
