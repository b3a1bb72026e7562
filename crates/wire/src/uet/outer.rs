//! Around a datagram: the entropy header of native IP, and the CRC at its end.

use crate::WireError;

/// UDP destination port. Wireshark's table has it; the source port is the entropy.
pub const PORT: u16 = 4793;
/// IP protocol without UDP, in the reference. No number of IANA is known.
pub const IP_PROTOCOL: u8 = 253;
/// Bytes of the entropy header, table 3-31: entropy 2, reserved 2. It lies where UDP would have its source port, and
/// only native IP has it.
pub const ENTROPY: usize = 4;
/// Bytes of the CRC.
pub const CRC: usize = 4;

/// The entropy header of a value.
pub const fn entropy_header(entropy: u16) -> [u8; ENTROPY] {
    let [high, low] = entropy.to_be_bytes();
    [high, low, 0, 0]
}

/// The value of an entropy header at the start of `bytes`, and the bytes behind it.
///
/// # Errors
/// [`WireError::Short`] if they end before, [`WireError::Inconsistent`] if the reserved bytes are not zero.
pub fn read_entropy(bytes: &[u8]) -> Result<(u16, &[u8]), WireError> {
    let (&[high, low, a, b], rest) = bytes.split_first_chunk::<ENTROPY>().ok_or(WireError::Short)?;
    if (a, b) != (0, 0) { Err(WireError::Inconsistent) } else { Ok((u16::from_be_bytes([high, low]), rest)) }
}

/// The addresses of a datagram, source first: the part of the IP header that the CRC and the security header cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4, from the 12th byte of the header on.
    V4([u8; 4], [u8; 4]),
    /// IPv6, from the 8th byte of the header on.
    V6([u8; 16], [u8; 16]),
}

/// CRC-32C, polynomial 0x1EDC6F41, reflected: the table of single bytes.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut state = i as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { state >> 1 ^ 0x82f6_3b78 } else { state >> 1 };
            bit += 1;
        }
        table[i] = state;
        i += 1;
    }
    table
}

fn add(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| state >> 8 ^ TABLE[((state ^ u32::from(*byte)) & 0xff) as usize])
}

/// The CRC at the end of a datagram without a security header, most significant byte first, as the reference sends it.
/// `covered` are all bytes from the end of the IP header to the end of the payload: the entropy header, or UDP's.
///
/// Only a reading of the specification says that UDP's header is covered, and SUET sends no CRC.
pub fn crc(addresses: &Addresses, covered: &[u8]) -> [u8; CRC] {
    let state = match addresses {
        Addresses::V4(source, destination) => add(add(u32::MAX, source), destination),
        Addresses::V6(source, destination) => add(add(u32::MAX, source), destination),
    };
    (!add(state, covered)).to_be_bytes()
}

/// The bytes before the CRC, if it is right. `bytes` begin where [`crc`] begins to count.
///
/// # Errors
/// [`WireError::Short`] if there is no room for a CRC, [`WireError::Checksum`] if it is wrong.
pub fn without_crc<'a>(addresses: &Addresses, bytes: &'a [u8]) -> Result<&'a [u8], WireError> {
    let (covered, sum) = bytes.split_last_chunk::<CRC>().ok_or(WireError::Short)?;
    if crc(addresses, covered) == *sum { Ok(covered) } else { Err(WireError::Checksum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4, and the value by which catalogues name CRC-32/ISCSI.
    #[test]
    fn the_checksum_is_crc32c() {
        let up: [u8; 32] = core::array::from_fn(|i| i as u8);
        let down: [u8; 32] = core::array::from_fn(|i| 31 - i as u8);
        for (bytes, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&up, 0x46dd_794e),
            (&down, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
        ] {
            assert_eq!(!add(u32::MAX, bytes), expected);
        }
    }

    #[test]
    fn a_crc_covers_the_addresses_and_every_byte() {
        let addresses = Addresses::V6([1; 16], [2; 16]);
        let mut bytes = vec![7; 40];
        let sum = crc(&addresses, &bytes);
        bytes.extend(sum);
        assert_eq!(without_crc(&addresses, &bytes), Ok(&[7; 40][..]));
        assert_eq!(without_crc(&Addresses::V6([1; 16], [3; 16]), &bytes), Err(WireError::Checksum));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(without_crc(&addresses, &changed), Err(WireError::Checksum), "byte {at}");
        }
        assert_eq!(without_crc(&addresses, &bytes[..3]), Err(WireError::Short));
    }

    #[test]
    fn an_entropy_header_has_two_reserved_bytes() {
        let header = entropy_header(0x4243);
        assert_eq!(header, [0x42, 0x43, 0, 0]);
        assert_eq!(read_entropy(&[0x42, 0x43, 0, 0, 9]), Ok((0x4243, &[9][..])));
        assert_eq!(read_entropy(&[0x42, 0x43, 0, 1]), Err(WireError::Inconsistent));
        assert_eq!(read_entropy(&header[..3]), Err(WireError::Short));
    }
}
