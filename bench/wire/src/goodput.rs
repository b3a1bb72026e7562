//! Measures arriving bytes: all senders are measured by the same counter, over the same time.

use crate::network;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandway_udp::PLANES_MAX;

/// The time that a transfer runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(200);
/// The longest time until the first byte.
const START: Duration = Duration::from_secs(10);

/// The counters that receiver, sender and measurement share.
#[derive(Default)]
pub(crate) struct Meter {
    planes: [AtomicU64; PLANES_MAX],
    stop: AtomicBool,
}

impl Meter {
    /// Counts payload that has reached the application.
    pub(crate) fn add(&self, bytes: u64) {
        self.planes[0].fetch_add(bytes, Ordering::Release);
    }

    /// Sets the payload that has arrived on each plane so far.
    pub(crate) fn set(&self, planes: &[u64]) {
        for (counter, &bytes) in self.planes.iter().zip(planes) {
            counter.store(bytes, Ordering::Release);
        }
    }

    /// The payload that has arrived on each plane so far.
    pub(crate) fn read(&self) -> [u64; PLANES_MAX] {
        std::array::from_fn(|plane| self.planes[plane].load(Ordering::Acquire))
    }

    /// The payload of all planes.
    pub(crate) fn total(&self) -> u64 {
        self.read().iter().sum()
    }

    /// Is the measurement over?
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the measurement.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Ends a measurement when dropped, so that the other side ends as well if one side fails.
struct Ending<'a>(&'a Meter);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs a transfer: payload per plane that arrived in the middle of it, in Gb/s.
pub(crate) fn goodput(
    seconds: f64,
    sender: impl FnOnce(&Meter) -> Result<(), String> + Send,
    receiver: impl FnOnce(&Meter) -> Result<(), String> + Send,
) -> Result<[f64; PLANES_MAX], String> {
    let meter = &Meter::default();
    let watch = || {
        let _ending = Ending(meter);
        let began = Instant::now();
        while meter.total() == 0 && !meter.is_over() && began.elapsed() < START {
            std::thread::sleep(Duration::from_millis(1));
        }
        rest(meter, WARM_UP);
        let (from, before) = (Instant::now(), meter.read());
        rest(meter, Duration::from_secs_f64(seconds));
        let (elapsed, after, early) = (from.elapsed(), meter.read(), meter.is_over());
        let rate = |plane: usize| (after[plane] - before[plane]) as f64 * 8.0 / elapsed.as_secs_f64() / 1e9;
        (std::array::from_fn(rate), early)
    };
    let side = |what: &str, outcome: Result<(), String>| outcome.map_err(|error| format!("{what}: {error}"));
    let sender = || {
        let _ending = Ending(meter);
        side("sender", sender(meter))
    };
    let receiver = || {
        let _ending = Ending(meter);
        side("receiver", receiver(meter))
    };
    let ((), (), (planes, early)): (_, _, ([f64; PLANES_MAX], bool)) = network::both(sender, receiver, watch)?;
    if early {
        return Err("it ended early".into());
    }
    if planes.iter().sum::<f64>() == 0.0 {
        return Err("nothing arrived".into());
    }
    Ok(planes)
}

/// Sleeps, unless the measurement is over.
fn rest(meter: &Meter, time: Duration) {
    let until = Instant::now() + time;
    while !meter.is_over() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
