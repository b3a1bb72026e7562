//! A document as a graph of NICs and switches.

use super::document::{Device, Document, EdgeSet, End, Link};
use super::slices;
use crate::problem::{Problem, Problems, suggest};
use std::collections::{BTreeMap, BTreeSet};
use strandway_fabric::topology::Level;
use strandway_proto::units::{Rate, Span};

/// Limit on instances, and on the parts of one device that an edge names: ours.
const INSTANCES_MAX: i64 = 1 << 21;
/// Limit on links: ours.
const LINKS_MAX: usize = 1 << 24;
/// Limit on devices inside devices: ours.
const DEPTH_MAX: usize = 8;

/// A part of an instance: the position of each component among those of its device, and its index.
type Part = Vec<(u16, u32)>;

/// A link between two instances.
pub(super) struct Wire {
    /// The instances, counted over the whole document.
    pub(super) ends: [u32; 2],
    /// The NIC, if the end is at a host: the place in [`Wired::nics`].
    pub(super) nics: [Option<u32>; 2],
    pub(super) level: Level,
}

/// The instances of a document, and the links between them.
pub(super) struct Wired {
    /// The name of each instance, with its index: `leaf.3`.
    pub(super) names: Vec<String>,
    /// Is it a host?
    pub(super) hosts: Vec<bool>,
    /// The host of each NIC that has a link, in the order of hosts and then of NICs.
    pub(super) nics: Vec<u32>,
    pub(super) wires: Vec<Wire>,
    /// GPUs of a host, and rate and latency of a GPU's links to switches inside, if they are given.
    pub(super) inside: Option<IntraServer>,
    /// Sentences about what was assumed.
    pub(super) notes: Vec<String>,
}

/// GPUs of a host, and their links inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IntraServer {
    pub(super) gpus: u32,
    pub(super) link: Option<(Rate, Span)>,
}

/// Looks up what a document names.
struct Reader<'a> {
    file: &'a str,
    document: &'a Document,
    devices: BTreeMap<&'a str, &'a Device>,
    /// The number of the first instance of each name, and its device.
    instances: BTreeMap<&'a str, (u32, u32, &'a Device)>,
}

/// Reads the links between instances. `usual`: the rate and the latency of links that do not name theirs.
pub(super) fn read(file: &str, document: &Document, usual: Level) -> Result<Wired, Problems> {
    let mut reader = Reader { file, document, devices: BTreeMap::new(), instances: BTreeMap::new() };
    for device in &document.devices {
        if reader.devices.insert(&device.name, device).is_some() {
            return Err(reader.wrong("devices", &device.name, "is named twice", "name each device once"));
        }
    }
    let (mut names, mut hosts) = (Vec::new(), Vec::new());
    for instance in &document.instances {
        let device = reader.device("instances", &instance.device)?;
        let most = INSTANCES_MAX - names.len() as i64;
        if !(1..=most).contains(&instance.count) {
            let what = format!("has count = {}, and a document has 1 to {INSTANCES_MAX} instances", instance.count);
            return Err(reader.wrong("instances", &instance.name, what, "correct the count"));
        }
        let known = (names.len() as u32, instance.count as u32, device);
        if reader.instances.insert(&instance.name, known).is_some() {
            return Err(reader.wrong("instances", &instance.name, "is named twice", "name each instance once"));
        }
        let is_host = reader.holds(device, &["nic", "xpu"], 0)?;
        names.extend((0..instance.count).map(|at| format!("{}.{at}", instance.name)));
        hosts.extend((0..instance.count).map(|_| is_host));
    }
    reader.wires(names, hosts, usual)
}

impl<'a> Reader<'a> {
    fn wrong(&self, key: &str, value: &str, what: impl Into<String>, remedy: impl Into<String>) -> Problems {
        Problems(vec![Problem {
            file: self.file.into(),
            line: None,
            key: key.into(),
            value: format!("\"{value}\""),
            what: what.into(),
            remedy: remedy.into(),
        }])
    }

    fn device(&self, key: &str, name: &str) -> Result<&'a Device, Problems> {
        let known = self.devices.get(name).copied();
        known.ok_or_else(|| {
            let remedy = suggest(name, &self.devices.keys().copied().collect::<Vec<_>>());
            self.wrong(key, name, "is no device of this document", remedy)
        })
    }

    /// Has a device, or one inside it, a component of one of these kinds?
    fn holds(&self, device: &Device, kinds: &[&str], depth: usize) -> Result<bool, Problems> {
        for component in &device.components {
            if kinds.contains(&component.choice.as_str()) {
                return Ok(true);
            }
            if component.choice == "device"
                && self.holds(self.inner(device, &component.name, depth)?, kinds, depth + 1)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The device that is a component of another one.
    fn inner(&self, outer: &Device, name: &str, depth: usize) -> Result<&'a Device, Problems> {
        if depth == DEPTH_MAX {
            let what = format!("has devices inside devices, more than {DEPTH_MAX} deep");
            return Err(self.wrong("devices", &outer.name, what, "let no device hold itself"));
        }
        self.device("components", name)
    }

    /// The NICs that an edge names, and whether they are some: a part without the ports at its end, which is a NIC or a
    /// device of its own.
    fn parts(&self, device: &'a Device, path: &str) -> Result<(Vec<Part>, bool), Problems> {
        let (mut device, mut is_nic) = (device, false);
        let mut parts: Vec<Part> = vec![Vec::new()];
        for (depth, segment) in path.split('.').enumerate() {
            let name = slices::name_of(segment);
            let Some(place) = device.components.iter().position(|component| component.name == name) else {
                let known: Vec<&str> = device.components.iter().map(|component| component.name.as_str()).collect();
                let remedy = suggest(name, &known);
                let what = format!("names `{name}`, which is no component of device \"{}\"", device.name);
                return Err(self.wrong("edges", path, what, remedy));
            };
            let component = &device.components[place];
            let count = u32::try_from(component.count).ok().filter(|n| i64::from(*n) <= INSTANCES_MAX);
            let Some(count) = count else {
                let what = format!("has count = {}", component.count);
                return Err(self.wrong("components", name, what, format!("write 0 to {INSTANCES_MAX}")));
            };
            let (_, indices) = slices::split(segment, count)
                .map_err(|what| self.wrong("edges", path, what, "write indices as Python's slices: name[0:2]"))?;
            if parts.len() * indices.len() > LINKS_MAX {
                let what = format!("names more than {LINKS_MAX} parts");
                return Err(self.wrong("edges", path, what, "make the document smaller"));
            }
            let is_port = component.choice == "port" && depth > 0;
            is_nic |=
                ["nic", "device"].contains(&component.choice.as_str()) || component.choice == "port" && depth == 0;
            let longer = parts.iter().flat_map(|part| {
                indices.iter().map(move |&index| {
                    let step = (!is_port).then_some((place as u16, index));
                    part.iter().copied().chain(step).collect()
                })
            });
            parts = longer.collect();
            if component.choice == "device" {
                device = self.inner(device, name, depth)?;
            }
        }
        Ok((parts, is_nic))
    }

    fn level(&self, edge: &EdgeSet, links: &[Link], usual: Level) -> Result<(Option<Rate>, Level), Problems> {
        let Some(link) = links.iter().find(|link| link.name == edge.link) else {
            let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            let remedy = suggest(&edge.link, &known);
            return Err(self.wrong("edges", &edge.link, "is no link of this document", remedy));
        };
        let rate = match &link.physical.bandwidth {
            width if width.gigabits_per_second.is_some() => width.gigabits_per_second,
            width if width.gigabytes_per_second.is_some() => width.gigabytes_per_second.map(|rate| 8.0 * rate),
            width if width.gigatransfers_per_second.is_some() => {
                let remedy = "write gigabits_per_second: transfers have no width of their own";
                return Err(self.wrong("links", &link.name, "gives its bandwidth in GT/s", remedy));
            }
            _ => None,
        };
        let written = &link.physical.latency;
        let ns = written.ns.or(written.us.map(|us| us * 1e3)).or(written.ms.map(|ms| ms * 1e6));
        if rate.is_some_and(|rate| !(1e-6..=1e6).contains(&rate)) {
            let remedy = "write 0.000001 to 1,000,000 Gb/s";
            return Err(self.wrong("links", &link.name, "has a bandwidth that no link has", remedy));
        }
        if ns.is_some_and(|ns| !(1.0..=1e9).contains(&ns)) {
            return Err(self.wrong("links", &link.name, "has a latency that no link has", "write 1 ns to 1 s"));
        }
        let rate = rate.map(|gbps| Rate((gbps * 1e9).round() as u64));
        let latency = ns.map_or(usual.latency, |ns| Span((ns * 1e3).round() as u64));
        Ok((rate, Level { rate: rate.unwrap_or(usual.rate), latency }))
    }

    /// The ends that an edge names: instance and NIC. Whether they are switches or NICs, and not other parts of hosts.
    fn ends(&self, end: &'a End) -> Result<(Vec<(u32, Part)>, bool), Problems> {
        let name = slices::name_of(&end.instance);
        let Some(&(first, count, device)) = self.instances.get(name) else {
            let remedy = suggest(name, &self.instances.keys().copied().collect::<Vec<_>>());
            return Err(self.wrong("edges", &end.instance, "is no instance of this document", remedy));
        };
        let (_, indices) = slices::split(&end.instance, count)
            .map_err(|what| self.wrong("edges", &end.instance, what, "write indices as Python's slices: name[0:2]"))?;
        let (parts, is_nic) = self.parts(device, &end.component)?;
        let in_fabric = is_nic || !self.holds(device, &["nic", "xpu"], 0)?;
        if indices.len() * parts.len() > LINKS_MAX {
            let what = format!("names more than {LINKS_MAX} parts");
            return Err(self.wrong("edges", &end.instance, what, "make the document smaller"));
        }
        let parts = &parts;
        let of = |index: u32| parts.iter().map(move |nic| (first + index, nic.clone()));
        Ok((indices.into_iter().flat_map(of).collect(), in_fabric))
    }

    fn wires(&self, names: Vec<String>, hosts: Vec<bool>, usual: Level) -> Result<Wired, Problems> {
        let mut pairs: Vec<([(u32, Part); 2], Level)> = Vec::new();
        let (mut without, mut left_out): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
        for edge in &self.document.edges {
            let (rate, level) = self.level(edge, &self.document.links, usual)?;
            let ((from, one_in), (to, other_in)) = (self.ends(&edge.ep1)?, self.ends(&edge.ep2)?);
            if !one_in || !other_in {
                left_out.insert(&edge.link);
                continue;
            }
            if rate.is_none() {
                without.insert(&edge.link);
            }
            let many = match edge.scheme.as_str() {
                "one2one" | "" => false,
                "many2many" => true,
                other => {
                    let remedy = "write one2one or many2many: the library reads no other scheme between instances";
                    return Err(self.wrong("edges", other, "is a scheme that is not read between instances", remedy));
                }
            };
            let more = if many { from.len().saturating_mul(to.len()) } else { from.len().min(to.len()) };
            if pairs.len().saturating_add(more) > LINKS_MAX {
                let what = format!("makes more than {LINKS_MAX} links");
                return Err(self.wrong("edges", &edge.ep1.instance, what, "make the document smaller"));
            }
            if many {
                for one in &from {
                    pairs.extend(to.iter().map(|other| ([one.clone(), other.clone()], level)));
                }
            } else {
                pairs.extend(from.into_iter().zip(to).map(|(one, other)| ([one, other], level)));
            }
        }
        // Edges from a part to itself are no links.
        pairs.retain(|([one, other], _)| one != other);
        let at_hosts = pairs.iter().flat_map(|(ends, _)| ends).filter(|(at, _)| hosts[*at as usize]);
        let numbered: BTreeSet<&(u32, Part)> = at_hosts.collect();
        let number: BTreeMap<&(u32, Part), u32> = numbered.iter().zip(0..).map(|(nic, at)| (*nic, at)).collect();
        let wires = pairs.iter().map(|(ends, level)| Wire {
            ends: [ends[0].0, ends[1].0],
            nics: [0, 1].map(|at| number.get(&ends[at]).copied()),
            level: *level,
        });
        let wires = wires.collect();
        let nics = numbered.iter().map(|(host, _)| *host).collect();
        let mut notes: Vec<String> = without
            .into_iter()
            .map(|name| format!("link \"{name}\" has no bandwidth: {} is assumed", usual.rate))
            .collect();
        notes.extend(left_out.into_iter().map(|name| {
            format!("links \"{name}\" end at parts of hosts that are no NICs: they are not part of the fabric")
        }));
        let inside = self.inside(&mut notes)?;
        Ok(Wired { names, hosts, nics, wires, inside, notes })
    }

    /// GPUs of a host and their links, by the first device that has GPUs and is used.
    fn inside(&self, notes: &mut Vec<String>) -> Result<Option<IntraServer>, Problems> {
        for instance in &self.document.instances {
            let device = self.device("instances", &instance.device)?;
            let Some(place) = device.components.iter().position(|part| part.choice == "xpu") else { continue };
            let gpus = u32::try_from(device.components[place].count).unwrap_or(0);
            let switches = |end: &End| {
                let name = slices::name_of(&end.component);
                device.components.iter().find(|part| part.name == name && part.choice == "switch")
            };
            let is_gpu = |end: &End| slices::name_of(&end.component) == device.components[place].name;
            let named = |name: &str, word: &str| name.to_lowercase().contains(word);
            // PCIe joins GPUs to NICs; what is left joins GPUs.
            let joined = device.edges.iter().filter(|edge| !named(&edge.link, "pci")).find_map(|edge| {
                let other = if is_gpu(&edge.ep1) { &edge.ep2 } else { &edge.ep1 };
                (is_gpu(&edge.ep1) || is_gpu(&edge.ep2)).then(|| switches(other)).flatten().map(|part| (edge, part))
            });
            let mut link = None;
            if let Some((edge, part)) = joined {
                let usual = Level { rate: Rate(1), latency: Span::from_us(1) };
                match self.level(edge, &device.links, usual)? {
                    (Some(rate), level) => {
                        let all = rate.0.saturating_mul(u64::try_from(part.count).unwrap_or(1).max(1));
                        link = Some((Rate(all), level.latency));
                    }
                    (None, _) => notes.push(format!(
                        "link \"{}\" inside device \"{}\" has no bandwidth: [servers] rate is assumed",
                        edge.link, device.name
                    )),
                }
            }
            return Ok(Some(IntraServer { gpus, link }));
        }
        Ok(None)
    }
}
