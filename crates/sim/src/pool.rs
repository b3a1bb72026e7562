//! Packets on their way to switches that take them one event at a time, in one arena.

use crate::road::Transit;

/// A packet and the node that it travels to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) packet: Transit,
    pub(crate) node: u32,
}

/// Slots and which of them are free; the last one freed is taken first, since it is warm.
#[derive(Default)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn put(&mut self, packet: Transit, node: u32) -> u32 {
        let slot = Slot { packet, node };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(crate) fn take(&mut self, index: u32) -> Slot {
        self.free.push(index);
        self.slots[index as usize]
    }
}
