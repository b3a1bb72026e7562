//! The bytes of the headers of `ses`.

use super::super::pds::bytes::fits;
use super::*;
use crate::{Reader, WireError};

const SMALL: u8 = 1;
const MEDIUM: u8 = 2;
const STANDARD: u8 = 3;
const RESPONSE: u8 = 4;
const DATA_RESPONSE: u8 = 5;
const SMALL_DATA_RESPONSE: u8 = 6;

/// Version of the headers; the only one.
const VERSION: u8 = 0;
const DELIVERY_COMPLETE: u8 = 0x20;
const INITIATOR_ERROR: u8 = 0x10;
const RELATIVE: u8 = 0x08;
const HEADER_DATA: u8 = 0x04;
const LAST: u8 = 0x02;
const FIRST: u8 = 0x01;

/// Bits of a payload's length.
const LENGTH_BITS: u32 = 14;

/// A length of 14 bits, above which two or eighteen reserved bits are zero.
const fn short_length(word: u32) -> Result<u16, WireError> {
    if word >> LENGTH_BITS == 0 { Ok(word as u16) } else { Err(WireError::Inconsistent) }
}

/// A number of 12 bits in a word of 16.
const fn twelve(word: u16) -> Result<u16, WireError> {
    if word >> 12 == 0 { Ok(word) } else { Err(WireError::Inconsistent) }
}

/// A byte and 24 bits.
fn eight_and_24(reader: &mut Reader<'_>) -> Result<(u8, u32), WireError> {
    let word = reader.u32()?;
    Ok(((word >> 24) as u8, word & 0xff_ffff))
}

impl Ses {
    /// Its number in the first header.
    pub(in crate::uet) const fn number(&self) -> u8 {
        match self {
            Ses::None => 0,
            Ses::Small(_) => SMALL,
            Ses::Medium(_) => MEDIUM,
            Ses::Standard(_) => STANDARD,
            Ses::Response(_) => RESPONSE,
            Ses::DataResponse(_) => DATA_RESPONSE,
            Ses::SmallDataResponse(_) => SMALL_DATA_RESPONSE,
        }
    }

    /// Reads a header of this number. The length of the payload in it must be that of the bytes behind it.
    pub(in crate::uet) fn read(number: u8, reader: &mut Reader<'_>) -> Result<Ses, WireError> {
        let (ses, claimed) = match number {
            0 => (Ses::None, None),
            SMALL => (Ses::Small(Small::read(reader)?), None),
            MEDIUM => (Ses::Medium(Medium::read(reader)?), None),
            STANDARD => {
                let (standard, claimed) = Standard::read(reader)?;
                (Ses::Standard(standard), claimed)
            }
            RESPONSE => (Ses::Response(Response::read(reader)?), None),
            DATA_RESPONSE => {
                let (response, claimed) = DataResponse::read(reader)?;
                (Ses::DataResponse(response), Some(claimed))
            }
            SMALL_DATA_RESPONSE => {
                let (response, claimed) = SmallDataResponse::read(reader)?;
                (Ses::SmallDataResponse(response), Some(claimed))
            }
            _ => return Err(WireError::Unknown),
        };
        if claimed.is_some_and(|claimed| usize::from(claimed) != reader.rest.len()) {
            return Err(WireError::Length);
        }
        Ok(ses)
    }

    /// Appends the header in front of a payload of this length.
    pub(in crate::uet) fn write(&self, payload: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Ses::None => Ok(()),
            Ses::Small(small) => small.write(out),
            Ses::Medium(medium) => medium.write(out),
            Ses::Standard(standard) => standard.write(payload, out),
            Ses::Response(response) => response.write(out),
            Ses::DataResponse(response) => response.write(payload, out),
            Ses::SmallDataResponse(response) => response.write(payload, out),
        }
    }

    /// Does a payload of this length fit what the header says of its message?
    pub(in crate::uet) fn allows(&self, payload: usize) -> bool {
        let whole = |common: &Common, length: u32| match common.opcode {
            Opcode::WRITE | Opcode::SEND | Opcode::TAGGED_SEND | Opcode::DATAGRAM_SEND => payload == length as usize,
            Opcode::READ => payload == 0,
            _ => payload <= length as usize,
        };
        match self {
            Ses::None | Ses::Response(_) => payload == 0,
            Ses::Small(small) => whole(&small.common, small.length.into()),
            Ses::Medium(medium) => whole(&medium.common, medium.length.into()),
            Ses::Standard(standard) => match standard.place {
                Place::First { .. } if standard.last => match standard.extension {
                    // Arithmetic has an operand in the payload.
                    Extension::Atomic(atomic) if atomic.opcode < AtomicOpcode::READ => {
                        payload == standard.length as usize
                    }
                    _ => whole(&standard.common, standard.length),
                },
                Place::First { .. } => payload <= standard.length as usize,
                Place::Later { offset } => u64::from(offset) + payload as u64 <= u64::from(standard.length),
            },
            Ses::DataResponse(_) | Ses::SmallDataResponse(_) => payload >> LENGTH_BITS == 0,
        }
    }
}

/// The common part as it was read, with what stands at its place of a message's number or length.
struct Head {
    common: Common,
    word: u16,
    has_header_data: bool,
    last: bool,
    first: bool,
}

impl Head {
    fn read(reader: &mut Reader<'_>) -> Result<Head, WireError> {
        let (opcode, flags) = (reader.u8()?, reader.u8()?);
        if flags >> 6 != VERSION {
            return Err(WireError::Unknown);
        }
        if opcode >> 6 != 0 {
            return Err(WireError::Inconsistent);
        }
        let word = reader.u16()?;
        let (generation, job) = eight_and_24(reader)?;
        let common = Common {
            opcode: Opcode(opcode),
            delivery_complete: flags & DELIVERY_COMPLETE != 0,
            initiator_error: flags & INITIATOR_ERROR != 0,
            relative: flags & RELATIVE != 0,
            generation,
            job,
            process: twelve(reader.u16()?)?,
            index: twelve(reader.u16()?)?,
        };
        let has_header_data = flags & HEADER_DATA != 0;
        Ok(Head { common, word, has_header_data, last: flags & LAST != 0, first: flags & FIRST != 0 })
    }

    /// A header that is always that of a whole message.
    fn read_single(reader: &mut Reader<'_>) -> Result<Head, WireError> {
        let head = Head::read(reader)?;
        if head.first && head.last { Ok(head) } else { Err(WireError::Inconsistent) }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let common = &self.common;
        fits(common.opcode.0.into(), 6)?;
        fits(common.job.into(), 24)?;
        fits(common.process.into(), 12)?;
        fits(common.index.into(), 12)?;
        let mut flags = VERSION << 6;
        for (set, bit) in [
            (common.delivery_complete, DELIVERY_COMPLETE),
            (common.initiator_error, INITIATOR_ERROR),
            (common.relative, RELATIVE),
            (self.has_header_data, HEADER_DATA),
            (self.last, LAST),
            (self.first, FIRST),
        ] {
            flags |= if set { bit } else { 0 };
        }
        out.extend_from_slice(&[common.opcode.0, flags]);
        out.extend_from_slice(&self.word.to_be_bytes());
        out.extend_from_slice(&(u32::from(common.generation) << 24 | common.job).to_be_bytes());
        out.extend_from_slice(&common.process.to_be_bytes());
        out.extend_from_slice(&common.index.to_be_bytes());
        Ok(())
    }

    const fn single(common: Common, length: u16, has_header_data: bool) -> Head {
        Head { common, word: length, has_header_data, last: true, first: true }
    }
}

impl Small {
    fn read(reader: &mut Reader<'_>) -> Result<Small, WireError> {
        let head = Head::read_single(reader)?;
        if head.has_header_data || ExtensionKind::of(head.common.opcode)? != ExtensionKind::None {
            return Err(WireError::Inconsistent);
        }
        Ok(Small { common: head.common, length: short_length(head.word.into())?, offset: reader.u64()? })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(self.length.into(), LENGTH_BITS)?;
        is_plain(&self.common)?;
        Head::single(self.common, self.length, false).write(out)?;
        out.extend_from_slice(&self.offset.to_be_bytes());
        Ok(())
    }
}

/// No source gives extensions behind short headers.
fn is_plain(common: &Common) -> Result<(), WireError> {
    if ExtensionKind::of(common.opcode) == Ok(ExtensionKind::None) { Ok(()) } else { Err(WireError::Unencodable) }
}

impl Medium {
    fn read(reader: &mut Reader<'_>) -> Result<Medium, WireError> {
        let head = Head::read_single(reader)?;
        if ExtensionKind::of(head.common.opcode)? != ExtensionKind::None {
            return Err(WireError::Inconsistent);
        }
        let word = reader.u64()?;
        let word = if head.has_header_data { MediumWord::HeaderData(word) } else { MediumWord::Offset(word) };
        let length = short_length(head.word.into())?;
        Ok(Medium { common: head.common, length, word, initiator: reader.u32()?, key: reader.u64()? })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(self.length.into(), LENGTH_BITS)?;
        is_plain(&self.common)?;
        let (has_header_data, word) = match self.word {
            MediumWord::HeaderData(word) => (true, word),
            MediumWord::Offset(word) => (false, word),
        };
        Head::single(self.common, self.length, has_header_data).write(out)?;
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&self.initiator.to_be_bytes());
        out.extend_from_slice(&self.key.to_be_bytes());
        Ok(())
    }
}

impl Standard {
    /// Reads the header and its extension, and the payload's length if the header has it.
    fn read(reader: &mut Reader<'_>) -> Result<(Standard, Option<u16>), WireError> {
        let head = Head::read(reader)?;
        let (offset, initiator, key) = (reader.u64()?, reader.u32()?, reader.u64()?);
        let word = reader.u64()?;
        let length = reader.u32()?;
        let (place, claimed) = if head.first {
            (Place::First { header_data: word }, None)
        } else {
            (Place::Later { offset: word as u32 }, Some(short_length((word >> 32) as u32)?))
        };
        let Head { common, word: message, has_header_data, last, first } = head;
        let extension = Extension::read(ExtensionKind::of(common.opcode)?, first, reader)?;
        let standard =
            Standard { common, message, has_header_data, last, offset, initiator, key, place, length, extension };
        Ok((standard, claimed))
    }

    fn write(&self, payload: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (first, word) = match self.place {
            Place::First { header_data } => (true, header_data),
            Place::Later { offset } => {
                fits(payload as u64, LENGTH_BITS)?;
                (false, (payload as u64) << 32 | u64::from(offset))
            }
        };
        let Standard { common, message, has_header_data, last, .. } = *self;
        Head { common, word: message, has_header_data, last, first }.write(out)?;
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.initiator.to_be_bytes());
        out.extend_from_slice(&self.key.to_be_bytes());
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        self.extension.write(ExtensionKind::of(common.opcode).map_err(|_| WireError::Unencodable)?, first, out)
    }
}

/// The extension that an operation has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExtensionKind {
    None,
    Atomic,
    Rendezvous,
    Sync,
}

impl ExtensionKind {
    /// An operation that no source names may have any layout, and the order of the extensions of a synchronised atomic
    /// operation is in none: neither is read.
    const fn of(opcode: Opcode) -> Result<ExtensionKind, WireError> {
        match opcode {
            Opcode::ATOMIC
            | Opcode::FETCHING_ATOMIC
            | Opcode::TAGGED_SEND_ATOMIC
            | Opcode::TAGGED_SEND_FETCHING_ATOMIC => Ok(ExtensionKind::Atomic),
            Opcode::RENDEZVOUS_SEND | Opcode::RENDEZVOUS_TAGGED_SEND => Ok(ExtensionKind::Rendezvous),
            Opcode::SYNC_WRITE => Ok(ExtensionKind::Sync),
            Opcode(number) if number <= Opcode::MESSAGE_ERROR.0 => Ok(ExtensionKind::None),
            _ => Err(WireError::Unknown),
        }
    }
}

const fn compares(opcode: AtomicOpcode) -> bool {
    opcode.0 >= AtomicOpcode::COMPARE_SWAP.0 && opcode.0 <= AtomicOpcode::MASKED_SWAP.0
}

impl Extension {
    fn read(kind: ExtensionKind, first: bool, reader: &mut Reader<'_>) -> Result<Extension, WireError> {
        match kind {
            ExtensionKind::Atomic => {
                let (opcode, datatype, semantics) = (reader.u8()?, reader.u8()?, reader.u8()?);
                reader.zeros::<1>()?;
                let atomic = Atomic { opcode: AtomicOpcode(opcode), datatype: Datatype(datatype), semantics };
                if !compares(atomic.opcode) {
                    return Ok(Extension::Atomic(atomic));
                }
                let mut wide = || reader.array().map(u128::from_be_bytes);
                Ok(Extension::Compare { atomic, compare: wide()?, swap: wide()? })
            }
            ExtensionKind::Rendezvous if first => {
                let eager = reader.u32()?;
                let (generation, ends) = eight_and_24(reader)?;
                let (process, index) = ((ends >> 12) as u16, ends as u16 & 0xfff);
                let (offset, key) = (reader.u64()?, reader.u64()?);
                Ok(Extension::Rendezvous(Rendezvous { eager, generation, process, index, offset, key }))
            }
            ExtensionKind::Sync => Ok(Extension::Sync { group: reader.u16()?, count: reader.u16()? }),
            ExtensionKind::None | ExtensionKind::Rendezvous => Ok(Extension::None),
        }
    }

    fn write(&self, kind: ExtensionKind, first: bool, out: &mut Vec<u8>) -> Result<(), WireError> {
        match (kind, self) {
            (ExtensionKind::Atomic, Extension::Atomic(atomic)) if !compares(atomic.opcode) => atomic.write(out),
            (ExtensionKind::Atomic, Extension::Compare { atomic, compare, swap }) if compares(atomic.opcode) => {
                atomic.write(out);
                out.extend_from_slice(&compare.to_be_bytes());
                out.extend_from_slice(&swap.to_be_bytes());
            }
            (ExtensionKind::Rendezvous, Extension::Rendezvous(rendezvous)) if first => rendezvous.write(out)?,
            (ExtensionKind::Rendezvous, Extension::None) if !first => {}
            (ExtensionKind::Sync, Extension::Sync { group, count }) => {
                out.extend_from_slice(&group.to_be_bytes());
                out.extend_from_slice(&count.to_be_bytes());
            }
            (ExtensionKind::None, Extension::None) => {}
            _ => return Err(WireError::Unencodable),
        }
        Ok(())
    }
}

impl Atomic {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.opcode.0, self.datatype.0, self.semantics, 0]);
    }
}

impl Rendezvous {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(self.process.into(), 12)?;
        fits(self.index.into(), 12)?;
        let ends = u32::from(self.generation) << 24 | u32::from(self.process) << 12 | u32::from(self.index);
        out.extend_from_slice(&self.eager.to_be_bytes());
        out.extend_from_slice(&ends.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.key.to_be_bytes());
        Ok(())
    }
}

impl Answer {
    /// The first two bytes; the job comes later.
    fn read(reader: &mut Reader<'_>) -> Result<Answer, WireError> {
        let (first, second) = (reader.u8()?, reader.u8()?);
        if second >> 6 != VERSION {
            return Err(WireError::Unknown);
        }
        Ok(Answer { list: first >> 6, opcode: ResponseOpcode(first & 0x3f), code: ReturnCode(second & 0x3f), job: 0 })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(self.list.into(), 2)?;
        fits(self.opcode.0.into(), 6)?;
        fits(self.code.0.into(), 6)?;
        fits(self.job.into(), 24)?;
        out.extend_from_slice(&[self.list << 6 | self.opcode.0, VERSION << 6 | self.code.0]);
        Ok(())
    }
}

impl Response {
    fn read(reader: &mut Reader<'_>) -> Result<Response, WireError> {
        let answer = Answer::read(reader)?;
        let message = reader.u16()?;
        let (generation, job) = eight_and_24(reader)?;
        Ok(Response { answer: Answer { job, ..answer }, message, generation, length: reader.u32()? })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.answer.write(out)?;
        out.extend_from_slice(&self.message.to_be_bytes());
        out.extend_from_slice(&(u32::from(self.generation) << 24 | self.answer.job).to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        Ok(())
    }
}

impl DataResponse {
    fn read(reader: &mut Reader<'_>) -> Result<(DataResponse, u16), WireError> {
        let answer = Answer::read(reader)?;
        let message = reader.u16()?;
        let (generation, job) = eight_and_24(reader)?;
        let (request, claimed) = (reader.u16()?, short_length(reader.u16()?.into())?);
        let (length, offset) = (reader.u32()?, reader.u32()?);
        let answer = Answer { job, ..answer };
        Ok((DataResponse { answer, message, generation, request, length, offset }, claimed))
    }

    fn write(&self, payload: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(payload as u64, LENGTH_BITS)?;
        self.answer.write(out)?;
        out.extend_from_slice(&self.message.to_be_bytes());
        out.extend_from_slice(&(u32::from(self.generation) << 24 | self.answer.job).to_be_bytes());
        out.extend_from_slice(&self.request.to_be_bytes());
        out.extend_from_slice(&(payload as u16).to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        Ok(())
    }
}

impl SmallDataResponse {
    fn read(reader: &mut Reader<'_>) -> Result<(SmallDataResponse, u16), WireError> {
        let answer = Answer::read(reader)?;
        let claimed = short_length(reader.u16()?.into())?;
        let (reserved, job) = eight_and_24(reader)?;
        if reserved != 0 {
            return Err(WireError::Inconsistent);
        }
        Ok((SmallDataResponse { answer: Answer { job, ..answer }, request_psn: reader.u32()? }, claimed))
    }

    fn write(&self, payload: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        fits(payload as u64, LENGTH_BITS)?;
        self.answer.write(out)?;
        out.extend_from_slice(&(payload as u16).to_be_bytes());
        out.extend_from_slice(&self.answer.job.to_be_bytes());
        out.extend_from_slice(&self.request_psn.to_be_bytes());
        Ok(())
    }
}
