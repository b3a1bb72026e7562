//! A node that joins one team after another: without a team, or in the team that it has joined last.

use crate::error::GroupError;
use crate::team::{Options, Team};
use std::collections::VecDeque;
use std::time::Duration;
use strandway_udp::{Completion, Membership, Node};

enum Inner {
    /// With the completions that its last team has set aside.
    Alone(Box<Node>, VecDeque<Completion>),
    Member(Box<Team>),
}

/// A node, and its team if it has one. For programs whose members know each other already and change, such as casts of
/// files: they agree by their own messages, and join one team after another without [`Team::form`].
pub struct NodeRole(Option<Inner>);

/// The role is empty only inside `join` and `leave`.
const FULL: &str = "each change of the team ends with a role";

impl NodeRole {
    /// A node without a team.
    pub fn new(node: Node) -> NodeRole {
        NodeRole(Some(Inner::Alone(Box::new(node), VecDeque::new())))
    }

    /// The node, also while it is in a team.
    pub fn node(&mut self) -> &mut Node {
        match self.0.as_mut().expect(FULL) {
            Inner::Alone(node, _) => node,
            Inner::Member(team) => &mut team.node,
        }
    }

    /// The node's team; `None` if it has none.
    pub fn team(&mut self) -> Option<&mut Team> {
        match self.0.as_mut().expect(FULL) {
            Inner::Alone(..) => None,
            Inner::Member(team) => Some(team),
        }
    }

    /// Waits at most `nap` for the next completion. Completions that operations of the team have set aside come first.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn wait(&mut self, nap: Duration) -> Result<Option<Completion>, GroupError> {
        match self.0.as_mut().expect(FULL) {
            Inner::Alone(node, others) => match others.pop_front() {
                Some(completion) => Ok(Some(completion)),
                None => Ok(node.wait(nap)?),
            },
            Inner::Member(team) => team.next(nap),
        }
    }

    /// Passes a control message that came between operations to the team; other completions are ignored.
    ///
    /// # Errors
    /// If the team's answer cannot be sent.
    pub fn handle_completion(&mut self, completion: &Completion) -> Result<(), GroupError> {
        match (self.team(), completion) {
            (Some(team), Completion::Word { from, control, to_all: false, .. }) => team.handle_control(*from, control),
            _ => Ok(()),
        }
    }

    /// Leaves its team and joins another one, whose root repairs only chunks that no receiver has.
    ///
    /// # Errors
    /// If the membership does not fit the node, which is without a team then.
    pub fn join(&mut self, membership: &Membership, options: Options) -> Result<(), GroupError> {
        let (node, others) = self.take();
        match Team::join(node, membership, options) {
            Ok(mut team) => {
                team.spare_root = true;
                team.others = others;
                self.0 = Some(Inner::Member(Box::new(team)));
                Ok(())
            }
            Err((node, error)) => {
                self.0 = Some(Inner::Alone(node, others));
                Err(error)
            }
        }
    }

    /// Leaves the team, if there is one, and returns the node.
    pub fn leave(mut self) -> Node {
        self.take().0
    }

    fn take(&mut self) -> (Node, VecDeque<Completion>) {
        match self.0.take().expect(FULL) {
            Inner::Alone(node, others) => (*node, others),
            Inner::Member(team) => team.leave(),
        }
    }
}
