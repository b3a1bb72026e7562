//! Scenario files: TOML as written, with `--set` and sweeps applied to the text's table before anything is understood.

pub(crate) mod collective;
pub(crate) mod expect;
pub(crate) mod fabric;
pub(crate) mod faults;
pub(crate) mod generate;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod sizes;
pub(crate) mod workload;

use crate::plan::Experiment;
use crate::problem::{Problem, Problems, suggest};
use crate::reader::{Sink, show};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The sections and keys at the top of a scenario.
pub(crate) const SECTIONS: [&str; 9] =
    ["name", "description", "fabric", "profile", "workload", "faults", "run", "sweep", "expect"];

/// The largest scenario or imported file that is read; larger ones are surely not meant.
pub(crate) const FILE_LIMIT: u64 = 1 << 30;

/// A scenario as written.
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    folder: PathBuf,
    text: String,
    pub(crate) table: Table,
}

/// Parses a scenario that did not come from a file; files that it names are looked up from the current directory.
///
/// # Errors
/// If it is no TOML.
pub fn parse(text: &str) -> Result<Scenario, Problems> {
    Scenario::from_text("scenario", text)
}

impl Scenario {
    /// Parses a scenario called `file` in messages.
    ///
    /// # Errors
    /// If it is no TOML.
    pub fn from_text(file: &str, text: &str) -> Result<Scenario, Problems> {
        let table = parse_toml(file, text, "see docs/scenario.md for the form of a scenario")?;
        Ok(Scenario { file: file.to_string(), folder: PathBuf::new(), text: text.to_string(), table })
    }

    /// Reads a scenario file. A traffic matrix (`.cm`) is taken as a scenario of its own: that matrix on the smallest
    /// fat tree that holds it.
    ///
    /// # Errors
    /// If the file cannot be read or is no TOML.
    pub fn load(path: &Path) -> Result<Scenario, Problems> {
        let file = path.display().to_string();
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        if path.extension().is_some_and(|e| e == "cm") {
            read_file(path)?;
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let text = format!("[workload]\nkind = \"matrix\"\nfile = {}\n", Value::String(name));
            return Ok(Scenario { folder, ..Scenario::from_text(&file, &text)? });
        }
        let text = read_file(path)?;
        Ok(Scenario { folder, ..Scenario::from_text(&file, &text)? })
    }

    /// What messages and reports call it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text as written, changes by [`Scenario::set`] not included.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its `name`, or its file's.
    pub fn name(&self) -> String {
        match self.table.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => Path::new(&self.file).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }

    /// The file that the scenario calls `name`: relative to the scenario's own folder.
    pub(crate) fn resolve(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Changes one key, given as `dotted.key=value`; the value is TOML or else plain text.
    ///
    /// # Errors
    /// If it is not of that form or the key leads through something that is no table.
    pub fn set(&mut self, assignment: &str) -> Result<(), Problems> {
        let problem = |what: &str| {
            Problems(vec![Problem {
                file: String::new(),
                line: None,
                key: format!("--set {assignment}"),
                value: String::new(),
                what: what.to_string(),
                remedy: "write, say, --set profile.path=reps or --set workload.size='\"4 MB\"'".into(),
            }])
        };
        let Some((key, value)) = assignment.split_once('=') else { return Err(problem("needs a key and a value")) };
        let value = value_of(value.trim());
        self.put(key.trim(), value).map_err(|what| problem(&what))
    }

    /// Changes one key to a TOML value.
    pub(crate) fn put(&mut self, key: &str, value: Value) -> Result<(), String> {
        let parts = split_key(key)?;
        if !SECTIONS.contains(&parts[0].as_str()) {
            return Err(format!("`{}` is no section of a scenario; {}", parts[0], suggest(&parts[0], &SECTIONS)));
        }
        // A sweep's keys are dotted keys of the scenario, each of them one key of the `[sweep]` table.
        let parts = match parts.split_first() {
            Some((section, swept)) if section == "sweep" && !swept.is_empty() => vec![section.clone(), swept.join(".")],
            _ => parts,
        };
        let (last, way) = parts.split_last().ok_or("the key is empty")?;
        let mut place = &mut self.table;
        for part in way {
            let next = place.entry(part.clone()).or_insert_with(|| Value::Table(Table::new()));
            let shown = show(next);
            let single = next.as_array().is_some_and(|items| items.len() == 1);
            let inner = if single { next.get_mut(0) } else { Some(next) };
            let Some(Value::Table(table)) = inner else {
                return Err(format!("`{part}` is {shown}, which has no keys"));
            };
            place = table;
        }
        place.insert(last.clone(), value);
        Ok(())
    }

    /// Understands the scenario: everything that can be wrong with it is found here, and nothing after it can be
    /// misconfigured.
    ///
    /// # Errors
    /// With all problems at once.
    pub fn check(&self) -> Result<Experiment, Problems> {
        let sink = Sink::new(&self.file);
        let experiment = crate::plan::build(self, &sink);
        match experiment {
            Some(experiment) if sink.is_empty() => Ok(experiment),
            _ => Err(Problems(sink.take())),
        }
    }
}

/// Parses a file called `file` in messages, as TOML; `remedy` says where its form is described.
pub(crate) fn parse_toml(file: &str, text: &str, remedy: &str) -> Result<Table, Problems> {
    text.parse::<Table>().map_err(|e| {
        let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Problems(vec![Problem {
            file: file.to_string(),
            line,
            key: String::new(),
            value: String::new(),
            what: format!("not valid TOML: {}", e.message().replace('\n', ", ")),
            remedy: remedy.to_string(),
        }])
    })
}

/// Reads a text file, refusing what is no regular file or too large.
pub(crate) fn read_file(path: &Path) -> Result<String, Problems> {
    let file = path.display().to_string();
    let fail = |what: String, remedy: &str| Problems::with_file(&file, what, remedy);
    let meta = std::fs::metadata(path).map_err(|e| fail(format!("cannot be read: {e}"), "check the path"))?;
    if !meta.is_file() {
        return Err(fail("is not a regular file".into(), "name a scenario (.toml) or traffic matrix (.cm)"));
    }
    if meta.len() > FILE_LIMIT {
        return Err(fail(format!("is {} bytes long", meta.len()), "files up to 1 GiB are read"));
    }
    let bytes = std::fs::read(path).map_err(|e| fail(format!("cannot be read: {e}"), "check the path"))?;
    String::from_utf8(bytes).map_err(|_| fail("is not text".into(), "save it as UTF-8"))
}

/// A value from the command line: TOML if it is that, else text.
pub(crate) fn value_of(text: &str) -> Value {
    match format!("v = {text}\n").parse::<Table>() {
        Ok(mut table) if table.len() == 1 => table.remove("v").unwrap_or_else(|| Value::String(text.to_string())),
        _ => Value::String(text.to_string()),
    }
}

/// The parts of a dotted key; none of them empty.
fn split_key(key: &str) -> Result<Vec<String>, String> {
    let parts: Vec<String> = key.split('.').map(|p| p.trim().trim_matches('"').to_string()).collect();
    if parts.iter().any(String::is_empty) {
        return Err("the key has an empty part".into());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_changes_the_table_and_parses_values() {
        let mut scenario = parse("[profile]\nname = \"uec\"\n").expect("valid");
        scenario.set("profile.path=reps").expect("a string");
        scenario.set("workload.size=\"4 MB\"").expect("quoted");
        scenario.set("fabric.hosts=64").expect("a number");
        assert_eq!(scenario.table["profile"]["path"].as_str(), Some("reps"));
        assert_eq!(scenario.table["workload"]["size"].as_str(), Some("4 MB"));
        assert_eq!(scenario.table["fabric"]["hosts"].as_integer(), Some(64));
    }

    #[test]
    fn set_replaces_what_a_sweep_varies() {
        let text = "[profile]\nname = \"uec\"\n[sweep]\n\"run.seed\" = [1, 2, 3]\n\"profile.path\" = [\"reps\"]\n";
        for key in ["sweep.run.seed", "sweep.\"run.seed\""] {
            let mut scenario = parse(text).expect("valid");
            scenario.set(&format!("{key}=[7, 8]")).expect("a list");
            let sweep = scenario.table["sweep"].as_table().expect("a table");
            assert_eq!(sweep.len(), 2);
            assert_eq!(sweep["run.seed"].as_array().map(Vec::len), Some(2));
        }
    }

    #[test]
    fn bad_assignments_are_explained() {
        let mut scenario = parse("[profile]\nname = \"uec\"\n").expect("valid");
        for (bad, fragment) in [
            ("nonsense", "needs a key and a value"),
            ("fabrik.hosts=4", "did you mean `fabric`?"),
            ("profile..x=4", "empty part"),
            ("profile.name.x=4", "which has no keys"),
        ] {
            let said = scenario.set(bad).expect_err(bad).to_string();
            assert!(said.contains(fragment), "{bad}: {said}");
        }
    }
}
