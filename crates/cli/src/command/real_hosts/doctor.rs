//! `strandway doctor`.

mod machine;
mod numa;
mod polling;

use super::wire;
use crate::Failure;
use crate::args::DoctorArgs;
use crate::outputs::{Outputs, Wanted, print};
use crate::progress::interrupted;
use machine::Machine;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::path::Path;
use strandway_testbed::linux;
use strandway_udp::address;
use strandway_udp::doctor::path::{self, Heard, Listener, PathReport};
use strandway_udp::doctor::{Finding, Verdict, examine};

pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(at) = &args.listen {
        return listen(at);
    }
    if let Some(to) = &args.to {
        return examine_paths(args, to);
    }
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let mut findings = examine();
    let machine = Machine::new(Path::new("/"));
    findings.extend(numa::findings(&machine));
    findings.extend(polling::findings(&machine));
    findings.push(fabrics());
    findings.push(crate::huge_pages::finding());
    outputs.show(&table(&findings));
    outputs.json(|| json(&findings))?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Missing).count() {
        0 => Ok(()),
        count => Err(Failure::Run(format!("{count} feature(s) that real sockets need do not work here; see above"))),
    }
}

/// Answers other doctors until Ctrl-C.
fn listen(at: &[String]) -> Result<(), Failure> {
    let mut listener = Listener::open(&wire::addresses(at, path::PORT, &[])?)?;
    let all = wire::shown(listener.addresses()?.into_iter().map(Into::into));
    print(&format!("listening on {all}; Ctrl-C ends\n"));
    Ok(listener.serve(interrupted, |heard| {
        print(&match heard {
            Heard::Began(from) => format!("{from} examines the path to this host\n"),
            Heard::Deaf(from) => format!(
                "{from} asks, but hears no answers: something drops UDP on the way from here to there; look for a firewall there, and for \
                 a missing route back (`ip route get {}`)\n",
                from.ip()
            ),
        });
    })?)
}

/// The addresses of a host: one of each family that it has.
fn both_families(to: &str) -> Result<Vec<SocketAddrV6>, Failure> {
    let families = [Ipv6Addr::LOCALHOST, Ipv4Addr::LOCALHOST.to_ipv6_mapped()];
    let found = families.map(|like| address::find(to, path::PORT, Some(like)));
    let mut all =
        found.into_iter().collect::<Result<Vec<_>, _>>().map_err(|unknown| Failure::Usage(unknown.to_string()))?;
    all.dedup();
    Ok(all)
}

/// Examines the paths to another host.
fn examine_paths(args: &DoctorArgs, to: &str) -> Result<(), Failure> {
    let peers = both_families(to)?;
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let mut reports: Vec<PathReport> = Vec::new();
    for peer in peers {
        if interrupted() {
            break;
        }
        let report = path::examine_path(peer, &interrupted)?;
        let from = report.local.map_or(String::new(), |local| format!(" from {}", local.ip()));
        outputs.show(&format!("to {}{from}\n{}", report.peer, table(&report.findings)));
        reports.push(report);
    }
    outputs.json(|| {
        let path = |report: &PathReport| {
            serde_json::json!({
                "peer": report.peer.to_string(),
                "local": report.local.map(|local| local.ip().to_string()),
                "open": report.open,
                "findings": rows(&report.findings),
            })
        };
        let paths: Vec<_> = reports.iter().map(path).collect();
        format!("{:#}\n", serde_json::json!({ "format": 1, "to": to, "paths": paths }))
    })?;
    // A family without a route is no fault if the other family works.
    let blocked = |report: &&PathReport| !report.open && report.local.is_some();
    match reports.iter().find(blocked).or(reports.iter().find(|_| reports.iter().all(|report| !report.open))) {
        None => Ok(()),
        Some(report) => Err(Failure::Run(format!("UDP does not pass to {} and back; see above", report.peer))),
    }
}

/// The features that fabrics of namespaces need. Sockets do not need them, so a missing one is not an error.
fn fabrics() -> Finding {
    let missing = linux::check().into_iter().find(|finding| !finding.works);
    let (value, verdict, advice) = match missing {
        None => ("all features work, including ECN and trimming".to_string(), Verdict::Good, String::new()),
        Some(finding) => {
            let advice = format!("{}; `strandway fabric check` has more", finding.remedy);
            (format!("{}: {}", finding.what, finding.said), Verdict::Slow, advice)
        }
    };
    Finding { what: "fabrics of namespaces", value, verdict, advice }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Slow => "slow",
        Verdict::Missing => "missing",
    }
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        text.push_str(&format!("{:<8} {:<width$}  {}\n", word(finding.verdict), finding.what, finding.value));
        if !finding.advice.is_empty() {
            text.push_str(&format!("{:<8} {:<width$}  -> {}\n", "", "", finding.advice));
        }
    }
    text
}

fn rows(findings: &[Finding]) -> Vec<serde_json::Value> {
    let row = |finding: &Finding| {
        serde_json::json!({
            "what": finding.what,
            "value": finding.value,
            "verdict": word(finding.verdict),
            "advice": finding.advice,
        })
    };
    findings.iter().map(row).collect()
}

fn json(findings: &[Finding]) -> String {
    format!("{:#}\n", serde_json::json!({ "format": 1, "findings": rows(findings) }))
}
