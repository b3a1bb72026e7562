//! Handles of connections, operations and groups of a node.

/// A connection of a node. The handle stays valid after the connection is closed; calls with it then fail with
/// [`crate::Error::NoConnection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Connection {
    #[cfg(test)]
    pub(crate) const fn test(index: u32) -> Connection {
        Connection { index, generation: 0 }
    }
}

/// The number of a posted operation, which its completion repeats; a node counts upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation(pub u64);

/// A group that a node has joined. The handle stays valid after the node has left the group; calls with it then fail
/// with [`crate::Error::NoGroup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
