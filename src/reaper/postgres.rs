//! The tasks in a PostgreSQL that the lab started: reached by its socket file, over no network that a fault could touch, or by
//! an address.
//!
//! The statements are SQLite's word for word where both take them. Each is conditional on the state that it starts from and
//! stands alone; a sweep is one transaction. Blocks: a runtime of its own drives the connection during each call.

use super::rule::{Action, TIMEOUT};
use super::store::COLUMNS;
use super::{Beat, Place, Status, Task, TaskId, TaskStoreError};
use crate::units::{Offset, TrialId};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};

/// The lab's superuser, and the database that it comes with.
const USER: &str = "halfopen";
const DATABASE: &str = "postgres";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's own clock, in nanoseconds since 1970: whoever writes and whoever looks, both go by it.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000";

type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// Between two attempts to reach a server that is gone.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection, opened again when it broke.
pub(super) struct PostgresStore {
    place: String,
    config: Config,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    client: Cell<Option<Client>>,
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
        let mut config = Config::new();
        config.user(USER).dbname(DATABASE).connect_timeout(PATIENCE);
        match at {
            Place::Sqlite(path) | Place::Postgres(path) => config.host_path(path),
            // As libpq leaves them: no user timeout, and keepalive of two hours.
            Place::Remote(address) => config.host(address.ip().to_string()).port(address.port()),
        };
        let client = runtime.block_on(connect(&config)).map_err(|e| failed(words(&e)))?;
        Ok(Self { place, config, runtime: Some(runtime), client: Cell::new(Some(client)) })
    }

    /// Makes the table.
    pub fn create(at: &Place, schema: &str) -> Result<Self, TaskStoreError> {
        let store = Self::open(at)?;
        store.ask("make the table", async |client| client.batch_execute(schema).await)?;
        Ok(store)
    }

    /// Asks until there is an answer, over a new connection where the old one broke: a server that crashed recovers. What was
    /// asked may have been done before its answer was lost, so it must be something that may be done again.
    fn ask<T>(
        &self,
        what: &'static str,
        question: impl AsyncFn(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, TaskStoreError> {
        self.ask_again(what, question).map(|(answer, _)| answer)
    }

    /// As above, and whether it was asked more than once.
    fn ask_again<T>(
        &self,
        what: &'static str,
        question: impl AsyncFn(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<(T, bool), TaskStoreError> {
        let failed = |text: String| TaskStoreError::new(&self.place, what, text);
        let Some(runtime) = &self.runtime else { return Err(failed("closed".to_string())) };
        let mut last = None;
        let asking = async {
            loop {
                let again = last.is_some();
                let answer = self.try_once(&question).await;
                match answer {
                    Ok(answer) => return Ok((answer, again)),
                    // The server's own refusal of the statement; one that is starting or ending is no refusal.
                    Err(error) if error.code().is_some_and(|code| !code.code().starts_with("57P")) => {
                        return Err(error);
                    }
                    Err(error) => last = Some(words(&error)),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await }) {
            Ok(answer) => answer.map_err(|e| failed(words(&e))),
            Err(_) => {
                let why = last.unwrap_or_else(|| "no answer".to_string());
                Err(failed(format!("{why}, for {} s", PATIENCE.as_secs())))
            }
        }
    }

    async fn try_once<T>(
        &self,
        question: &impl AsyncFn(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        // Nobody else asks meanwhile: a store is its owner's alone, and each of its calls blocks.
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => connect(&self.config).await?,
        };
        let answer = question(&client).await;
        self.client.set(Some(client));
        answer
    }

    fn changes(&self, what: &'static str, sql: &str, with: &[Param<'_>]) -> Result<bool, TaskStoreError> {
        Ok(self.ask(what, async |client| client.execute_typed(sql, with).await)? > 0)
    }

    /// A conditional change of one row. Where the answer was lost with the connection, the row itself says whether it had
    /// been made: it then has the state and the instant that were asked for.
    fn changes_to(
        &self,
        what: &'static str,
        (id, status, at): (TaskId, Status, Offset),
        sql: &str,
        with: &[Param<'_>],
    ) -> Result<bool, TaskStoreError> {
        let (changed, again) = self.ask_again(what, async |client| client.execute_typed(sql, with).await)?;
        if changed > 0 || !again {
            return Ok(changed > 0);
        }
        Ok(self.get(id)?.is_some_and(|row| row.status == status && row.updated_at == at))
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
        let to = (id, Status::Processing, at);
        self.changes_to("begin", to, sql, &[(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn resume(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET worker_id = $2, updated_at = $3, heartbeat_at = NULL \
                   WHERE id = $1 AND status = 'PROCESSING'";
        self.changes("resume", sql, &[(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn of_trial(&self, trial: TrialId) -> Result<Vec<Task>, TaskStoreError> {
        let sql = format!("SELECT {COLUMNS} FROM task WHERE id LIKE $1");
        let like = format!("{trial}.%");
        let with: [Param<'_>; 1] = [(&like, Type::TEXT)];
        let rows = self.ask("look for a trial's tasks", async |client| client.query_typed(&sql, &with).await)?;
        rows.iter().map(|row| self.task(row)).collect()
    }

    pub fn finish(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'DONE', updated_at = $3 \
                   WHERE id = $1 AND status = 'PROCESSING' AND worker_id = $2";
        let to = (id, Status::Done, at);
        self.changes_to("finish", to, sql, &[(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)])
    }

    pub fn queued_before(&self, cutoff: Offset) -> Result<Vec<Task>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status = 'PENDING' AND queued_at < $1 ORDER BY queued_at, id");
        let with: [Param<'_>; 1] = [(&cutoff.0, Type::INT8)];
        let rows = self.ask("look for old tasks", async |client| client.query_typed(&sql, &with).await)?;
        rows.iter().map(|row| self.task(row)).collect()
    }

    pub fn active(&self) -> Result<Vec<Task>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status IN ('PENDING', 'PROCESSING') ORDER BY updated_at, id");
        let rows = self.ask("look for active tasks", async |client| client.query_typed(&sql, &[]).await)?;
        rows.iter().map(|row| self.task(row)).collect()
    }

    pub fn fail(&self, seen: &Task, at: Offset, retry_at: Option<Offset>) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'FAILED', error_code = $5, updated_at = $6, retry_at = $8 \
                   WHERE id = $1 AND status = $2 AND worker_id IS NOT DISTINCT FROM $3 AND updated_at = $4 \
                   AND heartbeat_at IS NOT DISTINCT FROM $7";
        let to = (seen.id, Status::Failed, at);
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
        self.changes_to("fail a task", to, sql, &with)
    }

    pub fn beat_for(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET heartbeat_at = $3 WHERE id = $1 AND status = 'PROCESSING' AND worker_id = $2";
        let with: [Param<'_>; 3] = [(&id.to_string(), Type::TEXT), (&worker, Type::TEXT), (&at.0, Type::INT8)];
        self.changes("write a task's heartbeat", sql, &with)
    }

    pub fn due_again(&self, at: Offset) -> Result<Vec<TaskId>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status = 'FAILED' AND retry_at <= $1 ORDER BY retry_at, id");
        let with: [Param<'_>; 1] = [(&at.0, Type::INT8)];
        let rows = self.ask("look for retries", async |client| client.query_typed(&sql, &with).await)?;
        rows.iter().map(|row| self.task(row).map(|task| task.id)).collect()
    }

    pub fn next_retry(&self) -> Result<Option<Offset>, TaskStoreError> {
        let sql = "SELECT MIN(retry_at) FROM task WHERE status = 'FAILED'";
        let rows = self.ask("look for retries", async |client| client.query_typed(sql, &[]).await)?;
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
        let rows = self.ask("look for signs of life", async |client| client.query_typed(&sql, &[]).await)?;
        let one = |row: &Row| {
            let age = Duration::from_nanos(u64::try_from(row.get::<_, i64>(2)).unwrap_or(0));
            (row.get(0), Beat { said: Offset(row.get(1)), age })
        };
        Ok(rows.iter().map(one).collect())
    }

    pub fn get(&self, id: TaskId) -> Result<Option<Task>, TaskStoreError> {
        let sql = format!("SELECT {COLUMNS} FROM task WHERE id = $1");
        let id = id.to_string();
        let with: [Param<'_>; 1] = [(&id, Type::TEXT)];
        let rows = self.ask("look for a task", async |client| client.query_typed(&sql, &with).await)?;
        rows.first().map(|row| self.task(row)).transpose()
    }

    pub fn act(&mut self, actions: &[Action], at: Offset) -> Result<Vec<bool>, TaskStoreError> {
        let place = self.place.clone();
        let failed = |text: String| TaskStoreError::new(&place, "act on old tasks", text);
        // Whose connection broke gets another one first; what was begun over it and not committed is undone.
        self.ask("act on old tasks", async |client| client.batch_execute("").await)?;
        let (Some(runtime), Some(client)) = (&self.runtime, self.client.get_mut()) else {
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

async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The server's own words, which the library's first line leaves out.
fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => db.message().to_string(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
