//! Lower bounds of the times of collectives.

use crate::ideal_fct::Alone;
use crate::maker::Maker;
use strandway_collective::{Group, Plans, Rank, Recipe, Schedule};
use strandway_proto::HostId;
use strandway_proto::units::Span;

impl Maker<'_> {
    /// Lower bound of the time of a placed collective.
    pub(crate) fn bound_of(&self, group: &Group) -> Span {
        match group.plans() {
            Plans::Computed(schedule) => self.bound(schedule, &group.hosts),
            Plans::Tabled { recipe, bytes } => self.bound_on(recipe, *bytes, &group.hosts),
        }
    }

    /// Lower bound of the time of a placed collective, if each NIC carries `rails` equal ones at a time.
    pub(crate) fn bound_beside(&self, group: &Group, rails: u64) -> Span {
        let bound = self.bound_of(group);
        if rails <= 1 {
            return bound;
        }
        let profile = &self.traffic.profiles[usize::from(self.profile)];
        let alone = Alone::new(profile, self.context.topology, self.context.rate);
        // All ranks of a schedule send the same number of bytes.
        let all = match group.plans() {
            Plans::Computed(schedule) => schedule.messages(),
            Plans::Tabled { recipe, .. } => recipe.messages().len() as u32,
        };
        let mut sent = vec![0u64; group.hosts.len()];
        for message in (0..all).map(|number| group.plans().message(number)) {
            let sum = &mut sent[message.from.0 as usize];
            *sum = sum.saturating_add(alone.busy(message.bytes).0);
        }
        let busiest = sent.into_iter().max().unwrap_or(0);
        bound.max(Span(busiest.saturating_mul(rails)))
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

    /// Lower bound of the time of one schedule.
    pub(crate) fn bound(&self, schedule: &Schedule, hosts: &[HostId]) -> Span {
        let topology = self.context.topology;
        let alone = Alone::new(&self.traffic.profiles[usize::from(self.profile)], topology, self.context.rate);
        schedule.bound(
            |bytes| alone.busy(bytes),
            |from, to, bytes| alone.transfer(hosts[from.0 as usize], hosts[to.0 as usize], bytes),
        )
    }
}

/// Calls `add` with bytes that a rank of a collective sends and with bytes that it receives, until all are counted.
pub(crate) fn add_bytes(plans: &Plans, mut add: impl FnMut(Rank, [u64; 2])) {
    match plans {
        Plans::Computed(schedule) => {
            // All ranks send and receive the same number of bytes.
            let each = schedule.volume() / u64::from(schedule.ranks());
            (0..schedule.ranks()).for_each(|rank| add(Rank(rank), [each; 2]));
        }
        Plans::Tabled { .. } => {
            for message in (0..plans.messages() as u32).map(|number| plans.message(number)) {
                add(message.from, [message.bytes, 0]);
                add(message.to, [0, message.bytes]);
            }
        }
    }
}
