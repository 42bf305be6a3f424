//! Whether durations in a timer's window are spread as its look spreads them, and how often it effectively looks.

use super::evidence::rest_density;
use super::law::Law;
use super::timer::Timer;
use crate::stats::ks_uniform;
use serde::Serialize;

/// Below this a fit is refused: a true timer is refused in one of a hundred samples.
const REFUSED: f64 = 0.01;
/// A law that is never further off than this describes a sample well enough, however many durations could prove that it
/// is not exact.
const NEAR: f64 = 0.05;
/// An effective check may be longer than the nominal one by this factor, and shorter by the other.
const LONGEST: f64 = 2.1;
const SHORTEST: f64 = 0.5;
/// Fewer durations than this have no shape.
const FEWEST: usize = 4;

/// A test of fit (Kolmogorov and Smirnov, two-sided).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fit {
    /// The largest distance between sample and law.
    pub distance: f64,
    /// The probability of at least this distance if the law holds.
    pub p: f64,
    /// How many durations.
    pub n: usize,
}

/// How often a timer that looks periodically effectively looked, fitted to the sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EffectiveCheck {
    /// The estimate: the longest wait × (n + 1) / n, in seconds.
    pub check_s: f64,
    /// The exact 95 % interval.
    pub lo_s: f64,
    /// Its end.
    pub hi_s: f64,
    /// What it should be.
    pub nominal_s: f64,
    /// Whether the interval holds what it should be.
    pub as_set: bool,
}

/// What the durations in a timer's window say of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Whether the timer can have made them.
    pub holds: bool,
    /// The law that describes them: with the effective check where the nominal one does not.
    pub law: Law,
    /// How well; `None` where the timer's distribution is not known, or where there are too few durations.
    pub fit: Option<Fit>,
    /// The effective check; `None` where it does not look, or where its own end varies too.
    pub check: Option<EffectiveCheck>,
}

fn fit(values: &[f64], law: Law) -> Option<Fit> {
    let even: Vec<f64> = values.iter().map(|x| law.cumulative(*x)).collect();
    ks_uniform(&even, 0.0, 1.0).map(|ks| Fit { distance: ks.d, p: ks.p, n: ks.n })
}

/// Judges the durations of one timer. `values` are sorted: those that no other timer of the same hypothesis could have
/// made.
pub(super) fn shape(timer: &Timer, values: &[f64], resolution_s: f64) -> Shape {
    let nominal = timer.law().widened(resolution_s);
    let unknown = Shape { holds: true, law: nominal, fit: None, check: None };
    if !timer.has_shape() {
        return unknown;
    }
    let near = NEAR + 2.0 * resolution_s / (nominal.last_s() - nominal.first_s());
    let good = |f: Option<Fit>| f.is_none_or(|f| f.p >= REFUSED || f.distance <= near);
    let inside = |law: Law| between(values, law.first_s(), law.last_s());
    let within = inside(nominal);
    if within.len() < FEWEST {
        return unknown;
    }
    let as_set = fit(within, nominal);
    let effective = (timer.hi_s <= timer.lo_s).then(|| effective(timer, values, resolution_s)).flatten();
    let check = effective.map(|(check, _)| check);
    // What the check itself spreads beyond the nominal end is part of the question.
    let beyond = check.is_some_and(|c| c.lo_s > timer.check_s);
    if good(as_set) && !beyond {
        return Shape { holds: true, law: nominal, fit: as_set, check };
    }
    let Some((check, law)) = effective else {
        return Shape { holds: good(as_set), law: nominal, fit: as_set, check: None };
    };
    // Given the longest, the others are evenly spread below it: the test stays exact though its end was fitted.
    let below = inside(law);
    let fitted = fit(&below[..below.len().saturating_sub(1)], Law { check_s: law.check_s, ..law });
    let plausible = (SHORTEST..=LONGEST).contains(&(check.check_s / timer.check_s));
    Shape { holds: plausible && good(fitted), law, fit: fitted, check: Some(check) }
}

/// The law with the likeliest end: the sample up to it evenly spread, what lies beyond explained by nothing.
fn effective(timer: &Timer, values: &[f64], resolution_s: f64) -> Option<(EffectiveCheck, Law)> {
    let from = timer.lo_s - resolution_s;
    let reach = between(values, from, timer.lo_s + timer.check_s * LONGEST + resolution_s);
    let n = reach.len();
    if n < FEWEST {
        return None;
    }
    let mut beyond: f64 = reach.iter().map(|x| rest_density(*x).ln()).sum();
    let (mut best, mut most) = (None, f64::NEG_INFINITY);
    for (i, x) in reach.iter().enumerate() {
        beyond -= rest_density(*x).ln();
        let (m, left) = ((i + 1) as f64, (n - i - 1) as f64);
        let width = (x - from).max(timer.check_s * 1e-3);
        let share = |k: f64| if k > 0.0 { k * (k / n as f64).ln() } else { 0.0 };
        let log_likelihood = share(m) + share(left) - m * width.ln() + beyond;
        if i + 1 >= FEWEST && log_likelihood > most {
            (best, most) = (Some((i + 1, width)), log_likelihood);
        }
    }
    let (m, width) = best?;
    let longest = (width - 2.0 * resolution_s).max(0.0);
    // P(longest ≤ w) = (w / check)^m: the exact one-sided ends at 2.5 % each.
    let end = |q: f64| longest / q.powf(1.0 / m as f64);
    let (lo_s, hi_s) = (end(0.975), end(0.025) + 2.0 * resolution_s);
    let check_s = longest * (m as f64 + 1.0) / m as f64;
    let as_set = lo_s <= timer.check_s && timer.check_s <= hi_s;
    let law = Law { lo_s: from, hi_s: from, check_s: width };
    Some((EffectiveCheck { check_s, lo_s, hi_s, nominal_s: timer.check_s, as_set }, law))
}

/// Sorted values from one second to another.
pub(super) fn between(values: &[f64], from_s: f64, to_s: f64) -> &[f64] {
    let first = values.partition_point(|x| *x < from_s);
    &values[first..values.partition_point(|x| *x <= to_s).max(first)]
}

#[cfg(test)]
mod tests {
    use super::super::timer::parse_timer;
    use super::*;

    fn even(from: f64, to: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| from + (to - from) * (i as f64 + 0.5) / n as f64).collect()
    }

    fn airflow() -> Timer {
        parse_timer("queued_timeout=1200s check=120s").unwrap()
    }

    #[test]
    fn an_even_spread_over_the_check_fits() {
        let found = shape(&airflow(), &even(1200.0, 1320.0, 30), 0.0);
        assert!(found.holds && found.fit.unwrap().p > 0.9, "{found:?}");
        assert!(found.check.unwrap().as_set, "{found:?}");
    }

    #[test]
    fn a_check_that_takes_longer_is_found() {
        let found = shape(&airflow(), &even(1200.0, 1368.0, 300), 0.0);
        let check = found.check.unwrap();
        assert!(found.holds && !check.as_set && check.lo_s < 168.0 && 168.0 < check.hi_s, "{found:?}");
        assert!((found.law.last_s() - 1368.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn strangers_far_above_do_not_stretch_it() {
        let mut values = even(1200.0, 1320.0, 60);
        values.extend([1400.0, 1451.0]);
        assert!(shape(&airflow(), &values, 0.0).check.unwrap().as_set);
    }

    #[test]
    fn a_cluster_that_a_look_would_have_spread_is_refused() {
        assert!(!shape(&airflow(), &even(1250.0, 1255.0, 30), 0.0).holds);
        assert!(!shape(&airflow(), &even(1300.0, 1320.0, 30), 0.0).holds);
        // Nothing is known of how a kernel's durations lie in their window.
        let kernel = parse_timer("retransmit=925s..1045s").unwrap();
        assert!(shape(&kernel, &even(938.0, 939.0, 30), 0.0).holds);
    }
}
