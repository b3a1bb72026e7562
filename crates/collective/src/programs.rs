//! The programs of a run: which one sits at each host.

use crate::flows::{FlowTable, Flows};
use std::fmt;
use strandway_fabric::Plan;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::{HostId, Time};

/// What a host may run: one `match`, no pointer to follow for the programs that are built in.
pub enum AnyApplication<'a> {
    /// The plan's flows.
    Flows(Flows<'a>),
    /// A program of one's own.
    Custom(Box<dyn Application + 'a>),
}

impl fmt::Debug for AnyApplication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyApplication::Flows(flows) => flows.fmt(f),
            AnyApplication::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Calls the same method of whichever program it is.
macro_rules! each {
    ($any:expr, $program:ident => $call:expr) => {
        match $any {
            AnyApplication::Flows($program) => $call,
            AnyApplication::Custom($program) => $call,
        }
    };
}

impl Application for AnyApplication<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        each!(self, program => program.handle_event(now, event))
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, program => program.handle_timeout(now))
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        each!(self, program => program.poll_action(now))
    }

    fn poll_timeout(&self) -> Time {
        each!(self, program => program.poll_timeout())
    }

    fn is_done(&self) -> bool {
        each!(self, program => program.is_done())
    }
}

/// All programs of a run.
#[derive(Debug)]
pub struct Programs<'a> {
    flows: FlowTable<'a>,
}

impl<'a> Programs<'a> {
    /// Those of a plan's flows.
    pub fn new(plan: &'a Plan) -> Programs<'a> {
        Programs { flows: FlowTable::new(plan) }
    }

    /// The program of one host, at its beginning.
    pub fn at(&self, host: HostId) -> AnyApplication<'_> {
        AnyApplication::Flows(Flows::new(&self.flows, host))
    }

    /// Does one host's program ever signal another's?
    pub fn signals(&self) -> bool {
        self.flows.signals()
    }
}
