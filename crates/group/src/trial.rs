//! Tests on which planes multicast arrives: every member sends control messages along each tree, and notes the members
//! that it hears.

use std::time::Duration;
use strandway_proto::{ControlMessage, PathId};
use strandway_udp::{Completion, Error, Group, Node};

/// The control message of a trial; its kind is used by no program.
pub(crate) const PROBE: ControlMessage = ControlMessage::Custom { kind: 0x4dff, words: [0; 4] };

/// One member's part of a trial. Call [`Trial::send`] [`Trial::ROUNDS`] times, at intervals of [`Trial::EVERY`], and
/// pass all completions to [`Trial::handle_completion`].
#[derive(Clone, Debug)]
pub struct Trial {
    planes: usize,
    trees: usize,
    /// By member, plane and tree.
    heard: Vec<bool>,
}

impl Trial {
    /// The number of control messages along each tree: ours.
    pub const ROUNDS: u32 = 8;
    /// The interval between them: ours.
    pub const EVERY: Duration = Duration::from_millis(15);

    /// The trial of the member `rank` of a team with `members` members, `planes` planes, and `trees` trees of each
    /// plane.
    pub fn new(rank: u32, members: usize, planes: usize, trees: u16) -> Trial {
        let trees = usize::from(trees);
        let own = rank as usize * planes * trees..(rank as usize + 1) * planes * trees;
        let heard = (0..members * planes * trees).map(|at| own.contains(&at)).collect();
        Trial { planes, trees, heard }
    }

    /// Sends a control message along each tree of each plane.
    ///
    /// # Errors
    /// If the node is not in the group.
    pub fn send(&self, node: &mut Node, group: Group) -> Result<(), Error> {
        for plane in 0..self.planes {
            for tree in 0..self.trees {
                node.send_control_to_all(group, PathId::new(plane as u8, tree as u32), PROBE)?;
            }
        }
        Ok(())
    }

    /// Handles a completion of the team's group; false if it does not belong to a trial.
    pub fn handle_completion(&mut self, completion: &Completion) -> bool {
        let Completion::Word { from, path, to_all: true, control: PROBE, .. } = *completion else { return false };
        let (plane, tree) = (usize::from(path.port()), path.entropy() as usize % self.trees.max(1));
        if let Some(heard) = self.heard.get_mut((from as usize * self.planes + plane) * self.trees + tree) {
            *heard = true;
        }
        true
    }

    /// The planes on which every other member was heard on every tree, one bit each.
    pub fn planes(&self) -> u32 {
        let members = self.heard.chunks(self.planes * self.trees);
        let all = |plane: usize| {
            members.clone().all(|heard| heard[plane * self.trees..(plane + 1) * self.trees].iter().all(|&heard| heard))
        };
        (0..self.planes).filter(|&plane| all(plane)).fold(0, |planes, plane| planes | 1 << plane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_counts_once_everybody_was_heard_on_all_of_its_trees() {
        let mut trial = Trial::new(1, 2, 2, 2);
        assert_eq!(trial.planes(), 0);
        [0, 1, 3].into_iter().for_each(|at| trial.heard[at] = true);
        assert_eq!(trial.planes(), 0b01);
        trial.heard[2] = true;
        assert_eq!(trial.planes(), 0b11);
    }
}
