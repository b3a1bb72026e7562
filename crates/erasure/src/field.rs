//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1, as in storage codes, and tables for the
//! multiplication by a constant with vector instructions.

/// The polynomial without its x^8.
pub(crate) const POLYNOMIAL: u8 = 0x1d;

/// The powers of 2, which are all elements except zero, and their logarithms. `LOG[0]` has no meaning.
const TABLES: ([u8; 255], [u8; 256]) = {
    let (mut exp, mut log) = ([0; 255], [0; 256]);
    let (mut power, mut i) = (1, 0);
    while i < 255 {
        exp[i] = power;
        log[power as usize] = i as u8;
        power = double(power);
        i += 1;
    }
    (exp, log)
};
static EXP: [u8; 255] = TABLES.0;
static LOG: [u8; 256] = TABLES.1;

/// Twice an element.
const fn double(a: u8) -> u8 {
    (a << 1) ^ ((a >> 7) * POLYNOMIAL)
}

/// The logarithm to the base 2 of an element other than zero, below 255.
pub(crate) fn log(a: u8) -> u32 {
    debug_assert!(a != 0, "zero has no logarithm");
    u32::from(LOG[a as usize])
}

/// 2 to a power below 255.
pub(crate) fn power(exponent: u32) -> u8 {
    EXP[exponent as usize]
}

/// `a / b`, neither of them zero.
pub(crate) fn divide(a: u8, b: u8) -> u8 {
    power((log(a) + 255 - log(b)) % 255)
}

/// The product of two elements.
#[cfg(test)]
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { power((log(a) + log(b)) % 255) }
}

/// The multiplication by each element as an 8 x 8 bit matrix, in the form of GFNI's affine instruction: bit `i` of the
/// output is the sum of the input bits that are set in byte `7 - i`.
pub(crate) static AFFINE: [u64; 256] = {
    let mut tables = [0; 256];
    let mut constant = 0;
    while constant < 256 {
        // Column c of the matrix is the constant times x^c.
        let (mut column, mut c) = (constant as u8, 0);
        while c < 8 {
            let mut row = 0;
            while row < 8 {
                if column >> row & 1 == 1 {
                    tables[constant] |= 1 << ((7 - row) * 8 + c);
                }
                row += 1;
            }
            column = double(column);
            c += 1;
        }
        constant += 1;
    }
    tables
};

/// The multiplication by each element as two tables of 16 products: with the low half of a byte, then with the high
/// half.
pub(crate) static NIBBLES: [[u8; 32]; 256] = {
    let mut tables = [[0; 32]; 256];
    let mut constant = 0;
    while constant < 256 {
        let (mut power, mut bit) = (constant as u8, 0);
        while bit < 8 {
            // Add the constant times x^bit to every entry whose index has this bit.
            let half = if bit < 4 { 0 } else { 16 };
            let mut i = 0;
            while i < 16 {
                if i >> (bit % 4) & 1 == 1 {
                    tables[constant][half + i] ^= power;
                }
                i += 1;
            }
            power = double(power);
            bit += 1;
        }
        constant += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication from the definition: polynomials over GF(2), bit by bit.
    fn naive(a: u8, b: u8) -> u8 {
        let mut product = (0..8).filter(|i| b >> i & 1 == 1).fold(0_u16, |sum, i| sum ^ u16::from(a) << i);
        for bit in (8..15).rev() {
            if product >> bit & 1 == 1 {
                product ^= 0x11d << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn every_form_of_a_product_is_the_naive_one() {
        for a in 0..=255 {
            for b in 0..=255 {
                let product = naive(a, b);
                assert_eq!(multiply(a, b), product, "{a} x {b}");
                let table = &NIBBLES[a as usize];
                assert_eq!(table[b as usize & 15] ^ table[16 + (b as usize >> 4)], product, "{a} x {b} by halves");
                let row = |i: u32| (AFFINE[a as usize] >> ((7 - i) * 8)) as u8;
                let affine = (0..8).fold(0, |sum, i| sum | (((row(i) & b).count_ones() & 1) as u8) << i);
                assert_eq!(affine, product, "{a} x {b} as a matrix");
                if product != 0 {
                    assert_eq!(divide(product, b), a, "{product} / {b}");
                }
            }
        }
    }
}
