//! Single trials, told moment by moment: a few typical ones of each arm and fault, and the odd ones out.

use super::Report;
use super::looks;
use super::sentences;
use super::text::{plain, seconds};
use crate::events::Event;
use crate::units::Offset;
use crate::verdict::{ConnectionRow, Outcome, TrialRow};

/// Who says so, as lanes of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Path,
    Client,
    Kernel,
    Socket,
    Broker,
    Message,
}

impl Lane {
    pub const ALL: [Self; 6] = [Self::Path, Self::Client, Self::Kernel, Self::Socket, Self::Broker, Self::Message];

    /// What stands beside the lane.
    pub fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Client => "client",
            Self::Kernel => "kernel",
            Self::Socket => "socket",
            Self::Broker => "broker",
            Self::Message => "message",
        }
    }
}

/// Something that happened in a trial.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moment {
    pub lane: Lane,
    /// Seconds from the cut; below zero before it.
    pub at_s: f64,
    /// In a few words, for a picture.
    pub short: String,
    /// With everything that is known.
    pub text: String,
    /// Who fired, for its colour.
    pub who: Option<String>,
}

/// A trial's moments in order of time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Life {
    pub trial: u32,
    /// `trial 17, redis-keepalive under blackhole (flow): detected`
    pub label: String,
    /// Why this one: `median`, `slowest`, `first that was censored`.
    pub chosen: &'static str,
    pub moments: Vec<Moment>,
    /// The end of the watch, in seconds from the cut.
    pub until_s: f64,
}

/// As many trials are told at most, whatever the size of the run.
pub(super) const MOST: usize = 12;

/// The chosen trials: of each cell the one at the median, then the slowest and the first censored ones, up to [`MOST`].
pub(super) fn chosen(report: &Report, events: &[Event]) -> Vec<Life> {
    let rows = &report.judged.trials;
    let mut picks: Vec<(usize, usize, &'static str)> = Vec::new();
    for (rank, reason) in ["median", "first that was censored", "slowest"].into_iter().enumerate() {
        for (cell, summary) in report.cells.iter().zip(&report.summary.cells) {
            let of_cell = || cell.rows.iter().copied();
            let with_ttd = |want: Option<f64>| {
                let want = want?;
                of_cell().find(|i| rows[*i].ttd_s.is_some_and(|t| t.as_secs().to_bits() == want.to_bits()))
            };
            let found = match rank {
                0 => with_ttd(summary.ttd.median_s),
                1 => of_cell().find(|i| rows[*i].outcome == Outcome::Censored),
                _ => of_cell()
                    .filter(|i| rows[*i].ttd_s.is_some())
                    .max_by(|a, b| rows[*a].ttd_s.cmp(&rows[*b].ttd_s).then(b.cmp(a))),
            };
            if let Some(index) = found.filter(|i| picks.iter().all(|(known, ..)| known != i)) {
                picks.push((index, rank, reason));
            }
        }
    }
    picks.sort_by_key(|(index, rank, _)| (*rank, *index));
    picks.truncate(MOST);
    picks.sort_by_key(|(index, ..)| *index);
    let cuts = picks.iter().filter_map(|(index, ..)| {
        let row = &rows[*index];
        Some((row.trial, (row.fault_applied_s?, row.local)))
    });
    let mut more = looks::moments(events, &cuts.collect());
    let one = |(index, _, reason): (usize, usize, &'static str)| {
        let row = &rows[index];
        life(report, row, reason, more.remove(&row.trial).unwrap_or_default())
    };
    picks.into_iter().filter_map(one).collect()
}

fn life(report: &Report, row: &TrialRow, chosen: &'static str, more: Vec<Moment>) -> Option<Life> {
    let cut = row.fault_applied_s?;
    let connections = report.judged.connections.iter().filter(|c| c.trial == row.trial);
    let mut moments = moments(row, connections, cut);
    // What follows the end of the watch is the harness tidying up.
    let watched = |m: &Moment| row.ended_s.is_none_or(|end| m.at_s <= since(end, cut));
    moments.extend(more.into_iter().filter(watched));
    moments.sort_by(|a, b| a.at_s.total_cmp(&b.at_s).then(a.lane.cmp(&b.lane)));
    let until_s = row.ended_s.map_or(0.0, |end| since(end, cut));
    let last = moments.last().map_or(0.0, |m| m.at_s);
    let label = format!(
        "trial {}, {} under {} ({}): {}",
        row.trial,
        plain(&row.arm),
        plain(&row.fault),
        row.scope,
        row.outcome
    );
    Some(Life { trial: row.trial, label, chosen, moments, until_s: until_s.max(last) })
}

fn since(at: Offset, cut: Offset) -> f64 {
    Offset(at.0.saturating_sub(cut.0)).as_secs()
}

fn moments<'r>(row: &TrialRow, connections: impl Iterator<Item = &'r ConnectionRow>, cut: Offset) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut add = |lane, at: Option<Offset>, short: &str, text: String, who: Option<&str>| {
        let Some(at) = at else { return };
        let who = who.map(String::from);
        moments.push(Moment { lane, at_s: since(at, cut), short: short.to_string(), text, who });
    };
    let silence =
        row.age_at_fault_s.map(|s| format!("; the last segment was {} s old", seconds(s))).unwrap_or_default();
    add(Lane::Path, Some(cut), "cut", format!("the path is cut{silence}"), None);
    add(Lane::Path, row.first_drop_s, "first drop", "first look at which a packet had been dropped".into(), None);
    add(Lane::Path, row.healed_s, "healed", "the path is whole again".into(), None);
    let error = match row.kernel_error.as_str() {
        "" | "none" => String::new(),
        error => format!(" with {}", plain(error)),
    };
    add(Lane::Kernel, row.kernel_end_s, "ended", format!("the client's kernel ended the connection{error}"), None);
    let who = sentences::known(&row.watcher);
    let words = if row.error.is_empty() { String::new() } else { format!(" ({})", plain(&row.error)) };
    let noticed = row.detected_s.is_some();
    let told =
        if noticed { format!("the client noticed, by {who}{words}") } else { format!("the client was told{words}") };
    let short = if noticed { who.as_str() } else { "told" };
    add(Lane::Client, row.app_notice_s, short, told, noticed.then_some(row.watcher.as_str()));
    add(Lane::Client, row.recovered_s, "consumes again", "the client consumed again".into(), None);
    let unaware = row.ended_s.filter(|_| row.outcome == Outcome::Censored);
    let vain = "nobody had told the client when the watch ended".to_string();
    add(Lane::Client, unaware, "still unaware", vain, None);
    let by = sentences::known(&row.broker_watcher);
    let broker = format!("the broker gave the connection up ({by})");
    add(Lane::Broker, row.broker_notice_s, "gave up", broker, Some(&row.broker_watcher));
    add(Lane::Message, row.queued_s, "queued", "the message that got stuck was published".into(), None);
    let by = sentences::known(&row.resolved_by);
    add(Lane::Message, row.resolved_s, "resolved", format!("it was resolved, by {by}"), Some(&row.resolved_by));
    for c in connections.filter(|c| !c.conn_id.ends_with(".0") && c.ready_s.is_none()) {
        let why = if c.error.is_empty() { String::new() } else { format!(": {}", plain(&c.error)) };
        add(Lane::Client, c.app_end_s, "failed to reconnect", format!("an attempt to reconnect failed{why}"), None);
    }
    moments
}

/// `+5.98 s`, `−0.412 s`.
pub(super) fn signed(at_s: f64) -> String {
    let sign = if at_s < 0.0 { "−" } else { "+" };
    format!("{sign}{} s", seconds(at_s.abs()))
}
