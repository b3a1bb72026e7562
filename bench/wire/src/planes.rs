//! Tests whether several shaped planes together carry their full rate.

use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::multipath::Multipath;
use crate::network::{Network, PLANES, Wire};
use crate::ours::Ours;
use crate::{Options, tcp};

/// Rate of a shaped port.
pub(crate) const RATE_MBPS: u32 = 500;
/// Payload of a packet on shaped planes, and the MTU that it needs.
pub(crate) const PAYLOAD: u32 = 4_096;
pub(crate) const MTU: u32 = 4_300;
/// QUIC with multipath.
pub(crate) const NOQ: &str = "noq, multipath QUIC";
/// Ethernet, IPv6, and TCP with time stamps.
const TCP_HEADERS: u32 = 14 + 40 + 32;

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options.seconds, Vec::new());
    let wire = Wire::shaped(MTU, RATE_MBPS);
    for planes in 2..=PLANES {
        let table = format!("{planes} planes of {RATE_MBPS} Mb/s");
        let mut columns = vec![Column::new("goodput", "Mb/s"), Column::new("of what fits", "share")];
        columns.extend((0..planes).map(|plane| Column::new(format!("plane {plane}"), "Mb/s")));
        let tcp_rows: Vec<String> = tcp::controls().iter().map(|control| format!("TCP {control}, one plane")).collect();
        for (control, name) in tcp::controls().into_iter().zip(&tcp_rows) {
            rows.push(Row::new(&table, name, &columns[..3], move || {
                network.set(wire)?;
                let send = |meter: &Meter| tcp::send(meter, control);
                let mbps = goodput(seconds, send, |meter| tcp::receive(meter, control))?[0] * 1e3;
                // The share of payload in a packet as large as the MTU allows.
                let share = f64::from(MTU + 14 - TCP_HEADERS) / f64::from(MTU + 14);
                Ok(vec![mbps, mbps / (f64::from(RATE_MBPS) * share), mbps])
            }));
        }
        for profile in ["uec", "mrc"] {
            let ours = Ours::new(profile, PAYLOAD)?.over(planes, RATE_MBPS, options.base_rtt);
            let row = Row::new(&table, profile, &columns, move || {
                network.set(wire)?;
                let each: Vec<f64> = ours.goodput(seconds)?.iter().map(|gbps| gbps * 1e3).collect();
                let sum: f64 = each.iter().sum();
                let fits = f64::from(RATE_MBPS) * planes as f64 * ours.payload_share();
                Ok([vec![sum, sum / fits], each].concat())
            });
            rows.push(tcp_rows.iter().fold(row, Row::against));
        }
        let noq = Multipath::new(planes, MTU)?;
        let row = Row::new(&table, NOQ, &columns, move || {
            network.set(wire)?;
            let each: Vec<f64> = noq.goodput(seconds)?.iter().map(|gbps| gbps * 1e3).collect();
            let sum: f64 = each.iter().sum();
            let fits = f64::from(RATE_MBPS) * planes as f64 * noq.payload_share();
            Ok([vec![sum, sum / fits], each].concat())
        });
        rows.push(tcp_rows.iter().fold(row, Row::against));
    }
    Ok(Contest { section: "planes", rows })
}
