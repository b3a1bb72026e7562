//! NCCL's topology of a server and its graphs (`.xml`, from `NCCL_TOPO_DUMP_FILE` and `NCCL_GRAPH_DUMP_FILE`).
//!
//! Readers of reference: NVIDIA/nccl `src/graph/xml.cc`, `topo.cc` and `search.cc`. Clouds ship skeletons that have
//! only PCI devices with their class, so the class tells what a device is, and the number of NVLinks is not known.

use super::xml::{self, Element};
use crate::problem::Problems;
use strandway_proto::units::Rate;

/// Rate of one NVLink by the GPU's generation, GB/s per direction (NCCL `src/graph/topo.h`).
const NVLINK: [(i64, f64); 6] = [(100, 40.1), (90, 20.6), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0)];

/// Rate of one xGMI link by the beginning of the GPU's `gcn`, GB/s per direction (RCCL `src/graph/topo.h`): MI350 and
/// MI300, MI200; others are older. Old files write 910 for gfx90a.
const XGMI: [(&str, f64); 4] = [("95", 48.0), ("94", 48.0), ("90a", 36.0), ("910", 36.0)];

/// Rate of PCIe 4.0 x16 as NCCL counts it, GB/s: if GPUs have neither NVLinks nor a speed of their PCIe link.
const PCIE: f64 = 24.0;

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
    /// True: GPUs have no NVLinks, so `inside` is the rate of PCIe.
    pub pcie: bool,
    /// NICs of each GPU, if they have several and count as one NIC; otherwise 0.
    pub ports: u32,
    /// The names of NICs that are left out.
    pub left_out: Vec<String>,
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
    // NCCL's own files have version 1, RCCL's version 2.
    system.number("version", Some(1), 0, 2)?;
    let mut server = Server::default();
    let (mut gpus, mut nets) = (Vec::new(), Vec::new());
    let (mut by_class, mut classless) = ((0u32, 0u32), 0u32);
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
                    Some("0302" | "0300" | "0380") => by_class.0 += 1,
                    Some("0200" | "0207") => by_class.1 += 1,
                    None => classless += 1,
                    _ => {}
                }
            }
            "gpu" => gpus.push(Gpu::new(&element)?),
            "net" => {
                let speed = element.number("speed", Some(0), 0, 100_000_000)?;
                rails.extend(element.text("rail"));
                nets.push(Net {
                    name: element.text("name").unwrap_or("unnamed").to_string(),
                    rate: Rate(speed as u64 * 1_000_000),
                    line: element.line(),
                    near: is_near_gpu(node),
                });
            }
            _ => {}
        }
    }
    server.skeleton = gpus.is_empty();
    server.gpus = gpus.len() as u32 + by_class.0;
    if server.gpus == 0 {
        let (what, remedy) = match classless {
            0 => ("has no GPU: no <gpu>, and no <pci> of class 0x0302", "was the file cut off?"),
            _ => (
                "has no <gpu>, and <pci> elements without a class, so nothing says which of them are GPUs",
                "dump the topology on such a server: NCCL_TOPO_DUMP_FILE; or write gpus, nics and rate in [servers]",
            ),
        };
        return Err(system.wrong("", what, remedy));
    }
    server.links(file, &gpus)?;
    server.rails = rails.len() as u32;
    if nets.is_empty() {
        server.nics = by_class.1;
    } else {
        server.choose(file, nets)?;
    }
    Ok(server)
}

/// A GPU of a file.
struct Gpu {
    line: usize,
    /// NVLinks, or links of xGMI, and the rate of all of them in GB/s.
    links: i64,
    rate: f64,
    /// Rate of its PCIe link in GB/s, if the file says it.
    pcie: Option<f64>,
}

impl Gpu {
    fn new(element: &Element<'_, '_>) -> Result<Gpu, Problems> {
        let generation = element.number("sm", Some(0), 0, 1000)?;
        let (mut links, mut rate) = (0, 0.0);
        for link in element.children() {
            let each = match link.name() {
                "nvlink" => NVLINK.iter().find(|(sm, _)| *sm <= generation).map_or(20.0, |(_, rate)| *rate),
                "xgmi" => {
                    let gcn = element.text("gcn").unwrap_or_default().trim_start_matches("gfx");
                    XGMI.iter().find(|(start, _)| gcn.starts_with(start)).map_or(24.0, |(_, rate)| *rate)
                }
                _ => continue,
            };
            let count = link.number("count", Some(1), 0, 1024)?;
            links += count;
            rate += count as f64 * each;
        }
        let of = |name: &str| element.node.parent_element().and_then(|pci| pci.attribute(name));
        let width = of("link_width").and_then(|width| width.trim().parse::<f64>().ok());
        let speed = of("link_speed").and_then(|speed| speed.split_whitespace().next()?.parse::<f64>().ok());
        // NCCL `src/graph/topo.cc` (kvDictPciGen): three quarters of a lane's rate are used.
        let pcie = width.zip(speed).map(|(width, speed)| width * speed * 0.75 / 8.0);
        Ok(Gpu { line: element.line(), links, rate, pcie: pcie.filter(|rate| (0.01..1e4).contains(rate)) })
    }
}

/// A NIC, or a port of one.
struct Net {
    name: String,
    rate: Rate,
    line: usize,
    /// True if a GPU is below the same PCIe switch.
    near: bool,
}

/// Whether a GPU and this NIC are below one PCIe switch.
fn is_near_gpu(net: roxmltree::Node<'_, '_>) -> bool {
    let switches = net.ancestors().skip(1).filter(|node| node.has_tag_name("pci"));
    switches.into_iter().any(|pci| pci.descendants().any(|node| node.has_tag_name("gpu")))
}

impl Server {
    /// Sets the rate inside a server from the links of its GPUs, which must be equal.
    fn links(&mut self, file: &str, gpus: &[Gpu]) -> Result<(), Problems> {
        let Some(first) = gpus.first() else { return Ok(()) };
        if let Some(odd) = gpus.iter().find(|gpu| gpu.links != first.links || gpu.rate != first.rate) {
            let what = match (odd.links, first.links) {
                (0, _) => format!("has no NVLinks, and the GPU in line {} has {}", first.line, first.links),
                (_, 0) => format!("has NVLinks, and the GPU in line {} has none", first.line),
                _ => format!("has another number of NVLinks than the GPU in line {}", first.line),
            };
            let remedy =
                "[servers] has equal GPUs; mend the server (NCCL falls back to PCIe on it), or describe it by hand";
            return Err(super::trace::problem(file, Some(odd.line), "", what, remedy));
        }
        let bits = |rate: f64| Rate((rate * 8e9).round() as u64);
        self.pcie = first.links == 0;
        self.inside = match self.pcie {
            false => Some(bits(first.rate)),
            true => Some(bits(gpus.iter().map(|gpu| gpu.pcie.unwrap_or(PCIE)).fold(f64::INFINITY, f64::min))),
        };
        Ok(())
    }

    /// Chooses the NICs that GPUs use. The others are left out.
    fn choose(&mut self, file: &str, mut nets: Vec<Net>) -> Result<(), Problems> {
        let mut out = Vec::new();
        let fits = |nets: &[Net]| !nets.is_empty() && self.gpus.is_multiple_of(nets.len() as u32);
        let near = nets.iter().filter(|net| net.near).count();
        let mut leave = |nets: &mut Vec<Net>, keep: &dyn Fn(&Net) -> bool| {
            out.extend(nets.iter().filter(|net| !keep(net)).map(|net| net.name.clone()));
            nets.retain(keep);
        };
        if near > 0 && near < nets.len() && self.gpus.is_multiple_of(near as u32) {
            leave(&mut nets, &|net| net.near);
        }
        let fastest = nets.iter().map(|net| net.rate).max().unwrap_or_default();
        let fast = nets.iter().filter(|net| net.rate == fastest).count();
        if fast < nets.len() {
            let near = nets.iter().any(|net| net.rate < fastest && net.near);
            if near || (fast as u32) < self.gpus {
                let odd = nets.iter().find(|net| net.rate != nets[0].rate).unwrap_or(&nets[0]);
                let what = format!("has another speed than the NIC in line {}", nets[0].line);
                let speed = (odd.rate.0 / 1_000_000).to_string();
                let remedy = "[fabric] has equal NICs; describe it by hand";
                return Err(super::trace::problem(file, Some(odd.line), &speed, what, remedy));
            }
            leave(&mut nets, &|net| net.rate == fastest);
        }
        let count = nets.len() as u32;
        let mut rate = fastest;
        let nics = match count {
            _ if fits(&nets) => count,
            _ if count.is_multiple_of(self.gpus) => {
                // Several NICs of each GPU: one with a port per NIC.
                self.ports = count / self.gpus;
                rate = Rate(rate.0 * u64::from(self.ports));
                self.gpus
            }
            _ => {
                let most = (1..=count.min(self.gpus)).rev().find(|n| self.gpus.is_multiple_of(*n)).unwrap_or(1);
                out.extend(nets.drain(most as usize..).map(|net| net.name));
                most
            }
        };
        (self.nics, self.nic, self.left_out) = (nics, (rate.0 > 0).then_some(rate), out);
        Ok(())
    }

    /// The assumptions of a run about the server beyond its file.
    pub fn assumed(&self) -> Vec<String> {
        let mut assumed = Vec::new();
        match self.inside {
            None => {
                assumed.push("NVLinks are those of an H100, since the file does not say: 3.6 Tb/s per GPU".to_string())
            }
            Some(rate) if self.pcie && self.gpus > 1 => {
                assumed.push(format!(
                    "GPUs have no NVLinks, and reach each other over PCIe with {rate} each, at the most"
                ));
            }
            Some(_) => {}
        }
        if self.nics == 0 {
            assumed.push("each GPU has a NIC, since the file has none".to_string());
        }
        if self.ports > 1 {
            assumed.push(format!("the {} NICs of a GPU are one NIC with {} planes", self.ports, self.ports));
        }
        if !self.left_out.is_empty() {
            let out = self.left_out.join(", ");
            assumed.push(format!("these NICs are left out, as those of storage or management: {out}"));
        }
        assumed
    }
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
        let mut assumed = vec![
            "PCIe never limits a message between servers".to_string(),
            "GPU i uses NIC i x NICs / GPUs".to_string(),
        ];
        assumed.extend(self.assumed());
        let planes = match self.ports {
            0 | 1 => String::new(),
            ports => format!("kind = \"multi-plane\"\nplanes = {ports}\n"),
        };
        let fabric = self.nic.map_or(String::new(), |rate| format!("[fabric]\n{planes}rate = \"{rate}\"\n"));
        format!(
            "a topology of NCCL{skeleton}: {} GPUs, {} NICs, {} CPUs; links of a GPU {}, a NIC {}\nassumed: {}\n\
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

    /// A server whose GPUs and NICs are below the CPU.
    fn server(gpus: &[&str], speeds: &[u32]) -> String {
        let gpu = |links: &&str| {
            format!(
                "<pci class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu sm=\"90\" gcn=\"942\">{links}</gpu></pci>\n"
            )
        };
        let nic = |(at, speed): (usize, &u32)| {
            format!("<pci class=\"0x020700\"><nic><net name=\"nic{at}\" speed=\"{speed}\"/></nic></pci>\n")
        };
        let gpus: String = gpus.iter().map(gpu).collect();
        let nics: String = speeds.iter().enumerate().map(nic).collect();
        format!("<system version=\"2\">\n<cpu numaid=\"0\">\n{gpus}{nics}</cpu>\n</system>\n")
    }

    #[test]
    fn servers_of_amd_have_the_rate_of_their_links() {
        let links = "<xgmi target=\"a\" count=\"1\"/>".repeat(7);
        let made = parse("a.xml", &server(&[links.as_str(); 8], &[400_000; 8])).expect("an MI300X");
        // Seven links of 48 GB/s.
        assert_eq!((made.gpus, made.inside), (8, Some(Rate(7 * 48 * 8_000_000_000))));
    }

    #[test]
    fn gpus_without_links_have_the_rate_of_pcie() {
        let made = parse("a.xml", &server(&[""; 8], &[400_000; 4])).expect("PCIe");
        assert_eq!((made.inside, made.pcie), (Some(Rate(24 * 8_000_000_000)), true));
        assert!(made.describe().contains("over PCIe with 192 Gbps each"), "{}", made.describe());
        let links = "<nvlink target=\"s\" count=\"18\"/>";
        let said = parse("a.xml", &server(&[links, "", links], &[400_000; 3])).expect_err("one without").to_string();
        assert!(said.contains("a.xml:4: has no NVLinks, and the GPU in line 3 has 18"), "{said}");
    }

    #[test]
    fn nics_of_storage_are_left_out_and_named() {
        let links = "<nvlink target=\"s\" count=\"18\"/>";
        let of = |speeds: &[u32], gpus: usize| parse("a.xml", &server(&vec![links; gpus], speeds)).expect("sound");
        let ten = of(&[400_000; 10], 8);
        assert_eq!((ten.nics, ten.left_out.clone()), (8, vec!["nic8".to_string(), "nic9".to_string()]));
        assert!(ten.describe().contains("nic8, nic9"), "{}", ten.describe());
        let mut speeds = [200_000; 9];
        speeds[8] = 100_000;
        let mixed = of(&speeds, 8);
        assert_eq!((mixed.nics, mixed.nic, mixed.left_out), (8, Some(Rate::from_gbps(200)), vec!["nic8".to_string()]));
        // Two NICs of one GPU are one NIC with two planes.
        let two = of(&[200_000; 2], 1);
        assert_eq!((two.nics, two.ports, two.nic), (1, 2, Some(Rate::from_gbps(400))));
        assert!(two.describe().contains("planes = 2\nrate = \"400 Gbps\""), "{}", two.describe());
    }

    #[test]
    fn devices_without_a_class_are_named_as_the_reason() {
        let bare = "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0\"/><pci busid=\"1\"/></cpu></system>";
        let said = parse("a.xml", bare).expect_err("no GPU").to_string();
        assert!(said.contains("<pci> elements without a class"), "{said}");
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
            ("version=\"1\"", "version=\"3\"", "`3`: is no version"),
            (
                "<nvlink target=\"s0\" count=\"18\" tclass=\"0x068000\"/>",
                "",
                "a.xml:6: has NVLinks, and the GPU in line 4 has none",
            ),
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
