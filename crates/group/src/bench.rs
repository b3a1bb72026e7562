//! Measures collectives among the ranks of a team, as nccl-tests does: for each size some warm-up runs, then the
//! counted runs.

use crate::aggregation::{By, InNetwork};
use crate::error::GroupError;
use crate::multicast::What;
use crate::team::Team;
use std::time::Duration;
use strandway_collective::{Algorithm, Collective, Schedule, bandwidth};
use strandway_proto::units::{Bytes, Span};
use strandway_udp::Region;

/// How a collective is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By messages on connections.
    Messages(Algorithm),
    /// By multicast: a broadcast or an all-gather.
    Multicast(What),
    /// By a switch that adds: an all-reduce. See [`Bench::run_by_switch`].
    InNetwork,
}

impl Method {
    /// The collective that it executes.
    pub const fn collective(self) -> Collective {
        match self {
            Method::Messages(algorithm) => algorithm.collective(),
            Method::Multicast(What::Broadcast { .. }) => Collective::Broadcast,
            Method::Multicast(What::AllGather) => Collective::AllGather,
            Method::InNetwork => Collective::AllReduce,
        }
    }

    /// Its algorithm's name.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Messages(algorithm) => algorithm.name(),
            Method::Multicast(_) => "multicast",
            Method::InNetwork => "in-network",
        }
    }
}

/// The settings of a measurement; all ranks must have the same.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// How the collective is executed.
    pub way: Method,
    /// The first size, in bytes as nccl-tests counts them: the whole buffer.
    pub first: u64,
    /// The largest size.
    pub last: u64,
    /// The factor from each size to the next; at least 2.
    pub factor: u64,
    /// Warm-up runs.
    pub warmup: u32,
    /// Counted runs.
    pub runs: u32,
    /// Check the result of one more run, byte by byte.
    pub check: bool,
}

/// The figures of one size at one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The size in bytes.
    pub size: u64,
    /// The mean time of a run.
    pub mean: Duration,
    /// The shortest.
    pub min: Duration,
    /// The median.
    pub p50: Duration,
    /// The longest.
    pub max: Duration,
    /// Size over time, in GB/s.
    pub algorithm_gbs: f64,
    /// The bandwidth that a NIC must have for it, in GB/s, as nccl-tests defines it.
    pub bus_gbs: f64,
    /// Was the result right? `None` if it was not checked.
    pub right: Option<bool>,
    /// Runs, including warm-up, that used a ring because the switch was gone.
    pub by_ring: u32,
}

/// The byte that a rank contributes at a place.
fn contribution(rank: u32, place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (rank as u8).wrapping_mul(29)
}

/// The number that a rank contributes at a place: a multiple of 1/64 from -8 to 8.
fn small(rank: u32, place: usize) -> f32 {
    let mixed = (place as u32).wrapping_mul(2_654_435_761).wrapping_add(rank.wrapping_mul(97)) >> 16;
    (mixed % 1_024) as f32 / 64.0 - 8.0
}

impl Bench {
    /// The sizes, in rising order.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let (last, factor) = (self.last, self.factor.max(2));
        std::iter::successors(Some(self.first.max(1)), move |size| size.checked_mul(factor))
            .take_while(move |size| *size <= last)
    }

    /// Measures; `each` gets the figures of every size. All ranks must call it.
    ///
    /// # Errors
    /// If there is no such schedule for this number of ranks, or a rank dies.
    pub fn run(&self, team: &mut Team, stop: &impl Fn() -> bool, mut each: impl FnMut(&Row)) -> Result<(), GroupError> {
        for size in self.sizes() {
            let row = match self.way {
                Method::Messages(algorithm) => self.messages(team, algorithm, size, stop)?,
                Method::Multicast(what) => self.multicast(team, what, size, stop)?,
                Method::InNetwork => return Err(GroupError::Config("join a switch first, and run by it".into())),
            };
            each(&row);
        }
        Ok(())
    }

    /// Measures all-reduces of 32-bit numbers by a switch; `each` gets the figures of every size. All ranks must call
    /// it. Before each run the rank computes (sleeps) for the time that `compute` gives; the figures include it.
    ///
    /// # Errors
    /// If a rank dies.
    pub fn run_by_switch(
        &self,
        team: &mut Team,
        network: &mut InNetwork,
        stop: &impl Fn() -> bool,
        mut compute: impl FnMut() -> Duration,
        mut each: impl FnMut(&Row),
    ) -> Result<(), GroupError> {
        for size in self.sizes() {
            let length = (size / 4).max(1) as usize;
            let ours: Vec<f32> = (0..length).map(|place| small(team.rank(), place)).collect();
            let mut buffer = ours.clone();
            let (mut times, mut by_ring) = (Vec::new(), 0);
            team.barrier(stop)?;
            for run in 0..self.warmup + self.runs {
                buffer.copy_from_slice(&ours);
                let computing = compute();
                std::thread::sleep(computing);
                let reduced = team.all_reduce(network, &mut buffer, stop)?;
                by_ring += u32::from(reduced.by != By::Switch);
                if run >= self.warmup {
                    times.push(computing + reduced.time);
                }
            }
            // Sums of multiples of 1/64 are exact, both by the switch and by the ring. If the factors of integers are
            // not powers of two, the error is far below 1/128.
            let near = if network.has_exponents() { 1.0 / 256.0 } else { 0.0 };
            let sum = |place: usize| (0..team.ranks()).map(|rank| small(rank, place)).sum::<f32>();
            let right = self.check.then(|| (0..length).all(|place| (buffer[place] - sum(place)).abs() <= near));
            each(&Row { by_ring, ..self.row(team, 4 * length as u64, times, right) });
        }
        team.barrier(stop)
    }

    fn messages(
        &self,
        team: &mut Team,
        algorithm: Algorithm,
        size: u64,
        stop: &impl Fn() -> bool,
    ) -> Result<Row, GroupError> {
        let schedule = Schedule::new(algorithm, team.ranks(), size, 1);
        let schedule = schedule.map_err(|error| GroupError::Config(error.to_string()))?;
        let mut prepared = team.prepare(schedule, stop)?;
        let mut times = Vec::new();
        for run in 0..self.warmup + self.runs {
            let time = team.run(&mut prepared, stop)?;
            if run >= self.warmup {
                times.push(time);
            }
        }
        let mut right = None;
        if self.check {
            // No rank begins before all have fresh numbers; otherwise old sums would be added.
            team.barrier(stop)?;
            team.refill(&prepared)?;
            team.barrier(stop)?;
            team.run(&mut prepared, stop)?;
            right = Some(team.first_wrong(&prepared)?.is_none());
        }
        team.barrier(stop)?;
        team.retire(prepared)?;
        Ok(self.row(team, size, times, right))
    }

    fn multicast(&self, team: &mut Team, what: What, size: u64, stop: &impl Fn() -> bool) -> Result<Row, GroupError> {
        let bytes = size as usize;
        let region = team.node_mut().register(vec![0; bytes]);
        let mut times = Vec::new();
        for run in 0..self.warmup + self.runs {
            let done = team.multicast(what, region, 0..bytes, stop)?;
            if run >= self.warmup {
                times.push(done.closed);
            }
        }
        let mut right = None;
        if self.check {
            self.fill(team, what, region)?;
            team.multicast(what, region, 0..bytes, stop)?;
            right = Some(self.is_right(team, what, region)?);
        }
        team.node_mut().deregister(region)?;
        Ok(self.row(team, size, times, right))
    }

    fn fill(&self, team: &mut Team, what: What, region: Region) -> Result<(), GroupError> {
        let rank = team.rank();
        let mut places = 0..0;
        let bytes = team.node().memory(region)?.len() as u64;
        match what {
            What::Broadcast { root } if root == rank => places = 0..bytes,
            What::Broadcast { .. } => {}
            What::AllGather => {
                let (first, length) = team.layout(what, bytes)?.share(rank);
                places = first..first + length;
            }
        }
        let buffer = team.node_mut().memory_mut(region)?;
        buffer.fill(0xaa);
        places.for_each(|place| buffer[place as usize] = contribution(rank, place));
        Ok(())
    }

    fn is_right(&self, team: &Team, what: What, region: Region) -> Result<bool, GroupError> {
        let buffer = team.node().memory(region)?;
        let layout = team.layout(what, buffer.len() as u64)?;
        let right = |root: u32, (first, length): (u64, u64)| {
            (first..first + length).all(|place| buffer[place as usize] == contribution(root, place))
        };
        Ok(match what {
            What::Broadcast { root } => right(root, layout.share(0)),
            What::AllGather => (0..team.ranks()).all(|rank| right(rank, layout.share(rank))),
        })
    }

    fn row(&self, team: &Team, size: u64, mut times: Vec<Duration>, right: Option<bool>) -> Row {
        times.sort_unstable();
        let mean = times.iter().sum::<Duration>() / times.len().max(1) as u32;
        let at = |place: usize| times.get(place).copied().unwrap_or_default();
        let span = Span(u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000));
        let bandwidth = bandwidth(self.way.collective(), team.ranks(), Bytes(size), span);
        Row {
            size,
            mean,
            min: at(0),
            p50: at(times.len() / 2),
            max: at(times.len().saturating_sub(1)),
            algorithm_gbs: bandwidth.map_or(0.0, |b| b.algorithm),
            bus_gbs: bandwidth.map_or(0.0, |b| b.bus),
            right,
            by_ring: 0,
        }
    }
}
