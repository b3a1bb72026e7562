//! The delay line: a long link between two network devices, made in user space. Kernels of virtual machines and
//! containers often lack `netem`, and this line draws losses as the simulator does ([`strandway_fabric::loss`]).
//!
//! Frames that arrive at one device and are not lost leave at the other device. They are delayed by the link's latency,
//! and pass at the link's rate through a queue with a limited number of bytes. Each direction has a thread.

mod bench;
mod carrier;
mod device;
mod run;

pub use bench::{Benched, bench};
pub use run::{Carrying, End, carry};

use serde::{Deserialize, Serialize};
use strandway_fabric::loss::{Burst, LossProcess};
use strandway_fabric::quantity;
use strandway_proto::Span;

/// A long link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name, such as `site0->site1`: direction 0 is from the first device to the second one, direction 1 is back.
    pub name: String,
    /// The time of a frame between leaving the queue and arriving, in nanoseconds.
    pub latency_ns: u64,
    /// Bits per second; `None` for no limit and no queue.
    pub rate: Option<u64>,
    /// The most bytes that wait at its beginning, including the frame that is leaving.
    pub queue: u64,
    /// The random losses of each direction.
    pub loss: [Losses; 2],
    /// Frames that are overtaken.
    pub reorder: Option<Reorder>,
    /// The seed of its random numbers.
    pub seed: u64,
}

/// The random losses of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// The share of frames that are lost.
    pub share: f64,
    /// The average number of frames lost in a row, if bursts are not given as a time.
    pub burst_packets: f64,
    /// The average length of a burst, in nanoseconds, if that is given.
    pub burst_ns: Option<u64>,
}

impl Losses {
    /// This share of frames, in bursts of this length.
    pub fn new(share: f64, burst: Burst) -> Losses {
        match burst {
            Burst::Packets(burst_packets) => Losses { share, burst_packets, burst_ns: None },
            Burst::Time(length) => Losses { share, burst_packets: 1.0, burst_ns: Some(length.0 / 1000) },
        }
    }

    fn process(self) -> LossProcess {
        let burst = match self.burst_ns {
            Some(length) => Burst::Time(Span(length * 1000)),
            None => Burst::Packets(self.burst_packets),
        };
        LossProcess::new(self.share, burst)
    }
}

/// Frames that are overtaken: a share of them takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reorder {
    /// The share, in millionths.
    pub ppm: u32,
    /// Their additional delay, in nanoseconds.
    pub by_ns: u64,
}

impl Reorder {
    /// Parses `SHARE:TIME`, such as `1%:200us`.
    ///
    /// # Errors
    /// With the error, and a remedy.
    pub fn parse(text: &str) -> Result<Reorder, (String, String)> {
        let remedy = || "write a share and a time, say 1%:200us".to_string();
        let (share, by) = text.split_once(':').ok_or_else(|| ("is no share and time".to_string(), remedy()))?;
        let share = quantity::ratio(share).map_err(|e| (e.what, e.remedy))?;
        let by = quantity::span(by).map_err(|e| (e.what, e.remedy))?;
        if !(0.0..=1.0).contains(&share) {
            return Err((format!("{share} is no share"), remedy()));
        }
        Ok(Reorder { ppm: (share * 1e6).round() as u32, by_ns: by.0 / 1000 })
    }
}

impl Line {
    fn latency(&self) -> Span {
        Span(self.latency_ns * 1000)
    }
}

/// The counters of one direction of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Frames that came in.
    pub taken: u64,
    /// Frames that left at the other end.
    pub delivered: u64,
    /// Bytes of those.
    pub delivered_bytes: u64,
    /// Frames that were lost by the link's random losses.
    pub lost: u64,
    /// Frames that did not fit its queue.
    pub dropped: u64,
    /// Frames that were lost without intention: the kernel or this process had no room or no time for them.
    pub failed: u64,
    /// Frames that left more than a tenth of a millisecond late.
    pub tardy: u64,
    /// The latest of them, in nanoseconds.
    pub tardiest_ns: u64,
    /// Processor time of its thread, in nanoseconds.
    pub cpu_ns: u64,
}
