//! `[fabric]`: shape, rates and latencies, routing, and settings of switches that differ from the profile's.

use crate::faults::Faults;
use crate::graphs;
use crate::infragraph;
use crate::keys;
use crate::reader::{Section, Sink};
use crate::scenario::Scenario;
use crate::shapes::{fat_tree, graph, imported, leaf_spine};
use crate::sites;
use strandway_fabric::Topology;
use strandway_fabric::plan::{
    EcnSettings, PAUSE_FRAME, PfcSettings, PortSettings, ReceiveSettings, Routing, SharedSettings, TrimSettings,
};
use strandway_fabric::quantity::Size;
use strandway_fabric::topology::NodeKind;
use strandway_import::leaf_spine::EqualServers;
use strandway_proto::Profile;
use strandway_proto::units::{Bytes, Rate, Span};

/// All kinds of fabric, in the order in which errors list them.
fn kinds() -> Vec<&'static str> {
    ["leaf-spine", "fat-tree", "multi-plane", "sites"]
        .into_iter()
        .chain(graphs::KINDS)
        .chain(["htsim", "simai", "infragraph"])
        .collect()
}

/// The checked `[fabric]`, without sizes of switches, which also depend on the profile.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    pub(crate) kind: &'static str,
    pub(crate) topology: Topology,
    pub(crate) routing: Routing,
    /// The permanent losses of its long links.
    pub(crate) losses: Faults,
    /// The servers, if a file describes them together with the fabric.
    pub(crate) described: Option<EqualServers>,
    /// The assumptions of a run that the file of a fabric does not state.
    pub(crate) assumed: Vec<String>,
    switches: Switches,
}

/// The settings of switch ports in a scenario; `None` for settings that the profile decides.
#[derive(Clone, Debug, Default)]
struct Switches {
    queue: Option<Size>,
    ecn: Option<bool>,
    ecn_last_hop: Option<bool>,
    ecn_low: Option<Size>,
    ecn_high: Option<Size>,
    trimming: Option<bool>,
    pfc: Option<bool>,
    cbfc: Option<bool>,
    receive: Option<ReceiveSettings>,
    message_cost: Option<Span>,
    cbfc_buffer: Option<Size>,
    llr: Option<bool>,
    pfc_xoff: Option<Size>,
    pfc_xon: Option<Size>,
    pfc_headroom: Option<Size>,
    shared_buffer: Option<Size>,
    alpha: Option<f64>,
    priority: Option<bool>,
}

/// Numbers computed from fabric and profile.
#[derive(Clone, Debug)]
pub struct Derived {
    /// Round trip of a full packet and its acknowledgement over the longest path, without queues.
    pub base_rtt: Span,
    /// Bandwidth-delay product of one plane: the rate of a host's link times the base RTT. For a fabric of sites: times
    /// the round trip within a site.
    pub bdp: Bytes,
    /// Rate of a NIC, all planes together.
    pub rate: Rate,
    /// Wire bytes of a full packet.
    pub packet: Bytes,
    /// The limit of a data queue. With PFC: the limit before PFC removed it.
    pub queue: Bytes,
}

/// Reads `[fabric]`. `nodes` is the number of hosts of an imported matrix, for the default fabric. `wanted` is the
/// routing of the profile, and the profile's name.
pub(crate) fn read(
    sink: &Sink,
    scenario: &Scenario,
    nodes: Option<u32>,
    wanted: Option<(Routing, &str)>,
) -> Option<Fabric> {
    let section = Section::of(sink, &scenario.table, "fabric");
    let default = if nodes.is_some() && !section.has("kind") { "fat-tree" } else { "leaf-spine" };
    let kind = if section.has("kind") { section.choice("kind", &kinds())? } else { default };
    section.raw("kind");
    let switches = switches(&section);
    let written = section.choice("routing", &Routing::NAMES).and_then(Routing::named);
    let mut routing = written.or(wanted.map(|(routing, _)| routing)).unwrap_or(Routing::Hashed);
    let mut losses = Faults::default();
    let (mut described, mut assumed) = (None, Vec::new());
    let topology = match kind {
        "sites" => {
            let wish = |said: Option<bool>| said == Some(true);
            let written = [("pfc", wish(switches.pfc)), ("shared_buffer", switches.shared_buffer.is_some())];
            sites::refuse(sink, written);
            sites::read(&section, nodes).map(|(topology, lost)| {
                losses = lost;
                topology
            })
        }
        "htsim" => imported(&section, scenario),
        "simai" => graph(&section, scenario).map(|(topology, servers)| {
            described = servers;
            topology
        }),
        "infragraph" => infragraph::read(&section, scenario).map(|made| {
            (described, assumed) = (made.servers, made.assumed);
            made.topology
        }),
        "fat-tree" => fat_tree(&section, nodes),
        kind if graphs::KINDS.contains(&kind) => graphs::read(&section, scenario, kind, nodes),
        _ => leaf_spine(&section, kind == "multi-plane", nodes),
    };
    keys::finish(section, "fabric");
    let topology = topology?;
    if topology.graph().is_some() && matches!(routing, Routing::Direct | Routing::Source) {
        if let Some(written) = written {
            graphs::refuse_routing(sink, written.name());
        }
        routing = Routing::Hashed;
    }
    if routing.is_adaptive() && kind == "sites" {
        let what = "does not work over long links: a leaf has one uplink per pair of sites and bundle, and paths are chosen by entropy";
        sink.add("fabric.routing", format!("\"{}\"", routing.name()), what, "choose \"hashed\"");
    }
    if routing == Routing::Source {
        let by =
            wanted.filter(|_| written.is_none()).map_or(String::new(), |(_, profile)| format!(", as {profile} wants"));
        segments_fit(sink, &topology, &by);
    }
    Some(Fabric { kind, topology, routing, losses, described, assumed, switches })
}

/// A micro segment (uSID) has 16 bits: two for its kind, three for the plane, eleven for a number that is not zero.
fn segments_fit(sink: &Sink, topology: &Topology, wanted: &str) {
    const NUMBERS: u32 = (1 << 11) - 1;
    let shape = topology.shape();
    let counts = [
        ("leaves of a plane", topology.leaves(), NUMBERS),
        ("tier-1 switches of a plane", topology.spines(), NUMBERS),
        ("cores of a plane", topology.cores(), NUMBERS),
        ("hosts below a leaf", shape.hosts_per_leaf, NUMBERS),
        ("planes", u32::from(topology.planes()), 8),
    ];
    for (what, count, most) in counts {
        if count > most {
            let said = format!("{count} {what} do not fit a micro segment, which can distinguish {most}");
            let remedy = "make the fabric smaller, or choose \"hashed\", \"direct\" or \"adaptive\"";
            sink.add("fabric.routing", format!("\"source\"{wanted}"), said, remedy);
        }
    }
}

fn switches(section: &Section<'_>) -> Switches {
    Switches {
        queue: section.size("queue"),
        ecn: section.flag("ecn"),
        ecn_last_hop: section.flag("ecn_last_hop"),
        ecn_low: section.size("ecn_low"),
        ecn_high: section.size("ecn_high"),
        trimming: section.flag("trimming"),
        pfc: section.flag("pfc"),
        cbfc: section.flag("cbfc"),
        receive: receive(section),
        message_cost: section.span("message_cost"),
        cbfc_buffer: section.size("cbfc_buffer"),
        llr: section.flag("llr"),
        pfc_xoff: section.size("pfc_xoff"),
        pfc_xon: section.size("pfc_xon"),
        pfc_headroom: section.size("pfc_headroom"),
        shared_buffer: section.size("shared_buffer"),
        alpha: section.ratio("alpha", 1e-6, 1e6),
        priority: section.flag("priority"),
    }
}

impl Fabric {
    /// The settings of the switches' ports with this profile.
    pub(crate) fn ports(&self, sink: &Sink, profile: &Profile) -> (PortSettings, Derived) {
        let wish = &profile.switch;
        let own = &self.switches;
        let packet = profile.packet_bytes();
        let control = Bytes(u64::from(profile.transport.control));
        let base_rtt = self.topology.base_rtt(packet, control);
        let rate = self.topology.level(0).rate;
        // Switches of sites have the queues and thresholds of a fabric in one place; long links have their own.
        let here = match self.topology.sites() {
            0 => base_rtt,
            _ => self.topology.one_way(packet, 2) + self.topology.one_way(control, 2),
        };
        let bdp = rate.bytes_in(here);
        let of_bdp = |factor: f64| Bytes((bdp.0 as f64 * factor) as u64);
        let pick = |own: Option<Size>, wish: Bytes| own.map_or(wish, |size| size.resolve(bdp, packet));
        let complain = |key: &str, value: Bytes, what: String, remedy: String| {
            sink.add(&format!("fabric.{key}"), format!("{} B", value.0), what, remedy);
        };

        let queue = pick(own.queue, of_bdp(wish.queue_bdp));
        if queue < packet {
            complain(
                "queue",
                queue,
                format!("does not hold one packet of {} B", packet.0),
                "write more, say \"1 BDP\"".into(),
            );
        }
        let credit = own.cbfc == Some(true);
        let pfc = own.pfc.unwrap_or(wish.pfc && self.topology.sites() == 0 && !credit);
        let trimming = own.trimming.unwrap_or(wish.trimming && !pfc && !credit);
        let low = pick(own.ecn_low, of_bdp(wish.ecn_low_bdp));
        let high = pick(own.ecn_high, of_bdp(wish.ecn_high_bdp));
        if low > high {
            complain("ecn_low", low, format!("is above ecn_high, {} B", high.0), "write a lower threshold".into());
        }
        let ecn = own.ecn.unwrap_or(high.0 > 0).then_some(EcnSettings {
            low,
            high,
            probability: wish.ecn_probability,
            at_dequeue: wish.ecn_at_dequeue,
            last_hop: own.ecn_last_hop.unwrap_or(wish.ecn_last_hop),
        });
        let pfc = pfc.then(|| self.pfc(packet, bdp, &complain));
        let cbfc = credit.then(|| self.cbfc(sink, packet, bdp, pfc.is_some()));
        let shared = own.shared_buffer.map(|size| SharedSettings {
            buffer: size.resolve(bdp, packet),
            // DCQCN paper, section 4: with PFC, 1/8 per ingress. For lossy queues switches usually use 1.
            alpha: own.alpha.unwrap_or(if pfc.is_some() { 0.125 } else { 1.0 }),
        });
        if own.alpha.is_some() && own.shared_buffer.is_none() {
            sink.add(
                "fabric.alpha",
                "",
                "has no meaning without a shared buffer",
                "add, say, shared_buffer = \"32 MB\"",
            );
        }
        let settings = PortSettings {
            priority: own.priority.unwrap_or(true),
            // With PFC the egress queue never drops: the ingress port decides whether a packet is accepted.
            // Credit does the same for links.
            data_queue: if pfc.is_some() || credit { UNLIMITED } else { queue },
            control_queue: queue * 2,
            trim: trimming.then_some(TrimSettings { size: u16::try_from(control.0).unwrap_or(u16::MAX) }),
            ecn,
            pfc,
            cbfc,
            receive: own.receive,
            message_cost: own.message_cost.unwrap_or(Span::ZERO),
            llr: own.llr == Some(true),
            shared,
            adaptive_queue: queue,
        };
        let nic = Rate(rate.0 * u64::from(self.topology.planes()));
        (settings, Derived { base_rtt, bdp, rate: nic, packet, queue })
    }

    /// Sentences about settings that have no effect.
    pub(crate) fn unused_settings(&self, ports: &PortSettings) -> Vec<String> {
        let own = &self.switches;
        let mut vain = Vec::new();
        if own.cbfc_buffer.is_some() && ports.cbfc.is_none() {
            vain.push("fabric.cbfc_buffer has no effect without fabric.cbfc = true".to_string());
        }
        if ports.cbfc.is_some() && own.trimming == Some(true) {
            vain.push("fabric.trimming = true has no effect here: with credit no queue is ever full".to_string());
        }
        if ports.pfc.is_some() && own.trimming == Some(true) {
            vain.push("fabric.trimming = true has no effect here: with PFC no queue is ever full".to_string());
        }
        for (key, written, threshold) in [
            ("ecn_low", own.ecn_low.is_some(), ports.ecn.map(|e| e.low)),
            ("ecn_high", own.ecn_high.is_some(), ports.ecn.map(|e| e.high)),
        ] {
            if let Some(threshold) = threshold.filter(|t| written && *t > ports.data_queue) {
                vain.push(format!(
                    "fabric.{key} = {threshold} is never reached here: a queue holds {}",
                    ports.data_queue
                ));
            }
        }
        vain.extend(graphs::cautions(&self.topology, ports));
        vain
    }

    /// The buffer of an input port with credit.
    fn cbfc(&self, sink: &Sink, packet: Bytes, bdp: Bytes, pfc: bool) -> Bytes {
        let own = &self.switches;
        if pfc {
            sink.add("fabric.cbfc", "true", "is another way not to drop than PFC", "leave out one of them");
        }
        if own.shared_buffer.is_some() {
            sink.add("fabric.cbfc", "true", "gives each input port a buffer of its own", "leave out shared_buffer");
        }
        if self.topology.sites() > 0 {
            sink.add("fabric.cbfc", "true", "is for links within a data center", "leave it out in a fabric of sites");
        }
        // A link runs at its rate with a packet in each of these places: on the way there, in the switch, on the way of
        // the credit back, in transmission at both ends.
        let of_tier = |tier: usize| {
            let level = self.topology.level(tier);
            let switches = [NodeKind::Leaf, NodeKind::Spine, NodeKind::Core];
            level.rate.bytes_in(level.latency * 2 + self.topology.latency_inside(switches[tier]))
        };
        let most = (0..self.topology.tiers()).map(of_tier).max().unwrap_or_default() + packet * 4;
        let buffer = own.cbfc_buffer.map_or(most, |size| size.resolve(bdp, packet));
        if buffer < packet * 2 {
            let what = format!("does not hold two packets of {} B", packet.0);
            sink.add("fabric.cbfc_buffer", format!("{buffer}"), what, "write more, or leave it out");
        }
        buffer
    }

    fn pfc(&self, packet: Bytes, bdp: Bytes, complain: &dyn Fn(&str, Bytes, String, String)) -> PfcSettings {
        let own = &self.switches;
        let pick = |own: Option<Size>, default: Bytes| own.map_or(default, |size| size.resolve(bdp, packet));
        // The bytes that can still arrive after a pause was sent: two latencies' worth; the bytes inside the switch
        // that have not joined a port; the packet that must leave before the pause; the pause itself; and the packet
        // that the other end is sending. The default counts three latencies, as the ns-3 RDMA model does.
        let arriving = |latencies: u64| {
            let of_tier = |tier: usize| {
                let level = self.topology.level(tier);
                let switches = [NodeKind::Leaf, NodeKind::Spine, NodeKind::Core];
                let above = self.topology.latency_inside(switches[tier]);
                // Traffic that comes down enters the lower switch.
                let below = if tier == 0 { Span::ZERO } else { self.topology.latency_inside(switches[tier - 1]) };
                level.rate.bytes_in(level.latency * latencies + above.max(below))
            };
            (0..self.topology.tiers()).map(of_tier).max().unwrap_or_default() + packet * 2 + Bytes(PAUSE_FRAME.into())
        };
        let (needed, ample) = (arriving(2), arriving(3));
        // htsim: pause above 15 packets, resume at 12.
        let xoff = pick(own.pfc_xoff, packet * 15);
        let xon = pick(own.pfc_xon, if xoff > packet * 3 { xoff - packet * 3 } else { Bytes::ZERO });
        let headroom = pick(own.pfc_headroom, ample);
        if xon > xoff {
            complain("pfc_xon", xon, format!("is above pfc_xoff, {} B", xoff.0), "write less".into());
        }
        if headroom < needed {
            let what = format!("is fewer bytes than can still arrive after a pause, {} B", needed.0);
            complain("pfc_headroom", headroom, what, "write more, or leave it out".into());
        }
        PfcSettings { xoff, xon, headroom }
    }
}

/// The work of receiving.
fn receive(section: &Section<'_>) -> Option<ReceiveSettings> {
    let threads = section.count("receive_threads", 0, 65_536).unwrap_or(0) as u32;
    let mpps = section.ratio("receive_mpps", 1e-6, 1e6).unwrap_or(RECEIVE_MPPS);
    let knee = section.ratio("receive_knee", 0.0, 1e9).unwrap_or(0.0);
    let chunk = section.count("receive_chunk", 1, 65_536).unwrap_or(u64::from(ReceiveSettings::CHUNK)) as u32;
    let queue = section.count("receive_queue", 1, u64::from(u32::MAX)).unwrap_or(RECEIVE_QUEUE) as u32;
    if threads == 0 {
        for key in ["receive_mpps", "receive_knee", "receive_chunk", "receive_queue"] {
            if section.has(key) {
                section.wrong(key, "has no effect without receive_threads", "add, say, receive_threads = 16");
            }
        }
        return None;
    }
    Some(ReceiveSettings::new(threads, mpps, knee, chunk, queue))
}

/// SDR-RDMA, arXiv 2505.05366, figure 16: 11.6 million packets a second of eight threads.
const RECEIVE_MPPS: f64 = 1.45;

/// Ours: the completion queue of the multicast paper's engine has 8,192 entries.
const RECEIVE_QUEUE: u64 = 8192;

/// A queue limit that no run reaches.
pub(crate) const UNLIMITED: Bytes = Bytes(1 << 40);
