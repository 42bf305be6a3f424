//! `halfopen`: who notices a half-open connection, when, and what was lost meanwhile.
//!
//! The rooms and what each may import are in `docs/architecture.md`; `tests/architecture.rs` holds the code to it.

pub mod advise;
pub mod attribute;
pub mod cli;
pub mod clients;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod events;
pub mod fault;
pub mod host;
pub mod inspect;
pub mod lab;
pub mod ledger;
pub mod observe;
pub mod plan;
pub mod reaper;
pub mod report;
pub mod scenario;
pub mod stats;
pub mod store;
pub mod subject;
pub mod timers;
pub mod units;
pub mod verdict;
