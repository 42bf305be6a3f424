//! A task as its store keeps it.

use crate::units::{Offset, TrialId};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A task's name: one message is one task. Written `trial.message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The trial.
    pub trial: TrialId,
    /// The message's number within it.
    pub message: u64,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.trial, self.message)
    }
}

/// A text that names no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no task: a trial, a dot and a message are")]
pub struct NoTask(String);

impl FromStr for TaskId {
    type Err = NoTask;

    fn from_str(text: &str) -> Result<Self, NoTask> {
        let parts = text.split_once('.').and_then(|(t, m)| Some((t.parse().ok()?, m.parse().ok()?)));
        parts.map(|(trial, message)| Self { trial, message }).ok_or_else(|| NoTask(text.to_string()))
    }
}

/// Where a task stands. The words are those of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Handed to the broker; nobody has begun.
    Pending,
    /// A worker has begun.
    Processing,
    /// The work is done.
    Done,
    /// Failed: by a reaper, with an `error_code`.
    Failed,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Processing, Self::Done, Self::Failed];

    /// The word in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Done => "DONE",
            Self::Failed => "FAILED",
        }
    }
}

/// A row. Times are the run's monotonic clock, so no step of a wall clock can make a task old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// Where it stands.
    pub status: Status,
    /// Who began it.
    pub worker_id: Option<String>,
    /// Why it failed.
    pub error_code: Option<String>,
    /// When it was last handed to the broker.
    pub queued_at: Offset,
    /// When anything of it last changed.
    pub updated_at: Offset,
    /// How often it was handed to the broker in this try.
    pub attempts: u32,
    /// The last heartbeat that its worker wrote for it in this try.
    pub heartbeat_at: Option<Offset>,
    /// Which try this is, from 1.
    pub tries: u32,
    /// When one that failed is queued again by its own retries; `None`: its failing is final.
    pub retry_at: Option<Offset>,
}

impl Task {
    /// Whether nothing more will come of it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.status == Status::Done || self.status == Status::Failed && self.retry_at.is_none()
    }
}

/// What a store knows of a worker's last sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// When it was given, by the worker's own clock.
    pub said: Offset,
    /// How old it is, by the store's clock at the write and at the look.
    pub age: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_table() {
        let id = TaskId { trial: 7, message: u64::MAX };
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "7", "7.", ".3", "7.x", "-1.0", "7.3.1"] {
            assert!(wrong.parse::<TaskId>().is_err(), "{wrong}");
        }
    }
}
