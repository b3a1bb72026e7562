//! Recordings: each rank writes what its program calls and when, so that the simulator can replay the run on any
//! fabric. The format is in docs/replay.md.

use super::record::Record;
use crate::error::GroupError;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use strandway_collective::plan::CollectiveCall;

/// The version of the format.
const VERSION: u32 = 1;

/// Writes the recording of one process.
pub(super) struct Recorder {
    folder: PathBuf,
    began: Instant,
    /// The file, once the rank is known; afterwards `None` if it could not be written.
    file: Mutex<Option<File>>,
    known: AtomicU64,
    next: AtomicU64,
}

/// A call of the recording.
#[derive(Clone)]
pub(super) struct RecordedCall {
    recorder: Arc<Recorder>,
    number: u64,
}

/// The work of a recorded call.
pub(super) enum Called<'a> {
    Collective { call: &'a CollectiveCall, ranks: u32, algorithm: &'static str },
    Send { to: u32, tag: u32, bytes: usize },
    Receive { from: Option<u32>, tag: u32, bytes: usize },
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Recorder {
    /// A recorder into this folder, which is made if it is missing.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(super) fn new(folder: &Path) -> Result<Recorder, GroupError> {
        std::fs::create_dir_all(folder)
            .map_err(|error| GroupError::Config(format!("STRANDWAY_RECORD {}: {error}", folder.display())))?;
        Ok(Recorder {
            folder: folder.to_path_buf(),
            began: Instant::now(),
            file: Mutex::new(None),
            known: AtomicU64::new(0),
            next: AtomicU64::new(0),
        })
    }

    /// A group was formed. The first one says which rank the process is: then the file is made.
    pub(super) fn note_group(&self, id: u64, rank: u32, members: &[Record], own: &Record) {
        if self.known.fetch_add(1, Ordering::Relaxed) == 0 {
            let path = self.folder.join(format!("rank-{rank}.jsonl"));
            match File::create(&path) {
                Ok(file) => *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file),
                Err(error) => eprintln!("strandway: nothing is recorded: {}: {error}", path.display()),
            }
            let began = SystemTime::now().checked_sub(self.began.elapsed()).unwrap_or(UNIX_EPOCH);
            let unix = began.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
            self.write(&format!(
                "{{\"strandway_recording\":{VERSION},\"rank\":{rank},\"ranks\":{},\"process\":\"{}\",\"unix_us\":{unix}}}\n",
                members.len(),
                hex(&own.id)
            ));
        }
        let members: Vec<String> = members.iter().map(|member| format!("\"{}\"", hex(&member.id))).collect();
        self.write(&format!("{{\"group\":\"{id:016x}\",\"members\":[{}]}}\n", members.join(",")));
    }

    fn us(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.began).as_secs_f64() * 1e6
    }

    fn write(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = file.as_mut().map(|file| file.write_all(line.as_bytes())) {
            eprintln!("strandway: the recording ends here: {}: {error}", self.folder.display());
            *file = None;
        }
    }

    /// The program makes a call.
    pub(super) fn post(self: &Arc<Recorder>, group: u64, called: &Called<'_>) -> RecordedCall {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let what = match called {
            Called::Collective { call, ranks, algorithm } => {
                let (name, bytes, root) = (call.name(), whole(call, *ranks), call.root());
                format!("\"what\":\"{name}\",\"bytes\":{bytes},\"root\":{root},\"algorithm\":\"{algorithm}\"")
            }
            Called::Send { to, tag, bytes } => {
                format!("\"what\":\"send\",\"bytes\":{bytes},\"to\":{to},\"tag\":{tag}")
            }
            Called::Receive { from, tag, bytes } => {
                let from = from.map_or("null".to_string(), |from| from.to_string());
                format!("\"what\":\"recv\",\"bytes\":{bytes},\"from\":{from},\"tag\":{tag}")
            }
        };
        let us = self.us(Instant::now());
        self.write(&format!("{{\"post\":{number},\"us\":{us:.1},\"group\":\"{group:016x}\",{what}}}\n"));
        RecordedCall { recorder: Arc::clone(self), number }
    }
}

/// Bytes as nccl-tests counts them: the whole buffer, of gathers and scatters the blocks of all ranks.
fn whole(call: &CollectiveCall, ranks: u32) -> usize {
    match call {
        CollectiveCall::Gather { input, .. } => input.len() * ranks as usize,
        CollectiveCall::Scatter { output, .. } => output.len() * ranks as usize,
        other => other.bytes(),
    }
}

impl RecordedCall {
    /// The engine has taken the call up.
    pub(super) fn start(&self) {
        let us = self.recorder.us(Instant::now());
        self.recorder.write(&format!("{{\"start\":{},\"us\":{us:.1}}}\n", self.number));
    }

    /// The call has ended.
    pub(super) fn end(&self, failed: bool) {
        let us = self.recorder.us(Instant::now());
        self.recorder.write(&format!("{{\"end\":{},\"us\":{us:.1},\"failed\":{failed}}}\n", self.number));
    }

    /// The program has waited for the call since `from`; `ended`: it has its result now.
    pub(super) fn waited(&self, from: Instant, ended: bool) {
        let (from, until) = (self.recorder.us(from), self.recorder.us(Instant::now()));
        let number = self.number;
        self.recorder
            .write(&format!("{{\"wait\":{number},\"us\":{from:.1},\"until_us\":{until:.1},\"ended\":{ended}}}\n"));
    }
}
