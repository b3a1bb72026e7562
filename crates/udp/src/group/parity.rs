//! The parity of an operation at one member: made from its buffer when it leaves, kept when it arrives, and used to
//! rebuild lost chunks.

use crate::error::Error;
use std::collections::BTreeMap;
use strandway_erasure::{Decoder, Encoder};
use strandway_proto::cast::{Coded, Layout, Parity, Rebuild};
use strandway_proto::partial::Progress;

/// A member's parity of one operation. It never keeps more bytes than the parity of the whole buffer has.
pub(super) struct Coding {
    parity: Parity,
    layout: Layout,
    encoder: Encoder,
    decoder: Decoder,
    /// The group whose parity was made last, and its chunks, concatenated. One is enough, since groups leave in order.
    made: Option<(u32, Vec<u8>)>,
    /// Chunks that have come, by their numbers.
    here: BTreeMap<u32, Box<[u8]>>,
}

impl Coding {
    /// Parity of a buffer with this layout.
    pub(super) fn new(layout: Layout, parity: Parity) -> Coding {
        let (encoder, decoder) = (Encoder::new(parity.code()), Decoder::new(parity.code()));
        Coding { parity, layout, encoder, decoder, made: None, here: BTreeMap::new() }
    }

    /// The number of all chunks, data and parity.
    pub(super) const fn numbers(&self) -> u32 {
        self.parity.numbers()
    }

    /// Is this the number of a chunk of parity?
    pub(super) fn is_parity(&self, chunk: u32) -> bool {
        (self.layout.numbers()..self.parity.numbers()).contains(&chunk)
            && self.parity.group(self.parity.group_of(chunk)).parity.contains(&chunk)
    }

    /// The bytes of a group's data in the buffer.
    fn data(&self, coded: &Coded) -> std::ops::Range<usize> {
        let end =
            |chunk: u32| self.layout.place(chunk).map_or(0, |(first, length)| first as usize + usize::from(length));
        let first = self.layout.place(coded.data.start).map_or(0, |(first, _)| first as usize);
        first..end(coded.data.end.saturating_sub(1)).max(first)
    }

    /// A chunk of parity, computed from a buffer whose data are complete.
    ///
    /// # Panics
    /// If it is not a chunk of parity ([`Coding::is_parity`]).
    pub(super) fn make(&mut self, chunk: u32, buffer: &[u8]) -> &[u8] {
        let length = usize::from(self.layout.chunk_bytes());
        let group = self.parity.group_of(chunk);
        let coded = self.parity.group(group);
        if self.made.as_ref().is_none_or(|made| made.0 != group) {
            let data: Vec<&[u8]> = buffer[self.data(&coded)].chunks(length).collect();
            let mut bytes = self.made.take().map_or_else(Vec::new, |made| made.1);
            bytes.clear();
            bytes.resize(coded.parity.len() * length, 0);
            let mut pieces: Vec<&mut [u8]> = bytes.chunks_mut(length).collect();
            if let Err(error) = self.encoder.encode(&data, &mut pieces) {
                unreachable!("a group has as many pieces as its code: {error}");
            }
            self.made = Some((group, bytes));
        }
        let at = (chunk - coded.parity.start) as usize * length;
        self.made.as_ref().map_or(&[], |made| &made.1[at..at + length])
    }

    /// Is a chunk of parity here?
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.here.contains_key(&chunk)
    }

    /// Keeps a chunk of parity that has come, if its group misses any data.
    pub(super) fn keep(&mut self, chunk: u32, payload: &[u8], present: &Progress) {
        let mut data = self.parity.group(self.parity.group_of(chunk)).data;
        if data.any(|chunk| !present.has_packet(chunk)) {
            self.here.insert(chunk, payload.into());
        }
    }

    /// Rebuilds the missing chunks of a group, in place.
    ///
    /// # Errors
    /// If the operation has no such group, or has fewer of its chunks than the caller says.
    pub(super) fn rebuild(
        &mut self,
        rebuild: &Rebuild,
        buffer: &mut [u8],
        present: &mut Progress,
    ) -> Result<(), Error> {
        let wrong = || Error::Config(format!("chunks from {} on cannot be rebuilt: too few are here", rebuild.data));
        if rebuild.data >= self.layout.numbers() {
            return Err(wrong());
        }
        let coded = self.parity.group(self.parity.group_of(rebuild.data));
        let mut pieces = strandway_erasure::Pieces::none();
        for (piece, chunk) in coded.data.clone().chain(coded.parity.clone()).enumerate() {
            let here = if piece < coded.data.len() { present.has_packet(chunk) } else { self.has(chunk) };
            if here {
                pieces.insert(piece);
            }
        }
        let length = usize::from(self.layout.chunk_bytes());
        let mut data: Vec<&mut [u8]> = buffer[self.data(&coded)].chunks_mut(length).collect();
        let parity: Vec<&[u8]> =
            coded.parity.clone().map(|chunk| self.here.get(&chunk).map_or(&[][..], |piece| piece)).collect();
        self.decoder.rebuild(&mut data, &parity, &pieces).map_err(|_| wrong())?;
        coded.data.for_each(|chunk| {
            present.insert(chunk);
        });
        coded.parity.for_each(|chunk| {
            self.here.remove(&chunk);
        });
        Ok(())
    }
}

/// The parity of a whole buffer, chunk by chunk in the order of their numbers; unused numbers get an empty slice.
pub fn parity_chunks(layout: Layout, parity: Parity, buffer: &[u8], mut each: impl FnMut(u32, &[u8])) {
    let mut coding = Coding::new(layout, parity);
    for chunk in layout.numbers()..parity.numbers() {
        match coding.is_parity(chunk) {
            true => each(chunk, coding.make(chunk, buffer)),
            false => each(chunk, &[]),
        }
    }
}
