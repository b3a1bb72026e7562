//! What hosts on sockets and the ports between them agree on about datagrams.

/// Planes of a host on sockets at the most.
pub const PLANES_MAX: usize = 8;

/// The DSCP of control packets unless a node is told otherwise: CS6. Ports send it, and the one above it, before data.
pub const CONTROL_DSCP: u8 = 48;

/// Bytes of UDP payload that a switch which trims has to leave of a datagram of data: 24 B of header, and the longest transport
/// header, MRC's 40 B. What is behind them is not needed to ask for the packet again.
pub const TRIMMED: usize = 64;
