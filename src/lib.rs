//! `halfopen`: who notices a half-open connection, when, and what was lost meanwhile.
//!
//! The rooms and what each may import are in `docs/architecture.md`; `tests/architecture.rs` holds the code to it.

pub mod config;
pub mod events;
pub mod host;
pub mod plan;
pub mod scenario;
pub mod subject;
pub mod units;
