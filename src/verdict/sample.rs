//! Trials of one arm under one fault as comparisons see them: times with their censoring, counts, exposure.
//!
//! A sample is made of rows of `trials.csv` and `messages.csv`, read back or fresh, so that a comparison and a gate say the
//! same of the same run.

use super::rows::TrialRow;
use super::{Outcome, messages};
use crate::stats::Observation;

/// What a sample takes of one trial; times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Facts {
    /// How it ended.
    pub outcome: Outcome,
    /// The cut, from the run's start.
    pub fault_applied_s: Option<f64>,
    /// Time to detect.
    pub ttd_s: Option<f64>,
    /// Time to recover.
    pub ttr_s: Option<f64>,
    /// When the oldest waiting message was published, from the run's start.
    pub queued_s: Option<f64>,
    /// When it was resolved.
    pub resolved_s: Option<f64>,
    /// Whether a reaper did that.
    pub by_reaper: bool,
    /// The end of the watch.
    pub ended_s: Option<f64>,
    /// How long it was to be watched after the cut.
    pub horizon_s: f64,
    /// How long the connection was healthy under watch; `None` in runs of older versions.
    pub healthy_s: Option<f64>,
    /// Connections and attempts, the one under test included.
    pub attempts: u64,
}

impl From<&TrialRow> for Facts {
    fn from(row: &TrialRow) -> Self {
        let s = |at: Option<crate::units::Offset>| at.map(crate::units::Offset::as_secs);
        Self {
            outcome: row.outcome,
            fault_applied_s: s(row.fault_applied_s),
            ttd_s: s(row.ttd_s),
            ttr_s: s(row.ttr_s),
            queued_s: s(row.queued_s),
            resolved_s: s(row.resolved_s),
            by_reaper: is_reaper(&row.resolved_by),
            ended_s: s(row.ended_s),
            horizon_s: row.horizon_s.as_secs(),
            healthy_s: s(row.healthy_s),
            attempts: row.attempts,
        }
    }
}

/// Whether the column `resolved_by` names a reaper's rule.
#[must_use]
pub fn is_reaper(resolved_by: &str) -> bool {
    !resolved_by.is_empty() && resolved_by != messages::RECOVERY
}

/// The race between a reaper and the connection's own detection in one trial; seconds from the cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Racer {
    /// When the waiting message was published; negative before the cut.
    pub queued_s: f64,
    /// When the reaper resolved it, where it did.
    pub reaped_s: Option<f64>,
    /// The connection's own detection.
    pub detection: Observation,
    /// When the subject consumed again, or until when it did not.
    pub recovery: Observation,
}

impl Racer {
    /// Whether the reaper was first.
    #[must_use]
    pub fn reaper_first(&self) -> bool {
        self.reaped_s.is_some_and(|at| !self.detection.happened || at < self.detection.seconds)
    }

    /// The window of duplicate execution: from the reaper's decision, upon which the task is tried again, until the first
    /// worker is back and may run what it held. `None` where the reaper was not first.
    #[must_use]
    pub fn window(&self) -> Option<Observation> {
        let at = self.reaped_s.filter(|_| self.reaper_first())?;
        Some(Observation { seconds: (self.recovery.seconds - at).max(0.0), happened: self.recovery.happened })
    }
}

/// Trials of one arm under one fault.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// All trials.
    pub trials: usize,
    /// Those that are no measurement.
    pub void: usize,
    /// Detected or censored: those whose cut was a measurement.
    pub certified: usize,
    /// Detected.
    pub detected: usize,
    /// A watcher fired without the fault or before it.
    pub false_alarms: usize,
    /// The subject's process ended first.
    pub subject_exited: usize,
    /// Hours of healthy connection under watch.
    pub healthy_h: f64,
    /// Trials that contributed to them.
    pub healthy_n: usize,
    /// Times to detect of the certified.
    pub ttd: Vec<Observation>,
    /// Times to recover of the certified.
    pub ttr: Vec<Observation>,
    /// How long the oldest message waited.
    pub stuck: Vec<Observation>,
    /// Connections and attempts after the first, of the certified.
    pub reconnects: Vec<Observation>,
    /// Reaper against detection, where a message waited.
    pub races: Vec<Racer>,
    /// Messages published in trials that are not void.
    pub published: usize,
    /// Of these, delivered more than once.
    pub repeated: usize,
    /// Of these, not resolved when the watch ended.
    pub unresolved: usize,
    /// The longest horizon.
    pub horizon_s: f64,
}

impl Sample {
    /// One more trial.
    pub fn add(&mut self, f: &Facts) {
        self.trials += 1;
        self.horizon_s = self.horizon_s.max(f.horizon_s);
        match f.outcome {
            Outcome::Void => {
                self.void += 1;
                return;
            }
            Outcome::FalseAlarm => self.false_alarms += 1,
            Outcome::SubjectExited => self.subject_exited += 1,
            Outcome::Detected | Outcome::Censored | Outcome::Survived => {}
        }
        if let Some(healthy) = f.healthy_s {
            self.healthy_h += healthy.max(0.0) / 3600.0;
            self.healthy_n += 1;
        }
        if !matches!(f.outcome, Outcome::Detected | Outcome::Censored) {
            return;
        }
        self.certified += 1;
        self.detected += usize::from(f.outcome == Outcome::Detected);
        let watched = f.ended_s.zip(f.fault_applied_s).map_or(0.0, |(end, cut)| end - cut);
        let watched = if f.outcome == Outcome::Censored { f.horizon_s.max(watched) } else { watched };
        let until = |value: Option<f64>| value.map_or(Observation::censored(watched), Observation::event);
        let (detection, recovery) = (until(f.ttd_s), until(f.ttr_s));
        self.ttd.push(detection);
        self.ttr.push(recovery);
        self.reconnects.push(Observation::event(f.attempts.saturating_sub(1) as f64));
        let (Some(queued), Some(cut)) = (f.queued_s, f.fault_applied_s) else { return };
        self.stuck.push(match f.resolved_s {
            Some(at) => Observation::event(at - queued),
            None => Observation::censored(f.ended_s.map_or(0.0, |end| end - queued)),
        });
        let reaped_s = f.resolved_s.filter(|_| f.by_reaper).map(|at| at - cut);
        self.races.push(Racer { queued_s: queued - cut, reaped_s, detection, recovery });
    }

    /// One more message of a trial that is not void.
    pub fn add_message(&mut self, published: bool, deliveries: u64, resolved: bool) {
        self.published += usize::from(published);
        self.repeated += usize::from(published && deliveries > 1);
        self.unresolved += usize::from(published && !resolved);
    }

    /// The trials of another run as well.
    pub fn append(&mut self, other: &Self) {
        self.trials += other.trials;
        self.void += other.void;
        self.certified += other.certified;
        self.detected += other.detected;
        self.false_alarms += other.false_alarms;
        self.subject_exited += other.subject_exited;
        self.healthy_h += other.healthy_h;
        self.healthy_n += other.healthy_n;
        self.ttd.extend_from_slice(&other.ttd);
        self.ttr.extend_from_slice(&other.ttr);
        self.stuck.extend_from_slice(&other.stuck);
        self.reconnects.extend_from_slice(&other.reconnects);
        self.races.extend_from_slice(&other.races);
        self.published += other.published;
        self.repeated += other.repeated;
        self.unresolved += other.unresolved;
        self.horizon_s = self.horizon_s.max(other.horizon_s);
    }
}
