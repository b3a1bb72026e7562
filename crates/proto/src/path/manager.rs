//! The interface of a managed set of paths, beyond a selector: states, probes, port status, a controller.
//!
//! Only MRC has one. For other selectors, [`AnyPath`] gives the answers of an empty manager.

use super::{
    AnyPath, EvProfile, PathEvent, PathFeedback, PathProbe, PathSelector, PathState, PathStatus, PlaneStates, Turnover,
};
use crate::packet::{PathId, Ports};
use crate::units::Time;

/// The manager of a connection's set of paths (MRC, arXiv 2605.04333, section on EV states).
pub trait PathManager: PathSelector {
    /// A probe of this number that was sent over `path` was answered.
    fn on_probe_answer(&mut self, now: Time, path: PathId, number: u32, feedback: PathFeedback);
    /// When to call `on_timeout` while the connection is active; [`Time::NEVER`] if nothing is due.
    fn deadline(&self) -> Time;
    /// The deadline has passed.
    fn on_timeout(&mut self, now: Time);
    /// Is a probe due? `active`: the connection has something to send or in flight, or it also probes while idle.
    fn wants_probe(&self, active: bool) -> bool;
    /// Takes a probe that is due and may leave by a free port.
    fn take_probe(&mut self, now: Time, free: Ports) -> Option<PathProbe>;
    /// A probe from NIC to NIC was answered.
    fn on_answer(&mut self, now: Time, path: PathId, number: u16);
    /// The path for the answer to a packet that arrived by `arrived`.
    fn reply_path(&mut self, now: Time, arrived: PathId) -> PathId;
    /// The set of our NIC's ports that are up has changed to `up`, one bit each.
    fn on_ports(&mut self, now: Time, up: u32);
    /// The peer reports which of its ports are up.
    fn on_peer_ports(&mut self, now: Time, number: u16, up: u32);
    /// The world's own probes find that the peer does not answer on these planes, one bit each.
    fn on_silence(&mut self, now: Time, planes: u32);
    /// A packet of the peer arrived by `path`: is that path persistently bad?
    fn is_to_shun(&mut self, path: PathId, marked: bool) -> bool;
    /// A path of this plane for a packet that belongs to no message.
    fn plane_path(&mut self, port: u8) -> Option<PathId>;
    /// The controller forbids a path. False if the set has no such path.
    fn deny(&mut self, now: Time, path: PathId) -> bool;
    /// The controller declares a path good. False if the set has no such path.
    fn allow(&mut self, now: Time, path: PathId) -> bool;
    /// The controller puts another path of the same plane, in this state, in the place of one of the set. False if the
    /// set has no such path, or has the new one already, or the planes differ.
    fn substitute(&mut self, now: Time, old: PathId, new: PathId, status: PathStatus) -> bool;
    /// Makes the set of the paths of a profile. Call it before the first packet.
    fn use_profile(&mut self, profile: &EvProfile);
    /// The oldest change of a path that was not read yet.
    fn take_event(&mut self) -> Option<PathEvent>;
    /// The number of paths in each state, for each plane.
    fn planes(&self) -> Vec<PlaneStates>;
    /// Every path and its state.
    fn path_states(&self) -> Vec<PathState>;
    /// The counters of its set.
    fn turnover(&self) -> Turnover;
}

impl AnyPath {
    /// The manager of its set of paths, if it has one.
    #[inline]
    pub fn manager(&self) -> Option<&impl PathManager> {
        if let AnyPath::Mrc(mrc) = self { Some(&**mrc) } else { None }
    }

    /// The manager of its set of paths, to change it, if it has one.
    #[inline]
    pub fn manager_mut(&mut self) -> Option<&mut impl PathManager> {
        if let AnyPath::Mrc(mrc) = self { Some(&mut **mrc) } else { None }
    }

    /// A probe of this number that was sent over `path` was answered.
    pub(crate) fn on_probe_answer(&mut self, now: Time, path: PathId, number: u32, feedback: PathFeedback) {
        match self.manager_mut() {
            Some(manager) => manager.on_probe_answer(now, path, number, feedback),
            None => self.on_feedback(now, path, feedback),
        }
    }

    /// The manager's deadline; [`Time::NEVER`] without a manager.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.manager().map_or(Time::NEVER, PathManager::deadline)
    }

    /// Is a probe due?
    #[inline]
    pub(crate) fn wants_probe(&self, active: bool) -> bool {
        self.manager().is_some_and(|manager| manager.wants_probe(active))
    }

    /// Takes a probe that is due and may leave by a free port.
    pub(crate) fn take_probe(&mut self, now: Time, free: Ports) -> Option<PathProbe> {
        self.manager_mut()?.take_probe(now, free)
    }

    /// The path for the answer to a packet that arrived by `arrived`: the same path without a manager.
    #[inline]
    pub(crate) fn reply_path(&mut self, now: Time, arrived: PathId) -> PathId {
        self.manager_mut().map_or(arrived, |manager| manager.reply_path(now, arrived))
    }
}
