//! Lower bounds of the times of collectives.

use crate::ideal_fct::Alone;
use crate::maker::Maker;
use strandway_collective::{Rank, Recipe, RecipeCollective, Schedule};
use strandway_proto::HostId;
use strandway_proto::units::Span;

impl Maker<'_> {
    /// Lower bound of the time of a collective that follows a recipe.
    pub(crate) fn bound_of(&self, listed: &RecipeCollective) -> Span {
        self.bound_on(&listed.recipe, listed.bytes, &listed.hosts)
    }

    /// Lower bound of the time of a collective that follows a recipe, if each NIC carries `rails` equal ones at a time.
    pub(crate) fn bound_beside_listed(&self, listed: &RecipeCollective, rails: u64) -> Span {
        let profile = &self.traffic.profiles[usize::from(self.profile)];
        let alone = Alone::new(profile, self.context.topology, self.context.rate);
        let mut sent = vec![0u64; listed.hosts.len()];
        for (message, entry) in (0u32..).zip(listed.recipe.messages()) {
            let busy = alone.busy(listed.recipe.length(message, listed.bytes)).0;
            let sum = &mut sent[entry.from as usize];
            *sum = sum.saturating_add(busy);
        }
        let busiest = sent.into_iter().max().unwrap_or(0);
        let bound = self.bound_of(listed);
        if rails > 1 { bound.max(Span(busiest.saturating_mul(rails))) } else { bound }
    }

    /// Lower bound of the time of a recipe before it is placed.
    pub(crate) fn bound_on(&self, recipe: &Recipe, bytes: u64, hosts: &[HostId]) -> Span {
        let profile = &self.traffic.profiles[usize::from(self.profile)];
        let alone = Alone::new(profile, self.context.topology, self.context.rate);
        recipe.bound(
            bytes,
            |bytes| alone.busy(bytes),
            |from, to, bytes| alone.transfer(hosts[from as usize], hosts[to as usize], bytes),
        )
    }

    /// Lower bound of the time of one group.
    pub(crate) fn bound(&self, schedule: &Schedule, hosts: &[HostId]) -> Span {
        self.bound_beside(schedule, hosts, 1)
    }

    /// Lower bound of the time of one group, if each NIC carries `rails` equal groups at a time.
    pub(crate) fn bound_beside(&self, schedule: &Schedule, hosts: &[HostId], rails: u64) -> Span {
        let topology = self.context.topology;
        let alone = Alone::new(&self.traffic.profiles[usize::from(self.profile)], topology, self.context.rate);
        let bound = schedule.bound(
            |bytes| alone.busy(bytes),
            |from, to, bytes| alone.transfer(hosts[from.0 as usize], hosts[to.0 as usize], bytes),
        );
        let sent = || schedule.sends(Rank(0)).fold(0u64, |sum, send| sum.saturating_add(alone.busy(send.bytes).0));
        if rails > 1 { bound.max(Span(sent().saturating_mul(rails))) } else { bound }
    }
}
