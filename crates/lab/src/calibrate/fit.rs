//! Least squares by Levenberg and Marquardt: logarithms of constants, logarithms of times.

use super::Constant;
use super::model::{Asked, Model};
use strandway_import::Problems;

/// Limit on rounds: ours. Eight are usual.
const ROUNDS_MAX: usize = 30;
/// A change of a constant's logarithm that tells its effect.
const STEP: f64 = 0.03;
/// The change when the first one leads nowhere any more.
const STEP_AT_LAST: f64 = 0.008;
/// The value from which a message cost is sought, if the scenario has none: this share of the shortest time.
const COST_AT_FIRST: f64 = 0.05;
/// The first values of a message's cost beside that one, as factors.
const COSTS_AT_FIRST: [f64; 3] = [1.0, 0.1, 4.0];
/// A constant must change the times of points by at least this share of its own change, on average.
const EFFECT_MIN: f64 = 0.005;
/// A constant must have at least this share of its effect to itself.
const ALONE_MIN: f64 = 0.08;

/// A fit under way.
pub(super) struct Fit<'a> {
    model: &'a Model<'a>,
    points: &'a [&'a Asked],
    /// The constants that are fitted, and the logarithms of their values.
    pub(super) constants: Vec<Constant>,
    logs: Vec<f64>,
    /// The constants that are not fitted, and why.
    pub(super) notes: Vec<String>,
    residuals: Vec<f64>,
    /// By constant: the change of each point's logarithm.
    effects: Vec<Vec<f64>>,
    /// The change of a constant's logarithm that tells its effect.
    step: f64,
}

impl<'a> Fit<'a> {
    /// A fit that begins at the scenario's own values: bit/s, or ns.
    pub(super) fn new(
        model: &'a Model<'a>,
        points: &'a [&'a Asked],
        constants: &[Constant],
        own: &dyn Fn(Constant) -> f64,
    ) -> Fit<'a> {
        let shortest = points.iter().map(|point| point.us * 1e3).fold(f64::INFINITY, f64::min);
        let begin = |constant: &Constant| match (constant, own(*constant)) {
            (Constant::MessageCost, value) if value <= 1.0 => (COST_AT_FIRST * shortest).clamp(1.0, 1e9).ln(),
            (_, value) => value.clamp(constant.range().0, constant.range().1).ln(),
        };
        let logs = constants.iter().map(begin).collect();
        let (constants, notes, residuals, effects) = (constants.to_vec(), Vec::new(), Vec::new(), Vec::new());
        Fit { model, points, constants, logs, notes, residuals, effects, step: STEP }
    }

    /// The keys and values as a scenario has them.
    pub(super) fn texts(&self) -> Vec<(&'static str, String)> {
        self.texts_at(&self.logs)
    }

    fn texts_at(&self, logs: &[f64]) -> Vec<(&'static str, String)> {
        let pairs = self.constants.iter().zip(logs);
        pairs.map(|(constant, log)| (constant.key(), constant.text(log.exp()))).collect()
    }

    fn residuals_at(&self, logs: &[f64]) -> Result<Vec<f64>, Problems> {
        let times = self.model.times(&self.texts_at(logs), self.points.iter().copied())?;
        Ok(times.iter().zip(self.points).map(|(time, point)| (time / point.us).ln()).collect())
    }

    /// Measures the effect of each constant where the fit stands.
    fn measure(&mut self) -> Result<(), Problems> {
        self.effects.clear();
        for place in 0..self.logs.len() {
            let mut moved = self.logs.clone();
            moved[place] += self.step;
            let there = self.residuals_at(&moved)?;
            self.effects
                .push(there.iter().zip(&self.residuals).map(|(there, here)| (there - here) / self.step).collect());
        }
        Ok(())
    }

    /// Leaves constants out that the points do not tell.
    fn leave_out(&mut self) {
        let mut kept: Vec<(usize, Vec<f64>)> = Vec::new();
        for (place, constant) in self.constants.iter().enumerate() {
            let effect = &self.effects[place];
            let size = norm(effect);
            // From the least value on, a message cost is none.
            let is_least = self.logs[place] <= constant.range().0.ln() + 0.05;
            if is_least && *constant == Constant::MessageCost {
                self.notes.push(format!("{}: these points need none, and it keeps its value", constant.name()));
                continue;
            }
            if size < EFFECT_MIN * (self.points.len() as f64).sqrt() {
                self.notes.push(format!("{}: has no effect on these points, and keeps its value", constant.name()));
                continue;
            }
            let mut alone = effect.clone();
            for (_, other) in &kept {
                let share = dot(&alone, other);
                alone.iter_mut().zip(other).for_each(|(mine, theirs)| *mine -= share * theirs);
            }
            let left = norm(&alone);
            if left < ALONE_MIN * size {
                let nearest = kept.iter().max_by(|a, b| dot(effect, &a.1).abs().total_cmp(&dot(effect, &b.1).abs()));
                let nearest = nearest.map_or("others", |(other, _)| self.constants[*other].name());
                self.notes.push(format!(
                    "{}: these points do not tell it from {nearest}, and it keeps its value; --fit chooses",
                    constant.name()
                ));
                continue;
            }
            alone.iter_mut().for_each(|mine| *mine /= left);
            kept.push((place, alone));
        }
        let kept: Vec<usize> = kept.into_iter().map(|(place, _)| place).collect();
        self.constants = kept.iter().map(|place| self.constants[*place]).collect();
        self.logs = kept.iter().map(|place| self.logs[*place]).collect();
        self.effects = kept.iter().map(|place| std::mem::take(&mut self.effects[*place])).collect();
    }

    /// Fits.
    pub(super) fn run(&mut self) -> Result<(), Problems> {
        self.residuals = self.residuals_at(&self.logs)?;
        self.measure()?;
        self.leave_out();
        // With other values some constants may have no effect any more; then those that are left are fitted again.
        loop {
            self.descend_from_several()?;
            self.measure()?;
            let count = self.constants.len();
            self.leave_out();
            if self.constants.len() == count && !self.leave_out_one_unsure() {
                break;
            }
        }
        for (constant, log) in self.constants.iter().zip(&self.logs) {
            let (least, most) = constant.range();
            if log.exp() <= least * 1.01 || log.exp() >= most * 0.99 {
                self.notes.push(format!("{}: the fit ends at a limit of its range", constant.name()));
            }
        }
        Ok(())
    }

    /// Leaves the last constant out whose standard error is as large as its value. True if there was one.
    fn leave_out_one_unsure(&mut self) -> bool {
        let errors = self.errors();
        let unsure = errors.iter().rposition(|error| error.is_some_and(|error| error > 1.0));
        let Some(place) = unsure.filter(|_| self.constants.len() > 1) else { return false };
        let constant = self.constants.remove(place);
        self.logs.remove(place);
        let why = "these points leave its value open, and it keeps the scenario's";
        self.notes.push(format!("{}: {why}; --fit chooses", constant.name()));
        true
    }

    /// Goes downhill from several values of the message's cost, since one may lead into a hollow beside the lowest.
    fn descend_from_several(&mut self) -> Result<(), Problems> {
        let Some(cost) = self.constants.iter().position(|constant| *constant == Constant::MessageCost) else {
            return self.descend();
        };
        let (begin, mut best) = (self.logs.clone(), None::<(f64, Vec<f64>)>);
        for share in COSTS_AT_FIRST {
            self.logs.clone_from(&begin);
            self.logs[cost] += share.ln();
            self.descend()?;
            let error = norm(&self.residuals);
            if best.as_ref().is_none_or(|(least, _)| error < *least) {
                best = Some((error, self.logs.clone()));
            }
        }
        if let Some((_, logs)) = best {
            self.logs = logs;
            self.residuals = self.residuals_at(&self.logs)?;
        }
        Ok(())
    }

    /// Goes downhill until the errors do not become smaller, at last with effects of small changes.
    fn descend(&mut self) -> Result<(), Problems> {
        self.residuals = self.residuals_at(&self.logs)?;
        self.step = STEP;
        let mut damping = 1e-2;
        for _ in 0..ROUNDS_MAX {
            self.measure()?;
            let (mut better, before) = (false, norm(&self.residuals));
            for _ in 0..6 {
                let moved = self.moved(damping);
                let residuals = self.residuals_at(&moved)?;
                if norm(&residuals) < before {
                    (self.logs, self.residuals, better) = (moved, residuals, true);
                    damping = (damping / 5.0).max(1e-9);
                    break;
                }
                damping *= 6.0;
            }
            if better && norm(&self.residuals) < before * 0.99 {
                continue;
            }
            if self.step < STEP {
                break;
            }
            (self.step, damping) = (STEP_AT_LAST, 1e-3);
        }
        Ok(())
    }

    /// The constants after a step.
    fn moved(&self, damping: f64) -> Vec<f64> {
        let mut normal = self.normal();
        for (place, row) in normal.iter_mut().enumerate() {
            row[place] *= 1.0 + damping;
            row[place] += 1e-12;
        }
        let right: Vec<f64> = self.effects.iter().map(|effect| -dot(effect, &self.residuals)).collect();
        let step = solve(normal, right);
        let limited = self.logs.iter().zip(&step).zip(&self.constants).map(|((log, step), constant)| {
            let (least, most) = constant.range();
            (log + step.clamp(-1.5, 1.5)).clamp(least.ln(), most.ln())
        });
        limited.collect()
    }

    fn normal(&self) -> Vec<Vec<f64>> {
        self.effects.iter().map(|a| self.effects.iter().map(|b| dot(a, b)).collect()).collect()
    }

    /// One standard error of each constant, as a share of its value.
    pub(super) fn errors(&self) -> Vec<Option<f64>> {
        let (points, count) = (self.points.len(), self.constants.len());
        if points <= count {
            return vec![None; count];
        }
        let variance = dot(&self.residuals, &self.residuals) / (points - count) as f64;
        let of = |place: usize| {
            let unit = (0..count).map(|other| if other == place { 1.0 } else { 0.0 }).collect();
            let error = (variance * solve(self.normal(), unit)[place]).sqrt();
            Some(error).filter(|error| error.is_finite())
        };
        (0..count).map(of).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Solves a small system by elimination with the largest pivots.
fn solve(mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for column in 0..count {
        let pivot = (column..count).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()));
        let pivot = pivot.unwrap_or(column);
        rows.swap(column, pivot);
        right.swap(column, pivot);
        for below in column + 1..count {
            let factor = rows[below][column] / rows[column][column];
            let above = rows[column].clone();
            rows[below].iter_mut().zip(above).skip(column).for_each(|(mine, above)| *mine -= factor * above);
            right[below] -= factor * right[column];
        }
    }
    for column in (0..count).rev() {
        let known: f64 = (column + 1..count).map(|place| rows[column][place] * right[place]).sum();
        right[column] = (right[column] - known) / rows[column][column];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::solve;

    #[test]
    fn systems_are_solved() {
        let solved = solve(vec![vec![0.0, 2.0, 1.0], vec![1.0, 1.0, 0.0], vec![3.0, 0.0, 1.0]], vec![7.0, 3.0, 6.0]);
        for (got, wanted) in solved.iter().zip([1.0, 2.0, 3.0]) {
            assert!((got - wanted).abs() < 1e-12, "{solved:?}");
        }
    }
}
