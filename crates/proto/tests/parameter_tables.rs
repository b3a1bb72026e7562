//! The parameter table of each protocol page is the code's.

use std::fmt::Write;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::parameter::ParameterSet;
use strandway_proto::path::PathConfig;
use strandway_proto::profile::Profile;
use strandway_proto::reliability::ReliabilityConfig;

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
    check_table(name, &table(set));
}

fn check_table(name: &str, expect: &str) {
    let page = page(name);
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings, SECTIONS, "sections of {name}.md");
    let (_, rest) = page.split_once("## Parameters\n\n").expect("a section of that name");
    let (section, _) = rest.split_once("\n## ").expect("another section");
    // A preset named after its policy has both tables on one page.
    let found = section.split("\n\n").map(|block| format!("{}\n", block.trim_end()));
    assert!(
        found.clone().any(|block| block == expect),
        "{name}.md should have the table\n\n{expect}\nand has\n\n{section}"
    );
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

#[test]
fn pages_of_reliabilities_have_the_codes_table() {
    for name in ReliabilityConfig::NAMES {
        let mut config = ReliabilityConfig::named(name).expect("a name");
        check(name, config.parameters());
    }
}

/// A preset's page has its values of the groups that all profiles share, and the values that differ from the defaults.
#[test]
fn pages_of_presets_have_the_codes_values() {
    for name in Profile::NAMES {
        let mut profile = Profile::preset(name).expect("a preset for every name");
        let shared = ["transport", "switch"];
        let mut text = String::from("| name | value | source |\n|---|---|---|\n");
        for (group, set) in profile.groups() {
            for row in set.table() {
                let value = set.get(row.name).expect("a parameter of the table");
                if shared.contains(&group) || value != row.default {
                    writeln!(text, "| `{group}.{}` | {value} | {} |", row.name, row.source)
                        .expect("a string takes all");
                }
            }
        }
        check_table(name, &text);
    }
}
