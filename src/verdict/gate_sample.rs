//! What a gate takes of the trials that it looks at.

use super::sample::{Facts, Sample};
use super::{Outcome, TrialRow, VoidReason};
use crate::scenario::{Gate, Measure};
use crate::stats::{Kaplan, Observation, ks_p_value, ks_uniform};
use serde::{Deserialize, Serialize};

/// What a gate takes of the trials that it looks at.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GateSample {
    /// Values: seconds or numbers; 1 for a hit and 0 for none.
    pub known: Vec<f64>,
    /// Trials that lie beyond every bound: nobody noticed.
    #[serde(default)]
    pub beyond: usize,
    /// Trials that could have been anything.
    #[serde(default)]
    pub unknown: usize,
    /// For means: seconds, and whether the event happened.
    #[serde(default)]
    pub times: Vec<(f64, bool)>,
    /// For rates: events.
    #[serde(default)]
    pub events: u64,
    /// Hours of healthy connection.
    #[serde(default)]
    pub exposure_h: f64,
    /// Trials that contributed to them.
    #[serde(default)]
    pub exposed: usize,
    /// The horizon, in seconds.
    #[serde(default)]
    pub horizon_s: f64,
}

impl GateSample {
    /// What the gate takes of these rows.
    pub(super) fn of(gate: &Gate, rows: &[&TrialRow]) -> Self {
        match &gate.measure {
            Measure::Quantile(_) | Measure::Uniform { .. } => numbers(gate, rows),
            Measure::Fraction(wanted) => matches(gate, rows, Some(wanted)),
            Measure::Count(wanted) => matches(gate, rows, wanted.as_deref()),
            Measure::Mean | Measure::Rate | Measure::BeforeReaper => trials(gate, rows),
        }
    }

    /// The values as observations; what lies beyond every bound is censored beyond all of them.
    pub(super) fn observations(&self) -> Vec<Observation> {
        let known = self.known.iter().map(|v| Observation::event(*v));
        known.chain(std::iter::repeat_n(Observation::censored(f64::MAX), self.beyond)).collect()
    }

    /// The times as observations.
    pub(super) fn times(&self) -> Vec<Observation> {
        self.times.iter().map(|(seconds, happened)| Observation { seconds: *seconds, happened: *happened }).collect()
    }

    /// Up to where the mean of these times is taken.
    pub(super) fn limit_s(&self, curve: &Kaplan) -> f64 {
        let known = curve.limit_s().min(if self.horizon_s > 0.0 { self.horizon_s } else { f64::INFINITY });
        if known.is_finite() { known } else { curve.last_s() }
    }

    /// No unknown time counts as more.
    pub(super) fn longest_s(&self) -> f64 {
        self.times.iter().map(|(seconds, _)| *seconds).fold(self.horizon_s, f64::max)
    }

    /// The mean of the times; the rate of the events.
    fn mean(&self) -> Option<f64> {
        let curve = Kaplan::of(&self.times());
        Some(curve.restricted_mean(self.limit_s(&curve))?.mean_s)
    }

    /// Trials that count.
    pub(super) fn n(&self) -> usize {
        (self.known.len() + self.beyond).max(self.times.len()).max(self.exposed)
    }

    /// The measure over the known values, with the unknown ones all at `unknown` where that is given.
    pub(super) fn measure(&self, measure: &Measure, unknown: Option<f64>) -> Option<f64> {
        let mut values = self.known.clone();
        values.resize(values.len() + self.beyond, f64::INFINITY);
        if let Some(value) = unknown {
            values.resize(values.len() + self.unknown, value);
        }
        match measure {
            Measure::Mean => return self.mean(),
            Measure::Rate => return (self.exposure_h > 0.0).then(|| self.events as f64 / self.exposure_h),
            Measure::Count(_) => {}
            _ if values.is_empty() => return None,
            _ => {}
        }
        Some(match measure {
            Measure::Quantile(q) => {
                values.sort_by(f64::total_cmp);
                // The smallest value that at least a share q of all lies at or below; the guard absorbs q·n = 24.000…01.
                let rank = (q * values.len() as f64 - 1e-9).ceil().max(1.0) as usize;
                values[rank.min(values.len()) - 1]
            }
            Measure::Fraction(_) | Measure::BeforeReaper => values.iter().sum::<f64>() / values.len() as f64,
            Measure::Count(_) => values.iter().sum(),
            Measure::Uniform { from, to } => ks_uniform(&values, *from, *to)?.p,
            Measure::Mean | Measure::Rate => return None,
        })
    }

    /// The least and the most that the measure could be, whatever the unknown values are; outer bounds.
    pub(super) fn extremes(&self, measure: &Measure) -> Option<(f64, f64)> {
        let ends = |low, high| Some((self.measure(measure, Some(low))?, self.measure(measure, Some(high))?));
        match measure {
            // Monotone in each value.
            Measure::Quantile(_) => ends(f64::NEG_INFINITY, f64::INFINITY),
            Measure::Fraction(_) | Measure::Count(_) | Measure::BeforeReaper => ends(0.0, 1.0),
            Measure::Mean => {
                let with = |time: (f64, bool)| {
                    let mut all = self.clone();
                    all.times.resize(all.times.len() + all.unknown, time);
                    all.mean()
                };
                Some((with((0.0, true))?, with((self.longest_s(), false))?))
            }
            Measure::Rate => {
                let value = self.measure(measure, None)?;
                Some((value, value + self.unknown as f64 / self.exposure_h))
            }
            Measure::Uniform { from, to } => {
                // The largest distance has all of the unknown at one end. The smallest is at least what is left of the
                // known ones' when the unknown make up for as much as they can: their share of the step.
                let (a, b) = ends(f64::NEG_INFINITY, f64::INFINITY)?;
                let mut values = self.known.clone();
                values.resize(values.len() + self.beyond, f64::INFINITY);
                let known = ks_uniform(&values, *from, *to)?;
                let (n, u) = (known.n as f64, self.unknown as f64);
                let least_d = ((known.d * n - u) / (n + u)).max(0.0);
                Some((a.min(b), ks_p_value(least_d, known.n + self.unknown)))
            }
        }
    }
}

/// What is taken of whole trials: times with their censoring, rates, races.
fn trials(gate: &Gate, rows: &[&TrialRow]) -> GateSample {
    let mut all = Sample::default();
    rows.iter().for_each(|row| all.add(&Facts::from(*row)));
    let mut sample = GateSample { unknown: all.void, horizon_s: all.horizon_s, ..GateSample::default() };
    let pairs = |times: &[Observation]| times.iter().map(|o| (o.seconds, o.happened)).collect();
    match (&gate.measure, gate.metric.as_str()) {
        (Measure::Rate, _) => {
            (sample.events, sample.exposure_h, sample.exposed) =
                (all.false_alarms as u64, all.healthy_h, all.healthy_n);
        }
        (Measure::BeforeReaper, _) => {
            // Where neither has come by the end, either may be first.
            let open = all.races.iter().filter(|r| !r.detection.happened && r.reaped_s.is_none()).count();
            let settled = all.races.iter().filter(|r| r.detection.happened || r.reaped_s.is_some());
            sample.known = settled.map(|r| f64::from(u8::from(!r.reaper_first()))).collect();
            sample.unknown += open;
        }
        (_, "ttr_s") => sample.times = pairs(&all.ttr),
        (_, "stuck_s") => {
            sample.times = pairs(&all.stuck);
            // Counted from the queue, not from the cut.
            sample.horizon_s = 0.0;
        }
        _ => sample.times = pairs(&all.ttd),
    }
    sample
}

/// A numeric column. A trial that has no value because nobody noticed, or because its process is gone, lies beyond
/// every bound; void ones, false alarms and those whose process was gone before there was a fault are unknown; the others have
/// nothing to say.
fn numbers(gate: &Gate, rows: &[&TrialRow]) -> GateSample {
    let mut sample = GateSample::default();
    for row in rows {
        let value = row.cell(&gate.metric).and_then(|cell| cell.parse::<f64>().ok());
        match (row.outcome, value) {
            (Outcome::Void, _) | (Outcome::FalseAlarm, None) => sample.unknown += 1,
            (_, Some(value)) => sample.known.push(value),
            // A program that does not even start says nothing of a timeout.
            (Outcome::SubjectExited, None) if row.fault_applied_s.is_none() => sample.unknown += 1,
            (Outcome::Detected | Outcome::Censored | Outcome::SubjectExited, None) => sample.beyond += 1,
            (Outcome::Survived, None) => {}
        }
    }
    sample
}

/// Columns that compare a trial with its prediction.
const AGREEMENTS: [&str; 2] = ["agrees", "watcher_agrees"];

/// 1 for a trial whose cell is as wanted (any value, where nothing particular is wanted), else 0. A void trial is
/// unknown, unless the question is about void trials.
fn matches(gate: &Gate, rows: &[&TrialRow], wanted: Option<&str>) -> GateSample {
    let about_void = gate.metric == "void_reason" || (gate.metric == "outcome" && wanted == Some(Outcome::Void.name()));
    let mut sample = GateSample::default();
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
