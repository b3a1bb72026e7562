//! The delay line: a long link between two network devices, made in user space. Kernels of virtual machines and containers often
//! lack `netem`, and this one draws losses as the simulator does ([`strandway_fabric::loss`]).
//!
//! Whatever comes in at one device leaves at the other after the link's latency, at the link's rate, through a queue that holds a
//! limited number of bytes, but for what the link loses. A thread carries each direction.

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
    /// What people call it, such as `site0->site1`: the direction from the first device to the second is 0, the other one is 1.
    pub name: String,
    /// How long a frame is on its way once it has left the queue, in nanoseconds.
    pub latency_ns: u64,
    /// Bits per second; none for as fast as it goes, without a queue.
    pub rate: Option<u64>,
    /// Bytes that wait at its beginning at the most, those of the frame that is leaving among them.
    pub queue: u64,
    /// What each direction loses at random.
    pub loss: [Losses; 2],
    /// Frames that others overtake.
    pub reorder: Option<Reorder>,
    /// Random numbers derive from this.
    pub seed: u64,
}

/// What a direction loses at random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// The share of frames.
    pub share: f64,
    /// How many are lost in a row on average, where bursts are not given as a time.
    pub burst_packets: f64,
    /// How long a burst lasts on average, in nanoseconds, if that is given.
    pub burst_ns: Option<u64>,
}

impl Losses {
    /// This share of frames, in such bursts.
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

/// Frames that others overtake: a share of them takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reorder {
    /// The share, in millionths.
    pub ppm: u32,
    /// By how much they are late, in nanoseconds.
    pub by_ns: u64,
}

impl Reorder {
    /// Parses `SHARE:TIME`, such as `1%:200us`.
    ///
    /// # Errors
    /// With what is wrong, and a remedy.
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

/// What one direction of a line has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Frames that came in.
    pub taken: u64,
    /// Frames that left at the other end.
    pub delivered: u64,
    /// Bytes of those.
    pub delivered_bytes: u64,
    /// Frames that it lost as it should.
    pub lost: u64,
    /// Frames that did not fit its queue.
    pub dropped: u64,
    /// Frames that it should have carried and could not: the kernel or this process had no room or no time for them.
    pub failed: u64,
    /// Frames that left more than a tenth of a millisecond late.
    pub tardy: u64,
    /// The latest of them, in nanoseconds.
    pub tardiest_ns: u64,
    /// Processor time of its thread, in nanoseconds.
    pub cpu_ns: u64,
}
