//! Sweeps, and what they say: by the reaper's own process, or by a worker to which each sweep is a message.

use super::protocol::Sweeps;
use super::report::Reporter;
use crate::events::Kind;
use crate::host::clock::Clock;
use crate::reaper::{Place, Reaper, Told, Workers};
use crate::units::{Offset, TrialId};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The reaper that the orders ask for, of the store at this place.
///
/// # Errors
/// The store's.
pub(super) fn open(place: &Place, clock: Clock, sweeps: Sweeps) -> io::Result<Reaper> {
    let workers = Workers { redis: sweeps.redis, elsewhere: sweeps.elsewhere.into_iter().collect() };
    Reaper::open(place, clock, sweeps.settings, workers).map_err(io::Error::other)
}

/// Reports what a sweep says. `by` is the worker that sweeps, where one does.
pub(super) fn report(reporter: &Reporter, by: Option<TrialId>, at: Offset, told: Told) {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    match told {
        Told::Failed { id, rule, retried } => {
            let (message, rule) = (id.message, rule.to_string());
            reporter.event(at, id.trial, Kind::Reaped { message, rule, retried });
        }
        Told::Requeued { id } => reporter.event(at, id.trial, Kind::Requeued { message: id.message }),
        Told::Looked { rows, failed, held } => {
            let kind = Kind::Swept { rows: count(rows), failed: count(failed), held };
            match by {
                Some(trial) => reporter.event(at, trial, kind),
                None => reporter.run_event(at, kind),
            }
        }
        Told::Doubt(text) => reporter.note(format!("reaper: {text}")),
    }
}

/// A worker whose messages are sweeps.
#[derive(Debug, Clone)]
pub(super) struct SweepWorker(Arc<Mutex<Reaper>>);

impl SweepWorker {
    /// One that sweeps the store at this place.
    ///
    /// # Errors
    /// The store's.
    pub fn open(place: &Place, clock: Clock, sweeps: Sweeps) -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(open(place, clock, sweeps)?))))
    }

    /// Carries one sweep out. Blocks for as long as it takes.
    pub fn sweep(&self, reporter: &Reporter, by: TrialId) {
        let mut reaper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let swept = reaper.sweep(&mut |at, told| report(reporter, Some(by), at, told));
        if let Err(error) = swept {
            reporter.note(format!("trial {by}: the sweep broke off: {error}"));
        }
    }
}
