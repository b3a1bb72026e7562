//! The delegates of a process: how one starts, and the settings of its team.

use super::super::delegate::{Delegate, Kind, Request, TeamOffer};
use super::super::{PATIENCE, ProcessOptions};
use crate::error::GroupError;
use crate::team::Options;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use strandway_proto::units::Rate;
use strandway_udp::address::kept;
use strandway_udp::{Config, Node, Waker, interfaces};

/// Group ports of teams with one number begin at this many places: ours.
const PORT_PLACES: u64 = 64;

/// The engine's side of a delegate.
pub(super) struct Running {
    requests: Option<Sender<Request>>,
    pub(super) offer: Option<Sender<TeamOffer>>,
    /// By plane: the port of its node.
    pub(super) ports: Vec<u16>,
    ends: Arc<AtomicBool>,
    /// Multicast passes, or the switch has added in the last call.
    pub(super) works: Arc<AtomicBool>,
    pub(super) waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(super) fn request(&self, request: Request) {
        // A request that is not taken is dropped, and then the engine hears that it has failed.
        if let Some(requests) = &self.requests {
            drop(requests.send(request));
        }
        self.waker.wake();
    }

    /// Gives the team up.
    pub(super) fn stop(&mut self) {
        self.ends.store(true, Ordering::Release);
        (self.offer, self.requests) = (None, None);
        self.waker.wake();
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic was told to those that waited.
            let _ = thread.join();
        }
    }
}

/// The settings of a process's delegates, and the delegates whose groups have ended.
pub(in super::super) struct Delegates {
    pub(super) options: ProcessOptions,
    config: Config,
    secret: [u8; 32],
    /// Sums by switches that are under way.
    pub(super) sums: Arc<AtomicUsize>,
    pub(super) leaving: Vec<Running>,
}

impl Delegates {
    pub(in super::super) fn new(options: &ProcessOptions, config: &Config, secret: [u8; 32]) -> Delegates {
        Delegates {
            options: options.clone(),
            config: config.clone(),
            secret,
            sums: Arc::default(),
            leaving: Vec::new(),
        }
    }

    fn hash(&self, group: u64, kind: Kind) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_derive_key("strandway 2026 team of a process group");
        hasher.update(&self.secret).update(&group.to_be_bytes()).update(&[kind as u8]);
        hasher.finalize()
    }

    /// Starts a delegate.
    pub(super) fn start(
        &self,
        group: u64,
        kind: Kind,
        rank: u32,
        payload: u32,
        ours: &[SocketAddrV6],
    ) -> Result<Running, GroupError> {
        let hash = self.hash(group, kind);
        let secret = strandway_udp::Secret::new(hash.as_bytes())?;
        // The ports of the process are taken; its delegate takes others.
        let planes = ours.iter().map(|one| SocketAddrV6::new(*one.ip(), 0, 0, one.scope_id())).collect();
        let options = ProcessOptions { planes, ..self.options.clone() };
        let config = Config { secret, payload, accept: true, hear_refusals: false, ..self.config.clone() };
        let mut node: Node = options.bind(&config)?;
        let ports = node.addresses()?.into_iter().map(|address| kept(address).port()).collect();
        let waker = node.waker()?;
        let ((requests, requested), (offer, offered)) = (channel(), channel());
        let (ends, works) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let switch = self.options.switch.clone();
        let shared = (Arc::clone(&ends), Arc::clone(&works));
        let delegate = Delegate {
            node,
            rank,
            kind,
            switch,
            beside: Arc::clone(&self.sums),
            offer: offered,
            requests: requested,
            shared,
        };
        let thread = std::thread::Builder::new().name(format!("strandway-{}", kind.short_name()));
        let thread = thread
            .spawn(move || delegate.run())
            .map_err(|error| GroupError::Config(format!("no thread for {}: {error}", kind.name())))?;
        Ok(Running { requests: Some(requests), offer: Some(offer), ports, ends, works, waker, thread: Some(thread) })
    }

    /// The rate at which this host receives, as far as it is known.
    pub(super) fn rate(&self, ours: &[SocketAddrV6]) -> Rate {
        let all = interfaces();
        let rate = |one: &SocketAddrV6| all.iter().find(|known| known.address == *one.ip())?.rate;
        let known: Option<u64> = ours.iter().map(|one| rate(one).map(u64::from)).sum();
        let devices = known.map(|mbps| Rate::from_gbps(1).scaled(mbps as f64 / 1e3));
        devices.map_or(self.options.rate, |devices| devices.min(self.options.rate))
    }

    /// The settings of a team whose slowest rank receives at this rate.
    pub(super) fn options(&self, group: u64, kind: Kind, ranks: u32, rate: Rate) -> Options {
        let number = u64::from_be_bytes(*self.hash(group, kind).as_bytes().first_chunk().expect("32 bytes"));
        let usual = Options::new(rate);
        let (team, port) = match self.options.team {
            // Teams with the number of others take other ports.
            Some(team) => (team, usual.port + Options::PORTS * (number % PORT_PLACES) as u16),
            None => ((1 + number % u64::from(TEAM_MAX)) as u16, usual.port),
        };
        Options {
            team,
            port,
            // The engine finds out which ranks are gone.
            patience: PATIENCE,
            rtt: Options::RTT.max(self.options.base_rtt),
            no_multicast: kind != Kind::Multicast,
            chains: ranks.min(CHAINS),
            ..usual
        }
    }
}

/// The highest number of a team that fabrics of namespaces can forward.
const TEAM_MAX: u16 = 65_000;

/// The most ranks that cast at the same time in an all-gather: ours. If all ranks cast at once, each port receives all
/// the time, and what a port sends leaves room for the sums of a reduce-scatter. Among more ranks, a port that casts
/// alone for a while receives nothing for less than a sixteenth of the time.
const CHAINS: u32 = 16;
