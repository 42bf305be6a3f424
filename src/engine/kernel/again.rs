//! What a fault kills is started again here: a worker, the reapers, the database of the task store, the brokers. The fault is
//! healed once the new processes answer, and its proof is that they run and are others than those that were killed.

use super::super::actor::Proof;
use super::*;
use crate::fault::Applied;
use crate::lab::Waiter;
use crate::reaper::{Status, worker_name};
use crate::scenario::{ReaperSettings, WorkerId};
use crate::subject::protocol::Worker;
use std::collections::HashSet;

/// What the store keeps for so long is settled: whoever did it has had the time to say so.
const SETTLED: Duration = Duration::from_secs(2);

/// Processes that are being started for others that were killed.
#[derive(Debug)]
struct Pending {
    act: Act,
    trials: Vec<TrialId>,
    began: Offset,
    /// Those that were killed.
    old: Vec<u32>,
}

/// A step of a message's way that somebody has told of.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Told {
    Started,
    Finished,
    Reaped,
}

/// What is known of processes that were killed, and of their successors.
#[derive(Debug, Default)]
pub(super) struct StartedAgain {
    /// The highest number among a trial's connections.
    attempts: HashMap<TrialId, u32>,
    /// How often a trial's worker was started again.
    times: HashMap<TrialId, u32>,
    /// Workers that were killed and whose place another child has.
    former: HashMap<usize, TrialId>,
    /// New workers and reapers that have not said hello.
    silent: HashSet<usize>,
    /// What waits for them, by trial; for what concerns everybody under the first one.
    pending: HashMap<TrialId, Pending>,
    /// When the reaper's first sweep was to be.
    first_sweep: Option<Offset>,
    /// What was told of each message.
    told: HashSet<(TrialId, u64, Told)>,
}

impl StartedAgain {
    /// Remembers what somebody told of a trial.
    pub(super) fn note(&mut self, trial: TrialId, kind: &Kind) {
        let told = match kind {
            Kind::Connecting { attempt } => {
                let highest = self.attempts.entry(trial).or_default();
                *highest = (*highest).max(*attempt);
                return;
            }
            Kind::Started { message, .. } => (trial, *message, Told::Started),
            Kind::Finished { message, .. } => (trial, *message, Told::Finished),
            Kind::Reaped { message, .. } => (trial, *message, Told::Reaped),
            _ => return,
        };
        self.told.insert(told);
    }

    /// The reaper's sweeps strike from then on.
    pub(super) fn strikes_from(&mut self, first: Offset) {
        self.first_sweep = Some(first);
    }

    /// From now to the next strike: one that is started again keeps to the clock.
    fn next_strike(&self, now: Offset, interval: Duration) -> Duration {
        let mut next = self.first_sweep.unwrap_or(now);
        while next <= now {
            next = next + interval;
        }
        next.since(now)
    }
}

impl Run<'_> {
    /// Whether this child may be dead because a fault killed it.
    pub(super) fn may_be_killed(&self, index: usize) -> bool {
        let named = self.children.get(index).is_some_and(|child| child.name() == REAPER);
        let reaper = named && does(self.plan, |act| act == Act::KillReaper);
        reaper || self.former_or_worker(index).is_some() && does(self.plan, |act| act == Act::KillWorker)
    }

    /// The trial whose worker this child is or was.
    pub(super) fn former_or_worker(&self, index: usize) -> Option<TrialId> {
        let now = self.workers.iter().find(|(_, child)| **child == index).map(|(trial, _)| *trial);
        now.or_else(|| self.again.former.get(&index).copied())
    }

    /// Tells the cutter which processes an act hits.
    pub(super) fn name_targets(&self) {
        let (pids, whose) = self.shared_targets();
        self.ask(Request::Shared(pids, whose));
        for (trial, index) in &self.workers {
            self.ask(Request::Worker(*trial, self.children[*index].pid()));
        }
    }

    fn shared_targets(&self) -> (Vec<u32>, &'static str) {
        let is = |meant: Act| does(self.plan, |act| act == meant);
        if is(Act::KillReaper) {
            (self.reapers.iter().map(|index| self.children[*index].pid()).collect(), "the reaper")
        } else if is(Act::KillStore) {
            (self.lab.database.iter().map(|database| database.pid()).collect(), "the task store")
        } else {
            (self.broker_pids(), "the broker")
        }
    }

    /// Starts what this act has killed, for these trials.
    pub(super) fn start_again(&mut self, act: Act, trials: Vec<TrialId>) -> Result<(), EngineError> {
        let Some(first) = trials.first().copied() else { return Ok(()) };
        let began = self.clock.now();
        let old = match act {
            Act::KillWorker => vec![self.children[self.host_of(first)].pid()],
            _ => self.shared_targets().0,
        };
        self.again.pending.insert(first, Pending { act, trials, began, old });
        match act {
            Act::KillWorker => {
                let arm = self.arm_of(first);
                let index = self.start_subject(arm, first).map_err(harness("a worker's successor"))?;
                self.again.silent.insert(index);
                if let Some(former) = self.workers.insert(first, index) {
                    self.again.former.insert(former, first);
                }
            }
            Act::KillReaper => {
                for place in 0..self.reapers.len() {
                    let index = self.start_reaper().map_err(harness("the reaper's successor"))?;
                    self.again.silent.insert(index);
                    self.reapers[place] = index;
                }
            }
            Act::KillStore => {
                let waiter = self.lab.database.as_mut().map(|database| database.restart());
                let waiter = waiter.ok_or_else(|| std::io::Error::other("there is no database")).flatten();
                self.await_answers(waiter.map(|waiter| vec![waiter]));
            }
            _ => {
                let waiters = self.restart_brokers().map(|_| self.lab.brokers.iter().map(Broker::waiter).collect());
                self.await_answers(waiters);
            }
        }
        Ok(())
    }

    /// Lets a thread of its own wait until all answer: nobody else has to.
    fn await_answers(&self, waiters: std::io::Result<Vec<Waiter>>) {
        let (sender, clock) = (self.sender.clone(), self.clock);
        let wait = move || {
            let all = waiters.map_err(|error| error.to_string()).and_then(|all| {
                all.into_iter().try_for_each(|waiter| waiter.wait(clock))?;
                Ok(clock.now())
            });
            let _ = sender.send(Message::Answers(all));
        };
        let spawned = std::thread::Builder::new().name("waits".into()).spawn(wait);
        if let Err(error) = spawned {
            let _ = self.sender.send(Message::Answers(Err(error.to_string())));
        }
    }

    /// A child that was started in the course of the run has said hello.
    pub(super) fn worker_or_reaper_is_back(&mut self, index: usize) {
        if !self.again.silent.remove(&index) {
            return;
        }
        if let Some(trial) = self.former_or_worker(index) {
            let pid = self.children[index].pid();
            self.ask(Request::Worker(trial, pid));
            let times = self.again.times.entry(trial).or_default();
            *times += 1;
            let number = *times + 1;
            let fresh = self.settings_of(trial).worker_id == Some(WorkerId::Fresh);
            let name = if fresh { format!("{}-{}", worker_name(trial), number) } else { worker_name(trial) };
            let first_attempt = self.again.attempts.get(&trial).map_or(0, |highest| highest + 1);
            self.open(trial, Worker { name, first_attempt });
            self.back(trial, self.clock.now(), &[pid]);
        } else if !self.reapers.iter().any(|reaper| self.again.silent.contains(reaper)) {
            self.let_reapers_sweep();
            self.shared_back(Ok(self.clock.now()));
        }
    }

    /// What concerns everybody answers again.
    pub(super) fn answers(&mut self, result: Result<Offset, String>) -> Result<(), EngineError> {
        self.shared_back(result);
        Ok(())
    }

    fn shared_back(&mut self, result: Result<Offset, String>) {
        let first = self.again.pending.iter().find(|(_, pending)| pending.act != Act::KillWorker).map(|(id, _)| *id);
        let Some(first) = first else { return };
        match result {
            Ok(at) => {
                let (pids, whose) = self.shared_targets();
                self.ask(Request::Shared(pids.clone(), whose));
                self.back(first, at, &pids);
            }
            Err(error) => {
                let Some(Pending { trials, began, .. }) = self.again.pending.remove(&first) else { return };
                let proof = Proof { what: format!("it was not started again: {error}"), holds: false };
                let applied = Applied { before: began, after: self.clock.now() };
                self.ask(Request::StartedAgain { trials, applied, proof });
            }
        }
    }

    /// Heals the fault of those that waited for it, with the look at the new processes as its proof.
    fn back(&mut self, first: TrialId, at: Offset, pids: &[u32]) {
        let Some(Pending { trials, began, old, .. }) = self.again.pending.remove(&first) else { return };
        let runs = |pid: &u32| procfs::identity(*pid).is_some() && !old.contains(pid);
        let holds = !pids.is_empty() && pids.iter().all(runs);
        let words: Vec<String> = pids.iter().map(u32::to_string).collect();
        let what = match holds {
            true => format!("started again and runs as {}", words.join(", ")),
            false => format!("started again as {}, which is not there or is the old one", words.join(", ")),
        };
        let applied = Applied { before: began, after: at };
        self.ask(Request::StartedAgain { trials, applied, proof: Proof { what, holds } });
    }

    /// Lets every reaper that has a process of its own sweep from the next strike on.
    pub(super) fn let_reapers_sweep(&mut self) {
        let Some(settings) = self.plan.scenario.reaper.clone() else { return };
        for reaper in self.reapers.clone() {
            let command = self.reap(&settings, None);
            self.children[reaper].send(&command);
        }
    }

    /// What tells a reaper to sweep.
    pub(super) fn reap(&self, settings: &ReaperSettings, only: Option<TrialId>) -> Command {
        let first = self.again.next_strike(self.clock.now(), settings.interval);
        Command::Reap { sweeps: self.sweeps(settings), first, only }
    }

    /// A process that was killed may have done what it had no time to tell of: its store knows.
    pub(super) fn tell_what_the_store_knows(&mut self, trial: TrialId) {
        let kills = does(self.plan, |act| matches!(act, Act::KillWorker | Act::KillReaper | Act::KillStore));
        let Some(place) = self.store.as_ref().filter(|_| kills) else { return };
        let rows = place
            .parse::<Place>()
            .map_err(|never| match never {})
            .and_then(|place| TaskStore::open(&place).and_then(|store| store.of_trial(trial)));
        let now = self.clock.now();
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                let note = Kind::Note { text: format!("trial {trial}: what its tasks came to is not known: {error}") };
                let _ = self.sender.send(Message::Event(Event::of_run(now, Source::Harness, note)));
                return;
            }
        };
        let attempt = self.again.attempts.get(&trial).copied().unwrap_or_default();
        for row in rows.into_iter().filter(|row| now.since(row.updated_at) >= SETTLED) {
            let message = row.id.message;
            let (told, kind) = match row.status {
                Status::Pending => continue,
                Status::Processing => (Told::Started, Kind::Started { attempt, message }),
                Status::Done => (Told::Finished, Kind::Finished { attempt, message }),
                // Which of its rules it was is not written down.
                Status::Failed => {
                    let retried = row.retry_at.is_some();
                    (Told::Reaped, Kind::Reaped { message, rule: String::new(), retried })
                }
            };
            if self.again.told.insert((trial, message, told)) {
                let event = Event::of_trial(row.updated_at, Source::Harness, trial, kind);
                let _ = self.sender.send(Message::Event(event));
            }
        }
    }
}
