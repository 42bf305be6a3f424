//! Durations that no timer made: the best that a smooth law can do.
//!
//! Lognormal, Weibull (the exponential is one of them) and gamma laws, by maximum likelihood, with a coefficient of
//! variation of at least a given bound. Ordinary work varies by at least [`ORDINARY`]; without a bound the same
//! families answer whether a cluster could be anything else but a timer.

use super::sample::Point;
use serde::Serialize;

/// The coefficient of variation that ordinary work has at least.
pub(super) const ORDINARY: f64 = 0.3;
/// No bound to speak of: narrower than any clock.
pub(super) const NARROW: f64 = 1e-4;

/// A fitted smooth law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Smooth {
    /// Its family.
    pub family: &'static str,
    /// The logarithm of the likelihood of the points.
    pub log_likelihood: f64,
    /// Its coefficient of variation.
    pub cv: f64,
    /// First and second parameter: μ, σ of the logarithm; scale and shape.
    parameters: (f64, f64),
}

impl Smooth {
    /// The logarithm of its density.
    pub fn log_density(&self, x: f64) -> f64 {
        let (a, b) = self.parameters;
        match self.family {
            LOGNORMAL => {
                let z = (x.ln() - a) / b;
                -0.5 * z * z - x.ln() - b.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln()
            }
            _ => {
                let t = x.ln() - a.ln();
                b.ln() - a.ln() + (b - 1.0) * t - (b * t).exp()
            }
        }
    }
}

const LOGNORMAL: &str = "lognormal";
const WEIBULL: &str = "Weibull";

/// The likeliest of the families whose coefficient of variation is `least_cv` or more. The points are not none.
pub(super) fn best(points: &[Point], least_cv: f64) -> Smooth {
    let (a, b) = (lognormal(points, least_cv), weibull(points, least_cv));
    if a.log_likelihood >= b.log_likelihood { a } else { b }
}

fn mean_of(points: &[Point], f: impl Fn(f64) -> f64) -> f64 {
    let total: f64 = points.iter().map(|p| p.weight).sum();
    points.iter().map(|p| p.weight * f(p.x)).sum::<f64>() / total
}

fn with_likelihood(mut law: Smooth, points: &[Point]) -> Smooth {
    law.log_likelihood = points.iter().map(|p| p.weight * law.log_density(p.x)).sum();
    law
}

/// CV² = exp(σ²) − 1; the bound on σ leaves μ the mean of the logarithms.
fn lognormal(points: &[Point], least_cv: f64) -> Smooth {
    let mu = mean_of(points, f64::ln);
    let sigma = mean_of(points, |x| (x.ln() - mu).powi(2)).sqrt().max((1.0 + least_cv * least_cv).ln().sqrt());
    let cv = ((sigma * sigma).exp() - 1.0).sqrt();
    with_likelihood(Smooth { family: LOGNORMAL, log_likelihood: 0.0, cv, parameters: (mu, sigma) }, points)
}

/// The shape solves Σw·xᵏ·ln x / Σw·xᵏ − 1/k = mean of ln x, whose left side rises in k; the profile likelihood has one
/// maximum, so a bound on k that lies below it is where the bounded maximum is.
fn weibull(points: &[Point], least_cv: f64) -> Smooth {
    let centre = mean_of(points, f64::ln);
    // In units of the geometric mean, so that no power overflows.
    let logs: Vec<(f64, f64)> = points.iter().map(|p| (p.x.ln() - centre, p.weight)).collect();
    let slope = |k: f64| {
        let largest = logs.iter().map(|(t, _)| k * t).fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut moment) = (0.0, 0.0);
        for (t, w) in &logs {
            let e = w * (k * t - largest).exp();
            sum += e;
            moment += e * t;
        }
        moment / sum - 1.0 / k
    };
    let (mut lo, mut hi) = (0.02_f64, shape_of(least_cv));
    if slope(hi) > 0.0 {
        for _ in 0..50 {
            let middle = (lo * hi).sqrt();
            if slope(middle) < 0.0 { lo = middle } else { hi = middle }
        }
    }
    let k = hi;
    let largest = logs.iter().map(|(t, _)| k * t).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logs.iter().map(|(_, w)| w).sum();
    let power = logs.iter().map(|(t, w)| w * (k * t - largest).exp()).sum::<f64>() / total;
    let scale = (centre + (power.ln() + largest) / k).exp();
    with_likelihood(Smooth { family: WEIBULL, log_likelihood: 0.0, cv: cv_of(k), parameters: (scale, k) }, points)
}

/// CV² = Γ(1 + 2/k) / Γ(1 + 1/k)² − 1, falling in k.
fn cv_of(k: f64) -> f64 {
    let ln_gamma = statrs::function::gamma::ln_gamma;
    (ln_gamma(1.0 + 2.0 / k) - 2.0 * ln_gamma(1.0 + 1.0 / k)).exp_m1().max(0.0).sqrt()
}

/// The shape at which the coefficient of variation is `cv`.
fn shape_of(cv: f64) -> f64 {
    let (mut lo, mut hi) = (0.05_f64, 20_000.0_f64);
    for _ in 0..80 {
        let middle = (lo * hi).sqrt();
        if cv_of(middle) > cv { lo = middle } else { hi = middle }
    }
    (lo * hi).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        values.iter().map(|x| Point { x: *x, weight: 1.0 }).collect()
    }

    #[test]
    fn the_fits_are_those_of_scipy() {
        // scipy.stats.lognorm.fit(x, floc=0) and weibull_min.fit(x, floc=0) of these values.
        let x = points(&[310.0, 95.0, 620.0, 410.0, 205.0, 150.0, 720.0, 330.0, 260.0, 505.0]);
        let law = lognormal(&x, NARROW);
        assert!(
            (law.parameters.0 - 5.723_355_50).abs() < 1e-7 && (law.parameters.1 - 0.603_054_32).abs() < 1e-7,
            "{law:?}"
        );
        assert!((law.log_likelihood + 66.365_460_4).abs() < 1e-6, "{law:?}");
        let law = weibull(&x, NARROW);
        assert!((law.log_likelihood + 66.104_312_5).abs() < 1e-6, "{law:?}");
        assert!(
            (law.parameters.1 - 1.983_244_01).abs() < 1e-6 && (law.parameters.0 - 408.166_805).abs() < 1e-4,
            "{law:?}"
        );
    }

    #[test]
    fn a_bound_is_held() {
        let x = points(&[1210.0, 1230.0, 1250.0, 1270.0, 1300.0]);
        let law = best(&x, ORDINARY);
        assert!((law.cv - ORDINARY).abs() < 1e-3, "{law:?}");
        assert!(best(&x, NARROW).log_likelihood > law.log_likelihood + 5.0);
        assert!((cv_of(1.0) - 1.0).abs() < 1e-9);
        assert!((shape_of(1.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn one_duration_is_no_reason_to_fall_over() {
        assert!(best(&points(&[12.5]), ORDINARY).log_likelihood.is_finite());
        assert!(best(&points(&[7.0, 7.0, 7.0]), NARROW).log_likelihood.is_finite());
    }
}
