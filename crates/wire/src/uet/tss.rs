//! The header of the security sublayer (TSS), table 3-90: before the first header, in clear text.
//!
//! The bytes behind it are encrypted, and a tag of 16 bytes ends the datagram in place of the CRC. The cipher is in
//! `strandway_udp::uet_security`. The reference and a reading agree about the layout; Wireshark's stored copy has that
//! of a draft.

use super::pds::bytes::fits;
use crate::{Reader, WireError};

const TYPE: u32 = 1;
const SOURCE_PRESENT: u32 = 0x0400_0000;
const RESERVED: u32 = 0x0200_0000;
const ASSOCIATION: u32 = 0x0100_0000;

/// The security header: 12 bytes, or 16 with a source identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityHeader {
    /// The sender's number in the domain (SSI), if it has one (SP).
    pub source: Option<u32>,
    /// Which of two keys (AN): it changes when the domain's key does.
    pub association: bool,
    /// The secure domain (SDI), 24 bits.
    pub domain: u32,
    /// The upper 16 bits of the time stamp counter (TSC).
    pub epoch: u16,
    /// The lower 48 bits: a new value for every transmission.
    pub counter: u64,
}

impl SecurityHeader {
    /// Bytes of the header.
    pub const fn bytes(&self) -> usize {
        if self.source.is_some() { 16 } else { 12 }
    }

    /// Epoch and counter as one number.
    pub const fn time_stamp(&self) -> u64 {
        (self.epoch as u64) << 48 | self.counter
    }

    /// Appends the header to `out`.
    ///
    /// # Errors
    /// [`WireError::Unencodable`] if a number does not fit; `out` is then as it was.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(self.domain.into(), 24)?;
        fits(self.counter, 48)?;
        let mut first = TYPE << 27 | self.domain;
        first |= if self.source.is_some() { SOURCE_PRESENT } else { 0 };
        first |= if self.association { ASSOCIATION } else { 0 };
        out.extend_from_slice(&first.to_be_bytes());
        if let Some(source) = self.source {
            out.extend_from_slice(&source.to_be_bytes());
        }
        out.extend_from_slice(&self.time_stamp().to_be_bytes());
        Ok(())
    }

    /// Reads a header from the start of `bytes`, and returns it with the bytes behind it.
    ///
    /// # Errors
    /// [`WireError::Unknown`] for a datagram without one, [`WireError::Short`] and [`WireError::Inconsistent`] as for
    /// other headers.
    pub fn read(bytes: &[u8]) -> Result<(SecurityHeader, &[u8]), WireError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u32()?;
        if first >> 27 != TYPE {
            return Err(WireError::Unknown);
        }
        if first & RESERVED != 0 {
            return Err(WireError::Inconsistent);
        }
        let source = if first & SOURCE_PRESENT != 0 { Some(reader.u32()?) } else { None };
        let stamp = reader.u64()?;
        let header = SecurityHeader {
            source,
            association: first & ASSOCIATION != 0,
            domain: first & 0xff_ffff,
            epoch: (stamp >> 48) as u16,
            counter: stamp & ((1 << 48) - 1),
        };
        Ok((header, reader.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_security_header_has_the_bytes_of_its_table() {
        let short = SecurityHeader { domain: 0x12_3456, epoch: 0x1dc0, counter: 0x74e5_0001, ..Default::default() };
        let long = SecurityHeader { source: Some(0xc0a8_2a01), association: true, ..short };
        for (header, expected) in [
            (short, &[0x08, 0x12, 0x34, 0x56, 0x1d, 0xc0, 0, 0, 0x74, 0xe5, 0, 1][..]),
            (long, &[0x0d, 0x12, 0x34, 0x56, 0xc0, 0xa8, 0x2a, 0x01, 0x1d, 0xc0, 0, 0, 0x74, 0xe5, 0, 1]),
        ] {
            let mut out = Vec::new();
            header.write(&mut out).expect("it fits");
            assert_eq!(out, expected);
            assert_eq!(SecurityHeader::read(&out), Ok((header, &[][..])));
            assert_eq!(crate::uet::decode(&out), Err(WireError::Unknown));
            assert_eq!(out.len(), header.bytes());
        }
        assert_eq!(SecurityHeader::read(&[0x0a; 16]), Err(WireError::Inconsistent));
        assert_eq!(SecurityHeader::read(&[0x10; 16]), Err(WireError::Unknown));
        for wrong in [SecurityHeader { domain: 1 << 24, ..short }, SecurityHeader { counter: 1 << 48, ..short }] {
            assert_eq!(wrong.write(&mut Vec::new()), Err(WireError::Unencodable));
        }
    }

    proptest! {
        #[test]
        fn a_security_header_survives_the_wire(
            source: Option<u32>, association: bool, domain in 0u32..1 << 24, epoch: u16, counter in 0u64..1 << 48,
        ) {
            let header = SecurityHeader { source, association, domain, epoch, counter };
            let mut out = Vec::new();
            header.write(&mut out).expect("it fits");
            for end in 0..out.len() {
                prop_assert_eq!(SecurityHeader::read(&out[..end]), Err(WireError::Short));
            }
            out.push(7);
            prop_assert_eq!(SecurityHeader::read(&out), Ok((header, &[7][..])));
        }
    }
}
