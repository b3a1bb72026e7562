//! `strandway copy` as processes over loopback: messages, files that remain after a kill, full disks and read-only
//! disks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn strandway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.arg("copy").args(arguments);
    command
}

/// A directory for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-cli-copy-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("there")).expect("a folder");
        fs::create_dir_all(path.join("here")).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: usize) -> String {
        let path = self.0.join("here").join(name);
        let contents: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(&path, contents).expect("a file");
        path.display().to_string()
    }

    fn there(&self) -> PathBuf {
        self.0.join("there")
    }

    /// The length of the journal of the only copy in progress.
    fn journal(&self) -> u64 {
        let mut files = fs::read_dir(self.there()).expect("a folder").filter_map(Result::ok).map(|entry| entry.path());
        let journal = files.find(|path| path.extension().is_some_and(|end| end == "journal"));
        journal.and_then(|path| path.metadata().ok()).map_or(0, |data| data.len())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when its owner is dropped.
struct Server {
    child: Child,
    place: String,
}

impl Server {
    fn of(command: &mut Command) -> Option<Server> {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says where it listens");
        let at = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next());
        let server = Server { child, place: format!("{}:", at.unwrap_or_default()) };
        // Dropping it waits for its end.
        at.is_some().then_some(server)
    }

    fn new(directory: &Path) -> Server {
        let directory = directory.display().to_string();
        Server::of(&mut strandway(&["--serve", &directory, "--plane", "[::1]:0"])).expect("it serves")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

#[test]
fn a_directory_is_copied_and_reported_as_json() {
    let folder = Folder::new("json");
    folder.file("a", 5_000_000);
    folder.file("b", 10);
    let server = Server::new(&folder.there());
    let source = folder.0.join("here").display().to_string();
    let run = || strandway(&[&source, &format!("{}x", server.place), "--json", "-"]).output().expect("it runs");
    let first = report(&run());
    assert_eq!((first["format"].as_u64(), first["kind"].as_str()), (Some(1), Some("copy")));
    assert_eq!((first["files"]["sent"].as_u64(), first["bytes"]["sent"].as_u64()), (Some(2), Some(5_000_010)));
    assert!(first["overhead"].as_f64() > Some(1.0) && first["goodput_mbps"].as_f64() > Some(0.0), "{first}");
    let same = Command::new("diff").args(["-r", &source]).arg(folder.there().join("x/here")).status().expect("diff");
    assert!(same.success());
    let second = report(&run());
    assert_eq!((second["files"]["there"].as_u64(), second["bytes"]["sent"].as_u64()), (Some(2), Some(0)));
    // Blocks of 4 MiB past the page cache, and the rest of the file through it.
    let there = folder.there().join("direct");
    fs::create_dir(&there).expect("a folder");
    let serve = ["--serve", &there.display().to_string(), "--plane", "[::1]:0", "--direct"];
    let server = Server::of(&mut strandway(&serve)).expect("it serves");
    report(&strandway(&[&source, &server.place, "--json", "-"]).output().expect("it runs"));
    let read = |path: PathBuf| fs::read(path).expect("a file");
    assert!(read(there.join("here/a")) == read(folder.0.join("here/a")), "the same bytes");
}

#[test]
fn a_tree_is_mirrored_as_with_rsync_and_each_file_has_a_line() {
    let folder = Folder::new("mirror");
    let first = folder.file("first", 100_000);
    fs::hard_link(&first, folder.0.join("here/second")).expect("a link");
    folder.file("skip.tmp", 10);
    fs::write(folder.there().join("old"), b"x").expect("a file");
    fs::write(folder.there().join("keep.tmp"), b"x").expect("a file");
    let there = folder.there().display().to_string();
    let serve = ["--serve", &there, "--plane", "[::1]:0", "--allow", "delete"];
    let server = Server::of(&mut strandway(&serve)).expect("it serves");
    let source = folder.0.join("here/.").display().to_string();
    let patterns = folder.0.join("patterns");
    fs::write(&patterns, "# of editors\n*.tmp\n").expect("a file");
    let patterns = patterns.display().to_string();
    let arguments = [&source, &server.place, "-HS", "--delete", "--exclude-from", &patterns, "--progress"];
    let output = strandway(&arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", said(&output));
    let lines = said(&output);
    for line in ["first: sent, 100.0 kB", "second: another name of a file", "old: removed"] {
        assert!(lines.lines().any(|told| told.ends_with(line)), "{line}: {lines}");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 file(s), link(s) and directories removed"));
    let mut names: Vec<_> =
        fs::read_dir(folder.there()).expect("a folder").map(|e| e.expect("one").file_name()).collect();
    names.sort();
    assert_eq!(names, ["first", "keep.tmp", "second"]);
    let strict = Server::new(&folder.there());
    let output = strandway(&[&source, &strict.place, "--delete"]).output().expect("it runs");
    assert!(!output.status.success() && said(&output).contains("--allow delete"), "{}", said(&output));
    let output = strandway(&[&source, &strict.place, "--exclude", "[a"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn either_side_may_be_killed_and_the_same_command_goes_on() {
    const SIZE: usize = 60_000_000;
    let folder = Folder::new("killed");
    let file = folder.file("large", SIZE);
    let mut server = Server::new(&folder.there());
    let start = |place: &str| {
        strandway(&[&file, place, "--limit", "200Mbps"]).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let wait_for = |journal: u64| {
        while folder.journal() < journal {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!folder.there().join("large").exists(), "nothing half-written has the name");
    };
    // The client is killed when three blocks are in the journal.
    let mut client = start(&server.place);
    wait_for(40 + 3 * 40);
    client.kill().expect("it can be killed");
    client.wait().expect("it is dead");
    // The next client continues, and the server is killed at six blocks.
    let client = start(&server.place);
    wait_for(40 + 6 * 40);
    server.child.kill().expect("it can be killed");
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("it goes on where it stopped"), "{}", said(&output));
    assert!(!folder.there().join("large").exists(), "nothing half-written has the name");
    server = Server::new(&folder.there());
    let last = report(&strandway(&[&file, &server.place, "--json", "-"]).output().expect("it runs"));
    let number = |key: &str| last["bytes"][key].as_u64().expect("a number");
    assert!(number("resumed") >= 6 << 22, "{last}");
    assert_eq!(number("resumed") + number("sent"), SIZE as u64);
    assert!(fs::read(&file).expect("a file") == fs::read(folder.there().join("large")).expect("a file"));
    assert_eq!(fs::read_dir(folder.there()).expect("a folder").count(), 1, "no journal is left");
}

#[test]
fn unsupported_settings_are_refused_with_a_remedy() {
    let folder = Folder::new("wrong");
    let file = folder.file("file", 10);
    let there = folder.there().display().to_string();
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (arguments, status, word) in [
        (vec![&file[..]], 2, "HOST:DIR"),
        (vec![&file, "somewhere"], 2, "write it as HOST:DIR"),
        (vec!["/no/such/file", "[::1]:"], 2, "name a file or directory"),
        (vec![&file, &file, "[::1]:"], 2, "two sources have this name"),
        (vec![&file, "[fd00::1]:", "--plane", "::2"], 2, "--key FILE"),
        (vec![&file, "[::1]:", "--rate", "1 GB/s"], 2, "bits per second"),
        (vec![&file, "[::1]:", "--rtt", "50"], 2, "needs a unit"),
        (vec![&file, "[::1]:", "--profile", "tcp"], 2, "sdr_mds"),
        (vec![&file, "[::1]:9:", "--rtt", "1ms"], 1, "is a node running at that address"),
        (vec!["--serve", "/no/such/directory"], 2, "name a directory that exists"),
        (vec!["--serve", &file], 2, "name a directory that exists"),
        (vec!["--serve", &there, "--plane", "2001:db8::1", "--key", key], 1, "ip -6 addr"),
        (vec!["--serve", &there, &file, "[::1]:"], 2, "cannot be used with"),
    ] {
        let output = strandway(&arguments).output().expect("it runs");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn failed_files_are_named_the_rest_arrives_and_the_status_says_so() {
    let folder = Folder::new("some");
    folder.file("good", 10);
    let bad = folder.file("in the way", 10);
    fs::create_dir(folder.there().join("in the way")).expect("a folder");
    let server = Server::new(&folder.there());
    let source = format!("{}/.", folder.0.join("here").display());
    let output = strandway(&[&source, &server.place]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains(&format!("{bad}: the server has a directory of that name")), "{said}");
    assert!(folder.there().join("good").exists());
}

/// A server in its own mount namespace, whose directory is a small file system. `None` if that is not possible here;
/// the reason is printed.
fn server_on(options: &str, folder: &Folder) -> Option<Server> {
    let there = folder.there().display().to_string();
    let script = format!(
        "mount -t tmpfs -o {options} none '{there}' && exec '{}' copy --serve '{there}' --plane '[::1]:0'",
        env!("CARGO_BIN_EXE_strandway")
    );
    let mut unshare = Command::new("unshare");
    let server = Server::of(unshare.args(["--map-root-user", "--mount", "sh", "-c", &script]).stderr(Stdio::piped()));
    if server.is_none() {
        println!("skipped: no mount namespace can be had here");
    }
    server
}

#[test]
fn a_full_disk_ends_the_copy_and_says_what_to_do() {
    let folder = Folder::new("full");
    let small = folder.file("a small one", 1_000);
    let large = folder.file("large", 20_000_000);
    let Some(server) = server_on("size=8m", &folder) else { return };
    let output = strandway(&[&small, &large, &server.place]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(text.contains(&large) && text.contains("no space left at the server: free some"), "{text}");
    let output = strandway(&[&small, &server.place]).output().expect("it runs");
    assert!(output.status.success(), "what is large was removed again: {}", said(&output));
}

#[test]
fn a_read_only_directory_is_not_served() {
    let folder = Folder::new("read-only");
    let there = folder.there().display().to_string();
    let script = format!(
        "mount -t tmpfs -o ro none '{there}' && exec '{}' copy --serve '{there}' --plane '[::1]:0'",
        env!("CARGO_BIN_EXE_strandway")
    );
    let unshare = Command::new("unshare").args(["--map-root-user", "--mount", "sh", "-c", &script]).output();
    let Ok(output) = unshare else { return println!("skipped: there is no unshare") };
    let text = said(&output);
    if !text.contains("strandway:") {
        return println!("skipped: no mount namespace can be had here: {text}");
    }
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(&there) && text.contains("mount it writable"), "{text}");
}

#[test]
fn a_server_with_few_descriptors_copies_fewer_files_at_a_time() {
    let folder = Folder::new("few");
    for i in 0..300 {
        folder.file(&format!("file{i}"), 100 + i);
    }
    folder.file("large", 9_000_000);
    let there = folder.there().display().to_string();
    let script =
        format!("ulimit -n 40 && exec '{}' copy --serve '{there}' --plane '[::1]:0'", env!("CARGO_BIN_EXE_strandway"));
    let server = Server::of(Command::new("sh").args(["-c", &script])).expect("it serves");
    let source = format!("{}/.", folder.0.join("here").display());
    // Two clients share the descriptors.
    let clients = ["one", "two"].map(|to| {
        let place = format!("{}{to}", server.place);
        strandway(&[&source, &place]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts")
    });
    for client in clients {
        let output = client.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", said(&output));
    }
    for to in ["one", "two"] {
        let same = Command::new("diff").args(["-r", &source]).arg(folder.there().join(to)).status().expect("diff");
        assert!(same.success());
    }
}
