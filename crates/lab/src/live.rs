//! Runs whose messages come from a program outside, such as a simulator of training systems.
//!
//! A scenario gives the fabric, the profile, the faults, and any workload beside. The program posts messages and sets
//! timers, and is told when a message has arrived, when its sender knows that, and when a timer expires. Its answer to
//! an event starts at the same host at the same instant, so a run is exact to the picosecond, whatever the length of the
//! simulator's windows. All calls happen on one thread, and one run is like the other, with the same digest.
//!
//! The simulator works on one host after the other in windows of one link latency. Therefore the times of events never
//! go back at one host, but may go back from one host to another by less than a link's latency. An answer that concerns
//! *another* host than that of the event reaches it one link latency later, as every signal between hosts does.

mod host;
mod rows;
mod steps;

use crate::facts;
use crate::run::Outcome;
use host::{Handler, HostProgram};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use strandway_collective::Programs;
use strandway_fabric::Plan;
use strandway_fabric::measure::End;
use strandway_fabric::plan::ConnectionPlan;
use strandway_import::Problems;
use strandway_proto::HostId;
use strandway_proto::units::{Rate, Span, Time};
use strandway_scenario::{Experiment, Scenario};
use strandway_sim::Control;

pub use steps::Steps;

/// Limit on the length of a message: that of scenarios.
const BYTES_MAX: u64 = 1 << 48;

/// A message that the program outside has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostedMessage {
    /// The sender.
    pub from: HostId,
    /// The receiver.
    pub to: HostId,
    /// Its length.
    pub bytes: u64,
    /// The number that the program gave it; its meaning is the program's.
    pub tag: u64,
    /// When it was posted at the sender; `None` if the run ended before.
    pub started: Option<Time>,
    /// When it had arrived completely.
    pub received: Option<Time>,
    /// When its sender knew that.
    pub finished: Option<Time>,
}

/// An event at a host, for the program outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveEvent {
    /// When.
    pub at: Time,
    /// Where.
    pub host: HostId,
    /// What.
    pub what: What,
}

/// The event itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A message of this host is wholly acknowledged.
    Sent {
        /// Its number, as [`Lab::post`] returned it.
        message: u64,
    },
    /// A message to this host has arrived completely.
    Received {
        /// Its number, as [`Lab::post`] returned it to the sender.
        message: u64,
    },
    /// A timer of this host has expired.
    Timer {
        /// The number given to [`Lab::schedule`].
        word: u64,
    },
    /// A connection of this host was given up; its unfinished messages stay unfinished.
    Failed {
        /// The host at the other end.
        peer: HostId,
    },
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveError {
    /// There is no such host; the fabric has this many.
    NoHost(HostId, u32),
    /// A message from a host to itself never enters the fabric.
    ToItself(HostId),
    /// A message is longer than 2^48 B.
    TooLong(u64),
    /// The run has begun, or is over: connections are opened before, messages are posted before or in answer to events.
    TooLate,
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::NoHost(host, hosts) => {
                write!(f, "there is no host {}: the fabric has {hosts}, from 0 on", host.0)
            }
            LiveError::ToItself(host) => write!(f, "host {} would send to itself: such bytes use no network", host.0),
            LiveError::TooLong(bytes) => write!(f, "a message of {bytes} B: at most {BYTES_MAX} B"),
            LiveError::TooLate => f.write_str(
                "open connections before the run; post messages and set timers before it or in answer to an event",
            ),
        }
    }
}

impl std::error::Error for LiveError {}

/// The end of a run whose messages came from outside.
#[derive(Debug)]
pub struct LiveOutcome {
    /// Report and measurements.
    pub outcome: Outcome,
    /// The experiment, with an entry for each message that was posted.
    pub experiment: Experiment,
    /// The messages, by their numbers.
    pub messages: Vec<PostedMessage>,
}

/// A fabric that a program outside uses while its clock runs. Clones are handles of the same lab.
#[derive(Clone, Debug)]
pub struct Lab(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    experiment: Mutex<Experiment>,
    state: Mutex<State>,
    control: Control,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// The time of the present event, and its host.
    now: Time,
    host: Option<HostId>,
    /// The time of the latest event.
    last: Time,
    hosts: Vec<HostState>,
    messages: Vec<PostedMessage>,
    /// The delay of what an event of one host does at another.
    latency: Span,
    /// The number of the first message in the simulator.
    first: u32,
    /// The order of signals between hosts.
    order: u32,
    /// Distinguishes what is due at one instant.
    next: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Before,
    Running,
    Over,
}

/// Work for a host.
#[derive(Clone, Copy, Debug)]
enum Order {
    Post(u64),
    Timer { at: Time, word: u64 },
}

#[derive(Debug, Default)]
struct HostState {
    /// Messages to post now.
    posts: VecDeque<u64>,
    /// Signals to send now: to whom, and when they arrive.
    signals: VecDeque<(HostId, Time)>,
    timers: BTreeMap<(Time, u64), u64>,
    /// Orders of other hosts' events, by the time when they are due.
    inbox: BTreeMap<(Time, HostId, u64), Order>,
    /// The messages that it has posted, in order.
    posted: Vec<u64>,
    unfinished: u64,
}

fn lock<T: ?Sized>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lab {
    /// Opens the fabric of a scenario, which needs no workload.
    ///
    /// # Errors
    /// All problems of the scenario at once.
    pub fn open(scenario: &Scenario) -> Result<Lab, Problems> {
        let mut experiment = crate::check(&scenario.clone().with_posts())?;
        if experiment.aggregation.is_some() {
            let what = "has a workload whose gradients switches add";
            return Err(Problems::with_file(scenario.file(), what, "leave it out of a run with messages from outside"));
        }
        if let Some(made) = experiment.services.first() {
            let what = format!("has the service `{}`", made.service.name);
            return Err(Problems::with_file(scenario.file(), what, "leave it out of a run with messages from outside"));
        }
        experiment.plan.threads = 1;
        let plan = &experiment.plan;
        let hosts = plan.topology.hosts();
        let state = State {
            hosts: (0..hosts).map(|_| HostState::default()).collect(),
            latency: plan.topology.shortest_latency(),
            first: experiment.programs().first_free_number(plan),
            order: Programs::custom_order(plan),
            ..State::default()
        };
        let (experiment, state) = (Mutex::new(experiment), Mutex::new(state));
        Ok(Lab(Arc::new(Shared { experiment, state, control: Control::new() })))
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        lock(&self.0.state).hosts.len() as u32
    }

    /// The rate of a host's NIC, all planes together.
    pub fn rate(&self) -> Rate {
        lock(&self.0.experiment).derived.rate
    }

    /// The time of the present event, at its host. Before the run: zero.
    pub fn now(&self) -> Time {
        lock(&self.0.state).now
    }

    /// Opens a connection before the run, as connections of workloads are. Without this call, the first message between
    /// two hosts opens it.
    ///
    /// # Errors
    /// If a host does not exist, or the run has begun.
    pub fn connect(&self, from: HostId, to: HostId) -> Result<(), LiveError> {
        let state = lock(&self.0.state);
        state.check(from, to)?;
        if state.stage != Stage::Before {
            return Err(LiveError::TooLate);
        }
        drop(state);
        let connections = &mut lock(&self.0.experiment).plan.connections;
        connections.push(ConnectionPlan { source: from, destination: to, profile: 0 });
        Ok(())
    }

    /// Posts a message: before the run, for time zero, or in answer to an event, for its instant. An empty message has
    /// one byte. Returns its number: 0 for the first, and so on.
    ///
    /// # Errors
    /// If a host does not exist, both are the same, the message is too long, or no event is being answered.
    pub fn post(&self, from: HostId, to: HostId, bytes: u64, tag: u64) -> Result<u64, LiveError> {
        let mut state = lock(&self.0.state);
        state.check(from, to)?;
        if bytes > BYTES_MAX {
            return Err(LiveError::TooLong(bytes));
        }
        let number = state.messages.len() as u64;
        state.give(from, Order::Post(number))?;
        let (started, received, finished) = (None, None, None);
        state.messages.push(PostedMessage { from, to, bytes: bytes.max(1), tag, started, received, finished });
        Ok(number)
    }

    /// Sets a timer of a host: before the run, counted from time zero, or in answer to an event, counted from its
    /// instant. One without delay expires right after the present event, before anything else happens at the host.
    ///
    /// # Errors
    /// If the host does not exist, or no event is being answered.
    pub fn schedule(&self, host: HostId, after: Span, word: u64) -> Result<(), LiveError> {
        let mut state = lock(&self.0.state);
        state.known(host)?;
        let at = Time(state.now.0.saturating_add(after.0));
        state.give(host, Order::Timer { at, word })
    }

    /// A message, by its number.
    pub fn message(&self, number: u64) -> Option<PostedMessage> {
        lock(&self.0.state).messages.get(usize::try_from(number).ok()?).copied()
    }

    /// Asks the run to end soon with what it has measured.
    pub fn stop(&self) {
        self.0.control.stop();
    }

    /// Runs until nothing is left to do, and calls `handler` for each event. Only the first call runs.
    ///
    /// # Errors
    /// If it was run before.
    pub fn run(&self, handler: impl FnMut(&Lab, &LiveEvent) + Send + 'static) -> Result<LiveOutcome, LiveError> {
        {
            let mut state = lock(&self.0.state);
            if state.stage != Stage::Before {
                return Err(LiveError::TooLate);
            }
            state.stage = Stage::Running;
        }
        let mut experiment = lock(&self.0.experiment).clone();
        let began = Instant::now();
        let channels = Arc::new(channels(&experiment.plan));
        let handler: Handler = Arc::new(Mutex::new(handler));
        let make = |host: HostId| -> Option<Box<dyn strandway_proto::application::Application>> {
            let (lab, handler, channels) = (self.clone(), Arc::clone(&handler), Arc::clone(&channels));
            Some(Box::new(HostProgram { lab, handler, channels, host }))
        };
        let mut measurements = {
            let programs = experiment.programs().with_signals(&make);
            strandway_sim::simulate_programs(&experiment.plan, &programs, &self.0.control)
        };
        let wall = began.elapsed().as_secs_f64();
        let messages = {
            let mut state = lock(&self.0.state);
            state.stage = Stage::Over;
            if measurements.end == End::Finished {
                // Timers are work of the run, too.
                measurements.simulated = measurements.simulated.max(state.last);
            }
            std::mem::take(&mut state.messages)
        };
        rows::add(&mut experiment, &mut measurements, &messages);
        let report = facts::report(&experiment, &measurements, wall);
        Ok(LiveOutcome { outcome: Outcome { report, measurements }, experiment, messages })
    }

    /// Runs on a thread of its own that waits while the caller answers an event: for callers that ask for one event
    /// after the other.
    pub fn steps(&self) -> Steps {
        Steps::new(self)
    }
}

/// The plan's connection between each two hosts.
fn channels(plan: &Plan) -> BTreeMap<(HostId, HostId), u32> {
    let mut found = BTreeMap::new();
    for (connection, number) in plan.connections.iter().zip(0u32..) {
        found.entry((connection.source, connection.destination)).or_insert(number);
    }
    found
}

impl State {
    fn known(&self, host: HostId) -> Result<(), LiveError> {
        let hosts = self.hosts.len() as u32;
        if host.0 < hosts { Ok(()) } else { Err(LiveError::NoHost(host, hosts)) }
    }

    fn check(&self, from: HostId, to: HostId) -> Result<(), LiveError> {
        self.known(from)?;
        self.known(to)?;
        if from == to { Err(LiveError::ToItself(from)) } else { Ok(()) }
    }

    /// Gives an order to a host: at once, or if it is not the host of the present event, after a link's latency.
    fn give(&mut self, to: HostId, order: Order) -> Result<(), LiveError> {
        let number = self.next;
        self.next += 1;
        match (&self.stage, self.host) {
            (Stage::Before, _) => self.take(to, order, number),
            (Stage::Running, Some(here)) if here == to => self.take(to, order, number),
            (Stage::Running, Some(here)) => {
                let due = Time(self.now.0 + self.latency.0);
                self.hosts[to.0 as usize].inbox.insert((due, here, number), order);
                let signals = &mut self.hosts[here.0 as usize].signals;
                if !signals.contains(&(to, due)) {
                    signals.push_back((to, due));
                }
            }
            (Stage::Running, None) | (Stage::Over, _) => return Err(LiveError::TooLate),
        }
        Ok(())
    }

    fn take(&mut self, host: HostId, order: Order, number: u64) {
        let host = &mut self.hosts[host.0 as usize];
        match order {
            Order::Post(message) => host.posts.push_back(message),
            Order::Timer { at, word } => drop(host.timers.insert((at, number), word)),
        }
    }
}
