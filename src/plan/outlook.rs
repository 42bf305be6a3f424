//! Who could fire and why the others stay silent: the model's word on every watcher, for the report.

use super::model::{Outlook, Outlooks};
use super::predict::Variant;
use crate::timers::{self, WatcherPrediction, WatcherState};
use std::collections::BTreeMap;

/// What is said of the watchers of each arm and fault, over all cases that its trials may turn out to be.
#[derive(Debug, Default)]
pub(super) struct Collected {
    lines: BTreeMap<(usize, usize), Vec<WatcherPrediction>>,
}

impl Collected {
    /// Takes in the cases of one trial.
    pub fn add(&mut self, arm: usize, fault: usize, variants: &[Variant]) {
        let lines = self.lines.entry((arm, fault)).or_default();
        for variant in variants {
            for line in timers::predict(&variant.case).watchers {
                merge(lines, line);
            }
        }
    }

    /// The outlooks, in the order of arms and faults. Without those that are simply off.
    pub fn finish(self) -> Vec<Outlooks> {
        let of = |((arm, fault), lines): ((usize, usize), Vec<WatcherPrediction>)| {
            let armed = lines.into_iter().filter(|l| l.state != WatcherState::NeverArmed || l.why != timers::OFF);
            let watchers = armed
                .map(|l| Outlook { watcher: l.watcher, state: l.state, lo_s: l.lo_s, hi_s: l.hi_s, why: l.why })
                .collect();
            Outlooks { arm, fault, watchers }
        };
        self.lines.into_iter().map(of).collect()
    }
}

/// Two cases of one trial: who may fire fires, within the hull; who fires in one of them only does so perhaps.
fn merge(lines: &mut Vec<WatcherPrediction>, new: WatcherPrediction) {
    let Some(known) = lines.iter_mut().find(|l| l.watcher == new.watcher) else {
        lines.push(new);
        return;
    };
    let hull = |known: &WatcherPrediction| {
        let lo_s = [known.lo_s, new.lo_s].into_iter().flatten().reduce(f64::min);
        (lo_s, known.hi_s.zip(new.hi_s).map(|(a, b)| a.max(b)))
    };
    let (lo_s, hi_s) = hull(known);
    if rank(new.state) < rank(known.state) {
        (known.state, known.why) = (new.state, new.why);
    }
    (known.lo_s, known.hi_s) = (lo_s, hi_s);
}

/// The state that is told where cases differ.
fn rank(state: WatcherState) -> u8 {
    match state {
        WatcherState::Fires => 0,
        WatcherState::Later => 1,
        WatcherState::FiredNotActedOn => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::Watcher;

    fn line(state: WatcherState, lo_s: Option<f64>, hi_s: Option<f64>, why: &str) -> WatcherPrediction {
        let watcher = Watcher::Keepalive;
        WatcherPrediction { watcher, side: watcher.side(), state, lo_s, hi_s, why: why.into() }
    }

    #[test]
    fn who_fires_in_one_case_only_fires_perhaps() {
        let mut lines = Vec::new();
        merge(&mut lines, line(WatcherState::NeverTriggered, None, None, "data is in flight"));
        merge(&mut lines, line(WatcherState::Fires, Some(3.0), Some(8.0), "idle"));
        merge(&mut lines, line(WatcherState::Fires, Some(2.0), Some(9.0), "idle too"));
        assert_eq!(lines, [line(WatcherState::Fires, Some(2.0), None, "idle")]);
    }

    #[test]
    fn the_hull_of_two_that_fire() {
        let mut lines = vec![line(WatcherState::Later, Some(3.0), Some(8.0), "later")];
        merge(&mut lines, line(WatcherState::Fires, Some(2.0), Some(7.0), "first"));
        assert_eq!(lines, [line(WatcherState::Fires, Some(2.0), Some(8.0), "first")]);
    }
}
