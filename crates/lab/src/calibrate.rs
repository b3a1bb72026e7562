//! Fits a few physical constants of a scenario to measured points of collectives, by least squares of relative errors.
//!
//! Every other point of a kind and number of ranks is fitted; the others are predicted. A point's time is that of a
//! simulation of the scenario with this collective.

mod fit;
mod model;

use crate::check;
use fit::Fit;
use model::{Asked, Model};
use std::collections::BTreeMap;
use strandway_fabric::quantity;
use strandway_import::measured::Measured;
use strandway_import::trace::Kind;
use strandway_import::{Problem, Problems};
use strandway_report::calibrated::{Calibrated, CalibratedPoint, FittedConstant};
use strandway_scenario::Scenario;

/// A constant that can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// The rate that a NIC reaches.
    Rate,
    /// The latency of a link.
    Latency,
    /// The time that a host needs to post a message.
    MessageCost,
    /// The rate of the links inside a server, per GPU.
    Nvlink,
    /// The latency of a step inside a server.
    NvlinkLatency,
}

impl Constant {
    /// All of them. If points do not tell two of them apart, the first one is fitted.
    pub const ALL: [Constant; 5] =
        [Constant::Rate, Constant::Latency, Constant::MessageCost, Constant::Nvlink, Constant::NvlinkLatency];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The key of a scenario.
    pub fn key(self) -> &'static str {
        self.row().1
    }

    fn meaning(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Constant::Rate => ("rate", "fabric.rate", "rate that a NIC reaches"),
            Constant::Latency => ("latency", "fabric.latency", "latency of a link"),
            Constant::MessageCost => ("message_cost", "fabric.message_cost", "time of a host per message"),
            Constant::Nvlink => ("nvlink", "servers.rate", "rate of the links inside a server, per GPU"),
            Constant::NvlinkLatency => ("nvlink_latency", "servers.latency", "latency of a step inside a server"),
        }
    }

    fn is_rate(self) -> bool {
        matches!(self, Constant::Rate | Constant::Nvlink)
    }

    fn is_inside(self) -> bool {
        matches!(self, Constant::Nvlink | Constant::NvlinkLatency)
    }

    /// The least and the largest value: bit/s, or ns.
    fn range(self) -> (f64, f64) {
        match self {
            Constant::Rate | Constant::Nvlink => (1e6, 1e14),
            Constant::Latency | Constant::NvlinkLatency => (1.0, 1e8),
            Constant::MessageCost => (1.0, 1e9),
        }
    }

    /// A value with four digits, as a scenario has it. The least message cost stands for none.
    fn text(self, value: f64) -> String {
        let digits = 3 - value.max(1e-9).log10().floor() as i32;
        let scale = 10f64.powi(digits);
        let value = (value * scale).round() / scale;
        let shown = |value: f64, unit: &str| {
            let mut text = format!("{value:.4}");
            text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
            format!("{text} {unit}")
        };
        match self {
            Constant::MessageCost if value <= 1.0 => "0 ns".into(),
            _ if self.is_rate() && value >= 1e9 => shown(value / 1e9, "Gbps"),
            _ if self.is_rate() => shown(value / 1e6, "Mbps"),
            _ if value >= 1e3 => shown(value / 1e3, "us"),
            _ => shown(value, "ns"),
        }
    }
}

/// A question to [`calibrate`].
#[derive(Clone, Debug)]
pub struct CalibrateQuestion {
    /// The measured points, half of which are fitted.
    pub measured: Measured,
    /// More points, all of which are predicted.
    pub predict: Vec<Measured>,
    /// The constants to fit; empty: all that the points tell.
    pub fit: Vec<Constant>,
    /// The kind of collective, if a file does not say it.
    pub kind: Option<Kind>,
    /// The number of ranks, if a file does not say it.
    pub ranks: Option<u32>,
    /// Larger sizes are not simulated: they are extended in a straight line.
    pub size_max: u64,
    /// Simulations at the same time.
    pub jobs: usize,
}

/// Fits constants of `scenario`. `stopped` is asked between simulations.
///
/// # Errors
/// If the scenario is wrong or has several workloads, a point cannot be simulated, there are too few points, or the
/// caller stops it.
pub fn calibrate(
    scenario: &Scenario,
    question: &CalibrateQuestion,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Calibrated, Problems> {
    let model = Model::new(scenario, question, stopped)?;
    let experiment = check(&model.bare()?)?;
    let own = |constant: Constant| match constant {
        Constant::Rate => experiment.derived.rate.0 as f64,
        Constant::Latency => experiment.plan.topology.level(0).latency.0 as f64 / 1e3,
        Constant::MessageCost => experiment.plan.ports.message_cost.0 as f64 / 1e3,
        Constant::Nvlink => written(scenario, constant).unwrap_or(3.6e12),
        Constant::NvlinkLatency => written(scenario, constant).unwrap_or(1e3),
    };
    let servers = scenario.value("servers").is_some();
    let wanted = if question.fit.is_empty() { Constant::ALL.to_vec() } else { question.fit.clone() };
    let (fits, mut notes): (Vec<Constant>, Vec<String>) =
        (wanted.into_iter().filter(|constant| servers || !constant.is_inside()).collect(), Vec::new());
    let asked = points(question, &experiment.name)?;
    let fitted: Vec<&Asked> = asked.iter().filter(|one| one.fitted).collect();
    let before: BTreeMap<&'static str, String> =
        fits.iter().map(|constant| (constant.key(), constant.text(own(*constant).max(constant.range().0)))).collect();
    let mut fit = Fit::new(&model, &fitted, &fits, &own);
    fit.run()?;
    notes.append(&mut fit.notes);
    for measured in std::iter::once(&question.measured).chain(&question.predict) {
        notes.extend(measured.assumed.iter().map(|one| format!("{}: {one}", measured.file)));
    }
    notes.extend(model.notes(&asked));
    let values = fit.texts();
    let (now, then) = (model.times(&values, &asked)?, model.times(&[], &asked)?);
    let constants =
        fit.constants.iter().zip(&values).zip(fit.errors()).map(|((constant, (key, value)), error)| FittedConstant {
            name: constant.name().into(),
            key: (*key).into(),
            meaning: constant.meaning().into(),
            before: before[key].clone(),
            value: value.clone(),
            error,
        });
    let points = asked.iter().zip(now.iter().zip(&then)).map(|(one, (now, then))| CalibratedPoint {
        file: one.file.clone(),
        kind: one.kind.name().into(),
        ranks: one.ranks,
        bytes: one.bytes,
        measured_us: one.us,
        before_us: *then,
        simulated_us: *now,
        fitted: one.fitted,
        extended: one.bytes > question.size_max,
    });
    let named = |measured: &Measured| format!("{} ({})", measured.file, measured.format);
    Ok(Calibrated {
        format: 1,
        scenario: experiment.name.clone(),
        measured: vec![named(&question.measured)],
        constants: constants.collect(),
        notes,
        points: points.collect(),
    })
}

/// A constant that the scenario has as a key: bit/s, or ns.
fn written(scenario: &Scenario, constant: Constant) -> Option<f64> {
    let value = scenario.value(constant.key())?;
    let text = value.as_str()?;
    match constant.is_rate() {
        true => quantity::rate(text).ok().map(|rate| rate.0 as f64),
        false => quantity::span(text).ok().map(|span| span.0 as f64 / 1e3),
    }
}

/// All points with their kinds and ranks, and which are fitted: of each kind and number of ranks the first size, the
/// third, and so on.
fn points(question: &CalibrateQuestion, scenario: &str) -> Result<Vec<Asked>, Problems> {
    let wrong = |file: &str, what: &str, remedy: &str| Problems::with_file(file, what, remedy);
    let mut asked = Vec::new();
    for (place, measured) in std::iter::once(&question.measured).chain(&question.predict).enumerate() {
        let mut counts: BTreeMap<(Kind, u32), usize> = BTreeMap::new();
        for point in &measured.points {
            let Some(kind) = point.kind.or(question.kind) else {
                return Err(wrong(
                    &measured.file,
                    "does not say its collective",
                    "write --collective all-gather, or another",
                ));
            };
            let Some(ranks) = point.ranks.or(question.ranks) else {
                return Err(wrong(&measured.file, "does not say its number of ranks", "write --ranks N"));
            };
            let count = counts.entry((kind, ranks)).or_insert(0);
            let fitted = place == 0 && count.is_multiple_of(2);
            *count += 1;
            let file = measured.file.clone();
            asked.push(Asked { file, kind, ranks, bytes: point.bytes, us: point.us, fitted });
        }
    }
    if asked.iter().filter(|one| one.fitted).count() < 2 {
        let what = format!("has too few points for constants of {scenario}");
        return Err(Problems(vec![Problem { file: question.measured.file.clone(), what, ..Problem::default() }]));
    }
    Ok(asked)
}

#[cfg(test)]
mod tests;
