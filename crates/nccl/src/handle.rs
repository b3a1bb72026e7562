//! The handle of a listener, which NCCL passes to the peer: 128 bytes.
//!
//! Bytes 0 to 3: mark, version, number of planes; 4 to 11: the service; 12 to 19: the connection that a caller has begun
//! with this copy of the handle, which is the only place where a call of `connect` can leave something for the next one;
//! from 20 on: 18 bytes of address and port for each plane.

use crate::abi::HANDLE_BYTES;
use std::net::{Ipv6Addr, SocketAddrV6};

/// The most planes that fit.
pub(crate) const PLANES_MAX: usize = (HANDLE_BYTES - 20) / 18;
const MARK: [u8; 2] = *b"sw";
const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) service: u64,
    /// Zero before the first call of `connect`.
    pub(crate) begun: u64,
    pub(crate) planes: Vec<SocketAddrV6>,
}

impl Handle {
    pub(crate) fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..2].copy_from_slice(&MARK);
        bytes[2] = VERSION;
        bytes[3] = self.planes.len() as u8;
        bytes[4..12].copy_from_slice(&self.service.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.begun.to_be_bytes());
        for (plane, room) in self.planes.iter().zip(bytes[20..].chunks_exact_mut(18)) {
            room[..16].copy_from_slice(&plane.ip().octets());
            room[16..].copy_from_slice(&plane.port().to_be_bytes());
        }
        bytes
    }

    /// `None` if the bytes are no handle of this version.
    pub(crate) fn decode(bytes: &[u8; HANDLE_BYTES]) -> Option<Handle> {
        let planes = usize::from(bytes[3]);
        if bytes[..2] != MARK || bytes[2] != VERSION || !(1..=PLANES_MAX).contains(&planes) {
            return None;
        }
        let long = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_be_bytes);
        let address = |room: &[u8]| {
            let ip: [u8; 16] = *room.first_chunk()?;
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), u16::from_be_bytes([room[16], room[17]]), 0, 0))
        };
        let planes = bytes[20..].chunks_exact(18).take(planes).map(address).collect::<Option<_>>()?;
        Some(Handle { service: long(4)?, begun: long(12)?, planes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_read_as_they_were_written() {
        let planes = vec!["[fd00::1]:4000".parse().expect("an address"); PLANES_MAX];
        let handle = Handle { service: 7, begun: u64::MAX, planes };
        let bytes = handle.encode();
        assert_eq!(Handle::decode(&bytes), Some(handle));
        for (at, value) in [(0, 0), (2, 9), (3, 0), (3, 7), (3, 255)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Handle::decode(&other), None, "byte {at} is {value}");
        }
    }
}
