//! What is different over IPv4: hosts without IPv6, the family of a plane's sockets, ICMP.

use super::support::{Pair, config, in_namespace, in_namespace_of_ipv4, local, over_ipv4, pattern, v6};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket as raw};
use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Error, Layout, Node, Protection, Routes, address};

/// Writes `rounds` patterns of a megabyte.
fn write(pair: &mut Pair, rounds: u64, mut before: impl FnMut()) {
    let (inbox, remote) = pair.exposed(1 << 20);
    for round in 0..rounds {
        before();
        let source = pattern(round, 1 << 20);
        let outbox = pair.client.register(source.clone());
        pair.client.write(pair.ends[0], outbox, 0..1 << 20, remote, 0, None).expect("posted");
        assert!(matches!(pair.next(0), Completion::Sent { .. }), "round {round}");
        assert!(pair.server.memory(inbox).expect("registered") == source, "round {round}");
    }
}

#[test]
fn nodes_meet_on_a_host_without_ipv6_and_open_no_socket_of_it() {
    if !in_namespace_of_ipv4("nodes_meet_on_a_host_without_ipv6_and_open_no_socket_of_it") {
        return;
    }
    assert!(Node::bind(config("uec", 1)).is_err(), "this host has no IPv6");
    over_ipv4(|| {
        let mut ours = config("uec", 2);
        ours.routes = Routes::SourcePorts(4);
        let mut pair = Pair::new(ours, None, 0);
        write(&mut pair, 4, || {});
        let sockets = |file| std::fs::read_to_string(file).expect("the kernel lists sockets").lines().count() - 1;
        assert_eq!(sockets("/proc/self/net/udp6"), 0);
        // Two nodes of two planes, each with four ports and a second socket for urgent datagrams.
        assert_eq!(sockets("/proc/self/net/udp"), 2 * 2 * (4 + 1));
    });
    assert_eq!(address::loopback(), *address::parse("127.0.0.1", 0).expect("an address").ip());
}

#[test]
fn the_families_of_a_plane_and_of_its_peer_must_agree() {
    let at = |text| address::parse(text, 9).expect("an address");
    for (ours, theirs, said) in [
        ("::1", "127.0.0.1", "plane 0 is at [::1]:9, the peer at 127.0.0.1:9: take addresses of one family"),
        ("127.0.0.1", "::1", "plane 0 is at 127.0.0.1:9, the peer at [::1]:9: take addresses of one family"),
    ] {
        let mut ours = at(ours);
        ours.set_port(0);
        let mut node = Node::bind(config("uec", 0).plane(ours)).expect("a socket");
        let Err(Error::Config(what)) = node.connect(&[at(theirs)]) else { panic!("{said}") };
        assert!(what.contains(&said[said.find(", the peer").expect("in it")..]), "{what}");
    }
    let mut mrc = config("mrc", 0).plane(at("127.0.0.1"));
    (mrc.layout, mrc.protection) = (Layout::MRC, Protection::None);
    let Err(Error::Config(what)) = Node::bind(mrc) else { panic!("MRC's layout is of IPv6") };
    assert!(what.contains("give IPv6 addresses"), "{what}");
}

#[test]
fn a_plane_at_all_addresses_of_ipv6_serves_ipv4_with_its_marks() {
    let mut server = config("uec", 0).plane(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
    server.socket_buffer = 1 << 20;
    let server = Node::bind(server).expect("a socket");
    let port = server.addresses().expect("bound")[0].port();
    over_ipv4(|| {
        let mut client = Node::bind(config("uec", 1)).expect("a socket");
        let mark = Impairment { mark: 1.0, ..Impairment::default() };
        let wire = Wire::to(SocketAddrV6::new(*local().ip(), port, 0, 0), mark, 1).expect("sockets");
        let connection = client.connect(&[wire.front()]).expect("a call");
        let mut pair = Pair::of(client, server, connection);
        write(&mut pair, 2, || {});
        let received = pair.server.observe().connection_counters(pair.ends[1]).expect("open").engine;
        assert_eq!(received.marked, received.delivered + received.duplicates);
    });
}

/// A forged ICMP "fragmentation needed" for a datagram that was never sent: any host can send it, and it must have no
/// effect.
#[test]
fn a_forged_fragmentation_needed_changes_nothing() {
    if !in_namespace("a_forged_fragmentation_needed_changes_nothing") {
        return;
    }
    over_ipv4(|| {
        let mut ours = config("uec", 1);
        ours.payload = 4_096;
        let mut pair = Pair::new(ours, None, 0);
        let port = |node: &Node| v6(node.addresses().expect("bound")[0]).port();
        let loopback = [127, 0, 0, 1];
        // Type 3, code 4, an MTU of 576 bytes, and the IPv4 and UDP headers of the datagram that was supposedly too
        // big.
        let mut error = vec![3, 4, 0, 0, 0, 0, 2, 64, 0x45, 0, 5, 140, 0, 0, 0x40, 0, 60, 17, 0, 0];
        error.extend([loopback, loopback].concat());
        for word in [port(&pair.client), port(&pair.server), 1_400, 0] {
            error.extend(word.to_be_bytes());
        }
        let sum: u32 = error.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        error[2..4].copy_from_slice(&checksum.to_be_bytes());
        let forger =
            raw(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp).expect("we are root");
        let to = SockaddrIn::from(SocketAddrV4::new(loopback.into(), 0));
        write(&mut pair, 10, || {
            sendto(forger.as_raw_fd(), &error, &to, MsgFlags::empty()).expect("it leaves");
        });
        assert_eq!(pair.client.observe().plane_counters()[0].refused, 0);
    });
}
