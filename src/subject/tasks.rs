//! The task store as consumers and the producer see it.
//!
//! Mostly one connection a process, shared by its trials, to a file in the run's private tmpfs or a socket there, so that no
//! fault can touch it: what a worker writes about its tasks travels beside the connection under test, as it does where
//! workers write to a metadata database. Where a scenario has the workers reach it over the network, each trial has
//! connections of its own to its own server's address, which a fault may cut; one that broke is opened anew at the next
//! statement.

use super::child::flag;
use crate::reaper::{Place, TaskId, TaskStore, TaskStoreError, worker_name};
use crate::units::{Offset, TrialId};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The flag of a child that names its store.
pub(super) const STORE: &str = "--store";

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

    /// The trial's worker begins; whether it may. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn begin(&self, trial: TrialId, message: u64, at: Offset) -> Result<bool, TaskStoreError> {
        self.with(|store| store.begin(TaskId { trial, message }, &worker_name(trial), at))
    }

    /// The trial's worker lives, and works on this message; by its own clock it is `said`. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn beat(&self, trial: TrialId, message: Option<u64>, at: Offset, said: Offset) -> Result<(), TaskStoreError> {
        let task = message.map(|message| TaskId { trial, message });
        self.with(|store| store.beat(&worker_name(trial), task, at, said))
    }

    /// The trial's worker works on these messages. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn beat_for(&self, trial: TrialId, messages: &[u64], at: Offset) -> Result<(), TaskStoreError> {
        self.with(|store| {
            let worker = worker_name(trial);
            messages.iter().try_for_each(|m| store.beat_for(TaskId { trial, message: *m }, &worker, at).map(drop))
        })
    }

    /// The trial's worker is done; whether the task was its own. Blocks as above.
    ///
    /// # Errors
    /// The store's.
    pub fn finish(&self, trial: TrialId, message: u64, at: Offset) -> Result<bool, TaskStoreError> {
        self.with(|store| store.finish(TaskId { trial, message }, &worker_name(trial), at))
    }
}
