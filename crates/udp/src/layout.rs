//! The layout and the protection of datagrams, which both sides of a connection must have alike.

use crate::frame::TAG;
use strandway_wire::ocp;

/// Protection of a connection's datagrams, in addition to a random number that only its two sides know. Both sides must
/// have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protection {
    /// Authenticated and encrypted, in one pass: AES-128-GCM.
    #[default]
    Encrypted,
    /// Authenticated only, so that captures show the payload. It takes about as long as encryption with authentication.
    Authenticated,
    /// Neither: a host that can read a connection's datagrams can forge them. For fabrics that no other hosts can
    /// reach.
    None,
}

impl Protection {
    /// The protection with this name: `encrypted`, `authenticated` or `none`.
    pub fn named(name: &str) -> Option<Protection> {
        match name {
            "encrypted" => Some(Protection::Encrypted),
            "authenticated" => Some(Protection::Authenticated),
            "none" => Some(Protection::None),
            _ => None,
        }
    }

    /// Bytes behind a datagram's body.
    pub const fn tag_bytes(self) -> usize {
        match self {
            Protection::Encrypted | Protection::Authenticated => TAG,
            Protection::None => 0,
        }
    }
}

/// The bytes of the datagrams with which connections move data. Both sides must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Ours ([`crate::frame`]), over UDP. Every protocol has it, and it can be encrypted.
    #[default]
    Frame,
    /// MRC's as publicly laid out ([`strandway_wire::ocp`]): IPv6 in IPv6 from raw sockets, with the path as the
    /// outer destination (method C). Only profiles of MRC have it. It has no room for a seal, so it needs
    /// [`Protection::None`]; handshakes, pings, control messages and closes stay datagrams of ours. Not proven against
    /// hardware: see `docs/protocols/mrc.md`.
    Mrc {
        /// The UDP port of all NICs: [`strandway_wire::ocp::PORT`] unless the site has another one.
        port: u16,
    },
    /// Ultra Ethernet Transport's ([`strandway_wire::uet`]), over UDP, with [`Protection::Encrypted`] or
    /// [`Protection::None`]. Its nodes are [`crate::uet::Node`], made by [`crate::uet::Node::configured`]; a
    /// [`crate::Node`] refuses it: everything in it is UET's, and nothing else of ours has a place.
    Uet,
}

impl Layout {
    /// MRC's layout with the usual port.
    pub const MRC: Layout = Layout::Mrc { port: ocp::PORT };
}
