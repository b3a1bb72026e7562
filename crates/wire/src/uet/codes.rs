//! The numbers of UET that name operations, answers and reasons.
//!
//! A number that no source names stays what it is: it can be read and written, and has no text. Only numbers that
//! change the layout of the bytes behind them must be known; [`super::decode`] refuses the others.

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident $($value:literal $constant:ident $text:literal)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u8);

        impl $name {
            $(
                #[doc = concat!($text, ".")]
                pub const $constant: $name = $name($value);
            )*

            /// The meaning of the number; `None` for one that no source names.
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The operation of a request: 6 bits, table 3-17. SUET, the reference and Wireshark agree; the last two are the
    /// reference's only.
    Opcode
    0x00 NO_OP "no operation"
    0x01 WRITE "write into the memory of a key"
    0x02 READ "read from the memory of a key"
    0x03 ATOMIC "atomic operation without a result"
    0x04 FETCHING_ATOMIC "atomic operation that returns the old value"
    0x05 SEND "send into the next receive buffer"
    0x06 RENDEZVOUS_SEND "send of which the receiver reads the rest"
    0x07 DATAGRAM_SEND "unreliable send of one packet"
    0x08 DEFERRABLE_SEND "send that the receiver may put off"
    0x09 TAGGED_SEND "send into the receive buffer of a tag"
    0x0a RENDEZVOUS_TAGGED_SEND "tagged send of which the receiver reads the rest"
    0x0b DEFERRABLE_TAGGED_SEND "tagged send that the receiver may put off"
    0x0c DEFERRABLE_READY "the receiver is ready for a send that it put off"
    0x0d TAGGED_SEND_ATOMIC "atomic operation on the buffer of a tag"
    0x0e TAGGED_SEND_FETCHING_ATOMIC "atomic operation on the buffer of a tag that returns the old value"
    0x0f MESSAGE_ERROR "the initiator gives up a message"
    0x10 SYNC_WRITE "write of a group whose completions are counted together"
    0x11 SYNC_ATOMIC "atomic operation of a group whose completions are counted together"
}

codes! {
    /// The kind of a response: 6 bits, table 3-18. SUET, the reference and Wireshark agree.
    ResponseOpcode
    0 DEFAULT "default response, which the target does not keep"
    1 RESPONSE "response, which the target keeps until it is cleared"
    2 WITH_DATA "response with data"
    3 NONE "no response yet"
}

codes! {
    /// The outcome of a request: 6 bits, table 3-19. SUET, the reference and Wireshark agree.
    ReturnCode
    0x00 NULL "nothing to return"
    0x01 OK "success"
    0x02 BAD_GENERATION "the resource index has been used again since"
    0x03 DISABLED "the resource index is disabled"
    0x04 DISABLED_GENERATION "the generation of the resource index is disabled"
    0x05 NO_MATCH "no receive buffer matches"
    0x06 UNSUPPORTED_OPERATION "the operation is not supported"
    0x07 UNSUPPORTED_SIZE "the size is not supported"
    0x08 TRANSLATION_INVALID "the address translation is invalid"
    0x09 TRANSLATION_PERMISSION "the address translation forbids the access"
    0x0a TRANSLATION_ERROR "the translation service failed"
    0x0b NO_TRANSLATION "the address has no translation"
    0x0c TRANSLATION_RANGE "the address is outside the translated range"
    0x0d HOST_POISONED "the host's memory is poisoned"
    0x0e HOST_FAILED "the host could not complete the access"
    0x0f ATOMIC_OPERATION "the atomic operation is not supported"
    0x10 ATOMIC_DATATYPE "the type of the atomic operation is not supported"
    0x11 ATOMIC_SIZE "the size of the atomic operation is not supported"
    0x12 ATOMIC_UNALIGNED "the address of the atomic operation is not aligned"
    0x13 ATOMIC_NAN "floating point: not a number"
    0x14 ATOMIC_UNDERFLOW "floating point: underflow"
    0x15 ATOMIC_OVERFLOW "floating point: overflow"
    0x16 ATOMIC_INEXACT "floating point: inexact"
    0x17 PERMISSION "the access is forbidden"
    0x18 OPERATION "the operation violates the protocol"
    0x19 BAD_INDEX "no such resource index"
    0x1a BAD_PROCESS "no such process on the endpoint"
    0x1b BAD_JOB "no such job"
    0x1c BAD_KEY "no such memory key"
    0x1d BAD_ADDRESS "the address is outside the memory of the key"
    0x1e CANCELLED "cancelled"
    0x1f UNDELIVERABLE "undeliverable"
    0x20 UNCORRECTABLE "uncorrectable error"
    0x21 UNCORRECTABLE_TRANSIENT "transient uncorrectable error"
    0x22 TOO_LONG "the message is longer than its buffer"
    0x23 INITIATOR_ERROR "the initiator reported an error"
    0x24 DROPPED "dropped"
}

codes! {
    /// Why a packet is refused: 8 bits, table 3-58. The reference and Wireshark agree.
    NackCode
    0x01 TRIMMED "trimmed by a switch"
    0x02 TRIMMED_LAST_HOP "trimmed by the last switch"
    0x03 TRIMMED_ACK "trimmed acknowledgement, which version 1.0.3 no longer has"
    0x04 NO_CONTEXT "no delivery context is free"
    0x05 NO_CONGESTION_CONTEXT "no congestion control context is free"
    0x06 NO_BITMAP "no bitmap is free"
    0x07 NO_PACKET_BUFFER "no packet buffer is free"
    0x08 NO_GUARANTEED_DELIVERY "no room for a response that must be kept"
    0x09 NO_MESSAGE "no room for the state of a message"
    0x0a NO_RESOURCE "some other resource is short"
    0x0b BEYOND_WINDOW "the sequence number is outside the window"
    0x0d OUT_OF_ORDER "ordered delivery: an earlier packet is missing"
    0x0e UNKNOWN_CONTEXT "the target has no such delivery context"
    0x0f HEADER_MISMATCH "the header does not fit the delivery context"
    0x10 CLOSING "the delivery context is closing"
    0x11 CLOSING_IN_ERROR "the delivery context is closing, with packets outstanding"
    0x12 NOT_RECEIVED "the packet asked for has not arrived"
    0x13 RESPONSE_UNAVAILABLE "the response asked for is gone"
    0x14 ACK_WITH_DATA "the acknowledgement asked for has data"
    0x15 INVALID_SYN "the opening is invalid"
    0x16 MODE_MISMATCH "the delivery context has the other mode"
    0x17 NEW_START_PSN "start again from the sequence number in the payload"
    0x18 IN_SEMANTICS "the request is still being processed"
    0x19 UNEXPECTED "unexpected event"
    0x1a INFERRED_LOSS "the receiver infers that the packet is lost"
    0xfd EXPERIMENTAL "experimental"
    0xfe EXPERIMENTAL_ERROR "experimental: error"
    0xff EXPERIMENTAL_FATAL "experimental: fatal"
}

codes! {
    /// The kind of a control packet: 4 bits, as the reference has them; Wireshark knows those up to 8.
    ControlKind
    0 NO_OPERATION "no operation"
    1 ACK_REQUEST "asks for the acknowledgement of its sequence number"
    2 CLEAR "clears responses up to the sequence number in the payload"
    3 CLEAR_REQUEST "asks the initiator to clear up to the sequence number in the payload"
    4 CLOSE "closes the delivery context"
    5 CLOSE_REQUEST "asks the initiator to close the delivery context"
    6 PROBE "asks for an acknowledgement from the base in the payload on"
    7 CREDIT "credit"
    8 CREDIT_REQUEST "asks for credit"
    9 NEGOTIATION "negotiation"
}

codes! {
    /// The arithmetic of an atomic operation: 8 bits, table 3-21. SUET, the reference and Wireshark agree.
    AtomicOpcode
    0x00 MIN "the smaller value"
    0x01 MAX "the larger value"
    0x02 SUM "sum"
    0x03 DIFFERENCE "difference"
    0x04 PRODUCT "product"
    0x05 LOGICAL_OR "logical or"
    0x06 LOGICAL_AND "logical and"
    0x07 BINARY_OR "binary or"
    0x08 BINARY_AND "binary and"
    0x09 LOGICAL_XOR "logical exclusive or"
    0x0a BINARY_XOR "binary exclusive or"
    0x0b READ "read"
    0x0c WRITE "write"
    0x0d COMPARE_SWAP "swap if equal"
    0x0e COMPARE_SWAP_NE "swap if not equal"
    0x0f COMPARE_SWAP_LE "swap if the comparand is less or equal"
    0x10 COMPARE_SWAP_LT "swap if the comparand is less"
    0x11 COMPARE_SWAP_GE "swap if the comparand is greater or equal"
    0x12 COMPARE_SWAP_GT "swap if the comparand is greater"
    0x13 MASKED_SWAP "swap the bits of a mask"
    0x14 INVALIDATE "invalidate"
}

codes! {
    /// The type of the operands of an atomic operation: 8 bits, table 3-22. SUET, the reference and Wireshark agree.
    Datatype
    0x00 INT8 "signed, 8 bits"
    0x01 UINT8 "unsigned, 8 bits"
    0x02 INT16 "signed, 16 bits"
    0x03 UINT16 "unsigned, 16 bits"
    0x04 INT32 "signed, 32 bits"
    0x05 UINT32 "unsigned, 32 bits"
    0x06 INT64 "signed, 64 bits"
    0x07 UINT64 "unsigned, 64 bits"
    0x08 INT128 "signed, 128 bits"
    0x09 UINT128 "unsigned, 128 bits"
    0x0a FLOAT "binary32"
    0x0b DOUBLE "binary64"
    0x0c FLOAT_COMPLEX "complex of binary32"
    0x0d DOUBLE_COMPLEX "complex of binary64"
    0x0e LONG_DOUBLE "long double"
    0x0f LONG_DOUBLE_COMPLEX "complex of long double"
    0x10 BFLOAT16 "bfloat16"
    0x11 FLOAT16 "binary16"
}
