//! Two hosts as network namespaces, for tests of processes. They need root and iproute2.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The addresses that the hosts have.
#[allow(dead_code, reason = "each test file uses its part")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4; the hosts have no IPv6 at all.
    V4,
    V6,
}

/// Two network namespaces with a link per plane between them; removed when dropped.
pub(crate) struct Hosts {
    family: Family,
    pub(crate) names: [String; 2],
}

impl Hosts {
    /// `None`, after a message that says which feature is missing, if namespaces do not work here.
    pub(crate) fn new(family: Family, planes: usize) -> Option<Hosts> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|host| format!("strandway-{process}-{number}-{host}"));
        let hosts = Hosts { family, names };
        match hosts.set_up(planes) {
            Ok(()) => Some(hosts),
            Err(missing) => {
                println!("skipped: network namespaces do not work here: {missing}");
                None
            }
        }
    }

    fn set_up(&self, planes: usize) -> Result<(), String> {
        for name in &self.names {
            run("ip", &["netns", "add", name])?;
            if self.family == Family::V4 {
                run("ip", &["netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"])?;
            }
            run("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        for plane in 0..planes {
            let (link, peer) = (format!("p{plane}"), &self.names[1]);
            run("ip", &["-n", &self.names[0], "link", "add", &link, "type", "veth", "peer", &link, "netns", peer])?;
            for (host, name) in self.names.iter().enumerate() {
                match self.family {
                    Family::V4 => {
                        let address = format!("{}/24", self.address(plane, host));
                        run("ip", &["-n", name, "addr", "add", &address, "dev", &link])?;
                    }
                    Family::V6 => {
                        let address = format!("{}/64", self.address(plane, host));
                        run("ip", &["-n", name, "addr", "add", &address, "dev", &link, "nodad"])?;
                    }
                }
                run("ip", &["-n", name, "link", "set", &link, "up"])?;
            }
        }
        Ok(())
    }

    pub(crate) fn address(&self, plane: usize, host: usize) -> String {
        match self.family {
            Family::V4 => format!("10.0.{plane}.{}", host + 1),
            Family::V6 => format!("fd00:0:0:{plane}::{}", host + 1),
        }
    }

    pub(crate) fn strandway(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.names[host])).arg(env!("CARGO_BIN_EXE_strandway"));
        command.args(arguments);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &["netns", "del", name]);
        }
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {said}", arguments.join(" "))) }
}
