//! `strandway doctor`.

use crate::Failure;
use crate::args::DoctorArgs;
use crate::outputs::{Outputs, Wanted};
use strandway_lab::linux;
use strandway_udp::doctor::{Finding, Verdict, examine};

pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &[])?;
    let mut findings = examine();
    findings.push(fabrics());
    findings.push(crate::huge_pages::finding());
    outputs.show(&table(&findings));
    outputs.json(|| json(&findings))?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Missing).count() {
        0 => Ok(()),
        count => Err(Failure::Run(format!("{count} feature(s) that real sockets need do not work here; see above"))),
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

fn json(findings: &[Finding]) -> String {
    let rows: Vec<_> = findings
        .iter()
        .map(|finding| {
            serde_json::json!({
                "what": finding.what,
                "value": finding.value,
                "verdict": word(finding.verdict),
                "advice": finding.advice,
            })
        })
        .collect();
    format!("{:#}\n", serde_json::json!({ "format": 1, "findings": rows }))
}
