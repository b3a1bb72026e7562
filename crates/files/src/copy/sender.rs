//! The client's disk thread in a copy: it decides which entries to offer and which blocks to read, and takes the
//! answers. No sockets here.

use super::CopyError;
use super::contents::append;
use super::digest;
use super::file_error::FileError;
use super::message::{Answer, ENTRIES_MAX, Entry, Kind, MESSAGE_MAX, Malformed, Message, PIECE_END, PIECE_HEAD, Piece};
use super::spare::Spare;
use super::tree::{Item, Tree, modified};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// The most entries that were offered and have no final result yet: ours, half of the server's limit.
const OFFERED_MAX: usize = 4_096;

/// An order of the disk thread to the node's.
#[derive(Debug)]
pub enum Order {
    /// Send this message.
    Say(Vec<u8>),
    /// Write this parcel into that slot.
    Write(u16, Vec<u8>),
    /// The message in this part of the inbox has been handled.
    Heard(usize),
}

/// Counters that both threads use.
#[derive(Debug, Default)]
pub struct Done {
    /// Bytes of files that the server has, from this copy or before it.
    pub bytes: AtomicU64,
    /// Bytes that were sent and are on the server's disk.
    pub sent: AtomicU64,
    /// Files that the server has.
    pub files: AtomicU64,
    /// Payload that the server rebuilt from parity, in bytes.
    pub rebuilt: AtomicU64,
    /// Is news of single files wanted?
    pub telling: AtomicBool,
    /// The news of files that nobody has taken.
    pub news: Mutex<Vec<FileNews>>,
    /// Memory for parcels.
    pub(super) spare: Spare,
}

/// The fate of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was sent, and the server has it.
    Sent,
    /// The server had it.
    Had,
    /// It has become another name of a file that the server has.
    Linked,
    /// It was removed at the server, or would be.
    Removed,
    /// It was not copied.
    Failed(FileError),
}

/// News of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNews {
    /// Its path here; of one that was removed, that below the server's directory.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Its fate.
    pub what: Happened,
}

impl Done {
    pub(super) fn notify(&self, path: &Path, bytes: u64, what: Happened) {
        if self.telling.load(Ordering::Relaxed) {
            let news = FileNews { path: path.to_path_buf(), bytes, what };
            self.news.lock().unwrap_or_else(PoisonError::into_inner).push(news);
        }
    }

    /// Takes the news so far.
    pub fn take_news(&self) -> Vec<FileNews> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The outcome of a copy.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files that were sent.
    pub files: u64,
    /// Directories that the server has.
    pub directories: u64,
    /// Links that the server has.
    pub links: u64,
    /// Files that the server had before.
    pub had_files: u64,
    /// Their bytes.
    pub had_bytes: u64,
    /// Bytes of sent files that an earlier copy had left.
    pub resumed_bytes: u64,
    /// Bytes that were missing.
    pub missing_bytes: u64,
    /// Files, links and directories that were removed at the server, or would be.
    pub removed: u64,
    /// Nothing was removed, because files could not be copied.
    pub kept: bool,
    /// Entries that were not copied, and why.
    pub failures: Vec<(PathBuf, FileError)>,
}

/// The file that is being read.
struct Reading {
    id: u32,
    file: File,
    size: u64,
    /// Blocks of zeros are not sent.
    sparse: bool,
    /// The next block.
    next: u64,
    /// Runs of blocks that the server wants; the first one contains `next` or begins after it.
    runs: VecDeque<(u32, u32)>,
    digests: Vec<[u8; 32]>,
}

/// One copy.
pub struct Sender {
    pub(super) tree: Tree,
    block: u32,
    pub(super) dry_run: bool,
    delete: bool,
    orders: mpsc::Sender<Order>,
    done: Arc<Done>,
    /// The next entry to offer.
    next: usize,
    /// Entries that must be offered once more.
    again: VecDeque<u32>,
    /// Entries that were offered a second time.
    repeated: BTreeSet<u32>,
    /// Offered and not answered.
    unanswered: usize,
    /// Files that the server wants, and which it has not confirmed yet.
    unfinished: BTreeSet<u32>,
    wanted: VecDeque<(u32, Vec<(u32, u32)>)>,
    reading: Option<Reading>,
    /// Slots without a parcel, and the payload of those that have one.
    free: Vec<u16>,
    under_way: BTreeMap<u16, u64>,
    outcome: Outcome,
}

impl Sender {
    /// A copy of a tree, in blocks of `block` bytes, with `slots` parcels under way. Orders go to `orders`.
    pub fn new(tree: Tree, (block, slots): (u32, u16), dry_run: bool, orders: mpsc::Sender<Order>) -> Sender {
        let mut sender = Sender {
            tree,
            block,
            dry_run,
            delete: false,
            orders,
            done: Arc::default(),
            next: 0,
            again: VecDeque::new(),
            repeated: BTreeSet::new(),
            unanswered: 0,
            unfinished: BTreeSet::new(),
            wanted: VecDeque::new(),
            reading: None,
            free: (0..slots).rev().collect(),
            under_way: BTreeMap::new(),
            outcome: Outcome::default(),
        };
        sender.outcome.failures.append(&mut sender.tree.failures);
        sender
    }

    /// Removes at the server what is not here, in directories that are copied.
    pub(super) fn deleting(self, delete: bool) -> Sender {
        Sender { delete, ..self }
    }

    /// A path could not be removed.
    pub(super) fn failed(&mut self, path: PathBuf, file_error: FileError) {
        self.outcome.failures.push((path, file_error));
    }

    pub(super) fn count_removed(&mut self) {
        self.outcome.removed += 1;
    }

    /// Its counters.
    pub fn done(&self) -> Arc<Done> {
        self.done.clone()
    }

    /// Copies everything. The server's messages come by `inbox`; `wake` is called after each order.
    ///
    /// # Errors
    /// If the server breaks the protocol, or reports an error that every file would have; `None` if `inbox` has ended.
    pub fn run(
        mut self,
        inbox: &mpsc::Receiver<(usize, Message)>,
        wake: impl Fn(),
    ) -> Result<Outcome, Option<CopyError>> {
        loop {
            while let Ok((part, message)) = inbox.try_recv() {
                self.order(Order::Heard(part))?;
                self.handle_message(message)?;
            }
            self.offer();
            if let Some(slot) = self.free.pop() {
                let (parcel, payload) = self.parcel();
                if !parcel.is_empty() {
                    self.under_way.insert(slot, payload);
                    self.order(Order::Write(slot, parcel))?;
                    wake();
                    continue;
                }
                self.done.spare.give(parcel);
                self.free.push(slot);
            }
            wake();
            if self.is_through() {
                break;
            }
            let (part, message) = inbox.recv().map_err(|_| None)?;
            self.order(Order::Heard(part))?;
            self.handle_message(message)?;
        }
        if self.delete {
            self.outcome.kept = !self.outcome.failures.is_empty();
            if !self.outcome.kept {
                self.remove_others(inbox, &wake)?;
            }
        }
        if !self.dry_run {
            self.settle(inbox, &wake)?;
        }
        Ok(self.outcome)
    }

    fn is_through(&self) -> bool {
        let all = self.next == self.tree.items.len() && self.again.is_empty();
        all && self.unanswered == 0 && self.unfinished.is_empty() && self.under_way.is_empty()
    }

    pub(super) fn order(&self, order: Order) -> Result<(), Option<CopyError>> {
        self.orders.send(order).map_err(|_| None)
    }

    /// Sends offers up to the limit.
    fn offer(&mut self) {
        while self.unanswered + self.unfinished.len() + ENTRIES_MAX <= OFFERED_MAX {
            let mut entries = Vec::new();
            let mut bytes = 1;
            while entries.len() < ENTRIES_MAX {
                let id = self.again.front().copied().unwrap_or(self.next as u32);
                let Some(Item { entry, .. }) = self.tree.items.get(id as usize) else { break };
                // Another name of a file comes when all files are there.
                if matches!(entry.kind, Kind::Hard(_)) && self.is_busy(&entries) {
                    break;
                }
                bytes += entry.length();
                if bytes > MESSAGE_MAX {
                    break;
                }
                entries.push(entry.clone());
                if self.again.pop_front().is_none() {
                    self.next += 1;
                }
            }
            if entries.is_empty() {
                return;
            }
            self.unanswered += entries.len();
            // If the receiver of orders has ended, the inbox has ended too, and `run` notices it there.
            let _ = self.orders.send(Order::Say(Message::Offer(entries).encode()));
        }
    }

    /// Are files under way, or offered in this list?
    fn is_busy(&self, entries: &[Entry]) -> bool {
        let files = entries.iter().any(|entry| !matches!(entry.kind, Kind::Hard(_)));
        files || self.unanswered > 0 || !self.unfinished.is_empty() || !self.under_way.is_empty()
    }

    fn handle_message(&mut self, message: Message) -> Result<(), Option<CopyError>> {
        let broken = Some(CopyError::Malformed(Malformed));
        match message {
            Message::Answers(answers) => {
                if answers.len() > self.unanswered {
                    return Err(broken);
                }
                self.unanswered -= answers.len();
                answers.into_iter().try_for_each(|(id, answer)| self.answered(id, answer))
            }
            Message::Progress { rebuilt, freed, results } => {
                self.done.rebuilt.store(rebuilt, Ordering::Relaxed);
                for slot in freed {
                    let Some(payload) = self.under_way.remove(&slot) else { return Err(broken) };
                    self.free.push(slot);
                    self.done.bytes.fetch_add(payload, Ordering::Relaxed);
                    self.done.sent.fetch_add(payload, Ordering::Relaxed);
                }
                results.into_iter().try_for_each(|(id, result)| self.finished(id, result))
            }
            _ => Err(broken),
        }
    }

    fn answered(&mut self, id: u32, answer: Answer) -> Result<(), Option<CopyError>> {
        let broken = Some(CopyError::Malformed(Malformed));
        let Some(Item { entry, from }) = self.tree.items.get(id as usize) else { return Err(broken) };
        match (answer, &entry.kind) {
            (Answer::Failed(file_error), _) => return self.fail(id, file_error),
            (Answer::Have, Kind::File(size)) => {
                self.outcome.had_files += 1;
                self.outcome.had_bytes += size;
                self.done.bytes.fetch_add(*size, Ordering::Relaxed);
                self.done.files.fetch_add(1, Ordering::Relaxed);
                self.done.notify(from, *size, Happened::Had);
            }
            (Answer::Have, Kind::Hard(_)) => {
                self.outcome.links += 1;
                self.done.notify(from, 0, Happened::Linked);
            }
            (Answer::Have, Kind::Directory) => self.outcome.directories += 1,
            (Answer::Have, Kind::Link(_)) => self.outcome.links += 1,
            (Answer::Missing(runs), Kind::File(size)) => {
                let (size, block) = (*size, u64::from(self.block));
                let count = digest::blocks(size, block);
                let (mut from, mut missing) = (0, 0);
                for &(first, blocks) in &runs {
                    let (first, end) = (u64::from(first), u64::from(first) + u64::from(blocks));
                    if first < from || end > count || blocks == 0 {
                        return Err(broken);
                    }
                    missing += (end * block).min(size) - first * block;
                    from = end;
                }
                self.outcome.missing_bytes += missing;
                if !self.dry_run {
                    self.outcome.resumed_bytes += size - missing;
                    self.done.bytes.fetch_add(size - missing, Ordering::Relaxed);
                    self.unfinished.insert(id);
                    self.wanted.push_back((id, runs));
                }
            }
            (Answer::Missing(_), _) => return Err(broken),
        }
        Ok(())
    }

    fn finished(&mut self, id: u32, result: Result<(), FileError>) -> Result<(), Option<CopyError>> {
        if !self.unfinished.contains(&id) {
            // The client has given it up in the meantime.
            return Ok(());
        }
        match result {
            Ok(()) => {
                self.unfinished.remove(&id);
                self.outcome.files += 1;
                self.done.files.fetch_add(1, Ordering::Relaxed);
                if let Some(Item { entry, from }) = self.tree.items.get(id as usize)
                    && let Kind::File(size) = entry.kind
                {
                    self.done.notify(from, size, Happened::Sent);
                }
                Ok(())
            }
            Err(FileError::Mismatch) if self.repeated.insert(id) => {
                self.unfinished.remove(&id);
                self.again.push_back(id);
                Ok(())
            }
            Err(file_error) => self.fail(id, file_error),
        }
    }

    /// Counts a file as failed. If blocks of it are still to be read, it is abandoned at its turn.
    fn fail(&mut self, id: u32, file_error: FileError) -> Result<(), Option<CopyError>> {
        self.unfinished.remove(&id);
        let Some(Item { from, .. }) = self.tree.items.get(id as usize) else {
            return Err(Some(CopyError::Malformed(Malformed)));
        };
        if file_error.is_everywhere() {
            return Err(Some(CopyError::Refused(from.clone(), file_error)));
        }
        self.done.notify(from, 0, Happened::Failed(file_error));
        self.outcome.failures.push((from.clone(), file_error));
        Ok(())
    }

    /// The next parcel, filled with wanted blocks as far as there are any, and the bytes of files in it; empty if
    /// nothing is wanted.
    fn parcel(&mut self) -> (Vec<u8>, u64) {
        let room = parcel_bytes(self.block) as usize;
        let (mut parcel, mut payload) = (self.done.spare.take(room), 0);
        loop {
            if self.reading.is_none() {
                let Some((id, runs)) = self.wanted.pop_front() else { break };
                match self.open(id, runs) {
                    Ok(reading) => self.reading = Some(reading),
                    Err(file_error) => self.abandon(id, file_error, &mut parcel),
                }
            }
            let Some(reading) = &mut self.reading else {
                if parcel.len() + PIECE_END > room {
                    break;
                }
                continue;
            };
            let id = reading.id;
            if !self.unfinished.contains(&id) {
                // The server has reported a failure.
                Piece::Abandon { id }.put(&mut parcel);
                self.reading = None;
            } else {
                match reading.fill(&mut parcel, room, self.block.into()) {
                    Ok((bytes, whole)) => {
                        payload += bytes;
                        if !whole {
                            break;
                        }
                        let hash = reading.hash(self.block.into());
                        let changed = reading.has_changed(&self.tree.items[id as usize].entry);
                        match (changed, hash) {
                            (false, Some(hash)) => Piece::End { id, hash }.put(&mut parcel),
                            _ => self.abandon(id, FileError::Changed, &mut parcel),
                        }
                        self.reading = None;
                    }
                    Err(file_error) => {
                        self.reading = None;
                        self.abandon(id, file_error, &mut parcel);
                    }
                }
            }
            if parcel.len() + PIECE_END > room {
                break;
            }
        }
        (parcel, payload)
    }

    fn abandon(&mut self, id: u32, file_error: FileError, parcel: &mut Vec<u8>) {
        Piece::Abandon { id }.put(parcel);
        if self.unfinished.remove(&id) {
            self.done.notify(&self.tree.items[id as usize].from, 0, Happened::Failed(file_error));
            self.outcome.failures.push((self.tree.items[id as usize].from.clone(), file_error));
        }
    }

    fn open(&self, id: u32, runs: Vec<(u32, u32)>) -> Result<Reading, FileError> {
        let Item { entry, from } = &self.tree.items[id as usize];
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
        let opened = File::options().read(true).custom_flags(flags as i32).open(from);
        let file = opened.map_err(|error| FileError::of_io(&error))?;
        let Kind::File(size) = entry.kind else { return Err(FileError::Changed) };
        let sparse = entry.more.sparse;
        let reading = Reading { id, file, size, sparse, next: 0, runs: runs.into(), digests: Vec::new() };
        if reading.has_changed(entry) { Err(FileError::Changed) } else { Ok(reading) }
    }

    /// Gives directories their modes and times, inner ones before outer ones.
    fn settle(&mut self, inbox: &mpsc::Receiver<(usize, Message)>, wake: &impl Fn()) -> Result<(), Option<CopyError>> {
        let failed: BTreeSet<&PathBuf> = self.outcome.failures.iter().map(|(path, _)| path).collect();
        let directories = self.tree.items.iter().rev().filter(|item| matches!(item.entry.kind, Kind::Directory));
        let directories: Vec<&Entry> =
            directories.filter(|item| !failed.contains(&item.from)).map(|item| &item.entry).collect();
        let mut messages: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
        let mut rest = &directories[..];
        while !rest.is_empty() {
            let mut bytes = 1;
            let fits = |entry: &&&Entry| {
                bytes += entry.length();
                bytes <= MESSAGE_MAX
            };
            let count = rest.iter().take(ENTRIES_MAX).take_while(fits).count();
            let (front, behind) = rest.split_at(count);
            let entries = front.iter().map(|&entry| entry.clone()).collect();
            messages.push_back((count, Message::Settle(entries).encode()));
            rest = behind;
        }
        let mut waiting = 0;
        while waiting > 0 || !messages.is_empty() {
            while waiting < OFFERED_MAX
                && let Some((count, message)) = messages.pop_front()
            {
                waiting += count;
                self.order(Order::Say(message))?;
            }
            wake();
            let (part, message) = inbox.recv().map_err(|_| None)?;
            self.order(Order::Heard(part))?;
            let Message::Answers(answers) = message else { continue };
            waiting = waiting.checked_sub(answers.len()).ok_or(Some(CopyError::Malformed(Malformed)))?;
            for (id, answer) in answers {
                if let Answer::Failed(file_error) = answer {
                    self.fail(id, file_error)?;
                }
            }
        }
        Ok(())
    }
}

/// Bytes of a parcel: a block, its head, and the end of its file.
pub const fn parcel_bytes(block: u32) -> u64 {
    block as u64 + (PIECE_HEAD + PIECE_END) as u64
}

impl Reading {
    /// Adds wanted blocks to a parcel of at most `room` bytes. Returns the bytes of the file that were added, and
    /// whether the whole file is read and there is room for its end.
    fn fill(&mut self, parcel: &mut Vec<u8>, room: usize, block: u64) -> Result<(u64, bool), FileError> {
        let mut added = 0;
        let mut skipped = Vec::new();
        while self.next * block < self.size {
            let offset = self.next * block;
            let length = (self.size - offset).min(block) as usize;
            while self.runs.front().is_some_and(|&(first, count)| self.next >= u64::from(first) + u64::from(count)) {
                self.runs.pop_front();
            }
            let wanted = self.runs.front().is_some_and(|&(first, _)| self.next >= u64::from(first));
            let buffer = if wanted {
                let start = parcel.len() + PIECE_HEAD;
                if start + length > room {
                    return Ok((added, false));
                }
                Piece::Block { id: self.id, offset, bytes: &[] }.put(parcel);
                parcel[start - 4..].copy_from_slice(&(length as u32).to_be_bytes());
                added += length as u64;
                &mut *parcel
            } else {
                // The server has this block; its digest is part of the file's hash.
                skipped.clear();
                &mut skipped
            };
            append(&self.file, offset, length, buffer).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => FileError::Changed,
                _ => FileError::of_io(&error),
            })?;
            let bytes = &buffer[buffer.len() - length..];
            self.digests.push(digest::of_block(bytes, self.next, self.size, block));
            if wanted && self.sparse && bytes.iter().all(|byte| *byte == 0) {
                parcel.truncate(parcel.len() - length - PIECE_HEAD);
                Piece::Zeros { id: self.id, offset, length: length as u32 }.put(parcel);
            }
            self.next += 1;
        }
        Ok((added, parcel.len() + PIECE_END <= room))
    }

    fn hash(&self, block: u64) -> Option<[u8; 32]> {
        digest::of_file(digest::blocks(self.size, block), |i| self.digests.get(i as usize).copied())
    }

    /// Does the file differ, in size or time of change, from the one that was offered?
    fn has_changed(&self, entry: &Entry) -> bool {
        let data = self.file.metadata();
        !data.is_ok_and(|data| data.is_file() && data.len() == self.size && modified(&data) == entry.modified)
    }
}
