//! Kernels for x86-64. The loops are one macro; each kernel adds its vectors.
#![allow(unsafe_code)]

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Inputs are prefetched this many bytes ahead. The pieces of a packet are too short for the processor to detect
/// sixteen streams. Measured: 256 B make encoding from memory 1.5 times as fast, 1,024 B do not.
const AHEAD: usize = 256;

/// Prefetches the cache line at an address, which may be invalid.
#[inline]
fn prefetch(address: *const u8) {
    // Newer compilers treat the call as safe.
    #[allow(unused_unsafe)]
    // SAFETY: a prefetch reads nothing and never faults.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
}

/// The loops of a kernel. In scope must be: `WIDTH`, the bytes of a `Vector`; `Table`, a constant to multiply with;
/// `load`, `store`, `zero`, `add`; `split`, which prepares an input, and `product` of that and a table.
macro_rules! multiply_loops {
    ($features:literal) => {
        /// See [`crate::kernel::multiply`].
        #[target_feature(enable = $features)]
        pub(in crate::kernel) fn multiply(
            tables: &[[Table; LANES]],
            outputs: &mut [&mut [u8]],
            inputs: &[&[u8]],
            accumulate: bool,
        ) {
            match outputs.len() {
                0 => {}
                1 => rows::<1>(tables, outputs, inputs, accumulate),
                2 => rows::<2>(tables, outputs, inputs, accumulate),
                3 => rows::<3>(tables, outputs, inputs, accumulate),
                4 => rows::<4>(tables, outputs, inputs, accumulate),
                5 => rows::<5>(tables, outputs, inputs, accumulate),
                6 => rows::<6>(tables, outputs, inputs, accumulate),
                7 => rows::<7>(tables, outputs, inputs, accumulate),
                8 => rows::<8>(tables, outputs, inputs, accumulate),
                more => panic!("at most {LANES} outputs, not {more}"),
            }
        }

        #[target_feature(enable = $features)]
        fn rows<const R: usize>(
            tables: &[[Table; LANES]],
            outputs: &mut [&mut [u8]],
            inputs: &[&[u8]],
            accumulate: bool,
        ) {
            let outputs: &mut [&mut [u8]; R] = outputs.try_into().expect("R outputs");
            let length = outputs[0].len();
            assert!(outputs.iter().all(|o| o.len() == length), "outputs of equal length");
            assert!(inputs.iter().all(|i| i.len() == length), "inputs as long as outputs");
            assert!(inputs.len() == tables.len(), "a table per input");
            let (pairs, single) = inputs.as_chunks::<2>();
            let (table_pairs, single_table) = tables.as_chunks::<2>();
            let vector = |piece: &[u8], at: usize| {
                // SAFETY: it is called below only, with pieces of `length` bytes (asserted above) and `at + WIDTH <=
                // length`.
                load(unsafe { &*piece.as_ptr().add(at).cast() })
            };
            for at in (0..length / WIDTH).map(|v| v * WIDTH) {
                let mut sums = [zero(); R];
                if accumulate {
                    for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
                        *sum = vector(output, at);
                    }
                }
                for (pair, tables) in pairs.iter().zip(table_pairs) {
                    pair.iter().for_each(|piece| prefetch(piece.as_ptr().wrapping_add(at + AHEAD)));
                    let [a, b] = [split(vector(pair[0], at)), split(vector(pair[1], at))];
                    for (sum, (for_a, for_b)) in sums.iter_mut().zip(tables[0].iter().zip(&tables[1])) {
                        *sum = add(*sum, add(product(&a, for_a), product(&b, for_b)));
                    }
                }
                for (input, tables) in single.iter().zip(single_table) {
                    let a = split(vector(input, at));
                    for (sum, for_a) in sums.iter_mut().zip(tables) {
                        *sum = add(*sum, product(&a, for_a));
                    }
                }
                for (sum, output) in sums.iter().zip(outputs.iter_mut()) {
                    // SAFETY: the output has `length` bytes, asserted above, and `at + WIDTH <= length`.
                    store(unsafe { &mut *output.as_mut_ptr().add(at).cast() }, *sum);
                }
            }
            let tail = length % WIDTH;
            if tail > 0 {
                let at = length - tail;
                let mut sums = [zero(); R];
                let mut padded = [0; WIDTH];
                for (input, table) in inputs.iter().zip(tables) {
                    padded[..tail].copy_from_slice(&input[at..]);
                    let input = split(load(&padded));
                    for (sum, table) in sums.iter_mut().zip(table) {
                        *sum = add(*sum, product(&input, table));
                    }
                }
                for (sum, output) in sums.iter().zip(outputs) {
                    store(&mut padded, *sum);
                    for (o, s) in output[at..].iter_mut().zip(&padded) {
                        *o = if accumulate { *o ^ s } else { *s };
                    }
                }
            }
        }
    };
}

/// The loop that only adds. It needs the same names in scope as [`multiply_loops`], except those for tables.
macro_rules! xor_loop {
    ($features:literal) => {
        /// See [`crate::kernel::xor`].
        #[target_feature(enable = $features)]
        pub(in crate::kernel) fn xor(output: &mut [u8], inputs: &[&[u8]], accumulate: bool) {
            let length = output.len();
            assert!(inputs.iter().all(|i| i.len() == length), "inputs as long as the output");
            let (vectors, tail) = output.as_chunks_mut();
            for (v, place) in vectors.iter_mut().enumerate() {
                let mut sum = if accumulate { load(place) } else { zero() };
                for input in inputs {
                    // SAFETY: vector `v` lies inside the output, and inputs are as long as that, asserted above.
                    sum = add(sum, load(unsafe { &*input.as_ptr().add(v * WIDTH).cast() }));
                }
                store(place, sum);
            }
            let at = length - tail.len();
            for (i, o) in tail.iter_mut().enumerate() {
                let sum = inputs.iter().fold(0, |sum, input| sum ^ input[at + i]);
                *o = if accumulate { *o ^ sum } else { sum };
            }
        }
    };
}

pub(super) mod avx2;
pub(super) mod gfni256;
pub(super) mod gfni512;
