//! The addresses of multicast groups, computed from plane, tree and team.
//!
//! A team is the members of a group. It has one address for each plane and tree. A sender chooses the way of a packet
//! by its destination address, as with micro segments ([`crate::usid`]).
//!
//! ```text
//! ff1e::1PPP PPTT TTTT TTTT  MMMM MMMM MMMM MMMM     low 32 bits: 1, plane (5 bits), tree (10 bits), team (16 bits)
//! ```
//!
//! All fields are in the low 32 bits, because the Ethernet address is made from these bits (33:33 and 32 bits, RFC
//! 2464, section 7). So trees have different Ethernet addresses, too. The leading 1 is for group numbers that are not
//! registered (RFC 3307, section 4.3). The prefix is `ff1e::/96`: transient, global scope. `ff3e::/96` would stand for
//! source-specific multicast (RFC 4607), in which receivers name the sources when they join; here switches keep no
//! state per source, and hosts join for every source. The layout is ours: the papers give none.
//!
//! Planes of IPv4 have groups in `239.0.0.0/9`, which RFC 2365 (section 6.2.1) reserves for organisations that need
//! more than `239.192.0.0/14`. The Ethernet address has 23 bits of the group's address (RFC 1112, section 6.4), and the
//! fields use exactly these:
//!
//! ```text
//! 239.0PPP TTTT.MMMM MMMM.MMMM MMMM                  plane (3 bits), tree (4 bits), team (16 bits)
//! ```

use core::net::{Ipv4Addr, Ipv6Addr};

/// Transient groups of global scope.
const PREFIX: u128 = 0xff1e << 112;

/// The leading bit of the low 32 bits.
const FIRST: u32 = 1 << 31;

/// The address of one tree of a team in one plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupAddress {
    /// The plane, below [`GroupAddress::PLANES_MAX`].
    pub plane: u8,
    /// The tree, numbered as [`Tree::numbered`](super::Tree::numbered) does; below [`GroupAddress::TREES_MAX`].
    pub tree: u16,
    /// The number of the team.
    pub team: u16,
}

impl GroupAddress {
    /// Number of planes that addresses can distinguish.
    pub const PLANES_MAX: u8 = 1 << 5;

    /// Number of trees of a plane that addresses can distinguish.
    pub const TREES_MAX: u16 = 1 << 10;

    /// Number of planes that IPv4 addresses can distinguish.
    pub const IPV4_PLANES_MAX: u8 = 1 << 3;

    /// Number of trees of a plane that IPv4 addresses can distinguish.
    pub const IPV4_TREES_MAX: u16 = 1 << 4;

    /// The address to send to and to join over IPv4; `None` if plane or tree do not fit.
    pub const fn ipv4(self) -> Option<Ipv4Addr> {
        if self.plane >= GroupAddress::IPV4_PLANES_MAX || self.tree >= GroupAddress::IPV4_TREES_MAX {
            return None;
        }
        let [high, low] = self.team.to_be_bytes();
        Some(Ipv4Addr::new(239, self.plane << 4 | self.tree as u8, high, low))
    }

    /// The address to send to and to join over IPv6.
    ///
    /// # Panics
    /// If plane or tree do not fit.
    pub fn address(self) -> Ipv6Addr {
        assert!(self.plane < GroupAddress::PLANES_MAX, "plane {} does not fit a group address", self.plane);
        assert!(self.tree < GroupAddress::TREES_MAX, "tree {} does not fit a group address", self.tree);
        let low = FIRST | u32::from(self.plane) << 26 | u32::from(self.tree) << 16 | u32::from(self.team);
        Ipv6Addr::from_bits(PREFIX | u128::from(low))
    }

    /// The fields of an address; `None` if it is not an address of this layout.
    pub fn of(address: Ipv6Addr) -> Option<GroupAddress> {
        let bits = address.to_bits();
        let low = bits as u32;
        if bits >> 32 != PREFIX >> 32 || low & FIRST == 0 {
            return None;
        }
        let plane = (low >> 26) as u8 & (GroupAddress::PLANES_MAX - 1);
        let tree = (low >> 16) as u16 & (GroupAddress::TREES_MAX - 1);
        Some(GroupAddress { plane, tree, team: low as u16 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_says_plane_tree_and_team(plane in 0u8..32, tree in 0u16..1024, team: u16) {
            let group = GroupAddress { plane, tree, team };
            prop_assert_eq!(GroupAddress::of(group.address()), Some(group));
        }

        #[test]
        fn messages_are_written_as_they_were_read_and_nothing_else_is_read(bits: u128, ours: bool) {
            let bits = if ours { PREFIX | bits & 0xffff_ffff } else { bits };
            let address = Ipv6Addr::from_bits(bits);
            match GroupAddress::of(address) {
                Some(group) => prop_assert_eq!(group.address(), address),
                None => prop_assert!(bits >> 32 != PREFIX >> 32 || bits as u32 & FIRST == 0),
            }
        }
    }

    #[test]
    fn groups_of_ipv4_differ_in_the_23_bits_that_ethernet_has_of_them() {
        let group = |plane, tree, team| GroupAddress { plane, tree, team }.ipv4();
        assert_eq!(group(0, 0, 7), Some(Ipv4Addr::new(239, 0, 0, 7)));
        assert_eq!(group(7, 15, 65_535), Some(Ipv4Addr::new(239, 127, 255, 255)));
        assert_eq!((group(8, 0, 0), group(0, 16, 0)), (None, None));
        let ethernet = |(plane, tree)| group(plane, tree, 3).expect("it fits").to_bits() & 0x7f_ffff;
        let all = (0..8).flat_map(|plane| (0..16).map(move |tree| (plane, tree)));
        let different: std::collections::BTreeSet<u32> = all.map(ethernet).collect();
        assert_eq!(different.len(), 128);
    }

    #[test]
    fn addresses_are_what_the_sheet_says() {
        // Multicast sheet, section 16: 1, plane (5 bits), tree (10), team (16).
        let address = |plane, tree, team| GroupAddress { plane, tree, team }.address().to_string();
        assert_eq!(address(0, 0, 0), "ff1e::8000:0");
        assert_eq!(address(1, 2, 3), "ff1e::8402:3");
        assert_eq!(address(31, 1023, 65_535), "ff1e::ffff:ffff");
        for other in ["ff3e::8402:3", "ff1e::402:3", "ff1e::1:8402:3", "fcbb:bb00:3000::"] {
            assert_eq!(GroupAddress::of(other.parse().expect("an address")), None, "{other}");
        }
    }
}
