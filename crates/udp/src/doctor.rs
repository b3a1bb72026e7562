//! Checks what this machine offers for sockets and what will be slow, and says how to fix it.

mod ethtool;
mod features;
mod interfaces;
pub mod path;

use crate::address::{loopback, shown};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, but more slowly or less comfortably.
    Slow,
    /// A part does not work at all.
    Missing,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub what: &'static str,
    /// The value that was found, with units.
    pub value: String,
    /// How bad that is.
    pub verdict: Verdict,
    /// The consequence and the remedy; empty if there is none.
    pub advice: String,
}

impl Finding {
    fn good(what: &'static str, value: impl Into<String>) -> Finding {
        Finding { what, value: value.into(), verdict: Verdict::Good, advice: String::new() }
    }

    /// Good if `fine`; otherwise with the verdict `bad` and advice.
    fn judged(what: &'static str, value: impl Into<String>, fine: bool, bad: Verdict, advice: &str) -> Finding {
        if fine {
            return Finding::good(what, value);
        }
        Finding { what, value: value.into(), verdict: bad, advice: advice.into() }
    }
}

/// Runs all checks; takes less than a second, and sends nothing beyond loopback.
pub fn examine() -> Vec<Finding> {
    let mut findings = vec![kernel(), cores()];
    findings.extend(load());
    findings.push(core_to_core());
    findings.push(aes());
    findings.extend(sockets());
    findings.extend(interfaces::interfaces(allowed().len()));
    findings.extend(privileges());
    findings.push(open_files());
    findings.push(round_trip("round trip of 64 bytes, spinning", true));
    findings.push(round_trip("round trip of 64 bytes, sleeping", false));
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let advice = "GRO for UDP came with Linux 5.0: below it every packet costs a system call; take a newer kernel";
    Finding::judged("kernel", release, version >= (5, 0), Verdict::Slow, advice)
}

fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or_else(|_| vec![0], |set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn cores() -> Finding {
    let count = allowed().len();
    let advice = "a sender, its interrupts and a receiver share one core: give the process two";
    Finding::judged("cores that we may use", count.to_string(), count > 1, Verdict::Slow, advice)
}

fn load() -> Option<Finding> {
    let text = read("/proc/loadavg")?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let advice = "other processes use the cores: latencies rise to milliseconds (slices of the scheduler), and measurements are unreliable";
    let fine = load < cores as f64 * 0.7;
    Some(Finding::judged("load", format!("{load:.1} on {cores} cores"), fine, Verdict::Slow, advice))
}

/// Round trip of a cache line between the first two cores that we may use: the shortest of several rounds.
fn core_to_core() -> Finding {
    const WHAT: &str = "cache line between two cores";
    const ROUNDS: u32 = 2_000;
    let cores = allowed();
    let &[first, second, ..] = cores.as_slice() else {
        return Finding::good(WHAT, "only one core");
    };
    let pin = |core: usize| {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set).is_ok()
    };
    let flag = AtomicU32::new(0);
    let until = Instant::now() + Duration::from_millis(300);
    let wait_for = |value: u32| {
        // The clock is read rarely, since reading it would add to the measured time.
        loop {
            for _ in 0..10_000 {
                if flag.load(Ordering::Acquire) == value {
                    return true;
                }
            }
            if Instant::now() > until {
                return false;
            }
        }
    };
    let mut best = f64::MAX;
    let mut pinned = true;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(second);
            let mut value = 1;
            while wait_for(value) {
                flag.store(value + 1, Ordering::Release);
                value += 2;
            }
        });
        // On a thread of its own, so that the calling thread is not pinned.
        let measured = scope.spawn(|| {
            let pinned = pin(first);
            let (mut value, mut best) = (0, f64::MAX);
            'rounds: while Instant::now() < until {
                let began = Instant::now();
                for _ in 0..ROUNDS {
                    flag.store(value + 1, Ordering::Release);
                    if !wait_for(value + 2) {
                        break 'rounds;
                    }
                    value += 2;
                }
                best = best.min(began.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
            }
            (pinned, best)
        });
        if let Ok(measured) = measured.join() {
            (pinned, best) = measured;
        }
    });
    if !pinned || best == f64::MAX {
        return Finding::good(WHAT, "not measured: the cores are taken");
    }
    let advice = "the cores do not share a cache: throughput falls to about a third; put sender and receiver on cores of one \
                  L3 (`lscpu -e`, `taskset`)";
    Finding::judged(WHAT, format!("{best:.0} ns there and back"), best < 200.0, Verdict::Slow, advice)
}

fn aes() -> Finding {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let flags: Vec<&str> = info
        .lines()
        .find(|line| line.starts_with("flags") || line.starts_with("Features"))
        .map_or(Vec::new(), |line| line.split_whitespace().collect());
    let has = flags.contains(&"aes");
    let wide = if flags.contains(&"vaes") { "yes, wide (VAES)" } else { "yes" };
    let advice = "every packet is sealed in software: several times slower; no remedy but another machine";
    Finding::judged("AES instructions", if has { wide } else { "no" }, has, Verdict::Slow, advice)
}

fn sockets() -> Vec<Finding> {
    let found = families(
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map(|_| ()),
        UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).map(|_| ()),
    );
    let Ok(socket) = UdpSocket::bind(shown((loopback(), 0))) else { return found.into() };
    let mut findings = Vec::from(found);
    findings.extend(features::findings());
    let wanted = 4 << 20;
    if setsockopt(&socket, sockopt::RcvBufForce, &wanted).is_err() {
        // The size that the kernel gives is read below.
        let _ = setsockopt(&socket, sockopt::RcvBuf, &wanted);
    }
    let got = getsockopt(&socket, sockopt::RcvBuf).unwrap_or(0);
    findings.push(Finding::judged(
        "receive buffer of a socket",
        format!("{} KiB", got >> 10),
        got >= wanted,
        Verdict::Slow,
        "windows are kept small, bursts are lost: `sysctl -w net.core.rmem_max=4194304`",
    ));
    // The kernel doubles the requested size and counts its own bookkeeping against it.
    if setsockopt(&socket, sockopt::SndBufForce, &wanted).is_err() {
        let _ = setsockopt(&socket, sockopt::SndBuf, &wanted);
    }
    let got = getsockopt(&socket, sockopt::SndBuf).unwrap_or(0);
    findings.push(Finding::judged(
        "send buffer of a socket",
        format!("{} KiB", got >> 10),
        got >= wanted,
        Verdict::Slow,
        "sends are cut short more often: `sysctl -w net.core.wmem_max=4194304`",
    ));
    findings
}

/// Either family will do. Only source routes need IPv6.
fn families(ipv4: std::io::Result<()>, ipv6: std::io::Result<()>) -> [Finding; 2] {
    let bad = if ipv4.is_err() && ipv6.is_err() { Verdict::Missing } else { Verdict::Slow };
    let judged = |what, outcome: std::io::Result<()>, advice: &str| {
        let value = outcome.as_ref().map_or_else(ToString::to_string, |()| "yes".to_string());
        Finding::judged(what, value, outcome.is_ok(), bad, advice)
    };
    [
        judged("IPv4 sockets", ipv4, "hosts are reached over IPv6 only: `ip link set lo up`"),
        judged(
            "IPv6 sockets",
            ipv6,
            "hosts are reached over IPv4 only, without SRv6 source routes: `sysctl net.ipv6.conf.all.disable_ipv6=0`, \
             `ip link set lo up`",
        ),
    ]
}

fn privileges() -> Vec<Finding> {
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    // Numbers of linux/capability.h.
    let (net_admin, sys_admin) = (effective >> 12 & 1 == 1, effective >> 21 & 1 == 1);
    let yes = |has| if has { "yes" } else { "no" };
    vec![
        Finding::judged(
            "privilege to exceed buffer limits (CAP_NET_ADMIN)",
            yes(net_admin),
            net_admin,
            Verdict::Slow,
            "not needed if the limits above are high enough",
        ),
        Finding::judged(
            "privilege for network namespaces (CAP_SYS_ADMIN)",
            yes(sys_admin),
            sys_admin,
            Verdict::Slow,
            "only experiments with namespaces need it: run them as root, or under `unshare -rn`",
        ),
    ]
}

fn open_files() -> Finding {
    let limits = read("/proc/self/limits").unwrap_or_default();
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next().map(str::to_string))
        .unwrap_or_default();
    let fine = soft.parse::<u64>().map_or(true, |limit| limit >= 256);
    let advice = "a node needs one per plane: `ulimit -n 1024`";
    Finding::judged("open files", soft, fine, Verdict::Slow, advice)
}

/// Bare UDP over loopback between two threads: the lower bound for a node.
fn round_trip(what: &'static str, spin: bool) -> Finding {
    let at = shown((loopback(), 0));
    let measure = || -> std::io::Result<f64> {
        let (a, b) = (UdpSocket::bind(at)?, UdpSocket::bind(at)?);
        a.connect(b.local_addr()?)?;
        b.connect(a.local_addr()?)?;
        for socket in [&a, &b] {
            socket.set_nonblocking(spin)?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        }
        let until = Instant::now() + Duration::from_millis(150);
        let receive = |socket: &UdpSocket| {
            let mut buffer = [0; 64];
            loop {
                match socket.recv(&mut buffer) {
                    Err(error) if spin && error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until => {}
                    other => return other.is_ok(),
                }
            }
        };
        let mut rtts = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| while receive(&b) && b.send(&[0; 64]).is_ok() {});
            while Instant::now() < until {
                let began = Instant::now();
                if a.send(&[0; 64]).is_err() || !receive(&a) {
                    break;
                }
                rtts.push(began.elapsed().as_nanos() as f64 / 1e3);
            }
        });
        rtts.sort_by(f64::total_cmp);
        Ok(rtts.get(rtts.len() / 2).copied().unwrap_or(0.0))
    };
    match measure() {
        Ok(us) => Finding::judged(
            what,
            format!("{us:.1} us (median, bare UDP)"),
            us < 200.0,
            Verdict::Slow,
            "waking up takes long on this host: its cores are busy, or in deep sleep states (`cpupower idle-set -D 10`)",
        ),
        Err(error) => Finding::judged(what, error.to_string(), false, Verdict::Missing, "loopback does not work"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_family_of_sockets_is_enough() {
        let refused = || Err(std::io::Error::from(std::io::ErrorKind::AddrNotAvailable));
        let verdicts = |ipv4, ipv6| families(ipv4, ipv6).map(|finding| finding.verdict);
        assert_eq!(verdicts(Ok(()), Ok(())), [Verdict::Good; 2]);
        assert_eq!(verdicts(Ok(()), refused()), [Verdict::Good, Verdict::Slow]);
        assert_eq!(verdicts(refused(), Ok(())), [Verdict::Slow, Verdict::Good]);
        assert_eq!(verdicts(refused(), refused()), [Verdict::Missing; 2]);
    }

    #[test]
    fn an_examination_finds_what_every_linux_has_and_advises_where_something_is_amiss() {
        let findings = examine();
        for what in ["kernel", "cores that we may use", "AES instructions", "IPv4 sockets", "IPv6 sockets"] {
            assert!(findings.iter().any(|finding| finding.what == what), "{what}");
        }
        for finding in findings {
            assert!(!finding.value.is_empty(), "{finding:?}");
            assert_eq!(finding.advice.is_empty(), finding.verdict == Verdict::Good, "{finding:?}");
        }
    }
}
