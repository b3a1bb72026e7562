//! Copies between two nodes on loopback, over a wire that loses: trees arrive whole, interrupted copies continue, and
//! nothing is written outside of the server's directory.

use super::support::{self, config, over_ipv4, pattern, v6};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddrV6;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use strandway_files::copy::{
    self, Answer, CopyError, Entry, FileError, Kind, MESSAGE_MAX, Message, Modified, More, Options, Piece, Server,
    Status, Summary, VERSION,
};
use strandway_proto::{Rate, Span};
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Config, Connection, Node, Reason, RemoteRegion, Timeouts};

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("strandway-copy-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("within")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server on a thread, until it is dropped.
struct Serving {
    address: SocketAddrV6,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn new(config: &Config, directory: &Path) -> Serving {
        Serving::of(config, Server::open(directory).expect("a directory"))
    }

    fn of(config: &Config, mut server: Server) -> Serving {
        let mut node = Node::bind(config.clone()).expect("sockets");
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

const LOSSY: Impairment = Impairment {
    loss: 0.01,
    duplicate: 0.005,
    reorder: 0.01,
    hold: Duration::from_micros(300),
    delay: Duration::ZERO,
    corrupt: 0.001,
    mark: 0.0,
    trim: 0.0,
    widest: 0,
};

/// Small blocks, so that small files have several.
fn options() -> Options {
    Options { block: 64 << 10, slots: 8, limit: None, dry_run: false, preserve: Default::default(), delete: false }
}

fn run(
    config: &Config,
    at: SocketAddrV6,
    sources: &[PathBuf],
    options: &Options,
    stop: impl Fn() -> bool,
    each: impl FnMut(&Status),
) -> Result<Summary, CopyError> {
    let mut node = Node::bind(config.clone()).expect("sockets");
    copy::copy(&mut node, &[at], sources, b"", options, stop, each)
}

/// Kind, permissions, time of change (seconds and nanoseconds), and contents.
type Listing = (char, u32, i64, i64, Vec<u8>);

/// Everything below a folder, by its path.
fn listed(folder: &Path) -> BTreeMap<Vec<u8>, Listing> {
    let mut list = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder_here) = folders.pop() {
        for entry in fs::read_dir(&folder_here).expect("a folder") {
            let path = entry.expect("an entry").path();
            let data = path.symlink_metadata().expect("data");
            let (kind, bytes) = if data.is_dir() {
                folders.push(path.clone());
                ('d', Vec::new())
            } else if data.is_symlink() {
                ('l', path.read_link().expect("a link").into_os_string().into_vec())
            } else {
                ('f', fs::read(&path).expect("a file"))
            };
            let name = path.strip_prefix(folder).expect("within").as_os_str().as_bytes().to_vec();
            let time = if kind == 'l' { (0, 0) } else { (data.mtime(), data.mtime_nsec()) };
            list.insert(name, (kind, data.mode() & 0o777, time.0, time.1, bytes));
        }
    }
    list
}

fn tree() -> Folder {
    let folder = Folder::new();
    for (i, size) in [0, 1, 1_023, 65_535, 65_536, 65_537, 131_072, 1_000_003].into_iter().enumerate() {
        folder.file(&format!("sizes/{size}"), &pattern(i as u64, size));
    }
    for i in 0..600 {
        folder.file(&format!("many/{}/{i}", i % 7), &pattern(i, 100 + i as usize));
    }
    folder.file("name \n with anything/\u{e9}", b"x");
    fs::write(folder.0.join(std::ffi::OsStr::from_bytes(b"no\xfftext")), b"bytes").expect("a file");
    fs::create_dir(folder.0.join("empty")).expect("a folder");
    symlink("sizes/1", folder.0.join("link")).expect("a link");
    symlink("../many", folder.0.join("sizes/up")).expect("a link");
    let closed = folder.file("closed/file", b"read only");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o440)).expect("a mode");
    fs::set_permissions(folder.0.join("closed"), fs::Permissions::from_mode(0o555)).expect("a mode");
    let long_ago = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::new(12_345, 678_901_234));
    fs::File::open(folder.0.join("sizes")).expect("a folder").set_times(long_ago).expect("a time");
    folder
}

#[test]
fn a_tree_arrives_whole_over_a_wire_that_loses_and_a_second_copy_sends_nothing() {
    let source = tree();
    let wanted = listed(&source.0);
    for profile in ["sdr_mds", "sdr_nack", "uec"] {
        let target = Folder::new();
        // On a busy machine the relay may not run for seconds.
        let config = Config {
            timeouts: Timeouts { peer: Duration::from_secs(60), ..Timeouts::default() },
            ..config(profile, 1)
        };
        let server = Serving::new(&config, &target.0);
        let wire = Wire::to(server.address, LOSSY, 3).expect("sockets");
        let sources = [source.0.join(".")];
        let summary = run(&config, wire.front(), &sources, &options(), || false, |_| {}).expect("it copies");
        assert!(listed(&target.0) == wanted, "{profile}: {:?}", summary.failures);
        let files = wanted.values().filter(|entry| entry.0 == 'f').count() as u64;
        let bytes: u64 = wanted.values().filter(|entry| entry.0 == 'f').map(|entry| entry.4.len() as u64).sum();
        assert_eq!((summary.files, summary.links, summary.failures.len()), (files, 2, 0), "{profile}");
        assert_eq!((summary.status.bytes_sent, summary.status.bytes_done), (bytes, bytes), "{profile}");
        assert!(wire.counters().lost > 0 && summary.status.loss() > 0.0, "{profile}: {:?}", summary.status);
        assert!(summary.status.overhead() > 1.0, "{profile}: {:?}", summary.status);
        let again = run(&config, wire.front(), &sources, &options(), || false, |_| {}).expect("it copies");
        assert_eq!((again.files, again.had_files, again.status.bytes_sent), (0, files, 0), "{profile}");
        assert!(listed(&target.0) == wanted, "{profile}");
    }
}

#[test]
fn a_tree_arrives_whole_over_ipv4() {
    over_ipv4(a_tree_arrives_whole_over_a_wire_that_loses_and_a_second_copy_sends_nothing);
}

#[test]
fn a_directory_keeps_its_name_and_goes_where_it_is_told() {
    let source = Folder::new();
    source.file("a/b/c", b"deep");
    let one = source.file("one", b"1");
    let target = Folder::new();
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    let mut node = Node::bind(config).expect("sockets");
    let sources = [source.0.join("a"), one];
    let dry = Options { dry_run: true, ..options() };
    let copy = |node: &mut Node, directory: &[u8], options: &Options| {
        copy::copy(node, &[server.address], &sources, directory, options, || false, |_| {})
    };
    let looked = copy(&mut node, b"", &dry).expect("it looks");
    assert_eq!((looked.missing_bytes, looked.files), (5, 0));
    assert!(listed(&target.0).is_empty(), "nothing is changed");
    let summary = copy(&mut node, b"x/y", &options()).expect("it copies");
    assert_eq!((summary.files, summary.directories), (2, 2));
    assert_eq!(fs::read(target.0.join("x/y/a/b/c")).expect("a file"), b"deep");
    assert_eq!(fs::read(target.0.join("x/y/one")).expect("a file"), b"1");
    for directory in [&b"/etc"[..], b"..", b"x/../..", b"a\0"] {
        let refused = copy(&mut node, directory, &options()).expect_err("a path that leads elsewhere");
        assert!(matches!(refused, CopyError::Refused(_, FileError::BadPath)), "{refused}");
    }
    assert_eq!(node.observe().connections(), 0, "connections are closed behind a copy");
}

/// A copy that is interrupted when a part of a large file has arrived.
fn interrupted(config: &Config, at: SocketAddrV6, file: &Path, stop: impl FnMut(), whole: u64) -> CopyError {
    let slow = Options { limit: Some(Rate(100_000_000)), ..options() };
    let (enough, mut stop) = (AtomicBool::new(false), stop);
    let each = |status: &Status| {
        assert!(status.bytes_done < whole, "it is interrupted before its end");
        if status.bytes_done > whole / 4 && !enough.swap(true, Ordering::Relaxed) {
            stop();
        }
    };
    run(config, at, &[file.to_path_buf()], &slow, || false, each).expect_err("an interruption")
}

#[test]
fn a_copy_goes_on_where_its_client_or_its_server_stopped() {
    copies_go_on(false);
}

#[test]
fn a_copy_past_the_page_cache_goes_on_where_its_client_or_its_server_stopped() {
    copies_go_on(true);
}

fn copies_go_on(direct: bool) {
    const SIZE: usize = 6_000_001;
    let source = Folder::new();
    let file = source.file("large", &pattern(1, SIZE));
    let target = Folder::new();
    let config = config("sdr_mds", 1);
    let serve = || Serving::of(&config, Server::open(&target.0).expect("a directory").direct(direct));
    let mut server = Some(serve());
    let at = |server: &Option<Serving>| server.as_ref().expect("it serves").address;
    // First the client is stopped.
    let stop = AtomicBool::new(false);
    let slow = Options { limit: Some(Rate(100_000_000)), ..options() };
    let each = |status: &Status| stop.store(status.bytes_done > SIZE as u64 / 8, Ordering::Relaxed);
    let sources = [file.clone()];
    let ended = run(&config, at(&server), &sources, &slow, || stop.load(Ordering::Relaxed), each);
    assert!(matches!(ended, Err(CopyError::Stopped)), "{ended:?}");
    assert!(!target.0.join("large").exists(), "nothing half-written has the name");
    assert_eq!(listed(&target.0).len(), 2, "a partial file and its journal");
    // Then the server is stopped.
    let address = at(&server);
    let stop = || server.as_ref().expect("it serves").stop.store(true, Ordering::Relaxed);
    let ended = interrupted(&config, address, &file, stop, SIZE as u64);
    assert!(matches!(ended, CopyError::Closed(Reason::ByPeer | Reason::PeerSilent)), "{ended}");
    drop(server.take());
    assert!(!target.0.join("large").exists(), "nothing half-written has the name");
    // One block of the partial file is damaged: it must be sent again.
    let mut parts = fs::read_dir(&target.0).expect("a folder").map(|entry| entry.expect("an entry").path());
    let part = parts.find(|path| path.extension().is_some_and(|end| end == "part")).expect("a partial file");
    let mut bytes = fs::read(&part).expect("a file");
    bytes[100_000] ^= 1;
    fs::write(&part, bytes).expect("a file");
    let server = serve();
    let summary = run(&config, server.address, &[file], &options(), || false, |_| {}).expect("it copies");
    assert!(summary.resumed_bytes > SIZE as u64 / 4 - 65_536, "{summary:?}");
    assert_eq!(summary.resumed_bytes + summary.status.bytes_sent, SIZE as u64);
    assert_eq!(listed(&target.0), listed(&source.0), "the file, and no journal");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named_and_the_others_arrive() {
    let source = Folder::new();
    let changing = source.file("changing", &pattern(1, 3_000_000));
    source.file("other", b"stays");
    let target = Folder::new();
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    let slow = Options { limit: Some(Rate(60_000_000)), slots: 2, ..options() };
    let each = |_: &Status| {
        let mut bytes = fs::read(&changing).expect("a file");
        bytes.push(1);
        fs::write(&changing, bytes).expect("a file");
    };
    let summary = run(&config, server.address, &[source.0.join(".")], &slow, || false, each).expect("it copies");
    assert_eq!(summary.failures, [(changing.clone(), FileError::Changed)]);
    assert_eq!(listed(&target.0).keys().collect::<Vec<_>>(), [b"other"]);
}

#[test]
fn files_in_the_way_or_that_cannot_be_copied_are_named() {
    let source = Folder::new();
    source.file("directory", b"a file here");
    source.file("file/below", b"a directory here");
    source.file("linked/below", b"would go elsewhere");
    source.file("fine", b"new");
    symlink("/etc/passwd", source.0.join("out")).expect("a link");
    symlink("fine/../../x", source.0.join("sly")).expect("a link");
    std::os::unix::net::UnixListener::bind(source.0.join("socket")).expect("a socket");
    let (target, elsewhere) = (Folder::new(), Folder::new());
    target.file("directory/full", b"");
    target.file("file", b"");
    target.file("fine", b"old");
    symlink(&elsewhere.0, target.0.join("linked")).expect("a link");
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    let copied = run(&config, server.address, &[source.0.join(".")], &options(), || false, |_| {});
    let mut failures = copied.expect("it copies").failures;
    failures.sort();
    let expected = [
        ("directory", FileError::IsDirectory),
        ("file", FileError::NotDirectory),
        ("file/below", FileError::NotDirectory),
        ("linked", FileError::Symlink),
        ("linked/below", FileError::Symlink),
        ("out", FileError::LinkLeaves),
        ("sly", FileError::LinkLeaves),
        ("socket", FileError::Special),
    ];
    let expected = expected.map(|(name, file_error)| (source.0.join(name), file_error));
    assert_eq!(failures, expected);
    assert!(listed(&elsewhere.0).is_empty(), "nothing is written through a link");
    assert_eq!(fs::read(target.0.join("fine")).expect("a file"), b"new");
    let twice = [source.0.join("fine"), source.0.join("../").join(source.0.file_name().expect("a name")).join("fine")];
    let said = run(&config, server.address, &twice, &options(), || false, |_| {}).expect_err("one name twice");
    assert!(said.to_string().contains("two sources have this name"), "{said}");
}

/// A client that sends arbitrary messages.
struct Wild {
    node: Node,
    connection: Connection,
    memory: RemoteRegion,
    inbox: strandway_udp::Region,
}

impl Wild {
    fn new(config: &Config, at: SocketAddrV6) -> Wild {
        let mut node = Node::bind(config.clone()).expect("sockets");
        let connection = node.connect(&[at]).expect("a call");
        let inbox = node.register(vec![0; MESSAGE_MAX]);
        let memory = RemoteRegion::to_write(0, 0);
        let mut wild = Wild { node, connection, memory, inbox };
        assert!(matches!(wild.next(), Completion::Connected { .. }));
        let hello = Message::Hello { version: VERSION, block_log2: 16, slots: 4, dry_run: false, directory: vec![] };
        wild.send(&hello.encode());
        let Message::Welcome { memory, slots: 4 } = wild.receive() else { panic!("no welcome") };
        wild.memory = memory;
        wild
    }

    fn next(&mut self) -> Completion {
        loop {
            match self.node.wait(support::PATIENCE).expect("it waits").expect("something happens") {
                Completion::Sent { .. } => {}
                other => return other,
            }
        }
    }

    fn send(&mut self, message: &[u8]) {
        let region = self.node.register(message.to_vec());
        self.node.send(self.connection, region, 0..message.len()).expect("posted");
    }

    fn receive(&mut self) -> Message {
        self.node.recv(self.connection, self.inbox, 0..MESSAGE_MAX).expect("posted");
        let next = self.next();
        let Completion::Received { bytes, .. } = next else { panic!("no message: {next:?}") };
        Message::decode(&self.node.memory(self.inbox).expect("registered")[..bytes as usize]).expect("a message")
    }

    fn offer(&mut self, entries: &[(&[u8], Kind)]) -> Vec<(u32, Answer)> {
        let entry = |(i, (path, kind)): (usize, &(&[u8], Kind))| Entry {
            id: i as u32,
            path: path.to_vec(),
            mode: 0o644,
            modified: Modified::default(),
            kind: kind.clone(),
            more: More::default(),
        };
        self.send(&Message::Offer(entries.iter().enumerate().map(entry).collect()).encode());
        let Message::Answers(answers) = self.receive() else { panic!("no answers") };
        answers
    }

    fn write(&mut self, slot: u32, pieces: &[Piece<'_>]) {
        let mut parcel = Vec::new();
        pieces.iter().for_each(|piece| piece.put(&mut parcel));
        let length = parcel.len();
        let region = self.node.register(parcel);
        let slots = self.memory.bytes / 4;
        let at = u64::from(slot) * slots;
        self.node.write(self.connection, region, 0..length, self.memory, at, Some(slot)).expect("posted");
    }

    fn gets_thrown_out(mut self) -> bool {
        matches!(self.next(), Completion::Closed { .. })
    }
}

#[test]
fn a_client_with_the_key_writes_below_the_directory_and_nowhere_else() {
    let (target, elsewhere) = (Folder::new(), Folder::new());
    symlink(&elsewhere.0, target.0.join("planted")).expect("a link");
    fs::create_dir(target.0.join("folder")).expect("a folder");
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    let mut wild = Wild::new(&config, server.address);
    let absolute = elsewhere.0.join("x").into_os_string().into_vec();
    let (file, folder) = (Kind::File(1), Kind::Directory);
    let answers = wild.offer(&[
        (b"../x", file.clone()),
        (b"folder/../../x", file.clone()),
        (&absolute, file.clone()),
        (b"a\0b", file.clone()),
        (b"", folder.clone()),
        (b"..", folder.clone()),
        (b"planted/x", folder.clone()),
        (b"planted", folder.clone()),
        (b"link", Kind::Link(b"/etc".to_vec())),
        (b"link", Kind::Link(b"..".to_vec())),
        (b"folder/link", Kind::Link(b"../x/../..".to_vec())),
        (b"planted/x", file.clone()),
        (b"folder", file.clone()),
        (&[b'x'; 300], file.clone()),
        (b".strandway-0000000000000000.part", file),
    ]);
    let file_errors: Vec<FileError> = answers
        .iter()
        .map(|(_, answer)| match answer {
            Answer::Failed(file_error) => *file_error,
            other => panic!("{other:?}"),
        })
        .collect();
    use FileError::{BadPath, IsDirectory, LinkLeaves, NameTooLong, Reserved, Symlink};
    let (path, link) = (BadPath, LinkLeaves);
    let expected = [
        path,
        path,
        path,
        path,
        path,
        path,
        Symlink,
        Symlink,
        link,
        link,
        link,
        Symlink,
        IsDirectory,
        NameTooLong,
        Reserved,
    ];
    assert_eq!(file_errors, expected);
    assert!(listed(&elsewhere.0).is_empty());
    let below: Vec<_> = listed(&target.0).into_keys().collect();
    assert_eq!(below, [&b"folder"[..], b"planted"], "nothing was made");
}

#[test]
fn bytes_with_another_hash_never_get_the_name() {
    let target = Folder::new();
    target.file("file", b"what was there");
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    let mut wild = Wild::new(&config, server.address);
    assert_eq!(wild.offer(&[(b"file", Kind::File(3))]), [(0, Answer::Missing(vec![(0, 1)]))]);
    wild.write(1, &[Piece::Block { id: 0, offset: 0, bytes: b"abc" }, Piece::End { id: 0, hash: [1; 32] }]);
    let Message::Progress { freed, results, .. } = wild.receive() else { panic!("no progress") };
    assert_eq!((freed, results), (vec![1], vec![(0, Err(FileError::Mismatch))]));
    assert_eq!(listed(&target.0).len(), 1, "nothing is left of it");
    assert_eq!(fs::read(target.0.join("file")).expect("a file"), b"what was there");
}

#[test]
fn a_client_that_breaks_the_protocol_gets_thrown_out_and_the_server_serves_on() {
    let target = Folder::new();
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    let mut wild = Wild::new(&config, server.address);
    wild.send(b"nonsense");
    assert!(wild.gets_thrown_out(), "no message");
    let mut wild = Wild::new(&config, server.address);
    wild.write(0, &[Piece::End { id: 7, hash: [0; 32] }]);
    assert!(wild.gets_thrown_out(), "a file that was not offered");
    let mut wild = Wild::new(&config, server.address);
    wild.offer(&[(b"a", Kind::File(100_000))]);
    wild.write(0, &[Piece::Block { id: 0, offset: 65_536, bytes: &[0; 40_000] }]);
    assert!(wild.gets_thrown_out(), "bytes beyond the end of the file");
    let mut wild = Wild::new(&config, server.address);
    wild.offer(&[(b"a", Kind::File(100_000))]);
    wild.write(0, &[Piece::Block { id: 0, offset: 5, bytes: &[0; 65_536] }]);
    assert!(wild.gets_thrown_out(), "a block that does not begin where blocks do");
    let mut wild = Wild::new(&config, server.address);
    let entry = Entry {
        id: 1,
        path: b"b".to_vec(),
        mode: 0,
        modified: Modified::default(),
        kind: Kind::File(1),
        more: More::default(),
    };
    wild.send(&Message::Offer(vec![entry.clone(), entry]).encode());
    assert!(wild.gets_thrown_out(), "one number for two files");
    assert!(!target.0.join("a").exists());
    let source = Folder::new();
    let file = source.file("good", b"fine");
    let summary = run(&config, server.address, &[file], &options(), || false, |_| {}).expect("it copies");
    assert_eq!(summary.files, 1);
}

#[test]
fn a_server_outlives_clients_that_leave_at_once() {
    let target = Folder::new();
    let config = config("sdr_mds", 1);
    let server = Serving::new(&config, &target.0);
    for _ in 0..20 {
        let mut node = Node::bind(config.clone()).expect("sockets");
        let connection = node.connect(&[server.address]).expect("a call");
        while !matches!(node.wait(support::PATIENCE).expect("it waits"), Some(Completion::Connected { .. })) {}
        let hello = Message::Hello { version: VERSION, block_log2: 16, slots: 4, dry_run: false, directory: vec![] };
        let hello = hello.encode();
        let (length, region) = (hello.len(), node.register(hello));
        node.send(connection, region, 0..length).expect("posted");
        node.close(connection).expect("open");
    }
    let source = Folder::new();
    let file = source.file("good", b"fine");
    let summary = run(&config, server.address, &[file], &options(), || false, |_| {}).expect("it copies");
    assert_eq!(summary.files, 1);
}

#[test]
fn parcels_under_way_follow_from_the_path() {
    let slots = |gbps, ms| Options::for_path(Rate::from_gbps(gbps), Span::from_ms(ms)).slots;
    // 12.5 MB in flight are three blocks of 4 MiB.
    assert_eq!((slots(1, 100), slots(1, 1), slots(100, 100)), (9, 4, 64));
}

#[test]
fn an_older_kernel_serves_copies_just_as_safely() {
    support::run_without_features(&[
        "a_tree_arrives_whole_over_a_wire_that_loses_and_a_second_copy_sends_nothing",
        "a_copy_goes_on_where_its_client_or_its_server_stopped",
        "a_directory_keeps_its_name_and_goes_where_it_is_told",
        "files_in_the_way_or_that_cannot_be_copied_are_named",
        "a_client_with_the_key_writes_below_the_directory_and_nowhere_else",
    ]);
}
