//! The ledger of the numbered messages, and how long the oldest of them was stuck.

use super::timeline::Timeline;
use super::trial::{Case, span};
use super::{MessageRow, TrialRow};
use crate::events::{Event, Kind};
use crate::ledger::{Account, AnomalyKind, MessageId};
use crate::scenario::SubjectKind;
use crate::units::Offset;
use std::collections::{BTreeMap, BTreeSet};

/// Who resolved a message that reached a consumer again.
pub(super) const RECOVERY: &str = "recovery";

/// What consumed a message, and over which connection.
#[derive(Debug, Clone, Copy, Default)]
struct Consumed {
    delivered: Option<(Offset, u32)>,
    acked: Option<(Offset, u32)>,
    finished: Option<(Offset, u32)>,
    /// Effects by the consumer's own word.
    effects: u64,
    /// Ends of the work by the task store's word.
    recorded: u64,
    /// The connection of a bare writer.
    sent: u32,
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
                row.redelivered_n += u64::from(*redelivered);
            }
            Kind::Started { .. } => _ = row.started_s.get_or_insert(at),
            Kind::Finished { attempt, .. } => {
                by.finished.get_or_insert((at, *attempt));
                by.recorded += 1;
            }
            Kind::Requeued { .. } => row.requeued_n += 1,
            Kind::Reissued { of, .. } => row.reissue_of = Some(*of),
            Kind::Seen { status, .. } => {
                row.seen_s.get_or_insert(at);
                by.seen_done |= status == "done";
            }
            Kind::Reaped { rule, .. } if row.reaped_s.is_none() => {
                (row.reaped_s, row.reaped_by) = (Some(at), rule.clone());
            }
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
    let acknowledges = amqp && case.arm.settings.ack.is_some();
    let finish = |(mut row, by): (MessageRow, Consumed)| {
        let at = |seen: Option<(Offset, u32)>| seen.map(|(at, _)| at);
        (row.delivered_s, row.acked_s, row.finished_s) = (at(by.delivered), at(by.acked), at(by.finished));
        // Older recordings know of effects only from the task store. A task that was begun or failed has a number of them;
        // of any other message nothing is known.
        let effects = if by.effects > 0 { by.effects } else { by.recorded };
        let known = row.started_s.is_some() || row.reaped_s.is_some() || effects > 0;
        row.effects = known.then_some(effects);
        let consumed = by.finished.or(if acknowledges { by.acked } else { by.delivered });
        row.resolved_s = [at(consumed), row.reaped_s].into_iter().flatten().min();
        let own = consumed.filter(|(at, _)| row.reaped_s.is_none_or(|reaped| *at < reaped));
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

/// The connection that a client from outside was consuming on: its work does not say over which a message came.
fn consuming_at(t: &Timeline, at: Offset) -> u32 {
    let ready = t.attempts.iter().filter_map(|(n, attempt)| Some((attempt.ready.filter(|ready| *ready <= at)?, *n)));
    ready.max().map_or(0, |(_, attempt)| attempt)
}

/// Enters fate and anomalies into the rows.
pub(super) fn enter(account: &Account, rows: &mut [MessageRow]) {
    for row in rows {
        let id = MessageId { trial: row.trial, message: row.id };
        row.fate = account.fates.get(&id).map(|fate| fate.name().to_string()).unwrap_or_default();
        let kinds: Vec<&str> = account.anomalies.iter().filter(|a| a.id == id).map(|a| a.kind.name()).collect();
        row.anomalies = kinds.join("|");
    }
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
}

fn message_of(kind: &Kind) -> Option<u64> {
    match kind {
        Kind::Delivered { message, .. }
        | Kind::Acked { message, .. }
        | Kind::Sent { message, .. }
        | Kind::Published { message }
        | Kind::Started { message, .. }
        | Kind::Finished { message, .. }
        | Kind::Requeued { message }
        | Kind::Reaped { message, .. }
        | Kind::Effect { message }
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
    row.reissued_n = count(&|m| m.reissue_of.is_some());
    row.messages_unresolved = count(&|m| m.resolved_s.is_none());
    row.messages_duplicated = count(&|m| m.delivered_n > 1 || m.effects.is_some_and(|n| n > 1));
    row.messages_overtaken = Some(overtaken.iter().filter(|o| **o).count() as u64);
    let missing = ledger.iter().zip(&overtaken).filter(|(m, overtaken)| **overtaken && m.resolved_s.is_none());
    row.messages_missing = Some(missing.count() as u64);
}

/// Fills the stuck columns: the oldest message that was unresolved at the cut or published after it and that did not get
/// through: what the cut connection itself still brought while it was cut, as a path that is dead one way only can, and
/// the work that had begun on it, waited for nobody.
pub(super) fn stuck(row: &mut TrialRow, ledger: &[MessageRow], cut: Offset) {
    let cut_until = row.healed_s;
    let through = |m: &MessageRow| {
        m.resolved_conn_id == row.conn_id && m.resolved_s.is_some_and(|at| cut_until.is_none_or(|heal| at < heal))
    };
    let waiting = ledger.iter().filter(|m| m.resolved_s.is_none_or(|resolved| resolved > cut) && !through(m));
    let Some((queued, oldest)) = waiting.filter_map(|m| Some((m.published_s?, m))).min_by_key(|(at, m)| (*at, m.id))
    else {
        return;
    };
    row.queued_s = Some(queued);
    row.resolved_s = oldest.resolved_s;
    row.stuck_s = oldest.latency_s;
    row.user_stuck_s = oldest.user_stuck_s;
    let by_reaper = oldest.reaped_s.is_some() && oldest.reaped_s == oldest.resolved_s;
    let by = if by_reaper { oldest.reaped_by.clone() } else { RECOVERY.to_string() };
    row.resolved_by = oldest.resolved_s.map(|_| by).unwrap_or_default();
}
