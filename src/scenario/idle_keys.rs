//! Keys of `[reaper]`, `[user]` and of arms beside them that say nothing beside what else is written. Whoever wrote one believes
//! that it does something, so each is an error.

use super::error::Findings;
use super::fallback::{Around, LIVENESS};
use super::walk::Fields;
use crate::units::print_duration;
use std::time::Duration;

/// Every key that would do nothing.
pub(super) fn check(around: &Around<'_>, findings: &mut Findings) {
    let horizon = around.scenario.time("horizon");
    if let Some(reaper) = around.reaper.filter(|reaper| reaper.text("rule") == Some(LIVENESS)) {
        of_liveness(reaper, around, findings);
        beyond(reaper, "interval", horizon, "sweep", findings);
    }
    if let Some(user) = around.user {
        of_user(user, findings);
        beyond(user, "poll", horizon, "look", findings);
    }
}

fn of_liveness(reaper: &Fields, around: &Around<'_>, findings: &mut Findings) {
    let everybody = reaper.text("liveness").unwrap_or("none");
    let stores: Vec<&str> =
        around.arms.iter().map(|arm| arm.text("liveness").unwrap_or(everybody)).chain([everybody]).collect();
    if reaper.has("table_clock") && !stores.contains(&"table") {
        let problem = "no sign of life is in a table; write `liveness = \"table\"`, or remove it";
        findings.error(reaper.at("table_clock"), reaper.name("table_clock"), problem);
    }
    let nobody = stores.iter().all(|store| *store == "none");
    for key in ["period", "ttl", "grace"].iter().filter(|key| nobody && reaper.has(key)) {
        let problem = "nobody gives a sign of life; write `liveness = \"redis\"` or `\"table\"`, or remove it";
        findings.error(reaper.at(key), reaper.name(key), problem);
    }
    if let (Some(grace), Some(limit)) = (reaper.time("grace"), reaper.time("processing"))
        && grace >= limit
    {
        let problem = format!(
            "a row that was not changed for `{}` is failed for its age already (`processing`); lower it",
            print_duration(limit)
        );
        findings.error(reaper.at("grace"), reaper.name("grace"), problem);
    }
    for arm in around.arms.iter().filter(|arm| arm.text("liveness").unwrap_or(everybody) == "none") {
        for key in ["clock_ahead", "clock_behind", "clock_steps_after"].iter().filter(|key| arm.has(key)) {
            let problem = "its workers give no sign of life that could be dated wrongly; write `liveness = \"table\"` or \
                           `\"redis\"`, or remove it";
            findings.error(arm.at(key), arm.name(key), problem);
        }
    }
}

fn of_user(user: &Fields, findings: &mut Findings) {
    let never = user.setting("reissue_after").is_some_and(|setting| setting.get().is_none());
    for key in ["patience_from", "reopens", "reissues"].iter().filter(|key| user.has(key) && never) {
        let problem = "says nothing with `reissue_after = \"none\"`; remove one of the two";
        findings.error(user.at(key), user.name(key), problem);
    }
}

/// What comes at intervals that are longer than the trial may never come.
fn beyond(fields: &Fields, key: &str, horizon: Option<Duration>, what: &str, findings: &mut Findings) {
    if let (Some(interval), Some(horizon)) = (fields.time(key), horizon)
        && interval > horizon
    {
        let problem = format!(
            "in `{}`, the horizon, there may be no {what} at all; lower it, or raise `horizon`",
            print_duration(horizon)
        );
        findings.error(fields.at(key), fields.name(key), problem);
    }
}
