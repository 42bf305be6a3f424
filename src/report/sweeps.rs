//! What the sweeps of a run's reaper came to, for its notes: whether it was ever disarmed, and whether its brake held.

use crate::events::{Event, Kind};
use crate::plan::{self, Plan};
use crate::units::{Offset, TrialId, print_duration};
use std::collections::BTreeMap;
use std::time::Duration;

/// A sweep is missing when there was none for so many intervals: one may fall behind a long one.
const MISSING: u32 = 2;

/// A sentence for each reaper: how often it swept, and from when to when it did not. Without recorded sweeps, nothing.
pub(super) fn notes(plan: &Plan, events: &[Event]) -> Vec<String> {
    let Some(reaper) = &plan.scenario.reaper else { return Vec::new() };
    let mut all: BTreeMap<Option<TrialId>, Vec<Offset>> = BTreeMap::new();
    let mut held: Vec<&str> = Vec::new();
    for event in events {
        if let Kind::Swept { held: why, .. } = &event.kind {
            all.entry(event.trial).or_default().push(event.offset);
            held.extend(why.as_deref());
        }
    }
    let end_of = |trial: Option<TrialId>| {
        let ended = |e: &&Event| e.trial == trial && matches!(e.kind, Kind::TrialEnded { .. });
        let last = events.iter().map(|e| e.offset).max().unwrap_or_default();
        trial.and_then(|_| events.iter().find(ended)).map_or(last, |e| e.offset)
    };
    let mut lines: Vec<String> =
        all.into_iter().map(|(trial, sweeps)| line(trial, sweeps, end_of(trial), reaper.interval)).collect();
    // A worker that was to sweep and never did is a reaper, too.
    let sweeper = |trial: &&plan::Trial| plan.scenario.sweeps_of(&plan.scenario.arms[trial.arm]).is_some();
    let swept = |trial: TrialId| events.iter().any(|e| e.trial == Some(trial) && matches!(e.kind, Kind::Swept { .. }));
    let never = plan.trials.iter().filter(sweeper).map(|trial| trial.id).filter(|trial| !swept(*trial));
    lines.extend(never.map(|trial| format!("The reaper in trial {trial}'s worker never swept.")));
    if let Some(first) = held.first() {
        lines.push(format!("The reaper's brake held {} sweeps back; the first: {first}.", held.len()));
    }
    lines
}

/// One reaper's sentence. Several that sweep at once are told as one: at least one of them swept. It is disarmed from the first
/// sweep on that was due and did not come.
fn line(trial: Option<TrialId>, mut sweeps: Vec<Offset>, end: Offset, interval: Duration) -> String {
    sweeps.sort_unstable();
    let n = sweeps.len();
    let who = trial.map_or_else(|| "The reaper".to_string(), |trial| format!("The reaper in trial {trial}'s worker"));
    let last = sweeps.last().copied().unwrap_or_default();
    let mut gaps: Vec<(Offset, Offset)> = sweeps.windows(2).map(|pair| (pair[0], pair[1])).collect();
    gaps.push((last, end.max(last)));
    gaps.retain(|(from, to)| to.since(*from) > interval * MISSING);
    gaps.iter_mut().for_each(|(from, _)| *from = *from + interval);
    let times = if n == 1 { "once".to_string() } else { format!("{n} times") };
    if gaps.is_empty() {
        return format!("{who} swept {times}, never more than {MISSING} intervals apart.");
    }
    let gap = |(from, to): &(Offset, Offset)| {
        let open = if *to == end { ", and to the end" } else { "" };
        format!("for {:.1} s from {:.1} s on{open}", to.since(*from).as_secs_f64(), from.as_secs())
    };
    let gaps: Vec<String> = gaps.iter().map(gap).collect();
    let every = print_duration(interval);
    format!("{who} swept {times}, one every {every}, and was disarmed {}.", gaps.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reaper_that_stops_sweeping_is_disarmed_and_one_that_is_a_little_late_is_not() {
        let at = |all: &[f64]| all.iter().map(|s| Offset::from_secs(*s)).collect::<Vec<_>>();
        let told = |sweeps: &[f64], end| line(Some(9), at(sweeps), Offset::from_secs(end), Duration::from_secs(2));
        assert_eq!(
            told(&[1.0, 3.0, 6.5], 8.0),
            "The reaper in trial 9's worker swept 3 times, never more than 2 intervals apart."
        );
        assert_eq!(
            told(&[1.0, 3.0], 17.0),
            "The reaper in trial 9's worker swept 2 times, one every 2s, and was disarmed for 12.0 s from 5.0 s on, and to the end."
        );
        assert!(told(&[1.0, 9.0, 11.0], 12.0).ends_with("was disarmed for 6.0 s from 3.0 s on."));
    }
}
