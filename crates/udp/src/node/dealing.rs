//! The shard that a datagram is for: in this process, and as a program of the kernel.

use crate::frame;
use nix::libc::sock_filter;

/// Where a datagram names the shard that it is for.
enum Named {
    /// In this byte: the shard that gave the number out; the first one if there is no such shard.
    Given(usize),
    /// In this byte: the shard that a caller wishes, modulo the number of shards.
    Wished(usize),
    /// Nowhere: it is for the first shard.
    First,
}

impl Named {
    /// By the kind of the datagram, the lower four bits of its first byte.
    const fn by(kind: u8) -> Named {
        match kind {
            frame::KIND_HELLO => Named::Wished(frame::HELLO_SHARD),
            frame::KIND_RETRY | frame::KIND_WELCOME | frame::KIND_REFUSAL => Named::Given(frame::OPENING_SHARD),
            frame::KIND_CHUNK | frame::KIND_WORD => Named::First,
            _ => Named::Given(frame::SEALED_SHARD),
        }
    }
}

/// The shard that a datagram is for. A byte that it does not have makes it one for the first shard.
pub(super) fn shard_of(datagram: &[u8], shards: usize) -> usize {
    let byte = |at: usize| datagram.get(at).map_or(0, |&byte| usize::from(byte));
    match Named::by(byte(0) as u8 & 15) {
        Named::Given(at) => Some(byte(at)).filter(|&shard| shard < shards).unwrap_or(0),
        Named::Wished(at) => byte(at) % shards,
        Named::First => 0,
    }
}

/// [`shard_of`] as a program that the kernel runs on the first datagram of a train, without its UDP header. If
/// `urgent`, it adds the number of shards for urgent datagrams. A read beyond the end returns 0. It is classic BPF,
/// which needs no privilege.
pub(super) fn program(shards: usize, urgent: bool) -> Vec<sock_filter> {
    // Codes of linux/bpf_common.h. A jump has the numbers of instructions to skip if true and if not.
    const LOAD: u16 = 0x00;
    const LOAD_BYTE: u16 = 0x30;
    const COPY_TO_INDEX: u16 = 0x07;
    const ADD_INDEX: u16 = 0x0c;
    const MULTIPLY: u16 = 0x24;
    const AND: u16 = 0x54;
    const MODULO: u16 = 0x94;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_NOT_LESS: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RETURN_LOADED: u16 = 0x16;
    let one = |code, k: usize| sock_filter { code, jt: 0, jf: 0, k: k as u32 };
    let jump = |code, k: usize, otherwise: usize| sock_filter { jf: otherwise as u8, ..one(code, k) };
    let block = |kind| match Named::by(kind) {
        Named::Given(at) if urgent && kind == frame::KIND_DATA => vec![
            one(LOAD_BYTE, at),
            jump(JUMP_IF_NOT_LESS, shards, 1),
            one(LOAD, 0),
            one(COPY_TO_INDEX, 0),
            one(LOAD_BYTE, frame::SEALED_URGENT),
            one(AND, 1),
            one(MULTIPLY, shards),
            one(ADD_INDEX, 0),
            one(RETURN_LOADED, 0),
        ],
        Named::Given(at) => {
            vec![one(LOAD_BYTE, at), jump(JUMP_IF_NOT_LESS, shards, 1), one(RETURN, 0), one(RETURN_LOADED, 0)]
        }
        Named::Wished(at) => vec![one(LOAD_BYTE, at), one(MODULO, shards), one(RETURN_LOADED, 0)],
        Named::First => vec![one(RETURN, 0)],
    };
    let mut program = vec![one(LOAD_BYTE, 0), one(AND, 15)];
    for kind in 0..15 {
        let block = block(kind);
        program.push(jump(JUMP_IF_EQUAL, kind.into(), block.len()));
        program.extend(block);
    }
    program.extend(block(15));
    program
}
