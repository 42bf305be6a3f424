//! Gates on rows: the verdict, the numbers and the exit code.

use super::*;
use crate::scenario::Measure;
use crate::units::Offset;
use crate::verdict::VoidReason;

fn row(outcome: Outcome, ttd_s: Option<f64>) -> TrialRow {
    let void_reason = (outcome == Outcome::Void).then_some(VoidReason::FaultFailed("no such set".into()));
    let watcher = if ttd_s.is_some() { "amqp_heartbeat" } else { "none" }.to_string();
    TrialRow {
        arm: "a".into(),
        outcome,
        ttd_s: ttd_s.map(Offset::from_secs),
        void_reason,
        watcher,
        ..TrialRow::default()
    }
}

fn detected(n: usize) -> Vec<TrialRow> {
    (1..=n).map(|s| row(Outcome::Detected, Some(s as f64))).collect()
}

fn gate(metric: &str, measure: Measure, min: Option<f64>, max: Option<f64>) -> Gate {
    Gate { min, max, ..Gate::new(metric, measure) }
}

fn verdict(gate: &Gate, rows: &[TrialRow]) -> (Verdict, Option<f64>) {
    let result = judge_gate(gate, rows, None);
    (result.verdict, result.value)
}

#[test]
fn a_quantile_is_an_order_statistic_and_bounds_are_inclusive() {
    let median = gate("ttd_s", Measure::Quantile(0.5), Some(5.0), Some(5.0));
    assert_eq!(verdict(&median, &detected(10)), (Verdict::Held, Some(5.0)));
    let p99 = gate("ttd_s", Measure::Quantile(0.99), None, Some(9.0));
    assert_eq!(verdict(&p99, &detected(10)), (Verdict::Failed, Some(10.0)));
}

#[test]
fn a_censored_trial_lies_beyond_every_bound() {
    let mut rows = detected(9);
    rows.push(row(Outcome::Censored, None));
    let max = gate("ttd_s", Measure::Quantile(1.0), None, Some(1e9));
    assert_eq!(verdict(&max, &rows), (Verdict::Failed, Some(f64::INFINITY)));
    let median = gate("ttd_s", Measure::Quantile(0.5), None, Some(5.0));
    assert_eq!(verdict(&median, &rows), (Verdict::Held, Some(5.0)));
}

#[test]
fn void_trials_are_unknown_and_can_leave_a_gate_open() {
    let mut rows = detected(99);
    rows.push(row(Outcome::Void, None));
    let p99 = gate("ttd_s", Measure::Quantile(0.99), None, Some(99.0));
    assert_eq!(verdict(&p99, &rows).0, Verdict::Held, "one void in a hundred can't reach the 99th percentile");
    let all = gate("ttd_s", Measure::Quantile(1.0), None, Some(99.0));
    assert_eq!(verdict(&all, &rows).0, Verdict::Inconclusive);
    let tight = gate("ttd_s", Measure::Quantile(0.5), None, Some(1.0));
    assert_eq!(verdict(&tight, &rows).0, Verdict::Failed, "no void trial could mend this one");
}

#[test]
fn an_unknown_that_could_land_between_two_bounds_leaves_the_gate_open() {
    let mut rows = vec![row(Outcome::Detected, Some(1.0))];
    rows.extend([row(Outcome::Void, None), row(Outcome::Void, None)]);
    let median = gate("ttd_s", Measure::Quantile(0.5), Some(2.0), Some(3.0));
    assert_eq!(verdict(&median, &rows).0, Verdict::Inconclusive);
}

#[test]
fn shares_and_counts_look_at_text() {
    let mut rows = detected(3);
    rows.push(row(Outcome::Censored, None));
    let share = gate("watcher", Measure::Fraction("amqp_heartbeat".into()), Some(0.75), None);
    assert_eq!(verdict(&share, &rows), (Verdict::Held, Some(0.75)));
    let none = gate("false_alarm", Measure::Count(Some("true".into())), None, Some(0.0));
    assert_eq!(verdict(&none, &rows), (Verdict::Held, Some(0.0)));
    let any = gate("ttd_s", Measure::Count(None), Some(4.0), None);
    assert_eq!(verdict(&any, &rows), (Verdict::Failed, Some(3.0)));
}

#[test]
fn a_trial_that_was_watched_up_to_its_cut_is_known_to_be_no_false_alarm() {
    let none = gate("false_alarm", Measure::Count(Some("true".into())), None, Some(0.0));
    let reason = Some(VoidReason::CertificateMissing);
    let cut = TrialRow { fault_applied_s: Some(Offset(1)), void_reason: reason, ..row(Outcome::Void, None) };
    assert_eq!(verdict(&none, std::slice::from_ref(&cut)).0, Verdict::Held);
    assert_eq!(verdict(&none, &[cut, row(Outcome::Void, None)]).0, Verdict::Inconclusive);
}

#[test]
fn a_gate_about_void_trials_counts_them() {
    let mut rows = detected(99);
    rows.push(row(Outcome::Void, None));
    let certified = gate("outcome", Measure::Fraction("void".into()), None, Some(0.01));
    assert_eq!(verdict(&certified, &rows), (Verdict::Held, Some(0.01)));
    let reason = gate("void_reason", Measure::Count(Some("fault_failed".into())), None, Some(0.0));
    assert_eq!(verdict(&reason, &rows), (Verdict::Failed, Some(1.0)), "the code is matched whatever the details");
}

#[test]
fn without_a_trial_that_counts_a_quantile_is_open() {
    let p99 = gate("ttd_s", Measure::Quantile(0.99), None, Some(9.0));
    assert_eq!(verdict(&p99, &[]), (Verdict::Inconclusive, None));
    let elsewhere = Gate { arm: Some("b".into()), ..p99 };
    assert_eq!(verdict(&elsewhere, &detected(3)), (Verdict::Inconclusive, None));
}

#[test]
fn exit_codes_rank_failure_before_doubt_and_an_empty_cell_is_doubt() {
    let held = gate("ttd_s", Measure::Quantile(0.5), None, Some(99.0));
    let failed = gate("ttd_s", Measure::Quantile(0.5), None, Some(0.0));
    let open = Gate { arm: Some("b".into()), ..held.clone() };
    let rows = detected(3);
    let code = |gates: &[Gate], rows: &[TrialRow]| exit_code(&judge_gates(gates, rows, None), rows, true);
    assert_eq!(code(&[], &rows), 0);
    assert_eq!(code(std::slice::from_ref(&held), &rows), 0);
    assert_eq!(code(&[held.clone(), open.clone()], &rows), 4);
    assert_eq!(code(&[open, failed], &rows), 1);
    let mut with_void_cell = rows;
    with_void_cell.push(TrialRow { arm: "c".into(), ..row(Outcome::Void, None) });
    assert_eq!(code(&[held], &with_void_cell), 4);
    assert_eq!(code(&[], &[]), 4);
}

#[test]
fn a_run_that_did_not_end_or_lost_more_than_a_tenth_of_a_cell_is_inconclusive() {
    let rows = detected(20);
    assert_eq!(exit_code(&[], &rows, true), 0);
    assert_eq!(exit_code(&[], &rows, false), 4);
    let with_void = |n: usize| [rows.clone(), vec![row(Outcome::Void, None); n]].concat();
    assert_eq!(exit_code(&[], &with_void(2), true), 0);
    assert_eq!(exit_code(&[], &with_void(3), true), 4);
}

#[test]
fn a_shape_is_judged_by_the_p_value_of_its_test() {
    let stuck = |s: Option<f64>| TrialRow { stuck_s: s.map(Offset::from_secs), ..row(Outcome::Censored, None) };
    let even: Vec<TrialRow> = (0..60).map(|i| stuck(Some(10.0 + (f64::from(i) + 0.5) / 30.0))).collect();
    let of = |from: f64, to: f64| gate("stuck_s", Measure::Uniform { from, to }, Some(0.01), None);
    let (held, p) = verdict(&of(10.0, 12.0), &even);
    assert!(held == Verdict::Held && p.is_some_and(|p| p > 0.999), "{p:?}");
    assert_eq!(verdict(&of(10.0, 13.0), &even).0, Verdict::Failed, "the wrong range");
    let early = vec![stuck(Some(4.0)); 60];
    assert_eq!(verdict(&of(10.0, 12.0), &early).0, Verdict::Failed);
    // What was never resolved lies beyond the range.
    let unresolved = [even.clone(), vec![stuck(None); 30]].concat();
    assert_eq!(verdict(&of(10.0, 12.0), &unresolved).0, Verdict::Failed);
    // A few void trials can't turn it, many could, and none of them makes a failure one that could have held.
    let with_void = |rows: &[TrialRow], n: usize| [rows.to_vec(), vec![row(Outcome::Void, None); n]].concat();
    assert_eq!(verdict(&of(10.0, 12.0), &with_void(&even, 3)).0, Verdict::Held);
    assert_eq!(verdict(&of(10.0, 12.0), &with_void(&even, 30)).0, Verdict::Inconclusive);
    assert_eq!(verdict(&of(10.0, 12.0), &with_void(&early, 3)).0, Verdict::Failed);
    assert_eq!(verdict(&of(10.0, 12.0), &[]).0, Verdict::Inconclusive);
}

fn sure(gate: Gate, level: f64) -> Gate {
    Gate { confidence: Some(level), ..gate }
}

#[test]
fn a_quantile_with_confidence_takes_as_many_trials_as_its_interval() {
    let p99 = |n: usize| {
        let rows: Vec<TrialRow> = (0..n).map(|i| row(Outcome::Detected, Some(10.0 + i as f64 / n as f64))).collect();
        judge_gate(&sure(gate("ttd_s", Measure::Quantile(0.99), None, Some(11.0)), 0.95), &rows, None)
    };
    // 0.99²⁹⁸ is more than 5 %: the largest of 298 does not bound p99 yet.
    let few = p99(298);
    assert_eq!((few.verdict, few.needed), (Verdict::Inconclusive, Some(299)));
    assert!(few.interval.unwrap().hi.is_infinite());
    assert_eq!(p99(299).verdict, Verdict::Held);
    let late: Vec<TrialRow> = (0..100).map(|_| row(Outcome::Detected, Some(12.0))).collect();
    let failed = judge_gate(&sure(gate("ttd_s", Measure::Quantile(0.99), None, Some(11.0)), 0.95), &late, None);
    assert_eq!(failed.verdict, Verdict::Failed);
}

#[test]
fn shares_means_and_rates_with_confidence() {
    let share = sure(gate("outcome", Measure::Fraction("detected".into()), Some(0.9), None), 0.95);
    let rows = |hits: usize, n: usize| -> Vec<TrialRow> {
        let of = |i| if i < hits { row(Outcome::Detected, Some(1.0)) } else { row(Outcome::Censored, None) };
        (0..n).map(of).collect()
    };
    // 0.9²⁸ = 5.2 %, 0.9²⁹ = 4.7 %.
    assert_eq!(judge_gate(&share, &rows(28, 28), None).verdict, Verdict::Inconclusive);
    assert_eq!(judge_gate(&share, &rows(29, 29), None).verdict, Verdict::Held);
    assert_eq!(judge_gate(&share, &rows(40, 60), None).verdict, Verdict::Failed);
    let mean = sure(gate("ttd_s", Measure::Mean, None, Some(20.0)), 0.95);
    let held = judge_gate(&mean, &detected(30), None);
    assert!(held.verdict == Verdict::Held && (held.value.unwrap() - 15.5).abs() < 1e-9, "{held:?}");
    let rate = sure(gate("false_alarm", Measure::Rate, None, Some(0.001)), 0.95);
    let quiet = |hours: f64| {
        vec![TrialRow { healthy_s: Some(Offset::from_secs(hours * 3600.0)), ..row(Outcome::Survived, None) }]
    };
    // The rule of three: 2.996 over the hours.
    assert_eq!(judge_gate(&rate, &quiet(2990.0), None).verdict, Verdict::Inconclusive);
    assert_eq!(judge_gate(&rate, &quiet(3000.0), None).verdict, Verdict::Held);
    let mut loud = quiet(10.0);
    loud[0].outcome = Outcome::FalseAlarm;
    assert_eq!(judge_gate(&rate, &loud, None).verdict, Verdict::Failed);
}

#[test]
fn an_unknown_trial_counts_at_its_worst() {
    let share = sure(gate("outcome", Measure::Fraction("detected".into()), Some(0.9), None), 0.95);
    let mut rows = detected(29);
    rows.push(row(Outcome::Void, None));
    assert_eq!(judge_gate(&share, &rows, None).verdict, Verdict::Inconclusive);
}

fn held_to(than: Reference, margin: f64) -> Gate {
    let no_worse = Some(NoWorse { than, margin, relative: false });
    Gate { arm: Some("a".into()), no_worse, ..Gate::new("ttd_s", Measure::Mean) }
}

fn arm(name: &str, from: f64) -> Vec<TrialRow> {
    let of = |i: u32| TrialRow { arm: name.into(), ..row(Outcome::Detected, Some(from + f64::from(i % 10))) };
    (0..100).map(of).collect()
}

#[test]
fn no_worse_than_another_arm_by_more_than_a_margin() {
    let gate = held_to(Reference::Arm("b".into()), 1.0);
    let verdict = |own: f64| {
        let rows = [arm("a", own), arm("b", 10.0)].concat();
        judge_gate(&gate, &rows, None).verdict
    };
    assert_eq!((verdict(10.0), verdict(5.0)), (Verdict::Held, Verdict::Held));
    assert_eq!(verdict(10.2), Verdict::Held, "worse, but surely by less than the margin");
    assert_eq!(verdict(12.0), Verdict::Failed);
    let few = [arm("a", 10.5)[..8].to_vec(), arm("b", 10.0)[..8].to_vec()].concat();
    let open = judge_gate(&gate, &few, None);
    assert!(open.verdict == Verdict::Inconclusive && open.needed.is_some_and(|n| n > 100), "{open:?}");
    let alone = judge_gate(&gate, &arm("a", 10.0), None);
    assert!(alone.verdict == Verdict::Inconclusive && alone.why.contains("too few trials"), "{alone:?}");
}

#[test]
fn a_stored_run_decides_only_where_nothing_else_differs() {
    let gate = held_to(Reference::Baseline, 1.0);
    let gates = [gate.clone()];
    let stored = |differences: &[&str]| {
        let differences = differences.iter().map(ToString::to_string).collect();
        Baseline::new("baselines/x", differences, &gates, &arm("a", 10.0))
    };
    let judged = |baseline: Option<&Baseline>, own: f64| judge_gates(&gates, &arm("a", own), baseline).remove(0);
    assert_eq!(judged(Some(&stored(&[])), 10.0).verdict, Verdict::Held);
    assert_eq!(judged(Some(&stored(&[])), 13.0).verdict, Verdict::Failed);
    let other = judged(Some(&stored(&["kernel: 6.1 against 6.18"])), 13.0);
    assert_eq!(other.verdict, Verdict::Inconclusive);
    assert!(other.why.contains("kernel: 6.1 against 6.18") && other.interval.is_some(), "{other:?}");
    assert!(judged(None, 13.0).why.contains("there is no baseline"));
    // It is written into run.json.
    let text = serde_json::to_string(&stored(&[])).unwrap();
    assert_eq!(serde_json::from_str::<Baseline>(&text).unwrap(), stored(&[]));
}

#[test]
fn the_race_against_the_reaper() {
    let gate = sure(gate("detected_before_reaper", Measure::BeforeReaper, Some(0.9), None), 0.95);
    let race = |detected: Option<f64>, reaped: Option<f64>| TrialRow {
        fault_applied_s: Some(Offset::from_secs(10.0)),
        queued_s: Some(Offset::from_secs(9.0)),
        resolved_s: reaped.map(|at| Offset::from_secs(10.0 + at)),
        resolved_by: reaped.map_or(String::new(), |_| "queued_timeout".to_string()),
        ended_s: Some(Offset::from_secs(300.0)),
        ..row(if detected.is_some() { Outcome::Detected } else { Outcome::Censored }, detected)
    };
    let mut rows = vec![race(Some(16.0), None); 60];
    assert_eq!(judge_gate(&gate, &rows, None).verdict, Verdict::Held);
    rows.extend(vec![race(Some(130.0), Some(120.0)); 20]);
    let failed = judge_gate(&gate, &rows, None);
    assert!(failed.verdict == Verdict::Failed && failed.value == Some(0.75), "{failed:?}");
    // Neither detected nor reaped: nobody knows who would have been first.
    assert_eq!(judge_gate(&gate, &[race(None, None)], None).unknown, 1);
}

#[test]
fn a_program_that_was_gone_before_the_fault_says_nothing_of_a_bound() {
    let p100 = gate("ttr_s", Measure::Quantile(1.0), None, Some(15.0));
    let never_started = vec![row(Outcome::SubjectExited, None); 3];
    assert_eq!(verdict(&p100, &never_started).0, Verdict::Inconclusive);
    // One that the fault ended, or that ended under it, never recovers.
    let under_it = TrialRow { fault_applied_s: Some(Offset::from_secs(9.0)), ..row(Outcome::SubjectExited, None) };
    assert_eq!(verdict(&p100, &[under_it]).0, Verdict::Failed);
}
