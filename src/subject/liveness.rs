//! A worker's sign of life, from a thread of its own: it goes on while the consumer blocks, works, or waits for a dead broker.
//!
//! In Redis a key with a time to live (`SET worker:{id} … PX ttl`), over a connection of its own to the trial's own address: a fault
//! on one flow spares it, one on the host's address cuts it too. In the task store a row of `worker_status`, which no fault
//! reaches. What it says of the time is for people; whoever reads it goes by the key's presence, or by the store's clock.

use super::attempts::Trial;
use super::protocol::Beats;
use super::redis_client::login;
use crate::events::Kind;
use crate::reaper::TaskId;
use crate::scenario::{LivenessRule, LivenessStore};
use crate::units::{Offset, iso_8601};
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, RedisResult};
use std::io;
use std::thread;
use std::time::Duration;

/// Starts the trial's heartbeats, each in a thread of its own; they end with the trial.
pub(super) fn start(trial: &Trial, beats: &Beats) -> io::Result<()> {
    // A connection of its own, too: what the worker writes about its work must not hold its signs of life up.
    let own = || {
        let tasks =
            trial.tasks.as_ref().map(|tasks| if tasks.place().is_remote() { tasks.another() } else { tasks.clone() });
        Trial { tasks, ..trial.clone() }
    };
    if let Some(rule) = beats.rule.clone().filter(|rule| rule.store != LivenessStore::None) {
        let (trial, beats) = (own(), beats.clone());
        let named = thread::Builder::new().name(format!("beats-{}", trial.id));
        named.spawn(move || beat(&trial, &beats, &rule))?;
    }
    if let Some(rule) = beats.running {
        let trial = own();
        let named = thread::Builder::new().name(format!("task-beats-{}", trial.id));
        named.spawn(move || beat_for_tasks(&trial, rule.period))?;
    }
    Ok(())
}

/// Airflow's heartbeat of each running task, into the task store.
fn beat_for_tasks(trial: &Trial, period: Duration) {
    regularly(trial, period, || {
        let Some(tasks) = &trial.tasks else { return Err("there is no task store".to_string()) };
        let works_on: Vec<TaskId> =
            trial.current.all().into_iter().map(|message| TaskId { trial: trial.id, message }).collect();
        tasks.beat_for(&trial.worker, &works_on, trial.reporter.now()).map_err(|e| e.to_string())
    });
}

fn beat(trial: &Trial, beats: &Beats, rule: &LivenessRule) {
    let mut redis = None;
    let clock = Clock { since: trial.reporter.now(), ahead_ms: beats.ahead_ms, steps_after: beats.steps_after };
    regularly(trial, rule.period, || {
        let says = clock.at(trial.reporter.now());
        match rule.store {
            LivenessStore::Redis => to_redis(trial, beats, rule, says, &mut redis).map_err(|e| e.to_string()),
            LivenessStore::Table | LivenessStore::None => to_table(trial, says),
        }
    });
}

/// Writes at once and every `period` until the trial ends.
fn regularly(trial: &Trial, period: Duration, mut write: impl FnMut() -> Result<(), String>) {
    let mut next = trial.reporter.now();
    let mut failing = false;
    loop {
        let started = trial.reporter.now();
        let written = write();
        let took = trial.reporter.now().since(started);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        trial.event_at(started, Kind::Beat { ok: written.is_ok(), took_us });
        // Said once for each time that it begins to fail.
        if let Err(error) = &written
            && !failing
        {
            trial.reporter.note(format!("trial {}: no sign of life could be given: {error}", trial.id));
        }
        failing = written.is_err();
        next = next + period;
        let now = trial.reporter.now();
        if next < now {
            next = now;
        }
        if trial.stop.wait(next.since(now)) {
            return;
        }
    }
}

/// The worker's own clock, which may be wrong.
struct Clock {
    /// Its first sign of life.
    since: Offset,
    /// By how much it is wrong, in milliseconds.
    ahead_ms: i64,
    /// From how long after the first sign on.
    steps_after: Duration,
}

impl Clock {
    /// What it says at an instant.
    fn at(&self, now: Offset) -> Offset {
        if now.since(self.since) < self.steps_after {
            return now;
        }
        Offset(now.0.saturating_add(self.ahead_ms.saturating_mul(1_000_000)))
    }
}

/// The value as the workers of the published reports write it; `says` is what its own clock says.
fn value(trial: &Trial, says: Offset) -> String {
    let task = trial.current.task().map(|message| format!("{}.{message}", trial.id));
    let now = trial.reporter.wall_of(says);
    serde_json::json!({
        "worker_id": &trial.worker,
        "last_heartbeat_at": iso_8601(now),
        "current_task_id": task,
        "status": if task.is_some() { "busy" } else { "idle" },
    })
    .to_string()
}

fn to_redis(
    trial: &Trial,
    beats: &Beats,
    rule: &LivenessRule,
    says: Offset,
    link: &mut Option<Connection>,
) -> RedisResult<()> {
    let mut write = || -> RedisResult<()> {
        let connection = match link {
            Some(open) => open,
            None => link.insert(connect(beats, rule)?),
        };
        let key = format!("worker:{}", trial.worker);
        let ttl_ms = u64::try_from(rule.ttl.as_millis()).unwrap_or(u64::MAX);
        redis::cmd("SET").arg(key).arg(value(trial, says)).arg("PX").arg(ttl_ms).query(connection)
    };
    let written = write();
    if written.is_err() {
        *link = None;
    }
    written
}

fn connect(beats: &Beats, rule: &LivenessRule) -> RedisResult<Connection> {
    let target = &beats.target;
    let info = ConnectionAddr::Tcp(target.server.ip().to_string(), target.server.port()).into_connection_info()?;
    let client = Client::open(info.set_redis_settings(login(&target.user, &target.password)))?;
    // A server that does not answer must not cost more than one beat.
    let limit = rule.period.max(Duration::from_millis(200));
    let connection = client.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    connection.set_write_timeout(Some(limit))?;
    Ok(connection)
}

fn to_table(trial: &Trial, says: Offset) -> Result<(), String> {
    let Some(tasks) = &trial.tasks else { return Err("there is no task store".to_string()) };
    let task = trial.current.task().map(|message| TaskId { trial: trial.id, message });
    tasks.beat(&trial.worker, task, trial.reporter.now(), says).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_wrong_from_its_step_on() {
        let at = |s: i64| Offset(s * 1_000_000_000);
        let clock = Clock { since: at(10), ahead_ms: -300_000, steps_after: Duration::from_secs(6) };
        assert_eq!(clock.at(at(15)), at(15));
        assert_eq!(clock.at(at(16)), at(-284));
        let always = Clock { steps_after: Duration::ZERO, ..clock };
        assert_eq!(always.at(at(10)), at(-290));
    }
}
