//! GFNI on vectors of 32 bytes, for processors without AVX-512.

use super::avx2::{WIDTH, add, load, store, zero};
use super::{AHEAD, prefetch};
use crate::kernel::LANES;
use std::arch::x86_64::{__m256i as Vector, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x};

type Table = u64;

#[inline]
#[target_feature(enable = "avx2")]
fn split(input: Vector) -> Vector {
    input
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn product(input: &Vector, table: &Table) -> Vector {
    _mm256_gf2p8affine_epi64_epi8::<0>(*input, _mm256_set1_epi64x(table.cast_signed()))
}

multiply_loops!("avx2,gfni");
