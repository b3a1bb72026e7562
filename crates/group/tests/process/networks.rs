//! The networks that users have, made of namespaces: two ranks, started as launchers start them and without any
//! variable of ours, meet and add, or both end within seconds with one line that names cause and remedy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{GroupOptions, Launch, Reduction};

/// The variable that makes a copy of this test program a rank: the folder for its result.
const AS_RANK: &str = "STRANDWAY_TEST_IN_NETWORK";
/// A meeting that fails takes 5 s to find out; the rest is for busy machines.
const SOON: Duration = Duration::from_secs(40);
const PORT: u16 = 29_700;

/// Not a test by itself: what a rank does, in a process of its own.
#[test]
fn rank_in_a_network() {
    let Ok(folder) = std::env::var(AS_RANK) else { return };
    let folder = PathBuf::from(folder);
    // Ranks that hang are ended by the test; a meeting would wait for as long as this.
    let patience = Duration::from_secs(120);
    let launch = Launch::from_env().expect("started by a launcher");
    let (text, ranks) = match launch.form(GroupOptions { timeout: patience, patience }) {
        Err(error) => (format!("refused: {error}"), 0),
        Ok(group) => {
            let mut calls = 0;
            let outcome = loop {
                // All ranks see the end in the same call, by the sum.
                let over = f32::from(u8::from(calls >= 20 && !folder.join("more").exists()));
                let mut numbers = vec![over; 200_000];
                match group.all_reduce(&mut numbers, Reduction::Sum) {
                    Ok(()) if numbers.iter().any(|sum| *sum != numbers[0]) => break "wrong sums".to_string(),
                    Ok(()) if numbers[0] == group.ranks() as f32 => break "sums are right".to_string(),
                    Ok(()) => calls += 1,
                    Err(failure) => break format!("failed: {failure}"),
                }
                if calls == 5 {
                    fs::write(folder.join(format!("busy{}", launch.rank)), "").expect("written");
                }
            };
            (outcome, group.ranks())
        }
    };
    fs::write(folder.join(format!("draft{}", launch.rank)), format!("{text}\n{ranks}")).expect("written");
    fs::rename(folder.join(format!("draft{}", launch.rank)), folder.join(format!("end{}", launch.rank)))
        .expect("there");
}

fn command(line: &str) -> bool {
    let outcome = Command::new("sh").args(["-c", line]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    outcome.is_ok_and(|status| status.success())
}

/// Namespaces `a`, `b` and `r`, and a folder; all of it goes at the end.
struct Network {
    name: String,
    folder: PathBuf,
    ranks: Vec<Child>,
}

impl Network {
    /// Two hosts and nothing between them; `None` where that is not allowed.
    fn new(name: &str) -> Option<Network> {
        let name = format!("strandway-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let network = Network { name, folder, ranks: Vec::new() };
        let made = ["a", "b", "r"].into_iter().all(|host| command(&format!("ip netns add {}-{host}", network.name)));
        if !made {
            eprintln!("skipped: no network namespaces can be made here");
            return None;
        }
        fs::create_dir_all(&network.folder).expect("a folder");
        network.on("a", &["ip link set lo up"]);
        network.on("b", &["ip link set lo up"]);
        Some(network)
    }

    /// Runs commands in a namespace.
    fn on(&self, host: &str, lines: &[&str]) {
        for line in lines {
            assert!(self.try_on(host, line), "{host}: {line}");
        }
    }

    fn try_on(&self, host: &str, line: &str) -> bool {
        command(&format!("ip netns exec {}-{host} {}", self.name, line.replace("NAME", &self.name)))
    }

    /// A link between the hosts, with these commands at each host, in which `N` is 1 or 2.
    fn link(&self, device: &str, lines: &[&str]) {
        self.on("a", &[&format!("ip link add {device} type veth peer name {device} netns NAME-b")]);
        for (host, number) in [("a", "1"), ("b", "2")] {
            for line in lines {
                self.on(host, &[&line.replace("#N", number)]);
            }
            self.on(host, &[&format!("ip link set {device} up")]);
        }
    }

    /// A cable from a host's `eth0` to `eHOST` of `r`.
    fn cable(&self, host: &str) {
        self.on("r", &[&format!("ip link add e{host} type veth peer name eth0 netns NAME-{host}")]);
        self.on("r", &[&format!("ip link set e{host} up")]);
    }

    /// A router between the hosts: host N is at 10.9.N.2 and fd00:N::2.
    fn route(&self, families: &[u32]) {
        for (host, n) in [("a", 1), ("b", 2)] {
            self.cable(host);
            for (at, device, last) in [(host, "eth0", 2), ("r", if n == 1 { "ea" } else { "eb" }, 1)] {
                if families.contains(&4) {
                    self.on(at, &[&format!("ip addr add 10.9.{n}.{last}/24 dev {device}")]);
                }
                if families.contains(&6) {
                    self.on(at, &[&format!("ip addr add fd00:{n}::{last}/64 dev {device} nodad")]);
                }
                self.on(at, &[&format!("ip link set {device} up")]);
            }
            if families.contains(&4) {
                self.on(host, &[&format!("ip route add default via 10.9.{n}.1")]);
            }
            if families.contains(&6) {
                self.on(host, &[&format!("ip -6 route add default via fd00:{n}::1")]);
            }
        }
        self.on("r", &["sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1"]);
    }

    /// Rules of a firewall, if the system has one.
    fn firewall(&self, host: &str, hook: &str, rules: &[&str]) -> bool {
        let set_up = self.try_on(host, "nft add table inet f")
            && self.try_on(host, &format!("nft add chain inet f c '{{ type filter hook {hook} priority 0; }}'"));
        if !set_up {
            eprintln!("skipped: no nft here");
            return false;
        }
        rules.iter().for_each(|rule| self.on(host, &[&format!("nft add rule inet f c {rule}")]));
        true
    }

    /// Starts a rank as torchrun does; `more`: variables of ours.
    fn start(&mut self, rank: usize, master: &str, more: &[(&str, &str)]) {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{}", self.name, ["a", "b"][rank])]).arg(program);
        command.args(["--exact", "process::networks::rank_in_a_network", "--nocapture"]).stdout(Stdio::null());
        let log = fs::File::create(self.folder.join(format!("log{rank}"))).expect("a file");
        command.stderr(log).env(AS_RANK, &self.folder).env("STRANDWAY_LOG", "info");
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("MASTER_PORT", PORT.to_string());
        match master.contains('/') {
            true => command.env("STRANDWAY_STORE", master),
            false => command.env("MASTER_ADDR", master),
        };
        for (name, value) in more {
            command.env(name, value);
        }
        self.ranks.push(command.spawn().expect("starts"));
    }

    /// Both ranks, one after the other.
    fn run(&mut self, master: &str) -> [String; 2] {
        (0..2).for_each(|rank| self.start(rank, master, &[]));
        self.ends()
    }

    fn wait_for(&self, name: &str) -> String {
        let until = Instant::now() + SOON;
        loop {
            if let Ok(text) = fs::read_to_string(self.folder.join(name)) {
                return text;
            }
            assert!(Instant::now() < until, "no {name} after {SOON:?}: {}", self.log(0) + &self.log(1));
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How both ranks ended: the first line of each.
    fn ends(&mut self) -> [String; 2] {
        let ends = [self.wait_for("end0"), self.wait_for("end1")];
        self.ranks.iter_mut().for_each(|rank| drop(rank.wait()));
        ends.map(|end| end.lines().next().unwrap_or_default().to_string())
    }

    fn log(&self, rank: usize) -> String {
        fs::read_to_string(self.folder.join(format!("log{rank}"))).unwrap_or_default()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
        for host in ["a", "b", "r"] {
            command(&format!("ip netns del {}-{host}", self.name));
            let _ = fs::remove_dir_all(Path::new("/etc/netns").join(format!("{}-{host}", self.name)));
        }
        // The folder is removed only if it is empty.
        let _ = fs::remove_dir("/etc/netns");
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn works(ends: &[String; 2]) {
    assert_eq!(*ends, ["sums are right", "sums are right"]);
}

fn refused(ends: &[String; 2], words: &[&str]) {
    for end in ends {
        assert!(end.starts_with("refused: ") && words.iter().all(|word| end.contains(word)), "{words:?}: {ends:?}");
    }
}

const NO_IPV6: &str = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";

#[test]
fn hosts_with_ipv4_only_meet_and_add() {
    let Some(mut network) = Network::new("four") else { return };
    ["a", "b"].iter().for_each(|host| network.on(host, &[NO_IPV6]));
    network.link("eth0", &["ip addr add 10.9.0.#N/24 dev eth0"]);
    works(&network.run("10.9.0.1"));
    assert!(network.log(1).contains("planes 10.9.0.2"), "{}", network.log(1));
}

#[test]
fn ranks_of_one_host_without_ipv6_meet_on_loopback() {
    let Some(mut network) = Network::new("lone") else { return };
    network.on("a", &[NO_IPV6]);
    network.start(0, "localhost", &[]);
    // The second rank on the first host, too.
    let name = network.name.clone();
    network.name = format!("{name}-a");
    let program = std::env::current_exe().expect("this program");
    let mut rank = Command::new("ip");
    rank.args(["netns", "exec", &network.name]).arg(program);
    rank.args(["--exact", "process::networks::rank_in_a_network"]).stdout(Stdio::null()).stderr(Stdio::null());
    rank.env(AS_RANK, &network.folder).env("RANK", "1").env("WORLD_SIZE", "2");
    rank.env("MASTER_ADDR", "localhost").env("MASTER_PORT", PORT.to_string());
    network.ranks.push(rank.spawn().expect("starts"));
    network.name = name;
    works(&network.ends());
    assert!(network.log(0).contains("planes 127.0.0.1"), "{}", network.log(0));
}

#[test]
fn hosts_with_both_families_meet_at_a_master_of_either() {
    for (name, master, plane) in
        [("both4", "10.9.1.2", "planes 10.9.2.2"), ("both6", "fd00:1::2", "planes [fd00:2::2]")]
    {
        let Some(mut network) = Network::new(name) else { return };
        network.route(&[4, 6]);
        works(&network.run(master));
        assert!(network.log(1).contains(plane), "{}", network.log(1));
    }
}

#[test]
fn a_master_whose_name_is_loopback_at_home_is_reached() {
    let Some(mut network) = Network::new("home") else { return };
    network.route(&[4, 6]);
    for (host, hosts) in
        [("a", "127.0.0.1 localhost\n127.0.1.1 hosta\n"), ("b", "127.0.0.1 localhost\n10.9.1.2 hosta\n")]
    {
        let folder = Path::new("/etc/netns").join(format!("{}-{host}", network.name));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("hosts"), hosts).expect("written");
    }
    works(&network.run("hosta"));
}

#[test]
fn an_address_that_the_kernel_still_checks_is_waited_for() {
    let Some(mut network) = Network::new("dad") else { return };
    network.link("eth0", &["ip addr add fd00:7::#N/64 dev eth0"]);
    works(&network.run("fd00:7::1"));
}

#[test]
fn ranks_with_different_mtus_take_the_least() {
    let Some(mut network) = Network::new("mtus") else { return };
    network.route(&[4, 6]);
    network.on("a", &["ip link set eth0 mtu 9000"]);
    network.on("r", &["ip link set ea mtu 9000"]);
    works(&network.run("10.9.1.2"));
}

#[test]
fn a_path_that_is_narrower_than_its_ends_is_measured() {
    // The router says "packet too big"; a bridge in the place of the router says nothing.
    let Some(mut network) = Network::new("narrow") else { return };
    network.route(&[4, 6]);
    network.on("a", &["ip link set eth0 mtu 9000"]);
    network.on("b", &["ip link set eth0 mtu 9000"]);
    network.on("r", &["ip link set ea mtu 9000", "ip link set eb mtu 9000"]);
    for (n, device) in [(1, "ea"), (2, "eb")] {
        for (family, net) in [("-4", format!("10.9.{n}.0/24")), ("-6", format!("fd00:{n}::/64"))] {
            network.on("r", &[&format!("ip {family} route del {net} dev {device}")]);
            network.on("r", &[&format!("ip {family} route add {net} dev {device} mtu 1500")]);
        }
    }
    works(&network.run("10.9.1.2"));
    drop(network);

    let Some(mut network) = Network::new("hole") else { return };
    network.on("r", &["ip link add br0 type bridge", "ip link set br0 up"]);
    for (host, n) in [("a", 1), ("b", 2)] {
        network.cable(host);
        network.on("r", &[&format!("ip link set e{host} master br0 mtu 1400 up")]);
        network.on(host, &[&format!("ip addr add 10.9.0.{n}/24 dev eth0"), "ip link set eth0 up"]);
    }
    works(&network.run("10.9.0.1"));
    let payload = |log: String| {
        let words: Vec<&str> = log.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "bytes").unwrap_or_else(|| panic!("{log}"));
        words[at - 1].parse::<u32>().expect("a number")
    };
    let found = payload(network.log(0));
    assert!((1_200..1_300).contains(&found) && found == payload(network.log(1)), "{found} bytes fit 1,400");
}

#[test]
fn a_firewall_that_drops_udp_is_named_with_direction_and_addresses() {
    for (name, rule, direction) in [
        ("udp", "meta l4proto udp drop", "no packet arrives in either direction"),
        ("oneway", "ip saddr 10.9.1.2 meta l4proto udp drop", "those of rank 0 do not arrive at rank 1"),
    ] {
        let Some(mut network) = Network::new(name) else { return };
        network.route(&[4]);
        if !network.firewall("r", "forward", &[rule]) {
            return;
        }
        let began = Instant::now();
        refused(
            &network.run("10.9.1.2"),
            &["rank 0 at ", "[10.9.1.2:", "rank 1 at ", "[10.9.2.2:", direction, "doctor"],
        );
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

#[test]
fn a_firewall_that_lets_a_range_of_ports_pass_is_met_with_it() {
    let Some(mut network) = Network::new("range") else { return };
    network.route(&[4]);
    if !network.firewall("r", "forward", &["udp dport 29800-29809 accept", "meta l4proto udp drop"]) {
        return;
    }
    (0..2).for_each(|rank| network.start(rank, "10.9.1.2", &[("STRANDWAY_PORTS", "29800-29809")]));
    works(&network.ends());
}

#[test]
fn a_stateful_firewall_of_a_host_lets_answers_pass() {
    let Some(mut network) = Network::new("state") else { return };
    network.route(&[4]);
    // As many distributions set it up: all may leave, and what answers it may come in. Both hosts begin to send.
    let rules =
        ["ct state established,related accept", "iif lo accept", "tcp dport 29701 accept", "meta l4proto udp drop"];
    if !network.firewall("a", "input", &rules) {
        return;
    }
    works(&network.run("10.9.1.2"));
}

#[test]
fn containers_on_one_bridge_meet_and_behind_two_bridges_are_told_why_not() {
    let Some(mut network) = Network::new("bridge") else { return };
    network.on(
        "r",
        &["ip link add docker0 type bridge", "ip addr add 172.17.0.1/16 dev docker0", "ip link set docker0 up"],
    );
    for (host, last) in [("a", 2), ("b", 3)] {
        network.cable(host);
        network.on("r", &[&format!("ip link set e{host} master docker0 up")]);
        network.on(host, &[&format!("ip addr add 172.17.0.{last}/16 dev eth0"), "ip link set eth0 up"]);
        network.on(host, &["ip route add default via 172.17.0.1", NO_IPV6]);
    }
    works(&network.run("172.17.0.2"));
    drop(network);

    let Some(mut network) = Network::new("nat") else { return };
    for host in ["a", "b"] {
        network.cable(host);
        network.on(host, &["ip addr add 172.17.0.2/16 dev eth0", "ip link set eth0 up", NO_IPV6]);
    }
    let store = network.folder.join("store").display().to_string();
    refused(&network.run(&store), &["both have the address 172.17.0.2", "STRANDWAY_ADVERTISE"]);
}

#[test]
fn containers_behind_two_bridges_meet_by_the_addresses_that_their_hosts_forward() {
    let Some(mut network) = Network::new("forward") else { return };
    // Both containers are 172.17.0.2; their hosts, two sides of `r`, are 10.7.1.1 and 10.7.2.1.
    if !network.try_on("r", "nft list ruleset") {
        eprintln!("skipped: no nft here");
        return;
    }
    for n in [1, 2] {
        let name = format!("NAME-h{n}").replace("NAME", &network.name);
        assert!(command(&format!("ip netns add {name}")));
    }
    let on = |n: u32, line: &str| {
        let line = format!("ip netns exec {}-h{n} {}", network.name, line.replace("NAME", &network.name));
        assert!(command(&line), "{line}");
    };
    on(1, "ip link add out type veth peer name out netns NAME-h2");
    for (host, n) in [("a", 1u32), ("b", 2)] {
        on(n, &format!("ip link add in type veth peer name eth0 netns NAME-{host}"));
        for line in [
            format!("ip addr add 10.7.0.{n}/24 dev out"),
            "ip addr add 172.17.0.1/16 dev in".into(),
            "ip link set in up".into(),
            "ip link set out up".into(),
            "sysctl -qw net.ipv4.ip_forward=1".into(),
            "nft add table ip f".into(),
            "nft add chain ip f before '{ type nat hook prerouting priority -100; }'".into(),
            "nft add chain ip f after '{ type nat hook postrouting priority 100; }'".into(),
            "nft add rule ip f before iifname out udp dport 29800 dnat to 172.17.0.2".into(),
            "nft add rule ip f after oifname out masquerade".into(),
        ] {
            on(n, &line);
        }
        network.on(host, &["ip addr add 172.17.0.2/16 dev eth0", "ip link set eth0 up", NO_IPV6]);
        network.on(host, &["ip route add default via 172.17.0.1"]);
    }
    let store = network.folder.join("store").display().to_string();
    for (rank, address) in [(0, "10.7.0.1"), (1, "10.7.0.2")] {
        network.start(rank, &store, &[("STRANDWAY_ADVERTISE", address), ("STRANDWAY_PORTS", "29800")]);
    }
    let ends = network.ends();
    for n in 1..=2 {
        command(&format!("ip netns del {}-h{n}", network.name));
    }
    works(&ends);
}

#[test]
fn ranks_without_a_common_network_end_with_both_lists() {
    let Some(mut network) = Network::new("none") else { return };
    ["a", "b"].iter().for_each(|host| network.cable(host));
    network.on("a", &["ip addr add 10.9.1.2/24 dev eth0", "ip link set eth0 up", NO_IPV6]);
    network.on("b", &["ip addr add fd00:2::2/64 dev eth0 nodad", "ip link set eth0 up"]);
    let store = network.folder.join("store").display().to_string();
    refused(&network.run(&store), &["no network in common", "10.9.1.2 (eth0)", "fd00:2::2 (eth0)"]);
}

#[test]
fn a_rank_that_cannot_come_tells_the_others_why() {
    let Some(mut network) = Network::new("cannot") else { return };
    network.route(&[4]);
    network.start(0, "10.9.1.2", &[]);
    network.start(1, "10.9.1.2", &[("STRANDWAY_IFNAME", "eth7")]);
    let [zero, one] = network.ends();
    assert!(one.starts_with("refused: STRANDWAY_IFNAME is \"eth7\"") && one.contains("10.9.2.2 (eth0)"), "{one}");
    assert!(zero.starts_with("refused: rank 1 at ") && zero.contains("cannot come: STRANDWAY_IFNAME"), "{zero}");
    drop(network);

    let Some(mut network) = Network::new("cannot0") else { return };
    network.route(&[4]);
    let store = network.folder.join("store").display().to_string();
    network.start(0, &store, &[("STRANDWAY_PORTS", "9-5")]);
    network.start(1, &store, &[]);
    refused(&network.ends(), &["STRANDWAY_PORTS is \"9-5\""]);
}

#[test]
fn two_subnets_are_two_planes_and_one_of_them_may_die() {
    let Some(mut network) = Network::new("two") else { return };
    for (n, device) in ["eth0", "eth1"].into_iter().enumerate() {
        network.link(device, &[&format!("ip addr add 10.9.{n}.#N/24 dev {device}")]);
    }
    fs::write(network.folder.join("more"), "").expect("written");
    (0..2).for_each(|rank| network.start(rank, "10.9.0.1", &[]));
    network.wait_for("busy0");
    network.wait_for("busy1");
    assert!(network.log(1).contains("10.9.0.2") && network.log(1).contains("10.9.1.2"), "{}", network.log(1));
    network.on("a", &["ip link set eth0 down"]);
    thread::sleep(Duration::from_millis(500));
    fs::remove_file(network.folder.join("more")).expect("removed");
    works(&network.ends());
}
