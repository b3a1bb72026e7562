//! The instructions for the arithmetic, and the safe interface to them. This module and its submodules contain the
//! workspace's `unsafe` code: loads and stores of vectors, and calls of functions that need instructions which are
//! detected at run time.

#![allow(unsafe_code)]

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::field;
use std::fmt;

/// The number of outputs that a kernel calculates together: their sums fit into the registers of every kernel.
pub(crate) const LANES: usize = 8;

/// The number of inputs that are read together. Measured: with 8, sums are loaded and stored too often; with 32,
/// streams at a distance of 4,096 B need more ways than the first-level cache has, also for two rows that only add.
pub(crate) const BATCH: usize = 16;

/// A set of instructions for encoding and rebuilding. All kernels give the same bytes; encoders and decoders use
/// [`Kernel::best`] by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// GFNI on vectors of 64 bytes (AVX-512).
    Gfni512,
    /// GFNI on vectors of 32 bytes (AVX2).
    Gfni256,
    /// Table look-ups by shuffling vectors of 32 bytes (AVX2).
    Avx2,
    /// Plain Rust, for every processor.
    Portable,
}

/// This processor lacks the instructions of the requested kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelUnavailable(pub Kernel);

impl fmt::Display for KernelUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this processor cannot run the kernel {}; Kernel::best() names the fastest that it can", self.0)
    }
}

impl std::error::Error for KernelUnavailable {}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::Gfni512 => "gfni512",
            Kernel::Gfni256 => "gfni256",
            Kernel::Avx2 => "avx2",
            Kernel::Portable => "portable",
        })
    }
}

impl Kernel {
    /// All kernels, the fastest first.
    pub const ALL: [Kernel; 4] = [Kernel::Gfni512, Kernel::Gfni256, Kernel::Avx2, Kernel::Portable];

    /// Can this processor run it?
    pub fn available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni512 => {
                is_x86_feature_detected!("gfni")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni256 => is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Gfni512 | Kernel::Gfni256 | Kernel::Avx2 => false,
            Kernel::Portable => true,
        }
    }

    /// The fastest kernel that this processor can run.
    pub fn best() -> Kernel {
        Kernel::ALL.into_iter().find(|k| k.available()).unwrap_or(Kernel::Portable)
    }
}

/// A kernel that this processor can run: the proof that calls of its functions are sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runnable(Kernel);

impl Runnable {
    /// Checks that the processor can run the kernel.
    pub(crate) fn check(kernel: Kernel) -> Result<Runnable, KernelUnavailable> {
        if kernel.available() { Ok(Runnable(kernel)) } else { Err(KernelUnavailable(kernel)) }
    }

    /// The fastest one.
    pub(crate) fn best() -> Runnable {
        Runnable(Kernel::best())
    }

    pub(crate) fn kernel(self) -> Kernel {
        self.0
    }
}

/// Constants to multiply with, eight per input, in the form that one kernel takes.
#[derive(Clone, Debug)]
pub(crate) enum Tables {
    /// Matrices of bits.
    Affine(Vec<[u64; LANES]>),
    /// Products of half bytes.
    Nibbles(Vec<[[u8; 32]; LANES]>),
    /// The constants themselves.
    Plain(Vec<[u8; LANES]>),
}

impl Tables {
    /// No constants yet.
    pub(crate) fn new(kernel: Runnable) -> Tables {
        match kernel.0 {
            Kernel::Gfni512 | Kernel::Gfni256 => Tables::Affine(Vec::new()),
            Kernel::Avx2 => Tables::Nibbles(Vec::new()),
            Kernel::Portable => Tables::Plain(Vec::new()),
        }
    }

    /// Adds the constants of the next input.
    pub(crate) fn push(&mut self, constants: [u8; LANES]) {
        match self {
            Tables::Affine(tables) => tables.push(constants.map(|c| field::AFFINE[c as usize])),
            Tables::Nibbles(tables) => tables.push(constants.map(|c| field::NIBBLES[c as usize])),
            Tables::Plain(tables) => tables.push(constants),
        }
    }

    /// Forgets all constants.
    pub(crate) fn clear(&mut self) {
        match self {
            Tables::Affine(tables) => tables.clear(),
            Tables::Nibbles(tables) => tables.clear(),
            Tables::Plain(tables) => tables.clear(),
        }
    }
}

/// For each output `r`: the sum over all inputs `i` of constant `r` of input `first + i` times the input. It is added
/// to what is in the outputs if `accumulate`, and replaces it otherwise.
///
/// # Panics
/// If there are more than eight outputs, lengths differ, or the tables are another kernel's or too few.
pub(crate) fn multiply(
    kernel: Runnable,
    tables: &Tables,
    first: usize,
    outputs: &mut [&mut [u8]],
    inputs: &[&[u8]],
    accumulate: bool,
) {
    let end = first + inputs.len();
    match (kernel.0, tables) {
        #[cfg(target_arch = "x86_64")]
        (Kernel::Gfni512, Tables::Affine(tables)) => {
            // SAFETY: `kernel` exists only if the processor has the instructions (`Runnable::check`).
            unsafe { x86::gfni512::multiply(&tables[first..end], outputs, inputs, accumulate) }
        }
        #[cfg(target_arch = "x86_64")]
        (Kernel::Gfni256, Tables::Affine(tables)) => {
            // SAFETY: as above.
            unsafe { x86::gfni256::multiply(&tables[first..end], outputs, inputs, accumulate) }
        }
        #[cfg(target_arch = "x86_64")]
        (Kernel::Avx2, Tables::Nibbles(tables)) => {
            // SAFETY: as above.
            unsafe { x86::avx2::multiply(&tables[first..end], outputs, inputs, accumulate) }
        }
        (Kernel::Portable, Tables::Plain(tables)) => {
            portable::multiply(&tables[first..end], outputs, inputs, accumulate);
        }
        _ => unreachable!("tables are made for the kernel that reads them"),
    }
}

/// The XOR of all inputs, added to what is in the output if `accumulate`, in its place otherwise.
///
/// # Panics
/// If lengths differ.
pub(crate) fn xor(kernel: Runnable, output: &mut [u8], inputs: &[&[u8]], accumulate: bool) {
    match kernel.0 {
        #[cfg(target_arch = "x86_64")]
        Kernel::Gfni512 => {
            // SAFETY: `kernel` exists only if the processor has the instructions (`Runnable::check`).
            unsafe { x86::gfni512::xor(output, inputs, accumulate) }
        }
        #[cfg(target_arch = "x86_64")]
        Kernel::Gfni256 | Kernel::Avx2 => {
            // SAFETY: as above.
            unsafe { x86::avx2::xor(output, inputs, accumulate) }
        }
        _ => portable::xor(output, inputs, accumulate),
    }
}
