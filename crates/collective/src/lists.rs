//! Lists of numbers, one behind the other.

/// Lists of numbers, one behind the other in one allocation: for example, the steps that wait for each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    bounds: Vec<u32>,
    all: Vec<u32>,
}

impl Lists {
    /// `count` lists, from pairs of a list's number and an entry. The entries of a list keep their order.
    ///
    /// # Panics
    /// If a pair names a list that is not below `count`.
    pub fn new(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Lists {
        let mut bounds = vec![0u32; count + 1];
        for (list, _) in pairs.clone() {
            bounds[list as usize + 1] += 1;
        }
        for at in 0..count {
            bounds[at + 1] += bounds[at];
        }
        let mut all = vec![0; bounds[count] as usize];
        let mut next = if all.is_empty() { Vec::new() } else { bounds.clone() };
        for (list, entry) in pairs {
            all[next[list as usize] as usize] = entry;
            next[list as usize] += 1;
        }
        Lists { bounds, all }
    }

    /// The entries of a list.
    ///
    /// # Panics
    /// If there is no list with this number.
    pub fn of(&self, list: u32) -> &[u32] {
        let list = list as usize;
        &self.all[self.bounds[list] as usize..self.bounds[list + 1] as usize]
    }
}
