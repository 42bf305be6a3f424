//! A reaper of either rule: one that sweeps by itself, or is asked for each sweep.

use super::{Place, Sweeper, TaskId, TaskStore, TaskStoreError, Watch};
use crate::host::clock::Clock;
use crate::scenario::{LivenessStore, ReaperSettings};
use crate::units::{Offset, TrialId};
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

/// What a sweep says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A task was failed.
    Failed {
        /// The task.
        id: TaskId,
        /// By which rule.
        rule: &'static str,
        /// Whether its own retries take over.
        retried: bool,
    },
    /// A task was queued again and is to be handed to the broker once more.
    Requeued {
        /// The task.
        id: TaskId,
    },
    /// The sweep is over.
    Looked {
        /// Rows that it had to judge.
        rows: usize,
        /// Rows that it failed.
        failed: usize,
        /// Why the brake let it fail none, where it did.
        held: Option<String>,
    },
    /// What could not be known.
    Doubt(String),
}

/// Where the workers' signs of life are.
#[derive(Debug, Clone, Default)]
pub struct Workers {
    /// The Redis with the workers' keys, as a URL.
    pub redis: Option<String>,
    /// The trials whose workers give theirs elsewhere than the rule says.
    pub elsewhere: BTreeMap<TrialId, LivenessStore>,
}

/// A reaper.
#[derive(Debug)]
pub enum Reaper {
    /// By Airflow's rules.
    Airflow(Sweeper),
    /// By the workers' signs of life.
    Liveness(Watch),
}

impl Reaper {
    /// The reaper that the settings ask for, of the store at this place.
    ///
    /// # Errors
    /// When the store can't be opened.
    pub fn open(
        place: &Place,
        clock: Clock,
        settings: ReaperSettings,
        workers: Workers,
    ) -> Result<Self, TaskStoreError> {
        Ok(match settings.liveness.clone() {
            Some(rule) => Self::Liveness(Watch::open(place, clock, settings, rule, workers)?),
            None => Self::Airflow(Sweeper::new(TaskStore::open(place)?, clock, settings)),
        })
    }

    /// Looks at the tasks of one trial alone.
    #[must_use]
    pub fn only(self, trial: Option<TrialId>) -> Self {
        match self {
            Self::Airflow(sweeper) => Self::Airflow(sweeper.only(trial)),
            Self::Liveness(watch) => Self::Liveness(watch.only(trial)),
        }
    }

    /// Sweeps by itself from `first` on, until the other end of `until` is dropped. A sweep that came to nothing is told as a
    /// doubt: the next one makes up for it.
    pub fn run(self, first: Offset, until: &Receiver<()>, tell: impl FnMut(Offset, Told)) {
        match self {
            Self::Airflow(sweeper) => sweeper.run(first, until, tell),
            Self::Liveness(watch) => watch.run(first, until, tell),
        }
    }

    /// Sweeps once.
    ///
    /// # Errors
    /// The store's.
    pub fn sweep(&mut self, tell: &mut impl FnMut(Offset, Told)) -> Result<(), TaskStoreError> {
        match self {
            Self::Airflow(sweeper) => sweeper.sweep(tell),
            Self::Liveness(watch) => watch.sweep(tell),
        }
    }
}
