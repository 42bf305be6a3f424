//! The ledger of the numbered messages, and how long the oldest of them was stuck.

use super::timeline::Timeline;
use super::trial::{Case, span};
use super::{MessageRow, TrialRow};
use crate::events::{Event, Kind};
use crate::scenario::SubjectKind;
use crate::units::Offset;
use std::collections::BTreeMap;

/// Who resolved a message that reached a consumer again.
const RECOVERY: &str = "recovery";

/// One row a message of the trial. Events in canonical order.
pub(super) fn ledger(case: &Case<'_>, events: &[&Event], t: &Timeline) -> Vec<MessageRow> {
    let last = t.ended.map_or(Offset(i64::MAX), |(at, _)| at);
    let mut rows: BTreeMap<u64, MessageRow> = BTreeMap::new();
    for event in events.iter().filter(|e| e.offset <= last) {
        let at = event.offset;
        let Some(id) = message_of(&event.kind) else { continue };
        let row = rows.entry(id).or_insert_with(|| MessageRow { trial: case.trial.id, id, ..MessageRow::default() });
        match &event.kind {
            Kind::Published { .. } | Kind::Sent { .. } => _ = row.published_s.get_or_insert(at),
            Kind::Confirmed { .. } => _ = row.confirmed_s.get_or_insert(at),
            Kind::Acked { .. } => _ = row.acked_s.get_or_insert(at),
            Kind::Delivered { redelivered, .. } => {
                row.delivered_s.get_or_insert(at);
                row.delivered_n += 1;
                row.redelivered_n += u64::from(*redelivered);
            }
            Kind::Reaped { rule, .. } if row.reaped_s.is_none() => {
                (row.reaped_s, row.reaped_by) = (Some(at), rule.clone());
            }
            Kind::PeerReceived { .. } | Kind::Effect { .. } => {
                row.delivered_s.get_or_insert(at);
                row.delivered_n += 1;
            }
            _ => {}
        }
    }
    let acknowledges = case.arm.settings.subject == SubjectKind::Lapin && case.arm.settings.ack.is_some();
    for row in rows.values_mut() {
        let consumed = if acknowledges { row.acked_s } else { row.delivered_s };
        row.resolved_s = [consumed, row.reaped_s].into_iter().flatten().min();
        row.latency_s = row.resolved_s.zip(row.published_s).map(|(resolved, published)| span(resolved, published));
    }
    rows.into_values().collect()
}

fn message_of(kind: &Kind) -> Option<u64> {
    match kind {
        Kind::Delivered { message, .. }
        | Kind::Acked { message, .. }
        | Kind::Sent { message, .. }
        | Kind::Published { message }
        | Kind::Reaped { message, .. }
        | Kind::Effect { message }
        | Kind::Confirmed { message }
        | Kind::PeerReceived { message } => Some(*message),
        _ => None,
    }
}

/// Fills the stuck columns: the oldest message that was unresolved at the cut or published after it.
pub(super) fn stuck(row: &mut TrialRow, ledger: &[MessageRow], cut: Offset) {
    let waiting = ledger.iter().filter(|m| m.resolved_s.is_none_or(|resolved| resolved > cut));
    let Some((queued, oldest)) = waiting.filter_map(|m| Some((m.published_s?, m))).min_by_key(|(at, m)| (*at, m.id))
    else {
        return;
    };
    row.queued_s = Some(queued);
    row.resolved_s = oldest.resolved_s;
    row.stuck_s = oldest.latency_s;
    let by_reaper = oldest.reaped_s.is_some() && oldest.reaped_s == oldest.resolved_s;
    let by = if by_reaper { oldest.reaped_by.clone() } else { RECOVERY.to_string() };
    row.resolved_by = oldest.resolved_s.map(|_| by).unwrap_or_default();
}
