//! Which algorithm a call takes: rules by collective and length, and the plan that follows.

use super::direct::EAGER;
use super::tabled::OrderedRecipe;
use super::{AlgorithmFile, CollectiveCall, DirectLengths, Hosts, RankPlan};
use crate::recipe::{Recipe, RecipeError};
use crate::schedule::{Algorithm, Collective};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Recipes that are kept for later calls: ours.
const KEPT: usize = 32;

/// An algorithm of a collective by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanAlgorithm {
    /// Every rank sends to every other one at once; sums in the order of ranks.
    Direct,
    /// Around a ring; broadcast and reduce along a chain.
    Ring,
    /// Halving and doubling; with a number of ranks that is a power of two.
    HalvingDoubling,
    /// NCCL's two binary trees.
    Tree,
    /// Parallel aggregated trees.
    Pat,
    /// Inside hosts, between hosts, inside hosts; sums in the order of ranks.
    Hierarchical,
    /// The multicast of the group's team: each byte leaves its rank once.
    Multicast,
    /// A switch adds the numbers.
    InNetwork,
    /// An algorithm of MSCCL: the place of its file in [`Algorithms::files`].
    File(u16),
}

impl PlanAlgorithm {
    const ALL: [PlanAlgorithm; 8] = [
        PlanAlgorithm::Direct,
        PlanAlgorithm::Ring,
        PlanAlgorithm::HalvingDoubling,
        PlanAlgorithm::Tree,
        PlanAlgorithm::Pat,
        PlanAlgorithm::Hierarchical,
        PlanAlgorithm::Multicast,
        PlanAlgorithm::InNetwork,
    ];

    /// `direct`, `ring`, `halving-doubling`, `tree`, `pat`, `hierarchical`, `multicast`, `in-network`, or `file`.
    pub const fn name(self) -> &'static str {
        match self {
            PlanAlgorithm::Direct => "direct",
            PlanAlgorithm::Ring => "ring",
            PlanAlgorithm::HalvingDoubling => "halving-doubling",
            PlanAlgorithm::Tree => "tree",
            PlanAlgorithm::Pat => "pat",
            PlanAlgorithm::Hierarchical => "hierarchical",
            PlanAlgorithm::Multicast => "multicast",
            PlanAlgorithm::InNetwork => "in-network",
            PlanAlgorithm::File(_) => "file",
        }
    }

    /// The algorithm with this name; none is called `file`.
    pub fn named(name: &str) -> Option<PlanAlgorithm> {
        PlanAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Does it compute this collective? A file says so itself.
    pub const fn computes(self, collective: Collective) -> bool {
        use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter, SendReceive};
        match self {
            PlanAlgorithm::Direct => !matches!(collective, SendReceive),
            PlanAlgorithm::Ring | PlanAlgorithm::Hierarchical => {
                matches!(collective, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce)
            }
            PlanAlgorithm::HalvingDoubling => matches!(collective, AllReduce | AllGather),
            PlanAlgorithm::Tree => matches!(collective, AllReduce),
            PlanAlgorithm::Pat => matches!(collective, AllGather | ReduceScatter),
            PlanAlgorithm::Multicast => matches!(collective, AllGather | Broadcast),
            PlanAlgorithm::InNetwork => matches!(collective, AllReduce | ReduceScatter),
            PlanAlgorithm::File(_) => false,
        }
    }

    /// Does a team of the group compute it, and not the messages of a plan?
    pub const fn is_of_team(self) -> bool {
        matches!(self, PlanAlgorithm::Multicast | PlanAlgorithm::InNetwork)
    }
}

/// The names of the collectives that have more than one algorithm, as PyTorch writes them.
const COLLECTIVES: [(&str, Collective); 5] = [
    ("all_reduce", Collective::AllReduce),
    ("reduce", Collective::Reduce),
    ("broadcast", Collective::Broadcast),
    ("all_gather", Collective::AllGather),
    ("reduce_scatter", Collective::ReduceScatter),
];

/// Calls of a collective that are longer than a number of bytes take an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    /// `None`: every collective that the algorithm computes.
    collective: Option<Collective>,
    algorithm: PlanAlgorithm,
    above: usize,
}

/// Rules that choose the algorithm of a call. The last rule that fits decides; without one it is
/// [`PlanAlgorithm::Direct`], or [`PlanAlgorithm::Hierarchical`] for long calls of ranks that share hosts.
///
/// In text: rules with commas between them, each `[COLLECTIVE=]ALGORITHM[>BYTES]`, such as
/// `ring>1048576,all_gather=pat`. Bytes are those of the longest buffer of a rank: for all-gather and reduce-scatter
/// the blocks of all ranks together. An algorithm whose name ends with `.xml` is a file of MSCCL, which counts once it
/// is [loaded](Algorithms::load), in groups of its number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    rules: Vec<Rule>,
    files: Vec<AlgorithmFile>,
}

impl fmt::Display for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.rules.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            if let Some((name, _)) = COLLECTIVES.iter().find(|(_, collective)| Some(*collective) == rule.collective) {
                write!(f, "{name}=")?;
            }
            f.write_str(match rule.algorithm {
                PlanAlgorithm::File(at) => &self.files[usize::from(at)].path,
                ours => ours.name(),
            })?;
            if rule.above > 0 {
                write!(f, ">{}", rule.above)?;
            }
        }
        Ok(())
    }
}

impl FromStr for Algorithms {
    type Err = String;

    /// Reads rules; `auto` and an empty text are no rules.
    ///
    /// # Errors
    /// A sentence that names the wrong rule and the possible values.
    fn from_str(text: &str) -> Result<Algorithms, String> {
        let mut files = Vec::new();
        let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty() && *rule != "auto");
        let rules = rules.map(|text| rule(text, &mut files)).collect::<Result<_, _>>()?;
        Ok(Algorithms { rules, files })
    }
}

fn rule(text: &str, files: &mut Vec<AlgorithmFile>) -> Result<Rule, String> {
    let (head, above) = match text.split_once('>') {
        Some((head, bytes)) => {
            let bytes = bytes.trim().parse().map_err(|_| format!("{text:?}: after > comes a number of bytes"))?;
            (head.trim(), bytes)
        }
        None => (text, 0),
    };
    let (collective, name) = match head.split_once('=') {
        Some((collective, name)) => {
            let known = COLLECTIVES.iter().find(|(known, _)| *known == collective.trim());
            let names = || COLLECTIVES.map(|(name, _)| name).join(", ");
            let (_, collective) = known.ok_or_else(|| format!("{text:?}: the collectives are {}", names()))?;
            (Some(*collective), name.trim())
        }
        None => (None, head),
    };
    if name.ends_with(".xml") {
        let algorithm = PlanAlgorithm::File(AlgorithmFile::place(name, files)?);
        return Ok(Rule { collective, algorithm, above });
    }
    let algorithm = PlanAlgorithm::named(name).ok_or_else(|| {
        let names = PlanAlgorithm::ALL.map(PlanAlgorithm::name).join(", ");
        format!("{text:?}: the algorithms are auto, {names}, and files of MSCCL (FILE.xml)")
    })?;
    if let Some(collective) = collective.filter(|collective| !algorithm.computes(*collective)) {
        let others = PlanAlgorithm::ALL.into_iter().filter(|other| other.computes(collective));
        let others: Vec<&str> = others.map(PlanAlgorithm::name).collect();
        return Err(format!("{text:?}: this collective has the algorithms {}", others.join(", ")));
    }
    Ok(Rule { collective, algorithm, above })
}

impl Algorithms {
    /// The algorithm that a rule names for a collective of this many bytes.
    pub fn of(&self, collective: Collective, bytes: usize) -> Option<PlanAlgorithm> {
        let fits = |rule: &&Rule| {
            bytes > rule.above
                && match rule.algorithm {
                    PlanAlgorithm::File(at) => self.recipe(at).is_some_and(|of| of.recipe().collective() == collective),
                    ours => rule.collective.map_or(ours.computes(collective), |wanted| wanted == collective),
                }
        };
        self.rules.iter().rev().find(fits).map(|rule| rule.algorithm)
    }

    /// The files that the rules name, each once.
    pub fn files(&self) -> &[AlgorithmFile] {
        &self.files
    }

    /// The recipe of a file, once it is loaded.
    fn recipe(&self, at: u16) -> Option<&OrderedRecipe> {
        self.files.get(usize::from(at))?.recipe()
    }

    /// Can a file perform this call among this number of ranks?
    fn serves(&self, at: u16, call: &CollectiveCall, ranks: u32) -> bool {
        self.recipe(at).is_some_and(|of| of.recipe().ranks() == ranks) && call.root() == 0 && call.has_equal_blocks()
    }

    /// Loads all files. `read` returns the recipe of a path and the digest of the file.
    ///
    /// # Errors
    /// A sentence that names the file: if it cannot be read, does not compute its collective or computes another one
    /// than its rule names, or is not the file that was [expected](Algorithms::expect).
    pub fn load(&mut self, mut read: impl FnMut(&str) -> Result<(Arc<Recipe>, String), String>) -> Result<(), String> {
        for (at, file) in (0..).zip(&mut self.files) {
            file.load(&mut read)?;
            let computed = file.recipe().map(|of| of.recipe().collective());
            let of_file = self.rules.iter().filter(|rule| rule.algorithm == PlanAlgorithm::File(at));
            let wanted = of_file.filter_map(|rule| rule.collective).find(|wanted| Some(*wanted) != computed);
            if let (Some(wanted), Some(computed)) = (wanted, computed) {
                let names = (wanted.name(), computed.name());
                return Err(format!("{}: a rule wants {}, and the file computes {}", file.path, names.0, names.1));
            }
        }
        Ok(())
    }

    /// Only a file with this digest may be loaded from this path.
    pub fn expect(&mut self, path: &str, digest: &str) {
        if let Some(file) = self.files.iter_mut().find(|file| file.path == path) {
            file.digest = digest.to_string();
        }
    }

    /// The first algorithm of the rules that is not a plan of messages ([`PlanAlgorithm::is_of_team`]).
    pub fn of_team(&self) -> Option<PlanAlgorithm> {
        self.rules.iter().map(|rule| rule.algorithm).find(|algorithm| algorithm.is_of_team())
    }
}

/// Makes the plans of calls, and keeps the recipes that they follow.
#[derive(Clone, Debug, Default)]
pub struct PlanMaker {
    algorithms: Algorithms,
    lengths: DirectLengths,
    kept: BTreeMap<Key, Arc<OrderedRecipe>>,
}

/// A recipe follows from these: the algorithm, the collective's name, ranks, parts and root.
type Key = (PlanAlgorithm, &'static str, u32, u32, u32);

impl PlanMaker {
    /// A maker that follows these rules.
    pub fn new(algorithms: Algorithms, lengths: DirectLengths) -> PlanMaker {
        PlanMaker { algorithms, lengths, kept: BTreeMap::new() }
    }

    /// The part of `rank` of `ranks` in a call whose caller has `buffers` buffers of elements of `element` bytes, among
    /// ranks of these hosts. A call that the chosen algorithm cannot serve, such as an all-gather of blocks of several
    /// lengths, takes the direct one: all ranks of a call decide alike. An algorithm of a team
    /// ([`PlanAlgorithm::is_of_team`]) is no plan: the direct one takes its place.
    pub fn plan(
        &mut self,
        call: &CollectiveCall,
        (rank, ranks): (u32, u32),
        hosts: &Hosts,
        element: usize,
        buffers: usize,
    ) -> RankPlan {
        let made = match self.algorithm(call, ranks, hosts) {
            PlanAlgorithm::Direct | PlanAlgorithm::Multicast | PlanAlgorithm::InNetwork => None,
            PlanAlgorithm::Hierarchical => RankPlan::hierarchical(call, (rank, hosts), element, buffers, &self.lengths),
            chosen => self.follow(chosen, call, (rank, ranks), element, buffers),
        };
        made.unwrap_or_else(|| RankPlan::direct(call, (rank, ranks), element, buffers, &self.lengths))
    }

    /// The algorithm that the rules choose for a call among `ranks` ranks of these hosts. Short calls and calls of
    /// blocks of several lengths are not for a team.
    pub fn algorithm(&self, call: &CollectiveCall, ranks: u32, hosts: &Hosts) -> PlanAlgorithm {
        match (call.collective(), ranks) {
            (None, _) | (_, 0 | 1) => PlanAlgorithm::Direct,
            (Some(collective), _) => match self.chosen(collective, call.bytes(), hosts) {
                PlanAlgorithm::Hierarchical if !hosts.are_shared() => PlanAlgorithm::Direct,
                PlanAlgorithm::HalvingDoubling if !ranks.is_power_of_two() => PlanAlgorithm::Direct,
                PlanAlgorithm::File(at) if !self.algorithms.serves(at, call, ranks) => PlanAlgorithm::Direct,
                chosen if chosen.is_of_team() && (call.bytes() <= EAGER || !call.has_equal_blocks()) => {
                    PlanAlgorithm::Direct
                }
                chosen => chosen,
            },
        }
    }

    /// The algorithm that a rule names. If no rule fits, long calls take the one that sends fewer bytes between hosts.
    fn chosen(&self, collective: Collective, bytes: usize, hosts: &Hosts) -> PlanAlgorithm {
        // Shorter calls reach every rank in one hop, or down a tree.
        let direct = if collective == Collective::Broadcast { self.lengths.tree } else { EAGER };
        self.algorithms.of(collective, bytes).unwrap_or(match bytes > direct && hosts.spares(collective) {
            true => PlanAlgorithm::Hierarchical,
            false => PlanAlgorithm::Direct,
        })
    }

    fn follow(
        &mut self,
        chosen: PlanAlgorithm,
        call: &CollectiveCall,
        (rank, ranks): (u32, u32),
        element: usize,
        buffers: usize,
    ) -> Option<RankPlan> {
        if let PlanAlgorithm::File(at) = chosen {
            return RankPlan::tabled(call, self.algorithms.recipe(at)?, rank, element, buffers);
        }
        let collective = call.collective()?;
        let scheduled = match (chosen, collective) {
            (PlanAlgorithm::Ring, Collective::AllReduce) => Some(Algorithm::RingAllReduce),
            (PlanAlgorithm::Ring, Collective::AllGather) => Some(Algorithm::RingAllGather),
            (PlanAlgorithm::Ring, Collective::ReduceScatter) => Some(Algorithm::RingReduceScatter),
            (PlanAlgorithm::HalvingDoubling, Collective::AllReduce) => Some(Algorithm::HalvingDoubling),
            (PlanAlgorithm::HalvingDoubling, Collective::AllGather) => Some(Algorithm::RecursiveDoubling),
            _ => None,
        };
        if let Some(algorithm) = scheduled {
            return RankPlan::scheduled(call, algorithm, (rank, ranks), element, buffers, self.lengths.part);
        }
        let bytes = call.bytes();
        // Parts of a chain and of each tree; PAT's messages of many blocks are long enough as they are.
        let cut = if chosen == PlanAlgorithm::Tree { bytes / 2 } else { bytes };
        let parts = if chosen == PlanAlgorithm::Pat { 1 } else { cut.div_ceil(self.lengths.part).max(1) as u32 };
        let key = (chosen, collective.name(), ranks, parts, call.root());
        let recipe = match self.kept.get(&key) {
            Some(known) => Arc::clone(known),
            None => {
                let made = recipe(chosen, collective, ranks, parts, call.root())?.ok()?;
                let made = Arc::new(OrderedRecipe::new(Arc::new(made)));
                if self.kept.len() >= KEPT {
                    self.kept.clear();
                }
                self.kept.insert(key, Arc::clone(&made));
                made
            }
        };
        RankPlan::tabled(call, &recipe, rank, element, buffers)
    }
}

/// The recipe of an algorithm that is a table; `None` if it has none for this collective.
fn recipe(
    algorithm: PlanAlgorithm,
    collective: Collective,
    ranks: u32,
    parts: u32,
    root: u32,
) -> Option<Result<Recipe, RecipeError>> {
    Some(match (algorithm, collective) {
        (PlanAlgorithm::Tree, Collective::AllReduce) => Recipe::tree(ranks, parts),
        (PlanAlgorithm::Pat, Collective::AllGather) => Recipe::pat_all_gather(ranks, parts),
        (PlanAlgorithm::Pat, Collective::ReduceScatter) => Recipe::pat_reduce_scatter(ranks, parts),
        (PlanAlgorithm::Ring, Collective::Broadcast) => Recipe::chain(ranks, parts, root),
        (PlanAlgorithm::Ring, Collective::Reduce) => Recipe::chain_reduce(ranks, parts, root),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_were_written_and_the_last_that_fits_decides() {
        let text = "ring>1048576,all_gather=pat,all_reduce=tree>4096";
        let rules: Algorithms = text.parse().expect("rules");
        assert_eq!(rules.to_string(), text);
        for (collective, bytes, algorithm) in [
            (Collective::AllReduce, 4096, None),
            (Collective::AllReduce, 4097, Some(PlanAlgorithm::Tree)),
            (Collective::AllGather, 1, Some(PlanAlgorithm::Pat)),
            (Collective::Broadcast, 2 << 20, Some(PlanAlgorithm::Ring)),
            (Collective::Broadcast, 1 << 20, None),
            (Collective::AllToAll, 2 << 20, None),
        ] {
            assert_eq!(rules.of(collective, bytes), algorithm, "{collective:?} {bytes}");
        }
        assert_eq!("auto".parse(), Ok(Algorithms::default()));
    }

    #[test]
    fn rules_name_files_which_serve_groups_of_their_size() {
        let text = "ring,all_reduce=trees/two.xml>4096,pat.xml";
        let mut rules: Algorithms = text.parse().expect("rules");
        assert_eq!(rules.to_string(), text);
        let name = |rules: &Algorithms, collective, ranks, bytes| {
            let call = CollectiveCall::of_size(collective, bytes, 4, (0, ranks), 0).expect("a call");
            PlanMaker::new(rules.clone(), DirectLengths::default()).algorithm(&call, ranks, &Hosts::default()).name()
        };
        assert_eq!(name(&rules, Collective::AllReduce, 4, 8_192), "ring", "no file is loaded");
        let read = |path: &str| match path {
            "trees/two.xml" => Ok((Arc::new(Recipe::tree(4, 1).expect("a tree")), "1".to_string())),
            "pat.xml" => Ok((Arc::new(Recipe::pat_all_gather(4, 1).expect("a gather")), "2".to_string())),
            other => Err(format!("{other}: absent")),
        };
        rules.load(read).expect("files");
        assert_eq!(name(&rules, Collective::AllReduce, 4, 8_192), "file");
        assert_eq!(name(&rules, Collective::AllReduce, 4, 4_096), "ring");
        assert_eq!(name(&rules, Collective::AllReduce, 5, 8_192), "direct", "the file is of four ranks");
        assert_eq!(name(&rules, Collective::AllGather, 4, 64), "file");
        assert_eq!(name(&rules, Collective::ReduceScatter, 4, 64), "ring");
        // Another rank expects the same files.
        let mut other: Algorithms = text.parse().expect("rules");
        rules.files().iter().for_each(|file| other.expect(&file.path, &file.digest));
        assert_eq!(other, rules);
        other.expect("pat.xml", "3");
        let error = other.load(read).expect_err("another digest");
        assert!(error.contains("pat.xml: this file differs from rank 0's"), "{error}");
        let mut wrong: Algorithms = "all_reduce=pat.xml".parse().expect("a rule");
        let error = wrong.load(read).expect_err("another collective");
        assert!(error.contains("pat.xml: a rule wants allreduce, and the file computes allgather"), "{error}");
        let mut wrong: Algorithms = "none.xml".parse().expect("a rule");
        assert_eq!(wrong.load(read), Err("none.xml: absent".to_string()));
    }

    #[test]
    fn teams_compute_long_calls_of_equal_blocks() {
        let rules = "multicast,all_reduce=in-network>65536,reduce_scatter=in-network";
        let maker = PlanMaker::new(rules.parse().expect("rules"), DirectLengths::default());
        let name = |collective, bytes| {
            let call = CollectiveCall::of_size(collective, bytes, 4, (0, 4), 0).expect("a call");
            maker.algorithm(&call, 4, &Hosts::default()).name()
        };
        assert_eq!(name(Collective::AllGather, 1 << 20), "multicast");
        assert_eq!(name(Collective::AllGather, (1 << 20) + 4), "direct", "blocks of several lengths");
        assert_eq!(name(Collective::AllGather, EAGER), "direct");
        assert_eq!(name(Collective::Broadcast, EAGER + 4), "multicast");
        assert_eq!(name(Collective::AllReduce, 65_536), "direct");
        assert_eq!(name(Collective::AllReduce, 65_540), "in-network", "of any length");
        assert_eq!(name(Collective::ReduceScatter, 65_536), "in-network");
        assert_eq!(name(Collective::Reduce, 65_540), "direct");
        assert_eq!(maker.algorithms.of_team(), Some(PlanAlgorithm::Multicast));
        assert_eq!("ring".parse::<Algorithms>().expect("a rule").of_team(), None);
    }

    #[test]
    fn wrong_rules_are_named_with_a_remedy() {
        for (text, said) in [
            ("rings", "the algorithms are auto, direct, ring"),
            ("rings", "in-network, and files of MSCCL (FILE.xml)"),
            ("all_reduce=pat", "this collective has the algorithms direct, ring, halving-doubling, tree, hierarchical"),
            ("allreduce=ring", "the collectives are all_reduce, reduce"),
            ("ring>1MB", "a number of bytes"),
        ] {
            let error = text.parse::<Algorithms>().expect_err(text);
            assert!(error.contains(said) && error.contains(text), "{error}");
        }
    }
}
