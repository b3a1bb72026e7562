//! SONiC: the tables of a switch's CONFIG_DB, as JSON.
//!
//! Names of tables and fields are those of SONiC's YANG models (`sonic-net/sonic-buildimage`, `src/sonic-yang-models`,
//! August 2026). All values are text, as in SONiC's own files.

mod buffers;

use super::switch::{PortPlan, SwitchPlan};
use super::{Buffers, Gap, gap};
use crate::{LinuxFabric, Node};
use serde_json::{Map, Value, json};
use strandway_fabric::datagram::{CONTROL_DSCP, TRIMMED};

/// Traffic class, queue and priority group of data. Ours: 3 is the usual lossless priority of RoCE.
const DATA: &str = "3";

/// Traffic class and queue of control packets.
const CONTROL: &str = "6";

/// Traffic class and queue of trimmed packets.
const CUT: &str = "5";

/// The name of maps and profiles.
const NAME: &str = "strandway";

/// Speeds of Ethernet ports in Mb/s.
const SPEEDS: [u64; 13] =
    [10, 100, 1000, 2500, 5000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000];

/// Bits per second of one lane. Ours: PAM4 at 112 Gb/s.
const LANE: u64 = 100_000;

/// Names of ports are `Ethernet0`, `Ethernet8` and so on: eight lanes are reserved for each.
const LANES: usize = 8;

/// Bytes of IPv6 and UDP headers in front of the payload that a trimmed packet keeps.
const HEADERS: u64 = 48;

/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;

/// The tables of a switch while they are made.
#[derive(Default)]
struct Tables(Map<String, Value>);

impl Tables {
    /// Adds an entry. Fields are pairs of name and text.
    fn put(&mut self, table: &str, key: &str, fields: &[(&str, &str)]) {
        let entry: Map<String, Value> = fields.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        let rows = self.0.entry(table).or_insert_with(|| json!({}));
        if let Some(row) = rows.as_object_mut().map(|rows| rows.entry(key).or_insert_with(|| json!({})))
            && let Some(row) = row.as_object_mut()
        {
            row.extend(entry);
        }
    }
}

/// The name of a port by its number in the switch.
fn ethernet(at: usize) -> String {
    format!("Ethernet{}", at * LANES)
}

/// The text of `config_db.json`.
pub(super) fn config(fabric: &LinuxFabric, buffers: &Buffers, switch: &SwitchPlan, gaps: &mut Vec<Gap>) -> String {
    let mut tables = Tables::default();
    let kind = match switch.node {
        Node::T0(..) => "ToRRouter",
        Node::T1(..) => "LeafRouter",
        Node::T2(..) | Node::Host(_) => "SpineRouter",
    };
    let metadata = [
        ("hostname", &switch.name[..]),
        ("type", kind),
        ("buffer_model", "traditional"),
        ("default_bgp_status", "down"),
        ("docker_routing_config_mode", "unified"),
    ];
    tables.put("DEVICE_METADATA", "localhost", &metadata);
    for (at, port) in switch.ports.iter().enumerate() {
        self::port(&mut tables, fabric, at, port, gaps);
    }
    segments(&mut tables, switch);
    classes(&mut tables, fabric, buffers, switch, gaps);
    buffers::put(&mut tables, fabric, buffers, switch, gaps);
    for (what, why, instead) in [
        (
            "lanes, hwsku and platform",
            "they belong to a model of switch, which a plan does not name",
            "Ethernet0, Ethernet8, ... with lanes of 100 Gb/s: replace them by those of your platform's port_config.ini",
        ),
        (
            "static neighbours",
            "MAC addresses belong to the switches",
            "neighbours are found by neighbour discovery; each port's description names the other end",
        ),
        (
            "multicast along trees",
            "CONFIG_DB has no static IPv6 multicast routes",
            "see docs/linux-fabric.md, With your routers",
        ),
    ] {
        gaps.push(gap(what, why, instead));
    }
    format!("{:#}\n", Value::Object(tables.0))
}

/// A port: its speed, its address, and the routes that leave by it.
fn port(tables: &mut Tables, fabric: &LinuxFabric, at: usize, port: &PortPlan, gaps: &mut Vec<Gap>) {
    let name = ethernet(at);
    let wanted = port.rate.map_or(1_000_000_000, |rate| rate).div_ceil(1_000_000);
    let speed = SPEEDS.into_iter().find(|speed| *speed >= wanted).unwrap_or(wanted);
    let first = at * LANES + 1;
    let lanes: Vec<String> =
        (first..).take(speed.div_ceil(LANE).clamp(1, LANES as u64) as usize).map(|lane| lane.to_string()).collect();
    tables.put(
        "PORT",
        &name,
        &[
            ("alias", &format!("Eth{}", at + 1)),
            ("description", &format!("{} to {}", port.name, port.peer)),
            ("index", &(at + 1).to_string()),
            ("lanes", &lanes.join(",")),
            ("speed", &speed.to_string()),
            ("mtu", &fabric.mtu.to_string()),
            ("admin_status", "up"),
        ],
    );
    if let Some(rate) = port.rate.filter(|rate| *rate != speed * 1_000_000) {
        let (profile, bytes) = (format!("rate_{rate}"), (rate / 8).to_string());
        let fields = [("type", "STRICT"), ("meter_type", "bytes"), ("cir", &bytes[..]), ("pir", &bytes[..])];
        tables.put("SCHEDULER", &profile, &fields);
        tables.put("PORT_QOS_MAP", &name, &[("scheduler", &profile)]);
        gaps.push(gap(
            format!("ports of {} Mb/s", rate as f64 / 1e6),
            "no Ethernet port has this speed",
            format!("ports of {speed} Mb/s, shaped to {bytes} bytes per second"),
        ));
    }
    tables.put("INTERFACE", &name, &[("ipv6_use_link_local_only", "enable")]);
    tables.put("INTERFACE", &format!("{name}|{}/64", port.own), &[]);
    for (prefix, bits) in &port.routes {
        let fields = [("nexthop", &port.far[..]), ("ifname", &name[..])];
        tables.put("STATIC_ROUTE", &format!("default|{prefix}/{bits}"), &fields);
    }
}

/// The switch's own segment, and the route that drops what no other one takes.
fn segments(tables: &mut Tables, switch: &SwitchPlan) {
    for (prefix, _) in &switch.sids {
        let lengths =
            [("block_len", "32"), ("node_len", "16"), ("func_len", "0"), ("arg_len", "0"), ("vrf", "default")];
        tables.put("SRV6_MY_LOCATORS", "MAIN", &[&[("prefix", &prefix.to_string()[..])][..], &lengths].concat());
        let fields = [("action", "uN"), ("decap_dscp_mode", "pipe")];
        tables.put("SRV6_MY_SIDS", &format!("MAIN|{prefix}/48"), &fields);
    }
    let drop = [("blackhole", "true"), ("nexthop", "::"), ("distance", "250")];
    tables.put("STATIC_ROUTE", &format!("default|{}/32", switch.block), &drop);
}

/// Traffic classes, and queues that mark.
fn classes(tables: &mut Tables, fabric: &LinuxFabric, buffers: &Buffers, switch: &SwitchPlan, gaps: &mut Vec<Gap>) {
    let apart = buffers.priority || fabric.has_program();
    for dscp in 0..64_u8 {
        let class = if apart && dscp >= CONTROL_DSCP { CONTROL } else { DATA };
        tables.put("DSCP_TO_TC_MAP", NAME, &[(&dscp.to_string(), class)]);
    }
    for class in 0..8 {
        let class = class.to_string();
        tables.put("TC_TO_QUEUE_MAP", NAME, &[(&class, &class)]);
        tables.put("TC_TO_PRIORITY_GROUP_MAP", NAME, &[(&class, &class)]);
    }
    tables.put("SCHEDULER", "data", &[("type", "DWRR"), ("weight", "100")]);
    tables.put("SCHEDULER", "control", &[("type", "STRICT")]);
    marks(tables, fabric, gaps);
    trimming(tables, fabric, switch, gaps);
    for (at, port) in switch.ports.iter().enumerate() {
        let name = ethernet(at);
        let maps = ["dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map"].map(|map| (map, NAME));
        tables.put("PORT_QOS_MAP", &name, &maps);
        if buffers.pfc.is_some() {
            let pauses = [("pfc_enable", DATA), ("pfc_to_queue_map", NAME)];
            tables.put("PORT_QOS_MAP", &name, &pauses);
            for priority in 0..8 {
                let priority = priority.to_string();
                tables.put("MAP_PFC_PRIORITY_TO_QUEUE", NAME, &[(&priority, &priority)]);
            }
        }
        tables.put("QUEUE", &format!("{name}|{DATA}"), &[("scheduler", "data")]);
        if fabric.marking.is_some_and(|marking| marking.last_hop || !port.is_last_hop()) {
            tables.put("QUEUE", &format!("{name}|{DATA}"), &[("wred_profile", "data")]);
        }
        if apart {
            tables.put("QUEUE", &format!("{name}|{CONTROL}"), &[("scheduler", "control")]);
        }
        if fabric.trimming {
            tables.put("QUEUE", &format!("{name}|{CUT}"), &[("scheduler", "control")]);
            if matches!(switch.node, Node::T0(..)) {
                let map = if port.is_last_hop() { "cut_last_hop" } else { "cut" };
                tables.put("PORT_QOS_MAP", &name, &[("tc_to_dscp_map", map)]);
            }
        }
    }
}

/// The profile of ports that mark.
fn marks(tables: &mut Tables, fabric: &LinuxFabric, gaps: &mut Vec<Gap>) {
    let Some(marking) = fabric.marking else { return };
    let percent = marking.chance_ppm.div_ceil(10_000).min(100);
    if marking.chance_ppm % 10_000 != 0 {
        gaps.push(gap(
            format!("a marking probability of {} millionths", marking.chance_ppm),
            "WRED_PROFILE has whole hundredths",
            format!("{percent} %"),
        ));
    }
    tables.put(
        "WRED_PROFILE",
        "data",
        &[
            ("ecn", "ecn_all"),
            ("wred_green_enable", "true"),
            ("green_min_threshold", &marking.low.to_string()),
            ("green_max_threshold", &marking.high.max(marking.low).to_string()),
            ("green_drop_probability", &percent.to_string()),
        ],
    );
    gaps.push(gap(
        "packets that are not ECN-capable",
        "a WRED profile drops at random those that it cannot mark",
        "none here: all packets of nodes are ECN-capable",
    ));
}

/// Trimming. A T0 has ports of both kinds, so its trimmed packets get their DSCP from a map per port.
fn trimming(tables: &mut Tables, fabric: &LinuxFabric, switch: &SwitchPlan, gaps: &mut Vec<Gap>) {
    if !fabric.trimming {
        return;
    }
    let size = (ETHERNET + HEADERS + TRIMMED as u64).to_string();
    let (far, near) = (CONTROL_DSCP.to_string(), (CONTROL_DSCP + 1).to_string());
    let common = [("size", &size[..]), ("queue_index", CUT)];
    tables.put("SWITCH_TRIMMING", "GLOBAL", &common);
    if matches!(switch.node, Node::T0(..)) {
        tables.put("SWITCH_TRIMMING", "GLOBAL", &[("dscp_value", "from-tc"), ("tc_value", CUT)]);
        tables.put("TC_TO_DSCP_MAP", "cut", &[(CUT, &far)]);
        tables.put("TC_TO_DSCP_MAP", "cut_last_hop", &[(CUT, &near)]);
    } else {
        tables.put("SWITCH_TRIMMING", "GLOBAL", &[("dscp_value", &far)]);
    }
    gaps.push(gap(
        "UDP checksums of trimmed packets",
        "SWITCH_TRIMMING says nothing about checksums",
        "nodes accept trimmed packets with any checksum",
    ));
}
