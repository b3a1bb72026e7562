//! Maps chunk numbers to shares and bytes of a buffer. Arithmetic only.

/// How a buffer is cut into shares and chunks.
///
/// Chunk numbers cover the whole buffer: chunk `k` of share `s` has the number `s * stride + k`; `stride` is the number
/// of chunks of the longest share (Khalilov et al., arXiv 2408.13356, artifact: `rank * n + local index`). A shorter
/// share leaves its last numbers unused. A broadcast has one share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shares: u32,
    bytes: u64,
    chunk: u16,
    stride: u32,
}

impl Layout {
    /// A buffer of `bytes` in `shares` shares, whose lengths differ by at most one byte, in chunks of `chunk` bytes.
    /// Zero counts as one. `None` if the chunk numbers need more than 32 bits.
    pub fn new(bytes: u64, shares: u32, chunk: u16) -> Option<Layout> {
        let (shares, chunk) = (shares.max(1), chunk.max(1));
        let longest = bytes.div_ceil(u64::from(shares));
        let stride = longest.div_ceil(u64::from(chunk)).max(1);
        let total = stride.checked_mul(u64::from(shares)).filter(|&total| total < u64::from(u32::MAX))?;
        Some(Layout { shares, bytes, chunk, stride: (total / u64::from(shares)) as u32 })
    }

    /// The number of shares.
    pub const fn shares(&self) -> u32 {
        self.shares
    }

    /// Bytes of all shares.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Payload bytes of every chunk except the last of a share.
    pub const fn chunk_bytes(&self) -> u16 {
        self.chunk
    }

    /// Chunk numbers per share.
    pub const fn stride(&self) -> u32 {
        self.stride
    }

    /// The number of chunk numbers, unused ones included.
    pub const fn numbers(&self) -> u32 {
        self.stride * self.shares
    }

    /// First byte and length of a share.
    pub const fn share(&self, share: u32) -> (u64, u64) {
        let (count, at) = (self.shares as u64, share as u64);
        let (each, rest) = (self.bytes / count, self.bytes % count);
        let longer = if at < rest { at } else { rest };
        (each * at + longer, each + (at < rest) as u64)
    }

    /// The number of chunks of a share; zero if it is empty.
    pub const fn chunks(&self, share: u32) -> u32 {
        self.share(share).1.div_ceil(self.chunk as u64) as u32
    }

    /// The number of the first chunk of a share.
    pub const fn first(&self, share: u32) -> u32 {
        share * self.stride
    }

    /// The share to which a chunk number belongs.
    pub const fn share_of(&self, number: u32) -> u32 {
        number / self.stride
    }

    /// Payload bytes of the last chunk of a share.
    pub const fn tail(&self, share: u32) -> u16 {
        let (_, length) = self.share(share);
        let chunks = self.chunks(share) as u64;
        if chunks == 0 { 0 } else { (length - (chunks - 1) * self.chunk as u64) as u16 }
    }

    /// First byte and length of a chunk; `None` if the number is not used.
    pub const fn place(&self, number: u32) -> Option<(u64, u16)> {
        let (share, within) = (number / self.stride, number % self.stride);
        if share >= self.shares || within >= self.chunks(share) {
            return None;
        }
        let length = if within + 1 == self.chunks(share) { self.tail(share) } else { self.chunk };
        Some((self.share(share).0 + within as u64 * self.chunk as u64, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_cover_every_byte_once(bytes in 0u64..5_000, shares in 1u32..20, chunk in 1u16..300) {
            let layout = Layout::new(bytes, shares, chunk).expect("few chunks");
            let mut next = 0;
            for number in 0..layout.numbers() {
                if let Some((first, length)) = layout.place(number) {
                    prop_assert_eq!(first, next);
                    prop_assert!(length >= 1 && length <= chunk);
                    next += u64::from(length);
                }
            }
            prop_assert_eq!(next, bytes);
            for share in 0..shares {
                let last = layout.first(share) + layout.chunks(share);
                prop_assert_eq!(layout.place(last).filter(|_| layout.chunks(share) < layout.stride()), None);
                prop_assert!(layout.chunks(share) == 0 || layout.share_of(last - 1) == share);
            }
        }
    }

    #[test]
    fn too_many_chunks_are_refused() {
        assert_eq!(Layout::new(1 << 40, 2, 1), None);
        assert!(Layout::new(1 << 40, 2, 4096).is_some());
    }
}
