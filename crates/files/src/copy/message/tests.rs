use super::*;
use crate::copy::More;
use proptest::prelude::*;

fn file_error() -> impl Strategy<Value = FileError> {
    prop_oneof![1u16..20, 256u16..400].prop_map(|number| FileError::numbered(number).expect("a number of one"))
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        any::<u64>().prop_map(Kind::File),
        Just(Kind::Directory),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Kind::Link),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Kind::Hard)
    ];
    let value = prop::collection::vec(any::<u8>(), 0..20);
    let attributes = prop::collection::vec(("user[.][a-z]{1,8}", value), 0..3);
    let attributes = prop::option::of(attributes.prop_map(|all| {
        all.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect::<Vec<(Vec<u8>, Vec<u8>)>>()
    }));
    let more = (any::<bool>(), prop::option::of(any::<(u32, u32)>()), attributes)
        .prop_map(|(sparse, owner, attributes)| More { sparse, owner, attributes });
    let path = prop::collection::vec(any::<u8>(), 0..60);
    (any::<u32>(), path, 0u16..0o1000, any::<i64>(), 0u32..1_000_000_000, kind, more).prop_map(
        |(id, path, mode, seconds, nanoseconds, kind, more)| {
            let modified = Modified { seconds, nanoseconds };
            Entry { id, path, mode, modified, kind, more }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    let runs = prop::collection::vec((any::<u32>(), any::<u32>()), 0..=RUNS_MAX);
    let answer = prop_oneof![Just(Answer::Have), runs.prop_map(Answer::Missing), file_error().prop_map(Answer::Failed)];
    let result = prop_oneof![Just(Ok(())), file_error().prop_map(Err)];
    prop_oneof![
        (any::<u16>(), any::<u8>(), any::<u16>(), any::<bool>(), bytes(50)).prop_map(
            |(version, block_log2, slots, dry_run, directory)| Message::Hello {
                version,
                block_log2,
                slots,
                dry_run,
                directory
            }
        ),
        (any::<u64>(), any::<u64>(), any::<u16>()).prop_map(|(key, bytes, slots)| Message::Welcome {
            memory: RemoteRegion::to_write(key, bytes >> 3),
            slots
        }),
        file_error().prop_map(Message::Refused),
        prop::collection::vec(entry(), 0..9).prop_map(Message::Offer),
        prop::collection::vec(entry(), 0..9).prop_map(Message::Settle),
        prop::collection::vec((any::<u32>(), answer), 0..9).prop_map(Message::Answers),
        (any::<u64>(), prop::collection::vec(any::<u16>(), 0..9), prop::collection::vec((any::<u32>(), result), 0..9))
            .prop_map(|(rebuilt, freed, results)| Message::Progress { rebuilt, freed, results }),
        (bytes(50), bytes(50)).prop_map(|(path, after)| Message::List { path, after }),
        (any::<bool>(), prop::collection::vec((any::<bool>(), bytes(20)), 0..9))
            .prop_map(|(more, names)| Message::Names { more, names }),
        prop::collection::vec((any::<bool>(), bytes(20)), 0..9).prop_map(Message::Remove),
    ]
}

proptest! {
    #[test]
    fn written_files_are_read_back(message in message()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn the_length_of_an_entry_is_what_it_takes(entry in entry()) {
        let mut out = Vec::new();
        entry.put(&mut out);
        prop_assert_eq!(out.len(), entry.length());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_what_is_read_is_written_alike(message in message(), at: prop::sample::Index, byte: u8) {
        let mut bytes = message.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Message::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes.clone());
        }
        bytes.truncate(at);
        if let Ok(read) = Message::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn a_parcel_is_read_piece_by_piece(lengths in prop::collection::vec(0usize..2_000, 0..6), cut: prop::sample::Index) {
        let contents = vec![7; 2_000];
        let mut parcel = Vec::new();
        let mut pieces = Vec::new();
        for (i, length) in lengths.iter().enumerate() {
            pieces.push(Piece::Block { id: i as u32, offset: 1 << (40 + i), bytes: &contents[..*length] });
            pieces.push(Piece::Zeros { id: i as u32, offset: 1 << i, length: *length as u32 });
            pieces.push(Piece::End { id: i as u32, hash: [i as u8; 32] });
            pieces.push(Piece::Abandon { id: i as u32 });
        }
        pieces.iter().for_each(|piece| piece.put(&mut parcel));
        let mut rest = &parcel[..];
        for piece in &pieces {
            prop_assert_eq!(Piece::next(&mut rest), Ok(Some(*piece)));
        }
        prop_assert_eq!(Piece::next(&mut rest), Ok(None));
        let mut short = &parcel[..if parcel.is_empty() { 0 } else { cut.index(parcel.len()) }];
        while let Ok(Some(_)) = Piece::next(&mut short) {}
    }
}
