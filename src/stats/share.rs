//! Shares with their uncertainty.

use super::special::beta_quantile;
use serde::Serialize;

/// k of n, with a two-sided 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// Hits.
    pub k: usize,
    /// Of how many.
    pub n: usize,
    /// Lower end of the exact interval.
    pub lo: f64,
    /// Upper end of the exact interval.
    pub hi: f64,
}

impl Share {
    /// k of n with the exact (Clopper and Pearson) 95 % interval.
    #[must_use]
    pub fn of(k: usize, n: usize) -> Self {
        let (lo, hi) = clopper_pearson(k, n, 0.05);
        Self { k, n, lo, hi }
    }
}

/// The score interval (Wilson 1927) of a share for the normal quantile `z` (1.96 for 95 %): short, and close to its level
/// on average. Of nothing: everything is possible, (0, 1).
#[must_use]
pub fn wilson(k: usize, n: usize, z: f64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (k, n) = (k.min(n) as f64, n as f64);
    let p = k / n;
    let z2 = z * z;
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// The exact interval (Clopper and Pearson 1934) at level 1 − `alpha`: the shares p for which neither "k or more" nor "k
/// or fewer" of n has a probability below `alpha`/2, as quantiles of beta laws.
#[must_use]
pub fn clopper_pearson(k: usize, n: usize, alpha: f64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let k = k.min(n);
    let (hits, misses) = (k as f64, (n - k) as f64);
    let lo = if k == 0 { 0.0 } else { beta_quantile(hits, misses + 1.0, alpha / 2.0) };
    let hi = if k == n { 1.0 } else { beta_quantile(hits + 1.0, misses, 1.0 - alpha / 2.0) };
    (lo, hi)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: (f64, f64), want: (f64, f64)) {
        assert!((got.0 - want.0).abs() < 5e-4 && (got.1 - want.1).abs() < 5e-4, "{got:?} is not {want:?}");
    }

    #[test]
    fn published_intervals() {
        // Newcombe 1998, table I: 81/263, 15/148, 0/20, 1/29 by the score and the exact method.
        close(wilson(81, 263, 1.959_964), (0.2553, 0.3662));
        close(wilson(15, 148, 1.959_964), (0.0624, 0.1605));
        close(wilson(0, 20, 1.959_964), (0.0, 0.1611));
        close(clopper_pearson(81, 263, 0.05), (0.2527, 0.3676));
        close(clopper_pearson(15, 148, 0.05), (0.0578, 0.1617));
        close(clopper_pearson(0, 20, 0.05), (0.0, 0.1684));
        close(clopper_pearson(1, 29, 0.05), (0.0009, 0.1776));
    }

    #[test]
    fn the_rule_of_three_and_the_ends() {
        let (lo, hi) = clopper_pearson(0, 200_000, 0.05);
        assert_eq!(lo, 0.0);
        assert!((hi - 3.689 / 200_000.0).abs() < 1e-8, "{hi}");
        assert_eq!(clopper_pearson(0, 0, 0.05), (0.0, 1.0));
        assert_eq!(wilson(0, 0, 1.96), (0.0, 1.0));
        assert_eq!(clopper_pearson(10, 10, 0.05).1, 1.0);
    }
}
