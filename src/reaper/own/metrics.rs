//! What the sweeps came to, as Prometheus reads it. Pure.

use super::sweep::{Deed, SweepReport};
use crate::reaper::rule::liveness::Why;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counters since the start, and the last sweep.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    dry_run: bool,
    sweeps: u64,
    errors: u64,
    stops: u64,
    failed: BTreeMap<&'static str, u64>,
    last: Option<SweepReport>,
}

impl Metrics {
    /// Nothing yet.
    #[must_use]
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Takes a sweep in.
    pub fn sweep(&mut self, report: &SweepReport) {
        if report.broke_off.is_some() {
            self.error();
        } else {
            self.sweeps += 1;
        }
        self.stops += u64::from(report.stopped.is_some());
        for doomed in report.doomed.iter().filter(|d| d.deed == Deed::Failed) {
            *self.failed.entry(doomed.rule).or_default() += 1;
        }
        if report.broke_off.is_none() {
            self.last = Some(report.clone());
        }
    }

    /// A sweep broke off.
    pub fn error(&mut self) {
        self.errors += 1;
    }

    /// The text exposition format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let rules = || Why::ALL.into_iter().map(Why::name);
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
            // Writing to a String can't fail.
            let _ = writeln!(out, "# HELP halfopen_reap_{name} {help}\n# TYPE halfopen_reap_{name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(out, "halfopen_reap_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        family("dry_run", "gauge", "1 where nothing is changed.", one(f64::from(u8::from(self.dry_run))));
        family("sweeps_total", "counter", "Sweeps that came to their end.", one(self.sweeps as f64));
        family("sweep_errors_total", "counter", "Sweeps that broke off.", one(self.errors as f64));
        family("stops_total", "counter", "Sweeps in which the brake held everything back.", one(self.stops as f64));
        let failed = rules().map(|rule| (label("rule", rule), self.failed.get(rule).copied().unwrap_or(0) as f64));
        family("failed_total", "counter", "Rows that were failed.", failed.collect());
        let Some(last) = &self.last else { return out };
        family(
            "last_sweep_timestamp_seconds",
            "gauge",
            "The last whole sweep, by the database's clock.",
            one(last.at_unix_s),
        );
        let rows = [("pending", last.pending), ("processing", last.processing)];
        let rows = rows.map(|(stage, n)| (label("stage", stage), n as f64));
        family("rows", "gauge", "Active rows.", rows.to_vec());
        let oldest = [("pending", last.oldest_pending_s), ("processing", last.oldest_processing_s)];
        let oldest = oldest.map(|(stage, age)| (label("stage", stage), age.unwrap_or(0.0)));
        family("oldest_seconds", "gauge", "Age of the oldest active row; 0 without one.", oldest.to_vec());
        let workers = [("alive", last.workers_alive), ("gone", last.workers_gone), ("unknown", last.workers_unknown)];
        let workers = workers.map(|(state, n)| (label("state", state), n as f64));
        family("workers", "gauge", "Workers with tasks.", workers.to_vec());
        let doomed =
            rules().map(|rule| (label("rule", rule), last.doomed.iter().filter(|d| d.rule == rule).count() as f64));
        family("doomed_rows", "gauge", "Rows that the rule fails, whether they were failed or not.", doomed.collect());
        out
    }
}

fn label(name: &str, value: &str) -> String {
    format!("{{{name}=\"{value}\"}}")
}

#[cfg(test)]
mod tests {
    use super::super::sweep::Doomed;
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_sample_and_counters_add_up() {
        let doomed = |deed| Doomed {
            id: "1".into(),
            status: "PROCESSING".into(),
            worker_id: None,
            age_s: 9.0,
            rule: "processing_timeout",
            why: String::new(),
            deed,
        };
        let report = SweepReport {
            at_unix_s: 12.5,
            pending: 3,
            processing: 2,
            oldest_pending_s: None,
            oldest_processing_s: Some(9.0),
            workers_alive: 1,
            workers_gone: 0,
            workers_unknown: 0,
            doomed: vec![doomed(Deed::Failed), doomed(Deed::ChangedMeanwhile)],
            stopped: None,
            stopped_by: None,
            doubts: Vec::new(),
            broke_off: None,
        };
        let mut metrics = Metrics::new(false);
        assert!(!metrics.text().contains("halfopen_reap_rows"), "nothing is known before the first sweep");
        metrics.sweep(&report);
        metrics.sweep(&report);
        metrics.error();
        metrics.sweep(&SweepReport { broke_off: Some("row 2: no answer".into()), at_unix_s: 99.0, ..report.clone() });
        let text = metrics.text();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("halfopen_reap_") && value.parse::<f64>().is_ok(), "{line}");
        }
        for sample in [
            "halfopen_reap_sweeps_total 2",
            "halfopen_reap_sweep_errors_total 2",
            "halfopen_reap_failed_total{rule=\"processing_timeout\"} 3",
            "halfopen_reap_doomed_rows{rule=\"processing_timeout\"} 2",
            "halfopen_reap_rows{stage=\"pending\"} 3",
            "halfopen_reap_oldest_seconds{stage=\"pending\"} 0",
            "halfopen_reap_last_sweep_timestamp_seconds 12.5",
        ] {
            assert!(text.contains(&format!("{sample}\n")), "{sample} is not in\n{text}");
        }
    }
}
