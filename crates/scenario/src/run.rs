//! `[run]`: seed, threads, time limit, sampling and capture.

use crate::reader::{Section, Sink};
use crate::reduction::divisors;
use std::sync::Arc;
use strandway_fabric::Topology;
use strandway_fabric::plan::CapturePlan;
use strandway_proto::profile::{Profile, WireFormat};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::units::Span;
use toml::{Table, Value};

/// The keys of `[run]`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) time_limit: Option<Span>,
    pub(crate) sample: Sample,
    /// The name of the flow whose connection is watched.
    pub(crate) watch: Option<String>,
    /// Record how the time of each flow is divided; by default, if there are not too many flows.
    pub(crate) why: Option<bool>,
    /// Keep an entry for every message, however many there are.
    pub(crate) rows: bool,
    /// Run each job alone, too.
    pub(crate) alone: bool,
    /// Run once more without the faults.
    pub(crate) healthy: bool,
    pub(crate) capture: Option<String>,
    pub(crate) capture_limit: usize,
    pub(crate) capture_layout: CaptureLayout,
}

/// The bytes of packets in a capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureLayout {
    /// Those of each profile's wire format.
    #[default]
    Profile,
    /// Ultra Ethernet Transport's, for profiles with the fields of UEC.
    Uet,
}

/// The interval of time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// Not given: no time series, unless a report with plots needs them.
    Unset,
    /// About 200 points.
    Auto,
    /// With this interval.
    Every(Span),
}

pub(crate) fn read(sink: &Sink, root: &Table) -> Run {
    let section = Section::of(sink, root, "run");
    let seed = section.count("seed", 0, i64::MAX as u64).unwrap_or(1);
    let threads = match section.raw("threads") {
        Some(Value::String(text)) if text == "auto" => std::thread::available_parallelism().map_or(1, usize::from),
        Some(_) => section.count("threads", 1, 1024).unwrap_or(1) as usize,
        None => 1,
    };
    let time_limit = section.span("time_limit");
    if time_limit == Some(Span::ZERO) {
        section.wrong("time_limit", "must be above zero", "write, say, \"10 ms\"");
    }
    let sample = match section.raw("sample") {
        None => Sample::Unset,
        Some(Value::String(text)) if text == "auto" => Sample::Auto,
        Some(_) => match section.span("sample") {
            Some(span) if span < Span::from_ns(10) => {
                section.wrong("sample", "must be at least 10 ns", "write \"auto\" or, say, \"1 us\"");
                Sample::Unset
            }
            Some(span) => Sample::Every(span),
            None => Sample::Unset,
        },
    };
    let watch = section.text("watch");
    let why = section.flag("why");
    let rows = section.flag("rows").unwrap_or(false);
    let alone = section.flag("alone").unwrap_or(false);
    let healthy = section.flag("healthy").unwrap_or(false);
    // `Scenario::approximate` acts on it, before there is an experiment.
    if let Some(value) = section.raw("approximate")
        && *value != Value::Boolean(false)
        && divisors(value).is_none()
    {
        section.wrong(
            "approximate",
            "is no true or false, and no list of divisors",
            "write true or, say, [16, 24, 32]",
        );
    }
    let capture = section.text("capture");
    let capture_limit = section.count("capture_limit", 1, 100_000_000).unwrap_or(1_000_000) as usize;
    let capture_layout = match section.choice("capture_layout", &["profile", "uet"]) {
        Some("uet") => CaptureLayout::Uet,
        _ => CaptureLayout::Profile,
    };
    section.finish();
    Run { seed, threads, time_limit, sample, watch, why, rows, alone, healthy, capture, capture_limit, capture_layout }
}

/// Complains if the captures of a profile cannot have this layout.
pub(crate) fn check_capture_layout(sink: &Sink, layout: CaptureLayout, profiles: &[Arc<Profile>]) {
    let fits = |profile: &&Arc<Profile>| {
        profile.wire == WireFormat::Uec && matches!(profile.reliability, ReliabilityConfig::SelectiveRepeat(_))
    };
    if let (CaptureLayout::Uet, Some(profile)) = (layout, profiles.iter().find(|profile| !fits(profile))) {
        let what = format!("is for selective repeat with the fields of UEC, and a profile is \"{}\"", profile.name);
        sink.add("run.capture_layout", "\"uet\"", what, "use the profiles uec or prime, or leave it out");
    }
}

/// The links that `name` means: those of a host in both directions, or one link.
///
/// # Errors
/// A sentence and a remedy, if there is no such link or host.
pub(crate) fn capture(name: &str, limit: usize, topology: &Topology) -> Result<CapturePlan, (String, String)> {
    let links = super::targets::links_named(topology, name)?;
    Ok(CapturePlan { links, limit })
}
