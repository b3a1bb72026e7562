//! Control messages in bytes: the same in every format.
//!
//! All fields are big-endian. No format begins a packet with the first byte 0xfe: our own formats have their version
//! there, and RoCEv2 and MRC an opcode below the manufacturers' range.
//!
//! ```text
//! byte 0       0xfe
//! byte 1       version, 1
//! bytes 2-3    which control message: 0 custom, 1 clear, 2 have, 3 recovered, 4 missing, 5 ask, 6 unknown, 7 over, 8 heard,
//!              9 credit, 10 credit request
//! bytes 4-7    connection, as the receiver numbers it
//! bytes 8-     what the control message says, and zeros up to 34 bytes
//!
//! custom       kind 2, zero 2, words 4 times 4
//! clear        first 4, count 4
//! have         sequence 4, cumulative 4, base 4, bits 8, newest 4, held 2; recovered the same
//! missing      sequence 4, starts 3 times 4, lengths 3 times 2
//! ask          sequence 4; unknown the same
//! over         sequence 4, whole 1 (0 or 1)
//! credit       granted 4
//! request      target 2
//! heard        sequence 4, packet 4, before 4, received 4, held 2
//! ```
//!
//! Control messages between the ends of a one-way connection ("have" and all later ones in the list) may echo CE in the
//! top bit of bytes 2-3.

use super::{Reader, WireError, bare};
use strandway_proto::control_message::{ControlMessage, Have, Heard, Missing};
use strandway_proto::packet::{Flags, Header, Packet, SackBits};

/// The first byte of a control message.
pub(super) const MARK: u8 = 0xfe;
const VERSION: u8 = 1;
const CUSTOM: u16 = 0;
const CLEAR: u16 = 1;
const HAVE: u16 = 2;
const RECOVERED: u16 = 3;
const MISSING: u16 = 4;
const ASK: u16 = 5;
const UNKNOWN: u16 = 6;
const OVER: u16 = 7;
const HEARD: u16 = 8;
const CREDIT: u16 = 9;
const CREDIT_REQUEST: u16 = 10;
/// The echo of CE.
const MARKED: u16 = 0x8000;

/// Bytes of a control message.
pub(super) const BYTES: usize = 34;

const fn number(control: &ControlMessage) -> u16 {
    match control {
        ControlMessage::Custom { .. } => CUSTOM,
        ControlMessage::Clear { .. } => CLEAR,
        ControlMessage::Have(_) => HAVE,
        ControlMessage::Recovered(_) => RECOVERED,
        ControlMessage::Missing(_) => MISSING,
        ControlMessage::Ask { .. } => ASK,
        ControlMessage::Unknown { .. } => UNKNOWN,
        ControlMessage::Over { .. } => OVER,
        ControlMessage::Heard(_) => HEARD,
        ControlMessage::Credit { .. } => CREDIT,
        ControlMessage::CreditRequest { .. } => CREDIT_REQUEST,
    }
}

/// Appends a control message to `out`.
pub(super) fn encode(packet: &Packet, control: &ControlMessage, out: &mut Vec<u8>) -> Result<(), WireError> {
    let number = number(control);
    let echoes = number >= HAVE;
    let own = Flags::NONE.with_if(echoes, Flags::MARKED);
    if packet.flags.0 & !super::outer_flags(&packet.header).0 & !own.0 != 0 {
        return Err(WireError::Unencodable);
    }
    let mark = if packet.flags.has(Flags::MARKED) { MARKED } else { 0 };
    let end = out.len() + BYTES;
    out.extend_from_slice(&[MARK, VERSION]);
    out.extend_from_slice(&(number | mark).to_be_bytes());
    let mut word = |word: u32| out.extend_from_slice(&word.to_be_bytes());
    word(packet.connection.0);
    match *control {
        ControlMessage::Custom { kind, words } => {
            word(u32::from(kind) << 16);
            words.into_iter().for_each(word);
        }
        ControlMessage::Clear { first, count } => {
            word(first);
            word(count);
        }
        ControlMessage::Have(have) | ControlMessage::Recovered(have) => {
            word(have.sequence);
            word(have.cumulative);
            word(have.base);
            let bits = { have.bits }.get();
            word((bits >> 32) as u32);
            word(bits as u32);
            word(have.newest);
            out.extend_from_slice(&{ have.held }.to_be_bytes());
        }
        ControlMessage::Missing(missing) => {
            word(missing.sequence);
            { missing.starts }.into_iter().for_each(word);
            { missing.lengths }.into_iter().for_each(|length| out.extend_from_slice(&length.to_be_bytes()));
        }
        ControlMessage::Ask { sequence } | ControlMessage::Unknown { sequence } => word(sequence),
        ControlMessage::Over { sequence, whole } => {
            word(sequence);
            out.push(u8::from(whole));
        }
        ControlMessage::Credit { granted } => word(granted),
        ControlMessage::CreditRequest { target } => out.extend_from_slice(&target.to_be_bytes()),
        ControlMessage::Heard(heard) => {
            [heard.sequence, heard.packet, heard.before, heard.received].into_iter().for_each(word);
            out.extend_from_slice(&{ heard.held }.to_be_bytes());
        }
    }
    out.resize(end, 0);
    Ok(())
}

/// Reads a control message.
pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    let bytes = bytes.get(..BYTES).ok_or(WireError::Short)?;
    let mut reader = Reader::new(bytes);
    if reader.u8()? != MARK || reader.u8()? != VERSION {
        return Err(WireError::Unknown);
    }
    let which = reader.u16()?;
    let (number, marked) = (which & !MARKED, which & MARKED != 0);
    let connection = reader.u32()?;
    let control = match number {
        CUSTOM => {
            let kind = reader.u16()?;
            reader.zeros::<2>()?;
            ControlMessage::Custom { kind, words: [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?] }
        }
        CLEAR => ControlMessage::Clear { first: reader.u32()?, count: reader.u32()? },
        HAVE => ControlMessage::Have(have(&mut reader)?),
        RECOVERED => ControlMessage::Recovered(have(&mut reader)?),
        MISSING => ControlMessage::Missing(Missing {
            sequence: reader.u32()?,
            starts: [reader.u32()?, reader.u32()?, reader.u32()?],
            lengths: [reader.u16()?, reader.u16()?, reader.u16()?],
        }),
        CREDIT => ControlMessage::Credit { granted: reader.u32()? },
        CREDIT_REQUEST => ControlMessage::CreditRequest { target: reader.u16()? },
        ASK => ControlMessage::Ask { sequence: reader.u32()? },
        UNKNOWN => ControlMessage::Unknown { sequence: reader.u32()? },
        OVER => {
            let sequence = reader.u32()?;
            match reader.u8()? {
                whole @ 0..=1 => ControlMessage::Over { sequence, whole: whole == 1 },
                _ => return Err(WireError::Inconsistent),
            }
        }
        HEARD => ControlMessage::Heard(Heard {
            sequence: reader.u32()?,
            packet: reader.u32()?,
            before: reader.u32()?,
            received: reader.u32()?,
            held: reader.u16()?,
        }),
        _ => return Err(WireError::Unknown),
    };
    if reader.rest.iter().any(|&byte| byte != 0) || marked && number < HAVE {
        return Err(WireError::Inconsistent);
    }
    Ok(bare(connection, Flags::NONE.with_if(marked, Flags::MARKED).0, Header::Control(control)))
}

fn have(reader: &mut Reader<'_>) -> Result<Have, WireError> {
    Ok(Have {
        sequence: reader.u32()?,
        cumulative: reader.u32()?,
        base: reader.u32()?,
        bits: SackBits::new(reader.u64()?),
        newest: reader.u32()?,
        held: reader.u16()?,
    })
}
