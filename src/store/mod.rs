//! The run directory: made, written while the run goes on, finished atomically, read back by later versions.
//!
//! A run that is killed leaves `run.json` as it was at the start and all events up to the last second, which is enough
//! to judge it. Nothing here holds a password: logins are the run's own and are never handed to this room, except to
//! be blotted out of whatever a client or broker says ([`EventLog::hide`]). What is left out: what the files say about
//! the trials (`report` makes the bytes).

mod dir;
mod error;
mod events;
mod merge;
mod model;
mod samples;
mod secrets;

pub use dir::{LOGS, MARKER, Recorded, RunDir, read};
pub use error::StoreError;
pub use events::{EventLog, ReadEvents, read_events};
pub use merge::{Joined, MergeError, merge};
pub use model::{
    ArmOptions, Brackets, EffectiveCount, Machine, MemoryUse, RUN_FORMAT, RunInfo, ScenarioSource, Tool, sha256_hex,
};
pub use samples::{CellSample, PlanHead, RunHead, RunSamples, read_samples};
