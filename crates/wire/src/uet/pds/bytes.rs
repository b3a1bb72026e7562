//! The bytes of the headers of `pds`.

use super::*;
use crate::{Reader, WireError};

const RUD: u8 = 2;
const ROD: u8 = 3;
const RUDI_REQUEST: u8 = 4;
const RUDI_RESPONSE: u8 = 5;
const UUD: u8 = 6;
const ACK: u8 = 7;
const ACK_CC: u8 = 8;
const ACK_CCX: u8 = 9;
const NACK: u8 = 10;
const CONTROL: u8 = 11;
const NACK_CCX: u8 = 12;
const RUD_CC: u8 = 13;
const ROD_CC: u8 = 14;

/// ACK: an expected PSN follows; the reference's only.
const EXPECTED: u8 = 0x40;
/// ACK, NACK, RUDI response: the packet that caused it carried CE.
const MARKED: u8 = 0x20;
/// Control packet: the context is ordered.
const IS_ROD: u8 = 0x20;
/// The packet, or the one that caused it, is a retransmission.
const RETRANSMITTED: u8 = 0x10;
/// Request, control packet: acknowledge at once.
const ACK_REQUEST: u8 = 0x08;
/// ACK: answers a probe.
const PROBE: u8 = 0x08;
/// NACK: about a RUDI packet.
const ABOUT_RUDI: u8 = 0x08;
/// Request, control packet: the initiator does not know the target's context yet.
const SYN: u8 = 0x04;
/// ACK: what the target asks for, table 3-44.
const REQ: u8 = 0x06;

/// `mask`, if the flag is set.
const fn flag(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

/// Are no bits outside `mask` set?
const fn only(flags: u8, mask: u8) -> Result<(), WireError> {
    if flags & !mask == 0 { Ok(()) } else { Err(WireError::Inconsistent) }
}

/// Does `value` fit in `bits` bits?
pub(in crate::uet) const fn fits(value: u64, bits: u32) -> Result<(), WireError> {
    if value >> bits == 0 { Ok(()) } else { Err(WireError::Unencodable) }
}

impl Context {
    fn read(syn: bool, word: u16) -> Context {
        if syn { Context::Opening { info: (word >> 12) as u8, psn_offset: word & 0xfff } } else { Context::Known(word) }
    }

    const fn flag(self) -> u8 {
        flag(matches!(self, Context::Opening { .. }), SYN)
    }

    fn word(self) -> Result<u16, WireError> {
        match self {
            Context::Known(number) => Ok(number),
            Context::Opening { info, psn_offset } => {
                fits(u64::from(info), 4)?;
                fits(u64::from(psn_offset), 12)?;
                Ok(u16::from(info) << 12 | psn_offset)
            }
        }
    }
}

impl Mode {
    const fn ordered(yes: bool) -> Mode {
        if yes { Mode::Ordered } else { Mode::Unordered }
    }
}

impl Pds {
    /// May a semantic header follow?
    pub(in crate::uet) const fn may_continue(&self) -> bool {
        !matches!(self, Pds::Nack(_) | Pds::Control(_))
    }

    /// Reads a header. Returns it and the type of the header that follows.
    pub(in crate::uet) fn read(reader: &mut Reader<'_>) -> Result<(Pds, u8), WireError> {
        let prologue = reader.u16()?;
        let (kind, next, flags) = ((prologue >> 11) as u8, (prologue >> 7) as u8 & 0xf, prologue as u8 & 0x7f);
        let pds = match kind {
            RUD | ROD | RUD_CC | ROD_CC => Pds::Request(Request::read(kind, flags, reader)?),
            RUDI_REQUEST | RUDI_RESPONSE => Pds::Rudi(Rudi::read(kind, flags, reader)?),
            UUD => {
                only(flags, 0)?;
                reader.zeros::<2>()?;
                Pds::Uud
            }
            ACK | ACK_CC | ACK_CCX => Pds::Ack(Ack::read(kind, flags, reader)?),
            NACK | NACK_CCX if next == 0 => Pds::Nack(Nack::read(kind, flags, reader)?),
            NACK | NACK_CCX => return Err(WireError::Inconsistent),
            CONTROL => return Ok((Pds::Control(Control::read(ControlKind(next), flags, reader)?), 0)),
            _ => return Err(WireError::Unknown),
        };
        Ok((pds, next))
    }

    /// Appends the header, before one of type `next`.
    pub(in crate::uet) fn write(&self, next: u8, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (kind, next, flags) = match self {
            Pds::Request(request) => (request.kind(), next, request.flags()),
            Pds::Ack(ack) => (ack.kind(), next, ack.flags()),
            Pds::Nack(nack) => (if nack.extended.is_some() { NACK_CCX } else { NACK }, next, nack.flags()),
            Pds::Control(control) => (CONTROL, control.kind.0, control.flags()),
            Pds::Rudi(rudi) => (if rudi.response { RUDI_RESPONSE } else { RUDI_REQUEST }, next, rudi.flags()),
            Pds::Uud => (UUD, next, 0),
        };
        fits(u64::from(next), 4)?;
        out.extend_from_slice(&(u16::from(kind) << 11 | u16::from(next) << 7 | u16::from(flags)).to_be_bytes());
        match self {
            Pds::Request(request) => request.write(out),
            Pds::Ack(ack) => ack.write(out),
            Pds::Nack(nack) => nack.write(out),
            Pds::Control(control) => control.write(out),
            Pds::Rudi(rudi) if rudi.marked && !rudi.response => Err(WireError::Unencodable),
            Pds::Rudi(rudi) => {
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&rudi.packet.to_be_bytes());
                Ok(())
            }
            Pds::Uud => {
                out.extend_from_slice(&[0; 2]);
                Ok(())
            }
        }
    }
}

impl Request {
    const fn kind(&self) -> u8 {
        match (self.mode, self.credit.is_some()) {
            (Mode::Unordered, false) => RUD,
            (Mode::Ordered, false) => ROD,
            (Mode::Unordered, true) => RUD_CC,
            (Mode::Ordered, true) => ROD_CC,
        }
    }

    const fn flags(&self) -> u8 {
        flag(self.retransmitted, RETRANSMITTED) | flag(self.ack_request, ACK_REQUEST) | self.target.flag()
    }

    fn read(kind: u8, flags: u8, reader: &mut Reader<'_>) -> Result<Request, WireError> {
        only(flags, RETRANSMITTED | ACK_REQUEST | SYN)?;
        let (clear_offset, psn, source) = (reader.u16()? as i16, reader.u32()?, reader.u16()?);
        let target = Context::read(flags & SYN != 0, reader.u16()?);
        let credit = if matches!(kind, RUD_CC | ROD_CC) {
            let word = reader.u32()?;
            Some(CreditRequest { context: (word >> 24) as u8, target: word & 0xff_ffff })
        } else {
            None
        };
        let mode = Mode::ordered(matches!(kind, ROD | ROD_CC));
        let (retransmitted, ack_request) = (flags & RETRANSMITTED != 0, flags & ACK_REQUEST != 0);
        Ok(Request { mode, retransmitted, ack_request, clear_offset, psn, source, target, credit })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.clear_offset.to_be_bytes());
        out.extend_from_slice(&self.psn.to_be_bytes());
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.target.word()?.to_be_bytes());
        if let Some(credit) = self.credit {
            fits(u64::from(credit.target), 24)?;
            out.extend_from_slice(&(u32::from(credit.context) << 24 | credit.target).to_be_bytes());
        }
        Ok(())
    }
}

impl Rudi {
    const fn flags(&self) -> u8 {
        flag(self.marked, MARKED) | flag(self.retransmitted, RETRANSMITTED)
    }

    fn read(kind: u8, flags: u8, reader: &mut Reader<'_>) -> Result<Rudi, WireError> {
        let response = kind == RUDI_RESPONSE;
        only(flags, if response { MARKED | RETRANSMITTED } else { RETRANSMITTED })?;
        reader.zeros::<2>()?;
        let (marked, retransmitted) = (flags & MARKED != 0, flags & RETRANSMITTED != 0);
        Ok(Rudi { response, marked, retransmitted, packet: reader.u32()? })
    }
}

impl Ack {
    const fn kind(&self) -> u8 {
        match self.congestion {
            None => ACK,
            Some(Congestion { state: State::Extended { .. }, .. }) => ACK_CCX,
            Some(_) => ACK_CC,
        }
    }

    const fn flags(&self) -> u8 {
        let wish = match self.wish {
            Wish::None => 0,
            Wish::Clear => 2,
            Wish::Close => 4,
        };
        let probe = flag(matches!(self.cause, Cause::Probe(_)), PROBE);
        flag(self.expected.is_some(), EXPECTED)
            | flag(self.marked, MARKED)
            | flag(self.retransmitted, RETRANSMITTED)
            | probe
            | wish
    }

    fn read(kind: u8, flags: u8, reader: &mut Reader<'_>) -> Result<Ack, WireError> {
        let expected = if kind == ACK { EXPECTED } else { 0 };
        only(flags, expected | MARKED | RETRANSMITTED | PROBE | REQ)?;
        let wish = match flags & REQ {
            0 => Wish::None,
            2 => Wish::Clear,
            4 => Wish::Close,
            _ => return Err(WireError::Inconsistent),
        };
        let word = reader.u16()?;
        let cause = if flags & PROBE != 0 { Cause::Probe(word) } else { Cause::Packet(word as i16) };
        let (cumulative, source, target) = (reader.u32()?, reader.u16()?, reader.u16()?);
        let congestion = if kind == ACK { None } else { Some(Congestion::read(kind == ACK_CCX, reader)?) };
        let expected = if flags & EXPECTED != 0 { Some(reader.u32()?) } else { None };
        let (marked, retransmitted) = (flags & MARKED != 0, flags & RETRANSMITTED != 0);
        Ok(Ack { marked, retransmitted, cause, wish, cumulative, source, target, congestion, expected })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let cause = match self.cause {
            Cause::Packet(offset) => offset as u16,
            Cause::Probe(opaque) => opaque,
        };
        out.extend_from_slice(&cause.to_be_bytes());
        out.extend_from_slice(&self.cumulative.to_be_bytes());
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.target.to_be_bytes());
        match (&self.congestion, self.expected) {
            (None, None) => Ok(()),
            (None, Some(psn)) => {
                out.extend_from_slice(&psn.to_be_bytes());
                Ok(())
            }
            (Some(congestion), None) => congestion.write(out),
            (Some(_), Some(_)) => Err(WireError::Unencodable),
        }
    }
}

impl Congestion {
    fn read(is_extended: bool, reader: &mut Reader<'_>) -> Result<Congestion, WireError> {
        let first = reader.u8()?;
        let (kind, flags) = (first >> 4, first & 0xf);
        let (range, base_offset, bitmap) = (reader.u8()?, reader.u16()? as i16, reader.u64()?);
        let state = reader.u64()?;
        let state = match (is_extended, kind) {
            (true, kind) => State::Extended { kind, state: [state, reader.u64()?] },
            (false, 0) => State::Nscc(Nscc::of(state)),
            (false, 1) if state >> 16 & 0xff_ffff != 0 => return Err(WireError::Inconsistent),
            (false, 1) => State::Credit { credit: (state >> 40) as u32, out_of_order: state as u16 },
            (false, kind) => State::Other { kind, state },
        };
        Ok(Congestion { flags, range, base_offset, bitmap, state })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (kind, state, more) = match self.state {
            State::Nscc(nscc) => (0, nscc.word()?, None),
            State::Credit { credit, out_of_order } => {
                fits(u64::from(credit), 24)?;
                (1, u64::from(credit) << 40 | u64::from(out_of_order), None)
            }
            State::Other { kind: 0 | 1, .. } => return Err(WireError::Unencodable),
            State::Other { kind, state } => (kind, state, None),
            State::Extended { kind, state: [state, more] } => (kind, state, Some(more)),
        };
        fits(u64::from(kind), 4)?;
        fits(u64::from(self.flags), 4)?;
        out.extend_from_slice(&[kind << 4 | self.flags, self.range]);
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&self.bitmap.to_be_bytes());
        out.extend_from_slice(&state.to_be_bytes());
        if let Some(more) = more {
            out.extend_from_slice(&more.to_be_bytes());
        }
        Ok(())
    }
}

impl Nscc {
    const fn of(state: u64) -> Nscc {
        Nscc {
            service_time: (state >> 48) as u16,
            restore: state >> 47 & 1 != 0,
            penalty: (state >> 40) as u8 & 0x7f,
            received: (state >> 16) as u32 & 0xff_ffff,
            out_of_order: state as u16,
        }
    }

    fn word(&self) -> Result<u64, WireError> {
        fits(u64::from(self.penalty), 7)?;
        fits(u64::from(self.received), 24)?;
        let second = u64::from(self.restore) << 7 | u64::from(self.penalty);
        let ends = u64::from(self.service_time) << 48 | u64::from(self.out_of_order);
        Ok(ends | second << 40 | u64::from(self.received) << 16)
    }
}

impl Nack {
    const fn flags(&self) -> u8 {
        let rudi = flag(matches!(self.about, Refused::Rudi { .. }), ABOUT_RUDI);
        flag(self.marked, MARKED) | flag(self.retransmitted, RETRANSMITTED) | rudi
    }

    fn read(kind: u8, flags: u8, reader: &mut Reader<'_>) -> Result<Nack, WireError> {
        only(flags, MARKED | RETRANSMITTED | ABOUT_RUDI)?;
        let (code, vendor) = (NackCode(reader.u8()?), reader.u8()?);
        let number = reader.u32()?;
        let about = if flags & ABOUT_RUDI != 0 {
            reader.zeros::<4>()?;
            Refused::Rudi { packet: number }
        } else {
            Refused::Packet { psn: number, source: reader.u16()?, target: reader.u16()? }
        };
        let payload = reader.u32()?;
        let extended = if kind == NACK_CCX {
            let first = reader.u64()?;
            Some(NackState { kind: (first >> 60) as u8, state: [first & ((1 << 60) - 1), reader.u64()?] })
        } else {
            None
        };
        let (marked, retransmitted) = (flags & MARKED != 0, flags & RETRANSMITTED != 0);
        Ok(Nack { marked, retransmitted, code, vendor, about, payload, extended })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&[self.code.0, self.vendor]);
        let (number, source, target) = match self.about {
            Refused::Packet { psn, source, target } => (psn, source, target),
            Refused::Rudi { packet } => (packet, 0, 0),
        };
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&source.to_be_bytes());
        out.extend_from_slice(&target.to_be_bytes());
        out.extend_from_slice(&self.payload.to_be_bytes());
        if let Some(NackState { kind, state: [first, second] }) = self.extended {
            fits(u64::from(kind), 4)?;
            fits(first, 60)?;
            out.extend_from_slice(&(u64::from(kind) << 60 | first).to_be_bytes());
            out.extend_from_slice(&second.to_be_bytes());
        }
        Ok(())
    }
}

impl Control {
    const fn flags(&self) -> u8 {
        flag(matches!(self.mode, Mode::Ordered), IS_ROD)
            | flag(self.retransmitted, RETRANSMITTED)
            | flag(self.ack_request, ACK_REQUEST)
            | self.target.flag()
    }

    fn read(kind: ControlKind, flags: u8, reader: &mut Reader<'_>) -> Result<Control, WireError> {
        only(flags, IS_ROD | RETRANSMITTED | ACK_REQUEST | SYN)?;
        let (opaque, psn, source) = (reader.u16()?, reader.u32()?, reader.u16()?);
        let target = Context::read(flags & SYN != 0, reader.u16()?);
        let mode = Mode::ordered(flags & IS_ROD != 0);
        let (retransmitted, ack_request) = (flags & RETRANSMITTED != 0, flags & ACK_REQUEST != 0);
        let payload = reader.u32()?;
        Ok(Control { kind, mode, retransmitted, ack_request, opaque, psn, source, target, payload })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.opaque.to_be_bytes());
        out.extend_from_slice(&self.psn.to_be_bytes());
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.target.word()?.to_be_bytes());
        out.extend_from_slice(&self.payload.to_be_bytes());
        Ok(())
    }
}
