//! Tests of the localiser by synthetic counts: of the simulator's kind, and of real nodes, whose hosts lose bursts.

use super::*;
use strandway_proto::rng::{Random, StreamKind};

/// Links are (kind, plane, a, b): from a host up to its leaf, from leaf to spine, from spine to leaf, down to a host.
type Link = (u8, u8, u32, u32);

const HOSTS: u32 = 16;
const LEAVES: u32 = 4;
const SPINES: u32 = 4;

fn path(from: u32, to: u32, plane: u8, spine: u32) -> Vec<Link> {
    let (a, b) = (from / LEAVES, to / LEAVES);
    match a == b {
        true => vec![(0, plane, from, a), (3, plane, b, to)],
        false => vec![(0, plane, from, a), (1, plane, a, spine), (2, plane, spine, b), (3, plane, b, to)],
    }
}

fn random(seed: u64) -> Random {
    Random::new(seed, StreamKind::Workload, 0)
}

/// The whole run of a simulated fabric of one plane is one interval.
fn simulated(random: &mut Random, packets: u32, gray: Option<(Link, f64, f64)>) -> Vec<PathSample<Link>> {
    let mut all = Vec::new();
    for (from, to, spine) in (0..HOSTS).flat_map(|a| (0..HOSTS).flat_map(move |b| (0..SPINES).map(move |s| (a, b, s))))
    {
        if from / LEAVES == to / LEAVES {
            continue;
        }
        let links = path(from, to, 0, spine);
        let is_gray = gray.is_some_and(|(link, ..)| links.contains(&link));
        let (share, factor) = gray.filter(|_| is_gray).map_or((0.0, 1.0), |(_, share, factor)| (share, factor));
        // Some losses everywhere, as of cosmic rays.
        let lost = (0..packets).filter(|_| random.below(1_000_000) < (share * 1e6) as u32 + 20).count() as u64;
        let rtt = 1e7 * factor * (0.9 + f64::from(random.below(1000)) / 5000.0);
        let sent = packets.into();
        let (source, destination, measured) = (from, to, 20);
        all.push(PathSample {
            interval: 0,
            source,
            destination,
            plane: 0,
            links,
            sent,
            weight: f64::from(packets),
            lost,
            late: 0,
            trimmed: 0,
            measured,
            rtt,
        });
    }
    all
}

#[test]
fn one_lossy_or_slow_link_of_64_is_named_alone() {
    let mut random = random(1);
    for link in [(0, 0, 5, 1), (1, 0, 2, 3), (2, 0, 0, 1), (3, 0, 3, 14)] {
        for (share, factor) in [(0.01, 1.0), (0.0, 8.0)] {
            let found = find(&simulated(&mut random, 400, Some((link, share, factor))), &GraySettings::default());
            assert_eq!(found.len(), 1, "{link:?}: {found:?}");
            assert_eq!(found[0].links, [link]);
            match found[0].symptom {
                Symptom::Loss(found) => assert!((0.005..0.02).contains(&found) && share > 0.0, "{found}"),
                Symptom::Full(share) => panic!("nothing was trimmed: {share}"),
                Symptom::Delay(found) => assert!((6.0..10.0).contains(&found) && factor > 1.0, "{found}"),
            }
        }
    }
}

#[test]
fn an_hour_without_a_fault_names_nobody() {
    let mut random = random(2);
    // A look per second for an hour: few packets per look make chance largest.
    for _ in 0..3_600 {
        assert_eq!(find(&simulated(&mut random, 50, None), &GraySettings::default()), []);
    }
}

#[test]
fn links_that_the_same_paths_cross_are_named_together() {
    let sample = |group: u32, links: &[u32], lost: u64| PathSample {
        interval: 0,
        source: group,
        destination: 100 + group,
        plane: 0,
        links: links.to_vec(),
        sent: 1000,
        weight: 1e3,
        lost,
        late: 0,
        trimmed: 0,
        measured: 0,
        rtt: 0.0,
    };
    // Sixteen pairs cross the links 2 and 3, sixteen others 4 and 5.
    let samples = |here: u64, there: u64| -> Vec<PathSample<u32>> {
        (0..32).map(|g| if g < 16 { sample(g, &[1, 2, 3], here) } else { sample(g, &[1, 4, 5], there) }).collect()
    };
    let settings = GraySettings { doubt: 5.0, ..GraySettings::default() };
    let found = find(&samples(30, 0), &settings);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].links, [2, 3]);
    assert_eq!((found[0].evidence.pairs, found[0].evidence.sent, found[0].evidence.lost), (16, 16_000, 480));
    assert_eq!(find(&samples(0, 0), &settings), []);
    assert_eq!(find(&samples(31, 30), &settings), [], "congestion loses everywhere");
}

/// The paths of a pair of hosts in an interval, each with its packets. A path is lossy with the share of each gray link
/// that it crosses.
fn pair(random: &mut Random, interval: u32, (from, to): (u32, u32), gray: &[(Link, f64)]) -> Vec<PathSample<Link>> {
    let spines = if from / LEAVES == to / LEAVES { 1 } else { SPINES };
    let paths = (0..2).flat_map(|plane| (0..spines).map(move |spine| (plane, spine)));
    let sample = |(plane, spine)| {
        let links = path(from, to, plane, spine);
        // About a packet per path: a real fabric of slow ports has no more in a tenth of a second.
        let sent = u64::from(random.below(3) + if spines == 1 { 4 } else { 0 });
        let kept: f64 = gray.iter().filter(|(link, _)| links.contains(link)).map(|(_, share)| 1.0 - share).product();
        let lost = (0..sent).filter(|_| random.unit() >= kept).count() as u64;
        let rtt = 1e9 * (0.8 + 0.4 * random.unit());
        let (source, destination) = (from, to);
        let weight = 1.0;
        PathSample {
            interval,
            source,
            destination,
            plane,
            links,
            sent,
            weight,
            lost,
            late: 0,
            trimmed: 0,
            measured: sent,
            rtt,
        }
    };
    paths.map(sample).collect()
}

fn pairs() -> Vec<(u32, u32)> {
    (0..HOSTS).flat_map(|from| (0..HOSTS).map(move |to| (from, to))).filter(|(from, to)| from != to).collect()
}

/// A window of ten seconds of all hosts sending to all.
fn ten_seconds(random: &mut Random, gray: &[(Link, f64)]) -> GrayWindow<Link> {
    let mut window = GrayWindow::new(GraySettings::of_nodes(), 100);
    for interval in 1..=100 {
        window.add(pairs().into_iter().flat_map(|ends| pair(random, interval, ends, gray)).collect());
    }
    window
}

fn names(found: &[GrayPart<Link>]) -> Vec<Vec<Link>> {
    let mut names: Vec<Vec<Link>> = found.iter().map(|part| part.links.clone()).collect();
    names.sort();
    names
}

#[test]
fn a_lossy_direction_of_a_cable_between_real_nodes_is_named_alone_within_ten_seconds() {
    for (seed, link) in [(3, (1, 0, 0, 0)), (4, (2, 1, 3, 2)), (5, (0, 1, 7, 1)), (6, (3, 0, 2, 9))] {
        let found = ten_seconds(&mut random(seed), &[(link, 0.01)]).find();
        assert_eq!(names(&found), [vec![link]], "{found:?}");
        let Symptom::Loss(share) = found[0].symptom else { panic!("{found:?}") };
        assert!((0.004..0.03).contains(&share) && found[0].evidence.pairs > 3, "{found:?}");
    }
}

#[test]
fn two_faults_at_once_are_both_named() {
    // A cable in both directions, and a link of the other plane with a much higher loss.
    let gray = [((1, 0, 1, 2), 0.02), ((2, 0, 2, 1), 0.02), ((2, 1, 0, 3), 0.3)];
    let found = ten_seconds(&mut random(7), &gray).find();
    assert_eq!(names(&found), gray.map(|(link, _)| vec![link]), "{found:?}");
}

#[test]
fn a_host_that_loses_on_every_path_blames_no_link_of_the_fabric() {
    let ports = [0, 1].map(|plane| [((0, plane, 6, 1), 0.05), ((3, plane, 1, 6), 0.05)]).concat();
    for seed in 8..11 {
        let found = ten_seconds(&mut random(seed), &ports).find();
        assert_eq!(found, [], "its planes lose alike: the cause is the host");
        let found = ten_seconds(&mut random(seed), &ports[..2]).find();
        assert!(names(&found).into_iter().flatten().all(|link| [0, 3].contains(&link.0)), "{found:?}");
    }
}

#[test]
fn bursts_of_busy_hosts_name_no_link() {
    // Only pairs that lost something matter. A burst at a receiver takes whole trains of some of its senders, in one
    // plane; a burst at a sender takes one train. With odd seeds, the packets are late instead.
    for seed in 0..3_000 {
        let mut random = random(100 + seed);
        let mut samples = Vec::new();
        for interval in 1..=40 {
            let host = random.below(HOSTS);
            let plane = random.below(2) as u8;
            let senders = if random.below(2) == 0 { 1 } else { 1 + random.below(5) };
            for step in 0..senders {
                let ends = ((host + 1 + 3 * step) % HOSTS, host);
                let mut paths = pair(&mut random, interval, ends, &[]);
                let of_plane = paths.iter().filter(|path| path.plane == plane).map(|path| path.sent).sum::<u64>();
                if of_plane == 0 {
                    continue;
                }
                // The train that is lost is one of those that were sent.
                let mut train = u64::from(random.below(of_plane as u32));
                for path in paths.iter_mut().filter(|path| path.plane == plane) {
                    if train < path.sent {
                        *(if seed % 2 == 0 { &mut path.lost } else { &mut path.late }) = 8;
                        path.sent += 8;
                        break;
                    }
                    train -= path.sent;
                }
                samples.extend(paths);
            }
        }
        let found = find(&samples, &GraySettings::of_nodes());
        assert_eq!(found, [], "seed {seed}");
    }
}

#[test]
fn a_slow_link_between_real_nodes_is_named_by_its_round_trips() {
    let slow: Link = (1, 1, 3, 0);
    let mut random = random(12);
    let mut window = GrayWindow::new(GraySettings::of_nodes(), 100);
    for interval in 1..=100 {
        let mut samples: Vec<_> = pairs().into_iter().flat_map(|ends| pair(&mut random, interval, ends, &[])).collect();
        for sample in samples.iter_mut().filter(|sample| sample.links.contains(&slow)) {
            sample.rtt *= 6.0;
        }
        window.add(samples);
    }
    let found = window.find();
    assert_eq!(names(&found), [vec![slow]], "{found:?}");
    assert!(matches!(found[0].symptom, Symptom::Delay(factor) if factor > 4.0), "{found:?}");
    window.clear();
    assert_eq!(window.find(), []);
}

/// An interval of hosts that send eight packets at a time in one plane. Those across the slow cable, if there is one, are late
/// or lost, and their senders prefer the other plane afterwards. No round trip is measured where packets are late.
fn bursts(random: &mut Random, interval: u32, slow: Option<(u32, u8)>) -> Vec<PathSample<Link>> {
    let mut samples = Vec::new();
    for (from, to) in pairs().into_iter().filter(|(from, to)| from / LEAVES != to / LEAVES) {
        let slow = slow.filter(|(host, _)| [from, to].contains(host)).map(|(_, plane)| plane);
        let share = |plane: u8| slow.map_or(0.5, |slow| if plane == slow { 0.2 } else { 0.8 });
        let burst = random.below(3) == 0;
        let chosen = u8::from(random.unit() >= share(0));
        for (plane, spine) in (0..2).flat_map(|plane| (0..SPINES).map(move |spine| (plane, spine))) {
            let sent = if burst && plane == chosen { 2 } else { 0 };
            let suffers = slow == Some(plane) && random.below(4) != 0;
            let (late, lost) = match suffers {
                true if random.below(2) == 0 => (sent, 0),
                true => (0, sent),
                false => (0, 0),
            };
            let measured = u64::from(late + lost == 0 && sent > 0 && random.below(4) == 0);
            samples.push(PathSample {
                interval,
                source: from,
                destination: to,
                plane,
                links: path(from, to, plane, spine),
                sent,
                weight: share(plane),
                lost,
                late,
                trimmed: 0,
                measured,
                rtt: 4e9 * (0.8 + 0.4 * random.unit()),
            });
        }
    }
    samples
}

#[test]
fn a_slow_cable_of_a_host_is_named_by_late_packets_without_long_round_trips() {
    for (seed, slow) in [(20, (5, 0)), (21, (14, 1)), (22, (2, 1))] {
        let mut random = random(seed);
        let mut window = GrayWindow::new(GraySettings::of_nodes(), 200);
        // It becomes slow after ten seconds.
        for interval in 1..=160 {
            window.add(bursts(&mut random, interval, (interval > 100).then_some(slow)));
            assert!(interval != 100 || window.find().is_empty());
        }
        let found = window.find();
        let (host, plane) = slow;
        assert!(!found.is_empty() && found.len() <= 2, "{found:?}");
        for link in names(&found).into_iter().flatten() {
            let ends = if link.0 == 0 { (link.2, link.1) } else { (link.3, link.1) };
            assert!([0, 3].contains(&link.0) && ends == (host, plane), "{found:?}");
        }
        assert!(found[0].evidence.late > 50, "{found:?}");
    }
}
