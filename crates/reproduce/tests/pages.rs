//! Pages with published results next to ours: charts, tables in Markdown, and the page on validation.

use strandway_report as report;
use strandway_report::markdown::reproduced::{ids, inserted, turned};
use strandway_report::reproduction::Reproduction;
use strandway_reproduce::choose;

#[test]
fn rows_about_failures_have_charts_beside_their_table() {
    let work = choose(&["mrc".to_string()], Some("e3"), false).expect("rows");
    let page = |charts| report::html::reproduction(&work.run(1, charts, || false, |_, _| ()).expect("sound"));
    let drawn = page(true);
    let after = drawn.split("E2c, E2d, E3, E4: T1 switches").nth(1).expect("the section");
    for text in [
        "E3: entropy values while a T1 of plane 2 is dead",
        "64 entropy values (paths) of host0-&gt;host100 by state; the fewest in use were 63",
        "at most 1 assumed bad. The axis begins at 48",
        "E3: a T1 of plane 2 is dead from 100 to 400 us",
        "No plane fell behind the others",
    ] {
        assert!(after.contains(text), "{text}");
    }
    assert!(!after.contains("E4: entropy values"), "its rows are not run");
    assert!(!page(false).contains("<figure"));
}

/// The text of a page below `docs`.
fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_on_validation_repeats_the_counts_of_the_generated_rows() {
    let rows = page("measurements/published-rows.md");
    let counts = rows.split("reproduce counts -->").nth(1).and_then(|rest| rest.rsplit_once("<!--"));
    let counts = counts.expect("a table between markers").0.trim();
    assert!(counts.contains("| all |"), "{counts}");
    assert!(page("validation.md").contains(counts), "copy this table to docs/validation.md:\n{counts}");
}

#[test]
fn the_page_on_mrc_lists_every_experiment_with_a_command_that_exists() {
    let page = page("measurements/mrc.md");
    let table = page.split("| | the paper | ours | verdict | `--only` |").nth(1).expect("the table of experiments");
    let table = table.split("\n\n").next().expect("its rows");
    let mut patterns = Vec::new();
    for line in table.lines().filter(|line| line.contains('`')) {
        let last = line.trim_end_matches('|').rsplit('|').next().expect("a last column");
        patterns.extend(last.split('`').skip(1).step_by(2).map(|p| p.trim_matches('\'').to_string()));
    }
    assert!(patterns.len() > 15, "{patterns:?}");
    for pattern in &patterns {
        let found = choose(&["mrc".to_string()], Some(pattern), true);
        assert!(found.is_ok(), "{pattern}: {}", found.err().map(|e| e.to_string()).unwrap_or_default());
    }
    for experiment in "E1 E2a E2b E2c E2d E3 E4 E5 E6 E7 E8 P1 P2 P3 P4 P5".split(' ') {
        assert!(table.contains(&format!("\n| {experiment} |")), "{experiment}");
    }
}

fn done() -> Reproduction {
    choose(&["test".to_string()], None, false).expect("rows").run(1, false, || false, |_, _| ()).expect("sound")
}

const PAGE: &str = "# Page\n\n<!-- begin: strandway reproduce counts -->\n<!-- end: strandway reproduce counts -->\n\nWords.\n\n\
                    <!-- begin: strandway reproduce test -->\nold\n<!-- end: strandway reproduce test -->\n\nMore words.\n";

#[test]
fn tables_stand_between_their_markers_and_words_around_them_stay() {
    let done = done();
    let page = inserted(PAGE, &done).expect("markers");
    assert!(page.contains("Words.") && page.ends_with("More words.\n") && !page.contains("old"), "{page}");
    assert_eq!(ids(&page), ["test/met", "test/missed", "test/unknown", "test/ratio"]);
    assert!(page.contains("| `test` | 2 | 1 | 0 | 0 | 0 | 0 | 1 | 0 |"), "{page}");
    assert_eq!(inserted(&page, &done).expect("markers"), page, "twice is once");
    assert_eq!(turned(&page, &done), [""; 0]);
    let error = inserted("# Page", &done).expect_err("no markers");
    assert!(error.contains("<!-- begin: strandway reproduce test -->"), "{error}");
}

#[test]
fn a_row_that_has_turned_is_named() {
    let done = done();
    let page = inserted(PAGE, &done).expect("markers");
    let other = page.replace("| missed |", "| met |");
    let named = turned(&other, &done);
    assert!(named.len() == 1 && named[0].starts_with("test/missed: "), "{named:?}");
    let shorter: String =
        page.lines().filter(|line| !line.contains("test/ratio")).map(|line| format!("{line}\n")).collect();
    assert!(turned(&shorter, &done)[0].contains("no such row"));
}
