//! The program of a host: a NIC of a server of the service, the processes that lead replicas, and the router.
//!
//! Every decision lies at one host: the router's at its own, a replica's batches at its leader. Processes of different
//! servers talk by messages of the fabric, those of one server by signals.

use crate::core::{Core, Timer};
use crate::front::Front;
use crate::lanes::CacheLanes;
use crate::leader::Leader;
use crate::plan::Service;
use crate::shared::{Content, Shared};
use crate::stage::Stage;
use std::sync::Arc;
use strandway_fabric::requests::ServiceTimes;
use strandway_proto::application::{Account, Action, Application, Event};
use strandway_proto::units::Time;
use strandway_proto::{HostId, MessageId};

/// A service during one run. It makes the programs of hosts, and has the measurements afterwards.
#[derive(Clone, Debug)]
pub struct ServiceRun(Arc<Shared>);

impl ServiceRun {
    /// A run that has not begun.
    pub fn new(service: &Service) -> ServiceRun {
        ServiceRun(Arc::new(Shared::new(Arc::new(service.clone()))))
    }

    /// The program of a host; `None` if the service does not use it.
    pub fn program(&self, host: HostId) -> Option<ServiceHost> {
        self.0.service.place_of(host).map(|place| ServiceHost::new(&self.0, place))
    }

    /// The measurements so far.
    pub fn times(&self) -> ServiceTimes {
        self.0.times()
    }
}

/// The program of one host.
#[derive(Debug)]
pub struct ServiceHost {
    core: Core,
    front: Option<Front>,
    leader: Option<Leader>,
    stage: Option<Stage>,
    lanes: CacheLanes,
}

impl ServiceHost {
    fn new(shared: &Arc<Shared>, me: u32) -> ServiceHost {
        let service = &shared.service;
        let mut core = Core::new(Arc::clone(shared), me);
        let front = (service.router == me).then(|| Front::new(&mut core));
        let seat = service.replicas.iter().zip(0..).find_map(|(replica, number)| {
            let stage = replica.stages.iter().position(|stage| stage.contains(&me))?;
            Some((replica, number, stage as u32))
        });
        let leader = seat.filter(|(replica, ..)| replica.leader() == me).map(|(_, number, _)| number);
        let leader = leader.map(|number| Leader::new(service, number));
        let stage = seat.map(|(_, number, stage)| Stage::new(service, number, stage, me));
        let lanes = CacheLanes::new(seat.map_or(0, |(_, number, _)| number));
        ServiceHost { core, front, leader, stage, lanes }
    }

    /// Handles contents, and all that this host sends itself because of them.
    fn handle(&mut self, now: Time, from: u32, content: Content) {
        self.core.local.push_back((from, content));
        self.handle_local(now);
    }

    fn handle_local(&mut self, now: Time) {
        while let Some((from, content)) = self.core.local.pop_front() {
            let core = &mut self.core;
            match content {
                Content::Computed { .. } | Content::Done { .. } => {
                    if let Some(front) = &mut self.front {
                        front.handle(core, now, content);
                    }
                }
                Content::Request { .. }
                | Content::Reserve { .. }
                | Content::Grant { .. }
                | Content::LaneSent { .. }
                | Content::LaneArrived { .. }
                | Content::Stepped { .. } => {
                    if let Some(leader) = &mut self.leader {
                        leader.handle(core, now, content);
                        self.begin_steps(now);
                    }
                }
                Content::Send { .. }
                | Content::Granted { .. }
                | Content::Cache { .. }
                | Content::Ready { .. }
                | Content::Read { .. } => self.lanes.handle(core, now, from, content),
                Content::Begin { .. }
                | Content::Ended { .. }
                | Content::Round { .. }
                | Content::Forward { .. }
                | Content::Activations { .. }
                | Content::Arrived { .. } => {
                    if let Some(stage) = &mut self.stage {
                        stage.handle(core, now, content);
                    }
                    self.begin_steps(now);
                }
            }
        }
    }

    /// Begins steps while the first stage is free.
    fn begin_steps(&mut self, now: Time) {
        let (Some(leader), Some(stage)) = (&mut self.leader, &mut self.stage) else { return };
        while stage.is_free() {
            let Some((step, work)) = leader.begin(&mut self.core, now) else { return };
            stage.begin(&mut self.core, now, step, work);
        }
    }

    fn handle_timer(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Arrival => {
                if let Some(front) = &mut self.front {
                    front.arrive(&mut self.core, now);
                }
            }
            Timer::Piece { request, lane, bytes, last } => {
                self.lanes.piece(&mut self.core, now, request, lane, bytes, last);
            }
            Timer::Computed { .. } | Timer::Exchange | Timer::Inside => {
                if let Some(stage) = &mut self.stage {
                    stage.handle_timer(&mut self.core, now, timer);
                }
            }
        }
        self.handle_local(now);
        self.begin_steps(now);
        self.handle_local(now);
    }
}

impl Application for ServiceHost {
    fn handle_event(&mut self, now: Time, event: &Event) {
        match *event {
            Event::Received { message, .. } => {
                if let Some((from, content)) = self.core.shared.take(message.0) {
                    self.handle(now, from, content);
                }
            }
            Event::Sent { message } => {
                let Some(sent) = self.core.sending.remove(&message.0) else { return };
                if let Content::Cache { request, lane, .. } = sent.content {
                    self.lanes.sent(&mut self.core, now, request, lane, sent.bytes);
                    self.handle_local(now);
                }
            }
            Event::Signal { word: u32::MAX, order } if order == self.core.service.order => {
                while let Some((from, content)) = self.core.shared.due(self.core.me, now) {
                    self.handle(now, from, content);
                }
            }
            Event::Failed { peer } => {
                if let Some(to) = self.core.service.place_of(peer) {
                    self.core.begin_again(to);
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(timer) = self.core.due(now) {
            self.handle_timer(now, timer);
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        self.core.actions.pop_front()
    }

    fn poll_timeout(&self) -> Time {
        self.core.next_timer()
    }

    fn owns(&self, message: MessageId) -> bool {
        self.core.service.all_numbers().contains(&message.0)
    }

    fn note_account(&mut self, message: MessageId, account: &Account<'_>) {
        let shared = &self.core.shared;
        match *account {
            Account::Sent(spent) => {
                if let Some(Content::Cache { request, .. }) = self.core.sending.get(&message.0).map(|one| one.content) {
                    shared.note(request, |times| times.spent += *spent);
                }
            }
            Account::Received { now, before } => {
                if let Some(Content::Cache { request, .. }) = shared.peek(message.0) {
                    shared.note(request, |times| times.waited.add(now, before));
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.front.as_ref().is_none_or(Front::is_done) && self.core.is_idle()
    }
}
