//! The rows of a comparison, as `compare.json` has them.

use super::{Price, Race};
use crate::stats::{Interval, LogRank, Standing};
use crate::verdict::metric::Metric;
use serde::{Serialize, Serializer};

/// One metric of one pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricLine {
    /// Which.
    #[serde(serialize_with = "name_of")]
    pub metric: Metric,
    /// The first side's value; `null` is "not reached".
    pub a: Option<f64>,
    /// Its 95 % interval.
    pub a_interval: Interval,
    /// Its observations.
    pub a_n: usize,
    /// The second side's value.
    pub b: Option<f64>,
    /// Its 95 % interval.
    pub b_interval: Interval,
    /// Its observations.
    pub b_n: usize,
    /// Second less first; `null` where either is not reached.
    pub difference: Option<f64>,
    /// Its 95 % interval.
    pub interval: Interval,
    /// A test that the sides are one.
    pub p: Option<f64>,
    /// The same, corrected for all questions of this comparison that can fail it (Holm).
    pub p_adjusted: Option<f64>,
    /// The largest difference that does not matter, in the metric's unit.
    pub margin: f64,
    /// What the difference means.
    pub verdict: Standing,
    /// Whether "worse" fails the comparison.
    pub judged: bool,
    /// Whether "inconclusive" leaves it open.
    pub decides: bool,
    /// Trials on each side that would tell a difference of the margin from none (power 90 %).
    pub needed: Option<usize>,
    /// What the intervals are.
    pub method: &'static str,
}

fn name_of<S: Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(metric.name())
}

/// One side of a pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideLine {
    /// The arm.
    pub arm: String,
    /// Runs in which it is.
    pub runs: usize,
    /// Trials.
    pub trials: usize,
    /// Void ones.
    pub void: usize,
    /// Trials that were a measurement of a cut.
    pub certified: usize,
    /// Hours of healthy connection.
    pub healthy_h: f64,
    /// What its settings cost.
    pub price: Price,
    /// Its race with the reaper.
    pub race: Option<Race>,
}

/// An arm against an arm under one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairLine {
    /// The first side.
    pub a: SideLine,
    /// The second side.
    pub b: SideLine,
    /// The fault.
    pub fault: String,
    /// Its scope.
    pub scope: String,
    /// What was asked differently, one line an option.
    pub changed: Vec<String>,
    /// Whether both sides ran side by side in the same runs.
    pub interleaved: bool,
    /// Whether the curves of the times to detect are one.
    pub log_rank: Option<LogRank>,
    /// The numbers.
    pub metrics: Vec<MetricLine>,
    /// What stands in the way of a measurement here.
    pub trouble: Vec<String>,
}

/// A case for CI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateLine {
    /// What was held up.
    pub text: String,
    /// `held`, `failed`, `inconclusive` or `error`.
    pub verdict: &'static str,
    /// Whether "inconclusive" makes the exit code.
    pub decides: bool,
    /// Why.
    pub why: String,
}
