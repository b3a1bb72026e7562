//! Network cards and the cores of a process: are they of the same NUMA node?

use super::machine::{Cores, Machine, list};
use strandway_udp::doctor::{Finding, Verdict};

const WHAT: &str = "NUMA node of the interface";

/// A finding per card on a machine of several nodes; none if there is one node, or if the kernel does not know the
/// node of the card, or our cores.
pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let (nodes, allowed) = (machine.nodes(), machine.allowed());
    if nodes.len() < 2 || allowed.is_empty() {
        return Vec::new();
    }
    let card = |name: &String| {
        // A card of virtio has no number of its own; its PCI device has.
        let of = |file| machine.number(&format!("sys/class/net/{name}/device/{file}"));
        let node = of("numa_node").or_else(|| of("../numa_node"))?;
        let (_, near) = nodes.iter().find(|(number, _)| *number == node)?;
        Some(finding(name, node, near, &allowed, &nodes))
    };
    machine.cards().iter().filter_map(card).collect()
}

/// `near`: the cores of the card's node.
fn finding(name: &str, node: i64, near: &Cores, allowed: &Cores, nodes: &[(i64, Cores)]) -> Finding {
    let ours = nodes.iter().filter(|(_, cores)| !cores.is_disjoint(allowed));
    let ours: Vec<String> = ours.map(|(number, _)| number.to_string()).collect();
    let value = format!("{name}: node {node}; we may run on nodes {}", ours.join(", "));
    if allowed.is_subset(near) {
        return Finding { what: WHAT, value, verdict: Verdict::Good, advice: String::new() };
    }
    let both: Cores = near.intersection(allowed).copied().collect();
    let (cores, outside) = match both.is_empty() {
        true => (list(near), "; a container must be given these cores"),
        false => (list(&both), ""),
    };
    let advice = format!(
        "packets and memory cross between the nodes: start the process with `numactl --physcpubind={cores} --membind={node} COMMAND`, or \
         `taskset -c {cores} COMMAND`{outside}; a process per interface uses the cores of all nodes"
    );
    Finding { what: WHAT, value, verdict: Verdict::Slow, advice }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    /// Findings on a machine with cores 0 to 3 on node 0 and 4 to 7 on node 1, with a card on `card`.
    fn found(card: &str, allowed: &str, two_nodes: bool) -> Vec<Finding> {
        let status = format!("Name:\tstrandway\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}");
        let mut files = vec![
            ("sys/class/net/p0/type", "1"),
            ("sys/class/net/p0/operstate", "up"),
            ("sys/class/net/p0/device/driver/module", ""),
            ("sys/class/net/p0/device/numa_node", card),
            ("sys/devices/system/node/online", "0-1"),
            ("sys/devices/system/node/node0/cpulist", "0-3"),
            // A node of memory alone.
            ("sys/devices/system/node/node2/cpulist", ""),
            ("proc/self/status", &status),
        ];
        if two_nodes {
            files.push(("sys/devices/system/node/node1/cpulist", "4-7"));
        }
        findings(&machine(&files).1)
    }

    #[test]
    fn a_process_that_may_leave_the_node_of_its_card_gets_the_command_that_keeps_it_there() {
        let [all] = &found("1", "0-7", true)[..] else { panic!("one card") };
        assert_eq!(all.value, "p0: node 1; we may run on nodes 0, 1");
        assert_eq!(all.verdict, Verdict::Slow);
        assert!(all.advice.contains("`numactl --physcpubind=4-7 --membind=1 COMMAND`"), "{}", all.advice);
        assert!(all.advice.contains("`taskset -c 4-7 COMMAND`"), "{}", all.advice);
        // Only cores that the process may use.
        let [some] = &found("1", "2-5", true)[..] else { panic!("one card") };
        assert!(some.advice.contains("`taskset -c 4-5 COMMAND`;"), "{}", some.advice);
        let [far] = &found("1", "0-3", true)[..] else { panic!("one card") };
        assert_eq!(far.value, "p0: node 1; we may run on nodes 0");
        assert!(far.advice.contains("`taskset -c 4-7 COMMAND`; a container"), "{}", far.advice);
    }

    #[test]
    fn a_process_near_its_card_gets_no_advice() {
        let [near] = &found("1", "4-6", true)[..] else { panic!("one card") };
        assert_eq!((near.verdict, near.advice.as_str()), (Verdict::Good, ""));
    }

    #[test]
    fn a_card_whose_pci_device_has_the_node_counts() {
        let files = [
            ("sys/class/net/p0/type", "1"),
            ("sys/class/net/p0/operstate", "up"),
            ("sys/class/net/p0/device/driver/module", ""),
            ("sys/class/net/p0/numa_node", "0"),
            ("sys/devices/system/node/node0/cpulist", "0-3"),
            ("sys/devices/system/node/node1/cpulist", "4-7"),
            ("proc/self/status", "Cpus_allowed_list:\t0-3"),
        ];
        let [near] = &findings(&machine(&files).1)[..] else { panic!("one card") };
        assert_eq!((near.value.as_str(), near.verdict), ("p0: node 0; we may run on nodes 0", Verdict::Good));
    }

    #[test]
    fn nothing_is_said_of_one_node_or_of_a_card_whose_node_is_unknown() {
        assert_eq!(found("0", "0-3", false), []);
        assert_eq!(found("-1", "0-7", true), []);
        assert_eq!(found("0", "", true), []);
        assert_eq!(found("7", "0-7", true), []);
    }
}
