//! Copies keep more of files than contents, modes and times, leave names out, and remove files at the server.

use super::support::{config, pattern, v6};
use rustix::fs::XattrFlags;
use std::fs;
use std::net::SocketAddrV6;
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use strandway_files::copy::{
    self, Allowed, CopyError, Exclude, FileError, FileNews, Happened, News, Options, Preserve, Request, Server, Summary,
};
use strandway_udp::{Config, Node};

/// A server of a folder, on a thread, until it is dropped.
struct Serving {
    address: SocketAddrV6,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    fn new(config: &Config, directory: &Path, allowed: Allowed) -> Serving {
        let mut node = Node::bind(config.clone()).expect("sockets");
        let mut server = Server::open(directory).expect("a directory").allowing(allowed);
        let address = v6(node.addresses().expect("bound")[0]);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            copy::serve(&mut node, &mut server, || stopped.load(Ordering::Relaxed), |_| {}).expect("it serves");
        });
        Serving { address, stop, thread: Some(thread) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const ALL: Allowed = Allowed { owner: true, delete: true };

/// A folder with files, and a folder that is served.
struct Pair {
    source: tempfile::TempDir,
    target: tempfile::TempDir,
    config: Config,
    serving: Serving,
}

impl Pair {
    fn new(allowed: Allowed) -> Pair {
        let (source, target) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let config = config("sdr_mds", 1);
        let serving = Serving::new(&config, target.path(), allowed);
        Pair { source, target, config, serving }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.target.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.here(name);
        fs::create_dir_all(path.parent().expect("within")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Copies the contents of the folder.
    fn copy(&self, preserve: Preserve, delete: bool, exclude: &[&str]) -> Result<(Summary, Vec<FileNews>), CopyError> {
        let options = Options { block: 64 << 10, slots: 8, limit: None, dry_run: false, preserve, delete };
        self.copy_with(&options, exclude)
    }

    fn copy_with(&self, options: &Options, exclude: &[&str]) -> Result<(Summary, Vec<FileNews>), CopyError> {
        let mut node = Node::bind(self.config.clone()).expect("sockets");
        let sources = [self.source.path().join(".")];
        let exclude = Exclude::new(exclude).expect("patterns");
        let request = Request { sources: &sources, directory: b"", options, exclude: &exclude, files: true };
        let heard = Mutex::new(Vec::new());
        let summary = copy::copy_request(
            &mut node,
            &[self.serving.address],
            &request,
            || false,
            |news| {
                if let News::File(news) = news {
                    heard.lock().expect("whole").push(news.clone());
                }
            },
        )?;
        Ok((summary, heard.into_inner().expect("whole")))
    }

    fn names(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.target.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                found.push(path.strip_prefix(self.target.path()).expect("within").display().to_string());
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

const NOTHING: Preserve = Preserve { sparse: false, hard_links: false, attributes: false, owners: false };

#[test]
fn holes_stay_holes_and_are_not_sent() {
    let pair = Pair::new(Allowed::default());
    let path = pair.write("holes", b"");
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_len(64 << 20).expect("a length");
    file.write_all_at(&pattern(1, 10_000), 5 << 20).expect("written");
    file.write_all_at(b"end", (64 << 20) - 3).expect("written");
    drop(file);
    let (summary, _) = pair.copy(Preserve { sparse: true, ..NOTHING }, false, &[]).expect("it copies");
    assert_eq!(summary.files, 1);
    assert!(summary.status.fresh_bytes < 1 << 20, "{} bytes left", summary.status.fresh_bytes);
    assert!(fs::read(&path).expect("read") == fs::read(pair.there("holes")).expect("read"));
    let blocks = fs::metadata(pair.there("holes")).expect("there").blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
    // Without the option the zeros are written.
    let pair = Pair::new(Allowed::default());
    let file = fs::File::create(pair.here("holes")).expect("a file");
    file.set_len(1 << 20).expect("a length");
    pair.copy(NOTHING, false, &[]).expect("it copies");
    assert!(fs::metadata(pair.there("holes")).expect("there").blocks() * 512 >= 1 << 20);
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    let pair = Pair::new(Allowed::default());
    let first = pair.write("a/first", &pattern(3, 200_000));
    fs::create_dir_all(pair.here("b")).expect("a folder");
    fs::hard_link(&first, pair.here("b/second")).expect("a link");
    fs::hard_link(&first, pair.here("third")).expect("a link");
    let keeps = Preserve { hard_links: true, ..NOTHING };
    let (summary, news) = pair.copy(keeps, false, &[]).expect("it copies");
    assert_eq!((summary.files, summary.links), (1, 2));
    assert_eq!(news.iter().filter(|news| news.what == Happened::Linked).count(), 2);
    let inode = |name: &str| fs::metadata(pair.there(name)).expect(name).ino();
    assert!(inode("a/first") == inode("b/second") && inode("a/first") == inode("third"));
    // Once more: nothing is sent. A name that has become another file is replaced.
    fs::remove_file(pair.there("third")).expect("removed");
    fs::write(pair.there("third"), b"other").expect("written");
    let (summary, _) = pair.copy(keeps, false, &[]).expect("it copies");
    assert_eq!((summary.files, summary.had_files, summary.failures.len()), (0, 1, 0));
    assert_eq!(inode("third"), inode("a/first"));
    // Without the option they are files of their own.
    let plain = Pair::new(Allowed::default());
    let first = plain.write("first", b"bytes");
    fs::hard_link(&first, plain.here("second")).expect("a link");
    assert_eq!(plain.copy(NOTHING, false, &[]).expect("it copies").0.files, 2);
}

#[test]
fn extended_attributes_are_kept_and_follow_later_changes() {
    let pair = Pair::new(Allowed::default());
    let path = pair.write("a/file", b"bytes");
    let set = |path: &Path, name: &str, value: &[u8]| rustix::fs::setxattr(path, name, value, XattrFlags::empty());
    if set(&path, "user.one", b"1").is_err() {
        eprintln!("this file system has no extended attributes");
        return;
    }
    set(&pair.here("a"), "user.folder", b"x\0y").expect("set");
    let keeps = Preserve { attributes: true, ..NOTHING };
    pair.copy(keeps, false, &[]).expect("it copies");
    let get = |name: &str, attribute: &str| {
        let mut value = vec![0u8; 100];
        let length = rustix::fs::getxattr(pair.there(name), attribute, &mut value).ok()?;
        value.truncate(length);
        Some(value)
    };
    assert_eq!(get("a/file", "user.one"), Some(b"1".to_vec()));
    assert_eq!(get("a", "user.folder"), Some(b"x\0y".to_vec()));
    // The contents are the same, and attributes change: nothing is sent, but they are set.
    rustix::fs::removexattr(&path, "user.one").expect("removed");
    set(&path, "user.two", b"2").expect("set");
    let (summary, _) = pair.copy(keeps, false, &[]).expect("it copies");
    assert_eq!((summary.files, summary.had_files), (0, 1));
    assert_eq!((get("a/file", "user.one"), get("a/file", "user.two")), (None, Some(b"2".to_vec())));
}

#[test]
fn owners_are_kept_if_the_server_allows_it() {
    let pair = Pair::new(ALL);
    let path = pair.write("a/file", b"bytes");
    symlink("file", pair.here("a/link")).expect("a link");
    let is_root = chown(&path, Some(1234), Some(4321)).is_ok();
    let keeps = Preserve { owners: true, ..NOTHING };
    let (summary, _) = pair.copy(keeps, false, &[]).expect("it copies");
    assert_eq!(summary.failures, []);
    let there = fs::symlink_metadata(pair.there("a/file")).expect("there");
    if is_root {
        assert_eq!((there.uid(), there.gid()), (1234, 4321));
        std::os::unix::fs::lchown(pair.here("a/link"), Some(77), Some(78)).expect("changed");
        chown(pair.here("a"), Some(5), Some(6)).expect("changed");
        fs::remove_file(pair.there("a/link")).expect("removed");
        pair.copy(keeps, false, &[]).expect("it copies");
        let of = |name: &str| fs::symlink_metadata(pair.there(name)).map(|data| (data.uid(), data.gid())).expect(name);
        assert_eq!((of("a"), of("a/link"), of("a/file")), ((5, 6), (77, 78), (1234, 4321)));
    }
    let strict = Pair::new(Allowed { delete: true, owner: false });
    strict.write("file", b"bytes");
    let said = strict.copy(keeps, false, &[]).expect_err("it is not allowed");
    assert!(matches!(said, CopyError::Refused(_, FileError::Forbidden)), "{said}");
    assert_eq!(strict.names(), Vec::<String>::new());
}

#[test]
fn files_that_are_not_here_are_removed_and_nothing_else() {
    let pair = Pair::new(ALL);
    pair.write("keep", b"1");
    pair.write("dir/keep", b"2");
    let there = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(pair.there(name).parent().expect("within")).expect("a folder");
        fs::write(pair.there(name), bytes).expect("a file");
    };
    for name in ["old", "dir/old", "gone/deep/er/file", "gone/with/save.log", "dir/save.log"] {
        there(name, b"x");
    }
    // A link out of the tree is removed itself; nothing behind it is.
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("precious"), b"x").expect("written");
    symlink(outside.path(), pair.there("way_out")).expect("a link");
    symlink(outside.path(), pair.there("gone/way_out")).expect("a link");
    let options = Options { dry_run: true, delete: true, ..Options::for_path(pair.config.rate, pair.config.base_rtt) };
    let (summary, _) = pair.copy_with(&options, &["*.log"]).expect("it looks");
    assert_eq!(summary.removed, 7);
    assert!(pair.there("gone/deep/er/file").exists(), "a dry run removes nothing");
    let (summary, news) = pair.copy(NOTHING, true, &["*.log"]).expect("it copies");
    assert_eq!(summary.removed, 7, "{news:?}");
    assert_eq!(
        pair.names(),
        ["dir", "dir/keep", "dir/save.log", "gone", "gone/with", "gone/with/save.log", "keep"],
        "names that are left out stay, with their directories"
    );
    assert!(outside.path().join("precious").exists());
    // A file that cannot be read: then nothing is removed.
    there("old", b"x");
    symlink("/nowhere", pair.here("leaves")).expect("a link");
    let (summary, _) = pair.copy(NOTHING, true, &[]).expect("it copies");
    assert!(summary.kept && summary.removed == 0 && pair.there("old").exists());
    let strict = Pair::new(Allowed::default());
    strict.write("file", b"bytes");
    let said = strict.copy(NOTHING, true, &[]).expect_err("it is not allowed");
    assert!(said.to_string().contains("--allow delete"), "{said}");
}

#[test]
fn many_names_are_listed_in_several_messages() {
    let pair = Pair::new(ALL);
    pair.write("keep", b"1");
    for i in 0..3_000 {
        fs::write(pair.there(&format!("{i}-{}", "x".repeat(60))), b"").expect("written");
    }
    let (summary, _) = pair.copy(NOTHING, true, &[]).expect("it copies");
    assert_eq!((summary.removed, pair.names()), (3_000, vec!["keep".to_string()]));
}

#[test]
fn names_are_left_out_as_rsync_does() {
    let pair = Pair::new(Allowed::default());
    for name in ["a.o", "a.c", "deep/b.o", "deep/b.c", "build/x", "deep/build/x", "cache/y", "deep/cache/z"] {
        pair.write(name, b"x");
    }
    pair.copy(NOTHING, false, &["*.o", "/build", "cache/"]).expect("it copies");
    assert_eq!(pair.names(), ["a.c", "deep", "deep/b.c", "deep/build", "deep/build/x"]);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    let pair = Pair::new(Allowed::default());
    let path = pair.write("changes", &pattern(5, 8 << 20));
    pair.write("stays", b"bytes");
    let writer = {
        let path = path.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let file = fs::File::options().write(true).open(path).expect("a file");
            let mut byte = 0u8;
            while !stopped.load(Ordering::Relaxed) {
                byte = byte.wrapping_add(1);
                file.write_all_at(&[byte], 100).expect("written");
            }
        });
        (stop, thread)
    };
    let copied = pair.copy(NOTHING, false, &[]);
    writer.0.store(true, Ordering::Relaxed);
    writer.1.join().expect("it ends");
    let (summary, news) = copied.expect("it copies");
    assert_eq!(summary.failures, [(path.clone(), FileError::Changed)]);
    assert!(news.iter().any(|news| news.path == path && news.what == Happened::Failed(FileError::Changed)));
    assert_eq!(pair.names(), ["stays"], "no half of it gets its name");
}

#[test]
fn each_file_has_its_news() {
    let pair = Pair::new(Allowed::default());
    pair.write("one", b"1");
    pair.copy(NOTHING, false, &[]).expect("it copies");
    pair.write("two", b"22");
    let (_, mut news) = pair.copy(NOTHING, false, &[]).expect("it copies");
    news.sort_by(|a, b| a.path.cmp(&b.path));
    let seen: Vec<_> = news.iter().map(|news| (news.path.clone(), news.bytes, news.what)).collect();
    assert_eq!(seen, [(pair.here("one"), 1, Happened::Had), (pair.here("two"), 2, Happened::Sent)]);
}
