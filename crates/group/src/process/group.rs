//! A set of ranks, and its collectives.

use super::Process;
use super::commands::{Begin, Command, Waiting, What};
use super::delegate::Kind;
use super::element::{Element, Reduction};
use super::failure::Failure;
use super::memory::Buffer;
use super::record::{Record, hosts_of};
use super::recording::Called;
use super::work::Work;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use strandway_collective::plan::{BufferRange, CollectiveCall, Hosts, PlanAlgorithm};

/// The ranges that a call reads and writes at one rank.
struct Ranges<'c> {
    /// Each range, and whether it is written.
    spans: Vec<(&'c BufferRange, bool)>,
    reduces: bool,
    /// The rank that the call names, or 0.
    target: u32,
    /// Lengths of lists that need a part for each rank.
    counts: Vec<usize>,
}

/// The options of a group. Ranks need not agree on them.
#[derive(Clone, Copy, Debug)]
pub struct GroupOptions {
    /// The longest time of a collective; until then it waits for ranks that live. Default 30 minutes.
    pub timeout: Duration,
    /// The longest time that ranks wait for each other to come. Default 5 minutes.
    pub patience: Duration,
}

impl Default for GroupOptions {
    fn default() -> GroupOptions {
        GroupOptions { timeout: Duration::from_secs(1_800), patience: Duration::from_secs(300) }
    }
}

/// Numbers that collectives take as slices. [`Group::start`] also takes other kinds.
pub trait Number: bytemuck::Pod {
    /// Their kind.
    const ELEMENT: Element;
}

macro_rules! numbers {
    ($($kind:ty = $element:ident),*) => { $(impl Number for $kind { const ELEMENT: Element = Element::$element; })* };
}

numbers!(f64 = F64, f32 = F32, half::f16 = F16, half::bf16 = Bf16, i64 = I64, i32 = I32, i16 = I16, i8 = I8);
numbers!(u64 = U64, u32 = U32, u16 = U16, u8 = U8);

/// One rank's side of a group. Dropping it leaves the group; collectives under way fail here.
pub struct Group {
    process: Process,
    id: u64,
    rank: u32,
    members: Arc<[Record]>,
    pub(super) hosts: Hosts,
    options: Mutex<GroupOptions>,
    /// The number of the next collective. The lock is held while the collective is handed over, so that threads agree
    /// on the order.
    next: Mutex<u64>,
    splits: Mutex<u64>,
    shrinks: Mutex<u64>,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Group {
    pub(super) fn new(process: &Process, id: u64, rank: u32, members: Vec<Record>, options: GroupOptions) -> Group {
        let failure = Arc::default();
        if let Some(recorder) = process.recorder() {
            recorder.note_group(id, rank, &members, &process.record());
        }
        process.submit(Command::Meet { group: id, rank, members: members.clone(), failure: Arc::clone(&failure) });
        Group {
            process: process.clone(),
            id,
            rank,
            hosts: hosts_of(&members),
            members: members.into(),
            options: Mutex::new(options),
            next: Mutex::new(0),
            splits: Mutex::new(0),
            shrinks: Mutex::new(0),
            failure,
        }
    }

    /// Makes a group of the ranks that call with the same color, in the order of their keys, then ranks; `None` for
    /// ranks without a color. All ranks call it.
    ///
    /// # Errors
    /// As for any collective.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Group>, Failure> {
        let mut all = vec![0i64; 3 * self.ranks() as usize];
        let ours = [i64::from(color.is_some()), i64::from(color.unwrap_or(0)), i64::from(key)];
        self.all_gather(&ours, &mut all)?;
        let number = {
            let mut splits = self.splits.lock().unwrap_or_else(PoisonError::into_inner);
            *splits += 1;
            *splits
        };
        let Some(color) = color else { return Ok(None) };
        let mut ranks: Vec<(i64, u32)> = (0..)
            .zip(all.chunks_exact(3))
            .filter(|(_, words)| words[0] == 1 && words[1] == i64::from(color))
            .map(|(rank, words)| (words[2], rank))
            .collect();
        ranks.sort_unstable();
        let id = derive([self.id, number, color.into()]);
        let rank = ranks.iter().position(|(_, rank)| *rank == self.rank).unwrap_or_default() as u32;
        let members = ranks.iter().map(|(_, rank)| self.members[*rank as usize].clone()).collect();
        Ok(Some(Group::new(&self.process, id, rank, members, self.options())))
    }

    /// Makes another group of these ranks, whose calls have numbers of their own. It is for a part of the program whose
    /// calls come in no fixed order with the others. Nothing is sent: all ranks call it, once with each `key`.
    pub fn twin(&self, key: u64) -> Group {
        let id = derive([self.id, u64::MAX - 1, key]);
        Group::new(&self.process, id, self.rank, self.members.to_vec(), self.options())
    }

    /// Makes a group without some of the ranks, in the same order, for survivors. Nothing is sent: all remaining ranks
    /// call it, with the same ranks, and equally often. Collectives of this group that are under way go on.
    ///
    /// # Errors
    /// If there is no such rank, or it is this one, or nothing is excluded.
    pub fn shrink(&self, excluded: &[u32]) -> Result<Group, Failure> {
        let ranks = self.ranks();
        if excluded.is_empty() || excluded.contains(&self.rank) || excluded.iter().any(|rank| *rank >= ranks) {
            let what = format!("shrink without ranks {excluded:?}: name other ranks of this group, of {ranks}");
            return Err(Failure::Mismatch(what));
        }
        let left: Vec<u32> = (0..ranks).filter(|rank| !excluded.contains(rank)).collect();
        let number = {
            let mut shrinks = self.shrinks.lock().unwrap_or_else(PoisonError::into_inner);
            *shrinks += 1;
            *shrinks
        };
        let words = [self.id, u64::MAX, number].into_iter().chain(left.iter().map(|rank| (*rank).into()));
        let rank = left.iter().position(|rank| *rank == self.rank).unwrap_or_default() as u32;
        let members = left.iter().map(|rank| self.members[*rank as usize].clone()).collect();
        Ok(Group::new(&self.process, derive(words), rank, members, self.options()))
    }

    /// Our rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.members.len() as u32
    }

    /// The host and process of a rank, for messages.
    pub fn host(&self, rank: u32) -> Option<&str> {
        self.members.get(rank as usize).map(|record| record.host.as_str())
    }

    fn options(&self) -> GroupOptions {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the longest time of collectives from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.options.lock().unwrap_or_else(PoisonError::into_inner).timeout = timeout;
    }

    /// The first failure of a collective of this group here.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of collectives that have begun here.
    pub fn begun(&self) -> u64 {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all collectives of this group here, now: they fail, and so do later ones. The caller gets their memory
    /// back.
    pub fn abort(&self) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Failure::Aborted);
        self.process.submit(Command::Abort { group: self.id });
    }

    /// Begins a collective on memory that is lent until its work has ended. Spans of the job name the buffers.
    /// `timeout`: the group's if it is `None`.
    ///
    /// # Errors
    /// If the job does not fit the buffers, the element or the group. The call takes its number all the same, and fails
    /// at the other ranks, which hear the reason. Otherwise later calls would meet wrong ones.
    pub fn start(
        &self,
        job: CollectiveCall,
        buffers: Vec<Buffer>,
        element: Element,
        reduction: Reduction,
        timeout: Option<Duration>,
    ) -> Result<Work, Failure> {
        if let Err(why) = self.check(&job, &buffers, element, reduction) {
            self.refuse(&why);
            return Err(Failure::Mismatch(why));
        }
        Ok(self.begin(What::Call(job), buffers, element, reduction, timeout))
    }

    /// Reports a collective call that the caller has found wrong, for the reason `why`. The call takes its number, and
    /// fails at the other ranks, which hear the reason.
    pub fn refuse(&self, why: &str) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("the call was refused there: {why}");
        self.process.submit(Command::Refuse { group: self.id, number: *next, text });
        *next += 1;
    }

    /// The operations under way in all groups of the process, the oldest first; empty if the process has ended.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.process.waiting()
    }

    /// Has the last call of this algorithm gone by multicast, or by the switch, and not by what takes its place?
    pub(super) fn uses_team(&self, algorithm: PlanAlgorithm) -> bool {
        let Some(kind) = Kind::of_algorithm(algorithm) else { return true };
        let (answer, answered) = std::sync::mpsc::channel();
        self.process.submit(Command::Team { group: self.id, kind, answer });
        answered.recv_timeout(Duration::from_secs(10)).unwrap_or(false)
    }

    /// Begins to send a buffer to a rank, to a receive with the same tag.
    ///
    /// # Errors
    /// If there is no such rank, or it is this one.
    pub fn start_send(&self, to: u32, tag: u32, buffer: Buffer, timeout: Option<Duration>) -> Result<Work, Failure> {
        self.check_peer(to)?;
        let at = BufferRange::whole(0, buffer.len());
        Ok(self.begin(What::Send { to, tag, at }, vec![buffer], Element::U8, Reduction::Sum, timeout))
    }

    /// Begins to receive from a rank, or from any rank: the result of the work names the sender.
    ///
    /// # Errors
    /// If there is no such rank, or it is this one.
    pub fn start_recv(
        &self,
        from: Option<u32>,
        tag: u32,
        buffer: Buffer,
        timeout: Option<Duration>,
    ) -> Result<Work, Failure> {
        if let Some(from) = from {
            self.check_peer(from)?;
        }
        if !buffer.is_writable() {
            return Err(Failure::Mismatch("a receive needs memory that may be written".into()));
        }
        let at = BufferRange::whole(0, buffer.len());
        Ok(self.begin(What::Receive { from, tag, at }, vec![buffer], Element::U8, Reduction::Sum, timeout))
    }

    fn begin(
        &self,
        what: What,
        buffers: Vec<Buffer>,
        element: Element,
        reduction: Reduction,
        timeout: Option<Duration>,
    ) -> Work {
        let recorded = self.process.recorder().map(|recorder| {
            let called = match &what {
                What::Call(call) => {
                    let algorithm = self.process.algorithm(call, (self.ranks(), &self.hosts), (element, reduction));
                    Called::Collective { call, ranks: self.ranks(), algorithm }
                }
                What::Send { to, tag, at } => Called::Send { to: *to, tag: *tag, bytes: at.len() },
                What::Receive { from, tag, at } => Called::Receive { from: *from, tag: *tag, bytes: at.len() },
            };
            recorder.post(self.id, &called)
        });
        let work = Work::new(self.process.progress_engine(), recorded);
        let timeout = timeout.unwrap_or_else(|| self.options().timeout);
        let counts = matches!(what, What::Call(_));
        let begin = |number| {
            let begin =
                Begin { group: self.id, number, what, buffers, element, reduction, timeout, work: work.clone() };
            if !self.process.submit(Command::Begin(Box::new(begin))) {
                let what = "this process was forked from the one that has the group: make a group of its own";
                work.end(Err(Failure::Node(what.into())));
            }
        };
        if counts {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            begin(Some(*next));
            *next += 1;
        } else {
            begin(None);
        }
        work
    }

    fn check_peer(&self, rank: u32) -> Result<(), Failure> {
        let ranks = self.ranks();
        match rank {
            _ if rank >= ranks => Err(Failure::Mismatch(format!("no rank {rank}: the group has {ranks}"))),
            _ if rank == self.rank => Err(Failure::Mismatch(format!("rank {rank} is this one: copy the bytes"))),
            _ => Ok(()),
        }
    }

    /// The ranges that a call reads and writes at this rank.
    fn ranges<'c>(&self, job: &'c CollectiveCall) -> Ranges<'c> {
        let mut spans: Vec<(&BufferRange, bool)> = Vec::new();
        let (mut reduces, mut target, mut counts) = (false, 0, Vec::new());
        match job {
            CollectiveCall::AllReduce(at) => {
                reduces = true;
                spans.push((at, true));
            }
            CollectiveCall::Reduce { at, root } => {
                (reduces, target) = (true, *root);
                spans.push((at, self.rank == *root));
            }
            CollectiveCall::Broadcast { at, root } => {
                target = *root;
                spans.push((at, self.rank != *root));
            }
            CollectiveCall::AllGather { input, outputs } => {
                counts.push(outputs.len());
                spans.extend(input.iter().map(|span| (span, false)));
                spans.extend(outputs.iter().map(|span| (span, true)));
            }
            CollectiveCall::ReduceScatter { inputs, output } => {
                reduces = true;
                counts.push(inputs.len());
                spans.extend(inputs.iter().map(|span| (span, false)));
                spans.push((output, true));
            }
            CollectiveCall::AllToAll { inputs, outputs } => {
                counts.extend([inputs.len(), outputs.len()]);
                spans.extend(inputs.iter().map(|span| (span, false)));
                spans.extend(outputs.iter().map(|span| (span, true)));
            }
            CollectiveCall::Gather { input, outputs, root } => {
                target = *root;
                spans.push((input, false));
                if self.rank == *root {
                    counts.push(outputs.len());
                    spans.extend(outputs.iter().map(|span| (span, true)));
                }
            }
            CollectiveCall::Scatter { inputs, output, root } => {
                target = *root;
                spans.push((output, true));
                if self.rank == *root {
                    counts.push(inputs.len());
                    spans.extend(inputs.iter().map(|span| (span, false)));
                }
            }
            CollectiveCall::Barrier => {}
        }
        Ranges { spans, reduces, target, counts }
    }

    /// The error in a job, if it has one.
    fn check(
        &self,
        job: &CollectiveCall,
        buffers: &[Buffer],
        element: Element,
        reduction: Reduction,
    ) -> Result<(), String> {
        let (rank, ranks, size) = (self.rank as usize, self.ranks() as usize, element.bytes());
        let name = job.name();
        let Ranges { spans, reduces, target, counts } = self.ranges(job);
        if target as usize >= ranks {
            return Err(format!("{name}: no rank {target}, the group has {ranks}"));
        }
        if let Some(count) = counts.into_iter().find(|count| *count != ranks) {
            return Err(format!("{name}: {count} parts for {ranks} ranks: give one for each rank"));
        }
        for (span, written) in spans {
            let Some(buffer) = buffers.get(span.buffer) else {
                return Err(format!("{name}: there is no buffer {}", span.buffer));
            };
            if span.bytes.start > span.bytes.end || span.bytes.end > buffer.len() {
                return Err(format!("{name}: bytes {:?} of a buffer of {}", span.bytes, buffer.len()));
            }
            if written && !span.is_empty() && !buffer.is_writable() {
                return Err(format!("{name}: a result needs memory that may be written"));
            }
            let whole = span.bytes.start.is_multiple_of(size) && span.bytes.end.is_multiple_of(size);
            let alignment = if reduces { element.alignment() } else { 1 };
            if !whole || !buffer.is_aligned(alignment) {
                return Err(format!(
                    "{name}: a buffer of {} must begin and end at multiples of {size} bytes, and bytes {:?} do not",
                    element.name(),
                    span.bytes
                ));
            }
        }
        let pairs: Vec<(usize, usize, &str)> = match job {
            CollectiveCall::AllGather { input: Some(input), outputs } => {
                vec![(input.len(), outputs[rank].len(), "input and own output")]
            }
            CollectiveCall::ReduceScatter { inputs, output } => {
                vec![(inputs[rank].len(), output.len(), "own input and output")]
            }
            CollectiveCall::AllToAll { inputs, outputs } => {
                vec![(inputs[rank].len(), outputs[rank].len(), "own input and own output")]
            }
            CollectiveCall::Gather { input, outputs, root } if self.rank == *root => {
                vec![(input.len(), outputs[rank].len(), "input and own output")]
            }
            CollectiveCall::Scatter { inputs, output, root } if self.rank == *root => {
                vec![(inputs[rank].len(), output.len(), "own input and output")]
            }
            _ => Vec::new(),
        };
        if let Some((one, other, which)) = pairs.into_iter().find(|(one, other, _)| one != other) {
            return Err(format!("{name}: {which} have {one} and {other} bytes: give both the same"));
        }
        if reduces && !reduction.takes(element) {
            return Err(format!("{name}: {reduction} is not defined for {}", element.name()));
        }
        Ok(())
    }

    // Blocking calls on slices. They return when the work has ended, so the slices may be borrowed.

    fn run(
        &self,
        job: CollectiveCall,
        buffers: Vec<Buffer>,
        element: Element,
        reduction: Reduction,
    ) -> Result<(), Failure> {
        self.start(job, buffers, element, reduction, None)?.wait().map(drop)
    }

    /// Replaces the numbers of all ranks by their reduction.
    ///
    /// # Errors
    /// If a rank is gone, the time is over, the group was aborted, or ranks call differently.
    pub fn all_reduce<T: Number>(&self, numbers: &mut [T], reduction: Reduction) -> Result<(), Failure> {
        let at = BufferRange::whole(0, size_of_val(numbers));
        self.run(CollectiveCall::AllReduce(at), vec![Buffer::borrow_mut(numbers)], T::ELEMENT, reduction)
    }

    /// Replaces the root's numbers by the reduction of all ranks' numbers.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn reduce<T: Number>(&self, numbers: &mut [T], reduction: Reduction, root: u32) -> Result<(), Failure> {
        let at = BufferRange::whole(0, size_of_val(numbers));
        self.run(CollectiveCall::Reduce { at, root }, vec![Buffer::borrow_mut(numbers)], T::ELEMENT, reduction)
    }

    /// Gives the root's numbers to all ranks.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn broadcast<T: Number>(&self, numbers: &mut [T], root: u32) -> Result<(), Failure> {
        let at = BufferRange::whole(0, size_of_val(numbers));
        self.run(CollectiveCall::Broadcast { at, root }, vec![Buffer::borrow_mut(numbers)], T::ELEMENT, Reduction::Sum)
    }

    /// Gives the numbers of all ranks to all ranks, rank by rank; `output` is as long as all of them together.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn all_gather<T: Number>(&self, input: &[T], output: &mut [T]) -> Result<(), Failure> {
        let length = size_of_val(input);
        self.fits("all_gather", "the output", size_of_val(output), length)?;
        let job =
            CollectiveCall::AllGather { input: Some(BufferRange::whole(0, length)), outputs: self.blocks(1, length) };
        self.run(job, vec![Buffer::borrow(input), Buffer::borrow_mut(output)], T::ELEMENT, Reduction::Sum)
    }

    /// Gives rank `r` the reduction of all ranks' blocks `r`; `input` has a block as long as `output` for each rank.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn reduce_scatter<T: Number>(
        &self,
        input: &[T],
        output: &mut [T],
        reduction: Reduction,
    ) -> Result<(), Failure> {
        let length = size_of_val(output);
        self.fits("reduce_scatter", "the input", size_of_val(input), length)?;
        let job =
            CollectiveCall::ReduceScatter { inputs: self.blocks(0, length), output: BufferRange::whole(1, length) };
        self.run(job, vec![Buffer::borrow(input), Buffer::borrow_mut(output)], T::ELEMENT, reduction)
    }

    /// Gives rank `r` the blocks `r` of all ranks, rank by rank. The length of both slices is a multiple of the number
    /// of ranks.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn all_to_all<T: Number>(&self, input: &[T], output: &mut [T]) -> Result<(), Failure> {
        let length = input.len() / self.ranks() as usize * size_of::<T>();
        self.fits("all_to_all", "the input", size_of_val(input), length)?;
        self.fits("all_to_all", "the output", size_of_val(output), length)?;
        let job = CollectiveCall::AllToAll { inputs: self.blocks(0, length), outputs: self.blocks(1, length) };
        self.run(job, vec![Buffer::borrow(input), Buffer::borrow_mut(output)], T::ELEMENT, Reduction::Sum)
    }

    /// Gives the root the numbers of all ranks, rank by rank; elsewhere `output` is empty.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn gather<T: Number>(&self, input: &[T], output: &mut [T], root: u32) -> Result<(), Failure> {
        let length = size_of_val(input);
        if root == self.rank {
            self.fits("gather", "the output", size_of_val(output), length)?;
        }
        let outputs = if root == self.rank { self.blocks(1, length) } else { Vec::new() };
        let job = CollectiveCall::Gather { input: BufferRange::whole(0, length), outputs, root };
        self.run(job, vec![Buffer::borrow(input), Buffer::borrow_mut(output)], T::ELEMENT, Reduction::Sum)
    }

    /// Gives rank `r` the root's block `r`; elsewhere `input` is empty.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn scatter<T: Number>(&self, input: &[T], output: &mut [T], root: u32) -> Result<(), Failure> {
        let length = size_of_val(output);
        if root == self.rank {
            self.fits("scatter", "the input", size_of_val(input), length)?;
        }
        let inputs = if root == self.rank { self.blocks(0, length) } else { Vec::new() };
        let job = CollectiveCall::Scatter { inputs, output: BufferRange::whole(1, length), root };
        self.run(job, vec![Buffer::borrow(input), Buffer::borrow_mut(output)], T::ELEMENT, Reduction::Sum)
    }

    /// Sends numbers to a rank, whose receive has the same tag and length.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn send<T: Number>(&self, numbers: &[T], to: u32, tag: u32) -> Result<(), Failure> {
        self.start_send(to, tag, Buffer::borrow(numbers), None)?.wait().map(drop)
    }

    /// Receives numbers from a rank, or from any rank; returns the sender's rank.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn recv<T: Number>(&self, numbers: &mut [T], from: Option<u32>, tag: u32) -> Result<u32, Failure> {
        let source = self.start_recv(from, tag, Buffer::borrow_mut(numbers), None)?.wait()?;
        Ok(source.or(from).unwrap_or_default())
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// As for [`Group::all_reduce`].
    pub fn barrier(&self) -> Result<(), Failure> {
        self.run(CollectiveCall::Barrier, Vec::new(), Element::U8, Reduction::Sum)
    }

    /// Checks that `bytes` is the length of one block of `length` bytes for each rank. If not, the call is refused.
    fn fits(&self, name: &str, which: &str, bytes: usize, length: usize) -> Result<(), Failure> {
        let ranks = self.ranks() as usize;
        if bytes == length * ranks {
            return Ok(());
        }
        let why = format!("{name}: {which} has {bytes} bytes, and {ranks} ranks take {length} each: give equal blocks");
        self.refuse(&why);
        Err(Failure::Mismatch(why))
    }

    /// A block for each rank.
    fn blocks(&self, buffer: usize, length: usize) -> Vec<BufferRange> {
        (0..self.ranks() as usize)
            .map(|rank| BufferRange { buffer, bytes: rank * length..(rank + 1) * length })
            .collect()
    }
}

/// The number of a group that is made of another one.
fn derive(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut hash = blake3::Hasher::new();
    for word in words {
        hash.update(&word.to_be_bytes());
    }
    u64::from_be_bytes(*hash.finalize().as_bytes().first_chunk().expect("32 bytes"))
}

impl Drop for Group {
    fn drop(&mut self) {
        self.process.submit(Command::Leave { group: self.id });
    }
}
