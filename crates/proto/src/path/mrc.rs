//! MRC's entropy values (EVs): each connection sprays over a set of static paths and keeps a state for each of them.
//!
//! A path on which a packet was marked is skipped once. A path that loses a packet is taken out and replaced by a
//! backup of the same plane; it is probed in the background, and comes back after several successful probes in a row.
//! Planes (NIC ports) take turns, so they stay equally loaded even if single paths fail. When a port goes down, ours or
//! the peer's, all its paths go out of use at once.

mod probes;
mod profile;
mod record;
mod reverse;
mod set;
mod shun;

use super::spread::{PORTS_MAX, next_port};
use super::{
    AnyPath, PathFeedback, PathManager, PathPolicy, PathProbe, PathSelector, PathState, PathStatus as State,
    PlaneStates, Turnover,
};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::profile::Routing;
use crate::rng::Random;
use crate::units::{Rate, Span, Time};
use probes::{Answered, Probes};
use record::PathRecord;
use reverse::Reverse;
use set::EvSet;
use shun::Shun;

pub use profile::{EVS_MAX, EvField, EvProfile, ev_of, path_of_ev};
pub use record::{PATH_EVENTS_MAX, PathChange, PathEvent};

parameters! {
    /// MRC's set of entropy values, and its treatment of ports.
    pub struct MrcConfig {
        /// Entropy values in use, all planes together; fewer if the fabric has fewer paths.
        active: u32 = 128, 1.0..=4096.0, "Araujo et al., arXiv 2605.04333, section 2.1: slightly more than 100 of 128 to 256";
        /// Entropy values in reserve to replace those that fail; fewer if the fabric has not enough paths.
        backup: u32 = 128, 0.0..=4096.0, "Araujo et al., arXiv 2605.04333, section 2.1: 128 to 256 in all";
        /// No path is taken out if only this share of the set's paths is left in use (`ev_min_active`).
        active_min: f64 = 0.25, 0.0..=1.0, "OCP MRC 1.0, samples: ev_count / 4";
        /// Skip a path once after a packet was marked or trimmed on it.
        skip_marked: bool = true, 0.0..=1.0, "OCP MRC 1.0: SKIP; false is the ablation";
        /// As receiver, report a path as persistently bad ("always skip") after this many marked packets in a row, if
        /// the other paths of its plane are clean; zero: never.
        shun_marks: u32 = 0, 0.0..=1.0e6, "OCP MRC 1.0 leaves the criterion open; ours: never, or else 8";
        /// Probes in a row that must succeed before a path that was taken out comes back.
        probe_successes: u32 = 3, 1.0..=255.0, "ours: the paper says enough probes over time";
        /// The first probe, and each probe after a success, follows after this many base RTTs.
        probe_first: f64 = 1.0, 0.1..=1.0e6, "ours: the source gives no value; as soon as there can be news";
        /// An unanswered probe doubles the time to the next one, up to this.
        probe_max: Span = Span::from_ms(100), 1.0e6..=1.0e13, "ours: the source gives no value; links are out for seconds";
        /// A probe that is not answered within this many base RTTs has failed.
        probe_timeout: f64 = 4.0, 1.0..=1.0e6, "ours: three times base RTT and target, as the retransmission timer";
        /// Probes take at most this share of the packets that the NIC's rate allows.
        probe_share: f64 = 0.01, 0.0001..=1.0, "ours: 1 % of the sending rate";
        /// True: probe paths from NIC to NIC (EV probes), also while the connection has nothing to send. False: by
        /// probes of the connection (reliability probes), only while it has something to send.
        probe_idle: bool = false, 0.0..=1.0, "OCP MRC 1.0: EV probes; off is ours: idle connections cost nothing";
        /// True: acknowledgements go by paths known to work in their direction. False: back by the path of the data.
        reverse: bool = true, 0.0..=1.0, "Araujo et al., arXiv 2605.04333, section 2: reverse EVs";
        /// A port that is up again is used after this long without another failure.
        port_hold: Span = Span::from_ms(1), 0.0..=1.0e13, "ours: 1 ms, in simulation and on hosts";
        /// A port that is up again is also used only after `probe_successes` probes in a row were answered through it.
        port_probe: bool = true, 0.0..=1.0, "ours: a port comes back as a path does; false trusts what the NIC sees";
        /// Copies of each port status, over different planes.
        status_copies: u32 = 3, 1.0..=32.0, "ours: one may be lost";
        /// The time between two repetitions of the port status while a port is down.
        status_refresh: Span = Span::from_ms(1000), 1.0e8..=1.0e14, "ours: each second";
    }
}

impl PathPolicy for MrcConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Mrc(Box::new(Mrc::new(self, environment, random)))
    }
    fn routing(&self) -> Routing {
        // Its entropy is a source route.
        Routing::Source
    }
}

/// The set of paths over which a connection sprays, and the state of each.
#[derive(Clone, Debug)]
pub struct Mrc {
    set: EvSet,
    probes: Probes,
    reverse: Reverse,
    /// As receiver: the marks by path of the peer's packets.
    shun: Option<Box<Shun>>,
    random: Random,
    /// Our ports that are up.
    local: u32,
    /// The peer's ports that are up, by its latest port status, and the number of that status.
    peer: u32,
    peer_number: Option<u16>,
    /// Planes on which the peer does not answer, by the world's probes.
    silent: u32,
    /// Planes on which both our port and the peer's port are up; all our ports that are up if there is no such plane.
    /// Without the silent ones, unless all of them are silent.
    usable: u32,
    /// The plane that is used next.
    turn: u8,
    ports: u8,
    skip_marked: bool,
    /// Probes are from NIC to NIC.
    probe_idle: bool,
    retired: u64,
    returned: u64,
    suppressed: u64,
    unknown: u64,
    record: PathRecord,
}

impl Mrc {
    /// A connection that has sent nothing: every path is good.
    pub fn new(config: &MrcConfig, environment: &Environment, mut random: Random) -> Mrc {
        let ports = environment.ports.clamp(1, PORTS_MAX as u8);
        let set = EvSet::new(config, environment.uplinks, ports, &mut random);
        let all = u32::MAX >> (PORTS_MAX as u8 - ports);
        let rate = Rate(environment.rate.0.max(1));
        let gap = rate.time_for(environment.packet).scaled(1.0 / config.probe_share);
        let base_rtt = Span(environment.base_rtt.0.max(1000));
        Mrc {
            set,
            probes: Probes::new(config, base_rtt, gap),
            reverse: Reverse::new(config.reverse, ports, base_rtt),
            shun: Shun::new(config.shun_marks).map(Box::new),
            turn: random.below(u32::from(ports)) as u8,
            random,
            local: all,
            peer: all,
            peer_number: None,
            silent: 0,
            usable: all,
            ports,
            skip_marked: config.skip_marked,
            probe_idle: config.probe_idle,
            retired: 0,
            returned: 0,
            suppressed: 0,
            unknown: 0,
            record: PathRecord::default(),
        }
    }

    /// Calls `fetch` with the addresses of the paths that the next packets will take.
    #[inline]
    pub(super) fn name_paths(&self, fetch: impl Fn(*const u8)) {
        self.set.name_paths(self.turn, fetch);
    }

    fn is_usable(&self, port: u8) -> bool {
        self.usable >> port & 1 == 1
    }

    fn update_usable(&mut self, now: Time) {
        let both = self.local & self.peer;
        // If both sets have no port in common, our ports are used: the peer's status must have arrived by some port.
        let up = if both != 0 { both } else { self.local };
        let answering = up & !self.silent;
        self.usable = if answering != 0 { answering } else { up };
        self.probes.on_planes(now, self.usable);
    }

    /// The number of active paths that packets may take.
    fn active_good(&self) -> u32 {
        (0..self.ports).filter(|&port| self.is_usable(port)).map(|port| self.set.good(port)).sum()
    }

    /// A path has lost a packet, has timed out, or was reported as persistently bad.
    fn fail(&mut self, now: Time, path: PathId) {
        let Some(slot) = self.set.find(path) else {
            self.unknown += 1;
            return;
        };
        let state = self.set.state(slot);
        // If the path's port is down, the loss says nothing about the path.
        if !self.is_usable(path.port()) {
            return;
        }
        if state == State::AssumedBad {
            // Its probes count from zero again. The path is out of use already, so this is no second event.
            self.probes.spoil(path);
        }
        if !(state == State::Good || state == State::Skip) {
            return;
        }
        let active = self.set.is_active(slot);
        if active && self.active_good() <= self.set.active_min {
            self.suppressed += 1;
            self.record.add(now, path, PathChange::Kept);
            // The path stays in use. The turn becomes random, because with a fixed order each retransmission could take
            // this same plane again and again.
            self.turn = ((self.random.unit() * f64::from(self.ports)) as u8).min(self.ports - 1);
            return;
        }
        self.set.set_state(slot, State::AssumedBad);
        self.set.replace(slot);
        self.retired += 1;
        self.record.add(now, path, PathChange::Failed);
        self.probes.start(now, path);
    }

    /// A packet was marked on a path, or trimmed. A path in reserve has no turn to skip.
    fn skip(&mut self, path: PathId) {
        match self.set.find(path) {
            Some(slot) => {
                if self.skip_marked && self.set.is_active(slot) && self.set.state(slot) == State::Good {
                    self.set.set_state(slot, State::Skip);
                }
            }
            None => self.unknown += 1,
        }
    }

    /// A path that was taken out is good again: it goes into use if its plane lacks active paths, otherwise into
    /// reserve.
    fn restore(&mut self, path: PathId, state: State) {
        let Some(slot) = self.set.find(path) else { return };
        self.set.set_state(slot, state);
        self.set.promote(slot);
    }

    /// The next path in state `wanted` on one of the `free` planes, plane by plane in turn.
    #[inline]
    fn pick(&mut self, free: u32, wanted: State) -> Option<PathId> {
        let mut left = free;
        let mut port = next_port(left, self.turn);
        loop {
            if let Some(path) = self.set.pick(port, wanted, &mut self.random) {
                self.turn = if port + 1 < self.ports { port + 1 } else { 0 };
                return Some(path);
            }
            left &= !(1 << port);
            if left == 0 {
                return None;
            }
            port = next_port(left, port);
        }
    }
}

impl PathSelector for Mrc {
    #[inline]
    fn next(&mut self, _: Time, free: Ports) -> Option<PathId> {
        let free = free.data & self.usable;
        if free == 0 {
            return None;
        }
        let path = self.pick(free, State::Good);
        if path.is_none() && self.active_good() == 0 {
            // No plane has a good path left, so a path assumed bad is used.
            return self.pick(free, State::AssumedBad);
        }
        path
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback) {
        match feedback {
            PathFeedback::Good => self.reverse.confirm(now, path, &self.set),
            PathFeedback::Marked | PathFeedback::Trimmed => {
                self.reverse.confirm(now, path, &self.set);
                self.skip(path);
            }
            PathFeedback::Shunned | PathFeedback::Lost | PathFeedback::TimedOut => self.fail(now, path),
        }
    }

    fn penalties(&self) -> Vec<u32> {
        self.set.states().map(|state| state.status as u32).collect()
    }
}

impl PathManager for Mrc {
    fn path_states(&self) -> Vec<PathState> {
        self.set.states().collect()
    }

    fn on_probe_answer(&mut self, now: Time, path: PathId, number: u32, feedback: PathFeedback) {
        if !probes::is_ours(number) {
            return self.on_feedback(now, path, feedback);
        }
        let good = matches!(feedback, PathFeedback::Good | PathFeedback::Marked);
        let answered = self.probes.answered(now, path, number, good);
        if answered != Answered::Late {
            self.record.add(now, path, PathChange::Answered);
        }
        if answered == Answered::Restored {
            self.returned += 1;
            self.record.add(now, path, PathChange::Returned);
            self.restore(path, State::Good);
        }
        if answered != Answered::Counted && feedback == PathFeedback::Marked {
            self.skip(path);
        }
    }

    fn deadline(&self) -> Time {
        self.probes.deadline()
    }

    fn on_timeout(&mut self, now: Time) {
        let record = &mut self.record;
        self.probes.expire(now, |path| record.add(now, path, PathChange::Unanswered));
    }

    #[inline]
    fn wants_probe(&self, active: bool) -> bool {
        (active && self.probes.is_due()) || self.reverse.is_due()
    }

    fn take_probe(&mut self, now: Time, free: Ports) -> Option<PathProbe> {
        let free = free.data & self.usable;
        if let Some((path, number)) = self.probes.take(now, free) {
            let endpoint = PathProbe::Endpoint { path, number: number as u16 };
            return Some(if self.probe_idle { endpoint } else { PathProbe::Connection { path, number } });
        }
        let (path, number, unanswered) = self.reverse.take(free, &mut self.set, &mut self.random)?;
        if let Some(unanswered) = unanswered {
            self.fail(now, unanswered);
        }
        Some(PathProbe::Endpoint { path, number })
    }

    #[inline]
    fn reply_path(&mut self, now: Time, arrived: PathId) -> PathId {
        let arrived = if self.is_usable(arrived.port() & 31) {
            arrived
        } else {
            PathId::new(next_port(self.usable, arrived.port() & 31), arrived.entropy())
        };
        self.reverse.path(now, arrived)
    }

    fn on_answer(&mut self, now: Time, path: PathId, number: u16) {
        if probes::is_ours(u32::from(number)) {
            return self.on_probe_answer(now, path, u32::from(number), PathFeedback::Good);
        }
        self.reverse.answered(now, path, number);
    }

    fn on_ports(&mut self, now: Time, up: u32) {
        let all = u32::MAX >> (PORTS_MAX as u8 - self.ports);
        // Without any port nothing can be sent, so then the set may be any; it must not be empty.
        self.local = if up & all != 0 { up & all } else { all };
        self.update_usable(now);
    }

    fn on_peer_ports(&mut self, now: Time, number: u16, up: u32) {
        // Copies and repetitions may arrive late or twice; only a newer number counts.
        if self.peer_number.is_some_and(|last| number.wrapping_sub(last) >= 1 << 15) {
            return;
        }
        self.peer_number = Some(number);
        self.peer = up;
        self.update_usable(now);
    }

    fn on_silence(&mut self, now: Time, planes: u32) {
        self.silent = planes;
        self.update_usable(now);
    }

    fn is_to_shun(&mut self, path: PathId, marked: bool) -> bool {
        self.shun.as_mut().is_some_and(|shun| shun.is_bad(path, marked))
    }

    fn plane_path(&mut self, port: u8) -> Option<PathId> {
        self.set.draw_good(port, &mut self.random)
    }

    fn deny(&mut self, now: Time, path: PathId) -> bool {
        let Some(slot) = self.set.find(path) else { return false };
        self.probes.stop(now, path);
        if self.set.state(slot) != State::Denied {
            self.record.add(now, path, PathChange::Denied);
        }
        self.set.set_state(slot, State::Denied);
        self.set.replace(slot);
        true
    }

    fn allow(&mut self, now: Time, path: PathId) -> bool {
        let Some(slot) = self.set.find(path) else { return false };
        match self.set.state(slot) {
            State::Denied | State::AssumedBad => {
                self.probes.stop(now, path);
                self.record.add(now, path, PathChange::Allowed);
                self.restore(path, State::Good);
            }
            State::Skip => self.set.set_state(slot, State::Good),
            State::Good => {}
        }
        true
    }

    fn substitute(&mut self, now: Time, old: PathId, new: PathId, status: State) -> bool {
        let Some(slot) = self.set.find(old) else { return false };
        if old.port() != new.port() || (old != new && self.set.find(new).is_some()) {
            return false;
        }
        self.probes.stop(now, old);
        self.set.rename(slot, new);
        self.record.add(now, new, PathChange::Replaced);
        self.set.set_state(slot, status);
        match status {
            State::Good | State::Skip => self.set.promote(slot),
            State::AssumedBad => {
                self.set.replace(slot);
                self.probes.start(now, new);
            }
            State::Denied => self.set.replace(slot),
        }
        true
    }

    fn use_profile(&mut self, profile: &EvProfile) {
        if let Some(paths) = profile.paths() {
            self.set.fill(&paths, &mut self.random);
        }
    }

    fn take_event(&mut self) -> Option<PathEvent> {
        self.record.take()
    }

    fn planes(&self) -> Vec<PlaneStates> {
        (0..self.ports).map(|port| PlaneStates { usable: self.is_usable(port), ..self.set.count(port) }).collect()
    }

    fn turnover(&self) -> Turnover {
        let Mrc { retired, returned, suppressed, unknown, .. } = *self;
        Turnover { retired, returned, suppressed, unknown }
    }
}
