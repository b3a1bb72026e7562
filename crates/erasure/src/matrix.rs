//! Multiplies pieces by a matrix of constants, for encoding and for rebuilding. It cuts the work into parts that fit
//! kernels and caches.

use crate::kernel::{self, BATCH, LANES, Runnable, Tables};

/// The number of bytes of each piece that are processed together: eight outputs of this size stay in the first-level
/// cache while inputs are read.
const BLOCK: usize = 2048;

/// A matrix of constants with a row per output and a column per input, in the form of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    kernel: Runnable,
    rows: usize,
    columns: usize,
    /// The constants, a band per eight rows.
    bands: Vec<Tables>,
    /// True if it is a single row of ones.
    plain: bool,
}

impl Matrix {
    /// A matrix without rows.
    pub(crate) fn new(kernel: Runnable) -> Matrix {
        Matrix { kernel, rows: 0, columns: 0, bands: Vec::new(), plain: false }
    }

    /// Replaces all constants.
    pub(crate) fn set(&mut self, rows: usize, columns: usize, constant: impl Fn(usize, usize) -> u8) {
        (self.rows, self.columns) = (rows, columns);
        self.plain = rows == 1 && (0..columns).all(|column| constant(0, column) == 1);
        self.bands.resize_with(rows.div_ceil(LANES), || Tables::new(self.kernel));
        for (band, tables) in self.bands.iter_mut().enumerate() {
            tables.clear();
            for column in 0..columns {
                let row = |lane| band * LANES + lane;
                tables.push(std::array::from_fn(|l| if row(l) < rows { constant(row(l), column) } else { 0 }));
            }
        }
    }

    pub(crate) fn kernel(&self) -> Runnable {
        self.kernel
    }

    /// Computes outputs `0..` from inputs `first..`; `accumulate`: adds to the present contents of the outputs. There
    /// may be fewer outputs than rows.
    ///
    /// # Panics
    /// If lengths differ, or there are more outputs or inputs than the matrix has rows and columns.
    pub(crate) fn apply(&self, first: usize, outputs: &mut [&mut [u8]], inputs: &[&[u8]], accumulate: bool) {
        assert!(outputs.len() <= self.rows && first + inputs.len() <= self.columns, "inside the matrix");
        let length = outputs.first().map_or(0, |o| o.len());
        if inputs.is_empty() && !accumulate {
            outputs.iter_mut().for_each(|o| o.fill(0));
        }
        for (tables, outputs) in self.bands.iter().zip(outputs.chunks_mut(LANES)) {
            for block in blocks(length) {
                let mut parts: [&mut [u8]; LANES] = Default::default();
                let parts = &mut parts[..outputs.len()];
                parts.iter_mut().zip(outputs.iter_mut()).for_each(|(part, o)| *part = &mut o[block.clone()]);
                for (batch, inputs) in inputs.chunks(BATCH).enumerate() {
                    let mut sources = [&[][..]; BATCH];
                    let sources = &mut sources[..inputs.len()];
                    sources.iter_mut().zip(inputs).for_each(|(source, i)| *source = &i[block.clone()]);
                    let accumulate = accumulate || batch > 0;
                    if self.plain {
                        kernel::xor(self.kernel, parts[0], sources, accumulate);
                    } else {
                        kernel::multiply(self.kernel, tables, first + batch * BATCH, parts, sources, accumulate);
                    }
                }
            }
        }
    }
}

/// `0..length` in blocks.
fn blocks(length: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..length).step_by(BLOCK).map(move |at| at..length.min(at + BLOCK))
}
