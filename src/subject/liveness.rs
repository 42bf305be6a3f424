//! A worker's sign of life, from a thread of its own: it goes on while the consumer blocks, works, or waits for a dead broker.
//!
//! In Redis a key with a time to live (`SET worker:{id} … PX ttl`), over a connection of its own to the trial's own address: a fault
//! on one flow spares it, one on the host's address cuts it too. In the task store a row of `worker_status`, which no fault
//! reaches. What it says of the time is for people; whoever reads it goes by the key's presence, or by the store's clock.

use super::attempts::Trial;
use super::protocol::Beats;
use super::redis_client::login;
use crate::reaper::TaskId;
use crate::scenario::LivenessStore;
use crate::units::iso_8601;
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, RedisResult};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Starts the trial's heartbeat; it ends with the trial.
pub(super) fn start(trial: Arc<Trial>, beats: Beats) -> io::Result<()> {
    let named = thread::Builder::new().name(format!("beats-{}", trial.id));
    named.spawn(move || beat(&trial, &beats)).map(drop)
}

fn beat(trial: &Trial, beats: &Beats) {
    let mut redis = None;
    let mut next = trial.reporter.now();
    let mut failing = false;
    loop {
        let written = match beats.rule.store {
            LivenessStore::Redis => to_redis(trial, beats, &mut redis).map_err(|e| e.to_string()),
            LivenessStore::Table => to_table(trial),
            LivenessStore::None => return,
        };
        // Said once for each time that it begins to fail.
        if let Err(error) = &written
            && !failing
        {
            trial.reporter.note(format!("trial {}: no sign of life could be given: {error}", trial.id));
        }
        failing = written.is_err();
        next = next + beats.rule.period;
        let now = trial.reporter.now();
        if next < now {
            next = now;
        }
        if trial.stop.wait(next.since(now)) {
            return;
        }
    }
}

/// The value as the mission's workers write it.
fn value(trial: &Trial) -> String {
    let task = trial.current.task().map(|message| format!("{}.{message}", trial.id));
    let now = trial.reporter.wall_of(trial.reporter.now());
    serde_json::json!({
        "worker_id": &trial.worker,
        "last_heartbeat_at": iso_8601(now),
        "current_task_id": task,
        "status": if task.is_some() { "busy" } else { "idle" },
    })
    .to_string()
}

fn to_redis(trial: &Trial, beats: &Beats, link: &mut Option<Connection>) -> RedisResult<()> {
    let mut write = || -> RedisResult<()> {
        let connection = match link {
            Some(open) => open,
            None => link.insert(connect(beats)?),
        };
        let key = format!("worker:{}", trial.worker);
        let ttl_ms = u64::try_from(beats.rule.ttl.as_millis()).unwrap_or(u64::MAX);
        redis::cmd("SET").arg(key).arg(value(trial)).arg("PX").arg(ttl_ms).query(connection)
    };
    let written = write();
    if written.is_err() {
        *link = None;
    }
    written
}

fn connect(beats: &Beats) -> RedisResult<Connection> {
    let target = &beats.target;
    let info = ConnectionAddr::Tcp(target.server.ip().to_string(), target.server.port()).into_connection_info()?;
    let client = Client::open(info.set_redis_settings(login(&target.user, &target.password)))?;
    // A server that does not answer must not cost more than one beat.
    let limit = beats.rule.period.max(Duration::from_millis(200));
    let connection = client.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    connection.set_write_timeout(Some(limit))?;
    Ok(connection)
}

fn to_table(trial: &Trial) -> Result<(), String> {
    let Some(tasks) = &trial.tasks else { return Err("there is no task store".to_string()) };
    let task = trial.current.task().map(|message| TaskId { trial: trial.id, message });
    tasks.beat(&trial.worker, task, trial.reporter.now()).map_err(|e| e.to_string())
}
