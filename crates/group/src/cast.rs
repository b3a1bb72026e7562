//! Files from one host to many: [`send`] multicasts files and directories, [`receive`] writes them below a directory and nowhere else.
//!
//! The sender calls every receiver and offers what it has, as a copy does ([`strandway_udp::copy`]); what one receiver lacks is cast to
//! all of them, parcel by parcel. A parcel is a reliable broadcast in which receivers repair each other's losses, so that the sender
//! sends hardly more than each byte once. A receiver that dies is left behind; one that comes late is served when the others have
//! everything. What a receiver has at that moment stays, and the next cast goes on there.
//!
//! Unless members trust each other, a list of hashes of its chunks comes before each parcel, behind the parcel before it if there is
//! one. The hash of that list comes to each receiver over its own connection with the sender: a receiver that forges chunks for others is
//! found out and changes nothing.

mod chorus;
mod note;
mod ready;
mod receiver;
mod seat;
mod sender;

pub use receiver::{Served, receive};
pub use sender::{Listener, Progress, State, Status, Summary, send};

use crate::What;
use crate::error::GroupError;
use crate::team::{Options as TeamOptions, Team};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strandway_proto::cast::{Layout, Parity};
use strandway_proto::repair::Code;
use strandway_udp::copy::{CopyError, Malformed, Trouble};
use strandway_udp::{Error, parity_chunks};

/// How to cast.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a block, a power of two from 4 KiB to 64 MiB: parcels are about as long. Default 16 MiB.
    pub block: u32,
    /// Parcels under way, from the first byte read to the last one written everywhere; 2 to 64. Default 4.
    pub slots: u16,
    /// How the team multicasts: its rate and pace, and its patience with a silent receiver, which is then left behind.
    pub team: TeamOptions,
    /// How long to wait for receivers that do not answer before the cast begins without them. Default 3 s.
    pub wait: Duration,
    /// End the cast when a receiver is lost, rather than go on without it. Default no.
    pub all_or_nothing: bool,
    /// Members trust each other: chunks are cast without hashes. Default no.
    pub trusting: bool,
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
        }
    }
}

/// Why a cast ended early. What has arrived is kept: the same cast goes on where it stopped.
#[derive(Debug)]
pub enum CastError {
    /// A call of the node failed.
    Node(Error),
    /// The team could not do its work.
    Team(GroupError),
    /// Sources or options do not work, or the disk does not: as a copy says it.
    Copy(CopyError),
    /// An option does not work: which, and what would.
    Option(String),
    /// No receiver takes part: each with its reason.
    Nobody(Vec<(String, String)>),
    /// A receiver was lost, and the cast was to reach all or none.
    Lost(String),
    /// The sender has gone.
    SenderGone,
    /// The peer sent something that is none of the protocol's.
    Malformed,
    /// The receiver's directory does not work.
    Refused(Trouble),
    /// Asked to stop.
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
                write!(f, "{name} was lost, and the cast was to reach all; run it again: it goes on where it stopped")
            }
            CastError::SenderGone => f.write_str("the sender has gone; what has arrived is kept"),
            CastError::Malformed => Malformed.fmt(f),
            CastError::Refused(trouble) => trouble.fmt(f),
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

/// Files that did not arrive somewhere: the receiver, the path, and why.
pub type Failures = Vec<(String, PathBuf, Trouble)>;

/// Sizes of blocks that both sides take, as powers of two: 4 KiB to 64 MiB. Ours.
const BLOCK_LOG2: std::ops::RangeInclusive<u8> = 12..=26;

/// What the members of a cast do with each parcel.
const BROADCAST: What = What::Broadcast { root: 0 };

/// How much less than the thread of its node a thread asks for the processor that reads, hashes or writes: ours. Where cores are
/// short, files wait, and not packets.
const NICE: i32 = 10;

/// The thread that calls this goes behind those that move packets.
fn step_back() {
    // A system that does not allow it is slower, and no more.
    let _ = rustix::process::nice(NICE);
}

/// The list of hashes of a parcel's chunks: 16 bytes for each, by their numbers, those of parity behind those of data.
#[derive(Clone)]
struct List {
    hashes: Vec<u8>,
    /// The hash that the list itself must have.
    hash: [u8; 32],
}

impl List {
    /// Of a parcel that is here, in chunks of so many bytes, with parity of this code.
    fn of(parcel: &[u8], chunk: u16, parity: Option<Code>) -> Result<List, GroupError> {
        let (layout, parity) = cut(parcel.len(), chunk, parity)?;
        let mut hashes = Vec::with_capacity(parity.map_or(layout.numbers(), |parity| parity.numbers()) as usize * 16);
        let mut add = |chunk: &[u8]| hashes.extend_from_slice(&blake3::hash(chunk).as_bytes()[..16]);
        let (whole, rest) = parcel.split_at(parcel.len() - parcel.len() % usize::from(chunk));
        whole.chunks(chunk.into()).for_each(&mut add);
        // As it is cast: filled up.
        if !rest.is_empty() {
            let mut last = rest.to_vec();
            last.resize(chunk.into(), 0);
            add(&last);
        }
        if let Some(parity) = parity {
            let mut padded = parcel.to_vec();
            padded.resize(layout.bytes() as usize, 0);
            parity_chunks(layout, parity, &padded, |_, chunk| add(chunk));
        }
        let hash = *blake3::hash(&hashes).as_bytes();
        Ok(List { hashes, hash })
    }

    /// Of a parcel of so many bytes that is to come: zeros, and the hash that was promised.
    fn promised(hash: [u8; 32], bytes: usize, chunk: u16, parity: Option<Code>) -> Result<List, GroupError> {
        Ok(List { hashes: vec![0; List::bytes(bytes, chunk, parity)?], hash })
    }

    /// How long the list of a parcel of so many bytes is.
    fn bytes(parcel: usize, chunk: u16, parity: Option<Code>) -> Result<usize, GroupError> {
        let (layout, parity) = cut(parcel, chunk, parity)?;
        Ok(parity.map_or(layout.numbers(), |parity| parity.numbers()) as usize * 16)
    }

    /// The hashes, if they are those that were promised.
    fn checked(&self) -> Result<Arc<[[u8; 16]]>, GroupError> {
        if *blake3::hash(&self.hashes).as_bytes() != self.hash {
            let what = "a member has forged the list of hashes: the sender is asked to cast again".into();
            return Err(GroupError::Config(what));
        }
        Ok(self.hashes.chunks_exact(16).filter_map(|hash| hash.first_chunk().copied()).collect())
    }
}

/// How a parcel is cut into chunks, and its parity. Its last chunk is filled up with zeros, so that its hash is the same whether a list follows
/// or not.
fn cut(bytes: usize, chunk: u16, parity: Option<Code>) -> Result<(Layout, Option<Parity>), GroupError> {
    let many = || GroupError::Config(format!("a parcel of {bytes} bytes has more than four billion chunks"));
    let layout = Layout::new(with_list(bytes, 0, chunk.into()) as u64, 1, chunk).ok_or_else(many)?;
    let parity = parity.map(|code| Parity::new(layout, code).ok_or_else(many)).transpose()?;
    Ok((layout, parity))
}

/// The list of a parcel, as its members have it.
enum Hashes {
    /// They trust each other, and have none.
    None,
    /// It is cast before the parcel.
    Apart(List),
    /// It came behind the parcel before.
    Here(List),
}

/// Broadcasts a parcel of so many bytes from rank 0. The list of the next one follows it, from a new chunk on; `next` is how long that
/// is. `buffer` has both at rank 0, and is empty elsewhere; it comes back full.
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
        // Pages that the system zeroes as chunks come, not all at once while everybody waits to begin.
        buffer = vec![0; whole];
    }
    buffer.resize(whole, 0);
    let region = team.node_mut().register(buffer);
    let done = team.multicast_checked(BROADCAST, region, 0..whole, list, stop);
    // Nothing uses it any more.
    let buffer = team.node_mut().deregister(region).unwrap_or_default();
    match done {
        Ok(_) => Ok(buffer),
        Err(error) => Err((buffer, error)),
    }
}

/// Bytes of a parcel that is filled up to whole chunks, and of the list that follows it.
const fn with_list(bytes: usize, next: usize, chunk: usize) -> usize {
    bytes.next_multiple_of(chunk) + next
}

/// Casts a list by itself.
fn cast_list(team: &mut Team, list: &List, stop: &impl Fn() -> bool) -> Result<List, GroupError> {
    let length = list.hashes.len();
    let region = team.node_mut().register(list.hashes.clone());
    let done = team.multicast(BROADCAST, region, 0..length, stop);
    // Nothing uses it any more.
    let hashes = team.node_mut().deregister(region).unwrap_or_default();
    done.map(|_| List { hashes, hash: list.hash })
}
