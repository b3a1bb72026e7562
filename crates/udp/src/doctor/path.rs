//! Examines the path to another host, which listens ([`Listener`]): does UDP pass each way, how large packets may be,
//! what becomes of ECN bits and DSCP, and how much is lost, late and slow. UDP only, and no key: see [`Listener`].

mod judge;
mod listener;
mod message;
mod probe_socket;
mod sizes;

pub use listener::{Heard, Listener};

use super::Finding;
use crate::address::{is_ipv4, local_for, shown};
use crate::error::Error;
use crate::interfaces::mtu_of;
use message::{Counts, HEAD, Request, Wish};
use probe_socket::{Heard as Answered, Opened, ProbeSocket};
use std::net::{SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

/// The port of a listener; from the dynamic range, ours.
pub const PORT: u16 = 47_933;

/// The buffers of sockets: a few thousand packets.
const BUFFER: usize = 8 << 20;
/// IP and UDP headers of the two families.
const HEADERS: [usize; 2] = [28, 48];
/// The packets that every path of the family must carry (RFC 791, RFC 8200).
const LEAST: [usize; 2] = [576, 1_280];
/// The largest datagram that is tried: loopback's MTU is more than UDP carries.
const LARGEST: usize = 65_000;
/// Datagrams of a train that measures loss, order and round trips, and the time between two.
const TRAIN: u32 = 500;
const SPACING: Duration = Duration::from_millis(1);
/// The bytes of one.
const TRAIN_BYTES: usize = 512;
/// How long the rate is measured.
const RATE: Duration = Duration::from_secs(1);
/// The most datagrams under way while the rate is measured, and the fewest.
const WINDOW_MAX: f64 = 4_096.0;
const WINDOW_MIN: f64 = 16.0;
/// Datagrams of each class, since some may be lost.
const COPIES: u32 = 4;

/// The classes that are tried: ECN's four, and those DSCPs that fabrics tell apart.
const CLASSES: [u8; 7] = [0, 1, 2, 3, 10 << 2, 46 << 2, 48 << 2];

/// The examination of the path to one address.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// The listener.
    pub peer: SocketAddr,
    /// Our address on this path, if there is a route.
    pub local: Option<SocketAddr>,
    /// Does UDP pass both ways?
    pub open: bool,
    /// One finding per check.
    pub findings: Vec<Finding>,
}

/// The larger of two round trips, and time for the hosts.
fn answer_timeout(rtt: Duration) -> Duration {
    (rtt * 3 + Duration::from_millis(40)).min(Duration::from_millis(600))
}

/// Examines the path to a listener. It takes five seconds and forty round trips at most, and two seconds if nothing
/// comes back. `stop` ends it early, with the findings so far.
///
/// # Errors
/// If no socket can be opened.
pub fn examine_path(peer: SocketAddrV6, stop: &dyn Fn() -> bool) -> Result<PathReport, Error> {
    let mut report = PathReport { peer: shown(peer), local: None, open: false, findings: Vec::new() };
    let local = match local_for(peer) {
        Ok(local) => local,
        Err(error) => {
            report.findings.push(judge::no_route(&report.peer, &error));
            return Ok(report);
        }
    };
    report.local = Some(shown(local));
    let mut line = ProbeSocket::open(peer)?;
    let rtt = match line.greet(stop)? {
        Opened::Answered(rtt) => rtt,
        Opened::Closed(why) => {
            report.findings.push(judge::closed(&report.peer, &why));
            return Ok(report);
        }
    };
    report.open = true;
    let ip = usize::from(!is_ipv4(*peer.ip()));
    let headers = HEADERS[ip];
    let facts = PathFacts { headers, least: LEAST[ip], mtu: mtu_of(*local.ip()).map(|mtu| mtu as usize), rtt };
    let findings = &mut report.findings;
    findings.push(judge::both_ways(rtt));
    type Check = fn(&mut ProbeSocket, &PathFacts, &mut Vec<Finding>) -> Result<(), Error>;
    let checks: [Check; 5] = [other_ports, marks, packets, train, rate];
    for check in checks {
        if stop() {
            break;
        }
        check(&mut line, &facts, findings)?;
        if line.is_refused() {
            findings.push(judge::ended(&report.peer));
            break;
        }
    }
    Ok(report)
}

/// The known facts of a path.
struct PathFacts {
    headers: usize,
    least: usize,
    /// The MTU of our interface.
    mtu: Option<usize>,
    rtt: Duration,
}

/// Do datagrams between other ports pass, without a request before them?
fn other_ports(line: &mut ProbeSocket, facts: &PathFacts, findings: &mut Vec<Finding>) -> Result<(), Error> {
    let (there, back) = line.other_ports(answer_timeout(facts.rtt))?;
    findings.extend(judge::other_ports(there, back));
    Ok(())
}

/// Sends datagrams of each class, and judges the classes with which they and their answers arrive.
fn marks(line: &mut ProbeSocket, facts: &PathFacts, findings: &mut Vec<Finding>) -> Result<(), Error> {
    line.next_train();
    for _ in 0..COPIES {
        for (number, &class) in (0..).zip(&CLASSES) {
            let request = Request { number, class, ..line.request(Wish::Echo) };
            line.send(&request, HEAD, class);
        }
    }
    let mut seen = [[None; 2]; CLASSES.len()];
    let wanted = COPIES as usize * CLASSES.len();
    let mut came = 0;
    line.receive(answer_timeout(facts.rtt), |answered| {
        if let Some(seen) = seen.get_mut(answered.answer.number as usize) {
            *seen = [Some(answered.answer.class), Some(answered.class)];
        }
        came += 1;
        came < wanted
    })?;
    let counts = line.report(facts.rtt)?.unwrap_or_default();
    findings.extend(judge::marks(&CLASSES, &seen, counts.seen));
    Ok(())
}

/// Looks for the largest packets each way.
fn packets(line: &mut ProbeSocket, facts: &PathFacts, findings: &mut Vec<Finding>) -> Result<(), Error> {
    let most = facts.mtu.unwrap_or(1_500).min(LARGEST + facts.headers);
    let there = sizes::search(line, sizes::Direction::There, most, facts)?;
    let back = sizes::search(line, sizes::Direction::Back, there.largest, facts)?;
    findings.push(judge::packets("packets there", &there, facts.least));
    findings.push(judge::packets("packets back", &back, facts.least));
    line.largest = there.largest.min(back.largest);
    Ok(())
}

/// A train of datagrams at a leisurely pace: losses, order and round trips.
fn train(line: &mut ProbeSocket, facts: &PathFacts, findings: &mut Vec<Finding>) -> Result<(), Error> {
    line.next_train();
    let (mut heard, mut rtts, mut late, mut last) = (0_u32, Vec::new(), 0_u32, 0_u32);
    let mut sent: Vec<Instant> = Vec::with_capacity(TRAIN as usize);
    let bytes = TRAIN_BYTES.min(line.largest.saturating_sub(facts.headers)).max(HEAD);
    let began = Instant::now();
    for number in 0..TRAIN {
        let request = Request { number, length: bytes as u16, ..line.request(Wish::Echo) };
        sent.push(Instant::now());
        line.send(&request, bytes, 0);
        let end = number + 1 == TRAIN;
        let until = began + SPACING * (number + 1);
        let wait = if end { answer_timeout(facts.rtt) } else { until.saturating_duration_since(Instant::now()) };
        line.receive(wait, |Answered { answer, at, .. }| {
            heard += 1;
            late += u32::from(answer.order < last);
            last = last.max(answer.order);
            if let Some(sent) = sent.get(answer.number as usize) {
                rtts.push(at.duration_since(*sent));
            }
            heard < TRAIN
        })?;
    }
    let counts = line.report(facts.rtt)?;
    rtts.sort_unstable();
    findings.extend(judge::train(TRAIN, heard, late, &rtts, counts.as_ref()));
    Ok(())
}

/// Echoes of the largest packets that pass, for a second. The window of datagrams under way doubles until one is lost.
fn rate(line: &mut ProbeSocket, facts: &PathFacts, findings: &mut Vec<Finding>) -> Result<(), Error> {
    line.next_train();
    let bytes = line.largest.saturating_sub(facts.headers).clamp(HEAD, LARGEST);
    let began = Instant::now();
    let (mut number, mut under_way, mut window, mut growing) = (0_u32, 0_f64, WINDOW_MIN, true);
    let (mut heard, mut next, mut last) = (0_u64, 0_u32, began);
    let silence = facts.rtt * 2 + Duration::from_millis(30);
    let mut progress = began;
    while began.elapsed() < RATE {
        while under_way < window && began.elapsed() < RATE {
            let request = Request { number, length: bytes as u16, ..line.request(Wish::Echo) };
            if !line.send(&request, bytes, 0) {
                break;
            }
            number += 1;
            under_way += 1.0;
        }
        line.receive(Duration::from_millis(5), |answered| {
            let at = answered.answer.number;
            // Those between this answer and the expected one are lost, or late.
            let lost = f64::from(at.saturating_sub(next));
            next = next.max(at.saturating_add(1));
            under_way = (under_way - 1.0 - lost).max(0.0);
            if lost > 0.0 {
                (window, growing) = ((window * 0.7).max(WINDOW_MIN), false);
            } else {
                window = (window + if growing { 1.0 } else { 1.0 / window }).min(WINDOW_MAX);
            }
            heard += 1;
            (last, progress) = (answered.at, answered.at);
            false
        })?;
        if progress.elapsed() > silence {
            (under_way, window, growing, progress) = (0.0, (window / 2.0).max(WINDOW_MIN), false, Instant::now());
        }
    }
    line.receive(answer_timeout(facts.rtt), |answered| {
        heard += 1;
        last = answered.at;
        answered.answer.number + 1 < number
    })?;
    let counts: Counts = line.report(facts.rtt)?.unwrap_or_default();
    let gbps = |packets: f64, seconds: f64| packets * (bytes + facts.headers) as f64 * 8.0 / seconds.max(1e-3) / 1e9;
    let there = gbps(f64::from(counts.received.saturating_sub(1)), f64::from(counts.micros) / 1e6);
    let back = gbps(heard.saturating_sub(1) as f64, last.duration_since(began).as_secs_f64());
    findings.extend(judge::rate(there, back, bytes));
    Ok(())
}
