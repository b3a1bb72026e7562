//! Scenario files: TOML as written. `--set` and sweeps change its table before it is checked.

use crate::address;
use crate::files::{Files, is_matrix, parse_toml};
use crate::include;
use crate::reader::show;
use crate::reduction::Reduction;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandway_import::{Importer, Problem, Problems, read_file};
use toml::{Table, Value};

/// A scenario as written.
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    files: Files,
    text: String,
    pub(crate) table: Table,
    changes: BTreeMap<String, String>,
    command: String,
    pub(crate) reduction: Reduction,
    pub(crate) posted: bool,
}

/// Parses a scenario that is not from a file. Files that it names are looked up from the current directory.
///
/// # Errors
/// If it is not TOML.
pub fn parse(text: &str) -> Result<Scenario, Problems> {
    Scenario::from_text("scenario", text)
}

impl Scenario {
    /// Parses a scenario. `file` is its name in messages.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn from_text(file: &str, text: &str) -> Result<Scenario, Problems> {
        Scenario::from_parts(file, text, Files::default())
    }

    /// A scenario that a program made. `file` is its name in messages, and files that it names are looked up next to
    /// `file`.
    pub fn from_table(file: &str, table: Table) -> Scenario {
        let (file, text, files) = (file.to_string(), table.to_string(), Files::in_folder_of(Path::new(file)));
        let (changes, command, reduction) = (BTreeMap::new(), String::new(), Reduction::NONE);
        Scenario { file, files, text, table, changes, command, reduction, posted: false }
    }

    fn from_parts(file: &str, text: &str, files: Files) -> Result<Scenario, Problems> {
        let mut table = parse_toml(file, text, "see docs/scenario.md for the form of a scenario")?;
        // The text of a report must do without the files.
        let text = if include::resolve(file, &mut table, &files)? { table.to_string() } else { text.to_string() };
        let file = file.to_string();
        let (changes, command, reduction) = (BTreeMap::new(), String::new(), Reduction::NONE);
        Ok(Scenario { file, files, text, table, changes, command, reduction, posted: false })
    }

    /// Reads a scenario from a file, a pipe, or standard input (`-`). A traffic matrix (it starts with `Nodes`) becomes
    /// a scenario with this matrix on the smallest fat tree that is large enough.
    ///
    /// # Errors
    /// If the file cannot be read or is not TOML.
    pub fn load(path: &Path) -> Result<Scenario, Problems> {
        let file = path.display().to_string();
        let text = read_file(path)?;
        let files = Files::of(path);
        if path.extension().is_some_and(|e| e == "cm") || is_matrix(&text) {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let scenario = format!("[workload]\nkind = \"matrix\"\nfile = {}\n", Value::String(name.clone()));
            return Scenario::from_parts(&file, &scenario, files.holding(&name, &text));
        }
        if let (Some(importer), Some(_)) = (Importer::of(&text), path.extension().filter(|ending| *ending != "toml")) {
            let remedy = "`strandway import FILE` says how a scenario uses it";
            return Err(Problems::with_file(&file, format!("is {}, and no scenario", importer.name), remedy));
        }
        Scenario::from_parts(&file, &text, files)
    }

    /// A job that runs a file of another tool (`[job] file`), on a fabric of as many GPUs, each with a NIC. Servers have
    /// eight GPUs if they fill them, otherwise one. `gpus` is the number of GPUs of the file.
    ///
    /// # Errors
    /// None that a valid path has.
    pub fn of_job(path: &Path, gpus: u32, needs_gpus: bool) -> Result<Scenario, Problems> {
        let file = path.display().to_string();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| ".".into());
        let per_server = if gpus > 8 && gpus.is_multiple_of(8) { 8 } else { 1 };
        let count = if needs_gpus { format!("gpus = {gpus}\n") } else { String::new() };
        let text = format!(
            "[fabric]\nhosts = {gpus}\n[servers]\ngpus = {per_server}\n[job]\nfile = {}\n{count}",
            Value::String(name)
        );
        Scenario::from_parts(&file, &text, Files::in_folder_of(path))
    }

    /// From now on a program outside posts messages while the run goes on. So the scenario needs no workload, and if it
    /// has none there is no workload by default; and the default of `run.time_limit` is 1,000 s.
    pub fn with_posts(mut self) -> Scenario {
        self.posted = true;
        self
    }

    /// Its sections and keys, with all changes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Its name in messages and reports.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text with all changes: the original text if nothing was changed, otherwise the changed scenario without
    /// comments.
    pub fn text(&self) -> String {
        if self.changes.is_empty() { self.text.clone() } else { self.table.to_string() }
    }

    /// The changes by [`Scenario::set`] and sweeps, by dotted key.
    pub fn changes(&self) -> &BTreeMap<String, String> {
        &self.changes
    }

    /// All files that were read for it so far: its own, and files that it names.
    pub fn inputs(&self) -> Vec<PathBuf> {
        self.files.all()
    }

    /// From now on its list of files is not that of the scenario from which it was copied.
    pub(crate) fn list_own_files(&mut self) {
        self.files.separate();
    }

    /// A digest of what decides its result: the version of Strandway, its sections and keys after all changes, and the
    /// contents of the files that it names, in hex. The number of threads, comments, and the places of files do not
    /// count. It must have been checked before, so that all files are known.
    ///
    /// # Errors
    /// If one of its files cannot be read again.
    pub fn key(&self) -> Result<String, Problems> {
        let mut table = self.table.clone();
        if let Some(Value::Table(run)) = table.get_mut("run") {
            run.remove("threads");
            if run.is_empty() {
                table.remove("run");
            }
        }
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        add(env!("CARGO_PKG_VERSION").as_bytes());
        add(table.to_string().as_bytes());
        add(self.files.held().unwrap_or_default().as_bytes());
        for path in self.inputs().iter().filter(|path| **path != Path::new(&self.file)) {
            let contents = std::fs::read(path).map_err(|e| {
                Problems::with_file(&path.display().to_string(), format!("cannot be read: {e}"), "check the path")
            })?;
            add(&contents);
        }
        Ok(hasher.finalize().to_hex()[..32].to_string())
    }

    /// Stores the command line that requested it, for reports.
    pub fn asked_by(&mut self, command: &str) {
        self.command = command.to_string();
    }

    /// The command line that requested it; empty if there was none.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Its `name`, or the name of its file.
    pub fn name(&self) -> String {
        match self.table.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => Path::new(&self.file).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }

    /// Reads a file that the scenario names, relative to the scenario's own directory. Returns the file's name in
    /// messages, and its text.
    pub(crate) fn read(&self, name: &str) -> Result<(String, String), Problems> {
        self.files.read(name)
    }

    /// Reads a file that the scenario names and that is no text. Returns the file's name in messages, and its bytes.
    pub(crate) fn read_bytes(&self, name: &str) -> Result<(String, Vec<u8>), Problems> {
        self.files.read_bytes(name)
    }

    /// The path of a file that the scenario names.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    /// Remembers a file that was read for the scenario.
    pub(crate) fn note(&self, path: &Path) {
        self.files.note(path);
    }

    /// Changes one key, given as `dotted.key=value`. The value is TOML, or otherwise plain text.
    ///
    /// # Errors
    /// If the text has another form, or the key leads through a value that is not a table.
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

    /// Asks for an entry for every message, however many there are: for a table of all flows.
    pub fn keep_rows(&mut self) {
        let run = self.table.entry("run").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(run) = run {
            run.insert("rows".to_string(), Value::Boolean(true));
        }
    }

    /// Changes one key (dotted) to a TOML value.
    ///
    /// # Errors
    /// If the key leads through a value that is not a table.
    pub fn set_value(&mut self, key: &str, value: Value) -> Result<(), Problems> {
        self.put(key, value)
            .map_err(|what| Problems(vec![Problem { key: key.to_string(), what, ..Problem::default() }]))
    }

    /// Removes a section, such as `sweep`, or a key of a section, such as `run.alone`. [`Scenario::changes`] does not
    /// list it.
    pub fn remove(&mut self, address: &str) {
        match address.split_once('.') {
            None => drop(self.table.remove(address)),
            Some((section, key)) => {
                if let Some(Value::Table(section)) = self.table.get_mut(section) {
                    section.remove(key);
                }
            }
        }
    }

    /// The value of a key (dotted), if the scenario has it.
    pub fn value(&self, key: &str) -> Option<Value> {
        address::get(&self.table, key)
    }

    /// Changes one key to a TOML value.
    pub(crate) fn put(&mut self, key: &str, value: Value) -> Result<(), String> {
        self.changes.insert(key.to_string(), show(&value));
        address::put(&mut self.table, key, value)
    }

    /// Records the change of a whole table `of` by its main key and that key's value.
    pub(crate) fn note_change(&mut self, of: &str, key: &str, text: &str) {
        self.changes.remove(of);
        self.changes.insert(key.to_string(), format!("\"{text}\""));
    }
}

/// A value from the command line: TOML if it can be parsed as TOML, otherwise text.
pub(crate) fn value_of(text: &str) -> Value {
    match format!("v = {text}\n").parse::<Table>() {
        Ok(mut table) if table.len() == 1 => table.remove("v").unwrap_or_else(|| Value::String(text.to_string())),
        _ => Value::String(text.to_string()),
    }
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
