//! How connections come about: hellos and their answers, from both sides.

use super::{Answered, Calling, Completion, Connection, Node, State};
use crate::clock::span;
use crate::error::Reason;
use crate::frame::{self, COOKIE, NOISE_HELLO, NOISE_WELCOME};
use crate::handshake::{Answer, COOKIE_SECONDS};
use crate::plane::Class;
use crate::secure::random;
use crate::session::{Opening, Session};
use std::net::SocketAddrV6;
use strandway_proto::{PathId, Span, Time};

/// First wait for an answer to a hello; doubles up to 16 times that. Ours.
const HELLO_AGAIN: Span = Span::from_ms(50);

impl Node {
    /// Says hello again, or gives up.
    pub(super) fn call(&mut self, index: usize, now: Time) {
        let Some(State::Calling(calling)) = &mut self.slots[index].state else { return };
        if now.since(calling.began) > span(self.config.handshake_timeout) {
            let reason = calling.hint.unwrap_or(Reason::NoAnswer);
            return self.end(index, reason, true);
        }
        if calling.again > now {
            return;
        }
        // Another plane each time: one of them may be dead.
        let plane = calling.tries % self.planes.len();
        calling.tries += 1;
        let rounds = (calling.tries / self.planes.len()).min(4);
        calling.again = now + Span(HELLO_AGAIN.0 << rounds);
        let length = self.config.datagram();
        let hello = frame::hello(plane as u8, calling.id, &calling.cookie, &calling.caller.hello, length);
        let path = PathId::new(plane as u8, rounds as u32);
        // From the plane's own port, where the answer can be received.
        let (to, _) = self.config.routes.resolve(calling.peers[plane], path);
        self.planes[plane].push((to, 0), Class::Control, hello.len(), |out| out.extend_from_slice(&hello));
    }

    pub(super) fn reply(&mut self, plane: usize, to: SocketAddrV6, datagram: &[u8]) {
        // A full socket forgets it: nothing is kept for strangers.
        if self.planes[plane].is_free() {
            // Over another path each time: one of them may be dead.
            self.replies = self.replies.wrapping_add(1);
            let (to, _) = self.config.routes.resolve(to, PathId::new(plane as u8, self.replies));
            // From the port that was asked.
            self.planes[plane].push((to, 0), Class::Control, datagram.len(), |out| out.extend_from_slice(datagram));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a datagram's parts and where it came from")]
    pub(super) fn handle_hello(
        &mut self,
        now: Time,
        plane: usize,
        from: SocketAddrV6,
        id: u64,
        cookie: &[u8; COOKIE],
        noise: &[u8; NOISE_HELLO],
        length: usize,
    ) {
        if !self.config.accept || length < frame::HELLO {
            return;
        }
        if !self.cookies.holds(now, from.into(), id, noise, cookie) {
            self.counters.retries += 1;
            let cookie = self.cookies.make(now, from.into(), id, noise);
            return self.reply(plane, from, &frame::retry(plane as u8, id, &cookie));
        }
        if let Some(answered) = self.answered.get(noise) {
            let welcome = frame::welcome(plane as u8, id, &answered.welcome);
            return self.reply(plane, from, &welcome);
        }
        let Some(answer) = Answer::new(&self.config.secret, id, noise, &self.terms) else {
            self.counters.wrong_key += 1;
            return self.reply(plane, from, &frame::refusal(plane as u8, id, 1));
        };
        self.counters.handshakes += 1;
        // Twice a cookie's life, then no cookie can bring that hello back.
        let old = Span::from_ms(2_000 * COOKIE_SECONDS);
        self.answered.retain(|_, answered| now.since(answered.at) < old);
        let full = self.open >= self.config.connections_max || self.answered.len() >= 4 * self.config.connections_max;
        let verdict = answer.differ.or(full.then_some(Reason::PeerFull));
        let Ok(ours) = self.fresh_id() else { return };
        let Some((welcome, secrets)) = answer.finish(verdict, ours) else { return };
        if verdict.is_none() {
            let mut peers = vec![None; self.planes.len()];
            peers[plane] = Some(from);
            let Ok(seed) = random() else { return };
            let seed = u64::from_be_bytes(seed);
            let handle = self.next_handle();
            let opening = Opening {
                handle,
                remote: id,
                secrets: &secrets,
                calls: false,
                peers,
                profile: self.profile.clone(),
                environment: self.environment,
                seed,
            };
            let session = Session::new(now, &self.config, opening);
            if self.occupy(ours, State::Open(Box::new(session))).is_err() {
                return;
            }
        }
        if self.answered.len() < 4 * self.config.connections_max {
            self.answered.insert(*noise, Answered { at: now, welcome });
        }
        self.reply(plane, from, &frame::welcome(plane as u8, id, &welcome));
    }

    pub(super) fn handle_welcome(&mut self, now: Time, id: u64, noise: &[u8; NOISE_WELCOME]) {
        let Some((index, calling)) = self.calling(id) else { return };
        let Some(outcome) = calling.caller.finish(noise) else {
            self.counters.malformed += 1;
            return;
        };
        let peers = calling.peers.iter().map(|&address| Some(address)).collect();
        match outcome {
            Err(reason) => self.end(index, reason, true),
            Ok((remote, secrets)) => {
                let Ok(seed) = random() else { return };
                let handle = Connection { index: index as u32, generation: self.slots[index].generation };
                let opening = Opening {
                    handle,
                    remote,
                    secrets: &secrets,
                    calls: true,
                    peers,
                    profile: self.profile.clone(),
                    environment: self.environment,
                    seed: u64::from_be_bytes(seed),
                };
                let session = Session::new(now, &self.config, opening);
                self.slots[index].state = Some(State::Open(Box::new(session)));
                self.completions.push_back(Completion::Connected { connection: handle });
            }
        }
    }

    pub(super) fn calling(&mut self, id: u64) -> Option<(usize, &mut Calling)> {
        let index = *self.ids.get(&id)? as usize;
        match &mut self.slots[index].state {
            Some(State::Calling(calling)) => Some((index, calling)),
            _ => None,
        }
    }
}
