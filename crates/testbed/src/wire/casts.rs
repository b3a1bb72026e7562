//! The multicasts of a run between real nodes: teams, their planes, the memory of operations, and counters.
//!
//! Hosts with the same members form one team for all their operations. Each operation is the one of the simulator, with
//! the times and headers of real nodes ([`Teams::operations`]).

use super::{Shared, WireError};
use std::net::SocketAddrV6;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use strandway_collective::multicast::{PACE, Ranks, StartBarriers};
use strandway_collective::{Multicast, Operation};
use strandway_fabric::Plan;
use strandway_fabric::multicast::{GroupAddress, Tree};
use strandway_group::{Options, Trial};
use strandway_proto::application::{Event, Stage};
use strandway_proto::cast::{Cast, Rebuild};
use strandway_proto::units::{Rate, Time};
use strandway_proto::{ControlMessage, HostId, MessageId};
use strandway_udp::{Completion, Error, Group, Incoming, Membership, Node, Region};

/// A host that has given an operation up stays for this many round trips, so that other hosts learn of it: ours.
const LINGER: u64 = 20;

/// How a fabric copies multicast. The default suits nodes on one machine without switches.
#[derive(Clone, Debug)]
pub struct Copying {
    /// By group of the plan: the number under which switches know its team. Empty: groups are numbered from zero.
    pub teams: Vec<u16>,
    /// Limit on the receive rate of a host, all planes together.
    pub rate_max: Rate,
}

impl Default for Copying {
    fn default() -> Copying {
        Copying { teams: Vec::new(), rate_max: Rate(u64::MAX) }
    }
}

/// A team of the run.
struct Team {
    number: u16,
    /// Its members in the order of their hosts; the position is the rank in the team.
    members: Ranks,
    secret: [u8; 32],
    /// The planes on which all members have heard each other, one bit each.
    planes: AtomicU32,
}

/// All teams of a run.
pub(super) struct Teams {
    teams: Vec<Team>,
    /// By operation: the index of its team, if it is a multicast.
    of: Vec<Option<usize>>,
    trees: u16,
    rate_max: Rate,
    /// Counters: chunks sent, chunks sent to single hosts, chunks that arrived, chunks that switches trimmed, and
    /// chunks that were rebuilt.
    counted: [AtomicU64; 5],
}

impl Teams {
    /// The teams of these operations.
    pub(super) fn new(plan: &Plan, operations: &[Operation], copying: &Copying) -> Result<Teams, WireError> {
        let trees = Tree::count(&plan.topology);
        if trees > GroupAddress::TREES_MAX.into() && operations.iter().any(|operation| operation.multicast().is_some())
        {
            let most = GroupAddress::TREES_MAX;
            return Err(WireError::Unsupported(format!(
                "{trees} trees for each plane: write {most} spines at the most"
            )));
        }
        let (mut teams, mut of): (Vec<Team>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
        for operation in operations {
            let Operation::Multicast(multicast) = operation else {
                of.push(None);
                continue;
            };
            let mut hosts = multicast.ranks.hosts().to_vec();
            hosts.sort_unstable();
            let place = match teams.iter().position(|team| team.members.hosts() == hosts) {
                Some(place) => place,
                None => {
                    let number = copying.teams.get(multicast.group as usize).copied().unwrap_or(teams.len() as u16);
                    let secret = strandway_udp::random_secret()
                        .map_err(|error| WireError::Node { host: hosts.first().map_or(0, |host| host.0), error })?;
                    teams.push(Team { number, members: Ranks::new(hosts), secret, planes: AtomicU32::new(u32::MAX) });
                    teams.len() - 1
                }
            };
            of.push(Some(place));
        }
        Ok(Teams { teams, of, trees: trees as u16, rate_max: copying.rate_max, counted: Default::default() })
    }

    /// The operations as real nodes run them: on the planes that carry multicast, with the headers of datagrams, and
    /// with round trips that include the time to wake up. Switches do not pause, so roots are paced. `None` if none is a
    /// multicast.
    pub(super) fn operations(&self, operations: &[Operation], header: u32) -> Option<Vec<Operation>> {
        let adapt = |(operation, &team): (&Operation, &Option<usize>)| {
            let (Operation::Multicast(multicast), Some(team)) = (operation, team) else { return operation.clone() };
            let rtt = multicast.rtt + Options::RTT;
            Operation::Multicast(Box::new(Multicast {
                header: header as u16,
                groups: self.teams[team].planes.load(Ordering::Acquire),
                rate: Rate(multicast.rate.0.min(self.rate_max.0)),
                pace: Some(multicast.pace.unwrap_or(PACE)),
                rtt,
                // Buffers are open before the first control message is sent.
                opening: StartBarriers::OneBarrier,
                silent_max: Options { rtt, ..Options::new(multicast.rate) }.silent_max(),
                ..(**multicast).clone()
            }))
        };
        (!self.teams.is_empty()).then(|| operations.iter().zip(&self.of).map(adapt).collect())
    }

    /// Counters: chunks sent, chunks sent to single hosts, chunks that arrived, chunks that switches trimmed, and
    /// chunks that were rebuilt.
    pub(super) fn counted(&self) -> [u64; 5] {
        [0, 1, 2, 3, 4].map(|at: usize| self.counted[at].load(Ordering::Acquire))
    }
}

/// An operation in progress at a host.
struct Open {
    region: Region,
    since: Time,
    /// True if it has all chunks.
    complete: bool,
}

/// The multicasts of one host.
pub(super) struct Casting<'a> {
    shared: &'a Shared<'a>,
    host: HostId,
    /// By team: the group, if the host is a member.
    groups: Vec<Option<Group>>,
    /// By operation: the state of a multicast in progress.
    open: Vec<Option<Open>>,
    /// When the host gave up an operation, if it did.
    gave_up: Option<Time>,
}

/// The byte at a place of an operation's result. It is never zero, unlike unwritten memory.
fn pattern(task: u32, at: u64) -> u8 {
    // Multiplying by the golden ratio makes neighbouring bytes different.
    let mixed = (at + u64::from(task) * 8_191).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    1 + (mixed % 255) as u8
}

impl<'a> Casting<'a> {
    /// Joins the host's teams. The addresses of all hosts must be known.
    pub(super) fn join(shared: &'a Shared<'a>, host: HostId, node: &mut Node) -> Result<Casting<'a>, Error> {
        let teams = &shared.teams;
        let mut groups = Vec::new();
        for team in &teams.teams {
            let addresses = |host: &HostId| -> Vec<SocketAddrV6> {
                shared.addresses[host.0 as usize].get().cloned().unwrap_or_default()
            };
            let join = |rank: u32| {
                node.join(&Membership {
                    team: team.number,
                    secret: team.secret,
                    rank,
                    members: team.members.hosts().iter().map(addresses).collect(),
                    port: Some(Options::PORT),
                    trees: teams.trees,
                })
            };
            groups.push(team.members.at(host).map(join).transpose()?);
        }
        let open = teams.of.iter().map(|_| None).collect();
        Ok(Casting { shared, host, groups, open, gave_up: None })
    }

    /// Finds the planes on which the members of each team hear each other. Returns other completions that arrived
    /// meanwhile.
    pub(super) fn try_planes(&self, node: &mut Node) -> Result<Vec<Completion>, Error> {
        let planes = node.addresses()?.len();
        let (mut trials, mut others) = (Vec::new(), Vec::new());
        for (team, group) in self.shared.teams.teams.iter().zip(&self.groups) {
            let Some((group, rank)) = group.zip(team.members.at(self.host)) else { continue };
            let members = team.members.count() as usize;
            trials.push((team, group, Trial::new(rank, members, planes, self.shared.teams.trees)));
        }
        for _ in 0..if trials.is_empty() { 0 } else { Trial::ROUNDS } {
            for (_, group, trial) in &trials {
                trial.send(node, *group)?;
            }
            let next = Instant::now() + Trial::EVERY;
            while Instant::now() < next {
                let Some(completion) = node.wait(next.saturating_duration_since(Instant::now()))? else { continue };
                let heard = match completion {
                    Completion::Word { group, .. } => trials.iter_mut().find(|trial| trial.1 == group),
                    _ => None,
                };
                if !heard.is_some_and(|(_, _, trial)| trial.handle_completion(&completion)) {
                    others.push(completion);
                }
            }
        }
        for (team, _, trial) in &trials {
            team.planes.fetch_and(trial.planes(), Ordering::AcqRel);
        }
        Ok(others)
    }

    /// The wanted operation, its index, and its group at this host.
    fn operation(&self, wanted: impl Fn(&Multicast) -> bool) -> Option<(usize, &'a Multicast, Group)> {
        let mut all = self.shared.operations.iter().enumerate();
        let (place, op) = all.find_map(|(place, op)| Some((place, op.multicast().filter(|op| wanted(op))?)))?;
        Some((place, op, self.groups[self.shared.teams.of[place]?]?))
    }

    /// The rank of a host in the team of an operation.
    fn member(&self, place: usize, host: HostId) -> Option<u32> {
        self.shared.teams.teams[self.shared.teams.of[place]?].members.at(host)
    }

    /// Casts chunks.
    pub(super) fn cast(&self, node: &mut Node, cast: Cast) -> Result<(), Error> {
        let Some((place, _, group)) = self.operation(|op| op.task == cast.task) else { return Err(Error::NoGroup) };
        if self.open[place].is_none() {
            // A late question: all ranks have all chunks.
            return Ok(());
        }
        let to = match cast.to.as_group() {
            Some(_) => cast.to,
            None => HostId(self.member(place, cast.to).ok_or(Error::NoGroup)?),
        };
        node.cast(group, Cast { to, ..cast })
    }

    /// Rebuilds chunks from parity.
    pub(super) fn rebuild(&self, node: &mut Node, rebuild: &Rebuild) -> Result<(), Error> {
        match self.operation(|op| op.task == rebuild.task) {
            Some((_, _, group)) => node.rebuild(group, rebuild),
            None => Err(Error::NoGroup),
        }
    }

    /// Sends a control message of an operation on a channel. Returns false if the channel belongs to no operation.
    pub(super) fn send_control(
        &self,
        node: &mut Node,
        channel: u32,
        to: HostId,
        control: ControlMessage,
    ) -> Result<bool, Error> {
        // Each operation has two channels; the second one is for answers.
        let of = |op: &Multicast| channel.checked_sub(op.channel).is_some_and(|within| within < 2);
        let Some((place, op, group)) = self.operation(of) else { return Ok(false) };
        let to = self.member(place, to).ok_or(Error::NoGroup)?;
        node.send_control_to_member(group, to, control, channel == op.channel + 1)?;
        Ok(true)
    }

    /// The event for programs that corresponds to a completion of a group.
    pub(super) fn event(&self, completion: &Completion) -> Option<Event> {
        let host = |group: Group, member: u32| {
            let team = self.groups.iter().position(|ours| *ours == Some(group))?;
            self.shared.teams.teams[team].members.hosts().get(member as usize).copied()
        };
        match *completion {
            Completion::Chunk { group, from, task, chunk, plane, tree, trimmed, last } => {
                let tree = tree.map(|tree| tree % u32::from(self.shared.teams.trees));
                Some(Event::Chunk { from: host(group, from)?, task, chunk, plane, tree, trimmed, last })
            }
            Completion::Cast { group, to, task, end } => {
                let to = match to.as_group() {
                    Some(_) => HostId::group(self.operation(|op| op.task == task)?.1.group),
                    None => host(group, to.0)?,
                };
                Some(Event::Cast { to, task, end })
            }
            Completion::Word { group, from, to_all: false, control, .. } => {
                Some(Event::Control { from: host(group, from)?, control })
            }
            _ => None,
        }
    }

    /// The host's part of an operation has reached a stage: opens or closes its memory, and counts it.
    pub(super) fn note(
        &mut self,
        node: &mut Node,
        message: MessageId,
        stage: Stage,
        now: Time,
    ) -> Result<(), WireError> {
        let Some((place, op, group)) = self.operation(|op| op.messages().contains(&message.0)) else { return Ok(()) };
        let wrong = |error| WireError::Node { host: self.host.0, error };
        // A rank counts like a message: one unit until it has everything, and one until it may close. `settled` counts
        // the units that ended now.
        let mut settled = 0;
        let (mut since, mut over) = (now, false);
        match (stage, &mut self.open[place]) {
            (Stage::Begun, open) => {
                let region = begin(node, op, group, message.0 - op.first_message).map_err(wrong)?;
                *open = Some(Open { region, since: now, complete: false });
            }
            (Stage::Complete, Some(open)) => {
                if let Some(byte) = first_wrong(node, open.region, op).map_err(wrong)? {
                    return Err(WireError::WrongResult { host: self.host.0, collective: place as u32, byte });
                }
                open.complete = true;
                settled = 1;
            }
            (Stage::Closed, Some(open)) => (settled, since, over) = (1, open.since, true),
            (Stage::Aborted { .. }, open) => {
                settled = 2 - usize::from(open.as_ref().is_some_and(|open| open.complete));
                over = true;
                self.gave_up = Some(now);
            }
            (Stage::Complete | Stage::Closed | Stage::Chained, _) => {}
        }
        if over && let Some(open) = self.open[place].take() {
            node.close_task(group, op.task).map_err(wrong)?;
            node.deregister(open.region).map_err(wrong)?;
        }
        let mut tallies = self.shared.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies[place].note(message.0, stage, since, now);
        drop(tallies);
        self.shared.left.fetch_sub(settled, Ordering::AcqRel);
        Ok(())
    }

    /// True if the host has given up an operation, and has stayed long enough to tell other hosts.
    pub(super) fn gave_up(&self, now: Time) -> bool {
        let linger = Options::RTT * LINGER;
        self.gave_up.is_some_and(|at| now > at + linger)
    }

    /// Adds the counters of the host's groups to those of all hosts.
    pub(super) fn count(&self, node: &Node) -> Result<(), Error> {
        for group in self.groups.iter().flatten() {
            let counted = node.observe().group_counters(*group)?;
            let arrived = counted.placed + counted.duplicates;
            let counts = [counted.sent, counted.repairs, arrived, counted.trimmed, counted.rebuilt];
            for (all, count) in self.shared.teams.counted.iter().zip(counts) {
                all.fetch_add(count, Ordering::AcqRel);
            }
        }
        Ok(())
    }
}

/// Registers an operation's buffer, with this rank's share in it, and opens the operation.
fn begin(node: &mut Node, op: &Multicast, group: Group, rank: u32) -> Result<Region, Error> {
    let mut buffer = vec![0; op.layout.bytes() as usize];
    let mut present = Vec::new();
    if let Some(share) = op.share_of(rank) {
        let (first, length) = op.layout.share(share);
        (first..first + length).for_each(|at| buffer[at as usize] = pattern(op.task, at));
        present.push(op.layout.first(share)..op.layout.first(share) + op.layout.chunks(share));
    }
    let region = node.register(buffer);
    let range = 0..op.layout.bytes() as usize;
    let parity = op.parity.map(|parity| parity.code());
    node.open_task(
        group,
        &Incoming { task: op.task, layout: op.layout, region, range, present, parity, hashes: None },
    )?;
    Ok(region)
}

/// The first byte of an operation's result that differs from the byte that its root sent.
fn first_wrong(node: &Node, region: Region, op: &Multicast) -> Result<Option<u64>, Error> {
    let bytes = node.memory(region)?;
    Ok(bytes.iter().zip(0..).find(|&(&byte, at)| byte != pattern(op.task, at)).map(|(_, at)| at))
}
