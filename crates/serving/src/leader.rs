//! The process that leads a replica: its scheduler, and the KV caches that it sends and gets.

use crate::batch::{Batcher, Progress, Role, Step};
use crate::core::Core;
use crate::plan::Service;
use crate::shared::Content;
use crate::timing::Work;
use std::collections::BTreeMap;
use strandway_fabric::requests::LoadPoint;
use strandway_proto::units::{Span, Time};

/// The leader of a replica.
#[derive(Debug)]
pub(crate) struct Leader {
    replica: u32,
    role: Role,
    batcher: Batcher,
    /// Steps under way.
    steps: BTreeMap<u32, Step>,
    next: u32,
    /// Requests of a prefill replica: the decode replica, and how many NICs' lanes have ended.
    leaving: BTreeMap<u32, (u32, u32)>,
    /// Requests of a decode replica: the prefill replica, and how many lanes have arrived.
    coming: BTreeMap<u32, (u32, u32)>,
    /// When each request got its latest token.
    latest: BTreeMap<u32, Time>,
}

/// The NICs of a replica that have lanes to another one, each once.
fn nics(service: &Service, prefill: u32, decode: u32, sender: bool) -> Vec<u32> {
    let mut nics: Vec<u32> = service.lanes(prefill, decode).map(|(from, to)| if sender { from } else { to }).collect();
    nics.dedup();
    nics
}

impl Leader {
    pub(crate) fn new(service: &Service, replica: u32) -> Leader {
        let plan = &service.replicas[replica as usize];
        Leader {
            replica,
            role: plan.role,
            batcher: Batcher::new(plan.role, plan.limits),
            steps: BTreeMap::new(),
            next: 0,
            leaving: BTreeMap::new(),
            coming: BTreeMap::new(),
            latest: BTreeMap::new(),
        }
    }

    pub(crate) fn handle(&mut self, core: &mut Core, now: Time, content: Content) {
        match content {
            Content::Request { request, decode } => {
                core.shared.note(request, |times| times.queued = now);
                if self.role == Role::Prefill {
                    self.leaving.insert(request, (decode, 0));
                }
                self.push(core, request);
            }
            Content::Reserve { request, prefill } => {
                self.coming.insert(request, (prefill, 0));
                self.push(core, request);
            }
            Content::Grant { request } => {
                if let Some(&(decode, _)) = self.leaving.get(&request) {
                    self.grant(core, now, request, self.replica, decode, true);
                }
            }
            Content::LaneSent { request } => {
                let Some((decode, ended)) = self.leaving.get_mut(&request) else { return };
                *ended += 1;
                if *ended as usize == core.service.lanes(self.replica, *decode).count() {
                    self.leaving.remove(&request);
                    self.batcher.release(request);
                }
            }
            Content::LaneArrived { request } => {
                let Some((prefill, arrived)) = self.coming.get_mut(&request) else { return };
                *arrived += 1;
                if *arrived as usize == core.service.lanes(*prefill, self.replica).count() {
                    self.coming.remove(&request);
                    core.shared.note(request, |times| times.transferred = now);
                    self.batcher.arrived(request);
                }
            }
            Content::Stepped { step } => self.finish(core, now, step),
            _ => {}
        }
        self.admit(core, now);
    }

    fn push(&mut self, core: &Core, request: u32) {
        let known = &core.service.requests[request as usize];
        self.batcher.push(request, known.input, known.output, known.hashes.clone());
    }

    /// Tells the NICs of this replica that the memory of a request is reserved.
    fn grant(&self, core: &mut Core, now: Time, request: u32, prefill: u32, decode: u32, sender: bool) {
        for nic in nics(&core.service, prefill, decode, sender) {
            core.notify(now, nic, Content::Granted { request });
        }
    }

    /// Admits waiting requests. In a decode pool, their caches may be sent from now on.
    fn admit(&mut self, core: &mut Core, now: Time) {
        for request in self.batcher.admit() {
            let Some(&(prefill, _)) = self.coming.get(&request) else { continue };
            core.shared.note(request, |times| times.reserved = now);
            if core.service.transfer.pull {
                self.grant(core, now, request, prefill, self.replica, false);
            } else {
                let to = core.service.replicas[prefill as usize].leader();
                core.notify(now, to, Content::Grant { request });
            }
        }
    }

    /// Begins the next step, if there is something to compute.
    pub(crate) fn begin(&mut self, core: &mut Core, now: Time) -> Option<(u32, Work)> {
        self.admit(core, now);
        let step = self.batcher.next_step()?;
        let (number, work) = (self.next, step.work);
        self.next += 1;
        let point = LoadPoint {
            at: now,
            waiting: self.batcher.waiting(),
            running: self.batcher.running(),
            held: self.batcher.held(),
        };
        core.shared.note_load(self.replica, point);
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        let layered = service.transfer.groups > 0 && self.role == Role::Prefill;
        // If messages of the fabric are part of a step, nobody knows at its beginning when a layer will be computed.
        let early = layered && plan.exchange.is_none() && plan.stages.len() == 1;
        let span = if early { service.timing.stage(&plan.shape, &work) } else { Span::ZERO };
        for part in &step.parts {
            if part.prompt == 0 {
                if self.role == Role::Decode && part.before == service.requests[part.request as usize].input {
                    core.shared.note(part.request, |times| times.joined = now);
                }
                continue;
            }
            let cached = self.batcher.cached(part.request);
            let first = part.before == cached;
            if first {
                core.shared.note(part.request, |times| (times.begun, times.cached) = (now, cached));
            }
            if first && layered {
                self.reserve(core, now, part.request);
            }
            if early {
                let tokens = part.prompt + if first { cached } else { 0 };
                self.send(core, now, part.request, tokens, (now, span), service.transfer.groups, part.last);
            }
        }
        self.steps.insert(number, step);
        Some((number, work))
    }

    /// Asks the decode replica for memory.
    fn reserve(&self, core: &mut Core, now: Time, request: u32) {
        let Some(&(decode, _)) = self.leaving.get(&request) else { return };
        let to = core.service.replicas[decode as usize].leader();
        core.notify(now, to, Content::Reserve { request, prefill: self.replica });
    }

    /// Has the NICs send a part of a KV cache.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &self,
        core: &mut Core,
        now: Time,
        request: u32,
        tokens: u32,
        (start, span): (Time, Span),
        groups: u32,
        last: bool,
    ) {
        let Some(&(decode, _)) = self.leaving.get(&request) else { return };
        for nic in nics(&core.service, self.replica, decode, true) {
            core.notify(now, nic, Content::Send { request, decode, tokens, start, span, groups, last });
        }
    }

    /// A step has ended.
    fn finish(&mut self, core: &mut Core, now: Time, number: u32) {
        let Some(step) = self.steps.remove(&number) else { return };
        let service = std::sync::Arc::clone(&core.service);
        let plan = &service.replicas[self.replica as usize];
        let layered = service.transfer.groups > 0;
        if self.role == Role::Prefill && layered && (plan.exchange.is_some() || plan.stages.len() > 1) {
            for part in &step.parts {
                let cached = self.batcher.cached(part.request);
                let tokens = part.prompt + if part.before == cached { cached } else { 0 };
                self.send(core, now, part.request, tokens, (now, Span::ZERO), 1, part.last);
            }
        }
        for progress in self.batcher.finish(&step) {
            match progress {
                Progress::Computed(request) => {
                    core.shared.note(request, |times| times.computed = now);
                    core.notify(now, service.router, Content::Computed { request });
                    if self.role == Role::Prefill && !layered {
                        self.reserve(core, now, request);
                        let input = service.requests[request as usize].input;
                        self.send(core, now, request, input, (now, Span::ZERO), 1, true);
                    }
                }
                Progress::Token(request, token) => self.note_token(core, now, request, token),
                Progress::Finished(request) => {
                    self.latest.remove(&request);
                    core.shared.note(request, |times| times.ended = now);
                    core.notify(now, service.router, Content::Done { request });
                }
            }
        }
    }

    /// A request has another token.
    fn note_token(&mut self, core: &Core, now: Time, request: u32, token: u32) {
        match self.latest.insert(request, now) {
            Some(before) if token > 1 => {
                let gap = now.since(before);
                core.shared.note_gap(self.replica, gap);
                core.shared.note(request, |times| times.gap_max = times.gap_max.max(gap));
            }
            _ => core.shared.note(request, |times| times.first = now),
        }
    }
}
