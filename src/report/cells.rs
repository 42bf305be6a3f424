//! The table of cells, arm × fault: its columns for a page, and fewer of them for a terminal.

use super::sentences::{Name, fault, outcomes, watchers, window};
use super::summary::{CellSummary, Counts, Summary};
use super::text::{NOTHING, quantile};
use crate::stats::Spread;

/// A header, and a row for each cell.
pub(super) type Rows = (Vec<&'static str>, Vec<Vec<String>>);

/// The column of a terminal that should stay on one line.
pub(super) const TTD: &str = "TTD s: min / median / p99 / max";

/// Trials by outcome.
pub(super) const OUTCOME: &str = "outcome";

/// Who fired.
pub(super) const NOTICED_BY: &str = "noticed by";

type Show = Box<dyn Fn(&CellSummary, Name<'_>) -> String>;

/// All columns; those of a model only where there is one, those of rare outcomes only where there are any.
pub(super) fn for_page(summary: &Summary, name: Name<'_>) -> Rows {
    let any = |n: fn(&Counts) -> usize| summary.cells.iter().any(|c| n(&c.counts) > 0);
    let mut columns: Vec<(&'static str, Show)> = head();
    columns.push(count("detected", |c| c.detected));
    columns.push(count("censored", |c| c.censored));
    if any(|c| c.survived) {
        columns.push(count("survived", |c| c.survived));
    }
    if any(|c| c.subject_exited) {
        columns.push(count("exited", |c| c.subject_exited));
    }
    if summary.cells.iter().any(|c| c.client_exited.is_some_and(|n| n > 0)) {
        let died = |c: &CellSummary, _: Name<'_>| c.client_exited.map_or(NOTHING.to_string(), |n| n.to_string());
        columns.push(("client ended", Box::new(died)));
    }
    columns.push(count("void", |c| c.void));
    columns.push(count("false alarms", |c| c.false_alarm));
    columns.push(("TTD min s", Box::new(|c, _| quantile(&c.ttd, c.ttd.min_s))));
    columns.push(("median", Box::new(|c, _| quantile(&c.ttd, c.ttd.median_s))));
    columns.push(("p99", Box::new(|c, _| quantile(&c.ttd, c.ttd.p99_s))));
    columns.push(("max", Box::new(|c, _| quantile(&c.ttd, c.ttd.max_s))));
    columns.extend(tail(summary));
    rows(summary, &columns, name)
}

/// The same numbers in as few columns as they can be read in.
pub(super) fn for_terminal(summary: &Summary, name: Name<'_>) -> Rows {
    let mut columns: Vec<(&'static str, Show)> = head();
    columns.push((OUTCOME, Box::new(|c, _| outcomes(&c.counts))));
    columns.push((TTD, Box::new(|c, _| in_one(&c.ttd))));
    columns.extend(tail(summary));
    rows(summary, &columns, name)
}

fn head() -> Vec<(&'static str, Show)> {
    vec![("arm", Box::new(|c, name| name(&c.arm))), ("fault", Box::new(fault)), count("n", |c| c.trials)]
}

fn tail(summary: &Summary) -> Vec<(&'static str, Show)> {
    let mut columns: Vec<(&'static str, Show)> =
        vec![(NOTICED_BY, Box::new(watchers)), ("TTR median s", Box::new(|c, _| quantile(&c.ttr, c.ttr.median_s)))];
    if summary.cells.iter().any(|c| c.predicted.is_some()) {
        columns.push(("predicted s", Box::new(|c, _| window(c))));
        let agree = |c: &CellSummary, _: Name<'_>| {
            c.predicted.map_or_else(|| NOTHING.to_string(), |p| format!("{} of {}", p.agree, p.n))
        };
        columns.push(("agree", Box::new(agree)));
        let watcher = |c: &CellSummary, _: Name<'_>| {
            c.predicted.map_or_else(|| NOTHING.to_string(), |p| format!("{} of {}", p.watcher_agree, p.watcher_n))
        };
        columns.push(("watcher agrees", Box::new(watcher)));
    }
    columns
}

fn count(title: &'static str, n: fn(&Counts) -> usize) -> (&'static str, Show) {
    (title, Box::new(move |c, _| n(&c.counts).to_string()))
}

/// Four quantiles in one cell; those after the first that is not reached are not reached either.
fn in_one(spread: &Spread) -> String {
    let values = [spread.min_s, spread.median_s, spread.p99_s, spread.max_s];
    let mut shown: Vec<String> = values.iter().map(|value| quantile(spread, *value)).collect();
    let reached = values.iter().take_while(|v| v.is_some()).count();
    shown.truncate(reached + 1);
    shown.join(" / ")
}

fn rows(summary: &Summary, columns: &[(&'static str, Show)], name: Name<'_>) -> Rows {
    let header = columns.iter().map(|(title, _)| *title).collect();
    let row = |cell: &CellSummary| columns.iter().map(|(_, show)| show(cell, name)).collect();
    (header, summary.cells.iter().map(row).collect())
}
