//! The reaper's race against the connection's own detection.

use crate::stats::{ALPHA, Interval, Kaplan, clopper_pearson, normal_quantile};
use crate::verdict::sample::{Racer, Sample};
use serde::Serialize;

/// A reaper that looks for what is older than its limit: seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReaperRule {
    /// What is older is failed.
    pub timeout_s: f64,
    /// How often it looks.
    pub interval_s: f64,
}

/// One side of the race.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Race {
    /// Trials in which a message waited.
    pub n: usize,
    /// In these the run's own reaper was first.
    pub reaper_first: usize,
    /// The share, with its exact interval.
    pub share: Option<f64>,
    /// Its interval.
    pub interval: Option<Interval>,
    /// The probability that the reaper is first over all phases of its sweep: what these detections would have met, whatever
    /// phase this run happened to draw. `[least, most]` where censored trials leave it open.
    pub probability: Option<Interval>,
    /// Its interval by the scatter over the trials.
    pub probability_interval: Option<Interval>,
    /// The window of duplicate execution: from the reaper's decision until the first worker is back. Median in seconds;
    /// `None` where there was none, or where too many were not back by the end.
    pub window_median_s: Option<f64>,
    /// The longest that ended.
    pub window_max_s: Option<f64>,
    /// Trials in which the first worker was not back when the watch ended: the window is still open.
    pub window_open: usize,
}

/// The race of a sample, where a message waited; with a rule also over all phases of its sweep.
#[must_use]
pub fn race(sample: &Sample, rule: Option<ReaperRule>) -> Option<Race> {
    let racers = &sample.races;
    let n = racers.len();
    if n == 0 {
        return None;
    }
    let reaper_first = racers.iter().filter(|r| r.reaper_first()).count();
    let reaped = racers.iter().any(|r| r.reaped_s.is_some());
    let windows: Vec<_> = racers.iter().filter_map(Racer::window).collect();
    let curve = Kaplan::of(&windows);
    let (lo, hi) = clopper_pearson(reaper_first, n, ALPHA);
    let over_phases = rule.map(|rule| over_phases(racers, rule));
    (reaped || rule.is_some()).then(|| Race {
        n,
        reaper_first,
        share: reaped.then(|| reaper_first as f64 / n as f64),
        interval: reaped.then(|| Interval::new(lo, hi)),
        probability: over_phases.map(|(p, _)| p),
        probability_interval: over_phases.map(|(_, i)| i),
        window_median_s: curve.quantile(0.5),
        window_max_s: windows.iter().filter(|w| w.happened).map(|w| w.seconds).max_by(f64::total_cmp),
        window_open: windows.iter().filter(|w| !w.happened).count(),
    })
}

/// The mean over the trials of P(queued + timeout + U(0, interval) < detection), least and most, and its interval.
fn over_phases(racers: &[Racer], rule: ReaperRule) -> (Interval, Interval) {
    let n = racers.len() as f64;
    let before = |racer: &Racer, at: f64| {
        let from = racer.queued_s + rule.timeout_s;
        if rule.interval_s > 0.0 {
            ((at - from) / rule.interval_s).clamp(0.0, 1.0)
        } else {
            f64::from(u8::from(at > from))
        }
    };
    let least: Vec<f64> = racers.iter().map(|r| before(r, r.detection.seconds)).collect();
    // Who was not detected yet may be so at once, or never.
    let most: Vec<f64> = racers.iter().zip(&least).map(|(r, p)| if r.detection.happened { *p } else { 1.0 }).collect();
    let mean = |p: &[f64]| p.iter().sum::<f64>() / n;
    let bounds = |p: &[f64]| {
        if p.iter().all(|p| *p == 0.0 || *p == 1.0) {
            let (lo, hi) = clopper_pearson(p.iter().filter(|p| **p == 1.0).count(), p.len(), ALPHA);
            return Interval::new(lo, hi);
        }
        let m = mean(p);
        let variance = p.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        let half = normal_quantile(1.0 - ALPHA / 2.0) * (variance / n).sqrt();
        Interval::new((m - half).max(0.0), (m + half).min(1.0))
    };
    (Interval::new(mean(&least), mean(&most)), bounds(&least).hull(bounds(&most)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Observation;

    fn racer(queued_s: f64, reaped_s: Option<f64>, detected: Option<f64>) -> Racer {
        let until = |at: Option<f64>| at.map_or(Observation::censored(1500.0), Observation::event);
        Racer { queued_s, reaped_s, detection: until(detected), recovery: until(detected.map(|at| at + 1.0)) }
    }

    fn sample(races: Vec<Racer>) -> Sample {
        Sample { races, ..Sample::default() }
    }

    #[test]
    fn the_probability_is_over_the_phases_of_the_sweep() {
        let rule = ReaperRule { timeout_s: 1200.0, interval_s: 120.0 };
        // Queued at the cut and detected halfway between the first and the last moment of a sweep.
        let half = race(&sample(vec![racer(0.0, None, Some(1260.0))]), Some(rule)).unwrap();
        assert_eq!(half.probability, Some(Interval::new(0.5, 0.5)));
        let early = race(&sample(vec![racer(0.0, None, Some(60.0)); 40]), Some(rule)).unwrap();
        assert_eq!(early.probability, Some(Interval::new(0.0, 0.0)));
        assert!(early.probability_interval.unwrap().hi < 0.09, "{early:?}");
        // Not detected within the watch, which ends before the last moment of a sweep.
        let open = sample(vec![Racer { detection: Observation::censored(1230.0), ..racer(0.0, None, None) }]);
        assert_eq!(race(&open, Some(rule)).unwrap().probability, Some(Interval::new(0.25, 1.0)));
    }

    #[test]
    fn the_window_of_duplicate_execution_ends_with_the_first_worker_s_return() {
        let races =
            vec![racer(0.0, Some(1210.0), Some(1300.0)), racer(0.0, Some(1250.0), None), racer(0.0, None, Some(9.0))];
        let got = race(&sample(races), None).unwrap();
        assert_eq!((got.n, got.reaper_first, got.window_open), (3, 2, 1));
        assert_eq!(got.window_max_s, Some(91.0));
        assert_eq!(race(&sample(vec![racer(0.0, None, Some(9.0))]), None), None, "without a reaper there is no race");
    }
}
