//! The worked examples, round trips, and bytes that are no datagrams.

mod engine;
mod examples;
mod generated;

use super::codes::{AtomicOpcode, ControlKind, Datatype, NackCode, Opcode, ResponseOpcode, ReturnCode};
use super::pds::{Ack, Cause, Congestion, Context, Control, Mode, Nack, Nscc, Refused, Request, State, Wish};
use super::ses::{Answer, Atomic, Common, Extension, Place, Response, Standard};
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter_map(|c| char::from(c).to_digit(16).map(|d| d as u8)).collect();
    assert_eq!(digits.len() % 2, 0, "whole bytes");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The datagram is these bytes, and these bytes are the datagram; every beginning of them is refused.
fn check(hex: &str, datagram: &Datagram<'_>) {
    let expected = bytes(hex);
    let mut out = vec![0x55];
    encode(datagram, &mut out).expect("every number fits");
    assert_eq!(out[1..], expected[..], "{datagram:?}");
    assert_eq!(decode(&expected), Ok(*datagram));
    for end in 0..expected.len() {
        assert!(decode(&expected[..end]).is_err(), "{end} of {} bytes", expected.len());
    }
    let mut longer = expected;
    longer.push(0);
    assert_eq!(decode(&longer), Err(WireError::Length));
}
