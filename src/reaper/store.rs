//! Where the tasks of a run are: an embedded SQLite, or a PostgreSQL that the lab started. One schema, one set of
//! conditional changes, so that of two who act on one row the second changes nothing, whichever store it is.
//!
//! Neither is reached over a network: a file, and a socket in the file system, have no connection that a fault could cut. They
//! stand for the metadata database that a worker reaches over a path of its own, which stays healthy.

use super::postgres::PostgresStore;
use super::rule::Action;
use super::sqlite::SqliteStore;
use super::{Task, TaskId};
use crate::units::{Offset, TrialId};
use std::collections::BTreeMap;
use std::fmt;
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
    attempts   INTEGER NOT NULL
);
CREATE INDEX task_by_age ON task (status, queued_at);
CREATE TABLE worker_status (
    worker_id         TEXT PRIMARY KEY,
    last_heartbeat_at BIGINT NOT NULL,
    current_task_id   TEXT,
    status            TEXT NOT NULL CHECK (status IN ('busy', 'idle'))
);";

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

/// Where a store is. Written as a path, or `postgres:` and the folder of the server's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// The folder with the server's socket.
    Postgres(PathBuf),
}

const POSTGRES: &str = "postgres:";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres(path) => write!(f, "{POSTGRES}{}", path.display()),
        }
    }
}

impl FromStr for Place {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
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
            Place::Postgres(sockets) => Kind::Postgres(Box::new(PostgresStore::create(sockets, SCHEMA)?)),
        }))
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(place: &Place) -> Result<Self, TaskStoreError> {
        Ok(Self(match place {
            Place::Sqlite(path) => Kind::Sqlite(SqliteStore::open(path)?),
            Place::Postgres(sockets) => Kind::Postgres(Box::new(PostgresStore::open(sockets)?)),
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

    /// Fails a task if its row still is as it was read: its state, its worker and the time of its last change. Whether it was.
    ///
    /// # Errors
    /// The database's.
    pub fn fail(&self, seen: &Task, at: Offset) -> Result<bool, TaskStoreError> {
        on!(&self.0, store => store.fail(seen, at))
    }

    /// A worker's sign of life, with the task that it works on.
    ///
    /// # Errors
    /// The database's.
    pub fn beat(&self, worker: &str, task: Option<TaskId>, at: Offset) -> Result<(), TaskStoreError> {
        on!(&self.0, store => store.beat(worker, task, at))
    }

    /// When each worker gave its last one.
    ///
    /// # Errors
    /// The database's.
    pub fn beats(&self) -> Result<BTreeMap<String, Offset>, TaskStoreError> {
        on!(&self.0, store => store.beats())
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
        for place in [Place::Sqlite("/w/t.sqlite".into()), Place::Postgres("/w/sockets".into())] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }
}
