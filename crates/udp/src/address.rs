//! Addresses of nodes as people write them, and as the wire keeps them.
//!
//! The wire keeps every address as an IPv6 one. The IPv4 address `10.0.0.1` has the mapped form `::ffff:10.0.0.1` (RFC
//! 4291, section 2.5.5.2). A plane whose address is mapped has IPv4 sockets, also on hosts without IPv6.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};

/// Is it an IPv4 address in its mapped form?
pub const fn is_ipv4(ip: Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

/// Is it an address of this host's loopback, `::1` or `127.0.0.0/8`?
pub const fn is_loopback(ip: Ipv6Addr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Does it stand for every address of this host, `::` or `0.0.0.0`?
pub const fn is_unspecified(ip: Ipv6Addr) -> bool {
    ip.to_canonical().is_unspecified()
}

/// The address as the wire keeps it: an IPv4 address in its mapped form.
pub fn kept(address: impl Into<SocketAddr>) -> SocketAddrV6 {
    match address.into() {
        SocketAddr::V6(address) => address,
        SocketAddr::V4(address) => SocketAddrV6::new(address.ip().to_ipv6_mapped(), address.port(), 0, 0),
    }
}

/// The address as people write it: a mapped one is a plain IPv4 address.
pub fn shown(address: impl Into<SocketAddr>) -> SocketAddr {
    let address = address.into();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
    }
}

/// The loopback address of this host: `::1`, or `127.0.0.1` where there is no IPv6.
pub fn loopback() -> Ipv6Addr {
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => Ipv6Addr::LOCALHOST,
        Err(_) => Ipv4Addr::LOCALHOST.to_ipv6_mapped(),
    }
}

/// All addresses of this host, in the family of `like`.
pub const fn unspecified(like: Ipv6Addr) -> Ipv6Addr {
    if is_ipv4(like) { Ipv4Addr::UNSPECIFIED.to_ipv6_mapped() } else { Ipv6Addr::UNSPECIFIED }
}

/// Why a text is not the address of a node.
#[derive(Debug)]
pub struct Unknown {
    text: String,
    port: u16,
    why: Option<io::Error>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unknown { text, port, why } = self;
        match why {
            Some(why) => write!(f, "{text}: {why}; ")?,
            None => write!(f, "{text}: not an address; ")?,
        }
        write!(f, "write it as 10.0.0.2, 10.0.0.2:{port}, fd00:1::2, [fd00:1::2]:{port}, or a host's name")
    }
}

impl std::error::Error for Unknown {}

/// Reads an address of either family, with or without a port; without one it gets `port`. `None` if it is neither, such
/// as a name.
pub fn parse(text: &str, port: u16) -> Option<SocketAddrV6> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let bare = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port));
    bare.or_else(|_| text.parse()).ok().map(|address| kept(shown(address)))
}

/// Reads an address as [`parse`] does, or else looks up a host's name, with or without a port. A host may have several
/// addresses. Those in the family of `like` come first, if it is given; then those to which this host has a route.
///
/// # Errors
/// If the text is neither an address nor the name of a host.
pub fn find(text: &str, port: u16, like: Option<Ipv6Addr>) -> Result<SocketAddrV6, Unknown> {
    if let Some(address) = parse(text, port) {
        return Ok(address);
    }
    let unknown = |why| Unknown { text: text.into(), port, why };
    let is_name = |name: &str| !name.is_empty() && !name.contains([':', '[', ']', '/', ' ']);
    let (name, port) = match text.rsplit_once(':') {
        Some((name, digits)) => (name, digits.parse().map_err(|_| unknown(None))?),
        None => (text, port),
    };
    if !is_name(name) {
        return Err(unknown(None));
    }
    let all = (name, port).to_socket_addrs().map_err(|why| unknown(Some(why)))?;
    let rank = |at: &SocketAddrV6| {
        let other_family = like.is_some_and(|like| is_ipv4(like) != is_ipv4(*at.ip()));
        (other_family, local_for(*at).is_err())
    };
    // The first of those with the least rank, in the order of the system's resolver.
    all.map(kept).min_by_key(rank).ok_or_else(|| unknown(None))
}

/// The local address from which this host reaches another one, with port 0. No packet is sent.
///
/// # Errors
/// If there is no route.
pub fn local_for(peer: SocketAddrV6) -> io::Result<SocketAddrV6> {
    let socket = UdpSocket::bind(shown(SocketAddrV6::new(unspecified(*peer.ip()), 0, 0, 0)))?;
    socket.connect(shown(peer))?;
    let mut address = kept(socket.local_addr()?);
    address.set_port(0);
    Ok(address)
}

/// The name of the interface that has an address. Loopback has every address of `127.0.0.0/8`, and the system lists
/// one.
pub fn device_of(address: Ipv6Addr) -> Option<String> {
    let each = getifaddrs().ok()?;
    let has = |one: &InterfaceAddress| {
        let of_loopback = is_loopback(address) && one.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let listed = one.address.as_ref().and_then(|listed| match address.to_ipv4_mapped() {
            Some(address) => listed.as_sockaddr_in().map(|listed| listed.ip() == address),
            None => listed.as_sockaddr_in6().map(|listed| listed.ip() == address),
        });
        of_loopback || listed == Some(true)
    };
    each.into_iter().find(has).map(|one| one.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_either_family_is_read_and_printed_as_people_write_it() {
        for (text, printed) in [
            ("10.0.0.2", "10.0.0.2:7"),
            ("10.0.0.2:9", "10.0.0.2:9"),
            ("::ffff:10.0.0.2", "10.0.0.2:7"),
            ("[::ffff:10.0.0.2]:9", "10.0.0.2:9"),
            ("fd00:1::2", "[fd00:1::2]:7"),
            ("[fd00:1::2]", "[fd00:1::2]:7"),
            ("[fd00:1::2]:9", "[fd00:1::2]:9"),
            ("::", "[::]:7"),
            ("0.0.0.0", "0.0.0.0:7"),
        ] {
            let address = parse(text, 7).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(shown(address).to_string(), printed);
            assert_eq!(kept(shown(address)), address);
            assert_eq!(find(text, 7, None).expect(text), address);
        }
        for text in ["", ":9", "10.0.0.2:x", "10.0.0.2:70000", "[fd00::2", "fd00::2:x:y", "a b", "-/"] {
            let said = find(text, 7, None).expect_err(text).to_string();
            assert!(parse(text, 7).is_none() && said.contains("write it as 10.0.0.2, 10.0.0.2:7"), "{said}");
        }
    }

    #[test]
    fn a_name_is_looked_up_in_the_family_of_the_plane() {
        let four = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let found = find("localhost:9", 7, Some(four)).expect("every host has it");
        assert!(is_loopback(*found.ip()) && found.port() == 9, "{found}");
        assert_eq!(find("localhost", 7, None).expect("every host has it").port(), 7);
    }

    #[test]
    fn this_host_reaches_loopback_from_loopback() {
        for text in ["127.0.0.1:9".to_string(), format!("[{}]:9", loopback())] {
            let peer = parse(&text, 0).expect("an address");
            let ours = local_for(peer).expect("a route");
            assert_eq!((is_loopback(*ours.ip()), ours.port()), (true, 0));
            assert_eq!(is_ipv4(*ours.ip()), is_ipv4(*peer.ip()));
        }
    }
}
