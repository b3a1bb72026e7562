//! `strandway top`.

use crate::Failure;
use crate::args::TopArgs;
use crate::outputs::{Outputs, Wanted, print};
use crate::progress::interrupted;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use strandway_udp::watch::{self, VARIABLE, ask};

/// A part that has published nothing for this time is not called by its program: ours, several intervals.
const STALE: f64 = 2.0;

pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    if !(0.1..=3_600.0).contains(&args.interval) {
        return Err(Failure::Usage(format!("--interval {}: take 0.1 to 3600", args.interval)));
    }
    let mut places = args.places.clone();
    if places.is_empty() {
        places.extend(std::env::var(VARIABLE).ok().filter(|place| !place.is_empty()));
    }
    if places.is_empty() {
        let said = format!(
            "name a place, such as /run/strandway/metrics/ or 127.0.0.1:9464; programs serve where {VARIABLE} says"
        );
        return Err(Failure::Usage(said));
    }
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let mut before = BTreeMap::new();
    loop {
        let looked = Instant::now();
        let statuses: Vec<(String, Result<Value, String>)> =
            watch::places(&places).into_iter().map(|place| (place.clone(), status(&place))).collect();
        let text = view(&statuses, &mut before);
        if args.once {
            outputs.show(&text);
            let all: Vec<&Value> = statuses.iter().filter_map(|(_, status)| status.as_ref().ok()).collect();
            outputs.json(|| format!("{:#}\n", json!({ "format": 1, "processes": all })))?;
            return judged(&statuses);
        }
        // On a terminal, from its upper left corner; elsewhere one view after the other.
        let (home, rest) = if std::io::stdout().is_terminal() { ("\x1b[H", "\x1b[J") } else { ("", "\n") };
        print(&format!("{home}{}{rest}", text.replace('\n', if home.is_empty() { "\n" } else { "\x1b[K\n" })));
        while looked.elapsed() < Duration::from_secs_f64(args.interval) {
            if interrupted() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if interrupted() {
            return Ok(());
        }
    }
}

/// The exit status of one look.
fn judged(statuses: &[(String, Result<Value, String>)]) -> Result<(), Failure> {
    let answers: Vec<&Value> = statuses.iter().filter_map(|(_, status)| status.as_ref().ok()).collect();
    if answers.is_empty() {
        let why: Vec<String> = statuses.iter().map(|(place, status)| format!("{place}: {}", said(status))).collect();
        let why = if why.is_empty() { "no socket is in the folder".into() } else { why.join("\n") };
        return Err(Failure::Run(format!("nobody answers: {why}; start programs with {VARIABLE}=PLACE")));
    }
    let count: usize = answers.iter().map(|status| rows(status, "sentences").len()).sum();
    match count {
        0 => Ok(()),
        1 => Err(Failure::Missed("one thing needs a look".into())),
        count => Err(Failure::Missed(format!("{count} things need a look"))),
    }
}

fn said(status: &Result<Value, String>) -> &str {
    status.as_ref().err().map_or("answers", String::as_str)
}

/// The status of a process.
fn status(place: &str) -> Result<Value, String> {
    serde_json::from_str(&ask(place, "/status")?).map_err(|e| format!("its answer is no status: {e}"))
}

fn rows<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("?")
}

/// The bytes of each part's planes at the last look, and when that was.
type Before = BTreeMap<String, (Instant, u64, u64)>;

/// All processes: first what needs a look, then a line per part, peer and call.
fn view(statuses: &[(String, Result<Value, String>)], before: &mut Before) -> String {
    let mut text = String::new();
    for (place, status) in statuses {
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                text.push_str(&format!("{place}: does not answer: {why}\n"));
                continue;
            }
        };
        text.push_str(&format!("{} process {} ({place})\n", text_of(status, "host"), status["process"]));
        for sentence in rows(status, "sentences") {
            text.push_str(&format!("  ! {}\n", sentence.as_str().unwrap_or("?")));
        }
        for part in rows(status, "parts") {
            part_lines(part, place, before, &mut text);
        }
    }
    text
}

fn part_lines(part: &Value, place: &str, before: &mut Before, text: &mut String) {
    let (name, state) = (text_of(part, "part"), &part["state"]);
    let age = part["age_s"].as_f64().unwrap_or(0.0);
    if age > STALE {
        text.push_str(&format!("  ! {name}: its program has not called it for {age:.1} s\n"));
    }
    match text_of(part, "kind") {
        "node" => {
            let sum = |key: &str| rows(state, "planes").iter().filter_map(|plane| plane[key].as_u64()).sum::<u64>();
            let (sent, received) = (sum("sent_bytes"), sum("received_bytes"));
            let now = Instant::now();
            let last = before.insert(format!("{place} {name}"), (now, sent, received));
            let rate = |new: u64, old: u64, since: Instant| {
                new.saturating_sub(old) as f64 * 8e-9 / now.duration_since(since).as_secs_f64().max(1e-3)
            };
            let rates = last.map_or("-/-".to_string(), |(at, out, come)| {
                format!("{:.3}/{:.3}", rate(received, come, at), rate(sent, out, at))
            });
            let profile = text_of(state, "profile");
            text.push_str(&format!("  {name}: {profile}, {} connections, Gb/s in/out {rates}\n", state["connections"]));
            for peer in rows(state, "peers") {
                let ways = rows(peer, "planes").iter().map(|way| {
                    let rtt = way["rtt_p50_s"].as_f64().map_or(String::new(), |rtt| format!(" {:.0} us", rtt * 1e6));
                    format!("{} {}{rtt}", text_of(way, "plane"), text_of(way, "state"))
                });
                text.push_str(&format!(
                    "    {:<36} {} of {} packets again; {}\n",
                    text_of(peer, "peer"),
                    peer["retransmitted"],
                    peer["sent_packets"],
                    ways.collect::<Vec<_>>().join(", ")
                ));
            }
        }
        "group" => {
            for group in rows(state, "groups") {
                let calls = rows(group, "calls");
                let (rank, ranks) = (&group["rank"], &group["ranks"]);
                text.push_str(&format!("  {name}: rank {rank} of {ranks}, {} calls under way\n", calls.len()));
                for call in calls {
                    let ranks: Vec<String> =
                        rows(call, "waits_for").iter().map(|one| one["rank"].to_string()).collect();
                    text.push_str(&format!(
                        "    {} {}: {:.1} s old, last moved {:.1} s ago, waits for ranks {}\n",
                        text_of(call, "call"),
                        text_of(call, "number"),
                        call["age_s"].as_f64().unwrap_or(0.0),
                        call["idle_s"].as_f64().unwrap_or(0.0),
                        ranks.join(" ")
                    ));
                }
            }
        }
        // Copies, casts and switches are small objects of numbers.
        _ => text.push_str(&format!("  {name}: {state}\n")),
    }
}
