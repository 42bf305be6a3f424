//! How many durations it takes to tell a timer from a smooth law that lies where it lies.

use super::law::Law;
use super::ordinary;
use super::sample::Point;

/// Points of a law that stand for it.
const GRID: usize = 200;
/// One-sided 95 %.
const SURE: f64 = 1.645;
/// Beyond this nobody waits for the answer.
const MOST: f64 = 1e6;

/// The number of durations from `law` at which a likelihood ratio against the best smooth law with a coefficient of
/// variation of at least `least_cv` exceeds `log_threshold` with a probability of 95 %: the least n with
/// n·κ − 1.645·√n·τ ≥ threshold, where κ and τ are mean and deviation of one duration's log-ratio. `None` where it is
/// more than a million.
pub(super) fn durations_to_tell(law: Law, least_cv: f64, log_threshold: f64) -> Option<u64> {
    let points: Vec<Point> =
        (0..GRID).map(|i| Point { x: law.quantile((i as f64 + 0.5) / GRID as f64), weight: 1.0 }).collect();
    let smooth = ordinary::best(&points, least_cv);
    let ratios: Vec<f64> = points.iter().map(|p| law.density(p.x).ln() - smooth.log_density(p.x)).collect();
    let mean = ratios.iter().sum::<f64>() / GRID as f64;
    let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / GRID as f64;
    if mean <= 0.0 {
        return None;
    }
    let spread = SURE * variance.sqrt();
    let root = (spread + (spread * spread + 4.0 * mean * log_threshold).sqrt()) / (2.0 * mean);
    let n = (root * root).ceil();
    (n <= MOST).then_some(n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_impostor_takes_some_tens_and_a_wide_timer_some_hundreds() {
        let law = Law { lo_s: 1200.0, hi_s: 1200.0, check_s: 120.0 };
        let n = durations_to_tell(law, ordinary::NARROW, 20f64.ln()).unwrap();
        assert!((20..80).contains(&n), "{n}");
        // Ordinary work at the same place is told from it at once.
        assert!(durations_to_tell(law, ordinary::ORDINARY, 20f64.ln()).unwrap() <= 5);
        let liveness = Law { lo_s: 60.0, hi_s: 90.0, check_s: 300.0 };
        let n = durations_to_tell(liveness, ordinary::ORDINARY, 20f64.ln()).unwrap();
        assert!((30..400).contains(&n), "{n}");
    }
}
