//! The hosts of a round: loopback, or network namespaces around a router that can drop what one of them sends or is
//! sent.

use std::process::{Command, Stdio};

/// A switch, two racks and three ranks.
pub(crate) const HOSTS: usize = 6;

/// A direction as a host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Packets that it sends are lost.
    Out,
    /// Packets that are sent to it are lost.
    In,
    /// Both.
    All,
}

/// Where processes run.
pub(crate) enum Hosts {
    Loopback,
    /// A namespace per host, a router between them, and a file with a key.
    Spread(Spread),
}

impl Hosts {
    pub(crate) fn address(&self, host: usize) -> String {
        match self {
            Hosts::Loopback => "[::1]".into(),
            Hosts::Spread(_) => format!("10.92.{host}.2"),
        }
    }

    /// `strandway` at a host.
    pub(crate) fn strandway(&self, host: usize, words: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_strandway");
        let mut command = match self {
            Hosts::Loopback => Command::new(program),
            Hosts::Spread(spread) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{}", spread.name(&host.to_string()))).arg(program);
                command
            }
        };
        command.args(words).stdout(Stdio::null());
        command
    }
}

pub(crate) struct Spread(String);

impl Spread {
    /// None, after a message with the reason, where namespaces cannot be made.
    pub(crate) fn new() -> Option<Spread> {
        let spread = Spread(format!("strandway-switches-{}", std::process::id()));
        match spread.set_up() {
            Ok(()) => Some(spread),
            Err(why) => {
                eprintln!("skipped: no network namespaces can be made here: {why}");
                None
            }
        }
    }

    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.0)
    }

    fn set_up(&self) -> Result<(), String> {
        let router = self.name("router");
        ip(&format!("netns add {router}"))?;
        for host in 0..HOSTS {
            let name = self.name(&host.to_string());
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {router} link add to{host} type veth peer name up0 netns {name}"))?;
            ip(&format!("-n {router} address add 10.92.{host}.1/24 dev to{host}"))?;
            ip(&format!("-n {router} link set to{host} up"))?;
            ip(&format!("-n {name} address add 10.92.{host}.2/24 dev up0"))?;
            ip(&format!("-n {name} link set up0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} route add default via 10.92.{host}.1"))?;
        }
        ip(&format!("netns exec {router} sysctl -qw net.ipv4.ip_forward=1"))
    }

    /// Drops datagrams of a host without a word, or no longer.
    pub(crate) fn cut(&self, host: usize, way: Way, cut: bool) {
        let (router, verb) = (self.name("router"), if cut { "add" } else { "del" });
        for (side, ways) in [("from", [Way::Out, Way::All]), ("to", [Way::In, Way::All])] {
            if ways.contains(&way) {
                ip(&format!("-n {router} rule {verb} {side} 10.92.{host}.2 blackhole")).expect("a rule");
            }
        }
    }

    /// Sets the MTU of a host's interface.
    pub(crate) fn set_mtu(&self, host: usize, mtu: u32) {
        ip(&format!("-n {} link set up0 mtu {mtu}", self.name(&host.to_string()))).expect("an MTU");
    }

    /// Takes back all cuts.
    pub(crate) fn heal(&self) {
        let router = self.name("router");
        while ip(&format!("-n {router} rule del blackhole")).is_ok() {}
        (0..HOSTS).for_each(|host| self.set_mtu(host, 1_500));
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        let hosts = (0..HOSTS).map(|host| self.name(&host.to_string()));
        for name in hosts.chain([self.name("router")]) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split_whitespace()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {}", said.trim())) }
}
