//! The telemetry of the packets in the fabric, beside [`crate::road::Cargo`].

use crate::port::{Limits, Port};
use crate::road::Transit;
use strandway_fabric::plan::Plan;
use strandway_proto::telemetry::{HopRecord, Telemetry};
use strandway_proto::units::Time;

/// Does a profile of the run read the records of switches?
pub(crate) fn is_wanted(plan: &Plan) -> bool {
    plan.profiles.iter().any(|profile| profile.congestion.reads_telemetry())
}

/// The records of the packets that a slice stores, by their index in the cargo. It stays empty if no profile of the run
/// reads telemetry.
#[derive(Default)]
pub(crate) struct Carried {
    all: Vec<Telemetry>,
}

impl Carried {
    /// A stored packet carries these records.
    pub(crate) fn put(&mut self, packet: &Transit, telemetry: Telemetry) {
        let index = packet.cargo() as usize;
        if index >= self.all.len() {
            self.all.resize(index + 1, Telemetry::NONE);
        }
        self.all[index] = telemetry;
    }

    /// The records of a stored packet.
    pub(crate) fn of(&self, packet: &Transit) -> &Telemetry {
        self.all.get(packet.cargo() as usize).unwrap_or(&Telemetry::NONE)
    }

    /// A switch port that begins to send a data packet at `start` adds its record. The port's counters already include
    /// the packet.
    pub(crate) fn note(&mut self, packet: &Transit, port: &Port, limits: &Limits, queued: u64, start: u64) {
        if let Some(telemetry) = self.all.get_mut(packet.cargo() as usize)
            && packet.is_whole_data()
        {
            telemetry.push(HopRecord {
                link: port.link,
                queue: u32::try_from(queued).unwrap_or(u32::MAX),
                time: Time(start),
                sent: port.bytes - u64::from(packet.size()),
                rate: limits.rate,
            });
        }
    }
}
