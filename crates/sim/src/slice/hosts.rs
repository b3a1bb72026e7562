//! The hosts of a slice with their programs.

use super::host::Host;
use super::host_program::{OpenMessage, Posted};
use super::setup::World;
use super::tables::Tables;
use crate::fingerprint::Fingerprint;
use crate::road::Transit;
use std::collections::{BTreeMap, VecDeque};
use strandway_collective::{AnyApplication, Programs};
use strandway_fabric::plan::Plan;
use strandway_proto::account::Waits;
use strandway_proto::application::Channel;
use strandway_proto::units::Span;
use strandway_proto::{ConnectionId, HostId, Message};

/// The hosts of a slice with their programs. Lists have an element per host, in order, unless said otherwise.
pub(crate) struct Hosts<'a> {
    pub(super) all: Vec<Host>,
    /// For each port of the hosts, the time until which it is busy: see [`crate::port::Port::busy_until`].
    pub(super) nics: Vec<u64>,
    /// The program of each host.
    pub(super) programs: Vec<AnyApplication<'a>>,
    /// A hash of each program's posts and events.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The messages in progress that have no row.
    pub(super) open: Vec<Vec<OpenMessage>>,
    /// By connection: the last reading of the waits of packets that arrived, if the plan asks for accounts.
    pub(super) heard: Vec<BTreeMap<ConnectionId, Waits>>,
    /// Our ends of channels that opened at first use.
    pub(super) opened: Vec<BTreeMap<Channel, ConnectionId>>,
    /// The number of ends opened in this way.
    pub(super) openings: Vec<u32>,
    /// The environment of the connections of each profile.
    pub(super) environments: Vec<World>,
    pub(super) all_programs: &'a Programs<'a>,
    /// PRIME's tables for switches that hash, if the run has any.
    pub(super) tables: Option<Box<Tables>>,
    /// The work of receiving, if it takes time.
    pub(super) work: Option<Vec<ReceiveWork>>,
    /// Posts and closings that wait while their host works for earlier messages, if that takes time.
    pub(super) posting: Option<Vec<VecDeque<Pending>>>,
    /// The flows that the hosts are sending.
    pub(super) under_way: UnderWay,
}

impl<'a> Hosts<'a> {
    /// The programs of these hosts, which have this many ports in all. The hosts themselves are made later.
    pub(super) fn new(plan: &Plan, programs: &'a Programs<'a>, hosts: &[u32], ports: u32) -> Hosts<'a> {
        let count = hosts.len();
        Hosts {
            all: Vec::new(),
            nics: vec![0; ports as usize],
            programs: hosts.iter().map(|&h| programs.at(HostId(h))).collect(),
            fingerprints: vec![Fingerprint::new(); count],
            open: vec![Vec::new(); count],
            heard: vec![BTreeMap::new(); count],
            opened: vec![BTreeMap::new(); count],
            openings: vec![0; count],
            environments: plan.profiles.iter().map(|p| World::new(plan, p)).collect(),
            all_programs: programs,
            tables: Tables::new(plan),
            work: plan.ports.receive.map(|_| vec![ReceiveWork::default(); count]),
            posting: (plan.ports.message_cost > Span::ZERO).then(|| vec![VecDeque::new(); count]),
            under_way: UnderWay::default(),
        }
    }
}

/// A message that a host is about to post, or a channel that its program closes behind such messages.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// When the host's work for it is done.
    pub(super) due: u64,
    /// When its program asked for it.
    pub(super) asked: u64,
    pub(super) channel: Channel,
    /// `None`: the channel is closed.
    pub(super) message: Option<Message>,
}

/// The packets that wait for a host's receiving threads.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveWork {
    /// The packets, with the times at which their work is done.
    pub(super) waiting: VecDeque<(u64, Transit)>,
    /// When the work of all of them is done.
    pub(super) busy_until: u64,
}

/// Flows in progress, by number. The tree has only their places in a list, since half of a tree's room is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay {
    places: BTreeMap<u32, u32>,
    all: Vec<Posted>,
    free: Vec<u32>,
}

impl UnderWay {
    /// Adds a flow that is not in progress.
    pub(super) fn insert(&mut self, flow: u32, posted: Posted) {
        let place = self.free.pop().unwrap_or(self.all.len() as u32);
        if place as usize == self.all.len() {
            self.all.push(posted);
        } else {
            self.all[place as usize] = posted;
        }
        self.places.insert(flow, place);
    }

    pub(super) fn get_mut(&mut self, flow: u32) -> Option<&mut Posted> {
        let place = *self.places.get(&flow)?;
        Some(&mut self.all[place as usize])
    }

    pub(super) fn remove(&mut self, flow: u32) -> Option<Posted> {
        let place = self.places.remove(&flow)?;
        self.free.push(place);
        Some(self.all[place as usize])
    }

    /// The flows in progress, in order.
    pub(super) fn flows(&self) -> Vec<u32> {
        self.places.keys().copied().collect()
    }
}
