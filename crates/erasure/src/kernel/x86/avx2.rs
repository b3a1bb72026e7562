//! Table look-ups by shuffling vectors of 32 bytes: a product is the sum of the products with both halves of each byte.

use super::{AHEAD, prefetch};
use crate::kernel::LANES;
use std::arch::x86_64::{
    __m256i as Vector, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

pub(super) const WIDTH: usize = 32;
type Table = [u8; 32];

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(bytes: &[u8; WIDTH]) -> Vector {
    // SAFETY: 32 bytes are readable behind the reference; the instruction takes any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(bytes: &mut [u8; WIDTH], vector: Vector) {
    // SAFETY: 32 bytes are writable behind the reference; the instruction takes any alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

/// The low and the high halves of all bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn split(input: Vector) -> [Vector; 2] {
    let mask = _mm256_set1_epi8(0x0f);
    [_mm256_and_si256(input, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(input), mask)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn product(halves: &[Vector; 2], table: &Table) -> Vector {
    let [low, high] = [0, 16].map(|at| {
        let half: &[u8; 16] = table[at..].first_chunk().expect("half a table");
        // SAFETY: 16 bytes are readable behind the reference; the instruction takes any alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(half.as_ptr().cast()) })
    });
    add(_mm256_shuffle_epi8(low, halves[0]), _mm256_shuffle_epi8(high, halves[1]))
}

multiply_loops!("avx2");
xor_loop!("avx2");
