//! Who fired and who stayed silent: watchers × arms and faults, with what the model said of each beforehand.

use super::CellRows;
use super::document::{AS_IT_IS, Block, Cell, Section, Table};
use super::sentences;
use super::summary::{CellSummary, Summary};
use super::text::{NOTHING, plain, seconds};
use crate::plan::{Outlook, Outlooks, Plan};
use crate::timers::{OFF, Side, Watcher, WatcherState};
use crate::verdict::{Judged, Outcome, TrialRow};
use serde::Serialize;

/// One watcher under one arm and fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatcherSummary {
    /// Its name.
    pub watcher: String,
    /// Trials in which it was the first to tell the subject; of a watcher elsewhere, those in which it fired.
    pub fired: usize,
    /// What the model said: `fires`, `later`, `never_armed`, `never_triggered`, `suspended`, `defeated`,
    /// `fired_not_acted_on`. `None` without a prediction.
    pub predicted: Option<String>,
    /// Why, in one sentence; `None` without a prediction.
    pub why: Option<String>,
    /// The predicted window; `None` where it does not fire, or is not predicted.
    pub lo_s: Option<f64>,
    /// Its end; `None` is "perhaps never".
    pub hi_s: Option<f64>,
}

/// The watchers of a cell that fired or that the model knows something of, in the order of tables.
pub(super) fn watchers(plan: &Plan, judged: &Judged, cell: &CellRows) -> Vec<WatcherSummary> {
    let own = |o: &&Outlooks| o.arm == cell.arm && o.fault == cell.fault;
    let known: Option<&[Outlook]> = plan.outlooks.iter().find(own).map(|o| o.watchers.as_slice());
    let rows = || cell.rows.iter().map(|i| &judged.trials[*i]).filter(|r| r.outcome != Outcome::Void);
    let one = |watcher: &Watcher| {
        let name = watcher.name();
        let by = |r: &TrialRow| match watcher.side() {
            Side::Subject => r.watcher == name,
            Side::Broker => r.watcher == name || r.broker_watcher == name,
            Side::Reaper => r.watcher == name || r.resolved_by == name,
        };
        let fired = rows().filter(|r| by(r)).count();
        let outlook = known.and_then(|list| list.iter().find(|o| o.watcher == *watcher));
        // One that is in no list is off; without a list nothing is known.
        let predicted = match (outlook, known) {
            (Some(o), _) => Some(state(o.state)),
            (None, Some(_)) => Some(state(WatcherState::NeverArmed)),
            (None, None) => None,
        };
        (fired > 0 || outlook.is_some()).then(|| WatcherSummary {
            watcher: name.to_string(),
            fired,
            predicted: predicted.map(String::from),
            why: outlook.map(|o| o.why.clone()).or_else(|| predicted.map(|_| OFF.to_string())),
            lo_s: outlook.and_then(|o| o.lo_s),
            hi_s: outlook.and_then(|o| o.hi_s),
        })
    };
    Watcher::ALL.iter().filter(|w| **w != Watcher::None).filter_map(one).collect()
}

/// The name of a state, as `predict --json` has it.
fn state(state: WatcherState) -> &'static str {
    match state {
        WatcherState::Fires => "fires",
        WatcherState::Later => "later",
        WatcherState::NeverArmed => "never_armed",
        WatcherState::NeverTriggered => "never_triggered",
        WatcherState::Suspended => "suspended",
        WatcherState::Defeated => "defeated",
        WatcherState::FiredNotActedOn => "fired_not_acted_on",
    }
}

/// The matrix and the reasons. Without a cut and without a fired watcher there is nothing to tell.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let cells: Vec<&CellSummary> = summary.cells.iter().filter(|c| !c.control || !c.outlooks.is_empty()).collect();
    // One that is off or not triggered everywhere says nothing in a matrix; its reason stands below.
    let idle = |o: &WatcherSummary| matches!(o.predicted.as_deref(), None | Some("never_armed" | "never_triggered"));
    let in_play = |w: &&Watcher| {
        let is = |o: &WatcherSummary| o.watcher == w.name() && (o.fired > 0 || !idle(o));
        cells.iter().any(|c| c.outlooks.iter().any(is))
    };
    let columns: Vec<&'static str> = Watcher::ALL.iter().filter(in_play).map(|w| w.name()).collect();
    if columns.is_empty() {
        return None;
    }
    let unknown = cells.iter().any(|c| c.watchers.iter().any(|w| w.name.is_empty()));
    let mut header = vec!["arm", "fault", "n"];
    header.extend(&columns);
    header.extend(unknown.then_some("unknown"));
    let row = |c: &&CellSummary| {
        let n = c.counts.trials - c.counts.void;
        let mut row: Vec<Cell> = vec![plain(&c.arm).into(), sentences::fault(c, AS_IT_IS).into(), n.to_string().into()];
        row.extend(columns.iter().map(|name| shown(c, name, summary.scenario.horizon_s)));
        if unknown {
            let n = c.watchers.iter().find(|w| w.name.is_empty()).map_or(0, |w| w.n);
            row.push(if n > 0 { Cell::new(format!("fired {n}"), "fired") } else { NOTHING.to_string().into() });
        }
        row
    };
    let matrix = Table { header, rows: cells.iter().map(row).collect() };
    let note: &[&str] = &[
        "",
        "Fired",
        " counts trials: those in which it was the first to tell the client, or, of a broker or a reaper, in which it \
         acted at all. The other words are the model's, from before the run: ",
        "later",
        " somebody else is earlier, ",
        "off",
        " not set, ",
        "not triggered",
        " its condition is not met, ",
        "suspended",
        " the connection's state keeps it from looking, ",
        "defeated",
        " something keeps it alive or keeps it from running.",
    ];
    let mut blocks = vec![Block::Table(matrix), Block::Note(note)];
    let reasons = reasons(&cells, &columns);
    if !reasons.is_empty() {
        let header = vec!["watcher", "predicted", "why", "where"];
        blocks.push(Block::More("Why each of them fires or stays silent", Table { header, rows: reasons }));
    }
    Some(Section { id: "watchers", title: "Who fired and who stayed silent", blocks })
}

fn shown(cell: &CellSummary, name: &str, horizon_s: f64) -> Cell {
    let Some(o) = cell.outlooks.iter().find(|o| o.watcher == name) else {
        let predicted = cell.outlooks.iter().any(|o| o.predicted.is_some());
        return if predicted { Cell::new("off".into(), "off") } else { NOTHING.to_string().into() };
    };
    if o.fired > 0 {
        return Cell::new(format!("fired {}", o.fired), "fired");
    }
    match o.predicted.as_deref() {
        Some("fires") if o.lo_s.is_some_and(|lo| lo > horizon_s) => Cell::new("after the horizon".into(), "off"),
        Some("fires") => Cell::new("could have".into(), "silent"),
        Some("later") => Cell::new("later".into(), "silent"),
        Some("never_armed") => Cell::new("off".into(), "off"),
        Some("never_triggered") => Cell::new("not triggered".into(), "silent"),
        Some("fired_not_acted_on") => Cell::new("not acted on".into(), "defeated"),
        Some(other) => Cell::new(other.to_string(), "defeated"),
        None => NOTHING.to_string().into(),
    }
}

/// As many arms are named in one line of the reasons.
const NAMED: usize = 6;

/// One line for each thing that is said of a watcher, with all cells that it is said of.
fn reasons(cells: &[&CellSummary], columns: &[&str]) -> Vec<Vec<Cell>> {
    let mut lines: Vec<(String, String, String, Vec<String>)> = Vec::new();
    let several = cells.iter().any(|c| (&c.fault, &c.scope) != (&cells[0].fault, &cells[0].scope));
    for watcher in Watcher::ALL {
        let from = lines.len();
        for cell in cells {
            let Some(o) = cell.outlooks.iter().find(|o| o.watcher == watcher.name()) else { continue };
            let (Some(predicted), Some(why)) = (&o.predicted, &o.why) else { continue };
            // Each `off` of the matrix has its reason; a watcher that is off everywhere is not in it.
            if why == OFF || (predicted == "never_armed" && !columns.contains(&watcher.name())) {
                continue;
            }
            let said = match (predicted.as_str(), o.lo_s, o.hi_s) {
                ("fires" | "later", Some(lo), Some(hi)) => format!("{predicted}, {} to {} s", seconds(lo), seconds(hi)),
                ("fires" | "later", Some(lo), None) => format!("{predicted}, from {} s, perhaps never", seconds(lo)),
                _ => predicted.replace('_', " "),
            };
            let place = match several {
                true => format!("{} under {}", plain(&cell.arm), sentences::fault(cell, AS_IT_IS)),
                false => plain(&cell.arm),
            };
            let same = |l: &&mut (String, String, String, Vec<String>)| l.1 == said && l.2 == *why;
            match lines[from..].iter_mut().find(same) {
                Some(line) => line.3.push(place),
                None => lines.push((watcher.name().to_string(), said, why.clone(), vec![place])),
            }
        }
    }
    let shown = |(watcher, said, why, places): (String, String, String, Vec<String>)| {
        let more = places.len().saturating_sub(NAMED);
        let mut where_ = places.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        if more > 0 {
            where_.push_str(&format!(" and {more} more"));
        }
        vec![watcher.into(), said.into(), plain(&why).into(), where_.into()]
    };
    lines.into_iter().map(shown).collect()
}
