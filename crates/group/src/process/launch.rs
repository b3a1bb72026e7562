//! The variables by which launchers (torchrun, Open MPI, PMI, Slurm) describe a process, and the addresses of a host.

use super::host::label;
use super::offer::{Names, Offer};
use super::store::{DirectoryStore, Store, TcpStore};
use super::{Failure, Group, GroupOptions, Prefixed, Process, ProcessOptions, Tuning, Waiting, registry};
use crate::error::GroupError;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Mutex, Once, PoisonError};
use strandway_udp::address::{device_of, parse};
use strandway_udp::environment::Settings;
use strandway_udp::mtu_of;

/// Names of variables with the rank, the number of ranks and the launcher.
const LAUNCHERS: [(&str, &str, &str); 5] = [
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
    ("PMIX_RANK", "PMIX_SIZE", "PMIx"),
    ("PMI_RANK", "PMI_SIZE", "PMI"),
    ("SLURM_PROCID", "SLURM_NTASKS", "Slurm"),
];
/// The store's port follows that of torchrun's own: ours.
const PORT_AFTER: u16 = 1;
/// The most lines on messages of dropped processes that did not arrive: ours.
const UNDELIVERED_MAX: usize = 64;

/// The place where ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAt {
    /// A directory that all ranks see; one for each run.
    Directory(String),
    /// Rank 0's host, by TCP.
    Tcp(String),
}

/// The rank of this process, the number of ranks, and the place where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The rank.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The place where they meet.
    pub store: StoreAt,
    /// A name that distinguishes runs with the same directory.
    pub run: String,
}

impl Launch {
    /// Reads the environment.
    ///
    /// # Errors
    /// If no launcher has set its variables; the message names them.
    pub fn from_env() -> Result<Launch, GroupError> {
        Launch::read(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Result<Launch, GroupError> {
        let Some((rank_name, ranks_name, _)) =
            LAUNCHERS.into_iter().find(|(rank, ranks, _)| get(rank).is_some() && get(ranks).is_some())
        else {
            let names: Vec<String> =
                LAUNCHERS.iter().map(|(rank, ranks, launcher)| format!("{rank} and {ranks} ({launcher})")).collect();
            return Err(GroupError::Config(format!("no launcher has set its variables: {}", names.join(", "))));
        };
        let number = |name: &str| -> Result<u32, GroupError> {
            let value = get(name).unwrap_or_default();
            value.parse().map_err(|_| GroupError::Config(format!("{name} is {value:?}: a number is wanted")))
        };
        let (rank, ranks) = (number(rank_name)?, number(ranks_name)?);
        if ranks == 0 || rank >= ranks {
            return Err(GroupError::Config(format!("{rank_name} is {rank} and {ranks_name} {ranks}: count from 0")));
        }
        let store = match (get("STRANDWAY_STORE"), get("MASTER_ADDR"), get("MASTER_PORT")) {
            (Some(at), _, _) if at.contains('/') => StoreAt::Directory(at),
            (Some(at), _, _) => StoreAt::Tcp(at),
            (None, Some(host), Some(port)) => {
                let port: u16 =
                    port.parse().ok().and_then(|port: u16| port.checked_add(PORT_AFTER)).ok_or_else(|| {
                        GroupError::Config(format!("MASTER_PORT is {port:?}: a port below 65535 is wanted"))
                    })?;
                StoreAt::Tcp(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
            }
            _ => {
                let what = "ranks do not know where to meet: set STRANDWAY_STORE to HOST:PORT at rank 0, or to a directory that all see";
                return Err(GroupError::Config(what.into()));
            }
        };
        let names = ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];
        let run = names.into_iter().find_map(&get).unwrap_or_else(|| "run".into());
        Ok(Launch { rank, ranks, store, run })
    }

    /// Forms the group of all ranks: finds the store, the planes and the other ranks.
    ///
    /// # Errors
    /// If any of it fails.
    pub fn form(&self, options: GroupOptions) -> Result<Group, GroupError> {
        let (mut store, towards) = self.open(&options)?;
        let group = Group::meet(&mut store, self.rank, self.ranks, towards.as_deref(), options)?;
        // The server stays until the process ends: the last rank may still be reading.
        std::mem::forget(store);
        Ok(group)
    }

    /// The store, and the host where it is, if it is at a host.
    pub(super) fn open(&self, options: &GroupOptions) -> Result<(Box<dyn Store>, Option<String>), GroupError> {
        let failed = |error: io::Error| GroupError::Config(format!("the store at {:?}: {error}", self.store));
        match &self.store {
            StoreAt::Directory(path) => {
                let store = DirectoryStore::new(path).map_err(failed)?;
                Ok((Box::new(Prefixed(store, self.run.clone())), None))
            }
            StoreAt::Tcp(address) => {
                let store = if self.rank == 0 {
                    // The store listens at every address of the host, because ranks may use any of them.
                    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
                    let both: [SocketAddr; 2] =
                        [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
                    TcpStore::serve(&both[..]).map_err(failed)?
                } else {
                    TcpStore::connect(address.as_str(), options.patience).map_err(failed)?
                };
                let host = address.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']).to_string());
                Ok((Box::new(store), host))
            }
        }
    }
}

/// The processes on the wire of this operating system process: one for each key.
static PROCESSES: Mutex<Vec<(u32, Process)>> = Mutex::new(Vec::new());

impl Group {
    /// Meets the other ranks at a store. If this operating system process already has a process on the wire with the
    /// group's key, the group uses it; otherwise a new one is started. `towards`: the host where ranks meet, if they
    /// meet at a host.
    ///
    /// Planes are the addresses of `STRANDWAY_PLANES` (with commas between them) or, without that, those that rank 0
    /// chooses from what all ranks have: loopback if they share a host, else a plane for each subnet that all are in,
    /// else the way to where they meet. `STRANDWAY_IFNAME` names the interfaces. `STRANDWAY_ADVERTISE` has the
    /// addresses that others use instead (behind a NAT), `STRANDWAY_PORTS` a range of UDP ports. `STRANDWAY_PAYLOAD`,
    /// `STRANDWAY_PROTECTION`, `STRANDWAY_PROFILE`, `STRANDWAY_TUNING` and `STRANDWAY_ALGORITHM` (at rank 0),
    /// `STRANDWAY_RATE` in Gb/s, `STRANDWAY_RTT` in milliseconds, `STRANDWAY_RECORD` and `STRANDWAY_SHARED_MEMORY` (0
    /// for sockets between ranks of one host) are read too. With
    /// `STRANDWAY_LOG=info` the addresses in use are printed.
    ///
    /// # Errors
    /// If a rank does not come in time or cannot come, packets do not pass between two ranks, or the store or an
    /// address does not work. All ranks get the error.
    pub fn meet(
        store: &mut impl Store,
        rank: u32,
        ranks: u32,
        towards: Option<&str>,
        options: GroupOptions,
    ) -> Result<Group, GroupError> {
        // A child of a fork has none of its parent's threads, so it cannot use its parent's processes.
        let pid = std::process::id();
        let known = |secret: Option<&[u8; 32]>| {
            let processes = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |process: &Process| process.is_alive() && secret.is_none_or(|secret| secret == process.secret());
            processes.iter().find(|(of, process)| *of == pid && fits(process)).map(|(_, process)| process.clone())
        };
        let (process, group) = meet_with(store, rank, ranks, towards, options, known)?;
        let mut processes = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let (ours, parents) = processes.drain(..).partition::<Vec<_>, _>(|(of, _)| *of == pid);
        // Nothing here may wait for their threads, which are in the parent.
        parents.into_iter().for_each(std::mem::forget);
        *processes = ours.into_iter().filter(|(_, process)| process.is_alive()).collect();
        if !processes.iter().any(|(_, known)| known.secret() == process.secret()) {
            processes.push((pid, process));
        }
        Ok(group)
    }

    /// Meets the other ranks at a store, with a process of the group's own, which ends with it: for several ranks in
    /// one operating system process.
    ///
    /// # Errors
    /// As for [`Group::meet`].
    pub fn meet_apart(
        store: &mut impl Store,
        rank: u32,
        ranks: u32,
        towards: Option<&str>,
        options: GroupOptions,
    ) -> Result<Group, GroupError> {
        meet_with(store, rank, ranks, towards, options, |_| None).map(|(_, group)| group)
    }
}

fn meet_with(
    store: &mut impl Store,
    rank: u32,
    ranks: u32,
    towards: Option<&str>,
    options: GroupOptions,
    known: impl Fn(Option<&[u8; 32]>) -> Option<Process>,
) -> Result<(Process, Group), GroupError> {
    // A process that runs already has its planes.
    let given = known(None).map_or_else(Vec::new, |process| process.planes().to_vec());
    let prepared = prepare(towards, &options, &given);
    let (offer, settings) = prepared.inspect_err(|error| Group::cannot_come(store, rank, ranks, error))?;
    let met = Group::form_by(store, (rank, ranks), options, &offer, &settings, known);
    if let (Ok((process, _)), true) = (&met, is_logging()) {
        let planes: Vec<String> = process.planes().iter().map(|plane| shown_plane(*plane)).collect();
        let (label, payload) = (label(), process.settled().unwrap_or_default());
        eprintln!(
            "strandway: rank {rank} of {ranks} at {label}: planes {}; {payload} bytes of payload in a packet",
            planes.join(", ")
        );
    }
    met
}

/// The offer of this host, and the settings of a process here. `given`: the planes of a process that runs already.
pub(super) fn prepare(
    towards: Option<&str>,
    options: &GroupOptions,
    given: &[SocketAddrV6],
) -> Result<(Offer, ProcessOptions), GroupError> {
    let (settings, names) = from_env()?;
    let planes = if given.is_empty() { &settings.planes } else { given };
    let offer = Offer { advertises: !settings.advertise.is_empty(), ..Offer::of_host(towards, &names, planes)? };
    Ok((offer, ProcessOptions { patience: options.patience, ..settings }))
}

/// Shall the addresses in use be printed?
fn is_logging() -> bool {
    std::env::var("STRANDWAY_LOG")
        .is_ok_and(|level| ["info", "debug", "trace"].contains(&level.to_lowercase().as_str()))
}

fn shown_plane(plane: SocketAddrV6) -> String {
    let at = strandway_udp::address::shown(plane);
    match device_of(*plane.ip()) {
        Some(device) => format!("{at} ({device}, MTU {})", mtu_of(*plane.ip()).unwrap_or_default()),
        None => at.to_string(),
    }
}

/// The operations under way in all processes on the wire of this operating system process. Processes that groups have
/// for themselves ([`Group::meet_apart`]) are included.
pub fn waiting() -> Vec<Waiting> {
    registry::living().iter().flat_map(Process::waiting).collect()
}

/// Messages that did not arrive before their process was dropped.
static UNDELIVERED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Says once that this process does not share memory with another one of its host, and why.
pub(super) fn note_unshared(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let label = label();
        eprintln!(
            "strandway: {label} talks by sockets with ranks of its own host, without shared memory: {why} \
             (STRANDWAY_SHARED_MEMORY=0 asks for sockets)"
        );
    });
}

/// Keeps a failure for [`close_all`].
pub(super) fn note_undelivered(lines: Vec<String>) {
    let mut all = UNDELIVERED.lock().unwrap_or_else(PoisonError::into_inner);
    let room = UNDELIVERED_MAX.saturating_sub(all.len());
    all.extend(lines.into_iter().take(room));
}

/// Ends all processes on the wire of this operating system process, once their messages have arrived. Processes that
/// groups have for themselves are included. For the end of a program.
///
/// # Errors
/// [`Failure::Undelivered`] names messages of all processes that did not arrive. Processes that were dropped before are
/// included.
pub fn close_all() -> Result<(), Failure> {
    let processes = std::mem::take(&mut *PROCESSES.lock().unwrap_or_else(PoisonError::into_inner));
    let mut lost = std::mem::take(&mut *UNDELIVERED.lock().unwrap_or_else(PoisonError::into_inner));
    for process in registry::living() {
        if let Err(Failure::Undelivered(lines)) = process.close() {
            lost.extend(lines);
        }
    }
    // Nothing here may wait for the threads of a parent's processes, which are in the parent.
    processes.into_iter().filter(|(pid, _)| *pid != std::process::id()).for_each(std::mem::forget);
    if lost.is_empty() { Ok(()) } else { Err(Failure::Undelivered(lost)) }
}

/// The descriptors of the sockets of all processes of this operating system process. See [`Process::descriptors`].
pub fn descriptors() -> Vec<i32> {
    registry::living().iter().flat_map(Process::descriptors).collect()
}

/// The settings of a process, and the interfaces that it may use, from the environment. Without planes they are found.
pub(super) fn from_env() -> Result<(ProcessOptions, Names), GroupError> {
    let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let wrong = |name: &str, value: &str, wanted: &str| GroupError::Config(format!("{name} is {value:?}: {wanted}"));
    let settings = Settings::read(&get).map_err(GroupError::Config)?;
    let mut options = ProcessOptions::on(settings.planes.unwrap_or_default());
    options.payload = settings.payload.or(options.payload);
    options.protection = settings.protection.unwrap_or(options.protection);
    options.rate = settings.rate.unwrap_or(options.rate);
    options.profile = settings.profile.unwrap_or(options.profile);
    options.base_rtt = settings.base_rtt.unwrap_or(options.base_rtt);
    options.team = settings.team;
    let names = Names::parse(&get("STRANDWAY_IFNAME").unwrap_or_default());
    if let Some(list) = get("STRANDWAY_ADVERTISE") {
        let wanted = "give the address by which others reach this host on each plane, with commas between them";
        let each =
            list.split(',').map(|one| parse(one.trim(), 0).ok_or_else(|| wrong("STRANDWAY_ADVERTISE", &list, wanted)));
        options.advertise = each.collect::<Result<_, _>>()?;
    }
    if let Some(range) = get("STRANDWAY_PORTS") {
        let wanted = "give two UDP ports, as 29600-29699";
        let ports = range.split_once('-').or(Some((range.as_str(), range.as_str()))).and_then(|(first, last)| {
            let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first > 0 && first <= last).then_some(first..=last)
        });
        options.ports = Some(ports.ok_or_else(|| wrong("STRANDWAY_PORTS", &range, wanted))?);
    }
    if let Some(path) = get("STRANDWAY_TUNING") {
        options.tuning = load_tuning(std::path::Path::new(&path))?;
    }
    if let Some(rules) = get("STRANDWAY_ALGORITHM") {
        options.tuning.algorithms =
            rules.parse().map_err(|error| GroupError::Config(format!("STRANDWAY_ALGORITHM is {error}")))?;
    }
    if let Some(value) = get("STRANDWAY_SHARED_MEMORY") {
        options.shared_memory = match value.as_str() {
            "1" => true,
            "0" => false,
            _ => return Err(wrong("STRANDWAY_SHARED_MEMORY", &value, "give 0 or 1")),
        };
    }
    options.switch = super::delegate::switch_from(get)?;
    options.record = get("STRANDWAY_RECORD").map(std::path::PathBuf::from);
    Ok((options, names))
}

/// Reads a table of algorithms.
///
/// # Errors
/// If it cannot be read, or a line is wrong; the message names file, line, key and value.
fn load_tuning(path: &std::path::Path) -> Result<Tuning, GroupError> {
    let wrong = |what: String| GroupError::Config(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("{error}; `strandway perf tune` writes such a file")))?;
    Tuning::parse(&text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(of: &[(&str, &str)]) -> Result<Launch, String> {
        let of: BTreeMap<&str, &str> = of.iter().copied().collect();
        Launch::read(|name| of.get(name).map(ToString::to_string)).map_err(|error| error.to_string())
    }

    #[test]
    fn launchers_say_who_and_where() {
        let torch = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "::1"), ("MASTER_PORT", "29500")];
        let launch = read(&torch).expect("complete");
        assert_eq!((launch.rank, launch.ranks, launch.store), (1, 2, StoreAt::Tcp("[::1]:29501".into())));
        let slurm =
            [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4"), ("STRANDWAY_STORE", "/scratch/run"), ("SLURM_JOB_ID", "77")];
        let launch = read(&slurm).expect("complete");
        assert_eq!((launch.store, launch.run.as_str()), (StoreAt::Directory("/scratch/run".into()), "77"));
        assert!(read(&[]).expect_err("nothing").contains("OMPI_COMM_WORLD_RANK"));
        assert!(read(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]).expect_err("no store").contains("STRANDWAY_STORE"));
        assert!(read(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).expect_err("beyond").contains("count from 0"));
    }

    #[test]
    fn a_missing_or_wrong_table_is_named_with_a_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strandway-tuning");
        assert!(load_tuning(&path).expect_err("none").to_string().contains("perf tune"));
        std::fs::write(&path, "# measured\npart=7\n").expect("written");
        let error = load_tuning(&path).expect_err("too short").to_string();
        assert!(error.contains("strandway-tuning: line 2: part is \"7\""), "{error}");
    }

    #[test]
    fn loopback_has_an_mtu() {
        for address in ["::1", "127.0.0.1"] {
            let address = parse(address, 0).expect("an address");
            assert!(mtu_of(*address.ip()).is_some_and(|mtu| mtu >= 1_280), "{address}");
        }
        assert_eq!(mtu_of("2001:db8::77".parse().expect("an address")), None);
    }
}
