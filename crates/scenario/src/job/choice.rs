//! The algorithm of each collective between servers: a ring, or NCCL's trees and PAT, by name, by a tuner's file, or
//! the one with the least lower bound.

use super::place::Placer;
use super::recipes::{recipe_of, slices};
use crate::planned::{self, Planned};
use crate::reader::Section;
use crate::scenario::Scenario;
use std::sync::Arc;
use strandway_collective::{Algorithm as Ring, Schedule};
use strandway_import::nccl_tuner::{Algorithm, Choice, Protocol, Tuner};
use strandway_import::trace::Kind;
use strandway_proto::HostId;
use strandway_proto::units::Span;

/// The algorithm that a scenario asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Ring,
    /// All-reduces by two trees; everything else by rings.
    Tree,
    /// All-gathers and reduce-scatters by PAT; everything else by rings.
    Pat,
    /// Whichever has the least lower bound on the fabric. NCCL compares estimates of the same kind.
    Least,
    /// As process groups run them.
    Planned(Planned),
}

/// How a collective is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// True: by a recipe and not around a ring.
    pub(super) recipe: bool,
    pub(super) protocol: Protocol,
    /// Into how many parts a block is cut, if that is chosen, too.
    pub(super) parts: Option<u32>,
}

/// Reads `algorithm` and `tuner`.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<(Wish, Option<Arc<Tuner>>)> {
    let wish = match section.choice("algorithm", &["ring", "tree", "pat", "nccl", "direct", "auto"]) {
        Some("tree") => Wish::Tree,
        Some("pat") => Wish::Pat,
        Some("nccl") => Wish::Least,
        Some("direct" | "auto") => Wish::Planned(planned::read(section, scenario)?),
        _ => Wish::Ring,
    };
    let Some(name) = section.text("tuner") else { return Some((wish, None)) };
    let read = scenario.read(&name).and_then(|(file, text)| strandway_import::nccl_tuner::parse(&file, &text));
    match read {
        Ok(tuner) => Some((wish, Some(Arc::new(tuner)))),
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

impl Placer<'_, '_> {
    /// How a collective of `bytes` bytes is done among `ranks` ranks of `servers` servers. `rail` has the hosts of one
    /// rail and the bytes of its part.
    pub(super) fn choose(
        &self,
        collective: Kind,
        bytes: u64,
        (servers, ranks): (u32, u32),
        rail: (&[HostId], u64),
    ) -> Chosen {
        let chosen = self.written.tuner.as_ref().and_then(|tuner| tuner.choice(collective, bytes, servers, ranks));
        if let Some(Choice { algorithm, protocol, channels }) = chosen {
            let recipe = match collective {
                Kind::AllReduce => algorithm == Algorithm::Tree,
                // NCCL (`graph/tuning.cc`): PAT only with one GPU per server.
                Kind::AllGather | Kind::ReduceScatter => algorithm == Algorithm::Pat && servers == ranks,
                _ => false,
            };
            return Chosen { recipe, protocol, parts: channels };
        }
        let recipe = match (&self.written.algorithm, collective) {
            (Wish::Planned(_), _) => true,
            (Wish::Tree, Kind::AllReduce) | (Wish::Pat, Kind::AllGather | Kind::ReduceScatter) => true,
            (Wish::Least, Kind::AllReduce) => self.is_faster(collective, rail),
            (Wish::Least, Kind::AllGather | Kind::ReduceScatter) => {
                servers == ranks && self.is_faster(collective, rail)
            }
            _ => false,
        };
        Chosen { recipe, protocol: Protocol::Simple, parts: None }
    }

    /// Whether the recipe has a lower bound below that of the ring.
    fn is_faster(&self, collective: Kind, (hosts, bytes): (&[HostId], u64)) -> bool {
        let ring = match collective {
            Kind::AllReduce => Ring::RingAllReduce,
            Kind::AllGather => Ring::RingAllGather,
            _ => Ring::RingReduceScatter,
        };
        let ranks = hosts.len() as u32;
        let bytes = bytes.max(ranks.into());
        let ring = Schedule::new(ring, ranks, bytes, self.written.parts);
        let ring = ring.map_or(Span::ZERO, |schedule| self.maker.bound(&schedule, hosts));
        let Ok(recipe) = recipe_of(collective, ranks, slices(collective, bytes, self.written.parts)) else {
            return false;
        };
        self.maker.bound_on(&recipe, bytes, hosts) < ring
    }
}
