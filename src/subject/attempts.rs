//! The life of one trial's client: attempt 0 is the connection under test, the reconnects after it are numbered.

use super::protocol::Target;
use super::report::Reporter;
use super::stop::{Gate, Place, Stop};
use super::sweeps::SweepWorker;
use super::tasks::TaskLog;
use crate::events::{Cause, Kind, Tuple};
use crate::scenario::Settings;
use crate::units::{Offset, TrialId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two attempts: from the start of one that connected, from the end of one that failed.
///
/// Constant, because a growing back-off would be measured as part of every time to recover.
const PAUSE: Duration = Duration::from_secs(1);

/// Everything that a client needs to know about its trial.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub id: TrialId,
    pub target: Target,
    pub settings: Settings,
    pub load_interval: Option<Duration>,
    pub reporter: Reporter,
    /// Where the state of each message's task is written down, where there is a reaper.
    pub tasks: Option<TaskLog>,
    /// What each message has it do, where its messages are sweeps.
    pub sweeps: Option<SweepWorker>,
    /// What is being worked on.
    pub current: Current,
    pub stop: Arc<Stop>,
}

/// The messages that a worker has begun and not finished, for those who ask what it does.
#[derive(Debug, Clone, Default)]
pub(super) struct Current(Arc<Mutex<BTreeSet<u64>>>);

impl Current {
    fn set(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of them.
    pub fn task(&self) -> Option<u64> {
        self.set().first().copied()
    }

    /// All of them.
    pub fn all(&self) -> Vec<u64> {
        self.set().iter().copied().collect()
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
    /// Whether beginning and finishing a work blocks its thread.
    pub fn work_blocks(&self) -> bool {
        self.tasks.is_some() || self.sweeps.is_some()
    }

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

    /// Begins the work on a message; false where its task is not there to be begun (failed meanwhile, or somebody's).
    /// Without a task store there is nothing that could say no.
    pub fn begin_work(&self, attempt: u32, message: u64) -> bool {
        let at = self.reporter.now();
        if let Some(sweeps) = &self.sweeps {
            self.event_at(at, Kind::Started { attempt, message });
            sweeps.sweep(&self.reporter, self.id);
            return true;
        }
        let Some(tasks) = &self.tasks else {
            self.event_at(at, Kind::Started { attempt, message });
            self.current.set().insert(message);
            return true;
        };
        match tasks.begin(self.id, message, at) {
            Ok(true) => {
                self.current.set().insert(message);
                self.event_at(at, Kind::Started { attempt, message });
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.reporter.note(format!("trial {}: {error}", self.id));
                true
            }
        }
    }

    /// The work on a message is done: its effect is out, and the task store is told so.
    pub fn finish_work(&self, attempt: u32, message: u64) {
        self.current.set().remove(&message);
        self.event(Kind::Effect { message });
        let Some(tasks) = &self.tasks else { return };
        match tasks.finish(self.id, message, self.reporter.now()) {
            // At the commit: only then does the store know.
            Ok(true) => self.event(Kind::Finished { attempt, message }),
            Ok(false) => {}
            Err(error) => self.reporter.note(format!("trial {}: {error}", self.id)),
        }
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
        let pause = pause(&end, started, now);
        match end {
            End::Failed { at, cause } => self.event_at(at, Kind::ConnectFailed { attempt, cause }),
            End::Noticed { at, cause } => self.event_at(at, Kind::Notice { attempt, cause }),
        }
        pause
    }

    /// Runs a blocking client until it is closed. `once` makes one attempt; it leaves the gate when it consumes.
    pub fn run_blocking(&self, gate: &Gate, mut once: impl FnMut(u32, &mut Option<Place<'_>>) -> End) {
        for attempt in 0.. {
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
        End::Failed { .. } => PAUSE,
        End::Noticed { .. } => (started + PAUSE).since(now),
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
        assert_eq!(pause(&failed, Offset::ZERO, Offset::from_secs(60.0)), PAUSE);
    }
}
