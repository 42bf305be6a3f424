//! Shards of one plan as one run.
//!
//! Pure. The parts of `run --partition I/N` have the trial numbers of the whole plan, so the joined plan is the whole one,
//! and what is judged of it is what would have been judged of a run that was never split. What is left out: which machine a
//! trial ran on. Where the machines differ the joined run says so; to see how much runs differ, compare the parts.

use super::Recorded;
use super::model::RunInfo;
use crate::events::{Event, Kind, Source};
use crate::plan::Outlooks;
use crate::units::{Offset, TrialId};
use std::collections::{BTreeMap, HashSet};
use thiserror::Error;

/// Why runs can't be joined. Each names what differs and in which run; runs are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MergeError {
    /// No run.
    #[error("there is nothing to join")]
    Nothing,
    /// Not parts of one plan.
    #[error(
        "run 1 and run {run} are no parts of one plan: they differ in {what}; join runs of one scenario file and one seed"
    )]
    Different {
        /// The run.
        run: usize,
        /// In what.
        what: &'static str,
    },
    /// A trial twice.
    #[error("trial {trial} is in run {first} and in run {second}; each part of --partition I/N is needed once")]
    Twice {
        /// The trial.
        trial: TrialId,
        /// One of the runs.
        first: usize,
        /// The other.
        second: usize,
    },
}

/// A joined run, and how many trials of the whole plan no part had.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The run.
    pub recorded: Recorded,
    /// Trials that are missing: a part was not given.
    pub missing: usize,
}

/// Joins the parts of one plan.
///
/// # Errors
/// [`MergeError`] when they are no parts of one plan, or overlap.
pub fn merge(parts: Vec<Recorded>) -> Result<Joined, MergeError> {
    check(&parts)?;
    let mut parts = parts.into_iter();
    let Some(Recorded { mut run, events, mut unknown_events, mut truncated }) = parts.next() else {
        return Err(MergeError::Nothing);
    };
    let mut others = Vec::new();
    let mut all = Events::new(events);
    for part in parts {
        unknown_events += part.unknown_events;
        truncated |= part.truncated;
        all.add(part.events);
        add(&mut run, &part.run);
        others.push(part.run);
    }
    run.plan.trials.sort_by_key(|t| t.id);
    let whole: usize =
        run.plan.scenario.arms.iter().map(|arm| arm.trials as usize).sum::<usize>() * run.plan.scenario.faults.len();
    let missing = whole.saturating_sub(run.plan.trials.len());
    let mut notes = Vec::new();
    let machines: HashSet<String> =
        others.iter().chain([&run]).map(|r| format!("{:?}", (&r.machine, &r.brokers, &r.clients))).collect();
    if machines.len() > 1 {
        notes.push(format!(
            "Joined from {} parts that ran on {} kinds of machine; the first is the one that is shown.",
            others.len() + 1,
            machines.len()
        ));
    }
    if missing > 0 {
        notes.push(format!("{missing} of {whole} trials of the plan are in none of the joined parts."));
        run.complete = false;
    }
    for other in &others {
        for (map, more) in [(&mut run.brokers, &other.brokers), (&mut run.clients, &other.clients)] {
            more.iter().for_each(|(name, version)| _ = map.entry(name.clone()).or_insert_with(|| version.clone()));
        }
    }
    Ok(Joined { recorded: Recorded { run, events: all.finish(notes), unknown_events, truncated }, missing })
}

fn check(parts: &[Recorded]) -> Result<(), MergeError> {
    let first = parts.first().ok_or(MergeError::Nothing)?;
    let mut seen: BTreeMap<TrialId, usize> = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        let (a, b) = (&first.run, &part.run);
        let checks = [
            (a.scenario.sha256 == b.scenario.sha256, "the scenario file"),
            (a.seed == b.seed, "the seed"),
            (a.plan.scenario == b.plan.scenario, "the plan's scenario (--trials or another version)"),
            ((&a.engine, &a.lab) == (&b.engine, &b.lab), "the engine or the lab"),
            (a.tool.version == b.tool.version, "the version of halfopen"),
            (a.plan.left_out == b.plan.left_out, "the arms that the machine could carry out"),
        ];
        if let Some((_, what)) = checks.iter().find(|(same, _)| !same) {
            return Err(MergeError::Different { run: index + 1, what });
        }
        for trial in &part.run.plan.trials {
            if let Some(other) = seen.insert(trial.id, index) {
                return Err(MergeError::Twice { trial: trial.id, first: other + 1, second: index + 1 });
            }
        }
    }
    Ok(())
}

/// What another part adds to the head of the run.
fn add(run: &mut RunInfo, other: &RunInfo) {
    run.started_unix_s = run.started_unix_s.min(other.started_unix_s);
    run.complete &= other.complete;
    run.plan.trials.extend(other.plan.trials.iter().cloned());
    run.plan.estimate = run.plan.estimate.max(other.plan.estimate);
    let more = |known: &mut Vec<String>, new: &[String]| {
        new.iter().for_each(|text| {
            if !known.contains(text) {
                known.push(text.clone());
            }
        });
    };
    more(&mut run.plan.doubts, &other.plan.doubts);
    more(&mut run.sources, &other.sources);
    outlooks(&mut run.plan.outlooks, &other.plan.outlooks);
    if run.plan.unanswered.is_empty() {
        run.plan.unanswered.clone_from(&other.plan.unanswered);
    }
    for (phase, seconds) in &other.phases_s {
        let known = run.phases_s.entry(phase.clone()).or_default();
        *known = known.max(*seconds);
    }
    if run.baseline.is_none() {
        run.baseline.clone_from(&other.baseline);
    }
}

/// What the model said of arm and fault: a part that has few trials may lack some.
fn outlooks(known: &mut Vec<Outlooks>, more: &[Outlooks]) {
    for new in more {
        let Some(same) = known.iter_mut().find(|k| (k.arm, k.fault) == (new.arm, new.fault)) else {
            known.push(new.clone());
            continue;
        };
        for (a, b) in same.watchers.iter_mut().zip(&new.watchers).filter(|(a, b)| a.watcher == b.watcher) {
            a.lo_s = [a.lo_s, b.lo_s].into_iter().flatten().reduce(f64::min);
            a.hi_s = a.hi_s.zip(b.hi_s).map(|(x, y)| x.max(y));
        }
    }
    known.sort_by_key(|k| (k.arm, k.fault));
}

/// The events of the parts, each note of a run as a whole once.
struct Events {
    all: Vec<Event>,
    notes: HashSet<String>,
}

impl Events {
    fn new(events: Vec<Event>) -> Self {
        let mut all = Self { all: Vec::new(), notes: HashSet::new() };
        all.add(events);
        all
    }

    fn add(&mut self, events: Vec<Event>) {
        for event in events {
            let new = match (&event.kind, event.trial) {
                (Kind::Note { text }, None) => self.notes.insert(text.clone()),
                _ => true,
            };
            if new {
                self.all.push(event);
            }
        }
    }

    /// In the order of a run that was never split: by time, and of one instant by trial.
    fn finish(mut self, notes: Vec<String>) -> Vec<Event> {
        let note = |text| Event::of_run(Offset::ZERO, Source::Harness, Kind::Note { text });
        self.all.extend(notes.into_iter().map(note));
        self.all.sort_by_key(|event| (event.offset, event.trial));
        self.all
    }
}
