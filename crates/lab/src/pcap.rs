//! Recorded packets as a capture file that Wireshark opens.

mod uet;

use std::io::{self, Write};
use strandway_fabric::Measurements;
use strandway_fabric::measure::Captured;
use strandway_proto::Packet;
use strandway_proto::packet::Header;
use strandway_proto::profile::WireFormat;
use strandway_scenario::{CaptureLayout, Experiment};
use strandway_wire::frame;
use uet::Contexts;

/// Magic number of the classic format with nanosecond timestamps.
const MAGIC: u32 = 0xa1b2_3c4d;

/// Link type Ethernet.
const ETHERNET: u32 = 1;

/// The longest frame that the file header announces: no real frame is longer than 64 KiB.
const SNAP: u32 = 65_535;

/// The number of packets in a capture file, and of those left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Packets in the file.
    pub packets: usize,
    /// Packets left out because a field does not fit the layout (host number or entropy value too large), or UET has no
    /// header for them.
    pub skipped: usize,
}

/// Writes the recorded packets as a capture file.
///
/// The simulator has no payload bytes. Frames hold real headers, and are marked as cut after them. RoCEv2 frames are
/// complete, with a payload of zeros, because Wireshark's InfiniBand dissector reports a cut payload as a malformed
/// frame.
///
/// A frame is longer than the packet was on the simulated wire. There all headers together have `transport.header`
/// bytes, and a control packet has `transport.control` bytes, in every format: `docs/wireshark/README.md` lists the
/// lengths.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(experiment: &Experiment, measured: &Measurements, out: &mut dyn Write) -> io::Result<Capture> {
    let mut header = Vec::with_capacity(24);
    header.extend(MAGIC.to_le_bytes());
    header.extend(2u16.to_le_bytes());
    header.extend(4u16.to_le_bytes());
    header.extend([0; 8]);
    header.extend(SNAP.to_le_bytes());
    header.extend(ETHERNET.to_le_bytes());
    out.write_all(&header)?;
    let mut bytes = Vec::new();
    let (mut packets, mut skipped) = (0, 0);
    let mut contexts = match experiment.recording.capture_layout {
        CaptureLayout::Uet => Some(Contexts::new(experiment, &measured.captured)),
        CaptureLayout::Profile => None,
    };
    for captured in &measured.captured {
        bytes.clear();
        let whole = match &mut contexts {
            Some(contexts) => contexts
                .conversation(captured)
                .and_then(|conversation| frame::write_uet(&captured.packet, &conversation, &mut bytes).ok()),
            None => write_own(experiment, captured, &mut bytes),
        };
        let Some(whole) = whole else {
            skipped += 1;
            continue;
        };
        packets += 1;
        let ns = captured.at.0 / 1_000;
        let times = [ns / 1_000_000_000, ns % 1_000_000_000];
        for field in times.into_iter().chain([bytes.len() as u64, whole as u64]) {
            out.write_all(&(field as u32).to_le_bytes())?;
        }
        out.write_all(&bytes)?;
    }
    Ok(Capture { packets, skipped })
}

/// Appends the frame of a packet in the layout of its profile, and returns its length on the wire.
fn write_own(experiment: &Experiment, captured: &Captured, bytes: &mut Vec<u8>) -> Option<usize> {
    let format = experiment.plan.profiles[usize::from(captured.profile)].wire;
    let message = message_bytes(experiment, &captured.packet);
    let whole = frame::write_within(format, &captured.packet, message, bytes).ok()?;
    if format == WireFormat::Rocev2 {
        bytes.resize(whole, 0);
    }
    Some(whole)
}

/// Bytes of the message to which a data packet belongs. In the simulator the number of a message is that of its flow.
fn message_bytes(experiment: &Experiment, packet: &Packet) -> Option<u64> {
    match packet.header {
        Header::Data(data) => experiment.plan.flows.get(data.message.0 as usize).map(|flow| flow.bytes),
        _ => None,
    }
}
