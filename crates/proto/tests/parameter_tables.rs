//! The parameter table of each protocol page is the code's.

use std::fmt::Write;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::parameter::ParameterSet;
use strandway_proto::path::PathConfig;

const SECTIONS: [&str; 6] = ["Idea", "Mechanism", "Parameters", "Deviations", "Validation", "References"];

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/protocols/{name}.md", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The table as the page must have it.
fn table(set: &dyn ParameterSet) -> String {
    let rows = set.table();
    if rows.is_empty() {
        return "None.\n".into();
    }
    let mut text = String::from("| name | default | source |\n|---|---|---|\n");
    for row in rows {
        writeln!(text, "| `{}` | {} | {} |", row.name, row.default, row.source).expect("a string takes all");
    }
    text
}

fn check(name: &str, set: &dyn ParameterSet) {
    let page = page(name);
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings, SECTIONS, "sections of {name}.md");
    let expect = table(set);
    let (_, rest) = page.split_once("## Parameters\n\n").expect("a section of that name");
    let found: String = rest.lines().take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
    assert!(found == expect, "the table of {name}.md should be\n\n{expect}\nbut is\n\n{found}");
}

#[test]
fn pages_of_congestion_controls_have_the_codes_table() {
    for name in CongestionConfig::NAMES {
        let mut config = CongestionConfig::named(name).expect("a name");
        check(name, config.parameters().expect("parameters"));
    }
}

#[test]
fn pages_of_path_selectors_have_the_codes_table() {
    for name in PathConfig::NAMES {
        let mut config = PathConfig::named(name).expect("a name");
        check(name, config.parameters().expect("parameters"));
    }
}
