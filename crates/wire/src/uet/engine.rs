//! An engine's packet in UET's headers, and back: what one says in the fields of the other.
//!
//! `docs/protocols/uet.md` has the table. A data packet becomes a request with a standard header, a write of its part
//! of the message; an acknowledgement becomes an ACK_CC without a response; a NACK and a probe become theirs. Other
//! packets are refused.

use super::codes::{ControlKind, NackCode, Opcode};
use super::pds::{Ack, Cause, Congestion, Context, Control, Mode, Nack, Nscc, Pds, Refused, Request, State, Wish};
use super::ses::{Common, Extension, Place, Ses, Standard};
use crate::{WireError, bare};
use strandway_proto::packet::{
    self, ConnectionId, Data, Flags, Header, MessageId, NackReason, Offset, Packet, PathId, Psn, SackBits, Wait,
};

/// A first sequence number: an engine counts from 0, and a context begins at least 2^16 above its predecessor (SUET and
/// the reference).
pub const START_PSN: u32 = 1 << 16;

/// Above this, a first packet cannot name its distance from the first sequence number any more.
const OPENING_PACKETS: u64 = 1 << 12;

/// The facts that UET's headers have about a connection, and a packet of an engine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The context's number at the packet's sender; not 0.
    pub source: u16,
    /// The context's number at the packet's receiver; not 0.
    pub target: u16,
    /// The context's mode.
    pub mode: Mode,
    /// The sequence number of an engine's first packet.
    pub start: u32,
    /// The receiver has not answered yet: the first 4,096 packets carry SYN.
    pub opening: bool,
    /// The number of packets that the receiver has without a hole, as the sender knows it.
    pub acknowledged: u64,
    /// The number of packets that the sender has without a hole.
    pub received: u64,
    /// Bytes of the message that a data packet belongs to.
    pub message: u64,
}

impl Conversation {
    /// The sequence number of a packet that the engine counts.
    const fn number(&self, full: u64) -> u32 {
        self.start.wrapping_add(full as u32)
    }
}

/// `to` minus `from`, if 16 bits hold it.
fn short(from: u64, to: u64) -> Result<i16, WireError> {
    i16::try_from(to as i64 - from as i64).map_err(|_| WireError::Unencodable)
}

/// The headers of an engine's packet, and the bytes of payload behind them, which a trimmed packet has lost.
///
/// # Errors
/// [`WireError::Unencodable`] for packets that UET has no header for, and for numbers that do not fit: messages of
/// 2^32 bytes and more, payloads of 2^14 behind the first one of a message.
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
    let full = data.psn.extend(conversation.acknowledged);
    let target = if conversation.opening && full < OPENING_PACKETS {
        Context::Opening { info: 0, psn_offset: full as u16 }
    } else {
        Context::Known(conversation.target)
    };
    let cleared = conversation.acknowledged as i64 - 1 - full as i64;
    Request {
        mode: conversation.mode,
        retransmitted: packet.flags.has(Flags::RETRANSMITTED),
        ack_request: packet.flags.has(Flags::ACK_REQUEST),
        // Nothing is kept that a number further back could clear.
        clear_offset: cleared.clamp(i16::MIN.into(), -1) as i16,
        psn: conversation.number(full),
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
    let cumulative = { ack.cumulative }.extend(conversation.received);
    let (base, acked) = ({ ack.sack_base }.extend(cumulative), { ack.acked }.extend(cumulative));
    // UET names the last packet that has arrived, the engine the next one.
    let from_last = |to: u64| short(cumulative, to.saturating_add(1));
    let is_answer = packet.flags.has(Flags::PROBE_ANSWER);
    let cause = if is_answer { Cause::Probe({ ack.acked }.get() as u16) } else { Cause::Packet(from_last(acked)?) };
    let nscc = Nscc {
        // Hosts of ours answer at once, which is "not known" here.
        service_time: 0,
        restore: false,
        penalty: 0,
        received: ack.received & 0xff_ffff,
        out_of_order: ack.out_of_order,
    };
    let state = State::Nscc(nscc);
    let congestion =
        Congestion { flags: 0, range: 0, base_offset: from_last(base)?, bitmap: { ack.sack }.get(), state };
    Ok(Ack {
        marked: packet.flags.has(Flags::MARKED),
        retransmitted: packet.flags.has(Flags::RETRANSMITTED),
        cause,
        wish: Wish::None,
        cumulative: conversation.number(cumulative).wrapping_sub(1),
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
    let psn = conversation.number(nack.psn.extend(conversation.received));
    Ok(Nack {
        marked: packet.flags.has(Flags::MARKED),
        retransmitted: packet.flags.has(Flags::RETRANSMITTED),
        code,
        vendor: 0,
        about: Refused::Packet { psn, source, target },
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
        payload: conversation.number(conversation.acknowledged),
    }
}

/// The engine's packet for a datagram of a context that begins at `start`: data (of a message, or of the answer to a
/// read), an acknowledgement, the NACK of a
/// trimmed packet or a probe. The network's part, the connection and the path are left at their defaults; `message` is
/// the engine's number for the message of data. `None` for datagrams that tell an engine nothing.
///
/// `cumulative` is the engine's next expected packet, which a NACK does not name. A peer without NSCC has a state of
/// zeros: then the number of packets stands for its count of bytes, since an engine only asks which of two
/// acknowledgements is newer.
pub fn interpret(
    pds: &Pds,
    ses: &Ses,
    payload: usize,
    start: u32,
    message: MessageId,
    cumulative: Psn,
) -> Option<Packet> {
    let full = |psn: u32| Psn::new(psn.wrapping_sub(start).into());
    let (header, flags) = match pds {
        Pds::Request(request) => {
            let (offset, is_last) = match ses {
                Ses::Standard(Standard { place: Place::First { .. }, last, .. }) => (0, *last),
                Ses::Standard(Standard { place: Place::Later { offset }, last, .. }) => ((*offset).into(), *last),
                Ses::DataResponse(response) => {
                    let offset = u64::from(response.offset);
                    (offset, offset + payload as u64 == response.length.into())
                }
                _ => return None,
            };
            let data = Data {
                psn: full(request.psn),
                message,
                offset: Offset::new(offset),
                length: u16::try_from(payload).ok()?,
                target: 0,
                wait: Wait::default(),
            };
            let flags = Flags::NONE
                .with_if(request.ack_request, Flags::ACK_REQUEST)
                .with_if(request.retransmitted, Flags::RETRANSMITTED)
                .with_if(is_last, Flags::LAST);
            (Header::Data(data), flags)
        }
        Pds::Ack(ack) => {
            let next = full(ack.cumulative.wrapping_add(1));
            let bits = ack.congestion.map_or(0, |congestion| congestion.bitmap);
            let nscc = match ack.congestion {
                Some(Congestion { state: State::Nscc(nscc), .. }) => nscc,
                _ => Nscc::default(),
            };
            let acked = match ack.cause {
                Cause::Packet(_) => full(ack.acked_psn()?),
                Cause::Probe(number) => Psn::new(number.into()),
            };
            let header = packet::Ack {
                cumulative: next,
                sack_base: ack.base_psn().map_or(next, full),
                sack: SackBits::new(bits),
                acked,
                path: PathId::default(),
                received: if nscc == Nscc::default() { next.get() } else { nscc.received },
                out_of_order: nscc.out_of_order,
                range: 0,
            };
            let flags = Flags::NONE
                .with_if(ack.marked, Flags::MARKED)
                .with_if(ack.retransmitted, Flags::RETRANSMITTED)
                .with_if(matches!(ack.cause, Cause::Probe(_)), Flags::PROBE_ANSWER);
            (Header::Ack(header), flags)
        }
        Pds::Nack(Nack { about: Refused::Packet { psn, .. }, code, marked, retransmitted, .. }) => {
            let at_last_hop = match *code {
                NackCode::TRIMMED => false,
                NackCode::TRIMMED_LAST_HOP => true,
                _ => return None,
            };
            let (path, reason) = (PathId::default(), NackReason::Missing);
            let header = packet::Nack { psn: full(*psn), cumulative, path, reason };
            let flags = Flags::NONE
                .with_if(at_last_hop, Flags::TRIMMED_AT_LAST_HOP)
                .with_if(*marked, Flags::MARKED)
                .with_if(*retransmitted, Flags::RETRANSMITTED);
            (Header::Nack(header), flags)
        }
        Pds::Control(Control { kind: ControlKind::PROBE, opaque, .. }) => {
            (Header::Probe { number: (*opaque).into() }, Flags::NONE)
        }
        _ => return None,
    };
    Some(Packet { connection: ConnectionId(0), ..bare(0, flags.0, header) })
}
