//! The kernel in plain Rust: loops over bytes that compilers turn into vector instructions of any processor.

use super::LANES;
use crate::field::POLYNOMIAL;

/// The number of bytes that are processed together, so that the doubled block stays in the first-level cache.
const BLOCK: usize = 512;

/// See [`super::multiply`].
pub(super) fn multiply(tables: &[[u8; LANES]], outputs: &mut [&mut [u8]], inputs: &[&[u8]], accumulate: bool) {
    assert!(outputs.len() <= LANES, "at most {LANES} outputs");
    let mut doubled = [0; BLOCK];
    for (i, (input, constants)) in inputs.iter().zip(tables).enumerate() {
        for (b, block) in input.chunks(BLOCK).enumerate() {
            let range = b * BLOCK..b * BLOCK + block.len();
            if i == 0 && !accumulate {
                outputs.iter_mut().for_each(|o| o[range.clone()].fill(0));
            }
            // For each bit of the constants: add the block to the outputs whose constant has the bit, then double the
            // block.
            let doubled = &mut doubled[..block.len()];
            doubled.copy_from_slice(block);
            for bit in 0..8 {
                for (output, constant) in outputs.iter_mut().zip(constants) {
                    if constant >> bit & 1 == 1 {
                        add(&mut output[range.clone()], doubled);
                    }
                }
                doubled.iter_mut().for_each(|b| *b = (*b << 1) ^ ((*b >> 7) * POLYNOMIAL));
            }
        }
    }
}

/// See [`super::xor`].
pub(super) fn xor(output: &mut [u8], inputs: &[&[u8]], accumulate: bool) {
    if !accumulate {
        output.fill(0);
    }
    inputs.iter().for_each(|input| add(output, input));
}

fn add(output: &mut [u8], input: &[u8]) {
    assert_eq!(output.len(), input.len(), "equal lengths");
    output.iter_mut().zip(input).for_each(|(o, i)| *o ^= i);
}
