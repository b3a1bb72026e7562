//! The command as a process: its output, its files, and its exit status.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use strandway_proto::Profile;

pub(crate) const SMALL: &str = "[fabric]\nhosts = 8\nhosts_per_leaf = 4\n[workload]\nsize = \"100 kB\"\n";

/// A directory for one test, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        // Tests run at the same time in one process, and two of them may choose the same name.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("strandway-cli-{name}-{}-{made}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("writable");
        name.to_string()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("readable");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn strandway(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_strandway"))
            .args(args)
            .current_dir(&self.0)
            .output()
            .expect("the command runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (status.code().expect("not killed"), text(stdout), text(stderr))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_run_prints_tables_and_writes_what_is_asked_for() {
    let folder = Folder::new("run");
    folder.file("a.toml", SMALL);
    let (status, out, err) = folder.strandway(&[
        "run",
        "a.toml",
        "--json",
        "a.json",
        "--html",
        "a.html",
        "--markdown",
        "a.md",
        "--pcap",
        "a.pcap",
        "--seed",
        "7",
    ]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("8 of 8 flows finished") && out.contains("packet hops at"), "{out}");
    assert_eq!(folder.names(), ["a.html", "a.json", "a.md", "a.pcap", "a.toml"]);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.0.join("a.json")).expect("readable")).expect("JSON");
    assert_eq!(json["seed"], 7);
}

#[test]
fn json_on_standard_output_is_nothing_but_json() {
    let folder = Folder::new("stdout");
    folder.file("a.toml", SMALL);
    let (status, out, err) = folder.strandway(&["run", "a.toml", "--json", "-"]);
    assert_eq!(status, 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON and nothing else");
    assert_eq!(json["format"], 1);
    assert!(err.contains("flows finished"), "the human reads standard error");
    let (_, again, quiet) = folder.strandway(&["run", "a.toml", "--json", "-", "--quiet", "--threads", "2"]);
    let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!((&again["digest"], quiet.as_str()), (&json["digest"], ""));
}

#[test]
fn the_exit_status_tells_what_happened() {
    let folder = Folder::new("status");
    folder.file("good.toml", SMALL);
    folder.file("missed.toml", &format!("{SMALL}[expect]\n\"fct_us.max\" = \"< 1\"\n"));
    folder.file("typo.toml", "[fabric]\nhots = 8\nrate = \"400\"\n");
    let cut = "[[faults]]\nswitch = \"leaf0\"\nkind = \"down\"\nsilent = true\n[run]\ntime_limit = \"1 ms\"\n";
    folder.file("cut.toml", &format!("{SMALL}{cut}"));
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["run", "good.toml"], 0, &[]),
        (&["run", "cut.toml"], 1, &["flows finished; the run ended with \"time limit\""]),
        (&["run", "typo.toml"], 2, &["fabric.hots = 8: unknown key; did you mean `hosts`?", "fabric.rate = \"400\""]),
        (&["run", "none.toml"], 2, &["none.toml: cannot be read"]),
        (&["run", "."], 2, &["is neither a file nor a pipe"]),
        (&["run", "good.toml", "--set", "fabric.hots=9"], 2, &["unknown key"]),
        (&["run", "good.toml", "--set", "nonsense"], 2, &["needs a key and a value"]),
        (&["run", "good.toml", "--threads", "0"], 2, &["run.threads = 0: must be at least 1"]),
        (&["run", "good.toml", "--seed", "-1"], 2, &["unexpected argument"]),
        (&["run", "good.toml", "--seed", "x"], 2, &["invalid value 'x'"]),
        (&["run", "good.toml", "--html", "none/a.html"], 2, &["--html none/a.html: cannot be written"]),
        (&["run", "good.toml", "--json", "."], 2, &["--json .: cannot be written"]),
        (&["run", "good.toml", "--pcap", "/proc/a.pcap"], 2, &["--pcap /proc/a.pcap: cannot be written"]),
        (&["run"], 2, &["<SCENARIO>"]),
        (&["explian", "uec"], 2, &["explain"]),
        (&["run", "missed.toml"], 3, &["expected fct_us.max < 1, got"]),
        (&["compare", "good.toml", "--profiles", "uec,uex"], 2, &["`uex` is no profile; did you mean `uec`?"]),
        (&["compare", "missed.toml", "--profiles", "uec"], 3, &["uec: expected fct_us.max < 1"]),
        (&["sweep", "good.toml"], 2, &["there is nothing to sweep"]),
        (&["explain", "nothing"], 2, &["`nothing` has no explanation"]),
        (&["explain", "job.recomputed"], 2, &["has no explanation", "recompute"]),
    ];
    for (args, wanted, fragments) in cases {
        let (status, out, err) = folder.strandway(args);
        assert_eq!(status, *wanted, "{args:?}: {err}");
        for fragment in *fragments {
            assert!(err.contains(fragment), "{args:?}: {err}");
        }
        assert!(status != 2 || out.is_empty(), "{args:?}: nothing is printed: {out}");
    }
    assert_eq!(folder.names(), ["cut.toml", "good.toml", "missed.toml", "typo.toml"], "nothing half-written is left");
}

#[test]
fn a_search_prints_the_worst_failures_and_writes_them() {
    let folder = Folder::new("search");
    folder.file("order.txt", "0\n1\n4\n5\n");
    let job = "[fabric]\nhosts = 12\nhosts_per_leaf = 4\nspines = 1\n\
               [workload]\nkind = \"all-reduce\"\nsize = \"1 MB\"\nplacement = \"order.txt\"\n";
    folder.file("a.toml", job);
    let (status, out, err) =
        folder.strandway(&["search", "a.toml", "--moments", "1", "--out", "worst", "--json", "a.json", "--top", "3"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("2 of 3 parts tried in 4 runs: 2 classes") && out.contains("does not end"), "{out}");
    assert!(err.contains("2 of 3 links (4 runs)"), "{err}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.0.join("a.json")).expect("readable")).expect("JSON");
    assert_eq!((&json["steps"][0]["failures"][0]["alike"], json["format"].as_u64()), (&2.into(), Some(1)));
    let mut names: Vec<String> = std::fs::read_dir(folder.0.join("worst"))
        .expect("made")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let wanted =
        ["01-leaf0-spine0-visible.toml", "02-leaf0-spine0-silent.toml", "03-leaf2-spine0-visible.toml", "order.txt"];
    assert_eq!(names, wanted);
    // A folder keeps the runs: the same search repeats none, and goes on after the end of the process.
    let again = ["search", "a.toml", "--moments", "1", "--results", "runs", "--html", "a.html", "--top", "3"];
    let kept = folder.0.join("runs/rows.jsonl");
    let lines = || std::fs::read_to_string(&kept).expect("kept").lines().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(folder.strandway(&again).1, out);
    let whole = lines();
    assert_eq!(whole.len(), 1 + 4);
    assert_eq!((folder.strandway(&again).1, lines().len()), (out.clone(), whole.len()));
    std::fs::write(&kept, whole[..2].join("\n") + "\n").expect("room");
    assert_eq!((folder.strandway(&again).1, lines().len()), (out.clone(), whole.len()));
    let page = std::fs::read_to_string(folder.0.join("a.html")).expect("a page");
    assert!(page.contains("Where failures hurt") && page.contains("leaf2 - spine0"), "{page:.300}");
    // They run where they are: one does not end, the harmless one meets its bound.
    let (status, _, err) = folder.strandway(&["run", "worst/01-leaf0-spine0-visible.toml"]);
    assert!(status == 1 && err.contains("time limit"), "{err}");
    assert_eq!(folder.strandway(&["run", "worst/03-leaf2-spine0-visible.toml", "-q"]).0, 0);
    for (args, fragment) in [
        (&["--what", "cables"][..], "possible values: links, ports, switches"),
        (&["--at", "5"], "a time needs a unit"),
        (&["--give-up", "1"], "write a number above 1"),
        (&["--value", "fct_us.p98"], "is no value of this scenario's report"),
        (&["--out", "a.toml"], "--out a.toml: cannot be made"),
    ] {
        let (status, _, err) = folder.strandway(&[&["search", "a.toml"], args].concat());
        assert!(status == 2 && err.contains(fragment), "{args:?}: {err}");
    }
}

#[test]
fn explain_teaches() {
    let folder = Folder::new("explain");
    folder.file("a.toml", SMALL);
    for (args, fragments) in [
        (&["explain"][..], &["rocev2", "nscc", "bitmap", "websearch"][..]),
        (&["explain", "uec"], &["[profile.nscc]", "gamma", "source:", "[profile.transport]"]),
        (&["explain", "reps"], &["[profile.reps]"]),
        (&["explain", "job"], &["[job]\n", "  recompute\n", "default: `\"none\"`", "micro_batches"]),
        (
            &["explain", "iterations"],
            &["[workload], Jobs with sharded layers", "[job]", "[workload], Sums in switches"],
        ),
        (&["explain", "switch"], &["[profile.switch]", "[switch]\n"]),
        (&["explain", "fabric"], &["[fabric], Sites and long links", "hosts_per_leaf", "of: leaf-spine, multi-plane"]),
        (&["explain", "fabric", "a.toml"], &["base RTT", "BDP", "data queue of a port", "ECN"]),
        (&["--help"], &["strandway run my-matrix.cm", "Exit status"]),
        (&["run", "--help"], &["Examples:", "--pcap"]),
    ] {
        let (status, out, err) = folder.strandway(args);
        assert_eq!(status, 0, "{err}");
        for fragment in fragments {
            assert!(out.contains(fragment), "{args:?}: {out}");
        }
    }
}

#[test]
fn the_showcase_runs_alone_and_writes_its_page() {
    let folder = Folder::new("showcase");
    let (status, out, err) = folder.strandway(&[]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("What next") && out.contains("times sooner than rocev2"), "{out}");
    assert_eq!(folder.names(), ["strandway-showcase.html"]);
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_writes_what_it_measured() {
    let folder = Folder::new("interrupt");
    // Enough traffic for minutes, so that the interrupt arrives before the end on any machine.
    folder.file("long.toml", "[fabric]\nhosts = 64\n[workload]\nsize = \"100 GB\"\n[run]\ntime_limit = \"1000 s\"\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_strandway"))
        .args(["run", "long.toml", "--json", "a.json", "--quiet"])
        .current_dir(&folder.0)
        .spawn()
        .expect("the command runs");
    std::thread::sleep(std::time::Duration::from_millis(700));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(1));
    let json = std::fs::read(Path::new(&folder.0).join("a.json")).expect("the report is there");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["end"], "interrupted");
    assert!(json["packets"]["delivered"].as_u64().is_some_and(|n| n > 0));
}

#[test]
fn the_model_names_the_best_scheme_for_a_link() {
    let folder = Folder::new("model");
    let (status, out, err) = folder.strandway(&["model", "sdr", "--scheme", "sr_rto", "--scheme", "mds:32,8"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("Best by mean: MDS(32,8), 70 % ahead of SR-RTO"), "{out}");

    let vary = ["model", "sdr", "--vary", "loss", "--values", "1e-6,3%", "--json", "-", "--html", "a.html"];
    let (status, out, _) = folder.strandway(&vary);
    assert_eq!(status, 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON and nothing else");
    assert_eq!((&json["format"], &json["vary"]), (&1.into(), &"loss".into()));
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!((&rows[1]["at"], &rows[1]["value"]), (&"3%".into(), &0.03.into()));
    assert_eq!(rows[1]["best_p999"]["scheme"], "MDS(32,16)");
    let page = std::fs::read_to_string(folder.0.join("a.html")).expect("a page");
    let headline = "By p99.9: MDS(32,2) is best at 1e-6; MDS(32,16) is best at 3%";
    assert!(page.contains(headline), "a headline");

    for (args, fragment) in [
        (&["--size", "5"][..], "--size 5: a size needs a unit; write \"5 MB\""),
        (&["--scheme", "rs:3,2"], "write mds:K,M or xor:K,M"),
        (&["--rtt", "1ms", "--distance", "1km"], "cannot be used with"),
        (&["--values", "1"], "--vary"),
    ] {
        let (status, _, err) = folder.strandway(&[&["model", "sdr"], args].concat());
        assert_eq!(status, 2, "{err}");
        assert!(err.contains(fragment), "{err}");
    }
}

#[test]
fn reproduce_judges_rows_and_ends_with_their_verdict() {
    let folder = Folder::new("reproduce");
    let (status, out, err) = folder.strandway(&["reproduce", "test", "--json", "-"]);
    assert_eq!(status, 3);
    assert!(err.contains("1 of 4 rows was missed: test/missed"), "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON and nothing else");
    assert_eq!(json["format"], 1);
    let rows = json["rows"].as_array().expect("rows");
    let verdicts: Vec<&str> = rows.iter().map(|r| r["verdict"].as_str().expect("a word")).collect();
    assert_eq!(verdicts, ["met", "missed", "unknown", "met"]);
    assert_eq!((rows[2]["published"].is_null(), rows[2]["tolerance"].is_null()), (true, true));
    assert_eq!(rows[0]["command"], "strandway reproduce test --only met");
    let kinds: Vec<&str> = rows.iter().map(|r| r["kind"].as_str().expect("a word")).collect();
    assert_eq!(kinds, ["relation", "relation", "study", "relation"]);
    assert_eq!(rows[0]["seeds"].as_array().map(Vec::len), Some(2));

    let (status, out, err) =
        folder.strandway(&["reproduce", "test", "--only", "test/met", "--html", "a.html", "--jobs", "1"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("test/met") && out.contains("1 met, 0 missed"), "{out}");
    let page = std::fs::read_to_string(folder.0.join("a.html")).expect("a page");
    assert!(page.contains("strandway reproduce test --only met") && !page.contains("http"), "a page without network");
}

#[test]
fn shells_complete_commands_and_man_has_a_page_for_each() {
    let folder = Folder::new("setup");
    for (shell, word) in
        [("bash", "strandway__subcmd__reproduce"), ("zsh", "_strandway__subcmd__reproduce"), ("fish", "reproduce")]
    {
        let (status, out, err) = folder.strandway(&["completions", shell]);
        assert!(status == 0 && err.is_empty() && out.contains(word), "{shell}: {err}");
        assert!(out.contains("rocev2_sr"), "{shell} completes profiles");
        // For fish, no words of a command are generated, only its options.
        assert!(shell == "fish" || out.contains("websearch"), "{shell} completes names for `explain`");
    }
    let (status, out, _) = folder.strandway(&["man"]);
    assert!(status == 0 && out.starts_with(".ie") && out.contains("packet by packet"), "{out}");
    let (status, out, err) = folder.strandway(&["man", "--into", "pages"]);
    assert_eq!((status, out.as_str(), err.as_str()), (0, "", ""));
    let page = |name: &str| std::fs::read_to_string(folder.0.join("pages").join(name)).unwrap_or_default();
    assert!(page("strandway-run.1").contains("scenario"));
    assert!(page("strandway-fabric-up.1").contains("routers"));
}

#[test]
fn a_page_holds_the_tables_of_reproduce_and_tells_which_rows_have_turned() {
    let folder = Folder::new("page");
    let marker = |which: &str, name: &str| format!("<!-- {which}: strandway reproduce {name} -->\n");
    let pair = |name: &str| marker("begin", name) + &marker("end", name);
    let page = folder.0.join("page.md");
    std::fs::write(&page, "# Mine\n").expect("a page");
    let (status, _, err) = folder.strandway(&["reproduce", "test", "--markdown", "page.md"]);
    assert!(status == 2 && err.contains("page.md: the page has no place for `test`; add two lines"), "{err}");
    std::fs::write(&page, format!("# Mine\n\n{}\n{}\nMy words.\n", pair("counts"), pair("test"))).expect("a page");
    let (status, _, err) = folder.strandway(&["reproduce", "test", "--markdown", "page.md"]);
    assert_eq!(status, 3, "{err}");
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(
        text.contains("| `test/missed` | ") && text.contains("| `test` | 2 | 1 | 0 |") && text.ends_with("My words.\n"),
        "{text}"
    );
    let (status, _, err) = folder.strandway(&["reproduce", "test", "--against", "page.md"]);
    assert_eq!((status, err.as_str()), (0, ""), "nothing has turned");
    std::fs::write(&page, text.replace("| missed |", "| met |")).expect("a page");
    let (status, _, err) = folder.strandway(&["reproduce", "test", "--against", "page.md"]);
    assert!(
        status == 3 && err.contains("1 of 4 rows are not as page.md has them") && err.contains("test/missed"),
        "{err}"
    );
    let (status, json, _) = folder.strandway(&["reproduce", "test", "--json", "-"]);
    std::fs::write(folder.0.join("done.json"), &json).expect("a file");
    let (status_again, again, _) = folder.strandway(&["reproduce", "test", "--from", "done.json", "--json", "-"]);
    assert_eq!((status, &json), (status_again, &again), "judged again without a run");
    let (status, _, err) = folder.strandway(&["reproduce", "test", "--from", "page.md"]);
    assert!(status == 2 && err.contains("page.md: not a file of `strandway reproduce --json`"), "{err}");
    let (status, _, err) = folder.strandway(&["reproduce", "test", "--from", "done.json", "--json", "done.json"]);
    assert!(status == 2 && err.contains("would replace a file that this command reads"), "{err}");
    let (status, out, _) = folder.strandway(&["reproduce", "test", "--only", "met", "--markdown", "-"]);
    assert!(status == 2 && out.is_empty(), "a page has whole sets");
}

#[test]
fn reproduce_names_what_there_is() {
    let folder = Folder::new("reproduce-list");
    let (status, out, _) = folder.strandway(&["reproduce", "--list"]);
    assert_eq!(status, 0);
    let names: Vec<&str> = out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(
        names,
        ["strack", "prime", "mrc", "sdr_rdma", "mcast_allgather", "esa", "nccl", "shootout", "uec", "ns3"]
    );
    for (args, fragment) in [
        (&["reproduce", "strak"][..], "did you mean `strack`?"),
        (&["reproduce", "prime", "--only", "nothing"], "no row matches"),
        (&["reproduce", "strack", "--only", "h1/8192/*"], "add --full"),
    ] {
        let (status, _, err) = folder.strandway(args);
        assert_eq!(status, 2, "{err}");
        assert!(err.contains(fragment), "{err}");
    }
}

#[test]
fn no_output_replaces_an_input() {
    let folder = Folder::new("inputs");
    folder.file("a.toml", "[workload]\nkind = \"matrix\"\nfile = \"m.cm\"\n");
    let matrix = "Nodes 16\nConnections 1\n0->13 id 1 start 0 size 20000\n";
    folder.file("m.cm", matrix);
    std::os::unix::fs::symlink("a.toml", folder.0.join("link.toml")).expect("a link");
    for args in [
        ["run", "a.toml", "--markdown", "a.toml"],
        ["run", "a.toml", "--json", "./a.toml"],
        ["run", "a.toml", "--html", "m.cm"],
        ["run", "m.cm", "--pcap", "m.cm"],
        ["run", "link.toml", "--flows", "a.toml"],
        ["sweep", "a.toml", "--json", "a.toml"],
        ["compare", "a.toml", "--html", "m.cm"],
    ] {
        let mut args = args.to_vec();
        args.extend(if args[0] == "sweep" { &["--set", "sweep.run.seed=[1, 2]"][..] } else { &[] });
        let (status, _, err) = folder.strandway(&args);
        assert_eq!(status, 2, "{args:?}: {err}");
        assert!(err.contains("would replace a file that this command reads"), "{args:?}: {err}");
        assert_eq!(std::fs::read_to_string(folder.0.join("m.cm")).expect("still there"), matrix, "{args:?}");
    }
    let (status, _, err) = folder.strandway(&["run", "a.toml", "--json", "x", "--html", "./x"]);
    assert_eq!(status, 2);
    assert!(err.contains("--html ./x: --json writes there already"), "{err}");
    assert_eq!(folder.names(), ["a.toml", "link.toml", "m.cm"]);
}

#[test]
fn any_document_goes_to_standard_output() {
    let folder = Folder::new("stdout");
    folder.file("a.toml", SMALL);
    for (flag, start) in [("--json", "{"), ("--html", "<!doctype html>"), ("--markdown", "# "), ("--flows", "flow,id,")]
    {
        let (status, out, err) = folder.strandway(&["run", "a.toml", flag, "-"]);
        assert_eq!(status, 0, "{err}");
        assert!(out.starts_with(start), "{flag}: {out}");
        assert!(err.contains("8 of 8 flows finished"), "tables go to standard error: {err}");
    }
    assert_eq!(folder.names(), ["a.toml"]);
}

#[test]
fn scenarios_and_matrices_come_from_pipes() {
    use std::io::Write;
    use std::process::Stdio;
    for text in [SMALL, "Nodes 16\nConnections 1\n0->13 id 1 start 0 size 20000\n"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_strandway"))
            .args(["run", "-", "--json", "-", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
        let out = child.wait_with_output().expect("ended");
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(json["end"], "finished", "{text}");
    }
}

#[test]
fn sigterm_ends_a_run_with_its_report() {
    use std::time::{Duration, Instant};
    let folder = Folder::new("term");
    folder.file("long.toml", "[fabric]\nhosts = 256\n[workload]\nsize = \"4 GB\"\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_strandway"))
        .args(["run", "long.toml", "--quiet", "--force", "--json", "out.json"])
        .current_dir(&folder.0)
        .spawn()
        .expect("the command runs");
    std::thread::sleep(Duration::from_secs(1));
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "SIGTERM does not end the run");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(1));
    let json = std::fs::read_to_string(folder.0.join("out.json")).expect("a report");
    assert!(json.contains("\"end\": \"interrupted\""), "{json}");
}

#[test]
fn an_estimate_runs_nothing_and_memory_has_an_end() {
    let folder = Folder::new("estimate");
    folder.file("huge.toml", "[fabric]\nhosts = 131072\n[workload]\nsize = \"1 TB\"\n");
    let (status, out, err) = folder.strandway(&["run", "huge.toml", "--estimate"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("packet hops") && out.contains("of memory") && out.contains("days"), "{out}");
    // With a memory limit that is too low for the fabric, runs are refused with both numbers instead of being killed.
    for command in ["run huge.toml", "compare huge.toml --profiles uec"] {
        let limited = Command::new("sh")
            .args(["-c", &format!("ulimit -v 700000; exec \"$0\" {command} --quiet"), env!("CARGO_BIN_EXE_strandway")])
            .current_dir(&folder.0)
            .output()
            .expect("the command runs");
        let err = String::from_utf8_lossy(&limited.stderr).into_owned();
        assert_eq!(limited.status.code(), Some(1), "{command}: {err}");
        assert!(err.contains("the run needs about") && err.contains("are available"), "{command}: {err}");
    }
}

#[test]
fn every_name_that_is_listed_has_an_explanation() {
    let folder = Folder::new("explain");
    let (_, list, _) = folder.strandway(&["explain"]);
    let mut names = Vec::new();
    for line in list.lines().filter(|line| line.starts_with("  ")) {
        // A line is a profile with its summary, or a list of names.
        match Profile::NAMES.iter().find(|name| line.split_whitespace().next() == Some(name)) {
            Some(name) => names.push((*name).to_string()),
            None => names.extend(line.trim().split(", ").map(str::to_string)),
        }
    }
    assert!(names.len() > 20, "{names:?}");
    names.extend(["uec/reps/swift", "websearch", "hadoop", "transport"].map(String::from));
    for name in names {
        let (status, out, err) = folder.strandway(&["explain", &name]);
        assert_eq!(status, 0, "{name}: {err}");
        assert!(out.lines().count() > 1, "{name}: {out}");
    }
    for (wrong, hint) in [("NSCC", "did you mean `nscc`?"), ("websaerch", "did you mean `websearch`?")] {
        let (status, _, err) = folder.strandway(&["explain", wrong]);
        assert_eq!(status, 2);
        assert!(err.contains(hint), "{err}");
    }
}

#[test]
fn files_of_other_simulators_are_described() {
    let folder = Folder::new("import");
    let text = "HYBRID_TRANSFORMER model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 8 checkpoints: 0\n1\n\
                embedding -1 556000 ALLREDUCE 16777216 1 NONE 0 1 NONE 0 1\n";
    let file = folder.file("micro.txt", text);
    let (status, out, err) = folder.strandway(&["import", &file]);
    assert!(status == 0 && err.is_empty() && out.contains("8 GPUs: TP 8") && out.contains("assumed:"), "{out}{err}");
    let odd = folder.file("odd.txt", "hello\n");
    let (status, _, err) = folder.strandway(&["import", &odd]);
    assert!(status != 0 && err.contains("odd.txt") && err.contains("SimAI"), "{err}");
}

#[test]
fn doctor_names_features_that_are_off_and_commands_refuse_unknown_names() {
    let with = |without: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
        command.args(args).env("STRANDWAY_WITHOUT", without).output().expect("the command runs")
    };
    let output = with("gso,openat2", &["doctor", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |what: &str| {
        let all = json["findings"].as_array().expect("a list");
        all.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what}: {json}")).clone()
    };
    let gso = of("UDP GSO (sending in batches)");
    assert_eq!(
        (gso["value"].as_str(), gso["verdict"].as_str()),
        (Some("off: STRANDWAY_WITHOUT has gso"), Some("slow"))
    );
    assert!(of("paths beneath a directory (openat2)")["value"].as_str().is_some_and(|value| value.starts_with("off")));
    assert_ne!(of("handles of processes (pidfd)")["value"], "off: STRANDWAY_WITHOUT has pidfd");
    for args in [&["perf", "client", "::1"][..], &["copy", "--serve", "."], &["cast", "--receive", "."]] {
        let output = with("gor", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("no feature `gor`; write all, or some of gso,gro,"), "{said}");
    }
    // The findings of a doctor say so, too.
    let output = with("gor", &["doctor", "--json", "-"]);
    assert!(output.status.code() == Some(1) && String::from_utf8_lossy(&output.stdout).contains("no feature `gor`"));
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let folder = Folder::new("full");
    folder.file("a.toml", SMALL);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = Command::new(env!("CARGO_BIN_EXE_strandway"))
        .args(["run", "a.toml"])
        .current_dir(&folder.0)
        .stdout(full)
        .output()
        .expect("the command runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output: could not be written"), "{said}");
}
