//! Algorithm and bus bandwidth as nccl-tests defines them (its `doc/PERFORMANCE.md`).
//!
//! `S` is what nccl-tests prints as the size of an operation:
//!
//! | collective | `S` | bus bandwidth |
//! |---|---|---|
//! | all-reduce | a rank's buffer | `S / t * 2 (n - 1) / n` |
//! | reduce-scatter | a rank's send buffer: n times what it ends with | `S / t * (n - 1) / n` |
//! | all-gather | a rank's receive buffer: n times what it begins with | `S / t * (n - 1) / n` |
//! | broadcast, send and receive | the buffer | `S / t` |
//! | all-to-all | a rank's send buffer: n blocks, its own included | `S / t * (n - 1) / n` |
//!
//! An algorithm that uses the bandwidth of an ideal fabric fully has a bus bandwidth equal to the payload rate of a
//! NIC, for every `n`.

use crate::schedule::Collective;
use strandway_proto::units::{Bytes, Span};

/// Both bandwidths in GB/s: 10^9 bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// `S / t`.
    pub algorithm: f64,
    /// The rate that the hardware's bottleneck reaches: independent of the number of ranks for an optimal algorithm.
    pub bus: f64,
}

/// The bandwidths of a collective of `size` (`S` above) among `ranks` that took `time`. `None` if `time` or `ranks` is
/// zero.
pub fn bandwidth(collective: Collective, ranks: u32, size: Bytes, time: Span) -> Option<Bandwidth> {
    if time == Span::ZERO || ranks == 0 {
        return None;
    }
    let n = f64::from(ranks);
    let algorithm = size.0 as f64 * 1e3 / time.0 as f64;
    let factor = match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::Broadcast | Collective::Reduce | Collective::SendReceive => 1.0,
        Collective::ReduceScatter
        | Collective::AllGather
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter => (n - 1.0) / n,
    };
    Some(Bandwidth { algorithm, bus: algorithm * factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_bandwidth_is_that_of_the_nic_whatever_the_ranks() {
        // 50 GB/s: 1 GB takes 20 ms.
        for n in [2, 8, 1000] {
            let time = |steps: u64| Span(steps * 20_000_000_000 / u64::from(n));
            let near = |c: Collective, steps: u64| {
                let bus = bandwidth(c, n, Bytes(1_000_000_000), time(steps)).map_or(0.0, |b| b.bus);
                assert!((bus - 50.0).abs() < 1e-6, "{c:?} {n}: {bus}");
            };
            near(Collective::AllReduce, 2 * u64::from(n - 1));
            near(Collective::ReduceScatter, u64::from(n - 1));
            near(Collective::AllGather, u64::from(n - 1));
            near(Collective::AllToAll, u64::from(n - 1));
        }
        assert_eq!(bandwidth(Collective::AllReduce, 4, Bytes(1), Span::ZERO), None);
    }
}
