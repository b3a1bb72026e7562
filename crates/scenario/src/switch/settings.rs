//! The section `[switch]`, and descriptions of jobs whose gradients switches add.

use crate::reader::{Section, Sink};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span, Time};
use strandway_switch::{Aging, Esa, Index, Layer, Policy, Priorities, Refresh, ResultPath, Settings, Sharing, System};
use toml::Table;

/// Bytes of a slot: 62 lanes of 4 bytes, and 16 further bytes (ESA sheet, section 3.1).
const SLOT_LANES: u64 = 62;
const SLOT_META: u64 = 16;

/// Limit on the slots of a switch.
const SLOTS_MAX: u64 = 1 << 24;

/// The checked section `[switch]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switch {
    pub(super) settings: Settings,
    pub(super) priorities: Priorities,
    pub(super) index: Index,
    pub(super) window: u32,
    pub(super) lanes: u16,
    pub(super) header: u16,
    pub(super) control: u16,
}

impl Switch {
    /// Bytes of numbers in a fragment.
    pub(super) fn payload(&self) -> u64 {
        4 * u64::from(self.lanes)
    }
}

/// Reads `[switch]`; absent keys have their default values.
pub(crate) fn read(sink: &Sink, root: &Table, seed: u64) -> Switch {
    let section = Section::of(sink, root, "switch");
    let system = section.choice("system", &["esa", "atp", "switchml"]).unwrap_or("esa");
    let lanes = section.count("lanes", 1, 8192).unwrap_or(SLOT_LANES) as u16;
    let memory = section.bytes("memory");
    let slots = section.count("slots", 1, SLOTS_MAX);
    if memory.is_some() && slots.is_some() {
        section.wrong("slots", "is given together with `memory`", "write one of the two");
    }
    let slot = 4 * u64::from(lanes) + SLOT_META;
    let slots = slots.unwrap_or(memory.unwrap_or(Bytes(5 << 20)).0 / slot).clamp(1, SLOTS_MAX) as u32;
    let of_one: [(&str, &str); 12] = [
        ("results", "esa"),
        ("aging", "esa"),
        ("refresh", "esa"),
        ("priority", "esa"),
        ("priority_bits", "esa"),
        ("priority_steps", "esa"),
        ("priority_reference", "esa"),
        ("flush_timer", "esa"),
        ("readdress", "atp"),
        ("halve_on_reordering", "atp"),
        ("strict_order", "switchml"),
        ("exponents", "switchml"),
    ];
    for (key, of) in of_one.into_iter().filter(|(key, of)| section.has(key) && *of != system) {
        section.wrong(key, format!("is for system = \"{of}\""), "leave it out");
    }
    let results = match section.choice("results", &["direct", "via_ps_free", "via_ps"]) {
        Some("via_ps_free") => ResultPath::ViaServerFree,
        Some("via_ps") => ResultPath::ViaServer,
        _ => ResultPath::Direct,
    };
    let aging = match section.choice("aging", &["idle", "halve", "half_per_rtt", "off"]) {
        Some("halve") => Aging::Halve,
        Some("half_per_rtt") => Aging::HalfPer(Span::from_us(11)),
        Some("off") => Aging::Off,
        _ => Aging::Idle,
    };
    let refresh = match section.choice("refresh", &["max", "keep"]) {
        Some("keep") => Refresh::Keep,
        _ => Refresh::Highest,
    };
    let strict_order = section.flag("strict_order").unwrap_or(true);
    let system = match system {
        "atp" => System::Atp,
        "switchml" => System::SwitchMl { strict_order },
        _ => System::Esa(Esa { results, aging, refresh }),
    };
    let usual = Settings::new(system, slots);
    let mut pace = usual.pace;
    if let Some(mpps) = section.ratio("server_mpps", 0.001, 1e4) {
        pace.service = Span((1e6 / mpps).round() as u64);
    }
    pace.turnaround = section.span("server_turnaround").unwrap_or(pace.turnaround);
    let settings = Settings {
        window: section.count("window_start", 1, 1 << 20).map_or(usual.window, |n| n as u32),
        out_of_order: section.count("out_of_order", 0, 1 << 16).map_or(usual.out_of_order, |n| n as u32),
        timeout: section.span("timeout").unwrap_or(usual.timeout),
        flush_timer: section.flag("flush_timer").unwrap_or(true),
        readdress: section.flag("readdress").unwrap_or(true),
        halves: section.flag("halve_on_reordering").unwrap_or(false),
        exponents: section.flag("exponents").unwrap_or(false),
        pace,
        seed,
        ..usual
    };
    let policy = section.choice("priority", &Policy::NAMES).and_then(Policy::named).unwrap_or_default();
    let standard = Priorities::default();
    let priorities = Priorities {
        policy,
        steps: section.ratio("priority_steps", 0.1, 64.0).unwrap_or(standard.steps),
        reference: section.span("priority_reference").unwrap_or(standard.reference),
        bits: section.count("priority_bits", 1, 8).map_or(standard.bits, |n| n as u32),
        salt: seed,
    };
    let index = match section.choice("index", &["list", "per_seq_hash"]) {
        Some("per_seq_hash") => Index::PerKey,
        _ => Index::List,
    };
    let window = section.count("window", 1, 1 << 16).unwrap_or(1024) as u32;
    let small = |key: &'static str, usual: u64| {
        let bytes = section.bytes(key).map_or(usual, |bytes| bytes.0);
        if bytes == 0 || bytes > 9000 {
            section.wrong(key, "is no size of a header", "write 1 B to 9 kB");
        }
        bytes.clamp(1, 9000) as u16
    };
    // ESA sheet, section 13.2: 306 bytes for 62 lanes and 64 for control packets; the wire adds 24 and 20.
    let header = small("header", 82);
    let control = small("control", 84);
    if settings.timeout == Span::ZERO {
        section.wrong("timeout", "must be above zero", "write, say, \"1 ms\"");
    }
    section.finish();
    Switch { settings, priorities, index, window, lanes, header, control }
}

/// The description of a job, made before all jobs are known.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(super) hosts: Vec<HostId>,
    pub(super) server: HostId,
    pub(super) group: u32,
    pub(super) sharing: Sharing,
    pub(super) layers: Vec<Layer>,
    pub(super) iterations: u32,
    pub(super) start: Time,
    pub(super) jitter: f64,
    pub(super) noise: f64,
    /// The all-gather by multicast that it keeps step with, by its index among the operations.
    pub(super) beside: Option<usize>,
}

impl Spec {
    /// The host of its parameter server.
    pub(crate) fn server(&self) -> u32 {
        self.server.0
    }

    /// Makes workers begin when a script says so, not at a fixed time.
    pub(crate) fn begin_when_told(&mut self) {
        self.start = Time::NEVER;
    }

    /// Makes results go to this multicast group.
    pub(crate) fn join(&mut self, group: u32) {
        self.group = group;
    }
}
