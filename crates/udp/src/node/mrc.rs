//! Datagrams of MRC's layout at a node: to which connection they go, and the requests between NICs, which name none.

use super::{Node, State};
use crate::layout::Layout;
use crate::session::{Inner, NodeContext};
use crate::socket::Arrival;
use std::sync::atomic::{AtomicU32, Ordering};
use strandway_proto::Time;
use strandway_wire::ocp::{self, Body, Datagram, NIC_QUEUE};

/// Queue pairs below this are for management and for requests between NICs.
const FIRST_QUEUE: u32 = 3;
const QUEUES: u32 = (1 << 24) - FIRST_QUEUE;

/// The next queue pair of this process. Raw sockets of several nodes at one address get each other's datagrams, so no
/// two of them may have the same.
static NEXT_QUEUE: AtomicU32 = AtomicU32::new(0);

/// A number for a connection whose low 24 bits are a queue pair that no other node of this process has.
pub(super) fn number_with_queue(random: u64) -> u64 {
    let _ = NEXT_QUEUE.compare_exchange(0, random as u32 | 1, Ordering::Relaxed, Ordering::Relaxed);
    let queue = FIRST_QUEUE + NEXT_QUEUE.fetch_add(1, Ordering::Relaxed) % QUEUES;
    random & !0xff_ffff | u64::from(queue)
}

impl Node {
    /// An inner datagram arrived by the raw socket of a plane.
    pub(super) fn handle_inner(&mut self, now: Time, socket: usize, arrival: &Arrival, bytes: &[u8]) {
        let Layout::Mrc { port } = self.config.layout else { return };
        match ocp::read(bytes, port) {
            Ok((datagram, payload)) => {
                let Some(plane) = self.plane_of(socket, datagram.entropy, datagram.destination) else { return };
                let inner = Inner { datagram: &datagram, payload, bytes: bytes.len() };
                if datagram.queue == NIC_QUEUE {
                    self.handle_between_nics(now, plane, &datagram);
                } else {
                    self.handle_queue(now, plane, arrival, inner);
                }
            }
            Err(error) => {
                // A trimmed packet has neither its lengths nor its ICRC, so only the DSCP tells.
                let above = arrival.dscp().checked_sub(self.config.control_dscp);
                if let (true, Some(above @ (0 | 1)), Ok(trimmed)) =
                    (self.config.trimming, above, ocp::read_trimmed(bytes, port))
                {
                    let Some(plane) = self.plane_of(socket, trimmed.entropy, trimmed.destination) else { return };
                    let Some(&index) = self.table.queues.get(&trimmed.queue) else { return };
                    if let Some(State::Open(session)) = &mut self.table.slots[index as usize].state
                        && session.is_from(plane, trimmed.source)
                    {
                        session.handle_trimmed_mrc(now, arrival, &trimmed, above == 1);
                        self.make_ready(index);
                    }
                    return;
                }
                self.counters.malformed += 1;
                self.counters.wrong_icrc += u64::from(error == strandway_wire::WireError::Checksum);
            }
        }
    }

    /// The plane of a datagram: the one in its EV if that has the datagram's destination, or else the one whose socket
    /// it came by. `None` if it is not for this node, or if another plane at the same address reads it, too.
    fn plane_of(&self, socket: usize, entropy: u32, destination: [u8; 16]) -> Option<usize> {
        let is_ours = |plane: usize| self.planes.get(plane).is_some_and(|one| one.ip().octets() == destination);
        let named = usize::from(ocp::path_of(entropy).port());
        let plane = if is_ours(named) { named } else { (0..self.planes.len()).find(|&plane| is_ours(plane))? };
        (plane == socket).then_some(plane)
    }

    fn handle_queue(&mut self, now: Time, plane: usize, arrival: &Arrival, inner: Inner<'_>) {
        let Some(&index) = self.table.queues.get(&inner.datagram.queue) else {
            self.counters.strays += 1;
            return;
        };
        let Some(State::Open(session)) = &mut self.table.slots[index as usize].state else {
            self.counters.strays += 1;
            return;
        };
        let mut around = node_context!(self, now);
        let outcome = session.handle_mrc(&mut around, plane, arrival, inner);
        self.finish_inner(index, outcome);
    }

    /// A request or response, which is for all connections to the host that sent it, or for the one that asked.
    fn handle_between_nics(&mut self, now: Time, plane: usize, datagram: &Datagram) {
        let (path, number) = (ocp::path_of(datagram.entropy), datagram.psn.get() as u16);
        match &datagram.body {
            Body::Request(request) => {
                let mut answers = true;
                for index in 0..self.table.slots.len() {
                    let Some(State::Open(session)) = &mut self.table.slots[index].state else { continue };
                    if !session.is_confirmed() || !session.is_from(plane, datagram.source) {
                        continue;
                    }
                    let mut around = node_context!(self, now);
                    let outcome = session.handle_request(&mut around, path, number, request, answers);
                    self.finish_inner(index as u32, outcome);
                    answers = false;
                    if request.ports.is_none() {
                        // A probe asks about the path alone.
                        break;
                    }
                }
            }
            Body::Response(response) => {
                let Some((from, answer)) = self.requests.answer(number, response.port_status) else { return };
                let Some(slot) = self.table.slots.get_mut(from.index as usize) else { return };
                if slot.generation != from.generation {
                    return;
                }
                let Some(State::Open(session)) = &mut slot.state else { return };
                if !session.is_from(plane, datagram.source) {
                    self.counters.strays += 1;
                    return;
                }
                let mut around = node_context!(self, now);
                let outcome = session.handle_response(&mut around, path, answer);
                self.finish_inner(from.index, outcome);
            }
            _ => self.counters.malformed += 1,
        }
    }

    fn finish_inner(&mut self, index: u32, outcome: Result<(), crate::error::Reason>) {
        use crate::error::Reason;
        self.make_ready(index);
        self.wake_waiting();
        if let Err(reason) = outcome {
            let tell = matches!(reason, Reason::RemoteAccess | Reason::TooLong | Reason::Violation);
            self.end(index as usize, reason, tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_of_a_process_differ_and_leave_out_the_reserved_ones() {
        let numbers: Vec<u64> = (0..1_000u64).map(|i| number_with_queue(i << 40)).collect();
        let mut queues: Vec<u32> = numbers.iter().map(|&id| crate::session::queue_of(id)).collect();
        queues.sort_unstable();
        queues.dedup();
        assert_eq!(queues.len(), 1_000);
        assert!(queues.iter().all(|&queue| (FIRST_QUEUE..1 << 24).contains(&queue)));
        assert!(numbers.iter().enumerate().all(|(i, id)| id >> 24 == (i as u64) << 16));
    }
}
