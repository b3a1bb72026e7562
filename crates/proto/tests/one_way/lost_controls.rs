//! Lost control messages: the ends must recover from every loss, and ends that have nothing to do must be silent.

use super::wire::{DELAY, Pair, faithful};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::{ControlMessage, Packet, Profile, Span};

const SCHEMES: [&str; 5] = ["sdr_sr", "sdr_nack", "sdr_xor", "sdr_mds", "sdr_auto"];

/// Sends a message while the wire loses the packets that `lost` selects. Returns how much longer the message took than
/// without losses, in round trips.
fn delay(scheme: &str, mut lost: impl FnMut(&Packet) -> bool) -> f64 {
    let profile = Profile::preset(scheme).expect("a preset");
    let bytes = 300 * 4096;
    let mut clean = Pair::new(&profile);
    clean.post(0, 0, bytes);
    clean.run(&mut faithful);
    let mut pair = Pair::new(&profile);
    pair.post(0, 0, bytes);
    pair.run(&mut |_, _, packet| if lost(packet) { vec![] } else { vec![Span::ZERO] });
    assert_eq!(pair.received(1), [(0, bytes)], "{scheme}");
    let (took, without) = (pair.finished(0)[0].1, clean.finished(0)[0].1);
    took.since(without).0 as f64 / (DELAY * 2).0 as f64
}

/// SDR-RDMA's sheet, checklist 9: the delay is at most two timeouts.
const TWO_TIMEOUTS: f64 = 6.5;

#[test]
fn a_last_acknowledgement_that_is_lost_twice_is_asked_for() {
    for scheme in SCHEMES {
        let mut hits = 0;
        let late = delay(scheme, |packet| match packet.header {
            Header::Control(ControlMessage::Have(have)) if have.cumulative == 19 => {
                hits += 1;
                hits <= 2
            }
            Header::Control(ControlMessage::Recovered(_)) => {
                hits += 1;
                hits <= 2
            }
            _ => false,
        });
        assert!(hits >= 2 && late > 0.0 && late < TWO_TIMEOUTS, "{scheme}: {late} round trips");
    }
}

#[test]
fn a_message_of_which_nothing_came_is_sent_again() {
    for scheme in SCHEMES {
        let late =
            delay(scheme, |packet| matches!(packet.header, Header::Part(_)) && !packet.flags.has(Flags::RETRANSMITTED));
        assert!(late > 2.0 && late < TWO_TIMEOUTS + 1.0, "{scheme}: {late} round trips");
    }
}

#[test]
fn a_lost_report_of_missing_chunks_is_repeated() {
    for scheme in ["sdr_nack", "sdr_xor", "sdr_mds"] {
        let mut reports = 0;
        let late = delay(scheme, |packet| match packet.header {
            Header::Part(part) => part.packet < 40 && !part.parity && !packet.flags.has(Flags::RETRANSMITTED),
            Header::Control(ControlMessage::Missing(_)) => {
                reports += 1;
                reports == 1
            }
            _ => false,
        });
        // The delay has three parts: the fallback itself, one timeout until the report is repeated, and the time to
        // send the chunks.
        assert!(reports >= 2 && late < TWO_TIMEOUTS, "{scheme}: {late} round trips, {reports} reports");
    }
}

#[test]
fn ends_that_have_nothing_to_do_say_nothing() {
    for scheme in SCHEMES {
        let profile = Profile::preset(scheme).expect("a preset");
        let mut pair = Pair::new(&profile);
        pair.run(&mut faithful);
        assert!(pair.sent.is_empty(), "{scheme}: nothing was posted");
        pair.post(0, 0, 10_000);
        pair.run(&mut faithful);
        let end = pair.finished(0)[0].1;
        let late = pair.sent.iter().filter(|s| s.0 > end + Span::from_ms(2)).count();
        assert_eq!(late, 0, "{scheme}: all is said");
    }
}
