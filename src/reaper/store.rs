//! Where the tasks of a run are: an embedded SQLite, or a PostgreSQL that the lab started. One schema, one set of
//! conditional changes, so that of two who act on one row the second changes nothing, whichever store it is.
//!
//! A file, and a socket in the file system, have no connection that a fault could cut: they stand for the metadata database
//! that a worker reaches over a path of its own, which stays healthy. One that is reached by an address may be cut off.

use super::postgres::PostgresStore;
use super::rule::Action;
use super::sqlite::SqliteStore;
use super::{Beat, Status, Task, TaskId};
use crate::units::{Offset, TrialId};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Times are nanoseconds of the run's monotonic clock. Both databases take it word for word.
const SCHEMA: &str = "\
CREATE TABLE task (
    id         TEXT PRIMARY KEY,
    status     TEXT NOT NULL CHECK (status IN ('PENDING', 'PROCESSING', 'DONE', 'FAILED')),
    worker_id  TEXT,
    error_code TEXT,
    queued_at  BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    attempts   INTEGER NOT NULL,
    heartbeat_at BIGINT,
    tries      INTEGER NOT NULL DEFAULT 1,
    retry_at   BIGINT
);
CREATE INDEX task_by_age ON task (status, queued_at);
CREATE TABLE worker_status (
    worker_id         TEXT PRIMARY KEY,
    last_heartbeat_at BIGINT NOT NULL,
    written_at        BIGINT NOT NULL,
    current_task_id   TEXT,
    status            TEXT NOT NULL CHECK (status IN ('busy', 'idle'))
);";

/// What is read of a task.
pub(super) const COLUMNS: &str =
    "id, status, worker_id, error_code, queued_at, updated_at, attempts, heartbeat_at, tries, retry_at";

/// What went wrong with a store.
#[derive(Debug, Error)]
#[error("task store {place}: {what}: {text}")]
pub struct TaskStoreError {
    place: String,
    what: &'static str,
    text: String,
}

impl TaskStoreError {
    pub(super) fn new(place: &str, what: &'static str, text: impl fmt::Display) -> Self {
        Self { place: place.to_string(), what, text: text.to_string() }
    }
}

/// Where a store is. Written as a path, or `postgres:` and the folder of the server's socket, or `postgres://` and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// The folder with the server's socket.
    Postgres(PathBuf),
    /// The server's address.
    Remote(SocketAddrV4),
}

impl Place {
    /// Whether it is reached over a network, where a connection can break.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

const POSTGRES: &str = "postgres:";
const REMOTE: &str = "postgres://";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres(path) => write!(f, "{POSTGRES}{}", path.display()),
            Self::Remote(address) => write!(f, "{REMOTE}{address}"),
        }
    }
}

impl FromStr for Place {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(address) = text.strip_prefix(REMOTE).and_then(|text| text.parse().ok()) {
            return Ok(Self::Remote(address));
        }
        Ok(match text.strip_prefix(POSTGRES) {
            Some(sockets) => Self::Postgres(sockets.into()),
            None => Self::Sqlite(text.into()),
        })
    }
}

/// An open store.
#[derive(Debug)]
pub struct TaskStore(Kind);

#[derive(Debug)]
enum Kind {
    Sqlite(SqliteStore),
    Postgres(Box<PostgresStore>),
}

/// The same call on either.
macro_rules! on {
    ($store:expr, $inner:ident => $call:expr) => {
        match $store {
            Kind::Sqlite($inner) => $call,
            Kind::Postgres($inner) => $call,
        }
    };
}

impl TaskStore {
    /// Makes a new store with no task.
    ///
    /// # Errors
    /// When it can't be made or there is one already.
    pub fn create(place: &Place) -> Result<Self, TaskStoreError> {
        Ok(Self(match place {
            Place::Sqlite(path) => Kind::Sqlite(SqliteStore::create(path, SCHEMA)?),
            Place::Postgres(_) | Place::Remote(_) => Kind::Postgres(Box::new(PostgresStore::create(place, SCHEMA)?)),
        }))
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(place: &Place) -> Result<Self, TaskStoreError> {
        Ok(Self(match place {
            Place::Sqlite(path) => Kind::Sqlite(SqliteStore::open(path)?),
            Place::Postgres(_) | Place::Remote(_) => Kind::Postgres(Box::new(PostgresStore::open(place)?)),
        }))
    }

    /// Writes down a task that is about to be handed to the broker. A task that could not be handed over and is tried
    /// again counts from the later moment; whether it was written.
    ///
    /// # Errors
    /// The database's.
    pub fn queue(&self, id: TaskId, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.queue(id, at))
    }

    /// A worker begins: only what is still pending may be begun. Whether it was.
    ///
    /// # Errors
    /// The database's.
    pub fn begin(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.begin(id, worker, at))
    }

    /// A worker goes on with what somebody has begun, itself or another. Whether it was being worked on.
    ///
    /// # Errors
    /// The database's.
    pub fn resume(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.resume(id, worker, at))
    }

    /// The tasks of a trial, in no order.
    ///
    /// # Errors
    /// The database's.
    pub fn of_trial(&self, trial: TrialId) -> Result<Vec<Task>, TaskStoreError> {
        on!(&self.0, store => store.of_trial(trial))
    }

    /// A worker is done with what it began. Whether it was still its own.
    ///
    /// # Errors
    /// The database's.
    pub fn finish(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.finish(id, worker, at))
    }

    /// The pending tasks that were queued before `cutoff`, the oldest first.
    ///
    /// # Errors
    /// The database's.
    pub fn queued_before(&self, cutoff: Offset) -> Result<Vec<Task>, TaskStoreError> {
        on!(&self.0, store => store.queued_before(cutoff))
    }

    /// The tasks that are neither done nor failed, those first that were changed the longest ago.
    ///
    /// # Errors
    /// The database's.
    pub fn active(&self) -> Result<Vec<Task>, TaskStoreError> {
        on!(&self.0, store => store.active())
    }

    /// Fails a task if its row still is as it was read: its state, its worker, its last heartbeat and the time of its last
    /// change. With `retry_at` it is queued again then. Whether it was.
    ///
    /// # Errors
    /// The database's.
    pub fn fail(&self, seen: &Task, at: Offset, retry_at: Option<Offset>) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.fail(seen, at, retry_at))
    }

    /// The tasks that a worker has begun, those first that were changed the longest ago.
    ///
    /// # Errors
    /// The database's.
    pub fn running(&self) -> Result<Vec<Task>, TaskStoreError> {
        Ok(self.active()?.into_iter().filter(|task| task.status == Status::Processing).collect())
    }

    /// A worker's heartbeat for a task that it works on. Whether it still is its own.
    ///
    /// # Errors
    /// The database's.
    pub fn beat_for(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.beat_for(id, worker, at))
    }

    /// The failed tasks whose retry is due, by name.
    ///
    /// # Errors
    /// The database's.
    pub fn due_again(&self, at: Offset) -> Result<Vec<TaskId>, TaskStoreError> {
        on!(&self.0, store => store.due_again(at))
    }

    /// When the next retry is due.
    ///
    /// # Errors
    /// The database's.
    pub fn next_retry(&self) -> Result<Option<Offset>, TaskStoreError> {
        on!(&self.0, store => store.next_retry())
    }

    /// Queues a failed task again, as its next try. Whether it still was to be.
    ///
    /// # Errors
    /// The database's.
    pub fn try_again(&self, id: TaskId, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.try_again(id, at))
    }

    /// A worker's sign of life, with the task that it works on. `at` is this machine's clock, `said` the worker's.
    ///
    /// # Errors
    /// The database's.
    pub fn beat(&self, worker: &str, task: Option<TaskId>, at: Offset, said: Offset) -> Result<(), TaskStoreError> {
        on!(&self.0, store => store.beat(worker, task, at, said))
    }

    /// What is known of each worker's last one, at `now` of this machine's clock. The ages are by the store's own: a
    /// database server's, or where the store is a file of this machine's that of the machine.
    ///
    /// # Errors
    /// The database's.
    pub fn beats(&self, now: Offset) -> Result<BTreeMap<String, Beat>, TaskStoreError> {
        on!(&self.0, store => store.beats(now))
    }

    /// A task by its name.
    ///
    /// # Errors
    /// The database's.
    pub fn get(&self, id: TaskId) -> Result<Option<Task>, TaskStoreError> {
        on!(&self.0, store => store.get(id))
    }

    /// Carries out a sweep's actions at `at`, all in one transaction. Returns for each whether its row still stood as it
    /// was seen: a task that somebody began meanwhile is left alone.
    ///
    /// # Errors
    /// The database's; nothing is changed then.
    pub fn act(&mut self, actions: &[Action], at: Offset) -> Result<Vec<bool>, TaskStoreError> {
        on!(&mut self.0, store => store.act(actions, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_the_command_line() {
        let remote = Place::Remote("10.128.128.1:5432".parse().unwrap());
        for place in [Place::Sqlite("/w/t.sqlite".into()), Place::Postgres("/w/sockets".into()), remote] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }
}
