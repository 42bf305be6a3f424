//! The keys of `[reaper]` and `[user]`, part of the one table.

use super::keys::{Key, Kind, Limits};
use super::table::{DAY, any, ms, optional, required};

pub(super) const REAPER: &[Key] = &[
    required(
        "rule",
        Kind::Choice(&["queued-timeout", "liveness"]),
        "rule = \"queued-timeout\"",
        "What it goes by. `queued-timeout`: a row in state *queued* is too old (Airflow's scheduler). `liveness`: its worker \
         gives no sign of life, or the row is too old.",
    ),
    optional(
        "timeout",
        any(ms(1)),
        "none: `queued-timeout` needs it",
        "timeout = \"1200s\"",
        "An older row is failed: `task_queued_timeout`, counted from the publication of the message.",
        &["task_queued_timeout"],
    ),
    optional(
        "pending",
        any(ms(1)),
        "none: `liveness` needs it",
        "pending = \"300s\"",
        "With `liveness`: a PENDING row that was not changed for this long is failed.",
        &[],
    ),
    optional(
        "processing",
        any(ms(1)),
        "none: `liveness` needs it",
        "processing = \"1200s\"",
        "With `liveness`: a PROCESSING row that was not changed for this long is failed, whoever lives.",
        &[],
    ),
    optional(
        "liveness",
        Kind::Choice(&["redis", "table", "none"]),
        "`none`",
        "liveness = \"redis\"",
        "With `liveness`: where each worker gives its sign of life, from a thread of its own. `redis`: a key with a time to live, \
         over a connection of its own; `table`: `worker_status` in the task store.",
        &[],
    ),
    optional(
        "period",
        any(ms(50)),
        "`30s`",
        "period = \"30s\"",
        "How often a worker gives a sign of life.",
        &["heartbeat_interval"],
    ),
    optional("ttl", any(ms(50)), "`90s`", "ttl = \"90s\"", "How long a sign of life lasts.", &["time_to_live"]),
    optional(
        "reapers",
        Kind::Integer { min: 1, max: 8 },
        "1",
        "reapers = 2",
        "How many of them sweep at the same moments: all but one of them find each row changed.",
        &["instances"],
    ),
    required(
        "interval",
        any(ms(1)),
        "interval = \"120s\"",
        "How often it looks: `task_queued_timeout_check_interval`.",
    ),
    optional(
        "generation",
        Kind::Choice(&["airflow-2.10.3", "airflow-2.10.4"]),
        "`airflow-2.10.3`",
        "generation = \"airflow-2.10.4\"",
        "Up to 2.10.3 the first sweep fails the row; from 2.10.4 it is queued again twice before.",
        &["version"],
    ),
    optional(
        "store",
        Kind::Choice(&["sqlite", "postgres"]),
        "`sqlite`",
        "store = \"postgres\"",
        "Where the tasks are written down: an embedded file, or a PostgreSQL of the run's own.",
        &["database"],
    ),
    optional(
        "store_path",
        Kind::Choice(&["own", "network"]),
        "`own`",
        "store_path = \"network\"",
        "How the workers reach the store. `own`: by a path that no fault touches. `network`: PostgreSQL at the trial's own addresses, \
         over a connection a trial; a fault of scope `flow` spares it, one of scope `host` cuts it too.",
        &[],
    ),
    optional(
        "task_heartbeat",
        any(ms(1)),
        "none: running rows are not looked at",
        "task_heartbeat = \"300s\"",
        "With `queued-timeout`: a *running* row whose task gave no heartbeat for longer than this is failed \
         (`scheduler_zombie_task_threshold`). Workers then write one for each task that they work on, to the store.",
        &["task_instance_heartbeat_timeout", "scheduler_zombie_task_threshold"],
    ),
    optional(
        "task_heartbeat_interval",
        any(ms(1)),
        "`10s`",
        "task_heartbeat_interval = \"10s\"",
        "How often running rows are looked at (`zombie_detection_interval`).",
        &["zombie_detection_interval"],
    ),
    optional(
        "task_heartbeat_period",
        any(ms(50)),
        "`5s`",
        "task_heartbeat_period = \"5s\"",
        "How often a worker writes a heartbeat for each of its tasks (`job_heartbeat_sec`).",
        &["job_heartbeat_sec"],
    ),
    optional(
        "retries",
        Kind::Integer { min: 1, max: 100 },
        "none",
        "retries = 1",
        "How often a task that was failed is queued again by its own retries, whoever failed it.",
        &[],
    ),
    optional(
        "retry_delay",
        any(ms(0)),
        "`300s`",
        "retry_delay = \"300s\"",
        "How long after its failing a task is queued again.",
        &[],
    ),
    optional(
        "max_fail",
        Kind::Integer { min: 1, max: 1_000_000 },
        "no brake; `50` with `max_share`",
        "max_fail = 50",
        "The brake: a sweep that would fail more rows than this fails none and says so; nor does one that finds every worker \
         gone at once, which is the liveness store's doing.",
        &[],
    ),
    optional(
        "max_share",
        Kind::Percent,
        "no brake; `20%` with `max_fail`",
        "max_share = \"20%\"",
        "The brake by the share of the active rows.",
        &[],
    ),
    optional(
        "table_clock",
        Kind::Choice(&["store", "worker"]),
        "`store`",
        "table_clock = \"store\"",
        "With signs of life in a table: whose clock tells their age. `store`: the database's, at the write and at the look. \
         `worker`: the worker's at the write and the reaper's at the look, which clocks that differ break.",
        &[],
    ),
    optional(
        "runs_in",
        Kind::Text,
        "it sweeps by itself",
        "runs_in = \"sweeper\"",
        "The arm whose workers carry out the sweeps: each is a message to them, one an `interval`, through the broker and over \
         connections that the faults cut like any other. Its messages are no tasks.",
        &["via"],
    ),
];

pub(super) const USER: &[Key] = &[
    optional(
        "poll",
        any(ms(10)),
        "`5s`",
        "poll = \"5s\"",
        "How often each task's user asks how it stands.",
        &["interval"],
    ),
    optional(
        "reissue_after",
        Kind::Setting(Limits { min: ms(1), max: DAY, step: ms(1), usual: (ms(0), DAY) }),
        "`180s`",
        "reissue_after = \"180s\"",
        "After how long of waiting the user asks for the task once more. A predecessor that is still PENDING is failed then (the \
         lazy check); beside one that is PROCESSING the new one is a second.",
        &["patience"],
    ),
    optional(
        "patience_from",
        Kind::Choice(&["dialog", "pending_since"]),
        "`dialog`",
        "patience_from = \"pending_since\"",
        "From when on that counts: from the last opening of the dialog, or from `pending_since`, which the server knows.",
        &["since"],
    ),
    optional(
        "reopens",
        any(ms(10)),
        "it stays open",
        "reopens = \"60s\"",
        "The dialog is closed and opened again this often.",
        &[],
    ),
    optional(
        "reissues",
        Kind::Integer { min: 0, max: 100 },
        "1",
        "reissues = 1",
        "How often a user asks again at the most.",
        &[],
    ),
];
