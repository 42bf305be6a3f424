//! One trial: which outcome, who fired, and the row.

use super::timeline::{Applied, Attempt, Timeline};
use super::watcher;
use super::{MessageRow, Outcome, Span, TrialRow, VoidReason, certificate, messages};
use crate::plan::{Trial, Window};
use crate::scenario::{Act, Arm, Fault, Scenario};
use crate::units::Offset;

/// What was planned for the trial.
pub(super) struct Case<'p> {
    pub scenario: &'p Scenario,
    pub trial: &'p Trial,
    pub arm: &'p Arm,
    pub fault: &'p Fault,
}

/// From `earlier` to `later`; negative where the order is the other way round.
pub(super) fn span(later: Offset, earlier: Offset) -> Span {
    Offset(later.0.saturating_sub(earlier.0))
}

pub(super) fn judge_trial(case: &Case<'_>, t: &Timeline, ledger: &[MessageRow]) -> TrialRow {
    let mut first = t.first();
    if case.fault.in_handshake() && first.notice.is_none() {
        // What is noticed there is that the handshake came to nothing.
        first.notice.clone_from(&first.failed);
    }
    let certificate = certificate::counters(t, case.fault);
    let (outcome, void_reason) = match decide(case, t, &first) {
        Ok(Outcome::FalseAlarm) => (Outcome::FalseAlarm, None),
        Ok(Outcome::SubjectExited) if t.applied.is_none() || !kills_it(case) => (Outcome::SubjectExited, None),
        // The middlebox never forgot it: there is no cut that anybody could vouch for, and a look says that the entry lives.
        Ok(Outcome::Survived) if t.applied.is_none() && case.fault.idle.is_some() => (Outcome::Survived, None),
        Ok(outcome) => match certificate::objection(certificate, &t.proofs, case.fault) {
            Some(reason) => (Outcome::Void, Some(reason)),
            None => (outcome, None),
        },
        Err(reason) => (Outcome::Void, Some(reason)),
    };
    let counters = certificate.map(|(c, _)| c);
    // A control has no rule, so nothing is dated from it. Whoever kills a process sees it gone later than others do: there the
    // signal is the cut.
    let killed = case.fault.act.is_some_and(|act| act.kills() || act.tells_at_once());
    let in_force_after = t.applied.map(|a| a.after).filter(|_| !case.fault.is_control());
    let dated = |a: Applied| if killed { Applied { after: a.before, ..a } } else { a };
    let cut = t.applied.filter(|_| !case.fault.is_control()).map(dated);
    let mut row = TrialRow {
        trial: case.trial.id,
        arm: case.arm.name.clone(),
        subject: case.arm.settings.subject.name().to_string(),
        broker: case.arm.settings.subject.broker().name().to_string(),
        fault: case.fault.name().to_string(),
        scope: case.fault.reach().to_string(),
        conn_id: format!("{}.0", case.trial.id),
        local: first.connected.map(|(_, tuple)| tuple.local),
        peer: first.connected.map(|(_, tuple)| tuple.peer),
        phase_s: Offset::ZERO + case.trial.phase,
        fault_before_s: cut.map(|a| a.before),
        fault_applied_s: cut.map(|a| a.after),
        fault_after_s: in_force_after,
        age_at_fault_s: cut.and_then(|a| a.age_s),
        first_drop_s: t.first_drop.map(|(at, _)| at),
        first_drop_not_before_s: t.first_drop.and_then(|(_, not_before)| not_before),
        app_notice_s: first.notice.as_ref().map(|(at, _)| *at),
        broker_notice_s: first.far_end.as_ref().map(|(at, _)| *at),
        outcome,
        predicted_lo_s: case.trial.predicted.and_then(|w| w.lo_s),
        predicted_hi_s: case.trial.predicted.and_then(|w| w.hi_s),
        predicted_watcher: case.trial.predicted_watchers.iter().map(|w| w.name()).collect::<Vec<_>>().join("|"),
        horizon_s: Offset::ZERO + case.scenario.horizon,
        offered_to_broker: counters.map(|c| c.offered_to_broker),
        offered_to_client: counters.map(|c| c.offered_to_client),
        dropped_to_broker: counters.map(|c| c.dropped_to_broker),
        dropped_to_client: counters.map(|c| c.dropped_to_client),
        passed_to_broker: counters.map(|c| c.passed_to_broker),
        passed_to_client: counters.map(|c| c.passed_to_client),
        rst_seen: counters.map(|c| c.rst_to_client),
        fin_seen: counters.map(|c| c.fin_to_client),
        icmp_seen: counters.map(|c| c.icmp_to_client),
        false_alarm: outcome == Outcome::FalseAlarm,
        void_reason,
        healed_s: t.healed.map(|(_, after)| after),
        ended_s: t.ended.map(|(at, _)| at),
        attempts: t.attempts.len() as u64,
        ..TrialRow::default()
    };
    if let Some(end) = &first.kernel_end {
        row.kernel_end_s = Some(end.at);
        row.kernel_error = end.errno.map(watcher::errno_name).unwrap_or_default();
        row.kernel_end_not_before_s = end.not_before;
        row.kernel_end_by.clone_from(&end.by);
    }
    row.broker_watcher =
        first.far_end.as_ref().map(|(_, far)| watcher::of_far_end(far).to_string()).unwrap_or_default();
    row.watcher = watcher_of(case, t, &first, outcome).to_string();
    row.error = error_of(t, &first, outcome);
    if let (Outcome::Detected, Some(cut), Some((at, _))) = (outcome, cut, &first.notice) {
        row.detected_s = Some(*at);
        row.ttd_s = Some(span(*at, cut.after));
        row.recovered_s = recovered(t, *at);
        row.ttr_s = row.recovered_s.map(|r| span(r, cut.after));
    }
    // Nobody is there to notice, and somebody may come after it.
    if let (Outcome::SubjectExited, Some(cut), true) = (outcome, cut, kills_it(case)) {
        row.recovered_s = recovered(t, cut.after);
        row.ttr_s = row.recovered_s.map(|r| span(r, cut.after));
    }
    row.healthy_s = healthy(case, t, &first, outcome);
    if let Some((at, number, role)) = cut.and_then(|cut| t.first_reaction(cut.after)) {
        row.reacted_s = Some(at);
        row.reacted_on = format!("{}.{number}", case.trial.id);
        row.reacted_role = role;
    }
    row.client_exited_s = t.exited.as_ref().map(|(at, _)| *at);
    row.client_exit = t.exited.as_ref().map(|(_, status)| status.clone()).unwrap_or_default();
    (row.client_cpu_s, row.client_rss_mib) = match t.used {
        Some((cpu_ms, rss_kib)) => (Some(cpu_ms as f64 / 1e3), Some(rss_kib as f64 / 1024.0)),
        None => (None, None),
    };
    messages::count(&mut row, ledger);
    if let Some(cut) = cut.filter(|_| outcome != Outcome::Void) {
        row.agrees = agrees(case, &row, cut);
        row.watcher_agrees = watcher_agrees(case, &row);
        messages::broker_side(&mut row, ledger, cut.after);
        messages::stuck(&mut row, ledger, cut.after);
    }
    row
}

/// Whether the fault is the subject's own end.
fn kills_it(case: &Case<'_>) -> bool {
    case.fault.act == Some(Act::KillWorker)
}

/// The outcome before the certificate is looked at, or why there is none.
fn decide(case: &Case<'_>, t: &Timeline, first: &Attempt) -> Result<Outcome, VoidReason> {
    let control = case.fault.is_control();
    let notice = first.notice.as_ref().map(|(at, _)| *at);
    let exited = t.exited.as_ref().map(|(at, _)| *at).filter(|at| notice.is_none_or(|n| *at < n));
    let horizon = watched_until(case, t, first);
    if exited.is_some_and(|at| horizon.is_none_or(|h| at <= h)) {
        return Ok(Outcome::SubjectExited);
    }
    // A run that was stopped, or killed so hard that it could not even say so.
    let cut_short = t.ended.is_none_or(|(at, interrupted)| interrupted && horizon.is_none_or(|h| at < h));
    let unless_cut_short = |reason| if cut_short { VoidReason::Interrupted } else { reason };
    if case.fault.in_handshake() {
        return decide_handshake(case, t, first, notice.filter(|n| horizon.is_none_or(|h| *n <= h)), cut_short);
    }
    let Some((_, tuple)) = first.connected else {
        return Err(unless_cut_short(VoidReason::NeverConnected(why_not(first))));
    };
    let Some(ready) = first.ready else {
        return Err(unless_cut_short(VoidReason::NeverReady(why_not(first))));
    };
    let noticed_in_time = notice.is_some_and(|n| horizon.is_none_or(|h| n <= h));
    if control {
        return match (noticed_in_time, cut_short) {
            (true, _) => Ok(Outcome::FalseAlarm),
            (false, true) => Err(VoidReason::Interrupted),
            (false, false) => Ok(Outcome::Survived),
        };
    }
    let Some(applied) = t.applied else {
        return match (&t.fault_failed, notice) {
            (Some((failed, reason)), n) if n.is_none_or(|n| n > *failed) => {
                Err(VoidReason::FaultFailed(reason.clone()))
            }
            (_, Some(_)) => Ok(Outcome::FalseAlarm),
            (_, None) if case.fault.idle.is_some() && t.proofs.iter().any(|(.., holds)| *holds) && !cut_short => {
                Ok(Outcome::Survived)
            }
            (_, None) => Err(unless_cut_short(VoidReason::NoFault)),
        };
    };
    if let Some((_, reason)) = &t.fault_failed {
        // It was in force once, but did not end, or come again, as the scenario says.
        return Err(VoidReason::FaultFailed(reason.clone()));
    }
    if applied.tuple != tuple {
        return Err(VoidReason::OtherConnection);
    }
    // No watcher can be quicker than the bracket of a silent cut: what fired inside it had another reason. Of a broker that
    // is killed the client may hear before the harness sees it gone.
    let earliest = if case.fault.silent() { applied.after } else { applied.before };
    if notice.is_some_and(|n| n < earliest) {
        return Ok(Outcome::FalseAlarm);
    }
    if ready > applied.before {
        return Err(VoidReason::CutBeforeReady);
    }
    if noticed_in_time {
        return Ok(Outcome::Detected);
    }
    if cut_short {
        return Err(VoidReason::Interrupted);
    }
    // Whoever had noticed nothing by the end was to see all of it.
    let came = t.repeated.len() + 1;
    if let Some(repeat) = case.fault.repeat.filter(|repeat| came < repeat.times as usize) {
        let reason = format!("it came {came} of {} times by the end of the watch", repeat.times);
        return Err(VoidReason::FaultFailed(reason));
    }
    Ok(if survived(case, t, first, horizon) { Outcome::Survived } else { Outcome::Censored })
}

/// The same where the fault was in force before the connection, which therefore never consumed.
fn decide_handshake(
    case: &Case<'_>,
    t: &Timeline,
    first: &Attempt,
    noticed: Option<Offset>,
    cut_short: bool,
) -> Result<Outcome, VoidReason> {
    let answered = case.fault.duration.get().is_some() && t.healed.is_some();
    if first.ready.is_some() && !answered {
        return Err(VoidReason::ActNotInForce("the client consumes all the same".to_string()));
    }
    if t.applied.is_none() {
        return Err(match &t.fault_failed {
            Some((_, reason)) => VoidReason::FaultFailed(reason.clone()),
            None if cut_short => VoidReason::Interrupted,
            None => VoidReason::NoFault,
        });
    }
    match (noticed, cut_short) {
        (Some(_), _) => Ok(Outcome::Detected),
        (None, _) if first.ready.is_some() => Ok(Outcome::Survived),
        (None, true) => Err(VoidReason::Interrupted),
        (None, false) => Ok(Outcome::Censored),
    }
}

/// How long the connection under test was healthy under watch: from consuming to whatever came first of the cut, the
/// subject's notice or exit, and the end of a control's horizon.
fn healthy(case: &Case<'_>, t: &Timeline, first: &Attempt, outcome: Outcome) -> Option<Span> {
    let ready = first.ready.filter(|_| outcome != Outcome::Void)?;
    let cut = t.applied.filter(|_| !case.fault.is_control()).map(|a| a.before);
    let end = if case.fault.is_control() { watched_until(case, t, first) } else { cut };
    let notice = first.notice.as_ref().map(|(at, _)| *at);
    let exited = t.exited.as_ref().map(|(at, _)| *at);
    let until = [end, notice, exited].into_iter().flatten().min()?;
    (until >= ready).then(|| span(until, ready))
}

/// The end of the horizon: counted from the cut, in a control from the moment at which the cut would have been.
fn watched_until(case: &Case<'_>, t: &Timeline, first: &Attempt) -> Option<Offset> {
    let planned = || {
        let ready = first.ready.filter(|_| case.fault.is_control())?;
        Some(ready + case.scenario.settle + case.trial.phase)
    };
    t.applied.map(|a| a.after).or_else(planned).map(|from| from + case.scenario.horizon)
}

/// Healed on purpose within the horizon, before kernel, subject or broker gave the connection up. (The subject's own
/// notice, also one that healing brought about, is a detection and is handled before.)
fn survived(case: &Case<'_>, t: &Timeline, first: &Attempt, horizon: Option<Offset>) -> bool {
    // What is taken up again where it was left heals by itself, and nobody can say when.
    let resumes = case.fault.middlebox.is_some_and(|middlebox| middlebox.loose);
    let planned = case.fault.duration.get().is_some() || resumes;
    let healed = resumes || t.healed.is_some_and(|(before, _)| horizon.is_none_or(|h| before <= h));
    let within = |at: Offset| horizon.is_none_or(|h| at <= h);
    let ended = first.kernel_end.as_ref().is_some_and(|end| within(end.at))
        || first.far_end.as_ref().is_some_and(|(at, _)| within(*at));
    planned && healed && !ended
}

fn why_not(first: &Attempt) -> String {
    let cause = first.failed.as_ref().or(first.notice.as_ref());
    cause.map(|(_, cause)| watcher::error_text(cause)).unwrap_or_default()
}

fn watcher_of(case: &Case<'_>, t: &Timeline, first: &Attempt, outcome: Outcome) -> &'static str {
    match (outcome, &first.notice) {
        (Outcome::Void, _) => watcher::UNKNOWN,
        // The reconnect under test never stood.
        (Outcome::Detected, Some((_, cause))) if first.failed.is_some() => {
            watcher::of_failed_attempt(cause, &case.arm.settings)
        }
        (Outcome::Detected, Some((at, cause))) => {
            let (settings, since) = (&case.arm.settings, t.applied.map(|a| a.before));
            match watcher::of_notice(cause, first, settings, since) {
                // It did not say why, and the kernel had ended the connection before.
                watcher::UNKNOWN => watcher::of_kernel_end(first, *at, settings, since),
                known => known,
            }
        }
        // Before the cut, or without one: every look at the socket is evidence.
        (Outcome::FalseAlarm, Some((_, cause))) => watcher::of_notice(cause, first, &case.arm.settings, None),
        _ => watcher::NONE,
    }
}

fn error_of(t: &Timeline, first: &Attempt, outcome: Outcome) -> String {
    match outcome {
        Outcome::SubjectExited => t.exited.as_ref().map(|(_, status)| status.clone()).unwrap_or_default(),
        Outcome::Censored | Outcome::Survived => String::new(),
        Outcome::Detected | Outcome::FalseAlarm | Outcome::Void => why_not(first),
    }
}

/// The subject consumes again: the first "ready" of a later connection after the detection.
fn recovered(t: &Timeline, detected: Offset) -> Option<Offset> {
    let later = t.attempts.iter().filter(|(n, _)| **n > 0);
    later.filter_map(|(_, a)| a.ready).filter(|ready| *ready >= detected).min()
}

/// Whether measurement and predicted window agree. The instant of the cut is known only within its bracket, so the
/// measured time to detect is an interval too, and touching the window is agreement. Where the kernel's tracepoint told
/// when the connection ended, the interval begins there: how late user space got to run is the machine's load, not the
/// timer's. A censored trial agrees with a window that reaches beyond the horizon.
fn agrees(case: &Case<'_>, row: &TrialRow, cut: Applied) -> Option<bool> {
    let Window { lo_s, hi_s } = case.trial.predicted?;
    let never = lo_s.is_none() && hi_s.is_none();
    match (row.outcome, row.detected_s) {
        (Outcome::Detected, Some(at)) => {
            let ended =
                row.kernel_end_s.filter(|end| row.kernel_end_by == "tracepoint" && *end >= cut.after && *end <= at);
            let (least, most) = (span(ended.unwrap_or(at), cut.after).as_secs(), span(at, cut.before).as_secs());
            Some(!never && lo_s.is_none_or(|lo| most >= lo) && hi_s.is_none_or(|hi| least <= hi))
        }
        (Outcome::Censored, _) => Some(hi_s.is_none_or(|hi| hi > row.horizon_s.as_secs())),
        _ => None,
    }
}

/// Whether the one who noticed is one of those who, by the model, may be the first. Nobody by the horizon is what a
/// prediction of "nobody" says; of one beyond the horizon it says nothing.
fn watcher_agrees(case: &Case<'_>, row: &TrialRow) -> Option<bool> {
    let names: Vec<&str> = case.trial.predicted_watchers.iter().map(|w| w.name()).collect();
    let comparable = match row.outcome {
        Outcome::Detected => row.watcher != watcher::UNKNOWN,
        Outcome::Censored => names == [watcher::NONE],
        _ => false,
    };
    (comparable && !names.is_empty()).then(|| names.contains(&row.watcher.as_str()))
}
