//! Finds out whether packets pass between the ranks of a new group, and of which sizes. Each rank asks some others, by
//! the sockets that its process will use. It reports to rank 0, which decides for all.

use super::commands::{Command, Explore, Found, Way};
use super::offer::one_line;
use super::record::{Record, lines};
use super::{PAYLOAD_MAX, Process};
use crate::error::GroupError;
use std::sync::mpsc;
use std::time::Duration;
use strandway_udp::address::shown;
use strandway_udp::{Config, USUAL_PACKETS};

/// A process counts as unreachable if it has not answered within this time and four round trips: ours.
const LIMIT: Duration = Duration::from_secs(5);
/// A way that takes some packets has this time and four round trips to show that it takes larger ones: ours.
const SETTLE: Duration = Duration::from_millis(600);
/// The most lines of a report: ours.
const SILENT_MAX: usize = 64;

/// The findings of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The largest packet that passed on every way that works.
    pub(super) mtu: u32,
    /// The rank to which larger packets did not pass.
    pub(super) narrow: Option<u32>,
    /// Ranks that did not answer, and for each whether its own questions have come.
    pub(super) silent: Vec<(u32, bool)>,
}

impl Report {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("strandway path 1\nmtu={}\n", self.mtu);
        if let Some(rank) = self.narrow {
            text.push_str(&format!("narrow={rank}\n"));
        }
        for (rank, heard) in &self.silent {
            text.push_str(&format!("silent={rank} {}\n", u8::from(*heard)));
        }
        text.into_bytes()
    }

    pub(super) fn decode(text: &[u8]) -> Option<Report> {
        let mut report = Report::default();
        for (name, value) in lines(text, "strandway path 1")? {
            match name {
                "mtu" => report.mtu = value.parse().ok()?,
                "narrow" => report.narrow = Some(value.parse().ok()?),
                "silent" if report.silent.len() < SILENT_MAX => {
                    let (rank, heard) = value.split_once(' ')?;
                    report.silent.push((rank.parse().ok()?, heard == "1"));
                }
                _ => {}
            }
        }
        Some(report)
    }

    fn of(found: &[Found], widest: u32) -> Report {
        let mut report = Report { mtu: widest, ..Report::default() };
        for one in found {
            let rank = one.way.rank;
            if let Some(mtu) = one.mtu.filter(|mtu| *mtu < report.mtu) {
                (report.mtu, report.narrow) = (mtu, Some(rank));
            }
            let on_any = |fits: fn(&Found) -> bool| found.iter().any(|other| other.way.rank == rank && fits(other));
            if !on_any(|one| one.mtu.is_some()) && !report.silent.iter().any(|(known, _)| *known == rank) {
                report.silent.push((rank, on_any(|one| one.heard)));
            }
        }
        report.silent.truncate(SILENT_MAX);
        report
    }
}

/// The ranks that a rank asks: those whose distance from it in a ring is a power of two.
fn asked(rank: u32, ranks: u32) -> impl Iterator<Item = u32> {
    let distances = (0..32).map(|bit| 1u64 << bit).take_while(move |distance| *distance < ranks.into());
    distances.map(move |distance| ((u64::from(rank) + distance) % u64::from(ranks)) as u32)
}

/// Do all members have their payload already? Then nothing is left to find out.
pub(super) fn are_settled(members: &[Record]) -> bool {
    members.iter().all(|member| member.settled.is_some())
}

impl Process {
    /// The configuration of a node of this process, without its planes.
    fn settings(&self) -> Result<Config, GroupError> {
        let wire = &self.0.wire;
        let config = Config::new(&wire.secret)?.profile(&wire.profile)?;
        Ok(Config { protection: wire.protection, payload: wire.payload, ..config })
    }

    /// Asks some of the other members.
    pub(super) fn find_paths(&self, members: &[Record], rank: u32, fixed: bool) -> Result<Report, GroupError> {
        let config = self.settings()?;
        // If the payload of one member is fixed already, it is the group's.
        let settled = members.iter().find_map(|member| member.settled);
        let payload = settled.unwrap_or_else(|| config.payload.min(self.0.fits));
        let widest = payload + config.overhead();
        let mut mtus = vec![widest];
        let mut narrower = USUAL_PACKETS.into_iter().rev().filter(|mtu| *mtu < widest);
        match settled.is_some() || fixed {
            // The smallest size shows whether anything passes.
            true => mtus.extend(narrower.next_back()),
            false => mtus.extend(narrower),
        }
        let ways = asked(rank, members.len() as u32).flat_map(|other| {
            let planes = members[other as usize].addresses.iter().enumerate();
            planes.map(move |(plane, to)| Way { rank: other, plane, to: *to })
        });
        let trips = Duration::from_nanos(self.0.base_rtt.0 / 1_000) * 4;
        let (answer, found) = mpsc::channel();
        let limit = LIMIT + trips;
        let (ways, settle) = (ways.collect(), SETTLE + trips);
        self.submit(Command::Explore(Explore { ways, mtus, settle, limit, answer }));
        let found = found
            .recv_timeout(2 * limit)
            .map_err(|_| GroupError::Config("the process on the wire has ended, or had no turn for 10 s".into()))?;
        Ok(Report::of(&found, widest))
    }

    /// Takes the payload of the group, once.
    pub(super) fn settle(&self, payload: u32) -> Result<(), GroupError> {
        if let Some(settled) = self.settled() {
            return if settled == payload {
                Ok(())
            } else {
                Err(GroupError::Config(format!(
                    "packets have {settled} bytes of payload in earlier groups of this process, {payload} in this one: \
                     give the group a process of its own (`meet_apart`)"
                )))
            };
        }
        let (answer, outcome) = mpsc::channel();
        self.submit(Command::Payload(payload, answer));
        outcome.recv_timeout(LIMIT).map_err(|_| GroupError::Config("the process on the wire has ended".into()))??;
        self.note_settled(payload);
        Ok(())
    }

    /// Rank 0's decision: the payload of full packets, or the reason why there can be no group.
    pub(super) fn choose(&self, members: &[Record], reports: &[Report], fixed: bool) -> Result<u32, String> {
        if let Some(text) = unreached(members, reports, self.0.ports.as_deref()) {
            return Err(text);
        }
        let config = self.settings().map_err(|error| error.to_string())?;
        let settled = members.iter().find_map(|member| member.settled);
        let wanted = settled.unwrap_or(config.payload) + config.overhead();
        let (rank, report) = (0u32..).zip(reports).min_by_key(|(_, report)| report.mtu).expect("a group has ranks");
        if report.mtu >= wanted || settled.is_none() && !fixed {
            let payload = config.clone().mtu(report.mtu.min(wanted)).map_err(|error| error.to_string())?.payload;
            return Ok(payload.min(settled.or(fixed.then_some(config.payload)).unwrap_or(PAYLOAD_MAX)));
        }
        let other = report.narrow.unwrap_or(rank);
        let host = |rank: u32| members[rank as usize].host.as_str();
        let (one, other) = (host(rank), host(other));
        let why = match settled {
            Some(_) => "that is the size of packets in earlier groups of these processes",
            None => "that is what STRANDWAY_PAYLOAD asks for: lower it, or leave it out, and the size is found",
        };
        Err(format!("packets of {wanted} bytes do not pass between rank {rank} at {one} and {other}; {why}"))
    }
}

/// A text about a rank that another one does not reach, if there is one.
fn unreached(members: &[Record], reports: &[Report], ports: Option<&str>) -> Option<String> {
    let (rank, other, heard) = (0u32..).zip(reports).find_map(|(rank, report)| {
        let &(other, heard) = report.silent.first()?;
        Some((rank, other, heard))
    })?;
    let of = |rank: u32| {
        let member = &members[rank as usize];
        let at: Vec<String> = member.addresses.iter().map(|one| shown(*one).to_string()).collect();
        format!("rank {rank} at {} [{}]", member.host, at.join(", "))
    };
    let back = reports.get(other as usize).and_then(|report| report.silent.iter().find(|(of, _)| *of == rank));
    let which = match (heard, back) {
        (true, _) => {
            format!("packets of rank {other} arrive at rank {rank}, those of rank {rank} do not arrive at rank {other}")
        }
        (_, Some((_, true))) => {
            format!("packets of rank {rank} arrive at rank {other}, those of rank {other} do not arrive at rank {rank}")
        }
        _ => "no packet arrives in either direction".into(),
    };
    let silent: usize = reports.iter().map(|report| report.silent.len()).sum();
    let more = if silent > 2 { format!(" ({silent} such ways in all)") } else { String::new() };
    let ports = match ports {
        Some(ports) => format!("ports {ports}, as STRANDWAY_PORTS says"),
        None => "any port, or set STRANDWAY_PORTS=FIRST-LAST and let those pass".into(),
    };
    Some(one_line(&format!(
        "{} and {} do not reach each other by UDP, in packets of 1,280 bytes and more, within {} s: {which}{more}. Let a \
         firewall pass UDP between them ({ports}); if these are the wrong addresses, set STRANDWAY_IFNAME; `strandway \
         doctor --to HOST` examines a way",
        of(rank),
        of(other),
        LIMIT.as_secs()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_ask_those_at_powers_of_two_and_nobody_twice() {
        assert_eq!(asked(0, 1).count(), 0);
        assert_eq!(asked(1, 2).collect::<Vec<_>>(), [0]);
        assert_eq!(asked(6, 8).collect::<Vec<_>>(), [7, 0, 2]);
        assert_eq!(asked(u32::from(u16::MAX), 65_536).count(), 16);
    }

    fn found(rank: u32, plane: usize, mtu: Option<u32>, heard: bool) -> Found {
        Found { way: Way { rank, plane, to: "[::1]:9".parse().expect("an address") }, mtu, heard }
    }

    #[test]
    fn a_plane_without_answer_is_no_fault_while_another_one_answers() {
        let all = [found(1, 0, None, false), found(1, 1, Some(1_500), false), found(2, 0, Some(9_000), true)];
        let report = Report::of(&all, 9_000);
        assert_eq!(report, Report { mtu: 1_500, narrow: Some(1), silent: Vec::new() });
        let silent = Report::of(&[found(3, 0, None, false), found(3, 1, None, true)], 9_000);
        assert_eq!(silent, Report { mtu: 9_000, narrow: None, silent: vec![(3, true)] });
        for report in [report, silent] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn ranks_that_do_not_reach_each_other_are_named_with_addresses_and_direction() {
        let member = |host: &str, port: u16| Record {
            id: [0; 16],
            host: host.into(),
            addresses: vec![strandway_udp::address::parse("10.0.0.1", port).expect("an address")],
            settled: None,
            local: None,
        };
        let members = [member("a", 5), member("b", 6)];
        let report = |rank: u32, heard: bool| Report { mtu: 1_500, narrow: None, silent: vec![(rank, heard)] };
        let said = unreached(&members, &[report(1, true), report(0, false)], None).expect("no way");
        assert!(said.starts_with("rank 0 at a [10.0.0.1:5] and rank 1 at b [10.0.0.1:6] do not reach"), "{said}");
        assert!(said.contains("packets of rank 1 arrive at rank 0, those of rank 0 do not"), "{said}");
        let said = unreached(&members, &[report(1, false), report(0, false)], Some("5-9")).expect("no way");
        assert!(said.contains("no packet arrives in either direction") && said.contains("ports 5-9"), "{said}");
        let said = unreached(&members, &[report(1, false), report(0, true)], None).expect("no way");
        assert!(said.contains("packets of rank 0 arrive at rank 1, those of rank 1 do not"), "{said}");
        assert_eq!(unreached(&members, &[Report::default(), Report::default()], None), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, value: String) {
            let _ = Report::decode(&text);
            for line in ["mtu", "narrow", "silent"] {
                let _ = Report::decode(format!("strandway path 1\n{line}={value}\n").as_bytes());
            }
        }
    }
}
