//! The one vocabulary of a run: what happened, when, according to whom.
//!
//! Engines emit events, everything after them reads events: verdicts, statistics and reports work on a recorded
//! `events.jsonl` as well as on a live run. Connections are keyed by their 4-tuple as the *client* sees it; each trial
//! has a client address of its own, so a tuple names one trial. What is left out: any judgement. An event says that
//! the kernel closed a socket, never that a fault was detected.

mod kind;
mod tuple;

pub use kind::{Cause, Counters, EffectiveOptions, How, Kind, SocketSnapshot};
pub use tuple::Tuple;

pub use crate::units::TrialId;

use crate::units::Offset;
use serde::{Deserialize, Serialize};

/// The version of the vocabulary, written to `run.json`. Raised when a kind changes its meaning; kinds may be added.
pub const EVENTS_VERSION: u32 = 1;

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The harness itself: plan, faults, certificates.
    Harness,
    /// The consumer under test.
    Subject,
    /// The kernel of the subject's host, through `sock_diag` or a tracepoint.
    Kernel,
    /// The broker: its log or its tables.
    Broker,
    /// The embedded peer of a bare TCP subject.
    Peer,
    /// The publisher of the numbered messages.
    Producer,
    /// The fallback reaper.
    Reaper,
    /// The external provider at which effects are made.
    Provider,
    /// Whoever waits for tasks.
    User,
    /// The model engine, in place of all of the above.
    Model,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, on the run's monotonic clock. For a polled source this is the moment of the poll that first saw it.
    pub offset: Offset,
    /// According to whom.
    pub source: Source,
    /// The trial that it belongs to; `None` for events of the run as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialId>,
    /// What.
    #[serde(flatten)]
    pub kind: Kind,
}

impl Event {
    /// An event of one trial.
    #[must_use]
    pub fn of_trial(offset: Offset, source: Source, trial: TrialId, kind: Kind) -> Self {
        Self { offset, source, trial: Some(trial), kind }
    }

    /// An event of the whole run.
    #[must_use]
    pub fn of_run(offset: Offset, source: Source, kind: Kind) -> Self {
        Self { offset, source, trial: None, kind }
    }
}
