//! The server's disk thread in a client's copy: it answers offers and writes parcels into files. No sockets here.

use super::digest;
use super::file_error::FileError;
use super::journal::Source;
use super::message::{Answer, Entry, Kind, Malformed, Message, Piece, RUNS_MAX, Results, SIZE_MAX};
use super::names;
use super::server::Allowed;
use super::spare::Spare;
use super::target::{Partial, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most files of a client that were offered and are not finished; ours. A client that offers more breaks the
/// protocol.
pub(super) const OFFERED_MAX: usize = 8_192;
/// The most partial files of an earlier copy that a client has open at the same time; ours. With few descriptors it is
/// an eighth of those.
const OPEN_MAX: usize = 64;
/// The most files of a client that are open at the same time; ours. A client sends one file after the other; the others
/// are partial files of an earlier copy.
const BEGUN_MAX: usize = 2 * OPEN_MAX;
/// The most files that are published together: ours, to limit the number of open files. With few descriptors it is a
/// quarter of those.
const BATCH_MAX: usize = 128;
/// From this number of files on, one `syncfs` is less work than an `fsync` for each; ours.
const SYNC_ALL: usize = 8;
/// How long another copy may hold a file: ours, longer than it takes to detect that the client of an earlier copy is
/// dead.
const BUSY_PATIENCE: Duration = Duration::from_secs(15);
/// The time between two attempts to open such a file.
const BUSY_LOOK: Duration = Duration::from_millis(50);

/// The state of an offered file.
#[derive(Debug)]
enum State {
    /// No byte has come.
    Offered,
    /// Some blocks have come.
    Open(Partial),
    /// It failed, and the client is told so.
    Failed,
}

#[derive(Debug)]
struct Incoming {
    entry: Entry,
    size: u64,
    state: State,
}

/// One client's copy.
#[derive(Debug)]
pub struct Receiver {
    target: Target,
    block: u32,
    dry_run: bool,
    /// Parcels go to other receivers, too: a file that was not offered to this one, or that it has, is skipped.
    shared: bool,
    /// The actions that the client has asked for, and may do.
    allowed: Allowed,
    offered: BTreeMap<u32, Incoming>,
    open: usize,
    open_max: usize,
    batch_max: usize,
    /// Written completely, and without their names yet.
    finished: Vec<(u32, Partial)>,
    results: Results,
    /// Memory of parcels that are written.
    spare: Arc<Spare>,
}

impl Receiver {
    /// A copy into `target` by blocks of `block` bytes.
    pub fn new(target: Target, block: u32, dry_run: bool) -> Receiver {
        let (offered, finished, results) = Default::default();
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let part = |of: u64, most: usize| descriptors.map_or(most, |all| (all / of).clamp(1, most as u64) as usize);
        let (open_max, batch_max) = (part(8, OPEN_MAX), part(4, BATCH_MAX));
        let allowed = Allowed::default();
        Receiver {
            target,
            block,
            dry_run,
            shared: false,
            allowed,
            offered,
            open: 0,
            open_max,
            batch_max,
            finished,
            results,
            spare: Arc::default(),
        }
    }

    /// Its client may do this, too.
    pub(super) fn allowing(self, allowed: Allowed) -> Receiver {
        Receiver { allowed, ..self }
    }

    /// Memory for parcels.
    pub(super) fn spare(&self) -> Arc<Spare> {
        self.spare.clone()
    }

    /// The memory of a parcel that is written. Parcels for many receivers bring their own.
    pub(super) fn give_back(&self, parcel: Vec<u8>) {
        if !self.shared {
            self.spare.give(parcel);
        }
    }

    /// A receiver that shares its parcels with others; it takes only the files that were offered to it.
    pub fn of_many(target: Target, block: u32) -> Receiver {
        Receiver { shared: true, ..Receiver::new(target, block, false) }
    }

    /// Handles a message of the client and returns the answer.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn handle_message(&mut self, message: Message) -> Result<Message, Malformed> {
        match message {
            Message::Offer(entries) => {
                let answers = entries.into_iter().map(|entry| Ok((entry.id, self.offer(entry)?)));
                Ok(Message::Answers(answers.collect::<Result<_, Malformed>>()?))
            }
            Message::Settle(entries) => {
                if !self.allowed.owner && entries.iter().any(|entry| entry.more.owner.is_some()) {
                    return Err(Malformed);
                }
                let answers = entries.iter().map(|entry| {
                    let settled = names::check(&entry.path).and_then(|()| self.target.settle(entry));
                    (entry.id, settled.map_or_else(Answer::Failed, |()| Answer::Have))
                });
                Ok(Message::Answers(answers.collect()))
            }
            Message::List { path, after } if self.allowed.delete => {
                let (more, names) = self.target.names(&path, &after).unwrap_or_default();
                Ok(Message::Names { more, names })
            }
            Message::Remove(paths) if self.allowed.delete => {
                let answers = paths.iter().zip(0..).map(|((is_directory, path), id)| {
                    let removed = if self.dry_run { Ok(()) } else { self.target.remove(path, *is_directory) };
                    (id, removed.map_or_else(Answer::Failed, |()| Answer::Have))
                });
                Ok(Message::Answers(answers.collect()))
            }
            _ => Err(Malformed),
        }
    }

    fn offer(&mut self, entry: Entry) -> Result<Answer, Malformed> {
        if self.offered.len() >= OFFERED_MAX || self.offered.contains_key(&entry.id) {
            return Err(Malformed);
        }
        if entry.more.owner.is_some() && !self.allowed.owner {
            return Err(Malformed);
        }
        if let Err(file_error) = names::check(&entry.path) {
            return Ok(Answer::Failed(file_error));
        }
        let done = match &entry.kind {
            Kind::Directory if self.dry_run => Ok(()),
            Kind::Directory => self.target.directory(&entry),
            Kind::Link(to) => self.target.link(&entry, to, self.dry_run),
            Kind::Hard(to) => self.target.hard_link(&entry, to, self.dry_run),
            Kind::File(size) => return Ok(self.offer_file(*size, entry).unwrap_or_else(Answer::Failed)),
        };
        Ok(done.map_or_else(Answer::Failed, |()| Answer::Have))
    }

    fn offer_file(&mut self, size: u64, entry: Entry) -> Result<Answer, FileError> {
        if size > SIZE_MAX {
            return Err(FileError::TooLarge);
        }
        if self.target.has(&entry, size, self.dry_run)? {
            return Ok(Answer::Have);
        }
        let count = digest::blocks(size, self.block.into()) as u32;
        let all = if count == 0 { Vec::new() } else { vec![(0, count)] };
        if self.dry_run {
            return Ok(Answer::Missing(all));
        }
        let source = Source { size, modified: entry.modified, block: self.block };
        let target = &mut self.target;
        let left = match self.open < self.open_max {
            true => match patiently(|| target.resume(&entry, source)) {
                // It is sent from its beginning.
                Err(file_error) if file_error.is_no_descriptor() => None,
                other => other?,
            },
            false => None,
        };
        let (missing, state) = match left {
            Some(partial) => (partial.missing(RUNS_MAX), State::Open(partial)),
            None => (all, State::Offered),
        };
        self.open += usize::from(matches!(state, State::Open(_)));
        self.offered.insert(entry.id, Incoming { entry, size, state });
        Ok(Answer::Missing(missing))
    }

    /// Handles a parcel and returns the results of files since the last one.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn take(&mut self, mut parcel: &[u8]) -> Result<Results, Malformed> {
        while let Some(piece) = Piece::next(&mut parcel)? {
            let (Piece::Block { id, .. } | Piece::Zeros { id, .. } | Piece::End { id, .. } | Piece::Abandon { id }) =
                piece;
            if self.shared && !self.offered.contains_key(&id) {
                continue;
            }
            match piece {
                Piece::Block { id, offset, bytes } => self.write(id, |partial| partial.write(offset, bytes))?,
                Piece::Zeros { id, offset, length } => self.write(id, |partial| partial.write_zeros(offset, length))?,
                Piece::End { id, hash } => self.end(id, &hash)?,
                Piece::Abandon { id } => {
                    let incoming = self.offered.remove(&id).ok_or(Malformed)?;
                    if let State::Open(partial) = incoming.state {
                        self.open -= 1;
                        partial.discard();
                    }
                }
            }
            if self.finished.len() >= self.batch_max {
                self.publish();
            }
        }
        self.publish();
        Ok(std::mem::take(&mut self.results))
    }

    /// A file that was offered, opened; `None` if it failed.
    fn opened(&mut self, id: u32) -> Result<Option<&mut Partial>, Malformed> {
        let incoming = self.offered.get(&id).ok_or(Malformed)?;
        if let State::Offered = incoming.state {
            if self.open >= BEGUN_MAX {
                return Err(Malformed);
            }
            let source = Source { size: incoming.size, modified: incoming.entry.modified, block: self.block };
            let entry = incoming.entry.clone();
            let mut begun = patiently(|| self.target.begin(&entry, source));
            if begun.as_ref().is_err_and(|file_error| file_error.is_no_descriptor()) && !self.finished.is_empty() {
                // Finished files give theirs back.
                self.publish();
                begun = patiently(|| self.target.begin(&entry, source));
            }
            let state = match begun {
                Ok(partial) => {
                    self.open += 1;
                    State::Open(partial)
                }
                Err(file_error) => {
                    self.results.push((id, Err(file_error)));
                    State::Failed
                }
            };
            self.offered.insert(id, Incoming { entry, size: source.size, state });
        }
        match self.offered.get_mut(&id).map(|incoming| &mut incoming.state) {
            Some(State::Open(partial)) => Ok(Some(partial)),
            _ => Ok(None),
        }
    }

    fn write(
        &mut self,
        id: u32,
        write: impl FnOnce(&mut Partial) -> Result<(), Option<FileError>>,
    ) -> Result<(), Malformed> {
        let Some(partial) = self.opened(id)? else { return Ok(()) };
        match write(partial) {
            Ok(()) => Ok(()),
            Err(None) => Err(Malformed),
            Err(Some(file_error)) => {
                self.results.push((id, Err(file_error)));
                self.open -= 1;
                if let Some(incoming) = self.offered.get_mut(&id)
                    && let State::Open(partial) = std::mem::replace(&mut incoming.state, State::Failed)
                    && !partial.has_journal()
                {
                    // A partial file with a journal stays, and the next copy continues it.
                    partial.discard();
                }
                Ok(())
            }
        }
    }

    fn end(&mut self, id: u32, hash: &[u8; 32]) -> Result<(), Malformed> {
        self.opened(id)?;
        let incoming = self.offered.remove(&id).ok_or(Malformed)?;
        let State::Open(partial) = incoming.state else { return Ok(()) };
        self.open -= 1;
        let dressed = if partial.matches(hash) { partial.dress(&incoming.entry) } else { Err(FileError::Mismatch) };
        match dressed {
            Ok(()) => self.finished.push((id, partial)),
            Err(file_error) => {
                partial.discard();
                self.results.push((id, Err(file_error)));
            }
        }
        Ok(())
    }

    /// Gives finished files their names, once their bytes are on the disk.
    fn publish(&mut self) {
        let together = (self.finished.len() >= SYNC_ALL).then(|| self.target.sync_all());
        // Without a descriptor for the folder, each file is synchronised by its own.
        let together = together.filter(|synced| !synced.is_err_and(FileError::is_no_descriptor));
        for (id, partial) in self.finished.drain(..) {
            let own = together.unwrap_or_else(|| partial.sync());
            self.results.push((id, own.and_then(|()| partial.publish())));
        }
    }
}

/// Tries again while another copy holds the file, since that copy's client may be dead.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    let until = Instant::now() + BUSY_PATIENCE;
    loop {
        match attempt() {
            Err(FileError::Busy) if Instant::now() < until => std::thread::sleep(BUSY_LOOK),
            other => return other,
        }
    }
}
