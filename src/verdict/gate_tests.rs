//! Gates on rows: the verdict, the numbers and the exit code.

use super::*;
use crate::units::Offset;

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
    Gate { arm: None, fault: None, metric: metric.into(), measure, min, max }
}

fn verdict(gate: &Gate, rows: &[TrialRow]) -> (Verdict, Option<f64>) {
    let result = judge_gate(gate, rows);
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
    let code = |gates: &[Gate], rows: &[TrialRow]| exit_code(&judge_gates(gates, rows), rows, true);
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
