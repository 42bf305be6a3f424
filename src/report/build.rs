//! From rows to the summary.

use super::asked;
use super::beside;
use super::sentences;
use super::summary::{
    CellSummary, Counts, GateSummary, MessageCounts, NamedCount, Predicted, ScenarioSummary, Summary, VoidCount,
};
use crate::events::{Event, Kind};
use crate::plan::Plan;
use crate::scenario::{Arm, Fault};
use crate::stats::{Observation, Share, Spread, plain_quantile, spread};
use crate::store::{ArmOptions, Brackets, EffectiveCount, RunInfo};
use crate::units::{Offset, TrialId};
use crate::verdict::gate::{GateResult, exit_code, judge_gates};
use crate::verdict::{Judged, MessageRow, Outcome, TrialRow};
use std::collections::{BTreeMap, BTreeSet, HashSet};

pub(super) fn summary(run: &RunInfo, events: &[Event], judged: &Judged) -> Summary {
    let scenario = &run.plan.scenario;
    let gates = judge_gates(&scenario.gates, &judged.trials);
    let arms = arms(&run.plan, events);
    Summary {
        format: run.format,
        scenario: ScenarioSummary {
            name: scenario.name.clone(),
            question: scenario.question.clone(),
            path: run.scenario.path.clone(),
            sha256: run.scenario.sha256.clone(),
            seed: run.seed,
            horizon_s: scenario.horizon.as_secs_f64(),
        },
        tool: run.tool.clone(),
        engine: run.engine.clone(),
        lab: run.lab.clone(),
        started_unix_s: run.started_unix_s,
        length_s: events.iter().map(|e| e.offset).max().unwrap_or_default().as_secs(),
        complete: run.complete,
        exit_code: exit_code(&gates, &judged.trials, run.complete),
        totals: counts(judged.trials.iter()),
        cells: cells(&run.plan, judged),
        tasks: beside::tasks(&run.plan),
        published: beside::published(&run.plan, stuck_cells(&run.plan, judged)),
        void_reasons: void_reasons(&judged.trials),
        gates: gates.iter().map(gate).collect(),
        brackets: brackets(&judged.trials),
        findings: asked::findings(&arms),
        arms,
        memory: run.memory.clone(),
        machine: run.machine.clone(),
        brokers: run.brokers.clone(),
        clients: run.clients.clone(),
        sources: run.sources.clone(),
        notes: run.plan.doubts.iter().cloned().chain(notes(events)).collect(),
    }
}

/// The rows of each cell with its names.
fn stuck_cells<'r>(
    plan: &'r Plan,
    judged: &'r Judged,
) -> impl Iterator<Item = (&'r str, &'r str, &'r str, Vec<&'r TrialRow>)> {
    let of = |a: usize, f: usize| {
        let ids: HashSet<TrialId> = plan.trials.iter().filter(|t| t.arm == a && t.fault == f).map(|t| t.id).collect();
        judged.trials.iter().filter(|r| ids.contains(&r.trial)).collect::<Vec<_>>()
    };
    let scenario = &plan.scenario;
    scenario.arms.iter().enumerate().flat_map(move |(a, arm)| {
        scenario
            .faults
            .iter()
            .enumerate()
            .map(move |(f, fault)| (arm.name.as_str(), fault.name(), fault.scope.name(), of(a, f)))
    })
}

/// Notes of the run as a whole, in order of time.
fn notes(events: &[Event]) -> Vec<String> {
    let mut notes = BTreeSet::new();
    for event in events.iter().filter(|e| e.trial.is_none()) {
        if let Kind::Note { text } = &event.kind {
            notes.insert((event.offset, text.clone()));
        }
    }
    notes.into_iter().map(|(_, text)| text).collect()
}

fn counts<'r>(rows: impl Iterator<Item = &'r TrialRow>) -> Counts {
    let mut counts = Counts::default();
    for row in rows {
        counts.trials += 1;
        *match row.outcome {
            Outcome::Detected => &mut counts.detected,
            Outcome::Censored => &mut counts.censored,
            Outcome::Survived => &mut counts.survived,
            Outcome::FalseAlarm => &mut counts.false_alarm,
            Outcome::SubjectExited => &mut counts.subject_exited,
            Outcome::Void => &mut counts.void,
        } += 1;
    }
    counts
}

fn cells(plan: &Plan, judged: &Judged) -> Vec<CellSummary> {
    let mut cells = Vec::new();
    for (a, arm) in plan.scenario.arms.iter().enumerate() {
        for (f, fault) in plan.scenario.faults.iter().enumerate() {
            let ids: HashSet<TrialId> =
                plan.trials.iter().filter(|t| t.arm == a && t.fault == f).map(|t| t.id).collect();
            let rows: Vec<&TrialRow> = judged.trials.iter().filter(|r| ids.contains(&r.trial)).collect();
            let messages: Vec<&MessageRow> = judged.messages.iter().filter(|m| ids.contains(&m.trial)).collect();
            if !rows.is_empty() {
                cells.push(cell(arm, fault, &rows, &messages));
            }
        }
    }
    cells
}

fn cell(arm: &Arm, fault: &Fault, rows: &[&TrialRow], messages: &[&MessageRow]) -> CellSummary {
    let counts = counts(rows.iter().copied());
    let certified: Vec<&TrialRow> =
        rows.iter().copied().filter(|r| matches!(r.outcome, Outcome::Detected | Outcome::Censored)).collect();
    let to_event = |value: &dyn Fn(&TrialRow) -> Option<Offset>| -> Spread {
        spread(&certified.iter().map(|row| observation(row, value(row))).collect::<Vec<_>>())
    };
    let unexercised =
        |offered: &dyn Fn(&TrialRow) -> Option<u64>| certified.iter().filter(|r| offered(r) == Some(0)).count();
    let since_cut = |r: &TrialRow, at: Option<Offset>| Some(Offset(at?.0.saturating_sub(r.fault_applied_s?.0)));
    CellSummary {
        arm: arm.name.clone(),
        subject: arm.settings.subject.name().to_string(),
        broker: arm.settings.subject.broker().name().to_string(),
        fault: fault.name().to_string(),
        scope: fault.scope.name().to_string(),
        control: fault.is_control(),
        counts,
        detected_share: (!certified.is_empty()).then(|| Share::of(counts.detected, certified.len())),
        ttd: to_event(&|r| r.ttd_s),
        ttr: to_event(&|r| r.ttr_s),
        broker_notice: to_event(&|r| since_cut(r, r.broker_notice_s).filter(|after| after.0 >= 0)),
        stuck: (!messages.is_empty()).then(|| stuck(&certified)),
        watchers: by_frequency(rows.iter().filter(|r| r.outcome != Outcome::Void).map(|r| r.watcher.as_str())),
        kernel_ended_unnoticed: certified
            .iter()
            .filter(|r| r.outcome == Outcome::Censored && r.kernel_end_s.is_some())
            .count(),
        unexercised_to_broker: unexercised(&|r| r.offered_to_broker),
        unexercised_to_client: unexercised(&|r| r.offered_to_client),
        predicted: predicted(rows),
        messages: (!messages.is_empty()).then(|| message_counts(messages)),
    }
}

/// Time from the cut to the event; without it, how long the trial was watched: to its end, at least to the horizon where
/// nobody noticed at all.
fn observation(row: &TrialRow, value: Option<Offset>) -> Observation {
    match value {
        Some(seconds) => Observation::event(seconds.as_secs()),
        None => {
            let watched = row.ended_s.zip(row.fault_applied_s).map_or(0.0, |(end, cut)| end.as_secs() - cut.as_secs());
            let horizon = row.horizon_s.as_secs();
            Observation::censored(if row.outcome == Outcome::Censored { horizon.max(watched) } else { watched })
        }
    }
}

/// Trials whose oldest message waited: until it was resolved, or in vain until the end of the watch.
fn stuck(certified: &[&TrialRow]) -> Spread {
    let observed = certified.iter().filter_map(|row| {
        let queued = row.queued_s?;
        Some(match row.stuck_s {
            Some(stuck) => Observation::event(stuck.as_secs()),
            None => Observation::censored(row.ended_s.map_or(0.0, |end| end.as_secs() - queued.as_secs())),
        })
    });
    spread(&observed.collect::<Vec<_>>())
}

fn by_frequency<'t>(names: impl Iterator<Item = &'t str>) -> Vec<NamedCount> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut list: Vec<_> = counts.into_iter().map(|(name, n)| NamedCount { name: name.to_string(), n }).collect();
    list.sort_by_key(|count| std::cmp::Reverse(count.n));
    list
}

/// The hull of the windows of a cell's trials. Without a single prediction there is none; a trial that "never" is
/// predicted for has no bounds, but is seen in whether it agrees.
fn predicted(rows: &[&TrialRow]) -> Option<Predicted> {
    let judged: Vec<bool> = rows.iter().filter_map(|r| r.agrees).collect();
    let bounded: Vec<&&TrialRow> =
        rows.iter().filter(|r| r.predicted_lo_s.is_some() || r.predicted_hi_s.is_some()).collect();
    if judged.is_empty() && bounded.is_empty() {
        return None;
    }
    let lo_s = bounded.iter().filter_map(|r| r.predicted_lo_s).min_by(f64::total_cmp);
    let hi_s = if bounded.iter().all(|r| r.predicted_hi_s.is_some()) {
        bounded.iter().filter_map(|r| r.predicted_hi_s).max_by(f64::total_cmp)
    } else {
        None
    };
    let watchers: Vec<bool> = rows.iter().filter_map(|r| r.watcher_agrees).collect();
    let yes = |answers: &[bool]| answers.iter().filter(|a| **a).count();
    Some(Predicted {
        lo_s,
        hi_s,
        agree: yes(&judged),
        n: judged.len(),
        watcher_agree: yes(&watchers),
        watcher_n: watchers.len(),
    })
}

fn message_counts(messages: &[&MessageRow]) -> MessageCounts {
    let count = |is: &dyn Fn(&MessageRow) -> bool| messages.iter().filter(|m| is(m)).count();
    MessageCounts {
        published: count(&|m| m.published_s.is_some()),
        confirmed: count(&|m| m.confirmed_s.is_some()),
        delivered: count(&|m| m.delivered_n > 0),
        duplicated: count(&|m| m.delivered_n > 1),
        unresolved: count(&|m| m.published_s.is_some() && m.resolved_s.is_none()),
    }
}

fn void_reasons(rows: &[TrialRow]) -> Vec<VoidCount> {
    let mut list: Vec<VoidCount> = Vec::new();
    for row in rows {
        let Some(reason) = &row.void_reason else { continue };
        match list.iter_mut().find(|v| v.reason == reason.code()) {
            Some(known) => known.n += 1,
            None => list.push(VoidCount {
                reason: reason.code().to_string(),
                n: 1,
                example: reason.detail().to_string(),
                first_trial: row.trial,
            }),
        }
    }
    list.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.reason.cmp(&b.reason)));
    list
}

fn gate(result: &GateResult) -> GateSummary {
    GateSummary {
        text: sentences::gate(&result.gate),
        verdict: result.verdict.name().to_string(),
        value: result.value.filter(|v| v.is_finite()),
        reached: result.value.is_none_or(f64::is_finite),
        n: result.n,
        unknown: result.unknown,
    }
}

fn brackets(rows: &[TrialRow]) -> Option<Brackets> {
    let width = |r: &TrialRow| Some(Offset(r.fault_after_s?.0.saturating_sub(r.fault_before_s?.0)).as_secs());
    let widths: Vec<f64> = rows.iter().filter_map(width).collect();
    Some(Brackets {
        n: widths.len(),
        median_s: plain_quantile(&widths, 0.5)?,
        p99_s: plain_quantile(&widths, 0.99)?,
        max_s: plain_quantile(&widths, 1.0)?,
    })
}

/// Options per arm: asked for, and the distinct sets that were effective on the connections under test.
fn arms(plan: &Plan, events: &[Event]) -> Vec<ArmOptions> {
    // The last reading of each trial; of two at one instant the greater text, so that order does not matter.
    let mut last: BTreeMap<TrialId, (Offset, String, &Kind)> = BTreeMap::new();
    for event in events {
        if let (Some(trial), Kind::Options { attempt: 0, effective }) = (event.trial, &event.kind) {
            let text = serde_json::to_string(effective).unwrap_or_default();
            let newer = last.get(&trial).is_none_or(|(at, known, _)| (event.offset, &text) > (*at, known));
            if newer {
                last.insert(trial, (event.offset, text, &event.kind));
            }
        }
    }
    let effective = |arm: usize| {
        let mut sets: BTreeMap<&str, EffectiveCount> = BTreeMap::new();
        for trial in plan.trials.iter().filter(|t| t.arm == arm) {
            if let Some((_, text, Kind::Options { effective, .. })) = last.get(&trial.id) {
                sets.entry(text)
                    .and_modify(|set| set.n += 1)
                    .or_insert_with(|| EffectiveCount { n: 1, options: effective.clone() });
            }
        }
        let mut sets: Vec<EffectiveCount> = sets.into_values().collect();
        sets.sort_by_key(|set| std::cmp::Reverse(set.n));
        sets
    };
    let arms = plan.scenario.arms.iter().enumerate();
    arms.map(|(i, arm)| ArmOptions { arm: arm.name.clone(), asked: arm.settings.clone(), effective: effective(i) })
        .collect()
}
