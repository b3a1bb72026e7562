//! Two nodes of Ultra Ethernet Transport, one per side: the same writes as those of our own layout.

use crate::goodput::{Meter, goodput};
use crate::network::Role;
use crate::ours::{DEPTH, MESSAGE, Ours};
use std::sync::Arc;
use std::time::Duration;
use strandway_udp::uet::{Event, Node};
use strandway_udp::{Config, Layout, Protection};

const PORT: u16 = 47_806;
/// The key of the receiver's memory.
const KEY: u64 = 0x42;
/// The longest sleep of a node, so that it notices the end of the measurement.
const ATTENTION: Duration = Duration::from_millis(10);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The settings of both nodes, except for their addresses.
pub(crate) struct Uet(Config);

impl Uet {
    /// Profile uec, packets as large as the MTU allows.
    pub(crate) fn fitting(protection: Protection, mtu: u32) -> Result<Uet, String> {
        let mut config = Ours::fitting("uec", protection, mtu)?.config;
        config.layout = Layout::Uet;
        config.mtu(mtu).map(Uet).map_err(text)
    }

    fn node(&self, side: Role) -> Result<Node, String> {
        let port = if side == Role::Sender { 0 } else { PORT };
        Node::configured(&Config { planes: side.addresses(1, port), ..self.0.clone() }).map_err(text)
    }

    /// Writes the same message again and again, several at a time.
    fn send(&self, meter: &Meter) -> Result<(), String> {
        let (mut node, to) = (self.node(Role::Sender)?, Role::Receiver.plain_address(0, PORT));
        let (message, mut under_way) = (Arc::new(vec![0x5a; MESSAGE]), 0);
        while !meter.is_over() {
            while under_way < DEPTH {
                let now = node.now();
                node.uet().write(now, to, KEY, 0, None, message.clone());
                under_way += 1;
            }
            node.turn(ATTENTION).map_err(text)?;
            while let Some(event) = node.uet().poll_event() {
                match event {
                    Event::Completed { .. } => under_way -= 1,
                    Event::Refused { .. } | Event::Broken { .. } if !meter.is_over() => {
                        return Err(format!("a write failed: {event:?}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn receive(&self, meter: &Meter) -> Result<(), String> {
        let mut node = self.node(Role::Receiver)?;
        node.uet().register(KEY, 0, vec![0; MESSAGE]);
        while !meter.is_over() {
            node.turn(ATTENTION).map_err(text)?;
            meter.set(&[node.uet().counters().received]);
            while node.uet().poll_event().is_some() {}
        }
        Ok(())
    }

    /// In Gb/s.
    pub(crate) fn goodput(&self, seconds: f64) -> Result<f64, String> {
        Ok(goodput(seconds, |meter| self.send(meter), |meter| self.receive(meter))?[0])
    }
}
