//! Credit of links (CBFC): a port sends data only while the switch at the other end has room for a full packet more.
//!
//! Each input port of a switch has a buffer of its own. Bytes count as used from the moment in which a packet leaves
//! the neighbour, and are free again one link latency after the packet has left the switch. Ports that lead to hosts
//! need no credit. Credit travels in ordered sets of a few bytes, which take no time on the wire here.

use super::Slice;
use super::crossing::News;
use crate::port::flag;
use strandway_fabric::topology::LinkId;

impl Slice<'_> {
    /// A port hears from its neighbour: of a pause (PFC), or of credit.
    pub(super) fn handle_link_news(&mut self, i: usize, now: u64, word: u32) {
        let Some(credit) = self.config.link_credit else { return self.pause(i, now, word != 0) };
        let cold = &mut self.fabric.colds[i];
        cold.credit_used -= u64::from(word);
        if cold.credit_used + credit.packet <= credit.buffer {
            self.pause(i, now, false);
        }
    }

    /// A packet of data has left by this port, which had lost `lost_before` packets until then. Returns true if the
    /// port now waits for credit and did not before.
    pub(super) fn spend_link_credit(&mut self, i: usize, size: u16, lost_before: u32, now: u64) -> bool {
        let is_last = self.ports[i].has(flag::LAST);
        let Some(credit) = self.config.link_credit.filter(|_| !is_last) else { return false };
        let used = &mut self.fabric.colds[i].credit_used;
        *used += u64::from(size);
        let used = *used;
        if self.fabric.colds[i].lost > lost_before {
            // The two ends compare their counts and find the packet missing.
            let link = self.ports[i].link;
            let latency = self.latency_of(link);
            self.send_pause_on(self.ports[i].busy_until + 2 * latency, link, u32::from(size));
        }
        let waits = used + credit.packet > credit.buffer && !self.ports[i].has(flag::PAUSED);
        if waits {
            self.ports[i].set(flag::PAUSED, true);
            self.fabric.colds[i].paused_since = now;
        }
        waits
    }

    /// The same by the `ingress` of a packet that this switch has lost, if a neighbour sent it.
    pub(super) fn return_link_credit_of(&mut self, ingress: u32, size: u64, now: u64) {
        if (ingress as usize) < self.ports.len() {
            self.return_link_credit(ingress as usize, size, now);
        }
    }

    fn latency_of(&self, link: u32) -> u64 {
        let topology = &self.config.plan.topology;
        topology.ends(LinkId(link)).map_or(0, |ends| topology.level(ends.level).latency.0)
    }

    /// Data that came in by the neighbour of this port has left the switch: the neighbour gets its credit back.
    pub(super) fn return_link_credit(&mut self, i: usize, size: u64, now: u64) {
        let ends = self.config.plan.topology.ends(LinkId(self.ports[i].link)).expect("a port in use leads somewhere");
        let time = now + self.latency_of(self.ports[i].link);
        let (link, word) = (ends.reverse.0, size as u32);
        let target = self.config.cut.slice_of(ends.to);
        if target == self.config.index {
            self.send_pause_on(time, link, word);
        } else {
            self.fabric.outboxes[target].send_news(News::Pause { time, link, word });
        }
    }
}
