//! Files that list hosts, one number per line.

use strandway_import::{HOSTS_MAX, Problem, Problems};
use strandway_proto::HostId;

/// The hosts in a file with one number per line, and the line of each. `#` starts a comment.
pub(super) fn hosts_of(file: &str, text: &str) -> Result<Vec<(HostId, usize)>, Problems> {
    let mut list = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        match entry.parse::<u32>() {
            Ok(host) if u64::from(host) < HOSTS_MAX => list.push((HostId(host), i + 1)),
            _ => {
                let shown: String = entry.chars().take(40).collect();
                let what = "is not the number of a host";
                return Err(Problems(vec![at_line(file, Some(i + 1), &shown, what, "write one number per line")]));
            }
        }
    }
    if list.is_empty() {
        let remedy = "write the number of a host per line";
        return Err(Problems(vec![at_line(file, None, "", "names no host", remedy)]));
    }
    Ok(list)
}

/// A problem with this line of a file of hosts.
pub(super) fn at_line(file: &str, line: Option<usize>, entry: &str, what: &str, remedy: &str) -> Problem {
    Problem {
        file: file.to_string(),
        line,
        key: if entry.is_empty() { String::new() } else { format!("`{entry}`") },
        value: String::new(),
        what: what.to_string(),
        remedy: remedy.to_string(),
    }
}
