//! Replays the fuzzing corpus of copies as an ordinary test; its seeds pin the messages.

use super::operations;
use std::path::PathBuf;
use strandway_files::copy::{Answer, Entry, FileError, Kind, Message, Modified, More, Piece, VERSION};
use strandway_udp::RemoteRegion;

/// A message of each kind, and a parcel.
fn copy_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let entry = |kind| Entry {
        id: 7,
        path: b"a/b".to_vec(),
        mode: 0o640,
        modified: Modified { seconds: 1_700_000_000, nanoseconds: 5 },
        kind,
        more: More::default(),
    };
    let entries = vec![entry(Kind::File(9)), entry(Kind::Directory), entry(Kind::Link(b"../c".to_vec()))];
    let answers = [Answer::Have, Answer::Missing(vec![(0, 2), (5, 1)]), Answer::Failed(FileError::Full)];
    let answers = answers.into_iter().enumerate().map(|(i, answer)| (i as u32, answer)).collect();
    let results = vec![(1, Ok(())), (2, Err(FileError::Other(5)))];
    let hello =
        Message::Hello { version: VERSION, block_log2: 22, slots: 8, dry_run: false, directory: b"x/y".to_vec() };
    let mut parcel = Vec::new();
    Piece::Block { id: 1, offset: 1 << 22, bytes: b"bytes" }.put(&mut parcel);
    Piece::End { id: 1, hash: [3; 32] }.put(&mut parcel);
    Piece::Abandon { id: 2 }.put(&mut parcel);
    let more = More { sparse: true, owner: Some((5, 6)), attributes: Some(vec![(b"user.a".to_vec(), b"x".to_vec())]) };
    let mut kept = vec![entry(Kind::File(9)), entry(Kind::Hard(b"a/c".to_vec()))];
    kept[0].more = more;
    let mut zeros = Vec::new();
    Piece::Zeros { id: 1, offset: 1 << 22, length: 4096 }.put(&mut zeros);
    vec![
        ("hello", hello.encode()),
        ("welcome", Message::Welcome { memory: RemoteRegion::to_write(3, 4), slots: 8 }.encode()),
        ("refused", Message::Refused(FileError::ReadOnly).encode()),
        ("offer", Message::Offer(entries.clone()).encode()),
        ("settle", Message::Settle(entries).encode()),
        ("answers", Message::Answers(answers).encode()),
        ("progress", Message::Progress { rebuilt: 5, freed: vec![0, 3], results }.encode()),
        ("parcel", parcel),
        ("offer_more", Message::Offer(kept).encode()),
        ("list", Message::List { path: b"a/b".to_vec(), after: b"c".to_vec() }.encode()),
        ("names", Message::Names { more: true, names: vec![(true, b"d".to_vec()), (false, b"e".to_vec())] }.encode()),
        ("remove", Message::Remove(vec![(false, b"a/e".to_vec()), (true, b"a".to_vec())]).encode()),
        ("parcel_of_zeros", zeros),
    ]
}

/// After an intended change of the protocol, which needs another version, run it once with `UPDATE_CORPUS=1`.
#[test]
fn the_messages_of_a_copy_are_what_they_were_and_their_corpus_passes() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "copy_message"].iter().collect();
    for (name, bytes) in copy_seeds() {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &bytes).expect("a file can be written");
        }
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(stored, bytes, "{name}");
    }
    for entry in std::fs::read_dir(&folder).expect("the corpus is part of the repository") {
        operations::check_copy(&std::fs::read(entry.expect("a file").path()).expect("a file"));
    }
}
