//! Who made the stuck durations, by the durations alone: the same question that `halfopen attribute` answers for durations
//! from production, beside what the evidence of the run says.

use super::CellRows;
use super::document::{AS_IT_IS, Block, Section, Table};
use super::summary::Summary;
use super::text::{NOTHING, plain, seconds};
use crate::attribute::{Answer, Layer, Published, Sample, Timer, Verdict, answer_published, attribute, library};
use crate::plan::Plan;
use crate::scenario::ReaperGeneration;
use crate::verdict::{Judged, Outcome};
use serde::Serialize;

/// Fewer durations than this are no sample.
const FEWEST: usize = 5;

/// The attribution of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeSummary {
    /// The arm.
    pub arm: String,
    /// The fault profile.
    pub fault: String,
    /// `flow` or `host`.
    pub scope: String,
    /// Durations that ended.
    pub n: usize,
    /// Stalls without an end.
    pub unresolved: usize,
    /// `named`, `indistinguishable` or `unexplained`.
    pub verdict: Verdict,
    /// The timers, with how many of the durations each explains.
    pub timers: Vec<MadeBy>,
}

/// One timer of an attribution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeBy {
    /// Its short name.
    pub timer: String,
    /// Others that would have made the same durations.
    pub or: Vec<String>,
    /// How many it explains.
    pub k: usize,
    /// Their mean.
    pub mean_s: f64,
    /// The mean that it gives as it is set.
    pub nominal_mean_s: f64,
    /// The fitted period of its look; `None` where it has none.
    pub check_s: Option<f64>,
    /// The p-value of the fit; `None` where its spread is not predicted.
    pub fit_p: Option<f64>,
}

/// The fallback of a run as a timer.
fn reaper(plan: &Plan) -> Option<Timer> {
    let r = plan.scenario.reaper.as_ref()?;
    let (timeout, interval) = (r.timeout.as_secs_f64(), r.interval.as_secs_f64());
    let (lo_s, hi_s, check_s) = match r.generation {
        ReaperGeneration::FailsAtOnce => (timeout, timeout, interval),
        // Three rounds, whose phases hang together.
        ReaperGeneration::RequeuesTwice => (3.0 * timeout, 3.0 * (timeout + interval), 0.0),
    };
    Some(Timer {
        id: "queued_timeout".to_string(),
        layer: Layer::Scheduler,
        watcher: "queued_timeout".to_string(),
        lo_s,
        hi_s,
        check_s,
        name: "the reaper of this run".to_string(),
        says: "the reaper of this run ended these stalls".to_string(),
        source: "the scenario".to_string(),
        own: true,
    })
}

/// The timers that a run's durations are compared with.
fn timers(plan: &Plan) -> Vec<Timer> {
    reaper(plan).into_iter().chain(library()).collect()
}

/// Each cell that has a sample.
pub(super) fn cells(plan: &Plan, judged: &Judged, cells: &[CellRows]) -> Vec<MadeSummary> {
    let timers = timers(plan);
    let one = |cell: &CellRows| {
        let (arm, fault) = (&plan.scenario.arms[cell.arm], &plan.scenario.faults[cell.fault]);
        let rows = || cell.rows.iter().map(|i| &judged.trials[*i]).filter(|r| r.outcome != Outcome::Void);
        let ended: Vec<f64> = rows().filter_map(|r| r.stuck_s).map(|s| s.as_secs()).collect();
        let open = rows().filter(|r| r.queued_s.is_some() && r.stuck_s.is_none()).count();
        if fault.is_control() || ended.len() < FEWEST {
            return None;
        }
        let answer = attribute(&Sample::new(ended), &timers);
        Some(MadeSummary {
            arm: arm.name.clone(),
            fault: fault.name().to_string(),
            scope: fault.scope.name().to_string(),
            n: answer.sample.map_or(0, |s| s.n),
            unresolved: open,
            verdict: answer.verdict,
            timers: made_by(&answer),
        })
    };
    cells.iter().filter_map(one).collect()
}

fn made_by(answer: &Answer) -> Vec<MadeBy> {
    let one = |c: &crate::attribute::Component| MadeBy {
        timer: c.timer.id.clone(),
        or: c.alternatives.iter().map(|t| t.id.clone()).collect(),
        k: c.share.k,
        mean_s: c.mean_s,
        nominal_mean_s: c.nominal_mean_s,
        check_s: c.check.map(|check| check.check_s),
        fit_p: c.fit.map(|fit| fit.p),
    };
    answer.named.iter().map(one).collect()
}

/// What published figures say by themselves, in words.
pub(super) fn published(plan: &Plan) -> Vec<String> {
    let Some(p) = &plan.scenario.published else { return Vec::new() };
    let figures = Published {
        mean_s: Some(p.mean.as_secs_f64()),
        median_s: Some(p.median.as_secs_f64()),
        share: Some((p.share, p.from.as_secs_f64(), p.to.as_secs_f64())),
    };
    let answer = answer_published(figures, &library());
    answer.lines.into_iter().take(1).map(|line| format!("The published figures beside {}", line.words)).collect()
}

/// The table, and what the published figures say.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let none = || NOTHING.to_string();
    let mut rows = Vec::new();
    for made in &summary.attribution {
        let fault = format!("{} ({})", plain(&made.fault), plain(&made.scope));
        let lead = vec![plain(&made.arm), fault, made.n.to_string(), made.unresolved.to_string()];
        if made.timers.is_empty() {
            rows.push([lead.clone(), vec!["unexplained".to_string()], vec![none(); 5]].concat());
        }
        for by in &made.timers {
            let names: Vec<&str> = std::iter::once(by.timer.as_str()).chain(by.or.iter().map(String::as_str)).collect();
            let p = by.fit_p.map_or_else(none, |p| format!("{p:.3}"));
            let numbers = [
                by.k.to_string(),
                seconds(by.mean_s),
                seconds(by.nominal_mean_s),
                by.check_s.map_or_else(none, seconds),
                p,
            ];
            rows.push([lead.clone(), vec![plain(&names.join(" or "))], numbers.to_vec()].concat());
        }
    }
    if rows.is_empty() && summary.published_words.is_empty() {
        return None;
    }
    let header = [
        "arm",
        "fault",
        "n",
        "no end",
        "made by",
        "explains",
        "mean s",
        "nominal mean",
        "effective check",
        "p of the fit",
    ];
    let note: &[&str] = &[
        "By the durations alone, against the reaper of this run and the timers that stacks have by default, as ",
        "halfopen attribute",
        " does it for durations from production; who really ended them stands above. ",
        "Unexplained",
        " is what a message waited for that a returning consumer resolved at no fixed time, or a timer that so few durations \
         do not show.",
    ];
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::Table(Table::new(&header, rows)));
    }
    if !summary.published_words.is_empty() {
        blocks.push(Block::List(summary.published_words.iter().map(|text| AS_IT_IS(text)).collect()));
    }
    blocks.push(Block::Note(note));
    Some(Section { id: "made", title: "Which timer made the stuck durations", blocks })
}
