//! The router's process: requests arrive here, are sent to their replicas, and end here.

use crate::core::{Core, Timer};
use crate::plan::{CONTROL_BYTES, Class};
use crate::requests::Arrivals;
use crate::router::Router;
use crate::shared::Content;
use strandway_proto::units::Time;

/// Bytes of a token of a prompt in a request: a 32-bit number.
const TOKEN_BYTES: u64 = 4;

/// The router's process.
#[derive(Debug)]
pub(crate) struct Front {
    router: Router,
    /// The next request.
    next: u32,
    done: u32,
    all: u32,
}

impl Front {
    pub(crate) fn new(core: &mut Core) -> Front {
        let service = &core.service;
        let (prefill, all) = (service.prefill, service.replicas.len() as u32);
        let limits = service.replicas[0].limits;
        let fits = (limits.tokens / u64::from(limits.block.max(1))) as usize;
        let router = Router::new(service.policy, prefill, all - prefill, limits.block, fits);
        let begins = service.requests.first().map(|request| request.at);
        let (all, users) = match service.arrivals {
            Arrivals::Open => (service.requests.len() as u32, 1),
            Arrivals::Closed { users, .. } => (service.requests.len() as u32, users),
        };
        for _ in 0..users.min(all) {
            core.at(begins.unwrap_or_default(), Timer::Arrival);
        }
        Front { router, next: 0, done: 0, all }
    }

    /// A request arrives.
    pub(crate) fn arrive(&mut self, core: &mut Core, now: Time) {
        let service = std::sync::Arc::clone(&core.service);
        let Some(request) = service.requests.get(self.next as usize) else { return };
        let number = self.next;
        self.next += 1;
        let choice = self.router.route(number, request);
        let decode = choice.decode.map(|decode| service.prefill + decode);
        core.shared.note(number, |times| {
            (times.arrived, times.prefill, times.decode) = (now, choice.prefill, decode);
        });
        let to = service.replicas[choice.prefill as usize].leader();
        let bytes = CONTROL_BYTES + TOKEN_BYTES * u64::from(request.input);
        let content = Content::Request { request: number, decode: decode.unwrap_or(u32::MAX) };
        core.send(now, to, Class::Control, bytes, content);
        if let (Arrivals::Open, Some(next)) = (service.arrivals, service.requests.get(self.next as usize)) {
            core.at(next.at.max(now), Timer::Arrival);
        }
    }

    pub(crate) fn handle(&mut self, core: &mut Core, now: Time, content: Content) {
        match content {
            Content::Computed { request } => self.router.computed(request),
            Content::Done { request } => {
                self.router.done(request, core.service.requests[request as usize].input);
                self.done += 1;
                if let Arrivals::Closed { think, .. } = core.service.arrivals
                    && self.next < self.all
                {
                    core.at(now + think, Timer::Arrival);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.all
    }
}
