//! Questions to the kernel about network interfaces: its generic-netlink family `ethtool` (linux/ethtool_netlink.h,
//! Linux 5.6).

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use std::os::fd::{AsRawFd, OwnedFd};

/// `NLM_F_REQUEST` of linux/netlink.h.
const REQUEST: u16 = 1;
/// `NLMSG_ERROR` of linux/netlink.h.
const ERROR: u16 = 2;
/// `NLA_F_NESTED` and `NLA_TYPE_MASK` of linux/netlink.h.
const NESTED: u16 = 1 << 15;
const KIND: u16 = 0x3fff;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME` of linux/genetlink.h.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// A `nlmsghdr` and a `genlmsghdr`.
const HEADERS: usize = 20;

/// A question about an interface: a message type of `ETHTOOL_MSG_USER_*`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// Offloads.
    Features = 11,
    /// Sizes of the rings of descriptors.
    Rings = 15,
    /// Numbers of queues.
    Channels = 17,
    /// Interrupt moderation.
    Coalescing = 19,
}

/// A connection to the kernel's `ethtool` family.
pub(super) struct Ethtool {
    socket: OwnedFd,
    family: u16,
}

impl Ethtool {
    /// `None` if the kernel has no such family, or the process may not ask.
    pub(super) fn open() -> Option<Ethtool> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkGeneric).ok()?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).ok()?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 200_000)).ok()?;
        let mut ethtool = Ethtool { socket, family: CONTROL };
        let mut request = Vec::new();
        attribute(&mut request, FAMILY_NAME, b"ethtool\0");
        let answer = ethtool.exchange(GET_FAMILY, &request)?;
        ethtool.family = u16::from_ne_bytes(*find(&answer, FAMILY_ID)?.first_chunk()?);
        Some(ethtool)
    }

    /// The attributes of the answer for an interface; `None` if it does not support the question.
    pub(super) fn ask(&self, question: Question, interface: &str) -> Option<Vec<u8>> {
        // ETHTOOL_A_HEADER_DEV_NAME within attribute 1, the header of every message.
        let (mut name, mut request) = (interface.as_bytes().to_vec(), Vec::new());
        name.push(0);
        let mut header = Vec::new();
        attribute(&mut header, 2, &name);
        attribute(&mut request, 1 | NESTED, &header);
        self.exchange(question as u8, &request)
    }

    fn exchange(&self, command: u8, attributes: &[u8]) -> Option<Vec<u8>> {
        let mut message = Vec::with_capacity(HEADERS + attributes.len());
        message.extend_from_slice(&((HEADERS + attributes.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&self.family.to_ne_bytes());
        message.extend_from_slice(&REQUEST.to_ne_bytes());
        // Sequence and port are zero, then a `genlmsghdr` of version 1.
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&[command, 1, 0, 0]);
        message.extend_from_slice(attributes);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty()).ok()?;
        let mut answer = vec![0; 32_768];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
        let length = length.min(u32::from_ne_bytes(*answer.first_chunk()?) as usize);
        let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
        (kind != ERROR).then(|| answer.get(HEADERS..length).map(<[u8]>::to_vec))?
    }
}

/// Appends an attribute.
fn attribute(out: &mut Vec<u8>, kind: u16, bytes: &[u8]) {
    out.extend_from_slice(&(4 + bytes.len() as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The attributes in `bytes`: their kinds and contents.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & KIND;
        let content = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// The content of the first attribute of a kind.
fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(of, _)| *of == kind).map(|(_, content)| content)
}

/// An attribute that is a number of 8 or 32 bits.
pub(super) fn number(answer: &[u8], kind: u16) -> Option<u32> {
    match *find(answer, kind)? {
        [byte] => Some(byte.into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d])),
        _ => None,
    }
}

/// The names of the bits that are set in a set of bits with names.
pub(super) fn names(answer: &[u8], kind: u16) -> Vec<String> {
    // ETHTOOL_A_BITSET_BITS, and of a bit ETHTOOL_A_BITSET_BIT_NAME and _VALUE. A set without a mask lists only bits
    // that are set.
    let Some(set) = find(answer, kind) else { return Vec::new() };
    let lists_set_bits = find(set, 1).is_some();
    let bits = attributes(find(set, 3).unwrap_or_default());
    bits.filter(|(_, bit)| lists_set_bits || find(bit, 3).is_some())
        .filter_map(|(_, bit)| find(bit, 2))
        .map(|name| String::from_utf8_lossy(name).trim_end_matches('\0').to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_names_are_read_from_attributes() {
        let bit = |name: &[u8], set: bool| {
            let mut bit = Vec::new();
            attribute(&mut bit, 1, &7u32.to_ne_bytes());
            attribute(&mut bit, 2, name);
            if set {
                attribute(&mut bit, 3, &[]);
            }
            bit
        };
        let mut answer = Vec::new();
        attribute(&mut answer, 6, &512u32.to_ne_bytes());
        attribute(&mut answer, 11, &[1]);
        for (kind, no_mask) in [(3, false), (4, true)] {
            let (mut set, mut bits) = (Vec::new(), Vec::new());
            if no_mask {
                attribute(&mut set, 1, &[]);
            }
            attribute(&mut bits, 1 | NESTED, &bit(b"rx-gro\0", false));
            attribute(&mut bits, 1 | NESTED, &bit(b"tx-udp-segmentation\0", true));
            attribute(&mut set, 3 | NESTED, &bits);
            attribute(&mut answer, kind | NESTED, &set);
        }
        assert_eq!((number(&answer, 6), number(&answer, 11), number(&answer, 12)), (Some(512), Some(1), None));
        assert_eq!(names(&answer, 3), ["tx-udp-segmentation"], "of a set with a mask, the bits that are set");
        assert_eq!(names(&answer, 4), ["rx-gro", "tx-udp-segmentation"], "a set without a mask lists what is set");
        assert_eq!(names(&answer, 6), Vec::<String>::new());
    }

    #[test]
    fn the_kernel_knows_the_offloads_of_loopback() {
        let Some(ethtool) = Ethtool::open() else {
            println!("skipped: this kernel has no `ethtool` family");
            return;
        };
        let answer = ethtool.ask(Question::Features, "lo").expect("every interface has features");
        assert!(names(&answer, 4).iter().any(|name| name == "loopback"), "{:?}", names(&answer, 4));
        assert_eq!(ethtool.ask(Question::Rings, "lo"), None, "loopback has no rings");
        assert_eq!(ethtool.ask(Question::Features, "no-such-port"), None);
    }

    proptest! {
        #[test]
        fn no_answer_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u16..16) {
            let _ = (number(&bytes, kind), names(&bytes, kind));
        }
    }
}
