//! An erasure code by its numbers: the number of pieces, and the losses that it can repair. This needs no bytes.

use std::fmt;

/// The largest number of pieces of a code, data and parity together: the size of the field GF(2^8).
pub const PIECES_MAX: usize = 256;

/// How parity is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeKind {
    /// Parity `r` is the XOR of all data pieces `j` with `j mod m = r`. Each of these residue groups repairs one loss.
    /// SDR-RDMA §4.
    Xor,
    /// Any `k` of the `k + m` pieces suffice to rebuild the data (maximum distance separable): a Cauchy code over
    /// GF(2^8).
    Mds,
}

/// A code with `k` pieces of data and `m` pieces of parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
    kind: CodeKind,
    data: u16,
    parity: u16,
}

/// Why there is no such code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// A code needs at least one piece of data and one of parity.
    Empty,
    /// Data and parity together are more than 256 pieces.
    TooMany {
        /// The sum that was asked for.
        pieces: usize,
    },
    /// XOR with more pieces of parity than of data: some parity would cover no data.
    IdleParity,
    /// The text is none of `xor:K,M` and `mds:K,M`.
    Syntax(String),
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeError::Empty => f.write_str("a code needs at least one piece of data and one of parity"),
            CodeError::TooMany { pieces } => {
                write!(f, "data and parity are {pieces} pieces together; at most {PIECES_MAX} are possible")
            }
            CodeError::IdleParity => f.write_str("XOR needs at least as many pieces of data as of parity"),
            CodeError::Syntax(text) => {
                write!(
                    f,
                    "{text:?} is no code: write mds:K,M or xor:K,M; for example, mds:32,8 has 8 pieces of parity for 32 of data"
                )
            }
        }
    }
}

impl std::error::Error for CodeError {}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            CodeKind::Xor => "XOR",
            CodeKind::Mds => "MDS",
        };
        write!(f, "{name}({},{})", self.data, self.parity)
    }
}

impl std::str::FromStr for Code {
    type Err = CodeError;

    /// Reads `mds:32,8` or `xor:32,8`; the form `MDS(32,8)` of papers is also accepted.
    fn from_str(text: &str) -> Result<Code, CodeError> {
        let syntax = || CodeError::Syntax(text.to_string());
        let lower = text.trim().to_ascii_lowercase();
        let (scheme, rest) = lower.split_at_checked(3).ok_or_else(syntax)?;
        let inside = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
        let numbers = inside.or_else(|| rest.strip_prefix(':')).ok_or_else(syntax)?;
        let (data, parity) = numbers.split_once(',').ok_or_else(syntax)?;
        let number = |n: &str| n.trim().parse::<usize>().map_err(|_| syntax());
        let (data, parity) = (number(data)?, number(parity)?);
        match scheme {
            "xor" => Code::xor(data, parity),
            "mds" => Code::mds(data, parity),
            _ => Err(syntax()),
        }
    }
}

impl Code {
    /// XOR with `data` pieces of data and `parity` of parity.
    ///
    /// # Errors
    /// If either is zero, both together are more than 256, or there is more parity than data.
    pub const fn xor(data: usize, parity: usize) -> Result<Code, CodeError> {
        if parity > data { Err(CodeError::IdleParity) } else { Code::new(CodeKind::Xor, data, parity) }
    }

    /// MDS with `data` pieces of data and `parity` of parity.
    ///
    /// # Errors
    /// If either is zero, or both together are more than 256.
    pub const fn mds(data: usize, parity: usize) -> Result<Code, CodeError> {
        Code::new(CodeKind::Mds, data, parity)
    }

    const fn new(kind: CodeKind, data: usize, parity: usize) -> Result<Code, CodeError> {
        if data == 0 || parity == 0 {
            return Err(CodeError::Empty);
        }
        // The first two tests keep the sum from overflowing.
        if data > PIECES_MAX || parity > PIECES_MAX || data + parity > PIECES_MAX {
            return Err(CodeError::TooMany { pieces: data.saturating_add(parity) });
        }
        Ok(Code { kind, data: data as u16, parity: parity as u16 })
    }

    /// How parity is made.
    pub const fn kind(&self) -> CodeKind {
        self.kind
    }

    /// Pieces of data, `k`.
    pub const fn data(&self) -> usize {
        self.data as usize
    }

    /// Pieces of parity, `m`.
    pub const fn parity(&self) -> usize {
        self.parity as usize
    }

    /// Pieces in all, `k + m`.
    pub const fn pieces(&self) -> usize {
        self.data() + self.parity()
    }

    /// The code of a last group with only `data` pieces of data, `k'`. It has `m' = min(m, max(2, ceil(k' m / k)))`
    /// pieces of parity, and one if `m` is one. Both sides calculate this, so it is not sent. Ours; the paper does not
    /// treat messages whose length is no multiple of `k`.
    ///
    /// # Panics
    /// If `data` is zero or more than `k`.
    pub const fn shortened(&self, data: usize) -> Code {
        assert!(data > 0 && data <= self.data(), "a group has at least one piece of data and at most k");
        let share = (data * self.parity()).div_ceil(self.data());
        let least = if share < 2 { 2 } else { share };
        let parity = if least < self.parity() { least } else { self.parity() };
        Code { kind: self.kind, data: data as u16, parity: parity as u16 }
    }

    /// A code of the same kind with other numbers; `None` if no such code exists.
    pub fn resized(&self, data: usize, parity: usize) -> Option<Code> {
        Code::new(self.kind, data, parity).ok()
    }

    /// Do the present pieces suffice to rebuild all data? Data pieces have the numbers `0..k`, parity pieces `k..k +
    /// m`. Further bits of `present` are ignored.
    pub fn decodable(&self, present: &Pieces) -> bool {
        match self.kind {
            CodeKind::Mds => present.count_below(self.pieces()) >= self.data(),
            CodeKind::Xor => {
                let missing = present.missing_below(self.pieces());
                // One bit per residue in which a piece is missing.
                let mut hit = Pieces::none();
                missing.iter().all(|piece| {
                    let residue = if piece < self.data() { piece % self.parity() } else { piece - self.data() };
                    hit.insert(residue)
                })
            }
        }
    }
}

/// A set of pieces of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pieces([u64; 4]);

impl Pieces {
    /// No piece.
    pub const fn none() -> Pieces {
        Pieces([0; 4])
    }

    /// Pieces `0..count`; all 256 if `count` is larger.
    pub const fn all(count: usize) -> Pieces {
        let mut words = [0; 4];
        let mut word = 0;
        while word < 4 {
            let bits = count.saturating_sub(word * 64);
            words[word] = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            word += 1;
        }
        Pieces(words)
    }

    /// Adds a piece. True if it was not in the set before.
    ///
    /// # Panics
    /// If `piece` is 256 or more.
    pub const fn insert(&mut self, piece: usize) -> bool {
        let new = !self.contains(piece);
        self.0[piece / 64] |= 1 << (piece % 64);
        new
    }

    /// Removes a piece.
    ///
    /// # Panics
    /// If `piece` is 256 or more.
    pub const fn remove(&mut self, piece: usize) {
        self.0[piece / 64] &= !(1 << (piece % 64));
    }

    /// The set with this piece added.
    ///
    /// # Panics
    /// If `piece` is 256 or more.
    #[must_use]
    pub const fn with(mut self, piece: usize) -> Pieces {
        self.insert(piece);
        self
    }

    /// The set with this piece removed.
    ///
    /// # Panics
    /// If `piece` is 256 or more.
    #[must_use]
    pub const fn without(mut self, piece: usize) -> Pieces {
        self.remove(piece);
        self
    }

    /// Is the piece in the set? False for pieces from 256 on.
    pub const fn contains(&self, piece: usize) -> bool {
        piece < PIECES_MAX && self.0[piece / 64] >> (piece % 64) & 1 == 1
    }

    /// The number of pieces `0..end` in the set.
    pub fn count_below(&self, end: usize) -> usize {
        self.and(&Pieces::all(end)).0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Those of the pieces `0..end` that are not in the set.
    #[must_use]
    pub fn missing_below(&self, end: usize) -> Pieces {
        Pieces(self.0.map(|w| !w)).and(&Pieces::all(end))
    }

    /// The pieces in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.checked_ilog2().map(|_| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }

    fn and(&self, other: &Pieces) -> Pieces {
        Pieces(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        text.parse().expect("a code")
    }

    #[test]
    fn codes_are_read_and_written() {
        assert_eq!(code("mds:32,8"), Code::mds(32, 8).expect("fits"));
        assert_eq!(code("XOR(32, 8)").to_string(), "XOR(32,8)");
        for bad in ["", "mds", "mds:32", "rs:32,8", "mds:32,8)", "mds(32,8", "mds:-1,8", "é:1,1"] {
            assert_eq!(bad.parse::<Code>(), Err(CodeError::Syntax(bad.to_string())), "{bad}");
        }
        assert_eq!("mds:0,1".parse::<Code>(), Err(CodeError::Empty));
        assert_eq!("mds:200,57".parse::<Code>(), Err(CodeError::TooMany { pieces: 257 }));
        assert_eq!(Code::mds(usize::MAX, usize::MAX), Err(CodeError::TooMany { pieces: usize::MAX }));
        assert_eq!("xor:4,5".parse::<Code>(), Err(CodeError::IdleParity));
        assert!(Code::mds(200, 56).is_ok() && Code::mds(1, 255).is_ok());
    }

    #[test]
    fn a_last_group_keeps_the_share_of_parity_but_at_least_two() {
        let parities = |text: &str, groups: &[usize]| -> Vec<usize> {
            groups.iter().map(|&k| code(text).shortened(k).parity()).collect()
        };
        assert_eq!(parities("mds:32,8", &[1, 2, 8, 9, 12, 13, 31, 32]), [2, 2, 2, 3, 3, 4, 8, 8]);
        assert_eq!(parities("mds:30,8", &[1, 7, 8, 29, 30]), [2, 2, 3, 8, 8]);
        assert_eq!(parities("mds:5,1", &[1, 5]), [1, 1]);
        assert_eq!(parities("xor:5,3", &[1, 2, 3, 4, 5]), [2, 2, 2, 3, 3]);
    }

    #[test]
    fn mds_wants_k_pieces_and_xor_one_per_residue() {
        let mds = code("mds:5,3");
        assert!(mds.decodable(&Pieces::all(8).without(0).without(3).without(7)));
        assert!(!mds.decodable(&Pieces::all(8).without(0).without(1).without(3).without(7)));
        // Pieces that the code does not have are no help.
        assert!(!mds.decodable(&Pieces::all(256).without(0).without(1).without(2).without(3)));

        // Groups of XOR(5,3): {0, 3, parity 5}, {1, 4, parity 6}, {2, parity 7}.
        let xor = code("xor:5,3");
        assert!(xor.decodable(&Pieces::all(8).without(3).without(6).without(2)));
        for (a, b) in [(0, 3), (3, 5), (1, 4), (4, 6), (2, 7)] {
            assert!(!xor.decodable(&Pieces::all(8).without(a).without(b)), "{a} and {b}");
        }
    }

    #[test]
    fn sets_count_and_list_their_pieces() {
        for end in [0, 1, 63, 64, 65, 128, 255, 256] {
            let all = Pieces::all(end);
            assert_eq!(all.iter().collect::<Vec<_>>(), (0..end).collect::<Vec<_>>());
            assert_eq!((all.count_below(256), all.missing_below(256).count_below(256)), (end, 256 - end));
        }
        assert_eq!(Pieces::none().with(255).with(64).iter().collect::<Vec<_>>(), [64, 255]);
        assert!(!Pieces::all(256).contains(256));
    }
}
