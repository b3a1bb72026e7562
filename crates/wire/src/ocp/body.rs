//! The headers behind the BTH, one type for each kind of datagram.

use crate::{Reader, WireError, mrc};
use strandway_proto::packet::{NackReason, Psn};

const WRITE_FIRST: u8 = 0xc6;
const WRITE_MIDDLE: u8 = 0xc7;
const WRITE_LAST: u8 = 0xc8;
const WRITE_LAST_IMMEDIATE: u8 = 0xc9;
const WRITE_ONLY: u8 = 0xca;
const WRITE_ONLY_IMMEDIATE: u8 = 0xcb;
const TRANSPORT_ACK: u8 = 0xd1;
const REQUEST: u8 = 0xd8;
const RESPONSE: u8 = 0xd9;
const SACK: u8 = 0xdc;
const NACK: u8 = 0xdd;
const PROBE: u8 = 0xde;

/// Frame type of a header with a time stamp.
const STAMP_TYPE: u16 = 1;
const COARSE: u16 = 0x8000;
/// SETH's first word: the two bits of the verdict, and the answer to a probe.
const VERDICT: u32 = 5;
const PROBE_REPLY: u16 = 1 << 1;
/// NETH: congestion control type 2, no flags.
const NACK_CC: u8 = 0x20;
/// The bits of an operation's number.
const OPERATION: u8 = 3;

/// The headers behind the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A packet of a message.
    Write(Write),
    /// The receiver accepted operations, or refused one.
    TransportAck(TransportAck),
    /// Packets that the receiver has.
    Sack(Sack),
    /// A packet that the receiver lacks.
    Nack(Nack),
    /// Asks for a SACK.
    Probe(Probe),
    /// From NIC to NIC.
    Request(Request),
    /// Answers a request.
    Response(Response),
}

/// A packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

/// The time at which a packet left, for its sender's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Ticks of 128 ns, modulo 65,536.
    pub tick: u16,
    /// The ticks are longer (TSR): 1 us by one reader.
    pub coarse: bool,
}

/// METH, TSETH, RETH and immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where in its message the packet belongs.
    pub place: Place,
    /// A number for the receiver's application, in the last packet only.
    pub immediate: Option<u32>,
    /// Messages with immediate before this one (RQMSN), modulo 65,536; 0 in messages without.
    pub immediates: u16,
    /// Messages before this one (MSN), modulo 65,536.
    pub messages: u16,
    /// When it left.
    pub stamp: Option<Stamp>,
    /// Where its own payload goes.
    pub address: u64,
    /// The key of the memory.
    pub key: u32,
    /// Bytes of the whole message, the same in all its packets.
    pub message_bytes: u32,
}

/// AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportAck {
    /// [`TransportAck::ACCEPTED`], or why the operation failed.
    pub syndrome: u8,
    /// Messages completed so far, modulo 2^24.
    pub completed: u32,
}

impl TransportAck {
    /// Everything up to the PSN is accepted; credits are unlimited.
    pub const ACCEPTED: u8 = 0x1f;
    /// IBTA: "remote access error".
    pub const REMOTE_ACCESS: u8 = 0x62;

    /// Does it accept?
    pub const fn accepts(&self) -> bool {
        self.syndrome >> 5 == 0
    }
}

/// A receiver's statement about the path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Nothing.
    None,
    /// It was marked: skip the path once.
    Once,
    /// It is persistently bad.
    Always,
}

/// The packet or probe that called for a SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A packet, by the distance of its PSN from the SACK's.
    Packet(i16),
    /// The probe of this number.
    Probe(u16),
}

/// SETH and CC_STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sack {
    /// About the path of the packet that caused it.
    pub skip: Skip,
    /// The packet or probe that caused it.
    pub cause: Cause,
    /// The entropy value of that packet.
    pub entropy: u32,
    /// The low halves of the QPs of this packet's sender and receiver.
    pub queues: [u16; 2],
    /// Up to here, and including it, everything has arrived.
    pub cumulative: Psn,
    /// The current range of PSNs in units of 128, or 0 if it is fixed.
    pub range: u8,
    /// The PSN of bit 0, as a distance from `cumulative`.
    pub base: i16,
    /// Bit `i`: PSN base + `i` has arrived.
    pub bits: u64,
    /// The tick of the packet that caused it.
    pub tick: u16,
    /// Packets above `cumulative`; 15 bits.
    pub out_of_order: u16,
    /// The window before the penalty is valid again.
    pub restore: bool,
    /// The receiver's penalty for the window; 7 bits.
    pub penalty: u8,
    /// Bytes received for the first time, at nominal size, in units of 256 B, rounded up; 24 bits.
    pub received: u32,
}

/// NETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Why.
    pub reason: NackReason,
    /// [`NackReason::Missing`]: the last switch trimmed it.
    pub at_last_hop: bool,
    /// The entropy value of the packet.
    pub entropy: u32,
    /// As in [`Sack`].
    pub queues: [u16; 2],
    /// The packet's PSN, which the BTH has as well.
    pub psn: Psn,
    /// The tick of the packet.
    pub tick: u16,
}

/// PETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its number.
    pub number: u16,
    /// The low halves of the QPs of sender and receiver.
    pub queues: [u16; 2],
    /// When it left.
    pub stamp: Stamp,
}

/// ERTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// `Some`: the sender's ports that can be reached, bit `i` for its port `i`, counted from 0. The wire counts from
    /// 1, so port 31 does not fit. `None`: asks whether this path works (EV probe).
    pub ports: Option<u32>,
    /// When it left.
    pub stamp: Stamp,
}

/// EETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// It answers a port status; otherwise an EV probe.
    pub port_status: bool,
    /// The tick of the request.
    pub tick: u16,
}

impl Stamp {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Stamp, WireError> {
        let tick = reader.u16()?;
        // Other types and the reserved bits have no meaning yet.
        Ok(Stamp { tick, coarse: reader.u16()? & COARSE != 0 })
    }

    fn write(self, out: &mut Vec<u8>) {
        put(out, self.tick.to_be_bytes());
        put(out, (STAMP_TYPE | if self.coarse { COARSE } else { 0 }).to_be_bytes());
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, field: [u8; N]) {
    out.extend_from_slice(&field);
}

pub(super) const fn is_write(opcode: u8) -> bool {
    matches!(opcode, WRITE_FIRST..=WRITE_ONLY_IMMEDIATE)
}

impl Body {
    /// Its length in bytes.
    pub const fn bytes(&self) -> usize {
        match self {
            Body::Write(write) => {
                let stamp = if write.stamp.is_some() { 4 } else { 0 };
                20 + stamp + if write.immediate.is_some() { 4 } else { 0 }
            }
            Body::TransportAck(_) => 4,
            Body::Sack(_) | Body::Response(_) => 36,
            Body::Nack(_) => 20,
            Body::Probe(_) | Body::Request(_) => 16,
        }
    }

    /// Does it begin with a TSETH?
    pub(super) const fn is_stamped(&self) -> bool {
        matches!(self, Body::Write(Write { stamp: Some(_), .. }))
    }

    pub(super) const fn opcode(&self) -> u8 {
        match self {
            Body::Write(Write { place, immediate, .. }) => match (place, immediate) {
                (Place::First, _) => WRITE_FIRST,
                (Place::Middle, _) => WRITE_MIDDLE,
                (Place::Last, None) => WRITE_LAST,
                (Place::Last, Some(_)) => WRITE_LAST_IMMEDIATE,
                (Place::Only, None) => WRITE_ONLY,
                (Place::Only, Some(_)) => WRITE_ONLY_IMMEDIATE,
            },
            Body::TransportAck(_) => TRANSPORT_ACK,
            Body::Sack(_) => SACK,
            Body::Nack(_) => NACK,
            Body::Probe(_) => PROBE,
            Body::Request(_) => REQUEST,
            Body::Response(_) => RESPONSE,
        }
    }

    /// Does every number fit its field?
    pub(super) const fn is_encodable(&self) -> bool {
        match self {
            Body::Write(write) => write.immediate.is_none() || matches!(write.place, Place::Last | Place::Only),
            Body::TransportAck(ack) => ack.completed < 1 << 24,
            Body::Sack(sack) => sack.out_of_order < 1 << 15 && sack.penalty < 1 << 7 && sack.received < 1 << 24,
            Body::Nack(nack) => !nack.at_last_hop || matches!(nack.reason, NackReason::Missing),
            Body::Request(Request { ports: Some(ports), .. }) => *ports < 1 << 31,
            Body::Request(_) | Body::Probe(_) | Body::Response(_) => true,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Body::Write(write) => {
                put(out, write.immediates.to_be_bytes());
                put(out, write.messages.to_be_bytes());
                if let Some(stamp) = write.stamp {
                    stamp.write(out);
                }
                put(out, write.address.to_be_bytes());
                put(out, write.key.to_be_bytes());
                put(out, write.message_bytes.to_be_bytes());
                if let Some(immediate) = write.immediate {
                    put(out, immediate.to_be_bytes());
                }
            }
            Body::TransportAck(ack) => put(out, (u32::from(ack.syndrome) << 24 | ack.completed).to_be_bytes()),
            Body::Sack(sack) => sack.write(out),
            Body::Nack(nack) => nack.write(out),
            Body::Probe(probe) => {
                put(out, [0; 4]);
                put(out, probe.number.to_be_bytes());
                put(out, [0; 2]);
                put(out, probe.queues[0].to_be_bytes());
                put(out, probe.queues[1].to_be_bytes());
                probe.stamp.write(out);
            }
            Body::Request(request) => {
                // The wire's numbers: 0 port status, 1 EV probe. Those of the control interface are the other way
                // round.
                put(out, [0, u8::from(request.ports.is_none()), 0, 0]);
                // Ports count from 1, so bit 0 has no port.
                put(out, (request.ports.unwrap_or(0) << 1).to_be_bytes());
                put(out, [0; 4]);
                request.stamp.write(out);
            }
            Body::Response(response) => {
                put(out, [0, u8::from(!response.port_status) << 2]);
                put(out, [0; 26]);
                put(out, response.tick.to_be_bytes());
                put(out, [0; 6]);
            }
        }
    }

    pub(super) fn read(opcode: u8, stamped: bool, reader: &mut Reader<'_>) -> Result<Body, WireError> {
        Ok(match opcode {
            WRITE_FIRST..=WRITE_ONLY_IMMEDIATE => {
                let (immediates, messages) = (reader.u16()?, reader.u16()?);
                let stamp = if stamped { Some(Stamp::read(reader)?) } else { None };
                let (address, key, message_bytes) = (reader.u64()?, reader.u32()?, reader.u32()?);
                let has_immediate = matches!(opcode, WRITE_LAST_IMMEDIATE | WRITE_ONLY_IMMEDIATE);
                let immediate = if has_immediate { Some(reader.u32()?) } else { None };
                let place = match opcode {
                    WRITE_FIRST => Place::First,
                    WRITE_MIDDLE => Place::Middle,
                    WRITE_LAST | WRITE_LAST_IMMEDIATE => Place::Last,
                    _ => Place::Only,
                };
                Body::Write(Write { place, immediate, immediates, messages, stamp, address, key, message_bytes })
            }
            _ if stamped => return Err(WireError::Inconsistent),
            TRANSPORT_ACK => {
                let word = reader.u32()?;
                Body::TransportAck(TransportAck { syndrome: (word >> 24) as u8, completed: word & 0xff_ffff })
            }
            SACK => Body::Sack(Sack::read(reader)?),
            NACK => Body::Nack(Nack::read(reader)?),
            PROBE => {
                reader.u32()?;
                let number = reader.u16()?;
                reader.u16()?;
                Body::Probe(Probe { number, queues: [reader.u16()?, reader.u16()?], stamp: Stamp::read(reader)? })
            }
            REQUEST => {
                let operation = reader.u16()? as u8 & OPERATION;
                reader.u16()?;
                let mask = reader.u32()?;
                reader.u32()?;
                let stamp = Stamp::read(reader)?;
                match operation {
                    0 => Body::Request(Request { ports: Some(mask >> 1), stamp }),
                    1 => Body::Request(Request { ports: None, stamp }),
                    _ => return Err(WireError::Unknown),
                }
            }
            RESPONSE => {
                let second = reader.u16()? as u8;
                reader.array::<26>()?;
                let tick = reader.u16()?;
                reader.array::<6>()?;
                // One implementation has the operation two bits higher.
                match (second >> 2 | second >> 4) & OPERATION {
                    0 => Body::Response(Response { port_status: true, tick }),
                    1 => Body::Response(Response { port_status: false, tick }),
                    _ => return Err(WireError::Unknown),
                }
            }
            _ => return Err(WireError::Unknown),
        })
    }
}

impl Sack {
    fn write(&self, out: &mut Vec<u8>) {
        let verdict: u16 = match self.skip {
            Skip::None => 0,
            Skip::Once => 1,
            Skip::Always => 2,
        };
        let (reply, cause) = match self.cause {
            Cause::Packet(offset) => (0, offset as u16),
            Cause::Probe(number) => (PROBE_REPLY, number),
        };
        put(out, (verdict << VERDICT | reply).to_be_bytes());
        put(out, cause.to_be_bytes());
        put(out, self.entropy.to_be_bytes());
        put(out, self.queues[0].to_be_bytes());
        put(out, self.queues[1].to_be_bytes());
        put(out, self.cumulative.get().to_be_bytes());
        put(out, [0, self.range]);
        put(out, self.base.to_be_bytes());
        put(out, self.bits.to_be_bytes());
        put(out, self.tick.to_be_bytes());
        put(out, self.out_of_order.to_be_bytes());
        put(out, (u32::from(self.restore) << 31 | u32::from(self.penalty) << 24 | self.received).to_be_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Sack, WireError> {
        let first = reader.u16()?;
        let cause = reader.u16()?;
        let is_probe = first & PROBE_REPLY != 0;
        let (entropy, queues) = (reader.u32()?, [reader.u16()?, reader.u16()?]);
        let cumulative = Psn::new(u64::from(reader.u32()? & 0xff_ffff));
        // Another kind of congestion control has other fields.
        if reader.u8()? >> 4 != 0 {
            return Err(WireError::Unknown);
        }
        let (range, base, bits) = (reader.u8()?, reader.u16()? as i16, reader.u64()?);
        let (tick, out_of_order) = (reader.u16()?, reader.u16()? & 0x7fff);
        let word = reader.u32()?;
        Ok(Sack {
            // The fourth value is reserved and says nothing.
            skip: match first >> VERDICT & 3 {
                1 => Skip::Once,
                2 => Skip::Always,
                _ => Skip::None,
            },
            cause: if is_probe { Cause::Probe(cause) } else { Cause::Packet(cause as i16) },
            entropy,
            queues,
            cumulative,
            range,
            base,
            bits,
            tick,
            out_of_order,
            restore: word >> 31 == 1,
            penalty: (word >> 24 & 0x7f) as u8,
            received: word & 0xff_ffff,
        })
    }
}

impl Nack {
    fn write(&self, out: &mut Vec<u8>) {
        put(out, [0, 0, mrc::reason_code(self.reason, self.at_last_hop), 0]);
        put(out, self.entropy.to_be_bytes());
        put(out, self.queues[0].to_be_bytes());
        put(out, self.queues[1].to_be_bytes());
        put(out, self.psn.get().to_be_bytes());
        put(out, [NACK_CC, 0]);
        put(out, self.tick.to_be_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Nack, WireError> {
        reader.u16()?;
        let code = reader.u8()?;
        reader.u8()?;
        let (entropy, queues) = (reader.u32()?, [reader.u16()?, reader.u16()?]);
        let psn = Psn::new(u64::from(reader.u32()? & 0xff_ffff));
        if reader.u8()? >> 4 != NACK_CC >> 4 {
            return Err(WireError::Unknown);
        }
        reader.u8()?;
        let (reason, at_last_hop) = (mrc::reason_of(code)?, mrc::is_at_last_hop(code));
        Ok(Nack { reason, at_last_hop, entropy, queues, psn, tick: reader.u16()? })
    }
}
