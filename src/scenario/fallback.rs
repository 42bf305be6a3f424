//! `[reaper]`, `[user]`, `[tasks]` and `[published]`: what cleans up, who waits, how many tasks there are, and what somebody else
//! measured.

use super::aftermath::{
    BrakeSettings, LivenessRule, LivenessStore, PatienceFrom, ReaperGeneration, ReaperSettings, Retry, StorePath,
    TableClock, TaskHeartbeat, TaskStoreKind, User,
};
use super::error::Findings;
use super::idle_keys;
use super::model::{Arm, Published, Tasks};
use super::profile;
use super::walk::Fields;
use crate::units::print_duration;
use std::time::Duration;

/// The sections, read; one that is missing or wrong is `None`.
pub(super) struct Fallback {
    pub(super) reaper: Option<ReaperSettings>,
    pub(super) user: Option<User>,
    pub(super) tasks: Option<Tasks>,
    pub(super) published: Option<Published>,
}

/// Takes the sections apart; what is wrong in them has been said by reading their keys.
pub(super) fn read(around: &Around<'_>) -> Fallback {
    Fallback {
        reaper: around.reaper.and_then(reaper_of),
        user: around.user.map(user_of),
        tasks: around.tasks.and_then(tasks_of),
        published: around.published.and_then(published_of),
    }
}

/// The rule that knows which workers live.
pub(super) const LIVENESS: &str = "liveness";

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
    let is_liveness = fields.text("rule") == Some(LIVENESS);
    let timeout = fields.time(if is_liveness { "pending" } else { "timeout" })?;
    let liveness = if is_liveness { Some(liveness_of(fields)?) } else { None };
    let count = |key: &str| fields.int(key).and_then(|n| u32::try_from(n).ok());
    let usual = TaskHeartbeat::default();
    let running = fields.time("task_heartbeat").map(|timeout| TaskHeartbeat {
        timeout,
        interval: fields.time("task_heartbeat_interval").unwrap_or(usual.interval),
        period: fields.time("task_heartbeat_period").unwrap_or(usual.period),
    });
    let delay = fields.time("retry_delay").unwrap_or(Duration::from_secs(300));
    let brake = fields.has("max_fail") || fields.has("max_share");
    let brake = brake.then(|| BrakeSettings {
        max_fail: count("max_fail").unwrap_or(50),
        max_share: fields.number("max_share").unwrap_or(0.2),
    });
    Some(ReaperSettings {
        generation,
        store,
        liveness,
        reapers: count("reapers").unwrap_or(1),
        inside_the_worker: fields.text("home") == Some("worker"),
        running,
        retry: count("retries").map(|times| Retry { times, delay }),
        brake,
        runs_in: fields.text("runs_in").map(str::to_string),
        store_path: if fields.text("store_path") == Some("network") { StorePath::Network } else { StorePath::Own },
        ..ReaperSettings::queued(timeout, interval)
    })
}

/// Where workers give their signs of life, by the word for it.
pub(super) fn liveness_store(word: &str) -> LivenessStore {
    match word {
        "redis" => LivenessStore::Redis,
        "table" => LivenessStore::Table,
        _ => LivenessStore::None,
    }
}

fn liveness_of(fields: &Fields) -> Option<LivenessRule> {
    Some(LivenessRule {
        store: liveness_store(fields.text("liveness").unwrap_or_default()),
        period: fields.time("period").unwrap_or(Duration::from_secs(30)),
        ttl: fields.time("ttl").unwrap_or(Duration::from_secs(90)),
        processing: fields.time("processing")?,
        grace: fields.time("grace").unwrap_or_default(),
        clock: if fields.text("table_clock") == Some("worker") { TableClock::Worker } else { TableClock::Store },
    })
}

fn user_of(fields: &Fields) -> User {
    let reissue_after = match fields.setting("reissue_after") {
        Some(setting) => setting.get(),
        None => Some(Duration::from_secs(180)),
    };
    User {
        poll: fields.time("poll").unwrap_or(Duration::from_secs(5)),
        reissue_after,
        from: match fields.text("patience_from") {
            Some("pending_since") => PatienceFrom::PendingSince,
            _ => PatienceFrom::Dialog,
        },
        reopens: fields.time("reopens"),
        reissues: fields.int("reissues").and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
    }
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

/// The sections that these have to go with.
pub(super) struct Around<'a> {
    pub(super) scenario: &'a Fields,
    pub(super) load: &'a Fields,
    pub(super) arms: &'a [Fields],
    pub(super) faults: &'a [Fields],
    pub(super) jobs: &'a [Fields],
    pub(super) reaper: Option<&'a Fields>,
    pub(super) user: Option<&'a Fields>,
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
    if let Some(user) = around.user.filter(|_| around.reaper.is_none()) {
        let problem = "there is no task store that a user could look at; write a section `[reaper]`";
        findings.error(user.at, user.label.trim_end(), problem);
    }
    numbered_work(around, findings);
    idle_keys::check(around, findings);
    arms_and_liveness(around, findings);
    if let Some(reaper) = around.reaper {
        keys_of_its_rule(reaper, findings);
        keys_of_keys(reaper, around, findings);
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

/// Which job a message is of, and whether there is one more, goes by its number. What a user asks for once more takes a number
/// of its own, and a sweep is no job.
fn numbered_work(around: &Around<'_>, findings: &mut Findings) {
    let kinds = around.jobs.first().map(|job| (job.at, job.label.trim_end().to_string()));
    let count = around.load.has("count").then(|| (around.load.at("count"), around.load.name("count")));
    let Some((at, name)) = kinds.or(count) else { return };
    if around.user.is_some_and(|user| user_of(user).reissue_after.is_some()) {
        let problem = "what a user asks for once more would take the place of the next one; write `reissue_after = \"none\"` \
                       in `[user]`, or remove this";
        findings.error(at, &name, problem);
    } else if around.reaper.is_some_and(|reaper| reaper.has("runs_in")) {
        let problem = "the messages of the arm in `runs_in` are sweeps; remove this, or `runs_in`";
        findings.error(at, &name, problem);
    }
}

/// Each rule has keys that it needs and keys that say nothing to it.
fn keys_of_its_rule(reaper: &Fields, findings: &mut Findings) {
    let Some(rule) = reaper.text("rule") else { return };
    let (needs, others): (&[&str], &[&str]) = if rule == LIVENESS {
        (&["pending", "processing"], &["timeout", "generation", "task_heartbeat", "retries"])
    } else {
        (&["timeout"], &["pending", "processing", "liveness", "period", "ttl", "grace", "table_clock"])
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
    let rule = liveness_of(reaper).filter(|_| reaper.has("period") || reaper.has("ttl"));
    if let Some((period, ttl)) = rule.map(|rule| (rule.period, rule.ttl)).filter(|(period, ttl)| ttl <= period) {
        let problem = format!(
            "a sign of life that lasts `{}` is over before the next one after `{}`; write three periods",
            print_duration(ttl),
            print_duration(period)
        );
        let key = if reaper.has("ttl") { "ttl" } else { "period" };
        findings.error(reaper.at(key), reaper.name(key), problem);
    }
}

/// Keys that say nothing without another one.
fn keys_of_keys(reaper: &Fields, around: &Around<'_>, findings: &mut Findings) {
    let needs = [
        ("task_heartbeat_interval", "task_heartbeat", "task_heartbeat = \"300s\""),
        ("task_heartbeat_period", "task_heartbeat", "task_heartbeat = \"300s\""),
        ("retry_delay", "retries", "retries = 1"),
    ];
    for (key, other, example) in needs.into_iter().filter(|(key, other, _)| reaper.has(key) && !reaper.has(other)) {
        let problem = format!("says nothing without `{other}`; write `{example}`, or remove it");
        findings.error(reaper.at(key), reaper.name(key), problem);
    }
    let period = reaper.time("task_heartbeat_period").unwrap_or(TaskHeartbeat::default().period);
    if let Some(timeout) = reaper.time("task_heartbeat").filter(|timeout| *timeout <= period) {
        let (timeout, period) = (print_duration(timeout), print_duration(period));
        let problem = format!("`{timeout}` is over before the next heartbeat after `{period}`; raise it");
        findings.error(reaper.at("task_heartbeat"), reaper.name("task_heartbeat"), problem);
    }
    if reaper.text("store_path") == Some("network") && reaper.text("store") != Some("postgres") {
        let problem = "only a PostgreSQL is reached over a network; write `store = \"postgres\"`, or remove it";
        findings.error(reaper.at("store_path"), reaper.name("store_path"), problem);
    }
    let Some(name) = reaper.text("runs_in") else { return };
    if !around.arms.iter().any(|arm| arm.text("name") == Some(name)) {
        let names: Vec<String> =
            around.arms.iter().filter_map(|arm| Some(format!("`{}`", arm.text("name")?))).collect();
        let problem = format!("there is no arm `{name}`; arms are {}", names.join(", "));
        findings.error(reaper.at("runs_in"), reaper.name("runs_in"), problem);
    }
    if reaper.text("home") == Some("worker") {
        let problem =
            "a sweep is a message to any worker of the arm in `runs_in`, not each worker's own; remove one of the two";
        findings.error(reaper.at("home"), reaper.name("home"), problem);
    }
    if reaper.has("reapers") {
        let problem = "the arm's trials are the reapers; remove it, or `runs_in`";
        findings.error(reaper.at("reapers"), reaper.name("reapers"), problem);
    }
}

/// Who writes nothing into a task store can't have its tasks judged by one, nor sweep it.
pub(super) fn clients(reaper: Option<&Fields>, arms: &[(&Fields, &Arm)], findings: &mut Findings) {
    let Some(reaper) = reaper else { return };
    let runs_in = reaper.text("runs_in");
    let foreign = |(_, arm): &&(&Fields, &Arm)| {
        let sweeps = runs_in == Some(arm.name.as_str());
        arm.settings.subject.is_command() && (arm.load || sweeps)
    };
    if let Some((_, arm)) = arms.iter().find(foreign) {
        let (name, subject) = (&arm.name, arm.settings.subject);
        let problem = match runs_in == Some(name.as_str()) {
            true => format!(
                "arm `{name}` is {subject}, which knows of no sweeps; name an arm of `lapin` or `redis-blocking`"
            ),
            false => format!(
                "arm `{name}` is {subject}, which writes nothing into a task store: its tasks would be taken for stuck; write \
                 `load = \"off\"` there, or remove one of the two"
            ),
        };
        let key = if runs_in == Some(name.as_str()) { "runs_in" } else { "rule" };
        findings.error(reaper.at(key), reaper.name(key), problem);
    }
    if runs_in.is_some() && arms.len() == 1 {
        let problem =
            "its messages are sweeps, and there is no other arm whose tasks could be swept; write one more `[[arm]]`";
        findings.error(reaper.at("runs_in"), reaper.name("runs_in"), problem);
    }
}

/// What an arm says of its signs of life.
fn arms_and_liveness(around: &Around<'_>, findings: &mut Findings) {
    let by_liveness = around.reaper.is_some_and(|reaper| reaper.text("rule") == Some(LIVENESS));
    for arm in around.arms {
        for key in ["liveness", "clock_ahead", "clock_behind", "clock_steps_after"]
            .iter()
            .filter(|key| arm.has(key) && !by_liveness)
        {
            let problem =
                "says nothing without a reaper that goes by signs of life; write `rule = \"liveness\"` in `[reaper]`";
            findings.error(arm.at(key), arm.name(key), problem);
        }
        if arm.has("clock_steps_after") && !arm.has("clock_ahead") && !arm.has("clock_behind") {
            findings.error(
                arm.at("clock_steps_after"),
                arm.name("clock_steps_after"),
                "by how much is missing; write `clock_ahead = \"5m\"` or `clock_behind = \"5m\"`",
            );
        }
        if arm.has("clock_ahead") && arm.has("clock_behind") {
            findings.error(
                arm.at("clock_behind"),
                arm.name("clock_behind"),
                "a clock is ahead or behind; remove one of the two",
            );
        }
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
