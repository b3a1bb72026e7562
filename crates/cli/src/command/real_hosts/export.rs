//! `strandway fabric export`.

use crate::Failure;
use crate::args::{FabricExportArgs, SystemChoice};
use crate::command::load_with;
use crate::outputs::{Outputs, Wanted};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use strandway_import::nearest;
use strandway_lab::Scenario;
use strandway_testbed::linux::{self, Export, Limits, System};

/// The file that lists the files of an export.
const REPORT: &str = "export.json";

pub(crate) fn export(args: &FabricExportArgs) -> Result<(), Failure> {
    let limits = limits(args)?;
    let file = args.limits.as_ref().map_or("--limit".to_string(), |file| file.display().to_string());
    let scenario = load_with(&args.scenario, &args.set)?;
    let mut outputs = Outputs::open(Wanted { json: args.json.as_ref(), ..Wanted::default() }, &scenario.inputs())?;
    let system = match args.to {
        SystemChoice::Infragraph => return infragraph(args, &scenario, outputs),
        SystemChoice::Sonic => System::Sonic,
        SystemChoice::Frr => System::Frr,
        SystemChoice::Eos => System::Eos,
        SystemChoice::Containerlab => System::Containerlab,
    };
    let (fabric, export) = linux::export(&scenario, &args.name, system, &limits, &file)?;
    let switches = fabric.nodes().len() - usize::from(fabric.hosts);
    let report = json!({
        "format": 1, "system": system, "fabric": fabric.name, "switches": switches, "hosts": fabric.hosts,
        "needs": export.needs, "gaps": export.gaps, "files": export.files.keys().collect::<Vec<_>>(),
    });
    if let Some(folder) = &args.out {
        write(folder, &export.files, &format!("{report:#}\n"))?;
    }
    outputs.show(&text(&export, system, switches, usize::from(fabric.hosts), args.out.as_deref()));
    outputs.json(|| format!("{report:#}\n"))
}

/// Writes the fabric and the servers as a document of InfraGraph.
fn infragraph(args: &FabricExportArgs, scenario: &Scenario, mut outputs: Outputs) -> Result<(), Failure> {
    if args.limits.is_some() || !args.limit.is_empty() {
        return Err(Failure::Usage(
            "--limits and --limit: a document of InfraGraph has no tables; leave them out".into(),
        ));
    }
    let made = scenario.to_infragraph()?;
    let name = format!("{}.yaml", args.name);
    let (hosts, switches) = (made.document.instances[0].count, made.document.instances.len() - 1);
    let text = made.document.to_yaml();
    let gaps: Vec<Value> = made.gaps.iter().map(|what| json!({ "what": what })).collect();
    let report = json!({
        "format": 1, "system": "infragraph", "fabric": args.name, "switches": switches, "servers": hosts, "gaps": gaps,
        "files": [&name],
    });
    let place = match &args.out {
        Some(folder) => {
            write(folder, &BTreeMap::from([(name, text.clone())]), &format!("{report:#}\n"))?;
            format!("in {}", folder.display())
        }
        None => "not written; name a folder: --out DIR".into(),
    };
    let links = made.document.edges.len();
    let mut shown = format!(
        "infragraph: {switches} switches, {hosts} servers, {links} links; 1 file of {} B, {place}\n\nnot in the document:\n",
        text.len()
    );
    made.gaps.iter().for_each(|gap| shown.push_str(&format!("- {gap}\n")));
    outputs.show(&shown);
    outputs.json(|| format!("{report:#}\n"))
}

/// The sizes of the file, and those of the flags, which replace them.
fn limits(args: &FabricExportArgs) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    let known = Limits::KEYS.join(", ");
    let mut put = |place: &str, key: &str, value: &str, number: Option<u64>| {
        let Some(limit) = limits.get_mut(key) else {
            let near = nearest(key, Limits::KEYS).map_or(String::new(), |near| format!("did you mean `{near}`? "));
            return Err(Failure::Usage(format!(
                "{place}: {key} = {value}: is no size of a switch; {near}known: {known}"
            )));
        };
        *limit = Some(number.ok_or_else(|| {
            Failure::Usage(format!("{place}: {key} = {value}: is no whole number; write, say, {key} = 4096"))
        })?);
        Ok(())
    };
    if let Some(file) = &args.limits {
        let place = file.display().to_string();
        let text = fs::read_to_string(file).map_err(|e| Failure::Usage(format!("{place}: cannot be read: {e}")))?;
        let table: toml::Table =
            text.parse().map_err(|e: toml::de::Error| Failure::Usage(format!("{place}: {}", e.message())))?;
        for (key, value) in &table {
            put(&place, key, &value.to_string(), value.as_integer().and_then(|number| u64::try_from(number).ok()))?;
        }
    }
    for limit in &args.limit {
        let Some((key, value)) = limit.split_once('=') else {
            return Err(Failure::Usage(format!("--limit {limit}: write KEY=NUMBER, say routes=4096; keys: {known}")));
        };
        put("--limit", key, value, value.parse().ok())?;
    }
    Ok(limits)
}

/// Writes all files, and removes those of an earlier export that this one does not have.
fn write(folder: &Path, files: &BTreeMap<String, String>, report: &str) -> Result<(), Failure> {
    let fail = |path: &Path, e: std::io::Error| Failure::Run(format!("{}: cannot be written: {e}", path.display()));
    let earlier: BTreeSet<String> = fs::read_to_string(folder.join(REPORT))
        .ok()
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .and_then(|report| report["files"].as_array().cloned())
        .unwrap_or_default()
        .iter()
        .filter_map(|file| file.as_str().map(String::from))
        // A report that someone has edited must not lead out of the folder.
        .filter(|file| Path::new(file).components().all(|part| matches!(part, std::path::Component::Normal(_))))
        .collect();
    for gone in earlier.iter().filter(|file| !files.contains_key(*file)) {
        let _ = fs::remove_file(folder.join(gone));
        if let Some(parent) = Path::new(gone).parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // It goes if nothing else is in it.
            let _ = fs::remove_dir(folder.join(parent));
        }
    }
    for (file, text) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|e| fail(parent, e))?;
        fs::write(&path, text).map_err(|e| fail(&path, e))?;
    }
    let path = folder.join(REPORT);
    fs::write(&path, report).map_err(|e| fail(&path, e))
}

/// The report as text.
fn text(export: &Export, system: System, switches: usize, hosts: usize, folder: Option<&Path>) -> String {
    let count = export.files.len();
    let bytes: usize = export.files.values().map(String::len).sum();
    let place =
        folder.map_or("not written; name a folder: --out DIR".to_string(), |folder| format!("in {}", folder.display()));
    let name = system.name();
    let mut text = format!("{name}: {switches} switches, {hosts} hosts; {count} files of {bytes} B, {place}\n\n");
    text.push_str(&format!("{:<8} {:<12} {:>14} {:>14}\n", "size", "most at", "needs", "limit"));
    for need in &export.needs {
        let has = need.has.map_or("not known".to_string(), |has| has.to_string());
        text.push_str(&format!("{:<8} {:<12} {:>14} {has:>14}\n", need.key, need.switch, need.needs));
    }
    text.push_str(&format!("\nnot in the files of {name}:\n"));
    for gap in &export.gaps {
        text.push_str(&format!("- {}: {}. Instead: {}.\n", gap.what, gap.why, gap.instead));
    }
    text
}
