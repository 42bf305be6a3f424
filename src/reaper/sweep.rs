//! The loop of the scheduler: looks, acts, and is armed again when it has acted.

use super::rule::{self, Action, QUEUED_TIMEOUT};
use super::{TaskId, TaskStore, TaskStoreError};
use crate::host::clock::Clock;
use crate::scenario::ReaperSettings;
use crate::units::{Offset, TrialId};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// What a sweep did to one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// It was failed.
    Failed {
        /// The task.
        id: TaskId,
        /// By which rule.
        rule: &'static str,
    },
    /// It was queued again and is to be handed to the broker once more.
    Requeued {
        /// The task.
        id: TaskId,
    },
}

/// A scheduler with a store.
#[derive(Debug)]
pub struct Sweeper {
    store: TaskStore,
    clock: Clock,
    settings: ReaperSettings,
    only: Option<TrialId>,
}

impl Sweeper {
    /// Looks at the tasks of one trial alone.
    #[must_use]
    pub fn only(mut self, trial: Option<TrialId>) -> Self {
        self.only = trial;
        self
    }

    /// A sweeper of this store.
    #[must_use]
    pub fn new(store: TaskStore, clock: Clock, settings: ReaperSettings) -> Self {
        Self { store, clock, settings, only: None }
    }

    /// Sweeps for the first time at `first`, then each interval after the end of the sweep before, as Airflow's timers
    /// are armed again *after* the action. Ends when the other end of `until` is dropped. `doubt` hears of a sweep that came to
    /// nothing: the next one makes up for it.
    pub fn run(
        mut self,
        first: Offset,
        until: &Receiver<()>,
        mut tell: impl FnMut(Offset, Swept),
        mut doubt: impl FnMut(String),
    ) {
        let mut next = first;
        loop {
            match until.recv_timeout(next.since(self.clock.now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.clock.now() < next {
                continue;
            }
            match self.sweep() {
                Ok((done_at, swept)) => swept.into_iter().for_each(|one| tell(done_at, one)),
                Err(error) => doubt(format!("a sweep was given up: {error}")),
            }
            next = self.clock.now() + self.settings.interval;
        }
    }

    /// One sweep: what it did, and when it was committed.
    fn sweep(&mut self) -> Result<(Offset, Vec<Swept>), TaskStoreError> {
        let now = self.clock.now();
        let mut rows = self.store.queued_before(rule::cutoff(&self.settings, now))?;
        rows.retain(|row| self.only.is_none_or(|trial| row.id.trial == trial));
        let actions = rule::decide(&rows, now, &self.settings);
        if actions.is_empty() {
            return Ok((now, Vec::new()));
        }
        let done = self.store.act(&actions, now)?;
        let of = |(action, done): (&Action, bool)| {
            done.then_some(match *action {
                Action::Fail(id) => Swept::Failed { id, rule: QUEUED_TIMEOUT },
                Action::Requeue(id) => Swept::Requeued { id },
            })
        };
        Ok((self.clock.now(), actions.iter().zip(done).filter_map(of).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::*;
    use crate::scenario::{ReaperGeneration, TaskStoreKind};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn it_fails_what_is_old_once_and_ends_when_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = TaskStore::create(&Place::Sqlite(dir.path().join("t"))).unwrap();
        let clock = Clock::start();
        let id = |message| TaskId { trial: 1, message };
        for message in 0..2 {
            store.queue(id(message), clock.now()).unwrap();
        }
        store.begin(id(1), "w", clock.now()).unwrap();
        let ms = Duration::from_millis;
        let settings = ReaperSettings {
            timeout: ms(40),
            interval: ms(15),
            generation: ReaperGeneration::FailsAtOnce,
            store: TaskStoreKind::Sqlite,
            liveness: None,
            reapers: 1,
            inside_the_worker: false,
        };
        let (end, until) = channel();
        let mut end = Some(end);
        let mut told = Vec::new();
        let first = clock.now() + ms(5);
        let heard = |at: Offset, swept: Swept| {
            told.push((at, swept));
            end = None;
        };
        Sweeper::new(store, clock, settings).run(first, &until, heard, |doubt| panic!("{doubt}"));
        let [(at, swept)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*swept, Swept::Failed { id: id(0), rule: QUEUED_TIMEOUT });
        assert!(*at > Offset::ZERO + ms(40), "{at}");
    }
}
