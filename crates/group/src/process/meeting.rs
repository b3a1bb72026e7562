//! How the ranks of a group meet at a store, as often as they like, also where an earlier run has left its values.
//!
//! | key | by | value |
//! |---|---|---|
//! | `join/R` | rank R | a word of its own, new for each meeting |
//! | `welcome/WORD` | rank 0 | the terms of the group, for the rank with that word |
//! | `GROUP/rankR` | rank R | its record, under the number of this group |
//! | `group` | rank 0 | the number of the newest group and how many ranks it has, so that its records can be removed |
//!
//! A rank reads only keys that bear a word or number of this meeting, so values of an earlier one are never taken for
//! new. If rank R starts again before it was met, rank 0 sees another word, and welcomes that one, too.

use super::group::{Group, GroupOptions};
use super::record::{Record, Terms, Wire};
use super::{Process, ProcessOptions, Store};
use crate::error::GroupError;
use std::io;
use std::time::{Duration, Instant};
use strandway_udp::random_secret;

/// Ranks of a group at the most: ours. Every rank reads a record of every other one.
const RANKS_MAX: u32 = 65_536;
/// How long rank 0 waits for a rank that it has welcomed until it looks for another word of it: ours.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long a value may take that is there or not: ours.
const AT_ONCE: Duration = Duration::from_millis(10);

fn broken(error: io::Error) -> GroupError {
    GroupError::Config(format!("the store of the group: {error}"))
}

/// A rank's value is missing, or the store does not work.
fn missing(rank: u32, error: io::Error) -> GroupError {
    match error.kind() {
        io::ErrorKind::TimedOut => GroupError::Config(format!("rank {rank} has not come: {error}")),
        _ => broken(error),
    }
}

fn random_word() -> Result<u64, GroupError> {
    Ok(u64::from_be_bytes(*random_secret()?.first_chunk().expect("32 bytes")))
}

impl Process {
    /// Reads from a group's store what all have in common, or decides it as rank 0, and starts a process on the wire.
    /// Other ranks wait until rank 0 calls [`Group::form`].
    ///
    /// # Errors
    /// If the store or an address does not work.
    pub fn join(store: &mut impl Store, rank: u32, options: &ProcessOptions) -> Result<Process, GroupError> {
        let (process, terms) = Process::join_or(store, rank, options, |_| None)?;
        process.keep_invitation(terms);
        Ok(process)
    }

    /// Joins with a process that exists if `known` has one with the group's key. Ranks but 0 also get the group's terms.
    pub(super) fn join_or(
        store: &mut impl Store,
        rank: u32,
        options: &ProcessOptions,
        known: impl Fn(Option<&[u8; 32]>) -> Option<Process>,
    ) -> Result<(Process, Option<Terms>), GroupError> {
        if rank == 0 {
            if let Some(process) = known(None) {
                return Ok((process, None));
            }
            let wire = Wire {
                secret: random_secret()?,
                payload: options.payload()?,
                credit: options.credit,
                protection: options.protection,
                profile: options.profile.clone(),
                tuning: options.tuning,
            };
            return Ok((Process::start(options, wire)?, None));
        }
        let terms = invitation(store, rank, options.patience)?;
        let process = match known(Some(&terms.wire.secret)) {
            Some(process) => process,
            None => Process::start(options, terms.wire.clone())?,
        };
        Ok((process, Some(terms)))
    }
}

/// Asks rank 0 for the terms of a group.
fn invitation(store: &mut impl Store, rank: u32, patience: Duration) -> Result<Terms, GroupError> {
    let (join, word) = (format!("join/{rank}"), format!("{:016x}", random_word()?));
    store.set(&join, word.as_bytes()).map_err(broken)?;
    let welcome = format!("welcome/{word}");
    let text = store.get(&welcome, patience).map_err(|error| missing(0, error))?;
    // Later meetings ignore keys that are left there.
    let _ = store.remove(&welcome).and_then(|()| store.remove(&join));
    Terms::decode(&text)
        .ok_or_else(|| GroupError::Config("rank 0 has another version of this software: start all ranks alike".into()))
}

impl Group {
    /// Meets the other ranks at a store: the one that [`Process::join`] was called with. Returns when all have come. The
    /// ranks of a process may meet again at the same store, for another group.
    ///
    /// # Errors
    /// If a rank does not come in time, or the store does not work.
    pub fn form(
        process: &Process,
        store: &mut impl Store,
        rank: u32,
        ranks: u32,
        options: GroupOptions,
    ) -> Result<Group, GroupError> {
        let terms = process.take_invitation();
        Group::form_by(process, terms, store, rank, ranks, options)
    }

    pub(super) fn form_by(
        process: &Process,
        terms: Option<Terms>,
        store: &mut impl Store,
        rank: u32,
        ranks: u32,
        options: GroupOptions,
    ) -> Result<Group, GroupError> {
        if ranks == 0 || ranks > RANKS_MAX || rank >= ranks {
            return Err(GroupError::Config(format!(
                "rank {rank} of {ranks}: count ranks from 0, at most {RANKS_MAX} of them"
            )));
        }
        let terms = match terms {
            Some(terms) => terms,
            None if rank == 0 => Terms { group: random_word()?, wire: process.0.wire.clone() },
            None => invitation(store, rank, options.patience)?,
        };
        if terms.wire.secret != process.0.wire.secret {
            let what = "rank 0 has another key than this process: join its group with a process of its own";
            return Err(GroupError::Config(what.into()));
        }
        let of = |rank: u32| format!("{:016x}/rank{rank}", terms.group);
        store.set(&of(rank), &process.0.record.encode()).map_err(broken)?;
        let mut words = Vec::new();
        for other in (1..ranks).take_while(|_| rank == 0) {
            let join = format!("join/{other}");
            let word = store.get(&join, options.patience).map_err(|error| missing(other, error))?;
            welcome(store, &word, &terms)?;
            words.push(word);
        }
        let mut members = Vec::with_capacity(ranks as usize);
        for other in 0..ranks {
            if other == rank {
                members.push(process.0.record.clone());
                continue;
            }
            let text = match words.get_mut((other as usize).wrapping_sub(1)) {
                Some(word) => expect(store, (other, word), &of(other), &terms, options.patience)?,
                None => store.get(&of(other), options.patience).map_err(|error| missing(other, error))?,
            };
            let record = Record::decode(&text).ok_or_else(|| {
                GroupError::Config(format!(
                    "rank {other} has written a record of another version: start all ranks alike"
                ))
            })?;
            let (ours, theirs) = (process.addresses().len() as u64, record.addresses.len() as u64);
            if ours != theirs {
                return Err(GroupError::Differs { rank: other, what: "a number of planes of", theirs, ours });
            }
            if record.id == process.0.record.id {
                let what = format!("ranks {rank} and {other} are in one process: give each its own (`meet_apart`)");
                return Err(GroupError::Config(what));
            }
            members.push(record);
        }
        if rank == 0 {
            remove_former(store, terms.group, ranks).map_err(broken)?;
        }
        Ok(Group::new(process, terms.group, rank, members, options))
    }
}

fn welcome(store: &mut impl Store, word: &[u8], terms: &Terms) -> Result<(), GroupError> {
    let word = String::from_utf8_lossy(word);
    store.set(&format!("welcome/{word}"), &terms.encode()).map_err(broken)
}

/// Waits at rank 0 for the record of a rank that was welcomed by this word. The word may be one that an earlier run has
/// left: the rank is welcomed by its newest one.
fn expect(
    store: &mut impl Store,
    (rank, word): (u32, &mut Vec<u8>),
    key: &str,
    terms: &Terms,
    patience: Duration,
) -> Result<Vec<u8>, GroupError> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match store.get(key, left.min(LOOK_AGAIN)) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() != io::ErrorKind::TimedOut || left.is_zero() => {
                return Err(missing(rank, error));
            }
            Err(_) => {}
        }
        if let Ok(newest) = store.get(&format!("join/{rank}"), AT_ONCE)
            && newest != *word
        {
            welcome(store, &newest, terms)?;
            *word = newest;
        }
    }
}

/// All ranks have come: nobody reads the records of the group before any more.
fn remove_former(store: &mut impl Store, group: u64, ranks: u32) -> io::Result<()> {
    let former = store.get("group", AT_ONCE).ok().and_then(|text| {
        let text = String::from_utf8(text).ok()?;
        let (group, ranks) = text.split_once(' ')?;
        Some((group.to_string(), ranks.parse::<u32>().ok()?.min(RANKS_MAX)))
    });
    if let Some((group, ranks)) = former {
        for rank in 0..ranks {
            store.remove(&format!("{group}/rank{rank}"))?;
        }
    }
    store.set("group", format!("{group:016x} {ranks}").as_bytes())
}
