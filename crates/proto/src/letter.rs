//! Letters: a handful of typed words that one program sends another.

/// A short word from one program to another. It travels in one control packet of its own and may be lost: whoever needs an
/// answer repeats the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Letter {
    /// A program's own: whatever its two ends agree on.
    Custom {
        /// Tells kinds of letters apart.
        kind: u16,
        /// What it says.
        words: [u32; 4],
    },
}
