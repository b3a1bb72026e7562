//! A connection's state in a window that it shares with other connections to the same host.

/// The state of a connection that shares a window.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The endpoint's number of the congestion context; `None` while no other connection shares it.
    pub(crate) context: Option<u32>,
    /// Its place among the members of the context.
    pub(crate) place: u32,
    /// The number of payload bytes that it may still send in this turn; zero before a turn.
    pub(crate) turn_left: u32,
    /// True if it shares a window that the world lends, with connections of other endpoints.
    pub(crate) lent: bool,
    /// Wire bytes that the other connections have in flight; set while it uses the shared window.
    pub(crate) beside: u64,
}

impl Sharing {
    /// Subtracts `length` payload bytes from a turn of `whole` bytes. True if that ends the turn, because the next
    /// packet may then come much later.
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
