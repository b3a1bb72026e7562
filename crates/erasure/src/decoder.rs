//! Rebuilds lost data in place from the present pieces.

use crate::cauchy::Repair;
use crate::encoder::xor_all;
use crate::kernel::{Kernel, KernelUnavailable, Runnable};
use crate::matrix::Matrix;
use crate::{Code, CodeKind, PieceError, Pieces};

/// Rebuilds data of one code, of whole and of shortened groups. It keeps the constants for the last pattern of losses.
/// For a new pattern they are calculated in closed form, which takes about as long as rebuilding 1 KiB per piece.
#[derive(Clone, Debug)]
pub struct Decoder {
    code: Code,
    /// The matrix from present pieces to missing ones.
    matrix: Matrix,
    /// The pattern for which the matrix is valid: the number of pieces of data, and the present pieces.
    pattern: Option<(usize, Pieces)>,
}

impl Decoder {
    /// A decoder with the fastest kernel of this processor.
    pub fn new(code: Code) -> Decoder {
        Decoder { code, matrix: Matrix::new(Runnable::best()), pattern: None }
    }

    /// A decoder with this kernel.
    ///
    /// # Errors
    /// If the processor cannot run the kernel.
    pub fn with_kernel(code: Code, kernel: Kernel) -> Result<Decoder, KernelUnavailable> {
        Ok(Decoder { code, matrix: Matrix::new(Runnable::check(kernel)?), pattern: None })
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The kernel in use.
    pub fn kernel(&self) -> Kernel {
        self.matrix.kernel().kernel()
    }

    /// Writes the missing pieces of data into their places. `data` has all `k'` pieces of data of the group, `parity`
    /// all its pieces of parity. Numbers in `present` count data first, so parity `r` is piece `data.len() + r`. The
    /// contents of missing pieces are ignored. Missing parity may be empty, and is not rebuilt. All pieces must have
    /// the same length, except the last piece of data, which may be shorter.
    ///
    /// # Errors
    /// If there are more pieces than the code has, lengths differ, or too many pieces are missing. Then nothing is
    /// written.
    pub fn rebuild(&mut self, data: &mut [&mut [u8]], parity: &[&[u8]], present: &Pieces) -> Result<(), PieceError> {
        let missing = present.missing_below(data.len());
        if data.len() > self.code.data() || parity.len() > self.code.parity() {
            return Err(PieceError::Count { code: self.code, data: data.len(), parity: parity.len() });
        }
        if missing == Pieces::none() {
            return Ok(());
        }
        self.check_decodable(data.len(), parity.len(), present)?;
        let length = check_lengths(data, parity, present)?;
        match self.code.kind() {
            CodeKind::Mds => self.rebuild_mds(data, parity, present, length),
            CodeKind::Xor => self.rebuild_xor(data, parity, &missing),
        }
        Ok(())
    }

    fn check_decodable(&self, data: usize, parity: usize, present: &Pieces) -> Result<(), PieceError> {
        let code = self.code.resized(data, parity);
        match code {
            Some(code) if code.decodable(present) => Ok(()),
            _ => {
                let missing = present.missing_below(data + parity).iter().count();
                Err(PieceError::Undecodable { code: code.unwrap_or(self.code), missing })
            }
        }
    }

    fn rebuild_mds(&mut self, data: &mut [&mut [u8]], parity: &[&[u8]], present: &Pieces, length: usize) {
        let columns = data.len();
        let missing = present.missing_below(columns);
        let wanted = missing.iter().count();
        let rows = (0..parity.len()).filter(|r| present.contains(columns + r)).take(wanted);
        if self.pattern != Some((columns, *present)) {
            let here = (0..columns).filter(|c| present.contains(*c));
            let repair = Repair::new(missing.iter(), here, rows.clone());
            self.matrix.set(wanted, columns, |row, column| repair.coefficient(row, column));
            self.pattern = Some((columns, *present));
        }
        let short = data.last().map_or(0, |d| d.len());
        let (mut outputs, mut inputs) = (Vec::with_capacity(wanted), Vec::with_capacity(columns));
        for (column, piece) in data.iter_mut().enumerate() {
            if present.contains(column) {
                inputs.push(&**piece);
            } else {
                outputs.push(&mut **piece);
            }
        }
        inputs.extend(rows.map(|r| parity[r]));
        if short == length {
            return self.matrix.apply(0, &mut outputs, &inputs, false);
        }
        // The last piece of data is shorter: first process all pieces up to its length, then the rest of the others. It
        // is the last output, or the last input before the parity.
        let heads: Vec<&[u8]> = inputs.iter().map(|i| &i[..short]).collect();
        let (mut front, mut back): (Vec<_>, Vec<_>) = outputs.iter_mut().map(|o| o.split_at_mut(short)).unzip();
        self.matrix.apply(0, &mut front, &heads, false);
        let tails: Vec<&[u8]> = inputs.iter().map(|i| &i[short..]).collect();
        if present.contains(columns - 1) {
            let last = columns - wanted - 1;
            self.matrix.apply(0, &mut back, &tails[..last], false);
            self.matrix.apply(last + 1, &mut back, &tails[last + 1..], true);
        } else {
            self.matrix.apply(0, &mut back[..wanted - 1], &tails, false);
        }
    }

    fn rebuild_xor(&self, data: &mut [&mut [u8]], parity: &[&[u8]], missing: &Pieces) {
        let (residues, last) = (parity.len(), data.len() - 1);
        let short = data[last].len();
        for column in missing.iter() {
            let residue = column % residues;
            let (before, rest) = data.split_at_mut(column);
            let Some((piece, after)) = rest.split_first_mut() else { continue };
            let others = before.iter().enumerate().chain((column + 1..).zip(&*after));
            let others = others.filter(|(c, _)| c % residues == residue);
            // First all pieces of the residue up to the length of the last piece of data, then the rest of the others.
            let parity = parity[residue];
            let kernel = self.matrix.kernel();
            let (front, back) = piece.split_at_mut(short);
            let heads = others.clone().map(|(_, o)| &o[..short]);
            xor_all(kernel, front, heads.chain([&parity[..short]]), false);
            let end = short + back.len();
            let tails = others.filter(|(c, _)| *c != last).map(|(_, o)| &o[short..end]);
            xor_all(kernel, back, tails.chain([&parity[short..end]]), false);
        }
    }
}

/// The length of all pieces except the last piece of data.
fn check_lengths(data: &[&mut [u8]], parity: &[&[u8]], present: &Pieces) -> Result<usize, PieceError> {
    let here =
        || parity.iter().enumerate().map(|(r, p)| (data.len() + r, p.len())).filter(|(r, _)| present.contains(*r));
    // Without any parity no piece is missing.
    let needed = here().next().map_or(0, |(_, length)| length);
    let wrong_parity = here().find(|(_, length)| *length != needed);
    let wrong_data = data
        .iter()
        .map(|d| d.len())
        .enumerate()
        .find(|&(column, length)| length > needed || (length < needed && column + 1 < data.len()));
    match wrong_data.or(wrong_parity) {
        Some((piece, length)) => Err(PieceError::Length { piece, length, needed }),
        None => Ok(needed),
    }
}
