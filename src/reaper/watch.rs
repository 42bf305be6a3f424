//! The loop of a reaper that knows which workers live.

use super::own::{Address, alive};
use super::rule::liveness::{Limits, Stage, Worker, judge};
use super::{Place, Status, Swept, Task, TaskStore, TaskStoreError};
use crate::host::clock::Clock;
use crate::scenario::{LivenessRule, LivenessStore, ReaperSettings};
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
    only: Option<TrialId>,
}

impl Watch {
    /// Looks at the tasks of one trial alone.
    #[must_use]
    pub fn only(mut self, trial: Option<TrialId>) -> Self {
        self.only = trial;
        self
    }

    /// A reaper of the store at this place. `redis` is the address of the keys, as a URL.
    ///
    /// # Errors
    /// When the store can't be opened.
    pub fn open(
        place: &Place,
        clock: Clock,
        settings: ReaperSettings,
        rule: LivenessRule,
        redis: Option<String>,
    ) -> Result<Self, TaskStoreError> {
        Ok(Self { store: TaskStore::open(place)?, clock, settings, rule, redis: redis.map(Address::Plain), only: None })
    }

    /// Sweeps at `first` and at every interval after it, as a clock strikes: a long sweep does not shift the next. Ends when the
    /// other end of `until` is dropped. `doubt` hears what could not be known, and of a sweep that came to nothing: the next
    /// one makes up for it.
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
            if let Err(error) = self.sweep(&mut tell, &mut doubt) {
                doubt(format!("a sweep was given up: {error}"));
            }
            while next <= self.clock.now() {
                next = next + self.settings.interval;
            }
        }
    }

    fn sweep(
        &mut self,
        tell: &mut impl FnMut(Offset, Swept),
        doubt: &mut impl FnMut(String),
    ) -> Result<(), TaskStoreError> {
        let mut rows = self.store.active()?;
        rows.retain(|row| self.only.is_none_or(|trial| row.id.trial == trial));
        let workers = self.workers(&rows, doubt)?;
        // After the look at the workers, which takes time: an age is never older than what is known of its worker.
        let now = self.clock.now();
        let limits = Limits { pending: self.settings.timeout, processing: self.rule.processing };
        for row in &rows {
            let stage = if row.status == Status::Pending { Stage::Pending } else { Stage::Processing };
            let worker = match &row.worker_id {
                None => Worker::Unnamed,
                Some(name) => workers.get(name).copied().unwrap_or(Worker::Unknown),
            };
            let age = now.since(row.updated_at);
            // A task that has just begun may be quicker than its worker's first sign of life.
            let worker = if worker == Worker::Gone && age < self.rule.grace { Worker::Alive } else { worker };
            let Some(why) = judge(stage, worker, age, &limits) else { continue };
            if self.store.fail(row, self.clock.now())? {
                tell(self.clock.now(), Swept::Failed { id: row.id, rule: why.name() });
            }
        }
        Ok(())
    }

    fn workers(
        &self,
        rows: &[Task],
        doubt: &mut impl FnMut(String),
    ) -> Result<BTreeMap<String, Worker>, TaskStoreError> {
        let mut names: Vec<String> = rows.iter().filter_map(|row| row.worker_id.clone()).collect();
        names.sort();
        names.dedup();
        let known = match (&self.rule.store, &self.redis) {
            _ if names.is_empty() => BTreeMap::new(),
            (LivenessStore::None, _) | (LivenessStore::Redis, None) => return Ok(BTreeMap::new()),
            (LivenessStore::Table, _) => {
                let beats = self.store.beats()?;
                let now = self.clock.now();
                let lives = |name: &String| beats.get(name).is_some_and(|at| now.since(*at) <= self.rule.ttl);
                names.iter().map(|name| (name.clone(), lives(name))).collect()
            }
            (LivenessStore::Redis, Some(address)) => match alive(address, None, "worker:{id}", &names) {
                Ok(known) => known,
                Err(error) => {
                    doubt(format!("liveness is not known, age alone decides: {error}"));
                    BTreeMap::new()
                }
            },
        };
        let worker = |alive: bool| if alive { Worker::Alive } else { Worker::Gone };
        Ok(known.into_iter().map(|(name, alive)| (name, worker(alive))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::TaskId;
    use super::*;
    use crate::scenario::{ReaperGeneration, TaskStoreKind};
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
        store.beat("well", None, clock.now() + Duration::from_secs(3600)).unwrap();
        let rule = LivenessRule {
            store: LivenessStore::Table,
            period: ms(10),
            ttl: ms(30),
            processing: ms(400),
            grace: Duration::ZERO,
        };
        let settings = ReaperSettings {
            timeout: ms(200),
            interval: ms(20),
            generation: ReaperGeneration::FailsAtOnce,
            store: TaskStoreKind::Sqlite,
            liveness: Some(rule.clone()),
            reapers: 1,
            inside_the_worker: false,
        };
        let (end, until) = channel();
        let mut end = Some(end);
        let mut told = Vec::new();
        let watch = Watch::open(&place, clock, settings, rule, None).unwrap();
        let heard = |at: Offset, swept: Swept| {
            told.push((at, swept));
            if told.len() == 3 {
                end = None;
            }
        };
        watch.run(clock.now(), &until, heard, |doubt| panic!("{doubt}"));
        let of = |message, rule| Swept::Failed { id: id(message), rule };
        let swept: Vec<Swept> = told.iter().map(|(_, swept)| swept.clone()).collect();
        assert_eq!(swept, [of(0, "liveness_ttl"), of(2, "pending_timeout"), of(1, "processing_timeout")]);
        assert!(told[1].0 >= Offset::ZERO + ms(200) && told[2].0 >= Offset::ZERO + ms(400), "{told:?}");
    }
}
