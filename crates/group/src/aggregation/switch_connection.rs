//! A worker's connection to its switch. The worker joins over it. When it ends, the switch or the session is gone.

use super::message::{BYTES, Join, Message, Refusal, Welcome};
use super::terms;
use crate::error::GroupError;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandway_proto::units::Rate;
use strandway_udp::address::shown;
use strandway_udp::{Completion, Node, Reason};

/// The longest sleep of a thread before it checks whether to end.
const NAP: Duration = Duration::from_millis(50);
/// The time between two attempts to join a session that another team holds: ours.
const AGAIN: Duration = Duration::from_millis(100);

/// The data that a rank needs to reach its switch.
#[derive(Clone, Debug)]
pub struct SwitchAccess<'a> {
    /// The worker's own address.
    pub ours: Ipv6Addr,
    /// The admission address of the job at the switch.
    pub admission: SocketAddrV6,
    /// The job's key.
    pub key: &'a [u8],
    /// The longest wait for the switch's answer.
    pub patience: Duration,
    /// A switch that is silent for this time counts as gone.
    pub silence: Duration,
    /// Bytes of the socket's buffers.
    pub socket_buffer: usize,
    /// The share of arriving fragments that is dropped, for tests and experiments.
    pub loss: f64,
    /// The rate at which the worker receives.
    pub rate: Rate,
}

/// The reason why a worker does not take part.
#[derive(Debug)]
pub enum Apart {
    /// There is no switch, or none with this key.
    Silent(String),
    /// The switch has answered, and has then been silent: it may be busy.
    Paused(String),
    /// The switch has refused the worker.
    Refused(Refusal),
    /// A socket failed, an option is invalid, or the caller asked it to stop.
    Failed(GroupError),
}

impl std::fmt::Display for Apart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Apart::Silent(why) | Apart::Paused(why) => f.write_str(why),
            Apart::Refused(reason) => reason.fmt(f),
            Apart::Failed(error) => error.fmt(f),
        }
    }
}

/// A connection to a switch. A thread of its own keeps it alive, so its worker may compute for any time.
pub struct SwitchConnection {
    lost: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SwitchConnection {
    /// Joins a job at its admission address, and waits at most the way's patience for the answer.
    ///
    /// # Errors
    /// The reason why the worker does not take part.
    pub fn open(
        way: &SwitchAccess<'_>,
        join: Join,
        stop: &dyn Fn() -> bool,
    ) -> Result<(SwitchConnection, Welcome), Apart> {
        let until = Instant::now() + way.patience;
        let mut refused = None;
        loop {
            match SwitchConnection::try_open(way, join, until, stop) {
                // An earlier session may end soon, if its switch has not noticed yet that its workers are gone.
                Err(Apart::Refused(reason)) if reason.passes() && Instant::now() + AGAIN < until => {
                    refused = Some(reason);
                    std::thread::sleep(AGAIN);
                }
                Err(Apart::Paused(_)) if Instant::now() + AGAIN < until => std::thread::sleep(AGAIN),
                Err(Apart::Silent(why) | Apart::Paused(why)) => {
                    return Err(refused.map_or(Apart::Silent(why), Apart::Refused));
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(
        way: &SwitchAccess<'_>,
        join: Join,
        until: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Result<(SwitchConnection, Welcome), Apart> {
        let admission = way.admission;
        let failed = |error: strandway_udp::Error| Apart::Failed(error.into());
        let ours = SocketAddrV6::new(way.ours, 0, 0, admission.scope_id());
        let mut config = terms::admission(way.key, ours, way.silence).map_err(Apart::Failed)?;
        config.accept = false;
        config.timeouts.handshake = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(50));
        let mut node = Node::bind(config).map_err(failed)?;
        let connection = node.connect(&[admission]).map_err(failed)?;
        let inbox = node.register(vec![0; BYTES]);
        let out = node.register(Message::Join(join).encode());
        loop {
            if stop() {
                return Err(Apart::Failed(GroupError::Stopped));
            }
            match node.wait(NAP).map_err(failed)? {
                Some(Completion::Connected { .. }) => {
                    // A connection can end in the turn in which it begins: `Closed` follows, with the reason.
                    let _ = node.recv(connection, inbox, 0..BYTES).and_then(|_| node.send(connection, out, 0..BYTES));
                }
                Some(Completion::Received { .. }) => {
                    return match Message::decode(node.memory(inbox).map_err(failed)?) {
                        Some(Message::Welcome(welcome)) => Ok((SwitchConnection::keep(node), *welcome)),
                        Some(Message::Refused(reason)) => Err(Apart::Refused(reason)),
                        _ => Err(Apart::Refused(Refusal::Version)),
                    };
                }
                Some(Completion::Closed { reason, .. }) => {
                    let why = format!("no switch at {}: {reason}", shown(admission));
                    return Err(if reason == Reason::PeerSilent { Apart::Paused(why) } else { Apart::Silent(why) });
                }
                _ if Instant::now() > until => {
                    return Err(Apart::Silent(format!("the switch at {} is silent", shown(admission))));
                }
                _ => {}
            }
        }
    }

    fn keep(mut node: Node) -> SwitchConnection {
        let (lost, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (tell, ended) = (Arc::clone(&lost), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if matches!(node.wait(NAP), Ok(Some(Completion::Closed { .. })) | Err(_)) {
                    tell.store(true, Ordering::Relaxed);
                    return;
                }
            }
        });
        SwitchConnection { lost, stop, thread: Some(thread) }
    }

    /// Has the connection ended?
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for SwitchConnection {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The node closes its connection when the thread ends.
            let _ = thread.join();
        }
    }
}
