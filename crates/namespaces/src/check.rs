//! Checks which features for fabrics of namespaces this machine has.

use crate::command::run;
use crate::execute::carry_out;
use crate::fabric::FOLDER;
use crate::lines::whole_frames;
use crate::queue::{CLASSES, Object};
use crate::state;
use crate::step::{Step, Tool};
use crate::{Copying, LinuxFabric};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of checks of this process so far, which makes names unique.
static CHECKS: AtomicU32 = AtomicU32::new(0);

/// One requirement or option of fabrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name.
    pub what: &'static str,
    /// Is it available?
    pub works: bool,
    /// Is it required for every fabric?
    pub needed: bool,
    /// The version, or the error.
    pub said: String,
    /// The remedy if it is missing.
    pub remedy: &'static str,
}

/// A feature, with a line that only works if the feature exists.
struct Feature {
    what: &'static str,
    tool: Tool,
    line: &'static str,
    needed: bool,
    remedy: &'static str,
}

/// The features with which switches copy multicast.
const COPIES: [&str; 2] = ["filters where packets come in (clsact)", "copies of multicast (u32, mirred)"];

const FEATURES: [Feature; 6] = [
    Feature {
        what: "veth",
        tool: Tool::Ip,
        line: "link add va type veth peer name vb",
        needed: true,
        remedy: "use a kernel with CONFIG_VETH",
    },
    Feature {
        what: "SRv6 with 16-bit segments",
        tool: Tool::Ip,
        line: "route add fcbb:bb00:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev va",
        needed: true,
        remedy: "use Linux 6.1 or later with CONFIG_IPV6_SEG6_LWTUNNEL, and iproute2 6.1 or later",
    },
    Feature {
        what: "rates (tbf)",
        tool: Tool::Tc,
        line: "qdisc add dev va root tbf rate 1mbit burst 9000 limit 9000",
        needed: false,
        remedy: "use a kernel with CONFIG_NET_SCH_TBF, or build with --unshaped",
    },
    Feature {
        what: COPIES[0],
        tool: Tool::Tc,
        line: "qdisc add dev vb clsact",
        needed: false,
        remedy: "use a kernel with CONFIG_NET_SCH_INGRESS; without it no link fails and no switch copies multicast",
    },
    Feature {
        what: "silent failures and random loss (bpf filter)",
        tool: Tool::Tc,
        line: "filter add dev vb ingress pref 1 handle 1 protocol ipv6 bpf bytecode '1,6 0 0 4294967295' da",
        needed: false,
        remedy: "use a kernel with CONFIG_NET_CLS_BPF; without it only hosts' own ports fail, and rates",
    },
    Feature {
        what: COPIES[1],
        tool: Tool::Tc,
        line: "filter add dev vb ingress pref 2 protocol ipv6 u32 match ip6 dst ff1e::8000:0/128 \
               action mirred egress mirror dev va pipe action mirred egress redirect dev va",
        needed: false,
        remedy: "use a kernel with CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED; without them no switch copies multicast",
    },
];

/// The kernel's own types, which exist only on a kernel that can load programs that use them.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The fabric that this machine can build: without copies of multicast, or without ECN and trimming, if a requirement
/// of these is missing. A note names the requirement and the remedy.
#[must_use]
pub fn feasible(mut fabric: LinuxFabric) -> LinuxFabric {
    let findings = find_all(fabric.has_program());
    let missing: Vec<&Finding> = findings.iter().filter(|finding| !finding.works).collect();
    if missing.iter().any(|finding| finding.needed) {
        // The fabric cannot be built, and building it gives the error.
        return fabric;
    }
    let why = |finding: &Finding| format!("{}: {}; {}", finding.what, finding.said, finding.remedy);
    let filters = fabric.copying == Copying::Filters;
    if let Some(finding) = missing.iter().find(|finding| filters && COPIES.contains(&finding.what)) {
        fabric = fabric.without_copies(&why(finding));
    }
    match missing.iter().find(|finding| finding.what != COPIES[1]) {
        Some(finding) if fabric.has_program() => fabric.without_program(&why(finding)),
        _ => fabric,
    }
}

/// Tries all features out, in a namespace that is removed afterwards.
pub fn check() -> Vec<Finding> {
    find_all(true)
}

/// Tries the features out. `programs`: also the requirements of marking, trimming and losses in bursts.
fn find_all(programs: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (what, program, remedy) in [
        ("command ip", "ip", "install iproute2, 6.1 or later"),
        ("command tc", "tc", "install iproute2, 6.1 or later"),
        ("command nsenter", "nsenter", "install util-linux"),
    ] {
        let version = run(None, program, &["-V"], "").map(|output| output.status.success().then_some(output.stdout));
        let (works, said) = match version {
            Ok(Some(said)) => (true, String::from_utf8_lossy(&said).trim().to_string()),
            Ok(None) => (false, "does not run".to_string()),
            Err(e) => (false, e.0),
        };
        findings.push(Finding { what, works, needed: true, said, remedy });
    }
    if findings.iter().any(|finding| !finding.works) {
        return findings;
    }
    // Several threads of a process may check at the same time.
    let count = CHECKS.fetch_add(1, Ordering::Relaxed);
    let space = format!("strandway-check-{}-{count}", std::process::id());
    let attempt = |namespace: Option<&String>, tool: Tool, line: &str| {
        carry_out(&Step { namespace: namespace.cloned(), tool, lines: vec![line.to_string()] })
    };
    let made = attempt(None, Tool::Ip, &format!("netns add {space}"));
    findings.push(Finding {
        what: "network namespaces",
        works: made.is_ok(),
        needed: true,
        said: made.as_ref().err().map_or("can be made".to_string(), |e| e.0.clone()),
        remedy: "run it as root (sudo strandway fabric ...); a container needs CAP_NET_ADMIN and CAP_SYS_ADMIN",
    });
    if made.is_err() {
        return findings;
    }
    let entered = attempt(Some(&space), Tool::Sysctl, "net/ipv6/conf/all/forwarding 1");
    findings.push(Finding {
        what: "forwarding of IPv6",
        works: entered.is_ok(),
        needed: true,
        said: entered.err().map_or("can be switched on".to_string(), |e| e.0),
        remedy: "give this container a writable /proc/sys/net and the right to enter namespaces (CAP_SYS_ADMIN)",
    });
    for feature in FEATURES {
        let tried = attempt(Some(&space), feature.tool, feature.line);
        if feature.what == "veth" {
            let _ = attempt(Some(&space), Tool::Ip, "link set va up");
        }
        let said = tried.as_ref().err().map_or("works".to_string(), |e| e.0.clone());
        let (what, needed, remedy) = (feature.what, feature.needed, feature.remedy);
        findings.push(Finding { what, works: tried.is_ok(), needed, said, remedy });
    }
    if programs {
        findings.extend(program(&space));
    }
    let whole = whole_frames(&space, &["vb"]);
    let made = carry_out(&whole);
    findings.push(Finding {
        what: "whole frames for long links",
        works: made.is_ok(),
        needed: false,
        said: made.err().map_or("ethtool".to_string(), |e| e.0),
        remedy: "install ethtool (apt install ethtool); without it there are no long links",
    });
    let _ = attempt(None, Tool::Ip, &format!("netns del {space}"));
    findings
}

/// Checks the requirements of marking, trimming and losses in bursts, in a namespace with the ports `va`, which has a
/// shaper, and `vb`.
fn program(space: &str) -> Vec<Finding> {
    let optional = |what, outcome: Result<(), String>, good: &str, remedy| Finding {
        what,
        works: outcome.is_ok(),
        needed: false,
        said: outcome.err().unwrap_or_else(|| good.to_string()),
        remedy,
    };
    let fresh = state::fresh(space);
    let object = Object::trial(&fresh.as_deref().unwrap_or(Path::new(FOLDER)).join("port").display().to_string());
    let step = |namespace: Option<&str>, tool, lines| {
        carry_out(&Step { namespace: namespace.map(str::to_string), tool, lines }).map_err(|e| e.0)
    };
    // What is loaded with root's rights lies where only root can have put it.
    let made = match &fresh {
        Ok(_) => step(None, Tool::Clang, vec![object.line()]),
        Err(error) => Err(error.0.clone()),
    };
    let types = if Path::new(TYPES).exists() { Ok(()) } else { Err(format!("there is no {TYPES}")) };
    let classes = CLASSES.map(String::from).to_vec();
    let mut findings = vec![
        optional(
            "classes at a port (htb)",
            step(Some(space), Tool::Tc, classes),
            "works",
            "use a kernel with CONFIG_NET_SCH_HTB",
        ),
        optional("kernel's types (BTF)", types, TYPES, "use a kernel with CONFIG_DEBUG_INFO_BTF"),
        optional("compiler for programs of ports", made.clone(), "clang", "install clang (apt install clang)"),
    ];
    if findings.iter().all(|finding| finding.works) {
        let loaded = step(Some(space), Tool::Tc, object.filters("va", "vb"));
        let remedy = "use Linux 6.2 or later, and root (CAP_BPF and CAP_PERFMON) outside of any user namespace";
        findings.push(optional("ECN, trimming, bursts of losses (eBPF)", loaded, "work", remedy));
    }
    if let Ok(folder) = fresh {
        let _ = std::fs::remove_dir_all(folder);
    }
    findings
}
