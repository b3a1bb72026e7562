//! With every kernel, a code repairs all losses that it should repair, and refuses all others.

use proptest::prelude::*;
use strandway_erasure::{Code, Decoder, Encoder, Kernel, PieceError, Pieces};

/// A multiplication in GF(2^8) from its definition, bit by bit, modulo x^8 + x^4 + x^3 + x^2 + 1.
fn times(a: u8, b: u8) -> u8 {
    let mut product = (0..8).filter(|i| b >> i & 1 == 1).fold(0_u16, |sum, i| sum ^ u16::from(a) << i);
    for bit in (8..15).rev() {
        product ^= (product >> bit & 1) * (0x11d << (bit - 8));
    }
    product as u8
}

/// Parity from its definition: a sum over all data, byte by byte. MDS counts data `j` as `(x_0 + j) / (x_r + j)` with
/// `x_r = 255 - r`.
fn naive_parity(code: Code, data: &[Vec<u8>], parity: usize, length: usize) -> Vec<Vec<u8>> {
    let inverse = |a: u8| (1..=255).find(|b| times(a, *b) == 1).expect("no zero");
    let constant = |r: usize, j: usize| match code.kind() {
        strandway_erasure::CodeKind::Xor => u8::from(j % parity == r),
        strandway_erasure::CodeKind::Mds => times(255 ^ j as u8, inverse((255 - r as u8) ^ j as u8)),
    };
    let mut made = vec![vec![0; length]; parity];
    for (r, made) in made.iter_mut().enumerate() {
        for (j, piece) in data.iter().enumerate() {
            let constant = constant(r, j);
            made.iter_mut().zip(piece).for_each(|(m, d)| *m ^= times(constant, *d));
        }
    }
    made
}

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|k| k.available())
}

/// Bytes that look random, from a seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

fn slices(pieces: &[Vec<u8>]) -> Vec<&[u8]> {
    pieces.iter().map(|p| &p[..]).collect()
}

fn slices_mut(pieces: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    pieces.iter_mut().map(|p| &mut p[..]).collect()
}

/// Every group of `count` numbers below `end`, as long as there are not too many; else some of them.
fn losses(end: usize, count: usize, seed: &mut u64) -> Vec<Pieces> {
    let whole = Pieces::all(end);
    let mut all = vec![(whole, 0)];
    for _ in 0..count {
        let more = |(set, from): (Pieces, usize)| (from..end).map(move |i| (set.without(i), i + 1));
        all = all.into_iter().flat_map(more).collect();
        if all.len() > 3_000 {
            return (0..60).map(|_| random_loss(end, count, seed)).collect();
        }
    }
    all.into_iter().map(|(set, _)| set).collect()
}

fn random_loss(end: usize, count: usize, seed: &mut u64) -> Pieces {
    let mut present = Pieces::all(end);
    while present.missing_below(end).iter().count() < count {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        present.remove((*seed >> 33) as usize % end);
    }
    present
}

/// Loses pieces of a group, and asks for them back.
fn lose(decoder: &mut Decoder, data: &[Vec<u8>], parity: &[Vec<u8>], present: &Pieces) -> Result<(), PieceError> {
    let mut damaged = data.to_vec();
    let mut rest = parity.to_vec();
    for piece in present.missing_below(data.len() + parity.len()).iter() {
        match piece.checked_sub(data.len()) {
            None => damaged[piece].fill(0xee),
            Some(row) => rest[row].clear(),
        }
    }
    let before = damaged.clone();
    let result = decoder.rebuild(&mut slices_mut(&mut damaged), &slices(&rest), present);
    match &result {
        Ok(()) => assert_eq!(damaged, data, "{} lost {present:?}", decoder.code()),
        Err(_) => assert_eq!(damaged, before, "an error leaves everything as it was"),
    }
    result
}

#[test]
fn any_m_losses_of_every_group_are_repaired_and_one_more_is_refused() {
    let mut seed = 7;
    for (k, m) in [(32, 8), (32, 5), (30, 8), (5, 3), (1, 1)] {
        let code = Code::mds(k, m).expect("a code");
        for kernel in kernels() {
            let encoder = Encoder::with_kernel(code, kernel).expect("available");
            let mut decoder = Decoder::with_kernel(code, kernel).expect("available");
            // A message of `chunks` chunks is cut into groups of k; the last one may be smaller.
            for chunks in 1..=3 * k + 1 {
                let last = match chunks % k {
                    0 => code,
                    rest => code.shortened(rest),
                };
                let length = 70;
                let data: Vec<Vec<u8>> = (0..last.data()).map(|j| noise((chunks * 64 + j) as u64, length)).collect();
                let mut parity = vec![vec![0xaa; length]; last.parity()];
                encoder.encode(&slices(&data), &mut slices_mut(&mut parity)).expect("sizes fit");
                for lost in 0..=last.parity() {
                    let mut sets = losses(last.pieces(), lost, &mut seed);
                    // Patterns of losses are the same for all messages with the same last group.
                    sets.truncate(if chunks <= k { 3_000 } else { 3 });
                    for present in sets {
                        assert!(last.decodable(&present));
                        lose(&mut decoder, &data, &parity, &present).expect("repairable");
                    }
                }
                for _ in 0..20 {
                    let mut present = random_loss(last.pieces(), last.parity() + 1, &mut seed);
                    let lacking = present.missing_below(last.data());
                    let result = lose(&mut decoder, &data, &parity, &present);
                    if lacking == Pieces::none() {
                        continue;
                    }
                    let missing = last.parity() + 1;
                    assert_eq!(result, Err(PieceError::Undecodable { code: last, missing }), "{present:?}");
                    // One piece more, and it works.
                    present.insert(lacking.iter().next().expect("a loss"));
                    lose(&mut decoder, &data, &parity, &present).expect("repairable");
                }
            }
        }
    }
}

#[test]
fn xor_repairs_one_loss_per_residue_and_refuses_two() {
    for (k, m) in [(32, 8), (30, 8), (5, 3), (4, 1), (1, 1)] {
        let code = Code::xor(k, m).expect("a code");
        for kernel in kernels() {
            let encoder = Encoder::with_kernel(code, kernel).expect("available");
            let mut decoder = Decoder::with_kernel(code, kernel).expect("available");
            for data in 1..=k {
                let group = code.shortened(data);
                let data: Vec<Vec<u8>> = (0..data).map(|j| noise(j as u64, 45)).collect();
                let mut parity = vec![vec![0xaa; 45]; group.parity()];
                encoder.encode(&slices(&data), &mut slices_mut(&mut parity)).expect("sizes fit");
                let all = Pieces::all(group.pieces());
                // The first piece of each residue is lost, or its parity.
                let residues = 0..group.parity().min(data.len());
                let each =
                    residues.clone().fold(all, |set, r| set.without(if r % 2 == 0 { r } else { data.len() + r }));
                lose(&mut decoder, &data, &parity, &each).expect("repairable");
                for residue in residues {
                    let two = all.without(residue).without(data.len() + residue);
                    let refused = PieceError::Undecodable { code: group, missing: 2 };
                    assert_eq!(lose(&mut decoder, &data, &parity, &two), Err(refused), "{group}, residue {residue}");
                }
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors_and_write_nothing() {
    let code = Code::mds(4, 2).expect("a code");
    let encoder = Encoder::new(code);
    let data = vec![vec![1; 10]; 5];
    let mut parity = vec![vec![9; 10]; 3];
    let too_many = encoder.encode(&slices(&data), &mut slices_mut(&mut parity[..2]));
    assert_eq!(too_many, Err(PieceError::Count { code, data: 5, parity: 2 }));
    let too_many = encoder.add(3, &slices(&data[..2]), &mut slices_mut(&mut parity));
    assert_eq!(too_many, Err(PieceError::Count { code, data: 5, parity: 3 }));
    let overflow = encoder.add(usize::MAX, &slices(&data[..2]), &mut slices_mut(&mut parity[..2]));
    assert!(matches!(overflow, Err(PieceError::Count { .. })));

    let uneven = [vec![1; 10], vec![1; 9], vec![1; 10]];
    let result = encoder.encode(&slices(&uneven), &mut slices_mut(&mut parity[..2]));
    assert_eq!(result, Err(PieceError::Length { piece: 1, length: 9, needed: 10 }));
    let long = [vec![1; 10], vec![1; 11]];
    let result = encoder.encode(&slices(&long), &mut slices_mut(&mut parity[..2]));
    assert_eq!(result, Err(PieceError::Length { piece: 1, length: 11, needed: 10 }));
    parity[1].truncate(7);
    let result = encoder.encode(&slices(&data[..4]), &mut slices_mut(&mut parity[..2]));
    assert_eq!(result, Err(PieceError::Length { piece: 5, length: 7, needed: 10 }));
    assert!(parity.iter().flatten().all(|b| *b == 9), "nothing was written");

    let mut decoder = Decoder::new(code);
    let mut damaged = vec![vec![1; 10]; 4];
    damaged[2].truncate(5);
    let result = decoder.rebuild(&mut slices_mut(&mut damaged), &slices(&parity[..1]), &Pieces::all(5).without(1));
    assert_eq!(result, Err(PieceError::Length { piece: 2, length: 5, needed: 10 }));
    let result = decoder.rebuild(&mut slices_mut(&mut damaged), &slices(&parity[..2]), &Pieces::all(6).without(1));
    assert_eq!(result, Err(PieceError::Length { piece: 2, length: 5, needed: 10 }));
    let nothing = decoder.rebuild(&mut slices_mut(&mut damaged), &[], &Pieces::all(4).without(1));
    assert!(matches!(nothing, Err(PieceError::Undecodable { missing: 1, .. })));
    assert!(damaged.iter().flatten().all(|b| *b == 1), "nothing was written");
    assert_eq!(decoder.rebuild(&mut slices_mut(&mut damaged), &[], &Pieces::all(4)), Ok(()), "nothing to do");
}

/// A code, how much of it a group uses, lengths, and how far from an aligned address each piece starts.
fn groups() -> impl Strategy<Value = (Code, usize, usize, usize, usize, u64)> {
    let code = (any::<bool>(), 1_usize..40, 1_usize..12).prop_map(|(mds, k, m)| {
        if mds { Code::mds(k, m).expect("fits") } else { Code::xor(k.max(m), m).expect("fits") }
    });
    let lengths = prop_oneof![0_usize..200, 2_040_usize..2_060, 4_000_usize..4_200];
    code.prop_flat_map(move |code| {
        (Just(code), 1..=code.data(), lengths.clone(), 0..65_usize, 0..64_usize, any::<u64>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Odd lengths, a short last piece, buffers at any address: each kernel gives the bytes of the definition, all at
    /// once or piece by piece in any order, and gets lost data back from them.
    #[test]
    fn every_kernel_is_the_naive_field((code, used, length, cut, offset, seed) in groups()) {
        let code = code.shortened(used);
        let mut data: Vec<Vec<u8>> = (0..used).map(|j| noise(seed ^ j as u64, length)).collect();
        let short = length.saturating_sub(cut);
        data[used - 1].truncate(short);
        let expected = naive_parity(code, &data, code.parity(), length);
        // All pieces stand one after the other in one buffer, from an odd address on.
        let mut buffer = vec![0xcc; offset];
        data.iter().for_each(|d| buffer.extend(d));
        let mut rest = &buffer[offset..];
        let pieces: Vec<&[u8]> = data.iter().map(|d| rest.split_off(..d.len()).expect("long enough")).collect();
        let mut loss = seed;
        for kernel in kernels() {
            let encoder = Encoder::with_kernel(code, kernel).expect("available");
            let mut parity = vec![vec![0x55; length]; code.parity()];
            encoder.encode(&pieces, &mut slices_mut(&mut parity)).expect("sizes fit");
            prop_assert_eq!(&parity, &expected, "{} at once", kernel);

            parity.iter_mut().for_each(|p| p.fill(0));
            let step = 1 + seed as usize % 9;
            let mut firsts: Vec<usize> = (0..used).step_by(step).collect();
            firsts.rotate_left(seed as usize % (used.div_ceil(step)));
            for first in firsts {
                let some = &pieces[first..used.min(first + step)];
                encoder.add(first, some, &mut slices_mut(&mut parity)).expect("sizes fit");
            }
            prop_assert_eq!(&parity, &expected, "{} in steps of {}", kernel, step);

            let mut decoder = Decoder::with_kernel(code, kernel).expect("available");
            for lost in 1..=code.parity() {
                let present = random_loss(code.pieces(), lost, &mut loss);
                let result = lose(&mut decoder, &data, &parity, &present);
                let whole = present.missing_below(used) == Pieces::none();
                prop_assert_eq!(result.is_ok(), whole || code.decodable(&present), "{} lost {:?}", code, present);
            }
        }
    }
}
