//! The reaper on somebody's own stores: a table of tasks in PostgreSQL, signs of life in Redis or PostgreSQL.
//!
//! One sweep ([`Reaper::sweep`]) reads the active rows, asks for the workers they name, decides by the pure rule, brakes by the
//! pure guard, and only then, and only where it was told to, fails rows one by one, each under the condition that it still is
//! as it was read. What is left out: when to sweep and what to do with the outcome (`cli`).

mod config;
mod database;
mod metrics;
mod sweep;
mod tls;
mod workers;

pub use config::{Address, ConfigError, Liveness, OwnConfig, TaskTable, parse};
pub use database::StoreError;
pub use metrics::Metrics;
pub use sweep::{Deed, Doomed, Reaper, SweepReport};
pub(super) use workers::alive;
