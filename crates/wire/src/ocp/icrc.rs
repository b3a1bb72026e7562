//! The invariant CRC of the InfiniBand family, over a UDP datagram with IPv6: IBTA's RoCEv2 annex, A17.3.3.

use super::{FIXED, ICRC};

/// CRC-32, polynomial 0x04C11DB7, reflected: the table of single bytes, and of bytes with one to seven zero bytes
/// behind them.
const TABLES: [[u32; 256]; 8] = tables();

/// The state after eight bytes of ones, which stand for the link's own header.
const SEED: u32 = 0xdebb_20e3;

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut state = i as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { state >> 1 ^ 0xedb8_8320 } else { state >> 1 };
            bit += 1;
        }
        tables[0][i] = state;
        i += 1;
    }
    let mut t = 1;
    while t < 8 {
        let mut i = 0;
        while i < 256 {
            let state = tables[t - 1][i];
            tables[t][i] = state >> 8 ^ tables[0][(state & 0xff) as usize];
            i += 1;
        }
        t += 1;
    }
    tables
}

fn add(mut state: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in eights {
        let low = state ^ u32::from_le_bytes([a, b, c, d]);
        let byte = |shift: u32| (low >> shift & 0xff) as usize;
        state = TABLES[7][byte(0)] ^ TABLES[6][byte(8)] ^ TABLES[5][byte(16)] ^ TABLES[4][byte(24)];
        state ^= TABLES[3][e as usize] ^ TABLES[2][f as usize] ^ TABLES[1][g as usize] ^ TABLES[0][h as usize];
    }
    for byte in rest {
        state = state >> 8 ^ TABLES[0][((state ^ u32::from(*byte)) & 0xff) as usize];
    }
    state
}

/// The four bytes behind a datagram, which begins with the IPv6 header next to UDP and ends with the pad. Traffic
/// class, flow label, hop limit, UDP checksum and the BTH's fifth byte count as ones, since switches may change them.
/// `None` if it is shorter than these headers.
pub fn icrc(datagram: &[u8]) -> Option<[u8; ICRC]> {
    let (head, rest) = datagram.split_first_chunk::<FIXED>()?;
    let mut masked = *head;
    masked[0] |= 0x0f;
    masked[1..4].fill(0xff);
    masked[7] = 0xff;
    masked[46..48].fill(0xff);
    masked[52] = 0xff;
    Some((!add(add(SEED, &masked), rest)).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_after_eight_ones_is_the_seed_and_the_check_value_is_crc32s() {
        assert_eq!(add(u32::MAX, &[0xff; 8]), SEED);
        // The value by which catalogues name CRC-32/ISO-HDLC.
        assert_eq!(!add(u32::MAX, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn changeable_fields_do_not_count_and_all_others_do() {
        let mut datagram = [0x5a; 90];
        datagram[0] = 0x60;
        let sum = icrc(&datagram).expect("long enough");
        for at in 0..datagram.len() {
            let mut changed = datagram;
            changed[at] ^= 1;
            let changeable = matches!(at, 0..=3 | 7 | 46 | 47 | 52);
            assert_eq!(icrc(&changed) == Some(sum), changeable, "byte {at}");
        }
        assert_eq!(icrc(&datagram[..FIXED - 1]), None);
    }
}
