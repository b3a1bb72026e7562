//! Urgent datagrams: small messages that do not wait behind the data of other connections.
//!
//! A receiving socket holds hundreds of kilobytes while a connection sends at full speed. So each plane has a second
//! socket on the same port, into which the kernel puts the datagrams that are marked as urgent. A node reads it before
//! each piece of other data. The design is ours; fabrics use a traffic class for control packets in the same way.

use super::dealing::program;
use crate::config::{Config, URGENT_MAX};
use crate::layout::Layout;
use crate::plane::Plane;
use strandway_proto::profile::WireFormat;
use strandway_proto::{Span, Time};

/// A node expects urgent datagrams for this long after the last one: it looks for them in each turn, and gives other
/// connections shorter turns. Ours.
const EXPECTED: Span = Span::from_ms(1);

/// At other times a node looks for urgent datagrams this often, because each look is a system call. Ours: less than a
/// wake-up costs.
const INTERVAL: Span = Span::from_us(10);

/// While a node reads other data, it looks for urgent datagrams after this number of bytes. Ours: about ten
/// microseconds of work.
const STRETCH: usize = 32 << 10;

/// After this number of turns that ended early for an urgent message, a whole turn follows. Ours: seldom needed, since
/// a turn without an urgent message is a whole one.
const EARLY_MAX: u8 = 8;

/// When a node looks for urgent datagrams.
#[derive(Debug)]
pub(super) struct Urgent {
    /// Urgent datagrams are expected until this time, on every plane.
    until: Time,
    /// The last look at each plane's socket. Each plane is looked at on its own, because it may be the only one that
    /// still brings something.
    looks: Vec<Look>,
    /// The number of turns in succession that ended early for an urgent message.
    early: u8,
}

/// The last look at the socket of a plane.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at: Time,
    /// The system has reported since then that a datagram had arrived.
    told: bool,
    /// The system has just reported that none had arrived.
    empty: bool,
    /// Bytes of other data that were read from this plane since then.
    bytes: usize,
}

impl Urgent {
    pub(super) fn new(planes: usize) -> Urgent {
        Urgent { until: Time::ZERO, looks: vec![Look::default(); planes], early: 0 }
    }

    /// A message of this length was posted. A small one may have a small answer.
    pub(super) fn post(&mut self, now: Time, length: usize) {
        if length <= URGENT_MAX {
            self.until = now + EXPECTED;
        }
    }

    /// Are urgent datagrams expected?
    pub(super) fn is_expected(&self, now: Time) -> bool {
        now < self.until
    }

    /// The system says whether an urgent datagram has arrived on a plane.
    pub(super) fn notify(&mut self, plane: usize, arrived: bool) {
        (self.looks[plane].told, self.looks[plane].empty) = (arrived, !arrived);
    }

    /// Did the system say that an urgent datagram has arrived on a plane, and was none read since?
    pub(super) fn is_told(&self, plane: usize) -> bool {
        self.looks[plane].told
    }

    /// Is it time to look for urgent datagrams on a plane? If so, the caller looks now.
    pub(super) fn is_due(&mut self, now: Time, plane: usize) -> bool {
        let expected = self.is_expected(now);
        let Look { at, told, empty, bytes } = self.looks[plane];
        let due = told || bytes >= STRETCH || expected || now.since(at) >= INTERVAL;
        if due {
            self.looks[plane] = Look { at: now, ..Look::default() };
        }
        due && !empty
    }

    /// Urgent datagrams came.
    pub(super) fn receive(&mut self, now: Time) {
        self.until = now + EXPECTED;
    }

    /// Other data of this many bytes was read from a plane.
    pub(super) fn pass(&mut self, plane: usize, bytes: usize) {
        self.looks[plane].bytes += bytes;
    }

    /// May the turn end here? Not too often in succession, so that small messages never stop other data,
    /// acknowledgements and other planes.
    pub(super) fn may_end_early(&mut self) -> bool {
        let may = self.early < EARLY_MAX;
        self.early += u8::from(may);
        may
    }

    /// A turn has come to its end: everything had its part of it.
    pub(super) fn end_turn(&mut self) {
        self.early = 0;
    }

    /// The clock was set back.
    pub(super) fn go_back(&mut self, now: Time) {
        self.until = self.until.min(now);
        self.looks.iter_mut().for_each(|look| look.at = now);
    }
}

/// May data of these connections overtake other data? It may not if receivers treat overtaking as a loss, or if the
/// data is not made of messages.
pub(super) fn is_possible(config: &Config) -> bool {
    let profile = &config.profile;
    config.layout == Layout::Frame && profile.wire != WireFormat::Rocev2 && !profile.reliability.is_one_way()
}

/// Opens the sockets for urgent datagrams, if the kernel can separate them. Otherwise they arrive with the others.
pub(super) fn listen(planes: &mut [Plane], config: &Config) {
    if !is_possible(config) {
        return;
    }
    for plane in planes {
        let opened = plane.share().and_then(|address| plane.open_urgent(address, config));
        if opened.is_err() || !plane.deal_out(&program(1, true)) {
            plane.close_urgent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::kept;
    use crate::node::Node;
    use crate::socket::Inbox;
    use crate::{Completion, Connection, RemoteRegion, frame};
    use std::net::{SocketAddrV6, UdpSocket};
    use std::time::{Duration, Instant};

    const BYTES: usize = 40_000;

    fn config(profile: &str) -> Config {
        let config = Config::new(&[7; 32]).expect("long enough").plane("[::1]:0".parse().expect("an address"));
        config.profile(profile).expect("a preset")
    }

    fn address(node: &Node) -> SocketAddrV6 {
        kept(node.addresses().expect("bound")[0])
    }

    /// Two nodes with two connections; the second one's memory is open for both.
    struct Pair {
        nodes: [Node; 2],
        connections: Vec<Connection>,
        remotes: Vec<RemoteRegion>,
        outbox: crate::Region,
    }

    impl Pair {
        fn new(profile: &str) -> Pair {
            let mut nodes = [(); 2].map(|()| Node::bind(config(profile)).expect("sockets"));
            let to = address(&nodes[1]);
            let inbox = nodes[1].register(vec![0; BYTES]);
            let outbox = nodes[0].register(vec![1; BYTES]);
            let mut pair = Pair { nodes, connections: vec![], remotes: vec![], outbox };
            for _ in 0..2 {
                pair.connections.push(pair.nodes[0].connect(&[to]).expect("a call"));
                let Completion::Accepted { connection, .. } =
                    pair.until(1, |told| matches!(told, Completion::Accepted { .. }))
                else {
                    unreachable!("that was wanted")
                };
                pair.remotes.push(pair.nodes[1].expose(connection, inbox, 0..BYTES).expect("a key"));
            }
            pair
        }

        fn until(&mut self, which: usize, wanted: impl Fn(&Completion) -> bool) -> Completion {
            let began = Instant::now();
            loop {
                let told = self.nodes.each_mut().map(Node::poll);
                if let Some(told) = told[which].as_ref().filter(|told| wanted(told)) {
                    return told.clone();
                }
                assert!(began.elapsed() < Duration::from_secs(60), "nothing comes");
            }
        }

        fn write(&mut self, by: usize, bytes: usize, immediate: u32) {
            let (connection, remote) = (self.connections[by], self.remotes[by]);
            self.nodes[0].write(connection, self.outbox, 0..bytes, remote, 0, Some(immediate)).expect("posted");
        }

        /// The immediates of the next two messages that arrive.
        fn arrivals(&mut self) -> [u32; 2] {
            [(); 2].map(|()| {
                let told = self.until(1, |told| matches!(told, Completion::Written { .. }));
                let Completion::Written { immediate, .. } = told else { unreachable!("that was wanted") };
                immediate
            })
        }

        fn urgent(&self) -> u64 {
            self.nodes[1].observe().plane_counters()[0].urgent
        }
    }

    #[test]
    fn a_small_message_passes_the_data_of_another_connection_but_not_of_its_own() {
        let mut pair = Pair::new("uec");
        // Both leave before the receiver looks.
        pair.write(0, BYTES, 1);
        pair.write(1, 64, 2);
        assert_eq!((pair.arrivals(), pair.urgent()), ([2, 1], 1));
        pair.until(0, |told| matches!(told, Completion::Sent { .. }));
        while pair.nodes[0].poll().is_some() {}
        pair.write(0, BYTES, 3);
        pair.write(0, 64, 4);
        assert_eq!((pair.arrivals(), pair.urgent()), ([3, 4], 1));
        // After RoCEv2's receiver has got a later packet it asks for all earlier ones again.
        let mut pair = Pair::new("rocev2");
        pair.write(0, BYTES, 1);
        pair.write(1, 64, 2);
        assert_eq!((pair.arrivals(), pair.urgent()), ([1, 2], 0));
    }

    #[test]
    fn a_flood_of_urgent_datagrams_does_not_stop_the_others() {
        let mut pair = Pair::new("uec");
        let (to, stranger) = (address(&pair.nodes[1]), UdpSocket::bind("[::1]:0").expect("a socket"));
        let mut forged = [0; 64];
        (forged[0], forged[frame::SEALED_URGENT]) = (frame::VERSION << 4 | frame::KIND_DATA, 1);
        pair.write(0, BYTES, 1);
        let began = Instant::now();
        loop {
            // More than the node takes per turn.
            (0..64).for_each(|_| drop(stranger.send_to(&forged, to)));
            let told = pair.nodes.each_mut().map(Node::poll);
            if matches!(told[1], Some(Completion::Written { .. })) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing comes");
        }
        assert!(pair.urgent() > 0 && pair.nodes[1].observe().counters().strays > 0);
    }

    #[test]
    fn only_an_urgent_message_for_the_application_ends_a_turn_early() {
        let mut pair = Pair::new("uec");
        while pair.nodes.iter_mut().any(|node| node.poll().is_some()) {}
        let turn = |pair: &mut Pair| {
            let now = pair.nodes[1].clock.now();
            pair.nodes[1].urgent.notify(0, true);
            pair.nodes[1].receive(now, 0, &mut Inbox::new())
        };
        let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
        let mut forged = [0; 64];
        (forged[0], forged[frame::SEALED_URGENT]) = (frame::VERSION << 4 | frame::KIND_DATA, 1);
        stranger.send_to(&forged, address(&pair.nodes[1])).expect("sent");
        assert_eq!((turn(&mut pair), pair.urgent()), (Some(true), 1));
        pair.write(1, 64, 2);
        pair.nodes[0].poll();
        assert_eq!((turn(&mut pair), pair.urgent()), (None, 2));
    }

    #[test]
    fn an_urgent_message_arrives_by_the_last_plane_that_is_left() {
        let two = config("uec").plane("[::1]:0".parse().expect("an address"));
        let mut node = Node::bind(two).expect("sockets");
        let to = kept(node.addresses().expect("bound")[1]);
        let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
        let mut forged = [0; 64];
        (forged[0], forged[frame::SEALED_URGENT]) = (frame::VERSION << 4 | frame::KIND_DATA, 1);
        stranger.send_to(&forged, to).expect("sent");
        let began = Instant::now();
        while node.observe().counters().strays == 0 {
            let slept = node.wait(Duration::from_millis(1)).expect("sockets");
            assert_eq!(slept, None);
            assert!(began.elapsed() < Duration::from_secs(60), "nobody looks at plane 1");
        }
        let urgent: Vec<u64> = node.observe().plane_counters().iter().map(|plane| plane.urgent).collect();
        assert_eq!(urgent, [0, 1]);
    }

    #[test]
    fn looks_are_rare_while_nothing_urgent_comes() {
        let at = |us: u64| Time::ZERO + Span::from_us(us);
        let mut urgent = Urgent::new(2);
        assert!(urgent.is_due(at(100), 0) && urgent.is_due(at(100), 1));
        let looks = |urgent: &mut Urgent, plane: usize, from: u64| {
            (from..from + 100).filter(|&us| urgent.is_due(at(us), plane)).count()
        };
        assert_eq!([0, 1].map(|plane| looks(&mut urgent, plane, 101)), [10, 10]);
        urgent.receive(at(200));
        assert_eq!([0, 1].map(|plane| looks(&mut urgent, plane, 201)), [100, 100]);
        assert!(!urgent.is_expected(at(1_200)));
        assert!(urgent.is_due(at(1_300), 1) && !urgent.is_due(at(1_301), 1));
        urgent.pass(1, STRETCH);
        assert!(urgent.is_due(at(1_301), 1));
        urgent.notify(1, true);
        assert!(urgent.is_due(at(1_301), 1) && !urgent.is_due(at(1_301), 1));
        urgent.notify(1, false);
        urgent.receive(at(1_302));
        assert!(!urgent.is_due(at(1_303), 1) && urgent.is_due(at(1_303), 1), "the system has just looked");
        assert!((0..EARLY_MAX).all(|_| urgent.may_end_early()));
        urgent.pass(1, 1);
        assert!(!urgent.may_end_early(), "the turn goes on, to the other planes and to what is to be sent");
        urgent.end_turn();
        assert!(urgent.may_end_early());
    }
}
