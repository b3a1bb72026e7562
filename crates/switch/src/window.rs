//! The window of a worker of ESA or ATP: the number of fragments in flight.
//!
//! ATP's window (ESA sheet, section 5.1): marks shrink it. Round trips are not used, because they contain the wait for
//! other workers. The paper's window also reacts to results out of order, the released code does not: that is an option.

/// The first window in packets: about 60 KB, less than the bandwidth-delay product at 100 Gb/s. ATP.
pub const START: u32 = 200;

/// The growth in packets: 1,500 bytes in packets of 306. ATP.
const STEP: u32 = 5;

/// A window in packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    size: u32,
    slow_until: u32,
    most: u32,
    /// Results since the last growth.
    heard: u32,
    /// The window has already reacted to marks on keys below this one.
    answered: u64,
}

impl Window {
    /// A window that begins with `start` packets and is at most `most`.
    pub fn new(start: u32, most: u32) -> Window {
        let most = most.max(1);
        Window { size: start.clamp(1, most), slow_until: u32::MAX, most, heard: 0, answered: 0 }
    }

    /// The window in packets.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The result of a key has arrived, with or without a mark; `next` is the next key to send.
    pub fn on_result(&mut self, key: u64, marked: bool, next: u64) {
        if marked {
            if key >= self.answered {
                self.shrink(next);
            }
            return;
        }
        if self.size < self.slow_until {
            self.size = (self.size + STEP).min(self.most);
            return;
        }
        self.heard += 1;
        if self.heard >= self.size {
            self.heard = 0;
            self.size = (self.size + STEP).min(self.most);
        }
    }

    /// Three later results have come before one. The window reacts once for all keys below `next`.
    pub fn on_reordering(&mut self, key: u64, next: u64) {
        if key >= self.answered {
            self.shrink(next);
        }
    }

    /// Halves the window, because a queue is long; once for all keys below `next`.
    fn shrink(&mut self, next: u64) {
        self.size = (self.size / 2).max(1);
        self.slow_until = self.size;
        self.heard = 0;
        self.answered = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_a_step_per_result_until_a_mark_and_then_per_window() {
        let mut window = Window::new(START, 1024);
        (0..10).for_each(|key| window.on_result(key, false, 300));
        assert_eq!(window.size(), 250);
        window.on_result(10, true, 300);
        window.on_result(11, true, 300);
        assert_eq!(window.size(), 125, "two marks of one window count once");
        (300..300 + 125).for_each(|key| window.on_result(key, false, 500));
        assert_eq!(window.size(), 130);
        window.on_result(500, true, 800);
        assert_eq!(window.size(), 65);
        let mut small = Window::new(1, 8);
        (0..9).for_each(|key| small.on_result(key, false, 9));
        assert_eq!(small.size(), 8);
        (10..20).for_each(|key| small.on_result(key, true, key));
        assert_eq!(small.size(), 1);
    }
}
