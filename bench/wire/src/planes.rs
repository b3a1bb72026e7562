//! Tests whether several shaped planes together carry their full rate.

use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::multipath::Multipath;
use crate::network::{Network, PLANES, Wire};
use crate::ours::{Ours, name_of};
use crate::{Options, tcp};
use strandway_proto::Span;
use strandway_udp::Protection;

/// Rate of a shaped port.
pub(crate) const RATE_MBPS: u32 = 500;
/// Payload of a packet on shaped planes, and the MTU that it needs.
pub(crate) const PAYLOAD: u32 = 4_096;
pub(crate) const MTU: u32 = 4_300;
/// QUIC with multipath.
pub(crate) const NOQ: &str = "noq, multipath QUIC";
/// Ethernet, IPv6, and TCP with time stamps.
const TCP_HEADERS: u32 = 14 + 40 + 32;

/// The rate of a fast port, and the MTUs at which it is measured.
const FAST_MBPS: u32 = 10_000;
const FAST_MTUS: [u32; 2] = [1_500, 9_000];
const PROTECTIONS: [Protection; 2] = [Protection::None, Protection::Encrypted];
/// `base_rtt` of our nodes on fast ports. Ours: on two cores, 0.5 and 1 ms filled the ports; 0.1 and 1.5 ms did not.
const FAST_BASE_RTT: Span = Span::from_us(500);

/// A table: planes of the same rate.
struct Table {
    name: String,
    wire: Wire,
    planes: usize,
    rate_mbps: u32,
    seconds: f64,
}

impl Table {
    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![Column::new("goodput", "Mb/s"), Column::new("of what fits", "share")];
        columns.extend((0..self.planes).map(|plane| Column::new(format!("plane {plane}"), "Mb/s")));
        columns
    }

    /// The kernel's TCP, which has one plane.
    fn tcp<'a>(&self, network: &'a Network, control: &'static str) -> Row<'a> {
        let (wire, rate, seconds) = (self.wire, f64::from(self.rate_mbps), self.seconds);
        Row::new(&self.name, tcp_name(control), &self.columns()[..3], move || {
            network.set(wire)?;
            let send = |meter: &Meter| tcp::send(meter, control);
            let mbps = goodput(seconds, send, |meter| tcp::receive(meter, control))?[0] * 1e3;
            // The share of payload in a packet as large as the MTU allows.
            let share = f64::from(wire.mtu + 14 - TCP_HEADERS) / f64::from(wire.mtu + 14);
            Ok(vec![mbps, mbps / (rate * share), mbps])
        })
    }

    /// A program that uses all planes. `measure` gives its goodput per plane in Gb/s, `share` the payload that full wires
    /// carry, as a share of their rate.
    fn row<'a>(
        &self,
        network: &'a Network,
        name: impl Into<String>,
        share: f64,
        measure: impl Fn(f64) -> Result<Vec<f64>, String> + 'a,
    ) -> Row<'a> {
        let (wire, seconds) = (self.wire, self.seconds);
        let fits = f64::from(self.rate_mbps) * self.planes as f64 * share;
        Row::new(&self.name, name, &self.columns(), move || {
            network.set(wire)?;
            let each: Vec<f64> = measure(seconds)?.iter().map(|gbps| gbps * 1e3).collect();
            let sum: f64 = each.iter().sum();
            Ok([vec![sum, sum / fits], each].concat())
        })
    }

    fn ours<'a>(&self, network: &'a Network, name: impl Into<String>, ours: Ours) -> Row<'a> {
        self.row(network, name, ours.payload_share(), move |seconds| ours.goodput(seconds))
    }

    fn noq<'a>(&self, network: &'a Network) -> Result<Row<'a>, String> {
        let noq = Multipath::new(self.planes, self.wire.mtu)?;
        Ok(self.row(network, NOQ, noq.payload_share(), move |seconds| noq.goodput(seconds)))
    }
}

fn tcp_name(control: &str) -> String {
    format!("TCP {control}, one plane")
}

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options.seconds, Vec::new());
    for planes in 2..=PLANES {
        let name = format!("{planes} planes of {RATE_MBPS} Mb/s");
        let table = Table { name, wire: Wire::shaped(MTU, RATE_MBPS), planes, rate_mbps: RATE_MBPS, seconds };
        let against = |row| tcp::controls().into_iter().map(tcp_name).fold(row, Row::against);
        rows.extend(tcp::controls().into_iter().map(|control| table.tcp(network, control)));
        for profile in ["uec", "mrc"] {
            let ours = Ours::new(profile, PAYLOAD)?.over(planes, RATE_MBPS, options.base_rtt);
            rows.push(against(table.ours(network, profile, ours)));
        }
        rows.push(against(table.noq(network)?));
    }
    for mtu in FAST_MTUS {
        let name = format!("two planes of {} Gb/s, MTU {mtu}", FAST_MBPS / 1_000);
        let wire = Wire::shaped_fast(mtu, FAST_MBPS);
        let table = Table { name, wire, planes: 2, rate_mbps: FAST_MBPS, seconds };
        rows.push(table.tcp(network, "cubic"));
        for (profile, protection) in ["uec", "mrc"].into_iter().flat_map(|profile| PROTECTIONS.map(|p| (profile, p))) {
            let ours = Ours::fitting(profile, protection, mtu)?.over(2, FAST_MBPS, FAST_BASE_RTT);
            let row = table.ours(network, format!("{profile}, {}", name_of(protection)), ours);
            rows.push(row.against(tcp_name("cubic")));
        }
        rows.push(table.noq(network)?.against(tcp_name("cubic")));
    }
    Ok(Contest { section: "planes", rows })
}
