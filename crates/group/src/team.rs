//! One rank's side of a team: how it forms, and the state of the other ranks.

use crate::agree::{Agreement, WORDS, Words};
use crate::ballot::Ballots;
use crate::error::GroupError;
use crate::trial::{PROBE, Trial};
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use strandway_collective::multicast::{CHAINS, MulticastMessage, PACE};
use strandway_proto::PathId;
use strandway_proto::repair::Code;
use strandway_proto::units::{Rate, Span, Time};
use strandway_udp::{Completion, Group, Membership, Node};

/// A plane counts as silent if it brought no chunk while others brought this many: ours, two full system calls.
const SILENCE: u32 = 128;
/// The interval at which planes are tested: ours.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// The most control messages of later operations that are kept: ours.
const EARLY_MAX: usize = 65_536;

/// How ranks form a team and run operations. [`Options::new`] gives defaults.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The team's number; switches copy only for teams that they know. Default 0, the team of all hosts.
    pub team: u16,
    /// The UDP port of group addresses. If it is taken at a rank, all ranks step to the next one, up to
    /// [`Options::PORTS`] times. Default [`Options::PORT`].
    pub port: u16,
    /// Trees of each plane. Default 1.
    pub trees: u16,
    /// The longest wait for ranks to come, and for a silent rank. Default 20 s.
    pub patience: Duration,
    /// Ranks that cast at the same time in an all-gather. Default [`CHAINS`].
    pub chains: u32,
    /// The share of the rate at which roots cast. Default [`PACE`].
    pub pace: f64,
    /// The rate at which the slowest rank receives, all planes together.
    pub rate: Rate,
    /// A round trip between two ranks, including the time that either side takes to wake up. Default 2 ms: a slice of
    /// the scheduler.
    pub rtt: Span,
    /// The parity that roots cast after the data; receivers rebuild lost chunks from it. Default none.
    pub parity: Option<Code>,
    /// Do not try multicast: use messages. If one rank says so, no rank opens the port of group addresses.
    pub no_multicast: bool,
}

/// Where a rank says, in the first round, that it does not want multicast.
const QUIET: usize = 56;

impl Options {
    /// The default of [`Options::port`]: from the dynamic range, ours.
    pub const PORT: u16 = 47_940;
    /// The number of consecutive ports that a team tries: ours.
    pub const PORTS: u16 = 16;
    /// The default of [`Options::rtt`].
    pub const RTT: Span = Span::from_ms(2);
    /// The default of [`Options::patience`].
    pub const PATIENCE: Duration = Duration::from_secs(20);

    /// Defaults for ranks that receive at this rate, all planes together.
    pub fn new(rate: Rate) -> Options {
        Options {
            team: 0,
            port: Options::PORT,
            trees: 1,
            patience: Options::PATIENCE,
            chains: CHAINS,
            pace: PACE,
            rate,
            rtt: Options::RTT,
            parity: None,
            no_multicast: false,
        }
    }

    /// The port of group addresses after one that is taken, within [`Options::PORTS`].
    ///
    /// # Errors
    /// If there is none: the text names the ports that are taken.
    pub fn next_port(&self, taken: Option<u16>) -> Result<u16, GroupError> {
        let next = taken.and_then(|port| port.checked_add(1)).filter(|next| next - self.port < Options::PORTS);
        next.ok_or_else(|| {
            let last = self.port.saturating_add(Options::PORTS - 1);
            GroupError::Config(format!(
                "UDP ports {} to {last} are taken on some rank's host: give another port for group addresses",
                self.port
            ))
        })
    }

    /// The number of consecutive questions that a rank may leave unanswered: it is asked every four round trips, for
    /// the time of the patience.
    pub fn silent_max(&self) -> u32 {
        let patience = Span(u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000));
        (patience.0 / (self.rtt.0 * 4).max(1)).clamp(8, 1 << 20) as u32
    }
}

/// One rank's side of a team.
pub struct Team {
    pub(crate) node: Node,
    pub(crate) group: Group,
    pub(crate) rank: u32,
    pub(crate) members: Vec<Vec<SocketAddrV6>>,
    pub(crate) options: Options,
    /// Planes that carry multicast between all ranks, one bit each.
    pub(crate) planes: u32,
    /// Planes that were silent in an operation, one bit each: they are not used until they are heard again.
    pub(crate) deaf: u32,
    /// By plane: chunks that other planes have brought since its own last chunk.
    pub(crate) silence: Vec<u32>,
    /// By silent plane: the trees on which something was heard since it became silent.
    pub(crate) revived: Vec<u64>,
    /// When the planes were last tested.
    pub(crate) tried: Instant,
    /// The number of the next operation.
    pub(crate) task: u32,
    pub(crate) began: Instant,
    /// Control messages of operations that have not begun here: sender, operation, contents.
    pub(crate) early: VecDeque<(u32, u32, MulticastMessage)>,
    /// The number of barriers that this rank has called; at rank 0, the number that each rank has called; the number
    /// that all have called, as far as this rank knows.
    pub(crate) barriers: u32,
    pub(crate) here: Vec<u32>,
    pub(crate) all: u32,
    /// At rank 0, the ranks that leave; at another rank, whether rank 0 knows that it leaves.
    pub(crate) left: Vec<bool>,
    /// The votes and verdicts about operations by a switch.
    pub(crate) ballots: Ballots,
    /// Completions that did not belong to the operation under way.
    pub(crate) others: VecDeque<Completion>,
    /// Does the root of a broadcast repair only chunks that no receiver has?
    pub(crate) spare_root: bool,
    /// The number of sums by a switch that this host's port carries at the same time: all-gathers leave them room.
    pub(crate) beside: Arc<AtomicUsize>,
    /// A rank that died in an operation: no more operations are possible.
    pub(crate) dead: Option<u32>,
}

fn number(words: &Words, at: usize) -> u64 {
    words.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Team {
    /// Forms a team of the ranks whose nodes have these addresses, plane by plane: waits for all of them, agrees on a
    /// secret through rank 0, and tests on which planes multicast arrives. `stop` is asked repeatedly.
    ///
    /// # Errors
    /// If ranks do not come in time or have other settings, or the node cannot take part.
    pub fn form(
        mut node: Node,
        rank: u32,
        members: Vec<Vec<SocketAddrV6>>,
        options: Options,
        stop: &impl Fn() -> bool,
    ) -> Result<Team, GroupError> {
        let ranks = members.len() as u32;
        if rank >= ranks {
            return Err(GroupError::Config(format!("rank {rank} of {ranks}: count ranks from 0")));
        }
        let mut agreement = Agreement::begin(&mut node, rank, ranks, &members[0], options.patience)?;
        let mut words = [0; WORDS];
        words[..4].copy_from_slice(&rank.to_be_bytes());
        let settings = [
            ("a number of ranks of", u64::from(ranks)),
            ("the team number", options.team.into()),
            ("the group port", options.port.into()),
            ("a number of trees of", options.trees.into()),
            ("a payload in bytes of", u64::from(node.payload())),
            ("parity (65,536 k + m)", options.parity.map_or(0, |code| (code.data() << 16 | code.parity()) as u64)),
        ];
        for (i, (_, value)) in settings.iter().enumerate() {
            words[8 + 8 * i..16 + 8 * i].copy_from_slice(&value.to_be_bytes());
        }
        words[QUIET..QUIET + 8].copy_from_slice(&u64::from(options.no_multicast).to_be_bytes());
        let compare = |all: &[Words]| {
            for (rank, words) in (0..).zip(all) {
                for (i, &(what, ours)) in settings.iter().enumerate() {
                    let theirs = number(words, 8 + 8 * i);
                    if theirs != ours {
                        return Err(GroupError::Differs { rank, what, theirs, ours });
                    }
                }
            }
            let mut welcome = [0; WORDS];
            welcome[..32].copy_from_slice(&strandway_udp::random_secret()?);
            welcome[QUIET] = u8::from(all.iter().any(|words| number(words, QUIET) != 0));
            Ok(welcome)
        };
        let welcome = agreement.round(&mut node, &words, compare, stop)?;
        let options = Options { no_multicast: welcome[QUIET] != 0, ..options };
        let mut membership = Membership {
            team: options.team,
            secret: *welcome.first_chunk().expect("64 bytes"),
            rank,
            members,
            port: (!options.no_multicast).then_some(options.port),
            trees: options.trees,
        };
        // All ranks must listen, on the same port, before any of them tests.
        let mut listens = |node: &mut Node, here: bool| -> Result<bool, GroupError> {
            words[..8].copy_from_slice(&u64::from(here).to_be_bytes());
            let everywhere = |all: &[Words]| {
                let mut answer = [0; WORDS];
                answer[0] = u8::from(all.iter().all(|words| number(words, 0) == 1));
                Ok(answer)
            };
            Ok(agreement.round(node, &words, everywhere, stop)?[0] == 1)
        };
        let joined = loop {
            node = match Team::join(node, &membership, options) {
                Ok(mut team) => match listens(&mut team.node, true)? {
                    true => break Ok(team),
                    // Nothing was sealed yet, so the secret is still a fresh one.
                    false => team.leave().0,
                },
                Err((mut node, GroupError::Node(error))) if error.is_port_taken() => {
                    listens(&mut node, false)?;
                    *node
                }
                Err((_, error)) => return Err(error),
            };
            match options.next_port(membership.port) {
                Ok(port) => membership.port = Some(port),
                Err(error) => break Err((node, error)),
            }
        };
        let mut team = match joined {
            Ok(team) => team,
            Err((mut node, error)) => {
                // All ranks find out the same way, so none leaves before the others have heard.
                agreement.end(&mut node)?;
                return Err(error);
            }
        };
        let heard = team.probe(|node, completion| agreement.handle_completion(node, completion))?;
        words[..8].copy_from_slice(&u64::from(heard).to_be_bytes());
        let common = |all: &[Words]| {
            let common = all.iter().map(|words| number(words, 0)).fold(u64::MAX, |common, heard| common & heard);
            let mut words = [0; WORDS];
            words[..8].copy_from_slice(&common.to_be_bytes());
            Ok(words)
        };
        let common = agreement.round(&mut team.node, &words, common, stop)?;
        team.planes = number(&common, 0) as u32;
        agreement.end(&mut team.node)?;
        Ok(team)
    }

    /// Joins a team whose members know each other already. Its planes have not been tested.
    ///
    /// # Errors
    /// If the membership does not fit the node, which is returned.
    pub(crate) fn join(
        mut node: Node,
        membership: &Membership,
        options: Options,
    ) -> Result<Team, (Box<Node>, GroupError)> {
        let group = match node.join(membership) {
            Ok(group) => group,
            Err(error) => return Err((Box::new(node), error.into())),
        };
        Ok(Team {
            node,
            group,
            rank: membership.rank,
            members: membership.members.clone(),
            options,
            planes: 0,
            deaf: 0,
            silence: vec![0; membership.members[0].len()],
            revived: vec![0; membership.members[0].len()],
            tried: Instant::now(),
            task: 1,
            began: Instant::now(),
            early: VecDeque::new(),
            barriers: 0,
            here: vec![0; membership.members.len()],
            all: 0,
            left: vec![false; membership.members.len()],
            ballots: Ballots::new(membership.members.len()),
            others: VecDeque::new(),
            spare_root: false,
            beside: Arc::default(),
            dead: None,
        })
    }

    /// Leaves the team; returns the completions that it has set aside.
    pub(crate) fn leave(mut self) -> (Node, VecDeque<Completion>) {
        // The node is a member, so this does not fail.
        let _ = self.node.leave(self.group);
        (self.node, self.others)
    }

    /// Tests the planes between two operations, at all ranks at the same time. Returns the planes on which every other
    /// rank was heard on every tree, one bit each. Other completions are set aside.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn try_planes(&mut self) -> Result<u32, GroupError> {
        let mut later = Vec::new();
        let heard = self.probe(|_, completion| {
            later.push(completion);
            Ok(())
        })?;
        self.others.extend(later);
        Ok(heard)
    }

    /// Sends control messages along each tree of each plane, and listens. Returns the planes on which every other rank
    /// was heard on every tree. Other completions go to `other`.
    pub(crate) fn probe(
        &mut self,
        mut other: impl FnMut(&mut Node, Completion) -> Result<(), GroupError>,
    ) -> Result<u32, GroupError> {
        if self.options.no_multicast {
            return Ok(0);
        }
        let mut trial = Trial::new(self.rank, self.members.len(), self.members[0].len(), self.options.trees);
        for _ in 0..Trial::ROUNDS {
            trial.send(&mut self.node, self.group)?;
            let next = Instant::now() + Trial::EVERY;
            while Instant::now() < next {
                let left = next.saturating_duration_since(Instant::now());
                if let Some(completion) = self.node.wait(left)?
                    && !trial.handle_completion(&completion)
                {
                    // Ranks that are ahead have ended this round already.
                    other(&mut self.node, completion)?;
                }
            }
        }
        Ok(trial.planes())
    }

    /// A chunk came by a plane.
    pub(crate) fn count_chunk(&mut self, plane: u8) {
        self.silence.iter_mut().for_each(|chunks| *chunks += 1);
        if let Some(chunks) = self.silence.get_mut(usize::from(plane)) {
            *chunks = 0;
        }
    }

    /// An operation has ended. Planes that were silent while others brought many chunks are not used any more, but
    /// tested, until they are heard on every tree.
    pub(crate) fn choose_planes(&mut self) -> Result<(), GroupError> {
        for (plane, chunks) in self.silence.iter_mut().enumerate() {
            let used = self.planes & !self.deaf;
            if used >> plane & 1 == 1 && used.count_ones() > 1 && *chunks >= SILENCE {
                self.deaf |= 1 << plane;
                *chunks = 0;
            }
        }
        self.try_silent()
    }

    /// Sends a control message along each tree of each plane, at intervals, since other ranks may wait to hear it.
    pub(crate) fn try_silent(&mut self) -> Result<(), GroupError> {
        if self.tried.elapsed() < TRY_EVERY {
            return Ok(());
        }
        self.tried = Instant::now();
        for plane in (0..self.members[0].len()).filter(|&plane| self.planes >> plane & 1 == 1) {
            for tree in 0..self.options.trees {
                self.node.send_control_to_all(self.group, PathId::new(plane as u8, tree.into()), PROBE)?;
            }
        }
        Ok(())
    }

    /// A control message to all came by a plane and a tree.
    pub(crate) fn handle_trial(&mut self, path: PathId) {
        let plane = usize::from(path.port());
        if self.deaf >> plane & 1 == 0 {
            return;
        }
        let trees = u32::from(self.options.trees).min(64);
        self.revived[plane] |= 1 << (path.entropy() % trees);
        if self.revived[plane].count_ones() == trees {
            self.revived[plane] = 0;
            self.deaf &= !(1 << plane);
        }
    }

    /// Our rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.members.len() as u32
    }

    /// The planes on which multicast arrives from every rank at every rank, one bit each. If there is none, chunks go
    /// from rank to rank by unicast in a chain.
    pub const fn multicast_planes(&self) -> u32 {
        self.planes
    }

    /// Uses these planes for multicast from now on, one bit each. Members that have joined by a
    /// [`NodeRole`](crate::NodeRole) use none before: they test them by [`Team::try_planes`], and must all use the
    /// same.
    pub const fn set_multicast_planes(&mut self, planes: u32) {
        self.planes = planes;
    }

    /// From now on a rank that is silent for this time counts as dead.
    pub const fn set_patience(&mut self, patience: Duration) {
        self.options.patience = patience;
    }

    /// The node of this rank.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// The node of this rank, to register memory. The team takes its completions.
    pub const fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    /// The time since the team formed.
    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 1_000).saturating_mul(1_000))
    }

    /// Keeps a control message for an operation that has not begun here.
    pub(crate) fn keep(&mut self, from: u32, task: u32, word: MulticastMessage) {
        if self.early.len() < EARLY_MAX {
            self.early.push_back((from, task, word));
        }
    }
}
