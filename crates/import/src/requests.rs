//! Traces of requests to a model: Mooncake's JSON lines, and CSV.
//!
//! Mooncake (github.com/kvcache-ai/Mooncake, `FAST25-release/traces`) writes a JSON object per line: `timestamp` in
//! milliseconds, `input_length` and `output_length` in tokens, and `hash_ids`, a number for each block of 512 tokens of
//! the prompt, equal for equal prefixes. A CSV file has lines `seconds, input, output` and, if prompts share prefixes,
//! a fourth field with the hashes separated by spaces. A first line of words is a heading, `#` starts a comment.

use super::trace::problem;
use crate::problem::Problems;
use serde::Deserialize;
use strandway_proto::units::Time;

/// Limit on the requests of a file: ours.
pub const REQUESTS_MAX: usize = 1 << 20;

/// Limit on the tokens of a prompt or of an answer: ours.
pub const TOKENS_MAX: u32 = 1 << 24;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it arrives, from the beginning of the trace.
    pub at: Time,
    /// Tokens of its prompt.
    pub input: u32,
    /// Tokens of the answer.
    pub output: u32,
    /// The hashes of its blocks.
    pub hashes: Vec<u64>,
}

/// A line of Mooncake's.
#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

const REMEDY: &str = "write lines `seconds, input tokens, output tokens`, or Mooncake's JSON lines";

/// Reads a trace. Requests are sorted by time; those of one time keep their order.
///
/// # Errors
/// The first line that is wrong, or a file without requests.
pub fn parse(file: &str, text: &str) -> Result<Vec<TraceRequest>, Problems> {
    let (mut requests, mut first) = (Vec::new(), true);
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let heading = first && line.starts_with(|c: char| c.is_alphabetic());
        first &= line.is_empty();
        if line.is_empty() || heading {
            continue;
        }
        let fail = |what: &str| problem(file, Some(i + 1), line, what, REMEDY);
        let (seconds, request) = if line.starts_with('{') {
            let read: Line = serde_json::from_str(line).map_err(|e| fail(&format!("is no request: {e}")))?;
            let Line { timestamp, input_length, output_length, hash_ids } = read;
            (timestamp / 1e3, (input_length, output_length, hash_ids))
        } else {
            fields(line).map_err(|what| fail(&what))?
        };
        let (input, output, hashes) = request;
        if !seconds.is_finite() || !(0.0..=1e6).contains(&seconds) {
            return Err(fail("has a time that is not from 0 to a million seconds"));
        }
        if !(1..=TOKENS_MAX).contains(&input) || output > TOKENS_MAX {
            return Err(fail("has a length that is not from 1 to 16,777,216 tokens"));
        }
        if requests.len() == REQUESTS_MAX {
            return Err(fail("is one request too many: a file may have 1,048,576"));
        }
        // A request without output is one whose only token ends it.
        let at = Time((seconds * 1e12) as u64);
        requests.push(TraceRequest { at, input, output: output.max(1), hashes });
    }
    if requests.is_empty() {
        return Err(problem(file, None, "", "has no requests", REMEDY));
    }
    requests.sort_by_key(|request| request.at);
    Ok(requests)
}

/// Lengths and hashes of a request.
type Lengths = (u32, u32, Vec<u64>);

/// The fields of a line of CSV.
fn fields(line: &str) -> Result<(f64, Lengths), String> {
    let mut parts = line.split([',', ';', '\t']).map(str::trim);
    let mut next = |name: &str| parts.next().filter(|part| !part.is_empty()).ok_or(format!("has no {name}"));
    let seconds = next("time")?;
    let seconds = seconds.parse::<f64>().map_err(|_| format!("has a time that is no number, `{seconds}`"))?;
    let mut tokens = |name: &str| {
        let text = next(name)?;
        text.parse::<u32>().map_err(|_| format!("has an {name} that is no number of tokens, `{text}`"))
    };
    let (input, output) = (tokens("input")?, tokens("output")?);
    let hashes = parts.next().unwrap_or_default().split_whitespace();
    let hashes: Result<Vec<u64>, _> = hashes.map(|hash| hash.parse::<u64>()).collect();
    let hashes = hashes.map_err(|_| "has a hash that is no whole number".to_string())?;
    if parts.next().is_some() {
        return Err("has more than four fields".into());
    }
    Ok((seconds, (input, output, hashes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_the_same() {
        let json = "{\"timestamp\": 1500, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [0, 7]}\n\
                    {\"timestamp\": 0, \"input_length\": 3, \"output_length\": 0}\n";
        let csv = "seconds,input,output,hashes\n0, 3, 0 # ends at once\n1.5, 700, 5, 0 7\n";
        let read = parse("a.jsonl", json).expect("sound");
        assert_eq!(read, parse("a.csv", csv).expect("sound"));
        assert_eq!(read[0], TraceRequest { at: Time::ZERO, input: 3, output: 1, hashes: Vec::new() });
        assert_eq!((read[1].at, read[1].hashes.as_slice()), (Time(1_500_000_000_000), &[0, 7][..]));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, wanted) in [
            ("", "has no requests"),
            ("0, 5, 5\n1, 5", "a:2: `1, 5`: has no output"),
            ("0, x, 5", "an input that is no number of tokens, `x`"),
            ("x, 1, 5", "heading or nothing"),
            ("0, 0, 5", "not from 1 to"),
            ("-1, 1, 5", "has a time that is not"),
            ("nan, 1, 5", "has no requests"),
            ("0, 1, 5, a", "a hash that is no whole number"),
            ("0, 1, 5, 1, 2", "more than four"),
            ("{\"timestamp\": 0}", "is no request: missing field"),
            ("{\"timestamp\": 1e300, \"input_length\": 1, \"output_length\": 1}", "has a time"),
        ] {
            let said = parse("a", text).expect_err(text).to_string();
            let wanted = if wanted.starts_with("heading") { "has no requests" } else { wanted };
            assert!(said.contains(wanted), "{text}: {said}");
        }
    }
}
