//! What cleans up afterwards: a store of tasks, and a scheduler that fails what has waited in it for too long.
//!
//! The decision is pure ([`rule`]): rows and the time in, actions out. The store ([`TaskStore`]) and the loops that sweep
//! it ([`Sweeper`], [`Watch`], either as a [`Reaper`]) are the effects around it. What is left out: who queues tasks and who works on them (`subject`), and
//! what became of a trial (`verdict`).

pub mod own;
mod postgres;
mod reap;
pub mod rule;
mod sqlite;
mod store;
mod sweep;
mod task;
mod vigil;
mod watch;

pub use reap::{Reaper, Told, Workers};
pub use store::{Place, TaskStore, TaskStoreError};
pub use sweep::Sweeper;
pub use task::{Beat, Status, Task, TaskId};
pub use vigil::{LAZY_CHECK, Look, Vigil};
pub use watch::Watch;

/// The name that a trial's worker writes into its tasks: each trial is a worker of its own.
#[must_use]
pub fn worker_name(trial: crate::units::TrialId) -> String {
    format!("worker-{trial}")
}
