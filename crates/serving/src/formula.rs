//! The service on a network that is a formula: each message takes the time that its caller says, whatever else is under
//! way. This is how simulators of serving without packets compute networks; reports show both.
//!
//! The programs of the hosts are those of any other run, so schedulers, memory and queues are the same.

use crate::host::{ServiceHost, ServiceRun};
use crate::plan::{Class, Service};
use std::collections::BTreeMap;
use strandway_fabric::requests::ServiceTimes;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::units::{Bytes, Span, Time};
use strandway_proto::{HostId, MessageId};

/// The time of a message, and the time until its sender knows that it has arrived. The lanes of a KV cache that share a
/// NIC share its rate: each message counts as if it had the bytes of all of them.
pub type Delay<'a> = dyn Fn(HostId, HostId, u64) -> (Span, Span) + 'a;

enum What {
    Received { message: u32, bytes: u64 },
    Sent { message: u32 },
    Signal { order: u32, word: u32 },
    Timer,
}

/// Runs a service on such a network, until `limit` at the latest.
pub fn run(service: &Service, delay: &Delay<'_>, limit: Time) -> ServiceTimes {
    let all = ServiceRun::new(service);
    let mut hosts: Vec<ServiceHost> = service.hosts.iter().filter_map(|host| all.program(*host)).collect();
    let mut events: BTreeMap<(Time, u64), (usize, What)> = BTreeMap::new();
    let mut count = 0;
    // The timer of each host that is among the events.
    let mut timers = vec![Time::NEVER; hosts.len()];
    // When the latest message between two hosts arrives: later ones do not overtake it.
    let mut latest: BTreeMap<(usize, usize), Time> = BTreeMap::new();
    let mut pump = |host: usize, now: Time, hosts: &mut [ServiceHost], events: &mut BTreeMap<_, _>| {
        let mut add = |at: Time, to: usize, what: What| {
            count += 1;
            events.insert((at, count), (to, what));
        };
        while let Some(action) = hosts[host].poll_action(now) {
            match action {
                Action::Post { channel, message } => {
                    let to = service.hosts.binary_search(&channel.peer).expect("a host of the service");
                    let cache = service.numbers(Class::Cache).contains(&message.id.0);
                    let sharing = if cache { service.lanes_per_nic(host as u32, to as u32) } else { 1 };
                    let (there, known) = delay(service.hosts[host], channel.peer, message.bytes * sharing);
                    let last = latest.entry((host, to)).or_default();
                    let arrives = (now + there).max(*last);
                    *last = arrives;
                    add(arrives, to, What::Received { message: message.id.0, bytes: message.bytes });
                    let known = arrives + Span(known.0.saturating_sub(there.0));
                    add(known, host, What::Sent { message: message.id.0 });
                }
                Action::Signal { to, at, order, word } => {
                    let to = service.hosts.binary_search(&to).expect("a host of the service");
                    add(at, to, What::Signal { order, word });
                }
                _ => {}
            }
        }
        let next = hosts[host].poll_timeout();
        if next < timers[host] || timers[host] <= now {
            timers[host] = next;
            if next != Time::NEVER {
                add(next, host, What::Timer);
            }
        }
    };
    for host in 0..hosts.len() {
        pump(host, Time::ZERO, &mut hosts, &mut events);
    }
    while let Some(((now, _), (host, what))) = events.pop_first() {
        if now > limit {
            break;
        }
        match what {
            What::Received { message, bytes } => {
                let (message, bytes) = (MessageId(message), Bytes(bytes));
                hosts[host].handle_event(now, &Event::Received { message, bytes });
            }
            What::Sent { message } => hosts[host].handle_event(now, &Event::Sent { message: MessageId(message) }),
            What::Signal { order, word } => hosts[host].handle_event(now, &Event::Signal { order, word }),
            What::Timer if hosts[host].poll_timeout() > now => continue,
            What::Timer => hosts[host].handle_timeout(now),
        }
        pump(host, now, &mut hosts, &mut events);
    }
    all.times()
}
