//! Placements of ranks on hosts.

use crate::host_list::{at_line, hosts_of};
use crate::maker::Maker;
use crate::reader::Section;
use crate::scenario::Scenario;
use strandway_collective::{Placement, PlacementError};
use strandway_proto::HostId;

/// The placement of a collective in a scenario.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Its name in reports.
    pub(super) name: String,
    pub(super) placement: Placement,
    /// If it is a list: its file, and the line of each entry.
    pub(super) file: String,
    pub(super) lines: Vec<usize>,
}

impl Placed {
    /// These hosts, in this order.
    pub(super) fn on(hosts: Vec<HostId>) -> Placed {
        let placement = Placement::List(hosts);
        Placed { name: "contiguous".to_string(), placement, file: String::new(), lines: Vec::new() }
    }
}

/// Reads the key `placement`.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<Placed> {
    let name = match section.text("placement") {
        Some(name) => name,
        None if section.has("placement") => return None,
        None => "contiguous".to_string(),
    };
    let plain = |placement| Placed { name: name.clone(), placement, file: String::new(), lines: Vec::new() };
    match name.as_str() {
        "contiguous" => return Some(plain(Placement::Contiguous)),
        "random" => return Some(plain(Placement::Random)),
        _ => {}
    }
    if !name.contains(['.', '/']) {
        section.wrong("placement", "is no placement", "write \"contiguous\", \"random\" or a file, one host per line");
        return None;
    }
    let list = scenario.read(&name).and_then(|(file, text)| Ok((hosts_of(&file, &text)?, file)));
    match list {
        Ok((list, file)) => {
            let (hosts, lines) = list.into_iter().unzip();
            Some(Placed { name, placement: Placement::List(hosts), file, lines })
        }
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

impl Maker<'_> {
    /// The hosts of the ranks of all groups.
    pub(super) fn place(&mut self, placed: &Placed, ranks: u32) -> Option<Vec<HostId>> {
        let there = self.context.topology.hosts();
        let Placed { placement, file, lines, .. } = placed;
        let error = match placement.hosts(ranks, there, &mut self.random) {
            Ok(hosts) => return Some(hosts),
            Err(error) => error,
        };
        let entry = |at: usize| match placement {
            Placement::List(list) => (list[at].0.to_string(), lines.get(at).copied()),
            _ => (String::new(), None),
        };
        match error {
            PlacementError::TooFew(hosts) => {
                let of = if file.is_empty() { "in the fabric" } else { "in the placement" };
                self.complain("ranks", ranks, format!("there are only {hosts} hosts {of}"), "write fewer");
            }
            PlacementError::Outside(at) => {
                let (value, line) = entry(at);
                let what = format!("there are only {there} hosts, numbered from 0 to {}", there - 1);
                self.context.sink.extend(vec![at_line(file, line, &value, &what, "name one of them")]);
            }
            PlacementError::Twice(at) => {
                let (value, line) = entry(at);
                let what = "this host has a rank already";
                self.context.sink.extend(vec![at_line(file, line, &value, what, "name every host once")]);
            }
        }
        None
    }
}
