//! `include`: other TOML files whose keys a scenario has, too.

use crate::files::{Files, parse_toml};
use strandway_import::{Problem, Problems};
use toml::{Table, Value};

/// Limit on files inside files: ours.
const DEPTH_MAX: usize = 8;

/// Puts the keys of the files that `include` names into `table`, and removes the key. Keys of the file itself count
/// before those of the files that it names, and of these the first one that has a key. Tables are joined key by key;
/// lists are not joined. True if there were any.
///
/// # Errors
/// If a file cannot be read, is not TOML, or includes others too deeply.
pub(crate) fn resolve(file: &str, table: &mut Table, files: &Files) -> Result<bool, Problems> {
    into(file, table, files, 0)
}

fn into(file: &str, table: &mut Table, files: &Files, depth: usize) -> Result<bool, Problems> {
    let Some(wanted) = table.remove("include") else { return Ok(false) };
    let wrong = |value: &Value, what: &str, remedy: &str| {
        Problems(vec![Problem {
            file: file.to_string(),
            line: None,
            key: "include".into(),
            value: value.to_string(),
            what: what.into(),
            remedy: remedy.into(),
        }])
    };
    if depth == DEPTH_MAX {
        return Err(wrong(&wanted, "is more than 8 files deep", "does a file include itself?"));
    }
    let names = match &wanted {
        Value::String(name) => vec![name.clone()],
        Value::Array(all) => match all.iter().map(|one| one.as_str().map(str::to_string)).collect() {
            Some(names) => names,
            None => return Err(wrong(&wanted, "is no list of files", "write the names of TOML files")),
        },
        other => return Err(wrong(other, "is no file", "write the name of a TOML file, or a list of names")),
    };
    for name in names {
        let (shown, text) = files.read(&name)?;
        let mut included = parse_toml(&shown, &text, "a file that is included has the form of a scenario")?;
        into(&shown, &mut included, &files.beside(&name), depth + 1)?;
        join(table, included);
    }
    Ok(true)
}

/// Adds the keys that a table lacks.
fn join(table: &mut Table, more: Table) {
    for (key, value) in more {
        match (table.get_mut(&key), value) {
            (None, value) => drop(table.insert(key, value)),
            (Some(Value::Table(mine)), Value::Table(theirs)) => join(mine, theirs),
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    #[test]
    fn own_keys_count_before_included_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        std::fs::create_dir(folder.path().join("inner")).expect("made");
        write("inner/deep.toml", "[run]\nseed = 5\n[fabric]\nhosts = 99\n");
        write("inner/a.toml", "include = \"deep.toml\"\n[fabric]\nhosts = 8\nrate = \"200 Gbps\"\n");
        write("b.toml", "[fabric]\nrate = \"100 Gbps\"\nlatency = \"2 us\"\n");
        write("s.toml", "include = [\"inner/a.toml\", \"b.toml\"]\n[fabric]\nhosts = 16\n");
        let scenario = Scenario::load(&folder.path().join("s.toml")).expect("valid");
        let fabric = scenario.table()["fabric"].as_table().expect("a table");
        assert_eq!(fabric["hosts"].as_integer(), Some(16));
        assert_eq!(fabric["rate"].as_str(), Some("200 Gbps"));
        assert_eq!(fabric["latency"].as_str(), Some("2 us"));
        assert_eq!(scenario.table()["run"]["seed"].as_integer(), Some(5));
        assert_eq!(scenario.inputs().len(), 4);
        assert!(scenario.text().contains("200 Gbps"), "a report repeats the run without the files");
    }

    #[test]
    fn wrong_includes_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.toml");
        for (text, said) in [
            ("include = 3\n", "is no file"),
            ("include = [3]\n", "is no list of files"),
            ("include = \"s.toml\"\n", "more than 8 files deep"),
            ("include = \"none.toml\"\n", "cannot be read"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = Scenario::load(&path).expect_err(said).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
