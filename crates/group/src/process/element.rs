//! The kinds of numbers that collectives combine, and the ways to combine them.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;

/// The number of elements that are widened at a time, on the stack: ours.
const BLOCK: usize = 512;

/// The kind of number in a buffer, in this machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE 754, 64 bits.
    F64,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 16 bits.
    F16,
    /// The upper half of an `F32`.
    Bf16,
    /// Signed, 64 bits; sums wrap.
    I64,
    /// Signed, 32 bits; sums wrap.
    I32,
    /// Signed, 16 bits; sums wrap.
    I16,
    /// Signed, 8 bits; sums wrap.
    I8,
    /// Unsigned, 64 bits; sums wrap.
    U64,
    /// Unsigned, 32 bits; sums wrap.
    U32,
    /// Unsigned, 16 bits; sums wrap.
    U16,
    /// Unsigned, 8 bits; sums wrap.
    U8,
    /// Complex: two `F64`; sums, averages and products only.
    C128,
    /// Complex: two `F32`; sums, averages and products only.
    C64,
    /// A byte that is 0 or 1: sum and maximum are "or", product and minimum are "and".
    Bool,
    /// Another kind, which collectives move but do not reduce. Ranks compare its number, which [`Element::moved`]
    /// gives.
    Other(u8),
}

/// The way in which the numbers of all ranks are combined into one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their sum divided by the number of ranks; floating point only.
    Average,
    /// The sum of every rank's numbers times a factor of its own; floating point only.
    ScaledSum(f64),
    /// The least; NaN if one of them is NaN.
    Min,
    /// The greatest; NaN if one of them is NaN.
    Max,
    /// Their product.
    Product,
    /// Bits that all ranks have; whole numbers and `Bool` only.
    And,
    /// Bits that at least one rank has; whole numbers and `Bool` only.
    Or,
    /// Bits that an odd number of ranks has; whole numbers and `Bool` only.
    Xor,
}

impl Element {
    /// All kinds that can be reduced.
    pub const ALL: [Element; 15] = [
        Element::F64,
        Element::F32,
        Element::F16,
        Element::Bf16,
        Element::I64,
        Element::I32,
        Element::I16,
        Element::I8,
        Element::U64,
        Element::U32,
        Element::U16,
        Element::U8,
        Element::C128,
        Element::C64,
        Element::Bool,
    ];

    /// Bytes of one element; 1 for a kind that is only moved.
    pub const fn bytes(self) -> usize {
        match self {
            Element::C128 => 16,
            Element::F64 | Element::I64 | Element::U64 | Element::C64 => 8,
            Element::F32 | Element::I32 | Element::U32 => 4,
            Element::F16 | Element::Bf16 | Element::I16 | Element::U16 => 2,
            Element::I8 | Element::U8 | Element::Bool | Element::Other(_) => 1,
        }
    }

    /// Buffers of such numbers begin at a multiple of this number of bytes. For complex numbers it is that of one part.
    pub const fn alignment(self) -> usize {
        match self {
            Element::C128 | Element::C64 => self.bytes() / 2,
            _ => self.bytes(),
        }
    }

    /// Its number in messages.
    pub(super) fn code(self) -> u8 {
        match self {
            Element::Other(kind) => kind | 0x80,
            known => Element::ALL.iter().position(|element| *element == known).unwrap_or_default() as u8 + 1,
        }
    }

    /// The name of the kind with this number in messages.
    pub(super) fn name_of(code: u8) -> &'static str {
        let known = usize::from(code).checked_sub(1).and_then(|at| Element::ALL.get(at));
        known.map_or("another kind", |element| element.name())
    }

    /// Its name in numpy, or `bfloat16`, which numpy does not have.
    pub const fn name(self) -> &'static str {
        match self {
            Element::F64 => "float64",
            Element::F32 => "float32",
            Element::F16 => "float16",
            Element::Bf16 => "bfloat16",
            Element::I64 => "int64",
            Element::I32 => "int32",
            Element::I16 => "int16",
            Element::I8 => "int8",
            Element::U64 => "uint64",
            Element::U32 => "uint32",
            Element::U16 => "uint16",
            Element::U8 => "uint8",
            Element::C128 => "complex128",
            Element::C64 => "complex64",
            Element::Bool => "bool",
            Element::Other(_) => "another kind",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|element| element.name() == name)
    }

    /// The kind of that name for a collective that only moves bytes. An unknown name gets a number that follows from
    /// the name, so ranks with different kinds notice it, except for one pair of names in 128.
    pub fn moved(name: &str) -> Element {
        let number = || name.bytes().fold(0u8, |number, byte| number.wrapping_mul(31).wrapping_add(byte));
        Element::named(name).unwrap_or_else(|| Element::Other(number() & 0x7f))
    }

    /// Are these numbers of floating point?
    pub const fn is_float(self) -> bool {
        matches!(self, Element::F64 | Element::F32 | Element::F16 | Element::Bf16)
    }

    /// Are these complex numbers?
    pub const fn is_complex(self) -> bool {
        matches!(self, Element::C128 | Element::C64)
    }
}

impl Reduction {
    /// Its name in PyTorch, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Average => "avg",
            Reduction::ScaledSum(_) => "premul_sum",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::Product => "product",
            Reduction::And => "band",
            Reduction::Or => "bor",
            Reduction::Xor => "bxor",
        }
    }

    /// The reduction of that name; `factor` is the factor of `premul_sum`.
    pub fn named(name: &str, factor: f64) -> Option<Reduction> {
        let all = [
            Reduction::Sum,
            Reduction::Average,
            Reduction::ScaledSum(factor),
            Reduction::Min,
            Reduction::Max,
            Reduction::Product,
            Reduction::And,
            Reduction::Or,
            Reduction::Xor,
        ];
        all.into_iter().find(|reduction| reduction.name() == name)
    }

    /// Is it defined for such numbers?
    pub const fn takes(self, element: Element) -> bool {
        if matches!(element, Element::Other(_)) {
            return false;
        }
        match self {
            Reduction::Average | Reduction::ScaledSum(_) => element.is_float() || element.is_complex(),
            Reduction::And | Reduction::Or | Reduction::Xor => !element.is_float() && !element.is_complex(),
            Reduction::Min | Reduction::Max => !element.is_complex(),
            Reduction::Sum | Reduction::Product => true,
        }
    }

    /// Its number in messages.
    pub(super) const fn code(self) -> u8 {
        match self {
            Reduction::Sum => 1,
            Reduction::Average => 2,
            Reduction::ScaledSum(_) => 3,
            Reduction::Min => 4,
            Reduction::Max => 5,
            Reduction::Product => 6,
            Reduction::And => 7,
            Reduction::Or => 8,
            Reduction::Xor => 9,
        }
    }

    /// The name of the reduction with this number in messages.
    pub(super) const fn name_of(code: u8) -> &'static str {
        match code {
            1 => Reduction::Sum.name(),
            2 => Reduction::Average.name(),
            3 => Reduction::ScaledSum(1.0).name(),
            4 => Reduction::Min.name(),
            5 => Reduction::Max.name(),
            6 => Reduction::Product.name(),
            7 => Reduction::And.name(),
            8 => Reduction::Or.name(),
            9 => Reduction::Xor.name(),
            _ => "an unknown reduction",
        }
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Calls `$each(sum, more)` on all pairs. The loops are straight, so the compiler makes vector instructions of them.
macro_rules! pairs {
    ($kind:ty, $into:expr, $from:expr, $each:expr) => {{
        let into: &mut [$kind] = bytemuck::cast_slice_mut($into);
        let from: &[$kind] = bytemuck::cast_slice($from);
        let each = $each;
        into.iter_mut().zip(from).for_each(|(sum, more)| *sum = each(*sum, *more));
    }};
}

macro_rules! integers {
    ($kind:ty, $reduction:expr, $into:expr, $from:expr) => {
        match $reduction {
            Reduction::Sum | Reduction::Average | Reduction::ScaledSum(_) => {
                pairs!($kind, $into, $from, <$kind>::wrapping_add)
            }
            Reduction::Min => pairs!($kind, $into, $from, |a: $kind, b: $kind| a.min(b)),
            Reduction::Max => pairs!($kind, $into, $from, |a: $kind, b: $kind| a.max(b)),
            Reduction::Product => pairs!($kind, $into, $from, <$kind>::wrapping_mul),
            Reduction::And => pairs!($kind, $into, $from, |a: $kind, b: $kind| a & b),
            Reduction::Or => pairs!($kind, $into, $from, |a: $kind, b: $kind| a | b),
            Reduction::Xor => pairs!($kind, $into, $from, |a: $kind, b: $kind| a ^ b),
        }
    };
}

macro_rules! floats {
    ($kind:ty, $reduction:expr, $into:expr, $from:expr) => {
        match $reduction {
            Reduction::Min => pairs!($kind, $into, $from, |a: $kind, b: $kind| if b < a || b.is_nan() { b } else { a }),
            Reduction::Max => pairs!($kind, $into, $from, |a: $kind, b: $kind| if b > a || b.is_nan() { b } else { a }),
            Reduction::Product => pairs!($kind, $into, $from, |a: $kind, b: $kind| a * b),
            _ => pairs!($kind, $into, $from, |a: $kind, b: $kind| a + b),
        }
    };
}

/// Sums and products of complex numbers: pairs of a real and an imaginary part.
macro_rules! complex {
    ($part:ty, $reduction:expr, $into:expr, $from:expr) => {
        match $reduction {
            Reduction::Product => {
                let into: &mut [$part] = bytemuck::cast_slice_mut($into);
                let from: &[$part] = bytemuck::cast_slice($from);
                for (a, b) in into.chunks_exact_mut(2).zip(from.chunks_exact(2)) {
                    (a[0], a[1]) = (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]);
                }
            }
            _ => pairs!($part, $into, $from, |a: $part, b: $part| a + b),
        }
    };
}

/// Combines short numbers as `f32`, and rounds once for each pair.
macro_rules! halves {
    ($kind:ty, $reduction:expr, $into:expr, $from:expr) => {{
        let into: &mut [$kind] = bytemuck::cast_slice_mut($into);
        let from: &[$kind] = bytemuck::cast_slice($from);
        let (mut wide, mut more) = ([0f32; BLOCK], [0f32; BLOCK]);
        for (into, from) in into.chunks_mut(BLOCK).zip(from.chunks(BLOCK)) {
            let (wide, more) = (&mut wide[..into.len()], &mut more[..from.len()]);
            into.convert_to_f32_slice(wide);
            from.convert_to_f32_slice(more);
            floats!(f32, $reduction, bytemuck::cast_slice_mut::<f32, u8>(wide), bytemuck::cast_slice::<f32, u8>(more));
            into.convert_from_f32_slice(wide);
        }
    }};
}

macro_rules! scaled_halves {
    ($kind:ty, $into:expr, $each:expr) => {{
        let into: &mut [$kind] = bytemuck::cast_slice_mut($into);
        let mut wide = [0f32; BLOCK];
        for into in into.chunks_mut(BLOCK) {
            let wide = &mut wide[..into.len()];
            into.convert_to_f32_slice(wide);
            wide.iter_mut().for_each(|x| *x = $each(*x));
            into.convert_from_f32_slice(wide);
        }
    }};
}

/// Combines numbers pair by pair. Both slices have one length and begin at multiples of an element's bytes.
///
/// # Panics
/// If they do not. Callers check this when they register buffers.
pub(crate) fn combine(element: Element, reduction: Reduction, into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "as many numbers on both sides");
    match element {
        Element::F64 => floats!(f64, reduction, into, from),
        Element::F32 => floats!(f32, reduction, into, from),
        Element::F16 => halves!(f16, reduction, into, from),
        Element::Bf16 => halves!(bf16, reduction, into, from),
        Element::I64 => integers!(i64, reduction, into, from),
        Element::I32 => integers!(i32, reduction, into, from),
        Element::I16 => integers!(i16, reduction, into, from),
        Element::I8 => integers!(i8, reduction, into, from),
        Element::U64 => integers!(u64, reduction, into, from),
        Element::U32 => integers!(u32, reduction, into, from),
        Element::U16 => integers!(u16, reduction, into, from),
        Element::U8 => integers!(u8, reduction, into, from),
        Element::C128 => complex!(f64, reduction, into, from),
        Element::C64 => complex!(f32, reduction, into, from),
        Element::Other(_) => unreachable!("such numbers are only moved"),
        Element::Bool => match reduction {
            Reduction::Min | Reduction::Product | Reduction::And => pairs!(u8, into, from, |a: u8, b: u8| a & b),
            Reduction::Xor => pairs!(u8, into, from, |a: u8, b: u8| a ^ b),
            _ => pairs!(u8, into, from, |a: u8, b: u8| a | b),
        },
    }
}

/// Divides sums by the number of ranks; whole numbers stay as they are.
pub(super) fn divide(element: Element, into: &mut [u8], ranks: u32) {
    match element {
        Element::F64 | Element::C128 => {
            bytemuck::cast_slice_mut::<u8, f64>(into).iter_mut().for_each(|x| *x /= f64::from(ranks))
        }
        Element::F32 | Element::C64 => {
            bytemuck::cast_slice_mut::<u8, f32>(into).iter_mut().for_each(|x| *x /= ranks as f32)
        }
        Element::F16 => scaled_halves!(f16, into, |x: f32| x / ranks as f32),
        Element::Bf16 => scaled_halves!(bf16, into, |x: f32| x / ranks as f32),
        _ => {}
    }
}

/// Multiplies numbers by a factor; whole numbers stay as they are.
pub(super) fn scale(element: Element, into: &mut [u8], factor: f64) {
    match element {
        Element::F64 | Element::C128 => bytemuck::cast_slice_mut::<u8, f64>(into).iter_mut().for_each(|x| *x *= factor),
        Element::F32 | Element::C64 => {
            bytemuck::cast_slice_mut::<u8, f32>(into).iter_mut().for_each(|x| *x *= factor as f32)
        }
        Element::F16 => scaled_halves!(f16, into, |x: f32| x * factor as f32),
        Element::Bf16 => scaled_halves!(bf16, into, |x: f32| x * factor as f32),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One pair of numbers in, as f64, through an element and back.
    fn pair(element: Element, reduction: Reduction, a: f64, b: f64) -> f64 {
        // Eight bytes at a time, so that every element lies at a multiple of its size.
        let write = |x: f64| -> u64 {
            let mut place = 0u64;
            let bytes = bytemuck::bytes_of_mut(&mut place);
            match element {
                Element::F64 => bytes.copy_from_slice(&x.to_ne_bytes()),
                Element::F32 => bytes[..4].copy_from_slice(&(x as f32).to_ne_bytes()),
                Element::F16 => bytes[..2].copy_from_slice(&f16::from_f64(x).to_ne_bytes()),
                Element::Bf16 => bytes[..2].copy_from_slice(&bf16::from_f64(x).to_ne_bytes()),
                Element::I64 => bytes.copy_from_slice(&(x as i64).to_ne_bytes()),
                Element::I32 => bytes[..4].copy_from_slice(&(x as i32).to_ne_bytes()),
                Element::I16 => bytes[..2].copy_from_slice(&(x as i16).to_ne_bytes()),
                Element::I8 => bytes[..1].copy_from_slice(&(x as i8).to_ne_bytes()),
                Element::U64 => bytes.copy_from_slice(&(x as u64).to_ne_bytes()),
                Element::U32 => bytes[..4].copy_from_slice(&(x as u32).to_ne_bytes()),
                Element::U16 => bytes[..2].copy_from_slice(&(x as u16).to_ne_bytes()),
                Element::U8 | Element::Bool => bytes[0] = x as u8,
                Element::C128 | Element::C64 | Element::Other(_) => unreachable!("not one real number"),
            }
            place
        };
        let (mut into, from) = (write(a), write(b));
        let size = element.bytes();
        combine(element, reduction, &mut bytemuck::bytes_of_mut(&mut into)[..size], &bytemuck::bytes_of(&from)[..size]);
        let bytes = bytemuck::bytes_of(&into);
        match element {
            Element::F64 => f64::from_ne_bytes(*bytes.first_chunk().expect("8")),
            Element::F32 => f32::from_ne_bytes(*bytes.first_chunk().expect("4")).into(),
            Element::F16 => f16::from_ne_bytes(*bytes.first_chunk().expect("2")).into(),
            Element::Bf16 => bf16::from_ne_bytes(*bytes.first_chunk().expect("2")).into(),
            Element::I64 => i64::from_ne_bytes(*bytes.first_chunk().expect("8")) as f64,
            Element::I32 => i32::from_ne_bytes(*bytes.first_chunk().expect("4")).into(),
            Element::I16 => i16::from_ne_bytes(*bytes.first_chunk().expect("2")).into(),
            Element::I8 => (bytes[0] as i8).into(),
            Element::U64 => u64::from_ne_bytes(*bytes.first_chunk().expect("8")) as f64,
            Element::U32 => u32::from_ne_bytes(*bytes.first_chunk().expect("4")).into(),
            Element::U16 => u16::from_ne_bytes(*bytes.first_chunk().expect("2")).into(),
            Element::U8 | Element::Bool => bytes[0].into(),
            Element::C128 | Element::C64 | Element::Other(_) => unreachable!("not one real number"),
        }
    }

    #[test]
    fn every_element_is_combined_in_every_way_that_it_takes() {
        let real = |element: &Element| *element != Element::Bool && !element.is_complex();
        for element in Element::ALL.into_iter().filter(real) {
            for (reduction, right) in
                [(Reduction::Sum, 9.0), (Reduction::Min, 3.0), (Reduction::Max, 6.0), (Reduction::Product, 18.0)]
            {
                assert_eq!(pair(element, reduction, 6.0, 3.0), right, "{} {reduction}", element.name());
                assert_eq!(pair(element, reduction, 3.0, 6.0), right, "{} {reduction}", element.name());
            }
            for (reduction, right) in [(Reduction::And, 2.0), (Reduction::Or, 7.0), (Reduction::Xor, 5.0)] {
                if reduction.takes(element) {
                    assert_eq!(pair(element, reduction, 6.0, 3.0), right, "{} {reduction}", element.name());
                }
            }
            assert_eq!(Element::named(element.name()), Some(element));
        }
        for (reduction, right) in [(Reduction::Sum, 1.0), (Reduction::Product, 0.0), (Reduction::Xor, 1.0)] {
            assert_eq!(pair(Element::Bool, reduction, 1.0, 0.0), right, "{reduction}");
        }
        for element in [Element::F64, Element::F32, Element::F16, Element::Bf16] {
            for reduction in [Reduction::Min, Reduction::Max] {
                assert!(pair(element, reduction, f64::NAN, 1.0).is_nan(), "{} {reduction}", element.name());
                assert!(pair(element, reduction, 1.0, f64::NAN).is_nan(), "{} {reduction}", element.name());
            }
        }
        // Above 2^31: as signed numbers they would be negative.
        assert_eq!(pair(Element::U32, Reduction::Max, 3e9, 1.0), 3e9);
        assert_eq!(pair(Element::U16, Reduction::Sum, 40_000.0, 20_000.0), 60_000.0);
        assert_eq!(pair(Element::Bool, Reduction::Xor, 1.0, 1.0), 0.0);
    }

    #[test]
    fn complex_numbers_are_added_multiplied_and_averaged() {
        let (mut sum, more) = ([1.0f32, 2.0, 0.5, 0.0], [3.0f32, -1.0, 0.5, 4.0]);
        combine(Element::C64, Reduction::Sum, bytemuck::cast_slice_mut(&mut sum), bytemuck::cast_slice(&more));
        assert_eq!(sum, [4.0, 1.0, 1.0, 4.0]);
        divide(Element::C64, bytemuck::cast_slice_mut(&mut sum), 2);
        assert_eq!(sum, [2.0, 0.5, 0.5, 2.0]);
        let (mut product, more) = ([1.0f64, 2.0], [3.0f64, -1.0]);
        combine(Element::C128, Reduction::Product, bytemuck::cast_slice_mut(&mut product), bytemuck::cast_slice(&more));
        assert_eq!(product, [5.0, 5.0]);
        for reduction in [Reduction::Min, Reduction::Max, Reduction::Xor] {
            assert!(!reduction.takes(Element::C64), "{reduction}");
        }
    }

    #[test]
    fn kinds_that_are_only_moved_are_told_apart_and_never_reduced() {
        let one = Element::moved("float8_e4m3fn");
        assert_ne!(one.code(), Element::moved("float8_e5m2").code());
        assert_eq!(Element::moved("int32"), Element::I32);
        assert!(!Reduction::Sum.takes(one));
        let mut codes: Vec<u8> = Element::ALL.iter().map(|element| element.code()).collect();
        codes.dedup();
        assert_eq!(codes.len(), Element::ALL.len());
    }

    #[test]
    fn averages_and_factors() {
        let mut numbers = [3.0f32, 6.0];
        divide(Element::F32, bytemuck::cast_slice_mut(&mut numbers), 3);
        assert_eq!(numbers, [1.0, 2.0]);
        scale(Element::F32, bytemuck::cast_slice_mut(&mut numbers), 0.5);
        assert_eq!(numbers, [0.5, 1.0]);
        let mut short = [bf16::from_f32(3.0); 1_025];
        divide(Element::Bf16, bytemuck::cast_slice_mut(&mut short), 2);
        assert!(short.iter().all(|x| x.to_f32() == 1.5));
        let mut wide = [3.0f64, 5.0];
        divide(Element::F64, bytemuck::cast_slice_mut(&mut wide), 2);
        assert_eq!(wide, [1.5, 2.5]);
        let mut half = [f16::from_f32(3.0); 3];
        scale(Element::F16, bytemuck::cast_slice_mut(&mut half), 0.5);
        assert!(half.iter().all(|x| x.to_f32() == 1.5));
    }
}
