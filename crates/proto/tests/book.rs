//! The pages in `docs` as a book: each is in its table of contents, and the sections that code and pages name exist.

use crate::pages::{PROSE, anchor, anchors, read, repository, root};

/// All pages of the book, as paths from the root.
fn pages() -> Vec<String> {
    let is_page = |path: &String| path.starts_with("docs/") && path.ends_with(".md") && path != "docs/SUMMARY.md";
    repository().into_iter().filter(is_page).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let summary = read("docs/SUMMARY.md");
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let mut listed: Vec<String> =
        targets.filter(|target| !target.is_empty()).map(|target| format!("docs/{target}")).collect();
    listed.sort();
    assert_eq!(listed, pages(), "docs/SUMMARY.md beside the pages that exist");
    for section in ["Tutorial", "How-to", "Reference", "Explanation", "Protocols", "Measurements"] {
        assert!(summary.contains(&format!("\n# {section}\n")), "no section {section}");
    }
    assert!(read("book.toml").contains("src = \"docs\""));
}

/// The pages that a text names, as `docs/NAME.md`, with the section that stands behind in quotes, if one does.
fn named(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_./-".contains(c)).unwrap_or(rest.len());
        let Some(page) = rest[..end].find(".md").map(|dot| &rest[..dot + 3]) else { continue };
        let behind = rest[page.len()..].trim_start_matches(['`', ',', ' ', '(']);
        let section = behind.strip_prefix('"').and_then(|quoted| quoted.split_once('"')).map(|(section, _)| section);
        found.push((page, section.filter(|section| section.starts_with(char::is_uppercase))));
    }
    found
}

#[test]
fn pages_and_sections_that_the_repository_names_exist() {
    let mut wrong = Vec::new();
    for file in repository().iter().filter(|file| PROSE.iter().any(|end| file.ends_with(end))) {
        // Its history names pages as they were; tests of pages name some that do not exist.
        if file == "CHANGELOG.md" || file.starts_with("crates/proto/tests/") {
            continue;
        }
        for (page, section) in named(&read(file)) {
            if page.contains("NAME") {
                continue;
            }
            match std::fs::read_to_string(root().join(page)) {
                Err(_) => wrong.push(format!("{file}: {page}: no such page")),
                Ok(text) => {
                    let known = anchors(&text);
                    // A section may be named without the date before it, and across the end of a line.
                    let exists = |section: &str| {
                        let wanted = anchor(&section.split_whitespace().collect::<Vec<_>>().join(" "));
                        known.iter().any(|one| *one == wanted || one.ends_with(&format!("-{wanted}")))
                    };
                    let missing = section.filter(|section| !exists(section));
                    wrong.extend(missing.map(|section| format!("{file}: {page}: no section \"{section}\"")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pages_are_found_with_their_sections() {
    let text = "see `docs/a.md`, \"The cipher\"; docs/b/c.md (\"Memory\"), docs/d.md. `docs/e.md#f` docs/images/g.png";
    let expected =
        [("docs/a.md", Some("The cipher")), ("docs/b/c.md", Some("Memory")), ("docs/d.md", None), ("docs/e.md", None)];
    assert_eq!(named(text), expected);
}

/// The most words that somebody should have to read on one page.
const WORDS_MAX: usize = 4000;

/// A page is read; tables of measurements and the reference of keys are looked up.
#[test]
fn pages_are_short_enough_to_be_read() {
    let long = |path: &str, most: usize| {
        let words = read(path).split_whitespace().count();
        (words > most).then(|| format!("{path} has {words} words; {most} are the most"))
    };
    let looked_up = |path: &str| path.starts_with("docs/measurements/") || path == "docs/scenario.md";
    let mut found: Vec<String> =
        pages().iter().filter(|path| !looked_up(path)).filter_map(|path| long(path, WORDS_MAX)).collect();
    found.extend(long("README.md", 1600));
    found.extend(long("docs/tutorial.md", 1500));
    found.extend(long("docs/performance.md", 3000));
    assert!(found.is_empty(), "divide these pages, or move tables to docs/measurements:\n{}", found.join("\n"));
}
