//! The keys of scenario files as `docs/scenario.md` describes them: the page is their only description, and a copy of
//! it is in the program.

use crate::reader::Section;
use std::sync::LazyLock;

/// The scenario reference, `docs/scenario.md`.
const PAGE: &str = include_str!("reference.md");

/// The sections and keys at the top of a scenario.
pub(crate) const SECTIONS: [&str; 14] = [
    "name",
    "description",
    "fabric",
    "servers",
    "profile",
    "switch",
    "workload",
    "job",
    "service",
    "faults",
    "clustermapper",
    "run",
    "sweep",
    "expect",
];

/// One row of a table of the reference: keys that are described together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The section of a scenario: `job` for `[job]`, `faults` for `[[faults]]`.
    pub section: &'static str,
    /// The heading of the row's part of the section; empty before the first one.
    pub part: &'static str,
    /// The keys.
    pub keys: Vec<&'static str>,
    /// Kinds of fabrics, workloads or systems to which they belong. Empty: all.
    pub of: String,
    /// The defaults as text; empty without one.
    pub default: String,
    /// Their meaning.
    pub meaning: String,
}

/// All rows of the reference, in its order.
pub fn key_rows() -> &'static [KeyRow] {
    static ROWS: LazyLock<Vec<KeyRow>> = LazyLock::new(|| rows(PAGE));
    &ROWS
}

/// The names of all sections with keys, in the order of the reference.
pub fn key_sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = key_rows().iter().map(|row| row.section).collect();
    sections.dedup();
    sections
}

/// The rows of `job` (a section), `job.recompute` (a key of a section) or `recompute` (a key of any section).
pub fn keys_named(name: &str) -> Vec<&'static KeyRow> {
    let (section, key) = match name.split_once('.') {
        Some((section, key)) => (Some(section), key),
        None if key_rows().iter().any(|row| row.section == name) => {
            return key_rows().iter().filter(|row| row.section == name).collect();
        }
        None => (None, name),
    };
    let fits = |row: &&KeyRow| section.is_none_or(|section| section == row.section) && row.keys.contains(&key);
    key_rows().iter().filter(fits).collect()
}

/// The keys of a section, in the order of the reference. Some come several times, for several kinds.
pub fn key_names(section: &str) -> impl Iterator<Item = &'static str> {
    // The page is parsed when the first key is asked for.
    let rows = std::iter::once_with(key_rows).flatten().filter(move |row| row.section == section);
    rows.flat_map(|row| row.keys.iter().copied())
}

/// Reports the keys of a table of this section that nothing has asked for. After a mistake not all keys were asked for,
/// so then only keys that the reference does not have are certainly unknown.
pub(crate) fn finish(table: Section<'_>, section: &str) {
    debug_assert!(
        table.asked().iter().all(|key| key_names(section).any(|known| known == *key)),
        "docs/scenario.md, [{section}], does not describe all of {:?}",
        table.asked()
    );
    table.finish_knowing(key_names(section));
}

fn rows(page: &'static str) -> Vec<KeyRow> {
    let mut rows = Vec::new();
    let (mut section, mut part) = ("", "");
    // The titles of the columns of the table that is being read.
    let mut titles: Vec<&str> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.strip_prefix('[').map_or("", |name| name.trim_matches(['[', ']']));
            part = "";
        } else if line.starts_with("###") {
            part = line.trim_start_matches(['#', ' ']);
        }
        let Some(cells) = cells(line) else {
            titles.clear();
            continue;
        };
        if titles.is_empty() {
            titles = cells;
            continue;
        }
        if section.is_empty() || titles[0] != "key" || cells[0].starts_with("--") {
            continue;
        }
        let column = |name: &str| titles.iter().position(|title| *title == name).and_then(|at| cells.get(at).copied());
        // Between the names and the meaning stands the column that says to which kinds a key belongs.
        let of = titles.iter().position(|title| ["kinds", "collectives", "kind", "systems"].contains(title));
        rows.push(KeyRow {
            section,
            part,
            keys: names(cells[0]),
            of: of.map(|at| plain(cells[at])).filter(|of| of != "all").unwrap_or_default(),
            default: plain(column("default").unwrap_or_default()),
            meaning: plain(cells.last().copied().unwrap_or_default()),
        });
    }
    rows
}

/// The cells of a table's line.
fn cells(line: &'static str) -> Option<Vec<&'static str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The names in the first cell: `` `link = "leaf0->spine1"` `` and `` `tp`, `cp` `` have one and two.
fn names(cell: &'static str) -> Vec<&'static str> {
    let coded = cell.split('`').skip(1).step_by(2);
    coded.map(|code| code.split([' ', '=']).next().unwrap_or(code)).collect()
}

/// The text of a cell without the targets of its links.
fn plain(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    let mut rest = cell;
    while let Some(at) = rest.find("](") {
        let Some(end) = rest[at..].find(')') else { break };
        let open = rest[..at].rfind('[').unwrap_or(at);
        text.push_str(&rest[..open]);
        text.push_str(rest[open..at].trim_start_matches('['));
        rest = &rest[at + end + 1..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_section_by_both_names_and_alone() {
        assert!(key_sections().starts_with(&["fabric", "profile", "workload"]), "{:?}", key_sections());
        assert!(keys_named("job").len() > 20);
        let [row] = keys_named("job.recompute")[..] else { panic!("one row: {:?}", keys_named("job.recompute")) };
        assert_eq!((row.section, row.default.as_str()), ("job", "`\"none\"`"));
        assert!(row.meaning.contains("selective"), "{row:?}");
        let sections: Vec<&str> = keys_named("iterations").iter().map(|row| row.section).collect();
        assert_eq!(sections, ["workload", "workload", "job"]);
        assert!(keys_named("no_such_key").is_empty());
        let links = keys_named("between");
        assert_eq!((links[0].section, links[0].keys.as_slice()), ("faults", &["between"][..]));
    }

    #[test]
    fn links_become_their_texts() {
        assert_eq!(plain("see [below](#multicast), or `[a](b)"), "see below, or `a");
        assert_eq!(plain("a list [0, 2] and no link"), "a list [0, 2] and no link");
    }
}
