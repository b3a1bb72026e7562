//! Errors of calls and reasons of ended connections, each with its remedy.

use crate::address::shown;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use strandway_proto::partial::SLOTS;

/// A call that failed. The node continues as before.
#[derive(Debug)]
pub enum Error {
    /// A value of the configuration is invalid; the text says which, and the valid ones.
    Config(String),
    /// A socket could not be opened or set up.
    Socket {
        /// The local address that was requested.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Waiting for the sockets failed.
    Wait(io::Error),
    /// The operating system gave no random numbers.
    Random,
    /// The region is not registered with this node (any more).
    NoRegion,
    /// The range does not lie within the region: its end, and the region's length in bytes.
    Range {
        /// Where the range ends.
        end: u64,
        /// The region's length.
        bytes: u64,
    },
    /// Operations that are not finished use the region: poll for their completions first.
    RegionInUse,
    /// The region may only be read ([`crate::Node::show`]): nothing is received into it.
    ReadOnly,
    /// There is no such connection (any more).
    NoConnection,
    /// The node is not in this group (any more), or the group has no such member or operation.
    NoGroup,
    /// The connection is not established yet: wait for [`crate::Completion::Connected`].
    NotConnected,
    /// As many operations as the limit allows are unfinished: poll for completions, then try again.
    Busy {
        /// The limit ([`crate::Limits::operations`]).
        limit: usize,
    },
    /// The call is for connections with the reliability `partial`, and this one has another.
    OnlyPartial,
    /// The connection has the reliability `partial`, which acknowledges nothing: it has its own calls to send and
    /// receive.
    IsPartial,
    /// The peer has posted no receive for another message, or all slots are taken. Try again after the next completion
    /// or control message.
    NoSlot,
    /// The stream or receive is not open: it was never opened, or it has ended, here or at the peer.
    NotOpen,
    /// As many connections as the limit allows are open: close one, or raise the limit.
    TooManyConnections {
        /// The limit.
        limit: usize,
    },
    /// The most keys are in use: [`crate::Node::revoke`] one.
    TooManyKeys {
        /// The limit.
        limit: usize,
    },
    /// The peer has not given the right to read that memory, or the right to atomic operations:
    /// [`crate::Node::expose_for`].
    NoRight,
    /// MRC's layout of datagrams has neither reads nor atomic operations.
    OnlyWrites,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(what) => f.write_str(what),
            Error::Socket { address, source } => {
                let remedy = match source.kind() {
                    io::ErrorKind::AddrInUse => "another process has it: choose another port, or 0 for any free one",
                    io::ErrorKind::AddrNotAvailable if shown(*address).is_ipv4() => {
                        "no interface of this host has it: see `ip addr`"
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        "no interface of this host has it: see `ip -6 addr`; IPv4 addresses work, too"
                    }
                    io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: choose another one",
                    // EAFNOSUPPORT
                    _ if source.raw_os_error() == Some(97) => "this host has no IPv6: take an IPv4 address",
                    _ if source.raw_os_error() == Some(24) => "too many open files: raise `ulimit -n`",
                    _ => "see `strandway doctor`",
                };
                write!(f, "cannot open a UDP socket on {}: {source}; {remedy}", shown(*address))
            }
            Error::Wait(source) => write!(f, "cannot wait for the sockets: {source}"),
            Error::Random => f.write_str("the operating system gave no random numbers"),
            Error::NoRegion => f.write_str("the region is not registered with this node"),
            Error::Range { end, bytes } => write!(f, "the range ends at byte {end}, but the region has {bytes}"),
            Error::RegionInUse => f.write_str("unfinished operations use the region: poll for their completions first"),
            Error::ReadOnly => f.write_str("the region was registered for reading only: lend it to receive into it"),
            Error::NoConnection => f.write_str("there is no such connection; it may have been closed"),
            Error::NoGroup => f.write_str("the node is not in the group, or the group has no such member or operation"),
            Error::NotConnected => f.write_str("the connection is not established yet: wait for Completion::Connected"),
            Error::Busy { limit } => {
                write!(f, "{limit} operations are unfinished: poll for completions, or raise the limit of operations")
            }
            Error::OnlyPartial => {
                f.write_str("the call is for reliability `partial`: set Config::profile.reliability to it on both sides")
            }
            Error::IsPartial => f.write_str(
                "reliability `partial` acknowledges nothing: take send_once or begin_stream to send, expect to receive, or another profile",
            ),
            Error::NoSlot => {
                write!(f, "the peer has posted no receive for it, or {SLOTS} are open: complete receives, then try again")
            }
            Error::NotOpen => f.write_str("the stream or receive is not open: it has ended, here or at the peer"),
            Error::TooManyConnections { limit } => {
                write!(f, "{limit} connections are open: close one, or raise the limit of connections")
            }
            Error::TooManyKeys { limit } => write!(f, "{limit} keys are in use: revoke one"),
            Error::NoRight => f.write_str("the peer has not exposed that memory for this: ask it for another right"),
            Error::OnlyWrites => {
                f.write_str("MRC's layout of datagrams has only writes and sends: take Layout::Frame for reads")
            }
        }
    }
}

impl Error {
    /// Has another process the port that a socket was to have? Then another port may do.
    pub fn is_port_taken(&self) -> bool {
        matches!(self, Error::Socket { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Socket { source, .. } | Error::Wait(source) => Some(source),
            _ => None,
        }
    }
}

/// Why a peer did not do what a read or an atomic operation of ours asked for. The connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key opens nothing to this connection: it is wrong, or was taken back.
    NoKey,
    /// The key opens the memory, but not for this.
    NoRight,
    /// The bytes do not lie within the range that the key opens.
    Range,
    /// More requests were under way than the peer allows ([`crate::Limits::reads`]).
    TooMany,
}

impl Refusal {
    /// Its code in a datagram.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Refusal::NoKey => 1,
            Refusal::NoRight => 2,
            Refusal::Range => 3,
            Refusal::TooMany => 4,
        }
    }

    pub(crate) const fn of_code(code: u8) -> Option<Refusal> {
        match code {
            1 => Some(Refusal::NoKey),
            2 => Some(Refusal::NoRight),
            3 => Some(Refusal::Range),
            4 => Some(Refusal::TooMany),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoKey => "the key opens nothing to this connection: it is wrong, or the peer has taken it back",
            Refusal::NoRight => "the peer has exposed the memory, but not for this: ask it for another right",
            Refusal::Range => "the bytes do not lie within the range that the peer has exposed",
            Refusal::TooMany => {
                "more reads are under way than the peer allows: give both sides the same limit of reads"
            }
        })
    }
}

/// Why a connection ended, or never began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The peer closed it.
    ByPeer,
    /// Nothing was heard from the peer for [`crate::Timeouts::peer`].
    PeerSilent,
    /// No answer to our hello came within `handshake_timeout`.
    NoAnswer,
    /// No welcome came, and a datagram from that address says that our keys differ. It is not authenticated.
    WrongKey,
    /// No welcome came, and a datagram from that address says that our versions differ. It is not authenticated.
    WrongVersion,
    /// The peer uses another profile, other parameters of the same profile, or another layout of datagrams.
    OtherProfile,
    /// The peer uses another payload size (`payload`).
    OtherPayload,
    /// The peer has another number of planes.
    OtherPlanes,
    /// The two want different protection (encryption, authentication, none).
    OtherProtection,
    /// The peer has as many connections as it takes, or accepts none (`accept`).
    PeerFull,
    /// A write named memory that its owner has not exposed to this connection, or bytes beyond its end. Both sides get
    /// this reason.
    RemoteAccess,
    /// A send was longer than the receive that was posted for it. Both sides get this reason.
    TooLong,
    /// The peer broke the protocol.
    Violation,
    /// A full packet does not fit an interface, or does not pass on any path: lower `payload`, or raise the MTU.
    PayloadTooLarge,
    /// The connection is 200 days old, and its clock would soon reach its end: connect again.
    Aged,
    /// Too many of the peer's writes with immediates wait for the application: see
    /// `strandway_asynchronous::Peer::written`.
    Unheeded,
}

impl Reason {
    /// Its code in a closing datagram.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Reason::RemoteAccess => 1,
            Reason::TooLong => 2,
            Reason::Violation => 3,
            Reason::PayloadTooLarge => 4,
            _ => 0,
        }
    }

    pub(crate) const fn of_code(code: u8) -> Reason {
        match code {
            1 => Reason::RemoteAccess,
            2 => Reason::TooLong,
            3 => Reason::Violation,
            4 => Reason::PayloadTooLarge,
            _ => Reason::ByPeer,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::ByPeer => "the peer closed the connection",
            Reason::PeerSilent => "the peer has fallen silent: its process may have died, or no plane leads there any more",
            Reason::NoAnswer => "no answer: is a node running at that address, is the port right, does a firewall drop UDP?",
            Reason::WrongKey => "no welcome, and the address says that the key is wrong: give both sides the same one",
            Reason::WrongVersion => "no welcome, and the address speaks another version: update the older side",
            Reason::OtherProfile => "the peer runs another profile, other parameters or another layout: give both sides the same",
            Reason::OtherPayload => "the peer uses another payload size: give both sides the same",
            Reason::OtherPlanes => "the peer has another number of planes: give both sides the same",
            Reason::OtherProtection => "the two sides want different protection: give both the same",
            Reason::PeerFull => "the peer takes no more connections: raise its limit of connections, or close some",
            Reason::RemoteAccess => "a write named memory that is not exposed to this connection, or bytes beyond its end",
            Reason::TooLong => "a send was longer than the receive that waited for it: post larger receives",
            Reason::Violation => "the peer broke the protocol",
            Reason::PayloadTooLarge => {
                "full packets do not pass: one does not fit an interface's MTU, or the path to the peer has become narrower; lower the payload size, or raise the MTU (see `ip link`)"
            }
            Reason::Aged => "the connection is 200 days old, the most that a connection may be: connect again",
            Reason::Unheeded => "the application does not take the peer's immediates: await Peer::written, or let the peer write without immediates",
        })
    }
}
