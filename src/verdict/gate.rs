//! Gates: bounds that a run must hold, judged on the rows as `trials.csv` prints them.
//!
//! A void trial is an unknown, not a pass. Each gate is judged on the trials that count and then again with every
//! unknown at its best and at its worst: where that could turn the verdict, the gate is *inconclusive*. So a run with
//! thousands of trials carries a few void ones, and a run of ten can't be talked into a p99.

use super::{Outcome, TrialRow, VoidReason};
use crate::scenario::{Gate, Measure};
use crate::stats::{ks_p_value, ks_uniform};
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
}

/// Judges all gates.
#[must_use]
pub fn judge_gates(gates: &[Gate], rows: &[TrialRow]) -> Vec<GateResult> {
    gates.iter().map(|gate| judge_gate(gate, rows)).collect()
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

fn judge_gate(gate: &Gate, rows: &[TrialRow]) -> GateResult {
    let chosen: Vec<&TrialRow> = rows
        .iter()
        .filter(|r| gate.arm.as_ref().is_none_or(|arm| *arm == r.arm))
        .filter(|r| gate.fault.as_ref().is_none_or(|fault| *fault == r.fault))
        .collect();
    let sample = match &gate.measure {
        Measure::Quantile(_) | Measure::Uniform { .. } => numbers(gate, &chosen),
        Measure::Fraction(wanted) => matches(gate, &chosen, Some(wanted)),
        Measure::Count(wanted) => matches(gate, &chosen, wanted.as_deref()),
    };
    let value = sample.measure(&gate.measure, None);
    let verdict = match (value, sample.extremes(&gate.measure)) {
        (Some(_), Some((least, most))) => between(gate, least, most),
        _ => Verdict::Inconclusive,
    };
    GateResult { gate: gate.clone(), verdict, value, n: sample.known.len(), unknown: sample.unknown }
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

#[derive(Default)]
struct Sample {
    known: Vec<f64>,
    unknown: usize,
}

impl Sample {
    /// The measure over the known values, with the unknown ones all at `unknown` where that is given.
    fn measure(&self, measure: &Measure, unknown: Option<f64>) -> Option<f64> {
        let mut values = self.known.clone();
        if let Some(value) = unknown {
            values.resize(values.len() + self.unknown, value);
        }
        if values.is_empty() && !matches!(measure, Measure::Count(_)) {
            return None;
        }
        Some(match measure {
            Measure::Quantile(q) => {
                values.sort_by(f64::total_cmp);
                // The smallest value that at least a share q of all lies at or below; the guard absorbs q·n = 24.000…01.
                let rank = (q * values.len() as f64 - 1e-9).ceil().max(1.0) as usize;
                values[rank.min(values.len()) - 1]
            }
            Measure::Fraction(_) => values.iter().sum::<f64>() / values.len() as f64,
            Measure::Count(_) => values.iter().sum(),
            Measure::Uniform { from, to } => ks_uniform(&values, *from, *to)?.p,
        })
    }

    /// The least and the most that the measure could be, whatever the unknown values are; outer bounds.
    fn extremes(&self, measure: &Measure) -> Option<(f64, f64)> {
        let ends = |low, high| Some((self.measure(measure, Some(low))?, self.measure(measure, Some(high))?));
        match measure {
            // Monotone in each value.
            Measure::Quantile(_) => ends(f64::NEG_INFINITY, f64::INFINITY),
            Measure::Fraction(_) | Measure::Count(_) => ends(0.0, 1.0),
            Measure::Uniform { from, to } => {
                // The largest distance has all of the unknown at one end. The smallest is at least what is left of the
                // known ones' when the unknown make up for as much as they can: their share of the step.
                let (a, b) = ends(f64::NEG_INFINITY, f64::INFINITY)?;
                let known = ks_uniform(&self.known, *from, *to)?;
                let (n, u) = (known.n as f64, self.unknown as f64);
                let least_d = ((known.d * n - u) / (n + u)).max(0.0);
                Some((a.min(b), ks_p_value(least_d, known.n + self.unknown)))
            }
        }
    }
}

/// A numeric column. A trial that has no value because nobody noticed, or because its process is gone, lies beyond
/// every bound; void ones and false alarms are unknown; the others have nothing to say.
fn numbers(gate: &Gate, rows: &[&TrialRow]) -> Sample {
    let mut sample = Sample::default();
    for row in rows {
        let value = row.cell(&gate.metric).and_then(|cell| cell.parse::<f64>().ok());
        match (row.outcome, value) {
            (Outcome::Void, _) | (Outcome::FalseAlarm, None) => sample.unknown += 1,
            (_, Some(value)) => sample.known.push(value),
            (Outcome::Detected | Outcome::Censored | Outcome::SubjectExited, None) => sample.known.push(f64::INFINITY),
            (Outcome::Survived, None) => {}
        }
    }
    sample
}

/// Columns that compare a trial with its prediction.
const AGREEMENTS: [&str; 2] = ["agrees", "watcher_agrees"];

/// 1 for a trial whose cell is as wanted (any value, where nothing particular is wanted), else 0. A void trial is
/// unknown, unless the question is about void trials.
fn matches(gate: &Gate, rows: &[&TrialRow], wanted: Option<&str>) -> Sample {
    let about_void = gate.metric == "void_reason" || (gate.metric == "outcome" && wanted == Some(Outcome::Void.name()));
    let mut sample = Sample::default();
    for row in rows {
        let cell = row.cell(&gate.metric).unwrap_or_default();
        // Nothing was predicted, or there is nothing to compare it with: such a trial neither agrees nor disagrees.
        if row.outcome != Outcome::Void && cell.is_empty() && AGREEMENTS.contains(&gate.metric.as_str()) {
            continue;
        }
        let hit = match wanted {
            // A reason may carry details behind its code.
            Some(wanted) => cell == wanted || (gate.metric == "void_reason" && cell.starts_with(&format!("{wanted}:"))),
            None => !cell.is_empty(),
        };
        // A watcher that had fired before the cut would have been seen before the certificate was.
        let known = about_void || (gate.metric == "false_alarm" && cut_was_watched(row));
        if row.outcome == Outcome::Void && !known {
            sample.unknown += 1;
        } else {
            sample.known.push(f64::from(u8::from(hit)));
        }
    }
    sample
}

/// Whether a void trial was watched up to its cut, so that it is known not to be a false alarm.
fn cut_was_watched(row: &TrialRow) -> bool {
    row.fault_applied_s.is_some() && row.void_reason != Some(VoidReason::OtherConnection)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
