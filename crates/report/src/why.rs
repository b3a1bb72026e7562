//! The causes that limited the slowest flows, each class and each collective.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Causes of a flow's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its packets left at line rate.
    Line,
    /// Its NIC sent packets of other flows.
    Nic,
    /// Its window or rate, without notable queues.
    Window,
    /// The range of PSNs, or a cap on bytes in flight.
    Psn,
    /// Its NIC's ports were paused (PFC) or down.
    Paused,
    /// Another flow had to end first.
    Dependency,
    /// Earlier messages of its connection.
    Behind,
    /// Queues at the receiver's link, to which several hosts sent.
    Incast,
    /// Queues at one other link.
    Collision,
    /// Queues at a link that a fault slows down.
    SlowLink,
    /// Queues at many links.
    Fabric,
    /// Packets sent again.
    Recovery,
    /// Retransmission timeouts.
    Timeout,
    /// The propagation time there and back.
    Propagation,
}

impl Cause {
    /// The number of causes.
    pub const COUNT: usize = 14;

    /// All causes and their names in `shares`, in the order of the bars in charts.
    pub const ALL: [(Cause, &'static str); Cause::COUNT] = [
        (Cause::Line, "line"),
        (Cause::Nic, "nic"),
        (Cause::Propagation, "propagation"),
        (Cause::Window, "window"),
        (Cause::Psn, "psn"),
        (Cause::Incast, "incast"),
        (Cause::Collision, "collision"),
        (Cause::SlowLink, "slow_link"),
        (Cause::Fabric, "fabric"),
        (Cause::Paused, "paused"),
        (Cause::Recovery, "recovery"),
        (Cause::Timeout, "timeout"),
        (Cause::Dependency, "dependency"),
        (Cause::Behind, "behind"),
    ];

    /// Its name in `shares`.
    pub fn name(self) -> &'static str {
        Cause::ALL.iter().find(|(cause, _)| *cause == self).map_or("", |(_, name)| name)
    }
}

/// The causes of the time of one flow, class, collective or chain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WhyFacts {
    /// `slowest` is the slowest flow. The next slowest flows have their own names, classes have `class.NAME`,
    /// collectives have `collective.NAME`. `chain` is the longest chain of flows that waited for each other, in a run
    /// without collectives.
    pub name: String,
    /// The name of the flow, class or collective.
    pub what: String,
    /// `flow`, `class`, `collective` or `chain`.
    pub kind: String,
    /// Its time; for a class, the sum over its flows.
    pub time_us: Option<f64>,
    /// Shares of that time, by cause; they add up to 1.
    pub shares: BTreeMap<String, Option<f64>>,
    /// The cause with the largest share.
    pub cause: String,
    /// The link of a collision, or the slow link.
    pub link: Option<String>,
    /// The receiver of an incast.
    pub host: Option<String>,
    /// The congestion control.
    pub control: String,
    /// The last cause of a cut of its window, at the times when the flow waited for the window: `marks` (with HPCC,
    /// reports of switches), `delay` or `loss`; absent if the window was never cut.
    pub cut: Option<String>,
    /// The result in words.
    pub sentence: String,
}
