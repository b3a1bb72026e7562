//! The features of the kernel that nodes use: which are in use, which are not, and what that costs.

use super::{Finding, Verdict};
use crate::address::{loopback, shown};
use crate::socket;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::net::{Ipv6Addr, UdpSocket};
use strandway_fabric::kernel::{Feature, WITHOUT, Without};

/// A finding for each feature.
pub(super) fn findings() -> impl Iterator<Item = Finding> {
    let without = Without::from_environment();
    Feature::all().map(move |feature| match &without {
        Ok(without) => finding_of(feature, without.has(feature), kernel_has(feature)),
        Err(unknown) => {
            Finding::judged(feature.what(), unknown.to_string(), false, Verdict::Missing, "correct the name")
        }
    })
}

/// `off`: the variable says so; `has`: the kernel has it, or why it cannot be asked.
fn finding_of(feature: Feature, off: bool, has: Result<bool, &str>) -> Finding {
    let value = match (off, has) {
        (true, _) => format!("off: {WITHOUT} has {}", feature.name()),
        (false, Err(why)) => why.to_string(),
        (false, Ok(true)) => "yes".to_string(),
        (false, Ok(false)) => "no".to_string(),
    };
    let fine = !off && has != Ok(false);
    Finding::judged(feature.what(), value, fine, Verdict::Slow, feature.cost())
}

fn kernel_has(feature: Feature) -> Result<bool, &'static str> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let at = match feature {
        Feature::MulticastAll => shown((Ipv6Addr::LOCALHOST, 0)),
        _ => shown((loopback(), 0)),
    };
    let opened = UdpSocket::bind(at);
    let socket = || opened.as_ref().map_err(|_| if at.is_ipv6() { "no IPv6 here" } else { "no sockets here" });
    Ok(match feature {
        Feature::Gso => setsockopt(socket()?, sockopt::UdpGsoSegment, &0).is_ok(),
        Feature::Gro => setsockopt(socket()?, sockopt::UdpGroSegment, &true).is_ok(),
        Feature::Timestamps => setsockopt(socket()?, sockopt::ReceiveTimestampns, &true).is_ok(),
        Feature::Refusals if at.is_ipv6() => setsockopt(socket()?, sockopt::Ipv6RecvErr, &true).is_ok(),
        Feature::Refusals => setsockopt(socket()?, sockopt::Ipv4RecvErr, &true).is_ok(),
        Feature::ReuseportFilter => socket::has_port_programs(socket()?),
        Feature::MulticastAll => socket::has_multicast_all(socket()?),
        Feature::Openat2 => {
            rustix::fs::openat2(rustix::fs::CWD, ".", folder, Mode::empty(), ResolveFlags::BENEATH).is_ok()
        }
        Feature::Pidfd => pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_ports_are_there_if_a_node_can_use_them() {
        let open = socket::Udp::open;
        let first = open(std::net::SocketAddrV6::new(loopback(), 0, 0, 0), 1 << 16, 1 << 16, Without::default())
            .expect("a socket");
        first.share().expect("it shares");
        let address = crate::address::kept(first.address().expect("bound"));
        let _second = socket::Udp::open_shared(address, 1 << 16, 1 << 16, Without::default()).expect("a socket");
        // Return 0: the first socket.
        let program = [nix::libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
        assert_eq!(kernel_has(Feature::ReuseportFilter), Ok(first.deal_out(&program)));
    }

    #[test]
    fn a_feature_that_is_missing_or_off_is_slow_and_says_what_it_costs() {
        let found = finding_of(Feature::Gso, false, Ok(true));
        assert_eq!((found.verdict, found.value.as_str()), (Verdict::Good, "yes"));
        for (off, has, value) in [(true, Ok(true), "off: STRANDWAY_WITHOUT has gso"), (false, Ok(false), "no")] {
            let found = finding_of(Feature::Gso, off, has);
            assert_eq!((found.verdict, found.value.as_str()), (Verdict::Slow, value));
            assert!(found.advice.contains("one system call per packet"), "{found:?}");
        }
        assert_eq!(finding_of(Feature::MulticastAll, false, Err("no IPv6 here")).verdict, Verdict::Good);
    }
}
