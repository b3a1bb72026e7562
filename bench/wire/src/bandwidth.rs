//! The goodput of one connection on an unshaped wire.

use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::network::{Network, UDP_HEADERS, Wire};
use crate::ours::{Ours, name_of};
use crate::quic::Identity;
use crate::uet::Uet;
use crate::{Options, baseline, ceiling, libfabric, quic, tcp};
use strandway_udp::Protection;

/// In every row packets are as large as these MTUs allow.
const MTUS: [u32; 3] = [1_500, 4_096, 9_000];
const CEILING: &str = "ceiling";
/// TCP's stream under TLS 1.3, AES-128-GCM, encrypted by rustls: the rival of encrypted rows.
const TLS: &str = "TCP cubic, TLS 1.3";
/// The same as `strandway perf --beside tls --congestion cubic` has it, with the cipher's library of our nodes.
const TLS_OF_PERF: &str = "TCP cubic, TLS 1.3 of perf --beside";
const LIBFABRIC_MESSAGES: usize = 64;
const LIBFABRIC_SIZE: usize = 1 << 20;

/// Compares a row of ours with all rivals. The rival that counts comes first: TLS for rows with protection, the ceiling
/// for those without.
fn against<'a>(row: Row<'a>, protection: Protection, rivals: &[String]) -> Row<'a> {
    let first = if protection == Protection::None { CEILING } else { TLS };
    let others = rivals.iter().filter(|rival| *rival != first);
    others.fold(row.against(first), Row::against)
}

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let columns = [Column::new("goodput", "Gb/s")];
    let (seconds, mut rows) = (options.seconds, Vec::new());
    for mtu in MTUS {
        let table = format!("MTU {mtu}");
        let wire = Wire::plain(mtu);
        rows.push(Row::new(&table, CEILING, &columns, move || {
            network.set(wire)?;
            let send = |meter: &Meter| ceiling::send(meter, mtu - UDP_HEADERS);
            Ok(vec![goodput(seconds, send, ceiling::receive)?[0]])
        }));
        let mut rivals = vec![CEILING.to_string()];
        for control in tcp::controls() {
            let name = format!("TCP {control}");
            rivals.push(name.clone());
            let row = Row::new(&table, name, &columns, move || {
                network.set(wire)?;
                let send = |meter: &Meter| tcp::send(meter, control);
                Ok(vec![goodput(seconds, send, |meter| tcp::receive(meter, control))?[0]])
            });
            rows.push(row.against(CEILING));
        }
        let identity = Identity::new()?;
        let row = Row::new(&table, TLS, &columns, move || {
            network.set(wire)?;
            let send = |meter: &Meter| tcp::send_tls(meter, "cubic", &identity);
            Ok(vec![goodput(seconds, send, |meter| tcp::receive_tls(meter, "cubic", &identity))?[0]])
        });
        rows.push(row.against(CEILING));
        rivals.push(TLS.into());
        let row = Row::new(&table, TLS_OF_PERF, &columns, move || {
            network.set(wire)?;
            Ok(vec![baseline::goodput(seconds, "cubic")?])
        });
        rows.push(row.against(TLS));
        rivals.push(TLS_OF_PERF.into());
        let identity = Identity::new()?;
        let row = Row::new(&table, "quinn", &columns, move || {
            network.set(wire)?;
            let send = |meter: &Meter| quic::send(meter, &identity, mtu);
            Ok(vec![goodput(seconds, send, |meter| quic::receive(meter, &identity, mtu))?[0]])
        });
        rows.push(row.against(CEILING));
        rivals.push("quinn".into());
        if libfabric::is_here(libfabric::PINGPONG) {
            let row = Row::new(&table, "libfabric rxd", &columns, move || {
                network.set(wire)?;
                let (megabytes, _) = libfabric::measure(LIBFABRIC_MESSAGES, LIBFABRIC_SIZE)?;
                Ok(vec![megabytes * 8.0 / 1e3])
            });
            rows.push(row.against(CEILING));
            rivals.push("libfabric rxd".into());
        }
        let each = [
            ("uec", Protection::None),
            ("uec", Protection::Authenticated),
            ("uec", Protection::Encrypted),
            ("mrc", Protection::None),
            ("strack_fast", Protection::None),
            ("rocev2", Protection::None),
        ];
        for (profile, protection) in each {
            let ours = Ours::fitting(profile, protection, mtu)?;
            let row = Row::new(&table, format!("{profile}, {}", name_of(protection)), &columns, move || {
                network.set(wire)?;
                Ok(vec![ours.goodput(seconds)?.iter().sum()])
            });
            rows.push(against(row, protection, &rivals));
        }
        for protection in [Protection::None, Protection::Encrypted] {
            let uet = Uet::fitting(protection, mtu)?;
            let name = format!("uec, {}, UET layout", name_of(protection));
            let row = Row::new(&table, name, &columns, move || {
                network.set(wire)?;
                Ok(vec![uet.goodput(seconds)?])
            });
            rows.push(against(row, protection, &rivals));
        }
    }
    Ok(Contest { section: "bandwidth", rows })
}
