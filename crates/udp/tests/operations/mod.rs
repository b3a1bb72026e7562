//! What fuzzing does with an input, shared by the fuzz target and the tests that replay its corpus.

use strandway_udp::frame::{self, Descriptor, Frame, HEADER};

/// Reads the bytes as a datagram and as a descriptor; what can be read must be what was written.
pub(crate) fn check_frame(bytes: &[u8]) {
    if let Ok(Frame::Sealed(sealed)) = frame::decode(bytes) {
        let mut again = Vec::new();
        frame::encode_sealed(&sealed, &mut again);
        assert_eq!(again, bytes[..HEADER], "a header is encoded as it was decoded");
    }
    if let Ok(descriptor) = Descriptor::decode(bytes) {
        let mut again = Vec::new();
        descriptor.encode(&mut again);
        assert_eq!(again.len(), descriptor.bytes());
        assert_eq!(again, bytes[..again.len()], "a descriptor is encoded as it was decoded");
    }
}
