//! The record of a rank in the store: its name and addresses, and for rank 0 also the common settings. Lines of text.

use super::message::Id;
use super::offer::place;
use std::net::SocketAddrV6;
use strandway_collective::plan::{Hosts, Tuning};
use strandway_udp::Protection;

/// The most planes of a record.
const PLANES_MAX: usize = strandway_udp::PLANES_MAX;

/// The name and addresses by which others know a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: Id,
    /// Host name and process number, for messages.
    pub(super) host: String,
    /// Its address on each plane.
    pub(super) addresses: Vec<SocketAddrV6>,
    /// The payload of its packets, if it can no longer change, because the process has met others before.
    pub(super) settled: Option<u32>,
    /// How processes of its host share memory with it, if they may.
    pub(super) local: Option<LocalName>,
}

/// The hosts of ranks with these records, alike at all ranks. A rank that shares no memory counts as a host of its own.
pub(super) fn hosts_of(members: &[Record]) -> Hosts {
    Hosts::of(&members.iter().map(|record| record.local.as_ref().map(|local| &local.place)).collect::<Vec<_>>())
}

/// How a process is called by others of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalName {
    /// A text that is equal at all processes that share a network stack.
    pub(super) place: String,
    /// The name of its Unix socket.
    pub(super) name: String,
}

impl LocalName {
    /// That of this process; `None` if it is not known which others share its network stack.
    pub(super) fn new(name: &str) -> Option<LocalName> {
        let place = place();
        (!place.starts_with("unknown")).then(|| LocalName { place, name: name.into() })
    }
}

/// The settings that all processes of a group share; rank 0 chooses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The group's number.
    pub(super) group: u64,
    pub(super) wire: Wire,
    /// The user has set the payload, so it is not lowered to the size that passes on all ways.
    pub(super) fixed: bool,
    /// The receiver's address on each plane.
    pub(super) planes: Vec<SocketAddrV6>,
}

/// The settings that the nodes of all connected processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) secret: [u8; 32],
    pub(super) payload: u32,
    /// Bytes of short messages that a process may send to another one before it asks for them.
    pub(super) credit: u32,
    pub(super) protection: Protection,
    /// The name of the protocol.
    pub(super) profile: String,
    pub(super) tuning: Tuning,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The lines of a text that begins with `first`, as names and values.
pub(super) fn lines<'a>(text: &'a [u8], first: &str) -> Option<impl Iterator<Item = (&'a str, &'a str)>> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    (lines.next()? == first).then(|| lines.filter_map(|line| line.split_once('=')))
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("strandway rank 1\nid={}\nhost={}\n", hex(&self.id), self.host);
        self.addresses.iter().for_each(|address| text.push_str(&format!("plane={address}\n")));
        if let Some(payload) = self.settled {
            text.push_str(&format!("settled={payload}\n"));
        }
        if let Some(LocalName { place, name }) = &self.local {
            text.push_str(&format!("local={name} {place}\n"));
        }
        text.into_bytes()
    }

    pub(super) fn decode(text: &[u8]) -> Option<Record> {
        let (mut id, mut host, mut addresses, mut settled, mut local) = (None, String::new(), Vec::new(), None, None);
        for (name, value) in lines(text, "strandway rank 1")? {
            match name {
                "settled" => settled = Some(value.parse().ok()?),
                "id" => id = Some(unhex(value)?),
                "local" => {
                    let (name, place) = value.split_once(' ')?;
                    let cut = |text: &str| text.chars().take(200).collect::<String>();
                    local = Some(LocalName { place: cut(place), name: name.chars().take(100).collect() });
                }
                "host" => host = value.chars().take(200).collect(),
                "plane" if addresses.len() < PLANES_MAX => addresses.push(value.parse().ok()?),
                _ => {}
            }
        }
        Some(Record { id: id?, host, addresses, settled, local })
    }
}

impl Terms {
    pub(super) fn encode(&self) -> Vec<u8> {
        let protection = match self.wire.protection {
            Protection::Encrypted => "encrypted",
            Protection::Authenticated => "authenticated",
            Protection::None => "none",
        };
        let (group, payload, credit) = (self.group, self.wire.payload, self.wire.credit);
        let fixed = u8::from(self.fixed);
        let planes: String = self.planes.iter().map(|plane| format!("plane={plane}\n")).collect();
        let (secret, profile, tuning) = (hex(&self.wire.secret), &self.wire.profile, &self.wire.tuning);
        let files = tuning.algorithms.files().iter().map(|file| format!("file={} {}\n", file.digest, file.path));
        let files: String = files.collect();
        format!(
            "strandway group 3\nfixed={fixed}\n{planes}group={group}\nsecret={secret}\npayload={payload}\n\
             credit={credit}\nprotection={protection}\nprofile={profile}\n{tuning}{files}"
        )
        .into_bytes()
    }

    pub(super) fn decode(text: &[u8]) -> Option<Terms> {
        let (mut group, mut secret, mut payload, mut protection, mut profile) = (None, None, None, None, None);
        let (mut credit, mut fixed, mut planes) = (None, false, Vec::new());
        let mut tuning = Tuning::default();
        for (name, value) in lines(text, "strandway group 3")? {
            match name {
                "fixed" => fixed = value == "1",
                "plane" if planes.len() < PLANES_MAX => planes.push(value.parse().ok()?),
                "group" => group = value.parse().ok(),
                "secret" => secret = unhex(value),
                "payload" => payload = value.parse().ok(),
                "credit" => credit = value.parse().ok(),
                "protection" => protection = Protection::named(value),
                "profile" => profile = Some(value.chars().take(100).collect()),
                "algorithm" => tuning.set(name, value).ok()?,
                "file" => {
                    let (digest, path) = value.split_once(' ')?;
                    tuning.algorithms.expect(path, digest);
                }
                // Keys of other versions have no meaning here.
                _ => drop(tuning.set(name, value)),
            }
        }
        let wire = Wire {
            secret: secret?,
            payload: payload?,
            credit: credit?,
            protection: protection?,
            profile: profile?,
            tuning,
        };
        Some(Terms { group: group?, wire, fixed, planes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strandway_collective::plan::DirectLengths;

    #[test]
    fn records_and_terms_are_read_as_they_were_written() {
        let addresses = vec!["[::1]:5".parse().expect("an address"), "[2001:db8::1]:6".parse().expect("an address")];
        let planes = addresses.clone();
        let local = Some(LocalName { place: "boot net:[4]".into(), name: "strandway-1".into() });
        let record = Record { id: [0xa5; 16], host: "here (process 5)".into(), addresses, settled: Some(1_344), local };
        assert_eq!(Record::decode(&record.encode()), Some(record));
        let wire = Wire {
            secret: [9; 32],
            payload: 1_344,
            credit: 65_536,
            protection: Protection::None,
            profile: "uec".into(),
            tuning: Tuning {
                lengths: DirectLengths { part: 4_096, ..DirectLengths::default() },
                algorithms: "all_gather=pat>70".parse().expect("a rule"),
            },
        };
        let terms = Terms { group: u64::MAX, wire, fixed: true, planes };
        assert_eq!(Terms::decode(&terms.encode()), Some(terms));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, value: String) {
            let _ = (Record::decode(&text), Terms::decode(&text));
            for line in ["id", "plane", "host", "local", "secret", "group"] {
                let _ = Record::decode(format!("strandway rank 1\n{line}={value}\n").as_bytes());
                let _ = Terms::decode(format!("strandway group 3\n{line}={value}\n").as_bytes());
            }
        }
    }
}
