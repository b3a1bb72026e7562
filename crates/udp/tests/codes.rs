//! The engines decide what is repairable without bytes, `strandway-erasure` does it with bytes: both have the same rules.

use strandway_erasure::{Code, Pieces};
use strandway_proto::repair::{self, CodeKind, parity_of};

/// Pairs of the same code, the engines' and the bytes'.
fn pairs(k: usize, m: usize) -> impl Iterator<Item = (repair::Code, Code)> {
    let of = |kind| repair::Code { kind, k: k as u32, m: m as u32, striped: false };
    let xor = Code::xor(k, m).ok().map(|code| (of(CodeKind::Xor), code));
    let mds = Code::mds(k, m).ok().map(|code| (of(CodeKind::Mds), code));
    xor.into_iter().chain(mds)
}

#[test]
fn a_last_submessage_has_the_same_parity_for_engines_and_bytes() {
    for k in 1..=128 {
        for m in 1..=64 {
            for (_, code) in pairs(k, m) {
                for data in 1..=k {
                    let parity = parity_of(data as u32, k as u32, m as u32);
                    assert_eq!(code.shortened(data).parity() as u32, parity, "{data} of {code}");
                }
            }
        }
    }
}

#[test]
fn the_same_losses_are_repairable_for_engines_and_bytes() {
    for (k, m) in [(8, 2), (7, 3), (5, 3), (4, 1), (6, 5), (1, 1)] {
        for (engine, code) in pairs(k, m) {
            for data in 1..=k {
                let group = code.shortened(data);
                for lost in 0_u32..1 << group.pieces() {
                    let here = |piece: u32| lost >> piece & 1 == 0;
                    let present = (0..group.pieces()).filter(|p| here(*p as u32)).fold(Pieces::none(), Pieces::with);
                    let parity = group.parity() as u32;
                    let repairs = engine.repairs(data as u32, parity, here, |r| here(data as u32 + r));
                    assert_eq!(group.decodable(&present), repairs, "{group} without {lost:b}");
                }
            }
        }
    }
}
