//! What is compared: every trial that counts, and every connection attempt into the cut, by setting and lab.

use super::LabRun;
use crate::plan::{Plan, Window};
use crate::report::seconds;
use crate::verdict::{ConnectionRow, Outcome, TrialRow};
use std::collections::BTreeMap;

/// One trial of one lab.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Its number among the trials of its setting, from 0: counterparts have the same.
    pub nth: usize,
    /// The connection attempt; 0 for a detection.
    pub attempt: u32,
    /// What was timed; none: nothing until the horizon.
    pub seconds: Option<f64>,
    /// How long was watched.
    pub horizon_s: f64,
    /// Who noticed.
    pub watcher: String,
    /// What the model gave beforehand; both ends absent is "never". None: not predicted.
    pub window: Option<Window>,
    /// Whether it lies in that window.
    pub agrees: Option<bool>,
    /// Whether its watcher is one of those that the model named.
    pub watcher_agrees: Option<bool>,
}

impl Sample {
    pub(super) fn words(&self) -> String {
        match self.seconds {
            Some(s) => format!("{} at {s:.3} s", self.watcher),
            None => "nobody".to_string(),
        }
    }
}

/// One lab's samples of one setting.
#[derive(Debug, Clone, Default)]
pub(super) struct LabSamples {
    /// Why there are none; empty where there could be.
    pub left_out: String,
    pub samples: Vec<Sample>,
}

impl LabSamples {
    /// The hull of the windows.
    pub(super) fn window(&self) -> Option<Window> {
        let windows: Vec<Window> = self.samples.iter().filter_map(|s| s.window).collect();
        let (first, rest) = windows.split_first()?;
        let hull = |a: Window, b: &Window| Window {
            lo_s: [a.lo_s, b.lo_s].into_iter().flatten().reduce(f64::min),
            hi_s: a.hi_s.zip(b.hi_s).map(|(x, y)| x.max(y)),
        };
        Some(rest.iter().fold(*first, hull))
    }
}

/// One setting under one fault in all labs.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub scenario: String,
    pub arm: String,
    pub fault: String,
    pub timed: &'static str,
    /// In the order of the labs.
    pub labs: Vec<LabSamples>,
}

/// Whether a trial can be compared: somebody noticed, or nobody did until the horizon.
pub(super) fn counts(row: &TrialRow) -> bool {
    matches!(row.outcome, Outcome::Detected | Outcome::Censored)
}

/// All settings, in the order of the scenarios and their arms; detections first, then unanswered attempts.
pub(super) fn settings(runs: &[LabRun], names: &[String]) -> Vec<Setting> {
    let mut order: Vec<(String, String, String, &'static str)> = Vec::new();
    let mut found: BTreeMap<(String, String, String, &'static str), Vec<LabSamples>> = BTreeMap::new();
    let empty = || vec![LabSamples::default(); names.len()];
    for run in in_order(runs) {
        let Some(column) = names.iter().position(|name| *name == run.run.lab) else { continue };
        let scenario = &run.run.plan.scenario.name;
        for (fault, arm, timed, samples) in cells(run) {
            let key = (scenario.clone(), arm, fault, timed);
            if !order.contains(&key) {
                order.push(key.clone());
            }
            found.entry(key).or_insert_with(empty)[column].samples = samples;
        }
    }
    for run in runs {
        let Some(column) = names.iter().position(|name| *name == run.run.lab) else { continue };
        let plan = &run.run.plan;
        for left in &plan.left_out {
            for fault in &plan.scenario.faults {
                let key = (plan.scenario.name.clone(), left.arm.clone(), fault.name().to_string(), DETECTION);
                if let Some(labs) = found.get_mut(&key) {
                    labs[column].left_out.clone_from(&left.why);
                }
            }
        }
    }
    let one = |key: (String, String, String, &'static str)| {
        let labs = found.remove(&key)?;
        let (scenario, arm, fault, timed) = key;
        Some(Setting { scenario, arm, fault, timed, labs })
    };
    order.into_iter().filter_map(one).collect()
}

/// By scenario, and of each scenario first the run that has the most arms: its order is the file's.
fn in_order(runs: &[LabRun]) -> Vec<&LabRun> {
    let name = |run: &LabRun| run.run.plan.scenario.name.clone();
    let first = |run: &LabRun| runs.iter().position(|other| name(other) == name(run));
    let mut ordered: Vec<&LabRun> = runs.iter().collect();
    ordered.sort_by_key(|run| (first(run), std::cmp::Reverse(run.run.plan.scenario.arms.len())));
    ordered
}

const DETECTION: &str = "detection";
const SYN: &str = "unanswered SYN";

/// The cells of one run: fault, arm, what is timed, samples.
fn cells(run: &LabRun) -> Vec<(String, String, &'static str, Vec<Sample>)> {
    let (plan, rows) = (&run.run.plan, &run.judged.trials);
    let mut attempts: BTreeMap<u32, Vec<&ConnectionRow>> = BTreeMap::new();
    for row in run.judged.connections.iter().filter(|c| c.cut && c.opened_s.is_none()) {
        attempts.entry(row.trial).or_default().push(row);
    }
    let mut cells = Vec::new();
    for (a, arm) in plan.scenario.arms.iter().enumerate() {
        for (f, fault) in plan.scenario.faults.iter().enumerate() {
            let own = plan.trials.iter().zip(rows).filter(|(t, _)| t.arm == a && t.fault == f).enumerate();
            let (mut detections, mut handshakes) = (Vec::new(), Vec::new());
            for (nth, (trial, row)) in own {
                if counts(row) {
                    detections.push(detection(nth, row, trial.predicted));
                }
                let tried = attempts.get(&trial.id).map(Vec::as_slice).unwrap_or_default();
                handshakes.extend(tried.iter().filter_map(|c| handshake(nth, c, row, window_of(plan, a))));
            }
            cells.push((fault.name().to_string(), arm.name.clone(), DETECTION, detections));
            if !handshakes.is_empty() {
                cells.push((fault.name().to_string(), arm.name.clone(), SYN, handshakes));
            }
        }
    }
    cells
}

fn detection(nth: usize, row: &TrialRow, window: Option<Window>) -> Sample {
    Sample {
        nth,
        attempt: 0,
        seconds: row.ttd_s.map(crate::units::Offset::as_secs),
        horizon_s: row.horizon_s.as_secs(),
        watcher: row.watcher.clone(),
        window,
        agrees: row.agrees,
        watcher_agrees: row.watcher_agrees,
    }
}

fn window_of(plan: &Plan, arm: usize) -> Option<Window> {
    plan.unanswered.get(arm).copied().flatten()
}

/// An attempt that ended; one that the end of the trial cut short says nothing.
fn handshake(nth: usize, connection: &ConnectionRow, row: &TrialRow, window: Option<Window>) -> Option<Sample> {
    let took = connection.app_end_s?.as_secs() - connection.connecting_s?.as_secs();
    let attempt = connection.conn_id.rsplit('.').next()?.parse().ok()?;
    Some(Sample {
        nth,
        attempt,
        seconds: Some(took),
        horizon_s: row.horizon_s.as_secs(),
        watcher: connection.watcher.clone(),
        window,
        agrees: window.map(|w| w.lo_s.is_some_and(|lo| took >= lo) && w.hi_s.is_none_or(|hi| took <= hi)),
        watcher_agrees: None,
    })
}

/// Whether two counterparts differ only as their windows allow; none where one of them was not predicted.
///
/// Both timed: their difference is one of two instants, each in its own window. Both silent: yes. One of each: where the
/// windows leave room for both, since nobody knows before whether it fires at all.
pub(super) fn alike(a: &Sample, b: &Sample) -> Option<bool> {
    let (wa, wb) = (a.window?, b.window?);
    let timed = |w: Window| w.lo_s.is_some() || w.hi_s.is_some();
    let silent = |w: Window, s: &Sample| w.hi_s.is_none_or(|hi| hi > s.horizon_s);
    Some(match (a.seconds, b.seconds) {
        (Some(x), Some(y)) => {
            let (lo, hi) = (|w: Window| w.lo_s.unwrap_or(0.0), |w: Window| w.hi_s.unwrap_or(f64::INFINITY));
            timed(wa) && timed(wb) && (lo(wa) - hi(wb)..=hi(wa) - lo(wb)).contains(&(x - y))
        }
        (None, None) => true,
        (Some(_), None) => timed(wa) && silent(wb, b),
        (None, Some(_)) => silent(wa, a) && timed(wb),
    })
}

/// A window: `15.0–25.0`, `from 8.00`, `never`.
pub(super) fn window_words(window: Option<Window>) -> String {
    match window.map(|w| (w.lo_s, w.hi_s)) {
        None => "–".to_string(),
        Some((Some(lo), Some(hi))) => format!("{}–{}", seconds(lo), seconds(hi)),
        Some((None, Some(hi))) => format!("up to {}", seconds(hi)),
        Some((Some(lo), None)) => format!("from {}", seconds(lo)),
        Some((None, None)) => "never".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: Option<f64>, window: Option<(Option<f64>, Option<f64>)>) -> Sample {
        Sample {
            nth: 0,
            attempt: 0,
            seconds,
            horizon_s: 20.0,
            watcher: String::new(),
            window: window.map(|(lo_s, hi_s)| Window { lo_s, hi_s }),
            agrees: None,
            watcher_agrees: None,
        }
    }

    #[test]
    fn counterparts_differ_as_their_windows_allow() {
        let both = |x: Option<f64>, y: Option<f64>, wx, wy| alike(&sample(x, Some(wx)), &sample(y, Some(wy)));
        let narrow = (Some(7.0), Some(8.0));
        assert_eq!(both(Some(7.1), Some(7.9), narrow, narrow), Some(true));
        assert_eq!(both(Some(7.1), Some(8.2), narrow, narrow), Some(false));
        // Outside of both windows and yet alike: the model is wrong, the labs are not.
        assert_eq!(both(Some(9.5), Some(9.6), narrow, narrow), Some(true));
        // Kernels that must differ: equal would be wrong.
        let longer = (Some(11.0), Some(11.5));
        assert_eq!(both(Some(7.1), Some(11.2), narrow, longer), Some(true));
        assert_eq!(both(Some(7.1), Some(7.1), narrow, longer), Some(false));
    }

    #[test]
    fn silence_is_an_answer() {
        let both = |x: Option<f64>, y: Option<f64>, w| alike(&sample(x, Some(w)), &sample(y, Some(w)));
        assert_eq!(both(None, None, (None, None)), Some(true));
        assert_eq!(both(Some(3.0), None, (None, None)), Some(false));
        assert_eq!(both(Some(3.0), None, (Some(1.0), Some(5.0))), Some(false));
        assert_eq!(both(Some(3.0), None, (Some(1.0), None)), Some(true));
        assert_eq!(both(None, Some(19.0), (Some(18.0), Some(21.0))), Some(true));
        assert_eq!(alike(&sample(None, None), &sample(None, None)), None);
    }
}
