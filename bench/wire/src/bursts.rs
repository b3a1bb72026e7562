//! The cost of changing the path every few packets: one system call sends to one address from one port.

use crate::Options;
use crate::contest::{Column, Contest, Row};
use crate::network::{Network, Wire};
use crate::ours::Ours;
use strandway_udp::{Protection, Routes};

/// Payload of a packet, and the MTU that it needs.
const SIZES: [(u32, u32); 2] = [(1_344, 1_500), (4_096, 4_300)];
const PORTS: u16 = 16;
const BURSTS: [u32; 5] = [1, 2, 4, 8, 16];

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options.seconds, Vec::new());
    let name = |burst: u32| format!("{burst} packets per burst");
    for (payload, mtu) in SIZES {
        let table = format!("uec, unprotected, {PORTS} source ports, packets of {payload} B");
        for burst in BURSTS {
            let mut ours = Ours::new("uec", payload)?;
            ours.config.protection = Protection::None;
            ours.config.routes = Routes::SourcePorts(PORTS);
            ours.config.burst = burst * payload;
            let row = Row::new(&table, name(burst), &[Column::new("goodput", "Gb/s")], move || {
                network.set(Wire::plain(mtu))?;
                Ok(vec![ours.goodput(seconds)?.iter().sum()])
            });
            rows.push(row.against(name(BURSTS[BURSTS.len() - 1])));
        }
    }
    Ok(Contest { section: "bursts", rows })
}
