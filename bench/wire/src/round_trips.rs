//! Round trips of one measurement, and their quantiles.

use crate::network;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most round trips that are kept.
const KEPT: usize = 1 << 20;
/// Round trips that are left out at the beginning.
const WARM_UP: usize = 100;

/// Round trips of one measurement, shared by both sides.
#[derive(Default)]
pub(crate) struct RoundTrips {
    over: AtomicBool,
    micros: Mutex<Vec<f64>>,
}

impl RoundTrips {
    /// Adds a round trip.
    pub(crate) fn add(&self, time: Duration) {
        // One thread adds, and the list is read only after the end.
        if let Ok(mut micros) = self.micros.lock()
            && micros.len() < KEPT
        {
            micros.push(time.as_secs_f64() * 1e6);
        }
    }

    /// Is the measurement over?
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Ends a measurement when dropped, so that the other side ends as well if one side fails.
struct Ending<'a>(&'a RoundTrips);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Median, 99th percentile, and round trips per second.
pub(crate) fn measure(
    seconds: f64,
    ping: impl FnOnce(&RoundTrips) -> Result<(), String> + Send,
    pong: impl FnOnce(&RoundTrips) -> Result<(), String> + Send,
) -> Result<Vec<f64>, String> {
    let trips = &RoundTrips::default();
    let watch = || {
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < seconds && !trips.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
        trips.end();
    };
    let ping = || {
        let _ending = Ending(trips);
        ping(trips)
    };
    let pong = || {
        let _ending = Ending(trips);
        pong(trips)
    };
    network::both(ping, pong, watch)?;
    let micros = trips.micros.lock().map_err(|_| "a thread panicked")?;
    let mut rest = micros.get(WARM_UP..).unwrap_or_default().to_vec();
    rest.sort_by(f64::total_cmp);
    let quantile = |share: f64| rest.get((rest.len().saturating_sub(1) as f64 * share).round() as usize).copied();
    match (quantile(0.5), quantile(0.99)) {
        (Some(p50), Some(p99)) => Ok(vec![p50, p99, rest.len() as f64 / seconds / 1e3]),
        _ => Err("fewer than a hundred round trips".into()),
    }
}
