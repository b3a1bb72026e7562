//! Combines many receivers into one: it gathers their answers and results into the messages of one receiver, which the
//! sending side of a copy expects.
//!
//! A file is wanted if one receiver wants it, and a block if one lacks it. A file batch is done when all receivers have
//! written it. A failure at one receiver is noted for that receiver, and does not hold up the others.

use crate::copy::{Answer, FileError, Malformed, Message};
use std::collections::{BTreeMap, BTreeSet};

/// Runs of blocks: first and number, in order.
type Runs = Vec<(u32, u32)>;

/// The results of one receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiverResult {
    /// Payload of file batches that it has written, in bytes.
    pub(super) bytes: u64,
    /// Files that it received and has now.
    pub(super) files: u64,
    /// Entries that it could not get, by their numbers.
    pub(super) failures: Vec<(u32, FileError)>,
}

/// An offered entry that some receivers have not answered yet.
#[derive(Debug, Default)]
struct Asked {
    left: BTreeSet<usize>,
    /// Blocks that at least one receiver lacks; `None` if no receiver wants the entry.
    missing: Option<Runs>,
    have: bool,
    failed: Option<FileError>,
}

/// A wanted entry of which some receivers have not reported the end.
#[derive(Debug, Default)]
struct Wanted {
    left: BTreeSet<usize>,
    there: bool,
    failed: Option<FileError>,
}

/// The receivers of a pass.
#[derive(Debug, Default)]
pub(super) struct ReceiverGroup {
    results: BTreeMap<usize, ReceiverResult>,
    asked: BTreeMap<u32, Asked>,
    wanted: BTreeMap<u32, Wanted>,
    /// By slot: the receivers that have not written its file batch, and the file batch's bytes.
    slots: BTreeMap<u16, (BTreeSet<usize>, u64)>,
}

/// The union of two lists of runs.
fn union(mut runs: Runs, more: Runs) -> Runs {
    runs.extend(more);
    runs.sort_unstable();
    let mut all: Runs = Vec::new();
    for (first, count) in runs {
        match all.last_mut() {
            Some(last) if first <= last.0.saturating_add(last.1) => {
                last.1 = last.1.max(first.saturating_add(count) - last.0);
            }
            _ => all.push((first, count)),
        }
    }
    all
}

impl ReceiverGroup {
    /// A receiver group of these receivers.
    pub(super) fn new(members: impl IntoIterator<Item = usize>) -> ReceiverGroup {
        ReceiverGroup {
            results: members.into_iter().map(|who| (who, ReceiverResult::default())).collect(),
            ..ReceiverGroup::default()
        }
    }

    /// The receivers.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.results.keys().copied()
    }

    /// The results of a receiver.
    pub(super) fn result(&self, who: usize) -> Option<&ReceiverResult> {
        self.results.get(&who)
    }

    /// A message of the sending side is sent to all.
    pub(super) fn record_sent(&mut self, message: &Message) {
        let (Message::Offer(entries) | Message::Settle(entries)) = message else { return };
        for entry in entries {
            let left = self.results.keys().copied().collect();
            self.asked.insert(entry.id, Asked { left, ..Asked::default() });
        }
    }

    /// A file batch with `bytes` bytes of files has been cast into a slot.
    pub(super) fn cast(&mut self, slot: u16, bytes: u64) {
        self.slots.insert(slot, (self.results.keys().copied().collect(), bytes));
    }

    /// Handles a message of a receiver; returns the messages that are now complete.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub(super) fn handle_message(&mut self, who: usize, message: Message) -> Result<Vec<Message>, Malformed> {
        let receiver = self.results.get_mut(&who).ok_or(Malformed)?;
        match message {
            Message::Answers(answers) => {
                for (id, answer) in answers {
                    let asked = self.asked.get_mut(&id).ok_or(Malformed)?;
                    if !asked.left.remove(&who) {
                        return Err(Malformed);
                    }
                    match answer {
                        Answer::Have => asked.have = true,
                        Answer::Missing(runs) => {
                            asked.missing = Some(union(asked.missing.take().unwrap_or_default(), runs));
                            self.wanted.entry(id).or_default().left.insert(who);
                        }
                        Answer::Failed(file_error) => {
                            asked.failed = Some(file_error);
                            receiver.failures.push((id, file_error));
                        }
                    }
                }
            }
            Message::Progress { freed, results, .. } => {
                for slot in freed {
                    let (left, bytes) = self.slots.get_mut(&slot).ok_or(Malformed)?;
                    if !left.remove(&who) {
                        return Err(Malformed);
                    }
                    receiver.bytes += *bytes;
                }
                for (id, result) in results {
                    let wanted = self.wanted.get_mut(&id).ok_or(Malformed)?;
                    if !wanted.left.remove(&who) {
                        return Err(Malformed);
                    }
                    match result {
                        Ok(()) => {
                            wanted.there = true;
                            receiver.files += 1;
                        }
                        Err(file_error) => {
                            wanted.failed = Some(file_error);
                            receiver.failures.push((id, file_error));
                        }
                    }
                }
            }
            _ => return Err(Malformed),
        }
        Ok(self.gather())
    }

    /// Removes a receiver that is lost; returns the messages that are complete without it, and its results.
    pub(super) fn lose(&mut self, who: usize) -> (Vec<Message>, ReceiverResult) {
        let result = self.results.remove(&who).unwrap_or_default();
        let gone = |left: &mut BTreeSet<usize>| {
            left.remove(&who);
        };
        self.asked.values_mut().for_each(|asked| gone(&mut asked.left));
        self.wanted.values_mut().for_each(|wanted| gone(&mut wanted.left));
        self.slots.values_mut().for_each(|(left, _)| gone(left));
        (self.gather(), result)
    }

    /// The messages for which all receivers have answered.
    fn gather(&mut self) -> Vec<Message> {
        let mut answers = Vec::new();
        self.asked.retain(|&id, asked| {
            if asked.left.is_empty() {
                answers.push((
                    id,
                    match (asked.missing.take(), asked.have, asked.failed) {
                        (Some(runs), ..) => Answer::Missing(runs),
                        (None, false, Some(file_error)) => Answer::Failed(file_error),
                        (None, ..) => Answer::Have,
                    },
                ));
            }
            !asked.left.is_empty()
        });
        let mut results = Vec::new();
        // More receivers may want an entry that some have not answered yet.
        self.wanted.retain(|id, wanted| {
            let over = wanted.left.is_empty() && !self.asked.contains_key(id);
            if over {
                let failed = wanted.failed.filter(|_| !wanted.there);
                results.push((*id, failed.map_or(Ok(()), Err)));
            }
            !over
        });
        let mut freed = Vec::new();
        self.slots.retain(|&slot, (left, _)| {
            if left.is_empty() {
                freed.push(slot);
            }
            !left.is_empty()
        });
        let mut all = Vec::new();
        if !answers.is_empty() {
            all.push(Message::Answers(answers));
        }
        if !freed.is_empty() || !results.is_empty() {
            all.push(Message::Progress { rebuilt: 0, freed, results });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::{Entry, Kind, Modified, More};

    fn offer(ids: &[u32]) -> Message {
        let entry = |&id: &u32| Entry {
            id,
            path: vec![b'a'],
            mode: 0o644,
            modified: Modified::default(),
            kind: Kind::File(1),
            more: More::default(),
        };
        Message::Offer(ids.iter().map(entry).collect())
    }

    fn answers(list: &[(u32, Answer)]) -> Message {
        Message::Answers(list.to_vec())
    }

    fn progress(freed: &[u16], results: &[(u32, Result<(), FileError>)]) -> Message {
        Message::Progress { rebuilt: 0, freed: freed.to_vec(), results: results.to_vec() }
    }

    #[test]
    fn runs_come_together() {
        assert_eq!(union(vec![(0, 2), (8, 1)], vec![(2, 3), (4, 2), (20, 1)]), [(0, 6), (8, 1), (20, 1)]);
        assert_eq!(union(vec![(0, 10)], vec![(3, 2)]), [(0, 10)]);
        assert_eq!(union(vec![], vec![]), []);
    }

    #[test]
    fn blocks_that_one_receiver_lacks_go_to_all_and_a_failure_at_one_is_noted_for_it() {
        let mut group = ReceiverGroup::new([1, 2, 5]);
        group.record_sent(&offer(&[0, 1, 2]));
        let full = FileError::Full;
        let first = [(0, Answer::Have), (1, Answer::Missing(vec![(4, 2)])), (2, Answer::Failed(full))];
        assert_eq!(group.handle_message(1, answers(&first)), Ok(vec![]));
        let second = [(0, Answer::Have), (1, Answer::Missing(vec![(0, 1)])), (2, Answer::Failed(full))];
        assert_eq!(group.handle_message(2, answers(&second)), Ok(vec![]));
        let third = [(0, Answer::Have), (1, Answer::Have), (2, Answer::Have)];
        let all = [(0, Answer::Have), (1, Answer::Missing(vec![(0, 1), (4, 2)])), (2, Answer::Have)];
        assert_eq!(group.handle_message(5, answers(&third)), Ok(vec![answers(&all)]));
        group.cast(7, 100);
        assert_eq!(group.handle_message(1, progress(&[7], &[(1, Ok(()))])), Ok(vec![]));
        assert_eq!(group.handle_message(2, progress(&[], &[(1, Err(full))])), Ok(vec![progress(&[], &[(1, Ok(()))])]));
        assert_eq!(group.handle_message(2, progress(&[7], &[])), Ok(vec![]));
        assert_eq!(group.handle_message(5, progress(&[7], &[])), Ok(vec![progress(&[7], &[])]));
        let result =
            |bytes, files, failures: &[(u32, FileError)]| ReceiverResult { bytes, files, failures: failures.to_vec() };
        assert_eq!(group.result(1), Some(&result(100, 1, &[(2, full)])));
        assert_eq!(group.result(2), Some(&result(100, 0, &[(2, full), (1, full)])));
        assert_eq!(group.result(5), Some(&result(100, 0, &[])));
    }

    #[test]
    fn ranks_do_not_wait_for_a_rank_that_is_gone() {
        let mut group = ReceiverGroup::new([1, 2]);
        group.record_sent(&offer(&[0]));
        group.cast(3, 9);
        assert_eq!(group.handle_message(1, answers(&[(0, Answer::Missing(vec![(0, 1)]))])), Ok(vec![]));
        assert_eq!(group.handle_message(1, progress(&[3], &[])), Ok(vec![]));
        let (said, result) = group.lose(2);
        assert_eq!(said, [answers(&[(0, Answer::Missing(vec![(0, 1)]))]), progress(&[3], &[])]);
        assert_eq!(result, ReceiverResult::default());
        assert_eq!(group.members().collect::<Vec<_>>(), [1]);
        assert_eq!(group.handle_message(2, answers(&[])), Err(Malformed));
    }

    #[test]
    fn unasked_messages_break_the_protocol() {
        let mut group = ReceiverGroup::new([1]);
        assert_eq!(group.handle_message(1, answers(&[(0, Answer::Have)])), Err(Malformed));
        assert_eq!(group.handle_message(1, progress(&[0], &[])), Err(Malformed));
        assert_eq!(group.handle_message(1, progress(&[], &[(0, Ok(()))])), Err(Malformed));
        assert_eq!(group.handle_message(1, offer(&[0])), Err(Malformed));
    }
}
