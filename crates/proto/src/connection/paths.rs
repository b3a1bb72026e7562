//! Calls on a connection's paths apart from data and acknowledgements: by the NIC, the peer, and the controller.

use super::{Connection, Replies};
use crate::packet::{Answer, Flags, Header, Operation, Packet, PathId};
use crate::path::{
    MrcConfig, PathEvent, PathManager, PathProbe, PathSelector, PathState, PathStatus, PlaneStates, Turnover,
};
use crate::units::Time;

impl Connection {
    /// A packet arrived by `path`: does this end consider that path persistently bad? Most profiles never do
    /// (`Habits::shuns` is false).
    #[inline]
    pub(super) fn shuns(&mut self, path: PathId, marked: bool) -> bool {
        self.habits.shuns && self.path.manager_mut().is_some_and(|manager| manager.is_to_shun(path, marked))
    }

    /// The set of our NIC's ports that are up has changed to `up`.
    pub(crate) fn handle_ports(&mut self, now: Time, up: u32) {
        if let Some(manager) = self.path.manager_mut() {
            manager.on_ports(now, up);
        }
    }

    /// The peer does not answer on these planes.
    pub(crate) fn handle_silence(&mut self, now: Time, planes: u32) {
        if let Some(manager) = self.path.manager_mut() {
            manager.on_silence(now, planes);
        }
    }

    /// The peer reports which of its NIC's ports are up.
    pub(crate) fn handle_peer_ports(&mut self, now: Time, number: u16, up: u32) {
        if let Some(manager) = self.path.manager_mut() {
            manager.on_peer_ports(now, number, up);
        }
    }

    pub(crate) fn handle_operation(
        &mut self,
        now: Time,
        packet: &Packet,
        number: u16,
        operation: Operation,
        reply: Replies<'_>,
    ) {
        let answer = Answer { port_status: operation != Operation::PathProbe, number, path: packet.path };
        let path = self.path.reply_path(now, packet.path);
        reply(self.control(path, Flags::NONE, Header::Answer(answer)));
    }

    pub(crate) fn handle_answer(&mut self, now: Time, answer: &Answer) {
        if let Some(manager) = self.path.manager_mut() {
            manager.on_answer(now, answer.path, answer.number);
        }
    }

    pub(super) fn path_probe(&self, probe: PathProbe) -> Packet {
        match probe {
            PathProbe::Connection { path, number } => self.control(path, Flags::NONE, Header::Probe { number }),
            PathProbe::Endpoint { path, number } => {
                self.control(path, Flags::NONE, Header::Operation { number, operation: Operation::PathProbe })
            }
        }
    }

    /// MRC's parameters, if its path selector is MRC's.
    pub(crate) fn mrc(&self) -> Option<MrcConfig> {
        self.kind.mrc
    }

    /// The port by which all its data leaves, if there is only one.
    pub(crate) fn only_port(&self) -> Option<u8> {
        self.path.only_port()
    }

    /// A path on this plane, if there is such a plane.
    pub(crate) fn plane_path(&mut self, port: u8) -> Option<PathId> {
        self.path.manager_mut()?.plane_path(port)
    }

    pub(crate) fn penalties(&self) -> Vec<u32> {
        self.path.penalties()
    }

    pub(crate) fn planes(&self) -> Vec<PlaneStates> {
        self.path.manager().map_or_else(Vec::new, PathManager::planes)
    }

    pub(crate) fn path_states(&self) -> Vec<PathState> {
        self.path.manager().map_or_else(Vec::new, PathManager::path_states)
    }

    pub(crate) fn path_turnover(&self) -> Turnover {
        self.path.manager().map_or(Turnover::default(), PathManager::turnover)
    }

    pub(crate) fn take_path_event(&mut self) -> Option<PathEvent> {
        self.path.manager_mut()?.take_event()
    }

    pub(crate) fn substitute_path(&mut self, now: Time, old: PathId, new: PathId, status: PathStatus) -> bool {
        self.path.manager_mut().is_some_and(|manager| manager.substitute(now, old, new, status))
    }

    pub(crate) fn deny_path(&mut self, now: Time, path: PathId) -> bool {
        self.path.manager_mut().is_some_and(|manager| manager.deny(now, path))
    }

    pub(crate) fn allow_path(&mut self, now: Time, path: PathId) -> bool {
        self.path.manager_mut().is_some_and(|manager| manager.allow(now, path))
    }
}
