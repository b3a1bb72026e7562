//! A machine as its kernel describes it in files: network cards, cores, NUMA nodes, settings. Tests describe one below
//! another root.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Numbers of cores.
pub(super) type Cores = BTreeSet<usize>;

/// The most network cards that are reported; ours.
const CARDS_MAX: usize = 16;

/// The files of one machine.
#[derive(Debug)]
pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// This machine for `/`.
    pub(super) fn new(root: &Path) -> Machine {
        Machine { root: root.into() }
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_string())
    }

    /// A file that contains one number.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.parse().ok()
    }

    /// The names of the entries of a directory, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Ethernet interfaces that are up and belong to a device with a driver: no loopback, veth, bridge or wireless.
    pub(super) fn cards(&self) -> Vec<String> {
        let mut cards = self.names("sys/class/net");
        cards.retain(|name| {
            let folder = format!("sys/class/net/{name}");
            // ARPHRD_ETHER of linux/if_arp.h.
            self.number(&format!("{folder}/type")) == Some(1)
                && self.read(&format!("{folder}/operstate")).as_deref() == Some("up")
                && self.root.join(&folder).join("device/driver").exists()
                && !self.root.join(&folder).join("phy80211").exists()
        });
        cards.truncate(CARDS_MAX);
        cards
    }

    /// The cores that this process may use. The kernel's list of them also has cores that are not there yet, on virtual
    /// machines often more than a hundred: only those that are online count.
    pub(super) fn allowed(&self) -> Cores {
        let status = self.read("proc/self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = list.map(cores).unwrap_or_default();
        match self.read("sys/devices/system/cpu/online") {
            Some(online) => &allowed & &cores(&online),
            None => allowed,
        }
    }

    /// The average number of programs that ran or waited for a core in the last minute.
    pub(super) fn load(&self) -> Option<f64> {
        self.read("proc/loadavg")?.split(' ').next()?.parse().ok()
    }

    /// NUMA nodes that have cores: number and cores of each.
    pub(super) fn nodes(&self) -> Vec<(i64, Cores)> {
        let folder = "sys/devices/system/node";
        let node = |name: String| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            Some((number, cores(&self.read(&format!("{folder}/{name}/cpulist"))?)))
        };
        let mut nodes: Vec<_> = self.names(folder).into_iter().filter_map(node).collect();
        nodes.retain(|(_, cores)| !cores.is_empty());
        nodes.sort();
        nodes
    }
}

/// A list of cores as the kernel writes it, such as `0-3,8`. Parts that are no range are skipped.
fn cores(list: &str) -> Cores {
    // CONFIG_NR_CPUS is at most 8,192 on every architecture.
    const CORES_MAX: usize = 8_192;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    let ranges = list.split(',').filter_map(range).filter(|range| *range.end() < CORES_MAX);
    ranges.flatten().collect()
}

/// Cores as `taskset -c` and the kernel write them: `0-3,8`.
pub(super) fn list(cores: &Cores) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &core in cores {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => runs.push((core, core)),
        }
    }
    let run = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A machine of these files. The directory must outlive it.
    pub(in super::super) fn machine(files: &[(&str, &str)]) -> (TempDir, Machine) {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, format!("{text}\n")).expect("a file");
        }
        let machine = Machine::new(root.path());
        (root, machine)
    }

    #[test]
    fn lists_of_cores_are_read_and_written_as_the_kernel_does() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5-6"] {
            assert_eq!(list(&cores(text)), text);
        }
        assert_eq!(list(&cores(" 2,1\n")), "1-2");
        for odd in ["x", "3-1", "-1", "0-99999999999", "1-", ",,"] {
            assert_eq!(list(&cores(odd)), "", "{odd}");
        }
    }

    #[test]
    fn cards_are_interfaces_that_are_up_and_have_a_driver() {
        let of = |name: &str, file: &str| format!("sys/class/net/{name}/{file}");
        let mut files = Vec::new();
        for (name, kind, state) in [
            ("p1", "1", "up"),
            ("p0", "1", "up"),
            ("down", "1", "down"),
            ("veth0", "1", "up"),
            ("lo", "772", "unknown"),
            ("ib0", "32", "up"),
            ("wlan0", "1", "up"),
        ] {
            files.push((of(name, "type"), kind));
            files.push((of(name, "operstate"), state));
        }
        for name in ["p0", "p1", "down", "ib0", "wlan0"] {
            files.push((of(name, "device/driver/module"), ""));
        }
        files.push((of("wlan0", "phy80211/index"), "0"));
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_root, machine) = machine(&files);
        assert_eq!(machine.cards(), ["p0", "p1"]);
    }

    #[test]
    fn cores_that_are_not_online_do_not_count() {
        let files = [("proc/self/status", "Cpus_allowed_list:\t0-127"), ("sys/devices/system/cpu/online", "0-1,130")];
        assert_eq!(list(&machine(&files).1.allowed()), "0-1");
    }

    #[test]
    fn this_machine_has_cores_and_an_empty_one_has_nothing() {
        let here = Machine::new(Path::new("/"));
        assert!(!here.allowed().is_empty());
        assert!(here.load().is_some());
        let (_root, empty) = machine(&[]);
        assert!(empty.allowed().is_empty() && empty.cards().is_empty() && empty.nodes().is_empty());
        assert_eq!(empty.load(), None);
    }
}
