//! A job, as its workers, its parameter server and the switches know it: its members, their places, and the slots of
//! its keys.

use crate::who::{RACK_MAX, Who};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use strandway_fabric::Topology;
use strandway_proto::aggregate::{Fragment, Kind, Marks, number_of};
use strandway_proto::packet::{ConnectionId, Flags, Header};
use strandway_proto::units::Span;
use strandway_proto::{HostId, Packet, PathId};

/// How a key becomes the number of a slot. ESA sheet, section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// A list of different slots, used in turn: within its window a job never collides with itself. ATP.
    List,
    /// A hash of job and key.
    PerKey,
}

/// The receivers of a key's sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Every worker: an all-reduce.
    All,
    /// Only its owner, which does not send its own fragment: a reduce-scatter. Ours, after Khalilov et al., appendix B.
    Scatter {
        /// Keys of each worker's share.
        per_share: u64,
        /// The number of shares that are reduced at the same time, key by key in turn: the number of chains of a
        /// multicast that runs in parallel.
        chains: u32,
    },
}

/// A rack: the workers below one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rack {
    /// The number of the leaf.
    pub leaf: u32,
    /// Its workers, in the order of their bits.
    pub workers: Vec<u16>,
}

/// Why there is no such job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobError {
    /// There are more than 32 workers below one leaf.
    Crowded {
        /// The leaf.
        leaf: u32,
    },
    /// There are workers below more than 32 leaves.
    Scattered,
    /// There are no workers, or one of them appears twice.
    Workers,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Crowded { leaf } => write!(f, "has more than 32 workers below leaf {leaf}"),
            JobError::Scattered => f.write_str("has workers below more than 32 leaves"),
            JobError::Workers => f.write_str("needs at least one worker, and must not list a worker twice"),
        }
    }
}

/// The properties of a job that do not depend on its place in the fabric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its number. It must differ from that of every other job whose packets or slots may still exist.
    pub number: u16,
    /// The multicast group of its workers.
    pub group: u32,
    /// Elements (numbers) of a fragment.
    pub elements: u16,
    /// Wire bytes of a packet with elements.
    pub data_bytes: u16,
    /// Wire bytes of a packet without elements.
    pub control_bytes: u16,
    /// The largest number of fragments in flight: the length of the list of slots.
    pub window: u32,
    /// Slots of a switch in each plane.
    pub slots: u32,
    /// How keys become slots.
    pub index: Index,
    /// The receivers of sums.
    pub sharing: Sharing,
    /// The first key. Tests begin shortly before numbers wrap around.
    pub first: u64,
    /// A round trip from a worker to the server and back without queues.
    pub rtt: Span,
}

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The properties that do not depend on its place in the fabric.
    pub shape: Shape,
    workers: Vec<HostId>,
    server: HostId,
    server_leaf: u32,
    racks: Vec<Rack>,
    /// Each worker's rack and its bit there.
    places: Vec<(u8, u8)>,
    planes: u8,
    list: Vec<u32>,
}

impl Job {
    /// A job with these workers and its server at these hosts. The server may be at a worker's host.
    ///
    /// # Errors
    /// If the headers' bitmaps have no room for its workers.
    pub fn new(shape: Shape, topology: &Topology, workers: Vec<HostId>, server: HostId) -> Result<Job, JobError> {
        let mut sorted: Vec<HostId> = workers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.is_empty() || sorted.len() != workers.len() {
            return Err(JobError::Workers);
        }
        let mut racks: Vec<Rack> = Vec::new();
        let mut leaves: Vec<u32> = workers.iter().map(|&host| topology.leaf_of(host)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        if leaves.len() > RACK_MAX {
            return Err(JobError::Scattered);
        }
        racks.extend(leaves.iter().map(|&leaf| Rack { leaf, workers: Vec::new() }));
        let mut places = Vec::with_capacity(workers.len());
        for (&host, worker) in workers.iter().zip(0u16..) {
            let leaf = topology.leaf_of(host);
            let rack = racks.iter().position(|rack| rack.leaf == leaf).unwrap_or(0);
            if racks[rack].workers.len() == RACK_MAX {
                return Err(JobError::Crowded { leaf });
            }
            places.push((rack as u8, racks[rack].workers.len() as u8));
            racks[rack].workers.push(worker);
        }
        let slots = shape.slots.max(1);
        // A list has every slot at most once.
        let most = if shape.index == Index::List { slots } else { u32::MAX };
        let shape = Shape { window: shape.window.clamp(1, most), slots, ..shape };
        let list = index_list(shape.number, shape.window.min(slots), slots);
        let server_leaf = topology.leaf_of(server);
        Ok(Job { shape, workers, server, server_leaf, racks, places, planes: topology.planes(), list })
    }

    /// The hosts of its workers.
    pub fn workers(&self) -> &[HostId] {
        &self.workers
    }

    /// The host of its parameter server. With SwitchML there is no server, and the leaf above this host adds the sums
    /// of racks.
    pub fn server(&self) -> HostId {
        self.server
    }

    /// The leaf above the server.
    pub fn server_leaf(&self) -> u32 {
        self.server_leaf
    }

    /// Its racks.
    pub fn racks(&self) -> &[Rack] {
        &self.racks
    }

    /// A worker's rack, and its bit there.
    pub fn place(&self, worker: u16) -> (u8, u8) {
        self.places[usize::from(worker)]
    }

    /// The slot for a key.
    pub fn slot(&self, key: u64) -> u32 {
        match self.shape.index {
            Index::List => self.list[(key % u64::from(self.shape.window)) as usize],
            Index::PerKey => {
                let mixed = strandway_proto::rng::mix64(key ^ u64::from(self.shape.number) << 48);
                (((mixed >> 32) * u64::from(self.shape.slots)) >> 32) as u32
            }
        }
    }

    /// The list of slots that keys take in turn.
    pub fn list(&self) -> &[u32] {
        &self.list
    }

    /// The plane of all packets of a key.
    #[inline]
    pub fn plane(&self, key: u64) -> u8 {
        // Most fabrics have one plane, and a division is slow.
        if self.planes == 1 { 0 } else { (key % u64::from(self.planes)) as u8 }
    }

    /// The only receiver of a key's sum; `None` if all workers get it.
    #[inline]
    pub fn owner(&self, key: u64) -> Option<u16> {
        match self.shape.sharing {
            Sharing::All => None,
            Sharing::Scatter { per_share, chains } => Some(self.owner_of_share(key, per_share, chains)),
        }
    }

    fn owner_of_share(&self, key: u64, per_share: u64, chains: u32) -> u16 {
        let workers = self.workers.len() as u64;
        let (chains, per_share) = (u64::from(chains).clamp(1, workers), per_share.max(1));
        // Consecutive workers form chains; if lengths cannot be equal, the first chains have one more.
        let (each, longer) = (workers / chains, workers % chains);
        let at = (key - self.shape.first) % (workers * per_share);
        let step = (at / (chains * per_share)).min(each);
        let side_by_side = if step < each { chains } else { longer };
        let chain = (at - step * chains * per_share) % side_by_side.max(1);
        (chain * each + chain.min(longer) + step) as u16
    }

    /// Does a worker send its fragment of a key?
    pub fn contributes(&self, worker: u16, key: u64) -> bool {
        self.owner(key) != Some(worker)
    }

    /// All workers whose fragment belongs to a key's sum.
    pub fn all(&self, key: u64) -> Who {
        Who::of((0..self.racks.len()).map(|rack| self.full_rack(rack, key)).collect())
    }

    /// The number of workers of a rack in a key's sum, and the number of racks.
    #[inline]
    pub fn fan_in(&self, rack: usize, key: u64) -> [u8; 2] {
        match self.owner(key) {
            None => [self.racks[rack].workers.len() as u8, self.racks.len() as u8],
            Some(_) => {
                let all = self.all(key);
                let racks = (0..self.racks.len()).filter(|&r| all.rack(r) != 0).count();
                [all.rack(rack).count_ones() as u8, racks as u8]
            }
        }
    }

    /// The workers of a rack that are in a key's sum, one bit each.
    fn full_rack(&self, rack: usize, key: u64) -> u32 {
        let all = ((1u64 << self.racks[rack].workers.len()) - 1) as u32;
        match self.owner(key).map(|owner| self.place(owner)) {
            Some((of, bit)) if usize::from(of) == rack => all & !(1 << bit),
            _ => all,
        }
    }

    /// Does a fragment name workers or racks of this job, with the correct numbers for its key's sum?
    pub fn admits(&self, fragment: &Fragment, key: u64) -> bool {
        let (workers, bits, racks) = ({ fragment.workers }, { fragment.racks }, self.racks.len());
        if bits == 0 || racks < RACK_MAX && bits >> racks != 0 {
            return false;
        }
        let rack = bits.trailing_zeros() as usize;
        let names = match fragment.marks.has(Marks::LEVEL) {
            true => workers == 0,
            false => bits.is_power_of_two() && workers != 0 && workers & !self.full_rack(rack, key) == 0,
        };
        let [of_rack, of_all] = self.fan_in(rack, key);
        let level = fragment.marks.has(Marks::LEVEL);
        names && fragment.fan_in[1] == of_all && (level || fragment.fan_in[0] == of_rack)
    }

    /// The workers in a fragment; `None` if its header names a worker or a rack that the job does not have.
    pub fn who(&self, fragment: &Fragment, key: u64) -> Option<Who> {
        let racks = self.racks.len();
        let mut who = Who::nobody(racks);
        let (workers, bits) = ({ fragment.workers }, { fragment.racks });
        if bits == 0 || racks < RACK_MAX && bits >> racks != 0 {
            return None;
        }
        if fragment.marks.has(Marks::LEVEL) {
            let named = (0..racks).filter(|&rack| bits >> rack & 1 == 1);
            named.for_each(|rack| who.insert(rack, self.full_rack(rack, key)));
            return Some(who);
        }
        let rack = bits.trailing_zeros() as usize;
        who.insert(rack, workers);
        (bits.is_power_of_two() && workers != 0 && workers & !self.full_rack(rack, key) == 0).then_some(who)
    }

    /// A header for a key, from the server, with empty bitmaps.
    pub fn fragment(&self, kind: Kind, key: u64) -> Fragment {
        self.fragment_at(self.slot(key), kind, key)
    }

    /// A header for a key whose slot is known, from the server, with empty bitmaps.
    #[inline]
    pub fn fragment_at(&self, slot: u32, kind: Kind, key: u64) -> Fragment {
        Fragment {
            kind,
            marks: Marks::NONE,
            priority: 1,
            job: self.shape.number,
            fan_in: [0; 2],
            number: number_of(key),
            workers: 0,
            racks: 0,
            slot,
            watermark: 0,
            elements: if kind.has_elements() { self.shape.elements } else { 0 },
            sender: Fragment::SERVER,
        }
    }

    /// The packet with this header. All packets of one slot between two hosts take the same path.
    #[inline]
    pub fn packet(&self, source: HostId, destination: HostId, plane: u8, fragment: Fragment) -> Packet {
        let bytes = if fragment.kind.has_elements() { self.shape.data_bytes } else { self.shape.control_bytes };
        Packet {
            source,
            destination,
            connection: ConnectionId(0),
            path: PathId::new(plane, fragment.slot % PathId::ORDERED),
            size: bytes,
            flags: Flags::NONE,
            header: Header::Fragment(fragment),
        }
    }
}

/// CRC-32 with the reflected polynomial 0xEDB88320.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}

/// A job's list of different slots, as ATP derives it (ESA sheet, section 3.2): a CRC of job, position and a salt,
/// which grows until the job does not use the slot yet.
fn index_list(job: u16, length: u32, slots: u32) -> Vec<u32> {
    let mut used = vec![false; slots as usize];
    let mut list = Vec::with_capacity(length as usize);
    for position in 0..length {
        let [a, b] = job.to_be_bytes();
        let [c, d] = (position as u16).to_be_bytes();
        let of = |salt: u16| {
            let [e, f] = salt.to_be_bytes();
            crc32(&[a, b, c, d, e, f]) % slots
        };
        let drawn = (0..u16::MAX).map(of).find(|&slot| !used[slot as usize]);
        let slot = drawn.or_else(|| used.iter().position(|used| !used).map(|at| at as u32)).unwrap_or(0);
        used[slot as usize] = true;
        list.push(slot);
    }
    list
}

/// The jobs that a switch serves.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// Each job, with the number that this switch's leaf has for it.
    jobs: BTreeMap<u16, (Arc<Job>, u32)>,
}

impl Jobs {
    pub(crate) fn new(jobs: &[Arc<Job>], leaf: u32) -> Jobs {
        Jobs { jobs: jobs.iter().map(|job| (job.shape.number, (Arc::clone(job), leaf))).collect() }
    }

    pub(crate) fn insert(&mut self, job: &Arc<Job>, leaf: u32) {
        self.jobs.insert(job.shape.number, (Arc::clone(job), leaf));
    }

    pub(crate) fn remove(&mut self, job: u16) {
        self.jobs.remove(&job);
    }

    pub(crate) fn get(&self, job: u16) -> Option<&Arc<Job>> {
        self.jobs.get(&job).map(|(job, _)| job)
    }

    /// Does this switch add the sums of the job's racks?
    pub(crate) fn adds_racks(&self, job: &Job) -> bool {
        self.jobs.get(&job.shape.number).is_some_and(|&(_, leaf)| job.server_leaf() == leaf)
    }

    /// Does this switch add fragments of this fragment's rack, or of its level?
    pub(crate) fn adds(&self, job: &Job, fragment: &Fragment) -> bool {
        if fragment.marks.has(Marks::LEVEL) {
            return self.adds_racks(job);
        }
        let rack = { fragment.racks }.trailing_zeros() as usize;
        let leaf = self.jobs.get(&job.shape.number).map(|&(_, leaf)| leaf);
        job.racks().get(rack).is_some_and(|rack| Some(rack.leaf) == leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{flat, shape};
    use std::collections::BTreeSet;

    #[test]
    fn the_check_sum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_list_has_every_slot_once_even_if_it_needs_all_of_them() {
        for (length, slots) in [(1, 1), (12, 12), (100, 128), (1024, 19_859)] {
            let list = index_list(7, length, slots);
            let unique: BTreeSet<u32> = list.iter().copied().collect();
            assert_eq!(unique.len() as u32, length);
            assert!(unique.iter().all(|&slot| slot < slots));
        }
        assert_ne!(index_list(1, 16, 4096), index_list(2, 16, 4096), "jobs differ");
    }

    #[test]
    fn racks_are_leaves_and_a_full_sum_has_everybody() {
        let topology = flat(12, 4);
        let hosts = [0, 1, 2, 5, 6].map(HostId);
        let job = Job::new(shape(1), &topology, hosts.to_vec(), HostId(11)).expect("a job");
        assert_eq!(job.racks().len(), 2);
        assert_eq!(job.place(3), (1, 0));
        assert_eq!((job.all(0).rack(0), job.all(0).rack(1)), (0b111, 0b11));
        assert_eq!(job.fan_in(1, 0), [2, 2]);
        assert_eq!(job.server_leaf(), 2);
        let twice = Job::new(shape(1), &topology, vec![HostId(1); 2], HostId(0));
        assert_eq!(twice, Err(JobError::Workers));
    }

    #[test]
    fn the_owners_of_a_reduce_scatter_are_the_roots_of_the_chains() {
        let topology = flat(8, 8);
        let hosts: Vec<HostId> = (0..5).map(HostId).collect();
        let sharing = Sharing::Scatter { per_share: 2, chains: 2 };
        let job = Job::new(Shape { sharing, ..shape(1) }, &topology, hosts, HostId(7)).expect("a job");
        let owners: Vec<Option<u16>> = (0..10).map(|key| job.owner(key)).collect();
        assert_eq!(owners, [0, 3, 0, 3, 1, 4, 1, 4, 2, 2].map(Some));
        assert_eq!(job.all(1).rack(0), 0b10111);
        assert_eq!(job.fan_in(0, 1), [4, 1]);
        assert!(!job.contributes(3, 1) && job.contributes(0, 1));
    }

    #[test]
    fn a_header_that_names_strangers_is_nobodys() {
        let topology = flat(8, 4);
        let job = Job::new(shape(1), &topology, vec![HostId(0), HostId(1), HostId(4)], HostId(7)).expect("a job");
        let of =
            |workers, racks, marks| job.who(&Fragment { workers, racks, marks, ..job.fragment(Kind::Partial, 3) }, 3);
        assert_eq!(of(0b11, 1, Marks::NONE).map(|who| who.count()), Some(2));
        assert_eq!(of(0b11, 2, Marks::NONE), None, "the second rack has one worker");
        assert_eq!(of(0b1, 3, Marks::NONE), None, "a worker has one rack");
        assert_eq!(of(0, 3, Marks::LEVEL).map(|who| who.count()), Some(3));
        assert_eq!(of(0, 4, Marks::LEVEL), None);
    }
}
