//! The task store as consumers and the producer see it: one connection a process, shared by its trials.
//!
//! It is a file in the run's private tmpfs, or behind a socket there, so no fault can touch it: what a worker writes about its tasks travels beside
//! the connection under test, as it does where workers write to a metadata database.

use super::child::flag;
use crate::reaper::{Place, TaskId, TaskStore, TaskStoreError};
use crate::scenario::Begins;
use crate::units::{Offset, TrialId};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The flag of a child that names its store.
pub(super) const STORE: &str = "--store";

/// What became of an attempt to begin a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Nobody had begun it.
    First,
    /// Somebody may have done some of it.
    Again,
    /// It is not there to be begun.
    Refused,
}

/// The store, open.
#[derive(Debug, Clone)]
pub(super) struct TaskLog(Arc<Mutex<TaskStore>>);

impl TaskLog {
    /// The store that `--store PLACE` names; `None` without it.
    ///
    /// # Errors
    /// When there is no store there.
    pub fn of_args(args: &[String]) -> io::Result<Option<Self>> {
        let Some(path) = flag(args, STORE) else { return Ok(None) };
        let place: Place = path.parse().map_err(io::Error::other)?;
        let store = TaskStore::open(&place).map_err(io::Error::other)?;
        Ok(Some(Self(Arc::new(Mutex::new(store)))))
    }

    fn store(&self) -> MutexGuard<'_, TaskStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message is about to be published. Blocks for as long as another process writes.
    ///
    /// # Errors
    /// The store's.
    pub fn queue(&self, trial: TrialId, message: u64, at: Offset) -> Result<(), TaskStoreError> {
        self.store().queue(TaskId { trial, message }, at).map(drop)
    }

    /// A worker begins; whether it may, and whether somebody had begun before. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn begin(&self, id: TaskId, worker: &str, begins: Begins, at: Offset) -> Result<Begun, TaskStoreError> {
        let store = self.store();
        if store.begin(id, worker, at)? {
            return Ok(Begun::First);
        }
        let again = match begins {
            Begins::Pending => false,
            Begins::Unfinished => store.resume(id, worker, at)?,
            Begins::Any => {
                store.resume(id, worker, at)?;
                true
            }
        };
        Ok(if again { Begun::Again } else { Begun::Refused })
    }

    /// A worker lives, and works on this message. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn beat(&self, worker: &str, task: Option<TaskId>, at: Offset) -> Result<(), TaskStoreError> {
        self.store().beat(worker, task, at)
    }

    /// A worker is done; whether the task was its own. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn finish(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        self.store().finish(id, worker, at)
    }
}
