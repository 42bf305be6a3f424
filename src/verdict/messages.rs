//! The ledger of the numbered messages, and how long the oldest of them was stuck.

use super::terms;
use super::timeline::{Attempt, Timeline};
use super::trial::{Case, span};
use super::{MessageRow, TrialRow};
use crate::events::{Event, Kind};
use crate::ledger::{Account, Anomaly, AnomalyKind, Fate, MessageId};
use crate::scenario::{Ack, SubjectKind};
use crate::units::Offset;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who resolved a message that reached a consumer again.
pub(super) const RECOVERY: &str = "recovery";
/// The role of a connection on which messages come.
const CONSUMER: &str = "consumer";
/// Who resolved a message that a second consumer got.
const SECOND: &str = "second_consumer";

/// What consumed a message, and over which connection.
#[derive(Debug, Clone, Copy, Default)]
struct Consumed {
    delivered: Option<(Offset, u32)>,
    acked: Option<(Offset, u32)>,
    finished: Option<(Offset, u32)>,
    /// Effects by the consumer's own word.
    effects: u64,
    /// Those of them that were taken back.
    compensated: u64,
    /// Ends of the work by the task store's word.
    recorded: u64,
    /// The connection of a bare writer.
    sent: u32,
    /// By a second consumer.
    elsewhere: Option<Offset>,
    /// Whether its user saw it done.
    seen_done: bool,
}

/// One row a message of the trial. Events in canonical order.
pub(super) fn ledger(case: &Case<'_>, events: &[&Event], t: &Timeline) -> Vec<MessageRow> {
    let last = t.ended.map_or(Offset(i64::MAX), |(at, _)| at);
    let mut rows: BTreeMap<u64, (MessageRow, Consumed)> = BTreeMap::new();
    for event in events.iter().filter(|e| e.offset <= last) {
        let at = event.offset;
        let Some(id) = message_of(&event.kind) else { continue };
        let (row, by) = rows
            .entry(id)
            .or_insert_with(|| (MessageRow { trial: case.trial.id, id, ..MessageRow::default() }, Consumed::default()));
        match &event.kind {
            Kind::Published { .. } => _ = row.published_s.get_or_insert(at),
            Kind::Sent { attempt, .. } => {
                row.published_s.get_or_insert(at);
                by.sent = *attempt;
            }
            Kind::Confirmed { .. } => _ = row.confirmed_s.get_or_insert(at),
            Kind::Acked { attempt, .. } => _ = by.acked.get_or_insert((at, *attempt)),
            Kind::Delivered { attempt, redelivered, .. } => {
                by.delivered.get_or_insert((at, *attempt));
                row.delivered_n += 1;
                if *redelivered {
                    row.redelivered_n += 1;
                    row.given_again_s.get_or_insert(at);
                }
            }
            Kind::Elsewhere { redelivered, .. } => {
                by.elsewhere.get_or_insert(at);
                by.effects += 1;
                row.delivered_n += 1;
                if *redelivered {
                    row.redelivered_n += 1;
                    row.given_again_s.get_or_insert(at);
                }
            }
            Kind::Started { .. } => _ = row.started_s.get_or_insert(at),
            Kind::Finished { attempt, .. } => {
                by.finished.get_or_insert((at, *attempt));
                by.recorded += 1;
            }
            Kind::Requeued { .. } => row.requeued_n += 1,
            Kind::Retried { .. } => row.retried_n += 1,
            Kind::DeadLettered { .. } => _ = row.dead_lettered_s.get_or_insert(at),
            Kind::Reissued { of, .. } => row.reissue_of = Some(*of),
            Kind::Seen { status, .. } => {
                row.seen_s.get_or_insert(at);
                by.seen_done |= status == "done";
            }
            Kind::Reaped { rule, .. } if row.reaped_s.is_none() => {
                (row.reaped_s, row.reaped_by) = (Some(at), rule.clone());
            }
            Kind::Compensated { .. } => by.compensated += 1,
            Kind::Effect { .. } if !case.arm.settings.subject.is_command() => by.effects += 1,
            // The work of a program that is watched from outside is the only proof that its message had arrived.
            Kind::Effect { .. } => {
                by.effects += 1;
                by.delivered.get_or_insert((at, consuming_at(t, at)));
                row.delivered_n += 1;
            }
            Kind::PeerReceived { .. } => {
                let attempt = by.sent;
                by.delivered.get_or_insert((at, attempt));
                row.delivered_n += 1;
            }
            _ => {}
        }
    }
    let amqp = matches!(case.arm.settings.subject, SubjectKind::Lapin | SubjectKind::AmqpBlocking);
    let acknowledges = terms::acknowledges(case.arm.settings.subject, case.arm.settings.ack.is_some());
    // Where a store keeps the tasks, one is dealt with when that says so; an early acknowledgement ends nobody's wait.
    let early = case.scenario.keeps_tasks() && case.arm.settings.ack == Some(Ack::Early) && amqp;
    let finish = |(mut row, by): (MessageRow, Consumed)| {
        let at = |seen: Option<(Offset, u32)>| seen.map(|(at, _)| at);
        (row.delivered_s, row.acked_s, row.finished_s) = (at(by.delivered), at(by.acked), at(by.finished));
        // Older recordings know of effects only from the task store. A task that was begun or failed has a number of them;
        // of any other message nothing is known.
        let effects = if by.effects > 0 { by.effects } else { by.recorded };
        let known = row.started_s.is_some() || row.reaped_s.is_some() || effects > 0;
        row.effects = known.then_some(effects);
        row.compensated = (by.compensated > 0).then_some(by.compensated);
        let taken = if acknowledges { by.acked } else { by.delivered };
        let consumed = by.finished.or(taken.filter(|_| !early));
        row.elsewhere_s = by.elsewhere;
        row.resolved_s = [at(consumed), by.elsewhere, row.reaped_s, row.dead_lettered_s].into_iter().flatten().min();
        let others = [row.reaped_s, by.elsewhere, row.dead_lettered_s].into_iter().flatten().min();
        let own = consumed.filter(|(at, _)| others.is_none_or(|other| *at < other));
        row.resolved_conn_id = own.map(|(_, attempt)| format!("{}.{attempt}", case.trial.id)).unwrap_or_default();
        row.latency_s = row.resolved_s.zip(row.published_s).map(|(resolved, published)| span(resolved, published));
        row
    };
    let seen_done: BTreeSet<u64> = rows.iter().filter(|(_, (_, by))| by.seen_done).map(|(id, _)| *id).collect();
    let mut rows: Vec<MessageRow> = rows.into_values().map(finish).collect();
    users(&mut rows, &seen_done);
    rows
}

/// How long the user of each request was stuck: until the first poll that saw it, or what was issued in its place, done; or
/// until the last that saw all of them failed.
fn users(rows: &mut [MessageRow], seen_done: &BTreeSet<u64>) {
    let of: BTreeMap<u64, u64> = rows.iter().filter_map(|row| Some((row.id, row.reissue_of?))).collect();
    let request = |mut id: u64| {
        // A message only ever follows its predecessor, so this ends.
        while let Some(before) = of.get(&id).filter(|before| **before < id) {
            id = *before;
        }
        id
    };
    let mut all: BTreeMap<u64, Vec<(u64, Option<Offset>)>> = BTreeMap::new();
    for row in rows.iter() {
        all.entry(request(row.id)).or_default().push((row.id, row.seen_s));
    }
    for row in rows.iter_mut().filter(|row| row.reissue_of.is_none()) {
        let Some(issued) = all.get(&row.id) else { continue };
        let done = issued.iter().filter(|(id, _)| seen_done.contains(id)).filter_map(|(_, seen)| *seen).min();
        let failed = || issued.iter().map(|(_, seen)| *seen).collect::<Option<Vec<_>>>()?.into_iter().max();
        row.user_stuck_s = done.or_else(failed).zip(row.published_s).map(|(seen, published)| span(seen, published));
    }
}

/// The connection that a client from outside was consuming on: its work does not say over which a message came. One that has
/// ended brings nothing any more: what is done before the first new message proves that the client consumes again came over
/// the connection that it has opened since.
fn consuming_at(t: &Timeline, at: Offset) -> u32 {
    let lives = |attempt: &Attempt| attempt.local_end().is_none_or(|end| end > at);
    let ready = |attempt: &Attempt| attempt.ready.filter(|ready| *ready <= at);
    let open = |attempt: &Attempt| {
        let consumes = attempt.role.as_deref().is_none_or(|role| role == CONSUMER);
        attempt.connected.map(|(opened, _)| opened).filter(|opened| consumes && *opened <= at)
    };
    let latest = |since: &dyn Fn(&Attempt) -> Option<Offset>, all: bool| {
        let of = |(n, attempt): (&u32, &Attempt)| Some((since(attempt).filter(|_| all || lives(attempt))?, *n));
        t.attempts.iter().filter_map(of).max()
    };
    let found = latest(&ready, false).or_else(|| latest(&open, false)).or_else(|| latest(&ready, true));
    found.map_or(0, |(_, attempt)| attempt)
}

/// Enters fate and anomalies into the rows.
pub(super) fn enter(account: &Account, rows: &mut [MessageRow]) {
    let mut kinds: BTreeMap<MessageId, Vec<&str>> = BTreeMap::new();
    for anomaly in &account.anomalies {
        kinds.entry(anomaly.id).or_default().push(anomaly.kind.name());
    }
    for row in rows {
        let id = MessageId { trial: row.trial, message: row.id };
        row.fate = account.fates.get(&id).map(|fate| fate.name().to_string()).unwrap_or_default();
        row.anomalies = kinds.get(&id).map(|kinds| kinds.join("|")).unwrap_or_default();
    }
}

/// Messages that came out of a queue that their routes do not lead to.
pub(super) fn misrouted(case: &Case<'_>, events: &[&Event]) -> Vec<Anomaly> {
    let wrong = |event: &&Event| {
        let Kind::Routed { message, queue } = &event.kind else { return None };
        let job = case.scenario.job_of(*message)?;
        let right = case.arm.settings.delivery.destinations(job);
        let id = MessageId { trial: case.trial.id, message: *message };
        let why = || format!("`{}` came out of `{queue}` and belongs into `{}`", job.name, right.join("`, `"));
        (!right.contains(&queue.as_str())).then(|| Anomaly { kind: AnomalyKind::Misrouted, id, why: why() })
    };
    events.iter().filter_map(wrong).collect()
}

/// How long messages of the first job, or all where there are no jobs, waited until their work began.
pub(super) fn waits(case: &Case<'_>, row: &mut TrialRow, ledger: &[MessageRow]) {
    let name = case.scenario.jobs.first().map(|job| job.name.as_str());
    let first = |m: &&MessageRow| name.is_none() || case.scenario.job_of(m.id).map(|job| job.name.as_str()) == name;
    let wait = |m: &MessageRow| Some(span(m.started_s.or(m.delivered_s).or(row.ended_s)?, m.published_s?));
    let mut all: Vec<_> = ledger.iter().filter(first).filter_map(wait).collect();
    all.sort_unstable();
    row.wait_p50_s = all.get(all.len() / 2).copied();
    row.wait_max_s = all.last().copied();
}

/// Fills in, for trials of one arm under one fault, how many reconnects and retries reached the broker in the same second.
pub(super) fn peaks(trials: Vec<(&mut TrialRow, Vec<Offset>)>) {
    let mut all: Vec<Offset> = trials.iter().flat_map(|(_, own)| own.iter().copied()).collect();
    all.sort_unstable();
    for (row, own) in trials {
        let within = |from: Offset| {
            let until = from + Duration::from_secs(1);
            (all.partition_point(|at| *at < until) - all.partition_point(|at| *at < from)) as u64
        };
        row.peak_load_n = Some(own.into_iter().map(within).max().unwrap_or(0));
    }
}

/// When a trial's reconnects and retried tasks reached the broker.
pub(super) fn arrivals(events: &[&Event]) -> Vec<Offset> {
    let counts = |kind: &Kind| matches!(kind, Kind::Retried { .. } | Kind::Connected { attempt: 1.., .. });
    events.iter().filter(|event| counts(&event.kind)).map(|event| event.offset).collect()
}

/// Enters the number of messages with each anomaly into the trial's row.
pub(super) fn tally(account: &Account, row: &mut TrialRow) {
    let n = |kind| Some(account.of(kind).count() as u64);
    row.lost_n = n(AnomalyKind::Lost);
    row.duplicated_n = n(AnomalyKind::DuplicatedDelivery);
    row.duplicated_effects_n = n(AnomalyKind::DuplicatedEffect);
    row.falsely_killed_n = n(AnomalyKind::FalselyKilled);
    row.zombies_n = n(AnomalyKind::Zombie);
    row.out_of_order_n = n(AnomalyKind::OutOfOrder);
    row.reaped_twice_n = n(AnomalyKind::ReapedTwice);
    row.second_tasks_n = n(AnomalyKind::SecondTask);
    row.contradictions_n = n(AnomalyKind::Contradiction);
    row.misrouted_n = n(AnomalyKind::Misrouted);
    row.refused_n = Some(account.count(Fate::Refused) as u64);
}

fn message_of(kind: &Kind) -> Option<u64> {
    match kind {
        Kind::Delivered { message, .. }
        | Kind::Elsewhere { message, .. }
        | Kind::Acked { message, .. }
        | Kind::Sent { message, .. }
        | Kind::Published { message }
        | Kind::Started { message, .. }
        | Kind::Finished { message, .. }
        | Kind::Requeued { message }
        | Kind::DeadLettered { message }
        | Kind::Refused { message, .. }
        | Kind::Retried { message, .. }
        | Kind::Reaped { message, .. }
        | Kind::Effect { message }
        | Kind::Compensated { message }
        | Kind::Reissued { message, .. }
        | Kind::Seen { message, .. }
        | Kind::AskedAgain { message }
        | Kind::Confirmed { message }
        | Kind::PeerReceived { message } => Some(*message),
        _ => None,
    }
}

/// Counts what became of the messages, where there are any.
pub(super) fn count(row: &mut TrialRow, ledger: &[MessageRow]) {
    if ledger.is_empty() {
        return;
    }
    let count = |which: &dyn Fn(&MessageRow) -> bool| Some(ledger.iter().filter(|m| which(m)).count() as u64);
    // The earliest end among the messages that were published later; ledgers are in the order of publication.
    let mut overtaken_at = vec![None; ledger.len()];
    let mut earliest: Option<Offset> = None;
    for (index, message) in ledger.iter().enumerate().rev() {
        overtaken_at[index] = earliest;
        earliest = [earliest, message.resolved_s].into_iter().flatten().min();
    }
    let overtaken: Vec<bool> = ledger
        .iter()
        .zip(&overtaken_at)
        .map(|(m, later)| later.is_some_and(|later| m.resolved_s.is_none_or(|own| later < own)))
        .collect();
    row.messages_published = count(&|m| m.published_s.is_some());
    row.retries_n = Some(ledger.iter().map(|m| m.retried_n).sum());
    row.reissued_n = count(&|m| m.reissue_of.is_some());
    row.messages_unresolved = count(&|m| m.resolved_s.is_none());
    row.messages_duplicated = count(&|m| m.delivered_n > 1 || m.effects.is_some_and(|n| n > 1));
    row.compensated_n = count(&|m| m.compensated.is_some());
    row.messages_overtaken = Some(overtaken.iter().filter(|o| **o).count() as u64);
    let missing = ledger.iter().zip(&overtaken).filter(|(m, overtaken)| **overtaken && m.resolved_s.is_none());
    row.messages_missing = Some(missing.count() as u64);
}

/// Fills the columns of the broker's side: when it gave the cut connection up, when it first gave somebody else what it had
/// handed to that one, and how many messages those were: given again after the cut, or with nobody at the end although a later
/// one is done.
pub(super) fn broker_side(row: &mut TrialRow, ledger: &[MessageRow], cut: Offset) {
    row.broker_ttd_s = row.broker_notice_s.filter(|at| *at >= cut).map(|at| span(at, cut));
    let again = |m: &MessageRow| m.given_again_s.filter(|at| *at > cut);
    row.redelivered_s = ledger.iter().filter_map(again).min();
    row.redelivery_s = row.redelivered_s.map(|at| span(at, cut));
    if ledger.iter().any(|m| m.elsewhere_s.is_some() || m.given_again_s.is_some()) {
        let waits = row.messages_missing.unwrap_or_default();
        row.ghosts_n = Some(ledger.iter().filter(|m| again(m).is_some()).count() as u64 + waits);
    }
}

/// Fills the stuck columns: the oldest message that was unresolved at the cut or published after it and that did not get
/// through: what the cut connection itself still brought while it was cut, as a path that is dead one way only can, and
/// the work that had begun on it, waited for nobody.
pub(super) fn stuck(row: &mut TrialRow, ledger: &[MessageRow], cut: Offset) {
    let cut_until = row.healed_s;
    let through = |m: &MessageRow| {
        let over_it =
            m.resolved_conn_id == row.conn_id && m.resolved_s.is_some_and(|at| cut_until.is_none_or(|heal| at < heal));
        // What went to the second consumer in the first place was never the dead connection's.
        let elsewhere = m.elsewhere_s.is_some() && m.elsewhere_s == m.resolved_s && m.given_again_s.is_none();
        over_it || elsewhere
    };
    let waiting = ledger.iter().filter(|m| m.resolved_s.is_none_or(|resolved| resolved > cut) && !through(m));
    let Some((queued, oldest)) = waiting.filter_map(|m| Some((m.published_s?, m))).min_by_key(|(at, m)| (*at, m.id))
    else {
        return;
    };
    row.queued_s = Some(queued);
    row.resolved_s = oldest.resolved_s;
    row.stuck_s = oldest.latency_s;
    row.resolved_after_s = oldest.resolved_s.map(|resolved| span(resolved, cut));
    row.user_stuck_s = oldest.user_stuck_s;
    let by_reaper = oldest.reaped_s.is_some() && oldest.reaped_s == oldest.resolved_s;
    let by_second = oldest.elsewhere_s.is_some() && oldest.elsewhere_s == oldest.resolved_s;
    let by = match (by_reaper, by_second) {
        (true, _) => oldest.reaped_by.clone(),
        (_, true) => SECOND.to_string(),
        _ => RECOVERY.to_string(),
    };
    row.resolved_by = oldest.resolved_s.map(|_| by).unwrap_or_default();
}
