//! Comparisons, sweeps and their folders of results, by the command as a process.

use crate::cli::{Folder, SMALL};
use std::process::Command;

#[test]
fn compare_and_sweep_print_a_row_per_run() {
    let folder = Folder::new("rows");
    folder.file("a.toml", &format!("{SMALL}[sweep]\n\"profile.path\" = [\"oblivious\", \"reps\"]\n"));
    let (status, out, _) = folder.strandway(&["compare", "a.toml", "--profiles", "rocev2,uec", "--html", "c.html"]);
    assert_eq!(status, 0);
    assert!(out.contains("rocev2") && out.contains("uec"), "{out}");
    let (status, out, _) = folder.strandway(&["sweep", "a.toml", "--json", "-", "-q"]);
    assert_eq!(status, 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["rows"][1]["label"], "path=reps");
    assert_eq!(json["rows"][1]["set"]["profile.path"], "reps");
    assert_eq!(json["rows"][0]["report"]["flows"]["finished"], 8);
    assert_eq!(folder.names(), ["a.toml", "c.html"]);
}

/// The digests of the rows of a document, by label.
fn digests(json: &str) -> Vec<(String, String)> {
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
    let rows = json["rows"].as_array().expect("rows").iter();
    rows.map(|row| (text(&row["label"]), text(&row["report"]["digest"]))).collect()
}

#[test]
fn shards_of_a_sweep_give_the_rows_of_one_run() {
    let folder = Folder::new("shards");
    folder.file(
        "a.toml",
        &format!("{SMALL}[sweep]\n\"profile.path\" = [\"oblivious\", \"reps\"]\n\"run.seed\" = [1, 2]\n"),
    );
    let (status, one, err) = folder.strandway(&["sweep", "a.toml", "--json", "-", "-q"]);
    assert_eq!((status, digests(&one).len()), (0, 4), "{err}");
    for (shard, rows) in [("0/3", 2), ("1/3", 1), ("2/3", 1)] {
        let sweep = ["sweep", "a.toml", "--results", "rows", "--shard", shard, "--json", "-", "-q"];
        let (status, part, err) = folder.strandway(&sweep);
        assert_eq!((status, digests(&part).len()), (0, rows), "{err}");
    }
    let files = ["rows-0-of-3.jsonl", "rows-1-of-3.jsonl", "rows-2-of-3.jsonl"];
    let read = || files.map(|name| std::fs::read_to_string(folder.0.join("rows").join(name)).expect("a shard's rows"));
    let before = read();
    let whole = ["sweep", "a.toml", "--results", "rows", "--json", "-", "-q"];
    let (status, all, err) = folder.strandway(&whole);
    assert_eq!((status, digests(&all)), (0, digests(&one)), "{err}");
    let names = std::fs::read_dir(folder.0.join("rows")).expect("a folder").count();
    assert_eq!((read(), names), (before.clone(), 3), "nothing was run again");

    // A shard that was killed while it wrote its second row goes on with this row.
    let torn = &before[0][..before[0].len() - 1000];
    std::fs::write(folder.0.join("rows").join(files[0]), torn).expect("room");
    let (status, out, err) = folder.strandway(&["sweep", "a.toml", "--results", "rows", "--gather"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("1 of 4 runs are not in rows yet"), "{out}");
    let shard = ["sweep", "a.toml", "--results", "rows", "--shard", "0/3", "-q", "--jobs", "1"];
    assert_eq!(folder.strandway(&shard).0, 0);
    let first = before[0].find('\n').expect("a row");
    assert_eq!(read()[0][..first], before[0][..first], "the whole row is as it was");
    let (_, again, _) = folder.strandway(&[&whole[..], &["--gather"]].concat());
    assert_eq!(digests(&again), digests(&one));

    // A changed scenario is another one, a comment or another number of threads is not.
    folder.file("b.toml", &format!("# b\n{}", std::fs::read_to_string(folder.0.join("a.toml")).expect("readable")));
    let gather = |more: &[&str]| {
        let line = [&["sweep", "b.toml", "--results", "rows", "--gather", "--json", "-", "-q"], more].concat();
        digests(&folder.strandway(&line).1).len()
    };
    assert_eq!([gather(&[]), gather(&["--threads", "2"]), gather(&["--set", "workload.size=\"99 kB\""])], [4, 4, 0]);
}

#[test]
fn a_sweep_that_is_killed_goes_on_where_it_was() {
    let folder = Folder::new("killed");
    let seeds: Vec<String> = (1..=60).map(|seed| seed.to_string()).collect();
    folder.file("a.toml", &format!("{SMALL}[sweep]\n\"run.seed\" = [{}]\n", seeds.join(", ")));
    let (status, one, err) = folder.strandway(&["sweep", "a.toml", "--json", "-", "-q"]);
    assert_eq!((status, digests(&one).len()), (0, 60), "{err}");
    let sweep = ["sweep", "a.toml", "--results", "rows", "--json", "-", "-q", "--jobs", "1"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_strandway"))
        .args(sweep)
        .current_dir(&folder.0)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the command runs");
    let file = folder.0.join("rows/rows.jsonl");
    let began = std::time::Instant::now();
    while std::fs::read_to_string(&file).map_or(0, |text| text.lines().count()) < 3 {
        assert!(began.elapsed().as_secs() < 60, "no rows");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let before = std::fs::read_to_string(&file).expect("rows");
    let whole = before.rfind('\n').expect("three rows") + 1;
    let (status, again, err) = folder.strandway(&sweep);
    assert_eq!((status, digests(&again)), (0, digests(&one)), "{err}");
    let after = std::fs::read_to_string(&file).expect("rows");
    assert_eq!((&after[..whole], after.lines().count()), (&before[..whole], 60), "rows that were there are kept");
}

#[test]
fn folders_of_results_are_explained() {
    let folder = Folder::new("results");
    folder.file("a.toml", &format!("{SMALL}[sweep]\n\"run.seed\" = [1, 2]\n"));
    for (args, fragment) in [
        (&["--shard", "2/2"][..], "parts are counted from 0; write 0/2 to 1/2"),
        (&["--shard", "x"], "such as 0/3"),
        (&["--gather"], "--results <DIR>"),
        (&["--results", "a.toml"], "a.toml: cannot be used as a folder of results"),
    ] {
        let (status, _, err) = folder.strandway(&[&["sweep", "a.toml"], args].concat());
        assert!(status == 2 && err.contains(fragment), "{args:?}: {err}");
    }
    // A failure is a row until a run ends.
    assert_eq!(folder.strandway(&["sweep", "a.toml", "--results", "rows", "-q"]).0, 0);
    let file = folder.0.join("rows/rows.jsonl");
    let text = std::fs::read_to_string(&file).expect("rows");
    let mut row: serde_json::Value = serde_json::from_str(text.lines().next().expect("a row")).expect("JSON");
    let made = row.as_object_mut().expect("an object");
    made.remove("report");
    made.insert("error".into(), "no memory".into());
    let label = made["label"].as_str().expect("text").to_string();
    std::fs::write(&file, format!("{row}\n{}\n", text.lines().nth(1).expect("a second row"))).expect("room");
    let gather = ["sweep", "a.toml", "--results", "rows", "--gather", "--json", "-"];
    let (status, out, err) = folder.strandway(&gather);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(status == 1 && err.contains(&format!("{label}: no memory")), "{err}");
    assert_eq!(
        (json["failed"][0]["error"].as_str(), json["rows"].as_array().map(Vec::len)),
        (Some("no memory"), Some(1))
    );
    assert_eq!(folder.strandway(&["sweep", "a.toml", "--results", "rows", "-q"]).0, 0);
    let (status, out, _) = folder.strandway(&gather);
    assert_eq!((status, digests(&out).len()), (0, 2));
}
