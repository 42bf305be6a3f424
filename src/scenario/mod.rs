//! The scenario file: its schema, and reading it with errors that name file, line, key and mend.
//!
//! Pure: text in, [`Scenario`] or a list of errors out. What is left out: anything drawn or predicted, which is the
//! plan's.

pub mod matrix;
mod model;
pub mod profile;

pub use model::{
    Ack, Arm, BrokerKind, BrokerSettings, Directions, Fault, Gate, Keepalive, Measure, Scenario, Scope, Settings,
    SubjectKind,
};
