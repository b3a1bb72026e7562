//! The messages of a worker and a switch before the first fragment, on a connection of a [`strandway_udp::Node`], which
//! encrypts them. A switch that has a parent is a *rack*: it passes on the requests of its workers, and gets one answer
//! for all of them.
//!
//! Everything is big-endian. A worker sends once for each session
//!
//! ```text
//! join 1, version 2, worker 2, workers 2, elements 2, window 4, epoch 4, token 16, exponents (1), scatter (2) 1
//! ```
//!
//! A rack sends this message with 4 in place of 1, once for each of its workers. The answer is one of
//!
//! ```text
//! welcome 2, version 2, system 1, ports 1, job 2, elements 2, rack of the receiver 1, window 4, slots 4,
//!            secret of its fragments 32, secret of the switch's fragments 32, rack of the switch that adds racks 1,
//!            workers 2, round trip in us 4, UDP port 2 for each of the ports, rack 1 for each of the workers, scatter 1
//! refused 3, version 2, reason 1
//! ```
//!
//! The token belongs to the team; the epoch counts its sessions.
//!
//! A parameter server in a process of its own sends `serve 5, version 2, UDP port 2`, and gets a welcome for each
//! session.

use std::fmt;
use strandway_switch::who::RACK_MAX;
use strandway_wire::Reader;

/// The version of these messages.
pub(super) const VERSION: u8 = 2;
/// Bytes of a message, including the zeros after its end.
pub const BYTES: usize = 1_280;
/// The most ports of a switch, each with a thread: the number that fits a message.
pub const PORTS_MAX: usize = 16;
/// The most workers of a job: 32 racks of 32. The bitmaps of a header have room for no more.
pub const WORKERS_MAX: usize = RACK_MAX * RACK_MAX;

const _: () = assert!(90 + 2 * PORTS_MAX + WORKERS_MAX <= BYTES);

/// The request of a worker to take part in a session of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The worker's number, from 0 on.
    pub worker: u16,
    /// The number of workers.
    pub workers: u16,
    /// Elements of a fragment.
    pub elements: u16,
    /// The most fragments that the worker wants under way.
    pub window: u32,
    /// The number of the team's session, from 1 on.
    pub epoch: u32,
    /// The token of the team, which tells it from other teams with the job's key.
    pub token: [u8; 16],
    /// SwitchML: each block has exponents of its own.
    pub exponents: bool,
    /// Only the owner of a key gets its sum, if the switch can do that. Key by key, the workers are owners in turn.
    pub scatter: bool,
}

/// The places of a job's workers: the rack of each, and the switch that adds racks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// By worker: its rack. Racks are numbered from 0 on.
    pub racks: Vec<u8>,
    /// The rack whose switch adds racks; the number of racks if that switch has no workers of its own.
    pub top: u8,
}

impl Layout {
    /// The layout in which one switch has all workers.
    pub fn flat(workers: u16) -> Layout {
        Layout { racks: vec![0; usize::from(workers)], top: 0 }
    }
}

/// The answer to a worker or a rack that takes part: the terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The number of the switch's system ([`System::of_number`](strandway_switch::System::of_number)).
    pub system: u8,
    /// The number of the job.
    pub job: u16,
    /// Elements of a fragment.
    pub elements: u16,
    /// The receiver's rack.
    pub rack: u8,
    /// The most fragments under way.
    pub window: u32,
    /// Slots of each port.
    pub slots: u32,
    /// The secret that seals the receiver's fragments.
    pub up: [u8; 32],
    /// The secret that seals the switch's fragments, for all its receivers in the session.
    pub down: [u8; 32],
    /// The racks of all workers.
    pub layout: Layout,
    /// A round trip between a worker and its switch, in microseconds.
    pub rtt: u32,
    /// UDP ports, at the address of the connection.
    pub ports: Vec<u16>,
    /// Only the owner of a key gets its sum. False if a worker has asked for it and the switch cannot do it.
    pub scatter: bool,
}

/// The reason why a worker cannot take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The switch speaks another version.
    Version,
    /// Another team uses the job.
    Busy,
    /// The other workers gave other settings for the job.
    Differs,
    /// More workers, elements or ports than the switch allows.
    TooLarge,
    /// A later session of the team has begun.
    Late,
    /// The worker's switch cannot reach its parent.
    NoParent,
    /// The parent takes no racks.
    NoRacks,
    /// The worker's switch and its parent have different settings.
    Unlike,
    /// The job's parameter server is a process of its own, and has not joined.
    NoServer,
    /// The switch has the parameter servers itself.
    OwnServer,
}

impl Refusal {
    const ALL: [Refusal; 10] = [
        Refusal::Version,
        Refusal::Busy,
        Refusal::Differs,
        Refusal::TooLarge,
        Refusal::Late,
        Refusal::NoParent,
        Refusal::NoRacks,
        Refusal::Unlike,
        Refusal::NoServer,
        Refusal::OwnServer,
    ];

    /// May the next attempt have another outcome?
    pub(super) const fn passes(self) -> bool {
        matches!(self, Refusal::Busy | Refusal::Late | Refusal::NoParent | Refusal::NoServer)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Version => "the switch speaks another version: update the older side",
            Refusal::Busy => "another team uses the job: end it, or take another job's key",
            Refusal::Differs => {
                "the workers of the job differ in number, elements, window, exponents or kind of sums: start all alike"
            }
            Refusal::TooLarge => "the switch takes 256 elements and 32 workers at the most, or 32 racks of 32 workers",
            Refusal::Late => "a later session of the team has begun",
            Refusal::NoParent => "the switch does not reach its parent: start that one, or check the job's key there",
            Refusal::NoRacks => "the switch's parent takes no racks: start it with --racks",
            Refusal::Unlike => "the switch and its parent differ in system, slots or ports: start both alike",
            Refusal::NoServer => "the job's parameter server has not joined: start `strandway switch server`",
            Refusal::OwnServer => "the switch has the parameter servers itself: start it with --server-apart",
        })
    }
}

/// A message between a switch and a worker, a rack or a parameter server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A worker asks to take part.
    Join(Join),
    /// A rack passes on a worker's request.
    Pass(Join),
    /// A parameter server offers itself; its fragments come from, and go to, this UDP port.
    Serve {
        /// The UDP port.
        port: u16,
    },
    /// The receiver takes part, on these terms.
    Welcome(Box<Welcome>),
    /// The receiver does not take part, for this reason.
    Refused(Refusal),
}

fn read_welcome(reader: &mut Reader<'_>) -> Option<Welcome> {
    let (system, count) = (reader.u8().ok()?, usize::from(reader.u8().ok()?));
    let (job, elements, rack) = (reader.u16().ok()?, reader.u16().ok()?, reader.u8().ok()?);
    let (window, slots) = (reader.u32().ok()?, reader.u32().ok()?);
    let (up, down) = (reader.array().ok()?, reader.array().ok()?);
    let (top, workers, rtt) = (reader.u8().ok()?, usize::from(reader.u16().ok()?), reader.u32().ok()?);
    if !(1..=PORTS_MAX).contains(&count) || !(1..=WORKERS_MAX).contains(&workers) {
        return None;
    }
    let ports = (0..count).map(|_| reader.u16().ok()).collect::<Option<_>>()?;
    let racks = (0..workers).map(|_| reader.u8().ok()).collect::<Option<_>>()?;
    let layout = Layout { racks, top };
    // Older switches do not write it; the rest of a message is zero.
    let scatter = reader.u8().ok()? == 1;
    Some(Welcome { system, job, elements, rack, window, slots, up, down, layout, rtt, ports, scatter })
}

impl Message {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        match self {
            Message::Join(join) | Message::Pass(join) => {
                let Join { worker, workers, elements, window, epoch, token, exponents, scatter } = join;
                out.extend_from_slice(&[if matches!(self, Message::Join(_)) { 1 } else { 4 }, VERSION]);
                [*worker, *workers, *elements].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                [*window, *epoch].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.extend_from_slice(token);
                out.push(u8::from(*exponents) | u8::from(*scatter) << 1);
            }
            Message::Welcome(welcome) => {
                let Welcome { system, job, elements, rack, window, slots, up, down, layout, rtt, ports, scatter } =
                    &**welcome;
                out.extend_from_slice(&[2, VERSION, *system, ports.len() as u8]);
                [*job, *elements].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.push(*rack);
                [*window, *slots].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.extend_from_slice(up);
                out.extend_from_slice(down);
                out.push(layout.top);
                out.extend_from_slice(&(layout.racks.len() as u16).to_be_bytes());
                out.extend_from_slice(&rtt.to_be_bytes());
                ports.iter().for_each(|port| out.extend_from_slice(&port.to_be_bytes()));
                out.extend_from_slice(&layout.racks);
                out.push(u8::from(*scatter));
            }
            Message::Serve { port } => {
                out.extend_from_slice(&[5, VERSION]);
                out.extend_from_slice(&port.to_be_bytes());
            }
            Message::Refused(reason) => {
                let number = Refusal::ALL.iter().position(|known| known == reason).unwrap_or(0);
                out.extend_from_slice(&[3, VERSION, number as u8]);
            }
        }
        out.resize(BYTES, 0);
        out
    }

    /// Reads a message; `None` if the bytes are not a message. A message of another version is read as a refusal for
    /// that reason.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8().ok()?;
        if reader.u8().ok()? != VERSION {
            return (1..=5).contains(&kind).then_some(Message::Refused(Refusal::Version));
        }
        match kind {
            1 | 4 => {
                let mut join = Join {
                    worker: reader.u16().ok()?,
                    workers: reader.u16().ok()?,
                    elements: reader.u16().ok()?,
                    window: reader.u32().ok()?,
                    epoch: reader.u32().ok()?,
                    token: reader.array().ok()?,
                    exponents: false,
                    scatter: false,
                };
                let flags = reader.u8().ok()?;
                (join.exponents, join.scatter) = (flags & 1 == 1, flags & 2 == 2);
                Some(if kind == 1 { Message::Join(join) } else { Message::Pass(join) })
            }
            2 => read_welcome(&mut reader).map(|welcome| Message::Welcome(Box::new(welcome))),
            5 => Some(Message::Serve { port: reader.u16().ok()? }),
            3 => Refusal::ALL.get(usize::from(reader.u8().ok()?)).map(|&reason| Message::Refused(reason)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_reads_as_it_was_written(
            words: [u16; 4], longs: [u32; 2], token: [u8; 16], secrets: [[u8; 32]; 2], system: u8,
            ports in prop::collection::vec(any::<u16>(), 1..PORTS_MAX + 1), reason in 0usize..10,
            racks in prop::collection::vec(any::<u8>(), 1..WORKERS_MAX + 1), top: u8, rack: u8, exponents: bool,
            scatter: bool,
        ) {
            let [worker, workers, elements, job] = words;
            let [window, epoch] = longs;
            let [up, down] = secrets;
            let all = [
                Message::Join(Join { worker, workers, elements, window, epoch, token, exponents, scatter }),
                Message::Pass(Join { worker, workers, elements, window, epoch, token, exponents, scatter }),
                Message::Welcome(Box::new(Welcome {
                    system, job, elements, rack, window, slots: epoch, up, down, layout: Layout { racks, top }, rtt: window, ports,
                    scatter,
                })),
                Message::Serve { port: job },
                Message::Refused(Refusal::ALL[reason]),
            ];
            for message in all {
                let bytes = message.encode();
                prop_assert_eq!(bytes.len(), BYTES);
                prop_assert_eq!(Message::decode(&bytes), Some(message));
            }
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..BYTES)) {
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = Message::Refused(Refusal::Busy).encode();
        bytes[1] = VERSION + 1;
        assert_eq!(Message::decode(&bytes), Some(Message::Refused(Refusal::Version)));
    }
}
