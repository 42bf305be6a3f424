//! The loop of a reaper that knows which workers live.

use super::own::{Address, alive};
use super::rule::guard::guard;
use super::rule::liveness::{Limits, Stage, Why, Worker, judge};
use super::sweep::brake;
use super::{Beat, Place, Status, Task, TaskStore, TaskStoreError, Told, Workers};
use crate::host::clock::Clock;
use crate::scenario::{LivenessRule, LivenessStore, ReaperSettings, TableClock};
use crate::units::{Offset, TrialId};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// A reaper with a store, and a Redis where the workers' keys are there.
#[derive(Debug)]
pub struct Watch {
    store: TaskStore,
    clock: Clock,
    settings: ReaperSettings,
    rule: LivenessRule,
    redis: Option<Address>,
    workers: Workers,
    only: Option<TrialId>,
}

impl Watch {
    /// A reaper of the store at this place.
    ///
    /// # Errors
    /// When the store can't be opened.
    pub fn open(
        place: &Place,
        clock: Clock,
        settings: ReaperSettings,
        rule: LivenessRule,
        workers: Workers,
    ) -> Result<Self, TaskStoreError> {
        let redis = workers.redis.clone().map(Address::Plain);
        Ok(Self { store: TaskStore::open(place)?, clock, settings, rule, redis, workers, only: None })
    }

    /// Looks at the tasks of one trial alone.
    #[must_use]
    pub fn only(mut self, trial: Option<TrialId>) -> Self {
        self.only = trial;
        self
    }

    /// Sweeps at `first` and at every interval after it, as a clock strikes: a long sweep does not shift the next. Ends when the
    /// other end of `until` is dropped. What could not be known is told, and a sweep that came to nothing: the next one makes up
    /// for it.
    pub fn run(mut self, first: Offset, until: &Receiver<()>, mut tell: impl FnMut(Offset, Told)) {
        let mut next = first;
        loop {
            match until.recv_timeout(next.since(self.clock.now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.clock.now() < next {
                continue;
            }
            if let Err(error) = self.sweep(&mut tell) {
                tell(self.clock.now(), Told::Doubt(format!("a sweep was given up: {error}")));
            }
            while next <= self.clock.now() {
                next = next + self.settings.interval;
            }
        }
    }

    /// One sweep.
    ///
    /// # Errors
    /// The store's.
    pub fn sweep(&mut self, tell: &mut impl FnMut(Offset, Told)) -> Result<(), TaskStoreError> {
        let mut rows = self.store.active()?;
        rows.retain(|row| self.only.is_none_or(|trial| row.id.trial == trial));
        let workers = self.workers(&rows, tell)?;
        // After the look at the workers, which takes time: an age is never older than what is known of its worker.
        let now = self.clock.now();
        let limits = Limits { pending: self.settings.timeout, processing: self.rule.processing };
        let judged = |row: &Task| {
            let stage = if row.status == Status::Pending { Stage::Pending } else { Stage::Processing };
            let worker = match &row.worker_id {
                None => Worker::Unnamed,
                Some(name) => workers.get(name).copied().unwrap_or(Worker::Unknown),
            };
            let age = now.since(row.updated_at);
            // A task that has just begun may be quicker than its worker's first sign of life.
            let worker = if worker == Worker::Gone && age < self.rule.grace { Worker::Alive } else { worker };
            judge(stage, worker, age, &limits)
        };
        let doomed: Vec<(&Task, Why)> = rows.iter().filter_map(|row| Some((row, judged(row)?))).collect();
        if let Some(settings) = &self.settings.brake {
            let known: BTreeMap<&str, Worker> = workers.iter().map(|(name, worker)| (name.as_str(), *worker)).collect();
            if let Some(stop) = guard(doomed.len(), rows.len(), &known, &brake(settings)) {
                tell(now, Told::Looked { rows: rows.len(), failed: 0, held: Some(stop.to_string()) });
                return Ok(());
            }
        }
        let mut failed = 0;
        for (row, why) in doomed {
            if self.store.fail(row, self.clock.now(), None)? {
                failed += 1;
                tell(self.clock.now(), Told::Failed { id: row.id, rule: why.name(), retried: false });
            }
        }
        tell(self.clock.now(), Told::Looked { rows: rows.len(), failed, held: None });
        Ok(())
    }

    /// Where the worker of a row gives its signs of life.
    fn store_of(&self, row: &Task) -> LivenessStore {
        self.workers.elsewhere.get(&row.id.trial).copied().unwrap_or(self.rule.store)
    }

    fn workers(
        &self,
        rows: &[Task],
        tell: &mut impl FnMut(Offset, Told),
    ) -> Result<BTreeMap<String, Worker>, TaskStoreError> {
        let mut names: BTreeMap<String, LivenessStore> = BTreeMap::new();
        for row in rows {
            if let Some(name) = &row.worker_id {
                names.insert(name.clone(), self.store_of(row));
            }
        }
        let of = |store: LivenessStore| -> Vec<String> {
            names.iter().filter(|(_, own)| **own == store).map(|(name, _)| name.clone()).collect()
        };
        let mut known = BTreeMap::new();
        let worker = |alive: bool| if alive { Worker::Alive } else { Worker::Gone };
        let in_table = of(LivenessStore::Table);
        if !in_table.is_empty() {
            let now = self.clock.now();
            let beats = self.store.beats(now)?;
            let age = |beat: &Beat| match self.rule.clock {
                TableClock::Store => beat.age,
                TableClock::Worker => now.since(beat.said),
            };
            let lives = |name: &String| beats.get(name).is_some_and(|beat| age(beat) <= self.rule.ttl);
            known.extend(in_table.iter().map(|name| (name.clone(), worker(lives(name)))));
        }
        let in_redis = of(LivenessStore::Redis);
        if let Some(address) = self.redis.as_ref().filter(|_| !in_redis.is_empty()) {
            match alive(address, None, "worker:{id}", &in_redis) {
                Ok(found) => known.extend(found.into_iter().map(|(name, alive)| (name, worker(alive)))),
                Err(error) => {
                    let doubt = format!("liveness is not known, age alone decides: {error}");
                    tell(self.clock.now(), Told::Doubt(doubt));
                }
            }
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TaskId;
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_worker_without_a_heartbeat_loses_its_task_and_a_living_one_only_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Sqlite(dir.path().join("t"));
        let store = TaskStore::create(&place).unwrap();
        let (clock, ms) = (Clock::start(), Duration::from_millis);
        let id = |message| TaskId { trial: 1, message };
        for (message, worker) in [(0, Some("dead")), (1, Some("well")), (2, None)] {
            store.queue(id(message), clock.now()).unwrap();
            if let Some(worker) = worker {
                store.begin(id(message), worker, clock.now()).unwrap();
            }
        }
        // Its heart beats on in the test's future: it is alive whatever the machine does meanwhile.
        let future = clock.now() + Duration::from_secs(3600);
        store.beat("well", None, future, future).unwrap();
        let rule = LivenessRule {
            store: LivenessStore::Table,
            period: ms(10),
            ttl: ms(30),
            processing: ms(400),
            grace: Duration::ZERO,
            clock: TableClock::Store,
        };
        let settings = ReaperSettings { liveness: Some(rule.clone()), ..ReaperSettings::queued(ms(200), ms(20)) };
        let (end, until) = channel();
        let mut end = Some(end);
        let mut told = Vec::new();
        let watch = Watch::open(&place, clock, settings, rule, Workers::default()).unwrap();
        let heard = |at: Offset, swept: Told| {
            if !matches!(swept, Told::Looked { .. }) {
                told.push((at, swept));
            }
            if told.len() == 3 {
                end = None;
            }
        };
        watch.run(clock.now(), &until, heard);
        let of = |message, rule| Told::Failed { id: id(message), rule, retried: false };
        let swept: Vec<Told> = told.iter().map(|(_, swept)| swept.clone()).collect();
        assert_eq!(swept, [of(0, "liveness_ttl"), of(2, "pending_timeout"), of(1, "processing_timeout")]);
        assert!(told[1].0 >= Offset::ZERO + ms(200) && told[2].0 >= Offset::ZERO + ms(400), "{told:?}");
    }
}
