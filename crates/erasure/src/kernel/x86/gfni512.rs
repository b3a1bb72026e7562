//! GFNI on vectors of 64 bytes.

use super::{AHEAD, prefetch};
use crate::kernel::LANES;
use std::arch::x86_64::{
    __m512i as Vector, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_xor_si512,
};

const WIDTH: usize = 64;
type Table = u64;

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; WIDTH]) -> Vector {
    // SAFETY: 64 bytes are readable behind the reference; the instruction takes any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; WIDTH], vector: Vector) {
    // SAFETY: 64 bytes are writable behind the reference; the instruction takes any alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn split(input: Vector) -> Vector {
    input
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn product(input: &Vector, table: &Table) -> Vector {
    _mm512_gf2p8affine_epi64_epi8::<0>(*input, _mm512_set1_epi64(table.cast_signed()))
}

multiply_loops!("avx512f,avx512bw,gfni");
xor_loop!("avx512f");
