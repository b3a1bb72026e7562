//! Folders of files of other tools, and files that run without a scenario.

use std::path::Path;
use strandway_import::{Runnable, describe_file, runnable};

const GOAL: &str = "num_ranks 2\nrank 0 {\na: send 8b to 1 tag 3\n}\nrank 1 {\na: recv 8b from 0 tag 3\n}\n";
const MATRIX: &str = "Nodes 4\nConnections 1\n0->1 start 0 size 1000\n";

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

#[test]
fn a_folder_is_a_list_of_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    write(root, "b/matrix.cm", MATRIX);
    write(root, "a.goal", GOAL);
    write(root, "s.toml", "[fabric]\nhosts = 4\n");
    write(root, "notes.txt", "nothing that is known\n");
    write(root, ".hidden/matrix.cm", MATRIX);
    write(root, "one.0.et", "");
    write(root, "two.0.et", "");
    write(root, "two.1.et", "");
    #[cfg(unix)]
    std::os::unix::fs::symlink(root, root.join("b/again")).expect("a link");
    let said = describe_file(root).expect("a list");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 7, "{said}");
    assert_eq!(lines[0], "a.goal: a GOAL schedule (text): 2 ranks");
    assert_eq!(lines[1], "b/matrix.cm: an htsim traffic matrix: 4 hosts, 1 flows, 0 triggers");
    assert!(lines[2].starts_with("notes.txt: not read: is of no kind that is known"), "{said}");
    assert!(lines[3].starts_with("one: not read: ") && lines[5].starts_with("two: not read: "), "{said}");
    assert_eq!(lines[4], "s.toml: TOML, as scenarios are: strandway run s.toml");
    assert_eq!(lines[6], "2 of 5 files of other tools are read; `strandway import FILE` says how each is used");
    let empty = root.join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    assert!(describe_file(&empty).expect_err("empty").to_string().contains("has no files"));
}

#[test]
fn files_of_jobs_say_how_many_gpus_they_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str, text: &str| {
        write(folder.path(), name, text);
        folder.path().join(name)
    };
    let two = Some(Runnable { gpus: Some(2), needs_gpus: false });
    assert_eq!(runnable(&at("a.goal", GOAL), None).expect("sound"), two);
    assert_eq!(runnable(&at("matrix.cm", MATRIX), None).expect("sound"), None);
    assert_eq!(runnable(&at("s.toml", "[fabric]\nhosts = 4\n"), None).expect("sound"), None);
    assert_eq!(runnable(Path::new("-"), None).expect("standard input"), None);
    assert_eq!(runnable(&folder.path().join("absent"), None).expect("no file"), None);
    let workload = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0 \
        checkpoint_initiates: 0\n1\nlayer\t-1\t1000\tALLREDUCE\t4096\t1\tNONE\t0\t1\tNONE\t0\t1\n";
    let known = runnable(&at("w.txt", workload), None).expect("sound");
    assert_eq!(known, Some(Runnable { gpus: Some(8), needs_gpus: false }));
    let unknown = at("u.txt", &workload.replace(" all_gpus: 8", ""));
    for gpus in [None, Some(16)] {
        assert_eq!(runnable(&unknown, gpus).expect("sound"), Some(Runnable { gpus, needs_gpus: true }));
    }
    assert!(runnable(&at("bad.goal", "num_ranks 2\nrank 0 {\n"), None).is_err());
}
