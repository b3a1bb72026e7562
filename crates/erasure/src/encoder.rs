//! Makes parity from data: piece by piece, or a group at once.

use crate::cauchy;
use crate::kernel::{self, BATCH, Kernel, KernelUnavailable, Runnable};
use crate::matrix::Matrix;
use crate::{Code, CodeKind, PieceError};

/// Makes the parity of one code. It only holds constants, so threads can share it.
///
/// Parity of a shortened group ([`Code::shortened`]) comes from the same encoder: give it `k'` pieces of data and `m'`
/// buffers.
#[derive(Clone, Debug)]
pub struct Encoder {
    code: Code,
    matrix: Matrix,
}

impl Encoder {
    /// An encoder with the fastest kernel of this processor.
    pub fn new(code: Code) -> Encoder {
        Encoder::on(code, Runnable::best())
    }

    /// An encoder with this kernel.
    ///
    /// # Errors
    /// If the processor cannot run the kernel.
    pub fn with_kernel(code: Code, kernel: Kernel) -> Result<Encoder, KernelUnavailable> {
        Ok(Encoder::on(code, Runnable::check(kernel)?))
    }

    fn on(code: Code, kernel: Runnable) -> Encoder {
        let mut matrix = Matrix::new(kernel);
        if code.kind() == CodeKind::Mds {
            matrix.set(code.parity(), code.data(), cauchy::coefficient);
        }
        Encoder { code, matrix }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The kernel in use.
    pub fn kernel(&self) -> Kernel {
        self.matrix.kernel().kernel()
    }

    /// Makes the parity of a whole group and overwrites the contents of `parity`. All pieces must have the same length,
    /// except the last piece of data, which may be shorter: it counts as padded with zeros.
    ///
    /// # Errors
    /// If there are more pieces than the code has, or lengths differ. Nothing is written then.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), PieceError> {
        self.check(0, data, parity)?;
        self.work(0, data, parity, false);
        Ok(())
    }

    /// Adds data pieces `first..` to parity, for example just after their datagrams were built, while they are in the
    /// cache. Parity must start as zeros. It is complete when each piece of data has been added once, in any order.
    /// Adding two to eight pieces in one call is faster than one.
    ///
    /// Only the last piece of `data` may be shorter than the parity; it counts as padded with zeros.
    ///
    /// # Errors
    /// If there are more pieces than the code has, or lengths differ. Nothing is written then.
    pub fn add(&self, first: usize, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), PieceError> {
        self.check(first, data, parity)?;
        self.work(first, data, parity, true);
        Ok(())
    }

    fn check(&self, first: usize, data: &[&[u8]], parity: &[&mut [u8]]) -> Result<(), PieceError> {
        let end = first.saturating_add(data.len());
        if end > self.code.data() || parity.len() > self.code.parity() {
            return Err(PieceError::Count { code: self.code, data: end, parity: parity.len() });
        }
        let needed = parity.first().map_or(0, |p| p.len());
        for (piece, length) in parity.iter().map(|p| p.len()).enumerate() {
            if length != needed {
                return Err(PieceError::Length { piece: self.code.data() + piece, length, needed });
            }
        }
        for (i, length) in data.iter().map(|d| d.len()).enumerate() {
            if length > needed || (length < needed && i + 1 < data.len()) {
                return Err(PieceError::Length { piece: first + i, length, needed });
            }
        }
        Ok(())
    }

    fn work(&self, first: usize, data: &[&[u8]], parity: &mut [&mut [u8]], accumulate: bool) {
        let Some(length) = parity.first().map(|p| p.len()) else { return };
        let short = data.last().map_or(length, |d| d.len());
        let part = |data: &[&[u8]], parity: &mut [&mut [u8]]| match self.code.kind() {
            CodeKind::Mds => self.matrix.apply(first, parity, data, accumulate),
            CodeKind::Xor => self.xor(first, data, parity, accumulate),
        };
        if short == length {
            return part(data, parity);
        }
        // The last piece is shorter: first process all pieces up to its length, then the rest of the others.
        let heads: Vec<&[u8]> = data.iter().map(|d| &d[..short]).collect();
        let tails: Vec<&[u8]> = data[..data.len() - 1].iter().map(|d| &d[short..]).collect();
        let (mut front, mut back): (Vec<_>, Vec<_>) = parity.iter_mut().map(|p| p.split_at_mut(short)).unzip();
        part(&heads, &mut front);
        part(&tails, &mut back);
    }

    fn xor(&self, first: usize, data: &[&[u8]], parity: &mut [&mut [u8]], accumulate: bool) {
        let residues = parity.len();
        for (residue, parity) in parity.iter_mut().enumerate() {
            // The first of these pieces that belongs to this residue.
            let start = (residue + residues - first % residues) % residues;
            xor_all(self.matrix.kernel(), parity, data.iter().copied().skip(start).step_by(residues), accumulate);
        }
    }
}

/// The XOR of any number of pieces.
pub(crate) fn xor_all<'a>(
    kernel: Runnable,
    output: &mut [u8],
    inputs: impl Iterator<Item = &'a [u8]>,
    mut accumulate: bool,
) {
    let mut batch = [&[][..]; BATCH];
    let mut filled = 0;
    for input in inputs {
        batch[filled] = input;
        filled += 1;
        if filled == BATCH {
            kernel::xor(kernel, output, &batch, accumulate);
            (filled, accumulate) = (0, true);
        }
    }
    if filled > 0 || !accumulate {
        kernel::xor(kernel, output, &batch[..filled], accumulate);
    }
}
