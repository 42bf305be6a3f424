//! What became of the messages: numbers for the summary, and the words and tables that show them.

use super::document::{AS_IT_IS, Block, Section, Table};
use super::sentences::{self, Name, plural};
use super::summary::{AnomalyCount, LedgerSummary, Summary};
use super::text::plain;
use crate::ledger::{Account, AnomalyKind, Fate, MessageId};
use crate::units::TrialId;
use std::collections::BTreeSet;

/// How many messages of an anomaly are named in a summary.
const NAMED: usize = 20;

/// The ledger of some trials; `None` where no message was published or seen.
pub(super) fn of(account: &Account, trials: &BTreeSet<TrialId>) -> Option<LedgerSummary> {
    let own = |id: &MessageId| trials.contains(&id.trial);
    let n = |fate: Fate| account.fates.iter().filter(|(id, f)| own(id) && **f == fate).count();
    let count = |kind: AnomalyKind| {
        let of_kind: Vec<_> = account.anomalies.iter().filter(|a| a.kind == kind && own(&a.id)).collect();
        let ids: Vec<String> = of_kind.iter().take(NAMED).map(|a| a.id.to_string()).collect();
        let example = of_kind.first().map(|a| a.why.clone())?;
        Some(AnomalyCount { kind: kind.name().to_string(), n: of_kind.len(), ids, example })
    };
    let ledger = LedgerSummary {
        published: account.fates.keys().filter(|id| own(id)).count(),
        done: n(Fate::Done),
        failed: n(Fate::Failed),
        lost: n(Fate::Lost),
        waiting: n(Fate::Waiting),
        refused: n(Fate::Refused),
        unconfirmed: n(Fate::Unconfirmed),
        anomalies: AnomalyKind::ALL.into_iter().filter_map(count).collect(),
    };
    (ledger.published > 0 || !ledger.anomalies.is_empty()).then_some(ledger)
}

/// `Ledger: 960 messages published: 950 done, 6 failed …`, then a line for each anomaly of each cell.
pub(super) fn lines(summary: &Summary, name: Name<'_>) -> Vec<String> {
    let Some(all) = &summary.ledger else { return Vec::new() };
    let mut lines = vec![format!("Ledger: {} published: {}.", plural(all.published, "message"), fates(all))];
    for cell in &summary.cells {
        for anomaly in cell.ledger.iter().flat_map(|l| &l.anomalies) {
            let (n, kind) = (anomaly.n, words(&anomaly.kind));
            let cell = format!("{} under {}", name(&cell.arm), sentences::fault(cell, name));
            lines.push(format!("{n} {kind}, {cell}: {}.", ids(anomaly)));
        }
    }
    lines
}

/// The fates that occurred.
fn fates(ledger: &LedgerSummary) -> String {
    let all = [
        (ledger.done, "done"),
        (ledger.failed, "failed by a reaper"),
        (ledger.lost, "lost"),
        (ledger.waiting, "waiting at the end"),
        (ledger.refused, "rejected and kept as dead letters"),
        (ledger.unconfirmed, "never confirmed"),
    ];
    let some: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(|(n, fate)| format!("{n} {fate}")).collect();
    if some.is_empty() { "nothing to tell".to_string() } else { some.join(", ") }
}

fn words(kind: &str) -> &'static str {
    match kind {
        "lost" => "lost",
        "duplicated_delivery" => "delivered more than once",
        "duplicated_effect" => "done more than once",
        "falsely_killed" => "falsely killed",
        "zombie" => "done and not everybody told",
        "out_of_order" => "out of order",
        "reaped_twice" => "reaped twice",
        "misrouted" => "out of another queue than its own",
        "second_task" => "done beside a second one that its user had asked for",
        _ => "with a record that contradicts itself",
    }
}

fn ids(anomaly: &AnomalyCount) -> String {
    let shown = anomaly.ids.join(", ");
    match anomaly.n.saturating_sub(anomaly.ids.len()) {
        0 => shown,
        more => format!("{shown} and {more} more (messages.csv)"),
    }
}

/// The table of fates and the table of what went wrong.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    summary.ledger.as_ref()?;
    let fates = |c: &super::CellSummary| {
        let l = c.ledger.as_ref()?;
        let mut row = vec![plain(&c.arm), sentences::fault(c, AS_IT_IS)];
        row.extend([l.published, l.done, l.failed, l.lost, l.waiting, l.refused, l.unconfirmed].map(|n| n.to_string()));
        Some(row)
    };
    let wrong = |c: &super::CellSummary| {
        let of = |a: &AnomalyCount| {
            let what = words(&a.kind).to_string();
            vec![plain(&c.arm), sentences::fault(c, AS_IT_IS), what, a.n.to_string(), ids(a), plain(&a.example)]
        };
        c.ledger.iter().flat_map(|l| &l.anomalies).map(of).collect::<Vec<_>>()
    };
    let header =
        ["arm", "fault", "published", "done", "failed by a reaper", "lost", "waiting", "refused", "unconfirmed"];
    let rows = summary.cells.iter().filter_map(fates).collect();
    let note: &[&str] = &[
        "Each message has one fate. ",
        "Waiting",
        " is: with the broker or in a worker's hands at the end of the watch, by what the record proves; ",
        "refused",
        " is: its consumers rejected it, and it is kept among the dead letters; ",
        "unconfirmed",
        " is: the broker never said that it had it.",
    ];
    let mut blocks = vec![Block::Table(Table::new(&header, rows)), Block::Note(note)];
    let rows: Vec<_> = summary.cells.iter().flat_map(wrong).collect();
    if rows.is_empty() {
        blocks.push(Block::List(vec![
            "The record shows nothing lost, done twice, killed in vain or left untold.".to_string(),
        ]));
    } else {
        blocks.push(Block::Table(Table::new(&["arm", "fault", "what went wrong", "n", "messages", "the first"], rows)));
    }
    Some(Section { id: "ledger", title: "Ledger", blocks })
}
