//! Flows as CSV for spreadsheets and notebooks: one line per flow.

use std::fmt::Write;
use strandway_proto::HostId;
use strandway_proto::units::Time;

/// The columns of [`flows`]. Times are in microseconds, and empty if the event did not happen.
const HEAD: &str = "flow,id,source,destination,class,profile,bytes,start_us,received_us,finished_us,fct_us,slowdown";

/// One flow. Times are counted from the start of the run, and absent if the event did not happen.
#[derive(Clone, Copy, Debug)]
pub struct FlowRow<'a> {
    /// Its number in a traffic matrix, if it came from one.
    pub id: Option<u64>,
    /// The sender.
    pub source: HostId,
    /// The receiver.
    pub destination: HostId,
    /// The name of its workload.
    pub class: &'a str,
    /// The name of its connection's profile.
    pub profile: &'a str,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was posted.
    pub started: Option<Time>,
    /// When its receiver had the whole message.
    pub received: Option<Time>,
    /// When its sender knew that.
    pub finished: Option<Time>,
    /// Time from its start until its sender knew that the whole message had arrived, in microseconds.
    pub fct_us: Option<f64>,
    /// `fct_us` divided by the time of the flow alone, by arithmetic.
    pub slowdown: Option<f64>,
}

/// A line of column names, then one line per flow. `received_us` and `finished_us` are counted
/// from the start of the run. `fct_us` is the time from the flow's start until the sender knew that the whole message
/// had arrived.
pub fn flows<'a>(rows: impl ExactSizeIterator<Item = FlowRow<'a>>) -> String {
    let mut out = String::with_capacity(HEAD.len() + rows.len() * 96);
    out.push_str(HEAD);
    out.push('\n');
    let at = |time: Option<Time>| time.map_or(String::new(), |t| format!("{:.6}", t.as_us()));
    for (number, row) in rows.enumerate() {
        let _ = writeln!(
            out,
            "{number},{},host{},host{},{},{},{},{},{},{},{},{}",
            row.id.map_or(String::new(), |id| id.to_string()),
            row.source.0,
            row.destination.0,
            field(row.class),
            field(row.profile),
            row.bytes,
            at(row.started),
            at(row.received),
            at(row.finished),
            row.fct_us.map_or(String::new(), |us| format!("{us:.6}")),
            row.slowdown.map_or(String::new(), |slowdown| format!("{slowdown:.4}")),
        );
    }
    out
}

/// A field of CSV, in quotes if it needs them (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (text, wanted) in [("a", "a"), ("a,b", "\"a,b\""), ("a \"b\"", "\"a \"\"b\"\"\"")] {
            assert_eq!(field(text), wanted);
        }
    }
}
