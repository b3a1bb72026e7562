//! An engine's packet in UET's headers, for captures: what one says in the fields of the other.
//!
//! `docs/protocols/uet.md` has the table. A data packet becomes a RUD request with a standard header, a write of its
//! part of the message; an acknowledgement becomes an ACK_CC without a response; a NACK and a probe become theirs.
//! Other packets are refused.

use super::codes::{ControlKind, NackCode, Opcode};
use super::pds::{Ack, Cause, Congestion, Context, Control, Mode, Nack, Nscc, Pds, Refused, Request, State, Wish};
use super::ses::{Common, Extension, Place, Ses, Standard};
use crate::packet::{self, Data, Flags, Header, NackReason, Packet, Psn};
use crate::wire::WireError;

/// The first sequence number of a connection: an engine counts from 0, and a context begins at least 2^16 above its
/// predecessor (SUET and the reference).
pub const START_PSN: u32 = 1 << 16;

/// Above this, a first packet cannot name its distance from [`START_PSN`] any more.
const OPENING_PACKETS: u32 = 1 << 12;

/// What UET's headers say about a connection, and a packet of an engine does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The context's number at the packet's sender; not 0.
    pub source: u16,
    /// The context's number at the packet's receiver; not 0.
    pub target: u16,
    /// The receiver has not answered yet: the first 4,096 packets carry SYN.
    pub opening: bool,
    /// The next PSN that the receiver expects, as the sender knows it.
    pub acknowledged: Psn,
    /// Bytes of the message that a data packet belongs to.
    pub message: u64,
}

/// The sequence number of UET. An engine's PSN has 24 bits, so it begins again after 2^24 packets.
const fn number(psn: Psn) -> u32 {
    START_PSN + psn.get()
}

/// `to` minus `from`, the short way round.
fn distance(from: Psn, to: Psn) -> i32 {
    (to.get().wrapping_sub(from.get()) << 8) as i32 >> 8
}

/// The highest PSN below `expected`: all up to it have arrived.
const fn before(expected: Psn) -> Psn {
    Psn::new(expected.get() as u64 + Psn::MODULUS - 1)
}

/// The headers of an engine's packet, and the bytes of payload behind them, which a trimmed packet has lost.
///
/// # Errors
/// [`WireError::Unencodable`] for packets that UET has no header for, and for numbers that do not fit: messages of
/// 2^32 bytes and more, payloads of 2^14.
pub fn translate(packet: &Packet, conversation: &Conversation) -> Result<(Pds, Ses, usize), WireError> {
    match packet.header {
        Header::Data(data) => {
            let (pds, ses) = (request(packet, &data, conversation), write(packet, &data, conversation)?);
            Ok((Pds::Request(pds), ses, usize::from(data.length)))
        }
        Header::Ack(ack) => Ok((Pds::Ack(acknowledgement(packet, &ack, conversation)?), Ses::None, 0)),
        Header::Nack(nack) => Ok((Pds::Nack(refusal(packet, &nack, conversation)?), Ses::None, 0)),
        Header::Probe { number } => Ok((Pds::Control(probe(number, conversation)), Ses::None, 0)),
        Header::Cnp
        | Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => Err(WireError::Unencodable),
    }
}

fn request(packet: &Packet, data: &Data, conversation: &Conversation) -> Request {
    let offset = data.psn.get();
    let target = if conversation.opening && offset < OPENING_PACKETS {
        Context::Opening { info: 0, psn_offset: offset as u16 }
    } else {
        Context::Known(conversation.target)
    };
    let cleared = distance(data.psn, before(conversation.acknowledged));
    Request {
        mode: Mode::Unordered,
        retransmitted: packet.flags.has(Flags::RETRANSMITTED),
        ack_request: packet.flags.has(Flags::ACK_REQUEST),
        // Nothing is kept that a number further back could clear.
        clear_offset: cleared.clamp(i16::MIN.into(), -1) as i16,
        psn: number(data.psn),
        source: conversation.source,
        target,
        credit: None,
    }
}

fn write(packet: &Packet, data: &Data, conversation: &Conversation) -> Result<Ses, WireError> {
    let fits = |bytes: u64| u32::try_from(bytes).map_err(|_| WireError::Unencodable);
    let offset = fits(data.offset.get())?;
    let message = data.message.0;
    let place = if offset == 0 { Place::First { header_data: 0 } } else { Place::Later { offset } };
    Ok(Ses::Standard(Standard {
        common: Common { opcode: Opcode::WRITE, relative: true, ..Common::default() },
        message: message as u16,
        has_header_data: false,
        last: packet.flags.has(Flags::LAST),
        offset: 0,
        initiator: packet.source.0,
        key: message.into(),
        place,
        length: fits(conversation.message)?,
        extension: Extension::None,
    }))
}

fn acknowledgement(packet: &Packet, ack: &packet::Ack, conversation: &Conversation) -> Result<Ack, WireError> {
    let (expected, base, acked) = (ack.cumulative, ack.sack_base, ack.acked);
    let cumulative = before(expected);
    let short = |to: Psn| i16::try_from(distance(cumulative, to)).map_err(|_| WireError::Unencodable);
    let is_answer = packet.flags.has(Flags::PROBE_ANSWER);
    let cause = if is_answer { Cause::Probe(acked.get() as u16) } else { Cause::Packet(short(acked)?) };
    let nscc = Nscc {
        // Simulated hosts answer at once, which is "not known" here.
        service_time: 0,
        restore: false,
        penalty: 0,
        received: ack.received & 0xff_ffff,
        out_of_order: ack.out_of_order,
    };
    let congestion =
        Congestion { flags: 0, range: 0, base_offset: short(base)?, bitmap: ack.sack.get(), state: State::Nscc(nscc) };
    Ok(Ack {
        marked: packet.flags.has(Flags::MARKED),
        retransmitted: packet.flags.has(Flags::RETRANSMITTED),
        cause,
        wish: Wish::None,
        // Before the first packet it is the one below the first number.
        cumulative: if expected.get() == 0 { START_PSN - 1 } else { number(cumulative) },
        source: conversation.source,
        target: conversation.target,
        congestion: Some(congestion),
        expected: None,
    })
}

fn refusal(packet: &Packet, nack: &packet::Nack, conversation: &Conversation) -> Result<Nack, WireError> {
    let code = match nack.reason {
        NackReason::Missing if packet.flags.has(Flags::TRIMMED_AT_LAST_HOP) => NackCode::TRIMMED_LAST_HOP,
        // Selective repeat sends none for a packet that never came.
        NackReason::Missing => NackCode::TRIMMED,
        NackReason::NoTracker => NackCode::NO_BITMAP,
        NackReason::NoBuffer => NackCode::NO_PACKET_BUFFER,
        NackReason::NoResource => NackCode::NO_RESOURCE,
        NackReason::BeyondWindow => NackCode::BEYOND_WINDOW,
        NackReason::Fatal => return Err(WireError::Unencodable),
    };
    let Conversation { source, target, .. } = *conversation;
    Ok(Nack {
        marked: packet.flags.has(Flags::MARKED),
        retransmitted: packet.flags.has(Flags::RETRANSMITTED),
        code,
        vendor: 0,
        about: Refused::Packet { psn: number(nack.psn), source, target },
        payload: 0,
        extended: None,
    })
}

fn probe(probe: u32, conversation: &Conversation) -> Control {
    Control {
        kind: ControlKind::PROBE,
        mode: Mode::Unordered,
        retransmitted: false,
        ack_request: false,
        opaque: probe as u16,
        psn: 0,
        source: conversation.source,
        target: Context::Known(conversation.target),
        payload: number(conversation.acknowledged),
    }
}
