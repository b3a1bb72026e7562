//! Removes at the server what is not here: in directories that are copied, names that the tree does not have and that
//! `exclude` does not leave out. A directory goes when it is empty.

use super::CopyError;
use super::message::{Answer, ENTRIES_MAX, Kind, MESSAGE_MAX, Malformed, Message};
use super::names::{join, split};
use super::sender::{Happened, Order, Sender};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::mpsc;

/// The most questions under way: ours.
const ASKED_MAX: usize = 32;
/// The most paths that one copy removes: ours.
const REMOVED_MAX: usize = 1 << 22;

type Inbox = mpsc::Receiver<(usize, Message)>;

impl Sender {
    /// Asks for the names in all directories and removes those that are not in the tree. With a dry run the server removes
    /// nothing.
    pub(super) fn remove_others(&mut self, inbox: &Inbox, wake: &impl Fn()) -> Result<(), Option<CopyError>> {
        let mut known: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
        if self.tree.at_top {
            known.entry(Vec::new()).or_default();
        }
        for item in &self.tree.items {
            if item.entry.kind == Kind::Directory {
                known.entry(item.entry.path.clone()).or_default();
            }
            let (folder, name) = split(&item.entry.path);
            if let Some(names) = known.get_mut(folder) {
                names.insert(name.to_vec());
            }
        }
        let (files, folders) = self.others(&known, inbox, wake)?;
        // Directories in the order in which they were found; so the inner ones are the last.
        let files = files.into_iter().map(|path| (false, path));
        let all: Vec<(bool, Vec<u8>)> = files.chain(folders.into_iter().rev().map(|path| (true, path))).collect();
        self.remove(all, inbox, wake)
    }

    /// The files and the directories that are not in the tree.
    #[expect(clippy::type_complexity, reason = "two lists of paths")]
    fn others(
        &self,
        known: &BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
        inbox: &Inbox,
        wake: &impl Fn(),
    ) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>), Option<CopyError>> {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        let mut wanted: VecDeque<(Vec<u8>, Vec<u8>)> = known.keys().map(|path| (path.clone(), Vec::new())).collect();
        // Directories that stay, because a name in them is left out.
        let mut stay: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut asked: VecDeque<Vec<u8>> = VecDeque::new();
        while !wanted.is_empty() || !asked.is_empty() {
            while asked.len() < ASKED_MAX
                && let Some((path, after)) = wanted.pop_front()
            {
                self.order(Order::Say(Message::List { path: path.clone(), after }.encode()))?;
                asked.push_back(path);
            }
            wake();
            let (part, message) = inbox.recv().map_err(|_| None)?;
            self.order(Order::Heard(part))?;
            let (more, names) = match message {
                Message::Names { more, names } => (more, names),
                Message::Progress { .. } => continue,
                _ => return Err(Some(CopyError::Malformed(Malformed))),
            };
            let folder = asked.pop_front().ok_or(Some(CopyError::Malformed(Malformed)))?;
            if let (true, Some((_, last))) = (more, names.last()) {
                wanted.push_back((folder.clone(), last.clone()));
            }
            for (is_directory, name) in names {
                let path = join(&folder, &name);
                let here = known.get(&folder).is_some_and(|names| names.contains(&name));
                if here {
                    continue;
                }
                if self.tree.exclude.leaves_out(&path, is_directory) {
                    let mut above = &folder[..];
                    while !above.is_empty() && stay.insert(above.to_vec()) {
                        above = split(above).0;
                    }
                    continue;
                }
                if files.len() + folders.len() >= REMOVED_MAX {
                    let what = format!("more than {REMOVED_MAX} files to remove: remove them at the server");
                    return Err(Some(CopyError::Option(what)));
                }
                if is_directory {
                    wanted.push_back((path.clone(), Vec::new()));
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        folders.retain(|path| !stay.contains(path));
        Ok((files, folders))
    }

    fn remove(&mut self, all: Vec<(bool, Vec<u8>)>, inbox: &Inbox, wake: &impl Fn()) -> Result<(), Option<CopyError>> {
        let mut rest = &all[..];
        while !rest.is_empty() {
            let mut bytes = 1;
            let fits = |(_, path): &&(bool, Vec<u8>)| {
                bytes += 3 + path.len();
                bytes <= MESSAGE_MAX
            };
            let count = rest.iter().take(ENTRIES_MAX).take_while(fits).count();
            let (front, behind) = rest.split_at(count);
            rest = behind;
            self.order(Order::Say(Message::Remove(front.to_vec()).encode()))?;
            wake();
            let answers = loop {
                let (part, message) = inbox.recv().map_err(|_| None)?;
                self.order(Order::Heard(part))?;
                match message {
                    Message::Answers(answers) if answers.len() == front.len() => break answers,
                    Message::Progress { .. } => {}
                    _ => return Err(Some(CopyError::Malformed(Malformed))),
                }
            };
            for ((_, answer), (_, path)) in answers.into_iter().zip(front) {
                let shown = PathBuf::from(std::ffi::OsString::from_vec(path.clone()));
                match answer {
                    Answer::Failed(file_error) => {
                        self.done().notify(&shown, 0, Happened::Failed(file_error));
                        self.failed(shown, file_error);
                    }
                    _ => {
                        self.count_removed();
                        self.done().notify(&shown, 0, Happened::Removed);
                    }
                }
            }
        }
        Ok(())
    }
}
