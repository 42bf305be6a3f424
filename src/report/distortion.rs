//! What a cut that is not in the path does to a measurement: each way to make it beside the faithful one, and the factor.

use super::document::{Block, Section, Table};
use super::sentences::Name;
use super::summary::{CellSummary, DistortionLine, Summary};
use super::text::{NOTHING, plain, seconds};
use crate::plan::Plan;
use crate::scenario::{Fault, Scenario};

/// The faults whose cut is distorted, by name, each with the way in which it is made.
pub(super) fn labels(scenario: &Scenario) -> Vec<String> {
    let distorted = scenario.faults.iter().filter(|fault| !fault.injection.is_faithful());
    distorted.map(|fault| format!("{}: {}", fault.name(), fault.injection.words())).collect()
}

/// Each cell of a run with distorted cuts, beside the cell of the same arm whose cut is in the path.
pub(super) fn lines(plan: &Plan, cells: &[CellSummary]) -> Vec<DistortionLine> {
    let faults = &plan.scenario.faults;
    if faults.iter().all(|fault| fault.injection.is_faithful()) {
        return Vec::new();
    }
    let of = |cell: &CellSummary| faults.iter().find(|f| f.name() == cell.fault && f.reach() == cell.scope);
    let faithful = |fault: &Fault| fault.injection.is_faithful() && fault.profile == "blackhole";
    let horizon_s = plan.scenario.horizon.as_secs_f64();
    let line = |cell: &CellSummary| {
        let fault = of(cell).filter(|fault| !fault.is_control())?;
        let reference = cells.iter().find(|c| c.arm == cell.arm && of(c).is_some_and(faithful))?;
        let (median_s, reference_s) = (cell.ttd.median_s, reference.ttd.median_s);
        // Where most trials are censored the time is longer than the horizon, and the factor larger than that.
        let known_s = median_s.or((cell.ttd.n > 0).then_some(horizon_s));
        Some(DistortionLine {
            arm: cell.arm.clone(),
            fault: cell.fault.clone(),
            how: fault.act.map_or(fault.injection.words(), |act| act.words()).to_string(),
            distorted: !fault.injection.is_faithful(),
            n: cell.ttd.n,
            median_s,
            faithful_s: reference_s,
            factor: known_s.zip(reference_s.filter(|s| *s > 0.0)).map(|(own, reference)| own / reference),
            at_least: median_s.is_none(),
            watchers: cell.watchers.iter().map(|watcher| watcher.name.clone()).collect(),
        })
    };
    cells.iter().filter_map(line).collect()
}

/// A sentence for the first lines of a report; none where every cut is in the path.
pub(super) fn label(summary: &Summary, name: Name<'_>) -> Option<String> {
    let all: Vec<String> = summary.distorted.iter().map(|text| name(text)).collect();
    (!all.is_empty()).then(|| {
        format!("DISTORTED, by --allow-distorted: what these measure is no half-open connection: {}.", all.join("; "))
    })
}

fn factor(line: &DistortionLine) -> String {
    match line.factor {
        None => NOTHING.to_string(),
        Some(factor) if line.at_least => format!("> {factor:.1}"),
        Some(factor) if factor < 0.095 => format!("{factor:.3}"),
        Some(factor) => format!("{factor:.2}"),
    }
}

fn median(line: &DistortionLine, horizon_s: f64) -> String {
    match line.median_s {
        Some(median) => seconds(median),
        None if line.n > 0 => format!("> {}", seconds(horizon_s)),
        None => NOTHING.to_string(),
    }
}

/// For the terminal, a line a cell.
pub(super) fn sentences(summary: &Summary, name: Name<'_>) -> Vec<String> {
    let line = |line: &DistortionLine| {
        format!(
            "factor {:>7}: {} under {}: {} s at the median, faithful {} s ({})",
            factor(line),
            name(&line.arm),
            name(&line.fault),
            median(line, summary.scenario.horizon_s),
            line.faithful_s.map_or_else(|| NOTHING.to_string(), seconds),
            name(&line.how),
        )
    };
    label(summary, name).into_iter().chain(summary.distortion.iter().map(line)).collect()
}

/// The table.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let row = |line: &DistortionLine| {
        vec![
            plain(&line.arm),
            plain(&line.fault),
            plain(&line.how),
            median(line, summary.scenario.horizon_s),
            line.faithful_s.map_or_else(|| NOTHING.to_string(), seconds),
            factor(line),
            plain(&line.watchers.join(", ")),
        ]
    };
    let rows: Vec<_> = summary.distortion.iter().map(row).collect();
    let header = ["arm", "fault", "how the cut is made", "median s", "faithful s", "factor", "noticed by"];
    let note: &[&str] = &[
        "Times from the cut. ",
        "Faithful",
        " is the same arm cut in the router, between the hosts. A factor of 1 is no distortion; one with ",
        ">",
        " is of trials that nobody noticed within the horizon. What the certificate proves of a distorted cut: of one on the \
         subject's own side, that nothing of it came as far as the router; of one that answers, that nothing but answers passed.",
    ];
    let some = !rows.is_empty();
    let blocks = vec![Block::Table(Table::new(&header, rows)), Block::Note(note)];
    some.then_some(Section { id: "distortion", title: "Distortion", blocks })
}
