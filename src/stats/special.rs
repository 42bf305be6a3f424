//! Special functions and quantiles of the usual laws.
//!
//! The logarithm of the gamma function and the error function come from `statrs`; its incomplete beta function stops
//! after 141 terms, which is too few for a hundred thousand trials, so that one stands here.

use statrs::function::erf::erfc_inv;
use statrs::function::gamma::{gamma_ur, ln_gamma};
use std::f64::consts::SQRT_2;

/// The z with P(Z ≤ z) = `p` for a standard normal Z.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    -SQRT_2 * erfc_inv(2.0 * p)
}

/// P(X > x) for a chi-squared X with `df` degrees of freedom.
#[must_use]
pub fn chi_squared_tail(x: f64, df: f64) -> f64 {
    if x <= 0.0 { 1.0 } else { gamma_ur(df / 2.0, x / 2.0) }
}

/// The t with P(T ≤ t) = `p` for Student's law with `df` degrees of freedom, `p` of a half or more.
#[must_use]
pub fn student_quantile(p: f64, df: f64) -> f64 {
    let x = beta_quantile(df / 2.0, 0.5, 2.0 * (1.0 - p));
    (df * (1.0 - x) / x).sqrt()
}

/// P(|T| ≥ |t|) for Student's law with `df` degrees of freedom.
#[must_use]
pub fn student_both_tails(t: f64, df: f64) -> f64 {
    if t.is_infinite() { 0.0 } else { beta_regularized(df / 2.0, 0.5, df / (df + t * t)) }
}

/// P(X ≤ k) for a Poisson X.
#[must_use]
pub fn poisson_at_most(k: u64, mean: f64) -> f64 {
    if mean <= 0.0 { 1.0 } else { gamma_ur(k as f64 + 1.0, mean) }
}

/// P(X ≤ k) for a binomial X of `n` with probability `p`.
#[must_use]
pub fn binomial_at_most(k: usize, n: usize, p: f64) -> f64 {
    if k >= n { 1.0 } else { beta_regularized((n - k) as f64, k as f64 + 1.0, 1.0 - p) }
}

/// The regularized incomplete beta function Iₓ(a, b): the continued fraction of DLMF 8.17.22 by Lentz's method, on the
/// side where it converges.
#[must_use]
pub fn beta_regularized(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    // The number of terms grows with the root of the larger parameter: some hundreds for a hundred thousand trials.
    for m in 1..100_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        h *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    h
}

/// The x with Iₓ(a, b) = `p`.
#[must_use]
pub fn beta_quantile(a: f64, b: f64, p: f64) -> f64 {
    turning_point(0.0, 1.0, |x| beta_regularized(a, b, x) < p)
}

/// The x with P(X ≤ x) = `p` for a gamma law of this shape and scale 1.
#[must_use]
pub fn gamma_quantile(shape: f64, p: f64) -> f64 {
    let below = |x: f64| x <= 0.0 || gamma_ur(shape, x) > 1.0 - p;
    let mut most = shape + 1.0;
    while below(most) {
        most *= 2.0;
    }
    turning_point(0.0, most, below)
}

/// The place between `lo` and `hi` at which `below` turns from true to false, as closely as numbers lie there.
pub fn turning_point(mut lo: f64, mut hi: f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = f64::midpoint(lo, hi);
        if middle <= lo || middle >= hi || hi - lo < 1e-15 * hi.abs() {
            break;
        }
        if below(middle) { lo = middle } else { hi = middle }
    }
    f64::midpoint(lo, hi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incomplete_beta_holds_where_the_parameters_are_large() {
        // The median of a binomial with a whole mean is its mean.
        for n in [100_usize, 10_000, 200_000] {
            let (below, at) = (binomial_at_most(n / 2 - 1, n, 0.5), binomial_at_most(n / 2, n, 0.5));
            assert!((below + at - 1.0).abs() < 1e-9, "{n}: {below} {at}");
        }
        assert!((beta_regularized(2.0, 3.0, 0.4) - 0.5248).abs() < 1e-12);
    }
}
