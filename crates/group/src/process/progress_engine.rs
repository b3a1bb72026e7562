//! The progress engine of a process: its engine, the commands that wait for it, and the thread that drives it.
//!
//! A process has a thread that drives the engine, so that packets move while no caller is there. A caller that waits
//! for its work drives the engine itself: its work begins and ends on its own thread, without a wake-up of the
//! process's thread. When the caller leaves, the process's thread stays away for [`LEASE`], since the next call is
//! likely to come soon.

use super::commands::{Command, Commands};
use super::delegate::Ended;
use super::engine::Engine;
use super::failure::Failure;
use super::work::{Progress, Work};
use crate::error::GroupError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use strandway_udp::{Error, Waker};

/// After a caller has left, the process's thread leaves the engine alone for this time: ours. It is long enough for a
/// program that calls again at once. Peers do not notice it, because they wait longer before they send something again.
const LEASE: Duration = Duration::from_micros(200);
/// As [`LEASE`], if all peers are reached through shared memory, where nothing is sent again: ours. Where ranks share
/// cores, a program often calls again after milliseconds only, and a thread that comes in between costs four switches.
const LEASE_LOCAL: Duration = Duration::from_millis(5);
/// While a caller drives the engine for longer than this many leases, the process's thread sleeps until the caller
/// wakes it. During a shorter time that thread looks once a lease whether the caller has left. Ours.
const LONG: u32 = 10;
/// How long a thread looks for something to do before it sleeps, if peers share memory with it: ours. A caller has
/// nothing else to do, and gives its core away between looks; the process's thread runs beside a program that computes.
const PATIENCE_CALLER: Duration = Duration::from_millis(1);
const PATIENCE_THREAD: Duration = Duration::from_micros(50);
/// The longest turn of a thread that drives the engine.
const LONGEST: Duration = Duration::from_secs(60);

/// The engine of a process, and the commands for it. Any thread may drive it, one at a time.
pub(super) struct ProgressEngine {
    commands: Commands,
    /// `None` once it has ended.
    engine: Mutex<Option<Engine>>,
    waker: Waker,
    /// A caller drives the engine, or wants to.
    called: AtomicBool,
    /// Until when the process's thread stays away.
    lease: Mutex<Option<Instant>>,
    /// Does the process's thread sleep until it is told? Written and read with the lock of `lease` held: the length of
    /// a lease may change meanwhile, so the time that a caller has taken does not tell.
    waits: AtomicBool,
    /// Tells the process's thread to come back.
    back: Condvar,
    /// How often a caller has begun to drive the engine.
    turns: AtomicUsize,
    /// Are all peers reached through shared memory?
    local: AtomicBool,
}

impl ProgressEngine {
    pub(super) fn new(engine: Engine, waker: Waker) -> ProgressEngine {
        ProgressEngine {
            commands: Commands::default(),
            engine: Mutex::new(Some(engine)),
            waker,
            called: AtomicBool::new(false),
            lease: Mutex::new(None),
            waits: AtomicBool::new(false),
            back: Condvar::new(),
            turns: AtomicUsize::new(0),
            local: AtomicBool::new(false),
        }
    }

    /// How long the process's thread stays away after a caller has left.
    fn lease(&self) -> Duration {
        if self.local.load(Ordering::Relaxed) { LEASE_LOCAL } else { LEASE }
    }

    /// Is there an engine?
    pub(super) fn is_alive(&self) -> bool {
        self.commands.lock().ended.is_none()
    }

    /// Leaves a command. If no thread drives the engine, the command is carried out now, on this thread.
    pub(super) fn submit(&self, command: Command) {
        if let Err((command, why)) = self.commands.leave(command) {
            return refuse(command, &why);
        }
        match self.engine.try_lock() {
            Ok(mut engine) => {
                self.guarded(&mut engine, |engine| engine.handle_commands(&self.commands).map(|()| true));
            }
            // The thread that drives the engine looks for commands before it sleeps.
            Err(_) => self.waker.wake(),
        }
    }

    /// Runs the process's thread: drives the engine while no caller does, until the engine ends.
    pub(super) fn run(&self) {
        loop {
            self.stay_away();
            let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
            while !self.called.load(Ordering::Acquire) {
                if engine.is_none() {
                    return;
                }
                self.guarded(&mut engine, |engine| engine.turn(&self.commands, LONGEST, PATIENCE_THREAD));
            }
        }
    }

    /// Waits until no caller drives the engine, and the lease of the last one is over.
    fn stay_away(&self) {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        // The number of the caller that drives the engine, and a time at which it did.
        let mut caller = (self.turns.load(Ordering::Relaxed), Instant::now());
        loop {
            let longest = if self.called.load(Ordering::Acquire) {
                let turns = self.turns.load(Ordering::Relaxed);
                if turns != caller.0 {
                    caller = (turns, Instant::now());
                }
                // Short calls do not pay for a wake-up of this thread; long ones wake it.
                let waits = caller.1.elapsed() >= LONG * self.lease();
                self.waits.store(waits, Ordering::Relaxed);
                if waits { LONGEST } else { self.lease() }
            } else {
                let left = lease.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
                if left.is_zero() {
                    *lease = None;
                    return;
                }
                left
            };
            lease = self.back.wait_timeout(lease, longest).unwrap_or_else(PoisonError::into_inner).0;
            self.waits.store(false, Ordering::Relaxed);
        }
    }

    /// Lets the process's thread come back at once.
    pub(super) fn call_back(&self) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.back.notify_one();
    }

    /// Calls `what` with the engine. Ends the engine if that fails, or if it returns false.
    fn guarded(&self, engine: &mut Option<Engine>, what: impl FnOnce(&mut Engine) -> Result<bool, Error>) {
        let Some(one) = engine else { return };
        let why = match catch_unwind(AssertUnwindSafe(|| what(one))) {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => "the process has left".to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a defect, see the message of the panic".to_string(),
        };
        // Its tasks fail, and peers hear good-bye.
        *engine = None;
        let left = {
            let mut list = self.commands.lock();
            list.ended = Some(why.clone());
            std::mem::take(&mut list.list)
        };
        left.into_iter().for_each(|command| refuse(command, &why));
    }
}

impl Progress for ProgressEngine {
    fn note_delegated(&self, task: u64, outcome: Result<Ended, GroupError>) {
        self.submit(Command::Delegated { task, outcome });
    }

    fn drive(&self, work: &Work, until: Option<Instant>) {
        if self.called.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        self.turns.fetch_add(1, Ordering::Relaxed);
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // The process's thread sleeps on its sockets. It sees `called` when it wakes.
                self.waker.wake();
                self.engine.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        while !work.is_ended() {
            let left = until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
            if engine.as_ref().is_none_or(Engine::is_ending) {
                break;
            }
            self.guarded(&mut engine, |engine| {
                engine.handle_commands(&self.commands)?;
                // A command may have ended the work; then there is nothing to wait for.
                if work.is_ended() { Ok(true) } else { engine.turn(&self.commands, left.min(LONGEST), PATIENCE_CALLER) }
            });
            // At least one turn, so that a caller that only polls moves its packets, too.
            if left.is_zero() {
                break;
            }
        }
        let busy = engine.as_mut().is_some_and(|engine| {
            engine.let_go();
            self.local.store(engine.is_local(), Ordering::Relaxed);
            engine.is_busy() || engine.is_ending()
        });
        drop(engine);
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        *lease = if busy { None } else { Some(Instant::now() + self.lease()) };
        self.called.store(false, Ordering::Release);
        let waits = self.waits.load(Ordering::Relaxed);
        drop(lease);
        if busy || waits {
            self.back.notify_one();
        }
    }
}

/// Fails a command that cannot be carried out.
fn refuse(command: Command, why: &str) {
    if let Command::Begin(begin) = command {
        begin.work.end(Err(Failure::Node(why.into())));
    }
}
