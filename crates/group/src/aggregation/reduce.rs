//! `all_reduce` of real buffers: by a switch, or by a ring if there is none. All ranks agree which of the two it is.

use super::cut::{Numbers, Sums};
use super::elements::Scale;
use super::message::{Join, WORKERS_MAX};
use super::options::{By, NetworkOptions, Reduced, Why};
use super::switch_connection::{Apart, SwitchAccess};
use super::terms;
use super::worker::{Operation, Session};
use crate::ballot::{AGAIN, BEGUN, BEGUN_AGAIN, DIFFERS, DONE, FAILED};
use crate::error::GroupError;
use crate::messages::Prepared;
use crate::team::Team;
use half::bf16;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandway_collective::{Algorithm, Schedule};
use strandway_proto::aggregate::Counts;
use strandway_udp::PlaneCounters;
use strandway_udp::fragments::LANES_MAX;

/// The number of operations that go by the ring before a lost switch is tried again. The number doubles each time that
/// the switch is still away, so that the attempts cost less and less. Ours.
const AWAY: u32 = 16;
const AWAY_MAX: u32 = 4_096;
/// An attempt to reach a lost switch again lasts at most the patience of the first one divided by this: ours.
const TRY: u32 = 4;
/// The longest sleep in an operation, which is the longest delay of other ranks' control messages. Ours.
const NAP: Duration = Duration::from_millis(1);

/// A team's use of a switch, at one rank.
pub struct InNetwork {
    options: NetworkOptions,
    scale: Scale,
    token: [u8; 16],
    /// This rank has no switch.
    nowhere: bool,
    epoch: u32,
    operation: u32,
    session: Option<Session>,
    /// The first operation that tries the switch again.
    retry: u32,
    /// The number of operations that the next absence of the switch will take.
    away: u32,
    /// Does each rank get only the sums of its own share, in the session?
    scatter: bool,
    memory: Vec<i32>,
    sums: Vec<f32>,
    ring: Option<(u64, Prepared)>,
    /// The counters of sessions that have ended.
    past: (PlaneCounters, Counts),
}

impl InNetwork {
    /// The system that the switch runs; `None` if there is no switch.
    pub fn system(&self) -> Option<&'static str> {
        self.session.as_ref().map(|session| session.system().name())
    }

    /// The counters of this rank's datagrams, in all sessions.
    pub fn counters(&self) -> PlaneCounters {
        let mut all = self.past.0;
        if let Some(session) = &self.session {
            all += session.counters();
        }
        all
    }

    /// The counters of this rank's worker, in all sessions.
    pub fn counts(&mut self) -> Counts {
        let mut all = self.past.1;
        if let Some(session) = &mut self.session {
            all += session.counts();
        }
        all
    }

    /// Does each block have factors of its own? Then sums of small multiples of 1/64 are not exact, but very near.
    pub const fn has_exponents(&self) -> bool {
        self.options.exponents
    }

    /// Sets the priority of fragments from now on.
    pub const fn set_priority(&mut self, priority: u8) {
        self.options.priority = priority;
    }

    fn end_session(&mut self) {
        if let Some(mut session) = self.session.take() {
            self.past.0 += session.counters();
            self.past.1 += session.counts();
        }
    }
}

impl Team {
    /// Makes all ranks of the team workers of a job at a switch. All ranks must call it.
    ///
    /// # Errors
    /// If options are invalid, or the switch does not accept all ranks; the message has the rank and the reason.
    pub fn join_switch(&mut self, options: NetworkOptions, stop: &impl Fn() -> bool) -> Result<InNetwork, GroupError> {
        match self.try_switch(Some(options), stop)? {
            (network, None) => Ok(network),
            (_, Some(why)) => Err(GroupError::Switch(why)),
        }
    }

    /// Makes all ranks of the team workers of a job at a switch. If it does not accept all ranks, returns the reason,
    /// and later operations try again. All ranks must call it.
    ///
    /// # Errors
    /// If options are invalid, or a rank does not answer any more.
    pub(crate) fn try_switch(
        &mut self,
        options: Option<NetworkOptions>,
        stop: &impl Fn() -> bool,
    ) -> Result<(InNetwork, Option<String>), GroupError> {
        let nowhere = options.is_none();
        let usual = || NetworkOptions::new(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0), Vec::new());
        let options = options.unwrap_or_else(usual);
        if !(1..=LANES_MAX).contains(&options.elements) {
            return Err(GroupError::Config(format!(
                "{} elements in a fragment (lanes): take 1 to {LANES_MAX}",
                options.elements
            )));
        }
        if self.ranks() as usize > WORKERS_MAX {
            return Err(GroupError::Config(format!("{} ranks: switches add up to {WORKERS_MAX}", self.ranks())));
        }
        let random = strandway_udp::random_secret()?;
        let words = [0, 4].map(|at| u32::from_be_bytes([random[at], random[at + 1], random[at + 2], random[at + 3]]));
        // A token that all ranks know, and no other team had before.
        let [code, high, low] = self.ballot(0, [DONE, 0, 0], words, None, stop)?;
        if code != DONE {
            return Err(GroupError::Switch("ranks do not agree to use a switch: start all alike".into()));
        }
        let mut token = [0; 16];
        token[..4].copy_from_slice(&high.to_be_bytes());
        token[4..8].copy_from_slice(&low.to_be_bytes());
        let mut network = InNetwork {
            scale: Scale::new(self.ranks(), options.max_abs),
            token,
            nowhere,
            epoch: 0,
            operation: 1,
            session: None,
            retry: 0,
            away: AWAY,
            scatter: options.scatter,
            memory: Vec::new(),
            sums: Vec::new(),
            ring: None,
            past: (PlaneCounters::default(), Counts::default()),
            options,
        };
        let patience = network.options.patience;
        let joined = self.open_session(&mut network, patience, stop)?;
        let vote = if joined.is_ok() { [DONE, 0, 0] } else { [FAILED, Why::NoSwitch.number(), 0] };
        let [code, rank, _] = self.ballot(1, vote, [0; 2], None, stop)?;
        if code == DONE {
            return Ok((network, None));
        }
        network.end_session();
        network.retry = network.operation + AWAY;
        let other = || format!("the switch did not accept rank {rank}: that rank's message has the reason");
        Ok((network, Some(joined.err().unwrap_or_else(other))))
    }

    /// Joins the next session; the inner error says why there is no switch.
    fn open_session(
        &mut self,
        network: &mut InNetwork,
        patience: Duration,
        stop: &impl Fn() -> bool,
    ) -> Result<Result<(), String>, GroupError> {
        network.epoch += 1;
        if network.nowhere {
            return Ok(Err("this rank has no switch: name it in STRANDWAY_SWITCH".into()));
        }
        let NetworkOptions { admission, key, elements, window, silence, socket_buffer, loss, .. } = &network.options;
        let rate = self.options.rate;
        let window = if *window == 0 { terms::usual_window(rate, *elements) } else { *window };
        let ours = *self.members[self.rank as usize][0].ip();
        let (silence, socket_buffer, loss) = (*silence, *socket_buffer, *loss);
        let way = SwitchAccess { ours, admission: *admission, key, patience, silence, socket_buffer, loss, rate };
        let join = Join {
            worker: self.rank as u16,
            workers: self.ranks() as u16,
            elements: *elements,
            window,
            epoch: network.epoch,
            token: network.token,
            exponents: network.options.exponents,
            scatter: network.scatter,
        };
        match self.while_moving(stop, |stop| Session::join(&way, join, stop))? {
            Ok(session) => {
                network.session = Some(session);
                Ok(Ok(()))
            }
            Err(Apart::Failed(GroupError::Stopped)) => Err(GroupError::Stopped),
            Err(Apart::Failed(GroupError::Config(said))) => Err(GroupError::Config(said)),
            Err(apart) => Ok(Err(apart.to_string())),
        }
    }

    /// Runs `work` on a thread of its own. Meanwhile moves the team's packets, because other ranks may need them to
    /// make progress. The argument of `work` returns true when it must stop.
    fn while_moving<T: Send>(
        &mut self,
        stop: &impl Fn() -> bool,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send,
    ) -> Result<T, GroupError> {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| work(&|| ends.load(Ordering::Relaxed)));
            let mut moved = Ok(());
            while !thread.is_finished() {
                if stop() || moved.is_err() {
                    ends.store(true, Ordering::Relaxed);
                    std::thread::sleep(NAP);
                    continue;
                }
                moved = self.node_mut().wait(NAP).map_err(GroupError::from).and_then(|completion| {
                    completion.map_or(Ok(()), |completion| self.set_aside(completion))?;
                    self.take_controls()
                });
            }
            let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            moved.map(|()| done)
        })
    }

    /// Replaces the numbers of `buffer` by their sums over all ranks. All ranks must call it, with buffers of the same
    /// length. The switch adds. If it is gone, even in the middle of the operation, all ranks begin again by a ring,
    /// and [`Reduced::by`] reports it. After the last operation, call [`Team::end`], because other ranks may not yet
    /// know that it has succeeded.
    ///
    /// # Errors
    /// If a rank does not answer any more, or ranks call with buffers of different lengths. Then the buffer is
    /// unchanged.
    pub fn all_reduce(
        &mut self,
        network: &mut InNetwork,
        buffer: &mut [f32],
        stop: &impl Fn() -> bool,
    ) -> Result<Reduced, GroupError> {
        let began = Instant::now();
        match self.reduce_by_switch(network, Numbers::Floats(buffer), false, stop)? {
            Ok(BySwitch { sums, floats, .. }) => {
                buffer.copy_from_slice(&sums);
                network.sums = sums;
                Ok(Reduced { by: By::Switch, time: began.elapsed(), floats })
            }
            Err((rank, why)) => {
                self.ring(network, buffer, stop)?;
                Ok(Reduced { by: By::Ring { rank, why }, time: began.elapsed(), floats: 0 })
            }
        }
    }

    /// Adds up the numbers of all ranks by the switch; the inner error says which rank could not use it, and why. All
    /// ranks must call it, with as many numbers. With `scatter`, numbers are equal shares, one for each rank, and a
    /// rank needs only the sums of its own share.
    ///
    /// # Errors
    /// If a rank does not answer any more, or ranks call with different numbers.
    pub(crate) fn reduce_by_switch(
        &mut self,
        network: &mut InNetwork,
        input: Numbers<'_>,
        scatter: bool,
        stop: &impl Fn() -> bool,
    ) -> Result<Result<BySwitch, (u32, Why)>, GroupError> {
        if let Some(rank) = self.dead {
            return Err(GroupError::Dead { rank });
        }
        network.operation += 1;
        let number = network.operation;
        if std::mem::replace(&mut network.scatter, scatter) != scatter && network.session.is_some() {
            // The switch begins another session.
            network.end_session();
            network.retry = number;
        }
        if network.session.is_none() && number >= network.retry {
            // If there is no session, the verdict has the reason.
            let patience = network.options.patience / TRY;
            let _ = self.open_session(network, patience, stop)?;
        }
        let (memory, mut sums) = (std::mem::take(&mut network.memory), std::mem::take(&mut network.sums));
        let (scale, priority) = (network.scale, network.options.priority);
        let scattered = network.session.as_ref().is_some_and(Session::scatters);
        let shares = if scattered { self.ranks() as usize } else { 1 };
        let kind = u32::from(scatter) | u32::from(matches!(input, Numbers::Integers(_))) << 1;
        let details = (input.len() as u32, kind);
        let mut task = match &mut network.session {
            Some(session) => match session.begin(input, scale, priority, memory) {
                Some(operation) => {
                    sums.resize(input.len() / shares, 0.0);
                    Ok(Task { session, operation, scale, sums, integers: kind > 1 })
                }
                None => Err(Why::Overflow),
            },
            None => Err(Why::NoSwitch),
        };
        let vote = match &task {
            Ok(_) => [DONE, details.0, details.1],
            Err(why) => [FAILED, why.number(), 0],
        };
        let outcome = self.ballot(number, vote, [0; 2], task.as_mut().ok(), stop);
        let done = task.ok().map(|task| (task.operation.floats(), task.operation.into_memory(), task.sums));
        let verdict = outcome.inspect_err(|_| network.end_session())?;
        match (verdict, done) {
            ([DONE, ..], Some((floats, memory, sums))) => {
                if let Some(session) = &mut network.session {
                    session.end();
                }
                (network.memory, network.away) = (memory, AWAY);
                Ok(Ok(BySwitch { sums, floats, scattered }))
            }
            ([DIFFERS, rank, _], _) => {
                network.end_session();
                Err(GroupError::Config(format!(
                    "ranks 0 and {rank} call with buffers of different lengths: all must have the same one"
                )))
            }
            ([_, rank, why], _) => {
                network.end_session();
                let why = Why::ALL.get(why as usize).copied().unwrap_or(Why::Gone);
                // A switch that lives is tried again at the next operation.
                if why == Why::Overflow {
                    network.retry = number + 1;
                } else if number >= network.retry {
                    network.retry = number.saturating_add(network.away);
                    network.away = (network.away * 2).min(AWAY_MAX);
                }
                Ok(Err((rank, why)))
            }
        }
    }

    /// Works on a task, if there is one, votes on its result, and waits for the verdict. Without a task it votes at
    /// once.
    fn ballot(
        &mut self,
        number: u32,
        mut vote: [u32; 3],
        words: [u32; 2],
        mut task: Option<&mut Task<'_, '_>>,
        stop: &impl Fn() -> bool,
    ) -> Result<[u32; 3], GroupError> {
        let patience = self.options.patience;
        // The time of the decision on the vote, and that of the last vote.
        let mut decided = if task.is_none() { Some(Instant::now()) } else { None };
        let mut said: Option<Instant> = None;
        let mut begun: Option<Instant> = None;
        let mut progress = (u64::MAX, Instant::now());
        let mut looked = Instant::now();
        loop {
            if let Some(task) = task.as_deref_mut() {
                let nap = if decided.is_some() { Duration::ZERO } else { NAP };
                task.session.turn(&mut task.operation, nap);
                if decided.is_none()
                    && let Some(failed) = task.check_progress(&mut progress, patience)
                {
                    decided = Some(Instant::now());
                    if let Some(why) = failed {
                        vote = [FAILED, why.number(), 0];
                    }
                }
            }
            match decided {
                // A rank that only waits sleeps on the node's sockets, where the verdict arrives.
                Some(_) if said.is_some() => {
                    if let Some(completion) = self.node_mut().wait(NAP)? {
                        self.set_aside(completion)?;
                    }
                }
                None if looked.elapsed() < NAP => continue,
                _ => {}
            }
            looked = Instant::now();
            self.take_controls()?;
            match decided {
                Some(_) if said.is_none_or(|at| at.elapsed() >= AGAIN) => {
                    self.vote(number, vote)?;
                    said = Some(Instant::now());
                }
                None if begun.is_none_or(|at| at.elapsed() >= BEGUN_AGAIN) => {
                    self.vote(number, [BEGUN, vote[1], vote[2]])?;
                    begun = Some(Instant::now());
                }
                _ => {}
            }
            if let Some(verdict) = self.verdict(number, words)? {
                return Ok(verdict);
            }
            if stop() {
                return Err(GroupError::Stopped);
            }
            if let Some(at) = decided.filter(|at| at.elapsed() > patience) {
                // A rank that still works may have begun to wait later than this one.
                let (rank, heard) = self.silent_voter(number);
                if heard.unwrap_or(at).max(at).elapsed() > patience {
                    self.dead = Some(rank);
                    return Err(GroupError::Dead { rank });
                }
            }
        }
    }

    /// Adds up by a ring of messages; its memory and connections are kept for the next time.
    fn ring(
        &mut self,
        network: &mut InNetwork,
        buffer: &mut [f32],
        stop: &impl Fn() -> bool,
    ) -> Result<(), GroupError> {
        if buffer.is_empty() || self.ranks() == 1 {
            return Ok(());
        }
        // Every message begins and ends at a multiple of four bytes.
        let bytes = (4 * buffer.len() as u64).next_multiple_of(4 * u64::from(self.ranks()));
        let mut prepared = match network.ring.take() {
            Some((of, prepared)) if of == bytes => prepared,
            other => {
                if let Some((_, old)) = other {
                    self.retire(old)?;
                }
                let schedule = Schedule::new(Algorithm::RingAllReduce, self.ranks(), bytes, 1);
                self.prepare(schedule.map_err(|error| GroupError::Config(error.to_string()))?, stop)?
            }
        };
        let raw: Vec<u8> = buffer.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.load(&prepared, &raw)?;
        self.run(&mut prepared, stop)?;
        // A rank that is done may close its connections, because its work is over or the next buffer has another
        // length. Others may still wait for the acknowledgements of their last messages then.
        self.barrier(stop)?;
        for (to, from) in buffer.iter_mut().zip(self.result(&prepared)?.chunks_exact(4)) {
            *to = f32::from_le_bytes([from[0], from[1], from[2], from[3]]);
        }
        network.ring = Some((bytes, prepared));
        Ok(())
    }

    /// Adds up 16-bit numbers (bfloat16) as [`Team::all_reduce`] does 32-bit ones. Sums are rounded once, to the
    /// nearest number, ties to even.
    ///
    /// # Errors
    /// As [`Team::all_reduce`].
    pub fn all_reduce_bf16(
        &mut self,
        network: &mut InNetwork,
        buffer: &mut [u16],
        stop: &impl Fn() -> bool,
    ) -> Result<Reduced, GroupError> {
        let mut wide: Vec<f32> = buffer.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect();
        let reduced = self.all_reduce(network, &mut wide, stop)?;
        buffer.iter_mut().zip(&wide).for_each(|(to, &sum)| *to = bf16::from_f32(sum).to_bits());
        Ok(reduced)
    }
}

impl InNetwork {
    /// Takes the memory of sums back, for the next operation.
    pub(crate) fn keep(&mut self, made: BySwitch) {
        self.sums = made.sums;
    }
}

/// Sums that a switch has made.
pub(crate) struct BySwitch {
    /// The sums; those of integers in the bits of the floats.
    pub(crate) sums: Vec<f32>,
    /// Fragments that were added as floats.
    pub(crate) floats: u64,
    /// Are they only the sums of this rank's share?
    pub(crate) scattered: bool,
}

/// An operation under way at the switch.
struct Task<'a, 'b> {
    session: &'a mut Session,
    operation: Operation<'b>,
    scale: Scale,
    sums: Vec<f32>,
    /// The numbers are integers.
    integers: bool,
}

impl Task<'_, '_> {
    /// Has the task ended here, and with which failure? `progress`: the number of missing results, and the time since
    /// when it is unchanged.
    fn check_progress(&mut self, progress: &mut (u64, Instant), patience: Duration) -> Option<Option<Why>> {
        if self.operation.is_done() {
            let sums = match self.integers {
                true => Sums::Integers(bytemuck::cast_slice_mut(&mut self.sums)),
                false => Sums::Floats(&mut self.sums),
            };
            let sound = self.operation.restore(self.scale, sums);
            return Some(if sound { None } else { Some(Why::Unsound) });
        }
        if self.session.is_lost() {
            return Some(Some(Why::Gone));
        }
        if self.operation.left() < progress.0 {
            *progress = (self.operation.left(), Instant::now());
        }
        (progress.1.elapsed() > patience).then_some(Some(Why::Stalled))
    }
}
