//! The propagation time of light over a distance.

use serde::{Deserialize, Serialize};
use strandway_proto::units::Span;

/// The speed of light that is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// In glass: two thirds of the speed of light in vacuum (299,792,458 m/s).
    Glass,
    /// A round trip of 25 ms for 3,750 km (SDR-RDMA paper, section 2): 300,000 km/s.
    Paper,
}

impl Rule {
    /// Its name in scenarios and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Glass => "glass",
            Rule::Paper => "paper",
        }
    }

    /// One-way time over `metres`.
    pub fn latency(self, metres: u64) -> Span {
        let metres = u128::from(metres);
        Span(match self {
            Rule::Glass => (metres * 1_500_000_000_000 + 149_896_229) / 299_792_458,
            Rule::Paper => (metres * 10_000 + 1) / 3,
        } as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn light_takes_its_time_in_glass_and_on_paper() {
        assert_eq!(Rule::Paper.latency(3_750_000), Span(12_500_000_000));
        // 3,750 km over 199,861.64 km/s.
        assert_eq!(Rule::Glass.latency(3_750_000), Span(18_762_980_355));
        assert_eq!(Rule::Glass.latency(0), Span::ZERO);
    }
}
