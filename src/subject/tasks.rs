//! The task store as consumers and the producer see it.
//!
//! Mostly one connection a process, shared by its trials, to a file in the run's private tmpfs or a socket there, so that no
//! fault can touch it: what a worker writes about its tasks travels beside the connection under test, as it does where
//! workers write to a metadata database. Where a scenario has the workers reach it over the network, each trial has
//! connections of its own to its own server's address, which a fault may cut; one that broke is opened anew at the next
//! statement.

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

/// The store, opened when it is first needed.
#[derive(Debug, Clone)]
pub(super) struct TaskLog(Arc<Link>);

#[derive(Debug)]
struct Link {
    place: Place,
    open: Mutex<Option<TaskStore>>,
}

impl TaskLog {
    /// The store that `--store PLACE` names; `None` without it.
    ///
    /// # Errors
    /// When there is no store there.
    pub fn of_args(args: &[String]) -> io::Result<Option<Self>> {
        let Some(path) = flag(args, STORE) else { return Ok(None) };
        let log = Self::at(path)?;
        log.with(|_| Ok(())).map_err(io::Error::other)?;
        Ok(Some(log))
    }

    /// The store at this place, not opened yet.
    ///
    /// # Errors
    /// When the text names no place.
    pub fn at(place: &str) -> io::Result<Self> {
        let place = place.parse().map_err(io::Error::other)?;
        Ok(Self(Arc::new(Link { place, open: Mutex::new(None) })))
    }

    /// The same store by a connection of its own.
    pub fn another(&self) -> Self {
        Self(Arc::new(Link { place: self.0.place.clone(), open: Mutex::new(None) }))
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskStore>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the open store. Blocks for as long as another thread has it, and for as long as it takes.
    fn with<T>(&self, what: impl FnOnce(&TaskStore) -> Result<T, TaskStoreError>) -> Result<T, TaskStoreError> {
        let mut open = self.lock();
        let store = match &mut *open {
            Some(store) => store,
            none => none.insert(TaskStore::open(&self.0.place)?),
        };
        let answer = what(store);
        // Over a network an error may be the connection's: nothing more is to be had from that one.
        if answer.is_err() && self.0.place.is_remote() {
            *open = None;
        }
        answer
    }

    /// A message is about to be published. Blocks for as long as another process writes.
    ///
    /// # Errors
    /// The store's.
    pub fn queue(&self, trial: TrialId, message: u64, at: Offset) -> Result<(), TaskStoreError> {
        self.with(|store| store.queue(TaskId { trial, message }, at).map(drop))
    }

    /// A worker begins; whether it may, and whether somebody had begun before. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn begin(&self, id: TaskId, worker: &str, begins: Begins, at: Offset) -> Result<Begun, TaskStoreError> {
        self.with(|store| {
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
        })
    }

    /// A worker lives, and works on this message; by its own clock it is `said`. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn beat(&self, worker: &str, task: Option<TaskId>, at: Offset, said: Offset) -> Result<(), TaskStoreError> {
        self.with(|store| store.beat(worker, task, at, said))
    }

    /// A worker works on these tasks. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn beat_for(&self, worker: &str, tasks: &[TaskId], at: Offset) -> Result<(), TaskStoreError> {
        self.with(|store| tasks.iter().try_for_each(|id| store.beat_for(*id, worker, at).map(drop)))
    }

    /// A worker is done; whether the task was its own. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn finish(&self, id: TaskId, worker: &str, at: Offset) -> Result<bool, TaskStoreError> {
        self.with(|store| store.finish(id, worker, at))
    }
}
