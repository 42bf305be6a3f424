//! How a worker goes about its tasks: under which name, which of them it begins, and where their effects are made.

use super::{Act, Scenario};
use serde::{Deserialize, Serialize};

/// Under which name a worker comes back that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerId {
    /// The one that it had: from the environment, or the host's name.
    Same,
    /// A new one each time.
    Fresh,
}

/// Which tasks a worker begins, of those whose messages it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begins {
    /// Only one that nobody has begun, failed or done; else the message is acknowledged without work.
    Pending,
    /// One that somebody has begun, too: a message that comes again goes on with its task.
    Unfinished,
    /// Any: the store is told and not asked.
    Any,
}

/// How a worker makes a task's effect at an external provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// With an idempotency key, which the provider honours.
    Key,
    /// Without; a task that was begun before is looked for at the provider, and what is found is taken over.
    Lookup,
    /// With neither; what an earlier try may have done is taken back before it is done again.
    Compensate,
    /// With nothing: it is simply done again.
    Blind,
}

impl Scenario {
    /// Whether each message is a task that is written down in a store.
    #[must_use]
    pub fn keeps_tasks(&self) -> bool {
        self.reaper.is_some() || self.has_provider()
    }

    /// Whether a task's effect is made at an external provider.
    #[must_use]
    pub fn has_provider(&self) -> bool {
        self.arms.iter().any(|arm| arm.settings.effects.is_some())
    }

    /// Whether each trial's worker is a process of its own, so that something can be done to it alone.
    #[must_use]
    pub fn has_worker_processes(&self) -> bool {
        self.faults.iter().any(|fault| fault.act.is_some_and(Act::hits_worker))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
pub(super) fn is_false(flag: &bool) -> bool {
    !*flag
}
