//! Fragments of gradients and sums in bytes: the 32-byte header of the ESA sheet, section 8.4, in network byte order.
//!
//! ```text
//! byte 0       0xe5                         byte 8-11   number
//! byte 1       kind                         byte 12-15  bitmap of workers
//! byte 2       marks                        byte 16-19  bitmap of racks
//! byte 3       priority                     byte 20-23  slot
//! byte 4-5     job                          byte 24-27  watermark
//! byte 6-7     fan-in of a rack, of all     byte 28-29  elements, 30-31 sender
//! ```
//!
//! Elements follow: 4 bytes each, integers or, with [`Marks::FLOAT`], floats. The layout is ours; ATP's has 16 bytes.

use super::{Reader, WireError};
use strandway_proto::aggregate::{Fragment, Kind, Marks};

/// The first byte of a fragment.
pub const MAGIC: u8 = 0xe5;

/// Bytes of a fragment's header.
pub const BYTES: usize = 32;

/// Appends a fragment's header to `out`.
pub fn encode(fragment: &Fragment, out: &mut Vec<u8>) {
    out.extend_from_slice(&[MAGIC, fragment.kind as u8, fragment.marks.0, fragment.priority]);
    out.extend_from_slice(&{ fragment.job }.to_be_bytes());
    out.extend_from_slice(&{ fragment.fan_in });
    for word in [fragment.number, fragment.workers, fragment.racks, fragment.slot, fragment.watermark] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&{ fragment.elements }.to_be_bytes());
    out.extend_from_slice(&{ fragment.sender }.to_be_bytes());
}

/// Reads a fragment's header from the start of `bytes`; its elements follow.
///
/// # Errors
/// If the bytes are not a fragment, or end before its elements do.
pub fn decode(bytes: &[u8]) -> Result<Fragment, WireError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != MAGIC {
        return Err(WireError::Unknown);
    }
    let kind = reader.u8()?;
    let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or(WireError::Unknown)?;
    let fragment = Fragment {
        kind,
        marks: Marks(reader.u8()?),
        priority: reader.u8()?,
        job: reader.u16()?,
        fan_in: reader.array()?,
        number: reader.u32()?,
        workers: reader.u32()?,
        racks: reader.u32()?,
        slot: reader.u32()?,
        watermark: reader.u32()?,
        elements: reader.u16()?,
        sender: reader.u16()?,
    };
    if kind.has_elements() && reader.rest.len() < 4 * usize::from(fragment.elements) {
        return Err(WireError::Short);
    }
    Ok(fragment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fragment_reads_as_it_was_written(
            kind in 0usize..14, marks: u8, priority: u8, job: u16, fan_in: [u8; 2], words: [u32; 5], elements in 0u16..300, sender: u16,
        ) {
            let [number, workers, racks, slot, watermark] = words;
            let kind = Kind::ALL[kind];
            let fragment = Fragment {
                kind, marks: Marks(marks), priority, job, fan_in, number, workers, racks, slot, watermark, elements, sender,
            };
            let mut bytes = Vec::new();
            encode(&fragment, &mut bytes);
            prop_assert_eq!(bytes.len(), BYTES);
            bytes.resize(BYTES + 4 * usize::from(elements), 0);
            prop_assert_eq!(decode(&bytes), Ok(fragment));
            bytes.truncate(bytes.len() - 1);
            let short = if kind.has_elements() || elements == 0 { decode(&bytes).is_err() } else { true };
            prop_assert!(short);
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
