//! `[profile.evs]`: the entropy values of MRC's connections (OCP MRC 1.0: EV profiles).

use crate::reader::{Section, Sink, show};
use strandway_fabric::Topology;
use strandway_proto::path::{EVS_MAX, EvField, EvProfile, PathConfig};
use strandway_proto::{PathId, Profile};
use toml::Value;

/// All keys, of every mode.
const KEYS: [&str; 4] = ["mode", "list", "fields", "count"];

/// The keys of a field.
const FIELD_KEYS: [&str; 5] = ["width", "init", "min", "max", "mask"];

/// Reads the profile; [`EvProfile::Auto`] after an error.
pub(crate) fn read(sink: &Sink, value: &Value, path: &PathConfig) -> EvProfile {
    let Value::Table(table) = value else {
        sink.add(
            "profile.evs",
            show(value),
            "must be a table",
            "write a section [profile.evs] with mode = \"explicit\"",
        );
        return EvProfile::Auto;
    };
    let section = Section::new(sink, "profile.evs", Some(table));
    if !matches!(path, PathConfig::Mrc(_)) {
        let what = format!("the path selector `{}` has no entropy values of its own", path.name());
        sink.add("profile.evs", "", what, "leave it out, or write path = \"mrc\" in [profile]");
    }
    let mode = section.choice("mode", &["auto", "explicit", "generated"]);
    if !section.has("mode") {
        sink.add("profile.evs.mode", "", "is missing", "write auto, explicit or generated");
    }
    let profile = match mode {
        Some("explicit") => list(&section).map(EvProfile::Explicit),
        Some("generated") => {
            let count = section.count("count", 1, EVS_MAX as u64).unwrap_or(256) as u32;
            fields(&section).map(|fields| EvProfile::Generated { fields, count })
        }
        _ => None,
    };
    let profile = profile.unwrap_or_default();
    if let Err(said) = profile.check() {
        sink.add("profile.evs", "", said, "see docs/scenario.md for the fields");
    }
    section.finish_knowing(KEYS);
    profile
}

/// `list = ["p0:3", "p1:0"]`: planes and numbers of paths.
fn list(section: &Section<'_>) -> Option<Vec<PathId>> {
    let remedy = "write list = [\"p0:3\", \"p1:0\"]: plane and number of each path";
    let Some(value) = section.raw("list") else {
        section.sink.add(&section.path("list"), "", "is missing", remedy);
        return None;
    };
    let named = |text: &str| -> Option<PathId> {
        let (plane, number) = text.strip_prefix('p')?.split_once(':')?;
        let (plane, number): (u8, u32) = (plane.parse().ok()?, number.parse().ok()?);
        (number < 1 << 24).then(|| PathId::new(plane, number))
    };
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let paths: Option<Vec<PathId>> = items.iter().map(|item| named(item.as_str()?)).collect();
    if paths.is_none() || items.is_empty() {
        section.wrong("list", "is no list of entropy values", remedy);
        return None;
    }
    paths
}

/// `fields = [{ width = 4, mask = 0x1 }, { width = 12, mask = 0xf }]`, the most significant first.
fn fields(section: &Section<'_>) -> Option<Vec<EvField>> {
    let remedy = "write fields = [{ width = 4, mask = 0x1 }, { width = 12, mask = 0xf }]";
    let Some(value) = section.raw("fields") else {
        section.sink.add(&section.path("fields"), "", "is missing", remedy);
        return None;
    };
    let tables: Option<Vec<&toml::Table>> =
        value.as_array().and_then(|items| items.iter().map(Value::as_table).collect());
    let Some(tables) = tables else {
        section.wrong("fields", "must be a list of tables", remedy);
        return None;
    };
    let field = |(at, table): (usize, &toml::Table)| {
        let field = Section::new(section.sink, format!("profile.evs.fields[{at}]"), Some(table));
        let number = |key| field.count(key, 0, u64::from(u32::MAX)).map(|n| n as u32);
        let mask = number("mask").unwrap_or(0);
        let room = ((1u64 << mask.count_ones()) - 1) as u32;
        let width = field.count("width", 1, 32);
        if width.is_none() && !field.has("width") {
            field.sink.add(&field.path("width"), "", "is missing", "write its number of bits");
        }
        let (init, min, max) = (number("init").unwrap_or(0), number("min").unwrap_or(0), number("max").unwrap_or(room));
        field.finish_knowing(FIELD_KEYS);
        width.map(|width| EvField { width: width as u8, init, min, max, mask })
    };
    tables.into_iter().enumerate().map(field).collect()
}

/// Checks that the fabric has the paths of the profile.
pub(crate) fn fit(sink: &Sink, profile: &Profile, topology: &Topology) {
    let Some(paths) = profile.evs.paths() else { return };
    let first = if topology.sites() > 0 { topology.shape().leaf_bundle } else { topology.leaf_up() };
    let second = topology.spine_up().max(1);
    let bits = first.next_power_of_two().ilog2();
    let there = |path: &PathId| {
        let entropy = path.entropy();
        path.port() < topology.planes() && entropy & ((1 << bits) - 1) < first && entropy >> bits < second
    };
    if let Some(path) = paths.iter().find(|path| !there(path)) {
        let shown = format!("p{}:{}", path.port(), path.entropy());
        let ways = match second {
            1 => format!("0 to {}", first - 1),
            _ => format!(
                "an uplink of the leaf below {first}, plus {} times one of the switch above below {second}",
                1u32 << bits
            ),
        };
        let what =
            format!("is no path of this fabric of {} planes; the numbers of paths are {ways}", topology.planes());
        sink.add("profile.evs", shown, what, "correct the list or the fields, or raise fabric.spines");
    }
}
