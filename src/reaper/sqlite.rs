//! The tasks in an embedded SQLite: one file in the run's private tmpfs, opened by every process that works with it.

use super::store::COLUMNS;
use super::{Beat, Status, Task, TaskId, TaskStoreError};
use crate::units::{Offset, TrialId};
use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a statement waits for another process's.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open file.
#[derive(Debug)]
pub(super) struct SqliteStore {
    path: PathBuf,
    db: Connection,
}

impl SqliteStore {
    /// Makes a new store with no task.
    ///
    /// # Errors
    /// When the file can't be made or holds a store already.
    pub fn create(path: &Path, schema: &str) -> Result<Self, TaskStoreError> {
        let store = Self::with(path, OpenFlags::SQLITE_OPEN_CREATE)?;
        // A run's store dies with the run: nothing has to survive a loss of power, and readers do not block writers.
        store.db.pragma_update(None, "journal_mode", "wal").map_err(store.failed("journal"))?;
        store.db.execute_batch(schema).map_err(store.failed("make the table"))?;
        Ok(store)
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(path: &Path) -> Result<Self, TaskStoreError> {
        Self::with(path, OpenFlags::empty())
    }

    fn with(path: &Path, more: OpenFlags) -> Result<Self, TaskStoreError> {
        let failed =
            |what| move |source: rusqlite::Error| TaskStoreError::new(&path.display().to_string(), what, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        let db = Connection::open_with_flags(path, flags).map_err(failed("open"))?;
        db.busy_timeout(PATIENCE).map_err(failed("open"))?;
        db.pragma_update(None, "synchronous", "off").map_err(failed("open"))?;
        Ok(Self { path: path.to_path_buf(), db })
    }

    fn failed(&self, what: &'static str) -> impl Fn(rusqlite::Error) -> TaskStoreError + '_ {
        move |source| TaskStoreError::new(&self.path.display().to_string(), what, source)
    }

    fn changes(&self, what: &'static str, sql: &str, with: impl rusqlite::Params) -> Result<bool, TaskStoreError> {
        let changed = self.db.prepare_cached(sql).and_then(|mut s| s.execute(with)).map_err(self.failed(what))?;
        Ok(changed > 0)
    }

    pub fn queue(&self, id: TaskId, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "INSERT INTO task (id, status, queued_at, updated_at, attempts) VALUES (?1, 'PENDING', ?2, ?2, 1) \
                   ON CONFLICT (id) DO UPDATE SET queued_at = excluded.queued_at, updated_at = excluded.updated_at \
                   WHERE task.status = 'PENDING'";
        self.changes("queue", sql, params![id.to_string(), at.0])
    }

    pub fn begin(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'PROCESSING', worker_id = ?2, updated_at = ?3, heartbeat_at = NULL \
                   WHERE id = ?1 AND status = 'PENDING'";
        self.changes("begin", sql, params![id.to_string(), worker, at.0])
    }

    pub fn resume(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET worker_id = ?2, updated_at = ?3, heartbeat_at = NULL \
                   WHERE id = ?1 AND status = 'PROCESSING'";
        self.changes("resume", sql, params![id.to_string(), worker, at.0])
    }

    pub fn of_trial(&self, trial: TrialId) -> Result<Vec<Task>, TaskStoreError> {
        let sql = format!("SELECT {COLUMNS} FROM task WHERE id LIKE ?1");
        let like = format!("{trial}.%");
        let read = || self.db.prepare_cached(&sql)?.query_map([like], task)?.collect::<rusqlite::Result<Vec<_>>>();
        read().map_err(self.failed("look for a trial's tasks"))
    }

    pub fn finish(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'DONE', updated_at = ?3 WHERE id = ?1 AND status = 'PROCESSING' AND worker_id = ?2";
        self.changes("finish", sql, params![id.to_string(), worker, at.0])
    }

    pub fn queued_before(&self, cutoff: Offset) -> Result<Vec<Task>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status = 'PENDING' AND queued_at < ?1 ORDER BY queued_at, id");
        let read = || self.db.prepare_cached(&sql)?.query_map([cutoff.0], task)?.collect::<rusqlite::Result<Vec<_>>>();
        read().map_err(self.failed("look for old tasks"))
    }

    pub fn active(&self) -> Result<Vec<Task>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status IN ('PENDING', 'PROCESSING') ORDER BY updated_at, id");
        let read = || self.db.prepare_cached(&sql)?.query_map([], task)?.collect::<rusqlite::Result<Vec<_>>>();
        read().map_err(self.failed("look for active tasks"))
    }

    pub fn fail(&self, seen: &Task, at: Offset, retry_at: Option<Offset>) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'FAILED', error_code = ?5, updated_at = ?6, retry_at = ?8 \
                   WHERE id = ?1 AND status = ?2 AND worker_id IS NOT DISTINCT FROM ?3 AND updated_at = ?4 \
                   AND heartbeat_at IS NOT DISTINCT FROM ?7";
        let (id, status) = (seen.id.to_string(), seen.status.name());
        let (heartbeat, retry) = (seen.heartbeat_at.map(|at| at.0), retry_at.map(|at| at.0));
        let with = params![id, status, seen.worker_id, seen.updated_at.0, super::rule::TIMEOUT, at.0, heartbeat, retry];
        self.changes("fail a task", sql, with)
    }

    pub fn beat_for(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET heartbeat_at = ?3 WHERE id = ?1 AND status = 'PROCESSING' AND worker_id = ?2";
        self.changes("write a task's heartbeat", sql, params![id.to_string(), worker, at.0])
    }

    pub fn due_again(&self, at: Offset) -> Result<Vec<TaskId>, TaskStoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM task WHERE status = 'FAILED' AND retry_at <= ?1 ORDER BY retry_at, id");
        let read = || self.db.prepare_cached(&sql)?.query_map([at.0], task)?.collect::<rusqlite::Result<Vec<_>>>();
        Ok(read().map_err(self.failed("look for retries"))?.iter().map(|task| task.id).collect())
    }

    pub fn next_retry(&self) -> Result<Option<Offset>, TaskStoreError> {
        let sql = "SELECT MIN(retry_at) FROM task WHERE status = 'FAILED'";
        let read = || self.db.prepare_cached(sql)?.query_row([], |row| row.get::<_, Option<i64>>(0));
        Ok(read().map_err(self.failed("look for retries"))?.map(Offset))
    }

    pub fn try_again(&self, id: TaskId, at: Offset) -> Result<bool, TaskStoreError> {
        let sql = "UPDATE task SET status = 'PENDING', worker_id = NULL, error_code = NULL, queued_at = ?2, updated_at = ?2, \
                   attempts = 1, tries = tries + 1, retry_at = NULL, heartbeat_at = NULL \
                   WHERE id = ?1 AND status = 'FAILED' AND retry_at <= ?2";
        self.changes("queue a task again", sql, params![id.to_string(), at.0])
    }

    pub fn beat(&self, worker: &str, task: Option<TaskId>, at: Offset, said: Offset) -> Result<(), TaskStoreError> {
        let sql = "INSERT INTO worker_status (worker_id, last_heartbeat_at, current_task_id, status, written_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (worker_id) DO UPDATE SET \
                   last_heartbeat_at = excluded.last_heartbeat_at, current_task_id = excluded.current_task_id, \
                   status = excluded.status, written_at = excluded.written_at";
        let status = if task.is_some() { "busy" } else { "idle" };
        let with = params![worker, said.0, task.map(|id| id.to_string()), status, at.0];
        self.changes("give a sign of life", sql, with).map(drop)
    }

    pub fn beats(&self, now: Offset) -> Result<BTreeMap<String, Beat>, TaskStoreError> {
        let sql = "SELECT worker_id, last_heartbeat_at, written_at FROM worker_status";
        let row = |row: &Row<'_>| {
            let (said, age) = (Offset(row.get(1)?), now.since(Offset(row.get(2)?)));
            Ok((row.get(0)?, Beat { said, age }))
        };
        let read = || -> rusqlite::Result<BTreeMap<String, Beat>> {
            self.db.prepare_cached(sql)?.query_map([], row)?.collect()
        };
        read().map_err(self.failed("look for signs of life"))
    }

    pub fn get(&self, id: TaskId) -> Result<Option<Task>, TaskStoreError> {
        let sql = format!("SELECT {COLUMNS} FROM task WHERE id = ?1");
        let read = || self.db.prepare_cached(&sql)?.query_map([id.to_string()], task)?.next().transpose();
        read().map_err(self.failed("look for a task"))
    }

    pub fn act(&mut self, actions: &[super::rule::Action], at: Offset) -> Result<Vec<bool>, TaskStoreError> {
        use super::rule::{Action, TIMEOUT};
        let path = self.path.clone();
        let mut all = || {
            let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut done = Vec::with_capacity(actions.len());
            for action in actions {
                let changed = match action {
                    Action::Fail { id, retry_at } => transaction
                        .prepare_cached(
                            "UPDATE task SET status = 'FAILED', error_code = ?2, updated_at = ?3, retry_at = ?4 \
                             WHERE id = ?1 AND status = 'PENDING'",
                        )?
                        .execute(params![id.to_string(), TIMEOUT, at.0, retry_at.map(|at| at.0)])?,
                    Action::Requeue(id) => transaction
                        .prepare_cached(
                            "UPDATE task SET queued_at = ?2, updated_at = ?2, attempts = attempts + 1 \
                             WHERE id = ?1 AND status = 'PENDING'",
                        )?
                        .execute(params![id.to_string(), at.0])?,
                };
                done.push(changed > 0);
            }
            transaction.commit()?;
            Ok(done)
        };
        all().map_err(|source: rusqlite::Error| {
            TaskStoreError::new(&path.display().to_string(), "act on old tasks", source)
        })
    }
}

fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    let text = |column: usize| row.get::<_, String>(column);
    let wrong = |column: usize, what: String| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
    };
    let word = text(1)?;
    Ok(Task {
        id: text(0)?.parse().map_err(|e: super::task::NoTask| wrong(0, e.to_string()))?,
        status: Status::ALL
            .into_iter()
            .find(|s| s.name() == word)
            .ok_or_else(|| wrong(1, format!("`{word}` is no status")))?,
        worker_id: row.get(2)?,
        error_code: row.get(3)?,
        queued_at: Offset(row.get(4)?),
        updated_at: Offset(row.get(5)?),
        attempts: row.get(6)?,
        heartbeat_at: row.get::<_, Option<i64>>(7)?.map(Offset),
        tries: row.get(8)?,
        retry_at: row.get::<_, Option<i64>>(9)?.map(Offset),
    })
}

#[cfg(test)]
mod tests {
    use super::super::rule::Action;
    use super::super::{Place, TaskStore};
    use super::*;

    fn id(message: u64) -> TaskId {
        TaskId { trial: 3, message }
    }

    fn store() -> (tempfile::TempDir, TaskStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = TaskStore::create(&Place::Sqlite(dir.path().join("tasks.sqlite"))).unwrap();
        (dir, store)
    }

    #[test]
    fn a_task_goes_its_way_and_another_connection_sees_it() {
        let (dir, store) = store();
        let other = TaskStore::open(&Place::Sqlite(dir.path().join("tasks.sqlite"))).unwrap();
        assert!(store.queue(id(0), Offset(10)).unwrap());
        assert!(other.begin(id(0), "w", Offset(20)).unwrap());
        assert!(!store.begin(id(0), "v", Offset(21)).unwrap(), "it is somebody's already");
        assert!(!store.finish(id(0), "v", Offset(22)).unwrap());
        assert!(other.finish(id(0), "w", Offset(30)).unwrap());
        let row = store.get(id(0)).unwrap().unwrap();
        assert_eq!((row.status, row.worker_id.as_deref()), (Status::Done, Some("w")));
        assert_eq!((row.queued_at, row.updated_at, row.attempts), (Offset(10), Offset(30), 1));
        assert_eq!(store.get(id(1)).unwrap(), None);
    }

    #[test]
    fn what_was_begun_or_done_while_it_was_being_reaped_stays_so() {
        let (_dir, mut store) = store();
        for message in 0..3 {
            store.queue(id(message), Offset(0)).unwrap();
        }
        let rows = store.queued_before(Offset(1)).unwrap();
        assert_eq!(rows.len(), 3);
        // Between the look and the action.
        store.begin(id(1), "w", Offset(5)).unwrap();
        store.begin(id(2), "w", Offset(5)).unwrap();
        store.finish(id(2), "w", Offset(6)).unwrap();
        let actions: Vec<Action> = rows.iter().map(|row| Action::Fail { id: row.id, retry_at: None }).collect();
        assert_eq!(store.act(&actions, Offset(7)).unwrap(), [true, false, false]);
        let of = |message| store.get(id(message)).unwrap().unwrap();
        assert_eq!((of(0).status, of(0).error_code.as_deref()), (Status::Failed, Some("TIMEOUT")));
        assert_eq!((of(1).status, of(2).status), (Status::Processing, Status::Done));
        assert!(!store.begin(id(0), "w", Offset(8)).unwrap(), "what was failed is not worked on");
        assert_eq!(store.act(&actions, Offset(9)).unwrap(), [false, false, false], "a second reaper does nothing");
    }

    #[test]
    fn a_task_that_is_queued_again_starts_anew() {
        let (_dir, mut store) = store();
        store.queue(id(0), Offset(0)).unwrap();
        assert_eq!(store.act(&[Action::Requeue(id(0))], Offset(50)).unwrap(), [true]);
        assert_eq!(store.queued_before(Offset(50)).unwrap(), []);
        let row = store.queued_before(Offset(51)).unwrap().remove(0);
        assert_eq!((row.queued_at, row.attempts), (Offset(50), 2));
    }

    #[test]
    fn a_heartbeat_between_look_and_action_saves_a_task_and_a_retry_starts_it_anew() {
        let (_dir, store) = store();
        for message in 0..2 {
            store.queue(id(message), Offset(0)).unwrap();
            assert!(!store.beat_for(id(message), "w", Offset(1)).unwrap(), "nobody has begun it");
            store.begin(id(message), "w", Offset(2)).unwrap();
        }
        let rows = store.running().unwrap();
        assert!(store.beat_for(id(1), "w", Offset(3)).unwrap());
        assert!(!store.beat_for(id(1), "v", Offset(4)).unwrap(), "it is another's");
        assert!(store.fail(&rows[0], Offset(5), Some(Offset(9))).unwrap());
        assert!(!store.fail(&rows[1], Offset(5), None).unwrap(), "its worker gave a sign meanwhile");
        let failed = store.get(id(0)).unwrap().unwrap();
        assert!(failed.status == Status::Failed && !failed.is_final());
        assert_eq!(store.next_retry().unwrap(), Some(Offset(9)));
        assert_eq!(store.due_again(Offset(8)).unwrap(), []);
        assert_eq!(store.due_again(Offset(9)).unwrap(), [id(0)]);
        assert!(store.try_again(id(0), Offset(9)).unwrap());
        assert!(!store.try_again(id(0), Offset(9)).unwrap(), "a second scheduler does nothing");
        let row = store.get(id(0)).unwrap().unwrap();
        assert_eq!((row.status, row.tries, row.worker_id, row.queued_at), (Status::Pending, 2, None, Offset(9)));
        assert!(!store.finish(id(0), "w", Offset(10)).unwrap(), "the first try's worker is too late");
        assert!(store.begin(id(0), "v", Offset(11)).unwrap());
        let last = store.running().unwrap().into_iter().find(|row| row.id == id(0)).unwrap();
        assert!(store.fail(&last, Offset(12), None).unwrap() && store.get(id(0)).unwrap().unwrap().is_final());
    }

    #[test]
    fn only_old_and_queued_ones_are_found_and_the_oldest_first() {
        let (_dir, store) = store();
        for (message, at) in [(0, 30), (1, 10), (2, 20), (3, 5)] {
            store.queue(id(message), Offset(at)).unwrap();
        }
        store.begin(id(3), "w", Offset(6)).unwrap();
        let found: Vec<u64> = store.queued_before(Offset(30)).unwrap().iter().map(|t| t.id.message).collect();
        assert_eq!(found, [1, 2]);
    }

    #[test]
    fn errors_name_the_file_and_no_store_is_overwritten() {
        let (dir, _store) = store();
        let path = dir.path().join("tasks.sqlite");
        let again = TaskStore::create(&Place::Sqlite(path.clone())).unwrap_err().to_string();
        assert!(again.contains("tasks.sqlite: make the table"), "{again}");
        assert!(TaskStore::open(&Place::Sqlite(dir.path().join("none"))).is_err());
    }

    #[test]
    fn writers_of_several_processes_wait_for_one_another() {
        let (dir, store) = store();
        let path = dir.path().join("tasks.sqlite");
        std::thread::scope(|scope| {
            for writer in 0..4u32 {
                let path = path.clone();
                scope.spawn(move || {
                    let store = TaskStore::open(&Place::Sqlite(path)).unwrap();
                    for message in 0..200 {
                        assert!(store.queue(TaskId { trial: writer, message }, Offset(1)).unwrap());
                    }
                });
            }
        });
        assert_eq!(store.queued_before(Offset(2)).unwrap().len(), 800);
    }
}
