//! Files that a copy or a cast reports as done are there, although every other process is killed in the same moment.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The rounds of each test.
const ROUNDS: usize = 6;

/// A directory for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    /// With a tree `here` of files, links and folders, whose modes and times are not the usual ones.
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-done-{}-{name}", std::process::id()));
        let here = path.join("here/deep/er");
        std::fs::create_dir_all(&here).expect("a folder");
        for (i, size) in [0, 1, 1_000, 70_000, 5_000_000].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            std::fs::write(here.join(format!("file{i}")), bytes).expect("a file");
        }
        std::os::unix::fs::symlink("file1", here.join("link")).expect("a link");
        Folder(path)
    }

    /// The contents of the tree that is sent.
    fn source(&self) -> String {
        format!("{}/.", self.0.join("here").display())
    }

    fn empty(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    }

    fn assert_same(&self, there: &Path) {
        let same = Command::new("diff").arg("-r").arg(self.0.join("here")).arg(there).status().expect("diff runs");
        assert!(same.success());
        let time = |path: PathBuf| std::fs::metadata(path).and_then(|data| data.modified()).expect("it is there");
        assert_eq!(time(self.0.join("here/deep/er")), time(there.join("deep/er")), "a folder is settled");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when its owner is dropped, and the place that it serves.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn new(arguments: &[&str], directory: &Path) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
        command.args(arguments).arg(directory).args(["--plane", "[::1]:0"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says where it listens");
        let at = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next()).expect("an address").to_string();
        Server { child, at }
    }

    /// SIGKILL: it does nothing more.
    fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn succeeds(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_strandway")).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_copy_that_has_succeeded_needs_its_server_no_more() {
    let folder = Folder::new("copy");
    for _ in 0..ROUNDS {
        let there = folder.empty("there");
        let mut server = Server::new(&["copy", "--serve"], &there);
        succeeds(&["copy", &folder.source(), &format!("{}:", server.at)]);
        server.kill();
        folder.assert_same(&there);
    }
}

#[test]
fn a_cast_that_has_succeeded_needs_its_receivers_no_more() {
    let folder = Folder::new("cast");
    for _ in 0..ROUNDS {
        let there = ["one", "two", "three"].map(|name| folder.empty(name));
        let mut receivers = there.each_ref().map(|there| Server::new(&["cast", "--receive"], there));
        let mut arguments = vec!["cast".to_string(), folder.source(), "--quiet".into()];
        receivers.iter().for_each(|receiver| arguments.extend(["--to".into(), receiver.at.clone()]));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        succeeds(&arguments);
        receivers.iter_mut().for_each(Server::kill);
        there.iter().for_each(|there| folder.assert_same(there));
    }
}
