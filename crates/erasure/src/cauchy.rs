//! The constants of the MDS code, for encoding and, in closed form, for every pattern of losses.
//!
//! Parity row `r` has the point `x_r = 255 - r`, data column `j` the point `y_j = j`. With up to 256 pieces all points
//! are different, so `1 / (x_r + y_j)` is a Cauchy matrix. All its square submatrices are invertible, so any `k` pieces
//! can be decoded. Column `j` is multiplied by `c_j = x_0 + y_j`, which makes row 0 all ones: the first piece of parity
//! is a plain XOR, and usually the repair of a single loss is one too. No constant depends on `k` or `m`; a shortened
//! code takes the first columns and rows.

use crate::field::{divide, log, power};

fn parity_point(row: usize) -> u8 {
    255 - row as u8
}

fn data_point(column: usize) -> u8 {
    column as u8
}

fn scale(column: usize) -> u8 {
    parity_point(0) ^ data_point(column)
}

/// The factor of data piece `column` in parity piece `row`.
pub(crate) fn coefficient(row: usize, column: usize) -> u8 {
    divide(scale(column), parity_point(row) ^ data_point(column))
}

/// The constants with which missing data is computed from present pieces.
///
/// `E` is the set of missing columns, `P` a set of equally many rows of parity. The inverse of a Cauchy matrix has a
/// closed form, and its product with the present columns is a partial fraction expansion, so it reduces to one
/// fraction. The factors for missing `i` are: for parity `r` `U_i V_r / (c_i (x_r + y_i))` and for present data `j`
/// `U_i W_j c_j / (c_i (y_i + y_j))`, with `U_i = prod_P (x + y_i) / prod_{E \ i} (y + y_i)`, `V_r = prod_E (x_r + y) /
/// prod_{P \ r} (x_r + x)` and `W_j = prod_E (y_j + y) / prod_P (y_j + x)`.
///
/// Factors are stored as logarithms, so that products are sums. A new pattern of losses takes about a microsecond.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    /// For each missing piece of data: its point, and the logarithm of `U_i / c_i`.
    missing: Vec<(u8, u32)>,
    /// For each present piece in use, data before parity: its point, and the logarithm of its factor `c_j W_j` or
    /// `V_r`.
    present: Vec<(u8, u32)>,
}

impl Repair {
    /// Prepares the repair of the columns `missing` from the columns `present` and an equal number of `rows`.
    pub(crate) fn new(
        missing: impl Iterator<Item = usize>,
        present: impl Iterator<Item = usize>,
        rows: impl Iterator<Item = usize>,
    ) -> Repair {
        let lost: Vec<(u8, usize)> = missing.map(|column| (data_point(column), column)).collect();
        let used: Vec<u8> = rows.map(parity_point).collect();
        // The product of the distances of a point to all others of a set.
        let to_lost = |point: u8| product(lost.iter().map(|l| l.0 ^ point));
        let to_used = |point: u8| product(used.iter().map(|u| u ^ point));
        let repaired = lost.iter().map(|&(y, column)| (y, quotient(to_used(y), to_lost(y) + log(scale(column)))));
        let data = present.map(|column| {
            let y = data_point(column);
            (y, quotient(to_lost(y) + log(scale(column)), to_used(y)))
        });
        let parity = used.iter().map(|&x| (x, quotient(to_lost(x), to_used(x))));
        Repair { missing: repaired.collect(), present: data.chain(parity).collect() }
    }

    /// The factor of present piece `column` in missing piece `row`.
    pub(crate) fn coefficient(&self, row: usize, column: usize) -> u8 {
        let ((to, u), (from, factor)) = (self.missing[row], self.present[column]);
        power(quotient(u + factor, log(to ^ from)))
    }
}

/// The logarithm of the product of all elements except zeros.
fn product(elements: impl Iterator<Item = u8>) -> u32 {
    elements.filter(|e| *e != 0).map(log).sum()
}

/// The logarithm of a quotient of two products, below 255.
fn quotient(dividend: u32, divisor: u32) -> u32 {
    (dividend + 255 * 256 - divisor) % 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::multiply;

    #[test]
    fn the_first_row_is_plain_and_no_constant_is_zero() {
        assert!((0..255).all(|column| coefficient(0, column) == 1));
        for row in 0..128 {
            assert!((0..128).all(|column| coefficient(row, column) != 0), "row {row}");
        }
    }

    #[test]
    fn repair_constants_undo_the_encoding() {
        // Each missing piece, written as a sum of the data: its own constant is one, every other zero.
        for (missing, rows) in [(vec![3], vec![0]), (vec![0, 4], vec![2, 5]), (vec![1, 2, 6], vec![0, 1, 7])] {
            let present: Vec<usize> = (0..8).filter(|c| !missing.contains(c)).collect();
            let repair = Repair::new(missing.iter().copied(), present.iter().copied(), rows.iter().copied());
            for (i, lost) in missing.iter().enumerate() {
                for column in 0..8 {
                    let direct = present.iter().position(|c| *c == column).map_or(0, |at| repair.coefficient(i, at));
                    let through = rows.iter().enumerate().fold(0, |sum, (r, row)| {
                        sum ^ multiply(repair.coefficient(i, present.len() + r), coefficient(*row, column))
                    });
                    assert_eq!(
                        direct ^ through,
                        u8::from(column == *lost),
                        "{missing:?} from {rows:?}, column {column}"
                    );
                }
            }
        }
    }
}
