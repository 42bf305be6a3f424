//! Which numbers the pictures show.

use super::super::build::{is_certified, observation, stuck_observation};
use super::super::document::AS_IT_IS;
use super::super::lives::Life;
use super::super::picture::curves::{Curves, Deadline, Strip};
use super::super::picture::{Picture, trials};
use super::super::sentences;
use super::super::summary::CellSummary;
use super::super::text::plain;
use super::super::{CellRows, Report};
use crate::scenario::ReaperGeneration;
use crate::stats::{Observation, Spread};
use crate::verdict::TrialRow;

pub(super) const TTD_CAPTION: &str = "Share of the trials that had noticed, over the time since the cut (product-limit \
    curves), with its 95 % band. Each rise has the colour of the watcher that told the client.";
pub(super) const STUCK_CAPTION: &str = "Share of the trials whose oldest stuck message was resolved, over the time since \
    it was published, with its 95 % band. Each rise has the colour of who resolved it.";

/// All pictures of a run in their wide form.
pub(in crate::report) fn pictures(report: &Report) -> Vec<Picture> {
    let curves = [ttd(report), stuck(report)].into_iter().flatten().map(|c| c.draw(false));
    let single = (!report.lives.is_empty()).then(|| trials::draw(&report.lives, false));
    curves.chain(single).collect()
}

/// Single trials, wide and narrow.
pub(super) fn lives(lives: &[Life]) -> (Picture, Picture) {
    (trials::draw(lives, false), trials::draw(lives, true))
}

/// Times to detect; `None` where nothing was to be cut.
pub(super) fn ttd(report: &Report) -> Option<Curves> {
    let strips = strips(
        report,
        |row| is_certified(row).then(|| (observation(row, row.ttd_s), row.watcher.as_str())),
        |c| (c.ttd, sentences::watchers(c, AS_IT_IS), c.predicted.map(|p| (p.lo_s, p.hi_s))),
    );
    let only_controls = !report.summary.cells.is_empty() && report.summary.cells.iter().all(|c| c.control);
    (!only_controls).then(|| Curves {
        id: "ttd",
        title: "Time to detect: the share of trials that had noticed".to_string(),
        axis: "seconds since the cut",
        verb: "noticed",
        horizon_s: report.summary.scenario.horizon_s,
        strips,
        deadlines: reaper(report).collect(),
    })
}

/// Stuck durations; `None` where no message flowed.
pub(super) fn stuck(report: &Report) -> Option<Curves> {
    if report.summary.cells.iter().all(|c| c.stuck.is_none()) {
        return None;
    }
    let strips = strips(
        report,
        |row| {
            let observed = stuck_observation(row).filter(|_| is_certified(row))?;
            Some((observed, row.resolved_by.as_str()))
        },
        |c| (c.stuck.unwrap_or_default(), String::new(), None),
    );
    let published = report.summary.published.as_ref().map(|p| {
        let share = format!("published: at least {:.0} % in", p.share * 100.0);
        Deadline { label: share, watcher: None, from_s: p.from_s, to_s: p.to_s }
    });
    Some(Curves {
        id: "stuck",
        title: "Stuck durations: the share of trials whose oldest message was resolved".to_string(),
        axis: "seconds since the message was published",
        verb: "resolved",
        horizon_s: report.summary.scenario.horizon_s,
        strips,
        deadlines: reaper(report).chain(published).collect(),
    })
}

type Numbers = (Spread, String, Option<(Option<f64>, Option<f64>)>);

/// One strip a cell that is cut, with the points that a row gives.
fn strips<'r>(
    report: &'r Report,
    point: impl Fn(&'r TrialRow) -> Option<(Observation, &'r str)>,
    numbers: impl Fn(&CellSummary) -> Numbers,
) -> Vec<Strip> {
    let cut = || report.cells.iter().zip(&report.summary.cells).filter(|(_, c)| !c.control);
    let mut faults = cut().map(|(_, c)| (&c.fault, &c.scope));
    let first = faults.next();
    let several = faults.any(|f| Some(f) != first);
    let strip = |(rows, cell): (&CellRows, &CellSummary)| {
        let points: Vec<(Observation, String)> = rows
            .rows
            .iter()
            .filter_map(|i| point(&report.judged.trials[*i]))
            .map(|(o, who)| (o, if o.happened { who.to_string() } else { String::new() }))
            .collect();
        let (spread, who, predicted) = numbers(cell);
        Strip {
            arm: plain(&cell.arm),
            fault: if several { sentences::fault(cell, AS_IT_IS) } else { String::new() },
            who: if who.is_empty() { named(&points) } else { who },
            points,
            spread,
            predicted,
        }
    };
    cut().map(strip).collect()
}

/// Who brought events about: `recovery`, or `recovery 18, queued_timeout 7`.
fn named(points: &[(Observation, String)]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (_, who) in points.iter().filter(|(o, _)| o.happened) {
        match counts.iter_mut().find(|(name, _)| name == who) {
            Some(count) => count.1 += 1,
            None => counts.push((who.clone(), 1)),
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    match counts.as_slice() {
        [(only, _)] => sentences::known(only),
        several => {
            let each: Vec<String> = several.iter().map(|(name, n)| format!("{} {n}", sentences::known(name))).collect();
            each.join(", ")
        }
    }
}

/// When the fallback acts on work that was handed over at the cut: from its timeout on, at its next look. A generation
/// that queues the work again twice does so three times over.
fn reaper(report: &Report) -> impl Iterator<Item = Deadline> {
    report.reaper.iter().map(|r| {
        let rounds = match r.generation {
            ReaperGeneration::FailsAtOnce => 1.0,
            ReaperGeneration::RequeuesTwice => 3.0,
        };
        Deadline {
            label: "reaper, queued_timeout:".to_string(),
            watcher: Some("queued_timeout"),
            from_s: rounds * r.timeout.as_secs_f64(),
            to_s: rounds * (r.timeout + r.interval).as_secs_f64(),
        }
    })
}
