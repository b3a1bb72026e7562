//! Packets and signals from one slice to another, handed over at window edges.

use super::Slice;
use crate::prefetch::prefetch_value;
use crate::road::Transit;
use strandway_proto::Packet;
use strandway_proto::telemetry::Telemetry;

/// The packets and signals to another slice in one window. The stored packets are read when the window is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    packets: Vec<Leaving>,
    news: Vec<News>,
}

/// A packet that arrives at a node of another slice at `time`.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    time: u64,
    /// A [`Transit`] that carries the link and the node.
    words: [u64; 4],
}

/// A packet that arrives at a node of another slice, with the whole stored packet.
#[derive(Clone, Copy, Debug)]
struct Freight {
    leaving: Leaving,
    packet: Packet,
}

const _: () = assert!(size_of::<Freight>() <= 96, "one cache line and a half");

/// A packet is brought into the cache this many packets before it is handed over or received.
const AHEAD: usize = 12;

/// Events other than packets that cross.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// A pause frame for the port that feeds a link (`word` is 1 for a pause, 0 for its end), or bytes of its credit.
    Pause { time: u64, link: u32, word: u32 },
    /// A signal from one host's program to another's.
    Signal { time: u64, to: u32, order: u32, word: u32 },
}

impl News {
    fn time(&self) -> u64 {
        match *self {
            News::Pause { time, .. } | News::Signal { time, .. } => time,
        }
    }
}

impl Outbox {
    /// Adds a packet that goes over a link to a node of the other slice.
    #[inline]
    pub(super) fn send(&mut self, time: u64, link: u32, node: u32, packet: &Transit) {
        self.packets.push(Leaving { time, words: packet.waiting(link, node).words() });
    }

    pub(super) fn send_news(&mut self, news: News) {
        self.news.push(news);
    }
}

/// The packets and signals from one slice to another at the end of a window.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    packets: Vec<Freight>,
    /// The records of switches that each packet carries; empty if no profile reads them.
    telemetry: Vec<Telemetry>,
    news: Vec<News>,
}

impl Slice<'_> {
    /// Hands over the packets and signals to another slice. Returns the time of the first, `u64::MAX` if there are
    /// none.
    pub(crate) fn hand_over(&mut self, to: usize, mail: &mut Mail) -> u64 {
        let outbox = &mut self.fabric.outboxes[to];
        let mut first = u64::MAX;
        mail.packets.reserve(outbox.packets.len());
        for (n, leaving) in outbox.packets.iter().enumerate() {
            if let Some(later) = outbox.packets.get(n + AHEAD) {
                self.fabric.cargo.prefetch(&Transit::of_words(later.words));
            }
            first = first.min(leaving.time);
            let (leaving, transit) = (*leaving, Transit::of_words(leaving.words));
            mail.packets.push(Freight { leaving, packet: *self.fabric.cargo.packet(&transit) });
            if self.config.telemetry {
                mail.telemetry.push(*self.fabric.carried.of(&transit));
            }
            self.fabric.cargo.release(&transit);
        }
        self.recorder.crossed += outbox.packets.len() as u64;
        outbox.packets.clear();
        for news in outbox.news.drain(..) {
            first = first.min(news.time());
            mail.news.push(news);
        }
        first
    }

    /// Receives the packets and signals of another slice.
    pub(crate) fn receive(&mut self, mail: &mut Mail) {
        let mut telemetry = mail.telemetry.drain(..);
        for (n, freight) in mail.packets.iter().enumerate() {
            // They are in the other core's cache.
            if let Some(later) = mail.packets.get(n + AHEAD) {
                prefetch_value(later);
            }
            let transit = Transit::of_words(freight.leaving.words);
            // `Outbox::send` has stored link and node in these fields.
            let (link, node) = (transit.since(), transit.ingress());
            let transit = self.fabric.cargo.put_again(&freight.packet, &transit);
            if let Some(telemetry) = telemetry.next() {
                self.fabric.carried.put(&transit, telemetry);
            }
            self.send_on(freight.leaving.time, link, node, transit);
        }
        drop(telemetry);
        mail.packets.clear();
        for news in mail.news.drain(..) {
            match news {
                News::Pause { time, link, word } => self.send_pause_on(time, link, word),
                News::Signal { time, to, order, word } => self.send_signal(time, to, order, word),
            }
        }
    }
}
