//! The semantic sublayer (SES): the header behind that of packet delivery.
//!
//! `next_hdr` of the first header names its layout, table 3-16. Numbers in a header are those that the first header and
//! the length of the datagram do not give: a payload's length is that of the payload, and stands nowhere else.

pub(super) mod bytes;

use super::codes::{AtomicOpcode, Datatype, Opcode, ResponseOpcode, ReturnCode};

/// The second header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ses {
    /// None: acknowledgements of a close, NACKs, control packets.
    None,
    /// Optimised non-matching request, 20 B, table 3-10 (the reference and Wireshark). Always a whole message.
    Small(Small),
    /// Small message or small RMA, 32 B, table 3-14 by the reference. Always a whole message.
    Medium(Medium),
    /// Standard request, 44 B and an extension, tables 3-8 and 3-9.
    Standard(Standard),
    /// Response without data, 12 B, table 3-11.
    Response(Response),
    /// Response with data, 20 B, table 3-12 (the reference and Wireshark).
    DataResponse(DataResponse),
    /// Response with data to a request of one packet, 12 B, table 3-13 (the reference).
    SmallDataResponse(SmallDataResponse),
}

/// The fields of every request besides its message's number or length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// The operation, 6 bits.
    pub opcode: Opcode,
    /// The response must wait until the data can be seen (DC).
    pub delivery_complete: bool,
    /// The initiator has failed (IE).
    pub initiator_error: bool,
    /// `process` counts within the job (REL); SUET sets it always.
    pub relative: bool,
    /// Guards a resource index that is used again (`ri_generation`).
    pub generation: u8,
    /// The job (`job_id`), 24 bits.
    pub job: u32,
    /// The process on the endpoint (`pid_on_fep`), 12 bits.
    pub process: u16,
    /// The queue of that process (`resource_index`), 12 bits.
    pub index: u16,
}

/// Table 3-10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    /// The fields of every request.
    pub common: Common,
    /// Bytes of the message, 14 bits (`request_length`).
    pub length: u16,
    /// Where in the memory of the key (`buffer_offset`).
    pub offset: u64,
}

/// Table 3-14, by the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// The fields of every request.
    pub common: Common,
    /// Bytes of the message, 14 bits (`request_length`).
    pub length: u16,
    /// The first word.
    pub word: MediumWord,
    /// The sender's number for matching.
    pub initiator: u32,
    /// Tag or memory key (`match_bits`).
    pub key: u64,
}

/// The first word of a medium header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumWord {
    /// HD is set: data for the completion.
    HeaderData(u64),
    /// HD is not set: where in the memory of the key.
    Offset(u64),
}

/// Tables 3-8 (first packet of a message) and 3-9 (all others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    /// The fields of every request.
    pub common: Common,
    /// The number of the message between its two ends.
    pub message: u16,
    /// It has data for the completion (HD).
    pub has_header_data: bool,
    /// It is the last packet of its message (EOM).
    pub last: bool,
    /// Where in the memory of the key, or an address, alike in all packets of a message (`buffer_offset`). Deferrable
    /// sends: the restart token.
    pub offset: u64,
    /// The sender's number for matching.
    pub initiator: u32,
    /// Tag or memory key (`match_bits`). Ready for a deferred send: the token.
    pub key: u64,
    /// The packet's place in its message.
    pub place: Place,
    /// Bytes of the whole message (`request_length`).
    pub length: u32,
    /// The operation's own part.
    pub extension: Extension,
}

/// A packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first packet (SOM).
    First {
        /// Data for the completion; 0 and ignored unless HD is set.
        header_data: u64,
    },
    /// A continuation. The payload's length, 14 bits, stands beside the offset.
    Later {
        /// Where in the message its payload starts (`message_offset`).
        offset: u32,
    },
}

/// The part of an operation behind a standard header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extension {
    /// Nothing.
    #[default]
    None,
    /// Atomic operation, 4 B, figure 3-16.
    Atomic(Atomic),
    /// Atomic operation with a comparand, 36 B (the reference and Wireshark). By our inference of all seven operations
    /// that compare or mask, from [`AtomicOpcode::COMPARE_SWAP`] to [`AtomicOpcode::MASKED_SWAP`].
    Compare {
        /// The operation.
        atomic: Atomic,
        /// The comparand of the memory, or the mask; the upper half first.
        compare: u128,
        /// Its replacement.
        swap: u128,
    },
    /// Rendezvous, 24 B (the reference and a reading), in the first packet of a message.
    Rendezvous(Rendezvous),
    /// Synchronised write, 4 B (the reference only).
    Sync {
        /// The group.
        group: u16,
        /// Operations of the group.
        count: u16,
    },
}

/// Figure 3-16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Atomic {
    /// The arithmetic.
    pub opcode: AtomicOpcode,
    /// The operands' type.
    pub datatype: Datatype,
    /// Semantic control, table 3-23: 1 cacheable, 2 coherent with the processor.
    pub semantics: u8,
}

/// Where the receiver reads the rest of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rendezvous {
    /// Bytes that the sender sends unasked (`eager_length`).
    pub eager: u32,
    /// The generation of the index below.
    pub generation: u8,
    /// The process to read from, 12 bits.
    pub process: u16,
    /// Its queue, 12 bits.
    pub index: u16,
    /// Where to read from.
    pub offset: u64,
    /// The memory key to read with.
    pub key: u64,
}

/// The fields of every response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// In which list the target found the buffer, 2 bits, table 3-20: 0 expected, 1 overflow.
    pub list: u8,
    /// The kind of response, 6 bits.
    pub opcode: ResponseOpcode,
    /// The outcome, 6 bits.
    pub code: ReturnCode,
    /// The job, 24 bits.
    pub job: u32,
}

/// Table 3-11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The fields of every response.
    pub answer: Answer,
    /// The message that it answers.
    pub message: u16,
    /// The generation of the resource index.
    pub generation: u8,
    /// Bytes that the target wrote (`modified_length`); SUET: those of the request.
    pub length: u32,
}

/// Table 3-12. The payload's length is 14 bits by two codes, 12 by a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataResponse {
    /// The fields of every response.
    pub answer: Answer,
    /// The number of this response's own message.
    pub message: u16,
    /// The generation of the resource index; reserved in Wireshark.
    pub generation: u8,
    /// The read that it answers.
    pub request: u16,
    /// Bytes that the target read (`modified_length`).
    pub length: u32,
    /// Where in the message its payload starts.
    pub offset: u32,
}

/// Table 3-13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallDataResponse {
    /// The fields of every response.
    pub answer: Answer,
    /// The sequence number of the request (`original_request_psn`).
    pub request_psn: u32,
}
