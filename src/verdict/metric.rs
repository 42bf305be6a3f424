//! What is compared of two samples, and how.

use super::sample::Sample;
use crate::stats::{Direction, Effect, Events, Kaplan, Observation};
use std::fmt;

/// A number that stands for a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// The share that is detected within the horizon.
    Detected,
    /// The mean time to detect, cut off at the horizon.
    TtdMean,
    /// The median time to detect.
    TtdP50,
    /// Its 90th percentile.
    TtdP90,
    /// Its 99th percentile.
    TtdP99,
    /// The mean time to recover, cut off at the horizon.
    TtrMean,
    /// The mean time for which the oldest message was stuck.
    StuckMean,
    /// Its median.
    StuckP50,
    /// Its 99th percentile.
    StuckP99,
    /// The share of trials in which a reaper was quicker than the connection's own detection.
    ReaperFirst,
    /// Watchers that fired without a fault, an hour of healthy connection.
    FalseAlarms,
    /// The share of trials that ended with the subject's own death.
    SubjectExited,
    /// The share of messages that nobody had resolved at the end.
    Unresolved,
    /// The share of messages that were delivered more than once.
    Repeated,
    /// Connections and attempts after the first, a trial.
    Reconnects,
}

/// What a metric is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// A share between 0 and 1.
    Share,
    /// Events an hour.
    PerHour,
    /// A plain number.
    Number,
}

/// The largest difference that does not matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Margin {
    /// In the metric's own unit.
    Absolute(f64),
    /// As a share of the first side's value.
    Relative(f64),
}

impl Margin {
    /// In the metric's unit, where the first side has this value; a value that is not reached has no share.
    #[must_use]
    pub fn of(self, first: f64) -> f64 {
        match self {
            Self::Absolute(value) => value,
            Self::Relative(share) if first.is_finite() => share * first.abs(),
            Self::Relative(_) => 0.0,
        }
    }
}

impl Metric {
    /// All, in the order of reports.
    pub const ALL: [Self; 15] = [
        Self::Detected,
        Self::TtdMean,
        Self::TtdP50,
        Self::TtdP90,
        Self::TtdP99,
        Self::TtrMean,
        Self::StuckMean,
        Self::StuckP50,
        Self::StuckP99,
        Self::ReaperFirst,
        Self::FalseAlarms,
        Self::SubjectExited,
        Self::Unresolved,
        Self::Repeated,
        Self::Reconnects,
    ];

    /// The name in files, options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Detected => "detected",
            Self::TtdMean => "ttd_mean",
            Self::TtdP50 => "ttd_p50",
            Self::TtdP90 => "ttd_p90",
            Self::TtdP99 => "ttd_p99",
            Self::TtrMean => "ttr_mean",
            Self::StuckMean => "stuck_mean",
            Self::StuckP50 => "stuck_p50",
            Self::StuckP99 => "stuck_p99",
            Self::ReaperFirst => "reaper_first",
            Self::FalseAlarms => "false_alarms",
            Self::SubjectExited => "subject_exited",
            Self::Unresolved => "unresolved",
            Self::Repeated => "repeated",
            Self::Reconnects => "reconnects",
        }
    }

    /// In words, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Detected => "detected within the horizon",
            Self::TtdMean => "mean time to detect",
            Self::TtdP50 => "median time to detect",
            Self::TtdP90 => "p90 of the time to detect",
            Self::TtdP99 => "p99 of the time to detect",
            Self::TtrMean => "mean time to recover",
            Self::StuckMean => "mean stuck time",
            Self::StuckP50 => "median stuck time",
            Self::StuckP99 => "p99 of the stuck time",
            Self::ReaperFirst => "reaper before detection",
            Self::FalseAlarms => "false alarms an hour",
            Self::SubjectExited => "ended with the client",
            Self::Unresolved => "messages never resolved",
            Self::Repeated => "messages delivered twice or more",
            Self::Reconnects => "reconnects a trial",
        }
    }

    /// What its observations are.
    #[must_use]
    pub fn counted(self) -> &'static str {
        if matches!(self, Self::Unresolved | Self::Repeated) { "messages" } else { "trials" }
    }

    /// What it is counted in.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::TtdMean | Self::TtdP50 | Self::TtdP90 | Self::TtdP99 | Self::TtrMean => Unit::Seconds,
            Self::StuckMean | Self::StuckP50 | Self::StuckP99 => Unit::Seconds,
            Self::FalseAlarms => Unit::PerHour,
            Self::Reconnects => Unit::Number,
            Self::Detected | Self::ReaperFirst | Self::SubjectExited | Self::Unresolved | Self::Repeated => Unit::Share,
        }
    }

    /// Which way is better.
    #[must_use]
    pub fn direction(self) -> Direction {
        if self == Self::Detected { Direction::More } else { Direction::Less }
    }

    /// Whether it belongs to the price and not to the gain: shown beside it, judged only where somebody asks.
    #[must_use]
    pub fn is_price(self) -> bool {
        matches!(self, Self::Repeated | Self::Reconnects)
    }

    /// The margin where nobody names one: a tenth of a time or number, five points of a share, a false alarm a day.
    #[must_use]
    pub fn margin(self) -> Margin {
        match self.unit() {
            Unit::Seconds | Unit::Number => Margin::Relative(0.1),
            Unit::Share => Margin::Absolute(0.05),
            Unit::PerHour => Margin::Absolute(1.0 / 24.0),
        }
    }

    /// The quantile that it is, where it is one.
    #[must_use]
    pub fn quantile(self) -> Option<f64> {
        match self {
            Self::TtdP50 | Self::StuckP50 => Some(0.5),
            Self::TtdP90 => Some(0.9),
            Self::TtdP99 | Self::StuckP99 => Some(0.99),
            _ => None,
        }
    }

    /// The difference between two samples with its interval at level 1 − `alpha`; `None` where either has nothing to say.
    #[must_use]
    pub fn effect(self, a: &Curves<'_>, b: &Curves<'_>, alpha: f64) -> Option<Effect> {
        let shares = |of: &dyn Fn(&Sample) -> (usize, usize)| Effect::of_shares(of(a.sample), of(b.sample), alpha);
        let exits = |s: &Sample| (s.subject_exited, s.trials - s.void);
        let reaped = |s: &Sample| (s.races.iter().filter(|r| r.reaper_first()).count(), s.races.len());
        match self {
            Self::Detected => shares(&|s| (s.detected, s.certified)),
            Self::ReaperFirst if a.sample.races.iter().chain(&b.sample.races).any(|r| r.reaped_s.is_some()) => {
                shares(&reaped)
            }
            Self::ReaperFirst => None,
            Self::SubjectExited => shares(&exits),
            Self::Unresolved => shares(&|s| (s.unresolved, s.published)),
            Self::Repeated => shares(&|s| (s.repeated, s.published)),
            Self::FalseAlarms => {
                let events = |s: &Sample| Events { k: s.false_alarms as u64, exposure: s.healthy_h };
                let n = (a.sample.healthy_n, b.sample.healthy_n);
                Effect::of_rates(events(a.sample), events(b.sample), n, alpha)
            }
            Self::TtdMean => means(&a.ttd, &b.ttd, a.sample.horizon_s.min(b.sample.horizon_s), alpha),
            Self::TtrMean => means(&a.ttr, &b.ttr, a.sample.horizon_s.min(b.sample.horizon_s), alpha),
            Self::StuckMean => means(&a.stuck, &b.stuck, f64::INFINITY, alpha),
            Self::Reconnects => means(&a.reconnects, &b.reconnects, f64::INFINITY, alpha),
            Self::TtdP50 | Self::TtdP90 | Self::TtdP99 => Effect::of_quantiles(&a.ttd, &b.ttd, self.quantile()?, alpha),
            Self::StuckP50 | Self::StuckP99 => Effect::of_quantiles(&a.stuck, &b.stuck, self.quantile()?, alpha),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Means up to the last time that both curves know.
fn means(a: &Kaplan, b: &Kaplan, horizon_s: f64, alpha: f64) -> Option<Effect> {
    let known = a.limit_s().min(b.limit_s()).min(horizon_s);
    // Of two complete samples the longest time bounds both.
    let limit = if known.is_finite() { known } else { a.last_s().max(b.last_s()) };
    // Times that are all zero have a mean too.
    Effect::of_means(a, b, limit.max(f64::MIN_POSITIVE), alpha)
}

/// A sample with its curves, each made once.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves<'s> {
    /// The sample.
    pub sample: &'s Sample,
    /// Times to detect.
    pub ttd: Kaplan,
    /// Times to recover.
    pub ttr: Kaplan,
    /// Stuck times.
    pub stuck: Kaplan,
    /// Reconnects, as if they were times.
    pub reconnects: Kaplan,
}

impl<'s> Curves<'s> {
    /// The curves of a sample.
    #[must_use]
    pub fn of(sample: &'s Sample) -> Self {
        let curve = |observations: &[Observation]| Kaplan::of(observations);
        Self {
            sample,
            ttd: curve(&sample.ttd),
            ttr: curve(&sample.ttr),
            stuck: curve(&sample.stuck),
            reconnects: curve(&sample.reconnects),
        }
    }
}
