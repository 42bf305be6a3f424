//! The loop of Airflow's scheduler: looks at queued rows, at running ones where it has a watcher for them, and at those whose
//! retry is due; acts, and is armed again when it has acted.

use super::rule::guard::{Brake, guard};
use super::rule::heartbeat::{self, TASK_HEARTBEAT};
use super::rule::{self, Action, QUEUED_TIMEOUT};
use super::{TaskId, TaskStore, TaskStoreError, Told};
use crate::host::clock::Clock;
use crate::scenario::{BrakeSettings, ReaperSettings};
use crate::units::{Offset, TrialId};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// A scheduler with a store.
#[derive(Debug)]
pub struct Sweeper {
    store: TaskStore,
    clock: Clock,
    settings: ReaperSettings,
    only: Option<TrialId>,
}

/// The brake of a scenario.
pub(super) fn brake(settings: &BrakeSettings) -> Brake {
    Brake { max_fail: usize::try_from(settings.max_fail).unwrap_or(usize::MAX), max_share: settings.max_share }
}

impl Sweeper {
    /// A sweeper of this store.
    #[must_use]
    pub fn new(store: TaskStore, clock: Clock, settings: ReaperSettings) -> Self {
        Self { store, clock, settings, only: None }
    }

    /// Looks at the tasks of one trial alone.
    #[must_use]
    pub fn only(mut self, trial: Option<TrialId>) -> Self {
        self.only = trial;
        self
    }

    fn is_own(&self, id: TaskId) -> bool {
        self.only.is_none_or(|trial| id.trial == trial)
    }

    /// Looks at queued rows for the first time at `first`, then each interval after the end of the look before, as Airflow's
    /// timers are armed again *after* the action; and at running ones likewise. Ends when the other end of `until` is
    /// dropped. A look that came to nothing is told as a doubt: the next one makes up for it.
    pub fn run(mut self, first: Offset, until: &Receiver<()>, mut tell: impl FnMut(Offset, Told)) {
        let mut queued = first;
        // Of its own timers, each begins somewhere within its interval.
        let mut running = self.settings.running.map(|rule| {
            let place = first.since(self.clock.now()).as_secs_f64() / self.settings.interval.as_secs_f64();
            self.clock.now() + rule.interval.mul_f64(place.fract())
        });
        let mut again = self.next_retry(&mut tell);
        loop {
            let next = [Some(queued), running, again].into_iter().flatten().min().unwrap_or(queued);
            match until.recv_timeout(next.since(self.clock.now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.clock.now();
            if now >= queued {
                let looked = self.queued(&mut tell);
                self.given_up(looked, &mut tell);
                queued = self.clock.now() + self.settings.interval;
            }
            if running.is_some_and(|at| now >= at) {
                let looked = self.running(&mut tell);
                self.given_up(looked, &mut tell);
                running = self.settings.running.map(|rule| self.clock.now() + rule.interval);
            }
            if again.is_some_and(|at| now >= at) {
                let looked = self.again(&mut tell);
                self.given_up(looked, &mut tell);
            }
            again = self.next_retry(&mut tell);
        }
    }

    /// When the next retry is due; a store that does not say so is asked again after an interval.
    fn next_retry(&self, tell: &mut impl FnMut(Offset, Told)) -> Option<Offset> {
        // Where nothing is ever retried the store need not be asked.
        self.settings.retry?;
        match self.store.next_retry() {
            Ok(next) => next,
            Err(error) => {
                self.given_up(Err(error), tell);
                Some(self.clock.now() + self.settings.interval)
            }
        }
    }

    fn given_up(&self, looked: Result<(), TaskStoreError>, tell: &mut impl FnMut(Offset, Told)) {
        if let Err(error) = looked {
            tell(self.clock.now(), Told::Doubt(format!("a sweep was given up: {error}")));
        }
    }

    /// All that it has to look at, once.
    ///
    /// # Errors
    /// The store's.
    pub fn sweep(&mut self, tell: &mut impl FnMut(Offset, Told)) -> Result<(), TaskStoreError> {
        self.again(tell)?;
        self.running(tell)?;
        self.queued(tell)
    }

    /// Queued rows.
    fn queued(&mut self, tell: &mut impl FnMut(Offset, Told)) -> Result<(), TaskStoreError> {
        let now = self.clock.now();
        let mut rows = self.store.queued_before(rule::cutoff(&self.settings, now))?;
        rows.retain(|row| self.is_own(row.id));
        let actions = rule::decide(&rows, now, &self.settings);
        let doomed = actions.iter().filter(|action| matches!(action, Action::Fail { .. })).count();
        if let Some(why) = self.held(doomed)? {
            tell(now, Told::Looked { rows: rows.len(), failed: 0, held: Some(why) });
            return Ok(());
        }
        let done = if actions.is_empty() { Vec::new() } else { self.store.act(&actions, now)? };
        let at = self.clock.now();
        let mut failed = 0;
        for (action, _) in actions.iter().zip(done).filter(|(_, done)| *done) {
            tell(
                at,
                match *action {
                    Action::Fail { id, retry_at } => {
                        failed += 1;
                        Told::Failed { id, rule: QUEUED_TIMEOUT, retried: retry_at.is_some() }
                    }
                    Action::Requeue(id) => Told::Requeued { id },
                },
            );
        }
        tell(at, Told::Looked { rows: rows.len(), failed, held: None });
        Ok(())
    }

    /// Running rows, where it has a watcher for them.
    fn running(&mut self, tell: &mut impl FnMut(Offset, Told)) -> Result<(), TaskStoreError> {
        let Some(rule) = self.settings.running else { return Ok(()) };
        let mut rows = self.store.running()?;
        rows.retain(|row| self.is_own(row.id));
        let now = self.clock.now();
        let doomed: Vec<_> = rows.iter().filter(|row| heartbeat::fails(row, &rule, now)).collect();
        if let Some(why) = self.held(doomed.len())? {
            tell(now, Told::Looked { rows: rows.len(), failed: 0, held: Some(why) });
            return Ok(());
        }
        for row in doomed {
            let retry_at = rule::retry_at(row, now, &self.settings);
            if self.store.fail(row, self.clock.now(), retry_at)? {
                let told = Told::Failed { id: row.id, rule: TASK_HEARTBEAT, retried: retry_at.is_some() };
                tell(self.clock.now(), told);
            }
        }
        Ok(())
    }

    /// Failed rows whose retry is due.
    fn again(&mut self, tell: &mut impl FnMut(Offset, Told)) -> Result<(), TaskStoreError> {
        let due = self.store.due_again(self.clock.now())?;
        for id in due.into_iter().filter(|id| self.is_own(*id)) {
            if self.store.try_again(id, self.clock.now())? {
                tell(self.clock.now(), Told::Requeued { id });
            }
        }
        Ok(())
    }

    /// Why this many rows must not be failed.
    fn held(&self, doomed: usize) -> Result<Option<String>, TaskStoreError> {
        let Some(settings) = self.settings.brake.filter(|_| doomed > 0) else { return Ok(None) };
        let active = self.store.active()?.iter().filter(|row| self.is_own(row.id)).count();
        Ok(guard(doomed, active, &BTreeMap::new(), &brake(&settings)).map(|stop| stop.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::*;
    use crate::scenario::{Retry, TaskHeartbeat};
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
        let settings = ReaperSettings::queued(ms(40), ms(15));
        let (end, until) = channel();
        let mut end = Some(end);
        let mut told = Vec::new();
        let first = clock.now() + ms(5);
        Sweeper::new(store, clock, settings).run(first, &until, |at, told_of| {
            if !matches!(told_of, Told::Looked { .. }) {
                told.push((at, told_of));
                end = None;
            }
        });
        let [(at, swept)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*swept, Told::Failed { id: id(0), rule: QUEUED_TIMEOUT, retried: false });
        assert!(*at > Offset::ZERO + ms(40), "{at}");
    }

    #[test]
    fn a_running_task_without_a_heartbeat_is_failed_and_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Sqlite(dir.path().join("t"));
        let (store, clock) = (TaskStore::create(&place).unwrap(), Clock::start());
        let ms = Duration::from_millis;
        let id = |message| TaskId { trial: 1, message };
        for message in 0..2 {
            store.queue(id(message), clock.now()).unwrap();
            store.begin(id(message), "w", clock.now()).unwrap();
        }
        // Its heart beats on in the test's future.
        store.beat_for(id(1), "w", clock.now() + Duration::from_secs(3600)).unwrap();
        let running = TaskHeartbeat { timeout: ms(30), interval: ms(10), period: ms(5) };
        let settings = ReaperSettings {
            running: Some(running),
            retry: Some(Retry { times: 1, delay: ms(40) }),
            ..ReaperSettings::queued(Duration::from_secs(3600), Duration::from_secs(3600))
        };
        let (end, until) = channel();
        let mut end = Some(end);
        let mut told = Vec::new();
        let heard = |at: Offset, one: Told| {
            told.push((at, one));
            if told.len() == 2 {
                end = None;
            }
        };
        Sweeper::new(store, clock, settings).run(clock.now() + Duration::from_secs(900), &until, heard);
        let [(failed, first), (again, second)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*first, Told::Failed { id: id(0), rule: TASK_HEARTBEAT, retried: true });
        assert_eq!(*second, Told::Requeued { id: id(0) });
        assert!(again.since(*failed) >= ms(39), "{told:?}");
    }

    #[test]
    fn the_brake_holds_everything_back_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Sqlite(dir.path().join("t"));
        let (store, clock) = (TaskStore::create(&place).unwrap(), Clock::start());
        for message in 0..4 {
            store.queue(TaskId { trial: 1, message }, Offset(-1_000_000_000)).unwrap();
        }
        let brake = |max_fail, max_share| Some(BrakeSettings { max_fail, max_share });
        for (brake, failed, held) in [(brake(50, 0.2), 0, true), (brake(3, 1.0), 0, true), (brake(4, 1.0), 4, false)] {
            let settings =
                ReaperSettings { brake, ..ReaperSettings::queued(Duration::from_millis(1), Duration::from_secs(1)) };
            let mut told = Vec::new();
            let mut sweeper = Sweeper::new(TaskStore::open(&place).unwrap(), clock, settings);
            sweeper.sweep(&mut |_, one| told.push(one)).unwrap();
            let Some(Told::Looked { rows: 4, failed: n, held: why }) = told.last() else { panic!("{told:?}") };
            assert_eq!((*n, why.is_some()), (failed, held), "{why:?}");
        }
    }
}
