//! Casts of real files between real nodes in one process: a sender, and receivers with threads of their own.

use super::support::{self, cast_address, config, in_multicast_namespace, over_ipv4, pattern, v6};
use std::fs;
use std::net::SocketAddrV6;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strandway_files::cast::{self, CastError, Listener, Options, Served, State, Status, Summary};
use strandway_files::copy::parts::Target;
use strandway_proto::Rate;
use strandway_proto::repair::Code;
use strandway_udp::{Config, Node};
use tempfile::TempDir;

fn two_planes(address: SocketAddrV6) -> Config {
    let mut config = config("uec", 2);
    config.planes = vec![address; 2];
    config
}

fn options() -> Options {
    let team = strandway_group::Options {
        trees: 2,
        port: 47_997,
        // Longer than a busy machine keeps a thread waiting. A test in which a receiver dies waits that long.
        patience: Duration::from_secs(6),
        ..strandway_group::Options::new(Rate::from_gbps(2))
    };
    Options { block: 1 << 16, wait: Duration::from_secs(5), ..Options::new(team) }
}

/// A new, empty folder, which is removed at the end of its test.
fn folder(name: &str) -> TempDir {
    tempfile::Builder::new().prefix(&format!("strandway-cast-{name}-")).tempdir().expect("a folder")
}

/// A receiver that serves a folder until it is told to stop, and collects its news.
struct Receiver {
    listener: Listener,
    folder: TempDir,
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<Served>>>,
    thread: Option<std::thread::JoinHandle<Result<(), CastError>>>,
}

impl Receiver {
    fn new(name: &str, folder: TempDir, delay: Duration) -> Receiver {
        Receiver::at(cast_address(), name, folder, delay)
    }

    fn at(address: SocketAddrV6, name: &str, folder: TempDir, delay: Duration) -> Receiver {
        let node = Node::bind(two_planes(address)).expect("sockets");
        let addresses = node.addresses().expect("bound").into_iter().map(v6).collect();
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let thread = {
            let (stop, told, folder) = (stop.clone(), told.clone(), folder.path().to_path_buf());
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                let target = Target::open(&folder).expect("a folder");
                cast::receive(node, target, &|| stop.load(Ordering::Relaxed), |news| {
                    told.lock().expect("no panic").push(news);
                    true
                })
            })
        };
        let listener = Listener { name: name.into(), addresses };
        Receiver { listener, folder, stop, told, thread: Some(thread) }
    }

    /// Ends it like a process that dies: it sends nothing more, and does not close its connection in time.
    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("no error");
        }
    }
}

fn send(receivers: &[Receiver], sources: &[PathBuf], options: &Options) -> Result<Summary, CastError> {
    let listeners: Vec<Listener> = receivers.iter().map(|receiver| receiver.listener.clone()).collect();
    let node = Node::bind(two_planes(cast_address())).expect("sockets");
    cast::send(node, &listeners, sources, options, &|| false, &mut |_| {})
}

/// A tree of files of many sizes.
fn tree(name: &str) -> TempDir {
    let top = folder(name);
    fs::create_dir_all(top.path().join("deep/er")).expect("folders");
    for (i, size) in [0, 1, 1_343, 1_344, 65_536, 65_537, 1_000_003].into_iter().enumerate() {
        fs::write(top.path().join(format!("file{i}")), pattern(i as u64, size)).expect("written");
    }
    fs::write(top.path().join("deep/er/small"), b"deep").expect("written");
    top
}

fn assert_same(left: &Path, right: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(path).expect("a folder").map(|entry| entry.expect("there").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(left), names(right), "{} and {}", left.display(), right.display());
    for name in names(left) {
        let (left, right) = (left.join(&name), right.join(&name));
        if left.is_dir() {
            assert_same(&left, &right);
        } else {
            assert!(fs::read(&left).expect("a file") == fs::read(&right).expect("a file"), "{}", right.display());
        }
    }
}

#[test]
fn a_tree_reaches_all_receivers_and_the_next_cast_has_nothing_to_send() {
    if !in_multicast_namespace("a_tree_reaches_all_receivers_and_the_next_cast_has_nothing_to_send") {
        return;
    }
    let source = tree("all");
    for (trusting, parity) in [(false, None), (true, None), (false, Some(Code::mds(4, 2).expect("6 pieces")))] {
        let mut receivers: Vec<Receiver> =
            (0..3).map(|i| Receiver::new(&format!("r{i}"), folder(&format!("all-r{i}")), Duration::ZERO)).collect();
        // One of them has a part of the files already.
        fs::create_dir_all(receivers[1].folder.path().join("all-0")).expect("a folder");
        let sources = [source.path().join(".")];
        let mut options = Options { trusting, ..options() };
        options.team.parity = parity;
        let summary = send(&receivers, &sources, &options).expect("it works");
        assert_eq!(summary.passes, 1);
        assert!(summary.failures.is_empty() && summary.unread.is_empty(), "{summary:?}");
        for receiver in &receivers {
            let at = receiver.folder.path();
            let _ = fs::remove_dir(at.join("all-0"));
            assert_same(source.path(), at);
        }
        assert!(summary.status.receivers.iter().all(|r| r.state == State::Done && r.files == 8), "{summary:?}");
        assert!(summary.status.cast_bytes < 2 * summary.status.bytes, "each byte is cast once");
        let again = send(&receivers, &sources, &options).expect("it works");
        assert_eq!((again.status.cast_bytes, again.missing_bytes), (0, 0));
        for receiver in &mut receivers {
            receiver.end();
            let told = receiver.told.lock().expect("no panic").clone();
            assert_eq!(told.iter().filter(|news| matches!(news, Served::Over { .. })).count(), 2, "{told:?}");
        }
    }
}

#[test]
fn a_tree_reaches_all_receivers_over_ipv4() {
    over_ipv4(a_tree_reaches_all_receivers_and_the_next_cast_has_nothing_to_send);
}

#[test]
fn a_cast_steps_over_a_taken_port_and_needs_none_without_multicast() {
    if !in_multicast_namespace("a_cast_steps_over_a_taken_port_and_needs_none_without_multicast") {
        return;
    }
    let source = tree("taken");
    let mut receivers: Vec<Receiver> =
        (0..2).map(|i| Receiver::new(&format!("r{i}"), folder(&format!("taken-r{i}")), Duration::ZERO)).collect();
    let take = |port: u16| std::net::UdpSocket::bind(("::", port)).expect("a free port");
    let mut others = vec![take(47_997)];
    let summary = send(&receivers, &[source.path().join(".")], &options()).expect("it works");
    assert_eq!(summary.status.planes, 0b11);
    receivers.iter().for_each(|receiver| assert_same(source.path(), receiver.folder.path()));
    others.extend((47_998..47_997 + strandway_group::Options::PORTS).map(take));
    let error = send(&receivers, &[source.path().join("file3")], &options()).expect_err("no port is left").to_string();
    assert!(error.contains("UDP ports 47997 to 48012 are taken"), "{error}");
    let mut without = options();
    without.team.no_multicast = true;
    let summary = send(&receivers, &[source.path().join("file4")], &without).expect("it works");
    assert_eq!((summary.status.planes, summary.status.receivers[1].state.clone()), (0, State::Done));
    receivers.iter_mut().for_each(Receiver::end);
}

#[test]
fn members_that_lack_a_part_get_it_and_the_others_keep_theirs() {
    if !in_multicast_namespace("members_that_lack_a_part_get_it_and_the_others_keep_theirs") {
        return;
    }
    let source = tree("part");
    let mut receivers: Vec<Receiver> =
        (0..2).map(|i| Receiver::new(&format!("r{i}"), folder(&format!("part-r{i}")), Duration::ZERO)).collect();
    send(&receivers, &[source.path().join(".")], &options()).expect("it works");
    fs::remove_file(receivers[1].folder.path().join("file5")).expect("there");
    let summary = send(&receivers, &[source.path().join(".")], &options()).expect("it works");
    assert_eq!(summary.missing_bytes, 65_537);
    assert_eq!(summary.status.receivers.iter().map(|r| r.files).collect::<Vec<_>>(), [0, 1]);
    receivers.iter().for_each(|receiver| assert_same(source.path(), receiver.folder.path()));
    receivers.iter_mut().for_each(Receiver::end);
}

#[test]
fn a_receiver_that_comes_late_has_everything_in_the_end() {
    if !in_multicast_namespace("a_receiver_that_comes_late_has_everything_in_the_end") {
        return;
    }
    let source = folder("late");
    fs::write(source.path().join("large"), pattern(5, 3_000_000)).expect("written");
    let mut receivers = vec![
        Receiver::new("early", folder("late-early"), Duration::ZERO),
        Receiver::new("late", folder("late-late"), Duration::from_millis(1_200)),
    ];
    // At 16 Mb/s three megabytes take one and a half seconds.
    let mut options = options();
    options.team.rate = Rate(16_000_000);
    options.wait = Duration::from_millis(200);
    let summary = send(&receivers, &[source.path().join(".")], &options).expect("it works");
    assert_eq!(summary.passes, 2, "{summary:?}");
    receivers.iter().for_each(|receiver| assert_same(source.path(), receiver.folder.path()));
    receivers.iter_mut().for_each(Receiver::end);
}

#[test]
fn a_receiver_that_dies_is_left_behind_and_goes_on_the_next_time() {
    if !in_multicast_namespace("a_receiver_that_dies_is_left_behind_and_goes_on_the_next_time") {
        return;
    }
    let source = folder("dies");
    fs::write(source.path().join("large"), pattern(5, 3_000_000)).expect("written");
    let mut receivers: Vec<Receiver> =
        (0..3).map(|i| Receiver::new(&format!("r{i}"), folder(&format!("dies-r{i}")), Duration::ZERO)).collect();
    let mut slow = options();
    slow.team.rate = Rate(16_000_000);
    let listeners: Vec<Listener> = receivers.iter().map(|receiver| receiver.listener.clone()).collect();
    let node = Node::bind(two_planes(cast_address())).expect("sockets");
    // The receiver dies when it has a part of the bytes, however slow the machine is.
    let mut dies = |status: &Status| {
        if status.cast_bytes > 1_000_000 {
            receivers[1].stop.store(true, Ordering::Relaxed);
        }
    };
    let summary = cast::send(node, &listeners, &[source.path().join(".")], &slow, &|| false, &mut dies);
    let told: Vec<Vec<Served>> = receivers.iter().map(|r| r.told.lock().expect("no panic").clone()).collect();
    let summary = summary.unwrap_or_else(|error| panic!("the others go on, but: {error}; receivers: {told:?}"));
    let states: Vec<bool> = summary.status.receivers.iter().map(|r| r.state == State::Done).collect();
    assert_eq!(states, [true, false, true], "{summary:?}");
    assert_same(source.path(), receivers[0].folder.path());
    assert_same(source.path(), receivers[2].folder.path());
    receivers[1].end();
    let left = receivers.remove(1).folder;
    assert!(!left.path().join("large").exists(), "nothing has its name before it is whole");
    receivers.insert(1, Receiver::new("r1", left, Duration::ZERO));
    let summary = send(&receivers, &[source.path().join(".")], &options()).expect("it works");
    assert!(summary.missing_bytes > 0 && summary.missing_bytes < 3_000_000, "it goes on where it was: {summary:?}");
    receivers.iter().for_each(|receiver| assert_same(source.path(), receiver.folder.path()));
    receivers.iter_mut().for_each(Receiver::end);
}

#[test]
fn receivers_that_do_not_answer_are_named() {
    if !in_multicast_namespace("receivers_that_do_not_answer_are_named") {
        return;
    }
    let source = tree("nobody");
    let listener = Listener { name: "h9".into(), addresses: vec!["[fd00::1]:9".parse().expect("an address"); 2] };
    let node = Node::bind(two_planes(cast_address())).expect("sockets");
    let options = Options { wait: Duration::from_millis(300), ..options() };
    let error = cast::send(node, &[listener], &[source.path().into()], &options, &|| false, &mut |_| {})
        .expect_err("no receiver answers");
    assert!(matches!(&error, CastError::Nobody(reasons) if reasons[0].0 == "h9"), "{error}");
}

#[test]
fn where_nothing_carries_multicast_receivers_pass_chunks_on() {
    // Loopback carries no multicast, and needs no privilege.
    let source = tree("chain");
    let receiver =
        |i: u32| Receiver::at(support::local(), &format!("r{i}"), folder(&format!("chain-r{i}")), Duration::ZERO);
    let mut receivers: Vec<Receiver> = (0..3).map(receiver).collect();
    let listeners: Vec<Listener> = receivers.iter().map(|receiver| receiver.listener.clone()).collect();
    let node = Node::bind(two_planes(support::local())).expect("sockets");
    let summary =
        cast::send(node, &listeners, &[source.path().join(".")], &options(), &|| false, &mut |_| {}).expect("it works");
    assert_eq!((summary.status.planes, summary.passes), (0, 1), "{summary:?}");
    receivers.iter().for_each(|receiver| assert_same(source.path(), receiver.folder.path()));
    receivers.iter_mut().for_each(Receiver::end);
}
