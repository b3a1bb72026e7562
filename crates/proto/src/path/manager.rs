//! What a profile with a managed set of paths needs beyond a selector: states, probes, port reports, a controller.
//!
//! Only MRC has one. A connection asks [`AnyPath`], which answers for all others as if there were nothing to manage.

use super::{AnyPath, PathFeedback, PathProbe, PathSelector, PathState, PlaneStates};
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
    /// Is a probe due? `active`: the connection has something to send or in flight, or probes whether it has or not.
    fn wants_probe(&self, active: bool) -> bool;
    /// Takes a probe that is due and may leave by a free port.
    fn take_probe(&mut self, now: Time, free: Ports) -> Option<PathProbe>;
    /// A probe from NIC to NIC was answered.
    fn on_answer(&mut self, now: Time, path: PathId, number: u16);
    /// By which path to answer what arrived by `arrived`.
    fn reply_path(&mut self, now: Time, arrived: PathId) -> PathId;
    /// These of our NIC's ports are up from now on, one bit each.
    fn on_ports(&mut self, now: Time, up: u32);
    /// The peer says which of its ports are up.
    fn on_peer_ports(&mut self, now: Time, number: u16, up: u32);
    /// A packet of the peer's arrived by `path`: is that path persistently bad?
    fn is_to_shun(&mut self, path: PathId, marked: bool) -> bool;
    /// A path of this plane for a packet that belongs to no message.
    fn plane_path(&mut self, port: u8) -> Option<PathId>;
    /// The controller forbids a path. False if it is none of ours.
    fn deny(&mut self, now: Time, path: PathId) -> bool;
    /// The controller declares a path good. False if it is none of ours.
    fn allow(&mut self, now: Time, path: PathId) -> bool;
    /// How the paths of each plane fare.
    fn planes(&self) -> Vec<PlaneStates>;
    /// Every path and its state.
    fn path_states(&self) -> Vec<PathState>;
    /// Paths taken out so far, those that came back, and those kept because too few were left.
    fn turnover(&self) -> [u64; 3];
}

impl AnyPath {
    /// The manager of its set of paths, if it has one.
    #[inline]
    pub fn manager(&self) -> Option<&impl PathManager> {
        if let AnyPath::Mrc(mrc) = self { Some(&**mrc) } else { None }
    }

    /// The same, to tell it something.
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

    /// When its manager has something to do.
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

    /// By which path to answer what arrived by `arrived`: the same, if nobody knows better.
    #[inline]
    pub(crate) fn reply_path(&mut self, now: Time, arrived: PathId) -> PathId {
        self.manager_mut().map_or(arrived, |manager| manager.reply_path(now, arrived))
    }
}
