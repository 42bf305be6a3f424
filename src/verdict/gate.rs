//! Gates: bounds that a run must hold, judged on the rows as `trials.csv` prints them.
//!
//! A void trial is an unknown, not a pass. Each gate is judged on the trials that count and then again with every
//! unknown at its best and at its worst: where that could turn the verdict, the gate is *inconclusive*. So a run with
//! thousands of trials carries a few void ones, and a run of ten can't be talked into a p99.

use super::assurance::{self, Assured};
pub use super::gate_sample::GateSample;
use super::{Outcome, TrialRow};
use crate::scenario::{Gate, NoWorse, Reference};
use crate::stats::Interval;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What became of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Within its bounds.
    Held,
    /// Out of its bounds.
    Failed,
    /// No trial that counts, or the void ones could turn it.
    Inconclusive,
}

impl Verdict {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A gate with its verdict and the numbers behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult {
    /// The gate.
    pub gate: Gate,
    /// The verdict.
    pub verdict: Verdict,
    /// What was measured; infinite where a quantile is not reached because of censored trials; `None` without a trial.
    pub value: Option<f64>,
    /// Trials that were counted.
    pub n: usize,
    /// Trials that could not be counted and could have been anything.
    pub unknown: usize,
    /// Where the gate asks how sure: the interval of the value, or of the difference.
    pub interval: Option<Interval>,
    /// Trials (on each side) that would decide what is inconclusive.
    pub needed: Option<usize>,
    /// Why it is inconclusive, where the numbers don't say so themselves.
    pub why: String,
}

/// A stored run that gates of this one are held to. Written into `run.json`, so that the run is judged alike wherever its
/// baseline is by then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Where it was.
    pub path: String,
    /// What differs between the two runs so that nothing can be decided, one line each.
    #[serde(default)]
    pub differences: Vec<String>,
    /// What it has to say to each gate of the scenario, in their order; `None` for a gate that does not ask.
    pub samples: Vec<Option<GateSample>>,
}

impl Baseline {
    /// What the rows of a stored run say to these gates.
    #[must_use]
    pub fn new(path: &str, differences: Vec<String>, gates: &[Gate], rows: &[TrialRow]) -> Self {
        let asks = |gate: &Gate| matches!(&gate.no_worse, Some(NoWorse { than: Reference::Baseline, .. }));
        let sample = |gate: &Gate| asks(gate).then(|| GateSample::of(gate, &chosen(gate, gate.arm.as_deref(), rows)));
        Self { path: path.to_string(), differences, samples: gates.iter().map(sample).collect() }
    }
}

/// Judges all gates; those that are held to a stored run need one.
#[must_use]
pub fn judge_gates(gates: &[Gate], rows: &[TrialRow], baseline: Option<&Baseline>) -> Vec<GateResult> {
    let stored = |index: usize| baseline.and_then(|b| b.samples.get(index)).and_then(Option::as_ref);
    gates.iter().enumerate().map(|(i, gate)| judge_gate(gate, rows, baseline.map(|b| (b, stored(i))))).collect()
}

/// The largest share of void trials with which a cell of arm × fault still says something.
pub const MOST_VOID: f64 = 0.1;

/// Exit code by contract: 1 when a gate failed, else 4 when one is inconclusive, when more than a tenth of a cell of
/// arm × fault is void, or when the run did not reach its end; else 0.
#[must_use]
pub fn exit_code(results: &[GateResult], rows: &[TrialRow], complete: bool) -> u8 {
    let any = |verdict| results.iter().any(|r| r.verdict == verdict);
    if any(Verdict::Failed) {
        1
    } else if any(Verdict::Inconclusive) || has_void_cell(rows) || !complete {
        4
    } else {
        0
    }
}

/// Whether so many void trials of a cell are too many.
#[must_use]
pub fn too_void(void: usize, all: usize) -> bool {
    void as f64 > MOST_VOID * all as f64
}

fn has_void_cell(rows: &[TrialRow]) -> bool {
    let mut cells: BTreeMap<(&str, &str, &str), (usize, usize)> = BTreeMap::new();
    for row in rows {
        let cell = cells.entry((&row.arm, &row.fault, &row.scope)).or_default();
        cell.0 += usize::from(row.outcome == Outcome::Void);
        cell.1 += 1;
    }
    cells.is_empty() || cells.values().any(|(void, all)| too_void(*void, *all))
}

/// The rows that a gate looks at, of one arm or of all.
fn chosen<'r>(gate: &Gate, arm: Option<&str>, rows: &'r [TrialRow]) -> Vec<&'r TrialRow> {
    rows.iter()
        .filter(|r| arm.is_none_or(|arm| arm == r.arm))
        .filter(|r| gate.fault.as_ref().is_none_or(|fault| *fault == r.fault))
        .collect()
}

/// A stored run, and what it has to say to the gate at hand.
type Stored<'b> = (&'b Baseline, Option<&'b GateSample>);

fn judge_gate(gate: &Gate, rows: &[TrialRow], stored: Option<Stored<'_>>) -> GateResult {
    let sample = GateSample::of(gate, &chosen(gate, gate.arm.as_deref(), rows));
    let value = sample.measure(&gate.measure, None);
    let assured = match (&gate.no_worse, gate.confidence) {
        (Some(rule), _) => held_to(gate, rule, &sample, rows, stored),
        (None, Some(level)) => assurance::bounded(gate, level, &sample, value),
        (None, None) => {
            let verdict = match (value, sample.extremes(&gate.measure)) {
                (Some(_), Some((least, most))) => between(gate, least, most),
                _ => Verdict::Inconclusive,
            };
            Assured { verdict, interval: None, needed: None, why: String::new() }
        }
    };
    let Assured { verdict, interval, needed, why } = assured;
    GateResult { gate: gate.clone(), verdict, value, n: sample.n(), unknown: sample.unknown, interval, needed, why }
}

/// The gate against another arm, or against a stored run: that one decides only where nothing else differs.
fn held_to(gate: &Gate, rule: &NoWorse, own: &GateSample, rows: &[TrialRow], stored: Option<Stored<'_>>) -> Assured {
    let open = |why: String| Assured { verdict: Verdict::Inconclusive, interval: None, needed: None, why };
    match (&rule.than, stored) {
        (Reference::Arm(name), _) => {
            let other = GateSample::of(gate, &chosen(gate, Some(name), rows));
            assurance::no_worse(gate, rule, own, &other)
        }
        (Reference::Baseline, None) => {
            open("there is no baseline; name one with --baseline DIR, or keep one in baselines/NAME".to_string())
        }
        (Reference::Baseline, Some((baseline, None))) => {
            open(format!("the baseline {} was read for other gates; run again with it", baseline.path))
        }
        (Reference::Baseline, Some((baseline, Some(sample)))) => {
            let assured = assurance::no_worse(gate, rule, own, sample);
            if baseline.differences.is_empty() {
                return assured;
            }
            let why = format!("it only informs, because the baseline is another: {}", baseline.differences.join("; "));
            Assured { verdict: Verdict::Inconclusive, why, needed: None, ..assured }
        }
    }
}

/// The verdict on a value that lies somewhere from `least` to `most`.
fn between(gate: &Gate, least: f64, most: f64) -> Verdict {
    let above = |bound: Option<f64>, value: f64| bound.is_some_and(|max| value > max);
    let below = |bound: Option<f64>, value: f64| bound.is_some_and(|min| value < min);
    if above(gate.max, least) || below(gate.min, most) {
        Verdict::Failed
    } else if above(gate.max, most) || below(gate.min, least) {
        Verdict::Inconclusive
    } else {
        Verdict::Held
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
