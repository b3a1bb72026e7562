//! A stage of a replica: the steps that it computes, and the messages between its servers in each layer.
//!
//! The stage's leader says when a step begins. If all communication stays in servers, the leader alone waits for the
//! end of the computation. Otherwise each NIC goes through the rounds of the step on its own: it computes, sends what
//! the round needs, and goes on when it has everything of that round.

use crate::core::{Core, Timer};
use crate::plan::{Class, Exchange, Round, Service};
use crate::shared::Content;
use crate::timing::Work;
use std::collections::{BTreeMap, VecDeque};
use strandway_proto::units::{Span, Time};

/// A step that goes through its rounds.
#[derive(Clone, Copy, Debug)]
struct Going {
    step: u32,
    work: Work,
    span: Span,
    round: u32,
    /// Has this NIC sent its messages of the round?
    sent: bool,
    /// Have the links inside the server done their part?
    inside: bool,
}

/// One NIC's part in a stage, and the stage's leader.
#[derive(Debug)]
pub(crate) struct Stage {
    replica: u32,
    stage: u32,
    place: u32,
    leads: bool,
    going: Option<Going>,
    /// Messages of rounds that have arrived.
    heard: BTreeMap<(u32, u32), u32>,
    /// For the leader: steps that wait, the step that is computed, and the NICs where it has ended.
    waiting: VecDeque<(u32, Work)>,
    computing: Option<(u32, Work)>,
    ended: u32,
    /// Activations of steps that have arrived.
    arrived: BTreeMap<u32, u32>,
}

impl Stage {
    pub(crate) fn new(service: &Service, replica: u32, stage: u32, me: u32) -> Stage {
        let nics = &service.replicas[replica as usize].stages[stage as usize];
        Stage {
            replica,
            stage,
            place: nics.iter().position(|nic| *nic == me).unwrap_or(0) as u32,
            leads: nics[0] == me,
            going: None,
            heard: BTreeMap::new(),
            waiting: VecDeque::new(),
            computing: None,
            ended: 0,
            arrived: BTreeMap::new(),
        }
    }

    /// Can the stage begin a step?
    pub(crate) fn is_free(&self) -> bool {
        self.leads && self.computing.is_none() && self.waiting.is_empty()
    }

    /// Begins a step, for the leader of the stage.
    pub(crate) fn begin(&mut self, core: &mut Core, now: Time, step: u32, work: Work) {
        self.waiting.push_back((step, work));
        self.next(core, now);
    }

    fn next(&mut self, core: &mut Core, now: Time) {
        if self.computing.is_some() {
            return;
        }
        let Some((step, work)) = self.waiting.pop_front() else { return };
        self.computing = Some((step, work));
        self.ended = 0;
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        let span = service.timing.stage(&plan.shape, &work);
        if plan.exchange.is_none() {
            core.at(now + span, Timer::Computed { step });
            return;
        }
        for &nic in &plan.stages[self.stage as usize] {
            core.notify(now, nic, Content::Begin { step, work, span });
        }
    }

    pub(crate) fn handle(&mut self, core: &mut Core, now: Time, content: Content) {
        match content {
            Content::Begin { step, work, span } => {
                self.going = Some(Going { step, work, span, round: 0, sent: false, inside: false });
                self.compute(core, now);
            }
            Content::Round { step, round } => {
                *self.heard.entry((step, round)).or_default() += 1;
                self.advance(core, now);
            }
            Content::Ended { step } => {
                self.ended += 1;
                let nics = core.service.replicas[self.replica as usize].stages[self.stage as usize].len();
                if self.ended as usize == nics {
                    self.complete(core, now, step);
                }
            }
            Content::Forward { step, work } => {
                let service = std::sync::Arc::clone(&core.service);
                let stages = &service.replicas[self.replica as usize].stages;
                let (here, there) = (&stages[self.stage as usize], &stages[self.stage as usize + 1]);
                let to = there[self.place as usize * there.len() / here.len()];
                let whole = work.tokens() * service.activation;
                let bytes = Service::part(whole, here.len() as u64, self.place.into()).max(1);
                core.send(now, to, Class::Stage, bytes, Content::Activations { step, work });
            }
            Content::Activations { step, work } => {
                let leader = core.service.replicas[self.replica as usize].stages[self.stage as usize][0];
                core.notify(now, leader, Content::Arrived { step, work });
            }
            Content::Arrived { step, work } => {
                let arrived = self.arrived.entry(step).or_default();
                *arrived += 1;
                if *arrived == self.senders(core) {
                    self.arrived.remove(&step);
                    self.begin(core, now, step, work);
                }
            }
            _ => {}
        }
    }

    /// Does the stage before this one share a server with it?
    fn shares_server(&self, core: &Core, next: bool) -> bool {
        let (service, stages) = (&core.service, &core.service.replicas[self.replica as usize].stages);
        let other = if next { self.stage + 1 } else { self.stage - 1 };
        let server = |stage: u32| service.servers[stages[stage as usize][0] as usize];
        server(other) == server(self.stage)
    }

    /// How many NICs send activations to this stage.
    fn senders(&self, core: &Core) -> u32 {
        if self.shares_server(core, false) {
            return 1;
        }
        core.service.replicas[self.replica as usize].stages[self.stage as usize - 1].len() as u32
    }

    pub(crate) fn handle_timer(&mut self, core: &mut Core, now: Time, timer: Timer) {
        match timer {
            Timer::Computed { step } => self.complete(core, now, step),
            Timer::Exchange => self.exchange(core, now),
            Timer::Inside => {
                if let Some(going) = &mut self.going {
                    going.inside = true;
                }
                self.advance(core, now);
            }
            _ => {}
        }
    }

    /// The stage has computed a step.
    fn complete(&mut self, core: &mut Core, now: Time, step: u32) {
        let Some((_, work)) = self.computing.take() else { return };
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        if self.stage as usize + 1 == plan.stages.len() {
            core.notify(now, plan.leader(), Content::Stepped { step });
        } else if self.shares_server(core, true) {
            // The links inside the server carry the activations of all GPUs side by side.
            let to = plan.stages[self.stage as usize + 1][0];
            core.notify(now, to, Content::Arrived { step, work });
        } else {
            for &nic in &plan.stages[self.stage as usize] {
                core.notify(now, nic, Content::Forward { step, work });
            }
        }
        self.next(core, now);
    }

    /// Computes what comes before the messages of the present round.
    fn compute(&mut self, core: &mut Core, now: Time) {
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        let (Some(going), Some(exchange)) = (&self.going, &plan.exchange) else { return };
        let nics = plan.stages[self.stage as usize].len() as u64;
        let span = before(exchange, going.round, going.span, self.place, nics);
        core.at(now + span, Timer::Exchange);
    }

    /// Sends the messages of the present round.
    fn exchange(&mut self, core: &mut Core, now: Time) {
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        let (Some(going), Some(exchange)) = (&mut self.going, &plan.exchange) else { return };
        let nics = &plan.stages[self.stage as usize];
        let (step, round) = (going.step, going.round);
        let mut inside = 0;
        let me = core.me;
        for (at, &nic) in nics.iter().enumerate().filter(|(_, nic)| **nic != me) {
            let bytes = bytes_to(exchange, round, going.work.tokens(), self.place, at as u32, nics.len() as u64);
            if service.servers[nic as usize] == service.servers[core.me as usize] {
                inside += bytes.unwrap_or(0);
            } else if is_peer(&service, exchange, round, nics, self.place, at as u32) {
                core.post(nic, Class::Exchange, bytes.unwrap_or(0).max(1), Content::Round { step, round });
            }
        }
        going.sent = true;
        going.inside = inside == 0;
        if inside > 0 {
            // A NIC stands for the GPUs that share it.
            let gpus = u64::from(plan.shape.gpus).div_ceil(nics.len() as u64);
            core.at(now + service.inside(inside / gpus.max(1)), Timer::Inside);
        }
        self.advance(core, now);
    }

    /// Goes on to the next round if the present one is over.
    fn advance(&mut self, core: &mut Core, now: Time) {
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        let (Some(going), Some(exchange)) = (&mut self.going, &plan.exchange) else { return };
        let key = (going.step, going.round);
        let nics = &plan.stages[self.stage as usize];
        let peers = (0..nics.len() as u32)
            .filter(|&at| is_peer(&service, exchange, going.round, nics, self.place, at))
            .count() as u32;
        if !going.sent || !going.inside || self.heard.get(&key).copied().unwrap_or(0) < peers {
            return;
        }
        self.heard.remove(&key);
        going.round += 1;
        (going.sent, going.inside) = (false, false);
        if going.round < exchange.rounds() {
            self.compute(core, now);
            return;
        }
        self.going = None;
        core.notify(now, nics[0], Content::Ended { step: key.0 });
    }
}

/// The computation before the messages of a round. Experts compute longer where more tokens go.
fn before(exchange: &Exchange, round: u32, span: Span, place: u32, nics: u64) -> Span {
    let (layer, kind) = exchange.kind(round);
    let layers = u64::from(exchange.layers.max(1));
    let part = |share: u64| Span((u128::from(span.0) * u128::from(share) / 1000 / u128::from(layers)) as u64);
    let experts = exchange.experts.as_ref();
    let network = experts.map_or(500, |experts| u64::from(experts.compute));
    let first = round.is_multiple_of(exchange.per_layer());
    match kind {
        Round::Combine => {
            let share = experts.map_or(0, |experts| share_of(&experts.shares, layer, place));
            Span((u128::from(part(network).0) * u128::from(share) * u128::from(nics) / 1_000_000) as u64)
        }
        _ if first => part(1000 - network),
        Round::Scatter if experts.is_none() => part(network),
        _ => Span::ZERO,
    }
}

fn share_of(shares: &[Vec<u32>], layer: u32, place: u32) -> u64 {
    let of = &shares[layer as usize % shares.len()];
    u64::from(of[place as usize])
}

/// Do two NICs of a stage exchange messages of the fabric in this round?
fn is_peer(service: &Service, exchange: &Exchange, round: u32, nics: &[u32], one: u32, other: u32) -> bool {
    let server = |at: u32| service.servers[nics[at as usize] as usize];
    if server(one) == server(other) {
        return false;
    }
    match exchange.kind(round).1 {
        Round::Dispatch | Round::Combine => true,
        // All-reduces have a part inside each server; between servers, NICs of the same place exchange their parts.
        Round::Scatter | Round::Gather => {
            let each = (0..nics.len() as u32).filter(|&at| server(at) == server(0)).count() as u32;
            one % each == other % each
        }
    }
}

/// Bytes from one NIC of a stage to another in a round.
fn bytes_to(exchange: &Exchange, round: u32, tokens: u64, from: u32, to: u32, nics: u64) -> Option<u64> {
    let (layer, kind) = exchange.kind(round);
    let visits = |bytes: u64, share: u64, top_k: u64| {
        (u128::from(tokens.div_ceil(nics)) * u128::from(top_k * bytes * share) / 1_000_000) as u64
    };
    Some(match kind {
        Round::Scatter | Round::Gather => tokens * exchange.reduce? / nics,
        Round::Dispatch => {
            let experts = exchange.experts.as_ref()?;
            visits(experts.there, share_of(&experts.shares, layer, to), experts.top_k)
        }
        Round::Combine => {
            let experts = exchange.experts.as_ref()?;
            visits(experts.back, share_of(&experts.shares, layer, from), experts.top_k)
        }
    })
}
