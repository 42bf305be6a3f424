//! Whether values are a sample of a uniform distribution: the one-sample, two-sided test of Kolmogorov and Smirnov.

/// The most values for which the p-value is computed exactly; beyond, the limiting distribution is closer to it than any
/// gate could tell (below 10⁻⁴ at this n).
const EXACT: usize = 2_000;

/// A test with its sample size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KsTest {
    /// The largest distance between the empirical and the uniform distribution function.
    pub d: f64,
    /// The probability that a true sample of this size has a distance of at least `d`.
    pub p: f64,
    /// How many values there were.
    pub n: usize,
}

/// Tests values against the uniform distribution from `from` to `to`. Values beyond count with their rank, infinite ones
/// too. `None` of nothing, or where the range has no length.
#[must_use]
pub fn ks_uniform(values: &[f64], from: f64, to: f64) -> Option<KsTest> {
    let n = values.len();
    if n == 0 || from >= to || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let distance = |(i, value): (usize, &f64)| {
        let expected = ((value - from) / (to - from)).clamp(0.0, 1.0);
        ((i + 1) as f64 / n as f64 - expected).max(expected - i as f64 / n as f64)
    };
    let d = sorted.iter().enumerate().map(distance).fold(0.0, f64::max);
    Some(KsTest { d, p: ks_p_value(d, n), n })
}

/// The probability that the distance of n independent values from their own continuous distribution is at least `d`.
///
/// Up to 2,000 values exactly, by Durbin's matrix in the form of Marsaglia, Tsang and Wang (2003), *Evaluating
/// Kolmogorov's distribution*: the probability of a smaller distance is n!/nⁿ times the middle element of Hⁿ. Above,
/// Kolmogorov's limit with its first correction (Pelz and Good 1976): at x + 1/(6√n), which leaves O(1/n). A p-value below 10⁻¹² is given by the limit's first term.
#[must_use]
pub fn ks_p_value(d: f64, n: usize) -> f64 {
    let size = n as f64;
    if n == 0 || d <= 0.5 / size {
        return 1.0;
    }
    if d >= 1.0 {
        return 0.0;
    }
    // Twice the one-sided tail is exact here to every digit that is kept, and powers of the matrix would cancel.
    if n > EXACT || size * d * d > 14.0 {
        return limit(size.sqrt() * d + 1.0 / (6.0 * size.sqrt()));
    }
    (1.0 - below(d, n)).clamp(0.0, 1.0)
}

/// Kolmogorov's limit: 2·Σ (−1)^(k−1)·exp(−2k²x²), and for small x, where that converges slowly, its other form.
fn limit(x: f64) -> f64 {
    if x < 0.5 {
        let base = std::f64::consts::PI.powi(2) / (8.0 * x * x);
        let sum: f64 = (1..=5).map(|k| (-base * f64::from((2 * k - 1) * (2 * k - 1))).exp()).sum();
        return (1.0 - (2.0 * std::f64::consts::PI).sqrt() / x * sum).clamp(0.0, 1.0);
    }
    let term = |k: i32| (-2.0 * f64::from(k * k) * x * x).exp() * if k % 2 == 0 { -2.0 } else { 2.0 };
    (1..=20).map(term).sum::<f64>().clamp(0.0, 1.0)
}

/// A square matrix with a power of ten that stands apart, so that no element over- or underflows.
struct Scaled {
    m: usize,
    elements: Vec<f64>,
    exponent: i32,
}

impl Scaled {
    fn times(&self, other: &Self) -> Self {
        let m = self.m;
        let mut elements = vec![0.0; m * m];
        for i in 0..m {
            for k in 0..m {
                let factor = self.elements[i * m + k];
                if factor != 0.0 {
                    for j in 0..m {
                        elements[i * m + j] += factor * other.elements[k * m + j];
                    }
                }
            }
        }
        let mut product = Self { m, elements, exponent: self.exponent + other.exponent };
        if product.elements[(m / 2) * m + m / 2] > 1e140 {
            product.elements.iter_mut().for_each(|e| *e *= 1e-140);
            product.exponent += 140;
        }
        product
    }

    fn power(self, n: usize) -> Self {
        if n == 1 {
            return self;
        }
        let squared = self.times(&self).power(n / 2);
        if n.is_multiple_of(2) { squared } else { squared.times(&self) }
    }
}

/// The probability of a distance below `d`, exactly; `n·d` above a half.
fn below(d: f64, n: usize) -> f64 {
    let k = (n as f64 * d) as usize + 1;
    let m = 2 * k - 1;
    let h = k as f64 - n as f64 * d;
    let mut elements = vec![0.0; m * m];
    for i in 0..m {
        for j in 0..m {
            elements[i * m + j] = if i + 1 >= j { 1.0 } else { 0.0 };
        }
    }
    for i in 0..m {
        let power = h.powi(i as i32 + 1);
        elements[i * m] -= power;
        elements[(m - 1) * m + m - 1 - i] -= power;
    }
    if 2.0 * h > 1.0 {
        elements[(m - 1) * m] += (2.0 * h - 1.0).powi(m as i32);
    }
    for i in 0..m {
        for j in 0..m {
            for g in 1..=(i + 1).saturating_sub(j) {
                elements[i * m + j] /= g as f64;
            }
        }
    }
    let power = Scaled { m, elements, exponent: 0 }.power(n);
    let mut value = power.elements[(k - 1) * m + k - 1];
    let mut exponent = power.exponent;
    for i in 1..=n {
        value *= i as f64 / n as f64;
        if value < 1e-140 {
            value *= 1e140;
            exponent -= 140;
        }
    }
    value * 10f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `tests/stats/ks.csv` is written by `tests/stats/ks.py`, which asks SciPy.
    #[test]
    fn the_numbers_of_scipy() {
        let mut seen = 0;
        for line in include_str!("../../tests/stats/ks.csv").lines().skip(1) {
            let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
            let [n, d, p] = cells[..] else { panic!("{line}") };
            let got = ks_p_value(d, n as usize);
            // SciPy itself is exact up to 140 and has seven digits beyond; the limiting form is as good as it says.
            let near = match n as usize {
                0..=140 => 1e-10,
                141..=EXACT => 1e-6,
                _ => 1e-4,
            };
            assert!((got - p).abs() < near, "n {n}, d {d}: {got} is not {p}");
            seen += 1;
        }
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn a_whole_sample_as_scipy_has_it() {
        // scipy.stats.kstest([10.1, 10.3, 10.35, 11.2, 11.9, 12.4], "uniform", (10, 2))
        let test = ks_uniform(&[10.35, 10.1, 12.4, 11.9, 11.2, 10.3], 10.0, 12.0).unwrap();
        assert!((test.d - 0.325).abs() < 1e-12 && (test.p - 0.453_825_377_121_912_84).abs() < 1e-12, "{test:?}");
    }

    #[test]
    fn what_is_beyond_the_range_or_never_comes_counts_against_it() {
        let spread: Vec<f64> = (0..100).map(|i| 10.0 + (f64::from(i) + 0.5) / 50.0).collect();
        assert!(ks_uniform(&spread, 10.0, 12.0).unwrap().p > 0.999_999);
        let mut late = spread.clone();
        late.extend([f64::INFINITY; 40]);
        assert!(ks_uniform(&late, 10.0, 12.0).unwrap().p < 1e-3);
        assert!(ks_uniform(&spread, 10.0, 14.0).unwrap().p < 1e-9);
        assert_eq!(ks_uniform(&[], 0.0, 1.0), None);
        assert_eq!(ks_uniform(&[1.0], 1.0, 1.0), None);
    }

    proptest! {
        #[test]
        fn a_larger_distance_is_never_more_likely(n in 1usize..300, d in 0f64..1.0, more in 0f64..0.2) {
            prop_assert!(ks_p_value(d, n) >= ks_p_value((d + more).min(1.0), n) - 1e-9);
        }
    }
}
