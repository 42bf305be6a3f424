//! The product-limit curve with its uncertainty: bands, quantiles with intervals, restricted means.

use super::interval::Interval;
use super::special::{binomial_at_most, normal_quantile};
use super::survival::Observation;

/// The curve from one event time to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The time of the events.
    pub seconds: f64,
    /// Observed for at least that long.
    pub at_risk: usize,
    /// Events at that time.
    pub events: usize,
    /// S(t) from here on.
    pub survival: f64,
    /// Greenwood's sum Σ d/(n(n − d)) up to here; infinite where everybody has had the event.
    pub greenwood: f64,
}

impl Point {
    /// The band of S here at level 1 − `alpha`, on the scale log(−log S) (Kalbfleisch and Prentice 2002, §1.4). Where the
    /// curve has come to 0 that scale ends: the lower end is 0 and there is no upper one.
    #[must_use]
    pub fn band(&self, alpha: f64) -> Option<Interval> {
        if self.survival <= 0.0 || self.survival >= 1.0 {
            return None;
        }
        let log = self.survival.ln();
        let half = normal_quantile(1.0 - alpha / 2.0) * self.greenwood.sqrt() / log.abs();
        Some(Interval::new(self.survival.powf(half.exp()), self.survival.powf((-half).exp())))
    }
}

/// A mean of times cut off at a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RestrictedMean {
    /// The area under the curve up to the limit, in seconds.
    pub mean_s: f64,
    /// Its standard error by Greenwood's formula.
    pub se_s: f64,
    /// Observations.
    pub n: usize,
}

/// The product-limit estimator (Kaplan and Meier 1958) of times of which some are censored.
#[derive(Debug, Clone, PartialEq)]
pub struct Kaplan {
    /// The event times in order.
    pub points: Vec<Point>,
    /// Observations.
    pub n: usize,
    /// All times in order, an event before a censoring at the same time; censored ones as infinite.
    ranked: Vec<f64>,
    /// The longest watch.
    last_s: f64,
    /// Whether somebody was censored before the last event, so that ranks are not known.
    censored_early: bool,
}

impl Kaplan {
    /// The curve of these observations; what is not a number is left out.
    #[must_use]
    pub fn of(observations: &[Observation]) -> Self {
        let mut sorted: Vec<Observation> = observations.iter().copied().filter(|o| !o.seconds.is_nan()).collect();
        sorted.sort_unstable_by(|a, b| a.seconds.total_cmp(&b.seconds).then(b.happened.cmp(&a.happened)));
        let n = sorted.len();
        let (mut points, mut survival, mut greenwood) = (Vec::<Point>::new(), 1.0_f64, 0.0_f64);
        let (mut i, mut censored, mut censored_early) = (0, false, false);
        while i < n {
            let seconds = sorted[i].seconds;
            let same = sorted[i..].iter().take_while(|o| o.seconds.total_cmp(&seconds).is_eq()).count();
            let events = sorted[i..i + same].iter().take_while(|o| o.happened).count();
            if events > 0 {
                let at_risk = n - i;
                let (risk, died) = (at_risk as f64, events as f64);
                survival = if events == at_risk { 0.0 } else { survival * (1.0 - died / risk) };
                greenwood += died / (risk * (risk - died));
                points.push(Point { seconds, at_risk, events, survival, greenwood });
                censored_early |= censored;
            }
            censored |= events < same;
            i += same;
        }
        let last_s = sorted.last().map_or(0.0, |o| o.seconds);
        let ranked = sorted.iter().map(|o| if o.happened { o.seconds } else { f64::INFINITY }).collect();
        Self { points, n, ranked, last_s, censored_early }
    }

    /// The smallest time by which a share `q` has had the event; `None` is "not reached".
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        // The guard absorbs the rounding of the factors.
        self.points.iter().find(|p| p.survival <= 1.0 - q + 1e-9).map(|p| p.seconds)
    }

    /// The interval of a quantile at level 1 − `alpha`: exact by order statistics where nobody is censored before the
    /// last event (which a common horizon sees to), else by turning the band of the curve around (Brookmeyer and Crowley
    /// 1982). An upper end that is infinite is "not reached".
    #[must_use]
    pub fn quantile_interval(&self, q: f64, alpha: f64) -> Interval {
        if self.censored_early { self.by_band(q, alpha) } else { self.by_rank(q, alpha) }
    }

    /// As [`Kaplan::quantile_interval`], by turning the band around.
    #[must_use]
    pub fn by_band(&self, q: f64, alpha: f64) -> Interval {
        let reached = |end: &dyn Fn(&Point) -> Option<f64>| {
            self.points.iter().find(|p| end(p).is_some_and(|s| s <= 1.0 - q + 1e-9)).map(|p| p.seconds)
        };
        let lower = |p: &Point| if p.survival <= 0.0 { Some(0.0) } else { p.band(alpha).map(|band| band.lo) };
        let upper = |p: &Point| p.band(alpha).map(|band| band.hi);
        Interval::new(reached(&lower).unwrap_or(self.last_s), reached(&upper).unwrap_or(f64::INFINITY))
    }

    fn by_rank(&self, q: f64, alpha: f64) -> Interval {
        let (below, above) = (self.last_rank(q, alpha / 2.0), self.first_rank(q, alpha / 2.0));
        // Times are not negative.
        let lo = below.map_or(0.0, |rank| self.ranked[rank - 1]);
        // More than the longest watch is all that is known of one who is censored.
        Interval::new(lo.min(self.last_s), above.map_or(f64::INFINITY, |rank| self.ranked[rank - 1]))
    }

    /// The largest rank below which the quantile lies with a probability of at most `tail`; ranks from 1.
    fn last_rank(&self, q: f64, tail: f64) -> Option<usize> {
        // P(X(r) > ξ) is the probability that fewer than r lie below: it grows with r.
        let fits = |rank: usize| binomial_at_most(rank - 1, self.n, q) <= tail;
        let (mut lo, mut hi) = (0, self.n + 1);
        while hi - lo > 1 {
            let middle = usize::midpoint(lo, hi);
            if fits(middle) { lo = middle } else { hi = middle }
        }
        (lo > 0).then_some(lo)
    }

    /// The smallest rank above which the quantile lies with a probability of at most `tail`.
    fn first_rank(&self, q: f64, tail: f64) -> Option<usize> {
        let fits = |rank: usize| 1.0 - binomial_at_most(rank - 1, self.n, q) <= tail;
        let (mut lo, mut hi) = (0, self.n + 1);
        while hi - lo > 1 {
            let middle = usize::midpoint(lo, hi);
            if fits(middle) { hi = middle } else { lo = middle }
        }
        (hi <= self.n).then_some(hi)
    }

    /// An interval of a quantile whose level is met on average instead of at least: between the two order statistics
    /// around the level (Nyblom 1992). It is what differences are made of; where ranks are not known, the band.
    #[must_use]
    pub fn quantile_interval_mean_level(&self, q: f64, alpha: f64) -> Interval {
        if self.censored_early || self.n < 2 {
            return self.quantile_interval(q, alpha);
        }
        let wide = self.by_rank(q, alpha);
        let (n, tail) = (self.n, alpha / 2.0);
        let weight = |rank: usize, here: f64, next: f64, wanted: f64| {
            let (r, n) = (rank as f64, n as f64);
            1.0 / (1.0 + r * (1.0 - q) * (next - wanted) / ((n - r) * q * (wanted - here)))
        };
        let between = |from: f64, to: f64, weight: f64| {
            if to.is_finite() && weight.is_finite() { from + (to - from) * weight } else { from }
        };
        // P(X(r) ≤ ξ) falls with r; the limit lies between the last r that is sure enough and the next.
        let confidence = |rank: usize| 1.0 - binomial_at_most(rank - 1, n, q);
        let lo = match self.last_rank(q, tail) {
            Some(r) if r < n => {
                let w = weight(r, confidence(r), confidence(r + 1), 1.0 - tail);
                between(wide.lo, self.ranked[r].min(self.last_s), w)
            }
            _ => wide.lo,
        };
        let hi = match self.first_rank(q, tail) {
            Some(r) if r > 1 && wide.hi.is_finite() => {
                let w = weight(r - 1, confidence(r - 1), confidence(r), tail);
                between(self.ranked[r - 2], wide.hi, w)
            }
            _ => wide.hi,
        };
        Interval::new(lo, hi)
    }

    /// The longest watch, in seconds.
    #[must_use]
    pub fn last_s(&self) -> f64 {
        self.last_s
    }

    /// Up to where a restricted mean is defined: to any time where the curve comes to 0, else to the longest watch.
    #[must_use]
    pub fn limit_s(&self) -> f64 {
        if self.points.last().is_some_and(|p| p.survival <= 0.0) { f64::INFINITY } else { self.last_s }
    }

    /// The mean of the times cut off at `limit_s`: ∫ S(t) dt from 0 to there, with variance Σ Aᵢ²·d/(n(n − d)), where Aᵢ
    /// is the area from the i-th event to the limit (Irwin 1949; Klein and Moeschberger 2003, §4.5). Nothing is left out:
    /// who is not there yet counts with the limit. `None` of nothing, or beyond [`Kaplan::limit_s`].
    #[must_use]
    pub fn restricted_mean(&self, limit_s: f64) -> Option<RestrictedMean> {
        if self.n == 0 || limit_s > self.limit_s() || limit_s <= 0.0 {
            return None;
        }
        let used = self.points.partition_point(|p| p.seconds <= limit_s);
        let (mut area, mut variance) = (0.0, 0.0);
        let mut end = limit_s;
        for p in self.points[..used].iter().rev() {
            area += p.survival * (end - p.seconds);
            end = p.seconds;
            if p.at_risk > p.events {
                let (risk, died) = (p.at_risk as f64, p.events as f64);
                variance += area * area * died / (risk * (risk - died));
            }
        }
        Some(RestrictedMean { mean_s: area + end, se_s: f64::sqrt(variance), n: self.n })
    }
}
