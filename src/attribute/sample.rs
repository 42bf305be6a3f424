//! A sample: sorted durations, and a lighter picture of them to compute with.

use crate::stats::{Mean, mean};
use serde::Serialize;

/// More durations than this are represented by as many quantiles, each with an equal weight: the law of a window's edge is
/// moved by less than one in two thousand, and the whole sample still decides every count and every test of fit.
const MOST_POINTS: usize = 2_000;

/// Durations in seconds, sorted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    sorted: Vec<f64>,
    /// Stalls that had no end when their watch ended: after how many seconds.
    pub unresolved_s: Vec<f64>,
}

/// What a sample looks like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many durations.
    pub n: usize,
    /// Stalls without an end.
    pub unresolved: usize,
    /// The mean of the durations.
    pub mean_s: f64,
    /// Their median.
    pub median_s: f64,
    /// The shortest.
    pub min_s: f64,
    /// The longest.
    pub max_s: f64,
    /// The clock's resolution, where all durations are multiples of a second or a minute; else zero.
    pub resolution_s: f64,
}

/// A duration with its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub weight: f64,
}

impl Sample {
    /// Sorts; what is not a positive, finite number is left out.
    #[must_use]
    pub fn new(mut seconds: Vec<f64>) -> Self {
        seconds.retain(|s| s.is_finite() && *s > 0.0);
        seconds.sort_unstable_by(f64::total_cmp);
        Self { sorted: seconds, unresolved_s: Vec::new() }
    }

    /// With stalls that never ended while they were watched.
    #[must_use]
    pub fn with_unresolved(mut self, seconds: Vec<f64>) -> Self {
        self.unresolved_s = seconds;
        self
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The durations, the shortest first.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// Those from a second to another, both inclusive.
    pub(super) fn within(&self, from_s: f64, to_s: f64) -> &[f64] {
        let first = self.sorted.partition_point(|x| *x < from_s);
        let last = self.sorted.partition_point(|x| *x <= to_s);
        &self.sorted[first..last.max(first)]
    }

    /// Its numbers; `None` of nothing.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let Mean { value_s, n } = mean(&self.sorted)?;
        let median_s = f64::midpoint(self.sorted[(n - 1) / 2], self.sorted[n / 2]);
        Some(Summary {
            n,
            unresolved: self.unresolved_s.len(),
            mean_s: value_s,
            median_s,
            min_s: self.sorted[0],
            max_s: self.sorted[n - 1],
            resolution_s: self.resolution_s(),
        })
    }

    /// Whole minutes or whole seconds throughout come from a clock that shows no more. Few values can be whole by chance.
    fn resolution_s(&self) -> f64 {
        let all = |unit: f64| self.sorted.iter().all(|x| (x / unit).fract() == 0.0);
        match self.sorted.len() {
            0..=2 => 0.0,
            _ if !all(1.0) => 0.0,
            3..=4 => 1.0,
            _ if all(60.0) => 60.0,
            _ => 1.0,
        }
    }

    /// What to compute with.
    pub(super) fn points(&self) -> Vec<Point> {
        let n = self.sorted.len();
        if n <= MOST_POINTS {
            return self.sorted.iter().map(|x| Point { x: *x, weight: 1.0 }).collect();
        }
        let weight = n as f64 / MOST_POINTS as f64;
        let middle = |i: usize| (((i as f64 + 0.5) * weight) as usize).min(n - 1);
        (0..MOST_POINTS).map(|i| Point { x: self.sorted[middle(i)], weight }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_sorted_and_knows_its_clock() {
        let sample = Sample::new(vec![3.0, 1.0, f64::NAN, 2.0, -1.0, 0.0, 4.5]);
        assert_eq!(sample.sorted(), [1.0, 2.0, 3.0, 4.5]);
        assert_eq!(sample.summary().unwrap().resolution_s, 0.0);
        assert_eq!(sample.summary().unwrap().median_s, 2.5);
        assert_eq!(Sample::new(vec![1200.0, 1260.0, 1320.0, 60.0, 120.0]).summary().unwrap().resolution_s, 60.0);
        assert_eq!(Sample::new(vec![1.0, 2.0, 3.0, 5.0, 8.0]).summary().unwrap().resolution_s, 1.0);
        assert_eq!(Sample::new(vec![]).summary(), None);
    }

    #[test]
    fn many_durations_are_represented_by_quantiles() {
        let sample = Sample::new((1..=100_000).map(f64::from).collect());
        let points = sample.points();
        assert_eq!(points.len(), MOST_POINTS);
        assert!((points.iter().map(|p| p.weight).sum::<f64>() - 100_000.0).abs() < 1e-6);
        assert_eq!((points[0].x, points[1999].x), (26.0, 99_976.0));
        assert_eq!(sample.within(10.0, 12.0), [10.0, 11.0, 12.0]);
        assert_eq!(sample.within(12.5, 12.7), [] as [f64; 0]);
    }
}
