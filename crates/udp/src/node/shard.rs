//! Shards: nodes that share the ports of their planes. Each has a thread, sockets and connections of its own.
//!
//! The kernel deals datagrams out by a number in clear text: the lowest byte of the connection's number is the shard
//! that gave the number out, and a hello names the shard that its caller wishes. The kernel sees only the first
//! datagram of a train that it received as one (GRO). So a datagram may reach another shard, which hands it over.

use super::dealing::{program, shard_of};
use super::{Node, Waker, urgent};
use crate::Config;
use crate::error::Error;
use crate::layout::Layout;
use crate::plane::Plane;
use crate::socket::Arrival;
use std::net::SocketAddrV6;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most shards of one port: their numbers have a byte.
pub(crate) const SHARDS_MAX: usize = 256;

/// A datagram that another shard received: where in the buffer it is, and how it arrived.
struct Head {
    length: usize,
    plane: usize,
    arrival: Arrival,
    /// When the other shard took it from its socket, which `arrival.age` refers to.
    taken: Instant,
}

/// Datagrams for one shard.
#[derive(Default)]
struct Parcels {
    bytes: Vec<u8>,
    heads: Vec<Head>,
}

/// The place where other shards put datagrams for one shard.
struct Mailbox {
    parcels: Mutex<Parcels>,
    bell: Waker,
}

impl Mailbox {
    fn parcels(&self) -> MutexGuard<'_, Parcels> {
        self.parcels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node's place among the shards of its ports.
pub(super) struct Shard {
    number: u8,
    mailboxes: Arc<[Mailbox]>,
    /// The most bytes that wait for one shard.
    bytes_max: usize,
    /// Those that were taken last; kept because of its memory.
    taken: Parcels,
}

impl Shard {
    /// The places of `count` shards.
    fn row(count: usize, bytes_max: usize) -> Result<Vec<Shard>, Error> {
        let mailbox = |_| Ok(Mailbox { parcels: Mutex::default(), bell: Waker::new()? });
        let mailboxes: Arc<[Mailbox]> = (0..count).map(mailbox).collect::<Result<Vec<_>, Error>>()?.into();
        let shard = |number| Shard { number, mailboxes: mailboxes.clone(), bytes_max, taken: Parcels::default() };
        Ok((0..=u8::MAX).take(count).map(shard).collect())
    }

    pub(super) const fn number(&self) -> u8 {
        self.number
    }

    /// Rings when a datagram was put into the empty mailbox.
    pub(super) fn bell(&self) -> &Waker {
        &self.mailboxes[usize::from(self.number)].bell
    }

    /// The shard that a datagram is for, if it is another one.
    fn other(&self, datagram: &[u8]) -> Option<&Mailbox> {
        let shard = shard_of(datagram, self.mailboxes.len());
        (shard != usize::from(self.number)).then(|| &self.mailboxes[shard])
    }
}

impl Node {
    /// Opens `shards` nodes that share the ports of `config.planes`: a peer needs one address per plane, however many
    /// shards there are. Run each on a thread of its own. [`crate::Limits::connections`] and all other settings hold for
    /// each of them.
    ///
    /// A connection belongs to one shard for its life. Callers ask for shards in turn ([`Node::connect`]) or for a
    /// certain one ([`Node::connect_to_shard`]). Multicast groups belong to the first shard. The nodes must end
    /// together: when one of them ends, the kernel numbers the sockets of the others anew, and they hand over each
    /// other's datagrams from then on.
    ///
    /// # Errors
    /// As for [`Node::bind`]; also if there are no shards, or more than 256, or several with MRC's published layout.
    pub fn bind_shards(config: &Config, shards: usize) -> Result<Vec<Node>, Error> {
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(Error::Config(format!("{shards} shards: take 1 to {SHARDS_MAX}")));
        }
        if shards == 1 {
            return Ok(vec![Node::bind(config.clone())?]);
        }
        Node::check(config)?;
        if config.layout != Layout::Frame {
            return Err(Error::Config("MRC's layout has no room for the number of a shard: take one shard".to_owned()));
        }
        let mut planes: Vec<Vec<Plane>> = (0..shards).map(|_| Vec::new()).collect();
        for &address in &config.planes {
            // Opened like a plain one, so that a port of another process is in use, even if that process shares it.
            let first = Plane::open(address, config)?;
            let address: SocketAddrV6 = first.share()?;
            planes[0].push(first);
            for planes in &mut planes[1..] {
                planes.push(Plane::open_shared(address, config)?);
            }
            let (last, urgent) = (planes[0].len() - 1, urgent::is_possible(config));
            if urgent {
                // Their places are behind those of the sockets for other datagrams.
                for planes in &mut planes {
                    planes[last].open_urgent(address, config)?;
                }
            }
            if !planes[0][last].deal_out(&program(shards, urgent)) {
                // The kernel deals out by addresses and ports: the shards hand over, and no datagram is urgent.
                planes.iter_mut().for_each(|planes| planes[last].close_urgent());
            }
        }
        let row = Shard::row(shards, config.socket_buffer)?;
        planes.into_iter().zip(row).map(|(planes, shard)| Node::start(config.clone(), planes, Some(shard))).collect()
    }

    /// The node's number among the nodes that share its ports; 0 if it shares them with none.
    pub fn shard(&self) -> u8 {
        self.shard.as_ref().map_or(0, Shard::number)
    }

    /// Hands a datagram over if it is for another shard; true if it was.
    #[inline]
    pub(super) fn hand_over(&mut self, plane: usize, arrival: &Arrival, datagram: &[u8]) -> bool {
        let Some(shard) = &self.shard else { return false };
        let Some(mailbox) = shard.other(datagram) else { return false };
        let mut parcels = mailbox.parcels();
        if parcels.bytes.len() + datagram.len() > shard.bytes_max {
            self.counters.undelivered += 1;
            return true;
        }
        let head = Head { length: datagram.len(), plane, arrival: *arrival, taken: Instant::now() };
        let first = parcels.heads.is_empty();
        parcels.bytes.extend_from_slice(datagram);
        parcels.heads.push(head);
        drop(parcels);
        self.counters.handed_over += 1;
        if first {
            mailbox.bell.wake();
        }
        true
    }

    /// Handles the datagrams that other shards handed over; true if there were any. `handle` gets each with its plane.
    pub(super) fn receive_from_shards(
        &mut self,
        mut handle: impl FnMut(&mut Node, usize, &Arrival, &mut [u8]),
    ) -> bool {
        let Some(shard) = self.shard.as_mut().filter(|shard| shard.bell().answer()) else { return false };
        let mut parcels = std::mem::take(&mut shard.taken);
        std::mem::swap(&mut parcels, &mut *shard.mailboxes[usize::from(shard.number)].parcels());
        let mut rest = &mut parcels.bytes[..];
        for head in parcels.heads.drain(..) {
            let (datagram, behind) = rest.split_at_mut(head.length);
            rest = behind;
            let arrival = Arrival { age: head.arrival.age + head.taken.elapsed(), ..head.arrival };
            handle(self, head.plane, &arrival, datagram);
        }
        parcels.bytes.clear();
        if let Some(shard) = &mut self.shard {
            shard.taken = parcels;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::kept;
    use crate::completion::Completion;
    use crate::frame;
    use crate::socket::Inbox;
    use nix::libc::sock_filter;
    use std::net::UdpSocket;
    use std::time::Duration;
    use strandway_proto::rng::{Random, StreamKind};

    fn config() -> Config {
        Config::new(&[7; 32]).expect("long enough").plane("[::1]:0".parse().expect("an address"))
    }

    fn address(node: &Node) -> SocketAddrV6 {
        kept(node.addresses().expect("bound")[0])
    }

    #[test]
    fn the_kernel_deals_out_as_we_do() {
        let mut random = Random::new(5, StreamKind::Connection, 0);
        let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
        let mut inbox = Inbox::new();
        for count in [2, 3, 7] {
            let mut shards = Node::bind_shards(&config(), count).expect("sockets");
            let to = address(&shards[0]);
            let mut came = vec![0; count];
            for _ in 0..2_000 {
                let mut datagram = vec![0; 1 + random.below(160) as usize];
                datagram.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
                for at in [frame::OPENING_SHARD, frame::SEALED_SHARD] {
                    if let Some(byte) = datagram.get_mut(at).filter(|_| random.below(4) > 0) {
                        *byte %= 8;
                    }
                }
                stranger.send_to(&datagram, to).expect("sent");
                let shard = shard_of(&datagram, count);
                // A datagram that is too short to name a shard ends the program before it looks for the bit.
                let urgent = datagram[0] & 15 == frame::KIND_DATA
                    && datagram.len() > frame::SEALED_SHARD
                    && datagram[frame::SEALED_URGENT] & 1 == 1;
                let plane = &mut shards[shard].planes[0];
                assert!(
                    if urgent { plane.receive_urgent(&mut inbox) } else { plane.receive(&mut inbox) },
                    "{count} {:?} is not at {shard}",
                    &datagram[..16.min(datagram.len())]
                );
                came[shard] += 1;
            }
            assert!(came.iter().all(|&came| came > 50), "{came:?}");
        }
    }

    /// All datagrams reach the first shard, as if the kernel had received them as one train.
    fn misled() -> Vec<Node> {
        let mut nodes = Node::bind_shards(&config(), 2).expect("sockets");
        let first = [sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
        assert!(nodes[0].planes[0].deal_out(&first), "a program");
        nodes.push(Node::bind(config()).expect("sockets"));
        nodes
    }

    fn until(nodes: &mut [Node], which: usize, wanted: impl Fn(&Completion) -> bool) -> Completion {
        let began = Instant::now();
        loop {
            let told = nodes.iter_mut().map(Node::poll).enumerate();
            if let Some((_, told)) =
                told.filter_map(|(i, told)| Some((i, told?))).find(|(i, told)| *i == which && wanted(told))
            {
                return told;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing comes");
        }
    }

    #[test]
    fn a_datagram_that_reaches_the_wrong_shard_is_handed_over_with_its_time_of_arrival() {
        let mut nodes = misled();
        let to = address(&nodes[0]);
        let ours = nodes[2].connect_to_shard(&[to], 1).expect("a call");
        let Completion::Accepted { connection, .. } =
            until(&mut nodes, 1, |told| matches!(told, Completion::Accepted { .. }))
        else {
            panic!("it was accepted")
        };
        let inbox = nodes[1].register(vec![0; 300_000]);
        let remote = nodes[1].expose(connection, inbox, 0..300_000).expect("a key");
        let outbox = nodes[2].register((0..300_000).map(|i| (i / 7) as u8).collect());
        nodes[2].write(ours, outbox, 0..300_000, remote, 0, Some(4)).expect("posted");
        until(&mut nodes, 1, |told| matches!(told, Completion::Written { immediate: 4, bytes: 300_000, .. }));
        assert!(nodes[1].memory(inbox).expect("registered").iter().zip(0..).all(|(&byte, i)| byte == (i / 7) as u8));
        let [first, second] =
            [0, 1].map(|i| (nodes[i].observe().plane_counters()[0].received, nodes[i].observe().counters()));
        assert_eq!((second.0, first.1.undelivered, first.1.strays), (0, 0, 0), "all came by the first shard");
        assert!(first.1.handed_over > 220 && first.1.handed_over == first.0, "{first:?}");
        // A shard that sleeps is woken.
        nodes[2].write(ours, outbox, 0..100, remote, 0, Some(5)).expect("posted");
        let mut sleeper = nodes.remove(1);
        sleeper.config.waiting = crate::Waiting::Sleep;
        sleeper.waits.spin = strandway_proto::Span::ZERO;
        let asleep = std::thread::spawn(move || {
            let began = Instant::now();
            loop {
                let told = sleeper.wait(Duration::from_secs(30)).expect("it can wait");
                if matches!(told, Some(Completion::Written { immediate: 5, .. })) {
                    return began.elapsed();
                }
            }
        });
        while !asleep.is_finished() {
            for node in &mut nodes {
                node.poll();
            }
        }
        assert!(asleep.join().expect("it ended") < Duration::from_secs(20));
    }

    #[test]
    fn datagrams_for_a_shard_that_reads_none_are_bounded() {
        let mut nodes = misled();
        let to = address(&nodes[0]);
        nodes[0].shard.as_mut().expect("it is one").bytes_max = 10_000;
        let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
        let mut datagram = [0; 1_000];
        (datagram[0], datagram[frame::SEALED_SHARD]) = (frame::VERSION << 4 | 4, 1);
        for _ in 0..100 {
            stranger.send_to(&datagram, to).expect("sent");
            nodes[0].poll();
        }
        let counters = nodes[0].observe().counters();
        assert_eq!((counters.handed_over, counters.undelivered), (10, 90));
        nodes[1].poll();
        assert_eq!(nodes[1].observe().counters().strays, 10, "they belong to no connection");
        stranger.send_to(&datagram, to).expect("sent");
        nodes[0].poll();
        assert_eq!((nodes[0].observe().counters().handed_over, nodes[1].poll()), (11, None));
    }
}
