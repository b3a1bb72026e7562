//! The time that sealing and opening a packet takes, with `graviola`, `aws-lc-rs` and `ring`, in one run.
//!
//! ```text
//! cargo run --release --manifest-path bench/cipher/Cargo.toml -- [MEGABYTES]
//! ```
//!
//! A sender's payload comes from 8 MiB of memory, and datagrams go into a buffer of 64 kB, as in `strandway-udp`. A
//! receiver's datagrams come from a buffer that was just written, and payload goes to 8 MiB of memory. The rows are
//! measured in turns, five rounds; `ns` is the median per packet, `best` the fastest round. `direct` opens into the
//! memory itself, which is not safe before the tag was checked; it shows what the copy costs.

use std::hint::black_box;
use std::time::Instant;

/// A datagram's header, which is authenticated and not encrypted; transport header and descriptor; the tag.
const HEADER: usize = 24;
const TRANSPORT: usize = 48;
const TAG: usize = 16;
const MEMORY: usize = 8 << 20;
const BATCH: usize = 64_000;
const ROUNDS: usize = 5;

fn nonce(counter: usize) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&(counter as u64).to_be_bytes());
    bytes
}

/// Implements [`Cipher`] for `ring` and for `aws-lc-rs`, which has its names.
macro_rules! library {
    ($name:ident, $aead:path) => {
        mod $name {
            use super::{Cipher, nonce};
            use $aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

            pub(super) struct Library(pub(super) LessSafeKey);

            impl Library {
                pub(super) fn new() -> Library {
                    Library(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes")))
                }
            }

            impl Cipher for Library {
                fn seal(&self, counter: usize, header: &[u8], body: &mut [u8], tag: &mut [u8]) {
                    let nonce = Nonce::assume_unique_for_key(nonce(counter));
                    let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(header), body).expect("short");
                    tag.copy_from_slice(sealed.as_ref());
                }

                fn open(&self, counter: usize, header: &[u8], body_and_tag: &mut [u8]) {
                    let nonce = Nonce::assume_unique_for_key(nonce(counter));
                    self.0.open_in_place(nonce, Aad::from(header), body_and_tag).expect("genuine");
                }
            }
        }
    };
}

library!(of_ring, ring::aead);
library!(of_aws, aws_lc_rs::aead);

/// The library of `strandway-udp`.
struct Graviola(graviola::aead::AesGcm);

impl Cipher for Graviola {
    fn seal(&self, counter: usize, header: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.0.encrypt(&nonce(counter), header, body, tag.try_into().expect("16 bytes"));
    }

    fn open(&self, counter: usize, header: &[u8], body_and_tag: &mut [u8]) {
        let (body, tag) = body_and_tag.split_at_mut(body_and_tag.len() - TAG);
        self.0.decrypt(&nonce(counter), header, body, tag).expect("genuine");
    }
}

/// AES-128-GCM in place.
trait Cipher {
    fn seal(&self, counter: usize, header: &[u8], body: &mut [u8], tag: &mut [u8]);
    fn open(&self, counter: usize, header: &[u8], body_and_tag: &mut [u8]);
}

/// A way to fill a datagram: counter, datagram with header and transport header, payload.
type Seal<'a> = Box<dyn Fn(usize, &mut [u8], &[u8]) + 'a>;
/// A way to take a datagram: counter, datagram, room for its body, place of its payload.
type Open<'a> = Box<dyn Fn(usize, &mut [u8], &mut [u8], &mut [u8]) + 'a>;

/// Copies the payload, then seals in place; `hidden`: is the body encrypted?
fn copy_and_seal<'a>(cipher: &'a dyn Cipher, hidden: bool) -> Seal<'a> {
    Box::new(move |counter, datagram, payload| {
        let end = datagram.len() - TAG;
        datagram[HEADER + TRANSPORT..end].copy_from_slice(payload);
        let (signed, tag) = datagram.split_at_mut(end);
        let (header, body) = signed.split_at_mut(if hidden { HEADER } else { end });
        cipher.seal(counter, header, body, tag);
    })
}

/// Opens in place, then copies the payload.
fn open_and_copy<'a>(cipher: &'a dyn Cipher, hidden: bool) -> Open<'a> {
    Box::new(move |counter, datagram, _, place| {
        let end = datagram.len() - TAG;
        let (header, rest) = datagram.split_at_mut(if hidden { HEADER } else { end });
        cipher.open(counter, header, rest);
        place.copy_from_slice(&datagram[HEADER + TRANSPORT..end]);
    })
}

fn main() {
    let megabytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let (ring, aws) = (of_ring::Library::new(), of_aws::Library::new());
    let graviola = Graviola(graviola::aead::AesGcm::new(&[7; 16]));
    let of_counter = |counter| aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce(counter));
    let seals: Vec<(&str, Seal<'_>)> = vec![
        ("ring: copy, seal in place", copy_and_seal(&ring, true)),
        ("aws-lc: copy, seal in place", copy_and_seal(&aws, true)),
        ("graviola: copy, seal in place", copy_and_seal(&graviola, true)),
        (
            "aws-lc: seal from memory to datagram",
            Box::new(|counter, datagram, payload| {
                let (header, rest) = datagram.split_at_mut(HEADER);
                let (transport, rest) = rest.split_at_mut(TRANSPORT);
                let aad = aws_lc_rs::aead::Aad::from(&*header);
                aws.0.seal_in_place_scatter(of_counter(counter), aad, transport, payload, rest).expect("short");
            }),
        ),
        ("ring: copy, authenticate only", copy_and_seal(&ring, false)),
        ("aws-lc: copy, authenticate only", copy_and_seal(&aws, false)),
        ("graviola: copy, authenticate only", copy_and_seal(&graviola, false)),
    ];
    let gather = |counter, header: &[u8], body: &[u8], tag: &[u8], room: &mut [u8]| {
        let aad = aws_lc_rs::aead::Aad::from(header);
        aws.0.open_separate_gather(of_counter(counter), aad, body, tag, room)
    };
    let opens: Vec<(&str, bool, Open<'_>)> = vec![
        ("ring: open in place, copy", true, open_and_copy(&ring, true)),
        ("aws-lc: open in place, copy", true, open_and_copy(&aws, true)),
        ("graviola: open in place, copy", true, open_and_copy(&graviola, true)),
        (
            "aws-lc: open into a small room, copy",
            true,
            Box::new(|counter, datagram, room, place| {
                let (header, rest) = datagram.split_at(HEADER);
                let (body, tag) = rest.split_at(rest.len() - TAG);
                gather(counter, header, body, tag, &mut room[..body.len()]).expect("genuine");
                place.copy_from_slice(&room[TRANSPORT..body.len()]);
            }),
        ),
        (
            "aws-lc: direct, payload only",
            true,
            Box::new(|counter, datagram, _, place| {
                let (header, rest) = datagram.split_at(HEADER);
                let (body, tag) = rest.split_at(rest.len() - TAG);
                // The tag is that of the whole body, so this fails after all the work.
                let _ = black_box(gather(counter, header, &body[TRANSPORT..], tag, place));
            }),
        ),
        ("ring: authenticate only, copy", false, open_and_copy(&ring, false)),
        ("aws-lc: authenticate only, copy", false, open_and_copy(&aws, false)),
        ("graviola: authenticate only, copy", false, open_and_copy(&graviola, false)),
    ];
    for payload in [64, 256, 1_344, 4_096] {
        println!("payload of {payload} B\n  {:40} {:>8} {:>8} {:>8}", "", "ns", "best", "Gb/s");
        let mut times = vec![Vec::new(); seals.len() + opens.len()];
        for _ in 0..ROUNDS {
            for ((_, seal), times) in seals.iter().zip(&mut times) {
                times.push(time_of_sealing(payload, megabytes, seal));
            }
            for ((_, hidden, open), times) in opens.iter().zip(&mut times[seals.len()..]) {
                times.push(time_of_opening(payload, megabytes, *hidden, &aws, open));
            }
        }
        let names = seals.iter().map(|(name, _)| name).chain(opens.iter().map(|(name, ..)| name));
        for (name, times) in names.zip(&mut times) {
            times.sort_by(f64::total_cmp);
            let median = times[ROUNDS / 2];
            println!("  {name:40} {median:8.1} {:8.1} {:8.1}", times[0], payload as f64 * 8.0 / median);
        }
    }
}

/// Packets of a measurement.
fn packets(payload: usize, megabytes: usize) -> usize {
    (megabytes * 1_000_000 / payload).min(2_000_000)
}

/// Nanoseconds per packet.
fn time_of_sealing(payload: usize, megabytes: usize, seal: &Seal<'_>) -> f64 {
    let (memory, mut buffer) = (vec![5; MEMORY], vec![0; BATCH]);
    let length = HEADER + TRANSPORT + payload + TAG;
    let count = packets(payload, megabytes);
    let began = Instant::now();
    for counter in 0..count {
        let from = counter % (MEMORY / payload) * payload;
        let at = counter % (BATCH / length) * length;
        let datagram = &mut buffer[at..at + length];
        datagram[..HEADER + TRANSPORT].fill(1);
        seal(counter, datagram, &memory[from..from + payload]);
    }
    black_box(&buffer);
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Nanoseconds per packet, with the copy that stands for the kernel's.
fn time_of_opening(payload: usize, megabytes: usize, hidden: bool, cipher: &dyn Cipher, open: &Open<'_>) -> f64 {
    let length = HEADER + TRANSPORT + payload + TAG;
    let per_batch = BATCH / length;
    let mut batch = vec![3; per_batch * length];
    for (counter, datagram) in batch.chunks_mut(length).enumerate() {
        copy_and_seal(cipher, hidden)(counter, datagram, &vec![5; payload]);
    }
    let (mut memory, mut inbox, mut room) = (vec![0; MEMORY], batch.clone(), vec![0; 65_536]);
    let batches = packets(payload, megabytes).div_ceil(per_batch);
    let (mut place, places) = (0, MEMORY / payload);
    let began = Instant::now();
    for _ in 0..batches {
        inbox.copy_from_slice(&batch);
        for (counter, datagram) in inbox.chunks_mut(length).enumerate() {
            let at = place % places * payload;
            place += 1;
            open(counter, datagram, &mut room, &mut memory[at..at + payload]);
        }
    }
    black_box(&memory);
    began.elapsed().as_nanos() as f64 / (batches * per_batch) as f64
}
