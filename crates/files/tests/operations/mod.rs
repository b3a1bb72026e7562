//! The operations of fuzzing on an input, shared by the fuzz target and the test that replays its corpus.

use strandway_files::copy::{Message, Piece};

/// Reads the bytes as a message of a copy and as a parcel; a value that can be read must be written as the same bytes.
pub(crate) fn check_copy(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes, "a message is encoded as it was decoded");
    }
    let mut rest = bytes;
    while let Ok(Some(piece)) = Piece::next(&mut rest) {
        let mut again = Vec::new();
        piece.put(&mut again);
        let end = bytes.len() - rest.len();
        assert_eq!(again, bytes[end - again.len()..end], "a piece is encoded as it was decoded");
    }
}
