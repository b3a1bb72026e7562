//! Limits and values for datagrams that hosts on sockets and the ports between them share.

/// Limit on the planes of a host on sockets.
pub const PLANES_MAX: usize = 8;

/// Default DSCP of control packets: CS6. Ports send CS6, and CS7 above it, before data.
pub const CONTROL_DSCP: u8 = 48;

/// A switch that trims must keep at least this many bytes of a data datagram's UDP payload: 24 B of header and the
/// longest transport header (MRC's 40 B). The bytes after them are not needed to request the packet again.
pub const TRIMMED: usize = 64;
