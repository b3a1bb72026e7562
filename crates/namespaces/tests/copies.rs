//! Real multicast copies: switches copy for teams; copies are counted, lost, marked and trimmed independently, and
//! failures affect them. Needs root; without it every test prints why it does nothing.

#![cfg(target_os = "linux")]

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{set_ipv6_multicast_hops, set_ipv6_multicast_if, set_ipv6_tclass};
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use strandway_fabric::multicast::GroupAddress;
use strandway_namespaces::{
    Copied, Copying, LinuxFabric, Marking, Node, Running, Status, Team, check, down, fail, folder, heal, move_into,
    netns, probe, probe_copies, set_team, status, teams, up,
};

/// A fabric with a name of its own, removed at the end of its test.
struct Standing(LinuxFabric);

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = down(&self.0.name, true);
    }
}

/// A fabric that is up: four hosts below two T0s and two T1s in each of two planes, changed by `change`. `None`, after
/// a message on standard error, if this machine cannot build it. With `programs`, its ports need programs.
fn standing(programs: bool, change: impl FnOnce(LinuxFabric) -> LinuxFabric) -> Option<Standing> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let needed = |what: &str| what.contains("clsact") || what.contains("u32") || what.contains("bpf filter");
    let missing = check().into_iter().find(|f| !f.works && (f.needed || programs || needed(f.what)));
    if let Some(finding) = missing {
        eprintln!("skipped: {}: {}; {}", finding.what, finding.said, finding.remedy);
        return None;
    }
    let name = format!("c{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let fabric = LinuxFabric {
        name,
        scenario: "a test".into(),
        planes: 2,
        hosts: 4,
        hosts_per_t0: 2,
        t1s: 2,
        mtu: 9000,
        host_rate: Some(500_000_000),
        uplink_rate: Some(500_000_000),
        core_rate: None,
        pods: None,
        queue: 65_536,
        marking: None,
        trimming: false,
        mrc_layout: false,
        profile: "mrc".into(),
        payload: 4096,
        node_rate: 1_000_000_000,
        base_rtt_ns: 370_000,
        notes: Vec::new(),
        lines: Vec::new(),
        ways: Vec::new(),
        teams: Team::of_groups(4, &[]),
        copying: Copying::Filters,
    };
    let standing = Standing(change(fabric));
    // There are no long links to carry.
    up(&standing.0, &|_| String::new(), &[], &|| false).unwrap_or_else(|e| panic!("{e}"));
    Some(standing)
}

impl Standing {
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Every member casts `rounds` datagrams along every tree of every team.
    fn cast(&self, rounds: u32) -> Vec<Copied> {
        probe_copies(self.name(), rounds).unwrap_or_else(|e| panic!("{e}"))
    }

    fn status(&self) -> Status {
        status(self.name()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn fail(&self, target: &str) {
        assert_eq!(fail(self.name(), target), Ok(true), "{target}");
    }
}

/// A counter of a port.
fn port<T>(status: &Status, node: &str, port: &str, of: impl Fn(&strandway_namespaces::PortStatus) -> T) -> T {
    let found = status.ports.iter().find(|p| p.node == node && p.port == port);
    of(found.unwrap_or_else(|| panic!("{node} has no port {port}")))
}

/// A fabric whose switches copy by routers. `None` if it cannot be built here, or if there is no `smcrouted`.
fn routed() -> Option<Standing> {
    if std::process::Command::new("smcrouted").arg("-v").output().is_err() {
        eprintln!("skipped: there is no smcrouted; apt install smcroute");
        return None;
    }
    standing(false, |fabric| LinuxFabric { copying: Copying::Routers, ..fabric })
}

#[test]
fn without_failures_every_copy_arrives_and_with_each_those_that_it_hits_vanish() {
    if let Some(fabric) = standing(false, |fabric| fabric) {
        copies_vanish_where_failures_hit_them(&fabric);
    }
}

#[test]
fn routers_copy_as_filters_do_and_failures_hit_their_copies() {
    if let Some(fabric) = routed() {
        copies_vanish_where_failures_hit_them(&fabric);
    }
}

fn copies_vanish_where_failures_hit_them(fabric: &Standing) {
    let whole = |fabric: &Standing, when: &str| {
        for c in fabric.cast(1) {
            assert_eq!((c.team, c.casts, c.refused, c.wanted, c.arrived), (0, 4, 0, 12, 12), "{when}: {c:?}");
        }
    };
    whole(fabric, "at first");
    // The effect on a tree of a plane: refused casts, and arriving copies of the 12 of four casts. 4 of these copies
    // stay below one T0.
    type Left = fn(u8, u16) -> (u32, u32);
    let cases: [(&str, Left); 10] = [
        ("link:p0:t0-0:t1-1", |plane, tree| if (plane, tree) == (0, 1) { (0, 4) } else { (0, 12) }),
        ("switch:p0:t1-1", |plane, tree| if (plane, tree) == (0, 1) { (0, 4) } else { (0, 12) }),
        // Host 2 and host 3 still receive each other's casts.
        ("switch:p1:t0-0", |plane, _| if plane == 1 { (0, 2) } else { (0, 12) }),
        ("plane:p1", |plane, _| if plane == 1 { (0, 0) } else { (0, 12) }),
        // Host 0 neither casts nor receives. Its own casts are refused; the other hosts do not notice.
        ("port:h0:p1", |plane, _| if plane == 1 { (1, 6) } else { (0, 12) }),
        ("link:p1:h0:t0-0", |plane, _| if plane == 1 { (0, 6) } else { (0, 12) }),
        ("loss:p0:100%", |plane, _| if plane == 0 { (0, 0) } else { (0, 12) }),
        ("loss:p0:t0-0:t1-1:100%", |plane, tree| if (plane, tree) == (0, 1) { (0, 4) } else { (0, 12) }),
        // Only upwards: two hosts reach the other side, the other two do not.
        ("loss:p0:t0-0:to:t1-1:100%", |plane, tree| if (plane, tree) == (0, 1) { (0, 8) } else { (0, 12) }),
        // One copy of each cast is lost; the copies made at the same time arrive.
        ("loss:p0:t0-1:to:h2:100%", |plane, _| if plane == 0 { (0, 9) } else { (0, 12) }),
    ];
    for (target, left) in cases {
        fabric.fail(target);
        for c in fabric.cast(1) {
            assert_eq!((c.refused, c.arrived), left(c.plane, c.tree), "{target}: {c:?}");
        }
        assert_eq!(heal(fabric.name(), Some(target)), Ok(true));
        whole(fabric, target);
    }
    // A port that was down copies again, and unicast works as before.
    for way in probe(fabric.name()).expect("it stands") {
        assert_eq!(way.wanted, way.arrived, "{way:?}");
    }
    let lost = || fabric.status().ports.iter().map(|p| p.lost).sum::<u64>();
    let before = lost();
    assert!(before > 0, "random losses of 100 % were counted");
    fabric.fail("link:p0:t0-0:t1-1");
    fabric.cast(1);
    for way in probe(fabric.name()).expect("it stands") {
        let dead = way.plane == 0 && way.t1 == Some(1);
        assert_eq!(way.arrived, if dead { 0 } else { way.wanted }, "{way:?}");
    }
    assert_eq!(lost(), before, "losses of a dead link do not count as random");
}

#[test]
fn a_healed_port_sends_at_once_at_both_ends_and_one_without_a_carrier_is_named() {
    let Some(fabric) = standing(false, |fabric| fabric) else { return };
    let ip = |space: &str, line: &str| {
        let mut command = std::process::Command::new("ip");
        let said = command.args(["-n", space]).args(line.split(' ')).output().expect("ip runs");
        assert!(said.status.success(), "{line}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let t0 = format!("{}-t0-p1-0", fabric.name());
    for _ in 0..20 {
        fabric.fail("port:h0:p1");
        assert_eq!(heal(fabric.name(), Some("port:h0:p1")), Ok(true));
        assert!(ip(&t0, "-o link show h0").contains("state UP"));
    }
    fabric.fail("port:h0:p1");
    ip(&t0, "link set h0 down");
    let said = heal(fabric.name(), Some("port:h0:p1")).expect_err("the other end is down").to_string();
    assert!(said.contains("port p1 of h0 has no carrier"), "{said}");
}

#[test]
fn a_port_that_is_degraded_while_batches_wait_in_it_goes_on() {
    let fast = |fabric| LinuxFabric { host_rate: Some(600_000_000), uplink_rate: Some(600_000_000), ..fabric };
    let Some(fabric) = standing(false, fast) else { return };
    let clos = fabric.0.clos();
    let (from, to) = (clos.host(0, 0), SocketAddrV6::new(clos.path(0, 0, 1, 0), 9, 0, 0));
    let space = netns(&fabric.0.namespace(Node::Host(0)));
    let stop = AtomicBool::new(false);
    let sent = || port(&fabric.status(), "h0", "p0", |port| port.sent_bytes);
    // Some megabytes of sending take a fraction of a second at any of these rates.
    let goes_on = |when: &str| {
        let (began, before) = (std::time::Instant::now(), sent());
        while sent() < before + 2_000_000 {
            assert!(began.elapsed() < Duration::from_secs(30), "{when}: nothing leaves any more");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            move_into(&space).expect("as root");
            let socket = UdpSocket::bind((from, 0)).expect("its own address");
            socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
            // Batches of 60 packets; some always wait.
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &1_000).expect("batches");
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::SndBufForce, &(8 << 20)).expect("as root");
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send_to(&[7; 60_000], to);
            }
        });
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            goes_on("whole");
            fabric.fail("degrade:p0:h0:t0-0:25%");
            goes_on("degraded");
            assert_eq!(heal(fabric.name(), None), Ok(true));
            goes_on("healed");
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = watched {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn random_loss_takes_its_share_of_copies_at_every_switch_and_none_elsewhere() {
    let Some(fabric) = standing(false, |fabric| fabric) else { return };
    fabric.fail("loss:p0:20%");
    let rounds = 100;
    let (lossy, clean): (Vec<Copied>, Vec<Copied>) = fabric.cast(rounds).into_iter().partition(|c| c.plane == 0);
    for c in clean {
        assert_eq!(c.arrived, rounds * 12, "{c:?}");
    }
    for c in lossy {
        // The host below the same T0 gets a copy if the cast survives the first T0 (0.8). The two other hosts get
        // theirs if it also survives the T1 and the other T0 (0.64). So 1.824 of 3 copies arrive, with a variance of
        // 0.8 * (1 + 8 * 0.64) - 1.824^2 = 1.569. Five standard deviations for 400 casts.
        let (mean, five) = (400.0 * 1.824, 5.0 * (400.0f64 * 1.569).sqrt());
        assert!((f64::from(c.arrived) - mean).abs() < five, "{c:?} instead of {mean} give or take {five}");
    }
    // 800 casts meet the first T0, 640 a T1, 512 the other T0: a fifth of them is lost there, once for all further
    // copies.
    let status = fabric.status();
    let lost = |plane| status.ports.iter().filter(|p| p.plane == plane).map(|p| p.lost).sum::<u64>();
    let (mean, five) = (0.2 * 1952.0, 5.0 * (1952.0f64 * 0.2 * 0.8).sqrt());
    assert!((lost(0) as f64 - mean).abs() < five + 20.0, "{} are counted instead of {mean}", lost(0));
    assert_eq!(lost(1), 0);
}

#[test]
fn copies_are_counted_at_the_ports_that_they_pass() {
    let Some(fabric) = standing(false, |fabric| fabric) else { return };
    let before = fabric.status();
    fabric.cast(50);
    let after = fabric.status();
    // Kernels send a few packets by themselves (multicast listeners).
    let about = |count: u64, node: &str, name: &str| {
        let [was, is] = [&before, &after].map(|status| port(status, node, name, |p| p.sent_packets));
        assert!((count..count + 30).contains(&(is - was)), "{node} {name}: {} instead of {count}", is - was);
    };
    for plane in 0..2 {
        let t0 = format!("t0-p{plane}-0");
        // 50 casts of one host along two trees; copies of three others'; the casts of two hosts below along one tree,
        // and the way back.
        about(100, "h0", &format!("p{plane}"));
        about(300, &t0, "h1");
        about(100, &t0, "u0");
        about(100, &format!("t1-p{plane}-1"), "d1");
    }
    for (was, is) in before.t1s.iter().zip(&after.t1s) {
        let grown = is.packets - was.packets;
        assert!((200..260).contains(&grown), "T1 {} of plane {}: {grown} packets", is.t1, is.plane);
    }
}

#[test]
fn a_team_made_by_hand_is_copied_for_until_it_is_removed() {
    if let Some(fabric) = standing(false, |fabric| fabric) {
        teams_come_and_go(&fabric);
    }
}

#[test]
fn routers_copy_for_a_team_made_by_hand_until_it_is_removed() {
    if let Some(fabric) = routed() {
        teams_come_and_go(&fabric);
    }
}

#[test]
fn routers_end_with_their_fabric() {
    let Some(fabric) = routed() else { return };
    let home = folder(fabric.name()).join("routers");
    let files = std::fs::read_dir(home).expect("routers have files").flatten();
    let pids = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "pid"));
    let numbers: Vec<String> = pids.map(|file| std::fs::read_to_string(file.path()).expect("a number")).collect();
    assert_eq!(numbers.len(), 8, "a router per switch");
    let runs = |number: &String| Path::new(&format!("/proc/{}", number.trim())).join("fd/0").exists();
    assert!(numbers.iter().all(runs));
    drop(fabric);
    assert!(!numbers.iter().any(runs));
}

#[test]
fn routers_end_with_their_fabric_on_a_kernel_without_handles_of_processes() {
    let me = std::env::current_exe().expect("a path");
    let mut command = std::process::Command::new(me);
    command.args(["--exact", "copies::routers_end_with_their_fabric"]).env("STRANDWAY_WITHOUT", "pidfd");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn teams_come_and_go(fabric: &Standing) {
    let name = fabric.name();
    let of_seven =
        || fabric.cast(1).into_iter().filter(|c| c.team == 7).map(|c| (c.casts, c.arrived)).collect::<Vec<_>>();
    assert_eq!(of_seven(), []);
    assert_eq!(set_team(name, 7, Some("h0,host3")), Ok(true));
    assert_eq!(set_team(name, 7, Some("h3,h0")), Ok(false));
    assert_eq!(of_seven(), [(2, 2); 4]);
    assert_eq!(set_team(name, 7, Some("h0,h1,h2")), Ok(true));
    assert_eq!(of_seven(), [(3, 6); 4]);
    assert_eq!(teams(name).expect("it stands").1.len(), 2);
    // Casts of hosts that are not members are not copied, and neither are casts with another host's source address.
    let group = GroupAddress { plane: 0, tree: 1, team: 7 };
    let member = Hears::open(&fabric.0, 1, group);
    for (host, own, heard) in [(3, 3, 0), (0, 0, 1), (0, 3, 0)] {
        let source = fabric.0.clos().host(0, own);
        Casts::open(&fabric.0, host, source, 0).cast(group, b"who is it?", 1);
        assert_eq!(member.count(10), heard, "h{host} as h{own}");
    }
    assert_eq!(set_team(name, 7, None), Ok(true));
    assert_eq!(set_team(name, 7, None), Ok(false));
    assert_eq!(of_seven(), []);
    let said = |number, hosts| set_team(name, number, hosts).expect_err("it cannot be").0;
    assert!(said(0, Some("h0,h1")).contains("was built with the fabric"), "{}", said(0, Some("h0,h1")));
    assert!(said(7, Some("h0,h9")).contains("hosts are h0 to h3"), "{}", said(7, Some("h0,h9")));
    assert!(said(65_001, None).contains("up to 65000"), "{}", said(65_001, None));
}

/// The UDP port of the tests' groups.
const PORT: u16 = 7000;

/// Runs `make` in the namespace of a host. Sockets stay there.
fn at_host<T: Send + 'static>(fabric: &LinuxFabric, host: u16, make: impl FnOnce() -> T + Send + 'static) -> T {
    let space = netns(&fabric.namespace(Node::Host(host)));
    let made = std::thread::spawn(move || {
        move_into(&space).expect("root");
        make()
    });
    made.join().expect("it ends")
}

struct Hears(UdpSocket);

impl Hears {
    fn open(fabric: &LinuxFabric, host: u16, group: GroupAddress) -> Hears {
        at_host(fabric, host, move || {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("a socket");
            let device = name_to_index(&socket, &format!("p{}", group.plane)).expect("its port");
            socket.join_multicast_v6(&group.address(), device).expect("it joins");
            socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
            Hears(socket)
        })
    }

    /// The number of datagrams of this length that come until none does.
    fn count(&self, length: usize) -> u32 {
        let (mut buffer, mut count) = ([0; 9000], 0);
        while let Ok((came, _)) = self.0.recv_from(&mut buffer) {
            count += u32::from(came == length);
        }
        count
    }
}

struct Casts(UdpSocket);

impl Casts {
    /// From a host, with this source address and traffic class.
    fn open(fabric: &LinuxFabric, host: u16, source: Ipv6Addr, class: u32) -> Casts {
        let other = source != fabric.clos().host(0, u32::from(host));
        if other {
            // Any host may give itself any address.
            let address = format!("{source}/128");
            let space = netns(&fabric.namespace(Node::Host(host))).display().to_string();
            let added = std::process::Command::new("nsenter")
                .args([&format!("--net={space}")[..], "ip", "addr", "add", &address, "dev", "lo", "nodad"])
                .status();
            assert!(added.is_ok_and(|status| status.success()));
        }
        at_host(fabric, host, move || {
            let socket = UdpSocket::bind((source, 0)).expect("a socket");
            set_ipv6_tclass(&socket, class).expect("a class");
            // Routers count hops down.
            set_ipv6_multicast_hops(&socket, 8).expect("hops");
            Casts(socket)
        })
    }

    fn cast(&self, group: GroupAddress, bytes: &[u8], count: u32) {
        let device = name_to_index(&self.0, &format!("p{}", group.plane)).expect("its port");
        set_ipv6_multicast_if(&self.0, device).expect("it is there");
        for _ in 0..count {
            let to = SocketAddrV6::new(group.address(), PORT, 0, 0);
            self.0.send_to(bytes, to).expect("its own port has room");
        }
    }
}

#[test]
fn a_slow_port_drops_marks_or_cuts_its_own_copies_alone() {
    /// The ECN field of packets that may be marked.
    const CAPABLE: u32 = 2;
    /// Casts that fit the receive buffer of a socket.
    const CASTS: u32 = 80;
    let marking = Some(Marking { low: 4_000, high: 8_000, chance_ppm: 1_000_000, last_hop: true });
    for (marking, trimming) in [(None, false), (marking, true)] {
        let programs = trimming;
        let Some(fabric) = standing(programs, |fabric| LinuxFabric { marking, trimming, ..fabric }) else { return };
        // Host 1 receives at 50 Mb/s, the others at 500.
        fabric.fail("degrade:p0:t0-0:to:h1:10%");
        let group = GroupAddress { plane: 0, tree: 1, team: 0 };
        let hears = [0, 1, 3].map(|host| Hears::open(&fabric.0, host, group));
        let source = fabric.0.clos().host(0, 2);
        Casts::open(&fabric.0, 2, source, CAPABLE).cast(group, &[7; 1000], CASTS);
        let whole = hears.each_ref().map(|host| host.count(1000));
        assert_eq!((whole[0], whole[2]), (CASTS, CASTS), "others hear everything");
        assert!((1..CASTS).contains(&whole[1]), "{whole:?}");
        let status = fabric.status();
        let (slow, beside) = (("t0-p0-0", "h1"), ("t0-p0-0", "h0"));
        let missed = u64::from(CASTS - whole[1]);
        let count = |(node, name): (&str, &str), of: fn(&strandway_namespaces::PortStatus) -> u64| {
            port(&status, node, name, of)
        };
        assert_eq!(count(slow, |p| p.dropped) + count(slow, |p| p.trimmed), missed);
        assert_eq!([count(beside, |p| p.dropped), count(beside, |p| p.trimmed)], [0, 0]);
        assert_eq!(count(slow, |p| p.trimmed) > 0, trimming);
        let marked = ["h0", "h1", "h3"].map(|host| port(&status, host, "p0", |p| p.marked));
        assert_eq!((marked[0], marked[1] > 0, marked[2]), (0, trimming, 0), "{marked:?}");
        // None of these is a random loss, although a full queue refuses packets that the switch's filter sends to it.
        assert!(status.ports.iter().all(|p| p.lost == 0), "{:?}", status.ports);
    }
}

#[test]
fn a_fabric_is_held_once_at_a_time_and_leaves_no_file() {
    let name = format!("held{}", std::process::id());
    let file = folder(&name).with_extension("running");
    let Ok(first) = Running::on(&name) else {
        eprintln!("skipped: {} cannot be written", file.display());
        return;
    };
    assert!(Running::on(&name).expect_err("it is held").0.contains("wait for its end"));
    drop(first);
    assert!(!file.exists());
    // Threads that take turns never hold it at the same time, although each removes the file of the one before.
    let (holders, turns) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while turns.load(Ordering::Relaxed) < 200 {
                    if let Ok(held) = Running::on(&name) {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        turns.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(100));
                        assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                        drop(held);
                    }
                }
            });
        }
    });
    assert!(!file.exists());
}
