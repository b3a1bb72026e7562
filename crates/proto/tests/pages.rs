//! Prose that can be checked: pages name files and tests that exist, and sentences begin with their subject.

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose names end so have prose.
pub(super) const PROSE: [&str; 5] = [".rs", ".md", ".py", ".toml", ".sh"];

/// Riddles in the repository must be fewer: ours. Those that remain are questions that a reader would ask.
const RIDDLES_MAX: usize = 30;

pub(super) fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

/// All files and folders below `folder`, as paths from the root, without builds and hidden ones.
fn walk(folder: &Path, from: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" || name == "__pycache__" {
            continue;
        }
        let path = if from.is_empty() { name } else { format!("{from}/{name}") };
        if entry.file_type().expect("a kind").is_dir() {
            walk(&entry.path(), &path, found);
        }
        found.push(path);
    }
}

pub(super) fn repository() -> Vec<String> {
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    found.sort();
    found
}

pub(super) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Sentences of a line that begin with a relative clause, and words that stand for a quantity.
fn riddles(line: &str) -> usize {
    let begins = |word: &str| {
        let meant = |(at, _): &(usize, &str)| {
            let after = line[at + word.len()..].strip_prefix(' ').and_then(|rest| rest.chars().next());
            let (before, space) = (line[..*at].trim_end(), line[..*at].ends_with(' '));
            let opens = match before.chars().next_back() {
                None => true,
                Some('.' | ':' | ';' | '!' | '?') => space,
                Some(last) => !last.is_alphanumeric() && !"_,)&<".contains(last),
            };
            opens && after.is_some_and(|next| next.is_lowercase())
        };
        line.match_indices(word).filter(meant).count()
    };
    let small = line.to_lowercase();
    let stands = |words: &str| small.matches(words).count();
    ["What", "Who", "Whoever"].into_iter().map(begins).sum::<usize>()
        + [["so", "many"], ["so", "long"], ["nobody", "who"]]
            .map(|words| stands(&words.join(" ")))
            .iter()
            .sum::<usize>()
}

#[test]
fn sentences_begin_with_their_subject() {
    let mut found = Vec::new();
    for path in repository().iter().filter(|path| PROSE.iter().any(|end| path.ends_with(end))) {
        for (number, line) in (1..).zip(read(path).lines()) {
            found.extend((0..riddles(line)).map(|_| format!("{path}:{number}: {}", line.trim())));
        }
    }
    println!("{} sentences:\n{}", found.len(), found.join("\n"));
    assert!(
        found.len() < RIDDLES_MAX,
        "{} riddles; name the subject of each sentence:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn riddles_are_found_where_sentences_begin() {
    for (line, count) in [
        ("/// What a rank does.", 1),
        ("It waits. Whoever comes first, goes. Who is late, waits.", 2),
        ("| What is it? | nothing |", 1),
        ("# Who decides", 1),
        ("packets wait for so long as", 1),
        ("fn put(what: What, who: Who) -> Who {", 0),
        ("the one who waits; what it does", 0),
        ("Whole numbers. Whatever comes. WhatNow is", 0),
        ("the song so longed for, by Dr Who and What", 1),
    ] {
        assert_eq!(riddles(line), count, "{line}");
    }
}

/// The file or folder that a page names in backticks, if it names one.
fn named(span: &str) -> Option<&str> {
    let span = span.trim_end_matches('/');
    let is_path = span.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c)) && !span.starts_with('/');
    let has_end = PROSE.iter().chain(&[".c", ".txt", ".ipynb"]).any(|end| span.ends_with(end));
    // NAME and TARGET are for the reader to fill in.
    let is_pattern = span.contains("NAME") || span.contains("TARGET");
    (is_path && !is_pattern && (span.contains('/') || has_end)).then_some(span)
}

/// Names of a page that nothing in the repository has. A name may be a path from the root, or the end of a path in the
/// crate of its section (`### lab`) or in a crate that the section has named before. Outside of such sections any crate
/// will do.
fn unknown_names(page: &str, files: &[String]) -> Vec<String> {
    let folder = |name: &str| Some(format!("crates/{name}")).filter(|folder| files.contains(folder));
    let exists = |name: &str, place: &str| {
        files.iter().any(|file| file == name || file.starts_with(place) && file.ends_with(&format!("/{name}")))
    };
    let (mut unknown, mut places, mut code) = (Vec::new(), Vec::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if line.starts_with('#') && !code {
            places = folder(line.trim_start_matches('#').trim()).into_iter().collect();
        }
        for span in line.split('`').skip(1).step_by(2).filter(|_| !code) {
            if !places.is_empty() {
                places.extend(folder(span));
            }
            let here = |name: &&str| match places.is_empty() {
                true => exists(name, ""),
                false => places.iter().any(|place| exists(name, place)),
            };
            let missing = named(span).filter(|name| !here(name) && !root().join(name).exists());
            unknown.extend(missing.map(|name| format!("{name} ({})", places.join(", "))));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2).filter(|_| code) {
            let wanted = match pair[0] {
                "--manifest-path" => pair[1].to_string(),
                "--test" if pair[1] == "all" => "tests/main.rs".to_string(),
                "--test" => format!("tests/{}.rs", pair[1]),
                // In `crates` or in `examples`.
                "-p" => format!("{}/Cargo.toml", pair[1].trim_start_matches("strandway-")),
                "run" if line.contains("fuzz run") => format!("fuzz/fuzz_targets/{}.rs", pair[1]),
                _ => continue,
            };
            if !exists(&wanted, "") {
                unknown.push(wanted);
            }
        }
    }
    unknown
}

#[test]
fn pages_name_files_that_exist() {
    let files = repository();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        assert_eq!(unknown_names(&read(page), &files), Vec::<String>::new(), "{page}");
    }
    let page = "### lab\n`gone.rs` `run.rs` `docs/gone.md` `NAME.rs` `a + b`\n```\ncargo test -p strandway-lab --test golden\n\
        cargo +nightly fuzz run gone\n```\n### proto\n`sweep.rs` of `lab`; `sweep.rs`\n";
    let expected =
        ["gone.rs (crates/lab)", "docs/gone.md (crates/lab)", "fuzz/fuzz_targets/gone.rs", "sweep.rs (crates/proto)"];
    assert_eq!(unknown_names(page, &files), expected);
}

#[test]
fn the_map_has_every_crate_example_and_bench() {
    let page = read("ARCHITECTURE.md");
    for folder in ["crates", "examples", "bench"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let wanted = match folder {
                "crates" => format!("`{name}`"),
                _ => format!("`{folder}/{name}"),
            };
            assert!(page.contains(&wanted), "ARCHITECTURE.md does not name {wanted}");
        }
    }
}

/// A reader of decisions wants the newest first.
#[test]
fn decisions_stand_with_the_newest_first() {
    let mut decisions = 0;
    for page in ["docs/decisions.md", "docs/decisions-simulation.md"] {
        let text = read(page);
        let dates: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")?.get(..10)).collect();
        decisions += dates.len();
        if let Some(late) = dates.windows(2).find(|two| two[0] < two[1]) {
            panic!("{page}: a decision of {} stands before one of {}", late[0], late[1]);
        }
        for entry in text.split("\n## ").skip(1) {
            let lines = entry.trim_end().lines().count() - 2;
            assert!(lines <= 10, "{page}: {lines} lines: {}", entry.lines().next().unwrap_or_default());
        }
    }
    assert!(decisions > 50, "{decisions} decisions");
}

/// The lines of a page that are no code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The targets of relative links in a page, with the anchors behind them: `[text](target)`, `[name]: target`, and the
/// `href` and `src` of HTML.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in prose(text) {
        for (begin, end) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            let targets = line.split(begin).skip(1).filter_map(|rest| rest.split_once(end));
            found.extend(targets.map(|(target, _)| target));
        }
        let defined = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        found.extend(defined.map(|(_, target)| target.trim()));
    }
    let elsewhere = |target: &str| ["http:", "https:", "mailto:"].iter().any(|scheme| target.starts_with(scheme));
    found.retain(|target| !target.is_empty() && !elsewhere(target) && !target.contains(' '));
    found
}

/// The anchors that GitHub and mdBook give to the headings of a page. A heading that comes again has a number.
pub(super) fn anchors(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for heading in prose(page).filter(|line| line.starts_with('#')) {
        let plain = anchor(heading);
        let before = found.iter().filter(|one| **one == plain || one.starts_with(&format!("{plain}-"))).count();
        if found.contains(&plain) {
            found.extend((1..=before).map(|number| format!("{plain}-{number}")));
        } else {
            found.push(plain);
        }
    }
    found
}

/// The anchor of one heading.
pub(super) fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    plain.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[test]
fn links_and_anchors_of_a_page_are_all_found() {
    let page = "# A page: `of` 1,000\n[a](b.md#c) and [d](#e), [f](https://g) [h]()\n```sh\n# no heading [i](j.md)\n```\n\
        <a href=\"k.md\"><img src=\"l.png\"></a>\n[m]: n.md\n## Twice\n## Twice\n";
    assert_eq!(links(page), ["b.md#c", "#e", "k.md", "l.png", "n.md"]);
    assert_eq!(anchors(page), ["a-page-of-1000", "twice", "twice-1"]);
}

#[test]
fn relative_links_lead_to_files_and_headings_that_exist() {
    let mut dead = Vec::new();
    let pages = repository();
    // A page that a crate includes from `docs` is a symbolic link; the links in it are relative to `docs`.
    let linked = |path: &str| fs::symlink_metadata(root().join(path)).is_ok_and(|found| found.is_symlink());
    let pages = pages.iter().filter(|path| path.ends_with(".md") && !linked(path));
    for page in pages {
        let (text, folder) = (read(page), Path::new(page).parent().unwrap_or(Path::new("")));
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { PathBuf::from(page) } else { folder.join(file) };
            if !root().join(&target).exists() {
                dead.push(format!("{page}: {link}: no such file"));
            } else if !heading.is_empty() && target.extension().is_some_and(|end| end == "md") {
                let other = fs::read_to_string(root().join(&target)).unwrap_or_default();
                if !anchors(&other).iter().any(|one| one == heading) {
                    dead.push(format!("{page}: {link}: no such heading"));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// The names of the entries of a folder of the repository, without their endings.
fn stems(folder: &str) -> std::collections::BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of the repository");
    let stem = |path: PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    entries.map(|entry| stem(entry.expect("an entry").path())).collect()
}

#[test]
fn each_fuzz_target_has_its_program_its_corpus_and_its_replay() {
    let targets = stems("fuzz/fuzz_targets");
    assert!(targets.len() > 15, "{targets:?}");
    assert_eq!(targets, stems("fuzz/corpus"), "fuzz/fuzz_targets and fuzz/corpus");
    let manifest = read("fuzz/Cargo.toml");
    let files = repository();
    let replays: String =
        files.iter().filter(|file| file.ends_with("/tests/fuzz_corpus.rs")).map(|file| read(file)).collect();
    for target in targets {
        assert!(manifest.contains(&format!("name = \"{target}\"")), "fuzz/Cargo.toml has no [[bin]] {target}");
        assert!(replays.contains(target.as_str()), "no fuzz_corpus.rs replays {target}");
    }
}
