//! Registers with the numbers of fragments, which programs of switches and servers store into and add to.

use strandway_proto::program::Elements;

/// Numbered registers, each with the numbers of one fragment. Naming a higher register makes the list grow, so the
/// caller must bound the register numbers.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    elements: usize,
    numbers: Vec<i32>,
    /// For each register: does it hold floats?
    floats: Vec<bool>,
}

impl Registers {
    pub(crate) fn new(elements: u16, count: u32) -> Registers {
        let elements = usize::from(elements);
        Registers { elements, numbers: vec![0; elements * count as usize], floats: vec![false; count as usize] }
    }

    fn at(&mut self, register: u32) -> std::ops::Range<usize> {
        let at = register as usize;
        if at >= self.floats.len() {
            self.floats.resize(at + 1, false);
            self.numbers.resize((at + 1) * self.elements, 0);
        }
        at * self.elements..(at + 1) * self.elements
    }

    /// Overwrites a register. `float`: the incoming numbers are the bits of floats.
    pub(crate) fn store(&mut self, to: u32, from: Elements, incoming: &[i32], float: bool) {
        let place = self.at(to);
        match from {
            Elements::Register(from) => {
                let (from, float) = (self.at(from), self.floats.get(from as usize).copied());
                self.numbers.copy_within(from, place.start);
                self.floats[to as usize] = float.unwrap_or(false);
            }
            _ => {
                let length = incoming.len().min(self.elements);
                let (start, rest) = self.numbers[place].split_at_mut(length);
                start.copy_from_slice(&incoming[..length]);
                rest.fill(0);
                self.floats[to as usize] = float;
            }
        }
    }

    /// Adds to a register, as floats if it holds floats. Integers saturate.
    pub(crate) fn add(&mut self, to: u32, from: Elements, incoming: &[i32]) {
        let place = self.at(to);
        let float = self.floats[to as usize];
        match from {
            Elements::Register(from) => {
                let from = self.at(from);
                if from == place {
                    return;
                }
                // Both registers are in one vector, which is split at the later one.
                let middle = place.start.max(from.start);
                let (low, high) = self.numbers.split_at_mut(middle);
                let (low, high) = (&mut low[place.start.min(from.start)..], &mut high[..self.elements]);
                let low = &mut low[..self.elements];
                if place.start < from.start { add(low, high, float) } else { add(high, low, float) }
            }
            _ => add(&mut self.numbers[place], incoming, float),
        }
    }

    /// The numbers that an act refers to.
    pub(crate) fn get<'a>(&'a self, elements: Elements, incoming: &'a [i32]) -> &'a [i32] {
        match elements {
            Elements::Register(at) => {
                self.numbers.get(at as usize * self.elements..(at as usize + 1) * self.elements).unwrap_or(&[])
            }
            Elements::Incoming => incoming,
            Elements::None | Elements::Own(_) | Elements::Result(_) => &[],
        }
    }
}

fn add(to: &mut [i32], from: &[i32], float: bool) {
    match float {
        false => add_integers(to, from),
        true => to.iter_mut().zip(from).for_each(|(sum, &more)| {
            *sum = (f32::from_bits(*sum as u32) + f32::from_bits(more as u32)).to_bits() as i32;
        }),
    }
}

/// Adds integers, with saturation. Sums of honest workers never saturate, so all are added without a check first, and
/// the rare overflows are corrected afterwards.
fn add_integers(to: &mut [i32], from: &[i32]) {
    let mut overflows = 0;
    for (sum, &more) in to.iter_mut().zip(from) {
        let (before, after) = (*sum, sum.wrapping_add(more));
        // The sign of a sum that overflows differs from the sign of both numbers.
        overflows |= (before ^ after) & (more ^ after);
        *sum = after;
    }
    if overflows < 0 {
        to.iter_mut().zip(from).for_each(|(sum, &more)| *sum = sum.wrapping_sub(more).saturating_add(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_add_integers_and_floats_each_in_their_way() {
        let mut registers = Registers::new(2, 1);
        registers.store(0, Elements::Incoming, &[1, i32::MAX - 1], false);
        registers.add(0, Elements::Incoming, &[2, 5]);
        assert_eq!(registers.get(Elements::Register(0), &[]), [3, i32::MAX]);
        let bits = |x: f32| x.to_bits() as i32;
        registers.store(3, Elements::Incoming, &[bits(0.5), bits(2.0)], true);
        registers.store(1, Elements::Incoming, &[bits(0.25), bits(-2.0)], true);
        registers.add(3, Elements::Register(1), &[]);
        registers.add(1, Elements::Register(3), &[]);
        assert_eq!(registers.get(Elements::Register(3), &[]), [bits(0.75), bits(0.0)]);
        assert_eq!(registers.get(Elements::Register(1), &[]), [bits(1.0), bits(-2.0)]);
        registers.store(2, Elements::Register(0), &[], false);
        registers.add(2, Elements::Register(0), &[]);
        assert_eq!(registers.get(Elements::Register(2), &[]), [6, i32::MAX]);
        assert!(registers.get(Elements::Register(9), &[]).is_empty());
    }
}
