//! Features of the kernel that real hosts use where they are, and do without where they are not. The variable
//! `STRANDWAY_WITHOUT` makes a program do without, as on an older kernel or in a sandbox.

use std::fmt;

/// The variable: names of features with commas between them, or `all`.
pub const WITHOUT: &str = "STRANDWAY_WITHOUT";

/// A feature of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `UDP_SEGMENT`: one system call sends many datagrams.
    Gso,
    /// `UDP_GRO`: one system call receives many datagrams.
    Gro,
    /// `SO_TIMESTAMPNS`: the time at which a datagram arrived.
    Timestamps,
    /// `IP_RECVERR` and `IPV6_RECVERR`: ICMP errors that datagrams of a socket have met.
    Refusals,
    /// `SO_ATTACH_REUSEPORT_CBPF`: a program chooses among the sockets of a port.
    ReuseportFilter,
    /// `IPV6_MULTICAST_ALL`: a socket receives only from the groups that it has joined itself.
    MulticastAll,
    /// `openat2`: opens a path that stays beneath a directory.
    Openat2,
    /// `pidfd_open`: a process that stays the same one.
    Pidfd,
}

/// A row for each feature: its name, the first Linux with it, what it does, and what it costs to be without.
const ROWS: [(Feature, &str, &str, &str, &str); 8] = {
    use Feature::*;
    [
        (
            Gso,
            "gso",
            "4.18",
            "UDP GSO (sending in batches)",
            "one system call per packet: about eight times slower in large transfers; take Linux 4.18 or later",
        ),
        (
            Gro,
            "gro",
            "5.0",
            "UDP GRO (receiving in batches)",
            "one system call per packet: about eight times slower in large transfers; take Linux 5.0 or later",
        ),
        (
            Timestamps,
            "timestamps",
            "2.6.22",
            "times of arrival (SO_TIMESTAMPNS)",
            "round trips include the time that a host slept, so senders slow down on busy hosts; leave the sandbox",
        ),
        (
            Refusals,
            "refusals",
            "2.2",
            "ICMP errors of sockets (IP_RECVERR)",
            "a process group finds a process that has ended only by its silence; leave the sandbox",
        ),
        (
            ReuseportFilter,
            "reuseport-filter",
            "4.5",
            "programs of ports (SO_ATTACH_REUSEPORT_CBPF)",
            "small messages wait behind others, and threads hand packets to each other; take Linux 4.5 or later",
        ),
        (
            MulticastAll,
            "multicast-all",
            "4.20",
            "groups by socket (IPV6_MULTICAST_ALL)",
            "teams and planes on one host receive each other's multicast, and drop it; take Linux 4.20 or later",
        ),
        (
            Openat2,
            "openat2",
            "5.6",
            "paths beneath a directory (openat2)",
            "servers of copies open each folder of a path by itself; take Linux 5.6 or later",
        ),
        (
            Pidfd,
            "pidfd",
            "5.3",
            "handles of processes (pidfd)",
            "a signal to a router could meet a newer process with its number; take Linux 5.3 or later",
        ),
    ]
};

impl Feature {
    /// All features.
    pub fn all() -> impl Iterator<Item = Feature> {
        ROWS.into_iter().map(|row| row.0)
    }

    /// The name in [`WITHOUT`].
    pub const fn name(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// The first Linux that has it.
    pub const fn since(self) -> &'static str {
        ROWS[self as usize].2
    }

    /// Its purpose.
    pub const fn what(self) -> &'static str {
        ROWS[self as usize].3
    }

    /// The cost of its absence, and the remedy.
    pub const fn cost(self) -> &'static str {
        ROWS[self as usize].4
    }
}

/// The features that a program does without, though the kernel may have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u16);

impl Without {
    /// Reads names with commas between them, or `all`. An empty text is none.
    ///
    /// # Errors
    /// For a name that is no feature's; the text has all names.
    pub fn parse(text: &str) -> Result<Without, UnknownFeature> {
        let mut all = Without::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let meant = |one: &Feature| name == "all" || one.name() == name;
            if !Feature::all().any(|one| meant(&one)) {
                return Err(UnknownFeature(name.to_string()));
            }
            all = Feature::all().filter(meant).fold(all, Without::and);
        }
        Ok(all)
    }

    /// The features of the variable [`WITHOUT`].
    ///
    /// # Errors
    /// As for [`Without::parse`].
    pub fn from_environment() -> Result<Without, UnknownFeature> {
        Without::parse(&std::env::var(WITHOUT).unwrap_or_default())
    }

    /// These and one more.
    #[must_use]
    pub const fn and(self, feature: Feature) -> Without {
        Without(self.0 | 1 << feature as u16)
    }

    /// Is the feature one of them?
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u16 & 1 == 1
    }
}

/// A name in [`WITHOUT`] that is no feature's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFeature(String);

impl fmt::Display for UnknownFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Feature::all().map(Feature::name).collect();
        write!(f, "{WITHOUT}: there is no feature `{}`; write all, or some of {}", self.0, names.join(","))
    }
}

impl std::error::Error for UnknownFeature {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_named_once_and_unknown_ones_are_refused_with_the_list() {
        for (i, feature) in Feature::all().enumerate() {
            assert_eq!(feature as usize, i, "{} has its own row", feature.name());
            let only = Without::parse(feature.name()).expect("a name");
            assert!(Feature::all().all(|one| only.has(one) == (one == feature)), "{}", feature.name());
        }
        let some = Without::parse(" gso, gro ,").expect("names");
        assert_eq!(some, Without::default().and(Feature::Gso).and(Feature::Gro));
        assert!(Feature::all().all(|one| Without::parse("all").expect("a name").has(one)));
        assert_eq!(Without::parse("").expect("none"), Without::default());
        let said = Without::parse("gso,gor").expect_err("unknown").to_string();
        assert!(said.contains("no feature `gor`") && said.contains("gso,gro,timestamps,"), "{said}");
    }
}
