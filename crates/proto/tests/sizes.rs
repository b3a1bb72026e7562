//! How large a file, a function, a type and a crate may be: a reader keeps each of them in mind as a whole.

use std::path::{Path, PathBuf};

/// Lines of a file, tests and comments included.
const FILE: usize = 600;
/// Lines of a function.
const FUNCTION: usize = 100;
/// Fields of a type.
const FIELDS: usize = 25;
/// Lines of code of a crate, without tests, comments and empty lines.
const CRATE: usize = 16_000;

fn crates() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect()
}

/// The Rust files of a crate's `src`, without those of tests, and their text.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).expect("a source");
            found.push((path, text));
        }
    }
}

/// The text before a module of tests.
fn product(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The word after `keyword` where a line declares it, whatever stands before: `pub(crate) const fn`, say.
fn declared<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let at = line.find(keyword)?;
    let before = line[..at].split_whitespace();
    let modifier = |word: &str| {
        ["const", "unsafe", "async", "extern", "\"C\"", "in"].contains(&word)
            || word.starts_with("pub")
            || word.ends_with(')')
    };
    let name = line[at + keyword.len()..].split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (before.clone().all(modifier) && !name.is_empty()).then_some(name)
}

/// The number of the line that closes what begins on line `from`, as rustfmt writes it.
fn end(lines: &[&str], from: usize) -> usize {
    let depth = indent(lines[from]);
    let closes = |line: &&str| indent(line) == depth && line.trim_start().starts_with('}');
    lines[from..].iter().position(closes).map_or(from, |more| from + more)
}

/// Names of functions and types that are too large, with their sizes.
fn large(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (from, line) in lines.iter().enumerate() {
        if let Some(name) = declared(line, "fn ") {
            // A declaration without a body, or with one on its line, ends there.
            let size = if line.ends_with([';', '}']) { 1 } else { end(&lines, from) - from + 1 };
            if size > FUNCTION {
                found.push(format!("function {name}: {size} lines"));
            }
        }
        if let Some(name) = declared(line, "struct ").filter(|_| line.ends_with('{')) {
            let depth = indent(line) + 4;
            let is_field = |line: &&&str| {
                let text = line.trim_start();
                indent(line) == depth && text.contains(':') && !text.starts_with(['/', '#'])
            };
            let fields = lines[from + 1..end(&lines, from).max(from + 1)].iter().filter(is_field).count();
            if fields > FIELDS {
                found.push(format!("struct {name}: {fields} fields"));
            }
        }
    }
    found
}

#[test]
fn files_functions_types_and_crates_have_a_size_that_a_reader_can_keep_in_mind() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(crates()).expect("the folder of crates") {
        let folder = entry.expect("a folder").path();
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        seen += files.len();
        let mut code = 0;
        for (path, text) in &files {
            let file = path.strip_prefix(crates()).unwrap_or(path).display();
            let length = text.lines().count();
            if length > FILE {
                wrong.push(format!("{file}: {length} lines"));
            }
            wrong.extend(large(product(text)).into_iter().map(|what| format!("{file}: {what}")));
            let counts = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
            code += product(text).lines().filter(counts).count();
        }
        if code > CRATE {
            wrong.push(format!("{}: {code} lines of code", folder.display()));
        }
    }
    assert!(seen > 500, "{seen} files");
    assert!(wrong.is_empty(), "too large; split them (style: few ideas in one place):\n{}", wrong.join("\n"));
}

#[test]
fn large_functions_and_types_are_found() {
    let body = "    let _ = 1;\n".repeat(FUNCTION - 2);
    assert!(large(&format!("pub(crate) const fn small() {{\n{body}}}\n")).is_empty());
    let long = format!("impl A {{\n    pub fn long(\n        a: u8,\n    ) {{\n    {body}    }}\n}}\n");
    assert_eq!(large(&long), [format!("function long: {} lines", FUNCTION + 2)]);
    let fields: String = (0..=FIELDS).map(|i| format!("    /// A field: one.\n    pub f{i}: u8,\n")).collect();
    assert_eq!(large(&format!("pub struct Wide {{\n{fields}}}\n")), [format!("struct Wide: {} fields", FIELDS + 1)]);
    assert!(large("struct Small {\n    a: u8,\n}\n").is_empty());
}
