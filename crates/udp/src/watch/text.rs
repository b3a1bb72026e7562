//! OpenMetrics text, version 1.0.0.

use super::Snapshot;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, and begins at zero with its part. Samples have the suffix `_total`.
    Counter,
    /// It may take any value.
    Gauge,
}

/// A family of samples: one quantity.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without `_total`; base units (`_seconds`, `_bytes`) are part of it.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
}

/// Defines families as statics: for each its constant, its name without `strandway_`, its [`Kind`], and its sentence.
///
/// ```
/// strandway_udp::families! {
///     SENT "plane_sent_bytes" Counter "Bytes sent."
/// }
/// assert_eq!(SENT.name, "strandway_plane_sent_bytes");
/// ```
#[macro_export]
macro_rules! families {
    ($($constant:ident $name:literal $kind:ident $help:literal)*) => {
        $(static $constant: $crate::watch::Family = $crate::watch::Family {
            name: concat!("strandway_", $name),
            kind: $crate::watch::Kind::$kind,
            help: $help,
        };)*
    };
}

/// One value of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The family.
    pub family: &'static Family,
    /// Names and values of labels, in this order.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

impl Sample {
    /// A sample with these labels.
    pub fn new(family: &'static Family, labels: &[(&'static str, String)], value: f64) -> Sample {
        Sample { family, labels: labels.to_vec(), value }
    }
}

/// All samples, family by family, in the order of the families' names.
pub fn text(snapshots: &[Snapshot]) -> String {
    let mut families: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in snapshots.iter().flat_map(|snapshot| &snapshot.samples) {
        families.entry(sample.family.name).or_default().push(sample);
    }
    let mut text = String::new();
    for (name, samples) in families {
        let Some(Sample { family, .. }) = samples.first() else { continue };
        let (kind, suffix) = match family.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        let unit = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")));
        if let Some(unit) = unit {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {}", escaped(family.help));
        for sample in samples {
            let labels = sample.labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
            let labels = labels.collect::<Vec<_>>().join(",");
            let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            let _ = writeln!(text, "{name}{suffix}{braces} {}", sample.value);
        }
    }
    text.push_str("# EOF\n");
    text
}

/// A text with the characters escaped that would end it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
