//! The messages of a worker and a switch before the first fragment, on a connection of a [`strandway_udp::Node`], which
//! encrypts it.
//!
//! Everything is big-endian. A worker sends once for each session
//!
//! ```text
//! join 1, version 1, worker 2, workers 2, lanes 2, window 4, epoch 4, token 16
//! ```
//!
//! and gets one of
//!
//! ```text
//! welcome 2, version 1, system 1, ports 1, job 2, lanes 2, zero 1, window 4, slots 4, secret of its fragments 32,
//!            secret of the switch's fragments 32, UDP port 2 for each of the ports
//! refused 3, version 1, reason 1
//! ```
//!
//! The token belongs to the team; the epoch counts its sessions.

use std::fmt;

/// The version of these messages.
pub(super) const VERSION: u8 = 1;
/// Bytes of a message, including the zeros after its end.
pub(super) const BYTES: usize = 128;
/// The most ports of a switch, each with a thread: those fit a message.
pub const PORTS_MAX: usize = 16;

const _: () = assert!(82 + 2 * PORTS_MAX <= BYTES);

/// A worker wants to take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) worker: u16,
    pub(super) workers: u16,
    pub(super) lanes: u16,
    pub(super) window: u32,
    pub(super) epoch: u32,
    pub(super) token: [u8; 16],
}

/// A worker takes part, on these terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) system: u8,
    pub(super) job: u16,
    pub(super) lanes: u16,
    pub(super) window: u32,
    /// Slots of each port.
    pub(super) slots: u32,
    /// The secret that seals this worker's fragments.
    pub(super) up: [u8; 32],
    /// The secret that seals the switch's fragments, for all workers of the session.
    pub(super) down: [u8; 32],
    /// UDP ports, at the address of the connection.
    pub(super) ports: Vec<u16>,
}

/// Why a worker cannot take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The switch speaks another version.
    Version,
    /// Another team uses the job.
    Busy,
    /// The other workers gave other settings for the job.
    Differs,
    /// More workers, lanes or ports than the switch allows.
    TooLarge,
    /// A later session of the team has begun.
    Late,
}

impl Refusal {
    const ALL: [Refusal; 5] = [Refusal::Version, Refusal::Busy, Refusal::Differs, Refusal::TooLarge, Refusal::Late];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Version => "the switch speaks another version: update the older side",
            Refusal::Busy => "another team uses the job: end it, or take another job's key",
            Refusal::Differs => "the workers of the job differ in number, lanes or window: start all alike",
            Refusal::TooLarge => "the switch takes 32 workers and 256 lanes at the most",
            Refusal::Late => "a later session of the team has begun",
        })
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Join(Join),
    Welcome(Box<Welcome>),
    Refused(Refusal),
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }
}

impl Message {
    /// The bytes of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        match self {
            Message::Join(Join { worker, workers, lanes, window, epoch, token }) => {
                out.extend_from_slice(&[1, VERSION]);
                [*worker, *workers, *lanes].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                [*window, *epoch].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.extend_from_slice(token);
            }
            Message::Welcome(welcome) => {
                let Welcome { system, job, lanes, window, slots, up, down, ports } = &**welcome;
                out.extend_from_slice(&[2, VERSION, *system, ports.len() as u8]);
                [*job, *lanes].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.push(0);
                [*window, *slots].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.extend_from_slice(up);
                out.extend_from_slice(down);
                ports.iter().for_each(|port| out.extend_from_slice(&port.to_be_bytes()));
            }
            Message::Refused(reason) => {
                let number = Refusal::ALL.iter().position(|known| known == reason).unwrap_or(0);
                out.extend_from_slice(&[3, VERSION, number as u8]);
            }
        }
        out.resize(BYTES, 0);
        out
    }

    /// Reads a message; `None` if the bytes are not a message. A message of another version is read as a refusal for that
    /// reason.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let mut reader = Reader(bytes);
        let kind = reader.u8()?;
        if reader.u8()? != VERSION {
            return (1..=3).contains(&kind).then_some(Message::Refused(Refusal::Version));
        }
        match kind {
            1 => Some(Message::Join(Join {
                worker: reader.u16()?,
                workers: reader.u16()?,
                lanes: reader.u16()?,
                window: reader.u32()?,
                epoch: reader.u32()?,
                token: reader.take()?,
            })),
            2 => {
                let (system, count) = (reader.u8()?, usize::from(reader.u8()?));
                let (job, lanes) = (reader.u16()?, reader.u16()?);
                reader.u8()?;
                let (window, slots) = (reader.u32()?, reader.u32()?);
                let (up, down) = (reader.take()?, reader.take()?);
                if !(1..=PORTS_MAX).contains(&count) {
                    return None;
                }
                let ports = (0..count).map(|_| reader.u16()).collect::<Option<_>>()?;
                Some(Message::Welcome(Box::new(Welcome { system, job, lanes, window, slots, up, down, ports })))
            }
            3 => Refusal::ALL.get(usize::from(reader.u8()?)).map(|&reason| Message::Refused(reason)),
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
            ports in prop::collection::vec(any::<u16>(), 1..PORTS_MAX + 1), reason in 0usize..5,
        ) {
            let [worker, workers, lanes, job] = words;
            let [window, epoch] = longs;
            let [up, down] = secrets;
            let all = [
                Message::Join(Join { worker, workers, lanes, window, epoch, token }),
                Message::Welcome(Box::new(Welcome { system, job, lanes, window, slots: epoch, up, down, ports })),
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
