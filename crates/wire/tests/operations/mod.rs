//! Checks of bytes in each format: corpora are replayed through them, and fuzz targets call them.
#![allow(dead_code, reason = "each test and fuzz target uses some of it")]

use strandway_proto::profile::WireFormat;
use strandway_wire as wire;
use strandway_wire::{frame, ocp, uet};

/// Decodes bytes from the network: the first says as what (bit 0: UEC rather than RoCEv2, bit 2: STrack, bits 0 and 2:
/// MRC, bit 1: a frame rather than a transport header). A decoded packet must encode to bytes that decode to the same
/// packet.
pub(crate) fn check_wire(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let format = match kind & 5 {
        0 => WireFormat::Rocev2,
        1 => WireFormat::Uec,
        4 => WireFormat::Strack,
        _ => WireFormat::Mrc,
    };
    let mut again = Vec::new();
    if kind & 2 == 0 {
        let Ok(packet) = wire::decode(format, bytes) else { return };
        wire::encode(format, &packet, &mut again).expect("a packet that was read can be written");
        // MRC has fields that are not read here, such as timestamps.
        assert!(format == WireFormat::Mrc || again == bytes[..again.len()], "a header has one spelling");
        assert_eq!(wire::decode(format, &again), Ok(packet));
    } else {
        let Ok(packet) = frame::read(format, bytes) else { return };
        let whole = frame::write(format, &packet, &mut again).expect("a packet that was read can be written");
        assert_eq!(whole, usize::from(packet.size));
        assert_eq!(frame::read(format, &again), Ok(packet));
    }
}

/// Reads the bytes as a datagram in MRC's published layout, as they are and with the lengths, the port and the ICRC
/// made right, so that the bodies are read, too. A datagram that can be read can be written, and then says the same.
pub(crate) fn check_ocp(bytes: &[u8]) {
    read_ocp(bytes);
    let mut right = bytes.to_vec();
    if right.len() < ocp::FIXED + ocp::ICRC {
        return;
    }
    let Ok(length) = u16::try_from(right.len() - 40) else { return };
    (right[0], right[6]) = (0x60 | right[0] & 0xf, 17);
    right[4..6].copy_from_slice(&length.to_be_bytes());
    right[42..44].copy_from_slice(&ocp::PORT.to_be_bytes());
    right[44..46].copy_from_slice(&length.to_be_bytes());
    let at = right.len() - ocp::ICRC;
    let sum = ocp::icrc(&right[..at]).expect("it is long enough");
    right[at..].copy_from_slice(&sum);
    read_ocp(&right);
}

fn read_ocp(bytes: &[u8]) {
    let trimmed = ocp::read_trimmed(bytes, ocp::PORT);
    if let Ok((datagram, payload)) = ocp::read(bytes, ocp::PORT) {
        let mut again = Vec::new();
        ocp::write(&datagram, ocp::PORT, payload, &mut again).expect("what was read fits");
        assert_eq!(ocp::read(&again, ocp::PORT), Ok((datagram, payload)), "it says the same");
        assert_eq!(again.len(), bytes.len());
        assert_eq!(trimmed.is_ok(), matches!(datagram.body, ocp::Body::Write(_)));
    }
}

/// Reads the bytes as a datagram of UET, bare, trimmed, and over native IP. A datagram that can be read is written to
/// the same bytes.
pub(crate) fn check_uet(bytes: &[u8]) {
    let trimmed = uet::decode_trimmed(bytes);
    if let Ok(datagram) = uet::decode(bytes) {
        let mut again = Vec::new();
        uet::encode(&datagram, &mut again).expect("what was read fits");
        assert_eq!(again, bytes, "a datagram has one spelling");
        match datagram.pds {
            uet::Pds::Request(request) => assert_eq!(trimmed, Ok(request)),
            _ => assert!(trimmed.is_err()),
        }
    }
    let addresses = uet::Addresses::V6([1; 16], [2; 16]);
    let mut native = bytes.to_vec();
    native.extend(uet::crc(&addresses, bytes));
    assert_eq!(uet::without_crc(&addresses, &native), Ok(bytes));
    let _ = uet::read_entropy(bytes).map(|(_, rest)| uet::decode(rest));
}
