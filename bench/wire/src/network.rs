//! Two network namespaces, one per side, and the wires between them.

use crate::cores;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_udp::address::shown;

/// Are the addresses of IPv4? Set before the network is built.
pub(crate) static IPV4: AtomicBool = AtomicBool::new(false);

/// Wires between the two sides.
pub(crate) const PLANES: usize = 4;
/// Bytes that a shaped port sends at once: within half a percent of the rate at 500 Mb/s; the shaper splits larger
/// batches.
const SHAPER_BURST: u32 = 20_000;
/// The same where no batch is split, as by a network card that cuts batches itself.
const SHAPER_BURST_WHOLE: u32 = 75_000;
/// The time whose bytes a shaped port of many gigabits per second sends at once: its timer may be this late without a
/// loss of rate.
const SHAPER_LATE_US: u32 = 200;
/// The most bytes that wait at a shaped port: more than a socket's send buffer, so that a host's own port drops
/// nothing.
const SHAPER_LIMIT: u32 = 1_000_000;
/// The same as a time, for ports above 5 Gb/s.
const SHAPER_LIMIT_US: u32 = 1_600;

/// The kernel starts the queue of a new port up to a second after its link (linkwatch); the handshake of a TCP that
/// begins before is so late that its pacing stays slow for seconds.
const SETTLE: Duration = Duration::from_millis(1_500);

/// The side that sends the payload, or the one that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

impl Role {
    const BOTH: [Role; 2] = [Role::Sender, Role::Receiver];

    fn name(self) -> String {
        let control = if self == Role::Sender { 'a' } else { 'b' };
        format!("swb{}-{control}", std::process::id())
    }

    /// Its address on a plane, as our nodes take it: one of IPv4 in its mapped form.
    pub(crate) fn address(self, plane: usize, port: u16) -> SocketAddrV6 {
        let host = if self == Role::Sender { 1 } else { 2 };
        if IPV4.load(Ordering::Relaxed) {
            let ip = Ipv4Addr::new(10, 0, plane as u8, host as u8).to_ipv6_mapped();
            return SocketAddrV6::new(ip, port, 0, 0);
        }
        SocketAddrV6::new(Ipv6Addr::new(0xfd00, plane as u16, 0, 0, 0, 0, 0, host), port, 0, 0)
    }

    /// The same for others.
    pub(crate) fn plain_address(self, plane: usize, port: u16) -> SocketAddr {
        shown(self.address(plane, port))
    }

    /// Its addresses on the first `planes` planes.
    pub(crate) fn addresses(self, planes: usize, port: u16) -> Vec<SocketAddrV6> {
        (0..planes).map(|plane| self.address(plane, port)).collect()
    }
}

/// Bytes of IPv6 and UDP headers.
pub(crate) const UDP_HEADERS: u32 = 48;

/// The state of the wires, the same for all of them and in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Largest IP packet.
    pub(crate) mtu: u32,
    /// Rate of each port; `None` if it is not shaped.
    pub(crate) rate_mbps: Option<u32>,
    /// Bytes that a shaped port sends at once; it splits larger batches.
    pub(crate) burst: u32,
    /// Packets in a million that are lost on the way.
    pub(crate) loss_ppm: u32,
    /// Do batches cross in one piece? If not, the sending host splits them, and packets are lost one by one.
    pub(crate) batches: bool,
}

impl Wire {
    /// Unshaped wires.
    pub(crate) const fn plain(mtu: u32) -> Wire {
        Wire { mtu, rate_mbps: None, burst: SHAPER_BURST, loss_ppm: 0, batches: true }
    }

    /// Each port sends at that rate.
    pub(crate) const fn shaped(mtu: u32, rate_mbps: u32) -> Wire {
        Wire { rate_mbps: Some(rate_mbps), ..Wire::plain(mtu) }
    }

    /// The same, but no batch is split.
    pub(crate) const fn shaped_whole(mtu: u32, rate_mbps: u32) -> Wire {
        Wire { burst: SHAPER_BURST_WHOLE, ..Wire::shaped(mtu, rate_mbps) }
    }

    /// The same for a rate at which 75 kB are less than the time by which a shaper's timer may be late.
    pub(crate) const fn shaped_fast(mtu: u32, rate_mbps: u32) -> Wire {
        Wire { burst: bytes_in(rate_mbps, SHAPER_LATE_US), ..Wire::shaped(mtu, rate_mbps) }
    }
}

/// The namespaces; they are removed when this is dropped.
pub(crate) struct Network {
    now: Mutex<Wire>,
}

impl Network {
    pub(crate) fn build() -> Result<Network, String> {
        remove_orphans();
        let network = Network { now: Mutex::new(Wire::plain(1_500)) };
        for side in Role::BOTH {
            run("ip", &["netns", "add", &side.name()])?;
        }
        network.within(Role::Sender, || {
            for plane in 0..PLANES {
                let (port, there) = (port(plane), Role::Receiver.name());
                run("ip", &["link", "add", &port, "type", "veth", "peer", "name", &port, "netns", &there])?;
            }
            Ok(())
        })?;
        for side in Role::BOTH {
            network.within(side, || {
                // A port that comes back keeps its addresses, as with any network manager.
                std::fs::write("/proc/sys/net/ipv6/conf/all/keep_addr_on_down", "1")
                    .map_err(|error| format!("keep_addr_on_down: {error}"))?;
                run("ip", &["link", "set", "lo", "up"])?;
                for plane in 0..PLANES {
                    let ip = side.plain_address(plane, 0).ip();
                    let (address, port) = (format!("{ip}/{}", if ip.is_ipv4() { 24 } else { 64 }), port(plane));
                    let nodad: &[&str] = if ip.is_ipv4() { &[] } else { &["nodad"] };
                    run("ip", &[&["address", "add", &address, "dev", &port][..], nodad].concat())?;
                    let port = port.as_str();
                    run("ip", &["link", "set", port, "up"])?;
                }
                Ok(())
            })?;
        }
        std::thread::sleep(SETTLE);
        Ok(network)
    }

    /// Moves the calling thread, and its children, to a side: its namespace and its core.
    pub(crate) fn enter(side: Role) -> Result<(), String> {
        let path = format!("/run/netns/{}", side.name());
        let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| format!("cannot enter {path}: {error}"))
    }

    /// Runs `work` inside a namespace, on any core.
    fn within(&self, side: Role, work: impl FnOnce() -> Result<(), String> + Send) -> Result<(), String> {
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                Network::enter(side)?;
                work()
            });
            working.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        })
    }

    /// Sets the state of the wires.
    pub(crate) fn set(&self, wire: Wire) -> Result<(), String> {
        let mut now = self.now.lock().map_err(|_| "a thread panicked")?;
        if *now == wire {
            return Ok(());
        }
        for side in Role::BOTH {
            self.within(side, || {
                for plane in 0..PLANES {
                    let port = port(plane);
                    if now.mtu != wire.mtu {
                        run("ip", &["link", "set", &port, "mtu", &wire.mtu.to_string()])?;
                    }
                    if (now.rate_mbps, now.burst) != (wire.rate_mbps, wire.burst) {
                        shape(&port, wire.rate_mbps, wire.burst)?;
                    }
                    if now.loss_ppm != wire.loss_ppm {
                        lose(&port, wire.loss_ppm)?;
                    }
                    if now.batches != wire.batches {
                        let on = if wire.batches { "on" } else { "off" };
                        let each = ["tx-udp-segmentation", "tso", "gso", "gro"];
                        let features: Vec<&str> = each.into_iter().flat_map(|feature| [feature, on]).collect();
                        // GRO of a veth is off by default; a kernel in which it cannot be changed is accepted as well.
                        run("ethtool", &[&["-K", port.as_str()], features.as_slice()].concat())?;
                    }
                }
                Ok(())
            })?;
        }
        *now = wire;
        Ok(())
    }

    /// Takes the sender's own port of a plane down, or up.
    pub(crate) fn port(&self, plane: usize, up: bool) -> Result<(), String> {
        let state = if up { "up" } else { "down" };
        self.within(Role::Sender, || run("ip", &["link", "set", &port(plane), state]))
    }

    /// Drops all packets on a plane, in both directions and silently; or stops doing so.
    pub(crate) fn silence(&self, plane: usize, silent: bool) -> Result<(), String> {
        let ppm = if silent { 1_000_000 } else { 0 };
        for side in Role::BOTH {
            self.within(side, || lose(&port(plane), ppm))?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        remove();
    }
}

/// Removes the namespaces of this process; harmless without any.
pub(crate) fn remove() {
    for side in Role::BOTH {
        delete(&side.name());
    }
}

fn delete(name: &str) {
    let _ = Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status();
}

/// Removes namespaces that a killed run of this program has left.
fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("swb").and_then(|rest| rest.strip_suffix("-a").or(rest.strip_suffix("-b")));
        let Some(pid) = owner.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            delete(&name);
        }
    }
}

/// The bytes that a rate carries in a time.
const fn bytes_in(rate_mbps: u32, us: u32) -> u32 {
    rate_mbps / 8 * us
}

fn port(plane: usize) -> String {
    format!("p{plane}")
}

fn shape(port: &str, rate_mbps: Option<u32>, burst: u32) -> Result<(), String> {
    let Some(rate) = rate_mbps else { return run("tc", &["qdisc", "delete", "dev", port, "root"]) };
    let limit = SHAPER_LIMIT.max(bytes_in(rate, SHAPER_LIMIT_US));
    let (rate, burst, limit) = (format!("{rate}mbit"), burst.to_string(), limit.to_string());
    let tbf = ["qdisc", "add", "dev", port, "root", "tbf", "rate", &rate, "burst", &burst, "limit", &limit];
    // A shaper whose burst becomes smaller while packets wait in it may stop for ever. So each wire gets a new one.
    let _ = run("tc", &["qdisc", "delete", "dev", port, "root"]);
    run("tc", &tbf)
}

/// Drops `ppm` of a million packets that arrive at a port.
fn lose(port: &str, ppm: u32) -> Result<(), String> {
    let remove = format!("add table netdev loss_{port}\ndelete table netdev loss_{port}\n");
    let which = match ppm {
        0 => return feed("nft", &["-f", "-"], &remove),
        1_000_000.. => "drop".to_string(),
        ppm => format!("numgen random mod 1000000 < {ppm} drop"),
    };
    let add = format!(
        "table netdev loss_{port} {{\n chain c {{\n  type filter hook ingress device \"{port}\" priority 0;\n  {which}\n }}\n}}\n"
    );
    feed("nft", &["-f", "-"], &(remove + &add))
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    feed(program, arguments, "")
}

/// Runs a program with this text as its input; returns its error output if it failed.
fn feed(program: &str, arguments: &[&str], text: &str) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(wrong)?;
    if let Some(mut input) = child.stdin.take() {
        // The program need not read its input.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(wrong)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), said.trim()))
}

/// The missing requirements of this program, in one sentence.
pub(crate) fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces: run it as root".into());
    }
    let absent = |program: &&&str| {
        let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // Some programs do not know the option, but can be started.
        tried.is_err()
    };
    let absent: Vec<&str> = programs.iter().filter(absent).copied().collect();
    let packages = "Debian packages iproute2, nftables, ethtool";
    (!absent.is_empty()).then(|| format!("not installed: {} ({packages})", absent.join(", ")))
}

/// Runs both sides of a row, each in its namespace and on its core, while `watch` runs outside.
pub(crate) fn both<T: Send, U: Send, V>(
    sender: impl FnOnce() -> Result<T, String> + Send,
    receiver: impl FnOnce() -> Result<U, String> + Send,
    watch: impl FnOnce() -> V,
) -> Result<(T, U, V), String> {
    std::thread::scope(|scope| {
        let start = |side| -> Result<(), String> {
            Network::enter(side)?;
            cores::pin(side)
        };
        let receiving = scope.spawn(move || start(Role::Receiver).and_then(|()| receiver()));
        let sending = scope.spawn(move || start(Role::Sender).and_then(|()| sender()));
        let watched = watch();
        let received = receiving.join().unwrap_or_else(|_| Err("the receiver panicked".into()));
        let sent = sending.join().unwrap_or_else(|_| Err("the sender panicked".into()));
        match (sent, received) {
            (Ok(sent), Ok(received)) => Ok((sent, received, watched)),
            (Err(said), Ok(_)) | (Ok(_), Err(said)) => Err(said),
            // One error may be a consequence of the other, so both are reported.
            (Err(first), Err(second)) => Err(format!("{first}; {second}")),
        }
    })
}
