//! The stored state of a fabric while it is up: a folder under `/run`. A restart of the machine empties that folder,
//! and removes the namespaces as well.

use crate::command::LinuxError;
use crate::fabric::{FOLDER, Team};
use crate::failure::{Failures, Target};
use crate::namespace::{NAMESPACES, netns};
use crate::{LinuxFabric, Node};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
#[cfg(doc)]
use strandway_fabric::usid::Element;

/// The file in a fabric's folder with the parts that are denied to nodes at present, one per line.
pub const DENIED: &str = "denied";

/// The stored state of a fabric.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// Was it built completely?
    pub(crate) complete: bool,
    /// Failures, as text in the form of targets.
    pub(crate) failures: Vec<String>,
    pub(crate) fabric: LinuxFabric,
    /// Parts over which nodes must not send, as text ([`Element`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) denied: Vec<String>,
    /// Multicast teams that were made since it was built.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) teams: Vec<Team>,
}

impl State {
    /// The stored state of a fabric; `None` if there is no such fabric.
    pub(crate) fn load(name: &str) -> Result<Option<State>, LinuxError> {
        name_fits(name)?;
        let path = folder(name).join("fabric.toml");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(LinuxError(format!("{}: cannot be read: {e}", path.display()))),
        };
        let state = toml::from_str(&text).map_err(|e| {
            let remedy = format!("remove the rest with `strandway fabric down --name {name}`");
            LinuxError(format!("{}: is damaged: {}; {remedy}", path.display(), e.message()))
        })?;
        Ok(Some(state))
    }

    /// The state of a fabric that must be up and complete.
    pub(crate) fn standing(name: &str) -> Result<State, LinuxError> {
        let Some(state) = State::load(name)? else {
            let others = names();
            let others = match others.is_empty() {
                true => "none is up".to_string(),
                false => format!("up: {}", others.join(", ")),
            };
            return Err(LinuxError(format!(
                "there is no fabric `{name}` ({others}); build one: strandway fabric up SCENARIO --name {name}"
            )));
        };
        if let Some(what) = state.damage() {
            return Err(LinuxError(format!("{what}; remove the rest: strandway fabric down --name {name}")));
        }
        Ok(state)
    }

    /// A sentence about the missing parts of the fabric, if any.
    pub(crate) fn damage(&self) -> Option<String> {
        let name = &self.fabric.name;
        if !self.complete {
            return Some(format!("fabric `{name}` was never completed"));
        }
        let spaces = self.fabric.nodes().into_iter().map(|n| self.fabric.namespace(n));
        let gone: Vec<String> = spaces.filter(|space| !netns(space).exists()).collect();
        gone.first().map(|first| format!("fabric `{name}` lacks {} of its namespaces, such as {first}", gone.len()))
    }

    pub(crate) fn save(&self) -> Result<(), LinuxError> {
        let folder = folder(&self.fabric.name);
        let fail = |what: &Path, e: std::io::Error| LinuxError(format!("{}: cannot be written: {e}", what.display()));
        make_folder(&folder).map_err(|e| fail(&folder, e))?;
        let text = toml::to_string(self).map_err(|e| LinuxError(format!("fabric.toml: {e}")))?;
        let (path, new) = (folder.join("fabric.toml"), folder.join("fabric.toml.new"));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(|e| fail(&path, e))
    }

    /// Writes a node file per host, and the shared key, which only the owner can read.
    pub(crate) fn save_node_files(&self, text: &dyn Fn(u16) -> String) -> Result<(), LinuxError> {
        let path = folder(&self.fabric.name).join("key");
        let write = || -> std::io::Result<()> {
            let mut key = [0; 32];
            fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).open(&path)?.write_all(&key)
        };
        write().map_err(|e| LinuxError(format!("{}: cannot be written: {e}", path.display())))?;
        for host in 0..self.fabric.hosts {
            let path = folder(&self.fabric.name).join(format!("{}.toml", Node::Host(host)));
            fs::write(&path, text(host))
                .map_err(|e| LinuxError(format!("{}: cannot be written: {e}", path.display())))?;
        }
        Ok(())
    }

    /// Writes the file of denied parts, which nodes obey. They never see half of it.
    pub(crate) fn save_denied(&self) -> Result<(), LinuxError> {
        let path = folder(&self.fabric.name).join(DENIED);
        let (new, lines) = (path.with_extension("new"), self.denied.iter().map(|part| format!("{part}\n")));
        let text =
            format!("# Parts that nodes avoid; `strandway fabric deny` writes them.\n{}", lines.collect::<String>());
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|e| LinuxError(format!("{}: cannot be written: {e}", path.display())))
    }

    pub(crate) fn failures(&self) -> Result<Failures, LinuxError> {
        let parsed = self.failures.iter().map(|text| Target::parse(&self.fabric, text));
        Ok(Failures(parsed.collect::<Result<_, String>>().map_err(LinuxError)?))
    }

    /// All multicast teams.
    pub(crate) fn all_teams(&self) -> Vec<Team> {
        [&self.fabric.teams[..], &self.teams].concat()
    }
}

/// Checks the name of a fabric. Its namespaces and its folder are named after it.
///
/// # Errors
/// If it is not allowed; with the remedy.
pub fn name_fits(name: &str) -> Result<(), LinuxError> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if (1..=20).contains(&name.len()) && name.chars().all(good) {
        return Ok(());
    }
    Err(LinuxError(format!("`{name}` cannot be the name of a fabric: write 1 to 20 letters, digits or underscores")))
}

/// A process's hold on a fabric while it runs a scenario there or removes it. Only one process has it at a time. The
/// kernel releases it when the process ends, even by a crash.
#[derive(Debug)]
pub struct Running {
    _file: File,
    path: PathBuf,
}

impl Running {
    /// Takes hold of the fabric called `name`, whether or not it is up.
    ///
    /// # Errors
    /// If another process holds it.
    pub fn on(name: &str) -> Result<Running, LinuxError> {
        name_fits(name)?;
        let path = Path::new(FOLDER).join(format!("{name}.running"));
        let fail = |e: std::io::Error| unlocked(&path, &e);
        make_folder(Path::new(FOLDER)).map_err(fail)?;
        let open = || File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = open().map_err(fail)?;
        match file.try_lock() {
            // The former holder may have removed the file after this process had opened it: then the lock is useless,
            // and the new file is tried.
            Ok(()) if !is_at(&file, &path) => {
                drop(file);
                return Running::on(name);
            }
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let who = if pid.trim().is_empty() { String::new() } else { format!(" (process {})", pid.trim()) };
                return Err(LinuxError(format!(
                    "fabric `{name}` is running a scenario{who}; wait for its end, end it, or choose another --name"
                )));
            }
            Err(fs::TryLockError::Error(e)) => return Err(fail(e)),
        }
        let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        noted.map_err(fail)?;
        Ok(Running { _file: file, path })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Removed first; then the lock ends as the file is closed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Is this open file the one at the path?
fn is_at(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), fs::metadata(path)), (Ok(open), Ok(there)) if (open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// Makes a folder that only its owner can write, and those above it.
fn make_folder(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Makes a new folder that only its owner can use. It never takes one that is there, nor a link.
pub(crate) fn fresh(name: &str) -> Result<PathBuf, LinuxError> {
    let path = Path::new(FOLDER).join(name);
    let made = make_folder(Path::new(FOLDER)).and_then(|()| fs::DirBuilder::new().mode(0o700).create(&path));
    made.map_err(|e| LinuxError(format!("{}: cannot be made: {e}", path.display())))?;
    Ok(path)
}

/// The folder of a fabric.
pub fn folder(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The names of all fabrics with a stored state.
pub fn names() -> Vec<String> {
    let folders = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders
        .filter(|entry| entry.path().join("fabric.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The existing namespaces with the names that a fabric of this name would use.
pub(crate) fn namespaces(name: &str) -> Vec<String> {
    let files = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let mut found: Vec<String> = files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter(|file| {
            let node = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            node.is_some_and(|node| Node::named(node).is_some())
        })
        .collect();
    found.sort();
    found
}

/// Lets only one process at a time build or remove fabrics; the lock ends when the returned file is dropped.
pub(crate) fn lock() -> Result<File, LinuxError> {
    make_folder(Path::new(FOLDER)).map_err(|e| unlocked(Path::new(FOLDER), &e))?;
    locked(&Path::new(FOLDER).join("lock"))
}

/// Lets only one process at a time change or remove this fabric, which must be stored; the lock ends when the returned
/// file is dropped. A fabric does not wait until others are built or removed, so a fault of a run begins at its time.
pub(crate) fn lock_of(name: &str) -> Result<File, LinuxError> {
    let path = folder(name).join("lock");
    loop {
        let file = locked(&path).or_else(|error| State::standing(name).and(Err(error)))?;
        // The fabric may have been removed while this process waited: then the lock is useless.
        if is_at(&file, &path) {
            return Ok(file);
        }
    }
}

fn locked(path: &Path) -> Result<File, LinuxError> {
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(|e| unlocked(path, &e))?;
    file.lock().map_err(|e| unlocked(path, &e))?;
    Ok(file)
}

fn unlocked(path: &Path, error: &std::io::Error) -> LinuxError {
    let remedy = "run it as root: sudo strandway fabric ...";
    LinuxError(format!("{}: cannot be locked: {error}; {remedy}", path.display()))
}
