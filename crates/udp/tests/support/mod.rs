//! Two nodes in one thread, perhaps with bad wires between them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Config, Connection, Node, RemoteRegion, address};

/// The longest wait for a certain event, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Set for a test that runs over IPv4 in a namespace.
const OVER_IPV4: &str = "STRANDWAY_OVER_IPV4";

thread_local! {
    /// Are the addresses that this thread asks for of IPv4?
    static IPV4: Cell<bool> = Cell::new(std::env::var_os(OVER_IPV4).is_some());
}

/// Runs a test over IPv4 that otherwise runs over IPv6.
pub(crate) fn over_ipv4(test: impl FnOnce()) {
    IPV4.set(true);
    test();
}

/// The first address, or over IPv4 the second.
fn either(ipv6: &str, ipv4: &str) -> SocketAddrV6 {
    address::parse(if IPV4.get() { ipv4 } else { ipv6 }, 0).expect("an address")
}

pub(crate) fn local() -> SocketAddrV6 {
    either("::1", "127.0.0.1")
}

pub(crate) fn v6(address: SocketAddr) -> SocketAddrV6 {
    address::kept(address)
}

pub(crate) fn config(profile: &str, planes: usize) -> Config {
    let mut config = Config::new(&[7; 32]).expect("long enough").profile(profile).expect("a preset");
    config.planes = vec![local(); planes];
    // Windows small enough for the relays of a busy machine.
    config.socket_buffer = 1 << 20;
    config.retransmit_min = strandway_proto::Span::from_ms(5);
    config
}

pub(crate) struct Pair {
    pub(crate) client: Node,
    pub(crate) server: Node,
    pub(crate) wires: Vec<Wire>,
    /// The client's end and the server's.
    pub(crate) ends: [Connection; 2],
    seen: [VecDeque<Completion>; 2],
}

impl Pair {
    /// Two connected nodes; with an impairment, each plane has a wire between them.
    pub(crate) fn new(config: Config, impairment: Option<Impairment>, seed: u64) -> Pair {
        let server = Node::bind(config.clone()).expect("sockets");
        let mut client = Node::bind(config).expect("sockets");
        let mut addresses: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
        let mut wires = Vec::new();
        if let Some(impairment) = impairment {
            for (plane, address) in addresses.iter_mut().enumerate() {
                let wire = Wire::to(*address, impairment, seed + plane as u64).expect("sockets");
                *address = wire.front();
                wires.push(wire);
            }
        }
        let connection = client.connect(&addresses).expect("a call");
        Pair { wires, ..Pair::of(client, server, connection) }
    }

    /// Waits until both sides of a call are connected.
    pub(crate) fn of(client: Node, server: Node, connection: Connection) -> Pair {
        let mut pair = Pair { client, server, wires: Vec::new(), ends: [connection; 2], seen: Default::default() };
        let Completion::Connected { .. } = pair.next(0) else { panic!("the client is connected first") };
        let Completion::Accepted { connection, .. } = pair.next(1) else { panic!("then the server") };
        pair.ends[1] = connection;
        pair
    }

    /// Moves packets on both sides once.
    pub(crate) fn pump(&mut self) {
        self.seen[0].extend(self.client.poll());
        self.seen[1].extend(self.server.poll());
    }

    /// The next completion of the client (0) or the server (1).
    pub(crate) fn next(&mut self, side: usize) -> Completion {
        self.within(side, PATIENCE).unwrap_or_else(|| {
            let counters = (
                self.client.observe().connection_counters(self.ends[0]),
                self.server.observe().connection_counters(self.ends[1]),
            );
            panic!("nothing for side {side} in {PATIENCE:?}: {counters:#?}")
        })
    }

    pub(crate) fn within(&mut self, side: usize, time: Duration) -> Option<Completion> {
        let until = Instant::now() + time;
        loop {
            if let Some(completion) = self.seen[side].pop_front() {
                return Some(completion);
            }
            if Instant::now() > until {
                return None;
            }
            self.pump();
            // The relays need the cores, too.
            std::thread::yield_now();
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.pump();
            std::thread::yield_now();
        }
    }

    /// Registers `bytes` zeros at the server and opens them to the client.
    pub(crate) fn exposed(&mut self, bytes: usize) -> (strandway_udp::Region, RemoteRegion) {
        let region = self.server.register(vec![0; bytes]);
        let remote = self.server.expose(self.ends[1], region, 0..bytes).expect("a key");
        (region, remote)
    }
}

/// Bytes with a pattern that depends on position and seed.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        })
        .collect()
}

/// Runs this test alone in a network namespace, which it may change freely; false, after a message, if we lack the
/// rights for that.
pub(crate) fn in_namespace(test: &str) -> bool {
    alone(test, "ip link set lo up")
}

/// Runs this test alone in a network namespace without IPv6, as [`in_namespace`] does.
pub(crate) fn in_namespace_of_ipv4(test: &str) -> bool {
    alone(test, "ip link set lo up && sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
}

/// The address of nodes in a namespace that carries multicast.
pub(crate) fn cast_address() -> SocketAddrV6 {
    either("fd00::1", "10.0.0.1")
}

/// Runs this test alone in a network namespace, as [`in_namespace`] does. It has an interface of address
/// [`cast_address`] that carries multicast. Datagrams sent there come back to all sockets of the host.
///
/// The kernel adds the local route of an address in the background, on a busy machine after `ip addr add` has returned.
/// Until then datagrams to the address leave by the interface and are lost, so the test begins when the route is there.
pub(crate) fn in_multicast_namespace(test: &str) -> bool {
    let port = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up";
    let addresses = "ip addr add fd00::1/64 dev v0 nodad && ip addr add 10.0.0.1/24 dev v0";
    let route = "until ip -6 route get fd00::1 | grep -q ^local; do sleep 0.01; done";
    alone(test, &format!("ip link set lo up && {port} && {addresses} && {route}"))
}

/// Runs this test alone in a network namespace, as [`in_namespace`] does, with addresses `fd00:PLANE::HOST` for two
/// planes and hosts 1 and 2.
pub(crate) fn in_mrc_namespace(test: &str) -> bool {
    let add = |(plane, host)| format!(" && ip addr add fd00:{plane}::{host}/128 dev lo nodad");
    let addresses: String = [(0, 1), (0, 2), (1, 1), (1, 2)].map(add).concat();
    alone(test, &format!("ip link set lo up{addresses}"))
}

/// The path of the test with this function's name, as `--exact` takes it.
pub(crate) fn path_of(test: &str) -> String {
    let output = Command::new(std::env::current_exe().expect("a path")).arg("--list").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let all = said.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut paths = all.filter(|path| path.rsplit("::").next() == Some(test));
    let path = paths.next().unwrap_or_else(|| panic!("there is no test {test}"));
    assert_eq!(paths.next(), None, "two tests have this name");
    path.to_string()
}

/// Runs tests of this program once more, as on a kernel without any of the features that nodes can do without.
pub(crate) fn run_without_features(tests: &[&str]) {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command
        .args(["--exact", "--test-threads=2"])
        .args(tests.iter().map(|test| path_of(test)))
        .env("STRANDWAY_WITHOUT", "all");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = said.contains(&format!("{} passed; 0 failed", tests.len()));
    assert!(output.status.success() && passed, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn alone(test: &str, set_up: &str) -> bool {
    if std::env::var_os("STRANDWAY_IN_NAMESPACE").is_some() {
        return true;
    }
    let me = std::env::current_exe().expect("a path");
    let up = format!("{set_up} && exec \"$0\" --exact \"$1\" --nocapture");
    let arguments = ["-n", "sh", "-c", &up, &me.display().to_string(), &path_of(test)].map(str::to_owned);
    if !Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("{test}: skipped, it needs root and unshare");
        return false;
    }
    let mut command = Command::new("unshare");
    command.args(arguments).env("STRANDWAY_IN_NAMESPACE", "1");
    if IPV4.get() {
        command.env(OVER_IPV4, "1");
    }
    let outcome = command.output().expect("it runs");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    assert!(String::from_utf8_lossy(&outcome.stdout).contains("1 passed"));
    false
}

/// A socket that listens to a group in that namespace without being a member.
pub(crate) fn listener(group: &Ipv6Addr, port: u16) -> UdpSocket {
    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
    let socket = socket(AddressFamily::INET6, SocketType::DGRAM, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)).expect("a port");
    let device = nix::net::if_::if_nametoindex("v0").expect("it is there");
    sockopt::set_ipv6_add_membership(&socket, group, device).expect("it joins");
    socket.into()
}
