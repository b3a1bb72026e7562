//! The bytes of what a node sends.

use strandway_wire::uet::codes::NackCode;
use strandway_wire::uet::pds::{Nack, Refused};
use strandway_wire::uet::{self, Datagram, Pds, Ses};

/// A NACK with the numbers of the context at its sender and its receiver.
pub(super) fn nack(psn: u32, [source, target]: [u16; 2], code: NackCode) -> Vec<u8> {
    let about = Refused::Packet { psn, source, target };
    let nack = Nack { marked: false, retransmitted: false, code, vendor: 0, about, payload: 0, extended: None };
    written(&Datagram { pds: Pds::Nack(nack), ses: Ses::None, payload: &[] })
}

/// The bytes of a datagram whose numbers fit.
pub(super) fn written(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(datagram, &mut bytes);
    bytes
}

/// Appends a datagram whose numbers fit.
pub(super) fn write(datagram: &Datagram<'_>, out: &mut Vec<u8>) {
    uet::encode(datagram, out).expect("every number fits");
}
