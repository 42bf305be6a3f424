//! The watchers that the model predicts for a plan, as timers.

use super::timer::{Layer, Timer, of_watcher};
use crate::plan::Plan;
use crate::timers::WatcherState;

/// One timer for each window in which the model lets a watcher fire, with the arms and faults that it holds for. Windows
/// without an end are none, and so are those that begin with the cut: they say nothing.
#[must_use]
pub fn from_plan(plan: &Plan) -> Vec<Timer> {
    let mut found: Vec<(Timer, Vec<String>)> = Vec::new();
    for outlooks in &plan.outlooks {
        let arm = plan.scenario.arms.get(outlooks.arm).map_or("", |a| a.name.as_str());
        let fault = plan.scenario.faults.get(outlooks.fault).map_or("", |f| f.profile.as_str());
        let place = format!("{arm} under {fault}");
        for o in &outlooks.watchers {
            let fires = matches!(o.state, WatcherState::Fires | WatcherState::Later);
            let (Some(lo_s), Some(hi_s), true) = (o.lo_s, o.hi_s, fires) else { continue };
            if lo_s <= 0.0 || hi_s < lo_s {
                continue;
            }
            // A clock is never exact.
            let hi_s = hi_s.max(lo_s + 0.01);
            let watcher = o.watcher.name();
            let same = |t: &Timer| t.watcher == watcher && t.lo_s == lo_s && t.hi_s == hi_s;
            if let Some((_, places)) = found.iter_mut().find(|(t, _)| same(t)) {
                places.push(place.clone());
                continue;
            }
            let timer = Timer {
                id: String::new(),
                layer: of_watcher(watcher).unwrap_or(Layer::Own),
                watcher: watcher.to_string(),
                lo_s,
                hi_s,
                check_s: 0.0,
                name: String::new(),
                says: format!("{watcher} fired where the model lets it"),
                source: "the timer model".to_string(),
                own: true,
            };
            found.push((timer, vec![place.clone()]));
        }
    }
    let named = |(i, (timer, places)): (usize, (Timer, Vec<String>))| {
        let more = if places.len() > 1 { format!(" and {} more", places.len() - 1) } else { String::new() };
        Timer {
            id: format!("{}-{}", timer.watcher, i + 1),
            name: format!("{} of {}{more}, by the model", timer.watcher, places[0]),
            ..timer
        }
    };
    found.into_iter().enumerate().map(named).collect()
}
