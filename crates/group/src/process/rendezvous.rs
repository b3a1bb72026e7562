//! The ranks of a group meet at a store. They may meet there again and again, even if an earlier run has left its
//! values.
//!
//! | key | by | value |
//! |---|---|---|
//! | `join/R` | rank R | a word of its own, new for each meeting, and its addresses; or why it cannot come |
//! | `welcome/WORD` | rank 0 | the terms of the group, for the rank with that word, and its planes |
//! | `GROUP/rankR` | rank R | its record, under the number of this group |
//! | `GROUP/pathR` | rank R | which packets pass to some others ([`super::paths`]) |
//! | `GROUP/go` | rank 0 | the payload of packets: the group is formed |
//! | `group` | rank 0 | the number of the newest group and how many ranks it has, so that its values can be removed |
//!
//! A rank reads only keys that have a word or number of this meeting in their names, so a value of an earlier meeting
//! is never taken for a new one. If rank R starts again before it was met, rank 0 sees another word, and welcomes that
//! one, too.
//!
//! A rank that cannot go on writes the reason in place of its value. So all ranks end with this reason, within seconds.

use super::algorithm_files;
use super::group::{Group, GroupOptions};
use super::offer::{Join, Names, Offer, one_line};
use super::paths::{Report, are_settled};
use super::planes;
use super::record::{Record, Terms, Wire, lines};
use super::{Process, ProcessOptions, Store};
use crate::error::GroupError;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV6;
use std::time::{Duration, Instant};
use strandway_udp::random_secret;

/// The most ranks of a group: ours. Every rank reads a record of every other one.
const RANKS_MAX: u32 = 65_536;
/// The time that rank 0 waits for one rank before it looks for others: ours.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The time for reading a value that may be missing: ours.
const AT_ONCE: Duration = Duration::from_millis(10);
/// An earlier run may have left the reason why a rank could not come. It counts if nothing replaces it for this time:
/// ours.
const STALE: Duration = Duration::from_secs(5);
/// The time that rank 0 stays to tell late ranks why there is no group: ours.
const REFUSING: Duration = Duration::from_secs(5);

const REFUSED: &str = "strandway refused 1";

fn broken(error: io::Error) -> GroupError {
    GroupError::Config(format!("the store of the group: {error}"))
}

/// The error for a rank's value that is missing, or for a store that does not work.
fn missing(rank: u32, error: io::Error) -> GroupError {
    match error.kind() {
        io::ErrorKind::TimedOut => GroupError::Config(format!("rank {rank} has not come: {error}")),
        _ => broken(error),
    }
}

fn other_version(rank: u32) -> GroupError {
    GroupError::Config(format!("rank {rank} has another version of this software: start all ranks alike"))
}

fn random_word() -> Result<u64, GroupError> {
    Ok(u64::from_be_bytes(*random_secret()?.first_chunk().expect("32 bytes")))
}

fn refusal(why: &str) -> Vec<u8> {
    format!("{REFUSED}\nwhy={}\n", one_line(why)).into_bytes()
}

/// The reason, if a value is a refusal.
fn refused(text: &[u8]) -> Option<GroupError> {
    let why = lines(text, REFUSED)?.find(|(name, _)| *name == "why")?.1;
    Some(GroupError::Config(why.to_string()))
}

impl Process {
    /// Reads the common settings from a group's store, or decides them as rank 0, and starts a process on the wire.
    /// Other ranks wait until rank 0 calls [`Group::form`].
    ///
    /// # Errors
    /// If the store or an address does not work.
    pub fn join(store: &mut impl Store, rank: u32, options: &ProcessOptions) -> Result<Process, GroupError> {
        if options.planes.is_empty() {
            let what = "a process needs the addresses of its planes; `Group::meet` finds them";
            return Err(GroupError::Config(what.into()));
        }
        if rank == 0 {
            return Process::first(options);
        }
        let offer = Offer::of_host(None, &Names::default(), &options.planes)?;
        let mut guest = Guest { store, rank, patience: options.patience };
        let terms = guest.loaded(&offer)?;
        let process = Process::start(options, terms.wire.clone())?;
        process.keep_invitation(Some(terms));
        Ok(process)
    }

    /// Starts rank 0's process. All other processes get its settings.
    fn first(options: &ProcessOptions) -> Result<Process, GroupError> {
        let mut tuning = options.tuning.clone();
        algorithm_files::load(&mut tuning.algorithms)?;
        let wire = Wire {
            secret: random_secret()?,
            payload: options.payload()?,
            credit: options.credit,
            protection: options.protection,
            profile: options.profile.clone(),
            tuning,
        };
        Process::start(options, wire)
    }
}

impl Group {
    /// Meets the other ranks at a store: the one that [`Process::join`] was called with. Returns when all have come,
    /// and packets pass between them. The ranks of a process may meet again at the same store, for another group.
    ///
    /// # Errors
    /// If a rank does not come in time or cannot come, packets do not pass between two ranks, or the store does not
    /// work. All ranks get such an error.
    pub fn form(
        process: &Process,
        store: &mut impl Store,
        rank: u32,
        ranks: u32,
        options: GroupOptions,
    ) -> Result<Group, GroupError> {
        let offer = Offer::of_host(None, &Names::default(), process.planes())?;
        if rank == 0 {
            let start = |_: &[SocketAddrV6]| Ok(process.clone());
            return Ok(host(store, ranks, options, &offer, Some(process.clone()), start)?.1);
        }
        let known = process.take_invitation();
        let start = |_: &Terms| Ok(process.clone());
        Ok(visit(store, (rank, ranks), options, &offer, known, start)?.1)
    }

    /// Meets the other ranks at a store, with a process that runs already or is started when the planes are known.
    pub(super) fn form_by(
        store: &mut impl Store,
        (rank, ranks): (u32, u32),
        options: GroupOptions,
        offer: &Offer,
        settings: &ProcessOptions,
        known: impl Fn(Option<&[u8; 32]>) -> Option<Process>,
    ) -> Result<(Process, Group), GroupError> {
        let on = |planes: &[SocketAddrV6]| {
            let planes = if settings.planes.is_empty() { planes.to_vec() } else { settings.planes.clone() };
            ProcessOptions { planes, ..settings.clone() }
        };
        if rank == 0 {
            return host(store, ranks, options, offer, known(None), |planes| Process::first(&on(planes)));
        }
        visit(store, (rank, ranks), options, offer, None, |terms| match known(Some(&terms.wire.secret)) {
            Some(process) => Ok(process),
            None => Process::start(&on(&terms.planes), terms.wire.clone()),
        })
    }

    /// Tells the other ranks why this rank cannot come.
    pub(super) fn cannot_come(store: &mut impl Store, rank: u32, ranks: u32, why: &GroupError) {
        if rank == 0 {
            let mut host = Host::new(store, ranks, Duration::ZERO);
            host.refuse(None, why);
        } else if let Ok(word) = random_word() {
            let _ =
                store.set(&format!("join/{rank}"), &Join::encode_failure(&format!("{word:016x}"), &why.to_string()));
        }
    }
}

fn check(rank: u32, ranks: u32) -> Result<(), GroupError> {
    if ranks == 0 || ranks > RANKS_MAX || rank >= ranks {
        let what = format!("rank {rank} of {ranks}: count ranks from 0, at most {RANKS_MAX} of them");
        return Err(GroupError::Config(what));
    }
    Ok(())
}

/// The part of rank 0 in a meeting.
fn host(
    store: &mut impl Store,
    ranks: u32,
    options: GroupOptions,
    offer: &Offer,
    process: Option<Process>,
    start: impl FnOnce(&[SocketAddrV6]) -> Result<Process, GroupError>,
) -> Result<(Process, Group), GroupError> {
    check(0, ranks)?;
    let group = random_word()?;
    let mut host = Host::new(store, ranks, options.patience);
    host.meet(group, offer, process, start, options).inspect_err(|error| host.refuse(Some(group), error))
}

/// The part of another rank in a meeting.
fn visit(
    store: &mut impl Store,
    (rank, ranks): (u32, u32),
    options: GroupOptions,
    offer: &Offer,
    terms: Option<Terms>,
    start: impl FnOnce(&Terms) -> Result<Process, GroupError>,
) -> Result<(Process, Group), GroupError> {
    check(rank, ranks)?;
    let mut guest = Guest { store, rank, patience: options.patience };
    let terms = match terms {
        Some(terms) => terms,
        None => guest.loaded(offer)?,
    };
    guest.meet(&terms, ranks, start, options).inspect_err(|error| guest.cannot_go_on(terms.group, error))
}

fn of(group: u64, what: &str, rank: u32) -> String {
    format!("{group:016x}/{what}{rank}")
}

fn go_of(group: u64) -> String {
    format!("{group:016x}/go")
}

/// Rank 0 at a store.
struct Host<'a, S: Store> {
    store: &'a mut S,
    ranks: u32,
    patience: Duration,
    began: Instant,
    /// The join of each rank; those of ranks that were welcomed stay.
    joins: Vec<Option<Join>>,
    /// Words that have got their answer.
    answered: Vec<String>,
}

impl<'a, S: Store> Host<'a, S> {
    fn new(store: &'a mut S, ranks: u32, patience: Duration) -> Host<'a, S> {
        let joins = vec![None; ranks.min(RANKS_MAX) as usize];
        Host { store, ranks, patience, began: Instant::now(), joins, answered: Vec::new() }
    }

    fn meet(
        &mut self,
        group: u64,
        offer: &Offer,
        process: Option<Process>,
        start: impl FnOnce(&[SocketAddrV6]) -> Result<Process, GroupError>,
        options: GroupOptions,
    ) -> Result<(Process, Group), GroupError> {
        self.collect()?;
        // Its planes are given if there is a process already.
        let rest = self.joins.iter().skip(1).flatten().filter_map(|join| join.offer.clone().ok());
        let offers: Vec<Offer> = std::iter::once(offer.clone()).chain(rest).collect();
        let planes = planes::choose(&offers).map_err(GroupError::Config)?;
        let process = match process {
            Some(process) => process,
            None => start(&planes[0])?,
        };
        let ours = Offer { given: process.planes().to_vec(), ..offer.clone() };
        let terms = |planes: &[SocketAddrV6]| Terms {
            group,
            wire: process.0.wire.clone(),
            fixed: process.0.fixed,
            planes: planes.to_vec(),
        };
        let words: Vec<String> = self.joins.iter().skip(1).flatten().map(|join| join.word.clone()).collect();
        for (word, planes) in words.into_iter().zip(&planes[1..]) {
            self.answer(word, &terms(planes).encode())?;
        }
        self.store.set(&of(group, "rank", 0), &process.record().encode()).map_err(broken)?;
        let mut members = vec![process.record()];
        for rank in 1..self.ranks {
            let text = self.expect(rank, &of(group, "rank", rank), |offer| {
                let planes = planes::choose(&[ours.clone(), offer.clone()]).map_err(GroupError::Config)?;
                Ok(terms(&planes[1]).encode())
            })?;
            members.push(read_record(rank, &text)?);
        }
        check_members(&process, 0, &members)?;
        if !are_settled(&members) {
            let mut reports = vec![process.find_paths(&members, 0, process.0.fixed)?];
            for rank in 1..self.ranks {
                let text = self.store.get(&of(group, "path", rank), self.patience);
                let text = text.map_err(|error| missing(rank, error))?;
                if let Some(error) = refused(&text) {
                    return Err(error);
                }
                reports.push(Report::decode(&text).ok_or_else(|| other_version(rank))?);
            }
            let payload = process.choose(&members, &reports, process.0.fixed).map_err(GroupError::Config)?;
            process.settle(payload)?;
            self.store.set(&go_of(group), format!("strandway go 1\npayload={payload}\n").as_bytes()).map_err(broken)?;
        }
        self.remove_former(group).map_err(broken)?;
        Ok((process.clone(), Group::new(&process, group, 0, members, options)))
    }

    /// Waits until all ranks have given the addresses by which they could be reached.
    fn collect(&mut self) -> Result<(), GroupError> {
        let until = Instant::now() + self.patience;
        let mut first_look = true;
        // Reasons that were there at the first look; they may be those of an earlier run.
        let mut old: Vec<(u32, String)> = Vec::new();
        loop {
            let wanted: Vec<u32> = (1..self.ranks).filter(|rank| self.joins[*rank as usize].is_none()).collect();
            let Some(first) = wanted.first().copied() else { return Ok(()) };
            let left = until.saturating_duration_since(Instant::now());
            for rank in wanted {
                let patience = if rank == first && !first_look { left.min(LOOK_AGAIN) } else { Duration::ZERO };
                let text = match self.store.get(&format!("join/{rank}"), patience) {
                    Ok(text) => text,
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                    Err(error) => return Err(broken(error)),
                };
                let (word, why) = match Join::decode(&text) {
                    Some(Join { word, offer: Err((host, why)) }) => {
                        (word, format!("rank {rank} at {host} cannot come: {why}"))
                    }
                    Some(join) => {
                        self.joins[rank as usize] = Some(join);
                        continue;
                    }
                    None => (String::new(), other_version(rank).to_string()),
                };
                if first_look {
                    old.push((rank, word.clone()));
                }
                if self.began.elapsed() > STALE || !old.contains(&(rank, word)) {
                    return Err(GroupError::Config(why));
                }
            }
            if left.is_zero() {
                return Err(self.late());
            }
            first_look = false;
        }
    }

    /// The error that names the ranks that have not come, and those that have.
    fn late(&self) -> GroupError {
        let list = |ranks: Vec<usize>| {
            let shown: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
            let more = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
            format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
        };
        let of =
            |come: bool| (1..self.joins.len()).filter(|rank| self.joins[*rank].is_some() == come).collect::<Vec<_>>();
        let (come, away) = (of(true), of(false));
        let verb = if away.len() == 1 { "has" } else { "have" };
        let others = if come.is_empty() { "no other has".to_string() } else { format!("{} came", list(come)) };
        let seconds = self.patience.as_secs_f64();
        GroupError::Config(format!(
            "{} {verb} not come within {seconds:.1} s ({others}): have they been started, and do they reach the store?",
            list(away)
        ))
    }

    fn answer(&mut self, word: String, text: &[u8]) -> Result<(), GroupError> {
        self.store.set(&format!("welcome/{word}"), text).map_err(broken)?;
        self.answered.push(word);
        Ok(())
    }

    /// Waits for a value of a rank that was welcomed. An earlier run may have left the word that was welcomed, so a
    /// newer word of the rank is welcomed, too.
    fn expect(
        &mut self,
        rank: u32,
        key: &str,
        terms: impl Fn(&Offer) -> Result<Vec<u8>, GroupError>,
    ) -> Result<Vec<u8>, GroupError> {
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.store.get(key, left.min(LOOK_AGAIN)) {
                Ok(text) => return Ok(text),
                Err(error) if error.kind() != io::ErrorKind::TimedOut || left.is_zero() => {
                    return Err(missing(rank, error));
                }
                Err(_) => {}
            }
            let Ok(text) = self.store.get(&format!("join/{rank}"), AT_ONCE) else { continue };
            let Some(join) = Join::decode(&text).filter(|join| !self.answered.contains(&join.word)) else { continue };
            let text = match &join.offer {
                Ok(offer) => terms(offer)?,
                Err((host, why)) => {
                    return Err(GroupError::Config(format!("rank {rank} at {host} cannot come: {why}")));
                }
            };
            self.answer(join.word.clone(), &text)?;
            self.joins[rank as usize] = Some(join);
        }
    }

    /// Tells all ranks that have come, and those that come within a few seconds, that there will be no group.
    fn refuse(&mut self, group: Option<u64>, why: &GroupError) {
        let text = refusal(&why.to_string());
        if let Some(group) = group.filter(|_| !self.answered.is_empty()) {
            // Ranks that were welcomed wait for these values.
            let _ = self.store.set(&of(group, "rank", 0), &text);
            let _ = self.store.set(&go_of(group), &text);
        }
        let until = Instant::now() + REFUSING;
        let mut waiting: Vec<u32> = (1..self.ranks.min(RANKS_MAX)).collect();
        let mut told: HashMap<u32, String> = HashMap::new();
        while !waiting.is_empty() && Instant::now() < until {
            let before = waiting.len();
            let mut left = Vec::new();
            for rank in waiting {
                match self.has_heard(group, rank, &text, &mut told) {
                    Ok(true) => {}
                    Ok(false) => left.push(rank),
                    // The store has failed.
                    Err(_) => return,
                }
            }
            waiting = left;
            if waiting.len() == before {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Does a rank know that there is no group? If it waits for an answer, it gets one. The store may end with this
    /// process, so the rank must have read the answer.
    fn has_heard(
        &mut self,
        group: Option<u64>,
        rank: u32,
        text: &[u8],
        told: &mut HashMap<u32, String>,
    ) -> io::Result<bool> {
        let mut look = |key: &str| match self.store.get(key, Duration::ZERO) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        };
        if let Some(word) = told.get(&rank) {
            // The rank removes the answer when it has read it.
            return Ok(look(&format!("welcome/{word}"))?.is_none());
        }
        let welcomed = self.joins[rank as usize].as_ref().is_some_and(|join| self.answered.contains(&join.word));
        if let (true, Some(group)) = (welcomed, group) {
            return Ok(look(&of(group, "path", rank))?.is_some_and(|text| refused(&text).is_some()));
        }
        let Some(join) = look(&format!("join/{rank}"))?.and_then(|text| Join::decode(&text)) else { return Ok(false) };
        if join.offer.is_err() {
            return Ok(true);
        }
        self.store.set(&format!("welcome/{}", join.word), text)?;
        told.insert(rank, join.word);
        Ok(false)
    }

    /// Removes the values of the former group. All ranks have come, so no rank reads them any more.
    fn remove_former(&mut self, group: u64) -> io::Result<()> {
        let former = self.store.get("group", AT_ONCE).ok().and_then(|text| {
            let text = String::from_utf8(text).ok()?;
            let (group, ranks) = text.split_once(' ')?;
            Some((u64::from_str_radix(group, 16).ok()?, ranks.parse::<u32>().ok()?.min(RANKS_MAX)))
        });
        if let Some((group, ranks)) = former {
            for rank in 0..ranks {
                self.store.remove(&of(group, "rank", rank))?;
                self.store.remove(&of(group, "path", rank))?;
            }
            self.store.remove(&go_of(group))?;
        }
        let ranks = self.ranks;
        self.store.set("group", format!("{group:016x} {ranks}").as_bytes())
    }
}

/// Another rank at a store.
struct Guest<'a, S: Store> {
    store: &'a mut S,
    rank: u32,
    patience: Duration,
}

impl<S: Store> Guest<'_, S> {
    /// Asks rank 0 for the terms of a group.
    fn invitation(&mut self, offer: &Offer) -> Result<Terms, GroupError> {
        let (join, word) = (format!("join/{}", self.rank), format!("{:016x}", random_word()?));
        self.store.set(&join, &offer.encode(&word)).map_err(broken)?;
        let welcome = format!("welcome/{word}");
        let text = self.store.get(&welcome, self.patience).map_err(|error| missing(0, error))?;
        // Later meetings ignore keys that are left there.
        let _ = self.store.remove(&welcome).and_then(|()| self.store.remove(&join));
        match refused(&text) {
            Some(error) => Err(error),
            None => Terms::decode(&text).ok_or_else(|| other_version(0)),
        }
    }

    /// The terms of a group, with the files that they name.
    fn loaded(&mut self, offer: &Offer) -> Result<Terms, GroupError> {
        let mut terms = self.invitation(offer)?;
        let loaded = algorithm_files::load(&mut terms.wire.tuning.algorithms);
        loaded.inspect_err(|error| self.cannot_go_on(terms.group, error))?;
        Ok(terms)
    }

    /// Tells the others an error: it replaces the values that they still wait for.
    fn cannot_go_on(&mut self, group: u64, error: &GroupError) {
        for key in ["rank", "path"] {
            let text = refusal(&self.named(error));
            let _ = self.store.set(&of(group, key, self.rank), &text);
        }
    }

    /// The text of this rank's error for the others.
    fn named(&self, error: &GroupError) -> String {
        format!("rank {} at {} cannot go on: {error}", self.rank, super::host::label())
    }

    fn meet(
        &mut self,
        terms: &Terms,
        ranks: u32,
        start: impl FnOnce(&Terms) -> Result<Process, GroupError>,
        options: GroupOptions,
    ) -> Result<(Process, Group), GroupError> {
        let (rank, group) = (self.rank, terms.group);
        let process = start(terms)?;
        if terms.wire.secret != process.0.wire.secret {
            let what = "rank 0 has another key than this process: join its group with a process of its own";
            return Err(GroupError::Config(what.into()));
        }
        self.store.set(&of(group, "rank", rank), &process.record().encode()).map_err(broken)?;
        let mut members = Vec::with_capacity(ranks as usize);
        for other in 0..ranks {
            if other == rank {
                members.push(process.record());
                continue;
            }
            let text = self.store.get(&of(group, "rank", other), self.patience);
            members.push(read_record(other, &text.map_err(|error| missing(other, error))?)?);
        }
        check_members(&process, rank, &members)?;
        if !are_settled(&members) {
            let report = process.find_paths(&members, rank, terms.fixed)?;
            self.store.set(&of(group, "path", rank), &report.encode()).map_err(broken)?;
            let text = self.store.get(&go_of(group), self.patience).map_err(|error| missing(0, error))?;
            if let Some(error) = refused(&text) {
                return Err(error);
            }
            let payload = lines(&text, "strandway go 1")
                .and_then(|mut all| all.find(|(name, _)| *name == "payload")?.1.parse().ok())
                .ok_or_else(|| other_version(0))?;
            process.settle(payload)?;
        }
        Ok((process.clone(), Group::new(&process, group, rank, members, options)))
    }
}

fn read_record(rank: u32, text: &[u8]) -> Result<Record, GroupError> {
    match refused(text) {
        Some(error) => Err(error),
        None => Record::decode(text).ok_or_else(|| other_version(rank)),
    }
}

fn check_members(process: &Process, rank: u32, members: &[Record]) -> Result<(), GroupError> {
    for (other, record) in (0..).zip(members).filter(|(other, _)| *other != rank) {
        let (ours, theirs) = (process.planes().len() as u64, record.addresses.len() as u64);
        if ours != theirs {
            return Err(GroupError::Differs { rank: other, what: "a number of planes of", theirs, ours });
        }
        if record.id == members[rank as usize].id {
            let what = format!("ranks {rank} and {other} are in one process: give each its own (`meet_apart`)");
            return Err(GroupError::Config(what));
        }
    }
    Ok(())
}
