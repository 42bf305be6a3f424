//! `[reaper]`, `[tasks]` and `[published]`: what cleans up, how many tasks there are, and what somebody else measured.

use super::error::Findings;
use super::model::{LivenessRule, LivenessStore, Published, ReaperGeneration, ReaperSettings, TaskStoreKind, Tasks};
use super::profile;
use super::walk::Fields;
use crate::units::print_duration;
use std::time::Duration;

/// The three sections, read; one that is missing or wrong is `None`.
pub(super) struct Fallback {
    pub(super) reaper: Option<ReaperSettings>,
    pub(super) tasks: Option<Tasks>,
    pub(super) published: Option<Published>,
}

/// Takes the sections apart; what is wrong in them has been said by reading their keys.
pub(super) fn read(reaper: &Option<Fields>, tasks: &Option<Fields>, published: &Option<Fields>) -> Fallback {
    Fallback {
        reaper: reaper.as_ref().and_then(reaper_of),
        tasks: tasks.as_ref().and_then(tasks_of),
        published: published.as_ref().and_then(published_of),
    }
}

/// The rule that knows which workers live.
const LIVENESS: &str = "liveness";

fn reaper_of(fields: &Fields) -> Option<ReaperSettings> {
    fields.text("rule")?;
    let generation = match fields.text("generation") {
        Some("airflow-2.10.4") => ReaperGeneration::RequeuesTwice,
        _ => ReaperGeneration::FailsAtOnce,
    };
    let store = match fields.text("store") {
        Some("postgres") => TaskStoreKind::Postgres,
        _ => TaskStoreKind::Sqlite,
    };
    let interval = fields.time("interval")?;
    let reapers = fields.int("reapers").and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    let inside_the_worker = fields.text("home") == Some("worker");
    if fields.text("rule") != Some(LIVENESS) {
        return Some(ReaperSettings {
            timeout: fields.time("timeout")?,
            interval,
            generation,
            store,
            liveness: None,
            reapers,
            inside_the_worker,
        });
    }
    let rule = LivenessRule {
        store: match fields.text("liveness") {
            Some("redis") => LivenessStore::Redis,
            Some("table") => LivenessStore::Table,
            _ => LivenessStore::None,
        },
        period: fields.time("period").unwrap_or(Duration::from_secs(30)),
        ttl: fields.time("ttl").unwrap_or(Duration::from_secs(90)),
        processing: fields.time("processing")?,
        grace: fields.time("grace").unwrap_or_default(),
    };
    Some(ReaperSettings {
        timeout: fields.time("pending")?,
        interval,
        generation,
        store,
        liveness: Some(rule),
        reapers,
        inside_the_worker,
    })
}

fn tasks_of(fields: &Fields) -> Option<Tasks> {
    Some(Tasks {
        count: fields.int("count").and_then(|n| u64::try_from(n).ok())?,
        over: fields.time("over")?,
        half_open: fields.number("half_open")?,
    })
}

fn published_of(fields: &Fields) -> Option<Published> {
    Some(Published {
        mean: fields.time("mean")?,
        median: fields.time("median")?,
        from: fields.time("from")?,
        to: fields.time("to")?,
        share: fields.number("share")?,
    })
}

/// The sections that the three have to go with.
pub(super) struct Around<'a> {
    pub(super) scenario: &'a Fields,
    pub(super) load: &'a Fields,
    pub(super) arms: &'a [Fields],
    pub(super) faults: &'a [Fields],
    pub(super) reaper: Option<&'a Fields>,
    pub(super) tasks: Option<&'a Fields>,
    pub(super) published: Option<&'a Fields>,
}

/// What only shows when they are seen together.
pub(super) fn check(around: &Around<'_>, findings: &mut Findings) {
    let has_load = around.load.has("rate") || around.load.flawed;
    if let Some(tasks) = around.tasks {
        if has_load {
            let problem = "each task is the one message of its trial; remove `[load]` or `[tasks]`";
            findings.error(tasks.at, tasks.label.trim_end(), problem);
        }
        for fields in around.arms.iter().chain([around.scenario]) {
            if let Some(found) = fields.get("trials") {
                let problem = "follows from `[tasks]`: one trial for each task that meets the fault; remove it";
                findings.error(found.key_at, fields.name("trials"), problem);
            }
        }
        for fields in around.faults {
            for key in ["at", "phase_window"] {
                if let Some(found) = fields.get(key) {
                    let problem = "with `[tasks]` the cut falls on its task; remove it";
                    findings.error(found.key_at, fields.name(key), problem);
                }
            }
        }
    }
    let any_message = has_load || around.tasks.is_some();
    for fields in [around.reaper, around.published].into_iter().flatten().filter(|_| !any_message) {
        let problem = "there are no messages that could be stuck; write `[load]` with `rate = \"1/s\"`, or `[tasks]`";
        findings.error(fields.at, fields.label.trim_end(), problem);
    }
    if let Some(reaper) = around.reaper {
        keys_of_its_rule(reaper, findings);
        // Who reaps by liveness acts on what began before the cut, too: no single time holds for every trial.
        if reaper.text("rule") != Some(LIVENESS) {
            time_to_act(reaper, around, findings);
        }
    }
    if let Some(published) = around.published
        && let (Some(from), Some(to)) = (published.time("from"), published.time("to"))
        && from >= to
    {
        findings.error(published.at("to"), published.name("to"), "is not after `from`; swap the two");
    }
}

/// Each rule has keys that it needs and keys that say nothing to it.
fn keys_of_its_rule(reaper: &Fields, findings: &mut Findings) {
    let Some(rule) = reaper.text("rule") else { return };
    let (needs, others): (&[&str], &[&str]) = if rule == LIVENESS {
        (&["pending", "processing"], &["timeout", "generation"])
    } else {
        (&["timeout"], &["pending", "processing", "liveness", "period", "ttl", "grace"])
    };
    for key in needs.iter().filter(|key| !reaper.has(key) && !reaper.flawed) {
        let problem =
            format!("`{key}` is missing, which `rule = \"{rule}\"` needs; write for example `{key} = \"300s\"`");
        findings.error(reaper.at, reaper.label.trim_end(), problem);
    }
    for key in others.iter().filter(|key| reaper.has(key)) {
        let problem = format!("says nothing to `rule = \"{rule}\"`; remove it");
        findings.error(reaper.at(key), reaper.name(key), problem);
    }
    if reaper.text("home") == Some("worker") && reaper.has("reapers") {
        let problem = "with `home = \"worker\"` there is one in each worker; remove it";
        findings.error(reaper.at("reapers"), reaper.name("reapers"), problem);
    }
    if let (Some(period), Some(ttl)) = (reaper.time("period"), reaper.time("ttl"))
        && ttl <= period
    {
        let problem = format!(
            "a sign of life that lasts `{}` is over before the next one after `{}`; write three periods",
            print_duration(ttl),
            print_duration(period)
        );
        findings.error(reaper.at("ttl"), reaper.name("ttl"), problem);
    }
}

/// A trial that ends before the reaper could act on its oldest message shows nothing of it: that message is published up
/// to an interval of the load after the cut, and grows old from then on. Where only the way to the broker is dead one
/// message more gets through, and it is the next one that waits.
fn time_to_act(reaper: &Fields, around: &Around<'_>, findings: &mut Findings) {
    let (Some(settings), Some(horizon)) = (reaper_of(reaper), around.scenario.time("horizon")) else { return };
    if around.load.flawed {
        return;
    }
    let (rounds, times) = match settings.generation {
        ReaperGeneration::FailsAtOnce => (1, String::new()),
        ReaperGeneration::RequeuesTwice => (3, "3 times ".to_string()),
    };
    let open = |fault: &Fields| {
        let drop = fault.text("profile").and_then(profile::builtin).map(|known| known.drop);
        drop.is_some_and(|drop| drop.to_broker && !drop.to_client)
    };
    let lost = if around.faults.iter().any(open) { 2 } else { 1 };
    let published = around.load.time("rate").unwrap_or_default().saturating_mul(lost);
    let longest = published + (settings.timeout + settings.interval).saturating_mul(rounds);
    if horizon <= longest {
        let first = if published.is_zero() {
            String::new()
        } else {
            format!("{} until a message is published and then ", print_duration(published))
        };
        let problem = format!(
            "`{}` ends before the reaper has acted on every trial: it takes up to {first}{times}{} and {}; raise it above `{}`",
            print_duration(horizon),
            print_duration(settings.timeout),
            print_duration(settings.interval),
            print_duration(longest),
        );
        findings.error(around.scenario.at("horizon"), around.scenario.name("horizon"), problem);
    }
}
