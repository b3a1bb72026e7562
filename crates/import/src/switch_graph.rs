//! A graph of NICs, switches and links that is no leaf-spine fabric: as many NICs on each switch that has some, and any
//! links between switches.

use crate::leaf_spine::{Described, Graph};
use crate::problem::Problems;
use crate::trace::problem;
use std::collections::BTreeMap;
use strandway_fabric::topology::{GRAPH_SWITCHES_MAX, GraphLink, Level};
use strandway_proto::units::{Rate, Span};

/// The fabric that a file describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Fabric {
    /// Leaves and spines, and equal servers.
    LeafSpine(Described),
    /// Any other switches and links, as many NICs on each switch that has some.
    Graph(Switches),
}

/// Switches and links.
#[derive(Clone, Debug, PartialEq)]
pub struct Switches {
    /// NICs.
    pub hosts: u32,
    /// NICs on a switch that has some; the last one may have fewer.
    pub hosts_per_switch: u32,
    /// Rate and latency of a NIC's link.
    pub nic: Level,
    /// Names; switches with NICs first.
    pub names: Vec<String>,
    /// Links between switches.
    pub links: Vec<GraphLink>,
    /// Why it is no leaf-spine fabric.
    pub why: String,
}

impl Switches {
    /// The contents of the file, and how to run it, as lines of text. `what`: the format; `kind`: the kind of fabric that
    /// reads it.
    pub fn describe(&self, what: &str, kind: &str) -> String {
        format!(
            "{what}: {} NICs, {} on a switch; {} switches, {} links between them\n\
             it is no leaf-spine fabric: {}\n\
             to run it: [fabric] kind = \"{kind}\", topo = \"FILE\"\n",
            self.hosts,
            self.hosts_per_switch,
            self.names.len(),
            self.links.len(),
            self.why
        )
    }
}

impl Graph<'_> {
    /// Its switches and links. True if its NICs are numbered by switch in the file, too. `why`: the reason why it is no
    /// leaf-spine fabric.
    ///
    /// # Errors
    /// If a NIC has links to several switches, NICs differ in rate or latency, switches in their number of NICs, or there
    /// are too many switches.
    pub(crate) fn switches(&self, why: String) -> Result<(Switches, bool), Problems> {
        let odd = |what: String, remedy: &str| {
            Err(problem(self.file, None, "", format!("{what}, and is no leaf-spine fabric: {why}"), remedy))
        };
        // Switches with NICs come first, in the order of their first NIC.
        let mut place: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut counts, mut nic): (Vec<u32>, Option<Level>) = (Vec::new(), None);
        let (mut is_in_order, mut last) = (true, 0);
        for host in (0..self.nodes).filter(|node| !self.of.contains_key(node)) {
            let links = self.to(host, Some(false));
            let Some(first) = links.first() else {
                return odd(format!("has no link of GPU {} to a switch", self.name(host)), "add it");
            };
            if links.len() > 1 || !self.to(host, None).is_empty() {
                let what = format!("has several links of GPU {} to switches or GPUs", self.name(host));
                return odd(what, "give each GPU one switch");
            }
            let level = Level { rate: first.rate, latency: first.latency };
            let usual = *nic.get_or_insert(level);
            if usual != level {
                let what = format!("has NICs of {} and of {}, or other latencies", usual.rate, level.rate);
                let remedy = "give all links of hosts the highest rate, and slow down single ones in the scenario: [[faults]] \
                              kind = \"degrade\", link = \"host3->leaf0\", rate = \"100 Gbps\"";
                return odd(what, remedy);
            }
            let at = *place.entry(first.to).or_insert(counts.len() as u32);
            is_in_order &= at >= last;
            last = at;
            if at as usize == counts.len() {
                counts.push(0);
            }
            counts[at as usize] += 1;
        }
        for switch in self.of.iter().filter(|(_, inside)| !**inside).map(|(switch, _)| *switch) {
            let next = place.len() as u32;
            place.entry(switch).or_insert(next);
        }
        if place.len() > GRAPH_SWITCHES_MAX as usize {
            let what = format!("has {} switches, more than the {GRAPH_SWITCHES_MAX} of a graph", place.len());
            return odd(what, "make it smaller, or a leaf-spine fabric");
        }
        let each = counts.first().copied().unwrap_or(1);
        let most = counts.iter().max().copied().unwrap_or(0);
        // The last switch may have fewer.
        if most > each || counts.iter().rev().skip(1).any(|count| *count != each) {
            let least = counts.iter().min().copied().unwrap_or(0);
            let what = format!("has switches with {least} and with {most} NICs");
            return odd(what, "give all switches that have NICs as many");
        }
        let (mut names, mut links) = (vec![String::new(); place.len()], Vec::new());
        for (&switch, &at) in &place {
            // A graph's names have no dots: `leaf.3` is `leaf-3`. Numbers of files become `s12`.
            let name = self.name(switch);
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            names[at as usize] = if is_number { format!("s{name}") } else { name.replace(['.', '>', '#'], "-") };
            for link in self.to(switch, Some(false)).iter().filter(|link| link.to >= switch) {
                if link.to == switch {
                    return odd(format!("links switch {} to itself", self.name(switch)), "remove the link");
                }
                let level = Level { rate: link.rate, latency: link.latency };
                links.push(GraphLink { a: at, b: place[&link.to], level, cost: 1 });
            }
        }
        let hosts = counts.iter().sum();
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        Ok((Switches { hosts, hosts_per_switch: each, nic: nic.unwrap_or(level), names, links, why }, is_in_order))
    }
}
