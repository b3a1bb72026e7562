//! Numbers of a set that a model calculates, without any run.

use crate::model::{Inquiry, Rule, Scheme, SchemeFacts, ask};

/// What is asked of the model.
#[derive(Clone, Debug)]
pub(super) struct Modelled {
    /// The inquiry, about one scheme, by its command line; the order of models is that of these.
    command: String,
    inquiry: Inquiry,
    wanted: Wanted,
}

/// Which number of the answer.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// One of the scheme's, with its name in the answer's JSON.
    Facts(&'static str, fn(&SchemeFacts) -> f64),
    /// The distance in kilometres from which on the second scheme is faster on average than the first.
    Crossover,
}

impl PartialEq for Modelled {
    fn eq(&self, other: &Modelled) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Modelled {}

impl PartialOrd for Modelled {
    fn partial_cmp(&self, other: &Modelled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Modelled {
    fn cmp(&self, other: &Modelled) -> std::cmp::Ordering {
        (&self.command, self.key()).cmp(&(&other.command, other.key()))
    }
}

/// No distance beyond is looked at: half of the equator.
const KM_MAX: f64 = 20_000.0;

impl Modelled {
    fn new(inquiry: Inquiry, wanted: Wanted) -> Modelled {
        Modelled { command: inquiry.command(), inquiry, wanted }
    }

    /// The mean completion time of the only scheme.
    pub(super) fn mean(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("mean_us", |s| s.mean_us))
    }

    /// The 99.9th percentile of the only scheme's.
    pub(super) fn p999(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("p999_us", |s| s.p999_us))
    }

    /// The mean over the time without losses.
    pub(super) fn mean_slowdown(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("mean_slowdown", |s| s.mean_slowdown))
    }

    /// The 99.9th percentile over the time without losses.
    pub(super) fn p999_slowdown(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("p999_slowdown", |s| s.p999_slowdown))
    }

    /// The distance in kilometres, by the paper's rule, from which on the second of two schemes is faster than the first.
    pub(super) fn crossover(inquiry: Inquiry) -> Modelled {
        Modelled::new(Inquiry { rule: Rule::Paper, ..inquiry }, Wanted::Crossover)
    }

    /// The command line that shows it.
    pub(super) fn command(&self) -> String {
        match self.wanted {
            Wanted::Facts(..) => self.command.clone(),
            Wanted::Crossover => format!("{} --vary distance", self.command),
        }
    }

    /// Where it stands in the answer.
    pub(super) fn key(&self) -> &'static str {
        match self.wanted {
            Wanted::Facts(key, _) => key,
            Wanted::Crossover => "crossover_km",
        }
    }

    /// The number; none if the inquiry is not sound, which a test rules out.
    pub(super) fn calculate(&self) -> Option<f64> {
        match self.wanted {
            Wanted::Facts(_, of) => Some(of(ask(&self.inquiry).ok()?.rows.first()?.schemes.first()?)),
            Wanted::Crossover => {
                // Positive where the second is faster.
                let gain = |km: f64| -> Option<f64> {
                    let distance = Some(format!("{:.0} m", km * 1e3));
                    let answers = ask(&Inquiry { distance, ..self.inquiry.clone() }).ok()?;
                    let [first, second] = &answers.rows.first()?.schemes[..] else { return None };
                    Some(first.mean_us - second.mean_us)
                };
                let (mut low, mut high) = (1.0, KM_MAX);
                if gain(low)? > 0.0 || gain(high)? < 0.0 {
                    return None;
                }
                while high - low > 1.0 {
                    let middle = (low + high) / 2.0;
                    if gain(middle)? > 0.0 { high = middle } else { low = middle }
                }
                Some(high)
            }
        }
    }
}

/// The schemes that the paper compares.
pub(super) fn scheme(name: &str) -> Scheme {
    name.parse().unwrap_or_else(|_| panic!("`{name}` is a scheme"))
}
