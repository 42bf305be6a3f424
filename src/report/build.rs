//! From rows to the summary.

use super::CellRows;
use super::asked;
use super::beside;
use super::distortion;
use super::ledger;
use super::made;
use super::sentences;
use super::silence;
use super::summary::{
    CellSummary, Counts, GateSummary, MessageCounts, NamedCount, Predicted, ScenarioSummary, Summary, VoidCount,
};
use super::sweeps;
use crate::events::{Event, Kind};
use crate::plan::Plan;
use crate::scenario::{Arm, Fault};
use crate::stats::{Observation, Share, Spread, mean, plain_quantile, spread};
use crate::store::{ArmOptions, Brackets, EffectiveCount, RunInfo};
use crate::units::{Offset, TrialId};
use crate::verdict::gate::{GateResult, exit_code, judge_gates};
use crate::verdict::{Judged, MessageRow, Outcome, TrialRow};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(super) fn summary(run: &RunInfo, events: &[Event], judged: &Judged, rows: &[CellRows]) -> Summary {
    let scenario = &run.plan.scenario;
    let gates = judge_gates(&scenario.gates, &judged.trials, run.baseline.as_ref());
    let arms = arms(&run.plan, events);
    let cells = cells(&run.plan, judged, rows);
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
        distorted: distortion::labels(scenario),
        distortion: distortion::lines(&run.plan, &cells),
        cells,
        tasks: beside::tasks(&run.plan),
        published: beside::published(&run.plan, judged, rows),
        attribution: made::cells(&run.plan, judged, rows),
        published_words: made::published(&run.plan),
        ledger: ledger::of(&judged.account, &judged.trials.iter().map(|r| r.trial).collect()),
        void_reasons: void_reasons(&judged.trials),
        gates: gates.iter().map(gate).collect(),
        brackets: brackets(&judged.trials),
        findings: [asked::findings(&arms), asked::ended(&run.plan, &judged.trials)].concat(),
        arms,
        memory: run.memory.clone(),
        machine: run.machine.clone(),
        brokers: run.brokers.clone(),
        clients: run.clients.clone(),
        sources: run.sources.clone(),
        notes: run.plan.doubts.iter().cloned().chain(notes(events)).chain(sweeps::notes(&run.plan, events)).collect(),
    }
}

/// The rows of each arm and fault that has any, in the order of the scenario.
pub(super) fn cell_rows(plan: &Plan, judged: &Judged) -> Vec<CellRows> {
    let mut of: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (index, row) in judged.trials.iter().enumerate() {
        if let Some(trial) = plan.trial(row.trial) {
            of.entry((trial.arm, trial.fault)).or_default().push(index);
        }
    }
    let cells = of.into_iter().map(|((arm, fault), rows)| CellRows { arm, fault, rows });
    cells.filter(|c| c.arm < plan.scenario.arms.len() && c.fault < plan.scenario.faults.len()).collect()
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

fn cells(plan: &Plan, judged: &Judged, cells: &[CellRows]) -> Vec<CellSummary> {
    let mut of_trial: HashMap<TrialId, Vec<&MessageRow>> = HashMap::new();
    for message in &judged.messages {
        of_trial.entry(message.trial).or_default().push(message);
    }
    let one = |c: &CellRows| {
        let rows: Vec<&TrialRow> = c.rows.iter().map(|i| &judged.trials[*i]).collect();
        let messages: Vec<&MessageRow> =
            rows.iter().filter_map(|r| of_trial.get(&r.trial)).flatten().copied().collect();
        let (arm, fault) = (&plan.scenario.arms[c.arm], &plan.scenario.faults[c.fault]);
        CellSummary {
            outlooks: silence::watchers(plan, judged, c),
            ledger: ledger::of(&judged.account, &rows.iter().map(|r| r.trial).collect()),
            ..cell(arm, fault, &rows, &messages)
        }
    };
    cells.iter().map(one).collect()
}

fn cell(arm: &Arm, fault: &Fault, rows: &[&TrialRow], messages: &[&MessageRow]) -> CellSummary {
    let counts = counts(rows.iter().copied());
    let certified: Vec<&TrialRow> = rows.iter().copied().filter(|r| is_certified(r)).collect();
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
        scope: fault.reach().to_string(),
        control: fault.is_control(),
        counts,
        detected_share: (!certified.is_empty()).then(|| Share::of(counts.detected, certified.len())),
        ttd: to_event(&|r| r.ttd_s),
        ttr: to_event(&|r| r.ttr_s),
        broker_notice: to_event(&|r| since_cut(r, r.broker_notice_s).filter(|after| after.0 >= 0)),
        redelivery: certified.iter().any(|r| r.ghosts_n.is_some()).then(|| to_event(&|r| r.redelivery_s)),
        ghosts: certified.iter().filter_map(|r| r.ghosts_n).reduce(|a, b| a + b),
        client_exited: arm
            .settings
            .subject
            .is_command()
            .then(|| rows.iter().filter(|r| r.outcome != Outcome::Void && r.client_exited_s.is_some()).count()),
        latency: (!messages.is_empty()).then(|| latency(&certified, messages)),
        stuck: (!messages.is_empty())
            .then(|| spread(&certified.iter().filter_map(|r| stuck_observation(r)).collect::<Vec<_>>())),
        resolved_by: by_frequency(certified.iter().map(|r| r.resolved_by.as_str()).filter(|by| !by.is_empty())),
        watchers: by_frequency(rows.iter().filter(|r| r.outcome != Outcome::Void).map(|r| r.watcher.as_str())),
        kernel_ended_unnoticed: certified
            .iter()
            .filter(|r| r.outcome == Outcome::Censored && kernel_ended_in_time(r))
            .count(),
        outlooks: Vec::new(),
        unexercised_to_broker: unexercised(&|r| r.offered_to_broker),
        unexercised_to_client: unexercised(&|r| r.offered_to_client),
        predicted: predicted(rows),
        messages: (!messages.is_empty()).then(|| message_counts(messages)),
        attempts_mean: attempts_mean(rows),
        ledger: None,
    }
}

/// Connections and attempts of a trial on average, the one under test included; `None` where none counts.
fn attempts_mean(rows: &[&TrialRow]) -> Option<f64> {
    let counted: Vec<f64> = rows.iter().filter(|r| r.outcome != Outcome::Void).map(|r| r.attempts as f64).collect();
    mean(&counted).map(|m| m.value_s)
}

/// Whether the kernel gave the connection up while the trial was watched. A moment after that it is the harness that closes
/// it, which the kernel may say before the harness does.
fn kernel_ended_in_time(row: &TrialRow) -> bool {
    row.kernel_end_s.zip(row.fault_applied_s).is_some_and(|(end, cut)| end.0 <= cut.0.saturating_add(row.horizon_s.0))
}

/// Time from the cut to the event; without it, how long the trial was watched: to its end, at least to the horizon where
/// nobody noticed at all.
pub(super) fn observation(row: &TrialRow, value: Option<Offset>) -> Observation {
    match value {
        Some(seconds) => Observation::event(seconds.as_secs()),
        None => {
            let watched = row.ended_s.zip(row.fault_applied_s).map_or(0.0, |(end, cut)| end.as_secs() - cut.as_secs());
            let horizon = row.horizon_s.as_secs();
            Observation::censored(if row.outcome == Outcome::Censored { horizon.max(watched) } else { watched })
        }
    }
}

/// How long a trial's oldest message waited: until it was resolved, or in vain until the end of the watch. `None` where
/// none did.
pub(super) fn stuck_observation(row: &TrialRow) -> Option<Observation> {
    let queued = row.queued_s?;
    Some(match row.stuck_s {
        Some(stuck) => Observation::event(stuck.as_secs()),
        None => Observation::censored(row.ended_s.map_or(0.0, |end| end.as_secs() - queued.as_secs())),
    })
}

/// From the publication of each message to its end; one that had none waited until the end of its trial's watch.
fn latency(certified: &[&TrialRow], messages: &[&MessageRow]) -> Spread {
    let ends: HashMap<TrialId, Option<Offset>> = certified.iter().map(|r| (r.trial, r.ended_s)).collect();
    let one = |m: &&MessageRow| {
        let (published, end) = (m.published_s?, (*ends.get(&m.trial)?)?);
        Some(match m.latency_s {
            Some(latency) => Observation::event(latency.as_secs()),
            None => Observation::censored(Offset(end.0.saturating_sub(published.0).max(0)).as_secs()),
        })
    };
    spread(&messages.iter().filter_map(one).collect::<Vec<_>>())
}

/// Whether a trial counts as a measurement of its cut.
pub(super) fn is_certified(row: &TrialRow) -> bool {
    matches!(row.outcome, Outcome::Detected | Outcome::Censored)
}

pub(super) fn by_frequency<'t>(names: impl Iterator<Item = &'t str>) -> Vec<NamedCount> {
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
        interval: result.interval,
        of_difference: result.interval.is_some() && result.gate.no_worse.is_some(),
        level: result.gate.confidence.or(result.gate.no_worse.as_ref().map(|_| 0.95)),
        needed: result.needed,
        why: result.why.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_ends_after_the_horizon_is_the_harness_closing_it() {
        let row = |end: f64| TrialRow {
            fault_applied_s: Some(Offset::from_secs(27.0)),
            horizon_s: Offset::from_secs(15.0),
            kernel_end_s: Some(Offset::from_secs(end)),
            ..TrialRow::default()
        };
        assert!(kernel_ended_in_time(&row(40.0)));
        assert!(!kernel_ended_in_time(&row(42.000_739)));
        assert!(!kernel_ended_in_time(&TrialRow { kernel_end_s: None, ..row(40.0) }));
    }
}
