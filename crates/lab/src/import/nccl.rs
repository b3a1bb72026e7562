//! NCCL's topology of a server and its graphs (`.xml`, from `NCCL_TOPO_DUMP_FILE` and `NCCL_GRAPH_DUMP_FILE`).
//!
//! Readers of reference: NVIDIA/nccl `src/graph/xml.cc`, `topo.cc` and `search.cc`. Clouds ship skeletons that have
//! only PCI devices with their class, so the class tells what a device is, and the number of NVLinks is not known.

use super::xml::{self, Element};
use crate::problem::Problems;
use strandway_proto::units::Rate;

/// Rate of one NVLink by the GPU's generation, GB/s per direction (NCCL `src/graph/topo.h`).
const NVLINK: [(i64, f64); 6] = [(100, 40.1), (90, 20.6), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0)];

/// A server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// GPUs.
    pub gpus: u32,
    /// NICs, or ports of NICs: each is a host of the fabric.
    pub nics: u32,
    /// Rate of all NVLinks of a GPU together, if the file says it.
    pub inside: Option<Rate>,
    /// Rate of a NIC, if the file says it.
    pub nic: Option<Rate>,
    /// CPUs (NUMA nodes).
    pub cpus: u32,
    /// True: the file has PCI devices only, as clouds ship it.
    pub skeleton: bool,
    /// The number of rails that NICs name.
    pub rails: u32,
}

/// Is this a topology?
pub fn is_topology(text: &str) -> bool {
    xml::root(text) == Some("system")
}

/// Is this a file of graphs?
pub fn is_graphs(text: &str) -> bool {
    xml::root(text) == Some("graphs")
}

/// Parses a topology.
///
/// # Errors
/// With file, line and a remedy.
pub fn parse(file: &str, text: &str) -> Result<Server, Problems> {
    let document = xml::parse(file, text)?;
    let system = Element { file, node: document.root_element() };
    if system.name() != "system" {
        return Err(system.wrong(system.name(), "is no topology of NCCL", "the first element is <system>"));
    }
    system.number("version", Some(1), 0, 1)?;
    let mut server = Server::default();
    let (mut named, mut by_class) = ((0u32, 0u32), (0u32, 0u32));
    let mut links: Option<(Rate, usize)> = None;
    let mut speeds: Option<(Rate, usize)> = None;
    let mut rails = std::collections::BTreeSet::new();
    let mut around: Option<&str> = None;
    for node in system.node.descendants().filter(roxmltree::Node::is_element) {
        let element = Element { file, node };
        match element.name() {
            "cpu" => {
                if let Some(hash) = element.text("host_hash") {
                    if around.is_some_and(|known| known != hash) {
                        let remedy = "describe one server; [servers] repeats it";
                        return Err(element.wrong(hash, "is a second server", remedy));
                    }
                    around = Some(hash);
                }
                server.cpus += 1;
            }
            "pci" => {
                let class = element.text("class").unwrap_or_default();
                let class = class.trim_start_matches("0x").to_ascii_lowercase();
                let inner = element.children().any(|child| matches!(child.name(), "gpu" | "nic"));
                match class.get(..4) {
                    _ if inner => {}
                    Some("0302" | "0300") => by_class.0 += 1,
                    Some("0200" | "0207") => by_class.1 += 1,
                    _ => {}
                }
            }
            "gpu" => {
                named.0 += 1;
                let generation = element.number("sm", Some(0), 0, 1000)?;
                let each = NVLINK.iter().find(|(sm, _)| *sm <= generation).map_or(20.0, |(_, rate)| *rate);
                let mut count = 0;
                for link in element.children().filter(|child| child.name() == "nvlink") {
                    count += link.number("count", Some(1), 0, 1024)?;
                }
                if count > 0 {
                    let rate = Rate((count as f64 * each * 8e9).round() as u64);
                    let (known, line) = *links.get_or_insert((rate, element.line()));
                    if known != rate {
                        let what = format!("has another number of NVLinks than the GPU in line {line}");
                        return Err(element.wrong("", what, "[servers] has equal GPUs; describe it by hand"));
                    }
                }
            }
            "net" => {
                named.1 += 1;
                let speed = element.number("speed", Some(0), 0, 100_000_000)?;
                rails.extend(element.text("rail"));
                if speed > 0 {
                    let rate = Rate(speed as u64 * 1_000_000);
                    let (known, line) = *speeds.get_or_insert((rate, element.line()));
                    if known != rate {
                        let what = format!("has another speed than the NIC in line {line}");
                        return Err(element.wrong(
                            &speed.to_string(),
                            what,
                            "[fabric] has equal NICs; describe it by hand",
                        ));
                    }
                }
            }
            _ => {}
        }
    }
    server.skeleton = named.0 == 0;
    server.gpus = if named.0 > 0 { named.0 + by_class.0 } else { by_class.0 };
    server.nics = if named.1 > 0 { named.1 } else { by_class.1 };
    (server.inside, server.nic) = (links.map(|(rate, _)| rate), speeds.map(|(rate, _)| rate));
    server.rails = rails.len() as u32;
    if server.gpus == 0 {
        return Err(system.wrong("", "has no GPU: no <gpu>, and no <pci> of class 0x0302", "was the file cut off?"));
    }
    Ok(server)
}

impl Server {
    /// The section of a scenario that says the same.
    pub fn section(&self) -> String {
        let nics = if self.nics > 0 { format!("nics = {}\n", self.nics) } else { String::new() };
        let rate = self.inside.map_or(String::new(), |rate| format!("rate = \"{rate}\"\n"));
        let rails = if self.rails > 1 { "wiring = \"rail-optimised\"\n" } else { "" };
        format!("[servers]\ngpus = {}\n{nics}{rate}{rails}", self.gpus)
    }

    /// The file's contents and our assumptions, as lines of text.
    pub fn describe(&self) -> String {
        let rate = |rate: Option<Rate>| rate.map_or("unknown".to_string(), |rate| rate.to_string());
        let skeleton = if self.skeleton { " (a skeleton: PCI devices only)" } else { "" };
        let mut assumed = vec!["PCIe never limits a message".to_string(), "GPU i uses NIC i x NICs / GPUs".to_string()];
        if self.inside.is_none() {
            assumed.push("NVLinks are those of an H100, since the file does not say: 3.6 Tb/s per GPU".to_string());
        }
        if self.nics == 0 {
            assumed.push("each GPU has a NIC, since the file has none".to_string());
        }
        let fabric = self.nic.map_or(String::new(), |rate| format!("[fabric]\nrate = \"{rate}\"\n"));
        format!(
            "a topology of NCCL{skeleton}: {} GPUs, {} NICs, {} CPUs; NVLinks of a GPU {}, a NIC {}\nassumed: {}\n\
             to run it, name it in a scenario ([servers] topo = \"FILE\"), or write:\n{fabric}{}",
            self.gpus,
            self.nics,
            self.cpus,
            rate(self.inside),
            rate(self.nic),
            assumed.join("; "),
            self.section()
        )
    }
}

/// Describes a file of graphs: the rings and trees that NCCL has found in a server.
///
/// # Errors
/// With file, line and a remedy.
pub fn describe_graphs(file: &str, text: &str) -> Result<String, Problems> {
    let document = xml::parse(file, text)?;
    let root = Element { file, node: document.root_element() };
    if root.name() != "graphs" {
        return Err(root.wrong(root.name(), "is no file of graphs", "the first element is <graphs>"));
    }
    let mut out = "graphs of NCCL: the order of GPUs and NICs in each channel\n".to_string();
    let mut most = 0;
    for graph in root.children().filter(|child| child.name() == "graph") {
        // NCCL src/include/graph.h
        let pattern = match graph.number("pattern", None, 1, 6)? {
            1 => "balanced tree",
            2 => "split tree",
            3 => "tree",
            4 => "ring",
            5 => "NVLS",
            _ => "CollNet",
        };
        let channels = graph.number("nchannels", None, 0, 1024)?;
        let number = |name: &str| -> Result<f64, Problems> {
            let text = graph.text(name).unwrap_or("0");
            let fits = text.parse::<f64>().ok().filter(|rate| (0.0..1e6).contains(rate));
            fits.ok_or_else(|| graph.wrong(text, format!("is no {name}"), "write a rate in GB/s"))
        };
        let (intra, inter) = (number("speedintra")?, number("speedinter")?);
        out.push_str(&format!(
            "  {pattern}: {channels} channels, {intra} GB/s inside a server and {inter} GB/s between servers each\n"
        ));
        let mut found = 0;
        for channel in graph.children().filter(|child| child.name() == "channel") {
            let mut order = Vec::new();
            for end in channel.children() {
                match end.name() {
                    "gpu" => order.push(format!("{}", end.number("dev", None, 0, 1 << 20)?)),
                    "net" => order.push(format!("NIC {}", end.text("dev").unwrap_or("?"))),
                    _ => {}
                }
            }
            out.push_str(&format!("    {}\n", order.join(" - ")));
            found += 1;
        }
        if found != channels {
            return Err(graph.wrong(
                "",
                format!("has {found} channels, and nchannels is {channels}"),
                "was the file cut off?",
            ));
        }
        most = most.max(found);
    }
    if most == 0 {
        return Err(root.wrong("", "has no channel", "was the file cut off?"));
    }
    out.push_str(
        "assumed: Strandway lays one ring or tree over the NICs of each rail and shares the result inside a server, so the order of \
         GPUs inside a server does not matter\n",
    );
    out.push_str(&format!(
        "to run with as many channels: [job] pipeline = {most}, or a tuner file ([job] tuner = \"FILE\")\n"
    ));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"<system version="1">
<cpu host_hash="0x1" numaid="0" arch="x86_64">
<pci busid="0000:01:00.0" class="0x060400">
<pci busid="0000:02:00.0" class="0x030200"><gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="s0" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="0000:03:00.0" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="400000" port="1" rail="0"/></nic></pci>
<pci busid="0000:04:00.0" class="0x030200"><gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="s0" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="0000:05:00.0" class="0x020700"><nic><net name="mlx5_1" dev="1" speed="400000" port="1" rail="1"/></nic></pci>
</pci>
</cpu>
</system>
"#;
    const GRAPHS: &str = "<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" nchannels=\"2\" speedintra=\"12\" speedinter=\"12.5\">\n\
        <channel><net dev=\"0\"/><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>\n<channel><gpu dev=\"1\"/><gpu dev=\"0\"/></channel>\n</graph>\n</graphs>\n";

    #[test]
    fn servers_and_skeletons_are_understood() {
        let server = parse("topo.xml", FULL).expect("sound");
        assert_eq!((server.gpus, server.nics, server.rails, server.skeleton), (2, 2, 2, false));
        // 18 links of 20.6 GB/s.
        assert_eq!(server.inside, Some(Rate(2_966_400_000_000)));
        assert_eq!(server.nic, Some(Rate::from_gbps(400)));
        let bare = "<system version=\"1\"><cpu numaid=\"0\"><pci class=\"0x060400\"><pci class=\"0x030200\"/><pci class=\"0x020700\"/>\
                    <pci class=\"0x030200\"/></pci></cpu></system>";
        let server = parse("topo.xml", bare).expect("sound");
        assert_eq!((server.gpus, server.nics, server.inside, server.skeleton), (2, 1, None, true));
        assert!(server.describe().contains("those of an H100"));
        let told = describe_graphs("graph.xml", GRAPHS).expect("sound");
        assert!(told.contains("ring: 2 channels") && told.contains("NIC 0 - 0 - 1"), "{told}");
    }

    #[test]
    fn bad_files_are_explained() {
        type Read = fn(&str) -> Result<(), Problems>;
        let readers: [(&str, Read); 2] =
            [(FULL, |text| parse("a.xml", text).map(drop)), (GRAPHS, |text| describe_graphs("a.xml", text).map(drop))];
        for (text, read) in readers {
            for end in 0..text.len() {
                if let Err(problems) = read(&text[..end]) {
                    assert!(problems.to_string().starts_with("a.xml:"), "{problems}");
                }
            }
            for (at, _) in text.match_indices(|c: char| c.is_ascii_digit()) {
                for absurd in ["-7", "18446744073709551615", "", "x", "1e999"] {
                    let changed = format!("{}{absurd}{}", &text[..at], &text[at + 1..]);
                    if let Err(problems) = read(&changed) {
                        assert!(problems.to_string().starts_with("a.xml:"), "{problems}");
                    }
                }
            }
        }
        for (from, to, wanted) in [
            ("count=\"18\"", "count=\"6\"", "a.xml:6: has another number of NVLinks than the GPU in line 4"),
            ("speed=\"400000\"", "speed=\"200000\"", "has another speed than the NIC in line 5"),
            ("version=\"1\"", "version=\"2\"", "`2`: is no version"),
        ] {
            let said = parse("a.xml", &FULL.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(said.contains(wanted), "{said}");
        }
        let said =
            describe_graphs("a.xml", &GRAPHS.replacen("nchannels=\"2\"", "nchannels=\"3\"", 1)).expect_err("three");
        assert!(said.to_string().contains("has 2 channels, and nchannels is 3"), "{said}");
        let deep = format!("{}{}", "<pci>".repeat(200_000), "</pci>".repeat(200_000));
        assert!(parse("a.xml", &format!("<system>{deep}</system>")).is_err());
    }
}
