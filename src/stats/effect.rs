//! One metric on two sides: the difference, how sure it is, and what that means.

use super::counts::{Events, fisher, rate_ratio};
use super::interval::{Bounded, Interval, difference};
use super::kaplan::Kaplan;
use super::runs::{welch_df, welch_half_width};
use super::share::{clopper_pearson, wilson};
use super::special::{normal_quantile, student_both_tails};
use serde::Serialize;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Less is better: times, false alarms.
    Less,
    /// More is better: the share that is detected.
    More,
}

/// What a difference means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The second side is better, and that is no noise.
    Better,
    /// The second side is worse, and that is no noise.
    Worse,
    /// Whatever the difference is, it is within the margin.
    Equal,
    /// The data allow more than one of these.
    Inconclusive,
}

impl Standing {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equal => "equal",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A metric on two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The first side.
    pub a: Bounded,
    /// The second.
    pub b: Bounded,
    /// Second less first.
    pub difference: Bounded,
    /// A test that the sides are one; `None` where there is none, and the interval alone decides.
    pub p: Option<f64>,
    /// Observations on each side.
    pub n: (usize, usize),
    /// The variance of one observation on each side, which says how many are needed; infinite where not even the interval
    /// is bounded.
    unit_variance: (f64, f64),
    /// What the intervals are.
    pub method: &'static str,
}

impl Effect {
    /// Restricted means up to `limit_s`, by Welch's interval on Greenwood's variances. `None` where a curve does not
    /// reach that far, or has no more than one trial.
    #[must_use]
    pub fn of_means(a: &Kaplan, b: &Kaplan, limit_s: f64, alpha: f64) -> Option<Self> {
        let (ma, mb) = (a.restricted_mean(limit_s)?, b.restricted_mean(limit_s)?);
        if ma.n < 2 || mb.n < 2 {
            return None;
        }
        // As for a mean of complete data: the sample's own mean takes one degree of freedom.
        let squared = |m: super::kaplan::RestrictedMean| (m.se_s * m.se_s * m.n as f64 / (m.n - 1) as f64, m.n);
        let (va, vb) = (squared(ma), squared(mb));
        let value = mb.mean_s - ma.mean_s;
        let se = (va.0 + vb.0).sqrt();
        let p = match (se > 0.0, value == 0.0) {
            (true, _) => student_both_tails(value / se, welch_df(va, vb)),
            (false, true) => 1.0,
            (false, false) => 0.0,
        };
        let own = |mean: f64, v: (f64, usize)| Bounded {
            value: mean,
            interval: Interval::around(mean, welch_half_width(v, (0.0, 2), alpha)),
        };
        Some(Self {
            a: own(ma.mean_s, va),
            b: own(mb.mean_s, vb),
            difference: Bounded { value, interval: Interval::around(value, welch_half_width(va, vb, alpha)) },
            p: Some(p),
            n: (ma.n, mb.n),
            unit_variance: (va.0 * ma.n as f64, vb.0 * mb.n as f64),
            method: "restricted mean, Greenwood's variance, Welch's interval",
        })
    }

    /// A quantile: exact intervals by order statistics for each side, and their difference from intervals that hold the
    /// level on average. `None` of nothing.
    #[must_use]
    pub fn of_quantiles(a: &Kaplan, b: &Kaplan, q: f64, alpha: f64) -> Option<Self> {
        if a.n == 0 || b.n == 0 {
            return None;
        }
        let value = |k: &Kaplan| k.quantile(q).unwrap_or(f64::INFINITY);
        let exact = |k: &Kaplan| Bounded { value: value(k), interval: k.quantile_interval(q, alpha) };
        let level = |k: &Kaplan| Bounded { value: value(k), interval: k.quantile_interval_mean_level(q, alpha) };
        let (la, lb) = (level(a), level(b));
        let z = normal_quantile(1.0 - alpha / 2.0);
        let unit = |b: Bounded, n: usize| ((b.interval.hi - b.interval.lo) / (2.0 * z)).powi(2) * n as f64;
        Some(Self {
            a: exact(a),
            b: exact(b),
            difference: difference(la, lb),
            p: None,
            n: (a.n, b.n),
            unit_variance: (unit(la, a.n), unit(lb, b.n)),
            method: "order statistics; difference by recovered variances",
        })
    }

    /// Shares k of n: exact intervals for each side, Newcombe's for the difference, Fisher's exact test. `None` of
    /// nothing.
    #[must_use]
    pub fn of_shares(a: (usize, usize), b: (usize, usize), alpha: f64) -> Option<Self> {
        if a.1 == 0 || b.1 == 0 {
            return None;
        }
        let z = normal_quantile(1.0 - alpha / 2.0);
        let value = |(k, n): (usize, usize)| k as f64 / n as f64;
        let bounded = |s, (lo, hi)| Bounded { value: value(s), interval: Interval::new(lo, hi) };
        let score = |s: (usize, usize)| bounded(s, wilson(s.0, s.1, z));
        let exact = |s: (usize, usize)| bounded(s, clopper_pearson(s.0, s.1, alpha));
        // A share of which nothing was seen is small, not impossible.
        let unit = |(k, n): (usize, usize)| {
            let p = (k as f64 + 1.0) / (n as f64 + 2.0);
            p * (1.0 - p)
        };
        Some(Self {
            a: exact(a),
            b: exact(b),
            difference: difference(score(a), score(b)),
            p: Some(fisher(a.0, a.1, b.0, b.1)),
            n: (a.1, b.1),
            unit_variance: (unit(a), unit(b)),
            method: "exact shares, Newcombe's difference, Fisher's test",
        })
    }

    /// Rates of events over an exposure: exact intervals for each side, their difference by recovered variances, the exact
    /// conditional test. `n` is the number of trials that the exposure was collected on. `None` without exposure.
    #[must_use]
    pub fn of_rates(a: Events, b: Events, n: (usize, usize), alpha: f64) -> Option<Self> {
        if !(a.exposure > 0.0 && b.exposure > 0.0) || n.0 == 0 || n.1 == 0 {
            return None;
        }
        let bounded = |e: Events| Bounded { value: e.rate(), interval: e.interval(alpha) };
        let unit = |e: Events, n: usize| {
            let each = e.exposure / n as f64;
            (e.k as f64 + 1.0) / e.exposure / each
        };
        Some(Self {
            a: bounded(a),
            b: bounded(b),
            difference: difference(bounded(a), bounded(b)),
            p: Some(rate_ratio(a, b, alpha).p),
            n,
            unit_variance: (unit(a, n.0), unit(b, n.1)),
            method: "exact rates, difference by recovered variances, conditional test",
        })
    }

    /// The same with an interval that is wide enough for what was seen from run to run as well.
    #[must_use]
    pub fn with_runs(self, between: Option<Bounded>) -> Self {
        let Some(between) = between else { return self };
        let interval = self.difference.interval.hull(Interval {
            lo: between.interval.lo.min(self.difference.value),
            hi: between.interval.hi.max(self.difference.value),
        });
        // A difference that the runs do not bear out is none, whatever the trials say.
        let p = self.p.map(|p| if interval.holds(0.0) { p.max(ALPHA) } else { p });
        Self { difference: Bounded { interval, ..self.difference }, p, ..self }
    }

    /// What the difference means. `margin` is the largest difference that does not matter, in the metric's unit;
    /// `significant` is the word of a test that was corrected for the number of questions, where there is one.
    #[must_use]
    pub fn standing(&self, direction: Direction, margin: f64, significant: Option<bool>) -> Standing {
        let Interval { lo, hi } = self.difference.interval;
        let (worse_least, worse_most) = match direction {
            Direction::Less => (lo, hi),
            Direction::More => (-hi, -lo),
        };
        let sure = significant != Some(false);
        if worse_least >= -margin && worse_most <= margin {
            Standing::Equal
        } else if worse_least > 0.0 && sure {
            Standing::Worse
        } else if worse_most < 0.0 && sure {
            Standing::Better
        } else {
            Standing::Inconclusive
        }
    }

    /// How many trials on each side find a difference of `effect` at level `alpha` (two-sided) with this power, by what
    /// these trials scatter; `None` where they do not say, or for no effect at all. At least [`LEAST`].
    #[must_use]
    pub fn needed(&self, effect: f64, alpha: f64, power: f64) -> Option<usize> {
        needed_for(self.unit_variance.0 + self.unit_variance.1, effect, alpha, power)
    }
}

/// The level of every interval that is not told another: 95 %.
pub const ALPHA: f64 = 0.05;

/// The power that recommended sample sizes are for. More than the 80 % that is usual: the scatter itself is only estimated.
pub const POWER: f64 = 0.9;

/// No recommendation is below this: what fewer trials scatter says nothing.
pub const LEAST: usize = 10;

/// How many observations on each side find a difference `effect`, where `variance` is that of one observation of each
/// side, added up: n = (z(1 − α/2) + z(power))²·σ²/δ².
#[must_use]
pub fn needed_for(variance: f64, effect: f64, alpha: f64, power: f64) -> Option<usize> {
    let z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power);
    let n = z * z * variance / (effect * effect);
    (n.is_finite() && n < 1e12).then(|| (n.ceil() as usize).max(LEAST))
}

/// How many trials an upper limit of a quantile takes to exist at all, with a probability of `tail` above it: the smallest
/// n with qⁿ ≤ tail. 299 for p99 at 5 %.
#[must_use]
pub fn needed_to_bound(q: f64, tail: f64) -> Option<usize> {
    if q >= 1.0 { None } else { Some((tail.ln() / q.ln() - 1e-9).ceil().max(1.0) as usize) }
}
