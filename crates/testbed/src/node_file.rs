//! Node files: the settings of one host of a fabric with real sockets.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use strandway_fabric::usid::{BLOCK, Clos, ClosError, Element, HOSTS_MAX, PLANE_BITS_MAX, Pods, SWITCHES_MAX, T1S_MAX};
use strandway_import::{Problems, read_file, suggest};
use strandway_proto::{Rate, Span};
use strandway_scenario::reader::{Section, Sink, show};
use strandway_scenario::{parse_toml, profile_named};
use strandway_udp::address::{is_ipv4, kept, shown};
use strandway_udp::{Config, Distance, Layout, PLANES_MAX, Protection, Routes};
use strandway_wire::ocp;
use toml::{Table, Value};

/// The sections of a node file.
const SECTIONS: [&str; 3] = ["node", "srv6", "distance"];

/// Limit on the payload bytes of a packet: the payload of a UDP datagram minus the longest headers.
const PAYLOAD_MAX: u64 = 65_000;

/// A host on real sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFile {
    /// The node's name.
    pub name: String,
    /// Its number in the fabric.
    pub host: u32,
    /// The number of hosts in the fabric, numbered from 0; `None` if unknown.
    pub hosts: Option<u32>,
    /// The addresses to bind, one socket for each plane. (With one socket for several planes, a full port would block
    /// all of them.) On a fabric of micro segments: the host's own address in each plane, with one UDP port per plane.
    pub planes: Vec<SocketAddrV6>,
    /// The network interface of each plane, for link-down events; empty if unknown.
    pub devices: Vec<String>,
    /// The file with the key that all hosts share, relative to the node file; `None` if the key is given in another
    /// way.
    pub key: Option<PathBuf>,
    /// The profile, named as in [`strandway_lab::Scenario`] files.
    pub profile: String,
    /// The bytes of datagrams that move data. MRC's layout has no room for a seal, so its nodes have protection `none`.
    /// UET's is for nodes with one plane and without SRv6.
    pub layout: Layout,
    /// Payload bytes of a full packet; `None`: each connection has the payload that its path takes, and groups have
    /// that of [`Config::new`].
    pub payload: Option<u32>,
    /// Line rate of all planes together.
    pub rate: Rate,
    /// Round trip without queues, including the time of software.
    pub base_rtt: Span,
    /// True if the fabric's switches trim packets that do not fit; false if they drop them.
    pub trimming: bool,
    /// The parts of the fabric over which the node must not send; only with `srv6`.
    pub denied: Vec<Element>,
    /// A file with such parts, one per line, relative to the node file; the node obeys it while it runs, and it takes the
    /// place of `denied`. Only with `srv6`.
    pub denied_file: Option<PathBuf>,
    /// How addresses encode paths; `None` if the network chooses paths itself.
    pub srv6: Option<Clos>,
    /// Hosts that are nearer than `base_rtt`, or have slower links.
    pub distances: Vec<Far>,
}

/// Rate and round trip to some hosts of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    /// The first and the last of these hosts.
    pub hosts: [u32; 2],
    /// The rate of the slowest link on the way, all planes together.
    pub rate: Rate,
    /// Round trip without queues, including the time of software.
    pub base_rtt: Span,
}

impl NodeFile {
    /// Reads a node file.
    ///
    /// # Errors
    /// If it cannot be read or is wrong; with all problems at once.
    pub fn load(path: &Path) -> Result<NodeFile, Problems> {
        let mut node = NodeFile::from_text(&path.display().to_string(), &read_file(path)?)?;
        // Make the paths independent of the current directory.
        let beside = |file: PathBuf| path.parent().unwrap_or(Path::new("")).join(file);
        node.key = node.key.map(beside);
        node.denied_file = node.denied_file.map(beside);
        Ok(node)
    }

    /// The configuration of a node of this host. `key` is used if the file names none.
    ///
    /// # Errors
    /// If there is no key, it cannot be read, or it is too short; the message names the remedy.
    pub fn config(&self, key: Option<&[u8]>) -> Result<Config, String> {
        let remedy = "`head -c 32 /dev/urandom > key` makes one, for all hosts";
        let secret = match (key, &self.key) {
            (Some(key), _) => key.to_vec(),
            (None, Some(path)) => std::fs::read(path).map_err(|e| format!("{}: {e}; {remedy}", path.display()))?,
            (None, None) => return Err(format!("the node file names no key; {remedy}")),
        };
        let config = Config::new(&secret).and_then(|config| config.profile(&self.profile));
        let mut config = config.map_err(|e| e.to_string())?;
        config.planes.clone_from(&self.planes);
        config.devices.clone_from(&self.devices);
        config.layout = self.layout;
        if let Layout::Mrc { .. } = self.layout {
            config.protection = Protection::None;
        }
        config.payload = self.payload.unwrap_or(config.payload);
        config.rate = self.rate;
        config.base_rtt = self.base_rtt;
        config.trimming = self.trimming;
        config.denied.parts.clone_from(&self.denied);
        config.denied.file.clone_from(&self.denied_file);
        if let Some(clos) = self.srv6 {
            config.routes = Routes::Srv6 { clos, host: self.host };
            let distances = |far: &Far| {
                let Far { hosts, rate, base_rtt } = *far;
                (0..self.planes.len() as u8).map(move |plane| {
                    let [first, last] = hosts.map(|host| clos.host(plane, host));
                    Distance { peers: first..=last, rate, base_rtt }
                })
            };
            config.distances = self.distances.iter().flat_map(distances).collect();
        }
        Ok(config)
    }

    /// The addresses of another host of the same fabric, plane by plane. `None` if the file does not say how addresses
    /// are made.
    pub fn peer(&self, host: u32) -> Option<Vec<SocketAddrV6>> {
        let there = self.hosts.is_none_or(|hosts| host < hosts);
        let clos = self.srv6.filter(|clos| there && clos.holds(1, host.saturating_add(1)).is_ok())?;
        let ports = self.planes.iter().map(SocketAddrV6::port).zip(0..);
        Some(ports.map(|(port, plane)| SocketAddrV6::new(clos.host(plane, host), port, 0, 0)).collect())
    }

    /// Reads the text of a node file. `file` is its name in messages.
    ///
    /// # Errors
    /// If it is wrong; with all problems at once.
    pub fn from_text(file: &str, text: &str) -> Result<NodeFile, Problems> {
        let root = parse_toml(file, text, "see docs/node-files.md for the form of a node file")?;
        let sink = Sink::new(file);
        match read(&sink, &root) {
            Some(node) if sink.is_empty() => Ok(node),
            _ => Err(Problems(sink.take())),
        }
    }
}

fn read(sink: &Sink, root: &Table) -> Option<NodeFile> {
    for (key, value) in root {
        if !SECTIONS.contains(&key.as_str()) {
            sink.add(key, show(value), "unknown section", suggest(key, &SECTIONS));
        }
    }
    let srv6 = root.contains_key("srv6").then(|| srv6(Section::of(sink, root, "srv6")));
    let section = Section::of(sink, root, "node");
    let missing = |key: &str, example: &str| {
        if !section.has(key) {
            sink.add(&section.path(key), "", "is missing", format!("write, say, {key} = {example}"));
        }
    };
    let name = section.text("name");
    let host = section.count("host", 0, u64::from(HOSTS_MAX) - 1);
    missing("host", "0");
    let hosts = section.count("hosts", 1, u64::from(HOSTS_MAX)).map(|n| n as u32);
    let planes = planes(&section);
    missing("planes", "[\"[fcbb:bb00:1:8001::]:4791\"]");
    let devices = devices(&section, planes.as_ref().map_or(0, Vec::len));
    let key = section.text("key").map(PathBuf::from);
    let profile = section.text("profile").unwrap_or_else(|| "mrc".to_string());
    match profile_named(&profile) {
        Err(said) => section.wrong("profile", said, "`strandway explain` lists them all"),
        Ok(profile) if profile.congestion.needs_telemetry() => {
            let said =
                format!("`{}` needs records of switches, which only the simulator has", profile.congestion.name());
            section.wrong("profile", said, "take another congestion control, such as dcqcn or swift");
        }
        Ok(profile) if profile.congestion.credit().is_some() => {
            let said = "uses a receiver's credit, which only the simulator has".to_string();
            section.wrong("profile", said, "take another congestion control, such as nscc");
        }
        Ok(_) => {}
    }
    let layout = layout(&section);
    if layout == Layout::Uet && root.contains_key("srv6") {
        section.wrong("layout", "has no SRv6 paths", "leave [srv6] out, or write \"frame\"");
    }
    let payload = section.count("payload", 64, PAYLOAD_MAX).map(|payload| payload as u32);
    let rate = section.rate("rate");
    missing("rate", "\"1 Gbps\"");
    let base_rtt = section.span("base_rtt").unwrap_or(Span::from_us(100));
    if base_rtt == Span::ZERO {
        section.wrong("base_rtt", "must be above zero", "write, say, \"200 us\"");
    }
    let trimming = section.flag("trimming").unwrap_or(false);
    let denied = denied(&section);
    let denied_file = section.text("denied_file").map(PathBuf::from);
    let distances = distances(sink, root, rate, base_rtt);
    let (host, planes) = (host.map(|h| h as u32), planes.unwrap_or_default());
    if let (Some(host), Some(Some(clos))) = (host, &srv6) {
        belongs(&section, clos, host, &planes);
    }
    section.finish();
    let host = host?;
    let name = name.unwrap_or_else(|| format!("h{host}"));
    let (rate, srv6) = (rate?, srv6.flatten());
    Some(NodeFile {
        name,
        host,
        hosts,
        planes,
        devices,
        key,
        profile,
        layout,
        payload,
        rate,
        base_rtt,
        trimming,
        denied,
        denied_file,
        srv6,
        distances,
    })
}

/// `[[distance]]`: some hosts, and the way to them. Such a way is neither faster nor longer than the way in `[node]`.
fn distances(sink: &Sink, root: &Table, rate_max: Option<Rate>, rtt_max: Span) -> Vec<Far> {
    let Some(value) = root.get("distance") else { return Vec::new() };
    let tables: Option<Vec<&Table>> = value.as_array().and_then(|items| items.iter().map(Value::as_table).collect());
    let Some(tables) = tables else {
        sink.add("distance", show(value), "must be a list of tables", "write [[distance]] above each");
        return Vec::new();
    };
    if !root.contains_key("srv6") {
        sink.add("distance", "", "names hosts, but only [srv6] gives hosts addresses", "add [srv6], or leave it out");
    }
    let mut all = Vec::new();
    for (i, table) in tables.into_iter().enumerate() {
        let section = Section::new(sink, format!("distance[{i}]"), Some(table));
        let host = |key| section.count(key, 0, u64::from(HOSTS_MAX) - 1).map(|host| host as u32);
        let (first, last) = (host("first"), host("last"));
        let (rate, base_rtt) = (section.rate("rate"), section.span("base_rtt"));
        for (key, there, example) in [
            ("first", first.is_some(), "2"),
            ("last", last.is_some(), "3"),
            ("rate", rate.is_some(), "\"100 Mbps\""),
            ("base_rtt", base_rtt.is_some(), "\"20 ms\""),
        ] {
            if !there && !section.has(key) {
                section.sink.add(&section.path(key), "", "is missing", format!("write, say, {key} = {example}"));
            }
        }
        if rate.is_some_and(|rate| rate.0 == 0 || rate_max.is_some_and(|most| rate > most)) {
            section.wrong(
                "rate",
                "is zero, or more than node.rate",
                "write the rate of the slowest link; node.rate is the rate of the fastest way",
            );
        }
        if base_rtt.is_some_and(|rtt| rtt == Span::ZERO || rtt > rtt_max) {
            section.wrong(
                "base_rtt",
                "is zero, or more than node.base_rtt",
                "write the round trip of the longest way as node.base_rtt",
            );
        }
        section.finish();
        if let (Some(first), Some(last), Some(rate), Some(base_rtt)) = (first, last, rate, base_rtt) {
            all.push(Far { hosts: [first, last], rate, base_rtt });
        }
    }
    all
}

/// Checks that the host is in the fabric, and that its planes have its own addresses.
fn belongs(section: &Section<'_>, clos: &Clos, host: u32, planes: &[SocketAddrV6]) {
    if let Err(said) = clos.holds(planes.len().max(1) as u32, host.saturating_add(1)) {
        section.wrong("host", format!("has no address: {said}"), "check the numbers of [srv6]");
        return;
    }
    for (plane, number) in planes.iter().zip(0..) {
        let own = clos.host(number, host);
        if is_ipv4(*plane.ip()) {
            let what = format!("{} is an IPv4 address, and SRv6 source routes need IPv6", shown(*plane).ip());
            section.wrong("planes", what, format!("write \"[{own}]:PORT\", or leave [srv6] out"));
            return;
        }
        if *plane.ip() != own {
            let what = format!("{} is not the address of host {host} in plane {number}", plane.ip());
            section.wrong("planes", what, format!("write \"[{own}]:PORT\""));
            return;
        }
    }
}

/// The parts of the fabric over which the node must not send.
fn denied(section: &Section<'_>) -> Vec<Element> {
    let Some(value) = section.raw("denied") else { return Vec::new() };
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let parts: Option<Vec<Element>> = items.iter().map(|item| Element::parse(item.as_str()?)).collect();
    if parts.is_none() || !value.is_array() {
        let remedy =
            "write [\"p0:t1-3\", \"p0:t0-2:t1-3\", \"p1\", \"p0:h7\"]: a switch, a link, a plane, a host's port";
        section.wrong("denied", "is no list of parts of the fabric", remedy);
    }
    parts.unwrap_or_default()
}

/// `layout` and the UDP port of MRC's, `mrc_port`.
fn layout(section: &Section<'_>) -> Layout {
    let port = section.count("mrc_port", 1, u64::from(u16::MAX)).map(|port| port as u16);
    match section.text("layout").as_deref().unwrap_or("frame") {
        "mrc" => Layout::Mrc { port: port.unwrap_or(ocp::PORT) },
        name @ ("frame" | "uet") => {
            if port.is_some() {
                section.wrong("mrc_port", "is for MRC's layout", "write layout = \"mrc\", or leave it out");
            }
            if name == "uet" { Layout::Uet } else { Layout::Frame }
        }
        _ => {
            section.wrong("layout", "is no layout of datagrams", "write \"frame\" (ours), \"mrc\" or \"uet\"");
            Layout::Frame
        }
    }
}

/// The names of the planes' interfaces, if the file has them.
fn devices(section: &Section<'_>, planes: usize) -> Vec<String> {
    let Some(value) = section.raw("devices") else { return Vec::new() };
    let names = value.as_array().map(|items| items.iter().filter_map(|i| i.as_str().map(str::to_string)).collect());
    let names: Vec<String> = names.unwrap_or_default();
    if names.len() != planes && planes > 0 {
        section.wrong("devices", format!("must name {planes} interfaces"), "write one for each plane, in order");
    }
    names
}

fn planes(section: &Section<'_>) -> Option<Vec<SocketAddrV6>> {
    let Some(items) = section.raw("planes")?.as_array() else {
        section.wrong("planes", "must be a list", "write, say, [\"[fcbb:bb00:1:8001::]:4791\"]");
        return None;
    };
    if items.is_empty() || items.len() > PLANES_MAX {
        section.wrong("planes", "has the wrong length", format!("write 1 to {PLANES_MAX} addresses"));
        return None;
    }
    let parsed: Vec<Option<SocketAddrV6>> = items.iter().map(|item| with_port(item.as_str()?)).collect();
    if let Some(at) = parsed.iter().position(Option::is_none) {
        let what = format!("{} is no address with a port", show(&items[at]));
        section.wrong("planes", what, "write, say, \"10.0.0.1:4791\" or \"[fcbb:bb00:1:8001::]:4791\"");
        return None;
    }
    let planes: Vec<SocketAddrV6> = parsed.into_iter().flatten().collect();
    for (i, plane) in planes.iter().enumerate() {
        if plane.port() != 0 && planes[..i].contains(plane) {
            section.wrong(
                "planes",
                format!("{} is in the list twice", shown(*plane)),
                "give each plane a port of its own",
            );
            return None;
        }
    }
    Some(planes)
}

/// An address of either family, with its port.
fn with_port(text: &str) -> Option<SocketAddrV6> {
    text.parse::<SocketAddr>().ok().map(kept)
}

fn srv6(section: Section<'_>) -> Option<Clos> {
    let block = section.text("block").map_or(Some(BLOCK), |text| {
        let block = block(&text);
        if block.is_none() {
            section.wrong("block", "is no block of 32 bits", "write \"fcbb:bb00::/32\"");
        }
        block
    });
    let mut numbers = [None, None];
    let per_pair = section.count("t1s_per_pair", 0, u64::from(T1S_MAX)).unwrap_or(0) as u16;
    for (number, key) in numbers.iter_mut().zip(["t1s", "hosts_per_t0"]) {
        let most = if key == "t1s" { T1S_MAX } else { SWITCHES_MAX };
        *number = section.count(key, 1, u64::from(most)).map(|n| n as u16);
        if !section.has(key) {
            section.sink.add(&section.path(key), "", "is missing", format!("write, say, {key} = 2"));
        }
    }
    let neutral = section.flag("neutral").unwrap_or(true);
    let bits = section.count("plane_bits", 0, u64::from(PLANE_BITS_MAX));
    let plane_bits = bits.map_or(PLANE_BITS_MAX, |bits| bits as u8);
    let [t0s, t2s] = ["t0s_per_pod", "t2s_per_t1"].map(|key| section.count(key, 1, u64::from(u16::MAX)));
    let pods = t0s.zip(t2s).map(|(t0s, t2s)| Pods { t0s: t0s as u16, t2s_per_t1: t2s as u16 });
    for (key, there, other) in [("t0s_per_pod", t0s, t2s), ("t2s_per_t1", t2s, t0s)] {
        if !section.has(key) && there.is_none() && other.is_some() {
            section.sink.add(&section.path(key), "", "is missing", format!("write, say, {key} = 2"));
        }
    }
    let clos = match (block, numbers) {
        (Some(block), [Some(t1s), Some(hosts_per_t0)]) => {
            Some(Clos { block, plane_bits, t1s, per_pair, hosts_per_t0, pods, neutral })
        }
        _ => None,
    };
    match clos.map(|clos| clos.check()) {
        Some(Err(said @ ClosError::Pairs { .. })) => {
            section.wrong("t1s_per_pair", said, "write the number of parallel long links, or leave it out");
        }
        Some(Err(said)) => section.wrong("block", said, "write \"fcbb:bb00::/32\""),
        _ => {}
    }
    section.finish();
    clos
}

/// `fcbb:bb00::/32`, with or without the part after the second word.
fn block(text: &str) -> Option<u32> {
    let text = text.strip_suffix("/32").unwrap_or(text);
    let whole = if text.contains("::") { text.to_string() } else { format!("{text}::") };
    let [a, b, rest @ ..] = whole.parse::<Ipv6Addr>().ok()?.segments();
    (rest == [0; 6]).then_some(u32::from(a) << 16 | u32::from(b))
}

/// The file's text.
impl fmt::Display for NodeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| Value::String(text.to_string());
        let planes: Vec<Value> = self.planes.iter().map(|plane| text(&shown(*plane).to_string())).collect();
        writeln!(f, "[node]")?;
        writeln!(f, "name = {}", text(&self.name))?;
        writeln!(f, "host = {}", self.host)?;
        if let Some(hosts) = self.hosts {
            writeln!(f, "hosts = {hosts}")?;
        }
        writeln!(f, "planes = {}", Value::Array(planes))?;
        if !self.devices.is_empty() {
            writeln!(f, "devices = {}", Value::Array(self.devices.iter().map(|name| text(name)).collect()))?;
        }
        if let Some(key) = &self.key {
            writeln!(f, "key = {}", text(&key.display().to_string()))?;
        }
        writeln!(f, "profile = {}", text(&self.profile))?;
        match self.layout {
            Layout::Frame => {}
            Layout::Mrc { port } => {
                writeln!(f, "layout = \"mrc\"")?;
                if port != ocp::PORT {
                    writeln!(f, "mrc_port = {port}")?;
                }
            }
            Layout::Uet => writeln!(f, "layout = \"uet\"")?,
        }
        if let Some(payload) = self.payload {
            writeln!(f, "payload = {payload}")?;
        }
        writeln!(f, "rate = \"{} bps\"", self.rate.0)?;
        writeln!(f, "base_rtt = \"{} ps\"", self.base_rtt.0)?;
        if self.trimming {
            writeln!(f, "trimming = true")?;
        }
        if !self.denied.is_empty() {
            writeln!(f, "denied = {}", Value::Array(self.denied.iter().map(|part| text(&part.to_string())).collect()))?;
        }
        if let Some(file) = &self.denied_file {
            writeln!(f, "denied_file = {}", text(&file.display().to_string()))?;
        }
        if let Some(clos) = &self.srv6 {
            writeln!(f, "\n[srv6]")?;
            writeln!(f, "block = \"{}/32\"", clos.locator(0))?;
            writeln!(f, "t1s = {}", clos.t1s)?;
            if clos.per_pair > 0 {
                writeln!(f, "t1s_per_pair = {}", clos.per_pair)?;
            }
            writeln!(f, "hosts_per_t0 = {}", clos.hosts_per_t0)?;
            if clos.plane_bits != PLANE_BITS_MAX {
                writeln!(f, "plane_bits = {}", clos.plane_bits)?;
            }
            if let Some(Pods { t0s, t2s_per_t1 }) = clos.pods {
                writeln!(f, "t0s_per_pod = {t0s}\nt2s_per_t1 = {t2s_per_t1}")?;
            }
            writeln!(f, "neutral = {}", clos.neutral)?;
        }
        for Far { hosts: [first, last], rate, base_rtt } in &self.distances {
            writeln!(f, "\n[[distance]]\nfirst = {first}\nlast = {last}")?;
            writeln!(f, "rate = \"{} bps\"\nbase_rtt = \"{} ps\"", rate.0, base_rtt.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
