//! When an erasure code can repair a submessage. Which bytes it takes is not known here.

/// How parity is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Parity chunk r is the XOR of the data chunks j with j mod m = r. SDR-RDMA, section 4.2.1.
    Xor,
    /// Any k of the k + m chunks are enough (Reed-Solomon).
    Mds,
}

/// An erasure code over chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// How parity is made.
    pub kind: CodeKind,
    /// Data chunks of a whole submessage.
    pub k: u32,
    /// Parity chunks of a whole submessage.
    pub m: u32,
    /// Do neighbouring chunks of a group belong to different submessages?
    pub striped: bool,
}

/// Parity chunks of a submessage of `data` chunks, where whole ones have `k` and `m`: its share, but at least two, as far as the
/// code has so many. SDR-RDMA says two things for such submessages; ours.
pub const fn parity_of(data: u32, k: u32, m: u32) -> u32 {
    if m <= 1 || data >= k {
        return m;
    }
    let share = (data * m).div_ceil(k);
    let enough = if share < 2 { 2 } else { share };
    if enough < m { enough } else { m }
}

impl Code {
    /// Can a submessage be repaired, of `data` data chunks and `parity` parity chunks? `has_data` and `has_parity` tell which are
    /// there.
    pub fn repairs(
        &self,
        data: u32,
        parity: u32,
        has_data: impl Fn(u32) -> bool,
        has_parity: impl Fn(u32) -> bool,
    ) -> bool {
        let missing = (0..data).filter(|&j| !has_data(j)).count() as u32;
        match self.kind {
            _ if missing == 0 => true,
            CodeKind::Mds => missing <= (0..parity).filter(|&r| has_parity(r)).count() as u32,
            CodeKind::Xor => (0..parity).all(|r| {
                let lost = (r..data).step_by(parity as usize).filter(|&j| !has_data(j)).count();
                lost == 0 || lost == 1 && has_parity(r)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_submessage_keeps_its_share_of_parity_and_at_least_two() {
        for (data, k, m, expected) in [
            (32, 32, 8, 8),
            (33, 32, 8, 8),
            (1, 32, 8, 2),
            (9, 32, 8, 3),
            (31, 32, 8, 8),
            (1, 5, 3, 2),
            (1, 1, 1, 1),
            (7, 32, 1, 1),
        ] {
            assert_eq!(parity_of(data, k, m), expected, "{data} of ({k},{m})");
        }
    }

    #[test]
    fn each_code_repairs_what_it_can_and_no_more() {
        let mds = Code { kind: CodeKind::Mds, k: 8, m: 2, striped: false };
        let xor = Code { kind: CodeKind::Xor, ..mds };
        // Which of the ten chunks are lost, data first.
        for lost in 0u32..1 << 10 {
            let has_data = |j: u32| lost >> j & 1 == 0;
            let has_parity = |r: u32| lost >> (8 + r) & 1 == 0;
            let losses = lost.count_ones();
            let even = (lost & 0x155).count_ones();
            let all_data = lost & 0xff == 0;
            assert_eq!(mds.repairs(8, 2, has_data, has_parity), losses <= 2 || all_data, "{lost:010b}");
            // Data 0, 2, 4, 6 with parity 0 (bit 8); data 1, 3, 5, 7 with parity 1 (bit 9).
            let odd = losses - even;
            assert_eq!(xor.repairs(8, 2, has_data, has_parity), even <= 1 && odd <= 1 || all_data, "{lost:010b}");
        }
    }
}
