//! The tasks in a PostgreSQL that the lab started: reached by its socket file, over no network that a fault could touch, or by
//! an address.
//!
//! The statements are SQLite's word for word where both take them. Each is conditional on the state that it starts from and
//! stands alone; a sweep is one transaction. Blocks: a runtime of its own drives the connection during each call.

use super::rule::{Action, TIMEOUT};
use super::store::COLUMNS;
use super::{Beat, Place, Status, Task, TaskId, TaskStoreError};
use crate::units::Offset;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};

/// The lab's superuser, and the database that it comes with.
const USER: &str = "halfopen";
const DATABASE: &str = "postgres";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's own clock, in nanoseconds since 1970: whoever writes and whoever looks, both go by it.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000";

type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// A connection.
pub(super) struct PostgresStore {
    place: String,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    client: Client,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // The last owner may be a task of another runtime, where waiting for this one is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("place", &self.place).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects to the server at this place.
    pub fn open(at: &Place) -> Result<Self, TaskStoreError> {
        let place = at.to_string();
        let failed = |text: String| TaskStoreError::new(&place, "open", text);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| failed(e.to_string()))?;
        let mut config = tokio_postgres::Config::new();
        config.user(USER).dbname(DATABASE).connect_timeout(PATIENCE);
        match at {
            Place::Sqlite(path) | Place::Postgres(path) => config.host_path(path),
            // As libpq leaves them: no user timeout, and keepalive of two hours.
            Place::Remote(address) => config.host(address.ip().to_string()).port(address.port()),
        };
        let client = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await.map_err(|e| failed(words(&e)))?;
            tokio::spawn(connection);
            Ok(client)
        })?;
        Ok(Self { place, runtime: Some(runtime), client })
    }

    /// Makes the table.
    pub fn create(at: &Place, schema: &str) -> Result<Self, TaskStoreError> {
        let store = Self::open(at)?;
        store.ask("make the table", store.client.batch_execute(schema))?;
        Ok(store)
    }

    fn ask<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, TaskStoreError> {
        let failed = |text: String| TaskStoreError::new(&self.place, what, text);
        let Some(runtime) = &self.runtime else { return Err(failed("closed".to_string())) };
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await });
        answer.map_err(|_| failed(format!("no answer within {} s", PATIENCE.as_secs())))?.map_err(|e| failed(words(&e)))
    }

    fn changes(&self, what: &'static str, sql: &str, with: &[Param<'_>]) -> Result<bool, TaskStoreError> {
        Ok(self.ask(what, self.client.execute_typed(sql, with))? > 0)
    }

    pub fn queue(&self, id: TaskId, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "INSERT INTO task (id, status, queued_at, updated_at, attempts) VALUES ($1, 'PENDING', $2, $2, 1) \
                   ON CONFLICT (id) DO UPDATE SET queued_at = excluded.queued_at, updated_at = excluded.updated_at \
                   WHERE task.status = 'PENDING'";
        self.changes("queue", sql, &[(&id.to_string(), Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn begin(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'PROCESSING', worker_id = $2, updated_at = $3, heartbeat_at = NULL \
                   WHERE id = $1 AND status = 'PENDING'";
        self.changes("begin", sql, &[(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn finish(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'DONE', updated_at = $3 \
                   WHERE id = $1 AND status = 'PROCESSING' AND worker_id = $2";
        self.changes("finish", sql, &[(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn queued_before(&self, cutoff: Offset) -> Result<Vec<Task>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status = 'PENDING' AND queued_at < $1 ORDER BY queued_at, id");
        let rows = self.ask("look for old tasks", self.client.query_typed(&sql, &[(&cutoff.0, Type::INT8)]))?;
        rows.iter().map(|row| self.task(row)).collect()
    }

    pub fn active(&self) -> Result<Vec<Task>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status IN ('PENDING', 'PROCESSING') ORDER BY updated_at, id");
        let rows = self.ask("look for active tasks", self.client.query_typed(&sql, &[]))?;
        rows.iter().map(|row| self.task(row)).collect()
    }

    pub fn fail(&self, seen: &Task, at: Offset, retry_at: Option<Offset>) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'FAILED', error_code = $5, updated_at = $6, retry_at = $8 \
                   WHERE id = $1 AND status = $2 AND worker_id IS NOT DISTINCT FROM $3 AND updated_at = $4 \
                   AND heartbeat_at IS NOT DISTINCT FROM $7";
        let (id, status) = (seen.id.to_string(), seen.status.name());
        let (heartbeat, retry) = (seen.heartbeat_at.map(|at| at.0), retry_at.map(|at| at.0));
        let with: [Param<'_>; 8] = [
            (&id, Type::TEXT),
            (&status, Type::TEXT),
            (&seen.worker_id, Type::TEXT),
            (&seen.updated_at.0, Type::INT8),
            (&TIMEOUT, Type::TEXT),
            (&at.0, Type::INT8),
            (&heartbeat, Type::INT8),
            (&retry, Type::INT8),
        ];
        self.changes("fail a task", sql, &with)
    }

    pub fn beat_for(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET heartbeat_at = $3 WHERE id = $1 AND status = 'PROCESSING' AND worker_id = $2";
        let with: [Param<'_>; 3] = [(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)];
        self.changes("write a task's heartbeat", sql, &with)
    }

    pub fn due_again(&self, at: Offset) -> Result<Vec<TaskId>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status = 'FAILED' AND retry_at <= $1 ORDER BY retry_at, id");
        let rows = self.ask("look for retries", self.client.query_typed(&sql, &[(&at.0, Type::INT8)]))?;
        rows.iter().map(|row| self.task(row).map(|task| task.id)).collect()
    }

    pub fn next_retry(&self) -> Result<Option<Offset>, TaskStoreError> {
        let sql = "SELECT MIN(retry_at) FROM task WHERE status = 'FAILED'";
        let rows = self.ask("look for retries", self.client.query_typed(sql, &[]))?;
        Ok(rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).map(Offset))
    }

    pub fn try_again(&self, id: TaskId, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'PENDING', worker_id = NULL, error_code = NULL, queued_at = $2, updated_at = $2, \
                   attempts = 1, tries = tries + 1, retry_at = NULL, heartbeat_at = NULL \
                   WHERE id = $1 AND status = 'FAILED' AND retry_at <= $2";
        self.changes("queue a task again", sql, &[(&id.to_string(), Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn beat(&self, worker: &str, task: Option<TaskId>, _at: Offset, said: Offset) -> Result<(), TaskStoreError> {
        let sql = format!(
            "INSERT INTO worker_status (worker_id, last_heartbeat_at, current_task_id, status, written_at) \
             VALUES ($1, $2, $3, $4, {NOW}) ON CONFLICT (worker_id) DO UPDATE SET \
             last_heartbeat_at = excluded.last_heartbeat_at, current_task_id = excluded.current_task_id, \
             status = excluded.status, written_at = excluded.written_at"
        );
        let status = if task.is_some() { "busy" } else { "idle" };
        let task = task.map(|id| id.to_string());
        let with: [Param<'_>; 4] =
            [(&worker, Type::TEXT), (&said.0, Type::INT8), (&task, Type::TEXT), (&status, Type::TEXT)];
        self.changes("give a sign of life", &sql, &with).map(drop)
    }

    pub fn beats(&self, _now: Offset) -> Result<BTreeMap<String, Beat>, TaskStoreError> {
        let sql = format!("SELECT worker_id, last_heartbeat_at, {NOW} - written_at FROM worker_status");
        let rows = self.ask("look for signs of life", self.client.query_typed(&sql, &[]))?;
        let one = |row: &Row| {
            let age = Duration::from_nanos(u64::try_from(row.get::<_, i64>(2)).unwrap_or(0));
            (row.get(0), Beat { said: Offset(row.get(1)), age })
        };
        Ok(rows.iter().map(one).collect())
    }

    pub fn get(&self, id: TaskId) -> Result<Option<Task>, TaskStoreError> {
        let sql = format!("SELECT {COLUMNS} FROM task WHERE id = $1");
        let rows = self.ask("look for a task", self.client.query_typed(&sql, &[(&id.to_string(), Type::TEXT)]))?;
        rows.first().map(|row| self.task(row)).transpose()
    }

    pub fn act(&mut self, actions: &[Action], at: Offset) -> Result<Vec<bool>, TaskStoreError> {
        let place = self.place.clone();
        let failed = |text: String| TaskStoreError::new(&place, "act on old tasks", text);
        let (Some(runtime), client) = (&self.runtime, &mut self.client) else {
            return Err(failed("closed".to_string()));
        };
        let all = async {
            let transaction = client.transaction().await?;
            let mut done = Vec::with_capacity(actions.len());
            for action in actions {
                let changed = match action {
                    Action::Fail { id, retry_at } => {
                        let sql = "UPDATE task SET status = 'FAILED', error_code = $2, updated_at = $3, retry_at = $4 \
                                   WHERE id = $1 AND status = 'PENDING'";
                        let (id, retry) = (id.to_string(), retry_at.map(|at| at.0));
                        let with: [Param<'_>; 4] =
                            [(&id, Type::TEXT), (&TIMEOUT, Type::TEXT), (&at.0, Type::INT8), (&retry, Type::INT8)];
                        transaction.execute_typed(sql, &with).await?
                    }
                    Action::Requeue(id) => {
                        let sql = "UPDATE task SET queued_at = $2, updated_at = $2, attempts = attempts + 1 \
                                   WHERE id = $1 AND status = 'PENDING'";
                        let id = id.to_string();
                        let with: [Param<'_>; 2] = [(&id, Type::TEXT), (&at.0, Type::INT8)];
                        transaction.execute_typed(sql, &with).await?
                    }
                };
                done.push(changed > 0);
            }
            transaction.commit().await?;
            Ok::<_, tokio_postgres::Error>(done)
        };
        runtime.block_on(all).map_err(|e| failed(words(&e)))
    }

    fn task(&self, row: &Row) -> Result<Task, TaskStoreError> {
        let wrong = |text: String| TaskStoreError::new(&self.place, "read a task", text);
        let word: String = row.get(1);
        let (attempts, tries): (i32, i32) = (row.get(6), row.get(8));
        Ok(Task {
            id: row.get::<_, String>(0).parse().map_err(|e: super::task::NoTask| wrong(e.to_string()))?,
            status: Status::ALL
                .into_iter()
                .find(|s| s.name() == word)
                .ok_or_else(|| wrong(format!("`{word}` is no status")))?,
            worker_id: row.get(2),
            error_code: row.get(3),
            queued_at: Offset(row.get(4)),
            updated_at: Offset(row.get(5)),
            attempts: u32::try_from(attempts).unwrap_or_default(),
            heartbeat_at: row.get::<_, Option<i64>>(7).map(Offset),
            tries: u32::try_from(tries).unwrap_or_default(),
            retry_at: row.get::<_, Option<i64>>(9).map(Offset),
        })
    }
}

/// The server's own words, which the library's first line leaves out.
fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => db.message().to_string(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
