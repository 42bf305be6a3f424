//! What a sweep does with the rows that it sees. Pure: rows and ages in, actions out; no clock, no store.
//!
//! Three rules: Airflow's for *queued* rows ([`decide`]), Airflow's for *running* ones ([`heartbeat`]), and the one of a
//! reaper with worker liveness ([`liveness`]), with the brake that keeps it from failing everything at once ([`guard`]).
//! Ages come from the store that keeps the rows: who reads a clock of another machine fails healthy tasks when the two
//! differ.

pub mod guard;
pub mod heartbeat;
pub mod liveness;
mod queued;

pub use queued::{Action, QUEUED_TIMEOUT, TIMEOUT, cutoff, decide, retry_at};
