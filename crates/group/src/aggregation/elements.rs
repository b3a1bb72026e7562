//! The numbers of fragments: gradients as 32-bit integers.
//!
//! Gradients become integers by a factor 2^k (ESA sheet, section 9). If an integer is so large that the sum of
//! `workers` such integers could overflow, its fragment travels as floats. So no sum of honest workers overflows.

/// The elements of a datagram: in place if they lie at a multiple of four bytes, else in `copy`.
pub fn read_elements<'a>(bytes: &'a [u8], copy: &'a mut Vec<i32>) -> &'a [i32] {
    // Elements are little-endian.
    if cfg!(target_endian = "little")
        && let Ok(elements) = bytemuck::try_cast_slice(bytes)
    {
        return elements;
    }
    // `extend` would be compiled into a copy of one number at a time.
    copy.resize(bytes.len() / 4, 0);
    for (to, from) in copy.iter_mut().zip(bytes.chunks_exact(4)) {
        *to = i32::from_le_bytes([from[0], from[1], from[2], from[3]]);
    }
    copy
}

/// The conversion of gradients to integers, by a factor 2^k.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    factor: f64,
    limit: i32,
}

/// 1.5 x 2^52: adding a number below 2^51 rounds it to the nearest integer, ties to even.
const ROUND: f64 = 6_755_399_441_055_744.0;

impl Scale {
    /// The factor for sums of `workers` numbers that are expected to be at most `max_abs`. Larger numbers are added as
    /// floats. ESA sheet, section 9: `workers x max_abs x 2^k < 2^31`.
    pub fn new(workers: u32, max_abs: f32) -> Scale {
        let workers = workers.max(1);
        let ceil_log2 = |x: f64| {
            let (bits, one) = (x.to_bits(), f64::MANTISSA_DIGITS - 1);
            (bits >> one) as i32 - 1023 + i32::from(bits & ((1 << one) - 1) != 0)
        };
        let max_abs = if max_abs.is_finite() { f64::from(max_abs.abs()).max(1e-30) } else { 16.0 };
        let k = 31 - ceil_log2(max_abs) - ceil_log2(f64::from(workers)) - 1;
        Scale { factor: f64::from_bits(((k + 1023) as u64) << 52), limit: ((i32::MAX - 1) as u32 / workers) as i32 }
    }

    /// The factor for sums of `workers` numbers of a block with this exponent: all are below 2^`exponent`. The factor
    /// is not a power of two. SwitchML; ESA sheet, section 9: `f = (2^31 - 1) / (n 2^e)`. Ours is smaller by `1 /
    /// 2^(e+1)`, so that rounding cannot make a sum overflow with any number of workers.
    pub(super) fn of_block(workers: u32, exponent: i8) -> Scale {
        let most = f64::from(i32::MAX) / f64::from(workers.max(1));
        let unit = f64::from_bits(((1023 - i64::from(exponent)) as u64) << 52);
        Scale { factor: (most - 0.5) * unit, limit: most.ceil() as i32 }
    }

    /// The factor, 2^k.
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// Converts numbers to integers, rounded to the nearest one; false if one of them is too large, or not a number.
    pub fn quantise(&self, from: &[f32], to: &mut [i32]) -> bool {
        let limit = f64::from(self.limit);
        let mut fits = true;
        for (to, &from) in to.iter_mut().zip(from) {
            let scaled = f64::from(from) * self.factor;
            fits &= scaled.abs() <= limit;
            *to = (scaled + ROUND).to_bits() as i32;
        }
        fits
    }

    /// Are integers so small that the sum of one of each worker cannot overflow?
    pub fn has_room(&self, numbers: &[i32]) -> bool {
        numbers.iter().all(|number| number.unsigned_abs() <= self.limit as u32)
    }

    /// Converts sums to numbers; false if a sum has saturated, which does not happen with honest workers.
    pub fn restore(&self, from: &[i32], to: &mut [f32]) -> bool {
        let factor = 1.0 / self.factor;
        let mut sound = true;
        for (to, &from) in to.iter_mut().zip(from) {
            sound &= from != i32::MAX && from != i32::MIN;
            *to = (f64::from(from) * factor) as f32;
        }
        sound
    }
}

/// The least and the greatest exponent of a block. Below the least one, factors would exceed the range of `f32`; above
/// the greatest one, numbers are infinite. ESA sheet, section 9.
const EXPONENTS: std::ops::RangeInclusive<i32> = -90..=127;

/// The exponents of the first and of the second half of a block. All numbers of a half are below 2 to the power of its
/// exponent. `None` if a number is infinite, NaN, or 2^127 or more. SwitchML.
pub(super) fn exponents_of_block(block: &[f32], elements: usize) -> Option<[i8; 2]> {
    let (first, second) = block.split_at(half(elements).min(block.len()));
    let of = |numbers: &[f32]| {
        // The bits of non-negative floats have the order of the floats; infinities and NaN come last.
        let most = numbers.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
        let exponent = (most >> 23) as i32 - 126;
        (exponent <= *EXPONENTS.end()).then(|| exponent.max(*EXPONENTS.start()) as i8)
    };
    Some([of(first)?, of(second)?])
}

/// The number of elements of a block in its first half.
pub(super) const fn half(elements: usize) -> usize {
    elements.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_sum_of_numbers_that_fit_overflows(
            workers in 1u32..1025, max_abs in 1e-6f32..1e6, numbers in prop::collection::vec(-2.0f32..2.0, 1..50),
        ) {
            let scale = Scale::new(workers, max_abs);
            prop_assert!(f64::from(workers) * f64::from(max_abs) * scale.factor() < 2f64.powi(31));
            let numbers: Vec<f32> = numbers.iter().map(|x| x * max_abs).collect();
            let mut integers = vec![0; numbers.len()];
            if scale.quantise(&numbers, &mut integers) {
                for (&x, &q) in numbers.iter().zip(&integers) {
                    prop_assert_eq!(f64::from(q), (f64::from(x) * scale.factor()).round_ties_even());
                    prop_assert!(i64::from(q).abs() * i64::from(workers) < i64::from(i32::MAX));
                }
            } else {
                let most = numbers.iter().map(|x| f64::from(x.abs()) * scale.factor()).fold(0.0, f64::max);
                prop_assert!(most > f64::from(i32::MAX - 1) / f64::from(workers) - 1.0);
            }
        }
    }

    proptest! {
        #[test]
        fn no_sum_of_a_block_overflows_and_its_error_is_half_a_step_for_each_worker(
            blocks in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 8), 1..40), shift in -80i32..120,
        ) {
            let size = (f64::from(shift)).exp2() as f32;
            let blocks: Vec<Vec<f32>> = blocks.into_iter().map(|b| b.into_iter().map(|x| x * size).collect()).collect();
            let workers = blocks.len() as u32;
            let own: Vec<[i8; 2]> = blocks.iter().map(|b| exponents_of_block(b, 8).expect("finite")).collect();
            for (at, places) in [(0, 0..4), (1, 4..8)] {
                let exponent = own.iter().map(|pair| pair[at]).max().expect("a worker");
                let scale = Scale::of_block(workers, exponent);
                let mut sums = vec![0i32; 4];
                for block in &blocks {
                    let mut integers = vec![0; 4];
                    prop_assert!(scale.quantise(&block[places.clone()], &mut integers), "it fits by its exponent");
                    for (sum, more) in sums.iter_mut().zip(integers) {
                        *sum = sum.checked_add(more).expect("no sum overflows");
                    }
                }
                let mut out = vec![0.0; 4];
                prop_assert!(scale.restore(&sums, &mut out));
                for (place, &sum) in places.zip(&out) {
                    let exact: f64 = blocks.iter().map(|block| f64::from(block[place])).sum();
                    let step = f64::from(workers) * 0.5 / scale.factor() + exact.abs() * 2f64.powi(-23);
                    prop_assert!((f64::from(sum) - exact).abs() <= step, "{sum} of {exact}, steps of {step}");
                }
            }
        }
    }

    #[test]
    fn exponents_are_just_above_the_largest_number_of_each_half() {
        let of = |a: f32, b: f32| exponents_of_block(&[0.0, a, b], 4);
        assert_eq!(of(1.0, -0.75), Some([1, 0]));
        assert_eq!(of(0.0, f32::from_bits(1)), Some([-90, -90]), "zeros and the smallest numbers");
        assert_eq!(of(-1.7e38, 1.0), Some([127, 1]));
        assert!([f32::INFINITY, f32::NAN, 1.71e38].iter().all(|&x| of(x, 1.0).is_none() && of(1.0, x).is_none()));
        assert_eq!(exponents_of_block(&[3.0], 4), Some([2, -90]), "a short block");
        // The largest number of a half, in a sum of the most workers of a job.
        for workers in [1, 2, 32, 1_024] {
            let (largest, scale) = (f32::from_bits(1f32.to_bits() - 1), Scale::of_block(workers, 0));
            let mut integer = [0];
            assert!(scale.quantise(&[largest], &mut integer));
            assert!(i64::from(integer[0]) * i64::from(workers) <= i64::from(i32::MAX));
        }
    }

    #[test]
    fn the_sheets_factors() {
        let k = |workers| Scale::new(workers, 16.0).factor().log2();
        assert_eq!([1, 8, 9, 1024].map(k), [26.0, 23.0, 22.0, 16.0]);
        let scale = Scale::new(2, 16.0);
        assert!(!scale.quantise(&[f32::NAN], &mut [0]) && !scale.quantise(&[f32::INFINITY], &mut [0]));
        assert!(!scale.restore(&[i32::MAX], &mut [0.0]));
    }

    #[test]
    fn the_largest_integer_that_fits_leaves_room_for_all_workers() {
        // By powers of two, the limit and the integer above it have exact floats.
        for (workers, limit) in [(128, (1 << 24) - 1), (256, (1 << 23) - 1), (1_024, (1 << 21) - 1)] {
            let scale = Scale { factor: 1.0, ..Scale::new(workers, 16.0) };
            assert_eq!(scale.limit, limit);
            assert!(
                i64::from(limit) * i64::from(workers) < i64::from(i32::MAX),
                "no sum looks as if it had overflowed"
            );
            let mut integers = [0; 2];
            assert!(scale.quantise(&[limit as f32, -limit as f32], &mut integers));
            assert_eq!(integers, [limit, -limit]);
            for beyond in [(limit + 1) as f32, -(limit + 1) as f32] {
                assert!(!scale.quantise(&[1.0, beyond], &mut integers), "{workers} workers, {beyond}");
            }
        }
    }

    #[test]
    fn elements_are_read_in_place_or_from_odd_places() {
        let bytes: Vec<u8> = (0..44).collect();
        for start in 0..4 {
            let mut copy = Vec::new();
            let right: Vec<i32> = bytes[start..start + 40]
                .chunks_exact(4)
                .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            assert_eq!(read_elements(&bytes[start..start + 40], &mut copy), right);
        }
    }
}
