//! Trials of one run share a broker, a machine and a moment. What differs from run to run is seen only over several runs.

use super::interval::{Bounded, Interval};
use super::special::student_quantile;

/// The mean of one estimate a run, with Student's interval over the runs; `None` of fewer than two runs.
#[must_use]
pub fn over_runs(estimates: &[f64], alpha: f64) -> Option<Bounded> {
    let (mean, variance) = moments(estimates)?;
    let n = estimates.len() as f64;
    let half = student_quantile(1.0 - alpha / 2.0, n - 1.0) * (variance / n).sqrt();
    Some(Bounded { value: mean, interval: Interval::around(mean, half) })
}

/// The difference b − a of two sets of runs that have nothing in common, by Welch's interval (1947); `None` where either
/// has fewer than two runs.
#[must_use]
pub fn between_sets(a: &[f64], b: &[f64], alpha: f64) -> Option<Bounded> {
    let ((mean_a, var_a), (mean_b, var_b)) = (moments(a)?, moments(b)?);
    let value = mean_b - mean_a;
    let half = welch_half_width((var_a / a.len() as f64, a.len()), (var_b / b.len() as f64, b.len()), alpha);
    Some(Bounded { value, interval: Interval::around(value, half) })
}

/// Half the width of Welch's interval of a difference of two means, from the squared standard error and the size of each
/// sample.
#[must_use]
pub fn welch_half_width(a: (f64, usize), b: (f64, usize), alpha: f64) -> f64 {
    let squared = a.0 + b.0;
    if squared <= 0.0 { 0.0 } else { student_quantile(1.0 - alpha / 2.0, welch_df(a, b)) * squared.sqrt() }
}

/// The degrees of freedom of such a difference (Satterthwaite 1946).
#[must_use]
pub fn welch_df(a: (f64, usize), b: (f64, usize)) -> f64 {
    let part = |(squared, n): (f64, usize)| squared * squared / (n.max(2) - 1) as f64;
    let below = part(a) + part(b);
    if below > 0.0 { (a.0 + b.0).powi(2) / below } else { (a.1 + b.1) as f64 }
}

fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.len() < 2 || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    Some((mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)))
}
