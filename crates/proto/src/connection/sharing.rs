//! A connection's part in a window that it shares with others to the same host.

/// What it takes to share a window.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The endpoint's number of the congestion context; `None` as long as there is nobody to share with.
    pub(crate) context: Option<u32>,
    /// Does it wait for its turn?
    pub(crate) waiting: bool,
    /// Payload bytes that it may still send before others have their turn; zero before a turn.
    pub(crate) turn_left: u32,
    /// Does it share the window of a world's, that of connections of other endpoints?
    pub(crate) lent: bool,
    /// Wire bytes that the others have in flight; set while it works with the shared window.
    pub(crate) beside: u64,
}

impl Sharing {
    /// So many payload bytes of a turn of `whole` are spent. True if that ends the turn: the next packet may be long in coming.
    #[inline]
    pub(super) fn spend(&mut self, length: u16, whole: u64) -> bool {
        if self.context.is_none() && !self.lent {
            return false;
        }
        let left = if self.turn_left == 0 { whole.min(u64::from(u32::MAX)) as u32 } else { self.turn_left };
        self.turn_left = left.saturating_sub(u32::from(length));
        self.turn_left == 0
    }
}
