//! Many tasks and few trials, and stuck durations beside published ones.

use super::CellRows;
use super::build::by_frequency;
use super::sentences::{Name, plural};
use super::summary::{PublishedSummary, StuckBeside, Summary, TaskSummary};
use super::text::seconds;
use crate::plan::Plan;
use crate::stats::{Interval, plain_quantile, student_quantile};
use crate::timers::Watcher;
use crate::units::print_duration;
use crate::verdict::{Judged, TrialRow};
use std::time::Duration;

/// The tasks of a plan.
pub(super) fn tasks(plan: &Plan) -> Option<TaskSummary> {
    let tasks = plan.scenario.tasks.as_ref()?;
    // The same tasks for every arm.
    let affected = plan.scenario.arms.first().map_or(0, |arm| u64::from(arm.trials));
    Some(TaskSummary {
        count: tasks.count,
        over_s: tasks.over.as_secs_f64(),
        affected,
        healthy: tasks.count.saturating_sub(affected),
        half_open: tasks.half_open,
    })
}

/// The published distribution with the same numbers of each cell.
pub(super) fn published(plan: &Plan, judged: &Judged, cells: &[CellRows]) -> Option<PublishedSummary> {
    let published = plan.scenario.published.as_ref()?;
    let (from_s, to_s) = (published.from.as_secs_f64(), published.to.as_secs_f64());
    let here = cells.iter().map(|cell| {
        let (arm, fault) = (&plan.scenario.arms[cell.arm], &plan.scenario.faults[cell.fault]);
        let rows: Vec<&TrialRow> = cell.rows.iter().map(|i| &judged.trials[*i]).collect();
        let stuck: Vec<f64> = rows.iter().filter_map(|r| r.stuck_s).map(|s| s.as_secs()).collect();
        let within = stuck.iter().filter(|s| (from_s..=to_s).contains(*s)).count();
        let over_all = |sum: f64| (!stuck.is_empty()).then(|| sum / stuck.len() as f64);
        StuckBeside {
            arm: arm.name.clone(),
            fault: fault.name().to_string(),
            scope: fault.reach().to_string(),
            n: stuck.len(),
            mean_s: over_all(stuck.iter().sum()),
            median_s: plain_quantile(&stuck, 0.5),
            share: over_all(within as f64),
            above_s: difference(&stuck, published.mean.as_secs_f64()),
            resolved_by: by_frequency(rows.iter().map(|r| r.resolved_by.as_str()).filter(|by| !by.is_empty())),
        }
    });
    Some(PublishedSummary {
        mean_s: published.mean.as_secs_f64(),
        median_s: published.median.as_secs_f64(),
        from_s,
        to_s,
        share: published.share,
        here: here.collect(),
    })
}

/// The mean of these durations minus a published one, as an interval of 95 % (Student's). How many durations were published is
/// not known, so theirs counts as exact.
fn difference(stuck: &[f64], published_s: f64) -> Option<Interval> {
    let n = stuck.len();
    if n < 2 {
        return None;
    }
    let mean = stuck.iter().sum::<f64>() / n as f64;
    let variance = stuck.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let half = student_quantile(0.975, (n - 1) as f64) * (variance / n as f64).sqrt();
    Some(Interval { lo: mean - published_s - half, hi: mean - published_s + half })
}

/// What the rule for queued rows can't have done, whatever its durations are.
const NOT_ITS: &str = "The rule behind these durations fails *queued* rows alone. A row that was *running*, as the one that was quoted \
                       with the published figures, is another watcher's, the task heartbeat's, which ends it within its threshold \
                       and a check (300 s and 10 s by default): no timeout of queued rows explains such a one.";

/// `3 of 200000 tasks in 30d met the fault …`, then a sentence a cell.
pub(super) fn lines(summary: &Summary, name: Name<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(t) = summary.tasks {
        lines.push(format!(
            "{} of {} in {} met the fault, in every arm the same ones ({:.1} were expected); the other {} are healthy: \
             counted, not simulated.",
            t.affected,
            plural(usize::try_from(t.count).unwrap_or(usize::MAX), "task"),
            print_duration(Duration::from_secs_f64(t.over_s)),
            t.count as f64 * t.half_open,
            t.healthy,
        ));
    }
    let Some(p) = &summary.published else { return lines };
    for here in &p.here {
        let cell = format!("{} under {} ({})", name(&here.arm), name(&here.fault), here.scope);
        let (Some(mean), Some(median), Some(share)) = (here.mean_s, here.median_s, here.share) else {
            lines.push(format!("Stuck, {cell}: nothing that ended; published: mean {:.1} s.", p.mean_s));
            continue;
        };
        let by: Vec<String> = here.resolved_by.iter().map(|c| format!("{} {}", name(&c.name), c.n)).collect();
        let differs = mean - p.mean_s;
        let way = if differs < 0.0 { "below" } else { "above" };
        let interval = here.above_s.map_or_else(String::new, |i| {
            let none = if i.lo <= 0.0 && i.hi >= 0.0 { ", so none may be" } else { "" };
            format!(" (95 % interval of the difference {:+.1} to {:+.1} s{none})", i.lo, i.hi)
        });
        lines.push(format!(
            "Stuck, {cell}: mean {mean:.1} s, median {median:.1} s, {:.0} % in {:.0}–{:.0} s (n = {}; ended by {}); published: \
             mean {:.1} s, median {:.1} s, at least {:.0} %. The mean here is {} s {way} the published one{interval}.",
            share * 100.0,
            p.from_s,
            p.to_s,
            here.n,
            by.join(", "),
            p.mean_s,
            p.median_s,
            p.share * 100.0,
            seconds(differs.abs()),
        ));
    }
    if p.here.iter().any(|h| h.resolved_by.iter().any(|by| by.name == Watcher::QueuedTimeout.name())) {
        lines.push(NOT_ITS.to_string());
    }
    lines
}
