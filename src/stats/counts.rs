//! Exact tests and intervals of counts: two shares, and events over an exposure (hours, tasks).

use super::interval::Interval;
use super::share::clopper_pearson;
use super::special::{binomial_at_most, gamma_quantile, poisson_at_most};
use serde::Serialize;
use statrs::function::gamma::ln_gamma;

/// Of two outcomes equally likely on paper, rounding must not part them.
const TIE: f64 = 1.0 + 1e-7;

/// Fisher's exact test of k₁ of n₁ against k₂ of n₂, two-sided: the probability, given all hits together, of a table that
/// is no likelier than the one seen.
#[must_use]
pub fn fisher(k1: usize, n1: usize, k2: usize, n2: usize) -> f64 {
    let (n1, n2) = (n1.max(k1), n2.max(k2));
    let hits = k1 + k2;
    // Further than 40 standard deviations from the mean there is nothing that adds up.
    let mean = hits as f64 * n1 as f64 / (n1 + n2).max(1) as f64;
    let reach = 40.0 * mean.sqrt() + 40.0;
    let least = hits.saturating_sub(n2).max((mean - reach).max(0.0) as usize);
    let most = hits.min(n1).min((mean + reach) as usize);
    if k1 < least || k1 > most {
        return 0.0;
    }
    let choose = |n: usize, k: usize| ln_choose(n as f64, k as f64);
    let log = |k: usize| choose(n1, k) + choose(n2, hits - k);
    let seen = log(k1);
    let top = (least..=most).map(log).fold(f64::NEG_INFINITY, f64::max);
    let (mut all, mut as_rare) = (0.0, 0.0);
    for k in least..=most {
        let weight = (log(k) - top).exp();
        all += weight;
        if weight <= (seen - top).exp() * TIE {
            as_rare += weight;
        }
    }
    (as_rare / all).min(1.0)
}

fn ln_choose(n: f64, k: f64) -> f64 {
    ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0)
}

/// The exact binomial test of k of n against the share `p`, two-sided: the probability of a count that is no likelier than
/// the one seen.
#[must_use]
pub fn binomial_test(k: usize, n: usize, p: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        let certain = if p <= 0.0 { 0 } else { n };
        return if k == certain { 1.0 } else { 0.0 };
    }
    let log = |i: usize| ln_choose(n as f64, i as f64) + i as f64 * p.ln() + (n - i) as f64 * (-p).ln_1p();
    let seen = log(k) + TIE.ln();
    let mean = p * n as f64;
    // The probabilities rise to the mean and fall behind it, so on the other side the rare ones are a tail too.
    if k as f64 <= mean {
        let from = first(k.max(mean.ceil() as usize), n + 1, |i| i > n || log(i) <= seen);
        let above = if from > n { 0.0 } else { 1.0 - binomial_at_most(from.max(1) - 1, n, p) };
        (binomial_at_most(k, n, p) + if from > k { above } else { 1.0 }).min(1.0)
    } else {
        let to = first(0, mean.floor() as usize + 1, |i| i as f64 > mean || log(i) > seen);
        let below = if to == 0 { 0.0 } else { binomial_at_most(to - 1, n, p) };
        (below + 1.0 - binomial_at_most(k - 1, n, p)).min(1.0)
    }
}

/// The first of `from..to` for which `holds`, which stays true from there on; `to` where none does.
fn first(mut from: usize, mut to: usize, holds: impl Fn(usize) -> bool) -> usize {
    while from < to {
        let middle = usize::midpoint(from, to);
        if holds(middle) { to = middle } else { from = middle + 1 }
    }
    from
}

/// The exact interval of a Poisson mean of which `k` events were seen (Garwood 1936).
#[must_use]
pub fn poisson_interval(k: u64, alpha: f64) -> Interval {
    let lo = if k == 0 { 0.0 } else { gamma_quantile(k as f64, alpha / 2.0) };
    Interval::new(lo, gamma_quantile(k as f64 + 1.0, 1.0 - alpha / 2.0))
}

/// Events over an exposure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Events {
    /// How many.
    pub k: u64,
    /// Over how much: hours, tasks, whatever the rate is counted in.
    pub exposure: f64,
}

impl Events {
    /// Events an exposure.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.k as f64 / self.exposure
    }

    /// The exact interval of the rate.
    #[must_use]
    pub fn interval(&self, alpha: f64) -> Interval {
        let of = poisson_interval(self.k, alpha);
        Interval::new(of.lo / self.exposure, of.hi / self.exposure)
    }
}

/// Two rates against one another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateRatio {
    /// The second rate over the first; `None` where the first saw nothing.
    pub ratio: Option<f64>,
    /// Its exact interval.
    pub interval: Interval,
    /// The exact two-sided test that the rates are one.
    pub p: f64,
}

/// The second rate over the first. Given the sum of the events, those of the second are binomial with the share of its
/// exposure if the rates are one (Przyborowski and Wilenski 1940), so test and interval are exact.
#[must_use]
pub fn rate_ratio(first: Events, second: Events, alpha: f64) -> RateRatio {
    let (k, n) = (second.k as usize, (first.k + second.k) as usize);
    let share = second.exposure / (first.exposure + second.exposure);
    let (lo, hi) = clopper_pearson(k, n, alpha);
    let odds = |s: f64| if s >= 1.0 { f64::INFINITY } else { s / (1.0 - s) * first.exposure / second.exposure };
    RateRatio {
        ratio: (first.k > 0).then(|| second.rate() / first.rate()),
        interval: Interval::new(odds(lo), odds(hi)),
        p: binomial_test(k, n, share),
    }
}

/// What a count says against an expectation that is known: `seen` events where `expected` were to come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AgainstExpected {
    /// The probability of so few events, or fewer, if nothing has changed.
    pub p_so_few: f64,
    /// The exact interval of the true rate over the expected one.
    pub ratio: Interval,
}

/// A count against a known expectation.
#[must_use]
pub fn against_expected(seen: u64, expected: f64, alpha: f64) -> AgainstExpected {
    let of = poisson_interval(seen, alpha);
    AgainstExpected {
        p_so_few: poisson_at_most(seen, expected),
        ratio: Interval::new(of.lo / expected, of.hi / expected),
    }
}
