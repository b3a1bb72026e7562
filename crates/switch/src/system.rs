//! The systems: in one place, everything that differs between them outside their programs.

use crate::atp::AtpProgram;
use crate::esa::EsaProgram;
use crate::job::Job;
use crate::pooled::{Discipline, Pooled};
use crate::server::Rules;
use crate::settings::Esa;
use crate::switchml::SwitchMlProgram;
use crate::worker::Recovery;
use std::sync::Arc;
use strandway_proto::program::Program;
use strandway_proto::units::{Span, Time};

/// The system that a switch runs. A new system is a variant, whose branches the compiler asks for in this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// ESA: slots may be taken over.
    Esa(Esa),
    /// ATP: the first fragment gets the slot.
    Atp,
    /// SwitchML: slots are divided among jobs.
    SwitchMl {
        /// Drop a fragment that arrives after a newer one of its worker and slot. If false, each worker's path must
        /// keep packets in order.
        strict_order: bool,
    },
}

/// The program of a switch, for jobs that come and go.
pub trait JobProgram: Program {
    /// Starts to serve a job, as the switch above this leaf's hosts.
    fn admit(&mut self, job: &Arc<Job>, leaf: u32, share: SlotShare);

    /// Stops serving a job, and empties its slots.
    fn dismiss(&mut self, now: Time, job: u16);

    /// The number of slots that a job holds.
    fn held(&self, job: u16) -> u32;
}

/// A job's share of the slots of a switch.
#[derive(Clone, Copy, Debug)]
pub struct SlotShare {
    /// The most slots at a time, if jobs share all slots.
    pub slots_max: u32,
    /// The first register, if slots are divided among jobs.
    pub first: u32,
}

impl<D: Discipline> JobProgram for Pooled<D> {
    fn admit(&mut self, job: &Arc<Job>, leaf: u32, share: SlotShare) {
        Pooled::admit(self, job, leaf, share.slots_max);
    }

    fn dismiss(&mut self, now: Time, job: u16) {
        Pooled::dismiss(self, now, job);
    }

    fn held(&self, job: u16) -> u32 {
        Pooled::held(self, job)
    }
}

impl JobProgram for SwitchMlProgram {
    fn admit(&mut self, job: &Arc<Job>, leaf: u32, share: SlotShare) {
        SwitchMlProgram::admit(self, job, leaf, share.first);
    }

    fn dismiss(&mut self, now: Time, job: u16) {
        SwitchMlProgram::dismiss(self, now, job);
    }

    fn held(&self, job: u16) -> u32 {
        SwitchMlProgram::held(self, job)
    }
}

impl System {
    /// The name of the system.
    pub const fn name(self) -> &'static str {
        match self {
            System::Esa(_) => "esa",
            System::Atp => "atp",
            System::SwitchMl { .. } => "switchml",
        }
    }

    /// The number of the system in messages.
    pub const fn number(self) -> u8 {
        match self {
            System::Esa(_) => 1,
            System::Atp => 2,
            System::SwitchMl { .. } => 3,
        }
    }

    /// The system of a number in messages; its parameters, which workers do not need, are the defaults.
    pub fn of_number(number: u8) -> Option<System> {
        let all = [System::Esa(Esa::default()), System::Atp, System::SwitchMl { strict_order: true }];
        all.into_iter().find(|system| system.number() == number)
    }

    /// The shortest time that a worker waits for a result: ESA's is ours, the others are those of the released code.
    pub const fn timeout(self) -> Span {
        match self {
            System::Esa(_) => Span::from_ms(1),
            System::Atp => Span::from_us(200),
            System::SwitchMl { .. } => Span::from_ms(10),
        }
    }

    /// How workers with a window recover; `None` if workers are clocked by results (SwitchML).
    pub const fn recovery(self) -> Option<Recovery> {
        match self {
            System::Esa(_) => Some(Recovery::Remind),
            System::Atp => Some(Recovery::Resend),
            System::SwitchMl { .. } => None,
        }
    }

    /// The rules of its parameter server, with ESA's timer and ATP's new addresses on or off; `None` if it has no
    /// server.
    pub const fn rules(self, flush_timer: bool, readdress: bool) -> Option<Rules> {
        match self {
            System::Esa(_) => Some(Rules::Cover { flush_timer }),
            System::Atp => Some(Rules::Discard { readdress }),
            System::SwitchMl { .. } => None,
        }
    }

    /// True if it has a parameter server.
    pub const fn has_server(self) -> bool {
        self.rules(true, true).is_some()
    }

    /// True if its parameter server has sums that exist nowhere else, so that no other server can continue. ESA's
    /// server has only soft state.
    pub const fn server_keeps_sums(self) -> bool {
        match self {
            System::Atp => true,
            System::Esa(_) | System::SwitchMl { .. } => false,
        }
    }

    /// True if each job has slots of its own; false if jobs compete for slots.
    pub const fn divides_slots(self) -> bool {
        match self {
            System::SwitchMl { .. } => true,
            System::Esa(_) | System::Atp => false,
        }
    }

    /// True if packets can carry exponents, one window ahead.
    pub const fn has_exponents(self) -> bool {
        match self {
            System::SwitchMl { .. } => true,
            System::Esa(_) | System::Atp => false,
        }
    }

    /// The program of the switch above this leaf's hosts, with `slots` slots. `every` is the interval of the slot
    /// occupancy series; zero for none.
    pub fn program(self, jobs: &[Arc<Job>], leaf: u32, slots: u32, rtt: Span, every: Span) -> Box<dyn JobProgram> {
        match self {
            System::Esa(esa) => Box::new(EsaProgram::new(jobs, leaf, slots, esa, rtt, every)),
            System::Atp => Box::new(AtpProgram::new(jobs, leaf, slots, rtt, every)),
            System::SwitchMl { strict_order } => Box::new(SwitchMlProgram::new(jobs, leaf, slots, strict_order, every)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_number() {
        for system in [System::Esa(Esa::default()), System::Atp, System::SwitchMl { strict_order: true }] {
            assert_eq!(System::of_number(system.number()), Some(system));
        }
        assert_eq!(System::of_number(0), None);
    }

    #[test]
    fn numbers_in_messages_name_systems() {
        for (number, name) in [(1, "esa"), (2, "atp"), (3, "switchml")] {
            assert_eq!(System::of_number(number).map(System::name), Some(name));
        }
        assert_eq!((System::of_number(0), System::of_number(4)), (None, None));
    }
}
