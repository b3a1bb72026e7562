//! Files from one host to many: [`send`] multicasts files and directories, [`receive`] writes them below a directory
//! and nowhere else.
//!
//! The sender calls every receiver and offers its files, as a copy does ([`crate::copy`]). Blocks that any
//! receiver lacks are cast to all of them, file batch by file batch. A file batch is a reliable broadcast in which
//! receivers repair each other's losses, so the sender sends hardly more than each byte once. A receiver that dies is
//! left behind; one that comes late is served when the others have everything. Each receiver keeps its blocks when a
//! cast ends early, and the next cast sends only the rest.
//!
//! Unless members trust each other, each file batch has a list of the hashes of its chunks, which is cast before it, or
//! together with the file batch before it. The sender gives each receiver the hash of that list over their own
//! connection. So chunks that another receiver forges are detected and have no effect.

#[cfg(test)]
mod leavers;
mod message;
mod ready;
mod receiver;
mod receiver_group;
mod sender;
mod status;

pub use receiver::{Served, receive};
pub use sender::{send, send_chosen};
pub use status::{Listener, Progress, State, Status, Summary};

use crate::copy::{CopyError, FileError, Malformed, Preserve};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strandway_group::GroupError;
use strandway_group::What;
use strandway_group::{Options as TeamOptions, Team};
use strandway_proto::cast::{Layout, Parity};
use strandway_proto::repair::Code;
use strandway_proto::units::Span;
use strandway_udp::{Error, parity_chunks};

/// How to cast.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a block, a power of two from 4 KiB to 64 MiB; a file batch has about this length. Default 16 MiB.
    pub block: u32,
    /// File batches under way, from the first byte read to the last one written everywhere; 2 to 64. Default 4.
    pub slots: u16,
    /// The team's multicast: its rate and pace, and its patience with a silent receiver, which is left behind after
    /// that time.
    pub team: TeamOptions,
    /// The longest wait for receivers that do not answer; then the cast begins without them. Default 3 s.
    pub wait: Duration,
    /// End the cast when a receiver is lost; otherwise it goes on without the receiver. Default no.
    pub all_or_nothing: bool,
    /// Members trust each other: chunks are cast without hashes. Default no.
    pub trusting: bool,
    /// Properties of files that are kept besides contents, modes and times; owners are not. Default nothing.
    pub preserve: Preserve,
}

impl Options {
    /// The defaults for a team of these options.
    pub const fn new(team: TeamOptions) -> Options {
        Options {
            block: 16 << 20,
            slots: 4,
            team,
            wait: Duration::from_secs(3),
            all_or_nothing: false,
            trusting: false,
            preserve: Preserve { sparse: false, hard_links: false, attributes: false, owners: false },
        }
    }
}

/// Why a cast ended early. Bytes that have arrived are kept: the same cast goes on where it stopped.
#[derive(Debug)]
pub enum CastError {
    /// A call of the node failed.
    Node(Error),
    /// The team could not do its work.
    Team(GroupError),
    /// Sources, options or the disk have an error, in the form of a copy's error.
    Copy(CopyError),
    /// An option is invalid; the text says which, and the valid values.
    Option(String),
    /// No receiver takes part; the list has the reason of each.
    Nobody(Vec<(String, String)>),
    /// A receiver was lost, and the cast had to reach all.
    Lost(String),
    /// The connection to the sender has ended.
    SenderGone,
    /// The peer sent bytes that are not a message of the protocol.
    Malformed,
    /// The receiver's directory cannot be used.
    Refused(FileError),
    /// The caller asked it to stop.
    Stopped,
}

impl fmt::Display for CastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CastError::Node(error) => error.fmt(f),
            CastError::Team(error) => error.fmt(f),
            CastError::Copy(error) => error.fmt(f),
            CastError::Option(what) => f.write_str(what),
            CastError::Nobody(reasons) => {
                f.write_str("no receiver takes part")?;
                reasons.iter().try_for_each(|(name, why)| write!(f, "\n{name}: {why}"))
            }
            CastError::Lost(name) => {
                write!(
                    f,
                    "{name} was lost, and the cast had to reach all receivers; run it again: it goes on where it stopped"
                )
            }
            CastError::SenderGone => {
                f.write_str("the connection to the sender has ended; bytes that have arrived are kept")
            }
            CastError::Malformed => Malformed.fmt(f),
            CastError::Refused(file_error) => file_error.fmt(f),
            CastError::Stopped => f.write_str("stopped; the same command goes on where it stopped"),
        }
    }
}

impl std::error::Error for CastError {}

impl From<Error> for CastError {
    fn from(error: Error) -> CastError {
        CastError::Node(error)
    }
}

impl From<GroupError> for CastError {
    fn from(error: GroupError) -> CastError {
        match error {
            GroupError::Node(error) => CastError::Node(error),
            GroupError::Stopped => CastError::Stopped,
            other => CastError::Team(other),
        }
    }
}

impl From<CopyError> for CastError {
    fn from(error: CopyError) -> CastError {
        match error {
            CopyError::Stopped => CastError::Stopped,
            other => CastError::Copy(other),
        }
    }
}

impl From<Malformed> for CastError {
    fn from(Malformed: Malformed) -> CastError {
        CastError::Malformed
    }
}

/// Files that did not arrive at a receiver: the receiver, the path, and the reason.
pub type Failures = Vec<(String, PathBuf, FileError)>;

/// Sizes of blocks that both sides accept, as powers of two: 4 KiB to 64 MiB. Ours.
const BLOCK_LOG2: std::ops::RangeInclusive<u8> = 12..=26;

/// The longest patience with a silent member, and the longest round trip, that both sides accept: ours. A receiver
/// waits for a sender that has gone for about that time.
const PATIENCE_MAX: Duration = Duration::from_secs(600);
const RTT_MAX: Span = Span::from_ms(10_000);

/// The operation that the members of a cast run for each file batch.
const BROADCAST: What = What::Broadcast { root: 0 };

/// The `nice` value of threads that read, hash or write, relative to the thread of their node: ours. If cores are
/// short, files wait and packets do not.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread below that of threads that move packets.
fn step_back() {
    // If the system does not allow it, the cast is only slower.
    let _ = rustix::process::nice(NICE);
}

/// The list of hashes of a file batch's chunks: 16 bytes for each, by their numbers; parity chunks follow data chunks.
#[derive(Clone)]
struct List {
    hashes: Vec<u8>,
    /// The expected hash of the list itself.
    hash: [u8; 32],
}

impl List {
    /// The list of a file batch that is here, cut into chunks of `chunk` bytes, with parity of this code.
    fn of(batch: &[u8], chunk: u16, parity: Option<Code>) -> Result<List, GroupError> {
        let (layout, parity) = cut(batch.len(), chunk, parity)?;
        let mut hashes = Vec::with_capacity(parity.map_or(layout.numbers(), |parity| parity.numbers()) as usize * 16);
        let mut add = |chunk: &[u8]| hashes.extend_from_slice(&blake3::hash(chunk).as_bytes()[..16]);
        let (whole, rest) = batch.split_at(batch.len() - batch.len() % usize::from(chunk));
        whole.chunks(chunk.into()).for_each(&mut add);
        // Padded with zeros, as it is cast.
        if !rest.is_empty() {
            let mut last = rest.to_vec();
            last.resize(chunk.into(), 0);
            add(&last);
        }
        if let Some(parity) = parity {
            let mut padded = batch.to_vec();
            padded.resize(layout.bytes() as usize, 0);
            parity_chunks(layout, parity, &padded, |_, chunk| add(chunk));
        }
        let hash = *blake3::hash(&hashes).as_bytes();
        Ok(List { hashes, hash })
    }

    /// The list of a file batch of `bytes` bytes that will arrive: zeros, and the expected hash.
    fn promised(hash: [u8; 32], bytes: usize, chunk: u16, parity: Option<Code>) -> Result<List, GroupError> {
        Ok(List { hashes: vec![0; List::bytes(bytes, chunk, parity)?], hash })
    }

    /// The length of the list of a file batch of `batch` bytes.
    fn bytes(batch: usize, chunk: u16, parity: Option<Code>) -> Result<usize, GroupError> {
        let (layout, parity) = cut(batch, chunk, parity)?;
        Ok(parity.map_or(layout.numbers(), |parity| parity.numbers()) as usize * 16)
    }

    /// The hashes, if the list has the expected hash.
    fn checked(&self) -> Result<Arc<[[u8; 16]]>, GroupError> {
        if *blake3::hash(&self.hashes).as_bytes() != self.hash {
            let what = "a member has forged the list of hashes: the sender is asked to cast again".into();
            return Err(GroupError::Config(what));
        }
        Ok(self.hashes.chunks_exact(16).filter_map(|hash| hash.first_chunk().copied()).collect())
    }
}

/// The layout of a file batch in chunks, and its parity. Its last chunk is padded with zeros, so that its hash is the
/// same with and without a list after it.
fn cut(bytes: usize, chunk: u16, parity: Option<Code>) -> Result<(Layout, Option<Parity>), GroupError> {
    let many = || GroupError::Config(format!("a parcel of {bytes} bytes has more than four billion chunks"));
    let layout = Layout::new(with_list(bytes, 0, chunk.into()) as u64, 1, chunk).ok_or_else(many)?;
    let parity = parity.map(|code| Parity::new(layout, code).ok_or_else(many)).transpose()?;
    Ok((layout, parity))
}

/// The list of hashes of a file batch, as its members have it.
enum Hashes {
    /// There is none, since members trust each other.
    None,
    /// It is cast before the file batch.
    Apart(List),
    /// It came with the file batch before.
    Here(List),
}

/// Broadcasts a file batch of `bytes` bytes from rank 0. The list of the next file batch, of `next` bytes, follows it
/// in new chunks. At rank 0 `buffer` holds both, at the other ranks it is empty; it is returned full.
fn broadcast(
    team: &mut Team,
    mut buffer: Vec<u8>,
    (bytes, next): (usize, usize),
    hashes: &Hashes,
    stop: &impl Fn() -> bool,
) -> Result<Vec<u8>, (Vec<u8>, GroupError)> {
    let list = match hashes {
        Hashes::None => Ok(None),
        Hashes::Here(list) => list.checked().map(Some),
        Hashes::Apart(list) => cast_list(team, list, stop).and_then(|list| list.checked()).map(Some),
    };
    let list = match list {
        Ok(list) => list,
        Err(error) => return Err((buffer, error)),
    };
    let whole = with_list(bytes, next, team.node().payload() as usize);
    if buffer.is_empty() {
        // The system zeroes these pages as chunks arrive, and not all at once while all members wait to begin.
        buffer = vec![0; whole];
    }
    buffer.resize(whole, 0);
    let region = team.node_mut().register(buffer);
    let done = team.multicast_checked(BROADCAST, region, 0..whole, list, stop);
    // No operation uses it any more.
    let buffer = team.node_mut().deregister(region).unwrap_or_default();
    match done {
        Ok(_) => Ok(buffer),
        Err(error) => Err((buffer, error)),
    }
}

/// Bytes of a file batch that is padded to whole chunks, and of the list that follows it.
const fn with_list(bytes: usize, next: usize, chunk: usize) -> usize {
    bytes.next_multiple_of(chunk) + next
}

/// Casts a list by itself.
fn cast_list(team: &mut Team, list: &List, stop: &impl Fn() -> bool) -> Result<List, GroupError> {
    let length = list.hashes.len();
    let region = team.node_mut().register(list.hashes.clone());
    let done = team.multicast(BROADCAST, region, 0..length, stop);
    // No operation uses it any more.
    let hashes = team.node_mut().deregister(region).unwrap_or_default();
    done.map(|_| List { hashes, hash: list.hash })
}
