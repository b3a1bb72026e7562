//! Recorded packets as a capture file that Wireshark opens.

use crate::plan::Experiment;
use strandway_proto::wire::frame;
use strandway_sim::Measurements;

/// Magic number of the classic format with nanosecond timestamps.
const MAGIC: u32 = 0xa1b2_3c4d;

/// Link type Ethernet.
const ETHERNET: u32 = 1;

/// The longest frame that the headers announce: no real one is longer than 64 KiB.
const SNAP: u32 = 65_535;

/// A capture file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The file.
    pub bytes: Vec<u8>,
    /// Packets in it.
    pub packets: usize,
    /// Packets left out because their fields do not fit the wire format (a host number or entropy value too large).
    pub skipped: usize,
}

/// The capture file of what was recorded. Payload bytes do not exist in the simulator; frames hold real headers and are
/// marked as cut off behind them.
pub fn write(experiment: &Experiment, measured: &Measurements) -> Capture {
    let mut file = Vec::with_capacity(24 + measured.captured.len() * 112);
    file.extend(MAGIC.to_le_bytes());
    file.extend(2u16.to_le_bytes());
    file.extend(4u16.to_le_bytes());
    file.extend([0; 8]);
    file.extend(SNAP.to_le_bytes());
    file.extend(ETHERNET.to_le_bytes());
    let mut bytes = Vec::new();
    let (mut packets, mut skipped) = (0, 0);
    for captured in &measured.captured {
        bytes.clear();
        let profile = &experiment.plan.profiles[usize::from(captured.profile)];
        let Ok(original) = frame::write(profile.wire, &captured.packet, &mut bytes) else {
            skipped += 1;
            continue;
        };
        packets += 1;
        let ns = captured.at.0 / 1_000;
        file.extend(((ns / 1_000_000_000) as u32).to_le_bytes());
        file.extend(((ns % 1_000_000_000) as u32).to_le_bytes());
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend((original.max(bytes.len()) as u32).to_le_bytes());
        file.extend(&bytes);
    }
    Capture { bytes: file, packets, skipped }
}
