//! A message that has begun to arrive, group by group.

use crate::control_message::{ControlMessage, Have};
use crate::packet::SackBits;
use crate::partial::{Progress, SLOTS, truncated};
use crate::repair::Plan;
use crate::repair::acknowledge::Acknowledger;
use crate::repair::holes::Holes;
use crate::repair::layout::{Group, Layout};
use crate::units::Time;
use std::collections::BTreeMap;

/// A group that has begun to arrive.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) sizes: Group,
    /// With a code: for each submessage, the number of chunks that have arrived, parity included, and whether it can be
    /// repaired; and the number of submessages that cannot be repaired yet.
    pub(super) have: Vec<u32>,
    pub(super) repaired: Vec<bool>,
    pub(super) unrepaired: u32,
    pub(super) acknowledger: Acknowledger,
    /// With NACKs.
    pub(super) holes: Option<Holes>,
    /// With a code: the sender has been told which chunks parity cannot repair. It is told again at `report_at`, one
    /// timeout after the last packet of the group.
    pub(super) repairing: bool,
    pub(super) report_at: Time,
}

impl Gathering {
    pub(super) fn new(now: Time, plan: &Plan, sizes: Group) -> Gathering {
        let coded = if plan.code.is_some() { sizes.submessages as usize } else { 0 };
        Gathering {
            have: vec![0; coded],
            repaired: vec![false; coded],
            unrepaired: sizes.submessages,
            acknowledger: Acknowledger::new(sizes.chunks),
            holes: plan.reorder.map(|reorder| Holes::new(now, reorder)),
            repairing: false,
            report_at: Time::NEVER,
            sizes,
        }
    }
}

/// A message that has begun to arrive.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) plan: Plan,
    pub(super) number: u8,
    pub(super) layout: Layout,
    pub(super) packets: u32,
    pub(super) bytes: u64,
    /// Its first stretch.
    pub(super) first: u64,
    pub(super) started: Time,
    pub(super) last_new: Time,
    pub(super) groups: BTreeMap<u32, Gathering>,
    /// The number of data packets that were missing when their group was over or its rest was asked for, and the number
    /// of runs that they form.
    pub(super) lost: u32,
    pub(super) runs: u32,
    /// Groups that are over: all below `below`, and those in `above`.
    pub(super) below: u32,
    pub(super) above: Vec<u32>,
    /// When its next timer ends, at the earliest.
    pub(super) next_at: Time,
}

impl Incoming {
    pub(super) fn is_over(&self, group: u32) -> bool {
        group < self.below || self.above.contains(&group)
    }

    /// Counts the packets of a group's data that have not arrived.
    pub(super) fn count_lost(&mut self, group: u32, data: Option<&Progress>) {
        let packets = self.layout.data(group).len() as u32;
        let mut before = true;
        for packet in 0..packets {
            let there = data.is_some_and(|data| data.has_packet(packet));
            self.lost += u32::from(!there);
            self.runs += u32::from(before && !there);
            before = there;
        }
    }

    /// Bytes of a group's data that have not arrived.
    pub(super) fn missing_bytes(&self, group: u32, data: Option<&Progress>, mtu: u64) -> u64 {
        let packets = self.layout.data(group);
        let missing = packets.len() as u32 - data.map_or(0, Progress::packets_present);
        let has_last = data.is_some_and(|data| data.has_packet(packets.len() as u32 - 1));
        let short = u64::from(self.packets) * mtu - self.bytes;
        u64::from(missing) * mtu - if packets.end == self.packets && !has_last { short } else { 0 }
    }

    /// The groups that may be arriving now: at most as many as there are slots for.
    pub(super) fn under_way(&self) -> std::ops::Range<u32> {
        self.below..self.layout.groups().min(self.below.saturating_add(SLOTS as u32 / 2))
    }

    pub(super) fn end_group(&mut self, group: u32) {
        self.groups.remove(&group);
        self.above.push(group);
        while let Some(at) = self.above.iter().position(|&g| g == self.below) {
            self.above.swap_remove(at);
            self.below += 1;
        }
    }

    /// A control message that tells which groups are over.
    pub(super) fn recovered(&self) -> ControlMessage {
        let base = self.below;
        let bit = |&group: &u32| 1u64.checked_shl(group - base).unwrap_or(0);
        let bits = SackBits::new(self.above.iter().map(bit).fold(0, |a, b| a | b));
        let held = self.runs.min(u32::from(u16::MAX)) as u16;
        let sequence = truncated(self.first);
        ControlMessage::Recovered(Have { sequence, cumulative: base, base, bits, newest: self.lost, held })
    }
}
