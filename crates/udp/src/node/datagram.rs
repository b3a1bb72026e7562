//! Hands each arriving datagram to the connection that it names, or to the handshake.

use super::{Node, State};
use crate::error::Reason;
use crate::frame::{self, Frame, Kind};
use crate::session::NodeContext;
use crate::socket::Arrival;
use strandway_proto::Time;

impl Node {
    /// A datagram arrived.
    pub(super) fn handle(&mut self, now: Time, plane: usize, arrival: &Arrival, datagram: &mut [u8]) {
        let from = arrival.from;
        let length = datagram.len();
        let sealed = match frame::decode(datagram) {
            Ok(Frame::Sealed(sealed)) => sealed,
            Ok(Frame::Hello { connection, cookie, noise, .. }) => {
                let (cookie, noise) = (*cookie, *noise);
                return self.handle_hello(now, plane, from, connection, &cookie, &noise, length);
            }
            Ok(Frame::Retry { connection, cookie }) => {
                let cookie = *cookie;
                return self.handle_retry(now, plane, from, connection, &cookie);
            }
            Ok(Frame::Welcome { connection, noise }) => {
                let noise = *noise;
                return self.handle_welcome(now, plane, connection, &noise);
            }
            Ok(Frame::Refusal { connection, reason }) => {
                if let Some((_, calling)) = self.calling(connection)
                    && calling.is_peer(plane, from)
                {
                    calling.hint = Some(if reason == 2 { Reason::WrongVersion } else { Reason::WrongKey });
                }
                return;
            }
            Ok(Frame::Probe { echo, length, number, proof }) => {
                let proof = *proof;
                return self.handle_probe(now, plane, from, (echo, number, length), &proof);
            }
            Err(error) => {
                self.counters.malformed += 1;
                if let frame::FrameError::Version(version) = error
                    && length >= frame::HELLO
                    && let Some(id) = datagram.get(4..).and_then(|rest| rest.first_chunk())
                {
                    // The answer is shorter than the datagram that caused it, and only a datagram as long as a hello
                    // gets one.
                    let refusal = frame::refusal(version, plane as u8, u64::from_be_bytes(*id), 2);
                    self.counters.refuse(Reason::WrongVersion);
                    self.reply(plane, from, &refusal);
                }
                return;
            }
        };
        if matches!(sealed.kind, Kind::Chunk | Kind::Word) {
            return self.handle_of_group(plane, arrival, &sealed, datagram);
        }
        let index = match self.table.recent {
            Some((id, index)) if id == sealed.connection => index,
            _ => match self.table.ids.get(&sealed.connection) {
                Some(&index) => index,
                None => {
                    self.counters.strays += 1;
                    return;
                }
            },
        };
        self.table.recent = Some((sealed.connection, index));
        let Some(State::Open(session)) = &mut self.table.slots[index as usize].state else {
            self.counters.strays += 1;
            return;
        };
        let mut around = node_context!(self, now);
        let unconfirmed = !session.is_confirmed();
        let outcome = session.handle(&mut around, plane, arrival, &sealed, datagram);
        if unconfirmed && session.is_confirmed() {
            let caller = session.remote();
            self.table.slots[index as usize].hello = None;
            self.table.unconfirmed.retain(|&other| other != index);
            self.end_twins(caller);
        }
        self.join_monitors(now);
        self.make_ready(index);
        self.wake_waiting();
        if let Err(reason) = outcome {
            let tell = matches!(reason, Reason::RemoteAccess | Reason::TooLong | Reason::Violation);
            self.end(index as usize, reason, tell);
        }
    }
}
