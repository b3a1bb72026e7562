//! The node of one side of a cast: without a team, or in the team that it has joined last.

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

/// A node, and its team if it has one.
pub(super) struct NodeRole(Option<Inner>);

/// The node's role is empty only inside `join` and `leave`.
const SITS: &str = "it sits again at the end of each change";

impl NodeRole {
    /// A node without a team.
    pub(super) fn new(node: Node) -> NodeRole {
        NodeRole(Some(Inner::Alone(Box::new(node), VecDeque::new())))
    }

    pub(super) fn node(&mut self) -> &mut Node {
        match self.0.as_mut().expect(SITS) {
            Inner::Alone(node, _) => node,
            Inner::Member(team) => &mut team.node,
        }
    }

    /// The node's team.
    pub(super) fn team(&mut self) -> Option<&mut Team> {
        match self.0.as_mut().expect(SITS) {
            Inner::Alone(..) => None,
            Inner::Member(team) => Some(team),
        }
    }

    /// The next completion; completions that operations of the team have set aside come first.
    pub(super) fn wait(&mut self, nap: Duration) -> Result<Option<Completion>, GroupError> {
        match self.0.as_mut().expect(SITS) {
            Inner::Alone(node, others) => match others.pop_front() {
                Some(completion) => Ok(Some(completion)),
                None => Ok(node.wait(nap)?),
            },
            Inner::Member(team) => team.next(nap),
        }
    }

    /// Passes a control message that came between operations to the team; other completions are ignored.
    pub(super) fn handle_completion(&mut self, completion: &Completion) -> Result<(), GroupError> {
        match (self.team(), completion) {
            (Some(team), Completion::Word { from, control, to_all: false, .. }) => team.handle_control(*from, control),
            _ => Ok(()),
        }
    }

    /// Leaves its team and joins another one, whose root repairs only chunks that no receiver has.
    ///
    /// # Errors
    /// If the membership does not fit the node, which is without a team then.
    pub(super) fn join(&mut self, membership: &Membership, options: Options) -> Result<(), GroupError> {
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

    /// Leaves its team.
    pub(super) fn leave(mut self) -> Node {
        self.take().0
    }

    fn take(&mut self) -> (Node, VecDeque<Completion>) {
        match self.0.take().expect(SITS) {
            Inner::Alone(node, others) => (*node, others),
            Inner::Member(team) => team.leave(),
        }
    }
}
