//! Gray links of a fabric, from the counts of the nodes that run on it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandway_fabric::gray::{GrayPart, GraySettings, GrayWindow, PathSample};
use strandway_fabric::usid::{Clos, Hop};
use strandway_namespaces::{LinuxError, standing};
use strandway_udp::watch::ask;

/// The intervals that a search looks back, each about a tenth of a second: ours. A link that loses one packet in a hundred
/// is hit often enough within ten seconds.
const INTERVALS: u32 = 200;

/// The share of the newest interval in the packets that could have been lost: ours, so that they are those of the last
/// second. Some senders choose a plane per burst, and have a burst only every few tenths of a second.
const NEWEST: f64 = 0.1;

/// Intervals after which a packet that has not arrived is lost: ours, above a second. A sender that is busy, or whose packets
/// wait in long queues, infers losses that are none.
const SETTLED: usize = 12;

/// Arrivals are compared with the packets sent up to this number of intervals later: ours. Nodes publish their counts at
/// times of their own, and no packet may seem to arrive before it was sent.
const LAG: usize = 2;

/// A path that has carried nothing for this number of intervals is forgotten: ours, about a minute.
const FORGOTTEN: u32 = 600;

/// A search among the nodes of a fabric that never ends. Each look is an interval.
#[derive(Debug)]
pub struct GrayWatch {
    clos: Clos,
    hosts: u32,
    planes: u8,
    window: GrayWindow<Hop>,
    interval: u32,
    /// By place and part: the counts of the last look.
    nodes: BTreeMap<(String, u64), NodeCounts>,
    /// By pair of hosts, its paths.
    pairs: BTreeMap<(u32, u32), BTreeMap<Path, PathState>>,
}

/// A path: its plane and its links.
type Path = (u8, Vec<Hop>);

#[derive(Debug, Default)]
struct NodeCounts {
    /// The number of the publication.
    number: u64,
    /// By peer, connection, plane and entropy value.
    rows: BTreeMap<(u32, u64, u8, u32), Counts>,
}

/// Packets sent, lost and trimmed, round trips measured, their sum in nanoseconds, and packets that arrived from the peer.
type Counts = [u64; 6];

/// The knowledge of one path.
#[derive(Debug, Default)]
struct PathState {
    /// The packets sent in an interval, averaged over the last ones.
    weight: f64,
    /// Arrivals that are not subtracted yet.
    arrived: [u64; LAG],
    /// Packets sent that have not arrived: those under way, and all that were lost.
    missing: i64,
    /// That number at the last loss, or lower if it fell; `None` before the first settled interval.
    level: Option<i64>,
    /// The last intervals, which are not settled yet: the counts, the missing packets after them, and the weight before.
    recent: VecDeque<(Counts, i64, f64)>,
    /// When it carried something last.
    used: u32,
}

/// A path's counts in an interval after which all of its packets have arrived or are lost.
#[derive(Debug)]
struct Settled {
    /// The lost packets are those that never arrived.
    counts: Counts,
    /// Packets that the sender took for lost, and that arrived.
    late: u64,
    /// The packets that could have been lost.
    weight: f64,
}

impl PathState {
    /// Adds an interval's counts. Returns those of the interval that is settled now: the packets that the
    /// sender takes for lost count only if fewer arrived than were sent from then on. If `sees_arrivals` is false, the sender is
    /// believed.
    fn settle(&mut self, counts: Counts, sees_arrivals: bool, interval: u32) -> Option<Settled> {
        if counts.iter().any(|count| *count > 0) {
            self.used = interval;
        }
        self.missing += counts[0] as i64 - self.arrived[0] as i64;
        self.arrived.rotate_left(1);
        self.arrived[LAG - 1] = counts[5];
        self.recent.push_back((counts, self.missing, self.weight));
        self.weight = self.weight * (1.0 - NEWEST) + NEWEST * counts[0] as f64;
        if self.recent.len() <= SETTLED {
            return None;
        }
        let least = self.recent.iter().skip(LAG).map(|(_, missing, _)| *missing).min()?;
        let (mut counts, _, weight) = self.recent.pop_front()?;
        let suspected = counts[1];
        if sees_arrivals {
            let level = self.level.unwrap_or(least);
            counts[1] = suspected.min((least - level).max(0) as u64);
            // Packets that are missing for longer, although the sender suspects no loss, are under way.
            self.level = Some(if counts[1] > 0 { least } else { level.min(least) });
        }
        Some(Settled { counts, late: suspected - counts[1], weight })
    }
}

/// The answers of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrayLook {
    /// Nodes that have answered.
    pub nodes: usize,
    /// Those that had new counts since the look before.
    pub news: usize,
    /// Data packets that these have sent since then.
    pub sent: u64,
    /// Places that did not answer, with the reason.
    pub silent: Vec<String>,
}

impl GrayWatch {
    /// A search on a fabric that is up.
    ///
    /// # Errors
    /// If there is no such fabric.
    pub fn on(name: &str) -> Result<GrayWatch, LinuxError> {
        let fabric = standing(name)?.0;
        Ok(GrayWatch::new(fabric.clos(), u32::from(fabric.hosts), fabric.planes))
    }

    fn new(clos: Clos, hosts: u32, planes: u8) -> GrayWatch {
        let window = GrayWindow::new(GraySettings::of_nodes(), INTERVALS);
        GrayWatch { clos, hosts, planes, window, interval: 0, nodes: BTreeMap::new(), pairs: BTreeMap::new() }
    }

    /// Asks the processes at these places for the counts of their nodes, and adds the differences to the window.
    pub fn update(&mut self, places: &[String]) -> GrayLook {
        let mut look = GrayLook::default();
        let answers = places.iter().filter_map(|place| match ask(place, "/paths").and_then(|text| read(&text)) {
            Ok(answer) => Some((place.clone(), answer)),
            Err(why) => {
                look.silent.push(format!("{place}: {why}"));
                None
            }
        });
        let answers = answers.collect::<Vec<_>>();
        self.add(answers, &mut look);
        look
    }

    /// Adds an interval.
    fn add(&mut self, answers: Vec<(String, Vec<NodeAnswer>)>, look: &mut GrayLook) {
        self.interval += 1;
        let mut grown: BTreeMap<(u32, u32), BTreeMap<Path, Counts>> = BTreeMap::new();
        let all =
            answers.into_iter().flat_map(|(place, nodes)| nodes.into_iter().map(move |node| (place.clone(), node)));
        let (mut kept, mut seen) = (BTreeMap::new(), BTreeSet::new());
        for (place, NodeAnswer { part, number, host, rows }) in all {
            look.nodes += 1;
            seen.insert(host);
            let key = (place, part);
            let before = self.nodes.remove(&key);
            if let Some(before) = before.as_ref().filter(|before| before.number < number) {
                look.news += 1;
                self.difference(host, before, &rows, &mut grown);
            }
            let now = match before {
                Some(before) if before.number >= number => before,
                _ => NodeCounts { number, rows },
            };
            kept.insert(key, now);
        }
        // Of nodes that have gone, nothing is remembered.
        self.nodes = kept;
        look.sent = grown.values().flat_map(BTreeMap::values).map(|counts| counts[0]).sum();
        let samples = self.samples(&grown, &seen);
        self.window.add(samples);
    }

    /// Adds the growth of a node's counts: those of its own packets to the paths from it, and arrivals to the paths to it.
    fn difference(
        &self,
        host: u32,
        before: &NodeCounts,
        rows: &BTreeMap<(u32, u64, u8, u32), Counts>,
        grown: &mut BTreeMap<(u32, u32), BTreeMap<Path, Counts>>,
    ) {
        for (row, now) in rows {
            let then = before.rows.get(row).copied().unwrap_or_default();
            let (peer, _, plane, entropy) = *row;
            if *now == then || host >= self.hosts || peer >= self.hosts || host == peer || plane >= self.planes {
                continue;
            }
            let mut add = |from, to, counts: std::ops::Range<usize>| {
                // A cable that suffers in both directions is found sooner as one part.
                let hops = self.clos.hops(from, to, &self.clos.way(plane, from, to, entropy));
                let path = (plane, hops.iter().copied().chain(hops.iter().map(Hop::both)).collect());
                let sum = grown.entry((from, to)).or_default().entry(path).or_default();
                counts.for_each(|at| sum[at] += now[at].saturating_sub(then[at]));
            };
            if now[0] > 0 {
                add(host, peer, 0..5);
            }
            if now[5] > 0 {
                add(peer, host, 5..6);
            }
        }
    }

    /// The samples of the interval that is settled now. `seen`: the hosts whose nodes report arrivals.
    fn samples(
        &mut self,
        grown: &BTreeMap<(u32, u32), BTreeMap<Path, Counts>>,
        seen: &BTreeSet<u32>,
    ) -> Vec<PathSample<Hop>> {
        for (pair, paths) in grown {
            let known = self.pairs.entry(*pair).or_default();
            for path in paths.keys() {
                known.entry(path.clone()).or_default();
            }
        }
        let (mut samples, interval) = (Vec::new(), self.interval);
        for ((source, destination), paths) in &mut self.pairs {
            let news = grown.get(&(*source, *destination));
            let first = samples.len();
            for (path, state) in paths.iter_mut() {
                let counts = news.and_then(|news| news.get(path)).copied().unwrap_or_default();
                let settled = state.settle(counts, seen.contains(destination), interval);
                let Some(Settled { counts: [sent, lost, trimmed, measured, rtts, _], late, weight }) = settled else {
                    continue;
                };
                samples.push(PathSample {
                    interval,
                    source: *source,
                    destination: *destination,
                    plane: path.0,
                    links: path.1.clone(),
                    sent,
                    weight,
                    lost,
                    late,
                    trimmed,
                    measured,
                    rtt: rtts as f64 * 1e3 / measured.max(1) as f64,
                });
            }
            // A path that was little used may still have lost something: a part of the weight is the same for all.
            let even = samples[first..].iter().map(|sample| sample.weight).sum::<f64>() / 4.0;
            let count = (samples.len() - first).max(1) as f64;
            samples[first..].iter_mut().for_each(|sample| sample.weight += even / count);
            paths.retain(|_, state| state.used + FORGOTTEN > interval);
        }
        self.pairs.retain(|_, paths| !paths.is_empty());
        samples
    }

    /// The gray links that explain the counts of the last twenty seconds.
    pub fn find(&self) -> Vec<GrayPart<Hop>> {
        self.window.find()
    }
}

/// A node's counts.
struct NodeAnswer {
    part: u64,
    number: u64,
    host: u32,
    rows: BTreeMap<(u32, u64, u8, u32), Counts>,
}

/// Reads the answer to `GET /paths`.
fn read(text: &str) -> Result<Vec<NodeAnswer>, String> {
    let all: Value = serde_json::from_str(text).map_err(|e| format!("its answer is no list of paths: {e}"))?;
    let nodes = all["nodes"].as_array().ok_or("its answer has no list `nodes`")?;
    let short = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let row = |row: &Value| {
        let at = |place: usize| row.get(place);
        let key = (short(at(0)?)?, at(1)?.as_u64()?, u8::try_from(at(2)?.as_u64()?).ok()?, short(at(3)?)?);
        let mut counts = Counts::default();
        for (place, count) in (4..).zip(&mut counts) {
            *count = at(place)?.as_u64()?;
        }
        Some((key, counts))
    };
    let node = |node: &Value| {
        let rows = node["paths"].as_array()?.iter().map(row).collect::<Option<_>>()?;
        Some(NodeAnswer {
            part: node["part"].as_u64()?,
            number: node["number"].as_u64()?,
            host: short(&node["host"])?,
            rows,
        })
    };
    nodes.iter().map(node).collect::<Option<_>>().ok_or_else(|| "a node in its answer is incomplete".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of host 0, whose packets to host 2 have these counts on the paths of plane 0.
    fn answer(number: u64, counts: [[u64; 2]; 2]) -> String {
        let row = |entropy: usize| format!("[2,7,0,{entropy},{},{},0,0,0,0]", counts[entropy][0], counts[entropy][1]);
        let node = format!("{{\"part\":1,\"number\":{number},\"host\":0,\"paths\":[{},{}]}}", row(0), row(1));
        format!("{{\"format\":1,\"nodes\":[{node}]}}")
    }

    #[test]
    fn differences_between_looks_are_samples_with_the_weights_of_earlier_ones() {
        let mut watch = GrayWatch::new(Clos::new(2, 2).expect("fits"), 4, 2);
        let mut step = |number, counts| {
            let mut look = GrayLook::default();
            watch.add(vec![("a".into(), read(&answer(number, counts)).expect("right"))], &mut look);
            (look.nodes, look.news, look.sent)
        };
        assert_eq!(step(1, [[100, 5], [100, 5]]), (1, 0, 0), "the first look knows no earlier counts");
        assert_eq!(step(2, [[110, 5], [120, 6]]), (1, 1, 30));
        assert_eq!(step(2, [[110, 5], [120, 6]]), (1, 0, 0), "nothing is new");
        assert_eq!(step(3, [[110, 5], [120, 6]]), (1, 1, 0));
        assert_eq!(step(4, [[0, 0], [1, 0]]), (1, 1, 0), "a connection that began anew");
        assert_eq!(watch.pairs[&(0, 2)].len(), 2);
        assert_eq!(watch.find(), []);
    }

    #[test]
    fn a_loss_counts_once_and_only_if_the_packet_never_arrives() {
        let mut path = PathState::default();
        let mut lost = Vec::new();
        for interval in 0..60 {
            // Ten packets per interval, of which two are under way at its end. The sender suspects a loss three times; only
            // the second time, one is missing afterwards.
            let arrived = match interval {
                0 => 8,
                19 => 9,
                _ => 10,
            };
            let suspected = u64::from([10, 20, 25].contains(&interval));
            let settled = path.settle([10, suspected, 0, 0, 0, arrived], true, interval);
            lost.extend(settled.map(|settled| (settled.counts[1], settled.late)));
        }
        assert_eq!((lost.len(), lost[20]), (60 - SETTLED, (1, 0)), "{lost:?}");
        let sums = lost.iter().fold((0, 0), |sums, (lost, late)| (sums.0 + lost, sums.1 + late));
        assert_eq!(sums, (1, 2), "the others were late: {lost:?}");
        let mut unseen = PathState::default();
        let settled: Vec<_> = (0..20).filter_map(|at| unseen.settle([10, 3, 0, 0, 0, 0], false, at)).collect();
        assert_eq!(settled[0].counts[1], 3, "nobody counts arrivals, so the sender is believed");
    }

    #[test]
    fn odd_answers_are_refused_and_odd_numbers_change_nothing() {
        for (odd, said) in [("", "no list of paths"), ("{}", "`nodes`"), ("{\"nodes\":[{\"part\":1}]}", "incomplete")] {
            assert!(read(odd).err().is_some_and(|why| why.contains(said)), "{odd}");
        }
        let mut watch = GrayWatch::new(Clos::new(2, 2).expect("fits"), 4, 2);
        for number in 1..4_u64 {
            let rows = format!(
                "[[4,1,0,0,{number},9,0,0,0,1],[2,1,9,0,{number},9,0,0,0,1],[4294967295,1,0,0,{number},9,0,0,0,1]]"
            );
            let text = format!("{{\"nodes\":[{{\"part\":1,\"number\":{number},\"host\":0,\"paths\":{rows}}}]}}");
            let mut look = GrayLook::default();
            watch.add(vec![("a".into(), read(&text).expect("numbers"))], &mut look);
            assert_eq!(look.sent, 0, "no such hosts and planes");
        }
    }
}
