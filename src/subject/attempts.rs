//! The life of one trial's client: attempt 0 is the connection under test, the reconnects after it are numbered.

use super::halt::Halt;
use super::protocol::{Routing, Target};
use super::provider::Provider;
use super::report::Reporter;
use super::stop::{Gate, Place, Stop};
use super::sweeps::SweepWorker;
use super::tasks::{Begun, TaskLog};
use crate::events::{Cause, Kind, Tuple};
use crate::reaper::TaskId;
use crate::scenario::{Ack, Begins, Effects, RECONNECT_PAUSE, Settings, SubjectKind, Trigger};
use crate::units::{Offset, TrialId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Everything that a client needs to know about its trial.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub id: TrialId,
    pub target: Target,
    pub settings: Settings,
    pub load_interval: Option<Duration>,
    /// The kinds of work, and where they come from.
    pub routing: Arc<Routing>,
    pub reporter: Reporter,
    /// Where the state of each message's task is written down, where there is a reaper.
    pub tasks: Option<TaskLog>,
    /// Where effects are made, where that is not the end of the work itself.
    pub provider: Option<Provider>,
    /// The worker's name in the task store, and in its signs of life.
    pub worker: String,
    /// The number of its first connection.
    pub first_attempt: u32,
    /// What each message has it do, where its messages are sweeps.
    pub sweeps: Option<SweepWorker>,
    /// What is being worked on.
    pub current: Current,
    /// Attempts to connect that failed since one consumed, that one's end counted.
    pub failed: Arc<AtomicU32>,
    /// Where the work is to stand still.
    pub halt: Arc<Halt>,
    /// Whether a fault of the run waits for a point of the work.
    pub halts: bool,
    pub stop: Arc<Stop>,
}

/// The messages that a worker has begun and not finished, for those who ask what it does; each with whether somebody may
/// have done some of its work before.
#[derive(Debug, Clone, Default)]
pub(super) struct Current(Arc<Mutex<BTreeMap<u64, bool>>>);

impl Current {
    fn map(&self) -> MutexGuard<'_, BTreeMap<u64, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of them.
    pub fn task(&self) -> Option<u64> {
        self.map().first_key_value().map(|(message, _)| *message)
    }

    /// All of them.
    pub fn all(&self) -> Vec<u64> {
        self.map().keys().copied().collect()
    }
}

/// How an attempt ended, and when.
#[derive(Debug)]
pub(super) enum End {
    /// It never got as far as consuming.
    Failed { at: Offset, cause: Cause },
    /// The client noticed the end of its connection.
    Noticed { at: Offset, cause: Cause },
}

impl Trial {
    /// Reports what happens now.
    pub fn event(&self, kind: Kind) {
        self.event_at(self.reporter.now(), kind);
    }

    /// Reports what happened at `at`, unless the trial was closed: then nothing is worth a report.
    pub fn event_at(&self, at: Offset, kind: Kind) {
        if !self.stop.is_stopped() {
            self.reporter.event(at, self.id, kind);
        }
    }

    /// Reports the 4-tuple and has the socket shut down when the trial is closed.
    pub fn connected(&self, at: Offset, attempt: u32, tuple: Tuple) {
        self.event_at(at, Kind::Connected { attempt, tuple });
        if self.stop.watch(tuple)
            && let Some(socket) = super::socket::find(tuple)
        {
            super::socket::shut_down(&socket);
        }
    }

    /// The wall clock in seconds, by which those go that share a store with others.
    pub fn wall_s(&self) -> f64 {
        self.reporter.wall_of(self.reporter.now()) as f64 / 1e9
    }

    /// How long the work on a message takes.
    pub fn work_of(&self, message: u64) -> Duration {
        self.routing.job_of(message).and_then(|job| job.work).unwrap_or(self.settings.work())
    }

    /// How often the work on a message fails before it succeeds.
    pub fn fails(&self, message: u64) -> u32 {
        self.routing.job_of(message).map_or(0, |job| job.fails)
    }

    /// The work on a message failed: it has no effect that would count.
    pub fn fail_work(&self, message: u64) {
        self.current.map().remove(&message);
    }

    /// A number from 0 to 1, the same in every run: the trial's own for each of its tries.
    pub fn draw(&self, what: u64, retry: u32) -> f64 {
        let seed = (u64::from(self.id) << 32 | u64::from(retry)).wrapping_add(what.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        ChaCha8Rng::seed_from_u64(seed).random()
    }

    /// Begins the work on a message; false where its task is not there to be begun (failed meanwhile, or somebody's).
    /// Without a task store there is nothing that could say no. Blocks where the store or a fault makes it.
    pub fn begin_work(&self, attempt: u32, message: u64) -> bool {
        let at = self.reporter.now();
        if let Some(sweeps) = &self.sweeps {
            self.event_at(at, Kind::Started { attempt, message });
            sweeps.sweep(&self.reporter, self.id);
            return true;
        }
        let begun = match &self.tasks {
            None => Begun::First,
            Some(tasks) => {
                let begins = self.settings.begins.unwrap_or(Begins::Pending);
                match tasks.begin(self.task(message), &self.worker, begins, at) {
                    Ok(begun) => begun,
                    Err(error) => {
                        self.reporter.note(format!("trial {}: {error}", self.id));
                        Begun::Again
                    }
                }
            }
        };
        if begun == Begun::Refused {
            return false;
        }
        self.current.map().insert(message, begun == Begun::Again);
        self.event_at(at, Kind::Started { attempt, message });
        self.stand(Trigger::BeforeEffect, attempt, message);
        true
    }

    /// How long the work takes until its effect is made, and after that. Without a provider its end is the effect.
    pub fn work(&self, message: u64) -> (Duration, Duration) {
        // What follows a blocking client's early acknowledgement takes no time unless the scenario says how long.
        let early = self.settings.ack == Some(Ack::Early) && self.settings.subject == SubjectKind::AmqpBlocking;
        let work = if early { self.settings.work.unwrap_or_default() } else { self.work_of(message) };
        if self.makes_effects() { (work / 2, work - work / 2) } else { (work, Duration::ZERO) }
    }

    /// Makes the effect of a message's work, at the provider where there is one. False where the provider could not be asked:
    /// then nothing more is done. Blocks as above.
    pub fn make_effect(&self, attempt: u32, message: u64) -> bool {
        let again = self.current.map().get(&message).copied().unwrap_or_default();
        match (&self.provider, self.settings.effects) {
            (Some(provider), Some(effects)) => {
                if let Err(error) = self.ask_provider(provider, effects, message, again) {
                    self.reporter.note(format!("trial {}: the provider: {error}", self.id));
                    self.current.map().remove(&message);
                    return false;
                }
            }
            _ => self.event(Kind::Effect { message }),
        }
        self.stand(Trigger::AfterEffect, attempt, message);
        true
    }

    fn ask_provider(&self, provider: &Provider, effects: Effects, message: u64, again: bool) -> std::io::Result<()> {
        let key = (effects == Effects::Key).then(|| self.task(message).to_string());
        match effects {
            Effects::Lookup if again && provider.find(self.id, message)? => return Ok(()),
            Effects::Compensate if again => provider.take_back(self.id, message)?,
            Effects::Key | Effects::Lookup | Effects::Compensate | Effects::Blind => {}
        }
        provider.make(self.id, message, key).map(drop)
    }

    /// The work on a message is done: the task store is told so. Blocks as above.
    pub fn finish_work(&self, attempt: u32, message: u64) {
        self.current.map().remove(&message);
        if let Some(tasks) = &self.tasks {
            match tasks.finish(self.task(message), &self.worker, self.reporter.now()) {
                // At the commit: only then does the store know.
                Ok(true) => self.event(Kind::Finished { attempt, message }),
                Ok(false) => {}
                Err(error) => self.reporter.note(format!("trial {}: {error}", self.id)),
            }
        }
        self.stand(Trigger::AfterCommit, attempt, message);
    }

    /// Whether the steps of the work may block: those of a store, of a provider, or of a fault that waits for one of them.
    pub fn blocks(&self) -> bool {
        self.tasks.is_some() || self.sweeps.is_some() || self.makes_effects() || self.halts
    }

    fn makes_effects(&self) -> bool {
        self.provider.is_some() && self.settings.effects.is_some()
    }

    fn task(&self, message: u64) -> TaskId {
        TaskId { trial: self.id, message }
    }

    fn stand(&self, point: Trigger, attempt: u32, message: u64) {
        let point_name = point.name().to_string();
        self.halt.pass(point, self.reporter.now(), || self.event(Kind::Halted { attempt, message, point: point_name }));
    }

    /// Starts an attempt.
    pub fn begin(&self, attempt: u32) -> Offset {
        let started = self.reporter.now();
        self.event_at(started, Kind::Connecting { attempt });
        started
    }

    /// Reports how an attempt ended and says how long to wait before the next one.
    pub fn finish(&self, attempt: u32, started: Offset, end: End) -> Duration {
        let now = self.reporter.now();
        let pause = match &self.settings.delivery.reconnect {
            Some(backoff) => {
                let failed = self.failed.load(Ordering::Relaxed);
                self.failed.store(if matches!(end, End::Failed { .. }) { failed + 1 } else { 1 }, Ordering::Relaxed);
                let retry = if matches!(end, End::Failed { .. }) { failed } else { 0 };
                backoff.delay(retry, self.draw(u64::MAX, attempt))
            }
            None => pause(&end, started, now),
        };
        match end {
            End::Failed { at, cause } => self.event_at(at, Kind::ConnectFailed { attempt, cause }),
            End::Noticed { at, cause } => self.event_at(at, Kind::Notice { attempt, cause }),
        }
        pause
    }

    /// Runs a blocking client until it is closed. `once` makes one attempt; it leaves the gate when it consumes.
    pub fn run_blocking(&self, gate: &Gate, mut once: impl FnMut(u32, &mut Option<Place<'_>>) -> End) {
        for attempt in self.first_attempt.. {
            // Only first attempts come in thousands at a time; a reconnect's clock must not include a queue of ours.
            let mut place = (attempt == 0).then(|| gate.enter());
            if self.stop.is_stopped() {
                return;
            }
            let started = self.begin(attempt);
            let end = once(attempt, &mut place);
            drop(place);
            self.stop.unwatch();
            if self.stop.wait(self.finish(attempt, started, end)) {
                return;
            }
        }
    }
}

fn pause(end: &End, started: Offset, now: Offset) -> Duration {
    match end {
        End::Failed { .. } => RECONNECT_PAUSE,
        End::Noticed { .. } => (started + RECONNECT_PAUSE).since(now),
    }
}

#[cfg(test)]
mod tests {
    use super::super::causes;
    use super::*;

    #[test]
    fn a_notice_reconnects_at_once_but_never_twice_a_second() {
        let noticed = End::Noticed { at: Offset::ZERO, cause: causes::eof() };
        assert_eq!(pause(&noticed, Offset::ZERO, Offset::from_secs(60.0)), Duration::ZERO);
        assert_eq!(pause(&noticed, Offset::ZERO, Offset::from_secs(0.25)), Duration::from_millis(750));
        let failed = End::Failed { at: Offset::ZERO, cause: causes::eof() };
        assert_eq!(pause(&failed, Offset::ZERO, Offset::from_secs(60.0)), RECONNECT_PAUSE);
    }
}
