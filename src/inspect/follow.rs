//! Two inspections of one target, one after the other: what happened between them, as events. Pure.

use super::rows::{Inspection, Row};
use serde::Serialize;
use std::collections::BTreeMap;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A connection is there that was not, with what it is worth.
    Appeared {
        /// Which.
        connection: String,
        /// Its process.
        process: String,
        /// How bad a silent cut would be.
        risk: &'static str,
        /// How it looks.
        looks: &'static str,
    },
    /// A connection is gone.
    Gone {
        /// Which.
        connection: String,
        /// How it looked last.
        looked: &'static str,
    },
    /// It looks otherwise than before.
    Looks {
        /// Which.
        connection: String,
        /// Before.
        from: &'static str,
        /// Now.
        to: &'static str,
        /// Why, by its strongest suspicion.
        why: String,
    },
    /// A silent cut would be as bad as it was not before: an option or a deadline has changed.
    Risk {
        /// Which.
        connection: String,
        /// Before.
        from: &'static str,
        /// Now.
        to: &'static str,
    },
    /// A process ended.
    ProcessEnded {
        /// Which.
        pid: u32,
        /// Its name.
        name: String,
    },
}

/// What happened from one inspection to the next; the first has none before it.
#[must_use]
pub fn events(before: Option<&Inspection>, now: &Inspection) -> Vec<Event> {
    let by_id = |inspection: &Inspection| -> BTreeMap<(u64, String), Row> {
        inspection.rows.iter().map(|row| ((row.namespace, row.id.clone()), row.clone())).collect()
    };
    let old = before.map(by_id).unwrap_or_default();
    let new = by_id(now);
    let mut all = Vec::new();
    for (id, row) in &new {
        let Some(was) = old.get(id) else {
            all.push(Event::Appeared {
                connection: name(row),
                process: process(row),
                risk: row.risk.name(),
                looks: row.looks.name(),
            });
            continue;
        };
        if was.looks != row.looks {
            let why = row.suspicions.first().map_or("no suspicion is left", |s| s.why.as_str()).to_string();
            all.push(Event::Looks { connection: name(row), from: was.looks.name(), to: row.looks.name(), why });
        }
        if was.risk != row.risk {
            all.push(Event::Risk { connection: name(row), from: was.risk.name(), to: row.risk.name() });
        }
    }
    let gone = old.iter().filter(|(id, _)| !new.contains_key(*id));
    all.extend(gone.map(|(_, row)| Event::Gone { connection: name(row), looked: row.looks.name() }));
    let ended = now.ended.iter().filter(|e| before.is_none_or(|b| !b.ended.contains(e)));
    all.extend(ended.map(|e| Event::ProcessEnded { pid: e.pid, name: e.name.clone() }));
    all
}

fn name(row: &Row) -> String {
    format!("{}-{}", row.local, row.peer)
}

fn process(row: &Row) -> String {
    row.owner.as_ref().map_or_else(|| "?".to_string(), |owner| format!("{} {}", owner.pid, owner.name))
}
