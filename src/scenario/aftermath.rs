//! The reaper of a scenario: its rules, where the tasks and the signs of life are, what brakes it; and the user who looks on.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Airflow's watcher of *running* rows: a row whose task gave no heartbeat for too long is failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHeartbeat {
    /// A row whose last heartbeat is older is failed: `scheduler_zombie_task_threshold`, later
    /// `task_instance_heartbeat_timeout`.
    pub timeout: Duration,
    /// How often rows are looked at: `zombie_detection_interval`.
    pub interval: Duration,
    /// How often a worker writes a heartbeat for each task that it works on: `job_heartbeat_sec`.
    pub period: Duration,
}

impl Default for TaskHeartbeat {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(300), interval: Duration::from_secs(10), period: Duration::from_secs(5) }
    }
}

/// A task's own retries, which take over when a reaper has failed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How often it is tried again after the first time: `retries`.
    pub times: u32,
    /// How long after the failing: `retry_delay`.
    pub delay: Duration,
}

/// How much one sweep may fail before the reaper takes itself, or its store, for the likelier fault.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BrakeSettings {
    /// At most so many rows.
    pub max_fail: u32,
    /// At most this share of the active ones, 0 to 1.
    pub max_share: f64,
}

/// How the workers reach the task store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorePath {
    /// By a path of its own that no fault touches.
    #[default]
    Own,
    /// Over the trial's own addresses: a fault of scope `flow` spares it, one of scope `host` cuts it too.
    Network,
}

impl StorePath {
    pub(super) fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// By which clock the age of a sign of life in the table is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableClock {
    /// The store's, both when it is written and when it is judged.
    #[default]
    Store,
    /// The worker's own when it is written, the reaper's when it is judged: what two clocks that differ break.
    Worker,
}

impl TableClock {
    pub(super) fn is_store(&self) -> bool {
        *self == Self::Store
    }
}

/// From when on a user's patience counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatienceFrom {
    /// From the last time that the dialog was opened.
    Dialog,
    /// From `pending_since`, which the server knows.
    PendingSince,
}

/// Somebody who waits for each task and looks at it every now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// How often the task's state is asked for.
    pub poll: Duration,
    /// After how long of waiting a re-issue is asked for; `None` is never.
    pub reissue_after: Option<Duration>,
    /// From when on that counts.
    pub from: PatienceFrom,
    /// The dialog is closed and opened again this often; `None` keeps it open.
    pub reopens: Option<Duration>,
    /// How often a re-issue is asked for at the most.
    pub reissues: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_default(kind: &TaskStoreKind) -> bool {
    *kind == TaskStoreKind::default()
}

/// Which scheduler's rule the reaper follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReaperGeneration {
    /// Up to Airflow 2.10.3: the first sweep fails the row.
    #[serde(rename = "airflow-2.10.3")]
    FailsAtOnce,
    /// From Airflow 2.10.4: the row is queued again twice before it is failed.
    #[serde(rename = "airflow-2.10.4")]
    RequeuesTwice,
}

/// Where a run writes its tasks down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStoreKind {
    /// An embedded SQLite: a file.
    #[default]
    Sqlite,
    /// A PostgreSQL of the run's own.
    Postgres,
}

/// The fallback that cleans up by the age of a *queued* row (`rule = "queued-timeout"`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReaperSettings {
    /// A row that is older is failed: Airflow's `task_queued_timeout`.
    pub timeout: Duration,
    /// How often it looks: Airflow's `task_queued_timeout_check_interval`.
    pub interval: Duration,
    /// What it does with a row that is too old.
    pub generation: ReaperGeneration,
    /// Where the rows are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub store: TaskStoreKind,
    /// The rule of a reaper that knows which workers live; then `timeout` is the limit on PENDING rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<LivenessRule>,
    /// How many of them sweep at once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub reapers: u32,
    /// It lives in each worker's process, where it sweeps that worker's tasks, and dies with it.
    #[serde(default, skip_serializing_if = "super::worker::is_false")]
    pub inside_the_worker: bool,
    /// The watcher of running rows, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<TaskHeartbeat>,
    /// The tasks' own retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// What keeps a sweep from failing everything at once; `None` is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<BrakeSettings>,
    /// The arm whose workers carry out the sweeps, each of which is a message to them; `None`: it sweeps by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_in: Option<String>,
    /// How the workers reach the store.
    #[serde(default, skip_serializing_if = "StorePath::is_own")]
    pub store_path: StorePath,
}

impl ReaperSettings {
    /// Airflow's rule for queued rows as it was up to 2.10.3, by itself.
    #[must_use]
    pub fn queued(timeout: Duration, interval: Duration) -> Self {
        Self {
            timeout,
            interval,
            generation: ReaperGeneration::FailsAtOnce,
            store: TaskStoreKind::Sqlite,
            liveness: None,
            reapers: 1,
            inside_the_worker: false,
            running: None,
            retry: None,
            brake: None,
            runs_in: None,
            store_path: StorePath::Own,
        }
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

/// Where workers write their signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LivenessStore {
    /// Nowhere.
    None,
    /// A Redis key with a time to live.
    Redis,
    /// The table `worker_status` of the task store.
    Table,
}

/// What a reaper goes by that knows which workers live (`rule = "liveness"`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivenessRule {
    /// Where their signs of life are.
    pub store: LivenessStore,
    /// How often a worker gives one.
    pub period: Duration,
    /// How long one lasts.
    pub ttl: Duration,
    /// A PROCESSING row that was not changed for this long is failed, whoever lives.
    pub processing: Duration,
    /// A row that was changed less long ago is not failed for want of a sign of life.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub grace: Duration,
    /// By which clock the age of a sign of life in the table is told.
    #[serde(default, skip_serializing_if = "TableClock::is_store")]
    pub clock: TableClock,
}
