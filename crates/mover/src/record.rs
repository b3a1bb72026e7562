//! The records that two movers send each other in small messages, 32 bytes each.

/// Bytes of a record.
pub(crate) const RECORD: usize = 32;
/// The first bytes of a hello.
const MAGIC: [u8; 6] = *b"swmove";
/// The version of these records.
const VERSION: u16 = 1;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The first record of each side.
    Hello {
        /// The service that the caller asks for; zero in an answer.
        service: u64,
    },
    /// A receive is posted: the peer may write a message with this tag.
    Offer {
        /// The receive; the immediate of the write.
        number: u32,
        /// Its tag.
        tag: u64,
        /// The key to its memory.
        key: u64,
        /// Bytes of its memory.
        bytes: u64,
    },
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// A hello of another version.
    Version,
    /// Something else.
    Unknown,
}

impl Record {
    pub(crate) fn encode(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        match self {
            Record::Hello { service } => {
                bytes[0] = 1;
                bytes[2..4].copy_from_slice(&VERSION.to_be_bytes());
                bytes[4..10].copy_from_slice(&MAGIC);
                bytes[16..24].copy_from_slice(&service.to_be_bytes());
            }
            Record::Offer { number, tag, key, bytes: length } => {
                bytes[0] = 2;
                bytes[4..8].copy_from_slice(&number.to_be_bytes());
                bytes[8..16].copy_from_slice(&tag.to_be_bytes());
                bytes[16..24].copy_from_slice(&key.to_be_bytes());
                bytes[24..32].copy_from_slice(&length.to_be_bytes());
            }
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; RECORD]) -> Result<Record, Malformed> {
        let long = |at: usize| u64::from_be_bytes(*bytes[at..].first_chunk().expect("within a record"));
        match bytes[0] {
            1 if bytes[4..10] == MAGIC => {
                let version = u16::from_be_bytes([bytes[2], bytes[3]]);
                if version == VERSION { Ok(Record::Hello { service: long(16) }) } else { Err(Malformed::Version) }
            }
            2 => Ok(Record::Offer {
                number: u32::from_be_bytes(*bytes[4..].first_chunk().expect("within a record")),
                tag: long(8),
                key: long(16),
                bytes: long(24),
            }),
            _ => Err(Malformed::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let all = [Record::Hello { service: u64::MAX }, Record::Offer { number: 7, tag: 8, key: 9, bytes: 10 }];
        for record in all {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
        let mut other = Record::Hello { service: 0 }.encode();
        other[3] = 2;
        assert_eq!(Record::decode(&other), Err(Malformed::Version));
        assert_eq!(Record::decode(&[0; RECORD]), Err(Malformed::Unknown));
        other[4] = 0;
        assert_eq!(Record::decode(&other), Err(Malformed::Unknown));
    }
}
